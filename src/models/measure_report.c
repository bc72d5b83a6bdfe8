/* Reports an evaluation as scalars, per-layer vectors and records. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "models/measure.h"

static const char *const column_name[MEASURE_COLUMNS] = {
    [MEASURE_DEPTH] = "depth",       [MEASURE_SIGNAL] = "signal", [MEASURE_ENTROPY] = "entropy",
    [MEASURE_NLL] = "nll",           [MEASURE_FLOPS] = "flops",   [MEASURE_TRUE] = "true_entropy",
    [MEASURE_POSITION] = "position", [MEASURE_CLASS] = "class",   [MEASURE_NEEDED] = "needed",
};

/* ---- numeric values ---- */

struct list {
    struct measure_scalar *out;
    size_t n;
};

static void add(struct list *l, const char *key, const char *title, double value)
{
    BUG_IF(l->n == MEASURE_SCALARS_MAX, "more than %d numbers", (int)MEASURE_SCALARS_MAX);
    l->out[l->n++] = (struct measure_scalar){key, title, value, 0};
}

static void add_optional(struct list *l, const char *key, const char *title, double value)
{
    add(l, key, title, value);
    l->out[l->n - 1].is_optional = 1;
}

static void add_compute(struct list *l, const struct measure *s)
{
    /* of all rows that ran: where answers alone count, most rows have no target */
    double tokens = s->cells > 0 ? s->cells / s->L : (double)NAN;
    add(l, "block_ratio", "blocks executed / all", measure_block_ratio(s));
    add(l, "flops_ratio", "FLOPs / dense, whole model", measure_model_ratio(s));
    add(l, "time_ratio", "measured time / dense, prefill", s->time_ratio);
    add(l, "decode_time_ratio", "measured time / dense, decoding", s->decode_ratio);
    add_optional(l, "batch_time_ratio", "measured time / dense, a batch", s->batch_ratio);
    add(l, "flops_per_token", "FLOPs per token", s->flops / tokens);
    add(l, "flops_dense_per_token", "FLOPs per token, dense", s->flops_dense / tokens);
    add(l, "time_per_token_ms", "ms per token, prefill", 1e3 * s->time_dense * s->time_ratio);
    add(l, "time_dense_per_token_ms", "ms per token, dense", 1e3 * s->time_dense);
    add(l, "decode_tok_s", "tokens/s, decoding at batch 1",
        1 / (s->decode_dense * s->decode_ratio));
    add(l, "decode_dense_tok_s", "tokens/s, decoding, dense", 1 / s->decode_dense);
}

static void add_depth(struct list *l, const struct measure *s)
{
    double mean, variance;
    measure_depth(s, &mean, &variance);
    add(l, "depth_mean", "depth, mean", mean);
    add(l, "depth_sd", "depth, sd", sqrt(variance));
    add(l, "depth_variance", "depth, variance between tokens", variance);
    add(l, "corr_signal_depth", "r(signal, depth)",
        measure_correlation(s, MEASURE_SIGNAL, MEASURE_DEPTH));
    add(l, "corr_entropy_depth", "r(predictive entropy, depth)",
        measure_correlation(s, MEASURE_ENTROPY, MEASURE_DEPTH));
    add(l, "corr_nll_depth", "r(loss, depth)", measure_correlation(s, MEASURE_NLL, MEASURE_DEPTH));
    add(l, "corr_true_entropy_depth", "r(true entropy, depth)",
        measure_correlation(s, MEASURE_TRUE, MEASURE_DEPTH));
    add_optional(l, "corr_needed_depth", "r(required depth, depth)",
                 measure_correlation(s, MEASURE_NEEDED, MEASURE_DEPTH));
}

/* Answers of known required depth. */
static void add_answers(struct list *l, const struct measure *s)
{
    double n = 0, nll = 0, correct = 0, none = (double)NAN;
    for (int k = 0; k < MEASURE_NEEDED_MAX; k++) {
        n += s->by_needed[k].n;
        nll += s->by_needed[k].nll;
        correct += s->by_needed[k].correct;
    }
    add_optional(l, "answer_loss", "loss of answers", n > 0 ? nll / n : none);
    add_optional(l, "answer_accuracy", "greedy accuracy of answers", n > 0 ? correct / n : none);
}

