/* hat: Hierarchical Adaptive Transformer.  In every layer a router chooses which tokens run the
 * FFN; at some layers exit gates let tokens exit.
 *
 *     s = w . mid + b          p = sigmoid(s)
 *     m = 1 for the k highest of s + gumbel T in training, [s > theta(c)] at inference
 *     attention gate = A (exited=freeze) or 1 (attention_only)       FFN gate = A m
 *
 * A is the survival after the layer's exit gate (routing/exits.h).  Backward uses p in place of m
 * and the soft values of the exit gates.  A token that has exited would have run an FFN with
 * probability p, so p is its m in the gradient of exiting. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "routing/exits.h"
#include "routing/route.h"
#include "routing/selector.h"

enum { PHASE_ROUTERS, PHASE_EXITS, PHASE_BOTH, PHASE_FULL };
enum { EXITS_AUTO, EXITS_ON, EXITS_OFF };
enum { EXITED_FREEZE, EXITED_ATTENTION_ONLY };
enum { TRAIN_MASKED, TRAIN_SELECTED };
enum { SELECT_DOCUMENT, SELECT_BATCH };
enum { DROP_STREAM = 1 << 16 };

struct hat_opts {
    double capacity, capacity_start, capacity_freeze, layer_dropout, phase_split, ema;
    double temperature, temperature_end, noise, router_gain;
    double exit_noise, exit_bias;
    struct router_penalty price;
    struct exits_shape shape;
    struct exits_penalty leaving;
    int phase, exits, exited, train, select, attach, exit_threshold;
    char *exit_layers;
};

struct hat {
    struct exits exits;
    struct selector choice;
    /* the current pass */
    double temperature;
    int trains_routers, trains_exits, nan;
    uint8_t *dropped;         /* (L) the batch skips the layer */
    real *value;              /* (L,R) m as used by the gradient */
    real *gate, *weight, *dp; /* (R) */
    real *kept;               /* gradient checks: router and gate inputs, (2L,R,C) */
    size_t kept_n;
};

