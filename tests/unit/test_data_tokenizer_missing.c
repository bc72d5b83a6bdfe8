/* Vocabularies that have no token for some byte or character: ids are those of Hugging Face's tokenizers. */
#include "../t.h"

#include "base/fs.h"
#include "base/log.h"
#include "data/corpus.h"
#include "data/loader.h"
#include "data/tokenizer.h"

static struct err err;
static int warnings;
static char said[400];

static void hear(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    if (level == LOG_WARN) {
        warnings++;
        snprintf(said, sizeof said, "%s", text);
    }
}

static struct tokenizer *load(const char *model, int is_bytes)
{
    struct str text = {0};
    struct tokenizer *t = NULL;
    char path[1024];
    str_addf(&text,
             "{\"version\": \"1.0\", \"added_tokens\": [], \"normalizer\": null, "
             "\"pre_tokenizer\": %s, \"decoder\": %s, \"model\": {\"type\": \"BPE\", %s}}",
             is_bytes ? "{\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
                        "\"use_regex\": true}"
                      : "null",
             is_bytes ? "{\"type\": \"ByteLevel\"}" : "null", model);
    t_ok(fs_join(path, sizeof path, t_tmpdir(), "tokenizer.json", &err), &err);
    t_ok(fs_write_file(path, text.p, text.len, &err), &err);
    t_ok(tokenizer_load(&t, path, &err), &err);
    str_release(&text);
    warnings = 0;
    log_to(hear, NULL);
    return t;
}

static void encodes(struct tokenizer *t, const char *s, size_t n, const int32_t *want, size_t ids)
{
    struct ids have = {0};
    for (int round = 0; round < 2; round++) { /* the second time from the cache, if at all */
        have.n = 0;
        t_ok(tokenizer_encode(t, s, n, 0, &have, &err), &err);
        t_truef(have.n == ids, "%s: %zu ids, not %zu", s, have.n, ids);
        for (size_t i = 0; i < ids; i++)
            t_truef(have.v[i] == want[i], "%s: id %zu is %d, not %d", s, i, have.v[i], want[i]);
    }
    ids_release(&have);
}
#define ENCODES(t, s, ...)                                                                         \
    encodes(t, s, sizeof s - 1, (const int32_t[]){__VA_ARGS__},                                    \
            sizeof((const int32_t[]){__VA_ARGS__}) / sizeof(int32_t))

#define VOCAB                                                                                      \
    "\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2, \"ab\": 3, \"abc\": 4, \"<unk>\": 5}, "             \
    "\"merges\": [\"a b\", \"ab c\"]"

T(bytes_without_a_token_are_dropped_before_merging)
{
    struct tokenizer *t = load(VOCAB ", \"unk_token\": null", 1);
    ENCODES(t, "abc", 4);
    t_eq(tokenizer_dropped_bytes(t), 0);
    t_eq(warnings, 0);
    ENCODES(t, "axb", 3);
    ENCODES(t, "axbxxc", 4);
    ENCODES(t, "xa\xf1\xc3\x81", 0);
    encodes(t, "xyz", 3, NULL, 0);
    t_eq(tokenizer_dropped_bytes(t), 2 * (1 + 3 + 4 + 3));
    t_eq(warnings, 1);
    t_true(strstr(said, "no token for byte 0x78") && strstr(said, "1 byte so far"));
    char word[500]; /* beyond the short words */
    memset(word, 'x', sizeof word);
    for (size_t i = 0; i < 100; i++)
        word[5 * i] = "ab"[i % 2];
    int32_t want[50];
    for (size_t i = 0; i < 50; i++)
        want[i] = 3;
    encodes(t, word, sizeof word, want, 50);
    tokenizer_free(t);
}

T(the_unknown_token_replaces_bytes_without_a_token)
{
    struct tokenizer *t = load(VOCAB ", \"unk_token\": \"<unk>\", \"fuse_unk\": false", 1);
    ENCODES(t, "axxb", 0, 5, 5, 1);
    t_eq(tokenizer_dropped_bytes(t), 0);
    t_eq(warnings, 0);
    tokenizer_free(t);
    t = load(VOCAB ", \"unk_token\": \"<unk>\", \"fuse_unk\": true", 1);
    ENCODES(t, "axxb", 0, 5, 1);
    tokenizer_free(t);
}

T(characters_without_a_token_are_dropped_too)
{
    struct tokenizer *t = load(VOCAB ", \"unk_token\": null, \"byte_fallback\": false", 0);
    ENCODES(t, "abc", 4);
    ENCODES(t,
            "a\xe2\x98\x83"
            "b",
            3);
    ENCODES(t, "xaxbx", 3);
    encodes(t, "xyz", 3, NULL, 0);
    t_eq(tokenizer_dropped_bytes(t), 2 * (3 + 3 + 3));
    t_eq(warnings, 1);
    tokenizer_free(t);
    t = load(VOCAB ", \"unk_token\": \"<unk>\"", 0);
    ENCODES(t, "axb", 0, 5, 1);
    t_eq(tokenizer_dropped_bytes(t), 0);
    tokenizer_free(t);
}

T(a_loader_continues_over_bytes_without_a_token)
{
    struct tokenizer *t = load(VOCAB ", \"unk_token\": null", 1);
    struct corpus *c = NULL;
    struct loader *l = NULL;
    char path[1024];
    static const char text[] = "abcabcabcabc\xf1\x80\x80\x80 abcabcabc zzz abc";
    t_ok(fs_join(path, sizeof path, t_tmpdir(), "text.txt", &err), &err);
    t_ok(fs_write_file(path, text, sizeof text - 1, &err), &err);
    struct corpus_options o = {.path = path, .max_docs = 10, .seed = 1};
    t_ok(corpus_open(&c, &o, &err), &err);
    t_ok(loader_open(&l, c, t, &(struct loader_options){.seq = 4, .vocab = 6, .seed = 1}, &err),
         &err);
    t_eq(loader_tokens(l), 8);
    t_eq(warnings, 1);
    t_true(tokenizer_dropped_bytes(t) > 0);
    loader_close(l);
    corpus_close(c);
    tokenizer_free(t);
}