static int has_decisions(const struct measure *s)
{
    return s->is_gated && s->decisions.rows > 0;
}

static void add_decisions(struct list *l, const struct measure *s)
{
    const struct decisions *d = &s->decisions;
    struct prediction p = decisions_prediction(d, -1);
    int there = has_decisions(s);
    double none = (double)NAN;
    add_optional(l, "mi_mean", "I(token; executed), nats, mean of gated layers",
                 there ? decisions_mi_mean(d) : none);
    add_optional(l, "mi_soft_mean", "I(cell; soft gate), nats, mean",
                 there ? decisions_mi_soft_mean(d) : none);
    add_optional(l, "predictor_precision", "top-k predictor: precision", prediction_precision(&p));
    add_optional(l, "predictor_recall", "top-k predictor: recall", prediction_recall(&p));
    add_optional(l, "predictor_f1", "top-k predictor: F1", prediction_f1(&p));
    add_optional(l, "predictor_base", "top-k predictor: positive rate", prediction_base(&p));
    add_optional(l, "predictor_accuracy", "top-k predictor: accuracy", prediction_accuracy(&p));
    add_optional(l, "nan_scores", "NaN scores", there && d->nan_scores > 0 ? d->nan_scores : none);
}

static void add_contrast(struct list *l, const struct measure *s)
{
    const struct contrast *c = &s->contrast;
    double topk = contrast_loss(c, CONTRAST_TOPK),
           seen = c->sum[CONTRAST_DENSE].tokens > 0 ? c->sum[CONTRAST_DENSE].tokens : (double)NAN;
    add_optional(l, "topk_loss", "loss with top-k routing (not causal)", topk);
    add_optional(l, "topk_gap", "loss - top-k loss (not causal)", measure_loss(s) - topk);
    add_optional(l, "topk_block_ratio", "blocks executed, top-k (not causal)",
                 contrast_ratio(c, CONTRAST_TOPK));
    add_optional(l, "dense_loss", "loss, dense", contrast_loss(c, CONTRAST_DENSE));
    add_optional(l, "control_random_loss", "loss, control: random routing at equal rates",
                 contrast_loss(c, CONTRAST_RANDOM));
    add_optional(l, "control_static_loss", "loss, control: static mask",
                 contrast_loss(c, CONTRAST_STATIC));
    add_optional(l, "control_random_ratio", "blocks executed, control: random routing",
                 contrast_ratio(c, CONTRAST_RANDOM));
    add_optional(l, "control_static_ratio", "blocks executed, control: static mask",
                 contrast_ratio(c, CONTRAST_STATIC));
    add_optional(l, "control_random_flops_ratio", NULL, contrast_flops_ratio(c, CONTRAST_RANDOM));
    add_optional(l, "control_static_flops_ratio", NULL, contrast_flops_ratio(c, CONTRAST_STATIC));
    /* tables show these two only when the controls saw part of the text */
    add_optional(l, "control_loss", seen < s->tokens ? "loss on the control tokens" : NULL,
                 isnan(seen) ? seen : contrast_loss(c, CONTRAST_CAUSAL));
    add_optional(l, "control_tokens",
                 seen < s->tokens ? "control tokens (controls and dense)" : NULL, seen);
}

size_t measure_scalars(const struct measure *s, struct measure_scalar out[MEASURE_SCALARS_MAX])
{
    struct list l = {.out = out};
    add(&l, "loss", s->is_topk ? "loss (nats/token, not causal)" : "loss (nats/token)",
        measure_loss(s));
    add(&l, "perplexity", "perplexity", exp(measure_loss(s)));
    add(&l, "bits_per_byte", "bits per byte", measure_bits_per_byte(s));
    add(&l, "tokens", "tokens", s->tokens);
    add_optional(&l, "accuracy", "greedy accuracy",
                 s->tokens > 0 ? s->correct / s->tokens : (double)NAN);
    add_answers(&l, s);
    add_contrast(&l, s);
    add_compute(&l, s);
    add_depth(&l, s);
    add_decisions(&l, s);
    return l.n;
}

