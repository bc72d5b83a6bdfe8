/* Random numbers and checksums against published vectors. */
#include "t.h"

#include "base/hash.h"
#include "base/mem.h"
#include "base/fs.h"
#include "base/rng.h"

T(philox_gives_the_published_vectors)
{
    static const struct {
        uint32_t counter[4], key[2], want[4];
    } known[] = {
        {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
        {{~0u, ~0u, ~0u, ~0u}, {~0u, ~0u}, {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
        {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
         {0xa4093822, 0x299f31d0},
         {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
    };
    for (size_t i = 0; i < 3; i++) {
        uint32_t out[4];
        rng_philox(out, known[i].counter, known[i].key);
        for (int k = 0; k < 4; k++)
            t_eq(out[k], known[i].want[k]);
    }
}

T(rng_at_equals_the_sequential_stream)
{
    struct rng r;
    rng_init(&r, 42, RNG_ROUTE, 7, 3);
    for (uint32_t i = 0; i < 100; i++)
        t_true(rng_uniform(&r) == rng_at(42, RNG_ROUTE, 7, 3, i));
}

T(rng_streams_differ_in_every_coordinate)
{
    double base = rng_at(1, RNG_INIT, 2, 3, 4);
    t_true(base != rng_at(2, RNG_INIT, 2, 3, 4) && base != rng_at(1, RNG_DATA, 2, 3, 4));
    t_true(base != rng_at(1, RNG_INIT, 3, 3, 4) && base != rng_at(1, RNG_INIT, 2, 4, 4));
    t_true(base != rng_at(1, RNG_INIT, 2, 3, 5));
    t_true(base != rng_at(1 + (1ull << 32), RNG_INIT, 2, 3, 4));
    t_true(base != rng_at(1, RNG_INIT, 2 + (1ull << 32), 3, 4));
}

T(rng_moments_are_those_of_the_distributions)
{
    struct rng r;
    double sum = 0, square = 0, cube = 0, normal = 0, normal2 = 0, normal4 = 0;
    const int n = 200000;
    rng_init(&r, 9, RNG_TEST, 0, 0);
    for (int i = 0; i < n; i++) {
        double u = rng_uniform(&r), z = rng_normal(&r);
        t_true(u >= 0 && u < 1 && isfinite(z));
        sum += u;
        square += u * u;
        cube += u * u * u;
        normal += z;
        normal2 += z * z;
        normal4 += z * z * z * z;
    }
    t_near(sum / n, 0.5, 0.004);
    t_near(square / n, 1.0 / 3, 0.004);
    t_near(cube / n, 0.25, 0.004);
    t_near(normal / n, 0, 0.01);
    t_near(normal2 / n, 1, 0.02);
    t_near(normal4 / n, 3, 0.15);
}

T(rng_below_is_unbiased)
{
    struct rng r;
    int count[7] = {0};
    rng_init(&r, 3, RNG_TEST, 1, 0);
    for (int i = 0; i < 70000; i++)
        count[rng_below(&r, 7)]++;
    for (int k = 0; k < 7; k++)
        t_near(count[k], 10000, 400);
    t_eq(rng_below(&r, 1), 0);
    for (int i = 0; i < 1000; i++)
        t_true(rng_below(&r, 0xc0000000u) < 0xc0000000u);
}

T(crc32c_gives_the_known_values)
{
    unsigned char b[32];
    t_eq(hash_crc32c(0, "123456789", 9), 0xe3069283u);
    t_eq(hash_crc32c(0, "", 0), 0);
    memset(b, 0, 32);
    t_eq(hash_crc32c(0, b, 32), 0x8a9136aau);
    memset(b, 0xff, 32);
    t_eq(hash_crc32c(0, b, 32), 0x62a8ab43u);
    for (int i = 0; i < 32; i++)
        b[i] = (unsigned char)i;
    t_eq(hash_crc32c(0, b, 32), 0x46dd794eu);
    for (size_t cut = 0; cut <= 32; cut++)
        t_eq(hash_crc32c(hash_crc32c(0, b, cut), b + cut, 32 - cut), 0x46dd794eu);
}

T(hash64_is_xxh3)
{
    t_true(hash64("", 0, 0) == 0x2d06800538d394c2ull);
    t_true(hash64(NULL, 0, 0) == hash64("", 0, 0));
    t_true(hash64("a", 1, 0) != hash64("a", 1, 1));
}

static const char *sha(const char *text, size_t n, size_t piece)
{
    static char hex[65];
    struct sha256 s = {0};
    sha256_init(&s);
    for (size_t at = 0; at < n; at += piece)
        sha256_add(&s, text + at, n - at < piece ? n - at : piece);
    sha256_hex(&s, hex);
    return hex;
}

T(sha256_gives_the_known_values)
{
    static const char two[] = "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
    t_str(sha("", 0, 1), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    t_str(sha("abc", 3, 3), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    for (size_t piece = 1; piece < 60; piece++)
        t_str(sha(two, 56, piece),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    char *a = mem_alloc(1000000, 1);
    t_true(a != NULL);
    memset(a, 'a', 1000000);
    t_str(sha(a, 1000000, 997), "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
    mem_free(a);
}

T(sha256_of_a_file)
{
    struct err e = {0};
    char path[400], hex[65] = "";
    t_ok(fs_join(path, sizeof path, t_tmpdir(), "f", &e), &e);
    t_ok(fs_write_file(path, "abc", 3, &e), &e);
    t_ok(sha256_file(path, hex, &e), &e);
    t_str(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    t_fails(sha256_file("/nonexistent/f", hex, &e), &e, DS_EIO, "/nonexistent/f");
}
