/* From logits to a token: temperature, top-k and nucleus (top-p), in that order. */
#ifndef DS_MODELS_SAMPLE_H
#define DS_MODELS_SAMPLE_H

#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

struct sample_options {
    double temperature; /* 0: the most likely token                               */
    int top_k;          /* 0: all                                                 */
    double top_p;       /* 1: all; smallest set of tokens with at least this mass */
    uint64_t seed;
};
struct sampler {
    int V;
    struct sample_cell *cell;
};
int sampler_init(struct sampler *s, int V, struct err *e) DS_CHECK;
void sampler_release(struct sampler *s);
/* Draws from logits (V) at (seed, RNG_SAMPLE, step): the same step gives the same token, whatever came before.
 * Ties go to the lower id.  p: probability of the token under the plain softmax (temperature 1, nothing cut), may be
 * NULL.  DS_ENUMERIC when a logit is NaN or +Inf or none is finite (-Inf is a token that cannot come). */
int sampler_pick(struct sampler *s, const real *logits, const struct sample_options *o,
                 uint64_t step, int32_t *id, double *p, struct err *e) DS_CHECK;

#endif
