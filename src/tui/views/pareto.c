/* Pareto: a result of the marked runs against what it costs: seeds of one experiment as a mean with
 * its interval, dominated experiments dimmed, isoFLOP curves through equal budgets. */
#include "tui/pareto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "io/metric.h"
#include "tui/chart_scan.h"
#include "tui/view.h"
#include "tui/widgets.h"

static const double rest_s = 0.12;
enum { METRICS_MAX = 64, TABLE_COLS = 58, WIDE_COLS = 130, CHART_ROWS_MIN = 8, TRACED = 160 };

struct pareto {
    int axis, log_flip; /* log_flip: bit of an axis differs from its default */
    int is_log_y;
    char metric[64];
    struct pareto_set set;
    const struct runview *run[PARETO_RUNS_MAX];
    int open[PARETO_RUNS_MAX]; /* index of the run among the open ones */
    int runs, is_marked;       /* is_marked: only marked runs are shown */
    uint64_t made_of;          /* what `set` was made of */
    char selected[80];         /* label of the point at the cursor: points move as runs are added */
    struct list list;
    int seen;        /* the point of the read-out: that of the cursor when it rests */
    double rests_at; /* when it will have come to rest, by clock_mono; 0 = it rests */
    /* of the last draw, in coordinates of the view */
    struct area plot;
    int plot_y, plot_x, table_y, table_x;
    struct scan_axis x, y;
};

static int pareto_open(struct view *v, struct err *e)
{
    struct pareto *p = v->state;
    const char *metric = app_recall(v->app, "pareto.metric");
    (void)e;
    str_copy(p->metric, sizeof p->metric, metric && *metric ? metric : "val_loss");
    return 0;
}

/* ---- the points ---- */

static void collect_runs(struct view *v)
{
    struct pareto *p = v->state;
    size_t n, current;
    const struct open_run *all = app_runs(v->app, &n, &current);
    p->runs = p->is_marked = 0;
    for (size_t i = 0; i < n; i++)
        p->is_marked |= all[i].is_marked;
    for (size_t i = 0; i < n && p->runs < PARETO_RUNS_MAX; i++) {
        if (p->is_marked && !all[i].is_marked)
            continue;
        p->run[p->runs] = all[i].view;
        p->open[p->runs++] = (int)i;
    }
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    return (h ^ x) * 0x9E3779B97F4A7C15u;
}

/* The points of the runs that are open now; kept while nothing has changed. */
static void prepare(struct view *v)
{
    struct pareto *p = v->state;
    collect_runs(v);
    uint64_t h = mix(mix(1, (uint64_t)p->axis), (uint64_t)p->runs);
    for (const char *c = p->metric; *c; c++)
        h = mix(h, (unsigned char)*c);
    for (int i = 0; i < p->runs; i++)
        h = mix(mix(mix(h, (uint64_t)(uintptr_t)p->run[i]), p->run[i]->generation),
                (uint64_t)p->run[i]->state);
    if (h == p->made_of)
        return;
    p->made_of = h;
    pareto_make(&p->set, p->run, p->runs, (enum pareto_x)p->axis, p->metric);
    list_fit(&p->list, (size_t)p->set.n, p->list.page);
    for (int i = 0; i < p->set.n; i++)
        if (strcmp(p->set.point[i].label, p->selected) == 0)
            p->list.cursor = (size_t)i;
}

static struct pareto_point *selected(struct pareto *p)
{
    return p->list.cursor < (size_t)p->set.n ? &p->set.point[p->list.cursor] : NULL;
}

/* The read-out waits until the cursor rests, so that a held key does not send every value that it
 * passes over a slow line.  A script has no later moment. */
static void keep_selected(struct view *v)
{
    struct pareto *p = v->state;
    const struct pareto_point *q = selected(p);
    if (q)
        str_copy(p->selected, sizeof p->selected, q->label);
    p->rests_at = app_is_scripted(v->app) ? 0 : clock_mono() + rest_s;
}

static int pareto_poll(struct view *v)
{
    struct pareto *p = v->state;
    if (!(p->rests_at > 0) || clock_mono() < p->rests_at)
        return 0;
    p->rests_at = 0;
    return 1;
}

static double pareto_due(struct view *v)
{
    const struct pareto *p = v->state;
    return p->rests_at > 0 ? p->rests_at : HUGE_VAL;
}

static int is_log_x(const struct pareto *p)
{
    int is_default = p->axis == PARETO_PARAMS || p->axis == PARETO_TRAINING;
    return is_default ^ (p->log_flip >> p->axis & 1);
}

/* ---- axes ---- */

