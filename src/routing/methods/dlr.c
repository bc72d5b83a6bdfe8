/* dlr: Dynamic Layer Routing.  After the first `keep` layers one small network reads the token's
 * state and decides all later layers at once.
 *
 *   logit (L - keep) = MLP(h[keep])      C -> C/2 -> GELU -> C/4 -> GELU -> L - keep, in fp32
 *   training:   hard = [logit + n > 0], n logistic: P(hard) = sigmoid(logit) at any temperature;
 *               straight-through gradient y (1 - y) / tau of y = sigmoid((logit + n) / tau)
 *   inference:  gate = [logit > threshold], without noise
 *
 * Depth penalty: lambda sum_l w_l mean gate_l + mu (skip - target)^2 - beta mean_l H(mean gate_l),
 * in nats per token.
 *
 * estimator=reinforce draws the same gates and uses their score function: d logit = (hard -
 * sigmoid(logit)) (nll + penalty of the row's gates - its running mean); the gradient through the
 * gates is not used. */
#include <math.h>
#include <string.h>

#include "base/arena.h"
#include "base/rng.h"
#include "routing/cut.h"
#include "routing/gates.h"
#include "routing/gatestats.h"
#include "routing/mlp.h"
#include "routing/prefix.h"
#include "routing/rank.h"
#include "routing/reinforce.h"
#include "routing/route.h"

enum { START_TARGET, START_CONSTANT, START_RAMP };
enum { ESTIMATOR_GUMBEL, ESTIMATOR_REINFORCE, ESTIMATOR_NONE };
enum { PRICES_LINEAR, PRICES_FLAT };
enum { THRESHOLD_TARGET, THRESHOLD_ZERO };
enum { SPREAD_COMMON, SPREAD_LAYER };

struct dlr_opts {
    int64_t keep, prompt, tau_epochs;
    int level, attach, start, estimator, prices, threshold, spread, kv;
    double init_bias, init_bias_last, init_gain;
    double lambda, price_low, price_high, target_skip, target_ratio, mu, entropy_beta;
    double tau_start, tau_decay, tau_min, threshold_offset, ema;
};

struct dlr {
    int routed;     /* M = L - keep */
    int read_at;    /* the layer of this pass that the network reads: keep, or the next open one */
    int has_logits; /* it has been read */
    struct mlp net; /* C -> M */
    struct prefix prefix;
    struct quantiles table; /* of logits */
    struct gates gates;     /* score: logit + noise */
    struct reinforce reinforce;
    real *in, *din;       /* (R,C) network input; its gradient when attached, else NULL */
    real *logit, *dlogit; /* (R,M) */
    real *free_logit;     /* (R) one layer's logits, without those of prompt rows */
    uint8_t *ran;         /* (L,R) hard gates: the actions */
    double *reward;       /* (R) */
    double *mean, *price; /* (L) mean gate of the layer, NaN: closed; d aux / d mean */
    struct cut cut;
    double tau, tau_use; /* temperature; inference threshold common to all layers */
    double nan;          /* NaN logits in this pass */
};

