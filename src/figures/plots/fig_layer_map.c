/* Share of tokens executed in each layer per position of the sequence. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6, CELLS_MAX = 1 << 20 };

struct map {
    double *v;
    int layers, positions;
};

/* Mean of the group's maps; every run must have the same shape. */
static int gather(struct sheet *s, const struct group *g, struct map *m, struct err *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < g->runs; i++) {
        const struct vector *v;
        double positions;
        int layers;
        rc = data_layers(s, g->run[i], &layers, e);
        if (rc == 0)
            rc = data_eval(s, g->run[i], "map_positions", &positions, e);
        if (rc == 0)
            rc = data_eval_vector(s, g->run[i], "map", &v, e);
        if (rc < 0)
            return rc;
        if (!(positions >= 1 && positions <= CELLS_MAX) || (double)v->n != layers * positions)
            return sheet_fail(
                s, g->run[i], e,
                "eval 'final': 'map' has %d values, not layers x map_positions = %d x %g", v->n,
                layers, positions);
        if (m->v && (m->layers != layers || m->positions != (int)positions))
            return sheet_fail(s, g->run[i], e,
                              "its map is %d x %g, that of the other seeds %d x %d", layers,
                              positions, m->layers, m->positions);
        if (!m->v && !(m->v = mem_alloc((size_t)v->n, sizeof *m->v)))
            return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
        m->layers = layers;
        m->positions = (int)positions;
        for (int k = 0; k < v->n; k++)
            m->v[k] += (double)v->v[k] / g->runs;
    }
    return rc;
}

/* Adjacent cells of one colour in a row become one box, which extends under its right and lower
 * neighbours, so that no seam is visible. */
static void draw_cells(struct sheet *s, const struct panel *p, const struct map *m)
{
    double h = p->h / m->layers;
    for (int l = 0; l < m->layers; l++)
        for (int a = 0, b; a < m->positions; a = b) {
            int rgb = cmap_rgb(s->theme.sequential, m->v[l * m->positions + a]);
            for (b = a + 1; b < m->positions &&
                            cmap_rgb(s->theme.sequential, m->v[l * m->positions + b]) == rgb;
                 b++)
                ;
            double x0 = p->x + p->w * a / m->positions, x1 = p->x + p->w * b / m->positions;
            double more_x = b < m->positions ? 0.25 : 0, more_y = l + 1 < m->layers ? 0.25 : 0;
            if (rgb < 0) /* never measured: background, crossed out */
                continue;
            pen_box(s->pen, x0, p->y + l * h, x1 - x0 + more_x, h + more_y, rgb, 1);
        }
}

static int draw_bounds(struct sheet *s, const struct panel *p, int run, int layers)
{
    const struct runview *v = s->run[run].view;
    int early = 0, late = layers, n = 0;
    while (early < layers && runview_always_on(v, early))
        early++;
    while (late > early && runview_always_on(v, late - 1))
        late--;
    int at[2] = {early, late};
    for (int i = 0; i < 2; i++) {
        if (at[i] <= 0 || at[i] >= layers)
            continue;
        double y = p->y + p->h * at[i] / layers;
        pen_colour(s->pen, s->background, 1);
        pen_width(s->pen, s->venue->line * 1.3);
        pen_dash(s->pen, NULL, 0);
        pen_segment(s->pen, p->x, y, p->x + p->w, y);
        pen_colour(s->pen, sheet_colour(s, ROLE_TEXT), 1);
        pen_width(s->pen, s->venue->line * 0.7);
        sheet_dash(s, 1);
        pen_segment(s->pen, p->x, y, p->x + p->w, y);
        pen_dash(s->pen, NULL, 0);
        n++;
    }
    return n;
}

static int draw_panel(struct sheet *s, const struct group *g, int i, int n, int *bounds,
                      struct err *e)
{
    struct map m = {0};
    struct panel *p = mem_alloc(1, sizeof *p);
    double box[4], missing = 0;
    int rc =
        p ? gather(s, g, &m, e) : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc < 0)
        goto out;
    for (int k = 0; k < m.layers * m.positions; k++)
        missing += isfinite(m.v[k]) ? 0 : 1;
    p->ax = (struct axis){.lo = 0, .hi = m.positions};
    p->ay = (struct axis){.lo = -m.layers + 0.5, .hi = 0.5};
    p->x_label = "Position in the sequence";
    p->y_label = sheet_layer_label(s, g->run[0], m.layers);
    p->no_grid = 1;
    p->ticks_whole_x = p->ticks_whole_y = 1;
    struct axis scale = {.lo = 0, .hi = 1};
    p->right = panel_bar_room(s, &scale);
    if (n > 1)
        str_copy(p->title, sizeof p->title, g->label);
    s->height = panel_grid(s, n, 2, 0.62, i, box);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    /* Layer 0 is at the top: the axis is negated and its labels drop the sign. */
    for (int t = 0; t < p->ay.ticks; t++)
        number_format(p->ay.tick[t].text, sizeof p->ay.tick[t].text, fabs(p->ay.tick[t].value), 0);
    draw_cells(s, p, &m);
    *bounds += draw_bounds(s, p, g->run[0], m.layers);
    panel_axes(s, p);
    panel_colour_bar(s, p, &scale, "gate rate");
    if (missing > 0)
        sheet_note(s, "%.0f cells were never measured and are left empty.", missing);
out:
    mem_free(m.v);
    mem_free(p);
    return rc;
}

static int draw(struct sheet *s, struct err *e)
{
    struct groups set;
    int bounds = 0, seeds = 0, rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    if (set.n > PANELS_MAX)
        rc = err_set(e, DS_EUSAGE,
                     "figure %s: too many different experiments, %d: expected at most %d",
                     s->ops->name, set.n, PANELS_MAX);
    for (int i = 0; rc == 0 && i < set.n; i++) {
        rc = draw_panel(s, &set.g[i], i, set.n, &bounds, e);
        seeds = set.g[i].runs > seeds ? set.g[i].runs : seeds;
    }
    if (rc == 0) {
        if (set.n == 1)
            sheet_note(s, "Shown: %s.", set.g[0].label);
        const char *word = sheet_layer_word(s, 0, s->run[0].view->layers);
        sheet_note(s, "Share of validation tokens executed in each %s per position; %s%d seed%s.",
                   word, seeds > 1 ? "mean over up to " : "", seeds, seeds > 1 ? "s" : "");
        if (bounds > 0)
            sheet_note(s, "Dashed: bounds of the always-on %ss.", word);
    }
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_layer_map = {
    .name = "layer_map",
    .title = "Gate rate by layer and position",
    .needs = "eval 'final': map (layers x positions), map_positions; head: layers",
    .draw = draw,
};
