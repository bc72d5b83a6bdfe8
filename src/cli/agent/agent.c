/* depthscope agent [ROOT]: the far end of a host.  JSON request lines in, records out (FORMATS.md,
 * "Agent"); a workbench elsewhere starts it through ssh.  It reads runs below one folder and sends
 * commands to those that train; names from the other end are looked up in the list, never opened. */
#include <math.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/hash.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "io/foreign.h"
#include "io/host.h"
#include "io/runindex.h"
#include "io/runlog.h"
#include "models.h"
#include "probes.h"
#include "start.h"
#include "summary.h"
#include "training/job.h"

struct cli_option agent_options[] = {
    {.name = "readonly", .help = "refuse commands that change or stop a run"},
    {.name = NULL},
};

enum {
    FOLLOWS_MAX = 16,
    COMMANDS_MAX = 8,
    REQUEST_MAX = 9 << 20, /* a line to `serve` of 4 MiB, escaped once more */
    GATHER = 8 << 10,      /* bytes of records in one message */
    IN_FLIGHT = 32 << 10,  /* bytes sent and not yet acknowledged: an answer waits behind no more */
    ROWS_MAX = 500,        /* rows in one turn */
    BODY_MAX = 8 << 20,    /* bytes of a record that is passed on, inside another */
    PROBES_AT_ONCE = 128 << 10, /* bytes of probes, then PROBES_RATE a second */
    PROBES_RATE = 5 << 10,
    QUEUE_MAX = 256 << 10,
    LONG_LOG = 128 << 10 /* bytes from which a log is summarised */
};
static const double list_s = 2, beat_s = 5, command_s = 30;
/* A log of gigabytes takes a while: requests are answered between slices, and what has been read is
 * shown. */
static const double slice_s = 0.05, paint_s = 0.7;

struct follow {
    char run[256], path[1024];
    struct runlog_reader *reader;
    uint64_t skip; /* bytes of the log that the other end has */
    uint32_t id;   /* of the file: another one starts over */
    int is_reset;
    int64_t probes; /* those before this byte of the log are sent or queued; -1: none are wanted */
    struct str queue;        /* of probes: whole frames, their places in the log as seq */
    size_t queued;           /* bytes of them that are sent */
    int64_t sent_probes;     /* as `probes`, without those in the queue or being chosen */
    struct probes *choice;   /* of those that the log had, being made; NULL: none */
    double credit, credited; /* bytes of probes that may be sent, as of that time */
    int64_t from, to;        /* steps that a summary shows in detail */
    int wants_detail;
    double due;             /* of the next look at a log that has nothing new */
    struct logsum *summary; /* of a long log, being made; NULL: none */
    uint64_t summary_bytes;
    double paint; /* when what has been summarised is sent, 0 = only at the end */
};
struct sent_command {
    struct job_request *request;
    int64_t id;
};
struct agent {
    char root[1024];
    int readonly, lists, is_listed, is_done, out;
    struct runindex index;
    const char *only; /* the root, when it is a run rather than a folder of runs */
    struct map sent;  /* name -> hash of the row as sent */
    size_t next_row;
    struct follow follow[FOLLOWS_MAX];
    int follows;
    struct sent_command command[COMMANDS_MAX];
    int commands;
    struct starts starts;
    struct models models;
    struct record *rec;
    struct str in, frame, bodies;
    uint64_t seq, sent_bytes, acked;
    double listed, beat;
};

static int send_record(struct agent *a, struct err *e)
{
    a->frame.len = 0;
    int rc = record_end(a->rec, ++a->seq, &a->frame, e);
    if (rc == 0)
        rc = fs_write_all(a->out, a->frame.p, a->frame.len, "answer", e);
    a->sent_bytes += a->frame.len;
    a->beat = clock_mono();
    return rc;
}

static int has_window(const struct agent *a)
{
    return a->sent_bytes - a->acked < IN_FLIGHT;
}

static void acknowledge(struct agent *a, int64_t bytes)
{
    if (bytes >= 0 && (uint64_t)bytes <= a->sent_bytes)
        a->acked = (uint64_t)bytes;
}

/* What this agent answers beyond the requests of the first one. */
static const char abilities[] = "start resume checkpoints compare save echo";

static int send_hello(struct agent *a, struct err *e)
{
    char presets[HOST_PRESETS];
    start_presets(presets, sizeof presets);
    record_begin(a->rec, "agent", 0, clock_wall());
    record_int(a->rec, "protocol", HOST_PROTOCOL);
    record_str(a->rec, "version", DEPTHSCOPE_VERSION);
    record_str(a->rec, "root", a->root);
    record_bool(a->rec, "readonly", a->readonly);
    if (a->only && a->index.n > 0)
        record_str(a->rec, "run", a->index.row[0]->name);
    record_str(a->rec, "does", abilities);
    record_str(a->rec, "presets", presets);
    return send_record(a, e);
}