/* All means are inside; interval ends only as far as the spread of the means, so that two seeds with
 * a wide interval do not flatten the rest.  What is cut gets a caret. */
static struct scan_axis range_of(const struct pareto *p, int is_y, int is_log)
{
    double lo = (double)INFINITY, hi = -(double)INFINITY;
    for (int i = 0; i < p->set.n; i++) {
        double m = is_y ? p->set.point[i].y.mean : p->set.point[i].x.mean;
        lo = m < lo ? m : lo;
        hi = m > hi ? m : hi;
    }
    if (!(lo <= hi))
        return (struct scan_axis){0, 1, 0};
    is_log = is_log && lo > 0;
    double spread = is_log ? log(hi / lo) : hi - lo;
    double least = is_log ? 0.05 : 0.02 * (fabs(hi) > fabs(lo) ? fabs(hi) : fabs(lo));
    spread = spread > least ? spread : least > 0 ? least : 1;
    double from = lo, to = hi, most = is_log ? hi * exp(spread) : hi + spread,
           low = is_log ? lo * exp(-spread) : lo - spread;
    for (int i = 0; i < p->set.n; i++) {
        const struct interval *v = is_y ? &p->set.point[i].y : &p->set.point[i].x;
        from = v->lo < from ? (v->lo > low ? v->lo : low) : from;
        to = v->hi > to ? (v->hi < most ? v->hi : most) : to;
    }
    from = lo >= 0 && from < 0 ? 0 : from; /* a cost below 0 has no meaning */
    double pad = 0.08 * (is_log ? log(to / from) : to - from);
    pad = pad > spread * 0.08 ? pad : spread * 0.08;
    if (is_log)
        return (struct scan_axis){from * exp(-pad), to * exp(pad), 1};
    return (struct scan_axis){from - pad < 0 && from >= 0 ? 0 : from - pad, to + pad, 0};
}

static int dot_x(const struct pareto *p, double x)
{
    return (int)lround(scan_unit(&p->x, x) * (2 * p->plot.cols - 1) + 1e-9);
}

static int dot_y(const struct pareto *p, double y)
{
    return (int)lround((1 - scan_unit(&p->y, y)) * (4 * p->plot.rows - 1) + 1e-9);
}

static enum role role_of(const struct pareto_point *q)
{
    return q->is_dense ? ROLE_REFERENCE
                       : (enum role)(ROLE_SERIES_0 + q->method % ROLE_SERIES_COUNT);
}

static struct ink ink_of(const struct pareto_point *q)
{
    return q->is_front ? ink_attr(ink(role_of(q)), ATTR_BOLD) : ink_attr(ink(ROLE_DIM), ATTR_DIM);
}

/* A disc on the front, a circle when dominated: also readable without colours. */
static uint32_t rune_of(struct area a, const struct pareto_point *q)
{
    return q->is_front ? area_rune(a, 0x25CF, 'O') : area_rune(a, 0x25CB, 'o');
}

/* ---- the chart ---- */

static void draw_interval(struct pareto *p, struct dots *d, const struct pareto_point *q)
{
    enum role r = q->is_front ? role_of(q) : ROLE_GRID;
    int x = dot_x(p, q->x.mean), y = dot_y(p, q->y.mean);
    if (isfinite(q->y.lo))
        dots_column(d, x, dot_y(p, q->y.hi), dot_y(p, q->y.lo), r);
    if (isfinite(q->x.lo)) {
        int x0 = dot_x(p, q->x.lo), x1 = dot_x(p, q->x.hi), last = 2 * p->plot.cols - 1;
        for (int k = x0 < 0 ? 0 : x0; k <= (x1 > last ? last : x1); k++)
            dots_point(d, k, y, r);
    }
}

/* Carets where an interval leaves the plot. */
static void draw_cuts(const struct pareto *p, const struct pareto_point *q)
{
    int x = dot_x(p, q->x.mean) / 2, y = dot_y(p, q->y.mean) / 4;
    struct area a = p->plot;
    struct ink k = ink(q->is_front ? role_of(q) : ROLE_DIM);
    if (q->y.hi > p->y.hi)
        area_put(a, 0, x, area_rune(a, 0x25B4, '^'), k);
    if (q->y.lo < p->y.lo)
        area_put(a, a.rows - 1, x, area_rune(a, 0x25BE, 'v'), k);
    if (q->x.hi > p->x.hi)
        area_put(a, y, a.cols - 1, area_rune(a, 0x25B8, '>'), k);
    if (q->x.lo < p->x.lo)
        area_put(a, y, 0, area_rune(a, 0x25C2, '<'), k);
}