#define AT(field) offsetof(struct hat_opts, field)
static const struct opt hat_opts_table[] = {
    // clang-format off
    {"capacity", OPT_REAL, AT(capacity), "0.55", 0, 1, NULL,
     "share of the remaining tokens whose FFN runs, in each layer", "capacity_end", .is_live = 1},
    {"capacity_start", OPT_REAL, AT(capacity_start), "0.9", 0, 1, NULL,
     "capacity at the start of training", "capacity_start"},
    {"capacity_freeze", OPT_REAL, AT(capacity_freeze), "0.3", 0, 1, NULL,
     "share of the routers' training before capacity starts falling linearly from capacity_start",
     "capacity_warmup_ratio"},
    {"select", OPT_ENUM, AT(select), "document", 0, 0, "document|batch",
     "training ranks the tokens of a document, or (published) of the whole batch"},
    {"train", OPT_ENUM, AT(train), "masked", 0, 0, "masked|selected",
     "all rows are computed, so that skipped ones have a gradient too; or (published) only "
     "selected ones"},
    {"attach", OPT_BOOL, AT(attach), "false", 0, 0, NULL,
     "gate gradients also flow into the states that routers and gates read (published)"},
    {"noise", OPT_REAL, AT(noise), "1", 0, 100, NULL,
     "Gumbel noise on the scores in training, in units of the router temperature"},
    {"router_temperature", OPT_REAL, AT(temperature), "1", 0, 100, NULL,
     "temperature of that noise at the start, falling along a cosine", "initial_temp"},
    {"router_temperature_end", OPT_REAL, AT(temperature_end), "0.1", 0, 100, NULL,
     "temperature at the end of the routers' training, then constant", "min_temp"},
    {"router_gain", OPT_REAL, AT(router_gain), "0.01", 1e-6, 100, NULL,
     "standard deviation of the routers' initial weights: gain * sqrt(2 / (dim + 1))"},
    {"layer_dropout", OPT_REAL, AT(layer_dropout), "0.2", 0, 1, NULL,
     "probability that a batch skips the last layer; lower in earlier layers and before half of "
     "training", "layer_dropout_max"},
    {"capacity_loss", OPT_REAL, AT(price.capacity), "0.01", 0, 1000, NULL,
     "weight of (mean p - capacity)^2, per layer", "lb_loss_weight"},
    {"z_loss", OPT_REAL, AT(price.z), "1e-4", 0, 1000, NULL,
     "weight of the mean squared score, per layer", "z_loss_weight"},
    {"entropy_bonus", OPT_REAL, AT(price.entropy), "1e-3", 0, 1000, NULL,
     "weight of the mean entropy of p, per layer, as a bonus", "entropy_weight"},
    {"phase", OPT_ENUM, AT(phase), "both", 0, 0, "routers|exits|both|full",
     "what is trained: routers; exit gates with routers frozen; one after the other; all at once"},
    {"phase_split", OPT_REAL, AT(phase_split), "0.6", 0, 1, NULL,
     "phase=both: share of the run that trains routers (published: 3 of 5 epochs)"},
    {"exit_layers", OPT_STRING, AT(exit_layers), "", 0, 0, NULL,
     "layers with an exit gate, as 4,8,12,16,19 (published, of 22); empty: the same places in "
     "model.layers; none", "exit_layers", .is_list = 1},
    {"exits", OPT_ENUM, AT(exits), "auto", 0, 0, "auto|on|off",
     "exit gates at inference: on once trained; always; never (also in training)"},
    {"exited", OPT_ENUM, AT(exited), "freeze", 0, 0, "freeze|attention_only",
     "a token that exited keeps its state, from which later layers read keys and values; or it "
     "only skips its FFNs (published)"},
    {"exit_hidden", OPT_INT, AT(shape.hidden[0]), "64", 1, 65536, NULL,
     "width of a gate's first hidden layer"},
    {"exit_hidden2", OPT_INT, AT(shape.hidden[1]), "32", 1, 65536, NULL,
     "width of a gate's second hidden layer"},
    {"exit_std", OPT_REAL, AT(shape.std), "0.02", 1e-6, 100, NULL,
     "standard deviation of a gate's initial weights"},
    {"exit_bias", OPT_REAL, AT(exit_bias), "-2", -100, 100, NULL,
     "constant added to the exit logit; with the published 0.5 untrained gates let almost every "
     "token exit"},
    {"exit_noise", OPT_REAL, AT(exit_noise), "1", 0, 100, NULL,
     "logistic noise in training, in forward temperatures: at 1 a token exits with probability "
     "sigmoid(z / T_fwd)"},
    {"exit_temperature_forward", OPT_REAL, AT(shape.forward), "0.5", 0.05, 2, NULL,
     "initial T_fwd", "initial_temp_forward"},
    {"exit_temperature_backward", OPT_REAL, AT(shape.backward), "1", 0.05, 2, NULL,
     "initial T_bwd: the gradient is that of sigmoid(z / T_bwd)", "initial_temp_backward"},
    {"exit_temperature_learned", OPT_BOOL, AT(shape.learns_temperature), "true", 0, 0, NULL,
     "both are learned, between 0.05 and 2", "use_learnable_temp"},
    {"exit_threshold", OPT_ENUM, AT(exit_threshold), "calibrated", 0, 0, "calibrated|zero",
     "at inference a token exits when z is above: the threshold that gives the training exit rate; "
     "0"},
    {"exit_loss", OPT_REAL, AT(leaving.rate), "0.1", 0, 1000, NULL,
     "weight of (expected exit share - exit_target)^2"},
    {"exit_target", OPT_REAL, AT(leaving.target), "0.4", 0, 1, NULL,
     "share of tokens that should exit before the last layer", "target_exit_rate", .is_live = 1},
    {"exit_depth", OPT_REAL, AT(leaving.depth), "0", 0, 1000, NULL,
     "penalty on the expected exit layer, as a share of the depth"},
    {"exit_early", OPT_REAL, AT(leaving.early), "0", 0, 1000, NULL,
     "penalty on frequent ids that exit far from exit_early_layer (published 0.03)",
     "exit_early_weight"},
    {"exit_early_ids", OPT_INT, AT(leaving.early_ids), "1000", 0, 1 << 30, NULL,
     "ids below this are frequent"},
    {"exit_early_layer", OPT_REAL, AT(leaving.early_layer), "0.3", 0, 1, NULL,
     "target exit layer of frequent ids, as a share of the depth"},
    {"exit_diversity", OPT_REAL, AT(leaving.diversity), "0", 0, 1000, NULL,
     "penalty on expected exit layers with less spread than exit_spread (published 0.01)",
     "exit_diversity_weight"},
    {"exit_spread", OPT_REAL, AT(leaving.spread), "2", 0, 4096, NULL,
     "target standard deviation of expected exit layers"},
    {"exit_monotone", OPT_REAL, AT(leaving.monotone), "0", 0, 1000, NULL,
     "penalty on later positions exiting earlier (published 0.005)", "exit_monotonicity_weight"},
    {"ema", OPT_REAL, AT(ema), "0.95", 0, 0.99999, NULL,
     "decay of running thresholds and rates"},
    // clang-format on
};