/* ---- rows ---- */

static int look(struct agent *a, struct err *e)
{
    a->listed = clock_mono();
    return runindex_refresh(&a->index, a->only ? NULL : a->root, e);
}

static void begin_row(struct agent *a, const struct run_row *r)
{
    char tags[RUN_TAGS_MAX * (RUN_TAG_MAX + 2)] = "";
    size_t n = 0;
    for (int i = 0; i < r->notes.tags; i++)
        n += (size_t)snprintf(tags + n, sizeof tags - n, "%s%s", i ? " " : "", r->notes.tag[i]);
    record_begin(a->rec, "row", (int64_t)r->phase.step, r->last_time);
    record_str(a->rec, "name", r->name);
    record_str(a->rec, "state", run_state_name(r->state));
    record_bool(a->rec, "live", r->is_live);
    record_str(a->rec, "method", r->method);
    record_str(a->rec, "preset", r->preset);
    record_str(a->rec, "run_id", r->run_id);
    record_str(a->rec, "parent", r->parent);
    if (r->format)
        record_str(a->rec, "format", r->format);
    if (tags[0])
        record_str(a->rec, "tags", tags);
    if (r->notes.note[0])
        record_str(a->rec, "note", r->notes.note);
    record_nums(a->rec, "numbers", r->number, RUN_NUMBERS);
    record_num(a->rec, "modified", r->modified);
    record_f32s(a->rec, "spark", r->spark, (size_t)r->sparks);
}

/* The row unless the other end has it; the age of a live run counts there, not here. */
static int send_row(struct agent *a, const struct run_row *r, struct err *e)
{
    int64_t was = 0;
    begin_row(a, r);
    str_renew(&a->bodies);
    int rc = record_end(a->rec, 0, &a->bodies, e);
    if (rc < 0)
        return rc;
    int64_t now = (int64_t)hash_crc32c(1, a->bodies.p, a->bodies.len);
    if (map_get(&a->sent, r->name, strlen(r->name), &was) && was == now)
        return 0;
    if (map_set(&a->sent, r->name, strlen(r->name), now) < 0)
        return err_set(e, DS_EMEM, "out of memory for the list of runs");
    begin_row(a, r);
    return send_record(a, e);
}

static int send_gone(struct agent *a, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; rc == 0 && i < a->sent.cap; i++) {
        struct map_slot *s = &a->sent.slot[i];
        char name[256];
        if (!s->key || s->value < 0)
            continue;
        snprintf(name, sizeof name, "%.*s", (int)s->len, s->key); /* keys have no NUL */
        if (runindex_find(&a->index, name))
            continue;
        s->value = -1; /* a map forgets nothing */
        record_begin(a->rec, "gone", 0, clock_wall());
        record_str(a->rec, "name", name);
        rc = send_record(a, e);
    }
    return rc;
}

/* A turn of the list: as many rows as fit, the newest first. */
static int send_rows(struct agent *a, struct err *e)
{
    int rc = 0;
    if (a->next_row >= a->index.n) {
        if (clock_mono() < a->listed + list_s)
            return 0;
        a->next_row = 0;
        rc = look(a, e);
        if (rc == 0)
            rc = send_gone(a, e);
    }
    for (int n = 0; rc == 0 && n < ROWS_MAX && a->next_row < a->index.n && has_window(a); n++)
        rc = send_row(a, a->index.row[a->next_row++], e);
    if (rc == 0 && a->next_row >= a->index.n && !a->is_listed) {
        a->is_listed = 1;
        record_begin(a->rec, "listed", 0, clock_wall());
        rc = send_record(a, e);
    }
    return rc;
}

/* ---- logs ---- */

static uint32_t id_of(const struct agent *a, const char *run)
{
    const struct run_row *r = runindex_find(&a->index, run);
    return r ? hash_crc32c((uint32_t)r->seen.inode, r->run_id, strlen(r->run_id)) : 0;
}

static void drop(struct agent *a, const char *run)
{
    for (int i = 0; i < a->follows; i++) {
        if (strcmp(a->follow[i].run, run) != 0)
            continue;
        runlog_reader_close(a->follow[i].reader);
        str_release(&a->follow[i].queue);
        probes_close(a->follow[i].choice);
        logsum_free(a->follow[i].summary);
        a->follow[i] = a->follow[--a->follows];
        return;
    }
}

