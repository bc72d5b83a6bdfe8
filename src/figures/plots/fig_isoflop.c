/* The best model size for a fixed budget of training FLOPs: final loss over non-embedding
 * parameters, with a parabola in their logarithm per budget and its minimum. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "figures/plot.h"

#define MILLION 6 /* log10 */
enum { CURVES_MAX = 12, ROUNDS = 1000, SIZES_TO_FIT = 3, LINE = 96 };

/* One size at one budget. */
struct point {
    const struct group *g;
    double budget, x; /* x: log10 of millions of parameters */
    double *loss;     /* (g->runs) */
    struct interval y;
};
/* The points of one experiment at one budget, contiguous and sorted by size. */
struct iso {
    struct point *p;
    int n, budget, sizes;
    struct parabola fit;
    int has_fit, is_enclosed, has_interval;
    double best, lo, hi; /* like x */
};
struct isos {
    struct point *point;
    double *loss;
    struct iso curve[CURVES_MAX];
    double budget[CURVES_MAX];
    int n, budgets;
};

static int take_point(struct sheet *s, struct point *p, struct err *e)
{
    for (int i = 0; i < p->g->runs; i++) {
        int run = p->g->run[i];
        const struct runview *v = s->run[run].view;
        const char *text = runview_config(v, "train.flops_budget");
        double budget = text ? strtod(text, NULL) : 0, params = (double)v->params_non_embedding;
        if (!(budget > 0) || !isfinite(budget))
            return sheet_fail(s, run, e,
                              "record 'head': config has no train.flops_budget above 0; "
                              "expected a run of `depthscope isoflop`");
        if (!(params > 0))
            return sheet_fail(s, run, e, "record 'head' has no 'params_non_embedding'");
        p->budget = budget;
        p->x = log10(params) - MILLION;
        data_hash(s, "train.flops_budget", &budget, sizeof budget);
        data_hash(s, "params_non_embedding", &params, sizeof params);
        int rc = data_eval(s, run, "loss", &p->loss[i], e);
        if (rc < 0)
            return rc;
    }
    p->y = stat_interval(p->loss, (size_t)p->g->runs);
    return 0;
}

static int before(const struct point *a, const struct point *b)
{
    if (a->g->family != b->g->family)
        return a->g->family < b->g->family;
    return a->budget != b->budget ? a->budget < b->budget : a->x < b->x;
}

static int budget_index(struct isos *t, double budget)
{
    for (int i = 0; i < t->budgets; i++)
        if (t->budget[i] == budget)
            return i;
    if (t->budgets == CURVES_MAX)
        return -1;
    t->budget[t->budgets] = budget;
    return t->budgets++;
}

/* Splits the sorted points into curves. */
static int cut(struct isos *t, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i; k > 0 && before(&t->point[k], &t->point[k - 1]); k--) {
            struct point swap = t->point[k];
            t->point[k] = t->point[k - 1];
            t->point[k - 1] = swap;
        }
    for (int i = 0, end; i < n; i = end) {
        struct point *p = &t->point[i];
        for (end = i; end < n && t->point[end].budget == p->budget &&
                      t->point[end].g->family == p->g->family;
             end++)
            ;
        int budget = budget_index(t, p->budget);
        if (t->n == CURVES_MAX || budget < 0)
            return -1;
        t->curve[t->n++] = (struct iso){.p = p, .n = end - i, .budget = budget};
    }
    return 0;
}

static int take(struct sheet *s, const struct groups *set, struct isos *t, struct err *e)
{
    int rc = 0, at = 0;
    t->point = mem_alloc((size_t)set->n, sizeof *t->point);
    t->loss = mem_alloc((size_t)s->runs, sizeof *t->loss);
    if (!t->point || !t->loss)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < set->n; i++) {
        t->point[i].g = &set->g[i];
        t->point[i].loss = t->loss + at;
        at += set->g[i].runs;
        rc = take_point(s, &t->point[i], e);
    }
    if (rc == 0 && cut(t, set->n) < 0)
        rc = err_set(e, DS_EUSAGE, "figure %s: more than %d curves (experiments x budgets)",
                     s->ops->name, CURVES_MAX);
    return rc;
}

/* ---- the parabola ---- */

/* Bootstrap over seeds of the optimum: the central 95 %; none when a size has a single seed, or
 * when more than 5 % of the samples have no minimum. */
