/* Clocks, sleeping, and the estimated time left. */
#ifndef DS_BASE_CLOCK_H
#define DS_BASE_CLOCK_H

#include <stddef.h>

/* Monotonic seconds for rates and durations; wall seconds (Unix) only for display and storage.
 * DEPTHSCOPE_CLOCK=fixed gives 0 for both (screens and goldens). */
double clock_mono(void);
double clock_wall(void);
void clock_sleep(double seconds);

enum { ETA_STEPS = 50 }; /* newest steps used for the estimate */

/* Seconds for `left` more steps from the newest ETA_STEPS of n durations in ms (values that are not
 * finite are ignored). other_share: the share of total time spent between steps (evaluations,
 * checkpoints).  Durations cover steps only, so pauses and downtime do not count.  NaN when
 * unknown. */
double eta_seconds(const double *step_ms, size_t n, double other_share, double left);

#endif
