#include "figures/stats.h"

#include <math.h>
#include <stdint.h>
#include <stdlib.h>

#include "base/rng.h"

#define UNDEFINED ((double)NAN)
enum { RESAMPLES = 2000, SMALL = 64 };

double stats_mean(const double *v, size_t n)
{
    double sum = 0;
    size_t finite = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i])) {
            sum += v[i];
            finite++;
        }
    return finite ? sum / (double)finite : UNDEFINED;
}

double stats_sd(const double *v, size_t n)
{
    double mean = stats_mean(v, n), sum = 0;
    size_t finite = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i])) {
            sum += (v[i] - mean) * (v[i] - mean);
            finite++;
        }
    return finite > 1 ? sqrt(sum / (double)(finite - 1)) : UNDEFINED;
}

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stats_sort(double *v, size_t n)
{
    qsort(v, n, sizeof *v, compare);
}

struct interval stats_bootstrap(const double *v, size_t n, unsigned long long seed)
{
    struct interval out = {.mean = stats_mean(v, n), .lo = UNDEFINED, .hi = UNDEFINED};
    double kept[SMALL], means[RESAMPLES];
    struct rng r;
    /* Seeds are few; beyond SMALL values the normal interval agrees with the bootstrap to the drawn
     * precision. */
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i])) {
            if (out.n < SMALL)
                kept[out.n] = v[i];
            out.n++;
        }
    if (out.n < 2)
        return out;
    if (out.n > SMALL) {
        double half = 1.959964 * stats_sd(v, n) / sqrt((double)out.n);
        out.lo = out.mean - half;
        out.hi = out.mean + half;
        return out;
    }
    rng_init(&r, seed, RNG_BOOT, 0, (uint32_t)out.n);
    for (int b = 0; b < RESAMPLES; b++) {
        double sum = 0;
        for (size_t i = 0; i < out.n; i++)
            sum += kept[rng_below(&r, (uint32_t)out.n)];
        means[b] = sum / (double)out.n;
    }
    stats_sort(means, RESAMPLES);
    out.lo = means[RESAMPLES * 25 / 1000];
    out.hi = means[RESAMPLES - 1 - RESAMPLES * 25 / 1000];
    return out;
}

struct correlation stats_correlation(const float *x, const float *y, size_t n)
{
    struct correlation c = {UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, 0};
    double mx = 0, my = 0, sxx = 0, syy = 0, sxy = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y[i])) {
            mx += (double)x[i];
            my += (double)y[i];
            c.n++;
        }
    if (c.n < 4)
        return c;
    mx /= (double)c.n;
    my /= (double)c.n;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y[i])) {
            double dx = (double)x[i] - mx, dy = (double)y[i] - my;
            sxx += dx * dx;
            syy += dy * dy;
            sxy += dx * dy;
        }
    /* A constant column has rounding left over, no variance. */
    double tiny = 1e-12 * (double)c.n;
    if (sxx <= tiny * mx * mx || syy <= tiny * my * my || sxx == 0 || syy == 0)
        return c;
    c.r = sxy / sqrt(sxx * syy);
    c.slope = sxy / sxx;
    c.intercept = my - c.slope * mx;
    double z = atanh(fmin(fmax(c.r, -0.999999999), 0.999999999)),
           half = 1.959964 / sqrt((double)c.n - 3);
    c.lo = tanh(z - half);
    c.hi = tanh(z + half);
    return c;
}

int stats_bin(double v, double lo, double width, int bins)
{
    double at = floor((v - lo) / width);
    return at >= bins ? bins - 1 : at >= 0 ? (int)at : 0;
}

/* One kernel, at the places that lie within the range's bounds. */
static void add_kernel(double *density, int points, const struct density_range *d, double centre,
                       double bandwidth, double norm)
{
    double step = (d->hi - d->lo) / (points - 1);
    int from = (int)ceil(fmax((centre - 5 * bandwidth - d->lo) / step, 0));
    int to = (int)floor(fmin((centre + 5 * bandwidth - d->lo) / step, points - 1));
    for (int k = from; k <= to; k++) {
        double x = k == points - 1 ? d->hi : d->lo + k * step, z = (x - centre) / bandwidth;
        if (x >= d->least && x <= d->most)
            density[k] += norm * exp(-0.5 * z * z);
    }
}

double stats_kde(const double *v, size_t n, double bandwidth, const struct density_range *range,
                 double *density, int points)
{
    size_t finite = 0;
    for (int i = 0; i < points; i++)
        density[i] = 0;
    for (size_t i = 0; i < n; i++)
        finite += isfinite(v[i]) ? 1 : 0;
    if (bandwidth <= 0)
        bandwidth = 1.06 * stats_sd(v, n) * pow((double)finite, -0.2);
    if (!(bandwidth > 0) || finite == 0)
        return UNDEFINED;
    double norm = 1 / (bandwidth * sqrt(2 * 3.14159265358979323846) * (double)finite);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            continue;
        add_kernel(density, points, range, v[i], bandwidth, norm);
        if (isfinite(range->least))
            add_kernel(density, points, range, 2 * range->least - v[i], bandwidth, norm);
        if (isfinite(range->most))
            add_kernel(density, points, range, 2 * range->most - v[i], bandwidth, norm);
    }
    return bandwidth;
}
