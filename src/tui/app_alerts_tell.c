/* Tells the user of an alert outside the screen: the terminal's bell or notification, and the user's
 * own command.  Both are rate limited, since what raises alerts may be hostile.  The command comes
 * from the user's settings alone; the texts reach it as arguments, never as shell words. */
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "tui/appstate.h"

static const double command_s = 60; /* a command that runs longer is killed */
enum { CELLS_MAX = 120 };

void app_alerts_tell(struct app *app, const char *label, const struct alert *a)
{
    struct app_alerts *all = &app->alerts;
    if (all->notify.terminal != NOTIFY_OFF) {
        snprintf(all->text, sizeof all->text, "%s: %s", label, a->text);
        all->waiting++;
    }
    if (!all->notify.command || !all->notify.command[0])
        return;
    if (all->jobs == APP_ALERT_JOBS) {
        if (all->dropped++ == 0)
            app_notify(app, LOG_WARN, "notify.command: too many alerts; some run no command");
        return;
    }
    struct app_alert_job *job = &all->job[all->jobs++];
    str_copy(job->run, sizeof job->run, label);
    job->alert = *a;
}

/* ---- the terminal ---- */

/* Without characters that end or separate the fields of an escape sequence. */
static void add_text(struct str *out, const char *text)
{
    struct str safe = {0};
    utf8_sanitise(&safe, text, strlen(text), CELLS_MAX, !utf8_locale_is_utf8());
    for (char *p = safe.p; p && *p; p++)
        *p = *p == ';' ? ',' : *p;
    str_add(out, str_text(&safe));
    str_release(&safe);
}

/* tmux passes on what is wrapped so, with every escape doubled, where allow-passthrough is on. */
static void add_sequence(struct str *out, const char *sequence)
{
    const char *tmux = getenv("TMUX");
    if (!tmux || !tmux[0]) {
        str_add(out, sequence);
        return;
    }
    str_add(out, "\x1bPtmux;");
    for (; *sequence; sequence++) {
        if (*sequence == '\x1b')
            str_add_char(out, '\x1b');
        str_add_char(out, *sequence);
    }
    str_add(out, "\x1b\\");
}

static void ring(struct app *app)
{
    struct app_alerts *all = &app->alerts;
    struct str s = {0};
    int how = app->has_clipboard ? all->notify.terminal : NOTIFY_BELL; /* plain ones print OSC */
    if (how == NOTIFY_BELL) {
        str_add(&app->extra, "\x07");
    } else {
        str_add(&s, how == NOTIFY_OSC9 ? "\x1b]9;depthscope: " : "\x1b]777;notify;depthscope;");
        add_text(&s, all->text);
        if (all->waiting > 1)
            str_addf(&s, " (and %d more)", all->waiting - 1);
        str_add(&s, "\x07");
        add_sequence(&app->extra, str_text(&s));
        str_release(&s);
    }
    all->waiting = 0;
    all->rung = clock_mono();
    app->is_dirty = 1;
}

/* ---- the command ---- */

static void start(struct app *app)
{
    struct app_alerts *all = &app->alerts;
    static const char *const level[] = {"debug", "info", "warn", "error"};
    struct app_alert_job job = all->job[0];
    struct err e = {0};
    char value[32] = "";
    if (!isnan(job.alert.value))
        snprintf(value, sizeof value, "%.9g", job.alert.value);
    const char *const argv[] = {"sh",           "-c",
                                all->notify.command, "depthscope",
                                job.run,        alert_name(job.alert.rule),
                                job.alert.text, value,
                                level[job.alert.level & 3], NULL};
    struct child_setup how = {.program = "sh",
                              .argv = argv,
                              .in = CHILD_NULL,
                              .out = CHILD_NULL,
                              .err = CHILD_PIPE,
                              .is_nonblocking = 1,
                              .is_session = 1};
    memmove(&all->job[0], &all->job[1], (size_t)--all->jobs * sizeof all->job[0]);
    all->started = clock_mono();
    if (child_start(&all->child, &how, &e) < 0)
        app_notify(app, LOG_ERROR, "notify.command: %s", e.text);
}

static void reap(struct app *app)
{
    struct child *c = &app->alerts.child;
    char why[CHILD_TAIL];
    if (c->pid <= 0)
        return;
    for (int i = 0; i < 64 && c->err >= 0 && child_tail(c, c->err) > 0; i++) {
    }
    if (!child_poll(c)) {
        if (clock_mono() - app->alerts.started < command_s)
            return;
        app_notify(app, LOG_WARN, "notify.command: stopped after %.0f seconds", command_s);
        child_close(c, SIGKILL);
    } else {
        if (child_verdict(c, why, sizeof why) < 0)
            app_notify(app, LOG_WARN, "notify.command: %.200s", why);
        child_close(c, 0);
    }
    *c = (struct child)CHILD_NONE;
}

void app_alerts_send(struct app *app)
{
    struct app_alerts *all = &app->alerts;
    if (all->waiting > 0 && app->term && clock_mono() >= app_alerts_due(app))
        ring(app);
    reap(app);
    if (all->jobs > 0 && all->child.pid <= 0)
        start(app);
}

double app_alerts_due(const struct app *app)
{
    const struct app_alerts *all = &app->alerts;
    return all->waiting > 0 ? all->rung + all->notify.every_s : HUGE_VAL;
}
