/* Shared by matrix multiplication for AVX-512: 14 x 32 sums in 28 of the 32 registers. */
#ifndef DS_ENGINE_KERNELS_GEMM_AVX512_H
#define DS_ENGINE_KERNELS_GEMM_AVX512_H

#define MR 14
#define STRIPS 12
#define UNROLL_K
#define UNROLL_ROWS
#define PANEL_AHEAD 0
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
#define MUL(a, b) _mm512_mul_ps(a, b)
#define ADD(a, b) _mm512_add_ps(a, b)

#endif
