/* A string to int64 hash map with open addressing. */
#include "base/map.h"

#include <string.h>

#include "base/err.h"
#include "base/hash.h"
#include "base/mem.h"

/* The slot of the key, or the free one where it would go.  cap is a power of two, never full. */
static size_t find(const struct map_slot *slot, size_t cap, const void *key, size_t len,
                   uint64_t hash)
{
    size_t i = (size_t)hash & (cap - 1);
    while (slot[i].key &&
           !(slot[i].hash == hash && slot[i].len == len && memcmp(slot[i].key, key, len) == 0))
        i = (i + 1) & (cap - 1);
    return i;
}

int map_get(const struct map *m, const void *key, size_t len, int64_t *value)
{
    if (m->n == 0)
        return 0;
    size_t i = find(m->slot, m->cap, len ? key : "", len, hash64(key, len, 0));
    if (!m->slot[i].key)
        return 0;
    *value = m->slot[i].value;
    return 1;
}

static int grow(struct map *m)
{
    size_t cap = m->cap ? m->cap * 2 : 16;
    struct map_slot *slot = mem_alloc(cap, sizeof *slot);
    if (!slot)
        return DS_EMEM;
    for (size_t i = 0; i < m->cap; i++) {
        const struct map_slot *old = &m->slot[i];
        if (old->key)
            slot[find(slot, cap, old->key, old->len, old->hash)] = *old;
    }
    mem_free(m->slot);
    m->slot = slot;
    m->cap = cap;
    return 0;
}

int map_set(struct map *m, const void *key, size_t len, int64_t value)
{
    uint64_t hash = hash64(key, len, 0);
    const void *bytes = len ? key : "";
    size_t i = m->cap ? find(m->slot, m->cap, bytes, len, hash) : 0;
    if (m->cap && m->slot[i].key) {
        m->slot[i].value = value;
        return 0;
    }
    char *copy = mem_dup(bytes, len);
    if (!copy)
        return DS_EMEM;
    if ((m->n + 1) * 8 > m->cap * 5) {
        if (grow(m) < 0) {
            mem_free(copy);
            return DS_EMEM;
        }
        i = find(m->slot, m->cap, bytes, len, hash);
    }
    m->slot[i] = (struct map_slot){.key = copy, .len = len, .hash = hash, .value = value};
    m->n++;
    return 0;
}

void map_release(struct map *m)
{
    for (size_t i = 0; i < m->cap; i++)
        mem_free(m->slot[i].key);
    mem_free(m->slot);
    *m = (struct map){0};
}
