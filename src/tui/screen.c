/* Turns a canvas into cells with final colours, and these into text, ANSI sequences or HTML. */
#include "tui/screen.h"

#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "tui/appstate.h"

static int is_bright(int rgb)
{
    return (rgb >> 16 & 255) * 299 + (rgb >> 8 & 255) * 587 + (rgb & 255) * 114 > 128000;
}

static int rgb_of(const struct theme *t, int32_t k)
{
    if (k >= 0 && (k & INK_RGB))
        return k & 0xFFFFFF;
    return k >= 0 && k < ROLE_COUNT ? colour_rgb(&t->role[k], -1) : -1;
}

static void take_cell(const struct screen *s, const struct canvas *c, const struct cell *from,
                      struct screen_cell *to)
{
    const struct theme *t = c->look.theme;
    const struct colour *role =
        from->fg >= 0 && from->fg < ROLE_COUNT ? &t->role[from->fg] : &(struct colour){0};
    *to = (struct screen_cell){.rune = from->rune,
                               .bold = (from->attr & ATTR_BOLD) || role->bold,
                               .dim = (from->attr & ATTR_DIM) || role->dim,
                               .underline = (from->attr & ATTR_UNDERLINE) || role->underline,
                               .reverse = (from->attr & ATTR_REVERSE) || role->reverse};
    memcpy(to->mark, from->mark, sizeof to->mark);
    to->bg = rgb_of(t, from->bg);
    to->fg = from->fg == INK_CONTRAST ? -1 : rgb_of(t, from->fg);
    /* with few colours two roles may have the same one: readable, as in a terminal */
    if (from->fg == INK_CONTRAST || (to->fg >= 0 && to->fg == to->bg))
        to->fg = is_bright(to->bg < 0 ? s->bg : to->bg) ? 0x101010 : 0xF4F4F4;
}

int screen_take(struct screen *s, const struct canvas *c, struct err *e)
{
    const struct theme *t = c->look.theme;
    size_t n = (size_t)c->rows * (size_t)c->cols;
    *s = (struct screen){
        .rows = c->rows,
        .cols = c->cols,
        .fg = colour_rgb(&t->role[ROLE_TEXT], t->is_light ? 0x1B1F24 : 0xD8DEE9),
        .bg = colour_rgb(&t->role[ROLE_BACKGROUND], t->is_light ? 0xFFFFFF : 0x14181E),
        .cell = mem_alloc(n, sizeof *s->cell)};
    if (!s->cell)
        return err_set(e, DS_EMEM, "screen of %d x %d cells: out of memory", c->cols, c->rows);
    for (size_t i = 0; i < n; i++)
        take_cell(s, c, &c->cell[i], &s->cell[i]);
    return 0;
}

void screen_release(struct screen *s)
{
    mem_free(s->cell);
    *s = (struct screen){0};
}

static int between(int a, int b)
{
    int out = 0;
    for (int shift = 0; shift <= 16; shift += 8)
        out |= ((a >> shift & 255) + (b >> shift & 255)) / 2 << shift;
    return out;
}

void screen_colours(const struct screen *s, const struct screen_cell *c, int *fg, int *bg)
{
    int f = c->fg < 0 ? s->fg : c->fg, b = c->bg < 0 ? s->bg : c->bg;
    f = c->dim ? between(f, b) : f;
    *fg = c->reverse ? b : f;
    *bg = c->reverse ? f : b;
}

/* ---- text ---- */

static void add_rune(struct str *out, uint32_t rune)
{
    char bytes[4];
    str_add_bytes(out, bytes, (size_t)utf8_encode(bytes, rune));
}

static int is_blank(const struct screen_cell *c)
{
    return c->rune == ' ' && c->bg < 0 && !c->reverse && !c->underline;
}

/* Cells up to the last one that shows something; `only_text` disregards colours. */
static int end_of(const struct screen_cell *row, int cols, int only_text)
{
    while (cols > 0 && (only_text ? row[cols - 1].rune == ' ' : is_blank(&row[cols - 1])))
        cols--;
    return cols;
}

static void add_cell(struct str *out, const struct screen_cell *c)
{
    add_rune(out, c->rune);
    for (int k = 0; k < 3 && c->mark[k]; k++)
        add_rune(out, c->mark[k]);
}

