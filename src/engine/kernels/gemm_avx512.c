/* fp32 matrix multiplication for AVX-512. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include "gemm_avx512.h"

#define KERNEL __attribute__((target("avx512f,avx2,fma")))
#define STEP 1
#define UNITS8(p) _mm256_loadu_ps(p)
#define UNIT(x, y) (x)
#define UNITS_PART(lanes, p, q) ((void)(q), LOAD_PART(lanes, p))
#define STEP_SUM(a, b, c) _mm512_fmadd_ps(a, b, c)
#define NARROW gemm_avx512_narrow
#define DIRECT 0
#define PROVIDER gemm_avx512
#define NAME "avx512"
#define FORMAT GEMM_FP32
#define AVAILABLE                                                                                  \
    cpu_allows(CPU_AVX512) && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma")
#include "gemm_tmpl.h"
#endif
