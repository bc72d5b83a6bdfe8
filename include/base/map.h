/* String (bytes) -> int64 hash map, open addressing; keys are copied. Zero-initialise. */
#ifndef DS_BASE_MAP_H
#define DS_BASE_MAP_H

#include <stddef.h>
#include <stdint.h>

#include "base/compiler.h"

struct map_slot {
    char *key;
    size_t len;
    uint64_t hash;
    int64_t value;
};
struct map {
    struct map_slot *slot;
    size_t cap, n;
};

/* 1 and *value when present, else 0. */
int map_get(const struct map *m, const void *key, size_t len, int64_t *value);
/* 0 or DS_EMEM. Replaces an old value, and that cannot fail. */
int map_set(struct map *m, const void *key, size_t len, int64_t value) DS_CHECK;
void map_release(struct map *m);

#endif
