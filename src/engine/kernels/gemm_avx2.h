/* Shared by matrix multiplication for AVX2: 6 x 16 sums in 12 of the 16 registers. */
#ifndef DS_ENGINE_KERNELS_GEMM_AVX2_H
#define DS_ENGINE_KERNELS_GEMM_AVX2_H

#define KERNEL __attribute__((target("avx2,fma")))
#define MR 6
#define STRIPS 43 /* 256 rows: half of an L2 cache of 512 KiB */
#define UNROLL_K _Pragma("GCC unroll 4")
#define UNROLL_ROWS _Pragma("GCC unroll 6")
#define PANEL_AHEAD 1
#define W 8
#define VEC __m256
#define LANES __m256i
#define LANES_OF(n) _mm256_loadu_si256((const __m256i *)(const void *)(lane_on + 8 - (n)))
#define ZERO _mm256_setzero_ps()
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, x) _mm256_storeu_ps(p, x)
#define LOAD_PART(lanes, p) _mm256_maskload_ps(p, lanes)
#define STORE_PART(lanes, p, x) _mm256_maskstore_ps(p, lanes, x)
#define WIDEN(p) /* 8 bfloat16 */                                                                  \
    _mm256_castsi256_ps(_mm256_slli_epi32(                                                         \
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)(p))), 16))
#define SET1(x) _mm256_set1_ps(x)
#define MUL(a, b) _mm256_mul_ps(a, b)
#define ADD(a, b) _mm256_add_ps(a, b)
#define AVAILABLE                                                                                  \
    cpu_allows(CPU_AVX2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")

static const int lane_on[16] = {-1, -1, -1, -1, -1, -1, -1, -1};

#endif
