/* Quantised weights for AVX-512 VNNI: 64 byte products per instruction, exact in 32 bits. */
#include "engine/quant_impl.h"

#ifdef QUANT_X86
#include <immintrin.h>

#include "base/cpu.h"

#define KERNEL __attribute__((target("avx512f,avx512bw,avx512vnni,avx2,fma,f16c")))
#define INLINE KERNEL static inline __attribute__((always_inline))

/* Prefetch distance in bytes.  One row, share of the memory bandwidth, one thread on Zen 4: Q8_0 94
 * % with 4096, 88 % with 8192; Q4_0 100 % with both; Q4_K 81 % with 4096, 95 % with 8192 (and 82 %
 * there with one chain of sums).  Best of 90 on a busy machine: Q5_K 80 % with 4096, 69 % with
 * 8192, Q6_K 79 and 69 %. */
enum { AHEAD = 4096, SUPER_AHEAD = 8192 };

INLINE __m512i load(const uint8_t *p)
{
    return _mm512_loadu_si512(p);
}

/* Broadcasts four activations to every row of weights. */
INLINE __m512i four(const int8_t *x)
{
    int32_t v;
    __builtin_memcpy(&v, x, sizeof v);
    return _mm512_set1_epi32(v);
}

INLINE __m512 halves(const uint8_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

INLINE __m512 bytes(const uint8_t *p)
{
    return _mm512_cvtepi32_ps(
        _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)));
}

INLINE void add_products(const int rows, __m512i *sum, __m512i q, const struct quant_x *x,
                         const int k)
{
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        sum[n] = _mm512_dpbusd_epi32(sum[n], q, four(x[n].q + k));
}

INLINE void dot_q8(const int rows, __m512i *sum, const uint8_t *w, const struct quant_x *x)
{
#pragma GCC unroll 8
    for (int k = 0; k < 8; k++) {
        _mm_prefetch((const char *)w + 64 * k + AHEAD, _MM_HINT_T0);
        add_products(rows, sum, load(w + 64 * k), x, 4 * k);
    }
}

/* Columns 16..31 go into separate sums, which may be the same ones. */
INLINE void dot_q4(const int rows, const int ahead, __m512i *sum, __m512i *sum_high,
                   const uint8_t *w, const struct quant_x *x)
{
    const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i q = load(w + 64 * k), high = _mm512_and_si512(_mm512_srli_epi16(q, 4), mask);
        _mm_prefetch((const char *)w + 64 * k + ahead, _MM_HINT_T0);
        add_products(rows, sum, _mm512_and_si512(q, mask), x, 4 * k);
        add_products(rows, sum_high, high, x, 16 + 4 * k);
    }
}

/* Quants that select one of the bytes of `value`, stored plus 128. */
INLINE void dot_values(const int rows, const int ahead, __m512i *sum, __m512i *sum_high,
                       const uint8_t *w, const struct quant_x *x, __m512i value)
{
    const __m512i mask = _mm512_set1_epi8(15);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i q = load(w + 64 * k), high = _mm512_and_si512(_mm512_srli_epi16(q, 4), mask);
        _mm_prefetch((const char *)w + 64 * k + ahead, _MM_HINT_T0);
        add_products(rows, sum, _mm512_shuffle_epi8(value, _mm512_and_si512(q, mask)), x, 4 * k);
        add_products(rows, sum_high, _mm512_shuffle_epi8(value, high), x, 16 + 4 * k);
    }
}

INLINE __m512i table(const int8_t *value)
{
    __m128i v = _mm_loadu_si128((const __m128i *)(const void *)value);
    return _mm512_xor_si512(_mm512_broadcast_i32x4(v), _mm512_set1_epi8(-128));
}

/* q with the bits of h under `mask`. */
INLINE __m512i with(__m512i q, __m512i h, __m512i mask)
{
    return _mm512_ternarylogic_epi32(q, h, mask, 0xf8); /* q | (h & mask) */
}

