/* Quantised weights for AVX2.  Products of bytes are added in pairs into 16 bits, which must not
 * saturate: |w| <= 128 times |x| <= 127 twice is 32512; eight pairs of 4-bit quants are at most
 * 30480, four of 5-bit ones 31496, two of 6-bit ones 32004, four of 3-bit ones 7112. */
#include "quant_avx2.h"

#ifdef QUANT_X86
#include <float.h>
#include <math.h>

#include "base/cpu.h"

/* ---- activations ----------------------------------------------------------------------------- */

INLINE int sum_lanes(__m256i v)
{
    __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1)));
}

INLINE float most_lane(__m256 v)
{
    __m128 m = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
    m = _mm_max_ps(m, _mm_movehl_ps(m, m));
    return _mm_cvtss_f32(_mm_max_ss(m, _mm_shuffle_ps(m, m, 1)));
}

/* The quants of 32 activations; the sums of 16 and 16 of them. */
INLINE void round_quants(int8_t *out, int sum[2], const __m256 v[4], float per)
{
    __m256 by = _mm256_set1_ps(per);
    __m256i q[4];
    for (int i = 0; i < 4; i++)
        q[i] = _mm256_cvtps_epi32(_mm256_mul_ps(v[i], by));
    /* Packing works within 128-bit halves: dwords of four quants are then in order 0 4 8 12 1 5 9
     * 13 ... */
    __m256i bytes =
        _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
    bytes = _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
    _mm256_storeu_si256((__m256i *)(void *)out, bytes);
    sum[0] = sum_lanes(_mm256_add_epi32(q[0], q[1]));
    sum[1] = sum_lanes(_mm256_add_epi32(q[2], q[3]));
}

INLINE void round_block(struct quant_x *out, const float *x, const struct quant_format *f)
{
    const __m256 size = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 limit = _mm256_set1_ps(FLT_MAX);
    __m256 v[4], most = _mm256_setzero_ps(), finite = _mm256_cmp_ps(most, most, _CMP_EQ_OQ);
    for (int i = 0; i < 4; i++) {
        v[i] = _mm256_loadu_ps(x + 8 * i);
        __m256 a = _mm256_and_ps(v[i], size);
        finite = _mm256_and_ps(finite, _mm256_cmp_ps(a, limit, _CMP_LE_OQ));
        most = _mm256_max_ps(most, a);
    }
    float d = NAN, per = 0, largest = most_lane(most);
    int sum[2] = {0, 0};
    if (_mm256_movemask_ps(finite) == 255) {
        d = largest >= 1e-30F ? largest / 127 : 0;
        per = largest >= 1e-30F ? 127 / largest : 0;
        round_quants(out->q, sum, v, per);
    } else {
        _mm256_storeu_si256((__m256i *)(void *)out->q, _mm256_setzero_si256());
    }
    out->d = d;
    if (f->sums == SUMS_HALVES) {
        out->minus[0] = (int16_t)-sum[0];
        out->minus[1] = (int16_t)-sum[1];
    } else if (f->sums == SUMS_SCALED) {
        out->dsum = d * (float)(sum[0] + sum[1]);
    } else {
        out->start = -f->offset * (sum[0] + sum[1]);
    }
}

KERNEL void quant_round_avx2(struct quant_x *out, const real *x, int blocks, int step,
                             enum quant_kind kind)
{
    for (int b = 0; b < blocks; b++)
        round_block(out + (size_t)b * (size_t)step, x + b * QUANT_BLOCK, &quant_format[kind]);
}

/* ---- multiplication -------------------------------------------------------------------------- */

/* Signed weights times activations: the sign is moved to the activations. */
INLINE __m256i dot_q8(const uint8_t *w, const int8_t *x)
{
    const __m256i ones = _mm256_set1_epi16(1), offset = _mm256_set1_epi8(-128);
    __m256i sum = _mm256_setzero_si256();
    for (int k = 0; k < 8; k++) {
        __m256i q = _mm256_xor_si256(load(w + 64 * k), offset);
        __m256i pairs =
            _mm256_maddubs_epi16(_mm256_abs_epi8(q), _mm256_sign_epi8(four(x + 4 * k), q));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
    }
    return sum;
}

