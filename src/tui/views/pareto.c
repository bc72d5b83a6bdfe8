/* Pareto: a result of the marked runs against what it costs: seeds of one experiment as a mean with
 * its interval, dominated experiments dimmed, isoFLOP curves through equal budgets. */
#include "tui/pareto.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"

static const double rest_s = 0.12;
enum { METRICS_MAX = 64 };

static int pareto_open(struct view *v, struct err *e)
{
    struct pareto *p = v->state;
    const char *metric = app_recall(v->app, "pareto.metric");
    (void)e;
    str_copy(p->metric, sizeof p->metric, metric && *metric ? metric : "val_loss");
    return 0;
}

/* ---- the points ---- */

static void collect_runs(struct view *v)
{
    struct pareto *p = v->state;
    size_t n, current;
    const struct open_run *all = app_runs(v->app, &n, &current);
    p->runs = p->is_marked = 0;
    for (size_t i = 0; i < n; i++)
        p->is_marked |= all[i].is_marked;
    for (size_t i = 0; i < n && p->runs < PARETO_RUNS_MAX; i++) {
        if (p->is_marked && !all[i].is_marked)
            continue;
        p->run[p->runs] = all[i].view;
        p->open[p->runs++] = (int)i;
    }
}

static uint64_t mix(uint64_t h, uint64_t x)
{
    return (h ^ x) * 0x9E3779B97F4A7C15u;
}

/* The points of the runs that are open now; kept while nothing has changed. */
void pareto_prepare(struct view *v)
{
    struct pareto *p = v->state;
    collect_runs(v);
    uint64_t h = mix(mix(1, (uint64_t)p->axis), (uint64_t)p->runs);
    for (const char *c = p->metric; *c; c++)
        h = mix(h, (unsigned char)*c);
    for (int i = 0; i < p->runs; i++)
        h = mix(mix(mix(h, (uint64_t)(uintptr_t)p->run[i]), p->run[i]->generation),
                (uint64_t)p->run[i]->state);
    if (h == p->made_of)
        return;
    p->made_of = h;
    pareto_make(&p->set, p->run, p->runs, (enum pareto_x)p->axis, p->metric);
    list_fit(&p->list, (size_t)p->set.n, p->list.page);
    for (int i = 0; i < p->set.n; i++)
        if (strcmp(p->set.point[i].label, p->selected) == 0)
            p->list.cursor = (size_t)i;
}

struct pareto_point *pareto_selected(struct pareto *p)
{
    return p->list.cursor < (size_t)p->set.n ? &p->set.point[p->list.cursor] : NULL;
}

/* The read-out waits until the cursor rests, so that a held key does not send every value that it
 * passes over a slow line.  A script has no later moment. */
static void keep_selected(struct view *v)
{
    struct pareto *p = v->state;
    const struct pareto_point *q = pareto_selected(p);
    if (q)
        str_copy(p->selected, sizeof p->selected, q->label);
    p->rests_at = app_is_scripted(v->app) ? 0 : clock_mono() + rest_s;
}

static int pareto_poll(struct view *v)
{
    struct pareto *p = v->state;
    if (!(p->rests_at > 0) || clock_mono() < p->rests_at)
        return 0;
    p->rests_at = 0;
    return 1;
}

static double pareto_due(struct view *v)
{
    const struct pareto *p = v->state;
    return p->rests_at > 0 ? p->rests_at : HUGE_VAL;
}

/* ---- keys ---- */

static void key_move(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    pareto_prepare(v);
    list_move(&p->list, k->value);
    keep_selected(v);
}

static void key_end(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    pareto_prepare(v);
    list_end(&p->list, k->value);
    keep_selected(v);
}

static void key_front(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    pareto_prepare(v);
    for (int i = (int)p->list.cursor + k->value; i >= 0 && i < p->set.n; i += k->value)
        if (p->set.point[i].is_front) {
            p->list.cursor = (size_t)i;
            keep_selected(v);
            return;
        }
    app_notify(v->app, LOG_INFO, "no further experiment on the front");
}

