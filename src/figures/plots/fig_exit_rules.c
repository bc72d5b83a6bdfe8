/* Loss of answers against mean depth: one line per exit rule, next to fixed depth, the oracle and
 * models trained at a depth. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/evals.h"

enum { LINES_MAX = LEGEND_MAX, MARKERS = 6 };

struct names {
    const char *x, *y;
};
struct dot {
    struct interval x, y;
    const struct eval_item *item;
    int seeds;
};
struct dots {
    struct dot *d; /* by group */
    unsigned char *shown;
    int n;
    int left_out; /* time of another process */
};

static const char *label_of(const char *key, int is_x)
{
    static const char *const words[][2] = {
        {"depth_mean", "Mean depth"},
        {"flops_ratio", "FLOPs (fraction of full depth)"},
        {"time_ratio", "Measured time (fraction of full depth)"},
        {"batch_time_ratio", "Measured time of a batch (fraction of full depth)"},
        {"answer_loss", "Loss of answers (nats)"},
        {"answer_accuracy", "Accuracy of answers"},
        {"loss", "Loss (nats per token)"},
    };
    for (size_t i = is_x ? 0 : 4; i < (is_x ? 4 : DS_LEN(words)); i++)
        if (strcmp(words[i][0], key) == 0)
            return words[i][1];
    return NULL;
}

static int read_names(const struct sheet *s, struct names *n, struct err *e)
{
    *n = (struct names){s->opt.x ? s->opt.x : "depth_mean",
                        s->opt.metric ? s->opt.metric : "answer_loss"};
    if (!label_of(n->x, 1))
        return err_set(e, DS_EUSAGE,
                       "figure %s: x = %.40s: expected depth_mean, flops_ratio, time_ratio or "
                       "batch_time_ratio",
                       s->ops->name, n->x);
    if (!label_of(n->y, 0))
        return err_set(e, DS_EUSAGE,
                       "figure %s: metric = %.40s: expected answer_loss, answer_accuracy or loss",
                       s->ops->name, n->y);
    return 0;
}

/* ---- data ---- */

static int deepest(const struct eval_list *l)
{
    int most = 0;
    for (int i = 0; i < l->n; i++)
        most = l->v[i].layers > most ? l->v[i].layers : most;
    return most;
}

/* FLOPs per token of the deepest models when every layer runs. */
static double full_flops(const struct eval_list *l)
{
    double sum = 0, n = 0;
    for (int i = 0; i < l->n; i++) {
        double v = eval_number(&l->v[i], "flops_dense_per_token");
        if (l->v[i].layers == deepest(l) && v > 0) {
            sum += v;
            n++;
        }
    }
    return n > 0 ? sum / n : (double)NAN;
}

static int number(struct sheet *s, const struct eval_list *l, const struct eval_item *x,
                  const void *ctx, double *out, struct err *e)
{
    const char *key = ctx;
    double v = eval_number(x, key);
    if (!isfinite(v))
        return sheet_fail(s, x->run, e, "%s: no number '%s'", x->line_name, key);
    /* The ratio of a shallower model is to that model: all are drawn against the deepest. */
    if (strcmp(key, "flops_ratio") == 0 && x->layers < deepest(l)) {
        double own = eval_number(x, "flops_dense_per_token"), all = full_flops(l);
        if (!(own > 0 && all > 0))
            return sheet_fail(s, x->run, e,
                              "%s: no number 'flops_dense_per_token' here or in the evaluations of "
                              "%d layers",
                              x->line_name, deepest(l));
        v *= own / all;
    }
    *out = v;
    return 0;
}

static int gather(struct sheet *s, const struct eval_list *l, const struct names *n,
                  struct dots *all, struct err *e)
{
    int rc = 0;
    for (int g = 0; rc == 0 && g < l->groups; g++) {
        struct dot *d = &all->d[g];
        d->item = evals_first(l, g);
        d->seeds = evals_seeds(l, g);
        if (strstr(n->x, "time_ratio") && d->item->layers < deepest(l)) {
            all->left_out += d->seeds;
            continue;
        }
        rc = evals_mean(s, l, g, number, n->x, &d->x, e);
        if (rc == 0)
            rc = evals_mean(s, l, g, number, n->y, &d->y, e);
        all->shown[g] = 1;
        all->n++;
    }
    return rc;
}

