/* Rows of a plan: gather, gated scatter, dot, update; and plain addition.  MATH.md 8. */
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vec.h"

struct rows_job {
    const struct vec_set *by;
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
    j->by = vec();
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
    size_t C = (size_t)j->C;
    int i, end = rows_range(j, task, &i);
    (void)worker;
    for (; i < end; i++) {
        real *y = j->y + (size_t)j->row[i] * C;
        j->by->axpy(y, y, j->x + (size_t)i * C, j->gate ? j->gate[i] : 1, C); /* 8.1 */
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
        j->y[i] = j->by->dot(j->x + (size_t)j->row[i] * C, j->b + (size_t)i * C, C); /* 8.2 */
}

void rows_dot(real *out, const real *a, const int32_t *row, const real *b, int N, int C)
{
    struct rows_job j = {.y = out, .x = a, .b = b, .row = row, .N = N, .C = C};
    rows_run(&j, dot_part);
}

struct update_job {
    const struct vec_set *by;
    real *y;
    const real *x, *f, *gate;
    const int32_t *row;
    int N, R, C, step;
};

/* Index of the first plan row >= r. */
static int first_from(const int32_t *row, int N, int r)
{
    int low = 0;
    for (int high = N; low < high;) {
        int mid = low + (high - low) / 2;
        if (row[mid] < r)
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

/* Here a task's rows are rows of the residual stream, which dominate the memory traffic. */
static void update_part(void *ctx, int task, int worker)
{
    const struct update_job *j = ctx;
    size_t C = (size_t)j->C;
    int r = task * j->step, end = j->R - r < j->step ? j->R : r + j->step;
    (void)worker;
    for (int i = first_from(j->row, j->N, r); r < end; r++) {
        const real *x = j->x + (size_t)r * C;
        real *y = j->y + (size_t)r * C;
        if (i < j->N && j->row[i] == r) {
            j->by->axpy(y, x, j->f + (size_t)i * C, j->gate ? j->gate[i] : 1, C); /* 8.1 */
            i++;
        } else {
            memcpy(y, x, C * sizeof *y);
        }
    }
}

void rows_update(real *y, const real *x, const real *f, const int32_t *row, const real *gate, int N,
                 int R, int C)
{
    struct update_job j = {vec(), y, x, f, gate, row, N, R, C, task_rows(C)};
    if (R > 0 && C > 0)
        pool_run(task_count(R, j.step), update_part, &j);
}

struct add_job {
    const struct vec_set *by;
    real *y;
    const real *x;
    size_t n;
};

static void add_part(void *ctx, int task, int worker)
{
    const struct add_job *j = ctx;
    size_t begin, end = span_of(j->n, task, &begin);
    (void)worker;
    j->by->axpy(j->y + begin, j->y + begin, j->x + begin, 1, end - begin);
}

void add_into(real *y, const real *x, size_t n)
{
    struct add_job j = {vec(), y, x, n};
    pool_run(span_tasks(n), add_part, &j);
}
