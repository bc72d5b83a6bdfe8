/* Running mean and standard deviation of per-layer values, kept in untrained parameters so that
 * checkpoints save them. */
#ifndef DS_ROUTING_STANDARD_H
#define DS_ROUTING_STANDARD_H

#include "base/err.h"
#include "engine/param.h"
#include "routing/route.h"

enum { STANDARD_MAX = 8 };
struct standardizer {
    struct params *params;
    int L, width;            /* values per layer, <= STANDARD_MAX */
    int mean, square, count; /* params: (L, width), (L, width), (L): decayed sums */
    double *sum, *sum2, *n;  /* of the current step */
};
/* (x - mean) * inv; mean 0 and inv 1 without data. */
struct standard {
    real mean[STANDARD_MAX], inv[STANDARD_MAX];
};

int standardizer_init(struct standardizer *s, struct params *ps, const char *prefix, int L,
                      int width, struct err *e) DS_CHECK;
void standardizer_release(struct standardizer *s);
void standardizer_begin(struct standardizer *s); /* clears the current step's sums */
void standardizer_add(struct standardizer *s, int l, const real *x);
/* Statistics of layer l.  fresh: while nothing is stored, those of the current step. */
struct standard standardizer_at(const struct standardizer *s, int l, int fresh);
/* The same over layers from .. to - 1 together; a fresh step counts those up to l. */
struct standard standardizer_over(const struct standardizer *s, int from, int to, int l, int fresh);
/* For ops->counts. */
void standardizer_counts(struct standardizer *s, route_count_fn *each, void *ctx);
/* Folds the current step into the decayed sums. */
void standardizer_update(struct standardizer *s, double ema);

#endif
