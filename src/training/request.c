/* One command to a live run over its control.sock, without waiting for it. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "training/job.h"
#include "base/socket.h"

enum { LINE_MAX_BYTES = 600 };

struct job_request {
    int fd, is_connected;
    char dir[1024], line[LINE_MAX_BYTES];
    double timeout_s, end;
    struct str answer;
};

static int start_socket(struct job_request *r, struct err *e)
{
    r->fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (r->fd < 0 || fcntl(r->fd, F_SETFL, fcntl(r->fd, F_GETFL) | O_NONBLOCK) < 0 ||
        fcntl(r->fd, F_SETFD, FD_CLOEXEC) < 0)
        return err_errno(e, "socket");
    return 0;
}

/* EAGAIN: the listen queue is full; retried until the timeout. */
static int connect_and_send(struct job_request *r, struct err *e)
{
    struct sockaddr_un addr;
    int holder = -1, rc = socket_address(&addr, r->dir, "control.sock", &holder, e);
    size_t n = strlen(r->line);
    if (rc == 0 && connect(r->fd, (struct sockaddr *)&addr, sizeof addr) < 0) {
        if (errno != EAGAIN && errno != EINTR)
            rc = err_set(e, DS_ENOTFOUND, "%s: no live training process", r->dir);
    } else if (rc == 0) {
        r->is_connected = 1;
        if (send(r->fd, r->line, n, MSG_NOSIGNAL | MSG_DONTWAIT) != (ssize_t)n)
            rc = err_errno(e, "%s: send", r->dir);
    }
    if (holder >= 0)
        close(holder);
    return rc;
}

int job_request_open(struct job_request **out, const char *run_dir, const char *command,
                     double timeout_s, struct err *e)
{
    struct job_request *r = mem_alloc(1, sizeof *r);
    if (!r)
        return err_set(e, DS_EMEM, "out of memory for the command");
    r->fd = -1;
    r->timeout_s = timeout_s;
    r->end = clock_mono() + timeout_s;
    int n = snprintf(r->line, sizeof r->line, "%s\n", command), rc = 0;
    if (n < 0 || (size_t)n >= sizeof r->line || memchr(command, '\n', strlen(command)))
        rc = err_set(e, DS_EUSAGE, "command too long or not a single line");
    if (rc == 0 && str_copy(r->dir, sizeof r->dir, run_dir))
        rc = err_set(e, DS_ERANGE, "%.80s: path too long", run_dir);
    if (rc == 0)
        rc = start_socket(r, e);
    if (rc == 0)
        rc = connect_and_send(r, e);
    if (rc < 0) {
        job_request_close(r);
        return rc;
    }
    *out = r;
    return 0;
}

static int too_late(const struct job_request *r, struct err *e)
{
    struct socket_credentials c;
    if (r->is_connected && socket_peer(r->fd, &c) == 0)
        return err_set(e, DS_EBUSY,
                       "no answer within %g s: process %ld is stopped or stuck (kill -CONT %ld "
                       "continues a stopped one)",
                       r->timeout_s, (long)c.pid, (long)c.pid);
    return err_set(e, DS_EBUSY, "no answer within %g s: the run is stopped or stuck", r->timeout_s);
}

int job_request_poll(struct job_request *r, struct str *answer, struct err *e)
{
    char buf[LINE_MAX_BYTES];
    int rc = r->is_connected ? 0 : connect_and_send(r, e);
    ssize_t got = rc == 0 && r->is_connected ? recv(r->fd, buf, sizeof buf, MSG_DONTWAIT) : -1;
    if (rc < 0)
        return rc;
    if (got == 0 || (got < 0 && r->is_connected && errno != EAGAIN && errno != EINTR))
        return err_set(e, DS_EIO, "%s: the run closed the connection", r->dir);
    if (got > 0)
        str_add_bytes(&r->answer, buf, (size_t)got);
    char *line_end = r->answer.len ? memchr(r->answer.p, '\n', r->answer.len) : NULL;
    if (!line_end)
        return clock_mono() < r->end ? 0 : too_late(r, e);
    str_reset(answer);
    str_add_bytes(answer, r->answer.p, (size_t)(line_end - r->answer.p));
    return answer->failed ? err_set(e, DS_EMEM, "out of memory for the answer") : 1;
}

int job_request_fd(const struct job_request *r)
{
    return r->is_connected ? r->fd : -1;
}

void job_request_close(struct job_request *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        close(r->fd);
    str_release(&r->answer);
    mem_free(r);
}

int job_command(const char *run_dir, const char *command, double timeout_s, struct str *answer,
                struct err *e)
{
    struct job_request *r = NULL;
    str_reset(answer);
    int rc = job_request_open(&r, run_dir, command, timeout_s, e);
    while (rc == 0 && (rc = job_request_poll(r, answer, e)) == 0) {
        struct pollfd p = {.fd = job_request_fd(r), .events = POLLIN};
        double left = r->end - clock_mono(), step = r->is_connected ? left : 0.02;
        (void)poll(&p, 1, left <= 0 ? 0 : (int)((step < left ? step : left) * 1000) + 1);
    }
    job_request_close(r);
    return rc < 0 ? rc : 0;
}

long long job_pending(const char *answer)
{
    long long id = 0;
    return sscanf(answer, "ok pending %lld:", &id) == 1 && id > 0 ? id : 0;
}
