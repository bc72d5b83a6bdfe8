/* Run views: opening, following and look-up. */
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/foreign_files.h"
#include "io/runlog.h"
#include "io/runview_parts.h"

static const double lock_period_s = 0.5;
static const double catch_up_s = 2, live_s = 15;

struct runview *runview_new(void)
{
    struct runview *v = mem_alloc(1, sizeof *v);
    struct runview_index *x = mem_alloc(1, sizeof *x);
    if (!v || !x) {
        mem_free(v);
        mem_free(x);
        return NULL;
    }
    v->index = x;
    v->path = mem_strdup("");
    v->name = mem_strdup("");
    runview_clear(v);
    x->opened = clock_mono();
    if (!v->path || !v->name || x->is_failed) {
        runview_free(v);
        return NULL;
    }
    return v;
}

void runview_free(struct runview *v)
{
    if (!v)
        return;
    runview_clear(v);
    runview_head_release(v);
    mem_free(v->path);
    mem_free(v->name);
    runlog_reader_close(v->reader);
    mem_free(v->index);
    mem_free(v);
}

/* ---- state
 * ---------------------------------------------------------------------------------------- */

static int is_locked(struct runview *v)
{
    struct runview_index *x = v->index;
    double now = clock_mono();
    if (x->lock_asked < 0 || now - x->lock_asked >= lock_period_s) {
        x->is_locked = runlog_is_locked(v->path);
        x->lock_asked = now;
    }
    return x->is_locked;
}

double runview_age(const struct runview *v, double now)
{
    double last = v->last_time > 0 ? v->last_time - v->skew : v->last_time;
    double then = v->index->heard > last ? v->index->heard : last;
    return !(then > 0) || isnan(now) ? (double)NAN : now > then ? now - then : 0;
}

/* Not every program logs times: then the file's change or the pipe's bytes are the newest. */
static struct run_phase phase_now(const struct runview *v)
{
    struct run_phase now = v->index->phase;
    double modified = runlog_reader_modified(v->reader);
    if (modified > now.last_time)
        now.last_time = modified;
    return now;
}

/* A pipe is live while records arrive; its clock may be another host's. */
static enum run_state pipe_state(const struct runview *v)
{
    struct run_phase now = phase_now(v), *p = &now;
    enum run_state state = run_phase_state(p, 0, clock_wall());
    int is_waiting = p->records == 0 && clock_mono() - v->index->opened < live_s;
    int is_heard = v->index->heard > 0 && clock_wall() - v->index->heard < live_s;
    if (runlog_reader_at_end(v->reader))
        return state == RUN_SILENT || state == RUN_LIVE || state == RUN_PAUSED ? RUN_ENDED : state;
    if (p->is_paused || is_waiting || is_heard)
        return run_phase_state(p, 1, 0);
    return state;
}

/* Bytes that a pipe brings at once may be old; those after them are heard as they are written. */
static void note_heard(struct runview *v, int is_news)
{
    struct stat st;
    struct runview_index *x = v->index;
    if (runlog_reader_fd(v->reader) >= 0) {
        if (is_news && clock_mono() - x->opened > catch_up_s)
            x->heard = clock_wall();
    } else if (!(v->last_time > 0) && v->records > 0 && fs_stat(v->path, &st) == 0) {
        x->heard = (double)st.st_mtim.tv_sec;
    }
}

static enum run_state state_of(struct runview *v)
{
    const struct run_phase *p = &v->index->phase;
    if (runlog_reader_fd(v->reader) >= 0)
        return pipe_state(v);
    if (runview_foreign(v)) { /* nobody holds a lock: it lives while its files change */
        struct run_phase now = phase_now(v);
        return run_phase_state(&now, 0, clock_wall());
    }
    return run_phase_state(p, !p->has_end && is_locked(v), clock_wall() + v->skew);
}

/* ---- following
 * -------------------------------------------------------------------------------------- */

