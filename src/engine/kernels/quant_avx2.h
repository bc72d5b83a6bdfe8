/* Shared by quantised weights for AVX2. */
#ifndef DS_ENGINE_KERNELS_QUANT_AVX2_H
#define DS_ENGINE_KERNELS_QUANT_AVX2_H

#include "engine/quant_impl.h"

#ifdef QUANT_X86
#include <immintrin.h>

#define KERNEL __attribute__((target("avx2,fma,f16c")))
#define INLINE KERNEL static inline __attribute__((always_inline))

/* Eight rows at a time: half 0 or 1 of the sixteen. */
INLINE __m256i load(const void *p)
{
    return _mm256_loadu_si256(p);
}

enum { AHEAD = 2048 }; /* bytes prefetched before they are needed */

INLINE void prefetch(const uint8_t *p, int bytes)
{
    for (int i = 0; i < bytes; i += 64)
        _mm_prefetch((const char *)p + i + AHEAD, _MM_HINT_T0);
}

INLINE __m256i four(const int8_t *x)
{
    int32_t v;
    __builtin_memcpy(&v, x, sizeof v);
    return _mm256_set1_epi32(v);
}

INLINE __m256i minus_of(const struct quant_x *x)
{
    return four((const int8_t *)(const void *)x->minus);
}

INLINE __m128i load_half(const void *p)
{
    return _mm_loadu_si128(p);
}

INLINE __m256 half8(const uint8_t *p)
{
    return _mm256_cvtph_ps(load_half(p));
}

INLINE __m256i byte8(const uint8_t *p)
{
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64((const __m128i *)(const void *)p));
}

INLINE __m256i table(const int8_t *value)
{
    return _mm256_broadcastsi128_si256(load_half(value));
}

/* 2^(e - 128); below the smallest normal number a shifted bit. */
INLINE __m256 e8m0(const uint8_t *p)
{
    __m256i e = byte8(p), normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    __m256i few = _mm256_min_epi32(e, _mm256_set1_epi32(2));
    __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), few);
    return _mm256_castsi256_ps(_mm256_max_epi32(normal, small));
}

/* Bit `bit` of each byte moved to bit `to`, with its neighbours. */
INLINE __m256i moved(__m256i v, const int bit, const int to)
{
    return bit < to ? _mm256_slli_epi16(v, to - bit) : _mm256_srli_epi16(v, bit - to);
}

/* Both scales of each row as they are multiplied with pairs of products. */
INLINE void split_pairs(__m256i s[2], __m256i pair)
{
    const __m256i lower_16 = _mm256_set1_epi32(0xffff);
    s[0] = _mm256_or_si256(_mm256_and_si256(pair, lower_16), _mm256_slli_epi32(pair, 16));
    s[1] = _mm256_or_si256(_mm256_andnot_si256(lower_16, pair), _mm256_srli_epi32(pair, 16));
}

extern quant_rows_fn *const quant_rows_avx2[QUANT_KINDS];
#endif
#endif
