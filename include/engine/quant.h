/* Quantised weights, for inference and as a frozen base: blocks along C as in GGML's formats,
 * repacked once for the kernels.
 *
 *   Q8_0  blocks of 32: fp16 scale d, int8 q:           w = d q
 *   Q4_0  blocks of 32: fp16 scale d, 4-bit q in 0..15: w = d (q - 8)
 *   Q4_K  blocks of 256: fp16 d, dmin; 8 sub-blocks of 32 with 6-bit scale s and minimum m, 4-bit q:
 *         w = d s q - dmin m
 *   Q5_K  the same with 5-bit q
 *   Q6_K  blocks of 256: fp16 d; 16 sub-blocks of 16 with int8 scale s, 6-bit q:  w = d s (q - 32)
 * and, read but not written:
 *   Q4_1, Q5_1  blocks of 32: fp16 scale d, minimum m; 4- or 5-bit q:  w = d q + m
 *   Q5_0    blocks of 32: fp16 scale d, 5-bit q:  w = d (q - 16)
 *   Q2_K    blocks of 256: fp16 d, dmin; 16 sub-blocks of 16 with 4-bit s and m, 2-bit q:
 *           w = d s q - dmin m
 *   Q3_K    blocks of 256: fp16 d; 16 sub-blocks of 16 with 6-bit scale s, 3-bit q:
 *           w = d (s - 32) (q - 4)
 *   IQ4_NL  blocks of 32: fp16 scale d, 4-bit q that select one of 16 values:  w = d value[q]
 *   IQ4_XS  blocks of 256: fp16 d; 8 sub-blocks of 32 with 6-bit scale s:  w = d (s - 32) value[q]
 *   MXFP4   blocks of 32: power of two d (E8M0), 4-bit floats q (E2M1):  w = d q
 * They take as many bytes as in the file; blocks of 256 up to 3 % more, Q3_K 6 %.
 *
 * Activations are rounded to int8 in blocks of 32 with a float scale (largest magnitude / 127). The
 * dot product of a block is exact in int32, blocks are added in float in ascending order, so a row
 * of the result is the same on every CPU and whichever other rows are in the call.  Gradients
 * ignore the rounding of activations: dx is that of the dequantised weights (quant_part), see
 * linear_bwd_x. */
#ifndef DS_ENGINE_QUANT_H
#define DS_ENGINE_QUANT_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

enum quant_kind {
    QUANT_NONE,
    QUANT_Q8_0,
    QUANT_Q4_0,
    QUANT_Q4_K,
    QUANT_Q5_K,
    QUANT_Q6_K,
    QUANT_WRITTEN, /* weights can be rounded to the kinds before this one */
    QUANT_Q4_1 = QUANT_WRITTEN,
    QUANT_Q5_0,
    QUANT_Q5_1,
    QUANT_Q2_K,
    QUANT_Q3_K,
    QUANT_IQ4_NL,
    QUANT_IQ4_XS,
    QUANT_MXFP4,
    QUANT_KINDS
};
extern const char *const quant_name[QUANT_KINDS]; /* "none", "q8_0", "q4_0", "q4_k", ... */

struct quant; /* (O,C) */

/* Bytes of one row of C weights in the kind's block format; 0 when C is not a multiple of the block
 * (the caller keeps such a matrix in another format). */
size_t quant_row_bytes(enum quant_kind kind, int C);
/* Rounds w (O,C), kind < QUANT_WRITTEN.  DS_ERANGE: C is not a multiple of the block, O < 1, or a
 * scale overflows fp16;
 * DS_ENUMERIC: a weight is not finite; DS_EMEM. */
int quant_new(struct quant **out, enum quant_kind kind, const real *w, int O, int C,
              struct err *e) DS_CHECK;
/* From O rows of blocks as in a GGUF file.  The same errors; DS_ENUMERIC: a scale is not finite. */
int quant_from_blocks(struct quant **out, enum quant_kind kind, const void *blocks, int O, int C,
                      struct err *e) DS_CHECK;
/* The same from rows that take() provides a few at a time: rows [row, row + n) one after the other,
 * in `space` of their size or elsewhere.  Called from any thread, some rows twice. */
typedef const void *quant_take_fn(const void *ctx, int row, int n, void *space);
int quant_from_rows(struct quant **out, enum quant_kind kind, quant_take_fn *take, const void *ctx,
                    int O, int C, struct err *e) DS_CHECK;
/* w (C) quantised into quant_row_bytes(kind, C) > 0 bytes, as quant_new does and a GGUF file stores
 * it, kind < QUANT_WRITTEN. DS_ERANGE: a scale overflows fp16; DS_ENUMERIC: a weight is not finite.  No message: the
 * caller knows the name.  Thread-safe. */
int quant_encode_row(enum quant_kind kind, const real *w, int C, void *blocks) DS_CHECK;
void quant_free(struct quant *q);
size_t quant_bytes(const struct quant *q);
enum quant_kind quant_kind_of(const struct quant *q);
/* w (C): row o dequantised.  Thread-safe. */
void quant_row(real *w, const struct quant *q, int o);
/* w (N,C): rows row[i] dequantised, for an embedding. */
void quant_rows(real *w, const struct quant *q, const int32_t *row, int N);
/* w (rows,cols): rows from o and columns from c dequantised; c and cols multiples of 32. */
void quant_part(real *w, const struct quant *q, int o, int rows, int c, int cols);
/* y (N,O) = x w^T (+ b) (+ y when beta is 1).  x rows are row[i], NULL: row i.  b (O) or NULL.  Any
 * N from 0 up. A row with an activation that is not finite gives a row of NaN; other rows are not
 * affected. */
struct quant_call {
    real *y;
    const real *x;
    const int32_t *row;
    const struct quant *q;
    const real *b;
    int N;
    real beta;
};
enum { QUANT_CALLS = 32 };
/* n calls, at most QUANT_CALLS, as one parallel loop: with few rows each matrix alone takes little
 * longer than waking the threads.  No output may be another's input.  The bits are those of the
 * calls one by one. */
void quant_linear_many(const struct quant_call *call, int n);
static inline void quant_linear(real *y, const real *x, const int32_t *row, const struct quant *q,
                                const real *b, int N, real beta)
{
    quant_linear_many(&(struct quant_call){y, x, row, q, b, N, beta}, 1);
}
/* For tests: selects the plain C kernel (1) or the best one again (0). */
void quant_use_reference(int on);

#endif
