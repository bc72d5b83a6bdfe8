#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/guard.h"

enum { PATH_MAX_BYTES = 4096 };

int fs_write_all(int fd, const void *p, size_t n, const char *path, struct err *e)
{
    const char *s = p;
    while (n > 0) {
        ssize_t k = fs_ops_get()->write(fd, s, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = EIO; /* no progress and no reason: never try for ever */
        if (k <= 0)
            return err_errno(e, "write %s", path);
        s += k;
        n -= (size_t)k;
    }
    return 0;
}

static int open_retry(const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = fs_ops_get()->open(path, flags, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int fs_read_some(int fd, void *p, size_t n, size_t *got, const char *path, struct err *e)
{
    ssize_t k;
    do {
        k = fs_ops_get()->read(fd, p, n);
    } while (k < 0 && errno == EINTR);
    if (k < 0)
        return err_errno(e, "read %s", path);
    *got = (size_t)k;
    return 0;
}

/* Reads to the end of the file, whose size may be unknown (a pipe) or may change meanwhile. */
static int read_to_end(struct str *out, int fd, uint64_t cap, const char *path, struct err *e)
{
    char buf[65536];
    for (;;) {
        size_t n = 0;
        int rc = fs_read_some(fd, buf, sizeof buf, &n, path, e);
        if (rc < 0 || n == 0)
            return rc;
        if (n > cap - out->len)
            return err_set(e, DS_ERANGE, "%s is larger than the limit of %" PRIu64 " bytes", path,
                           cap);
        str_add_bytes(out, buf, n);
        if (out->failed)
            return err_set(e, DS_EMEM, "%s: out of memory after %zu bytes", path, out->len);
    }
}

int fs_read_file(struct str *out, const char *path, uint64_t cap, struct err *e)
{
    struct str text = {0};
    struct stat st;
    int fd = -1;
    int rc = fs_open_read(&fd, path, e);
    if (rc < 0)
        goto out;
    if (fstat(fd, &st) != 0) {
        rc = err_errno(e, "stat %s", path);
        goto out;
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > cap) {
        rc = err_set(e, DS_ERANGE, "%s has %" PRIu64 " bytes, the limit is %" PRIu64, path,
                     (uint64_t)st.st_size, cap);
        goto out;
    }
    rc = read_to_end(&text, fd, cap, path, e);
    if (rc == 0) {
        str_add_bytes(&text, "", 0); /* an empty file is "", not NULL */
        rc = text.failed ? err_set(e, DS_EMEM, "%s: out of memory", path) : 0;
    }
    if (rc == 0) {
        str_release(out);
        *out = text;
        text = (struct str){0};
    }
out:
    if (fd >= 0)
        fs_ops_get()->close(fd);
    str_release(&text);
    return rc;
}

/* The directory part of a path: "." for a bare name, "/" for a name in the root. */
static int directory_of(char *out, size_t size, const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    size_t n = slash ? (size_t)(slash - path) : 0;
    if (slash && n == 0)
        n = 1;
    if (n >= size) {
        errno = ENAMETOOLONG;
        return err_errno(e, "%.200s...", path);
    }
    snprintf(out, size, "%.*s", slash ? (int)n : 1, slash ? path : ".");
    return 0;
}

/* Writes, syncs and closes; whatever fails, the descriptor is closed. */
static int fill_and_close(int fd, const void *p, size_t n, int sync, const char *path,
                          struct err *e)
{
    int rc = fs_write_all(fd, p, n, path, e);
    int synced = 0;
    while (rc == 0 && sync && (synced = fs_ops_get()->fsync(fd)) != 0 && errno == EINTR)
        ;
    if (rc == 0 && synced != 0)
        rc = err_errno(e, "fsync %s", path);
    /* Linux has closed the descriptor even when close says EINTR. */
    if (fs_ops_get()->close(fd) != 0 && errno != EINTR && rc == 0)
        rc = err_errno(e, "close %s", path);
    return rc;
}

/* A new file beside `path` under a name nobody has; its name goes to `temp`. */
static int open_temp(int *fd, char *temp, size_t size, const char *dir, const char *path,
                     struct err *e)
{
    static atomic_uint counter;
    const char *slash = strrchr(path, '/');
    for (int attempt = 0; attempt < 100; attempt++) {
        unsigned salt = atomic_fetch_add(&counter, 1);
        int n = snprintf(temp, size, "%s/.%.200s.%ld-%u.tmp", strcmp(dir, "/") == 0 ? "" : dir,
                         slash ? slash + 1 : path, (long)getpid(), salt);
        if (n < 0 || (size_t)n >= size) {
            errno = ENAMETOOLONG;
            return err_errno(e, "create %.200s...", path);
        }
        *fd = open_retry(temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (*fd >= 0)
            return 0;
        if (errno != EEXIST)
            break;
    }
    temp[0] = '\0';
    return err_errno(e, "create %s", path);
}

int fs_write_file(const char *path, const void *p, size_t n, struct err *e)
{
    char dir[PATH_MAX_BYTES], temp[PATH_MAX_BYTES] = "";
    struct stat st;
    int fd = -1, rc;
    /* A device or a pipe ("-o /dev/stdout") has no old content to keep. */
    if (stat(path, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode))) {
        rc = fs_open_write(&fd, path, 0, e);
        return rc < 0 ? rc : fill_and_close(fd, p, n, 0, path, e);
    }
    rc = directory_of(dir, sizeof dir, path, e);
    if (rc == 0)
        rc = open_temp(&fd, temp, sizeof temp, dir, path, e);
    if (rc == 0)
        rc = fill_and_close(fd, p, n, 1, path, e);
    if (rc == 0) {
        while ((rc = fs_ops_get()->rename(temp, path)) != 0 && errno == EINTR)
            ;
        if (rc != 0)
            rc = err_errno(e, "rename to %s", path);
        else
            temp[0] = '\0';
    }
    if (rc == 0)
        rc = fs_sync_dir(dir, e);
    if (temp[0])
        fs_ops_get()->unlink(temp);
    return rc;
}

int fs_mkdirs(const char *path, struct err *e)
{
    char part[PATH_MAX_BYTES];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) {
        errno = n ? ENAMETOOLONG : ENOENT;
        return err_errno(e, "make directory %.200s", path);
    }
    for (size_t i = 1; i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (fs_ops_get()->mkdir(part, 0755) == 0 || fs_is_dir(part))
            continue;
        return err_errno(e, "make directory %s", part);
    }
    return 0;
}

int fs_sync_dir(const char *path, struct err *e)
{
    int fd = open_retry(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), rc = 0, done;
    if (fd < 0)
        return err_errno(e, "open directory %s", path);
    while ((done = fs_ops_get()->fsync(fd)) != 0 && errno == EINTR)
        ;
    if (done != 0 && errno != EINVAL && errno != ENOTSUP)
        rc = err_errno(e, "fsync directory %s", path);
    fs_ops_get()->close(fd);
    return rc;
}

int fs_exists(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

int fs_is_dir(const char *path)
{
    struct stat st;
    int keep = errno;
    int is = stat(path, &st) == 0 && S_ISDIR(st.st_mode);
    errno = keep; /* asked in error paths whose errno still counts */
    return is;
}

int fs_join(char *out, size_t size, const char *a, const char *b, struct err *e)
{
    size_t n = strlen(a);
    const char *between = n == 0 || a[n - 1] == '/' ? "" : "/";
    if (n + strlen(between) + strlen(b) >= size)
        return err_set(e, DS_ERANGE, "the path %.100s/%.100s is too long", a, b);
    snprintf(out, size, "%s%s%s", a, between, b);
    return 0;
}

int fs_name_ok(const char *name)
{
    size_t n = strspn(name, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-");
    return n >= 1 && n <= 64 && name[n] == '\0' && name[0] != '.' && name[0] != '-';
}

int fs_map_open(struct fs_map *m, const char *path, struct err *e)
{
    struct stat st;
    int fd = -1, rc = fs_open_read(&fd, path, e);
    if (rc < 0)
        return rc;
    const void *p = "";
    if (fstat(fd, &st) != 0) {
        rc = err_errno(e, "stat %s", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, DS_EIO, "%s: not a regular file, expected one that can be mapped", path);
    } else if (st.st_size > 0) {
        p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            rc = err_errno(e, "map %s (%" PRIu64 " bytes)", path, (uint64_t)st.st_size);
    }
    if (rc < 0) {
        fs_ops_get()->close(fd);
        return rc;
    }
    *m = (struct fs_map){.p = p,
                         .n = (size_t)st.st_size,
                         .fd = fd,
                         .changed_s = st.st_mtim.tv_sec,
                         .changed_ns = st.st_mtim.tv_nsec,
                         .device = st.st_dev,
                         .inode = st.st_ino};
    if (m->n)
        guard_add(m->p, m->n, fd, path);
    return 0;
}

void fs_map_close(struct fs_map *m)
{
    if (!m->p)
        return;
    if (m->n) {
        guard_remove(m->p);
        munmap((void *)(uintptr_t)m->p, m->n);
    }
    fs_ops_get()->close(m->fd);
    *m = (struct fs_map){.fd = -1};
}

int fs_map_unchanged(const struct fs_map *m, struct err *e)
{
    struct stat now;
    if (fstat(m->fd, &now) != 0)
        return err_errno(e, "stat");
    if ((uint64_t)now.st_size != m->n)
        return err_set(e, DS_EFORMAT,
                       "the file changed since it was opened (was %zu bytes, is %" PRIu64 ")", m->n,
                       (uint64_t)now.st_size);
    if (now.st_mtim.tv_sec == m->changed_s && now.st_mtim.tv_nsec == m->changed_ns)
        return 0;
    return err_set(e, DS_EFORMAT, "the file changed since it was opened");
}

int fs_map_is_at(const struct fs_map *m, const char *path)
{
    struct stat now;
    return stat(path, &now) == 0 && now.st_ino == m->inode && now.st_dev == m->device;
}

uint64_t fs_free_bytes(const char *path)
{
    struct statvfs v;
    if (statvfs(path, &v) != 0)
        return 0;
    return (uint64_t)v.f_bavail * v.f_frsize;
}
