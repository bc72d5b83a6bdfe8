/* Panels of the Monitor: selects them and draws each as a chart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/utf8.h"
#include "io/experiment.h"
#include "io/metric.h"
#include "tui/chart_scan.h"
#include "tui/monitor.h"

const double monitor_weights[MONITOR_WEIGHTS] = {0, 0.6, 0.9, 0.97, 0.99};

/* clang-format off */
static const struct panel known[] = {
    {PANEL_LINES,  "loss",      {"loss", "val_loss"},                          0, 0, 0},
    {PANEL_LINES,  "grad_norm", {"grad_norm"},                                 0, 0, 0},
    {PANEL_LINES,  "lr",        {"lr"},                                        0, 0, 0},
    {PANEL_LINES,  "tok_s",     {"tok_s"},                                     0, 0, 0},
    {PANEL_LINES,  "compute",   {"flops_ratio", "time_ratio", "block_ratio"},  2, 1, 0},
    {PANEL_LAYERS, "gate ratio by layer", {"gate_ratio"},                      0, 1, 0},
    {PANEL_LAYERS, "threshold by layer",  {"threshold"},                       0, 0, 0},
    {PANEL_SHARES, "step",      {""}, /* the parts of a step: io/metric.h */   0, 0, 0},
    {PANEL_RANKS,  "ranks",     {""},                                          0, 0, 0},
};
/* clang-format on */

/* Axes and bookkeeping of other programs' logs. */
static const char *const unplotted[] = {"step", "time", "epoch", "seq", NULL};

int monitor_runs(struct view *v, const struct open_run *out[APP_RUNS_MAX])
{
    size_t n, current;
    const struct open_run *all = app_runs(v->app, &n, &current);
    int shown = 0;
    if (n)
        out[shown++] = &all[current];
    for (size_t i = 0; i < n; i++)
        if (i != current && all[i].is_marked)
            out[shown++] = &all[i];
    return shown;
}

double monitor_target(const struct runview *r)
{
    char key[128];
    double x;
    if (!r || !r->method)
        return (double)NAN;
    snprintf(key, sizeof key, "%s.target_ratio", r->method);
    return runview_live_value(r, key, &x) && x > 0 ? x : (double)NAN; /* 0: not in use */
}

static int is_present(const struct panel *p, const struct open_run *const *run, int runs)
{
    if (p->kind == PANEL_RANKS)
        return runs > 0 && run[0]->view->ranks.n > 0;
    for (int r = 0; r < runs; r++)
        for (int k = 0; k < PANEL_METRICS; k++)
            if (p->metric[k][0] &&
                (p->kind == PANEL_LAYERS ? runview_layer(run[r]->view, p->metric[k]) != NULL
                                         : runview_series(run[r]->view, p->metric[k]) != NULL))
                return 1;
    return 0;
}

static int is_shown(const struct monitor *m, enum panel_kind kind, const char *metric)
{
    for (int i = 0; i < m->panels; i++)
        for (int k = 0; k < PANEL_METRICS; k++)
            if ((m->panel[i].kind == PANEL_LAYERS) == (kind == PANEL_LAYERS) &&
                strcmp(m->panel[i].metric[k], metric) == 0)
                return 1;
    for (int i = 0; kind == PANEL_LINES && unplotted[i]; i++)
        if (strcmp(metric, unplotted[i]) == 0)
            return 1;
    const struct run_metric *row = run_metric_find(metric);
    return kind == PANEL_LINES && row && row->flags & METRIC_NO_CHART;
}

static void add_panel(struct monitor *m, enum panel_kind kind, const char *metric)
{
    if (strlen(metric) >= sizeof m->panel[0].metric[0])
        return;
    if (m->panels == PANELS_MAX) {
        m->is_cut = 1;
        return;
    }
    if (is_shown(m, kind, metric))
        return;
    struct panel *p = &m->panel[m->panels++];
    *p = (struct panel){.kind = kind};
    snprintf(p->title, sizeof p->title, kind == PANEL_LAYERS ? "%.30s by layer" : "%.255s", metric);
    snprintf(p->metric[0], sizeof p->metric[0], "%s", metric);
}

