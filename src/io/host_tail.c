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
    PIECE = 16 << 10,     /* bytes of a log at a time */
    PIECE_MAX = 8 << 20,  /* for a record of more than that */
    LATEST = 4 << 10,     /* bytes from which a list takes the newest values */
    LONG_LOG = 128 << 10, /* from here on only the beginning and the last 64 KiB come */
    LAST = 64 << 10,
    LOOKS_MAX = 8, /* logs whose newest values are read after a list */
    LINE_MAX = 2048
};
static const double list_s = 5, follow_s = 1, young_s = 15;

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
    "else new=$(look ./*/log.mp ./*/*/log.mp ./*/*/*/log.mp 2>/dev/null); fi\n"
    "if [ \"$new\" != \"$old\" ]; then printf \"%s\\n\" \"$new\"; fi; old=$new; echo \"end $(date "
    "+%s)\";;\n"
    "data) n=$(wc -c <\"./$path/log.mp\" 2>/dev/null); n=${n:-0}; n=$((n+0)); k=$((n-at))\n"
    "[ $k -lt 0 ] && k=0; [ $k -gt $most ] && k=$most; echo \"data $k $n\"\n"
    "[ $k -gt 0 ] && { tail -c +$((at+1)) \"./$path/log.mp\"; cat /dev/zero; } 2>/dev/null | head "
    "-c $k;;\n"
    "esac; done'";

enum asked { ASK_NOTHING, ASK_OPEN, ASK_LIST, ASK_FOLLOW, ASK_FIRST, ASK_LATEST };

struct log_file {
    char name[256];
    uint64_t size, seen; /* seen: the size whose newest values are known */
    int64_t id, modified;
    struct run_phase phase;
    double number[RUN_NUMBERS];
    char method[32], run_id[40];
    int is_listed;
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
    char root[1024], only[256];
    int has_begun, is_open, lists, is_listed;
    enum asked asked;
    char run[256];     /* that was asked about */
    uint64_t asked_at; /* byte of its log */
    size_t bytes;      /* of the data that is coming */
    int is_data;
    uint64_t size; /* of that log */
    double listed, now_there;
    uint64_t seq;
    int looks;
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
    t->asked = what;
    t->asked_at = at;
    str_copy(t->run, sizeof t->run, path);
    str_addf(out, "%s\n%" PRIu64 "\n%" PRIu64 "\n", word, at, most);
    str_add(out, path);
    str_add(out, "\n");
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
    for (size_t i = 0; t->looks > 0 && i < t->n; i++) {
        struct log_file *l = &t->log[i];
        if (l->is_listed && l->seen != l->size && (!best || l->modified > best->modified))
            best = l;
    }
    return best;
}

void host_tail_tick(struct host_tail *t, double now, struct str *out)
{
    struct tail_follow *f = NULL;
    const struct log_file *l;
    if (!t->has_begun || t->asked != ASK_NOTHING)
        return;
    if (!t->is_open) {
        ask(t, ASK_OPEN, "open", 0, 0, t->root, out);
        return;
    }
    for (int i = 0; i < t->follows; i++)
        if (now >= t->follow[i].due && (!f || t->follow[i].due < f->due) &&
            is_ready(t, &t->follow[i]))
            f = &t->follow[i];
    if (f) {
        f->due = now + follow_s;
        ask(t, f->is_first ? ASK_FIRST : ASK_FOLLOW, "data", f->at, f->most, f->run, out);
    } else if (t->lists && now >= t->listed + list_s) {
        t->listed = now;
        ask(t, ASK_LIST, "list", 0, 0, "", out);
    } else if ((l = next_look(t))) {
        t->looks--;
        uint64_t at = l->size > LATEST ? l->size - LATEST : 0;
        ask(t, ASK_LATEST, "data", at, LATEST, l->name, out);
    }
}

/* ---- the list ---- */

