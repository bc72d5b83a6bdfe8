/* Logged metrics over steps: raw and smoothed curve, seeds as mean and band, NaN marked. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"
#include "io/metric.h"

enum { METRICS_MAX = 8, NAME_MAX_BYTES = 64 };

/* The legend is above the first panel, which it makes higher; the others move down. */
static void place(struct sheet *s, const struct groups *set, int i, int n, double box[4])
{
    const char *text[LEGEND_MAX];
    for (int g = 0; g < set->n; g++)
        text[g] = set->g[g].label;
    s->height = panel_grid(s, n, 3, n > 1 ? 0.68 : 0.62, i, box);
    double more = legend_more(s, text, set->n > 1 ? set->n : 0, box[2]);
    s->height += more;
    box[i ? 1 : 3] += more;
}

static int draw_metric(struct sheet *s, const struct groups *set, const char *metric, int i, int n,
                       struct err *e)
{
    struct panel *p = mem_alloc(1, sizeof *p);
    struct curve *c = mem_alloc((size_t)set->n, sizeof *c);
    double box[4];
    char label[128], x_label[128];
    size_t bad = 0;
    int rc = p && c ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int g = 0; rc == 0 && g < set->n; g++)
        rc = curve_metric(s, &set->g[g], metric, &c[g], e);
    if (rc < 0)
        goto out;
    curve_axes(s, p, 0);
    for (int g = 0; g < set->n; g++) {
        curve_include(p, &c[g]);
        bad += c[g].nonfinite;
        if (i == 0 && set->n > 1)
            panel_entry(p, set->g[g].label, sheet_series(s, g), curve_dash(g), -1, 1);
    }
    if (axis_is_empty(&p->ay)) {
        rc = sheet_fail(s, set->g[0].run[0], e, "metric '%s' has no finite value%s", metric,
                        p->ay.is_log ? " above 0" : "");
        goto out;
    }
    curve_pad(s, p);
    curve_x_label(s, x_label, sizeof x_label);
    p->x_label = x_label;
    run_metric_label(label, sizeof label, metric, runview_unit(s->run[0].view, metric));
    p->y_label = label;
    place(s, set, i, n, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    panel_axes(s, p);
    for (int g = 0; g < set->n; g++)
        curve_draw(s, p, &c[g], g);
    panel_legend(s, p);
    if (bad > 0)
        sheet_note(s, "%s: %zu value%s not finite%s.", metric, bad, bad == 1 ? " is" : "s are",
                   set->n < s->runs ? " and omitted from the means" : " (crosses)");
out:
    for (int g = 0; c && g < set->n; g++)
        curve_release(&c[g]);
    mem_free(c);
    mem_free(p);
    return rc;
}

/* The first metrics that every run logged: for tables without a loss. */
static int metrics_shared(const struct sheet *s, char name[METRICS_MAX][NAME_MAX_BYTES])
{
    const struct runview *v = s->run[0].view;
    int n = 0;
    for (size_t i = 0; i < v->n_series && n < METRICS_MAX; i++)
        if (strcmp(v->series[i].name, "tokens") != 0 && curve_has_metric(s, v->series[i].name) &&
            !str_copy(name[n], NAME_MAX_BYTES, v->series[i].name))
            n++;
    return n;
}

/* Splits "a,b,c"; the default is loss, and val_loss if every run has it. */
static int metrics_of(const struct sheet *s, char name[METRICS_MAX][NAME_MAX_BYTES], struct err *e)
{
    const char *list = s->opt.metric;
    int n = 0;
    if (!list && !curve_has_metric(s, "loss") && (n = metrics_shared(s, name)) > 0)
        return n;
    if (!list)
        list = curve_has_metric(s, "val_loss") ? "loss,val_loss" : "loss";
    for (const char *at = list; *at;) {
        size_t len = strcspn(at, ",");
        if (len == 0 || len >= NAME_MAX_BYTES || n == METRICS_MAX)
            return err_set(e, DS_EUSAGE, "metric = %s: expected at most %d names, A,B,...", list,
                           METRICS_MAX);
        memcpy(name[n], at, len);
        name[n++][len] = '\0';
        at += len + (at[len] == ',');
    }
    return n > 0 ? n : err_set(e, DS_EUSAGE, "metric: expected at least one name");
}

