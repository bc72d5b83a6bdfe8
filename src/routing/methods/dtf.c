/* dtf: Dynamic Transformer.  Layers come in pairs.  The even one, the decision layer, runs for
 * every token; how much it moved the token, compared with a small network's prediction and a
 * running average, is the token's surprise G (routing/surprise.h).  The odd one, the dynamic layer,
 * runs where G is high, with its increment multiplied by G.
 *
 *   orig = h[l-1], post = h[l], dx = post - orig
 *   guess = net(orig) (prior=ffn) or net(post of the previous row) (prior=transition)
 *   D_st = mean dx^2,  D_ch = mean (guess - dx)^2 = mean (post - prior)^2,  prior = orig + guess
 *
 * G is causal, its rank is not: training takes the k highest of a document, inference those above a
 * stored quantile.  The network learns from D_ch with post detached; the four scalars of a layer
 * learn through the G of executed rows and, with detach=false, so do both blocks and the
 * network. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "routing/change.h"
#include "routing/choice.h"
#include "routing/route.h"
#include "routing/standard.h"
#include "routing/surprise.h"

enum { SCORE_G, SCORE_CE, SCORE_CU, SCORE_D_ST, SCORE_RANDOM };
enum { GATE_G, GATE_ONE };
enum { THRESHOLD_QUANTILE, THRESHOLD_FIXED };
enum { PRIOR_FFN, PRIOR_TRANSITION };
enum { INPUT_DETACHED, INPUT_ATTACHED };
enum { REDUCE_MEAN, REDUCE_SUM };
enum { PAD_HISTORY, PAD_REPLICATE };

struct dtf_opts {
    int64_t prior_decay_steps, ma_window;
    int kv, score, gate, threshold, prior, prior_input, reduce, pad, detach, normalize;
    int learn_beta_ce, learn_beta_cu, learn_o_ce, learn_m_cu;
    double capacity, g_threshold, threshold_offset, g_weight, ema;
    double prior_factor, prior_std, prior_lr, prior_weight, prior_weight_final;
    double beta_ce, beta_cu, o_ce, m_cu;
    struct surprise_schedule betas;
};

/* Pair p of P has the layers 2p and 2p + 1.  A last decision layer without a partner decides
 * nothing and has no network. */
struct dtf {
    int pairs;
    struct change change;
    struct surprise_params scalars; /* (P) */
    struct choice choice;
    struct standardizer std; /* of D_st, with normalize=true */
    struct surprise *seen;   /* (R) surprise in the current layer */
    double *scale;           /* (P) factor on D */
    double price;            /* weight of one pair's prior loss in this step */
    double nan;              /* NaN scores in this pass */
};

