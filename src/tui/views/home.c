/* Home: all runs (live first) with their states, the presets, and the form that starts a new run. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "io/runindex.h"
#include "training/job.h"
#include "tui/form.h"
#include "tui/view.h"
#include "tui/widgets.h"

struct home {
    struct form form; /* first member: the callbacks of the form receive the state of the view */
    struct runindex index;
    char **preset;
    size_t presets;
    struct list list; /* runs, then presets */
    double listed;    /* time when the directory was last read */
    char error[256];
    char asked[256]; /* presets of the form to open after confirmation */
};

static void load(struct view *v)
{
    struct home *h = v->state;
    struct err e = {0};
    h->error[0] = '\0';
    if (runindex_refresh(&h->index, job_root(), &e) < 0)
        str_copy(h->error, sizeof h->error, e.text);
    if (!h->preset && job_presets(&h->preset, &h->presets, &e) < 0)
        h->presets = 0;
    h->listed = app_now(v->app);
    v->is_dirty = 1;
}

static int home_open(struct view *v, struct err *e)
{
    (void)e;
    load(v);
    return 0;
}

static void home_close(struct view *v)
{
    struct home *h = v->state;
    form_close(&h->form, v);
    runindex_release(&h->index);
    if (h->preset)
        fs_list_free(h->preset, h->presets);
}

static int home_poll(struct view *v)
{
    struct home *h = v->state;
    struct err e = {0};
    char path[1024];
    int was_starting = h->form.is_starting;
    if (form_poll(&h->form, v, path, sizeof path)) {
        load(v);
        if (app_open_run(v->app, path, &e) == 0)
            app_show(v->app, "monitor");
        else
            app_notify(v->app, LOG_ERROR, "%s", e.text);
        return 1;
    }
    if (was_starting && !h->form.is_starting)
        return 1;
    if (app_is_scripted(v->app) || fabs(app_now(v->app) - h->listed) < 3)
        return 0;
    load(v);
    return 1;
}

/* ---- drawing ---- */

static const struct column columns[] = {
    {"", 1, 0, 9}, /* mark or live */
    {"run", -3, 0, 10},  {"method", 8, 0, 6}, {"preset", -1, 0, 3},
    {"state", 12, 0, 8}, {"step", 12, 1, 5},  {"updated", 10, 1, 4},
};
enum { COLUMNS = (int)DS_LEN(columns) };

static enum role state_role(enum run_state state)
{
    switch (state) {
    case RUN_LIVE: return ROLE_GOOD;
    case RUN_FAILED: return ROLE_BAD;
    case RUN_PAUSED:
    case RUN_SILENT:
    case RUN_STOPPED: return ROLE_WARN;
    default: return ROLE_DIM;
    }
}

/* "silent 42m": a silent run shows the time since its last record. */
static void describe_state(struct view *v, const struct run_row *g, char *out, size_t size)
{
    char age[16];
    double silent = app_now(v->app) - g->last_time;
    str_copy(out, size, run_state_name(g->state));
    if (g->state == RUN_SILENT && g->last_time > 0 && app_now(v->app) > 0 && silent > 0) {
        str_duration(age, silent > 120 ? floor(silent / 60) * 60 : floor(silent));
        age[strcspn(age, "hdm") + (strcspn(age, "hdm") < strlen(age))] = '\0'; /* its first part */
        snprintf(out, size, "%s %s", run_state_name(g->state), age);
    }
}

static void describe_step(const struct run_row *g, char *out, size_t size)
{
    char step[16], all[16];
    out[0] = '\0';
    if (g->state == RUN_EMPTY || (g->phase.step == 0 && g->phase.steps_planned <= 0))
        return;
    snprintf(step, sizeof step, "%lld", (long long)g->phase.step);
    snprintf(all, sizeof all, "%lld", (long long)g->phase.steps_planned);
    snprintf(out, size, "%s%s%s",
             g->phase.step > 99999 ? str_si(step, (double)g->phase.step) : step,
             g->phase.steps_planned > 0 ? "/" : "",
             g->phase.steps_planned <= 0      ? ""
             : g->phase.steps_planned > 99999 ? str_si(all, (double)g->phase.steps_planned)
                                              : all);
}

