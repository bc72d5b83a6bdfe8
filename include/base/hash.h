#ifndef DS_BASE_HASH_H
#define DS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

uint32_t hash_crc32c(uint32_t crc, const void *p, size_t n); /* Castagnoli; start with 0 */
uint64_t hash64(const void *p, size_t n, uint64_t seed);     /* XXH3, not cryptographic  */
struct sha256 {
    uint32_t h[8];
    uint64_t len;
    unsigned char buf[64];
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_hex(struct sha256 *s, char out[65]); /* ends the hash */
int sha256_file(const char *path, char out[65], struct err *e) DS_CHECK;

#endif
