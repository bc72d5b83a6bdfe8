/* The line chart.  Every column of dots shows the minimum and maximum of its points, so that a
 * single spike in a million points is visible at any zoom; NaN is drawn as an x on the axis. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/statistics.h"
#include "base/utf8.h"
#include "tui/chart_scan.h"

struct chart chart_new(const char *title)
{
    struct chart c;
    memset(&c, 0, sizeof c);
    c.title = title;
    c.reference = c.cursor = (double)NAN;
    c.title_ink = ink(ROLE_TITLE);
    return c;
}

struct paint {
    const struct chart *c;
    struct area plot;
    struct dots dots;
    struct scan_axis x, y;
    int width, height;                              /* in dots */
    struct scan_segment *segment[CHART_CURVES_MAX]; /* of each curve */
    int segments[CHART_CURVES_MAX];
};

static int y_dot(const struct paint *p, double v)
{
    double unit = scan_unit(&p->y, v);
    unit = unit < -0.5 ? -0.5 : unit > 1.5 ? 1.5 : unit;
    /* a value exactly between two rows is rounded the same way by every compiler */
    return (int)lround((1 - unit) * (p->height - 1) + 1e-9);
}

/* Values outside the range get a caret in the outermost row: nothing is silently clipped. */
static void mark_outside(struct paint *p, int column, const struct scan_column *s, enum role r)
{
    struct area a = p->plot;
    if (scan_unit(&p->y, s->max) > 1.0 + 0.5 / p->height)
        area_put(a, 0, column / 2, area_rune(a, 0x25B4, '^'), ink_attr(ink(r), ATTR_BOLD));
    if (scan_unit(&p->y, s->min) < -0.5 / p->height)
        area_put(a, a.rows - 1, column / 2, area_rune(a, 0x25BE, 'v'), ink_attr(ink(r), ATTR_BOLD));
}

/* One column of curve k. */
static struct scan_column column_at(const struct paint *p, int k, int column, int wants_old)
{
    double x0 = scan_value(&p->x, (double)column / p->width),
           x1 = scan_value(&p->x, (double)(column + 1) / p->width);
    if (column == p->width - 1)
        x1 = x1 + (x1 - x0) * 1e-6 + 1e-300; /* the last column is closed */
    return scan_range(&p->c->curve[k], p->c->x_axis, x0, x1, p->segment[k], p->segments[k],
                      wants_old);
}

/* One pass over columns begin..end-1: raw (min..max) or smoothed values. */
static void draw_pass(struct paint *p, int k, enum role r, int wants_old, int wants_smooth,
                      int begin, int end)
{
    const struct curve *c = &p->c->curve[k];
    int previous_x = -1, previous_y = 0;
    p->dots.layer++;
    for (int column = begin; column < end; column++) {
        struct scan_column s = column_at(p, k, column, wants_old);
        if (s.nonfinite && !wants_smooth)
            previous_x = -1;
        if (s.n == 0 || (wants_smooth && !isfinite(s.smooth)))
            continue;
        int y = y_dot(p, wants_smooth ? s.smooth : s.last);
        int is_off = c->is_reference && column % 6 >= 3;
        if (previous_x >= 0 && !c->is_reference)
            dots_line(&p->dots, previous_x, previous_y, column, y, r);
        else if (!is_off)
            dots_point(&p->dots, column, y, r);
        if (!wants_smooth && !is_off)
            dots_column(&p->dots, column, y_dot(p, s.max), y_dot(p, s.min), r);
        previous_x = column;
        previous_y = y;
    }
}

static int is_smoothed(const struct curve *c)
{
    return c->smooth && c->smooth->weight > 0;
}

static void draw_curve(struct paint *p, int k)
{
    const struct curve *c = &p->c->curve[k];
    int has_old = 0;
    for (int i = 0; i < p->segments[k]; i++)
        has_old |= p->segment[k][i].is_old;
    if (has_old)
        draw_pass(p, k, ROLE_GRID, 1, 0, 0, p->width);
    draw_pass(p, k, is_smoothed(c) ? ROLE_DIM : c->role, 0, 0, 0, p->width);
    if (is_smoothed(c))
        draw_pass(p, k, c->role, 0, 1, 0, p->width);
}

/* The value of curve k at a column: of its own point, or between those before and after. */
static double seed_value(const struct paint *p, int k, int column, int *has_point)
{
    const struct curve *c = &p->c->curve[k];
    struct scan_column s = column_at(p, k, column, 0);
    *has_point |= s.n > 0;
    if (s.n + s.nonfinite == 0)
        return scan_between(c, p->c->x_axis, scan_value(&p->x, (column + 0.5) / p->width),
                            p->segment[k], p->segments[k]);
    return is_smoothed(c) ? s.smooth : s.n ? s.last : (double)NAN;
}

