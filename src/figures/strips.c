/* One text as strips of cells: layers upwards, tokens to the right, token labels below. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum { STRIPS_MAX = 24 };

struct strip {
    int from, to;
    double x, y, cell_w, cell_h, label_h;
};

/* Label of a token: blanks and newlines made visible, at most 12 characters. */
static void token_text(const struct probe *p, int t, char *out, size_t size)
{
    char room[256];
    struct str clean = str_in(room, sizeof room), marked = str_in(out, size);
    utf8_sanitise(&clean, p->piece[t], p->piece_len[t], 12, 0);
    for (const char *c = str_text(&clean); *c; c++)
        if (*c == ' ')
            str_add(&marked, "\xE2\x90\xA3");
        else
            str_add_char(&marked, *c);
    if (!marked.len) /* no text in the record: its id, else its position */
        str_addf(&marked, "%d", p->id[t] >= 0 ? p->id[t] : t);
}

static double label_height(const struct sheet *s, const struct probe *p, int from, int to)
{
    double most = 0;
    char text[96];
    for (int t = from; t < to; t++) {
        token_text(p, t, text, sizeof text);
        most = fmax(most, glyph_width(text, s->venue->small));
    }
    return most + s->venue->small * 0.6;
}

static void draw_labels(struct sheet *s, const struct probe *p, const struct strip *r)
{
    double small = s->venue->small, bottom = r->y + r->cell_h * p->layers;
    int every = (int)ceil(small * 1.02 / r->cell_w), shift = p->layers > 16  ? 4
                                                             : p->layers > 8 ? 2
                                                                             : 1;
    char text[96];
    for (int l = 0; l < p->layers; l += shift) {
        number_format(text, sizeof text, l, 0);
        sheet_text(s, r->x - 3, r->y + (p->layers - 0.5 - l) * r->cell_h, TEXT_RIGHT, TEXT_MIDDLE,
                   1, sheet_colour(s, ROLE_TEXT), text);
    }
    for (int t = r->from; t < r->to; t += every) {
        struct text_style up = {.size = small,
                                .angle = 90,
                                .rgb = sheet_colour(s, ROLE_TEXT),
                                .h = TEXT_RIGHT,
                                .v = TEXT_MIDDLE};
        token_text(p, t, text, sizeof text);
        pen_text(s->pen, r->x + (t - r->from + 0.5) * r->cell_w, bottom + 3, &up, text);
    }
    struct text_style up = {
        .size = s->venue->base, .angle = 90, .rgb = sheet_colour(s, ROLE_TEXT), .h = TEXT_CENTRE};
    pen_text(s->pen, s->venue->base * 0.9, r->y + r->cell_h * p->layers / 2, &up,
             sheet_layer_label(s, 0, p->layers));
}

static void draw_strip(struct sheet *s, const struct probe *p, const struct strip *r,
                       strip_colour *colour, const void *ctx)
{
    for (int l = 0; l < p->layers; l++)
        for (int t = r->from; t < r->to; t++) {
            int rgb = colour(s, p, l, t, ctx);
            if (rgb >= 0)
                pen_box(s->pen, r->x + (t - r->from) * r->cell_w + 0.15,
                        r->y + (p->layers - 1 - l) * r->cell_h + 0.15, r->cell_w - 0.3,
                        r->cell_h - 0.3, rgb, 1);
        }
    draw_labels(s, p, r);
}

static double strips_left(const struct sheet *s)
{
    return s->venue->base * 1.2 + s->venue->small * 1.8;
}

double strips_key(struct sheet *s, const struct strip_key *k, int n)
{
    double small = s->venue->small, left = strips_left(s), x = left, y = small * 0.7;
    for (int i = 0; i < n; i++) {
        double need = k[i].rgb >= 0 ? small * 2.4 : small * 1.2;
        need += glyph_width(k[i].text, small);
        if (x > left && x + need > s->width + small) {
            x = left;
            y += small * 1.4;
        }
        double at = x;
        if (k[i].rgb >= 0) {
            pen_box(s->pen, x, y - small * 0.4, small * 0.8, small * 0.8, k[i].rgb, 1);
            at += small * 1.2;
        }
        sheet_text(s, at, y, TEXT_LEFT, TEXT_MIDDLE, 1, sheet_colour(s, ROLE_TEXT), k[i].text);
        x += need;
    }
    return y + small * 1.1;
}

int strips_draw(struct sheet *s, const struct probe *p, int run, double y, strip_colour *colour,
                const void *ctx, struct err *e)
{
    double small = s->venue->small, left = strips_left(s);
    double cell_w = fmax(small * 1.05, fmin(small * 1.6, (s->width - left) / p->tokens));
    int per = (int)floor((s->width - left) / cell_w + 1e-6);
    if (per < 1)
        per = 1;
    int strips = (p->tokens + per - 1) / per;
    if (strips > STRIPS_MAX) {
        cell_w = (s->width - left) * STRIPS_MAX / (p->tokens + STRIPS_MAX);
        per = (int)floor((s->width - left) / cell_w);
        strips = (p->tokens + per - 1) / per;
    }
    if (cell_w < 0.5)
        return sheet_fail(s, run, e, "its text is too long to draw: %d tokens", p->tokens);
    per = (p->tokens + strips - 1) / strips; /* strips of equal length, as wide as the sheet */
    cell_w = fmin((s->width - left) / per, small * 2.4);
    for (int i = 0; i < strips; i++) {
        struct strip r = {
            .from = i * per, .to = (i + 1) * per, .x = left, .y = y, .cell_w = cell_w};
        r.to = r.to > p->tokens ? p->tokens : r.to;
        r.cell_h = fmax(small * (p->layers > 16 ? 0.5 : 0.8), 2.5);
        r.label_h = label_height(s, p, r.from, r.to);
        draw_strip(s, p, &r, colour, ctx);
        y += r.cell_h * p->layers + 3 + r.label_h + small * 0.6;
    }
    s->height = y - small * 0.6;
    return 0;
}

int strips_probe(struct sheet *s, int needs_run, const struct probe **out, struct err *e)
{
    char name[200];
    if (s->runs != 1)
        return err_set(e, DS_EUSAGE, "figure %s: expected one run, found %d", s->ops->name,
                       s->runs);
    const struct probe *p = data_probe_of(s, 0, s->opt.probe);
    char index[32] = "", step[40] = "";
    if (s->opt.probe >= 0)
        snprintf(index, sizeof index, " of index %d", s->opt.probe);
    data_step_words(s, step, sizeof step);
    if (!p)
        return sheet_fail(s, 0, e, "no record 'probe'%s%s", index, step);
    if ((needs_run && !p->run) || p->layers < 1 || p->tokens < 1 || !p->piece)
        return sheet_fail(s, 0, e,
                          "its newest record 'probe' has no decisions ('run') or no 'text'");
    for (int t = 0; t < p->tokens; t++)
        data_hash(s, "piece", p->piece[t], p->piece_len[t]);
    sheet_run_name(s, 0, name, sizeof name);
    sheet_note(s, "%s.", name);
    *out = p;
    return 0;
}

void strips_caveat(struct sheet *s, const struct probe *p)
{
    if (*probe_caveat(p))
        sheet_note(s, "Decisions: %s.", probe_caveat(p));
}
