/* The sheet of a figure: colours, text, markers, dashes and the caption. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

int sheet_colour(const struct sheet *s, enum role r)
{
    return colour_rgb(&s->theme.role[r], s->theme.is_light ? 0x202020 : 0xE0E0E0);
}

int sheet_series(const struct sheet *s, int i)
{
    return sheet_colour(s, (enum role)(ROLE_SERIES_0 + i % ROLE_SERIES_COUNT));
}

int sheet_tint(const struct sheet *s, int rgb, double share)
{
    int out = 0;
    for (int shift = 0; shift <= 16; shift += 8) {
        double a = s->background >> shift & 255, b = rgb >> shift & 255;
        out |= (int)floor(a + (b - a) * share + 0.5) << shift;
    }
    return out;
}

void sheet_text(struct sheet *s, double x, double y, enum text_h h, enum text_v v, int is_small,
                int rgb, const char *text)
{
    struct text_style style = {
        .size = is_small ? s->venue->small : s->venue->base, .rgb = rgb, .h = h, .v = v};
    pen_text(s->pen, x, y, &style, text);
}

void sheet_note(struct sheet *s, const char *fmt, ...)
{
    va_list ap;
    struct str raw = {0};
    va_start(ap, fmt);
    str_vaddf(&raw, fmt, ap);
    va_end(ap);
    if (s->caption.len > 0)
        str_add_char(&s->caption, ' ');
    utf8_sanitise(&s->caption, str_text(&raw), raw.len, -1, 0);
    s->caption.failed |= raw.failed;
    str_release(&raw);
}

void sheet_dash(struct sheet *s, int i)
{
    static const struct {
        int n;
        double len[6];
    } table[] = {
        {0, {0}},        {2, {4.5, 1.8}},
        {2, {1.3, 1.3}}, {4, {5.5, 1.6, 1.3, 1.6}},
        {2, {8, 2.2}},   {6, {5, 1.4, 1.2, 1.4, 1.2, 1.4}},
        {2, {2.6, 1.2}}, {4, {8, 1.6, 2.6, 1.6}},
    };
    double len[6];
    size_t k = (size_t)i % DS_LEN(table);
    for (int d = 0; d < table[k].n; d++)
        len[d] = table[k].len[d] * s->venue->line / 1.2;
    pen_dash(s->pen, len, table[k].n);
}

static void polygon(struct pen *p, const double (*xy)[2], int n, double x, double y, double r)
{
    for (int i = 0; i < n; i++)
        if (i == 0)
            pen_move(p, x + xy[i][0] * r, y + xy[i][1] * r);
        else
            pen_line(p, x + xy[i][0] * r, y + xy[i][1] * r);
    pen_close(p);
}

/* Shapes of about equal weight: circle, square, triangle, diamond, triangle down, cross. */
static void marker_path(struct pen *p, int i, double x, double y, double r)
{
    static const double square[4][2] = {{-.88, -.88}, {.88, -.88}, {.88, .88}, {-.88, .88}};
    static const double up[3][2] = {{0, -1.2}, {1.1, .8}, {-1.1, .8}},
                        down[3][2] = {{0, 1.2}, {1.1, -.8}, {-1.1, -.8}};
    static const double diamond[4][2] = {{0, -1.25}, {1.25, 0}, {0, 1.25}, {-1.25, 0}};
    static const double penta[5][2] = {
        {0, -1.1}, {1.05, -.34}, {.65, .89}, {-.65, .89}, {-1.05, -.34}};
    switch (i % 6) {
    case 1: polygon(p, square, 4, x, y, r); break;
    case 2: polygon(p, up, 3, x, y, r); break;
    case 3: polygon(p, diamond, 4, x, y, r); break;
    case 4: polygon(p, down, 3, x, y, r); break;
    case 5: polygon(p, penta, 5, x, y, r); break;
    default: pen_circle(p, x, y, r);
    }
}

void sheet_marker(struct sheet *s, int i, double x, double y, double r, int rgb, int is_hollow)
{
    pen_dash(s->pen, NULL, 0);
    pen_colour(s->pen, is_hollow ? s->background : rgb, 1);
    marker_path(s->pen, i, x, y, r);
    pen_fill(s->pen);
    /* An outline in the background colour separates overlapping markers. */
    pen_colour(s->pen, is_hollow ? rgb : s->background, 1);
    pen_width(s->pen, is_hollow ? s->venue->line * 0.75 : s->venue->axis);
    marker_path(s->pen, i, x, y, r);
    pen_stroke(s->pen);
}

void sheet_run_name(const struct sheet *s, int run, char *out, size_t size)
{
    struct str clean = str_in(out, size);
    const struct figure_run *r = &s->run[run];
    const char *name = r->view && r->view->name ? r->view->name : r->path ? r->path : "?";
    size_t n = strlen(name);
    if (r->json) {
        const char *slash = strrchr(name, '/');
        name = slash ? slash + 1 : name;
        n = strlen(name);
        n -= n > 5 && strcmp(name + n - 5, ".json") == 0 ? 5 : 0;
    }
    utf8_sanitise(&clean, name, n, 40, 0);
}

const char *sheet_layer_word(const struct sheet *s, int run, int layers)
{
    return runview_layer_word(s->run[run].view, layers);
}

const char *sheet_layer_label(const struct sheet *s, int run, int layers)
{
    return runview_is_iterated(s->run[run].view, layers) ? "Iteration" : "Layer";
}

const char *sheet_depth_unit(const struct sheet *s, int run)
{
    int iterated = 0, from = run < 0 ? 0 : run, to = run < 0 ? s->runs : run + 1;
    for (int i = from; i < to; i++)
        iterated += runview_is_iterated(s->run[i].view, s->run[i].view->layers);
    return iterated == 0 ? "layers" : iterated == to - from ? "iterations" : "layers or iterations";
}

int sheet_fail(const struct sheet *s, int run, struct err *e, const char *fmt, ...)
{
    va_list ap;
    char name[200], room[512];
    struct str text = str_in(room, sizeof room);
    if (run >= 0) {
        sheet_run_name(s, run, name, sizeof name);
        str_addf(&text, "%s %s: ", s->run[run].json ? "file" : "run", name);
    }
    va_start(ap, fmt);
    str_vaddf(&text, fmt, ap);
    va_end(ap);
    err_set(e, DS_ENOTFOUND, "figure %s: %s", s->ops->name, str_text(&text));
    return DS_ENOTFOUND;
}
