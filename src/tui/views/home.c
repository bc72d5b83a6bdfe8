/* Home: all runs (live first) with their states, the presets, the models and traces of the current
 * directory, and what can be done with each. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "training/job.h"
#include "tui/home.h"

static const double refresh_s = 3, background_s = 10;
enum { DETAILS_COLS = 100 };

struct run_row *home_run(const struct home *h)
{
    const struct home_item *i = h->list.cursor < h->items ? &h->item[h->list.cursor] : NULL;
    return i && i->kind == HOME_RUN ? i->row : NULL;
}

static int home_open(struct view *v, struct err *e)
{
    struct home *h = v->state;
    (void)e;
    h->shows_details = 1;
    h->candidate = -1;
    h->details.disk_bytes = (double)NAN;
    home_load(v);
    return 0;
}

static void home_close(struct view *v)
{
    struct home *h = v->state;
    form_close(&h->form, v);
    home_details_release(&h->details);
    if (h->is_launching)
        job_launch_release(&h->launch);
    runindex_release(&h->index);
    batch_list_release(&h->batches);
    field_release(&h->filter);
    mem_free(h->item);
    mem_free(h->fact);
    if (h->preset)
        fs_list_free(h->preset, h->presets);
}

void home_open_path(struct view *v, const char *path)
{
    struct err e = {0};
    if (app_open_run(v->app, path, &e) == 0)
        app_show(v->app, "monitor");
    else
        app_notify(v->app, LOG_ERROR, "%s", e.text);
}

/* Reads the list, and lets it rest for so many times as long: keys come first while rows pour in or
 * long logs are read. */
static void load_and_rest(struct view *v, double times)
{
    struct home *h = v->state;
    double start = clock_mono();
    home_load(v);
    h->rests_until = clock_mono() + times * (clock_mono() - start);
}

static int home_poll(struct view *v)
{
    struct home *h = v->state;
    char path[1024];
    int was_starting = h->form.is_starting;
    if (form_poll(&h->form, v, path, sizeof path)) {
        home_load(v);
        if (path[0])
            home_open_path(v, path);
        else
            app_notify(v->app, LOG_INFO, "the run has begun; it is not listed yet");
        return 1;
    }
    if (home_poll_launch(v) || (was_starting && !h->form.is_starting))
        return 1;
    uint64_t of_hosts = 0;
    size_t n;
    struct host *const *host = app_hosts(v->app, &n);
    for (size_t i = 0; i < n; i++)
        of_hosts += host_info(host[i]).listed;
    double now = clock_mono();
    int is_more = of_hosts != h->of_hosts || runindex_is_behind(&h->index);
    int is_due =
        (is_more && now >= h->rests_until) || fabs(app_now(v->app) - h->listed) >= refresh_s;
    if (!app_is_scripted(v->app) && is_due) {
        h->of_hosts = of_hosts;
        load_and_rest(v, runindex_is_behind(&h->index) ? 1 : 4);
        (void)home_poll_details(v);
        return 1;
    }
    return home_poll_details(v);
}

/* The runs of the list are watched for alerts while another view is shown, too. */
static void home_background(struct view *v)
{
    struct home *h = v->state;
    int is_more = runindex_is_behind(&h->index) && clock_mono() >= h->rests_until;
    if (!app_is_scripted(v->app) && !h->form.is_open &&
        (is_more || fabs(app_now(v->app) - h->listed) >= background_s))
        load_and_rest(v, 9);
}

/* ---- drawing ---- */

static void home_draw(struct view *v, struct area a)
{
    struct home *h = v->state;
    int wide = a.cols >= DETAILS_COLS && h->shows_details && h->index.n > 0;
    int part = a.cols * 3 / 8;
    int details = !wide ? 0 : part > 72 ? 72 : part;
    h->body = a;
    if (h->ordered[0] != h->sort || h->ordered[1] != h->is_descending || h->ordered[2] != h->group)
        home_rebuild(v); /* settings were restored or undone */
    if (wide) {
        if (app_is_scripted(v->app))
            while (home_poll_details(v) && isnan(h->details.disk_bytes))
                ;
        home_draw_details(v, area_sub(a, 0, a.cols - details, a.rows, details));
    }
    home_draw_table(v, area_sub(a, 0, 0, a.rows, a.cols - details));
    if (h->is_picking)
        home_pick_draw(v, a);
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

/* Without any run Enter starts the quick one at once. */
static void start_quick(struct view *v)
{
    struct home *h = v->state;
    static const char *const args[] = {"quick"};
    struct err e = {0};
    if (h->form.is_starting)
        return;
    if (job_launch(&h->form.launch, args, 1, &e) < 0) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        return;
    }
    h->form.is_starting = 1;
    app_notify(v->app, LOG_INFO, "run %s is starting", h->form.launch.name);
}

