/* Statistics of the decisions of recorded passes, from the executed plans and the common cell
 * metrics (routing/route.h): how well they predict the top-k decision, and how much they depend on
 * the token id. */
#ifndef DS_MODELS_DECISIONS_H
#define DS_MODELS_DECISIONS_H

#include <stdint.h>

#include "base/err.h"
#include "models/model.h"

/* Counts over cells with a finite "topk".  Executed = the causal decision; chosen = top-k's. */
struct prediction {
    double hit, false_run, missed, left; /* executed, chosen; executed only; chosen only; neither */
};

struct decisions {
    int L, V;
    double rows;                   /* of all passes: decisions per layer */
    uint32_t *seen;                /* (V) rows with this token id        */
    uint32_t *run;                 /* (L, V) of these, executed rows     */
    struct prediction *prediction; /* (L) */
    double *soft_n, *soft_p,
        *soft_h;             /* (L) cells with a gate in [0, 1], sums of p and of H(p) in nats */
    double *soft_inside;     /* (L) gates strictly between 0 and 1 */
    uint8_t *gated, *beyond; /* (L) not always on; 1 = a gate was outside [0, 1] */
    double nan_scores;       /* cells with a threshold or a rank and a NaN score */
};

/* About 4 (layers + 1) vocab bytes.  DS_EMEM. */
int decisions_init(struct decisions *d, const struct model *m, struct err *e) DS_CHECK;
void decisions_release(struct decisions *d);
/* After model_forward with pass.record, before the next pass.  Every row counts. */
void decisions_add(struct decisions *d, const struct model *m);

/* Mutual information of token id and decision of layer l, nats: the plug-in estimate
 *
 *     I = sum_{v,g} n(v,g)/N ln( n(v,g) N / (n(v) n(g)) )
 *
 * minus its exact expectation when the same decisions are randomly permuted over the same rows
 * (hypergeometric): unbiased at 0 for a gate independent of the id, however many ids are rare.  It
 * may therefore be slightly negative, and a gate that is a function of the id scores somewhat below
 * its entropy.  NaN without rows. */
double decisions_mi(const struct decisions *d, int l);
/* Mutual information of a cell and a decision drawn from its soft gate p: H(mean p) - mean H(p),
 * nats.  Measures how far the soft gate is from constant.  NaN where gates are not soft: outside
 * [0, 1], or all exactly 0 or 1. */
double decisions_mi_soft(const struct decisions *d, int l);
/* Means over layers that are not always on; NaN when there is none. */
double decisions_mi_mean(const struct decisions *d);
double decisions_mi_soft_mean(const struct decisions *d);

/* Of layer l, or of all (-1). */
struct prediction decisions_prediction(const struct decisions *d, int l);
double prediction_cells(const struct prediction *p);
/* NaN when nothing was executed (precision), chosen (recall) or either (F1), or there are no cells
 * (base, accuracy). base: share of chosen cells, i.e. the precision of a predictor that always says
 * yes. */
double prediction_precision(const struct prediction *p);
double prediction_recall(const struct prediction *p);
double prediction_f1(const struct prediction *p);
double prediction_base(const struct prediction *p);
double prediction_accuracy(const struct prediction *p);

#endif