/* The i-th known panel, with the metrics that it does not name. */
static struct panel known_panel(size_t i)
{
    struct panel p = known[i];
    int n = 0;
    for (const struct run_metric *m = run_metrics; p.kind == PANEL_SHARES && m->name; m++)
        if (m->flags & METRIC_PART && n < PANEL_METRICS)
            str_copy(p.metric[n++], sizeof p.metric[0], m->name);
    return p;
}

/* What W&B measures of the machine: many, logged first, looked at last. */
static int is_machine(const char *metric)
{
    return strncmp(metric, "system/", 7) == 0;
}

/* A panel for each metric of a run, unless a known panel draws it under its own name, as it does the
 * Trainer's "learning_rate". */
static void add_metrics(struct monitor *m, const struct runview *v, int machine)
{
    const struct series *drawn[DS_LEN(known) * PANEL_METRICS];
    size_t n = 0, k;
    for (size_t i = 0; i < DS_LEN(known); i++)
        for (k = 0; known[i].kind == PANEL_LINES && k < PANEL_METRICS; k++)
            if (known[i].metric[k][0])
                drawn[n++] = runview_series(v, known[i].metric[k]);
    for (size_t i = 0; i < v->n_series; i++) {
        for (k = 0; k < n && drawn[k] != &v->series[i]; k++)
            ;
        if (k == n && is_machine(v->series[i].name) == machine)
            add_panel(m, PANEL_LINES, v->series[i].name);
    }
}

void monitor_find_panels(struct view *v)
{
    struct monitor *m = v->state;
    const struct open_run *run[APP_RUNS_MAX];
    int runs = monitor_runs(v, run);
    m->panels = m->is_cut = 0;
    for (size_t i = 0; i < DS_LEN(known); i++) {
        struct panel p = known_panel(i);
        if (is_present(&p, run, runs))
            m->panel[m->panels++] = p;
    }
    for (int r = 0; r < runs; r++) {
        add_metrics(m, run[r]->view, 0);
        for (size_t i = 0; i < run[r]->view->n_layer; i++)
            add_panel(m, PANEL_LAYERS, run[r]->view->layer[i].name);
    }
    for (int r = 0; r < runs; r++)
        add_metrics(m, run[r]->view, 1);
}

/* ---- smoothing ---- */

static const struct smooth *smoothed(struct monitor *m, const struct runview *run,
                                     const struct series *s)
{
    struct smooth_slot *slot = NULL;
    if (monitor_weights[m->smoothing] <= 0 || strlen(s->name) >= sizeof slot->name)
        return NULL;
    for (int i = 0; i < m->slots && !slot; i++)
        if (m->slot[i].run == run && strcmp(m->slot[i].name, s->name) == 0)
            slot = &m->slot[i];
    if (!slot) {
        if (m->slots == SMOOTH_SLOTS)
            return NULL;
        slot = &m->slot[m->slots++];
        slot->run = run;
        snprintf(slot->name, sizeof slot->name, "%s", s->name);
    }
    if (slot->life != run->life)
        smooth_release(&slot->smooth);
    slot->life = run->life;
    return smooth_update(&slot->smooth, s, monitor_weights[m->smoothing]) < 0 ? NULL
                                                                              : &slot->smooth;
}

void monitor_forget(struct monitor *m)
{
    for (int i = 0; i < m->slots; i++) {
        smooth_release(&m->slot[i].smooth);
        m->slot[i] = (struct smooth_slot){0};
    }
    m->slots = 0;
}

/* ---- seeds ---- */

/* Is it a copy of an earlier one?  Such a run is drawn by itself. */
static int is_copy(const struct open_run *const *run, int r)
{
    for (int i = 0; i < r; i++)
        if (experiment_is_copy(run[i]->view, run[r]->view))
            return 1;
    return 0;
}

