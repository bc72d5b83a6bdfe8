/* bf16 matrix multiplication for AVX512-BF16: a unit is a pair of bfloat16, two multiply-adds a
 * lane. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include <immintrin.h>

#include "gemm_avx512.h"

#define KERNEL __attribute__((target("avx512f,avx512bf16,avx512vl,avx2,fma")))

/* Sixteen floats to eight pairs. */
KERNEL static inline __m256 pairs8(const float *p)
{
    return (__m256)_mm512_cvtneps_pbh(_mm512_loadu_ps(p));
}

static inline float pair(float x, float y)
{
    uint32_t u = bf16_of(x) | (uint32_t)bf16_of(y) << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

/* Lane n: the pair (p[n], q[n]). */
KERNEL static inline __m512 pairs_of_rows(__mmask16 lanes, const float *p, const float *q)
{
    __m256i low = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, p));
    __m256i high = (__m256i)_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(lanes, q));
    return (__m512)_mm512_or_si512(_mm512_cvtepu16_epi32(low),
                                   _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

#define STEP 2
#define UNITS8(p) pairs8(p)
#define UNIT(x, y) pair(x, y)
#define UNITS_PART(lanes, p, q) pairs_of_rows(lanes, p, q)
#define STEP_SUM(a, b, c) _mm512_dpbf16_ps(c, (__m512bh)(a), (__m512bh)(b))
#define DIRECT 0
#define PROVIDER gemm_avx512bf16
#define NAME "avx512bf16"
#define FORMAT GEMM_BF16
#define AVAILABLE                                                                                  \
    cpu_allows(CPU_AVX512) && cpu_has("avx512_bf16") && __builtin_cpu_supports("avx512vl")
#include "gemm_tmpl.h"
#endif
