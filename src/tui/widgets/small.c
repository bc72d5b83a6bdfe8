/* Small widgets: sparkline, gauge, bars, histogram and popup. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/widgets.h"

/* One of the partial blocks that fill 0..8 eighths of a cell, upwards or to the right. */
static uint32_t eighth(struct area a, int n, int is_vertical)
{
    static const char ascii_up[] = " ..--==##", ascii_right[] = "  --==###";
    static const uint32_t shade[] = {' ',    ' ',    0x2591, 0x2591, 0x2592,
                                     0x2592, 0x2593, 0x2593, 0x2588};
    n = n < 0 ? 0 : n > 8 ? 8 : n;
    if (a.canvas->look.glyphs == GLYPHS_ASCII)
        return (uint32_t)(unsigned char)(is_vertical ? ascii_up : ascii_right)[n];
    if (a.canvas->look.glyphs == GLYPHS_SHADES)
        return shade[n];
    return n == 0        ? ' '
           : n == 8      ? 0x2588
           : is_vertical ? 0x2580u + (uint32_t)n
                         : 0x2590u - (uint32_t)n;
}

static void range_of(const double *v, size_t n, double *lo, double *hi)
{
    *lo = (double)INFINITY;
    *hi = -(double)INFINITY;
    for (size_t i = 0; i < n; i++) {
        if (isfinite(v[i])) {
            *lo = v[i] < *lo ? v[i] : *lo;
            *hi = v[i] > *hi ? v[i] : *hi;
        }
    }
    if (!(*hi > *lo)) {
        *lo = isfinite(*lo) ? *lo - 1 : 0;
        *hi = *lo + 2;
    }
}

void spark_draw(struct area a, const double *v, size_t n, double lo, double hi, enum role r)
{
    if (n == 0 || a.cols < 1)
        return;
    if (!(hi > lo))
        range_of(v, n, &lo, &hi);
    for (int x = 0; x < a.cols; x++) {
        size_t i0 = n * (size_t)x / (size_t)a.cols, i1 = n * (size_t)(x + 1) / (size_t)a.cols;
        double top = -(double)INFINITY;
        int is_bad = 0;
        i1 = i1 > i0 ? i1 : i0 + 1;
        for (size_t i = i0; i < i1 && i < n; i++) {
            is_bad |= !isfinite(v[i]);
            top = isfinite(v[i]) && v[i] > top ? v[i] : top;
        }
        if (is_bad)
            area_put(a, 0, x, area_rune(a, 0xD7, 'x'), ink(ROLE_BAD));
        else
            area_put(a, 0, x, eighth(a, 1 + (int)lround((top - lo) / (hi - lo) * 7), 1), ink(r));
    }
}

/* A horizontal bar of `cells` cells, full at 1, drawn in eighths of a cell. */
static void bar_fill(struct area a, int y, int x, int cells, double unit, enum role r)
{
    int eighths = (int)lround((unit < 0 ? 0 : unit > 1 ? 1 : unit) * cells * 8);
    for (int k = 0; k < cells; k++, eighths -= 8)
        area_put(a, y, x + k, eighths > 0 ? eighth(a, eighths, 0) : area_rune(a, 0xB7, '.'),
                 ink(eighths > 0 ? r : ROLE_GRID));
}

void meter_draw(struct area a, double unit, enum role r)
{
    bar_fill(a, 0, 0, a.cols, unit, r);
}

void gauge_draw(struct area a, const char *label, double value, double target, double full,
                enum role r)
{
    char text[64], v[24], t[24];
    int x = area_text(a, 0, 0, a.cols / 3, ink(ROLE_DIM), label) + 1;
    if (isfinite(target))
        snprintf(text, sizeof text, " %s of %s", num_print(v, value), num_print(t, target));
    else
        snprintf(text, sizeof text, " %s", num_print(v, value));
    int width = a.cols - x - (int)strlen(text) - 1;
    if (width >= 6) {
        bar_fill(a, 0, x, width, value / full, r);
        if (isfinite(target) && target >= 0 && target <= full)
            area_put(a, 0, x + (int)lround(target / full * (width - 1)), area_rune(a, 0x2503, '|'),
                     ink(ROLE_REFERENCE));
        x += width;
    }
    area_text(a, 0, x, -1, ink(r), text);
}

void bars_draw(struct area a, const struct bar *b, size_t n, double full, double reference,
               size_t top)
{
    int label = 0;
    for (size_t i = 0; i < n; i++)
        label = (int)strlen(b[i].label) > label ? (int)strlen(b[i].label) : label;
    label = label > a.cols * 2 / 5 ? a.cols * 2 / 5 : label;
    int width = a.cols - label - 1 - 7;
    for (size_t i = top; i < n && (int)(i - top) < a.rows; i++) {
        int y = (int)(i - top);
        char text[24];
        area_text(a, y, 0, label, ink(ROLE_DIM), b[i].label);
        if (width >= 4) {
            bar_fill(a, y, label + 1, width, full > 0 ? b[i].value / full : 0, b[i].role);
            if (isfinite(reference) && reference <= full)
                area_put(a, y, label + 1 + (int)lround(reference / full * (width - 1)),
                         area_rune(a, 0x2502, '|'), ink(ROLE_REFERENCE));
        }
        area_right(a, y, a.cols, ink(isfinite(b[i].value) ? ROLE_TEXT : ROLE_BAD),
                   num_print(text, b[i].value));
    }
}

/* ---- axes ---- */