static void unknown_axis(struct view *v, const char *name)
{
    struct str all = {0};
    for (int i = 0; i < PARETO_AXES; i++)
        str_addf(&all, "%s%s",
                 i == 0                ? ""
                 : i + 1 < PARETO_AXES ? ", "
                                       : " or ",
                 pareto_axes[i].name);
    app_notify(v->app, LOG_WARN, "axis %.40s: expected %s", name, str_text(&all));
    str_release(&all);
}

static void key_axis(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    for (int i = 0; args && *args && i < PARETO_AXES; i++)
        if (strcmp(pareto_axes[i].name, args) == 0) {
            p->axis = i;
            return;
        }
    if (args && *args)
        unknown_axis(v, args);
    else
        p->axis = (p->axis + k->value + PARETO_AXES) % PARETO_AXES;
}

static void key_metric(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    char name[METRICS_MAX][64];
    pareto_prepare(v);
    int n = pareto_metrics(p->run, p->runs, name, METRICS_MAX), at = -1;
    const char *wanted = args && *args ? args : p->metric;
    for (int i = 0; i < n; i++)
        at = strcmp(name[i], wanted) == 0 ? i : at;
    if (args && *args && at < 0) {
        app_notify(v->app, LOG_WARN, "metric %.40s: not found in the evaluations of these runs",
                   args);
        return;
    }
    if (!args || !*args)
        at = at < 0 ? 0 : (at + k->value + n) % n;
    str_copy(p->metric, sizeof p->metric, name[at]);
    app_remember(v->app, "pareto.metric", p->metric);
}

static void key_log(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)args;
    if (k->value)
        p->log_flip ^= 1 << p->axis;
    else
        p->is_log_y = !p->is_log_y;
}

static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    (void)k, (void)args;
    pareto_prepare(v);
    const struct pareto_point *q = pareto_selected(p);
    if (!q)
        return;
    app_select_run(v->app, (size_t)p->open[q->run[0]]);
    app_show(v->app, "monitor");
    if (q->runs > 1)
        app_notify(v->app, LOG_INFO, "the first of %d seeds; ]r is the next open run", q->runs);
}

/* Only marked runs are shown once one is marked: the first press keeps all others. */
static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct pareto *p = v->state;
    char path[PARETO_RUNS_MAX][1024];
    int paths = 0, hides[PARETO_RUNS_MAX] = {0};
    size_t n, current;
    (void)k, (void)args;
    pareto_prepare(v);
    const struct pareto_point *q = pareto_selected(p);
    if (!q)
        return;
    if (p->set.n == 1) {
        app_notify(v->app, LOG_INFO, "the only experiment; 0 shows all open runs");
        return;
    }
    const struct open_run *all = app_runs(v->app, &n, &current);
    for (int i = 0; i < q->runs; i++)
        hides[q->run[i]] = 1;
    for (int i = 0; i < p->runs; i++)
        str_copy(path[paths++], sizeof path[0], all[p->open[i]].path);
    for (int i = 0; i < paths; i++)
        app_mark_run(v->app, path[i], !hides[i]);
    app_notify(v->app, LOG_INFO, "unmarked %s; 0 shows all open runs", q->label);
}

static void key_all(struct view *v, const struct key *k, const char *args)
{
    size_t n, current;
    const struct open_run *all = app_runs(v->app, &n, &current);
    (void)k, (void)args;
    for (size_t i = 0; i < n; i++)
        app_mark_run(v->app, all[i].path, 0);
}

