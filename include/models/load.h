/* Models on disk: a Hugging Face directory (config.json, model.safetensors), a GGUF or llama2.c
 * file.  At inference, and for a frozen base, matrices stay in their files (models/stored.h). */
#ifndef DS_MODELS_LOAD_H
#define DS_MODELS_LOAD_H

#include "base/err.h"
#include "base/str.h"
#include "io/st_set.h"
#include "models/model.h"

/* What MODEL on the command line may name: a run (its best, else newest verified checkpoint), a
 * checkpoint, a directory.  Fills dir with the directory that holds config.json; DS_ENOTFOUND
 * naming the places searched. */
int model_locate(const char *model, char *dir, size_t size, struct err *e) DS_CHECK;
/* Reads config.json and the weights of DIR (model.safetensors, or the shards of its index; names
 * and layouts of Llama, Qwen2, Mistral or GPT-2).  Overrides (may be NULL) replace method options
 * ("edp.target_ratio").  Every tensor must be used and every parameter found; a shape mismatch
 * names both shapes; DS_EMEM names the estimated and the available memory. */
int model_open(struct model **out, const char *dir, struct config *overrides, int train,
               struct err *e) DS_CHECK;
/* Only the configuration of a directory or a file, and the method's options if present.  The caller
 * releases *c, and *route in any case: options may have been read before what is wrong. */
int model_config_open(struct model_config *c, struct config *route, const char *model,
                      struct err *e) DS_CHECK;
/* Only the parameter table, from config.json; model_reserve_values and loading values complete the
 * model. */
int model_open_table(struct model **out, const char *dir, struct config *overrides, int train,
                     struct err *e) DS_CHECK;
/* Appends one line: the number of tensors of DIR that are used, missing and unexpected, with the
 * first names. */
int model_tensor_match(const char *dir, struct str *out, struct err *e) DS_CHECK;
/* Reads weights from a file, an index or a directory; with optimizer, AdamW's moments, whose names
 * end in ".m" and ".v". */
int model_read_weights(struct model *m, const char *path, int optimizer, struct err *e) DS_CHECK;
/* The same from an open set; takes ownership (*s becomes NULL) if matrices stay in it. */
int model_take_set(struct model *m, struct st_set **s, struct err *e) DS_CHECK;
/* Weights use the names and layout of the model's family (models/formats/names.h), moments our
 * own. */
int model_write_weights(const struct model *m, const char *path, int optimizer,
                        struct err *e) DS_CHECK;
/* Initialises from DIR (or a file): every tensor of the base model must be there and no other
 * (DS_EFORMAT names missing, misshaped and unexpected ones).  Adapters and the method's parameters
 * are read where DIR has them in this shape, else they keep their values; those of other methods
 * are ignored.  Appends to *note one line: how many tensors are read, new and ignored, with
 * names. */
int model_start_from(struct model *m, const char *dir, struct str *note, struct err *e) DS_CHECK;
/* config.json; `more` (may be NULL): entries in addition to the method's options. */
int model_write_config(const struct model *m, const char *path, struct err *e) DS_CHECK;
int model_write_config_with(const struct model *m, const struct config *more, const char *path,
                            struct err *e) DS_CHECK;

#endif
