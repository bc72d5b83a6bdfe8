/* Draws the glyph of a terminal cell: blocks, box lines and braille as shapes, letters as
 * strokes. */
#include "figures/cell.h"

#include <math.h>
#include <string.h>

#include "base/utf8.h"
#include "figures/glyphs.h"

/* As fractions of the height of the box. */
static const double line_light = 0.1, line_heavy = 0.2, line_gap = 0.1, dot_radius = 0.075,
                    stroke = 0.08, text_size = 0.76, baseline = 0.76;

static void fill(struct pen *p, const struct cell_glyph *g, double x0, double y0, double x1,
                 double y1, double alpha)
{
    pen_box(p, g->x + x0 * g->w, g->y + y0 * g->h, (x1 - x0) * g->w, (y1 - y0) * g->h, g->rgb,
            alpha);
}

/* ---- U+2580 to U+259F: block elements ---- */

static void draw_block(struct pen *p, const struct cell_glyph *g)
{
    /* quadrants of U+2596 to U+259F: 1 upper left, 2 upper right, 4 lower left, 8 lower right */
    static const unsigned char quadrant[] = {4, 8, 1, 13, 9, 7, 11, 2, 6, 14};
    unsigned k = g->rune - 0x2580;
    if (k == 0)
        fill(p, g, 0, 0, 1, 0.5, 1);
    else if (k <= 8)
        fill(p, g, 0, 1 - k / 8.0, 1, 1, 1);
    else if (k <= 15)
        fill(p, g, 0, 0, (16 - k) / 8.0, 1, 1);
    else if (k == 16)
        fill(p, g, 0.5, 0, 1, 1, 1);
    else if (k <= 19)
        fill(p, g, 0, 0, 1, 1, (k - 16) / 4.0);
    else if (k == 20)
        fill(p, g, 0, 0, 1, 1 / 8.0, 1);
    else if (k == 21)
        fill(p, g, 7 / 8.0, 0, 1, 1, 1);
    else
        for (int i = 0; i < 4; i++)
            if (quadrant[k - 22] >> i & 1)
                fill(p, g, i % 2 / 2.0, i / 2 / 2.0, (i % 2 + 1) / 2.0, (i / 2 + 1) / 2.0, 1);
}

/* ---- U+2800 to U+28FF: braille ---- */

static void draw_braille(struct pen *p, const struct cell_glyph *g)
{
    static const unsigned char place[8] = {0, 2, 4, 1, 3, 5, 6, 7}; /* row * 2 + column of a bit */
    pen_colour(p, g->rgb, 1);
    for (int i = 0; i < 8; i++)
        if (g->rune >> i & 1)
            pen_circle(p, g->x + g->w * (1 + 2 * (place[i] % 2)) / 4,
                       g->y + g->h * (1 + 2 * (place[i] / 2)) / 8, g->h * dot_radius);
    pen_fill(p);
}

/* ---- U+2500 to U+257F: box lines ---- */

/* Two bits each for the arms left, right, up and down: none, light, heavy, double.  0: dashes, arcs
 * and diagonals, drawn below. */
static const unsigned char arms[128] = {
    0x05, 0x0A, 0x50, 0xA0, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x44, 0x48, 0x84, 0x88,
    0x41, 0x42, 0x81, 0x82, 0x14, 0x18, 0x24, 0x28, 0x11, 0x12, 0x21, 0x22, 0x54, 0x58, 0x64, 0x94,
    0xA4, 0x68, 0x98, 0xA8, 0x51, 0x52, 0x61, 0x91, 0xA1, 0x62, 0x92, 0xA2, 0x45, 0x46, 0x49, 0x4A,
    0x85, 0x86, 0x89, 0x8A, 0x15, 0x16, 0x19, 0x1A, 0x25, 0x26, 0x29, 0x2A, 0x55, 0x56, 0x59, 0x5A,
    0x65, 0x95, 0xA5, 0x66, 0x69, 0x96, 0x99, 0x6A, 0x9A, 0xA6, 0xA9, 0xAA, 0x00, 0x00, 0x00, 0x00,
    0x0F, 0xF0, 0x4C, 0xC4, 0xCC, 0x43, 0xC1, 0xC3, 0x1C, 0x34, 0x3C, 0x13, 0x31, 0x33, 0x5C, 0xF4,
    0xFC, 0x53, 0xF1, 0xF3, 0x4F, 0xC5, 0xCF, 0x1F, 0x35, 0x3F, 0x5F, 0xF5, 0xFF, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00, 0x00, 0x01, 0x10, 0x04, 0x40, 0x02, 0x20, 0x08, 0x80, 0x09, 0x90, 0x06, 0x60,
};

