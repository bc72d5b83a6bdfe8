/* RMSNorm and LayerNorm.  MATH.md 3, 4. */
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vmath.h"

struct norm_job {
    real *y, *mean, *rstd;
    real *dx, *dw, *db, *part; /* part: one row of dw, one of db per chunk */
    const real *x, *w, *b, *dy, *mean_in, *rstd_in;
    int N, C, step, chunks;
    real eps;
};

/* Rows of a task. */
static void norm_range(const struct norm_job *j, int task, int *begin, int *end)
{
    *begin = task * j->step;
    *end = j->N - *begin < j->step ? j->N : *begin + j->step;
}

static void rmsnorm_rows(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    int i, end, C = j->C;
    (void)worker;
    for (norm_range(j, task, &i, &end); i < end; i++) {
        const real *x = j->x + (size_t)i * C;
        real *y = j->y + (size_t)i * C;
        real rstd = 1 / sqrt_r(v_dot(x, x, (size_t)C) / (real)C + j->eps); /* 3.1 */
        j->rstd[i] = rstd;
#pragma omp simd
        for (int c = 0; c < C; c++)
            y[c] = x[c] * rstd * j->w[c];
    }
}

void rmsnorm_fwd(real *y, real *rstd, const real *x, const real *w, int N, int C, real eps)
{
    struct norm_job j = {
        .y = y, .rstd = rstd, .x = x, .w = w, .N = N, .C = C, .eps = eps, .step = task_rows(C)};
    if (N > 0 && C > 0)
        pool_run(task_count(N, j.step), rmsnorm_rows, &j);
}

enum { FOLD_COLS = 256 };

/* dw and db of a block of columns: the chunks in order. */
static void norm_fold(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    int c0 = task * FOLD_COLS, cols = j->C - c0 < FOLD_COLS ? j->C - c0 : FOLD_COLS;
    real sum[2][FOLD_COLS] = {{0}};
    (void)worker;
    for (int k = 0; k < j->chunks; k++) {
        const real *pw = j->part + (size_t)2 * k * j->C + c0, *pb = pw + j->C;
#pragma omp simd
        for (int c = 0; c < cols; c++) {
            sum[0][c] += pw[c];
            sum[1][c] += pb[c];
        }
    }
    for (int c = 0; c < cols; c++) {
        if (j->dw)
            j->dw[c0 + c] += sum[0][c];
        if (j->db)
            j->db[c0 + c] += sum[1][c];
    }
}

/* Chunks are few, so that their sums stay small beside the rows, and cut by N and C alone. */
static void norm_backward(struct norm_job *j, pool_fn *rows)
{
    if (j->N == 0 || j->C == 0)
        return;
    j->step = task_rows(j->C);
    if (j->step < task_count(j->N, 64))
        j->step = task_count(j->N, 64);
    j->chunks = task_count(j->N, j->step);
    j->part = scratch_get(SCRATCH_PART, (size_t)j->chunks * 2 * (size_t)j->C, sizeof(real));
    pool_run(j->chunks, rows, j);
    if (j->dw || j->db)
        pool_run(task_count(j->C, FOLD_COLS), norm_fold, j);
}

static void rmsnorm_rows_bwd(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    int i, end, C = j->C;
    real *pw = j->part + (size_t)2 * task * C;
    (void)worker;
    memset(pw, 0, (size_t)2 * C * sizeof *pw);
    for (norm_range(j, task, &i, &end); i < end; i++) {
        const real *x = j->x + (size_t)i * C, *dy = j->dy + (size_t)i * C, *w = j->w;
        real r = j->rstd_in[i], lane[V_LANES] = {0};
        int c = 0;
        for (; c + V_LANES <= C; c += V_LANES)
#pragma omp simd
            for (int l = 0; l < V_LANES; l++)
                lane[l] = v_fma(w[c + l] * dy[c + l], x[c + l], lane[l]);
        for (; c < C; c++)
            lane[c % V_LANES] = v_fma(w[c] * dy[c], x[c], lane[c % V_LANES]);
        real m = v_fold(lane) / (real)C * r * r; /* 3.2 */
        if (j->dx) {
            real *dx = j->dx + (size_t)i * C;
#pragma omp simd
            for (c = 0; c < C; c++)
                dx[c] += r * (w[c] * dy[c] - x[c] * m); /* 3.3 */
        }
        if (j->dw) {
#pragma omp simd
            for (c = 0; c < C; c++)
                pw[c] += dy[c] * (x[c] * r); /* 3.4 */
        }
    }
}

void rmsnorm_bwd(real *dx, real *dw, const real *dy, const real *x, const real *w, const real *rstd,
                 int N, int C)
{
    struct norm_job j = {
        .dx = dx, .dw = dw, .dy = dy, .x = x, .w = w, .rstd_in = rstd, .N = N, .C = C};
    if (dx || dw)
        norm_backward(&j, rmsnorm_rows_bwd);
}

