/* Client side of eval/job.h: a child process that answers request lines, read without blocking. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/mem.h"
#include "eval/job.h"
#include "trace_file.h"

enum { SEND_MAX = 16 << 20, READ_MAX = 1 << 20, TRACE_MAX = 256 << 20 };

struct session {
    struct child child; /* in: requests (a socket), out: answers, err: its stderr */
    struct str send;    /* what the socket did not take yet         */
    struct str got;     /* answers; the first `used` bytes are done */
    size_t used;
    int busy, at_end;
    struct {
        char file[1024]; /* "" = nothing is saved */
        int before;      /* requests that are answered first */
        uint64_t records;
        struct str frames; /* the trace; then the frame of an error */
    } save;
};

int session_open(struct session **out, const char *model, struct err *e)
{
    const char *argv[] = {"depthscope", "serve", "--", model, NULL};
    const struct child_setup how = {.argv = argv,
                                    .in = CHILD_SOCKET,
                                    .out = CHILD_PIPE,
                                    .err = CHILD_PIPE,
                                    .is_nonblocking = 1};
    struct session *s = mem_alloc(1, sizeof *s);
    if (!s)
        return err_set(e, DS_EMEM, "out of memory for the session");
    int rc = child_start(&s->child, &how, e);
    if (rc < 0)
        mem_free(s);
    else
        *out = s;
    return rc;
}

static void send_some(struct session *s)
{
    size_t done = 0;
    while (s->child.in >= 0 && done < s->send.len) {
        ssize_t n = send(s->child.in, s->send.p + done, s->send.len - done, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0) /* full: retried later; dead: detected when reading */
            break;
        done += (size_t)n;
    }
    if (done > 0) {
        memmove(s->send.p, s->send.p + done, s->send.len - done);
        s->send.len -= done;
    }
}

int session_send(struct session *s, const char *json, struct err *e)
{
    if (strchr(json, '\n'))
        return err_set(e, DS_EUSAGE, "a request must be one line");
    if (s->send.len + strlen(json) > SEND_MAX)
        return err_set(e, DS_EBUSY, "too many requests are queued for the model");
    str_add(&s->send, json);
    str_add(&s->send, "\n");
    if (s->send.failed)
        return err_set(e, DS_EMEM, "out of memory for the request");
    s->busy++;
    send_some(s);
    return 0;
}

int session_save(struct session *s, const char *file, int lens, struct err *e)
{
    char line[64];
    int rc = s->save.file[0] ? err_set(e, DS_EBUSY, "a trace is being saved") : 0, before = s->busy;
    if (rc == 0)
        rc = trace_file_check(file, e);
    if (rc == 0 && strlen(file) >= sizeof s->save.file)
        rc = err_set(e, DS_ERANGE, "%.80s: the path is too long", file);
    snprintf(line, sizeof line, "{\"do\":\"save\",\"lens\":%d}", lens);
    if (rc == 0)
        rc = session_send(s, line, e);
    if (rc < 0)
        return rc;
    str_copy(s->save.file, sizeof s->save.file, file);
    str_renew(&s->save.frames);
    s->save.before = before;
    s->save.records = 0;
    return 0;
}

static void read_trouble(struct session *s)
{
    while (child_tail(&s->child, s->child.err) > 0) {
    }
}

static void read_answers(struct session *s)
{
    char buf[65536];
    if (s->used > 0) {
        memmove(s->got.p, s->got.p + s->used, s->got.len - s->used);
        s->got.len -= s->used;
        s->used = 0;
    }
    for (size_t total = 0; !s->at_end && total < READ_MAX;) {
        ssize_t n = read(s->child.out, buf, sizeof buf);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
            break;
        if (n <= 0) {
            s->at_end = 1;
            break;
        }
        str_add_bytes(&s->got, buf, (size_t)n);
        total += (size_t)n;
    }
}

