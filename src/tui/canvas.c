/* Cells, areas and text, independent of any terminal. */
#include "tui/canvas.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

struct ink ink(enum role fg)
{
    return (struct ink){.fg = (int32_t)fg, .bg = INK_KEEP};
}

struct ink ink_on(enum role fg, enum role bg)
{
    return (struct ink){.fg = (int32_t)fg, .bg = (int32_t)bg};
}

struct ink ink_attr(struct ink i, unsigned attr)
{
    i.attr |= attr;
    return i;
}

struct ink ink_series(int i)
{
    unsigned at = (unsigned)i % ROLE_SERIES_COUNT;
    return ink((enum role)(ROLE_SERIES_0 + at));
}

/* ---- the canvas ---- */

static const struct cell blank = {.rune = ' ', .fg = ROLE_TEXT, .bg = ROLE_BACKGROUND};

int canvas_resize(struct canvas *c, int rows, int cols)
{
    rows = rows < 1 ? 1 : rows > CANVAS_ROWS_MAX ? CANVAS_ROWS_MAX : rows;
    cols = cols < 1 ? 1 : cols > CANVAS_COLS_MAX ? CANVAS_COLS_MAX : cols;
    struct cell *cell = mem_realloc(c->cell, (size_t)rows * (size_t)cols, sizeof *cell);
    if (!cell)
        return DS_EMEM;
    c->cell = cell;
    c->rows = rows;
    c->cols = cols;
    canvas_clear(c);
    return 0;
}

void canvas_clear(struct canvas *c)
{
    size_t n = (size_t)c->rows * (size_t)c->cols;
    for (size_t i = 0; i < n; i++)
        c->cell[i] = blank;
    c->cursor_y = c->cursor_x = -1;
}

void canvas_release(struct canvas *c)
{
    mem_free(c->cell);
    c->cell = NULL;
    c->rows = c->cols = 0;
}

static void add_rune(struct str *out, uint32_t rune)
{
    char bytes[4];
    str_add_bytes(out, bytes, (size_t)utf8_encode(bytes, rune));
}

void canvas_text(const struct canvas *c, struct str *out)
{
    for (int y = 0; y < c->rows; y++) {
        const struct cell *row = c->cell + (size_t)y * (size_t)c->cols;
        int end = c->cols;
        while (end > 0 && row[end - 1].rune == ' ')
            end--;
        for (int x = 0; x < end; x++) {
            if (row[x].rune == 0)
                continue;
            add_rune(out, row[x].rune);
            for (int k = 0; k < 3 && row[x].mark[k]; k++)
                add_rune(out, row[x].mark[k]);
        }
        str_add_char(out, '\n');
    }
}

/* One character per role, in the order of enum role.  A background other than the default takes
 * precedence, so that bars and selections show. */
static const char role_letter[] = ".~-Tbhk"
                                  "SCXM+!E_"
                                  "ag="
                                  "rsf"
                                  "01234567";
_Static_assert(sizeof role_letter == ROLE_COUNT + 1, "one letter per role");

void canvas_roles(const struct canvas *c, struct str *out)
{
    for (int y = 0; y < c->rows; y++) {
        const struct cell *row = c->cell + (size_t)y * (size_t)c->cols;
        size_t start = out->len, end = start;
        for (int x = 0; x < c->cols; x++) {
            int32_t k = row[x].bg != ROLE_BACKGROUND ? row[x].bg : row[x].fg;
            char letter = k & INK_RGB ? '#' : k >= 0 && k < ROLE_COUNT ? role_letter[k] : '?';
            int is_blank = row[x].rune == ' ' && row[x].bg == ROLE_BACKGROUND;
            str_add_char(out, is_blank ? ' ' : letter);
            if (!is_blank)
                end = out->len;
        }
        if (!out->failed) {
            out->len = end;
            out->p[end] = '\0';
        }
        str_add_char(out, '\n');
    }
}

/* ---- areas ---- */

struct area canvas_area(struct canvas *c)
{
    return (struct area){.canvas = c, .rows = c->rows, .cols = c->cols};
}

struct area area_sub(struct area a, int y, int x, int rows, int cols)
{
    if (y < 0) {
        rows += y;
        y = 0;
    }
    if (x < 0) {
        cols += x;
        x = 0;
    }
    rows = rows > a.rows - y ? a.rows - y : rows;
    cols = cols > a.cols - x ? a.cols - x : cols;
    return (struct area){a.canvas, a.y + y, a.x + x, rows < 0 ? 0 : rows, cols < 0 ? 0 : cols};
}

struct area area_inset(struct area a, int rows, int cols)
{
    return area_sub(a, rows, cols, a.rows - 2 * rows, a.cols - 2 * cols);
}

int area_contains(struct area a, int screen_y, int screen_x)
{
    return screen_y >= a.y && screen_y < a.y + a.rows && screen_x >= a.x && screen_x < a.x + a.cols;
}

static struct cell *cell_at(struct area a, int y, int x)
{
    if (y < 0 || x < 0 || y >= a.rows || x >= a.cols)
        return NULL;
    return a.canvas->cell + (size_t)(a.y + y) * (size_t)a.canvas->cols + (size_t)(a.x + x);
}

static void apply(struct cell *c, struct ink i)
{
    if (i.bg != INK_KEEP)
        c->bg = i.bg;
    if (i.fg != INK_KEEP)
        c->fg = i.fg;
}

/* A wide rune that loses one half becomes a blank on the other side. */
static void unpair(struct area a, int y, int x)
{
    struct cell *c = cell_at(a, y, x);
    int row_x = a.x + x;
    if (c->rune == 0 && row_x > 0)
        c[-1].rune = ' ', memset(c[-1].mark, 0, sizeof c->mark);
    if (row_x + 1 < a.canvas->cols && c[1].rune == 0)
        c[1].rune = ' ';
}