#define AT(field) offsetof(struct dlr_opts, field)
static const struct opt dlr_opts_table[] = {
    // clang-format off
    {"keep", OPT_INT, AT(keep), "4", 0, 4096, NULL,
     "first layers that every token runs; the router reads the state after them (published 4)",
     "always_keep"},
    {"level", OPT_ENUM, AT(level), "token", 0, 0, PREFIX_CHOICES,
     "router input: the token's state; the mean of the document so far; the mean of its first "
     "`prompt` tokens, which run everything, for the rest of the document"},
    {"prompt", OPT_INT, AT(prompt), "16", 1, 1000000, NULL,
     "level=prompt: tokens read before the decision"},
    {"attach", OPT_BOOL, AT(attach), "false", 0, 0, NULL,
     "gate gradients also flow into the states that the router reads (published: detached)"},
    {"init", OPT_ENUM, AT(start), "target", 0, 0, "target|constant|ramp",
     "initial biases of the last layer: at the rate of target_skip; init_bias; from init_bias to "
     "init_bias_last over the routed layers"},
    {"init_bias", OPT_REAL, AT(init_bias), "-1.5", -100, 100, NULL,
     "initial bias of the router's output (published 0, -1.5, -2, -2.5; ramp from 1)"},
    {"init_bias_last", OPT_REAL, AT(init_bias_last), "-3", -100, 100, NULL,
     "init=ramp: initial bias for the last layer (published -3)"},
    {"init_gain", OPT_REAL, AT(init_gain), "0.577", 1e-3, 100, NULL,
     "initial weights have standard deviation init_gain / sqrt(inputs)"},
    {"estimator", OPT_ENUM, AT(estimator), "gumbel", 0, 0, "gumbel|reinforce|none",
     "router gradient: straight-through with logistic noise; score function; none (the router "
     "stays at its initialisation)"},
    {"lambda", OPT_REAL, AT(lambda), "0.02", 0, 1000, NULL,
     "depth penalty: weight of the sum of the layers' mean gates (published 0.02, 0.05; 0.01 to "
     "500 where losses were not per token)", "lambda_sparsity"},
    {"depth_weights", OPT_ENUM, AT(prices), "flat", 0, 0, "linear|flat",
     "depth penalty per layer: rising from depth_weight_low to depth_weight_high, or 1 each"},
    {"depth_weight_low", OPT_REAL, AT(price_low), "0.1", 0, 1000, NULL,
     "penalty weight of the first routed layer (published 0.1)"},
    {"depth_weight_high", OPT_REAL, AT(price_high), "2", 0, 1000, NULL,
     "penalty weight of the last layer (published 2)"},
    {"target_skip", OPT_REAL, AT(target_skip), "0.4", 0, 1, NULL,
     "target share of skipped routed cells (published 0.4)", "target_skip"},
    {"target_ratio", OPT_REAL, AT(target_ratio), "0", 0, 1, NULL,
     "the same as a whole-block ratio, executed cells / all cells; 0: target_skip holds",
     .is_live = 1},
    {"mu", OPT_REAL, AT(mu), "8", 0, 1e6, NULL,
     "weight of (skipped - target_skip)^2 (published 8, 5, 0.5)", "target_penalty"},
    {"entropy_beta", OPT_REAL, AT(entropy_beta), "0", 0, 1000, NULL,
     "bonus for the entropy of each layer's mean gate (published 0, or without a gradient)",
     "gate_entropy_beta"},
    {"tau_start", OPT_REAL, AT(tau_start), "1", 1e-3, 100, NULL,
     "temperature of the soft gates: scales gradients, changes no decision", "gumbel_temp"},
    {"tau_decay", OPT_REAL, AT(tau_decay), "0.95", 1e-3, 1, NULL,
     "factor on the temperature after each epoch", "temp_anneal_rate"},
    {"tau_epochs", OPT_INT, AT(tau_epochs), "3", 1, 1000000, NULL,
     "epochs per run, for tau_decay"},
    {"tau_min", OPT_REAL, AT(tau_min), "0.5", 1e-3, 100, NULL, "minimum temperature"},
    {"threshold", OPT_ENUM, AT(threshold), "target", 0, 0, "target|zero",
     "inference compares logits with: the stored quantile that skips target_skip; 0 (published)"},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -100, 100, NULL,
     "added to the inference threshold, in standard deviations of the logits", .is_live = 1},
    {"spread", OPT_ENUM, AT(spread), "common", 0, 0, "common|layer",
     "a capacity is met by one threshold for all layers; or separately in each layer"},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "skipped tokens write keys and values too, or only executed tokens are keys"},
    {"ema", OPT_REAL, AT(ema), "0.95", 0, 0.99999, NULL,
     "decay of the running logit quantiles and mean reward"},
    // clang-format on
};

