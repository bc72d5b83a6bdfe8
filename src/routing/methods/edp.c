/* edp: Elastic-Depth Pretraining.  A token runs a block when its own recent motion through the
 * layers is above the block's threshold; otherwise the block passes it on unchanged.
 *
 *   z = signal of the executed blocks so far, standardised per layer
 *   p = sigmoid((z - tau_l) / T)
 *   g = 1 if always on, fewer than min_runs blocks executed, or max_skip in a row; else [z > tau_l]
 *
 * The gate's value is hard, its gradient that of p (straight-through).  T is the bandwidth of the
 * kernel that estimates
 *
 *   d/dtau E[L] = - density(tau) * E[L_run - L_skip | z = tau]
 *
 * history=literal is the published rule, kept to show its limit cycle.
 *
 * signal=regret: z is the standardised prediction of what skipping this block costs the token,
 *
 * by a small network that reads the five motion features, the layer and the executed share, fitted
 * by least squares; no other gradient reaches it.  Two labels, in nats, clamped to [-2, 5]:
 *
 *   exit       loss of the logits before this block - loss of the last ones, for this token
 *   gradient   - N dloss / dg at the gate that was drawn, N tokens in the mean loss, weighted by
 *              1 / (2 P(g)): their mean is half the slope at g = 0 plus half that at 1, the
 *              trapezoid rule, exact where the loss is quadratic in g.  (The slope at 1 alone says
 *              nothing: the block's own weights bring its mean to 0.)  Only while gates are drawn
 *              (noise).
 *
 * spread=common standardises over all gated layers together and compares with one threshold, so
 * that layers share the budget; persist carries a token's score over the layers:
 *
 *   z_l <- persist z_{l-1} + (1 - persist) z_l */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "routing/budget.h"
#include "routing/gates.h"
#include "routing/mlp.h"
#include "routing/penalty.h"
#include "routing/route.h"
#include "routing/signal.h"
#include "routing/standard.h"
#include "routing/stepcode.h"

enum { SIGNAL_VELOCITY, SIGNAL_SPEED, SIGNAL_VECTOR, SIGNAL_LEARNED, SIGNAL_REGRET };
enum { HISTORY_KEPT, HISTORY_LITERAL };
enum { THRESHOLD_LEARNED, THRESHOLD_FIXED, THRESHOLD_QUANTILE };
enum { TRAIN_MASKED, TRAIN_SPARSE };
enum { SPREAD_LAYER, SPREAD_COMMON };
enum { LABEL_EXIT, LABEL_GRADIENT };
enum { LITERAL_BUCKETS = 64 };
/* Inputs of the regret network: motion, layer, executed share of the layers before. */
enum { REGRET_LAYER = FEATURES, REGRET_RUNS, REGRET_INPUTS };
static const double tau_low = 0.01, tau_high = 1.0, offset_bound = 20;
static const double regret_low = -2, regret_high = 5;
static const double regret_sd = 1e-3; /* nats; predictions closer than this are equal */
static const double least_chance = 0.05;

struct edp_opts {
    int64_t early, late, max_skip, min_runs, hidden;
    int signal, label, history, threshold, spread, step_code, penalty, budget, kv, train, attach;
    double initial_threshold, temperature, target_ratio, threshold_offset, lambda_sparsity,
        sparsity_warmup;
    double lambda_budget, budget_rate, anneal, probe_rate, ema, noise, noise_until, persist,
        regret_lr;
    char *ablation;
};

struct edp {
    struct signal sig;
    int gated;               /* M: gated layers */
    int tau, weight, budget; /* params */
    struct standardizer std;
    struct stepcode code;
    struct gates gates;
    double *depth;    /* (R) executed layers; soft: sum of gates */
    real *price;      /* (R) d aux / d gate, equal for all gates of a row */
    real *sorted;     /* (R), or (L,R) with spread=common */
    double *quantile; /* (L) of this step */
    double ratio;     /* executed cells / all cells of this step */
    uint8_t *scored;  /* (L,R) the score was compared, or could have been */
    double *carry;    /* (R) d loss / d score of the layer after */
    /* signal=regret */
    struct mlp net;              /* REGRET_INPUTS -> hidden -> 1 */
    struct standardizer fit_std; /* of predictions */
    real *in, *fit, *dfit;       /* (L,R,REGRET_INPUTS), (L,R) nats, (R) */
    real *label;                 /* (L,R) nats, regret=exit; NaN: none */
    double rows;                 /* that the loss is divided by */
    struct fit {
        double n, error, x, xx, y, yy, xy;
    } quality; /* predictions x against labels y of this step */
};

