/* The heap, with overflow checks and fault injection. */
#include "base/mem.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/err.h"
#include "base/fault.h"

enum { ALIGNMENT = 64, HUGE_PAGE = 2 << 20 };

static atomic_uint_fast64_t calls;
static atomic_uint_fast64_t fail_at;
static atomic_int fail_persistent;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void read_environment(void)
{
    struct fault_rule rule;
    if (fault_find(NULL, "alloc", &rule)) {
        atomic_store(&fail_at, rule.at);
        atomic_store(&fail_persistent, rule.persistent);
    }
}

/* Counts one call; returns the number of bytes, or 0 when the call must fail. */
static size_t admit(size_t n, size_t size)
{
    size_t total;
    pthread_once(&once, read_environment);
    uint64_t call = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
    struct fault_rule rule = {.at = atomic_load_explicit(&fail_at, memory_order_relaxed),
                              .persistent =
                                  atomic_load_explicit(&fail_persistent, memory_order_relaxed)};
    if (fault_hits(&rule, call) || DS_MUL_OVERFLOW(n, size, &total) || total > PTRDIFF_MAX / 2) {
        errno = ENOMEM;
        return 0;
    }
    return total ? total : 1;
}

void *mem_alloc(size_t n, size_t size)
{
    size_t total = admit(n, size);
    return total ? calloc(1, total) : NULL;
}

void *mem_realloc(void *p, size_t n, size_t size)
{
    size_t total = admit(n, size);
    return total ? realloc(p, total) : NULL;
}

void *mem_dup(const void *p, size_t bytes)
{
    size_t total = admit(bytes, 1);
    void *copy = total ? malloc(total) : NULL;
    if (copy && bytes)
        memcpy(copy, p, bytes);
    return copy;
}

char *mem_strdup(const char *s)
{
    return mem_dup(s, strlen(s) + 1);
}

void mem_free(void *p)
{
    free(p);
}

/* Requests huge pages for whole pages only: rounding every block up would cost a model of many
 * small matrices a fifth more memory. */
void *mem_reserve(size_t bytes)
{
    size_t total = admit(bytes, 1);
    size_t to = total >= 2 * (size_t)HUGE_PAGE ? HUGE_PAGE : ALIGNMENT;
    void *p = NULL;
    if (total == 0 || posix_memalign(&p, to, total) != 0)
        return NULL;
    if (to == HUGE_PAGE)
        (void)madvise(p, total & ~(to - 1), MADV_HUGEPAGE); /* only a hint: may be refused */
    return p;
}

void *mem_alloc_aligned(size_t n, size_t size)
{
    size_t total;
    if (DS_MUL_OVERFLOW(n, size, &total))
        total = SIZE_MAX; /* rejected and counted below */
    void *p = mem_reserve(total);
    if (p)
        memset(p, 0, total);
    return p;
}

void mem_discard(void *p, size_t bytes)
{
    long page = sysconf(_SC_PAGESIZE);
    uintptr_t mask = page > 0 ? (uintptr_t)page - 1 : 4095, at = (uintptr_t)p;
    uintptr_t begin = (at + mask) & ~mask, end = (at + bytes) & ~mask;
    if (end > begin)
        (void)madvise((char *)p + (begin - at), end - begin, MADV_DONTNEED);
}

static void advise_around(void *p, size_t bytes, int advice)
{
    long page = sysconf(_SC_PAGESIZE);
    uintptr_t mask = page > 0 ? (uintptr_t)page - 1 : 4095, before = (uintptr_t)p & mask;
    if (bytes > 0)
        (void)madvise((char *)p - before, bytes + before, advice);
}

void mem_prefetch(void *p, size_t bytes)
{
    advise_around(p, bytes, MADV_WILLNEED);
}

void mem_populate(void *p, size_t bytes)
{
#ifdef MADV_POPULATE_READ /* Linux 5.14; older kernels fault pages in on access */
    advise_around(p, bytes, MADV_POPULATE_READ);
#else
    (void)p;
    (void)bytes;
#endif
}

void mem_free_aligned(void *p)
{
    free(p);
}

int mem_grow(void **p, size_t *cap, size_t need, size_t size)
{
    size_t room = *cap < 8 ? 8 : *cap;
    if (need <= *cap)
        return 0;
    while (room < need) {
        if (room > SIZE_MAX / 2) {
            room = need;
            break;
        }
        room *= 2;
    }
    void *bigger = mem_realloc(*p, room, size);
    if (!bigger)
        return DS_EMEM;
    *p = bigger;
    *cap = room;
    return 0;
}

uint64_t mem_calls(void)
{
    return atomic_load(&calls);
}

void mem_fail_at(uint64_t n, int persistent)
{
    pthread_once(&once, read_environment); /* otherwise the environment would override this later */
    atomic_store(&fail_at, n);
    atomic_store(&fail_persistent, persistent);
}
