/* Fork, exec and wait, with a failed exec reported to the parent. */
#define _GNU_SOURCE /* memfd_create */
#include "base/child.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/process.h"
#include "base/str.h"

void child_self(char *out, size_t size)
{
    const char *named = getenv("DEPTHSCOPE");
    if (named && named[0] == '/' && access(named, X_OK) == 0) {
        str_copy(out, size, named);
        return;
    }
    if (!process_path(out, size))
        str_copy(out, size, "depthscope"); /* PATH is searched */
}

static void close_fd(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* ---- in the child: async-signal-safe calls only ---- */

static void default_signals(void)
{
    sigset_t none;
    struct sigaction was, act = {.sa_handler = SIG_DFL};
    int is_nohup = sigaction(SIGHUP, NULL, &was) == 0 && was.sa_handler == SIG_IGN;
    for (int s = 1; s < 32; s++)
        if (s != SIGKILL && s != SIGSTOP && !(s == SIGHUP && is_nohup))
            sigaction(s, &act, NULL);
    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
}

/* /dev/null; without /dev an input that has ended, and an output into unnamed memory. */
static int open_null(int is_input)
{
    int ends[2], fd = open("/dev/null", is_input ? O_RDONLY : O_WRONLY);
    if (fd < 0 && is_input && pipe(ends) == 0) {
        close(ends[1]);
        fd = ends[0];
    }
#ifdef MFD_CLOEXEC
    if (fd < 0 && !is_input)
        fd = memfd_create("null", MFD_CLOEXEC);
#endif
    return fd;
}

/* Moves descriptors 0 to 2 into place and closes all others but two. */
static int place_descriptors(const int want[3], int keep, int report)
{
    int fd[3];
    for (int i = 0; i < 3; i++) {
        /* copies above 2 first, so that none is overwritten before it is moved */
        int from = want[i] >= 0 ? want[i] : open_null(i == 0);
        fd[i] = from >= 0 ? fcntl(from, F_DUPFD, 10) : -1;
        if (fd[i] < 0)
            return -1;
    }
    for (int i = 0; i < 3; i++)
        if (dup2(fd[i], i) < 0)
            return -1;
    for (int other = 3; other < 256; other++)
        if (other != keep && other != report)
            close(other);
    return 0;
}

/* A parent that ended before the call sends nothing any more. */
static void end_with(pid_t parent, int number)
{
#ifdef __linux__
    if (number != 0 && (prctl(PR_SET_PDEATHSIG, number) != 0 || getppid() != parent))
        _exit(127);
#else
    (void)parent, (void)number;
#endif
}

static void become(const char *path, const struct child_setup *how, const int fd[3], int report)
{
    /* exec takes char *const[] but does not modify it */
    char *const *argv = (char *const *)(uintptr_t)how->argv;
    default_signals();
    if (place_descriptors(fd, how->keep, report) == 0) {
        if (!how->program && !getenv("DEPTHSCOPE"))
            execv("/proc/self/exe", argv); /* works even if the file was replaced */
        execvp(path, argv);
    }
    int why = errno;
    ssize_t ignored = write(report, &why, sizeof why);
    (void)ignored;
    _exit(127);
}

/* ---- in the parent ---- */

/* end[0] is ours, close-on-exec; end[1] the child's. */
static int open_ends(int end[2], int kind, int as)
{
    int both[2];
    if (kind == CHILD_SOCKET) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, both) != 0)
            return -1;
    } else if (fault_fails(FAULT_PIPE) || pipe(both) != 0) {
        return -1;
    }
    end[0] = as == 0 ? both[1] : both[0];
    end[1] = as == 0 ? both[0] : both[1];
    fcntl(end[0], F_SETFD, FD_CLOEXEC);
    fcntl(end[1], F_SETFD, FD_CLOEXEC);
    return 0;
}

/* The errno of a failed execvp; 0 when it succeeded, which closes the pipe. */
static int exec_error(int fd)
{
    int why = 0;
    ssize_t n;
    do {
        n = read(fd, &why, sizeof why);
    } while (n < 0 && errno == EINTR);
    return n == (ssize_t)sizeof why ? why : 0;
}

static void wait_for(pid_t pid, int *status)
{
    while (waitpid(pid, status, 0) < 0 && errno == EINTR) {
    }
}

/* Creates the pipes requested by `how`; on failure too, open ends are in ours and theirs. */
static int open_pipes(const struct child_setup *how, int ours[3], int theirs[3])
{
    const int kind[3] = {how->in, how->out, how->err};
    for (int i = 0; i < 3; i++) {
        int end[2];
        if (kind[i] != CHILD_PIPE && kind[i] != CHILD_SOCKET)
            continue;
        if (open_ends(end, kind[i], i) != 0)
            return -1;
        ours[i] = end[0];
        theirs[i] = end[1];
        if (how->is_nonblocking)
            fcntl(end[0], F_SETFL, fcntl(end[0], F_GETFL) | O_NONBLOCK);
    }
    return 0;
}