/* Mean and interval of seeds at a column: 1 when one has a point there and all have a value; else
 * 0, or -1 when a point stays without a mean. */
static int seeds_at(const struct paint *p, const int *member, int n, int column,
                    struct interval *out)
{
    double v[CHART_SEEDS_MAX] = {0};
    int has_point = 0;
    for (int k = 0; k < n; k++)
        v[k] = seed_value(p, member[k], column, &has_point);
    *out = stat_interval(v, (size_t)n);
    return has_point ? out->n == (size_t)n ? 1 : -1 : 0;
}

/* Seeds of one group: faint band between the bounds, mean on top.  Where not all seeds have begun
 * or have come that far, each is drawn faintly by itself. */
static void draw_group(struct paint *p, int group)
{
    const struct chart *c = p->c;
    static const unsigned char stipple[4] = {1, 0, 1, 0};
    int member[CHART_SEEDS_MAX], n = 0, begin = p->width, end = p->width;
    struct interval x;
    for (int k = 0; k < c->curves && n < CHART_SEEDS_MAX; k++)
        if (c->curve[k].group == group)
            member[n++] = k;
    for (int column = p->width; column-- > 0;)
        if (seeds_at(p, member, n, column, &x) == 1) {
            end = begin < p->width ? end : column + 1;
            begin = column;
        }
    for (int k = 0; k < n; k++) {
        draw_pass(p, member[k], ROLE_DIM, 0, is_smoothed(&c->curve[member[k]]), 0, begin);
        draw_pass(p, member[k], ROLE_DIM, 0, is_smoothed(&c->curve[member[k]]), end, p->width);
    }
    for (int pass = 0; pass < 2; pass++) {
        int previous_x = -1, previous_y = 0;
        p->dots.layer++;
        for (int column = begin; column < end; column++) {
            int found = seeds_at(p, member, n, column, &x);
            previous_x = found < 0 ? -1 : previous_x;
            if (found <= 0)
                continue;
            int y = y_dot(p, x.mean), top = n > 1 ? y_dot(p, x.hi) : y,
                bottom = n > 1 ? y_dot(p, x.lo) : y;
            if (pass == 0) {
                for (int at = top; at <= bottom; at++)
                    if (stipple[(at + 2 * (column & 1)) & 3] || at == top || at == bottom)
                        dots_point(&p->dots, column, at, ROLE_DIM);
            } else if (previous_x >= 0) {
                dots_line(&p->dots, previous_x, previous_y, column, y, c->curve[member[0]].role);
            } else {
                dots_point(&p->dots, column, y, c->curve[member[0]].role);
            }
            previous_x = column;
            previous_y = y;
        }
    }
}

/* Draws x for NaN and carets for values outside the range, above the raster. */
static void draw_marks(struct paint *p)
{
    for (int k = 0; k < p->c->curves; k++) {
        for (int column = 0; column < p->width; column++) {
            struct scan_column s = column_at(p, k, column, 0);
            if (s.n)
                mark_outside(p, column, &s, p->c->curve[k].role);
            if (s.nonfinite)
                area_put(p->plot, p->plot.rows - 1, column / 2, area_rune(p->plot, 0xD7, 'x'),
                         ink_attr(ink(ROLE_BAD), ATTR_BOLD));
        }
    }
}

/* The curves by their letters, where colours do not tell them apart: each at the last value that
 * has no letter of another curve in its place.  Of seeds the first names them all. */
static void draw_letters(struct paint *p)
{
    struct area a = p->plot;
    for (int k = 0; k < p->c->curves && a.canvas->look.colours == 0; k++) {
        const struct curve *c = &p->c->curve[k];
        int members = 0, member[CHART_SEEDS_MAX], is_placed = !c->letter;
        for (int i = 0; i < p->c->curves && members < CHART_SEEDS_MAX; i++)
            if (i == k || (c->group >= 0 && p->c->curve[i].group == c->group)) {
                member[members++] = i;
                is_placed |= i < k; /* by the first seed */
            }
        for (int column = p->width - 1; column >= 0 && !is_placed; column--) {
            struct interval x;
            if (seeds_at(p, member, members, column, &x) != 1)
                continue;
            int y = a.y + y_dot(p, x.mean) / 4, at = y * a.canvas->cols + a.x + column / 2;
            is_placed = y >= a.y && y < a.y + a.rows &&
                        (a.canvas->cell[at].rune < 'A' || a.canvas->cell[at].rune > 'Z');
            if (is_placed)
                area_put(a, y - a.y, column / 2, (uint32_t)c->letter,
                         ink_attr(ink(c->role), ATTR_BOLD));
        }
    }
}

