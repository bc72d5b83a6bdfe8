/* Quantised weights for AVX2 and many rows: some blocks of a panel are unpacked once, to bytes in
 * the order of Q8_0, then multiplied with each tile of rows. */
#include "quant_avx2.h"

#ifdef QUANT_X86

enum { WORDS = 8 };

/* Blocks of a panel as the products need them: at most 17 KiB of it are used, half of L1. */
struct part {
    _Alignas(32) uint8_t q[QUANT_PART][Q8_QUANTS]; /* unsigned, or magnitudes */
    uint8_t flip[QUANT_PART][Q8_QUANTS];           /* 255: negative */
    int32_t plus[QUANT_PART][QUANT_ROWS];          /* the sum of those magnitudes, scaled */
    int16_t scale[QUANT_PART][2][2 * QUANT_ROWS];  /* of either half of the columns */
    int16_t minus[QUANT_PART][2 * QUANT_ROWS];     /* that multiply the sums of activations */
    float d[QUANT_PART][QUANT_ROWS], m[QUANT_PART][QUANT_ROWS];
};

/* ---- unpacking ------------------------------------------------------------------------------- */

INLINE void put(void *p, __m256i v)
{
    _mm256_store_si256(p, v);
}

/* Word k of 4 bits and more; 4 and on: the second half. */
INLINE __m256i word_wide(const enum quant_kind kind, const uint8_t *w, const int k)
{
    const int is_fifth = kind == QUANT_Q5_0 || kind == QUANT_Q5_1 || kind == QUANT_Q5_K;
    __m256i v = load(w + 64 * (k % 4)), low = _mm256_set1_epi8(15);
    v = _mm256_and_si256(k < 4 ? v : _mm256_srli_epi16(v, 4), low);
    if (is_fifth)
        v = _mm256_or_si256(
            v, _mm256_and_si256(moved(load(w + Q4_QUANTS), k, 4), _mm256_set1_epi8(16)));
    if (kind == QUANT_Q6_K)
        v = _mm256_or_si256(
            v, _mm256_and_si256(moved(load(w + Q4_QUANTS + 64 * (k / 4)), 2 * (k % 4), 4),
                                _mm256_set1_epi8(0x30)));
    if (kind == QUANT_IQ4_NL || kind == QUANT_IQ4_XS)
        v = _mm256_shuffle_epi8(table(quant_iq4_value), v);
    if (kind == QUANT_MXFP4)
        v = _mm256_shuffle_epi8(table(quant_mxfp4_value), v);
    return v;
}

INLINE __m256i word(const enum quant_kind kind, const uint8_t *w, const int k)
{
    if (kind == QUANT_Q8_0)
        return _mm256_xor_si256(load(w + 64 * k), _mm256_set1_epi8(-128));
    if (kind != QUANT_Q2_K && kind != QUANT_Q3_K)
        return word_wide(kind, w, k);
    __m256i v =
        _mm256_and_si256(moved(load(w + 64 * (k / 4)), 2 * (k % 4), 0), _mm256_set1_epi8(3));
    if (kind == QUANT_Q3_K)
        v = _mm256_or_si256(
            v, _mm256_and_si256(moved(load(w + Q2_QUANTS), k, 2), _mm256_set1_epi8(4)));
    return v;
}

INLINE int is_signed(const enum quant_kind kind)
{
    return kind == QUANT_Q8_0 || kind == QUANT_IQ4_NL || kind == QUANT_IQ4_XS ||
           kind == QUANT_MXFP4;
}

/* Eight rows of a block.  w x is |w| (x ^ flip), plus |w| where w is negative: there ~x = -x - 1. */
INLINE void unpack_quants(const enum quant_kind kind, struct part *p, int b, const uint8_t *w,
                          int half)
{
    __m256i plus = _mm256_setzero_si256();
#pragma GCC unroll 8
    for (int k = 0; k < WORDS; k++) {
        __m256i v = word(kind, w + 32 * half, k);
        const int at = 64 * k + 32 * half;
        if (is_signed(kind)) {
            __m256i flip = _mm256_cmpgt_epi8(_mm256_setzero_si256(), v);
            v = _mm256_abs_epi8(v);
            put(p->flip[b] + at, flip);
            plus = _mm256_add_epi16(
                plus, _mm256_maddubs_epi16(_mm256_and_si256(v, flip), _mm256_set1_epi8(1)));
        }
        put(p->q[b] + at, v);
    }
    if (is_signed(kind))
        put(p->plus[b] + 8 * half, _mm256_madd_epi16(plus, _mm256_set1_epi16(1)));
}

