/* Keeps one row per run below a directory: lists it again cheaply, sorts and groups it. */
#include "io/runindex.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/map.h"
#include "base/mem.h"
#include "io/alert.h"
#include "io/host.h"
#include "io/runlog.h"

/* ---- columns ---- */

/* Where a column is read from: an enum run_number, or one of these. */
enum {
    FROM_NAME = RUN_NUMBERS,
    FROM_STATE,
    FROM_METHOD,
    FROM_PRESET,
    FROM_HOST,
    FROM_RUN_ID,
    FROM_PARENT,
    FROM_TAGS,
    FROM_NOTE,
    FROM_PROGRESS,
    FROM_AGE,
    FROM_FORMAT,
    FROM_ALERTS
};

const struct run_column run_columns[] = {
    // clang-format off
    {"state",       "state",    "live, paused, silent, done, stopped, failed, empty or trace", 0, FROM_STATE},
    {"name",        "name",     "name of the run",                               0, FROM_NAME},
    {"method",      "method",   "routing method",                                0, FROM_METHOD},
    {"preset",      "preset",   "presets that it was started from",              0, FROM_PRESET},
    {"progress",    "progress", "share of the planned steps, 0 to 1",            1, FROM_PROGRESS},
    {"step",        "step",     "newest step",                                   1, RUN_STEP},
    {"steps",       "steps",    "planned steps",                                 1, RUN_STEPS},
    {"val_loss",    "val loss", "newest validation loss, nats per token",        1, RUN_VAL_LOSS},
    {"loss",        "loss",     "newest training loss, nats per token",          1, RUN_LOSS},
    {"flops_ratio", "FLOPs",    "FLOPs relative to the dense model",             1, RUN_FLOPS_RATIO},
    {"time_ratio",  "time",     "measured time relative to the dense model",     1, RUN_TIME_RATIO},
    {"tok_s",       "tok/s",    "tokens per second of the newest step",          1, RUN_TOK_S},
    {"eta",         "ETA",      "seconds to the planned end of a live run",      1, RUN_ETA},
    {"age",         "age",      "seconds since the newest record",               1, FROM_AGE},
    {"host",        "host",     "host of the process that wrote it",             0, FROM_HOST},
    {"seed",        "seed",     "seed",                                          1, RUN_SEED},
    {"parent",      "parent",   "run that it was started from",                  0, FROM_PARENT},
    {"run_id",      "run id",   "id in its records and checkpoints",             0, FROM_RUN_ID},
    {"tag",         "tags",     "tags; = and != compare with each of them",      0, FROM_TAGS},
    {"note",        "note",     "note",                                          0, FROM_NOTE},
    {"format",      "format",   "log format of another program, empty for own runs", 0, FROM_FORMAT},
    {"alert",       "alert",    "alerts that hold, as in \"nan disk\": nan, loss, stall, layer, gpu, disk, other", 0, FROM_ALERTS},
    {.key = NULL},
    // clang-format on
};

const struct run_column *run_column_find(const char *key)
{
    /* what else the lists call them */
    static const char *const other[][2] = {{"tags", "tag"}, {"run", "name"}, {"newest", "age"}};
    for (size_t i = 0; i < DS_LEN(other); i++)
        if (strcmp(other[i][0], key) == 0)
            key = other[i][1];
    for (const struct run_column *c = run_columns; c->key; c++)
        if (strcmp(c->key, key) == 0 || strcmp(c->title, key) == 0)
            return c;
    return NULL;
}

double run_column_number(const struct run_row *row, const struct run_column *c, double now)
{
    if (c->from == FROM_AGE)
        return run_row_age(row, now);
    if (c->from == FROM_PROGRESS)
        return row->number[RUN_STEP] / row->number[RUN_STEPS];
    return c->from < RUN_NUMBERS ? row->number[c->from] : (double)NAN;
}

