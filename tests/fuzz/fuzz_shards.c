/* Arbitrary bytes as a shard index next to two shards: a one-line error, or every tensor is in exactly the shard that
 * the index names. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "io/st_set.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char dir[] = "/tmp/ds-fuzz-XXXXXX";

static const char *in(const char *name)
{
    static char path[2][128];
    static int turn;
    char *p = path[turn++ % 2];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void put_shard(const char *name, const char *first, const char *second)
{
    static const float values[2] = {1, 2};
    const struct st_out t[] = {
        {.name = first, .dtype = ST_F32, .rank = 1, .shape = {2}, .data = values},
        {.name = second, .dtype = ST_F32, .rank = 0, .data = values},
    };
    if (st_write(in(name), t, 2, NULL, 0, NULL) < 0)
        abort();
}

static void remove_all(void)
{
    (void)!fs_remove_tree(dir, NULL);
}

static void check(const struct st_set *s, const uint8_t *data, size_t size)
{
    struct json *j = NULL;
    if (json_parse(&j, (const char *)data, size, "input", NULL) < 0)
        abort();
    const struct json_node *map = json_get(json_root(j), "weight_map");
    if (json_len(map) != st_set_count(s) || st_set_shards(s) > 2)
        abort();
    for (size_t i = 0; i < st_set_count(s); i++) {
        const struct st_tensor *t = st_set_at(s, i);
        const char *shard = json_str(json_get(map, t->name), NULL);
        size_t at = st_set_count(s);
        if (!shard || st_set_find(s, t->name, &at) != t || at != i ||
            strcmp(shard, t->name[0] == 'a' ? "a.safetensors" : "b.safetensors") != 0)
            abort();
    }
    json_free(j);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int is_made;
    struct st_set *s = NULL;
    struct err e = {0};
    if (!is_made) {
        is_made = 1;
        if (!mkdtemp(dir) || atexit(remove_all) != 0)
            abort();
        put_shard("a.safetensors", "a", "a.b");
        put_shard("b.safetensors", "b", "b.c");
    }
    FILE *f = fopen(in("model.safetensors.index.json"), "wb");
    if (!f || fwrite(data, 1, size, f) != size || fclose(f) != 0)
        abort();
    if (st_set_open(&s, dir, &e) == 0)
        check(s, data, size);
    else if (s || !e.text[0] || strchr(e.text, '\n'))
        abort();
    st_set_close(s);
    return 0;
}
