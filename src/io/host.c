/* The near end of a host: an ssh child, the messages of its agent, and mirrors of followed runs. */
#include "io/host.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/log.h"
#include "base/map.h"
#include "base/mem.h"
#include "io/host_fallback.h"
#include "io/host_models.h"
#include "io/host_tail.h"
#include "io/host_parts.h"
#include "io/record.h"

enum {
    ROWS_MAX = 20000,
    MIRRORS_MAX = 16,
    ANSWERS_MAX = 8,
    READ_MAX = 256 << 10, /* bytes of one poll: the screen comes first */
    NOT_FOUND = 127,      /* what a shell says of a missing program */
    NOISE_MAX = 64 << 10  /* banners before the agent's first record */
};
static const double silent_s = 15, first_wait_s = 1, longest_wait_s = 5, greet_s = 20,
                    settle_s = 0.3, echo_s = 10;

/* The log of a followed run here.  `at` and `id` say what of the log there it holds. */
struct mirror {
    char run[256], dir[1024];
    int fd; /* of log.mp, locked while the run there is live; -1: not followed */
    uint64_t at, seq;
    int64_t id;
    int64_t probes; /* those before this byte of the log there have come */
    int wants_probes;
    int is_summary;                     /* what it holds */
    double from, to;                    /* steps that it holds in detail */
    double want_from, want_to, want_at; /* steps that are wanted, since when; NaN: none are */
};
struct host_answer {
    int64_t id; /* 0: free */
    int has_come, is_ok;
    double sent;
    char text[512];
};
/* What speaks at the other end: the program; where that is missing a Python script; where Python is missing,
 * too, a shell. */
enum far { FAR_PROGRAM, FAR_PYTHON, FAR_TAIL };

/* box: as ssh takes it; name: without the user. */
struct host {
    char target[1024], box[HOST_NAME], name[HOST_NAME], root[1024], port[8], dir[1024], why[400],
        version[64], only[256], does[256], presets[HOST_PRESETS], reason[60],
        note[120]; /* reason: not to use the program there */
    int dir_fd;    /* holds the lock of `dir`, so that no other machine takes it to be abandoned */
    struct child ssh;
    enum host_state state;
    enum far far; /* how it is tried next */
    int is_readonly, is_listed, is_greeted, is_silent;
    double since, wait_s, retry, heard, latency_s, skew_s, asked;
    struct str in, out;
    uint64_t listed;
    uint64_t bytes_in, bytes_out, given, acked; /* of this connection: read, and acknowledged */
    struct run_row **row;
    size_t rows, cap;
    struct map row_of; /* name -> index */
    struct mirror mirror[MIRRORS_MAX];
    int mirrors;
    struct host_models models;
    struct host_tail *tail; /* speaks as an agent for FAR_TAIL, else NULL */
    struct str to_shell;
    struct host_answer answer[ANSWERS_MAX];
    int64_t last_id, echo_id; /* echo_id: of the one on its way, 0 none */
    double echoed;            /* when it was sent */
};

const char *host_state_name(enum host_state state)
{
    static const char *const name[] = {"connecting", "up", "reconnecting", "failed"};
    return (unsigned)state < DS_LEN(name) ? name[state] : "";
}

/* ---- targets ---- */

int host_is_target(const char *target)
{
    const char *colon = strchr(target, ':'), *slash = strchr(target, '/');
    if (fs_exists(target))
        return 0;
    return strncmp(target, "ssh://", 6) == 0 ||
           (colon && colon > target && (!slash || colon < slash));
}

/* "user@box.example", "[::1]" without the brackets: nothing that ssh could take for an option. */
static int is_name(const char *s)
{
    size_t n = strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@%:");
    return s[0] != '-' && s[0] != '\0' && s[n] == '\0';
}

static int parse_target(struct host *h, const char *target, struct err *e)
{
    char text[1024];
    if (str_copy(text, sizeof text, target))
        return err_set(e, DS_ERANGE, "%.80s: host and path too long", target);
    int is_url = strncmp(text, "ssh://", 6) == 0;
    char *box = is_url ? text + 6 : text, *end = strchr(box, is_url ? '/' : ':'), *port = NULL;
    const char *root = end ? end + !is_url : "";
    char kept[1024] = "";
    str_copy(kept, sizeof kept, root);
    if (is_url && strncmp(kept, "/~/", 3) == 0)
        memmove(kept, kept + 1, strlen(kept));
    if (end)
        *end = '\0';
    if (is_url && (port = strrchr(box, ':')))
        *port++ = '\0';
    if (!is_name(box) || strlen(box) >= sizeof h->name ||
        (port && (port[0] == '\0' || strlen(port) >= sizeof h->port ||
                  port[strspn(port, "0123456789")] != '\0')))
        return err_set(e, DS_EUSAGE, "%.80s: not a host, expected box:runs or ssh://user@box/path",
                       target);
    str_copy(h->target, sizeof h->target, target);
    str_copy(h->box, sizeof h->box, box);
    str_copy(h->name, sizeof h->name, strrchr(box, '@') ? strrchr(box, '@') + 1 : box);
    str_copy(h->port, sizeof h->port, port ? port : "");
    str_copy(h->root, sizeof h->root, kept);
    return 0;
}

