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
    double
        flops; /* per step: 3 x forward over the rows that training computes, decisions included; the mean over
                           the run, for schedules that change it */
    double dense;       /* per step that computes every row */
    int64_t tokens;     /* per step */
    int64_t parameters; /* without embeddings, as in the head record */
};
/* Opens texts and tokenizer, creates the model (forward only) and evaluates training plans on
 * random ids.  Moves what the model needs out of *c; the caller still releases c.  A multiply-add
 * is 2 FLOPs, see routing/flops.h. */
int train_cost(struct train_cost *out, struct train_config *c, struct train_cost_cache *cache,
               struct err *e) DS_CHECK;

#endif