#define AT(field) offsetof(struct edp_opts, field)
static const struct opt edp_opts_table[] = {
    // clang-format off
    {"early", OPT_INT, AT(early), "1", 0, 4096, NULL,
     "first layers that every token runs", "early_layers"},
    {"late", OPT_INT, AT(late), "1", 0, 4096, NULL,
     "last layers that every token runs", "late_layers"},
    {"signal", OPT_ENUM, AT(signal), "learned", 0, 0, "velocity|speed|vector|learned|regret",
     "first difference; second difference (scalar); vector second difference; that plus a learned "
     "linear map of all five; the loss of skipping, predicted by a network from all five"},
    {"history", OPT_ENUM, AT(history), "kept", 0, 0, "kept|literal",
     "velocities of executed blocks, kept through skips; or the published rule",
     .former = "held=kept"},
    {"threshold", OPT_ENUM, AT(threshold), "quantile", 0, 0, "learned|fixed|quantile",
     "per layer: learned straight-through; constant; following the quantile that meets the target"},
    {"initial_threshold", OPT_REAL, AT(initial_threshold), "0.1", -20, 20, NULL,
     "in standard deviations of the signal (history=literal: raw)"},
    {"spread", OPT_ENUM, AT(spread), "layer", 0, 0, "layer|common",
     "each layer has its own threshold and standardisation; or one of each for all gated layers, "
     "which then share the budget"},
    {"persist", OPT_REAL, AT(persist), "0", 0, 0.999, NULL,
     "share of a token's score that is carried over from the layer before"},
    {"regret", OPT_ENUM, AT(label), "exit", 0, 0, "exit|gradient",
     "signal=regret, its label: the loss of stopping here less that of the whole pass, from the "
     "head at every layer; or the gates' own gradients"},
    {"hidden", OPT_INT, AT(hidden), "16", 1, 4096, NULL, "signal=regret: hidden units"},
    {"regret_lr", OPT_REAL, AT(regret_lr), "0.1", 0, 100, NULL,
     "signal=regret: factor on the routers' learning rate"},
    {"temperature", OPT_REAL, AT(temperature), "0.5", 1e-3, 100, NULL,
     "bandwidth of the soft gate, in units of the signal"},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -20, 20, NULL,
     "added to every threshold (what-if)", .is_live = 1},
    {"step_code", OPT_ENUM, AT(step_code), "landing", 0, 0, STEPCODE_CHOICES,
     "vector added where a token runs again after skips; at every gated layer by skipped FLOPs; by "
     "layer; none"},
    {"max_skip", OPT_INT, AT(max_skip), "4", 0, 4096, NULL,
     "a cell is forced after this many consecutive skips; 0: never", "max_skip_layers"},
    {"min_runs", OPT_INT, AT(min_runs), "2", 1, 4096, NULL,
     "history=kept: a token's first blocks, which it always runs; velocity is known after 1, its "
     "changes after 2"},
    {"penalty", OPT_ENUM, AT(penalty), "off", 0, 0, PENALTY_CHOICES,
     "depth penalty: mean (D/N)^2; mean (1-H) D/N with H detached; mean 4u(1-u)"},
    {"lambda_sparsity", OPT_REAL, AT(lambda_sparsity), "0.1", 0, 1000, NULL,
     "weight of the penalty", "lambda_sparsity"},
    {"sparsity_warmup", OPT_REAL, AT(sparsity_warmup), "0.2", 0, 1, NULL,
     "share of the run over which the penalty rises to its weight", "sparsity_warmup_fraction"},
    {"budget", OPT_ENUM, AT(budget), "offset", 0, 0, BUDGET_CHOICES,
     "integral control of a common threshold offset; dual variable in the loss; |ratio - target| "
     "in the loss; none"},
    {"target_ratio", OPT_REAL, AT(target_ratio), "0.6", 0, 1, NULL,
     "whole-block ratio: executed cells / all cells, including always-on layers",
     "target_compute_ratio target_ratio", .is_live = 1},
    {"lambda_budget", OPT_REAL, AT(lambda_budget), "0.05", 0, 1000, NULL,
     "weight of budget=loss; bound of budget=dual", "lambda_budget"},
    {"budget_rate", OPT_REAL, AT(budget_rate), "0.5", 0, 100, NULL,
     "gain of the controller per step"},
    {"anneal", OPT_REAL, AT(anneal), "0.1", 0, 1, NULL,
     "share of the run over which the target falls from 1 to target_ratio"},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "skipped tokens write keys and values too, or only executed tokens are keys"},
    {"train", OPT_ENUM, AT(train), "masked", 0, 0, "masked|sparse",
     "all rows are computed with gates 0/1 (no saving in training); or only executed rows, plus "
     "probes"},
    {"probe_rate", OPT_REAL, AT(probe_rate), "0.1", 0, 1, NULL,
     "train=sparse: probability that a skipped row is computed for its gate's gradient (weight "
     "1/rate)"},
    {"attach", OPT_BOOL, AT(attach), "false", 0, 0, NULL,
     "gate gradients also flow into the states that the signal reads"},
    {"ema", OPT_REAL, AT(ema), "0.95", 0, 0.99999, NULL,
     "decay of running means, deviations and quantiles"},
    {"noise", OPT_REAL, AT(noise), "1", 0, 100, NULL,
     "logistic noise on the score in training, in temperatures: at 1 the gate is a draw from its "
     "soft value, so every layer keeps seeing every kind of token"},
    {"noise_until", OPT_REAL, AT(noise_until), "0.7", 0, 1, NULL,
     "share of the run over which the noise falls to 0; inference has none"},
    {"ablation", OPT_STRING, AT(ablation), "", 0, 0, NULL,
     "label of an ablation, for tables and figures"},
    // clang-format on
};

enum {
    M_TARGET,
    M_OFFSET,
    M_MU,
    M_CODES,
    M_REGRET,
    M_REGRET_R,
    M_THRESHOLD,
    M_MEAN,
    M_SD,
    M_FORCED,
    M_PUSH,
    M_SCORE,
    M_CELL_TAU,
    M_GATE,
    M_V,
    M_S,
    M_A,
    M_CELL_FORCED,
};
static const struct metric edp_metrics[] = {
    // clang-format off
    [M_TARGET] = {"target_ratio", "", "current target of the whole-block ratio", METRIC_STEP},
    [M_OFFSET] = {"budget_offset", "sd", "common threshold offset of the controller", METRIC_STEP},
    [M_MU] = {"budget_dual", "nats", "dual variable of the budget", METRIC_STEP},
    [M_CODES] = {"codes_used", "", "rows of the step-code table used in this step", METRIC_STEP},
    [M_REGRET] = {"regret_error", "nats",
     "root mean squared error of the predicted regret", METRIC_STEP},
    [M_REGRET_R] = {"regret_r", "", "correlation of predicted and measured regret", METRIC_STEP},
    [M_THRESHOLD] = {"threshold", "sd", "threshold that scores are compared with, offset included", METRIC_LAYER},
    [M_MEAN] = {"signal_mean", "", "running mean of the signal", METRIC_LAYER},
    [M_SD] = {"signal_sd", "", "running standard deviation of the signal", METRIC_LAYER},
    [M_FORCED] = {"forced_rate", "", "share of rows that were forced to run", METRIC_LAYER},
    [M_PUSH] = {"threshold_grad", "", "gradient of the threshold", METRIC_LAYER},
    [M_SCORE] = {"score", "sd", "standardised signal that the gate compares", METRIC_CELL},
    [M_CELL_TAU] = {"threshold", "sd", "threshold that the score is compared with", METRIC_CELL},
    [M_GATE] = {"gate", "",
     "soft gate sigmoid((score - threshold) / T); 0 or 1 in a forced cell", METRIC_CELL},
    [M_V] = {"velocity", "", "relative size of the last executed increment", METRIC_CELL},
    [M_S] = {"speed_change", "",
     "change of velocity between the last two executed blocks", METRIC_CELL},
    [M_A] = {"acceleration", "", "relative size of the change of increment", METRIC_CELL},
    [M_CELL_FORCED] = {"forced", "", "1 = the score did not decide", METRIC_CELL},
    // clang-format on
};

