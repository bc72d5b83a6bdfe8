/* What an evaluation says of a routed model: loss, compute, how depth is spread over tokens and what it follows. */
#ifndef DS_MODELS_MEASURE_H
#define DS_MODELS_MEASURE_H

#include "base/err.h"
#include "io/record.h"
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
    MEASURE_COLUMNS
};
struct measure {
    int L, P; /* layers; positions of the map */
    double nll, tokens, bytes;
    double run, cells, flops, flops_dense;
    double *capacity;               /* (L) executed rows            */
    double *map, *map_n;            /* (L, P), (P): gate rate by true position */
    float *column[MEASURE_COLUMNS]; /* up to cap samples each */
    size_t n, cap;
    double time_dense,
        time_ratio; /* seconds per token of dense prefill; ratio of the routed one. NaN: not measured */
    const float *
        token_class; /* (vocab) kind of each id, borrowed; NULL = unknown.  What is in the worst tenth of losses is
                                 high-loss whatever its kind (data/token_class.h) */
    char signal[32]; /* the cell metric behind MEASURE_SIGNAL, "" none */
};
int measure_init(struct measure *s, const struct model *m, int positions, size_t samples,
                 struct err *e) DS_CHECK;
void measure_release(struct measure *s);
/* After model_forward (pass.record = 1) and model_loss(m, 0, 1). true_entropy (R) of the targets, or NULL. bytes: of the targets. */
void measure_add(struct measure *s, const struct model *m, const float *true_entropy,
                 uint64_t bytes);
/* Prefill of T tokens (one sequence, last logits): dense and routed in turn, `rounds` pairs, in this process; medians
 * of the dense time and of the pairs' ratios. */
void measure_time(struct measure *s, struct model *m, const int32_t *id, int T, int rounds,
                  uint64_t seed);
/* Record "eval" (and "sample" when samples were kept) as io/FORMATS.md says. */
void measure_eval_record(const struct measure *s, struct record *rec, const char *task,
                         const char *routing, int64_t step, double time);
void measure_sample_record(const struct measure *s, struct record *rec, const char *name,
                           int64_t step, double time);

double measure_loss(const struct measure *s);          /* nats per token */
double measure_bits_per_byte(const struct measure *s); /* NaN when bytes are unknown */
double measure_block_ratio(const struct measure *s);
double measure_model_ratio(const struct measure *s);
/* Pearson's r of two columns over rows where both are finite; NaN when undefined (n < 3 or no variance). */
double measure_correlation(const struct measure *s, enum measure_column a, enum measure_column b);
void measure_depth(const struct measure *s, double *mean, double *sd);

#endif
