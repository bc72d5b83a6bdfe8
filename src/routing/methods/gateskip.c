/* gateskip: residual gates that open for every token and close where a token needs no branch.  A
 * linear gate per layer and branch (attention, FFN) multiplies what the branch adds; the tokens
 * with the lowest gates skip the branch and keep their state.
 *
 *     s = w . x / rms(x) + b            x: the branch's input, detached
 *     g = sigmoid(s) / sigmoid(b_0)     (form=unit, exactly 1 before training)
 *     u = x + g branch(x)               for the tokens within the layer's budget, else u = x
 *
 * The budget falls linearly from every token to `capacity`.  Training ranks the tokens of a
 * document by s; inference compares s - b with the layer's stored quantile, which is causal.
 *
 * Different from the paper: one gate per token and branch, because a plan has one multiplier per
 * row (the paper prefers a gate per dimension and ranks their mean, and has this as its scalar
 * variant); the input is normalised without the norm's weights; a skipped token writes keys and
 * values from its own state (kv=all) instead of reusing those of the layer below. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "routing/linear_router.h"
#include "routing/rank.h"
#include "routing/route.h"

enum { FORM_UNIT, FORM_SIGMOID };
enum { SKIP_BOTH, SKIP_ATTENTION, SKIP_FFN };
enum { TRAIN_SELECTED, TRAIN_MASKED };
enum { SELECT_DOCUMENT, SELECT_BATCH };
enum { PENALTY_SQUARE, PENALTY_MEAN };
static const double rms_floor = 1e-6;

struct gateskip_opts {
    double capacity, capacity_start, hold, tighten;
    double bias, init_std, sparsity, threshold_offset, ema;
    int form, skip, select, train, penalty, kv;
};

/* Gates and thresholds of layer l: the attention's at 2 l, the FFN's at 2 l + 1. */
struct gateskip {
    struct linear_router router; /* 2 L maps */
    struct quantiles table;      /* of s - b, 2 L rows */
    double open;                 /* sigmoid(b_0), or 1 */
    /* the current pass */
    double capacity, cut;
    int nan;
    real *in;           /* (R,C) x / rms(x) */
    real *gate, *dgate; /* (R) */
    real *weight;       /* (R) */
    real *rank;         /* (R) s - b of the current map: what is ranked and thresholded */
    uint8_t *want, *top, *all;
    real *kept; /* gradient checks: the inputs, (2 L,R,C) */
    size_t kept_n;
};

#define AT(field) offsetof(struct gateskip_opts, field)
static const struct opt gateskip_opts_table[] = {
    // clang-format off
    {"capacity", OPT_REAL, AT(capacity), "0.8", 0, 1, NULL,
     "share of tokens that run a branch, in each layer, at the end of training and at inference "
     "(published 0.8)", .is_live = 1},
    {"capacity_start", OPT_REAL, AT(capacity_start), "1", 0, 1, NULL,
     "capacity at the start of training"},
    {"hold", OPT_REAL, AT(hold), "0", 0, 1, NULL,
     "share of the run before the capacity starts falling"},
    {"tighten", OPT_REAL, AT(tighten), "1", 0, 1, NULL,
     "share of the run at which the capacity has fallen linearly to its end (published: the whole "
     "run)"},
    {"skip", OPT_ENUM, AT(skip), "both", 0, 0, "both|attention|ffn",
     "branches that tokens may skip; both are gated"},
    {"form", OPT_ENUM, AT(form), "unit", 0, 0, "unit|sigmoid",
     "gate: sigmoid(s) / sigmoid(bias), so that training starts from the base bit for bit; or "
     "sigmoid(s) (published), which starts at 0.993"},
    {"bias", OPT_REAL, AT(bias), "5", -20, 20, NULL,
     "initial bias: gates start open (published 5)"},
    {"init_std", OPT_REAL, AT(init_std), "0", 0, 10, NULL,
     "standard deviation of the gates' initial weights (published 0.01); 0 starts from the base "
     "exactly"},
    {"select", OPT_ENUM, AT(select), "document", 0, 0, "document|batch",
     "training ranks the tokens of a document, or (published) of the whole batch"},
    {"train", OPT_ENUM, AT(train), "selected", 0, 0, "selected|masked",
     "skipped tokens are not computed and their gates have no gradient (published); or all rows "
     "are computed, and skipped ones pull their gate straight-through"},
    {"sparsity", OPT_REAL, AT(sparsity), "0.1", 0, 1000, NULL,
     "weight of the gates' penalty, nats per token (published code 1)"},
    {"penalty", OPT_ENUM, AT(penalty), "square", 0, 0, "square|mean",
     "mean squared gate over tokens and branches; or mean gate"},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -100, 100, NULL,
     "added to the inference threshold, in standard deviations of s", .is_live = 1},
    {"kv", OPT_ENUM, AT(kv), "all", 0, 0, "all|plan",
     "tokens that skip the attention write keys and values too, or only executed tokens are keys"},
    {"ema", OPT_REAL, AT(ema), "0.95", 0, 0.99999, NULL, "decay of the running quantiles"},
    // clang-format on
};

