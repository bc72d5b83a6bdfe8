/* One score per row and layer, read from the residual stream by a small network per layer.
 *
 *     score (R) = net_l(x)      x = h[l], or h[l] / rms(h[l]) when normalised
 *
 * A row's score does not depend on the other rows of the call, not even in its last bit. */
#ifndef DS_ROUTING_SCORER_H
#define DS_ROUTING_SCORER_H

#include "base/arena.h"
#include "base/err.h"
#include "engine/param.h"
#include "routing/mlp.h"

struct scorer {
    struct mlp *net; /* (L); the networks share one set of buffers */
    int L, C, owner; /* owner of the buffers; -1 = no network */
    int normalize;
    real *x, *dx, *rstd, *ones; /* (R,C), (R,C), (R), (C); only when normalised */
    real *kept;                 /* (L, R_max, C) after scorer_keep */
    int R_max;
};
int scorer_init(struct scorer *s, int L, int C, int normalize, struct err *e) DS_CHECK;
/* Adds a network of this shape (the same for all layers) to layer l: parameters
 * "PREFIX.l.WHAT.K.weight", ".bias".  train 0: frozen. */
int scorer_add(struct scorer *s, struct params *ps, const char *prefix, const char *what, int l,
               const struct mlp_shape *shape, int train, struct err *e) DS_CHECK;
void scorer_layout(struct scorer *s, struct arena *a, int R);
void scorer_release(struct scorer *s);
/* score (R) from h (R,C). */
void scorer_fwd(struct scorer *s, int l, real *score, const real *h, int R);
/* For gradient checks of scores that are detached from the residual stream: keeps h of layer l, so
 * that scorer_rescore can score it again.  The first call allocates; failing to aborts. */
void scorer_keep(struct scorer *s, int l, const real *h, int R);
void scorer_rescore(struct scorer *s, int l, real *score, int R);
/* Accumulates into the parameters' gradients and, unless NULL, dh (R,C). */
void scorer_bwd(struct scorer *s, int l, real *dh, const real *dscore, const real *h, int R);
/* FLOPs per row of layer l. */
double scorer_flops(const struct scorer *s, int l);

/* The gate made from a score: the score; sigmoid; 2 sigmoid, which is 1 at score 0. */
enum score_gate { SCORE_RAW, SCORE_SIGMOID, SCORE_SIGMOID2 };
#define SCORE_GATES "raw|sigmoid|sigmoid2"
/* Never 0: a row that runs is a key for others, which a gate of 0 would deny. */
real score_gate(enum score_gate kind, real score);
real score_gate_slope(enum score_gate kind, real score); /* its derivative */

#endif
