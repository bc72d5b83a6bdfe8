/* The top-k gap: loss with top-k decisions over whole sequences compared with causal,
 * inference-time decisions, per run; and the accuracy of the causal predictor, if any. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum { GROUPS_MAX = 12 };

/* The two losses of a run. */
struct pair {
    double topk, causal;
};

static int take(struct sheet *s, const struct groups *set, struct pair *v, struct err *e)
{
    for (int g = 0; g < set->n; g++)
        for (int i = 0; i < set->g[g].runs; i++) {
            int run = set->g[g].run[i];
            v[run].topk = data_eval_pair(s, run, "topk_loss", "loss", &v[run].causal);
            if (!isfinite(v[run].topk))
                return sheet_fail(s, run, e, "no record 'eval' has both 'topk_loss' and 'loss'");
        }
    return 0;
}

/* "+0.123 [0.110, 0.136]" */
static void gap_text(const struct group *g, const struct pair *v, char *out, size_t size)
{
    double gap[FIGURE_RUNS_MAX];
    char mean[24], lo[24], hi[24];
    for (int i = 0; i < g->runs; i++)
        gap[i] = v[g->run[i]].causal - v[g->run[i]].topk;
    struct interval x = stat_interval(gap, (size_t)g->runs);
    int decimals = fabs(x.mean) < 0.01 ? 5 : 3;
    number_format(mean, sizeof mean, x.mean, decimals);
    number_format(lo, sizeof lo, x.lo, decimals);
    number_format(hi, sizeof hi, x.hi, decimals);
    if (isfinite(x.lo))
        snprintf(out, size, "%s%s [%s, %s]", x.mean > 0 ? "+" : "", mean, lo, hi);
    else
        snprintf(out, size, "%s%s", x.mean > 0 ? "+" : "", mean);
}

static void draw_row(struct sheet *s, struct panel *p, const struct group *g, const struct pair *v,
                     double y, double h)
{
    double r = s->venue->line * 1.9;
    for (int i = 0; i < g->runs; i++) {
        const struct pair *x = &v[g->run[i]];
        double at = y + h * ((i + 0.5) / g->runs - 0.5) * 0.7, a = axis_at(&p->ax, x->topk),
               b = axis_at(&p->ax, x->causal);
        pen_dash(s->pen, NULL, 0);
        pen_colour(s->pen, sheet_colour(s, ROLE_REFERENCE), 1);
        pen_width(s->pen, s->venue->line * 0.75);
        pen_segment(s->pen, a, at, b, at);
        sheet_marker(s, 1, a, at, r, sheet_series(s, 1), 0);
        sheet_marker(s, 0, b, at, r, sheet_series(s, 0), 0);
        panel_mark_line(p, a - r, at, b + r, at);
    }
}

static double row_height(const struct sheet *s, const struct group *g)
{
    return s->venue->small * fmax(2, 0.9 * g->runs + 0.6);
}

/* Rows from y downwards, each followed by its gap; `head`: space for its name above it, or 0. */
static void draw_rows(struct sheet *s, const struct groups *set, const struct pair *v,
                      struct panel *p, double scale, double head)
{
    double small = s->venue->small, right = p->x + p->w + small * 0.8, y = p->y;
    int ink = sheet_colour(s, ROLE_TEXT);
    char text[96];
    for (int g = 0; g < set->n; g++) {
        const char *name = set->g[g].label;
        double h = row_height(s, &set->g[g]) * scale, at = y + head * scale + h / 2;
        gap_text(&set->g[g], v, text, sizeof text);
        draw_row(s, p, &set->g[g], v, at, h);
        if (head > 0)
            sheet_text(s, p->x + small * 0.5, y + head * scale * 0.6, TEXT_LEFT, TEXT_MIDDLE, 1,
                       ink, name);
        else
            sheet_text(s, p->x - 5, at, TEXT_RIGHT, TEXT_MIDDLE, 1, ink, name);
        sheet_text(s, right, at, TEXT_LEFT, TEXT_MIDDLE, 1, ink, text);
        y += h + head * scale;
    }
}