/* ---- vectors over layers ---- */

static double topk_capacity(const struct measure *s, int l)
{
    return s->contrast.topk_rows > 0 ? s->contrast.topk_capacity[l] / s->contrast.topk_rows
                                     : (double)NAN;
}

static double mi(const struct measure *s, int l)
{
    return has_decisions(s) ? decisions_mi(&s->decisions, l) : (double)NAN;
}

static double mi_soft(const struct measure *s, int l)
{
    return has_decisions(s) ? decisions_mi_soft(&s->decisions, l) : (double)NAN;
}

#define PREDICTION(what)                                                                           \
    static double what##_of(const struct measure *s, int l)                                        \
    {                                                                                              \
        if (!has_decisions(s))                                                                     \
            return (double)NAN;                                                                    \
        struct prediction p = decisions_prediction(&s->decisions, l);                              \
        return prediction_##what(&p);                                                              \
    }
PREDICTION(precision)
PREDICTION(recall)
PREDICTION(f1)
PREDICTION(base)
PREDICTION(accuracy)

static const struct {
    const char *key;
    double (*of)(const struct measure *s, int l);
} vectors[] = {
    {"capacity", measure_capacity},
    {"capacity_topk", topk_capacity},
    {"mi", mi},
    {"mi_soft", mi_soft},
    {"predictor_precision_layer", precision_of},
    {"predictor_recall_layer", recall_of},
    {"predictor_f1_layer", f1_of},
    {"predictor_base_layer", base_of},
    {"predictor_accuracy_layer", accuracy_of},
};

const char *measure_vector(const struct measure *s, int i, double *out, int *is_there)
{
    *is_there = 0;
    if (i >= (int)DS_LEN(vectors))
        return NULL;
    for (int l = 0; l < s->L; l++) {
        out[l] = vectors[i].of(s, l);
        *is_there |= !isnan(out[l]);
    }
    return vectors[i].key;
}

/* ---- vectors over classes and required depths ---- */

static double part_loss(const struct measure_part *p)
{
    return p->n > 0 ? p->nll / p->n : (double)NAN;
}

static double part_accuracy(const struct measure_part *p)
{
    return p->n > 0 ? p->correct / p->n : (double)NAN;
}

static double part_depth(const struct measure_part *p)
{
    return p->n > 0 ? p->depth / p->n : (double)NAN;
}

static double part_tokens(const struct measure_part *p)
{
    return p->n;
}

static const struct {
    const char *key;
    int by_needed;
    double (*of)(const struct measure_part *p);
} part_vectors[] = {
    {"loss_by_class", 0, part_loss},   {"accuracy_by_class", 0, part_accuracy},
    {"depth_by_class", 0, part_depth}, {"tokens_by_class", 0, part_tokens},
    {"loss_by_k", 1, part_loss},       {"accuracy_by_k", 1, part_accuracy},
    {"depth_by_k", 1, part_depth},     {"tokens_by_k", 1, part_tokens},
};

const char *measure_part_vector(const struct measure *s, int i, double out[MEASURE_NEEDED_MAX],
                                int *n)
{
    *n = 0;
    if (i >= (int)DS_LEN(part_vectors))
        return NULL;
    int by_needed = part_vectors[i].by_needed,
        most = by_needed ? MEASURE_NEEDED_MAX : MEASURE_CLASSES;
    const struct measure_part *p = by_needed ? s->by_needed : s->by_class;
    for (int k = 0; k < most; k++) {
        out[k] = part_vectors[i].of(&p[k]);
        *n = p[k].n > 0 ? k + 1 : *n;
    }
    return part_vectors[i].key;
}