/* ---- sending ---- */

static void flush_out(struct host *h)
{
    struct str *out = h->tail ? &h->to_shell : &h->out;
    if (h->tail) {
        host_tail_ask(h->tail, &h->out, &h->in);
        host_tail_tick(h->tail, clock_mono(), out);
    }
    if (h->out.failed || out->failed) /* host_poll disconnects */
        return;
    while (h->ssh.in >= 0 && out->len > 0) {
        ssize_t n = send(h->ssh.in, out->p, out->len, MSG_NOSIGNAL);
        if (n <= 0)
            return; /* full, or about to be found closed by the reader */
        memmove(out->p, out->p + n, out->len - (size_t)n);
        out->len -= (size_t)n;
        h->bytes_out += (uint64_t)n;
    }
}

static void ask_follow(struct host *h, const struct mirror *m)
{
    str_add(&h->out, "{\"do\":\"follow\"");
    json_add_str(&h->out, "run", m->run);
    json_add_int(&h->out, "from", (int64_t)m->at);
    json_add_int(&h->out, "id", m->id);
    str_add(&h->out, "}\n");
}

static void ask_probes(struct host *h, const struct mirror *m)
{
    str_add(&h->out, "{\"do\":\"probes\"");
    json_add_str(&h->out, "run", m->run);
    json_add_int(&h->out, "from", m->wants_probes ? m->probes : -1);
    str_add(&h->out, "}\n");
}

static void ask_log(struct host *h, const struct mirror *m)
{
    ask_follow(h, m);
    if (m->wants_probes)
        ask_probes(h, m);
}

static void ask_open(struct host *h)
{
    str_add(&h->out, "{\"do\":\"open\"");
    json_add_int(&h->out, "protocol", HOST_PROTOCOL);
    json_add_str(&h->out, "root", h->root);
    str_add(&h->out, "}\n{\"do\":\"list\"}\n");
    for (int i = 0; i < h->mirrors; i++)
        if (h->mirror[i].fd >= 0)
            ask_log(h, &h->mirror[i]);
}

/* ---- connection ---- */

static void disconnect(struct host *h, const char *why)
{
    child_close(&h->ssh, SIGTERM);
    h->ssh = (struct child)CHILD_NONE;
    host_models_lost(&h->models);
    host_tail_free(h->tail);
    h->tail = NULL;
    str_renew(&h->in);
    str_renew(&h->out);
    str_renew(&h->to_shell);
    h->given = h->acked = 0;
    h->is_greeted = 0;
    h->echo_id = 0;
    h->echoed = 0; /* the way may be another one */
    h->state = isfinite(h->heard) ? HOST_RECONNECTING : HOST_FAILED;
    str_copy(h->why, sizeof h->why, why);
    h->retry = clock_mono() + h->wait_s;
    h->wait_s = fmin(2 * h->wait_s, longest_wait_s);
    for (int i = 0; i < ANSWERS_MAX; i++) {
        struct host_answer *x = &h->answer[i];
        if (x->id == 0 || x->has_come)
            continue;
        x->has_come = 1;
        x->is_ok = 0;
        snprintf(x->text, sizeof x->text, "%s: the line was lost; the command may have arrived",
                 h->name);
    }
}

/* The command line at the far end holds nothing of ours that its shell could read otherwise: the
 * folder travels in the first request, the script before it. */
static const char *far_command(const struct host *h)
{
    if (h->far == FAR_TAIL)
        return host_tail_command;
    if (h->far == FAR_PYTHON)
        return "exec python3 -c 'import os;exec(b\"\".join(iter(lambda:os.read(0,1),b\"\\0\")))'";
    return h->is_readonly
               ? "PATH=\"$PATH:$HOME/.local/bin:$HOME/bin\" exec depthscope agent --readonly"
               : "PATH=\"$PATH:$HOME/.local/bin:$HOME/bin\" exec depthscope agent";
}

static void send_script(struct host *h)
{
    str_addf(&h->out, "READONLY = %s\n", h->is_readonly ? "True" : "False");
    for (int i = 0; host_fallback[i]; i++)
        str_add(&h->out, host_fallback[i]);
    str_add_bytes(&h->out, "", 1);
}

