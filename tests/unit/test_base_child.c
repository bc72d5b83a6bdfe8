/* Child processes: what they get, what is kept of what they print, how their end is told. */
#include "t.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/child.h"
#include "base/clock.h"
#include "base/fs.h"

static int run_shell(struct child *c, const char *script, int out, int err)
{
    const char *argv[] = {"sh", "-c", script, NULL};
    struct err e = {0};
    struct child_setup how = {
        .program = "sh", .argv = argv, .in = CHILD_NULL, .out = out, .err = err};
    int rc = child_start(c, &how, &e);
    t_ok(rc, &e);
    return rc;
}

static void drain(struct child *c, int fd)
{
    while (child_tail(c, fd) > 0) {
    }
    child_wait(c);
}

T(exit_status_0_has_no_reason)
{
    struct child c;
    char why[200] = "x";
    run_shell(&c, "exit 0", CHILD_NULL, CHILD_PIPE);
    drain(&c, c.err);
    t_eq(child_verdict(&c, why, sizeof why), 0);
    t_str(why, "");
    child_close(&c, 0);
}

T(the_reason_is_the_last_line_without_the_programs_name)
{
    struct child c;
    char why[200];
    run_shell(&c,
              "echo 'depthscope: first' >&2; echo 'depthscope: no room left' >&2; echo >&2; exit 3",
              CHILD_NULL, CHILD_PIPE);
    drain(&c, c.err);
    t_eq(child_verdict(&c, why, sizeof why), -1);
    t_str(why, "no room left");
    child_close(&c, 0);
}

T(silent_exits_are_reported_by_status_and_signal)
{
    struct child c;
    char why[200];
    run_shell(&c, "exit 3", CHILD_NULL, CHILD_NULL);
    child_wait(&c);
    t_eq(child_verdict(&c, why, sizeof why), -1);
    t_str(why, "exit status 3");
    run_shell(&c, "kill -KILL $$", CHILD_NULL, CHILD_NULL);
    child_wait(&c);
    t_eq(child_verdict(&c, why, sizeof why), -1);
    t_true(strstr(why, "killed by signal 9") != NULL);
}

T(the_newest_bytes_of_a_long_output_are_kept)
{
    struct child c;
    run_shell(&c, "i=0; while [ $i -lt 20000 ]; do echo line $i; i=$((i+1)); done", CHILD_PIPE,
              CHILD_SAME);
    drain(&c, c.out);
    t_true(c.tail_n < CHILD_TAIL && c.tail_n > CHILD_TAIL / 2);
    t_str(child_last_line(&c), "line 19999");
    child_close(&c, 0);
}

T(a_missing_program_is_not_found)
{
    const char *argv[] = {"no-such-program-here", NULL};
    struct child c;
    struct err e = {0};
    struct child_setup how = {
        .program = argv[0], .argv = argv, .in = CHILD_NULL, .out = CHILD_NULL, .err = CHILD_NULL};
    t_fails(child_start(&c, &how, &e), &e, DS_ENOTFOUND, "no-such-program-here");
    t_eq(c.pid, 0);
}

/* A descriptor of ours that is 0, 1 or 2 itself, and signals that we ignore or block. */
T(a_child_starts_with_clean_signals_and_descriptors)
{
    struct child c;
    sigset_t set;
    char why[200];
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    signal(SIGPIPE, SIG_IGN);
    int extra = open("/dev/null", O_RDONLY);
    t_true(extra > 2);
    char script[200];
    snprintf(script, sizeof script,
             "[ ! -e /dev/fd/%d ] || { echo open >&2; exit 1; }; kill -TERM $$; sleep 5", extra);
    run_shell(&c, script, CHILD_NULL, CHILD_PIPE);
    drain(&c, c.err);
    t_eq(child_verdict(&c, why, sizeof why), -1);
    t_truef(strstr(why, "signal 15") != NULL, "%s", why);
    close(extra);
    child_close(&c, 0);
}

T(writing_to_a_dead_child_socket_is_an_error_not_a_signal)
{
    const char *argv[] = {"sh", "-c", "read x; echo got $x", NULL};
    struct child c;
    struct err e = {0};
    struct child_setup how = {
        .program = "sh", .argv = argv, .in = CHILD_SOCKET, .out = CHILD_PIPE, .err = CHILD_NULL};
    t_ok(child_start(&c, &how, &e), &e);
    t_eq(write(c.in, "word\n", 5), 5);
    drain(&c, c.out);
    t_str(child_last_line(&c), "got word");
    child_close(&c, 0);
}

T(a_detached_child_outlives_its_starter_and_is_not_waited_for)
{
    const char *dir = t_tmpdir();
    char script[600], path[500];
    snprintf(path, sizeof path, "%s/done", dir);
    snprintf(script, sizeof script, "ps -o ppid= -p $$ >/dev/null 2>&1; : >'%s'", path);
    const char *argv[] = {"sh", "-c", script, NULL};
    struct child c;
    struct err e = {0};
    struct child_setup how = {.program = "sh",
                              .argv = argv,
                              .in = CHILD_NULL,
                              .out = CHILD_NULL,
                              .err = CHILD_NULL,
                              .is_detached = 1};
    t_ok(child_start(&c, &how, &e), &e);
    t_eq(c.pid, 0);
    for (int i = 0; i < 500 && !fs_exists(path); i++)
        clock_sleep(0.01);
    t_true(fs_exists(path));
    argv[0] = "no-such-program-here";
    how.program = argv[0];
    t_fails(child_start(&c, &how, &e), &e, DS_ENOTFOUND, "no-such-program-here");
}

T(closing_kills_a_running_child)
{
    struct child c;
    run_shell(&c, "exec sleep 100", CHILD_NULL, CHILD_NULL);
    t_eq(child_poll(&c), 0);
    pid_t pid = c.pid;
    child_close(&c, SIGKILL);
    t_true(kill(pid, 0) != 0);
}
