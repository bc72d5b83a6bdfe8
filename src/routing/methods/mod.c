/* mod: Mixture of Depths (Raposo et al. 2024).  Every k-th block runs only a share of a document's
 * tokens, those with the highest router logits; their increment is multiplied by a gate computed
 * from the same logit.
 *
 *   r = w . x  (x: block input)    training: k = max(1, floor(capacity n)) highest r of a document
 *   y = x + g(r) f(x)              g = r, sigmoid(r) or 2 sigmoid(r);  the rank has no gradient
 *
 * A rank needs the whole document.  Inference decides token by token:
 *   router     r > 0, trained with the binary cross-entropy of r to membership in the top k
 *   predictor  p(x) > 0, a small network on the detached x, trained in the same way
 *   threshold  r > the stored quantile of r at the capacity; adds nothing to the loss */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/arena.h"
#include "base/mem.h"
#include "routing/membership.h"
#include "routing/rank.h"
#include "routing/route.h"
#include "routing/scorer.h"

enum { CAUSAL_ROUTER, CAUSAL_PREDICTOR, CAUSAL_THRESHOLD };
enum { ROUTER, PREDICTOR, NETS };
static const char *const net_name[NETS] = {"router", "predictor"};

struct mod_opts {
    int64_t every, first, width;
    int gate, stochastic, causal, predictor_only, kv, normalize;
    double capacity, aux_weight, predictor_weight, balance_weight, z_weight, ema, init_std;
};

struct mod {
    int first, routed; /* first routed layer; number of routed layers */
    int nets;          /* 1: the router; 2: and a predictor */
    struct scorer net[NETS];
    struct quantiles table[NETS];
    const struct stream *stream; /* of the current pass */
    real *logit[NETS];           /* (L,R) */
    real *noise;                 /* (L,R) ranked and compared in place of the logits, or NULL */
    uint8_t *target;             /* (L,R) 1 = among the top k */
    uint8_t *is_known;           /* (L) the ranks of this pass were computed */
    uint8_t *want;               /* (R) */
    real *weight, *push;         /* (R) the plan's weights; d loss / d logit */
    struct tally *tally;         /* (L) of this pass */
    double nan;
};

#define AT(field) offsetof(struct mod_opts, field)
static const struct opt mod_opts_table[] = {
    // clang-format off
    {"capacity", OPT_REAL, AT(capacity), "0.125", 0, 1, NULL,
     "share of a document's tokens that run a routed block", "mod_capacity", .is_live = 1},
    {"every", OPT_INT, AT(every), "2", 1, 4096, NULL,
     "every k-th block is routed; the others run all tokens", "router_skip_blocks"},
    {"first", OPT_INT, AT(first), "-1", -1, 4095, NULL,
     "first routed block; -1 = every - 1 (blocks 1, 3, 5, ... of every=2)"},
    {"gate", OPT_ENUM, AT(gate), "sigmoid", 0, 0, SCORE_GATES,
     "factor on a block's increment: r as in the paper; sigmoid(r); 2 sigmoid(r), near 1 at "
     "initialisation, for transfer"},
    {"stochastic", OPT_BOOL, AT(stochastic), "false", 0, 0, NULL,
     "control: ranks Gaussian noise in place of the router's logits, in training and at inference; "
     "mod.causal is ignored"},
    {"causal", OPT_ENUM, AT(causal), "predictor", 0, 0, "router|predictor|threshold",
     "inference-time decisions: r > 0, trained by a loss on the router (paper's first way); a "
     "predictor's logit > 0 (its second); r above its stored quantile"},
    {"aux_weight", OPT_REAL, AT(aux_weight), "0.01", 0, 1000, NULL,
     "causal=router: weight of the router's cross-entropy to the ranks, mean over tokens and "
     "blocks (published: 0.01, and 1, which hurts small models)", "mod.router_aux_loss_weight"},
    {"predictor_weight", OPT_REAL, AT(predictor_weight), "0.01", 0, 1000, NULL,
     "causal=predictor: weight of its cross-entropy, mean over tokens and blocks (published: 1 and "
     "0.01)", "mod.causal_router_loss_weight"},
    {"predictor_only", OPT_BOOL, AT(predictor_only), "false", 0, 0, NULL,
     "freezes everything but the predictors, to train them on a finished model (train.init)"},
    {"width", OPT_INT, AT(width), "0", 0, 65536, NULL,
     "hidden units of a predictor; 0 = half of model.dim"},
    {"balance_weight", OPT_REAL, AT(balance_weight), "0", 0, 1000, NULL,
     "weight of (mean sigmoid(r) - k/T)^2, mean over blocks (published: 0.01, effectively 0.0001); "
     "ranks need none", "mod_aux_loss_weight"},
    {"z_weight", OPT_REAL, AT(z_weight), "1e-4", 0, 1000, NULL,
     "weight of mean r^2, mean over blocks", "mod.z_loss_weight"},
    {"normalize", OPT_BOOL, AT(normalize), "false", 0, 0, NULL,
     "routers and predictors read x / rms(x), not x", "mod.normalise"},
    {"kv", OPT_ENUM, AT(kv), "plan", 0, 0, "all|plan",
     "keys in a routed block: every token, or only those that run it; where a query looks something "
     "up (hops), use all: with plan it cannot see what skipped the block"},
    {"ema", OPT_REAL, AT(ema), "0.95", 0, 0.99999, NULL, "decay of the stored quantiles"},
    {"init_std", OPT_REAL, AT(init_std), "0.02", 0, 100, NULL,
     "standard deviation of the routers' and predictors' initial weights"},
    // clang-format on
};

