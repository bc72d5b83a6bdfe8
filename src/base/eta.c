/* Estimates the time left from recent step durations. */
#include "base/eta.h"

#include <math.h>

double eta_seconds(const double *step_ms, size_t n, double other_share, double left)
{
    double sum = 0;
    size_t known = 0;
    for (size_t i = n > ETA_STEPS ? n - ETA_STEPS : 0; i < n; i++)
        if (isfinite(step_ms[i]) && step_ms[i] > 0) {
            sum += step_ms[i];
            known++;
        }
    /* at the start a single evaluation may dominate the total time */
    double share = other_share >= 0 && other_share < 0.95 ? other_share : 0;
    return known ? left * sum / (double)known / 1e3 / (1 - share) : (double)NAN;
}
