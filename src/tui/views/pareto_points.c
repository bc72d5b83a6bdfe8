/* Makes the points of the Pareto view from the records of the open runs. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/str.h"
#include "io/experiment.h"
#include "io/metric.h"
#include "tui/pareto.h"

/* clang-format off */
const struct pareto_axis pareto_axes[PARETO_AXES] = {
    [PARETO_FLOPS_RATIO] = {"flops-ratio",    "FLOPs",           "of dense", "FLOPs",     0},
    [PARETO_FLOPS]       = {"flops",          "FLOPs per token", "",         "FLOPs/tok", 1},
    [PARETO_TIME_RATIO]  = {"time-ratio",     "measured time",   "of dense", "time",      0},
    [PARETO_TIME]        = {"time",           "time per token",  "ms",       "ms/token",  0},
    [PARETO_PARAMS]      = {"parameters",     "parameters",      "",         "params",    1},
    [PARETO_TRAINING]    = {"training-flops", "training FLOPs",  "",         "FLOPs",     0},
    [PARETO_STEPS]       = {"steps",          "steps",           "",         "steps",     0},
    [PARETO_TOKENS]      = {"tokens",         "tokens seen",     "",         "tokens",    0},
    [PARETO_WALL]        = {"wall-time",      "wall time",       "s",        "wall s",    0},
};
/* clang-format on */

/* Training FLOPs up to the newest point that was not superseded. */
static double training_flops(const struct runview *v)
{
    const struct series *s = runview_series(v, "tokens");
    for (size_t i = s ? s->n : 0; i-- > 0;)
        if (!s->is_old[i] && isfinite(s->flops[i]))
            return s->flops[i];
    return (double)NAN;
}

/* The newest point that was not superseded of any metric: its step, or its time since the first.  Zero
 * is unknown: no run takes no time. */
static double newest_point(const struct runview *v, enum pareto_x x)
{
    double start = HUGE_VAL, last = -HUGE_VAL;
    for (size_t k = 0; k < v->n_series; k++) {
        const struct series *s = &v->series[k];
        size_t i = s->n;
        while (i > 0 && s->is_old[i - 1])
            i--;
        if (i == 0)
            continue;
        double at = x == PARETO_STEPS ? (double)s->step[i - 1] : s->time[i - 1];
        start = s->time[0] < start ? s->time[0] : start;
        last = at > last ? at : last;
    }
    double value = x == PARETO_STEPS ? last : last - start;
    return value > 0 && isfinite(value) ? value : (double)NAN;
}

double pareto_y_of(const struct runview *v, const char *metric)
{
    return strcmp(metric, "loss") == 0 ? experiment_newest(v, metric)
                                       : experiment_result(v, metric);
}

double pareto_x_of(const struct runview *v, enum pareto_x x)
{
    double value = (double)NAN;
    switch (x) {
    case PARETO_FLOPS_RATIO: return experiment_result(v, "flops_ratio");
    case PARETO_TIME_RATIO: return experiment_result(v, "time_ratio");
    case PARETO_TIME: return experiment_result(v, "time_per_token_ms");
    case PARETO_TRAINING: return training_flops(v);
    case PARETO_TOKENS: return experiment_newest(v, "tokens"); /* an evaluation counts its own */
    case PARETO_STEPS:
    case PARETO_WALL: return newest_point(v, x);
    case PARETO_FLOPS:
        value = experiment_result(v, "flops_per_token");
        if (!isfinite(value) && v->flops_dense > 0)
            value = experiment_result(v, "flops_ratio") * v->flops_dense;
        return value;
    default:
        value = (double)(v->params_non_embedding > 0 ? v->params_non_embedding : v->params);
        return value > 0 ? value : (double)NAN;
    }
}

static int add_name(char name[][64], int n, int max, const char *text)
{
    for (int i = 0; i < n; i++)
        if (strcmp(name[i], text) == 0)
            return n;
    if (n < max)
        str_copy(name[n++], 64, text);
    return n;
}

