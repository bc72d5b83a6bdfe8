/* Smoothing that a NaN cannot poison, and the band over seeds. */
#include <math.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/rng.h"
#include "tui/widgets.h"

/* acc_t = w acc + (1-w) x, norm_t = w norm + (1-w), smoothed = acc / norm: unbiased from the first
 * point on (Adam's correction).  A value that is not finite leaves both as they were.  After a
 * resume the average goes on from where the superseded points began to be replaced. */
int smooth_update(struct smooth *s, const struct series *series, double weight)
{
    if (s->series != series || s->weight != weight || series->n < s->n) {
        s->series = series;
        s->weight = weight;
        s->n = 0;
        s->acc = s->norm = 0;
    }
    void *p = s->v;
    if (mem_grow(&p, &s->cap, series->n, sizeof *s->v) < 0)
        return DS_EMEM;
    s->v = p;
    for (; s->n < series->n; s->n++) {
        double x = series->value[s->n];
        if (isfinite(x)) {
            s->acc = weight * s->acc + (1 - weight) * x;
            s->norm = weight * s->norm + (1 - weight);
        }
        s->v[s->n] = s->norm > 0 ? s->acc / s->norm : (double)NAN;
    }
    return 0;
}

void smooth_release(struct smooth *s)
{
    mem_free(s->v);
    *s = (struct smooth){0};
}

enum { BOOT_SAMPLES = 200 };

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void bootstrap_band(const double *v, int n, double *mean, double *lo, double *hi)
{
    double x[CHART_SEEDS_MAX], sum = 0, boot[BOOT_SAMPLES];
    int k = 0;
    for (int i = 0; i < n && k < CHART_SEEDS_MAX; i++)
        if (isfinite(v[i]))
            sum += x[k++] = v[i];
    *mean = *lo = *hi = k ? sum / k : (double)NAN;
    if (k < 2)
        return;
    /* the same resamples for every column, so a band does not tremble */
    for (int b = 0; b < BOOT_SAMPLES; b++) {
        uint32_t out[4] = {0}, counter[4] = {0, (uint32_t)b, (uint32_t)k, 0},
                 seed[2] = {17, RNG_BOOT};
        double total = 0;
        for (int i = 0; i < k; i++) {
            if (i % 4 == 0) {
                counter[0] = (uint32_t)i;
                rng_philox(out, counter, seed);
            }
            total += x[(uint64_t)out[i % 4] * (uint64_t)k >> 32];
        }
        boot[b] = total / k;
    }
    qsort(boot, BOOT_SAMPLES, sizeof *boot, by_value);
    *lo = boot[BOOT_SAMPLES * 25 / 1000];
    *hi = boot[BOOT_SAMPLES - 1 - BOOT_SAMPLES * 25 / 1000];
}
