/* One model at several capacities: loss against the speed-up in FLOPs and in measured time,
 * compared with random routing at the same capacity. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6, POINTS_MAX = 64 };
enum kind { BY_FLOPS, BY_TIME, BY_RANDOM, SERIES };

/* The newest evaluation of a capacity; NaN = not recorded. */
struct ask {
    double capacity, loss, flops, time, random, random_flops, dense;
};
struct asks {
    struct ask a[POINTS_MAX];
    int n;
};
/* One point of a panel: means over seeds. */
struct point {
    double capacity, x[SERIES];
    struct interval y, random;
};
struct points {
    struct point p[POINTS_MAX];
    int n, seeds;
    double dense; /* loss of the same model with all cells executed, NaN = not recorded */
};

static double number(const struct run_eval *r, const char *name)
{
    const struct vector *value = run_eval_value(r, name);
    return value && value->n == 1 ? (double)value->v[0] : (double)NAN;
}

static struct ask *ask_of(struct asks *all, double capacity)
{
    for (int i = 0; i < all->n; i++)
        if (fabs(all->a[i].capacity - capacity) < 1e-6)
            return &all->a[i];
    if (all->n == POINTS_MAX)
        return NULL;
    int at = all->n++;
    for (; at > 0 && all->a[at - 1].capacity > capacity; at--)
        all->a[at] = all->a[at - 1];
    all->a[at].capacity = capacity;
    return &all->a[at];
}

static int take_one(struct sheet *s, int run, const struct run_eval *r, struct asks *all,
                    struct err *e)
{
    double capacity = number(r, "capacity_target"), loss = number(r, "loss"),
           flops = number(r, "flops_ratio");
    if (!isfinite(capacity))
        capacity = number(r, "capacity_asked"); /* of earlier versions */
    const char *lack = !isfinite(capacity) ? "capacity_target"
                       : !isfinite(loss)   ? "loss"
                       : !(flops > 0)      ? "flops_ratio"
                                           : NULL;
    if (lack)
        return sheet_fail(s, run, e, "record 'eval' of task 'capacity' has no scalar '%s'", lack);
    struct ask *a = ask_of(all, capacity);
    if (!a)
        return sheet_fail(s, run, e, "too many capacities: expected at most %d", POINTS_MAX);
    a->loss = loss;
    a->flops = flops;
    a->time = number(r, "time_ratio");
    a->random = number(r, "control_random_loss");
    a->random_flops = number(r, "control_random_flops_ratio");
    if (!(a->random_flops > 0)) /* the control was run at equal capacity */
        a->random_flops = flops;
    a->dense = number(r, "dense_loss");
    return 0;
}

static int take_run(struct sheet *s, int run, struct asks *all, struct err *e)
{
    const struct runview *v = s->run[run].view;
    int rc = 0;
    all->n = 0;
    for (size_t i = 0; rc == 0 && i < v->n_evals; i++)
        if (v->eval[i].task && strcmp(v->eval[i].task, "capacity") == 0)
            rc = take_one(s, run, &v->eval[i], all, e);
    if (rc == 0 && all->n == 0)
        rc = sheet_fail(s, run, e, "no record 'eval' of task 'capacity'");
    if (rc == 0)
        data_hash(s, "capacity", all->a, (size_t)all->n * sizeof all->a[0]);
    return rc;
}

static double shown(const struct sheet *s, double loss)
{
    return s->opt.metric && strcmp(s->opt.metric, "perplexity") == 0 ? exp(loss) : loss;
}

