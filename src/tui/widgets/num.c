/* Formats numbers and places ticks. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/str.h"
#include "tui/widgets.h"

/* "0.7100" -> "0.71", "-0" -> "0" */
static void trim(char *text)
{
    char *dot = strchr(text, '.'), *end = text + strlen(text);
    if (dot && !strchr(text, 'e')) {
        while (end > dot + 1 && end[-1] == '0')
            *--end = '\0';
        if (end == dot + 1)
            *dot = '\0';
    }
    if (strcmp(text, "-0") == 0)
        memmove(text, text + 1, 2);
}

static void short_exponent(char *text);

const char *num_print(char out[24], double x)
{
    double a = fabs(x);
    if (isnan(x))
        snprintf(out, 24, "NaN");
    else if (isinf(x))
        snprintf(out, 24, x > 0 ? "inf" : "-inf");
    else if (a >= 1e5 && a < 1e15) {
        static const char suffix[] = "kMGTP";
        int k = 0;
        double v = x / 1e3;
        for (; fabs(v) >= 999.95 && k < 4; k++)
            v /= 1e3;
        snprintf(out, 24, fabs(v) < 9.995 ? "%.2f%c" : "%.1f%c", v, suffix[k]);
    } else if (a != 0 && (a < 1e-3 || a >= 1e15))
        snprintf(out, 24, "%.2e", x), short_exponent(out);
    else {
        int decimals = a >= 1000          ? 0
                       : a >= 100         ? 1
                       : a >= 10          ? 2
                       : a >= 1 || a == 0 ? 3
                       : a >= 0.01        ? 4
                                          : 5;
        snprintf(out, 24, "%.*f", decimals, x);
        if (a >= 100 || a == floor(a))
            trim(out);
    }
    return out;
}

static double nice_step(double raw)
{
    double base = pow(10, floor(log10(raw))), f = raw / base;
    return base * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 2.5 ? 2.5 : f <= 5 ? 5 : 10);
}

static int ticks_log(double lo, double hi, double *tick, int max)
{
    int first = (int)ceil(log10(lo) - 1e-9), last = (int)floor(log10(hi) + 1e-9), n = 0;
    int stride = (last - first + 1 + max - 1) / max;
    for (int k = first; k <= last && n < max; k += stride < 1 ? 1 : stride)
        tick[n++] = pow(10, k);
    if (n >= 2)
        return n;
    static const double inner[] = {1, 2, 5};
    n = 0;
    for (int k = first - 1; k <= last + 1; k++)
        for (int j = 0; j < 3 && n < max; j++)
            if (inner[j] * pow(10, k) >= lo * (1 - 1e-9) &&
                inner[j] * pow(10, k) <= hi * (1 + 1e-9))
                tick[n++] = inner[j] * pow(10, k);
    return n;
}

int ticks_nice(double lo, double hi, int is_log, double *tick, int max)
{
    if (!(hi > lo) || max < 1 || !isfinite(hi - lo))
        return 0;
    int logs = is_log && lo > 0 ? ticks_log(lo, hi, tick, max) : 0;
    if (logs >= 2 || (logs == 1 && max == 1))
        return logs; /* less than a decade may hold none: round numbers, as on a linear axis */
    double step = nice_step((hi - lo) / max);
    double first = ceil(lo / step - 1e-9) * step;
    int n = 0;
    for (int k = 0; k < max + 2 && n < max; k++) {
        double t = first + k * step;
        if (t > hi + step * 1e-9)
            break;
        tick[n++] = fabs(t) < step * 1e-6 ? 0 : t;
    }
    return n;
}

/* "1e-04" -> "1e-4", "2e+308" -> "2e308": labels are six cells wide. */
static void short_exponent(char *text)
{
    char *e = strchr(text, 'e'), *from;
    if (!e)
        return;
    e++;
    from = e + (*e == '+' || *e == '-');
    if (*e == '-')
        e++;
    while (*from == '0' && from[1])
        from++;
    memmove(e, from, strlen(from) + 1);
}

/* How the labels of one axis are written: a shared unit, so that all have the same precision. */
struct notation {
    double unit;
    int decimals;
    char suffix[8];
};

static int decimals_of(double step)
{
    int d = step > 0 ? (int)ceil(-log10(step) - 1e-9) : 0;
    d = d < 0 ? 0 : d;
    return fabs(step * pow(10, d) - round(step * pow(10, d))) > 1e-6 ? d + 1 : d;
}