enum {
    M_CAPACITY,
    M_LOSS,
    M_NAN,
    M_ATTENTION,
    M_FFN,
    M_GATE_ATTENTION,
    M_GATE_FFN,
    M_SCORE,
    M_THRESHOLD,
    M_GATE,
    M_TOPK,
    M_CELL_ATTENTION,
};
static const struct metric gateskip_metrics[] = {
    // clang-format off
    [M_CAPACITY] = {"capacity", "", "current share of tokens that run a branch", METRIC_STEP},
    [M_LOSS] = {"sparsity_loss", "nats", "penalty on the gates, weighted", METRIC_STEP},
    [M_NAN] = {"nan_scores", "", "NaN scores: they rank last", METRIC_STEP, .is_sum = 1},
    [M_ATTENTION] = {"attention_share", "", "share of rows whose attention ran", METRIC_LAYER},
    [M_FFN] = {"ffn_share", "", "share of rows whose FFN ran", METRIC_LAYER},
    [M_GATE_ATTENTION] = {"attention_gate_mean", "", "mean gate of the attention", METRIC_LAYER},
    [M_GATE_FFN] = {"gate_mean", "", "mean gate of the FFN", METRIC_LAYER},
    [M_SCORE] = {"score", "", "s of the FFN", METRIC_CELL},
    [M_THRESHOLD] = {"threshold", "", "threshold that s is compared with", METRIC_CELL},
    [M_GATE] = {"gate", "", "sigmoid(s) of the FFN", METRIC_CELL},
    [M_TOPK] = {"topk", "", "1 = among the highest of its sequence", METRIC_CELL},
    [M_CELL_ATTENTION] = {"attention", "", "gate of the attention, 0 when it was skipped",
     METRIC_CELL},
    // clang-format on
};

static struct gateskip *state_of(const struct route *r)
{
    return r->state;
}

static const struct gateskip_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int map_of(int l, enum route_span span)
{
    return 2 * l + (span == ROUTE_SPAN_FFN);
}

static int may_skip(const struct route *r, enum route_span span)
{
    int skip = opts_of(r)->skip;
    return skip == SKIP_BOTH || skip == (span == ROUTE_SPAN_FFN ? SKIP_FFN : SKIP_ATTENTION);
}

/* Any layer may skip. */
static int gateskip_always_on(const struct route *r, int l)
{
    (void)r;
    (void)l;
    return 0;
}

/* ---- set-up ---- */

static int check(struct route *r, struct err *e)
{
    const struct gateskip_opts *o = opts_of(r);
    if (o->capacity > o->capacity_start)
        return err_set(e, DS_ERANGE,
                       "gateskip.capacity=%g: must not be above gateskip.capacity_start=%g",
                       o->capacity, o->capacity_start);
    if (o->hold > o->tighten)
        return err_set(e, DS_ERANGE, "gateskip.hold=%g: must not be above gateskip.tighten=%g",
                       o->hold, o->tighten);
    return 0;
}