/* The nearest point within a few cells; hover moves the cursor, too, where it is reported. */
static int hit_plot(struct pareto *p, const struct event *ev)
{
    int y = ev->y - p->plot_y, x = ev->x - p->plot_x, best = -1, least = 30;
    if (p->plot.rows < 1 || y < 0 || y >= p->plot.rows || x < 0 || x >= p->plot.cols)
        return 0;
    for (int i = 0; i < p->set.n; i++) {
        int dy = pareto_dot_y(p, p->set.point[i].y.mean) / 4 - y,
            dx = pareto_dot_x(p, p->set.point[i].x.mean) / 2 - x, far = 4 * dy * dy + dx * dx;
        if (far < least) {
            least = far;
            best = i;
        }
    }
    if (best < 0)
        return 0;
    p->list.cursor = (size_t)best;
    return 1;
}

static int pareto_event(struct view *v, const struct event *ev)
{
    struct pareto *p = v->state;
    pareto_prepare(v);
    if (ev->kind == EVENT_MOUSE &&
        (ev->action == MOUSE_PRESS || ev->action == MOUSE_DRAG || ev->action == MOUSE_MOVE)) {
        int row = ev->y - p->table_y - 1, is_taken = hit_plot(p, ev);
        if (!is_taken && ev->action == MOUSE_PRESS && p->table_y >= 0 && row >= 0 &&
            row < p->list.page && ev->x >= p->table_x &&
            p->list.top + (size_t)row < (size_t)p->set.n) {
            p->list.cursor = p->list.top + (size_t)row;
            is_taken = 1;
        }
        if (!is_taken)
            return 0;
        keep_selected(v);
        if (ev->is_double)
            key_enter(v, NULL, NULL);
        return 1;
    }
    if (!list_event(&p->list, ev))
        return 0;
    keep_selected(v);
    return 1;
}

static int pareto_search(struct view *v, const char *text, int direction)
{
    struct pareto *p = v->state;
    pareto_prepare(v);
    for (int k = 1; k <= p->set.n; k++) {
        int i = (((int)p->list.cursor + direction * k) % p->set.n + p->set.n) % p->set.n;
        if (strstr(p->set.point[i].label, text)) {
            p->list.cursor = (size_t)i;
            keep_selected(v);
            return 1;
        }
    }
    return 0;
}

static void pareto_copy(struct view *v, struct str *out)
{
    struct pareto *p = v->state;
    pareto_prepare(v);
    if (p->set.n)
        str_addf(out, "experiment\tn\t%s\tlo\thi\t%s\tlo\thi\tfront\n", pareto_axes[p->axis].name,
                 p->metric);
    for (int i = 0; i < p->set.n; i++) {
        const struct pareto_point *q = &p->set.point[i];
        copy_add(out, q->label);
        str_addf(out, "\t%zu\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\t%.6g\t%d\n", q->y.n, q->x.mean, q->x.lo,
                 q->x.hi, q->y.mean, q->y.lo, q->y.hi, q->is_front);
    }
}

static int pareto_subject(struct view *v, struct subject *out)
{
    struct pareto *p = v->state;
    pareto_prepare(v);
    const struct pareto_point *q = pareto_selected(p);
    if (!q)
        return 0;
    str_copy(out->key, sizeof out->key, p->metric);
    if (q->y.n > 1)
        snprintf(out->where, sizeof out->where, "%s: mean of %zu seeds, 95 %% CI [%.4g, %.4g]",
                 q->label, q->y.n, q->y.lo, q->y.hi);
    else
        snprintf(out->where, sizeof out->where, "%s: one seed, no interval", q->label);
    out->value = q->y.mean;
    out->record = strcmp(p->metric, "loss") == 0 ? "newest metric record of each run"
                                                 : "newest evaluation record of each run";
    return 1;
}

