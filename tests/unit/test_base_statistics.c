/* Intervals, tests and densities beside tables of the t distribution and samples worked by hand. */
#include "t.h"

#include "base/statistics.h"

T(t_quantiles_are_those_of_the_tables)
{
    t_near(stat_t_quantile(0.025, 1), 12.7062047, 1e-6);
    t_near(stat_t_quantile(0.025, 2), 4.30265273, 1e-7);
    t_near(stat_t_quantile(0.025, 4), 2.77644511, 1e-7);
    t_near(stat_t_quantile(0.005, 10), 3.16927267, 1e-7);
    t_near(stat_t_quantile(0.025, 1e6), 1.95996636, 1e-6);
    t_true(isnan(stat_t_quantile(0.025, 0)) && isnan(stat_t_quantile(0, 3)));
}

T(p_and_quantile_are_inverse)
{
    for (int df = 1; df < 200; df += 7) {
        double t = stat_t_quantile(0.025, df);
        t_near(stat_t_p(t, df), 0.05, 1e-12);
        t_near(stat_t_p(-t, df), 0.05, 1e-12);
    }
    t_near(stat_t_p(0, 5), 1, 1e-12);
    t_near(stat_t_p((double)INFINITY, 5), 0, 0);
    t_near(stat_t_p(2.0, 3), 0.139325968, 1e-8);
}

/* The sums of exact fractions: Python's math.comb and fractions. */
T(binomial_tails_are_the_exact_sums)
{
    t_near(stat_binomial_below(0, 1, 0.5), 0.5, 1e-15);
    t_near(stat_binomial_below(2, 5, 0.3), 0.83692, 1e-14);
    t_near(stat_binomial_below(9, 10, 0.5), 0.9990234375, 1e-14);
    t_near(stat_binomial_below(0, 149, 0.02), 0.0492816543300896, 1e-13);
    t_near(stat_binomial_below(3, 100, 0.05), 0.2578386591160164, 1e-12);
    t_near(stat_binomial_below(40, 400, 0.125), 0.07227495349975123, 1e-12);
    t_near(stat_binomial_below(950, 1000, 0.96), 0.06630587123134773, 1e-11);
    t_near(stat_binomial_below(7, 7, 0.9), 1, 0);
}

/* Hoeffding's bound by hand: exp(-n h1(min(mean, eps), eps)); Bentkus': e times the exact binomial
 * sum.  The first three rows are Hoeffding's, the others Bentkus'. */
T(the_p_value_of_a_risk_is_the_smaller_bound)
{
    static const struct {
        double mean;
        size_t n;
        double eps, p;
    } known[] = {
        {0, 149, 0.02, 0.04928165433008944},      {0, 148, 0.02, 0.05028740237764229},
        {0.05, 20, 0.5, 5.0545393498238515e-05},  {0.01, 400, 0.02, 0.2645805542407396},
        {0.01, 1000, 0.02, 0.027825822848830856}, {0.005, 1000, 0.02, 0.0001739946833644893},
        {0.1, 200, 0.15, 0.06924396363989191},    {0.4, 60, 0.6, 0.003741237502322823},
        {0.07, 100, 0.2, 0.0007529284587749132}}; /* 100 * 0.07 > 7 in double */
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
        t_near(stat_risk_p(known[i].mean, known[i].n, known[i].eps), known[i].p, 1e-11);
    t_near(stat_risk_p(0.02, 100, 0.02), 1, 0);
    t_near(stat_risk_p(0.03, 50, 0.02), 1, 0);
    t_near(stat_risk_p(0, 0, 0.5), 1, 0);
    t_near(stat_risk_p((double)NAN, 10, 0.5), 1, 0);
}

T(the_least_risk_is_where_the_test_begins_to_reject)
{
    t_near(stat_risk_least(0, 128, 0.05), 1 - pow(0.05, 1.0 / 128), 1e-12);
    for (int i = 0; i < 20; i++) {
        double mean = 0.04 * i, least = stat_risk_least(mean, 300, 0.1);
        t_true(least > mean && stat_risk_p(mean, 300, least) <= 0.1);
        t_true(stat_risk_p(mean, 300, least - 1e-6) > 0.1);
    }
    t_near(stat_risk_least(1, 300, 0.1), 1, 0);
    t_near(stat_risk_least(0, 0, 0.1), 1, 0);
}

