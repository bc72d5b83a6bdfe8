/* The best place to leave, per token, known only after the fact: not causal, so a bound to compare
 * halting rules with and never a way to generate.
 *
 *     exit of a token = argmin over its exits t of nll_t + lambda t
 *
 * with nll_t from dense passes and one lambda for all tokens, the least that meets the capacity. */
#ifndef DS_EVAL_ORACLE_H
#define DS_EVAL_ORACLE_H

#include "models/exits.h"

struct oracle {
    int first, end; /* exits that a token may take: first..end; before `first` every layer runs */
    size_t n, cap, at; /* tokens; the next one to force */
    float *nll;        /* (n, end - first + 1) */
    int16_t *exit;     /* (n) */
    double lambda;
    real *table; /* (depth + 1, R): the exit losses of one batch */
    int8_t *force;
    size_t table_cap, force_cap;
};
/* Exits begin after the first layer (iteration), and where the method's layers are gated. */
void oracle_init(struct oracle *o, const struct model *m);
void oracle_release(struct oracle *o);
/* Runs b dense and keeps the loss of every exit. */
int oracle_add(struct oracle *o, struct model *m, const struct batch *b, struct err *e) DS_CHECK;
/* Chooses every token's exit.  capacity: most executed cells, as a share of those after `first`;
 * 1 or more: each token's least loss. */
void oracle_solve(struct oracle *o, double capacity);
/* Executed share of the cells after `first`. */
double oracle_share(const struct oracle *o);
/* The cells of the next batch, in the order of oracle_add: forced in `pass`, of split layers both
 * halves; borrowed until the next call. */
int oracle_next(struct oracle *o, const struct model *m, const struct batch *b, struct pass *pass,
                struct err *e) DS_CHECK;

#endif