static int64_t probes_at(const struct follow *f)
{
    return f->queue.len > 0 || f->choice ? f->sent_probes : f->probes;
}

/* problem: instead of records.  at: what to ask for after a lost line. */
static int say_log_at(struct agent *a, const struct follow *f, const char *problem, int is_summary,
                      uint64_t at, struct err *e)
{
    record_begin(a->rec, "log", 0, clock_wall());
    record_str(a->rec, "run", f->run);
    if (problem) {
        record_str(a->rec, "error", problem);
    } else {
        record_int(a->rec, "at", (int64_t)at);
        record_int(a->rec, "id", f->id);
        record_bool(a->rec, "reset", f->is_reset);
        record_bool(a->rec, "live", runlog_is_locked(f->path));
        if (is_summary)
            record_bool(a->rec, "summary", 1);
        if (f->probes >= 0)
            record_int(a->rec, "probes", probes_at(f));
        record_bytes(a->rec, "frames", a->bodies.p ? a->bodies.p : "", a->bodies.len);
    }
    return send_record(a, e);
}

static int say_log(struct agent *a, const struct follow *f, const char *problem, int is_summary,
                   struct err *e)
{
    uint64_t at = problem ? 0 : runlog_reader_position(f->reader);
    return say_log_at(a, f, problem, is_summary, at, e);
}

/* The log cannot be read any more, e.g. because it was deleted; the others continue. */
static int give_up(struct agent *a, const struct follow *f, const char *why, struct err *e)
{
    char text[300], run[256];
    str_copy(text, sizeof text, why);
    str_copy(run, sizeof run, f->run);
    int rc = say_log(a, f, text, 0, e);
    drop(a, run);
    return rc;
}

static void drop_probes(struct follow *f)
{
    str_release(&f->queue);
    f->queued = 0;
    probes_close(f->choice);
    f->choice = NULL;
}

/* The log was replaced: what was sent of it is void. */
static void begin_anew(struct agent *a, struct follow *f)
{
    logsum_free(f->summary);
    f->summary = NULL;
    f->is_reset = 1;
    f->skip = 0;
    f->id = id_of(a, f->run);
    drop_probes(f);
    f->probes = f->probes < 0 ? -1 : 0;
    f->sent_probes = 0;
}

/* From now on probes are sent, after those that the log has from byte `from` on; -1: no more. */
static void want_probes(struct follow *f, int64_t from)
{
    int64_t end = (int64_t)runlog_reader_position(f->reader);
    drop_probes(f);
    f->due = 0;
    f->probes = f->sent_probes = from;
    if (from < 0 || from >= end || runlog_reader_format(f->reader))
        return;
    f->probes = end;
    if (probes_open(&f->choice, f->path, from, end, NULL) < 0)
        f->choice = NULL; /* the next look at the log says why */
}

/* Those of the log go before what has been queued meanwhile. */
static void choose_probes(struct follow *f)
{
    struct str chosen = {0};
    if (probes_choose(f->choice, slice_s, &chosen, NULL) == 0)
        return;
    str_add_str(&chosen, &f->queue);
    drop_probes(f);
    f->queue = chosen;
}

/* Bytes of the log that have not been read. */
static int64_t backlog(const struct follow *f)
{
    struct stat st;
    return fs_stat(f->path, &st) == 0
               ? (int64_t)st.st_size - (int64_t)runlog_reader_position(f->reader)
               : 0;
}

static int say_summary(struct agent *a, struct follow *f, int is_whole, struct err *e)
{
    uint64_t records = 0;
    char text[160], size[16];
    str_renew(&a->bodies);
    int rc = logsum_write(f->summary, &a->bodies, &records, e);
    if (rc < 0)
        return rc;
    snprintf(text, sizeof text,
             is_whole ? "summary of %llu records (%sB): the extremes of each metric; what is new "
                        "follows whole"
                      : "summary of the first %llu records of %sB; the rest is being read",
             (unsigned long long)records, str_si(size, (double)f->summary_bytes));
    record_begin(a->rec, "event", -1, clock_wall());
    record_int(a->rec, "level", 1);
    record_str(a->rec, "name", RUNLOG_SUMMARY);
    record_str(a->rec, "text", text);
    rc = record_end(a->rec, 0, &a->bodies, e);
    uint64_t at = is_whole ? runlog_reader_position(f->reader) : 0;
    return rc == 0 ? say_log_at(a, f, NULL, is_whole, at, e) : rc;
}