static void draw_front(struct pareto *p, struct dots *d)
{
    const struct pareto_point *last = NULL;
    for (int i = 0; i < p->set.n; i++) {
        const struct pareto_point *q = &p->set.point[i];
        if (!q->is_front)
            continue;
        if (last)
            dots_line(d, dot_x(p, last->x.mean), dot_y(p, last->y.mean), dot_x(p, q->x.mean),
                      dot_y(p, q->y.mean), ROLE_AXIS);
        last = q;
    }
}

static enum role iso_role(int k)
{
    return (enum role)(ROLE_SERIES_0 + (ROLE_SERIES_COUNT - 1 - k % ROLE_SERIES_COUNT));
}

static void draw_iso(struct pareto *p, struct dots *d, int k)
{
    const struct pareto_iso *c = &p->set.iso[k];
    double from = log10(p->set.point[c->point[0]].x.mean),
           to = log10(p->set.point[c->point[c->n - 1]].x.mean);
    d->layer++;
    for (int i = 0, x = 0, y = 0; c->has_fit && i <= TRACED; i++) {
        double at = from + (to - from) * i / TRACED;
        int nx = dot_x(p, pow(10, at)), ny = dot_y(p, stat_parabola_at(&c->fit, at));
        if (i > 0)
            dots_line(d, x, y, nx, ny, iso_role(k));
        x = nx;
        y = ny;
    }
}

static int is_blank(struct area a, int y, int x, int n)
{
    if (y < 0 || y >= a.rows || x < 0 || x + n > a.cols)
        return 0;
    const struct cell *c =
        a.canvas->cell + (size_t)(a.y + y) * (size_t)a.canvas->cols + (size_t)(a.x + x);
    for (int k = 0; k < n; k++)
        if (c[k].rune != ' ')
            return 0;
    return 1;
}

/* Next to a point where nothing else is drawn; dropped where there is no room: the table names all. */
static void put_label(struct area a, int y, int x, const char *text, struct ink k)
{
    int n = (int)strlen(text);
    const int at[][2] = {{y, x + 2},     {y, x - n - 1}, {y - 1, x + 1},     {y + 1, x + 1},
                         {y - 1, x - n}, {y + 1, x - n}, {y - 1, x - n / 2}, {y + 1, x - n / 2}};
    for (size_t i = 0; i < DS_LEN(at); i++)
        if (is_blank(a, at[i][0], at[i][1] - (at[i][1] > 0), n + 1)) {
            area_text(a, at[i][0], at[i][1], n, k, text);
            return;
        }
}

static void draw_points(struct view *v, struct pareto *p)
{
    struct area a = p->plot;
    for (int i = 0; i < p->set.n; i++)
        draw_cuts(p, &p->set.point[i]);
    for (int k = 0; k < 2; k++) /* those of the front on top */
        for (int i = 0; i < p->set.n; i++) {
            const struct pareto_point *q = &p->set.point[i];
            if (q->is_front == k)
                area_put(a, dot_y(p, q->y.mean) / 4, dot_x(p, q->x.mean) / 2, rune_of(a, q),
                         ink_of(q));
        }
    const struct pareto_point *here = selected(p);
    if (here) {
        int y = dot_y(p, here->y.mean) / 4, x = dot_x(p, here->x.mean) / 2;
        if (v->has_focus && !app_is_scripted(v->app)) { /* costs fewer bytes than a mark */
            a.canvas->cursor_y = a.y + y;
            a.canvas->cursor_x = a.x + x;
        } else {
            area_put(a, y, x, rune_of(a, here),
                     ink_attr(ink(ROLE_TITLE), ATTR_BOLD | ATTR_REVERSE));
        }
    }
    for (int k = 0; k < p->set.isos; k++) {
        const struct pareto_iso *c = &p->set.iso[k];
        const struct pareto_point *q = &p->set.point[c->point[c->n - 1]];
        char text[48], number[24];
        if (c->is_enclosed)
            area_put(a, dot_y(p, stat_parabola_at(&c->fit, log10(c->best))) / 4,
                     dot_x(p, c->best) / 2, '+', ink_attr(ink(iso_role(k)), ATTR_BOLD));
        snprintf(text, sizeof text, "%s FLOPs", num_print(number, c->budget));
        put_label(a, dot_y(p, q->y.mean) / 4, dot_x(p, q->x.mean) / 2, text, ink(iso_role(k)));
    }
    for (int i = 0; i < p->set.n; i++) {
        const struct pareto_point *q = &p->set.point[i];
        put_label(a, dot_y(p, q->y.mean) / 4, dot_x(p, q->x.mean) / 2, q->label,
                  q->is_front ? ink(role_of(q)) : ink(ROLE_DIM));
    }
}