static int group_of(const struct open_run *const *run, int runs, int r)
{
    int first = -1, members = 0;
    for (int i = 0; i < runs && !is_copy(run, r); i++) {
        if (i == r || (experiment_same(run[i]->view, run[r]->view) && !is_copy(run, i))) {
            first = first < 0 ? i : first;
            members++;
        }
    }
    return members >= 2 ? first : -1;
}

int monitor_seeds(struct view *v, const struct open_run *const *run, int runs)
{
    const struct monitor *m = v->state;
    int n = 0;
    for (int r = 0; m->has_bands && r < runs; r++)
        n += group_of(run, runs, r) == 0;
    return n;
}

/* ---- charts ---- */

char monitor_letter(const struct open_run *run)
{
    return (char)('A' + run->colour % 26);
}

static void add_curve(struct monitor *m, struct chart *c, const struct panel *p, int metric,
                      const struct open_run *const *run, int runs, int r)
{
    const struct series *s = runview_series(run[r]->view, p->metric[metric]);
    if (!s || c->curves == CHART_CURVES_MAX)
        return;
    struct curve *u = &c->curve[c->curves++];
    *u = (struct curve){.series = s,
                        .smooth = smoothed(m, run[r]->view, s),
                        .group = -1,
                        .steps_planned = run[r]->view->steps_planned,
                        .label = p->metric[metric]};
    const struct run_metric *row = run_metric_find(p->metric[metric]);
    if (strcmp(p->metric[metric], "val_loss") == 0) {
        int64_t newest = runview_val_step(run[r]->view);
        u->has_newest = s->n > 0 && newest > s->step[s->n - 1];
        u->newest = u->has_newest ? runview_val_loss(run[r]->view, newest) : 0;
    }
    u->is_validation = row && row->flags & METRIC_VALIDATION;
    int hue = runs > 1 ? run[r]->colour : metric;
    u->role = (enum role)(ROLE_SERIES_0 + hue % ROLE_SERIES_COUNT);
    u->letter = runs > 1 ? monitor_letter(run[r]) : 0;
    u->is_reference = runs > 1 ? metric > 0 : (p->reference >> metric & 1) != 0;
    u->time_start = runview_start(run[r]->view);
    if (m->has_bands && runs > 1 && metric == 0) {
        u->group = group_of(run, runs, r);
        if (u->group >= 0) {
            u->role = (enum role)(ROLE_SERIES_0 + run[u->group]->colour % ROLE_SERIES_COUNT);
            u->letter = monitor_letter(run[u->group]);
        }
    }
    if (runs > 1 && r > 0)
        u->label = NULL; /* the title shows the values of the current run */
}

static void add_marks(struct chart *c, const struct runview *r)
{
    static const char *const shown[] = {"resume", "set", "nan", "alert", "pause", "stop", NULL};
    for (size_t i = r->n_events; i-- > 0 && c->marks < CHART_MARKS_MAX && c->x_axis == AXIS_STEP;)
        for (int k = 0; shown[k]; k++)
            if (r->event[i].name && strcmp(r->event[i].name, shown[k]) == 0 &&
                c->marks < CHART_MARKS_MAX)
                c->mark[c->marks++] = (double)r->event[i].step;
}

/* The unit of the log's head, else the table's. */
static const char *unit_of(const char *name, const char *unit)
{
    const struct run_metric *m = unit[0] ? NULL : run_metric_find(name);
    return m ? m->unit : unit;
}

int monitor_log_y(const struct monitor *m, int index)
{
    return m->panel[index].is_log ^ (m->log_flip[index / 31] >> (index % 31) & 1);
}