static void say_row(struct host_tail *t, struct log_file *l, struct str *frames)
{
    double now = t->now_there > 0 ? t->now_there : clock_wall();
    struct run_phase phase = l->phase;
    phase.last_time = (double)l->modified;
    phase.records += phase.records == 0; /* as yet unread */
    enum run_state state = run_phase_state(&phase, 0, now);
    record_begin(t->rec, "row", l->phase.step, (double)l->modified);
    record_str(t->rec, "name", l->name);
    record_str(t->rec, "state", run_state_name(state));
    record_bool(t->rec, "live", state == RUN_LIVE);
    record_str(t->rec, "method", l->method);
    record_str(t->rec, "run_id", l->run_id);
    record_nums(t->rec, "numbers", l->number, RUN_NUMBERS);
    record_num(t->rec, "modified", (double)l->modified);
    finish(t, frames);
}

/* "SIZE MODIFIED INODE ./NAME/log.mp" */
static void take_listed(struct host_tail *t, char *line, struct str *frames)
{
    static const char log_name[] = "/log.mp";
    char *at = line;
    uint64_t size = strtoull(at, &at, 10);
    int64_t modified = strtoll(at, &at, 10), id = strtoll(at, &at, 10);
    size_t n = strlen(at);
    if (n < 3 + sizeof log_name || strncmp(at, " ./", 3) != 0 ||
        strcmp(at + n - sizeof log_name + 1, log_name) != 0)
        return;
    at[n - sizeof log_name + 1] = '\0';
    at += 3;
    struct log_file *l = log_of(t, at);
    void *p = t->log;
    if (!l && (strlen(at) >= sizeof l->name || t->n == LOGS_MAX ||
               mem_grow(&p, &t->cap, t->n + 1, sizeof *t->log) < 0))
        return;
    t->log = p;
    if (!l) {
        l = &t->log[t->n++];
        *l = (struct log_file){.id = id};
        str_copy(l->name, sizeof l->name, at);
        for (int i = 0; i < RUN_NUMBERS; i++)
            l->number[i] = (double)NAN;
    }
    l->is_listed = 1;
    l->size = size;
    l->modified = modified;
    l->id = id;
    say_row(t, l, frames);
}

static void say_gone(struct host_tail *t, struct str *frames)
{
    for (size_t i = 0; i < t->n;) {
        struct log_file *l = &t->log[i];
        if (l->is_listed) {
            i++;
            continue;
        }
        begin(t, "gone");
        record_str(t->rec, "name", l->name);
        finish(t, frames);
        *l = t->log[--t->n];
    }
}

/* A line of the answer to "list". */
static void take_list_line(struct host_tail *t, char *line, struct str *frames)
{
    if (strncmp(line, "end ", 4) != 0) {
        for (size_t i = 0; t->looks >= 0 && i < t->n; i++)
            t->log[i].is_listed = 0; /* it has changed, and comes whole */
        t->looks = -1;
        take_listed(t, line, frames);
        return;
    }
    int has_changed = t->looks < 0;
    t->now_there = strtod(line + 4, NULL);
    t->looks = LOOKS_MAX;
    t->asked = ASK_NOTHING;
    if (has_changed)
        say_gone(t, frames);
    begin(t, t->is_listed ? "beat" : "listed");
    finish(t, frames);
    t->is_listed = 1;
}

/* ---- data ---- */

static void take_newest(struct log_file *l, struct value body)
{
    static const struct {
        enum run_number to;
        const char *key;
    } keys[] = {{RUN_LOSS, "loss"},   {RUN_VAL_LOSS, "val_loss"},
                {RUN_TOK_S, "tok_s"}, {RUN_FLOPS_RATIO, "flops_ratio"},
                {RUN_MFU, "mfu"},     {RUN_TIME_RATIO, "time_ratio"},
                {RUN_STEPS, "steps"}, {RUN_SEED, "seed"},
                {RUN_STEP, "step"}};
    int is_metric = value_is(value_get(body, "kind"), "metric");
    int is_head = value_is(value_get(body, "kind"), "head");
    run_phase_update(&l->phase, body);
    for (size_t i = 0; i < DS_LEN(keys); i++)
        if (keys[i].to == RUN_STEPS || keys[i].to == RUN_SEED ? is_head : is_metric)
            l->number[keys[i].to] = value_num(value_get(body, keys[i].key), l->number[keys[i].to]);
    if (!is_head)
        return;
    value_copy(l->method, sizeof l->method, value_get(body, "method"));
    value_copy(l->run_id, sizeof l->run_id, value_get(body, "run_id"));
}

