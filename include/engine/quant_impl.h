/* How packed weights lie in memory, and what a kernel is.  Private to quant*.c.
 *
 * Sixteen rows of weights make a panel, read strictly in order.  Four columns of its sixteen rows are 64 bytes,
 * byte 4 r + i being column i of row r: the operand of one 512-bit int8 dot product.
 *   Q8_0  64 columns: 2 x 16 fp16 scales, then 2 blocks of 8 x 64 bytes q + 128
 *   Q4_0  64 columns: 2 x 16 fp16 scales, then 2 blocks of 4 x 64 bytes, columns 0..15 of a block in the low
 *         halves and 16..31 in the high ones
 *   Q4_K  256 columns: 16 fp16 d, 16 fp16 dmin, 8 x (16 bytes s, 16 bytes m), then 8 blocks as in Q4_0
 * A last odd block of Q8_0 and Q4_0 has a group of its own with room for both scales.  Rows beyond O are zero. */
#ifndef DS_ENGINE_QUANT_IMPL_H
#define DS_ENGINE_QUANT_IMPL_H

#include "engine/quant.h"

enum {
    QUANT_ROWS = 16,   /* of a panel                              */
    QUANT_TILE = 8,    /* rows of activations a kernel takes      */
    QUANT_BLOCK = 32,  /* columns that share a scale              */
    QUANT_SUPER = 256, /* columns that share the scales of scales */
    Q8_QUANTS = 512,   /* bytes of a block in a panel             */
    Q4_QUANTS = 256,
    PAIR_SCALES = 64, /* bytes before the blocks of a group      */
    SUPER_SCALES = 64 + 256,
    Q8_GROUP = PAIR_SCALES + 2 * Q8_QUANTS,
    Q4_GROUP = PAIR_SCALES + 2 * Q4_QUANTS,
    SUPER_GROUP = SUPER_SCALES + 8 * Q4_QUANTS,
};

/* 32 activations as d q.  Weights are stored with an offset, so a sum of products starts at -offset times the sum
 * of q; the minima of Q4_K want d times that sum.  Where an activation is not finite d is NaN and q is 0. */
struct quant_x {
    float d;
    union {
        int32_t start; /* Q8_0: -128 sum q; Q4_0: -8 sum q */
        float dsum;    /* Q4_K: d sum q                    */
    };
    int8_t q[QUANT_BLOCK];
};

/* Rounds `blocks` blocks of one row into out[0], out[step], ... */
typedef void quant_round_fn(struct quant_x *out, const real *x, int blocks, int step,
                            enum quant_kind kind);
/* acc (rows,16) += a panel's `blocks` blocks from w times those of x (blocks,rows), 1 <= rows <= QUANT_TILE.
 * Per element, in ascending order, every operation rounded once:
 *   Q8_0, Q4_0  acc = fma(d dx, sum, acc)                                per block, sum exact
 *   Q4_K        a = fma(s sum, dx, a), m = fma(minimum, dsum, m)         per block, from 0, s sum exact
 *               acc = fma(d, a, acc), then acc = fma(-dmin, m, acc)      per 8 blocks */
typedef void quant_panel_fn(float *acc, const uint8_t *w, const struct quant_x *x, int blocks,
                            int rows);

struct quant_kernels {
    const char *name;
    int (*available)(void);
    quant_round_fn *round;
    quant_panel_fn *panel[QUANT_KINDS];
};

extern const struct quant_kernels quant_ref;
#if defined(__x86_64__) && REAL_BITS == 32
#define QUANT_X86 1
extern const struct quant_kernels quant_vnni, quant_avx2;
quant_round_fn quant_round_avx2;
#endif

/* fp16, to nearest even; what does not fit becomes infinite. */
float quant_half(uint16_t h);
uint16_t quant_half_of(float x);

/* Of a block as a file holds it. */
struct quant_format {
    int columns, bytes;
};
extern const struct quant_format quant_format[QUANT_KINDS];
enum { QUANT_BLOCK_BYTES = 144 }; /* the largest */

size_t quant_panel_bytes(enum quant_kind kind, int C);
/* Bytes from a panel's start to block b; b is a multiple of 2 (Q4_K: 8). */
size_t quant_block_at(enum quant_kind kind, int b);
/* Columns c.. of row r of a panel, from a block as a file holds it. */
void quant_pack(uint8_t *panel, enum quant_kind kind, int r, const uint8_t *block, int c);
/* Row r of a panel as numbers. */
void quant_unpack(real *w, enum quant_kind kind, int r, const uint8_t *panel, int C);
/* One block of numbers: 0, DS_ENUMERIC (a weight is not finite), DS_ERANGE (a scale beyond fp16). */
int quant_encode(uint8_t *block, enum quant_kind kind, const real *w) DS_CHECK;
/* 1 when the scales of a block are finite. */
int quant_is_sound(enum quant_kind kind, const uint8_t *block);
/* The search for scale and minimum of one block of Q4_K: w[i] ~ *scale q[i] - *minimum, both >= 0. */
void quant_fit_block(const float *w, float *scale, float *minimum);

#endif
