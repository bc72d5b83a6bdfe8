/* How well the prior network predicts the residual stream: its loss over training, and its error
 * per layer where logged. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

typedef int take_fn(struct sheet *s, const struct group *g, const char *metric, struct curve *out,
                    struct err *e);

/* A panel of one metric on a log axis, one curve per group. */
static int draw_panel(struct sheet *s, const struct groups *set, take_fn *take, const char *metric,
                      const char *y_label, int i, int n, struct err *e)
{
    struct curve *c = mem_alloc((size_t)set->n, sizeof *c);
    const char *label[LEGEND_MAX];
    double box[4], most = 0;
    int rc = c ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int g = 0; rc == 0 && g < set->n; g++) {
        label[g] = set->g[g].label;
        rc = take(s, &set->g[g], metric, &c[g], e);
        for (size_t k = 0; rc == 0 && k < c[g].n; k++)
            most = fmax(most, isfinite(c[g].smooth[k]) ? c[g].smooth[k] : 0);
    }
    if (rc == 0 && !(most > 0))
        rc = sheet_fail(s, set->g[0].run[0], e, "'%s': must be greater than 0 on a log axis",
                        metric);
    if (rc == 0) {
        s->height = panel_grid(s, n, 2, 0.66, i, box);
        double more = legend_more(s, label, set->n > 1 ? set->n : 0, box[2]);
        s->height += more; /* the legend is above the first panel; the second moves down */
        box[i ? 1 : 3] += more;
        rc = curve_panel(s,
                         &(struct curve_panel){.curve = c,
                                               .label = set->n > 1 && i == 0 ? label : NULL,
                                               .n = set->n,
                                               .is_log = 1,
                                               .y_label = y_label},
                         box, e);
    }
    for (int g = 0; c && g < set->n; g++)
        curve_release(&c[g]);
    mem_free(c);
    return rc;
}

static void note(struct sheet *s, const struct groups *set, int layers)
{
    if (set->n == 1)
        sheet_note(s, "Shown: %s.", set->g[0].label);
    curve_note(s, set, "Loss");
    if (layers)
        sheet_note(s, "Error: mean over the layers that have a prior; band: range over the "
                      "layers.");
}

static int draw(struct sheet *s, struct err *e)
{
    struct groups set;
    int layers = curve_has_layer(s, "prior_error"), rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    rc = groups_check(&set, s, LEGEND_MAX, e);
    if (rc == 0)
        rc = draw_panel(s, &set, curve_metric, "prior_loss", "Prior loss", 0, 1 + layers, e);
    if (rc == 0 && layers)
        rc = draw_panel(s, &set, curve_layer, "prior_error", "Mean square error of the prior", 1, 2,
                        e);
    if (rc == 0)
        note(s, &set, layers);
    groups_release(&set);
    return rc;
}

const struct figure_ops figure_prior_loss = {
    .name = "prior_loss",
    .title = "Loss of the prior network over training",
    .needs = "metric prior_loss; layer metric prior_error where logged",
    .options = FIGURE_CURVES,
    .draw = draw,
};