static int gateskip_init(struct route *r, struct err *e)
{
    const struct gateskip_opts *o = opts_of(r);
    struct gateskip *s = state_of(r);
    double gain = o->init_std / sqrt(2.0 / (r->C + 1));
    int rc = check(r, e);
    if (rc == 0)
        rc = linear_router_init(&s->router, r->params, "gateskip.gate", 2 * r->L, r->C, gain, e);
    if (rc == 0)
        rc = quantiles_init(&s->table, r->params, "gateskip", 2 * r->L, e);
    if (rc < 0)
        return rc;
    struct param *bias = &r->params->p[s->router.bias];
    bias->init = INIT_CONST;
    bias->scale = o->bias;
    s->open = o->form == FORM_UNIT ? linear_router_probability((real)o->bias) : 1;
    return 0;
}

static void gateskip_layout(struct route *r, struct arena *a, int R)
{
    struct gateskip *s = state_of(r);
    size_t n = (size_t)R;
    s->in = arena_alloc(a, n * (size_t)r->C, sizeof(real));
    s->gate = arena_alloc(a, n, sizeof(real));
    s->dgate = arena_alloc(a, n, sizeof(real));
    s->weight = arena_alloc(a, n, sizeof(real));
    s->rank = arena_alloc(a, n, sizeof(real));
    s->want = arena_alloc(a, n, 1);
    s->top = arena_alloc(a, n, 1);
    s->all = arena_alloc(a, n, 1);
    quantiles_layout(&s->table, a, R);
    linear_router_layout(&s->router, a, R);
}

static void gateskip_release(struct route *r)
{
    struct gateskip *s = state_of(r);
    mem_free(s->kept);
    quantiles_release(&s->table);
    linear_router_release(&s->router);
}

/* ---- scores and gates ---- */

static double capacity_at(const struct gateskip_opts *o, double progress)
{
    if (progress <= o->hold && o->hold > 0)
        return o->capacity_start;
    if (progress >= o->tighten)
        return o->capacity;
    return o->capacity_start +
           (o->capacity - o->capacity_start) * (progress - o->hold) / (o->tighten - o->hold);
}

static void gateskip_begin(struct route *r)
{
    struct gateskip *s = state_of(r);
    size_t kept = 2 * (size_t)r->L * (size_t)r->pass.R * (size_t)r->C;
    s->nan = 0;
    s->capacity = r->pass.inference.has_capacity ? r->pass.inference.capacity
                  : r->pass.kind == PASS_TRAIN   ? capacity_at(opts_of(r), r->pass.progress)
                                                 : opts_of(r)->capacity;
    memset(s->all, 1, (size_t)r->pass.R);
    linear_router_begin(&s->router, r->pass.R);
    if (r->pass.kind == PASS_TRAIN)
        quantiles_begin(&s->table); /* drops the scores of a skipped step */
    if (r->pass.soft && s->kept_n < kept) {
        mem_free(s->kept);
        s->kept = mem_alloc(kept, sizeof(real));
        BUG_IF(!s->kept, "out of memory for a gradient check of %d rows", r->pass.R);
        s->kept_n = kept;
    }
}

/* s->in = x / rms(x), row by row. */
static const real *normalised(const struct route *r, const real *x)
{
    struct gateskip *s = state_of(r);
    for (int i = 0; i < r->pass.R; i++) {
        const real *from = x + (size_t)i * (size_t)r->C;
        real *to = s->in + (size_t)i * (size_t)r->C;
        double sum = 0;
        for (int c = 0; c < r->C; c++)
            sum += (double)from[c] * (double)from[c];
        real scale = (real)(1 / sqrt(sum / r->C + rms_floor));
        for (int c = 0; c < r->C; c++)
            to[c] = scale * from[c];
    }
    return s->in;
}

