#include "eval/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean and deviation of the finite values, in one pass (Welford). */
static void moments(struct estimate *out, const double *v, size_t n)
{
    double mean = 0, sum = 0;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            continue;
        double d = v[i] - mean;
        mean += d / (double)++k;
        sum += d * (v[i] - mean);
    }
    out->n = k;
    out->mean = k > 0 ? mean : (double)NAN;
    out->sd = k > 1 ? sqrt(sum / (double)(k - 1)) : (double)NAN;
}

struct estimate estimate_of(const double *v, size_t n, uint64_t seed)
{
    double none = (double)NAN;
    struct estimate out = {none, none, none, none, 0};
    double kept[ESTIMATE_KEPT], means[ESTIMATE_RESAMPLES];
    struct rng r;
    size_t k = 0;
    moments(&out, v, n);
    if (out.n < 2)
        return out;
    if (out.n > ESTIMATE_KEPT) {
        double half = 1.959964 * out.sd / sqrt((double)out.n);
        out.lo = out.mean - half;
        out.hi = out.mean + half;
        return out;
    }
    for (size_t i = 0; i < n; i++)
        if (isfinite(v[i]))
            kept[k++] = v[i];
    rng_init(&r, seed, RNG_BOOT, 0, (uint32_t)k);
    for (int b = 0; b < ESTIMATE_RESAMPLES; b++) {
        double sum = 0;
        for (size_t i = 0; i < k; i++)
            sum += kept[rng_below(&r, (uint32_t)k)];
        means[b] = sum / (double)k;
    }
    qsort(means, ESTIMATE_RESAMPLES, sizeof *means, by_value);
    out.lo = means[ESTIMATE_RESAMPLES * 25 / 1000];
    out.hi = means[ESTIMATE_RESAMPLES - 1 - ESTIMATE_RESAMPLES * 25 / 1000];
    return out;
}

double estimate_median(double *v, size_t n)
{
    if (n == 0)
        return (double)NAN;
    qsort(v, n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

const char *estimate_print(char *out, size_t size, const struct estimate *x, int digits)
{
    if (x->n == 0)
        snprintf(out, size, "-");
    else if (x->n < 2)
        snprintf(out, size, "%.*g", digits, x->mean);
    else
        snprintf(out, size, "%.*g [%.*g, %.*g]", digits, x->mean, digits, x->lo, digits, x->hi);
    return out;
}
