/* What a router reads: the row's own state, the mean of its document so far, or the mean of the
 * document's first tokens, kept from then on.  All are causal; a document begins at position 0. */
#ifndef DS_ROUTING_PREFIX_H
#define DS_ROUTING_PREFIX_H

#include "base/err.h"
#include "engine/real.h"
#include "routing/route.h"

enum prefix_kind { PREFIX_TOKEN, PREFIX_MEAN, PREFIX_PROMPT };
#define PREFIX_CHOICES "token|prefix|prompt"

struct prefix {
    enum prefix_kind kind;
    int C, prompt; /* PREFIX_PROMPT: number of tokens in the mean */
    double *sum;   /* (2,C): of what all later rows see; that and the current private span */
};
int prefix_init(struct prefix *p, enum prefix_kind kind, int prompt, int C, struct err *e) DS_CHECK;
void prefix_release(struct prefix *p);
/* Bytes of pass.memory per sequence in cached inference. */
size_t prefix_memory(const struct prefix *p);
/* x (R,C) from h (R,C) of the current pass. */
void prefix_fwd(const struct prefix *p, real *x, const real *h, const struct pass *pass);
/* Backward: dh (R,C) += from dx (R,C).  Whole passes only. */
void prefix_bwd(const struct prefix *p, real *dh, const real *dx, const struct pass *pass);
/* Is row i one of the prompt rows in the mean?  For these no decision can be made yet. */
int prefix_is_prompt(const struct prefix *p, const struct pass *pass, int i);
/* The row whose decision row i shares: the first row of its document with PREFIX_PROMPT, else i.
 * Whole passes only. */
int prefix_owner(const struct prefix *p, const struct pass *pass, int i);
double prefix_flops(const struct prefix *p); /* per row */

#endif
