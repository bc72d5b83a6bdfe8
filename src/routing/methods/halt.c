/* halt: a token that needs no more depth leaves the stack, or the remaining iterations of a loop,
 * for good.  The lever is what its score predicts:
 *
 *   h_t        a token's state at exit t: after t layers (iterations)     d_t = h_t - h_{t-1}
 *   regret_t   nll if it leaves at t - nll at full depth, clamped to [-2, 5]
 *   s_t        16 units on standardised features of (h_t, d_t, d_{t-1}) and t
 *   leaves at the first t >= min with s_t <= theta
 *
 * One theta for all exits, stored per capacity: the quantile of the running minimum of s over the
 * exits of held-out text.  Everything is read from the token's own states, so decisions are causal
 * and decoding keeps nothing.  A row that has left writes keys and values of its last state.
 *
 * The published rules (velocity, acceleration, scalar, confidence, kl) and random halting are
 * scores too: each has its row of thresholds, so one checkpoint compares them all.
 *
 * The network learns offline, from dense passes over held-out text (fit=calibrate), or while the
 * model trains (fit=train); training itself always runs every layer, and the method never has a
 * gradient into the model. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "routing/choice.h"
#include "routing/look.h"
#include "routing/rank.h"
#include "routing/regret.h"
#include "routing/route.h"

#define RULES "regret|velocity|acceleration|scalar|confidence|kl|random"
enum {
    RULE_REGRET,
    RULE_VELOCITY,
    RULE_ACCELERATION,
    RULE_SCALAR,
    RULE_CONFIDENCE,
    RULE_KL,
    RULE_RANDOM,
    RULES_N
};
enum { LABEL_REGRET, LABEL_AGREE };
enum { FIT_CALIBRATE, FIT_TRAIN };
static const double regret_low = -2, regret_high = 5;
enum { SAMPLE_BYTES = 256 << 20 };

static const int rule_look[RULES_N] = {
    [RULE_VELOCITY] = LOOK_VELOCITY,
    [RULE_ACCELERATION] = LOOK_ACCELERATION,
    [RULE_SCALAR] = LOOK_SCALAR,
    [RULE_CONFIDENCE] = LOOK_DOUBT,
    [RULE_KL] = LOOK_KL,
};

struct halt_opts {
    char *features;
    int64_t min, steps;
    int rule, label, fit, kv;
    double capacity, aux, ema;
};

/* Samples of a calibration: `exits` cells of each chosen token. */
struct samples {
    real *x;       /* (cells, D) raw inputs */
    real *score;   /* (cells, RULES_N) */
    real *label;   /* (cells) */
    size_t n, cap; /* tokens */
    uint64_t seen; /* rows offered */
};

struct halt {
    struct looks inputs;
    unsigned wanted; /* bits of looks: the inputs, or the rule's */
    struct regret head;
    struct quantiles table; /* a row per rule */
    struct samples samples;
    const struct stream *stream;
    uint8_t *left, *want;       /* (R) */
    real *weight;               /* (R) zeros: gates have no gradient */
    real *low;                  /* (R) least score so far */
    int32_t *row;               /* (R) rows that are deciding */
    real *look;                 /* (R, LOOKS) of them */
    real *x, *score;            /* (R, D), (R) of them */
    real *doubt, *entropy, *kl; /* (R) */
    /* fit=train, by exit: inputs (L, R, D), labels and d loss / d prediction (L, R), kept for
     * backward; what was read (L, R, LOOKS); running minima of one rule (L R) */
    real *input, *label, *push, *looks, *pooled;
};

