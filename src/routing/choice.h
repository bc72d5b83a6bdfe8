/* Which rows of a layer run, given their scores: the k highest of each document in training (not
 * causal) and those above a stored quantile at inference; or those above a fixed value in both; or
 * random rows.  Forced cells are obeyed. */
#ifndef DS_ROUTING_CHOICE_H
#define DS_ROUTING_CHOICE_H

#include "base/arena.h"
#include "routing/rank.h"
#include "routing/route.h"

enum choice_kind { CHOICE_RANK, CHOICE_FIXED, CHOICE_RANDOM };
struct choice_rule {
    enum choice_kind kind;
    double capacity; /* share of a document's rows, unless the pass sets one */
    double fixed;    /* CHOICE_FIXED: a row runs when its score is above */
    double neutral;  /* threshold while no quantile is stored; NaN: there is none */
    double offset;   /* added to inference thresholds, in score standard deviations */
};
struct choice {
    struct quantiles quantiles;
    real *score;      /* (R) in: the scores */
    uint8_t *want;    /* (R) out: 1 runs, 0 is skipped */
    real *weight;     /* (R) out: 0 = forced, else 1 */
    uint8_t *target;  /* (R) set by choice_target */
    double threshold; /* out: the threshold used, or that inference would use */
    int nan;          /* out: NaN scores */
};

int choice_init(struct choice *c, struct params *ps, const char *prefix, int L,
                struct err *e) DS_CHECK;
void choice_layout(struct choice *c, struct arena *a, int R);
void choice_release(struct choice *c);
/* Decides layer l from c->score; training passes also update the stored quantiles.  NaN scores rank
 * last, and pass a threshold only when every row runs. */
void choice_make(struct choice *c, const struct route *r, const struct choice_rule *rule, int l);
/* c->target: what the rank alone would choose from c->score, ignoring forced cells. */
void choice_target(struct choice *c, const struct route *r, const struct choice_rule *rule);
/* A random score in [0, 1): drawn anew in each training step; at inference it depends only on the
 * token and its position. */
real choice_random(const struct route *r, int l, int i);
/* For ops->ready: does layer l have a threshold for what the pass asks for? */
int choice_ready(const struct choice *c, const struct choice_rule *rule, const char *method, int l,
                 const struct pass *pass, struct err *e) DS_CHECK;

#endif
