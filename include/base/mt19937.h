/* Python's `random` module, bit for bit: MT19937 (Matsumoto and Nishimura 1998) with CPython's
 * integer seeding and sample().  Only for results that must equal those of Python programs;
 * otherwise use base/rng.h. */
#ifndef DS_BASE_MT19937_H
#define DS_BASE_MT19937_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { MT19937_WORDS = 624 };

struct mt19937 {
    uint32_t word[MT19937_WORDS];
    int at; /* index of the next word */
};

/* random.Random(seed) */
void mt19937_init(struct mt19937 *g, uint64_t seed);
/* getrandbits(32) */
uint32_t mt19937_u32(struct mt19937 *g);
/* randrange(n), 0 < n < 2^32 */
uint32_t mt19937_below(struct mt19937 *g, uint32_t n);
/* sample(range(n), k) into out (k).  DS_ERANGE when k > n; DS_EMEM. */
int mt19937_sample(struct mt19937 *g, uint32_t n, uint32_t k, uint32_t *out,
                   struct err *e) DS_CHECK;

#endif
