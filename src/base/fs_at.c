/* Held directories: paths below one resolve to the directory itself, even after it was renamed. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

enum { HELD_MAX = 8 };

static struct {
    char path[1024];
    size_t len;
    int fd;
} held[HELD_MAX];
static atomic_int n_held; /* checked first: a process that holds nothing never takes the lock */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

int fs_at(const char *path, const char **rest)
{
    int fd = AT_FDCWD;
    *rest = path;
    if (atomic_load(&n_held) == 0)
        return fd;
    pthread_mutex_lock(&lock);
    for (int i = atomic_load(&n_held); i-- > 0 && fd == AT_FDCWD;) {
        const char *after = path + held[i].len;
        if (strncmp(path, held[i].path, held[i].len) != 0 || (*after != '\0' && *after != '/'))
            continue;
        after += strspn(after, "/");
        *rest = *after ? after : ".";
        fd = held[i].fd;
    }
    pthread_mutex_unlock(&lock);
    return fd;
}

int fs_hold(int *fd, const char *path, struct err *e)
{
    size_t len = fs_trimmed(path);
    int got = -1, rc = 0;
    do {
        got = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (got < 0 && errno == EINTR);
    if (got < 0)
        return err_errno(e, "open directory %s", path);
    pthread_mutex_lock(&lock);
    int n = atomic_load(&n_held);
    if (n == HELD_MAX || len >= sizeof held[n].path) {
        rc = err_set(e, DS_ERANGE, "%.100s: %s", path,
                     n == HELD_MAX ? "too many held directories" : "path too long");
    } else {
        memcpy(held[n].path, path, len);
        held[n].path[len] = '\0';
        held[n].len = len;
        held[n].fd = got;
        atomic_store(&n_held, n + 1);
    }
    pthread_mutex_unlock(&lock);
    if (rc < 0)
        close(got);
    else
        *fd = got;
    return rc;
}

void fs_unhold(int fd)
{
    pthread_mutex_lock(&lock);
    int n = atomic_load(&n_held), i = 0;
    while (i < n && held[i].fd != fd)
        i++;
    if (i < n) {
        memmove(&held[i], &held[i + 1], (size_t)(n - i - 1) * sizeof *held);
        atomic_store(&n_held, n - 1);
        close(fd);
    }
    pthread_mutex_unlock(&lock);
}

int fs_is_held_at(int fd, const char *path)
{
    struct stat a, b;
    return fstat(fd, &a) == 0 && stat(path, &b) == 0 && a.st_dev == b.st_dev &&
           a.st_ino == b.st_ino;
}

int fs_path_of_fd(int fd, char *out, size_t size)
{
    char link[40];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, out, size - 1);
    out[n > 0 ? n : 0] = '\0';
    return n > 0 && out[0] == '/';
}