#define AT(field) offsetof(struct halt_opts, field)
static const struct opt halt_opts_table[] = {
    // clang-format off
    {"rule", OPT_ENUM, AT(rule), "regret", 0, 0, RULES,
     "score: predicted regret; size of the last step; vector and published scalar second "
     "difference; -ln of the largest probability; KL to the prediction one exit before; random"},
    {"features", OPT_STRING, AT(features), "velocity,acceleration,turn,confidence", 0, 0, NULL,
     "inputs of rule=regret, with the exit's index: velocity, acceleration, scalar, turn, "
     "confidence, entropy, kl, state; confidence, entropy and kl run the head", .is_list = 1},
    {"label", OPT_ENUM, AT(label), "regret", 0, 0, "regret|agree",
     "what rule=regret predicts: loss here - loss at full depth; 1 = another token than at full "
     "depth"},
    {"fit", OPT_ENUM, AT(fit), "calibrate", 0, 0, "calibrate|train",
     "the predictor learns from held-out text when thresholds are calibrated; or during training, "
     "which then computes the loss of every exit (their FLOPs are not counted)"},
    {"steps", OPT_INT, AT(steps), "2000", 1, 1e7, NULL, "fit=calibrate: steps of 512 cells"},
    {"aux", OPT_REAL, AT(aux), "1", 0, 1000, NULL,
     "fit=train: weight of the predictor's squared error; it has no gradient into the model"},
    {"min", OPT_INT, AT(min), "1", 1, 4096, NULL, "layers (iterations) that every token runs"},
    {"capacity", OPT_REAL, AT(capacity), "0.5", 0, 1, NULL,
     "share of the cells after them that run at inference", .is_live = 1},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "tokens that have left write keys and values too, or only executed tokens are keys"},
    {"ema", OPT_REAL, AT(ema), "0.95", 0, 0.99999, NULL,
     "fit=train: decay of running means, deviations and quantiles"},
    // clang-format on
};

enum {
    M_LOSS,
    M_EXPLAINED,
    M_EXIT,
    M_SCORE,
    M_TAU,
    M_EXITED,
    M_VELOCITY,
    M_ACCELERATION,
    M_TURN,
    M_CONFIDENCE
};
static const struct metric halt_metrics[] = {
    // clang-format off
    [M_LOSS] = {"regret_loss", "", "mean squared error of the predicted regret", METRIC_STEP},
    [M_EXPLAINED] = {"regret_explained", "",
     "share of the regret's variance that is predicted", METRIC_STEP},
    [M_EXIT] = {"exit_rate", "", "share of rows that exit at this layer", METRIC_LAYER},
    [M_SCORE] = {"score", "", "least score so far, which decides", METRIC_CELL},
    [M_TAU] = {"threshold", "", "threshold that the score is compared with", METRIC_CELL},
    [M_EXITED] = {"exited", "", "1 = the token has exited before this layer", METRIC_CELL},
    [M_VELOCITY] = {"velocity", "", "relative size of the last step", METRIC_CELL},
    [M_ACCELERATION] = {"acceleration", "", "relative size of the change of step", METRIC_CELL},
    [M_TURN] = {"turn", "", "cosine of the last two steps", METRIC_CELL},
    [M_CONFIDENCE] = {"confidence", "", "largest probability if it left here", METRIC_CELL},
    // clang-format on
};

static struct halt *halt_of(const struct route *r)
{
    return r->state;
}

static const struct halt_opts *opts_of(const struct route *r)
{
    return r->opts;
}

/* First and one past the last exit where a token may leave. */
static int first_exit(const struct route *r)
{
    return (int)opts_of(r)->min;
}

static int end_exit(const struct route *r)
{
    return route_exits(r) - 1;
}

/* The exit that is decided before layer l, or -1. */
static int exit_before(const struct route *r, int l)
{
    for (int t = first_exit(r); t < end_exit(r); t++)
        if (route_exit(r, t) == l)
            return t;
    return -1;
}

static int halt_always_on(const struct route *r, int l)
{
    return l >= route_exit(r, end_exit(r)) || first_exit(r) >= end_exit(r) ||
           l < route_exit(r, first_exit(r));
}

/* ---- set-up ---- */

static int check(struct route *r, struct err *e)
{
    if (end_exit(r) == 1)
        return err_set(e, DS_ERANGE,
                       "halt: no token can leave before the only layer (or iteration); expected 2 "
                       "or more");
    if (first_exit(r) >= end_exit(r))
        return err_set(e, DS_ERANGE,
                       "halt.min=%d leaves no exit: must be less than the %d layers (or "
                       "iterations)",
                       first_exit(r), end_exit(r));
    if (opts_of(r)->fit == FIT_TRAIN && r->loop.end < r->L)
        return err_set(e, DS_EUSAGE,
                       "halt.fit=train: unsupported with model.loop_last, whose blocks change what "
                       "an exit predicts; expected halt.fit=calibrate");
    return 0;
}

