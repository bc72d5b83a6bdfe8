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

static void pack_q4_0(uint8_t *scale, uint8_t *to, const uint8_t *p)
{
    move_half(scale, p);
    for (int k = 0; k < 4; k++)
        put32(to + WORD * k, get32(p + 2 + 4 * k));
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

/* In a file bit j of byte c is column c of block j. */
static void pack_q5_k(uint8_t *group, int r, const uint8_t *p)
{
    uint8_t *to = group + SUPER_SCALES + 4 * r;
    uint32_t high[8] = {0};
    pack_scales(group, r, p);
    for (int j = 0; j < 8; j += 2)
        pack_two(to + Q5_QUANTS * j, to + Q5_QUANTS * (j + 1), p + 48 + 16 * j);
    for (int k = 0; k < 8; k++) {
        uint32_t v = get32(p + 16 + 4 * k);
        for (int j = 0; j < 8; j++)
            high[j] |= (v >> j & low_bits) << k;
    }
    for (int j = 0; j < 8; j++)
        put32(to + Q5_QUANTS * j + Q4_QUANTS, high[j]);
}

/* Four blocks of a row: at low and upper in a file, from block `to` on in a panel. */
static void pack_four(uint8_t *to, const uint8_t *low, const uint8_t *upper)
{
    uint32_t high[2][4] = {{0}};
    pack_two(to, to + 2 * Q6_QUANTS, low);
    pack_two(to + Q6_QUANTS, to + 3 * Q6_QUANTS, low + 32);
    for (int k = 0; k < 8; k++) {
        uint32_t v = get32(upper + 4 * k);
        for (int j = 0; j < 4; j++)
            high[k / 4][j] |= (v >> 2 * j & low_pairs) << 2 * (k % 4);
    }
    for (int j = 0; j < 4; j++) {
        put32(to + Q6_QUANTS * j + Q4_QUANTS, high[0][j]);
        put32(to + Q6_QUANTS * j + Q4_QUANTS + WORD, high[1][j]);
    }
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

static void pack_pair(uint8_t *panel, enum quant_kind kind, const uint8_t *block, size_t step,
                      int rows, int b)
{
    uint8_t *scale = panel + quant_group_at(kind, b) + PAIR_SCALES / 2 * (b & 1);
    uint8_t *to = panel + quant_quants_at(kind, b);
    if (kind == QUANT_Q8_0)
        for (int r = 0; r < rows; r++)
            pack_q8_0(scale + 2 * r, to + 4 * r, block + (size_t)r * step);
    else
        for (int r = 0; r < rows; r++)
            pack_q4_0(scale + 2 * r, to + 4 * r, block + (size_t)r * step);
}

void quant_pack(uint8_t *panel, enum quant_kind kind, const uint8_t *block, size_t step, int rows,
                int c)
{
    uint8_t *group = panel + quant_group_at(kind, c / QUANT_BLOCK);
    if (kind == QUANT_Q4_K)
        for (int r = 0; r < rows; r++)
            pack_q4_k(group, r, block + (size_t)r * step);
    else if (kind == QUANT_Q5_K)
        for (int r = 0; r < rows; r++)
            pack_q5_k(group, r, block + (size_t)r * step);
    else if (kind == QUANT_Q6_K)
        for (int r = 0; r < rows; r++)
            pack_q6_k(group, r, block + (size_t)r * step);
    else
        pack_pair(panel, kind, block, step, rows, c / QUANT_BLOCK);
}

/* ---- dequantisation -------------------------------------------------------------------------- */

/* The quants of 32 columns as stored, from a row's first word. */
static inline void quants_get(uint8_t q[QUANT_BLOCK], enum quant_kind kind, const uint8_t *p)
{
    if (kind == QUANT_Q8_0) {
        for (int k = 0; k < 8; k++)
            put32(q + 4 * k, get32(p + WORD * k));
        return;
    }
    uint32_t first[4], second[4], upper = 0, upper_second = 0;
    if (kind == QUANT_Q5_K || kind == QUANT_Q6_K)
        upper = get32(p + Q4_QUANTS);
    if (kind == QUANT_Q6_K)
        upper_second = get32(p + Q4_QUANTS + WORD);
    for (int k = 0; k < 4; k++) {
        uint32_t v = get32(p + WORD * k);
        first[k] = v & low_halves;
        second[k] = v >> 4 & low_halves;
        if (kind == QUANT_Q5_K) {
            first[k] |= (upper >> k & low_bits) << 4;
            second[k] |= (upper >> (k + 4) & low_bits) << 4;
        } else if (kind == QUANT_Q6_K) {
            first[k] |= (upper >> 2 * k & low_pairs) << 4;
            second[k] |= (upper_second >> 2 * k & low_pairs) << 4;
        }
    }
    memcpy(q, first, sizeof first);
    memcpy(q + sizeof first, second, sizeof second);
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
    const uint8_t *group = panel + quant_group_at(kind, b);
    const uint8_t *scale = group + 64 + QUANT_BLOCK * (b % 8);
    float d = half_at(group + 2 * r);
    if (!quant_is_super(kind)) {
        d = half_at(group + PAIR_SCALES / 2 * (b & 1) + 2 * r);
        s[0] = (struct scaling){d, 0, kind == QUANT_Q8_0 ? 128 : 8};
        s[1] = s[0];
    } else if (kind == QUANT_Q6_K) {
        s[0] = (struct scaling){d * (float)(int8_t)scale[2 * r], 0, 32};
        s[1] = (struct scaling){d * (float)(int8_t)scale[2 * r + 1], 0, 32};
    } else {
        float dmin = half_at(group + 2 * QUANT_ROWS + 2 * r);
        s[0] = (struct scaling){d * (float)scale[r], dmin * (float)scale[QUANT_ROWS + r], 0};
        s[1] = s[0];
    }
}

/* Scale times quant is exact in float, so that only the subtraction of Q4_K and Q5_K rounds. */
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
    if (kind == QUANT_Q8_0)
        unpack(w, ld, QUANT_Q8_0, panel, r, rows, c, cols);
    else if (kind == QUANT_Q4_0)
        unpack(w, ld, QUANT_Q4_0, panel, r, rows, c, cols);
    else if (kind == QUANT_Q4_K)
        unpack(w, ld, QUANT_Q4_K, panel, r, rows, c, cols);
    else if (kind == QUANT_Q5_K)
        unpack(w, ld, QUANT_Q5_K, panel, r, rows, c, cols);
    else
        unpack(w, ld, QUANT_Q6_K, panel, r, rows, c, cols);
}
