/* Monitor: live curves of one run or of several overlaid runs, and the keys that control the
 * run. */
#include "tui/monitor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { EVENTS_ROWS_MIN = 34 }; /* of the view, to show events below the charts */

static int monitor_open(struct view *v, struct err *e)
{
    struct monitor *m = v->state;
    (void)e;
    m->smoothing = 1;
    m->has_bands = m->has_events = 1;
    m->cursor = (double)NAN;
    return 0;
}

static void monitor_close(struct view *v)
{
    monitor_forget(v->state);
}

/* ---- drawing ---- */

static void draw_empty(struct view *v, struct area a)
{
    const struct runview *r = app_run(v->app);
    int y = a.rows / 2 - 2, x = a.cols > 50 ? a.cols / 2 - 24 : 1;
    if (!r) {
        area_text(a, y, x, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No run is open");
        area_text(a, y + 2, x, -1, ink(ROLE_TEXT), "Home (1): Enter opens a run, a starts one");
        area_text(a, y + 3, x, -1, ink(ROLE_TEXT), ":open PATH opens a run, a log or a trace");
        return;
    }
    if (app_draw_nothing(v->app, a))
        return;
    area_text(a, y, x, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "Waiting for the first metrics");
    area_textf(a, y + 2, x, -1, ink(ROLE_TEXT), "%llu record%s read, none of them a metric yet",
               (unsigned long long)r->records, r->records == 1 ? "" : "s");
    area_text(a, y + 3, x, -1, ink(ROLE_DIM), "A trace has no metrics: see Depth map and FLOPs");
}

/* Names of overlaid runs in their colours. */
static int draw_legend(struct view *v, struct area a)
{
    const struct open_run *run[APP_RUNS_MAX];
    int runs = monitor_runs(v, run), seeds = monitor_seeds(v, run, runs), x = 1, i = 0;
    char band[64];
    int start =
        a.cols - 1 - snprintf(band, sizeof band, "mean of n = %d seeds, band: 95 %% CI (t)", seeds);
    /* of one band, what it is comes before the names */
    int end = (seeds == runs && start > 20 ? start : a.cols) - 6;
    if (runs < 2)
        return 0;
    for (; i < runs && x < end - 6; i++) {
        struct ink k = ink_series(run[i]->colour);
        int most = end - x - 2 < a.cols / 5 ? end - x - 2 : a.cols / 5;
        area_put(a, 0, x,
                 a.canvas->look.colours ? area_rune(a, 0x25A0, '#')
                                        : (uint32_t)monitor_letter(run[i]),
                 k);
        x += 2 + area_text(a, 0, x + 2, most, i ? k : ink_attr(k, ATTR_BOLD),
                           run[i]->view->name ? run[i]->view->name : "?");
        x += 2;
    }
    if (i < runs)
        x += area_textf(a, 0, x, -1, ink(ROLE_DIM), "+%d", runs - i);
    if (seeds >= 2 && x < start)
        area_right(a, 0, a.cols - 1, ink(ROLE_DIM), band);
    return 1;
}

/* Where the run comes from, as far as its log says. */
static const char *monitor_source(const struct runview *r, char *out, size_t size)
{
    char said[512];
    const char *foreign = runview_foreign(r);
    runview_source(r, said, sizeof said);
    snprintf(out, size, "%s%s%s%s%s", foreign ? foreign : "", foreign && said[0] ? ", " : "", said,
             (foreign || said[0]) && r->host[0] ? ", on " : "", foreign || said[0] ? r->host : "");
    return out;
}

static void draw_event_rows(struct view *v, struct area a)
{
    const struct runview *r = app_run(v->app);
    static const enum role role[] = {ROLE_DIM, ROLE_TEXT, ROLE_WARN, ROLE_BAD};
    char source[600];
    area_text(a, 0, 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "events");
    if (a.cols >= 80)
        area_right(area_sub(a, 0, 20, 1, a.cols - 21), 0, a.cols - 21, ink(ROLE_DIM),
                   monitor_source(r, source, sizeof source));
    if (r->n_events == 0)
        area_text(a, 0, 9, -1, ink(ROLE_DIM), "none yet");
    for (int y = 1; y < a.rows && (size_t)y <= r->n_events; y++) {
        const struct run_event *ev = &r->event[r->n_events - (size_t)y];
        int level = ev->level < 0 || ev->level > 3 ? 1 : ev->level;
        area_textf(a, y, 1, 10, ink(ROLE_DIM), "%9lld", (long long)ev->step);
        area_text(a, y, 12, 12, ink(role[level]), ev->name ? ev->name : "");
        area_text(a, y, 25, -1, ink(ROLE_TEXT), ev->text ? ev->text : "");
    }
}

/* The compute budget on the left, the drawing options of the curves on the right. */
static void draw_strip(struct view *v, struct area line)
{
    const struct monitor *m = v->state;
    const struct runview *r = app_run(v->app);
    char text[160], pages[48] = "", source[600];
    const struct series *s = runview_series(r, "block_ratio");
    if (!s)
        s = runview_series(r, "flops_ratio");
    double value = s && s->n ? s->value[s->n - 1] : (double)NAN, target = monitor_target(r);
    int per_page = m->shown_columns * m->shown_rows;
    if (!m->is_alone && m->panels > per_page)
        snprintf(pages, sizeof pages, "%d-%d of %d%s  ", m->top + 1,
                 m->top + per_page < m->panels ? m->top + per_page : m->panels, m->panels,
                 m->is_cut ? "+" : "");
    snprintf(text, sizeof text, "%sx %s%s  smooth %g", pages, run_axis_name[m->x_axis],
             m->is_log_x && !(m->x1 > m->x0 && m->x0 <= 0) ? " (log)" : "",
             monitor_weights[m->smoothing]);
    int end = area_right(line, 0, line.cols - 1, ink(ROLE_DIM), text);
    if (!isfinite(value))
        area_text(line, 0, 1, end - 3, ink(ROLE_DIM), monitor_source(r, source, sizeof source));
    if (isfinite(value) && end > 40)
        gauge_draw(area_sub(line, 0, 1, 1, (end > 70 ? 64 : end - 4)),
                   s->name[0] == 'b' ? "budget" : "FLOPs", value, target, 1,
                   isfinite(target) && fabs(value - target) > 0.1 ? ROLE_WARN : ROLE_GOOD);
}

static int rows_that_fit(struct area a)
{
    enum { PANEL_ROWS_MIN = 6 }; /* a title and five rows of a chart */
    return a.rows < PANEL_ROWS_MIN ? 1 : a.rows / PANEL_ROWS_MIN;
}

/* Prefers many readable charts, then few empty slots, then balanced proportions. */
static int choose_columns(const struct monitor *m, struct area a)
{
    int fits = rows_that_fit(a), best = 1, best_score = -1000;
    for (int c = 1; c <= 5 && c <= m->panels && (c == 1 || a.cols / c >= 38); c++) {
        int rows = (m->panels + c - 1) / c;
        rows = rows < fits ? rows : fits;
        int shown = c * rows < m->panels ? c * rows : m->panels, holes = c * rows - shown;
        int is_squat = a.cols / c > 4 * (a.rows / rows) + 60;
        int score = 10 * shown - 4 * holes - 30 * is_squat;
        if (score > best_score) {
            best_score = score;
            best = c;
        }
    }
    return best;
}

static void choose_grid(struct monitor *m, struct area a)
{
    int columns = m->columns ? m->columns : choose_columns(m, a);
    columns = columns > m->panels ? m->panels : columns;
    while (columns > 1 && a.cols / columns < 24)
        columns--;
    int needed = (m->panels + columns - 1) / columns, fits = rows_that_fit(a);
    m->shown_columns = columns;
    m->shown_rows = needed < fits ? needed : fits;
    if (m->shown_columns * m->shown_rows < m->panels && m->shown_rows == needed)
        m->shown_rows = fits;
    int row = m->focus / columns, top = m->top / columns;
    top = row < top ? row : row >= top + m->shown_rows ? row - m->shown_rows + 1 : top;
    if (top + m->shown_rows > needed)
        top = needed > m->shown_rows ? needed - m->shown_rows : 0;
    m->top = top * columns;
}

/* The chart whose x labels the rows above share: the first of lines in the lowest row with any. */
static int labelled(const struct monitor *m)
{
    for (int row = m->shown_rows; row-- > 0;)
        for (int col = 0; col < m->shown_columns; col++) {
            int i = m->top + row * m->shown_columns + col;
            if (i < m->panels && m->panel[i].kind == PANEL_LINES)
                return i;
        }
    return m->top;
}

static void draw_grid(struct view *v, struct area a)
{
    struct monitor *m = v->state;
    choose_grid(m, a);
    int labels = labelled(m), labels_row = (labels - m->top) / m->shown_columns;
    for (int i = 0; i < m->panels; i++)
        m->area[i].rows = 0;
    for (int k = 0; k < m->shown_columns * m->shown_rows && m->top + k < m->panels; k++) {
        int row = k / m->shown_columns, col = k % m->shown_columns;
        int y0 = row * a.rows / m->shown_rows, y1 = (row + 1) * a.rows / m->shown_rows;
        int x0 = col * a.cols / m->shown_columns, x1 = (col + 1) * a.cols / m->shown_columns;
        int is_last =
            row == labels_row || m->top + k + m->shown_columns >= m->panels || y1 - y0 >= 10;
        monitor_draw_panel(v, m->top + k, area_sub(a, y0, x0, y1 - y0, x1 - x0 - 1),
                           !is_last && monitor_same_x(v, labels, m->top + k));
    }
}

static void monitor_draw(struct view *v, struct area a)
{
    struct monitor *m = v->state;
    m->origin_y = a.y;
    m->origin_x = a.x;
    monitor_find_panels(v);
    if (m->panels == 0) {
        draw_empty(v, a);
        return;
    }
    m->focus = m->focus >= m->panels ? m->panels - 1 : m->focus;
    int top = draw_legend(v, a), events = m->has_events && a.rows >= EVENTS_ROWS_MIN ? 6 : 0;
    struct area body = area_sub(a, top, 0, a.rows - top - events - (a.rows >= 8), a.cols);
    if (m->is_alone)
        monitor_draw_panel(v, m->focus, body, 0);
    else
        draw_grid(v, body);
    if (events)
        draw_event_rows(v, area_sub(a, top + body.rows, 0, events, a.cols));
    if (a.rows >= 8 && m->is_alone && isfinite(m->cursor))
        monitor_draw_readout(v, m->focus, area_sub(a, a.rows - 1, 0, 1, a.cols));
    else if (a.rows >= 8)
        draw_strip(v, area_sub(a, a.rows - 1, 0, 1, a.cols));
}

/* ---- keys ---- */

static struct monitor *state(struct view *v)
{
    return v->state;
}

/* The cursor steps by one column of the plot, where there are points to read. */
static void move_cursor(struct monitor *m, int by)
{
    const struct chart_view *at = &m->at[m->focus];
    if (!at->has_points)
        return;
    double part = at->plot.cols > 0 ? (double)by / at->plot.cols : 0;
    if (!isfinite(m->cursor))
        m->cursor = by > 0 ? at->x0 : at->x1;
    else if (m->is_log_x && at->x0 > 0)
        m->cursor *= pow(at->x1 / at->x0, part);
    else
        m->cursor += part * (at->x1 - at->x0);
    m->cursor = m->cursor < at->x0 ? at->x0 : m->cursor > at->x1 ? at->x1 : m->cursor;
}

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)args;
    int by = k->value,
        to = m->focus +
             (by == 2 || by == -2 ? by / 2 * (m->shown_columns > 0 ? m->shown_columns : 1) : by);
    if (m->is_alone && (by == 1 || by == -1)) {
        move_cursor(m, by);
        return;
    }
    if (to >= 0 && to < m->panels)
        m->focus = to;
}

