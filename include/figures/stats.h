/* The statistics that figures state.  Every random part is seeded (RNG_BOOT): the same data give
 * the same digits.  "Undefined" is NaN and is said in the figure, never replaced by a number. */
#ifndef DS_FIGURES_STATS_H
#define DS_FIGURES_STATS_H

#include <stddef.h>

#include "base/err.h"

struct interval {
    double mean, lo, hi;
    size_t n;
};

/* Mean over the finite values; NaN when there are none. */
double stats_mean(const double *v, size_t n);
double stats_sd(const double *v, size_t n); /* of the sample, n - 1; NaN for n < 2 */
/* Mean with the percentile bootstrap's 95 % interval (2000 resamples; lo = hi = NaN for n < 2). n
 * counts the finite values. */
struct interval stats_bootstrap(const double *v, size_t n, unsigned long long seed);

/* Pearson's r with Fisher's 95 % interval over pairs that are both finite.  slope, intercept: least
 * squares of y on x.  All NaN when either has no variance or n < 4. */
struct correlation {
    double r, lo, hi, slope, intercept;
    size_t n;
};
struct correlation stats_correlation(const float *x, const float *y, size_t n);

/* The bin of v among `bins` of a width from lo on.  Rounding may put a value at an edge outside: it belongs to the bin at that
 * edge. */
int stats_bin(double v, double lo, double width, int bins);

/* Gaussian kernel density at `points` places from lo to hi; bandwidth <= 0: Silverman's rule.  Values can lie within
 * [least, most] only (an infinity: no bound): what a kernel has beyond is reflected, and the density is 0 there.
 * Returns the bandwidth; density integrates to 1 from least to most. */
struct density_range {
    double lo, hi, least, most;
};
double stats_kde(const double *v, size_t n, double bandwidth, const struct density_range *range,
                 double *density, int points);

/* Hartigan and Hartigan's dip of a sorted sample: the distance of its distribution from the nearest
 * unimodal one. */
int stats_dip(const double *sorted, size_t n, double *dip, struct err *e) DS_CHECK;
/* The share of `rounds` uniform samples of size n with a dip at least this large (the usual
 * reference). */
int stats_dip_p(double dip, size_t n, int rounds, unsigned long long seed, double *p,
                struct err *e) DS_CHECK;

void stats_sort(double *v, size_t n);

#endif
