/* GGML's block formats: sizes, half precision, packed scales, and offsets in a panel. */
#include <math.h>
#include <string.h>

#include "engine/quant_impl.h"

/* A row of blocks as in a file; fp16 is little-endian there.  Q4_K and Q5_K pack their 6-bit scales
 * and minima into twelve bytes: the first four of each in the low bits of bytes 0..3 and 4..7; of
 * the last four, the low halves in bytes 8..11 and the upper two bits in the top bits of the first
 * eight bytes. */
/* clang-format off */
const struct quant_format quant_format[QUANT_KINDS] = {
    [QUANT_Q8_0]   = {32, 34, {0, -1}, 2, PAIR_SCALES, Q8_QUANTS, 128, SUMS_START},
    [QUANT_Q4_0]   = {32, 18, {0, -1}, 2, PAIR_SCALES, Q4_QUANTS, 8, SUMS_START},
    [QUANT_Q4_1]   = {32, 20, {0, 2}, 1, PAIR_SCALES, Q4_QUANTS, 0, SUMS_SCALED},
    [QUANT_Q5_0]   = {32, 22, {0, -1}, 2, PAIR_SCALES, Q5_QUANTS, 16, SUMS_START},
    [QUANT_Q5_1]   = {32, 24, {0, 2}, 1, PAIR_SCALES, Q5_QUANTS, 0, SUMS_SCALED},
    [QUANT_IQ4_NL] = {32, 18, {0, -1}, 2, PAIR_SCALES, Q4_QUANTS, 128, SUMS_START},
    [QUANT_MXFP4]  = {32, 17, {-1, -1}, 4, PAIR_SCALES, Q4_QUANTS, 128, SUMS_START},
    [QUANT_Q2_K]   = {256, 84, {80, 82}, 8, SUPER_SCALES, Q2_QUANTS, 0, SUMS_HALVES},
    [QUANT_Q3_K]   = {256, 110, {108, -1}, 8, SUPER_SCALES, Q3_QUANTS, 4, SUMS_HALVES},
    [QUANT_Q4_K]   = {256, 144, {0, 2}, 8, SUPER_SCALES, Q4_QUANTS, 0, SUMS_SCALED},
    [QUANT_Q5_K]   = {256, 176, {0, 2}, 8, SUPER_SCALES, Q5_QUANTS, 0, SUMS_SCALED},
    [QUANT_Q6_K]   = {256, 210, {208, -1}, 8, SUPER_SCALES, Q6_QUANTS, 32, SUMS_HALVES},
    [QUANT_IQ4_XS] = {256, 136, {0, -1}, 8, IQ4_SCALES, Q4_QUANTS, 128, SUMS_START},
};
/* clang-format on */

const int8_t quant_iq4_value[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
const int8_t quant_mxfp4_value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

size_t quant_row_bytes(enum quant_kind kind, int C)
{
    if (kind <= QUANT_NONE || kind >= QUANT_KINDS || C <= 0 || C % quant_format[kind].columns != 0)
        return 0;
    return (size_t)(C / quant_format[kind].columns) * (size_t)quant_format[kind].bytes;
}

/* ---- fp16 ------------------------------------------------------------------------------------ */

float quant_half(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023, bits;
    float size;
    if (exponent == 0) { /* zero, or subnormal: exact in float */
        size = (float)fraction * 0x1p-24F;
        return h >> 15 ? -size : size;
    }
    bits = (exponent == 31 ? 255U : exponent + 112U) << 23 | fraction << 13 |
           (uint32_t)(h >> 15) << 31;
    memcpy(&size, &bits, sizeof size);
    return size;
}

uint16_t quant_half_of(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float size = fabsf(x);
    if (isnan(x))
        return 0x7e00;
    if (size >= 65520) /* halfway to the first value out of range */
        return sign | 0x7c00;
    if (size < 6.103515625e-5F) /* subnormal, or zero */
        return (uint16_t)(sign | (uint16_t)rintf(ldexpf(size, 24)));
    int exponent;
    (void)frexpf(size, &exponent);
    /* 1024 .. 2048; a carry out of the fraction is the next exponent. */
    uint32_t fraction = (uint32_t)rintf(ldexpf(size, 11 - exponent));
    return (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + fraction));
}

float quant_e8m0(uint8_t e)
{
    uint32_t bits = e < 2 ? 0x00200000U << e : (uint32_t)(e - 1) << 23;
    float d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

static int is_finite_half(const uint8_t *p)
{
    return (p[1] & 0x7c) != 0x7c;
}

int quant_is_sound(enum quant_kind kind, const uint8_t *block)
{
    const int *half = quant_format[kind].half;
    if (kind == QUANT_MXFP4) /* its largest value, 12 d, is finite */
        return block[0] <= 252;
    return is_finite_half(block + half[0]) && (half[1] < 0 || is_finite_half(block + half[1]));
}

/* ---- the twelve bytes of Q4_K and Q5_K ------------------------------------------------------- */

void quant_scales_get(const uint8_t *p, uint8_t s[8], uint8_t m[8])
{
    for (int j = 0; j < 4; j++) {
        s[j] = p[j] & 63;
        m[j] = p[j + 4] & 63;
        s[j + 4] = (uint8_t)((p[j + 8] & 15) | p[j] >> 6 << 4);
        m[j + 4] = (uint8_t)(p[j + 8] >> 4 | p[j + 4] >> 6 << 4);
    }
}

void quant_scales_put(uint8_t *p, const uint8_t s[8], const uint8_t m[8])
{
    for (int j = 0; j < 4; j++) {
        p[j] = (uint8_t)(s[j] | s[j + 4] >> 4 << 6);
        p[j + 4] = (uint8_t)(m[j] | m[j + 4] >> 4 << 6);
        p[j + 8] = (uint8_t)((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
    }
}

/* ---- offsets in a panel ---------------------------------------------------------------------- */

size_t quant_group_at(enum quant_kind kind, int b)
{
    const struct quant_format *f = &quant_format[kind];
    return (size_t)(b / f->group) * (size_t)(f->scales + f->group * f->quants);
}

size_t quant_quants_at(enum quant_kind kind, int b)
{
    const struct quant_format *f = &quant_format[kind];
    return quant_group_at(kind, b) + (size_t)(f->scales + b % f->group * f->quants);
}

size_t quant_panel_bytes(enum quant_kind kind, int C)
{
    int blocks = C / QUANT_BLOCK, is_partial = blocks % quant_format[kind].group != 0;
    return is_partial ? quant_quants_at(kind, blocks) : quant_group_at(kind, blocks);
}