/* Fifth bits: bit k of a byte belongs to the lower half of word k, bit k + 4 to its upper half. */
INLINE void dot_q5(const int rows, __m512i *sum, __m512i *sum_high, const uint8_t *w,
                   const struct quant_x *x)
{
    const __m512i mask = _mm512_set1_epi8(15), fifth = _mm512_set1_epi8(16);
    const __m512i h = load(w + Q4_QUANTS);
    const __m512i up[4] = {_mm512_slli_epi16(h, 4), _mm512_slli_epi16(h, 3),
                           _mm512_slli_epi16(h, 2), _mm512_slli_epi16(h, 1)};
    const __m512i down[4] = {h, _mm512_srli_epi16(h, 1), _mm512_srli_epi16(h, 2),
                             _mm512_srli_epi16(h, 3)};
    _mm_prefetch((const char *)w + Q4_QUANTS + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i q = load(w + 64 * k), high = _mm512_and_si512(_mm512_srli_epi16(q, 4), mask);
        _mm_prefetch((const char *)w + 64 * k + AHEAD, _MM_HINT_T0);
        add_products(rows, sum, with(_mm512_and_si512(q, mask), up[k], fifth), x, 4 * k);
        add_products(rows, sum_high, with(high, down[k], fifth), x, 16 + 4 * k);
    }
}

/* Upper bits: bits 2 k and 2 k + 1 of a byte belong to word k; each half of the columns has its own
 * vector. */
INLINE void dot_q6(const int rows, __m512i *sum, __m512i *sum_high, const uint8_t *w,
                   const struct quant_x *x)
{
    const __m512i mask = _mm512_set1_epi8(15), upper = _mm512_set1_epi8(0x30);
    const __m512i h = load(w + Q4_QUANTS), g = load(w + Q4_QUANTS + 64);
    const __m512i first[4] = {_mm512_slli_epi16(h, 4), _mm512_slli_epi16(h, 2), h,
                              _mm512_srli_epi16(h, 2)};
    const __m512i second[4] = {_mm512_slli_epi16(g, 4), _mm512_slli_epi16(g, 2), g,
                               _mm512_srli_epi16(g, 2)};
    _mm_prefetch((const char *)w + Q4_QUANTS + AHEAD, _MM_HINT_T0);
    _mm_prefetch((const char *)w + Q4_QUANTS + 64 + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i q = load(w + 64 * k), high = _mm512_and_si512(_mm512_srli_epi16(q, 4), mask);
        _mm_prefetch((const char *)w + 64 * k + AHEAD, _MM_HINT_T0);
        add_products(rows, sum, with(_mm512_and_si512(q, mask), first[k], upper), x, 4 * k);
        add_products(rows, sum_high, with(high, second[k], upper), x, 16 + 4 * k);
    }
}

/* 2 bits, and with a third one: bit k of a byte belongs to word k of the first half, bit k + 4 to
 * that of the second. */
