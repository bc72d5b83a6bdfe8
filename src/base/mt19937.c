/* Python's random numbers: MT19937 with CPython's seeding and sample(). */
#include "base/mt19937.h"

#include "base/mem.h"

enum { N = MT19937_WORDS, M = 397 };

static void init_word(struct mt19937 *g, uint32_t seed)
{
    g->word[0] = seed;
    for (int i = 1; i < N; i++)
        g->word[i] = 1812433253U * (g->word[i - 1] ^ (g->word[i - 1] >> 30)) + (uint32_t)i;
    g->at = N;
}

/* Seeding by an array of the seed's 32-bit digits, lowest first, as CPython does for an integer. */
void mt19937_init(struct mt19937 *g, uint64_t seed)
{
    const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};
    uint32_t *w = g->word;
    int n = key[1] ? 2 : 1, i = 1, j = 0;
    init_word(g, 19650218U);
    for (int k = 0; k < N; k++) {
        w[i] = (w[i] ^ ((w[i - 1] ^ (w[i - 1] >> 30)) * 1664525U)) + key[j] + (uint32_t)j;
        if (++i == N) {
            w[0] = w[N - 1];
            i = 1;
        }
        j = (j + 1) % n;
    }
    for (int k = 0; k < N - 1; k++) {
        w[i] = (w[i] ^ ((w[i - 1] ^ (w[i - 1] >> 30)) * 1566083941U)) - (uint32_t)i;
        if (++i == N) {
            w[0] = w[N - 1];
            i = 1;
        }
    }
    w[0] = 0x80000000U;
}

static void twist(struct mt19937 *g)
{
    uint32_t *w = g->word;
    for (int i = 0; i < N; i++) {
        uint32_t y = (w[i] & 0x80000000U) | (w[(i + 1) % N] & 0x7fffffffU);
        w[i] = w[(i + M) % N] ^ (y >> 1) ^ (y & 1 ? 0x9908b0dfU : 0);
    }
    g->at = 0;
}

uint32_t mt19937_u32(struct mt19937 *g)
{
    if (g->at == N)
        twist(g);
    uint32_t y = g->word[g->at++];
    y ^= y >> 11;
    y ^= (y << 7) & 0x9d2c5680U;
    y ^= (y << 15) & 0xefc60000U;
    return y ^ (y >> 18);
}

uint32_t mt19937_below(struct mt19937 *g, uint32_t n)
{
    int bits = 0;
    while (bits < 32 && n >> bits)
        bits++;
    for (;;) {
        uint32_t r = mt19937_u32(g) >> (32 - bits);
        if (r < n)
            return r;
    }
}

/* Above this size, sample() redraws duplicates; below, it moves the pool's last item into the
 * gap. */
static uint32_t pool_limit(uint32_t k)
{
    uint32_t limit = 21, power = 1;
    if (k <= 5)
        return limit;
    while (power < 3ULL * k && power < 1U << 30) /* 4 ** ceil(log(3 k, 4)) */
        power *= 4;
    return limit + power;
}

static int sample_pool(struct mt19937 *g, uint32_t n, uint32_t k, uint32_t *out, struct err *e)
{
    uint32_t *pool = mem_alloc(n, sizeof *pool);
    if (!pool)
        return err_set(e, DS_EMEM, "sample of %u: out of memory", k);
    for (uint32_t i = 0; i < n; i++)
        pool[i] = i;
    for (uint32_t i = 0; i < k; i++) {
        uint32_t j = mt19937_below(g, n - i);
        out[i] = pool[j];
        pool[j] = pool[n - i - 1];
    }
    mem_free(pool);
    return 0;
}

static int is_among(const uint32_t *v, uint32_t n, uint32_t x)
{
    for (uint32_t i = 0; i < n; i++)
        if (v[i] == x)
            return 1;
    return 0;
}

int mt19937_sample(struct mt19937 *g, uint32_t n, uint32_t k, uint32_t *out, struct err *e)
{
    if (k > n)
        return err_set(e, DS_ERANGE, "sample of %u: must be at most %u", k, n);
    if (n <= pool_limit(k))
        return sample_pool(g, n, k, out, e);
    for (uint32_t i = 0; i < k; i++)
        do
            out[i] = mt19937_below(g, n);
        while (is_among(out, i, out[i]));
    return 0;
}
