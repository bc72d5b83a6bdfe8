/* Linear maps, embedding and plain additions.  MATH.md 1, 2. */
#include <string.h>

#include "base/pool.h"
#include "engine/gemm.h"
#include "engine/ops.h"
#include "engine/scratch.h"

struct bias_job {
    real *y, *db;
    const real *b, *dy;
    int N, O, step;
    real beta;
};

static void bias_rows(void *ctx, int task, int worker)
{
    const struct bias_job *j = ctx;
    (void)worker;
    int end = (task + 1) * j->step < j->N ? (task + 1) * j->step : j->N;
    for (int i = task * j->step; i < end; i++) {
        real *y = j->y + (size_t)i * j->O;
        if (j->beta != 0) {
#pragma omp simd
            for (int o = 0; o < j->O; o++)
                y[o] += j->b[o];
        } else {
            memcpy(y, j->b, (size_t)j->O * sizeof *y);
        }
    }
}

/* The bias goes first, so that the product adds to it in the same pass that writes y. */
void linear_fwd(real *y, const real *x, const real *w, const real *b, int N, int C, int O,
                real beta)
{
    if (b && N > 0 && O > 0) {
        struct bias_job j = {.y = y, .b = b, .N = N, .O = O, .step = task_rows(O), .beta = beta};
        pool_run(task_count(N, j.step), bias_rows, &j);
        beta = 1;
    }
    gemm(0, 1, N, O, C, 1, x, C, w, C, beta, y, O);
}

enum { BIAS_COLS = 64, BIAS_ROWS = 256 };

/* db of one block of columns: rows are summed in groups, groups in order. */
static void bias_sum(void *ctx, int task, int worker)
{
    const struct bias_job *j = ctx;
    (void)worker;
    int o0 = task * BIAS_COLS, cols = j->O - o0 < BIAS_COLS ? j->O - o0 : BIAS_COLS;
    real *db = j->db + o0;
    for (int i0 = 0; i0 < j->N; i0 += BIAS_ROWS) {
        int end = j->N - i0 < BIAS_ROWS ? j->N : i0 + BIAS_ROWS;
        real sum[BIAS_COLS] = {0};
        for (int i = i0; i < end; i++) {
            const real *dy = j->dy + (size_t)i * j->O + o0;
#pragma omp simd
            for (int o = 0; o < cols; o++)
                sum[o] += dy[o];
        }
        for (int o = 0; o < cols; o++)
            db[o] += sum[o];
    }
}

void linear_bwd(real *dx, real *dw, real *db, const real *dy, const real *x, const real *w, int N,
                int C, int O)
{
    if (dx)
        gemm(0, 0, N, C, O, 1, dy, O, w, C, 1, dx, C); /* 1.2 */
    if (dw && N > 0)
        gemm(1, 0, O, C, N, 1, dy, O, x, C, 1, dw, C); /* 1.3 */
    if (db && N > 0 && O > 0) {                        /* 1.4 */
        struct bias_job j = {.db = db, .dy = dy, .N = N, .O = O};
        pool_run(task_count(O, BIAS_COLS), bias_sum, &j);
    }
}

struct embed_job {
    real *x, *dw, *dpos_w;
    const int32_t *id, *pos;
    const real *w, *pos_w, *dx;
    real scale;
    int N, C, step;
};

static void embed_rows(void *ctx, int task, int worker)
{
    const struct embed_job *j = ctx;
    (void)worker;
    int end = (task + 1) * j->step < j->N ? (task + 1) * j->step : j->N;
    for (int i = task * j->step; i < end; i++) {
        const real *w = j->w + (size_t)j->id[i] * j->C;
        const real *p = j->pos_w ? j->pos_w + (size_t)j->pos[i] * j->C : NULL;
        real *x = j->x + (size_t)i * j->C;
#pragma omp simd
        for (int c = 0; c < j->C; c++)
            x[c] = j->scale * w[c];
        if (p) {
#pragma omp simd
            for (int c = 0; c < j->C; c++)
                x[c] += p[c];
        }
    }
}

void embed_fwd(real *x, const int32_t *id, const int32_t *pos, const real *w, const real *pos_w,
               real scale, int N, int C)
{
    struct embed_job j = {.x = x,
                          .id = id,
                          .pos = pos,
                          .w = w,
                          .pos_w = pos_w,
                          .scale = scale,
                          .N = N,
                          .C = C,
                          .step = task_rows(C)};
    if (N > 0 && C > 0)
        pool_run(task_count(N, j.step), embed_rows, &j);
}

enum { EMBED_COLS = 64 };

/* A task owns some columns of every token's row: repeated tokens meet in row order, and no two tasks in one place. */
static void embed_cols(void *ctx, int task, int worker)
{
    const struct embed_job *j = ctx;
    (void)worker;
    int c0 = task * EMBED_COLS, cols = j->C - c0 < EMBED_COLS ? j->C - c0 : EMBED_COLS;
    for (int i = 0; i < j->N; i++) {
        const real *dx = j->dx + (size_t)i * j->C + c0;
        if (j->dw) {
            real *dw = j->dw + (size_t)j->id[i] * j->C + c0;
#pragma omp simd
            for (int c = 0; c < cols; c++)
                dw[c] += j->scale * dx[c];
        }
        if (j->dpos_w) {
            real *dp = j->dpos_w + (size_t)j->pos[i] * j->C + c0;
#pragma omp simd
            for (int c = 0; c < cols; c++)
                dp[c] += dx[c];
        }
    }
}

void embed_bwd(real *dw, real *dpos_w, const real *dx, const int32_t *id, const int32_t *pos,
               real scale, int N, int C)
{
    struct embed_job j = {
        .dw = dw, .dpos_w = dpos_w, .dx = dx, .id = id, .pos = pos, .scale = scale, .N = N, .C = C};
    if ((dw || dpos_w) && N > 0 && C > 0)
        pool_run(task_count(C, EMBED_COLS), embed_cols, &j);
}
