/* Share of tokens executed in each layer: with causal decisions, with top-k decisions where these
 * were evaluated, and its range during training. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6 };

struct shares {
    struct interval *causal, *topk;
    double *lo, *hi; /* of gate_ratio over training; NULL when not logged */
    int layers;
};

static void shares_release(struct shares *v)
{
    mem_free(v->causal);
    mem_free(v->topk);
    mem_free(v->lo); /* the same block as hi */
}

static int take_range(struct sheet *s, const struct group *g, struct shares *v, struct err *e)
{
    v->lo = mem_alloc(2 * (size_t)v->layers, sizeof *v->lo);
    if (!v->lo)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    v->hi = v->lo + v->layers;
    for (int l = 0; l < v->layers; l++) {
        v->lo[l] = (double)INFINITY;
        v->hi[l] = -(double)INFINITY;
    }
    for (int i = 0; i < g->runs; i++) {
        const struct layer_series *r = runview_layer(s->run[g->run[i]].view, "gate_ratio");
        if (r->layers != v->layers)
            return sheet_fail(s, g->run[i], e,
                              "layer metric 'gate_ratio' has %d layers, 'capacity' %d", r->layers,
                              v->layers);
        data_hash(s, "gate_ratio", r->value, r->n * (size_t)r->layers * sizeof *r->value);
        int64_t least = INT64_MAX; /* a step that occurs again later was superseded by a resume */
        for (size_t k = r->n; k-- > 0;) {
            if (r->step[k] >= least)
                continue;
            least = r->step[k];
            for (int l = 0; l < r->layers; l++) {
                double x = (double)r->value[k * (size_t)r->layers + (size_t)l];
                if (!isfinite(x))
                    continue;
                v->lo[l] = fmin(v->lo[l], x);
                v->hi[l] = fmax(v->hi[l], x);
            }
        }
    }
    return 0;
}

static int has_topk(const struct sheet *s, const struct group *g)
{
    int all = 1;
    for (int i = 0; i < g->runs; i++)
        all &= data_has_vector(s, g->run[i], "capacity_topk");
    return all;
}

static int take(struct sheet *s, const struct group *g, struct shares *v, struct err *e)
{
    int rc = group_eval_vector(s, g, "capacity", &v->causal, &v->layers, e);
    if (rc == 0 && has_topk(s, g))
        rc = group_eval_vector(s, g, "capacity_topk", &v->topk, &v->layers, e);
    if (rc == 0 && curve_has_layer(s, "gate_ratio"))
        rc = take_range(s, g, v, e);
    return rc;
}

static void draw_points(struct sheet *s, struct panel *p, const struct interval *v, int layers,
                        double shift, int i)
{
    double r = s->venue->line * 1.9, step = axis_at(&p->ax, 1) - axis_at(&p->ax, 0);
    for (int l = 0; l < layers; l++) {
        if (!isfinite(v[l].mean))
            continue;
        double x = axis_at(&p->ax, l) + shift * step, y = axis_at(&p->ay, v[l].mean);
        if (isfinite(v[l].lo) && axis_at(&p->ay, v[l].lo) - axis_at(&p->ay, v[l].hi) > 2 * r)
            panel_whisker(s, p, x, axis_at(&p->ay, v[l].lo), x, axis_at(&p->ay, v[l].hi),
                          sheet_series(s, i));
        sheet_marker(s, i, x, y, r, sheet_series(s, i), 0);
        panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
    }
}

static void draw_shares(struct sheet *s, struct panel *p, const struct shares *v)
{
    double step = axis_at(&p->ax, 1) - axis_at(&p->ax, 0), w = step * 0.6;
    for (int l = 0; v->lo && l < v->layers; l++) {
        if (v->lo[l] > v->hi[l])
            continue;
        double y0 = axis_at(&p->ay, v->hi[l]), y1 = axis_at(&p->ay, v->lo[l]);
        double h = fmax(y1 - y0, s->venue->axis);
        pen_box(s->pen, axis_at(&p->ax, l) - w / 2, y0, w, h,
                sheet_tint(s, sheet_colour(s, ROLE_REFERENCE), 0.22), 1);
        panel_mark_box(p, axis_at(&p->ax, l) - w / 2, y0, w, h);
    }
    if (v->topk)
        draw_points(s, p, v->topk, v->layers, 0.12, 1);
    draw_points(s, p, v->causal, v->layers, v->topk ? -0.12 : 0, 0);
}

static int draw_panel(struct sheet *s, const struct groups *set, int i, struct err *e)
{
    struct shares v = {0};
    struct panel *p = mem_alloc(1, sizeof *p);
    double box[4];
    int rc = p ? take(s, &set->g[i], &v, e)
               : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0) {
        p->ax = (struct axis){.lo = -0.6, .hi = v.layers - 0.4};
        p->ay = (struct axis){.lo = 0, .hi = 1.05};
        p->x_label = sheet_layer_label(s, set->g[i].run[0], v.layers);
        p->y_label = "Executed share of tokens";
        p->ticks_whole_x = 1;
        if (set->n > 1)
            str_copy(p->title, sizeof p->title, set->g[i].label);
        if (v.topk || v.lo)
            panel_entry(p, "causal", sheet_series(s, 0), 0, 0, 0);
        if (v.topk)
            panel_entry(p, "top-k, not causal", sheet_series(s, 1), 0, 1, 0);
        if (v.lo)
            panel_entry(p, "range in training",
                        sheet_tint(s, sheet_colour(s, ROLE_REFERENCE), 0.22), 0, -1, 0);
        s->height = panel_grid(s, set->n, 2, 0.66, i, box);
        panel_layout(s, p, box[0], box[1], box[2], box[3]);
        panel_axes(s, p);
        draw_shares(s, p, &v);
        panel_legend(s, p);
    }
    shares_release(&v);
    mem_free(p);
    return rc;
}

static void note(struct sheet *s, const struct groups *set)
{
    int seeds = 1;
    for (int i = 0; i < set->n; i++)
        seeds = set->g[i].runs > seeds ? set->g[i].runs : seeds;
    if (seeds > 1)
        sheet_note(s,
                   "Points: mean over up to n = %d seeds; bars, where wider than the marks: "
                   "95 %% confidence interval (Student's t).",
                   seeds);
    else
        sheet_note(s, "One seed: no confidence interval.");
    if (curve_has_layer(s, "gate_ratio"))
        sheet_note(s, "Grey: range of the share over the logged training steps.");
}

static int draw(struct sheet *s, struct err *e)
{
    return groups_draw(s, PANELS_MAX, draw_panel, note, e);
}

const struct figure_ops figure_capacity_layer = {
    .name = "capacity_layer",
    .title = "Share of tokens executed in each layer",
    .needs = "eval 'final': capacity; optional: capacity_topk, layer metric gate_ratio",
    .draw = draw,
};