static void axis_title(const struct pareto *p, char out[64])
{
    const struct pareto_axis *x = &pareto_axes[p->axis];
    snprintf(out, 64, "%s%s%s%s", x->title, x->unit[0] ? ", " : "", x->unit,
             is_log_x(p) ? " (log)" : "");
}

static void draw_chart(struct view *v, struct area a)
{
    struct pareto *p = v->state;
    char title[64];
    struct dots d;
    axis_title(p, title);
    p->plot = area_sub(a, 0, AXIS_COLS + 1, a.rows - 1, a.cols - AXIS_COLS - 2);
    if (p->plot.rows < 2 || p->plot.cols < 8)
        return;
    p->x = range_of(p, 0, is_log_x(p));
    p->y = range_of(p, 1, p->is_log_y);
    axis_draw_y(a, 0, p->plot.rows, p->y.lo, p->y.hi, p->y.is_log);
    axis_draw_x(a, a.rows - 1, AXIS_COLS + 1, p->plot.cols, p->x.lo, p->x.hi, p->x.is_log, title);
    if (dots_begin(&d, p->plot) < 0)
        return;
    draw_front(p, &d);
    for (int k = 0; k < p->set.isos; k++)
        draw_iso(p, &d, k);
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < p->set.n; i++)
            if (p->set.point[i].is_front == k) {
                d.layer++;
                draw_interval(p, &d, &p->set.point[i]);
            }
    dots_end(&d);
    draw_points(v, p);
}

/* ---- table, title and read-out ---- */

static const struct column table_columns[] = {
    {"", 1, 0, 7}, {"experiment", -1, 0, 10}, {"n", 3, 1, 4}, {"", 9, 1, 6}, {"", 9, 1, 8},
};
enum { COLUMNS = (int)DS_LEN(table_columns) };

static void head_of(struct area a, int y, const int *width, const int *x, int i, const char *text)
{
    char word[16];
    if (width[i] <= 0)
        return;
    snprintf(word, sizeof word, "%.*s", width[i], text);
    area_right(area_sub(a, y, x[i], 1, width[i]), 0, width[i], ink(ROLE_DIM), word);
}

static void draw_table(struct pareto *p, struct area a)
{
    int width[COLUMNS], x[COLUMNS], rows = a.rows - 1;
    char text[24];
    struct column columns[COLUMNS];
    memcpy(columns, table_columns, sizeof columns);
    int head = (int)strlen(p->metric);
    if (head > columns[4].width && a.cols >= 50)
        columns[4].width = head < 20 ? head : 20;
    columns_fit(columns, COLUMNS, a.cols - 2, width, x);
    struct area t = area_sub(a, 0, 1, a.rows, a.cols - 2);
    columns_head(t, 0, columns, COLUMNS, width, x);
    head_of(t, 0, width, x, 3, pareto_axes[p->axis].head);
    head_of(t, 0, width, x, 4, p->metric);
    list_fit(&p->list, (size_t)p->set.n, rows);
    for (int y = 1; y <= rows && p->list.top + (size_t)y - 1 < p->list.n; y++) {
        size_t i = p->list.top + (size_t)y - 1;
        const struct pareto_point *q = &p->set.point[i];
        struct ink k = q->is_front ? ink(ROLE_TEXT) : ink(ROLE_DIM);
        area_put(t, y, x[0], rune_of(t, q), ink_of(q));
        columns_text(t, y, columns, 1, width, x, k, q->label);
        snprintf(text, sizeof text, "%zu", q->y.n);
        columns_text(t, y, columns, 2, width, x, k, text);
        columns_text(t, y, columns, 3, width, x, k, num_print(text, q->x.mean));
        columns_text(t, y, columns, 4, width, x, k, num_print(text, q->y.mean));
        if (i == p->list.cursor)
            area_select(a, y, 0, a.cols);
    }
    scrollbar_draw(area_sub(a, 1, 0, rows, a.cols), a.cols - 1, p->list.n, p->list.top, rows);
}