static struct edp *edp_of(const struct route *r)
{
    return r->state;
}

static const struct edp_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int edp_always_on(const struct route *r, int l)
{
    const struct edp_opts *o = opts_of(r);
    return l < o->early || l >= r->L - o->late;
}

static real *value_of(const struct route *r, int index)
{
    return r->params->p[index].value;
}

static int is_literal(const struct route *r)
{
    return opts_of(r)->history == HISTORY_LITERAL;
}

static int is_regret(const struct route *r)
{
    return opts_of(r)->signal == SIGNAL_REGRET;
}

/* Does the rule force a block after `runs` executed ones and `in_row` skips? */
static int is_due(const struct route *r, int runs, int in_row)
{
    const struct edp_opts *o = opts_of(r);
    return !is_literal(r) && (runs < o->min_runs || (o->max_skip > 0 && in_row >= o->max_skip));
}

/* Minimum number of layers per token: always-on layers and those that the rule forces. */
static int least_depth(const struct route *r)
{
    int runs = 0, in_row = 0;
    for (int l = 0; l < r->L; l++) {
        int forced = is_due(r, runs, in_row);
        int run = edp_always_on(r, l) || forced;
        runs += run;
        in_row = run ? 0 : in_row + 1;
    }
    return runs;
}

static int check(struct route *r, struct err *e)
{
    const struct edp_opts *o = opts_of(r);
    if (o->early + o->late >= r->L)
        return err_set(e, DS_ERANGE,
                       "edp.early=%lld and edp.late=%lld leave no gated layer of model.layers=%d",
                       (long long)o->early, (long long)o->late, r->L);
    if (o->attach && (is_literal(r) || o->step_code == STEPCODE_EVERY ||
                      o->step_code == STEPCODE_STATIC || o->signal >= SIGNAL_LEARNED))
        return err_set(e, DS_EUSAGE,
                       "edp.attach=true needs edp.history=kept, edp.step_code=landing or off, and "
                       "edp.signal=velocity, speed or vector");
    if (o->attach && o->min_runs < 2 && o->signal != SIGNAL_VELOCITY)
        return err_set(e, DS_EUSAGE,
                       "edp.attach=true with edp.min_runs=1: expected edp.signal=velocity; its "
                       "changes need two blocks");
    if (is_literal(r) && (is_regret(r) || o->spread == SPREAD_COMMON || o->persist > 0))
        return err_set(e, DS_EUSAGE,
                       "edp.history=literal is the published rule: expected edp.signal=velocity, "
                       "speed, vector or learned, edp.spread=layer and edp.persist=0");
    if (o->spread == SPREAD_COMMON && o->threshold == THRESHOLD_LEARNED)
        return err_set(e, DS_EUSAGE,
                       "edp.spread=common: expected edp.threshold=quantile or fixed; the budget "
                       "alone sets a single threshold");
    if (is_regret(r) && o->label == LABEL_EXIT && r->loop.end < r->L)
        return err_set(
            e, DS_EUSAGE,
            "edp.regret=exit: unsupported with model.loop_last, whose blocks change what "
            "an exit predicts; expected edp.regret=gradient");
    if (is_regret(r) && o->label == LABEL_GRADIENT && (o->noise <= 0 || o->noise_until <= 0))
        return err_set(
            e, DS_EUSAGE,
            "edp.regret=gradient: edp.noise and edp.noise_until must be greater than 0, as "
            "only drawn gates measure regret");
    if (o->train == TRAIN_SPARSE && o->threshold == THRESHOLD_LEARNED && o->probe_rate <= 0)
        return err_set(
            e, DS_ERANGE,
            "edp.probe_rate=%g: must be greater than 0 with edp.train=sparse and learned "
            "thresholds, as a skipped row has no other gradient",
            o->probe_rate);
    /* Without a controller nothing enforces the target; history=literal then shows what its rule
     * does. */
    return o->budget == BUDGET_OFF
               ? 0
               : route_check_target(o->target_ratio, least_depth(r), r->L, "edp.target_ratio", e);
}

static double initial_tau(const struct route *r)
{
    const struct edp_opts *o = opts_of(r);
    if (!is_literal(r) || o->threshold != THRESHOLD_LEARNED)
        return o->initial_threshold;
    double u = (o->initial_threshold - tau_low) / (tau_high - tau_low);
    u = u < 1e-4 ? 1e-4 : u > 1 - 1e-4 ? 1 - 1e-4 : u;
    return log(u / (1 - u));
}

static int init_regret(struct route *r, struct err *e)
{
    struct edp *s = edp_of(r);
    struct mlp_shape shape = {
        .n = 2, .dim = {REGRET_INPUTS, (int)opts_of(r)->hidden, 1}, .act = MLP_ACT_GELU, .bias = 1};
    int rc = mlp_init(&s->net, r->params, "edp.regret", &shape, e);
    r->wants_exits = opts_of(r)->label == LABEL_EXIT;
    for (int k = 0; k < s->net.n && rc == 0; k++)
        r->params->p[s->net.w[k]].lr = r->params->p[s->net.b[k]].lr = opts_of(r)->regret_lr;
    return rc < 0 ? rc : standardizer_init(&s->fit_std, r->params, "edp.regret", r->L, 1, e);
}

