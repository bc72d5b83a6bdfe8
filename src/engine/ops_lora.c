/* Low-rank adapters on a linear map:  y += scale * t b^T,  t = drop(x) a^T.  Backward recomputes
 * t. */
#include "engine/lora.h"

#include "base/pool.h"
#include "base/rng.h"
#include "engine/scratch.h"

/* y (N,C) = mask * x[row] (+ y).  Each row's mask has its own random stream, so any thread and
 * backward draw the same. */
struct drop_job {
    const struct lora *lora;
    const real *x;
    const int32_t *row;
    real *y;
    real beta;
    int N, C, step;
};

static void drop_rows(void *ctx, int task, int worker)
{
    const struct drop_job *j = ctx;
    const struct lora *l = j->lora;
    uint32_t drops = (uint32_t)(l->dropout * 4294967296.0);
    real kept = (real)(1 / (1 - l->dropout));
    int end = j->N - task * j->step < j->step ? j->N : (task + 1) * j->step;
    (void)worker;
    for (int i = task * j->step; i < end; i++) {
        const real *x = j->x + (size_t)(j->row ? j->row[i] : i) * (size_t)j->C;
        real *y = j->y + (size_t)i * (size_t)j->C;
        struct rng r;
        rng_init(&r, l->seed, RNG_DROPOUT, (uint64_t)l->step << 32 | l->key, (uint32_t)i);
        for (int c = 0; c < j->C; c++) {
            real v = rng_u32(&r) < drops ? 0 : kept * x[c];
            y[c] = j->beta != 0 ? y[c] + v : v;
        }
    }
}

static void drop(real *y, const real *x, const int32_t *row, const struct linear *w, int N,
                 real beta)
{
    struct drop_job j = {w->lora, x, row, y, beta, N, w->C, task_rows(w->C)};
    pool_run(task_count(N, j.step), drop_rows, &j);
}

/* The adapter's input as a GEMM operand of N rows: x itself, or a copy after dropout. */
static struct operand input(const real *x, const int32_t *row, const struct linear *w, int N)
{
    if (w->lora->dropout <= 0)
        return (struct operand){x, w->C, 0, row};
    real *dropped = scratch_get(SCRATCH_LORA_X, (size_t)N * (size_t)w->C, sizeof *dropped);
    drop(dropped, x, row, w, N, 0);
    return (struct operand){dropped, w->C, 0, NULL};
}

/* t (N,r) = x a^T */
static real *inner_fwd(const struct operand *x, const struct linear *w, int N)
{
    const struct lora *l = w->lora;
    real *t = scratch_get(SCRATCH_LORA_T, (size_t)N * (size_t)l->r, sizeof *t);
    gemm_run(&(struct gemm_job){.format = w->format,
                                .M = N,
                                .N = l->r,
                                .K = w->C,
                                .alpha = 1,
                                .a = *x,
                                .b = {l->a, w->C, 1, NULL},
                                .C = t,
                                .ldc = l->r});
    return t;
}

/* dt (N,r) = scale * dy b */
static real *inner_bwd(const real *dy, const struct linear *w, int N)
{
    const struct lora *l = w->lora;
    real *dt = scratch_get(SCRATCH_LORA_DT, (size_t)N * (size_t)l->r, sizeof *dt);
    gemm_run(&(struct gemm_job){.format = w->format,
                                .M = N,
                                .N = l->r,
                                .K = w->O,
                                .alpha = l->scale,
                                .a = {dy, w->O, 0, NULL},
                                .b = {l->b, l->r, 0, NULL},
                                .C = dt,
                                .ldc = l->r});
    return dt;
}

void lora_fwd(real *y, const real *x, const int32_t *row, const struct linear *w, int N, real beta)
{
    const struct lora *l = w->lora;
    struct operand in = input(x, row, w, N);
    const real *t = inner_fwd(&in, w, N);
    gemm_run(&(struct gemm_job){.format = w->format,
                                .M = N,
                                .N = w->O,
                                .K = l->r,
                                .alpha = l->scale,
                                .beta = beta,
                                .a = {t, l->r, 0, NULL},
                                .b = {l->b, l->r, 1, NULL},
                                .C = y,
                                .ldc = w->O});
}

void lora_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta)
{
    const struct lora *l = w->lora;
    int drops = l->dropout > 0;
    const real *dt = inner_bwd(dy, w, N);
    real *to = drops ? scratch_get(SCRATCH_LORA_X, (size_t)N * (size_t)w->C, sizeof *to) : dx;
    gemm_run(&(struct gemm_job){.format = w->format,
                                .M = N,
                                .N = w->C,
                                .K = l->r,
                                .alpha = 1,
                                .beta = drops ? 0 : beta,
                                .a = {dt, l->r, 0, NULL},
                                .b = {l->a, w->C, 0, NULL},
                                .C = to,
                                .ldc = w->C});
    if (drops)
        drop(dx, to, NULL, w, N, beta);
}

void lora_bwd_w(const real *dy, struct linear_rows *x, const struct linear *w)
{
    const struct lora *l = w->lora;
    int N = x->N;
    if (!l->da && !l->db)
        return;
    struct operand in = input(x->x, x->row, w, N);
    if (l->dropout <= 0)
        linear_rows_pack(x);
    if (l->db) {
        const real *t = inner_fwd(&in, w, N);
        gemm_run(&(struct gemm_job){.format = w->format,
                                    .M = w->O,
                                    .N = l->r,
                                    .K = N,
                                    .alpha = l->scale,
                                    .beta = 1,
                                    .a = {dy, w->O, 1, NULL},
                                    .b = {t, l->r, 0, NULL},
                                    .C = l->db,
                                    .ldc = l->r});
    }
    if (l->da) {
        const real *dt = inner_bwd(dy, w, N);
        gemm_run(&(struct gemm_job){.format = w->format,
                                    .M = l->r,
                                    .N = w->C,
                                    .K = N,
                                    .alpha = 1,
                                    .beta = 1,
                                    .a = {dt, l->r, 1, NULL},
                                    .b = in,
                                    .packed = l->dropout > 0 ? NULL : &x->packed,
                                    .C = l->da,
                                    .ldc = w->C});
    }
}
