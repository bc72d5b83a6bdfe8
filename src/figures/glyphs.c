/* Draws text as strokes from the glyph tables. */
#include "figures/glyphs.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"

/* Font units, 1000 per em. */
enum {
    MARK_RISE = 190,
    SMALL_PERCENT = 62,
    SUPER_UP = 330,
    SUB_DOWN = -140,
    BOX_ADVANCE = 640,
    TRACKING = 12
};
/* Reduced letters and the digits in boxes have thinner strokes, dots are filled: three passes. */
enum pass { PASS_LINES, PASS_THIN, PASS_DOTS };
/* Length of the control handles of a quarter turn: 0.5523 is a circle, more is squarer. */
static const double turn = 0.585;

/* The transform of a path (scale and rotation about the anchor) and the current pass. */
struct place {
    struct pen *pen;
    double x, y;   /* origin of the current glyph on the page, before rotation */
    double ax, ay; /* the anchor                                                */
    double scale, cos_a, sin_a;
    double up; /* units added to y */
    enum pass pass;
    int is_thin;   /* the current shape belongs to PASS_THIN */
    double px, py; /* current point in units */
};

static const struct glyph *find_in(const struct glyph *t, int n, uint32_t code)
{
    int lo = 0, hi = n - 1;
    while (lo <= hi) {
        int mid = (lo + hi) / 2;
        if (t[mid].code == code)
            return &t[mid];
        if (t[mid].code < code)
            lo = mid + 1;
        else
            hi = mid - 1;
    }
    return NULL;
}

static const struct glyph *find_plain(uint32_t code)
{
    const struct glyph *g = find_in(glyphs_latin, glyphs_latin_count, code);
    if (!g)
        g = find_in(glyphs_greek, glyphs_greek_count, code);
    if (!g)
        g = find_in(glyphs_symbol, glyphs_symbol_count, code);
    return g;
}

static const struct glyph_made *find_made(uint32_t code)
{
    for (int i = 0; i < glyphs_made_count; i++)
        if (glyphs_made[i].code == code)
            return &glyphs_made[i];
    return NULL;
}

int glyph_has(uint32_t code)
{
    return find_plain(code) || find_made(code);
}

static int is_combining(uint32_t code)
{
    return find_in(glyphs_mark, glyphs_mark_count, code) != NULL;
}

/* Kerning of a pair of letters, in font units. */
static int kern(uint32_t a, uint32_t b)
{
    static const struct {
        char a, b;
        signed char units;
    } pair[] = {
        {'A', 'V', -60}, {'V', 'A', -60}, {'A', 'T', -60}, {'T', 'A', -60}, {'A', 'Y', -60},
        {'Y', 'A', -60}, {'L', 'T', -70}, {'T', 'o', -60}, {'T', 'e', -60}, {'T', 'a', -60},
        {'T', 'r', -40}, {'T', 'y', -40}, {'Y', 'o', -50}, {'V', 'a', -30}, {'V', 'e', -30},
        {'V', 'o', -30}, {'F', '.', -60}, {'P', '.', -70}, {'P', ',', -70}, {'T', '.', -60},
        {'r', '.', -40}, {'y', '.', -40}, {'v', '.', -40}, {'r', ',', -40}, {'L', 'P', 0},
        {'r', 'a', -10}, {'f', 'f', -10}, {'L', 'y', -30}, {'f', 'o', -10}, {'k', 'e', -10},
    };
    if (a > 127 || b > 127)
        return 0;
    for (size_t i = 0; i < DS_LEN(pair); i++)
        if ((uint32_t)pair[i].a == a && (uint32_t)pair[i].b == b)
            return pair[i].units;
    return 0;
}

static double advance(uint32_t code)
{
    const struct glyph *g = find_plain(code);
    if (g)
        return g->advance;
    const struct glyph_made *m = find_made(code);
    if (!m)
        return is_combining(code) ? 0 : BOX_ADVANCE;
    g = find_plain(m->base);
    if (!g)
        return BOX_ADVANCE;
    return m->mark == 1 || m->mark == 2 ? g->advance * SMALL_PERCENT / 100.0 + 15 : g->advance;
}

double glyph_width(const char *utf8, double size)
{
    double units = 0;
    uint32_t before = 0, code;
    for (size_t i = 0, n = strlen(utf8); i < n;) {
        int len = utf8_decode(utf8 + i, n - i, &code);
        if (len == 0) {
            code = 0xFFFD;
            len = 1;
        }
        units += advance(code) + TRACKING + kern(before, code);
        before = code;
        i += (size_t)len;
    }
    return units * size / 1000;
}

/* ---- drawing ------------------------------------------------------------------------------------
 */

static void put(const struct place *a, double ux, double uy, double *x, double *y)
{
    double rx = a->x + ux * a->scale - a->ax, ry = a->y - (uy + a->up) * a->scale - a->ay;
    *x = a->ax + rx * a->cos_a + ry * a->sin_a;
    *y = a->ay - rx * a->sin_a + ry * a->cos_a;
}

static void cubic(struct place *a, const double v[6])
{
    double x[3], y[3];
    for (int i = 0; i < 3; i++)
        put(a, v[2 * i], v[2 * i + 1], &x[i], &y[i]);
    pen_curve(a->pen, x[0], y[0], x[1], y[1], x[2], y[2]);
    a->px = v[4];
    a->py = v[5];
}

static void quarter(struct place *a, int leaves_level, double x, double y)
{
    double dx = x - a->px, dy = y - a->py;
    if (leaves_level)
        cubic(a, (double[6]){a->px + turn * dx, a->py, x, y - turn * dy, x, y});
    else
        cubic(a, (double[6]){a->px, a->py + turn * dy, x - turn * dx, y, x, y});
}

