/* Depth against a per-token quantity: hexagonal histogram, least-squares line, and r with its
 * interval. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "figures/plot.h"

enum { PANELS_MAX = 6, BINS_MAX = 20000 };

struct cloud {
    float *x, *y;
    size_t n, dropped;
};

static void cloud_release(struct cloud *c)
{
    mem_free(c->x);
    mem_free(c->y);
    *c = (struct cloud){0};
}

/* All tokens of the runs of a group. */
static int gather(struct sheet *s, const struct group *g, const char *column, struct cloud *c,
                  struct err *e)
{
    int rc = 0;
    for (int i = 0; i < g->runs; i++) {
        const struct vector *x, *y;
        rc = data_column(s, g->run[i], column, &x, e);
        if (rc == 0)
            rc = data_column(s, g->run[i], "depth", &y, e);
        if (rc < 0)
            return rc;
        size_t n = (size_t)(x->n < y->n ? x->n : y->n);
        float *nx = mem_realloc(c->x, c->n + n + 1, sizeof *nx);
        c->x = nx ? nx : c->x;
        float *ny = mem_realloc(c->y, c->n + n + 1, sizeof *ny);
        c->y = ny ? ny : c->y;
        if (!nx || !ny)
            return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
        for (size_t k = 0; k < n; k++)
            if (isfinite(x->v[k]) && isfinite(y->v[k])) {
                c->x[c->n] = x->v[k];
                c->y[c->n++] = y->v[k];
            } else
                c->dropped++;
    }
    if (c->n == 0)
        return sheet_fail(s, g->run[0], e,
                          "sample 'val' has no token with both '%s' and 'depth' finite", column);
    return 0;
}

struct hexes {
    int cols, rows;
    double dx, dy, r;
    unsigned *count;
    unsigned most;
};

/* Hexagons with a vertex at the top; two or more rows per layer, so that neighbours touch. */
static int bin(const struct panel *p, const struct cloud *c, double size, struct hexes *h)
{
    double layer = fabs(axis_at(&p->ay, 1) - axis_at(&p->ay, 0));
    int per = (int)fmax(2, 2 * floor(layer / (2 * size * 0.866) + 0.5));
    /* Of a very deep model a row has several layers. */
    h->dy = fmax(layer / per, p->h / BINS_MAX);
    while ((p->w / (h->dy * 1.1547) + 4) * (p->h / h->dy + 4) > BINS_MAX)
        h->dy *= 2;
    h->dx = h->dy * 1.1547;
    h->r = h->dy / 1.5;
    h->cols = (int)ceil(p->w / h->dx) + 3;
    h->rows = (int)ceil(p->h / h->dy) + 3;
    h->count = mem_alloc((size_t)h->cols * (size_t)h->rows, sizeof *h->count);
    if (!h->count)
        return DS_EMEM;
    double y0 = axis_at(&p->ay, floor(p->ay.lo));
    for (size_t i = 0; i < c->n; i++) {
        double x = axis_at(&p->ax, (double)c->x[i]), y = axis_at(&p->ay, (double)c->y[i]);
        int row = (int)floor((y0 - y) / h->dy + 0.5), best_row = row, best_col = 0;
        double best = 1e30;
        for (int r = row - 1; r <= row + 1; r++) {
            double shift = r & 1 ? 0.5 : 0;
            int col = (int)floor((x - p->x) / h->dx - shift + 0.5);
            double ex = p->x + (col + shift) * h->dx - x, ey = y0 - r * h->dy - y;
            if (ex * ex + ey * ey < best) {
                best = ex * ex + ey * ey;
                best_row = r;
                best_col = col;
            }
        }
        if (best_row >= 0 && best_row < h->rows && best_col >= 0 && best_col < h->cols) {
            unsigned *at = &h->count[best_row * h->cols + best_col];
            h->most = ++*at > h->most ? *at : h->most;
        }
    }
    return 0;
}

