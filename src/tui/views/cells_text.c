/* The text above the map: wrapped at words, each token on a background that shows its depth. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "tui/cells.h"

enum { TOKENS_MAX = 50000 };

enum { REACH = 3 }; /* bytes of a character after its first */

/* The bytes of a token; its id where the record has no text for it. */
static const char *text_of(const struct probe *p, int t, char room[16], size_t *n)
{
    *n = p->piece_len[t];
    if (*n > 0 || !p->id || p->id[t] < 0)
        return p->piece[t];
    *n = (size_t)snprintf(room, 16, " %d", (int)p->id[t]);
    return room;
}

/* 0: neither text nor id is recorded. */
static int has_text(const struct probe *p, int t)
{
    return p->piece_len[t] > 0 || !p->id || p->id[t] >= 0;
}

/* Up to `most` bytes after token t (by = 1) or before it (by = -1, in reading order). */
static size_t neighbours(const struct probe *p, int t, int by, char *out)
{
    size_t n = 0;
    for (t += by; t >= 0 && t < p->tokens && n < REACH; t += by)
        for (size_t k = 0; k < p->piece_len[t] && n < REACH; k++) {
            if (by > 0) {
                out[n++] = p->piece[t][k];
            } else {
                memmove(out + 1, out, n++);
                out[0] = p->piece[t][p->piece_len[t] - 1 - k];
            }
        }
    return n;
}

/* A character whose bytes are spread over several tokens belongs to the token with its first byte:
 * the others have only what follows it, which may be nothing. */
void cells_joined(const struct probe *p, int t, struct str *out)
{
    char before[REACH] = {0}, after[REACH] = {0}, room[16];
    size_t n, lead = 0, past = 0, skip = 0, at;
    const char *piece = text_of(p, t, room, &n);
    const unsigned char *s = (const unsigned char *)piece;
    struct str all = {0};
    uint32_t rune;
    /* only tokens that begin or end within a character look around: most do neither */
    if (n > 0 && (s[0] & 0xC0) == 0x80)
        lead = neighbours(p, t, -1, before);
    for (size_t k = n > REACH ? n - REACH : 0; k < n; k++)
        if (s[k] >= 0xC0)
            past = REACH;
    past = past || lead ? neighbours(p, t, 1, after) : 0;
    str_add_bytes(&all, before, lead);
    str_add_bytes(&all, piece, n);
    str_add_bytes(&all, after, past);
    const char *text = str_text(&all);
    for (at = 0; at < lead && skip == 0; at++) {
        size_t len = (size_t)utf8_decode(text + at, all.len - at, &rune);
        skip = at + len > lead ? at + len - lead : 0;
    }
    skip = skip > n ? n : skip;
    for (at = lead + skip; at < lead + n;) {
        int len = utf8_decode(text + at, all.len - at, &rune);
        at += len > 0 ? (size_t)len : 1;
    }
    str_add_bytes(out, text + lead + skip, at - lead - skip);
    out->failed |= all.failed;
    str_release(&all);
}

/* Width of a token in cells when shown in full; 0 when an earlier token shows its character. */
static int token_cells(const struct probe *p, int t, int ascii)
{
    struct str safe = {0}, own = {0};
    cells_joined(p, t, &own);
    utf8_sanitise(&safe, str_text(&own), own.len, 64, ascii);
    int cells = utf8_cells(str_text(&safe), safe.len),
        is_shown_before = !own.len && p->piece_len[t];
    str_release(&safe);
    str_release(&own);
    return cells < 1 && !is_shown_before ? 1 : cells;
}

/* The token that shows the character that token t is part of. */
static int shown_by(const struct probe *p, int t)
{
    while (t > 0 && token_cells(p, t, 0) == 0)
        t--;
    return t;
}

static int is_blank(const struct probe *p, int t)
{
    char room[16];
    size_t n;
    const char *s = text_of(p, t, room, &n);
    return n > 0 && (s[0] == ' ' || s[0] == '\n');
}

/* Position of the layout, advanced token by token. */
struct flow {
    const struct probe *p;
    int cols, ascii, y, x, token, width;
};

static int flow_next(struct flow *f)
{
    int t = ++f->token;
    if (t >= f->p->tokens)
        return 0;
    f->x += f->width;
    f->width = token_cells(f->p, t, f->ascii);
    int word = f->width; /* a word that fits on one line moves to the next line as a whole */
    if (t == 0 || is_blank(f->p, t) || is_blank(f->p, t - 1))
        for (int k = t + 1; k < f->p->tokens && !is_blank(f->p, k) && word <= f->cols; k++)
            word += token_cells(f->p, k, f->ascii);
    word = word > f->cols ? f->width : word;
    if (f->x > 0 && f->x + word > f->cols) {
        f->y++;
        f->x = 0;
    }
    f->width = f->width > f->cols ? f->cols : f->width;
    return 1;
}

static struct flow flow_begin(const struct probe *p, int cols, int ascii)
{
    return (struct flow){.p = p, .cols = cols < 1 ? 1 : cols, .ascii = ascii, .token = -1};
}

int cells_text_rows(const struct cells *c, int cols, int most)
{
    if (c->probe->tokens > TOKENS_MAX)
        return 0; /* too long to read in three lines, and slow to lay out */
    struct flow f = flow_begin(c->probe, cols, 0);
    while (flow_next(&f) && f.y < most)
        ;
    return f.y + 1 > most ? most : f.y + 1;
}

