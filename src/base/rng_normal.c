/* Batches of normal random numbers, in loops that compilers can vectorise. */
#include <math.h>
#include <string.h>

#include "base/rng.h"

/* A 53-bit number below 1 from two words, without rounding. */
static inline double unit_of(uint32_t high, uint32_t low)
{
    /* the low bits of 2^52 + n are n */
    uint64_t h = 0x4330000000000000U | high, l = 0x4330000000000000U | low >> 11;
    double a, b;
    memcpy(&a, &h, sizeof a);
    memcpy(&b, &l, sizeof b);
    return (a - 0x1p52) * 0x1p-32 + (b - 0x1p52) * 0x1p-53;
}

/* u = 2^k m with m in [0.707, 1.414):  log u = k log 2 + 2 atanh(s),  s = (m - 1) / (m + 1),  |s| <
 * 0.172. */
static inline double log_of(double u)
{
    const uint64_t half_root = 0x3fe6a09e00000000U, one = 0x3ff0000000000000U,
                   fraction = 0x000fffffffffffffU;
    uint64_t bits, exponent;
    double m, k;
    memcpy(&bits, &u, sizeof bits);
    bits += one - half_root;
    exponent = 0x4330000000000000U | bits >> 52;
    memcpy(&k, &exponent, sizeof k);
    k -= 0x1p52 + 1023;
    bits = (bits & fraction) + half_root;
    memcpy(&m, &bits, sizeof m);
    double s = (m - 1) / (m + 1), z = s * s, p = 1.0 / 23;
    for (int n = 21; n >= 3; n -= 2)
        p = p * z + 1.0 / n;
    return k * 0.693147180559945309417 + (2 * s + 2 * s * z * p);
}

/* cos(2 pi v), v in [0, 1]: reduced by quadrants, Taylor series up to pi/4. */
static inline double cos_of_turn(double v)
{
    double t = 4 * v, k = rint(t), a = (t - k) * 1.57079632679489661923, z = a * a, s = 0, c = 0;
    for (int n = 17; n >= 3; n -= 2)
        s = (1 - s) * (z * (1.0 / (n * (n - 1))));
    for (int n = 18; n >= 2; n -= 2)
        c = (1 - c) * (z * (1.0 / (n * (n - 1))));
    s = a * (1 - s);
    c = 1 - c;
    double turned = k == 1 || k == 3 ? s : c; /* k = 0 .. 4: c, -s, -c, s, c */
    return k == 1 || k == 2 ? -turned : turned;
}

/* rng_philox of blocks first, first + 1, ...: word w of block i is c[w][i]. */
static void blocks_of(uint32_t c[4][RNG_LANES], const struct rng *r, uint32_t first)
{
    uint32_t k0 = r->key[0], k1 = r->key[1];
    for (int i = 0; i < RNG_LANES; i++) {
        c[0][i] = first + (uint32_t)i;
        c[1][i] = r->counter[1];
        c[2][i] = r->counter[2];
        c[3][i] = r->counter[3];
    }
    for (int round = 0; round < 10; round++, k0 += 0x9e3779b9U, k1 += 0xbb67ae85U)
#pragma omp simd
        for (int i = 0; i < RNG_LANES; i++) {
            uint64_t p0 = (uint64_t)0xd2511f53U * c[0][i], p1 = (uint64_t)0xcd9e8d57U * c[2][i];
            c[0][i] = (uint32_t)(p1 >> 32) ^ c[1][i] ^ k0;
            c[1][i] = (uint32_t)p1;
            c[2][i] = (uint32_t)(p0 >> 32) ^ c[3][i] ^ k1;
            c[3][i] = (uint32_t)p0;
        }
}

void rng_normals_near(const struct rng *r, uint32_t first, double *z, double *off)
{
    uint32_t word[4][RNG_LANES];
    blocks_of(word, r, first);
#pragma omp simd
    for (int i = 0; i < RNG_LANES; i++) {
        double u = 1 - unit_of(word[0][i], word[1][i]), v = unit_of(word[2][i], word[3][i]);
        double size = sqrt(-2 * log_of(u));
        z[i] = size * cos_of_turn(v);
        off[i] = 4e-15 * (size + 1e-3); /* series truncation, rounding of 2 pi v */
    }
}
