/* Evaluation of a routed model: loss, compute, the distribution of depth over tokens and what it
 * correlates with. */
#ifndef DS_MODELS_MEASURE_H
#define DS_MODELS_MEASURE_H

#include "base/err.h"
#include "io/record.h"
#include "models/contrast.h"
#include "models/decisions.h"
#include "models/model.h"

enum measure_column {
    MEASURE_DEPTH,
    MEASURE_SIGNAL,
    MEASURE_ENTROPY,
    MEASURE_NLL,
    MEASURE_FLOPS,
    MEASURE_TRUE,
    MEASURE_POSITION,
    MEASURE_CLASS,
    MEASURE_NEEDED,
    MEASURE_COLUMNS
};
/* Sums over the tokens of one class, or of one required depth. */
struct measure_part {
    double n, nll, correct, depth;
};
/* What the data set knows of a batch; (R) or NULL.  true_entropy and needed (the required depth) are
 * of the target, NaN where unknown; classes (data/token_class.h) of the row's token and its target,
 * 255: by the token's text. */
struct measure_known {
    const float *true_entropy, *needed;
    const uint8_t *class_of, *target_class;
};
enum { MEASURE_CLASSES = 16, MEASURE_NEEDED_MAX = 64 };
struct measure {
    int L, P; /* layers; positions of the map */
    int is_gated,
        is_topk; /* the method skips; measured with routing=topk or oracle, which are not causal */
    double nll, tokens, bytes;
    double run, cells, flops, flops_dense;
    double depth_n, depth_mean,
        depth_ss;                   /* of tokens with a target: count, mean, squared deviations */
    double *capacity;               /* (L) executed rows            */
    double *attention;              /* (L) of split layers: rows with executed attention, or NULL */
    double *map, *map_n;            /* (L, P), (P): gate rate by true position */
    float *column[MEASURE_COLUMNS]; /* up to cap samples each */
    size_t n, cap;
    double batch_ratio;            /* routed / dense time of a whole batch; NaN: unknown */
    double time_dense, time_ratio; /* dense prefill, s per token; routed / dense.  NaN: unknown */
    double decode_dense, decode_ratio; /* the same for token-by-token decoding, batch 1, KV cache */
    /* (vocab) class of each id, borrowed; NULL = unknown.  Tokens in the highest loss decile are
     * classed as high-loss instead (data/token_class.h). */
    const float *token_class;
    struct measure_part by_class[MEASURE_CLASSES];     /* of the target */
    struct measure_part by_needed[MEASURE_NEEDED_MAX]; /* required depth 1, 2, ... */
    double correct;                                    /* targets with the largest logit */
    char signal[32];            /* the cell metric of MEASURE_SIGNAL, "" none */
    struct decisions decisions; /* gated methods */
    struct contrast contrast;
};
int measure_init(struct measure *s, const struct model *m, int positions, size_t samples,
                 struct err *e) DS_CHECK;
void measure_release(struct measure *s);
/* After model_forward (pass.record = 1) and model_loss(m, 0, 1).  bytes: of the targets. */
int measure_add(struct measure *s, const struct model *m, const struct measure_known *known,
                uint64_t bytes, struct err *e) DS_CHECK;
/* Is this kind of control for the method?  Top-k is for ROUTE_TOPK, the others for one that skips. */
int measure_has_contrast(const struct measure *s, const struct model *m, enum contrast_kind kind);
/* Runs the same batch with other decisions (models/contrast.h) and otherwise the options of `use`;
 * nothing where the kind does not apply.  Controls use each layer's executed share so far, so they
 * must run after all measurements. */
int measure_contrast(struct measure *s, struct model *m, enum contrast_kind kind,
                     const struct batch *b, const struct pass *use, uint64_t end,
                     struct err *e) DS_CHECK;
