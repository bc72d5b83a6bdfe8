/* Linear routers, one per layer: score = w . x + b, p = sigmoid(score); with the three usual
 * penalties on the scores and the noise used in training. */
#ifndef DS_ROUTING_LINEAR_ROUTER_H
#define DS_ROUTING_LINEAR_ROUTER_H

#include <stdint.h>

#include "base/err.h"
#include "engine/param.h"
#include "engine/real.h"
#include "routing/route.h"

/* Penalty weights of each layer, on means over the counted rows. */
struct router_penalty {
    double capacity, target; /* capacity (mean p - target)^2 */
    double z;                /* z mean score^2 */
    double entropy;          /* - entropy mean H(p), p clamped away from 0 and 1 */
};
enum { ROUTER_PENALTIES = 3 };

struct linear_router {
    struct params *params;
    int L, C, weight, bias; /* params "PREFIX.weight" (L,C), "PREFIX.bias" (L) */
    int R, R_max;
    real *score, *dscore; /* (L,R), (R) */
    double *mean, *count; /* (L) mean p and rows under the current penalties; 0 = none */
    struct router_penalty price;
};

/* Initial weights are N(0, gain^2 2 / (C + 1)). */
int linear_router_init(struct linear_router *x, struct params *ps, const char *prefix, int L, int C,
                       double gain, struct err *e) DS_CHECK;
void linear_router_layout(struct linear_router *x, struct arena *a, int R);
void linear_router_release(struct linear_router *x);
/* lr as in struct param; 0 = frozen. */
void linear_router_freeze(struct linear_router *x, double lr);
void linear_router_begin(struct linear_router *x, int R);
/* Scores of x (R,C) in layer l: a row of `score`.  A row's bits do not depend on the other rows. */
real *linear_router_fwd(struct linear_router *x, int l, const real *in);
real *linear_router_score(const struct linear_router *x, int l);
double linear_router_probability(real score); /* p */
/* Penalties of layer l over rows with counts[i]; added to loss (capacity, z, entropy) and kept for
 * backward. */
void linear_router_penalty(struct linear_router *x, int l, const uint8_t *counts,
                           const struct router_penalty *price, double loss[ROUTER_PENALTIES]);
/* Mean entropy of p over rows with counts[i], nats. */
double linear_router_entropy(const struct linear_router *x, int l, const uint8_t *counts);
/* dp (R): d loss / d p without the penalties.  Accumulates into the parameters and, unless NULL,
 * din. */
void linear_router_bwd(struct linear_router *x, int l, const real *dp, const uint8_t *counts,
                       const real *in, real *din);
/* Gumbel noise of cell (l, i) of a training pass, clamped to +-10 so that a rare draw does not
 * decide alone. */
double linear_router_gumbel(const struct route *r, int l, int i);

#endif
