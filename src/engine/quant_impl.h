/* The memory layout of packed weights, and the kernel interface.  Private to quant*.c.
 *
 * Sixteen rows of weights make a panel, read strictly in order.  Four columns of its sixteen rows
 * are 64 bytes, byte 4 r + i being column i of row r: the operand of one 512-bit int8 dot product.
 * A panel is a sequence of groups: the scales of some blocks of 32 columns, then their quants.
 *   scales  Q8_0, Q4_0, Q5_0, IQ4_NL  2 blocks: 2 x 16 fp16 d
 *           MXFP4       4 blocks: 4 x 16 bytes d
 *           Q4_1, Q5_1  1 block: 16 fp16 d, 16 fp16 m
 *           Q4_K, Q5_K  8 blocks: 16 fp16 d, 16 fp16 dmin, 8 x (16 bytes s, 16 bytes m)
 *           Q2_K        8 blocks: the same, then 8 x (16 pairs of bytes s | m << 4)
 *           Q6_K, Q3_K  8 blocks: 16 fp16 d, 32 bytes of padding, 8 x (16 pairs of int8 s)
 *           IQ4_XS      8 blocks: 16 fp16 d, 32 bytes of padding, 8 x 16 int8 s
 *   quants  8 bits: 8 x 64 bytes q + 128
 *           4 bits: 4 x 64 bytes, columns 0..15 of a block in the low halves and 16..31 in the high
 *                   ones
 *           5 bits: the same, then 64 with the fifth bits: bit k of byte 4 r + i is that of column
 *                   4 k + i
 *           6 bits: after the 256 bytes 2 x 64 with the upper bits of columns 0..15 and 16..31:
 *                   bits 2 k, 2 k + 1 of byte 4 r + i are those of column 4 k + i
 *           2 bits: only such 2 x 64
 *           3 bits: the same, then 64 with the third bits as the fifth ones above
 * A last group with fewer blocks has space for all its scales.  Rows beyond O are zero. */
#ifndef DS_ENGINE_QUANT_IMPL_H
#define DS_ENGINE_QUANT_IMPL_H

#include "engine/quant.h"

enum {
    QUANT_ROWS = 16,   /* rows per panel */
    QUANT_TILE = 8,    /* activation rows per kernel call */
    QUANT_MANY = 4,    /* rows that share the unpacking of weights */
    QUANT_PART = 16,   /* blocks unpacked at a time: they fit in L1 */
    QUANT_BLOCK = 32,  /* columns that share a scale */
    QUANT_SUPER = 256, /* columns that share d (and dmin) */
    Q8_QUANTS = 512,   /* bytes per block in a panel */
    Q4_QUANTS = 256,
    Q5_QUANTS = Q4_QUANTS + 64,
    Q6_QUANTS = Q4_QUANTS + 128,
    Q2_QUANTS = 128,
    Q3_QUANTS = Q2_QUANTS + 64,
    PAIR_SCALES = 64, /* bytes before the blocks of a group */
    SUPER_SCALES = 64 + 256,
    IQ4_SCALES = 64 + 128,
    Q4_SUPER = SUPER_SCALES + 8 * Q4_QUANTS,
    Q5_SUPER = SUPER_SCALES + 8 * Q5_QUANTS,
    Q6_SUPER = SUPER_SCALES + 8 * Q6_QUANTS,
    Q2_SUPER = SUPER_SCALES + 8 * Q2_QUANTS,
    Q3_SUPER = SUPER_SCALES + 8 * Q3_QUANTS,
    IQ4_SUPER = IQ4_SCALES + 8 * Q4_QUANTS,
};

/* 32 activations as d q.  Weights are stored with an offset, so a dot product starts at -offset
 * times the sum of q; minima per 32 columns need d times that sum, scales per 16 one sum each. A
 * block with an activation that is not finite has d = NaN and q = 0. */
enum quant_sums { SUMS_START, SUMS_SCALED, SUMS_HALVES };
struct quant_x {
    float d;
    union {
        int32_t start;    /* SUMS_START: -offset sum q */
        float dsum;       /* SUMS_SCALED: d sum q */
        int16_t minus[2]; /* SUMS_HALVES: -sum q of either half */
    };
    int8_t q[QUANT_BLOCK];
};

/* Quantises `blocks` blocks of one row into out[0], out[step], ... */
typedef void quant_round_fn(struct quant_x *out, const real *x, int blocks, int step,
                            enum quant_kind kind);