#define AT(field) offsetof(struct dtf_opts, field)
static const struct opt dtf_opts_table[] = {
    // clang-format off
    {"capacity", OPT_REAL, AT(capacity), "0.5", 0, 1, NULL,
     "share of a document's tokens that a dynamic layer runs (thesis 0.5, published code 0.125)",
     "dtf_capacity", .is_live = 1},
    {"score", OPT_ENUM, AT(score), "g", 0, 0, "g|ce|cu|d_st|random",
     "what is ranked: G; S_CE or S_CU alone (also as the gate); controls: size of the update, "
     "random"},
    {"gate", OPT_ENUM, AT(gate), "g", 0, 0, "g|one",
     "increments are multiplied by G; or not, a control that isolates the effect of the gate"},
    {"threshold", OPT_ENUM, AT(threshold), "quantile", 0, 0, "quantile|fixed",
     "ranks in training and the stored quantile at inference; or g_threshold in both, which keeps "
     "no capacity"},
    {"g_threshold", OPT_REAL, AT(g_threshold), "0.75", 0, 1, NULL,
     "threshold=fixed: a token runs when its score is above; without surprise G is 0.75"},
    {"threshold_offset", OPT_REAL, AT(threshold_offset), "0", -20, 20, NULL,
     "added to inference thresholds, in standard deviations of the score (what-if)", .is_live = 1},
    {"kv", OPT_ENUM, AT(kv), "plan", 0, 0, "plan|all",
     "only executed tokens are keys, or skipped tokens write keys and values too; where a query looks "
     "something up (hops), use all: with plan it cannot see what skipped the block"},
    {"prior", OPT_ENUM, AT(prior), "ffn", 0, 0, "ffn|transition",
     "the network predicts a token's update from its own state before; or from the previous "
     "token's state after (STT)"},
    {"prior_input", OPT_ENUM, AT(prior_input), "detached", 0, 0, "detached|attached",
     "the prior loss trains the network alone; or (published) also its input state, which then "
     "follows its own update: from scratch states grew without bound", .former = "held=detached"},
    {"prior_factor", OPT_REAL, AT(prior_factor), "0.0625", 1e-4, 16, NULL,
     "inner width of the network / model.dim, rounded up to even (thesis best 0.0625, published "
     "code 0.25)", "prior_ffn_intermediate_size_factor"},
    {"prior_std", OPT_REAL, AT(prior_std), "0.02", 1e-9, 10, NULL,
     "standard deviation of the network's initial weights"},
    {"prior_lr", OPT_REAL, AT(prior_lr), "0.1", 0, 1e6, NULL,
     "factor on the network's learning rate, on top of train.router_lr (thesis: 1e-3 with 1e-2 for "
     "the scalars)"},
    {"prior_weight", OPT_REAL, AT(prior_weight), "0.05", 0, 1000, NULL,
     "weight of the prior loss, MSE(prior, detached post)", "prior_loss_weight"},
    {"prior_weight_final", OPT_REAL, AT(prior_weight_final), "0.05", 0, 1000, NULL,
     "value that the weight reaches linearly over prior_decay_steps"},
    {"prior_decay_steps", OPT_INT, AT(prior_decay_steps), "0", 0, 1e12, NULL,
     "steps until prior_weight_final; 0: prior_weight throughout"},
    {"reduce", OPT_ENUM, AT(reduce), "mean", 0, 0, "mean|sum",
     "prior loss over layers: mean (thesis) or sum (published code)"},
    {"ma_window", OPT_INT, AT(ma_window), "100", 1, 65536, NULL,
     "tokens in the moving average of D_st, including the current one", "ma_window"},
    {"pad", OPT_ENUM, AT(pad), "history", 0, 0, "history|replicate",
     "averages at a document's start: over the tokens so far; or (thesis) its first token fills "
     "the window"},
    {"beta_ce", OPT_REAL, AT(beta_ce), "-0.3", -50, 50, NULL,
     "initial sharpness of S_CE before softplus (thesis -0.3, published code -0.5)",
     "beta_ce_init"},
    {"beta_cu", OPT_REAL, AT(beta_cu), "-0.6", -50, 50, NULL,
     "initial sharpness of S_CU before softplus (thesis -0.6, published code -0.8)",
     "beta_cu_init"},
    {"o_ce", OPT_REAL, AT(o_ce), "1.025", 1e-9, 1e9, NULL,
     "initial offset of CE; its logarithm is learned (thesis 1.025, published code 1.0)",
     "o_ce_init o_ce"},
    {"m_cu", OPT_REAL, AT(m_cu), "1.1", 1e-9, 1e9, NULL,
     "initial factor on the average in CU; its logarithm is learned (thesis 1.1, published code "
     "1.2)", "m_cu_init m_cu"},
    {"learn_beta_ce", OPT_BOOL, AT(learn_beta_ce), "true", 0, 0, NULL,
     "beta_ce is learned", "learn_beta_ce"},
    {"learn_beta_cu", OPT_BOOL, AT(learn_beta_cu), "true", 0, 0, NULL,
     "beta_cu is learned", "learn_beta_cu"},
    {"learn_o_ce", OPT_BOOL, AT(learn_o_ce), "true", 0, 0, NULL, "o_ce is learned", "learn_o_ce"},
    {"learn_m_cu", OPT_BOOL, AT(learn_m_cu), "true", 0, 0, NULL, "m_cu is learned", "learn_m_cu"},
    {"beta_schedule", OPT_ENUM, AT(betas.kind), "learned", 0, 0, SURPRISE_SCHEDULES,
     "betas are learned; or go from start to end (published: 0.3 to 6 after 1000 steps; 0.1 to 100 "
     "after 100)", "beta_schedule.type"},
    {"beta_ce_start", OPT_REAL, AT(betas.ce_start), "0.3", -50, 1000, NULL,
     "scheduled beta_ce, before softplus, until the end of the warm-up",
     "beta_schedule.beta_ce_start"},
    {"beta_ce_end", OPT_REAL, AT(betas.ce_end), "6", -50, 1000, NULL,
     "scheduled beta_ce at the end of training", "beta_schedule.beta_ce_end"},
    {"beta_cu_start", OPT_REAL, AT(betas.cu_start), "0.3", -50, 1000, NULL,
     "scheduled beta_cu, before softplus, until the end of the warm-up",
     "beta_schedule.beta_cu_start"},
    {"beta_cu_end", OPT_REAL, AT(betas.cu_end), "6", -50, 1000, NULL,
     "scheduled beta_cu at the end of training", "beta_schedule.beta_cu_end"},
    {"beta_warmup_steps", OPT_INT, AT(betas.warmup), "1000", 0, 1e12, NULL,
     "steps before scheduled betas change", "beta_schedule.warmup_steps"},
    {"detach", OPT_BOOL, AT(detach), "false", 0, 0, NULL,
     "G's gradient stops at D: it trains the four scalars, but not the blocks or the network"},
    {"normalize", OPT_BOOL, AT(normalize), "false", 0, 0, NULL,
     "D is divided by a running mean of D_st per layer, so that betas do not depend on its scale",
     "dtf.normalise"},
    {"g_weight", OPT_REAL, AT(g_weight), "0", 0, 1000, NULL,
     "penalty on the mean of G over all cells (published for STT: 0.001)"},
    {"ema", OPT_REAL, AT(ema), "0.95", 0, 0.99999, NULL,
     "decay of running thresholds and means"},
    // clang-format on
};

