/* The model of the views that run one, and views of single records. */
#include "tui/worker.h"

#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "io/host.h"

int64_t worker_newest_checkpoint(const char *dir, char *path, size_t size)
{
    char root[1024], **names = NULL;
    size_t n = 0;
    int64_t best = -1;
    if (fs_join(root, sizeof root, dir, "checkpoints", NULL) < 0 || !fs_is_dir(root) ||
        fs_list(root, &names, &n, NULL) < 0)
        return -1;
    for (size_t i = 0; i < n; i++) {
        char *end;
        if (strncmp(names[i], "step-", 5) != 0)
            continue;
        long long step = strtoll(names[i] + 5, &end, 10);
        if (*end || step <= best || fs_join(path, size, root, names[i], NULL) < 0)
            continue; /* a temporary or an older one */
        best = step;
    }
    fs_list_free(names, n);
    return best;
}

int64_t worker_best_checkpoint(const char *dir)
{
    char path[1100];
    struct json *j = NULL;
    int64_t step = -1;
    if (fs_join(path, sizeof path, dir, "best.json", NULL) == 0 && fs_exists(path) &&
        json_read_file(&j, path, 1 << 16, NULL) == 0)
        step = json_int(json_get(json_root(j), "step"), -1);
    json_free(j);
    return step;
}

const struct open_run *worker_run(struct app *app)
{
    size_t n, at;
    const struct open_run *all = app_runs(app, &n, &at);
    return n ? &all[at] : NULL;
}

int worker_find_model(struct app *app, const char *given, int is_newest, char *path, size_t size,
                      int64_t *newest, char *why, size_t why_size)
{
    const struct open_run *r = worker_run(app);
    *newest = -1;
    if (given[0])
        return !str_copy(path, size, given);
    if (!r) {
        str_copy(why, why_size,
                 "no run is open; open one in Home (1), or load a model with :model PATH");
        return 0;
    }
    if (!r->dir[0]) {
        str_copy(why, why_size, "a log or trace has no weights; load a model with :model PATH");
        return 0;
    }
    if (worker_model(r->dir, path, size) == path)
        return 1; /* a run on a host: its model stays there */
    *newest = worker_newest_checkpoint(r->dir, path, size);
    if (*newest < 0) {
        const char *every = runview_config(r->view, "train.checkpoint_every");
        snprintf(why, why_size, "no checkpoint yet%s%.12s",
                 every ? "; the first is written at step " : "", every ? every : "");
        return 0;
    }
    if (!is_newest)
        str_copy(path, size, r->dir); /* the path of a run means its best checkpoint */
    return 1;
}

int worker_next(struct app *app, struct session *s, struct value *body, struct err *e)
{
    double end = clock_mono() + 60;
    int rc = session_next(s, body, e);
    while (rc == 0 && app_is_scripted(app) && session_busy(s) && session_fd(s) >= 0 &&
           clock_mono() < end) {
        struct pollfd p = {.fd = session_fd(s), .events = POLLIN};
        poll(&p, 1, 100);
        rc = session_next(s, body, e);
    }
    return rc;
}

const char *worker_title(struct app *app, const char *path)
{
    const struct open_run *r = worker_run(app);
    size_t n = r ? strlen(r->dir) : 0;
    int is_hosts = n > 0 && strncmp(path, r->dir, n) == 0 && strcmp(path + n, "/serve.sock") == 0;
    return is_hosts ? r->view->name : worker_name(path);
}

struct host *worker_host(struct app *app, const char *path)
{
    size_t n;
    struct host *const *host = app_hosts(app, &n);
    for (size_t i = 0; i < n; i++)
        if (host_owns(host[i], path))
            return host[i];
    return NULL;
}

const char *worker_latency(struct app *app, const char *path, char out[24])
{
    struct host *h = worker_host(app, path);
    struct host_info x = {0};
    out[0] = '\0';
    if (h)
        x = host_info(h);
    if (h && x.state != HOST_UP)
        snprintf(out, 24, "  %s", host_state_name(x.state));
    else if (h && isfinite(x.latency_s))
        snprintf(out, 24, "  %.0f ms", x.latency_s * 1e3);
    return out;
}

const char *worker_model(const char *path, char *room, size_t size)
{
    return fs_join(room, size, path, "serve.sock", NULL) == 0 && fs_is_socket(room) ? room : path;
}

const char *worker_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash && slash[1] ? slash + 1 : path;
}

const char *worker_file_name(struct app *app, const char *path, char *out, size_t size)
{
    snprintf(out, size, "%.80s",
             worker_host(app, path) ? worker_title(app, path) : worker_name(path));
    for (char *p = out; *p && worker_host(app, path); p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-", *p))
            *p = '-';
    return out;
}

void worker_replace(struct runview **r, struct value body)
{
    struct runview *fresh = runview_new();
    if (!fresh)
        return;
    runview_take(fresh, body);
    runview_free(*r);
    *r = fresh;
}

void worker_replace_by(struct runview **r, struct record *record)
{
    struct str frame = {0};
    struct value body;
    uint64_t seq;
    if (record_end(record, 1, &frame, NULL) == 0 &&
        record_parse(frame.p, frame.len, &seq, &body, NULL) > 0)
        worker_replace(r, body);
    str_release(&frame);
}

const struct probe *worker_probe(const struct runview *r)
{
    const struct probe *p = r ? runview_probe(r, -1) : NULL;
    return p && p->tokens > 0 && p->layers > 0 ? p : NULL;
}