static int connect_host(struct host *h)
{
    const char *program = getenv("DEPTHSCOPE_SSH"), *argv[20];
    struct err e = {0};
    int n = 0;
    program = program && program[0] ? program : "ssh";
    argv[n++] = program;
    argv[n++] = "-T";
    argv[n++] = "-C";
    argv[n++] = "-oBatchMode=yes"; /* a prompt would be typed over the screen */
    argv[n++] = "-oConnectTimeout=10";
    argv[n++] = "-oServerAliveInterval=5";
    argv[n++] = "-oServerAliveCountMax=3";
    if (h->port[0]) {
        argv[n++] = "-p";
        argv[n++] = h->port;
    }
    argv[n++] = "--";
    argv[n++] = h->box;
    argv[n++] = far_command(h);
    argv[n] = NULL;
    const struct child_setup how = {.program = program,
                                    .argv = argv,
                                    .in = CHILD_SOCKET,
                                    .out = CHILD_PIPE,
                                    .err = CHILD_PIPE,
                                    .is_nonblocking = 1,
                                    .is_session = 1};
    h->since = clock_mono();
    h->state = isfinite(h->heard) ? HOST_RECONNECTING : HOST_CONNECTING;
    if (child_start(&h->ssh, &how, &e) < 0) {
        disconnect(h, e.text);
        return 1;
    }
    if (h->far == FAR_PYTHON)
        send_script(h);
    if (h->far == FAR_TAIL)
        h->tail = host_tail_new();
    ask_open(h);
    flush_out(h);
    return 1;
}

/* ---- rows ---- */

static enum run_state state_of(struct value body)
{
    struct value v = value_get(body, "state");
    for (int s = 0; s < RUN_STATES; s++)
        if (value_is(v, run_state_name((enum run_state)s)))
            return (enum run_state)s;
    return RUN_EMPTY;
}

static double our_time(const struct host *h, double theirs)
{
    return theirs > 0 && isfinite(h->skew_s) ? theirs - h->skew_s : theirs;
}

static void read_row(const struct host *h, struct run_row *r, struct value body)
{
    char tags[RUN_TAGS_MAX * (RUN_TAG_MAX + 2)], *save = NULL;
    struct value numbers = value_get(body, "numbers");
    r->state = state_of(body);
    r->is_live = value_num(value_get(body, "live"), 0) != 0;
    value_copy(r->method, sizeof r->method, value_get(body, "method"));
    value_copy(r->preset, sizeof r->preset, value_get(body, "preset"));
    value_copy(r->run_id, sizeof r->run_id, value_get(body, "run_id"));
    value_copy(r->parent, sizeof r->parent, value_get(body, "parent"));
    value_copy(r->notes.note, sizeof r->notes.note, value_get(body, "note"));
    value_copy(tags, sizeof tags, value_get(body, "tags"));
    str_copy(r->host, sizeof r->host, h->name);
    r->notes.tags = 0;
    for (char *t = strtok_r(tags, " ", &save); t && r->notes.tags < RUN_TAGS_MAX;
         t = strtok_r(NULL, " ", &save))
        str_copy(r->notes.tag[r->notes.tags++], RUN_TAG_MAX + 1, t);
    for (size_t i = 0; i < RUN_NUMBERS; i++)
        r->number[i] = value_num(value_at(numbers, i), (double)NAN);
    r->number[RUN_PID] = (double)NAN; /* of another machine's process */
    r->phase.step = value_int(value_get(body, "step"), 0);
    r->last_time = our_time(h, value_num(value_get(body, "time"), 0));
    r->modified = floor(our_time(h, value_num(value_get(body, "modified"), 0)) + 0.5);
    int64_t n = value_f32s(value_get(body, "spark"), r->spark, RUN_ROW_SPARK);
    r->sparks = n < 0 ? 0 : n > RUN_ROW_SPARK ? RUN_ROW_SPARK : (int)n;
    r->remote = h->name;
}

/* The mirror of a run, whose folder is named as people know the run: "box:first".  No name of theirs is
 * used as it is. */
static void place_row(const struct host *h, struct run_row *r)
{
    char label[HOST_NAME + 80];
    snprintf(label, sizeof label, "%s:%.64s", h->name, r->name);
    for (char *p = label; *p; p++)
        if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-@%:", *p))
            *p = '-';
    snprintf(r->path, sizeof r->path, "%.700s/r%zu/%s", h->dir, h->rows, label);
}

static struct run_row *row_of(struct host *h, const char *name)
{
    int64_t at;
    if (map_get(&h->row_of, name, strlen(name), &at) && at >= 0)
        return h->row[at];
    void *p = h->row;
    struct run_row *r = h->rows < ROWS_MAX ? mem_alloc(1, sizeof *r) : NULL;
    int rc = r ? mem_grow(&p, &h->cap, h->rows + 1, sizeof *h->row) : DS_EMEM;
    h->row = p;
    if (rc < 0 || map_set(&h->row_of, name, strlen(name), (int64_t)h->rows) < 0) {
        mem_free(r);
        return NULL;
    }
    str_copy(r->name, sizeof r->name, name);
    place_row(h, r);
    h->row[h->rows++] = r;
    return r;
}

