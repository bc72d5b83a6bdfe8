/* Ticks, number formats, and the statistics of figures. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "t.h"

#include "base/rng.h"
#include "figures/axes.h"
#include "base/statistics.h"
#include "figures/dip.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

static int is_nice(double v)
{
    double lead = v / pow(10, floor(log10(v) + 1e-9));
    static const double nice[] = {1, 2, 2.5, 3, 4, 5, 6, 8, 1.5, 7.5};
    for (size_t i = 0; i < sizeof nice / sizeof *nice; i++)
        if (fabs(lead - nice[i]) < 1e-6)
            return 1;
    return 0;
}

T(ticks_are_inside_the_range_at_round_values)
{
    struct rng r;
    rng_init(&r, 1, RNG_TEST, 0, 0);
    for (int i = 0; i < 300; i++) {
        double lo = (rng_uniform(&r) - 0.5) * pow(10, rng_below(&r, 9)),
               span = pow(10, rng_uniform(&r) * 8 - 4), first;
        int n, want = 3 + (int)rng_below(&r, 6);
        double step = ticks_extended(lo, lo + span, want, &first, &n);
        t_truef(n >= 2, "[%g, %g] has %d", lo, lo + span, n);
        t_truef(n <= 3 * want, "[%g, %g] has %d for %d", lo, lo + span, n, want);
        t_truef(n == 2 || is_nice(step), "step %g", step);
        t_true(first >= lo - 1e-6 * span && first + (n - 1) * step <= lo + span * (1 + 1e-6));
    }
}

T(ticks_of_huge_and_of_far_ranges_end)
{
    static const double range[][2] = {
        {1e17, 1e17 + 32}, {-1e300, 1e300}, {9e15, 9e15 + 4}, {0, 1e20}, {-1e308, 1e308}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        for (int whole = 0; whole < 2; whole++) {
            struct axis a = {0};
            axis_reset(&a);
            axis_include(&a, range[i][0]);
            axis_include(&a, range[i][1]);
            t_true(isfinite(a.hi - a.lo));
            if (whole)
                axis_ticks_whole(&a, 5);
            else
                axis_ticks(&a, 5, 1);
            t_truef(a.ticks >= 1 && a.ticks <= AXIS_TICKS_MAX, "[%g, %g]: %d", a.lo, a.hi, a.ticks);
        }
    double first;
    int n;
    ticks_extended(-(double)INFINITY, (double)INFINITY, 5, &first, &n);
    t_eq(n, 2);
}

T(zero_to_one_has_round_ticks)
{
    struct axis a = {.lo = 0, .hi = 1};
    axis_ticks(&a, 5, 0);
    t_str(a.tick[0].text, "0.00");
    t_near(a.tick[a.ticks - 1].value, 1, 1e-12);
}

T(log_axes_have_decades_and_minor_ticks)
{
    struct axis a = {.lo = 1e-5, .hi = 1e-1, .is_log = 1};
    int labels = 0, minor = 0;
    axis_ticks(&a, 6, 1);
    for (int i = 0; i < a.ticks; i++) {
        labels += a.tick[i].text[0] != 0;
        minor += a.tick[i].is_minor;
    }
    t_eq(labels, 5);
    t_eq(minor, 32);
    t_str(a.tick[0].text, "10\xE2\x81\xBB\xE2\x81\xB5");
    struct axis narrow = {.lo = 1.2, .hi = 6, .is_log = 1};
    axis_ticks(&narrow, 5, 1);
    for (labels = 0, minor = 0; minor < narrow.ticks; minor++)
        labels += narrow.tick[minor].text[0] != 0;
    t_true(labels >= 2);
}

T(integer_ticks_are_integers)
{
    struct axis a = {.lo = 0.2, .hi = 12.8};
    axis_ticks_whole(&a, 5);
    for (int i = 0; i < a.ticks; i++)
        t_near(a.tick[i].value, floor(a.tick[i].value), 1e-9);
    t_true(a.ticks >= 2 && a.ticks <= 7);
}

T(numbers_have_a_true_minus_sign_and_commas)
{
    static const struct {
        double v;
        int d;
        const char *text;
    } row[] = {
        {-0.5, -1,
         "\xE2\x88\x92"
         "0.5"},
        {1234567, 0, "1,234,567"},
        {-1234.5, 1,
         "\xE2\x88\x92"
         "1,234.5"},
        {0, -1, "0"},
        {-0.0001, 2, "0.00"},
        {0.25, -1, "0.25"},
        {100, -1, "100"},
    };
    char out[64];
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        number_format(out, sizeof out, row[i].v, row[i].d);
        t_str(out, row[i].text);
    }
    number_short(out, sizeof out, 0.00031);
    t_str(out, "3.1\xC3\x97"
               "10\xE2\x81\xBB\xE2\x81\xB4");
    number_format(out, sizeof out, (double)NAN, 2);
    t_str(out, "NaN");
}

T(tick_labels_of_one_axis_share_a_format)
{
    struct axis a = {.lo = 0, .hi = 40000};
    axis_ticks(&a, 5, 0);
    t_str(a.tick[0].text, "0");
    t_str(a.tick[a.ticks - 1].text, "40k");
}

/* The value that a reader of the label takes it for. */
static double read_label(const char *t)
{
    static const char *const super[10] = {
        "\xE2\x81\xB0", "\xC2\xB9",     "\xC2\xB2",     "\xC2\xB3",     "\xE2\x81\xB4",
        "\xE2\x81\xB5", "\xE2\x81\xB6", "\xE2\x81\xB7", "\xE2\x81\xB8", "\xE2\x81\xB9"};
    char digits[64];
    int n = 0, power = 0, sign = 1, minus = strncmp(t, "\xE2\x88\x92", 3) == 0;
    for (t += minus ? 3 : 0; *t && strchr("0123456789.,", *t); t++)
        if (*t != ',')
            digits[n++] = *t;
    digits[n] = '\0';
    double v = strtod(digits, NULL) * (minus ? -1 : 1);
    if (strncmp(t,
                "\xC3\x97"
                "10",
                4) != 0)
        return v * (*t == 'k' ? 1e3 : *t == 'M' ? 1e6 : *t == 'G' ? 1e9 : 1);
    if (strncmp(t += 4, "\xE2\x81\xBB", 3) == 0) {
        sign = -1;
        t += 3;
    }
    for (int i = 0; i < 10; i++)
        if (strncmp(t, super[i], strlen(super[i])) == 0) {
            power = 10 * power + i;
            t += strlen(super[i]);
            i = -1;
        }
    return v * pow(10, sign * power);
}