/* A long log, or what a line cannot carry of a fast run, in one message; a part of a very long one
 * before, which the whole replaces. */
static int send_summary(struct agent *a, struct follow *f, struct err *e)
{
    if (!f->summary) {
        f->summary = logsum_new(f->from, f->to);
        f->summary_bytes = (uint64_t)backlog(f);
        f->paint = f->is_reset && !f->wants_detail ? clock_mono() + paint_s : 0;
    }
    int rc = f->summary ? logsum_read(f->summary, f->reader, slice_s, e)
                        : err_set(e, DS_EMEM, "out of memory");
    if (rc == DS_EBUSY) {
        begin_anew(a, f);
        return 0;
    }
    if (rc < 0)
        return give_up(a, f, e->text, e);
    if (rc == 0 && (f->paint == 0 || clock_mono() < f->paint))
        return 0;
    f->paint = 0;
    if (rc == 0)
        return say_summary(a, f, 0, e);
    want_probes(f, probes_at(f));
    rc = say_summary(a, f, 1, e);
    f->is_reset = f->wants_detail = 0;
    logsum_free(f->summary);
    f->summary = NULL;
    return rc;
}

static int start_follow(struct agent *a, const char *run, uint64_t from, uint32_t id, struct err *e)
{
    struct follow f = {.id = id_of(a, run), .probes = -1, .to = -1};
    struct run_row *row = runindex_find(&a->index, run);
    char log[1100];
    struct err why = {0};
    drop(a, run);
    str_copy(f.run, sizeof f.run, run);
    if (!row || strcmp(row->name, run) != 0)
        return say_log(a, &f, "no such run", 0, e);
    if (a->follows == FOLLOWS_MAX)
        return say_log(a, &f, "too many runs are followed", 0, e);
    str_copy(f.path, sizeof f.path, row->path);
    if (!row->format && fs_is_dir(row->path) &&
        fs_join(log, sizeof log, row->path, "log.mp", NULL) == 0)
        str_copy(f.path, sizeof f.path, log);
    if (runlog_reader_open(&f.reader, f.path, &why) < 0)
        return say_log(a, &f, why.text, 0, e);
    runlog_reader_limit(f.reader, 1 << 20);
    if (row->state == RUN_TRACE) /* it is nothing else */
        f.probes = 0;
    f.skip = f.id == id ? from : 0;
    f.is_reset = f.skip == 0;
    a->follow[a->follows++] = f;
    return 0;
}

/* A record of the log; probes wait until there is nothing else, and only if they are wanted.  Those of other
 * programs' logs cannot be read again at a place, so they are sent as they come. */
static void pass_on(struct agent *a, struct follow *f, const struct runlog_entry *entry)
{
    int is_probe =
        value_is(value_get(entry->body, "kind"), "probe") && !runlog_reader_format(f->reader);
    if (!is_probe && entry->offset >= f->skip)
        record_copy(&a->bodies, entry->seq, entry->body);
    else if (is_probe && f->probes >= 0 && (int64_t)entry->offset >= f->probes)
        record_copy(&f->queue, entry->offset, entry->body);
    if (f->probes >= 0 && f->probes < (int64_t)runlog_reader_position(f->reader))
        f->probes = (int64_t)runlog_reader_position(f->reader);
}

/* Moves the next probe of the queue into the message. */
static void next_probe(struct agent *a, struct follow *f)
{
    uint64_t seq;
    struct value body;
    int64_t n = record_parse(f->queue.p + f->queued, f->queue.len - f->queued, &seq, &body, NULL);
    if (n > 0) {
        record_copy(&a->bodies, seq, body);
        f->sent_probes = (int64_t)seq + 1;
    }
    f->credit -= (double)(n > 0 ? n : 0);
    f->queued += n > 0 ? (size_t)n : f->queue.len;
    if (f->queued >= f->queue.len) {
        str_release(&f->queue);
        f->queued = 0;
    }
}

/* Live probes may be more than a line should carry: then some are left out, as when a view is opened late. */
static int may_send_probe(struct follow *f, double now)
{
    if (f->choice)
        return 0;
    if (f->queue.failed || f->queue.len - f->queued > QUEUE_MAX)
        want_probes(f, f->sent_probes);
    f->credit = fmin(PROBES_AT_ONCE, f->credit + (now - f->credited) * PROBES_RATE);
    f->credited = now;
    return f->queue.len > 0 && f->credit > 0;
}