/* The lock of a mirror says what that of the log there says. */
static void lock_mirror(const struct mirror *m, int is_live)
{
    if (m->fd >= 0)
        flock(m->fd, is_live ? LOCK_EX | LOCK_NB : LOCK_UN);
}

/* What a lost host's runs do is unknown: they are as old as their newest record. */
static void fall_silent(struct host *h)
{
    h->is_silent = 1;
    h->listed++;
    for (size_t i = 0; i < h->rows; i++) {
        struct run_row *r = h->row[i];
        if (r->is_live || r->state == RUN_LIVE || r->state == RUN_PAUSED)
            r->state = RUN_SILENT;
        r->is_live = 0;
        r->number[RUN_ETA] = (double)NAN;
    }
    for (int i = 0; i < h->mirrors; i++)
        lock_mirror(&h->mirror[i], 0);
}

static void take_row(struct host *h, struct value body)
{
    char name[256];
    value_copy(name, sizeof name, value_get(body, "name"));
    struct run_row *r = name[0] ? row_of(h, name) : NULL;
    if (!r)
        return;
    read_row(h, r, body);
    if (!r->is_kept && h->state == HOST_UP)
        h->why[0] = '\0'; /* such as of a folder that was not there before its first run */
    r->is_kept = 1;
    h->listed++;
    for (int i = 0; i < h->mirrors; i++)
        if (strcmp(h->mirror[i].dir, r->path) == 0)
            lock_mirror(&h->mirror[i], r->is_live);
}

/* Its path stays taken: a mirror of it may be open. */
static void take_gone(struct host *h, struct value body)
{
    char name[256];
    int64_t at;
    value_copy(name, sizeof name, value_get(body, "name"));
    if (map_get(&h->row_of, name, strlen(name), &at) && at >= 0)
        h->row[at]->is_kept = 0;
    h->listed++;
}

const struct run_row *const *host_rows(const struct host *h, size_t *n)
{
    *n = h->rows;
    return (const struct run_row *const *)h->row;
}

/* ---- mirrors ---- */

static struct mirror *mirror_at(struct host *h, const char *path)
{
    for (int i = 0; i < h->mirrors; i++)
        if (strcmp(h->mirror[i].dir, path) == 0)
            return &h->mirror[i];
    return NULL;
}

/* Another file takes the place of what was there, if anything: its readers start over. */
static int new_log(struct mirror *m, struct err *e)
{
    char log[1100];
    int rc = fs_join(log, sizeof log, m->dir, "log.mp", e), fd = -1;
    if (rc == 0)
        unlink(log);
    if (rc == 0)
        rc = fs_open_write(&fd, log, O_APPEND | O_CREAT | O_TRUNC, e);
    if (rc == 0 && m->fd >= 0)
        close(m->fd);
    m->fd = rc == 0 ? fd : m->fd;
    return rc;
}

static int append(struct mirror *m, struct value frames, struct str *buf, struct err *e)
{
    size_t n = 0, at = 0;
    const char *p = value_bytes(frames, &n);
    str_reset(buf);
    while (p && at < n) {
        uint64_t seq;
        struct value body;
        int64_t length = record_parse(p + at, n - at, &seq, &body, NULL);
        if (length <= 0)
            return err_set(e, DS_EFORMAT, "damaged records");
        record_copy(buf, ++m->seq, body);
        at += (size_t)length;
    }
    if (buf->failed)
        return err_set(e, DS_EMEM, "out of memory");
    return fs_write_all(m->fd, buf->p, buf->len, m->dir, e);
}

static void take_log(struct host *h, struct value body)
{
    char run[256];
    struct mirror *m = NULL;
    struct str buf = {0};
    struct err e = {0};
    value_copy(run, sizeof run, value_get(body, "run"));
    for (int i = 0; i < h->mirrors; i++)
        if (h->mirror[i].fd >= 0 && strcmp(h->mirror[i].run, run) == 0)
            m = &h->mirror[i];
    if (!m)
        return;
    if (value_get(body, "error").p) {
        value_copy(h->why, sizeof h->why, value_get(body, "error"));
        return;
    }
    int rc = 0;
    if (value_num(value_get(body, "reset"), 0) != 0) {
        m->at = m->seq = 0;
        m->probes = 0;
        m->is_summary = 0;
        rc = new_log(m, &e);
    }
    if (rc == 0)
        rc = append(m, value_get(body, "frames"), &buf, &e);
    if (rc == 0) {
        m->at = (uint64_t)value_int(value_get(body, "at"), 0);
        m->id = value_int(value_get(body, "id"), 0);
        m->probes = value_int(value_get(body, "probes"), m->probes);
        m->is_summary |= value_num(value_get(body, "summary"), 0) != 0;
        lock_mirror(m, value_num(value_get(body, "live"), 0) != 0);
    } else {
        disconnect(h, e.text);
    }
    str_release(&buf);
}

