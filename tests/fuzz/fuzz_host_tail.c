/* Arbitrary output of a far shell: what is made of it are whole records, and requests never hold more
 * than four lines each. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "io/host_tail.h"
#include "io/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_frames(const struct str *frames)
{
    for (size_t at = 0; at < frames->len;) {
        uint64_t seq;
        struct value body;
        int64_t n = record_parse(frames->p + at, frames->len - at, &seq, &body, NULL);
        if (n <= 0)
            abort();
        at += (size_t)n;
    }
}

static void check_lines(const struct str *out)
{
    size_t lines = 0;
    for (size_t i = 0; i < out->len; i++)
        lines += out->p[i] == '\n';
    if (lines % 4 != 0 || (out->len > 0 && out->p[out->len - 1] != '\n'))
        abort();
}

/* The first byte cuts the rest into pieces, between which time passes. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char asked[] = "{\"do\":\"open\",\"root\":\"~/runs\"}\n{\"do\":\"list\"}\n"
                                "{\"do\":\"follow\",\"run\":\"a\",\"from\":0,\"id\":0}\n"
                                "{\"do\":\"command\",\"id\":1,\"run\":\"a\",\"line\":\"stop\"}\n";
    struct host_tail *t = host_tail_new();
    struct str requests = {0}, frames = {0}, out = {0};
    double now = 0;
    if (!t)
        abort();
    str_add(&requests, asked);
    host_tail_ask(t, &requests, &frames);
    host_tail_feed(t, "depthscope-tail 1\n", 18, &frames);
    size_t piece = size && data[0] ? data[0] : 256;
    for (size_t at = 1; at < size; at += piece) {
        host_tail_tick(t, now, &out);
        host_tail_feed(t, (const char *)data + at, at + piece < size ? piece : size - at, &frames);
        now += 0.5;
    }
    host_tail_tick(t, now + 10, &out);
    check_frames(&frames);
    check_lines(&out);
    str_release(&requests);
    str_release(&frames);
    str_release(&out);
    host_tail_free(t);
    return 0;
}
