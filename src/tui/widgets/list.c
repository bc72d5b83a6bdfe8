/* Lists, tables and scrolled text, with cursor and scroll position. */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "tui/widgets.h"

void list_fit(struct list *l, size_t n, int rows)
{
    size_t page = rows < 1 ? 1 : (size_t)rows;
    if (l->follow_tail && n > 0)
        l->cursor = n - 1;
    l->n = n;
    l->page = (int)page;
    if (l->cursor >= n)
        l->cursor = n ? n - 1 : 0;
    if (l->cursor < l->top)
        l->top = l->cursor;
    if (l->cursor >= l->top + page)
        l->top = l->cursor - page + 1;
    if (l->top + page > n)
        l->top = n > page ? n - page : 0;
}

void list_move(struct list *l, long by)
{
    long at = (long)l->cursor + by, last = (long)l->n - 1;
    at = at > last ? last : at;
    l->cursor = at < 0 ? 0 : (size_t)at;
    if (by < 0)
        l->follow_tail = 0;
    list_fit(l, l->n, l->page);
}

void list_end(struct list *l, int is_last)
{
    l->cursor = is_last && l->n ? l->n - 1 : 0;
    if (!is_last)
        l->follow_tail = 0;
    list_fit(l, l->n, l->page);
}

int list_event(struct list *l, const struct event *ev)
{
    long page = l->page > 1 ? l->page - 1 : 1;
    if (ev->kind == EVENT_MOUSE &&
        (ev->action == MOUSE_WHEEL_UP || ev->action == MOUSE_WHEEL_DOWN)) {
        list_move(l, ev->action == MOUSE_WHEEL_UP ? -3 : 3);
        return 1;
    }
    if (ev->kind != EVENT_KEY)
        return 0;
    switch (ev->key) {
    case KEYCODE_UP:
    case 'k': list_move(l, -1); return 1;
    case KEYCODE_DOWN:
    case 'j': list_move(l, 1); return 1;
    case KEYCODE_PGUP: list_move(l, -page); return 1;
    case KEYCODE_PGDN: list_move(l, page); return 1;
    case KEYCODE_CTRL | 'u': list_move(l, -(page + 1) / 2); return 1;
    case KEYCODE_CTRL | 'd': list_move(l, (page + 1) / 2); return 1;
    case KEYCODE_HOME: list_end(l, 0); return 1;
    case KEYCODE_END:
    case 'G': list_end(l, 1); return 1;
    default: return 0;
    }
}

void scrollbar_draw(struct area a, int x, size_t n, size_t top, int rows)
{
    if (rows < 2 || n <= (size_t)rows)
        return;
    int size = (int)((size_t)rows * (size_t)rows / n), travel;
    size = size < 1 ? 1 : size;
    travel = rows - size;
    int at = (int)((double)travel * (double)top / (double)(n - (size_t)rows) + 0.5);
    for (int y = 0; y < rows; y++) {
        int is_thumb = y >= at && y < at + size;
        area_put(a, y, x, is_thumb ? area_rune(a, 0x2588, '#') : area_rune(a, 0x2502, '|'),
                 ink(is_thumb ? ROLE_AXIS : ROLE_GRID));
    }
}

void columns_fit(const struct column *c, int n, int cols, int *width, int *x)
{
    int is_hidden[32] = {0}, total, shares;
    n = n > 32 ? 32 : n;
    for (int i = 0; i < n; i++)
        is_hidden[i] = c[i].width == 0;
    for (;;) {
        int worst = -1, shown = 0;
        total = shares = 0;
        for (int i = 0; i < n; i++) {
            if (is_hidden[i])
                continue;
            shown++;
            total += (c[i].width < 0 ? 8 : c[i].width) + 1;
            shares += c[i].width < 0 ? -c[i].width : 0;
            if (worst < 0 || c[i].priority < c[worst].priority)
                worst = i;
        }
        if (total - 1 <= cols || shown <= 1)
            break;
        is_hidden[worst] = 1;
    }
    int spare = cols - (total - 1), at = 0;
    for (int i = 0; i < n; i++) {
        width[i] = is_hidden[i]     ? 0
                   : c[i].width < 0 ? 8 + (spare > 0 ? spare * -c[i].width / shares : 0)
                                    : c[i].width;
        x[i] = at;
        at += is_hidden[i] ? 0 : width[i] + 1;
    }
}

void columns_text(struct area a, int y, const struct column *c, int i, const int *width,
                  const int *x, struct ink k, const char *text)
{
    if (width[i] <= 0)
        return;
    struct area room = area_sub(a, y, x[i], 1, width[i]);
    if (c[i].right)
        area_right(room, 0, room.cols, k, text);
    else
        area_text(room, 0, 0, -1, k, text);
}

enum { TAB_COUNT_COLS = 4 };

/* How tabs are laid out: cells between them, the most of a title, 1: as short as is understood, 1:
 * those without a number are left out. */
struct tab_style {
    int gap, cut, is_brief, drops_rest;
};

