/* A small network that predicts one value per row from standardised inputs, and how it learns
 * offline: from samples collected once, with its own optimiser, the same at any number of threads.
 *
 *     y = w2 . gelu(W1 (x - mean) / sd + b1) + b2        16 units */
#ifndef DS_ROUTING_REGRET_H
#define DS_ROUTING_REGRET_H

#include <stddef.h>

#include "base/arena.h"
#include "base/err.h"
#include "routing/mlp.h"
#include "routing/route.h"

struct regret {
    struct params *params;
    struct mlp net;
    int D;                 /* inputs */
    int mean, sd, seen;    /* params: (D), (D), (1): decayed weight of what they hold */
    double *sum, *sum2, n; /* of the current step */
};
/* Params "PREFIX.head.*" and buffers.  train: the optimiser of the run trains the network. */
int regret_init(struct regret *g, struct params *ps, const char *prefix, int D, int train,
                struct err *e) DS_CHECK;
void regret_layout(struct regret *g, struct arena *a, int R);
void regret_release(struct regret *g);
double regret_flops(const struct regret *g); /* per row */

/* x (n, D) in place; NaN becomes the mean. */
void regret_standardize(const struct regret *g, real *x, size_t n);
/* y (n) from standardised x; n <= R. */
void regret_predict(struct regret *g, real *y, const real *x, int n);
/* Accumulates into the network's gradients. */
void regret_bwd(struct regret *g, const real *dy, const real *x, int n);
/* Before a step: drops what a skipped one has noted. */
void regret_begin(struct regret *g);
/* Adds raw x (n, D) to the statistics of this step; the first step's are used at once. */
void regret_note(struct regret *g, const real *x, int n);
/* For ops->counts. */
void regret_counts(struct regret *g, route_count_fn *each, void *ctx);
/* After the step. */
void regret_update(struct regret *g, double ema);

/* Fits the network and the standardisation to n samples: x (n, D) raw, standardised in place;
 * label (n), NaN = not known.  Returns the share of the labels' variance that is explained; NaN
 * when there are too few samples (nothing has changed then).  DS_EMEM. */
int regret_fit(struct regret *g, real *x, const real *label, size_t n, int steps, uint64_t seed,
               double *explained, struct err *e) DS_CHECK;

#endif