void screen_text(const struct screen *s, struct str *out)
{
    for (int y = 0; y < s->rows; y++) {
        const struct screen_cell *row = s->cell + (size_t)y * (size_t)s->cols;
        for (int x = 0, end = end_of(row, s->cols, 1); x < end; x++)
            if (row[x].rune)
                add_cell(out, &row[x]);
        str_add_char(out, '\n');
    }
}

/* ---- runs of cells with one style ---- */

static int same_style(const struct screen_cell *a, const struct screen_cell *b)
{
    return a->fg == b->fg && a->bg == b->bg && a->bold == b->bold && a->dim == b->dim &&
           a->underline == b->underline && a->reverse == b->reverse;
}

static void add_colour(struct str *out, int ground, int rgb)
{
    if (rgb >= 0)
        str_addf(out, ";%d;2;%d;%d;%d", ground, rgb >> 16 & 255, rgb >> 8 & 255, rgb & 255);
}

static void ansi_style(struct str *out, const struct screen_cell *c)
{
    str_addf(out, "\x1b[0%s%s%s%s", c->bold ? ";1" : "", c->dim ? ";2" : "",
             c->underline ? ";4" : "", c->reverse ? ";7" : "");
    add_colour(out, 38, c->fg);
    add_colour(out, 48, c->bg);
    str_add_char(out, 'm');
}

void screen_ansi(const struct screen *s, struct str *out)
{
    for (int y = 0; y < s->rows; y++) {
        const struct screen_cell *row = s->cell + (size_t)y * (size_t)s->cols, *now = NULL;
        for (int x = 0, end = end_of(row, s->cols, 0); x < end; x++) {
            if (row[x].rune == 0)
                continue;
            if (!now || !same_style(now, &row[x]))
                ansi_style(out, &row[x]);
            now = &row[x];
            add_cell(out, now);
        }
        str_add(out, now ? "\x1b[0m\n" : "\n");
    }
}

/* ---- HTML ---- */

static void add_escaped(struct str *out, const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        switch (p[i]) {
        case '&': str_add(out, "&amp;"); break;
        case '<': str_add(out, "&lt;"); break;
        case '>': str_add(out, "&gt;"); break;
        case '"': str_add(out, "&quot;"); break;
        default: str_add_char(out, p[i]);
        }
    }
}

static void html_span(const struct screen *s, const struct screen_cell *c, struct str *out)
{
    int fg, bg;
    screen_colours(s, c, &fg, &bg);
    str_addf(out, "<span style=\"color:#%06x", (unsigned)fg);
    if (bg != s->bg)
        str_addf(out, ";background:#%06x", (unsigned)bg);
    str_addf(out, "%s%s\">", c->bold ? ";font-weight:bold" : "",
             c->underline ? ";text-decoration:underline" : "");
}

void screen_html(const struct screen *s, const char *title, struct str *out)
{
    str_add(out, "<!DOCTYPE html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n<title>");
    add_escaped(out, title, strlen(title));
    str_addf(out,
             "</title>\n<body style=\"margin:0;background:#%06x\">\n"
             "<pre style=\"margin:1em;color:#%06x;font:14px/1.25 'DejaVu Sans Mono',Menlo,Consolas,"
             "monospace\">\n",
             (unsigned)s->bg, (unsigned)s->fg);
    for (int y = 0; y < s->rows; y++) {
        const struct screen_cell *row = s->cell + (size_t)y * (size_t)s->cols, *now = NULL;
        for (int x = 0, end = end_of(row, s->cols, 0); x < end; x++) {
            struct str text = {0};
            if (row[x].rune == 0)
                continue;
            if (!now || !same_style(now, &row[x])) {
                str_add(out, now ? "</span>" : "");
                html_span(s, &row[x], out);
            }
            now = &row[x];
            add_cell(&text, now);
            add_escaped(out, str_text(&text), text.len);
            out->failed |= text.failed;
            str_release(&text);
        }
        str_add(out, now ? "</span>\n" : "\n");
    }
    str_add(out, "</pre>\n</body>\n</html>\n");
}
