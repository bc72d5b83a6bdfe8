/* See host_tail.h.  Requests to the shell are four lines (what, two numbers, a path) and are answered in
 * their order, one at a time. */
#include "io/host_tail.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/host.h"
#include "io/record.h"
#include "io/runindex.h"

enum {
    LOGS_MAX = 2000,
    FOLLOWS_MAX = 16,
    PIECE = 16 << 10,                     /* bytes of a log at a time */
    PIECE_MAX = RECORD_MAX + RECORD_HEAD, /* for a record of more than that: any one is whole */
    BODIES_MAX = RECORD_MAX - (4 << 10),  /* bytes of records inside a message, itself a record */
    LATEST = 4 << 10,                     /* bytes from which a list takes the newest values, */
    HEAD = 16 << 10,                      /* and the head */
    LONG_LOG = 128 << 10, /* from here on only the beginning and the last 64 KiB come */
    LAST = 64 << 10,
    LOOKS_MAX = 8, /* logs whose newest values are read after a list, and at a time */
    ASKED_MAX = 2 * LOOKS_MAX,
    LOCKS_MAX = 1024,
    LINE_MAX = 2048
};
/* first_s: for the newest values of all logs, before the list counts as complete without them */
static const double list_s = 5, follow_s = 1, young_s = 15, first_s = 60;

/* data: exactly as many bytes as announced, whatever happens to the file meanwhile. */
const char host_tail_command[] =
    "exec sh -c 'IFS=; echo depthscope-tail 1\n"
    "if stat -c %s . >/dev/null 2>&1; then look() { stat -c \"%s %Y %i %n\" \"$@\"; }\n"
    "else look() { stat -f \"%z %m %i %N\" \"$@\"; }; fi\n"
    "while read -r what && read -r at && read -r most && read -r path; do case $what in\n"
    "open) case $path in \\~/*) path=$HOME/${path#??};; \\~) path=$HOME;;\n"
    "\"\") path=${DEPTHSCOPE_RUNS:-runs};; esac; only=\n"
    "if [ -f \"$path/log.mp\" ]; then path=${path%/}; only=${path##*/}\n"
    "case $path in */*) path=${path%/*}/;; *) path=.;; esac; fi\n"
    "if cd -- \"$path\" 2>/dev/null; then echo \"ok $only\"; else echo no; fi;;\n"
    "list) if [ \"$only\" ]; then new=$(look \"./$only/log.mp\" 2>/dev/null)\n"
    "else new=$(look ./*/log.mp ./*/*/log.mp ./*/*/*/log.mp ./*/*/*/*/log.mp 2>/dev/null\n"
    "for c in ./*/config.yaml ./*/*/config.yaml; do\n"
    "if [ -f \"$c\" ] && ! [ -f \"${c%/*}/log.mp\" ]; then look \"$c\"; fi; done 2>/dev/null); fi\n"
    "if [ \"$new\" != \"$old\" ]; then printf \"%s\\n\" \"$new\"; fi; old=$new\n"
    "new=$({ while read -r l; do case $l in *FLOCK*WRITE*) l=${l##*:}; echo \"lock ${l%% *}\";;\n"
    "esac; done </proc/locks; } 2>/dev/null)\n"
    "if [ \"$new\" != \"$held\" ]; then printf \"locks\\n%s\\n\" \"$new\"; fi; held=$new\n"
    "echo \"end $(date +%s)\";;\n"
    "data) n=$(wc -c <\"./$path/log.mp\" 2>/dev/null); n=${n:-0}; n=$((n+0)); k=$((n-at))\n"
    "[ $k -lt 0 ] && k=0; [ $k -gt $most ] && k=$most; echo \"data $k $n\"\n"
    "[ $k -gt 0 ] && { tail -c +$((at+1)) \"./$path/log.mp\"; cat /dev/zero; } 2>/dev/null | head "
    "-c $k;;\n"
    "esac; done'";

enum asked { ASK_OPEN, ASK_LIST, ASK_FOLLOW, ASK_FIRST, ASK_HEAD, ASK_LATEST };
struct question {
    enum asked what;
    char run[256]; /* that was asked about */
    uint64_t at;   /* byte of its log */
};

