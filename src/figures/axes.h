/* Axes: tick positions, tick labels, and the mapping from data to the page. */
#ifndef DS_FIGURES_AXES_H
#define DS_FIGURES_AXES_H

#include "base/str.h"

enum { AXIS_TICKS_MAX = 64 };

struct tick {
    double value;
    int is_minor;
    char text[32]; /* "" = no label */
};

struct axis {
    double lo, hi;   /* data at the two ends; lo < hi       */
    double from, to; /* page coordinates of lo and hi, points */
    int is_log;
    struct tick tick[AXIS_TICKS_MAX];
    int ticks;
};

/* Places about `want` labelled ticks on [lo, hi], finite with lo < hi: extended Wilkinson (Talbot,
 * Lin, Hanrahan 2010).  Returns the step; *first and *n describe the labels. */
double ticks_extended(double lo, double hi, int want, double *first, int *n);

/* Fills the tick table.  want: number of labels that fit; with_minor: short ticks between.  lo and
 * hi are not changed. */
void axis_ticks(struct axis *a, int want, int with_minor);
/* Ticks only at integers (layers, counts). */
void axis_ticks_whole(struct axis *a, int want);
/* Widens [lo, hi] by a fraction at each end (in decades on a log axis); an empty range is widened
 * too. */
void axis_pad(struct axis *a, double fraction);
/* Extends the range to include v; non-finite values (and <= 0 on a log axis) are ignored.  An empty
 * axis has lo > hi. */
void axis_reset(struct axis *a);
void axis_include(struct axis *a, double v);
int axis_is_empty(const struct axis *a);
/* Page coordinate of v. */
double axis_at(const struct axis *a, double v);

/* Formats a number with `decimals` digits (-1: as few as are exact, at most 6), a true minus sign
 * and commas between thousands, independent of the locale. */
void number_format(char *out, size_t size, double v, int decimals);
/* About three significant digits: "0.583", "12.3", "1,240", "3.1×10⁻⁴". */
void number_short(char *out, size_t size, double v);

#endif