enum {
    M_CAPACITY,
    M_TEMPERATURE,
    M_EXITS,
    M_LOSS_C,
    M_LOSS_Z,
    M_LOSS_H,
    M_LOSS_EXIT,
    M_NAN,
    M_PHASE,
    M_SHARE,
    M_EXIT,
    M_ENTROPY,
    M_COMPLIANCE,
    M_T_FWD,
    M_SCORE,
    M_THRESHOLD,
    M_GATE,
    M_TOPK,
    M_EXITED,
};
static const struct metric hat_metrics[] = {
    // clang-format off
    [M_CAPACITY] = {"capacity", "", "current target share of FFNs", METRIC_STEP},
    [M_TEMPERATURE] = {"router_temperature", "",
     "temperature of the Gumbel noise on scores", METRIC_STEP},
    [M_EXITS] = {"exit_rate_mean", "", "share of tokens that exited", METRIC_STEP},
    [M_LOSS_C] = {"capacity_loss", "nats",
     "(mean p - capacity)^2, weighted, all layers", METRIC_STEP},
    [M_LOSS_Z] = {"z_loss", "nats", "mean squared score, weighted, all layers", METRIC_STEP},
    [M_LOSS_H] = {"entropy_loss", "nats",
     "minus the entropy of p, weighted, all layers", METRIC_STEP},
    [M_LOSS_EXIT] = {"exit_penalty", "nats", "exit penalties", METRIC_STEP},
    [M_NAN] = {"nan_scores", "", "NaN scores: they rank last, or do not exit", METRIC_STEP, .is_sum = 1},
    [M_PHASE] = {"phase", "", "what is trained: 1 routers, 2 exit gates, 3 both", METRIC_STEP},
    [M_SHARE] = {"ffn_share", "", "share of rows whose FFN ran", METRIC_LAYER},
    [M_EXIT] = {"exit_rate", "", "share of rows that exit at this layer", METRIC_LAYER},
    [M_ENTROPY] = {"router_entropy", "nats", "mean entropy of p", METRIC_LAYER},
    [M_COMPLIANCE] = {"compliance", "", "share at inference, by the stored thresholds, - capacity", METRIC_LAYER},
    [M_T_FWD] = {"exit_temperature", "", "forward temperature of the exit gate", METRIC_LAYER},
    [M_SCORE] = {"score", "", "router score", METRIC_CELL},
    [M_THRESHOLD] = {"threshold", "", "threshold that the score is compared with", METRIC_CELL},
    [M_GATE] = {"gate", "", "sigmoid(score), 0 when the token has exited", METRIC_CELL},
    [M_TOPK] = {"topk", "", "1 = among the highest of its sequence", METRIC_CELL},
    [M_EXITED] = {"exited", "", "1 = the token has exited before this layer's FFN", METRIC_CELL},
    // clang-format on
};

static struct hat *hat_of(const struct route *r)
{
    return r->state;
}

