/* How long work of equal steps will still take. */
#ifndef DS_BASE_ETA_H
#define DS_BASE_ETA_H

#include <stddef.h>

enum { ETA_STEPS = 50 }; /* newest steps that it is estimated from */

/* Seconds for `left` more steps from the newest ETA_STEPS of n durations in ms (what is not finite counts for nothing); other_share: of
 * all time, what else is done between steps (evaluations, checkpoints).  Durations are of steps alone, so a pause or a time
 * without a process is not in it.  NaN when nothing is known. */
double eta_seconds(const double *step_ms, size_t n, double other_share, double left);

#endif
