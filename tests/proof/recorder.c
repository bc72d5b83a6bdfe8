/* Preloaded into a program, appends what it does to files and directories to $RECORD_TO: every
 * write with its bytes, sync, truncation, creation, rename, link and removal, in their order, by
 * inode.  part_crash.py replays it.  A call that it cannot describe is recorded as such, so that
 * the replay refuses the trace.  Knows nothing of the program.
 *
 * An event is a struct event, two names and the bytes. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

/* kind: C created, D directory created, L linked, R renamed, U removed, W written, T truncated,
 * F synced, X something else, which is named. */
struct event {
    char kind, pad[3];
    uint32_t name_bytes, to_bytes, data_bytes;
    uint64_t a, b, at; /* inodes: of the file or its directory, of the target; offset or size */
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static int out = -1;

static int (*real_openat)(int, const char *, int, ...);
static ssize_t (*real_write)(int, const void *, size_t);
static ssize_t (*real_pwrite)(int, const void *, size_t, off_t);
static int (*real_fsync)(int), (*real_fdatasync)(int);
static int (*real_ftruncate)(int, off_t);
static int (*real_renameat)(int, const char *, int, const char *);
static int (*real_linkat)(int, const char *, int, const char *, int);
static int (*real_unlinkat)(int, const char *, int);
static int (*real_mkdirat)(int, const char *, mode_t);

/* Through memcpy: ISO C has no conversion from void * to a function. */
static void find(void *slot, const char *name)
{
    void *p = dlsym(RTLD_NEXT, name);
    if (!p)
        _exit(98);
    memcpy(slot, &p, sizeof p);
}

static void start(void)
{
    find(&real_openat, "openat");
    find(&real_write, "write");
    find(&real_pwrite, "pwrite");
    find(&real_fsync, "fsync");
    find(&real_fdatasync, "fdatasync");
    find(&real_ftruncate, "ftruncate");
    find(&real_renameat, "renameat");
    find(&real_linkat, "linkat");
    find(&real_unlinkat, "unlinkat");
    find(&real_mkdirat, "mkdirat");
    const char *to = getenv("RECORD_TO");
    int fd = to ? real_openat(AT_FDCWD, to, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
    out = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 400); /* away from what the program counts on */
    if (out < 0)
        _exit(98);
    close(fd);
}

static void begin(void)
{
    pthread_once(&once, start);
    pthread_mutex_lock(&lock);
}

static void put(const void *p, size_t n)
{
    if (n > 0 && real_write(out, p, n) != (ssize_t)n)
        _exit(98); /* half a trace proves nothing */
}

static void record(struct event e, const char *name, const char *to, const void *data, size_t n)
{
    int keep = errno;
    e.name_bytes = (uint32_t)strlen(name);
    e.to_bytes = (uint32_t)strlen(to);
    e.data_bytes = (uint32_t)n;
    put(&e, sizeof e);
    put(name, e.name_bytes);
    put(to, e.to_bytes);
    put(data, n);
    errno = keep;
}

static void unknown(const char *what)
{
    begin();
    record((struct event){.kind = 'X'}, what, "", NULL, 0);
    pthread_mutex_unlock(&lock);
}

/* Inode of the directory that a path's last name is in; *name is that name. */
static uint64_t parent(int at, const char *path, char name[NAME_MAX + 1])
{
    char dir[PATH_MAX];
    struct stat st;
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    size_t from = n;
    while (from > 0 && path[from - 1] != '/')
        from--;
    snprintf(name, NAME_MAX + 1, "%.*s", (int)(n - from), path + from);
    snprintf(dir, sizeof dir, "%.*s", (int)from, path);
    return fstatat(at, from ? dir : ".", &st, 0) == 0 ? (uint64_t)st.st_ino : 0;
}

static uint64_t inode(int at, const char *path)
{
    struct stat st;
    return fstatat(at, path, &st, AT_SYMLINK_NOFOLLOW) == 0 ? (uint64_t)st.st_ino : 0;
}

/* 0 for what is neither a regular file nor a directory. */
static uint64_t inode_of(int fd)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
        return 0;
    return (uint64_t)st.st_ino;
}

