/* Samples a token from logits: temperature, top-k, nucleus (top-p) and min-p, in that order. */
#ifndef DS_MODELS_SAMPLE_H
#define DS_MODELS_SAMPLE_H

#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

struct sample_options {
    double temperature; /* 0: the most likely token                               */
    int top_k;          /* 0: all                                                 */
    double top_p;       /* 1: all; smallest set of tokens with at least this mass */
    double min_p;       /* 0: all; tokens with at least this share of the most likely one's mass */
    uint64_t seed;
};
struct sampler {
    int V;
    struct sample_cell *cell; /* (V) */
    double *weight;           /* (V) */
    struct sample_bins *bins;
};
int sampler_init(struct sampler *s, int V, struct err *e) DS_CHECK;
void sampler_release(struct sampler *s);
/* Draws from logits (V) at (seed, RNG_SAMPLE, step): the same step gives the same token, whatever
 * came before. Ties go to the lower id.  p: probability of the token under the plain softmax
 * (temperature 1, nothing cut), may be NULL.  DS_ENUMERIC when a logit is NaN or +Inf or none is
 * finite (-Inf excludes a token). */
int sampler_pick(struct sampler *s, const real *logits, const struct sample_options *o,
                 uint64_t step, int32_t *id, double *p, struct err *e) DS_CHECK;

/* The distribution that sampler_pick draws from: p (V) sums to 1; greedy: all on one token.  The
 * same errors. */
int sampler_probs(struct sampler *s, const real *logits, const struct sample_options *o, double *p,
                  struct err *e) DS_CHECK;
/* The index at which the running sum of p (V) passes at * its sum, at in [0, 1). */
int32_t sample_at(const double *p, int V, double at);

/* llama2.c's sampler, to reproduce its published texts: float arithmetic, a xorshift64* generator
 * whose state carries over from token to token, and its own top_p cut (0 or 1: none; it has no
 * top_k).  *state: the seed, not 0, before the first token. */
int sampler_pick_llama2c(struct sampler *s, const real *logits, const struct sample_options *o,
                         uint64_t *state, int32_t *id, struct err *e) DS_CHECK;

/* The log-probability of a token under the plain softmax, and of the k most likely (at most V),
 * most likely first, ties by the lower id.  Returns how many were filled. */
struct sample_rank {
    int32_t id;
    double logprob;
};
int sample_ranks(const real *logits, int V, int32_t id, double *logprob, struct sample_rank *top,
                 int k);

#endif
