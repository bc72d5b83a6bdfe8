/* Linear maps, embedding and plain additions.  MATH.md 1, 2. */
#include <string.h>

#include "base/pool.h"
#include "engine/lora.h"
#include "engine/ops.h"
#include "engine/scratch.h"

struct bias_job {
    real *db;
    const real *dy;
    real scale;
    int N, O;
};

/* Quantised weights partition their own work, so the epilogue is called by rows. */
struct after_job {
    const struct linear_extra *extra;
    int N, O, step;
};

static void after_rows(void *ctx, int task, int worker)
{
    const struct after_job *j = ctx;
    int i = task * j->step, n = j->N - i < j->step ? j->N - i : j->step;
    (void)worker;
    j->extra->after(j->extra->ctx, i, 0, n, j->O);
}

void linear_after(const struct linear_extra *extra, int N, int O)
{
    struct after_job j = {extra, N, O, task_rows(O)};
    if (extra && extra->after && N > 0)
        pool_run(task_count(N, j.step), after_rows, &j);
}

void linear_fwd(real *y, const real *x, const struct linear *w, int N, real beta,
                const struct linear_extra *extra)
{
    if (w->lora && w->lora->gain && N > 0) {
        dora_fwd(y, x, w, N, beta, extra);
        return;
    }
    if (w->lora && N > 0) { /* first, so that the epilogue sees the whole sum */
        lora_fwd(y, x, extra ? extra->row : NULL, w, N, beta);
        beta = 1;
    }
    if (w->quant) {
        quant_linear(y, x, extra ? extra->row : NULL, w->quant, w->b, N, beta);
        linear_after(extra, N, w->O);
        return;
    }
    struct gemm_job j = {.format = w->format,
                         .M = N,
                         .N = w->O,
                         .K = w->C,
                         .alpha = 1,
                         .beta = beta,
                         .a = {x, w->C, 0, extra ? extra->row : NULL},
                         .b = {w->w, w->C, 1, NULL},
                         .packed = w->fwd,
                         .C = y,
                         .ldc = w->O,
                         .bias = w->b};
    if (extra) {
        j.after = extra->after;
        j.ctx = extra->ctx;
    }
    gemm_run(&j); /* 1.1 */
}

static int are_quantised(const struct linear_call *call, int n)
{
    for (int i = 0; i < n; i++)
        if (!call[i].w->quant || call[i].w->lora)
            return 0;
    return 1;
}

void linear_fwd_many(const struct linear_call *call, int n)
{
    struct quant_call part[LINEAR_CALLS] = {{0}};
    int are_one = are_quantised(call, n);
    BUG_IF(n > LINEAR_CALLS, "linear_fwd_many: %d calls", n);
    for (int i = 0; i < n; i++) {
        const struct linear_call *c = &call[i];
        const int32_t *row = c->extra ? c->extra->row : NULL;
        if (are_one)
            part[i] = (struct quant_call){c->y, c->x, row, c->w->quant, c->w->b, c->N, c->beta};
        else
            linear_fwd(c->y, c->x, c->w, c->N, c->beta, c->extra);
    }
    if (!are_one)
        return;
    quant_linear_many(part, n);
    for (int i = 0; i < n; i++)
        linear_after(call[i].extra, call[i].N, call[i].w->O);
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
            db[o] += j->scale * sum[o];
    }
}

void linear_bwd_bias(real *db, const real *dy, real scale, int N, int O)
{
    struct bias_job b = {.db = db, .dy = dy, .scale = scale, .N = N, .O = O};
    pool_run(task_count(O, BIAS_COLS), bias_sum, &b);
}

/* A strip of columns: translates the epilogue's columns to those of the whole. */
struct strip {
    const struct linear_extra *extra;
    int c;
};

static void after_strip(void *ctx, int m, int n, int rows, int cols)
{
    const struct strip *s = ctx;
    s->extra->after(s->extra->ctx, m, s->c + n, rows, cols);
}

/* Dequantises one part of the weight at a time, 4 MiB in float.  Rows are cut where every GEMM cuts
 * its inner dimension, so the sums have the bits of the whole dequantised weight. */
