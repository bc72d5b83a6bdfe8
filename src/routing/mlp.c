/* Small MLPs of routers and predictors: forward, backward and parameters. */
#include "routing/mlp.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "engine/linear.h"
#include "engine/ops.h"

/* Initial standard deviation of the weights of layer k. */
static double start_of(const struct mlp_shape *shape, int k)
{
    double by_inputs = 1 / sqrt((double)shape->dim[k]);
    if (shape->gain > 0)
        return shape->gain * by_inputs;
    return shape->std > 0 ? shape->std : k + 1 < shape->n ? by_inputs : 0;
}

static int add_map(struct mlp *m, const char *prefix, const struct mlp_shape *shape, int k)
{
    char name[96];
    double std = start_of(shape, k);
    int is_last = k + 1 == shape->n;
    snprintf(name, sizeof name, "%s.%d.weight", prefix, k);
    m->w[k] = params_add(m->params, name, m->dim[k + 1], m->dim[k], PARAM_ROUTER,
                         std > 0 ? INIT_NORMAL : INIT_ZERO, std);
    m->b[k] = -1;
    if (m->w[k] < 0 || !shape->bias)
        return m->w[k];
    snprintf(name, sizeof name, "%s.%d.bias", prefix, k);
    m->b[k] = params_add(m->params, name, m->dim[k + 1], 0, PARAM_ROUTER, INIT_CONST,
                         is_last ? shape->last_bias : 0);
    if (m->b[k] >= 0 && is_last)
        m->params->p[m->b[k]].step = shape->last_step;
    return m->b[k];
}

int mlp_init(struct mlp *m, struct params *ps, const char *prefix, const struct mlp_shape *shape,
             struct err *e)
{
    memset(m, 0, sizeof *m);
    BUG_IF(shape->n < 1 || shape->n > MLP_MAPS, "%s: %d linear layers", prefix, shape->n);
    m->params = ps;
    m->n = shape->n;
    m->act = shape->act;
    memcpy(m->dim, shape->dim, sizeof m->dim);
    for (int k = 0; k < m->n; k++)
        if (add_map(m, prefix, shape, k) < 0)
            return err_set(e, DS_EMEM, "parameters of %s", prefix);
    return 0;
}

void mlp_layout(struct mlp *m, struct arena *a, int R)
{
    for (int k = 0; k + 1 < m->n; k++) {
        size_t n = (size_t)R * (size_t)m->dim[k + 1];
        m->pre[k] = arena_zalloc(a, n, sizeof(real));
        m->post[k] = arena_zalloc(a, n, sizeof(real));
        m->grad[k] = arena_zalloc(a, n, sizeof(real));
    }
    m->R_max = R;
}

static struct linear map_of(const struct mlp *m, int k)
{
    const struct param *p = m->params->p;
    return (struct linear){.C = m->dim[k],
                           .O = m->dim[k + 1],
                           .format = GEMM_FP32,
                           .w = p[m->w[k]].value,
                           .b = m->b[k] < 0 ? NULL : p[m->b[k]].value};
}

static void act_fwd(enum mlp_act act, real *y, const real *x, size_t n)
{
    if (act == MLP_ACT_GELU) {
        gelu_fwd(y, x, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        y[i] = (real)((double)x[i] / (1 + exp(-(double)x[i])));
}

/* dx = dy act'(x), overwriting. */
static void act_bwd(enum mlp_act act, real *dx, const real *dy, const real *x, size_t n)
{
    if (act == MLP_ACT_GELU) {
        memset(dx, 0, n * sizeof *dx);
        gelu_bwd(dx, dy, x, n);
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double s = 1 / (1 + exp(-(double)x[i]));
        dx[i] = (real)((double)dy[i] * s * (1 + (double)x[i] * (1 - s)));
    }
}

/* Runs every layer but the last into pre and post; returns the input of the last. */
static const real *inner_fwd(struct mlp *m, const real *x, int R)
{
    BUG_IF(R > m->R_max, "router of %d rows, reserved %d", R, m->R_max);
    for (int k = 0; k + 1 < m->n; k++) {
        struct linear w = map_of(m, k);
        linear_fwd(m->pre[k], x, &w, R, 0, NULL);
        act_fwd(m->act, m->post[k], m->pre[k], (size_t)R * (size_t)w.O);
        x = m->post[k];
    }
    return x;
}

void mlp_fwd(struct mlp *m, real *y, const real *x, int R)
{
    struct linear w = map_of(m, m->n - 1);
    if (R == 0)
        return;
    linear_fwd(y, inner_fwd(m, x, R), &w, R, 0, NULL);
}

void mlp_bwd(struct mlp *m, real *dx, const real *dy, const real *x, int R)
{
    const struct param *p = m->params->p;
    if (R == 0)
        return;
    inner_fwd(m, x, R);
    for (int k = m->n - 1; k >= 0; k--) {
        struct linear w = map_of(m, k);
        const real *in = k > 0 ? m->post[k - 1] : x;
        struct linear_rows rows = linear_rows(GEMM_FP32, in, NULL, R, w.C);
        linear_bwd_w(p[m->w[k]].grad, m->b[k] < 0 ? NULL : p[m->b[k]].grad, dy, &rows, &w);
        if (k == 0) {
            if (dx)
                linear_bwd_x(dx, dy, &w, R, 1, NULL);
            return;
        }
        size_t n = (size_t)R * (size_t)w.C;
        linear_bwd_x(m->post[k - 1], dy, &w, R, 0, NULL); /* post is no longer needed */
        act_bwd(m->act, m->grad[k - 1], m->post[k - 1], m->pre[k - 1], n);
        dy = m->grad[k - 1];
    }
}

double mlp_flops(const struct mlp *m)
{
    double sum = 0;
    for (int k = 0; k < m->n; k++)
        sum += 2.0 * m->dim[k] * m->dim[k + 1];
    return sum;
}