enum {
    M_PRIOR_LOSS,
    M_PRIOR_WEIGHT,
    M_NAN,
    M_S_CE,
    M_S_CU,
    M_G,
    M_G_SD,
    M_BETA_CE,
    M_BETA_CU,
    M_O_CE,
    M_M_CU,
    M_ERROR,
    M_SELECTED,
    M_THRESHOLD,
    M_CELL_SCORE,
    M_CELL_THRESHOLD,
    M_CELL_GATE,
    M_CELL_TOPK,
    M_CELL_S_CE,
    M_CELL_S_CU,
    M_CELL_D_ST,
    M_CELL_D_CH,
};
static const struct metric dtf_metrics[] = {
    // clang-format off
    [M_PRIOR_LOSS] = {"prior_loss", "",
     "mean squared error of the prior networks, reduced over layers as in the loss", METRIC_STEP},
    [M_PRIOR_WEIGHT] = {"prior_weight", "", "current weight of the prior loss", METRIC_STEP},
    [M_NAN] = {"nan_scores", "", "NaN scores", METRIC_STEP, .is_sum = 1},
    [M_S_CE] = {"s_ce", "", "mean S_CE: the change was not predicted to be small", METRIC_LAYER},
    [M_S_CU] = {"s_cu", "", "mean S_CU: the change was above its moving average", METRIC_LAYER},
    [M_G] = {"g", "", "mean surprise gate G", METRIC_LAYER},
    [M_G_SD] = {"g_sd", "", "standard deviation of G over tokens", METRIC_LAYER},
    [M_BETA_CE] = {"beta_ce", "", "sharpness of S_CE before softplus", METRIC_LAYER},
    [M_BETA_CU] = {"beta_cu", "", "sharpness of S_CU before softplus", METRIC_LAYER},
    [M_O_CE] = {"o_ce", "", "offset of CE", METRIC_LAYER},
    [M_M_CU] = {"m_cu", "", "factor on the moving average in CU", METRIC_LAYER},
    [M_ERROR] = {"prior_error", "", "mean D_ch: squared error of the prior network", METRIC_LAYER},
    [M_SELECTED] = {"selected", "", "share of executed tokens", METRIC_LAYER},
    [M_THRESHOLD] = {"threshold", "",
     "threshold that scores are compared with at inference", METRIC_LAYER},
    [M_CELL_SCORE] = {"score", "", "score that is ranked", METRIC_CELL},
    [M_CELL_THRESHOLD] = {"threshold", "",
     "threshold that the score is compared with", METRIC_CELL},
    [M_CELL_GATE] = {"gate", "", "G", METRIC_CELL},
    [M_CELL_TOPK] = {"topk", "", "1 = chosen by rank over the whole document", METRIC_CELL},
    [M_CELL_S_CE] = {"s_ce", "", "expected-change term", METRIC_CELL},
    [M_CELL_S_CU] = {"s_cu", "", "unexpected-change term", METRIC_CELL},
    [M_CELL_D_ST] = {"d_st", "", "mean square of the decision layer's update", METRIC_CELL},
    [M_CELL_D_CH] = {"d_ch", "",
     "mean square of the prior network's error on that update", METRIC_CELL},
    // clang-format on
};

