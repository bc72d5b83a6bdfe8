/* Unfinished files: their names, the rename that completes them, and removal of those whose writer
 * died. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"

enum { PATH_MAX_BYTES = 4096, SWEPT_MAX = 64, DAY_S = 86400, TAG_DIGITS = 8 };

/* ---- owners: TAG-PID-START-COUNT
 * ------------------------------------------------------------------------------------
 *
 * TAG identifies the scope of process ids: this boot of this kernel and this container.  START is
 * the process's start time in kernel ticks, so that another process that reuses the id is not
 * mistaken for the owner. */

static char own_tag[TAG_DIGITS + 1]; /* "" = process ids are not comparable here */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Without allocation and without fault injection: reading system information must not shift the
 * counts. */
static size_t read_small(char *out, size_t size, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, out, size - 1);
    if (fd >= 0)
        close(fd);
    out[n > 0 ? n : 0] = '\0';
    return n > 0 ? (size_t)n : 0;
}

/* 0 = unknown, or no such process. */
static uint64_t start_of(long pid)
{
    char path[40], text[1024];
    snprintf(path, sizeof path, "/proc/%ld/stat", pid);
    if (!read_small(text, sizeof text, path))
        return 0;
    const char *p = strrchr(text, ')'); /* the process name before it may contain anything */
    for (int field = 2; p && field < 22; field++)
        if ((p = strchr(p, ' ')) != NULL)
            p++;
    return p ? strtoull(p, NULL, 10) : 0;
}

static void find_self(void)
{
    char text[600] = "";
    gethostname(text, 255);
    size_t n = strlen(text);
#ifdef __linux__
    char boot[80], space[80];
    ssize_t k = readlink("/proc/self/ns/pid", space, sizeof space - 1);
    if (!read_small(boot, sizeof boot, "/proc/sys/kernel/random/boot_id") || k <= 0)
        return;
    space[k] = '\0';
    snprintf(text + n, sizeof text - n, " %s %s", boot, space);
    n = strlen(text);
#endif
    snprintf(own_tag, sizeof own_tag, "%08" PRIx32, (uint32_t)hash64(text, n, 0));
}

void fs_owner(char out[FS_OWNER_MAX])
{
    static atomic_uint counter;
    pthread_once(&once, find_self);
    snprintf(out, FS_OWNER_MAX, "%s-%ld-%" PRIu64 "-%u", own_tag[0] ? own_tag : "00000000",
             (long)getpid(), own_tag[0] ? start_of((long)getpid()) : 0,
             atomic_fetch_add(&counter, 1));
}

/* Parses digits followed by `end`; returns the position after it, or NULL. */
static const char *number(const char *p, uint64_t *value, char end)
{
    size_t n = strspn(p, "0123456789");
    if (n < 1 || n > 19 || (end && p[n] != end))
        return NULL;
    *value = strtoull(p, NULL, 10);
    return p + n + (end != 0);
}

static size_t read_owner(const char *text, uint64_t *pid, uint64_t *start)
{
    uint64_t count;
    const char *p = text + TAG_DIGITS;
    if (strspn(text, "0123456789abcdef") != TAG_DIGITS || *p != '-')
        return 0;
    if (!(p = number(p + 1, pid, '-')) || !(p = number(p, start, '-')) ||
        !(p = number(p, &count, 0)))
        return 0;
    return (size_t)(p - text);
}

size_t fs_owner_length(const char *text)
{
    uint64_t pid, start;
    return read_owner(text, &pid, &start);
}

/* Where process ids are not comparable: abandoned when a day old and not locked. */
static int is_abandoned(int at, const char *name)
{
    struct stat st;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0 || time(NULL) - st.st_mtime < DAY_S)
        return 0;
    int is_dir = S_ISDIR(st.st_mode);
    int fd = openat(
        at, name, (is_dir ? O_RDONLY | O_DIRECTORY : O_RDWR) | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return 0;
    int is_free = fs_lock(fd, LOCK_EX | LOCK_NB) == 0;
    close(fd);
    return is_free;
}

int fs_owner_alive(const char *owner)
{
    uint64_t pid = 0, start = 0, now;
    pthread_once(&once, find_self);
    if (!read_owner(owner, &pid, &start) || !own_tag[0] || strncmp(owner, own_tag, TAG_DIGITS) != 0)
        return -1;
    if (pid == 0 || pid > INT32_MAX || (kill((pid_t)pid, 0) < 0 && errno == ESRCH))
        return 0;
    now = start_of((long)pid);
    return !(start && now && now != start);
}

static int is_gone(const char *owner, int at, const char *name)
{
    int alive = fs_owner_alive(owner);
    if (alive >= 0)
        return !alive;
    return fs_owner_length(owner) > 0 && is_abandoned(at, name);
}

int fs_owner_is_own(const char *owner)
{
    uint64_t pid = 0, start = 0;
    pthread_once(&once, find_self);
    return read_owner(owner, &pid, &start) && pid == (uint64_t)getpid() &&
           strncmp(owner, own_tag[0] ? own_tag : "00000000", TAG_DIGITS) == 0 &&
           (!own_tag[0] || start == start_of((long)getpid()));
}