/* The input of a map, replayed by a gradient check. */
static real *kept_of(const struct route *r, int map)
{
    return state_of(r)->kept + (size_t)map * (size_t)r->pass.R * (size_t)r->C;
}

static real gate_of(const struct route *r, real score)
{
    return (real)(linear_router_probability(score) / state_of(r)->open);
}

/* ---- decisions ---- */

static double threshold_of(struct route *r, int map)
{
    struct gateskip *s = state_of(r);
    double c = s->capacity, offset = opts_of(r)->threshold_offset + r->pass.inference.offset;
    if (r->pass.inference.calibrate)
        return quantiles_calibrate(&s->table, map, r->pass.inference.calibrate - 1, s->rank,
                                   r->pass.R);
    double cut = quantiles_at(&s->table, map, c);
    return offset == 0 ? cut : cut + offset * quantiles_spread(&s->table, map);
}

/* The bias moves all scores of a map together, and fast in training; without it the running
 * quantiles do not lag behind. */
static void take_ranks(struct route *r, int map)
{
    struct gateskip *s = state_of(r);
    const real *score = linear_router_score(&s->router, map);
    real bias = r->params->p[s->router.bias].value[map];
    for (int i = 0; i < r->pass.R; i++) {
        s->rank[i] = score[i] - bias;
        s->nan += isnan(score[i]) != 0;
    }
}

static void choose(struct route *r, int l, enum route_span span)
{
    struct gateskip *s = state_of(r);
    int map = map_of(l, span), R = r->pass.R;
    int by_rank = r->pass.kind == PASS_TRAIN || r->pass.inference.topk;
    s->cut = -(double)INFINITY;
    take_ranks(r, map);
    if (!may_skip(r, span)) {
        memset(s->want, 1, (size_t)R);
        return;
    }
    if (r->pass.kind == PASS_TRAIN)
        quantiles_note(&s->table, map, s->rank, R);
    if (by_rank) {
        (void)rank_active(r, l, s->rank, s->all, s->capacity, opts_of(r)->select == SELECT_BATCH, 0,
                          s->want);
        s->cut = (double)NAN;
        return;
    }
    s->cut = threshold_of(r, map);
    for (int i = 0; i < R; i++) /* capacity 1 runs every row, even NaN scores */
        s->want[i] = s->cut == -(double)INFINITY || (double)s->rank[i] > s->cut;
}

/* -1: the method decides.  A cell that is forced to run its FFN runs its attention as well. */
static int forced_at(const struct route *r, int l, enum route_span span, int i)
{
    int ffn = route_forced(r, l, i);
    if (span == ROUTE_SPAN_FFN)
        return ffn;
    int attention = route_forced_attention(r, l, i);
    return attention >= 0 ? attention : ffn == 1 ? 1 : -1;
}

/* Straight-through training lists every row, those outside the budget with gate 0. */
static int lists_all(const struct route *r)
{
    return r->pass.kind == PASS_MASKED ||
           (r->pass.kind == PASS_TRAIN && opts_of(r)->train == TRAIN_MASKED);
}

static void make_plan(struct route *r, int l, struct plan *out)
{
    struct gateskip *s = state_of(r);
    const real *score = linear_router_score(&s->router, map_of(l, out->span));
    int all = lists_all(r), is_soft = r->pass.soft && all;
    for (int i = 0; i < r->pass.R; i++) {
        int forced = forced_at(r, l, out->span, i);
        int runs = forced >= 0 ? forced : s->want[i] || is_soft;
        s->gate[i] = runs ? gate_of(r, score[i]) : 0;
        s->weight[i] = forced >= 0 ? 0 : 1;
    }
    plan_from_gates(out, s->gate, s->weight, r->pass.R, all);
    out->kv = opts_of(r)->kv == 0 ? KV_ALL : KV_PLAN;
}