static struct dtf *dtf_of(const struct route *r)
{
    return r->state;
}

static const struct dtf_opts *opts_of(const struct route *r)
{
    return r->opts;
}

static int is_dynamic(int l)
{
    return l % 2 == 1;
}

static int dtf_always_on(const struct route *r, int l)
{
    (void)r;
    return !is_dynamic(l);
}

/* ---- set-up ---------------------------------------------------------------------------------- */

static int check(const struct route *r, struct err *e)
{
    const struct dtf_opts *o = opts_of(r);
    if (r->L < 2)
        return err_set(e, DS_ERANGE,
                       "dtf: model.layers=%d: must be at least 2, as layers come in pairs", r->L);
    if (o->threshold == THRESHOLD_FIXED && (o->score == SCORE_D_ST || o->score == SCORE_RANDOM))
        return err_set(e, DS_EUSAGE,
                       "dtf.score=%s: dtf.threshold=fixed compares surprise with dtf.g_threshold; "
                       "expected g, ce or cu",
                       o->score == SCORE_D_ST ? "d_st" : "random");
    return 0;
}

static enum surprise_kind kind_of(const struct dtf_opts *o)
{
    return o->score == SCORE_CE ? SURPRISE_CE : o->score == SCORE_CU ? SURPRISE_CU : SURPRISE_BOTH;
}

/* A scalar that no gradient can reach is not trained. */
static int add_scalars(struct route *r, struct err *e)
{
    const struct dtf_opts *o = opts_of(r);
    struct dtf *s = dtf_of(r);
    int reached = o->gate == GATE_G || o->g_weight > 0, is_free = o->betas.kind == SURPRISE_LEARNED;
    int ce = reached && kind_of(o) != SURPRISE_CU, cu = reached && kind_of(o) != SURPRISE_CE;
    struct surprise_start start = {
        .beta_ce = {is_free ? o->beta_ce : o->betas.ce_start, ce && is_free && o->learn_beta_ce},
        .beta_cu = {is_free ? o->beta_cu : o->betas.cu_start, cu && is_free && o->learn_beta_cu},
        .o_ce = {o->o_ce, ce && o->learn_o_ce},
        .m_cu = {o->m_cu, cu && o->learn_m_cu},
    };
    return surprise_init(&s->scalars, r->params, "dtf", s->pairs, &start, e);
}