static int halt_init(struct route *r, struct err *e)
{
    const struct halt_opts *o = opts_of(r);
    struct halt *s = halt_of(r);
    int rc = check(r, e);
    if (rc == 0)
        rc = looks_parse(&s->inputs, "halt.features", o->features, r->C, e);
    if (rc < 0)
        return rc;
    if (o->rule == RULE_REGRET)
        for (int k = 0; k < s->inputs.n; k++)
            s->wanted |= 1u << s->inputs.feature[k];
    else if (o->rule != RULE_RANDOM)
        s->wanted = 1u << rule_look[o->rule];
    r->wants_exits = o->fit == FIT_TRAIN;
    r->metric[M_LOSS][0] = r->metric[M_EXPLAINED][0] = (double)NAN;
    rc = regret_init(&s->head, r->params, "halt", s->inputs.width, o->fit == FIT_TRAIN, e);
    return rc < 0 ? rc : quantiles_init(&s->table, r->params, "halt", RULES_N, e);
}

static void halt_layout(struct route *r, struct arena *a, int rows)
{
    struct halt *s = halt_of(r);
    size_t R = (size_t)rows, L = (size_t)r->L, D = (size_t)s->head.D;
    s->left = arena_zalloc(a, R, 1);
    s->want = arena_zalloc(a, R, 1);
    s->weight = arena_zalloc(a, R, sizeof(real));
    s->low = arena_zalloc(a, R, sizeof(real));
    s->row = arena_zalloc(a, R, sizeof(int32_t));
    s->look = arena_zalloc(a, R * LOOKS, sizeof(real));
    s->x = arena_zalloc(a, R * D, sizeof(real));
    s->score = arena_zalloc(a, R, sizeof(real));
    s->doubt = arena_zalloc(a, R, sizeof(real));
    s->entropy = arena_zalloc(a, R, sizeof(real));
    s->kl = arena_zalloc(a, R, sizeof(real));
    regret_layout(&s->head, a, rows);
    s->input = NULL;
    if (opts_of(r)->fit != FIT_TRAIN)
        return;
    s->input = arena_zalloc(a, L * R * D, sizeof(real));
    s->label = arena_zalloc(a, L * R, sizeof(real));
    s->push = arena_zalloc(a, L * R, sizeof(real));
    s->looks = arena_zalloc(a, L * R * LOOKS, sizeof(real));
    s->pooled = arena_zalloc(a, L * R, sizeof(real));
    quantiles_layout(&s->table, a, (int)(L * R));
}

static void drop_samples(struct halt *s)
{
    mem_free(s->samples.x);
    mem_free(s->samples.score);
    mem_free(s->samples.label);
    s->samples = (struct samples){0};
}

static void halt_release(struct route *r)
{
    struct halt *s = halt_of(r);
    regret_release(&s->head);
    quantiles_release(&s->table);
    drop_samples(s);
}

static void halt_begin(struct route *r)
{
    struct halt *s = halt_of(r);
    memset(s->left, 0, (size_t)r->pass.R);
    for (int i = 0; i < r->pass.R; i++)
        s->low[i] = (real)INFINITY;
    for (int l = 0; l < r->L; l++)
        r->metric[M_EXIT][l] = 0;
    if (r->pass.kind != PASS_TRAIN)
        return;
    regret_begin(&s->head); /* drops what a skipped step has noted */
    quantiles_begin(&s->table);
}

/* ---- decisions ---- */

/* A token leaves when its score is not above this; -infinity: none does. */
static double threshold_of(const struct route *r)
{
    const struct halt *s = halt_of(r);
    const struct pass_inference *p = &r->pass.inference;
    double capacity = p->has_capacity ? p->capacity : opts_of(r)->capacity;
    int rule = opts_of(r)->rule;
    if (capacity >= 1)
        return -(double)INFINITY;
    if (capacity <= 0)
        return (double)INFINITY;
    if (!quantiles_known(&s->table, rule))
        return -(double)INFINITY;
    return quantiles_at(&s->table, rule, capacity) +
           (p->offset != 0 ? p->offset * quantiles_spread(&s->table, rule) : 0);
}

static int reads(const struct halt *s, int look)
{
    return (s->wanted & 1u << look) != 0;
}

static int reads_motion(const struct halt *s)
{
    return (s->wanted & (1u << LOOK_VELOCITY | 1u << LOOK_ACCELERATION | 1u << LOOK_SCALAR |
                         1u << LOOK_TURN)) != 0;
}

