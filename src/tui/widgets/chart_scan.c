/* Reduces the series of a line chart to columns and chooses its axis ranges. */
#include "tui/chart_scan.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"

/* The segment that begins at a point. */
static struct scan_segment segment_at(const struct series *s, size_t at)
{
    int old = s->is_old ? s->is_old[at] != 0 : 0;
    const unsigned char *next = s->is_old ? memchr(s->is_old + at, !old, s->n - at) : NULL;
    return (struct scan_segment){at, next ? (size_t)(next - s->is_old) : s->n, old};
}

int scan_segments(const struct series *s, struct scan_segment **out)
{
    int n = 0;
    for (size_t at = 0; at < s->n; n++)
        at = segment_at(s, at).end;
    *out = mem_alloc((size_t)n, sizeof **out);
    for (size_t at = 0, k = 0; *out && at < s->n; at = (*out)[k++].end)
        (*out)[k] = segment_at(s, at);
    return *out ? n : 0;
}

double chart_x_of(const struct curve *c, enum run_axis axis, size_t i)
{
    return series_x(c->series, i, axis, c->steps_planned, c->time_start);
}

/* First index in [begin, end) whose x is >= at.  NaN sorts last, so that a series without a token
 * count shows nothing instead of everything in one column. */
static size_t lower_bound(const struct curve *c, enum run_axis axis, size_t begin, size_t end,
                          double at)
{
    while (begin < end) {
        size_t mid = begin + (end - begin) / 2;
        if (chart_x_of(c, axis, mid) < at)
            begin = mid + 1;
        else
            end = mid;
    }
    return begin;
}

struct scan_column scan_range(const struct curve *c, enum run_axis axis, double x0, double x1,
                              const struct scan_segment *segment, int segments, int wants_old)
{
    struct scan_column out = {.min = (double)INFINITY,
                              .max = -(double)INFINITY,
                              .last = (double)NAN,
                              .smooth = (double)NAN};
    for (int k = 0; k < segments; k++) {
        if (segment[k].is_old != wants_old)
            continue;
        size_t i0 = lower_bound(c, axis, segment[k].begin, segment[k].end, x0);
        size_t i1 = lower_bound(c, axis, i0, segment[k].end, x1);
        if (i0 >= i1)
            continue;
        struct series_span r = series_range(c->series, i0, i1);
        out.nonfinite += r.nonfinite;
        if (isfinite(r.min) && isfinite(r.max) && r.min <= r.max && i1 - i0 > r.nonfinite) {
            out.min = r.min < out.min ? r.min : out.min;
            out.max = r.max > out.max ? r.max : out.max;
            out.last = isfinite(r.last) ? r.last : r.max;
            out.n += i1 - i0 - r.nonfinite;
        }
        if (c->smooth && c->smooth->n >= i1)
            out.smooth = c->smooth->v[i1 - 1];
    }
    return out;
}

double scan_between(const struct curve *c, enum run_axis axis, double x,
                    const struct scan_segment *segment, int segments)
{
    const double *v = c->smooth && c->smooth->weight > 0 && c->smooth->n >= c->series->n
                          ? c->smooth->v
                          : c->series->value;
    size_t none = c->series->n, before = none, after = none;
    for (int k = 0; k < segments && after == none; k++) {
        if (segment[k].is_old)
            continue;
        size_t at = lower_bound(c, axis, segment[k].begin, segment[k].end, x);
        before = at > segment[k].begin ? at - 1 : before;
        after = at < segment[k].end ? at : none;
    }
    if (before == none || after == none)
        return (double)NAN;
    double x0 = chart_x_of(c, axis, before), x1 = chart_x_of(c, axis, after);
    return v[before] + (v[after] - v[before]) * (x - x0) / (x1 - x0);
}

size_t chart_index_at(const struct curve *c, enum run_axis axis, double x)
{
    size_t best = c->series->n;
    double distance = (double)INFINITY;
    for (size_t next = 0; next < c->series->n;) {
        struct scan_segment segment = segment_at(c->series, next);
        next = segment.end;
        if (segment.is_old)
            continue;
        size_t at = lower_bound(c, axis, segment.begin, segment.end, x);
        for (size_t i = at > segment.begin ? at - 1 : at; i <= at && i < segment.end; i++) {
            double d = fabs(chart_x_of(c, axis, i) - x);
            if (d < distance) {
                distance = d;
                best = i;
            }
        }
    }
    return best;
}

double scan_unit(const struct scan_axis *a, double x)
{
    if (a->is_log)
        return x > 0 ? (log(x) - log(a->lo)) / (log(a->hi) - log(a->lo)) : -1;
    return (x - a->lo) / (a->hi - a->lo);
}