/* ---- drawing ---- */

/* Models of one depth that are cut end their line with all of their layers. */
static int is_on_line(const struct eval_list *l, const struct eval_item *x, int line)
{
    if (x->line == line || !eval_is_last_exit(l, x))
        return x->line == line;
    for (int i = 0; i < l->n; i++)
        if (l->v[i].line == line && l->v[i].kind == EVAL_CUT && l->v[i].layers == x->layers &&
            l->v[i].depth < x->depth)
            return 1;
    return 0;
}

/* Groups of a line by mean depth; returns their number. */
static int order(const struct dots *all, const struct eval_list *l, int line, int *out)
{
    int n = 0;
    for (int g = 0; g < l->groups; g++) {
        if (!all->shown[g] || !is_on_line(l, all->d[g].item, line))
            continue;
        int at = n++;
        for (; at > 0 && all->d[out[at - 1]].x.mean > all->d[g].x.mean; at--)
            out[at] = out[at - 1];
        out[at] = g;
    }
    return n;
}

static void draw_dot(struct sheet *s, struct panel *p, const struct dot *d, int marker, int rgb)
{
    double x = axis_at(&p->ax, d->x.mean), y = axis_at(&p->ay, d->y.mean), r = s->venue->line * 1.8;
    if (isfinite(d->y.lo)) {
        double lo = axis_at(&p->ay, d->y.lo), hi = axis_at(&p->ay, d->y.hi);
        if (lo - hi > 2 * r)
            panel_whisker(s, p, x, lo, x, hi, rgb);
    }
    if (isfinite(d->x.lo)) {
        double lo = axis_at(&p->ax, d->x.lo), hi = axis_at(&p->ax, d->x.hi);
        if (hi - lo > 2 * r)
            panel_whisker(s, p, lo, y, hi, y, rgb);
    }
    sheet_marker(s, marker, x, y, r, rgb, d->seeds == 1);
    panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
}

static enum eval_kind kind_of(const struct eval_list *l, int line)
{
    int i = 0;
    while (l->v[i].line != line)
        i++;
    return l->v[i].kind;
}

static int draw_line(struct sheet *s, struct panel *p, const struct dots *all,
                     const struct eval_list *l, int line, struct err *e)
{
    int *at = mem_alloc((size_t)l->groups, sizeof *at);
    double *xy = mem_alloc(2 * (size_t)l->groups, sizeof *xy);
    int rgb = evals_colour(s, l, line);
    if (!at || !xy) {
        mem_free(at);
        mem_free(xy);
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    }
    double *y = xy + l->groups;
    int n = order(all, l, line, at);
    enum eval_kind kind = kind_of(l, line);
    for (int i = 0; i < n; i++) {
        xy[i] = all->d[at[i]].x.mean;
        y[i] = all->d[at[i]].y.mean;
    }
    if (kind != EVAL_TRAINED) {
        pen_colour(s->pen, rgb, 1);
        pen_width(s->pen, s->venue->line);
        sheet_dash(s, kind == EVAL_ORACLE);
        panel_line(s, p, xy, y, (size_t)n);
        pen_dash(s->pen, NULL, 0);
    }
    for (int i = 0; i < n; i++)
        if (all->d[at[i]].item->line == line)
            draw_dot(s, p, &all->d[at[i]], line % MARKERS, rgb);
    mem_free(at);
    mem_free(xy);
    return 0;
}

static void add_entries(struct sheet *s, struct panel *p, const struct dots *all,
                        const struct eval_list *l, enum eval_kind kind)
{
    for (int line = 0; line < l->lines; line++)
        for (int g = 0; g < l->groups; g++) {
            const struct eval_item *x = all->d[g].item;
            if (!all->shown[g] || x->line != line || x->kind != kind)
                continue;
            panel_entry(p, x->line_name, evals_colour(s, l, line), kind == EVAL_ORACLE,
                        line % MARKERS, kind != EVAL_TRAINED);
            break;
        }
}