enum {
    M_LOSS,
    M_ACCURACY,
    M_BASE,
    M_SHARE,
    M_BALANCE,
    M_Z,
    M_NAN,
    M_MEAN,
    M_SD,
    M_GATE_MEAN,
    M_SELECTED,
    M_CAUSAL,
    M_PRECISION,
    M_RECALL,
    M_F1,
    M_BAR,
    M_SCORE,
    M_TAU,
    M_GATE,
    M_TOPK,
    M_ROUTER,
};
static const struct metric mod_metrics[] = {
    // clang-format off
    [M_LOSS] = {"causal_loss", "nats",
     "cross-entropy of the causal decision's logit to membership in the top k", METRIC_STEP},
    [M_ACCURACY] = {"causal_accuracy", "",
     "share of cells where the causal decision agrees with the rank", METRIC_STEP},
    [M_BASE] = {"causal_base_rate", "",
     "accuracy of always predicting the majority class", METRIC_STEP},
    [M_SHARE] = {"causal_share", "",
     "share of tokens that routed blocks would run at inference", METRIC_STEP},
    [M_BALANCE] = {"balance_loss", "", "(mean sigmoid(r) - k/T)^2, unweighted", METRIC_STEP},
    [M_Z] = {"z_loss", "", "mean r^2, unweighted", METRIC_STEP},
    [M_NAN] = {"nan_scores", "", "NaN router logits: they rank last", METRIC_STEP, .is_sum = 1},
    [M_MEAN] = {"router_mean", "", "mean router logit", METRIC_LAYER},
    [M_SD] = {"router_sd", "", "standard deviation of the router logit", METRIC_LAYER},
    [M_GATE_MEAN] = {"gate_mean", "", "mean gate of executed tokens", METRIC_LAYER},
    [M_SELECTED] = {"selected", "", "share of tokens that the rank selects", METRIC_LAYER},
    [M_CAUSAL] = {"causal_share", "",
     "share of tokens that the block would run at inference", METRIC_LAYER},
    [M_PRECISION] = {"causal_precision", "",
     "share of the tokens run at inference that the rank selects too", METRIC_LAYER},
    [M_RECALL] = {"causal_recall", "",
     "share of the tokens selected by rank that are run at inference", METRIC_LAYER},
    [M_F1] = {"causal_f1", "", "harmonic mean of precision and recall", METRIC_LAYER},
    [M_BAR] = {"threshold", "", "logit above which the block runs at inference", METRIC_LAYER},
    [M_SCORE] = {"score", "",
     "logit that decides at inference: the router's, the predictor's, or noise", METRIC_CELL},
    [M_TAU] = {"threshold", "", "threshold that the score is compared with", METRIC_CELL},
    [M_GATE] = {"gate", "", "sigmoid of the router logit", METRIC_CELL},
    [M_TOPK] = {"topk", "", "1 = among the k highest of its document", METRIC_CELL},
    [M_ROUTER] = {"router", "", "router logit", METRIC_CELL},
    // clang-format on
};

