/* Tick placement, number formats and the mapping of axes. */
#include "figures/axes.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MINUS "\xE2\x88\x92"

static const char *const super[10] = {
    "\xE2\x81\xB0", "\xC2\xB9",     "\xC2\xB2",     "\xC2\xB3",     "\xE2\x81\xB4",
    "\xE2\x81\xB5", "\xE2\x81\xB6", "\xE2\x81\xB7", "\xE2\x81\xB8", "\xE2\x81\xB9"};

/* ---- extended Wilkinson
 * ------------------------------------------------------------------------------ Labels are at
 * multiples of q * 10^z; the score weighs the simplicity of q, the coverage of the data and the
 * distance from the requested number of labels.  Upper bounds of each term end the loops.  Unlike
 * the paper, labels that skip multiples (j > 1) and labels beyond the data are not searched: 0.4,
 * 0.6, 0.8 but never 0.3, 0.5, 0.7. */

static const double nice[] = {1, 5, 2, 2.5, 4, 3};
enum { NICE = 6, STARTS_MAX = 1000 };
static const double w_simple = 0.25, w_cover = 0.2, w_dense = 0.55;

static double simplicity(int q, int has_zero)
{
    return has_zero - (double)q / (NICE - 1);
}

static double coverage(double lo, double hi, double l0, double l1)
{
    double r = 0.1 * (hi - lo);
    return 1 - 0.5 * ((hi - l1) * (hi - l1) + (lo - l0) * (lo - l0)) / (r * r);
}

static double density(int k, int want, double lo, double hi, double l0, double l1)
{
    double r = (k - 1) / (l1 - l0), rt = (want - 1) / (fmax(l1, hi) - fmin(lo, l0));
    return 2 - fmax(r / rt, rt / r);
}

static double density_max(int k, int want)
{
    return k >= want ? 2 - (double)(k - 1) / (want - 1) : 1;
}

struct found {
    double score, first, step;
    int n;
};

/* The best first label for k labels with this step. */
static void try_starts(struct found *best, double lo, double hi, int want, int q, int k,
                       double step)
{
    double slack = 1e-9 * (hi - lo), top = floor(hi / step + 1e-9) - (k - 1);
    /* Counted: beyond 2^53 steps a double less one is itself. */
    int starts = (int)fmin(fmax(floor(top - lo / step + 1e-9) + 1, 0), STARTS_MAX);
    for (int i = 0; i < starts; i++) {
        double s = top - i, l0 = s * step, l1 = l0 + step * (k - 1);
        double score = w_simple * simplicity(q, l0 <= slack && l1 >= -slack) +
                       w_cover * coverage(lo, hi, l0, l1) +
                       w_dense * density(k, want, lo, hi, l0, l1);
        if (score > best->score && l0 >= lo - slack && l1 <= hi + slack)
            *best = (struct found){score, l0, step, k};
    }
}

static void try_counts(struct found *best, double lo, double hi, int want, int q)
{
    for (int k = 2; k <= 2 * want + 2; k++) {
        if (w_simple * simplicity(q, 1) + w_cover + w_dense * density_max(k, want) < best->score)
            break;
        double least = (hi - lo) / (k + 1) / nice[q], most = (hi - lo) / (k - 1) / nice[q];
        for (int z = (int)ceil(log10(least) - 1e-9); z <= (int)floor(log10(most) + 1e-9); z++)
            try_starts(best, lo, hi, want, q, k, nice[q] * pow(10, z));
    }
}

double ticks_extended(double lo, double hi, int want, double *first, int *n)
{
    struct found best = {.score = -1e9};
    if (want < 2)
        want = 2;
    for (int q = 0; q < NICE && isfinite(hi - lo) && hi > lo; q++)
        try_counts(&best, lo, hi, want, q);
    if (best.n == 0) /* no step has two multiples inside: label the ends */
        best = (struct found){0, lo, hi - lo, 2};
    *first = best.first;
    *n = best.n;
    return best.step;
}

/* ---- numbers
 * ------------------------------------------------------------------------------------------ */

static void exponent_text(char *out, size_t size, int e)
{
    char digits[16];
    struct str s = str_in(out, size);
    snprintf(digits, sizeof digits, "%d", e < 0 ? -e : e);
    if (e < 0)
        str_add(&s, "\xE2\x81\xBB");
    for (const char *d = digits; *d; d++)
        str_add(&s, super[*d - '0']);
}

/* Fewest decimals that show v exactly, up to 6. */
static int decimals_of(double v)
{
    for (int d = 0; d < 6; d++) {
        double scaled = fabs(v) * pow(10, d);
        if (fabs(scaled - floor(scaled + 0.5)) < 1e-6 * fmax(1, scaled * 1e-3))
            return d;
    }
    return 6;
}