/* One arm from the centre, a little beyond it so that corners close. */
static void draw_arm(struct pen *p, const struct cell_glyph *g, int arm, int style)
{
    double wide = g->h * (style == 2 ? line_heavy : line_light), cx = g->x + g->w / 2,
           cy = g->y + g->h / 2;
    for (int k = style == 3 ? -1 : 0; k <= 1; k += 2) {
        double off = style == 3 ? k * line_gap * g->h : 0, half = wide / 2;
        double over = half + (style == 3 ? line_gap * g->h : 0);
        double x0 = arm == 1 ? cx - over : g->x, x1 = arm == 0 ? cx + over : g->x + g->w,
               y0 = arm == 3 ? cy - over : g->y, y1 = arm == 2 ? cy + over : g->y + g->h;
        if (arm < 2)
            pen_box(p, x0, cy + off - half, x1 - x0, wide, g->rgb, 1);
        else
            pen_box(p, cx + off - half, y0, wide, y1 - y0, g->rgb, 1);
        if (style != 3)
            return;
    }
}

static void draw_dashes(struct pen *p, const struct cell_glyph *g, int n, int is_upright,
                        int is_heavy)
{
    double half = (is_heavy ? line_heavy : line_light) / 2;
    for (int i = 0; i < n; i++) {
        double from = (i + 0.2) / n, to = (i + 0.8) / n, across = half * g->h / g->w;
        if (is_upright)
            fill(p, g, 0.5 - across, from, 0.5 + across, to, 1);
        else
            fill(p, g, from, 0.5 - half, to, 0.5 + half, 1);
    }
}

/* U+256D to U+2570: rounded corners, from the middle of one side to that of another. */
static void draw_arc(struct pen *p, const struct cell_glyph *g)
{
    unsigned k = g->rune - 0x256D; /* down right, down left, up left, up right */
    double cx = g->x + g->w / 2, cy = g->y + g->h / 2, r = g->w / 2;
    double sx = k == 0 || k == 3 ? 1 : -1, sy = k < 2 ? 1 : -1;
    pen_move(p, cx + sx * g->w / 2, cy);
    pen_curve(p, cx + sx * r * 0.4, cy, cx, cy + sy * r * 0.4, cx, cy + sy * r);
    pen_line(p, cx, cy + sy * g->h / 2);
    pen_stroke(p);
}

static void draw_lines(struct pen *p, const struct cell_glyph *g)
{
    unsigned k = g->rune - 0x2500, style = arms[k];
    for (int arm = 0; arm < 4; arm++)
        if (style >> 2 * arm & 3)
            draw_arm(p, g, arm, style >> 2 * arm & 3);
    if (style)
        return;
    pen_colour(p, g->rgb, 1);
    pen_width(p, g->h * line_light);
    if (k >= 0x6D && k <= 0x70)
        draw_arc(p, g);
    else if (k >= 0x71 && k <= 0x73) {
        if (k != 0x72)
            pen_segment(p, g->x, g->y + g->h, g->x + g->w, g->y);
        if (k != 0x71)
            pen_segment(p, g->x, g->y, g->x + g->w, g->y + g->h);
    } else
        draw_dashes(p, g, k >= 0x4C ? 2 : k < 8 ? 3 : 4, k >> 1 & 1, (int)(k & 1));
}

/* ---- signs of the workbench that the figures' letters lack ---- */

static void draw_disc(struct pen *p, const struct cell_glyph *g)
{
    double cx = g->x + g->w / 2, cy = g->y + g->h / 2, r = g->w * 0.38;
    double dash[2] = {r * 0.5, r * 0.55};
    pen_colour(p, g->rgb, 1);
    pen_width(p, g->h * stroke);
    if (g->rune == 0x25CC)
        pen_dash(p, dash, 2);
    if (g->rune == 0x25D0) { /* the left half */
        double k = r * 0.5523;
        pen_move(p, cx, cy - r);
        pen_curve(p, cx - k, cy - r, cx - r, cy - k, cx - r, cy);
        pen_curve(p, cx - r, cy + k, cx - k, cy + r, cx, cy + r);
        pen_close(p);
        pen_fill(p);
    }
    pen_circle(p, cx, cy, r);
    if (g->rune == 0x25CF)
        pen_fill(p);
    else
        pen_stroke(p);
    pen_dash(p, NULL, 0);
}