static void key_page(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)args;
    int page = m->shown_columns * m->shown_rows, to = k->value == 9    ? m->panels - 1
                                                      : k->value == -9 ? 0
                                                                       : m->focus + k->value * page;
    m->focus = to < 0 ? 0 : to >= m->panels ? (m->panels ? m->panels - 1 : 0) : to;
}

static void key_alone(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    state(v)->is_alone = !state(v)->is_alone;
    state(v)->cursor = (double)NAN;
}

static void key_columns(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)k, (void)args;
    m->columns = (m->columns + 1) % 4;
}

static void key_smooth(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)k, (void)args;
    m->smoothing = (m->smoothing + 1) % MONITOR_WEIGHTS;
}

static void key_x_axis(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)k, (void)args;
    m->x_axis = (m->x_axis + 1) % RUN_AXES;
    m->x0 = m->x1 = 0;
    m->cursor = (double)NAN; /* it was a position on the previous axis */
}

static void key_log_y(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)k, (void)args;
    if (m->focus < m->panels && m->panel[m->focus].kind != PANEL_LINES)
        app_notify(v->app, LOG_INFO, "only charts of curves have a log axis");
    else
        m->log_flip[m->focus / 31] ^= 1 << (m->focus % 31);
}

static void key_log_x(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)k, (void)args;
    m->is_log_x = !m->is_log_x;
}

