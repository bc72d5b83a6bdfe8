/* A small network on standardised inputs, and its offline fit. */
#include "routing/regret.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"

enum { UNITS = 16, BATCH = 512, LEAST = 8 };
static const double least_sd = 1e-6, fit_lr = 1e-2;

static struct mlp_shape shape_of(int D)
{
    return (struct mlp_shape){.n = 2, .dim = {D, UNITS, 1}, .act = MLP_ACT_GELU, .bias = 1};
}

int regret_init(struct regret *g, struct params *ps, const char *prefix, int D, int train,
                struct err *e)
{
    char name[64];
    struct mlp_shape shape = shape_of(D);
    memset(g, 0, sizeof *g);
    g->params = ps;
    g->D = D;
    snprintf(name, sizeof name, "%s.head", prefix);
    int rc = mlp_init(&g->net, ps, name, &shape, e);
    for (int k = 0; rc == 0 && k < g->net.n; k++)
        ps->p[g->net.w[k]].train = ps->p[g->net.b[k]].train = train;
    if (rc < 0)
        return rc;
    g->mean = params_add_buffer(ps, prefix, "mean", D, 0);
    g->sd = params_add_buffer(ps, prefix, "sd", D, 0);
    g->seen = params_add_buffer(ps, prefix, "seen", 1, 0);
    g->sum = mem_alloc((size_t)D, sizeof *g->sum);
    g->sum2 = mem_alloc((size_t)D, sizeof *g->sum2);
    if (g->mean < 0 || g->sd < 0 || g->seen < 0 || !g->sum || !g->sum2)
        return err_set(e, DS_EMEM, "parameters of %s", prefix);
    return 0;
}

void regret_layout(struct regret *g, struct arena *a, int R)
{
    mlp_layout(&g->net, a, R);
}

void regret_release(struct regret *g)
{
    mem_free(g->sum);
    mem_free(g->sum2);
    memset(g, 0, sizeof *g);
}

double regret_flops(const struct regret *g)
{
    return 2.0 * g->D + mlp_flops(&g->net);
}

static real *value_of(const struct regret *g, int index)
{
    return g->params->p[index].value;
}

void regret_standardize(const struct regret *g, real *x, size_t n)
{
    const real *mean = value_of(g, g->mean), *sd = value_of(g, g->sd);
    for (size_t i = 0; i < n; i++, x += g->D)
        for (int k = 0; k < g->D; k++)
            x[k] = isfinite(x[k]) && (double)sd[k] > least_sd ? (x[k] - mean[k]) / sd[k] : 0;
}

void regret_predict(struct regret *g, real *y, const real *x, int n)
{
    mlp_fwd(&g->net, y, x, n);
}

void regret_bwd(struct regret *g, const real *dy, const real *x, int n)
{
    mlp_bwd(&g->net, NULL, dy, x, n);
}

/* ---- standardisation ---- */

static void add_rows(struct regret *g, const real *x, size_t n)
{
    for (size_t i = 0; i < n; i++, x += g->D)
        for (int k = 0; k < g->D; k++) {
            double v = isfinite(x[k]) ? (double)x[k] : 0;
            g->sum[k] += v;
            g->sum2[k] += v * v;
        }
    g->n += (double)n;
}

/* Moves the stored statistics by `share` towards those of the step. */
static void store(struct regret *g, double share)
{
    real *mean = value_of(g, g->mean), *sd = value_of(g, g->sd);
    for (int k = 0; k < g->D && g->n > 0; k++) {
        double m = g->sum[k] / g->n, var = g->sum2[k] / g->n - m * m;
        mean[k] = (real)((1 - share) * (double)mean[k] + share * m);
        sd[k] = (real)((1 - share) * (double)sd[k] + share * sqrt(var > 0 ? var : 0));
    }
}

void regret_begin(struct regret *g)
{
    memset(g->sum, 0, (size_t)g->D * sizeof *g->sum);
    memset(g->sum2, 0, (size_t)g->D * sizeof *g->sum2);
    g->n = 0;
}

void regret_note(struct regret *g, const real *x, int n)
{
    add_rows(g, x, (size_t)n);
    if ((double)value_of(g, g->seen)[0] <= 0)
        store(g, 1);
}

void regret_counts(struct regret *g, route_count_fn *each, void *ctx)
{
    each(ctx, g->sum, (size_t)g->D, 0);
    each(ctx, g->sum2, (size_t)g->D, 0);
    each(ctx, &g->n, 1, 0);
}

void regret_update(struct regret *g, double ema)
{
    real *seen = value_of(g, g->seen);
    if (g->n <= 0)
        return;
    /* as in a bias-corrected average, the first step has full weight */
    double w = ema * (double)seen[0] + (1 - ema);
    store(g, (1 - ema) / w);
    seen[0] = (real)w;
    regret_begin(g);
}

/* ---- the offline fit ---- */

/* What the fit allocates. */
struct fit {
    struct params params;
    struct mlp net;
    struct arena rows;
    size_t *known; /* samples with a label */
    size_t n;
    real *x, *y, *dy; /* (BATCH, D), (BATCH), (BATCH) */
};