const char *host_only(const struct host *h)
{
    for (size_t i = 0; h->only[0] && i < h->rows; i++)
        if (h->row[i]->is_kept && strcmp(h->row[i]->name, h->only) == 0)
            return h->row[i]->path;
    return NULL;
}

int host_owns(const struct host *h, const char *path)
{
    size_t n = strlen(h->dir);
    return strncmp(path, h->dir, n) == 0 && path[n] == '/';
}

int host_follow(struct host *h, const char *path, struct err *e)
{
    struct mirror *m = mirror_at(h, path);
    struct err why = {0};
    int64_t at = -1;
    for (size_t i = 0; i < h->rows && at < 0; i++)
        at = strcmp(h->row[i]->path, path) == 0 ? (int64_t)i : -1;
    if (at < 0)
        return err_set(e, DS_ENOTFOUND, "%s: no such run on %s", path, h->name);
    if (m && m->fd >= 0)
        return 0;
    for (int i = 0; i < h->mirrors && !m; i++)
        m = h->mirror[i].fd < 0 ? &h->mirror[i] : NULL; /* of a run that was dropped */
    if (!m && h->mirrors == MIRRORS_MAX)
        return err_set(e, DS_ERANGE, "%s: %d runs are open, the maximum", h->name, MIRRORS_MAX);
    struct mirror new = {.fd = -1, .from = -HUGE_VAL, .to = HUGE_VAL, .want_at = (double)NAN};
    str_copy(new.run, sizeof new.run, h->row[at]->name);
    str_copy(new.dir, sizeof new.dir, path);
    int rc = fs_mkdirs(path, e);
    if (rc == 0)
        rc = new_log(&new, e);
    if (rc < 0)
        return rc;
    m = m ? m : &h->mirror[h->mirrors++];
    *m = new;
    if (h->far == FAR_PROGRAM && host_models_listen(&h->models, path, m->run, &why) < 0)
        log_warn("%s: its model cannot be asked: %s", m->run, why.text);
    if (h->state == HOST_UP) {
        ask_follow(h, m);
        flush_out(h);
    }
    return 0;
}

void host_want_probes(struct host *h, const char *path, int wants)
{
    struct mirror *m = mirror_at(h, path);
    if (!m || m->fd < 0 || m->wants_probes == wants)
        return;
    m->wants_probes = wants;
    if (h->state != HOST_UP)
        return;
    ask_probes(h, m);
    flush_out(h);
}

void host_want_detail(struct host *h, const char *path, double from, double to)
{
    struct mirror *m = mirror_at(h, path);
    if (!m || m->fd < 0)
        return;
    m->want_from = from;
    m->want_to = to;
    m->want_at = clock_mono();
}

/* When zooming pauses, and what is shown is neither in the detail that has come nor most of it. */
static void ask_details(struct host *h, double now)
{
    for (int i = 0; i < h->mirrors; i++) {
        struct mirror *m = &h->mirror[i];
        int is_new = m->want_from < m->from || m->want_to > m->to ||
                     m->want_to - m->want_from < (m->to - m->from) / 3;
        if (m->fd < 0 || !(now > m->want_at + settle_s))
            continue;
        m->want_at = (double)NAN;
        if (!m->is_summary || !is_new)
            continue;
        m->from = m->want_from;
        m->to = m->want_to;
        str_add(&h->out, "{\"do\":\"detail\"");
        json_add_str(&h->out, "run", m->run);
        json_add_int(&h->out, "from", (int64_t)m->from);
        json_add_int(&h->out, "to", (int64_t)m->to);
        str_add(&h->out, "}\n");
    }
}

const char *host_label(const struct host *h, const char *path, char *out, size_t size)
{
    const char *run = "";
    for (size_t i = 0; i < h->rows; i++)
        run = strcmp(h->row[i]->path, path) == 0 ? h->row[i]->name : run;
    snprintf(out, size, "%s:%s", h->name, run);
    return out;
}

void host_drop(struct host *h, const char *path)
{
    struct mirror *m = mirror_at(h, path);
    if (!m || m->fd < 0)
        return;
    close(m->fd);
    m->fd = -1;
    host_models_close(&h->models, path);
    str_add(&h->out, "{\"do\":\"drop\"");
    json_add_str(&h->out, "run", m->run);
    str_add(&h->out, "}\n");
    flush_out(h);
}

/* ---- commands ---- */

const char *host_run(const struct host *h, const char *path)
{
    for (size_t i = 0; i < h->rows; i++)
        if (strcmp(h->row[i]->path, path) == 0)
            return h->row[i]->name;
    return NULL;
}