static void bootstrap(struct iso *c, const double *x, double *y, double *least)
{
    struct rng r;
    struct parabola f;
    for (int i = 0; i < c->n; i++)
        if (c->p[i].g->runs < 2)
            return;
    rng_init(&r, 1, RNG_BOOT, 3, (uint32_t)c->n);
    for (int b = 0; b < ROUNDS; b++) {
        for (int i = 0; i < c->n; i++) {
            const struct point *p = &c->p[i];
            y[i] = 0;
            for (int k = 0; k < p->g->runs; k++)
                y[i] += p->loss[rng_below(&r, (uint32_t)p->g->runs)] / p->g->runs;
        }
        least[b] =
            stat_parabola(x, y, (size_t)c->n, &f) ? stat_parabola_least(&f) : (double)INFINITY;
    }
    stat_sort(least, ROUNDS);
    c->lo = least[ROUNDS * 25 / 1000];
    c->hi = least[ROUNDS - 1 - ROUNDS * 25 / 1000];
    c->has_interval = isfinite(c->lo) && isfinite(c->hi);
}

static int fit_curve(struct sheet *s, struct iso *c, struct err *e)
{
    double *x = mem_alloc(2 * (size_t)c->n + ROUNDS, sizeof *x);
    if (!x)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    double *y = x + c->n;
    for (int i = 0; i < c->n; i++) {
        c->sizes += i == 0 || c->p[i].x > c->p[i - 1].x;
        x[i] = c->p[i].x;
        y[i] = c->p[i].y.mean;
    }
    c->has_fit = c->sizes >= SIZES_TO_FIT && stat_parabola(x, y, (size_t)c->n, &c->fit);
    if (c->has_fit) {
        c->best = stat_parabola_least(&c->fit);
        c->is_enclosed = c->best > c->p[0].x && c->best < c->p[c->n - 1].x;
    }
    if (c->is_enclosed)
        bootstrap(c, x, y, y + c->n);
    mem_free(x);
    return 0;
}

/* ---- drawing ---- */

static void include(struct panel *p, const struct isos *t)
{
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    p->ax.is_log = 1;
    for (int k = 0; k < t->n; k++) {
        const struct iso *c = &t->curve[k];
        for (int i = 0; i < c->n; i++) {
            axis_include(&p->ax, pow(10, c->p[i].x));
            axis_include(&p->ay, c->p[i].y.mean);
            axis_include(&p->ay, c->p[i].y.lo);
            axis_include(&p->ay, c->p[i].y.hi);
        }
        if (c->is_enclosed)
            axis_include(&p->ay, stat_parabola_at(&c->fit, c->best));
    }
    axis_pad(&p->ax, 0.08);
    axis_pad(&p->ay, 0.1);
}

/* Dashes and markers distinguish experiments, colours budgets. */
static void draw_fit(struct sheet *s, struct panel *p, const struct iso *c)
{
    double x[LINE], y[LINE], from = c->p[0].x, to = c->p[c->n - 1].x;
    int n = c->has_fit ? LINE : c->n;
    for (int i = 0; i < n && n <= LINE; i++) {
        double at = c->has_fit ? from + (to - from) * i / (LINE - 1) : c->p[i].x;
        x[i] = pow(10, at);
        y[i] = c->has_fit ? stat_parabola_at(&c->fit, at) : c->p[i].y.mean;
    }
    pen_colour(s->pen, sheet_series(s, c->budget), c->has_fit ? 1 : 0.4);
    pen_width(s->pen, s->venue->line);
    sheet_dash(s, c->p[0].g->family);
    if (n <= LINE)
        panel_line(s, p, x, y, (size_t)n);
    pen_dash(s->pen, NULL, 0);
}

static void draw_points(struct sheet *s, struct panel *p, const struct iso *c)
{
    double r = s->venue->line * 1.9;
    int rgb = sheet_series(s, c->budget);
    for (int i = 0; i < c->n; i++) {
        const struct point *q = &c->p[i];
        double x = axis_at(&p->ax, pow(10, q->x)), y = axis_at(&p->ay, q->y.mean);
        if (isfinite(q->y.lo) && axis_at(&p->ay, q->y.lo) - axis_at(&p->ay, q->y.hi) > 2 * r)
            panel_whisker(s, p, x, axis_at(&p->ay, q->y.lo), x, axis_at(&p->ay, q->y.hi), rgb);
        sheet_marker(s, q->g->family, x, y, r, rgb, q->g->runs == 1);
        panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
    }
}