/* The same in two halves: the pass, whose results m holds, and adding them up.  The kind applies. */
int measure_contrast_run(struct measure *s, struct model *m, enum contrast_kind kind,
                         const struct batch *b, const struct pass *use, uint64_t end,
                         struct err *e) DS_CHECK;
void measure_contrast_add(struct measure *s, struct model *m, enum contrast_kind kind);

/* The memory that sums are in, so that another process may continue an evaluation where this one
 * is: another measure_init of the same model has spans of the same sizes, given in two halves, because the
 * samples, which are the second, are as many as the first one says.  Times are not among them. */
struct measure_span {
    void *p;
    size_t bytes;
};
enum { MEASURE_SPANS = 24 };
int measure_spans(struct measure *s, int half, struct measure_span out[MEASURE_SPANS]);
/* Of one kind of control. */
int measure_contrast_spans(struct measure *s, enum contrast_kind kind,
                           struct measure_span out[MEASURE_SPANS]);
/* Prefill of T tokens (one sequence, last logits): dense and routed in turn, `rounds` pairs, in
 * this process; medians of the dense time and of the pairs' ratios.  use: the routed pass; the
 * dense one runs all layers.  Nothing for rounds 0.  DS_EMEM. */
int measure_time(struct measure *s, struct model *m, const int32_t *id, int T, int rounds,
                 const struct pass *use, struct err *e) DS_CHECK;
/* Evaluation of one whole batch, forward and loss of all its rows, in pairs as above. */
int measure_batch_time(struct measure *s, struct model *m, const struct batch *b, int rounds,
                       const struct pass *use, struct err *e) DS_CHECK;
/* Decoding with a KV cache at batch 1: tokens `from`..T-1 one at a time (logits each) after
 * prefilling the rest, dense and routed in turn as above.  0 <= from < T.  DS_ERANGE, DS_EMEM from
 * the cache. */
int measure_decode(struct measure *s, struct model *m, const int32_t *id, int from, int T,
                   int rounds, const struct pass *use, struct err *e) DS_CHECK;

/* One scalar result; the record, the JSON object and the table are generated from these rows. */
struct measure_scalar {
    const char *key, *title; /* title NULL: not for tables */
    double value;
    int is_optional; /* omitted from records and tables when NaN */
};
enum { MEASURE_SCALARS_MAX = 64 };
size_t measure_scalars(const struct measure *s, struct measure_scalar out[MEASURE_SCALARS_MAX]);
/* The i-th vector over layers into out (L); its key, or NULL after the last.  *is_there = 0:
 * unknown. */
const char *measure_vector(const struct measure *s, int i, double *out, int *is_there);
/* The i-th vector over token classes or required depths 1, 2, ... into out; its key, or NULL after
 * the last.  *n = 0: unknown. */
const char *measure_part_vector(const struct measure *s, int i, double out[MEASURE_NEEDED_MAX],
                                int *n);
/* The keys that are not causal, separated by spaces; "" none. */
const char *measure_not_causal(const struct measure *s);

/* Record "eval" (and "sample" when samples were kept), see io/FORMATS.md. */
void measure_eval_record(const struct measure *s, struct record *rec, const char *task,
                         const char *routing, int64_t step, double time);
void measure_sample_record(const struct measure *s, struct record *rec, const char *name,
                           int64_t step, double time);

double measure_loss(const struct measure *s);          /* nats per token */
double measure_bits_per_byte(const struct measure *s); /* NaN when bytes are unknown */
double measure_block_ratio(const struct measure *s);
double measure_model_ratio(const struct measure *s);
/* Pearson's r of two columns over rows where both are finite; NaN when undefined (n < 3 or no
 * variance). */
double measure_correlation(const struct measure *s, enum measure_column a, enum measure_column b);
/* Over all tokens with a target; variance: of the tokens' depths, n - 1.  NaN without tokens
 * (variance: fewer than two). */
void measure_depth(const struct measure *s, double *mean, double *variance);
/* Share of rows executed in layer l. */
double measure_capacity(const struct measure *s, int l);

#endif