static int dtf_init(struct route *r, struct err *e)
{
    const struct dtf_opts *o = opts_of(r);
    struct dtf *s = dtf_of(r);
    int rc = check(r, e);
    if (rc < 0)
        return rc;
    s->pairs = r->L / 2;
    struct change_shape shape = {
        .pairs = s->pairs,
        .net = {r->C, prior_width(r->C, o->prior_factor), o->prior_std, o->prior_lr},
        .by_last = o->prior == PRIOR_TRANSITION,
        .window = (int)o->ma_window,
        .replicate = o->pad == PAD_REPLICATE,
    };
    s->scale = mem_alloc((size_t)s->pairs, sizeof *s->scale);
    if (!s->scale)
        return err_set(e, DS_EMEM, "dtf: %d pairs of layers", s->pairs);
    for (size_t k = 0; k < DS_LEN(dtf_metrics); k++)
        for (int l = 0; dtf_metrics[k].scope == METRIC_LAYER && l < r->L; l++)
            r->metric[k][l] = (double)NAN;
    rc = add_scalars(r, e);
    if (rc < 0)
        return rc;
    rc = change_init(&s->change, r->params, "dtf", &shape, e);
    if (rc < 0)
        return rc;
    rc = choice_init(&s->choice, r->params, "dtf", r->L, e);
    if (rc == 0 && o->normalize)
        rc = standardizer_init(&s->std, r->params, "dtf", r->L, 1, e);
    return rc;
}

static void dtf_layout(struct route *r, struct arena *a, int R)
{
    struct dtf *s = dtf_of(r);
    s->seen = arena_zalloc(a, (size_t)R, sizeof *s->seen);
    change_layout(&s->change, a, R);
    choice_layout(&s->choice, a, R);
}

static void dtf_release(struct route *r)
{
    struct dtf *s = dtf_of(r);
    change_release(&s->change);
    choice_release(&s->choice);
    standardizer_release(&s->std);
    mem_free(s->scale);
}

static void dtf_begin(struct route *r)
{
    struct dtf *s = dtf_of(r);
    s->nan = s->price = 0;
    if (r->pass.kind == PASS_TRAIN) /* drops the scores of a skipped step */
        quantiles_begin(&s->choice.quantiles);
    memset(s->change.error, 0, (size_t)s->pairs * sizeof *s->change.error);
    if (r->pass.kind == PASS_TRAIN && opts_of(r)->normalize)
        standardizer_begin(&s->std);
}

static size_t dtf_memory(const struct route *r)
{
    return change_memory(&dtf_of(r)->change);
}

/* ---- surprise -------------------------------------------------------------------------------- */

/* Does any decision need the network?  If not, inference does not run it. */
static int decides_by_guess(const struct route *r)
{
    const struct dtf_opts *o = opts_of(r);
    return kind_of(o) != SURPRISE_CU && (o->gate == GATE_G || o->score <= SCORE_CE);
}

static double prior_weight(const struct route *r)
{
    const struct dtf_opts *o = opts_of(r);
    double at =
        o->prior_decay_steps > 0 ? (double)(r->pass.step - 1) / (double)o->prior_decay_steps : 0;
    at = at < 0 ? 0 : at > 1 ? 1 : at;
    return o->prior_weight + at * (o->prior_weight_final - o->prior_weight);
}

static int wants_guess(const struct route *r)
{
    int learns = r->pass.kind == PASS_TRAIN && (prior_weight(r) > 0 || opts_of(r)->g_weight > 0);
    return learns || r->pass.record || decides_by_guess(r);
}

static struct surprise_scalars scalars_of(const struct route *r, int pair)
{
    const struct dtf *s = dtf_of(r);
    struct surprise_scalars x = surprise_at(&s->scalars, pair);
    x.kind = kind_of(opts_of(r));
    x.scale = s->scale[pair];
    return x;
}

static size_t cell_of(const struct route *r, int l, int i)
{
    return (size_t)(l / 2) * (size_t)r->pass.R + (size_t)i;
}

static struct surprise surprise_in(const struct route *r, const struct surprise_scalars *x, int l,
                                   int i)
{
    const struct change *c = &dtf_of(r)->change;
    size_t cell = cell_of(r, l, i);
    return surprise_of(x, c->d_st[cell], c->d_ch[cell], c->ma[cell]);
}

/* The inverse of the running mean of D_st: detached. */
static double scale_of(struct route *r, int l)
{
    struct dtf *s = dtf_of(r);
    int is_training = r->pass.kind == PASS_TRAIN;
    if (!opts_of(r)->normalize)
        return 1;
    for (int i = 0; is_training && i < r->pass.R; i++) {
        real d = (real)s->change.d_st[cell_of(r, l, i)];
        standardizer_add(&s->std, l, &d);
    }
    double mean = (double)standardizer_at(&s->std, l, is_training).mean[0];
    return mean > 1e-30 ? 1 / mean : 1;
}