int host_can(const struct host *h, const char *what)
{
    size_t n = strlen(what);
    for (const char *p = h->does; *p; p += strspn(p, " ")) {
        size_t len = strcspn(p, " ");
        if (len == n && memcmp(p, what, n) == 0)
            return 1;
        p += len;
    }
    return 0;
}

static void send_request(struct host *h, const char *what, int64_t id, const char *more)
{
    str_add(&h->out, "{\"do\":");
    str_add_json(&h->out, what, strlen(what));
    json_add_int(&h->out, "id", id);
    str_add(&h->out, more[0] ? "," : "");
    str_add(&h->out, more);
    str_add(&h->out, "}\n");
    flush_out(h);
}

int64_t host_ask(struct host *h, const char *what, const struct str *more, int is_reading,
                 struct err *e)
{
    struct host_answer *x = NULL;
    for (int i = 0; i < ANSWERS_MAX && !x; i++)
        x = h->answer[i].id == 0 ? &h->answer[i] : NULL;
    if (h->is_readonly && !is_reading)
        return err_set(e, DS_EUSAGE, "%s is read-only", h->name);
    if (h->state != HOST_UP)
        return err_set(e, DS_EIO, "%s is %s", h->name, host_state_name(h->state));
    if (!x)
        return err_set(e, DS_EBUSY, "%s: too many commands are waiting", h->name);
    if (more->failed)
        return err_set(e, DS_EMEM, "out of memory for the request");
    *x = (struct host_answer){.id = ++h->last_id, .sent = clock_mono()};
    send_request(h, what, x->id, str_text(more));
    return x->id;
}

int64_t host_command(struct host *h, const char *path, const char *line, struct err *e)
{
    const char *run = host_run(h, path);
    struct str more = {0};
    if (!run)
        return err_set(e, DS_ENOTFOUND, "%s: no such run on %s", path, h->name);
    json_add_str(&more, "run", run);
    json_add_str(&more, "line", line);
    int64_t id = host_ask(h, "command", &more, 0, e);
    str_release(&more);
    return id;
}

void host_forget(struct host *h, int64_t id)
{
    for (int i = 0; i < ANSWERS_MAX; i++)
        if (id > 0 && h->answer[i].id == id)
            h->answer[i].id = 0;
}

int host_answer(struct host *h, int64_t id, struct str *text, struct err *e)
{
    for (int i = 0; i < ANSWERS_MAX; i++) {
        struct host_answer *x = &h->answer[i];
        if (x->id != id)
            continue;
        if (!x->has_come)
            return 0;
        int is_ok = x->is_ok;
        x->id = 0;
        if (!is_ok)
            return err_set(e, DS_EIO, "%s", x->text[0] ? x->text : "refused without a reason");
        str_add(text, x->text);
        return 1;
    }
    return err_set(e, DS_ENOTFOUND, "no such command");
}

static void take_answer(struct host *h, struct value body)
{
    int64_t id = value_int(value_get(body, "id"), 0);
    if (id != 0 && id == h->echo_id) {
        h->latency_s = clock_mono() - h->echoed;
        h->echo_id = 0;
    }
    for (int i = 0; i < ANSWERS_MAX; i++) {
        struct host_answer *x = &h->answer[i];
        if (id == 0 || x->id != id || x->has_come)
            continue;
        x->has_come = 1;
        x->is_ok = value_num(value_get(body, "ok"), 0) != 0;
        value_copy(x->text, sizeof x->text, value_get(body, "text"));
        for (char *p = x->text; *p; p++) /* an error is one line */
            *p = *p == '\n' || *p == '\r' ? ' ' : *p;
    }
}

/* How long a line takes there and back, without what a command does there. */
static void measure_latency(struct host *h)
{
    double now = clock_mono();
    if (h->echo_id != 0 || !host_can(h, "echo") || now < h->echoed + echo_s)
        return;
    h->echo_id = ++h->last_id;
    h->echoed = now;
    send_request(h, "echo", h->echo_id, "");
}

/* To the next kind of far end, at once; from the last one to the first, later. */
static void fall_back(struct host *h)
{
    if (h->far != FAR_TAIL) {
        h->retry = 0;
        h->why[0] = '\0';
        h->state = isfinite(h->heard) ? HOST_RECONNECTING : HOST_CONNECTING;
    }
    h->far = h->far == FAR_TAIL ? FAR_PROGRAM : h->far + 1;
}

/* ---- messages ---- */