static const struct sign {
    uint32_t rune;
    int n, is_open; /* points; open: an outline */
    double at[8][2];
} signs[] = {
    {0x25A0, 4, 0, {{0.12, 0.31}, {0.88, 0.31}, {0.88, 0.69}, {0.12, 0.69}}},
    {0x25A1, 4, 1, {{0.12, 0.31}, {0.88, 0.31}, {0.88, 0.69}, {0.12, 0.69}}},
    {0x25B2, 3, 0, {{0.5, 0.25}, {0.95, 0.72}, {0.05, 0.72}}},
    {0x25B4, 3, 0, {{0.5, 0.36}, {0.85, 0.64}, {0.15, 0.64}}},
    {0x25B6, 3, 0, {{0.1, 0.28}, {0.95, 0.5}, {0.1, 0.72}}},
    {0x25B8, 3, 0, {{0.25, 0.36}, {0.85, 0.5}, {0.25, 0.64}}},
    {0x25BC, 3, 0, {{0.5, 0.75}, {0.95, 0.28}, {0.05, 0.28}}},
    {0x25BE, 3, 0, {{0.5, 0.64}, {0.85, 0.36}, {0.15, 0.36}}},
    {0x25C0, 3, 0, {{0.9, 0.28}, {0.05, 0.5}, {0.9, 0.72}}},
    {0x25C6, 4, 0, {{0.5, 0.27}, {0.93, 0.5}, {0.5, 0.73}, {0.07, 0.5}}},
    {0x25C7, 4, 1, {{0.5, 0.27}, {0.93, 0.5}, {0.5, 0.73}, {0.07, 0.5}}},
};

static const struct sign *find_sign(uint32_t rune)
{
    for (size_t i = 0; i < DS_LEN(signs); i++)
        if (signs[i].rune == rune)
            return &signs[i];
    return NULL;
}

static void draw_sign(struct pen *p, const struct cell_glyph *g, const struct sign *s)
{
    pen_colour(p, g->rgb, 1);
    pen_width(p, g->h * stroke);
    for (int i = 0; i < s->n; i++) {
        double x = g->x + s->at[i][0] * g->w, y = g->y + s->at[i][1] * g->h;
        if (i == 0)
            pen_move(p, x, y);
        else
            pen_line(p, x, y);
    }
    pen_close(p);
    if (s->is_open)
        pen_stroke(p);
    else
        pen_fill(p);
}

static void draw_tick(struct pen *p, const struct cell_glyph *g)
{
    pen_colour(p, g->rgb, 1);
    pen_width(p, g->h * stroke * 1.3);
    pen_move(p, g->x + 0.1 * g->w, g->y + 0.55 * g->h);
    pen_line(p, g->x + 0.4 * g->w, g->y + 0.72 * g->h);
    pen_line(p, g->x + 0.9 * g->w, g->y + 0.3 * g->h);
    pen_stroke(p);
}

/* U+203A, between the parts of the top line. */
static void draw_chevron(struct pen *p, const struct cell_glyph *g)
{
    pen_colour(p, g->rgb, 1);
    pen_width(p, g->h * stroke);
    pen_move(p, g->x + 0.35 * g->w, g->y + 0.36 * g->h);
    pen_line(p, g->x + 0.65 * g->w, g->y + 0.53 * g->h);
    pen_line(p, g->x + 0.35 * g->w, g->y + 0.7 * g->h);
    pen_stroke(p);
}

/* U+2424, the sign of a newline: the arrow that a return key has. */
static void draw_newline(struct pen *p, const struct cell_glyph *g)
{
    pen_colour(p, g->rgb, 1);
    pen_width(p, g->h * stroke);
    pen_move(p, g->x + 0.9 * g->w, g->y + 0.3 * g->h);
    pen_line(p, g->x + 0.9 * g->w, g->y + 0.62 * g->h);
    pen_line(p, g->x + 0.12 * g->w, g->y + 0.62 * g->h);
    pen_stroke(p);
    pen_move(p, g->x + 0.42 * g->w, g->y + 0.48 * g->h);
    pen_line(p, g->x + 0.12 * g->w, g->y + 0.62 * g->h);
    pen_line(p, g->x + 0.42 * g->w, g->y + 0.76 * g->h);
    pen_stroke(p);
}