/* Means over seeds at the capacities that all of them have. */
static int join(const struct sheet *s, const struct asks *run, int runs, struct points *out)
{
    double *y = mem_alloc(6 * (size_t)runs, sizeof *y);
    if (!y)
        return DS_EMEM;
    double *random_y = y + runs, *x = random_y + runs, *random_x = x + runs, *t = random_x + runs,
           *dense = t + runs;
    for (int r = 0; r < runs; r++)
        dense[r] = shown(s, run[r].a[0].dense);
    out->dense = stat_mean(dense, (size_t)runs);
    out->n = 0;
    out->seeds = runs;
    for (int i = 0; i < run[0].n; i++) {
        int n = 0;
        for (int r = 0; r < runs; r++)
            for (int k = 0; k < run[r].n; k++)
                if (fabs(run[r].a[k].capacity - run[0].a[i].capacity) < 1e-6) {
                    y[n] = shown(s, run[r].a[k].loss);
                    random_y[n] = shown(s, run[r].a[k].random);
                    x[n] = 1 / run[r].a[k].flops;
                    random_x[n] = 1 / run[r].a[k].random_flops;
                    t[n++] = run[r].a[k].time > 0 ? 1 / run[r].a[k].time : (double)NAN;
                }
        if (n < runs)
            continue;
        struct point *p = &out->p[out->n++];
        *p = (struct point){.capacity = run[0].a[i].capacity,
                            .y = stat_interval(y, (size_t)n),
                            .random = stat_interval(random_y, (size_t)n)};
        p->x[BY_FLOPS] = stat_mean(x, (size_t)n);
        p->x[BY_RANDOM] = stat_mean(random_x, (size_t)n);
        p->x[BY_TIME] = stat_mean(t, (size_t)n);
    }
    mem_free(y);
    return 0;
}

static int take(struct sheet *s, const struct group *g, struct points *out, struct err *e)
{
    struct asks *run = mem_alloc((size_t)g->runs, sizeof *run);
    int rc = run ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < g->runs; i++)
        rc = take_run(s, g->run[i], &run[i], e);
    if (rc == 0 && join(s, run, g->runs, out) < 0)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0 && out->n == 0)
        rc = sheet_fail(s, g->run[0], e, "no capacity in common with its other seeds");
    mem_free(run);
    return rc;
}

static const struct interval *height_of(const struct point *p, enum kind k)
{
    return k == BY_RANDOM ? &p->random : &p->y;
}

static int has(const struct points *v, enum kind k)
{
    for (int i = 0; i < v->n; i++)
        if (isfinite(v->p[i].x[k]) && isfinite(height_of(&v->p[i], k)->mean))
            return 1;
    return 0;
}

static int colour_of(const struct sheet *s, enum kind k)
{
    return k == BY_RANDOM ? sheet_colour(s, ROLE_REFERENCE) : sheet_series(s, k == BY_TIME);
}

static void draw_series(struct sheet *s, struct panel *p, const struct points *v, enum kind k)
{
    double x[POINTS_MAX], y[POINTS_MAX], r = s->venue->line * 1.8;
    int rgb = colour_of(s, k);
    for (int i = 0; i < v->n; i++) {
        x[i] = v->p[i].x[k];
        y[i] = height_of(&v->p[i], k)->mean;
    }
    pen_colour(s->pen, rgb, 1);
    pen_width(s->pen, s->venue->line);
    sheet_dash(s, k == BY_RANDOM ? 1 : 0);
    panel_line(s, p, x, y, (size_t)v->n);
    for (int i = 0; i < v->n; i++) {
        const struct interval *h = height_of(&v->p[i], k);
        if (!isfinite(x[i]) || !isfinite(y[i]))
            continue;
        double ux = axis_at(&p->ax, x[i]), uy = axis_at(&p->ay, y[i]);
        if (isfinite(h->lo) && axis_at(&p->ay, h->lo) - axis_at(&p->ay, h->hi) > 2 * r)
            panel_whisker(s, p, ux, axis_at(&p->ay, h->lo), ux, axis_at(&p->ay, h->hi), rgb);
        sheet_marker(s, (int)k, ux, uy, r, rgb, v->seeds == 1 && k != BY_RANDOM);
        panel_mark_box(p, ux - r, uy - r, 2 * r, 2 * r);
    }
}