static struct chart make_chart(struct view *v, int index)
{
    struct monitor *m = v->state;
    const struct panel *p = &m->panel[index];
    const struct open_run *run[APP_RUNS_MAX];
    int runs = monitor_runs(v, run);
    struct chart c = chart_new(p->title);
    if (m->slots > SMOOTH_SLOTS - CHART_CURVES_MAX)
        monitor_forget(m);
    c.x_axis = (enum run_axis)m->x_axis;
    c.is_log_x = m->is_log_x;
    c.is_log_y = monitor_log_y(m, index);
    c.x0 = m->x0;
    c.x1 = m->x1;
    c.has_focus = v->has_focus && m->focus == index;
    for (int r = runs - 1; r >= 0; r--) /* the current run on top */
        for (int k = PANEL_METRICS - 1; k >= 0; k--)
            if (p->metric[k][0])
                add_curve(m, &c, p, k, run, runs, r);
    for (int i = 0; i < c.curves / 2; i++) { /* titles in reading order */
        struct curve t = c.curve[i];
        c.curve[i] = c.curve[c.curves - 1 - i];
        c.curve[c.curves - 1 - i] = t;
    }
    if (p->has_target && runs) {
        c.reference = monitor_target(run[0]->view);
        c.reference_label = "target";
    }
    if (runs)
        add_marks(&c, run[0]->view);
    c.unit = c.curves ? unit_of(c.curve[0].series->name, c.curve[0].series->unit) : "";
    if (m->is_alone)
        c.cursor = m->cursor;
    return c;
}

/* ---- layers ---- */

static const char by_layer[] = " by layer"; /* ends titles; the first to go where room is short */

static void layer_range(const struct layer_series *s, size_t at, double target, double *lo,
                        double *hi)
{
    *lo = 0;
    *hi = isfinite(target) ? target : 0;
    for (int l = 0; l < s->layers; l++) {
        double x = (double)s->value[at * (size_t)s->layers + (size_t)l];
        if (isfinite(x)) {
            *lo = x < *lo ? x : *lo;
            *hi = x > *hi ? x : *hi;
        }
    }
    if (*lo >= 0 && *hi <= 1 && strcmp(s->name, "gate_ratio") == 0)
        *hi = 1; /* a share of the rows */
    else if (!(*hi > *lo))
        *hi = *lo + 1;
}

static void layer_labels(struct area a, struct area plot, int layers, double lo, double hi)
{
    char text[24];
    axis_draw_y(a, 1, plot.rows, lo, hi, 0);
    for (int l = 0, free_from = 0; l < layers && a.rows > plot.rows + 1; l++) {
        int x = plot.x - a.x + l * plot.cols / layers;
        snprintf(text, sizeof text, "%d", l);
        int len = (int)strlen(text);
        if (x < free_from || x + len > a.cols)
            continue;
        area_text(a, a.rows - 1, x, -1, ink(ROLE_AXIS), text);
        free_from = x + (layers <= 12 ? len + 1 : 6);
    }
}

/* Position in the plot of the bar of a layer, or of the layers up to `next` that share a column,
 * and the height of the least and of the greatest of them in eighths of a cell. */
struct layer_bar {
    int x, width, pitch, least, greatest; /* pitch: width plus the gap after it */
    int next, is_finite;
};

static struct layer_bar layer_bar(const struct layer_series *s, int l, struct area plot, double lo,
                                  double hi)
{
    int x = l * plot.cols / s->layers, top = plot.rows * 8;
    struct layer_bar b = {.x = x, .least = top, .next = l, .is_finite = 1};
    for (; b.next == l || (b.next < s->layers && b.next * plot.cols / s->layers == x); b.next++) {
        double value = (double)s->value[(s->n - 1) * (size_t)s->layers + (size_t)b.next],
               unit = fmin(1, fmax(0, (value - lo) / (hi - lo)));
        int eighths = isfinite(value) ? (int)lround(unit * top) : 0;
        b.least = eighths < b.least ? eighths : b.least;
        b.greatest = eighths > b.greatest ? eighths : b.greatest;
        b.is_finite &= isfinite(value) != 0;
    }
    b.pitch = b.next * plot.cols / s->layers - x;
    b.width = b.pitch > 2 ? b.pitch - 1 : b.pitch;
    return b;
}

