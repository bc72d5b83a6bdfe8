/* ouro: a learned gate after every iteration of a loop; a token leaves for good once the
 * probability of having left reaches a threshold (Ouro's Q-exit):
 *
 *   lambda_t = sigmoid(w . norm(h_t) + b)              norm: the model's final one
 *   p_t      = lambda_t prod_{s < t} (1 - lambda_s)
 *   leaves at the first t with p_1 + .. + p_t >= threshold
 *
 * The last iteration has what is left of the probability, so its gate is never read.  The published
 * code computes every iteration for every token and then picks the state; here a token that has left
 * is really not computed, and later tokens see the keys and values of its last state where the
 * published ones see those of all its iterations.  At threshold 1 both are the same function.
 *
 * The gate's weights come with a checkpoint; training leaves them as they are. */
#include <math.h>
#include <string.h>

#include "routing/route.h"

struct ouro_opts {
    double threshold;
    int kv;
};

struct ouro {
    int weight, bias;     /* params */
    uint8_t *left, *want; /* (R) */
    real *factor;         /* (R) zeros: gates have no gradient */
    real *passed, *rest;  /* (R) probability of having left so far, and of not */
    int32_t *row;         /* (R) rows that are deciding */
    real *x;              /* (R, C) of them, normed */
};

#define AT(field) offsetof(struct ouro_opts, field)
static const struct opt ouro_opts_table[] = {
    // clang-format off
    {"threshold", OPT_REAL, AT(threshold), "1", 0, 2, NULL,
     "exit probability, summed over the iterations, at which a token leaves; above 1: never",
     .is_live = 1},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "tokens that have left write keys and values too, or only executed tokens are keys"},
    // clang-format on
};

enum { M_EXIT, M_GATE, M_SCORE, M_TAU, M_EXITED };
static const struct metric ouro_metrics[] = {
    // clang-format off
    [M_EXIT] = {"exit_rate", "", "share of rows that exit at this layer", METRIC_LAYER},
    [M_GATE] = {"gate", "", "learned exit gate of the iteration before", METRIC_CELL},
    [M_SCORE] = {"score", "", "probability of having left, which decides", METRIC_CELL},
    [M_TAU] = {"threshold", "", "threshold that the score is compared with", METRIC_CELL},
    [M_EXITED] = {"exited", "", "1 = the token has exited before this layer", METRIC_CELL},
    // clang-format on
};

static struct ouro *ouro_of(const struct route *r)
{
    return r->state;
}

static const struct ouro_opts *opts_of(const struct route *r)
{
    return r->opts;
}

/* Layers outside what exits can skip. */
static int ouro_always_on(const struct route *r, int l)
{
    return l < route_exit(r, 1) || l >= r->loop.end;
}

static int ouro_init(struct route *r, struct err *e)
{
    struct ouro *s = ouro_of(r);
    double width = 1 / sqrt((double)r->C);
    s->weight = params_add(r->params, "model.early_exit_gate.weight", 1, r->C, PARAM_ROUTER,
                           INIT_NORMAL, width);
    s->bias = params_add(r->params, "model.early_exit_gate.bias", 1, 0, PARAM_ROUTER, INIT_ZERO, 0);
    if (s->weight < 0 || s->bias < 0)
        return err_set(e, DS_EMEM, "parameters of ouro");
    r->params->p[s->weight].train = r->params->p[s->bias].train = 0;
    return 0;
}

static void ouro_layout(struct route *r, struct arena *a, int rows)
{
    struct ouro *s = ouro_of(r);
    size_t R = (size_t)rows;
    s->left = arena_zalloc(a, R, 1);
    s->want = arena_zalloc(a, R, 1);
    s->factor = arena_zalloc(a, R, sizeof(real));
    s->passed = arena_zalloc(a, R, sizeof(real));
    s->rest = arena_zalloc(a, R, sizeof(real));
    s->row = arena_zalloc(a, R, sizeof(int32_t));
    s->x = arena_zalloc(a, R * (size_t)r->C, sizeof(real));
}