enum {
    M_TAU,
    M_GATE_LOSS,
    M_TARGET_LOSS,
    M_SKIP,
    M_ACTIVE,
    M_ENTROPY,
    M_GATE_VARIANCE,
    M_USE_VARIANCE,
    M_COLLAPSED,
    M_NAN,
    M_REWARD,
    M_MEAN,
    M_LAYER_ENTROPY,
    M_PUSH,
    M_SCORE,
    M_CELL_TAU,
    M_GATE
};
static const struct metric dlr_metrics[] = {
    // clang-format off
    [M_TAU] = {"tau", "", "temperature of the soft gates", METRIC_STEP},
    [M_GATE_LOSS] = {"gate_loss", "nats",
     "lambda * sum over layers of weight * mean gate", METRIC_STEP},
    [M_TARGET_LOSS] = {"target_loss", "nats", "mu (skip_ratio - target_skip)^2", METRIC_STEP},
    [M_SKIP] = {"skip_ratio", "", "skipped routed cells / all routed cells", METRIC_STEP},
    [M_ACTIVE] = {"active_layers", "layers",
     "layers that a token runs, including kept ones", METRIC_STEP},
    [M_ENTROPY] = {"routing_entropy", "nats",
     "entropy of the soft gates, mean over cells", METRIC_STEP},
    [M_GATE_VARIANCE] = {"gate_variance", "",
     "variance of the soft gates over tokens, mean over layers", METRIC_STEP},
    [M_USE_VARIANCE] = {"utilization_variance", "",
     "variance of the mean gates over layers", METRIC_STEP},
    [M_COLLAPSED] = {"collapsed", "",
     "number of collapse alarms: mean gate < 0.02, > 0.98, a layer < 0.01, entropy < 0.1, variance "
     "over layers > 0.1", METRIC_STEP},
    [M_NAN] = {"nan_scores", "", "NaN router logits", METRIC_STEP, .is_sum = 1},
    [M_REWARD] = {"reward", "nats", "mean reward of estimator=reinforce", METRIC_STEP},
    [M_MEAN] = {"gate_mean", "", "mean soft gate", METRIC_LAYER},
    [M_LAYER_ENTROPY] = {"layer_entropy", "nats", "mean entropy of the soft gates", METRIC_LAYER},
    [M_PUSH] = {"logit_grad", "", "sum of the logits' gradients", METRIC_LAYER},
    [M_SCORE] = {"score", "", "router logit", METRIC_CELL},
    [M_CELL_TAU] = {"threshold", "", "threshold that the logit is compared with", METRIC_CELL},
    [M_GATE] = {"gate", "", "sigmoid(score - threshold)", METRIC_CELL},
    // clang-format on
};

static struct dlr *dlr_of(const struct route *r)
{
    return r->state;
}

static const struct dlr_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int is_routed(const struct route *r, int l)
{
    return l >= opts_of(r)->keep;
}

