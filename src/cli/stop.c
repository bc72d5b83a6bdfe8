/* depthscope stop: asks live runs over their control sockets to save a checkpoint and stop, and
 * waits for them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "io/foreign.h"
#include "io/runindex.h"
#include "io/runlog.h"
#include "training/job.h"

struct cli_option stop_options[] = {
    {.name = "all", .help = "stop every live run on this host"},
    {.name = "timeout", .has_value = 1, .help = "SECONDS  maximum wait (default: no limit)"},
    {.name = "json", .help = "a JSON array of {name, path, status, state, step, text}"},
    {.name = NULL},
};

enum status { WAITING, STOPPED, NOT_RUNNING, UNKNOWN, ELSEWHERE, REFUSED, TIMEOUT };
static const char *const status_name[] = {"waiting",   "stopped", "not_running", "unknown",
                                          "elsewhere", "refused", "timeout"};

struct target {
    char name[80], dir[1024], log[1100];
    enum status status;
    int is_asked, is_reported; /* the run was asked; the wait was reported */
    char stuck[200];           /* why it does not answer, "" when it did */
    struct run_row run;
    char text[400];
};

/* The run's directory, from its name, directory or log. */
static void find(struct target *t, const char *word)
{
    char path[1024], hint[256];
    struct err e = {0};
    int rc = strcmp(word, "-") == 0 ? err_set(&e, DS_EUSAGE, "expected the name of a run")
                                    : cli_run_path(path, sizeof path, word, &e);
    size_t n = rc == 0 ? strlen(path) : 0;
    str_copy(t->name, sizeof t->name, word);
    if (rc == 0 && !fs_is_dir(path) && n > 7 && strcmp(path + n - 7, "/log.mp") == 0)
        path[n - 7] = '\0';
    if (rc == 0) {
        path[fs_trimmed(path)] = '\0';
        rc = str_copy(t->dir, sizeof t->dir, path)
                 ? DS_ERANGE
                 : fs_join(t->log, sizeof t->log, path, "log.mp", &e);
    }
    if (rc == 0 && fs_exists(t->log)) {
        const char *slash = strrchr(t->dir, '/');
        str_copy(t->name, sizeof t->name, slash ? slash + 1 : t->dir);
        return;
    }
    const struct foreign_format *format;
    t->status = UNKNOWN;
    if (rc == 0 && foreign_find(path, &format)) {
        snprintf(t->text, sizeof t->text,
                 "the log of another program (%s), which takes no commands", format->title);
        return;
    }
    rc = rc == 0 ? fs_check_reach(t->log, &e) : rc;
    if (rc < 0 && rc != DS_ENOTFOUND && e.code)
        str_copy(t->text, sizeof t->text, e.text);
    else
        snprintf(t->text, sizeof t->text, "run not found in %.200s%s", job_root(),
                 cli_run_hint(word, 0, hint, sizeof hint));
}

/* The host that the run was started on, "" when it is this one or unknown. */
static void other_host(const struct target *t, char *out, size_t size)
{
    char path[1100], here[256] = "";
    struct json *j = NULL;
    out[0] = '\0';
    gethostname(here, sizeof here - 1);
    if (fs_join(path, sizeof path, t->dir, "meta.json", NULL) < 0 ||
        json_read_file(&j, path, 1 << 20, NULL) < 0)
        return;
    const char *host = json_str(json_get(json_root(j), "host"), NULL);
    if (host && strcmp(host, here) != 0)
        str_copy(out, size, host);
    json_free(j);
}

static void read_state(struct target *t)
{
    if (run_row_read(&t->run, t->log, NULL) < 0)
        t->run.state = RUN_EMPTY;
    run_row_release(&t->run);
}

