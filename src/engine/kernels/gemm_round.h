/* Rounds eight floats to bfloat16 on CPUs without an instruction for it. */
#ifndef DS_ENGINE_KERNELS_GEMM_ROUND_H
#define DS_ENGINE_KERNELS_GEMM_ROUND_H
#ifdef __x86_64__

#include <immintrin.h>

__attribute__((target("avx2"))) static inline __m256 round8(__m256 x)
{
    __m256i u = (__m256i)x, high = _mm256_set1_epi32(-65536);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i quiet = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    r = (__m256i)_mm256_blendv_ps((__m256)r, (__m256)quiet, _mm256_cmp_ps(x, x, _CMP_UNORD_Q));
    return (__m256)_mm256_and_si256(r, high);
}

#endif
#endif