const char *run_column_text(const struct run_row *row, const struct run_column *c, double now,
                            char *out, size_t size)
{
    double x = run_column_number(row, c, now);
    out[0] = '\0';
    switch (c->from) {
    case FROM_NAME: str_copy(out, size, row->name); break;
    case FROM_STATE: str_copy(out, size, run_state_name(row->state)); break;
    case FROM_METHOD: str_copy(out, size, row->method); break;
    case FROM_PRESET: str_copy(out, size, row->preset); break;
    case FROM_HOST: str_copy(out, size, row->host); break;
    case FROM_RUN_ID: str_copy(out, size, row->run_id); break;
    case FROM_PARENT: str_copy(out, size, row->parent); break;
    case FROM_NOTE: str_copy(out, size, row->notes.note); break;
    case FROM_FORMAT: str_copy(out, size, row->format ? row->format : ""); break;
    case FROM_ALERTS: alert_names(row->alerts, out, size); break;
    case FROM_TAGS:
        for (int i = 0; i < row->notes.tags; i++)
            snprintf(out + strlen(out), size - strlen(out), "%s%s", i ? " " : "",
                     row->notes.tag[i]);
        break;
    default:
        if (isfinite(x)) /* a seed in full */
            snprintf(out, size, "%.*g", fabs(x) < 9e15 && x == floor(x) ? 16 : 9, x);
    }
    return out;
}

const char *run_row_text(struct run_row *row, const char *key, double now, char *out, size_t size)
{
    const struct run_column *c = run_column_find(key);
    const char *text = c ? NULL : run_row_config(row, key);
    if (c)
        return run_column_text(row, c, now, out, size);
    str_copy(out, size, text ? text : "");
    return out;
}

/* ---- order ---- */

struct key {
    struct run_row *row;
    size_t at; /* equal rows keep their order */
    double number;
    char *text;
    int is_missing, is_descending;
};

static int by_key(const void *a, const void *b)
{
    const struct key *x = a, *y = b;
    int order = x->is_missing - y->is_missing;
    if (order == 0 && !x->is_missing) {
        /* numbers, then text: as text some numbers would be on either side of it */
        int is_text = !isfinite(x->number), is_other_text = !isfinite(y->number);
        order = is_text != is_other_text ? is_text - is_other_text
                : is_text                ? strcmp(x->text, y->text)
                                         : (x->number > y->number) - (x->number < y->number);
        order = x->is_descending ? -order : order;
    }
    return order ? order : (x->at > y->at) - (x->at < y->at);
}

static double number_of(const char *text)
{
    char *end;
    double x = strtod(text, &end);
    return end != text && *end == '\0' ? x : (double)NAN;
}

static int is_known_key(const struct runindex *x, const char *key)
{
    if (run_column_find(key))
        return 1;
    for (size_t i = 0; i < x->n; i++)
        if (run_row_config(x->row[i], key))
            return 1;
    return x->n == 0;
}

static int unknown_key(const char *what, const char *key, struct err *e)
{
    struct nearest best = nearest_to(key);
    char hint[NEAREST_MAX + 32];
    for (const struct run_column *c = run_columns; c->key; c++)
        nearest_try(&best, c->key);
    return err_set(e, DS_EUSAGE, "%s %s: unknown column or configuration key%s", what, key,
                   nearest_hint(&best, hint, sizeof hint));
}

static void keys_release(struct key *k, size_t n)
{
    for (size_t i = 0; k && i < n; i++)
        mem_free(k[i].text);
    mem_free(k);
}

/* The sort keys of all rows; NULL when out of memory. */
static struct key *keys_of(struct runindex *x, const char *name, int is_descending, double now)
{
    const struct run_column *c = run_column_find(name);
    struct key *k = mem_alloc(x->n + 1, sizeof *k);
    for (size_t i = 0; k && i < x->n; i++) {
        char text[RUN_NOTE_MAX + 1];
        run_row_text(x->row[i], name, now, text, sizeof text);
        k[i] = (struct key){.row = x->row[i], .at = i, .is_descending = is_descending};
        k[i].number = c && c->is_number ? run_column_number(x->row[i], c, now)
                      : c               ? (double)NAN
                                        : number_of(text);
        k[i].text = mem_strdup(text);
        k[i].is_missing = !text[0];
        if (!k[i].text) {
            keys_release(k, i);
            return NULL;
        }
    }
    return k;
}

int runindex_sort(struct runindex *x, const char *by, double now, struct err *e)
{
    int is_descending = by[0] == '-';
    const char *name = by + is_descending;
    if (!is_known_key(x, name))
        return unknown_key("sort", name, e);
    struct key *k = keys_of(x, name, is_descending, now);
    if (!k)
        return err_set(e, DS_EMEM, "out of memory for sorting %zu runs", x->n);
    qsort(k, x->n, sizeof *k, by_key);
    for (size_t i = 0; i < x->n; i++)
        x->row[i] = k[i].row;
    keys_release(k, x->n);
    return 0;
}

