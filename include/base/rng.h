/* Counter-based random numbers (Philox4x32-10, Salmon et al. 2011): stateless, independent
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
    RNG_HOPS, /* documents of known depth      */
    RNG_LOOP, /* iterations of a training step */
    RNG_EXIT, /* the exit that a training step has a loss at */
    RNG_EMBED, /* vectors of letters, of which an embedding is composed */
};

struct rng {
    uint32_t key[2];
    uint32_t counter[4]; /* [0] is the block number */
    uint32_t block[4];
    int left; /* unused words of block           */
};

void rng_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2]);
/* A stream at (seed, purpose, step, a), which alone determine its values. */
void rng_init(struct rng *r, uint64_t seed, enum rng_purpose purpose, uint64_t step, uint32_t a);
uint32_t rng_u32(struct rng *r);
uint64_t rng_u64(struct rng *r);
double rng_uniform(struct rng *r); /* [0, 1), 53 bits */
double rng_normal(struct rng *r);  /* N(0, 1), Box-Muller */
/* z[i]: the value of rng_normal from block first + i of r's stream, with error at most off[i];
 * vectorised and several times faster.  Where off[i] matters, call rng_normal for the exact
 * value. */
enum { RNG_LANES = 64 };
void rng_normals_near(const struct rng *r, uint32_t first, double *z, double *off);
uint32_t rng_below(struct rng *r, uint32_t n); /* [0, n), unbiased; n > 0 */
/* Random access to element i of a stream at (seed, purpose, step, a), in [0, 1). */
/* rng_at(.., i) equals the i-th rng_uniform of a fresh stream at the same place. */
double rng_at(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint32_t a, uint32_t i);

#endif