double scan_value(const struct scan_axis *a, double unit)
{
    if (a->is_log)
        return exp(log(a->lo) + unit * (log(a->hi) - log(a->lo)));
    return a->lo + unit * (a->hi - a->lo);
}

struct scan_axis scan_x_axis(const struct chart *c)
{
    double lo = (double)INFINITY, hi = -(double)INFINITY;
    for (int k = 0; k < c->curves; k++) {
        const struct series *s = c->curve[k].series;
        if (s->n == 0)
            continue;
        /* ends of the live part: the first and the newest point */
        double first = chart_x_of(&c->curve[k], c->x_axis, 0),
               last = chart_x_of(&c->curve[k], c->x_axis, s->n - 1);
        lo = first < lo ? first : lo;
        hi = last > hi ? last : hi;
    }
    if (!(hi >= lo) || !isfinite(hi - lo))
        return (struct scan_axis){0, 1, 0, 0};
    struct scan_axis a = {lo, hi, c->is_log_x && hi > 0, 0};
    if (a.is_log) {
        a.lo = lo > 0 ? lo : hi > 1 ? 1 : hi / 1e3;
        a.hi = a.hi > a.lo ? a.hi : a.lo * 10;
        return a;
    }
    if (hi == lo)
        return (struct scan_axis){.lo = lo, .hi = lo + 1, .is_point = 1};
    /* rounds up to the next of 8/8, 9/8, ... 16/8 of a power of two */
    double span = hi - lo, base = exp2(floor(log2(span)));
    a.hi = lo + base * ceil(span / base * 8) / 8;
    if (c->x_axis == AXIS_PROGRESS && hi <= 1 && a.hi > 1)
        a.hi = 1;
    return a;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The range covers the bulk of the columns; a far outlier gets a mark at the edge instead of
 * flattening everything else. */
static void bulk(double *lows, double *highs, int n, double *lo, double *hi)
{
    qsort(lows, (size_t)n, sizeof *lows, ascending);
    qsort(highs, (size_t)n, sizeof *highs, ascending);
    *lo = lows[0];
    *hi = highs[n - 1];
    if (n < 12)
        return;
    double low = lows[n / 20], high = highs[n - 1 - n / 20], spread = high - low;
    if (!(spread > 0))
        spread = fabs(high) > 0 ? fabs(high) * 0.1 : 1;
    if (*hi > high + 1.5 * spread)
        *hi = high + 0.15 * spread;
    if (*lo < low - 1.5 * spread)
        *lo = low - 0.15 * spread;
}

struct scan_axis scan_y_axis(const struct chart *c, double *lows, double *highs, int n)
{
    struct scan_axis a = {0, 1, 0};
    if (c->y1 > c->y0)
        return (struct scan_axis){c->y0, c->y1, c->is_log_y && c->y0 > 0, 0};
    if (n == 0)
        return a;
    double top = highs[0];
    for (int i = 1; i < n; i++)
        top = highs[i] > top ? highs[i] : top;
    if (c->is_log_y && top > 0) {
        int k = 0;
        for (int i = 0; i < n; i++)
            if (lows[i] > 0)
                lows[k++] = lows[i];
        double lo = top;
        for (int i = 0; i < k; i++)
            lo = lows[i] < lo ? lows[i] : lo;
        if (c->reference > 0 && isfinite(c->reference)) {
            lo = c->reference < lo ? c->reference : lo;
            top = c->reference > top ? c->reference : top;
        }
        double step = log10(top / lo) > 2 ? 1 : 0.25; /* of a decade */
        a.lo = pow(10, floor(log10(lo) / step) * step);
        a.hi = pow(10, ceil(log10(top) / step + 1e-9) * step);
        a.hi = a.hi > a.lo ? a.hi : a.lo * 10;
        a.is_log = 1;
        return a;
    }
    bulk(lows, highs, n, &a.lo, &a.hi);
    if (isfinite(c->reference)) {
        a.lo = c->reference < a.lo ? c->reference : a.lo;
        a.hi = c->reference > a.hi ? c->reference : a.hi;
    }
    double spread = a.hi - a.lo, magnitude = fabs(a.hi) > fabs(a.lo) ? fabs(a.hi) : fabs(a.lo);
    if (!(spread > magnitude * 1e-6)) {
        spread = magnitude > 0 ? magnitude * 0.1 : 1;
        a.lo -= spread / 2;
        a.hi += spread / 2;
    }
    double step = pow(10, floor(log10(spread))) / 4;
    int was_positive = a.lo >= 0;
    a.lo = floor(a.lo / step) * step;
    a.hi = ceil(a.hi / step) * step;
    if (was_positive && a.lo > 0 && a.lo < 0.15 * a.hi)
        a.lo = 0; /* close to zero: start at zero */
    return a;
}