INLINE void dot_low(const int rows, const int bits, __m512i *sum, __m512i *sum_high,
                    const uint8_t *w, const struct quant_x *x)
{
    const __m512i mask = _mm512_set1_epi8(3), third = _mm512_set1_epi8(4);
    const __m512i first = load(w), second = load(w + 64);
    const __m512i h = bits == 3 ? load(w + Q2_QUANTS) : mask;
    _mm_prefetch((const char *)w + AHEAD, _MM_HINT_T0);
    _mm_prefetch((const char *)w + 64 + AHEAD, _MM_HINT_T0);
    if (bits == 3)
        _mm_prefetch((const char *)w + Q2_QUANTS + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 4
    for (int k = 0; k < 4; k++) {
        __m512i a = _mm512_and_si512(_mm512_srli_epi16(first, 2 * k), mask);
        __m512i b = _mm512_and_si512(_mm512_srli_epi16(second, 2 * k), mask);
        if (bits == 3) {
            a = with(a, k < 2 ? _mm512_slli_epi16(h, 2 - k) : _mm512_srli_epi16(h, k - 2), third);
            b = with(b, _mm512_srli_epi16(h, k + 2), third);
        }
        add_products(rows, sum, a, x, 4 * k);
        add_products(rows, sum_high, b, x, 16 + 4 * k);
    }
}

/* One block of Q4_K or Q5_K from zero.  With one or two rows a single chain would stall on latency,
 * so there are two sums. */
INLINE void dot_super(const int rows, const int bits, __m512i *sum, const uint8_t *w,
                      const struct quant_x *x)
{
    __m512i high[2];
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        sum[n] = _mm512_setzero_si512();
#pragma GCC unroll 2
    for (int n = 0; n < 2; n++)
        high[n] = _mm512_setzero_si512();
    if (bits == 5)
        dot_q5(rows, sum, rows <= 2 ? high : sum, w, x);
    else
        dot_q4(rows, SUPER_AHEAD, sum, rows <= 2 ? high : sum, w, x);
#pragma GCC unroll 2
    for (int n = 0; n < rows && rows <= 2; n++)
        sum[n] = _mm512_add_epi32(sum[n], high[n]);
}

/* 2^(e - 128); below the smallest normal number a shifted bit. */
INLINE __m512 e8m0(const uint8_t *p)
{
    __m512i e = _mm512_cvtepu8_epi32(_mm_loadu_si128((const __m128i *)(const void *)p));
    __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
    __m512i few = _mm512_min_epi32(e, _mm512_set1_epi32(2));
    __m512i small = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), few);
    return _mm512_castsi512_ps(_mm512_max_epi32(normal, small));
}

/* A block of 32 with one scale: acc += d dx sum; or with a minimum: acc += m dsum. */
INLINE void small_block(const int rows, const enum quant_kind kind, __m512 *acc,
                        const uint8_t *scale, const uint8_t *w, const struct quant_x *x)
{
    const int has_minimum = kind == QUANT_Q4_1 || kind == QUANT_Q5_1;
    __m512i sum[QUANT_TILE];
    __m512 d = kind == QUANT_MXFP4 ? e8m0(scale) : halves(scale);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        sum[n] = has_minimum ? _mm512_setzero_si512() : _mm512_set1_epi32(x[n].start);
    if (kind == QUANT_Q8_0)
        dot_q8(rows, sum, w, x);
    else if (kind == QUANT_IQ4_NL)
        dot_values(rows, AHEAD, sum, sum, w, x, table(quant_iq4_value));
    else if (kind == QUANT_MXFP4)
        dot_values(rows, AHEAD, sum, sum, w, x, table(quant_mxfp4_value));
    else if (kind == QUANT_Q5_0 || kind == QUANT_Q5_1)
        dot_q5(rows, sum, sum, w, x);
    else
        dot_q4(rows, AHEAD, sum, sum, w, x);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        acc[n] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x[n].d)),
                                 _mm512_cvtepi32_ps(sum[n]), acc[n]);
    if (has_minimum) {
        __m512 m = halves(scale + 2 * QUANT_ROWS);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++)
            acc[n] = _mm512_fmadd_ps(m, _mm512_set1_ps(x[n].dsum), acc[n]);
    }
}

/* per: blocks in a group.  stride: rows of x in all, of which these are neighbours. */
INLINE void smalls(const int rows, const enum quant_kind kind, const int per, const int quants,
                   float *out, const uint8_t *w, const struct quant_x *x, int blocks, int stride)
{
    const int size = kind == QUANT_MXFP4 ? 1 : 2; /* of a scale */
    __m512 acc[QUANT_TILE];
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        acc[n] = _mm512_loadu_ps(out + n * QUANT_ROWS);
    for (; blocks > 0; blocks -= per, w += PAIR_SCALES + per * quants, x += per * stride) {
        _mm_prefetch((const char *)w + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int i = 0; i < per; i++)
            if (i == 0 || blocks > i)
                small_block(rows, kind, acc, w + size * QUANT_ROWS * i,
                            w + PAIR_SCALES + quants * i, x + i * stride);
    }
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        _mm512_storeu_ps(out + n * QUANT_ROWS, acc[n]);
}