/* Sends what is new in a log. */
static int send_log(struct agent *a, struct follow *f, struct err *e)
{
    struct runlog_entry entry;
    double now = clock_mono();
    int rc = 1, is_first = f->is_reset;
    if (now < f->due || !has_window(a))
        return 0;
    if (f->choice)
        choose_probes(f);
    int is_whole = f->skip <= runlog_reader_position(f->reader);
    if (f->wants_detail || f->summary ||
        (is_whole && !runlog_reader_format(f->reader) && backlog(f) > LONG_LOG))
        return send_summary(a, f, e);
    str_renew(&a->bodies);
    /* after a lost line much is read again of which nothing is sent */
    double end = clock_mono() + slice_s;
    while (a->bodies.len < GATHER && clock_mono() < end &&
           (rc = runlog_next(f->reader, &entry, e)) == 1) {
        if (entry.is_reset) {
            begin_anew(a, f);
            is_first = 1;
            str_renew(&a->bodies);
        } else if (!entry.is_gap && (size_t)(entry.body.end - entry.body.p) <= BODY_MAX) {
            pass_on(a, f, &entry);
        }
    }
    if (rc < 0 || a->bodies.failed)
        return give_up(a, f, rc < 0 ? e->text : "out of memory", e);
    int is_idle = rc == 0 && !runlog_reader_is_behind(f->reader);
    f->due = is_idle && !f->choice ? now + 0.25 : 0;
    if (a->bodies.len == 0 && rc == 1) /* the slice is over */
        return 0;
    if (a->bodies.len == 0 && may_send_probe(f, now)) {
        next_probe(a, f);
        f->due = 0;
    } else if (a->bodies.len == 0 && !is_first) {
        return 0;
    }
    rc = say_log(a, f, NULL, 0, e);
    f->is_reset = 0;
    return rc;
}

/* Another summary of the whole log, with these steps in detail, takes the place of what was sent. */
static void ask_detail(struct agent *a, const char *run, int64_t from, int64_t to)
{
    for (int i = 0; i < a->follows; i++) {
        struct follow *f = &a->follow[i];
        struct runlog_reader *again = NULL;
        if (strcmp(f->run, run) != 0 || runlog_reader_format(f->reader) ||
            runlog_reader_open(&again, f->path, NULL) < 0)
            continue;
        runlog_reader_close(f->reader);
        f->reader = again;
        runlog_reader_limit(f->reader, 1 << 20);
        begin_anew(a, f);
        f->from = from;
        f->to = to;
        f->wants_detail = 1;
        f->due = 0;
    }
}

static void ask_probes(struct agent *a, const char *run, int64_t from)
{
    for (int i = 0; i < a->follows; i++)
        if (strcmp(a->follow[i].run, run) == 0 && from != a->follow[i].probes)
            want_probes(&a->follow[i], from < -1 ? -1 : from);
}

/* ---- commands ---- */

static int send_answer(struct agent *a, int64_t id, int is_ok, const char *text, struct err *e)
{
    record_begin(a->rec, "answer", 0, clock_wall());
    record_int(a->rec, "id", id);
    record_bool(a->rec, "ok", is_ok);
    record_str(a->rec, "text", text);
    return send_record(a, e);
}

static int start_command(struct agent *a, int64_t id, const char *run, const char *line,
                         struct err *e)
{
    const struct run_row *row = runindex_find(&a->index, run);
    struct sent_command c = {.id = id};
    struct err why = {0};
    if (a->readonly && strcmp(line, "status") != 0)
        return send_answer(a, id, 0, "this host is read-only (agent --readonly)", e);
    if (!row || strcmp(row->name, run) != 0)
        return send_answer(a, id, 0, "no such run", e);
    if (a->commands == COMMANDS_MAX)
        return send_answer(a, id, 0, "too many commands are waiting", e);
    if (job_request_open(&c.request, row->path, line, command_s, &why) < 0)
        return send_answer(a, id, 0, why.text, e);
    a->command[a->commands++] = c;
    return 0;
}

static int poll_commands(struct agent *a, struct err *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < a->commands;) {
        struct sent_command *c = &a->command[i];
        struct str text = {0};
        struct err why = {0};
        int got = job_request_poll(c->request, &text, &why);
        if (got != 0) {
            rc = send_answer(a, c->id, got > 0, got > 0 ? str_text(&text) : why.text, e);
            job_request_close(c->request);
            *c = a->command[--a->commands];
        } else {
            i++;
        }
        str_release(&text);
    }
    return rc;
}

/* ---- starting runs ---- */

static int checkpoints(struct agent *a, int64_t id, const struct run_row *row, struct err *e)
{
    struct str text = {0};
    struct err why = {0};
    int rc = start_checkpoints(&text, row, &why);
    rc = send_answer(a, id, rc == 0, rc == 0 ? str_text(&text) : why.text, e);
    str_release(&text);
    return rc;
}