static void key_enter(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    struct err e = {0};
    size_t n;
    (void)k, (void)args, (void)app_hosts(v->app, &n);
    if (h->form.is_open || h->list.cursor >= h->items) /* a key hint was clicked below the form */
        return;
    const struct home_item *i = &h->item[h->list.cursor];
    if (i->kind == HOME_PRESET && app_is_readonly(v->app))
        app_notify(v->app, LOG_WARN, "read-only mode: runs cannot be started");
    else if (i->kind == HOME_PRESET && h->index.n == 0 && n == 0 &&
             strcmp(h->preset[i->at], "quick") == 0)
        start_quick(v);
    else if (i->kind == HOME_PRESET)
        open_form(v, h->preset[i->at]);
    else if (app_open(v->app, i->kind == HOME_RUN ? i->row->path : h->file[i->at].name, &e) < 0)
        app_notify(v->app, LOG_ERROR, "%s", e.text);
}

static void key_new(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    const struct home_item *i = h->list.cursor < h->items ? &h->item[h->list.cursor] : NULL;
    (void)k;
    if (args && *args)
        open_form(v, args);
    else if (h->presets)
        open_form(v, h->preset[i && i->kind == HOME_PRESET ? i->at : 0]);
    else
        app_notify(v->app, LOG_WARN, "presets: not found");
}

static void key_mark(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    const struct run_row *r = home_run(h);
    (void)k, (void)args;
    if (!r || h->form.is_open)
        return;
    app_mark_run(v->app, r->path, !app_is_marked(v->app, r->path));
    list_move(&h->list, 1);
    home_skip_headings(h, 1);
}

static void key_ends(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)args;
    if (h->form.is_open) {
        list_end(&h->form.list, k->value);
        return;
    }
    list_end(&h->list, k->value);
    home_skip_headings(h, k->value ? -1 : 1);
}

static void key_refresh(struct view *v, const struct key *k, const char *args)
{
    (void)k, (void)args;
    home_load(v);
}

/* The next column in turn, or the named column or configuration key, "-" for descending. */
static void sort_by(struct view *v, const char *key)
{
    struct home *h = v->state;
    h->is_descending = key[0] == '-';
    h->sort = home_key_find(h, home_sorts, key + h->is_descending);
    home_rebuild(v);
}

static void key_sort(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    char key[CONFIG_KEY_MAX + 2];
    (void)k;
    if (args && *args) {
        sort_by(v, args);
        return;
    }
    h->sort = home_key_next(home_sorts, h->sort);
    h->is_descending &= h->sort > 0;
    home_rebuild(v);
    app_notify(v->app, LOG_INFO, "sorted by %s",
               home_sort_key(h, key, sizeof key)[0] ? key : "state and time");
}

static void key_reverse(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    char key[CONFIG_KEY_MAX + 2];
    (void)k, (void)args;
    if (!home_sort_key(h, key, sizeof key)[0]) {
        app_notify(v->app, LOG_INFO,
                   "the order by state and time has no reverse; s sorts by a column");
        return;
    }
    h->is_descending = !h->is_descending;
    home_rebuild(v);
}

static void key_group(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k;
    h->group =
        args && *args ? home_key_find(h, home_groups, args) : home_key_next(home_groups, h->group);
    int is_asked = h->group > 0;
    home_rebuild(v);
    if (is_asked && h->group == 0) /* refused, with the reason */
        return;
    app_notify(v->app, LOG_INFO, "grouped by %s",
               home_group_key(h)[0] ? home_group_key(h) : "nothing");
}

static void key_filter(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k;
    if (h->form.is_open || h->is_picking)
        return;
    if (!args) {
        home_filter_begin(v);
        return;
    }
    field_set(&h->filter, args); /* an empty command clears it */
    home_filter_apply(v);
    if (h->wrong[0]) {
        app_notify(v->app, LOG_ERROR, "filter: %s", h->wrong);
        home_filter_begin(v);
    }
}