static int edp_init(struct route *r, struct err *e)
{
    const struct edp_opts *o = opts_of(r);
    struct edp *s = edp_of(r);
    struct params *ps = r->params;
    int rc = check(r, e);
    if (rc < 0)
        return rc;
    s->gated = r->L - (int)(o->early + o->late);
    s->tau = params_add(ps, "edp.threshold", r->L, 0, PARAM_ROUTER, INIT_CONST, initial_tau(r));
    if (s->tau >= 0)
        ps->p[s->tau].train = o->threshold == THRESHOLD_LEARNED;
    s->weight = -1;
    if (o->signal == SIGNAL_LEARNED)
        s->weight = params_add(ps, "edp.score.weight", r->L, FEATURES, PARAM_ROUTER, INIT_ZERO, 0);
    struct stepcode_shape codes = {.kind = (enum stepcode_kind)o->step_code,
                                   .L = r->L,
                                   .C = r->C,
                                   .gated = s->gated,
                                   .buckets = is_literal(r) ? LITERAL_BUCKETS : 0};
    rc = stepcode_init(&s->code, ps, "edp.step_codes", &codes, e);
    if (rc < 0)
        return rc;
    s->budget = params_add(ps, "edp.budget", 2, 0, PARAM_ROUTER, INIT_ZERO, 0); /* offset; dual */
    if (s->budget < 0)
        return err_set(e, DS_EMEM, "parameters of edp");
    ps->p[s->budget].train = 0;
    rc = standardizer_init(&s->std, ps, "edp", r->L, FEATURES, e);
    return rc == 0 && is_regret(r) ? init_regret(r, e) : rc;
}

static void edp_layout(struct route *r, struct arena *a, int R)
{
    struct edp *s = edp_of(r);
    s->depth = arena_zalloc(a, (size_t)R, sizeof *s->depth);
    s->price = arena_zalloc(a, (size_t)R, sizeof *s->price);
    size_t cells = (size_t)R * (size_t)r->L;
    s->sorted =
        arena_zalloc(a, opts_of(r)->spread == SPREAD_COMMON ? cells : (size_t)R, sizeof *s->sorted);
    s->quantile = arena_zalloc(a, (size_t)r->L, sizeof *s->quantile);
    s->scored = arena_zalloc(a, cells, 1);
    s->carry = arena_zalloc(a, (size_t)R, sizeof *s->carry);
    if (is_regret(r)) {
        s->in = arena_zalloc(a, cells * REGRET_INPUTS, sizeof *s->in);
        s->fit = arena_zalloc(a, cells, sizeof *s->fit);
        s->dfit = arena_zalloc(a, (size_t)R, sizeof *s->dfit);
        s->label = arena_zalloc(a, cells, sizeof *s->label);
        mlp_layout(&s->net, a, R);
    }
    gates_layout(&s->gates, a, R, r->L);
    stepcode_layout(&s->code, a, R);
    signal_layout(&s->sig, a, R, r->C, r->L, is_literal(r));
}

static void edp_release(struct route *r)
{
    struct edp *s = edp_of(r);
    standardizer_release(&s->std);
    standardizer_release(&s->fit_std);
}

static void edp_begin(struct route *r)
{
    struct edp *s = edp_of(r);
    signal_begin(&s->sig, r->pass.R);
    gates_begin(&s->gates, r->pass.R);
    stepcode_begin(&s->code, r->pass.R);
    memset(s->scored, 0, (size_t)r->L * (size_t)r->pass.R); /* layers may be closed */
    if (r->pass.kind != PASS_TRAIN)
        return;
    for (int l = 0; l < r->L; l++)
        s->quantile[l] = (double)NAN;
    standardizer_begin(&s->std);
    if (is_regret(r))
        standardizer_begin(&s->fit_std);
    if (opts_of(r)->noise_until > 0)
        s->gates.noise =
            opts_of(r)->noise * fmax(0, 1 - r->pass.progress / opts_of(r)->noise_until);
}

/* Current threshold of layer l, in units of z. */
static double tau_of(const struct route *r, int l)
{
    const struct edp_opts *o = opts_of(r);
    const struct edp *s = edp_of(r);
    double tau = (double)value_of(r, s->tau)[l],
           shift = o->threshold_offset + r->pass.inference.offset;
    if (is_literal(r) && o->threshold == THRESHOLD_LEARNED)
        tau = tau_low + (tau_high - tau_low) / (1 + exp(-tau));
    if (o->budget == BUDGET_OFFSET)
        shift += (double)value_of(r, s->budget)[0];
    return tau + shift;
}

/* Statistics that scores of layer l are standardised with.  In a first training step those of the
 * gated layers so far stand in for all of them. */
static struct standard statistics(const struct route *r, const struct standardizer *std, int l)
{
    const struct edp_opts *o = opts_of(r);
    int fresh = r->pass.kind == PASS_TRAIN;
    if (o->spread == SPREAD_LAYER)
        return standardizer_at(std, l, fresh);
    return standardizer_over(std, (int)o->early, r->L - (int)o->late, l, fresh);
}

/* The literal rule compares raw signals. */
static struct standard standard_of(const struct route *r, int l)
{
    struct standard t = statistics(r, &edp_of(r)->std, l);
    for (int k = 0; is_literal(r) && k < FEATURES; k++) {
        t.mean[k] = 0;
        t.inv[k] = 1;
    }
    return t;
}

static int base_feature(const struct route *r)
{
    static const int feature[] = {FEATURE_VELOCITY, FEATURE_SPEED, FEATURE_ACCELERATION,
                                  FEATURE_ACCELERATION, 0 /* the prediction */};
    return feature[opts_of(r)->signal];
}

/* Is the score of a row in layer l made of enough executed blocks? */
static int is_scored(const struct route *r, int l, int row)
{
    return l >= 0 && edp_of(r)->scored[(size_t)l * (size_t)r->pass.R + (size_t)row];
}

