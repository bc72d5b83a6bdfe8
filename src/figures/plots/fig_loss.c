/* Loss against compute, measured as FLOPs and as time.  Each method is a line through its budgets;
 * dense models of several depths are the baseline. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

struct point {
    double x, y;
    struct interval over, across;
    const struct group *g;
};

enum axis_kind { BY_FLOPS, BY_TIME };

/* The reference: the run with the most FLOPs per token. */
static int reference_flops(struct sheet *s, double *ref, struct err *e)
{
    *ref = 0;
    for (int i = 0; i < s->runs; i++) {
        double v;
        int rc = data_flops_dense(s, i, &v, e);
        if (rc < 0)
            return rc;
        *ref = fmax(*ref, v);
    }
    return 0;
}

static int is_dense(const struct sheet *s, int run)
{
    const struct runview *v = s->run[run].view;
    const char *m = runview_config(v, "model.method");
    m = m ? m : v->method;
    return m && strcmp(m, "dense") == 0;
}

/* Mean measured time of the dense runs of full depth; NaN when there are none. */
static int reference_time(struct sheet *s, double ref, double *out, struct err *e)
{
    double sum = 0, t, f;
    int n = 0;
    for (int i = 0; i < s->runs; i++) {
        int rc = data_flops_dense(s, i, &f, e);
        if (rc < 0)
            return rc;
        if (!is_dense(s, i) || f < ref * 0.999 || !data_has_eval(s, i, "time_per_token_ms"))
            continue;
        rc = data_eval(s, i, "time_per_token_ms", &t, e);
        if (rc < 0)
            return rc;
        sum += t;
        n++;
    }
    *out = n ? sum / n : (double)NAN;
    return 0;
}

static int place_run(struct sheet *s, int run, enum axis_kind kind, double ref, double ref_time,
                     double *x, struct err *e)
{
    double flops, ratio;
    int rc = data_flops_dense(s, run, &flops, e);
    if (rc < 0)
        return rc;
    if (kind == BY_FLOPS) {
        rc = data_eval(s, run, "flops_ratio", &ratio, e);
        *x = rc == 0 ? ratio * flops / ref : (double)NAN;
        return rc;
    }
    if (flops > ref * 0.999) /* full depth: the evaluation timed both models together */
        return data_eval(s, run, "time_ratio", x, e);
    if (!isfinite(ref_time))
        return sheet_fail(s, run, e,
                          "is shallower than the others, and no dense run of full depth has "
                          "'time_per_token_ms' to compare it with");
    rc = data_eval(s, run, "time_per_token_ms", &ratio, e);
    *x = rc == 0 ? ratio / ref_time : (double)NAN;
    return rc;
}

static int make_point(struct sheet *s, const struct group *g, enum axis_kind kind, double ref,
                      double ref_time, struct point *p, struct err *e)
{
    const char *metric = s->opt.metric ? s->opt.metric : "loss";
    size_t n = (size_t)g->runs;
    double *y = mem_alloc(2 * n, sizeof *y), *x = y ? y + n : NULL;
    int rc = y ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < g->runs; i++) {
        rc = place_run(s, g->run[i], kind, ref, ref_time, &x[i], e);
        if (rc == 0)
            rc = data_eval(s, g->run[i], metric, &y[i], e);
    }
    if (rc == 0) {
        p->g = g;
        p->over = stat_interval(y, n);
        p->across = stat_interval(x, n);
        p->x = p->across.mean;
        p->y = p->over.mean;
    }
    mem_free(y);
    return rc;
}

static void sort_points(struct point *p, int n)
{
    for (int i = 1; i < n; i++)
        for (int k = i;
             k > 0 && (p[k].g->method_index < p[k - 1].g->method_index ||
                       (p[k].g->method_index == p[k - 1].g->method_index && p[k].x < p[k - 1].x));
             k--) {
            struct point t = p[k];
            p[k] = p[k - 1];
            p[k - 1] = t;
        }
}

static void draw_method(struct sheet *s, struct panel *p, const struct point *pt, int n)
{
    int rgb = group_colour(s, pt[0].g), dense = group_is_dense(pt[0].g);
    double xs[2], ys[2];
    pen_width(s->pen, s->venue->line);
    pen_colour(s->pen, rgb, 1);
    sheet_dash(s, dense ? 1 : 0);
    for (int i = 0; i + 1 < n; i++) {
        xs[0] = pt[i].x, xs[1] = pt[i + 1].x;
        ys[0] = pt[i].y, ys[1] = pt[i + 1].y;
        panel_line(s, p, xs, ys, 2);
    }
    pen_dash(s->pen, NULL, 0);
    for (int i = 0; i < n; i++) {
        double x = axis_at(&p->ax, pt[i].x), y = axis_at(&p->ay, pt[i].y), r = s->venue->line * 2.1;
        if (isfinite(pt[i].over.lo))
            panel_whisker(s, p, x, axis_at(&p->ay, pt[i].over.lo), x,
                          axis_at(&p->ay, pt[i].over.hi), rgb);
        if (isfinite(pt[i].across.lo)) {
            double lo = axis_at(&p->ax, pt[i].across.lo), hi = axis_at(&p->ax, pt[i].across.hi);
            if (hi - lo > 2 * r) /* else the mark would hide it */
                panel_whisker(s, p, lo, y, hi, y, rgb);
        }
        sheet_marker(s, pt[i].g->method_index, x, y, r, rgb, pt[i].g->runs == 1);
        panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
    }
}