INLINE void unpack_small(const enum quant_kind kind, struct part *p, int b, const uint8_t *scale,
                         int half)
{
    const int has_minimum = kind == QUANT_Q4_1 || kind == QUANT_Q5_1;
    _mm256_store_ps(p->d[b] + 8 * half,
                    kind == QUANT_MXFP4 ? e8m0(scale + 8 * half) : half8(scale + 16 * half));
    if (has_minimum)
        _mm256_store_ps(p->m[b] + 8 * half, half8(scale + 2 * QUANT_ROWS + 16 * half));
}

/* The scale of each of eight rows for both products of a pair. */
INLINE __m256i scales_of(__m128i v, const int has_sign)
{
    v = _mm_unpacklo_epi8(v, v);
    return has_sign ? _mm256_cvtepi8_epi16(v) : _mm256_cvtepu8_epi16(v);
}

/* Block j of a group of 256 columns. */
INLINE void unpack_super(const enum quant_kind kind, struct part *p, int b, const uint8_t *group,
                         int half)
{
    const int j = b % 8;
    const uint8_t *scale = group + 64 + 32 * j + 16 * half;
    __m256i s[2];
    if (kind == QUANT_IQ4_XS) {
        s[0] = s[1] =
            scales_of(_mm_loadl_epi64((const void *)(group + 64 + QUANT_ROWS * j + 8 * half)), 1);
        put(p->plus[b] + 8 * half,
            _mm256_mullo_epi32(load(p->plus[b] + 8 * half), _mm256_srai_epi32(s[0], 16)));
    } else if (kind == QUANT_Q4_K || kind == QUANT_Q5_K) {
        const uint8_t *one = group + 64 + 32 * j + 8 * half;
        s[0] = s[1] = scales_of(_mm_loadl_epi64((const void *)one), 0);
        _mm256_store_ps(p->m[b] + 8 * half, _mm256_cvtepi32_ps(byte8(one + QUANT_ROWS)));
    } else if (kind == QUANT_Q2_K) {
        __m256i pair = _mm256_cvtepu8_epi16(load_half(scale));
        split_pairs(s, _mm256_and_si256(pair, _mm256_set1_epi16(15)));
        put(p->minus[b] + 16 * half, _mm256_srli_epi16(pair, 4));
    } else { /* times the offset of the quants, 32 or 4 */
        __m256i pair = _mm256_cvtepi8_epi16(load_half(scale));
        split_pairs(s, pair);
        put(p->minus[b] + 16 * half, _mm256_slli_epi16(pair, kind == QUANT_Q6_K ? 5 : 2));
    }
    put(p->scale[b][0] + 16 * half, s[0]);
    put(p->scale[b][1] + 16 * half, s[1]);
    if (j == 0) {
        _mm256_store_ps(p->d[b] + 8 * half, half8(group + 16 * half));
        _mm256_store_ps(p->d[b + 1] + 8 * half, half8(group + 2 * QUANT_ROWS + 16 * half));
    }
}

/* group: blocks in one; size: of a scale. */
INLINE void unpack(const enum quant_kind kind, const int group, const int scales, const int quants,
                   struct part *p, const uint8_t *w, int blocks)
{
    const int size = kind == QUANT_MXFP4 ? 1 : 2;
    for (int b = 0; b < blocks; b++) {
        const uint8_t *first = w + (size_t)(b / group) * (size_t)(scales + group * quants);
        prefetch(first + scales + quants * (b % group), quants);
        for (int half = 0; half < 2; half++) {
            unpack_quants(kind, p, b, first + scales + quants * (b % group), half);
            if (group == 8)
                unpack_super(kind, p, b, first, half);
            else
                unpack_small(kind, p, b, first + size * QUANT_ROWS * (b % group), half);
        }
    }
}

/* ---- multiplication -------------------------------------------------------------------------- */

