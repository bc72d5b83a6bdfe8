/* Curves over training: one run smoothed, seeds as mean and band, layers as mean and range. */
#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"
#include "io/metric.h"

enum { COLUMNS = 600 };
/* Ticks over fewer steps could be 2.5 or less than one apart. */
enum { FEW_STEPS = 25 };

void curve_release(struct curve *c)
{
    mem_free(c->x); /* one block holds all six */
    *c = (struct curve){0};
}

static int curve_room(struct curve *c, size_t n)
{
    double *block = mem_alloc(6 * (n + 1), sizeof *block);
    if (!block)
        return DS_EMEM;
    *c = (struct curve){.x = block,
                        .y = block + (n + 1),
                        .smooth = block + 2 * (n + 1),
                        .lo = block + 3 * (n + 1),
                        .hi = block + 4 * (n + 1),
                        .step = block + 5 * (n + 1)};
    return 0;
}

/* Bias-corrected exponential moving average; a non-finite value leaves a gap and is otherwise
 * ignored. */
static void smooth_curve(struct curve *c, double weight)
{
    double sum = 0, mass = 0;
    c->weight = weight;
    for (size_t i = 0; i < c->n; i++) {
        if (!isfinite(c->y[i])) {
            c->smooth[i] = (double)NAN;
            continue;
        }
        sum = weight * sum + (1 - weight) * c->y[i];
        mass = weight * mass + (1 - weight);
        c->smooth[i] = sum / mass;
    }
}

/* Schedules have no noise: smoothing would only delay them. */
static double weight_for(const struct sheet *s, const char *metric, size_t n)
{
    if (s->opt.smooth >= 0)
        return s->opt.smooth;
    const struct run_metric *m = run_metric_find(metric);
    if (m && m->flags & METRIC_EXACT)
        return 0;
    return n >= CURVE_SMOOTH_FROM ? CURVE_WEIGHT : 0;
}

/* ---- the x axis ---- */

/* Positions of one run's points, asked for in ascending order of steps. */
struct position {
    const struct series *of;
    size_t at;
    int axis; /* enum run_axis, or -1: the value of the series */
    int64_t steps_planned;
    double start;
};

static int x_axis(const struct sheet *s)
{
    return s->opt.x ? run_axis_find(s->opt.x) : AXIS_STEP;
}

/* own: series of the curve, NULL when it has none and that of the tokens must do. */
static int position_init(struct position *x, struct sheet *s, int run, const struct series *own,
                         struct err *e)
{
    const struct runview *v = s->run[run].view;
    *x = (struct position){
        .of = own, .axis = x_axis(s), .steps_planned = v->steps_planned, .start = runview_start(v)};
    if (x->axis < 0)
        x->of = runview_series(v, s->opt.x);
    else if (!own)
        x->of = runview_series(v, "tokens");
    return x->of || x->axis == AXIS_STEP ? 0
                                         : sheet_fail(s, run, e, "no record 'metric' has '%s'",
                                                      x->axis < 0 ? s->opt.x : "tokens");
}

/* NaN: unknown at this step. */
static double position_at(struct position *x, int64_t step)
{
    const struct series *v = x->of;
    if (x->axis == AXIS_STEP)
        return (double)step;
    while (x->at < v->n && (v->step[x->at] < step || (v->is_old && v->is_old[x->at])))
        x->at++;
    if (x->at == v->n || v->step[x->at] != step)
        return (double)NAN;
    return x->axis < 0 ? v->value[x->at]
                       : series_x(v, x->at, (enum run_axis)x->axis, x->steps_planned, x->start);
}

void curve_x_label(const struct sheet *s, char *out, size_t size)
{
    int axis = x_axis(s);
    if (axis >= 0)
        str_copy(out, size, run_axis_label[axis]);
    else
        run_metric_label(out, size, s->opt.x, runview_unit(s->run[0].view, s->opt.x));
}

/* ---- metrics ---- */

static int is_shown(const struct sheet *s, double x)
{
    return x >= s->x_from && x <= s->x_to && !(s->is_log_x && x <= 0);
}

