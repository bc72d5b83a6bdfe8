/* Measures this CPU's peak arithmetic and memory rates, the limits that speeds are compared
 * with. */
#ifndef DS_ENGINE_PEAK_H
#define DS_ENGINE_PEAK_H

#include <stddef.h>

enum peak_unit {
    PEAK_FP32, /* fused multiply-adds of the widest vectors */
    PEAK_BF16, /* the fastest bf16 multiply-adds: AMX, else AVX512-BF16, else the fp32 ones */
    PEAK_INT8, /* AMX, VNNI, else AVX2 */
    PEAK_UNITS
};
extern const char *const peak_name[PEAK_UNITS]; /* "fp32", "bf16", "int8" */

/* GFLOP/s (GOP/s) of all threads of the pool over about `seconds`; DEPTHSCOPE_CPU's cap holds. */
double peak_gflops(enum peak_unit unit, double seconds);
/* Name of the instructions used: "avx512 fma", "amx bf16". */
const char *peak_instruction(enum peak_unit unit);
/* GB/s of reading `bytes` at p in order, once, by all threads. */
double peak_read_gbs(const void *p, size_t bytes);

#endif
