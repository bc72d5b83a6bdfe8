/* One training run as a child process. */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cli/batch_child.h"
#include "eval/program.h"

volatile sig_atomic_t batch_signal;

static void on_signal(int number)
{
    batch_signal = number;
}

void batch_catch_signals(void)
{
    /* no SA_RESTART: a wait has to notice */
    struct sigaction act = {.sa_handler = on_signal};
    sigaction(SIGINT, &act, NULL);
    sigaction(SIGTERM, &act, NULL);
}

/* The newest bytes of the child's stderr, until it closes it. */
static void read_words(int fd, pid_t pid, char *words, size_t size)
{
    char buf[1024];
    size_t n = 0;
    int told = 0;
    for (;;) {
        ssize_t k = read(fd, buf, sizeof buf);
        if (k < 0 && errno == EINTR) {
            /* Ctrl-C reached the child by itself; a SIGTERM to this process did not */
            if (batch_signal == SIGTERM && !told++)
                kill(pid, SIGTERM);
            continue;
        }
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
    int rc = program_start(&pid, argv, -1, -1, fd[1], e);
    close(fd[1]);
    if (rc == 0) {
        read_words(fd[0], pid, words, sizeof words);
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
        }
        last_line(reason, size, words);
        if (WIFSIGNALED(status))
            snprintf(reason, size, "killed by signal %d", WTERMSIG(status));
        else if (WEXITSTATUS(status) != 0 && !reason[0])
            snprintf(reason, size, "exit status %d", WEXITSTATUS(status));
        rc = WIFEXITED(status) && WEXITSTATUS(status) == 0 ? 0 : 1;
    }
    close(fd[0]);
    return rc;
}