static struct mod *mod_of(const struct route *r)
{
    return r->state;
}

static const struct mod_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int is_routed(const struct route *r, int l)
{
    int first = mod_of(r)->first;
    return l >= first && (l - first) % opts_of(r)->every == 0;
}

static int mod_always_on(const struct route *r, int l)
{
    return !is_routed(r, l);
}

static int has_predictor(const struct route *r)
{
    return opts_of(r)->causal == CAUSAL_PREDICTOR && !opts_of(r)->stochastic;
}

/* ---- set-up ---- */

static int check(const struct route *r, int first, struct err *e)
{
    const struct mod_opts *o = opts_of(r);
    if (first >= r->L)
        return err_set(e, DS_ERANGE,
                       "mod.every=%lld routes no block: the first is %d of model.layers=%d",
                       (long long)o->every, first, r->L);
    if (o->predictor_only && !has_predictor(r))
        return err_set(
            e, DS_EUSAGE,
            "mod.predictor_only=true needs mod.causal=predictor and mod.stochastic=false");
    if (has_predictor(r) && o->predictor_weight <= 0)
        return err_set(e, DS_ERANGE,
                       "mod.predictor_weight: must be greater than 0 with mod.causal=predictor");
    if (o->causal == CAUSAL_ROUTER && !o->stochastic && o->aux_weight <= 0)
        return err_set(e, DS_ERANGE,
                       "mod.aux_weight: must be greater than 0 with mod.causal=router, as nothing "
                       "else teaches "
                       "r > 0 the rank; mod.causal=threshold needs none");
    return 0;
}

static int add_net(struct route *r, int k, struct err *e)
{
    const struct mod_opts *o = opts_of(r);
    struct mod *s = mod_of(r);
    int hidden = o->width > 0 ? (int)o->width : (r->C + 1) / 2;
    struct mlp_shape line = {.n = 1, .dim = {r->C, 1}, .std = o->init_std};
    struct mlp_shape small = {
        .n = 2, .dim = {r->C, hidden, 1}, .act = MLP_ACT_SILU, .std = o->init_std};
    char prefix[32];
    snprintf(prefix, sizeof prefix, "mod.%s", net_name[k]);
    int rc = scorer_init(&s->net[k], r->L, r->C, o->normalize, e);
    for (int l = s->first; l < r->L && rc == 0; l += (int)o->every)
        rc = scorer_add(&s->net[k], r->params, "mod", net_name[k], l, k == ROUTER ? &line : &small,
                        k == PREDICTOR || !o->predictor_only, e);
    return rc < 0 ? rc : quantiles_init(&s->table[k], r->params, prefix, r->L, e);
}

static int mod_init(struct route *r, struct err *e)
{
    const struct mod_opts *o = opts_of(r);
    struct mod *s = mod_of(r);
    s->first = (int)(o->first < 0 ? o->every - 1 : o->first);
    s->nets = has_predictor(r) ? 2 : 1;
    int rc = check(r, s->first, e);
    if (rc < 0)
        return rc;
    s->routed = (r->L - 1 - s->first) / (int)o->every + 1;
    /* routers are frozen too: a predictor cannot learn ranks that keep changing */
    for (int i = 0; o->predictor_only && i < r->params->n; i++)
        r->params->p[i].train = 0;
    for (int k = 0; k < s->nets && rc == 0; k++)
        rc = add_net(r, k, e);
    return rc;
}