/* Filled from below in eighths of a cell. */
static void bar_draw(struct area plot, const struct layer_bar *b, int eighths, enum role r)
{
    static const char ascii[] = " .--==##";
    for (int y = plot.rows - 1; y >= 0 && eighths > 0; y--, eighths -= 8) {
        int n = eighths > 8 ? 8 : eighths;
        enum glyphs g = plot.canvas->look.glyphs;
        uint32_t rune = g == GLYPHS_ASCII    ? (uint32_t)(unsigned char)(n == 8 ? '#' : ascii[n])
                        : g == GLYPHS_SHADES ? (n > 6   ? 0x2588u
                                                : n > 3 ? 0x2592u
                                                        : 0x2591u)
                        : n == 8             ? 0x2588u
                                             : 0x2580u + (uint32_t)n;
        for (int k = 0; k < b->width; k++)
            area_put(plot, y, b->x + k, rune, ink(r));
    }
}

/* The target at one layer: on the bar if the bar reaches it, else on the background. */
static void draw_target(struct area plot, const struct layer_bar *b, int y)
{
    for (int k = 0; k < b->pitch; k++) {
        int is_filled = k < b->width && b->least >= (plot.rows - y) * 8;
        area_put(plot, y, b->x + k, area_rune(plot, 0x2504, '-'),
                 is_filled ? (struct ink){.fg = INK_CONTRAST, .bg = ROLE_RUN}
                           : ink(ROLE_REFERENCE));
    }
}

static void draw_layers(struct view *v, const struct panel *p, struct area a, int has_focus)
{
    const struct runview *r = app_run(v->app);
    const struct layer_series *s = r ? runview_layer(r, p->metric[0]) : NULL;
    struct ink k = ink_attr(ink(ROLE_TITLE), has_focus ? ATTR_BOLD | ATTR_UNDERLINE : ATTR_BOLD);
    if (!s || s->n == 0 || s->layers < 1) {
        area_text(a, 0, 7, -1, k, p->title);
        return;
    }
    struct area plot = area_sub(a, 1, 7, a.rows - 2, a.cols - 7);
    double lo, hi, sum = 0, target = p->has_target ? monitor_target(r) : (double)NAN;
    int finite = 0, is_shared = s->layers > plot.cols;
    layer_range(s, s->n - 1, target, &lo, &hi);
    for (int l = 0; l < s->layers; l++) {
        double x = (double)s->value[(s->n - 1) * (size_t)s->layers + (size_t)l];
        sum += isfinite(x) ? x : 0;
        finite += isfinite(x) != 0;
    }
    for (struct layer_bar b = {0}; b.next < s->layers && plot.cols > 0;) {
        b = layer_bar(s, b.next, plot, lo, hi);
        bar_draw(plot, &b, b.greatest, ROLE_DIM);
        bar_draw(plot, &b, b.least, ROLE_RUN);
        if (!b.is_finite)
            area_put(plot, plot.rows - 1, b.x, area_rune(plot, 0xD7, 'x'), ink(ROLE_BAD));
    }
    layer_labels(a, plot, s->layers, lo, hi);
    if (isfinite(target)) {
        int y = plot.rows - 1 - (int)lround((target - lo) / (hi - lo) * (plot.rows - 1));
        for (struct layer_bar b = {0}; b.next < s->layers;) {
            b = layer_bar(s, b.next, plot, lo, hi);
            draw_target(plot, &b, y);
        }
    }
    char mean[64] = "", text[24];
    const char *unit = unit_of(s->name, s->unit);
    if (finite)
        snprintf(mean, sizeof mean, "mean %s%s%s%s", num_print(text, sum / finite),
                 unit[0] ? " " : "", unit, is_shared ? ", dim: to the max" : "");
    /* the title is cut rather than the number */
    struct area title = area_sub(a, 0, 7, 1, a.cols - 7);
    int room = title.cols - (finite ? utf8_cells(mean, strlen(mean)) + 1 : 0);
    char name[sizeof p->title + 16];
    size_t n = strlen(p->title), by = strlen(by_layer);
    int is_by = n > by && strcmp(p->title + n - by, by_layer) == 0;
    n -= is_by ? by : 0;
    snprintf(name, sizeof name, "%.*s by %s", (int)n, p->title,
             runview_layer_word(r, s->layers));
    size_t whole = strlen(name);
    if (is_by && (int)whole <= room)
        n = whole;
    int x = area_bytes(title, 0, 0, room < 4 ? 4 : room, k, name, n) + 1;
    area_text(title, 0, x, -1, ink(ROLE_DIM), mean);
}

