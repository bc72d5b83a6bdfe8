/* Early-exit losses: in a training step the states after some layers go through the final norm and
 * the head too, and their cross-entropies are added (LayerSkip, 2404.16710, section 4.1.2; one head
 * for all exits).
 *
 * Exits k = 0..K-1 are the layers that exit_is_candidate allows, the last layer being k = K-1.  In
 * step t = 1..T those with C(t,k) = 1 have a loss, and the last always has; the weights are
 *     w(t,k) = C(t,k) e(k) / sum over i of C(t,i) e(i)
 *     rising   e(k) = s (0 + 1 + .. + k) for k < K-1,  e(K-1) = K-1 + s (0 + 1 + .. + K-2)
 *     equal    e(k) = s for k < K-1,                   e(K-1) = 1
 * with s = train.exit_scale.  rising is the paper's: e(0) = 0, so the first layer has no loss.
 *     all      C = 1
 *     rotate   k mod R = t mod R, R = train.exit_every
 *     gradual  from the last to the first, one more every T / (2K) steps: all from T / 2 on
 *     random   one k < K-1 with e(k) > 0, drawn from (seed, t)
 * A step's weights follow from the configuration and t alone, so that a resume repeats them. */
#ifndef DS_TRAINING_EXIT_LOSS_H
#define DS_TRAINING_EXIT_LOSS_H

#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"
#include "training/options.h"

/* weight (depth + 1): of h[l], as model.exit_weight; 0 = no loss.  Returns the number of exits
 * before the last layer. */
int exit_loss_weights(real *weight, const struct train_config *c, int64_t step);
/* Mean number of exits before the last layer per step, over the R steps from `step` on. */
double exit_loss_mean(const struct train_options *o, const struct model_config *c, int64_t step);
/* DS_ERANGE when exit losses are on and no layer can have one. */
int exit_loss_check(const struct train_config *c, struct err *e) DS_CHECK;

#endif
