/* "GGUF" begins a file of that kind with a vocabulary; "V" vocab.json, merges.txt and
 * tokenizer_config.json with a NUL between; "J" and "M" tokenizer.json and tokenizer.model with
 * tokenizer_config.json, added_tokens.json and special_tokens_map.json; "T" a tekken.json.  Else the first byte modulo 8: 2, 4, 6 are a
 * SentencePiece model, a llama2.c tokenizer, a tiktoken file from outside, other even ones a
 * tokenizer.json, then text through it; odd: training on the first half, then the second half there
 * and back. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/err.h"
#include "base/log.h"
#include "base/str.h"
#include "data/tokenizer/bpe.h"
#include "data/tokenizer/pieces.h"
#include "data/tokenizer.h"
#include "data/tokenizer_parts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void there_and_back(const struct tokenizer *t, const char *s, size_t n, int exact)
{
    struct ids ids = {0};
    struct str back = {0};
    struct err e;
    for (int special = 0; special < 2; special++) {
        ids.n = 0;
        str_reset(&back);
        if (tokenizer_encode(t, s, n, special, &ids, &e) < 0)
            continue;
        for (size_t i = 0; i < ids.n; i++)
            BUG_IF(ids.v[i] < 0 || ids.v[i] >= tokenizer_vocab(t), "id %d", ids.v[i]);
        tokenizer_decode(t, ids.v, ids.n, &back);
        BUG_IF(exact && (back.len != n || (n && memcmp(back.p, s, n) != 0)), "round trip failed");
    }
    ids_release(&ids);
    str_release(&back);
}

typedef int parse_fn(struct tokenizer **out, const char *p, size_t n, const char *what,
                     struct err *e);

/* The parts build a tokenizer again: an identical one where they are exact. */
static void apart_and_together(const struct tokenizer *t)
{
    struct tokenizer_parts p = {0};
    struct tokenizer *again = NULL;
    struct err e;
    if (tokenizer_parts(&p, t, &e) < 0)
        return;
    BUG_IF(p.tokens != tokenizer_vocab(t), "%d parts", p.tokens);
    if (tokenizer_from_parts(&again, &p, "parts", &e) >= 0) {
        BUG_IF(p.is_exact && tokenizer_hash(again) != tokenizer_hash(t), "not the same");
        tokenizer_free(again);
    }
    tokenizer_parts_release(&p);
}

static void through(struct tokenizer *t)
{
    static const char probe[] = "Hello wor<x>ld "
                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                "aaaaaaaaaaaaaaaaaabababab "
                                "\xC3\xA9\xff 123\r\n<|endoftext|>";
    BUG_IF(tokenizer_hash(t) == 0 && tokenizer_vocab(t) == 0, "empty");
    there_and_back(t, probe, sizeof probe - 1, 0);
    if (tokenizer_vocab(t) < 1 << 16)
        apart_and_together(t);
    tokenizer_free(t);
}

static void from_file(parse_fn *parse, const char *s, size_t n)
{
    struct tokenizer *t = NULL;
    struct err e;
    if (parse(&t, s, n, "input", &e) >= 0)
        through(t);
}

static void put(const char *path, const char *s, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(s, 1, n, f) != n)
        abort();
    fclose(f);
}

static void from_gguf(const char *s, size_t n)
{
    char path[] = "/tmp/fuzz-vocab-XXXXXX";
    struct tokenizer *t = NULL;
    struct err e;
    int fd = mkstemp(path);
    if (fd < 0)
        abort();
    close(fd);
    put(path, s, n);
    if (tokenizer_load(&t, path, &e) >= 0)
        through(t);
    remove(path);
}

enum { DIR_FILES = 4 };
static void from_dir(const char *const *names, const char *s, size_t n)
{
    char dir[] = "/tmp/fuzz-vocab-XXXXXX", path[64];
    struct tokenizer *t = NULL;
    struct err e;
    if (!mkdtemp(dir))
        abort();
    for (int i = 0; i < DIR_FILES && names[i]; i++) {
        const char *end = i + 1 < DIR_FILES && names[i + 1] ? memchr(s, 0, n) : NULL;
        size_t len = end ? (size_t)(end - s) : n;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (len > 0) /* else it is missing */
            put(path, s, len);
        s += len + (end != NULL);
        n -= len + (end != NULL);
    }
    if (tokenizer_load(&t, dir, &e) >= 0)
        through(t);
    for (int i = 0; i < DIR_FILES && names[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        remove(path);
    }
    rmdir(dir);
}

static const char *const vocab_files[] = {"vocab.json", "merges.txt", "tokenizer_config.json",
                                          NULL};
static const char *const json_files[] = {"tokenizer.json", "tokenizer_config.json",
                                         "added_tokens.json", "special_tokens_map.json"};
static const char *const model_files[] = {"tokenizer.model", "tokenizer_config.json",
                                          "added_tokens.json", "special_tokens_map.json"};

static void from_text(const char *s, size_t n)
{
    struct tokenizer *t = NULL;
    struct err e;
    if (tokenizer_train_bpe(&t, &s, &(size_t){n / 2}, 1, 300, &e) < 0)
        return;
    there_and_back(t, s, n, 1);
    tokenizer_free(t);
}

static parse_fn *const parsers[] = {tokenizer_load_json, tokenizer_parse_spm,
                                    tokenizer_parse_llama2c, tokenizer_parse_tiktoken};

/* Small vocabularies cause thousands of warnings. */
static void hush(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    log_to(hush, NULL);
    if (size == 0)
        return 0;
    if (size >= 4 && memcmp(data, "GGUF", 4) == 0)
        from_gguf((const char *)data, size);
    else if (data[0] == 'V')
        from_dir(vocab_files, (const char *)data + 1, size - 1);
    else if (data[0] == 'T')
        from_file(tokenizer_parse_tekken, (const char *)data + 1, size - 1);
    else if (data[0] == 'J')
        from_dir(json_files, (const char *)data + 1, size - 1);
    else if (data[0] == 'M')
        from_dir(model_files, (const char *)data + 1, size - 1);
    else if (data[0] % 2)
        from_text((const char *)data + 1, size - 1);
    else
        from_file(parsers[data[0] % 8 / 2], (const char *)data + 1, size - 1);
    return 0;
}