struct log_file {
    char name[256];
    uint64_t size, seen; /* seen: the size whose newest values are known */
    int64_t id, modified;
    struct run_phase phase;
    double number[RUN_NUMBERS];
    int rank[RUN_NUMBERS]; /* of an evaluation that a number is of; 0: of a metric record */
    char method[32], run_id[40], parent[65];
    int is_listed, is_locked, is_asked, has_head;
    int is_changed;      /* since its row was said, */
    enum run_state said; /* with this state */
};
struct tail_follow {
    char run[256];
    uint64_t at, most;
    int64_t id;
    int is_reset, is_first; /* the beginning of a long log comes first */
    double due;
};
struct host_tail {
    struct record *rec;
    struct str in;
    struct log_file *log;
    size_t n, cap;
    struct tail_follow follow[FOLLOWS_MAX];
    int follows;
    char root[1024];
    int has_begun, is_greeted, is_open, lists, is_listed;
    struct question asked[ASKED_MAX]; /* in the order of the answers */
    int askeds;
    size_t bytes; /* of the data that is coming */
    int is_data;
    uint64_t size;           /* of that log */
    int64_t lock[LOCKS_MAX]; /* files that are locked there */
    int locks;
    double now, opened, listed, now_there;
    uint64_t seq;
    int looks, has_lines; /* left of this list; whether it has changed */
};

struct host_tail *host_tail_new(void)
{
    struct host_tail *t = mem_alloc(1, sizeof *t);
    if (t && !(t->rec = record_new())) {
        mem_free(t);
        return NULL;
    }
    return t;
}

void host_tail_free(struct host_tail *t)
{
    if (!t)
        return;
    record_free(t->rec);
    str_release(&t->in);
    mem_free(t->log);
    mem_free(t);
}

static void finish(struct host_tail *t, struct str *frames)
{
    if (record_end(t->rec, ++t->seq, frames, NULL) < 0)
        frames->failed = 1;
}

static void begin(struct host_tail *t, const char *kind)
{
    record_begin(t->rec, kind, 0, t->now_there > 0 ? t->now_there : clock_wall());
}

/* ---- asking ---- */

static void ask(struct host_tail *t, enum asked what, const char *word, uint64_t at, uint64_t most,
                const char *path, struct str *out)
{
    struct question *q = &t->asked[t->askeds++];
    *q = (struct question){.what = what, .at = at};
    str_copy(q->run, sizeof q->run, path);
    str_addf(out, "%s\n%" PRIu64 "\n%" PRIu64 "\n", word, at, most);
    str_add(out, path);
    str_add(out, "\n");
}

static void answered(struct host_tail *t)
{
    memmove(t->asked, t->asked + 1, (size_t)--t->askeds * sizeof t->asked[0]);
}

static struct log_file *log_of(struct host_tail *t, const char *name)
{
    for (size_t i = 0; i < t->n; i++)
        if (strcmp(t->log[i].name, name) == 0)
            return &t->log[i];
    return NULL;
}

static void drop(struct host_tail *t, const char *run)
{
    for (int i = 0; i < t->follows; i++) {
        if (strcmp(t->follow[i].run, run) != 0)
            continue;
        t->follow[i] = t->follow[--t->follows];
        return;
    }
}

static void start_follow(struct host_tail *t, const char *run, uint64_t from, int64_t id)
{
    drop(t, run);
    if (t->follows == FOLLOWS_MAX)
        return;
    struct tail_follow *f = &t->follow[t->follows++];
    *f = (struct tail_follow){.id = from > 0 ? id : -1, .at = from, .most = PIECE};
    str_copy(f->run, sizeof f->run, run);
}

/* Is it listed?  Another file than the one that was read begins anew. */
static int is_ready(struct host_tail *t, struct tail_follow *f)
{
    const struct log_file *l = log_of(t, f->run);
    if (l && l->id != f->id) {
        f->id = l->id;
        f->at = 0;
        f->is_reset = 1;
        f->is_first = l->size > LONG_LOG;
    }
    return l != NULL;
}