/* Called once to measure and once to allocate. */
static void mod_layout(struct route *r, struct arena *a, int rows)
{
    struct mod *s = mod_of(r);
    size_t R = (size_t)rows, L = (size_t)r->L;
    for (int k = 0; k < s->nets; k++)
        s->logit[k] = arena_alloc(a, L * R, sizeof(real));
    s->noise = opts_of(r)->stochastic ? arena_alloc(a, L * R, sizeof(real)) : NULL;
    s->tally = arena_alloc(a, L, sizeof *s->tally);
    s->is_known = arena_alloc(a, L, 1);
    s->target = arena_alloc(a, L * R, 1);
    s->want = arena_alloc(a, R, 1);
    s->weight = arena_alloc(a, R, sizeof(real));
    s->push = arena_alloc(a, R, sizeof(real));
    for (int k = 0; k < s->nets; k++) {
        scorer_layout(&s->net[k], a, rows);
        quantiles_layout(&s->table[k], a, rows);
    }
}

static void mod_release(struct route *r)
{
    struct mod *s = mod_of(r);
    for (int k = 0; k < NETS; k++) {
        scorer_release(&s->net[k]);
        quantiles_release(&s->table[k]);
    }
}

/* ---- scores ---- */

static size_t cell_of(const struct route *r, int l, int i)
{
    return (size_t)l * (size_t)r->pass.R + (size_t)i;
}

/* The scores that are ranked, and those compared at inference. */
static const real *ranked(const struct route *r, int l)
{
    const struct mod *s = mod_of(r);
    return (s->noise ? s->noise : s->logit[ROUTER]) + cell_of(r, l, 0);
}

static const real *compared(const struct route *r, int l)
{
    const struct mod *s = mod_of(r);
    return (s->noise ? s->noise : s->logit[s->nets - 1]) + cell_of(r, l, 0);
}

static struct quantiles *table_of(const struct route *r)
{
    struct mod *s = mod_of(r);
    return &s->table[s->nets - 1];
}

static void score_rows(struct route *r, int l, const struct stream *st)
{
    struct mod *s = mod_of(r);
    size_t at = cell_of(r, l, 0);
    s->stream = st;
    for (int k = 0; k < s->nets; k++)
        scorer_fwd(&s->net[k], l, s->logit[k] + at, st->h[l], r->pass.R);
    if (has_predictor(r) && r->pass.soft)
        scorer_keep(&s->net[PREDICTOR], l, st->h[l], r->pass.R);
    if (s->noise)
        rank_noise(r, l, s->noise + at);
}

static double capacity_of(const struct route *r)
{
    return r->pass.kind != PASS_TRAIN && r->pass.inference.has_capacity ? r->pass.inference.capacity
                                                                        : opts_of(r)->capacity;
}

/* At inference a token runs when its score is above this. */
static double threshold_of(struct route *r, int l)
{
    const struct mod_opts *o = opts_of(r);
    struct quantiles *q = table_of(r);
    double capacity = capacity_of(r), tau = 0;
    if (r->pass.inference.calibrate && !o->stochastic)
        return quantiles_calibrate(q, l, r->pass.inference.calibrate - 1, compared(r, l),
                                   r->pass.R);
    if (capacity <= 0)
        return (double)INFINITY;
    if (capacity >= 1)
        return -(double)INFINITY;
    if (o->stochastic)
        tau = rank_noise_above(capacity);
    else if ((r->pass.inference.has_capacity || o->causal == CAUSAL_THRESHOLD) &&
             quantiles_known(q, l))
        tau = quantiles_at(q, l, capacity);
    if (r->pass.inference.offset != 0)
        tau += r->pass.inference.offset * (o->stochastic ? 1 : quantiles_spread(q, l));
    return tau;
}

/* ---- decisions ---- */

static void mod_begin(struct route *r)
{
    struct mod *s = mod_of(r);
    s->nan = 0;
    memset(s->tally, 0, (size_t)r->L * sizeof *s->tally);
    memset(s->is_known, 0, (size_t)r->L);
    if (r->pass.kind != PASS_TRAIN)
        return;
    for (int k = 0; k < s->nets; k++)
        quantiles_begin(&s->table[k]);
}