static void take_hello(struct host *h, struct value body)
{
    int64_t protocol = value_int(value_get(body, "protocol"), 0);
    char why[160];
    value_copy(h->version, sizeof h->version, value_get(body, "version"));
    value_copy(h->only, sizeof h->only, value_get(body, "run"));
    value_copy(h->does, sizeof h->does, value_get(body, "does"));
    value_copy(h->presets, sizeof h->presets, value_get(body, "presets"));
    if (protocol != HOST_PROTOCOL) {
        snprintf(why, sizeof why, "its agent speaks protocol %lld, this one %d",
                 (long long)protocol, HOST_PROTOCOL);
        disconnect(h, why);
        if (h->far == FAR_PROGRAM) {
            snprintf(h->reason, sizeof h->reason, "protocol %lld there, %d here",
                     (long long)protocol, HOST_PROTOCOL);
            fall_back(h);
        }
        return;
    }
    h->is_greeted = 1;
    h->note[0] = '\0';
    if (h->far != FAR_PROGRAM)
        snprintf(h->note, sizeof h->note, "%s: %s instead", h->reason,
                 h->far == FAR_TAIL ? "tail" : "Python");
    h->is_silent = 0;
    h->state = HOST_UP;
    h->why[0] = '\0';
    h->wait_s = first_wait_s;
    h->latency_s = clock_mono() - h->since;
    for (size_t i = 0; i < h->rows; i++)
        h->row[i]->is_kept = 0; /* those that still exist are sent again */
}

static int take(struct host *h, struct value body)
{
    struct value kind = value_get(body, "kind");
    double time = value_num(value_get(body, "time"), (double)NAN);
    h->heard = clock_mono();
    if (value_is(kind, "agent"))
        take_hello(h, body);
    else if (!h->is_greeted)
        return 0;
    if (value_is(kind, "agent") || value_is(kind, "beat"))
        h->skew_s = time - clock_wall();
    else if (value_is(kind, "row"))
        take_row(h, body);
    else if (value_is(kind, "gone"))
        take_gone(h, body);
    else if (value_is(kind, "listed"))
        h->is_listed = 1;
    else if (value_is(kind, "error"))
        value_copy(h->why, sizeof h->why, value_get(body, "text"));
    else if (value_is(kind, "log"))
        take_log(h, body);
    else if (value_is(kind, "answer"))
        take_answer(h, body);
    else if (value_is(kind, "said"))
        host_models_take(&h->models, body);
    return 1;
}

/* What a login shell prints before the agent speaks may look like the beginning of a record: until it
 * has spoken, every place is tried. */
static size_t skip_noise(const struct host *h)
{
    size_t pending;
    return h->is_greeted ? 0 : record_scan(h->in.p, h->in.len, 0, &pending);
}

static int take_records(struct host *h)
{
    size_t at = skip_noise(h);
    int changed = 0;
    if (at == h->in.len && !h->is_greeted && h->given <= NOISE_MAX)
        return 0;
    while (at < h->in.len && h->ssh.pid > 0) {
        uint64_t seq;
        struct value body;
        int64_t n = record_parse(h->in.p + at, h->in.len - at, &seq, &body, NULL);
        if (n == 0)
            break;
        if (n < 0) {
            disconnect(h, "damaged records");
            return 1;
        }
        changed |= take(h, body);
        at += (size_t)n;
    }
    if (h->ssh.pid <= 0)
        return 1;
    if (!h->is_greeted) {
        disconnect(h, "no agent answers there, only other output");
        return 1;
    }
    memmove(h->in.p, h->in.p + at, h->in.len - at);
    h->in.len -= at;
    return changed;
}

static void acknowledge(struct host *h)
{
    if (h->given - h->acked < 4096)
        return;
    h->acked = h->given;
    str_addf(&h->out, "{\"do\":\"ack\",\"bytes\":%" PRIu64 "}\n", h->acked);
}

static void ended(struct host *h)
{
    char why[300];
    while (child_tail(&h->ssh, h->ssh.err) > 0) {
    }
    child_wait(&h->ssh);
    int rc = child_verdict(&h->ssh, why, sizeof why), status = h->ssh.status;
    int is_missing = !h->is_greeted && WIFEXITED(status) && WEXITSTATUS(status) == NOT_FOUND;
    if (is_missing && h->far == FAR_TAIL)
        str_copy(why, sizeof why, "neither depthscope nor python3 nor a shell is found there");
    disconnect(h, rc == 0 || !why[0] ? "the agent ended" : why);
    if (is_missing && h->far == FAR_PROGRAM)
        str_copy(h->reason, sizeof h->reason, "no depthscope there");
    if (is_missing)
        fall_back(h);
}

static int read_all(struct host *h)
{
    char chunk[16384];
    int changed = 0;
    for (size_t sum = 0; h->ssh.pid > 0 && sum < READ_MAX;) {
        ssize_t n = read(h->ssh.out, chunk, sizeof chunk);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            break;
        if (n == 0) {
            ended(h);
            return 1;
        }
        sum += (size_t)n;
        h->bytes_in += (uint64_t)n;
        h->given += (uint64_t)n;
        if (h->tail)
            host_tail_feed(h->tail, chunk, (size_t)n, &h->in);
        else
            str_add_bytes(&h->in, chunk, (size_t)n);
        if (h->in.failed)
            break;
        changed |= take_records(h);
    }
    return changed;
}