T(interval_of_three_seeds_is_the_textbook_one)
{
    const double v[] = {3.190, 3.253, 3.200};
    struct interval x = stat_interval(v, 3);
    double mean = (3.190 + 3.253 + 3.200) / 3, sd = stat_sd(v, 3);
    t_eq(x.n, 3);
    t_near(x.mean, mean, 1e-12);
    t_near(x.sd, sd, 1e-12);
    t_near(x.hi - x.mean, 4.30265273 * sd / sqrt(3), 1e-7);
    t_near(x.mean - x.lo, 4.30265273 * sd / sqrt(3), 1e-7);
}

T(non_finite_values_are_ignored_and_not_counted)
{
    const double v[] = {(double)NAN, 2, (double)INFINITY, 4};
    struct interval x = stat_interval(v, 4);
    t_eq(x.n, 2);
    t_near(x.mean, 3, 1e-12);
    t_near(stat_mean(v, 4), 3, 1e-12);
}

T(one_value_has_no_interval_and_none_has_no_mean)
{
    const double v[] = {7};
    struct interval one = stat_interval(v, 1), none = stat_interval(v, 0);
    char text[64];
    t_true(isnan(one.lo) && isnan(one.hi) && isnan(one.sd) && one.mean == 7);
    t_true(isnan(none.mean) && none.n == 0);
    t_str(stat_print(text, sizeof text, &one, 3), "7");
    t_str(stat_print(text, sizeof text, &none, 3), "-");
}

T(the_interval_has_its_nominal_coverage)
{
    /* sums of 12 uniforms are close to normal; 95 % of 2000 is 1900, standard deviation 9.7 */
    unsigned s = 12345;
    int covered = 0;
    for (int trial = 0; trial < 2000; trial++) {
        double v[3] = {0};
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 12; k++) {
                s = s * 1664525u + 1013904223u;
                v[i] += s / 4294967296.0;
            }
        struct interval x = stat_interval(v, 3);
        covered += x.lo <= 6 && x.hi >= 6;
    }
    t_truef(covered > 1850 && covered < 1950, "%d of 2000", covered);
}

T(paired_differences_ignore_what_the_seeds_share)
{
    const double a[] = {3.10, 3.40, 2.80, 3.05}, b[] = {3.00, 3.29, 2.71, 2.95};
    struct difference d = stat_paired(a, b, 4);
    t_eq(d.of.n, 4);
    t_near(d.of.mean, 0.1, 1e-12);
    t_true(d.of.lo > 0.08 && d.of.hi < 0.12 && d.p < 1e-3);
    t_near(d.p, stat_t_p(0.1 / (d.of.sd / 2), 3), 1e-12);
    t_true(isnan(stat_paired(a, b, 1).p));
    t_near(stat_paired(a, a, 4).p, 1, 0);
}

T(holm_multiplies_the_smallest_by_the_count_and_stays_monotone)
{
    double p[] = {0.01, (double)NAN, 0.04, 0.03, 0.005};
    stat_holm(p, 5);
    t_near(p[4], 0.02, 1e-12);
    t_near(p[0], 0.03, 1e-12);
    t_near(p[3], 0.06, 1e-12);
    t_near(p[2], 0.06, 1e-12);
    t_true(isnan(p[1]));
    double many[] = {0, 0, 0.9, 0.8};
    stat_holm(many, 4);
    t_near(many[0], 0, 0);
    t_near(many[1], 0, 0);
    t_near(many[2], 1, 0);
    t_near(many[3], 1, 0);
}

T(the_median_of_even_and_odd_counts)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    t_near(stat_median(odd, 3), 2, 0);
    t_near(stat_median(even, 4), 2.5, 0);
    t_true(isnan(stat_median(odd, 0)));
}