static void draw_points(struct sheet *s, struct panel *p, struct point *pt, int n)
{
    sort_points(pt, n);
    for (int i = 0; i < n; i++) {
        axis_include(&p->ax, pt[i].x);
        axis_include(&p->ax, pt[i].across.lo);
        axis_include(&p->ax, pt[i].across.hi);
        axis_include(&p->ay, pt[i].y);
        axis_include(&p->ay, pt[i].over.lo);
        axis_include(&p->ay, pt[i].over.hi);
        if (i == 0 || pt[i].g->method_index != pt[i - 1].g->method_index) {
            int dense = group_is_dense(pt[i].g);
            const char *word =
                dense ? p->x_label[0] == 'F' ? "dense at equal FLOPs" : "dense at equal time"
                      : pt[i].g->method;
            panel_entry(p, word, group_colour(s, pt[i].g), dense ? 1 : 0, pt[i].g->method_index, 1);
        }
    }
    axis_include(&p->ax, 1);
    axis_pad(&p->ax, 0.06);
    axis_pad(&p->ay, 0.1);
    panel_layout(s, p, 0, 0, s->width, s->width * 0.66);
    s->height = s->width * 0.66;
    panel_axes(s, p);
    panel_rule(s, p, 1, 1, sheet_colour(s, ROLE_BORDER), 2);
    for (int i = 0, end; i < n; i = end) {
        for (end = i; end < n && pt[end].g->method_index == pt[i].g->method_index; end++)
            ;
        draw_method(s, p, pt + i, end - i);
    }
    panel_legend(s, p);
}

/* Times from different machines are not comparable. */
static void note_hosts(struct sheet *s)
{
    for (int i = 1; i < s->runs; i++) {
        const char *a = s->run[0].view->host, *b = s->run[i].view->host;
        if (strcmp(a ? a : "", b ? b : "") != 0) {
            sheet_note(s, "The runs were timed on different machines.");
            return;
        }
    }
}

static int draw(struct sheet *s, enum axis_kind kind, struct err *e)
{
    struct groups set = {0};
    struct point *pt = NULL;
    struct panel *p = NULL;
    double ref, ref_time = (double)NAN;
    char number[40];
    const char *metric = s->opt.metric ? s->opt.metric : "loss";
    int rc = reference_flops(s, &ref, e);
    if (rc == 0 && kind == BY_TIME)
        rc = reference_time(s, ref, &ref_time, e);
    if (rc == 0)
        rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    pt = mem_alloc((size_t)set.n, sizeof *pt);
    p = mem_alloc(1, sizeof *p);
    if (!pt || !p)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < set.n; i++)
        rc = make_point(s, &set.g[i], kind, ref, ref_time, &pt[i], e);
    if (rc == 0) {
        axis_reset(&p->ax);
        axis_reset(&p->ay);
        p->x_label = kind == BY_FLOPS ? "FLOPs per token (fraction of dense)"
                                      : "Measured time per token (fraction of dense)";
        p->y_label = strcmp(metric, "loss") == 0            ? "Validation loss (nats)"
                     : strcmp(metric, "bits_per_byte") == 0 ? "Bits per byte"
                                                            : metric;
        draw_points(s, p, pt, set.n);
        number_short(number, sizeof number, ref / 1e6);
        groups_note(s, &set);
        sheet_note(s, "1.0 = dense at full depth (%s MFLOPs per token).", number);
        if (kind == BY_TIME)
            note_hosts(s);
    }
    mem_free(pt);
    mem_free(p);
    groups_release(&set);
    return rc;
}

static int draw_flops(struct sheet *s, struct err *e)
{
    return draw(s, BY_FLOPS, e);
}

static int draw_time(struct sheet *s, struct err *e)
{
    return draw(s, BY_TIME, e);
}

const struct figure_ops figure_loss_flops = {
    .name = "loss_flops",
    .title = "Validation loss against FLOPs, compared with dense at equal FLOPs",
    .needs = "eval 'final': loss, flops_ratio; flops_dense_per_token (or head: flops_dense)",
    .options = FIGURE_METRIC,
    .draw = draw_flops,
};
const struct figure_ops figure_loss_time = {
    .name = "loss_time",
    .title = "Validation loss against measured time per token",
    .needs = "eval 'final': loss, time_ratio, time_per_token_ms; flops_dense_per_token (or head: "
             "flops_dense)",
    .options = FIGURE_METRIC,
    .draw = draw_time,
};