static void draw_title(const struct pareto *p, struct area line)
{
    char y[96], x[64], right[128];
    run_metric_label(y, sizeof y, p->metric, "");
    axis_title(p, x);
    int at = 1 + area_text(line, 0, 1, line.cols / 2, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), y);
    if (p->is_log_y)
        at += area_text(line, 0, at, -1, ink(ROLE_DIM), " (log)");
    at += area_textf(line, 0, at, line.cols - at - 1, ink(ROLE_DIM), " against %s", x) + 2;
    int runs = p->runs - p->set.lefts;
    snprintf(right, sizeof right, "%d experiment%s, %d %srun%s", p->set.n, p->set.n == 1 ? "" : "s",
             runs, p->is_marked ? "marked " : "open ", runs == 1 ? "" : "s");
    if (at + (int)strlen(right) >= line.cols)
        return;
    int end = area_right(line, 0, line.cols - 1, ink(ROLE_DIM), right) - 2;
    static const char *const words[] = {"dominated", "on the front", "bars: 95 % CI of the mean"};
    for (int i = 0; i < 3 && end - (int)strlen(words[i]) - 3 > at; i++) {
        end = area_right(line, 0, end, ink(ROLE_DIM), words[i]) - 2;
        if (i < 2)
            area_put(line, 0, end, i ? area_rune(line, 0x25CF, 'O') : area_rune(line, 0x25CB, 'o'),
                     ink(i ? ROLE_TEXT : ROLE_DIM));
        end -= 2;
    }
}

/* "1.91 [1.85, 1.97]" with the digits that the interval supports. */
static void print_interval(char *out, size_t size, const struct interval *v)
{
    char mean[24], lo[24], hi[24];
    if (v->n > 1)
        snprintf(out, size, "%s [%s, %s]", num_print(mean, v->mean), num_print(lo, v->lo),
                 num_print(hi, v->hi));
    else
        snprintf(out, size, "%s", num_print(mean, v->mean));
}

static const struct pareto_iso *iso_of(const struct pareto_set *s, int point)
{
    for (int k = 0; k < s->isos; k++)
        for (int i = 0; i < s->iso[k].n; i++)
            if (s->iso[k].point[i] == point)
                return &s->iso[k];
    return NULL;
}

/* What is known of the point: its place, its seeds, its isoFLOP curve.  Drawn as far as it fits. */
static void draw_readout(struct pareto *p, struct area a)
{
    if (!(p->rests_at > 0) || p->seen >= p->set.n)
        p->seen = (int)p->list.cursor;
    const struct pareto_point *q = p->seen < p->set.n ? &p->set.point[p->seen] : NULL;
    char part[6][128] = {{0}}, text[80], number[24];
    int n = 0;
    if (!q || a.rows < 1)
        return;
    print_interval(text, sizeof text, &q->y);
    snprintf(part[n++], sizeof part[0], "%.40s %s", p->metric, text);
    print_interval(text, sizeof text, &q->x);
    snprintf(part[n++], sizeof part[0], "%s %s", pareto_axes[p->axis].title, text);
    if (q->is_front)
        snprintf(part[n++], sizeof part[0], "on the front");
    else if (q->dominated_by >= 0)
        snprintf(part[n++], sizeof part[0], "dominated by %.60s",
                 p->set.point[q->dominated_by].label);
    if (q->y.n > 1)
        snprintf(part[n++], sizeof part[0], "mean of %zu seeds [95 %% CI, t]", q->y.n);
    else
        snprintf(part[n++], sizeof part[0], "one seed: no interval");
    const struct pareto_iso *c = iso_of(&p->set, (int)(q - p->set.point));
    if (c && c->has_fit && c->is_enclosed)
        snprintf(part[n++], sizeof part[0], "isoFLOP minimum at %s %s", num_print(number, c->best),
                 pareto_axes[p->axis].title);
    else if (c)
        snprintf(part[n++], sizeof part[0], "%s",
                 c->has_fit ? "isoFLOP minimum outside the sizes"
                            : "isoFLOP: no fit, expected 3 sizes");
    int y = 0,
        x = 1 +
            area_textf(a, 0, 1, a.cols - 2, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "%s", q->label) +
            2;
    for (int i = 0; i < n; i++) {
        int len = (int)strlen(part[i]);
        if (x > 1 && x + len >= a.cols && y + 1 < a.rows) {
            y++;
            x = 1;
        }
        if (x + len > a.cols)
            continue;
        x += area_text(a, y, x, len, ink(i < 2 ? ROLE_TEXT : ROLE_DIM), part[i]) + 2;
    }
}

/* "not shown: edp3 no evaluation yet, mod2 failed": cut by whole runs. */
static void draw_left(struct pareto *p, struct area line)
{
    int x = 1, i = 0;
    if (p->set.lefts == 0)
        return;
    x += area_text(line, 0, x, -1, ink(ROLE_WARN), "not shown: ");
    for (; i < p->set.lefts; i++) {
        const struct pareto_left *l = &p->set.left[i];
        const char *name = p->run[l->run]->name;
        int room = line.cols - x - (i + 1 < p->set.lefts ? 10 : 1),
            need = (name ? (int)strlen(name) : 1) + (int)strlen(l->text) + 3;
        if (need > room && i > 0)
            break;
        x += area_text(line, 0, x, room > 0 ? room : 0, ink(ROLE_TEXT), name ? name : "?");
        x += area_textf(line, 0, x, line.cols - x - 1, ink(ROLE_DIM), " %s%s", l->text,
                        i + 1 < p->set.lefts ? ", " : "");
    }
    if (i < p->set.lefts)
        area_textf(line, 0, x, -1, ink(ROLE_DIM), "and %d more", p->set.lefts - i);
}