/* Whole records from the first one on are passed to `l` or copied; *used: bytes up to the last one's end. */
static void take_records(const char *p, size_t n, struct log_file *l, struct str *frames,
                         size_t *used)
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
        if (l)
            take_newest(l, body);
        else
            record_copy(frames, seq, body);
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
    record_bool(t->rec, "live", l && t->now_there - (double)l->modified < young_s);
    record_bytes(t->rec, "frames", bodies->p ? bodies->p : "", bodies->len);
    finish(t, frames);
    f->is_reset = 0;
}

/* Data of a followed log.  Of a long one the first piece is followed by the end. */
static void take_piece(struct host_tail *t, const char *p, size_t n, struct str *frames)
{
    struct tail_follow *f = NULL;
    struct str bodies = {0};
    size_t used = 0;
    for (int i = 0; i < t->follows; i++)
        f = strcmp(t->follow[i].run, t->run) == 0 ? &t->follow[i] : f;
    if (!f)
        return;
    if (t->size < f->at) { /* another log */
        f->at = 0;
        f->is_reset = 1;
        f->due = 0;
        return;
    }
    take_records(p, n, NULL, &bodies, &used);
    if (bodies.failed) { /* asked for again */
        str_release(&bodies);
        return;
    }
    f->at = t->asked_at + used;
    if (t->asked == ASK_FIRST && t->size > LONG_LOG)
        f->at = t->size - LAST;
    f->is_first = 0;
    /* a record that is larger than a piece */
    f->most = used == 0 && n == f->most && f->most < PIECE_MAX ? 4 * f->most : PIECE;
    if (f->at < t->size && n > 0)
        f->due = 0;
    if (bodies.len > 0 || f->is_reset)
        say_log(t, f, &bodies, frames);
    str_release(&bodies);
}

static void take_data(struct host_tail *t, const char *p, size_t n, struct str *frames)
{
    struct log_file *l = log_of(t, t->run);
    size_t used;
    if (t->asked == ASK_LATEST && l) {
        l->phase.has_end &= n == 0; /* an end is the last record, unless the run was resumed */
        take_records(p, n, l, NULL, &used);
        l->seen = l->size;
        say_row(t, l, frames);
    } else if (t->asked != ASK_LATEST) {
        take_piece(t, p, n, frames);
    }
    t->asked = ASK_NOTHING;
}

/* ---- what the shell prints ---- */

static void take_line(struct host_tail *t, char *line, struct str *frames)
{
    if (!t->has_begun) {
        t->has_begun = strcmp(line, "depthscope-tail 1") == 0;
    } else if (t->asked == ASK_OPEN) {
        int is_there = strncmp(line, "ok", 2) == 0;
        t->asked = ASK_NOTHING;
        t->is_open = 1;
        t->lists &= is_there;
        begin(t, "agent");
        record_int(t->rec, "protocol", HOST_PROTOCOL);
        record_str(t->rec, "version", "tail");
        record_bool(t->rec, "readonly", 1);
        if (is_there && line[2] == ' ' && line[3])
            record_str(t->rec, "run", line + 3);
        finish(t, frames);
        if (!is_there) {
            begin(t, "error");
            record_str(t->rec, "text", "no such folder");
            finish(t, frames);
        }
    } else if (t->asked == ASK_LIST) {
        take_list_line(t, line, frames);
    } else if (t->asked != ASK_NOTHING && strncmp(line, "data ", 5) == 0) {
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