/* In the forked process: executes the program; if detached, forks again and exits. */
static void leave(const char *path, const struct child_setup *how, const int fd[3], int report)
{
    if (how->is_session || how->is_detached)
        setsid();
    else if (how->is_group)
        setpgid(0, 0);
    if (!how->is_detached)
        become(path, how, fd, report);
    pid_t pid = fork(); /* double fork: init reaps the grandchild */
    if (pid == 0)
        become(path, how, fd, report);
    int why = errno;
    ssize_t ignored = pid < 0 ? write(report, &why, sizeof why) : 0;
    (void)ignored;
    _exit(pid < 0);
}

int child_start(struct child *c, const struct child_setup *how, struct err *e)
{
    int ours[3] = {-1, -1, -1}, theirs[3] = {-1, -1, -1}, report[2] = {-1, -1}, rc = 0, why, status;
    char self[1024];
    const char *path = how->program;
    *c = (struct child)CHILD_NONE;
    if (!path) {
        child_self(self, sizeof self);
        path = self;
    }
    if (open_pipes(how, ours, theirs) != 0 || fault_fails(FAULT_PIPE) || pipe(report) != 0) {
        rc = err_errno(e, "start %s", path);
        goto out;
    }
    fcntl(report[0], F_SETFD, FD_CLOEXEC);
    fcntl(report[1], F_SETFD, FD_CLOEXEC);
    const int want[3] = {how->in, how->out, how->err};
    int fd[3];
    for (int i = 0; i < 3; i++)
        fd[i] = theirs[i] >= 0 ? theirs[i] : want[i];
    if (how->err == CHILD_SAME)
        fd[2] = fd[1];
    pid_t self_pid = getpid(), pid = fault_fails(FAULT_FORK) ? -1 : fork();
    if (pid < 0) {
        rc = err_errno(e, "start %s", path);
        goto out;
    }
    if (pid == 0) {
        end_with(self_pid, how->ends_with_us);
        leave(path, how, fd, report[1]);
    }
    close_fd(&report[1]);
    why = exec_error(report[0]);
    if (why != 0 || how->is_detached)
        wait_for(pid, &status);
    if (why != 0)
        rc = err_set(e, why == ENOENT ? DS_ENOTFOUND : DS_EIO, "start %s: %s", path, strerror(why));
    else
        *c = (struct child){
            .pid = how->is_detached ? 0 : pid, .in = ours[0], .out = ours[1], .err = ours[2]};
out:
    close_fd(&report[0]);
    close_fd(&report[1]);
    for (int i = 0; i < 3; i++) {
        close_fd(&theirs[i]);
        if (rc < 0)
            close_fd(&ours[i]);
    }
    return rc;
}

/* Keeps the newest bytes that fit. */
static void keep_newest(struct child *c, const char *p, size_t n)
{
    size_t room = sizeof c->tail - 1;
    if (n > room) {
        p += n - room;
        n = room;
    }
    if (c->tail_n + n > room) {
        size_t drop = c->tail_n + n - room;
        memmove(c->tail, c->tail + drop, c->tail_n - drop);
        c->tail_n -= drop;
    }
    memcpy(c->tail + c->tail_n, p, n);
    c->tail_n += n;
    c->tail[c->tail_n] = '\0';
}

int child_tail(struct child *c, int fd)
{
    char buf[4096];
    ssize_t n;
    do {
        n = fd >= 0 ? read(fd, buf, sizeof buf) : 0;
    } while (n < 0 && errno == EINTR);
    if (n > 0)
        keep_newest(c, buf, (size_t)n);
    if (n > 0)
        return 1;
    return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? -1 : 0;
}

const char *child_last_line(struct child *c)
{
    static const char name[] = "depthscope: ";
    while (c->tail_n > 0 && strchr("\n\r ", c->tail[c->tail_n - 1]))
        c->tail[--c->tail_n] = '\0';
    char *line = strrchr(c->tail, '\n');
    line = line ? line + 1 : c->tail;
    return strncmp(line, name, sizeof name - 1) == 0 ? line + sizeof name - 1 : line;
}

int child_poll(struct child *c)
{
    if (c->pid > 0) {
        pid_t got = waitpid(c->pid, &c->status, WNOHANG);
        if (got == 0 || (got < 0 && errno == EINTR))
            return 0;
        c->has_ended = 1;
        c->pid = 0;
    }
    return c->has_ended;
}

void child_wait(struct child *c)
{
    if (c->pid <= 0)
        return;
    wait_for(c->pid, &c->status);
    c->has_ended = 1;
    c->pid = 0;
}

int child_verdict(struct child *c, char *reason, size_t size)
{
    reason[0] = '\0';
    if (c->has_ended && WIFEXITED(c->status) && WEXITSTATUS(c->status) == 0)
        return 0;
    if (c->has_ended && WIFSIGNALED(c->status))
        snprintf(reason, size, "killed by signal %d (%s)", WTERMSIG(c->status),
                 strsignal(WTERMSIG(c->status)));
    else if (child_last_line(c)[0])
        str_copy(reason, size, child_last_line(c));
    else if (c->has_ended)
        snprintf(reason, size, "exit status %d", WEXITSTATUS(c->status));
    else
        str_copy(reason, size, "still running");
    return -1;
}

void child_close(struct child *c, int signal)
{
    close_fd(&c->in);
    close_fd(&c->out);
    close_fd(&c->err);
    if (c->pid > 0 && signal != 0) {
        kill(c->pid, signal);
        child_wait(c);
    }
}
