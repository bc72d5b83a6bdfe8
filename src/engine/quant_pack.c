/* Repacks blocks into panels, and dequantises panels.  Four columns of a row are one word in both:
 * bits move within bytes, words move as a whole. */
#include <string.h>

#include "engine/quant_impl.h"

enum { WORD = 4 * QUANT_ROWS }; /* stride from four columns of a row to its next four */

static const uint32_t low_halves = 0x0f0f0f0fU, low_pairs = 0x03030303U, low_bits = 0x01010101U;

static uint32_t get32(const uint8_t *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static void put32(uint8_t *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

/* fp16: little-endian in a file, native in a panel. */
static void move_half(uint8_t *to, const uint8_t *p)
{
    uint16_t h = (uint16_t)(p[0] | p[1] << 8);
    memcpy(to, &h, sizeof h);
}

static float half_at(const uint8_t *p)
{
    uint16_t h;
    memcpy(&h, p, sizeof h);
    return quant_half(h);
}

/* ---- blocks into panels ---------------------------------------------------------------------- */

/* One row's block at p; scale and to: the row's places in the panel. */
static void pack_q8_0(uint8_t *scale, uint8_t *to, const uint8_t *p)
{
    move_half(scale, p);
    for (int k = 0; k < 8; k++)
        put32(to + WORD * k, get32(p + 2 + 4 * k) ^ 0x80808080U);
}

/* Halves of a byte are 16 columns apart in a file as well. */
static void pack_nibbles(uint8_t *to, const uint8_t *p)
{
    for (int k = 0; k < 4; k++)
        put32(to + WORD * k, get32(p + 4 * k));
}

/* In a file bit c is that of column c: of every fourth bit from i on, a byte. */
static void pack_fifths(uint8_t *to, const uint8_t *p)
{
    uint32_t v = (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    for (int i = 0; i < 4; i++) {
        uint32_t b = v >> i & 0x11111111U;
        b = (b | b >> 3) & 0x03030303U;
        b = (b | b >> 6) & 0x000f000fU;
        to[i] = (uint8_t)(b | b >> 12);
    }
}

/* A block of 32 but Q8_0; group: the place of row r's first scale. */
static void pack_block(uint8_t *group, uint8_t *to, enum quant_kind kind, int at, int r,
                       const uint8_t *p)
{
    const struct quant_format *f = &quant_format[kind];
    const uint8_t *quants = p + f->bytes - QUANT_BLOCK / 2;
    if (kind == QUANT_MXFP4) {
        group[QUANT_ROWS * at + r] = p[0];
    } else {
        move_half(group + 2 * QUANT_ROWS * at + 2 * r, p);
        if (f->half[1] >= 0)
            move_half(group + 2 * QUANT_ROWS + 2 * r, p + f->half[1]);
    }
    pack_nibbles(to, quants);
    if (f->quants == Q5_QUANTS)
        pack_fifths(to + Q4_QUANTS, quants - 4);
}

/* 4-bit quants of two blocks that share bytes in a file: halves of a byte are 32 columns apart
 * there, 16 here. */
static void pack_two(uint8_t *a, uint8_t *b, const uint8_t *p)
{
    for (int k = 0; k < 4; k++) {
        uint32_t first = get32(p + 4 * k), second = get32(p + 16 + 4 * k);
        put32(a + WORD * k, (first & low_halves) | (second & low_halves) << 4);
        put32(b + WORD * k, (first >> 4 & low_halves) | (second & ~low_halves));
    }
}

/* d, dmin and the twelve bytes at p; group: the place of row r's d. */
static void pack_scales(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t s[8], m[8];
    move_half(group + 2 * r, p);
    move_half(group + 2 * QUANT_ROWS + 2 * r, p + 2);
    quant_scales_get(p + 4, s, m);
    for (int j = 0; j < 8; j++) {
        group[64 + 32 * j + r] = s[j];
        group[64 + 32 * j + QUANT_ROWS + r] = m[j];
    }
}

static void pack_q4_k(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t *to = group + SUPER_SCALES + 4 * r;
    pack_scales(group, r, p);
    for (int j = 0; j < 8; j += 2)
        pack_two(to + Q4_QUANTS * j, to + Q4_QUANTS * (j + 1), p + 16 + 16 * j);
}

/* The bits of eight blocks, `step` apart: in a file bit j of byte c is column c of block j. */
static void pack_bits(uint8_t *to, int step, const uint8_t *p)
{
    uint32_t high[8] = {0};
    for (int k = 0; k < 8; k++) {
        uint32_t v = get32(p + 4 * k);
        for (int j = 0; j < 8; j++)
            high[j] |= (v >> j & low_bits) << k;
    }
    for (int j = 0; j < 8; j++)
        put32(to + step * j, high[j]);
}

static void pack_q5_k(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t *to = group + SUPER_SCALES + 4 * r;
    pack_scales(group, r, p);
    for (int j = 0; j < 8; j += 2)
        pack_two(to + Q5_QUANTS * j, to + Q5_QUANTS * (j + 1), p + 48 + 16 * j);
    pack_bits(to + Q4_QUANTS, Q5_QUANTS, p + 16);
}

/* Pairs of bits of four blocks, `step` apart, that share 32 bytes in a file. */
static void pack_pairs(uint8_t *to, int step, const uint8_t *p)
{
    uint32_t high[2][4] = {{0}};
    for (int k = 0; k < 8; k++) {
        uint32_t v = get32(p + 4 * k);
        for (int j = 0; j < 4; j++)
            high[k / 4][j] |= (v >> 2 * j & low_pairs) << 2 * (k % 4);
    }
    for (int j = 0; j < 4; j++) {
        put32(to + step * j, high[0][j]);
        put32(to + step * j + WORD, high[1][j]);
    }
}

/* Four blocks of a row: at low and upper in a file, from block `to` on in a panel. */
static void pack_four(uint8_t *to, const uint8_t *low, const uint8_t *upper)
{
    pack_two(to, to + 2 * Q6_QUANTS, low);
    pack_two(to + Q6_QUANTS, to + 3 * Q6_QUANTS, low + 32);
    pack_pairs(to + Q4_QUANTS, Q6_QUANTS, upper);
}

/* In a file blocks j and j + 2 share bytes of lower bits, four blocks those of upper ones. */
static void pack_q6_k(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t *to = group + SUPER_SCALES + 4 * r;
    move_half(group + 2 * r, p + 208);
    for (int j = 0; j < 8; j++)
        memcpy(group + 64 + 32 * j + 2 * r, p + 192 + 2 * j, 2);
    pack_four(to, p, p + 128);
    pack_four(to + 4 * Q6_QUANTS, p + 64, p + 160);
}

static void pack_q2_k(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t *to = group + SUPER_SCALES + 4 * r;
    move_half(group + 2 * r, p + 80);
    move_half(group + 2 * QUANT_ROWS + 2 * r, p + 82);
    for (int j = 0; j < 8; j++)
        memcpy(group + 64 + 32 * j + 2 * r, p + 2 * j, 2);
    pack_pairs(to, Q2_QUANTS, p + 16);
    pack_pairs(to + 4 * Q2_QUANTS, Q2_QUANTS, p + 48);
}

/* Six bits of scale j: the lower four in twelve bytes' first eight, the first eight scales in the
 * low halves; the upper two in the last four, scales 4 apart in a byte. */
static void pack_q3_k(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t *to = group + SUPER_SCALES + 4 * r;
    const uint8_t *scale = p + 96;
    move_half(group + 2 * r, p + 108);
    for (int j = 0; j < 16; j++) {
        int low = scale[j % 8] >> 4 * (j / 8) & 15, high = scale[8 + j % 4] >> 2 * (j / 4) & 3;
        group[64 + 32 * (j / 2) + 2 * r + j % 2] = (uint8_t)((low | high << 4) - 32);
    }
    pack_pairs(to, Q3_QUANTS, p + 32);
    pack_pairs(to + 4 * Q3_QUANTS, Q3_QUANTS, p + 64);
    pack_bits(to + Q2_QUANTS, Q3_QUANTS, p);
}

static void pack_iq4_xs(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t *to = group + IQ4_SCALES + 4 * r;
    int upper = p[2] | p[3] << 8;
    move_half(group + 2 * r, p);
    for (int j = 0; j < 8; j++) {
        int low = p[4 + j / 2] >> 4 * (j % 2) & 15, high = upper >> 2 * j & 3;
        group[64 + QUANT_ROWS * j + r] = (uint8_t)((low | high << 4) - 32);
        pack_nibbles(to + Q4_QUANTS * j, p + 8 + 16 * j);
    }
}

static void pack_small(uint8_t *panel, enum quant_kind kind, const uint8_t *block, size_t step,
                       int rows, int b)
{
    uint8_t *group = panel + quant_group_at(kind, b), *to = panel + quant_quants_at(kind, b);
    int at = b % quant_format[kind].group;
    if (kind == QUANT_Q8_0)
        for (int r = 0; r < rows; r++)
            pack_q8_0(group + 2 * QUANT_ROWS * at + 2 * r, to + 4 * r, block + (size_t)r * step);
    else
        for (int r = 0; r < rows; r++)
            pack_block(group, to + 4 * r, kind, at, r, block + (size_t)r * step);
}

void quant_pack(uint8_t *panel, enum quant_kind kind, const uint8_t *block, size_t step, int rows,
                int c)
{
    static void (*const by_row[QUANT_KINDS])(uint8_t * group, int r, const uint8_t *p) = {
        [QUANT_Q4_K] = pack_q4_k, [QUANT_Q5_K] = pack_q5_k, [QUANT_Q6_K] = pack_q6_k,
        [QUANT_Q2_K] = pack_q2_k, [QUANT_Q3_K] = pack_q3_k, [QUANT_IQ4_XS] = pack_iq4_xs};
    uint8_t *group = panel + quant_group_at(kind, c / QUANT_BLOCK);
    if (!by_row[kind])
        pack_small(panel, kind, block, step, rows, c / QUANT_BLOCK);
    for (int r = 0; by_row[kind] && r < rows; r++)
        by_row[kind](group, r, block + (size_t)r * step);
}

/* ---- dequantisation -------------------------------------------------------------------------- */

static const int8_t *values_of(enum quant_kind kind)
{
    return kind == QUANT_MXFP4                            ? quant_mxfp4_value
           : kind == QUANT_IQ4_NL || kind == QUANT_IQ4_XS ? quant_iq4_value
                                                          : NULL;
}

/* 2 or 3 bits. */
static inline void quants_low(uint8_t q[QUANT_BLOCK], enum quant_kind kind, const uint8_t *p)
{
    uint32_t third = kind == QUANT_Q3_K ? get32(p + Q2_QUANTS) : 0;
    for (int k = 0; k < 8; k++) {
        uint32_t v = get32(p + WORD * (k / 4)) >> 2 * (k % 4) & low_pairs;
        put32(q + 4 * k, v | (third >> k & low_bits) << 2);
    }
}

/* The quants of 32 columns as stored, from a row's first word; values of a table plus 128. */
static inline void quants_get(uint8_t q[QUANT_BLOCK], enum quant_kind kind, const uint8_t *p)
{
    const int quants = quant_format[kind].quants;
    const int8_t *value = values_of(kind);
    if (kind == QUANT_Q8_0) {
        for (int k = 0; k < 8; k++)
            put32(q + 4 * k, get32(p + WORD * k));
        return;
    }
    if (quants < Q4_QUANTS) {
        quants_low(q, kind, p);
        return;
    }
    uint32_t first[4], second[4], upper = 0, upper_second = 0;
    if (quants > Q4_QUANTS)
        upper = get32(p + Q4_QUANTS);
    if (quants == Q6_QUANTS)
        upper_second = get32(p + Q4_QUANTS + WORD);
    for (int k = 0; k < 4; k++) {
        uint32_t v = get32(p + WORD * k);
        first[k] = v & low_halves;
        second[k] = v >> 4 & low_halves;
        if (quants == Q5_QUANTS) {
            first[k] |= (upper >> k & low_bits) << 4;
            second[k] |= (upper >> (k + 4) & low_bits) << 4;
        } else if (quants == Q6_QUANTS) {
            first[k] |= (upper >> 2 * k & low_pairs) << 4;
            second[k] |= (upper_second >> 2 * k & low_pairs) << 4;
        }
    }
    memcpy(q, first, sizeof first);
    memcpy(q + sizeof first, second, sizeof second);
    for (int i = 0; value && i < QUANT_BLOCK; i++)
        q[i] = (uint8_t)(value[q[i]] + 128);
}

/* Of 16 columns: w = d (q - offset) - from. */
struct scaling {
    float d, from;
    int offset;
};

/* Scales of the halves of block b in row r. */
static inline void scaling_get(struct scaling s[2], enum quant_kind kind, const uint8_t *panel,
                               int b, int r)
{
    const struct quant_format *f = &quant_format[kind];
    const uint8_t *group = panel + quant_group_at(kind, b);
    const uint8_t *second = group + 2 * QUANT_ROWS + 2 * r,
                  *scale = group + 64 + QUANT_BLOCK * (b % 8);
    float d = half_at(group + 2 * r);
    s[0] = (struct scaling){d, 0, f->offset};
    if (f->group == 2)
        s[0].d = half_at(group + 2 * QUANT_ROWS * (b % 2) + 2 * r);
    else if (kind == QUANT_MXFP4)
        s[0].d = quant_e8m0(group[QUANT_ROWS * (b % 4) + r]);
    else if (kind == QUANT_Q4_1 || kind == QUANT_Q5_1)
        s[0].from = -half_at(second);
    else if (kind == QUANT_IQ4_XS)
        s[0].d = d * (float)(int8_t)group[64 + QUANT_ROWS * (b % 8) + r];
    else if (f->sums == SUMS_SCALED)
        s[0] = (struct scaling){d * (float)scale[r], half_at(second) * (float)scale[QUANT_ROWS + r],
                                f->offset};
    s[1] = s[0];
    for (int i = 0; i < 2 && f->sums == SUMS_HALVES; i++) {
        uint8_t v = scale[2 * r + i];
        s[i].d = d * (kind == QUANT_Q2_K ? (float)(v & 15) : (float)(int8_t)v);
        s[i].from = kind == QUANT_Q2_K ? half_at(second) * (float)(v >> 4) : 0;
    }
}

/* Scale times quant is exact in float, so that only the subtraction of a minimum rounds. */
static inline void convert(real *restrict w, const uint8_t *restrict q, const struct scaling *s)
{
    const float d = s->d, from = s->from;
    const int offset = s->offset;
#pragma omp simd
    for (int i = 0; i < QUANT_BLOCK / 2; i++)
        w[i] = (real)(d * (float)(q[i] - offset) - from);
}

/* Gathers the words of several blocks before converting the first: loading a vector right after
 * storing its words would stall. */
static inline void unpack(real *w, int ld, enum quant_kind kind, const uint8_t *panel, int r,
                          int rows, int c, int cols)
{
    enum { RUN = QUANT_SUPER / QUANT_BLOCK };
    int end = (c + cols) / QUANT_BLOCK;
    for (int b = c / QUANT_BLOCK; b < end; b += RUN)
        for (int i = 0; i < rows; i++) {
            real *to = w + (size_t)i * (size_t)ld + (b * QUANT_BLOCK - c);
            int blocks = end - b < RUN ? end - b : RUN;
            uint8_t q[QUANT_SUPER];
            struct scaling s[2];
            for (int k = 0; k < blocks; k++)
                quants_get(q + QUANT_BLOCK * k, kind,
                           panel + quant_quants_at(kind, b + k) + 4 * (r + i));
            for (int k = 0; k < blocks; k++) {
                scaling_get(s, kind, panel, b + k, r + i);
                convert(to + QUANT_BLOCK * k, q + QUANT_BLOCK * k, &s[0]);
                convert(to + QUANT_BLOCK * k + QUANT_BLOCK / 2,
                        q + QUANT_BLOCK * k + QUANT_BLOCK / 2, &s[1]);
            }
        }
}

/* One copy of the loop per kind: twice as fast as branching at every block. */
void quant_unpack(real *w, int ld, enum quant_kind kind, const uint8_t *panel, int r, int rows,
                  int c, int cols)
{
#define CASE(kind)                                                                                 \
    case kind: unpack(w, ld, kind, panel, r, rows, c, cols); break;
    switch (kind) {
        CASE(QUANT_Q8_0)
        CASE(QUANT_Q4_0)
        CASE(QUANT_Q4_K)
        CASE(QUANT_Q5_K)
        CASE(QUANT_Q6_K)
        CASE(QUANT_Q4_1)
        CASE(QUANT_Q5_0)
        CASE(QUANT_Q5_1)
        CASE(QUANT_Q2_K)
        CASE(QUANT_Q3_K)
        CASE(QUANT_IQ4_NL)
        CASE(QUANT_IQ4_XS)
        CASE(QUANT_MXFP4)
    default: BUG_IF(1, "quant_unpack: kind %d", (int)kind);
    }
#undef CASE
}