static const struct hat_opts *opts_of(const struct route *r)
{
    return r->opts;
}

/* Any layer may skip FFNs. */
static int hat_always_on(const struct route *r, int l)
{
    (void)r;
    (void)l;
    return 0;
}

/* ---- set-up ---- */

static int hat_init(struct route *r, struct err *e)
{
    const struct hat_opts *o = opts_of(r);
    struct hat *s = hat_of(r);
    struct exits_shape shape = o->shape;
    int rc = exits_parse(&shape, "hat.exit_layers", o->exit_layers, r->L, e);
    if (rc < 0)
        return rc;
    if (shape.n == 0 && o->phase == PHASE_EXITS)
        return err_set(e, DS_EUSAGE,
                       "hat.phase=exits: no exit gates to train; set hat.exit_layers");
    if (o->exits == EXITS_OFF && o->phase == PHASE_EXITS)
        return err_set(e, DS_EUSAGE, "hat.phase=exits: no exit gates to train with hat.exits=off");
    s->dropped = mem_alloc((size_t)r->L, 1);
    if (!s->dropped)
        return err_set(e, DS_EMEM, "hat: %d layers", r->L);
    rc = selector_init(&s->choice, r->params, "hat", r->L, r->C, o->router_gain, e);
    if (rc == 0)
        rc = exits_init(&s->exits, r->params, "hat.exit", r->L, r->C, &shape, e);
    s->exits.bias = o->exit_bias;
    s->choice.whole = o->select == SELECT_BATCH;
    return rc;
}

static void hat_layout(struct route *r, struct arena *a, int R)
{
    struct hat *s = hat_of(r);
    s->value = arena_zalloc(a, (size_t)r->L * (size_t)R, sizeof(real));
    s->gate = arena_zalloc(a, (size_t)R, sizeof(real));
    s->weight = arena_zalloc(a, (size_t)R, sizeof(real));
    s->dp = arena_zalloc(a, (size_t)R, sizeof(real));
    selector_layout(&s->choice, a, R);
    exits_layout(&s->exits, a, R);
}

static void hat_release(struct route *r)
{
    struct hat *s = hat_of(r);
    mem_free(s->kept);
    mem_free(s->dropped);
    selector_release(&s->choice);
    exits_release(&s->exits);
}

/* ---- schedules ---- */

static double clip(double progress)
{
    return progress < 0 ? 0 : progress > 1 ? 1 : progress;
}

/* Half a cosine from one value to the other; progress in [0, 1]. */
static double cosine(double from, double to, double progress)
{
    return to + (from - to) * 0.5 * (1 + cos(3.14159265358979323846 * clip(progress)));
}

/* Constant for a share of training, then linear. */
static double line(double from, double to, double hold, double progress)
{
    return progress < hold || hold >= 1 ? from
                                        : from + (to - from) * clip((progress - hold) / (1 - hold));
}

/* Sets whether routers, exit gates or both are trained. */
static void choose_phase(struct route *r)
{
    const struct hat_opts *o = opts_of(r);
    struct hat *s = hat_of(r);
    int has_exits = o->exits != EXITS_OFF && s->exits.n > 0;
    int is_first = o->phase == PHASE_BOTH && (r->pass.progress <= o->phase_split || !has_exits);
    s->trains_routers = o->phase == PHASE_ROUTERS || o->phase == PHASE_FULL || is_first;
    s->trains_exits = o->phase != PHASE_ROUTERS && !is_first && o->exits != EXITS_OFF;
}

/* Progress of the routers' own training: exits trained afterwards see all schedules at their
 * ends. */
static double router_progress(const struct route *r)
{
    const struct hat_opts *o = opts_of(r);
    if (!hat_of(r)->trains_routers)
        return 1;
    return o->phase == PHASE_BOTH && o->phase_split > 0 ? clip(r->pass.progress / o->phase_split)
                                                        : clip(r->pass.progress);
}