static int dlr_always_on(const struct route *r, int l)
{
    return !is_routed(r, l);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static real logit_at(const struct route *r, int l, int i)
{
    const struct dlr *s = dlr_of(r);
    return s->logit[(size_t)i * (size_t)s->routed + (size_t)(l - (int)opts_of(r)->keep)];
}

/* The target as a share of skipped routed cells. */
static double target_skip_of(const struct route *r)
{
    const struct dlr_opts *o = opts_of(r);
    return o->target_ratio > 0 ? (1 - o->target_ratio) * r->L / (r->L - (double)o->keep)
                               : o->target_skip;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static void start_biases(const struct route *r, struct mlp_shape *shape)
{
    const struct dlr_opts *o = opts_of(r);
    int routed = dlr_of(r)->routed;
    double run = 1 - target_skip_of(r);
    run = run < 0.02 ? 0.02 : run > 0.98 ? 0.98 : run;
    shape->last_bias = o->start == START_TARGET ? log(run / (1 - run)) : o->init_bias;
    if (o->start == START_RAMP && routed > 1)
        shape->last_step = (o->init_bias_last - o->init_bias) / (routed - 1);
}

/* A learning rate of 0 excludes parameters from the optimiser's step. */
static void freeze_router(struct route *r)
{
    const struct mlp *m = &dlr_of(r)->net;
    for (int k = 0; k < m->n; k++)
        r->params->p[m->w[k]].lr = r->params->p[m->b[k]].lr = 0;
}

static int check(struct route *r, struct err *e)
{
    const struct dlr_opts *o = opts_of(r);
    if (o->keep >= r->L)
        return err_set(e, DS_ERANGE,
                       "dlr.keep=%lld leaves no routed layer of model.layers=%d; lower dlr.keep",
                       (long long)o->keep, r->L);
    if (o->tau_min > o->tau_start)
        return err_set(e, DS_ERANGE, "dlr.tau_min=%g: must not be above dlr.tau_start=%g",
                       o->tau_min, o->tau_start);
    return o->target_ratio > 0
               ? route_check_target(o->target_ratio, (int)o->keep, r->L, "dlr.target_ratio", e)
               : 0;
}

static int dlr_init(struct route *r, struct err *e)
{
    const struct dlr_opts *o = opts_of(r);
    struct dlr *s = dlr_of(r);
    int C = r->C, half = C / 2 > 0 ? C / 2 : 1, quarter = C / 4 > 0 ? C / 4 : 1;
    int rc = check(r, e);
    if (rc < 0)
        return rc;
    s->routed = r->L - (int)o->keep;
    s->read_at = (int)o->keep;
    struct mlp_shape shape = {.n = 3,
                              .dim = {C, half, quarter, s->routed},
                              .act = MLP_ACT_GELU,
                              .bias = 1,
                              .gain = o->init_gain};
    start_biases(r, &shape);
    rc = mlp_init(&s->net, r->params, "dlr.router", &shape, e);
    if (rc < 0)
        return rc;
    rc = quantiles_init(&s->table, r->params, "dlr", r->L, e);
    if (rc < 0)
        return rc;
    rc = prefix_init(&s->prefix, (enum prefix_kind)o->level, (int)o->prompt, C, e);
    if (rc < 0)
        return rc;
    rc = reinforce_init(&s->reinforce, r->params, "dlr", e);
    if (rc == 0 && o->estimator == ESTIMATOR_NONE)
        freeze_router(r);
    return rc;
}

/* Called once to measure and once to allocate. */
static void dlr_layout(struct route *r, struct arena *a, int rows)
{
    struct dlr *s = dlr_of(r);
    size_t R = (size_t)rows, M = (size_t)s->routed, L = (size_t)r->L, C = (size_t)r->C;
    s->in = arena_alloc(a, R * C, sizeof *s->in);
    s->din = opts_of(r)->attach ? arena_alloc(a, R * C, sizeof *s->din) : NULL;
    s->logit = arena_alloc(a, R * M, sizeof *s->logit);
    s->dlogit = arena_alloc(a, R * M, sizeof *s->dlogit);
    s->free_logit = arena_alloc(a, R, sizeof *s->free_logit);
    s->ran = arena_alloc(a, R * L, 1);
    s->reward = arena_alloc(a, R, sizeof *s->reward);
    s->mean = arena_alloc(a, L, sizeof *s->mean);
    s->price = arena_alloc(a, L, sizeof *s->price);
    mlp_layout(&s->net, a, rows);
    reinforce_layout(&s->reinforce, a, rows);
    quantiles_layout(&s->table, a, rows);
    gates_layout(&s->gates, a, rows, r->L);
}

static void dlr_release(struct route *r)
{
    struct dlr *s = dlr_of(r);
    quantiles_release(&s->table);
    prefix_release(&s->prefix);
}

static size_t dlr_memory(const struct route *r)
{
    return prefix_memory(&dlr_of(r)->prefix);
}

/* ---- thresholds ------------------------------------------------------------------------------ */

/* Share of the routed cells that inference runs; < 0: logits are compared with 0. */
static double capacity_of(const struct route *r)
{
    const struct dlr_opts *o = opts_of(r);
    if (r->pass.inference.has_capacity)
        return r->pass.inference.capacity;
    if (o->threshold == THRESHOLD_ZERO || !quantiles_known(&dlr_of(r)->table, (int)o->keep))
        return -1;
    return 1 - target_skip_of(r);
}

static double threshold_of(struct route *r, int l, int n)
{
    struct dlr *s = dlr_of(r);
    double capacity = capacity_of(r), tau = 0;
    if (r->pass.kind == PASS_TRAIN)
        return 0;
    if (r->pass.inference.calibrate)
        return quantiles_calibrate(&s->table, l, r->pass.inference.calibrate - 1, s->free_logit, n);
    if (capacity >= 0)
        tau =
            opts_of(r)->spread == SPREAD_LAYER ? quantiles_at(&s->table, l, capacity) : s->tau_use;
    double offset = opts_of(r)->threshold_offset + r->pass.inference.offset;
    return offset == 0 ? tau : tau + offset * quantiles_spread(&s->table, l);
}

/* ---- decisions ------------------------------------------------------------------------------- */

/* Epochs that are over before the current step. */
static double epochs_done(const struct route *r)
{
    double step = (double)r->pass.step, before = step > 1 ? (step - 1) / step : 0;
    return floor((double)opts_of(r)->tau_epochs * r->pass.progress * before + 1e-9 /* rounding */);
}

static void dlr_begin(struct route *r)
{
    const struct dlr_opts *o = opts_of(r);
    struct dlr *s = dlr_of(r);
    gates_begin(&s->gates, r->pass.R);
    s->nan = 0;
    s->tau = 1;
    s->read_at = (int)o->keep;
    s->has_logits = 0;
    for (int l = 0; l < r->L; l++)
        s->mean[l] = (double)NAN;
    if (r->pass.kind != PASS_TRAIN) {
        if (capacity_of(r) >= 0)
            s->tau_use = cut_common(&s->cut, &s->table, (int)o->keep, capacity_of(r));
        return;
    }
    s->tau = fmax(o->tau_min, o->tau_start * pow(o->tau_decay, epochs_done(r)));
    quantiles_begin(&s->table);
    memset(s->dlogit, 0, (size_t)r->pass.R * (size_t)s->routed * sizeof *s->dlogit);
}

/* Logistic: logit + noise > 0 with probability sigmoid(logit). */
static double noise_at(const struct route *r, int l, int i)
{
    if (r->pass.kind != PASS_TRAIN)
        return 0;
    double u = rng_at(r->pass.seed, RNG_ROUTE, (uint64_t)r->pass.step, (uint32_t)l,
                      route_place(&r->pass, prefix_owner(&dlr_of(r)->prefix, &r->pass, i)));
    return log(u + 1e-12) - log1p(1e-12 - u);
}

/* Collects the logits of layer l for the quantiles; prompt rows do not decide. */
static int gather_deciding(struct route *r, int l)
{
    struct dlr *s = dlr_of(r);
    int n = 0;
    for (int i = 0; i < r->pass.R; i++)
        if (!prefix_is_prompt(&s->prefix, &r->pass, i)) {
            s->free_logit[n] = logit_at(r, l, i);
            s->nan += isnan(s->free_logit[n++]) != 0;
        }
    s->table.always = r->pass.R - n;
    return n;
}

static void record_cells(struct route *r, int l, double tau)
{
    const struct dlr *s = dlr_of(r);
    for (int i = 0; i < r->pass.R; i++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)i;
        r->cell[M_GATE][cell] = s->gates.want[i];
        if (!is_routed(r, l) || prefix_is_prompt(&s->prefix, &r->pass, i))
            continue; /* nothing was compared */
        double logit = (double)logit_at(r, l, i);
        r->cell[M_SCORE][cell] = (real)logit;
        r->cell[M_CELL_TAU][cell] = (real)tau;
        if (!s->gates.forced[cell])
            r->cell[M_GATE][cell] = (real)sigmoid(logit - tau);
    }
}

static double mean_gate(const struct plan *p, int R)
{
    double sum = 0;
    for (int k = 0; k < p->n; k++)
        sum += (double)p->gate[k];
    return R > 0 ? sum / R : 0;
}

static void dlr_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct dlr *s = dlr_of(r);
    int R = r->pass.R, routed = is_routed(r, l), n = 0;
    if (routed && !s->has_logits) {
        s->read_at = l;
        s->has_logits = 1;
        prefix_fwd(&s->prefix, s->in, st->h[l], &r->pass);
        mlp_fwd(&s->net, s->logit, s->in, R);
    }
    if (routed)
        n = gather_deciding(r, l);
    double tau = routed ? threshold_of(r, l, n) : 0;
    for (int i = 0; i < R; i++) {
        int must_run = !routed || prefix_is_prompt(&s->prefix, &r->pass, i);
        real score = routed ? (real)((double)logit_at(r, l, i) + noise_at(r, l, i)) : 0;
        gates_decide(&s->gates, r, l, i, must_run, score, tau, s->tau);
    }
    out->kv = opts_of(r)->kv == 0 ? KV_ALL : KV_PLAN;
    gates_plan(&s->gates, r, l, out, r->pass.kind == PASS_SPARSE, 0);
    memcpy(s->ran + (size_t)l * (size_t)R, s->gates.want, (size_t)R);
    s->mean[l] = mean_gate(out, R);
    if (routed && r->pass.kind == PASS_TRAIN)
        quantiles_note(&s->table, l, s->free_logit, n);
    if (r->pass.record)
        record_cells(r, l, tau);
    gates_next(&s->gates, l, R);
}

