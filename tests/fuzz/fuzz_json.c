/* Arbitrary bytes as JSON: an error with text, or a tree that can be traversed and searched by key. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void walk(const struct json_node *n)
{
    const char *key;
    size_t len = 0;
    const struct json_node *v;
    const char *text = json_str(n, &len);
    if (text && strlen(text) != len)
        abort();
    for (size_t i = 0; (v = json_at(n, i)) != NULL; i++)
        walk(v);
    for (void *at = NULL; (v = json_next(n, &at, &key, &len)) != NULL;) {
        if (strlen(key) != len || json_get(n, key) != v)
            abort();
        walk(v);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct json *j = NULL;
    struct err e = {0};
    if (json_parse(&j, (const char *)data, size, "input", &e) < 0) {
        if (!e.text[0] || strchr(e.text, '\n') || j)
            abort();
        return 0;
    }
    walk(json_root(j));
    json_free(j);
    return 0;
}
