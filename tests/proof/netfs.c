/* A directory mounted as a network file system would be: what is written is kept by this client
 * and stored on the server (the directory) at fsync, at close, or when it is much or old.  A store
 * that fails loses its data, and the error comes at the next fsync or close, or write if it is for
 * lack of space.  The server may be
 * away, restart (files that were open are stale) or lose its replies.  An open file that is removed
 * is renamed meanwhile, which libfuse does as NFS does.  Faults come from the file CONTROL.
 * Two mounts of one directory are two clients.
 *
 *     netfs SERVER CONTROL MOUNTPOINT [options of FUSE]
 */
#define FUSE_USE_VERSION 31
#define _GNU_SOURCE
#define _FILE_OFFSET_BITS 64
#include <fuse.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

/* How long attributes are believed, how old and how much kept data becomes. */
static const double attributes_s = 0.3, kept_s = 0.3;
enum { KEPT_MAX = 256 << 10 };

/* The file CONTROL, mapped by both; written by the test at any time. */
struct control {
    _Atomic int64_t error;   /* number of the error of stores that fail */
    _Atomic int64_t fails;   /* so many of them, from now on */
    _Atomic int64_t holes;   /* 1: a failed store loses one write, 0: also those after it */
    _Atomic int64_t quota;   /* bytes that may still be stored, -1: any number */
    _Atomic int64_t boot;    /* files that were opened at another one are stale */
    _Atomic int64_t replies; /* so many replies are lost: what was done is done again, and fails */
    _Atomic int64_t away_ns; /* CLOCK_MONOTONIC until which nothing is answered */
    _Atomic int64_t hits;    /* faults that a caller has met or will meet */
};

/* A write that is not stored yet. */
struct piece {
    struct piece *next;
    off_t at;
    size_t n;
    char data[];
};

struct file {
    struct file *next;
    ino_t inode;
    int handles, fd; /* fd: to store with, -1: none is open for writing */
    int late;        /* error of a store, not reported yet */
    struct piece *first, **last;
    size_t kept; /* bytes of its pieces */
    struct timespec wrote, since;
};

struct handle {
    struct file *of;
    int fd, flags;
    int64_t boot;
};

static int server;
static struct control *control;
static struct file *files;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static const char *below(const char *path)
{
    return path[1] ? path + 1 : ".";
}

static struct handle *handle_of(const struct fuse_file_info *fi)
{
    return (struct handle *)(uintptr_t)fi->fh;
}

static double seconds_since(struct timespec then)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (double)(now.tv_sec - then.tv_sec) + 1e-9 * (double)(now.tv_nsec - then.tv_nsec);
}

/* Every operation begins with it. */
static void enter(void)
{
    const struct timespec moment = {.tv_nsec = 2000000};
    struct timespec now;
    while (clock_gettime(CLOCK_MONOTONIC, &now) == 0 &&
           now.tv_sec * INT64_C(1000000000) + now.tv_nsec < control->away_ns)
        nanosleep(&moment, NULL);
    pthread_mutex_lock(&lock);
}

/* And ends with it: rc as the system has it, 0 or -1 and errno. */
static int leave(int rc)
{
    int number = errno;
    pthread_mutex_unlock(&lock);
    return rc < 0 ? -number : rc;
}

/* For what cannot be done twice: the reply was lost, and the second try finds it done. */
static int leave_or_repeat(int rc, int number)
{
    if (rc == 0 && control->replies > 0) {
        control->replies--;
        control->hits++;
        errno = number;
        rc = -1;
    }
    return leave(rc);
}

/* ---- files --------------------------------------------------------------------------------------
 */

static struct file *find(ino_t inode)
{
    struct file *f = files;
    while (f && f->inode != inode)
        f = f->next;
    return f;
}

static void forget(struct file *f)
{
    while (f->first) {
        struct piece *p = f->first;
        f->first = p->next;
        free(p);
    }
    f->last = &f->first;
    f->kept = 0;
}

/* 0, or the error of a store of so many bytes. */
static int refusal(size_t n)
{
    if (control->fails > 0) {
        control->fails--;
        return (int)control->error;
    }
    if (control->quota >= 0 && (int64_t)n > control->quota)
        return EDQUOT;
    if (control->quota >= 0)
        control->quota -= (int64_t)n;
    return 0;
}

static int store_piece(const struct file *f, const struct piece *p)
{
    int number = refusal(p->n);
    for (size_t done = 0; number == 0 && done < p->n;) {
        ssize_t k = pwrite(f->fd, p->data + done, p->n - done, p->at + (off_t)done);
        number = k <= 0 ? errno : 0;
        done += k > 0 ? (size_t)k : 0;
    }
    return number;
}

static void store(struct file *f)
{
    int is_over = 0;
    for (struct piece *p = f->first; p; p = p->next) {
        int number = is_over ? 0 : store_piece(f, p);
        if (number) {
            f->late = number;
            control->hits++;
            is_over = !control->holes;
        }
    }
    forget(f);
}

static int report(struct file *f)
{
    store(f);
    errno = f->late;
    f->late = 0;
    return errno ? -1 : 0;
}