static void draw_empty(struct view *v, struct area a)
{
    struct pareto *p = v->state;
    int y = a.rows > 8 ? a.rows / 2 - 4 : 0;
    if (p->runs == 0 || (p->runs == 1 && app_draw_nothing(v->app, a))) {
        app_draw_nothing(v->app, a);
        return;
    }
    area_textf(a, y, 2, a.cols - 3, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
               "No run has both %s and %s yet", p->metric, pareto_axes[p->axis].title);
    for (int i = 0; i < p->set.lefts && y + 2 + i < a.rows - 3; i++) {
        const struct pareto_left *l = &p->set.left[i];
        int x = 2 + area_text(a, y + 2 + i, 2, 30, ink(ROLE_TEXT),
                              p->run[l->run]->name ? p->run[l->run]->name : "?");
        area_textf(a, y + 2 + i, x, -1, ink(ROLE_DIM), ": %s", l->text);
    }
    int below = y + 3 + p->set.lefts;
    below = below > a.rows - 2 ? a.rows - 2 : below;
    if (a.rows >= 6) {
        area_text(a, below, 2, a.cols - 3, ink(ROLE_TEXT),
                  "An evaluation is recorded every train.eval_every steps and at the end;");
        area_text(a, below + 1, 2, a.cols - 3, ink(ROLE_TEXT),
                  "m chooses another result, x another cost.");
    }
}

static void pareto_draw(struct view *v, struct area a)
{
    struct pareto *p = v->state;
    prepare(v);
    p->plot = (struct area){0};
    p->table_y = -1;
    if (p->set.n == 0) {
        draw_empty(v, a);
        return;
    }
    int is_wide = a.cols >= WIDE_COLS && a.rows >= 16, has_chart = a.rows >= CHART_ROWS_MIN + 4,
        head = a.rows >= 6, left = p->set.lefts > 0 && a.rows >= 10,
        readout = !has_chart                                     ? 0
                  : a.rows < 18 || (is_wide && p->set.isos == 0) ? 1
                                                                 : 2;
    if (head)
        draw_title(p, area_sub(a, 0, 0, 1, a.cols));
    struct area body = area_sub(a, head, 0, a.rows - head - left - readout, a.cols);
    int table = is_wide || !has_chart ? body.rows : p->set.n + 1;
    if (!is_wide && has_chart) {
        int most =
            body.rows - CHART_ROWS_MIN < body.rows / 3 ? body.rows - CHART_ROWS_MIN : body.rows / 3;
        table = table > most ? most : table;
        table = table < 2 ? 0 : table;
    }
    int chart_cols = is_wide ? body.cols - TABLE_COLS - 2 : body.cols,
        chart_rows = is_wide ? body.rows : body.rows - table - (table > 0);
    struct area chart = area_sub(body, 0, 0, has_chart ? chart_rows : 0, chart_cols);
    if (has_chart)
        draw_chart(v, chart);
    struct area side = is_wide ? area_sub(body, 0, body.cols - TABLE_COLS, body.rows, TABLE_COLS)
                               : area_sub(body, body.rows - table, 0, table, body.cols);
    if (is_wide)
        area_vline(body, 0, body.cols - TABLE_COLS - 2, body.rows, ink(ROLE_BORDER));
    if (side.rows > 1)
        draw_table(p, side);
    p->plot_y = p->plot.y - a.y;
    p->plot_x = p->plot.x - a.x;
    p->table_y = side.rows > 1 ? side.y - a.y : -1;
    p->table_x = side.x - a.x;
    if (readout)
        draw_readout(p, area_sub(a, head + body.rows, 0, readout, a.cols));
    if (left)
        draw_left(p, area_sub(a, a.rows - 1, 0, 1, a.cols));
}

/* ---- keys ---- */

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    prepare(v);
    list_move(&p->list, k->value);
    keep_selected(v);
}

static void key_end(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    prepare(v);
    list_end(&p->list, k->value);
    keep_selected(v);
}

static void key_front(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    prepare(v);
    for (int i = (int)p->list.cursor + k->value; i >= 0 && i < p->set.n; i += k->value)
        if (p->set.point[i].is_front) {
            p->list.cursor = (size_t)i;
            keep_selected(v);
            return;
        }
    app_notify(v->app, LOG_INFO, "no further experiment on the front");
}

