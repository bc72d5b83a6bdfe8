/* Running mean and deviation of per-layer values, kept in untrained parameters so that checkpoints carry them. */
#ifndef DS_ROUTING_STANDARD_H
#define DS_ROUTING_STANDARD_H

#include "base/err.h"
#include "engine/param.h"

enum { STANDARD_MAX = 8 };
struct standardiser {
    struct params *params;
    int L, width;            /* values per layer, <= STANDARD_MAX                  */
    int mean, square, count; /* params: (L, width), (L, width), (L): decayed sums  */
    double *sum, *sum2, *n;  /* of the present step                                */
};
/* (x - mean) * inv; mean 0 and inv 1 where nothing has been seen. */
struct standard {
    real mean[STANDARD_MAX], inv[STANDARD_MAX];
};

int standardiser_init(struct standardiser *s, struct params *ps, const char *prefix, int L,
                      int width, struct err *e) DS_CHECK;
void standardiser_release(struct standardiser *s);
void standardiser_begin(struct standardiser *s); /* forgets the present step's sums */
void standardiser_add(struct standardiser *s, int l, const real *x);
/* Of layer l; fresh != 0: where nothing has been stored yet, from the present step's sums. */
struct standard standardiser_at(const struct standardiser *s, int l, int fresh);
void standardiser_update(struct standardiser *s,
                         double ema); /* decayed sums take in the present step */

#endif