/* The range of every column of every curve, for the y axis.  0: no point is in the x range. */
static int find_y(struct paint *p)
{
    size_t most = (size_t)p->c->curves * (size_t)p->width;
    double *lows = mem_alloc(2 * most, sizeof *lows), *highs = lows ? lows + most : NULL;
    int n = 0, has_points = 0;
    for (int k = 0; lows && k < p->c->curves; k++) {
        for (int column = 0; column < p->width; column++) {
            struct scan_column s = column_at(p, k, column, 0);
            has_points |= s.n + s.nonfinite > 0;
            if (s.n) {
                lows[n] = s.min;
                highs[n++] = s.max;
            }
        }
    }
    p->y = scan_y_axis(p->c, lows, highs, n);
    mem_free(lows);
    return has_points;
}

/* Why a chart of a metric that has points shows none. */
static void draw_empty(const struct paint *p)
{
    const struct chart *c = p->c;
    int is_cut = c->x1 > c->x0, y = p->plot.rows / 2;
    if (is_cut)
        area_text(p->plot, y, 1, -1, ink(ROLE_DIM), "no points in this range");
    else
        area_textf(p->plot, y, 1, -1, ink(ROLE_DIM), "no point has %s", run_axis_name[c->x_axis]);
}

static void draw_reference(struct paint *p)
{
    if (!isfinite(p->c->reference))
        return;
    int y = y_dot(p, p->c->reference);
    p->dots.layer++;
    for (int x = 0; x < p->width; x += 3)
        dots_point(&p->dots, x, y, ROLE_REFERENCE);
}

static int is_blank(struct area a, int y, int x, int cols)
{
    int blank = y >= 0 && y < a.rows && x >= 0 && x + cols <= a.cols;
    for (int i = 0; blank && i < cols; i++)
        blank = a.canvas->cell[(a.y + y) * a.canvas->cols + a.x + x + i].rune == ' ';
    return blank;
}

/* The name of the reference above or below its line, where no curve is in the way. */
static void draw_reference_label(struct paint *p)
{
    if (!isfinite(p->c->reference) || !p->c->reference_label || p->plot.rows < 8)
        return;
    int y = y_dot(p, p->c->reference) / 4, cols = (int)strlen(p->c->reference_label);
    for (int k = 0; k < 4; k++) {
        int row = k % 2 ? y + 1 : y - 1, x = k / 2 ? 0 : p->plot.cols - cols;
        if (is_blank(p->plot, row, x, cols)) {
            area_text(p->plot, row, x, -1, ink(ROLE_REFERENCE), p->c->reference_label);
            return;
        }
    }
}

static void draw_events(struct paint *p)
{
    for (int k = 0; k < p->c->marks; k++) {
        double unit = scan_unit(&p->x, p->c->mark[k]);
        if (unit >= 0 && unit <= 1)
            area_put(p->plot, p->plot.rows - 1, (int)lround(unit * (p->plot.cols - 1)),
                     area_rune(p->plot, 0x2575, '\''), ink(ROLE_WARN));
    }
    double unit = scan_unit(&p->x, p->c->cursor);
    if (isfinite(unit) && unit >= 0 && unit <= 1) {
        int x = (int)lround(unit * (p->plot.cols - 1));
        for (int y = 0; y < p->plot.rows; y++)
            area_put(p->plot, y, x, area_rune(p->plot, 0x2502, '|'), ink(ROLE_MARKED));
    }
}

/* Shortens labels: "val_loss" under the title "loss" is "val"; "flops_ratio" is "flops". */
static int short_label(const char *label, const char *title)
{
    size_t n = strlen(label), t = strlen(title);
    if (n > t + 1 && strcmp(label + n - t, title) == 0 && label[n - t - 1] == '_')
        return (int)(n - t - 1);
    return n > 6 && strcmp(label + n - 6, "_ratio") == 0 ? (int)n - 6 : (int)n;
}