/* The figure has ratios on its horizontal axis, and results of the final evaluation. */
static int pareto_words(struct view *v, const char **word, enum figure_runs *of)
{
    struct pareto *p = v->state;
    const char *x = p->axis == PARETO_FLOPS_RATIO  ? "flops_ratio"
                    : p->axis == PARETO_TIME_RATIO ? "time_ratio"
                                                   : NULL;
    if (!x)
        app_notify(v->app, LOG_WARN,
                   "figure pareto: no axis of %s; x chooses FLOPs or time of dense",
                   pareto_axes[p->axis].title);
    else if (strcmp(p->metric, "loss") == 0)
        app_notify(v->app, LOG_WARN, "figure pareto: no training loss; m chooses another result");
    if (!x || strcmp(p->metric, "loss") == 0)
        return -1;
    snprintf(p->names, sizeof p->names, "%s,%s", x,
             strcmp(p->metric, "val_loss") == 0 ? "loss" : p->metric);
    word[0] = "pareto";
    word[1] = "--metric";
    word[2] = p->names;
    *of = FIGURE_OF_OPEN;
    return 3;
}

/* clang-format off */
static const struct key pareto_keys[] = {
    {"Enter",      "open-run",   NULL, "open the first run of the experiment",  "open",   70, 0, 0, key_enter},
    {"x",          "axis",       "AXIS", "next cost: FLOPs, FLOPs per token, time, parameters, ...", "cost", 66, KEY_VIEW_CHANGE, 1, key_axis},
    {"m",          "metric",     "NAME", "next result: val_loss or a scalar of the evaluations", "result", 64, 0, 1, key_metric},
    {"M",          "metric-back", NULL, "previous result",                      NULL,     0, 0, -1, key_metric},
    {"Space",      "mark",       NULL, "unmark the runs of the experiment: only marked runs are shown", "leave out", 50, 0, 0, key_mark},
    {"0",          "all",        NULL, "show all open runs: unmark them",       NULL,     0, 0, 0, key_all},
    {"X",          "log-x",      NULL, "logarithmic cost",                      "log",    44, KEY_VIEW_CHANGE, 1, key_log},
    {"L",          "log-y",      NULL, "logarithmic result",                    NULL,     0, KEY_VIEW_CHANGE, 0, key_log},
    {"]f",         "next-front", NULL, "next experiment on the front",          NULL,     0, 0, 1, key_front},
    {"[f",         "prev-front", NULL, "previous experiment on the front",      NULL,     0, 0, -1, key_front},
    {"h Left",     "left",       NULL, "next lower cost",                       NULL,     0, KEY_HIDDEN, -1, key_move},
    {"l Right",    "right",      NULL, "next higher cost",                      NULL,     0, KEY_HIDDEN, 1, key_move},
    {"k Up",       "up",         NULL, "row above",                             NULL,     0, KEY_HIDDEN, -1, key_move},
    {"j Down",     "down",       NULL, "row below",                             NULL,     0, KEY_HIDDEN, 1, key_move},
    {"gg Home",    "first",      NULL, "lowest cost",                           NULL,     0, KEY_HIDDEN, 0, key_end},
    {"G End",      "last",       NULL, "highest cost",                          NULL,     0, KEY_HIDDEN, 1, key_end},
    {0},
};
static const struct setting pareto_settings[] = {
    {"axis",     SETTING_INT, offsetof(struct pareto, axis),     0, PARETO_AXES - 1},
    {"log_flip", SETTING_INT, offsetof(struct pareto, log_flip), 0, (1 << PARETO_AXES) - 1},
    {"log_y",    SETTING_INT, offsetof(struct pareto, is_log_y), 0, 1},
    {0},
};

const struct view_ops view_pareto = {
    .name = "pareto",  .title = "Pareto",
    .summary = "Loss or another result against FLOPs, measured time or parameters over the marked runs, seeds grouped.",
    .keys = pareto_keys,  .settings = pareto_settings,  .state_size = sizeof(struct pareto),
    .figure_words = pareto_words,
    .open = pareto_open,  .draw = pareto_draw,  .event = pareto_event,
    .poll = pareto_poll,  .due = pareto_due,
    .search = pareto_search,  .copy = pareto_copy,  .subject = pareto_subject,
};
/* clang-format on */