static void key_acknowledge(struct view *v, const struct key *k, const char *args)
{
    struct run_row *r = home_run(v->state);
    int is_all = args && strcmp(args, "all") == 0;
    (void)k;
    if (args && *args && !is_all)
        app_notify(v->app, LOG_WARN, "acknowledge %.40s: expected all or nothing", args);
    else if (!is_all && !r)
        app_notify(v->app, LOG_WARN, "no run is selected");
    else if (!app_alerts_acknowledge(v->app, is_all ? NULL : r))
        app_notify(v->app, LOG_INFO, "%s", is_all ? "no run has an alert" : "the run has no alert");
}

static void key_details(struct view *v, const struct key *k, const char *args)
{
    struct home *h = v->state;
    (void)k, (void)args;
    if (v->cols < DETAILS_COLS) {
        app_notify(v->app, LOG_INFO, "the details pane needs %d columns", DETAILS_COLS);
        return;
    }
    h->shows_details = !h->shows_details;
    v->is_dirty = 1;
}

static int home_event(struct view *v, const struct event *ev)
{
    struct home *h = v->state;
    if (h->form.is_open)
        return form_event(&h->form, v, ev);
    if (h->is_picking)
        return home_pick_event(v, ev);
    if (h->is_filtering && ev->kind != EVENT_MOUSE)
        return home_filter_event(v, ev);
    if (ev->kind == EVENT_MOUSE && ev->action == MOUSE_PRESS) {
        int row = ev->y - h->table_y;
        const char *column = ev->y == h->head_y ? home_column_at(h, ev->x - 1) : NULL;
        size_t at = row >= 0 ? h->list.top + (size_t)row : h->items;
        if (column) {
            char key[CONFIG_KEY_MAX + 2], now[CONFIG_KEY_MAX + 2];
            snprintf(key, sizeof key, "%s%s",
                     strcmp(home_sort_key(h, now, sizeof now), column) == 0 ? "-" : "", column);
            view_undo_mark(v);
            sort_by(v, key);
        } else if (at < h->items && h->item[at].kind != HOME_HEADING) {
            h->list.cursor = at;
            if (ev->is_double)
                key_enter(v, NULL, NULL);
        }
        return 1;
    }
    size_t before = h->list.cursor;
    int taken = list_event(&h->list, ev);
    home_skip_headings(h, h->list.cursor < before ? -1 : 1);
    return taken;
}

static const char *name_of(const struct home *h, const struct home_item *i)
{
    return i->kind == HOME_RUN      ? i->row->name
           : i->kind == HOME_PRESET ? h->preset[i->at]
           : i->kind == HOME_FILE   ? h->file[i->at].name
                                    : "";
}

static int home_search(struct view *v, const char *text, int direction)
{
    struct home *h = v->state;
    if (h->form.is_open)
        return form_search(&h->form, text, direction);
    for (size_t k = 1; k <= h->items; k++) {
        size_t i = direction > 0 ? (h->list.cursor + k) % h->items
                                 : (h->list.cursor + h->items - k) % h->items;
        if (h->item[i].kind != HOME_HEADING && strstr(name_of(h, &h->item[i]), text)) {
            h->list.cursor = i;
            return 1;
        }
    }
    return 0;
}

/* The key of the form, or the loss that runs are compared by. */
static int home_subject(struct view *v, struct subject *out)
{
    struct home *h = v->state;
    const struct run_row *r = h->form.is_open ? NULL : home_run(h);
    if (h->form.is_open)
        return form_subject(&h->form, out);
    if (!r)
        return 0;
    str_copy(out->key, sizeof out->key, "val_loss");
    snprintf(out->where, sizeof out->where, "newest validation of run %.120s", r->name);
    out->value = r->number[RUN_VAL_LOSS]; /* of an earlier step than the run's, which is not kept */
    out->record = "metric records of the run";
    return 1;
}

static int home_fd(struct view *v)
{
    const struct home *h = v->state;
    return h->form.is_starting ? h->form.launch.fd : h->is_launching ? h->launch.fd : -1;
}

static double home_due(struct view *v)
{
    const struct home *h = v->state;
    double due = home_details_due(h);
    return runindex_is_behind(&h->index) && h->rests_until < due ? h->rests_until : due;
}

