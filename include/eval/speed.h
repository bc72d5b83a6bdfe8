/* Benchmarks of this machine.  Every result is a median over rounds with its range.  Compared items
 * are measured in alternation, round by round, so that changes in machine speed affect them alike,
 * and together with the machine's peaks, measured in the same process.
 *
 * Groups: peaks, load (of a model on disk; named in `only`, it also evicts the file from the page
 * cache, to time both sides from the disk), ops (GEMM and other operations, one at a time), blocks
 * (one decoder block), train (whole steps), prefill, decode and speculate (decoding with drafts of
 * which a given share is accepted).  Ratios are executed shares of the
 * gated cells: 1 is every cell; layers that a method keeps always on are on at any ratio. */
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
    struct numeric_options numbers;
    char *only; /* groups or parts of names, separated by commas; "" = all */
};
extern const struct opt_group speed_group;

/* NaN: not applicable.  Rates are those of the median. */
struct speed_result {
    char name[64];
    const char *group, *unit;
    double median, min, max;
    const char *reference; /* reference of `vs`: "dense", or the peak; NULL */
    double vs;             /* this median over the reference's */
    double gflops,
        gbs; /* GFLOP/s from the executed plans, GB/s of the data that must be read (and written) */
    const char *limit; /* "bf16", "fp32", "read"; NULL */
    double share;      /* of that peak, as measured in this process */
    double tokens_s;
    double time_ratio, flops_ratio;                    /* relative to the alternating dense pass */
    double weights_bytes, stream_bytes, scratch_bytes; /* peaks of the arenas */
};
struct speed_list {
    struct speed_result *v;
    size_t n, cap;
    double memory_bytes; /* estimated before the start */
    char model[160];     /* "12 x 512, 8 heads, ..." */
    const char *gemm;    /* the provider of the model's format */
};

/* from: a model on disk (as model_locate found it) whose loading and inference are measured, with
 * forced cells; NULL: random weights in the shape of the options.  model_keys: entries "model.*"
 * that override the shape, or NULL; model.method restricts the methods to one.  DS_ERANGE with the
 * figures when free memory does not suffice; DS_EUSAGE when `only` matches nothing. */
int speed_run(struct speed_list *out, const struct speed_options *o, const char *from,
              const struct config *model_keys, struct err *e) DS_CHECK;
void speed_release(struct speed_list *l);

#endif