/* The folder of runs: the parent where a run itself was opened. */
static void runs_root(const struct agent *a, char *out, size_t size)
{
    str_copy(out, size, a->root);
    out[fs_trimmed(out)] = '\0';
    char *slash = a->only ? strrchr(out, '/') : NULL;
    if (slash)
        slash[slash == out] = '\0';
    else if (a->only)
        str_copy(out, size, ".");
}

/* "start", "resume" and "checkpoints"; the answer to the first two comes when the run has begun. */
static int start_run(struct agent *a, const char *what, const struct json_node *r, struct err *e)
{
    int64_t id = json_int(json_get(r, "id"), 0);
    const char *run = json_str(json_get(r, "run"), NULL),
               *from = json_str(json_get(r, "from"), NULL);
    const struct run_row *row = run ? runindex_find(&a->index, run) : NULL;
    struct err why = {0};
    char root[1024];
    int is_new = strcmp(what, "start") == 0, is_list = strcmp(what, "checkpoints") == 0;
    if (a->readonly && !is_list)
        return send_answer(a, id, 0, "this host is read-only (agent --readonly)", e);
    if (!is_new && (!row || strcmp(row->name, run) != 0))
        return send_answer(a, id, 0, "no such run", e);
    if (is_list)
        return checkpoints(a, id, row, e);
    if (a->only && is_new)
        return send_answer(a, id, 0, "one run is open here; open its folder to start another", e);
    runs_root(a, root, sizeof root);
    int rc = is_new ? start_new(&a->starts, id, root, r, &why)
                    : start_again(&a->starts, id, root, row, from ? from : "", &why);
    return rc < 0 ? send_answer(a, id, 0, why.text, e) : 0;
}

static int poll_starts(struct agent *a, struct err *e)
{
    char text[400];
    int64_t id;
    int rc = 0, got;
    while (rc == 0 && (got = start_next(&a->starts, &id, text, sizeof text)) != 0) {
        if (got > 0) { /* the list first, so that the run can be opened */
            a->next_row = a->index.n;
            a->listed = 0;
            rc = send_rows(a, e);
        }
        if (rc == 0)
            rc = send_answer(a, id, got > 0, text, e);
    }
    return rc;
}

/* ---- models ---- */

static int say_model(struct agent *a, int64_t id, const char *bytes, size_t n, const char *why,
                     struct err *e)
{
    record_begin(a->rec, "said", 0, clock_wall());
    record_int(a->rec, "id", id);
    if (why)
        record_str(a->rec, "end", why);
    else
        record_bytes(a->rec, "bytes", bytes, n);
    return send_record(a, e);
}

/* The model of a run, which is named as for the other requests. */
static int open_model(struct agent *a, int64_t id, const char *run, struct err *e)
{
    const struct run_row *row = runindex_find(&a->index, run);
    struct err why = {0};
    if (!row || strcmp(row->name, run) != 0)
        return say_model(a, id, NULL, 0, "no such run", e);
    return models_open(&a->models, id, row->path, &why) < 0 ? say_model(a, id, NULL, 0, why.text, e)
                                                            : 0;
}

/* The line for the server: another model is named by its run, as for the other requests, and files are
 * not written here. */
static int translate(struct agent *a, const struct json_node *q, struct str *out)
{
    const char *what = json_str(json_get(q, "do"), NULL), *why = NULL, *run, *text;
    const struct run_row *row;
    if (what && strcmp(what, "compare") == 0) {
        run = json_str(json_get(q, "run"), NULL);
        text = json_str(json_get(q, "text"), NULL);
        row = run ? runindex_find(&a->index, run) : NULL;
        if (row && strcmp(row->name, run) == 0) {
            str_add(out, "{");
            json_add_str(out, "do", "compare");
            json_add_str(out, "other", row->path);
            json_add_str(out, "text", text ? text : "");
            json_add_int(out, "lens", json_int(json_get(q, "lens"), 0));
            str_add(out, "}");
            return 1;
        }
        why = "compare: no such run on this host";
    } else if (!what || (strcmp(what, "save") == 0 && json_get(q, "file"))) {
        why = "save: a file on this host cannot be written from elsewhere";
    }
    if (!why)
        return 0;
    str_add(out, "{");
    json_add_str(out, "do", "refuse");
    json_add_str(out, "text", what ? why : "request: expected an object with \"do\"");
    str_add(out, "}");
    return 1;
}