static void entry(char kind, int at, const char *path)
{
    char name[NAME_MAX + 1];
    struct event e = {.kind = kind, .a = parent(at, path, name), .b = inode(at, path)};
    record(e, name, "", NULL, 0);
}

static int open_any(int at, const char *path, int flags, mode_t mode)
{
    begin();
    uint64_t before = flags & O_CREAT ? inode(at, path) : 0;
    int fd = real_openat(at, path, flags, mode), keep = errno;
    if (fd >= 0 && (flags & O_CREAT) && !before)
        entry('C', at, path);
    else if (fd >= 0 && (flags & O_TRUNC) && inode_of(fd))
        record((struct event){.kind = 'T', .a = inode_of(fd)}, "", "", NULL, 0);
    errno = keep;
    pthread_mutex_unlock(&lock);
    return fd;
}

static mode_t mode_of(int flags, va_list ap)
{
    return flags & O_CREAT ? (mode_t)va_arg(ap, unsigned) : 0;
}

#define OPEN(NAME)                                                                                 \
    int NAME(const char *path, int flags, ...)                                                     \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = mode_of(flags, ap);                                                          \
        va_end(ap);                                                                                \
        return open_any(AT_FDCWD, path, flags, mode);                                              \
    }
#define OPENAT(NAME)                                                                               \
    int NAME(int at, const char *path, int flags, ...)                                             \
    {                                                                                              \
        va_list ap;                                                                                \
        va_start(ap, flags);                                                                       \
        mode_t mode = mode_of(flags, ap);                                                          \
        va_end(ap);                                                                                \
        return open_any(at, path, flags, mode);                                                    \
    }
OPEN(open)
OPEN(open64)
OPENAT(openat)
OPENAT(openat64)

ssize_t write(int fd, const void *p, size_t n)
{
    begin();
    ssize_t k = real_write(fd, p, n);
    int keep = errno;
    uint64_t a = k > 0 ? inode_of(fd) : 0;
    if (a) {
        off_t end = lseek(fd, 0, SEEK_CUR);
        record((struct event){.kind = 'W', .a = a, .at = (uint64_t)(end - k)}, "", "", p,
               (size_t)k);
    }
    errno = keep;
    pthread_mutex_unlock(&lock);
    return k;
}

static ssize_t pwrite_any(int fd, const void *p, size_t n, off_t at)
{
    begin();
    ssize_t k = real_pwrite(fd, p, n, at);
    uint64_t a = k > 0 ? inode_of(fd) : 0;
    if (a)
        record((struct event){.kind = 'W', .a = a, .at = (uint64_t)at}, "", "", p, (size_t)k);
    pthread_mutex_unlock(&lock);
    return k;
}

ssize_t pwrite(int fd, const void *p, size_t n, off_t at)
{
    return pwrite_any(fd, p, n, at);
}

ssize_t pwrite64(int fd, const void *p, size_t n, off64_t at)
{
    return pwrite_any(fd, p, n, at);
}

static int sync_any(int fd, int (**real)(int))
{
    begin();
    uint64_t a = inode_of(fd);
    int rc = (*real)(fd);
    if (rc == 0 && a)
        record((struct event){.kind = 'F', .a = a}, "", "", NULL, 0);
    pthread_mutex_unlock(&lock);
    return rc;
}

int fsync(int fd)
{
    return sync_any(fd, &real_fsync);
}

int fdatasync(int fd)
{
    return sync_any(fd, &real_fdatasync);
}

static int truncate_any(int fd, off_t size)
{
    begin();
    int rc = real_ftruncate(fd, size);
    if (rc == 0)
        record((struct event){.kind = 'T', .a = inode_of(fd), .at = (uint64_t)size}, "", "", NULL,
               0);
    pthread_mutex_unlock(&lock);
    return rc;
}

int ftruncate(int fd, off_t size)
{
    return truncate_any(fd, size);
}