int fs_owner_is_dead(const char *owner, const char *path)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return is_gone(owner, at, rest);
}

/* ---- abandoned files ---- */

/* The OWNER in ".NAME.OWNER.tmp", NULL when the name has another form. */
static const char *owner_within(const char *name)
{
    size_t n = strlen(name);
    if (name[0] != '.' || n < 6 || strcmp(name + n - 4, ".tmp") != 0)
        return NULL;
    size_t at = n - 4;
    while (at > 1 && name[at - 1] != '.')
        at--;
    size_t length = at > 1 ? fs_owner_length(name + at) : 0;
    return length && at + length == n - 4 ? name + at : NULL;
}

static void sweep(DIR *dir, const char *path)
{
    struct stat st;
    int at = dirfd(dir);
    for (const struct dirent *d; (d = readdir(dir)) != NULL;) {
        const char *owner = owner_within(d->d_name);
        if (!owner || !is_gone(owner, at, d->d_name))
            continue;
        if (fstatat(at, d->d_name, &st, AT_SYMLINK_NOFOLLOW) != 0 || st.st_uid != geteuid() ||
            !(S_ISREG(st.st_mode) || S_ISDIR(st.st_mode)))
            continue; /* not created by this program */
        if (fs_remove_tree_at(at, d->d_name, path, NULL) < 0)
            continue; /* retried at the next start */
    }
}

static DIR *open_dir(const char *path)
{
    int fd = fs_open_dir(path);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (fd >= 0 && !dir)
        close(fd);
    return dir;
}

void fs_temp_sweep(const char *path)
{
    int keep = errno;
    DIR *dir = open_dir(path);
    if (dir) {
        sweep(dir, path);
        closedir(dir);
    }
    errno = keep;
}

/* Once per directory and process. */
static void sweep_once(const char *path)
{
    static struct {
        dev_t device;
        ino_t inode;
    } swept[SWEPT_MAX];
    static unsigned n;
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    struct stat st;
    unsigned i = 0;
    if (fs_stat(path, &st) != 0)
        return;
    pthread_mutex_lock(&lock);
    while (i < n && i < SWEPT_MAX && !(swept[i].device == st.st_dev && swept[i].inode == st.st_ino))
        i++;
    int is_new = i == n || i == SWEPT_MAX;
    if (is_new) {
        swept[n % SWEPT_MAX].device = st.st_dev;
        swept[n % SWEPT_MAX].inode = st.st_ino;
        n++;
    }
    pthread_mutex_unlock(&lock);
    if (is_new)
        fs_temp_sweep(path);
}

/* ---- a new file or directory ---- */

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

int fs_sync_parent(const char *path, struct err *e)
{
    char dir[PATH_MAX_BYTES];
    int rc = directory_of(dir, sizeof dir, path, e);
    return rc == 0 ? fs_sync_dir(dir, e) : rc;
}

/* Creates an entry next to `path` under an unused name. */
static int temp_name(char *temp, size_t size, const char *path, struct err *e)
{
    char owner[FS_OWNER_MAX];
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    fs_owner(owner);
    int n = snprintf(temp, size, "%.*s.%.180s.%s.tmp", (int)(name - path), path, name, owner);
    if (n >= 0 && (size_t)n < size)
        return 0;
    errno = ENAMETOOLONG;
    return err_errno(e, "create %.200s...", path);
}