/* One row per experiment from the top, named at the left, or above it where the names are long. */
static void draw_pairs(struct sheet *s, const struct groups *set, const struct pair *v,
                       struct panel *p)
{
    double small = s->venue->small, names = 0, gaps = 0, rows = 0;
    char text[96];
    axis_reset(&p->ax);
    for (int i = 0; i < s->runs; i++) {
        axis_include(&p->ax, v[i].topk);
        axis_include(&p->ax, v[i].causal);
    }
    for (int g = 0; g < set->n; g++) {
        gap_text(&set->g[g], v, text, sizeof text);
        names = fmax(names, glyph_width(set->g[g].label, small));
        gaps = fmax(gaps, glyph_width(text, small));
        rows += row_height(s, &set->g[g]);
    }
    axis_pad(&p->ax, 0.1);
    p->ay = (struct axis){.lo = 0, .hi = 1};
    p->x_label = "Validation loss (nats)";
    p->right = gaps + small;
    panel_entry(p, "top-k, not causal", sheet_series(s, 1), 0, 1, 0);
    panel_entry(p, "causal", sheet_series(s, 0), 0, 0, 0);
    double head = names > s->width * 0.4 ? small * 1.4 : 0, left = head > 0 ? 0 : names;
    rows += set->n * head;
    s->legend_above = 1;
    s->height = rows + s->venue->base * 4.4 + small * 1.5;
    panel_layout(s, p, left + small * 0.2, 0, s->width - left - small * 0.2, s->height);
    p->ay.ticks = 0;
    panel_axes(s, p);
    sheet_text(s, p->x + p->w + small * 0.8, p->y - small * 0.9, TEXT_LEFT, TEXT_MIDDLE, 1,
               sheet_colour(s, ROLE_DIM), "gap");
    draw_rows(s, set, v, p, p->h / rows, head);
    panel_legend(s, p);
}

/* The second panel: accuracy over training, below the first. */
static int draw_accuracy(struct sheet *s, const struct groups *set, struct err *e)
{
    struct curve *c = mem_alloc((size_t)set->n, sizeof *c);
    const char *label[GROUPS_MAX];
    double top = s->height + s->venue->base, box[4] = {0, top, s->width, s->width * 0.55};
    int rc = c ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int g = 0; rc == 0 && g < set->n; g++) {
        label[g] = set->g[g].label;
        rc = curve_metric(s, &set->g[g], "causal_accuracy", &c[g], e);
    }
    if (rc == 0)
        box[3] += legend_more(s, label, set->n > 1 ? set->n : 0, s->width);
    if (rc == 0)
        rc = curve_panel(s,
                         &(struct curve_panel){.curve = c,
                                               .label = set->n > 1 ? label : NULL,
                                               .n = set->n,
                                               .y_label = "Accuracy of the predictor"},
                         box, e);
    s->height = top + box[3];
    for (int g = 0; c && g < set->n; g++)
        curve_release(&c[g]);
    mem_free(c);
    return rc;
}

/* Where accuracy was not logged: the final F1, as text. */
static int note_f1(struct sheet *s, const struct groups *set, struct err *e)
{
    int all = 1, rc = 0;
    for (int i = 0; i < s->runs; i++)
        all &= data_has_eval(s, i, "predictor_f1");
    for (int g = 0; rc == 0 && all && g < set->n; g++) {
        struct interval v;
        char f1[24];
        rc = group_eval(s, &set->g[g], "predictor_f1", &v, e);
        number_format(f1, sizeof f1, rc == 0 ? v.mean : 0, 3);
        if (rc == 0)
            sheet_note(s, "%s: F1 of the predictor %s.", set->g[g].label, f1);
    }
    return rc;
}

static int draw(struct sheet *s, struct err *e)
{
    struct groups set = {0};
    struct pair *v = mem_alloc((size_t)s->runs, sizeof *v);
    struct panel *p = mem_alloc(1, sizeof *p);
    int rc = groups_make(&set, s, e), accuracy = curve_has_metric(s, "causal_accuracy");
    if (rc == 0 && (!v || !p))
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0)
        rc = groups_check(&set, s, GROUPS_MAX, e);
    if (rc == 0)
        rc = take(s, &set, v, e);
    if (rc == 0) {
        draw_pairs(s, &set, v, p);
        sheet_note(s,
                   "Each pair: one run, the same weights and text; gap: causal minus top-k, "
                   "mean over seeds%s.",
                   set.n < s->runs ? " with its 95 % confidence interval (Student's t)" : "");
        rc = note_f1(s, &set, e);
    }
    if (rc == 0 && accuracy)
        rc = draw_accuracy(s, &set, e);
    if (rc == 0 && accuracy) {
        sheet_note(s, "Below: share of cells where the causal predictor agrees with top-k.");
        curve_note(s, &set, "Accuracy");
    }
    groups_release(&set);
    mem_free(v);
    mem_free(p);
    return rc;
}

const struct figure_ops figure_topk_causal = {
    .name = "topk_causal",
    .title = "Loss with top-k over whole sequences compared with causal loss",
    .needs = "an eval: topk_loss, loss; optional: metric causal_accuracy or eval predictor_f1",
    .options = FIGURE_CURVES,
    .draw = draw,
};
