/* RMSNorm and LayerNorm, with or without the residual addition before them.  MATH.md 3, 4.  The
 * loops are in engine/vec.h; a row stays in the L1 cache, so each call is one pass over memory. */
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vec.h"

struct norm_job {
    const struct norm *n;
    const struct vec_set *by;
    real *y, *u;
    real *dx, *dw, *db, *part;  /* part: a row of dw (and one of db) per chunk */
    const real *x, *f, *dy, *w; /* w: with its offset */
    const int32_t *row;
    int step, chunks, sums; /* sums: rows of part per chunk */
};

/* offset + w, in the calling thread's scratch. */
static const real *weights_of(const struct norm *n)
{
    if (n->offset == 0 || n->N == 0)
        return n->w;
    real *w = scratch_get(SCRATCH_NORM, (size_t)n->C, sizeof *w);
    for (int c = 0; c < n->C; c++)
        w[c] = n->offset + n->w[c];
    return w;
}

/* Rows per task. */
static void norm_range(const struct norm_job *j, int task, int *begin, int *end)
{
    *begin = task * j->step;
    *end = j->n->N - *begin < j->step ? j->n->N : *begin + j->step;
}

/* y = norm(x[row] + f), with row and f optional. */
static void norm_rows(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    const struct norm *n = j->n;
    size_t C = (size_t)n->C;
    int i, end;
    (void)worker;
    for (norm_range(j, task, &i, &end); i < end; i++) {
        const real *x = j->x + (size_t)(j->row ? j->row[i] : i) * C;
        const real *f = j->f ? j->f + (size_t)i * C : NULL;
        real *y = j->y + (size_t)i * C, *u = j->u ? j->u + (size_t)i * C : NULL;
        if (n->mean)
            n->rstd[i] = j->by->layer_row(y, &n->mean[i], u, x, f, j->w, n->b, C, n->eps);
        else
            n->rstd[i] = j->by->rms_row(y, u, x, f, j->w, C, n->eps);
    }
}

void add_norm_fwd(real *u, real *y, const real *x, const int32_t *row, const real *f,
                  const struct norm *n)
{
    struct norm_job j = {.n = n, .by = vec(), .y = y, .u = u, .x = x, .row = row, .f = f};
    j.step = task_rows(n->C);
    j.w = weights_of(n);
    if (n->N > 0 && n->C > 0)
        pool_run(task_count(n->N, j.step), norm_rows, &j);
}

void norm_fwd(real *y, const real *x, const struct norm *n)
{
    add_norm_fwd(NULL, y, x, NULL, NULL, n);
}

enum { FOLD_COLS = 256 };

/* onto[c] += the chunks' sums in order, for a block of columns. */
static void fold_block(const struct norm_job *j, real *onto, const real *part, int c0)
{
    int cols = j->n->C - c0 < FOLD_COLS ? j->n->C - c0 : FOLD_COLS;
    real sum[FOLD_COLS] = {0};
    for (int k = 0; k < j->chunks; k++) {
        const real *p = part + (size_t)k * (size_t)j->sums * (size_t)j->n->C + c0;
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
        fold_block(j, j->db, j->part + j->n->C, task * FOLD_COLS);
}

/* Where a chunk sums dw (then db), zeroed; NULL when neither is needed. */
static real *chunk_sums(const struct norm_job *j, int task)
{
    size_t n = (size_t)j->sums * (size_t)j->n->C;
    return j->part ? memset(j->part + (size_t)task * n, 0, n * sizeof(real)) : NULL;
}

static void norm_rows_bwd(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    const struct norm *n = j->n;
    size_t C = (size_t)n->C;
    real *sums = chunk_sums(j, task), *dw = j->dw ? sums : NULL, *db = j->db ? sums + C : NULL;
    int i, end;
    (void)worker;
    for (norm_range(j, task, &i, &end); i < end; i++) {
        size_t at = (size_t)i * C;
        real *dx = j->dx ? j->dx + at : NULL;
        const real *dy = j->dy + at, *x = j->x + at;
        if (n->mean)
            j->by->layer_row_bwd(dx, dw, db, dy, x, j->w, n->mean[i], n->rstd[i], C);
        else
            j->by->rms_row_bwd(dx, dw, dy, x, j->w, n->rstd[i], C);
    }
}

/* Few chunks, so that their sums are small compared with the rows; cut by N and C alone. */
void norm_bwd(real *dx, real *dw, real *db, const real *dy, const real *x, const struct norm *n)
{
    struct norm_job j = {.n = n, .by = vec(), .dx = dx, .dw = dw, .db = db, .dy = dy, .x = x};
    BUG_IF(db && !n->mean, "RMSNorm has no bias");
    if ((!dx && !dw && !db) || n->N == 0 || n->C == 0)
        return;
    j.w = weights_of(n);
    j.step = task_rows(n->C);
    if (j.step < task_count(n->N, 64))
        j.step = task_count(n->N, 64);
    j.chunks = task_count(n->N, j.step);
    j.sums = db ? 2 : 1;
    if (dw || db)
        j.part = scratch_get(SCRATCH_PART, (size_t)j.chunks * (size_t)j.sums * (size_t)n->C,
                             sizeof(real));
    pool_run(j.chunks, norm_rows_bwd, &j);
    if (j.part)
        pool_run(task_count(n->C, FOLD_COLS), norm_fold, &j);
}
