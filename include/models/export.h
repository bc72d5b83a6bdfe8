/* A model as files of other programs: GGUF, a Hugging Face directory, llama2.c.  Rows are fetched, rounded and written a few
 * at a time: what is held of the weights is never more than one tensor. */
#ifndef DS_MODELS_EXPORT_H
#define DS_MODELS_EXPORT_H

#include "base/str.h"
#include "io/gguf_write.h"
#include "models/model.h"

struct export_source {
    const struct model *m; /* its table, and its numbers by model_values, or: */
    int is_random;         /* those that model_new would draw; m has no values then */
    uint64_t seed;
    int base_only; /* without what a method and adapters add */
    int is_merged; /* with base_only: what adapters add is in the matrices they are on */
};

struct export_options {
    uint32_t
        type; /* enum gguf_type of the matrices; F32, F16, BF16 for a directory; llama2.c is F32 */
    int keep; /* GGUF: matrices that lie in a GGUF file have the types there, `type` is for the rest */
    const char *name;     /* general.name */
    uint64_t shard_bytes; /* of a directory; above 0 */
    /* Writes the vocabulary's metadata; may be NULL. */
    int (*vocabulary)(struct gguf_out *w, void *ctx, struct err *e);
    /* Called now and then with the weights written and all; 1 gives up (DS_ESTOP).  May be NULL. */
    int (*progress)(void *ctx, double done, double all);
    void *ctx;
};

struct export_result {
    uint64_t bytes, tensors, files;
    uint32_t type;     /* of GGUF: the one asked for; with `keep` the one of most weights */
    int fell_back;     /* matrices whose rows are no whole blocks of the type */
    char fallback[48]; /* what they were written as: "f16 2, q8_0 1" */
    uint32_t
        head_type; /* of embedding and head, where it is another one than asked for: else the type */
};

/* PATH, whole or not at all.  What the format cannot hold is refused by name (DS_EUSAGE, DS_ERANGE), as is a value that a type
 * cannot (DS_ENUMERIC, DS_ERANGE naming the tensor), and a disk without room (DS_EIO with both figures). */
int export_gguf(const struct export_source *s, const struct export_options *o, const char *path,
                struct export_result *r, struct err *e) DS_CHECK;
int export_llama2c(const struct export_source *s, const struct export_options *o, const char *path,
                   struct export_result *r, struct err *e) DS_CHECK;
/* Into the existing empty directory DIR: config.json, model.safetensors or its shards and their index; files are fsynced. */
int export_hf(const struct export_source *s, const struct export_options *o, const char *dir,
              struct export_result *r, struct err *e) DS_CHECK;
/* Why the formats of one file cannot hold the model: DS_EUSAGE, or 0. */
int export_check_base(const struct export_source *s, const char *format, struct err *e) DS_CHECK;

/* How many types the base's matrices that lie in a GGUF file have there, 0 when none does; text, e.g. "q4_k 14, q6_k 1",
 * counts the matrices of each.  *blocks (may be NULL): how many of the types are blocks, not plain numbers. */
int export_own_types(const struct export_source *s, int *blocks, char *text, size_t size);
/* "f32", "q4_k", ... as a type that can be written; DS_EUSAGE naming those there are. */
int export_type(uint32_t *type, const char *name, struct err *e) DS_CHECK;
/* "f32|f16|bf16|q8_0|..." */
void export_type_names(struct str *out);

#endif
