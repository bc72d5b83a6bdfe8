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
        int decimals = a >= 1000 ? 0 : a >= 100 ? 1 : a >= 10 ? 2 : a >= 1 || a == 0 ? 3 : 4;
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
    if (is_log && lo > 0)
        return ticks_log(lo, hi, tick, max);
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

void tick_print(char out[24], double x, double step)
{
    double a = fabs(x), s = fabs(step);
    if (x == 0) {
        snprintf(out, 24, "0");
        return;
    }
    if (a >= 1e4 && a < 1e15) {
        static const struct {
            double unit;
            const char *suffix;
        } unit[] = {{1e12, "T"}, {1e9, "G"}, {1e6, "M"}, {1e3, "k"}};
        for (size_t i = 0; i < DS_LEN(unit); i++) {
            if (a >= unit[i].unit) {
                double v = x / unit[i].unit, vs = s / unit[i].unit;
                int d = vs >= 1 || vs == 0 ? (v == floor(v) ? 0 : 1) : vs >= 0.1 ? 1 : 2;
                snprintf(out, 24, "%.*f", d, v);
                trim(out);
                size_t used = strlen(out);
                snprintf(out + used, 24 - used, "%s", unit[i].suffix);
                return;
            }
        }
    }
    if (a < 1e-3 || a >= 1e15) {
        snprintf(out, 24, "%.0e", x);
        if (fabs(x / pow(10, floor(log10(a))) - round(x / pow(10, floor(log10(a))))) > 0.05)
            snprintf(out, 24, "%.1e", x);
        short_exponent(out);
        if (strlen(out) > 6) {
            snprintf(out, 24, "%.0e", x);
            short_exponent(out);
        }
        return;
    }
    int d = s > 0 ? (int)ceil(-log10(s) - 1e-9) : 3;
    if (s > 0 && d >= 0 && fabs(s * pow(10, d) - round(s * pow(10, d))) > 1e-6)
        d++;
    snprintf(out, 24, "%.*f", d < 0 ? 0 : d > 6 ? 6 : d, x);
}
