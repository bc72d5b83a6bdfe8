/* Loss, or another result, against the share of executed cells: one point per experiment, and the
 * Pareto front. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"
#include "io/metric.h"

struct dot {
    struct interval x, y;
    const struct group *g;
    int is_front;
};

struct names {
    char x[64], y[64];
    double sign; /* of y: 1, or -1 where more is better */
};

/* --metric: a name that ends in _ratio is the horizontal axis, any other the vertical one. */
static int read_names(const struct sheet *s, struct names *n, struct err *e)
{
    int given[2] = {0, 0};
    *n = (struct names){.x = "block_ratio", .y = "loss"};
    for (const char *at = s->opt.metric; at && *at;) {
        size_t len = strcspn(at, ",");
        int is_x = len > 6 && strncmp(at + len - 6, "_ratio", 6) == 0;
        if (len == 0 || len >= sizeof n->x || given[is_x]++)
            return err_set(e, DS_EUSAGE,
                           "metric = %.200s: expected at most one name that ends in _ratio, and "
                           "one other",
                           s->opt.metric);
        snprintf(is_x ? n->x : n->y, sizeof n->x, "%.*s", (int)len, at);
        at += len + (at[len] == ',');
    }
    n->sign = metric_is_gain(n->y) ? -1 : 1;
    return 0;
}

static const char *axis_name(const char *metric)
{
    static const char *const words[][2] = {
        {"block_ratio", "Share of executed cells"},
        {"flops_ratio", "FLOPs (fraction of dense)"},
        {"time_ratio", "Measured time (fraction of dense)"},
        {"loss", "Validation loss (nats)"},
        {"bits_per_byte", "Bits per byte"},
    };
    for (size_t i = 0; i < DS_LEN(words); i++)
        if (strcmp(words[i][0], metric) == 0)
            return words[i][1];
    return metric;
}

/* Sorts by x, and finds the experiments that no other one dominates. */
static int find_front(struct dot *d, int n, double sign, struct err *e)
{
    double *x = mem_alloc(2 * (size_t)n, sizeof *x), *y = x + n;
    unsigned char *is_front = mem_alloc((size_t)n, 1);
    int rc = x && is_front ? 0 : err_set(e, DS_EMEM, "figure pareto: out of memory");
    for (int i = 1; i < n; i++)
        for (int k = i;
             k > 0 && (d[k].x.mean < d[k - 1].x.mean ||
                       (d[k].x.mean == d[k - 1].x.mean && d[k].y.mean < d[k - 1].y.mean));
             k--) {
            struct dot t = d[k];
            d[k] = d[k - 1];
            d[k - 1] = t;
        }
    for (int i = 0; rc == 0 && i < n; i++) {
        x[i] = d[i].x.mean;
        y[i] = sign * d[i].y.mean;
    }
    if (rc == 0)
        stat_front(x, y, (size_t)n, is_front);
    for (int i = 0; rc == 0 && i < n; i++)
        d[i].is_front = is_front[i];
    mem_free(x);
    mem_free(is_front);
    return rc;
}

static void draw_front(struct sheet *s, struct panel *p, const struct dot *d, int n)
{
    double x[2] = {0}, y[2] = {0};
    int has = 0;
    pen_colour(s->pen, sheet_tint(s, sheet_colour(s, ROLE_TEXT), 0.55), 1);
    pen_width(s->pen, s->venue->line);
    sheet_dash(s, 0);
    for (int i = 0; i < n; i++) {
        if (!d[i].is_front)
            continue;
        x[1] = d[i].x.mean;
        y[1] = d[i].y.mean;
        if (has)
            panel_line(s, p, x, y, 2);
        x[0] = x[1];
        y[0] = y[1];
        has = 1;
    }
}

enum { MARKERS = 6, NAMED_MAX = LEGEND_MAX - 2 /* the front and dense */ };

/* The number of preceding experiments of the same method. */
static int place_in_method(const struct groups *set, const struct group *g)
{
    int n = 0;
    for (const struct group *o = set->g; o < g; o++)
        n += o->method_index == g->method_index;
    return n;
}

/* Colours distinguish methods, markers and then tints experiments. */
static int marker_of(const struct groups *set, const struct group *g)
{
    return (g->method_index + place_in_method(set, g)) % MARKERS;
}

static int colour_of(const struct sheet *s, const struct groups *set, const struct group *g)
{
    int round = place_in_method(set, g) / MARKERS;
    return sheet_tint(s, group_colour(s, g), pow(0.6, round));
}

