/* Linear routers, one for each layer: score = w . x + b, p = sigmoid(score).  With the three usual prices on their scores
 * and the noise they are trained with. */
#ifndef DS_ROUTING_LINEAR_ROUTER_H
#define DS_ROUTING_LINEAR_ROUTER_H

#include <stdint.h>

#include "base/err.h"
#include "engine/param.h"
#include "engine/real.h"
#include "routing/route.h"

/* Weights of what each layer pays, in means over the rows that count. */
struct router_price {
    double capacity, target; /* capacity (mean p - target)^2                  */
    double z;                /* z mean score^2                                */
    double entropy;          /* - entropy mean H(p), p kept off 0 and 1       */
};
enum { ROUTER_PRICES = 3 };

struct linear_router {
    struct params *params;
    int L, C, weight, bias; /* params "PREFIX.weight" (L,C), "PREFIX.bias" (L) */
    int R, R_max;
    real *score, *dscore; /* (L,R), (R) */
    double *mean, *count; /* (L) of p and rows in the present prices; 0 = not priced */
    struct router_price price;
};

/* gain: initial weights are N(0, gain^2 2 / (C + 1)). */
int linear_router_init(struct linear_router *x, struct params *ps, const char *prefix, int L, int C,
                       double gain, struct err *e) DS_CHECK;
int linear_router_reserve(struct linear_router *x, int R, struct err *e) DS_CHECK;
void linear_router_release(struct linear_router *x);
/* lr as in struct param; 0 = held. */
void linear_router_hold(struct linear_router *x, double lr);
void linear_router_begin(struct linear_router *x, int R);
/* Scores of x (R,C) by layer l: a row of `score`.  A row has the same bits whichever others are there. */
real *linear_router_fwd(struct linear_router *x, int l, const real *in);
real *linear_router_score(const struct linear_router *x, int l);
double linear_router_chance(real score); /* p */
/* Prices of layer l over rows with counts[i]; added to loss (capacity, z, entropy).  Kept for the backward. */
void linear_router_pay(struct linear_router *x, int l, const uint8_t *counts,
                       const struct router_price *price, double loss[ROUTER_PRICES]);
/* Mean entropy of p over rows with counts[i], nats. */
double linear_router_entropy(const struct linear_router *x, int l, const uint8_t *counts);
/* dp (R): d loss / d p beside the prices.  Into the parameters and, unless NULL, din. */
void linear_router_bwd(struct linear_router *x, int l, const real *dp, const uint8_t *counts,
                       const real *in, real *din);
/* Gumbel noise of cell (l, i) of a training pass, within +-10: rare draws must not decide alone. */
double linear_router_gumbel(const struct route *r, int l, int i);

#endif
