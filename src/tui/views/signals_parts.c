/* The distribution of a signal over the tokens in each layer, and its correlation with the loss. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "tui/signals.h"

enum { BINS_MAX = 120, AXIS = AXIS_COLS };

/* ---- distribution: a horizontal histogram per layer ---- */

struct spread {
    const struct probe *p;
    int field, rows, first, layers, width;
    double lo, hi;
};

static int bin_of(const struct spread *s, double v)
{
    double at = (s->hi - v) / (s->hi - s->lo) * s->rows;
    return at >= s->rows ? s->rows - 1 : at >= 0 ? (int)at : 0; /* empty range: first bin */
}

static double threshold_of(const struct probe *p, int layer)
{
    const struct matrix *m = probe_cell(p, "threshold");
    for (int t = 0; m && t < p->tokens; t++) {
        double v = (double)m->v[(size_t)layer * (size_t)p->tokens + (size_t)t];
        if (isfinite(v))
            return v;
    }
    return (double)NAN;
}

static int count_bins(const struct spread *s, int layer, int count[BINS_MAX], double threshold,
                      int *above)
{
    int n = 0;
    memset(count, 0, BINS_MAX * sizeof count[0]);
    *above = 0;
    for (int t = 0; t < s->p->tokens; t++) {
        double v = cells_value(s->p, s->field, layer, t);
        if (!isfinite(v))
            continue;
        count[bin_of(s, v)]++;
        *above += v > threshold;
        n++;
    }
    return n;
}

static uint32_t bar_end(struct area a, int eighths)
{
    if (eighths >= 8)
        return area_rune(a, 0x2588, '#');
    if (a.canvas->look.glyphs != GLYPHS_BRAILLE)
        return eighths >= 4 ? area_rune(a, 0x2592, '=') : ' ';
    return eighths > 0 ? 0x2590u - (uint32_t)eighths : ' ';
}

static void draw_layer(struct area a, const struct spread *s, int layer, int x, int top)
{
    int count[BINS_MAX], above, wide = s->width - 1;
    double threshold = strcmp(cells_field_name(s->p, s->field), "score") == 0
                           ? threshold_of(s->p, layer)
                           : (double)NAN;
    int n = count_bins(s, layer, count, threshold, &above);
    area_textf(a, s->rows, x, s->width - 1, ink(ROLE_AXIS), "%d", layer);
    if (n == 0) {
        area_put(a, s->rows / 2, x, area_rune(a, 0xB7, '.'), ink(ROLE_DIM));
        return;
    }
    int edge = isfinite(threshold) ? bin_of(s, threshold) : -1;
    for (int y = 0; y < s->rows; y++) {
        int eighths = top > 0 ? (int)lround((double)count[y] / top * wide * 8) : 0;
        eighths = count[y] > 0 && eighths < 1 ? 1 : eighths;
        enum role r = edge < 0 ? ROLE_SERIES_0 : y <= edge ? ROLE_RUN : ROLE_FORCED;
        if (y == edge)
            area_hline(a, y, x, wide, ink(ROLE_REFERENCE));
        for (int k = 0; k < wide && eighths > 0; k++, eighths -= 8)
            area_put(a, y, x + k, bar_end(a, eighths), ink(r));
    }
    if (edge >= 0 && s->width >= 5)
        area_textf(a, s->rows + 1, x, s->width - 1, ink(ROLE_DIM), "%.0f%%", 100.0 * above / n);
}

/* The largest bin of all layers, so that bar lengths are comparable. */
static int largest(const struct spread *s)
{
    int count[BINS_MAX], above, top = 0;
    for (int l = s->first; l < s->first + s->layers; l++) {
        count_bins(s, l, count, 0, &above);
        for (int b = 0; b < s->rows; b++)
            top = count[b] > top ? count[b] : top;
    }
    return top;
}

static int pick_field(const struct signals *s)
{
    int field[32], n = signals_fields(s->probe, field, 32);
    if (n == 0)
        return -1;
    return field[s->field % n];
}

