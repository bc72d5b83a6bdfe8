/* The low-rank part of a linear map (struct lora in engine/linear.h).  For linear_fwd and its
 * backward. */
#ifndef DS_ENGINE_LORA_H
#define DS_ENGINE_LORA_H

#include "engine/linear.h"

/* y (N,O) = scale * drop(x) a^T b^T (+ y when beta is 1).  x rows are row[i], or i. */
void lora_fwd(real *y, const real *x, const int32_t *row, const struct linear *w, int N, real beta);
/* dx (N,C) += drop(scale * dy b a) (= when beta is 0). */
void lora_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta);
/* Gradients of a and b, unless NULL.  rows: packed here if they are not yet. */
void lora_bwd_w(const real *dy, struct linear_rows *x, const struct linear *w);

/* linear_fwd, linear_bwd_x and linear_bwd_w of a map whose adapter has a gain (DoRA). */
void dora_fwd(real *y, const real *x, const struct linear *w, int N, real beta,
              const struct linear_extra *extra);
void dora_bwd_x(real *dx, const real *dy, const struct linear *w, int N, real beta,
                const struct linear_extra *after);
void dora_bwd_w(real *dw, real *db, const real *dy, struct linear_rows *x, const struct linear *w);

/* ops_linear.c: calls the epilogue on all of (N,O), by rows. */
void linear_after(const struct linear_extra *extra, int N, int O);
/* db (O) += scale * sum of the rows of dy (N,O). */
void linear_bwd_bias(real *db, const real *dy, real scale, int N, int O);
/* ops_linear.c: packs the rows, once. */
void linear_rows_pack(struct linear_rows *x);

#endif