static int arguments(char op)
{
    switch (op) {
    case 'C': return 6;
    case 'D': return 3;
    case 'Z': return 0;
    default: return 2;
    }
}

static void step(struct place *a, char op, const double v[6])
{
    double x, y;
    if (a->pass != (op == 'D' ? PASS_DOTS : a->is_thin ? PASS_THIN : PASS_LINES))
        return;
    put(a, v[0], v[1], &x, &y);
    switch (op) {
    case 'D': pen_circle(a->pen, x, y, v[2] * a->scale); return;
    case 'Z': pen_close(a->pen); return;
    case 'C': cubic(a, v); return;
    case 'h':
    case 'v': quarter(a, op == 'h', v[0], v[1]); return;
    case 'M': pen_move(a->pen, x, y); break;
    default: pen_line(a->pen, x, y);
    }
    a->px = v[0];
    a->py = v[1];
}

/* Interprets one path; the built-in tables are well formed (a test reads every glyph). */
static void walk(struct place *a, const char *path)
{
    const char *p = path;
    while (*p) {
        char op = *p++;
        double v[6] = {0};
        if (op == ' ')
            continue;
        for (int i = 0; i < arguments(op); i++) {
            char *end;
            v[i] = (double)strtol(p, &end, 10);
            p = end;
        }
        step(a, op, v);
    }
}

/* A code point without a glyph: four or six hex digits in a box. */
static void box(struct place *a, uint32_t code)
{
    char hex[8];
    int n = snprintf(hex, sizeof hex, code > 0xFFFF ? "%06X" : "%04X", (unsigned)code);
    struct place small = *a;
    walk(a, "M 60 -110 L 580 -110 L 580 750 L 60 750 Z");
    small.is_thin = 1;
    small.scale = a->scale * (n > 4 ? 0.30 : 0.40);
    for (int i = 0; i < n; i++) {
        int per_row = n / 2, row = i / per_row, col = i % per_row;
        double wide = 560 * small.scale / a->scale;
        const struct glyph *g = find_plain((unsigned char)hex[i]);
        small.x = a->x + (320 - per_row * wide / 2 + col * wide) * a->scale;
        small.y = a->y - (row == 0 ? 390 : -40) * a->scale;
        if (g)
            walk(&small, g->path);
    }
}

static void made(struct place *a, const struct glyph_made *m)
{
    const struct glyph *base = find_plain(m->base);
    const struct glyph *mark =
        m->mark > 2 ? find_in(glyphs_mark, glyphs_mark_count, m->mark) : NULL;
    struct place at = *a;
    if (!base)
        return;
    if (m->mark == 1 || m->mark == 2) {
        at.is_thin = 1;
        at.scale *= SMALL_PERCENT / 100.0;
        at.up = (m->mark == 1 ? SUPER_UP : SUB_DOWN) * 100.0 / SMALL_PERCENT;
    }
    walk(&at, base->path);
    if (!mark)
        return;
    at = *a;
    at.x += base->advance / 2.0 * a->scale;
    at.up = m->base < 'a' && m->mark < 0x327 ? MARK_RISE : 0;
    walk(&at, mark->path);
}

static void one(struct place *a, uint32_t code)
{
    const struct glyph *g = find_plain(code);
    const struct glyph_made *m = g ? NULL : find_made(code);
    const struct glyph *mark = g || m ? NULL : find_in(glyphs_mark, glyphs_mark_count, code);
    if (g)
        walk(a, g->path);
    else if (m)
        made(a, m);
    else if (mark) {
        struct place at = *a;
        at.x -= 270 * a->scale; /* roughly over the middle of the previous letter */
        walk(&at, mark->path);
    } else
        box(a, code);
}

static void draw_all(struct place a, const char *utf8)
{
    uint32_t before = 0, code;
    for (size_t i = 0, n = strlen(utf8); i < n;) {
        int len = utf8_decode(utf8 + i, n - i, &code);
        if (len == 0) {
            code = 0xFFFD;
            len = 1;
        }
        a.x += kern(before, code) * a.scale;
        one(&a, code);
        a.x += (advance(code) + TRACKING) * a.scale;
        before = code;
        i += (size_t)len;
    }
}

/* 1 when a further pass would draw something. */
static int has_more(const char *utf8)
{
    for (; *utf8; utf8++)
        if (strchr("!,.:;?ij", *utf8) || (unsigned char)*utf8 > 127)
            return 1;
    return 0;
}

void glyph_draw(struct pen *p, double x, double y, const struct text_style *s, const char *utf8)
{
    struct place a = {.pen = p, .x = x, .y = y, .ax = x, .ay = y, .scale = s->size / 1000};
    double rad = s->angle * 3.14159265358979323846 / 180;
    a.cos_a = cos(rad);
    a.sin_a = sin(rad);
    if (s->h != TEXT_LEFT)
        a.x -= glyph_width(utf8, s->size) * (s->h == TEXT_CENTRE ? 0.5 : 1);
    if (s->v != TEXT_BASELINE)
        a.y += GLYPH_CAP * s->size * (s->v == TEXT_MIDDLE ? 0.5 : 1);
    pen_dash(p, NULL, 0);
    pen_width(p, s->size * (s->weight > 0 ? s->weight : GLYPH_WEIGHT));
    draw_all(a, utf8);
    pen_stroke(p);
    if (!has_more(utf8))
        return;
    a.pass = PASS_THIN;
    pen_width(p, s->size * (s->weight > 0 ? s->weight : GLYPH_WEIGHT) * 0.72);
    draw_all(a, utf8);
    pen_stroke(p);
    a.pass = PASS_DOTS;
    draw_all(a, utf8);
    pen_fill(p);
}