int ftruncate64(int fd, off64_t size)
{
    return truncate_any(fd, size);
}

int renameat(int at, const char *from, int into, const char *to)
{
    char a[NAME_MAX + 1], b[NAME_MAX + 1];
    begin();
    struct event e = {.kind = 'R', .a = parent(at, from, a), .b = parent(into, to, b)};
    int rc = real_renameat(at, from, into, to);
    if (rc == 0)
        record(e, a, b, NULL, 0);
    pthread_mutex_unlock(&lock);
    return rc;
}

int rename(const char *from, const char *to)
{
    return renameat(AT_FDCWD, from, AT_FDCWD, to);
}

int linkat(int at, const char *from, int into, const char *to, int flags)
{
    begin();
    int rc = real_linkat(at, from, into, to, flags);
    if (rc == 0)
        entry('L', into, to);
    pthread_mutex_unlock(&lock);
    return rc;
}

int link(const char *from, const char *to)
{
    return linkat(AT_FDCWD, from, AT_FDCWD, to, 0);
}

int unlinkat(int at, const char *path, int flags)
{
    char name[NAME_MAX + 1];
    begin();
    struct event e = {.kind = 'U', .a = parent(at, path, name)};
    int rc = real_unlinkat(at, path, flags);
    if (rc == 0)
        record(e, name, "", NULL, 0);
    pthread_mutex_unlock(&lock);
    return rc;
}

int unlink(const char *path)
{
    return unlinkat(AT_FDCWD, path, 0);
}

int rmdir(const char *path)
{
    return unlinkat(AT_FDCWD, path, AT_REMOVEDIR);
}

int mkdirat(int at, const char *path, mode_t mode)
{
    begin();
    int rc = real_mkdirat(at, path, mode);
    if (rc == 0)
        entry('D', at, path);
    pthread_mutex_unlock(&lock);
    return rc;
}

int mkdir(const char *path, mode_t mode)
{
    return mkdirat(AT_FDCWD, path, mode);
}

/* ---- not described ----
 * Each does what it does and makes the trace useless, which the replay reports. */

ssize_t writev(int fd, const struct iovec *v, int n)
{
    static ssize_t (*real)(int, const struct iovec *, int);
    if (!real)
        find(&real, "writev");
    if (inode_of(fd))
        unknown("writev");
    return real(fd, v, n);
}

ssize_t copy_file_range(int in, off64_t *from, int to, off64_t *at, size_t n, unsigned flags)
{
    static ssize_t (*real)(int, off64_t *, int, off64_t *, size_t, unsigned);
    if (!real)
        find(&real, "copy_file_range");
    unknown("copy_file_range");
    return real(in, from, to, at, n, flags);
}

int renameat2(int at, const char *from, int into, const char *to, unsigned flags)
{
    static int (*real)(int, const char *, int, const char *, unsigned);
    if (!real)
        find(&real, "renameat2");
    unknown("renameat2");
    return real(at, from, into, to, flags);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    static int (*real)(int, int, off_t, off_t);
    if (!real)
        find(&real, "fallocate");
    unknown("fallocate");
    return real(fd, mode, at, n);
}

int posix_fallocate(int fd, off_t at, off_t n)
{
    static int (*real)(int, off_t, off_t);
    if (!real)
        find(&real, "posix_fallocate");
    unknown("posix_fallocate");
    return real(fd, at, n);
}

int symlinkat(const char *target, int at, const char *path)
{
    static int (*real)(const char *, int, const char *);
    if (!real)
        find(&real, "symlinkat");
    unknown("symlinkat");
    return real(target, at, path);
}

int symlink(const char *target, const char *path)
{
    return symlinkat(target, AT_FDCWD, path);
}

void *mmap(void *want, size_t n, int prot, int flags, int fd, off_t at)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);
    if (!real)
        find(&real, "mmap");
    if ((flags & MAP_SHARED) && (prot & PROT_WRITE) && fd >= 0 && inode_of(fd))
        unknown("a shared writable mapping of a file");
    return real(want, n, prot, flags, fd, at);
}