INLINE __m256i dot_q4(const uint8_t *w, const int8_t *x)
{
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);
    __m256i sum = _mm256_setzero_si256();
    for (int k = 0; k < 4; k++) {
        __m256i q = load(w + 64 * k), a = _mm256_and_si256(q, low);
        __m256i b = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(a, four(x + 4 * k)));
        sum = _mm256_add_epi16(sum, _mm256_maddubs_epi16(b, four(x + 16 + 4 * k)));
    }
    return _mm256_madd_epi16(sum, ones);
}

/* Bit k of a byte is the fifth bit of the lower half of word k, bit k + 4 that of its upper
 * half. */
INLINE __m256i dot_q5(const uint8_t *w, const int8_t *x)
{
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15),
                  fifth = _mm256_set1_epi8(16);
    __m256i h = load(w + Q4_QUANTS), first = _mm256_setzero_si256(), second = first;
    __m256i up = _mm256_slli_epi16(h, 4), down = h; /* their bit 4: 0, 1, ..; 4, 5, .. */
    for (int k = 0; k < 4; k++) {
        __m256i q = load(w + 64 * k), a = _mm256_and_si256(q, low);
        __m256i b = _mm256_and_si256(_mm256_srli_epi16(q, 4), low);
        a = _mm256_or_si256(a, _mm256_and_si256(up, fifth));
        b = _mm256_or_si256(b, _mm256_and_si256(down, fifth));
        first = _mm256_add_epi16(first, _mm256_maddubs_epi16(a, four(x + 4 * k)));
        second = _mm256_add_epi16(second, _mm256_maddubs_epi16(b, four(x + 16 + 4 * k)));
        up = _mm256_srli_epi16(up, 1);
        down = _mm256_srli_epi16(down, 1);
    }
    return _mm256_add_epi32(_mm256_madd_epi16(first, ones), _mm256_madd_epi16(second, ones));
}

/* Quants that select one of the signed bytes of `value`. */
INLINE __m256i dot_values(const uint8_t *w, const int8_t *x, __m256i value)
{
    const __m256i ones = _mm256_set1_epi16(1), low = _mm256_set1_epi8(15);
    __m256i sum = _mm256_setzero_si256();
    for (int k = 0; k < 4; k++) {
        __m256i q = load(w + 64 * k), v[2];
        v[0] = _mm256_shuffle_epi8(value, _mm256_and_si256(q, low));
        v[1] = _mm256_shuffle_epi8(value, _mm256_and_si256(_mm256_srli_epi16(q, 4), low));
        for (int i = 0; i < 2; i++) {
            __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(v[i]),
                                                 _mm256_sign_epi8(four(x + 16 * i + 4 * k), v[i]));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, ones));
        }
    }
    return sum;
}

/* A block of 32 with one scale, or scale and minimum: eight rows.  Signed bytes need no offset. */
INLINE void small_block(const enum quant_kind kind, float *acc, const uint8_t *scale,
                        const uint8_t *w, const struct quant_x *x)
{
    const int is_fifth = kind == QUANT_Q5_0 || kind == QUANT_Q5_1;
    const int has_minimum = kind == QUANT_Q4_1 || kind == QUANT_Q5_1;
    __m256 d = kind == QUANT_MXFP4 ? e8m0(scale) : half8(scale), a = _mm256_loadu_ps(acc);
    __m256i sum = kind == QUANT_Q8_0     ? dot_q8(w, x->q)
                  : kind == QUANT_IQ4_NL ? dot_values(w, x->q, table(quant_iq4_value))
                  : kind == QUANT_MXFP4  ? dot_values(w, x->q, table(quant_mxfp4_value))
                  : is_fifth             ? dot_q5(w, x->q)
                                         : dot_q4(w, x->q);
    if (kind == QUANT_Q4_0 || kind == QUANT_Q5_0)
        sum = _mm256_add_epi32(sum, _mm256_set1_epi32(x->start));
    a = _mm256_fmadd_ps(_mm256_mul_ps(d, _mm256_set1_ps(x->d)), _mm256_cvtepi32_ps(sum), a);
    if (has_minimum)
        a = _mm256_fmadd_ps(half8(scale + 2 * QUANT_ROWS), _mm256_set1_ps(x->dsum), a);
    _mm256_storeu_ps(acc, a);
}

