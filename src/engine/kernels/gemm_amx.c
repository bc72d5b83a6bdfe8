/* bf16 matrix multiplication on AMX tiles.  Every CPU with AMX has AVX512-BF16, which rounds while
 * packing. */
#include "engine/gemm_impl.h"

#ifdef GEMM_X86
#include <immintrin.h>

#include "gemm_amx.h"

#define KERNEL                                                                                     \
    __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl,avx512bf16,avx2,fma")))

#define LANES_OF(n) ((__mmask16)((1U << (n)) - 1U))

/* Rows of pairs, two floats rounded to each 32-bit lane; rows from `count` on are zero. */
KERNEL static inline void rows_along(__m512i *r, const struct operand *x, int first, int count,
                                     int k, int K)
{
    __mmask16 low = LANES_OF(K < 16 ? K : 16), high = LANES_OF(K < 16 ? 0 : K - 16);
    for (int i = 0; i < 16; i++) {
        if (i >= count) {
            r[i] = _mm512_setzero_si512();
            continue;
        }
        const float *p = operand_row(x, first + i) + k, *q = K > 16 ? p + 16 : p;
        r[i] = (__m512i)_mm512_cvtne2ps_pbh(_mm512_maskz_loadu_ps(high, q),
                                            _mm512_maskz_loadu_ps(low, p));
    }
}

/* Row i: for each column from `first` on, the pair of stored rows k + 2 i and k + 2 i + 1. */
KERNEL static inline void rows_across(__m512i *r, const struct operand *x, int first, int count,
                                      int k, int K)
{
    const __m512i zip = _mm512_or_si512(
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0),
        _mm512_slli_epi32(
            _mm512_set_epi32(31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16), 16));
    __mmask16 lanes = LANES_OF(count);
    for (int i = 0; i < 16; i++) {
        __m512 even = _mm512_setzero_ps(), odd = even;
        if (2 * i < K)
            even = _mm512_maskz_loadu_ps(lanes, operand_row(x, k + 2 * i) + first);
        if (2 * i + 1 < K)
            odd = _mm512_maskz_loadu_ps(lanes, operand_row(x, k + 2 * i + 1) + first);
        r[i] = _mm512_permutexvar_epi16(zip, (__m512i)_mm512_cvtne2ps_pbh(odd, even));
    }
}

/* Transposes sixteen rows of sixteen pairs: within quarters of four lanes, then the quarters. */
KERNEL static inline void transpose16(__m512i *r)
{
    __m512i t[16], u[16];
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_epi32(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_epi32(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) {
        u[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
        u[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
        u[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
        u[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
    }
    for (int i = 0; i < 4; i++) {
        t[i] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0x88);
        t[i + 4] = _mm512_shuffle_i32x4(u[i], u[i + 4], 0xdd);
        t[i + 8] = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0x88);
        t[i + 12] = _mm512_shuffle_i32x4(u[i + 8], u[i + 12], 0xdd);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0x88);
        r[i + 4] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0x88);
        r[i + 8] = _mm512_shuffle_i32x4(t[i], t[i + 8], 0xdd);
        r[i + 12] = _mm512_shuffle_i32x4(t[i + 4], t[i + 12], 0xdd);
    }
}

KERNEL static void pack_tile(char *tile, const struct operand *x, int along, int turn, int first,
                             int count, int k, int K)
{
    __m512i *r = (__m512i *)(void *)tile;
    if (along)
        rows_along(r, x, first, count, k, K);
    else
        rows_across(r, x, first, count, k, K);
    if (along == turn)
        transpose16(r);
}

KERNEL static inline void row_out(float *c, const float *sum, const float *add, int cols,
                                  float alpha)
{
    __m512 by = _mm512_set1_ps(alpha), x = _mm512_load_ps(sum), y = _mm512_load_ps(sum + 16);
    __mmask16 left = LANES_OF(cols < 16 ? cols : 16), right = LANES_OF(cols < 16 ? 0 : cols - 16);
    x = add ? _mm512_fmadd_ps(x, by, _mm512_maskz_loadu_ps(left, add)) : _mm512_mul_ps(x, by);
    _mm512_mask_storeu_ps(c, left, x);
    if (cols <= 16)
        return;
    y = add ? _mm512_fmadd_ps(y, by, _mm512_maskz_loadu_ps(right, add + 16)) : _mm512_mul_ps(y, by);
    _mm512_mask_storeu_ps(c + 16, right, y);
}

#define TILE_CONFIG(config) _tile_loadconfig(config)
#define TILE_RELEASE() _tile_release()
#define TILE_ZERO(t) _tile_zero(t)
#define TILE_LOAD(t, p) _tile_loadd(t, p, 64)
#define TILE_STORE(t, p, stride) _tile_stored(t, p, stride)
#define TILE_DP(c, a, b) _tile_dpbf16ps(c, a, b)
#define PREFETCH(p) _mm_prefetch(p, _MM_HINT_T1)
#define PROVIDER gemm_amx
#define NAME "amx"
/* The CPU's own report comes first, so that tools that emulate a CPU can answer it. */
#define AVAILABLE                                                                                  \
    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&                    \
        cpu_has("avx512_bf16") && cpu_has_amx()
#include "gemm_amx_tmpl.h"
#endif