static void key_bands(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)k, (void)args;
    m->has_bands = !m->has_bands;
}

static void key_events(struct view *v, const struct key *k, const char *args)
{
    struct monitor *m = state(v);
    (void)k, (void)args;
    if (v->rows < EVENTS_ROWS_MIN) {
        app_notify(v->app, LOG_INFO, "events need %d rows here; the Log view has all",
                   EVENTS_ROWS_MIN);
        return;
    }
    m->has_events = !m->has_events;
}

enum { LOG_MOST = 690 }; /* exp(690) is 5e299 */

/* Shows `factor` times the x range of the focused chart about its cursor or its centre, moved by
 * the share `shift` of the range. */
static void set_window(struct monitor *m, double factor, double shift)
{
    const struct chart_view *at = &m->at[m->focus];
    int is_set = m->x1 > m->x0; /* several keys may come before the next frame */
    double lo = is_set ? m->x0 : at->x0, hi = is_set ? m->x1 : at->x1, middle = m->cursor;
    if (m->panel[m->focus].kind != PANEL_LINES || !(hi > lo)) {
        m->x0 = m->x1 = 0;
        return;
    }
    int is_log = m->is_log_x && lo > 0;
    if (is_log) { /* the range of the logarithm */
        lo = log(lo);
        hi = log(hi);
        middle = log(middle);
    }
    double span = hi - lo;
    middle = isfinite(middle) ? middle : lo + span / 2;
    double left = (middle - lo) / span * factor * span;
    lo = middle + shift * span - left;
    hi = lo + factor * span;
    m->x0 = is_log ? exp(fmax(lo, -LOG_MOST)) : lo;
    m->x1 = is_log ? exp(fmin(hi, LOG_MOST)) : hi;
}

