/* Estimates over seeds. */
#include "t.h"

#include "eval/statistics.h"

T(mean_deviation_and_interval_of_a_known_sample)
{
    const double v[] = {1, 2, 3, 4};
    struct estimate x = estimate_of(v, 4, 1);
    t_eq(x.n, 4);
    t_near(x.mean, 2.5, 1e-12);
    t_near(x.sd, sqrt(5.0 / 3), 1e-12);
    t_true(x.lo >= 1 && x.lo < 2.5 && x.hi > 2.5 && x.hi <= 4);
}

T(values_that_are_no_numbers_are_left_out_and_counted_so)
{
    const double v[] = {(double)NAN, 2, (double)INFINITY, 4};
    struct estimate x = estimate_of(v, 4, 1);
    t_eq(x.n, 2);
    t_near(x.mean, 3, 1e-12);
}

T(one_value_has_no_interval_and_none_has_no_mean)
{
    const double v[] = {7};
    struct estimate one = estimate_of(v, 1, 1), none = estimate_of(v, 0, 1);
    char text[64];
    t_true(isnan(one.lo) && isnan(one.hi) && isnan(one.sd));
    t_true(isnan(none.mean) && none.n == 0);
    t_str(estimate_print(text, sizeof text, &one, 3), "7");
    t_str(estimate_print(text, sizeof text, &none, 3), "-");
}

T(the_same_values_give_the_same_digits)
{
    const double v[] = {0.31, 0.32, 0.29, 0.35, 0.30};
    struct estimate a = estimate_of(v, 5, 9), b = estimate_of(v, 5, 9);
    t_true(a.lo == b.lo && a.hi == b.hi);
}

T(the_interval_covers_the_true_mean_about_as_often_as_it_says)
{
    /* uniform samples of 12 by a linear congruence: coverage of a small bootstrap lies a little below 95 % */
    unsigned s = 12345;
    int covered = 0;
    for (int trial = 0; trial < 300; trial++) {
        double v[12];
        for (int i = 0; i < 12; i++) {
            s = s * 1664525u + 1013904223u;
            v[i] = s / 4294967296.0;
        }
        struct estimate x = estimate_of(v, 12, (uint64_t)trial);
        covered += x.lo <= 0.5 && x.hi >= 0.5;
    }
    t_truef(covered > 255 && covered <= 295, "%d of 300", covered);
}

T(many_values_use_the_normal_interval)
{
    static double v[ESTIMATE_KEPT + 100];
    size_t n = sizeof v / sizeof *v;
    for (size_t i = 0; i < n; i++)
        v[i] = (double)(i % 2);
    struct estimate x = estimate_of(v, n, 1);
    t_near(x.hi - x.mean, 1.959964 * x.sd / sqrt((double)n), 1e-9);
}

T(the_median_of_even_and_odd_counts)
{
    double odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2};
    t_near(estimate_median(odd, 3), 2, 0);
    t_near(estimate_median(even, 4), 2.5, 0);
    t_true(isnan(estimate_median(odd, 0)));
}