INLINE void panel_small(const enum quant_kind kind, const int blocks_per, const int quants,
                        float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    const int size = kind == QUANT_MXFP4 ? 1 : 2; /* of a scale */
    for (int b = 0; b < blocks; b++, x += rows) {
        const uint8_t *group =
            w + (size_t)(b / blocks_per) * (size_t)(PAIR_SCALES + blocks_per * quants);
        const uint8_t *scale = group + size * QUANT_ROWS * (b % blocks_per);
        const uint8_t *q = group + PAIR_SCALES + quants * (b % blocks_per);
        prefetch(q, quants);
        for (int half = 0; half < 2; half++)
            for (int n = 0; n < rows; n++)
                small_block(kind, acc + n * QUANT_ROWS + 8 * half, scale + 8 * size * half,
                            q + 32 * half, &x[n]);
    }
}

#define SMALL(name, kind, blocks_per, quants)                                                      \
    KERNEL static void panel_##name(float *acc, const uint8_t *w, const struct quant_x *x,         \
                                    int blocks, int rows)                                          \
    {                                                                                              \
        panel_small(kind, blocks_per, quants, acc, w, x, blocks, rows);                            \
    }
SMALL(q8_0, QUANT_Q8_0, 2, Q8_QUANTS)
SMALL(q4_0, QUANT_Q4_0, 2, Q4_QUANTS)
SMALL(q5_0, QUANT_Q5_0, 2, Q5_QUANTS)
SMALL(iq4_nl, QUANT_IQ4_NL, 2, Q4_QUANTS)
SMALL(mxfp4, QUANT_MXFP4, 4, Q4_QUANTS)
SMALL(q4_1, QUANT_Q4_1, 1, Q4_QUANTS)
SMALL(q5_1, QUANT_Q5_1, 1, Q5_QUANTS)

/* A block of Q6_K: 16-bit products times the scale of their half, minus 32 times the scale per
 * activation. */
INLINE __m256i dot_q6(const uint8_t *w, const uint8_t *scale, const struct quant_x *x)
{
    const __m256i low = _mm256_set1_epi8(15), upper = _mm256_set1_epi8(0x30);
    __m256i s[2], pair = _mm256_cvtepi8_epi16(load_half(scale)); /* s, s' */
    split_pairs(s, pair);
    __m256i h[2] = {load(w + Q4_QUANTS), load(w + Q4_QUANTS + 64)};
    __m256i sum = _mm256_slli_epi32(_mm256_madd_epi16(pair, minus_of(x)), 5);
    for (int k = 0; k < 4; k += 2) { /* moves bits 4 k .. 4 k + 3 of a byte to 4 .. 7 */
        __m256i products[2];
        for (int i = 0; i < 2; i++) {
            __m256i up = k == 0 ? _mm256_slli_epi16(h[i], 4) : h[i];
            __m256i next = k == 0 ? _mm256_slli_epi16(h[i], 2) : _mm256_srli_epi16(h[i], 2);
            __m256i q = load(w + 64 * k), r = load(w + 64 * (k + 1));
            if (i == 1) {
                q = _mm256_srli_epi16(q, 4);
                r = _mm256_srli_epi16(r, 4);
            }
            q = _mm256_or_si256(_mm256_and_si256(q, low), _mm256_and_si256(up, upper));
            r = _mm256_or_si256(_mm256_and_si256(r, low), _mm256_and_si256(next, upper));
            products[i] =
                _mm256_add_epi16(_mm256_maddubs_epi16(q, four(x->q + 16 * i + 4 * k)),
                                 _mm256_maddubs_epi16(r, four(x->q + 16 * i + 4 * k + 4)));
            sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products[i], s[i]));
        }
    }
    return sum;
}