/* Sets want: the rows of layer l that run. */
static void choose(struct route *r, int l, double tau)
{
    struct mod *s = mod_of(r);
    const real *score = compared(r, l);
    if (r->pass.kind == PASS_TRAIN || r->pass.inference.topk) {
        s->nan += rank_topk(r, l, ranked(r, l), capacity_of(r), s->want);
        return;
    }
    for (int i = 0; i < r->pass.R; i++) {
        int forced = route_forced(r, l, i);
        s->want[i] =
            (uint8_t)(forced >= 0 ? forced : tau == -(double)INFINITY || (double)score[i] > tau);
    }
}

/* Sets the gates of executed rows from their logits. */
static void set_gates(const struct route *r, int l, struct plan *out)
{
    const real *logit = mod_of(r)->logit[ROUTER] + cell_of(r, l, 0);
    out->active = 0;
    for (int k = 0; k < out->n; k++) {
        if (out->gate[k] != 0)
            out->gate[k] = score_gate((enum score_gate)opts_of(r)->gate, logit[out->row[k]]);
        out->active += out->gate[k] != 0;
    }
}

/* Builds the plan from want.  A skipped or forced row gives its gate no gradient. */
static void make_plan(struct route *r, int l, struct plan *out, int all_rows)
{
    struct mod *s = mod_of(r);
    int routed = is_routed(r, l);
    for (int i = 0; i < r->pass.R; i++)
        s->weight[i] = routed && s->want[i] && route_forced(r, l, i) < 0;
    plan_from_mask(out, s->want, s->weight, NULL, r->pass.R, all_rows);
    out->kv = opts_of(r)->kv == 1 ? KV_PLAN : KV_ALL;
    if (routed)
        set_gates(r, l, out);
}

static void layer_metrics(struct route *r, int l, const struct plan *p, double tau)
{
    const struct tally *t = &mod_of(r)->tally[l];
    const real *logit = mod_of(r)->logit[ROUTER] + cell_of(r, l, 0);
    double sum = 0, square = 0, gate = 0;
    for (int i = 0; i < r->pass.R; i++) {
        sum += (double)logit[i];
        square += (double)logit[i] * (double)logit[i];
    }
    for (int k = 0; k < p->n; k++)
        gate += (double)p->gate[k];
    double n = r->pass.R, mean = sum / n, var = square / n - mean * mean;
    r->metric[M_MEAN][l] = mean;
    r->metric[M_SD][l] = sqrt(var > 0 ? var : 0);
    r->metric[M_GATE_MEAN][l] = gate / p->active;
    r->metric[M_SELECTED][l] = p->active / n;
    r->metric[M_CAUSAL][l] = tally_predicted_rate(t);
    r->metric[M_PRECISION][l] = tally_precision(t);
    r->metric[M_RECALL][l] = tally_recall(t);
    r->metric[M_F1][l] = tally_f1(t);
    r->metric[M_BAR][l] = tau;
}

static void block_metrics(struct route *r, int l)
{
    for (int k = M_MEAN; k <= M_BAR; k++)
        r->metric[k][l] = (double)NAN;
    r->metric[M_SELECTED][l] = r->metric[M_CAUSAL][l] = 1;
}

/* A continued document has no rank, as its beginning is not in this pass. */
static void record_cells(struct route *r, int l, double tau)
{
    const struct mod *s = mod_of(r);
    int is_whole = r->pass.R > 0 && r->pass.pos[0] == 0;
    for (int i = 0; i < r->pass.R; i++) {
        size_t cell = cell_of(r, l, i);
        r->cell[M_SCORE][cell] = compared(r, l)[i];
        r->cell[M_TAU][cell] = (real)tau;
        r->cell[M_GATE][cell] = score_gate(SCORE_SIGMOID, s->logit[ROUTER][cell]);
        r->cell[M_ROUTER][cell] = s->logit[ROUTER][cell];
        if (is_whole)
            r->cell[M_TOPK][cell] = s->target[cell];
    }
}

/* A block that is not routed runs every token that the pass does not force off. */
static void decide_block(struct route *r, int l, struct plan *out, int all_rows)
{
    struct mod *s = mod_of(r);
    for (int i = 0; i < r->pass.R; i++) {
        s->want[i] = route_forced(r, l, i) != 0;
        if (r->pass.record)
            r->cell[M_GATE][cell_of(r, l, i)] = s->want[i];
    }
    if (r->pass.kind == PASS_TRAIN)
        block_metrics(r, l);
    make_plan(r, l, out, all_rows);
}

