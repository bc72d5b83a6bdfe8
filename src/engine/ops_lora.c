/* Low-rank adapters on a linear map:  y += scale * t b^T,  t = drop(x) a^T.  Backward recomputes
 * t. */
#include "engine/lora.h"

#include <math.h>

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
        rng_init(&r, l->seed, RNG_DROPOUT, (uint64_t)l->step << 32 | l->key,
                 (uint32_t)(l->first_row + i));
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
    if (l->dbias)
        linear_bwd_bias(l->dbias, dy, l->scale, N, w->O);
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

/* ---- DoRA, MATH.md 1.6 to 1.9 ----------------------------------------------------------------- */

/* to (N,O) = beta * to + gain * from + bias, or with gain - 1 in place of gain. */
struct gain_job {
    real *to;
    const real *from, *gain, *bias;
    real beta, less;
    int N, O, step;
};

static void gain_rows(void *ctx, int task, int worker)
{
    const struct gain_job *j = ctx;
    (void)worker;
    int end = j->N - task * j->step < j->step ? j->N : (task + 1) * j->step;
    for (int i = task * j->step; i < end; i++) {
        const real *from = j->from + (size_t)i * (size_t)j->O;
        real *to = j->to + (size_t)i * (size_t)j->O;
        for (int o = 0; o < j->O; o++) {
            real v = (j->gain ? j->gain[o] - j->less : -j->less) * from[o];
            v += j->bias ? j->bias[o] : 0;
            to[o] = j->beta != 0 ? to[o] + v : v;
        }
    }
}

static void add_gained(real *to, const real *from, const struct linear *w, const real *gain,
                       real less, const real *bias, real beta, int N)
{
    struct gain_job j = {to, from, gain, bias, beta, less, N, w->O, task_rows(w->O)};
    pool_run(task_count(N, j.step), gain_rows, &j);
}

/* The map alone, and with its adapter as if it were plain LoRA; both without bias. */
struct parts {
    struct linear base, both;
    struct lora plain;
};

static void split(struct parts *p, const struct linear *w)
{
    p->plain = *w->lora;
    p->plain.gain = p->plain.norm = NULL;
    p->base = *w;
    p->base.b = NULL;
    p->base.lora = NULL;
    p->both = p->base;
    p->both.lora = &p->plain;
}

/* u (N,O).  drop(x) w^T is subtracted from y, unless NULL, on the way. */
static real *outputs(real *y, const real *x, const int32_t *row, const struct parts *p, int N)
{
    const struct linear *w = &p->both;
    struct operand in = input(x, row, w, N);
    struct linear_extra rows = {.row = in.row};
    real *u = scratch_get(SCRATCH_DORA_U, (size_t)N * (size_t)w->O, sizeof *u);
    linear_fwd(u, in.p, &p->base, N, 0, &rows);
    if (y)
        add_gained(y, u, w, NULL, 1, NULL, 1, N);
    lora_fwd(u, x, row, w, N, 1);
    return u;
}

void dora_fwd(real *y, const real *x, const struct linear *w, int N, real beta,
              const struct linear_extra *extra)
{
    const struct lora *l = w->lora;
    const int32_t *row = extra ? extra->row : NULL;
    struct linear_extra rows = {.row = row};
    struct parts p;
    int drops = l->dropout > 0;
    split(&p, w);
    if (drops)
        linear_fwd(y, x, &p.base, N, beta, &rows);
    /* 1.6 */
    const real *u = outputs(drops ? y : NULL, x, row, &p, N);
    add_gained(y, u, w, l->gain, 0, w->b, drops ? 1 : beta, N);
    linear_after(extra, N, w->O);
}

/* (N,O) = (gain - less) * dy */
static real *gained(const real *dy, const struct linear *w, real less, int N)
{
    real *du = scratch_get(SCRATCH_DORA_DU, (size_t)N * (size_t)w->O, sizeof *du);
    add_gained(du, dy, w, w->lora->gain, less, NULL, 0, N);
    return du;
}

