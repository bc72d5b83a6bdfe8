/* CRC-32C, CRC-32, XXH3, SHA-256 and unique ids. */
#include "base/hash.h"

#include <inttypes.h>
#include <openssl/evp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>
#include <xxhash.h>

#include "base/fs.h"

/* Reflected polynomials, eight bytes per step: table[k] advances a byte over k more zero bytes. */
typedef uint32_t crc_table[8][256];
static crc_table castagnoli, ieee;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void make_table(crc_table table, uint32_t polynomial)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = (c >> 1) ^ (c & 1 ? polynomial : 0);
        table[0][i] = c;
    }
    for (int k = 1; k < 8; k++)
        for (int i = 0; i < 256; i++)
            table[k][i] = (table[k - 1][i] >> 8) ^ table[0][table[k - 1][i] & 0xff];
}

static void make_tables(void)
{
    make_table(castagnoli, 0x82f63b78u);
    make_table(ieee, 0xedb88320u);
}

static inline uint32_t crc_of(crc_table table, uint32_t crc, const unsigned char *s, size_t n)
{
    pthread_once(&once, make_tables);
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

uint32_t hash_crc32c(uint32_t crc, const void *p, size_t n)
{
    return crc_of(castagnoli, crc, p, n);
}

uint32_t hash_crc32(uint32_t crc, const void *p, size_t n)
{
    return crc_of(ieee, crc, p, n);
}

uint64_t hash64(const void *p, size_t n, uint64_t seed)
{
    return XXH3_64bits_withSeed(n ? p : "", n, seed);
}

/* libcrypto uses the processor's SHA-256 instructions.  Its configuration file is not read, so that
 * providers and properties set there cannot affect checksums. */
void sha256_init(struct sha256 *s)
{
    OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL);
    if (!s->state)
        s->state = EVP_MD_CTX_new();
    s->failed = !s->state || EVP_DigestInit_ex(s->state, EVP_sha256(), NULL) != 1;
}

void sha256_add(struct sha256 *s, const void *p, size_t n)
{
    if (!s->failed && EVP_DigestUpdate(s->state, p, n) != 1)
        s->failed = 1;
}

void sha256_hex(struct sha256 *s, char out[65])
{
    static const char digit[] = "0123456789abcdef";
    unsigned char sum[EVP_MAX_MD_SIZE];
    unsigned n = 0;
    if (!s->failed && (EVP_DigestFinal_ex(s->state, sum, &n) != 1 || n != 32))
        s->failed = 1;
    for (unsigned i = 0; !s->failed && i < 64; i++)
        out[i] = digit[sum[i / 2] >> (i % 2 ? 0 : 4) & 15];
    out[s->failed ? 0 : 64] = '\0';
    sha256_release(s);
}

void sha256_release(struct sha256 *s)
{
    EVP_MD_CTX_free(s->state);
    s->state = NULL;
}

int sha256_file(const char *path, char out[65], struct err *e)
{
    struct sha256 s = {0};
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
    fs_close(fd);
    if (rc == 0) {
        sha256_hex(&s, out);
        rc = out[0] ? 0 : err_set(e, DS_EMEM, "%s: SHA-256: out of memory", path);
    }
    sha256_release(&s);
    return rc;
}

void hash_random_id(char out[17])
{
    static atomic_uint calls;
    uint64_t id = 0;
    if (getentropy(&id, sizeof id) !=
        0) { /* no getrandom (old kernel): use values that differ by process and time */
        struct {
            struct timespec now, mono;
            char host[256];
            const void *stack;
            long pid;
            unsigned call;
        } x;
        memset(&x, 0, sizeof x);
        clock_gettime(CLOCK_REALTIME, &x.now);
        clock_gettime(CLOCK_MONOTONIC, &x.mono);
        gethostname(x.host, sizeof x.host - 1);
        x.stack = &id;
        x.pid = (long)getpid();
        x.call = atomic_fetch_add(&calls, 1);
        id = hash64(&x, sizeof x, 0);
    }
    snprintf(out, 17, "%016" PRIx64, id);
}