/* A gradient check replays the router's input and the noise. */
static void dlr_regate(struct route *r, int l, struct plan *out)
{
    struct dlr *s = dlr_of(r);
    if (!is_routed(r, l))
        return;
    if (l == s->read_at)
        mlp_fwd(&s->net, s->logit, s->in, r->pass.R);
    for (int k = 0; k < out->n; k++) {
        int i = out->row[k];
        gates_rescore(&s->gates, r, l, out, k,
                      (real)((double)logit_at(r, l, i) + noise_at(r, l, i)), 0, s->tau);
    }
    s->mean[l] = mean_gate(out, r->pass.R);
}

/* ---- metrics --------------------------------------------------------------------------------- */

static void dlr_finish(struct route *r, const struct stream *st)
{
    struct dlr *s = dlr_of(r);
    int keep = (int)opts_of(r)->keep, M = s->routed, open = 0;
    double entropy = 0, variance = 0, active = 0, none = (double)NAN;
    (void)st;
    if (r->pass.kind != PASS_TRAIN)
        return; /* step metrics describe the training pass */
    for (int l = 0; l < keep; l++)
        r->metric[M_MEAN][l] = r->metric[M_LAYER_ENTROPY][l] = r->metric[M_PUSH][l] = (double)NAN;
    for (int l = 0; l < r->L; l++)
        active += isnan(s->mean[l]) ? 0 : s->mean[l];
    for (int l = keep; l < r->L; l++) {
        struct gate_stats g = {none, none, none};
        if (s->has_logits)
            g = gate_stats_of(s->logit + (l - keep), M, r->pass.R);
        open += !isnan(s->mean[l]);
        r->metric[M_MEAN][l] = g.mean;
        r->metric[M_LAYER_ENTROPY][l] = g.entropy;
        entropy += g.entropy / M;
        variance += g.variance / M;
    }
    struct layer_stats layers = layer_stats_of(s->mean + keep, M);
    r->metric[M_TAU][0] = s->tau;
    r->metric[M_SKIP][0] = open > 0 ? 1 - layers.mean : none;
    r->metric[M_ACTIVE][0] = active;
    r->metric[M_ENTROPY][0] = entropy;
    r->metric[M_GATE_VARIANCE][0] = variance;
    r->metric[M_USE_VARIANCE][0] = open > 0 ? layers.variance : none;
    r->metric[M_COLLAPSED][0] = open > 0 ? gate_alarms(&layers, entropy) : none;
    r->metric[M_NAN][0] = s->nan;
}

