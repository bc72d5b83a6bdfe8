/* Small MLPs of routers and predictors, in fp32 whatever the model's compute type.
 *
 *     x (R, dim[0]) -> act(x W0^T + b0) -> ... -> y (R, dim[n])
 *
 * A row's bits do not depend on the other rows of the call (engine/gemm.h). */
#ifndef DS_ROUTING_MLP_H
#define DS_ROUTING_MLP_H

#include "base/arena.h"
#include "base/err.h"
#include "engine/param.h"
#include "engine/real.h"

enum { MLP_MAPS = 3 };
enum mlp_act { MLP_ACT_GELU, MLP_ACT_SILU };
struct mlp {
    struct params *params;
    int n, dim[MLP_MAPS + 1]; /* n linear layers */
    enum mlp_act act;
    int w[MLP_MAPS], b[MLP_MAPS]; /* params "PREFIX.K.weight", "PREFIX.K.bias"; b -1 = none */
    real *pre[MLP_MAPS], *post[MLP_MAPS],
        *grad[MLP_MAPS]; /* (R_max, dim[k + 1]) of the layers before the last */
    int R_max;
};
struct mlp_shape {
    int n, dim[MLP_MAPS + 1];
    enum mlp_act act;
    int bias;
    /* Standard deviation of the weights.  0: the last layer starts at zero, the others at
     * 1 / sqrt(inputs), so that all of them learn. */
    double std;
    double gain;                 /* > 0 replaces std: gain / sqrt(inputs) in each layer */
    double last_bias, last_step; /* initial bias i of the last layer: last_bias + i last_step */
};
int mlp_init(struct mlp *m, struct params *ps, const char *prefix, const struct mlp_shape *shape,
             struct err *e) DS_CHECK;
void mlp_layout(struct mlp *m, struct arena *a, int R);
/* y (R, dim[n]).  R may be 0. */
void mlp_fwd(struct mlp *m, real *y, const real *x, int R);
/* Accumulates into the parameters' gradients and, unless NULL, dx.  Recomputes forward from x. */
void mlp_bwd(struct mlp *m, real *dx, const real *dy, const real *x, int R);
double mlp_flops(const struct mlp *m); /* per row */

#endif