/* Of every run in the focused chart: the steps between the points next to its x range. */
static void want_detail(struct view *v)
{
    const struct monitor *m = v->state;
    const struct open_run *run[APP_RUNS_MAX];
    int runs = m->x1 > m->x0 ? monitor_runs(v, run) : 0;
    for (int r = 0; r < runs; r++) {
        const struct runview *view = run[r]->view;
        const struct series *s = runview_series(view, m->panel[m->focus].metric[0]);
        double from = -HUGE_VAL, to = HUGE_VAL, start = runview_start(view);
        for (size_t i = 0; s && i < s->n; i++) {
            double x = series_x(s, i, (enum run_axis)m->x_axis, view->steps_planned, start);
            if (x <= m->x0)
                from = fmax(from, (double)s->step[i]);
            if (x >= m->x1)
                to = fmin(to, (double)s->step[i]);
        }
        if (s && s->n > 0)
            app_want_detail(v->app, run[r]->path, fmax(from, 0),
                            fmin(to, (double)s->step[s->n - 1]));
    }
}

static void key_all(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    state(v)->x0 = state(v)->x1 = 0;
}

static void key_zoom(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    set_window(state(v), k->value > 0 ? 0.5 : 2, 0);
    want_detail(v);
}

static void key_pan(struct view *v, const struct key *k, const char *args)
{
    (void)args;
    set_window(state(v), 1, 0.25 * k->value);
    want_detail(v);
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    size_t n, current;
    const struct open_run *all = app_runs(v->app, &n, &current);
    (void)k, (void)args;
    if (!n)
        return;
    int is_marked = !all[current].is_marked;
    app_notify(v->app, LOG_INFO, is_marked ? "%s is marked" : "%s is not marked now",
               all[current].view->name); /* it is shown either way */
    app_mark_run(v->app, all[current].path, is_marked);
}

/* ---- the run of this view: its commands, on a key each ---- */

