/* Activations: SwiGLU, GELU, GeGLU and the soft cap.  MATH.md 6, 7, 12.  The loops are in engine/vec.h. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vec.h"

struct act_job {
    const struct vec_set *by;
    enum act_kind kind;
    real *y, *da, *db;
    const real *a, *b, *dy;
    size_t n;
};

static void act_fwd_part(const struct act_job *j, size_t i, size_t n)
{
    switch (j->kind) {
    case ACT_SWIGLU: j->by->swiglu(j->y + i, j->a + i, j->b + i, n); break;
    case ACT_GELU: j->by->gelu(j->y + i, j->b + i, n); break;
    case ACT_GELU_TANH: j->by->gelu_tanh(j->y + i, j->b + i, n); break;
    case ACT_GEGLU: j->by->geglu(j->y + i, j->a + i, j->b + i, n); break;
    }
}

static void act_bwd_part(const struct act_job *j, size_t i, size_t n, int add)
{
    real *da = j->da ? j->da + i : NULL, *db = j->db ? j->db + i : NULL;
    const real *dy = j->dy + i, *b = j->b + i;
    switch (j->kind) {
    case ACT_SWIGLU: j->by->swiglu_bwd(da, db, dy, j->a + i, b, n, add); break;
    case ACT_GELU: j->by->gelu_bwd(db, dy, b, n, add); break;
    case ACT_GELU_TANH: j->by->gelu_tanh_bwd(db, dy, b, n, add); break;
    case ACT_GEGLU: j->by->geglu_bwd(da, db, dy, j->a + i, b, n, add); break;
    }
}

static void act_fwd_task(void *ctx, int task, int worker)
{
    const struct act_job *j = ctx;
    size_t i, end = span_of(j->n, task, &i);
    (void)worker;
    act_fwd_part(j, i, end - i);
}

static void act_bwd_task(void *ctx, int task, int worker)
{
    const struct act_job *j = ctx;
    size_t i, end = span_of(j->n, task, &i);
    (void)worker;
    act_bwd_part(j, i, end - i, 1);
}

static void act_fwd(enum act_kind kind, real *y, const real *a, const real *b, size_t n)
{
    struct act_job j = {.by = vec(), .kind = kind, .y = y, .a = a, .b = b, .n = n};
    pool_run(span_tasks(n), act_fwd_task, &j);
}

static void act_bwd(enum act_kind kind, real *da, real *db, const real *dy, const real *a,
                    const real *b, size_t n)
{
    struct act_job j = {
        .by = vec(), .kind = kind, .da = da, .db = db, .dy = dy, .a = a, .b = b, .n = n};
    if (da || db)
        pool_run(span_tasks(n), act_bwd_task, &j);
}

void swiglu_fwd(real *h, const real *a, const real *b, size_t n)
{
    act_fwd(ACT_SWIGLU, h, a, b, n);
}

void swiglu_bwd(real *da, real *db, const real *dh, const real *a, const real *b, size_t n)
{
    act_bwd(ACT_SWIGLU, da, db, dh, a, b, n);
}

void gelu_fwd(real *y, const real *x, size_t n)
{
    act_fwd(ACT_GELU, y, NULL, x, n);
}

void gelu_bwd(real *dx, const real *dy, const real *x, size_t n)
{
    act_bwd(ACT_GELU, NULL, dx, dy, NULL, x, n);
}

void gelu_tanh_fwd(real *y, const real *x, size_t n)
{
    act_fwd(ACT_GELU_TANH, y, NULL, x, n);
}

void gelu_tanh_bwd(real *dx, const real *dy, const real *x, size_t n)
{
    act_bwd(ACT_GELU_TANH, NULL, dx, dy, NULL, x, n);
}

void geglu_fwd(real *h, const real *a, const real *b, size_t n)
{
    act_fwd(ACT_GEGLU, h, a, b, n);
}

void geglu_bwd(real *da, real *db, const real *dh, const real *a, const real *b, size_t n)
{
    act_bwd(ACT_GEGLU, da, db, dh, a, b, n);
}

void act_tile_fwd(enum act_kind kind, real *h, const real *a, const real *b, int ld, int rows,
                  int cols)
{
    struct act_job j = {.by = vec(), .kind = kind, .y = h, .a = a, .b = b};
    for (int r = 0; r < rows; r++)
        act_fwd_part(&j, (size_t)r * (size_t)ld, (size_t)cols);
}

void act_tile_bwd(enum act_kind kind, real *da, real *d, const real *a, const real *b, int ld,
                  int rows, int cols)
{
    struct act_job j = {.by = vec(), .kind = kind, .da = da, .db = d, .dy = d, .a = a, .b = b};
    for (int r = 0; r < rows; r++)
        act_bwd_part(&j, (size_t)r * (size_t)ld, (size_t)cols, 0);
}

/* ---- soft cap ---- */

struct cap_job {
    const struct vec_set *by;
    real *x;
    const real *y; /* backward: the result */
    real cap;
    size_t n;
};

static void cap_task(void *ctx, int task, int worker)
{
    const struct cap_job *j = ctx;
    size_t i, end = span_of(j->n, task, &i);
    (void)worker;
    if (j->y)
        j->by->cap_bwd(j->x + i, j->y + i, j->cap, end - i);
    else
        j->by->cap(j->x + i, j->cap, end - i);
}

void soft_cap_fwd(real *x, real cap, size_t n)
{
    struct cap_job j = {.by = vec(), .x = x, .cap = cap, .n = n};
    pool_run(span_tasks(n), cap_task, &j);
}

void soft_cap_bwd(real *d, const real *y, real cap, size_t n)
{
    struct cap_job j = {.by = vec(), .x = d, .y = y, .cap = cap, .n = n};
    pool_run(span_tasks(n), cap_task, &j);
}
