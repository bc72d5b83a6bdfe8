/* Reading, writing, mapping and replacing files. */
#include "base/fs.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/fault.h"
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
            errno = EIO; /* no progress without an error: do not retry forever */
        if (k <= 0)
            return err_errno(e, "write %s", path);
        s += k;
        n -= (size_t)k;
    }
    return 0;
}

/* ---- system calls, retried after EINTR ---- */

int fs_open(const char *path, int flags, mode_t mode)
{
    int fd;
    do {
        fd = fs_ops_get()->open(path, flags, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

int fs_sync(int fd)
{
    int rc;
    do {
        rc = fs_ops_get()->fsync(fd);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

int fs_datasync(int fd)
{
    int rc;
    do {
        rc = fs_ops_get()->fdatasync(fd);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

int fs_close(int fd)
{
    int rc = fs_ops_get()->close(fd);
    /* Linux closes the descriptor even on EINTR: closing again could close another thread's
     * file. */
    return rc < 0 && errno == EINTR ? 0 : rc;
}

/* Without fault injection: a look that only explains an error must not shift the counts. */
static int is_inode_at(const char *path, struct stat *st)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return fstatat(at, rest, st, AT_SYMLINK_NOFOLLOW) == 0;
}

int fs_rename(const char *from, const char *to)
{
    struct stat was, now;
    int rc, is_known = is_inode_at(from, &was);
    do {
        rc = fs_ops_get()->rename(from, to);
    } while (rc < 0 && errno == EINTR);
    if (rc == 0 || errno != ENOENT || !is_known)
        return rc;
    /* A network file system that lost the answer renames again, and finds nothing to rename. */
    if (is_inode_at(to, &now) && now.st_dev == was.st_dev && now.st_ino == was.st_ino)
        return 0;
    errno = ENOENT;
    return -1;
}

int fs_mkdir(const char *path, mode_t mode)
{
    int rc;
    do {
        rc = fs_ops_get()->mkdir(path, mode);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

int fs_unlink(const char *path)
{
    int rc;
    do {
        rc = fs_ops_get()->unlink(path);
    } while (rc < 0 && errno == EINTR);
    return rc;
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

/* Reads to the end of a file whose size may be unknown (a pipe) or may change meanwhile. */
static int read_to_end(struct str *out, int fd, uint64_t cap, const char *path, struct err *e)
{
    char buf[65536];
    for (;;) {
        size_t n = 0;
        int rc = fs_read_some(fd, buf, sizeof buf, &n, path, e);
        if (rc < 0 || n == 0)
            return rc;
        if (n > cap - out->len)
            return err_set(e, DS_ERANGE, "%s: must be at most %" PRIu64 " bytes", path, cap);
        str_add_bytes(out, buf, n);
        if (out->failed)
            return err_set(e, DS_EMEM, "%s: out of memory after %zu bytes", path, out->len);
    }
}

static int read_embedded(struct str *out, const struct embedded *f, uint64_t cap, const char *path,
                         struct err *e)
{
    struct str text = {0};
    if (f->n > cap)
        return err_set(e, DS_ERANGE, "%s: %zu bytes, must be at most %" PRIu64, path, f->n, cap);
    str_add_bytes(&text, f->p, f->n);
    if (text.failed)
        return err_set(e, DS_EMEM, "%s: out of memory", path);
    str_release(out);
    *out = text;
    return 0;
}

int fs_read_file(struct str *out, const char *path, uint64_t cap, struct err *e)
{
    struct str text = {0};
    struct stat st;
    int fd = -1, rc = 0;
    const struct embedded *inside = embedded_find(path);
    if (inside)
        return read_embedded(out, inside, cap, path, e);
    rc = fs_open_read(&fd, path, e);
    if (rc < 0)
        goto out;
    if (fs_fstat(fd, &st) != 0) {
        rc = err_errno(e, "stat %s", path);
        goto out;
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > cap) {
        rc = err_set(e, DS_ERANGE, "%s: %" PRIu64 " bytes, must be at most %" PRIu64, path,
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
        fs_close(fd);
    str_release(&text);
    return rc;
}

int fs_mkdirs(const char *path, struct err *e)
{
    char part[PATH_MAX_BYTES];
    size_t n = strlen(path);
    if (n == 0 || n >= sizeof part) {
        errno = n ? ENAMETOOLONG : ENOENT;
        return err_errno(e, "create directory %.200s", path);
    }
    const char *rest = path;
    if (fs_at(path, &rest) != AT_FDCWD && strcmp(rest, ".") == 0)
        return 0;
    /* skip the parents of a held directory: they may have been removed or replaced */
    for (size_t i = 1 + (size_t)(rest - path); i <= n; i++) {
        if (path[i] != '/' && path[i] != '\0')
            continue;
        memcpy(part, path, i);
        part[i] = '\0';
        if (fs_mkdir(part, 0755) == 0) { /* a parent that cannot be read is no reason to fail */
            (void)!fs_sync_parent(part, NULL);
            continue;
        }
        if (fs_is_dir(part))
            continue;
        if (errno == EEXIST)
            errno = ENOTDIR;
        return err_errno(e, "create directory %s", part);
    }
    return 0;
}

int fs_sync_dir(const char *path, struct err *e)
{
    int fd = fs_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0), rc = 0;
    if (fd < 0)
        return err_errno(e, "open directory %s", path);
    if (fs_sync(fd) != 0 && errno != EINVAL && errno != ENOTSUP)
        rc = err_errno(e, "fsync directory %s", path);
    fs_close(fd);
    return rc;
}

int fs_exists(const char *path)
{
    struct stat st;
    if (fs_stat(path, &st) == 0 || embedded_find(path))
        return 1;
    return errno == EIO || errno == ESTALE || errno == ETIMEDOUT || errno == ENOMEM;
}

int fs_is_unreadable(const char *path, int rc)
{
    struct stat st;
    if (rc != DS_EIO)
        return rc == DS_EMEM;
    return fs_stat(path, &st) == 0 ? S_ISREG(st.st_mode) : errno != ENOENT && errno != ENOTDIR;
}

int fs_is_dir(const char *path)
{
    struct stat st;
    const char *name;
    int keep = errno;
    int is = (fs_stat(path, &st) == 0 && S_ISDIR(st.st_mode)) || embedded_next(path, NULL, &name);
    errno = keep; /* called in error paths that still need errno */
    return is;
}

int fs_is_socket(const char *path)
{
    struct stat st;
    return fs_stat(path, &st) == 0 && S_ISSOCK(st.st_mode);
}

size_t fs_trimmed(const char *path)
{
    size_t n = strlen(path);
    while (n > 1 && path[n - 1] == '/')
        n--;
    return n;
}

int fs_join(char *out, size_t size, const char *a, const char *b, struct err *e)
{
    size_t n = strlen(a);
    const char *between = n == 0 || a[n - 1] == '/' ? "" : "/";
    if (n + strlen(between) + strlen(b) >= size)
        return err_set(e, DS_ERANGE, "%.100s/%.100s: path too long", a, b);
    snprintf(out, size, "%s%s%s", a, between, b);
    return 0;
}

static int user_dir(char *out, size_t size, const char *variable, const char *below_home)
{
    const char *xdg = getenv(variable), *home = getenv("HOME");
    int n = -1;
    if (xdg && xdg[0] == '/')
        n = snprintf(out, size, "%s/depthscope", xdg);
    else if (home && home[0] == '/')
        n = snprintf(out, size, "%s/%s/depthscope", home, below_home);
    return n > 0 && (size_t)n < size;
}

int fs_state_dir(char *out, size_t size)
{
    return user_dir(out, size, "XDG_STATE_HOME", ".local/state");
}

int fs_config_dir(char *out, size_t size)
{
    return user_dir(out, size, "XDG_CONFIG_HOME", ".config");
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
    if (fs_fstat(fd, &st) != 0) {
        rc = err_errno(e, "stat %s", path);
    } else if (!S_ISREG(st.st_mode)) {
        rc = err_set(e, DS_EIO, "%s: not a regular file; write a pipe to a file first", path);
    } else if (st.st_size > 0) {
        p = fault_fails(FAULT_MMAP) ? MAP_FAILED
                                    : mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED)
            rc = err_errno(e, "map %s (%" PRIu64 " bytes)", path, (uint64_t)st.st_size);
    }
    if (rc < 0) {
        fs_close(fd);
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
    fs_close(m->fd);
    *m = (struct fs_map){.fd = -1};
}

void fs_map_copy(void *to, const void *from, size_t n)
{
    enum { FAULT = 4096 }; /* bytes: below it a call costs as much as a fault */
    int fd = -1;
    size_t at = 0, done = 0;
    ssize_t k = n >= FAULT && guard_file(from, n, &fd, &at) ? 1 : 0;
    while (done < n && k > 0) {
        k = fs_pread(fd, (char *)to + done, n - done, at + done);
        done += k > 0 ? (size_t)k : 0;
    }
    /* what read(2) refuses is an error of the file, which the guard reports */
    memcpy((char *)to + done, (const char *)from + done, n - done);
}

int fs_map_unchanged(const struct fs_map *m, struct err *e)
{
    struct stat now;
    if (fs_fstat(m->fd, &now) != 0)
        return err_errno(e, "stat");
    if ((uint64_t)now.st_size != m->n)
        return err_set(e, DS_EFORMAT,
                       "file changed since it was opened (was %zu bytes, is %" PRIu64 ")", m->n,
                       (uint64_t)now.st_size);
    if (now.st_mtim.tv_sec == m->changed_s && now.st_mtim.tv_nsec == m->changed_ns)
        return 0;
    return err_set(e, DS_EFORMAT, "file changed since it was opened");
}

int fs_map_is_at(const struct fs_map *m, const char *path)
{
    struct stat now;
    return fs_stat(path, &now) == 0 && now.st_ino == m->inode && now.st_dev == m->device;
}

uint64_t fs_free_bytes(const char *path)
{
    struct statvfs v;
    const char *rest;
    int at = fs_at(path, &rest), fd = fs_open_dir(path), is_known;
    is_known = fd < 0 ? at == AT_FDCWD && statvfs(path, &v) == 0 : fstatvfs(fd, &v) == 0;
    if (fd >= 0)
        close(fd);
    return is_known ? (uint64_t)v.f_bavail * v.f_frsize : 0;
}
