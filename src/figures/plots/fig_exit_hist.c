/* Layers before which tokens exit, and the share that never exits: counted in the probes, or else
 * from the exit rates logged in training. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6, LAYERS_MAX = 1024 };

/* share (layers + 1, runs): tokens that exited before each layer; the last row: never. */
struct exits {
    double *share;
    int layers, runs;
    size_t tokens;
    int64_t step;
};

static double *share_at(const struct exits *x, int l, int run)
{
    return &x->share[(size_t)l * (size_t)x->runs + (size_t)run];
}

static int has_cells(const struct sheet *s, const struct group *g)
{
    const struct probe *p;
    for (int r = 0; r < g->runs; r++) {
        if (!data_probe(s, g->run[r], 0))
            return 0;
        for (int i = 0; (p = data_probe(s, g->run[r], i)) != NULL; i++)
            if (!probe_cell(p, "exited"))
                return 0;
    }
    return 1;
}

static int room(struct sheet *s, struct exits *x, int run, int layers, struct err *e)
{
    if (x->share && x->layers == layers)
        return 0;
    if (x->share || layers < 1 || layers > LAYERS_MAX)
        return sheet_fail(s, run, e, "exits of %d layers, expected %d as in the other runs", layers,
                          x->layers);
    x->layers = layers;
    x->share = mem_alloc((size_t)(layers + 1) * (size_t)x->runs, sizeof *x->share);
    return x->share ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
}

static int take_probes(struct sheet *s, struct exits *x, int run, int place, struct err *e)
{
    const struct probe *p;
    size_t n = 0;
    int rc = 0;
    for (int i = 0; rc == 0 && (p = data_probe(s, run, i)) != NULL; i++) {
        const struct matrix *m = probe_cell(p, "exited");
        rc = room(s, x, run, m->rows, e);
        if (rc < 0)
            return rc;
        data_hash(s, "exited", m->v, (size_t)m->rows * (size_t)m->cols * sizeof *m->v);
        for (int t = 0; t < m->cols; t++) {
            int l = data_exit_layer(m, t);
            *share_at(x, l < 0 ? x->layers : l, place) += 1;
        }
        n += (size_t)m->cols;
    }
    for (int l = 0; n > 0 && l <= x->layers; l++)
        *share_at(x, l, place) /= (double)n;
    x->tokens += n;
    return 0;
}

/* The newest record of the layer metric. */
static int take_rates(struct sheet *s, struct exits *x, int run, int place, struct err *e)
{
    const struct layer_series *v = runview_layer(s->run[run].view, "exit_rate");
    if (!v || v->n == 0)
        return sheet_fail(s, run, e,
                          "no record 'probe' has the cell 'exited' and no record 'layer' has "
                          "'exit_rate'");
    int rc = room(s, x, run, v->layers, e);
    if (rc < 0)
        return rc;
    size_t n = v->n;
    while (n > 0 && v->step[n - 1] > data_last_step(s))
        n--;
    if (n == 0)
        return sheet_fail(s, run, e, "no record 'layer' with 'exit_rate' up to step %lld",
                          (long long)s->opt.step);
    const float *at = v->value + (n - 1) * (size_t)v->layers;
    double left = 0;
    for (int l = 0; l < v->layers; l++) {
        *share_at(x, l, place) = isfinite(at[l]) ? (double)at[l] : 0;
        left += *share_at(x, l, place);
    }
    *share_at(x, v->layers, place) = fmax(0, 1 - left);
    x->step = v->step[n - 1];
    data_hash(s, "exit_rate", at, (size_t)v->layers * sizeof *at);
    return 0;
}