/* Keeps what the axes show; smoothed before, so that a curve is the same at any range. */
static void crop(const struct sheet *s, struct curve *c)
{
    size_t n = 0;
    c->nonfinite = 0;
    for (size_t i = 0; i < c->n; i++) {
        if (!is_shown(s, c->x[i]))
            continue;
        c->step[n] = c->step[i];
        c->x[n] = c->x[i];
        c->y[n] = c->y[i];
        c->smooth[n] = c->smooth[i];
        c->lo[n] = c->lo[i];
        c->hi[n] = c->hi[i];
        c->nonfinite += isfinite(c->y[n++]) ? 0 : 1;
    }
    c->n = n;
}

static int no_point(struct sheet *s, int run, const char *metric, struct err *e)
{
    const char *x = s->opt.x ? s->opt.x : "step";
    if (s->opt.range || s->is_log_x)
        return sheet_fail(s, run, e, "no point of '%s' has %s in %s%s", metric, x,
                          s->opt.range ? s->opt.range : "..",
                          s->is_log_x ? " on a logarithmic axis" : "");
    return sheet_fail(s, run, e, "no point of '%s' has x = %s", metric, x);
}

/* The points of one run that were not superseded by a resume. */
static int take_run(struct sheet *s, int run, const char *metric, struct curve *c, struct err *e)
{
    const struct series *v = runview_series(s->run[run].view, metric);
    if (!v || v->n == 0)
        return sheet_fail(s, run, e, "no record 'metric' has '%s'", metric);
    struct position at;
    int rc = position_init(&at, s, run, v, e);
    if (rc < 0)
        return rc;
    if (curve_room(c, v->n) < 0)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (size_t i = 0; i < v->n; i++) {
        if (v->is_old && v->is_old[i])
            continue;
        double x = position_at(&at, v->step[i]);
        if (!isfinite(x))
            continue;
        c->step[c->n] = (double)v->step[i];
        c->x[c->n] = x;
        c->y[c->n++] = v->value[i];
    }
    smooth_curve(c, weight_for(s, metric, c->n));
    crop(s, c);
    if (c->n == 0)
        return no_point(s, run, metric, e);
    data_hash(s, metric, c->x, c->n * sizeof *c->x);
    data_hash(s, metric, c->y, c->n * sizeof *c->y);
    return 0;
}

/* Mean over seeds at the steps that all of them have; lo and hi: 95 % t interval of the mean.  Long
 * runs use every k-th step: their curves are smoothed, and a page has no more columns. */
static int merge(struct curve *out, const struct curve *seed, int n)
{
    double *at = mem_alloc((size_t)n, sizeof *at);
    size_t *k = mem_alloc((size_t)n, sizeof *k);
    int rc = at && k && curve_room(out, seed[0].n) == 0 ? 0 : DS_EMEM;
    for (size_t i = 0, every = seed[0].n / COLUMNS + 1; rc == 0 && i < seed[0].n; i += every) {
        int found = 1;
        double x = seed[0].x[i];
        at[0] = seed[0].smooth[i];
        for (int r = 1; found && r < n; r++) {
            while (k[r] < seed[r].n && seed[r].step[k[r]] < seed[0].step[i])
                k[r]++;
            found = k[r] < seed[r].n && seed[r].step[k[r]] == seed[0].step[i];
            x += found ? seed[r].x[k[r]] : 0;
            at[r] = found ? seed[r].smooth[k[r]] : (double)NAN;
        }
        if (!found)
            continue;
        struct interval v = stat_interval(at, (size_t)n);
        out->x[out->n] = x / n;
        out->smooth[out->n] = v.mean;
        out->lo[out->n] = v.lo;
        out->hi[out->n++] = v.hi;
    }
    out->has_band = 1;
    for (int r = 0; rc == 0 && r < n; r++)
        out->nonfinite += seed[r].nonfinite;
    mem_free(at);
    mem_free(k);
    return rc;
}

int curve_metric(struct sheet *s, const struct group *g, const char *metric, struct curve *out,
                 struct err *e)
{
    if (g->runs == 1)
        return take_run(s, g->run[0], metric, out, e);
    struct curve *seed = mem_alloc((size_t)g->runs, sizeof *seed);
    int rc = seed ? 0 : DS_EMEM;
    for (int i = 0; rc == 0 && i < g->runs; i++)
        rc = take_run(s, g->run[i], metric, &seed[i], e);
    if (rc == 0 && merge(out, seed, g->runs) < 0)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0 && out->n == 0)
        rc = sheet_fail(s, g->run[0], e, "no step of '%s' in common with its other seeds", metric);
    if (rc == 0)
        out->weight = seed[0].weight;
    for (int i = 0; seed && i < g->runs; i++)
        curve_release(&seed[i]);
    mem_free(seed);
    return rc;
}

