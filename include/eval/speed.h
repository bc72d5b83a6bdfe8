/* How fast this machine is at what the program does.  Every number is a median over rounds with its range; things that
 * are compared are measured in turn, round by round, so that a change of the machine's pace hits them alike, and beside
 * the machine's limits, measured in the same process.
 *
 * Groups: peaks (the limits), load (of a model on disk), ops (products and everything else, one at a time), blocks (one decoder block), train (whole
 * steps), prefill and decode.  Ratios are shares of the gated cells that run: 1 is every cell, and layers that a method
 * keeps always on are on at any ratio. */
#ifndef DS_EVAL_SPEED_H
#define DS_EVAL_SPEED_H

#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "base/opt.h"
#include "models/weights.h"

struct speed_options {
    int64_t rounds, layers, dim, heads, vocab, prefill, decode, batch, seq, threads;
    int quick, shape;
    struct number_options numbers;
    char *only; /* groups or parts of names, with commas; "" = all */
};
extern const struct opt_group speed_group;

/* NaN: there is no such figure.  Rates are of the median. */
struct speed_result {
    char name[64];
    const char *group, *unit;
    double median, min, max;
    const char *reference; /* what vs compares with: "dense", or the limit; NULL */
    double vs;             /* this median over the reference's */
    double gflops,
        gbs; /* GFLOP/s counted from the plans that ran, GB/s of what must be read (and written) */
    const char *limit; /* "bf16", "fp32", "read"; NULL */
    double share;      /* of that limit, as measured in this process */
    double tokens_s;
    double time_ratio, flops_ratio;                 /* against the dense pass beside it */
    double weights_bytes, stream_bytes, work_bytes; /* peaks of the arenas */
};
struct speed_list {
    struct speed_result *v;
    size_t n, cap;
    double memory_bytes;  /* estimated before the start */
    char model[160];      /* "12 x 512, 8 heads, ..." */
    const char *products; /* the provider of the model's format */
};

/* from: a model on disk (as model_locate found it) whose loading and use are measured, with its methods' cells forced; NULL: one
 * of random weights in the shape of the options.  model_keys: entries "model.*" on top of the shape, or NULL; model.method
 * restricts the methods to one.  DS_ERANGE with the
 * figures when what is wanted does not fit into the memory that is free; DS_EUSAGE when nothing has such a name. */
int speed_run(struct speed_list *out, const struct speed_options *o, const char *from,
              const struct config *model_keys, struct err *e) DS_CHECK;
void speed_release(struct speed_list *l);

#endif