void number_format(char *out, size_t size, double v, int decimals)
{
    char digits[64];
    struct str s = str_in(out, size);
    if (!isfinite(v)) {
        str_copy(out, size, isnan(v) ? "NaN" : v > 0 ? "\xE2\x88\x9E" : MINUS "\xE2\x88\x9E");
        return;
    }
    snprintf(digits, sizeof digits, "%.*f", decimals < 0 ? decimals_of(v) : decimals, fabs(v));
    size_t whole = strcspn(digits, ".,");
    if (v < 0 && strspn(digits, "0.") != strlen(digits))
        str_add(&s, MINUS);
    for (size_t i = 0; digits[i]; i++) {
        if (i > 0 && i < whole && (whole - i) % 3 == 0)
            str_add_char(&s, ',');
        str_add_char(&s, i == whole ? '.' : digits[i]);
    }
}

/* "3.1×10⁻⁴" */
static void power_text(char *out, size_t size, double v, int decimals)
{
    int e = (int)floor(log10(fabs(v)) + 1e-9);
    char head[32], tail[24];
    if (fabs(v) / pow(10, e) >= 10 - 0.5 * pow(10, -decimals)) /* it would be rounded to 10 */
        e++;
    number_format(head, sizeof head, v / pow(10, e), decimals);
    exponent_text(tail, sizeof tail, e);
    snprintf(out, size,
             "%s\xC3\x97"
             "10%s",
             head, tail);
}

void number_short(char *out, size_t size, double v)
{
    double a = fabs(v);
    if (!isfinite(v) || v == 0 || (a >= 1e-3 && a < 1e7)) {
        number_format(out, size, v,
                      v == 0 || a >= 100 ? 0
                      : a >= 10          ? 1
                      : a >= 1           ? 2
                      : a >= 0.1         ? 3
                                         : 4);
        return;
    }
    power_text(out, size, v, 1);
}

/* Decimals that tell labels at this distance apart: steps have at most two digits. */
static int step_decimals(double step)
{
    int d = decimals_of(step);
    if (step >= 1e-5)
        return d;
    d = -(int)floor(log10(step) + 1e-9);
    double lead = step * pow(10, d);
    d += fabs(lead - floor(lead + 0.5)) > 1e-6;
    return d < 14 ? d : 14;
}

/* With as many digits as the step needs at this magnitude: 1.25×10¹⁵. */
static void label_power(struct tick *t, double step)
{
    if (t->value == 0) {
        str_copy(t->text, sizeof t->text, "0");
        return;
    }
    double unit = pow(10, floor(log10(fabs(t->value)) + 1e-9));
    int d = step_decimals(step / unit);
    power_text(t->text, sizeof t->text, t->value, d < 1 ? 1 : d > 6 ? 6 : d);
}