static void key_axis(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    for (int i = 0; args && *args && i < PARETO_AXES; i++)
        if (strcmp(pareto_axes[i].name, args) == 0) {
            p->axis = i;
            return;
        }
    if (args && *args)
        app_notify(v->app, LOG_WARN,
                   "axis %.40s: expected flops-ratio, flops, time-ratio, time, parameters or "
                   "training-flops",
                   args);
    else
        p->axis = (p->axis + k->value + PARETO_AXES) % PARETO_AXES;
}

static void key_metric(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    char name[METRICS_MAX][64];
    prepare(v);
    int n = pareto_metrics(p->run, p->runs, name, METRICS_MAX), at = -1;
    const char *wanted = args && *args ? args : p->metric;
    for (int i = 0; i < n; i++)
        at = strcmp(name[i], wanted) == 0 ? i : at;
    if (args && *args && at < 0) {
        app_notify(v->app, LOG_WARN, "metric %.40s: not found in the evaluations of these runs",
                   args);
        return;
    }
    if (!args || !*args)
        at = at < 0 ? 0 : (at + k->value + n) % n;
    str_copy(p->metric, sizeof p->metric, name[at]);
    app_remember(v->app, "pareto.metric", p->metric);
}

static void key_log(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    if (k->value)
        p->log_flip ^= 1 << p->axis;
    else
        p->is_log_y = !p->is_log_y;
}

static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)k, (void)args;
    prepare(v);
    const struct pareto_point *q = selected(p);
    if (!q)
        return;
    app_select_run(v->app, (size_t)p->open[q->run[0]]);
    app_show(v->app, "monitor");
    if (q->runs > 1)
        app_notify(v->app, LOG_INFO, "the first of %d seeds; ]r is the next open run", q->runs);
}

/* Only marked runs are shown once one is marked: the first press keeps all others. */
static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    char path[PARETO_RUNS_MAX][1024];
    int paths = 0, hides[PARETO_RUNS_MAX] = {0};
    size_t n, current;
    (void)k, (void)args;
    prepare(v);
    const struct pareto_point *q = selected(p);
    if (!q)
        return;
    if (p->set.n == 1) {
        app_notify(v->app, LOG_INFO, "the only experiment; 0 shows all open runs");
        return;
    }
    const struct open_run *all = app_runs(v->app, &n, &current);
    for (int i = 0; i < q->runs; i++)
        hides[q->run[i]] = 1;
    for (int i = 0; i < p->runs; i++)
        str_copy(path[paths++], sizeof path[0], all[p->open[i]].path);
    for (int i = 0; i < paths; i++)
        app_mark_run(v->app, path[i], !hides[i]);
    app_notify(v->app, LOG_INFO, "unmarked %s; 0 shows all open runs", q->label);
}

static void key_all(struct view *v, const struct key *k, const char *args)
{
    size_t n, current;
    const struct open_run *all = app_runs(v->app, &n, &current);
    (void)k, (void)args;
    for (size_t i = 0; i < n; i++)
        app_mark_run(v->app, all[i].path, 0);
}

/* The nearest point within a few cells; hover moves the cursor, too, where it is reported. */
static int hit_plot(struct pareto *p, const struct event *ev)
{
    int y = ev->y - p->plot_y, x = ev->x - p->plot_x, best = -1, least = 30;
    if (p->plot.rows < 1 || y < 0 || y >= p->plot.rows || x < 0 || x >= p->plot.cols)
        return 0;
    for (int i = 0; i < p->set.n; i++) {
        int dy = dot_y(p, p->set.point[i].y.mean) / 4 - y,
            dx = dot_x(p, p->set.point[i].x.mean) / 2 - x, far = 4 * dy * dy + dx * dx;
        if (far < least) {
            least = far;
            best = i;
        }
    }
    if (best < 0)
        return 0;
    p->list.cursor = (size_t)best;
    return 1;
}

static int pareto_event(struct view *v, const struct event *ev)
{
    struct pareto *p = v->state;
    prepare(v);
    if (ev->kind == EVENT_MOUSE &&
        (ev->action == MOUSE_PRESS || ev->action == MOUSE_DRAG || ev->action == MOUSE_MOVE)) {
        int row = ev->y - p->table_y - 1, is_taken = hit_plot(p, ev);
        if (!is_taken && ev->action == MOUSE_PRESS && p->table_y >= 0 && row >= 0 &&
            row < p->list.page && ev->x >= p->table_x &&
            p->list.top + (size_t)row < (size_t)p->set.n) {
            p->list.cursor = p->list.top + (size_t)row;
            is_taken = 1;
        }
        if (!is_taken)
            return 0;
        keep_selected(v);
        if (ev->is_double)
            key_enter(v, NULL, NULL);
        return 1;
    }
    if (!list_event(&p->list, ev))
        return 0;
    keep_selected(v);
    return 1;
}

