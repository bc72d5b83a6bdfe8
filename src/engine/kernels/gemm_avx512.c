/* The product for AVX-512: 14 x 32 sums in 28 of the 32 registers. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#define KERNEL __attribute__((target("avx512f,avx2,fma")))
#define MR 14
#define W 16
#define VEC __m512
#define LANES __mmask16
#define LANES_OF(n) ((__mmask16)((1U << (n)) - 1U))
#define ZERO _mm512_setzero_ps()
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, x) _mm512_storeu_ps(p, x)
#define LOAD_PART(lanes, p) _mm512_maskz_loadu_ps(lanes, p)
#define STORE_PART(lanes, p, x) _mm512_mask_storeu_ps(p, lanes, x)
#define SET1(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
#define MUL(a, b) _mm512_mul_ps(a, b)
#define ADD(a, b) _mm512_add_ps(a, b)
#include "gemm_tmpl.h"

static int available(void)
{
    return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("fma");
}

const struct gemm_provider gemm_avx512 = {
    .name = "avx512", .available = available, .tile = tile, .gemv = gemv};
#endif
