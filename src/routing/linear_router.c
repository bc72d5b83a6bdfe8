/* Linear routers, one per layer, with their penalties and training noise. */
#include "routing/linear_router.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/linear.h"

enum { NOISE_STREAM = 1 << 17 };
static const double gumbel_bound = 10, min_prob = 1e-4;

int linear_router_init(struct linear_router *x, struct params *ps, const char *prefix, int L, int C,
                       double gain, struct err *e)
{
    char name[96];
    memset(x, 0, sizeof *x);
    x->params = ps;
    x->L = L;
    x->C = C;
    snprintf(name, sizeof name, "%s.weight", prefix);
    x->weight = params_add(ps, name, L, C, PARAM_ROUTER, INIT_NORMAL, gain * sqrt(2.0 / (C + 1)));
    snprintf(name, sizeof name, "%s.bias", prefix);
    x->bias = params_add(ps, name, L, 0, PARAM_ROUTER, INIT_ZERO, 0);
    x->mean = mem_alloc(2 * (size_t)L, sizeof *x->mean);
    if (x->weight < 0 || x->bias < 0 || !x->mean)
        return err_set(e, DS_EMEM, "parameters of %s", prefix);
    x->count = x->mean + L;
    return 0;
}

void linear_router_layout(struct linear_router *x, struct arena *a, int R)
{
    x->score = arena_zalloc(a, (size_t)x->L * (size_t)R, sizeof(real));
    x->dscore = arena_zalloc(a, (size_t)R, sizeof(real));
    x->R_max = R;
}

void linear_router_release(struct linear_router *x)
{
    mem_free(x->mean);
    x->mean = x->count = NULL;
}

void linear_router_freeze(struct linear_router *x, double lr)
{
    x->params->p[x->weight].lr = x->params->p[x->bias].lr = lr;
}

void linear_router_begin(struct linear_router *x, int R)
{
    BUG_IF(R > x->R_max, "router scores of %d rows, reserved %d", R, x->R_max);
    x->R = R;
    memset(x->count, 0, (size_t)x->L * sizeof *x->count);
}

static struct linear map_of(const struct linear_router *x, int l)
{
    const struct param *p = x->params->p;
    return (struct linear){.C = x->C,
                           .O = 1,
                           .format = GEMM_FP32,
                           .w = p[x->weight].value + (size_t)l * (size_t)x->C,
                           .b = p[x->bias].value + l};
}

real *linear_router_score(const struct linear_router *x, int l)
{
    return x->score + (size_t)l * (size_t)x->R;
}

real *linear_router_fwd(struct linear_router *x, int l, const real *in)
{
    struct linear w = map_of(x, l);
    linear_fwd(linear_router_score(x, l), in, &w, x->R, 0, NULL);
    return linear_router_score(x, l);
}

double linear_router_probability(real score)
{
    return 1 / (1 + exp(-(double)score));
}

static double bounded(double p)
{
    return fmax(min_prob, fmin(1 - min_prob, p));
}

static double entropy_of(double p)
{
    p = bounded(p);
    return -p * log(p) - (1 - p) * log1p(-p);
}

double linear_router_entropy(const struct linear_router *x, int l, const uint8_t *counts)
{
    double sum = 0, n = 0;
    for (int i = 0; i < x->R; i++)
        if (counts[i]) {
            sum += entropy_of(linear_router_probability(linear_router_score(x, l)[i]));
            n++;
        }
    return n > 0 ? sum / n : 0;
}

void linear_router_penalty(struct linear_router *x, int l, const uint8_t *counts,
                           const struct router_penalty *price, double loss[ROUTER_PENALTIES])
{
    const real *score = linear_router_score(x, l);
    double p = 0, square = 0, n = 0;
    x->price = *price;
    for (int i = 0; i < x->R; i++)
        if (counts[i]) {
            p += linear_router_probability(score[i]);
            square += (double)score[i] * (double)score[i];
            n++;
        }
    x->count[l] = n;
    if (n <= 0)
        return;
    x->mean[l] = p / n;
    loss[0] += price->capacity * (x->mean[l] - price->target) * (x->mean[l] - price->target);
    loss[1] += price->z * square / n;
    loss[2] -= price->entropy * linear_router_entropy(x, l, counts);
}

/* d penalties / d score of one row, p = sigmoid(score): d H / d score = - score p (1 - p) within
 * bounds. */
static double penalty_slope(const struct linear_router *x, int l, double score, double p)
{
    const struct router_penalty *w = &x->price;
    double slope = p * (1 - p), is_inside = bounded(p) == p;
    return (2 * w->capacity * (x->mean[l] - w->target) * slope + 2 * w->z * score +
            w->entropy * is_inside * score * slope) /
           x->count[l];
}

void linear_router_bwd(struct linear_router *x, int l, const real *dp, const uint8_t *counts,
                       const real *in, real *din)
{
    const struct param *ps = x->params->p;
    const real *score = linear_router_score(x, l);
    struct linear w = map_of(x, l);
    for (int i = 0; i < x->R; i++) {
        double p = linear_router_probability(score[i]), d = (double)dp[i] * p * (1 - p);
        if (x->count[l] > 0 && counts[i])
            d += penalty_slope(x, l, (double)score[i], p);
        x->dscore[i] = (real)d;
    }
    real *dw = ps[x->weight].grad, *db = ps[x->bias].grad;
    struct linear_rows rows = linear_rows(GEMM_FP32, in, NULL, x->R, x->C);
    linear_bwd_w(dw ? dw + (size_t)l * (size_t)x->C : NULL, db ? db + l : NULL, x->dscore, &rows,
                 &w);
    if (din)
        linear_bwd_x(din, x->dscore, &w, x->R, 1, NULL);
}

/* A standard Gumbel draw: -ln(-ln u). */
double linear_router_gumbel(const struct route *r, int l, int i)
{
    double u = rng_at(r->pass.seed, RNG_ROUTE, (uint64_t)r->pass.step, (uint32_t)(NOISE_STREAM + l),
                      route_place(&r->pass, i));
    double g = -log(-log(fmin(fmax(u, 1e-6), 1 - 1e-6)));
    return fmax(-gumbel_bound, fmin(gumbel_bound, g));
}
