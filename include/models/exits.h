/* What each token's prediction is when it leaves the model after a layer: final norm and head on the
 * states h[0..depth] of the last forward pass.  Nothing here has a gradient. */
#ifndef DS_MODELS_EXITS_H
#define DS_MODELS_EXITS_H

#include "models/model.h"

/* After model_forward, and after model_loss where that has a gradient.  Overwrites m->logits and
 * m->xf.  Where blocks follow a loop, nll, best and correct come from one more pass per exit (so not
 * inside a training step), which every token leaves there; the others are read without these
 * blocks, as a lens does. */
void model_exits(struct model *m, const struct exit_values *x);

/* The lens that methods are given (routing/route.h); its FLOPs are counted in m->flops. */
struct route_lens model_lens_of(struct model *m);

#endif