/* z of one layer. */
static real fresh_score(const struct route *r, int l, int row, const struct standard *t)
{
    const struct edp *s = edp_of(r);
    if (is_regret(r))
        return (s->fit[(size_t)l * (size_t)r->pass.R + (size_t)row] - t->mean[0]) * t->inv[0];
    const real *f = signal_at(&s->sig, l, r->pass.R, row);
    int base = base_feature(r);
    real z = (f[base] - t->mean[base]) * t->inv[base];
    if (s->weight >= 0)
        for (int k = 0; k < FEATURES; k++)
            z += value_of(r, s->weight)[l * FEATURES + k] * (f[k] - t->mean[k]) * t->inv[k];
    return z;
}

/* The compared score: z, with what persists of the layer before. */
static real score_of(const struct route *r, int l, int row, const struct standard *t)
{
    real z = fresh_score(r, l, row, t), persist = (real)opts_of(r)->persist;
    if (persist <= 0 || !is_scored(r, l - 1, row))
        return z;
    size_t before = (size_t)(l - 1) * (size_t)r->pass.R + (size_t)row;
    return persist * edp_of(r)->gates.score[before] + (1 - persist) * z;
}

/* Inputs of the regret network for layer l. */
static void describe(struct route *r, int l)
{
    struct edp *s = edp_of(r);
    struct standard t = standard_of(r, l);
    for (int i = 0; i < r->pass.R; i++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)i;
        const real *f = signal_at(&s->sig, l, r->pass.R, i);
        real *in = s->in + cell * REGRET_INPUTS;
        for (int k = 0; k < FEATURES; k++)
            in[k] = (f[k] - t.mean[k]) * t.inv[k];
        in[REGRET_LAYER] = (real)(r->L > 1 ? 2.0 * l / (r->L - 1) - 1 : 0);
        in[REGRET_RUNS] = (real)(l > 0 ? 2.0 * s->sig.runs[i] / l - 1 : 1);
    }
}

/* Statistics of predictions that scores of layer l are standardised with. */
static struct standard regret_standard(const struct route *r, int l)
{
    struct standard t = statistics(r, &edp_of(r)->fit_std, l);
    t.inv[0] = t.inv[0] < 1 / (real)regret_sd ? t.inv[0] : 1 / (real)regret_sd;
    return t;
}

/* Predicts the regret of skipping layer l. */
static struct standard predict(struct route *r, int l, int is_counted)
{
    struct edp *s = edp_of(r);
    size_t base = (size_t)l * (size_t)r->pass.R;
    mlp_fwd(&s->net, s->fit + base, s->in + base * REGRET_INPUTS, r->pass.R);
    for (int i = 0; i < r->pass.R && is_counted; i++)
        if (is_scored(r, l, i))
            standardizer_add(&s->fit_std, l, s->fit + base + (size_t)i);
    return regret_standard(r, l);
}

static void count_features(struct route *r, int l)
{
    struct edp *s = edp_of(r);
    for (int i = 0; i < r->pass.R; i++)
        if (is_literal(r) || s->sig.runs[i] >= opts_of(r)->min_runs)
            standardizer_add(&s->std, l, signal_at(&s->sig, l, r->pass.R, i));
}

/* Must this row run whatever its signal? */
static int must_run(const struct route *r, int l, int i)
{
    const struct edp *s = edp_of(r);
    return edp_always_on(r, l) || is_due(r, s->sig.runs[i], s->gates.in_row[i]);
}

static void decide_row(struct route *r, int l, int i, double tau, const struct standard *t)
{
    struct edp *s = edp_of(r);
    gates_decide(&s->gates, r, l, i, must_run(r, l, i), score_of(r, l, i, t), tau,
                 opts_of(r)->temperature);
    stepcode_choose(&s->code, l, r->pass.R, i, s->gates.want[i], !edp_always_on(r, l),
                    s->gates.skipped[i], s->gates.in_row[i]);
}

static void record_cells(struct route *r, int l, double tau)
{
    const struct edp *s = edp_of(r);
    for (int i = 0; i < r->pass.R; i++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)i;
        const real *f = signal_at(&s->sig, l, r->pass.R, i);
        r->cell[M_V][cell] = f[FEATURE_VELOCITY];
        r->cell[M_S][cell] = f[FEATURE_SPEED];
        r->cell[M_A][cell] = f[FEATURE_ACCELERATION];
        r->cell[M_CELL_FORCED][cell] = s->gates.forced[cell];
        r->cell[M_GATE][cell] = s->gates.forced[cell] ? s->gates.want[i] : s->gates.soft[cell];
        if (edp_always_on(r, l) || (!is_literal(r) && s->sig.runs[i] < opts_of(r)->min_runs))
            continue; /* nothing was compared */
        r->cell[M_SCORE][cell] = s->gates.score[cell];
        r->cell[M_CELL_TAU][cell] = (real)tau;
    }
}

static void make_plan(struct route *r, int l, struct plan *out)
{
    const struct edp_opts *o = opts_of(r);
    int sparse =
        r->pass.kind == PASS_TRAIN ? o->train == TRAIN_SPARSE : r->pass.kind == PASS_SPARSE;
    out->kv = o->kv == 0 ? KV_ALL : KV_PLAN;
    gates_plan(&edp_of(r)->gates, r, l, out, sparse, o->probe_rate);
}

static void layer_metrics(struct route *r, int l, double tau, const struct standard *t)
{
    const struct edp *s = edp_of(r);
    int R = r->pass.R, base = base_feature(r);
    double forced = 0;
    for (int i = 0; i < R; i++)
        forced += s->gates.forced[(size_t)l * (size_t)R + (size_t)i];
    r->metric[M_THRESHOLD][l] = edp_always_on(r, l) ? (double)NAN : tau;
    r->metric[M_MEAN][l] = (double)t->mean[base];
    r->metric[M_SD][l] = 1 / (double)t->inv[base];
    r->metric[M_FORCED][l] = forced / (R > 0 ? R : 1);
}

