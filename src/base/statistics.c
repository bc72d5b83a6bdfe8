/* Means, confidence intervals, tests and densities. */
#include "base/statistics.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define UNDEFINED ((double)NAN)
#define NORMAL_975 1.959964

/* ---- moments ---- */

/* Mean and sum of squared deviations of the finite values in one pass (Welford). */
static size_t moments(const double *v, size_t n, double *mean, double *squares)
{
    size_t k = 0;
    *mean = *squares = 0;
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            continue;
        double d = v[i] - *mean;
        *mean += d / (double)++k;
        *squares += d * (v[i] - *mean);
    }
    return k;
}

double stat_mean(const double *v, size_t n)
{
    double mean, squares;
    return moments(v, n, &mean, &squares) > 0 ? mean : UNDEFINED;
}

double stat_sd(const double *v, size_t n)
{
    double mean, squares;
    size_t k = moments(v, n, &mean, &squares);
    return k > 1 ? sqrt(squares / (double)(k - 1)) : UNDEFINED;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void stat_sort(double *v, size_t n)
{
    qsort(v, n, sizeof *v, by_value);
}

double stat_median(double *v, size_t n)
{
    if (n == 0)
        return UNDEFINED;
    stat_sort(v, n);
    return n % 2 ? v[n / 2] : 0.5 * (v[n / 2 - 1] + v[n / 2]);
}

/* ---- Student's t ---- */

/* Continued fraction of the incomplete beta function (Numerical Recipes 6.4.5, by Lentz's
 * method). */
static double beta_fraction(double a, double b, double x)
{
    const double tiny = 1e-300;
    double c = 1, d = 1 - (a + b) * x / (a + 1);
    d = 1 / (fabs(d) < tiny ? tiny : d);
    double h = d;
    for (int m = 1; m < 20000; m++) {
        double even = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m));
        double odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)), step = 1;
        for (int half = 0; half < 2; half++) {
            double term = half ? odd : even;
            d = 1 + term * d;
            d = 1 / (fabs(d) < tiny ? tiny : d);
            c = 1 + term / c;
            c = fabs(c) < tiny ? tiny : c;
            step = d * c;
            h *= step;
        }
        if (fabs(step - 1) < 1e-15)
            break;
    }
    return h;
}