/* A cross at the minimum, with its interval along the size axis. */
static void draw_best(struct sheet *s, struct panel *p, const struct iso *c)
{
    double x = axis_at(&p->ax, pow(10, c->best)),
           y = axis_at(&p->ay, stat_parabola_at(&c->fit, c->best)), r = s->venue->line * 2.4;
    int rgb = sheet_colour(s, ROLE_TEXT);
    if (c->has_interval)
        panel_whisker(s, p, axis_at(&p->ax, pow(10, c->lo)), y, axis_at(&p->ax, pow(10, c->hi)), y,
                      rgb);
    pen_colour(s->pen, rgb, 1);
    pen_width(s->pen, s->venue->line);
    pen_segment(s->pen, x - r, y, x + r, y);
    pen_segment(s->pen, x, y - r, x, y + r);
    panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
}

static void add_entries(struct sheet *s, struct panel *p, const struct isos *t, int families)
{
    char text[64], number[32];
    for (int i = 0; i < t->budgets; i++) {
        number_short(number, sizeof number, t->budget[i]);
        snprintf(text, sizeof text, "%s FLOPs", number);
        panel_entry(p, text, sheet_series(s, i), 0, -1, 0);
    }
    for (int i = 0; families > 1 && i < t->n; i++) {
        const struct group *g = t->curve[i].p[0].g;
        if (i == 0 || g->family != t->curve[i - 1].p[0].g->family)
            panel_entry(p, g->family_label, sheet_colour(s, ROLE_TEXT), g->family, g->family, 1);
    }
}

static void note_curve(struct sheet *s, const struct iso *c, double budget)
{
    char number[32], best[32], lo[32], hi[32];
    const char *name = c->p[0].g->family_label;
    number_short(number, sizeof number, budget);
    number_short(best, sizeof best, pow(10, c->best));
    number_short(lo, sizeof lo, pow(10, c->lo));
    number_short(hi, sizeof hi, pow(10, c->hi));
    if (!c->has_fit)
        sheet_note(s, "%s, %s FLOPs: %d size%s, no fit.", name, number, c->sizes,
                   c->sizes == 1 ? "" : "s");
    else if (!(c->fit.a > 0))
        sheet_note(s, "%s, %s FLOPs: the parabola has no minimum.", name, number);
    else if (!c->is_enclosed)
        sheet_note(s, "%s, %s FLOPs: the optimum is outside the range of sizes.", name, number);
    else if (!c->has_interval)
        sheet_note(s,
                   "%s, %s FLOPs: best at %s M parameters (no interval: needs two seeds per "
                   "size, and a minimum in 95 %% of the bootstrap samples).",
                   name, number, best);
    else
        sheet_note(s, "%s, %s FLOPs: best at %s M parameters [%s, %s].", name, number, best, lo,
                   hi);
}

static int draw(struct sheet *s, struct err *e)
{
    struct groups set = {0};
    struct isos *t = mem_alloc(1, sizeof *t);
    struct panel *p = mem_alloc(1, sizeof *p);
    int rc = groups_make(&set, s, e);
    if (rc == 0 && (!t || !p))
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0)
        rc = take(s, &set, t, e);
    for (int i = 0; rc == 0 && i < t->n; i++)
        rc = fit_curve(s, &t->curve[i], e);
    if (rc == 0) {
        include(p, t);
        p->x_label = "Non-embedding parameters (millions)";
        p->y_label = "Validation loss (nats)";
        add_entries(s, p, t, set.families);
        s->height = s->width * 0.7 + panel_legend_more(s, p);
        panel_layout(s, p, 0, 0, s->width, s->height);
        panel_axes(s, p);
        for (int i = 0; i < t->n; i++)
            draw_fit(s, p, &t->curve[i]);
        for (int i = 0; i < t->n; i++)
            draw_points(s, p, &t->curve[i]);
        for (int i = 0; i < t->n; i++)
            if (t->curve[i].is_enclosed)
                draw_best(s, p, &t->curve[i]);
        panel_legend(s, p);
        groups_note(s, &set);
        sheet_note(s, "Lines: parabolas in log parameters; crosses: their minima.");
        for (int i = 0; i < t->n; i++)
            note_curve(s, &t->curve[i], t->budget[t->curve[i].budget]);
    }
    if (t) {
        mem_free(t->point);
        mem_free(t->loss);
    }
    mem_free(t);
    mem_free(p);
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_isoflop = {
    .name = "isoflop",
    .title = "Loss against model size at a fixed budget of training FLOPs",
    .needs = "eval 'final': loss; head: params_non_embedding, config train.flops_budget",
    .draw = draw,
};
