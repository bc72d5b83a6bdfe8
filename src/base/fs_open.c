/* Opens user-supplied paths: regular files, and pipes passed by the shell.  Never blocks on a FIFO,
 * and never opens a device by accident. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

/* N of /dev/fd/N and /proc/self/fd/N, else -1. */
static int numbered_fd(const char *path)
{
    int fd = -1, end = 0;
    if ((sscanf(path, "/dev/fd/%5d%n", &fd, &end) == 1 ||
         sscanf(path, "/proc/self/fd/%5d%n", &fd, &end) == 1) &&
        path[end] == '\0')
        return fd;
    return -1;
}

/* The same for input.  By name only: a link in a model directory that resolves to a terminal was
 * not passed by the user. */
static int inherited_fd(const char *path)
{
    return strcmp(path, "/dev/stdin") == 0 ? STDIN_FILENO : numbered_fd(path);
}

int fs_stream_fd(const char *path)
{
    if (strcmp(path, "-") == 0 || strcmp(path, "/dev/stdout") == 0)
        return STDOUT_FILENO;
    return strcmp(path, "/dev/stderr") == 0 ? STDERR_FILENO : numbered_fd(path);
}

static const char *kind_name(mode_t mode)
{
    return S_ISDIR(mode)    ? "a directory"
           : S_ISFIFO(mode) ? "a FIFO"
           : S_ISSOCK(mode) ? "a socket"
                            : "a device";
}

static int refuse(const char *path, mode_t mode, struct err *e)
{
    return err_set(e, DS_EIO, "%s: is %s, expected a regular file%s", path, kind_name(mode),
                   S_ISFIFO(mode) ? " (pass a pipe as /dev/stdin)" : "");
}

/* Reopens a descriptor passed by the user; where that is impossible (a socket, no /proc) duplicates
 * it.  Reads may block, since its writer exists. */
static int open_inherited(int *fd, int from, const char *path, struct err *e)
{
    int got = fs_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (got < 0 && (errno == ENXIO || errno == ENOENT || errno == EACCES))
        got = fcntl(from, F_DUPFD_CLOEXEC, 3);
    else if (got >= 0)
        (void)fcntl(got, F_SETFL, fcntl(got, F_GETFL) & ~O_NONBLOCK);
    if (got < 0)
        return err_errno(e, "open %s", path);
    *fd = got;
    return 0;
}

int fs_check_regular(const char *path, struct err *e)
{
    struct stat st;
    return fs_stat(path, &st) != 0 || S_ISREG(st.st_mode) ? 0 : refuse(path, st.st_mode, e);
}

/* Without fault injection: it only explains an error. */
int fs_check_reach(const char *path, struct err *e)
{
    struct stat st;
    const char *rest;
    int at = fs_at(path, &rest);
    return fstatat(at, rest, &st, 0) == 0 || errno != EACCES ? 0 : err_errno(e, "%s", path);
}

int fs_open_read(int *fd, const char *path, struct err *e)
{
    struct stat st;
    int from = inherited_fd(path);
    if (from >= 0)
        return open_inherited(fd, from, path, e);
    int is_null = strcmp(path, "/dev/null") == 0;
    /* checked first: opening a device can have side effects */
    int rc = is_null ? 0 : fs_check_regular(path, e);
    if (rc < 0)
        return rc;
    int got = fs_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0);
    if (got < 0)
        return err_errno(e, "open %s", path);
    /* checked again: the path may have changed meanwhile */
    rc = fs_fstat(got, &st) != 0            ? err_errno(e, "stat %s", path)
         : !is_null && !S_ISREG(st.st_mode) ? refuse(path, st.st_mode, e)
                                            : 0;
    if (rc < 0) {
        fs_close(got);
        return rc;
    }
    *fd = got;
    return 0;
}

int fs_open_write(int *fd, const char *path, int flags, struct err *e)
{
    int got = fs_open(path, O_WRONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags, 0644);
    struct stat st;
    if (got < 0 && errno == ENXIO && fs_stat(path, &st) == 0)
        return S_ISFIFO(st.st_mode)
                   ? err_set(e, DS_EIO, "%s: is a FIFO without a reader", path)
                   : err_set(e, DS_EIO, "%s: is %s, expected a file", path, kind_name(st.st_mode));
    if (got < 0)
        return err_errno(e, "open %s", path);
    (void)fcntl(got, F_SETFL, fcntl(got, F_GETFL) & ~O_NONBLOCK);
    *fd = got;
    return 0;
}
