/* Open runs: opening, polling, marking, closing. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "io/experiment.h"
#include "io/foreign.h"
#include "training/job.h"
#include "tui/appstate.h"
#include "tui/widgets.h"

struct runview *app_run(struct app *app)
{
    return app->runs ? app->run[app->current].view : NULL;
}

const struct open_run *app_runs(struct app *app, size_t *n, size_t *current)
{
    *n = app->runs;
    *current = app->current;
    return app->run;
}

static struct open_run *find(struct app *app, const char *path)
{
    for (size_t i = 0; i < app->runs; i++)
        if (strcmp(app->run[i].path, path) == 0)
            return &app->run[i];
    return NULL;
}

/* The lowest colour index that no open run has; a run keeps its colour while it is open. */
static int free_colour(const struct app *app)
{
    for (int c = 0;; c++) {
        int is_taken = 0;
        for (size_t i = 0; i < app->runs; i++)
            is_taken |= app->run[i].colour == c;
        if (!is_taken)
            return c;
    }
}

static void close_run(struct app *app, size_t i)
{
    struct host *host = app_host_of(app, app->run[i].path);
    if (host)
        host_drop(host, app->run[i].path);
    runview_free(app->run[i].view);
    memmove(&app->run[i], &app->run[i + 1], (app->runs - i - 1) * sizeof app->run[0]);
    app->runs--;
    if (app->current > i)
        app->current--;
}

/* Frees a slot by closing the oldest run that is neither current nor marked. */
static int make_room(struct app *app, struct err *e)
{
    for (size_t i = 0; app->runs >= APP_RUNS_MAX && i < app->runs; i++) {
        if (i != app->current && !app->run[i].is_marked) {
            close_run(app, i);
            return 0;
        }
    }
    return app->runs < APP_RUNS_MAX
               ? 0
               : err_set(e, DS_ERANGE, "%d runs are open and marked, the maximum; unmark one first",
                         APP_RUNS_MAX);
}

/* Replaces the name that follows from the path of the records. */
static void rename_view(struct runview *v, const char *name)
{
    char *own = mem_strdup(name);
    if (!own)
        return;
    mem_free(v->name);
    v->name = own;
}

/* Runs of one name get their folders into their labels. */
static void name_runs(const struct app *app)
{
    struct runview *view[APP_RUNS_MAX];
    const char *path[APP_RUNS_MAX];
    for (size_t i = 0; i < app->runs; i++) {
        view[i] = app->run[i].view;
        path[i] = app->run[i].path;
    }
    experiment_name_views(view, path, app->runs);
}

static int add_run(struct app *app, const char *path, struct open_run **out, struct err *e)
{
    struct runview *view;
    int rc = make_room(app, e);
    if (rc < 0)
        return rc;
    struct host *host = app_host_of(app, path);
    char label[HOST_NAME + 260];
    if (host && (rc = host_follow(host, path, e)) < 0)
        return rc;
    /* the rest of a large file is read by polls, so that keys stay responsive */
    rc = runview_follow(&view, path, app_is_scripted(app) ? HUGE_VAL : 0.25, e);
    if (rc < 0)
        return rc;
    struct open_run r = {.view = view, .colour = free_colour(app)};
    if (host) {
        rename_view(view, host_label(host, path, label, sizeof label));
        view->is_copy = 1;
    }
    str_copy(r.path, sizeof r.path, path);
    if (fs_is_dir(path) && !runview_foreign(view)) /* nothing is written next to others' logs */
        str_copy(r.dir, sizeof r.dir, path);
    app->run[app->runs++] = r;
    *out = &app->run[app->runs - 1];
    name_runs(app);
    return 0;
}

void app_select_run(struct app *app, size_t index)
{
    if (index >= app->runs)
        return;
    app->current = index;
    app->is_dirty = 1;
    app_views_run_changed(app);
}

int app_open_run(struct app *app, const char *path, struct err *e)
{
    struct open_run *r = find(app, path);
    int is_first = app->runs == 0 || !app->state_path[0]; /* a run that was only marked is not it */
    if (!r) {
        int rc = add_run(app, path, &r, e);
        if (rc < 0)
            return rc;
    }
    if (is_first)
        app_state_load(app, path);
    app_select_run(app, (size_t)(r - app->run));
    return 0;
}