/* What a restarted server does not know any more; what it had not been sent is lost. */
static int is_stale(struct handle *h)
{
    if (h->boot == control->boot)
        return 0;
    control->hits++;
    forget(h->of);
    errno = ESTALE;
    return 1;
}

static off_t size_of(const struct file *f, off_t stored)
{
    for (const struct piece *p = f->first; p; p = p->next)
        if (p->at + (off_t)p->n > stored)
            stored = p->at + (off_t)p->n;
    return stored;
}

static int open_handle(struct fuse_file_info *fi, int fd)
{
    struct stat st;
    struct handle *h = calloc(1, sizeof *h);
    struct file *f = NULL;
    if (fd < 0 || !h || fstat(fd, &st) < 0)
        goto out;
    if (!(f = find(st.st_ino)) && !(f = calloc(1, sizeof *f)))
        goto out;
    if (f->handles++ == 0) {
        *f = (struct file){.next = files, .inode = st.st_ino, .fd = -1, .handles = 1};
        f->last = &f->first;
        files = f;
    }
    if (f->fd < 0 && (fi->flags & O_ACCMODE) != O_RDONLY) { /* not dup(): locks are the handle's */
        char name[40];
        snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
        f->fd = open(name, O_WRONLY | O_CLOEXEC);
    }
    if (fi->flags & O_TRUNC)
        forget(f);
    *h = (struct handle){.of = f, .fd = fd, .flags = fi->flags, .boot = control->boot};
    fi->fh = (uintptr_t)h;
    fi->direct_io = 1;
    return 0;
out:
    free(h);
    return -1;
}

static int net_open(const char *path, struct fuse_file_info *fi)
{
    enter();
    return leave(open_handle(fi, openat(server, below(path), fi->flags & ~O_APPEND)));
}

static int net_create(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    enter();
    return leave(
        open_handle(fi, openat(server, below(path), (fi->flags & ~O_APPEND) | O_CREAT, mode)));
}

static int net_release(const char *path, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    struct file *f = h->of, **at = &files;
    (void)path;
    enter();
    close(h->fd);
    free(h);
    if (--f->handles == 0) {
        store(f);
        while (*at != f)
            at = &(*at)->next;
        *at = f->next;
        if (f->fd >= 0)
            close(f->fd);
        free(f);
    }
    return leave(0);
}

static int net_read(const char *path, char *buf, size_t n, off_t at, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    (void)path;
    enter();
    ssize_t got = is_stale(h) ? -1 : pread(h->fd, buf, n, at);
    off_t end = got < 0 ? 0 : size_of(h->of, at + got);
    if (got >= 0 && end > at + got) {
        ssize_t all = end - at < (off_t)n ? (ssize_t)(end - at) : (ssize_t)n;
        memset(buf + got, 0, (size_t)(all - got));
        got = all;
    }
    for (const struct piece *p = h->of->first; got > 0 && p; p = p->next) {
        off_t from = p->at > at ? p->at : at, to = p->at + (off_t)p->n;
        to = to < at + got ? to : at + got;
        if (from < to)
            memcpy(buf + (from - at), p->data + (from - p->at), (size_t)(to - from));
    }
    return leave((int)got);
}

static int keep(struct handle *h, const char *buf, size_t n, off_t at)
{
    struct stat st;
    struct file *f = h->of;
    struct piece *p = malloc(sizeof *p + n);
    if (!p || fstat(h->fd, &st) < 0) {
        free(p);
        return -1;
    }
    p->next = NULL;
    p->at = h->flags & O_APPEND ? size_of(f, st.st_size) : at;
    p->n = n;
    memcpy(p->data, buf, n);
    clock_gettime(CLOCK_REALTIME, &f->wrote);
    if (!f->first)
        f->since = f->wrote;
    *f->last = p;
    f->last = &p->next;
    f->kept += n;
    if (f->kept > KEPT_MAX || seconds_since(f->since) > kept_s)
        store(f);
    /* these two are not kept for later; what this write had may be stored, or not */
    return f->late == ENOSPC || f->late == EDQUOT ? report(f) : (int)n;
}

static int net_write(const char *path, const char *buf, size_t n, off_t at,
                     struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    (void)path;
    enter();
    return leave(is_stale(h) ? -1 : keep(h, buf, n, at));
}

static int net_flush(const char *path, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    (void)path;
    enter();
    if ((h->flags & O_ACCMODE) == O_RDONLY)
        return leave(0);
    return leave(h->of->first && is_stale(h) ? -1 : report(h->of));
}

static int net_fsync(const char *path, int is_data, struct fuse_file_info *fi)
{
    struct handle *h = handle_of(fi);
    (void)path;
    (void)is_data;
    enter();
    return leave(is_stale(h) ? -1 : report(h->of));
}

static int net_flock(const char *path, struct fuse_file_info *fi, int operation)
{
    struct handle *h = handle_of(fi);
    (void)path;
    enter();
    /* never waits: all other operations would */
    return leave(is_stale(h) ? -1 : flock(h->fd, operation | LOCK_NB));
}

