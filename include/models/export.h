/* Exports a model as GGUF, a Hugging Face directory or llama2.c.  Rows are read, converted and
 * written a few at a time: at most one tensor of the weights is in memory. */
#ifndef DS_MODELS_EXPORT_H
#define DS_MODELS_EXPORT_H

#include "base/str.h"
#include "io/gguf_write.h"
#include "models/model.h"

struct export_source {
    const struct model *m; /* its parameter table, and values through model_values, unless: */
    int is_random;         /* values are those that model_new would draw; m has none */
    uint64_t seed;
    int base_only; /* without the method's and adapters' parameters */
    int is_merged; /* with base_only: adapters are merged into their matrices */
};

struct export_options {
    uint32_t
        type; /* enum gguf_type of the matrices; F32, F16, BF16 for a directory; llama2.c is F32 */
    int keep; /* GGUF: matrices stored in a GGUF file keep their types, `type` is for the rest */
    const char *name;     /* general.name */
    uint64_t shard_bytes; /* of a directory; above 0 */
    /* Writes the vocabulary's metadata; may be NULL. */
    int (*vocabulary)(struct gguf_out *w, void *ctx, struct err *e);
    /* Called periodically with the number of weights written and the total; 1 stops (DS_ESTOP).
     * May be NULL. */
    int (*progress)(void *ctx, double done, double all);
    void *ctx;
};

struct export_result {
    uint64_t bytes, tensors, files;
    uint32_t type;      /* GGUF: the requested type; with `keep` the type of most weights */
    int fallback_n;     /* matrices whose row length is not a multiple of the block size */
    char fallback[48];  /* the types used instead: "f16 2, q8_0 1" */
    uint32_t head_type; /* of embedding and head; differs from `type` where they fell back */
};

/* Writes PATH atomically.  DS_EUSAGE or DS_ERANGE naming what the format cannot store; DS_ENUMERIC
 * or DS_ERANGE naming a tensor whose values the type cannot represent; DS_EIO when the disk is
 * full, with both sizes. */
int export_gguf(const struct export_source *s, const struct export_options *o, const char *path,
                struct export_result *r, struct err *e) DS_CHECK;
int export_llama2c(const struct export_source *s, const struct export_options *o, const char *path,
                   struct export_result *r, struct err *e) DS_CHECK;
/* Into the existing empty directory DIR: config.json, model.safetensors or its shards and their
 * index; files are fsynced. */
int export_hf(const struct export_source *s, const struct export_options *o, const char *dir,
              struct export_result *r, struct err *e) DS_CHECK;
/* 0 when single-file formats can store the model; else DS_EUSAGE with the reason.  newer: one of
 * the architectures beyond llama and qwen2, which have their own rules. */
int export_check_base(const struct export_source *s, const char *format, int newer,
                      struct err *e) DS_CHECK;

/* Number of distinct types of the base matrices stored in a GGUF file, 0 when none is; text, e.g.
 * "q4_k 14, q6_k 1", counts the matrices of each.  *blocks (may be NULL): how many of the types are
 * quantised. */
int export_stored_types(const struct export_source *s, int *blocks, char *text, size_t size);
/* The writable type called "f32", "q4_k", ...; DS_EUSAGE listing the valid names. */
int export_type(uint32_t *type, const char *name, struct err *e) DS_CHECK;
/* "f32|f16|bf16|q8_0|..." */
void export_type_names(struct str *out);

#endif