/* A gradient check replays the signals; only the gate's own parameters change it. */
static void edp_regate(struct route *r, int l, struct plan *out)
{
    struct edp *s = edp_of(r);
    struct standard t = is_regret(r) ? predict(r, l, 0) : standard_of(r, l);
    double tau = tau_of(r, l);
    for (int i = 0; i < r->pass.R; i++) /* of all rows, as scores persist */
        s->gates.score[(size_t)l * (size_t)r->pass.R + (size_t)i] = score_of(r, l, i, &t);
    for (int k = 0; k < out->n; k++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)out->row[k];
        gates_rescore(&s->gates, r, l, out, k, s->gates.score[cell], tau, opts_of(r)->temperature);
    }
}

/* The quantile of this layer's scores that would meet the target if no cell were forced; the budget
 * controller corrects for those. */
static double step_quantile(struct route *r, int l)
{
    const struct edp_opts *o = opts_of(r);
    struct edp *s = edp_of(r);
    size_t base = (size_t)l * (size_t)r->pass.R;
    int n = 0;
    for (int i = 0; i < r->pass.R; i++)
        if (!s->gates.forced[base + (size_t)i])
            s->sorted[n++] = s->gates.score[base + (size_t)i];
    double target = budget_target(o->target_ratio, r->pass.progress, o->anneal);
    double level = 1 - (target * r->L - (double)(o->early + o->late)) / s->gated;
    return (double)quantile_of(s->sorted, n, level < 0 ? 0 : level > 1 ? 1 : level);
}

/* The quantile over all open layers: executed cells beyond the forced ones that meet the target. */
static void common_quantile(struct route *r)
{
    const struct edp_opts *o = opts_of(r);
    struct edp *s = edp_of(r);
    size_t cells = (size_t)r->L * (size_t)r->pass.R;
    int n = 0;
    for (size_t cell = 0; cell < cells; cell++)
        if (s->scored[cell] && !s->gates.forced[cell])
            s->sorted[n++] = s->gates.score[cell];
    double open = (double)s->gates.layers * r->pass.R;
    double target = budget_target(o->target_ratio, r->pass.progress, o->anneal) * open;
    double level = n > 0 ? 1 - (target - (open - n)) / n : 0;
    double tau = (double)quantile_of(s->sorted, n, level < 0 ? 0 : level > 1 ? 1 : level);
    for (int l = 0; l < r->L; l++)
        s->quantile[l] = tau;
}

/* What the decision of layer l reads of every row. */
static void mark_scored(struct route *r, int l)
{
    struct edp *s = edp_of(r);
    uint8_t *scored = s->scored + (size_t)l * (size_t)r->pass.R;
    for (int i = 0; i < r->pass.R; i++)
        scored[i] = !edp_always_on(r, l) && s->sig.runs[i] >= opts_of(r)->min_runs;
}

/* After closed layers the last block that ran is the one before them. */
static void observe(struct route *r, int l, const struct stream *st)
{
    struct edp *s = edp_of(r);
    int before = l;
    while (before > 0 && !s->gates.open[before - 1])
        before--;
    if (before < l && !is_literal(r)) {
        signal_observe(&s->sig, before, s->gates.ran, st);
        memset(s->gates.ran, 0, (size_t)r->pass.R);
    }
    signal_observe(&s->sig, l, s->gates.ran, st);
}

static void edp_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct edp *s = edp_of(r);
    observe(r, l, st);
    mark_scored(r, l);
    if (r->pass.kind == PASS_TRAIN)
        count_features(r, l);
    if (is_regret(r))
        describe(r, l);
    struct standard t =
        is_regret(r) ? predict(r, l, r->pass.kind == PASS_TRAIN) : standard_of(r, l);
    double tau = tau_of(r, l);
    for (int i = 0; i < r->pass.R; i++)
        decide_row(r, l, i, tau, &t);
    make_plan(r, l, out);
    if (r->pass.record)
        record_cells(r, l, tau);
    layer_metrics(r, l, tau, &t);
    if (r->pass.kind == PASS_TRAIN && opts_of(r)->threshold == THRESHOLD_QUANTILE &&
        opts_of(r)->spread == SPREAD_LAYER)
        s->quantile[l] = step_quantile(r, l);
    gates_next(&s->gates, l, r->pass.R);
}

static void edp_enter(struct route *r, int l, const struct plan *p, struct stream *st)
{
    (void)p;
    stepcode_fwd(&edp_of(r)->code, l, st);
}

static void edp_enter_bwd(struct route *r, int l, const struct plan *p, struct stream *st)
{
    (void)p;
    stepcode_bwd(&edp_of(r)->code, l, st);
}

static void edp_finish(struct route *r, const struct stream *st)
{
    struct edp *s = edp_of(r);
    (void)st;
    if (r->pass.kind != PASS_TRAIN)
        return; /* step metrics describe the training pass */
    if (opts_of(r)->threshold == THRESHOLD_QUANTILE && opts_of(r)->spread == SPREAD_COMMON)
        common_quantile(r);
    s->ratio = gates_ratio(&s->gates, r->pass.R);
    r->metric[M_TARGET][0] =
        budget_target(opts_of(r)->target_ratio, r->pass.progress, opts_of(r)->anneal);
    r->metric[M_OFFSET][0] = (double)value_of(r, s->budget)[0];
    r->metric[M_MU][0] = (double)value_of(r, s->budget)[1];
    r->metric[M_CODES][0] = stepcode_used(&s->code, r->pass.R);
}

/* What the network should say, as far as it is known before backward. */
static void take_labels(struct route *r, const struct losses *x)
{
    struct edp *s = edp_of(r);
    s->quality = (struct fit){0};
    s->rows = x->rows;
    for (int c = 0; c < r->L * x->R && r->wants_exits; c++) {
        int i = c % x->R;
        double y = (double)x->exit_nll[c] - (double)x->exit_nll[r->L * x->R + i];
        /* NaN: no target, or no exit here, as between the blocks of an iteration */
        s->label[c] =
            x->target[i] < 0 || isnan(y) ? (real)NAN : (real)fmin(fmax(y, regret_low), regret_high);
    }
}

