/* Mean depth against required depth: one line per exit rule and capacity, with the identity. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/evals.h"

enum { LINES_MAX = LEGEND_MAX - 1 /* the identity */, NEEDED_MAX = 64, MARKERS = 6 };

struct line {
    int group, n;
    struct interval at[NEEDED_MAX]; /* required depth 1, 2, ... */
};
struct lines {
    struct line v[LINES_MAX];
    int n, fixed; /* fixed: evaluations at one depth */
};

static int depth_at(struct sheet *s, const struct eval_list *l, const struct eval_item *x,
                    const void *ctx, double *out, struct err *e)
{
    const struct json_node *v = eval_vector(x, "depth_by_k");
    size_t n = json_len(eval_vector(evals_first(l, x->group), "depth_by_k"));
    if (!v || json_len(v) > NEEDED_MAX)
        return sheet_fail(s, x->run, e,
                          "%s: no vector 'depth_by_k' (data.path=hops) of at most %d values",
                          x->line_name, NEEDED_MAX);
    if (json_len(v) != n)
        return sheet_fail(s, x->run, e, "%s: 'depth_by_k' has %zu values, expected %zu",
                          x->line_name, json_len(v), n);
    *out = json_num(json_at(v, *(const size_t *)ctx), (double)NAN);
    return 0;
}

static int take_group(struct sheet *s, const struct eval_list *l, int g, struct lines *all,
                      struct err *e)
{
    const struct eval_item *x = evals_first(l, g);
    size_t n = json_len(eval_vector(x, "depth_by_k")), k = 0;
    int rc = 0;
    if (all->n == LINES_MAX)
        return err_set(e, DS_EUSAGE,
                       "figure %s: too many exit rules and capacities: expected at most %d",
                       s->ops->name, LINES_MAX);
    struct line *to = &all->v[all->n++];
    *to = (struct line){.group = g};
    do {
        rc = evals_mean(s, l, g, depth_at, &k, &to->at[k], e);
    } while (rc == 0 && ++k < n);
    to->n = (int)n;
    return rc;
}

static int gather(struct sheet *s, const struct eval_list *l, struct lines *all, struct err *e)
{
    int rc = 0;
    for (int g = 0; rc == 0 && g < l->groups; g++) {
        if (evals_first(l, g)->depth > 0)
            all->fixed += evals_seeds(l, g);
        else
            rc = take_group(s, l, g, all, e);
    }
    if (rc == 0 && all->n == 0)
        return sheet_fail(s, 0, e, "no evaluation of adaptive depth (all run at a fixed depth)");
    return rc;
}

/* A line with several capacities names them. */
static void name_of(const struct eval_list *l, const struct lines *all, int i, char *out,
                    size_t size)
{
    const struct eval_item *x = evals_first(l, all->v[i].group);
    double capacity = eval_number(x, "capacity_target");
    int several = 0;
    for (int k = 0; k < all->n; k++)
        several += evals_first(l, all->v[k].group)->line == x->line;
    if (several > 1 && isfinite(capacity))
        snprintf(out, size, "%.52s, capacity %.2f", x->line_name, capacity);
    else
        snprintf(out, size, "%s", x->line_name);
}

/* One colour per rule as in exit_rules, paler for each further capacity. */
static int colour_of(const struct sheet *s, const struct eval_list *l, const struct lines *all,
                     int i)
{
    int line = evals_first(l, all->v[i].group)->line, earlier = 0;
    for (int k = 0; k < i; k++)
        earlier += evals_first(l, all->v[k].group)->line == line;
    return sheet_tint(s, evals_colour(s, l, line), pow(0.7, earlier));
}