enum { LEAST = 1, MOST = 4 }; /* rows at a time: 8 sums, and the operands, in 16 registers */

/* How a kind is multiplied. */
struct form {
    int run; /* words whose products are added in 16 bits: see quant_avx2.c; signed: 128 x 128 x 2 */
    int is_signed, is_scaled;
    int has_start, has_dsum, has_minus; /* the sum of activations that is used */
};

/* Compilers make trees of chains of additions, which need more registers than there are. */
INLINE void in_order(__m256i *sum)
{
    __asm__("" : "+x"(*sum));
}

/* The sums of a block, times its scales within a group. */
INLINE void dot(const int rows, const struct form f, __m256i sum[MOST][2], const struct part *p,
                int b, const struct quant_x *x)
{
    __m256i pairs[MOST][2];
#pragma GCC unroll 8
    for (int i = 0; i < WORDS; i++) {
        const uint8_t *q = p->q[b] + 64 * i, *flip = p->flip[b] + 64 * i;
        const int is_first = i % f.run == 0, is_last = i % f.run == f.run - 1;
        __m256i q0 = load(q), q1 = load(q + 32);
#pragma GCC unroll 4
        for (int n = 0; n < rows; n++) {
            __m256i x4 = four(x[n].q + 4 * i);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256i v = f.is_signed ? _mm256_xor_si256(x4, load(flip + 32 * h)) : x4;
                v = _mm256_maddubs_epi16(h ? q1 : q0, v);
                pairs[n][h] = is_first ? v : _mm256_add_epi16(pairs[n][h], v);
                in_order(&pairs[n][h]);
                if (!is_last)
                    continue;
                v = _mm256_set1_epi16(1);
                if (f.is_scaled)
                    v = load(p->scale[b][i / 4] + 16 * h);
                v = _mm256_madd_epi16(pairs[n][h], v);
                sum[n][h] = i < f.run ? v : _mm256_add_epi32(sum[n][h], v);
                in_order(&sum[n][h]);
            }
        }
    }
#pragma GCC unroll 4
    for (int n = 0; n < rows; n++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++)
            if (f.is_signed)
                sum[n][h] = _mm256_add_epi32(sum[n][h], load(p->plus[b] + 8 * h));
}

/* One scale per block. */
INLINE void smalls(const int rows, const struct form f, float *acc, const struct part *p,
                   const struct quant_x *x, int tile, int blocks)
{
    for (int b = 0; b < blocks; b++, x += tile) {
        __m256i sum[MOST][2];
        dot(rows, f, sum, p, b, x);
#pragma GCC unroll 4
        for (int n = 0; n < rows; n++) {
            __m256 dx = _mm256_set1_ps(x[n].d);
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                float *to = acc + n * QUANT_ROWS + 8 * h;
                __m256i v = sum[n][h];
                if (f.has_start)
                    v = _mm256_add_epi32(v, _mm256_set1_epi32(x[n].start));
                __m256 a = _mm256_fmadd_ps(_mm256_mul_ps(_mm256_load_ps(p->d[b] + 8 * h), dx),
                                           _mm256_cvtepi32_ps(v), _mm256_loadu_ps(to));
                if (f.has_dsum)
                    a = _mm256_fmadd_ps(_mm256_load_ps(p->m[b] + 8 * h), _mm256_set1_ps(x[n].dsum),
                                        a);
                _mm256_storeu_ps(to, a);
            }
        }
    }
}