static void draw_job(struct view *v, struct area a, int y, const struct run_row *g,
                     const int *width, const int *x)
{
    char state[40], step[40];
    char age[24] = "";
    double seconds = app_now(v->app) - g->modified;
    int is_marked = app_is_marked(v->app, g->path);
    uint32_t sign = is_marked              ? area_rune(a, 0x25A0, '#')
                    : g->state == RUN_LIVE ? area_rune(a, 0x25CF, '*')
                                           : ' ';
    describe_state(v, g, state, sizeof state);
    describe_step(g, step, sizeof step);
    if (app_now(v->app) > 0) {
        str_duration(age,
                     seconds > 0 ? (seconds > 120 ? floor(seconds / 60) * 60 : floor(seconds)) : 0);
        snprintf(age + strlen(age), sizeof age - strlen(age), " ago");
    }
    area_put(a, y, x[0], sign, ink(is_marked ? ROLE_MARKED : ROLE_GOOD));
    columns_text(a, y, columns, 1, width, x, ink(ROLE_TEXT), g->name);
    columns_text(a, y, columns, 2, width, x, ink(ROLE_TEXT), g->method);
    columns_text(a, y, columns, 3, width, x, ink(ROLE_DIM), g->preset);
    columns_text(a, y, columns, 4, width, x, ink(state_role(g->state)), state);
    columns_text(a, y, columns, 5, width, x, ink(ROLE_TEXT), step);
    columns_text(a, y, columns, 6, width, x, ink(ROLE_DIM), age);
}

static void draw_empty(const struct home *h, struct area a)
{
    int x = 2;
    area_text(a, 1, x, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), "No runs here yet");
    area_textf(a, 3, x, -1, ink(ROLE_TEXT),
               "Runs are read from %s/ (DEPTHSCOPE_RUNS sets another directory).", job_root());
    area_text(a, 4, x, -1, ink(ROLE_TEXT),
              h->presets ? "a starts one from the preset below; :open PATH opens a log or trace."
                         : ":open PATH opens a run, a log or a trace.");
    if (h->error[0])
        area_text(a, 6, x, -1, ink(ROLE_BAD), h->error);
}

static void draw_list(struct view *v, struct area a)
{
    struct home *h = v->state;
    int width[COLUMNS], x[COLUMNS], y = 0;
    size_t total = h->index.n + h->presets;
    struct area table = area_sub(a, 0, 1, a.rows, a.cols - 2);
    columns_fit(columns, COLUMNS, table.cols, width, x);
    if (h->index.n) {
        columns_head(table, y++, columns, COLUMNS, width, x);
    } else {
        draw_empty(h, a);
        y += 8;
    }
    int rows = a.rows - y - (h->presets ? 2 : 0);
    list_fit(&h->list, total, rows);
    for (size_t i = h->list.top; i < total && y < a.rows; i++) {
        if (i == h->index.n && y + 1 < a.rows) {
            y += y > 1;
            area_text(table, y++, 1, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD),
                      "presets: Enter or a starts a run");
        }
        if (i < h->index.n)
            draw_job(v, table, y, h->index.row[i], width, x);
        else
            area_text(table, y, x[1], -1, ink(ROLE_TEXT), h->preset[i - h->index.n]);
        if (i == h->list.cursor)
            area_select(a, y, 0, a.cols);
        y++;
    }
    scrollbar_draw(a, a.cols - 1, total, h->list.top, rows);
}

static void home_draw(struct view *v, struct area a)
{
    struct home *h = v->state;
    draw_list(v, a);
    if (h->form.is_open)
        form_draw(&h->form, a);
}

/* ---- keys ---- */

static void open_asked(void *ctx)
{
    struct view *v = ctx;
    struct home *h = v->state;
    form_open(&h->form, v, h->asked);
}

/* Asks before discarding a form with changes. */
static void open_form(struct view *v, const char *preset)
{
    struct home *h = v->state;
    char question[128];
    size_t n = h->form.is_open ? form_changed(&h->form) : 0;
    if (h->form.is_starting) {
        app_notify(v->app, LOG_WARN, "run %s is still starting; try later", h->form.launch.name);
        return;
    }
    str_copy(h->asked, sizeof h->asked, preset);
    if (n == 0) {
        open_asked(v);
        return;
    }
    snprintf(question, sizeof question, "Discard %zu changed value%s and open another form?", n,
             n > 1 ? "s" : "");
    app_confirm(v->app, question, open_asked, v);
}

