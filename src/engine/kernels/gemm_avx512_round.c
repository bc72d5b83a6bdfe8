/* bf16 matrix multiplication for AVX-512 without bf16 instructions: operands are rounded while
 * packing, the rest is as in fp32. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include <immintrin.h>

#include "gemm_avx512.h"
#include "gemm_round.h"

#define KERNEL __attribute__((target("avx512f,avx2,fma")))

KERNEL static inline __m512 round16(__m512 x)
{
    __m512i u = (__m512i)x, high = _mm512_set1_epi32(-65536);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    __m512i quiet = _mm512_or_si512(u, _mm512_set1_epi32(0x400000));
    r = _mm512_mask_mov_epi32(r, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), quiet);
    return (__m512)_mm512_and_si512(r, high);
}

#define STEP 1
#define UNITS8(p) round8(_mm256_loadu_ps(p))
#define UNIT(x, y) float_of_bf16(bf16_of(x))
#define UNITS_PART(lanes, p, q) ((void)(q), round16(LOAD_PART(lanes, p)))
#define STEP_SUM(a, b, c) _mm512_fmadd_ps(a, b, c)
#define DIRECT 0
#define PROVIDER gemm_avx512_round
#define NAME "avx512-round"
#define FORMAT GEMM_BF16
#define AVAILABLE                                                                                  \
    cpu_allows(CPU_AVX512) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma")
#include "gemm_tmpl.h"
#endif
