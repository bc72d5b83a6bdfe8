/* Confidence of the router: histogram of the soft gates of routed cells, with a line at 0.5. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6, BINS = 25 };

struct gates {
    double *v, *share; /* all gates; share above 0.5 per run */
    size_t n;
    int texts;
    const struct probe *caveat; /* a probe that needs a note, or NULL */
};

/* A layer where every gate is 1 is always on. */
static int is_routed(const struct matrix *gate, int l)
{
    for (int t = 0; t < gate->cols; t++) {
        double g = (double)gate->v[l * gate->cols + t];
        if (isfinite(g) && g != 1)
            return 1;
    }
    return 0;
}

/* 1 where the router did not decide: forced cells, and tokens that had exited. */
static int is_set(const struct probe *p, const char *cell, const struct matrix *gate, int i)
{
    const struct matrix *m = probe_cell(p, cell);
    return m && m->rows == gate->rows && m->cols == gate->cols && m->v[i] == 1;
}

static int take_probe(struct gates *g, const struct probe *p, const struct matrix *gate,
                      double *above, size_t *cells)
{
    size_t room = (size_t)gate->rows * (size_t)gate->cols;
    double *v = mem_realloc(g->v, g->n + room + 1, sizeof *v);
    if (!v)
        return DS_EMEM;
    g->v = v;
    for (int l = 0; l < gate->rows; l++)
        for (int t = 0, routed = is_routed(gate, l); routed && t < gate->cols; t++) {
            int i = l * gate->cols + t;
            if (!isfinite(gate->v[i]) || is_set(p, "forced", gate, i) ||
                is_set(p, "exited", gate, i) || (p->forced && p->forced[i] >= 0))
                continue;
            g->v[g->n++] = (double)gate->v[i];
            *above += (double)gate->v[i] > 0.5;
            ++*cells;
        }
    return 0;
}

static int take_run(struct sheet *s, struct gates *g, int run, int place, struct err *e)
{
    const struct probe *p;
    double above = 0;
    size_t cells = 0;
    if (!data_probe(s, run, 0))
        return sheet_fail(s, run, e, "no record 'probe' (needs its cell 'gate')");
    for (int i = 0; (p = data_probe(s, run, i)) != NULL; i++) {
        const struct matrix *gate = probe_cell(p, "gate");
        if (!gate)
            return sheet_fail(s, run, e, "record 'probe' of text '%s' has no cell 'gate'",
                              p->name ? p->name : "");
        data_hash(s, "gate", gate->v, (size_t)gate->rows * (size_t)gate->cols * sizeof *gate->v);
        if (take_probe(g, p, gate, &above, &cells) < 0)
            return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
        g->texts++;
        g->caveat = *probe_caveat(p) ? p : g->caveat;
    }
    if (cells == 0)
        return sheet_fail(s, run, e,
                          "record 'probe': no cell of 'gate' was decided by the router: all are "
                          "always on, after an exit or not finite");
    g->share[place] = above / (double)cells;
    return 0;
}

static void draw_bars(struct sheet *s, struct panel *p, const double *share, double width, int rgb)
{
    for (int i = 0; i < BINS; i++) {
        double x0 = axis_at(&p->ax, p->ax.lo + i * width),
               x1 = axis_at(&p->ax, p->ax.lo + (i + 1) * width), y = axis_at(&p->ay, share[i]);
        if (share[i] <= 0)
            continue;
        pen_box(s->pen, x0 + 0.3, y, x1 - x0 - 0.6, p->y + p->h - y, sheet_tint(s, rgb, 0.6), 1);
        panel_mark_box(p, x0, y, x1 - x0, p->y + p->h - y);
    }
}

/* "0.62 [0.60, 0.64] above 0.5; n = 3,072 cells" */
static void result_text(const struct gates *g, int runs, char *out, size_t size)
{
    char mean[24], lo[24], hi[24], n[32], range[64] = "";
    struct interval v = stat_interval(g->share, (size_t)runs);
    number_format(mean, sizeof mean, v.mean, 3);
    number_format(lo, sizeof lo, v.lo, 3);
    number_format(hi, sizeof hi, v.hi, 3);
    number_format(n, sizeof n, (double)g->n, 0);
    if (isfinite(v.lo))
        snprintf(range, sizeof range, " [%s, %s]", lo, hi);
    snprintf(out, size, "%s%s above 0.5; n = %s cells", mean, range, n);
}

static void draw_gates(struct sheet *s, const struct groups *set, int i, const struct gates *g,
                       struct panel *p)
{
    double share[BINS] = {0}, most = 0, lo = 0, hi = 1, box[4];
    for (size_t k = 0; k < g->n; k++) {
        lo = fmin(lo, g->v[k]);
        hi = fmax(hi, g->v[k]);
    }
    double width = (hi - lo) / BINS;
    for (size_t k = 0; k < g->n; k++)
        share[stat_bin(g->v[k], lo, width, BINS)] += 1 / (double)g->n;
    for (int k = 0; k < BINS; k++)
        most = fmax(most, share[k]);
    p->ax = (struct axis){.lo = lo, .hi = hi};
    p->ay = (struct axis){.lo = 0, .hi = most * 1.08};
    p->x_label = "Soft gate";
    p->y_label = "Share of routed cells";
    result_text(g, set->g[i].runs, p->sub, sizeof p->sub);
    if (set->n > 1)
        str_copy(p->title, sizeof p->title, set->g[i].label);
    s->height = panel_grid(s, set->n, 2, 0.62, i, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    panel_axes(s, p);
    draw_bars(s, p, share, width, sheet_series(s, 0));
    panel_rule(s, p, 0.5, 1, sheet_series(s, 1), 1);
}

static int draw_panel(struct sheet *s, const struct groups *set, int i, struct err *e)
{
    const struct group *g = &set->g[i];
    struct panel *p = mem_alloc(1, sizeof *p);
    struct gates all = {.share = mem_alloc((size_t)g->runs, sizeof *all.share)};
    int rc = p && all.share ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int k = 0; rc == 0 && k < g->runs; k++)
        rc = take_run(s, &all, g->run[k], k, e);
    if (rc == 0) {
        draw_gates(s, set, i, &all, p);
        sheet_note(s, "%s%s%d probe text%s, %d seed%s.", set->n > 1 ? g->label : "",
                   set->n > 1 ? ": " : "", all.texts, all.texts == 1 ? "" : "s", g->runs,
                   g->runs == 1 ? "" : "s");
        if (all.caveat)
            strips_caveat(s, all.caveat);
    }
    mem_free(all.v);
    mem_free(all.share);
    mem_free(p);
    return rc;
}

static int draw(struct sheet *s, struct err *e)
{
    char step[40];
    int rc = groups_draw(s, PANELS_MAX, draw_panel, NULL, e);
    data_step_words(s, step, sizeof step);
    if (rc == 0)
        sheet_note(s,
                   "Gates of the newest probe of each text%s, without always-on layers and tokens "
                   "that had exited; dashed: 0.5.",
                   step);
    return rc;
}

const struct figure_ops figure_router_hist = {
    .name = "router_hist",
    .title = "Soft gates of the router and the share above 0.5",
    .needs = "records 'probe': cell 'gate'",
    .options = FIGURE_STEP,
    .draw = draw,
};