/* Scores n listed rows at exit t. */
static void score_rows(struct route *r, int l, int t, int n, const struct stream *st)
{
    struct halt *s = halt_of(r);
    int rule = opts_of(r)->rule, is_regret = rule == RULE_REGRET;
    int doubt = rule == RULE_CONFIDENCE || (is_regret && reads(s, LOOK_CONFIDENCE));
    struct lens_values v = {.doubt = doubt ? s->doubt : NULL,
                            .entropy = reads(s, LOOK_ENTROPY) ? s->entropy : NULL,
                            .kl = reads(s, LOOK_KL) ? s->kl : NULL};
    struct look_rows o = {.route = r,
                          .stream = st,
                          .inputs = &s->inputs,
                          .t = t,
                          .n = n,
                          .has_motion = reads_motion(s),
                          .row = s->row,
                          .doubt = v.doubt,
                          .entropy = v.entropy,
                          .kl = v.kl,
                          .look = s->look,
                          .x = is_regret ? s->x : NULL};
    if (v.doubt || v.entropy || v.kl)
        st->lens.read(st->lens.ctx, l, route_exit(r, t - 1), s->row, n, &v);
    look_read(&o);
    if (is_regret) {
        regret_standardize(&s->head, s->x, (size_t)n);
        regret_predict(&s->head, s->score, s->x, n);
    }
    for (int k = 0; k < n && !is_regret; k++)
        s->score[k] = rule == RULE_RANDOM ? choice_random(r, l, s->row[k])
                                          : s->look[(size_t)k * LOOKS + (size_t)rule_look[rule]];
    st->lens.count(st->lens.ctx, l, s->row, n,
                   (o.has_motion ? LOOK_MOTION_FLOPS * (double)r->C : 0) +
                       (is_regret ? regret_flops(&s->head) : 0));
}

static void record_scores(struct route *r, int l, int n, double tau)
{
    const struct halt *s = halt_of(r);
    for (int k = 0; k < n; k++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)s->row[k];
        const real *look = s->look + (size_t)k * LOOKS;
        r->cell[M_SCORE][cell] = s->low[s->row[k]];
        r->cell[M_TAU][cell] = (real)tau;
        r->cell[M_VELOCITY][cell] = look[LOOK_VELOCITY];
        r->cell[M_ACCELERATION][cell] = look[LOOK_ACCELERATION];
        r->cell[M_TURN][cell] = look[LOOK_TURN];
        r->cell[M_CONFIDENCE][cell] = look[LOOK_CONFIDENCE];
    }
}

/* Rows that are still there, and not forced, leave or stay.  A threshold that decides alone needs
 * no score, and costs nothing. */
static void decide_exit(struct route *r, int l, int t, const struct stream *st)
{
    struct halt *s = halt_of(r);
    double tau = threshold_of(r);
    int n = 0, R = r->pass.R;
    for (int i = 0; i < R; i++)
        if (!s->left[i] && route_forced(r, l, i) < 0)
            s->row[n++] = i;
    if (n == 0 || tau == -(double)INFINITY)
        return;
    if (tau < (double)INFINITY)
        score_rows(r, l, t, n, st);
    for (int k = 0; k < n; k++) {
        int i = s->row[k];
        if (tau < (double)INFINITY && !(s->low[i] <= s->score[k]))
            s->low[i] = s->score[k];
        s->left[i] = !((double)s->low[i] > tau) || tau == (double)INFINITY;
        r->metric[M_EXIT][l] += s->left[i] / (double)R;
    }
    if (r->pass.record && tau < (double)INFINITY)
        record_scores(r, l, n, tau);
}

static void halt_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct halt *s = halt_of(r);
    int R = r->pass.R, training = r->pass.kind == PASS_TRAIN, on = halt_always_on(r, l);
    int t = training ? -1 : exit_before(r, l);
    s->stream = st;
    if (t >= 0)
        decide_exit(r, l, t, st);
    for (int i = 0; i < R; i++) {
        int forced = route_forced(r, l, i);
        s->want[i] = (uint8_t)(forced >= 0 ? forced : on || !s->left[i]);
        if (r->pass.record)
            r->cell[M_EXITED][(size_t)l * (size_t)R + (size_t)i] = s->left[i] && !on;
    }
    plan_from_mask(out, s->want, s->weight, NULL, R, r->pass.kind != PASS_SPARSE);
    out->kv = opts_of(r)->kv == 0 ? KV_ALL : KV_PLAN;
}

