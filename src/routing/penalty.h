/* Depth penalties, whatever the method: what a row pays for the layers it runs.
 *
 *   quadratic  (D/L)^2          EDP's "sparsity"; at equal mean depth it penalises spread
 *   entropy    (1 - H) D/L      easily predicted tokens pay more; H is detached
 *   polarise   4 u (1 - u)      u = executed share of the gated layers; pushes u towards 0 or 1
 * The row's depth D is a sum of gates, so the derivative is the same for every gate of a row. */
#ifndef DS_ROUTING_PENALTY_H
#define DS_ROUTING_PENALTY_H

#include "engine/real.h"

enum penalty_kind { PENALTY_OFF, PENALTY_QUADRATIC, PENALTY_ENTROPY, PENALTY_POLARISE };
#define PENALTY_CHOICES "off|quadratic|entropy|polarise"

struct penalty {
    enum penalty_kind kind;
    double lambda;       /* current weight */
    double push, target; /* budget term push * (mean D/L - target); push is detached */
    int L, gated;        /* layers, gated layers (> 0) */
};

/* One row: returns the value and sets *slope to its derivative with respect to any one gate. */
double penalty_row(const struct penalty *p, double D, double H, double *slope);
/* Loss over all rows, nats per token; slope (R) gets each row's derivative with respect to any
 * gate. depth (R); entropy (R), relative to ln V, is read for PENALTY_ENTROPY only. */
double penalty_rows(const struct penalty *p, const double *depth, const real *entropy, real *slope,
                    int R);
/* Factor on lambda: from 0 to 1 over the first `warmup` of training. */
double penalty_ramp(double progress, double warmup);

#endif
