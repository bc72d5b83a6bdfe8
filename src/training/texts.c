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
        .seed = 1, /* of the stories: independent of the run's seed */
    };
    return corpus_open(out, &c, e);
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
    if (strcmp(o->tokenizer, "bpe") == 0 && corpus_shards(c))
        return err_set(e, DS_EUSAGE,
                       "data.tokenizer = bpe: %s holds token ids, expected the tokenizer they were "
                       "made with",
                       o->path);
    if (strcmp(o->tokenizer, "bpe") == 0)
        return train_bpe(out, c, o->val_fraction, vocab, e);
    return tokenizer_load(out, o->tokenizer, e);
}
