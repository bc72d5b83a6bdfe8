/* Arbitrary bytes as a routing trace of any format: a one-line error, or a trace whose records can be read back and hold
 * every assignment that was counted. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "io/record.h"
#include "io/routing_trace.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Adds up the matrices of the frames. */
static uint64_t sum_records(const struct str *frames)
{
    uint64_t sum = 0, seq;
    struct value body;
    for (size_t at = 0; at < frames->len;) {
        int64_t n = record_parse(frames->p + at, frames->len - at, &seq, &body, NULL);
        if (n <= 0)
            abort();
        at += (size_t)n;
        if (!value_is(value_get(body, "kind"), "matrix"))
            continue;
        int64_t cells = value_f32s(value_get(body, "value"), NULL, 0);
        if (cells <= 0 ||
            cells != value_int(value_get(body, "rows"), 0) * value_int(value_get(body, "cols"), 0))
            abort();
        float *v = malloc((size_t)cells * sizeof *v);
        if (!v || value_f32s(value_get(body, "value"), v, (size_t)cells) != cells)
            abort();
        for (int64_t i = 0; i < cells; i++)
            sum += (uint64_t)v[i];
        free(v);
    }
    return sum;
}

static void use(const struct routing_trace *t)
{
    struct routing_facts f = routing_trace_facts(t);
    struct routing_head h = {.run = "fuzz", .version = "0"};
    struct str frames = {0};
    struct err e = {0};
    uint64_t sum = 0;
    for (int r = 0; r < f.rows; r++)
        for (int x = 0; x < f.experts; x++)
            sum += routing_trace_load(t, r)[x];
    if (sum != f.loads || routing_trace_write(t, &h, &frames, &e) < 0 || frames.failed)
        abort();
    if (sum_records(&frames) != f.loads)
        abort();
    str_release(&frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/ds-fuzz-XXXXXX";
    const char *const paths[] = {path, path};
    struct routing_options o = {0};
    struct err e = {0};
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    for (size_t n = 1; n <= 2; n++) {
        o.has_tokenizer = n == 2;
        struct routing_trace *t = NULL;
        if (routing_trace_read(&t, paths, n, &o, &e) == 0)
            use(t);
        else if (t || !e.text[0] || strchr(e.text, '\n'))
            abort();
        routing_trace_free(t);
    }
    unlink(path);
    return 0;
}
