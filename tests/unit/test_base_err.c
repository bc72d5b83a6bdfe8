/* Errors, bugs, log messages, the clock and fault rules. */
#include "t.h"

#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/err.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/mem.h"

T(err_add_prepends_context_and_keeps_one_line)
{
    struct err e = {0};
    t_eq(err_set(&e, DS_EFORMAT, "header\n%s\x1b[2J\xff", "a\tb"), DS_EFORMAT);
    t_str(e.text, "header a b?[2J?");
    t_eq(err_add(&e, e.code, "file %s", "x"), DS_EFORMAT);
    t_str(e.text, "file x: header a b?[2J?");
    t_eq(err_set(NULL, DS_EIO, "nobody listens"), DS_EIO);
    t_eq(err_add(NULL, DS_EIO, "nobody listens"), DS_EIO);
}

T(err_set_accepts_its_own_text_as_argument)
{
    struct err e = {0};
    err_set(&e, DS_EIO, "inner");
    err_set(&e, DS_EIO, "again %s", e.text);
    t_str(e.text, "again inner");
    err_add(&e, DS_EIO, "<%s>", e.text);
    t_str(e.text, "<again inner>: again inner");
}

T(err_errno_names_the_cause)
{
    struct err e = {0};
    errno = ENOSPC;
    t_eq(err_errno(&e, "write %s", "f"), DS_EIO);
    t_str(e.text, "write f: No space left on device");
    t_eq(errno, ENOSPC);
}

T(err_without_text_is_named_by_its_code)
{
    struct err e = {0};
    err_add(&e, DS_EBUSY, "run a");
    t_str(e.text, "run a: locked by another process");
    t_str(err_name(-99), "unknown error");
    t_str(err_name(1), "unknown error");
    for (int code = DS_ESTOP; code <= 0; code++)
        t_true(err_name(code)[0] != '\0' && strcmp(err_name(code), "unknown error") != 0);
}

T(long_err_text_keeps_its_start_and_the_cause)
{
    static char large[3000];
    struct err e = {0};
    memset(large, 'x', sizeof large - 1);
    err_set(&e, DS_EIO, "%s", large);
    t_eq(strlen(e.text), ERR_TEXT_MAX - 1);
    t_true(strstr(e.text, "...") != NULL);
    err_set(&e, DS_EIO, "%s: the cause", large);
    t_str(e.text + strlen(e.text) - 9, "the cause");
    t_true(strlen(e.text) < ERR_TEXT_MAX);
    err_set(&e, DS_EIO, "the cause");
    for (int i = 0; i < 20; i++)
        err_add(&e, DS_EIO, "%.100s", large);
    t_true(strlen(e.text) < ERR_TEXT_MAX);
    t_str(e.text + strlen(e.text) - 9, "the cause");
    err_add(&e, DS_EIO, "%s", large);
    t_str(e.text + strlen(e.text) - 9, "the cause");
    /* A cut inside a character must not leave half of it. */
    for (size_t i = 0; i + 2 < sizeof large; i += 2)
        memcpy(large + i, "\xc3\xa9", 2);
    err_set(&e, DS_EIO, "x%s", large);
    for (const char *p = e.text + 1; *p; p++)
        if (*p == '\xc3')
            t_true(p[1] == '\xa9');
}

static void mark(void)
{
    if (write(STDOUT_FILENO, "restored\n", 9) != 9)
        _exit(3);
}

