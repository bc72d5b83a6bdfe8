/* The items of Home's list: runs by filter, order and group, presets, and the models and traces of
 * the current directory. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "io/filekind.h"
#include "io/record.h"
#include "training/job.h"
#include "tui/home.h"

enum { FIRST_BYTES = 32 };

/* ---- items ---- */

static struct home_item *add_item(struct home *h, enum home_kind kind)
{
    void *p = h->item;
    if (mem_grow(&p, &h->cap, h->items + 1, sizeof *h->item) < 0)
        return NULL;
    h->item = p;
    h->item[h->items] = (struct home_item){.kind = kind};
    return &h->item[h->items++];
}

static void add_heading(struct home *h, const char *text)
{
    struct home_item *i = add_item(h, HOME_HEADING);
    if (i)
        str_copy(i->text, sizeof i->text, text);
}

static void add_runs(struct view *v)
{
    struct home *h = v->state;
    const char *key = home_group_key(h);
    double now = app_now(v->app);
    char group[RUN_NOTE_MAX + 1], last[RUN_NOTE_MAX + 1] = "", shown[51], text[120];
    size_t heading = 0, members = 0;
    for (size_t i = 0; i < h->index.n; i++) {
        struct run_row *r = h->index.row[i];
        if (!runquery_match(&h->query, r, now))
            continue;
        if (key[0]) {
            run_row_text(r, key, now, group, sizeof group);
            if (members == 0 || strcmp(group, last) != 0) {
                heading = h->items;
                members = 0;
                add_heading(h, "");
                str_copy(last, sizeof last, group);
            }
            members++;
            if (str_copy(shown, sizeof shown, group[0] ? group : "-"))
                shown[utf8_valid(shown, strlen(shown))] = '\0'; /* whole characters */
            snprintf(text, sizeof text, "%.40s = %s (%zu)", key, shown, members);
            if (heading < h->items)
                str_copy(h->item[heading].text, sizeof h->item[heading].text, text);
        }
        struct home_item *item = add_item(h, HOME_RUN);
        if (item)
            item->row = r;
    }
}

/* A heading is never selected. */
void home_skip_headings(struct home *h, int by)
{
    while (h->list.cursor < h->items && h->item[h->list.cursor].kind == HOME_HEADING) {
        if (by < 0 && h->list.cursor == 0)
            by = 1;
        h->list.cursor += (size_t)(by < 0 ? -1 : 1);
    }
    if (h->list.cursor >= h->items && h->items)
        h->list.cursor = h->items - 1;
}

static size_t find_item(const struct home *h, const struct home_item *like, const char *path)
{
    for (size_t i = 0; i < h->items; i++)
        if (h->item[i].kind == like->kind &&
            (like->kind == HOME_RUN ? strcmp(h->item[i].row->path, path) == 0
                                    : h->item[i].at == like->at))
            return i;
    return h->items;
}

/* Items of the index as it is; the cursor stays on the same one where that is still shown. */
static void make_items(struct view *v, const struct home_item *old, const char *path)
{
    struct home *h = v->state;
    h->items = 0;
    add_runs(v);
    size_t presets = h->query.n ? 0 : h->presets; /* a filter is about runs */
    if (presets)
        add_heading(h, "presets: Enter or a starts a run");
    for (size_t i = 0; i < presets; i++) {
        struct home_item *item = add_item(h, HOME_PRESET);
        if (item)
            item->at = i;
    }
    size_t files = h->query.n ? 0 : h->files;
    if (files)
        add_heading(h, "models and traces here: Enter opens");
    for (size_t i = 0; i < files; i++) {
        struct home_item *item = add_item(h, HOME_FILE);
        if (item)
            item->at = i;
    }
    const int ordered[] = {h->sort, h->is_descending, h->group};
    memcpy(h->ordered, ordered, sizeof ordered);
    size_t at = old->kind == HOME_HEADING ? h->items : find_item(h, old, path);
    if (at < h->items)
        h->list.cursor = at;
    else if (old->kind == HOME_RUN || h->is_filtering)
        h->list.cursor = 0;
    home_skip_headings(h, 1);
    v->is_dirty = 1;
}

/* The selected item, and the path of its run, which the index may release. */
static struct home_item selected(const struct home *h, char path[1024])
{
    struct home_item i =
        h->list.cursor < h->items ? h->item[h->list.cursor] : (struct home_item){HOME_HEADING};
    str_copy(path, 1024, i.kind == HOME_RUN ? i.row->path : "");
    return i;
}

static void order(struct view *v)
{
    struct home *h = v->state;
    char key[CONFIG_KEY_MAX + 2];
    const char *group = home_group_key(h);
    struct err e = {0};
    if (!home_sort_key(h, key, sizeof key)[0]) {
        h->sort = 0; /* also for a key that was typed in an earlier session */
    } else if (runindex_sort(&h->index, key, app_now(v->app), &e) < 0) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        h->sort = 0;
    }
    e = (struct err){0};
    if (!group[0]) {
        h->group = 0;
    } else if (runindex_group(&h->index, group, app_now(v->app), &e) < 0) {
        app_notify(v->app, LOG_ERROR, "%s", e.text);
        h->group = 0;
    }
}

