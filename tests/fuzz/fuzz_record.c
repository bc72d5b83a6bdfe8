/* Arbitrary bytes as a record stream and as MessagePack: reads stay in bounds, scans agree with parses.
 */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static size_t walked;

static void walk(struct value v, int depth)
{
    struct value_iter it = {0};
    struct value key, item;
    float f[8];
    int32_t n[8];
    size_t len, items = 0;
    if (value_bytes(v, &len) && len)
        walked += (unsigned char)value_bytes(v, &len)[len - 1];
    if (value_f32s(v, f, 8) < -1 || value_i32s(v, n, 8) < -1 || depth > RECORD_DEPTH + 1)
        abort();
    walked += (size_t)value_int(v, 1) + (value_num(v, 0) > 0);
    while (value_next(v, &it, &key, &item)) {
        if (value_kind(item) == VALUE_NONE || item.p < v.p || item.end > v.end)
            abort();
        if (items < 64)
            walk(item, depth + 1);
        items++;
    }
    enum value_kind kind = value_kind(v);
    if ((kind == VALUE_ARRAY || kind == VALUE_MAP) && items != value_len(v))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct value v;
    struct err e = {0};
    uint64_t seq;
    size_t used, pending;
    if (value_check(data, size, &v, &used, &e) == 0) {
        if (used == 0 || used > size || v.end != v.p + used)
            abort();
        walk(v, 1);
    }
    for (size_t at = 0; at < size;) {
        int64_t n = record_parse(data + at, size - at, &seq, &v, &e);
        size_t next = record_scan(data, size, at, &pending);
        if ((n > 0 && next != at) || (n <= 0 && next == at) || next < at || pending < at)
            abort();
        if (n > 0)
            walk(v, 1);
        at = n > 0 ? at + (size_t)n : next;
    }
    return 0;
}