/* The minima of a group of 256 columns: acc -= dmin sum m dsum. */
INLINE void super_minima(const int rows, float *out, const uint8_t *w, const struct quant_x *x,
                         int stride)
{
    __m512 m[QUANT_TILE], dmin = halves(w + 2 * QUANT_ROWS);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        m[n] = _mm512_setzero_ps();
    for (int j = 0; j < 8; j++, x += stride) {
        __m512 minimum = bytes(w + 64 + 32 * j + QUANT_ROWS);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++)
            m[n] = _mm512_fmadd_ps(minimum, _mm512_set1_ps(x[n].dsum), m[n]);
    }
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++) {
        float *acc = out + n * QUANT_ROWS;
        _mm512_storeu_ps(acc, _mm512_fnmadd_ps(dmin, m[n], _mm512_loadu_ps(acc)));
    }
}

INLINE void supers(const int rows, const int bits, float *out, const uint8_t *w,
                   const struct quant_x *x, int blocks, int stride)
{
    const int quants = bits == 5 ? Q5_QUANTS : Q4_QUANTS, ahead = bits == 5 ? AHEAD : SUPER_AHEAD;
    for (; blocks > 0; blocks -= 8, w += SUPER_SCALES + 8 * quants, x += 8 * stride) {
        __m512 a[QUANT_TILE], d = halves(w);
#pragma GCC unroll 5
        for (int i = 0; i < SUPER_SCALES; i += 64)
            _mm_prefetch((const char *)w + i + ahead, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++)
            a[n] = _mm512_setzero_ps();
        for (int j = 0; j < 8; j++) {
            const struct quant_x *xj = x + j * stride;
            __m512i sum[QUANT_TILE];
            __m512 scale = bytes(w + 64 + 32 * j);
            dot_super(rows, bits, sum, w + SUPER_SCALES + quants * j, xj);
#pragma GCC unroll 8
            for (int n = 0; n < rows; n++) /* the first multiplication is exact: < 2^24 */
                a[n] = _mm512_fmadd_ps(_mm512_mul_ps(_mm512_cvtepi32_ps(sum[n]), scale),
                                       _mm512_set1_ps(xj[n].d), a[n]);
        }
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++) {
            float *acc = out + n * QUANT_ROWS;
            _mm512_storeu_ps(acc, _mm512_fmadd_ps(d, a[n], _mm512_loadu_ps(acc)));
        }
        super_minima(rows, out, w, x, stride);
    }
}

/* A block of Q6_K: a += dx times the sum of s (q - 32) x, an exact integer below 2^24. */
INLINE void signed_block(const int rows, __m512 *a, const uint8_t *scale, const uint8_t *w,
                         const struct quant_x *x)
{
    __m512i sum[QUANT_TILE], high[QUANT_TILE];
    const __m512i pair =
        _mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)scale));
    const __m512i first = _mm512_srai_epi32(_mm512_slli_epi32(pair, 16), 16),
                  second = _mm512_srai_epi32(pair, 16), less = _mm512_slli_epi16(pair, 5);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        sum[n] = high[n] = _mm512_setzero_si512();
    dot_q6(rows, sum, high, w, x);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++) {
        __m512i v = _mm512_add_epi32(_mm512_mullo_epi32(sum[n], first),
                                     _mm512_mullo_epi32(high[n], second));
        v = _mm512_dpwssd_epi32(v, less, four((const int8_t *)(const void *)x[n].minus));
        a[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(x[n].d), a[n]);
    }
}