/* ---- letters: a pen that narrows what is drawn around the middle of the cell ---- */

struct narrow {
    struct pen pen;
    struct pen *to;
    double middle, factor;
};

static double narrowed(const struct pen *p, double x)
{
    const struct narrow *n = (const struct narrow *)p;
    return n->middle + (x - n->middle) * n->factor;
}

static struct pen *behind(struct pen *p)
{
    return ((struct narrow *)p)->to;
}

static void n_move(struct pen *p, double x, double y)
{
    pen_move(behind(p), narrowed(p, x), y);
}

static void n_line(struct pen *p, double x, double y)
{
    pen_line(behind(p), narrowed(p, x), y);
}

static void n_curve(struct pen *p, const double v[6])
{
    pen_curve(behind(p), narrowed(p, v[0]), v[1], narrowed(p, v[2]), v[3], narrowed(p, v[4]), v[5]);
}

static void n_close(struct pen *p)
{
    pen_close(behind(p));
}

static void n_rect(struct pen *p, double x, double y, double w, double h)
{
    pen_rect(behind(p), narrowed(p, x), y, w * ((struct narrow *)p)->factor, h);
}

static void n_circle(struct pen *p, double x, double y, double r)
{
    pen_circle(behind(p), narrowed(p, x), y, r);
}

static void n_stroke(struct pen *p)
{
    pen_stroke(behind(p));
}

static void n_fill(struct pen *p)
{
    pen_fill(behind(p));
}

static void n_clip(struct pen *p)
{
    pen_clip(behind(p));
}

static void n_save(struct pen *p)
{
    pen_save(behind(p));
}

static void n_restore(struct pen *p)
{
    pen_restore(behind(p));
}

static void n_width(struct pen *p, double w)
{
    pen_width(behind(p), w);
}

static void n_dash(struct pen *p, const double *len, int n)
{
    pen_dash(behind(p), len, n);
}

static void n_colour(struct pen *p, int rgb, double alpha)
{
    pen_colour(behind(p), rgb, alpha);
}

static const struct pen_ops narrow_ops = {
    .move = n_move,
    .line = n_line,
    .curve = n_curve,
    .close = n_close,
    .rect = n_rect,
    .circle = n_circle,
    .stroke = n_stroke,
    .fill = n_fill,
    .clip = n_clip,
    .save = n_save,
    .restore = n_restore,
    .width = n_width,
    .dash = n_dash,
    .colour = n_colour,
};

static void draw_letter(struct pen *p, const struct cell_glyph *g)
{
    char text[24];
    int n = utf8_encode(text, g->rune);
    for (int i = 0; i < g->marks && n < 20; i++)
        n += utf8_encode(text + n, g->mark[i]);
    text[n] = '\0';
    struct text_style s = {.size = g->h * text_size,
                           .weight = g->is_bold ? 0.118 : 0.086,
                           .rgb = g->rgb,
                           .h = TEXT_CENTRE};
    double width = glyph_width(text, s.size), most = g->w * 1.02, middle = g->x + g->w / 2;
    struct narrow squeeze = {{.ops = &narrow_ops}, p, middle, width > most ? most / width : 1};
    pen_text(&squeeze.pen, middle, g->y + g->h * baseline, &s, text);
    p->bad += squeeze.pen.bad;
    p->failed |= squeeze.pen.failed;
}

void cell_draw(struct pen *p, const struct cell_glyph *g)
{
    const struct sign *sign = find_sign(g->rune);
    if (g->rune <= ' ' || g->rune == 0xA0)
        return;
    if (g->rune >= 0x2500 && g->rune <= 0x257F)
        draw_lines(p, g);
    else if (g->rune >= 0x2580 && g->rune <= 0x259F)
        draw_block(p, g);
    else if (g->rune >= 0x2800 && g->rune <= 0x28FF)
        draw_braille(p, g);
    else if (sign)
        draw_sign(p, g, sign);
    else if (g->rune == 0x25CB || g->rune == 0x25CF || g->rune == 0x25CC || g->rune == 0x25D0)
        draw_disc(p, g);
    else if (g->rune == 0x2713)
        draw_tick(p, g);
    else if (g->rune == 0x203A)
        draw_chevron(p, g);
    else if (g->rune == 0x2424)
        draw_newline(p, g);
    else
        draw_letter(p, g);
}
