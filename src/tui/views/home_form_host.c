/* The form of a new run on another machine: the row "host", what is known of presets there, and the start.
 * The settings are checked there, whose files and presets are others. */
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "tui/form.h"

static const double listed_s = 5; /* within which the list there has a run that has begun */

struct host *form_host(const struct form *f)
{
    return f->there > 0 && f->there <= f->hosts ? f->host[f->there - 1] : NULL;
}

/* 0: this machine. */
const char *form_host_label(const struct form *f, size_t k, char *out, size_t size)
{
    if (k == 0)
        return "here";
    const struct host_info x = host_info(f->host[k - 1]);
    snprintf(out, size, "%s%s%s", x.name, x.root[0] ? ":" : "", x.root);
    return out;
}

void form_set_host(struct form *f, size_t k)
{
    char text[sizeof f->where];
    f->there = k;
    str_copy(f->where, sizeof f->where, form_host_label(f, k, text, sizeof text));
}

size_t form_host_first(const struct form *f, struct view *v)
{
    const char *also[APP_ALSO_MAX];
    size_t n;
    if (app_home(v->app, also, &n))
        return 0;
    for (size_t k = 1; k <= f->hosts; k++)
        if (host_info(f->host[k - 1]).state == HOST_UP)
            return k;
    return f->hosts > 0;
}

size_t form_host_of(const struct form *f, const char *path)
{
    for (size_t k = 1; k <= f->hosts; k++)
        if (host_owns(f->host[k - 1], path))
            return k;
    return 0;
}

const char *form_setting_there(struct view *v, const char *path, const char *key)
{
    size_t n, at;
    const struct open_run *all = app_runs(v->app, &n, &at);
    for (size_t i = 0; i < n; i++)
        if (strcmp(all[i].path, path) == 0)
            return runview_config(all[i].view, key);
    return NULL;
}

int form_host_find(const struct form *f, const char *text, size_t *k, struct err *e)
{
    char room[sizeof f->where];
    for (*k = 0; *k <= f->hosts; ++*k)
        if (strcmp(form_host_label(f, *k, room, sizeof room), text) == 0)
            return 0;
    return err_set(e, DS_EUSAGE, "host: expected here or an open host, not %.80s", text);
}

int form_check_name_there(const struct form *f, const char *name, struct err *e)
{
    struct host *h = form_host(f);
    if (!fs_name_ok(name))
        return err_set(e, DS_EUSAGE,
                       "name: expected 1 to 64 of [A-Za-z0-9._-], not starting with . or -");
    return host_find(h, name) ? err_set(e, DS_EEXIST, "name: %s:%s exists", host_info(h).name, name)
                              : 0;
}

/* One of the names that the host has sent. */
static int has_preset(const char *all, const char *name)
{
    size_t n = strlen(name);
    for (const char *p = strstr(all, name); p; p = strstr(p + 1, name))
        if ((p == all || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return 1;
    return 0;
}

int form_check_presets_there(const struct form *f, const char *presets, struct err *e)
{
    const struct host_info x = host_info(form_host(f));
    const char *word[FORM_PRESETS_MAX];
    char text[sizeof f->preset];
    if (str_copy(text, sizeof text, presets))
        return err_set(e, DS_ERANGE, "preset: too long");
    size_t n = job_split_words(text, word, FORM_PRESETS_MAX);
    for (size_t i = 0; i < n; i++) {
        size_t len = strlen(word[i]);
        int is_file = len > 5 && strcmp(word[i] + len - 5, ".yaml") == 0;
        if (x.presets[0] && !is_file && !has_preset(x.presets, word[i]))
            return err_set(e, DS_EUSAGE, "preset: unknown preset %.80s on %s", word[i], x.name);
    }
    return n > 0 ? 0 : err_set(e, DS_EUSAGE, "preset: expected a name");
}

/* ---- starting ---- */

int form_start_there(struct form *f, struct view *v, const char *const *setting, size_t n,
                     struct err *e)
{
    struct host *h = form_host(f);
    int rc = f->name[0] ? form_check_name_there(f, f->name, e) : 0;
    if (rc < 0)
        return rc;
    int64_t id = host_start(h, f->name, f->preset, setting, n, e);
    if (id < 0)
        return (int)id;
    f->launch = (struct job_launch){.fd = -1};
    snprintf(f->launch.name, sizeof f->launch.name, "%.64s", f->name[0] ? f->name : f->preset);
    f->asked = id;
    f->begun = 0;
    app_notify(v->app, LOG_INFO, "run %s is starting on %s", f->launch.name, host_info(h).name);
    return 0;
}

enum launch_state form_state_there(struct form *f, char *words, size_t size)
{
    struct host *h = form_host(f);
    struct str text = {0};
    struct err e = {0};
    words[0] = '\0';
    int rc = f->begun > 0 ? 1 : host_answer(h, f->asked, &text, &e);
    if (rc > 0 && !(f->begun > 0)) {
        snprintf(f->launch.name, sizeof f->launch.name, "%.64s", str_text(&text));
        f->begun = clock_mono();
    }
    str_release(&text);
    if (rc < 0)
        str_copy(words, size, e.text);
    if (rc <= 0)
        return rc < 0 ? LAUNCH_FAILED : LAUNCH_STARTING;
    const struct run_row *row = host_find(h, f->launch.name);
    str_copy(f->launch.dir, sizeof f->launch.dir, row ? row->path : "");
    return row || clock_mono() > f->begun + listed_s ? LAUNCH_RUNS : LAUNCH_STARTING;
}

void form_forget_there(struct form *f)
{
    struct host *h = form_host(f);
    if (h && f->asked && !(f->begun > 0))
        host_forget(h, f->asked);
    f->asked = 0;
}