static void note_gap(struct runview *v, const struct runlog_entry *entry)
{
    char text[120];
    if (entry->is_reset) {
        runview_clear(v);
        if (!entry->is_rewrite && !v->is_copy)
            runview_event_add(v, 0, (double)NAN, LOG_WARN, "reset",
                              "the file was replaced or truncated; reading it again");
        return;
    }
    v->gaps++;
    v->lost += entry->lost;
    v->generation++;
    snprintf(text, sizeof text,
             "%" PRIu64 " corrupt bytes at byte %" PRIu64 ", %" PRIu64 " records lost",
             entry->gap_bytes, entry->offset, entry->lost);
    runview_event_add(v, v->step, v->last_time, LOG_WARN, "gap", text);
}

static void take_entry(struct runview *v, const struct runlog_entry *entry)
{
    if (entry->points) {
        runview_take_points(v, entry->point, entry->points);
        return;
    }
    if (entry->is_gap) {
        note_gap(v, entry);
        return;
    }
    if (entry->lost > 0 && v->records > 0) {
        v->gaps++;
        v->lost += entry->lost;
    }
    if (entry->is_repeat)
        v->repeats++;
    else
        runview_take(v, entry->body);
}

/* The reader counts from its beginning, or from when a file was replaced. */
static void count_skipped(struct runview *v)
{
    struct runview_index *x = v->index;
    uint64_t n = runlog_reader_skipped(v->reader), m = runlog_reader_others(v->reader);
    v->invalid += n >= x->skipped ? n - x->skipped : n;
    v->others += m >= x->others ? m - x->others : m;
    v->generation += n != x->skipped || m != x->others;
    x->skipped = n;
    x->others = m;
}

enum { PIPE_FULL = 1 << 15 };

int runview_poll(struct runview *v, double budget_s, struct err *e)
{
    struct runlog_entry entry;
    double start = clock_mono();
    uint64_t before = v->generation;
    int rc = 0;
    if (!v->reader)
        return 0;
    uint64_t from = runlog_reader_offset(v->reader);
    v->is_behind = 0;
    for (int i = 1;; i++) {
        rc = runlog_next(v->reader, &entry, e);
        int is_pause = rc == 0 && runlog_reader_is_behind(v->reader);
        if (rc > 0)
            take_entry(v, &entry);
        else if (!is_pause)
            break;
        if (v->index->is_failed)
            return err_set(e, DS_EMEM, "%s: out of memory for its records", v->path);
        v->is_behind = (is_pause || i % 32 == 0) && clock_mono() - start > budget_s;
        if (v->is_behind || (is_pause && runlog_reader_fd(v->reader) >= 0))
            break;
        if (v->index->stop_at && runlog_reader_position(v->reader) >= v->index->stop_at)
            break;
    }
    if (rc < 0)
        return rc;
    count_skipped(v);
    runview_order(v);
    double modified = runlog_reader_modified(v->reader);
    if (modified > v->last_time)
        v->last_time = modified;
    /* a full pipe will most likely fill up again */
    if (runlog_reader_fd(v->reader) >= 0 && runlog_reader_offset(v->reader) - from >= PIPE_FULL)
        v->is_behind = 1;
    note_heard(v, runlog_reader_offset(v->reader) > from);
    uint64_t bytes = runlog_reader_offset(v->reader), tail = runlog_reader_tail(v->reader);
    enum run_state state = state_of(v);
    v->generation += state != v->state || v->is_behind || bytes != v->bytes || tail != v->tail;
    v->state = state;
    v->bytes = bytes;
    v->tail = tail;
    return v->generation != before;
}

/* ---- opening
 * ------------------------------------------------------------------------------------------ */