/* Waits a moment for a child whose answers have ended; it may still be dying. */
static int died(struct session *s, struct err *e)
{
    char why[CHILD_TAIL];
    for (int i = 0; i < 100 && !child_poll(&s->child); i++)
        clock_sleep(0.002);
    read_trouble(s);
    s->busy = 0;
    const char *words = child_last_line(&s->child);
    if (words[0])
        return err_set(e, DS_EIO, "the model's process ended: %s", words);
    return child_verdict(&s->child, why, sizeof why) < 0 && s->child.has_ended
               ? err_set(e, DS_EIO, "the model's process ended: %s", why)
               : err_set(e, DS_EIO, "the model's process ended");
}

/* In place of "done", when the trace that has come cannot be written. */
static void make_error(struct session *s, const struct err *why, struct value *body)
{
    struct record *rec = record_new();
    uint64_t seq;
    str_renew(&s->save.frames);
    if (!rec)
        return;
    record_begin(rec, "error", 0, 0);
    record_str(rec, "text", why->text);
    if (record_end(rec, 1, &s->save.frames, NULL) < 0 ||
        record_parse(s->save.frames.p, s->save.frames.len, &seq, body, NULL) <= 0)
        str_renew(&s->save.frames);
    record_free(rec);
}

/* A record while a trace is to be saved: 1 = it is part of it. */
static int keep(struct session *s, struct value *body, int is_last)
{
    struct value kind = value_get(*body, "kind");
    struct err e = {0};
    if (s->save.before > 0) {
        s->save.before -= is_last;
        return 0;
    }
    if (!is_last) {
        if ((value_is(kind, "head") || value_is(kind, "probe")) && s->save.frames.len <= TRACE_MAX)
            record_copy(&s->save.frames, ++s->save.records, *body);
        return 1;
    }
    int rc = 0;
    if (value_is(kind, "done") && (s->save.frames.failed || s->save.frames.len > TRACE_MAX))
        rc = err_set(&e, DS_ERANGE, "save: the trace is too large");
    else if (value_is(kind, "done") && s->save.records != 2)
        rc = err_set(&e, DS_EIO, "save: the model did not send a trace");
    else if (value_is(kind, "done") && (rc = trace_file_check(s->save.file, &e)) == 0)
        rc = trace_file_write(s->save.file, s->save.frames.p, s->save.frames.len, &e);
    s->save.file[0] = '\0';
    if (rc < 0)
        make_error(s, &e, body);
    return 0;
}

/* 1 = a record, 2 = one that was kept, 0 = not all of it is here. */
static int take_record(struct session *s, struct value *body, struct err *e)
{
    uint64_t seq;
    int64_t n = s->got.len > s->used
                    ? record_parse(s->got.p + s->used, s->got.len - s->used, &seq, body, e)
                    : 0;
    if (n < 0)
        return err_add(e, (int)n, "the model's process");
    if (n == 0)
        return 0;
    s->used += (size_t)n;
    struct value kind = value_get(*body, "kind");
    int is_last = value_is(kind, "done") || value_is(kind, "error");
    s->busy -= is_last && s->busy > 0;
    return s->save.file[0] && keep(s, body, is_last) ? 2 : 1;
}

int session_next(struct session *s, struct value *body, struct err *e)
{
    int rc;
    send_some(s);
    read_trouble(s);
    read_answers(s);
    if (s->got.failed)
        return err_set(e, DS_EMEM, "out of memory for the session");
    do
        rc = take_record(s, body, e);
    while (rc == 2);
    return rc != 0 ? rc : s->at_end ? died(s, e) : 0;
}

int session_fd(const struct session *s)
{
    return s->child.out;
}

int session_busy(const struct session *s)
{
    return s->busy;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    child_close(&s->child, SIGKILL); /* it holds nothing that could be lost */
    str_release(&s->send);
    str_release(&s->got);
    str_release(&s->save.frames);
    mem_free(s);
}
