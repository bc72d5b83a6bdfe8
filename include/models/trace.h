/* Traces every decision over one text as a "probe" record. */
#ifndef DS_MODELS_TRACE_H
#define DS_MODELS_TRACE_H

#include "io/record.h"
#include "models/model.h"

struct trace_text {
    const char *name;
    int index;
    const int32_t *id;        /* (n) */
    const char *const *piece; /* (n) bytes of each token */
    const size_t *piece_len;
    const float *true_entropy; /* (n) of each token given its past, NaN unknown; or NULL */
    const float *token_class;  /* (n) of each token (data/token_class.h); or NULL */
    const float *needed; /* (n) required depth of each row to predict the next token; or NULL */
    const int32_t *private_start; /* (n) as in struct batch; or NULL */
    int n;
};
struct trace_options {
    int64_t step;
    double time;
    int lens_k; /* top-k of the logit lens per cell, 0 = none, at most 16 */
    /* The text of a token of the lens. */
    const char *(*piece_of)(const void *ctx, int32_t id, size_t *n);
    const void *ctx;
    enum pass_kind kind;             /* PASS_SPARSE, or PASS_DENSE */
    struct pass_inference inference; /* check with route_ready first */
    uint64_t seed;
    /* Adds values per token (n) to the map "token" of the record, after the pass; or NULL. */
    void (*more)(void *ctx, struct record *rec);
    void *more_ctx;
};
/* Appends the rows of the method to the head's metric table, which is open in rec. */
void trace_metric_rows(const struct route_ops *ops, struct record *rec);
/* Adds `always_on` to a head: the layers that every token executes, by the method's own rule; and
 * the numbers of experts. */
void trace_always_on(const struct model *m, struct record *rec);
/* Runs the model over the text (buffers for n rows must be reserved; one document) and fills rec
 * with a probe record, left open: the caller may add keys, then record_end / runlog_append.  nll[t]
 * is of token t given its past. */
void trace_run(struct model *m, const struct trace_text *t, const struct trace_options *o,
               struct record *rec);

#endif
