/* Runs the curl program as a child process. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/batch/batch_child.h"
#include "cli/get/get.h"

extern char **environ;

enum { TICK_MS = 200, NO_PROGRAM = 127 };

static int start(pid_t *pid, const char *const *argv, const int out[2], const int words[2])
{
    posix_spawn_file_actions_t f;
    /* posix_spawnp takes char *const[] but does not modify it */
    char *const *args = (char *const *)(uintptr_t)argv;
    int rc = posix_spawn_file_actions_init(&f);
    if (rc != 0)
        return rc;
    rc = posix_spawn_file_actions_addopen(&f, 0, "/dev/null", O_RDONLY, 0);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&f, out[1], 1);
    if (rc == 0)
        rc = posix_spawn_file_actions_adddup2(&f, words[1], 2);
    for (int i = 0; i < 2 && rc == 0; i++) {
        rc = posix_spawn_file_actions_addclose(&f, out[i]);
        if (rc == 0)
            rc = posix_spawn_file_actions_addclose(&f, words[i]);
    }
    if (rc == 0)
        rc = posix_spawnp(pid, argv[0], &f, NULL, args, environ);
    posix_spawn_file_actions_destroy(&f);
    return rc;
}

/* Keeps the newest bytes that fit. */
static void keep(char *words, size_t size, size_t *n, const char *p, size_t got)
{
    size_t room = size - 1;
    if (got > room) {
        p += got - room;
        got = room;
    }
    if (*n + got > room) {
        memmove(words, words + (*n + got - room), room - got);
        *n = room - got;
    }
    memcpy(words + *n, p, got);
    *n += got;
    words[*n] = '\0';
}

/* Reads both pipes until the child closes them. */
static int listen_to(int out, int err, const struct get_listener *l, char *words, size_t size,
                     pid_t pid, struct err *e)
{
    struct pollfd fd[2] = {{.fd = out, .events = POLLIN}, {.fd = err, .events = POLLIN}};
    size_t n = 0;
    int told = 0, rc = 0;
    double ticked = clock_mono();
    words[0] = '\0';
    while (fd[0].fd >= 0 || fd[1].fd >= 0) {
        char buf[65536];
        int ready = poll(fd, 2, TICK_MS);
        if (batch_signal == SIGTERM && !told++) /* the terminal already sends Ctrl-C to the child */
            kill(pid, SIGTERM);
        if (l->tick && rc == 0 && clock_mono() - ticked >= TICK_MS / 1000.0) {
            l->tick(l->ctx);
            ticked = clock_mono();
        }
        for (int i = 0; i < 2 && ready > 0; i++) {
            if (fd[i].fd < 0 || fd[i].revents == 0)
                continue;
            ssize_t got = read(fd[i].fd, buf, sizeof buf);
            if (got < 0 && errno == EINTR)
                continue;
            if (got <= 0)
                fd[i].fd = -1;
            else if (i == 1)
                keep(words, size, &n, buf, (size_t)got);
            else if (rc == 0 && (rc = l->take(l->ctx, buf, (size_t)got, e)) < 0)
                kill(pid, SIGTERM);
        }
    }
    return rc;
}

int get_curl(const char *const *argv, const struct get_listener *l, char *words, size_t size,
             int *status, struct err *e)
{
    int o[2], w[2], code = 0, refused = 0;
    pid_t pid;
    if (pipe(o) != 0)
        return err_errno(e, "pipe");
    if (pipe(w) != 0) {
        int rc = err_errno(e, "pipe");
        close(o[0]);
        close(o[1]);
        return rc;
    }
    int rc = start(&pid, argv, o, w);
    close(o[1]);
    close(w[1]);
    if (rc == 0) {
        refused = listen_to(o[0], w[0], l, words, size, pid, e);
        while (waitpid(pid, &code, 0) < 0 && errno == EINTR) {
        }
        *status = WIFEXITED(code) ? WEXITSTATUS(code) : 128 + WTERMSIG(code);
    }
    close(o[0]);
    close(w[0]);
    if (refused < 0)
        return refused;
    if (rc == ENOENT || (rc == 0 && *status == NO_PROGRAM))
        return err_set(e, DS_ENOTFOUND, "get: curl not found; install it");
    return rc == 0 ? 0 : err_set(e, DS_EIO, "start curl: %s", strerror(rc));
}