static void refuse(struct host_tail *t, const char *kind, int64_t id, struct str *frames)
{
    static const char why[] =
        "only logs can be read there: neither depthscope nor python3 is found";
    begin(t, kind);
    record_int(t->rec, "id", id);
    record_bool(t->rec, "ok", 0);
    record_str(t->rec, kind[0] == 's' ? "end" : "text", why);
    finish(t, frames);
}

static void take_request(struct host_tail *t, const struct json_node *r, struct str *frames)
{
    const char *what = json_get_text(r, "do");
    int64_t id = json_int(json_get(r, "id"), 0);
    if (strcmp(what, "open") == 0)
        str_copy(t->root, sizeof t->root, json_get_text(r, "root"));
    else if (strcmp(what, "list") == 0)
        t->lists = 1;
    else if (strcmp(what, "follow") == 0)
        start_follow(t, json_get_text(r, "run"), (uint64_t)json_int(json_get(r, "from"), 0), id);
    else if (strcmp(what, "drop") == 0)
        drop(t, json_get_text(r, "run"));
    else if (strcmp(what, "command") == 0)
        refuse(t, "answer", id, frames);
    else if (strcmp(what, "model") == 0)
        refuse(t, "said", id, frames);
}

void host_tail_ask(struct host_tail *t, struct str *requests, struct str *frames)
{
    char *end;
    size_t at = 0;
    while (at < requests->len && (end = memchr(requests->p + at, '\n', requests->len - at))) {
        struct json *j = NULL;
        size_t n = (size_t)(end - (requests->p + at));
        if (json_parse(&j, requests->p + at, n, "request", NULL) == 0)
            take_request(t, json_root(j), frames);
        json_free(j);
        at += n + 1;
    }
    if (at > 0)
        memmove(requests->p, requests->p + at, requests->len - at);
    requests->len -= at;
}

static struct log_file *next_look(struct host_tail *t)
{
    struct log_file *best = NULL;
    for (size_t i = 0; i < t->n; i++) {
        struct log_file *l = &t->log[i];
        if (l->is_listed && !l->is_asked && l->seen != l->size &&
            (!best || l->modified > best->modified))
            best = l;
    }
    return best;
}

/* The newest logs that have changed, one after the other without waiting for answers. */
static void look(struct host_tail *t, struct str *out)
{
    struct log_file *l;
    for (int i = 0; i < LOOKS_MAX && t->looks > 0 && (l = next_look(t)); i++) {
        int is_whole = l->size <= HEAD;
        uint64_t at = is_whole ? 0 : l->size - LATEST;
        t->looks--;
        l->is_asked = 1;
        if (!l->has_head && !is_whole)
            ask(t, ASK_HEAD, "data", 0, HEAD, l->name, out);
        ask(t, ASK_LATEST, "data", at, is_whole ? HEAD : LATEST, l->name, out);
    }
}

void host_tail_tick(struct host_tail *t, double now, struct str *out)
{
    struct tail_follow *f = NULL;
    t->now = now;
    if (!t->has_begun || t->askeds > 0)
        return;
    if (!t->is_open) {
        if (!t->is_greeted || now >= t->opened + list_s)
            ask(t, ASK_OPEN, "open", 0, 0, t->root, out);
        t->opened = t->askeds > 0 ? now : t->opened;
        return;
    }
    for (int i = 0; i < t->follows; i++)
        if (now >= t->follow[i].due && (!f || t->follow[i].due < f->due) &&
            is_ready(t, &t->follow[i]))
            f = &t->follow[i];
    if (f) {
        f->due = now + follow_s;
        ask(t, f->is_first ? ASK_FIRST : ASK_FOLLOW, "data", f->at, f->most, f->run, out);
    } else if (t->lists && now >= t->listed + list_s && (t->is_listed || t->looks == 0)) {
        t->listed = now;
        ask(t, ASK_LIST, "list", 0, 0, "", out);
    } else {
        look(t, out);
    }
}

/* ---- the list ---- */