static void layer_metrics(struct route *r, int l, const struct plan *p)
{
    struct gateskip *s = state_of(r);
    const real *score = linear_router_score(&s->router, map_of(l, p->span));
    int is_ffn = p->span == ROUTE_SPAN_FFN, R = r->pass.R > 0 ? r->pass.R : 1;
    double sum = 0;
    for (int i = 0; i < r->pass.R; i++)
        sum += (double)gate_of(r, score[i]);
    r->metric[is_ffn ? M_FFN : M_ATTENTION][l] = (double)p->active / R;
    r->metric[is_ffn ? M_GATE_FFN : M_GATE_ATTENTION][l] = sum / R;
}

static void record_attention(struct route *r, int l, const struct plan *p)
{
    real *cell = r->cell[M_CELL_ATTENTION] + (size_t)l * (size_t)r->pass.R;
    memset(cell, 0, (size_t)r->pass.R * sizeof *cell);
    for (int k = 0; k < p->n; k++)
        cell[p->row[k]] = p->gate[k];
}

static void record_ffn(struct route *r, int l)
{
    struct gateskip *s = state_of(r);
    int map = map_of(l, ROUTE_SPAN_FFN);
    const real *score = linear_router_score(&s->router, map);
    double bias = (double)r->params->p[s->router.bias].value[map];
    (void)rank_active(r, l, s->rank, s->all, s->capacity, opts_of(r)->select == SELECT_BATCH, 0,
                      s->top);
    for (int i = 0; i < r->pass.R; i++) {
        size_t cell = (size_t)l * (size_t)r->pass.R + (size_t)i;
        r->cell[M_SCORE][cell] = score[i];
        r->cell[M_THRESHOLD][cell] = (real)(s->cut + bias);
        r->cell[M_GATE][cell] = (real)linear_router_probability(score[i]);
        r->cell[M_TOPK][cell] = may_skip(r, ROUTE_SPAN_FFN) ? s->top[i] : 1;
    }
}

static void gateskip_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct gateskip *s = state_of(r);
    int is_ffn = out->span == ROUTE_SPAN_FFN, map = map_of(l, out->span);
    const real *in = normalised(r, is_ffn ? st->mid : st->h[l]);
    if (r->pass.soft)
        memcpy(kept_of(r, map), in, (size_t)r->pass.R * (size_t)r->C * sizeof *in);
    linear_router_fwd(&s->router, map, in);
    choose(r, l, out->span);
    make_plan(r, l, out);
    if (r->pass.kind == PASS_TRAIN)
        layer_metrics(r, l, out);
    if (r->pass.record && is_ffn)
        record_ffn(r, l);
    if (r->pass.record && !is_ffn)
        record_attention(r, l, out);
}

/* The rows stay; their gates follow the weights. */
static void gateskip_regate(struct route *r, int l, struct plan *out)
{
    struct gateskip *s = state_of(r);
    int map = map_of(l, out->span);
    const real *score = linear_router_fwd(&s->router, map, kept_of(r, map));
    for (int k = 0; k < out->n; k++)
        if (out->weight[k] != 0)
            out->gate[k] = gate_of(r, score[out->row[k]]);
}

static void gateskip_finish(struct route *r, const struct stream *st)
{
    (void)st;
    if (r->pass.kind != PASS_TRAIN)
        return; /* step metrics describe the training pass */
    r->metric[M_CAPACITY][0] = state_of(r)->capacity;
    r->metric[M_NAN][0] = state_of(r)->nan;
}

/* ---- penalty and gradients ---- */

/* Every row counts, whether it ran or not; not those of closed layers. */
static void gateskip_aux(struct route *r, struct losses *x)
{
    struct gateskip *s = state_of(r);
    int is_square = opts_of(r)->penalty == PENALTY_SQUARE;
    double sum = 0;
    for (int map = 0; map < 2 * r->L; map++) {
        const real *score = linear_router_score(&s->router, map);
        for (int i = 0; i < x->R && !route_is_closed(r, map / 2); i++) {
            double g = linear_router_probability(score[i]) / s->open;
            sum += is_square ? g * g : g;
        }
    }
    x->aux = opts_of(r)->sparsity * sum / (2.0 * r->L * (x->R > 0 ? x->R : 1));
    r->metric[M_LOSS][0] = x->aux;
}

