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

/* One block of Q8_0 or Q4_0: acc += d dx sum. */
INLINE void pair_block(const int rows, const int bits, __m512 *acc, const uint8_t *scale,
                       const uint8_t *w, const struct quant_x *x)
{
    __m512i sum[QUANT_TILE];
    __m512 d = halves(scale);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        sum[n] = _mm512_set1_epi32(x[n].start);
    if (bits == 8)
        dot_q8(rows, sum, w, x);
    else
        dot_q4(rows, AHEAD, sum, sum, w, x);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        acc[n] = _mm512_fmadd_ps(_mm512_mul_ps(d, _mm512_set1_ps(x[n].d)),
                                 _mm512_cvtepi32_ps(sum[n]), acc[n]);
}

INLINE void pairs(const int rows, const int bits, float *out, const uint8_t *w,
                  const struct quant_x *x, int blocks)
{
    const int quants = bits == 8 ? Q8_QUANTS : Q4_QUANTS;
    __m512 acc[QUANT_TILE];
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        acc[n] = _mm512_loadu_ps(out + n * QUANT_ROWS);
    for (; blocks > 0; blocks -= 2, w += PAIR_SCALES + 2 * quants, x += 2 * rows) {
        _mm_prefetch((const char *)w + AHEAD, _MM_HINT_T0);
        pair_block(rows, bits, acc, w, w + PAIR_SCALES, x);
        if (blocks > 1)
            pair_block(rows, bits, acc, w + PAIR_SCALES / 2, w + PAIR_SCALES + quants, x + rows);
    }
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        _mm512_storeu_ps(out + n * QUANT_ROWS, acc[n]);
}

/* The minima of a group of 256 columns: acc -= dmin sum m dsum. */
INLINE void super_minima(const int rows, float *out, const uint8_t *w, const struct quant_x *x)
{
    __m512 m[QUANT_TILE], dmin = halves(w + 2 * QUANT_ROWS);
#pragma GCC unroll 8
    for (int n = 0; n < rows; n++)
        m[n] = _mm512_setzero_ps();
    for (int j = 0; j < 8; j++, x += rows) {
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
                   const struct quant_x *x, int blocks)
{
    const int quants = bits == 5 ? Q5_QUANTS : Q4_QUANTS, ahead = bits == 5 ? AHEAD : SUPER_AHEAD;
    for (; blocks > 0; blocks -= 8, w += SUPER_SCALES + 8 * quants, x += 8 * rows) {
        __m512 a[QUANT_TILE], d = halves(w);
#pragma GCC unroll 5
        for (int i = 0; i < SUPER_SCALES; i += 64)
            _mm_prefetch((const char *)w + i + ahead, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++)
            a[n] = _mm512_setzero_ps();
        for (int j = 0; j < 8; j++) {
            const struct quant_x *xj = x + j * rows;
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
        super_minima(rows, out, w, x);
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

INLINE void signeds(const int rows, float *out, const uint8_t *w, const struct quant_x *x,
                    int blocks)
{
    for (; blocks > 0; blocks -= 8, w += Q6_SUPER, x += 8 * rows) {
        __m512 a[QUANT_TILE], d = halves(w);
#pragma GCC unroll 5
        for (int i = 0; i < SUPER_SCALES; i += 64)
            _mm_prefetch((const char *)w + i + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++)
            a[n] = _mm512_setzero_ps();
        for (int j = 0; j < 8; j++)
            signed_block(rows, a, w + 64 + 32 * j, w + SUPER_SCALES + Q6_QUANTS * j, x + j * rows);
#pragma GCC unroll 8
        for (int n = 0; n < rows; n++) {
            float *acc = out + n * QUANT_ROWS;
            _mm512_storeu_ps(acc, _mm512_fmadd_ps(d, a[n], _mm512_loadu_ps(acc)));
        }
    }
}

/* One kernel per number of rows, so that the sums are in registers. */
#define PANEL(rows)                                                                                \
    KERNEL static void q8_0_##rows(float *acc, const uint8_t *w, const struct quant_x *x, int b)   \
    {                                                                                              \
        pairs(rows, 8, acc, w, x, b);                                                              \
    }                                                                                              \
    KERNEL static void q4_0_##rows(float *acc, const uint8_t *w, const struct quant_x *x, int b)   \
    {                                                                                              \
        pairs(rows, 4, acc, w, x, b);                                                              \
    }                                                                                              \
    KERNEL static void q4_k_##rows(float *acc, const uint8_t *w, const struct quant_x *x, int b)   \
    {                                                                                              \
        supers(rows, 4, acc, w, x, b);                                                             \
    }                                                                                              \
    KERNEL static void q5_k_##rows(float *acc, const uint8_t *w, const struct quant_x *x, int b)   \
    {                                                                                              \
        supers(rows, 5, acc, w, x, b);                                                             \
    }                                                                                              \
    KERNEL static void q6_k_##rows(float *acc, const uint8_t *w, const struct quant_x *x, int b)   \
    {                                                                                              \
        signeds(rows, acc, w, x, b);                                                               \
    }
PANEL(1)
PANEL(2)
PANEL(3)
PANEL(4)
PANEL(5)
PANEL(6)
PANEL(7)
PANEL(8)

#define ALL(name)                                                                                  \
    {                                                                                              \
        name##1, name##2, name##3, name##4, name##5, name##6, name##7, name##8                     \
    }
static void (*const by_rows[QUANT_KINDS][QUANT_TILE])(float *acc, const uint8_t *w,
                                                      const struct quant_x *x,
                                                      int blocks) = {[QUANT_Q8_0] = ALL(q8_0_),
                                                                     [QUANT_Q4_0] = ALL(q4_0_),
                                                                     [QUANT_Q4_K] = ALL(q4_k_),
                                                                     [QUANT_Q5_K] = ALL(q5_k_),
                                                                     [QUANT_Q6_K] = ALL(q6_k_)};

static void panel_q8_0(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    by_rows[QUANT_Q8_0][rows - 1](acc, w, x, blocks);
}

static void panel_q4_0(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    by_rows[QUANT_Q4_0][rows - 1](acc, w, x, blocks);
}

static void panel_q4_k(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    by_rows[QUANT_Q4_K][rows - 1](acc, w, x, blocks);
}

static void panel_q5_k(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    by_rows[QUANT_Q5_K][rows - 1](acc, w, x, blocks);
}

static void panel_q6_k(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    by_rows[QUANT_Q6_K][rows - 1](acc, w, x, blocks);
}

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
              [QUANT_Q6_K] = panel_q6_k},
};
#endif