static int halt_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    static const char *const rules[RULES_N] = {"regret",     "velocity", "acceleration", "scalar",
                                               "confidence", "kl",       "random"};
    int inside = pass->inference.has_capacity && pass->inference.capacity > 0 &&
                 pass->inference.capacity < 1;
    if (!inside || quantiles_known(&halt_of(r)->table, opts_of(r)->rule))
        return 0;
    return err_set(e, DS_EUSAGE,
                   "capacity=%g: no thresholds of halt.rule=%s are stored; run depthscope "
                   "calibrate MODEL",
                   pass->inference.capacity, rules[opts_of(r)->rule]);
}

/* ---- labels ---- */

/* What the predictor should say of leaving at exit t; NaN where it is not known.  A token without a
 * target has no loss to gain: its regret is 0. */
static real label_of(const struct route *r, const struct losses *x, int t, int i)
{
    size_t here = (size_t)route_exit(r, t) * (size_t)x->R + (size_t)i;
    size_t last = (size_t)route_exit(r, end_exit(r)) * (size_t)x->R + (size_t)i;
    if (route_exit(r, t) >= r->pass.stop) /* a shorter loop in this step */
        return (real)NAN;
    if (opts_of(r)->label == LABEL_AGREE)
        return x->exit_best[here] != x->exit_best[last];
    if (x->target[i] < 0)
        return 0;
    double regret = (double)x->exit_nll[here] - (double)x->exit_nll[last];
    if (isnan(regret)) /* the head has no row for this target */
        return (real)NAN;
    return (real)fmin(fmax(regret, regret_low), regret_high);
}

/* All features of all rows at exit t, from a pass that ran every layer. */
static void read_exit(const struct route *r, const struct stream *st, const struct losses *x, int t,
                      real *look, real *input)
{
    size_t at = (size_t)route_exit(r, t) * (size_t)x->R;
    struct look_rows o = {.route = r,
                          .stream = st,
                          .inputs = &halt_of(r)->inputs,
                          .t = t,
                          .n = x->R,
                          .has_motion = 1,
                          .doubt = x->exit_doubt + at,
                          .entropy = x->exit_entropy + at,
                          .kl = x->exit_kl + at,
                          .look = look,
                          .x = input};
    look_read(&o);
}

static real score_by(const struct route *r, int rule, int t, int i, const real *look)
{
    return rule == RULE_RANDOM ? choice_random(r, route_exit(r, t), i) : look[rule_look[rule]];
}

/* ---- learning while the model trains ---- */

static real *cells_of(const struct route *r, real *table, int t, size_t width)
{
    return table + (size_t)(t - first_exit(r)) * (size_t)r->pass.R * width;
}

/* Running minima of one rule's scores over the exits, into the stored quantiles. */
static void note_rule(struct route *r, int rule)
{
    struct halt *s = halt_of(r);
    int R = r->pass.R, n = (end_exit(r) - first_exit(r)) * R;
    for (int c = R; c < n; c++)
        if (!(s->pooled[c] < s->pooled[c - R]))
            s->pooled[c] = s->pooled[c - R];
    quantiles_note(&s->table, rule, s->pooled, n);
}

/* Fills inputs and labels of every exit, and updates the statistics of the step. */
static void collect_step(struct route *r, const struct losses *x)
{
    struct halt *s = halt_of(r);
    int R = r->pass.R;
    for (int t = first_exit(r); t < end_exit(r); t++) {
        real *input = cells_of(r, s->input, t, (size_t)s->head.D);
        read_exit(r, s->stream, x, t, cells_of(r, s->looks, t, LOOKS), input);
        for (int i = 0; i < R; i++)
            cells_of(r, s->label, t, 1)[i] = label_of(r, x, t, i);
        regret_note(&s->head, input, R);
    }
    for (int rule = 1; rule < RULES_N; rule++) {
        for (int t = first_exit(r); t < end_exit(r); t++)
            for (int i = 0; i < R; i++)
                cells_of(r, s->pooled, t, 1)[i] =
                    score_by(r, rule, t, i, cells_of(r, s->looks, t, LOOKS) + (size_t)i * LOOKS);
        note_rule(r, rule);
    }
    regret_standardize(&s->head, s->input, (size_t)R * (size_t)(end_exit(r) - first_exit(r)));
}

