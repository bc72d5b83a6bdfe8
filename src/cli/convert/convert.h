/* Parts of `depthscope convert`: the model it reads and the vocabulary it writes. */
#ifndef DS_CLI_CONVERT_H
#define DS_CLI_CONVERT_H

#include "cli/cli.h"
#include "data/tokenizer.h"
#include "models/export.h"

/* The source model. */
struct convert_from {
    struct model *m;
    struct export_source s;      /* of m */
    struct tokenizer *tokenizer; /* NULL: not found */
    int other_tokenizer;         /* given by the user instead of the model's own */
    char dir[1024];              /* source directory or file; "" for a random model */
    char name[128];
    uint32_t type; /* type of most of its matrices, for weights=auto */
};
/* `what`: a model, or random:PRESET with its settings in `given` (unknown ones are errors).
 * tokenizer: replaces the model's own; "" keeps it. */
int convert_open(struct convert_from *f, const char *what, struct config *given, uint64_t seed,
                 const char *tokenizer, struct err *e) DS_CHECK;
void convert_close(struct convert_from *f);

/* Appends the model's chat template to *out; nothing when it has none. */
int convert_template(struct str *out, const struct convert_from *f, struct err *e) DS_CHECK;
/* Writes the template into DIR unless DIR already has one. */
int convert_write_template(const struct convert_from *f, const char *dir, struct err *e) DS_CHECK;
/* tokenizer.ggml.* and the chat template, with as many vocabulary rows as the embedding.  *differs:
 * where other programs tokenise differently, if at all. */
int convert_put_vocabulary(struct gguf_out *w, const struct convert_from *f, struct str *differs,
                           struct err *e) DS_CHECK;
/* tokenizer.bin of llama2.c.  1: written; 0: not representable in this format, *why gives the
 * reason. */
int convert_write_tokenizer_bin(const struct convert_from *f, const char *path, const char **why,
                                struct err *e) DS_CHECK;

#endif
