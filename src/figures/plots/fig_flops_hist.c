/* FLOPs per token as a fraction of dense: histogram, density, mean, dense line and dip test. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "figures/dip.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6, POINTS = 256, BINS_MAX = 200, DIP_MAX = 4000, DIP_ROUNDS = 500 };

struct costs {
    double *v, *depth;
    size_t n, dropped;
    int has_depth;
};

static int gather(struct sheet *s, const struct group *g, struct costs *c, struct err *e)
{
    c->has_depth = 1;
    for (int i = 0; i < g->runs; i++) {
        const struct vector *flops, *depth = NULL;
        double dense;
        int rc = data_column(s, g->run[i], "flops", &flops, e);
        if (rc == 0)
            rc = data_flops_dense(s, g->run[i], &dense, e);
        if (rc < 0)
            return rc;
        if (data_column(s, g->run[i], "depth", &depth, NULL) < 0 || depth->n != flops->n)
            c->has_depth = 0;
        double *v = mem_realloc(c->v, c->n + (size_t)flops->n + 1, sizeof *v);
        c->v = v ? v : c->v;
        double *d = mem_realloc(c->depth, c->n + (size_t)flops->n + 1, sizeof *d);
        c->depth = d ? d : c->depth;
        if (!v || !d)
            return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
        for (int k = 0; k < flops->n; k++)
            if (isfinite(flops->v[k])) {
                c->depth[c->n] = c->has_depth ? (double)depth->v[k] : 0;
                c->v[c->n++] = (double)flops->v[k] / dense;
            } else
                c->dropped++;
    }
    if (c->n < 4)
        return sheet_fail(s, g->run[0], e,
                          "sample 'val': column 'flops' has fewer than 4 finite values");
    return 0;
}

/* Cost of one more layer as a fraction of dense: the slope of cost over depth; 0 when depth is
 * unknown. */
static double layer_cost(const struct costs *c)
{
    double mx = 0, my = 0, sxx = 0, sxy = 0;
    if (!c->has_depth)
        return 0;
    mx = stat_mean(c->depth, c->n);
    my = stat_mean(c->v, c->n);
    for (size_t i = 0; i < c->n; i++) {
        sxx += (c->depth[i] - mx) * (c->depth[i] - mx);
        sxy += (c->depth[i] - mx) * (c->v[i] - my);
    }
    return sxx > 0 && sxy > 0 ? sxy / sxx : 0;
}

struct shape {
    double lo, hi, width, density[BINS_MAX], kde[POINTS], bandwidth, mean, sd, dip, p, layer;
    struct density_range curve;
    int bins, is_constant;
    size_t tested;
};

/* Depth is an integer, and a discrete distribution is never unimodal: the test uses costs jittered
 * by the width of one layer, so that only modes wider than that count; where the depth does not
 * vary, costs still differ by position, and the width is that of a bin. */
static int dip_test(const struct costs *c, struct shape *h, struct err *e)
{
    size_t n = c->n < DIP_MAX ? c->n : DIP_MAX;
    double jitter = h->layer > 0 ? h->layer : h->width;
    double *x = mem_alloc(n, sizeof *x);
    struct rng r;
    if (!x)
        return err_set(e, DS_EMEM, "dip test: out of memory");
    rng_init(&r, 1, RNG_BOOT, 2, (uint32_t)c->n);
    for (size_t i = 0; i < n; i++) {
        size_t k = c->n <= DIP_MAX ? i : rng_below(&r, (uint32_t)c->n);
        x[i] = c->v[k] + (rng_uniform(&r) - 0.5) * jitter;
    }
    stat_sort(x, n);
    h->tested = n;
    int rc = dip_statistic(x, n, &h->dip, e);
    if (rc == 0)
        rc = dip_p(h->dip, n, DIP_ROUNDS, 1, &h->p, e);
    mem_free(x);
    return rc;
}

/* The support of the density: from 0 to dense, or to the highest cost of the sample, since
 * position and router can make a token more expensive than dense.  Costs by position alone end with
 * the bin: mirrored at the last of them, it would count twice. */
static struct density_range support(double highest, const struct shape *h)
{
    struct density_range d = {.least = 0, .most = fmax(1, h->layer > 0 ? highest : h->hi)};
    d.lo = fmax(h->lo - h->width, d.least);
    d.hi = fmin(h->hi + h->width, d.most);
    return d;
}

