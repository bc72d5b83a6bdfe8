/* Activations: SwiGLU and GELU.  MATH.md 6, 7. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vmath.h"

struct act_job {
    real *y, *da, *db;
    const real *a, *b, *dy;
    size_t n;
};

typedef void act_fn(const struct act_job *j, size_t i, size_t end);

static void act_run(const struct act_job *j, int task, act_fn *fn)
{
    size_t i, end = span_of(j->n, task, &i);
    fn(j, i, end);
}

static void swiglu_part(const struct act_job *j, size_t i, size_t end)
{
    real *h = j->y;
    const real *a = j->a, *b = j->b;
    V_SIMD
    for (size_t k = i; k < end; k++)
        h[k] = a[k] / (1 + v_exp(-a[k])) * b[k]; /* 6.1 */
}

static void swiglu_part_bwd(const struct act_job *j, size_t i, size_t end)
{
    real *da = j->da, *db = j->db;
    const real *a = j->a, *b = j->b, *dh = j->dy;
    if (da) {
        V_SIMD
        for (size_t k = i; k < end; k++) {
            real s = 1 / (1 + v_exp(-a[k]));
            da[k] += dh[k] * b[k] * s * (1 + a[k] * (1 - s)); /* 6.2 */
        }
    }
    if (db) {
        V_SIMD
        for (size_t k = i; k < end; k++)
            db[k] += dh[k] * (a[k] / (1 + v_exp(-a[k]))); /* 6.3 */
    }
}

/* Both gradients wanted: one pass, one exponential. */
static void swiglu_part_both(const struct act_job *j, size_t i, size_t end)
{
    real *da = j->da, *db = j->db;
    const real *a = j->a, *b = j->b, *dh = j->dy;
    V_SIMD
    for (size_t k = i; k < end; k++) {
        real s = 1 / (1 + v_exp(-a[k])), g = dh[k];
        da[k] += g * b[k] * s * (1 + a[k] * (1 - s));
        db[k] += g * (a[k] * s);
    }
}

static const real sqrt_half = REAL_C(0.70710678118654752440),
                  gauss = REAL_C(0.39894228040143267794);
static const real tanh_in = REAL_C(0.79788456080286535588), tanh_cubic = REAL_C(0.044715);

static void gelu_part(const struct act_job *j, size_t i, size_t end)
{
    real *y = j->y;
    const real *x = j->a;
    V_SIMD
    for (size_t k = i; k < end; k++)
        y[k] = REAL_C(0.5) * x[k] * (1 + v_erf(x[k] * sqrt_half)); /* 7.1 */
}

static void gelu_part_bwd(const struct act_job *j, size_t i, size_t end)
{
    real *dx = j->da;
    const real *x = j->a, *dy = j->dy;
    V_SIMD
    for (size_t k = i; k < end; k++) {
        real cdf = REAL_C(0.5) * (1 + v_erf(x[k] * sqrt_half));
        dx[k] += dy[k] * (cdf + x[k] * gauss * v_exp(REAL_C(-0.5) * x[k] * x[k])); /* 7.2 */
    }
}

static void gelu_tanh_part(const struct act_job *j, size_t i, size_t end)
{
    real *y = j->y;
    const real *x = j->a;
    V_SIMD
    for (size_t k = i; k < end; k++) {
        real t = v_tanh(tanh_in * (x[k] + tanh_cubic * x[k] * x[k] * x[k]));
        y[k] = REAL_C(0.5) * x[k] * (1 + t); /* 7.3 */
    }
}

static void gelu_tanh_part_bwd(const struct act_job *j, size_t i, size_t end)
{
    real *dx = j->da;
    const real *x = j->a, *dy = j->dy;
    V_SIMD
    for (size_t k = i; k < end; k++) {
        real t = v_tanh(tanh_in * (x[k] + tanh_cubic * x[k] * x[k] * x[k]));
        real du = tanh_in * (1 + 3 * tanh_cubic * x[k] * x[k]);
        dx[k] += dy[k] * REAL_C(0.5) * (1 + t + x[k] * (1 - t * t) * du); /* 7.4 */
    }
}

/* One pool function per activation: the loop inside is what is vectorised. */
#define ACT_TASK(name)                                                                             \
    static void name##_task(void *ctx, int task, int worker)                                       \
    {                                                                                              \
        (void)worker;                                                                              \
        act_run(ctx, task, name);                                                                  \
    }
ACT_TASK(swiglu_part)
ACT_TASK(swiglu_part_bwd)
ACT_TASK(swiglu_part_both)
ACT_TASK(gelu_part)
ACT_TASK(gelu_part_bwd)
ACT_TASK(gelu_tanh_part)
ACT_TASK(gelu_tanh_part_bwd)

void swiglu_fwd(real *h, const real *a, const real *b, size_t n)
{
    struct act_job j = {.y = h, .a = a, .b = b, .n = n};
    pool_run(span_tasks(n), swiglu_part_task, &j);
}

void swiglu_bwd(real *da, real *db, const real *dh, const real *a, const real *b, size_t n)
{
    struct act_job j = {.da = da, .db = db, .dy = dh, .a = a, .b = b, .n = n};
    if (da || db)
        pool_run(span_tasks(n), da && db ? swiglu_part_both_task : swiglu_part_bwd_task, &j);
}

void gelu_fwd(real *y, const real *x, size_t n)
{
    struct act_job j = {.y = y, .a = x, .n = n};
    pool_run(span_tasks(n), gelu_part_task, &j);
}

void gelu_bwd(real *dx, const real *dy, const real *x, size_t n)
{
    struct act_job j = {.da = dx, .dy = dy, .a = x, .n = n};
    if (dx)
        pool_run(span_tasks(n), gelu_part_bwd_task, &j);
}

void gelu_tanh_fwd(real *y, const real *x, size_t n)
{
    struct act_job j = {.y = y, .a = x, .n = n};
    pool_run(span_tasks(n), gelu_tanh_part_task, &j);
}

void gelu_tanh_bwd(real *dx, const real *dy, const real *x, size_t n)
{
    struct act_job j = {.da = dx, .dy = dy, .a = x, .n = n};
    if (dx)
        pool_run(span_tasks(n), gelu_tanh_part_bwd_task, &j);
}
