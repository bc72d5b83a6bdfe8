/* The element loops of engine/vec.h for AVX2. */
#include "engine/vec.h"

#ifdef VEC_X86
#include <string.h>

#include "base/cpu.h"

#define VEC_SET vec_avx2
#define VEC_NAME "avx2"

static int available(void)
{
    return cpu_allows(CPU_AVX2) && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
}

/* After third-party headers: everything below is compiled for this target, including vmath.h. */
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#endif
#define V_HAS_FMA 1
#include "vec_tmpl.h"
#if defined(__clang__)
#pragma clang attribute pop
#else
#pragma GCC pop_options
#endif
#endif
