/* One threshold for several layers that meets a capacity over all of them together: the layers keep the shares that their
 * scores give them.  From the table of routing/rank.h. */
#ifndef DS_ROUTING_CUT_H
#define DS_ROUTING_CUT_H

#include "routing/rank.h"

/* Share of layer l's scores above tau. */
double cut_share(const struct quantiles *q, int l, double tau);
/* The last answer: decoding asks at every token. */
struct cut {
    double capacity, tau;
    uint64_t version; /* 1 + that of the parameters; 0 = none */
};
/* For layers from..q->L-1; capacity 1 gives -infinity, 0 +infinity. */
double cut_common(struct cut *last, const struct quantiles *q, int from, double capacity);

#endif