static enum run_state state_of(const struct host_tail *t, const struct log_file *l)
{
    struct run_phase phase = l->phase;
    phase.last_time = (double)l->modified;
    phase.records += phase.records == 0 && l->size > 0; /* as yet unread */
    return run_phase_state(&phase, l->is_locked, t->now_there > 0 ? t->now_there : clock_wall());
}

static void say_row(struct host_tail *t, struct log_file *l, struct str *frames)
{
    enum run_state state = state_of(t, l);
    const struct run_phase *p = &l->phase;
    double flops = l->number[RUN_FLOPS_RATIO];
    /* an evaluation that was not read counts before the FLOPs of training */
    if (l->rank[RUN_FLOPS_RATIO] == 0 && isfinite(l->number[RUN_VAL_LOSS]))
        l->number[RUN_FLOPS_RATIO] = (double)NAN;
    l->number[RUN_STEP] = p->step > 0 || p->is_log ? (double)p->step : (double)NAN;
    l->number[RUN_STEPS] = p->steps_planned > 0 ? (double)p->steps_planned : (double)NAN;
    record_begin(t->rec, "row", l->phase.step, (double)l->modified);
    record_str(t->rec, "name", l->name);
    record_str(t->rec, "state", run_state_name(state));
    record_bool(t->rec, "live", l->is_locked || state == RUN_LIVE);
    record_str(t->rec, "method", l->method);
    record_str(t->rec, "run_id", l->run_id);
    record_str(t->rec, "parent", l->parent);
    record_nums(t->rec, "numbers", l->number, RUN_NUMBERS);
    record_num(t->rec, "modified", (double)l->modified);
    finish(t, frames);
    l->number[RUN_FLOPS_RATIO] = flops;
    l->said = state;
    l->is_changed = 0;
}

/* A run inside the folder of another one is none; runs come before what is below them. */
static int is_inside(struct host_tail *t, const char *name)
{
    char outer[sizeof t->log->name];
    str_copy(outer, sizeof outer, name);
    for (char *slash; (slash = strrchr(outer, '/'));) {
        *slash = '\0';
        const struct log_file *l = log_of(t, outer);
        if (l && l->is_listed)
            return 1;
    }
    return 0;
}

static void say_gone(struct host_tail *t, const char *name, struct str *frames)
{
    begin(t, "gone");
    record_str(t->rec, "name", name);
    finish(t, frames);
}

/* A place for another log: where there are too many, that of the oldest, if it is older. */
static struct log_file *new_log(struct host_tail *t, const char *name, int64_t modified,
                                struct str *frames)
{
    struct log_file *l = NULL;
    void *p = t->log;
    if (t->n < LOGS_MAX && mem_grow(&p, &t->cap, t->n + 1, sizeof *t->log) == 0) {
        t->log = p;
        l = &t->log[t->n++];
    } else if (t->n == LOGS_MAX) {
        for (size_t i = 0; i < t->n; i++)
            if (t->log[i].modified < (l ? l->modified : modified))
                l = &t->log[i];
        if (l && t->is_listed)
            say_gone(t, l->name, frames);
    }
    if (!l)
        return NULL;
    *l = (struct log_file){.id = -1};
    str_copy(l->name, sizeof l->name, name);
    return l;
}

static void forget_values(struct log_file *l, int64_t id)
{
    struct log_file was = *l;
    *l = (struct log_file){.id = id, .is_asked = was.is_asked};
    str_copy(l->name, sizeof l->name, was.name);
    for (int i = 0; i < RUN_NUMBERS; i++)
        l->number[i] = (double)NAN;
}