/* ---- shares of a step ---- */

enum { SHARES_WIDE = 52 }; /* from this width on the times are next to the shares */

/* The newest value of the current run, smoothed like the curves; NaN when there is none. */
static double newest(struct view *v, const char *metric)
{
    const struct runview *r = app_run(v->app);
    const struct series *s = r ? runview_series(r, metric) : NULL;
    const struct smooth *smooth = s && s->n ? smoothed(v->state, r, s) : NULL;
    if (!s || s->n == 0)
        return (double)NAN;
    return smooth ? smooth->v[s->n - 1] : s->value[s->n - 1];
}

static void share_bars(struct area a, const struct panel *p, const double ms[PANEL_METRICS],
                       double whole)
{
    struct bar bar[PANEL_METRICS];
    int n = 0, is_wide = a.cols >= SHARES_WIDE, end = a.cols - (is_wide ? 14 : 2);
    for (; n < PANEL_METRICS && p->metric[n][0]; n++) {
        bar[n] = (struct bar){.label = run_metric_part(run_metric_find(p->metric[n])),
                              .value = ms[n] / whole,
                              .role = (enum role)(ROLE_SERIES_0 + n)};
    }
    bars_draw(area_sub(a, 0, 0, a.rows, end), bar, (size_t)n, 1, (double)NAN, 0);
    for (int k = 0; k < n && k < a.rows; k++) { /* dotted above the value of the bar */
        char text[24];
        area_textf(a, k, end - 7, -1, ink(ROLE_TEXT), "%7.1f %%", 100 * bar[k].value);
        snprintf(text, sizeof text, ms[k] < 9.995 ? "%.2f ms" : "%.1f ms", ms[k]);
        if (is_wide)
            area_right(a, k, a.cols, ink(ROLE_DIM), text);
    }
}

/* Statistics that are not part of a step: shares of the run, measured peak, memory. */
static void share_notes(struct view *v, struct area a)
{
    const struct runview *r = app_run(v->app);
    double evaluation = newest(v, "evaluation_share"), checkpoint = newest(v, "checkpoint_share");
    char si[16];
    int y = 0, x = 0;
    if (isfinite(evaluation) && isfinite(checkpoint))
        area_textf(a, y++, 0, -1, ink(ROLE_DIM), "run: eval %.1f %%, checkpoints %.1f %%",
                   100 * evaluation, 100 * checkpoint);
    if (r->peak_gflops > 0)
        area_textf(a, y++, 0, -1, ink(ROLE_DIM), "measured peak, %s: %.4g GFLOP/s", r->peak_format,
                   r->peak_gflops);
    for (int i = 0; i < r->arenas; i++) {
        x += area_text(a, y, x, -1, ink(ROLE_DIM), i ? ", " : "memory: ");
        x += area_text(a, y, x, -1, ink(ROLE_DIM), r->arena[i].name);
        x += area_textf(a, y, x, -1, ink(ROLE_DIM), " %sB", str_si(si, r->arena[i].bytes));
    }
}

