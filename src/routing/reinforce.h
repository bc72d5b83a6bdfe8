/* Score-function gradients of gates drawn from Bernoulli(p), p = sigmoid(logit) (Williams 1992):
 *
 *     d loss / d logit = - (reward - baseline) / n * (drawn - p)         n = losses.rows
 *
 * with the running mean of the reward as baseline. */
#ifndef DS_ROUTING_REINFORCE_H
#define DS_ROUTING_REINFORCE_H

#include "base/arena.h"
#include "base/err.h"
#include "engine/param.h"
#include "routing/route.h"

struct reinforce {
    struct params *params;
    int baseline;      /* param (2): running mean, its weight; saved in checkpoints */
    double *advantage; /* (R) (baseline - reward) / n */
    double mean;       /* reward of this step: of a piece, its sum by losses.rows */
};
int reinforce_init(struct reinforce *x, struct params *ps, const char *prefix,
                   struct err *e) DS_CHECK;
void reinforce_layout(struct reinforce *x, struct arena *a, int R);
/* Takes the rewards (R) of the rows with target >= 0.  In the first step the baseline is their
 * mean. */
void reinforce_note(struct reinforce *x, const double *reward, const struct losses *of);
/* d loss / d logit of row i, which drew 0 or 1 with probability p of 1. */
double reinforce_grad(const struct reinforce *x, int i, int drawn, double p);
void reinforce_update(struct reinforce *x, double ema);

#endif