void dora_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta,
                const struct linear_extra *after)
{
    struct parts p;
    split(&p, w);
    if (w->lora->dropout <= 0) {
        linear_bwd_x(dx, gained(dy, w, 0, N), &p.both, N, beta, after);
        return;
    }
    /* 1.8 */
    real *dropped = scratch_get(SCRATCH_DORA_DX, (size_t)N * (size_t)w->C, sizeof *dropped);
    linear_bwd_x(dropped, gained(dy, w, 1, N), &p.base, N, 0, NULL);
    lora_bwd_x(dx, gained(dy, w, 0, N), &p.both, N, beta);
    drop(dx, dropped, NULL, w, N, 1);
    linear_bwd_x(dx, dy, &p.base, N, 1, after);
}

/* dmagnitude (O) += sum over rows of dy * u / norm: 1.7 */
static void magnitude_bwd(const real *dy, const struct linear_rows *x, const struct parts *p,
                          const struct lora *l)
{
    int N = x->N, O = p->both.O;
    real *u = outputs(NULL, x->x, x->row, p, N);
    for (int i = 0; i < N; i++)
        for (int o = 0; o < O; o++)
            u[(size_t)i * (size_t)O + (size_t)o] *=
                dy[(size_t)i * (size_t)O + (size_t)o] / l->norm[o];
    linear_bwd_bias(l->dmagnitude, u, 1, N, O);
}

void dora_bwd_w(real *dw, real *db, const real *dy, struct linear_rows *x, const struct linear *w)
{
    const struct lora *l = w->lora;
    struct parts p;
    int N = x->N, drops = l->dropout > 0;
    split(&p, w);
    linear_bwd_w(drops ? dw : NULL, db, dy, x, &p.base); /* 1.9 */
    if (dw && drops) {
        struct operand in = input(x->x, x->row, w, N);
        gemm_run(&(struct gemm_job){.format = w->format,
                                    .M = w->O,
                                    .N = w->C,
                                    .K = N,
                                    .alpha = 1,
                                    .beta = 1,
                                    .a = {gained(dy, w, 1, N), w->O, 1, NULL},
                                    .b = in,
                                    .C = dw,
                                    .ldc = w->C});
    }
    linear_bwd_w(drops ? NULL : dw, NULL, gained(dy, w, 0, N), x, &p.both);
    if (l->dmagnitude)
        magnitude_bwd(dy, x, &p, l);
}

/* ---- row norms ------------------------------------------------------------------------------- */

struct norm_job {
    real *norm;
    const struct lora *l;
    int O, C, step;
    void (*rows)(void *ctx, int row, int n, real *out);
    void *ctx;
};

/* |w + scale b a|^2 of one row. */
static double row_square(const real *w, const real *b, const struct lora *l, int C)
{
    enum { SPAN = 256 };
    double all = 0, sum[SPAN];
    for (int c = 0; c < C; c += SPAN) {
        int n = C - c < SPAN ? C - c : SPAN;
        for (int i = 0; i < n; i++)
            sum[i] = 0;
        for (int k = 0; k < l->r; k++)
            for (int i = 0; i < n; i++)
                sum[i] += (double)b[k] * (double)l->a[(size_t)k * (size_t)C + (size_t)(c + i)];
        for (int i = 0; i < n; i++) {
            double v = (double)w[c + i] + (double)l->scale * sum[i];
            all += v * v;
        }
    }
    return all;
}

static void norm_rows(void *ctx, int task, int worker)
{
    const struct norm_job *j = ctx;
    (void)worker;
    int row = task * j->step, n = j->O - row < j->step ? j->O - row : j->step;
    real *w = scratch_get(SCRATCH_ROW, (size_t)n * (size_t)j->C, sizeof *w);
    j->rows(j->ctx, row, n, w);
    for (int i = 0; i < n; i++)
        j->norm[row + i] =
            (real)sqrt(row_square(w + (size_t)i * (size_t)j->C,
                                  j->l->b + (size_t)(row + i) * (size_t)j->l->r, j->l, j->C));
}

void lora_norms(real *norm, const struct lora *l, int O, int C,
                void (*rows)(void *ctx, int row, int n, real *out), void *ctx)
{
    struct norm_job j = {norm, l, O, C, task_rows(C), rows, ctx};
    pool_run(task_count(O, j.step), norm_rows, &j);
}