static real sum_of_deviations(const real *x, real mean, int C)
{
    real lane[V_LANES] = {0};
    int c = 0;
    for (; c + V_LANES <= C; c += V_LANES)
#pragma omp simd
        for (int l = 0; l < V_LANES; l++)
            lane[l] = v_fma(x[c + l] - mean, x[c + l] - mean, lane[l]);
    for (; c < C; c++)
        lane[c % V_LANES] = v_fma(x[c] - mean, x[c] - mean, lane[c % V_LANES]);
    return v_fold(lane);
}

static void layernorm_rows(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    int i, end, C = j->C;
    (void)worker;
    for (norm_range(j, task, &i, &end); i < end; i++) {
        const real *x = j->x + (size_t)i * C;
        real *y = j->y + (size_t)i * C;
        real mean = v_sum(x, (size_t)C) / (real)C;
        real rstd = 1 / sqrt_r(sum_of_deviations(x, mean, C) / (real)C + j->eps); /* 4.1 */
        j->mean[i] = mean;
        j->rstd[i] = rstd;
#pragma omp simd
        for (int c = 0; c < C; c++)
            y[c] = (x[c] - mean) * rstd * j->w[c];
        if (j->b) {
#pragma omp simd
            for (int c = 0; c < C; c++)
                y[c] += j->b[c];
        }
    }
}

void layernorm_fwd(real *y, real *mean, real *rstd, const real *x, const real *w, const real *b,
                   int N, int C, real eps)
{
    struct norm_job j = {.y = y,
                         .mean = mean,
                         .rstd = rstd,
                         .x = x,
                         .w = w,
                         .b = b,
                         .N = N,
                         .C = C,
                         .eps = eps,
                         .step = task_rows(C)};
    if (N > 0 && C > 0)
        pool_run(task_count(N, j.step), layernorm_rows, &j);
}

/* Means of w dy and of w dy xhat over a row. */
static void layernorm_means(const struct norm_job *j, int i, real *mean_g, real *mean_gx)
{
    const real *x = j->x + (size_t)i * j->C, *dy = j->dy + (size_t)i * j->C, *w = j->w;
    real m = j->mean_in[i], g[V_LANES] = {0}, gx[V_LANES] = {0};
    int c = 0, C = j->C;
    for (; c + V_LANES <= C; c += V_LANES)
#pragma omp simd
        for (int l = 0; l < V_LANES; l++) {
            real t = w[c + l] * dy[c + l];
            g[l] += t;
            gx[l] = v_fma(t, x[c + l] - m, gx[l]);
        }
    for (; c < C; c++) {
        real t = w[c] * dy[c];
        g[c % V_LANES] += t;
        gx[c % V_LANES] = v_fma(t, x[c] - m, gx[c % V_LANES]);
    }
    *mean_g = v_fold(g) / (real)C;
    *mean_gx = v_fold(gx) / (real)C * j->rstd_in[i];
}

static void layernorm_rows_bwd(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    int i, end, C = j->C;
    real *pw = j->part + (size_t)2 * task * C, *pb = pw + C;
    (void)worker;
    memset(pw, 0, (size_t)2 * C * sizeof *pw);
    for (norm_range(j, task, &i, &end); i < end; i++) {
        const real *x = j->x + (size_t)i * C, *dy = j->dy + (size_t)i * C, *w = j->w;
        real m = j->mean_in[i], r = j->rstd_in[i], mean_g, mean_gx;
        if (j->dx) {
            real *dx = j->dx + (size_t)i * C;
            layernorm_means(j, i, &mean_g, &mean_gx); /* 4.2 */
#pragma omp simd
            for (int c = 0; c < C; c++)
                dx[c] += r * (w[c] * dy[c] - mean_g - (x[c] - m) * r * mean_gx); /* 4.3 */
        }
        if (j->dw || j->db) {
#pragma omp simd
            for (int c = 0; c < C; c++) { /* 4.4 */
                pw[c] += dy[c] * ((x[c] - m) * r);
                pb[c] += dy[c];
            }
        }
    }
}

void layernorm_bwd(real *dx, real *dw, real *db, const real *dy, const real *x, const real *w,
                   const real *mean, const real *rstd, int N, int C)
{
    struct norm_job j = {.dx = dx,
                         .dw = dw,
                         .db = db,
                         .dy = dy,
                         .x = x,
                         .w = w,
                         .mean_in = mean,
                         .rstd_in = rstd,
                         .N = N,
                         .C = C};
    if (dx || dw || db)
        norm_backward(&j, layernorm_rows_bwd);
}