static void draw_dot(struct sheet *s, struct panel *p, const struct groups *set,
                     const struct dot *d)
{
    double x = axis_at(&p->ax, d->x.mean), y = axis_at(&p->ay, d->y.mean), r = s->venue->line * 2.1;
    int rgb = colour_of(s, set, d->g);
    if (isfinite(d->y.lo))
        panel_whisker(s, p, x, axis_at(&p->ay, d->y.lo), x, axis_at(&p->ay, d->y.hi), rgb);
    if (isfinite(d->x.lo)) {
        double lo = axis_at(&p->ax, d->x.lo), hi = axis_at(&p->ax, d->x.hi);
        if (fabs(hi - lo) > 2 * r)
            panel_whisker(s, p, lo, y, hi, y, rgb);
    }
    sheet_marker(s, marker_of(set, d->g), x, y, r, rgb, d->g->runs == 1);
    panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
}

static void add_entries(struct sheet *s, struct panel *p, const struct groups *set)
{
    for (int i = 0; i < set->n && i < NAMED_MAX; i++) {
        const struct group *g = &set->g[i];
        panel_entry(p, g->label, colour_of(s, set, g), 0, marker_of(set, g), 0);
    }
    if (set->n > NAMED_MAX)
        sheet_note(s, "%d of %d experiments are not in the legend.", set->n - NAMED_MAX, set->n);
    panel_entry(p, "Pareto front", sheet_tint(s, sheet_colour(s, ROLE_TEXT), 0.55), 0, -1, 1);
}

static double best_dense(const struct dot *d, int n, double sign)
{
    double best = (double)NAN;
    for (int i = 0; i < n; i++)
        if (group_is_dense(d[i].g) && !(sign * d[i].y.mean >= sign * best))
            best = d[i].y.mean;
    return best;
}

static void draw_dots(struct sheet *s, struct panel *p, const struct groups *set, struct dot *d,
                      const struct names *names)
{
    double dense = best_dense(d, set->n, names->sign);
    char text[80];
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    for (int i = 0; i < set->n; i++) {
        const double x[3] = {d[i].x.mean, d[i].x.lo, d[i].x.hi},
                     y[3] = {d[i].y.mean, d[i].y.lo, d[i].y.hi};
        for (int k = 0; k < 3; k++) {
            axis_include(&p->ax, x[k]);
            axis_include(&p->ay, y[k]);
        }
    }
    axis_include(&p->ax, 1);
    axis_pad(&p->ax, 0.06);
    axis_pad(&p->ay, 0.1);
    add_entries(s, p, set);
    snprintf(text, sizeof text, "%s of dense", names->y);
    if (isfinite(dense))
        panel_entry(p, text, sheet_colour(s, ROLE_REFERENCE), 1, -1, 1);
    s->height = s->width * 0.68 + panel_legend_more(s, p);
    panel_layout(s, p, 0, 0, s->width, s->height);
    /* Compute decreases to the right, the usual orientation of such fronts. */
    double from = p->ax.from;
    p->ax.from = p->ax.to;
    p->ax.to = from;
    panel_axes(s, p);
    if (isfinite(dense))
        panel_rule(s, p, dense, 0, sheet_colour(s, ROLE_REFERENCE), 1);
    draw_front(s, p, d, set->n);
    for (int i = 0; i < set->n; i++)
        draw_dot(s, p, set, &d[i]);
    panel_legend(s, p);
}

static int draw(struct sheet *s, struct err *e)
{
    struct groups set;
    struct names names;
    int rc = read_names(s, &names, e);
    if (rc == 0)
        rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    struct dot *d = mem_alloc((size_t)set.n, sizeof *d);
    struct panel *p = mem_alloc(1, sizeof *p);
    if (!d || !p)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    else if (set.n < 2)
        rc = err_set(e, DS_EUSAGE, "figure %s: expected runs of at least two experiments",
                     s->ops->name);
    for (int i = 0; rc == 0 && i < set.n; i++) {
        d[i].g = &set.g[i];
        rc = group_eval(s, &set.g[i], names.x, &d[i].x, e);
        if (rc == 0)
            rc = group_eval(s, &set.g[i], names.y, &d[i].y, e);
    }
    if (rc == 0)
        rc = find_front(d, set.n, names.sign, e);
    if (rc == 0) {
        p->x_label = axis_name(names.x);
        p->y_label = axis_name(names.y);
        draw_dots(s, p, &set, d, &names);
        groups_note(s, &set);
        sheet_note(s, "Line: Pareto front; compute decreases to the right.");
    }
    mem_free(d);
    mem_free(p);
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_pareto = {
    .name = "pareto",
    .title = "Loss against compute, with the Pareto front",
    .needs = "eval 'final': loss, block_ratio (or --metric), of at least two experiments",
    .options = FIGURE_METRIC,
    .draw = draw,
};
