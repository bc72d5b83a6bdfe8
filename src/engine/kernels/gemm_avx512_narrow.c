/* fp32 matrix multiplication for AVX-512 with op(B) stored as bfloat16: the same values in half the
 * memory. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include <immintrin.h>

#include "gemm_avx512.h"

#define KERNEL __attribute__((target("avx512f,avx2,fma")))
#define STEP 1
#define UNITS8(p) _mm256_loadu_ps(p)
#define UNIT(x, y) (x)
#define UNITS_PART(lanes, p, q) ((void)(q), LOAD_PART(lanes, p))
#define STEP_SUM(a, b, c) _mm512_fmadd_ps(a, b, c)
#define BUNIT uint16_t
#define LOADB(p)                                                                                   \
    _mm512_castsi512_ps(_mm512_slli_epi32(                                                         \
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)(p))), 16))
#define DIRECT 0
#define PROVIDER gemm_avx512_narrow
#define NAME "avx512-narrow"
#define FORMAT GEMM_FP32
#define AVAILABLE                                                                                  \
    cpu_allows(CPU_AVX512) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma")
#include "gemm_tmpl.h"
#endif
