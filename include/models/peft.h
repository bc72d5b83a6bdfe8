/* Adapters beside the model they belong to: directories as the library PEFT writes them, and their sum with the base. */
#ifndef DS_MODELS_PEFT_H
#define DS_MODELS_PEFT_H

#include "base/err.h"
#include "models/model.h"

/* ---- adapters as PEFT has them: adapter_config.json and adapter_model.safetensors ---- */

/* Does DIR hold adapters without a model of their own: adapter_config.json, but no config.json?  1 or 0. */
int peft_is_dir(const char *dir);
/* The model that they belong to, as model_locate has it: base_model_name_or_path, beside the directory or from here; or what
 * DEPTHSCOPE_BASE says.  DS_ENOTFOUND names both. */
int peft_base(const char *dir, char *base, size_t size, struct err *e) DS_CHECK;
/* Sets lora_* of c, the base model, as adapter_config.json says.  DS_EFORMAT names whatever is more than plain LoRA on
 * matrices of all blocks, DS_EUSAGE when c has adapters. */
int peft_config(struct model_config *c, const char *dir, struct err *e) DS_CHECK;
/* Can PEFT have m's adapters?  Not those on q, k, v of a GPT-2, which are one matrix there: DS_EUSAGE. */
int peft_check(const struct model *m, struct err *e) DS_CHECK;
/* Both files in DIR, which is there.  base: the path that is written for the base model.  DS_EUSAGE as above, and without
 * adapters. */
int peft_save(const struct model *m, const char *dir, const char *base, struct err *e) DS_CHECK;

/* ---- checkpoints without their base: PEFT's two files, own.safetensors with what else is not the base's, and the base's
 * place and fingerprint in config.json ---- */

struct base_ref {
    char path[1024]; /* absolute */
    char hash[17];   /* of the sizes of its files, their heads, and samples of the rest */
};
/* The base of MODEL (as model_locate gives it): of adapters or a checkpoint without a base that of theirs, else itself. */
int base_ref_make(struct base_ref *b, const char *model, struct err *e) DS_CHECK;
/* 1: DIR is adapters or a checkpoint without its base, and that is at `base`, unchanged as far as its fingerprint says;
 * 0: whatever DIR is, it is whole.  DS_ENOTFOUND and DS_EFORMAT say where the base was looked for and what helps. */
int model_base(const char *dir, char *base, size_t size, struct err *e) DS_CHECK;
/* All parameters that are not the base's, into a DIR that is there. */
int model_write_own(const struct model *m, const char *dir, const struct base_ref *base,
                    struct err *e) DS_CHECK;
/* config.json of such a checkpoint. */
int model_write_own_config(const struct model *m, const char *dir, const struct base_ref *base,
                           struct err *e) DS_CHECK;
/* Values of m's adapters, and from a checkpoint also of the method, that lie in such a DIR.  With told NULL every tensor is used
 * and every parameter found, shapes are compared and both are named; else what is not there in this shape stays as it is,
 * and one line of what was taken is appended. */
int model_read_own(struct model *m, const char *dir, struct str *told, struct err *e) DS_CHECK;
/* model_open for a DIR that model_base says 1 of. */
int model_open_apart(struct model **out, const char *dir, const char *base,
                     struct config *overrides, int train, struct err *e) DS_CHECK;
/* model_start_from for it. */
int model_start_apart(struct model *m, const char *dir, const char *base, struct str *told,
                      struct err *e) DS_CHECK;
/* model_coverage for it: one line. */
int model_apart_coverage(const char *dir, const char *base, struct str *out,
                         struct err *e) DS_CHECK;
int model_own_coverage(struct model *m, const char *dir, struct str *out, struct err *e) DS_CHECK;
/* Its shape as a whole, as model_config_from_json gives that of others; an empty c on failure. */
int model_apart_config(struct model_config *c, struct config *route, const char *dir,
                       const char *base, struct err *e) DS_CHECK;

/* ---- the sum ---- */

/* out (n, columns) = rows [row, row + n) of parameter i with its adapter added, W + scale B A, as a model without adapters has
 * them; any other parameter as model_values gives it.  Any thread. */
void model_values_merged(const struct model *m, int i, size_t row, size_t n, real *out);

#endif
