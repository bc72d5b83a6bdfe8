/* Statistics over a few runs and over per-token samples, for figures, tables and charts.
 * Values that are not finite are ignored; n counts those used.  "Undefined" is NaN. */
#ifndef DS_BASE_STATISTICS_H
#define DS_BASE_STATISTICS_H

#include <stddef.h>

/* Mean with Student's t 95 % confidence interval: mean +- t(0.975, n - 1) sd / sqrt(n).  (A
 * percentile bootstrap of three seeds only gives [min, max].)  sd: of the sample (n - 1).  sd, lo
 * and hi are NaN for n < 2, mean for n = 0. */
struct interval {
    double mean, sd, lo, hi;
    size_t n;
};
struct interval stat_interval(const double *v, size_t n);
/* "1.234 [1.201, 1.267]", "1.234" for one value, "-" for none; digits: significant ones.  Returns
 * out. */
const char *stat_print(char *out, size_t size, const struct interval *x, int digits);

/* Mean of a[i] - b[i] over pairs with both finite (one seed under two methods), with its t interval
 * and the two-sided p of the paired t test.  p is NaN for n < 2; 0 when all differences are the
 * same and not 0, 1 when all are 0. */
struct difference {
    struct interval of;
    double p;
};
struct difference stat_paired(const double *a, const double *b, size_t n);
/* Holm's step-down adjustment of n p values, in place; NaN stays and does not count as a
 * comparison. */
void stat_holm(double *p, size_t n);

/* Student's t with `df` > 0 degrees of freedom: P(|T| >= |t|), and the quantile t with P(T > t) =
 * tail (tail = 0.025 for a 95 % interval).  Abramowitz and Stegun 26.7.1 by the incomplete beta
 * function. */
double stat_t_p(double t, double df);
double stat_t_quantile(double tail, double df);

/* P[X <= k] of X ~ Binomial(n, p), by the incomplete beta function. */
double stat_binomial_below(size_t k, size_t n, double p);
/* p value of "the mean of a loss in [0, 1] exceeds eps", given the mean of n independent draws of it:
 * the smaller of Hoeffding's and Bentkus' bounds (Bates et al. 2021, "Distribution-free,
 * risk-controlling prediction sets", theorem 3), at most 1; 1 for n = 0.  It falls as eps grows. */
double stat_risk_p(double mean, size_t n, double eps);
/* The least eps with stat_risk_p <= delta; 1 when there is none below. */
double stat_risk_least(double mean, size_t n, double delta);

double stat_mean(const double *v, size_t n);
double stat_sd(const double *v, size_t n); /* of the sample, n - 1; NaN for n < 2 */
void stat_sort(double *v, size_t n);
double stat_median(double *v, size_t n); /* sorts v; NaN for n = 0 */

/* Pearson's r with Fisher's 95 % interval over pairs that are both finite.  slope, intercept: least
 * squares of y on x. All NaN when either has no variance or n < 4. */
struct correlation {
    double r, lo, hi, slope, intercept;
    size_t n;
};
struct correlation stat_correlation(const float *x, const float *y, size_t n);

/* y = a u^2 + b u + c with u = x - centre. */
struct parabola {
    double a, b, c, centre;
};
/* Least squares through n points; 0 with fewer than three distinct x, then *out is unchanged. */
int stat_parabola(const double *x, const double *y, size_t n, struct parabola *out);
double stat_parabola_at(const struct parabola *f, double x);
/* Position of the minimum; infinite when the parabola opens downwards. */
double stat_parabola_least(const struct parabola *f);

/* is_front[i]: no other point has both coordinates lower or equal and one of them lower.  Points
 * that are not finite are not on the front and dominate none. */
void stat_front(const double *x, const double *y, size_t n, unsigned char *is_front);

/* The bin of v among `bins` bins of equal width from lo.  A value that rounding puts outside
 * belongs to the edge bin. */
int stat_bin(double v, double lo, double width, int bins);

/* Gaussian kernel density at `points` positions from lo to hi; bandwidth <= 0: Silverman's rule.
 * The support is [least, most] (infinite: unbounded), with kernels reflected at its bounds and
 * density 0 outside.  Returns the bandwidth; the density integrates to 1 from least to most. */
struct density_range {
    double lo, hi, least, most;
};
double stat_kde(const double *v, size_t n, double bandwidth, const struct density_range *range,
                double *density, int points);

#endif
