/* Validation loss and FLOPs of each ablation compared with its matched control, one row per
 * ablation. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "figures/glyphs.h"
#include "figures/plot.h"
#include "io/experiment.h"

struct row {
    char label[64];
    const char *key;
    int *run, runs;
    struct interval loss, flops;
    double *seed_loss;
};
struct rows {
    struct row *r;
    int n, control;
    int *index;
    double *values;
};

static const char *ablation_of(const struct sheet *s, int run)
{
    const char *a = runview_method_config(s->run[run].view, "ablation");
    if (!a || !*a || strcmp(a, "none") == 0 || strcmp(a, "full") == 0 || strcmp(a, "control") == 0)
        return "control";
    return a;
}

static void rows_release(struct rows *t)
{
    mem_free(t->r);
    mem_free(t->index);
    mem_free(t->values);
}

static int collect(struct sheet *s, struct rows *t, struct err *e)
{
    size_t n = (size_t)s->runs;
    t->r = mem_alloc(n, sizeof *t->r);
    t->index = mem_alloc(n * n, sizeof *t->index);
    t->values = mem_alloc(n * n, sizeof *t->values);
    t->control = -1;
    if (!t->r || !t->index || !t->values)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; i < s->runs; i++) {
        const char *key = ablation_of(s, i);
        int k = 0;
        while (k < t->n && strcmp(t->r[k].key, key) != 0)
            k++;
        struct row *r = &t->r[k];
        if (k == t->n) {
            t->n++;
            r->key = key;
            r->run = t->index + (size_t)k * n;
            r->seed_loss = t->values + (size_t)k * n;
            struct str clean = str_in(r->label, sizeof r->label);
            utf8_sanitise(&clean, key, strlen(key), 24, 0);
            if (strcmp(key, "control") == 0)
                t->control = k;
        }
        r->run[r->runs++] = i;
    }
    if (t->control < 0)
        return err_set(e, DS_ENOTFOUND,
                       "figure %s: missing control: name a run with METHOD.ablation=none",
                       s->ops->name);
    if (t->n < 2)
        return err_set(e, DS_ENOTFOUND,
                       "figure %s: missing ablation: name runs with METHOD.ablation set",
                       s->ops->name);
    return 0;
}

/* A control is matched when training and data settings are the same. */
static int check_matched(const struct sheet *s, int control, int run, struct err *e)
{
    const struct runview *c = s->run[control].view, *v = s->run[run].view;
    for (size_t i = 0; i < v->configs; i++) {
        const char *key = v->config_key[i];
        if ((strncmp(key, "train.", 6) != 0 && strncmp(key, "data.", 5) != 0) ||
            experiment_ignores(key))
            continue;
        const char *theirs = runview_config(c, key);
        if (!theirs || strcmp(theirs, v->config_value[i]) != 0)
            return sheet_fail(
                s, run, e, "differs from the control in %s (%s, control %s): not a matched control",
                key, v->config_value[i], theirs ? theirs : "unset");
    }
    return 0;
}

/* The method of the runs with an ablation: a dense run given as well cannot be their control. */
static int check_method(const struct sheet *s, const struct rows *t, int run, struct err *e)
{
    int first = t->r[t->control == 0].run[0];
    const char *want = experiment_method(s->run[first].view),
               *got = experiment_method(s->run[run].view);
    return strcmp(got, want) == 0
               ? 0
               : sheet_fail(s, run, e, "method %s, expected %s, as of the ablations", got, want);
}

static int ignores_label(const char *key)
{
    const char *dot = strrchr(key, '.');
    return experiment_ignores(key) || (dot && strcmp(dot, ".ablation") == 0);
}

/* The runs of a row differ in their seed only; a control has one of several labels. */
static int check_seed(const struct sheet *s, const struct row *r, int i, struct err *e)
{
    const struct runview *v = s->run[r->run[i]].view;
    char name[200];
    for (int k = 0; k < i; k++) {
        const struct runview *other = s->run[r->run[k]].view;
        sheet_run_name(s, r->run[k], name, sizeof name);
        if (!experiment_same_but(other, v, ignores_label))
            return sheet_fail(s, r->run[i], e,
                              "the ablation of run %s with other settings: not another seed of it",
                              name);
        if (other->has_seed && v->has_seed && other->seed == v->seed)
            return sheet_fail(s, r->run[i], e, "duplicate: the settings and seed of run %s", name);
    }
    return 0;
}

