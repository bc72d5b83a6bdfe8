/* Runs child processes of a batch and forwards the signals that reach the parent. */
#include "cli/batch/batch_child.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdatomic.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/lease.h"
#include "base/process.h"

volatile sig_atomic_t batch_signal;
/* Each child is in its own process group, out of reach of the terminal's Ctrl-C: each signal is
 * forwarded to it exactly once, from here.  0 none; STARTING; STARTING - n: signal n arrived while
 * starting; a group is negative and below any of these. */
enum { STARTING = -1, GROUPS = -1000 };
static atomic_int child_pid[BATCH_CHILDREN];

static void send(int kept, int number)
{
    /* a run ignores SIGHUP */
    kill(kept > 0 ? kept : kept - GROUPS, number == SIGHUP ? SIGTERM : number);
}

static int is_started(int kept)
{
    return kept > 0 || kept < GROUPS;
}

static void pass_on(int number)
{
    for (int i = 0; i < BATCH_CHILDREN; i++) {
        int kept = STARTING;
        if (!atomic_compare_exchange_strong(&child_pid[i], &kept, STARTING - number) &&
            is_started(kept))
            send(kept, number);
    }
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

/* Ctrl-Z: the children are suspended with their parent. */
static void on_stop(int number)
{
    int before = errno, kept[BATCH_CHILDREN];
    (void)number;
    for (int i = 0; i < BATCH_CHILDREN; i++) {
        kept[i] = atomic_load(&child_pid[i]);
        if (is_started(kept[i]))
            send(kept[i], SIGSTOP);
    }
    kill(getpid(), SIGSTOP);
    for (int i = 0; i < BATCH_CHILDREN; i++)
        if (is_started(kept[i]))
            send(kept[i], SIGCONT);
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

static int free_slot(void)
{
    for (int i = 0; i < BATCH_CHILDREN; i++) {
        int none = 0;
        if (atomic_compare_exchange_strong(&child_pid[i], &none, STARTING))
            return i;
    }
    return -1;
}

int batch_child_start(struct batch_child *b, const char *program, const char *const *argv, int out,
                      int is_ours, struct err *e)
{
    const struct child_setup how = {.program = program,
                                    .argv = argv,
                                    .in = CHILD_NULL,
                                    .out = out >= 0 ? out : CHILD_NULL,
                                    .err = CHILD_PIPE,
                                    .is_nonblocking = 1,
                                    .is_group = 1,
                                    .ends_with_us = is_ours ? SIGTERM : 0};
    *b = (struct batch_child)BATCH_CHILD_NONE;
    int slot = free_slot();
    if (slot < 0)
        return err_set(e, DS_ERANGE, "too many processes at once, must be at most %d",
                       BATCH_CHILDREN);
    int rc = child_start(&b->c, &how, e);
    if (rc < 0) {
        atomic_store(&child_pid[slot], 0);
        child_close(&b->c, 0);
        return rc;
    }
    b->slot = slot;
    int kept = is_ours ? b->c.pid : GROUPS - b->c.pid;
    int was = atomic_exchange(&child_pid[slot], kept);
    if (was < STARTING)
        send(kept, STARTING - was);
    return 0;
}

static int has_ended(struct batch_child *b)
{
    int got;
    while ((got = child_tail(&b->c, b->c.err)) > 0) {
    }
    b->is_eof |= got == 0;
    if (!child_poll(&b->c))
        return 0;
    while (child_tail(&b->c, b->c.err) > 0) {
    }
    return 1;
}

int batch_child_wait(struct batch_child *list, size_t n, double seconds)
{
    struct pollfd fd[BATCH_CHILDREN];
    double until = clock_mono() + seconds;
    for (;;) {
        nfds_t fds = 0;
        double left = until - clock_mono();
        int is_about_to_end = 0;
        for (size_t i = 0; i < n; i++) {
            if (list[i].slot < 0)
                continue;
            if (has_ended(&list[i]))
                return (int)i;
            is_about_to_end |= list[i].is_eof; /* nothing reports when */
            if (!list[i].is_eof && fds < BATCH_CHILDREN)
                fd[fds++] = (struct pollfd){.fd = list[i].c.err, .events = POLLIN};
        }
        if (left <= 0)
            return -1;
        int ready = poll(fd, fds, is_about_to_end ? 10 : (int)(left * 1e3) + 1);
        if ((ready < 0 && errno == EINTR) || (ready == 0 && !is_about_to_end))
            return -1;
    }
}

void batch_child_signal(const struct batch_child *b, int number)
{
    if (b->slot >= 0)
        send(atomic_load(&child_pid[b->slot]), number);
}

int batch_child_end(struct batch_child *b, char *reason, size_t size)
{
    int failed = child_verdict(&b->c, reason, size) < 0;
    if (b->slot >= 0)
        atomic_store(&child_pid[b->slot], 0); /* the pid may be reused from now on */
    child_close(&b->c, 0);
    *b = (struct batch_child)BATCH_CHILD_NONE;
    return failed;
}

int batch_child(const char *const *argv, int out, struct lease *keep, char *reason, size_t size,
                struct err *e)
{
    struct batch_child b;
    int rc = batch_child_start(&b, NULL, argv, out, 1, e);
    if (rc < 0)
        return rc;
    while (batch_child_wait(&b, 1, 1) < 0)
        if (keep && lease_is_due(keep) && lease_renew(keep, NULL) == 0)
            batch_child_signal(&b, SIGKILL); /* another process does it by now */
    return batch_child_end(&b, reason, size);
}
