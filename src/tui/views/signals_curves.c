/* Every signal over the layers, one curve per marked token. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/signals.h"

enum { AXIS = AXIS_COLS, PANELS_MAX = 12 };

/* A matrix of only zeros and ones is a decision, not a signal, and categories have no curve. */
static int is_binary(const struct matrix *m)
{
    size_t n = (size_t)m->rows * (size_t)m->cols;
    for (size_t i = 0; i < n; i++)
        if (m->v[i] != 0 && m->v[i] != 1 && !isnan(m->v[i]))
            return 0;
    return 1;
}

int signals_fields(const struct probe *p, int *field, int max)
{
    int n = 0;
    for (int f = 1; f <= p->cells && n < max; f++) {
        const struct matrix *m = &p->cell[f - 1];
        if (strcmp(m->name, "flops") != 0 && strcmp(m->name, "threshold") != 0 && !m->is_category &&
            !is_binary(m))
            field[n++] = f;
    }
    return n;
}

struct panel {
    struct area plot;
    const struct probe *p;
    int field;
    double lo, hi;
};

static void add_range(double x, double *lo, double *hi)
{
    if (isfinite(x)) {
        *lo = x < *lo ? x : *lo;
        *hi = x > *hi ? x : *hi;
    }
}

/* The range over all tokens, so that the axis does not change with the marks. */
static void range_of(struct panel *n, const struct matrix *threshold)
{
    n->lo = (double)INFINITY;
    n->hi = -(double)INFINITY;
    for (int l = 0; l < n->p->layers; l++)
        for (int t = 0; t < n->p->tokens; t++)
            add_range(cells_value(n->p, n->field, l, t), &n->lo, &n->hi);
    for (size_t i = 0; threshold && i < (size_t)threshold->rows * (size_t)threshold->cols; i++)
        add_range((double)threshold->v[i], &n->lo, &n->hi);
    if (!(n->hi > n->lo)) {
        n->lo = isfinite(n->lo) ? n->lo - 0.5 : 0;
        n->hi = n->lo + 1;
    }
}

static int dot_x(const struct panel *n, int layer)
{
    int dots = 2 * n->plot.cols - 1;
    return n->p->layers > 1 ? (int)lround((double)layer / (n->p->layers - 1) * (dots - 1))
                            : dots / 2;
}

static int dot_y(const struct panel *n, double v)
{
    int dots = 4 * n->plot.rows - 1;
    return (int)lround((n->hi - v) / (n->hi - n->lo) * dots);
}

static void curve(struct dots *d, const struct panel *n, int token, enum role r)
{
    int last = -1;
    d->layer++;
    for (int l = 0; l < n->p->layers; l++) {
        double v = cells_value(n->p, n->field, l, token);
        if (!isfinite(v)) {
            last = -1;
            continue;
        }
        if (last >= 0)
            dots_line(d, dot_x(n, last), dot_y(n, cells_value(n->p, n->field, last, token)),
                      dot_x(n, l), dot_y(n, v), r);
        else
            dots_point(d, dot_x(n, l), dot_y(n, v), r);
        last = l;
    }
}

/* A short horizontal line per layer: a threshold is not defined between layers. */
static void thresholds(const struct panel *n, const struct matrix *m, int token)
{
    int half = n->p->layers > 1 ? n->plot.cols / (n->p->layers - 1) / 3 : 2;
    half = half > 3 ? 3 : half;
    for (int l = 0; l < n->p->layers; l++) {
        double v = (double)m->v[(size_t)l * (size_t)n->p->tokens + (size_t)token];
        for (int t = 0; t < n->p->tokens && !isfinite(v); t++)
            v = (double)m->v[(size_t)l * (size_t)n->p->tokens + (size_t)t];
        if (!isfinite(v))
            continue;
        int x = dot_x(n, l) / 2, y = dot_y(n, v) / 4;
        for (int k = -half; k <= half; k++)
            area_put(n->plot, y, x + k, area_rune(n->plot, 0x2500, '-'), ink(ROLE_REFERENCE));
    }
}

/* Marks on the curve where the token at the cursor was executed. */
static void runs(const struct panel *n, int token)
{
    for (int l = 0; l < n->p->layers; l++) {
        double v = cells_value(n->p, n->field, l, token);
        if (isfinite(v) && n->p->run && n->p->run[(size_t)l * (size_t)n->p->tokens + (size_t)token])
            area_put(n->plot, dot_y(n, v) / 4, dot_x(n, l) / 2, 'o',
                     ink_attr(ink(ROLE_TITLE), ATTR_BOLD));
    }
}