static void drop_layers(struct route *r, double progress)
{
    const struct hat_opts *o = opts_of(r);
    struct hat *s = hat_of(r);
    memset(s->dropped, 0, (size_t)r->L);
    for (int l = 1; l < r->L && r->pass.kind == PASS_TRAIN && !r->pass.inference.force; l++) {
        double rate = o->layer_dropout * l / (r->L - 1) * clip(2 * progress);
        s->dropped[l] = rng_at(r->pass.seed, RNG_ROUTE, (uint64_t)r->pass.step, DROP_STREAM,
                               (uint32_t)l) < rate;
    }
}

static int exits_are_on(const struct route *r)
{
    const struct hat *s = hat_of(r);
    int mode = opts_of(r)->exits;
    if (r->pass.kind == PASS_TRAIN)
        return s->trains_exits;
    if (mode == EXITS_AUTO)
        return (double)r->params->p[s->exits.trained].value[0] > 0;
    return mode == EXITS_ON;
}

static void hat_begin(struct route *r)
{
    const struct hat_opts *o = opts_of(r);
    struct hat *s = hat_of(r);
    size_t kept = 2 * (size_t)r->L * (size_t)r->pass.R * (size_t)r->C;
    choose_phase(r);
    double progress = router_progress(r);
    s->temperature = cosine(o->temperature, o->temperature_end, progress);
    s->choice.noise = o->noise * s->temperature;
    s->choice.capacity = r->pass.inference.has_capacity ? r->pass.inference.capacity
                         : r->pass.kind == PASS_TRAIN
                             ? line(o->capacity_start, o->capacity, o->capacity_freeze, progress)
                             : o->capacity;
    s->nan = 0;
    drop_layers(r, progress);
    if (r->pass.kind == PASS_TRAIN) { /* a learning rate of 0 freezes */
        linear_router_freeze(&s->choice.router, s->trains_routers);
        exits_freeze(&s->exits, s->trains_exits);
        quantiles_begin(&s->choice.table); /* drops the scores of a skipped step */
        exits_forget(&s->exits);
    }
    selector_begin(&s->choice, r->pass.R);
    exits_begin(&s->exits, r->pass.R, exits_are_on(r));
    if (r->pass.soft && s->kept_n < kept) {
        mem_free(s->kept);
        s->kept = mem_alloc(kept, sizeof(real));
        BUG_IF(!s->kept, "out of memory for a gradient check of %d rows", r->pass.R);
        s->kept_n = kept;
    }
}

/* ---- decisions ---- */

static real *cells_of(const struct route *r, real *table, int l)
{
    return table + (size_t)l * (size_t)r->pass.R;
}

/* Replayed by a gradient check: the input of layer l's exit gate (k 0) and router (k 1). */
static real *kept_of(const struct route *r, int l, int k)
{
    return hat_of(r)->kept + (size_t)(2 * l + k) * (size_t)r->pass.R * (size_t)r->C;
}

static void keep(const struct route *r, int l, int k, const real *x)
{
    if (r->pass.soft)
        memcpy(kept_of(r, l, k), x, (size_t)r->pass.R * (size_t)r->C * sizeof *x);
}

/* Is this the calibration pass at the grid point nearest to the method's own capacity? */
static int is_own_calibration(const struct route *r)
{
    return r->pass.inference.calibrate == 1 + (int)lround(opts_of(r)->capacity * (ROUTE_GRID - 1));
}

static struct exits_rule exit_rule(const struct route *r)
{
    const struct hat_opts *o = opts_of(r);
    int is_training = r->pass.kind == PASS_TRAIN;
    int is_stored = !is_training && o->exit_threshold == 0 &&
                    (double)r->params->p[hat_of(r)->exits.trained].value[0] > 0;
    return (struct exits_rule){
        .noise = is_training ? o->exit_noise : 0,
        /* a positive offset means less compute everywhere: earlier exits, fewer FFNs */
        .threshold = is_training ? 0 : -r->pass.inference.offset,
        .use_stored = is_stored,
        .by_rows = is_stored && r->pass.inference.calibrate,
        .soft = r->pass.soft,
        .note = (is_training && !r->frozen) || is_own_calibration(r),
    };
}