/* Labels the points by FLOPs with their capacity, unless it would overlap the previous label. */
static void draw_capacities(struct sheet *s, struct panel *p, const struct points *v)
{
    double small = s->venue->small, last_x = 1e9, last_y = 1e9;
    char text[24];
    for (int i = 0; i < v->n; i++) {
        number_format(text, sizeof text, v->p[i].capacity, -1);
        double wide = glyph_width(text, small),
               x = fmin(axis_at(&p->ax, v->p[i].x[BY_FLOPS]) + small * 0.5, s->width - wide),
               y = axis_at(&p->ay, v->p[i].y.mean) + small * 1.1;
        if (x + wide + small * 0.6 > last_x && fabs(y - last_y) < small * 1.3)
            continue;
        sheet_text(s, x, y, TEXT_LEFT, TEXT_MIDDLE, 1, sheet_colour(s, ROLE_DIM), text);
        panel_mark_box(p, x, y - small * 0.5, wide, small);
        last_x = x;
        last_y = y;
    }
}

static void include(struct panel *p, const struct points *v)
{
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    axis_include(&p->ax, 1);
    axis_include(&p->ay, v->dense);
    for (int i = 0; i < v->n; i++)
        for (int k = 0; k < SERIES; k++) {
            const struct interval *h = height_of(&v->p[i], (enum kind)k);
            axis_include(&p->ax, v->p[i].x[k]);
            axis_include(&p->ay, h->mean);
            axis_include(&p->ay, h->lo);
            axis_include(&p->ay, h->hi);
        }
    axis_pad(&p->ax, 0.08);
    axis_pad(&p->ay, 0.12);
}

static int draw_panel(struct sheet *s, const struct groups *set, int i, struct err *e)
{
    static const char *const label[SERIES] = {"by FLOPs", "by measured time",
                                              "random routing, by FLOPs"};
    struct panel *p = mem_alloc(1, sizeof *p);
    struct points *v = mem_alloc(1, sizeof *v);
    double box[4];
    int rc = p && v ? take(s, &set->g[i], v, e)
                    : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0) {
        include(p, v);
        p->x_label = "Speed-up over dense";
        p->y_label = s->opt.metric && strcmp(s->opt.metric, "perplexity") == 0
                         ? "Perplexity"
                         : "Validation loss (nats)";
        if (set->n > 1)
            str_copy(p->title, sizeof p->title, set->g[i].label);
        for (int k = 0; k < SERIES; k++)
            if (has(v, (enum kind)k))
                panel_entry(p, label[k], colour_of(s, (enum kind)k), k == BY_RANDOM, k, 1);
        if (isfinite(v->dense))
            panel_entry(p, "all cells", sheet_colour(s, ROLE_TEXT), 2, -1, 1);
        s->height = panel_grid(s, set->n, 2, 0.68, i, box);
        panel_layout(s, p, box[0], box[1], box[2], box[3]);
        panel_axes(s, p);
        panel_rule(s, p, 1, 1, sheet_colour(s, ROLE_BORDER), 2);
        if (isfinite(v->dense))
            panel_rule(s, p, v->dense, 0, sheet_colour(s, ROLE_TEXT), 2);
        for (int k = SERIES; k-- > 0;)
            if (has(v, (enum kind)k))
                draw_series(s, p, v, (enum kind)k);
        draw_capacities(s, p, v);
        panel_legend(s, p);
    }
    mem_free(v);
    mem_free(p);
    return rc;
}

static int draw(struct sheet *s, struct err *e)
{
    if (s->opt.metric && strcmp(s->opt.metric, "perplexity") != 0 &&
        strcmp(s->opt.metric, "loss") != 0)
        return err_set(e, DS_EUSAGE, "figure %s: metric = %s: expected loss or perplexity",
                       s->ops->name, s->opt.metric);
    int rc = groups_draw(s, PANELS_MAX, draw_panel, groups_note, e);
    if (rc == 0)
        sheet_note(s, "Small numbers: requested capacity. Speed-up: dense over sparse, of the "
                      "whole model.");
    return rc;
}

const struct figure_ops figure_tradeoff = {
    .name = "tradeoff",
    .title = "Loss against speed-up at each requested capacity",
    .needs = "evals 'capacity': capacity_target, loss, flops_ratio; optional: time_ratio, "
             "control_random_loss, dense_loss",
    .options = FIGURE_METRIC,
    .draw = draw,
};