/* ---- losses and gradients -------------------------------------------------------------------- */

/* Reward of row i: - (nll + sum_l price_l hard_l), with the penalty's price per executed cell. */
static double reward_of(const struct route *r, const struct losses *x, int i)
{
    const struct dlr *s = dlr_of(r);
    double reward = -(double)x->nll[i];
    for (int l = (int)opts_of(r)->keep; l < r->L; l++)
        reward -= s->price[l] * s->ran[(size_t)l * (size_t)x->R + (size_t)i];
    return reward;
}

static void set_rewards(struct route *r, const struct losses *x)
{
    struct dlr *s = dlr_of(r);
    for (int i = 0; i < x->R; i++)
        s->reward[i] = reward_of(r, x, i);
    reinforce_note(&s->reinforce, s->reward, x);
    r->metric[M_REWARD][0] = s->reinforce.mean;
}

struct layer_penalty {
    double lambda, low, high, mu, target, beta;
    double gate, miss, total; /* out: first term, second term, total; nats */
};

/* The slope of the entropy is infinite at 0 and 1. */
static double clamped(double m)
{
    return fmin(fmax(m, 1e-6), 1 - 1e-6);
}

/* The depth penalty on mean gates m (n), of which those that are NaN do not count, with weights
 * linear from `low` at the first layer to `high` at the last.  price (n): d total / d m_l. */
