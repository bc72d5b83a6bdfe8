/* Values printed by CPython's random module. */
#include "base/mt19937.h"
#include "t.h"

#define SAME(g, ...)                                                                               \
    do {                                                                                           \
        const uint32_t want_[] = {__VA_ARGS__};                                                    \
        for (size_t i_ = 0; i_ < sizeof want_ / sizeof *want_; i_++)                               \
            t_eq((g)[i_], want_[i_]);                                                              \
    } while (0)

T(words_equal_getrandbits)
{
    struct mt19937 g;
    uint32_t w[3];
    mt19937_init(&g, 0);
    for (int i = 0; i < 3; i++)
        w[i] = mt19937_u32(&g);
    SAME(w, 3626764237U, 1654615998U, 3255389356U);
    t_eq(mt19937_below(&g, 1), 0);
    t_eq(mt19937_below(&g, 64), 5);
    mt19937_init(&g, 1234);
    for (int i = 0; i < 624; i++)
        w[0] = mt19937_u32(&g);
    for (int i = 0; i < 3; i++)
        w[i] = mt19937_u32(&g);
    SAME(w, 3715477445U, 938706668U, 2293463937U);
}

T(all_bits_of_a_long_seed_count)
{
    struct mt19937 g;
    uint32_t w[5];
    mt19937_init(&g, (1ULL << 40) + 17);
    for (int i = 0; i < 5; i++)
        w[i] = mt19937_below(&g, 1000);
    SAME(w, 677, 782, 247, 468, 707);
    for (int i = 0; i < 3; i++)
        w[i] = mt19937_below(&g, (1U << 31) + 5);
    SAME(w, 478098445U, 1910693568U, 1778158216U);
}

T(samples_equal_on_both_sides_of_the_pool_limit)
{
    struct mt19937 g;
    struct err e = {0};
    uint32_t s[64];
    mt19937_init(&g, 1234);
    t_ok(mt19937_sample(&g, 7473, 5, s, &e), &e);
    SAME(s, 6374, 3610, 957, 61, 742);
    t_ok(mt19937_sample(&g, 10, 3, s, &e), &e);
    SAME(s, 9, 0, 1);
    t_ok(mt19937_sample(&g, 21, 5, s, &e), &e);
    SAME(s, 3, 11, 7, 0, 17);
    t_ok(mt19937_sample(&g, 22, 5, s, &e), &e);
    SAME(s, 0, 11, 20, 19, 15);
    t_ok(mt19937_sample(&g, 84, 6, s, &e), &e);
    SAME(s, 78, 59, 19, 11, 23, 14);
    t_ok(mt19937_sample(&g, 86, 6, s, &e), &e);
    SAME(s, 1, 64, 62, 31, 8, 85);
    t_ok(mt19937_sample(&g, 277, 64, s, &e), &e);
    SAME(s, 238, 35, 45, 263, 23, 138);
    t_ok(mt19937_sample(&g, 278, 64, s, &e), &e);
    SAME(s, 239, 243, 23, 241, 87, 225);
}

T(a_sample_larger_than_the_population_is_an_error)
{
    struct mt19937 g;
    struct err e = {0};
    uint32_t s[4];
    mt19937_init(&g, 1);
    t_fails(mt19937_sample(&g, 3, 4, s, &e), &e, DS_ERANGE, "sample of 4: must be at most 3");
}
