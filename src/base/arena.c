/* Bump allocation in three phases: measure, reserve, allocate. */
#include "base/arena.h"

#include <stdint.h>
#include <string.h>

#include "base/mem.h"
#include "base/str.h"

enum { STEP = 64 };

/* Unallocated memory is poisoned, and in debug builds every float in it reads as NaN. */
static void fence(char *p, size_t n)
{
#ifdef DEPTHSCOPE_DEBUG
    DS_UNPOISON(p, n);
    memset(p, 0xff, n);
#endif
    DS_POISON(p, n);
}

void arena_measure(struct arena *a, const char *name)
{
    *a = (struct arena){.name = name, .measuring = 1};
}

int arena_reserve(struct arena *a, const char *name, size_t size, struct err *e)
{
    BUG_IF(a->base, "arena %s: already reserved", name);
    if (size == 0)
        size = a->peak;
    size_t rounded = size > SIZE_MAX - STEP ? SIZE_MAX : (size + STEP - 1) / STEP * STEP;
    if (rounded == 0)
        rounded = STEP;
    char *base = mem_reserve(rounded);
    if (!base) {
        char text[16];
        return err_set(e, DS_EMEM, "%s: out of memory: %sB not available", name,
                       str_si(text, (double)size));
    }
    *a = (struct arena){.name = name, .base = base, .size = rounded};
    fence(base, rounded);
    return 0;
}

/* Bytes of one allocation, rounded up to the alignment; SIZE_MAX on overflow. */
static size_t step_bytes(size_t n, size_t size)
{
    size_t total;
    if (DS_MUL_OVERFLOW(n, size, &total) || total > SIZE_MAX - STEP)
        return SIZE_MAX;
    return (total + STEP - 1) / STEP * STEP;
}

void *arena_alloc(struct arena *a, size_t n, size_t size)
{
    size_t bytes = step_bytes(n, size);
    if (a->measuring) {
        /* Saturates, so that reserving an impossible shape is an out-of-memory error and not a
         * bug. */
        a->used = bytes > SIZE_MAX - a->used ? SIZE_MAX : a->used + bytes;
        a->peak = a->used > a->peak ? a->used : a->peak;
        return (void *)(uintptr_t)STEP;
    }
    BUG_IF(bytes > a->size - a->used,
           "arena %s is full: %zu x %zu bytes requested, %zu of %zu used", a->name ? a->name : "?",
           n, size, a->used, a->size);
    char *p = a->base + a->used;
    a->used += bytes;
    a->peak = a->used > a->peak ? a->used : a->peak;
    DS_UNPOISON(p, n * size);
    return p;
}

void *arena_zalloc(struct arena *a, size_t n, size_t size)
{
    void *p = arena_alloc(a, n, size);
    if (!a->measuring)
        memset(p, 0, n * size);
    return p;
}

size_t arena_mark(const struct arena *a)
{
    return a->used;
}

void arena_rewind(struct arena *a, size_t mark)
{
    BUG_IF(mark > a->used, "arena %s: rewind to %zu, beyond %zu", a->name ? a->name : "?", mark,
           a->used);
    if (!a->measuring && a->base)
        fence(a->base + mark, a->used - mark);
    a->used = mark;
}

void arena_reset(struct arena *a)
{
    arena_rewind(a, 0);
}

void arena_release(struct arena *a)
{
    if (a->base)
        DS_UNPOISON(a->base, a->size);
    mem_free_aligned(a->base);
    *a = (struct arena){0};
}