/* The list is there at once, however long another program's logs are; they are read on bit by bit. */
static const size_t poll_bytes = 8 << 20;

/* Reads the directory, and orders; without an order live ones are first. */
static void refresh(struct view *v)
{
    struct home *h = v->state;
    struct err e = {0};
    const char *also[APP_ALSO_MAX], *root = app_home(v->app, also, &h->index.alsos);
    h->index.also = also;
    h->index.host = app_hosts(v->app, &h->index.hosts);
    h->index.poll_bytes = app_is_scripted(v->app) ? 0 : poll_bytes;
    h->error[0] = '\0';
    if (runindex_refresh(&h->index, root, &e) < 0)
        str_copy(h->error, sizeof h->error, e.text);
    else if (h->index.is_cut)
        str_copy(h->error, sizeof h->error,
                 "too many files to look at, or too long a path; some runs or logs are not listed");
    if (batch_list_refresh(&h->batches, root, &h->index, &e) < 0)
        str_copy(h->error, sizeof h->error, e.text);
    h->index.also = NULL;
    h->index.host = NULL;
    h->index.alsos = h->index.hosts = 0;
    app_alerts_rows(v->app, h->index.row, h->index.n);
    order(v);
}

void home_rebuild(struct view *v)
{
    char path[1024];
    struct home_item old = selected(v->state, path);
    refresh(v);
    make_items(v, &old, path);
}

/* ---- models and traces of the current directory ---- */

/* What a file is by its first bytes; "" when Home does not open it. */
static void describe_file(struct home_file *f)
{
    unsigned char first[FIRST_BYTES];
    size_t n = 0;
    int fd = -1;
    char path[300];
    snprintf(path, sizeof path, "%s/config.json", f->name);
    f->what[0] = '\0';
    if (fs_is_dir(f->name)) {
        char log[300];
        snprintf(log, sizeof log, "%s/log.mp", f->name);
        if (fs_exists(path) && !fs_exists(log))
            str_copy(f->what, sizeof f->what, "model directory");
        return;
    }
    const char *end = strrchr(f->name, '.');
    if (!end || (strcmp(end, ".mp") != 0 && strcmp(end, ".gguf") != 0 && strcmp(end, ".bin") != 0))
        return;
    if (fs_open_read(&fd, f->name, NULL) < 0)
        return;
    if (fs_read_some(fd, first, sizeof first, &n, f->name, NULL) < 0)
        n = 0;
    fs_close(fd);
    const char *kind = file_kind(first, n);
    if (record_length(first, n) > 0)
        str_copy(f->what, sizeof f->what, "records: a trace or a log");
    else if (kind && strstr(kind, "GGUF file") && strstr(kind, "pre-GGUF") == NULL)
        str_copy(f->what, sizeof f->what, "GGUF model");
    else if (!kind && strcmp(end, ".bin") == 0 && n == sizeof first)
        str_copy(f->what, sizeof f->what, "llama2.c model");
}

static void find_files(struct home *h)
{
    char **names = NULL;
    size_t n = 0;
    h->files = 0;
    if (fs_list(".", &names, &n, NULL) < 0)
        return;
    for (size_t i = 0; i < n && i < 2000 && h->files < HOME_FILES_MAX; i++) {
        struct home_file *f = &h->file[h->files];
        if (names[i][0] == '.' || str_copy(f->name, sizeof f->name, names[i]))
            continue;
        describe_file(f);
        h->files += f->what[0] != '\0';
    }
    fs_list_free(names, n);
}

/* ---- life ---- */

static void find_presets(struct home *h)
{
    if (job_presets(&h->preset, &h->presets, NULL) < 0)
        h->presets = 0;
    h->fact = mem_alloc(h->presets + 1, sizeof *h->fact);
    for (size_t i = 0; h->fact && i < h->presets; i++)
        if (job_preset_read(&h->fact[i], h->preset[i], NULL) < 0)
            h->fact[i] = (struct job_preset){.about = "not readable"};
    if (!h->fact)
        h->presets = 0;
}

/* The utilisation that the newest run of this host reached, for estimates of time. */
static void find_utilisation(struct home *h)
{
    char host[65] = "";
    double newest = 0;
    gethostname(host, sizeof host - 1);
    h->mfu = (double)NAN;
    for (size_t i = 0; i < h->index.n; i++) {
        const struct run_row *r = h->index.row[i];
        if (r->number[RUN_MFU] > 0.001 && r->number[RUN_MFU] <= 1 && r->modified > newest &&
            strcmp(r->host, host) == 0) {
            newest = r->modified;
            h->mfu = r->number[RUN_MFU];
        }
    }
}

void home_load(struct view *v)
{
    struct home *h = v->state;
    char path[1024];
    struct home_item old = selected(h, path);
    if (!h->preset)
        find_presets(h);
    refresh(v);
    find_files(h);
    find_utilisation(h);
    make_items(v, &old, path);
    h->listed = app_now(v->app);
}