/* I_x(a, b), regularised. */
static double incomplete_beta(double a, double b, double x)
{
    if (x <= 0 || x >= 1)
        return x <= 0 ? 0 : 1;
    double front = exp(lgamma(a + b) - lgamma(a) - lgamma(b) + a * log(x) + b * log1p(-x));
    return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a
                                     : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

double stat_t_p(double t, double df)
{
    if (isnan(t) || !(df > 0))
        return UNDEFINED;
    return isinf(t) ? 0 : incomplete_beta(df / 2, 0.5, df / (df + t * t));
}

double stat_t_quantile(double tail, double df)
{
    double lo = 0, hi = 2;
    if (!(tail > 0 && tail <= 0.5) || !(df > 0))
        return UNDEFINED;
    while (stat_t_p(hi, df) > 2 * tail && hi < 1e12)
        hi *= 2;
    for (int i = 0; i < 200 && hi - lo > 1e-15 * hi; i++) {
        double middle = 0.5 * (lo + hi);
        if (stat_t_p(middle, df) > 2 * tail)
            lo = middle;
        else
            hi = middle;
    }
    return 0.5 * (lo + hi);
}

/* ---- risks ---- */

double stat_binomial_below(size_t k, size_t n, double p)
{
    return k >= n ? 1 : incomplete_beta((double)(n - k), (double)k + 1, 1 - p);
}

/* a ln(a / b), 0 at a = 0. */
static double relative(double a, double b)
{
    return a > 0 ? a * log(a / b) : 0;
}

double stat_risk_p(double mean, size_t n, double eps)
{
    double a = fmin(mean, eps), count = (double)n;
    if (n == 0 || !(mean < eps)) /* both bounds are 1 */
        return 1;
    double hoeffding = exp(-count * (relative(a, eps) + relative(1 - a, 1 - eps)));
    /* 100 times 0.07 is more than 7: a sum that is whole must not be rounded up */
    double sum = ceil(count * mean * (1 - 1e-12)),
           bentkus = exp(1) * stat_binomial_below((size_t)sum, n, eps);
    return fmin(1, fmin(hoeffding, bentkus));
}

double stat_risk_least(double mean, size_t n, double delta)
{
    double lo = 0, hi = 1;
    for (int i = 0; i < 60; i++) {
        double middle = 0.5 * (lo + hi);
        if (stat_risk_p(mean, n, middle) <= delta)
            hi = middle;
        else
            lo = middle;
    }
    return hi;
}

/* The t interval of k values with this mean and sum of squared deviations from it. */
static struct interval interval_of(size_t k, double mean, double squares)
{
    struct interval out = {UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, k};
    if (k > 0)
        out.mean = mean;
    if (k < 2)
        return out;
    out.sd = sqrt(squares / (double)(k - 1));
    double half = stat_t_quantile(0.025, (double)(k - 1)) * out.sd / sqrt((double)k);
    out.lo = mean - half;
    out.hi = mean + half;
    return out;
}

struct interval stat_interval(const double *v, size_t n)
{
    double mean, squares;
    size_t k = moments(v, n, &mean, &squares);
    return interval_of(k, mean, squares);
}

const char *stat_print(char *out, size_t size, const struct interval *x, int digits)
{
    if (x->n == 0)
        snprintf(out, size, "-");
    else if (x->n < 2)
        snprintf(out, size, "%.*g", digits, x->mean);
    else
        snprintf(out, size, "%.*g [%.*g, %.*g]", digits, x->mean, digits, x->lo, digits, x->hi);
    return out;
}

struct difference stat_paired(const double *a, const double *b, size_t n)
{
    struct difference out = {.p = UNDEFINED};
    double mean = 0, squares = 0;
    size_t k = 0;
    for (size_t i = 0; i < n; i++) {
        double x = a[i] - b[i];
        if (!isfinite(x))
            continue;
        double d = x - mean;
        mean += d / (double)++k;
        squares += d * (x - mean);
    }
    out.of = interval_of(k, mean, squares);
    if (k > 1)
        out.p = squares > 0 ? stat_t_p(mean / (out.of.sd / sqrt((double)k)), (double)(k - 1))
                            : mean == 0;
    return out;
}

/* Multiplies the smallest p by the number of comparisons, the next by one less, and so on, keeping
 * adjusted values in order.  n is small, so smaller values are counted instead of sorted. */
void stat_holm(double *p, size_t n)
{
    size_t total = 0;
    double floor_so_far = 0;
    for (size_t i = 0; i < n; i++)
        total += !isnan(p[i]);
    for (size_t done = 0; done < total;) {
        double next = (double)INFINITY;
        for (size_t i = 0; i < n; i++)
            if (p[i] >= 0 && p[i] < next)
                next = p[i];
        double adjusted = fmin(1, fmax(floor_so_far, (double)(total - done) * next));
        for (size_t i = 0; i < n; i++)
            if (p[i] == next) {
                p[i] = -1 - adjusted; /* negative: already processed */
                done++;
            }
        floor_so_far = adjusted;
    }
    for (size_t i = 0; i < n; i++)
        if (p[i] < 0)
            p[i] = -1 - p[i];
}

/* ---- samples ---- */

struct correlation stat_correlation(const float *x, const float *y, size_t n)
{
    struct correlation c = {UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, UNDEFINED, 0};
    double mx = 0, my = 0, sxx = 0, syy = 0, sxy = 0;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y[i])) {
            mx += (double)x[i];
            my += (double)y[i];
            c.n++;
        }
    if (c.n < 4)
        return c;
    mx /= (double)c.n;
    my /= (double)c.n;
    for (size_t i = 0; i < n; i++)
        if (isfinite(x[i]) && isfinite(y[i])) {
            double dx = (double)x[i] - mx, dy = (double)y[i] - my;
            sxx += dx * dx;
            syy += dy * dy;
            sxy += dx * dy;
        }
    /* A constant column has only rounding error, not variance. */
    double tiny = 1e-12 * (double)c.n;
    if (sxx <= tiny * mx * mx || syy <= tiny * my * my || sxx == 0 || syy == 0)
        return c;
    c.r = sxy / sqrt(sxx * syy);
    c.slope = sxy / sxx;
    c.intercept = my - c.slope * mx;
    double z = atanh(fmin(fmax(c.r, -0.999999999), 0.999999999)),
           half = NORMAL_975 / sqrt((double)c.n - 3);
    c.lo = tanh(z - half);
    c.hi = tanh(z + half);
    return c;
}

