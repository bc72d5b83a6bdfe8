/* A mixture of experts in the place of a block's MLP: each row runs its k best experts, whose
 * outputs are added with the router's weights.  The rows of an expert are listed like those of a
 * plan, and nothing else of it is computed or read.  Choices after the last expert are no-ops
 * (integrated Mixture-of-Depths-and-Experts, Raposo et al. 2024): they have a score and a weight,
 * and add nothing. */
#ifndef DS_MODELS_MOE_H
#define DS_MODELS_MOE_H

#include "models/block.h"

/* The matrices of expert i of a block as parameters: gate (-1: the activation has none), up, down. */
void moe_expert(const struct model *m, const struct block_params *b, int i, int at[3]);
/* Is parameter i a router?  Routers are small: they stay in memory, in fp32. */
int moe_is_router(const struct model *m, int i);
/* f = experts(w->un) of the plan's rows, or f += with beta 1.  With route.frozen the choice of the
 * last pass is repeated. */
void moe_fwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *f,
             real beta);
/* df: d loss / d f; sets d->un, and adds the gradient of the load-balancing loss. */
void moe_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
             const struct block_work *w, const real *df);

/* Before a pass; after layer l ran (not when it is recomputed). */
void moe_begin(struct model *m);
void moe_note(struct model *m, int l, const struct plan *p, const struct block_work *w);
/* The load-balancing loss of the pass without its weight (Fedus et al. 2021, eq. 4), the mean over the
 * layers that ran, or over the rows of all layers together: sum_e (rows of e / rows) (mean score of e)
 * / share of e.  The shares are 1 / E; with model.noop_share they are that share together for the
 * no-ops, and the rest for the experts. */
double moe_balance(const struct model *m);
/* Before backward: prepares its gradient; returns the loss with its weight, 0 when it is off. */
double moe_balance_begin(struct model *m);

void moe_layout(struct model *m, struct arena *a, size_t R);
void moe_work_alloc(struct moe_work *w, struct arena *a, const struct model_config *c, int R);
/* DS_EFORMAT naming a router whose values are not finite. */
int moe_check_routers(const struct model *m, struct err *e) DS_CHECK;

#endif