int fs_new_open(struct fs_new *f, const char *path, struct err *e)
{
    char dir[PATH_MAX_BYTES];
    f->fd = -1;
    f->temp[0] = '\0';
    int rc = directory_of(dir, sizeof dir, path, e);
    if (rc == 0 && fs_stream_fd(path) >= 0)
        rc = err_set(e, DS_EIO, "%s: cannot be replaced, expected a file name", path);
    if (rc == 0 && str_copy(f->path, sizeof f->path, path))
        rc = err_set(e, DS_ERANGE, "%.200s...: path too long", path);
    if (rc < 0)
        return rc;
    sweep_once(dir);
    for (int attempt = 0; attempt < 100; attempt++) {
        rc = temp_name(f->temp, sizeof f->temp, path, e);
        if (rc < 0)
            break;
        f->fd = fs_open(f->temp, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
        if (f->fd >= 0) {
            /* for hosts that cannot see this process; without lock support the file's age
             * decides */
            (void)!fs_lock(f->fd, LOCK_EX | LOCK_NB);
            return 0;
        }
        if (errno != EEXIST) {
            rc = err_errno(e, "create %s", path);
            break;
        }
        rc = err_errno(e, "create %s", path);
    }
    f->temp[0] = '\0';
    return rc;
}

int fs_new_write(struct fs_new *f, const void *p, size_t n, struct err *e)
{
    return fs_write_all(f->fd, p, n, f->path, e);
}

int fs_new_commit(struct fs_new *f, struct err *e)
{
    int fd = f->fd, rc = 0;
    if (fs_sync(fd) != 0)
        rc = err_errno(e, "fsync %s", f->path);
    f->fd = -1;
    if (fs_close(fd) != 0 && rc == 0)
        rc = err_errno(e, "close %s", f->path);
    if (rc == 0 && fs_rename(f->temp, f->path) != 0)
        rc = err_errno(e, "rename to %s", f->path);
    if (rc < 0) {
        fs_unlink(f->temp);
        f->temp[0] = '\0';
        return rc;
    }
    f->temp[0] = '\0';
    return fs_sync_parent(f->path, e);
}

static int same_file(const char *a, const char *b)
{
    struct stat x, y;
    return fs_lstat(a, &x) == 0 && fs_lstat(b, &y) == 0 && x.st_dev == y.st_dev &&
           x.st_ino == y.st_ino;
}

/* 1 created, 0 exists, -1 and errno.  A network file system may report a failure although the
 * server made the link: two names of one file are the answer. */
static int link_first(const char *temp, const char *path)
{
    int rc = fs_link(temp, path), why = errno;
    if (rc == 0 || same_file(temp, path))
        return 1;
    if (why == EEXIST)
        return 0;
    errno = why;
    if (why != EPERM && why != EOPNOTSUPP && why != ENOTSUP && why != ENOSYS && why != EMLINK)
        return -1;
    int fd = fs_open(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
    if (fd < 0)
        return errno == EEXIST ? 0 : -1;
    fs_close(fd);
    return fs_rename(temp, path) == 0 ? 1 : -1;
}

int fs_new_commit_first(struct fs_new *f, struct err *e)
{
    int fd = f->fd, rc = 0, is_first = 0;
    if (fs_sync(fd) != 0)
        rc = err_errno(e, "fsync %s", f->path);
    f->fd = -1;
    if (fs_close(fd) != 0 && rc == 0)
        rc = err_errno(e, "close %s", f->path);
    if (rc == 0 && (is_first = link_first(f->temp, f->path)) < 0)
        rc = err_errno(e, "create %s", f->path);
    fs_unlink(f->temp);
    f->temp[0] = '\0';
    if (rc < 0 || !is_first)
        return rc;
    rc = fs_sync_parent(f->path, e);
    return rc < 0 ? rc : 1;
}

void fs_new_abort(struct fs_new *f)
{
    if (f->fd >= 0)
        fs_close(f->fd);
    if (f->temp[0])
        fs_unlink(f->temp);
    f->fd = -1;
    f->temp[0] = '\0';
}

int fs_new_dir(int *lock, char *temp, size_t size, const char *path, struct err *e)
{
    char dir[PATH_MAX_BYTES];
    int rc = directory_of(dir, sizeof dir, path, e);
    *lock = -1;
    if (rc == 0)
        sweep_once(dir);
    for (int attempt = 0; rc == 0 && attempt < 100; attempt++) {
        rc = temp_name(temp, size, path, e);
        if (rc < 0)
            return rc;
        if (fs_mkdir(temp, 0755) == 0) {
            *lock = fs_open_dir(temp);
            if (*lock >= 0)
                (void)!fs_lock(*lock, LOCK_EX | LOCK_NB); /* without lock support its age decides */
            return 0;
        }
        if (errno != EEXIST)
            break;
    }
    return rc < 0 ? rc : err_errno(e, "create %s", path);
}

int fs_replace_file(const char *path, const void *p, size_t n, struct err *e)
{
    struct fs_new f = {.fd = -1};
    int rc = fs_new_open(&f, path, e);
    if (rc == 0)
        rc = fs_new_write(&f, p, n, e);
    if (rc == 0)
        rc = fs_new_commit(&f, e);
    fs_new_abort(&f);
    return rc;
}

int fs_replace_text(const char *dir, const char *name, struct str *text, struct err *e)
{
    char path[PATH_MAX_BYTES];
    int rc = text->failed ? err_set(e, DS_EMEM, "%s: out of memory", name)
                          : fs_join(path, sizeof path, dir, name, e);
    if (rc == 0)
        rc = fs_replace_file(path, text->p, text->len, e);
    str_release(text);
    return rc;
}

int fs_write_file(const char *path, const void *p, size_t n, struct err *e)
{
    struct stat st;
    /* A device or a pipe ("-o /dev/stdout") has no old content to keep. */
    int is_plain = fs_stat(path, &st) != 0 || !(S_ISCHR(st.st_mode) || S_ISFIFO(st.st_mode));
    if (is_plain && fs_stream_fd(path) >= 0) /* -o /dev/stdout > FILE: goes on where the shell is */
        return fs_write_all(fs_stream_fd(path), p, n, path, e);
    if (is_plain)
        return fs_replace_file(path, p, n, e);
    int fd = -1, rc = fs_open_write(&fd, path, 0, e);
    if (rc < 0)
        return rc;
    rc = fs_write_all(fd, p, n, path, e);
    if (fs_close(fd) != 0 && rc == 0)
        rc = err_errno(e, "close %s", path);
    return rc;
}

int fs_write_text(const char *path, const struct str *text, struct err *e)
{
    return text->failed ? err_set(e, DS_EMEM, "%s: out of memory", path)
                        : fs_write_file(path, text->p, text->len, e);
}
