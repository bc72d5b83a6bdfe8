/* Reduces series to columns of dots and chooses the ranges of the axes.  Part of the line chart
 * (widgets.h), without drawing, so that it can be tested on numbers alone. */
#ifndef DS_TUI_CHART_SCAN_H
#define DS_TUI_CHART_SCAN_H

#include "tui/widgets.h"

/* Segments of points that are all live, or all superseded by a resume. */
struct scan_segment {
    size_t begin, end;
    int is_old;
};
/* Returns the count, 0 also when out of memory; *out is owned. */
int scan_segments(const struct series *s, struct scan_segment **out);

/* One column: points with x in [x0, x1). */
struct scan_column {
    double min, max, last, smooth;
    size_t n, nonfinite;
};
struct scan_column scan_range(const struct curve *c, enum run_axis axis, double x0, double x1,
                              const struct scan_segment *segment, int segments, int wants_old);
/* The value (smoothed if it is) at x, on the line between the live points before and after it; NaN
 * before the first and after the last. */
double scan_between(const struct curve *c, enum run_axis axis, double x,
                    const struct scan_segment *segment, int segments);

/* Axis position -> x and back; x axes may be logarithmic. */
struct scan_axis {
    double lo, hi;
    int is_log;
    int is_point; /* of one point: lo, and hi by convention */
};
double scan_unit(const struct scan_axis *a, double x); /* 0..1 inside */
double scan_value(const struct scan_axis *a, double unit);

/* The x range of all curves; it grows in steps of an eighth, so that a live chart is not rescaled
 * at every point and is always at least 8/9 full. */
struct scan_axis scan_x_axis(const struct chart *c);
/* The y range that shows the bulk of n column extremes; *is_cut_top/low are set when points are
 * outside.  Rounded outwards to an eighth of a nice step, so that it seldom changes. */
struct scan_axis scan_y_axis(const struct chart *c, double *lows, double *highs, int n);

#endif