static int fit_init(struct fit *f, const struct regret *g, const real *label, size_t n,
                    uint64_t seed, struct err *e)
{
    struct mlp_shape shape = shape_of(g->D);
    struct arena measure;
    int rc = mlp_init(&f->net, &f->params, "fit", &shape, e);
    if (rc == 0)
        rc = params_reserve(&f->params, 1, e);
    if (rc < 0)
        return rc;
    params_init(&f->params, seed);
    arena_measure(&measure, "fit");
    mlp_layout(&f->net, &measure, BATCH);
    rc = arena_reserve(&f->rows, "fit", measure.peak, e);
    if (rc < 0)
        return rc;
    mlp_layout(&f->net, &f->rows, BATCH);
    f->known = mem_alloc(n + 1, sizeof *f->known);
    f->x = mem_alloc((size_t)BATCH * (size_t)g->D, sizeof *f->x);
    f->y = mem_alloc(BATCH, sizeof *f->y);
    f->dy = mem_alloc(BATCH, sizeof *f->dy);
    if (!f->known || !f->x || !f->y || !f->dy)
        return err_set(e, DS_EMEM, "out of memory for a fit to %zu samples", n);
    for (size_t i = 0; i < n; i++)
        if (isfinite(label[i]))
            f->known[f->n++] = i;
    return 0;
}

static void fit_release(struct fit *f)
{
    params_release(&f->params);
    arena_release(&f->rows);
    mem_free(f->known);
    mem_free(f->x);
    mem_free(f->y);
    mem_free(f->dy);
}

/* One step of Adam on a random minibatch of the squared error. */
static void fit_step(struct fit *f, const real *x, const real *label, int D, int step, int steps,
                     struct rng *random)
{
    struct adamw o = {.beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8, .router_lr = 1, .clip = 1};
    o.lr = fit_lr * 0.5 * (1 + cos(3.141592653589793 * step / steps));
    for (int k = 0; k < BATCH; k++) {
        size_t i = f->known[rng_below(random, (uint32_t)f->n)];
        memcpy(f->x + (size_t)k * (size_t)D, x + i * (size_t)D, (size_t)D * sizeof *x);
        f->dy[k] = label[i];
    }
    mlp_fwd(&f->net, f->y, f->x, BATCH);
    for (int k = 0; k < BATCH; k++)
        f->dy[k] = 2 * (f->y[k] - f->dy[k]) / BATCH;
    mlp_bwd(&f->net, NULL, f->dy, f->x, BATCH);
    struct grad_health health = params_grad_health(&f->params);
    if (health.bad == 0)
        adamw_step(&f->params, &o, step + 1, &health);
    else
        params_zero_grad(&f->params);
}

/* 1 - squared error / squared deviation, over all labelled samples. */
static double explained_by(struct fit *f, const real *x, const real *label, int D)
{
    double error = 0, sum = 0, sum2 = 0;
    for (size_t at = 0; at < f->n; at += BATCH) {
        int n = f->n - at < BATCH ? (int)(f->n - at) : BATCH;
        for (int k = 0; k < n; k++)
            memcpy(f->x + (size_t)k * (size_t)D, x + f->known[at + (size_t)k] * (size_t)D,
                   (size_t)D * sizeof *x);
        mlp_fwd(&f->net, f->y, f->x, n);
        for (int k = 0; k < n; k++) {
            double y = (double)label[f->known[at + (size_t)k]], d = (double)f->y[k] - y;
            error += d * d;
            sum += y;
            sum2 += y * y;
        }
    }
    double spread = sum2 - sum * sum / (double)f->n;
    return spread > 0 ? 1 - error / spread : (double)NAN;
}

/* The temporary network and the stored one register the same parameters in the same order. */
static void take(struct regret *g, const struct fit *f)
{
    for (int k = 0; k < g->net.n; k++) {
        const struct param *w = &f->params.p[f->net.w[k]], *b = &f->params.p[f->net.b[k]];
        memcpy(value_of(g, g->net.w[k]), w->value, w->n * sizeof *w->value);
        memcpy(value_of(g, g->net.b[k]), b->value, b->n * sizeof *b->value);
    }
    params_changed(g->params);
}

int regret_fit(struct regret *g, real *x, const real *label, size_t n, int steps, uint64_t seed,
               double *explained, struct err *e)
{
    struct fit f = {0};
    struct rng random;
    int rc = fit_init(&f, g, label, n, seed, e);
    *explained = (double)NAN;
    if (rc < 0 || f.n < LEAST)
        goto out;
    regret_begin(g);
    for (size_t k = 0; k < f.n; k++)
        add_rows(g, x + f.known[k] * (size_t)g->D, 1);
    store(g, 1);
    value_of(g, g->seen)[0] = 1;
    regret_begin(g);
    regret_standardize(g, x, n);
    rng_init(&random, seed, RNG_ROUTE, 0, 0);
    for (int step = 0; step < steps; step++)
        fit_step(&f, x, label, g->D, step, steps, &random);
    *explained = explained_by(&f, x, label, g->D);
    take(g, &f);
out:
    fit_release(&f);
    return rc;
}