/* Layers between two labels, so that the widest stands apart from the next. */
static int label_every(const struct panel *n)
{
    char widest[16];
    int every = 1, cells = snprintf(widest, sizeof widest, "%d", n->p->layers - 1) + 1;
    cells = cells < 4 ? 4 : cells;
    while (every < n->p->layers && every * n->plot.cols < cells * (n->p->layers - 1))
        every *= 2;
    return every;
}

static void axes(struct area a, const struct panel *n, int has_layers)
{
    char text[24];
    axis_draw_y(a, 1, n->plot.rows, n->lo, n->hi, 0);
    for (int l = 0, every = label_every(n); has_layers && l < n->p->layers; l += every) {
        int x = AXIS + 1 + dot_x(n, l) / 2;
        if (snprintf(text, sizeof text, "%d", l) <= a.cols - x)
            area_text(a, n->plot.rows + 1, x, -1, ink(ROLE_AXIS), text);
    }
}

static void draw_panel(struct area a, const struct signals *s, const struct runview *r, int field)
{
    const struct probe *p = s->probe;
    const char *name = cells_field_name(p, field), *unit = cells_unit(r, name);
    const struct matrix *threshold = strcmp(name, "score") == 0 ? probe_cell(p, "threshold") : NULL;
    struct panel n = {area_sub(a, 1, AXIS + 1, a.rows - 2, a.cols - AXIS - 2), p, field, 0, 0};
    struct dots d;
    if (n.plot.rows < 1 || n.plot.cols < 4)
        return;
    range_of(&n, threshold);
    int x =
        AXIS + 1 + area_text(a, 0, AXIS + 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), name) + 1;
    if (unit[0])
        x += area_text(a, 0, x, -1, ink(ROLE_DIM), unit) + 1;
    if (threshold) {
        area_hline(a, 0, x + 1, 3, ink(ROLE_REFERENCE));
        area_text(a, 0, x + 5, -1, ink(ROLE_REFERENCE), "threshold");
    }
    axes(a, &n, 1);
    if (threshold)
        thresholds(&n, threshold, s->pick.token);
    if (dots_begin(&d, n.plot) < 0)
        return;
    for (int i = 0; i < s->pick.marks; i++)
        if (s->pick.mark[i] < p->tokens && s->pick.mark[i] != s->pick.token)
            curve(&d, &n, s->pick.mark[i], (enum role)(ROLE_SERIES_0 + i % ROLE_SERIES_COUNT));
    curve(&d, &n, s->pick.token, ROLE_TEXT);
    dots_end(&d);
    if (a.rows >= 7)
        runs(&n, s->pick.token);
}

/* The tokens in the colours of their curves. */
static void legend(struct area line, const struct signals *s, const struct runview *r)
{
    const struct probe *p = s->probe;
    int x = area_textf(line, 0, 0, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "over the %ss",
                       runview_layer_word(r, p->layers)) +
            2;
    int t = s->pick.token;
    x += area_textf(line, 0, x, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "%d ", t);
    x += area_bytes(line, 0, x, 14, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), p->piece[t],
                    p->piece_len[t]) +
         2;
    for (int i = 0; i < s->pick.marks && x < line.cols - 8; i++) {
        t = s->pick.mark[i];
        if (t >= p->tokens || t == s->pick.token)
            continue;
        struct ink k = ink((enum role)(ROLE_SERIES_0 + i % ROLE_SERIES_COUNT));
        x += area_textf(line, 0, x, -1, k, "%d ", t);
        x += area_bytes(line, 0, x, 14, k, p->piece[t], p->piece_len[t]) + 2;
    }
    if (s->pick.marks == 0 && line.cols - x > 44)
        area_text(line, 0, x, -1, ink(ROLE_DIM), "h l selects a token, Space keeps its curve");
}

void signals_curves(struct area a, const struct signals *s, const struct runview *r)
{
    int field[PANELS_MAX], n = signals_fields(s->probe, field, PANELS_MAX);
    legend(area_sub(a, 0, 0, 1, a.cols), s, r);
    if (n == 0) {
        area_text(a, 2, 0, -1, ink(ROLE_DIM), "no signals recorded: this probe has only decisions");
        return;
    }
    int across = a.cols / 34 < 1 ? 1 : a.cols / 34,
        most = (a.rows - 1) / 5 < 1 ? 1 : (a.rows - 1) / 5;
    across = across > n ? n : across;
    int down = (n + across - 1) / across;
    while (down > most && across < 4 && a.cols / (across + 1) >= 24) {
        across++;
        down = (n + across - 1) / across;
    }
    down = down > most ? most : down;
    int rows = (a.rows - 1) / down, cols = a.cols / across;
    int first = across * down < n ? s->field % n : 0; /* where not all fit the key c leads on */
    for (int i = 0; i < n && i < across * down; i++)
        draw_panel(area_sub(a, 1 + i / across * rows, i % across * cols, rows, cols), s, r,
                   field[(first + i) % n]);
}