static void ouro_begin(struct route *r)
{
    struct ouro *s = ouro_of(r);
    memset(s->left, 0, (size_t)r->pass.R);
    for (int i = 0; i < r->pass.R; i++) {
        s->passed[i] = 0;
        s->rest[i] = 1;
    }
    for (int l = 0; l < r->L; l++)
        r->metric[M_EXIT][l] = 0;
}

static real gate_of(const struct route *r, const real *x)
{
    const struct ouro *s = ouro_of(r);
    const real *w = r->params->p[s->weight].value;
    real sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int c = 0; c < r->C; c++)
        sum += w[c] * x[c];
    return 1 / (1 + exp_r(-(sum + r->params->p[s->bias].value[0])));
}

static void record_exit(struct route *r, int l, int i, real gate, real tau)
{
    size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)i;
    r->cell[M_GATE][cell] = gate;
    r->cell[M_SCORE][cell] = ouro_of(r)->passed[i];
    r->cell[M_TAU][cell] = tau;
}

/* Rows that are still there, and not forced, leave before layer l or stay.  In other methods a
 * higher threshold runs less: so does a higher offset here. */
static void decide_exit(struct route *r, int l, const struct stream *st)
{
    struct ouro *s = ouro_of(r);
    real tau = (real)(opts_of(r)->threshold - r->pass.inference.offset);
    int n = 0, R = r->pass.R;
    for (int i = 0; i < R; i++)
        if (!s->left[i] && route_forced(r, l, i) < 0)
            s->row[n++] = i;
    if (n == 0)
        return;
    st->lens.normed(st->lens.ctx, ROUTE_NORM_FINAL, l, s->row, n, s->x);
    st->lens.count(st->lens.ctx, l, s->row, n, 2.0 * r->C);
    for (int k = 0; k < n; k++) {
        int i = s->row[k];
        real gate = gate_of(r, s->x + (size_t)k * (size_t)r->C);
        s->passed[i] += gate * s->rest[i];
        s->rest[i] *= 1 - gate;
        s->left[i] = s->passed[i] >= tau;
        r->metric[M_EXIT][l] += s->left[i] / (double)R;
        if (r->pass.record)
            record_exit(r, l, i, gate, tau);
    }
}

static void ouro_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct ouro *s = ouro_of(r);
    int R = r->pass.R, training = r->pass.kind == PASS_TRAIN, on = ouro_always_on(r, l);
    if (!training && route_may_leave(r, l))
        decide_exit(r, l, st);
    for (int i = 0; i < R; i++) {
        int forced = route_forced(r, l, i);
        s->want[i] = (uint8_t)(forced >= 0 ? forced : on || !s->left[i]);
        if (r->pass.record)
            r->cell[M_EXITED][(size_t)l * (size_t)R + (size_t)i] = s->left[i] && !on;
    }
    plan_from_mask(out, s->want, s->factor, NULL, R, r->pass.kind != PASS_SPARSE);
    out->kv = opts_of(r)->kv == 0 ? KV_ALL : KV_PLAN;
}

const struct route_ops route_ouro = {
    .name = "ouro",
    .summary = "learned exit gates of a loop: a token leaves at a summed exit probability",
    .paper = "Zhu et al. 2025, arXiv 2510.25741",
    .flags = ROUTE_GATED,
    .opts_size = sizeof(struct ouro_opts),
    .state_size = sizeof(struct ouro),
    .opts = ouro_opts_table,
    .n_opts = DS_LEN(ouro_opts_table),
    .metrics = ouro_metrics,
    .n_metrics = DS_LEN(ouro_metrics),
    .init = ouro_init,
    .layout = ouro_layout,
    .begin = ouro_begin,
    .decide = ouro_decide,
    .always_on = ouro_always_on,
};