static void layer_penalty(struct layer_penalty *x, const double *mean, double *price, int n)
{
    double run = 0, open = 0;
    for (int l = 0; l < n; l++)
        open += !isnan(mean[l]);
    for (int l = 0; l < n; l++)
        run += isnan(mean[l]) ? 0 : mean[l] / open;
    double miss = open > 0 ? (1 - run) - x->target : 0;
    x->gate = 0;
    x->miss = x->mu * miss * miss;
    x->total = x->miss;
    for (int l = 0; l < n; l++) {
        price[l] = 0;
        if (isnan(mean[l]))
            continue;
        double weight = n < 2 ? x->high : x->low + (x->high - x->low) * l / (n - 1);
        double m = clamped(mean[l]);
        x->gate += x->lambda * weight * mean[l];
        x->total -= x->beta * gate_entropy(m) / open;
        price[l] = x->lambda * weight - 2 * x->mu * miss / open + x->beta * log(m / (1 - m)) / open;
    }
    x->total += x->gate;
}

static void dlr_aux(struct route *r, struct losses *x)
{
    const struct dlr_opts *o = opts_of(r);
    struct dlr *s = dlr_of(r);
    int flat = o->prices == PRICES_FLAT, keep = (int)o->keep;
    struct layer_penalty p = {.lambda = o->lambda,
                              .low = flat ? 1 : o->price_low,
                              .high = flat ? 1 : o->price_high,
                              .mu = o->mu,
                              .target = target_skip_of(r),
                              .beta = o->entropy_beta};
    layer_penalty(&p, s->mean + keep, s->price + keep, s->routed);
    r->metric[M_GATE_LOSS][0] = p.gate;
    r->metric[M_TARGET_LOSS][0] = p.miss;
    x->aux = p.total;
    if (o->estimator == ESTIMATOR_REINFORCE)
        set_rewards(r, x);
}

/* d loss / d logit of the unforced cell (l, i); dgate is d loss / d gate. */
static double logit_grad(const struct route *r, int l, int i, double dgate)
{
    const struct dlr *s = dlr_of(r);
    size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)i;
    if (opts_of(r)->estimator == ESTIMATOR_REINFORCE)
        return reinforce_grad(&s->reinforce, i, s->ran[cell], sigmoid((double)logit_at(r, l, i)));
    double y = (double)s->gates.soft[cell];
    return (dgate + s->price[l] / r->pass.R) * y * (1 - y) / s->tau;
}

/* Called once all layers' logit gradients are known: backward through the network and, when
 * attached, into its input. */
