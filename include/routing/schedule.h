/* Schedules over training; progress in [0, 1]. */
#ifndef DS_ROUTING_SCHEDULE_H
#define DS_ROUTING_SCHEDULE_H

#include <math.h>

static inline double schedule_clip(double progress)
{
    return progress < 0 ? 0 : progress > 1 ? 1 : progress;
}
/* Half a cosine. */
static inline double schedule_cosine(double from, double to, double progress)
{
    return to + (from - to) * 0.5 * (1 + cos(3.14159265358979323846 * schedule_clip(progress)));
}
/* Constant for a share of training, then linear. */
static inline double schedule_line(double from, double to, double hold, double progress)
{
    return progress < hold || hold >= 1
               ? from
               : from + (to - from) * schedule_clip((progress - hold) / (1 - hold));
}

#endif
