/* Counter-based random numbers: Philox4x32-10. */
#include "base/rng.h"

#include <math.h>
#include <string.h>

#include "base/err.h"

static const double two_pi = 6.283185307179586476925;

/* Salmon, Moraes, Dror, Shaw 2011: ten rounds of two multiplications. */
void rng_philox(uint32_t out[4], const uint32_t counter[4], const uint32_t key[2])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        uint64_t p0 = (uint64_t)0xd2511f53u * c0, p1 = (uint64_t)0xcd9e8d57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9e3779b9u;
        k1 += 0xbb67ae85u;
    }
    out[0] = c0;
    out[1] = c1;
    out[2] = c2;
    out[3] = c3;
}

void rng_init(struct rng *r, uint64_t seed, enum rng_purpose purpose, uint64_t step, uint32_t a)
{
    memset(r, 0, sizeof *r);
    r->key[0] = (uint32_t)seed;
    /* For seeds below 2^32 the second word is the purpose alone, so streams never overlap. */
    r->key[1] = (uint32_t)(seed >> 32) ^ (uint32_t)purpose << 24;
    r->counter[1] = a;
    r->counter[2] = (uint32_t)step;
    r->counter[3] = (uint32_t)(step >> 32);
}

uint32_t rng_u32(struct rng *r)
{
    if (r->left == 0) {
        rng_philox(r->block, r->counter, r->key);
        r->counter[0]++;
        r->left = 4;
    }
    return r->block[4 - r->left--];
}

uint64_t rng_u64(struct rng *r)
{
    uint64_t high = rng_u32(r);
    return high << 32 | rng_u32(r);
}

/* The upper 53 bits: every result is a multiple of 2^-53 below 1. */
static double to_unit(uint64_t bits)
{
    return (double)(bits >> 11) * 0x1p-53;
}

double rng_uniform(struct rng *r)
{
    return to_unit(rng_u64(r));
}

double rng_normal(struct rng *r)
{
    double u = 1 - rng_uniform(r); /* (0, 1]: the logarithm is finite */
    double v = rng_uniform(r);
    return sqrt(-2 * log(u)) * cos(two_pi * v);
}

uint32_t rng_below(struct rng *r, uint32_t n)
{
    BUG_IF(n == 0, "rng_below: n must be greater than 0");
    /* Lemire 2019: rejects low words below 2^32 mod n, which would cause bias. */
    uint32_t rest = (0u - n) % n;
    uint64_t m;
    do {
        m = (uint64_t)rng_u32(r) * n;
    } while ((uint32_t)m < rest);
    return (uint32_t)(m >> 32);
}

double rng_at(uint64_t seed, enum rng_purpose purpose, uint64_t step, uint32_t a, uint32_t i)
{
    struct rng r;
    rng_init(&r, seed, purpose, step, a);
    r.counter[0] = i / 2; /* two 64-bit elements per block */
    rng_philox(r.block, r.counter, r.key);
    const uint32_t *w = r.block + i % 2 * 2;
    return to_unit((uint64_t)w[0] << 32 | w[1]);
}
