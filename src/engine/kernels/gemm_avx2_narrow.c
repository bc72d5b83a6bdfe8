/* fp32 matrix multiplication for AVX2 with op(B) stored as bfloat16: the same values in half the
 * memory. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include <immintrin.h>

#include "gemm_avx2.h"

#define STEP 1
#define UNITS8(p) _mm256_loadu_ps(p)
#define UNIT(x, y) (x)
#define UNITS_PART(lanes, p, q) ((void)(q), LOAD_PART(lanes, p))
#define STEP_SUM(a, b, c) _mm256_fmadd_ps(a, b, c)
#define BUNIT uint16_t
#define LOADB(p) WIDEN(p)
#define DIRECT 0
#define PROVIDER gemm_avx2_narrow
#define NAME "avx2-narrow"
#define FORMAT GEMM_FP32
#include "gemm_tmpl.h"
#endif
