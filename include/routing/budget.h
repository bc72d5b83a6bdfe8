/* Keeping a compute budget: what decides how many cells run, whatever the method. */
#ifndef DS_ROUTING_BUDGET_H
#define DS_ROUTING_BUDGET_H

#include "engine/real.h"

/* Integral controller with a bound: value += rate * (measured - target).  A ratio above target raises it. */
double budget_step(double value, double measured, double target, double rate, double bound);
/* The target at `progress`: from 1 down to rho over the first `anneal` of training, then rho. */
double budget_target(double rho, double progress, double anneal);
/* q-quantile (0..1) of x[0..n) by selection; x is reordered; NaN last.  n = 0: NaN. */
real quantile_of(real *x, int n, double q);

#endif
