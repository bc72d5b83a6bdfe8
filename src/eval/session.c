/* The workbench's end of eval/job.h: a child process, asked by lines, read without ever blocking. */
#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/mem.h"
#include "eval/job.h"

enum { SEND_MAX = 16 << 20, READ_MAX = 1 << 20 };

struct session {
    struct child child; /* in: requests (a socket), out: answers, err: its stderr */
    struct str send;    /* what the socket did not take yet         */
    struct str got;     /* answers; the first `used` bytes are done */
    size_t used;
    int busy, at_end;
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
        return err_set(e, DS_EMEM, "session");
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
        if (n < 0) /* full: later; dead: reading will tell */
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
        return err_set(e, DS_EUSAGE, "a request is one line");
    if (s->send.len + strlen(json) > SEND_MAX)
        return err_set(e, DS_EBUSY, "too many requests wait for the model");
    str_add(&s->send, json);
    str_add(&s->send, "\n");
    if (s->send.failed)
        return err_set(e, DS_EMEM, "request");
    s->busy++;
    send_some(s);
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

int session_next(struct session *s, struct value *body, struct err *e)
{
    uint64_t seq;
    send_some(s);
    read_trouble(s);
    read_answers(s);
    if (s->got.failed)
        return err_set(e, DS_EMEM, "session");
    if (s->got.len > 0) {
        int64_t n = record_parse(s->got.p, s->got.len, &seq, body, e);
        if (n < 0)
            return err_add(e, (int)n, "the model's process");
        if (n > 0) {
            s->used = (size_t)n;
            struct value kind = value_get(*body, "kind");
            if ((value_is(kind, "done") || value_is(kind, "error")) && s->busy > 0)
                s->busy--;
            return 1;
        }
    }
    return s->at_end ? died(s, e) : 0;
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
    mem_free(s);
}
