/* A bump allocator with one lifetime.  Measured first (arena_measure), reserved once, then
 * allocated in 64-byte steps; nothing is freed individually.  Debug builds fill with NaN on alloc
 * and reset. */
#ifndef DS_BASE_ARENA_H
#define DS_BASE_ARENA_H

#include <stddef.h>

#include "base/err.h"

struct arena {
    const char *name; /* "weights", "stream", "work": shown in the budget table */
    char *base;       /* NULL while measuring                                   */
    size_t size, used, peak;
    int measuring;
};

/* A measuring arena only counts; the pointers it returns are not NULL and must not be
 * dereferenced. */
void arena_measure(struct arena *a, const char *name);
/* Reserves `size` bytes (as measured in a->peak when size is 0). */
int arena_reserve(struct arena *a, const char *name, size_t size, struct err *e) DS_CHECK;
/* n * size bytes, 64-byte aligned, not zeroed.  A full arena is a bug and aborts. */
void *arena_alloc(struct arena *a, size_t n, size_t size);
void *arena_zalloc(struct arena *a, size_t n, size_t size);
size_t arena_mark(const struct arena *a);
void arena_rewind(struct arena *a, size_t mark);
void arena_reset(struct arena *a);
void arena_release(struct arena *a);

#endif