int host_poll(struct host *h)
{
    double now = clock_mono();
    if (h->state != HOST_UP && !h->is_silent && now > h->heard + silent_s)
        fall_silent(h);
    if (h->ssh.pid <= 0)
        return now >= h->retry ? connect_host(h) : 0;
    (void)child_tail(&h->ssh, h->ssh.err);
    int changed = read_all(h);
    if (h->ssh.pid <= 0)
        return 1;
    double last = isfinite(h->heard) && h->heard > h->since ? h->heard : h->since;
    if (now > last + (h->is_greeted ? silent_s : greet_s)) {
        disconnect(h, h->is_greeted ? "nothing was heard for 15 seconds" : "no answer");
        return 1;
    }
    if (h->is_greeted) {
        host_models_poll(&h->models, &h->out);
        ask_details(h, now);
        measure_latency(h);
    }
    acknowledge(h);
    flush_out(h);
    if (h->in.failed || h->out.failed || h->to_shell.failed) {
        disconnect(h, "out of memory");
        return 1;
    }
    if (h->tail && h->in.len > 0)
        changed |= take_records(h);
    return changed;
}

int host_watch(const struct host *h, struct pollfd w[HOST_FDS])
{
    if (h->ssh.pid <= 0)
        return 0;
    w[0] = (struct pollfd){.fd = h->ssh.out, .events = POLLIN};
    w[1] = (struct pollfd){.fd = h->out.len > 0 ? h->ssh.in : -1, .events = POLLOUT};
    return 2 + host_models_watch(&h->models, w + 2);
}

/* ---- start and end ---- */

static int make_dir(struct host *h, struct err *e)
{
    char state[1024], hosts[1024], want[1024];
    if (!fs_state_dir(state, sizeof state))
        return err_set(e, DS_ENOTFOUND, "no folder for what hosts send: set HOME");
    int rc = fs_join(hosts, sizeof hosts, state, "hosts", e);
    if (rc == 0)
        rc = fs_mkdirs(hosts, e);
    if (rc < 0)
        return rc;
    fs_temp_sweep(hosts);
    rc = fs_join(want, sizeof want, hosts, "host", e);
    if (rc == 0)
        rc = fs_new_dir(&h->dir_fd, h->dir, sizeof h->dir, want, e);
    return rc;
}

int host_open(struct host **out, const char *target, int is_readonly, struct err *e)
{
    struct host *h = mem_alloc(1, sizeof *h);
    if (!h)
        return err_set(e, DS_EMEM, "out of memory for host %.80s", target);
    h->ssh = (struct child)CHILD_NONE;
    h->dir_fd = -1;
    h->heard = h->latency_s = h->skew_s = (double)NAN;
    h->wait_s = first_wait_s;
    h->is_readonly = is_readonly;
    int rc = parse_target(h, target, e);
    if (rc == 0)
        rc = make_dir(h, e);
    if (rc < 0) {
        host_close(h);
        return rc;
    }
    connect_host(h);
    *out = h;
    return 0;
}

void host_close(struct host *h)
{
    if (!h)
        return;
    child_close(&h->ssh, SIGTERM);
    for (int i = 0; i < h->mirrors; i++)
        if (h->mirror[i].fd >= 0)
            close(h->mirror[i].fd);
    for (size_t i = 0; i < h->rows; i++) {
        run_row_release(h->row[i]);
        mem_free(h->row[i]);
    }
    mem_free(h->row);
    host_models_release(&h->models);
    map_release(&h->row_of);
    host_tail_free(h->tail);
    str_release(&h->to_shell);
    str_release(&h->in);
    str_release(&h->out);
    if (h->dir[0] && fs_remove_tree(h->dir, NULL) < 0) {
        /* swept by a later start */
    }
    if (h->dir_fd >= 0)
        close(h->dir_fd);
    mem_free(h);
}

struct host_info host_info(const struct host *h)
{
    size_t runs = 0;
    for (size_t i = 0; i < h->rows; i++)
        runs += h->row[i]->is_kept != 0;
    return (struct host_info){.name = h->name,
                              .root = h->root,
                              .state = h->state,
                              .why = h->why,
                              .note = h->note,
                              .latency_s = h->latency_s,
                              .heard = h->heard,
                              .skew_s = h->skew_s,
                              .bytes_in = h->bytes_in,
                              .bytes_out = h->bytes_out,
                              .listed = h->listed,
                              .runs = runs,
                              .is_listed = h->is_listed,
                              .is_readonly = h->is_readonly,
                              .version = h->version,
                              .presets = h->presets};
}
