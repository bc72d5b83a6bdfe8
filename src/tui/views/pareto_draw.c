/* Draws Pareto: the chart of points with their intervals and curves, the table, and the read-out. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/utf8.h"
#include "io/metric.h"
#include "tui/pareto.h"

enum { TABLE_COLS = 58, WIDE_COLS = 130, CHART_ROWS_MIN = 8, TRACED = 160 };

static int is_log_x(const struct pareto *p)
{
    int is_default = p->axis == PARETO_PARAMS || p->axis == PARETO_TRAINING;
    return is_default ^ (p->log_flip >> p->axis & 1);
}

/* The cost as words; what is counted as parameters is as the runs recorded it. */
static const char *cost_of(const struct pareto *p)
{
    int known = 0, runs = 0;
    for (int i = 0; i < p->set.n; i++)
        for (int k = 0; k < p->set.point[i].runs; k++, runs++)
            known += p->run[p->set.point[i].run[k]]->params_non_embedding > 0;
    return p->axis != PARETO_PARAMS || known == 0 ? pareto_axes[p->axis].title
           : known == runs                        ? "non-embedding parameters"
                                                  : "parameters, of some with embeddings";
}

/* ---- axes ---- */

/* All means are inside; interval ends only as far as the spread of the means, so that two seeds with
 * a wide interval do not flatten the rest.  What is cut gets a caret.  Linear where a mean has no
 * logarithm. */
static struct scan_axis range_of(const struct pareto *p, int is_y, int is_log)
{
    double lo = (double)INFINITY, hi = -(double)INFINITY;
    for (int i = 0; i < p->set.n; i++) {
        double m = is_y ? p->set.point[i].y.mean : p->set.point[i].x.mean;
        lo = m < lo ? m : lo;
        hi = m > hi ? m : hi;
    }
    if (!(lo <= hi))
        return (struct scan_axis){0, 1, 0, 0};
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
        return (struct scan_axis){from * exp(-pad), to * exp(pad), 1, 0};
    return (struct scan_axis){from - pad < 0 && from >= 0 ? 0 : from - pad, to + pad, 0, 0};
}

int pareto_dot_x(const struct pareto *p, double x)
{
    return (int)lround(scan_unit(&p->x, x) * (2 * p->plot.cols - 1) + 1e-9);
}

int pareto_dot_y(const struct pareto *p, double y)
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
    int x = pareto_dot_x(p, q->x.mean), y = pareto_dot_y(p, q->y.mean);
    if (isfinite(q->y.lo))
        dots_column(d, x, pareto_dot_y(p, q->y.hi), pareto_dot_y(p, q->y.lo), r);
    if (isfinite(q->x.lo)) {
        int x0 = pareto_dot_x(p, q->x.lo), x1 = pareto_dot_x(p, q->x.hi),
            last = 2 * p->plot.cols - 1;
        for (int k = x0 < 0 ? 0 : x0; k <= (x1 > last ? last : x1); k++)
            dots_point(d, k, y, r);
    }
}

/* Carets where an interval leaves the plot. */
static void draw_cuts(const struct pareto *p, const struct pareto_point *q)
{
    int x = pareto_dot_x(p, q->x.mean) / 2, y = pareto_dot_y(p, q->y.mean) / 4;
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
            dots_line(d, pareto_dot_x(p, last->x.mean), pareto_dot_y(p, last->y.mean),
                      pareto_dot_x(p, q->x.mean), pareto_dot_y(p, q->y.mean), ROLE_AXIS);
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
        int nx = pareto_dot_x(p, pow(10, at)), ny = pareto_dot_y(p, stat_parabola_at(&c->fit, at));
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
    int n = utf8_cells(text, strlen(text));
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
                area_put(a, pareto_dot_y(p, q->y.mean) / 4, pareto_dot_x(p, q->x.mean) / 2,
                         rune_of(a, q), ink_of(q));
        }
    const struct pareto_point *here = pareto_selected(p);
    if (here) {
        int y = pareto_dot_y(p, here->y.mean) / 4, x = pareto_dot_x(p, here->x.mean) / 2;
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
            area_put(a, pareto_dot_y(p, stat_parabola_at(&c->fit, log10(c->best))) / 4,
                     pareto_dot_x(p, c->best) / 2, '+', ink_attr(ink(iso_role(k)), ATTR_BOLD));
        snprintf(text, sizeof text, "%s FLOPs", num_print(number, c->budget));
        put_label(a, pareto_dot_y(p, q->y.mean) / 4, pareto_dot_x(p, q->x.mean) / 2, text,
                  ink(iso_role(k)));
    }
    for (int i = 0; i < p->set.n; i++) {
        const struct pareto_point *q = &p->set.point[i];
        put_label(a, pareto_dot_y(p, q->y.mean) / 4, pareto_dot_x(p, q->x.mean) / 2, q->label,
                  q->is_front ? ink(role_of(q)) : ink(ROLE_DIM));
    }
}

