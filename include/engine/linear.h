/* Linear maps y = x w^T + b, whatever form the weight is held in. */
#ifndef DS_ENGINE_LINEAR_H
#define DS_ENGINE_LINEAR_H

#include "engine/gemm.h"
#include "engine/quant.h"

/* A low-rank adapter (Hu et al. 2021): scale * drop(x) a^T b^T is added to the map.  Its inputs are dropped by lot, the same for
 * the same (seed, step, key), place of the row in the product, and column: backward finds what forward had. */
struct lora {
    int r;
    real scale;        /* alpha / r */
    const real *a, *b; /* (r,C), (O,r) */
    real *da, *db;     /* gradients, added to by linear_bwd_w; NULL = not wanted */
    double dropout;    /* in [0, 1) */
    uint64_t seed, step;
    uint32_t key; /* of the map */
};
/* w (O,C) and b (O), borrowed.  At least one of w, fwd, quant holds the weight. */
struct linear {
    int C, O;
    enum gemm_format format;
    const real *w, *b;         /* b may be NULL */
    const struct packed *fwd;  /* w^T packed, or NULL */
    const struct packed *bwd;  /* w packed, for dx, or NULL */
    const struct quant *quant; /* in place of w, which is then not read; or NULL */
    const struct lora *lora;   /* or NULL */
};
/* What happens beside the product. */
struct linear_extra {
    const int32_t *row; /* x rows are row[i], gathered while packing; NULL: row i */
    void (*after)(void *ctx, int m, int n, int rows, int cols); /* as in struct gemm_job */
    void *ctx;
};

/* y (N,O) = x (N,C) w^T (+ b) (+ adapter) (+ y when beta is 1).  extra may be NULL.  An adapter with b = 0 changes no bit. */
void linear_fwd(real *y, const real *x, const struct linear *w, int N, real beta,
                const struct linear_extra *extra);
/* dx (N,C) += dy w (= when beta is 0).  after: on tiles of dx.  With `quant` (and no bwd) w is the numbers its blocks
 * stand for, made part by part in 4 MiB of scratch: the forward product rounds its activations too, of which the gradient
 * knows nothing. */
void linear_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta,
                  const struct linear_extra *after);
/* The N rows of x (x[row], or x) of C columns that gradients of weights are made from, laid out once for all maps that read
 * them, when the first of them wants its gradient.  Valid until the thread's next call; x and row are borrowed as long. */
struct linear_rows {
    enum gemm_format format;
    const real *x;
    const int32_t *row;
    int N, C;
    struct packed packed;
};
struct linear_rows linear_rows(enum gemm_format format, const real *x, const int32_t *row, int N,
                               int C);
/* dw (O,C) += dy^T x, db (O) += sum of dy; each may be NULL.  So may the adapter's, which are added to as well. */
void linear_bwd_w(real *dw, real *db, const real *dy, struct linear_rows *x,
                  const struct linear *w);

#endif
