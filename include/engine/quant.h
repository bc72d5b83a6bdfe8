/* Weights of few bits, for use and as a frozen base: blocks along C as in GGML's formats, laid out once for the kernels.
 *
 *   Q8_0  blocks of 32: fp16 scale d, int8 q:           w = d q
 *   Q4_0  blocks of 32: fp16 scale d, 4-bit q in 0..15: w = d (q - 8)
 *   Q4_K  blocks of 256: fp16 d, dmin; 8 sub-blocks of 32 with 6-bit scale s and minimum m, 4-bit q:  w = d s q - dmin m
 *   Q5_K  the same with 5-bit q
 *   Q6_K  blocks of 256: fp16 d; 16 sub-blocks of 16 with int8 scale s, 6-bit q:  w = d s (q - 32)
 * They take what a file's blocks take, Q4_K, Q5_K and Q6_K up to 3 % more.
 *
 * Activations are rounded to int8 in blocks of 32 with a float scale (largest magnitude / 127), products of a block are summed
 * exactly in int32, blocks are added in float in ascending order: so a row of the result is the same on every
 * processor and whichever other rows are in the call.  A gradient knows nothing of that rounding: dx is that of the map
 * whose weights are the numbers the blocks stand for (quant_part), as linear_bwd_x makes it. */
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
    QUANT_KINDS
};
extern const char
    *const quant_name[QUANT_KINDS]; /* "none", "q8_0", "q4_0", "q4_k", "q5_k", "q6_k" */

struct quant; /* (O,C) */

/* Bytes of one row of C weights in the kind's block format; 0 when C is not a multiple of the block (the caller keeps such a
 * matrix in another format). */
size_t quant_row_bytes(enum quant_kind kind, int C);
/* Rounds w (O,C).  DS_ERANGE: C is not a multiple of the block, O < 1, or weights so large that a scale is beyond fp16;
 * DS_ENUMERIC: a weight is not finite; DS_EMEM. */
int quant_new(struct quant **out, enum quant_kind kind, const real *w, int O, int C,
              struct err *e) DS_CHECK;
/* From O rows of blocks as a GGUF file holds them.  The same errors; DS_ENUMERIC: a scale is not finite. */
int quant_from_blocks(struct quant **out, enum quant_kind kind, const void *blocks, int O, int C,
                      struct err *e) DS_CHECK;
/* w (C) rounded into quant_row_bytes(kind, C) > 0 bytes, as quant_new rounds and a GGUF file holds it.  DS_ERANGE: a scale is
 * beyond fp16; DS_ENUMERIC: a weight is not finite.  No text: the caller knows the name.  Any thread. */
int quant_encode_row(enum quant_kind kind, const real *w, int C, void *blocks) DS_CHECK;
void quant_free(struct quant *q);
size_t quant_bytes(const struct quant *q);
enum quant_kind quant_kind_of(const struct quant *q);
/* w (C): row o as numbers.  From any thread. */
void quant_row(real *w, const struct quant *q, int o);
/* w (N,C): rows row[i] as numbers, as an embedding wants them. */
void quant_rows(real *w, const struct quant *q, const int32_t *row, int N);
/* w (rows,cols): rows o.. and columns c.. as numbers; c and cols multiples of 32. */
void quant_part(real *w, const struct quant *q, int o, int rows, int c, int cols);
/* y (N,O) = x w^T (+ b) (+ y when beta is 1).  x rows are row[i], NULL: row i.  b (O) or NULL.  Any N from 0 up.
 * Where an activation is not finite its row of y is NaN, the others are as they would be. */
void quant_linear(real *y, const real *x, const int32_t *row, const struct quant *q, const real *b,
                  int N, real beta);
/* For tests: the plain C kernel whatever the processor has (1), or back to the best one (0). */
void quant_use_reference(int on);

#endif