/* Sets G and the score of every row. */
static void set_scores(struct route *r, int l)
{
    const struct dtf_opts *o = opts_of(r);
    struct dtf *s = dtf_of(r);
    struct surprise_scalars x = scalars_of(r, l / 2);
    for (int i = 0; i < r->pass.R; i++) {
        s->seen[i] = surprise_in(r, &x, l, i);
        s->choice.score[i] = o->score == SCORE_RANDOM ? choice_random(r, l, i)
                             : o->score == SCORE_D_ST ? (real)s->change.d_st[cell_of(r, l, i)]
                                                      : (real)s->seen[i].g;
    }
}

static struct choice_rule rule_of(const struct route *r)
{
    const struct dtf_opts *o = opts_of(r);
    double without_surprise = kind_of(o) == SURPRISE_BOTH ? 0.75 : 0.5;
    return (struct choice_rule){
        .kind = o->score == SCORE_RANDOM          ? CHOICE_RANDOM
                : o->threshold == THRESHOLD_FIXED ? CHOICE_FIXED
                                                  : CHOICE_RANK,
        .capacity = o->capacity,
        .fixed = o->g_threshold,
        .neutral = o->score == SCORE_D_ST ? (double)NAN : without_surprise,
        .offset = o->threshold_offset,
    };
}

static void make_plan(struct route *r, int l, struct plan *out)
{
    struct dtf *s = dtf_of(r);
    int gates = opts_of(r)->gate == GATE_G, lists_all = r->pass.kind == PASS_MASKED || r->pass.soft;
    /* gradient checks: every row that is not forced off runs with its gate */
    for (int i = 0; gates && r->pass.soft && i < r->pass.R; i++)
        s->choice.want[i] = route_forced(r, l, i) != 0;
    plan_from_mask(out, s->choice.want, s->choice.weight, NULL, r->pass.R, lists_all);
    for (int k = 0; gates && k < out->n; k++)
        if (out->gate[k] != 0)
            out->gate[k] = (real)s->seen[out->row[k]].g;
}

static void layer_metrics(struct route *r, int l, const struct plan *p)
{
    const struct dtf *s = dtf_of(r);
    struct surprise_scalars x = scalars_of(r, l / 2);
    double n = r->pass.R > 0 ? r->pass.R : 1, ce = 0, cu = 0, g = 0, g2 = 0;
    for (int i = 0; i < r->pass.R; i++) {
        const struct surprise *v = &s->seen[i];
        ce += v->s_ce / n;
        cu += v->s_cu / n;
        g += v->g / n;
        g2 += v->g * v->g / n;
    }
    double sd = sqrt(fmax(0, g2 - g * g)), o = exp(x.log_o_ce), m = exp(x.log_m_cu);
    // clang-format off
    const double value[] = {ce, cu, g, sd, x.beta_ce, x.beta_cu, o, m, s->change.error[l / 2],
                            p->active / n, s->choice.threshold};
    // clang-format on
    for (int k = 0; k <= M_THRESHOLD - M_S_CE; k++)
        r->metric[M_S_CE + k][l] = value[k];
}

static void record_cells(struct route *r, int l)
{
    struct dtf *s = dtf_of(r);
    const struct choice *c = &s->choice;
    struct choice_rule rule = rule_of(r);
    size_t R = (size_t)r->pass.R;
    choice_target(&s->choice, r, &rule);
    for (int i = 0; i < r->pass.R; i++) {
        const struct surprise *v = &s->seen[i];
        double d_st = s->change.d_st[cell_of(r, l, i)], d_ch = s->change.d_ch[cell_of(r, l, i)];
        const double value[] = {
            (double)c->score[i], c->threshold, v->g, c->target[i], v->s_ce, v->s_cu, d_st, d_ch};
        for (int k = 0; k <= M_CELL_D_CH - M_CELL_SCORE; k++)
            r->cell[M_CELL_SCORE + k][(size_t)l * R + (size_t)i] = (real)value[k];
    }
}