static void edp_aux(struct route *r, struct losses *x)
{
    const struct edp_opts *o = opts_of(r);
    struct edp *s = edp_of(r);
    double ramp = penalty_ramp(r->pass.progress, o->sparsity_warmup), mean = 0;
    int open = s->gates.layers, gated = 0;
    for (int l = 0; l < r->L; l++)
        gated += s->gates.open[l] && !edp_always_on(r, l);
    struct penalty price = {
        .kind = (enum penalty_kind)o->penalty,
        .L = open,
        .gated = gated > 0 ? gated : 1,
        .lambda = o->penalty == PENALTY_OFF ? 0 : o->lambda_sparsity * ramp,
        .target = budget_target(o->target_ratio, r->pass.progress, o->anneal),
    };
    for (int i = 0; i < x->R; i++) {
        s->depth[i] = gates_depth(&s->gates, r, i);
        mean += s->depth[i] / ((double)x->R * open);
    }
    price.push = budget_push((enum budget_kind)o->budget, mean - price.target, o->lambda_budget,
                             (double)value_of(r, s->budget)[1]);
    x->aux = penalty_rows(&price, s->depth, x->entropy, s->price, x->R);
    memset(s->carry, 0, (size_t)x->R * sizeof *s->carry);
    if (is_regret(r))
        take_labels(r, x);
}

struct gate_grad {
    double tau, weight[FEATURES];
};

static void attach(struct route *r, int l, int i, double dz, const struct standard *t,
                   struct stream *st)
{
    real df[FEATURES] = {0};
    int base = base_feature(r);
    df[base] = (real)dz * t->inv[base];
    signal_bwd(&edp_of(r)->sig, l, i, df, st);
}

/* 1 / (2 P(g)) of the drawn gate of a cell, bounded; 0 when nothing was drawn. */
static double draw_weight(const struct route *r, size_t cell, double tau, int ran)
{
    const struct edp *s = edp_of(r);
    double scale = opts_of(r)->temperature * s->gates.noise;
    if (scale <= 0)
        return 0;
    double run = 1 / (1 + exp(-((double)s->gates.score[cell] - tau) / scale));
    return 0.5 / fmax(ran ? run : 1 - run, least_chance);
}

/* One cell: predicted x, label y. */
static void fit_cell(struct route *r, int l, int i, double y, double weight)
{
    struct edp *s = edp_of(r);
    struct fit *q = &s->quality;
    double x = (double)s->fit[(size_t)l * (size_t)r->pass.R + (size_t)i];
    s->dfit[i] = (real)(weight * (x - y) / ((double)r->pass.R * s->gated));
    q->n += weight;
    q->error += weight * (x - y) * (x - y);
    q->x += weight * x;
    q->xx += weight * x * x;
    q->y += weight * y;
    q->yy += weight * y * y;
    q->xy += weight * x * y;
}

/* A probe's weight counts it for the skipped rows that were not computed; dgate has that factor
 * already. */
static void fit_drawn(struct route *r, int l, const struct plan *p, const real *dgate)
{
    struct edp *s = edp_of(r);
    double tau = tau_of(r, l);
    for (int k = 0; k < p->n; k++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)p->row[k];
        double probe = (double)p->weight[k];
        if (probe <= 0 || s->gates.forced[cell])
            continue;
        double y = -(double)dgate[k] / probe * s->rows;
        fit_cell(r, l, p->row[k], fmin(fmax(y, regret_low), regret_high),
                 probe * draw_weight(r, cell, tau, p->gate[k] != 0));
    }
}

static void fit_exits(struct route *r, int l)
{
    struct edp *s = edp_of(r);
    const real *label = s->label + (size_t)l * (size_t)r->pass.R;
    for (int i = 0; i < r->pass.R; i++)
        if (is_scored(r, l, i) && !isnan(label[i]))
            fit_cell(r, l, i, (double)label[i], 1);
}

static void fit_bwd(struct route *r, int l, const struct plan *p, const real *dgate)
{
    struct edp *s = edp_of(r);
    size_t base = (size_t)l * (size_t)r->pass.R;
    memset(s->dfit, 0, (size_t)r->pass.R * sizeof *s->dfit);
    if (opts_of(r)->label == LABEL_EXIT)
        fit_exits(r, l);
    else
        fit_drawn(r, l, p, dgate);
    mlp_bwd(&s->net, NULL, s->dfit, s->in + base * REGRET_INPUTS, r->pass.R);
}

static void fit_metrics(struct route *r)
{
    const struct fit *q = &edp_of(r)->quality;
    double n = q->n > 0 ? q->n : 1;
    double vx = q->xx / n - q->x * q->x / n / n, vy = q->yy / n - q->y * q->y / n / n;
    double xy = q->xy / n - q->x * q->y / n / n;
    r->metric[M_REGRET][0] = q->n > 0 ? sqrt(q->error / n) : (double)NAN;
    r->metric[M_REGRET_R][0] = vx > 0 && vy > 0 ? xy / sqrt(vx * vy) : (double)NAN;
}

/* d loss / d tau = - sum over rows of dgate p (1-p) / T; times the features for the score's
 * weights.  A score also acts through the next layer's when it persists. */
