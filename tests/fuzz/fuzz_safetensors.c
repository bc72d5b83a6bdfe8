/* Arbitrary bytes as a safetensors file, or, when they begin with a brace, as its header, which gets its length and as many
 * bytes of data as it asks for: an error with text, or every value is readable. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "io/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct st *s)
{
    for (size_t i = 0; i < st_count(s); i++) {
        const struct st_tensor *t = st_at(s, i);
        unsigned sum = 0;
        double *values = t->items <= 4096 ? malloc((t->items + 1) * sizeof *values) : NULL;
        for (uint64_t k = 0; k < t->bytes; k++)
            sum += t->data[k];
        if (st_find(s, t->name) != t || sum == 0xffffffff)
            abort();
        if (values && st_read_f64(t, values, t->items, NULL) == 0 && st_nonfinite(t) > t->items)
            abort();
        free(values);
    }
}

/* Where the last tensor ends, as far as that is a small file. */
static size_t data_bytes(const uint8_t *header, size_t n)
{
    struct json *j = NULL;
    const struct json_node *v;
    const char *key;
    int64_t most = 0;
    if (json_parse(&j, (const char *)header, n, "header", NULL) < 0)
        return 64;
    for (void *at = NULL; (v = json_next(json_root(j), &at, &key, NULL)) != NULL;) {
        int64_t end = json_int(json_at(json_get(v, "data_offsets"), 1), 0);
        most = end > most && end <= 1 << 16 ? end : most;
    }
    json_free(j);
    return (size_t)most;
}

static uint8_t *frame(const uint8_t *header, size_t n, size_t *size)
{
    size_t bytes = data_bytes(header, n);
    uint8_t *out = malloc(8 + n + bytes);
    if (!out)
        abort();
    for (int i = 0; i < 8; i++)
        out[i] = (uint8_t)((uint64_t)n >> 8 * i);
    memcpy(out + 8, header, n);
    for (size_t i = 0; i < bytes; i++)
        out[8 + n + i] = (uint8_t)(31 * i + (i >> 3));
    *size = 8 + n + bytes;
    return out;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/ds-fuzz-XXXXXX";
    struct st *s = NULL;
    struct err e = {0};
    int fd = mkstemp(path);
    uint8_t *framed = size > 0 && data[0] == '{' ? frame(data, size, &size) : NULL;
    data = framed ? framed : data;
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    if (st_open(&s, path, &e) == 0)
        read_all(s);
    else if (s || !e.text[0] || strchr(e.text, '\n'))
        abort();
    st_close(s);
    free(framed);
    unlink(path);
    return 0;
}
