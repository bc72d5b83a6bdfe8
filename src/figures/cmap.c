/* Colour maps: perceptually uniform ramps as a few stops, interpolated linearly in sRGB (the stops
 * are close enough that the largest error is not visible). */
#include <math.h>
#include <string.h>

#include "figures/palette.h"

/* clang-format off */
static const struct cmap { const char *name; int n; int stop[10]; } maps[] = {
    {"viridis", 10, {0x440154, 0x482878, 0x3E4A89, 0x31688E, 0x26828E, 0x1F9E89, 0x35B779, 0x6DCD59, 0xB4DE2C, 0xFDE725}},
    {"cividis", 10, {0x00224E, 0x123570, 0x3B496C, 0x575D6D, 0x707173, 0x8A8779, 0xA59C74, 0xC3B369, 0xE1CC55, 0xFEE838}},
    {"magma",   10, {0x000004, 0x180F3E, 0x451077, 0x721F81, 0x9F2F7F, 0xCD4071, 0xF1605D, 0xFD9567, 0xFEC98D, 0xFCFDBF}},
    {"grey",     2, {0x3A3A3A, 0xF5F5F5}},
    {"balance",  9, {0x14215B, 0x2657A0, 0x5B8FC7, 0xA9C4DF, 0xF2F0EE, 0xE8BBA9, 0xD47C62, 0xB23A33, 0x6A1023}},
};
/* clang-format on */

static const struct cmap *find(const char *name)
{
    for (size_t i = 0; name && i < DS_LEN(maps); i++)
        if (strcmp(maps[i].name, name) == 0)
            return &maps[i];
    return NULL;
}

int cmap_known(const char *map)
{
    return find(map) != NULL;
}

static int mix(int a, int b, double t, int shift)
{
    double lo = a >> shift & 255, hi = b >> shift & 255;
    return (int)floor(lo + (hi - lo) * t + 0.5) << shift;
}

int cmap_rgb(const char *map, double x)
{
    const struct cmap *m = find(map);
    if (isnan(x))
        return -1;
    if (!m)
        m = &maps[0];
    double at = fmin(fmax(x, 0), 1) * (m->n - 1);
    int i = (int)at;
    if (i > m->n - 2)
        i = m->n - 2;
    double t = at - i;
    return mix(m->stop[i], m->stop[i + 1], t, 16) | mix(m->stop[i], m->stop[i + 1], t, 8) |
           mix(m->stop[i], m->stop[i + 1], t, 0);
}
