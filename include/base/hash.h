/* Checksums and hashes: CRC-32C, CRC-32, XXH3, SHA-256. */
#ifndef DS_BASE_HASH_H
#define DS_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

uint32_t hash_crc32c(uint32_t crc, const void *p, size_t n); /* Castagnoli; start with 0 */
uint32_t hash_crc32(uint32_t crc, const void *p, size_t n);  /* IEEE 802.3, zlib's; likewise */
uint64_t hash64(const void *p, size_t n, uint64_t seed);     /* XXH3, not cryptographic  */
/* Zero-initialise.  When out of memory the hash is "". */
struct sha256 {
    void *state;
    int failed;
};
void sha256_init(struct sha256 *s); /* also starts over */
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_hex(struct sha256 *s, char out[65]); /* ends the hash and releases it */
void sha256_release(struct sha256 *s);
int sha256_file(const char *path, char out[65], struct err *e) DS_CHECK;
/* 16 hex digits, unique across calls and machines. */
void hash_random_id(char out[17]);

#endif
