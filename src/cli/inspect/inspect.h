/* Parts of `depthscope inspect`: one function per kind of file or directory. */
#ifndef DS_CLI_INSPECT_H
#define DS_CLI_INSPECT_H

#include "cli/cli.h"

/* Output: text for a terminal, or one JSON object per call. */
struct inspect {
    struct str *out;
    int json;
};
/* Appends the contents of a file or directory; DS_* when it is not of the expected kind. */
typedef int inspect_fn(const char *path, struct inspect *x, struct err *e);
inspect_fn inspect_path, inspect_records;
/* Weights: safetensors (a file, or an index with its shards), GGUF, llama2.c. */
inspect_fn inspect_tensors, inspect_gguf, inspect_llama2c;
/* A directory with config.json; one with adapter_config.json; a tokenizer in any of its forms. */
inspect_fn inspect_model, inspect_adapter, inspect_tokenizer;

/* --follow and --until: prints lines until the run ends or the condition holds.  DS_ENOTFOUND: it
 * ended without the condition; DS_ESTOP: the time limit passed. */
int inspect_follow(const char *path, const struct cli_args *a, struct err *e) DS_CHECK;

/* Text from a file, sanitised and truncated. */
void inspect_safe(struct str *out, const char *text);
/* Opens an object of this kind: {"kind":KIND,"path":PATH */
void inspect_begin(struct inspect *x, const char *kind, const char *path);
void inspect_shape(struct str *out, const uint64_t *shape, int rank);

#endif
