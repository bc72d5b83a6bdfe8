/* Axes: where the ticks go, what they say, and the map from data to the page. */
#ifndef DS_FIGURES_AXES_H
#define DS_FIGURES_AXES_H

#include "base/str.h"

enum { AXIS_TICKS_MAX = 64 };

struct tick {
    double value;
    int is_minor;
    char text[24]; /* "" = no label */
};

struct axis {
    double lo, hi;   /* data at the two ends; lo < hi       */
    double from, to; /* page coordinates of lo and hi, points */
    int is_log;
    struct tick tick[AXIS_TICKS_MAX];
    int ticks;
};

/* Places labelled ticks on [lo, hi]: extended Wilkinson (Talbot, Lin, Hanrahan 2010), about `want`
 * of them. Returns the step; *first and *n describe the labels.  lo < hi, both finite. */
double ticks_extended(double lo, double hi, int want, double *first, int *n);

/* Fills the tick table.  `want`: labels that fit; with_minor: short ticks between. lo, hi stay as
 * they are. */
void axis_ticks(struct axis *a, int want, int with_minor);
/* Only at whole numbers (layers, counts). */
void axis_ticks_whole(struct axis *a, int want);
/* Widens [lo, hi] by a fraction at each end (in decades on a log axis); a range of width 0 becomes
 * one. */
void axis_pad(struct axis *a, double fraction);
/* Grows the range so that v lies in it; not finite (or <= 0 on a log axis) is ignored. A fresh axis
 * has lo > hi. */
void axis_reset(struct axis *a);
void axis_include(struct axis *a, double v);
int axis_is_empty(const struct axis *a);
/* Page coordinate of v. */
double axis_at(const struct axis *a, double v);

/* A number for people: `decimals` digits behind the point (-1: as few as are exact up to 6), a real
 * minus, thousands set off by a comma.  No locale. */
void number_format(char *out, size_t size, double v, int decimals);
/* Three significant digits or so: "0.583", "12.3", "1,240", "3.1×10⁻⁴". */
void number_short(char *out, size_t size, double v);

#endif