/* "SIZE MODIFIED INODE ./NAME/log.mp", or config.yaml of a run that has no log yet. */
static void take_listed(struct host_tail *t, char *line, struct str *frames)
{
    static const char log_name[] = "/log.mp", config_name[] = "/config.yaml";
    char *at = line;
    uint64_t size = strtoull(at, &at, 10);
    int64_t modified = strtoll(at, &at, 10), id = strtoll(at, &at, 10);
    size_t n = strlen(at), end = sizeof log_name - 1;
    if (n > sizeof config_name && strcmp(at + n - sizeof config_name + 1, config_name) == 0) {
        end = sizeof config_name - 1;
        size = 0;
    } else if (n < end || strcmp(at + n - end, log_name) != 0) {
        return;
    }
    if (n < 4 + end || strncmp(at, " ./", 3) != 0 || n - end - 3 >= sizeof t->log->name)
        return;
    at[n - end] = '\0';
    at += 3;
    if (is_inside(t, at))
        return;
    struct log_file *l = log_of(t, at);
    l = l ? l : new_log(t, at, modified, frames);
    if (!l)
        return;
    if (l->id != id || size < l->size)
        forget_values(l, id);
    l->is_changed |= l->size != size || l->modified != modified || !l->is_listed;
    l->is_listed = 1;
    l->size = size;
    l->modified = modified;
}

static void drop_gone(struct host_tail *t, struct str *frames)
{
    for (size_t i = 0; i < t->n;) {
        if (t->log[i].is_listed) {
            i++;
            continue;
        }
        say_gone(t, t->log[i].name, frames);
        t->log[i] = t->log[--t->n];
    }
}

/* What is locked there changes the state of a run, and so does time. */
static void say_changed(struct host_tail *t, struct str *frames)
{
    for (size_t i = 0; i < t->n; i++) {
        struct log_file *l = &t->log[i];
        int was_locked = l->is_locked;
        l->is_locked = 0;
        for (int k = 0; k < t->locks; k++)
            l->is_locked |= t->lock[k] == l->id && l->size > 0;
        l->is_changed |= l->is_locked != was_locked;
        /* before anything is known of a run, its row would say nothing */
        if (t->is_listed && (l->is_changed || state_of(t, l) != l->said))
            say_row(t, l, frames);
    }
}

/* The list is complete when the newest values of all logs are known, or when that takes long. */
static void end_first_list(struct host_tail *t, struct str *frames)
{
    int is_waiting = 0;
    for (size_t i = 0; i < t->n; i++)
        is_waiting |= t->log[i].seen != t->log[i].size;
    if (t->is_listed || (is_waiting && t->now < t->listed + first_s))
        return;
    for (size_t i = 0; i < t->n; i++)
        if (t->log[i].is_changed)
            say_row(t, &t->log[i], frames);
    begin(t, "listed");
    finish(t, frames);
    t->is_listed = 1;
    t->looks = 0;
}

/* A line of the answer to "list". */
static void take_list_line(struct host_tail *t, char *line, struct str *frames)
{
    if (strcmp(line, "locks") == 0) {
        t->locks = 0;
    } else if (strncmp(line, "lock ", 5) == 0) {
        if (t->locks < LOCKS_MAX)
            t->lock[t->locks++] = strtoll(line + 5, NULL, 10);
    } else if (strncmp(line, "end ", 4) != 0) {
        for (size_t i = 0; !t->has_lines && i < t->n; i++)
            t->log[i].is_listed = 0; /* it has changed, and comes whole */
        t->has_lines = 1;
        take_listed(t, line, frames);
    } else {
        answered(t);
        t->now_there = strtod(line + 4, NULL);
        t->looks = t->is_listed ? LOOKS_MAX : LOGS_MAX;
        if (t->has_lines)
            drop_gone(t, frames);
        t->has_lines = 0;
        say_changed(t, frames);
        if (t->is_listed) {
            begin(t, "beat");
            finish(t, frames);
        }
        end_first_list(t, frames);
    }
}

/* ---- data ---- */

/* Of the number of a list that a record has: results with inference-time decisions count before metrics,
 * the final one first.  -1: none. */
static int rank_of(struct value body)
{
    static const char *const task[] = {"val", "ppl", "final"};
    struct value kind = value_get(body, "kind");
    if (value_is(kind, "metric"))
        return 0;
    for (size_t i = 0; i < DS_LEN(task); i++)
        if (value_is(kind, "eval") && value_is(value_get(body, "task"), task[i]) &&
            value_is(value_get(body, "routing"), "causal"))
            return (int)i + 1;
    return -1;
}

