/* The inner loops of attention for AVX2. */
#include "engine/attn_impl.h"

#ifdef ATTN_X86
#include <immintrin.h>

#include "engine/bf16.h"
#include "gemm_avx2.h"

#define EXP_LEAST (-87.33F)
#define SUB(a, b) _mm256_sub_ps(a, b)
#define MIN(a, b) _mm256_min_ps(a, b)
#define MAX(a, b) _mm256_max_ps(a, b)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define POWER(t) ((VEC)_mm256_slli_epi32((__m256i)(t), 23))
#define FIRST(n, x, y) _mm256_blendv_ps(y, x, _mm256_castsi256_ps(LANES_OF(n)))
#define LOW(x) _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(x), 16))
#define HIGH(x)                                                                                    \
    _mm256_castsi256_ps(                                                                           \
        _mm256_and_si256(_mm256_castps_si256(x), _mm256_set1_epi32((int)0xffff0000U)))
#define COLS 2

KERNEL static inline __attribute__((always_inline)) void transpose(__m256 v[8])
{
    __m256 t[8];
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i += 4) {
        v[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x20);
        t[i + 4] = _mm256_permute2f128_ps(v[i], v[i + 4], 0x31);
    }
#pragma GCC unroll 8
    for (int i = 0; i < 8; i++)
        v[i] = t[i];
}

#define NAME attn_avx2
#include "attn_tmpl.h"
#endif