/* Points a to b, which share a column: the first, the least, the most and the last of them. */
static size_t reduce(const struct curve *c, size_t a, size_t b, double *x, double *y)
{
    size_t least = a, most = a, n = 0;
    for (size_t i = a; i < b; i++) {
        least = c->y[i] < c->y[least] ? i : least;
        most = c->y[i] > c->y[most] ? i : most;
    }
    for (size_t i = a; i < b; i++)
        if (i == a || i == least || i == most || i + 1 == b) {
            x[n] = c->x[i];
            y[n++] = c->y[i];
        }
    return n;
}

/* Every point if they fit, else those of each column, so that a single-step spike remains
 * visible. */
static void draw_raw(struct sheet *s, struct panel *p, const struct curve *c, int rgb)
{
    double *x = c->n > 2 * COLUMNS ? mem_alloc(2 * c->n, sizeof *x) : NULL;
    double *y = x ? x + c->n : NULL;
    size_t n = 0;
    pen_dash(s->pen, NULL, 0);
    pen_colour(s->pen, rgb, 0.3);
    pen_width(s->pen, s->venue->line * 0.55);
    for (size_t a = 0, b; x && a < c->n; a = b) {
        double column = floor((axis_at(&p->ax, c->x[a]) - p->x) / p->w * COLUMNS);
        for (b = a + 1; b < c->n && isfinite(c->y[a]) && isfinite(c->y[b]) &&
                        floor((axis_at(&p->ax, c->x[b]) - p->x) / p->w * COLUMNS) == column;)
            b++;
        n += reduce(c, a, b, x + n, y + n);
    }
    if (x)
        panel_line(s, p, x, y, n);
    else
        panel_line(s, p, c->x, c->y, c->n);
    mem_free(x);
}

/* A cross at the bottom of the plot for each non-finite value. */
static void draw_holes(struct sheet *s, struct panel *p, const struct curve *c)
{
    double r = s->venue->line * 1.6, y = p->y + p->h - r * 1.8, before = -1e9;
    pen_dash(s->pen, NULL, 0);
    pen_colour(s->pen, sheet_colour(s, ROLE_BAD), 1);
    pen_width(s->pen, s->venue->line * 0.8);
    for (size_t i = 0; i < c->n; i++) {
        double x = axis_at(&p->ax, c->x[i]);
        if (isfinite(c->y[i]) || x - before < 1)
            continue;
        pen_segment(s->pen, x - r, y - r, x + r, y + r);
        pen_segment(s->pen, x - r, y + r, x + r, y - r);
        panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
        before = x;
    }
}

/* The legend must not cover a band either. */
static void draw_band(struct sheet *s, struct panel *p, const struct curve *c, int rgb)
{
    panel_band(s, p, c->x, c->lo, c->hi, c->n, rgb, 0.22);
    for (size_t i = 0; i < c->n; i++)
        if (isfinite(c->lo[i]) && isfinite(c->hi[i]) && !(p->ay.is_log && c->lo[i] <= 0)) {
            double x = axis_at(&p->ax, c->x[i]);
            panel_mark_line(p, x, axis_at(&p->ay, c->lo[i]), x, axis_at(&p->ay, c->hi[i]));
        }
}

int curve_dash(int i)
{
    return i + i / ROLE_SERIES_COUNT;
}

void curve_draw(struct sheet *s, struct panel *p, const struct curve *c, int i)
{
    int rgb = sheet_series(s, i);
    if (c->has_band)
        draw_band(s, p, c, rgb);
    else if (c->weight > 0)
        draw_raw(s, p, c, rgb);
    pen_colour(s->pen, rgb, 1);
    pen_width(s->pen, s->venue->line);
    sheet_dash(s, curve_dash(i));
    panel_line(s, p, c->x, c->smooth, c->n);
    pen_dash(s->pen, NULL, 0);
    if (!c->has_band && c->nonfinite > 0)
        draw_holes(s, p, c);
    for (size_t k = 0; k < c->n && c->n <= 30; k++)
        if (isfinite(c->smooth[k]) && !(p->ay.is_log && c->smooth[k] <= 0)) {
            double x = axis_at(&p->ax, c->x[k]), y = axis_at(&p->ay, c->smooth[k]);
            sheet_marker(s, i, x, y, s->venue->line * 1.4, rgb, 0);
        }
}

