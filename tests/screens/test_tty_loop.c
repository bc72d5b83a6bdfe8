/* The event loop of the workbench on a pseudo-terminal: simultaneous signals, and an export with much output. */
#define _GNU_SOURCE /* posix_openpt */
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "t.h"
#include "tui/app.h"
#include "tui/term.h"

/* Runs fn in a child whose controlling terminal is the other end of *fd. */
static pid_t on_terminal(int *fd, void (*fn)(int out), int out)
{
    *fd = posix_openpt(O_RDWR | O_NOCTTY);
    if (*fd < 0 || grantpt(*fd) != 0 || unlockpt(*fd) != 0)
        t_skip("no pseudo-terminal here");
    struct winsize size = {24, 80, 0, 0};
    ioctl(*fd, TIOCSWINSZ, &size);
    pid_t pid = fork();
    if (pid != 0)
        return pid;
    setsid();
    int tty = open(ptsname(*fd), O_RDWR);
    ioctl(tty, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++)
        dup2(tty, i);
    setenv("TERM", "xterm-256color", 1);
    fn(out);
    _exit(0);
}

enum { LOST = 7, NO_TRACE = 8, NO_TERMINAL = 9 };

/* The tracer receives SIGCHLD at each step and would fill the shared pipe. */
static void block_child_signal(int how)
{
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(how, &set, NULL);
}

/* Polls for signals a few times; exit status 0 when SIGCHLD was reported. */
static void look(struct tty *t)
{
    int flags = 0;
    block_child_signal(SIG_UNBLOCK);
    if (ptrace(PTRACE_TRACEME, 0, NULL, NULL) < 0)
        _exit(NO_TRACE);
    raise(SIGSTOP);
    for (int i = 0; i < 20; i++)
        flags |= tty_signals(t);
    _exit(flags & TTY_CHILD ? 0 : LOST);
}

/* SIGCHLD after the child's n-th instruction; its exit status, -1 when it ended before. */
static int signal_after(struct tty *t, int n)
{
    int status;
    pid_t pid = fork();
    if (pid == 0)
        look(t);
    waitpid(pid, &status, 0);
    for (int i = 0; i < n && WIFSTOPPED(status); i++) {
        ptrace(PTRACE_SINGLESTEP, pid, NULL, NULL);
        waitpid(pid, &status, 0);
    }
    if (WIFEXITED(status))
        return WEXITSTATUS(status) == NO_TRACE ? NO_TRACE : -1;
    ptrace(PTRACE_CONT, pid, NULL, (void *)(intptr_t)SIGCHLD);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : LOST;
}

static void signal_everywhere(int out)
{
    struct tty t;
    struct err e = {0};
    (void)out;
    int rc = tty_open(&t, "xterm", 0, &e) < 0 ? NO_TERMINAL : 0;
    block_child_signal(SIG_BLOCK);
    if (rc == 0)
        tty_signals(&t); /* resolves symbols before instructions are counted */
    for (int n = 1; n <= 400 && rc == 0; n++)
        rc = signal_after(&t, n);
    _exit(rc < 0 ? NO_TRACE : rc);
}

T(no_signal_is_lost_at_any_instruction)
{
    int fd, status;
    pid_t pid = on_terminal(&fd, signal_everywhere, -1);
    t_eq(waitpid(pid, &status, 0), pid);
    close(fd);
    t_true(WIFEXITED(status));
    if (WEXITSTATUS(status) == NO_TRACE || WEXITSTATUS(status) == NO_TERMINAL)
        t_skip("no ptrace or no terminal here");
    t_eq(WEXITSTATUS(status), 0);
}

static char run_path[512], program[512], state[512];

static void run_workbench(int out)
{
    const char *paths[1] = {run_path};
    struct tui_options o = {.paths = paths, .n = 1, .program = program, .color = "never"};
    struct err e = {0};
    (void)out;
    setenv("XDG_STATE_HOME", state, 1);
    _exit(tui_run(&o, &e) < 0);
}

/* Reads terminal output until it contains `text`; 0: timed out. */
static int wait_for(int fd, struct str *seen, const char *text, double seconds)
{
    double end = clock_mono() + seconds;
    while (!strstr(str_text(seen), text) && clock_mono() < end) {
        struct pollfd p = {.fd = fd, .events = POLLIN};
        char buf[4096];
        ssize_t n = poll(&p, 1, 100) > 0 ? read(fd, buf, sizeof buf) : 0;
        if (n < 0)
            return 0;
        for (ssize_t i = 0; i < n; i++)
            str_add_char(seen, buf[i] ? buf[i] : ' ');
    }
    return strstr(str_text(seen), text) != NULL;
}

T(an_export_that_prints_200_kilobytes_reports_its_last_line)
{
    static const char script[] = "#!/bin/sh\n"
                                 "i=0; while [ $i -lt 4000 ]; do echo \"note $i: fifty bytes of "
                                 "what a figure warns about\"; "
                                 "i=$((i+1)); done\n"
                                 "echo exports/last-line.png\n";
    struct err e = {0};
    struct str seen = {0};
    int fd;
    snprintf(run_path, sizeof run_path, "%s", "tests/screens/training.mp");
    snprintf(program, sizeof program, "%s/talkative.sh", t_tmpdir());
    snprintf(state, sizeof state, "%s/state", t_tmpdir());
    t_ok(fs_write_file(program, script, sizeof script - 1, &e), &e);
    t_eq(chmod(program, 0700), 0);
    pid_t pid = on_terminal(&fd, run_workbench, -1);
    int is_drawn = wait_for(fd, &seen, "loss", 20);
    str_reset(&seen);
    t_eq(write(fd, "e", 1), 1);
    int is_written = wait_for(fd, &seen, "figure written: exports/last-line.png", 20);
    t_eq(write(fd, "q", 1), 1);
    wait_for(fd, &seen, "\x1b[?1049l", 5);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(fd);
    str_release(&seen);
    t_true(is_drawn);
    t_true(is_written);
}