static void axis_title(const struct pareto *p, char out[64])
{
    const struct pareto_axis *x = &pareto_axes[p->axis];
    snprintf(out, 64, "%s%s%s%s", cost_of(p), x->unit[0] ? ", " : "", x->unit,
             p->x.is_log ? " (log)" : "");
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
    axis_draw_y(a, 0, p->plot.rows, p->y.lo, p->y.hi, p->y.is_log);
    axis_draw_x(a, a.rows - 1, AXIS_COLS + 1, p->plot.cols, p->x.lo, p->x.hi, p->x.is_log, 0,
                title);
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
    if (p->y.is_log)
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
    const char *unit = pareto_axes[p->axis].unit; /* a share needs none */
    int has_unit = unit[0] && strcmp(unit, "of dense") != 0;
    snprintf(part[n++], sizeof part[0], "%s %s%s%s", cost_of(p), text, has_unit ? " " : "",
             has_unit ? unit : "");
    if (q->is_front)
        snprintf(part[n++], sizeof part[0], "on the front");
    else if (q->dominated_by >= 0)
        snprintf(part[n++], sizeof part[0], "dominated by %s", p->set.point[q->dominated_by].label);
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
        int len = utf8_cells(part[i], strlen(part[i]));
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
            need = (name ? utf8_cells(name, strlen(name)) : 1) + (int)strlen(l->text) + 3;
        if (need > room && i > 0)
            break;
        x += area_text(line, 0, x, room > 0 ? room : 0, ink(ROLE_TEXT), name ? name : "?");
        x += area_textf(line, 0, x, line.cols - x - 1, ink(ROLE_DIM), " %s%s", l->text,
                        i + 1 < p->set.lefts ? ", " : "");
    }
    if (i < p->set.lefts)
        area_textf(line, 0, x, -1, ink(ROLE_DIM), "and %d more", p->set.lefts - i);
}

/* The axis and the result over which the most runs can be placed; 0 when there are none. */
static int most_placed(const struct pareto *p, int *axis, const char **metric)
{
    const char *result[] = {p->metric, "loss"};
    int most = 0;
    for (size_t m = 0; m < DS_LEN(result); m++)
        for (int x = 0; x < PARETO_AXES; x++) {
            int n = 0;
            for (int r = 0; r < p->runs; r++)
                n += p->run[r]->state != RUN_FAILED &&
                     isfinite(pareto_x_of(p->run[r], (enum pareto_x)x)) &&
                     isfinite(pareto_y_of(p->run[r], result[m]));
            if (n > most) {
                most = n;
                *axis = x;
                *metric = result[m];
            }
        }
    return most;
}

static void draw_empty(struct view *v, struct area a)
{
    int axis = 0, is_foreign = 0, is_native = 0;
    const char *metric = "";
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
    for (int r = 0; r < p->runs; r++) {
        is_foreign |= runview_foreign(p->run[r]) != NULL;
        is_native |= runview_config(p->run[r], "train.eval_every") != NULL;
    }
    int most = is_foreign ? most_placed(p, &axis, &metric) : 0;
    if (a.rows >= 6) {
        if (most > 0)
            area_textf(a, below, 2, a.cols - 3, ink(ROLE_TEXT),
                       ":axis %s and :metric %s place %d of these runs;", pareto_axes[axis].name,
                       metric, most);
        else if (is_native)
            area_text(a, below, 2, a.cols - 3, ink(ROLE_TEXT),
                      "An evaluation is recorded every train.eval_every steps and at the end;");
        area_text(a, below + 1, 2, a.cols - 3, ink(ROLE_TEXT),
                  "m chooses another result, x another cost.");
    }
}

void pareto_draw(struct view *v, struct area a)
{
    struct pareto *p = v->state;
    pareto_prepare(v);
    p->plot = (struct area){0};
    p->table_y = -1;
    if (p->set.n == 0) {
        draw_empty(v, a);
        return;
    }
    p->x = range_of(p, 0, is_log_x(p));
    p->y = range_of(p, 1, p->is_log_y);
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
