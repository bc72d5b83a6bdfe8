/* How fast this machine is at what the program does.  Every number is a median over rounds with its range; the things
 * that are compared are measured in turn, round by round, so that a change of the machine's pace hits them alike. */
#ifndef DS_EVAL_SPEED_H
#define DS_EVAL_SPEED_H

#include <stdint.h>

#include "base/err.h"
#include "base/opt.h"

struct speed_options {
    int64_t rounds, layers, dim, heads, vocab, prefill, decode, batch, seq, threads;
    int quick;
    char *only; /* part of a name; "" = all */
};
extern const struct opt_group speed_group;

/* vs: this median over its reference's (NaN: no reference); reference: "fma peak", "dense". */
struct speed_result {
    char name[64];
    const char *unit, *reference;
    double median, min, max, vs;
};
struct speed_list {
    struct speed_result *v;
    size_t n, cap;
};

/* Quick settings replace the sizes that were not named. */
int speed_run(struct speed_list *out, const struct speed_options *o, struct err *e) DS_CHECK;
void speed_release(struct speed_list *l);

/* ---- parts: speed_parts.c ---- */
/* Adds a result from samples (sorted by it). reference_median NaN or 0: none. */
int speed_add(struct speed_list *l, const char *name, const char *unit, double *sample, int n,
              const char *reference, double reference_median, struct err *e) DS_CHECK;
int speed_wants(const struct speed_options *o, const char *name);
/* Peak of the compiled fused multiply-add loop on all threads (GFLOP/s), and of reading memory in order (GB/s). */
double speed_fma_gflops(void);
double speed_read_gbs(const float *buffer, size_t n);
/* Matrix products of the model's shapes by every provider that runs here. */
int speed_products(struct speed_list *l, const struct speed_options *o, double peak,
                   struct err *e) DS_CHECK;

#endif
