/* Prices on depth, whatever the method: what a token pays for the layers it runs, and how the price pushes its gates.
 *
 *   quadratic  (D/L)^2          EDP's "sparsity"; at equal mean depth it punishes spread
 *   entropy    (1 - H) D/L      tokens that are easy to predict pay more; H is a constant to the gradient
 *   polarise   4 u (1 - u)      u = share of the gated layers run; pushes away from the middle
 * D is the row's depth, a sum of gates, so the derivative is the same for every gate of a row. */
#ifndef DS_ROUTING_PENALTY_H
#define DS_ROUTING_PENALTY_H

#include "engine/real.h"

enum penalty_kind { PENALTY_OFF, PENALTY_QUADRATIC, PENALTY_ENTROPY, PENALTY_POLARISE };
#define PENALTY_CHOICES "off|quadratic|entropy|polarise"

struct penalty {
    enum penalty_kind kind;
    double lambda;       /* its weight now                                                */
    double push, target; /* a budget: push * (mean D/L - target); push is a constant here */
    int L, gated;        /* layers, and those that may be skipped (> 0)                   */
};

/* One row: the value, and in *slope its derivative by any one gate. */
double penalty_row(const struct penalty *p, double D, double H, double *slope);
/* Loss of all rows, nats per token; slope (R) gets its derivative by any gate of each row.  depth (R);
 * entropy (R), relative to ln V, is read for PENALTY_ENTROPY only. */
double penalty_rows(const struct penalty *p, const double *depth, const real *entropy, real *slope,
                    int R);
/* Factor on lambda: from 0 to 1 over the first `warmup` of training. */
double penalty_ramp(double progress, double warmup);

#endif
