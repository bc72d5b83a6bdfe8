/* Whose turn it is in each layer, of those who are still there: the k highest scores of linear routers in training, those
 * above a stored threshold in use. */
#ifndef DS_ROUTING_SELECTOR_H
#define DS_ROUTING_SELECTOR_H

#include "routing/linear_router.h"
#include "routing/rank.h"

struct selector {
    struct linear_router router;
    struct quantiles table;
    /* the present pass */
    double capacity, noise; /* share wanted; Gumbel noise on training's scores, its scale */
    int whole;              /* ranks go over the batch, not over documents                */
    int nan;                /* scores that were NaN so far                                */
    double cut;             /* what the present layer's scores were compared with; NaN by rank */
    uint8_t *want, *here, *top; /* (R) chosen; still there; chosen by rank without noise      */
    real *row;                  /* (R) free for the caller between calls                      */
    double *
        excess; /* (L) running: share the causal rule would run, less the capacity; NaN = unknown */
};

/* Params: "PREFIX.router.weight|bias" and the buffers of routing/rank.h. */
int selector_init(struct selector *x, struct params *ps, const char *prefix, int L, int C,
                  double gain, struct err *e) DS_CHECK;
int selector_reserve(struct selector *x, int R, struct err *e) DS_CHECK;
void selector_release(struct selector *x);
void selector_begin(struct selector *x, int R);
/* Who is there: alive[i] > 0. */
void selector_see(struct selector *x, const real *alive);
/* From the scores of layer l (linear_router_fwd) to want.  By rank in training and with pass.topk; else by threshold. */
void selector_choose(struct selector *x, const struct route *r, int l, double ema);
/* top: chosen by rank without noise, forced or not. */
void selector_rank(struct selector *x, const struct route *r, int l);
/* First layer without a threshold for a capacity strictly between 0 and 1, or -1. */
int selector_unknown(const struct selector *x, double capacity);

#endif