static void take_head(struct log_file *l, struct value body)
{
    struct value method = value_get(body, "method"), id = value_get(body, "run_id"),
                 parent = value_get(body, "parent");
    if (value_kind(method) == VALUE_STR) /* what a later head leaves out stays */
        value_copy(l->method, sizeof l->method, method);
    if (value_kind(id) == VALUE_STR)
        value_copy(l->run_id, sizeof l->run_id, id);
    if (value_kind(parent) == VALUE_STR)
        value_copy(l->parent, sizeof l->parent, parent);
    l->number[RUN_SEED] = value_num(value_get(body, "seed"), l->number[RUN_SEED]);
    memset(l->rank, 0, sizeof l->rank); /* an earlier final evaluation is that of another length */
    l->has_head = 1;
}

static void take_newest(struct log_file *l, struct value body)
{
    static const struct {
        enum run_number to;
        const char *metric, *eval;
    } keys[] = {{RUN_VAL_LOSS, "val_loss", "loss"},
                {RUN_FLOPS_RATIO, "flops_ratio", "flops_ratio"},
                {RUN_TIME_RATIO, "time_ratio", "time_ratio"},
                {RUN_LOSS, "loss", NULL},
                {RUN_TOK_S, "tok_s", NULL},
                {RUN_MFU, "mfu", NULL}};
    int rank = rank_of(body);
    run_phase_update(&l->phase, body);
    for (size_t i = 0; rank >= 0 && i < DS_LEN(keys); i++) {
        const char *key = rank > 0 ? keys[i].eval : keys[i].metric;
        double x = key ? value_num(value_get(body, key), (double)NAN) : (double)NAN;
        if (!isfinite(x) || rank < l->rank[keys[i].to])
            continue;
        l->number[keys[i].to] = x;
        l->rank[keys[i].to] = rank;
    }
    if (value_is(value_get(body, "kind"), "head"))
        take_head(l, body);
}

/* Whole records from the first one on are passed to `l` (with is_head only heads) or copied, as many as fit;
 * *used: bytes up to the last one's end. */
static void take_records(const char *p, size_t n, struct log_file *l, int is_head,
                         struct str *frames, size_t *used)
{
    size_t pending = n, at = record_scan(p, n, 0, &pending);
    *used = at < pending ? at : pending;
    while (at < n) {
        uint64_t seq;
        struct value body;
        int64_t length = record_parse(p + at, n - at, &seq, &body, NULL);
        if (length == 0)
            break;
        if (length < 0) {
            at = record_scan(p, n, at + 1, &pending);
            *used = at < pending ? at : pending;
            continue;
        }
        if (frames && frames->len > 0 && frames->len + (size_t)length > BODIES_MAX)
            break;
        if (frames && length <= BODIES_MAX) /* or it is left out */
            record_copy(frames, seq, body);
        if (l && (!is_head || value_is(value_get(body, "kind"), "head")))
            take_newest(l, body);
        at += (size_t)length;
        *used = at;
    }
}

static void say_log(struct host_tail *t, struct tail_follow *f, const struct str *bodies,
                    struct str *frames)
{
    const struct log_file *l = log_of(t, f->run);
    begin(t, "log");
    record_str(t->rec, "run", f->run);
    record_int(t->rec, "at", (int64_t)f->at);
    record_int(t->rec, "id", f->id);
    record_bool(t->rec, "reset", f->is_reset);
    record_bool(t->rec, "live",
                l && (l->is_locked || t->now_there - (double)l->modified < young_s));
    record_bytes(t->rec, "frames", bodies->p ? bodies->p : "", bodies->len);
    finish(t, frames);
    f->is_reset = 0;
}

