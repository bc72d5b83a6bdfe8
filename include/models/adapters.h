/* Low-rank adapters on the matrices of the blocks: model.lora_r, lora_alpha, lora_dropout,
 * lora_targets. */
#ifndef DS_MODELS_ADAPTERS_H
#define DS_MODELS_ADAPTERS_H

#include "base/err.h"
#include "models/config.h"

struct model;
struct pass;

/* One adapted matrix: indices into params. */
struct adapter {
    int matrix, a, b; /* (O,C), (r,C), (O,r) */
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

/* Checks that this shape has every target and that each is at least as large as the rank.
 * DS_EUSAGE, DS_ERANGE. */
int adapters_check(const struct model_config *c, struct err *e) DS_CHECK;
/* Parameters "....lora_A.weight", drawn from N(0, 1/(3C)) (the variance of U(-1/sqrt(C),
 * 1/sqrt(C))), and "....lora_B.weight", zero, of all targets, into m->adapter. */
int adapters_add(struct model *m, struct err *e) DS_CHECK;
/* The adapter on parameter `matrix`, or NULL. */
const struct adapter *adapters_find(const struct model *m, int matrix);
/* Sets the adapters up for this pass: on unless pass->adapters_off; dropout in PASS_TRAIN only. */
void adapters_begin(struct model *m, const struct pass *pass);
/* Number of adapter weights; FLOPs per row of one layer's adapters on q and o, on k and v, and in
 * the MLP. */
double adapters_weights(const struct model_config *c);
void adapters_flops(const struct model_config *c, double *qo, double *kv, double *mlp);

#endif
