/* Arbitrary bytes as token shards: a one-line error, or splits whose every token can be read and is below the vocabulary. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "data/shards.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { VOCAB = 300 };

static uint64_t read_split(struct shards *s, int is_val)
{
    struct shards_split split = shards_split(s, is_val, 0.25);
    int32_t id[7];
    for (uint64_t at = 0; at < split.n;) {
        size_t n = split.n - at < 7 ? (size_t)(split.n - at) : 7;
        shards_read(&split, at, n, VOCAB, id);
        for (size_t i = 0; i < n; i++)
            if (id[i] < 0 || id[i] >= VOCAB)
                abort();
        at += n;
    }
    return split.n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char path[] = "/tmp/ds-fuzz-XXXXXX.bin";
    struct shards *s = NULL;
    struct err e = {0};
    int fd = mkstemps(path, 4);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size)
        abort();
    close(fd);
    (void)shards_at(path);
    if (shards_open(&s, path, &e) == 0) {
        uint64_t n = read_split(s, 0) + read_split(s, 1);
        if (n == 0 || 2 * n > size)
            abort();
        if (shards_check(s, &e) < 0 && (!e.text[0] || strchr(e.text, '\n')))
            abort();
        (void)shards_hash(s);
    } else if (s || !e.text[0] || strchr(e.text, '\n')) {
        abort();
    }
    shards_close(s);
    unlink(path);
    return 0;
}
