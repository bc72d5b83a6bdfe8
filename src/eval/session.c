/* Client side of eval/job.h: a child process that answers request lines, read without blocking. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/mem.h"
#include "eval/job.h"
#include "eval/program.h"

enum { TROUBLE_MAX = 4096, SEND_MAX = 16 << 20, READ_MAX = 1 << 20 };

struct session {
    pid_t pid;                /* 0 once reaped                               */
    int to, from, trouble_fd; /* requests (a socket), answers, its stderr    */
    struct str send;          /* not yet accepted by the socket              */
    struct str got;           /* answers; the first `used` bytes are handled */
    size_t used;
    char trouble[TROUBLE_MAX]; /* the end of its stderr                      */
    size_t trouble_n;
    int busy, at_end, status;
};

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

static void set_flags(int fd, int is_nonblocking)
{
    fcntl(fd, F_SETFD, FD_CLOEXEC);
    if (is_nonblocking)
        fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
}

int session_open(struct session **out, const char *model, struct err *e)
{
    const char *argv[] = {"depthscope", "serve", "--", model, NULL};
    int in[2] = {-1, -1}, ans[2] = {-1, -1}, bad[2] = {-1, -1}, rc = 0;
    struct session *s = mem_alloc(1, sizeof *s);
    if (!s)
        return err_set(e, DS_EMEM, "out of memory for the session");
    /* requests go through a socket: writing to a dead child is an error instead of SIGPIPE */
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, in) != 0 || pipe(ans) != 0 || pipe(bad) != 0)
        rc = err_errno(e, "session");
    for (int i = 0; i < 2 && rc == 0; i++) {
        set_flags(in[i], i == 0);
        set_flags(ans[i], i == 0);
        set_flags(bad[i], i == 0);
    }
    if (rc == 0)
        rc = program_start(&s->pid, argv, in[1], ans[1], bad[1], e);
    close_fd(&in[1]);
    close_fd(&ans[1]);
    close_fd(&bad[1]);
    s->to = in[0];
    s->from = ans[0];
    s->trouble_fd = bad[0];
    if (rc < 0)
        session_close(s);
    else
        *out = s;
    return rc;
}

static void send_some(struct session *s)
{
    size_t done = 0;
    while (s->to >= 0 && done < s->send.len) {
        ssize_t n = send(s->to, s->send.p + done, s->send.len - done, MSG_NOSIGNAL);
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

/* Keeps the newest bytes. */
static void read_trouble(struct session *s)
{
    char buf[1024];
    ssize_t n;
    while (s->trouble_fd >= 0 &&
           ((n = read(s->trouble_fd, buf, sizeof buf)) > 0 || (n < 0 && errno == EINTR))) {
        if (n < 0)
            continue;
        size_t k = (size_t)n, room = sizeof s->trouble - 1 - s->trouble_n;
        if (k > room) {
            size_t drop = k - room < s->trouble_n ? k - room : s->trouble_n;
            memmove(s->trouble, s->trouble + drop, s->trouble_n - drop);
            s->trouble_n -= drop;
        }
        memcpy(s->trouble + s->trouble_n, buf, k);
        s->trouble_n += k;
        s->trouble[s->trouble_n] = '\0';
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
        ssize_t n = read(s->from, buf, sizeof buf);
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

/* Waits briefly for a child that closed its output; it may still be exiting. */
static void reap(struct session *s)
{
    for (int i = 0; i < 100 && s->pid > 0; i++) {
        struct timespec t = {.tv_nsec = 2000000};
        pid_t got = waitpid(s->pid, &s->status, WNOHANG);
        if (got == s->pid || (got < 0 && errno == ECHILD))
            s->pid = 0;
        else
            nanosleep(&t, NULL);
    }
}

/* The last line of its stderr, without the program's name. */
static const char *last_words(struct session *s)
{
    static const char name[] = "depthscope: ";
    while (s->trouble_n > 0 &&
           (s->trouble[s->trouble_n - 1] == '\n' || s->trouble[s->trouble_n - 1] == '\r'))
        s->trouble[--s->trouble_n] = '\0';
    char *line = strrchr(s->trouble, '\n');
    line = line ? line + 1 : s->trouble;
    return strncmp(line, name, sizeof name - 1) == 0 ? line + sizeof name - 1 : line;
}

static int died(struct session *s, struct err *e)
{
    reap(s);
    read_trouble(s);
    const char *words = last_words(s);
    s->busy = 0;
    if (words[0])
        return err_set(e, DS_EIO, "the model's process ended: %s", words);
    if (s->pid == 0 && WIFSIGNALED(s->status))
        return err_set(e, DS_EIO, "the model's process was killed by signal %d",
                       WTERMSIG(s->status));
    return err_set(e, DS_EIO, "the model's process ended%s",
                   s->pid == 0 && WIFEXITED(s->status) && WEXITSTATUS(s->status) == 127
                       ? ": cannot start the program"
                       : "");
}

int session_next(struct session *s, struct value *body, struct err *e)
{
    uint64_t seq;
    send_some(s);
    read_trouble(s);
    read_answers(s);
    if (s->got.failed)
        return err_set(e, DS_EMEM, "out of memory for the session");
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
    return s->from;
}

int session_busy(const struct session *s)
{
    return s->busy;
}

void session_close(struct session *s)
{
    if (!s)
        return;
    close_fd(&s->to);
    close_fd(&s->from);
    close_fd(&s->trouble_fd);
    if (s->pid > 0) {
        kill(s->pid, SIGKILL); /* it has no state to lose */
        while (waitpid(s->pid, NULL, 0) < 0 && errno == EINTR) {
        }
    }
    str_release(&s->send);
    str_release(&s->got);
    mem_free(s);
}
