/* First byte modulo 8: 2, 4, 6 are a SentencePiece model, a llama2.c tokenizer, a tiktoken file from
 * outside, other even ones a tokenizer.json, then text through it; odd: training on the first half,
 * then the second half there and back. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/err.h"
#include "base/str.h"
#include "data/bpe.h"
#include "data/pieces.h"
#include "data/tokenizer.h"

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
        BUG_IF(exact && (back.len != n || (n && memcmp(back.p, s, n) != 0)), "no round trip");
    }
    ids_release(&ids);
    str_release(&back);
}

typedef int parse_fn(struct tokenizer **out, const char *p, size_t n, const char *what,
                     struct err *e);

static void from_file(parse_fn *parse, const char *s, size_t n)
{
    static const char probe[] = "Hello wor<x>ld "
                                "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
                                "aaaaaaaaaaaaaaaaaabababab "
                                "\xC3\xA9\xff 123\r\n<|endoftext|>";
    struct tokenizer *t = NULL;
    struct err e;
    if (parse(&t, s, n, "input", &e) < 0)
        return;
    BUG_IF(tokenizer_hash(t) == 0 && tokenizer_vocab(t) == 0, "empty");
    there_and_back(t, probe, sizeof probe - 1, 0);
    tokenizer_free(t);
}

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

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    if (data[0] % 2)
        from_text((const char *)data + 1, size - 1);
    else
        from_file(parsers[data[0] % 8 / 2], (const char *)data + 1, size - 1);
    return 0;
}
