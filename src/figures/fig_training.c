/* Any logged metric over steps: the raw curve behind the smoothed one, seeds as mean and band, NaN
 * marked. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { METRICS_MAX = 8, NAME_MAX_BYTES = 64, COLUMNS = 600, SMOOTH_FROM = 100 };

struct curve {
    double *x, *y, *smooth, *lo, *hi;
    size_t n, nonfinite;
    double weight;
};

static void curve_release(struct curve *c)
{
    mem_free(c->x); /* one block holds all five */
    *c = (struct curve){0};
}

static int curve_room(struct curve *c, size_t n)
{
    double *block = mem_alloc(5 * (n + 1), sizeof *block);
    if (!block)
        return DS_EMEM;
    *c = (struct curve){.x = block,
                        .y = block + (n + 1),
                        .smooth = block + 2 * (n + 1),
                        .lo = block + 3 * (n + 1),
                        .hi = block + 4 * (n + 1)};
    return 0;
}

/* Weighted mean of the past without the start's bias; a value that is no number leaves a hole and
 * no trace. */
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

/* A schedule has no noise, and smoothing would only delay it. */
static double weight_for(const struct sheet *s, const char *metric, size_t n)
{
    if (s->opt.smooth >= 0)
        return s->opt.smooth;
    if (strcmp(metric, "lr") == 0 || strcmp(metric, "tokens") == 0)
        return 0;
    return n >= SMOOTH_FROM ? 0.9 : 0;
}

/* The points of one run that a resume has not superseded. */
static int take_run(struct sheet *s, int run, const char *metric, struct curve *c, struct err *e)
{
    const struct series *v = runview_series(s->run[run].view, metric);
    if (!v || v->n == 0)
        return sheet_refuse(s, run, e, "no record 'metric' has '%s'", metric);
    if (curve_room(c, v->n) < 0)
        return err_set(e, DS_EMEM, "figure %s: no memory", s->ops->name);
    for (size_t i = 0; i < v->n; i++) {
        if (v->is_old && v->is_old[i])
            continue;
        c->x[c->n] = (double)v->step[i];
        c->y[c->n++] = v->value[i];
        c->nonfinite += isfinite(v->value[i]) ? 0 : 1;
    }
    data_hash(s, metric, c->x, c->n * sizeof *c->x);
    data_hash(s, metric, c->y, c->n * sizeof *c->y);
    smooth_curve(c, weight_for(s, metric, c->n));
    return 0;
}

/* Mean over seeds at the steps that all of them have; lo and hi: bootstrap interval of the mean. Of
 * a long run every k-th step: the curves are smoothed by then, and a page has no more columns. */
static int merge(struct curve *out, const struct curve *seed, int n)
{
    double *at = mem_alloc((size_t)n, sizeof *at);
    size_t *k = mem_alloc((size_t)n, sizeof *k);
    int rc = at && k && curve_room(out, seed[0].n) == 0 ? 0 : DS_EMEM;
    for (size_t i = 0, every = seed[0].n / COLUMNS + 1; rc == 0 && i < seed[0].n; i += every) {
        int found = 1;
        at[0] = seed[0].smooth[i];
        for (int r = 1; found && r < n; r++) {
            while (k[r] < seed[r].n && seed[r].x[k[r]] < seed[0].x[i])
                k[r]++;
            found = k[r] < seed[r].n && seed[r].x[k[r]] == seed[0].x[i];
            at[r] = found ? seed[r].smooth[k[r]] : (double)NAN;
        }
        if (!found)
            continue;
        struct interval v = stats_bootstrap(at, (size_t)n, 1);
        out->x[out->n] = seed[0].x[i];
        out->smooth[out->n] = v.mean;
        out->lo[out->n] = v.lo;
        out->hi[out->n++] = v.hi;
    }
    for (int r = 0; rc == 0 && r < n; r++)
        out->nonfinite += seed[r].nonfinite;
    mem_free(at);
    mem_free(k);
    return rc;
}

