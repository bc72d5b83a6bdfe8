/* fp32 matrix multiplication for AVX2. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include "gemm_avx2.h"

#define STEP 1
#define UNITS8(p) _mm256_loadu_ps(p)
#define UNIT(x, y) (x)
#define UNITS_PART(lanes, p, q) ((void)(q), LOAD_PART(lanes, p))
#define STEP_SUM(a, b, c) _mm256_fmadd_ps(a, b, c)
#define NARROW gemm_avx2_narrow
#define DIRECT 128
#define PROVIDER gemm_avx2
#define NAME "avx2"
#define FORMAT GEMM_FP32
#include "gemm_tmpl.h"
#endif
