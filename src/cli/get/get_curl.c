/* Runs the curl program as a child process. */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "cli/batch/batch_child.h"
#include "cli/get/get.h"

enum { TICK_MS = 200 };

/* Reads both pipes until the child closes them. */
static int listen_to(struct child *c, const struct get_listener *l, struct err *e)
{
    struct pollfd fd[2] = {{.fd = c->out, .events = POLLIN}, {.fd = c->err, .events = POLLIN}};
    int is_forwarded = 0, rc = 0;
    double ticked = clock_mono();
    while (fd[0].fd >= 0 || fd[1].fd >= 0) {
        char buf[65536];
        int ready = poll(fd, 2, TICK_MS);
        if (batch_signal == SIGTERM &&
            !is_forwarded++) /* the terminal already sends Ctrl-C to the child */
            kill(c->pid, SIGTERM);
        if (l->tick && rc == 0 && clock_mono() - ticked >= TICK_MS / 1000.0) {
            l->tick(l->ctx);
            ticked = clock_mono();
        }
        if (ready > 0 && fd[1].revents && !child_tail(c, c->err))
            fd[1].fd = -1;
        if (ready <= 0 || !fd[0].revents)
            continue;
        ssize_t got = read(c->out, buf, sizeof buf);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            fd[0].fd = -1;
        else if (rc == 0 && (rc = l->take(l->ctx, buf, (size_t)got, e)) < 0)
            kill(c->pid, SIGTERM);
    }
    return rc;
}

int get_curl(const char *const *argv, const struct get_listener *l, char *words, size_t size,
             int *status, struct err *e)
{
    struct child c;
    const struct child_setup how = {
        .program = argv[0], .argv = argv, .in = CHILD_NULL, .out = CHILD_PIPE, .err = CHILD_PIPE};
    struct err why = {0};
    int rc = child_start(&c, &how, &why);
    if (rc == DS_ENOTFOUND)
        return err_set(e, DS_ENOTFOUND, "get: curl not found; install it");
    if (rc < 0)
        return err_set(e, rc, "get: %s", why.text);
    rc = listen_to(&c, l, e);
    child_wait(&c);
    *status = WIFEXITED(c.status) ? WEXITSTATUS(c.status) : 128 + WTERMSIG(c.status);
    str_copy(words, size, c.tail);
    child_close(&c, 0);
    return rc;
}