static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    struct err e = {0};
    (void)k, (void)args;
    if (h->form.is_open) /* a key hint was clicked below the form */
        return;
    if (h->list.cursor >= h->index.n) {
        if (app_is_readonly(v->app))
            app_notify(v->app, LOG_WARN, "read-only mode: runs cannot be started");
        else if (h->presets)
            open_form(
                v, h->preset[h->list.cursor - h->index.n < h->presets ? h->list.cursor - h->index.n
                                                                      : 0]);
        return;
    }
    if (app_open(v->app, h->index.row[h->list.cursor]->path, &e) < 0)
        app_notify(v->app, LOG_ERROR, "%s", e.text);
}

static void key_new(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k;
    size_t i = h->list.cursor >= h->index.n ? h->list.cursor - h->index.n : 0;
    if (args && *args)
        open_form(v, args);
    else if (i < h->presets)
        open_form(v, h->preset[i]);
    else
        app_notify(v->app, LOG_WARN, "presets: not found");
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k, (void)args;
    if (h->list.cursor >= h->index.n || h->form.is_open)
        return;
    const char *path = h->index.row[h->list.cursor]->path;
    app_mark_run(v->app, path, !app_is_marked(v->app, path));
    list_move(&h->list, 1);
}

static void key_ends(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)args;
    list_end(h->form.is_open ? &h->form.list : &h->list, k->value);
}

static void key_refresh(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    load(v);
}

static int home_event(struct view *v, const struct event *ev)
{
    struct home *h = v->state;
    if (h->form.is_open)
        return form_event(&h->form, v, ev);
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS && ev->button == 1) {
        int first = h->index.n ? 1 : 8, row = ev->y - first;
        size_t at = row >= 0 ? h->list.top + (size_t)row : h->list.cursor;
        if (at >= h->index.n && h->index.n)
            at = at >= h->index.n + 2 ? at - 2 : h->list.cursor;
        else if (!h->index.n)
            at = row >= 1 ? h->list.top + (size_t)row - 1 : h->list.cursor;
        if (at < h->list.n)
            h->list.cursor = at;
        if (ev->is_double)
            key_enter(v, NULL, NULL);
        return 1;
    }
    return list_event(&h->list, ev);
}

static int home_search(struct view *v, const char *text, int direction)
{
    struct home *h = v->state;
    size_t total = h->index.n + h->presets;
    if (h->form.is_open)
        return form_search(&h->form, text, direction);
    for (size_t k = 1; k <= total; k++) {
        size_t i =
            direction > 0 ? (h->list.cursor + k) % total : (h->list.cursor + total - k) % total;
        if (strstr(i < h->index.n ? h->index.row[i]->name : h->preset[i - h->index.n], text)) {
            h->list.cursor = i;
            return 1;
        }
    }
    return 0;
}

static int home_fd(struct view *v)
{
    const struct home *h = v->state;
    return h->form.is_starting ? h->form.launch.fd : -1;
}

static void home_copy(struct view *v, struct str *out)
{
    struct home *h = v->state;
    if (h->list.cursor < h->index.n)
        copy_add(out, h->index.row[h->list.cursor]->path);
}

/* clang-format off */
static const struct key home_keys[] = {
    {"Enter", "enter",   NULL,     "open the run, or start one from the preset", "open", 70, 0, 0, key_enter},
    {"a",     "new",     "PRESET", "new run: opens the form",          "new run", 68, KEY_MUTATES, 0, key_new},
    {"Space", "mark",    NULL,     "mark for overlay and comparison",  "mark",    66, 0, 0, key_mark},
    {"R",     "refresh", NULL,     "read the directory again",         NULL,      0,  0, 0, key_refresh},
    {"gg",    "first",   NULL,     "first row",                        NULL,      0,  KEY_HIDDEN, 0, key_ends},
    {"G",     "last",    NULL,     "last row",                         NULL,      0,  KEY_HIDDEN, 1, key_ends},
    {0},
};

const struct view_ops view_home = {
    .name = "home",  .title = "Home",
    .summary = "Runs (live first) and presets: open, start, mark for comparison.",
    .keys = home_keys,  .state_size = sizeof(struct home),
    .open = home_open,  .close = home_close,  .draw = home_draw,  .event = home_event,  .poll = home_poll,
    .fd = home_fd,
    .search = home_search,  .copy = home_copy,
};
/* clang-format on */
