/* Linear maps y = x w^T + b, whatever format the weight is stored in. */
#ifndef DS_ENGINE_LINEAR_H
#define DS_ENGINE_LINEAR_H

#include "engine/gemm.h"
#include "engine/quant.h"

/* A low-rank adapter (Hu et al. 2021): adds scale * drop(x) a^T b^T.  Dropout depends only on
 * (seed, step, key), first_row plus the row's place in the call and the column, so that backward
 * repeats forward's mask.
 * DoRA (Liu et al. 2024), when gain is not NULL: with u = drop(x) (w + scale b a)^T,
 *     y = x w^T + bias + gain * u - drop(x) w^T,     gain = magnitude / norm,
 * where norm is that of each row of w + scale b a and is a constant to backward. */
struct lora {
    int r;
    real scale;              /* alpha / r, or alpha / sqrt(r) */
    const real *a, *b;       /* (r,C), (O,r) */
    real *da, *db;           /* gradients, accumulated by linear_bwd_w; NULL = not needed */
    const real *gain, *norm; /* (O), or NULL: plain LoRA */
    real *dmagnitude;        /* as da */
    /* (O) the map's bias + scale * the bias of b: replaces linear.b; NULL: b has no bias */
    const real *bias;
    real *dbias;    /* as da: the gradient of b's bias */
    double dropout; /* in [0, 1) */
    uint64_t seed, step;
    int first_row; /* place of row 0 in the batch of the step, which may be cut into pieces */
    uint32_t key;  /* identifies the map */
};
/* w (O,C) and b (O), borrowed.  At least one of w, fwd, quant holds the weight. */
struct linear {
    int C, O;
    enum gemm_format format;
    const real *w, *b;         /* b may be NULL */
    const struct packed *fwd;  /* w^T packed, or NULL */
    const struct packed *bwd;  /* w packed, for dx, or NULL */
    const struct quant *quant; /* replaces w, which is then not read; or NULL */
    const struct lora *lora;   /* or NULL */
};
/* Options of linear_fwd: gathered input rows and an epilogue. */
struct linear_extra {
    const int32_t *row; /* x rows are row[i], gathered while packing; NULL: row i */
    void (*after)(void *ctx, int m, int n, int rows, int cols); /* as in struct gemm_job */
    void *ctx;
};

/* y (N,O) = x (N,C) w^T (+ b) (+ adapter) (+ y when beta is 1).  extra may be NULL.  An adapter
 * with b = 0 does not change a bit. */
void linear_fwd(real *y, const real *x, const struct linear *w, int N, real beta,
                const struct linear_extra *extra);
struct linear_call {
    real *y;
    const real *x;
    const struct linear *w;
    int N;
    real beta;
    const struct linear_extra *extra;
};
enum { LINEAR_CALLS = QUANT_CALLS };
/* n calls, at most LINEAR_CALLS, in turn; quantised ones as one parallel loop with the epilogues
 * after it, in turn.  No y may be an x. */
void linear_fwd_many(const struct linear_call *call, int n);
/* dx (N,C) += dy w (= when beta is 0).  after: called on tiles of dx.  With `quant` (and no bwd) w
 * is the dequantised weight, computed part by part in 4 MiB of scratch; the gradient ignores the
 * rounding of activations in the forward pass. */
void linear_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta,
                  const struct linear_extra *after);
/* The N input rows (x[row], or x) of C columns for weight gradients, packed once for all maps that
 * read them, when the first gradient is computed.  Valid until the thread's next call; x and row
 * are borrowed as long. */
struct linear_rows {
    enum gemm_format format;
    const real *x;
    const int32_t *row;
    int N, C;
    struct packed packed;
};
struct linear_rows linear_rows(enum gemm_format format, const real *x, const int32_t *row, int N,
                               int C);
/* dw (O,C) += dy^T x, db (O) += sum of dy; each may be NULL, and so may the adapter's. */
void linear_bwd_w(real *dw, real *db, const real *dy, struct linear_rows *x,
                  const struct linear *w);
/* norm (O) = of each row of w + scale b a, summed in double.  rows: writes rows [row, row + n) of w
 * into out (n,C), from any thread. */
void lora_norms(real *norm, const struct lora *l, int O, int C,
                void (*rows)(void *ctx, int row, int n, real *out), void *ctx);

#endif