static void edp_decide_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                           struct stream *st)
{
    struct edp *s = edp_of(r);
    struct standard t = is_regret(r) ? regret_standard(r, l) : standard_of(r, l);
    struct gate_grad g = {0};
    double persist = opts_of(r)->persist;
    int R = r->pass.R, next = 0;
    if (is_regret(r))
        fit_bwd(r, l, p, dgate);
    for (int i = 0; i < R; i++) {
        size_t cell = (size_t)l * (size_t)R + (size_t)i;
        int is_listed = next < p->n && p->row[next] == i;
        double dg = is_listed ? (double)dgate[next] : 0, soft = (double)s->gates.soft[cell];
        next += is_listed;
        if (!s->scored[cell])
            s->carry[i] = 0;
        if (s->gates.forced[cell] && s->carry[i] == 0)
            continue;
        double own = s->gates.forced[cell]
                         ? 0
                         : (dg + (double)s->price[i]) * soft * (1 - soft) / opts_of(r)->temperature;
        double dscore = own + s->carry[i], dz = dscore;
        g.tau -= own;
        s->carry[i] = 0;
        if (persist > 0 && is_scored(r, l - 1, i)) {
            s->carry[i] = persist * dscore;
            dz = (1 - persist) * dscore;
        }
        if (is_regret(r))
            continue; /* fitted above */
        const real *f = signal_at(&s->sig, l, R, i);
        for (int k = 0; k < FEATURES; k++)
            g.weight[k] += dz * (double)((f[k] - t.mean[k]) * t.inv[k]);
        if (opts_of(r)->attach)
            attach(r, l, i, dz, &t, st);
    }
    r->metric[M_PUSH][l] = g.tau;
    if (l == 0)
        fit_metrics(r);
    real *dtau = r->params->p[s->tau].grad,
         *dw = s->weight >= 0 ? r->params->p[s->weight].grad : NULL;
    if (is_literal(r)) { /* tau = low + (high - low) sigmoid(theta) */
        double v = 1 / (1 + exp(-(double)value_of(r, s->tau)[l]));
        g.tau *= (tau_high - tau_low) * v * (1 - v);
    }
    if (dtau)
        dtau[l] += (real)g.tau;
    for (int k = 0; dw && k < FEATURES; k++)
        dw[l * FEATURES + k] += (real)g.weight[k];
}

/* Thresholds learn how layers differ, and the controller sets how much runs in total.  Without this
 * the loss, which prefers more compute, would drag the common level against the controller. */
static void fix_mean_threshold(struct route *r)
{
    struct edp *s = edp_of(r);
    real *tau = value_of(r, s->tau);
    double mean = 0;
    for (int l = 0; l < r->L; l++)
        mean += edp_always_on(r, l) ? 0 : (double)tau[l] / s->gated;
    for (int l = 0; l < r->L; l++)
        tau[l] += edp_always_on(r, l) ? 0 : (real)(initial_tau(r) - mean);
}

static void track_quantiles(struct route *r)
{
    struct edp *s = edp_of(r);
    real *tau = value_of(r, s->tau);
    double ema = opts_of(r)->ema;
    for (int l = 0; l < r->L; l++) {
        int is_first = (double)r->params->p[s->std.count].value[l] <= 0;
        if (!isnan(s->quantile[l]) && !edp_always_on(r, l))
            tau[l] = (real)(is_first ? s->quantile[l]
                                     : ema * (double)tau[l] + (1 - ema) * s->quantile[l]);
    }
}

static void edp_counts(struct route *r, route_count_fn *each, void *ctx)
{
    struct edp *s = edp_of(r);
    standardizer_counts(&s->std, each, ctx);
    if (is_regret(r)) {
        standardizer_counts(&s->fit_std, each, ctx);
        each(ctx, &s->quality.n, sizeof s->quality / sizeof s->quality.n, 0);
    }
    if (opts_of(r)->threshold == THRESHOLD_QUANTILE)
        each(ctx, s->quantile, (size_t)r->L, 1);
    each(ctx, &s->ratio, 1, 1);
}

static void edp_update(struct route *r)
{
    const struct edp_opts *o = opts_of(r);
    struct edp *s = edp_of(r);
    real *budget = value_of(r, s->budget);
    double target = budget_target(o->target_ratio, r->pass.progress, o->anneal);
    if (o->threshold == THRESHOLD_QUANTILE)
        track_quantiles(r);
    if (o->threshold == THRESHOLD_LEARNED && o->budget == BUDGET_OFFSET)
        fix_mean_threshold(r);
    standardizer_update(&s->std, o->ema);
    if (is_regret(r)) {
        standardizer_update(&s->fit_std, o->ema);
        fit_metrics(r); /* of all pieces together */
    }
    if (o->budget == BUDGET_OFFSET)
        budget[0] =
            (real)budget_step((double)budget[0], s->ratio, target, o->budget_rate, offset_bound);
    if (o->budget == BUDGET_DUAL)
        budget[1] = (real)budget_step((double)budget[1], s->ratio, target, o->budget_rate,
                                      o->lambda_budget);
}

/* About 8 C for the norms of increment, state and difference and one dot product; the linear map is
 * small. */
static double edp_flops(const struct route *r, int l)
{
    double net = is_regret(r) ? mlp_flops(&edp_of(r)->net) : 0;
    return edp_always_on(r, l) ? 0 : 8.0 * r->C + 4.0 * FEATURES + net;
}

const struct route_ops route_edp = {
    .name = "edp",
    .summary = "elastic depth: blocks run while the token's state still moves",
    .paper = "Elastic-Depth Pretraining (2026)",
    .flags = ROUTE_GATED | ROUTE_STE | ROUTE_ENTROPY | ROUTE_GRAD,
    .opts_size = sizeof(struct edp_opts),
    .state_size = sizeof(struct edp),
    .opts = edp_opts_table,
    .n_opts = DS_LEN(edp_opts_table),
    .metrics = edp_metrics,
    .n_metrics = DS_LEN(edp_metrics),
    .init = edp_init,
    .layout = edp_layout,
    .begin = edp_begin,
    .decide = edp_decide,
    .regate = edp_regate,
    .enter = edp_enter,
    .finish = edp_finish,
    .aux = edp_aux,
    .decide_bwd = edp_decide_bwd,
    .enter_bwd = edp_enter_bwd,
    .counts = edp_counts,
    .update = edp_update,
    .changed = check,
    .flops = edp_flops,
    .always_on = edp_always_on,
    .release = edp_release,
};
