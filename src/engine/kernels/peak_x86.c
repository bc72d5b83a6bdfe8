/* Peak loops for x86-64: the widest multiply-adds on registers, and reading memory. */
#include "engine/peak_impl.h"

#ifdef PEAK_X86

#include <immintrin.h>

#include "base/cpu.h"

/* Latency times issue rate requires 8 to 12 chains, with different initial values, as a compiler
 * merges equal ones. */
#define TWELVE(do_, ...)                                                                           \
    do_(0, __VA_ARGS__) do_(1, __VA_ARGS__) do_(2, __VA_ARGS__) do_(3, __VA_ARGS__)                \
        do_(4, __VA_ARGS__) do_(5, __VA_ARGS__) do_(6, __VA_ARGS__) do_(7, __VA_ARGS__)            \
            do_(8, __VA_ARGS__) do_(9, __VA_ARGS__) do_(10, __VA_ARGS__) do_(11, __VA_ARGS__)
#define DECLARE(i, type, set1) type x##i = set1(i);
#define STEP(i, op) x##i = op(x##i);
#define SUM(i, add) x0 = add(x0, x##i);
enum { CHAINS = 12 };

/* ---- fp32 ---- */

static int has_avx512(void)
{
    return __builtin_cpu_supports("avx512f") && cpu_allows(CPU_AVX512);
}

static int has_avx2(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && cpu_allows(CPU_AVX2);
}

/* x = 0.999 x + 0.001 stays near 1: no denormals, no infinities. */
__attribute__((target("avx512f"))) static double fma_avx512(long steps)
{
    const __m512 a = _mm512_set1_ps(0.999F), b = _mm512_set1_ps(0.001F);
    TWELVE(DECLARE, __m512, _mm512_set1_ps)
#define FMA(x) _mm512_fmadd_ps(x, a, b)
    for (long k = 0; k < steps; k++) {
        TWELVE(STEP, FMA)
    }
#undef FMA
    TWELVE(SUM, _mm512_add_ps)
    return (double)_mm512_reduce_add_ps(x0);
}

__attribute__((target("avx2,fma"))) static double fma_avx2(long steps)
{
    const __m256 a = _mm256_set1_ps(0.999F), b = _mm256_set1_ps(0.001F);
    TWELVE(DECLARE, __m256, _mm256_set1_ps)
#define FMA(x) _mm256_fmadd_ps(x, a, b)
    for (long k = 0; k < steps; k++) {
        TWELVE(STEP, FMA)
    }
#undef FMA
    TWELVE(SUM, _mm256_add_ps)
    return (double)_mm256_cvtss_f32(x0);
}

/* ---- bf16 and int8 in vectors ---- */

static int has_bf16(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512bf16");
}

static int has_vnni(void)
{
    return has_avx512() && __builtin_cpu_supports("avx512vnni");
}

static int has_vnni256(void)
{
    return has_avx2() && cpu_has("avx_vnni");
}

__attribute__((target("avx512f,avx512bf16"))) static double dot_bf16(long steps)
{
    const __m512 one = _mm512_set1_ps(1);
    const __m512bh a = _mm512_cvtne2ps_pbh(one, one), b = a;
    TWELVE(DECLARE, __m512, _mm512_set1_ps)
#define DOT(x) _mm512_dpbf16_ps(x, a, b)
    for (long k = 0; k < steps; k++) {
        TWELVE(STEP, DOT)
    }
#undef DOT
    TWELVE(SUM, _mm512_add_ps)
    return (double)_mm512_reduce_add_ps(x0);
}

__attribute__((target("avx512f,avx512vnni"))) static double dot_vnni(long steps)
{
    const __m512i a = _mm512_set1_epi32(0x01020304), b = _mm512_set1_epi32(0x01ff01ff);
    TWELVE(DECLARE, __m512i, _mm512_set1_epi32)
#define DOT(x) _mm512_dpbusd_epi32(x, a, b)
    for (long k = 0; k < steps; k++) {
        TWELVE(STEP, DOT)
    }
#undef DOT
    TWELVE(SUM, _mm512_add_epi32)
    return _mm512_reduce_add_epi32(x0);
}

__attribute__((target("avx2,avxvnni"))) static double dot_vnni256(long steps)
{
    const __m256i a = _mm256_set1_epi32(0x01020304), b = _mm256_set1_epi32(0x01ff01ff);
    TWELVE(DECLARE, __m256i, _mm256_set1_epi32)
#define DOT(x) _mm256_dpbusd_avx_epi32(x, a, b)
    for (long k = 0; k < steps; k++) {
        TWELVE(STEP, DOT)
    }
#undef DOT
    TWELVE(SUM, _mm256_add_epi32)
    return _mm_cvtsi128_si32(_mm256_castsi256_si128(x0));
}

/* Three instructions per multiply-add.  The operands are constant, which the compiler must not
 * know; two times three different ones give six chains. */
__attribute__((target("avx2"))) static double dot_avx2(long steps)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i a0 = _mm256_set1_epi8(1), a1 = _mm256_set1_epi8(2), b0 = _mm256_set1_epi8(1),
            b1 = _mm256_set1_epi8(-2), b2 = _mm256_set1_epi8(3);
    __m256i x0 = _mm256_setzero_si256(), x1 = x0, x2 = x0, x3 = x0, x4 = x0, x5 = x0;
#define DOT(x, a, b) x = _mm256_add_epi32(x, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    for (long k = 0; k < steps; k++) {
        __asm__ volatile("" : "+x"(a0), "+x"(a1), "+x"(b0), "+x"(b1), "+x"(b2));
        DOT(x0, a0, b0)
        DOT(x1, a0, b1)
        DOT(x2, a0, b2)
        DOT(x3, a1, b0)
        DOT(x4, a1, b1)
        DOT(x5, a1, b2)
    }