static void mod_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct mod *s = mod_of(r);
    int training = r->pass.kind == PASS_TRAIN,
        all_rows = r->pass.kind == PASS_MASKED || r->pass.soft;
    if (!is_routed(r, l)) {
        decide_block(r, l, out, all_rows);
        return;
    }
    score_rows(r, l, st);
    double tau = threshold_of(r, l);
    s->is_known[l] = training || r->pass.record;
    if (s->is_known[l])
        rank_target(r, ranked(r, l), capacity_of(r), s->target + cell_of(r, l, 0));
    choose(r, l, tau);
    make_plan(r, l, out, all_rows);
    if (r->pass.record)
        record_cells(r, l, tau);
    if (!training)
        return;
    tally_add(&s->tally[l], compared(r, l), tau, s->target + cell_of(r, l, 0), r->pass.R);
    layer_metrics(r, l, out, tau);
    for (int k = 0; k < s->nets; k++)
        quantiles_note(&s->table[k], l, s->logit[k] + cell_of(r, l, 0), r->pass.R);
}

/* A gradient check fixes the rows: the router reads the residual stream anew, the predictor its
 * original input. */
static void mod_regate(struct route *r, int l, struct plan *out)
{
    struct mod *s = mod_of(r);
    size_t at = cell_of(r, l, 0);
    if (!is_routed(r, l) || r->pass.unit)
        return;
    scorer_fwd(&s->net[ROUTER], l, s->logit[ROUTER] + at, s->stream->h[l], r->pass.R);
    if (has_predictor(r))
        scorer_rescore(&s->net[PREDICTOR], l, s->logit[PREDICTOR] + at, r->pass.R);
    set_gates(r, l, out);
}

/* Step metrics describe the training pass. */
static void mod_finish(struct route *r, const struct stream *st)
{
    const struct mod *s = mod_of(r);
    struct tally all = {0};
    (void)st;
    if (r->pass.kind != PASS_TRAIN)
        return;
    for (int l = 0; l < r->L; l++)
        tally_merge(&all, &s->tally[l]);
    r->metric[M_ACCURACY][0] = tally_accuracy(&all);
    r->metric[M_BASE][0] = tally_base_rate(&all);
    r->metric[M_SHARE][0] = tally_predicted_rate(&all);
    r->metric[M_NAN][0] = s->nan;
}

/* ---- penalties ---- */

/* The ranks that layer l is trained against; NULL when they were not computed. */
static const uint8_t *target_of(const struct route *r, int l)
{
    const struct mod *s = mod_of(r);
    return s->is_known[l] ? s->target + cell_of(r, l, 0) : NULL;
}

/* Weights of one layer's penalties on this network's logits. */
static struct membership_loss price_of(const struct route *r, int net)
{
    const struct mod_opts *o = opts_of(r);
    double n = mod_of(r)->routed;
    if (net == PREDICTOR)
        return (struct membership_loss){.entropy = o->predictor_weight / n};
    int is_taught = o->causal == CAUSAL_ROUTER && !o->stochastic;
    return (struct membership_loss){.entropy = is_taught ? o->aux_weight / n : 0,
                                    .balance = o->balance_weight / n,
                                    .z = o->z_weight / n};
}

static void mod_aux(struct route *r, struct losses *x)
{
    const struct mod *s = mod_of(r);
    struct membership_loss m[NETS] = {{0}}, price = {0};
    double entropy = 0, balance = 0, z = 0, open = 0;
    for (int l = s->first; l < r->L; l += (int)opts_of(r)->every) {
        if (route_is_closed(r, l))
            continue;
        open++;
        for (int k = 0; k < s->nets; k++) {
            price = price_of(r, k);
            m[k] = membership_loss(s->logit[k] + cell_of(r, l, 0), target_of(r, l), r->pass.R);
            x->aux += membership_total(&m[k], &price);
        }
        entropy += m[s->nets - 1].entropy;
        balance += m[ROUTER].balance;
        z += m[ROUTER].z;
    }
    r->metric[M_LOSS][0] = price.entropy > 0 ? entropy / open : (double)NAN;
    r->metric[M_BALANCE][0] = balance / open;
    r->metric[M_Z][0] = z / open;
}

