/* How far a block moved each token, what a small network predicted of that, and a moving average.
 * For pair p, with the states orig (R,C) before the block and post (R,C) after it:
 *
 *     dx = post - orig
 *     guess = net(orig); with by_last net(post of the previous row), 0 at the start of a document
 *     D_st = mean_C dx^2      D_ch = mean_C (guess - dx)^2
 *     MA = moving average of D_st over the document's last W rows
 *
 * Row i sees only rows <= i of its own document, and of private spans only its own.  In a whole
 * pass a document begins at position 0 and at each sequence; a cached pass (pass.memory) continues
 * from the state it kept. */
#ifndef DS_ROUTING_CHANGE_H
#define DS_ROUTING_CHANGE_H

#include <stddef.h>

#include "base/arena.h"
#include "routing/prior.h"
#include "routing/route.h"

struct change_shape {
    int pairs;
    struct prior_shape net;
    int by_last;   /* the network reads the previous token's state after the block */
    int window;    /* W >= 1 rows, including the current one */
    int replicate; /* rows missing before a document's start count as its first row */
};
struct change {
    struct change_shape is;
    struct prior *prior; /* (pairs) */
    struct prior_scratch scratch;
    int R_max;
    double *d_st, *d_ch, *ma; /* (pairs,R) of the current pass; d_ch is NaN without a guess */
    double *dd_st, *dd_ch;    /* (R) in: d loss / d D_st and d D_ch of the current pair */
    double *error;            /* (pairs) mean of d_ch; 0 without a guess */
    int *guessed;             /* (pairs) */
    double *past;             /* (W - 1 + R) D_st: remembered rows, then those of this pass */
    real *guess, *dguess, *in, *din; /* (PRIOR_ROWS,C) */
};

/* Parameters "PREFIX.prior.2p...": the network of pair p is named after the pair's first layer. */
int change_init(struct change *x, struct params *ps, const char *prefix,
                const struct change_shape *shape, struct err *e) DS_CHECK;
void change_layout(struct change *x, struct arena *a, int rows);
void change_release(struct change *x);
/* Bytes of pass.memory per sequence. */
size_t change_memory(const struct change *x);
/* Called once per pair and pass. */
void change_measure(struct change *x, const struct pass *p, int pair, const real *orig,
                    const real *post, int wants_guess);

/* Backward of change_measure: reads dd_st and dd_ch; accumulates into dorig, dpost (R,C) and the
 * network's gradients. */
void change_bwd(struct change *x, const struct pass *p, int pair, real *dorig, real *dpost,
                const real *orig, const real *post);
/* Backward of the prior loss weight * mean_R D_ch.  Its target is a constant: dx with by_last, else
 * post, as prior = orig + guess.  With dorig and dpost NULL the network's input is a constant
 * too. */
void change_loss_bwd(struct change *x, const struct pass *p, int pair, double weight, real *dorig,
                     real *dpost, const real *orig, const real *post);

#endif
