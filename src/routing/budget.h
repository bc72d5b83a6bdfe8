/* Compute budgets: what decides how many cells run, whatever the method. */
#ifndef DS_ROUTING_BUDGET_H
#define DS_ROUTING_BUDGET_H

#include "engine/real.h"

/* How the executed share is held at its target. */
enum budget_kind {
    BUDGET_OFFSET, /* an integral controller moves a common threshold offset */
    BUDGET_DUAL,   /* adds mu (ratio - target) to the loss, mu a dual variable */
    BUDGET_LOSS,   /* adds lambda |ratio - target| to the loss */
    BUDGET_OFF,
};
#define BUDGET_CHOICES "offset|dual|loss|off"
/* d loss / d ratio of a budget.  miss = ratio - target; lambda is read for BUDGET_LOSS, dual for
 * BUDGET_DUAL. */
double budget_push(enum budget_kind kind, double miss, double lambda, double dual);

/* Bounded integral controller: value += rate * (measured - target), so a ratio above target raises
 * it. */
double budget_step(double value, double measured, double target, double rate, double bound);
/* The target at `progress`: falls linearly from 1 to rho over the first `anneal` of training. */
double budget_target(double rho, double progress, double anneal);
/* q-quantile (0..1) of x[0..n); reorders x, NaN sorts last.  n = 0 gives NaN. */
real quantile_of(real *x, int n, double q);

#endif
