/* What looped blocks add to the executor: which keys and values of an iteration are still those of
 * the one before.
 *
 * The blocks of a loop have the same weights in every iteration, so a row whose state has not
 * changed since a block last computed its keys and values would compute the same ones again.  Such
 * a row is settled: a halted token costs nothing from its second idle iteration on, and the results
 * are those of computing everything. */
#ifndef DS_MODELS_LOOP_H
#define DS_MODELS_LOOP_H

#include "models/model.h"

/* Lays out m->loop for R rows. */
void loop_layout(struct model *m, struct arena *a, size_t R);
/* A new pass: nothing is settled. */
void loop_begin(struct model *m);
/* After the decision of layer l, before it runs: sets p->settled. */
void loop_settle(struct model *m, int l, struct plan *p);
/* After it ran; ffn: of a split layer, else NULL. */
void loop_note(struct model *m, int l, const struct plan *p, const struct plan *ffn);

/* Iterations of this pass: model.loop, or drawn for a training step. */
int loop_iterations(const struct model *m, const struct pass *pass);

/* Does layer l begin an iteration whose input x is not the state itself:
 * x = norm(h) (model.loop_norm) + h before the loop (model.loop_inject)? */
int loop_enters(const struct model *m, int l);
/* Does that x begin with the norm?  The final norm as the loop's spares the first iteration. */
int loop_norms(const struct model *m, int l);
/* The state before the loop when it is added, else NULL; and its gradient. */
const real *loop_injected(const struct model *m);
real *loop_injected_grad(const struct model *m);

/* Does layer l of this pass take the keys and values of settled rows from the iteration before? */
int loop_shares(const struct model *m, int l, const struct plan *p);
/* The keys and values (R, K*D) of the stored block of layer l that all iterations share. */
void loop_keys(struct model *m, int l, real **k, real **v);
/* Lists the rows whose keys and values, or queries, layer l must compute: m->loop.row (returned
 * count, ascending) and, for each row of the plan, its index in that list: m->loop.query. */
int loop_fresh(struct model *m, const struct plan *p);

#endif
