/* Commands to the processes of runs: sent without blocking, and pending until the run's records
 * confirm that they were carried out. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "io/runlog.h"
#include "training/job.h"
#include "tui/appstate.h"

static const double answer_s = 2; /* a live run replies at once */

static void forget(struct app *app, int i)
{
    job_request_close(app->request[i].sent);
    memmove(&app->request[i], &app->request[i + 1],
            (size_t)(--app->requests - i) * sizeof app->request[0]);
    app->is_dirty = 1;
}

static int has_socket(const struct app *app)
{
    char path[1200];
    return fs_join(path, sizeof path, app->run[app->current].dir, "control.sock", NULL) == 0 &&
           fs_exists(path);
}

static void say_error(struct app *app, const char *command, int rc, const struct err *e)
{
    const struct runview *r = app_run(app);
    if (rc == DS_ENOTFOUND && r && r->state == RUN_LIVE && r->step == 0)
        app_notify(
            app, LOG_WARN,
            "the run is starting and takes commands from its first step; \"%s\" was not sent",
            command);
    else if (rc == DS_ENOTFOUND && r && r->state == RUN_LIVE && !has_socket(app))
        app_notify(app, LOG_WARN, "the run's process takes no commands; \"%s\" was not sent",
                   command);
    else if (rc == DS_ENOTFOUND)
        app_notify(app, LOG_WARN, "no running process; \"%s\" was not sent", command);
    else
        app_notify(app, LOG_ERROR, "%s: %s", command, e->text);
}

static int open_elsewhere(struct app_request *q, struct err *e)
{
    q->host_id = host_command(q->host, q->dir, q->command, e);
    return q->host_id < 0 ? (int)q->host_id : 0;
}

static void send_to(struct app *app, const char *dir, const char *command);

static void send_confirmed(void *ctx)
{
    struct app *app = ctx;
    send_to(app, app->unsure.dir, app->unsure.command);
}

/* "confirm WHY; to set it: LINE": the question, and the line that answers it. */
static int ask_to_confirm(struct app *app, const char *dir, const char *answer)
{
    static const char mark[] = "; to set it: ";
    const char *at = strstr(answer, mark);
    char question[256];
    if (strncmp(answer, "confirm ", 8) != 0 || !at || app->confirm.is_active)
        return 0;
    str_copy(app->unsure.dir, sizeof app->unsure.dir, dir);
    str_copy(app->unsure.command, sizeof app->unsure.command, at + sizeof mark - 1);
    snprintf(question, sizeof question, "%.*s: set it anyway?", (int)(at - answer - 8), answer + 8);
    app_confirm(app, question, send_confirmed, app);
    return 1;
}

static void show_answer(struct app *app, const char *dir, const char *command, const char *answer)
{
    int is_ok = strncmp(answer, "ok", 2) == 0;
    if (!ask_to_confirm(app, dir, answer))
        app_notify(app, is_ok ? LOG_INFO : LOG_ERROR, "%s: %s", command, answer);
}

/* A key script has no event loop that could receive the answer later. */
static void send_and_wait(struct app *app, const char *dir, const char *command)
{
    struct str answer = {0};
    struct err e = {0};
    int rc = job_command(dir, command, answer_s, &answer, &e);
    if (rc < 0)
        say_error(app, command, rc, &e);
    else
        show_answer(app, dir, command, str_text(&answer));
    str_release(&answer);
}

static void send_to(struct app *app, const char *dir, const char *command)
{
    struct err e = {0};
    if (app_is_scripted(app)) {
        send_and_wait(app, dir, command);
        return;
    }
    if (app->requests == APP_REQUESTS_MAX) {
        app_notify(app, LOG_WARN, "%d commands are pending; \"%s\" was not sent", APP_REQUESTS_MAX,
                   command);
        return;
    }
    struct app_request *q = &app->request[app->requests];
    *q = (struct app_request){0};
    str_copy(q->dir, sizeof q->dir, dir);
    str_copy(q->command, sizeof q->command, command);
    q->host = app_host_of(app, dir);
    int rc =
        q->host ? open_elsewhere(q, &e) : job_request_open(&q->sent, dir, command, answer_s, &e);
    if (rc < 0)
        say_error(app, command, rc, &e);
    else
        app->requests++;
    app->is_dirty = 1;
}

int app_is_growing(struct app *app)
{
    if (!app->runs)
        return 0;
    enum run_state state = app_run(app)->state;
    return state == RUN_LIVE || state == RUN_PAUSED || state == RUN_EMPTY || state == RUN_SILENT;
}

/* Why the current run cannot take a command, "" when it may. */
static const char *why_not(struct app *app, const char *command, char *out, size_t size)
{
    const struct runview *v = app_run(app);
    const char *word = command + strspn(command, " ");
    char name[64];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(word, " "), word);
    out[0] = '\0';
    if (!v)
        str_copy(out, size, "no run is open");
    else if (runview_foreign(v))
        snprintf(out, size, "%s: the log of another program takes no commands", runview_foreign(v));
    else if (v->reader && runlog_reader_fd(v->reader) >= 0)
        str_copy(out, size, "a run that comes through a pipe takes no commands");
    else if (!app->run[app->current].dir[0])
        str_copy(out, size, "no run directory is open");
    else if (!runview_answers(v, name))
        snprintf(out, size,
                 v->commands[0] ? "the run answers only %s" : "the run takes no commands",
                 v->commands);
    return out;
}