static int draw_dots(struct sheet *s, const struct dots *all, const struct eval_list *l,
                     const struct names *n, struct err *e)
{
    static const enum eval_kind below[] = {EVAL_CUT, EVAL_ROUTED, EVAL_ORACLE, EVAL_TRAINED};
    struct panel *p = mem_alloc(1, sizeof *p);
    char x_label[96];
    int rc = 0;
    if (!p)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    for (int g = 0; g < l->groups; g++) {
        const struct dot *d = &all->d[g];
        if (!all->shown[g])
            continue;
        const double x[3] = {d->x.mean, d->x.lo, d->x.hi}, y[3] = {d->y.mean, d->y.lo, d->y.hi};
        for (int k = 0; k < 3; k++) {
            axis_include(&p->ax, x[k]);
            axis_include(&p->ay, y[k]);
        }
    }
    axis_pad(&p->ax, 0.06);
    axis_pad(&p->ay, 0.08);
    snprintf(x_label, sizeof x_label, strcmp(n->x, "depth_mean") == 0 ? "%s (%s)" : "%s",
             label_of(n->x, 1), evals_unit(l));
    p->x_label = x_label;
    p->y_label = label_of(n->y, 0);
    for (int kind = EVAL_ROUTED; kind <= EVAL_TRAINED; kind++)
        add_entries(s, p, all, l, (enum eval_kind)kind);
    s->height = s->width * 0.72 + panel_legend_more(s, p);
    panel_layout(s, p, 0, 0, s->width, s->height);
    panel_axes(s, p);
    for (size_t k = 0; k < DS_LEN(below); k++)
        for (int line = 0; rc == 0 && line < l->lines; line++)
            if (kind_of(l, line) == below[k])
                rc = draw_line(s, p, all, l, line, e);
    panel_legend(s, p);
    mem_free(p);
    return rc;
}

static void note(struct sheet *s, const struct dots *all, const struct eval_list *l,
                 const struct names *n)
{
    evals_note(s, l, all->shown);
    if (strcmp(n->x, "flops_ratio") == 0)
        sheet_note(s, "FLOPs: whole model, relative to all %d %s.", deepest(l), evals_unit(l));
    if (strcmp(n->x, "time_ratio") == 0)
        sheet_note(s, "Time: prefill, relative to full depth in the same process.");
    if (all->left_out > 0)
        sheet_note(s,
                   "Evaluations of shallower models, %d, are not shown: their time was not "
                   "measured in one process with full depth.",
                   all->left_out);
}

static int draw(struct sheet *s, struct err *e)
{
    struct eval_list l = {0};
    struct dots all = {0};
    struct names names;
    int rc = read_names(s, &names, e);
    if (rc == 0)
        rc = evals_take(&l, s, e);
    if (rc < 0)
        return rc;
    all.d = mem_alloc((size_t)l.groups + 1, sizeof *all.d);
    all.shown = mem_alloc((size_t)l.groups + 1, 1);
    if (!all.d || !all.shown)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0 && l.lines > LINES_MAX)
        rc = err_set(e, DS_EUSAGE, "figure %s: too many exit rules, %d: expected at most %d",
                     s->ops->name, l.lines, LINES_MAX);
    if (rc == 0)
        rc = gather(s, &l, &names, &all, e);
    if (rc == 0 && all.n == 0)
        rc = sheet_fail(s, 0, e, "no evaluation with a comparable '%s'", names.x);
    if (rc == 0)
        rc = draw_dots(s, &all, &l, &names, e);
    if (rc == 0)
        note(s, &all, &l, &names);
    mem_free(all.d);
    mem_free(all.shown);
    evals_release(&l);
    return rc;
}

const struct figure_ops figure_exit_rules = {
    .name = "exit_rules",
    .title = "Loss of answers against mean depth by exit rule",
    .needs = "JSON files of depthscope eval --json: answer_loss, depth_mean (or --metric and --x "
             "flops_ratio, time_ratio)",
    .options = FIGURE_METRIC | FIGURE_X,
    .draw = draw,
    .takes = evals_takes,
};