T(tick_labels_are_the_values_of_their_ticks)
{
    static const double range[][2] = {{0, 1},           {0, 1.1e15},        {2e13, 2.6e13},
                                      {0, 1.1e-4},      {1e-4, 1.01e-4},    {-1.1e-4, 1e-4},
                                      {0.5, 0.5000001}, {4.16, 4.16000003}, {1e10, 1e10 + 300},
                                      {-3e-9, 8e-9},    {9.96e-4, 9.99e-4}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        for (int want = 3; want < 9; want++) {
            struct axis a = {.lo = range[i][0], .hi = range[i][1]};
            axis_ticks(&a, want, 0);
            double step = a.tick[1].value - a.tick[0].value;
            for (int k = 0; k < a.ticks; k++)
                t_near(read_label(a.tick[k].text), a.tick[k].value, 0.01 * step);
        }
}

T(a_log_axis_between_two_round_numbers_has_labels)
{
    static const double range[][2] = {{2.1, 2.9}, {1.1, 1.8}, {2.1, 9.5}, {3.1e-4, 3.9e-4}};
    for (size_t i = 0; i < sizeof range / sizeof *range; i++) {
        struct axis a = {.lo = range[i][0], .hi = range[i][1], .is_log = 1};
        int labels = 0;
        axis_ticks(&a, 5, 1);
        for (int k = 0; k < a.ticks; k++)
            if (a.tick[k].text[0]) {
                labels++;
                t_near(read_label(a.tick[k].text), a.tick[k].value, 1e-3 * a.hi);
            }
        t_truef(labels >= 2, "[%g, %g]: %d labels", a.lo, a.hi, labels);
    }
}

T(labels_of_a_narrow_panel_do_not_overlap)
{
    static const double range[][2] = {{5.64, 5.86}, {0, 1},        {2.65, 3.3},   {-1e-4, 1.2e-4},
                                      {0, 1e6},     {1234, 98765}, {0.971, 1.03}, {7e8, 7.01e8}};
    struct sheet s = {.venue = venue_find("icml")};
    for (size_t i = 0; i < DS_LEN(range); i++)
        for (int k = 0; k < 4; k++)
            for (double w = 75; w < 240; w += 5) {
                struct panel p = {.ay = {.lo = 0, .hi = 1}, .ticks_whole_x = k == 1};
                double left[AXIS_TICKS_MAX], right[AXIS_TICKS_MAX];
                int labels = 0;
                p.ax = (struct axis){
                    .lo = range[i][0], .hi = range[i][1], .is_log = k == 2 && range[i][0] > 0};
                panel_layout(&s, &p, 0, 0, w, 100);
                for (int t = 0; t < p.ax.ticks; t++) {
                    const char *text = p.ax.tick[t].text;
                    double half = glyph_width(text, s.venue->small) / 2,
                           x = axis_at(&p.ax, p.ax.tick[t].value);
                    if (!text[0])
                        continue;
                    left[labels] = x - half;
                    right[labels] = x + half;
                    for (int o = 0; o < labels; o++)
                        t_truef(left[labels] > right[o] || right[labels] < left[o],
                                "%g to %g in %g: %s", range[i][0], range[i][1], w, text);
                    labels++;
                }
                t_truef(labels > 0 || k == 1, "%g to %g in %g: no label", range[i][0], range[i][1],
                        w);
            }
}

T(a_constant_and_an_empty_axis_get_a_range)
{
    struct axis a = {0};
    axis_reset(&a);
    axis_include(&a, 2.5);
    axis_include(&a, (double)NAN);
    axis_pad(&a, 0.05);
    t_true(a.lo < 2.5 && a.hi > 2.5);
    axis_reset(&a);
    axis_pad(&a, 0.05);
    t_true(a.lo < a.hi);
}

T(correlation_is_exact_on_a_line_and_undefined_without_variance)
{
    float x[50], y[50], flat[50];
    for (int i = 0; i < 50; i++) {
        x[i] = (float)i;
        y[i] = (float)(3 - 2 * i);
        flat[i] = 8;
    }
    struct correlation c = stat_correlation(x, y, 50);
    t_near(c.r, -1, 1e-9);
    t_near(c.slope, -2, 1e-9);
    t_near(c.intercept, 3, 1e-7);
    c = stat_correlation(x, flat, 50);
    t_true(isnan(c.r) && isnan(c.lo));
    t_eq(c.n, 50);
    c = stat_correlation(x, y, 3);
    t_true(isnan(c.r));
}

T(fisher_interval_is_the_textbook_one)
{
    /* r = 0.5, n = 103: atanh 0.549306 +- 1.959964 / 10 */
    float x[103], y[103];
    struct rng r;
    rng_init(&r, 3, RNG_TEST, 0, 0);
    for (int i = 0; i < 103; i++) {
        x[i] = (float)rng_normal(&r);
        y[i] = (float)(0.5 * (double)x[i] + 0.8 * rng_normal(&r));
    }
    struct correlation c = stat_correlation(x, y, 103);
    t_near(atanh(c.hi) - atanh(c.r), 0.1959964, 1e-6);
    t_near(atanh(c.r) - atanh(c.lo), 0.1959964, 1e-6);
}

T(density_integrates_to_one)
{
    double v[200], d[512], sum = 0;
    struct rng r;
    rng_init(&r, 5, RNG_TEST, 0, 0);
    for (int i = 0; i < 200; i++)
        v[i] = rng_normal(&r);
    struct density_range line = {
        .lo = -8, .hi = 8, .least = -(double)INFINITY, .most = (double)INFINITY};
    stat_kde(v, 200, 0, &line, d, 512);
    for (int i = 0; i < 512; i++)
        sum += d[i] * 16 / 511;
    t_near(sum, 1, 1e-3);
}

/* The kernel is reflected at the bounds: the mass is preserved, and the density is zero outside. */
T(density_is_zero_outside_its_support)
{
    double v[200], d[513], sum = 0;
    struct rng r;
    rng_init(&r, 6, RNG_TEST, 0, 0);
    for (int i = 0; i < 200; i++)
        v[i] = i % 4 == 0 ? 1 : i % 4 == 1 ? 0.01 : rng_uniform(&r);
    struct density_range share = {.lo = -1, .hi = 3, .least = 0, .most = 1};
    stat_kde(v, 200, 0, &share, d, 513);
    for (int i = 0; i < 513; i++) {
        double x = -1 + 4.0 * i / 512;
        t_truef(x >= 0 && x <= 1 ? d[i] > 0 : d[i] == 0, "%g at %g", d[i], x);
    }
    share = (struct density_range){.lo = 0, .hi = 1, .least = 0, .most = 1};
    stat_kde(v, 200, 0, &share, d, 513);
    for (int i = 0; i < 513; i++)
        sum += d[i] / 512 * (i == 0 || i == 512 ? 0.5 : 1);
    t_near(sum, 1, 1e-3);
}

T(density_leaves_out_kernels_far_outside)
{
    double v[3] = {0, 1e300, -1e300}, near[65], d[65];
    struct density_range line = {
        .lo = -8, .hi = 8, .least = -(double)INFINITY, .most = (double)INFINITY};
    stat_kde(v, 1, 1, &line, near, 65);
    t_near(stat_kde(v, 3, 1, &line, d, 65), 1, 0);
    for (int i = 0; i < 65; i++)
        t_near(d[i], near[i] / 3, 1e-12);
}

T(values_at_edges_are_in_a_bin)
{
    t_eq(stat_bin(-1e-17, 0, 0.1, 10), 0);
    t_eq(stat_bin(1, 0, 0.1, 10), 9);
    t_eq(stat_bin(0.55, 0, 0.1, 10), 5);
    t_eq(stat_bin(1e300, 0, 1e-300, 10), 9);
    t_eq(stat_bin(-1e300, 0, 1e-300, 10), 0);
    t_eq(stat_bin(0, 0, 0, 10), 0);
    /* edges half a bin from a lattice, as in the histogram of costs: the lowest value is on an edge up to rounding */
    struct rng r;
    int below = 0;
    rng_init(&r, 3, RNG_TEST, 0, 0);
    for (int i = 0; i < 20000; i++) {
        double d0 = rng_uniform(&r), width = 0.01 + rng_uniform(&r) / 10,
               least = d0 - ((int)rng_below(&r, 9) + 0.5) * width,
               lo = d0 + (floor((least - d0) / width + 0.5) - 0.5) * width;
        least = nextafter(lo, i % 2 ? 2 : -2);
        lo = d0 + (floor((least - d0) / width + 0.5) - 0.5) * width;
        below += floor((least - lo) / width) < 0;
        t_true(stat_bin(least, lo, width, 10) >= 0);
    }
    t_truef(below > 0, "no edge of %d is out by a rounding", 20000);
}

static double dip(double *v, size_t n)
{
    double out = 0;
    struct err e = {0};
    stat_sort(v, n);
    t_ok(dip_statistic(v, n, &out, &e), &e);
    return out;
}

T(dip_of_an_evenly_spaced_sample_is_minimal)
{
    double v[100];
    for (int i = 0; i < 100; i++)
        v[i] = i;
    t_near(dip(v, 100), 1 / 200.0, 1e-12);
}

T(dip_of_two_distant_clusters_approaches_a_quarter)
{
    double v[1000];
    for (int i = 0; i < 1000; i++)
        v[i] = (i % 2) * 100 + i / 1000.0;
    t_near(dip(v, 1000), 0.25, 0.01);
}

/* The definition, evaluated directly: is there a unimodal distribution within d (steps of 1/n) of a
 * sample of n?  With its mode at point t it must be convex before and concave after.  At a point i
 * it may lie between i + 1 - d and i + d; a bound in between three points fails when the middle one
 * sticks out of the chord of its neighbours' opposite bounds. */
static double chord(const double *x, int a, int b, double va, double vb, double at)
{
    return va + (vb - va) * (at - x[a]) / (x[b] - x[a]);
}

static int fits(const double *x, int n, int t, double d)
{
    double least = -1e9, most = 1e9;
    for (int a = 0; a <= t; a++)
        for (int b = a + 1; b <= t; b++)
            for (int m = a + 1; m < b; m++)
                if (m + 1 - d > chord(x, a, b, a + d, b + d, x[m]) + 1e-12)
                    return 0;
    for (int a = t; a < n; a++)
        for (int b = a + 1; b < n; b++)
            for (int m = a + 1; m < b; m++)
                if (m + d < chord(x, a, b, a + 1 - d, b + 1 - d, x[m]) - 1e-12)
                    return 0;
    for (int b = 0; b < t; b++) {
        least = fmax(least, b + 1 - d);
        for (int a = 0; a < b; a++)
            least = fmax(least, chord(x, a, b, a + d, b + 1 - d, x[t]));
    }
    for (int a = t + 1; a < n; a++) {
        most = fmin(most, a + d);
        for (int b = a + 1; b < n; b++)
            most = fmin(most, chord(x, a, b, a + d, b + 1 - d, x[t]));
    }
    return least <= t + d + 1e-12 && most >= t + 1 - d - 1e-12 && least <= most + 1e-12;
}

static double dip_by_definition(const double *x, int n)
{
    double lo = 0.5, hi = n;
    for (int k = 0; k < 40; k++) {
        double d = (lo + hi) / 2;
        int ok = 0;
        for (int t = 0; t < n; t++)
            ok |= fits(x, n, t, d);
        if (ok)
            hi = d;
        else
            lo = d;
    }
    return hi / n;
}

T(dip_agrees_with_its_definition_on_small_samples)
{
    struct rng r;
    rng_init(&r, 9, RNG_TEST, 0, 0);
    for (int round = 0; round < 300; round++) {
        double x[12];
        int n = 4 + (int)rng_below(&r, 9);
        for (int i = 0; i < n; i++)
            x[i] = rng_uniform(&r) + (i > n / 2 ? 2 * rng_uniform(&r) : 0);
        double got = dip(x, (size_t)n);
        t_near(got, dip_by_definition(x, n), 1e-9);
    }
}

T(dip_test_distinguishes_one_mode_from_two)
{
    double one[500], two[500], p;
    struct rng r;
    struct err e = {0};
    rng_init(&r, 11, RNG_TEST, 0, 0);
    for (int i = 0; i < 500; i++) {
        one[i] = rng_normal(&r);
        two[i] = rng_normal(&r) + (i % 2 ? 5 : 0);
    }
    double d1 = dip(one, 500), d2 = dip(two, 500);
    t_ok(dip_p(d1, 500, 200, 1, &p, &e), &e);
    t_truef(p > 0.2, "one mode: p = %g", p);
    t_ok(dip_p(d2, 500, 200, 1, &p, &e), &e);
    t_truef(p < 0.01, "two modes: p = %g", p);
}