/* The two 16-bit scales of each row in a block of Q2_K (with minima above them) or Q3_K. */
INLINE __m512i pairs_of(const int bits, const uint8_t *scale)
{
    __m256i v = _mm256_loadu_si256((const __m256i *)(const void *)scale);
    return bits == 3 ? _mm512_cvtepi8_epi16(v) : _mm512_cvtepu8_epi16(v);
}

/* A block of Q2_K or Q3_K: a += dx times the sum of s q x.  Sums of 16 columns fit in 16 bits, so
 * that one instruction multiplies both by their scales. */
INLINE void low_block(const int rows, const int bits, __m512 *a, const uint8_t *scale,
                      const uint8_t *w, const struct quant_x *x)
{
    __m512i sum[QUANT_TILE], high[QUANT_TILE], s = pairs_of(bits, scale);
    const __m512i less = _mm512_slli_epi16(s, 2);
    if (bits == 2)
        s = _mm512_and_si512(s, _mm512_set1_epi16(15));
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        sum[n] = high[n] = _mm512_setzero_si512();
    dot_low(rows, bits, sum, high, w, x);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++) {
        __m512i both = _mm512_mask_blend_epi16(0xaaaaaaaa, sum[n], _mm512_slli_epi32(high[n], 16));
        __m512i v = _mm512_madd_epi16(both, s);
        if (bits == 3)
            v = _mm512_dpwssd_epi32(v, less, four((const int8_t *)(const void *)x[n].minus));
        a[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(x[n].d), a[n]);
    }
}

/* The minima of a group of 256 columns of Q2_K: acc -= dmin sum m dx. */
INLINE void low_minima(const int rows, float *out, const uint8_t *w, const struct quant_x *x,
                       int stride)
{
    __m512 m[QUANT_TILE], dmin = halves(w + 2 * QUANT_ROWS);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        m[n] = _mm512_setzero_ps();
    for (int j = 0; j < 8; j++, x += stride) {
        __m512i minimum = _mm512_srli_epi16(pairs_of(2, w + 64 + 32 * j), 4);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++) {
            __m512i v = _mm512_madd_epi16(minimum, four((const int8_t *)(const void *)x[n].minus));
            m[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(v), _mm512_set1_ps(x[n].d), m[n]);
        }
    }
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++) {
        float *acc = out + n * QUANT_ROWS;
        _mm512_storeu_ps(acc, _mm512_fmadd_ps(dmin, m[n], _mm512_loadu_ps(acc)));
    }
}

/* A block of IQ4_XS: a += dx times the sum of s value x, an exact integer below 2^24. */
INLINE void values_block(const int rows, __m512 *a, const uint8_t *scale, const uint8_t *w,
                         const struct quant_x *x)
{
    __m512i sum[QUANT_TILE];
    const __m512i s = _mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *)(const void *)scale));
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        sum[n] = _mm512_set1_epi32(x[n].start);
    dot_values(rows, SUPER_AHEAD, sum, sum, w, x, table(quant_iq4_value));
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        a[n] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_mullo_epi32(sum[n], s)),
                               _mm512_set1_ps(x[n].d), a[n]);
}

/* Groups of 256 columns with signed scales, or with pairs of scale and minimum. */
INLINE void signeds(const int rows, const enum quant_kind kind, const int quants, float *out,
                    const uint8_t *w, const struct quant_x *x, int blocks, int stride)
{
    const int is_iq4 = kind == QUANT_IQ4_XS, scales = is_iq4 ? IQ4_SCALES : SUPER_SCALES;
    const int ahead = is_iq4 ? SUPER_AHEAD : AHEAD;
    for (; blocks > 0; blocks -= 8, w += scales + 8 * quants, x += 8 * stride) {
        __m512 a[QUANT_TILE], d = halves(w);
#pragma GCC unroll 5
        for (int i = 0; i < scales; i += 64)
            _mm_prefetch((const char *)w + i + ahead, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++)
            a[n] = _mm512_setzero_ps();
        for (int j = 0; j < 8; j++) {
            const uint8_t *scale = w + 64 + (is_iq4 ? 16 : 32) * j, *q = w + scales + quants * j;
            if (kind == QUANT_Q6_K)
                signed_block(rows, a, scale, q, x + j * stride);
            else if (is_iq4)
                values_block(rows, a, scale, q, x + j * stride);
            else
                low_block(rows, kind == QUANT_Q3_K ? 3 : 2, a, scale, q, x + j * stride);
        }
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++) {
            float *acc = out + n * QUANT_ROWS;
            _mm512_storeu_ps(acc, _mm512_fmadd_ps(d, a[n], _mm512_loadu_ps(acc)));
        }
        if (kind == QUANT_Q2_K)
            low_minima(rows, out, w, x, stride);
    }
}