/* The minima of a group of 256 columns, from block b on: acc += dmin sum of m. */
INLINE void minima(const int rows, const struct form f, float *acc, const struct part *p, int b,
                   const struct quant_x *x, int tile)
{
    __m256 m[MOST][2];
#pragma GCC unroll 4
    for (int n = 0; n < rows; n++)
        m[n][0] = m[n][1] = _mm256_setzero_ps();
    for (int j = b; j < b + 8; j++, x += tile) {
#pragma GCC unroll 4
        for (int n = 0; n < rows; n++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                __m256 by = _mm256_set1_ps(f.has_dsum ? x[n].dsum : x[n].d), v;
                if (f.has_dsum)
                    v = _mm256_load_ps(p->m[j] + 8 * h);
                else
                    v = _mm256_cvtepi32_ps(
                        _mm256_madd_epi16(load(p->minus[j] + 16 * h), minus_of(&x[n])));
                m[n][h] = _mm256_fmadd_ps(v, by, m[n][h]);
            }
    }
#pragma GCC unroll 4
    for (int n = 0; n < rows; n++)
#pragma GCC unroll 2
        for (int h = 0; h < 2; h++) {
            float *to = acc + n * QUANT_ROWS + 8 * h;
            __m256 dmin = _mm256_load_ps(p->d[b + 1] + 8 * h), a = _mm256_loadu_ps(to);
            _mm256_storeu_ps(to, f.has_dsum ? _mm256_fnmadd_ps(dmin, m[n][h], a)
                                            : _mm256_fmadd_ps(dmin, m[n][h], a));
        }
}

/* Scales within groups of 256 columns; minus: what the quants' offset adds to a block's sum. */
INLINE void supers(const int rows, const struct form f, const int has_minima, float *acc,
                   const struct part *p, const struct quant_x *x, int tile, int blocks)
{
    for (int b = 0; b < blocks; b += 8) {
        const struct quant_x *first = x;
        __m256 a[MOST][2];
#pragma GCC unroll 4
        for (int n = 0; n < rows; n++)
            a[n][0] = a[n][1] = _mm256_setzero_ps();
        for (int j = b; j < b + 8; j++, x += tile) {
            __m256i sum[MOST][2];
            dot(rows, f, sum, p, j, x);
#pragma GCC unroll 4
            for (int n = 0; n < rows; n++)
#pragma GCC unroll 2
                for (int h = 0; h < 2; h++) {
                    __m256i v = sum[n][h];
                    if (f.has_minus)
                        v = _mm256_add_epi32(
                            v, _mm256_madd_epi16(load(p->minus[j] + 16 * h), minus_of(&x[n])));
                    a[n][h] =
                        _mm256_fmadd_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(x[n].d), a[n][h]);
                }
        }
#pragma GCC unroll 4
        for (int n = 0; n < rows; n++)
#pragma GCC unroll 2
            for (int h = 0; h < 2; h++) {
                float *to = acc + n * QUANT_ROWS + 8 * h;
                _mm256_storeu_ps(to, _mm256_fmadd_ps(_mm256_load_ps(p->d[b] + 8 * h), a[n][h],
                                                     _mm256_loadu_ps(to)));
            }
        if (has_minima)
            minima(rows, f, acc, p, b, first, tile);
    }
}

/* Rows of a tile, `most` at a time and then one by one. */
#define TILE(name, most, multiply)                                                                 \
    KERNEL static void tile_##name(float *acc, const struct part *p, const struct quant_x *x,      \
                                   int tile, int blocks)                                           \
    {                                                                                              \
        int n = 0;                                                                                 \
        for (; n + (most) <= tile; n += (most))                                                    \
            multiply(most, acc + n * QUANT_ROWS, p, x + n, tile, blocks);                          \
        for (; n < tile; n++)                                                                      \
            multiply(LEAST, acc + n * QUANT_ROWS, p, x + n, tile, blocks);                         \
    }
#define SMALLS(rows, ...) smalls(rows, FORM, __VA_ARGS__)
#define SUPERS(rows, ...) supers(rows, FORM, 0, __VA_ARGS__)
#define MINIMA(rows, ...) supers(rows, FORM, 1, __VA_ARGS__)