static double axis_unit(double v, double lo, double hi, int is_log)
{
    if (hi == lo)
        return 0;
    return is_log && lo > 0 ? log(v / lo) / log(hi / lo) : (v - lo) / (hi - lo);
}

void axis_draw_y(struct area a, int top, int rows, double lo, double hi, int is_log)
{
    struct axis_labels t;
    axis_labels(&t, lo, hi, is_log, rows >= 12 ? 6 : rows >= 5 ? 3 : 2, AXIS_COLS);
    area_vline(a, top, AXIS_COLS, rows, ink(ROLE_AXIS));
    for (int k = 0, taken = -1; k < t.n; k++) {
        /* the row of this value in dots, of which a row has four */
        double unit = axis_unit(t.at[k], lo, hi, is_log);
        int y = (int)lround((1 - unit) * (4 * rows - 1) + 1e-9) / 4;
        if (y < 0 || y >= rows || y == taken)
            continue;
        taken = y;
        area_right(area_sub(a, 0, 0, a.rows, AXIS_COLS), top + y, AXIS_COLS, ink(ROLE_AXIS),
                   t.label[k]);
        area_put(a, top + y, AXIS_COLS, area_rune(a, 0x2524, '+'), ink(ROLE_AXIS));
    }
}

/* 1 when the distance of two ticks is below `least`. */
static int is_too_fine(const struct axis_labels *t, double least)
{
    return t->n > 1 && t->at[1] - t->at[0] < least * (1 - 1e-9);
}

/* Places the labels; 0 when two of them touch. */
static int place_labels(const struct axis_labels *t, struct area a, int left, int cols, double lo,
                        double hi, int is_log, int *x)
{
    int fits = 1;
    for (int k = 0; k < t->n; k++) {
        int len = (int)strlen(t->label[k]);
        x[k] = left + (int)lround(axis_unit(t->at[k], lo, hi, is_log) * (cols - 1)) - len / 2;
        x[k] = x[k] + len > a.cols ? a.cols - len : x[k] < 0 ? 0 : x[k];
        fits &= k == 0 || x[k] >= x[k - 1] + (int)strlen(t->label[k - 1]) + 2;
    }
    return fits;
}

void axis_draw_x(struct area a, int y, int left, int cols, double lo, double hi, int is_log,
                 double least, const char *name)
{
    struct axis_labels t = {0};
    int x[AXIS_TICKS_MAX], max = cols / 10, end = 0;
    max = max < 2 ? 2 : max > 12 ? 12 : max;
    do
        axis_labels(&t, lo, hi, is_log, max, a.cols);
    while ((is_too_fine(&t, least) || !place_labels(&t, a, left, cols, lo, hi, is_log, x)) &&
           --max > 0);
    for (int k = 0; k < t.n && max > 0; k++) {
        area_text(a, y, x[k], -1, ink(ROLE_AXIS), t.label[k]);
        end = x[k] + (int)strlen(t.label[k]) + 2;
    }
    if (name && end + (int)strlen(name) <= a.cols)
        area_right(a, y, a.cols, ink(ROLE_AXIS), name);
}

void hist_draw(struct area whole, const double *count, int bins, double x0, double x1,
               const struct hist_mark *mark, int marks, enum role r)
{
    double top = 0;
    int rows = whole.rows - 2; /* one line of mark labels above, one of ticks below */
    struct area a = area_sub(whole, 0, AXIS_COLS + 1, whole.rows, whole.cols - AXIS_COLS - 1);
    if (rows < 1 || a.cols < 8 || bins < 1 || !(x1 > x0))
        return;
    for (int i = 0; i < bins; i++)
        top = count[i] > top ? count[i] : top;
    axis_draw_y(whole, 1, rows, 0, top > 0 ? top : 1, 0);
    for (int x = 0; x < a.cols; x++) {
        double v = count[(long)x * bins / a.cols];
        int eighths = top > 0 ? (int)ceil(v / top * rows * 8 - 1e-9) : 0;
        for (int y = rows; y >= 1 && eighths > 0; y--, eighths -= 8)
            area_put(a, y, x, eighth(a, eighths, 1), ink(r));
    }
    int free_from = 0;
    for (int k = 0; k < marks; k++) {
        double unit = (mark[k].x - x0) / (x1 - x0);
        if (!(unit >= 0 && unit <= 1))
            continue;
        int x = (int)lround(unit * (a.cols - 1)), len = (int)strlen(mark[k].label);
        area_vline(a, 1, x, rows, ink(mark[k].role));
        int at = x - len / 2 < free_from ? free_from : x - len / 2;
        at = at + len > a.cols ? a.cols - len : at;
        if (at >= free_from) {
            area_text(a, 0, at, -1, ink(mark[k].role), mark[k].label);
            free_from = at + len + 1;
        }
    }
    axis_draw_x(whole, whole.rows - 1, AXIS_COLS + 1, a.cols, x0, x1, 0, 0, NULL);
}

struct area popup_begin(struct area whole, int rows, int cols, const char *title)
{
    rows = rows + 2 > whole.rows ? whole.rows : rows + 2;
    cols = cols + 4 > whole.cols ? whole.cols : cols + 4;
    struct area box = area_sub(whole, (whole.rows - rows) / 2, (whole.cols - cols) / 2, rows, cols);
    area_fill(box, ' ', ink_on(ROLE_TEXT, ROLE_BACKGROUND));
    area_box(box, ink(ROLE_BORDER), title, ink_attr(ink(ROLE_TITLE), ATTR_BOLD));
    return area_sub(box, 1, 2, rows - 2, cols - 4);
}
