/* Passes the requests and answers of a session to a server that listens on a Unix socket: a model
 * in another process, such as one of PyTorch (src/python). */
#include "cli/serve_relay.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/str.h"
#include "io/record.h"
#include "base/socket.h"

static int open_socket(const char *path, int *fd, struct err *e)
{
    struct sockaddr_un addr;
    char dir[1024] = ".";
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    int holder = -1;
    if (slash && str_copy(dir, sizeof dir, path))
        return err_set(e, DS_ERANGE, "%.80s: path too long", path);
    if (slash)
        dir[slash > path ? slash - path : 1] = '\0';
    *fd = socket(AF_UNIX, SOCK_STREAM, 0);
    if (*fd < 0)
        return err_errno(e, "socket");
    int rc = socket_address(&addr, dir, name, &holder, e);
    if (rc == 0 && connect(*fd, (struct sockaddr *)&addr, sizeof addr) < 0)
        rc = errno == ECONNREFUSED
                 ? err_set(e, DS_ENOTFOUND, "%s: no server is listening; start it again", path)
                 : err_errno(e, "%s", path);
    if (holder >= 0)
        close(holder);
    return rc;
}

/* Sends what the socket takes now, so that a server that is writing an answer is never blocked. */
static int send_some(int fd, struct str *waiting, const char *path, struct err *e)
{
    ssize_t n = send(fd, waiting->p, waiting->len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0)
        return errno == EAGAIN || errno == EINTR ? 0 : err_errno(e, "%s", path);
    memmove(waiting->p, waiting->p + n, waiting->len - (size_t)n);
    waiting->len -= (size_t)n;
    return 0;
}

static int relay(int fd, int in, int out, const char *path, struct err *e)
{
    char chunk[65536];
    struct str waiting = {0};
    int rc = 0, is_open = 1;
    while (rc == 0) {
        struct pollfd p[] = {
            {.fd = fd, .events = (short)(POLLIN | (waiting.len ? POLLOUT : 0))},
            {.fd = is_open && waiting.len == 0 ? in : -1, .events = POLLIN},
        };
        size_t got = 0;
        if (poll(p, 2, -1) < 0)
            continue; /* a signal */
        if (p[0].revents & (POLLIN | POLLHUP | POLLERR)) {
            rc = fs_read_some(fd, chunk, sizeof chunk, &got, path, e);
            if (rc == 0 && got == 0) {
                rc = is_open ? err_set(e, DS_EIO, "%s: the server ended the session", path) : 0;
                break;
            }
            if (rc == 0)
                rc = fs_write_all(out, chunk, got, "answer", e);
        }
        if (rc == 0 && (p[0].revents & POLLOUT) && waiting.len)
            rc = send_some(fd, &waiting, path, e);
        if (rc == 0 && p[1].revents) {
            rc = fs_read_some(in, chunk, sizeof chunk, &got, "requests", e);
            str_add_bytes(&waiting, chunk, got);
            if (rc == 0 && waiting.failed)
                rc = err_set(e, DS_EMEM, "out of memory for requests");
            if (rc == 0 && got == 0) {
                is_open = 0;
                shutdown(fd, SHUT_WR);
            }
        }
    }
    str_release(&waiting);
    return rc;
}

static int answer_error(int out, const struct err *why, struct err *e)
{
    struct record *rec = record_new();
    struct str frame = {0};
    int rc = rec ? 0 : err_set(e, DS_EMEM, "out of memory for the answer");
    if (rc == 0) {
        record_begin(rec, "error", 0, clock_wall());
        record_str(rec, "text", why->text);
        rc = record_end(rec, 1, &frame, e);
    }
    if (rc == 0)
        rc = fs_write_all(out, frame.p, frame.len, "answer", e);
    record_free(rec);
    str_release(&frame);
    return rc;
}

int serve_relay(const char *path, int in, int out, struct err *e)
{
    int fd = -1, rc = open_socket(path, &fd, e);
    struct err ignored = {0};
    if (rc < 0 && answer_error(out, e, &ignored) < 0)
        err_add(e, rc, "serve");
    if (rc == 0)
        rc = relay(fd, in, out, path, e);
    if (fd >= 0)
        close(fd);
    return rc;
}