void app_run_moved(struct app *app, const char *from, const char *to)
{
    struct open_run *r = find(app, from);
    const char *slash = strrchr(to, '/');
    char log[1100], *path;
    if (!r || !r->dir[0] || fs_join(log, sizeof log, to, "log.mp", NULL) < 0)
        return;
    path = mem_strdup(log);
    if (!path)
        return;
    mem_free(r->view->path);
    r->view->path = path;
    rename_view(r->view, slash ? slash + 1 : to);
    str_copy(r->path, sizeof r->path, to);
    str_copy(r->dir, sizeof r->dir, to);
    app->is_dirty = 1;
}

static int is_job_root(const char *path, size_t n)
{
    char dir[1024];
    struct stat a, b;
    snprintf(dir, sizeof dir, "%.*s", (int)n, path);
    return stat(dir, &a) == 0 && stat(job_root(), &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

const char *app_home(struct app *app, const char *also[APP_ALSO_MAX], size_t *n)
{
    *n = 0;
    for (size_t i = 0; i < app->opt.n_folders && *n < APP_ALSO_MAX; i++)
        also[(*n)++] = app->opt.folders[i];
    for (size_t i = 0; i < app->runs && *n < APP_ALSO_MAX; i++) {
        const struct open_run *r = &app->run[i];
        const char *slash = strrchr(r->path, '/');
        size_t head = slash ? (size_t)(slash - r->path) : 0;
        int is_run = strcmp(r->path, "-") != 0 && !app_host_of(app, r->path) &&
                     (r->dir[0] || runview_foreign(r->view));
        if (is_run && !(slash && is_job_root(r->path, head)))
            also[(*n)++] = r->path;
    }
    int elsewhere = app->opt.n_folders + app->opt.n_hosts > 0;
    return elsewhere && app->opt.n == 0 ? NULL : job_root();
}

/* ---- models ---- */

static int has(const char *dir, const char *name)
{
    char path[1200];
    return fs_join(path, sizeof path, dir, name, NULL) == 0 && fs_exists(path);
}

/* A model without training records: a directory, a model in a single file, or the socket of a
 * server. */
int app_is_model(const char *path)
{
    const char *end = strrchr(path, '.');
    if (!fs_is_dir(path))
        return fs_is_socket(path) ||
               (end && (strcmp(end, ".gguf") == 0 || strcmp(end, ".bin") == 0));
    const struct foreign_format *format;
    return !has(path, "log.mp") && !foreign_find(path, &format) &&
           (has(path, "config.json") || has(path, "checkpoints") ||
            has(path, "adapter_config.json"));
}

void app_open_model(struct app *app, const char *path)
{
    if (app->runs == 0)
        app_state_load(app, path);
    if (!keys_command(app_focused(app)->keys, "model", 5)) /* else the view that is open runs it */
        app_show(app, "stepper");
    app_press_command(app, "model", path);
}

void app_compare(struct app *app, const char *a, const char *b, const char *text)
{
    struct str pair = {0};
    str_addf(&pair, "%s\n%s", a, b);
    app_show(app, "compare");
    app_press_command(app, "compare", str_text(&pair));
    if (text)
        app_press_command(app, "text", text);
    str_release(&pair);
}

int app_wants_pair(const struct app *app)
{
    return app->opt.n == 2 && app->opt.view && strcmp(app->opt.view, "compare") == 0;
}

/* A trace has decisions but no metrics. */
const char *app_first_view(struct app *app)
{
    const struct runview *v = app_run(app);
    if (!v)
        return "home";
    return v->state == RUN_TRACE && v->n_probes > 0 ? "depth" : "monitor";
}

int app_open(struct app *app, const char *path, struct err *e)
{
    if (app_is_model(path)) {
        app_open_model(app, path);
        return 0;
    }
    int rc = app_open_run(app, path, e);
    if (rc == 0)
        app_show(app, app_first_view(app));
    return rc;
}

/* ---- nothing to see ---- */

/* A title, and in *text what to do or the output of the run; NULL: the run has records. */
static const char *why_nothing(const struct app *app, const char **text, char *words, size_t size)
{
    const struct open_run *r = app->runs ? &app->run[app->current] : NULL;
    *text = "Press 1 for Home; :open PATH opens a run, a log or a trace";
    if (!r)
        return "No run is open";
    const struct runview *v = r->view;
    int lives = v->state == RUN_LIVE || v->state == RUN_PAUSED;
    if (!r->dir[0] || v->n_series + v->n_matrices + v->n_probes + v->n_samples + v->n_evals > 0)
        return NULL;
    if (!lives && job_last_line(r->dir, words, size)) {
        *text = words;
        return "The run ended before its first step. Its output:";
    }
    if (app_host_of(app, r->path)) {
        *text = "They come as soon as the line allows";
        return "No records have arrived from the host";
    }
    /* config.yaml is the first file that the process of a run writes */
    if (lives || (has(r->dir, "train.out") && !has(r->dir, "config.yaml"))) {
        *text = "It prepares the text and the tokenizer before the first step";
        return "The run is starting";
    }
    *text = "No process is writing to this run";
    return "No steps are recorded";
}

int app_draw_nothing(struct app *app, struct area a)
{
    char words[400];
    const char *text, *title = why_nothing(app, &text, words, sizeof words);
    int y = a.rows > 6 ? a.rows / 2 - 2 : 0;
    if (!title)
        return 0;
    area_text(a, y, 2, -1, ink_attr(ink(ROLE_TITLE), ATTR_BOLD), title);
    struct scroll lines = {0}; /* wrapped, since an error may be wider than the screen */
    scroll_text(&lines, area_sub(a, y + 2, 2, a.rows - y - 2, a.cols - 2), text,
                ink(text == words ? ROLE_BAD : ROLE_TEXT));
    return 1;
}

void app_mark_run(struct app *app, const char *path, int is_marked)
{
    struct open_run *r = find(app, path);
    struct err e = {0};
    if (!r && is_marked && add_run(app, path, &r, &e) < 0)
        app_notify(app, LOG_ERROR, "%s", e.text);
    if (r)
        r->is_marked = is_marked;
    app->is_dirty = 1;
}

int app_is_marked(struct app *app, const char *path)
{
    const struct open_run *r = find(app, path);
    return r && r->is_marked;
}

int app_poll_runs(struct app *app, double budget_s)
{
    int changed = 0;
    for (size_t i = 0; i < app->runs; i++) {
        struct open_run *r = &app->run[i];
        struct err e = {0};
        if (r->failed)
            continue;
        int rc = runview_poll(r->view, budget_s / (double)app->runs, &e);
        changed |= rc > 0;
        if (rc < 0) {
            r->failed = 1;
            str_copy(r->error, sizeof r->error, e.text);
            app_notify(app, LOG_ERROR, "%s", e.text);
            changed = 1;
        }
    }
    return changed | app_poll_commands(app);
}

int app_has_live(const struct app *app)
{
    for (size_t i = 0; i < app->runs; i++) {
        enum run_state s = app->run[i].view->state;
        if (s == RUN_LIVE || s == RUN_PAUSED || s == RUN_SILENT || s == RUN_EMPTY)
            return 1;
    }
    return 0;
}

int app_is_behind(const struct app *app)
{
    for (size_t i = 0; i < app->runs; i++)
        if (app->run[i].view->is_behind && !app->run[i].failed)
            return 1;
    return 0;
}

/* Runs continue after the workbench quits: the line that reports it, with the commands to use. */
void app_exit_note(const struct app *app, struct str *out)
{
    const struct open_run *first = NULL;
    int more = -1;
    for (size_t k = 0; k < app->runs; k++) {
        const struct open_run *r = &app->run[(app->current + k) % app->runs];
        int lives = r->view->state == RUN_LIVE || r->view->state == RUN_PAUSED;
        if (!lives || !r->dir[0] || app_host_of(app, r->path))
            continue;
        first = first ? first : r;
        more++;
    }
    if (!first)
        return;
    const struct runview *v = first->view;
    const char *slash = strrchr(first->dir, '/');
    /* a run outside the runs directory is named by its path */
    const char *name =
        slash && is_job_root(first->dir, (size_t)(slash - first->dir)) ? slash + 1 : first->dir;
    str_addf(out, "run %s %s at step %lld", v->name,
             v->state == RUN_PAUSED ? "remains paused" : "continues", (long long)v->step);
    if (v->steps_planned > 0)
        str_addf(out, " of %lld", (long long)v->steps_planned);
    str_addf(out, "; to watch it: depthscope %s; to stop it: depthscope stop %s", first->dir, name);
    if (more > 0)
        str_addf(out, " (and %d more run%s)", more, more > 1 ? "s" : "");
}

void app_close_runs(struct app *app)
{
    app_close_commands(app);
    while (app->runs)
        close_run(app, app->runs - 1);
    app->current = 0;
}
