/* Statistics of a handful of runs: mean, spread, and what the seeds leave open.  Values that are not finite are
 * left out and the number that was used is always told. */
#ifndef DS_EVAL_STATISTICS_H
#define DS_EVAL_STATISTICS_H

#include <stddef.h>
#include <stdint.h>

/* lo and hi: 95 % percentile bootstrap of the mean; NaN for n < 2.  sd: of the sample (n - 1), NaN for n < 2. */
struct estimate {
    double mean, sd, lo, hi;
    size_t n;
};

enum { ESTIMATE_RESAMPLES = 2000, ESTIMATE_KEPT = 256 };

/* Seeded (RNG_BOOT): the same values in the same order give the same digits.  Beyond ESTIMATE_KEPT values the
 * interval is the normal one, which agrees with the bootstrap there. */
struct estimate estimate_of(const double *v, size_t n, uint64_t seed);
/* Sorts v; NaN for n = 0. */
double estimate_median(double *v, size_t n);
/* "1.234 [1.201, 1.260]", "1.234" for one value, "-" for none; digits: significant ones. */
const char *estimate_print(char *out, size_t size, const struct estimate *x, int digits);

#endif