/* The run's name as long as no head says one: its directory, or the file without its ending. */
static char *name_of(const char *path, int is_dir)
{
    char name[256];
    size_t n = fs_trimmed(path), from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    snprintf(name, sizeof name, "%.*s", (int)(n - from), path + from);
    char *dot = is_dir ? NULL : strrchr(name, '.');
    if (dot && dot > name)
        *dot = '\0';
    return mem_strdup(strcmp(path, "-") ? name : "stdin");
}

static int set_path(struct runview *v, const char *path, struct err *e)
{
    char full[4096];
    int is_dir = strcmp(path, "-") && fs_is_dir(path), rc = 0;
    if (is_dir) {
        char home[4096];
        int why = 0;
        rc = fs_join(full, sizeof full, path, "log.mp", e);
        if (rc == 0 && !fs_exists(full) && foreign_files_find(path, home, sizeof home, &why))
            rc = str_copy(full, sizeof full, path) ? err_set(e, DS_ERANGE, "path too long") : 0;
        else if (rc == 0 && !fs_exists(full) && why == DS_EMEM)
            rc = err_set(e, why, "%s: out of memory", path);
        else if (rc == 0 && !fs_exists(full) && (rc = fs_check_reach(full, e)) == 0)
            rc = err_set(
                e, DS_ENOTFOUND,
                "%s: not a run directory: neither log.mp nor a log of a known format found", path);
        else if (rc == 0)
            /* a FIFO named by the user is a stream; opening one in place of a log would block */
            rc = fs_check_regular(full, e);
    } else if (strcmp(path, "-") && !fs_exists(path)) {
        rc = fs_check_reach(path, e);
        rc = rc < 0 ? rc : err_set(e, DS_ENOTFOUND, "%s: not found", path);
    } else if (str_copy(full, sizeof full, path)) {
        rc = err_set(e, DS_ERANGE, "path too long");
    }
    if (rc < 0)
        return rc;
    char *p = mem_strdup(full), *name = name_of(path, is_dir);
    if (!p || !name) {
        mem_free(p);
        mem_free(name);
        return err_set(e, DS_EMEM, "%s: out of memory", path);
    }
    mem_free(v->path);
    mem_free(v->name);
    v->path = p;
    v->name = name;
    v->index->is_directory = is_dir && strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && name[0];
    return 0;
}

/* A file that does not begin with a record and has none further on is something else. */
static int check_kind(const struct runview *v, struct err *e)
{
    unsigned char first = 0xc9;
    size_t got = 0;
    int fd;
    if (v->records > 0 || v->tail == 0 || runlog_reader_fd(v->reader) >= 0)
        return 0;
    int rc = fs_open_read(&fd, v->path, e);
    if (rc < 0)
        return rc;
    rc = fs_read_some(fd, &first, 1, &got, v->path, e);
    fs_close(fd);
    if (rc == 0 && first != 0xc9 && first != 0)
        rc = runlog_refuse(v->path, e);
    return rc;
}

int runview_follow(struct runview **out, const char *path, double budget_s, struct err *e)
{
    enum { NOISE_POLLS = 64 };
    struct runview *v = runview_new();
    if (!v)
        return err_set(e, DS_EMEM, "%s: out of memory", path);
    int rc = set_path(v, path, e);
    if (rc == 0)
        rc = runlog_reader_open(&v->reader, v->path, e);
    if (rc == 0) {
        runlog_reader_wants_points(v->reader);
        runlog_reader_limit(v->reader, 1 << 20);
        v->index->stop_at =
            runlog_reader_tail(v->reader); /* the writer may be faster than the reader */
    }
    /* what is not a record stream is refused before gigabytes of it are read */
    for (int i = 0; rc >= 0 && i < NOISE_POLLS && v->records == 0 && (i == 0 || v->is_behind); i++)
        rc = runview_poll(v, 0, e);
    if (rc >= 0)
        rc = check_kind(v, e);
    if (rc >= 0)
        rc = runview_poll(v, budget_s, e);
    v->index->stop_at = 0;
    if (rc < 0) {
        runview_free(v);
        return rc;
    }
    *out = v;
    return 0;
}

