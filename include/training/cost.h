/* What a step of a run will cost, counted on the model that its configuration describes. */
#ifndef DS_TRAINING_COST_H
#define DS_TRAINING_COST_H

#include <stdint.h>

#include "base/err.h"
#include "training/options.h"

/* The tokenizer's size is asked once per set of texts. Zero-initialise; owns nothing. */
struct train_cost_cache {
    uint64_t texts;
    int vocab;
};

struct train_cost {
    double
        flops; /* of a step: 3 x forward over the rows that training computes, decisions included; the mean over
                           the run, for targets that move */
    double dense;       /* of a step that computes every row */
    int64_t tokens;     /* of a step */
    int64_t parameters; /* without embeddings, as the head record says */
};
/* Opens texts and tokenizer, makes the model (forward only) and runs training plans over random ids.  Takes from *c what
 * the model needs; the caller releases c.  A multiply-add is 2 FLOPs, see routing/flops.h. */
int train_cost(struct train_cost *out, struct train_config *c, struct train_cost_cache *cache,
               struct err *e) DS_CHECK;

#endif