static void key_pause_resume(struct view *v, const struct key *k, const char *args)
{
    const struct runview *r = app_run(v->app);
    (void)k, (void)args;
    app_command(v->app, r && r->state == RUN_PAUSED ? "resume" : "pause");
}

static void key_checkpoint(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    app_command(v->app, "checkpoint");
}

static void key_probe(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    app_command(v->app, "probe");
}

static void key_set(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    app_command(v->app, "set");
}

static void key_stop(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    app_command(v->app, "stop");
}

static int panel_under(const struct monitor *m, const struct event *ev)
{
    for (int i = 0; i < m->panels; i++) {
        const struct area *a = &m->area[i];
        if (a->rows > 0 && area_contains(*a, ev->y, ev->x))
            return i;
    }
    return -1;
}

static int monitor_event(struct view *v, const struct event *ev)
{
    struct monitor *m = v->state;
    if (ev->kind == EVENT_KEY && ev->key == KEYCODE_ESC) {
        int had = m->is_alone || m->x1 > m->x0;
        if (m->is_alone && isfinite(m->cursor))
            m->cursor = (double)NAN;
        else if (m->is_alone)
            m->is_alone = 0;
        else
            m->x0 = m->x1 = 0;
        return had;
    }
    if (ev->kind != EVENT_MOUSE || m->panels == 0)
        return 0;
    struct event at = *ev; /* areas are kept in screen coordinates */
    at.y += m->origin_y;
    at.x += m->origin_x;
    if (ev->action == MOUSE_WHEEL_UP || ev->action == MOUSE_WHEEL_DOWN) {
        int to = m->focus + (ev->action == MOUSE_WHEEL_UP ? -m->shown_columns : m->shown_columns);
        m->focus = to < 0 || to >= m->panels ? m->focus : to;
        return 1;
    }
    if (ev->action == MOUSE_PRESS || ev->action == MOUSE_DRAG) {
        int hit = panel_under(m, &at);
        if (hit >= 0 && ev->action == MOUSE_PRESS)
            m->focus = hit;
        if (ev->is_double)
            m->is_alone = !m->is_alone;
        return 1;
    }
    return 0;
}

static int monitor_search(struct view *v, const char *text, int direction)
{
    struct monitor *m = v->state;
    for (int k = 1; k <= m->panels; k++) {
        int i = ((m->focus + direction * k) % m->panels + m->panels) % m->panels;
        for (int j = 0; j < PANEL_METRICS; j++) {
            if (strstr(m->panel[i].metric[j], text) || strstr(m->panel[i].title, text)) {
                m->focus = i;
                return 1;
            }
        }
    }
    return 0;
}

static int monitor_subject(struct view *v, struct subject *out)
{
    struct monitor *m = v->state;
    const struct runview *r = app_run(v->app);
    if (!r || m->focus >= m->panels)
        return 0;
    const char *name = m->panel[m->focus].metric[0];
    const struct series *s = runview_series(r, name);
    const struct layer_series *l = runview_layer(r, name);
    str_copy(out->key, sizeof out->key, name);
    snprintf(out->where, sizeof out->where, "chart \"%s\" of run %s", m->panel[m->focus].title,
             r->name ? r->name : "");
    if (m->panel[m->focus].kind == PANEL_LAYERS && l && l->n) {
        out->step = l->step[l->n - 1];
        out->record = "layer record";
    } else if (s && s->n) {
        size_t at = monitor_point(v, s);
        at = at < s->n ? at : s->n - 1;
        out->value = s->value[at];
        out->step = s->step[at];
        out->record = "metric record";
    }
    return name[0] != '\0';
}

static void monitor_copy(struct view *v, struct str *out)
{
    const struct runview *r = app_run(v->app);
    for (size_t i = 0; r && i < r->n_series; i++) {
        const struct series *s = &r->series[i];
        if (s->n) {
            copy_add(out, s->name);
            str_addf(out, "\t%lld\t%.9g\n", (long long)s->step[s->n - 1], s->value[s->n - 1]);
        }
    }
}

static void monitor_run_changed(struct view *v)
{
    monitor_forget(v->state);
}

