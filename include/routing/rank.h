/* Decisions by rank, and the thresholds that stand in for them where the future is not known.
 *
 * Training picks the k highest scores of each document (not causal).  Use compares each score with a stored quantile of
 * that layer's scores (causal): the same share of tokens on average, by the token's own past alone. */
#ifndef DS_ROUTING_RANK_H
#define DS_ROUTING_RANK_H

#include <stdint.h>

#include "base/err.h"
#include "engine/param.h"
#include "engine/real.h"
#include "routing/route.h"

/* want (R) of the present pass: in each document of each sequence of the batch the k = max(1, floor(gamma n)) highest of its
 * n scores (gamma 0: none).  Of equal scores the earlier row wins; NaN comes last.  Cells that the pass forces are
 * not counted: a forced row is as it is told, and the rest competes for k less those that are forced to run.  Returns how
 * many scores were NaN. */
int rank_topk(const struct route *r, int l, const real *score, double gamma, uint8_t *want);
/* Rows that would be chosen, forced cells or not: the truth that a causal decision is held against.  target (R): 1, 0. */
void rank_target(const struct route *r, const real *score, double gamma, uint8_t *target);
/* The same where some rows have left: those with active[i] compete, n of them for max(1, round(gamma n)) places.  whole: all
 * rows of the batch together, not document by document.  obey: forced cells as in rank_topk, else as in rank_target. */
int rank_active(const struct route *r, int l, const real *score, const uint8_t *active,
                double gamma, int whole, int obey, uint8_t *want);

/* A control: noise that is ranked in place of scores, independent of content.  noise (R) of the present pass, N(0, 1): new
 * in each step of training; in use a row's hangs on its token and position alone. */
void rank_noise(const struct route *r, int l, real *noise);
/* What N(0, 1) exceeds with this probability, in (0, 1). */
double rank_noise_above(double share);

/* A table of thresholds, (L, ROUTE_GRID): buffers of the model, so checkpoints carry them. */
struct quantiles {
    struct params *params;
    int L, table, weight; /* params: (L, ROUTE_GRID), (L): decayed count of steps, 0 = never seen */
    real *sorted;         /* (R) */
    double *step,
        *n; /* (L, ROUTE_GRID), (L, ROUTE_GRID): sums and counts of this step or calibration */
    int R_max;
};
int quantiles_init(struct quantiles *q, struct params *ps, const char *prefix, int L,
                   struct err *e) DS_CHECK;
int quantiles_reserve(struct quantiles *q, int R, struct err *e) DS_CHECK;
void quantiles_release(struct quantiles *q);
/* Forgets the sums of the present step or calibration. */
void quantiles_begin(struct quantiles *q);
/* Scores of layer l in a training step: all points of the grid.  NaN and infinities are left out. */
void quantiles_note(struct quantiles *q, int l, const real *score, int n);
/* After the step: the stored table takes it in. */
void quantiles_update(struct quantiles *q, double ema);
/* Calibration: the threshold that gives grid point i on these rows; it is counted for the table. */
double quantiles_calibrate(struct quantiles *q, int l, int i, const real *score, int n);
/* Stores the means of a calibration, of each layer of which all grid points were seen. */
void quantiles_store(struct quantiles *q);
int quantiles_known(const struct quantiles *q, int l);
/* Threshold of layer l at a capacity in [0, 1]: a row runs when its score is above.  1 gives -infinity, 0 +infinity;
 * between grid points linear. */
double quantiles_at(const struct quantiles *q, int l, double capacity);

/* Standard deviation of the scores of layer l, as their quantiles give it; 1 while nothing is known. */
double quantiles_spread(const struct quantiles *q, int l);

#endif
