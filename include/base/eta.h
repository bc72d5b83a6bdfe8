/* Estimated time left for work in steps of similar duration. */
#ifndef DS_BASE_ETA_H
#define DS_BASE_ETA_H

#include <stddef.h>

enum { ETA_STEPS = 50 }; /* newest steps used for the estimate */

/* Seconds for `left` more steps from the newest ETA_STEPS of n durations in ms (values that are not
 * finite are ignored). other_share: the share of total time spent between steps (evaluations,
 * checkpoints).  Durations cover steps only, so pauses and downtime do not count.  NaN when
 * unknown. */
double eta_seconds(const double *step_ms, size_t n, double other_share, double left);

#endif
