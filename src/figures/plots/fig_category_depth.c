/* Mean depth and loss of each class of tokens. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum { GROUPS_MAX = 6, LEAST_TOKENS = 10 };

/* Statistics of one column and class: over the tokens of one run, or over the means of several. */
struct kind {
    struct interval depth, nll;
    double tokens;
};
struct kinds {
    struct kind k[RUN_CLASSES];
    int has_nll;
};

static int take_columns(struct sheet *s, int run, const struct vector **c, const struct vector **d,
                        const struct vector **nll, struct err *e)
{
    const struct run_sample *sample = runview_sample(s->run[run].view, "val");
    int rc = data_column(s, run, "class", c, e);
    if (rc == 0)
        rc = data_column(s, run, "depth", d, e);
    *nll = NULL;
    if (rc == 0 && sample_column(sample, "nll"))
        rc = data_column(s, run, "nll", nll, e);
    return rc;
}

/* Mean and interval of the values of one class. */
static struct interval of_class(const struct vector *c, const struct vector *v, int kind,
                                double *room)
{
    size_t n = 0;
    for (int i = 0; i < c->n && i < v->n; i++)
        if (c->v[i] == (float)kind && isfinite(v->v[i]))
            room[n++] = (double)v->v[i];
    return stat_interval(room, n);
}

static int take_run(struct sheet *s, int run, struct kinds *out, struct err *e)
{
    const struct vector *c, *d, *nll;
    int rc = take_columns(s, run, &c, &d, &nll, e);
    double *room = rc == 0 ? mem_alloc((size_t)c->n, sizeof *room) : NULL;
    if (rc == 0 && !room)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int k = 0; rc == 0 && k < RUN_CLASSES; k++) {
        out->k[k].depth = of_class(c, d, k, room);
        out->k[k].tokens = (double)out->k[k].depth.n;
        if (nll)
            out->k[k].nll = of_class(c, nll, k, room);
    }
    out->has_nll = 0;
    for (int k = 0; rc == 0 && nll && k < RUN_CLASSES; k++)
        out->has_nll |= out->k[k].nll.n > 0;
    mem_free(room);
    return rc;
}

/* Over seeds: the mean of their means. */
static int join(const struct kinds *run, int runs, struct kinds *out)
{
    double *depth = mem_alloc(2 * (size_t)runs, sizeof *depth);
    if (!depth)
        return DS_EMEM;
    double *nll = depth + runs;
    *out = run[0];
    for (int k = 0; runs > 1 && k < RUN_CLASSES; k++) {
        out->k[k].tokens = 0;
        for (int r = 0; r < runs; r++) {
            depth[r] = run[r].k[k].depth.mean;
            nll[r] = run[r].k[k].nll.mean;
            out->k[k].tokens += run[r].k[k].tokens;
            out->has_nll &= run[r].has_nll;
        }
        out->k[k].depth = stat_interval(depth, (size_t)runs);
        out->k[k].nll = stat_interval(nll, (size_t)runs);
    }
    mem_free(depth);
    return 0;
}

static int take(struct sheet *s, const struct group *g, struct kinds *out, struct err *e)
{
    struct kinds *run = mem_alloc((size_t)g->runs, sizeof *run);
    double all = 0;
    int rc = run ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < g->runs; i++)
        rc = take_run(s, g->run[i], &run[i], e);
    if (rc == 0 && join(run, g->runs, out) < 0)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int k = 0; rc == 0 && k < RUN_CLASSES; k++)
        all += out->k[k].tokens;
    if (rc == 0 && all == 0)
        rc = sheet_fail(s, g->run[0], e, "sample 'val': no token of 'class' has a finite 'depth'");
    mem_free(run);
    return rc;
}

/* Classes with enough tokens in every group, sorted by their depth in the first group. */
static int order(const struct kinds *v, int groups, int out[RUN_CLASSES])
{
    int n = 0;
    for (int k = 0; k < RUN_CLASSES; k++) {
        int ok = 1;
        for (int g = 0; g < groups; g++)
            ok &= v[g].k[k].tokens >= LEAST_TOKENS;
        if (!ok)
            continue;
        int at = n++;
        for (; at > 0 && v[0].k[out[at - 1]].depth.mean < v[0].k[k].depth.mean; at--)
            out[at] = out[at - 1];
        out[at] = k;
    }
    return n;
}

static const struct interval *value_of(const struct kind *k, int is_nll)
{
    return is_nll ? &k->nll : &k->depth;
}

static void draw_dots(struct sheet *s, struct panel *p, const struct groups *set,
                      const struct kinds *v, const int *kind, int n, int is_nll)
{
    double r = s->venue->line * 1.9, h = p->h / n;
    for (int i = 0; i < n; i++)
        for (int g = 0; g < set->n; g++) {
            const struct interval *x = value_of(&v[g].k[kind[i]], is_nll);
            double y = p->y + h * (i + 0.5 + 0.6 * ((g + 0.5) / set->n - 0.5));
            if (!isfinite(x->mean))
                continue;
            if (isfinite(x->lo) && axis_at(&p->ax, x->hi) - axis_at(&p->ax, x->lo) > 2 * r)
                panel_whisker(s, p, axis_at(&p->ax, x->lo), y, axis_at(&p->ax, x->hi), y,
                              sheet_series(s, g));
            sheet_marker(s, g, axis_at(&p->ax, x->mean), y, r, sheet_series(s, g), 0);
            panel_mark_box(p, axis_at(&p->ax, x->mean) - r, y - r, 2 * r, 2 * r);
        }
}