static int measure(struct sheet *s, struct rows *t, struct err *e)
{
    double *flops = mem_alloc((size_t)s->runs, sizeof *flops);
    int rc = flops ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int k = 0; rc == 0 && k < t->n; k++) {
        struct row *r = &t->r[k];
        for (int i = 0; rc == 0 && i < r->runs; i++) {
            rc = check_method(s, t, r->run[i], e);
            if (rc == 0)
                rc = check_matched(s, t->r[t->control].run[0], r->run[i], e);
            if (rc == 0)
                rc = check_seed(s, r, i, e);
            if (rc == 0)
                rc = data_eval(s, r->run[i], "loss", &r->seed_loss[i], e);
            if (rc == 0)
                rc = data_eval(s, r->run[i], "flops_ratio", &flops[i], e);
        }
        if (rc == 0) {
            r->loss = stat_interval(r->seed_loss, (size_t)r->runs);
            r->flops = stat_interval(flops, (size_t)r->runs);
        }
    }
    mem_free(flops);
    return rc;
}

/* The control first, then by loss. */
static void sort_rows(struct rows *t)
{
    for (int i = 0; i < t->n; i++)
        for (int k = i; k > 0; k--) {
            struct row *a = &t->r[k - 1], *b = &t->r[k];
            int b_first = strcmp(b->key, "control") == 0 ||
                          (strcmp(a->key, "control") != 0 && b->loss.mean < a->loss.mean);
            if (!b_first)
                break;
            struct row swap = *a;
            *a = *b;
            *b = swap;
        }
    t->control = 0;
}

static double row_y(const struct panel *p, const struct rows *t, int k)
{
    return p->y + p->h * (k + 0.5) / t->n;
}

static int row_colour(const struct sheet *s, const struct rows *t, int k)
{
    return k == t->control ? sheet_colour(s, ROLE_REFERENCE) : sheet_series(s, 0);
}

/* Loss has no meaningful zero: drawn as a mark with interval, against the band of the control. */
static void draw_loss(struct sheet *s, struct panel *p, const struct rows *t)
{
    const struct interval *c = &t->r[t->control].loss;
    double r = s->venue->line * 2;
    if (isfinite(c->lo))
        pen_box(s->pen, axis_at(&p->ax, c->lo), p->y,
                axis_at(&p->ax, c->hi) - axis_at(&p->ax, c->lo), p->h,
                sheet_tint(s, sheet_colour(s, ROLE_REFERENCE), 0.16), 1);
    panel_rule(s, p, c->mean, 1, sheet_colour(s, ROLE_REFERENCE), 1);
    for (int k = 0; k < t->n; k++) {
        const struct row *row = &t->r[k];
        double y = row_y(p, t, k);
        int rgb = row_colour(s, t, k);
        for (int i = 0; row->runs > 1 && i < row->runs; i++) {
            pen_colour(s->pen, sheet_tint(s, rgb, 0.55), 1);
            pen_circle(s->pen, axis_at(&p->ax, row->seed_loss[i]), y, s->venue->line * 0.8);
            pen_fill(s->pen);
        }
        if (isfinite(row->loss.lo))
            panel_whisker(s, p, axis_at(&p->ax, row->loss.lo), y, axis_at(&p->ax, row->loss.hi), y,
                          rgb);
        sheet_marker(s, k == t->control ? 3 : 0, axis_at(&p->ax, row->loss.mean), y, r, rgb,
                     row->runs == 1);
    }
}

