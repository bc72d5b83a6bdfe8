#include "training/control.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "training/socket.h"

enum { CLIENTS_MAX = 8, LINE_MAX_BYTES = 512 };

struct client {
    int fd;
    char line[LINE_MAX_BYTES];
    size_t n;
};
struct control {
    int fd;
    char path[1100];
    struct client client[CLIENTS_MAX];
    int clients;
};

static int set_nonblocking(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0 ||
           fcntl(fd, F_SETFD, FD_CLOEXEC) < 0;
}

int control_open(struct control **out, const char *dir, struct err *e)
{
    struct sockaddr_un addr;
    int holder = -1;
    struct control *c = mem_alloc(1, sizeof *c);
    if (!c)
        return err_set(e, DS_EMEM, "control socket");
    c->fd = -1;
    int rc = fs_join(c->path, sizeof c->path, dir, "control.sock", e);
    if (rc == 0)
        rc = socket_address(&addr, dir, "control.sock", &holder, e);
    if (rc == 0) {
        /* the log's lock is ours, so a socket left here belongs to no one alive */
        fs_unlink(c->path);
        c->fd = socket(AF_UNIX, SOCK_STREAM, 0);
        mode_t old = umask(0177);
        if (c->fd < 0 || bind(c->fd, (struct sockaddr *)&addr, sizeof addr) < 0 ||
            listen(c->fd, CLIENTS_MAX) < 0 || set_nonblocking(c->fd))
            rc = err_errno(e, "%s", c->path);
        umask(old);
    }
    if (holder >= 0)
        close(holder);
    if (rc < 0) {
        control_close(c);
        return rc;
    }
    *out = c;
    return 0;
}

static int is_same_user(int fd)
{
#ifdef SO_PEERCRED
    struct socket_credentials cred;
    return socket_peer(fd, &cred) == 0 && (cred.uid == geteuid() || cred.uid == 0);
#else
    (void)fd;
    return 1; /* the socket's mode is 0600 */
#endif
}

static void drop(struct control *c, int i)
{
    close(c->client[i].fd);
    c->client[i] = c->client[--c->clients];
}

static void take_clients(struct control *c)
{
    int fd;
    while ((fd = accept(c->fd, NULL, NULL)) >= 0) {
        if (set_nonblocking(fd) || !is_same_user(fd)) {
            close(fd);
            continue;
        }
        if (c->clients == CLIENTS_MAX)
            drop(c, 0); /* the oldest idle one makes room */
        c->client[c->clients] = (struct client){.fd = fd};
        c->clients++;
    }
}

/* Answers are short; a peer that does not read loses its connection, never our time. */
static int serve_line(struct client *k, void (*handle)(void *, const char *, struct str *),
                      void *ctx)
{
    struct str answer = {0};
    handle(ctx, k->line, &answer);
    str_add_char(&answer, '\n');
    ssize_t n = send(k->fd, str_text(&answer), answer.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    int lost = n != (ssize_t)answer.len;
    str_release(&answer);
    return lost;
}

/* 1 when the client is to be dropped. */
static int serve(struct client *k, void (*handle)(void *, const char *, struct str *), void *ctx)
{
    ssize_t got = recv(k->fd, k->line + k->n, LINE_MAX_BYTES - 1 - k->n, MSG_DONTWAIT);
    if (got <= 0)
        return got == 0 || (errno != EAGAIN && errno != EINTR);
    k->n += (size_t)got;
    for (;;) {
        char *end = memchr(k->line, '\n', k->n);
        if (!end &&
            k->n == LINE_MAX_BYTES - 1) { /* longer than any command: no telling where it ends */
            static const char text[] = "error the line is too long\n";
            (void)(send(k->fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT) < 0);
            return 1;
        }
        if (!end)
            return 0;
        size_t used = (size_t)(end - k->line) + 1;
        *end = '\0';
        if (used > 1 && end[-1] == '\r')
            end[-1] = '\0';
        if (serve_line(k, handle, ctx))
            return 1;
        memmove(k->line, k->line + used, k->n - used);
        k->n -= used;
    }
}

void control_poll(struct control *c, double wait_s,
                  void (*handle)(void *ctx, const char *line, struct str *answer), void *ctx)
{
    struct pollfd p[CLIENTS_MAX + 1] = {{.fd = c->fd, .events = POLLIN}};
    for (int i = 0; i < c->clients; i++)
        p[i + 1] = (struct pollfd){.fd = c->client[i].fd, .events = POLLIN};
    if (poll(p, (nfds_t)c->clients + 1, (int)(wait_s * 1000)) <= 0)
        return;
    for (int i = c->clients - 1; i >= 0; i--)
        if (p[i + 1].revents && serve(&c->client[i], handle, ctx))
            drop(c, i);
    if (p[0].revents)
        take_clients(c);
}

void control_close(struct control *c)
{
    if (!c)
        return;
    while (c->clients > 0)
        drop(c, 0);
    if (c->fd >= 0) {
        close(c->fd);
        fs_unlink(c->path);
    }
    mem_free(c);
}
