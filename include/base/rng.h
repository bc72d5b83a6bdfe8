/* Counter-based random numbers (Philox4x32-10, Salmon et al. 2011): no state to lose, independent
 * of threads.  Key = (seed, purpose); counter = (step, a, b, element). */
#ifndef DS_BASE_RNG_H
#define DS_BASE_RNG_H

#include <stdint.h>

enum rng_purpose {
    RNG_INIT = 1, /* weights                       */
    RNG_DATA,     /* order of documents            */
    RNG_DROPOUT,
    RNG_ROUTE,  /* random routing, probes        */
    RNG_SAMPLE, /* generation                    */
    RNG_SYNTH,  /* the story generator           */
    RNG_BOOT,   /* bootstrap intervals           */
    RNG_TEST,
};

struct rng {
    uint32_t key[2];
    uint32_t counter[4]; /* [0] is the running block number */
    uint32_t block[4];
    int left; /* words of block not yet used     */
};

void rng_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
/* A stream at (seed, purpose, step, a): calls on it are reproducible from these alone. */
void rng_init(struct rng *r, uint64_t seed, enum rng_purpose purpose, uint64_t step, uint32_t a);
uint32_t rng_u32(struct rng *r);
uint64_t rng_u64(struct rng *r);
double rng_uniform(struct rng *r); /* [0, 1), 53 bits */
double rng_normal(struct rng *r);  /* N(0, 1), Box-Muller */
/* z[i]: what rng_normal would give from block first + i of r's stream, give or take off[i]; many at once, and each a few
 * times faster.  Whoever needs the very number asks rng_normal where off[i] makes a difference. */
enum { RNG_LANES = 64 };
void rng_normals_near(const struct rng *r, uint32_t first, double *z, double *off);
uint32_t rng_below(struct rng *r, uint32_t n); /* [0, n), unbiased; n > 0 */
/* Element i of a stream at (seed, purpose, step, a) without walking to it, in [0, 1). */
/* rng_at(.., i) equals the i-th rng_uniform of a fresh stream at the same place. */
double rng_at(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint32_t a, uint32_t i);

#endif
