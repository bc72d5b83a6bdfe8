/* Arbitrary bytes as a W&B file (first byte even), and as the messages of a whole one (odd: u16 length
 * and bytes of each). */
#include <stdint.h>

#include "base/str.h"
#include "foreign_stream.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { BLOCK = 32768, HEAD = 7 };

static void add_part(struct str *out, int type, const uint8_t *p, size_t n)
{
    unsigned char head[HEAD] = {
        0, 0, 0, 0, (unsigned char)n, (unsigned char)(n >> 8), (unsigned char)type};
    uint32_t crc = hash_crc32(hash_crc32(0, head + 6, 1), p, n);
    for (int i = 0; i < 4; i++)
        head[i] = (unsigned char)(crc >> 8 * i);
    str_add_bytes(out, head, sizeof head);
    str_add_bytes(out, p, n);
}

static void add_message(struct str *out, const uint8_t *p, size_t n)
{
    for (int is_first = 1, is_last = 0; !is_last; is_first = 0) {
        size_t left = BLOCK - out->len % BLOCK;
        if (left < HEAD) {
            str_add_bytes(out, "\0\0\0\0\0\0\0", left);
            left = BLOCK;
        }
        size_t fits = left - HEAD < n ? left - HEAD : n;
        is_last = fits == n;
        add_part(out, is_first ? (is_last ? 1 : 2) : (is_last ? 4 : 3), p, fits);
        p += fits;
        n -= fits;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct str file = {0};
    if (size == 0)
        return 0;
    str_add_bytes(&file, ":W&B\xE1\xBE\0", HEAD);
    if (data[0] % 2 == 0)
        str_add_bytes(&file, data + 1, size - 1);
    for (size_t at = 1; data[0] % 2 && at + 2 <= size;) {
        size_t n = (size_t)data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        n = n < size - at ? n : size - at;
        add_message(&file, data + at, n);
        at += n;
    }
    check_stream(file.p, file.len);
    str_release(&file);
    return 0;
}
