/* Which of the remaining tokens run in each layer: the k highest scores of linear routers in
 * training, those above a stored threshold at inference. */
#ifndef DS_ROUTING_SELECTOR_H
#define DS_ROUTING_SELECTOR_H

#include "routing/linear_router.h"
#include "routing/rank.h"

struct selector {
    struct linear_router router;
    struct quantiles table;
    /* the current pass */
    double capacity, noise;     /* share that runs; scale of the Gumbel noise in training */
    int whole;                  /* rank the whole batch instead of each document */
    int nan;                    /* NaN scores so far */
    double cut;                 /* threshold of the current layer; NaN when by rank */
    uint8_t *want, *here, *top; /* (R) chosen; not exited; chosen by rank without noise */
    real *row;                  /* (R) scratch; free for the caller between calls */
    double *excess;             /* (L) of the step: inference share - capacity; NaN = unknown */
    double *above, *seen;       /* (L) of the step: scores above the stored threshold, of so many */
};

/* Parameters: "PREFIX.router.weight|bias" and the buffers of routing/rank.h. */
int selector_init(struct selector *x, struct params *ps, const char *prefix, int L, int C,
                  double gain, struct err *e) DS_CHECK;
void selector_layout(struct selector *x, struct arena *a, int R);
void selector_release(struct selector *x);
void selector_begin(struct selector *x, int R);
/* Sets which tokens remain: those with alive[i] > 0. */
void selector_update(struct selector *x, const real *alive);
/* Sets want from the scores of layer l (linear_router_fwd): by rank in training and with
 * inference.topk, else by threshold. */
void selector_choose(struct selector *x, const struct route *r, int l);
/* What training passes count, and what becomes of it after the step (routing/rank.h). */
void selector_counts(struct selector *x, route_count_fn *each, void *ctx);
void selector_learn(struct selector *x, double ema);
/* Sets top: chosen by rank without noise, ignoring forced cells. */
void selector_rank(struct selector *x, const struct route *r, int l);
/* First layer that has no threshold for this capacity, or -1; 0 and 1 need none. */
int selector_unknown(const struct selector *x, double capacity);

#endif
