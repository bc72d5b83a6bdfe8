/* The system calls of fs.h, and the table that injects faults into them. */
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fault.h"
#include "base/fs.h"

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
    return fault_fails(FAULT_OPEN) ? -1 : system_open(path, flags, mode);
}

static ssize_t failing_read(int fd, void *buf, size_t n)
{
    return fault_fails_transfer(FAULT_READ, &n) ? -1 : read(fd, buf, n);
}

static ssize_t failing_write(int fd, const void *buf, size_t n)
{
    return fault_fails_transfer(FAULT_WRITE, &n) ? -1 : write(fd, buf, n);
}

static int failing_fsync(int fd)
{
    return fault_fails(FAULT_FSYNC) ? -1 : fsync(fd);
}

static int failing_fdatasync(int fd)
{
    return fault_fails(FAULT_FDATASYNC) ? -1 : fdatasync(fd);
}

/* Like the kernel: the descriptor is closed even when the call reports an error. */
static int failing_close(int fd)
{
    int failed = fault_fails(FAULT_CLOSE), number = errno;
    int rc = close(fd);
    if (failed)
        errno = number;
    return failed ? -1 : rc;
}

static int failing_rename(const char *from, const char *to)
{
    return fault_fails(FAULT_RENAME) ? -1 : system_rename(from, to);
}

static int failing_mkdir(const char *path, mode_t mode)
{
    return fault_fails(FAULT_MKDIR) ? -1 : system_mkdir(path, mode);
}

static int failing_unlink(const char *path)
{
    return fault_fails(FAULT_UNLINK) ? -1 : system_unlink(path);
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

static const struct fs_ops *_Atomic chosen;

const struct fs_ops *fs_ops_get(void)
{
    const struct fs_ops *ops = atomic_load_explicit(&chosen, memory_order_acquire);
    if (ops)
        return ops;
    return fault_is_on() ? &failing_ops : &system_ops;
}

void fs_ops_set(const struct fs_ops *ops)
{
    atomic_store_explicit(&chosen, ops, memory_order_release);
}

/* ---- calls with no place in the table ---- */

int fs_truncate(int fd, uint64_t size)
{
    int rc;
    do {
        rc = fault_fails(FAULT_FTRUNCATE) ? -1 : ftruncate(fd, (off_t)size);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

int fs_link(const char *from, const char *to)
{
    const char *a, *b;
    int at = fs_at(from, &a), into = fs_at(to, &b);
    return fault_fails(FAULT_LINK) ? -1 : linkat(at, a, into, b, 0);
}

int fs_symlink(const char *target, const char *path)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return fault_fails(FAULT_LINK) ? -1 : symlinkat(target, at, rest);
}

int fs_rmdir(const char *path)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return fault_fails(FAULT_RMDIR) ? -1 : unlinkat(at, rest, AT_REMOVEDIR);
}

ssize_t fs_pread(int fd, void *buf, size_t n, uint64_t offset)
{
    ssize_t got;
    do {
        got = fault_fails_transfer(FAULT_PREAD, &n) ? -1 : pread(fd, buf, n, (off_t)offset);
    } while (got < 0 && errno == EINTR);
    return got;
}

int fs_lock(int fd, int operation)
{
    return fault_fails(FAULT_FLOCK) ? -1 : flock(fd, operation);
}

/* Asked again after an error of the system: much is decided by whether something exists. */
static int look(const char *path, struct stat *st, int flags)
{
    const char *rest;
    int rc = -1, at = fs_at(path, &rest);
    for (int i = 0; i < 2 && rc < 0; i++) {
        rc = fault_fails(FAULT_STAT) ? -1 : fstatat(at, rest, st, flags);
        if (rc < 0 && errno != EIO && errno != ESTALE && errno != EINTR && errno != ENOMEM)
            break;
    }
    return rc;
}

int fs_stat(const char *path, struct stat *st)
{
    return look(path, st, 0);
}

int fs_lstat(const char *path, struct stat *st)
{
    return look(path, st, AT_SYMLINK_NOFOLLOW);
}

int fs_fstat(int fd, struct stat *st)
{
    return fault_fails(FAULT_FSTAT) ? -1 : fstat(fd, st);
}

int fs_open_dir(const char *path)
{
    const char *rest;
    int fd, at = fs_at(path, &rest);
    do {
        fd = fault_fails(FAULT_OPENDIR) ? -1 : openat(at, rest, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    } while (fd < 0 && errno == EINTR);
    return fd;
}