static void say_to_model(struct agent *a, int64_t id, const char *line)
{
    struct json *j = NULL;
    struct str own = {0};
    int is_json = json_parse(&j, line, strlen(line), "request", NULL) == 0;
    int is_own = translate(a, is_json ? json_root(j) : NULL, &own);
    if (own.failed)
        models_break(&a->models, id);
    else
        models_say(&a->models, id, is_own ? str_text(&own) : line);
    str_release(&own);
    json_free(j);
}

static int poll_models(struct agent *a, struct err *e)
{
    struct model_answer x;
    int rc = 0;
    while (rc == 0 && has_window(a) && models_next(&a->models, &x))
        rc = say_model(a, x.id, x.bytes, x.n, x.n > 0 ? NULL : x.why, e);
    return rc;
}

/* ---- requests ---- */

static int has_log(const char *root)
{
    char log[1100];
    return fs_join(log, sizeof log, root, "log.mp", NULL) == 0 && fs_exists(log);
}

/* "~/x" is in the user's home, as their shell would have it; "" is where runs usually are. */
static int open_root(struct agent *a, const char *root, struct err *e)
{
    const char *home = getenv("HOME");
    int rc = 0;
    if (root[0] == '~' && (root[1] == '/' || root[1] == '\0') && home)
        rc = fs_join(a->root, sizeof a->root, home, root[1] ? root + 2 : ".", e);
    else if (root[0] && str_copy(a->root, sizeof a->root, root))
        rc = err_set(e, DS_ERANGE, "%.80s: the path is too long", root);
    const struct foreign_format *format;
    a->root[fs_trimmed(a->root)] = '\0';
    if (rc == 0 && (has_log(a->root) || foreign_find(a->root, &format))) {
        a->only = a->root;
        a->index.also = &a->only;
        a->index.alsos = 1;
    }
    if (rc == 0)
        rc = look(a, e);
    if (rc == 0)
        rc = send_hello(a, e);
    if (rc == 0 && !a->only && !fs_is_dir(a->root)) {
        record_begin(a->rec, "error", 0, clock_wall());
        record_str(a->rec, "text", "no such folder");
        rc = send_record(a, e);
    }
    return rc;
}

static int take_request(struct agent *a, const char *line, size_t n, struct err *e)
{
    struct json *j = NULL;
    struct err why = {0};
    int rc = 0;
    if (json_parse(&j, line, n, "request", &why) < 0) {
        record_begin(a->rec, "error", 0, clock_wall());
        record_str(a->rec, "text", why.text);
        return send_record(a, e);
    }
    const struct json_node *r = json_root(j);
    const char *what = json_get_text(r, "do");
    if (strcmp(what, "open") == 0)
        rc = open_root(a, json_get_text(r, "root"), e);
    else if (strcmp(what, "list") == 0)
        a->lists = 1;
    else if (strcmp(what, "ack") == 0)
        acknowledge(a, json_int(json_get(r, "bytes"), 0));
    else if (strcmp(what, "follow") == 0)
        rc = start_follow(a, json_get_text(r, "run"), (uint64_t)json_int(json_get(r, "from"), 0),
                          (uint32_t)json_int(json_get(r, "id"), 0), e);
    else if (strcmp(what, "probes") == 0)
        ask_probes(a, json_get_text(r, "run"), json_int(json_get(r, "from"), -1));
    else if (strcmp(what, "detail") == 0)
        ask_detail(a, json_get_text(r, "run"), json_int(json_get(r, "from"), 0),
                   json_int(json_get(r, "to"), -1));
    else if (strcmp(what, "drop") == 0)
        drop(a, json_get_text(r, "run"));
    else if (strcmp(what, "command") == 0)
        rc = start_command(a, json_int(json_get(r, "id"), 0), json_get_text(r, "run"),
                           json_get_text(r, "line"), e);
    else if (strcmp(what, "start") == 0 || strcmp(what, "resume") == 0 ||
             strcmp(what, "checkpoints") == 0)
        rc = start_run(a, what, r, e);
    else if (strcmp(what, "echo") == 0)
        rc = send_answer(a, json_int(json_get(r, "id"), 0), 1, "", e);
    else if (strcmp(what, "model") == 0)
        rc = open_model(a, json_int(json_get(r, "id"), 0), json_get_text(r, "run"), e);
    else if (strcmp(what, "say") == 0)
        say_to_model(a, json_int(json_get(r, "id"), 0), json_get_text(r, "line"));
    else if (strcmp(what, "hang") == 0)
        models_hang(&a->models, json_int(json_get(r, "id"), 0));
    else if (json_get(r, "id")) /* of a newer program, which waits for an answer */
        rc = send_answer(a, json_int(json_get(r, "id"), 0), 0, "unknown request", e);
    json_free(j);
    return rc;
}