/* Kernels for 1, 2, 3, 4 and 8 rows, so that the sums are in registers; 5, 6 and 7 are two calls, the
 * second of which finds the panel in the cache. */
#define PANEL(name, rows, call, ...)                                                               \
    KERNEL static void name##_##rows(float *acc, const uint8_t *w, const struct quant_x *x, int b, \
                                     int stride)                                                   \
    {                                                                                              \
        call(rows, __VA_ARGS__, acc, w, x, b, stride);                                             \
    }
#define KIND(name, call, ...)                                                                      \
    PANEL(name, 1, call, __VA_ARGS__)                                                              \
    PANEL(name, 2, call, __VA_ARGS__)                                                              \
    PANEL(name, 3, call, __VA_ARGS__)                                                              \
    PANEL(name, 4, call, __VA_ARGS__)                                                              \
    PANEL(name, 8, call, __VA_ARGS__)                                                              \
    static void panel_##name(float *acc, const uint8_t *w, const struct quant_x *x, int blocks,    \
                             int rows)                                                             \
    {                                                                                              \
        static panel_rows *const by_rows[4] = {name##_1, name##_2, name##_3, name##_4};            \
        if (rows == QUANT_TILE) {                                                                  \
            name##_8(acc, w, x, blocks, rows);                                                     \
            return;                                                                                \
        }                                                                                          \
        int n = rows < 4 ? rows : 4;                                                               \
        by_rows[n - 1](acc, w, x, blocks, rows);                                                   \
        if (rows > n)                                                                              \
            by_rows[rows - n - 1](acc + n * QUANT_ROWS, w, x + n, blocks, rows);                   \
    }
typedef void panel_rows(float *acc, const uint8_t *w, const struct quant_x *x, int blocks,
                        int stride);

KIND(q8_0, smalls, QUANT_Q8_0, 2, Q8_QUANTS)
KIND(q4_0, smalls, QUANT_Q4_0, 2, Q4_QUANTS)
KIND(q4_1, smalls, QUANT_Q4_1, 1, Q4_QUANTS)
KIND(q5_0, smalls, QUANT_Q5_0, 2, Q5_QUANTS)
KIND(q5_1, smalls, QUANT_Q5_1, 1, Q5_QUANTS)
KIND(iq4_nl, smalls, QUANT_IQ4_NL, 2, Q4_QUANTS)
KIND(mxfp4, smalls, QUANT_MXFP4, 4, Q4_QUANTS)
KIND(q4_k, supers, 4)
KIND(q5_k, supers, 5)
KIND(q6_k, signeds, QUANT_Q6_K, Q6_QUANTS)
KIND(q2_k, signeds, QUANT_Q2_K, Q2_QUANTS)
KIND(q3_k, signeds, QUANT_Q3_K, Q3_QUANTS)
KIND(iq4_xs, signeds, QUANT_IQ4_XS, Q4_QUANTS)

static int available(void)
{
    return cpu_allows(CPU_AVX512) && quant_avx2.available() && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vnni");
}

const struct quant_kernels quant_vnni = {
    .name = "avx512 vnni",
    .available = available,
    .round = quant_round_avx2,
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
