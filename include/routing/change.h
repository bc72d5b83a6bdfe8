/* How far a block moved each token, how much of that a small network foresaw, and what is usual.  Of pair p of states
 * orig (R,C), before the block, and post (R,C), behind it:
 *
 *     dx = post - orig        guess = net(orig), or (by_last) net(post of the row before), zeros where there is none
 *     D_st = mean_C dx^2      D_ch = mean_C (guess - dx)^2      MA = moving average of D_st over the document's last W rows
 *
 * Row i sees rows <= i of its document alone.  Whole passes begin a document where its position is 0 and at each sequence; a
 * cached one (pass.memory) goes on from what it remembers. */
#ifndef DS_ROUTING_CHANGE_H
#define DS_ROUTING_CHANGE_H

#include <stddef.h>

#include "base/arena.h"
#include "routing/prior.h"
#include "routing/route.h"

struct change_shape {
    int pairs;
    struct prior_shape net;
    int by_last;   /* the network reads the last token's state behind the block */
    int window;    /* W >= 1 rows, the present one included                     */
    int replicate; /* a document's first row stands in for those missing before it */
};
struct change {
    struct change_shape is;
    struct prior *prior; /* (pairs) */
    struct prior_room room;
    int R_max;
    double *d_st, *d_ch,
        *ma; /* (pairs,R) of the present pass, by pair * R + row; d_ch NaN without a guess */
    double *dd_st, *dd_ch; /* (R) in: d loss / d D_st, d loss / d D_ch of the pair at hand */
    double *error;         /* (pairs) mean of d_ch; 0 without a guess */
    int *guessed;          /* (pairs) */
    double *past;          /* (W - 1 + R) D_st: what is remembered, then this pass */
    real *guess, *dguess, *in, *din; /* (PRIOR_ROWS,C) */
    struct arena rows;               /* all rows of these */
};

/* Parameters "PREFIX.prior.2p...": layers are counted in pairs, and the network is the first one's. */
int change_init(struct change *x, struct params *ps, const char *prefix,
                const struct change_shape *shape, struct err *e) DS_CHECK;
int change_reserve(struct change *x, int R, struct err *e) DS_CHECK;
void change_release(struct change *x);
/* Bytes of pass.memory. */
size_t change_memory(const struct change *x);
/* Once for each pair of a pass. */
void change_measure(struct change *x, const struct pass *p, int pair, const real *orig,
                    const real *post, int wants_guess);

/* From dd_st and dd_ch, into dorig, dpost (R,C) and the network's gradients; everything accumulates. */
void change_bwd(struct change *x, const struct pass *p, int pair, real *dorig, real *dpost,
                const real *orig, const real *post);
/* Of the loss weight * mean_R D_ch, in which what happened is the target and held: post of prior = orig + guess for a
 * net(orig), dx of a guess by the last row.  dorig and dpost NULL: what the network reads is held too. */
void change_loss_bwd(struct change *x, const struct pass *p, int pair, double weight, real *dorig,
                     real *dpost, const real *orig, const real *post);

#endif
