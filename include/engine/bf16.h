/* bfloat16: the upper half of a float. */
#ifndef DS_ENGINE_BF16_H
#define DS_ENGINE_BF16_H

#include <stdint.h>
#include <string.h>

#include "engine/real.h"

/* x rounded to bfloat16, nearest, ties to even; NaN stays NaN. */
static inline uint16_t bf16_of(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    if ((u & 0x7fffffffU) > 0x7f800000U)
        return (uint16_t)(u >> 16 | 0x40U);
    return (uint16_t)((u + 0x7fffU + (u >> 16 & 1U)) >> 16);
}

static inline float float_of_bf16(uint16_t b)
{
    uint32_t u = (uint32_t)b << 16;
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

static inline void bf16_from_reals(uint16_t *to, const real *from, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        to[i] = bf16_of((float)from[i]);
}

#endif