/* Does the plan list every row, or only those with gate != 0? */
static int lists_all(const struct route *r)
{
    if (r->pass.soft || r->pass.kind == PASS_MASKED)
        return 1;
    return r->pass.kind == PASS_TRAIN && opts_of(r)->train == TRAIN_MASKED;
}

static void list(const struct route *r, struct plan *out)
{
    const struct hat *s = hat_of(r);
    plan_from_gates(out, s->gate, s->weight, r->pass.R, lists_all(r));
}

/* No row runs, and none writes keys. */
static void skip_layer(struct route *r, int l, struct plan *out)
{
    out->n = out->active = 0;
    out->kv = KV_PLAN;
    if (r->pass.kind != PASS_TRAIN)
        return;
    r->metric[M_SHARE][l] = r->metric[M_EXIT][l] = 0;
    r->metric[M_ENTROPY][l] = r->metric[M_T_FWD][l] = (double)NAN;
}

/* A cell that is forced to run has both gates 1: its token counts as present there. */
static void attention_gates(const struct route *r, int l)
{
    struct hat *s = hat_of(r);
    const real *alive = exits_alive(&s->exits, l);
    int is_frozen = opts_of(r)->exited == EXITED_FREEZE;
    for (int i = 0; i < r->pass.R; i++) {
        int forced = route_forced_attention(r, l, i);
        int always = !is_frozen || route_forced(r, l, i) == 1;
        s->gate[i] = forced >= 0 ? (real)forced : always ? 1 : alive[i];
        s->weight[i] = forced >= 0 || always ? 0 : 1;
    }
}

static void ffn_gates(const struct route *r, int l)
{
    struct hat *s = hat_of(r);
    const real *alive = exits_alive(&s->exits, l), *value = cells_of(r, s->value, l);
    for (int i = 0; i < r->pass.R; i++) {
        int forced = route_forced(r, l, i);
        s->gate[i] = forced >= 0 ? (real)forced : alive[i] * value[i];
        s->weight[i] = forced >= 0 ? 0 : 1;
    }
}

/* Sets m as used by the gradient. */
static void set_values(const struct route *r, int l)
{
    struct hat *s = hat_of(r);
    const real *score = linear_router_score(&s->choice.router, l);
    real *value = cells_of(r, s->value, l);
    for (int i = 0; i < r->pass.R; i++)
        value[i] = r->pass.soft || !s->choice.here[i] ? (real)linear_router_probability(score[i])
                                                      : s->choice.want[i];
}

/* ---- the passes ---- */

static void record_cells(struct route *r, int l)
{
    struct hat *s = hat_of(r);
    size_t base = (size_t)l * (size_t)r->pass.R;
    const real *score = linear_router_score(&s->choice.router, l);
    selector_rank(&s->choice, r, l);
    for (int i = 0; i < r->pass.R; i++) {
        size_t cell = base + (size_t)i;
        r->cell[M_SCORE][cell] = score[i];
        r->cell[M_THRESHOLD][cell] = (real)s->choice.cut;
        r->cell[M_GATE][cell] = s->choice.here[i] ? (real)linear_router_probability(score[i]) : 0;
        r->cell[M_TOPK][cell] = s->choice.here[i] ? s->choice.top[i] : (real)NAN;
        r->cell[M_EXITED][cell] = !s->choice.here[i];
    }
}

static void layer_metrics(struct route *r, int l, int active)
{
    struct hat *s = hat_of(r);
    int g = exits_at(&s->exits, l), R = r->pass.R > 0 ? r->pass.R : 1;
    r->metric[M_SHARE][l] = (double)active / R;
    r->metric[M_ENTROPY][l] = linear_router_entropy(&s->choice.router, l, s->choice.here);
    r->metric[M_EXIT][l] = exits_share(&s->exits, l);
    r->metric[M_T_FWD][l] = g < 0 ? (double)NAN : exits_temperature(&s->exits, g);
}

