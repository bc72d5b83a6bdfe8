/* Graphics finer than a cell: braille dots for curves, coloured cells for maps, and their
 * fallbacks on terminals with fewer glyphs or no colour. */
#include <math.h>

#include "base/mem.h"
#include "tui/canvas.h"

/* ---- maps ---- */

static double quantise(double v)
{
    v = v < 0 ? 0 : v > 1 ? 1 : v;
    return floor(v * (HEAT_LEVELS - 1) + 0.5) / (HEAT_LEVELS - 1);
}

int32_t heat_ink(const char *map, double v)
{
    return isnan(v) ? INK_KEEP : INK_RGB | cmap_rgb(map, quantise(v));
}

/* Without enough colours a value is shown by the density of its glyph. */
static uint32_t shade(const struct look *look, double v)
{
    static const uint32_t block[] = {' ', 0x2591, 0x2592, 0x2593, 0x2588};
    static const char ascii[] = " .:-=+*#%@";
    v = v < 0 ? 0 : v > 1 ? 1 : v;
    if (look->glyphs == GLYPHS_ASCII)
        return (uint32_t)(unsigned char)ascii[(int)(v * 9 + 0.5)];
    return block[(int)(v * 4 + 0.5)];
}

void area_heat(struct area a, int y, int x, int w, const char *map, double v)
{
    const struct look *look = &a.canvas->look;
    for (int k = 0; k < w; k++) {
        if (isnan(v))
            area_put(a, y, x + k, area_rune(a, 0xB7, '.'), ink(ROLE_DIM));
        else if (look->colours >= 256)
            area_put(a, y, x + k, ' ', (struct ink){.fg = INK_CONTRAST, .bg = heat_ink(map, v)});
        else
            area_put(a, y, x + k, shade(look, v), ink(ROLE_TEXT));
    }
}

/* ---- dots ---- */

int dots_begin(struct dots *d, struct area a)
{
    size_t n = (size_t)a.rows * (size_t)a.cols;
    *d = (struct dots){.area = a, .layer = 1};
    d->bits = mem_alloc(n + 1, 1);
    d->owner = mem_alloc(n + 1, 1);
    d->fg = mem_alloc(n + 1, sizeof *d->fg);
    if (d->bits && d->owner && d->fg)
        return 0;
    mem_free(d->bits);
    mem_free(d->owner);
    mem_free(d->fg);
    *d = (struct dots){0};
    return DS_EMEM;
}

void dots_point(struct dots *d, int x, int y, enum role r)
{
    static const unsigned char bit[4][2] = {{0x01, 0x08}, {0x02, 0x10}, {0x04, 0x20}, {0x40, 0x80}};
    if (x < 0 || y < 0 || x >= 2 * d->area.cols || y >= 4 * d->area.rows)
        return;
    size_t at = (size_t)(y / 4) * (size_t)d->area.cols + (size_t)(x / 2);
    if (d->owner[at] != d->layer)
        d->bits[at] = 0;
    d->owner[at] = (unsigned char)d->layer;
    d->bits[at] |= bit[y % 4][x % 2];
    d->fg[at] = (int16_t)r;
}

void dots_column(struct dots *d, int x, int y0, int y1, enum role r)
{
    if (y0 > y1) {
        int t = y0;
        y0 = y1;
        y1 = t;
    }
    y0 = y0 < 0 ? 0 : y0;
    y1 = y1 >= 4 * d->area.rows ? 4 * d->area.rows - 1 : y1;
    for (int y = y0; y <= y1; y++)
        dots_point(d, x, y, r);
}

void dots_line(struct dots *d, int x0, int y0, int x1, int y1, enum role r)
{
    int dx = x1 > x0 ? x1 - x0 : x0 - x1, dy = y1 > y0 ? y1 - y0 : y0 - y1;
    int n = dx > dy ? dx : dy;
    if (n > 8 * (CANVAS_COLS_MAX + CANVAS_ROWS_MAX))
        return;
    for (int k = 0; k <= n; k++) {
        int x = n ? x0 + (int)lround((double)(x1 - x0) * k / n) : x0;
        int y = n ? y0 + (int)lround((double)(y1 - y0) * k / n) : y0;
        dots_point(d, x, y, r);
    }
}

static int bit_count(unsigned char bits)
{
    int n = 0;
    for (; bits; bits &= (unsigned char)(bits - 1))
        n++;
    return n;
}

/* Eight dots as one ASCII character, chosen by their position or their number. */
static char ascii_of(unsigned char bits)
{
    int top = bit_count(bits & 0x09), upper = bit_count(bits & 0x12),
        lower = bit_count(bits & 0x24), low = bit_count(bits & 0xC0);
    int rows = (top > 0) + (upper > 0) + (lower > 0) + (low > 0);
    if (rows >= 3)
        return bit_count(bits) > 5 ? '#' : '|';
    if (rows == 2 && upper && lower)
        return '-';
    if (top || upper)
        return low ? ':' : top ? '\'' : '-';
    return lower ? '-' : '_';
}

static uint32_t shade_of(unsigned char bits)
{
    int top = bit_count(bits & 0x1B), low = bit_count(bits & 0xE4);
    if (top && !low)
        return 0x2580;
    if (low && !top)
        return 0x2584;
    return bit_count(bits) > 4 ? 0x2588 : 0x2592;
}

void dots_end(struct dots *d)
{
    for (int y = 0; y < d->area.rows; y++) {
        for (int x = 0; x < d->area.cols; x++) {
            size_t at = (size_t)y * (size_t)d->area.cols + (size_t)x;
            unsigned char bits = d->bits[at];
            if (!bits)
                continue;
            enum glyphs g = d->area.canvas->look.glyphs;
            uint32_t rune = g == GLYPHS_BRAILLE  ? 0x2800u + bits
                            : g == GLYPHS_SHADES ? shade_of(bits)
                                                 : (uint32_t)(unsigned char)ascii_of(bits);
            area_put(d->area, y, x, rune, ink((enum role)d->fg[at]));
        }
    }
    mem_free(d->bits);
    mem_free(d->owner);
    mem_free(d->fg);
    *d = (struct dots){0};
}
