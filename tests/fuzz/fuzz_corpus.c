/* Opens arbitrary bytes as a corpus; the first byte selects the format. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/err.h"
#include "base/mem.h"
#include "data/corpus.h"
#include "data/synth.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_file(const uint8_t *data, size_t size, const char *format)
{
    char path[] = "/tmp/ds-fuzz-XXXXXX";
    struct corpus *c = NULL;
    struct err e;
    int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    struct corpus_options o = {.path = path, .format = format, .max_bytes = 1 << 20};
    if (corpus_open(&c, &o, &e) == 0) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < corpus_count(c); i++)
            bytes += corpus_at(c, i).len;
        BUG_IF(bytes != corpus_bytes(c) || bytes > size || bytes == 0, "byte counts differ");
        corpus_close(c);
    }
    unlink(path);
}

static void measure(const char *s, size_t n)
{
    struct grammar *g = NULL;
    struct err e;
    float *h = mem_alloc(n + 1, sizeof *h), *p = mem_alloc(n + 1, sizeof *p);
    if (grammar_new(&g, synth_rules, synth_rules_n, &e) < 0)
        abort();
    (void)!grammar_measure(g, s, n, h, p, &e);
    grammar_free(g);
    mem_free(h);
    mem_free(p);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const char *const format[] = {"auto", "file", "blocks", "eot", "jsonl", "lines"};
    if (size == 0)
        return 0;
    if (data[0] % 7 == 6)
        measure((const char *)data + 1, size - 1);
    else
        read_file(data + 1, size - 1, format[data[0] % 7]);
    return 0;
}
