/* Scratch buffers, one set per thread, freed when the thread ends. */
#include "engine/scratch.h"

#include <pthread.h>

#include "base/err.h"
#include "base/mem.h"

struct scratch {
    void *p[SCRATCH_SLOTS];
    size_t size[SCRATCH_SLOTS];
};

static pthread_key_t key;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static _Thread_local struct scratch *mine;

static void scratch_free(void *arg)
{
    struct scratch *s = arg;
    for (int i = 0; i < SCRATCH_SLOTS; i++)
        mem_free_aligned(s->p[i]);
    mem_free(s);
}

static void key_create(void)
{
    BUG_IF(pthread_key_create(&key, scratch_free) != 0, "scratch: no thread key left");
}

static void scratch_new(void)
{
    pthread_once(&once, key_create);
    mine = mem_alloc(1, sizeof *mine);
    if (!mine || pthread_setspecific(key, mine) != 0)
        fatal("out of memory: no scratch memory for a thread");
}

void *scratch_get(enum scratch_slot slot, size_t n, size_t size)
{
    if (DS_UNLIKELY(!mine))
        scratch_new();
    size_t need = n * size;
    if (need > mine->size[slot] || !mine->p[slot]) {
        size_t room = need + need / 4 + 4096; /* so that it grows rarely */
        mem_free_aligned(mine->p[slot]);
        mine->p[slot] = mem_reserve(room);
        if (!mine->p[slot]) /* no op can fail, and none can do without */
            fatal("out of memory: %zu bytes of scratch memory; give the program more, or make "
                  "batches and models smaller",
                  room);
        mine->size[slot] = room;
    }
    return mine->p[slot];
}
