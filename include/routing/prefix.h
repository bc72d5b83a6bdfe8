/* What a decision reads of its document: the row's own state, the mean of the states so far, or the mean of the first ones,
 * held from then on.  All are causal; a document begins where its position is 0. */
#ifndef DS_ROUTING_PREFIX_H
#define DS_ROUTING_PREFIX_H

#include "base/err.h"
#include "engine/real.h"
#include "routing/route.h"

enum prefix_kind { PREFIX_TOKEN, PREFIX_MEAN, PREFIX_PROMPT };
#define PREFIX_CHOICES "token|prefix|prompt"

struct prefix {
    enum prefix_kind kind;
    int C, prompt; /* PREFIX_PROMPT: tokens whose mean is held */
    double *sum;   /* (C) */
};
int prefix_init(struct prefix *p, enum prefix_kind kind, int prompt, int C, struct err *e) DS_CHECK;
void prefix_release(struct prefix *p);
/* Bytes of pass.memory that cached use needs. */
size_t prefix_memory(const struct prefix *p);
/* x (R,C) from h (R,C) of the present pass. */
void prefix_fwd(const struct prefix *p, real *x, const real *h, const struct pass *pass);
/* dh (R,C) += what dx (R,C) says of it; whole passes only. */
void prefix_bwd(const struct prefix *p, real *dh, const real *dx, const struct pass *pass);
/* Is row i among those that the held mean is made of?  No decision can be asked for them yet. */
int prefix_is_prompt(const struct prefix *p, const struct pass *pass, int i);
/* Rows of one decision: that of the document's first row when it is held, else the row itself. */
int prefix_owner(const struct prefix *p, const struct pass *pass, int i);
double prefix_flops(const struct prefix *p); /* per row */

#endif