static void decide_attention(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct hat *s = hat_of(r);
    struct exits_rule rule = exit_rule(r);
    keep(r, l, 0, st->h[l]);
    s->nan += exits_decide(&s->exits, r, l, st->h[l], &rule);
    attention_gates(r, l);
    list(r, out);
}

static void decide_ffn(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct hat *s = hat_of(r);
    keep(r, l, 1, st->mid);
    linear_router_fwd(&s->choice.router, l, st->mid);
    selector_update(&s->choice, exits_alive(&s->exits, l));
    selector_choose(&s->choice, r, l);
    set_values(r, l);
    ffn_gates(r, l);
    list(r, out);
    if (r->pass.kind == PASS_TRAIN)
        layer_metrics(r, l, out->active);
    if (r->pass.record)
        record_cells(r, l);
}

static void hat_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    if (hat_of(r)->dropped[l])
        skip_layer(r, l, out);
    else if (out->span == ROUTE_SPAN_ATTENTION)
        decide_attention(r, l, out, st);
    else
        decide_ffn(r, l, out, st);
}

/* Recomputes the gates from the inputs of the original pass. */
static void hat_regate(struct route *r, int l, struct plan *out)
{
    struct hat *s = hat_of(r);
    struct exits_rule rule = exit_rule(r);
    if (s->dropped[l])
        return;
    if (out->span == ROUTE_SPAN_ATTENTION) {
        exits_decide(&s->exits, r, l, kept_of(r, l, 0), &rule);
        attention_gates(r, l);
    } else {
        linear_router_fwd(&s->choice.router, l, kept_of(r, l, 1));
        selector_update(&s->choice, exits_alive(&s->exits, l));
        set_values(r, l);
        ffn_gates(r, l);
    }
    list(r, out);
}

static void hat_finish(struct route *r, const struct stream *st)
{
    struct hat *s = hat_of(r);
    (void)st;
    if (r->pass.kind != PASS_TRAIN)
        return; /* step metrics describe the training pass */
    r->metric[M_CAPACITY][0] = s->choice.capacity;
    r->metric[M_TEMPERATURE][0] = s->temperature;
    r->metric[M_EXITS][0] = exits_rate(&s->exits);
    r->metric[M_NAN][0] = s->nan + s->choice.nan;
    r->metric[M_PHASE][0] = s->trains_routers + 2 * s->trains_exits;
}

static double router_prices(struct route *r, double loss[ROUTER_PENALTIES])
{
    struct hat *s = hat_of(r);
    struct router_penalty price = opts_of(r)->price;
    price.target = s->choice.capacity;
    memset(loss, 0, ROUTER_PENALTIES * sizeof *loss);
    for (int l = 0; l < r->L && s->trains_routers; l++) {
        if (s->dropped[l] || route_is_closed(r, l))
            continue;
        selector_update(&s->choice, exits_alive(&s->exits, l));
        linear_router_penalty(&s->choice.router, l, s->choice.here, &price, loss);
    }
    return loss[0] + loss[1] + loss[2];
}

static void hat_aux(struct route *r, struct losses *x)
{
    struct hat *s = hat_of(r);
    double loss[ROUTER_PENALTIES], exit = 0;
    x->aux = router_prices(r, loss);
    if (s->trains_exits)
        exit = exits_aux(&s->exits, r, &opts_of(r)->leaving);
    x->aux += exit;
    r->metric[M_LOSS_C][0] = loss[0];
    r->metric[M_LOSS_Z][0] = loss[1];
    r->metric[M_LOSS_H][0] = loss[2];
    r->metric[M_LOSS_EXIT][0] = exit;
}

/* FFN gate A m: dA += m dgate, dp = A dgate. */
static void ffn_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                    struct stream *st)
{
    struct hat *s = hat_of(r);
    const real *alive = exits_alive(&s->exits, l), *value = cells_of(r, s->value, l);
    real *dp = s->dp;
    memset(dp, 0, (size_t)r->pass.R * sizeof *dp);
    for (int k = 0; k < p->n; k++) {
        int i = p->row[k];
        dp[i] = alive[i] * dgate[k];
        s->exits.reach[i] += value[i] * dgate[k];
    }
    selector_update(&s->choice, exits_alive(&s->exits, l));
    linear_router_bwd(&s->choice.router, l, dp, s->choice.here, st->mid,
                      opts_of(r)->attach ? st->dmid : NULL);
}