int runindex_group(struct runindex *x, const char *key, double now, struct err *e)
{
    struct map seen = {0};
    int rc = 0;
    if (!is_known_key(x, key))
        return unknown_key("group", key, e);
    struct key *k = keys_of(x, key, 0, now);
    for (size_t i = 0; k && rc == 0 && i < x->n; i++) {
        int64_t group = (int64_t)i;
        if (!map_get(&seen, k[i].text, strlen(k[i].text), &group))
            rc = map_set(&seen, k[i].text, strlen(k[i].text), group);
        k[i].number = (double)group;
        k[i].is_missing = 0;
    }
    if (!k || rc < 0) {
        keys_release(k, x->n);
        map_release(&seen);
        return err_set(e, DS_EMEM, "out of memory for grouping %zu runs", x->n);
    }
    qsort(k, x->n, sizeof *k, by_key);
    for (size_t i = 0; i < x->n; i++)
        x->row[i] = k[i].row;
    keys_release(k, x->n);
    map_release(&seen);
    return 0;
}

static int is_running(const struct run_row *r)
{
    return r->state == RUN_LIVE || r->state == RUN_PAUSED;
}

static int by_newest(const void *a, const void *b)
{
    const struct run_row *x = *(struct run_row *const *)a, *y = *(struct run_row *const *)b;
    if (is_running(x) != is_running(y))
        return is_running(y) - is_running(x);
    return x->modified != y->modified ? (x->modified < y->modified) - (x->modified > y->modified)
                                      : strcmp(x->name, y->name);
}

/* ---- the directory ---- */

static int same_time(const struct timespec *a, const struct timespec *b)
{
    return a->tv_sec == b->tv_sec && a->tv_nsec == b->tv_nsec;
}

/* Neither the log nor the directory changed.  A resume makes a socket in the directory before it
 * writes, so an idle run needs no look at its lock. */
static int is_unchanged(struct run_row *r, size_t poll_bytes)
{
    char log[1100];
    struct stat st, dir;
    if (r->follow) /* read on in place; one whose files are gone is listed anew, and not found */
        return fs_exists(r->path) && (run_row_poll(r, poll_bytes), 1);
    if (fs_join(log, sizeof log, r->path, "log.mp", NULL) < 0 || fs_stat(r->path, &dir) != 0 ||
        !same_time(&dir.st_mtim, &r->seen.dir))
        return 0;
    if (fs_stat(log, &st) != 0)
        return r->seen.inode == 0;
    return (uint64_t)st.st_size == r->seen.size && (uint64_t)st.st_ino == r->seen.inode &&
           same_time(&st.st_mtim, &r->seen.log);
}

/* The state of an unchanged run that was live: its process may have ended, or it fell silent. */
static void look_again(struct run_row *r)
{
    char log[1100];
    if (r->follow || (!is_running(r) && r->state != RUN_EMPTY))
        return;
    if (r->seen.inode == 0 || fs_join(log, sizeof log, r->path, "log.mp", NULL) < 0)
        return;
    r->is_live = runlog_is_locked(log);
    r->state = run_phase_state(&r->phase, r->is_live, clock_wall());
    if (r->state != RUN_LIVE)
        r->number[RUN_ETA] = (double)NAN;
}

static void free_row(struct run_row *r)
{
    if (r)
        run_row_release(r);
    mem_free(r);
}

/* FOLDER_MAX: of one folder, or a large one would keep those behind it from being listed. */
enum { LOOKS_MAX = 4096, FOLDER_MAX = 1024, DEPTH_MAX = 3 };

/* A list in the making. */
struct listing {
    struct runindex *x;
    struct map old;  /* path -> index of the old row */
    struct map seen; /* paths in the list: folders may be given twice, or one in another */
    struct run_row **row;
    size_t n, cap, looks;
};

static int add_row(struct listing *l, struct run_row *r, struct err *e)
{
    void *p = l->row;
    int rc = mem_grow(&p, &l->cap, l->n + 1, sizeof *l->row);
    l->row = p; /* it may have moved even when the next line fails */
    if (rc < 0 || map_set(&l->seen, r->path, strlen(r->path), 1) < 0)
        return err_set(e, DS_EMEM, "out of memory for the list of runs");
    l->row[l->n++] = r;
    return 0;
}

