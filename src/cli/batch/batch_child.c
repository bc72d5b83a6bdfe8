/* Runs one training run as a child process and forwards the signals that reach the parent. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/child.h"
#include "base/process.h"
#include "cli/batch/batch_child.h"

volatile sig_atomic_t batch_signal;
/* The child is in its own process group, out of reach of the terminal's Ctrl-C: each signal is
 * forwarded to it exactly once, from here. */
static atomic_int child_pid; /* 0 none; STARTING; STARTING - n: signal n arrived while starting */
enum { STARTING = -1 };

static void send(pid_t pid, int number)
{
    kill(pid, number == SIGHUP ? SIGTERM : number); /* a run ignores SIGHUP */
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
        return;            /* repeated every second */
    if (number != SIGUSR1) /* asks a run for a checkpoint and ends nothing */
        batch_signal = number;
    pass_on(number);
    errno = before;
}

/* Ctrl-Z: the child is suspended with its parent. */
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
    /* keep signals ignored that nohup or the shell's job control ignores */
    if (sigaction(number, NULL, &was) == 0 && was.sa_handler == SIG_IGN &&
        (number == SIGHUP || number == SIGTSTP))
        return;
    sigemptyset(&act.sa_mask); /* no SA_RESTART: waits must return with EINTR */
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

int batch_child(const char *const *argv, int out, char *reason, size_t size, struct err *e)
{
    struct child c;
    const struct child_setup how = {.argv = argv,
                                    .in = CHILD_NULL,
                                    .out = out >= 0 ? out : CHILD_NULL,
                                    .err = CHILD_PIPE,
                                    .is_group = 1};
    atomic_store(&child_pid, STARTING);
    int rc = child_start(&c, &how, e);
    if (rc == 0) {
        int was = atomic_exchange(&child_pid, c.pid);
        if (was < STARTING)
            send(c.pid, STARTING - was);
        while (child_tail(&c, c.err) > 0) {
        }
        child_wait(&c);
        rc = child_verdict(&c, reason, size) < 0;
    }
    atomic_store(&child_pid, 0); /* the pid may be reused from now on */
    child_close(&c, 0);
    return rc;
}