static void include(struct panel *p, const struct groups *set, const struct kinds *v,
                    const int *kind, int n, int is_nll)
{
    axis_reset(&p->ax);
    for (int i = 0; i < n; i++)
        for (int g = 0; g < set->n; g++) {
            const struct interval *x = value_of(&v[g].k[kind[i]], is_nll);
            axis_include(&p->ax, x->mean);
            axis_include(&p->ax, x->lo);
            axis_include(&p->ax, x->hi);
        }
    axis_pad(&p->ax, 0.1);
    p->ay = (struct axis){.lo = 0, .hi = 1};
}

/* Class names at the left once, then depth and loss side by side. */
static void draw_panels(struct sheet *s, struct panel *p, const struct groups *set,
                        const struct kinds *v, const int *kind, int n, int panels)
{
    double small = s->venue->small, names = 0, wide, h;
    char name[RUN_CLASSES][64], depth[64];
    for (int i = 0; i < n; i++) {
        char count[24];
        number_format(count, sizeof count, v[0].k[kind[i]].tokens, 0);
        snprintf(name[i], sizeof name[i], set->n == 1 ? "%s (%s)" : "%s", runview_class(kind[i]),
                 count);
        names = fmax(names, glyph_width(name[i], small));
    }
    wide = (s->width - names - small) / panels;
    h = n * small * fmax(1.7, set->n * 1.1) + s->venue->base * 4;
    h += set->n > 1 ? small * 1.5 * set->n : 0;
    for (int i = 0; set->n > 1 && i < set->n; i++)
        panel_entry(&p[0], set->g[i].label, sheet_series(s, i), 0, i, 0);
    s->legend_above = set->n > 1;
    snprintf(depth, sizeof depth, "Mean depth (%s)", sheet_depth_unit(s, -1));
    for (int k = 0; k < panels; k++) {
        include(&p[k], set, v, kind, n, k);
        p[k].x_label = k ? "Mean loss (nats)" : depth;
        panel_layout(s, &p[k], names + small * 0.5 + k * wide, 0, wide, h);
        p[k].y = p[0].y; /* the second panel has no legend above it */
        p[k].h = p[0].h;
        p[k].ay.ticks = 0;
        panel_axes(s, &p[k]);
        draw_dots(s, &p[k], set, v, kind, n, k);
        panel_legend(s, &p[k]);
    }
    for (int i = 0; i < n; i++)
        sheet_text(s, p[0].x - 5, p[0].y + p[0].h * (i + 0.5) / n, TEXT_RIGHT, TEXT_MIDDLE, 1,
                   sheet_colour(s, ROLE_TEXT), name[i]);
    s->height = h;
}

static void note(struct sheet *s, const struct groups *set, int n)
{
    int lo = set->g[0].runs, hi = lo;
    for (int g = 1; g < set->n; g++) {
        lo = set->g[g].runs < lo ? set->g[g].runs : lo;
        hi = set->g[g].runs > hi ? set->g[g].runs : hi;
    }
    if (set->n == 1)
        sheet_note(s, "Shown: %s; number of tokens in brackets.", set->g[0].label);
    if (hi == 1)
        sheet_note(s, "Bars: 95 %% confidence interval of the mean over the tokens of one seed, "
                      "assumed independent.");
    else if (lo > 1)
        sheet_note(s,
                   "Mean over up to n = %d seeds; bars: 95 %% confidence interval (Student's t) "
                   "over seeds.",
                   hi);
    else
        sheet_note(s,
                   "Bars: 95 %% confidence interval (Student's t) over up to n = %d seeds; for "
                   "single runs over tokens, assumed independent.",
                   hi);
    if (n < RUN_CLASSES)
        sheet_note(s, "Classes with fewer than %d tokens are not shown.", LEAST_TOKENS);
}

static int draw(struct sheet *s, struct err *e)
{
    struct groups set;
    int kind[RUN_CLASSES], n = 0, panels = 2, rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    struct kinds *v = mem_alloc((size_t)set.n, sizeof *v);
    struct panel *p = mem_alloc(2, sizeof *p);
    if (!v || !p)
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0)
        rc = groups_check(&set, s, GROUPS_MAX, e);
    for (int g = 0; rc == 0 && g < set.n; g++) {
        rc = take(s, &set.g[g], &v[g], e);
        panels = rc == 0 && !v[g].has_nll ? 1 : panels;
    }
    if (rc == 0 && (n = order(v, set.n, kind)) == 0)
        rc = sheet_fail(s, 0, e, "sample 'val': no class has at least %d tokens", LEAST_TOKENS);
    if (rc == 0) {
        draw_panels(s, p, &set, v, kind, n, panels);
        note(s, &set, n);
    }
    mem_free(v);
    mem_free(p);
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_category_depth = {
    .name = "category_depth",
    .title = "Depth and loss by token class",
    .needs = "sample 'val': class, depth; optional: nll",
    .draw = draw,
};
