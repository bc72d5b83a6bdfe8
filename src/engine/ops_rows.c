/* Rows of a plan: gather, gated scatter, dot; and plain addition.  MATH.md 8. */
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vmath.h"

struct rows_job {
    real *y;
    const real *x, *b, *gate;
    const int32_t *row;
    int N, C, step;
};

static int rows_range(const struct rows_job *j, int task, int *begin)
{
    *begin = task * j->step;
    return j->N - *begin < j->step ? j->N : *begin + j->step;
}

static void rows_run(struct rows_job *j, pool_fn *fn)
{
    j->step = task_rows(j->C);
    if (j->N > 0)
        pool_run(task_count(j->N, j->step), fn, j);
}

static void gather_part(void *ctx, int task, int worker)
{
    const struct rows_job *j = ctx;
    size_t C = (size_t)j->C;
    int i, end = rows_range(j, task, &i);
    (void)worker;
    for (; i < end; i++)
        memcpy(j->y + (size_t)i * C, j->x + (size_t)j->row[i] * C, C * sizeof(real));
}

void rows_gather(real *y, const real *x, const int32_t *row, int N, int C)
{
    struct rows_job j = {.y = y, .x = x, .row = row, .N = N, .C = C};
    rows_run(&j, gather_part);
}

static void scatter_part(void *ctx, int task, int worker)
{
    const struct rows_job *j = ctx;
    int i, end = rows_range(j, task, &i), C = j->C;
    (void)worker;
    for (; i < end; i++) {
        real gate = j->gate ? j->gate[i] : 1;
        const real *x = j->x + (size_t)i * C;
        real *y = j->y + (size_t)j->row[i] * C;
#pragma omp simd
        for (int c = 0; c < C; c++)
            y[c] += gate * x[c]; /* 8.1 */
    }
}

void rows_scatter_add(real *y, const real *x, const int32_t *row, const real *gate, int N, int C)
{
    struct rows_job j = {.y = y, .x = x, .gate = gate, .row = row, .N = N, .C = C};
    rows_run(&j, scatter_part);
}

static void dot_part(void *ctx, int task, int worker)
{
    const struct rows_job *j = ctx;
    size_t C = (size_t)j->C;
    int i, end = rows_range(j, task, &i);
    (void)worker;
    for (; i < end; i++)
        j->y[i] = v_dot(j->x + (size_t)j->row[i] * C, j->b + (size_t)i * C, C); /* 8.2 */
}

void rows_dot(real *out, const real *a, const int32_t *row, const real *b, int N, int C)
{
    struct rows_job j = {.y = out, .x = a, .b = b, .row = row, .N = N, .C = C};
    rows_run(&j, dot_part);
}

struct add_job {
    real *y;
    const real *x;
    size_t n;
};

static void add_part(void *ctx, int task, int worker)
{
    const struct add_job *j = ctx;
    size_t begin, end = span_of(j->n, task, &begin);
    real *y = j->y;
    const real *x = j->x;
    (void)worker;
#pragma omp simd
    for (size_t i = begin; i < end; i++)
        y[i] += x[i];
}

void add_into(real *y, const real *x, size_t n)
{
    struct add_job j = {y, x, n};
    pool_run(span_tasks(n), add_part, &j);
}