/* Could a file be a log by its name?  Only such are opened when a folder is listed. */
static int looks_like_log(const char *name)
{
    static const char *const ending[] = {".jsonl", ".ndjson", ".csv",   ".tsv",  ".log",
                                         ".out",   ".txt",    ".wandb", ".json", NULL};
    const char *dot = strrchr(name, '.');
    for (int i = 0; dot && ending[i]; i++)
        if (strcmp(dot, ending[i]) == 0)
            return 1;
    return strstr(name, "tfevents") != NULL;
}

/* "latest-run" next to the run it leads to, or a way back up. */
static int is_inner_link(const char *root, const char *path)
{
    struct stat st;
    char to[4096], from[4096];
    if (fs_lstat(path, &st) != 0 || !S_ISLNK(st.st_mode) || !realpath(path, to) ||
        !realpath(root, from))
        return 0;
    size_t n = strlen(from), m = strlen(to);
    return (strncmp(to, from, n) == 0 && to[n] == '/') ||
           (strncmp(from, to, m) == 0 && (from[m] == '/' || from[m] == '\0' || m == 1));
}

/* Changes whenever the file does. */
static int64_t stamp_of(const char *path)
{
    struct stat st;
    if (fs_stat(path, &st) != 0)
        return 0;
    return (int64_t)((uint64_t)st.st_mtim.tv_sec * 1000000007U + (uint64_t)st.st_mtim.tv_nsec +
                     (uint64_t)st.st_size * 31);
}

static int list_folder(struct listing *l, const char *root, const char *below, int depth,
                       int is_run, struct err *e);

static int list_below(struct listing *l, const char *root, const char *path, const char *name,
                      int depth, int is_run, struct err *e)
{
    return depth != 0 && fs_is_dir(path)
               ? list_folder(l, root, name, depth < 0 ? DEPTH_MAX : depth - 1, is_run, e)
               : 0;
}

/* One run, or a folder below which there may be some; `name` is its path below root. */
static int take_path(struct listing *l, const char *root, const char *path, const char *name,
                     int depth, struct err *e)
{
    int64_t at;
    int is_dir;
    if (map_get(&l->seen, path, strlen(path), &at))
        return 0;
    if (map_get(&l->old, path, strlen(path), &at) &&
        is_unchanged(l->x->row[at], l->x->poll_bytes)) {
        struct run_row *r = l->x->row[at];
        int rc = 0;
        r->is_kept = 1;
        look_again(r);
        rc = add_row(l, r, e);
        return rc == 0 && r->is_nested ? list_below(l, root, path, name, depth, 1, e) : rc;
    }
    is_dir = fs_is_dir(path);
    int64_t stamp = is_dir ? 0 : stamp_of(path);
    if (!is_dir && ((depth >= 0 && !looks_like_log(name)) ||
                    (map_get(&l->x->barren, path, strlen(path), &at) && at == stamp)))
        return 0;
    if (!is_dir && ++l->looks > LOOKS_MAX) {
        l->x->is_cut = 1;
        return 0;
    }
    struct run_row *r = mem_alloc(1, sizeof *r);
    if (!r)
        return err_set(e, DS_EMEM, "out of memory for the runs under %s", root);
    int rc = run_row_read_some(r, path, l->x->poll_bytes, NULL);
    l->x->rows_read++;
    l->x->bytes_read += r->bytes_read;
    if (rc == DS_ENOTFOUND || rc == DS_EMEM || (is_dir && !fs_is_dir(path)) ||
        (!is_dir && !r->follow && r->phase.records == 0)) {
        free_row(r);
        if (rc == DS_EMEM || (!is_dir && map_set(&l->x->barren, path, strlen(path), stamp) < 0))
            return err_set(e, DS_EMEM, "out of memory for run %s", path);
        return list_below(l, root, path, name, depth, 0, e);
    }
    if (name[0])
        str_copy(r->name, sizeof r->name, name);
    rc = add_row(l, r, e); /* unreadable ones show as empty */
    if (rc < 0)
        free_row(r);
    return rc == 0 && r->is_nested ? list_below(l, root, path, name, depth, 1, e) : rc;
}