/* The command that a key row sends to the run: "stop" of "run-stop". */
static const char *control_of(struct app *app, const struct key *k)
{
    static const struct {
        const char *row, *command;
    } rows[] = {{"run-checkpoint", "checkpoint"},
                {"run-probe", "probe"},
                {"run-stop", "stop"},
                {"set-value", "set"}};
    if (strcmp(k->command, "pause-resume") == 0)
        return app_run(app) && app_run(app)->state == RUN_PAUSED ? "resume" : "pause";
    for (size_t i = 0; i < DS_LEN(rows); i++)
        if (strcmp(k->command, rows[i].row) == 0)
            return rows[i].command;
    return k->command;
}

int app_takes(struct app *app, const struct key *k)
{
    char why[400];
    const struct open_run *r = app->runs ? &app->run[app->current] : NULL;
    return r && app_is_growing(app) && r->view->state != RUN_SILENT &&
           !why_not(app, control_of(app, k), why, sizeof why)[0] && has_socket(app);
}

const char *app_probe_hint(struct app *app, const char *in_python)
{
    static const struct key probe = {.command = "run-probe"};
    const struct runview *v = app_run(app);
    if (app_takes(app, &probe))
        return ":probe records one now.";
    if (!v || runview_config(v, "train.probe_every"))
        return "`depthscope trace` records one from a model.";
    return in_python ? in_python
                     : "In PyTorch, ds.watch(model, run, probe=[\"...\"]) records them.";
}

void app_send(struct app *app, const char *dir, const char *command)
{
    if (app->opt.readonly)
        app_notify(app, LOG_WARN, "read-only mode: \"%s\" was not sent", command);
    else
        send_to(app, dir, command);
}

void app_run_command(struct app *app, const char *command)
{
    char why[400];
    if (!app->opt.readonly && why_not(app, command, why, sizeof why)[0])
        app_notify(app, LOG_WARN, "%s; \"%s\" was not sent", why, command);
    else
        app_send(app, app->runs ? app->run[app->current].dir : "", command);
}

/* 1 when the request is finished. */
static int take_answer(struct app *app, struct app_request *q)
{
    struct str answer = {0};
    struct err e = {0};
    int rc = q->host ? host_answer(q->host, q->host_id, &answer, &e)
                     : job_request_poll(q->sent, &answer, &e);
    if (rc == 0)
        return 0;
    job_request_close(q->sent);
    q->sent = NULL;
    q->host = NULL;
    if (rc < 0)
        say_error(app, q->command, rc, &e);
    else if ((q->pending = job_pending(str_text(&answer))) == 0)
        show_answer(app, q->dir, q->command, str_text(&answer));
    str_release(&answer);
    return q->pending == 0;
}

static const struct runview *view_of(const struct app *app, const char *dir)
{
    for (size_t i = 0; i < app->runs; i++)
        if (strcmp(app->run[i].dir, dir) == 0)
            return app->run[i].view;
    return NULL;
}

/* The run's event "command": "ID LINE: ANSWER", of the process that gave the ID. */
static int take_event_of(struct app *app, struct app_request *q)
{
    const struct runview *v = view_of(app, q->dir);
    if (!v) /* the run was closed */
        return 1;
    for (size_t i = v->n_events; i-- > 0;) {
        const struct run_event *x = &v->event[i];
        long long id = 0;
        if (strcmp(x->name, "resume") == 0 && strncmp(x->text, "from the control", 16) != 0)
            break; /* earlier events are of another process, whose IDs also start at 1 */
        if (strcmp(x->name, "command") != 0 || sscanf(x->text, "%lld", &id) != 1 ||
            id != q->pending)
            continue;
        app_notify(app, LOG_INFO, "%s", x->text + strcspn(x->text, " ") + 1);
        return 1;
    }
    if (v->state != RUN_DONE && v->state != RUN_STOPPED && v->state != RUN_FAILED)
        return 0;
    app_notify(app, LOG_WARN, "the run ended before \"%s\" was carried out", q->command);
    return 1;
}

int app_poll_commands(struct app *app)
{
    int before = app->requests;
    for (int i = app->requests - 1; i >= 0; i--) {
        struct app_request *q = &app->request[i];
        int had_answer = q->pending != 0;
        if (q->sent || q->host ? take_answer(app, q) : take_event_of(app, q))
            forget(app, i);
        else if (!had_answer && q->pending)
            app->is_dirty = 1;
    }
    return before != app->requests;
}

int app_pending_text(const struct app *app, char *out, size_t size)
{
    for (int i = 0; i < app->requests; i++)
        if (app->request[i].pending) {
            snprintf(out, size, "pending: %s (carried out after the current step)%s",
                     app->request[i].command, app->requests > 1 ? ", and more" : "");
            return 1;
        }
    return 0;
}

int app_watch_commands(const struct app *app, struct pollfd *w)
{
    int n = 0;
    for (int i = 0; i < app->requests; i++)
        if (app->request[i].sent && job_request_fd(app->request[i].sent) >= 0)
            w[n++] = (struct pollfd){.fd = job_request_fd(app->request[i].sent), .events = POLLIN};
    return n;
}

void app_close_commands(struct app *app)
{
    while (app->requests)
        forget(app, app->requests - 1);
}