static int pareto_search(struct view *v, const char *text, int direction)
{
    struct pareto *p = v->state;
    prepare(v);
    for (int k = 1; k <= p->set.n; k++) {
        int i = (((int)p->list.cursor + direction * k) % p->set.n + p->set.n) % p->set.n;
        if (strstr(p->set.point[i].label, text)) {
            p->list.cursor = (size_t)i;
            keep_selected(v);
            return 1;
        }
    }
    return 0;
}

static void pareto_copy(struct view *v, struct str *out)
{
    struct pareto *p = v->state;
    prepare(v);
    if (p->set.n)
        str_addf(out, "experiment\tn\t%s\tlo\thi\t%s\tlo\thi\tfront\n", pareto_axes[p->axis].name,
                 p->metric);
    for (int i = 0; i < p->set.n; i++) {
        const struct pareto_point *q = &p->set.point[i];
        copy_add(out, q->label);
        str_addf(out, "\t%zu\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\t%d\n", q->y.n, q->x.mean, q->x.lo,
                 q->x.hi, q->y.mean, q->y.lo, q->y.hi, q->is_front);
    }
}

/* clang-format off */
static const struct key pareto_keys[] = {
    {"Enter",      "open-run",   NULL, "open the first run of the experiment",  "open",   70, 0, 0, key_enter},
    {"x",          "axis",       "AXIS", "next cost: FLOPs, FLOPs per token, time, parameters, ...", "cost", 66, KEY_VIEW_CHANGE, 1, key_axis},
    {"m",          "metric",     "NAME", "next result: val_loss or a scalar of the evaluations", "result", 64, 0, 1, key_metric},
    {"M",          "metric-back", NULL, "previous result",                      NULL,     0, 0, -1, key_metric},
    {"Space",      "mark",       NULL, "unmark the runs of the experiment: only marked runs are shown", "leave out", 50, 0, 0, key_mark},
    {"0",          "all",        NULL, "show all open runs: unmark them",       NULL,     0, 0, 0, key_all},
    {"X",          "log-x",      NULL, "logarithmic cost",                      "log",    44, KEY_VIEW_CHANGE, 1, key_log},
    {"L",          "log-y",      NULL, "logarithmic result",                    NULL,     0, KEY_VIEW_CHANGE, 0, key_log},
    {"]f",         "next-front", NULL, "next experiment on the front",          NULL,     0, 0, 1, key_front},
    {"[f",         "prev-front", NULL, "previous experiment on the front",      NULL,     0, 0, -1, key_front},
    {"h Left",     "left",       NULL, "next lower cost",                       NULL,     0, KEY_HIDDEN, -1, key_move},
    {"l Right",    "right",      NULL, "next higher cost",                      NULL,     0, KEY_HIDDEN, 1, key_move},
    {"k Up",       "up",         NULL, "row above",                             NULL,     0, KEY_HIDDEN, -1, key_move},
    {"j Down",     "down",       NULL, "row below",                             NULL,     0, KEY_HIDDEN, 1, key_move},
    {"gg Home",    "first",      NULL, "lowest cost",                           NULL,     0, KEY_HIDDEN, 0, key_end},
    {"G End",      "last",       NULL, "highest cost",                          NULL,     0, KEY_HIDDEN, 1, key_end},
    {0},
};
static const struct setting pareto_settings[] = {
    {"axis",     SETTING_INT, offsetof(struct pareto, axis),     0, PARETO_AXES - 1},
    {"log_flip", SETTING_INT, offsetof(struct pareto, log_flip), 0, (1 << PARETO_AXES) - 1},
    {"log_y",    SETTING_INT, offsetof(struct pareto, is_log_y), 0, 1},
    {0},
};

const struct view_ops view_pareto = {
    .name = "pareto",  .title = "Pareto",
    .summary = "Loss or another result against FLOPs, measured time or parameters over the marked runs, seeds grouped.",
    .keys = pareto_keys,  .settings = pareto_settings,  .state_size = sizeof(struct pareto),
    .figure = "pareto",
    .open = pareto_open,  .draw = pareto_draw,  .event = pareto_event,
    .poll = pareto_poll,  .due = pareto_due,
    .search = pareto_search,  .copy = pareto_copy,
};
/* clang-format on */