void signals_spread(struct area a, const struct signals *s, const struct runview *r)
{
    struct spread d = {.p = s->probe, .field = pick_field(s), .rows = a.rows - 3};
    int x = area_textf(a, 0, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "distribution by %s",
                       runview_layer_word(r, s->probe->layers)) +
            2;
    if (d.field < 0) {
        area_text(a, 2, 0, -1, ink(ROLE_DIM), "no signals recorded: this probe has only decisions");
        return;
    }
    const char *name = cells_field_name(s->probe, d.field), *unit = cells_unit(r, name);
    area_textf(a, 0, x, -1, ink(ROLE_TEXT), unit[0] ? "%s (%s)" : "%s", name, unit);
    if (!cells_range(s->probe, d.field, &a.canvas->look, &d.lo, &d.hi) || d.rows < 3) {
        area_text(a, 2, 0, -1, ink(ROLE_DIM), d.rows < 3 ? "too small" : "no values in this probe");
        return;
    }
    d.lo = (double)INFINITY;
    d.hi = -(double)INFINITY;
    for (int l = 0; l < d.p->layers; l++) {
        double tau = strcmp(name, "score") == 0 ? threshold_of(d.p, l) : (double)NAN;
        for (int t = -1; t < d.p->tokens; t++) {
            double v = t < 0 ? tau : cells_value(d.p, d.field, l, t);
            d.lo = isfinite(v) && v < d.lo ? v : d.lo;
            d.hi = isfinite(v) && v > d.hi ? v : d.hi;
        }
    }
    if (!(d.hi > d.lo))
        d.hi = d.lo + 1;
    d.rows = d.rows > BINS_MAX ? BINS_MAX : d.rows;
    d.width = (a.cols - AXIS - 1) / d.p->layers;
    d.width = d.width > 14 ? 14 : d.width < 4 ? 4 : d.width;
    d.layers = (a.cols - AXIS - 1) / d.width;
    d.layers = d.layers > d.p->layers ? d.p->layers : d.layers < 1 ? 1 : d.layers;
    d.first = s->pick.layer - d.layers / 2;
    d.first = d.first > d.p->layers - d.layers ? d.p->layers - d.layers : d.first < 0 ? 0 : d.first;
    struct area plot = area_sub(a, 1, 0, a.rows - 1, a.cols);
    axis_draw_y(plot, 0, d.rows, d.lo, d.hi, 0);
    area_right(plot, d.rows, AXIS, ink(ROLE_DIM),
               runview_is_iterated(r, d.p->layers) ? "iter." : "layer");
    if (strcmp(name, "score") == 0 && probe_cell(d.p, "threshold") && d.width >= 5)
        area_right(plot, d.rows + 1, AXIS, ink(ROLE_DIM), "above");
    int top = largest(&d);
    for (int i = 0; i < d.layers; i++)
        draw_layer(plot, &d, d.first + i, AXIS + 1 + i * d.width, top);
}

/* ---- correlation ---- */

double signals_pearson(const float *x, const float *y, size_t count, size_t *n)
{
    double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
    *n = 0;
    for (size_t i = 0; x && y && i < count; i++) { /* one numerically stable pass (Welford) */
        if (!isfinite(x[i]) || !isfinite(y[i]))
            continue;
        double dx = (double)x[i] - mx, dy = (double)y[i] - my;
        ++*n;
        mx += dx / (double)*n;
        my += dy / (double)*n;
        xx += dx * ((double)x[i] - mx);
        yy += dy * ((double)y[i] - my);
        xy += dx * ((double)y[i] - my);
    }
    /* A constant column has only rounding error, at any scale. */
    double tiny = 1e-12 * (double)*n;
    if (*n < 3 || !(xx > tiny * mx * mx) || !(yy > tiny * my * my))
        return (double)NAN;
    return xy / sqrt(xx * yy);
}

enum { ROWS_MAX = 40, TARGETS_MAX = 4 };
struct column_of {
    char name[40];
    const float *v;
};
struct table {
    struct column_of row[ROWS_MAX], target[TARGETS_MAX];
    int rows, targets;
    size_t n;
    float *own; /* means over layers, one block */
};

static void add_row(struct table *t, const char *name, const float *v)
{
    if (v && t->rows < ROWS_MAX) {
        str_copy(t->row[t->rows].name, sizeof t->row[0].name, name);
        t->row[t->rows++].v = v;
    }
}

static void add_target(struct table *t, const char *name, const float *v)
{
    if (v && t->targets < TARGETS_MAX) {
        str_copy(t->target[t->targets].name, sizeof t->target[0].name, name);
        t->target[t->targets++].v = v;
    }
}

static void mean_over_layers(const struct probe *p, int field, float *out)
{
    for (int t = 0; t < p->tokens; t++) {
        double sum = 0;
        int n = 0;
        for (int l = 0; l < p->layers; l++) {
            double v = cells_value(p, field, l, t);
            if (isfinite(v)) {
                sum += v;
                n++;
            }
        }
        out[t] = n ? (float)(sum / n) : (float)NAN;
    }
}