/* The cells used. */
static int tabs_place(const struct tab *t, int n, int current, int numbered, struct tab_style s,
                      int *x, int *width)
{
    int at = 0, is_all = 1;
    for (int i = 0; i < n; i++) {
        int digit = i < numbered, most = !digit && s.drops_rest ? 0 : s.cut;
        int len = s.is_brief && t[i].brief ? t[i].brief : (int)strlen(t[i].title);
        len = i == current || len < most ? len : most;
        x[i] = at;
        width[i] = digit + (digit && len) + len;
        at += width[i] ? width[i] + s.gap : 0;
        is_all &= width[i] > 0;
    }
    return at - s.gap + (is_all ? 0 : TAB_COUNT_COLS);
}

void tabs_fit(const struct tab *t, int n, int current, int numbered, int cols, int *x, int *width)
{
    static const struct tab_style style[] = {
        {2, INT_MAX, 0, 0}, {1, INT_MAX, 0, 0}, {1, INT_MAX, 1, 0}, {1, INT_MAX, 0, 1},
        {1, INT_MAX, 1, 1}, {1, 6, 1, 1},       {1, 5, 1, 1},       {1, 4, 1, 1},
        {1, 3, 1, 1},       {2, 0, 1, 1},
    };
    size_t k = 0;
    int has_hidden = 0;
    while (tabs_place(t, n, current, numbered, style[k], x, width) > cols && k + 1 < DS_LEN(style))
        k++;
    for (int i = 0; i < n; i++)
        has_hidden |= width[i] == 0;
    cols -= has_hidden ? TAB_COUNT_COLS : 0;
    for (int i = 0; i < n; i++)
        width[i] = x[i] + width[i] <= cols ? width[i] : 0;
}

void columns_head(struct area a, int y, const struct column *c, int n, const int *width,
                  const int *x)
{
    for (int i = 0; i < n; i++)
        columns_text(a, y, c, i, width, x, ink(ROLE_DIM), c[i].title);
}

/* ---- wrapped text ---- */

/* Bytes of the next line of at most `cols` cells: broken at the last blank that fits. */
static size_t line_length(const char *text, int cols)
{
    size_t at = 0, blank = 0;
    int cells = 0;
    while (text[at] && text[at] != '\n') {
        uint32_t rune;
        int len = utf8_decode(text + at, strlen(text + at) > 4 ? 4 : strlen(text + at), &rune);
        cells += len > 0 ? utf8_width(rune) : 6;
        if (cells > cols)
            return blank ? blank : at ? at : 1;
        if (text[at] == ' ')
            blank = at + 1;
        at += len > 0 ? (size_t)len : 1;
    }
    return at;
}

/* Start of the last column of a table row (after two or more blanks), below which the row is
 * continued. 0 for plain text, and where that column would be too narrow. */
static int hang_of(const char *text, int cols)
{
    int hang = 0;
    size_t n = strcspn(text, "\n");
    for (size_t i = 2; i < n; i++)
        if (text[i] != ' ' && text[i - 1] == ' ' && text[i - 2] == ' ')
            hang = utf8_cells(text, i);
    return hang > cols * 2 / 3 ? 0 : hang;
}

/* Iterates over the lines of the screen. */
struct wrap {
    const char *text; /* the remaining text */
    int cols, hang, is_continued;
};

/* The next line's bytes in *line and its first column; 0 at the end. */
static int wrap_next(struct wrap *w, const char **line, size_t *n, int *from)
{
    if (!*w->text || w->cols <= 0)
        return 0;
    if (!w->is_continued)
        w->hang = hang_of(w->text, w->cols);
    *from = w->is_continued ? w->hang : 0;
    *line = w->text;
    *n = line_length(w->text, w->cols - *from);
    w->is_continued = w->text[*n] != '\n';
    w->text += *n + !w->is_continued;
    return 1;
}

int scroll_line_of(const struct scroll *s, const char *text, const char *at)
{
    struct wrap w = {.text = text, .cols = s->cols};
    const char *line;
    size_t n;
    int from, count = 0;
    while (wrap_next(&w, &line, &n, &from) && w.text <= at)
        count++;
    return count;
}

void scroll_text(struct scroll *s, struct area a, const char *text, struct ink i)
{
    struct wrap w = {.text = text, .cols = a.cols - 2}; /* minus the scroll bar and a blank */
    const char *at;
    size_t n;
    int line = 0, from;
    s->cols = w.cols;
    s->page = a.rows;
    if (s->top > s->lines - a.rows && s->lines > 0)
        s->top = s->lines > a.rows ? s->lines - a.rows : 0;
    for (; wrap_next(&w, &at, &n, &from); line++)
        if (line >= s->top && line - s->top < a.rows)
            area_bytes(a, line - s->top, from, w.cols - from, i, at, n);
    s->lines = line;
    scrollbar_draw(a, a.cols - 1, (size_t)line, (size_t)s->top, a.rows);
}

int scroll_event(struct scroll *s, const struct event *ev)
{
    struct list l = {.n = (size_t)(s->lines > s->page ? s->lines - s->page + 1 : 1),
                     .cursor = (size_t)s->top,
                     .page = s->page};
    if (!list_event(&l, ev))
        return 0;
    s->top = (int)l.cursor;
    return 1;
}
