/* What `depthscope convert` is made of: the model it reads and the vocabulary it writes. */
#ifndef DS_CLI_CONVERT_H
#define DS_CLI_CONVERT_H

#include "cli/use.h"
#include "data/tokenizer.h"
#include "models/export.h"

/* The model that is converted. */
struct convert_from {
    struct model *m;
    struct export_source s;      /* of m */
    struct tokenizer *tokenizer; /* NULL: none was found */
    int other_tokenizer;         /* it is one in place of the model's own */
    char dir[1024];              /* the directory or file it came from; "" of a random one */
    char name[128];
    uint32_t type; /* what most of its matrices are: weights=auto */
};
/* `what`: a model as everywhere, or random:PRESET with settings of it in `given` (those that it does not know are errors).
 * tokenizer: one in place of the model's own, "" = that. */
int convert_open(struct convert_from *f, const char *what, struct config *given, uint64_t seed,
                 const char *tokenizer, struct err *e) DS_CHECK;
void convert_close(struct convert_from *f);

/* Adds the text of the model's chat template to *out; nothing when it has none. */
int convert_template(struct str *out, const struct convert_from *f, struct err *e) DS_CHECK;
/* Writes it beside the files of DIR, where they do not have one already. */
int convert_write_template(const struct convert_from *f, const char *dir, struct err *e) DS_CHECK;
/* tokenizer.ggml.* and the chat template, for a vocabulary of as many rows as the embedding has.  *differs: what other
 * programs cut otherwise, if anything. */
int convert_put_vocabulary(struct gguf_out *w, const struct convert_from *f, struct str *differs,
                           struct err *e) DS_CHECK;
/* tokenizer.bin of llama2.c.  1: written; 0: this tokenizer cannot be one, *why says what is in the way. */
int convert_write_tokenizer_bin(const struct convert_from *f, const char *path, const char **why,
                                struct err *e) DS_CHECK;

#endif