const char *measure_not_causal(const struct measure *s)
{
    if (s->is_topk)
        return "loss perplexity bits_per_byte capacity block_ratio flops_ratio depth_mean "
               "depth_variance mi";
    return s->contrast.topk_rows > 0 ? "topk_loss topk_gap topk_block_ratio capacity_topk" : "";
}

/* ---- records ---- */

static void add_map(const struct measure *s, struct record *rec)
{
    size_t cells = (size_t)s->L * (size_t)s->P;
    float *rate = mem_alloc(cells, sizeof *rate);
    for (size_t i = 0; rate && i < cells; i++) {
        double n = s->map_n[i % (size_t)s->P];
        rate[i] = n > 0 ? (float)(s->map[i] / n) : NAN;
    }
    if (rate) {
        record_int(rec, "map_positions", s->P);
        record_f32s(rec, "map", rate, cells);
    } else {
        record_no_memory(rec);
    }
    mem_free(rate);
}

static void add_vectors(const struct measure *s, struct record *rec)
{
    double *x = mem_alloc((size_t)s->L, sizeof *x);
    const char *key;
    int there;
    for (int i = 0; x && (key = measure_vector(s, i, x, &there)) != NULL; i++)
        if (there)
            record_nums(rec, key, x, (size_t)s->L);
    if (!x)
        record_no_memory(rec);
    mem_free(x);
}

static void add_part_vectors(const struct measure *s, struct record *rec)
{
    double x[MEASURE_NEEDED_MAX];
    const char *key;
    int n;
    for (int i = 0; (key = measure_part_vector(s, i, x, &n)) != NULL; i++)
        if (n > 0)
            record_nums(rec, key, x, (size_t)n);
}

void measure_eval_record(const struct measure *s, struct record *rec, const char *task,
                         const char *routing, int64_t step, double time)
{
    struct measure_scalar x[MEASURE_SCALARS_MAX];
    size_t n = measure_scalars(s, x);
    record_begin(rec, "eval", step, time);
    record_str(rec, "task", task);
    record_str(rec, "routing", routing);
    if (*measure_not_causal(s))
        record_str(rec, "not_causal", measure_not_causal(s));
    for (size_t i = 0; i < n; i++)
        if (!x[i].is_optional || !isnan(x[i].value))
            record_num(rec, x[i].key, x[i].value);
    add_vectors(s, rec);
    add_part_vectors(s, rec);
    add_map(s, rec);
}

static int by_float(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* The highest loss decile is a class of its own, except where the data set says what a token is. */
static void mark_high_loss(const struct measure *s, struct record *rec)
{
    enum { HIGH_LOSS = 7, OTHER = 8 };
    if (!s->token_class || s->n < 10)
        return;
    float *sorted = mem_dup(s->column[MEASURE_NLL], s->n * sizeof *sorted);
    if (!sorted) {
        record_no_memory(rec);
        return;
    }
    qsort(sorted, s->n, sizeof *sorted, by_float);
    float limit = sorted[s->n - s->n / 10];
    for (size_t i = 0; i < s->n; i++)
        if (s->column[MEASURE_NLL][i] >= limit && !(s->column[MEASURE_CLASS][i] > OTHER))
            s->column[MEASURE_CLASS][i] = HIGH_LOSS;
    mem_free(sorted);
}

static int is_known(const float *v, size_t n)
{
    size_t i = 0;
    while (i < n && isnan(v[i]))
        i++;
    return i < n;
}

void measure_sample_record(const struct measure *s, struct record *rec, const char *name,
                           int64_t step, double time)
{
    record_begin(rec, "sample", step, time);
    mark_high_loss(s, rec);
    record_str(rec, "name", name);
    record_int(rec, "n", (int64_t)s->n);
    record_str(rec, "signal", s->signal);
    record_map(rec, "column");
    for (int c = 0; c < MEASURE_COLUMNS; c++)
        if (c != MEASURE_NEEDED || is_known(s->column[c], s->n))
            record_f32s(rec, column_name[c], s->column[c], s->n);
    record_close(rec);
}
