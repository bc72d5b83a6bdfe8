/* Arbitrary bytes as a preset, then each of its lines as an override: a one-line error, or keys
 * that can be looked up and removed. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check(const struct config *c)
{
    for (size_t i = 0; i < c->n; i++)
        if (config_get(c, c->entry[i].key) != c->entry[i].value)
            abort();
}

static void overrides(struct config *c, const char *p, size_t n)
{
    char line[200];
    for (int count = 0; n > 0 && count < 50; count++) {
        const char *end = memchr(p, '\n', n);
        size_t len = end ? (size_t)(end - p) : n;
        size_t keep = len < sizeof line - 1 ? len : sizeof line - 1;
        struct err e = {0};
        memcpy(line, p, keep);
        line[keep] = '\0';
        if (config_override(c, line, "argument", &e) < 0 && !e.text[0])
            abort();
        len += end != NULL;
        p += len;
        n -= len;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct config c = {0};
    struct err e = {0};
    if (config_read_yaml_text(&c, (const char *)data, size, "input", &e) < 0 &&
        (!e.text[0] || strchr(e.text, '\n') || c.n))
        abort();
    check(&c);
    overrides(&c, (const char *)data, size);
    check(&c);
    while (c.n > 0)
        config_remove(&c, c.entry[c.n / 2].key);
    config_release(&c);
    return 0;
}
