/* Adapters stored apart from their base model: PEFT directories, checkpoints without the base, and
 * merging. */
#ifndef DS_MODELS_PEFT_H
#define DS_MODELS_PEFT_H

#include "base/err.h"
#include "models/model.h"

/* ---- PEFT's format: adapter_config.json and adapter_model.safetensors ---- */

/* 1 when DIR holds only adapters: adapter_config.json, but neither a whole model nor a checkpoint
 * without its base, which are a config.json with weights; else 0.  Some trainers copy the base's
 * config.json next to the adapters. */
int peft_is_dir(const char *dir);
/* Their base model, resolved by model_locate: $DEPTHSCOPE_BASE, else base_model_name_or_path,
 * relative to the directory or to the current one.  DS_ENOTFOUND names both. */
int peft_base(const char *dir, char *base, size_t size, struct err *e) DS_CHECK;
/* Sets lora_* of c, the base model's configuration, from adapter_config.json, and tied = 0 when
 * modules_to_save part a tied embedding and head.  DS_EFORMAT names key and value of whatever goes
 * beyond LoRA and DoRA on matrices of blocks, with biases and whole modules of the base; DS_EUSAGE
 * when c already has adapters. */
int peft_config(struct model_config *c, const char *dir, struct err *e) DS_CHECK;
/* DS_EUSAGE when PEFT's format cannot store m's adapters: those on a part of a matrix (q, k, v of a
 * GPT-2), or a saved matrix that is transposed there. */
int peft_check(const struct model *m, struct err *e) DS_CHECK;
/* Writes both files into the existing DIR.  base: the path recorded for the base model.  DS_EUSAGE
 * as above, and without adapters. */
int peft_save(const struct model *m, const char *dir, const char *base, struct err *e) DS_CHECK;

/* ---- checkpoints without their base: PEFT's two files, own.safetensors with the other parameters
 * that are not the base's, and the base's path and fingerprint in config.json ---- */

struct base_ref {
    char path[1024]; /* absolute */
    char hash[17];   /* fingerprint of its files: sizes, first bytes, and samples of the rest */
};
/* The base of MODEL (as resolved by model_locate): for adapters or a checkpoint without its base
 * that base, else MODEL itself. */
int base_ref_make(struct base_ref *b, const char *model, struct err *e) DS_CHECK;
/* 1: DIR is adapters or a checkpoint without its base; `base` is that base, its fingerprint
 * verified.  0: DIR is self-contained.  DS_ENOTFOUND and DS_EFORMAT name the places searched and a
 * remedy. */
int model_base(const char *dir, char *base, size_t size, struct err *e) DS_CHECK;
/* Writes all parameters that are not the base's into the existing DIR. */
int model_write_own(const struct model *m, const char *dir, const struct base_ref *base,
                    struct err *e) DS_CHECK;
/* config.json of such a checkpoint. */
int model_write_own_config(const struct model *m, const char *dir, const struct base_ref *base,
                           struct err *e) DS_CHECK;
/* Reads the adapters, and from a checkpoint also the method's parameters, from such a DIR.  With
 * note NULL every tensor must be used and every parameter found, and a shape mismatch names both
 * shapes; else parameters not found in this shape keep their values, and one line about what was
 * read is appended. */
int model_read_own(struct model *m, const char *dir, struct str *note, struct err *e) DS_CHECK;
/* model_open for a DIR for which model_base returns 1. */
int model_open_adapted(struct model **out, const char *dir, const char *base,
                       struct config *overrides, int train, struct err *e) DS_CHECK;
/* The values of its base, then its own: model_start_from but for the start of adapters. */
int model_start_adapted(struct model *m, const char *dir, const char *base, struct str *note,
                        struct err *e) DS_CHECK;
/* model_tensor_match for it: one line. */
int model_adapted_tensor_match(const char *dir, const char *base, struct str *out,
                               struct err *e) DS_CHECK;
int model_own_tensor_match(struct model *m, const char *dir, struct str *out,
                           struct err *e) DS_CHECK;
/* Its complete configuration, as model_config_from_json returns for self-contained models; c is
 * empty on failure. */
int model_adapted_config(struct model_config *c, struct config *route, const char *dir,
                         const char *base, struct err *e) DS_CHECK;

/* ---- merging ---- */

/* out (n, columns) = rows [row, row + n) of parameter i with its adapter merged, W + scale B A, in
 * DoRA with rows of the trained norms; other parameters as model_values returns them.  Any thread. */
void model_values_merged(const struct model *m, int i, size_t row, size_t n, real *out);

#endif
