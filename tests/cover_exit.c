/* Linked into programs of COV=1: what a process executed is counted although it leaves by _exit, is
 * ended by SIGTERM, or by another program of ours with SIGKILL, as children that serve the workbench are.
 * SIGURG says that SIGKILL follows: other programs ignore it, and the status stays that of SIGKILL. */
#include <signal.h>
#include <stddef.h>
#include <sys/types.h>
#include <time.h>
#include <unistd.h>

void __gcov_dump(void);
void __real__exit(int status);
void __wrap__exit(int status);
int __real_kill(pid_t pid, int number);
int __wrap_kill(pid_t pid, int number);

void __wrap__exit(int status)
{
    __gcov_dump();
    __real__exit(status);
}

/* Time to write what it counted, first. */
int __wrap_kill(pid_t pid, int number)
{
    const struct timespec while_it_writes = {.tv_nsec = 200 * 1000 * 1000};
    if (number == SIGKILL && pid == getpid())
        __gcov_dump();
    else if (number == SIGKILL && __real_kill(pid, SIGURG) == 0)
        nanosleep(&while_it_writes, NULL);
    return __real_kill(pid, number);
}

static void end(int number)
{
    __gcov_dump();
    signal(number, SIG_DFL);
    raise(number);
}

static void count(int number)
{
    (void)number;
    __gcov_dump();
}

__attribute__((constructor)) static void begin(void)
{
    struct sigaction now;
    if (sigaction(SIGTERM, NULL, &now) == 0 && now.sa_handler == SIG_DFL)
        signal(SIGTERM, end);
    signal(SIGURG, count);
}