static void draw_shares(struct view *v, const struct panel *p, struct area a, int has_focus)
{
    struct ink k = ink_attr(ink(ROLE_TITLE), has_focus ? ATTR_BOLD | ATTR_UNDERLINE : ATTR_BOLD);
    int x = 7 + area_text(a, 0, 7, -1, k, p->title) + 1, n = 0;
    double ms[PANEL_METRICS], whole = 0, mfu = newest(v, "mfu");
    char text[24];
    for (; n < PANEL_METRICS && p->metric[n][0]; n++) {
        ms[n] = newest(v, p->metric[n]);
        ms[n] = isfinite(ms[n]) && ms[n] > 0 ? ms[n] : 0;
        whole += ms[n];
    }
    if (!(whole > 0))
        return;
    x += area_textf(a, 0, x, -1, ink(ROLE_TEXT), "%s ms", num_print(text, whole)) + 2;
    if (isfinite(mfu))
        area_textf(a, 0, x, -1, ink(ROLE_TEXT), "mfu %.1f %%", 100 * mfu);
    struct area body = area_sub(a, 1, 1, a.rows - 1, a.cols - 2);
    share_bars(body, p, ms, whole);
    int gap = body.rows > n + 3;
    share_notes(v, area_sub(body, n + gap, 0, body.rows - n - gap, body.cols));
}

int monitor_same_x(struct view *v, int a, int b)
{
    struct monitor *m = v->state;
    if (a == b || m->x1 > m->x0 || m->panel[a].kind != PANEL_LINES ||
        m->panel[b].kind != PANEL_LINES)
        return 1;
    struct chart one = make_chart(v, a), other = make_chart(v, b);
    struct scan_axis x = scan_x_axis(&one), of = scan_x_axis(&other);
    return x.lo == of.lo && x.hi == of.hi;
}

void monitor_draw_panel(struct view *v, int index, struct area a, int is_compact)
{
    struct monitor *m = v->state;
    m->area[index] = a;
    if (m->panel[index].kind == PANEL_LAYERS) {
        draw_layers(v, &m->panel[index], a, v->has_focus && m->focus == index);
        return;
    }
    if (m->panel[index].kind == PANEL_SHARES) {
        draw_shares(v, &m->panel[index], a, v->has_focus && m->focus == index);
        return;
    }
    if (m->panel[index].kind == PANEL_RANKS) {
        monitor_draw_ranks(v, &m->panel[index], a, v->has_focus && m->focus == index);
        return;
    }
    struct chart c = make_chart(v, index);
    c.is_compact = is_compact;
    chart_draw(a, &c, &m->at[index]);
}

size_t monitor_point(struct view *v, const struct series *s)
{
    struct monitor *m = v->state;
    struct chart c = make_chart(v, m->focus);
    for (int i = 0; i < c.curves && m->is_alone && isfinite(m->cursor); i++)
        if (c.curve[i].series == s)
            return chart_index_at(&c.curve[i], c.x_axis, m->cursor);
    return s->n - 1;
}

void monitor_draw_readout(struct view *v, int index, struct area line)
{
    struct monitor *m = v->state;
    char text[24];
    int x = 1;
    if (m->panel[index].kind != PANEL_LINES || !isfinite(m->cursor))
        return;
    struct chart c = make_chart(v, index);
    double shown = c.x_axis == AXIS_STEP ? round(m->cursor) : m->cursor; /* no part of a step */
    x += area_textf(line, 0, x, -1, ink(ROLE_MARKED), "%s %s", run_axis_name[c.x_axis],
                    num_print(text, shown)) +
         2;
    for (int i = 0; i < c.curves; i++) {
        const struct curve *u = &c.curve[i];
        size_t at = chart_index_at(u, c.x_axis, m->cursor);
        if (at >= u->series->n)
            continue;
        x += area_text(line, 0, x, -1, ink(ROLE_DIM), u->series->name) + 1;
        x += area_text(line, 0, x, -1, ink(u->role), num_print(text, u->series->value[at])) + 1;
        if (u->smooth)
            x += area_textf(line, 0, x, -1, ink(ROLE_DIM), "(%s)",
                            num_print(text, u->smooth->v[at])) +
                 1;
        double from = chart_x_of(u, c.x_axis, at); /* the nearest point may be far away */
        if (fabs(from - m->cursor) > (m->at[index].x1 - m->at[index].x0) / 50)
            x += area_textf(line, 0, x, -1, ink(ROLE_DIM), "at %s", num_print(text, from)) + 1;
        x++;
    }
}
