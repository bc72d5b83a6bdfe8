/* Prior networks: SwiGLU predictors of a block's update. */
#include "routing/prior.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "engine/linear.h"
#include "engine/ops.h"

static const real norm_eps = (real)1e-6;

int prior_width(int C, double factor)
{
    int d = (int)ceil(C * factor - 1e-9);
    d += d % 2;
    return d < 2 ? 2 : d;
}

static int add(const struct prior *p, const char *prefix, const char *name, int rows, int cols,
               const struct prior_shape *shape)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s.weight", prefix, name);
    int i = params_add(p->params, full, rows, cols, PARAM_ROUTER, cols ? INIT_NORMAL : INIT_ONE,
                       cols ? shape->std : 0);
    if (i >= 0)
        p->params->p[i].lr = shape->lr;
    return i;
}

int prior_init(struct prior *p, struct params *ps, const char *prefix,
               const struct prior_shape *shape, struct err *e)
{
    int C = shape->C, D = shape->D;
    *p = (struct prior){.params = ps, .C = C, .D = D};
    p->norm = add(p, prefix, "norm", C, 0, shape);
    p->gate = add(p, prefix, "gate", D, C, shape);
    p->up = add(p, prefix, "up", D, C, shape);
    p->down = add(p, prefix, "down", C, D, shape);
    if (p->norm < 0 || p->gate < 0 || p->up < 0 || p->down < 0)
        return err_set(e, DS_EMEM, "parameters of %s", prefix);
    return 0;
}

/* Called once to measure and once to allocate. */
void prior_scratch_layout(struct prior_scratch *scratch, struct arena *a, int channels, int inner)
{
    size_t C = (size_t)channels, D = (size_t)inner;
    scratch->xn = arena_alloc(a, PRIOR_ROWS * C, sizeof(real));
    scratch->dxn = arena_alloc(a, PRIOR_ROWS * C, sizeof(real));
    scratch->rstd = arena_alloc(a, PRIOR_ROWS, sizeof(real));
    real **part[] = {&scratch->a,  &scratch->b,  &scratch->hid,
                     &scratch->da, &scratch->db, &scratch->dhid};
    for (size_t k = 0; k < DS_LEN(part); k++)
        *part[k] = arena_alloc(a, PRIOR_ROWS * D, sizeof(real));
}

static struct linear map_of(const struct prior *p, int index, int C, int O)
{
    return (struct linear){.C = C, .O = O, .format = GEMM_FP32, .w = p->params->p[index].value};
}

static struct norm norm_of(const struct prior *p, const struct prior_scratch *scratch, int N)
{
    return (struct norm){.w = p->params->p[p->norm].value,
                         .rstd = scratch->rstd,
                         .N = N,
                         .C = p->C,
                         .eps = norm_eps};
}

void prior_fwd(const struct prior *p, struct prior_scratch *scratch, real *y, const real *x, int N)
{
    BUG_IF(N > PRIOR_ROWS, "prior network of %d rows, at most %d", N, PRIOR_ROWS);
    struct linear gate = map_of(p, p->gate, p->C, p->D), up = map_of(p, p->up, p->C, p->D);
    struct linear down = map_of(p, p->down, p->D, p->C);
    struct norm n = norm_of(p, scratch, N);
    norm_fwd(scratch->xn, x, &n);                           /* 1 */
    linear_fwd(scratch->a, scratch->xn, &gate, N, 0, NULL); /* 2 */
    linear_fwd(scratch->b, scratch->xn, &up, N, 0, NULL);
    swiglu_fwd(scratch->hid, scratch->a, scratch->b, (size_t)N * (size_t)p->D); /* 3 */
    linear_fwd(y, scratch->hid, &down, N, 0, NULL);                             /* 4 */
}

void prior_bwd(const struct prior *p, struct prior_scratch *scratch, real *dx, const real *dy,
               const real *x, int N)
{
    const struct param *q = p->params->p;
    size_t inner = (size_t)N * (size_t)p->D;
    struct linear gate = map_of(p, p->gate, p->C, p->D), up = map_of(p, p->up, p->C, p->D);
    struct linear down = map_of(p, p->down, p->D, p->C);
    struct linear_rows hid = linear_rows(GEMM_FP32, scratch->hid, NULL, N, p->D);
    linear_bwd_w(q[p->down].grad, NULL, dy, &hid, &down); /* 4 */
    linear_bwd_x(scratch->dhid, dy, &down, N, 0, NULL);
    memset(scratch->da, 0, inner * sizeof(real));
    memset(scratch->db, 0, inner * sizeof(real));
    swiglu_bwd(scratch->da, scratch->db, scratch->dhid, scratch->a, scratch->b, inner); /* 3 */
    struct linear_rows xn = linear_rows(GEMM_FP32, scratch->xn, NULL, N, p->C);
    linear_bwd_w(q[p->gate].grad, NULL, scratch->da, &xn, &gate); /* 2 */
    linear_bwd_w(q[p->up].grad, NULL, scratch->db, &xn, &up);
    linear_bwd_x(scratch->dxn, scratch->da, &gate, N, 0, NULL);
    linear_bwd_x(scratch->dxn, scratch->db, &up, N, 1, NULL);
    struct norm n = norm_of(p, scratch, N);
    norm_bwd(dx, q[p->norm].grad, NULL, scratch->dxn, x, &n); /* 1 */
}

/* Three matrices; four operations per element in the norm, about five in the activation. */
double prior_flops(int C, int D)
{
    return 6.0 * C * D + 4.0 * C + 5.0 * D;
}
