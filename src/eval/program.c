/* Starts this program as a child process with posix_spawn. */
#include "eval/program.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/process.h"
#include "base/str.h"

extern char **environ;

void program_path(char *out, size_t size)
{
    const char *named = getenv("DEPTHSCOPE");
    if (named && named[0] == '/' && access(named, X_OK) == 0) {
        str_copy(out, size, named);
        return;
    }
    if (!process_path(out, size))
        str_copy(out, size, "depthscope"); /* searched in PATH */
}

static int place(posix_spawn_file_actions_t *f, int fd, int as)
{
    if (fd >= 0)
        return posix_spawn_file_actions_adddup2(f, fd, as);
    return posix_spawn_file_actions_addopen(f, as, "/dev/null", as == 0 ? O_RDONLY : O_WRONLY, 0);
}

static int start(pid_t *pid, const char *const *argv, int in, int out, int err, int apart,
                 struct err *e)
{
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attr;
    sigset_t all, none;
    char path[1024];
    /* posix_spawnp takes char *const[] but does not modify it */
    char *const *args = (char *const *)(uintptr_t)argv;
    program_path(path, sizeof path);
    int rc = posix_spawn_file_actions_init(&files);
    if (rc != 0)
        return err_set(e, DS_EMEM, "cannot start a process: %s", strerror(rc));
    rc = posix_spawnattr_init(&attr);
    if (rc == 0) {
        sigfillset(&all);
        sigdelset(&all, SIGKILL);
        sigdelset(&all, SIGSTOP);
        sigemptyset(&none);
        rc = posix_spawnattr_setsigdefault(&attr, &all);
        if (rc == 0)
            rc = posix_spawnattr_setsigmask(&attr, &none);
        if (rc == 0)
            rc = posix_spawnattr_setflags(&attr,
                                          (short)(POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSIGMASK |
                                                  (apart ? POSIX_SPAWN_SETPGROUP : 0)));
        for (int as = 0; as < 3 && rc == 0; as++)
            rc = place(&files, as == 0 ? in : as == 1 ? out : err, as);
        if (rc == 0)
            rc = posix_spawnp(pid, path, &files, &attr, args, environ);
        posix_spawnattr_destroy(&attr);
    }
    posix_spawn_file_actions_destroy(&files);
    return rc == 0 ? 0 : err_set(e, DS_EIO, "%s: cannot start: %s", path, strerror(rc));
}

int program_start(pid_t *pid, const char *const *argv, int in, int out, int err, struct err *e)
{
    return start(pid, argv, in, out, err, 0, e);
}

int program_start_apart(pid_t *pid, const char *const *argv, int in, int out, int err,
                        struct err *e)
{
    return start(pid, argv, in, out, err, 1, e);
}
