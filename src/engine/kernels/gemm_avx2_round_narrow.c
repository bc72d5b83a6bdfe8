/* bf16 matrix multiplication for AVX2 with op(B) stored as bfloat16: the rounded values in half the
 * memory. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include <immintrin.h>

#include "gemm_avx2.h"
#include "gemm_round.h"

#define STEP 1
#define UNITS8(p) round8(_mm256_loadu_ps(p))
#define UNIT(x, y) float_of_bf16(bf16_of(x))
#define UNITS_PART(lanes, p, q) ((void)(q), round8(LOAD_PART(lanes, p)))
#define STEP_SUM(a, b, c) _mm256_fmadd_ps(a, b, c)
#define BUNIT uint16_t
#define LOADB(p) WIDEN(p)
#define DIRECT 0
#define PROVIDER gemm_avx2_round_narrow
#define NAME "avx2-round-narrow"
#define FORMAT GEMM_BF16
#include "gemm_tmpl.h"
#endif