/* Data of a followed log.  Of a long one the first piece is followed by the end. */
static void take_piece(struct host_tail *t, const struct question *q, const char *p, size_t n,
                       struct str *frames)
{
    struct tail_follow *f = NULL;
    struct str bodies = {0};
    size_t used = 0;
    for (int i = 0; i < t->follows; i++)
        f = strcmp(t->follow[i].run, q->run) == 0 ? &t->follow[i] : f;
    if (!f)
        return;
    if (t->size < f->at) { /* another log */
        f->at = 0;
        f->is_reset = 1;
        f->due = 0;
        return;
    }
    take_records(p, n, NULL, 0, &bodies, &used);
    if (bodies.failed) { /* asked for again */
        str_release(&bodies);
        return;
    }
    /* a record that is larger than a piece */
    int is_part = used == 0 && n == f->most && f->most < PIECE_MAX;
    f->most = !is_part ? PIECE : f->most < PIECE_MAX / 4 ? 4 * f->most : PIECE_MAX;
    f->at = q->at + used;
    if (q->what == ASK_FIRST && t->size > LONG_LOG && !is_part)
        f->at = t->size - LAST;
    f->is_first = q->what == ASK_FIRST && is_part;
    if (f->at < t->size && n > 0)
        f->due = 0;
    if (bodies.len > 0 || f->is_reset)
        say_log(t, f, &bodies, frames);
    str_release(&bodies);
}

static void take_data(struct host_tail *t, const char *p, size_t n, struct str *frames)
{
    const struct question q = t->asked[0];
    struct log_file *l = log_of(t, q.run);
    size_t used;
    answered(t);
    if (q.what == ASK_FOLLOW || q.what == ASK_FIRST) {
        take_piece(t, &q, p, n, frames);
    } else if (l && q.what == ASK_HEAD) {
        take_records(p, n, l, 1, NULL, &used);
        l->has_head = 1; /* or it is too large */
    } else if (l) {
        l->phase.has_end &= n == 0; /* an end is the last record, unless the run was resumed */
        take_records(p, n, l, 0, NULL, &used);
        l->seen = l->size;
        l->is_asked = 0;
        say_row(t, l, frames);
    }
    end_first_list(t, frames);
}

/* ---- what the shell prints ---- */

/* "ok", "ok NAME" where a run was named, or "no".  A folder that is not there may still come. */
static void take_opened(struct host_tail *t, const char *line, struct str *frames)
{
    answered(t);
    t->is_open = strncmp(line, "ok", 2) == 0;
    if (t->is_greeted)
        return;
    t->is_greeted = 1;
    begin(t, "agent");
    record_int(t->rec, "protocol", HOST_PROTOCOL);
    record_str(t->rec, "version", "tail");
    record_bool(t->rec, "readonly", 1);
    if (t->is_open && line[2] == ' ' && line[3])
        record_str(t->rec, "run", line + 3);
    finish(t, frames);
    if (t->is_open)
        return;
    begin(t, "error");
    record_str(t->rec, "text", "no such folder");
    finish(t, frames);
}

static void take_line(struct host_tail *t, char *line, struct str *frames)
{
    if (!t->has_begun) {
        t->has_begun = strcmp(line, "depthscope-tail 1") == 0;
    } else if (t->askeds == 0) {
        return;
    } else if (t->asked[0].what == ASK_OPEN) {
        take_opened(t, line, frames);
    } else if (t->asked[0].what == ASK_LIST) {
        take_list_line(t, line, frames);
    } else if (strncmp(line, "data ", 5) == 0) {
        char *at = line + 5;
        uint64_t n = strtoull(at, &at, 10);
        t->size = strtoull(at, NULL, 10);
        t->bytes = n <= PIECE_MAX ? (size_t)n : 0;
        t->is_data = 1;
    }
}

void host_tail_feed(struct host_tail *t, const char *p, size_t n, struct str *frames)
{
    size_t at = 0;
    str_add_bytes(&t->in, p, n);
    for (;;) {
        if (t->is_data) {
            if (t->in.len - at < t->bytes)
                break;
            t->is_data = 0;
            take_data(t, t->in.p + at, t->bytes, frames);
            at += t->bytes;
            continue;
        }
        char *end = at < t->in.len ? memchr(t->in.p + at, '\n', t->in.len - at) : NULL;
        if (!end && t->in.len - at > LINE_MAX)
            at = t->in.len; /* no line of ours */
        if (!end)
            break;
        *end = '\0';
        take_line(t, t->in.p + at, frames);
        at = (size_t)(end - t->in.p) + 1;
    }
    memmove(t->in.p, t->in.p + at, t->in.len - at);
    t->in.len -= at;
    frames->failed |= t->in.failed;
}