/* acc (rows,16) += a panel's `blocks` blocks from w times those of x (blocks,rows), 1 <= rows <=
 * QUANT_TILE. Per element, in ascending order, every operation rounded once:
 *   one scale of 32   acc = fma(d dx, sum, acc)                      per block, sum exact
 *   Q4_1, Q5_1        the same, then acc = fma(m, dsum, acc)
 *   Q4_K, Q5_K        a = fma(s sum, dx, a), m = fma(minimum, dsum, m)  per block, from 0; exact,
 *                     acc = fma(d, a, acc), then acc = fma(-dmin, m, acc)  per 8 blocks    < 2^24
 *   Q2_K              a = fma(sum, dx, a), m = fma(minus, dx, m)     per block, from 0; exact
 *                     acc = fma(d, a, acc), then acc = fma(dmin, m, acc)   per 8 blocks
 *   Q6_K, Q3_K        a = fma(sum, dx, a)                            per block, from 0; exact
 *                     acc = fma(d, a, acc)                           per 8 blocks
 *   IQ4_XS            the same with s sum for sum */
typedef void quant_panel_fn(float *acc, const uint8_t *w, const struct quant_x *x, int blocks,
                            int rows);
/* The same for any number of rows and at most QUANT_PART blocks, the first of them block b of x:
 * tile t of QUANT_TILE rows, the last one perhaps of fewer, begins at x + t step. */
typedef void quant_rows_fn(float *acc, const uint8_t *w, const struct quant_x *x, size_t step,
                           int b, int blocks, int rows);

struct quant_kernels {
    const char *name;
    int (*available)(void);
    quant_round_fn *round;
    quant_panel_fn *panel[QUANT_KINDS];
    quant_rows_fn *const *rows; /* by kind, for QUANT_MANY rows and more; NULL: tile by tile */
};

extern const struct quant_kernels quant_ref;
#if defined(__x86_64__) && REAL_BITS == 32
#define QUANT_X86 1
extern const struct quant_kernels quant_vnni, quant_avx2;
quant_round_fn quant_round_avx2;
#endif

/* fp16, rounded to nearest even; overflow gives infinity. */
float quant_half(uint16_t h);
uint16_t quant_half_of(float x);

float quant_e8m0(uint8_t e); /* 2^(e - 128) */
/* The 16 values of a quant; those of MXFP4 are doubled, to be integers, and its scale is halved. */
extern const int8_t quant_iq4_value[16], quant_mxfp4_value[16];

struct quant_format {
    int columns, bytes; /* of a block in a file */
    int half[2];        /* places of its fp16 scales, -1: none */
    int group, scales;  /* blocks of 32 columns in a group of a panel, and bytes before them */
    int quants;         /* bytes per 32 columns */
    int offset;         /* of a quant as stored in a panel */
    enum quant_sums sums;
};
extern const struct quant_format quant_format[QUANT_KINDS];
enum { QUANT_BLOCK_BYTES = 210 }; /* the largest in a file */

/* The twelve bytes of Q4_K and Q5_K. */
void quant_scales_get(const uint8_t *p, uint8_t s[8], uint8_t m[8]);
void quant_scales_put(uint8_t *p, const uint8_t s[8], const uint8_t m[8]);
/* 1 when the scales of a block are finite. */
int quant_is_sound(enum quant_kind kind, const uint8_t *block);

size_t quant_panel_bytes(enum quant_kind kind, int C);
/* Byte offset in a panel of the group of block b, and of its quants. */
size_t quant_group_at(enum quant_kind kind, int b);
size_t quant_quants_at(enum quant_kind kind, int b);
/* Packs columns c.. of rows 0..rows-1 of a panel, from one block per row as in a file, `step` bytes
 * apart. */
void quant_pack(uint8_t *panel, enum quant_kind kind, const uint8_t *block, size_t step, int rows,
                int c);
/* w (rows,cols), leading dimension `ld`: rows r.. and columns c.. of a panel, dequantised. */
void quant_unpack(real *w, int ld, enum quant_kind kind, const uint8_t *panel, int r, int rows,
                  int c, int cols);

/* Quantises one block, kind < QUANT_WRITTEN: 0, DS_ENUMERIC (a weight is not finite), DS_ERANGE (fp16 overflow). */
int quant_encode(uint8_t *block, enum quant_kind kind, const real *w) DS_CHECK;

#endif