/* One row of x times eight rows of a block of Q2_K or Q3_K, whose 16-bit products are multiplied by
 * the scale of their half; pair: the two scales of each row. */
INLINE __m256i dot_low(const int bits, const uint8_t *w, __m256i pair, const int8_t *x)
{
    const __m256i low = _mm256_set1_epi8(3), third = _mm256_set1_epi8(4);
    __m256i s[2];
    split_pairs(s, pair);
    __m256i h = bits == 3 ? load(w + Q2_QUANTS) : low, sum = _mm256_setzero_si256();
#pragma GCC unroll 2
    for (int i = 0; i < 2; i++) {
        __m256i v = load(w + 64 * i), products = _mm256_setzero_si256();
#pragma GCC unroll 4
        for (int k = 0; k < 4; k++) {
            __m256i q = _mm256_and_si256(_mm256_srli_epi16(v, 2 * k), low);
            if (bits == 3)
                q = _mm256_or_si256(q, _mm256_and_si256(moved(h, 4 * i + k, 2), third));
            products =
                _mm256_add_epi16(products, _mm256_maddubs_epi16(q, four(x + 16 * i + 4 * k)));
        }
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(products, s[i]));
    }
    return sum;
}

/* One row of x times eight rows of a block with scales within a group of 256 columns: a += its sum,
 * m += its minima. */
INLINE void super_block(const enum quant_kind kind, __m256 *a, __m256 *m, const uint8_t *scale,
                        const uint8_t *w, const struct quant_x *x)
{
    const __m256 d = _mm256_set1_ps(x->d);
    __m256i dot, pair;
    if (kind == QUANT_Q4_K || kind == QUANT_Q5_K) {
        dot = kind == QUANT_Q5_K ? dot_q5(w, x->q) : dot_q4(w, x->q);
        __m256 scaled = _mm256_mul_ps(_mm256_cvtepi32_ps(dot),
                                      _mm256_cvtepi32_ps(byte8(scale))); /* exact: < 2^24 */
        *a = _mm256_fmadd_ps(scaled, d, *a);
        *m = _mm256_fmadd_ps(_mm256_cvtepi32_ps(byte8(scale + QUANT_ROWS)), _mm256_set1_ps(x->dsum),
                             *m);
        return;
    }
    if (kind == QUANT_Q2_K) {
        pair = _mm256_cvtepu8_epi16(load_half(scale));
        dot = dot_low(2, w, _mm256_and_si256(pair, _mm256_set1_epi16(15)), x->q);
        __m256i minus = _mm256_madd_epi16(_mm256_srli_epi16(pair, 4), minus_of(x));
        *m = _mm256_fmadd_ps(_mm256_cvtepi32_ps(minus), d, *m);
    } else if (kind == QUANT_Q3_K) {
        pair = _mm256_cvtepi8_epi16(load_half(scale));
        dot = dot_low(3, w, pair, x->q);
        dot = _mm256_add_epi32(dot, _mm256_slli_epi32(_mm256_madd_epi16(pair, minus_of(x)), 2));
    } else if (kind == QUANT_Q6_K) {
        dot = dot_q6(w, scale, x);
    } else {
        dot = dot_values(w, x->q, table(quant_iq4_value));
        dot = _mm256_mullo_epi32(
            dot, _mm256_cvtepi8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)scale)));
    }
    *a = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), d, *a);
}

/* One row of x times the sixteen rows of a group of 256 columns, which is read in the order of its
 * bytes: the row that comes first fetches it from memory. */