/* Mean squared error over the labelled cells; a replay keeps inputs and labels. */
static void halt_aux(struct route *r, struct losses *x)
{
    struct halt *s = halt_of(r);
    int R = r->pass.R, exits = end_exit(r) - first_exit(r), known = 0;
    double sum = 0, mean = 0, square = 0, weight = opts_of(r)->aux;
    if (opts_of(r)->fit != FIT_TRAIN)
        return;
    if (!r->frozen)
        collect_step(r, x);
    for (int c = 0; c < exits * R; c++)
        known += isfinite(s->label[c]) != 0;
    for (int t = first_exit(r); t < end_exit(r); t++) {
        real *y = cells_of(r, s->pooled, t, 1), *push = cells_of(r, s->push, t, 1);
        const real *label = cells_of(r, s->label, t, 1);
        regret_predict(&s->head, y, cells_of(r, s->input, t, (size_t)s->head.D), R);
        for (int i = 0; i < R; i++) {
            double miss = isfinite(label[i]) ? (double)y[i] - (double)label[i] : 0;
            push[i] = (real)(weight * 2 * miss / (known ? known : 1));
            sum += miss * miss / (known ? known : 1);
            mean += isfinite(label[i]) ? (double)label[i] / known : 0;
            square += isfinite(label[i]) ? (double)label[i] * (double)label[i] / known : 0;
        }
    }
    if (!r->frozen)
        note_rule(r, RULE_REGRET);
    x->aux = weight * sum;
    r->metric[M_LOSS][0] = sum;
    r->metric[M_EXPLAINED][0] =
        square > mean * mean ? 1 - sum / (square - mean * mean) : (double)NAN;
}

static void halt_decide_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                            struct stream *st)
{
    struct halt *s = halt_of(r);
    int t = opts_of(r)->fit == FIT_TRAIN ? exit_before(r, l) : -1;
    (void)p;
    (void)dgate;
    (void)st;
    if (t >= 0)
        regret_bwd(&s->head, cells_of(r, s->push, t, 1),
                   cells_of(r, s->input, t, (size_t)s->head.D), r->pass.R);
}

static void halt_counts(struct route *r, route_count_fn *each, void *ctx)
{
    if (opts_of(r)->fit != FIT_TRAIN)
        return;
    regret_counts(&halt_of(r)->head, each, ctx);
    quantiles_counts(&halt_of(r)->table, each, ctx);
}

static void halt_update(struct route *r)
{
    struct halt *s = halt_of(r);
    if (opts_of(r)->fit != FIT_TRAIN)
        return;
    regret_update(&s->head, opts_of(r)->ema);
    quantiles_update(&s->table, opts_of(r)->ema);
}

/* ---- calibration ---- */

static int reserve_samples(struct route *r, int64_t planned, struct err *e)
{
    struct samples *y = &halt_of(r)->samples;
    size_t D = (size_t)halt_of(r)->head.D, exits = (size_t)(end_exit(r) - first_exit(r));
    size_t each = exits * (D + RULES_N + 1) * sizeof(real), most = SAMPLE_BYTES / each + 1;
    y->cap = planned < (int64_t)most ? (size_t)planned : most;
    y->x = mem_alloc(y->cap * exits * D, sizeof(real));
    y->score = mem_alloc(y->cap * exits * RULES_N, sizeof(real));
    y->label = mem_alloc(y->cap * exits, sizeof(real));
    if (y->x && y->score && y->label)
        return 0;
    int rc = err_set(e, DS_EMEM, "out of memory for samples of %zu tokens", y->cap);
    drop_samples(halt_of(r));
    return rc;
}

/* Every token, or a random share of them when they are too many. */
static int halt_observe(struct route *r, const struct stream *st, const struct losses *x,
                        struct err *e)
{
    struct halt *s = halt_of(r);
    struct samples *y = &s->samples;
    size_t D = (size_t)s->head.D, exits = (size_t)(end_exit(r) - first_exit(r)), n = y->n;
    int rc = y->x ? 0 : reserve_samples(r, x->planned, e);
    if (rc < 0)
        return rc;
    double share = (double)y->cap / (double)x->planned;
    for (int t = first_exit(r); t < end_exit(r); t++) {
        uint64_t seen = y->seen;
        n = y->n;
        read_exit(r, st, x, t, s->look, s->x);
        for (int i = 0; i < x->R && n < y->cap; i++, seen++) {
            size_t cell = n * exits + (size_t)(t - first_exit(r));
            if (share < 1 &&
                rng_at(r->pass.seed, RNG_ROUTE, seen >> 32, 1, (uint32_t)seen) >= share)
                continue;
            memcpy(y->x + cell * D, s->x + (size_t)i * D, D * sizeof(real));
            for (int rule = 1; rule < RULES_N; rule++)
                y->score[cell * RULES_N + (size_t)rule] =
                    score_by(r, rule, t, i, s->look + (size_t)i * LOOKS);
            y->label[cell] = label_of(r, x, t, i);
            n++;
        }
    }
    y->seen += (uint64_t)x->R;
    y->n = n;
    return 0;
}