T(bug_restores_the_terminal_once_then_aborts)
{
    int pipe_fd[2], status;
    char text[600] = "";
    t_eq(pipe(pipe_fd), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(pipe_fd[1], STDOUT_FILENO);
        dup2(pipe_fd[1], STDERR_FILENO);
        bug_set_restore(mark);
        BUG_IF(1, "shape (%d,%d)", 2, 3);
    }
    close(pipe_fd[1]);
    for (size_t at = 0; at < sizeof text - 1;) {
        ssize_t n = read(pipe_fd[0], text + at, sizeof text - 1 - at);
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    t_eq(waitpid(child, &status, 0), child);
    t_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    t_true(strncmp(text, "restored\ndepthscope: bug at ", 28) == 0);
    t_true(strstr(text, "shape (2,3)\n") != NULL);
}

static char heard[600];
static enum log_level heard_level;

static void hear(void *ctx, enum log_level level, const char *text)
{
    *(int *)ctx += 1;
    heard_level = level;
    snprintf(heard, sizeof heard, "%s", text);
}

T(log_sanitises_before_the_sink)
{
    int calls = 0;
    log_to(hear, &calls);
    log_warn("run %s", "\x1b]0;title\x07");
    log_to(NULL, NULL);
    t_eq(calls, 1);
    t_eq(heard_level, LOG_WARN);
    t_str(heard, "run <0x1B>]0;title<0x07>");
}

T(log_truncates_long_messages)
{
    static char large[20000];
    int calls = 0;
    memset(large, 'x', sizeof large - 1);
    log_to(hear, &calls);
    log_info("%s", large);
    log_to(NULL, NULL);
    t_eq(calls, 1);
}

T(log_keeps_level_and_text_without_memory)
{
    char text[300] = "";
    int pipe_fd[2], before = dup(STDERR_FILENO);
    t_true(before >= 0 && pipe(pipe_fd) == 0 && dup2(pipe_fd[1], STDERR_FILENO) >= 0);
    mem_fail_at(mem_calls() + 1, 1);
    log_error("checkpoint\n%s", "\x1b[2J: out of memory");
    log_warn("a warning");
    log_info("a note");
    mem_fail_at(0, 0);
    t_true(dup2(before, STDERR_FILENO) >= 0);
    t_true(read(pipe_fd[0], text, sizeof text - 1) > 0);
    t_str(text, "depthscope: error: checkpoint ?[2J: out of memory\n"
                "depthscope: warning: a warning\ndepthscope: a note\n");
    close(before);
    close(pipe_fd[0]);
    close(pipe_fd[1]);
}

T(clock_can_be_fixed)
{
    setenv("DEPTHSCOPE_CLOCK", "fixed", 1);
    t_true(clock_mono() == 0 && clock_wall() == 0);
}

T(clock_is_monotonic)
{
    unsetenv("DEPTHSCOPE_CLOCK");
    double before = clock_mono();
    clock_sleep(0.01);
    clock_sleep(-1);
    clock_sleep((double)NAN);
    t_true(clock_mono() - before >= 0.0099);
    t_true(clock_wall() > 1.5e9);
}

T(out_of_memory_is_always_said)
{
    struct err e = {0};
    t_eq(err_set(&e, DS_EMEM, "%s", "train"), DS_EMEM);
    t_str(e.text, "train: out of memory");
    err_set(&e, DS_EMEM, "out of memory for settings");
    t_str(e.text, "out of memory for settings");
    err_set(&e, DS_EIO, "train");
    t_str(e.text, "train");
}

T(fault_rules_are_parsed)
{
    struct fault_rule r = {0};
    const char *spec = "write:3+=ENOSPC,fsync:1,open:12=EACCES";
    t_eq(fault_find(spec, "write", &r), 1);
    t_true(r.at == 3 && r.persistent && r.number == ENOSPC);
    t_true(!fault_hits(&r, 2) && fault_hits(&r, 3) && fault_hits(&r, 4));
    t_eq(fault_find(spec, "fsync", &r), 1);
    t_true(r.at == 1 && !r.persistent && r.number == EIO);
    t_true(fault_hits(&r, 1) && !fault_hits(&r, 2));
    t_eq(fault_find(spec, "open", &r), 1);
    t_true(r.at == 12 && r.number == EACCES);
    t_eq(fault_find(spec, "rename", &r), 0);
    t_eq(fault_find("read:2+=SHORT", "read", &r), 1);
    t_true(r.at == 2 && r.persistent && r.number == FAULT_SHORT);
    t_eq(fault_find("", "open", &r), 0);
    t_eq(fault_find(",,:,open", "open", &r), 0);
}