/* How much text an evaluation read is not a result, and `tokens` is what a run has seen. */
static int is_result(const char *name)
{
    return strcmp(name, "loss") != 0 && strcmp(name, "tokens") != 0 &&
           strcmp(name, "control_tokens") != 0;
}

int pareto_metrics(const struct runview *const *run, int runs, char name[][64], int max)
{
    int n = add_name(name, 0, max, "val_loss");
    n = add_name(name, n, max, "bits_per_byte");
    for (int r = 0; r < runs; r++)
        for (size_t i = 0; i < run[r]->n_evals; i++) {
            const struct run_eval *e = &run[r]->eval[i];
            for (int k = 0; strcmp(e->routing, "causal") == 0 && k < e->values; k++)
                if (e->value[k].n == 1 && is_result(e->value[k].name) &&
                    isfinite(experiment_result(run[r], e->value[k].name)))
                    n = add_name(name, n, max, e->value[k].name);
        }
    for (int r = 0; r < runs; r++)
        if (isfinite(pareto_y_of(run[r], "loss")))
            n = add_name(name, n, max, "loss");
    return n;
}

/* ---- points ---- */

static void leave_out(struct pareto_set *s, int run, const char *why, const char *what)
{
    struct pareto_left *l = &s->left[s->lefts++];
    l->run = run;
    l->why = why;
    snprintf(l->text, sizeof l->text, "%s%.40s", why, what);
}

/* 1 when the run has both coordinates; else it is left out, with the reason. */
static int has_coordinates(struct pareto_set *s, const struct runview *v, int run, enum pareto_x x,
                           const char *metric)
{
    if (v->state == RUN_FAILED)
        leave_out(s, run, "failed", "");
    else if (!isfinite(pareto_y_of(v, metric)) && (v->n_evals > 0 || runview_foreign(v)))
        leave_out(s, run, "no ", metric);
    else if (!isfinite(pareto_y_of(v, metric)))
        leave_out(s, run, "no evaluation yet", "");
    else if (!isfinite(pareto_x_of(v, x)))
        leave_out(s, run, "no ", pareto_axes[x].title);
    else
        return 1;
    return 0;
}

static struct pareto_point *point_of(struct pareto_set *s, const struct runview *const *run, int r)
{
    for (int i = 0; i < s->n; i++) {
        struct pareto_point *p = &s->point[i];
        int is_copy = 0;
        for (int k = 0; k < p->runs; k++)
            is_copy |= experiment_is_copy(run[p->run[k]], run[r]);
        if (!is_copy && experiment_same(run[p->run[0]], run[r]))
            return p;
    }
    struct pareto_point *p = &s->point[s->n++];
    const char *budget = runview_config(run[r], "train.flops_budget");
    p->budget = budget ? strtod(budget, NULL) : 0;
    p->budget = p->budget > 0 && isfinite(p->budget) ? p->budget : 0;
    p->dominated_by = -1;
    return p;
}

static void name_points(struct pareto_set *s, const struct runview *const *run)
{
    const struct runview *first[PARETO_RUNS_MAX];
    int methods = 0;
    for (int i = 0; i < s->n; i++)
        first[i] = run[s->point[i].run[0]];
    for (int i = 0; i < s->n; i++) {
        struct pareto_point *p = &s->point[i];
        const char *method = experiment_method(first[i]), *name = first[i]->name;
        experiment_label(p->label, sizeof p->label, first, s->n, i, experiment_ignores,
                         name && *name ? name : "?");
        p->is_dense = strcmp(method, "dense") == 0;
        p->method = -1;
        for (int k = 0; k < i && p->method < 0; k++)
            if (strcmp(experiment_method(first[k]), method) == 0)
                p->method = s->point[k].method;
        p->method = p->method < 0 ? methods++ : p->method;
    }
}

static void sort_points(struct pareto_set *s)
{
    for (int i = 1; i < s->n; i++)
        for (int k = i; k > 0 && (s->point[k].x.mean < s->point[k - 1].x.mean ||
                                  (s->point[k].x.mean == s->point[k - 1].x.mean &&
                                   s->point[k].y.mean < s->point[k - 1].y.mean));
             k--) {
            struct pareto_point t = s->point[k];
            s->point[k] = s->point[k - 1];
            s->point[k - 1] = t;
        }
}