static void draw_bars(struct sheet *s, struct panel *p, const struct exits *x)
{
    double w = (axis_at(&p->ax, 1) - axis_at(&p->ax, 0)) * 0.7;
    for (int l = 0; l <= x->layers; l++) {
        struct interval v = stat_interval(share_at(x, l, 0), (size_t)x->runs);
        /* "never" is separated from the layers */
        double at = axis_at(&p->ax, l == x->layers ? x->layers + 0.5 : l);
        double y = axis_at(&p->ay, v.mean);
        int rgb = l == x->layers ? sheet_colour(s, ROLE_FORCED) : sheet_series(s, 0);
        if (!(v.mean > 0))
            continue;
        pen_box(s->pen, at - w / 2, y, w, p->y + p->h - y, sheet_tint(s, rgb, 0.7), 1);
        if (isfinite(v.lo))
            panel_whisker(s, p, at, axis_at(&p->ay, v.lo), at, axis_at(&p->ay, v.hi), rgb);
        panel_mark_box(p, at - w / 2, y, w, p->y + p->h - y);
    }
}

static void draw_exits(struct sheet *s, const struct groups *set, int i, const struct exits *x,
                       struct panel *p)
{
    double most = 0, box[4];
    char x_label[40];
    for (int l = 0; l <= x->layers; l++) {
        struct interval v = stat_interval(share_at(x, l, 0), (size_t)x->runs);
        most = fmax(most, isfinite(v.hi) ? fmin(v.hi, 1) : v.mean);
    }
    p->ax = (struct axis){.lo = -0.7, .hi = x->layers + 1.2};
    p->ay = (struct axis){.lo = 0, .hi = most * 1.08};
    snprintf(x_label, sizeof x_label, "Exited before %s",
             sheet_layer_word(s, set->g[i].run[0], x->layers));
    p->x_label = x_label;
    p->y_label = "Share of tokens";
    p->ticks_whole_x = 1;
    panel_entry(p, "exited", sheet_tint(s, sheet_series(s, 0), 0.7), 0, -1, 0);
    panel_entry(p, "never exited", sheet_tint(s, sheet_colour(s, ROLE_FORCED), 0.7), 0, -1, 0);
    if (set->n > 1)
        str_copy(p->title, sizeof p->title, set->g[i].label);
    s->height = panel_grid(s, set->n, 2, 0.62, i, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    for (int t = 0; t < p->ax.ticks; t++) /* the position of "never" is not a layer */
        if (p->ax.tick[t].value >= x->layers)
            p->ax.ticks = t;
    panel_axes(s, p);
    draw_bars(s, p, x);
    panel_legend(s, p);
}

static int draw_panel(struct sheet *s, const struct groups *set, int i, struct err *e)
{
    const struct group *g = &set->g[i];
    struct exits x = {.runs = g->runs};
    struct panel *p = mem_alloc(1, sizeof *p);
    int cells = has_cells(s, g),
        rc = p ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int k = 0; rc == 0 && k < g->runs; k++)
        rc = (cells ? take_probes : take_rates)(s, &x, g->run[k], k, e);
    if (rc == 0) {
        char n[32], step[40];
        draw_exits(s, set, i, &x, p);
        number_format(n, sizeof n, (double)x.tokens, 0);
        data_step_words(s, step, sizeof step);
        if (set->n > 1)
            sheet_note(s, "%s:", g->label);
        if (cells)
            sheet_note(s, "n = %s tokens of the newest probes%s, %d seed%s.", n, step, g->runs,
                       g->runs == 1 ? "" : "s");
        else
            sheet_note(s, "Exit rates of training at step %lld, %d seed%s.", (long long)x.step,
                       g->runs, g->runs == 1 ? "" : "s");
    }
    mem_free(x.share);
    mem_free(p);
    return rc;
}

static void note(struct sheet *s, const struct groups *set)
{
    if (set->n < s->runs)
        sheet_note(s, "Bars: mean over seeds; whiskers: 95 %% confidence interval (Student's t).");
}

static int draw(struct sheet *s, struct err *e)
{
    return groups_draw(s, PANELS_MAX, draw_panel, note, e);
}

const struct figure_ops figure_exit_hist = {
    .name = "exit_hist",
    .title = "Layers before which tokens exited",
    .needs = "records 'probe': cell 'exited'; or layer metric exit_rate",
    .options = FIGURE_STEP,
    .draw = draw,
};
