/* Arbitrary bytes as a text log of another program: whatever format recognises them, the points do not
 * depend on how the bytes arrive, and the records that are made of them are valid. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "io/foreign.h"
#include "io/runlog.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct outcome {
    uint64_t hash, points, skipped;
    int is_failed;
};

static void take(struct outcome *o, const struct runlog_entry *entry)
{
    struct value_iter it = {0};
    struct value key, item;
    for (size_t i = 0; i < entry->points; i++) {
        const struct foreign_point *p = &entry->point[i];
        size_t n = strlen(p->name);
        if (p->step < 0 || n == 0 || n > FOREIGN_NAME_MAX + 1)
            abort();
        o->hash = hash64(p->name, n, o->hash);
        o->hash = hash64(&p->step, sizeof p->step, o->hash);
        if (p->value == p->value)
            o->hash = hash64(&p->value, sizeof p->value, o->hash);
        o->points++;
    }
    if (!entry->points && !entry->is_gap) {
        if (value_kind(entry->body) != VALUE_MAP)
            abort();
        while (value_next(entry->body, &it, &key, &item))
            if (value_kind(key) != VALUE_STR)
                abort();
    }
}

/* Pushes the bytes in pieces of `piece`. */
static struct outcome feed(const uint8_t *data, size_t size, size_t piece, int wants_points)
{
    struct outcome o = {0};
    struct runlog_entry entry;
    struct err e = {0};
    struct foreign_reader *r;
    if (foreign_reader_stream(&r, data, size, 1, &e) < 0)
        return o;
    if (wants_points)
        foreign_wants_points(r);
    for (size_t at = 0; at < size || at == 0; at += piece) {
        size_t n = size - at < piece ? size - at : piece;
        if (foreign_push(r, data + at, n, at + n == size, &e) < 0) {
            if (!e.text[0] || strchr(e.text, '\n'))
                abort();
            o.is_failed = 1;
            break;
        }
        while (foreign_next(r, &entry, &e) > 0)
            take(&o, &entry);
    }
    o.skipped = foreign_skipped(r);
    foreign_reader_close(r);
    return o;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct outcome whole = feed(data, size, size + 1, 1);
    struct outcome parts = feed(data, size, 1 + size / 3, 1);
    feed(data, size, size + 1, 0);
    if (size < 600) {
        struct outcome bytes = feed(data, size, 1, 1);
        if (bytes.hash != whole.hash || bytes.points != whole.points)
            abort();
    }
    if (parts.hash != whole.hash || parts.points != whole.points ||
        parts.is_failed != whole.is_failed)
        abort();
    return 0;
}