/* Chooses one format for all labels of an axis: plain, thousands, millions, or a power of ten. */
static void label_all(struct axis *a, double step)
{
    double most = 0;
    for (int i = 0; i < a->ticks; i++)
        most = fmax(most, fabs(a->tick[i].value));
    static const struct {
        double unit;
        const char *suffix;
    } big[] = {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    double unit = 1;
    const char *suffix = "";
    for (size_t i = 0; most >= 10000 && i < DS_LEN(big); i++)
        if (most >= big[i].unit && step_decimals(step / big[i].unit) <= 2) {
            unit = big[i].unit;
            suffix = big[i].suffix;
            break;
        }
    int is_power = most < 1e-3 || most >= 1e13;
    int d = step_decimals(step / unit);
    for (int i = 0; i < a->ticks; i++) {
        struct tick *t = &a->tick[i];
        char body[28];
        if (is_power)
            label_power(t, step);
        else {
            number_format(body, sizeof body, t->value / unit, d);
            snprintf(t->text, sizeof t->text, "%s%s", body, t->value == 0 ? "" : suffix);
        }
    }
}

/* ---- axes
 * ---------------------------------------------------------------------------------------------- */

static void add_tick(struct axis *a, double v, int is_minor)
{
    double slack = 1e-9 * (a->hi - a->lo);
    if (a->ticks < AXIS_TICKS_MAX && v >= a->lo - slack && v <= a->hi + slack)
        a->tick[a->ticks++] = (struct tick){.value = v, .is_minor = is_minor};
}

static void add_minor(struct axis *a, double first, int n, double step)
{
    double lead = step / pow(10, floor(log10(step) + 1e-9));
    int parts = fabs(lead - 2) < 1e-6 || fabs(lead - 4) < 1e-6 ? 4 : fabs(lead - 3) < 1e-6 ? 3 : 5;
    for (int i = -1; i <= n; i++)
        for (int m = 1; m < parts; m++)
            add_tick(a, first + step * (i + (double)m / parts), 1);
}

static void decade_text(struct tick *t, int e)
{
    if (e >= -2 && e <= 3)
        number_format(t->text, sizeof t->text, pow(10, e), e < 0 ? -e : 0);
    else {
        char tail[20];
        exponent_text(tail, sizeof tail, e);
        snprintf(t->text, sizeof t->text, "10%s", tail);
    }
}

static void ticks_even(struct axis *a, int want, int with_minor)
{
    double first, step;
    int n;
    a->ticks = 0;
    step = ticks_extended(a->lo, a->hi, want, &first, &n);
    for (int i = 0; i < n; i++) {
        double v = first + i * step;
        add_tick(a, fabs(v) < step * 1e-9 ? 0 : v, 0);
    }
    label_all(a, step);
    if (with_minor)
        add_minor(a, first, n, step);
}

static void ticks_log(struct axis *a, int want, int with_minor)
{
    int e0 = (int)ceil(log10(a->lo) - 1e-9), e1 = (int)floor(log10(a->hi) + 1e-9), labelled = 0;
    int every = (e1 - e0) / (want < 2 ? 2 : want) + 1;
    for (int e = e0; e <= e1; e++) {
        int before = a->ticks;
        add_tick(a, pow(10, e), 0);
        if (a->ticks > before && (e - e0) % every == 0) {
            decade_text(&a->tick[before], e);
            labelled++;
        }
    }
    for (int e = e0 - 1; e <= e1 && with_minor && e1 - e0 <= 5; e++)
        for (int m = 2; m <= 9; m++)
            add_tick(a, m * pow(10, e), 1);
    /* Over less than two decades 2 and 5 are labelled too, or all digits if that is still too
     * few. */
    double span = log10(a->hi / a->lo);
    for (int i = 0; labelled < 2 && i < a->ticks; i++) {
        struct tick *t = &a->tick[i];
        int e = (int)floor(log10(t->value) + 1e-9), m = (int)floor(t->value / pow(10, e) + 0.5);
        if (m == 2 || m == 5 || span < 0.5)
            number_short(t->text, sizeof t->text, t->value);
        if (t->text[0] && t->value >= 1e-2 && t->value < 1e4)
            number_format(t->text, sizeof t->text, t->value, -1);
    }
}

void axis_ticks(struct axis *a, int want, int with_minor)
{
    int labels = 0;
    if (a->is_log) {
        a->ticks = 0;
        ticks_log(a, want, with_minor);
        for (int i = 0; i < a->ticks; i++)
            labels += a->tick[i].text[0] != '\0';
    }
    if (labels < 2) /* also a log axis too short for two round numbers */
        ticks_even(a, want, with_minor);
}

void axis_ticks_whole(struct axis *a, int want)
{
    static const double steps[] = {1, 2, 5};
    double step = 1;
    a->ticks = 0;
    for (int i = 0; (a->hi - a->lo) / step > want && step < 1e300; i++)
        step = steps[(i + 1) % 3] * pow(10, (i + 1) / 3);
    double first = ceil(a->lo / step - 1e-9) * step;
    for (int i = 0; i < AXIS_TICKS_MAX && first + i * step <= a->hi + 1e-9; i++)
        add_tick(a, first + i * step, 0);
    label_all(a, step);
}

void axis_reset(struct axis *a)
{
    a->lo = 1;
    a->hi = 0;
}

int axis_is_empty(const struct axis *a)
{
    return a->lo > a->hi;
}

void axis_include(struct axis *a, double v)
{
    /* The width of a range of larger numbers has no double. */
    const double most = 1e300;
    if (!isfinite(v) || (a->is_log && v <= 0))
        return;
    v = fmax(-most, fmin(most, v));
    if (axis_is_empty(a))
        a->lo = a->hi = v;
    a->lo = fmin(a->lo, v);
    a->hi = fmax(a->hi, v);
}

void axis_pad(struct axis *a, double fraction)
{
    if (axis_is_empty(a)) {
        a->lo = a->is_log ? 0.1 : 0;
        a->hi = 1;
    }
    if (a->is_log) {
        double by = fmax(log10(a->hi / a->lo) * fraction, a->hi > a->lo ? 0 : 0.3);
        a->lo /= pow(10, by);
        a->hi *= pow(10, by);
        return;
    }
    double by = (a->hi - a->lo) * fraction;
    /* A constant value gets a range proportional to its magnitude. */
    if (!(a->hi - a->lo > 1e-12 * fmax(fabs(a->lo), fabs(a->hi))))
        by = fmax(fabs(a->hi) * 0.1, 1e-6);
    a->lo -= by;
    a->hi += by;
}

double axis_at(const struct axis *a, double v)
{
    double t = a->is_log ? log(v / a->lo) / log(a->hi / a->lo) : (v - a->lo) / (a->hi - a->lo);
    return a->from + t * (a->to - a->from);
}