/* Of n metrics, those that are drawn as they are. */
static int count_exact(char name[METRICS_MAX][NAME_MAX_BYTES], int n)
{
    int exact = 0;
    for (int i = 0; i < n; i++) {
        const struct run_metric *m = run_metric_find(name[i]);
        exact += m && m->flags & METRIC_EXACT;
    }
    return exact;
}

static void note(struct sheet *s, const struct groups *set, char name[METRICS_MAX][NAME_MAX_BYTES],
                 int n)
{
    int hi = 1, lo = 1 << 30, exact = s->opt.smooth < 0 ? count_exact(name, n) : 0;
    char weight[24], from[60] = "";
    for (int g = 0; g < set->n; g++) {
        hi = set->g[g].runs > hi ? set->g[g].runs : hi;
        lo = set->g[g].runs < lo ? set->g[g].runs : lo;
    }
    if (set->n == 1)
        sheet_note(s, "Shown: %s.", set->g[0].label);
    if (s->opt.x && run_axis_find(s->opt.x) < 0)
        sheet_note(s, "Points are the steps that recorded %s as well.", s->opt.x);
    if (s->opt.x && run_axis_find(s->opt.x) == AXIS_FLOPS)
        sheet_note(s, "FLOPs of the decisions, forward and backward; masked training computes "
                      "skipped cells, too.");
    number_format(weight, sizeof weight, s->opt.smooth >= 0 ? s->opt.smooth : CURVE_WEIGHT, -1);
    if (hi > 1)
        sheet_note(s,
                   lo == hi ? "Mean over n = %d seeds; band: 95 %% confidence interval (Student's "
                              "t) of the mean."
                            : "Mean over up to n = %d seeds; band: 95 %% confidence interval "
                              "(Student's t) of the mean.",
                   hi);
    if (s->opt.smooth < 0)
        snprintf(from, sizeof from, " if there are at least %d points", (int)CURVE_SMOOTH_FROM);
    if (s->opt.smooth != 0 && exact < n)
        sheet_note(s, "Smoothed with weight %s%s%s%s.", weight, from,
                   exact ? ", schedules and counts excepted" : "",
                   hi > 1 ? "" : "; raw values in the background");
    else if (hi == 1)
        sheet_note(s, "Values as recorded.");
}

/* Leaves out the metrics without a point in the range, unless that leaves none. */
static int shown_of(struct sheet *s, char name[METRICS_MAX][NAME_MAX_BYTES], int n)
{
    int shown = 0;
    for (int i = 0; i < n; i++)
        shown += curve_is_shown(s, name[i]);
    for (int i = 0; shown > 0 && i < n;) {
        if (curve_is_shown(s, name[i])) {
            i++;
            continue;
        }
        sheet_note(s, "%s has no point in this range.", name[i]);
        memmove(name[i], name[i + 1], (size_t)(n - i - 1) * sizeof *name);
        n--;
    }
    return n;
}

static int draw(struct sheet *s, struct err *e)
{
    char name[METRICS_MAX][NAME_MAX_BYTES];
    struct groups set;
    int n = metrics_of(s, name, e), rc = n;
    if (n < 0)
        return n;
    if (s->opt.range || s->is_log_x)
        n = shown_of(s, name, n);
    rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    if (set.n > LEGEND_MAX)
        rc = err_set(e, DS_EUSAGE,
                     "figure %s: too many different experiments, %d: expected at most %d",
                     s->ops->name, set.n, LEGEND_MAX);
    for (int i = 0; rc == 0 && i < n; i++)
        rc = draw_metric(s, &set, name[i], i, n, e);
    if (rc == 0)
        note(s, &set, name, n);
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_training = {
    .name = "training",
    .title = "Logged metrics over training",
    .needs = "metric records; --metric selects the series (default: loss, and val_loss if logged)",
    .options = FIGURE_METRIC | FIGURE_CURVES,
    .draw = draw,
};