/* A decision layer: runs all rows except those forced off. */
static void run_all(struct route *r, int l, struct plan *out)
{
    struct dtf *s = dtf_of(r);
    for (int i = 0; i < r->pass.R; i++) {
        s->choice.want[i] = route_forced(r, l, i) != 0;
        s->choice.weight[i] = 0;
    }
    plan_from_mask(out, s->choice.want, s->choice.weight, NULL, r->pass.R,
                   r->pass.kind == PASS_MASKED);
}

static void dtf_decide(struct route *r, int l, struct plan *out, const struct stream *st)
{
    struct dtf *s = dtf_of(r);
    struct choice_rule rule = rule_of(r);
    out->kv = opts_of(r)->kv == 0 ? KV_PLAN : KV_ALL;
    if (!is_dynamic(l)) {
        run_all(r, l, out);
        return;
    }
    change_measure(&s->change, &r->pass, l / 2, st->h[l - 1], st->h[l], wants_guess(r));
    s->scale[l / 2] = scale_of(r, l);
    set_scores(r, l);
    choice_make(&s->choice, r, &rule, l);
    s->nan += s->choice.nan;
    make_plan(r, l, out);
    layer_metrics(r, l, out);
    if (r->pass.record)
        record_cells(r, l);
}

/* A replay keeps D: only the four scalars move the gate. */
static void dtf_regate(struct route *r, int l, struct plan *out)
{
    if (!is_dynamic(l) || opts_of(r)->gate != GATE_G)
        return;
    struct surprise_scalars x = scalars_of(r, l / 2);
    for (int k = 0; k < out->n; k++)
        if (out->gate[k] != 0)
            out->gate[k] = (real)surprise_in(r, &x, l, out->row[k]).g;
}

/* ---- loss and backward ----------------------------------------------------------------------- */

static double prior_loss(const struct route *r)
{
    const struct dtf *s = dtf_of(r);
    double sum = 0;
    for (int p = 0; p < s->pairs; p++)
        sum += s->change.error[p];
    return opts_of(r)->reduce == REDUCE_MEAN ? sum / s->pairs : sum;
}

static void dtf_finish(struct route *r, const struct stream *st)
{
    (void)st;
    if (r->pass.kind != PASS_TRAIN)
        return; /* step metrics describe the training pass */
    r->metric[M_PRIOR_LOSS][0] = prior_loss(r);
    r->metric[M_PRIOR_WEIGHT][0] = prior_weight(r);
    r->metric[M_NAN][0] = dtf_of(r)->nan;
}

static double mean_g(const struct route *r)
{
    double sum = 0;
    for (int l = 1; l < r->L; l += 2) {
        struct surprise_scalars x = scalars_of(r, l / 2);
        for (int i = 0; i < r->pass.R && !route_is_closed(r, l); i++)
            sum += surprise_in(r, &x, l, i).g;
    }
    return sum / ((double)dtf_of(r)->pairs * (r->pass.R > 0 ? r->pass.R : 1));
}

static void dtf_aux(struct route *r, struct losses *x)
{
    const struct dtf_opts *o = opts_of(r);
    struct dtf *s = dtf_of(r);
    double weight = prior_weight(r);
    s->price = o->reduce == REDUCE_MEAN ? weight / s->pairs : weight;
    x->aux = weight > 0 ? weight * prior_loss(r) : 0;
    if (o->g_weight > 0)
        x->aux += o->g_weight * mean_g(r);
}

/* Sets d loss / d D of every row from d loss / d G: the gate gradient of the plan's rows, and the
 * penalty on G of all rows. */
static void surprise_back(struct route *r, int l, const struct plan *p, const real *dgate)
{
    struct dtf *s = dtf_of(r);
    struct change *c = &s->change;
    struct surprise_scalars x = scalars_of(r, l / 2);
    struct surprise_grad d = {0};
    double price = opts_of(r)->g_weight / ((double)s->pairs * r->pass.R);
    for (int i = 0, k = 0; i < r->pass.R; i++) {
        size_t cell = cell_of(r, l, i);
        int is_listed = k < p->n && p->row[k] == i;
        int is_gated = is_listed && opts_of(r)->gate == GATE_G && p->gate[k] != 0;
        double dg = price + (is_gated ? (double)dgate[k] : 0);
        k += is_listed;
        d.d_st = d.d_ch = 0;
        if (dg != 0)
            surprise_bwd(&d, &x, dg, c->d_st[cell], c->d_ch[cell], c->ma[cell]);
        c->dd_st[i] = d.d_st;
        c->dd_ch[i] = d.d_ch;
    }
    surprise_add_grad(&s->scalars, l / 2, &d);
}