void curve_include(struct panel *p, const struct curve *c)
{
    for (size_t i = 0; i < c->n; i++) {
        axis_include(&p->ax, c->x[i]);
        axis_include(&p->ay, c->smooth[i]);
        axis_include(&p->ay, c->has_band ? c->lo[i] : c->y[i]);
        axis_include(&p->ay, c->has_band ? c->hi[i] : c->y[i]);
    }
}

void curve_axes(const struct sheet *s, struct panel *p, int is_log)
{
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    p->ax.is_log = s->is_log_x;
    p->ay.is_log = is_log || s->is_log_y;
}

/* From zero where little is missing, unless a range was asked for; steps are whole. */
void curve_pad(const struct sheet *s, struct panel *p)
{
    if (!p->ax.is_log && !isfinite(s->x_from) && p->ax.lo > 0 && p->ax.lo < p->ax.hi * 0.15)
        p->ax.lo = 0;
    axis_pad(&p->ax, 0);
    axis_pad(&p->ay, 0.05);
    p->ticks_whole_x = x_axis(s) == AXIS_STEP && !p->ax.is_log && p->ax.hi - p->ax.lo < FEW_STEPS;
}

/* ---- layers ---- */

/* A layer has the metric if it is ever finite and non-zero: layers without a router record NaN or
 * 0. */
static void layers_with(const struct layer_series *v, unsigned char *has)
{
    for (size_t i = 0; i < v->n; i++)
        for (int l = 0; l < v->layers; l++) {
            double x = (double)v->value[i * (size_t)v->layers + (size_t)l];
            has[l] |= isfinite(x) && x != 0;
        }
}

/* Mean, minimum and maximum over the layers of one record. */
static void layer_point(const struct layer_series *v, size_t i, double x, const unsigned char *has,
                        struct curve *c)
{
    double sum = 0, lo = (double)INFINITY, hi = -(double)INFINITY;
    int n = 0;
    for (int l = 0; l < v->layers; l++) {
        double y = (double)v->value[i * (size_t)v->layers + (size_t)l];
        if (!has[l] || !isfinite(y))
            continue;
        sum += y;
        lo = fmin(lo, y);
        hi = fmax(hi, y);
        n++;
    }
    c->step[c->n] = (double)v->step[i];
    c->x[c->n] = x;
    c->y[c->n] = c->smooth[c->n] = n ? sum / n : (double)NAN;
    c->lo[c->n] = n ? lo : (double)NAN;
    c->hi[c->n++] = n ? hi : (double)NAN;
}

/* A record whose step occurs again later was superseded by a resume. */
static int is_superseded(const struct layer_series *v, size_t i, int64_t *least)
{
    int old = v->step[i] >= *least;
    *least = old ? *least : v->step[i];
    return old;
}

static int take_layers(struct sheet *s, int run, const char *metric, struct curve *c, struct err *e)
{
    const struct layer_series *v = runview_layer(s->run[run].view, metric);
    if (!v || v->n == 0 || v->layers < 1)
        return sheet_fail(s, run, e, "no record 'layer' has '%s'", metric);
    unsigned char *has = mem_alloc((size_t)v->layers, 1), *keep = mem_alloc(v->n, 1);
    int64_t least = INT64_MAX;
    struct position at = {0};
    int rc = has && keep && curve_room(c, v->n) == 0
                 ? 0
                 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (size_t i = v->n; rc == 0 && i-- > 0;)
        keep[i] = !is_superseded(v, i, &least);
    if (rc == 0)
        layers_with(v, has);
    if (rc == 0)
        rc = position_init(&at, s, run, NULL, e);
    for (size_t i = 0; rc == 0 && i < v->n; i++) {
        double x = keep[i] ? position_at(&at, v->step[i]) : (double)NAN;
        if (isfinite(x))
            layer_point(v, i, x, has, c);
    }
    if (rc == 0)
        crop(s, c);
    if (rc == 0 && c->n == 0)
        rc = no_point(s, run, metric, e);
    if (rc == 0) {
        c->has_band = 1;
        data_hash(s, metric, c->x, c->n * sizeof *c->x);
        data_hash(s, metric, c->y, c->n * sizeof *c->y);
        data_hash(s, metric, c->lo, c->n * sizeof *c->lo);
        data_hash(s, metric, c->hi, c->n * sizeof *c->hi);
    }
    mem_free(has);
    mem_free(keep);
    return rc;
}

