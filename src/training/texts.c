/* Opens the corpus of a configuration and trains or loads its tokenizer. */
#include "training/texts.h"

#include <string.h>

#include "base/mem.h"
#include "data/shards.h"

int texts_open(struct corpus **out, const struct data_options *o, struct err *e)
{
    struct corpus_options c = {
        .path = o->path,
        .format = o->format,
        .text_key = o->text_key,
        .max_bytes = (uint64_t)o->max_bytes,
        .max_docs = o->docs,
        .seed = 1, /* of generated documents: independent of the run's seed */
        .hops = &o->hops,
    };
    return corpus_open(out, &c, e);
}

/* The words of hops and, if there is filler, BPE trained on it. */
static int hops_tokenizer(struct tokenizer **out, const struct corpus *c,
                          const struct data_options *o, int vocab, struct err *e)
{
    size_t words = (size_t)hops_words(&o->hops), n = 0, docs = o->hops.filler ? corpus_count(c) : 0;
    size_t texts = docs * (size_t)o->hops.queries;
    char(*word)[HOPS_WORD_MAX] = mem_alloc(words, sizeof *word);
    const char **list = mem_alloc(words, sizeof *list), **text = mem_alloc(texts, sizeof *text);
    size_t *len = mem_alloc(texts, sizeof *len);
    struct str one = {0};
    int rc = word && list && text && len ? 0 : DS_EMEM;
    for (size_t i = 0; i < words && rc == 0; i++) {
        str_reset(&one);
        hops_word(&o->hops, (int64_t)i, &one);
        list[i] = word[i];
        rc = str_copy(word[i], sizeof word[i], str_text(&one));
    }
    for (size_t i = 0; i < docs && rc == 0; i++) {
        struct document d = corpus_at(c, i);
        for (size_t s = 0, at = 0; s < d.spans && !corpus_is_val(c, i, o->val_fraction);
             at += d.span[s++].len)
            if (d.span[s].kind == SPAN_FILLER) {
                text[n] = d.text + at;
                len[n++] = d.span[s].len;
            }
    }
    rc = rc < 0 || one.failed ? err_set(e, DS_EMEM, "out of memory for the words of hops")
                              : tokenizer_new_words(out, list, words, text, len, n, vocab, e);
    str_release(&one);
    mem_free(word);
    mem_free(list);
    mem_free(text);
    mem_free(len);
    return rc;
}

static int train_bpe(struct tokenizer **out, const struct corpus *c, double val_fraction, int vocab,
                     struct err *e)
{
    size_t n = corpus_count(c), k = 0;
    const char **text = mem_alloc(n, sizeof *text);
    size_t *len = mem_alloc(n, sizeof *len);
    int rc = text && len ? 0 : err_set(e, DS_EMEM, "out of memory for tokenizer training");
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct document d = corpus_at(c, i);
        if (corpus_is_val(c, i, val_fraction))
            continue;
        text[k] = d.text;
        len[k++] = d.len;
    }
    if (rc == 0)
        rc = tokenizer_train_bpe(out, text, len, k, vocab, e);
    mem_free(text);
    mem_free(len);
    return rc;
}

int texts_tokenizer(struct tokenizer **out, const struct corpus *c, const struct data_options *o,
                    int vocab, struct err *e)
{
    if (strcmp(o->tokenizer, "bytes") == 0)
        return tokenizer_new_bytes(out, e);
    if (strcmp(o->tokenizer, "bpe") == 0 && corpus_is_words(c))
        return hops_tokenizer(out, c, o, vocab, e);
    if (strcmp(o->tokenizer, "bpe") == 0 && corpus_shards(c))
        return err_set(e, DS_EUSAGE,
                       "data.tokenizer = bpe: %s holds token ids, expected the tokenizer they were "
                       "made with",
                       o->path);
    if (strcmp(o->tokenizer, "bpe") == 0)
        return train_bpe(out, c, o->val_fraction, vocab, e);
    return tokenizer_load(out, o->tokenizer, e);
}
