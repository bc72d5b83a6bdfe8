/* One training run as a child process, and the signals that reach its parent. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/process.h"
#include "cli/batch_child.h"
#include "eval/program.h"

volatile sig_atomic_t batch_signal;
/* A terminal's Ctrl-C does not reach the child, which is a process group of its own: it hears of each signal once, from here,
 * wherever that came from. */
static atomic_int child_pid; /* 0 none; STARTING; STARTING - n: signal n came meanwhile */
enum { STARTING = -1 };

static void send(pid_t pid, int number)
{
    kill(pid, number == SIGHUP ? SIGTERM : number); /* a run outlives hang-ups */
}

static void pass_on(int number)
{
    int pid = STARTING;
    if (!atomic_compare_exchange_strong(&child_pid, &pid, STARTING - number) && pid > 0)
        send(pid, number);
}

static void on_signal(int number)
{
    int before = errno;
    if (number == SIGXCPU && batch_signal)
        return;            /* comes again every second */
    if (number != SIGUSR1) /* which asks a run for a checkpoint, and ends nothing */
        batch_signal = number;
    pass_on(number);
    errno = before;
}

/* Ctrl-Z: the child waits as long as its parent does. */
static void on_stop(int number)
{
    int before = errno;
    pid_t pid = atomic_load(&child_pid);
    (void)number;
    if (pid > 0)
        kill(pid, SIGSTOP);
    kill(getpid(), SIGSTOP);
    if (pid > 0)
        kill(pid, SIGCONT);
    errno = before;
}

static void catch_signal(int number, void (*handler)(int))
{
    struct sigaction was, act = {.sa_handler = handler};
    /* nohup, and what a shell does to its background jobs' terminal signals */
    if (sigaction(number, NULL, &was) == 0 && was.sa_handler == SIG_IGN &&
        (number == SIGHUP || number == SIGTSTP))
        return;
    sigemptyset(&act.sa_mask); /* no SA_RESTART: a wait has to notice */
    sigaction(number, &act, NULL);
}

void batch_catch_signals(void)
{
    catch_signal(SIGINT, on_signal);
    catch_signal(SIGUSR1, on_signal);
    for (int i = 0; process_end_signals[i]; i++)
        catch_signal(process_end_signals[i], on_signal);
    catch_signal(SIGHUP, on_signal);
    catch_signal(SIGQUIT, on_signal);
    catch_signal(SIGTSTP, on_stop);
}

/* The newest bytes of the child's stderr, until it closes it. */
static void read_words(int fd, char *words, size_t size)
{
    char buf[1024];
    size_t n = 0;
    for (;;) {
        ssize_t k = read(fd, buf, sizeof buf);
        if (k < 0 && errno == EINTR)
            continue;
        if (k <= 0)
            break;
        size_t got = (size_t)k < size - 1 ? (size_t)k : size - 1, room = size - 1 - n;
        if (got > room) {
            memmove(words, words + (got - room), n - (got - room));
            n -= got - room;
        }
        memcpy(words + n, buf + ((size_t)k - got), got);
        n += got;
    }
    words[n] = '\0';
}

/* The last line, without the program's name. */
static void last_line(char *out, size_t size, char *words)
{
    static const char name[] = "depthscope: ";
    size_t n = strlen(words);
    while (n > 0 && words[n - 1] == '\n')
        words[--n] = '\0';
    char *line = strrchr(words, '\n');
    line = line ? line + 1 : words;
    str_copy(out, size, strncmp(line, name, sizeof name - 1) == 0 ? line + sizeof name - 1 : line);
}

int batch_child(const char *const *argv, char *reason, size_t size, struct err *e)
{
    char words[4096];
    int fd[2], status = 0;
    pid_t pid;
    if (pipe(fd) != 0)
        return err_errno(e, "pipe");
    atomic_store(&child_pid, STARTING);
    int rc = program_start_apart(&pid, argv, -1, -1, fd[1], e);
    close(fd[1]);
    if (rc == 0) {
        int was = atomic_exchange(&child_pid, pid);
        if (was < STARTING)
            send(pid, STARTING - was);
        read_words(fd[0], words, sizeof words);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        atomic_store(&child_pid, 0); /* the number may be another's now */
        last_line(reason, size, words);
        if (WIFSIGNALED(status))
            snprintf(reason, size, "killed by signal %d", WTERMSIG(status));
        else if (WEXITSTATUS(status) != 0 && !reason[0])
            snprintf(reason, size, "exit status %d", WEXITSTATUS(status));
        rc = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
    }
    atomic_store(&child_pid, 0);
    close(fd[0]);
    return rc;
}
