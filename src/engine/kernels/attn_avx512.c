/* The inner loops of attention for AVX-512. */
#include "engine/attn_impl.h"

#ifdef ATTN_X86
#include <immintrin.h>

#include "engine/bf16.h"
#include "gemm_avx512.h"

#define KERNEL __attribute__((target("avx512f,avx2,fma")))
#define EXP_LEAST (-87.33F)
#define SUB(a, b) _mm512_sub_ps(a, b)
#define MIN(a, b) _mm512_min_ps(a, b)
#define MAX(a, b) _mm512_max_ps(a, b)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define POWER(t) ((VEC)_mm512_slli_epi32((__m512i)(t), 23))
#define FIRST(n, x, y) _mm512_mask_mov_ps(y, LANES_OF(n), x)
#define LOW(x) _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(x), 16))
#define HIGH(x)                                                                                    \
    _mm512_castsi512_ps(                                                                           \
        _mm512_and_si512(_mm512_castps_si512(x), _mm512_set1_epi32((int)0xffff0000U)))
#define WIDEN(p)                                                                                   \
    _mm512_castsi512_ps(_mm512_slli_epi32(                                                         \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
#define COLS 4

/* Pairs, fours, then 128-bit parts of rows four and eight apart. */
KERNEL static inline __attribute__((always_inline)) void transpose(__m512 v[16])
{
    __m512 t[16];
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; i += 4) {
        v[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        v[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        v[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        v[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_f32x4(v[i], v[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_f32x4(v[i + 8], v[i + 12], 0xdd);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 4; i++) {
        v[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
        v[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
        v[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
        v[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

#define NAME attn_avx512
#define AVAILABLE                                                                                  \
    cpu_allows(CPU_AVX512) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma")
#include "attn_tmpl.h"
#endif
