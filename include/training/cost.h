/* FLOPs of a training step, counted on the model that a configuration describes. */
#ifndef DS_TRAINING_COST_H
#define DS_TRAINING_COST_H

#include <stdint.h>

#include "base/err.h"
#include "training/options.h"

/* Remembers the tokenizer's size per corpus. Zero-initialise; owns nothing. */
struct train_cost_cache {
    uint64_t texts;
    int vocab;
};

struct train_cost {
    /* per step: 3 x forward over the rows that training computes, decisions included; the mean over
     * the run, for schedules that change it */
    double flops;
    double dense;       /* per step that computes every row */
    int64_t tokens;     /* per step */
    int64_t parameters; /* model_non_embedding, as in the head record */
};
/* Opens texts and tokenizer, creates the model (forward only) and evaluates training plans on
 * random ids.  Moves what the model needs out of *c; the caller still releases c.  A multiply-add
 * is 2 FLOPs, see routing/flops.h. */
int train_cost(struct train_cost *out, struct train_config *c, struct train_cost_cache *cache,
               struct err *e) DS_CHECK;

/* What a configuration says of its size, without opening texts.  Counts are of the base model,
 * without method and adapters; bytes include both. */
struct train_size {
    int64_t params, non_embedding, /* without embedding, head and position table */
        layer;
    double flops;  /* forward FLOPs per token, mean over a full context */
    double bytes;  /* weights, gradients and both Adam moments in fp32; of a frozen base, weights */
    double tokens; /* of the whole run */
    double work;   /* FLOPs of the whole run, dense: 3 x forward */
};
void train_config_size(struct train_size *s, const struct train_config *c);

/* What a run will need, before it starts.  Buffers are measured by laying them out. */
struct train_estimate {
    struct train_size size;
    double memory;       /* bytes: size.bytes and the buffers of a step */
    double checkpoint;   /* bytes of one on disk */
    int64_t checkpoints; /* kept at the end of the run */
};
int train_estimate(struct train_estimate *out, const struct train_config *c,
                   struct err *e) DS_CHECK;

#endif