/* Penalties reach the logits of all rows, gate gradients only executed rows.  The predictor's input
 * is detached. */
static void mod_decide_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                           struct stream *st)
{
    struct mod *s = mod_of(r);
    enum score_gate kind = (enum score_gate)opts_of(r)->gate;
    for (int k = 0; k < s->nets && is_routed(r, l); k++) {
        struct membership_loss price = price_of(r, k);
        const real *logit = s->logit[k] + cell_of(r, l, 0);
        memset(s->push, 0, (size_t)r->pass.R * sizeof *s->push);
        membership_bwd(s->push, &price, logit, target_of(r, l), r->pass.R);
        for (int i = 0; k == ROUTER && i < p->n; i++)
            s->push[p->row[i]] += dgate[i] * score_gate_slope(kind, logit[p->row[i]]);
        scorer_bwd(&s->net[k], l, k == ROUTER ? st->dh[l] : NULL, s->push, st->h[l], r->pass.R);
    }
}

/* ---- between passes ---- */

static void mod_counts(struct route *r, route_count_fn *each, void *ctx)
{
    for (int k = 0; k < mod_of(r)->nets; k++)
        quantiles_counts(&mod_of(r)->table[k], each, ctx);
}

static void mod_update(struct route *r)
{
    struct mod *s = mod_of(r);
    for (int k = 0; k < s->nets; k++)
        quantiles_update(&s->table[k], opts_of(r)->ema);
}

static int mod_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    const struct mod *s = mod_of(r);
    double capacity =
        pass->inference.has_capacity ? pass->inference.capacity : opts_of(r)->capacity;
    if (!(pass->inference.has_capacity || opts_of(r)->causal == CAUSAL_THRESHOLD) ||
        capacity <= 0 || capacity >= 1 || pass->inference.topk || pass->inference.calibrate)
        return 0;
    for (int l = s->first; l < r->L && !opts_of(r)->stochastic; l += (int)opts_of(r)->every)
        if (!quantiles_known(table_of(r), l))
            return err_set(
                e, DS_EUSAGE,
                "mod: block %d has no thresholds for capacity=%g; run depthscope calibrate MODEL",
                l, capacity);
    return 0;
}

static int mod_calibrate(struct route *r, int begin, struct err *e)
{
    (void)e;
    (begin ? quantiles_begin : quantiles_store)(table_of(r));
    return 0;
}

static double mod_flops(const struct route *r, int l)
{
    const struct mod *s = mod_of(r);
    if (!is_routed(r, l))
        return 0;
    return scorer_flops(&s->net[ROUTER], l) +
           (has_predictor(r) ? scorer_flops(&s->net[PREDICTOR], l) : 0);
}

const struct route_ops route_mod = {
    .name = "mod",
    .summary = "mixture of depths: every other block runs the tokens that its router ranks highest",
    .paper = "Mixture-of-Depths (2024), arXiv 2404.02258",
    .flags = ROUTE_GATED | ROUTE_GRAD | ROUTE_TOPK | ROUTE_CAPACITY | ROUTE_SOFT,
    .opts_size = sizeof(struct mod_opts),
    .state_size = sizeof(struct mod),
    .opts = mod_opts_table,
    .n_opts = DS_LEN(mod_opts_table),
    .metrics = mod_metrics,
    .n_metrics = DS_LEN(mod_metrics),
    .init = mod_init,
    .layout = mod_layout,
    .begin = mod_begin,
    .decide = mod_decide,
    .regate = mod_regate,
    .finish = mod_finish,
    .aux = mod_aux,
    .decide_bwd = mod_decide_bwd,
    .counts = mod_counts,
    .update = mod_update,
    .ready = mod_ready,
    .calibrate = mod_calibrate,
    .flops = mod_flops,
    .always_on = mod_always_on,
    .release = mod_release,
};
