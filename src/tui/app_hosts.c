/* Hosts of the workbench: opening, polling, and which runs are theirs. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tui/appstate.h"

void app_open_hosts(struct app *app)
{
    for (size_t i = 0; i < app->opt.n_hosts && app->hosts < HOSTS_MAX; i++) {
        struct err e = {0};
        if (host_open(&app->host[app->hosts], app->opt.hosts[i], app->opt.readonly, &e) < 0)
            app_notify(app, LOG_ERROR, "%s", e.text);
        else
            app->hosts++;
    }
}

/* A target that names a run opens it as a local path does, once. */
static void open_only(struct app *app, size_t i)
{
    const char *path = app->has_opened[i] ? NULL : host_only(app->host[i]);
    struct err e = {0};
    if (!path)
        return;
    app->has_opened[i] = 1;
    if (app_open_run(app, path, &e) < 0)
        app_notify(app, LOG_ERROR, "%s", e.text);
    else
        app_show(app, app->opt.view ? app->opt.view : app_first_view(app));
}

/* Of open run i. */
static int shows_probes(const struct app *app, size_t i)
{
    int shows = 0;
    for (int p = 0; p < app->panes; p++)
        shows |= view_registry[app->pane[p].current]->shows_probes;
    return shows && (i == app->current || app->run[i].is_marked);
}

void app_want_detail(struct app *app, const char *path, double from, double to)
{
    struct host *host = app_host_of(app, path);
    if (host)
        host_want_detail(host, path, from, to);
}

int app_poll_hosts(struct app *app)
{
    int changed = 0;
    for (size_t i = 0; i < app->hosts; i++) {
        changed |= host_poll(app->host[i]);
        open_only(app, i);
    }
    for (size_t i = 0; i < app->runs; i++) {
        struct host *host = app_host_of(app, app->run[i].path);
        if (host)
            host_want_probes(host, app->run[i].path, shows_probes(app, i));
        double skew = host ? host_info(host).skew_s : 0;
        app->run[i].view->skew = isfinite(skew) ? skew : 0;
    }
    if (changed)
        app->is_dirty = 1;
    return changed;
}

int app_watch_hosts(const struct app *app, struct pollfd *w)
{
    int n = 0;
    for (size_t i = 0; i < app->hosts; i++)
        n += host_watch(app->host[i], w + n);
    return n;
}

struct host *app_host_of(const struct app *app, const char *path)
{
    for (size_t i = 0; i < app->hosts; i++)
        if (host_owns(app->host[i], path))
            return app->host[i];
    return NULL;
}

const char *app_path_there(const struct app *app, const char *given)
{
    for (size_t i = 0; i < app->hosts; i++) {
        const char *name = host_info(app->host[i]).name;
        size_t n = strlen(name);
        const struct run_row *row = strncmp(given, name, n) == 0 && given[n] == ':'
                                        ? host_find(app->host[i], given + n + 1)
                                        : NULL;
        if (row)
            return row->path;
    }
    return NULL;
}

void app_runs_there(const struct app *app, void (*each)(void *ctx, const char *label), void *ctx)
{
    char label[HOST_NAME + 300];
    for (size_t i = 0; i < app->hosts; i++) {
        size_t n;
        const struct run_row *const *row = host_rows(app->host[i], &n);
        for (size_t k = 0; k < n; k++) {
            snprintf(label, sizeof label, "%s:%s", host_info(app->host[i]).name, row[k]->name);
            if (row[k]->is_kept)
                each(ctx, label);
        }
    }
}

struct host *const *app_hosts(struct app *app, size_t *n)
{
    *n = app->hosts;
    return app->host;
}

void app_close_hosts(struct app *app)
{
    while (app->hosts > 0)
        host_close(app->host[--app->hosts]);
}