static void put_cell(struct area a, int y, int x, uint32_t rune, int width, struct ink i)
{
    struct cell *c = cell_at(a, y, x);
    if (!c || (width == 2 && !cell_at(a, y, x + 1)))
        return;
    unpair(a, y, x);
    c->rune = rune;
    memset(c->mark, 0, sizeof c->mark);
    c->attr = i.attr;
    apply(c, i);
    if (width == 2) {
        unpair(a, y, x + 1);
        c[1] = *c;
        c[1].rune = 0;
    }
}

void area_put(struct area a, int y, int x, uint32_t rune, struct ink i)
{
    int width = utf8_width(rune);
    put_cell(a, y, x, rune, width > 1 ? 2 : 1, i);
}

static void put_mark(struct area a, int y, int x, uint32_t mark)
{
    struct cell *c = cell_at(a, y, x);
    if (c && c->rune == 0)
        c = cell_at(a, y, x - 1);
    for (int k = 0; c && k < 3; k++) {
        if (c->mark[k] == 0) {
            c->mark[k] = mark;
            return;
        }
    }
}

int area_bytes(struct area a, int y, int x, int max, struct ink i, const char *p, size_t n)
{
    if (y < 0 || y >= a.rows || x >= a.cols || max == 0)
        return 0;
    int room = x < 0 ? a.cols : a.cols - x;
    if (max < 0 || max > room)
        max = room;
    struct str safe = {0};
    utf8_sanitise(&safe, p, n, max, a.canvas->look.glyphs == GLYPHS_ASCII);
    int at = x;
    for (size_t k = 0; k < safe.len;) {
        uint32_t rune;
        int len = utf8_decode(safe.p + k, safe.len - k, &rune);
        k += len > 0 ? (size_t)len : 1;
        int width = utf8_width(rune);
        if (width == 0)
            put_mark(a, y, at - 1, rune);
        else
            put_cell(a, y, at, rune, width, i);
        at += width;
    }
    str_release(&safe);
    return at - x;
}

int area_text(struct area a, int y, int x, int max, struct ink i, const char *text)
{
    return area_bytes(a, y, x, max, i, text, strlen(text));
}

int area_textf(struct area a, int y, int x, int max, struct ink i, const char *fmt, ...)
{
    char text[1024];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    return area_text(a, y, x, max, i, text);
}

int area_right(struct area a, int y, int x_end, struct ink i, const char *text)
{
    struct str safe = {0};
    utf8_sanitise(&safe, text, strlen(text), x_end < 0 ? 0 : x_end,
                  a.canvas->look.glyphs == GLYPHS_ASCII);
    int cells = utf8_cells(str_text(&safe), safe.len);
    area_text(a, y, x_end - cells, cells, i, text);
    str_release(&safe);
    return x_end - cells;
}

void area_fill(struct area a, uint32_t rune, struct ink i)
{
    for (int y = 0; y < a.rows; y++)
        for (int x = 0; x < a.cols; x++)
            put_cell(a, y, x, rune, 1, i);
}

uint32_t area_rune(struct area a, uint32_t fancy, char ascii)
{
    return a.canvas->look.glyphs == GLYPHS_ASCII ? (uint32_t)(unsigned char)ascii : fancy;
}

void area_hline(struct area a, int y, int x, int n, struct ink i)
{
    for (int k = 0; k < n; k++)
        put_cell(a, y, x + k, area_rune(a, 0x2500, '-'), 1, i);
}

void area_vline(struct area a, int y, int x, int n, struct ink i)
{
    for (int k = 0; k < n; k++)
        put_cell(a, y + k, x, area_rune(a, 0x2502, '|'), 1, i);
}

void area_box(struct area a, struct ink i, const char *title, struct ink title_ink)
{
    int bottom = a.rows - 1, right = a.cols - 1;
    if (bottom < 1 || right < 1)
        return;
    area_hline(a, 0, 1, right - 1, i);
    area_hline(a, bottom, 1, right - 1, i);
    area_vline(a, 1, 0, bottom - 1, i);
    area_vline(a, 1, right, bottom - 1, i);
    put_cell(a, 0, 0, area_rune(a, 0x256D, '+'), 1, i);
    put_cell(a, 0, right, area_rune(a, 0x256E, '+'), 1, i);
    put_cell(a, bottom, 0, area_rune(a, 0x2570, '+'), 1, i);
    put_cell(a, bottom, right, area_rune(a, 0x256F, '+'), 1, i);
    if (title && right > 6) {
        put_cell(a, 0, 2, ' ', 1, i);
        int used = area_text(a, 0, 3, right - 5, title_ink, title);
        put_cell(a, 0, 3 + used, ' ', 1, i);
    }
}

/* Highlights the margin and the first word, so that a cursor step fits in 150 bytes. */
void area_select(struct area a, int y, int x, int cols)
{
    enum { LIT = 10 };
    area_put(a, y, x, area_rune(a, 0x258C, '>'), ink_attr(ink(ROLE_SELECTED), ATTR_BOLD));
    area_tint(a, y, x + 1, 1, cols - 1 < LIT ? cols - 1 : LIT,
              ink_attr(ink(ROLE_SELECTED), ATTR_BOLD));
}

void area_tint(struct area a, int y, int x, int rows, int cols, struct ink i)
{
    for (int r = y; r < y + rows; r++) {
        for (int k = x; k < x + cols; k++) {
            struct cell *c = cell_at(a, r, k);
            if (c) {
                apply(c, i);
                c->attr |= i.attr;
            }
        }
    }
}
