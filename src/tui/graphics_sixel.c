/* Encodes a picture as sixels: bands of six rows, one run-length coded plane per colour. */
#include <string.h>

#include "base/mem.h"
#include "tui/graphics.h"

enum { BINS = 4096, COLOURS = 255 }; /* bins of 4 bits a channel */

struct palette {
    long count[BINS], sum[BINS][3];
    short number[BINS]; /* of the colour a bin is drawn in */
    int rgb[COLOURS][3], n;
};

static int bin_of(const unsigned char *p)
{
    return (p[0] >> 4) << 8 | (p[1] >> 4) << 4 | p[2] >> 4;
}

static int nearest(const struct palette *p, const long *sum, long count)
{
    int best = 0;
    long least = -1;
    for (int i = 0; i < p->n; i++) {
        long d = 0;
        for (int k = 0; k < 3; k++) {
            long x = sum[k] / count - p->rgb[i][k];
            d += x * x;
        }
        if (least < 0 || d < least) {
            least = d;
            best = i;
        }
    }
    return best;
}

/* The most frequent bins become colours, the mean of their pixels; the others take the nearest. */
static void make_palette(struct palette *p, const unsigned char *rgb, size_t pixels)
{
    for (size_t i = 0; i < pixels; i++) {
        int b = bin_of(rgb + 3 * i);
        p->count[b]++;
        for (int k = 0; k < 3; k++)
            p->sum[b][k] += rgb[3 * i + (size_t)k];
    }
    memset(p->number, -1, sizeof p->number);
    for (p->n = 0; p->n < COLOURS; p->n++) {
        int best = -1;
        for (int b = 0; b < BINS; b++)
            if (p->count[b] > 0 && p->number[b] < 0 && (best < 0 || p->count[b] > p->count[best]))
                best = b;
        if (best < 0)
            break;
        p->number[best] = (short)p->n;
        for (int k = 0; k < 3; k++)
            p->rgb[p->n][k] = (int)(p->sum[best][k] / p->count[best]);
    }
    for (int b = 0; b < BINS; b++)
        if (p->count[b] > 0 && p->number[b] < 0)
            p->number[b] = (short)nearest(p, p->sum[b], p->count[b]);
}

static void add_run(struct str *out, int bits, int n)
{
    if (n > 3)
        str_addf(out, "!%d%c", n, 63 + bits);
    else
        for (int i = 0; i < n; i++)
            str_add_char(out, (char)(63 + bits));
}

static void add_plane(struct str *out, const unsigned char *index, int w, int rows, int colour)
{
    int run = 0, last = -1;
    for (int x = 0; x < w; x++) {
        int bits = 0;
        for (int y = 0; y < rows; y++)
            bits |= (index[(size_t)y * (size_t)w + (size_t)x] == colour) << y;
        if (bits != last) {
            add_run(out, last < 0 ? 0 : last, run);
            last = bits;
            run = 0;
        }
        run++;
    }
    if (last > 0) /* trailing blanks are not needed */
        add_run(out, last, run);
}

void sixel_encode(struct str *out, const unsigned char *rgb, int w, int h)
{
    size_t pixels = (size_t)w * (size_t)h;
    struct palette *p = mem_alloc(1, sizeof *p);
    unsigned char *index = mem_alloc(pixels + 1, 1);
    if (!p || !index) {
        out->failed = 1;
        mem_free(p);
        mem_free(index);
        return;
    }
    make_palette(p, rgb, pixels);
    for (size_t i = 0; i < pixels; i++)
        index[i] = (unsigned char)p->number[bin_of(rgb + 3 * i)];
    str_addf(out, "\x1bPq\"1;1;%d;%d", w, h);
    for (int i = 0; i < p->n; i++)
        str_addf(out, "#%d;2;%d;%d;%d", i, p->rgb[i][0] * 100 / 255, p->rgb[i][1] * 100 / 255,
                 p->rgb[i][2] * 100 / 255);
    for (int top = 0; top < h; top += 6) {
        unsigned char has[COLOURS + 1] = {0};
        const unsigned char *band = index + (size_t)top * (size_t)w;
        int rows = h - top < 6 ? h - top : 6;
        for (size_t i = 0; i < (size_t)rows * (size_t)w; i++)
            has[band[i]] = 1;
        for (int c = 0; c < p->n; c++)
            if (has[c]) {
                str_addf(out, "#%d", c);
                add_plane(out, band, w, rows, c);
                str_add_char(out, '$');
            }
        str_add_char(out, '-');
    }
    str_add(out, "\x1b\\");
    mem_free(p);
    mem_free(index);
}