enum { PART_ROWS = GEMM_DEEP, PART_COLS = 2048 };

static void quant_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta,
                        const struct linear_extra *extra)
{
    int most_rows = w->O < PART_ROWS ? w->O : PART_ROWS, most = w->C < PART_COLS ? w->C : PART_COLS;
    real *part = scratch_get(SCRATCH_QUANT, (size_t)most_rows * (size_t)most,
                             sizeof *part); /* free after forward */
    for (int c = 0; c < w->C; c += most) {
        int cols = w->C - c < most ? w->C - c : most;
        struct strip strip = {extra, c};
        for (int o = 0; o < w->O; o += PART_ROWS) {
            int rows = w->O - o < PART_ROWS ? w->O - o : PART_ROWS, is_last = o + rows == w->O;
            quant_part(part, w->quant, o, rows, c, cols);
            gemm_run(
                &(struct gemm_job){.format = w->format,
                                   .M = N,
                                   .N = cols,
                                   .K = rows,
                                   .alpha = 1,
                                   .beta = o > 0 ? 1 : beta,
                                   .a = {dy + o, w->O, 0, NULL},
                                   .b = {part, cols, 0, NULL},
                                   .C = dx + c,
                                   .ldc = w->C,
                                   .after = extra && extra->after && is_last ? after_strip : NULL,
                                   .ctx = &strip});
        }
    }
}

void linear_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta,
                  const struct linear_extra *extra)
{
    if (w->lora && w->lora->gain && N > 0) {
        dora_bwd_x(dx, dy, w, N, beta, extra);
        return;
    }
    if (w->lora && N > 0) {
        lora_bwd_x(dx, dy, w, N, beta);
        beta = 1;
    }
    if (w->quant && !(w->bwd && w->bwd->by)) {
        quant_bwd_x(dx, dy, w, N, beta, extra);
        return;
    }
    struct gemm_job j = {.format = w->format,
                         .M = N,
                         .N = w->C,
                         .K = w->O,
                         .alpha = 1,
                         .beta = beta,
                         .a = {dy, w->O, 0, NULL},
                         .b = {w->w, w->C, 0, NULL},
                         .packed = w->bwd,
                         .C = dx,
                         .ldc = w->C};
    if (extra) {
        j.after = extra->after;
        j.ctx = extra->ctx;
    }
    gemm_run(&j); /* 1.2 */
}

struct linear_rows linear_rows(enum gemm_format format, const real *x, const int32_t *row, int N,
                               int C)
{
    return (struct linear_rows){.format = format, .x = x, .row = row, .N = N, .C = C};
}

void linear_rows_pack(struct linear_rows *r)
{
    const struct operand b = {r->x, r->C, 0, r->row};
    size_t bytes = r->packed.by ? 0 : gemm_packed_bytes(r->format, r->N, r->C);
    if (bytes > 0)
        gemm_pack(&r->packed, scratch_get(SCRATCH_PACKED, bytes, 1), r->format, &b, r->N, r->C);
}

void linear_bwd_w(real *dw, real *db, const real *dy, struct linear_rows *x, const struct linear *w)
{
    if (x->N == 0)
        return;
    if (w->lora && w->lora->gain) {
        dora_bwd_w(dw, db, dy, x, w);
        return;
    }
    if (dw)
        linear_rows_pack(x);
    struct gemm_job j = {.format = w->format,
                         .M = w->O,
                         .N = w->C,
                         .K = x->N,
                         .alpha = 1,
                         .beta = 1,
                         .a = {dy, w->O, 1, NULL},
                         .b = {x->x, w->C, 0, x->row},
                         .packed = &x->packed,
                         .C = dw,
                         .ldc = w->C};
    if (dw)
        gemm_run(&j); /* 1.3 */
    if (db)           /* 1.4 */
        linear_bwd_bias(db, dy, 1, x->N, w->O);
    if (w->lora)
        lora_bwd_w(dy, x, w);
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

/* A task owns some columns of every token's row: repeated tokens are added in row order, and no two
 * tasks write to the same place. */
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