static struct notation notation_of(double most, double step)
{
    static const struct {
        double unit;
        const char *suffix;
    } large[] = {{1e15, "P"}, {1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
    struct notation f = {.unit = 1};
    if (most >= 1e18 || (most > 0 && most < 1e-2 && step < 1e-3)) {
        int power = (int)floor(log10(most) + 1e-9);
        f.unit = pow(10, power);
        snprintf(f.suffix, sizeof f.suffix, "e%d", power);
    }
    for (size_t i = 0; i < DS_LEN(large) && most >= 1e4 && most < 1e18; i++) {
        if (most < large[i].unit)
            continue;
        f.unit = large[i].unit;
        str_copy(f.suffix, sizeof f.suffix, large[i].suffix);
        break;
    }
    f.decimals = decimals_of(step / f.unit);
    return f;
}

/* Decades, or 1, 2, 5 of each: plain numbers if all are short, else powers of ten. */
static void log_labels(struct axis_labels *t)
{
    int is_plain = t->n > 0 && t->at[0] >= 1e-3 && t->at[t->n - 1] < 1e5;
    for (int k = 0; k < t->n; k++) {
        double power = floor(log10(t->at[k]) + 1e-9);
        if (is_plain)
            snprintf(t->label[k], sizeof t->label[k], "%g", t->at[k]);
        else
            snprintf(t->label[k], sizeof t->label[k], "%.0fe%.0f", t->at[k] / pow(10, power),
                     power);
    }
}

/* 1, 2 or 5 times a power of ten. */
static int is_decadic(double x)
{
    double f = x / pow(10, floor(log10(x) + 1e-9));
    return fabs(f - 1) < 1e-6 || fabs(f - 2) < 1e-6 || fabs(f - 5) < 1e-6;
}

static int widest(const struct axis_labels *t)
{
    size_t most = 0;
    for (int k = 0; k < t->n; k++)
        most = strlen(t->label[k]) > most ? strlen(t->label[k]) : most;
    return (int)most;
}

/* A number in at most `cols` cells, with fewer digits if it must. */
static void print_short(char out[24], double x, int cols)
{
    num_print(out, x);
    for (int digits = 3; digits > 0 && (int)strlen(out) > cols; digits--) {
        if (fabs(x) < 1e-3)
            snprintf(out, 24, "%.*e", digits - 1, x);
        else
            snprintf(out, 24, "%.*g", digits, x);
        short_exponent(out);
    }
}

/* Of values that differ only in digits that do not fit: the first tick, rounded, and the distances
 * of the others from it. */
static void relative_labels(struct axis_labels *t, double lo, double hi, int max, int cols)
{
    int finest = 2 * max < AXIS_TICKS_MAX ? 2 * max : AXIS_TICKS_MAX; /* two must be inside */
    for (int n = finest; n > 1; n--) {
        t->n = ticks_nice(lo, hi, 0, t->at, n);
        if (t->n < 2 || t->n > max)
            continue;
        double step = nice_step((hi - lo) / n);
        struct notation f = notation_of(step, step);
        print_short(t->label[0], t->at[0], cols);
        for (int k = 1; k < t->n; k++)
            snprintf(t->label[k], sizeof t->label[k], "+%.*f%s", f.decimals,
                     (t->at[k] - t->at[0]) / f.unit, f.suffix);
        if (widest(t) <= cols)
            return;
    }
    t->n = 0;
}

void axis_labels(struct axis_labels *t, double lo, double hi, int is_log, int max, int cols)
{
    int most = max > AXIS_TICKS_MAX ? AXIS_TICKS_MAX : max;
    if (lo == hi && max > 0) { /* of a single point */
        t->at[0] = lo;
        t->n = (int)strlen(num_print(t->label[0], lo)) <= cols;
        return;
    }
    for (max = most; max > 0; max--) {
        t->n = ticks_nice(lo, hi, is_log, t->at, max);
        int is_decades = is_log && lo > 0;
        for (int k = 0; is_decades && k < t->n; k++)
            is_decades = is_decadic(t->at[k]);
        if (is_decades) {
            log_labels(t);
        } else if (t->n > 0) {
            double a = fabs(t->at[0]), b = fabs(t->at[t->n - 1]), step = nice_step((hi - lo) / max);
            struct notation f = notation_of(a > b ? a : b, step);
            for (int k = 0; k < t->n; k++)
                if (t->at[k] == 0 && f.suffix[0])
                    str_copy(t->label[k], sizeof t->label[k], "0");
                else
                    snprintf(t->label[k], sizeof t->label[k], "%.*f%s", f.decimals,
                             t->at[k] / f.unit, f.suffix);
        }
        if (t->n > 0 && widest(t) <= cols)
            return;
    }
    relative_labels(t, lo, hi, most, cols);
}

const char *num_age(char out[16], double seconds)
{
    double s = seconds >= 0 ? floor(seconds) : 0;
    if (s < 60)
        snprintf(out, 16, "%.0fs", s);
    else
        str_duration(out, s > 120 ? floor(s / 60) * 60 : s);
    out[strcspn(out, "dhms") + (strcspn(out, "dhms") < strlen(out))] = '\0';
    return out;
}
