/* Share of tokens skipped in each layer, with the layers that skip none marked. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6 };

/* 1 - capacity, in percent. */
static struct interval skipped(const struct interval *c)
{
    return (struct interval){
        .mean = 100 * (1 - c->mean), .lo = 100 * (1 - c->hi), .hi = 100 * (1 - c->lo), .n = c->n};
}

static int skips_none(const struct interval *c)
{
    return c->mean >= 1;
}

static void draw_bars(struct sheet *s, struct panel *p, const struct interval *c, int layers)
{
    double w = (axis_at(&p->ax, 1) - axis_at(&p->ax, 0)) * 0.7, r = fmin(s->venue->line * 1.6, w);
    for (int l = 0; l < layers; l++) {
        struct interval v = skipped(&c[l]);
        double x = axis_at(&p->ax, l), y = axis_at(&p->ay, v.mean);
        if (!isfinite(v.mean))
            continue;
        if (skips_none(&c[l])) {
            y = p->y + p->h - r * 1.6;
            sheet_marker(s, 3, x, y, r, sheet_colour(s, ROLE_REFERENCE), 0);
            panel_mark_box(p, x - r, y - r, 2 * r, 2 * r);
            continue;
        }
        pen_box(s->pen, x - w / 2, y, w, p->y + p->h - y, sheet_tint(s, sheet_series(s, 0), 0.65),
                1);
        panel_mark_box(p, x - w / 2, y, w, p->y + p->h - y);
        if (isfinite(v.lo))
            panel_whisker(s, p, x, axis_at(&p->ay, v.lo), x, axis_at(&p->ay, v.hi),
                          sheet_series(s, 0));
    }
}

static void result_text(const struct interval *c, int layers, const char *word, char *out,
                        size_t size)
{
    double sum = 0;
    int on = 0, known = 0;
    char mean[24];
    for (int l = 0; l < layers; l++) {
        if (!isfinite(c[l].mean)) /* not measured */
            continue;
        sum += skipped(&c[l]).mean;
        on += skips_none(&c[l]);
        known++;
    }
    number_format(mean, sizeof mean, sum / known, 1);
    snprintf(out, size, "mean over %s%ss %s %%; %d of %d %ss skip no token",
             known < layers ? "measured " : "", word, mean, on, known, word);
}

static int draw_panel(struct sheet *s, const struct groups *set, int i, struct err *e)
{
    struct interval *c = NULL;
    struct panel *p = mem_alloc(1, sizeof *p);
    double box[4];
    int layers = 0, on = 0;
    int rc = p ? group_eval_vector(s, &set->g[i], "capacity", &c, &layers, e)
               : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0) {
        p->ax = (struct axis){.lo = -0.6, .hi = layers - 0.4};
        p->ay = (struct axis){.lo = 0, .hi = 100};
        p->x_label = sheet_layer_label(s, set->g[i].run[0], layers);
        p->y_label = "Tokens skipped (%)";
        p->ticks_whole_x = 1;
        for (int l = 0; l < layers; l++)
            on |= skips_none(&c[l]);
        if (on)
            panel_entry(p, "no token skipped", sheet_colour(s, ROLE_REFERENCE), 0, 3, 0);
        panel_entry(p, "50 %", sheet_colour(s, ROLE_REFERENCE), 1, -1, 1);
        result_text(c, layers, sheet_layer_word(s, set->g[i].run[0], layers), p->sub,
                    sizeof p->sub);
        if (set->n > 1)
            str_copy(p->title, sizeof p->title, set->g[i].label);
        s->height = panel_grid(s, set->n, 2, 0.66, i, box);
        panel_layout(s, p, box[0], box[1], box[2], box[3]);
        panel_axes(s, p);
        draw_bars(s, p, c, layers);
        panel_rule(s, p, 50, 0, sheet_colour(s, ROLE_REFERENCE), 1);
        panel_legend(s, p);
    }
    mem_free(c);
    mem_free(p);
    return rc;
}

static void note(struct sheet *s, const struct groups *set)
{
    int seeds = 1;
    for (int i = 0; i < set->n; i++)
        seeds = set->g[i].runs > seeds ? set->g[i].runs : seeds;
    if (seeds > 1)
        sheet_note(
            s,
            "Bars: mean over up to n = %d seeds; whiskers: 95 %% confidence interval (Student's "
            "t) of the mean.",
            seeds);
    else
        sheet_note(s, "One seed: no confidence interval.");
    sheet_note(s, "Causal decisions on validation text.");
}

static int draw(struct sheet *s, struct err *e)
{
    return groups_draw(s, PANELS_MAX, draw_panel, note, e);
}

const struct figure_ops figure_layer_skip = {
    .name = "layer_skip",
    .title = "Share of tokens skipped in each layer",
    .needs = "eval 'final': capacity",
    .draw = draw,
};