/* The focused chart, of the metrics that all of its runs have. */
static int monitor_words(struct view *v, const char **word, enum figure_runs *of)
{
    struct monitor *m = v->state;
    const struct open_run *run[APP_RUNS_MAX];
    int runs = monitor_runs(v, run), n = 0;
    const struct panel *p = m->focus < m->panels ? &m->panel[m->focus] : NULL;
    struct str names = str_in(m->names, sizeof m->names);
    (void)of;
    for (int k = 0; p && p->kind == PANEL_LINES && k < PANEL_METRICS; k++) {
        int has = p->metric[k][0] && !strchr(p->metric[k], ',');
        for (int r = 0; has && r < runs; r++)
            has = runview_series(run[r]->view, p->metric[k]) != NULL;
        if (has)
            str_addf(&names, "%s%s", n++ ? "," : "", p->metric[k]);
    }
    if (n == 0) {
        app_notify(v->app, LOG_WARN, "figure training: no curves in this chart; choose another");
        return -1;
    }
    snprintf(m->weight, sizeof m->weight, "%g", monitor_weights[m->smoothing]);
    const char *const all[] = {"training", "--metric", m->names, "-x", run_axis_name[m->x_axis],
                               "--smooth", m->weight};
    memcpy(word, all, sizeof all);
    n = (int)DS_LEN(all);
    int is_log_y = monitor_log_y(m, m->focus);
    if (m->is_log_x || is_log_y) {
        word[n++] = "--log";
        word[n++] = !is_log_y ? "x" : m->is_log_x ? "x,y" : "y";
    }
    if (m->x1 > m->x0) {
        snprintf(m->range, sizeof m->range, "%.17g..%.17g", m->x0, m->x1);
        word[n++] = "--range";
        word[n++] = m->range;
    }
    return n;
}

/* clang-format off */
static const struct key monitor_keys[] = {
    {"h Left",     "left",       NULL, "chart to the left; in a single chart: cursor", NULL,     0, KEY_HIDDEN, -1, key_move},
    {"l Right",    "right",      NULL, "chart to the right; in a single chart: cursor", NULL,    0, KEY_HIDDEN, 1, key_move},
    {"k Up",       "up",         NULL, "chart above",                        NULL,          0, KEY_HIDDEN, -2, key_move},
    {"j Down",     "down",       NULL, "chart below",                        NULL,          0, KEY_HIDDEN, 2, key_move},
    {"PgDn C-d",   "page-down",  NULL, "next page of charts",                NULL,          0, KEY_HIDDEN, 1, key_page},
    {"PgUp C-u",   "page-up",    NULL, "previous page of charts",            NULL,          0, KEY_HIDDEN, -1, key_page},
    {"gg Home",    "first",      NULL, "first chart",                        NULL,          0, KEY_HIDDEN, -9, key_page},
    {"G End",      "last",       NULL, "last chart",                         NULL,          0, KEY_HIDDEN, 9, key_page},
    {"Enter",      "alone",      NULL, "show only this chart, and back",     "one chart",  60, KEY_VIEW_CHANGE, 0, key_alone},
    {"s",          "smooth",     NULL, "smoothing: none, 0.6, 0.9, 0.97, 0.99", NULL,     58, KEY_VIEW_CHANGE, 0, key_smooth},
    {"x",          "x-axis",     NULL, "x: step, tokens, wall time, progress, FLOPs", "x axis",   56, KEY_VIEW_CHANGE, 0, key_x_axis},
    {"L",          "log-y",      NULL, "log y axis of this chart",           "log",        54, KEY_VIEW_CHANGE, 0, key_log_y},
    {"X",          "log-x",      NULL, "log x axis",                         NULL,          0, KEY_VIEW_CHANGE, 0, key_log_x},
    {"c",          "columns",    NULL, "columns of charts: automatic, 1, 2, 3", NULL,       40, KEY_VIEW_CHANGE, 0, key_columns},
    {"b",          "bands",      NULL, "seeds as mean and 95 % confidence band (Student's t)", NULL,       0, KEY_VIEW_CHANGE, 0, key_bands},
    {"E",          "events",     NULL, "show the newest events",             NULL,          0, KEY_VIEW_CHANGE, 0, key_events},
    {"i",          "zoom-in",    NULL, "halve the x range",                  "zoom",       38, KEY_VIEW_CHANGE, 1, key_zoom},
    {"o",          "zoom-out",   NULL, "double the x range",                 NULL,          0, KEY_VIEW_CHANGE, -1, key_zoom},
    {"<",          "pan-left",   NULL, "move the x range back",              NULL,          0, KEY_VIEW_CHANGE, -1, key_pan},
    {">",          "pan-right",  NULL, "move the x range forward",           NULL,          0, KEY_VIEW_CHANGE, 1, key_pan},
    {"0",          "all",        NULL, "show and follow the whole x range",  NULL,          0, KEY_VIEW_CHANGE, 0, key_all},
    {"Space",      "mark",       NULL, "mark this run; marked runs are overlaid", NULL,     0, 0, 0, key_mark},
    {"P",          "pause-resume", NULL, "pause or resume training",         "pause",      50, KEY_MUTATES | KEY_ON_RUN, 0, key_pause_resume},
    {"C",          "run-checkpoint", NULL, "write a checkpoint now",         "save",       48, KEY_MUTATES | KEY_ON_RUN, 0, key_checkpoint},
    {"B",          "run-probe",  NULL, "record the probe texts now",         "probe",      44, KEY_MUTATES | KEY_ON_RUN, 0, key_probe},
    {"S",          "set-value",  NULL, "change a setting of the run",        "set",        46, KEY_MUTATES | KEY_ON_RUN, 0, key_set},
    {"K",          "run-stop",   NULL, "save a checkpoint and stop the run (asks)", NULL,          0, KEY_MUTATES | KEY_ON_RUN, 0, key_stop},
    {0},
};

