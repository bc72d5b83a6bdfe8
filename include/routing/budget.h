/* Keeping a compute budget: what decides how many cells run, whatever the method. */
#ifndef DS_ROUTING_BUDGET_H
#define DS_ROUTING_BUDGET_H

#include "engine/real.h"

/* What holds the ratio at its target. */
enum budget_kind {
    BUDGET_OFFSET, /* a common threshold offset is moved; the loss stays free */
    BUDGET_DUAL,   /* mu (ratio - target) in the loss, mu a dual variable                        */
    BUDGET_LOSS,   /* lambda |ratio - target| in the loss                                        */
    BUDGET_OFF,
};
#define BUDGET_CHOICES "offset|dual|loss|off"
/* d loss / d ratio of a budget: `miss` = ratio - target, lambda of BUDGET_LOSS, dual of BUDGET_DUAL. */
double budget_push(enum budget_kind kind, double miss, double lambda, double dual);

/* Integral controller with a bound: value += rate * (measured - target).  A ratio above target raises it. */
double budget_step(double value, double measured, double target, double rate, double bound);
/* The target at `progress`: from 1 down to rho over the first `anneal` of training, then rho. */
double budget_target(double rho, double progress, double anneal);
/* q-quantile (0..1) of x[0..n) by selection; x is reordered; NaN last.  n = 0: NaN. */
real quantile_of(real *x, int n, double q);

#endif