/* d loss / d sigmoid(s), from the plan's rows and the penalty; then into weights and bias. */
static void gateskip_decide_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                                struct stream *st)
{
    struct gateskip *s = state_of(r);
    int is_ffn = p->span == ROUTE_SPAN_FFN, map = map_of(l, p->span), R = r->pass.R;
    const real *score = linear_router_score(&s->router, map);
    double price = opts_of(r)->sparsity / (2.0 * r->L * (R > 0 ? R : 1)) / s->open;
    for (int i = 0; i < R; i++) {
        double g = linear_router_probability(score[i]) / s->open;
        s->dgate[i] = (real)(price * (opts_of(r)->penalty == PENALTY_SQUARE ? 2 * g : 1));
    }
    for (int k = 0; k < p->n; k++)
        s->dgate[p->row[k]] += (real)((double)dgate[k] / s->open);
    linear_router_bwd(&s->router, map, s->dgate, s->all, normalised(r, is_ffn ? st->mid : st->h[l]),
                      NULL);
}

/* ---- between passes ---- */

static void gateskip_counts(struct route *r, route_count_fn *each, void *ctx)
{
    quantiles_counts(&state_of(r)->table, each, ctx);
}

static void gateskip_update(struct route *r)
{
    quantiles_update(&state_of(r)->table, opts_of(r)->ema);
}

static int gateskip_calibrate(struct route *r, int begin, struct err *e)
{
    (void)e;
    (begin ? quantiles_begin : quantiles_store)(&state_of(r)->table);
    return 0;
}

static int gateskip_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    double c = pass->inference.has_capacity ? pass->inference.capacity : opts_of(r)->capacity;
    int is_inference = pass->kind == PASS_MASKED || pass->kind == PASS_SPARSE;
    if (!is_inference || pass->inference.topk || pass->inference.calibrate || c <= 0 || c >= 1)
        return 0;
    for (int map = 0; map < 2 * r->L; map++)
        if (may_skip(r, map % 2 ? ROUTE_SPAN_FFN : ROUTE_SPAN_ATTENTION) &&
            !quantiles_known(&state_of(r)->table, map))
            return err_set(e, DS_EUSAGE,
                           "gateskip: layer %d has no thresholds yet for capacity=%g; run "
                           "depthscope calibrate MODEL, or ask for capacity=1",
                           map / 2, c);
    return 0;
}

/* Two gates: norm, scale and dot product of the input. */
static double gateskip_flops(const struct route *r, int l)
{
    (void)l;
    return 2 * 5.0 * r->C;
}

const struct route_ops route_gateskip = {
    .name = "gateskip",
    .summary = "residual gates: tokens with nearly closed gates skip attention or FFN",
    .paper = "What Layers When: Learning to Skip Compute in LLMs with Residual Gates (2025)",
    .flags = ROUTE_GATED | ROUTE_GRAD | ROUTE_SPLIT | ROUTE_SOFT | ROUTE_TOPK | ROUTE_CAPACITY,
    .opts_size = sizeof(struct gateskip_opts),
    .state_size = sizeof(struct gateskip),
    .opts = gateskip_opts_table,
    .n_opts = DS_LEN(gateskip_opts_table),
    .metrics = gateskip_metrics,
    .n_metrics = DS_LEN(gateskip_metrics),
    .init = gateskip_init,
    .layout = gateskip_layout,
    .begin = gateskip_begin,
    .decide = gateskip_decide,
    .regate = gateskip_regate,
    .finish = gateskip_finish,
    .aux = gateskip_aux,
    .decide_bwd = gateskip_decide_bwd,
    .counts = gateskip_counts,
    .update = gateskip_update,
    .changed = check,
    .ready = gateskip_ready,
    .calibrate = gateskip_calibrate,
    .flops = gateskip_flops,
    .always_on = gateskip_always_on,
    .release = gateskip_release,
};