/* FLOPs start at zero: drawn as bars. */
static void draw_flops(struct sheet *s, struct panel *p, const struct rows *t)
{
    double h = p->h / t->n * 0.56;
    for (int k = 0; k < t->n; k++) {
        const struct row *row = &t->r[k];
        double y = row_y(p, t, k), x = axis_at(&p->ax, row->flops.mean);
        int rgb = row_colour(s, t, k);
        pen_box(s->pen, p->x, y - h / 2, x - p->x, h, sheet_tint(s, rgb, 0.6), 1);
        if (isfinite(row->flops.lo))
            panel_whisker(s, p, axis_at(&p->ax, row->flops.lo), y, axis_at(&p->ax, row->flops.hi),
                          y, rgb);
    }
    panel_rule(s, p, 1, 1, sheet_colour(s, ROLE_REFERENCE), 2);
}

static void draw_names(struct sheet *s, const struct panel *p, const struct rows *t)
{
    for (int k = 0; k < t->n; k++)
        sheet_text(s, p->x - 5, row_y(p, t, k), TEXT_RIGHT, TEXT_MIDDLE, 1,
                   sheet_colour(s, ROLE_TEXT), t->r[k].label);
}

static void draw_rows(struct sheet *s, struct panel *a, struct panel *b, const struct rows *t)
{
    double names = 0, small = s->venue->small;
    axis_reset(&a->ax);
    axis_reset(&b->ax);
    axis_include(&b->ax, 0);
    axis_include(&b->ax, 1);
    for (int k = 0; k < t->n; k++) {
        const struct row *r = &t->r[k];
        names = fmax(names, glyph_width(r->label, small));
        for (int i = 0; i < r->runs; i++)
            axis_include(&a->ax, r->seed_loss[i]);
        axis_include(&a->ax, r->loss.lo);
        axis_include(&a->ax, r->loss.hi);
        axis_include(&b->ax, fmax(r->flops.mean, isfinite(r->flops.hi) ? r->flops.hi : 0));
    }
    axis_pad(&a->ax, 0.1);
    b->ax.hi *= 1.06;
    a->ay = b->ay = (struct axis){.lo = 0, .hi = 1};
    a->x_label = "Validation loss";
    b->x_label = "FLOPs (dense = 1)";
    double rows = fmax(t->n * small * 1.9, small * 8), h = rows + s->venue->base * 4;
    double wide = (s->width - names - small) / 2;
    panel_layout(s, a, names + small * 0.2, 0, wide + small * 0.8, h);
    panel_layout(s, b, names + wide + small, 0, wide, h);
    a->ay.ticks = b->ay.ticks = 0;
    panel_axes(s, a);
    panel_axes(s, b);
    draw_names(s, a, t);
    draw_loss(s, a, t);
    draw_flops(s, b, t);
    s->height = h;
}

static int draw(struct sheet *s, struct err *e)
{
    struct rows t = {0};
    struct panel *p = mem_alloc(2, sizeof *p);
    int lo = 1 << 30, hi = 0,
        rc = p ? collect(s, &t, e) : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0)
        rc = measure(s, &t, e);
    if (rc == 0) {
        sort_rows(&t);
        draw_rows(s, &p[0], &p[1], &t);
        for (int k = 0; k < t.n; k++) {
            lo = t.r[k].runs < lo ? t.r[k].runs : lo;
            hi = t.r[k].runs > hi ? t.r[k].runs : hi;
        }
        if (lo == hi)
            sheet_note(s, "n = %d seed%s per row", hi, hi == 1 ? "" : "s");
        else
            sheet_note(s, "n = %d to %d seeds per row", lo, hi);
        sheet_note(s, hi > 1 ? "(small dots); mark: mean, bars and grey band: 95 %% confidence "
                               "interval of the mean (Student's t)."
                             : "(hollow): no confidence interval.");
        sheet_note(
            s, "Dashed: the control, trained on the same data for the same steps; dotted: dense.");
    }
    rows_release(&t);
    mem_free(p);
    return rc;
}

const struct figure_ops figure_ablation_bars = {
    .name = "ablation_bars",
    .title = "Validation loss and FLOPs of each ablation and its matched control",
    .needs = "eval 'final': loss, flops_ratio; config: METHOD.ablation, one run without",
    .draw = draw,
};