static int table_of_probe(struct table *t, const struct probe *p)
{
    int field[32], n = signals_fields(p, field, 32);
    const struct vector *truth = probe_token(p, "true_entropy"), *needed = probe_token(p, "needed");
    *t = (struct table){.n = (size_t)p->tokens};
    t->own = mem_alloc((size_t)(n + 1) * (size_t)p->tokens, sizeof *t->own);
    if (!t->own)
        return 0;
    for (int i = 0; i < p->tokens; i++)
        t->own[i] = (float)cells_depth(p, NULL, i);
    add_row(t, "depth", t->own);
    for (int i = 0; i < n; i++) {
        float *v = t->own + (size_t)(i + 1) * (size_t)p->tokens;
        mean_over_layers(p, field[i], v);
        add_row(t, cells_field_name(p, field[i]), v);
    }
    add_target(t, "loss", p->nll);
    add_target(t, "entropy", p->entropy);
    add_target(t, "true entropy", truth ? truth->v : NULL);
    add_target(t, "needed depth", needed ? needed->v : NULL);
    return 1;
}

static int table_of_sample(struct table *t, const struct run_sample *x)
{
    static const char *const targets[][2] = {{"nll", "loss"},
                                             {"entropy", "entropy"},
                                             {"true_entropy", "true entropy"},
                                             {"needed", "needed depth"}};
    *t = (struct table){.n = x->n};
    for (int i = 0; i < x->columns; i++) {
        const struct vector *c = &x->column[i];
        int is_target = strcmp(c->name, "class") == 0; /* a label, not a quantity */
        for (size_t k = 0; k < DS_LEN(targets); k++)
            is_target |= strcmp(c->name, targets[k][0]) == 0;
        if (!is_target)
            add_row(t, c->name, c->v);
    }
    for (size_t k = 0; k < DS_LEN(targets); k++) {
        const struct vector *c = sample_column(x, targets[k][0]);
        add_target(t, targets[k][1], c ? c->v : NULL);
    }
    return 1;
}

/* Draws r, Fisher's 95 % confidence interval and the number of tokens. */
static void draw_r(struct area cell, const float *x, const float *y, size_t count)
{
    size_t n;
    double r = signals_pearson(x, y, count, &n);
    if (isnan(r)) {
        area_text(cell, 0, 0, -1, ink(ROLE_DIM),
                  n < 3 ? "undefined: n < 3" : "undefined: no variance");
        return;
    }
    double z = atanh(r > 0.999999    ? 0.999999
                     : r < -0.999999 ? -0.999999
                                     : r),
           half = n > 3 ? 1.96 / sqrt((double)n - 3) : (double)INFINITY;
    int at =
        area_textf(cell, 0, 0, -1, ink(fabs(z) > half ? ROLE_TITLE : ROLE_DIM), "%+.2f", r) + 1;
    if (cell.cols >= 22 && isfinite(half))
        at += area_textf(cell, 0, at, -1, ink(ROLE_DIM), "[%+.2f %+.2f]", tanh(z - half),
                         tanh(z + half)) +
              1;
    if (cell.cols - at >= 6)
        area_textf(cell, 0, at, -1, ink(ROLE_DIM), "n %zu", n);
}

void signals_relation(struct area a, const struct signals *s, const struct runview *r)
{
    enum { NAME = 14 };
    struct table t;
    const struct run_sample *x =
        s->sample && r->n_samples > 0 ? &r->sample[r->n_samples - 1] : NULL;
    if (!(x ? table_of_sample(&t, x) : table_of_probe(&t, s->probe)))
        return;
    int at = area_text(a, 0, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "Pearson r") + 1;
    if (x)
        area_textf(a, 0, at, a.cols - at, ink(ROLE_DIM),
                   "over the newest evaluation, \"%.24s\" of step %lld", x->name ? x->name : "",
                   (long long)x->step);
    else
        area_text(a, 0, at, a.cols - at, ink(ROLE_DIM),
                  s->sample ? "over this probe (no evaluation recorded), layer means"
                            : "over the tokens of this probe, layer means");
    int width = t.targets ? (a.cols - NAME - 1) / t.targets : 0;
    width = width > 34 ? 34 : width;
    for (int k = 0; k < t.targets; k++)
        area_text(a, 1, NAME + 1 + k * width, width - 1, ink(ROLE_DIM), t.target[k].name);
    if (t.targets == 0)
        area_text(a, 2, 0, -1, ink(ROLE_DIM), "no loss or entropy recorded for these tokens");
    for (int i = 0; i < t.rows && t.targets && i + 2 < a.rows; i++) {
        area_text(a, i + 2, 0, NAME, ink(ROLE_TEXT), t.row[i].name);
        for (int k = 0; k < t.targets; k++)
            draw_r(area_sub(a, i + 2, NAME + 1 + k * width, 1, width - 1), t.row[i].v,
                   t.target[k].v, t.n);
    }
    mem_free(t.own);
}
