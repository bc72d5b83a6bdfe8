/* A gate with two surprise criteria over training: the criteria, the resulting gate, and the
 * learned scalars of each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { GROUPS_MAX = 3, LINES_MAX = 3 };

static const struct part {
    const char *metric[LINES_MAX], *label[LINES_MAX], *y_label, *title;
    int n, from_zero;
} parts[] = {
    {{"s_ce", "s_cu", "g"}, {"S_CE", "S_CU", "G"}, "Gate and its terms", "terms", 3, 1},
    {{"beta_ce", "beta_cu"},
     {"\xCE\xB2_CE", "\xCE\xB2_CU"},
     "\xCE\xB2, before softplus",
     "sharpness",
     2,
     0},
    {{"o_ce", "m_cu"}, {"o_CE", "m_CU"}, "Offset o, multiplier m", "offset and multiplier", 2, 0},
};

/* A value per layer, or one for all layers. */
static int take(struct sheet *s, const struct group *g, const char *metric, struct curve *c,
                struct err *e)
{
    if (runview_layer(s->run[g->run[0]].view, metric))
        return curve_layer(s, g, metric, c, e);
    if (runview_series(s->run[g->run[0]].view, metric))
        return curve_metric(s, g, metric, c, e);
    return sheet_fail(s, g->run[0], e, "no record 'layer' has '%s'", metric);
}

static int draw_part(struct sheet *s, const struct groups *set, int i, const struct part *part,
                     int at, struct err *e)
{
    struct curve c[LINES_MAX] = {{0}};
    char title[128];
    double box[4];
    int rc = 0;
    for (int k = 0; rc == 0 && k < part->n; k++)
        rc = take(s, &set->g[i], part->metric[k], &c[k], e);
    if (rc == 0) {
        s->height = panel_grid(s, set->n * (int)DS_LEN(parts), 3, 0.66, at, box);
        snprintf(title, sizeof title, "%s: %s", set->g[i].label, part->title);
        rc = curve_panel(s,
                         &(struct curve_panel){.curve = c,
                                               .label = part->label,
                                               .n = part->n,
                                               .from_zero = part->from_zero,
                                               .title = set->n > 1 ? title : NULL,
                                               .y_label = part->y_label},
                         box, e);
    }
    for (int k = 0; k < part->n; k++)
        curve_release(&c[k]);
    return rc;
}

static int draw_group(struct sheet *s, const struct groups *set, int i, struct err *e)
{
    int rc = 0, n = (int)DS_LEN(parts);
    for (int k = 0; rc == 0 && k < n; k++)
        rc = draw_part(s, set, i, &parts[k], i * n + k, e);
    return rc;
}

static int draw(struct sheet *s, struct err *e)
{
    int rc = groups_draw(s, GROUPS_MAX, draw_group, NULL, e);
    if (rc == 0)
        sheet_note(s, "Mean over the layers that have the value (and over seeds); bands: range "
                      "over the layers.");
    return rc;
}

const struct figure_ops figure_gates_dtf = {
    .name = "gates_dtf",
    .title = "Surprise criteria, gate and learned scalars over training",
    .needs = "layer metrics s_ce, s_cu, g, beta_ce, beta_cu, o_ce, m_cu",
    .options = FIGURE_CURVES,
    .draw = draw,
};
