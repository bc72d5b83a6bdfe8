/* Models on disk: a Hugging Face directory (config.json, model.safetensors), a GGUF or llama2.c file.  In use, and of a frozen
 * base, matrices stay in their files (models/stored.h). */
#ifndef DS_MODELS_LOAD_H
#define DS_MODELS_LOAD_H

#include "base/err.h"
#include "base/str.h"
#include "io/st_set.h"
#include "models/model.h"

/* What MODEL on the command line may name: a run (its best, else newest verified checkpoint), a checkpoint, a
 * directory.  Fills dir with the directory that holds config.json; DS_ENOTFOUND naming what was looked for. */
int model_locate(const char *model, char *dir, size_t size, struct err *e) DS_CHECK;
/* Reads config.json and the weights of DIR (model.safetensors, or the shards of its index; names and layouts as Llama, Qwen2,
 * Mistral or GPT-2 have them).  Overrides (may be NULL) replace method options ("edp.target_ratio").  Every tensor must be used and
 * every parameter found; shapes are compared and both are named; memory is estimated first, and refused with both figures. */
int model_open(struct model **out, const char *dir, struct config *overrides, int train,
               struct err *e) DS_CHECK;
/* The shape alone, of a directory or a file, and the method's options where there are such.  *c is the caller's. */
int model_config_open(struct model_config *c, struct config *route, const char *model,
                      struct err *e) DS_CHECK;
/* Its table of parameters alone, from config.json: model_reserve_values, and then values, make it a model. */
int model_open_table(struct model **out, const char *dir, struct config *overrides, int train,
                     struct err *e) DS_CHECK;
/* Appends one line: how many tensors of DIR are used, missing and unexpected, with the first names. */
int model_coverage(const char *dir, struct str *out, struct err *e) DS_CHECK;
/* Weights, from a file, an index or a directory; or, with optimizer, AdamW's moments, whose names end in ".m" and ".v". */
int model_read_weights(struct model *m, const char *path, int optimizer, struct err *e) DS_CHECK;
/* The same of an open set, which is taken (*s becomes NULL) where matrices stay in it. */
int model_take_set(struct model *m, struct st_set **s, struct err *e) DS_CHECK;
/* Weights are named and laid out as the family of the shape has them (models/names.h), moments as ours. */
int model_write_weights(const struct model *m, const char *path, int optimizer,
                        struct err *e) DS_CHECK;
/* Weights to start from: every tensor of the base model comes from DIR (or a file), which must hold no other (DS_EFORMAT
 * names what is missing, has another shape or has no place).  Adapters and the method's parameters are taken where DIR has them
 * in this shape, else they stay as they are; those of other methods are left.  Appends to *told one line: how many tensors are
 * taken, new and left, with names. */
int model_start_from(struct model *m, const char *dir, struct str *told, struct err *e) DS_CHECK;
/* config.json; `more` (may be NULL): entries beside the method's options. */
int model_write_config(const struct model *m, const char *path, struct err *e) DS_CHECK;
int model_write_config_with(const struct model *m, const struct config *more, const char *path,
                            struct err *e) DS_CHECK;

#endif