static void draw_line(struct sheet *s, struct panel *p, const struct eval_list *l,
                      const struct lines *all, int i)
{
    const struct line *v = &all->v[i];
    double x[NEEDED_MAX], y[NEEDED_MAX], r = s->venue->line * 1.8;
    const struct eval_item *item = evals_first(l, v->group);
    int rgb = colour_of(s, l, all, i);
    for (int k = 0; k < v->n; k++) {
        x[k] = k + 1;
        y[k] = v->at[k].mean;
    }
    pen_colour(s->pen, rgb, 1);
    pen_width(s->pen, s->venue->line);
    sheet_dash(s, item->kind == EVAL_ORACLE);
    panel_line(s, p, x, y, (size_t)v->n);
    pen_dash(s->pen, NULL, 0);
    for (int k = 0; k < v->n; k++) {
        if (!isfinite(y[k]))
            continue;
        double ux = axis_at(&p->ax, x[k]), uy = axis_at(&p->ay, y[k]);
        double lo = axis_at(&p->ay, v->at[k].lo), hi = axis_at(&p->ay, v->at[k].hi);
        if (isfinite(v->at[k].lo) && lo - hi > 2 * r)
            panel_whisker(s, p, ux, lo, ux, hi, rgb);
        sheet_marker(s, i % MARKERS, ux, uy, r, rgb, v->at[k].n == 1);
        panel_mark_box(p, ux - r, uy - r, 2 * r, 2 * r);
    }
}

static int draw_lines(struct sheet *s, const struct eval_list *l, const struct lines *all,
                      struct err *e)
{
    struct panel *p = mem_alloc(1, sizeof *p);
    char depth[48];
    int most = 1;
    if (!p)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    snprintf(depth, sizeof depth, "Mean depth (%s)", evals_unit(l));
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    for (int i = 0; i < all->n; i++) {
        char name[96];
        const struct line *v = &all->v[i];
        most = v->n > most ? v->n : most;
        for (int k = 0; k < v->n; k++) {
            axis_include(&p->ay, v->at[k].mean);
            axis_include(&p->ay, v->at[k].lo);
            axis_include(&p->ay, v->at[k].hi);
        }
        name_of(l, all, i, name, sizeof name);
        panel_entry(p, name, colour_of(s, l, all, i), evals_first(l, v->group)->kind == EVAL_ORACLE,
                    i % MARKERS, 1);
    }
    const double ends[2] = {1, most};
    panel_entry(p, "depth = k", sheet_colour(s, ROLE_TEXT), 2, -1, 1);
    for (int k = 0; k < 2; k++) {
        axis_include(&p->ax, ends[k]);
        axis_include(&p->ay, ends[k]);
    }
    axis_pad(&p->ax, 0.06);
    axis_pad(&p->ay, 0.06);
    p->ticks_whole_x = 1;
    p->x_label = "Required depth k";
    p->y_label = depth;
    s->height = s->width * 0.72 + panel_legend_more(s, p);
    panel_layout(s, p, 0, 0, s->width, s->height);
    panel_axes(s, p);
    pen_colour(s->pen, sheet_colour(s, ROLE_TEXT), 1);
    pen_width(s->pen, s->venue->line * 0.8);
    sheet_dash(s, 2);
    panel_line(s, p, ends, ends, 2);
    pen_dash(s->pen, NULL, 0);
    for (int i = 0; i < all->n; i++)
        draw_line(s, p, l, all, i);
    panel_legend(s, p);
    mem_free(p);
    return 0;
}

static void note(struct sheet *s, const struct eval_list *l, const struct lines *all)
{
    int lo = 0, hi = 0;
    for (int i = 0; i < all->n; i++) {
        int n = evals_seeds(l, all->v[i].group);
        lo = lo == 0 || n < lo ? n : lo;
        hi = n > hi ? n : hi;
    }
    seeds_note(s, lo, hi);
    sheet_note(s, "Depth: %s executed by the tokens that predict the answers.", evals_unit(l));
    if (all->fixed > 0)
        sheet_note(s, "Evaluations at a fixed depth, %d, are not shown.", all->fixed);
}

static int draw(struct sheet *s, struct err *e)
{
    struct eval_list l = {0};
    struct lines *all = mem_alloc(1, sizeof *all);
    int rc =
        all ? evals_take(&l, s, e) : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0)
        rc = gather(s, &l, all, e);
    if (rc == 0)
        rc = draw_lines(s, &l, all, e);
    if (rc == 0)
        note(s, &l, all);
    evals_release(&l);
    mem_free(all);
    return rc;
}

const struct figure_ops figure_depth_by_need = {
    .name = "depth_by_need",
    .title = "Mean depth against required depth by exit rule",
    .needs = "JSON files of depthscope eval --json (data.path=hops): depth_by_k",
    .draw = draw,
    .takes = evals_takes,
};
