/* The system calls of fs.h, and the table that injects faults into them. */
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fs.h"

enum call { OPEN, READ, WRITE, FSYNC, FDATASYNC, CLOSE, RENAME, MKDIR, UNLINK, CALLS };

static const char *const call_name[CALLS] = {"open",  "read",   "write", "fsync", "fdatasync",
                                             "close", "rename", "mkdir", "unlink"};
static struct fault_rule rule[CALLS];
static atomic_uint_fast64_t count[CALLS];

static int fails(enum call c)
{
    if (!fault_hits(&rule[c], atomic_fetch_add(&count[c], 1) + 1))
        return 0;
    errno = rule[c].number;
    return 1;
}

/* Paths are resolved through fs_at, relative to a held directory if there is one. */
static int system_open(const char *path, int flags, mode_t mode)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return openat(at, rest, flags, mode);
}

static int system_rename(const char *from, const char *to)
{
    const char *a, *b;
    int at = fs_at(from, &a), into = fs_at(to, &b);
    return renameat(at, a, into, b);
}

static int system_mkdir(const char *path, mode_t mode)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return mkdirat(at, rest, mode);
}

static int system_unlink(const char *path)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return unlinkat(at, rest, 0);
}

static int failing_open(const char *path, int flags, mode_t mode)
{
    return fails(OPEN) ? -1 : system_open(path, flags, mode);
}

static ssize_t failing_read(int fd, void *buf, size_t n)
{
    return fails(READ) ? -1 : read(fd, buf, n);
}

static ssize_t failing_write(int fd, const void *buf, size_t n)
{
    return fails(WRITE) ? -1 : write(fd, buf, n);
}

static int failing_fsync(int fd)
{
    return fails(FSYNC) ? -1 : fsync(fd);
}

static int failing_fdatasync(int fd)
{
    return fails(FDATASYNC) ? -1 : fdatasync(fd);
}

/* Like the kernel: the descriptor is closed even when the call reports an error. */
static int failing_close(int fd)
{
    int failed = fails(CLOSE), number = errno;
    int rc = close(fd);
    if (failed)
        errno = number;
    return failed ? -1 : rc;
}

static int failing_rename(const char *from, const char *to)
{
    return fails(RENAME) ? -1 : system_rename(from, to);
}

static int failing_mkdir(const char *path, mode_t mode)
{
    return fails(MKDIR) ? -1 : system_mkdir(path, mode);
}

static int failing_unlink(const char *path)
{
    return fails(UNLINK) ? -1 : system_unlink(path);
}

static const struct fs_ops system_ops = {
    .open = system_open,
    .read = read,
    .write = write,
    .fsync = fsync,
    .fdatasync = fdatasync,
    .close = close,
    .rename = system_rename,
    .mkdir = system_mkdir,
    .unlink = system_unlink,
};

static const struct fs_ops failing_ops = {
    .open = failing_open,
    .read = failing_read,
    .write = failing_write,
    .fsync = failing_fsync,
    .fdatasync = failing_fdatasync,
    .close = failing_close,
    .rename = failing_rename,
    .mkdir = failing_mkdir,
    .unlink = failing_unlink,
};

static pthread_once_t once = PTHREAD_ONCE_INIT;
static const struct fs_ops *usual = &system_ops;
static const struct fs_ops *_Atomic chosen;

static void read_environment(void)
{
    for (int c = 0; c < CALLS; c++)
        if (fault_find(NULL, call_name[c], &rule[c]))
            usual = &failing_ops;
}

const struct fs_ops *fs_ops_get(void)
{
    const struct fs_ops *ops = atomic_load_explicit(&chosen, memory_order_acquire);
    if (ops)
        return ops;
    pthread_once(&once, read_environment);
    return usual;
}

void fs_ops_set(const struct fs_ops *ops)
{
    atomic_store_explicit(&chosen, ops, memory_order_release);
}
