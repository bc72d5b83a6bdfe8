/* One threshold for several layers that meets a capacity over all of them together, so each layer
 * keeps the share that its scores give it.  Uses the tables of routing/rank.h. */
#ifndef DS_ROUTING_CUT_H
#define DS_ROUTING_CUT_H

#include "routing/rank.h"

/* Estimated share of layer l's scores above tau. */
double cut_share(const struct quantiles *q, int l, double tau);
/* Cache of the last result: decoding asks once per token. */
struct cut {
    double capacity, tau;
    uint64_t version; /* 1 + the parameters' version; 0 = empty */
};
/* Over layers from..q->L-1; capacity 1 gives -infinity, 0 +infinity. */
double cut_common(struct cut *last, const struct quantiles *q, int from, double capacity);

#endif