/* Is no layer above this one open?  A loop may be shorter in a step. */
static int is_top(const struct route *r, int l)
{
    while (++l < r->L)
        if (!route_is_closed(r, l))
            return 0;
    return 1;
}

static void hat_decide_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                           struct stream *st)
{
    struct hat *s = hat_of(r);
    if (p->span == ROUTE_SPAN_FFN && is_top(r, l))
        exits_bwd_begin(&s->exits);
    if (s->dropped[l])
        return;
    if (p->span == ROUTE_SPAN_FFN) {
        ffn_bwd(r, l, p, dgate, st);
        return;
    }
    for (int k = 0; k < p->n; k++) /* weight 0 where the gate is not A */
        s->exits.reach[p->row[k]] += dgate[k];
    exits_bwd(&s->exits, l, st->h[l], opts_of(r)->attach ? st->dh[l] : NULL);
}

/* ---- between passes ---- */

static void hat_counts(struct route *r, route_count_fn *each, void *ctx)
{
    selector_counts(&hat_of(r)->choice, each, ctx);
    exits_counts(&hat_of(r)->exits, each, ctx);
}

static void hat_update(struct route *r)
{
    struct hat *s = hat_of(r);
    selector_learn(&s->choice, opts_of(r)->ema);
    exits_update(&s->exits, opts_of(r)->ema);
    for (int l = 0; l < r->L; l++)
        r->metric[M_COMPLIANCE][l] = s->choice.excess[l];
}

static int hat_calibrate(struct route *r, int begin, struct err *e)
{
    struct hat *s = hat_of(r);
    struct quantiles *table[] = {&s->choice.table, &s->exits.table};
    (void)e;
    for (size_t k = 0; k < DS_LEN(table); k++)
        (begin ? quantiles_begin : quantiles_store)(table[k]);
    return 0;
}

static int hat_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    double c = pass->inference.has_capacity ? pass->inference.capacity : opts_of(r)->capacity;
    int is_inference = pass->kind == PASS_MASKED || pass->kind == PASS_SPARSE;
    if (!is_inference || pass->inference.topk || pass->inference.calibrate)
        return 0;
    int l = selector_unknown(&hat_of(r)->choice, c);
    if (l >= 0)
        return err_set(e, DS_EUSAGE,
                       "hat: layer %d has no thresholds yet for capacity=%g; run depthscope "
                       "calibrate MODEL, or ask for capacity=1",
                       l, c);
    return 0;
}

static double hat_flops(const struct route *r, int l)
{
    return hat_of(r)->dropped[l] ? 0 : 2.0 * r->C + exits_flops(&hat_of(r)->exits, l);
}

const struct route_ops route_hat = {
    .name = "hat",
    .summary = "tokens skip FFNs layer by layer and exit at exit gates",
    .paper = "Hierarchical Adaptive Transformer (2025)",
    .flags = ROUTE_GATED | ROUTE_STE | ROUTE_GRAD | ROUTE_SPLIT | ROUTE_TOPK | ROUTE_CAPACITY,
    .opts_size = sizeof(struct hat_opts),
    .state_size = sizeof(struct hat),
    .opts = hat_opts_table,
    .n_opts = DS_LEN(hat_opts_table),
    .metrics = hat_metrics,
    .n_metrics = DS_LEN(hat_metrics),
    .init = hat_init,
    .layout = hat_layout,
    .begin = hat_begin,
    .decide = hat_decide,
    .regate = hat_regate,
    .finish = hat_finish,
    .aux = hat_aux,
    .decide_bwd = hat_decide_bwd,
    .counts = hat_counts,
    .update = hat_update,
    .ready = hat_ready,
    .calibrate = hat_calibrate,
    .flops = hat_flops,
    .always_on = hat_always_on,
    .release = hat_release,
};
