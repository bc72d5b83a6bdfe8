/* Low-rank adapters on the matrices of the blocks: model.lora_r, lora_alpha, lora_dropout, lora_targets. */
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

/* The matrices that may have adapters: their names in model.lora_targets and behind "model.layers.N.". */
enum { ADAPTER_TARGETS = 7 };
struct adapter_target {
    const char *name, *module;
};
extern const struct adapter_target adapter_target[ADAPTER_TARGETS];
/* Has a model of this shape the target at all? */
int adapters_has(const struct model_config *c, int target);

/* Are the targets names of matrices that this shape has, and no smaller than the rank?  DS_EUSAGE, DS_ERANGE. */
int adapters_check(const struct model_config *c, struct err *e) DS_CHECK;
/* Parameters "....lora_A.weight", drawn from N(0, 1/(3C)) (the variance of U(-1/sqrt(C), 1/sqrt(C))), and "....lora_B.weight",
 * zero, of all targets, into m->adapter. */
int adapters_add(struct model *m, struct err *e) DS_CHECK;
/* The adapter on parameter `matrix`, or NULL. */
const struct adapter *adapters_find(const struct model *m, int matrix);
/* For this pass: on unless pass->adapters_off; inputs are dropped in PASS_TRAIN only. */
void adapters_begin(struct model *m, const struct pass *pass);
/* Weights of all adapters, and FLOPs a row costs in those of one layer's q and o, k and v, mlp. */
double adapters_weights(const struct model_config *c);
void adapters_flops(const struct model_config *c, double *qo, double *kv, double *mlp);

#endif