static void hexagon(struct pen *pen, double x, double y, double r)
{
    static const double corner[6][2] = {{0, -1}, {.8660254, -.5}, {.8660254, .5},
                                        {0, 1},  {-.8660254, .5}, {-.8660254, -.5}};
    for (int i = 0; i < 6; i++)
        if (i == 0)
            pen_move(pen, x + corner[i][0] * r, y + corner[i][1] * r);
        else
            pen_line(pen, x + corner[i][0] * r, y + corner[i][1] * r);
    pen_close(pen);
    pen_fill(pen);
}

static void draw_hexes(struct sheet *s, struct panel *p, const struct hexes *h,
                       const struct axis *scale)
{
    double y0 = axis_at(&p->ay, floor(p->ay.lo));
    for (int r = 0; r < h->rows; r++)
        for (int c = 0; c < h->cols; c++) {
            unsigned n = h->count[r * h->cols + c];
            if (n == 0)
                continue;
            double x = p->x + (c + (r & 1 ? 0.5 : 0)) * h->dx, y = y0 - r * h->dy;
            double t = scale->is_log ? log(n / scale->lo) / log(scale->hi / scale->lo)
                                     : (n - scale->lo) / (scale->hi - scale->lo);
            pen_colour(s->pen, cmap_rgb(s->theme.sequential, t), 1);
            hexagon(s->pen, x, y, h->r * 1.01);
            panel_mark_box(p, x - h->r, y - h->r, 2 * h->r, 2 * h->r);
        }
}

static void draw_trend(struct sheet *s, struct panel *p, const struct correlation *k)
{
    double x[2] = {p->ax.lo, p->ax.hi}, y[2];
    /* The line is cut at the bounds of the plot rather than clipped by the frame. */
    for (int i = 0; i < 2; i++) {
        y[i] = k->intercept + k->slope * x[i];
        double edge = y[i] > p->ay.hi ? p->ay.hi : y[i] < p->ay.lo ? p->ay.lo : y[i];
        if (edge != y[i] && k->slope != 0)
            x[i] = (edge - k->intercept) / k->slope;
        y[i] = edge;
    }
    pen_dash(s->pen, NULL, 0);
    pen_colour(s->pen, s->background, 0.8);
    pen_width(s->pen, s->venue->line * 2);
    panel_line(s, p, x, y, 2);
    pen_colour(s->pen, sheet_series(s, 1), 1);
    pen_width(s->pen, s->venue->line * 1.1);
    sheet_dash(s, 1);
    panel_line(s, p, x, y, 2);
    pen_dash(s->pen, NULL, 0);
}

/* "r = −0.42 [−0.45, −0.39], n = 12,288" or why r is undefined. */
static void result_text(const struct correlation *k, size_t n, char *out, size_t size)
{
    char r[24], lo[24], hi[24], count[32];
    number_format(count, sizeof count, (double)n, 0);
    if (!isfinite(k->r)) {
        snprintf(out, size, "r undefined: no variance; n = %s", count);
        return;
    }
    number_format(r, sizeof r, k->r, 2);
    number_format(lo, sizeof lo, k->lo, 2);
    number_format(hi, sizeof hi, k->hi, 2);
    snprintf(out, size, "r = %s [%s, %s], n = %s", r, lo, hi, count);
}

static void ranges(struct panel *p, const struct cloud *c)
{
    axis_reset(&p->ax);
    axis_reset(&p->ay);
    for (size_t i = 0; i < c->n; i++) {
        axis_include(&p->ax, (double)c->x[i]);
        axis_include(&p->ay, (double)c->y[i]);
    }
    axis_pad(&p->ax, 0.04);
    p->ay.lo = floor(p->ay.lo) - 0.8;
    p->ay.hi = ceil(p->ay.hi) + 0.8;
}

