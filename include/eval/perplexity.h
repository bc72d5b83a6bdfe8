/* task=ppl: loss over a text, with what the routing did meanwhile. */
#ifndef DS_EVAL_PERPLEXITY_H
#define DS_EVAL_PERPLEXITY_H

#include <stdint.h>

#include "base/opt.h"
#include "eval/subject.h"
#include "models/measure.h"

/* Keys without a prefix, and data.*; empty strings and zeros mean "as the run that made the model". */
struct ppl_options {
    char *task, *path, *format, *text_key;
    int64_t max_bytes, docs, seed, tokens, batch, seq, time_rounds, threads;
    double val_fraction, threshold_offset;
    int routing, split;
    struct number_options numbers;
};
enum ppl_routing { PPL_CAUSAL, PPL_TOPK, PPL_DENSE };
enum ppl_split { PPL_SPLIT_AUTO, PPL_SPLIT_VAL, PPL_SPLIT_TRAIN, PPL_SPLIT_ALL };
extern const struct opt_group ppl_group;
extern const char *const ppl_routing_name[];

struct ppl_result {
    struct measure measure;
    char data[256]; /* what was read, for tables: "synth, validation split" */
    const char *task, *routing;
    int64_t batch, seq, windows;
};
/* The run's own validation split unless the options name data.  DS_EUSAGE: an unknown task, a routing the method has not.
 * DS_ENUMERIC when the loss is not a number. */
int ppl_run(struct ppl_result *out, struct subject *s, const struct ppl_options *o,
            struct err *e) DS_CHECK;
void ppl_result_release(struct ppl_result *r);

#endif
