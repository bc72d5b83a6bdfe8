/* Shared by the loaders of models.  For this folder only. */
#ifndef DS_MODELS_LOAD_FILE_H
#define DS_MODELS_LOAD_FILE_H

#include "models/load.h"

/* Is MODEL a file of one of these formats, by its name (.gguf, .bin)?  1 or 0. */
int model_is_file(const char *path);
/* model_open for such a file.  The method is dense; the file's own names are mapped to ours. */
int model_open_file(struct model **out, const char *path, struct config *overrides, int train,
                    struct err *e) DS_CHECK;
int model_open_gguf(struct model **out, const char *path, struct config *overrides, int train,
                    struct err *e) DS_CHECK;
int model_open_llama2c(struct model **out, const char *path, struct config *overrides, int train,
                       struct err *e) DS_CHECK;
int model_config_open_file(struct model_config *c, const char *path, struct err *e) DS_CHECK;
int model_config_gguf(struct model_config *c, const char *path, struct err *e) DS_CHECK;
int model_config_llama2c(struct model_config *c, const char *path, struct err *e) DS_CHECK;

/* The seed of the run as text of digits, in a GGUF file. */
#define GGUF_SEED "depthscope.seed"

/* What our config.json stores besides options: the seed of random routing, and the capacity of passes
 * at inference (-1: none).  Both are removed from the options. */
struct load_extras {
    uint64_t seed;
    double capacity;
};
int load_take_extras(struct load_extras *x, struct config *options, const char *path,
                     struct err *e) DS_CHECK;

/* Value of model.KEY, checked like any other setting; `from` names its source for messages. */
int load_set_int(struct model_config *c, const char *key, int64_t v, const char *from,
                 struct err *e) DS_CHECK;
int load_set_real(struct model_config *c, const char *key, double v, const char *from,
                  struct err *e) DS_CHECK;
int load_set_text(struct model_config *c, const char *key, const char *v, const char *from,
                  struct err *e) DS_CHECK;
/* The values of m's base parameters, and those of adapters that DIR has: model_start_from but for the
 * start of the others. */
int load_values(struct model *m, const char *dir, struct str *note, struct err *e) DS_CHECK;
/* DS_EMEM with both sizes when m's in-memory values exceed the available memory. */
int load_check_memory(const struct model *m, const char *path, struct err *e) DS_CHECK;
/* Creates the model of *c (takes ownership) at its initial values; those that may stay in the file
 * have none.  Checks memory as above. */
int load_new(struct model **out, struct model_config *c, struct config *overrides, int train,
             const char *path, struct err *e) DS_CHECK;
/* Number of the layer in "model.layers.3.mlp.up_proj.weight", and what follows it; -1: not in a
 * layer. */
int load_layer(const char *param, const char **rest);
/* Rows of q or k (rows, C; C = 1: a bias) come in the interleaved order of rotary pairs, (2i, 2i+1)
 * of each head: put into the half-split order (i, i + head_dim/2) that the rest of the program
 * uses.  DS_EMEM. */
int load_split_pairs(real *w, int rows, int C, int head_dim, struct err *e) DS_CHECK;
/* Warns, naming the tensor, when values are not finite. */
void load_warn_odd(const char *path, const char *name, const real *w, size_t n);

#endif
