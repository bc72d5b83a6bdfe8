/* The element loops of engine/vec.h for AVX-512. */
#include "engine/vec.h"

#ifdef VEC_X86
#include <string.h>

#include "base/cpu.h"

#define VEC_SET vec_avx512
#define VEC_NAME "avx512"

static int available(void)
{
    return cpu_allows(CPU_AVX512) && __builtin_cpu_supports("avx512f") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma");
}

/* After third-party headers: everything below is compiled for this target, including vmath.h. */
#if defined(__clang__)
#pragma clang attribute push(                                                                      \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,prefer-vector-width=512")
/* Memory-bound loops use half vectors: Zen 4 takes up to a third longer with full ones (addition
 * and RMSNorm 0.34 against 0.26 ns per element, rope 0.17 against 0.11), and no CPU needs them. */
#define VEC_STREAM _Pragma("GCC target(\"prefer-vector-width=256\")")
#endif
#define V_HAS_FMA 1
#include "vec_tmpl.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
