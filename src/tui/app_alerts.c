/* Alerts of the workbench: watches the open runs and the rows that Home lists by the user's rules,
 * and keeps the marks of what was not looked at yet. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tui/appstate.h"

enum { WATCHES_MAX = 4096, LINES_MAX = 16 };
static const double again_s = 60; /* one notification of a run and rule in this time */

void app_alerts_open(struct app *app)
{
    struct app_alerts *a = &app->alerts;
    struct err e = {0};
    a->child = (struct child)CHILD_NONE;
    a->rung = -HUGE_VAL;
    if (alert_settings(&a->options, &a->notify, &e) < 0)
        app_notify(app, LOG_ERROR, "%s", e.text);
}

void app_alerts_close(struct app *app)
{
    struct app_alerts *a = &app->alerts;
    for (size_t i = 0; i < a->n; i++) {
        alert_watch_release(&a->watch[i]->w);
        mem_free(a->watch[i]->path);
        mem_free(a->watch[i]);
    }
    mem_free(a->watch);
    map_release(&a->of);
    child_close(&a->child, 0); /* a command that still runs is left alone */
    opt_release(&notify_group, &a->notify);
}

/* ---- watches ---- */

static struct app_watch *find(struct app *app, const char *path)
{
    int64_t at;
    return map_get(&app->alerts.of, path, strlen(path), &at) ? app->alerts.watch[at] : NULL;
}

/* NULL: out of memory, or too many. */
static struct app_watch *add(struct app *app, const char *path)
{
    struct app_alerts *a = &app->alerts;
    struct app_watch *x = find(app, path);
    void *list = a->watch;
    if (x || a->n == WATCHES_MAX)
        return x;
    x = mem_alloc(1, sizeof *x);
    char *own = mem_strdup(path);
    int rc = x && own ? mem_grow(&list, &a->cap, a->n + 1, sizeof *a->watch) : DS_EMEM;
    a->watch = list;
    if (rc < 0 || map_set(&a->of, path, strlen(path), (int64_t)a->n) < 0) {
        mem_free(own);
        mem_free(x);
        return NULL;
    }
    alert_watch_init(&x->w, &a->options);
    x->path = own;
    for (int r = 0; r < ALERT_RULES; r++)
        x->told[r] = -HUGE_VAL;
    a->watch[a->n++] = x;
    return x;
}

/* The logs of the open runs, which may be listed under another spelling of their paths. */
static void find_inodes(struct app *app)
{
    for (size_t i = 0; i < app->runs; i++) {
        char log[1100];
        struct stat st;
        int is_some = app->run[i].dir[0] &&
                      fs_join(log, sizeof log, app->run[i].dir, "log.mp", NULL) == 0 &&
                      fs_stat(log, &st) == 0;
        app->alerts.inode[i] = is_some ? (uint64_t)st.st_ino : 0;
    }
}

/* The open run that a row is of. */
static const struct open_run *open_of(const struct app *app, const struct run_row *row)
{
    for (size_t i = 0; i < app->runs; i++)
        if (strcmp(app->run[i].path, row->path) == 0 ||
            (row->seen.inode && !row->remote && app->alerts.inode[i] == row->seen.inode))
            return &app->run[i];
    return NULL;
}

/* ---- what is said ---- */

/* A name that a shell command can take as its first word, and a terminal as text. */
static void label_of(char *out, size_t size, const char *name)
{
    snprintf(out, size, "%s%.100s", name[0] == '-' ? "./" : "", name);
    utf8_scrub(out);
}

static void say(struct app *app, struct app_watch *x, const char *name, const struct alert *a)
{
    struct app_alerts *all = &app->alerts;
    double now = clock_mono();
    char label[128];
    label_of(label, sizeof label, name);
    if (!a->is_over) {
        x->mark |= 1U << a->rule;
        x->level = a->level > x->level ? a->level : x->level;
    } else if (!(x->said & 1U << a->rule)) {
        return; /* that it began was not worth a line */
    }
    /* a stream that raises and ends alerts all the time gets one line a minute */
    if (!a->is_over && now - x->told[a->rule] < again_s)
        return;
    if (!a->is_over)
        x->told[a->rule] = now;
    x->said = a->is_over ? x->said & ~(1U << a->rule) : x->said | 1U << a->rule;
    if (all->lines++ < LINES_MAX)
        app_notify(app, (enum log_level)a->level, "alert%s: %s: %s", a->is_over ? " over" : "",
                   label, a->text);
    if (!a->is_over && !a->is_old && !app_is_scripted(app))
        app_alerts_tell(app, label, a);
}