static int net_truncate(const char *path, off_t size, struct fuse_file_info *fi)
{
    struct stat st;
    enter();
    if (fi && is_stale(handle_of(fi)))
        return leave(-1);
    int fd = fi ? dup(handle_of(fi)->fd) : openat(server, below(path), O_WRONLY);
    struct file *f = fd >= 0 && fstat(fd, &st) == 0 ? find(st.st_ino) : NULL;
    if (f)
        store(f);
    int rc = fd < 0 ? -1 : ftruncate(fd, size), number = errno;
    if (fd >= 0)
        close(fd);
    errno = number;
    return leave(rc);
}

/* ---- names --------------------------------------------------------------------------------------
 */

static int net_getattr(const char *path, struct stat *st, struct fuse_file_info *fi)
{
    enter();
    int rc = fi ? fstat(handle_of(fi)->fd, st)
                : fstatat(server, below(path), st, AT_SYMLINK_NOFOLLOW);
    const struct file *f = rc == 0 && S_ISREG(st->st_mode) ? find(st->st_ino) : NULL;
    if (f && f->first) {
        st->st_size = size_of(f, st->st_size);
        st->st_mtim = f->wrote;
    }
    return leave(rc);
}

static int net_readdir(const char *path, void *buf, fuse_fill_dir_t fill, off_t at,
                       struct fuse_file_info *fi, enum fuse_readdir_flags flags)
{
    (void)at;
    (void)fi;
    (void)flags;
    enter();
    int fd = openat(server, below(path), O_RDONLY | O_DIRECTORY);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    for (const struct dirent *d; dir && (d = readdir(dir));)
        fill(buf, d->d_name, NULL, 0, 0);
    if (dir)
        closedir(dir);
    return leave(dir ? 0 : -1);
}

static int net_mkdir(const char *path, mode_t mode)
{
    enter();
    return leave_or_repeat(mkdirat(server, below(path), mode), EEXIST);
}

static int net_rmdir(const char *path)
{
    enter();
    return leave_or_repeat(unlinkat(server, below(path), AT_REMOVEDIR), ENOENT);
}

static int net_unlink(const char *path)
{
    enter();
    return leave_or_repeat(unlinkat(server, below(path), 0), ENOENT);
}

static int net_rename(const char *from, const char *to, unsigned flags)
{
    enter();
    return leave_or_repeat(renameat2(server, below(from), server, below(to), flags), ENOENT);
}

static int net_link(const char *from, const char *to)
{
    enter();
    return leave_or_repeat(linkat(server, below(from), server, below(to), 0), EEXIST);
}

static int net_mknod(const char *path, mode_t mode, dev_t device)
{
    enter();
    return leave(mknodat(server, below(path), mode, device));
}

static int net_chmod(const char *path, mode_t mode, struct fuse_file_info *fi)
{
    (void)fi;
    enter();
    return leave(fchmodat(server, below(path), mode, 0));
}

static int net_chown(const char *path, uid_t user, gid_t group, struct fuse_file_info *fi)
{
    (void)fi;
    enter();
    return leave(fchownat(server, below(path), user, group, AT_SYMLINK_NOFOLLOW));
}

static int net_utimens(const char *path, const struct timespec t[2], struct fuse_file_info *fi)
{
    (void)fi;
    enter();
    return leave(utimensat(server, below(path), t, AT_SYMLINK_NOFOLLOW));
}

static int net_statfs(const char *path, struct statvfs *v)
{
    (void)path;
    enter();
    return leave(fstatvfs(server, v));
}

static void *net_init(struct fuse_conn_info *connection, struct fuse_config *c)
{
    (void)connection;
    c->use_ino = 1; /* both clients and the server have one number for a file */
    c->attr_timeout = c->entry_timeout = attributes_s;
    return NULL;
}

static const struct fuse_operations operations = {
    .init = net_init,         .open = net_open,       .create = net_create,
    .release = net_release,   .read = net_read,       .write = net_write,
    .flush = net_flush,       .fsync = net_fsync,     .flock = net_flock,
    .truncate = net_truncate, .getattr = net_getattr, .readdir = net_readdir,
    .mkdir = net_mkdir,       .rmdir = net_rmdir,     .unlink = net_unlink,
    .rename = net_rename,     .link = net_link,       .mknod = net_mknod,
    .chmod = net_chmod,       .chown = net_chown,     .utimens = net_utimens,
    .statfs = net_statfs,
};

int main(int argc, char **argv)
{
    int fd = argc > 3 ? open(argv[2], O_RDWR | O_CLOEXEC) : -1;
    server = fd < 0 ? -1 : open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    control = fd < 0 ? MAP_FAILED
                     : mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (server < 0 || control == MAP_FAILED) {
        fprintf(stderr, "netfs SERVER CONTROL MOUNTPOINT: %s\n", strerror(errno));
        return 2;
    }
    umask(0);
    argv[2] = argv[0];
    return fuse_main(argc - 2, argv + 2, &operations, NULL);
}