INLINE void super_row(const enum quant_kind kind, const int scales, const int quants, float *acc,
                      const uint8_t *w, const struct quant_x *x, int rows, int is_first)
{
    const int each = kind == QUANT_Q4_K || kind == QUANT_Q5_K || kind == QUANT_IQ4_XS ? 8 : 16;
    const uint8_t *scale = w + 64, *q = w + scales;
    __m256 a[2], m[2];
    a[0] = a[1] = m[0] = m[1] = _mm256_setzero_ps();
    for (int j = 0; j < 8; j++, x += rows, scale += (scales - 64) / 8, q += quants) {
        if (is_first)
            prefetch(q, quants);
#pragma GCC unroll 2
        for (int half = 0; half < 2; half++)
            super_block(kind, &a[half], &m[half], scale + each * half, q + 32 * half, x);
    }
#pragma GCC unroll 2
    for (int half = 0; half < 2; half++) {
        float *to = acc + 8 * half;
        __m256 sum = _mm256_fmadd_ps(half8(w + 16 * half), a[half], _mm256_loadu_ps(to));
        if (kind == QUANT_Q4_K || kind == QUANT_Q5_K)
            sum = _mm256_fnmadd_ps(half8(w + 2 * QUANT_ROWS + 16 * half), m[half], sum);
        if (kind == QUANT_Q2_K)
            sum = _mm256_fmadd_ps(half8(w + 2 * QUANT_ROWS + 16 * half), m[half], sum);
        _mm256_storeu_ps(to, sum);
    }
}

#define SUPER(name, kind, scales, quants)                                                          \
    KERNEL static void panel_##name(float *acc, const uint8_t *w, const struct quant_x *x,         \
                                    int blocks, int rows)                                          \
    {                                                                                              \
        for (int b = 0; b < blocks; b += 8, w += (scales) + 8 * (quants), x += 8 * rows)           \
            for (int n = 0; n < rows; n++)                                                         \
                super_row(kind, scales, quants, acc + n * QUANT_ROWS, w, x + n, rows, n == 0);     \
    }
SUPER(q4_k, QUANT_Q4_K, SUPER_SCALES, Q4_QUANTS)
SUPER(q5_k, QUANT_Q5_K, SUPER_SCALES, Q5_QUANTS)
SUPER(q6_k, QUANT_Q6_K, SUPER_SCALES, Q6_QUANTS)
SUPER(q2_k, QUANT_Q2_K, SUPER_SCALES, Q2_QUANTS)
SUPER(q3_k, QUANT_Q3_K, SUPER_SCALES, Q3_QUANTS)
SUPER(iq4_xs, QUANT_IQ4_XS, IQ4_SCALES, Q4_QUANTS)

static int available(void)
{
    return cpu_allows(CPU_AVX2) && __builtin_cpu_supports("avx2") &&
           __builtin_cpu_supports("fma") &&
           cpu_has("f16c"); /* __builtin_cpu_supports lacks it in clang */
}

const struct quant_kernels quant_avx2 = {
    .name = "avx2",
    .available = available,
    .round = quant_round_avx2,
    .rows = quant_rows_avx2,
    .panel = {[QUANT_Q8_0] = panel_q8_0,
              [QUANT_Q4_0] = panel_q4_0,
              [QUANT_Q4_K] = panel_q4_k,
              [QUANT_Q5_K] = panel_q5_k,
              [QUANT_Q6_K] = panel_q6_k,
              [QUANT_Q4_1] = panel_q4_1,
              [QUANT_Q5_0] = panel_q5_0,
              [QUANT_Q5_1] = panel_q5_1,
              [QUANT_Q2_K] = panel_q2_k,
              [QUANT_Q3_K] = panel_q3_k,
              [QUANT_IQ4_NL] = panel_iq4_nl,
              [QUANT_IQ4_XS] = panel_iq4_xs,
              [QUANT_MXFP4] = panel_mxfp4},
};
#endif