static void dtf_decide_bwd(struct route *r, int l, const struct plan *p, const real *dgate,
                           struct stream *st)
{
    struct dtf *s = dtf_of(r);
    const real *orig = l > 0 ? st->h[l - 1] : NULL, *post = st->h[l];
    int is_detached = opts_of(r)->prior_input == INPUT_DETACHED, pair = l / 2;
    if (!is_dynamic(l))
        return;
    surprise_back(r, l, p, dgate);
    if (!opts_of(r)->detach)
        change_bwd(&s->change, &r->pass, pair, st->dh[l - 1], st->dh[l], orig, post);
    if (s->price > 0 && s->change.guessed[pair])
        change_loss_bwd(&s->change, &r->pass, pair, s->price, is_detached ? NULL : st->dh[l - 1],
                        is_detached ? NULL : st->dh[l], orig, post);
}

/* ---- between passes -------------------------------------------------------------------------- */

static void dtf_counts(struct route *r, route_count_fn *each, void *ctx)
{
    quantiles_counts(&dtf_of(r)->choice.quantiles, each, ctx);
    if (opts_of(r)->normalize)
        standardizer_counts(&dtf_of(r)->std, each, ctx);
}

static void dtf_update(struct route *r)
{
    const struct dtf_opts *o = opts_of(r);
    struct dtf *s = dtf_of(r);
    quantiles_update(&s->choice.quantiles, o->ema);
    if (o->normalize)
        standardizer_update(&s->std, o->ema);
    surprise_schedule(&s->scalars, &o->betas, r->pass.step, r->pass.progress);
}

static int dtf_calibrate(struct route *r, int begin, struct err *e)
{
    (void)e;
    (begin ? quantiles_begin : quantiles_store)(&dtf_of(r)->choice.quantiles);
    return 0;
}

static int dtf_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    struct choice_rule rule = rule_of(r);
    return choice_ready(&dtf_of(r)->choice, &rule, "dtf", 1, pass, e);
}

/* The network; D_st and D_ch, three and four operations per element; the moving average. */
static double dtf_flops(const struct route *r, int l)
{
    const struct change_shape *c = &dtf_of(r)->change.is;
    double guess = decides_by_guess(r) ? prior_flops(r->C, c->net.D) + 4.0 * r->C : 0;
    return is_dynamic(l) ? guess + 3.0 * r->C + c->window : 0;
}

const struct route_ops route_dtf = {
    .name = "dtf",
    .summary = "Dynamic Transformer: a layer runs for tokens that surprised the one before it",
    .paper = "Dynamic Transformer (2025)",
    .flags = ROUTE_GATED | ROUTE_GRAD | ROUTE_TOPK | ROUTE_CAPACITY | ROUTE_SOFT,
    .opts_size = sizeof(struct dtf_opts),
    .state_size = sizeof(struct dtf),
    .opts = dtf_opts_table,
    .n_opts = DS_LEN(dtf_opts_table),
    .metrics = dtf_metrics,
    .n_metrics = DS_LEN(dtf_metrics),
    .init = dtf_init,
    .layout = dtf_layout,
    .begin = dtf_begin,
    .decide = dtf_decide,
    .regate = dtf_regate,
    .finish = dtf_finish,
    .aux = dtf_aux,
    .decide_bwd = dtf_decide_bwd,
    .counts = dtf_counts,
    .update = dtf_update,
    .memory = dtf_memory,
    .ready = dtf_ready,
    .calibrate = dtf_calibrate,
    .flops = dtf_flops,
    .always_on = dtf_always_on,
    .release = dtf_release,
};