static void home_copy(struct view *v, struct str *out)
{
    struct home *h = v->state;
    if (home_run(h))
        copy_add(out, home_run(h)->path);
    else if (h->list.cursor < h->items)
        copy_add(out, name_of(h, &h->item[h->list.cursor]));
}

/* clang-format off */
static const struct setting home_settings[] = {
    {"sort",    SETTING_INT, offsetof(struct home, sort),          0, HOME_TYPED + HOME_TYPED_MAX - 1},
    {"reverse", SETTING_INT, offsetof(struct home, is_descending), 0, 1},
    {"group",   SETTING_INT, offsetof(struct home, group),         0, HOME_TYPED + HOME_TYPED_MAX - 1},
    {"details", SETTING_INT, offsetof(struct home, shows_details), 0, 1},
    {0},
};

static const struct key home_keys[] = {
    {"Enter", "enter",   NULL,     "open the run, or start one from the preset", "open", 70, 0, 0, key_enter},
    {"a",     "new",     "PRESET", "new run: opens the form",          "new run", 68, KEY_MUTATES, 0, key_new},
    {"f",     "filter",  "QUERY",  "filter runs: method=edp train.lr>1e-4 state=live tag=paper", "filter", 67, 0, 0, key_filter},
    {"Space", "mark",    NULL,     "mark for overlay and comparison",  "mark",    66, 0, 0, key_mark},
    {"s",     "sort",    "COLUMN", "sort by the next column; a click on a title does it, too", "sort", 64, KEY_VIEW_CHANGE, 0, key_sort},
    {"S",     "reverse", NULL,     "reverse the order",                NULL,      0,  KEY_VIEW_CHANGE, 0, key_reverse},
    {"b",     "group",   "KEY",    "group by method, state, preset, host, tags or any key", "group", 58, KEY_VIEW_CHANGE, 0, key_group},
    {"R",     "resume-from", "newest|best|STEP", "resume from a checkpoint", "resume", 63, KEY_MUTATES, 0, home_resume},
    {"c",     "like",    NULL,     "new run like this one: its settings in the form", "like this", 57, KEY_MUTATES, 0, home_like},
    {"m",     "rename",  "NAME",   "rename the run",                   "rename",  56, KEY_MUTATES, 0, home_rename},
    {"t",     "tag",     "+TAG -TAG", "add and remove tags",           "tag",     61, KEY_MUTATES, 0, home_tag},
    {"i",     "note",    "TEXT",   "write a note",                     "note",    55, KEY_MUTATES, 0, home_note},
    {"D",     "trash",   NULL,     "move the run to the trash (asks; u restores it)", "trash", 60, KEY_MUTATES, 0, home_trash},
    {"",      "restore", "NAME",   "restore a run from the trash",     NULL,      0,  KEY_MUTATES, 0, home_restore},
    {"X",     "stop-run", NULL,    "save a checkpoint and stop the selected run (asks)", "stop", 59, KEY_MUTATES, 0, home_stop},
    {"u",     "undo",    NULL,     "restore the run trashed last, or undo a setting", NULL, 0, KEY_HIDDEN, 0, home_undo},
    {"d",     "details", NULL,     "show or hide the details pane (from 100 columns)", "details", 50, KEY_VIEW_CHANGE, 0, key_details},
    {"A",     "acknowledge", "all", "clear the alert mark of the run, or of all", "seen", 65, 0, 0, key_acknowledge},
    {"F5",    "refresh", NULL,     "read the directories again",       NULL,      0,  0, 0, key_refresh},
    {"gg",    "first",   NULL,     "first row",                        NULL,      0,  KEY_HIDDEN, 0, key_ends},
    {"G",     "last",    NULL,     "last row",                         NULL,      0,  KEY_HIDDEN, 1, key_ends},
    {0},
};

const struct view_ops view_home = {
    .name = "home",  .title = "Home",
    .summary = "Runs (live first), presets, models and traces: open, filter, start, resume, tag, compare.",
    .keys = home_keys,  .settings = home_settings,  .state_size = sizeof(struct home),
    .open = home_open,  .close = home_close,  .draw = home_draw,  .event = home_event,  .poll = home_poll,
    .background = home_background,
    .fd = home_fd,  .due = home_due,
    .search = home_search,  .copy = home_copy,  .subject = home_subject,
    .offers = home_offers,
};
/* clang-format on */