static int draw_panel(struct sheet *s, const struct group *g, int i, int n, const char *column,
                      const char *x_label, struct err *e)
{
    struct cloud c = {0};
    struct hexes h = {0};
    struct panel *p = mem_alloc(1, sizeof *p);
    double box[4];
    char y_label[64];
    int rc = p ? gather(s, g, column, &c, e)
               : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc < 0)
        goto out;
    ranges(p, &c);
    p->x_label = x_label;
    snprintf(y_label, sizeof y_label, "Depth used (%s)", sheet_depth_unit(s, g->run[0]));
    p->y_label = y_label;
    p->ticks_whole_y = 1;
    p->no_grid = 1;
    struct correlation k = stat_correlation(c.x, c.y, c.n);
    result_text(&k, c.n, p->sub, sizeof p->sub);
    if (n > 1)
        str_copy(p->title, sizeof p->title, g->label);
    s->height = panel_grid(s, n, 2, 0.72, i, box);
    struct axis widest = {.lo = 0, .hi = (double)c.n};
    p->right = panel_bar_room(s, &widest);
    panel_layout(s, p, box[0], box[1], box[2], box[3]);
    panel_axes(s, p);
    if (bin(p, &c, s->venue->small * 0.62, &h) < 0) {
        rc = err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
        goto out;
    }
    struct axis scale = {
        .lo = h.most > 100 ? 1 : 0, .hi = h.most > 1 ? h.most : 2, .is_log = h.most > 100};
    draw_hexes(s, p, &h, &scale);
    if (isfinite(k.r))
        draw_trend(s, p, &k);
    panel_colour_bar(s, p, &scale, "tokens per cell");
    if (c.dropped > 0)
        sheet_note(s, "%zu tokens without a finite value are omitted.", c.dropped);
out:
    mem_free(h.count);
    cloud_release(&c);
    mem_free(p);
    return rc;
}

static int draw(struct sheet *s, const char *column, const char *x_label, struct err *e)
{
    struct groups set;
    int seeds = 0, rc = groups_make(&set, s, e);
    if (rc < 0)
        return rc;
    if (set.n > PANELS_MAX)
        rc = err_set(e, DS_EUSAGE,
                     "figure %s: too many different experiments, %d: expected at most %d",
                     s->ops->name, set.n, PANELS_MAX);
    for (int i = 0; rc == 0 && i < set.n; i++) {
        rc = draw_panel(s, &set.g[i], i, set.n, column, x_label, e);
        seeds = set.g[i].runs > seeds ? set.g[i].runs : seeds;
    }
    if (rc == 0) {
        if (set.n == 1)
            sheet_note(s, "Shown: %s.", set.g[0].label);
        if (seeds > 1)
            sheet_note(s, "Tokens of up to %d seeds are pooled.", seeds);
        sheet_note(s,
                   "r: Pearson, with Fisher's 95 %% confidence interval over n validation tokens; "
                   "dashed: least squares.");
    }
    groups_release(&set);
    return rc;
}

static int draw_signal(struct sheet *s, struct err *e)
{
    const char *kind = runview_method_config(s->run[0].view, "signal");
    char label[96];
    int same = kind != NULL;
    for (int i = 1; same && i < s->runs; i++) {
        const char *other = runview_method_config(s->run[i].view, "signal");
        same = other && strcmp(other, kind) == 0;
    }
    if (same)
        snprintf(label, sizeof label, "Routing signal (%.40s), mean over gated layers", kind);
    else
        snprintf(label, sizeof label, "Routing signal, mean over gated layers");
    return draw(s, "signal", label, e);
}

static int draw_entropy(struct sheet *s, struct err *e)
{
    return draw(s, "entropy", "Predictive entropy (nats)", e);
}

static int draw_needed(struct sheet *s, struct err *e)
{
    return draw(s, "needed", "Required depth (hops)", e);
}

const struct figure_ops figure_signal_depth = {
    .name = "signal_depth",
    .title = "Routing signal against the depth of each token",
    .needs = "sample 'val': signal, depth",
    .draw = draw_signal,
};
const struct figure_ops figure_entropy_depth = {
    .name = "entropy_depth",
    .title = "Predictive entropy against the depth of each token",
    .needs = "sample 'val': entropy, depth",
    .draw = draw_entropy,
};

const struct figure_ops figure_depth_needed = {
    .name = "depth_needed",
    .title = "Depth against required depth",
    .needs = "sample 'val': needed, depth (data.path=hops)",
    .draw = draw_needed,
};