/* out becomes the mean of the means and the union of the ranges at the steps that both have. */
static void join_layers(struct curve *out, const struct curve *more, int before)
{
    size_t n = 0;
    for (size_t i = 0, k = 0; i < out->n; i++) {
        while (k < more->n && more->step[k] < out->step[i])
            k++;
        if (k == more->n || more->step[k] != out->step[i])
            continue;
        out->step[n] = out->step[i];
        out->x[n] = (out->x[i] * before + more->x[k]) / (before + 1);
        out->y[n] = out->smooth[n] = (out->smooth[i] * before + more->smooth[k]) / (before + 1);
        out->lo[n] = fmin(out->lo[i], more->lo[k]);
        out->hi[n++] = fmax(out->hi[i], more->hi[k]);
    }
    out->n = n;
    out->nonfinite += more->nonfinite;
}

int curve_layer(struct sheet *s, const struct group *g, const char *metric, struct curve *out,
                struct err *e)
{
    int rc = take_layers(s, g->run[0], metric, out, e);
    for (int i = 1; rc == 0 && i < g->runs; i++) {
        struct curve more = {0};
        rc = take_layers(s, g->run[i], metric, &more, e);
        if (rc == 0)
            join_layers(out, &more, i);
        curve_release(&more);
    }
    if (rc == 0 && out->n == 0)
        rc = sheet_fail(s, g->run[0], e, "no step of '%s' in common with its other seeds", metric);
    return rc;
}

int curve_has_metric(const struct sheet *s, const char *metric)
{
    int all = 1;
    for (int i = 0; i < s->runs; i++) {
        const struct series *v = runview_series(s->run[i].view, metric);
        all &= v && v->n > 0;
    }
    return all;
}

int curve_is_shown(struct sheet *s, const char *metric)
{
    int shown = 0;
    for (int r = 0; r < s->runs; r++) {
        const struct series *v = runview_series(s->run[r].view, metric);
        struct position at;
        struct err e;
        int has = 0;
        if (!v || position_init(&at, s, r, v, &e) < 0)
            return 0;
        for (size_t i = 0; i < v->n && !has; i++)
            has = !(v->is_old && v->is_old[i]) && is_shown(s, position_at(&at, v->step[i]));
        shown += has;
    }
    return shown == s->runs;
}

int curve_has_layer(const struct sheet *s, const char *metric)
{
    int all = 1;
    for (int i = 0; i < s->runs; i++) {
        const struct layer_series *v = runview_layer(s->run[i].view, metric);
        all &= v && v->n > 0 && v->layers > 0;
    }
    return all;
}

void curve_note(struct sheet *s, const struct groups *set, const char *name)
{
    int seeds = 1;
    for (int g = 0; g < set->n; g++)
        seeds = set->g[g].runs > seeds ? set->g[g].runs : seeds;
    if (seeds > 1)
        sheet_note(s,
                   "%s: mean over up to n = %d seeds; band: 95 %% confidence interval (Student's "
                   "t) of the mean.",
                   name, seeds);
    else if (s->opt.smooth < 0)
        sheet_note(s, "%s: smoothed from %d points on; raw values in the background.", name,
                   (int)CURVE_SMOOTH_FROM);
    else if (s->opt.smooth > 0)
        sheet_note(s, "%s: smoothed with weight %g, over the raw values.", name, s->opt.smooth);
}

int curve_panel(struct sheet *s, const struct curve_panel *v, const double box[4], struct err *e)
{
    struct panel *p = mem_alloc(1, sizeof *p);
    char x_label[128];
    if (!p)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    curve_axes(s, p, v->is_log);
    if (v->from_zero)
        axis_include(&p->ay, 0);
    for (int i = 0; i < v->n; i++) {
        curve_include(p, &v->curve[i]);
        if (v->label)
            panel_entry(p, v->label[i], sheet_series(s, i), curve_dash(i), -1, 1);
    }
    curve_pad(s, p);
    curve_x_label(s, x_label, sizeof x_label);
    p->x_label = x_label;
    p->y_label = v->y_label;
    str_copy(p->title, sizeof p->title, v->title ? v->title : "");
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    panel_axes(s, p);
    for (int i = 0; i < v->n; i++)
        curve_draw(s, p, &v->curve[i], i);
    panel_legend(s, p);
    mem_free(p);
    return 0;
}