/* Bins of one width; where costs are evenly spaced (one per position), of equally many costs. */
static int even_bins(const struct costs *c, struct shape *h, double lo, double hi, struct err *e)
{
    enum { USUAL = 40 };
    size_t gaps = 0;
    double most = 0, *x = mem_alloc(c->n, sizeof *x);
    if (!x)
        return err_set(e, DS_EMEM, "figure flops_hist: out of memory");
    memcpy(x, c->v, c->n * sizeof *x);
    stat_sort(x, c->n);
    for (size_t i = 1; i < c->n; i++) {
        gaps += x[i] > x[i - 1];
        most = fmax(most, x[i] - x[i - 1]);
    }
    mem_free(x);
    double apart = (hi - lo) / (double)gaps;
    int is_even = most < 1.5 * apart;
    h->width = is_even ? apart * ceil((double)gaps / USUAL) : (hi - lo) / USUAL;
    h->lo = lo - (is_even ? apart : h->width) / 2;
    return 0;
}

/* Bins are centred on the mean cost of each depth, so that no depth is split between two bins. */
static void layer_bins(const struct costs *c, struct shape *h, double lo, double hi)
{
    h->width = h->layer;
    while ((hi - lo) / h->width > BINS_MAX - 4)
        h->width *= 2;
    double d0 = h->mean - h->layer * stat_mean(c->depth, c->n);
    h->lo = d0 + (floor((lo - d0) / h->width + 0.5) - 0.5) * h->width;
}

static int measure(const struct costs *c, struct shape *h, struct err *e)
{
    double lo = c->v[0], hi = c->v[0];
    for (size_t i = 0; i < c->n; i++) {
        lo = fmin(lo, c->v[i]);
        hi = fmax(hi, c->v[i]);
    }
    h->mean = stat_mean(c->v, c->n);
    h->sd = stat_sd(c->v, c->n);
    h->layer = layer_cost(c);
    h->is_constant = !(hi - lo > 1e-9 * fabs(hi));
    if (h->is_constant)
        return 0;
    if (h->layer > 0)
        layer_bins(c, h, lo, hi);
    else if (even_bins(c, h, lo, hi, e) < 0)
        return DS_EMEM;
    h->bins = (int)floor((hi - h->lo) / h->width) + 1;
    for (size_t i = 0; i < c->n; i++)
        h->density[stat_bin(c->v[i], h->lo, h->width, h->bins)] += 1 / ((double)c->n * h->width);
    h->hi = h->lo + h->bins * h->width;
    double silverman = 1.06 * h->sd * pow((double)c->n, -0.2);
    h->bandwidth = fmax(silverman, 0.5 * h->layer);
    h->curve = support(hi, h);
    stat_kde(c->v, c->n, h->bandwidth, &h->curve, h->kde, POINTS);
    return dip_test(c, h, e);
}

static void draw_bins(struct sheet *s, struct panel *p, const struct shape *h)
{
    int rgb = sheet_series(s, 0);
    for (int i = 0; i < h->bins; i++) {
        double x0 = axis_at(&p->ax, h->lo + i * h->width),
               x1 = axis_at(&p->ax, h->lo + (i + 1) * h->width);
        double y = axis_at(&p->ay, h->density[i]), gap = fmin(0.5, (x1 - x0) * 0.08);
        if (h->density[i] <= 0)
            continue;
        pen_box(s->pen, x0 + gap, y, x1 - x0 - 2 * gap, p->y + p->h - y, sheet_tint(s, rgb, 0.38),
                1);
        panel_mark_box(p, x0, y, x1 - x0, p->y + p->h - y);
    }
}

static void draw_density(struct sheet *s, struct panel *p, const struct shape *h)
{
    double x[POINTS];
    for (int i = 0; i < POINTS; i++)
        x[i] = h->curve.lo + (h->curve.hi - h->curve.lo) * i / (POINTS - 1);
    pen_colour(s->pen, sheet_series(s, 0), 1);
    pen_width(s->pen, s->venue->line);
    pen_dash(s->pen, NULL, 0);
    panel_line(s, p, x, h->kde, POINTS);
}

static void ranges(struct panel *p, const struct shape *h)
{
    double most = 0;
    for (int i = 0; i < h->bins; i++)
        most = fmax(most, h->density[i]);
    for (int i = 0; i < POINTS; i++)
        most = fmax(most, h->kde[i]);
    axis_reset(&p->ax);
    axis_include(&p->ax, h->lo - h->width);
    axis_include(&p->ax, h->hi + h->width);
    axis_include(&p->ax, 1);
    axis_pad(&p->ax, 0.03);
    p->ay = (struct axis){.lo = 0, .hi = most * 1.08};
}