static void router_bwd(struct route *r, struct stream *st)
{
    struct dlr *s = dlr_of(r);
    int R = r->pass.R;
    if (s->din)
        memset(s->din, 0, (size_t)R * (size_t)r->C * sizeof *s->din);
    mlp_bwd(&s->net, s->din, s->dlogit, s->in, R);
    if (s->din)
        prefix_bwd(&s->prefix, st->dh[s->read_at], s->din, &r->pass);
}

static void dlr_decide_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                           struct stream *st)
{
    struct dlr *s = dlr_of(r);
    int keep = (int)opts_of(r)->keep, R = r->pass.R, next = 0;
    double push = 0;
    if (!is_routed(r, l) || opts_of(r)->estimator == ESTIMATOR_NONE)
        return;
    for (int i = 0; i < R; i++) {
        int is_listed = next < p->n && p->row[next] == i;
        double dg = is_listed ? (double)dgate[next] : 0;
        int forced = s->gates.forced[(size_t)l * (size_t)R + (size_t)i];
        double d = forced ? 0 : logit_grad(r, l, i, dg);
        next += is_listed;
        s->dlogit[(size_t)i * (size_t)s->routed + (size_t)(l - keep)] = (real)d;
        push += d;
    }
    r->metric[M_PUSH][l] = push;
    if (l == s->read_at)
        router_bwd(r, st);
}

static void dlr_counts(struct route *r, route_count_fn *each, void *ctx)
{
    quantiles_counts(&dlr_of(r)->table, each, ctx);
    each(ctx, &dlr_of(r)->reinforce.mean, 1, 1);
}

static void dlr_update(struct route *r)
{
    struct dlr *s = dlr_of(r);
    quantiles_update(&s->table, opts_of(r)->ema);
    if (opts_of(r)->estimator == ESTIMATOR_REINFORCE)
        reinforce_update(&s->reinforce, opts_of(r)->ema);
    r->params->version++; /* so that the common threshold is recomputed */
}

/* ---- between passes -------------------------------------------------------------------------- */

static int dlr_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    int inside = pass->inference.has_capacity && pass->inference.capacity > 0 &&
                 pass->inference.capacity < 1;
    if (inside && !pass->inference.calibrate &&
        !quantiles_known(&dlr_of(r)->table, (int)opts_of(r)->keep))
        return err_set(e, DS_EUSAGE,
                       "capacity=%g: the router has no logit quantiles yet; run depthscope "
                       "calibrate MODEL, or ask for 0 or 1",
                       pass->inference.capacity);
    return 0;
}

static int dlr_calibrate(struct route *r, int begin, struct err *e)
{
    struct quantiles *q = &dlr_of(r)->table;
    (void)e;
    (begin ? quantiles_begin : quantiles_store)(q);
    r->params->version++;
    return 0;
}

/* All decisions are made at one layer. */
static double dlr_flops(const struct route *r, int l)
{
    const struct dlr *s = dlr_of(r);
    return l == s->read_at ? mlp_flops(&s->net) + prefix_flops(&s->prefix) : 0;
}

const struct route_ops route_dlr = {
    .name = "dlr",
    .summary = "dynamic layer routing: one router decides all later layers",
    .paper = "Dynamic Layer Routing (2026)",
    .flags = ROUTE_GATED | ROUTE_STE | ROUTE_GRAD | ROUTE_CAPACITY,
    .opts_size = sizeof(struct dlr_opts),
    .state_size = sizeof(struct dlr),
    .opts = dlr_opts_table,
    .n_opts = DS_LEN(dlr_opts_table),
    .metrics = dlr_metrics,
    .n_metrics = DS_LEN(dlr_metrics),
    .init = dlr_init,
    .layout = dlr_layout,
    .begin = dlr_begin,
    .decide = dlr_decide,
    .regate = dlr_regate,
    .finish = dlr_finish,
    .aux = dlr_aux,
    .decide_bwd = dlr_decide_bwd,
    .counts = dlr_counts,
    .update = dlr_update,
    .changed = check,
    .memory = dlr_memory,
    .ready = dlr_ready,
    .calibrate = dlr_calibrate,
    .flops = dlr_flops,
    .always_on = dlr_always_on,
    .release = dlr_release,
};