#undef DOT
    x0 = _mm256_add_epi32(_mm256_add_epi32(x0, x1), _mm256_add_epi32(x2, x3));
    x0 = _mm256_add_epi32(x0, _mm256_add_epi32(x4, x5));
    return _mm_cvtsi128_si32(_mm256_castsi256_si128(x0));
}

/* ---- AMX: four sums of two by two tiles, as in a GEMM ---- */

struct tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes[16];
    uint8_t rows[16];
};
enum { TILE_BYTES = 1024, TILES = 8 };

/* All tiles 16 rows of 64 bytes, filled from one kilobyte of `fill`. */
__attribute__((target("amx-tile"))) static void tiles_begin(unsigned char fill)
{
    struct tile_config c = {.palette = 1};
    unsigned char data[TILE_BYTES] __attribute__((aligned(64)));
    for (int i = 0; i < TILES; i++) {
        c.bytes[i] = 64;
        c.rows[i] = 16;
    }
    for (int i = 0; i < TILE_BYTES; i++)
        data[i] = fill;
    /* Compilers know that the configuration is read in its first bytes only, and the data not at
     * all. */
    __asm__ volatile("" : : "r"(&c), "r"(data) : "memory");
    _tile_loadconfig(&c);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, data, 64);
    _tile_loadd(5, data, 64);
    _tile_loadd(6, data, 64);
    _tile_loadd(7, data, 64);
}

__attribute__((target("amx-tile"))) static double tiles_end(void)
{
    int32_t out[TILE_BYTES / 4] __attribute__((aligned(64))) = {0};
    _tile_stored(0, out, 64);
    _tile_release();
    return out[0];
}

__attribute__((target("amx-tile,amx-bf16"))) static double amx_bf16(long steps)
{
    tiles_begin(0x3f); /* 0x3f3f is 0.75 */
    for (long k = 0; k < steps; k++) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
    }
    return tiles_end();
}

__attribute__((target("amx-tile,amx-int8"))) static double amx_int8(long steps)
{
    tiles_begin(3);
    for (long k = 0; k < steps; k++) {
        _tile_dpbusd(0, 4, 6);
        _tile_dpbusd(1, 4, 7);
        _tile_dpbusd(2, 5, 6);
        _tile_dpbusd(3, 5, 7);
    }
    return tiles_end();
}

static int has_amx_int8(void)
{
    return cpu_has_amx() && cpu_has("amx_int8");
}

/* ---- reading ---- */

/* Four lines at a time; prefetches a page ahead, which the hardware prefetcher does not. */
__attribute__((target("avx2"))) static uint64_t read_avx2(const unsigned char *p, size_t lines)
{
    enum { LINE = 64, AHEAD = 4096 / LINE };
    __m256i x[8];
    for (int k = 0; k < 8; k++)
        x[k] = _mm256_setzero_si256();
    size_t i = 0;
    for (; i + 4 <= lines; i += 4) {
        if (i + AHEAD + 4 <= lines)
            for (int k = 0; k < 4; k++)
                _mm_prefetch((const char *)p + (i + AHEAD + (size_t)k) * LINE, _MM_HINT_T0);
        for (int k = 0; k < 8; k++)
            x[k] = _mm256_xor_si256(
                x[k], _mm256_loadu_si256((const void *)(p + i * LINE + (size_t)k * 32)));
    }
    for (; i < lines; i++)
        for (int k = 0; k < 2; k++)
            x[k] = _mm256_xor_si256(
                x[k], _mm256_loadu_si256((const void *)(p + i * LINE + (size_t)k * 32)));
    for (int k = 1; k < 8; k++)
        x[0] = _mm256_xor_si256(x[0], x[k]);
    return (uint64_t)_mm256_extract_epi64(x[0], 0) ^ (uint64_t)_mm256_extract_epi64(x[0], 1) ^
           (uint64_t)_mm256_extract_epi64(x[0], 2) ^ (uint64_t)_mm256_extract_epi64(x[0], 3);
}

/* ---- tables ---- */

static const struct peak_kernel kernels[] = {
    // clang-format off
    {PEAK_FP32, "avx512 fma",        2.0 * 16 * CHAINS, has_avx512,   fma_avx512},
    {PEAK_FP32, "avx2 fma",          2.0 * 8 * CHAINS,  has_avx2,     fma_avx2},
    {PEAK_BF16, "amx bf16",          4 * 2.0 * 16 * 16 * 32, cpu_has_amx,  amx_bf16},
    {PEAK_BF16, "avx512 bf16 dot",   2.0 * 32 * CHAINS, has_bf16,     dot_bf16},
    {PEAK_INT8, "amx int8",          4 * 2.0 * 16 * 16 * 64, has_amx_int8, amx_int8},
    {PEAK_INT8, "avx512 vnni",       2.0 * 64 * CHAINS, has_vnni,     dot_vnni},
    {PEAK_INT8, "avx vnni",          2.0 * 32 * CHAINS, has_vnni256,  dot_vnni256},
    {PEAK_INT8, "avx2 maddubs",      2.0 * 32 * 6,      has_avx2,     dot_avx2},
    // clang-format on
};
const struct peak_kernel *const peak_x86_kernels[] = {
    &kernels[0], &kernels[1], &kernels[2], &kernels[3], &kernels[4],
    &kernels[5], &kernels[6], &kernels[7], NULL,
};

const struct peak_reader peak_x86_reader = {has_avx2, read_avx2};

#endif