/* Predicted regret of the samples; y->x is standardised. */
static void predict_samples(struct route *r, size_t cells)
{
    struct halt *s = halt_of(r);
    struct samples *y = &s->samples;
    for (size_t at = 0; at < cells; at += (size_t)r->R_max) {
        int n = cells - at < (size_t)r->R_max ? (int)(cells - at) : r->R_max;
        regret_predict(&s->head, s->score, y->x + at * (size_t)s->head.D, n);
        for (int k = 0; k < n; k++)
            y->score[(at + (size_t)k) * RULES_N + RULE_REGRET] = s->score[k];
    }
}

/* Thresholds of every rule from all samples at once; workspace for `cells` values each. */
static void store_thresholds(struct route *r, real *low, real *sorted, size_t cells)
{
    struct halt *s = halt_of(r);
    const struct samples *y = &s->samples;
    size_t exits = (size_t)(end_exit(r) - first_exit(r));
    struct quantiles all = s->table; /* the same sums, another workspace */
    all.sorted = sorted;
    all.R_max = (int)cells;
    quantiles_begin(&all);
    for (int rule = 0; rule < RULES_N; rule++) {
        for (size_t c = 0; c < cells; c++) {
            low[c] = y->score[c * RULES_N + (size_t)rule];
            if (c % exits > 0 && !(low[c] < low[c - 1]))
                low[c] = low[c - 1];
        }
        quantiles_note(&all, rule, low, (int)cells);
    }
    quantiles_store(&all);
}

/* All memory is there before anything is stored. */
static int learn(struct route *r, struct err *e)
{
    struct halt *s = halt_of(r);
    struct samples *y = &s->samples;
    size_t cells = y->n * (size_t)(end_exit(r) - first_exit(r));
    real *low = mem_alloc(cells + 1, sizeof *low), *sorted = mem_alloc(cells + 1, sizeof *sorted);
    int rc = low && sorted ? 0 : err_set(e, DS_EMEM, "out of memory for %zu cells", cells);
    if (rc == 0 && opts_of(r)->fit == FIT_TRAIN)
        regret_standardize(&s->head, y->x, cells);
    else if (rc == 0)
        rc = regret_fit(&s->head, y->x, y->label, cells, (int)opts_of(r)->steps, r->pass.seed,
                        &r->metric[M_EXPLAINED][0], e);
    if (rc == 0) {
        predict_samples(r, cells);
        store_thresholds(r, low, sorted, cells);
        params_changed(r->params);
    }
    mem_free(low);
    mem_free(sorted);
    return rc;
}

static int halt_calibrate(struct route *r, int begin, struct err *e)
{
    int rc = begin ? 0 : learn(r, e);
    drop_samples(halt_of(r));
    return rc;
}

const struct route_ops route_halt = {
    .name = "halt",
    .summary = "halting by regret: a token leaves when more depth would not lower its loss",
    .paper = "regret label: this program; rules: Ouro arXiv 2510.25741, arXiv 2509.23314, CALM "
             "arXiv 2207.07061",
    .flags = ROUTE_GATED | ROUTE_GRAD | ROUTE_CAPACITY | ROUTE_EXITS,
    .opts_size = sizeof(struct halt_opts),
    .state_size = sizeof(struct halt),
    .opts = halt_opts_table,
    .n_opts = DS_LEN(halt_opts_table),
    .metrics = halt_metrics,
    .n_metrics = DS_LEN(halt_metrics),
    .init = halt_init,
    .layout = halt_layout,
    .begin = halt_begin,
    .decide = halt_decide,
    .aux = halt_aux,
    .decide_bwd = halt_decide_bwd,
    .counts = halt_counts,
    .update = halt_update,
    .changed = check,
    .ready = halt_ready,
    .calibrate = halt_calibrate,
    .observe = halt_observe,
    .always_on = halt_always_on,
    .release = halt_release,
};