static void describe_idle(struct target *t)
{
    char host[256], age[16];
    double silent = clock_wall() - t->run.last_time;
    other_host(t, host, sizeof host);
    t->status = NOT_RUNNING;
    if (!host[0] && (t->run.state == RUN_LIVE || t->run.state == RUN_PAUSED))
        t->run.state = RUN_SILENT; /* its records are young, but nobody here holds its lock */
    if (host[0] &&
        (t->run.state == RUN_LIVE || t->run.state == RUN_PAUSED || t->run.state == RUN_SILENT)) {
        t->status = ELSEWHERE;
        snprintf(t->text, sizeof t->text,
                 "runs on host %.100s; use ssh %.100s depthscope stop %.64s", host, host, t->name);
    } else if (t->run.state == RUN_EMPTY) {
        snprintf(t->text, sizeof t->text, "not running: no records yet");
    } else {
        snprintf(t->text, sizeof t->text, "not running: %s at step %lld%s%s",
                 run_state_name(t->run.state), (long long)t->run.phase.step,
                 t->run.state == RUN_SILENT && silent > 0 ? ", last record " : "",
                 t->run.state == RUN_SILENT && silent > 0 ? str_duration(age, silent) : "");
        if (t->run.state == RUN_SILENT && silent > 0)
            str_copy(t->text + strlen(t->text), sizeof t->text - strlen(t->text), " ago");
    }
}

static void describe_end(struct target *t)
{
    const char *state = run_state_name(t->run.state);
    t->status = STOPPED;
    snprintf(t->text, sizeof t->text, "%s at step %lld",
             t->run.state == RUN_SILENT ? "ended" : state, (long long)t->run.phase.step);
    if (t->run.phase.steps_planned > 0)
        snprintf(t->text + strlen(t->text), sizeof t->text - strlen(t->text), " of %lld",
                 (long long)t->run.phase.steps_planned);
    if (t->run.state == RUN_STOPPED && run_row_config(&t->run, "model.method")) /* a run of ours */
        snprintf(t->text + strlen(t->text), sizeof t->text - strlen(t->text),
                 "; resume with depthscope train --resume %.64s", t->name);
    run_row_release(&t->run);
}

/* A run answers between steps, so a missing answer is not a failure: the request is queued. */
static void ask(struct target *t)
{
    struct str answer = {0};
    struct err e = {0};
    int rc = job_command(t->dir, "stop", 2, &answer, &e);
    int is_over = rc == 0 && strncmp(str_text(&answer), "error the run ended", 19) == 0;
    if (rc == DS_EBUSY)
        str_copy(t->stuck, sizeof t->stuck, e.text);
    if (rc == 0 && !is_over && strncmp(str_text(&answer), "error", 5) == 0) {
        t->status = REFUSED;
        snprintf(t->text, sizeof t->text, "refused: %.300s", str_text(&answer) + 6);
    } else if (rc == 0 || rc == DS_EBUSY) {
        t->is_asked = 1;
    } else if (rc != DS_ENOTFOUND && rc != DS_EIO) {
        t->status = REFUSED;
        str_copy(t->text, sizeof t->text, e.text);
    }
    str_release(&answer);
}

/* Polls a live run: detects its end, and repeats the request until it is accepted. */
static void step(struct target *t)
{
    if (!runlog_is_locked(t->log)) {
        read_state(t);
        if (t->is_asked)
            describe_end(t);
        else
            describe_idle(t);
    } else if (!t->is_asked) {
        ask(t); /* retried: the socket is closed while a run starts or ends */
    }
}

static void note_waiting(struct target *t, double waited)
{
    if (t->is_reported || waited < 2 || (!t->stuck[0] && !isatty(STDERR_FILENO)))
        return;
    t->is_reported = 1;
    if (t->stuck[0]) { /* also in a script: it may wait for ever */
        fprintf(stderr, "depthscope: stop: %s: %s\n", t->name, t->stuck);
        return;
    }
    fprintf(stderr,
            "depthscope: stop: %s: waiting for its %s; Ctrl-C ends the wait, not the "
            "stop\n",
            t->name, t->is_asked ? "current step and a checkpoint" : "control socket");
}

static void wait_for(struct target *t, size_t n, double timeout)
{
    double started = clock_mono();
    for (;;) {
        size_t waiting = 0;
        double waited = clock_mono() - started;
        for (size_t i = 0; i < n; i++) {
            if (t[i].status != WAITING)
                continue;
            step(&t[i]);
            if (t[i].status == WAITING && waited > timeout) {
                t[i].status = TIMEOUT;
                read_state(&t[i]);
                snprintf(t[i].text, sizeof t[i].text, "still running after %g s%s%s", timeout,
                         t[i].stuck[0]   ? ": "
                         : t[i].is_asked ? "; it will stop after its current step"
                                         : "",
                         t[i].stuck);
            }
            waiting += t[i].status == WAITING;
            if (t[i].status == WAITING)
                note_waiting(&t[i], waited);
        }
        if (waiting == 0)
            return;
        clock_sleep(0.1);
    }
}

