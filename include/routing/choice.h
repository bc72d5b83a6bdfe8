/* Which rows of a layer run, by their scores: the k highest of each document in training (not causal), those above a stored
 * quantile in use; or those above a fixed value in both; or by lot.  What the pass forces is obeyed. */
#ifndef DS_ROUTING_CHOICE_H
#define DS_ROUTING_CHOICE_H

#include "base/arena.h"
#include "routing/rank.h"
#include "routing/route.h"

enum choice_kind { CHOICE_RANK, CHOICE_FIXED, CHOICE_LOT };
struct choice_rule {
    enum choice_kind kind;
    double capacity; /* share of a document's rows, where the pass asks for none        */
    double fixed;    /* CHOICE_FIXED: a row runs where its score is above               */
    double neutral;  /* stands in for a quantile before there is one; NaN: nothing does */
    double offset;   /* added to thresholds of use, in deviations of the score          */
};
struct choice {
    struct quantiles quantiles;
    real *score;       /* (R) in: what is compared           */
    uint8_t *want;     /* (R) out: 1 runs, 0 does not        */
    real *weight;      /* (R) out: 0 = forced, else 1        */
    uint8_t *target;   /* (R) choice_target's                */
    double threshold;  /* out: what scores were or would be compared with in use */
    int nan;           /* out: scores that were no number    */
    struct arena rows; /* all of these                       */
};

int choice_init(struct choice *c, struct params *ps, const char *prefix, int L,
                struct err *e) DS_CHECK;
int choice_reserve(struct choice *c, int R, struct err *e) DS_CHECK;
void choice_release(struct choice *c);
/* Of layer l, from c->score; training passes are noted for the stored quantiles.  A score that is no number is chosen last
 * by rank, and above a threshold only where everything runs. */
void choice_make(struct choice *c, const struct route *r, const struct choice_rule *rule, int l);
/* c->target: what rank would choose of c->score, forced cells or not. */
void choice_target(struct choice *c, const struct route *r, const struct choice_rule *rule);
/* A score by lot, in [0, 1): anew in each training step; in use it hangs on the token and its place alone. */
real choice_lot(const struct route *r, int l, int i);
/* For ops->ready: is there a threshold for what the pass asks of layer l? */
int choice_ready(const struct choice *c, const struct choice_rule *rule, const char *method, int l,
                 const struct pass *pass, struct err *e) DS_CHECK;

#endif