int runview_open(struct runview **out, const char *path, struct err *e)
{
    return runview_follow(out, path, HUGE_VAL, e);
}

/* Zeros up to the end of a log are its end. */
static int pass_zeros(struct runview *v, struct err *e)
{
    uint64_t end;
    int fd, rc = fs_open_read(&fd, v->path, e);
    if (rc < 0)
        return rc;
    rc = fs_nonzero_end(fd, v->bytes, v->bytes + v->tail, 0, &end, v->path, e);
    if (rc == 0 && end == v->bytes)
        v->tail = 0;
    fs_close(fd);
    return rc;
}

int runview_read(struct runview **out, const char *path, struct err *e)
{
    static const uint64_t noise_max = 64 << 20;
    struct runview *v = NULL;
    int rc = runview_open(&v, path, e);
    if (rc < 0)
        return rc;
    struct pollfd p = {.fd = runlog_reader_fd(v->reader), .events = POLLIN};
    while (rc >= 0 && p.fd >= 0 && !runlog_reader_at_end(v->reader) &&
           (v->records > 0 || v->tail < noise_max)) {
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            rc = err_errno(e, "%s", path);
        else
            rc = runview_poll(v, HUGE_VAL, e);
    }
    /* a last line without its newline counts once nobody is writing it any more */
    double until = clock_mono() + 3;
    while (rc >= 0 && runview_foreign(v) && p.fd < 0 && v->tail > 0 && clock_mono() < until &&
           clock_wall() - runlog_reader_modified(v->reader) < 3) {
        clock_sleep(0.1);
        rc = runview_poll(v, HUGE_VAL, e);
    }
    if (rc >= 0 && v->records == 0)
        rc = v->tail > 0 ? runlog_refuse(path, e) : err_set(e, DS_EFORMAT, "%s: no records", path);
    else if (rc >= 0 && v->tail > 0 && p.fd < 0 && !runview_foreign(v))
        rc = pass_zeros(v, e);
    if (rc < 0) {
        runview_free(v);
        return rc;
    }
    *out = v;
    return 0;
}

/* ---- looking
 * -------------------------------------------------------------------------------------------- */

const char *runview_foreign(const struct runview *v)
{
    const struct foreign_format *f = v->reader ? runlog_reader_format(v->reader) : NULL;
    if (!f)
        return v->index->foreign[0] ? v->index->foreign : NULL;
    return f->title;
}

/* Of several names for a metric the one that metric_canonical prefers. */
static const struct series *series_by_alias(const struct runview *v, const char *name)
{
    const struct series *best = NULL;
    for (size_t i = 0; i < v->n_series; i++) {
        const struct series *s = &v->series[i];
        if (s->canonical && strcmp(s->canonical, name) == 0 && (!best || s->rank < best->rank))
            best = s;
    }
    return best;
}

const struct series *runview_series(const struct runview *v, const char *name)
{
    int64_t i;
    return map_get(&v->index->series, name, strlen(name), &i) ? &v->series[i]
                                                              : series_by_alias(v, name);
}

const struct layer_series *runview_layer(const struct runview *v, const char *name)
{
    int64_t i;
    return map_get(&v->index->layer, name, strlen(name), &i) ? &v->layer[i] : NULL;
}

const char *runview_config(const struct runview *v, const char *key)
{
    for (size_t i = 0; i < v->configs; i++)
        if (strcmp(v->config_key[i], key) == 0)
            return v->config_value[i];
    return NULL;
}

int runview_config_int(const struct runview *v, const char *key, int otherwise)
{
    const char *text = v ? runview_config(v, key) : NULL;
    return text ? (int)strtol(text, NULL, 10) : otherwise;
}

int runview_is_iterated(const struct runview *v, int layers)
{
    int loop = runview_config_int(v, "model.loop", 1);
    return loop > 1 && loop == layers;
}

