#include "base/hash.h"

#include <pthread.h>
#include <string.h>
#include <xxhash.h>

#include "base/fs.h"

/* CRC-32C, reflected polynomial 0x82f63b78, eight bytes a step: table[k] advances a byte over
 * k more zero bytes. */
static uint32_t table[8][256];
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ (c & 1 ? 0x82f63b78u : 0);
        table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xff];
}

uint32_t hash_crc32c(uint32_t crc, const void *p, size_t n)
{
    const unsigned char *s = p;
    pthread_once(&once, make_table);
    crc = ~crc;
    for (; n >= 8; n -= 8, s += 8) {
        uint32_t lo = crc ^ ((uint32_t)s[0] | (uint32_t)s[1] << 8 | (uint32_t)s[2] << 16 |
                             (uint32_t)s[3] << 24);
        crc = table[7][lo & 0xff] ^ table[6][lo >> 8 & 0xff] ^ table[5][lo >> 16 & 0xff] ^
              table[4][lo >> 24] ^ table[3][s[4]] ^ table[2][s[5]] ^ table[1][s[6]] ^
              table[0][s[7]];
    }
    for (; n; n--, s++)
        crc = (crc >> 8) ^ table[0][(crc ^ *s) & 0xff];
    return ~crc;
}

uint64_t hash64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(n ? p : "", n, seed);
}

static const uint32_t sha_k[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2,
};

static uint32_t rotate(uint32_t x, int n)
{
    return x >> n | x << (32 - n);
}

/* One block of 64 bytes (FIPS 180-4, 6.2.2). */
static void sha_block(uint32_t h[8], const unsigned char *p)
{
    uint32_t w[64], v[8];
    for (int i = 0; i < 16; i++)
        w[i] = (uint32_t)p[4 * i] << 24 | (uint32_t)p[4 * i + 1] << 16 |
               (uint32_t)p[4 * i + 2] << 8 | p[4 * i + 3];
    for (int i = 16; i < 64; i++) {
        uint32_t a = w[i - 15], b = w[i - 2];
        w[i] = w[i - 16] + (rotate(a, 7) ^ rotate(a, 18) ^ a >> 3) + w[i - 7] +
               (rotate(b, 17) ^ rotate(b, 19) ^ b >> 10);
    }
    memcpy(v, h, sizeof v);
    for (int i = 0; i < 64; i++) {
        uint32_t t1 = v[7] + (rotate(v[4], 6) ^ rotate(v[4], 11) ^ rotate(v[4], 25)) +
                      ((v[4] & v[5]) ^ (~v[4] & v[6])) + sha_k[i] + w[i];
        uint32_t t2 = (rotate(v[0], 2) ^ rotate(v[0], 13) ^ rotate(v[0], 22)) +
                      ((v[0] & v[1]) ^ (v[0] & v[2]) ^ (v[1] & v[2]));
        memmove(v + 1, v, 7 * sizeof *v);
        v[4] += t1;
        v[0] = t1 + t2;
    }
    for (int i = 0; i < 8; i++)
        h[i] += v[i];
}

void sha256_init(struct sha256 *s)
{
    static const uint32_t start[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                                      0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
    memcpy(s->h, start, sizeof start);
    s->len = 0;
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    const unsigned char *in = p;
    size_t have = s->len % 64;
    s->len += n;
    if (have && n >= 64 - have) {
        memcpy(s->buf + have, in, 64 - have);
        sha_block(s->h, s->buf);
        in += 64 - have;
        n -= 64 - have;
        have = 0;
    }
    for (; have == 0 && n >= 64; n -= 64, in += 64)
        sha_block(s->h, in);
    if (n)
        memcpy(s->buf + have, in, n);
}

void sha256_hex(struct sha256 *s, char out[65])
{
    static const char digit[] = "0123456789abcdef";
    uint64_t bits = s->len * 8;
    unsigned char tail[72] = {0x80};
    size_t have = s->len % 64, pad = (have < 56 ? 56 : 120) - have;
    for (int i = 0; i < 8; i++)
        tail[pad + (size_t)i] = (unsigned char)(bits >> (56 - 8 * i));
    sha256_add(s, tail, pad + 8);
    for (int i = 0; i < 64; i++)
        out[i] = digit[s->h[i / 8] >> (28 - 4 * (i % 8)) & 15];
    out[64] = '\0';
}

int sha256_file(const char *path, char out[65], struct err *e)
{
    struct sha256 s;
    unsigned char buf[65536];
    size_t n = 0;
    int fd = -1, rc = fs_open_read(&fd, path, e);
    if (rc < 0)
        return rc;
    sha256_init(&s);
    do {
        rc = fs_read_some(fd, buf, sizeof buf, &n, path, e);
        if (rc == 0)
            sha256_add(&s, buf, n);
    } while (rc == 0 && n > 0);
    fs_ops_get()->close(fd);
    if (rc == 0)
        sha256_hex(&s, out);
    return rc;
}
