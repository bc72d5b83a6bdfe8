/* Running mean and standard deviation of per-layer values. */
#include "routing/standard.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

int standardizer_init(struct standardizer *s, struct params *ps, const char *prefix, int L,
                      int width, struct err *e)
{
    size_t n = (size_t)L * (size_t)width;
    BUG_IF(width > STANDARD_MAX, "%d values to standardise", width);
    s->params = ps;
    s->L = L;
    s->width = width;
    s->mean = params_add_buffer(ps, prefix, "signal_mean", L, width);
    s->square = params_add_buffer(ps, prefix, "signal_square", L, width);
    s->count = params_add_buffer(ps, prefix, "signal_count", L, 0);
    s->sum = mem_alloc(n, sizeof(double));
    s->sum2 = mem_alloc(n, sizeof(double));
    s->n = mem_alloc((size_t)L, sizeof(double));
    if (s->mean < 0 || s->square < 0 || s->count < 0 || !s->sum || !s->sum2 || !s->n)
        return err_set(e, DS_EMEM, "running statistics of %s", prefix);
    return 0;
}

void standardizer_release(struct standardizer *s)
{
    mem_free(s->sum);
    mem_free(s->sum2);
    mem_free(s->n);
    memset(s, 0, sizeof *s);
}

void standardizer_begin(struct standardizer *s)
{
    size_t n = (size_t)s->L * (size_t)s->width;
    memset(s->sum, 0, n * sizeof(double));
    memset(s->sum2, 0, n * sizeof(double));
    memset(s->n, 0, (size_t)s->L * sizeof(double));
}

void standardizer_add(struct standardizer *s, int l, const real *x)
{
    s->n[l] += 1;
    for (int k = 0; k < s->width; k++) {
        s->sum[l * s->width + k] += (double)x[k];
        s->sum2[l * s->width + k] += (double)x[k] * (double)x[k];
    }
}

/* Adds the weight and the sums of layer l's value k. */
static void add_sums(const struct standardizer *s, int l, int k, int fresh, double sums[3])
{
    const struct param *p = s->params->p;
    int i = l * s->width + k;
    double stored = (double)p[s->count].value[l];
    int use_step = stored <= 0 && fresh;
    sums[0] += use_step ? s->n[l] : stored;
    sums[1] += use_step ? s->sum[i] : (double)p[s->mean].value[i];
    sums[2] += use_step ? s->sum2[i] : (double)p[s->square].value[i];
}

static void set_standard(struct standard *t, int k, const double sums[3])
{
    double n = sums[0], mean = n > 0 ? sums[1] / n : 0;
    double var = n > 0 ? sums[2] / n - mean * mean : 1;
    t->mean[k] = (real)mean;
    t->inv[k] = (real)(1 / sqrt(var > 1e-12 ? var : 1e-12));
}

struct standard standardizer_at(const struct standardizer *s, int l, int fresh)
{
    struct standard t;
    for (int k = 0; k < s->width; k++) {
        double sums[3] = {0};
        add_sums(s, l, k, fresh, sums);
        set_standard(&t, k, sums);
    }
    return t;
}

struct standard standardizer_over(const struct standardizer *s, int from, int to, int l, int fresh)
{
    struct standard t;
    int is_known = 0;
    for (int j = from; j < to; j++)
        is_known |= (double)s->params->p[s->count].value[j] > 0;
    for (int k = 0; k < s->width; k++) {
        double sums[3] = {0};
        for (int j = from; j < to && (is_known || j <= l); j++)
            add_sums(s, j, k, fresh && !is_known, sums);
        set_standard(&t, k, sums);
    }
    return t;
}

void standardizer_counts(struct standardizer *s, route_count_fn *each, void *ctx)
{
    size_t n = (size_t)s->L * (size_t)s->width;
    each(ctx, s->sum, n, 0);
    each(ctx, s->sum2, n, 0);
    each(ctx, s->n, (size_t)s->L, 0);
}

/* The stored means and their weight decay together, so early steps are not biased towards 0. */
void standardizer_update(struct standardizer *s, double ema)
{
    const struct param *p = s->params->p;
    for (int l = 0; l < s->L; l++) {
        if (s->n[l] <= 0)
            continue;
        p[s->count].value[l] = (real)(ema * (double)p[s->count].value[l] + (1 - ema));
        for (int i = l * s->width; i < (l + 1) * s->width; i++) {
            real *mean = &p[s->mean].value[i], *square = &p[s->square].value[i];
            *mean = (real)(ema * (double)*mean + (1 - ema) * s->sum[i] / s->n[l]);
            *square = (real)(ema * (double)*square + (1 - ema) * s->sum2[i] / s->n[l]);
        }
    }
}
