/* Evaluates a model at requested capacities (ROUTE_CAPACITY), and searches for the capacity with a
 * target speedup. */
#ifndef DS_EVAL_CAPACITY_H
#define DS_EVAL_CAPACITY_H

#include <stddef.h>

#include "eval/perplexity.h"

/* Results at one capacity, all over the same text; NaN: not measured. */
struct capacity_row {
    double target, realised; /* realised: blocks executed / all                       */
    double loss, delta;      /* nats per token; relative to dense, 0.01 = 1 % more    */
    double ppl_delta;        /* the same for perplexity, exp(loss) */
    double flops_ratio, time_ratio, decode_time_ratio; /* prefill and decoding, medians of pairs */
    double control_random_loss; /* random routing at the same rates per layer */
    double control_static_loss; /* static mask at the same rates */
    double control_random_flops_ratio;
};
enum { CAPACITY_ROWS = 64 };
struct capacity_table {
    struct capacity_row row[CAPACITY_ROWS];
    size_t n;
    double dense_loss, tokens;
    char data[256];
};
/* o->capacities: numbers in [0, 1] separated by commas.  DS_EUSAGE when malformed, or the method
 * has no capacity. */
int capacity_benchmark(struct capacity_table *out, struct subject *s, const struct ppl_options *o,
                       struct err *e) DS_CHECK;

struct capacity_found {
    double capacity, speedup; /* speedup: as measured                                */
    int is_met;               /* within the tolerance; else the nearest one found     */
    int passes;               /* number of capacities tried                           */
};
enum speedup_of { SPEEDUP_OF_FLOPS, SPEEDUP_OF_PREFILL, SPEEDUP_OF_DECODE };
/* Bisection over held-out text: at most 10 steps between the ends, to 2 % of target.  DS_ERANGE
 * "unreachable: ..." with the speedups at the ends. */
int capacity_search(struct capacity_found *out, struct ppl *p, double target, enum speedup_of of,
                    int rounds, struct err *e) DS_CHECK;
/* The search alone: `measure` returns the speedup at a capacity. */
typedef int capacity_speedup_fn(void *ctx, double capacity, double *speedup, struct err *e);
int capacity_bisect(struct capacity_found *out, double target, capacity_speedup_fn *measure,
                    void *ctx, struct err *e) DS_CHECK;

#endif