static void dip_words(const struct shape *h, char *out, size_t size)
{
    char d[24], v[24], n[20];
    /* no simulated sample reached it: p is only known to be below 1 / rounds */
    int is_least = h->p <= 1.0 / (DIP_ROUNDS + 1) + 1e-12;
    number_format(d, sizeof d, h->dip, 3);
    number_format(n, sizeof n, is_least ? 1.0 / DIP_ROUNDS : h->p, 3);
    snprintf(v, sizeof v, "p %s %s", is_least ? "<" : "=", n);
    snprintf(out, size, "dip %s, %s: %s", d, v,
             h->p < 0.05 ? "more than one mode" : "unimodality not rejected");
}

/* Where answers alone count, the samples are of the tokens that predict one. */
static const char *kept_words(const struct sheet *s, const struct group *g)
{
    const char *loss = runview_config(s->run[g->run[0]].view, "data.loss");
    return loss && strcmp(loss, "answers") == 0 ? " that predict answers" : "";
}

static int draw_panel(struct sheet *s, const struct group *g, int i, int n, int *layered,
                      struct err *e)
{
    struct costs c = {0};
    struct panel *p = mem_alloc(1, sizeof *p);
    struct shape *h = mem_alloc(1, sizeof *h);
    char mean[24], text[120], count[32], dip[100];
    double box[4];
    int rc = p && h ? gather(s, g, &c, e)
                    : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0)
        rc = measure(&c, h, e);
    if (rc < 0)
        goto out;
    number_format(mean, sizeof mean, h->mean, 3);
    number_format(count, sizeof count, (double)c.n, 0);
    if (h->is_constant) {
        rc = sheet_fail(s, g->run[0], e,
                        "every token costs the same (%s of dense): expected different costs", mean);
        goto out;
    }
    ranges(p, h);
    p->x_label = "FLOPs per token (fraction of dense)";
    p->y_label = "Density of tokens";
    if (n > 1)
        str_copy(p->title, sizeof p->title, g->label);
    snprintf(text, sizeof text, "mean %s", mean);
    panel_entry(p, text, sheet_series(s, 1), 1, -1, 1);
    panel_entry(p, "dense", sheet_colour(s, ROLE_REFERENCE), 2, -1, 1);
    s->height = panel_grid(s, n, 2, 0.62, i, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    panel_axes(s, p);
    draw_bins(s, p, h);
    draw_density(s, p, h);
    panel_rule(s, p, h->mean, 1, sheet_series(s, 1), 1);
    panel_rule(s, p, 1, 1, sheet_colour(s, ROLE_REFERENCE), 2);
    panel_legend(s, p);
    dip_words(h, dip, sizeof dip);
    text[0] = '\0';
    if (h->tested < c.n) {
        number_format(mean, sizeof mean, (double)h->tested, 0);
        snprintf(text, sizeof text, " (tested on %s random tokens)", mean);
    }
    sheet_note(s, "%s: n = %s tokens%s, %d seed%s; %s%s.", g->label, count, kept_words(s, g),
               g->runs, g->runs == 1 ? "" : "s", dip, text);
    *layered += h->layer > 0;
    if (c.dropped > 0)
        sheet_note(s, "%zu tokens without a finite cost are omitted.", c.dropped);
out:
    mem_free(c.v);
    mem_free(c.depth);
    mem_free(p);
    mem_free(h);
    return rc;
}

static int draw(struct sheet *s, struct err *e)
{
    struct groups set;
    int layered = 0, rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    if (set.n > PANELS_MAX)
        rc = err_set(e, DS_EUSAGE,
                     "figure %s: too many different experiments, %d: expected at most %d",
                     s->ops->name, set.n, PANELS_MAX);
    for (int i = 0; rc == 0 && i < set.n; i++)
        rc = draw_panel(s, &set.g[i], i, set.n, &layered, e);
    if (rc == 0)
        sheet_note(s,
                   "Line: Gaussian kernel density. Hartigan's dip test, p from %d uniform samples, "
                   "costs jittered "
                   "uniformly within the width of one %s%s.",
                   DIP_ROUNDS, layered ? sheet_layer_word(s, 0, s->run[0].view->layers) : "bin",
                   layered && layered < set.n ? ", or bin where the depth does not vary" : "");
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_flops_hist = {
    .name = "flops_hist",
    .title = "FLOPs per token, with the dense line and a test for more than one mode",
    .needs = "sample 'val': flops (and depth); eval flops_dense_per_token (or head: flops_dense)",
    .draw = draw,
};
