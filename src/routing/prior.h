/* Small networks that predict what a block will do to a token: bias-free SwiGLU on the normalised
 * state,
 *
 *     y (N,C) = (silu(n Wg^T) * (n Wu^T)) Wd^T,     n = RMSNorm(x)      Wg, Wu (D,C), Wd (C,D)
 *
 * in fp32 whatever the model's compute type.  A row's bits do not depend on the other rows of the
 * call. */
#ifndef DS_ROUTING_PRIOR_H
#define DS_ROUTING_PRIOR_H

#include "base/arena.h"
#include "base/err.h"
#include "engine/param.h"
#include "engine/real.h"

enum { PRIOR_ROWS = 256 }; /* maximum rows per call */

struct prior {
    struct params *params;
    int C, D;
    int norm, gate, up, down; /* params "PREFIX.norm.weight", ".gate.weight", ... */
};
struct prior_shape {
    int C, D;
    double std; /* standard deviation of the three matrices' initial values */
    double lr;  /* factor on the routers' learning rate */
};
/* Workspace for any number of networks of one shape. */
struct prior_scratch {
    real *xn, *rstd, *a, *b, *hid; /* of the last forward */
    real *da, *db, *dhid, *dxn;
};

/* Inner width: C * factor rounded up, then up to an even number; at least 2. */
int prior_width(int C, double factor);
int prior_init(struct prior *p, struct params *ps, const char *prefix,
               const struct prior_shape *shape, struct err *e) DS_CHECK;
void prior_scratch_layout(struct prior_scratch *scratch, struct arena *a, int channels, int inner);
void prior_fwd(const struct prior *p, struct prior_scratch *scratch, real *y, const real *x, int N);
/* Backward of the last prior_fwd with this workspace.  Accumulates into dx (not NULL) and the
 * parameters' gradients. */
void prior_bwd(const struct prior *p, struct prior_scratch *scratch, real *dx, const real *dy,
               const real *x, int N);
double prior_flops(int C, int D); /* per row */

#endif
