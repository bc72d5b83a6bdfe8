/* RMSNorm and LayerNorm, with or without the residual addition before them.  MATH.md 3, 4.  The
 * loops are in engine/vec.h; a row stays in the L1 cache, so each call is one pass over memory. */
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vec.h"

struct norm_job {
    const struct vec_set *by;
    real *y, *u, *mean, *rstd;
    real *dx, *dw, *db, *part; /* part: a row of dw (and one of db) per chunk */
    const real *x, *f, *w, *b, *dy, *mean_in, *rstd_in;
    const int32_t *row;
    int N, C, step, chunks, sums; /* sums: rows of part per chunk */
    real eps;
};

/* Rows per task. */
static void norm_range(const struct norm_job *j, int task, int *begin, int *end)
{
    *begin = task * j->step;
    *end = j->N - *begin < j->step ? j->N : *begin + j->step;
}

/* y = norm(x[row] + f), with row and f optional; mean selects the norm. */
static void norm_rows(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    size_t C = (size_t)j->C;
    int i, end;
    (void)worker;
    for (norm_range(j, task, &i, &end); i < end; i++) {
        const real *x = j->x + (size_t)(j->row ? j->row[i] : i) * C;
        const real *f = j->f ? j->f + (size_t)i * C : NULL;
        real *y = j->y + (size_t)i * C, *u = j->u ? j->u + (size_t)i * C : NULL;
        if (j->mean)
            j->rstd[i] = j->by->layer_row(y, &j->mean[i], u, x, f, j->w, j->b, C, j->eps);
        else
            j->rstd[i] = j->by->rms_row(y, u, x, f, j->w, C, j->eps);
    }
}

static void norm_forward(struct norm_job *j)
{
    j->by = vec();
    j->step = task_rows(j->C);
    if (j->N > 0 && j->C > 0)
        pool_run(task_count(j->N, j->step), norm_rows, j);
}

void rmsnorm_fwd(real *y, real *rstd, const real *x, const real *w, int N, int C, real eps)
{
    struct norm_job j = {.y = y, .rstd = rstd, .x = x, .w = w, .N = N, .C = C, .eps = eps};
    norm_forward(&j);
}

void layernorm_fwd(real *y, real *mean, real *rstd, const real *x, const real *w, const real *b,
                   int N, int C, real eps)
{
    struct norm_job j = {
        .y = y, .mean = mean, .rstd = rstd, .x = x, .w = w, .b = b, .N = N, .C = C, .eps = eps};
    norm_forward(&j);
}

void add_norm_fwd(real *u, real *y, real *mean, real *rstd, const real *x, const int32_t *row,
                  const real *f, const real *w, const real *b, int N, int C, real eps)
{
    struct norm_job j = {.y = y,
                         .u = u,
                         .mean = mean,
                         .rstd = rstd,
                         .x = x,
                         .row = row,
                         .f = f,
                         .w = w,
                         .b = b,
                         .N = N,
                         .C = C,
                         .eps = eps};
    norm_forward(&j);
}

enum { FOLD_COLS = 256 };

/* onto[c] += the chunks' sums in order, for a block of columns. */
static void fold_block(const struct norm_job *j, real *onto, const real *part, int c0)
{
    int cols = j->C - c0 < FOLD_COLS ? j->C - c0 : FOLD_COLS;
    real sum[FOLD_COLS] = {0};
    for (int k = 0; k < j->chunks; k++) {
        const real *p = part + (size_t)k * (size_t)j->sums * (size_t)j->C + c0;
#pragma omp simd
        for (int c = 0; c < cols; c++)
            sum[c] += p[c];
    }
    for (int c = 0; c < cols; c++)
        onto[c0 + c] += sum[c];
}

static void norm_fold(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    (void)worker;
    if (j->dw)
        fold_block(j, j->dw, j->part, task * FOLD_COLS);
    if (j->db)
        fold_block(j, j->db, j->part + j->C, task * FOLD_COLS);
}

/* Few chunks, so that their sums are small compared with the rows; cut by N and C alone. */
static void norm_backward(struct norm_job *j, pool_fn *rows)
{
    if (j->N == 0 || j->C == 0)
        return;
    j->by = vec();
    j->step = task_rows(j->C);
    if (j->step < task_count(j->N, 64))
        j->step = task_count(j->N, 64);
    j->chunks = task_count(j->N, j->step);
    j->sums = j->db ? 2 : 1;
    if (j->dw || j->db)
        j->part = scratch_get(SCRATCH_PART, (size_t)j->chunks * (size_t)j->sums * (size_t)j->C,
                              sizeof(real));
    pool_run(j->chunks, rows, j);
    if (j->part)
        pool_run(task_count(j->C, FOLD_COLS), norm_fold, j);
}

/* Where a chunk sums dw (then db), zeroed; NULL when neither is needed. */
static real *chunk_sums(const struct norm_job *j, int task)
{
    size_t n = (size_t)j->sums * (size_t)j->C;
    return j->part ? memset(j->part + (size_t)task * n, 0, n * sizeof(real)) : NULL;
}

static void rmsnorm_rows_bwd(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    real *dw = chunk_sums(j, task);
    int i, end;
    (void)worker;
    for (norm_range(j, task, &i, &end); i < end; i++) {
        size_t at = (size_t)i * (size_t)j->C;
        j->by->rms_row_bwd(j->dx ? j->dx + at : NULL, dw, j->dy + at, j->x + at, j->w,
                           j->rstd_in[i], (size_t)j->C);
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

static void layernorm_rows_bwd(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    real *sums = chunk_sums(j, task), *dw = j->dw ? sums : NULL, *db = j->db ? sums + j->C : NULL;
    int i, end;
    (void)worker;
    for (norm_range(j, task, &i, &end); i < end; i++) {
        size_t at = (size_t)i * (size_t)j->C;
        j->by->layer_row_bwd(j->dx ? j->dx + at : NULL, dw, db, j->dy + at, j->x + at, j->w,
                             j->mean_in[i], j->rstd_in[i], (size_t)j->C);
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