static void drain(struct app *app, struct app_watch *x, const char *name)
{
    struct alert a;
    while (alert_next(&x->w, &a))
        say(app, x, name, &a);
}

static void begin_turn(struct app *app)
{
    app->alerts.lines = 0;
}

static void end_turn(struct app *app)
{
    if (app->alerts.lines > LINES_MAX)
        app_notify(app, LOG_WARN, "and %d more alerts; Home marks their runs",
                   app->alerts.lines - LINES_MAX);
}

/* ---- looks ---- */

static int is_heard(const struct app *app, const char *path)
{
    const struct host *h = app_host_of(app, path);
    return !h || host_info(h).state == HOST_UP;
}

int app_alerts_poll(struct app *app)
{
    size_t lines = app->lines;
    double now = app_now(app);
    begin_turn(app);
    find_inodes(app);
    for (size_t i = 0; i < app->runs; i++) {
        const struct open_run *r = &app->run[i];
        struct app_watch *x = find(app, r->path);
        if (!x && !(r->view->is_behind && !r->failed)) /* its history is read first */
            x = add(app, r->path);
        if (!x)
            continue;
        if (is_heard(app, r->path))
            alert_watch_view(&x->w, r->view, now);
        else
            alert_hold(&x->w, now);
        drain(app, x, r->view->name);
    }
    end_turn(app);
    app_alerts_send(app);
    return app->lines != lines;
}

/* A run that has ended, or was left long ago, needs no watch; of one that is not read to its end,
 * the numbers are old. */
static int is_worth(const struct run_row *row, double now)
{
    return !row->is_behind &&
           (row->state == RUN_LIVE || row->state == RUN_PAUSED ||
            (row->state == RUN_SILENT && !(run_row_age(row, now) > ALERT_LEFT_S)));
}

void app_alerts_rows(struct app *app, struct run_row *const *row, size_t n)
{
    double now = app_now(app);
    begin_turn(app);
    find_inodes(app);
    for (size_t i = 0; i < n; i++) {
        char place[RUN_HOST_PATH];
        struct app_watch *x = find(app, row[i]->path);
        if (!x && is_worth(row[i], now))
            x = open_of(app, row[i]) ? find(app, open_of(app, row[i])->path)
                                     : add(app, row[i]->path);
        if (!x)
            continue;
        if (strcmp(x->path, row[i]->path) != 0 || open_of(app, row[i])) {
            row[i]->alerts = alert_set(&x->w) | x->mark; /* its records say more than the row */
            continue;
        }
        if (!row[i]->is_behind && (!row[i]->remote || is_heard(app, row[i]->path)))
            alert_watch_row(&x->w, row[i], now);
        else
            alert_hold(&x->w, now);
        drain(app, x, row[i]->remote ? run_row_place(row[i], place, sizeof place) : row[i]->name);
        row[i]->alerts = alert_set(&x->w) | x->mark;
    }
    end_turn(app);
}

/* ---- marks ---- */

int app_alert_mark(struct app *app, const struct run_row *row, char *out, size_t size)
{
    const struct app_watch *x = app->alerts.n ? find(app, row->path) : NULL;
    const struct open_run *r = x || app->alerts.n == 0 ? NULL : open_of(app, row);
    int first = -1, more = 0;
    x = r ? find(app, r->path) : x;
    for (int k = 0; x && k < ALERT_RULES; k++) {
        int is_marked = (x->mark >> k & 1) != 0;
        more += is_marked && first >= 0;
        first = is_marked && first < 0 ? k : first;
    }
    out[0] = '\0';
    if (first < 0)
        return 0;
    snprintf(out, size, more ? "!%s+%d" : "!%s", alert_name((enum alert_rule)first), more);
    return x->level;
}

static void clear(struct app *app, struct app_watch *x)
{
    if (!x || !x->mark)
        return;
    x->mark = 0;
    x->level = 0;
    app->is_dirty = 1;
}

void app_alerts_seen(struct app *app, const char *path)
{
    if (path)
        clear(app, find(app, path));
    for (size_t i = 0; !path && i < app->alerts.n; i++)
        clear(app, app->alerts.watch[i]);
}

int app_alerts_acknowledge(struct app *app, const struct run_row *row)
{
    char text[32];
    int had = 0;
    for (size_t i = 0; !row && i < app->alerts.n; i++)
        had |= app->alerts.watch[i]->mark != 0;
    if (!row) {
        app_alerts_seen(app, NULL);
        return had;
    }
    const struct open_run *r = open_of(app, row);
    had = app_alert_mark(app, row, text, sizeof text) > 0;
    app_alerts_seen(app, r ? r->path : row->path);
    return had;
}
