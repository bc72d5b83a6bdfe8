/* One number per row and layer, read from the stream: a small network for each layer that has one.
 *
 *     score (R) = net_l(x)      x = h[l], or h[l] / rms(h[l]) when normalised
 *
 * A row's score has the same bits whichever other rows are in the call. */
#ifndef DS_ROUTING_SCORER_H
#define DS_ROUTING_SCORER_H

#include "base/arena.h"
#include "base/err.h"
#include "engine/param.h"
#include "routing/mlp.h"

struct scorer {
    struct mlp *net; /* (L) of the layers that have one; they share one set of buffers */
    int L, C, owner; /* whose buffers; -1 = no network at all */
    int normalise;
    struct arena rows;
    real *x, *dx, *rstd, *ones; /* (R,C), (R,C), (R), (C); only when normalised */
    real *held;                 /* (L, R_max, C) after scorer_hold                        */
    int R_max;
};
int scorer_init(struct scorer *s, int L, int C, int normalise, struct err *e) DS_CHECK;
/* Layer l gets a network of this shape (the same for all layers): parameters "PREFIX.l.WHAT.K.weight", ".bias".  train 0: held. */
int scorer_add(struct scorer *s, struct params *ps, const char *prefix, const char *what, int l,
               const struct mlp_shape *shape, int train, struct err *e) DS_CHECK;
int scorer_reserve(struct scorer *s, int R, struct err *e) DS_CHECK;
void scorer_release(struct scorer *s);
/* score (R) from h (R,C). */
void scorer_fwd(struct scorer *s, int l, real *score, const real *h, int R);
/* For gradient checks of scores that are detached from the stream: keeps h of layer l, and scores what was kept.  The first call
 * takes the memory; without any the program ends. */
void scorer_hold(struct scorer *s, int l, const real *h, int R);
void scorer_again(struct scorer *s, int l, real *score, int R);
/* Accumulates into the parameters' gradients and, unless NULL, dh (R,C). */
void scorer_bwd(struct scorer *s, int l, real *dh, const real *dscore, const real *h, int R);
/* Per row of layer l. */
double scorer_flops(const struct scorer *s, int l);

/* A multiplier made from a score: itself; sigmoid; 2 sigmoid, which is 1 at 0. */
enum score_gate { SCORE_RAW, SCORE_SIGMOID, SCORE_SIGMOID2 };
#define SCORE_GATES "raw|sigmoid|sigmoid2"
/* Never 0: a row that runs is a key of others, and says so by its gate. */
real score_gate(enum score_gate kind, real score);
real score_gate_slope(enum score_gate kind, real score); /* its derivative */

#endif