_Static_assert(MONITOR_FLIPS == 9, "each has a row below");
static const struct setting monitor_settings[] = {
    {"columns",   SETTING_INT,  offsetof(struct monitor, columns),   0, 3},
    {"focus",     SETTING_INT,  offsetof(struct monitor, focus),     0, PANELS_MAX - 1},
    {"alone",     SETTING_INT,  offsetof(struct monitor, is_alone),  0, 1},
    {"x_axis",    SETTING_INT,  offsetof(struct monitor, x_axis),    0, RUN_AXES - 1},
    {"smoothing", SETTING_INT,  offsetof(struct monitor, smoothing), 0, MONITOR_WEIGHTS - 1},
    {"log_x",     SETTING_INT,  offsetof(struct monitor, is_log_x),  0, 1},
    {"bands",     SETTING_INT,  offsetof(struct monitor, has_bands), 0, 1},
    {"events",    SETTING_INT,  offsetof(struct monitor, has_events), 0, 1},
    {"log_flip", SETTING_INT, offsetof(struct monitor, log_flip[0]), 0, 2147483647},
    {"log_flip31", SETTING_INT, offsetof(struct monitor, log_flip[1]), 0, 2147483647},
    {"log_flip62", SETTING_INT, offsetof(struct monitor, log_flip[2]), 0, 2147483647},
    {"log_flip93", SETTING_INT, offsetof(struct monitor, log_flip[3]), 0, 2147483647},
    {"log_flip124", SETTING_INT, offsetof(struct monitor, log_flip[4]), 0, 2147483647},
    {"log_flip155", SETTING_INT, offsetof(struct monitor, log_flip[5]), 0, 2147483647},
    {"log_flip186", SETTING_INT, offsetof(struct monitor, log_flip[6]), 0, 2147483647},
    {"log_flip217", SETTING_INT, offsetof(struct monitor, log_flip[7]), 0, 2147483647},
    {"log_flip248", SETTING_INT, offsetof(struct monitor, log_flip[8]), 0, 2147483647},
    {"x0",        SETTING_REAL, offsetof(struct monitor, x0),        -1e300, 1e300},
    {"x1",        SETTING_REAL, offsetof(struct monitor, x1),        -1e300, 1e300},
    {0},
};

const struct view_ops view_monitor = {
    .name = "monitor",  .title = "Monitor",
    .summary = "Live curves of the run, overlays of several runs, and the keys that control the run.",
    .keys = monitor_keys,  .settings = monitor_settings,  .state_size = sizeof(struct monitor),
    .figure_words = monitor_words,
    .open = monitor_open,  .close = monitor_close,  .draw = monitor_draw,  .event = monitor_event,
    .run_changed = monitor_run_changed,  .search = monitor_search,  .copy = monitor_copy,
    .subject = monitor_subject,
};
/* clang-format on */