/* Of those that dominate a point, the best in y: the point one would rather choose. */
static void find_front(struct pareto_set *s, double sign)
{
    double x[PARETO_RUNS_MAX], y[PARETO_RUNS_MAX];
    unsigned char front[PARETO_RUNS_MAX];
    for (int i = 0; i < s->n; i++) {
        x[i] = s->point[i].x.mean;
        y[i] = sign * s->point[i].y.mean;
    }
    stat_front(x, y, (size_t)s->n, front);
    for (int i = 0; i < s->n; i++) {
        struct pareto_point *p = &s->point[i];
        p->is_front = front[i];
        for (int k = 0; k < s->n && !front[i]; k++)
            if (front[k] && x[k] <= x[i] && y[k] <= y[i] &&
                (p->dominated_by < 0 || y[k] < y[p->dominated_by]))
                p->dominated_by = k;
    }
}

/* ---- isoFLOP curves ---- */

static void fit_iso(struct pareto_set *s, struct pareto_iso *c)
{
    double x[PARETO_RUNS_MAX], y[PARETO_RUNS_MAX];
    int sizes = 0;
    for (int i = 0; i < c->n; i++) {
        x[i] = log10(s->point[c->point[i]].x.mean);
        y[i] = s->point[c->point[i]].y.mean;
        sizes += i == 0 || x[i] > x[i - 1];
    }
    c->has_fit = sizes >= PARETO_SIZES_TO_FIT && stat_parabola(x, y, (size_t)c->n, &c->fit);
    if (!c->has_fit)
        return;
    double best = stat_parabola_least(&c->fit);
    c->best = pow(10, best);
    c->is_enclosed = best > x[0] && best < x[c->n - 1];
}

static void find_isos(struct pareto_set *s, const struct runview *const *run)
{
    for (int i = 0; i < s->n; i++) {
        struct pareto_point *p = &s->point[i];
        int k = 0;
        if (!(p->budget > 0) || !(p->x.mean > 0))
            continue;
        for (; k < s->isos; k++)
            if (s->iso[k].budget == p->budget &&
                experiment_same_but(run[s->point[s->iso[k].point[0]].run[0]], run[p->run[0]],
                                    experiment_ignores_size))
                break;
        if (k == PARETO_ISOS_MAX)
            continue;
        if (k == s->isos)
            s->iso[s->isos++] = (struct pareto_iso){.budget = p->budget};
        s->iso[k].point[s->iso[k].n++] = i;
    }
    int kept = 0;
    for (int k = 0; k < s->isos; k++)
        if (s->iso[k].n > 1) /* a single size is not a curve */
            s->iso[kept++] = s->iso[k];
    s->isos = kept;
    for (int k = 0; k < s->isos; k++)
        fit_iso(s, &s->iso[k]);
}

void pareto_make(struct pareto_set *out, const struct runview *const *run, int runs,
                 enum pareto_x x, const char *metric)
{
    memset(out, 0, sizeof *out);
    for (int r = 0; r < runs && r < PARETO_RUNS_MAX; r++) {
        if (!has_coordinates(out, run[r], r, x, metric))
            continue;
        struct pareto_point *p = point_of(out, run, r);
        p->run[p->runs++] = r;
    }
    for (int i = 0; i < out->n; i++) {
        struct pareto_point *p = &out->point[i];
        double at[PARETO_RUNS_MAX], value[PARETO_RUNS_MAX];
        for (int k = 0; k < p->runs; k++) {
            at[k] = pareto_x_of(run[p->run[k]], x);
            value[k] = pareto_y_of(run[p->run[k]], metric);
        }
        p->x = stat_interval(at, (size_t)p->runs);
        p->y = stat_interval(value, (size_t)p->runs);
    }
    name_points(out, run);
    sort_points(out);
    find_front(out, metric_is_gain(metric) ? -1 : 1);
    if (pareto_axes[x].is_size)
        find_isos(out, run);
}