/* The title row with the newest values: "loss 1.234  val 1.301   x3 NaN". */
static void draw_title(const struct chart *c, struct area a)
{
    struct ink k = c->has_focus ? ink_attr(c->title_ink, ATTR_BOLD | ATTR_UNDERLINE)
                                : ink_attr(c->title_ink, ATTR_BOLD);
    int x = AXIS_COLS + 1 < a.cols / 2 ? AXIS_COLS + 1 : 0;
    x += area_text(a, 0, x, -1, k, c->title) + 1;
    size_t nonfinite = 0, infinite = 0;
    for (int i = 0; i < c->curves; i++) {
        nonfinite += c->curve[i].series->nonfinite;
        infinite += c->curve[i].series->infinite;
    }
    char bad[32] = "", value[24];
    if (nonfinite)
        snprintf(bad, sizeof bad, "%s%zu %s",
                 a.canvas->look.glyphs == GLYPHS_ASCII ? "x" : "\xC3\x97", nonfinite,
                 infinite == 0           ? "NaN"
                 : infinite == nonfinite ? "Inf"
                                         : "NaN/Inf");
    int end = a.cols - (nonfinite ? utf8_cells(bad, strlen(bad)) : 0);
    for (int i = 0; i < c->curves && x < end - 4; i++) {
        const struct curve *u = &c->curve[i];
        if (u->series->n == 0 || !u->label)
            continue;
        double last = u->has_newest ? u->newest : u->series->value[u->series->n - 1];
        struct area room = area_sub(a, 0, 0, 1, end);
        num_print(value, last);
        const char *of = u->is_validation ? "val " : "";
        int label = short_label(u->label, c->title), is_plain = strcmp(u->label, c->title) == 0;
        if (x + (is_plain ? 0 : (int)strlen(of) + label + 1) + (int)strlen(value) > end)
            break;
        if (!is_plain) {
            x += area_text(room, 0, x, -1, ink(ROLE_DIM), of);
            x += area_bytes(room, 0, x, -1, ink(ROLE_DIM), u->label, (size_t)label) + 1;
        }
        x += area_text(room, 0, x, -1, isfinite(last) ? ink(u->role) : ink(ROLE_BAD), value) + 2;
    }
    if (c->unit && x + (int)strlen(c->unit) <= end)
        area_text(a, 0, x, -1, ink(ROLE_DIM), c->unit);
    if (nonfinite)
        area_right(a, 0, a.cols, ink(ROLE_BAD), bad);
}

void chart_draw(struct area a, const struct chart *c, struct chart_view *out)
{
    int bottom = c->is_compact ? 0 : 1;
    struct paint p = {.c = c};
    if (a.rows >= 1)
        draw_title(c, a);
    p.plot = area_sub(a, 1, AXIS_COLS + 1, a.rows - 1 - bottom, a.cols - AXIS_COLS - 1);
    if (out)
        *out = (struct chart_view){.plot = p.plot, .x1 = 1, .y1 = 1};
    if (p.plot.rows < 1 || p.plot.cols < 4)
        return;
    p.width = 2 * p.plot.cols;
    p.height = 4 * p.plot.rows;
    p.x = scan_x_axis(c);
    if (c->x1 > c->x0)
        p.x = (struct scan_axis){.lo = c->x0, .hi = c->x1, .is_log = p.x.is_log && c->x0 > 0};
    for (int k = 0; k < c->curves; k++)
        p.segments[k] = scan_segments(c->curve[k].series, &p.segment[k]);
    int has_points = find_y(&p);
    axis_draw_y(a, 1, p.plot.rows, p.y.lo, p.y.hi, p.y.is_log);
    if (bottom)
        axis_draw_x(a, a.rows - 1, p.plot.x - a.x, p.plot.cols, p.x.lo,
                    p.x.is_point ? p.x.lo : p.x.hi, p.x.is_log, c->x_axis == AXIS_STEP,
                    run_axis_name[c->x_axis]);
    if (dots_begin(&p.dots, p.plot) < 0)
        goto out;
    draw_reference(&p);
    for (int k = 0; k < c->curves; k++) {
        int group = c->curve[k].group, is_first = 1;
        for (int j = 0; j < k; j++)
            is_first &= c->curve[j].group != group || group < 0;
        if (group >= 0 && is_first)
            draw_group(&p, group);
        else if (group < 0)
            draw_curve(&p, k);
    }
    dots_end(&p.dots);
    if (!has_points && c->curves)
        draw_empty(&p);
    draw_events(&p);
    draw_marks(&p);
    draw_letters(&p);
    draw_reference_label(&p);
    if (out)
        *out = (struct chart_view){p.plot, p.x.lo, p.x.hi, p.y.lo, p.y.hi, has_points};
out:
    for (int k = 0; k < c->curves; k++)
        mem_free(p.segment[k]);
}
