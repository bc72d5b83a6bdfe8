/* Arbitrary bytes as an event file (first byte even), and as the messages of a whole one (odd: u16
 * length and bytes of each). */
#include <stdint.h>

#include "base/str.h"
#include "foreign_stream.h"
#include "io/tfevents_fields.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void add_record(struct str *out, const void *p, size_t n)
{
    unsigned char head[TFRECORD_HEAD] = {0}, tail[TFRECORD_TAIL];
    for (int i = 0; i < 4; i++)
        head[i] = (unsigned char)(n >> 8 * i);
    uint32_t crc = tfrecord_crc(head, 8);
    for (int i = 0; i < 4; i++)
        head[8 + i] = (unsigned char)(crc >> 8 * i);
    crc = tfrecord_crc(p, n);
    for (int i = 0; i < 4; i++)
        tail[i] = (unsigned char)(crc >> 8 * i);
    str_add_bytes(out, head, sizeof head);
    str_add_bytes(out, p, n);
    str_add_bytes(out, tail, sizeof tail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char version[] = "\x09\0\0\0\0\0\0\xf0\x3f\x1a\x0d"
                                  "brain.Event:2";
    struct str file = {0};
    if (size == 0)
        return 0;
    if (data[0] % 2 == 0) {
        check_stream((const char *)data + 1, size - 1);
        return 0;
    }
    add_record(&file, version, sizeof version - 1);
    for (size_t at = 1; at + 2 <= size;) {
        size_t n = (size_t)data[at] | (size_t)data[at + 1] << 8;
        at += 2;
        n = n < size - at ? n : size - at;
        add_record(&file, data + at, n);
        at += n;
    }
    check_stream(file.p, file.len);
    str_release(&file);
    return 0;
}