static int take_group(struct sheet *s, const struct group *g, const char *metric, struct curve *out,
                      struct err *e)
{
    if (g->runs == 1)
        return take_run(s, g->run[0], metric, out, e);
    struct curve *seed = mem_alloc((size_t)g->runs, sizeof *seed);
    int rc = seed ? 0 : DS_EMEM;
    for (int i = 0; rc == 0 && i < g->runs; i++)
        rc = take_run(s, g->run[i], metric, &seed[i], e);
    if (rc == 0 && merge(out, seed, g->runs) < 0)
        rc = err_set(e, DS_EMEM, "figure %s: no memory", s->ops->name);
    if (rc == 0 && out->n == 0)
        rc = sheet_refuse(s, g->run[0], e, "and its other seeds have no step of '%s' in common",
                          metric);
    if (rc == 0)
        out->weight = seed[0].weight;
    for (int i = 0; seed && i < g->runs; i++)
        curve_release(&seed[i]);
    mem_free(seed);
    return rc;
}

/* Every point when they fit, else the least and the greatest of each column: a spike of one step
 * stays. */
static void draw_raw(struct sheet *s, struct panel *p, const struct curve *c, int rgb)
{
    pen_dash(s->pen, NULL, 0);
    pen_colour(s->pen, rgb, 0.3);
    pen_width(s->pen, s->venue->line * 0.55);
    if (c->n <= 2 * COLUMNS) {
        panel_line(s, p, c->x, c->y, c->n);
        return;
    }
    for (int col = 0; col < COLUMNS; col++) {
        size_t a = c->n * (size_t)col / COLUMNS, b = c->n * (size_t)(col + 1) / COLUMNS;
        double lo = (double)INFINITY, hi = -(double)INFINITY;
        for (size_t i = a; i < b; i++)
            if (isfinite(c->y[i])) {
                lo = fmin(lo, c->y[i]);
                hi = fmax(hi, c->y[i]);
            }
        if (lo > hi)
            continue;
        double x = axis_at(&p->ax, c->x[a]), y0 = axis_at(&p->ay, lo), y1 = axis_at(&p->ay, hi);
        pen_segment(s->pen, x, y0, x, y1);
        panel_mark_line(p, x, y0, x, y1);
    }
}

/* A cross at the foot of the plot for each value that is no number. */
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

static void draw_curve(struct sheet *s, struct panel *p, const struct curve *c, int seeds, int i)
{
    int rgb = sheet_series(s, i);
    if (seeds > 1)
        panel_band(s, p, c->x, c->lo, c->hi, c->n, rgb, 0.22);
    else if (c->weight > 0)
        draw_raw(s, p, c, rgb);
    pen_colour(s->pen, rgb, 1);
    pen_width(s->pen, s->venue->line);
    sheet_dash(s, i);
    panel_line(s, p, c->x, c->smooth, c->n);
    pen_dash(s->pen, NULL, 0);
    if (seeds == 1 && c->nonfinite > 0)
        draw_holes(s, p, c);
    for (size_t k = 0; k < c->n && c->n <= 30; k++)
        if (isfinite(c->smooth[k])) {
            double x = axis_at(&p->ax, c->x[k]), y = axis_at(&p->ay, c->smooth[k]);
            sheet_marker(s, i, x, y, s->venue->line * 1.4, rgb, 0);
        }
}

static void include_curve(struct panel *p, const struct curve *c, int seeds)
{
    for (size_t i = 0; i < c->n; i++) {
        axis_include(&p->ax, c->x[i]);
        axis_include(&p->ay, c->smooth[i]);
        axis_include(&p->ay, seeds > 1 ? c->lo[i] : c->y[i]);
        axis_include(&p->ay, seeds > 1 ? c->hi[i] : c->y[i]);
    }
}

static const char *label_of(const char *metric)
{
    static const char *const words[][2] = {
        {"loss", "Training loss (nats)"},
        {"val_loss", "Validation loss (nats)"},
        {"lr", "Learning rate"},
        {"grad_norm", "Gradient norm"},
        {"tok_s", "Tokens per second"},
        {"flops_ratio", "FLOPs (fraction of dense)"},
        {"block_ratio", "Blocks run (fraction of dense)"},
        {"time_ratio", "Time (fraction of dense)"},
        {"tokens", "Tokens seen"},
        {"bits_per_byte", "Bits per byte"},
    };
    for (size_t i = 0; i < DS_LEN(words); i++)
        if (strcmp(words[i][0], metric) == 0)
            return words[i][1];
    return metric;
}