const char *runview_layer_word(const struct runview *v, int layers)
{
    return runview_is_iterated(v, layers) ? "iteration" : "layer";
}

static const struct vector *validation(const struct run_eval *x)
{
    int is = x->routing && strcmp(x->routing, "causal") == 0 && x->task &&
             (strcmp(x->task, "val") == 0 || strcmp(x->task, "final") == 0);
    return is ? run_eval_value(x, "loss") : NULL;
}

double runview_val_loss(const struct runview *v, int64_t step)
{
    const struct series *s = runview_series(v, "val_loss");
    double found = (double)NAN;
    for (size_t i = 0; s && i < s->n && s->step[i] <= step; i++)
        found = s->step[i] == step && !s->is_old[i] ? s->value[i] : found;
    for (size_t i = v->n_evals; i-- > 0 && isnan(found);) {
        const struct vector *loss = v->eval[i].step == step ? validation(&v->eval[i]) : NULL;
        found = loss ? (double)loss->v[0] : found;
    }
    return found;
}

int64_t runview_val_step(const struct runview *v)
{
    const struct series *s = runview_series(v, "val_loss");
    int64_t step = s && s->n ? s->step[s->n - 1] : -1;
    for (size_t i = 0; i < v->n_evals; i++) /* beyond the run's step: superseded */
        if (v->eval[i].step > step && v->eval[i].step <= v->step && validation(&v->eval[i]))
            step = v->eval[i].step;
    return step;
}

const struct probe *runview_probe(const struct runview *v, int index)
{
    return runview_probe_at(v, index, INT64_MAX);
}

const struct probe *runview_probe_at(const struct runview *v, int index, int64_t step)
{
    const struct probe *old = NULL;
    for (size_t i = v->n_probes; i-- > 0;) {
        const struct probe *p = v->probe[i];
        if ((index >= 0 && p->index != index) || p->step > step)
            continue;
        if (!p->is_old)
            return p;
        old = old ? old : p;
    }
    return old;
}

const struct matrix *probe_cell(const struct probe *p, const char *name)
{
    for (int i = 0; i < p->cells; i++)
        if (strcmp(p->cell[i].name, name) == 0)
            return &p->cell[i];
    return NULL;
}

static const struct vector *vector_find(const struct vector *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcmp(list[i].name, name) == 0)
            return &list[i];
    return NULL;
}

const struct vector *probe_token(const struct probe *p, const char *name)
{
    return vector_find(p->token, p->vectors, name);
}

const struct vector *run_eval_value(const struct run_eval *x, const char *name)
{
    return vector_find(x->value, x->values, name);
}

const struct vector *runview_eval_vector(const struct runview *v, const char *task,
                                         const char *name)
{
    for (size_t i = v->n_evals; i-- > 0;) {
        const struct run_eval *x = &v->eval[i];
        const struct vector *found = run_eval_value(x, name);
        if (found && (!task || strcmp(x->task, task) == 0))
            return found;
    }
    return NULL;
}

double runview_eval(const struct runview *v, const char *task, const char *name)
{
    const struct vector *x = runview_eval_vector(v, task, name);
    return x && x->n == 1 ? (double)x->v[0] : (double)NAN;
}

const struct run_sample *runview_sample(const struct runview *v, const char *name)
{
    for (size_t i = v->n_samples; i-- > 0;)
        if (!name || strcmp(v->sample[i].name, name) == 0)
            return &v->sample[i];
    return NULL;
}

const struct vector *sample_column(const struct run_sample *s, const char *name)
{
    return vector_find(s->column, s->columns, name);
}

const char *runview_class(int number)
{
    static const char *const name[RUN_CLASSES] = {
        "word",      "continuation", "punctuation", "digit", "space",  "stop word", "rare",
        "high loss", "other",        "edge",        "query", "answer", "filler"};
    return number >= 0 && number < RUN_CLASSES ? name[number] : NULL;
}