static int add_live(struct target **t, size_t *n, struct err *e)
{
    struct runindex x = {0};
    int rc = runindex_refresh(&x, job_root(), e);
    *t = rc == 0 ? mem_alloc(x.n + 1, sizeof **t) : NULL;
    if (rc == 0 && !*t)
        rc = err_set(e, DS_EMEM, "stop");
    for (size_t i = 0; rc == 0 && i < x.n; i++)
        if (x.row[i]->is_live && !x.row[i]->format) /* nobody takes commands for those */
            find(&(*t)[(*n)++], x.row[i]->path);
    runindex_release(&x);
    return rc;
}

static int read_targets(const struct cli_args *a, struct target **t, size_t *n, struct err *e)
{
    int all = cli_flag(a, "all");
    if (a->n_override > 0)
        return err_set(e, DS_EUSAGE, "stop: %s: expected the name of a run", a->override[0]);
    if (all == (a->n_rest > 0))
        return err_set(e, DS_EUSAGE,
                       all ? "stop: --all: unexpected run names"
                           : "stop: missing argument RUN (depthscope runs lists them, --all "
                             "stops every live run)");
    if (all)
        return add_live(t, n, e);
    *t = mem_alloc((size_t)a->n_rest, sizeof **t);
    if (!*t)
        return err_set(e, DS_EMEM, "stop");
    for (int i = 0; i < a->n_rest; i++) {
        find(&(*t)[*n], a->rest[i]);
        int is_again = 0;
        for (size_t k = 0; k < *n; k++)
            is_again |= (*t)[*n].dir[0] && strcmp((*t)[k].dir, (*t)[*n].dir) == 0;
        if (is_again)
            (*t)[*n] = (struct target){0};
        *n += !is_again;
    }
    return 0;
}

static void add_json(struct str *out, const struct target *t)
{
    json_key(out, NULL);
    str_add(out, "{");
    json_add_str(out, "name", t->name);
    json_add_str(out, "path", t->dir);
    json_add_str(out, "status", status_name[t->status]);
    json_add_str(out, "state", t->status == UNKNOWN ? "" : run_state_name(t->run.state));
    json_add_int(out, "step", t->run.phase.step);
    json_add_str(out, "text", t->text);
    str_add(out, "}");
}

/* Stopped runs go to standard output, all others to standard error; 1 when a run was not
 * stopped. */
static int report(const struct target *t, size_t n, int json)
{
    struct str out = {0}, errors = {0};
    int failed = 0;
    str_add(&out, json ? "[" : "");
    for (size_t i = 0; i < n; i++) {
        struct str *to = t[i].status == STOPPED ? &out : &errors;
        failed |= t[i].status != STOPPED;
        if (json) {
            add_json(&out, &t[i]);
            continue;
        }
        str_add(to, to == &errors ? "depthscope: stop: " : "");
        cli_add_safe(to, t[i].name, strlen(t[i].name), -1);
        str_add(to, ": ");
        cli_add_safe(to, t[i].text, strlen(t[i].text), -1);
        str_add(to, "\n");
    }
    if (n == 0 && !json)
        str_add(&out, "no live runs on this host\n");
    str_add(&out, json ? "]\n" : "");
    fputs(errors.failed ? "depthscope: stop: out of memory\n" : str_text(&errors), stderr);
    str_release(&errors);
    int status = cli_print(&out);
    return status ? status : failed;
}

int stop_command(int argc, char **argv)
{
    struct cli_args a;
    struct err e = {0};
    struct target *t = NULL;
    size_t n = 0;
    double timeout = (double)INFINITY;
    int rc = cli_parse(&a, stop_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    const char *limit = cli_value(&a, "timeout");
    char *end = NULL;
    if (limit && (!((timeout = strtod(limit, &end)) >= 0) || *end || end == limit))
        rc = err_set(&e, DS_EUSAGE, "stop: --timeout %s: expected seconds", limit);
    if (rc == 0)
        rc = read_targets(&a, &t, &n, &e);
    int json = cli_flag(&a, "json"), status = 0;
    if (rc == 0) {
        wait_for(t, n, timeout);
        status = report(t, n, json);
    }
    mem_free(t);
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : status;
}
