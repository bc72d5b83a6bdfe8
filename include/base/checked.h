/* Overflow-checked arithmetic on untrusted numbers.  Each returns 0, or 1 on overflow (then *out
 * must not be used).  All sizes are uint64_t. */
#ifndef DS_BASE_CHECKED_H
#define DS_BASE_CHECKED_H

#include <stdint.h>

#include "base/compiler.h"

static inline int checked_mul(uint64_t a, uint64_t b, uint64_t *out)
{
    return DS_MUL_OVERFLOW(a, b, out);
}

static inline int checked_add(uint64_t a, uint64_t b, uint64_t *out)
{
    return DS_ADD_OVERFLOW(a, b, out);
}

/* Rounds up to a multiple of `to` (a power of two); the sum is checked before it is rounded. */
static inline int checked_round(uint64_t a, uint64_t to, uint64_t *out)
{
    uint64_t sum;
    if (checked_add(a, to - 1, &sum))
        return 1;
    *out = sum & ~(to - 1);
    return 0;
}

#endif
