/* Low-rank adapters on the matrices of the blocks, and the parameters of the base that are trained
 * with them: model.lora_*. */
#ifndef DS_MODELS_ADAPTERS_H
#define DS_MODELS_ADAPTERS_H

#include "base/err.h"
#include "engine/real.h"
#include "models/config.h"

struct model;
struct pass;

/* One adapted matrix: indices into params; -1 = absent. */
struct adapter {
    int matrix, a, b;    /* (O,C), (r,C), (O,r) */
    int magnitude;       /* (O) of DoRA */
    int bias, base_bias; /* (O) of b; of the matrix itself */
    double scale;        /* of b a */
    real *gain, *norm;   /* (O) of DoRA, owned; gain also holds base_bias + scale bias; or NULL */
};

/* The matrices that may have adapters: name in model.lora_targets, and module name after
 * "model.layers.N.". */
enum { ADAPTER_TARGETS = 7 };
struct adapter_target {
    const char *name, *module;
};
extern const struct adapter_target adapter_target[ADAPTER_TARGETS];
/* Does a model of this shape have the target matrix? */
int adapters_has(const struct model_config *c, int target);

/* model.lora_targets is a list of [LAYERS.]NAME[:RANK[:ALPHA]], LAYERS as in "0-3+7": without them
 * all, lora_r and lora_alpha.  A later entry replaces an earlier one. */
struct adapter_spec {
    int64_t r; /* 0: no adapter */
    double alpha;
};
/* Owned (layers, ADAPTER_TARGETS), all 0 with lora_r = 0.  DS_EUSAGE, DS_ERANGE, DS_EMEM. */
int adapters_spec(struct adapter_spec **out, const struct model_config *c, struct err *e) DS_CHECK;
/* alpha / r, or alpha / sqrt(r) with model.lora_rslora. */
double adapters_scale(const struct model_config *c, const struct adapter_spec *s);

/* Checks that this shape has every target and that each is at least as large as the rank.
 * DS_EUSAGE, DS_ERANGE. */
int adapters_check(const struct model_config *c, struct err *e) DS_CHECK;
/* Parameters "....lora_A.weight", drawn from N(0, 1/(3C)) (the variance of U(-1/sqrt(C),
 * 1/sqrt(C))), "....lora_B.weight", zero, and, with the option, "....lora_B.bias", zero, and
 * "....lora_magnitude_vector" (see adapters_start), of all targets, into m->adapter.  DS_EUSAGE when
 * an entry of model.lora_save names nothing. */
int adapters_add(struct model *m, struct err *e) DS_CHECK;
void adapters_release(struct model *m);
/* The adapter on parameter `matrix`, or NULL. */
const struct adapter *adapters_find(const struct model *m, int matrix);
/* The adapter that parameter i belongs to, or NULL. */
const struct adapter *adapters_of(const struct model *m, int i);
/* Number of parameters in the table that belong to adapters. */
int adapters_params(const struct model *m);
/* Is the base's parameter i trained and stored with the adapters (model.lora_save,
 * model.lora_train_bias)?  Its values are then in memory, and those of the base are lost: a pass
 * with adapters_off uses it too. */
int adapters_saves(const struct model *m, int i);
int adapters_saves_module(const struct model *m, int i); /* because of model.lora_save */
/* Is it, or is it no parameter of the base at all? */
int adapters_is_own(const struct model *m, int i);
/* DoRA: magnitudes that were not read yet are NaN; sets those to the norms of W + scale B A, as an
 * adapter starts.  adapters_unset marks all. */
void adapters_unset(struct model *m);
void adapters_start(struct model *m);
/* Sets the adapters up for this pass: on unless pass->adapters_off; dropout in PASS_TRAIN only. */
void adapters_begin(struct model *m, const struct pass *pass);
/* Number of adapter weights; FLOPs per row of the adapters on q and o, on k and v, and in the MLP,
 * mean over layers. */
double adapters_weights(const struct model_config *c);
void adapters_flops(const struct model_config *c, double *qo, double *kv, double *mlp);
/* The same of executed layer l, into adapter_* of the shape. */
void adapters_layer_flops(const struct model *m, int l, struct flops_shape *s);
/* DS_EUSAGE when a matrix cannot take up its adapter: the bias of B needs one of the matrix. */
int adapters_check_merge(const struct model *m, struct err *e) DS_CHECK;

#endif