/* is_run: the folder is a run itself, whose files are known. */
static int list_folder(struct listing *l, const char *root, const char *below, int depth,
                       int is_run, struct err *e)
{
    char dir[1024], **names = NULL;
    size_t count = 0, own = 0;
    if (!below[0] && str_copy(dir, sizeof dir, root))
        return err_set(e, DS_ERANGE, "%s: path too long, expected at most %zu bytes", root,
                       sizeof dir - 1);
    if (below[0] && fs_join(dir, sizeof dir, root, below, NULL) < 0) {
        l->x->is_cut = 1;
        return 0;
    }
    int rc = fs_is_dir(dir) ? fs_list(dir, &names, &count, below[0] ? NULL : e) : 0;
    if (rc < 0)
        return below[0] ? 0 : rc;
    for (size_t i = 0; rc == 0 && i < count; i++) {
        char path[1024], name[256];
        if (names[i][0] == '.')
            continue; /* not a run's name, but that of one which is not finished, or the trash */
        if (fs_join(path, sizeof path, dir, names[i], NULL) < 0 ||
            (below[0] ? fs_join(name, sizeof name, below, names[i], NULL)
                      : str_copy(name, sizeof name, names[i])) != 0) {
            l->x->is_cut = 1;
            continue;
        }
        if ((below[0] || looks_like_log(name)) && ++own > FOLDER_MAX) {
            l->x->is_cut = 1;
            continue;
        }
        if (below[0] && ++l->looks > LOOKS_MAX) {
            l->x->is_cut = 1;
            break;
        }
        if (!is_inner_link(root, path) && (!is_run || fs_is_dir(path)))
            rc = take_path(l, root, path, name, depth, e);
    }
    fs_list_free(names, count);
    return rc;
}

/* A host's rows are few bytes each and change all the time: they are copied anew. */
static int list_host(struct listing *l, const struct host *h, struct err *e)
{
    size_t n;
    const struct run_row *const *row = host_rows(h, &n);
    for (size_t i = 0; i < n; i++) {
        if (!row[i]->is_kept)
            continue;
        struct run_row *r = mem_alloc(1, sizeof *r);
        if (!r)
            return err_set(e, DS_EMEM, "out of memory for the list of runs");
        *r = *row[i];
        r->is_kept = 0;
        int rc = add_row(l, r, e);
        if (rc < 0) {
            free_row(r);
            return rc;
        }
    }
    return 0;
}

int runindex_refresh(struct runindex *x, const char *root, struct err *e)
{
    struct listing l = {.x = x};
    int rc = 0;
    x->rows_read = x->bytes_read = 0;
    x->is_cut = 0;
    for (size_t i = 0; rc == 0 && i < x->n; i++)
        if (map_set(&l.old, x->row[i]->path, strlen(x->row[i]->path), (int64_t)i) < 0)
            rc = err_set(e, DS_EMEM, "out of memory for the list of runs");
    if (rc == 0 && root)
        rc = list_folder(&l, root, "", DEPTH_MAX, 0, e);
    for (size_t i = 0; rc == 0 && i < x->alsos; i++)
        rc = take_path(&l, x->also[i], x->also[i], "", -1, e);
    for (size_t i = 0; rc == 0 && i < x->hosts; i++)
        rc = list_host(&l, x->host[i], e);
    map_release(&l.seen);
    map_release(&l.old);
    if (rc < 0) {
        for (size_t i = 0; i < l.n; i++)
            if (!l.row[i]->is_kept)
                free_row(l.row[i]);
        mem_free(l.row);
    } else {
        for (size_t i = 0; i < x->n; i++)
            if (!x->row[i]->is_kept)
                free_row(x->row[i]);
        mem_free(x->row);
        if (l.n > 1)
            qsort(l.row, l.n, sizeof *l.row, by_newest);
        x->row = l.row;
        x->n = l.n;
    }
    for (size_t i = 0; i < x->n; i++)
        x->row[i]->is_kept = 0;
    return rc;
}

void runindex_release(struct runindex *x)
{
    for (size_t i = 0; i < x->n; i++)
        free_row(x->row[i]);
    mem_free(x->row);
    map_release(&x->barren);
    *x = (struct runindex){0};
}

int runindex_is_behind(const struct runindex *x)
{
    for (size_t i = 0; i < x->n; i++)
        if (x->row[i]->is_behind)
            return 1;
    return 0;
}

struct run_row *runindex_find(const struct runindex *x, const char *name)
{
    for (size_t i = 0; i < x->n; i++)
        if (strcmp(x->row[i]->name, name) == 0 || strcmp(x->row[i]->path, name) == 0)
            return x->row[i];
    return NULL;
}

const char *run_row_place(const struct run_row *row, char *out, size_t size)
{
    if (row->remote)
        snprintf(out, size, "%s:%s", row->remote, row->name);
    else
        str_copy(out, size, row->path);
    return out;
}
