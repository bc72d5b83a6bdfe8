/* Groups runs of the same experiment that differ only in seed. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "io/experiment.h"
#include "figures/plot.h"

static const struct runview *view_of(const struct sheet *s, const struct group *g)
{
    return s->run[g->run[0]].view;
}

/* Names group i among the first n, from the settings that are not ignored. */
static int name_group(const struct groups *set, const struct sheet *s, int i, int n,
                      experiment_ignores_fn *ignores, char *out, size_t size)
{
    const struct runview **run = mem_alloc((size_t)n, sizeof *run);
    char name[200];
    sheet_run_name(s, set->g[i].run[0], name, sizeof name);
    for (int k = 0; run && k < n; k++)
        run[k] = view_of(s, &set->g[k]);
    if (run)
        experiment_label(out, size, run, n, i, ignores, name);
    mem_free(run);
    return run ? 0 : DS_EMEM;
}

static int method_index(const struct groups *set, int upto, const char *method)
{
    int most = -1;
    for (int i = 0; i < upto; i++) {
        if (strcmp(set->g[i].method, method) == 0)
            return set->g[i].method_index;
        if (set->g[i].method_index > most)
            most = set->g[i].method_index;
    }
    return most + 1;
}

static int find_family(struct groups *set, const struct sheet *s, int i)
{
    struct group *g = &set->g[i];
    for (int k = 0; k < i; k++)
        if (experiment_same_but(view_of(s, &set->g[k]), view_of(s, g), experiment_ignores_size)) {
            g->family = set->g[k].family;
            str_copy(g->family_label, sizeof g->family_label, set->g[k].family_label);
            return 0;
        }
    g->family = set->families++;
    return name_group(set, s, i, set->n, experiment_ignores_size, g->family_label,
                      sizeof g->family_label);
}

static int has_copy(const struct sheet *s, const struct group *g, const struct runview *v)
{
    for (int k = 0; k < g->runs; k++)
        if (experiment_is_copy(s->run[g->run[k]].view, v))
            return 1;
    return 0;
}

static void add_run(struct groups *out, const struct sheet *s, int run)
{
    const struct runview *v = s->run[run].view;
    for (int i = 0; i < out->n; i++)
        if (experiment_same(view_of(s, &out->g[i]), v) && !has_copy(s, &out->g[i], v)) {
            out->g[i].run[out->g[i].runs++] = run;
            return;
        }
    struct group *g = &out->g[out->n];
    const char *target = runview_method_config(v, "target_ratio");
    *g = (struct group){.method = experiment_method(v),
                        .layers = v->layers,
                        .target = target ? strtod(target, NULL) : (double)NAN,
                        .run = out->index + (size_t)out->n * (size_t)s->runs,
                        .runs = 1};
    g->run[0] = run;
    g->method_index = method_index(out, out->n, g->method);
    if (g->method_index + 1 > out->methods)
        out->methods = g->method_index + 1;
    out->n++;
}

int groups_make(struct groups *out, const struct sheet *s, struct err *e)
{
    struct groups set = {0};
    int rc = 0;
    set.g = mem_alloc((size_t)s->runs, sizeof *set.g);
    set.index = mem_alloc((size_t)s->runs * (size_t)s->runs, sizeof *set.index);
    if (!set.g || !set.index)
        rc = DS_EMEM;
    for (int i = 0; rc == 0 && i < s->runs; i++)
        add_run(&set, s, i);
    for (int i = 0; rc == 0 && i < set.n; i++) {
        struct group *g = &set.g[i];
        rc = name_group(&set, s, i, set.n, experiment_ignores, g->label, sizeof g->label);
        if (rc == 0)
            rc = find_family(&set, s, i);
    }
    if (rc < 0) {
        groups_release(&set);
        return err_set(e, rc, "figure %s: out of memory", s->ops->name);
    }
    *out = set;
    return 0;
}

void groups_release(struct groups *g)
{
    mem_free(g->g);
    mem_free(g->index);
    *g = (struct groups){0};
}

int groups_check(const struct groups *g, const struct sheet *s, int most, struct err *e)
{
    return g->n <= most ? 0
                        : err_set(e, DS_EUSAGE,
                                  "figure %s: too many different experiments, %d: expected "
                                  "at most %d",
                                  s->ops->name, g->n, most);
}