static int draw_metric(struct sheet *s, const struct groups *set, const char *metric, int i, int n,
                       struct err *e)
{
    struct panel *p = mem_alloc(1, sizeof *p);
    struct curve *c = mem_alloc((size_t)set->n, sizeof *c);
    double box[4];
    size_t bad = 0;
    int rc = p && c ? 0 : err_set(e, DS_EMEM, "figure %s: no memory", s->ops->name);
    for (int g = 0; rc == 0 && g < set->n; g++)
        rc = take_group(s, &set->g[g], metric, &c[g], e);
    if (rc < 0)
        goto out;
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    for (int g = 0; g < set->n; g++) {
        include_curve(p, &c[g], set->g[g].runs);
        bad += c[g].nonfinite;
        if (i == 0 && set->n > 1)
            panel_entry(p, set->g[g].label, sheet_series(s, g), g, -1, 1);
    }
    if (axis_is_empty(&p->ay)) {
        rc = sheet_refuse(s, set->g[0].run[0], e, "metric '%s' has no finite value", metric);
        goto out;
    }
    if (p->ax.lo > 0 && p->ax.lo < p->ax.hi * 0.15)
        p->ax.lo = 0;
    axis_pad(&p->ax, 0);
    axis_pad(&p->ay, 0.05);
    p->x_label = "Training step";
    p->y_label = label_of(metric);
    s->height = panel_grid(s, n, 3, n > 1 ? 0.68 : 0.62, i, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    panel_axes(s, p);
    for (int g = 0; g < set->n; g++)
        draw_curve(s, p, &c[g], set->g[g].runs, g);
    panel_legend(s, p);
    if (bad > 0)
        sheet_note(s, "%s: %zu value%s not finite%s.", metric, bad, bad == 1 ? " is" : "s are",
                   set->n < s->runs ? " and left out of the means" : " (crosses)");
out:
    for (int g = 0; c && g < set->n; g++)
        curve_release(&c[g]);
    mem_free(c);
    mem_free(p);
    return rc;
}

/* Splits "a,b,c"; without a list: loss, and val_loss where every run has it. */
static int metrics_of(const struct sheet *s, char name[METRICS_MAX][NAME_MAX_BYTES], struct err *e)
{
    const char *list = s->opt.metric;
    int n = 0, all = 1;
    for (int i = 0; i < s->runs; i++)
        all &= runview_series(s->run[i].view, "val_loss") != NULL;
    if (!list)
        list = all ? "loss,val_loss" : "loss";
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= NAME_MAX_BYTES || n == METRICS_MAX)
            return err_set(e, DS_EUSAGE, "metric \"%s\": at most %d names, separated by commas",
                           list, METRICS_MAX);
        memcpy(name[n], at, len);
        name[n++][len] = '\0';
        at += len + (at[len] == ',');
    }
    return n > 0 ? n : err_set(e, DS_EUSAGE, "metric: the list is empty");
}

static void note(struct sheet *s, const struct groups *set)
{
    int hi = 1, lo = 1 << 30;
    char weight[24];
    for (int g = 0; g < set->n; g++) {
        hi = set->g[g].runs > hi ? set->g[g].runs : hi;
        lo = set->g[g].runs < lo ? set->g[g].runs : lo;
    }
    if (set->n == 1)
        sheet_note(s, "Shown: %s.", set->g[0].label);
    number_format(weight, sizeof weight, s->opt.smooth >= 0 ? s->opt.smooth : 0.9, -1);
    if (hi > 1)
        sheet_note(
            s,
            lo == hi ? "Mean over n = %d seeds; band: 95 %% bootstrap interval of the mean."
                     : "Mean over up to n = %d seeds; band: 95 %% bootstrap interval of the mean.",
            hi);
    if (s->opt.smooth != 0)
        sheet_note(s, "Smoothed with weight %s%s%s.", weight,
                   s->opt.smooth < 0 ? " where there are 100 points or more" : "",
                   hi > 1 ? "" : "; raw values behind");
}

static int draw(struct sheet *s, struct err *e)
{
    char name[METRICS_MAX][NAME_MAX_BYTES];
    struct groups set;
    int n = metrics_of(s, name, e), rc = n;
    if (n < 0)
        return n;
    rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    if (set.n > LEGEND_MAX)
        rc = err_set(e, DS_EUSAGE,
                     "figure %s: %d different experiments are too many for one figure (at most %d)",
                     s->ops->name, set.n, LEGEND_MAX);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = draw_metric(s, &set, name[i], i, n, e);
    if (rc == 0)
        note(s, &set);
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_training = {
    .name = "training",
    .title = "Logged metrics over training",
    .needs = "metric records; --metric names the series (default loss, and val_loss where logged)",
    .draw = draw,
};
