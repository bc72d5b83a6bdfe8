/* The log of another program as a stream: whole or piece by piece, it must give the same points. */
#ifndef DS_TESTS_FOREIGN_STREAM_H
#define DS_TESTS_FOREIGN_STREAM_H

#include <stdlib.h>
#include <string.h>

#include "base/hash.h"
#include "io/foreign.h"
#include "io/runlog.h"

/* Reads the stream in pieces of at most `piece` bytes; returns a hash of its points. */
static uint64_t read_stream(const char *p, size_t n, size_t piece)
{
    struct foreign_reader *r;
    uint64_t hash = 0;
    struct err e = {0};
    if (foreign_reader_stream(&r, p, n, 1, &e) < 0)
        return 0;
    for (size_t at = 0; at <= n;) {
        struct runlog_entry entry;
        e = (struct err){0};
        size_t k = n - at < piece ? n - at : piece;
        int is_end = at + k == n;
        if (at == 0)
            foreign_wants_points(r);
        if (foreign_push(r, p + at, k, is_end, &e) < 0)
            break;
        while (foreign_next(r, &entry, &e) > 0) {
            if (!entry.points && value_kind(value_get(entry.body, "kind")) != VALUE_STR)
                abort();
            for (size_t i = 0; i < entry.points; i++) {
                const struct foreign_point *x = &entry.point[i];
                size_t len = strlen(x->name);
                if (x->step < 0 || len == 0 || len > FOREIGN_NAME_MAX)
                    abort();
                hash = hash64(x->name, len, hash);
                hash = hash64(&x->step, sizeof x->step, hash);
                hash = hash64(&x->value, sizeof x->value, hash);
            }
        }
        if (foreign_left(r) > foreign_position(r))
            abort();
        at += k;
        if (is_end)
            break;
    }
    foreign_reader_close(r);
    return hash;
}

static void check_stream(const char *p, size_t n)
{
    if (read_stream(p, n, n ? n : 1) != read_stream(p, n, 13))
        abort();
}

#endif