void groups_note(struct sheet *s, const struct groups *set)
{
    int lo = set->g[0].runs, hi = lo;
    for (int i = 1; i < set->n; i++) {
        lo = set->g[i].runs < lo ? set->g[i].runs : lo;
        hi = set->g[i].runs > hi ? set->g[i].runs : hi;
    }
    seeds_note(s, lo, hi);
}

void seeds_note(struct sheet *s, int lo, int hi)
{
    if (hi == 1)
        sheet_note(s, "One seed each (hollow marks): no confidence interval.");
    else if (lo == hi)
        sheet_note(
            s, "Mean over n = %d seeds; bars: 95 %% confidence interval (Student's t) of the mean.",
            hi);
    else
        sheet_note(s,
                   "Mean over n = %d to %d seeds; bars: 95 %% confidence interval (Student's t) of "
                   "the mean; "
                   "hollow: one seed.",
                   lo, hi);
}

int group_eval(struct sheet *s, const struct group *g, const char *scalar, struct interval *out,
               struct err *e)
{
    double *v = mem_alloc((size_t)g->runs, sizeof *v);
    int rc = v ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < g->runs; i++)
        rc = data_eval(s, g->run[i], scalar, &v[i], e);
    if (rc == 0)
        *out = stat_interval(v, (size_t)g->runs);
    mem_free(v);
    return rc;
}

/* Copies the vector of run i to column i of v (n, runs). */
static int take_vector(struct sheet *s, const struct group *g, int i, const char *name, int *n,
                       double **v, struct err *e)
{
    const struct vector *x;
    int rc = data_eval_vector(s, g->run[i], name, &x, e);
    if (rc < 0)
        return rc;
    int layers = s->run[g->run[i]].view->layers; /* 0: the head has none */
    int first = *n > 0 ? *n : x->n, want = layers > 0 && x->n != layers ? layers : first;
    if (x->n != want)
        return sheet_fail(s, g->run[i], e, "eval 'final': '%s' has %d value%s, expected %d", name,
                          x->n, x->n == 1 ? "" : "s", want);
    *n = want;
    if (!*v && !(*v = mem_alloc((size_t)*n * (size_t)g->runs, sizeof **v)))
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int k = 0; k < *n; k++)
        (*v)[(size_t)k * (size_t)g->runs + (size_t)i] = (double)x->v[k];
    return 0;
}

int group_eval_vector(struct sheet *s, const struct group *g, const char *name,
                      struct interval **out, int *n, struct err *e)
{
    double *v = NULL;
    int rc = 0;
    *out = NULL;
    for (int i = 0; rc == 0 && i < g->runs; i++)
        rc = take_vector(s, g, i, name, n, &v, e);
    if (rc == 0 && !(*out = mem_alloc((size_t)*n, sizeof **out)))
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    int finite = 0;
    for (int k = 0; rc == 0 && k < *n; k++) {
        (*out)[k] = stat_interval(v + (size_t)k * (size_t)g->runs, (size_t)g->runs);
        finite += isfinite((*out)[k].mean);
    }
    if (rc == 0 && finite == 0)
        rc = sheet_fail(s, g->run[0], e, "eval 'final': '%s' has no finite value", name);
    mem_free(v);
    return rc;
}

int group_is_dense(const struct group *g)
{
    return strcmp(g->method, "dense") == 0;
}

int group_colour(const struct sheet *s, const struct group *g)
{
    return group_is_dense(g) ? sheet_colour(s, ROLE_REFERENCE) : sheet_series(s, g->method_index);
}

int groups_draw(struct sheet *s, int most, groups_panel_fn *panel, groups_note_fn *note,
                struct err *e)
{
    struct groups set;
    int rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    rc = groups_check(&set, s, most, e);
    for (int i = 0; rc == 0 && i < set.n; i++)
        rc = panel(s, &set, i, e);
    if (rc == 0 && set.n == 1)
        sheet_note(s, "Shown: %s.", set.g[0].label);
    if (rc == 0 && note)
        note(s, &set);
    groups_release(&set);
    return rc;
}