static int take_input(struct agent *a, struct err *e)
{
    char chunk[4096];
    size_t got = 0, at = 0;
    int rc = fs_read_some(STDIN_FILENO, chunk, sizeof chunk, &got, "requests", e);
    if (rc < 0)
        return rc;
    a->is_done = got == 0;
    str_add_bytes(&a->in, chunk, got);
    if (a->in.failed)
        return err_set(e, DS_EMEM, "agent: out of memory for a request");
    if (a->in.len == 0)
        return 0;
    for (char *end; rc == 0 && at < a->in.len && (end = memchr(a->in.p + at, '\n', a->in.len - at));
         at = (size_t)(end - a->in.p) + 1)
        rc = take_request(a, a->in.p + at, (size_t)(end - (a->in.p + at)), e);
    memmove(a->in.p, a->in.p + at, a->in.len - at);
    a->in.len -= at;
    if (rc == 0 && a->in.len > REQUEST_MAX)
        rc = err_set(e, DS_ERANGE, "agent: a request of more than %d bytes", REQUEST_MAX);
    return rc;
}

static int turn(struct agent *a, struct err *e)
{
    struct pollfd p[1 + MODELS_MAX] = {{.fd = STDIN_FILENO, .events = POLLIN}};
    int n = 1 + (has_window(a) ? models_watch(&a->models, p + 1) : 0);
    int is_busy = has_window(a) && (a->next_row < a->index.n), rc = 0;
    for (int i = 0; i < a->follows; i++)
        is_busy |= has_window(a) && a->follow[i].due == 0;
    if (poll(p, (nfds_t)n,
             is_busy                      ? 0
             : a->commands || a->starts.n ? 50
             : a->follows                 ? 250
                                          : 500) > 0 &&
        p[0].revents)
        rc = take_input(a, e);
    if (rc == 0 && a->lists)
        rc = send_rows(a, e);
    for (int i = a->follows - 1; rc == 0 && i >= 0; i--) /* one may leave */
        rc = send_log(a, &a->follow[i], e);
    if (rc == 0)
        rc = poll_commands(a, e);
    if (rc == 0)
        rc = poll_starts(a, e);
    if (rc == 0)
        rc = poll_models(a, e);
    if (rc == 0 && clock_mono() > a->beat + beat_s) { /* that the line is alive */
        record_begin(a->rec, "beat", 0, clock_wall());
        rc = send_record(a, e);
    }
    return rc;
}

static int serve(struct agent *a, struct err *e)
{
    a->rec = record_new();
    if (!a->rec)
        return err_set(e, DS_EMEM, "agent: out of memory");
    int rc = 0;
    while (rc == 0 && !a->is_done)
        rc = turn(a, e);
    return rc;
}

static void release(struct agent *a)
{
    while (a->follows > 0)
        drop(a, a->follow[0].run);
    while (a->commands > 0)
        job_request_close(a->command[--a->commands].request);
    starts_release(&a->starts);
    models_release(&a->models);
    runindex_release(&a->index);
    map_release(&a->sent);
    record_free(a->rec);
    str_release(&a->in);
    str_release(&a->frame);
    str_release(&a->bodies);
}

int agent_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args args;
    struct agent a = {.out = -1};
    const char *root = NULL;
    int rc = cli_parse(&args, agent_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    if (args.n_rest > 0)
        rc = cli_single(&args, "agent", "ROOT", &root, &e);
    if (rc == 0 && args.n_override > 0)
        rc = err_set(&e, DS_EUSAGE, "agent: unexpected setting %s", args.override[0]);
    if (rc == 0 && str_copy(a.root, sizeof a.root, root ? root : job_root()))
        rc = err_set(&e, DS_ERANGE, "%.80s: the path is too long", root ? root : job_root());
    /* only records leave on the original standard output */
    if (rc == 0 && ((a.out = dup(STDOUT_FILENO)) < 0 || dup2(STDERR_FILENO, STDOUT_FILENO) < 0))
        rc = err_errno(&e, "agent: standard output");
    a.readonly = cli_flag(&args, "readonly");
    signal(SIGPIPE, SIG_IGN);
    if (rc == 0)
        rc = serve(&a, &e);
    release(&a);
    if (a.out >= 0)
        close(a.out);
    cli_release(&args);
    return rc < 0 ? command_fail(&e) : 0;
}