int stat_bin(double v, double lo, double width, int bins)
{
    double at = floor((v - lo) / width);
    return at >= bins ? bins - 1 : at >= 0 ? (int)at : 0;
}

/* Adds one kernel at the positions within the support. */
static void add_kernel(double *density, int points, const struct density_range *d, double centre,
                       double bandwidth, double norm)
{
    double step = (d->hi - d->lo) / (points - 1);
    int from = (int)ceil(fmin(fmax((centre - 5 * bandwidth - d->lo) / step, 0), points));
    int to = (int)floor(fmax(fmin((centre + 5 * bandwidth - d->lo) / step, points - 1), -1));
    for (int k = from; k <= to; k++) {
        double x = k == points - 1 ? d->hi : d->lo + k * step, z = (x - centre) / bandwidth;
        if (x >= d->least && x <= d->most)
            density[k] += norm * exp(-0.5 * z * z);
    }
}

double stat_kde(const double *v, size_t n, double bandwidth, const struct density_range *range,
                double *density, int points)
{
    size_t finite = 0;
    for (int i = 0; i < points; i++)
        density[i] = 0;
    for (size_t i = 0; i < n; i++)
        finite += isfinite(v[i]) ? 1 : 0;
    if (bandwidth <= 0)
        bandwidth = 1.06 * stat_sd(v, n) * pow((double)finite, -0.2);
    if (!(bandwidth > 0) || finite == 0)
        return UNDEFINED;
    double norm = 1 / (bandwidth * sqrt(2 * 3.14159265358979323846) * (double)finite);
    for (size_t i = 0; i < n; i++) {
        if (!isfinite(v[i]))
            continue;
        add_kernel(density, points, range, v[i], bandwidth, norm);
        if (isfinite(range->least))
            add_kernel(density, points, range, 2 * range->least - v[i], bandwidth, norm);
        if (isfinite(range->most))
            add_kernel(density, points, range, 2 * range->most - v[i], bandwidth, norm);
    }
    return bandwidth;
}

/* ---- fronts and parabolas ---- */

static double det3(double m[3][3])
{
    return m[0][0] * (m[1][1] * m[2][2] - m[1][2] * m[2][1]) -
           m[0][1] * (m[1][0] * m[2][2] - m[1][2] * m[2][0]) +
           m[0][2] * (m[1][0] * m[2][1] - m[1][1] * m[2][0]);
}

int stat_parabola(const double *x, const double *y, size_t n, struct parabola *out)
{
    double sum[5] = {0}, rhs[3] = {0}, centre = 0, value[3];
    for (size_t i = 0; i < n; i++)
        centre += x[i] / (double)n;
    for (size_t i = 0; i < n; i++) {
        double u = x[i] - centre, power = 1;
        for (int k = 0; k < 5; k++, power *= u) {
            sum[k] += power;
            if (k < 3)
                rhs[k] += power * y[i];
        }
    }
    double m[3][3] = {{sum[4], sum[3], sum[2]}, {sum[3], sum[2], sum[1]}, {sum[2], sum[1], sum[0]}};
    double d = det3(m);
    if (!(fabs(d) > 1e-12 * sum[4] * sum[2] * sum[0]))
        return 0;
    for (int k = 0; k < 3; k++) {
        double with[3][3];
        memcpy(with, m, sizeof with);
        for (int i = 0; i < 3; i++)
            with[i][k] = rhs[2 - i];
        value[k] = det3(with) / d;
    }
    *out = (struct parabola){value[0], value[1], value[2], centre};
    return 1;
}

double stat_parabola_at(const struct parabola *f, double x)
{
    double u = x - f->centre;
    return (f->a * u + f->b) * u + f->c;
}

double stat_parabola_least(const struct parabola *f)
{
    return f->a > 0 ? f->centre - f->b / (2 * f->a) : (double)INFINITY;
}

void stat_front(const double *x, const double *y, size_t n, unsigned char *is_front)
{
    for (size_t i = 0; i < n; i++) {
        is_front[i] = isfinite(x[i]) && isfinite(y[i]);
        for (size_t k = 0; k < n && is_front[i]; k++)
            is_front[i] = !(isfinite(x[k]) && isfinite(y[k]) && x[k] <= x[i] && y[k] <= y[i] &&
                            (x[k] < x[i] || y[k] < y[i]));
    }
}