void cells_text_draw(struct area a, struct cells *c)
{
    const struct probe *p = c->probe;
    const struct look *look = &a.canvas->look;
    struct flow f = flow_begin(p, a.cols, look->glyphs == GLYPHS_ASCII);
    double lo = (double)INFINITY, hi = -(double)INFINITY;
    int cursor_y = 0, last = 0, seen = c->seen_token;
    if (seen >= 0 && seen < p->tokens)
        seen = shown_by(p, seen);
    for (int t = 0; t < p->tokens; t++) {
        double d = cells_depth(p, c->run, t);
        lo = d < lo ? d : lo;
        hi = d > hi ? d : hi;
    }
    while (flow_next(&f)) {
        if (f.token == seen)
            cursor_y = f.y;
        last = f.y;
    }
    if (cursor_y < c->text_top)
        c->text_top = cursor_y;
    if (cursor_y >= c->text_top + a.rows)
        c->text_top = cursor_y - a.rows + 1;
    if (c->text_top > last - a.rows + 1)
        c->text_top = last - a.rows + 1;
    c->text_top = c->text_top < 0 ? 0 : c->text_top;
    for (f = flow_begin(p, a.cols, look->glyphs == GLYPHS_ASCII);
         flow_next(&f) && f.y - c->text_top < a.rows;) {
        if (f.y < c->text_top)
            continue;
        double d = cells_depth(p, c->run, f.token);
        struct ink i = c->tone    ? ink((enum role)c->tone[f.token])
                       : c->shade ? cells_depth_ink(look, (double)c->shade[f.token])
                                  : cells_depth_ink(look, hi > lo    ? (d - lo) / (hi - lo)
                                                          : isnan(d) ? d
                                                                     : 0.5);
        if (c->mark && c->mark[f.token])
            i.attr |= ATTR_UNDERLINE | ATTR_BOLD;
        if (f.token == seen)
            i.attr |= ATTR_REVERSE | ATTR_BOLD;
        struct area room = area_sub(a, f.y - c->text_top, f.x, 1, f.width);
        struct str text = {0};
        cells_joined(p, f.token, &text);
        if (area_bytes(room, 0, 0, f.width, i, str_text(&text), text.len) == 0)
            area_put(room, 0, 0, has_text(p, f.token) ? ' ' : area_rune(a, 0xB7, '.'), i);
        str_release(&text);
    }
}

int cells_text_hit(const struct cells *c, int y, int x)
{
    const struct cells_at *at = &c->at;
    y -= at->text_y;
    x -= at->text_x;
    if (y < 0 || y >= at->text_rows || x < 0 || x >= at->text_cols)
        return -1;
    struct flow f = flow_begin(c->probe, at->text_cols, 0);
    while (flow_next(&f))
        if (f.y == y + c->text_top && x >= f.x && x < f.x + f.width)
            return f.token;
    return -1;
}

/* A token in a few cells: leading blanks are dropped, and what has no glyph becomes a
 * placeholder. */
void cells_piece(struct area a, int y, int x, int width, struct ink i, const struct probe *p,
                 int token)
{
    char digits[16];
    size_t n;
    const char *s = text_of(p, token, digits, &n);
    struct area room = area_sub(a, y, x, 1, width);
    int ascii = a.canvas->look.glyphs == GLYPHS_ASCII;
    while (n > 1 && *s == ' ') {
        s++;
        n--;
    }
    struct str safe = {0};
    utf8_sanitise(&safe, s, n, -1, ascii);
    int cells = utf8_cells(str_text(&safe), safe.len);
    str_release(&safe);
    if (cells <= width || width >= 3) {
        area_bytes(room, 0, 0, width, i, s, n);
        return;
    }
    uint32_t rune = 0;
    int len = n ? utf8_decode(s, n, &rune) : 0, cut = len > 0 && rune >= 0x20 && rune < 0x7F;
    if (len > 0 && !ascii && rune > 0xA0 && utf8_width(rune) <= width && utf8_width(rune) > 0) {
        struct str one = {0};
        utf8_sanitise(&one, s, (size_t)len, width + 1, 0);
        cut = utf8_cells(str_text(&one), one.len) <= width; /* no bidi control, no private use */
        str_release(&one);
    }
    area_put(room, 0, 0, cut ? rune : rune == '\n' && !ascii ? 0x2424 : (uint32_t)'?', i);
}

/* Shortened to its first part where the whole does not fit. */
int cells_caveat(struct area line, int x, int x_end, const struct probe *p)
{
    const char *text = probe_caveat(p);
    int n = (int)strlen(text);
    n = x + n < x_end ? n : (int)strcspn(text, ",");
    return n > 0 ? area_textf(line, 0, x, n, ink_attr(ink(ROLE_WARN), ATTR_BOLD), "%.*s", n, text)
                 : 0;
}

int cells_title(struct area line, int x, int most, int x_end, const struct probe *p)
{
    int first = (int)strcspn(probe_caveat(p), ","), room = x_end - x - (first ? first + 2 : 0);
    int n =
        area_text(line, 0, x,
                  most < room ? most
                  : room > 0  ? room
                              : 0,
                  ink_attr(ink(ROLE_TITLE), ATTR_BOLD), p->name && p->name[0] ? p->name : "text");
    return first ? n + 2 + cells_caveat(line, x + n + 2, x_end, p) : n;
}
