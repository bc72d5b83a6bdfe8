/* Decisions by rank, and the thresholds that replace them at inference.
 *
 * Training picks the k highest scores of each document, which is not causal.  Inference compares
 * each score with a stored quantile of that layer's scores, which is: the same share of tokens on
 * average, from the token's own past alone. */
#ifndef DS_ROUTING_RANK_H
#define DS_ROUTING_RANK_H

#include <stdint.h>

#include "base/err.h"
#include "engine/param.h"
#include "engine/real.h"
#include "routing/route.h"

/* want (R) of the current pass: in each document of each sequence, the k = max(1, floor(gamma n))
 * highest of its n scores (gamma 0: none).  Ties go to the earlier row; NaN ranks last.  Forced
 * cells keep their forced value, and the other rows compete for the remaining places of the k.
 * Returns the number of NaN scores. */
int rank_topk(const struct route *r, int l, const real *score, double gamma, uint8_t *want);
/* The rows that rank alone would choose, ignoring forced cells: the target of a causal predictor.
 * target (R): 1, 0. */
void rank_target(const struct route *r, const real *score, double gamma, uint8_t *target);
/* The same when some tokens have exited: the n rows with active[i] compete for max(1, round(gamma
 * n)) places.  whole: rank the whole batch instead of each document.  keep_forced: forced cells as
 * in rank_topk, else as in rank_target. */
int rank_active(const struct route *r, int l, const real *score, const uint8_t *active,
                double gamma, int whole, int keep_forced, uint8_t *want);

/* A control: N(0, 1) noise (R) ranked in place of scores, independent of content.  Drawn anew in
 * each training step; at inference it depends only on the token and its position. */
void rank_noise(const struct route *r, int l, real *noise);
/* The value that N(0, 1) exceeds with probability `share` in (0, 1). */
double rank_noise_above(double share);

/* A table of thresholds, (L, ROUTE_GRID), stored as buffers so that checkpoints save it. */
struct quantiles {
    struct params *params;
    int L, table, weight; /* params: (L, ROUTE_GRID), (L): decayed step count, 0 = no data */
    real *sorted;         /* (R) */
    double *step,
        *n; /* (L, ROUTE_GRID), (L, ROUTE_GRID): sums and counts of this step or calibration */
    int R_max;
    int always; /* rows that run whatever their score, and are part of the share: of the layer
                   that is noted or calibrated next */
};
int quantiles_init(struct quantiles *q, struct params *ps, const char *prefix, int L,
                   struct err *e) DS_CHECK;
void quantiles_layout(struct quantiles *q, struct arena *a, int R);
void quantiles_release(struct quantiles *q);
/* Clears the sums of the current step or calibration. */
void quantiles_begin(struct quantiles *q);
/* Adds layer l's scores in a training step, at every grid point.  NaN and infinities are
 * ignored. */
void quantiles_note(struct quantiles *q, int l, const real *score, int n);
/* For ops->counts. */
void quantiles_counts(struct quantiles *q, route_count_fn *each, void *ctx);
/* After the step: updates the stored table. */
void quantiles_update(struct quantiles *q, double ema);
/* Calibration: returns the threshold that gives grid point i on these rows, and adds it to the
 * sums. */
double quantiles_calibrate(struct quantiles *q, int l, int i, const real *score, int n);
/* Stores the means of a calibration, for layers that have data at every grid point. */
void quantiles_store(struct quantiles *q);
int quantiles_known(const struct quantiles *q, int l);
/* Threshold of layer l at a capacity in [0, 1]; a row runs when its score is above it.  Capacity 1
 * gives -infinity, 0 +infinity; linear between grid points. */
double quantiles_at(const struct quantiles *q, int l, double capacity);
/* The same from these n scores alone; +infinity when none is finite. */
double quantiles_of(struct quantiles *q, const real *score, int n, double capacity);

/* Standard deviation of layer l's scores, estimated from the quantiles; 1 when there are none. */
double quantiles_spread(const struct quantiles *q, int l);

#endif