#define FORM ((struct form){.run = 1, .is_signed = 1})
TILE(bytes, MOST, SMALLS)
#undef FORM
#define FORM ((struct form){.run = 8, .has_start = 1})
TILE(fours, MOST, SMALLS)
#undef FORM
#define FORM ((struct form){.run = 8, .has_dsum = 1})
TILE(fours_from, MOST, SMALLS)
#undef FORM
#define FORM ((struct form){.run = 4, .has_start = 1})
TILE(fives, MOST, SMALLS)
#undef FORM
#define FORM ((struct form){.run = 4, .has_dsum = 1})
TILE(fives_from, MOST, SMALLS)
#undef FORM
#define FORM ((struct form){.run = 8, .is_scaled = 1, .has_dsum = 1})
TILE(four_k, MOST, MINIMA)
#undef FORM
#define FORM ((struct form){.run = 4, .is_scaled = 1, .has_dsum = 1})
TILE(five_k, MOST, MINIMA)
#undef FORM
#define FORM ((struct form){.run = 2, .is_scaled = 1, .has_minus = 1})
TILE(six_k, MOST, SUPERS)
#undef FORM
#define FORM ((struct form){.run = 4, .is_scaled = 1, .has_minus = 1})
TILE(three_k, MOST, SUPERS)
#undef FORM
#define FORM ((struct form){.run = 4, .is_scaled = 1})
TILE(two_k, MOST, MINIMA)
#undef FORM
#define FORM ((struct form){.run = 1, .is_signed = 1, .is_scaled = 1})
TILE(values_k, MOST, SUPERS)
#undef FORM

/* ---- the kinds ------------------------------------------------------------------------------- */

#define ROWS(name, kind, group, scales, quants, multiply)                                          \
    KERNEL static void rows_##name(float *acc, const uint8_t *w, const struct quant_x *x,          \
                                   size_t step, int b, int blocks, int rows)                       \
    {                                                                                              \
        struct part p;                                                                             \
        unpack(kind, group, scales, quants, &p, w, blocks);                                        \
        for (int n = 0; n < rows; n += QUANT_TILE, x += step) {                                    \
            int tile = rows - n < QUANT_TILE ? rows - n : QUANT_TILE;                              \
            multiply(acc + n * QUANT_ROWS, &p, x + b * tile, tile, blocks);                        \
        }                                                                                          \
    }
ROWS(q8_0, QUANT_Q8_0, 2, PAIR_SCALES, Q8_QUANTS, tile_bytes)
ROWS(q4_0, QUANT_Q4_0, 2, PAIR_SCALES, Q4_QUANTS, tile_fours)
ROWS(q4_1, QUANT_Q4_1, 1, PAIR_SCALES, Q4_QUANTS, tile_fours_from)
ROWS(q5_0, QUANT_Q5_0, 2, PAIR_SCALES, Q5_QUANTS, tile_fives)
ROWS(q5_1, QUANT_Q5_1, 1, PAIR_SCALES, Q5_QUANTS, tile_fives_from)
ROWS(iq4_nl, QUANT_IQ4_NL, 2, PAIR_SCALES, Q4_QUANTS, tile_bytes)
ROWS(mxfp4, QUANT_MXFP4, 4, PAIR_SCALES, Q4_QUANTS, tile_bytes)
ROWS(q4_k, QUANT_Q4_K, 8, SUPER_SCALES, Q4_QUANTS, tile_four_k)
ROWS(q5_k, QUANT_Q5_K, 8, SUPER_SCALES, Q5_QUANTS, tile_five_k)
ROWS(q6_k, QUANT_Q6_K, 8, SUPER_SCALES, Q6_QUANTS, tile_six_k)
ROWS(q3_k, QUANT_Q3_K, 8, SUPER_SCALES, Q3_QUANTS, tile_three_k)
ROWS(q2_k, QUANT_Q2_K, 8, SUPER_SCALES, Q2_QUANTS, tile_two_k)
ROWS(iq4_xs, QUANT_IQ4_XS, 8, IQ4_SCALES, Q4_QUANTS, tile_values_k)

quant_rows_fn *const quant_rows_avx2[QUANT_KINDS] = {
    [QUANT_Q8_0] = rows_q8_0,   [QUANT_Q4_0] = rows_q4_0,     [QUANT_Q4_K] = rows_q4_k,
    [QUANT_Q5_K] = rows_q5_k,   [QUANT_Q6_K] = rows_q6_k,     [QUANT_Q4_1] = rows_q4_1,
    [QUANT_Q5_0] = rows_q5_0,   [QUANT_Q5_1] = rows_q5_1,     [QUANT_Q2_K] = rows_q2_k,
    [QUANT_Q3_K] = rows_q3_k,   [QUANT_IQ4_NL] = rows_iq4_nl, [QUANT_IQ4_XS] = rows_iq4_xs,
    [QUANT_MXFP4] = rows_mxfp4,
};
#endif
