/* Appends to a record stream: the writing side of io/runlog.h. */
#include "io/runlog.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/foreign.h"

enum { WAITING_MAX = 8 << 20, TAIL_MAX = 64 << 20 };

struct runlog_writer {
    char *path;
    int fd;
    dev_t dev; /* of the file, and its number there */
    ino_t ino;
    int is_taken;         /* by another process, while its handle was stale */
    uint64_t seq, offset; /* of the last record; file size after it */
    int is_torn;          /* a partial record follows offset and could not be truncated */
    struct str frame;     /* the record being appended */
    struct str waiting;   /* complete frames not yet on disk, oldest at waiting_at */
    size_t waiting_at;
    uint64_t synced;     /* what a sync that worked has put on the disk */
    struct str unsynced; /* the records behind it, to be written again when a sync fails */
    int is_unkept;       /* they are too many for that */
    int is_unsure;       /* a sync failed: of what is unsynced anything may be lost */
    uint64_t lost;
    double sync_interval_s, synced_at;
    int is_dirty;
    char run_id[RUNLOG_RUN_ID], parent[RUNLOG_PARENT]; /* of the newest head that has one */
    int64_t step; /* the highest one with a logged metric, -1 none */
    int has_head;
};

/* ---- opening ----------------------------------------------------------------------------------
 */

/* Process that holds a flock on this inode, 0 when unknown (other host, container). */
static long lock_holder(ino_t inode)
{
    struct str locks = {0};
    long found = 0;
    if (fs_read_file(&locks, "/proc/locks", 1 << 20, NULL) == 0)
        for (const char *line = str_text(&locks); line; line = strchr(line, '\n')) {
            char kind[16];
            long pid;
            uint64_t ino;
            line += *line == '\n';
            if (sscanf(line, "%*d: %15s %*s %*s %ld %*x:%*x:%" SCNu64, kind, &pid, &ino) == 3 &&
                strcmp(kind, "FLOCK") == 0 && ino == (uint64_t)inode && pid > 0)
                found = pid;
        }
    str_release(&locks);
    return found;
}

int runlog_is_locked(const char *path)
{
    int fd;
    if (fs_open_read(&fd, path, NULL) < 0)
        return 0;
    int held = fs_lock(fd, LOCK_SH | LOCK_NB) < 0 && errno == EWOULDBLOCK;
    fs_close(fd);
    return held;
}

static int lock(const struct runlog_writer *w, struct err *e)
{
    struct stat st;
    /* A viewer that checks whether the run is live holds the lock briefly: retry for a moment. */
    for (int i = 0; i < 10; i++) {
        if (fs_lock(w->fd, LOCK_EX | LOCK_NB) == 0)
            return 0;
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_errno(e, "lock %s", w->path);
        clock_sleep(0.01);
    }
    long pid = fs_fstat(w->fd, &st) == 0 ? lock_holder(st.st_ino) : 0;
    if (pid > 0)
        return err_set(e, DS_EBUSY, "%s is being written by process %ld", w->path, pid);
    return err_set(e, DS_EBUSY, "%s is being written by another process", w->path);
}

static int read_tail(struct runlog_writer *w, uint64_t n, struct str *out, struct err *e)
{
    static const size_t step = 1 << 16;
    if (n > TAIL_MAX)
        return err_set(e, DS_EFORMAT,
                       "%s: corrupt from byte %" PRIu64 " (%" PRIu64
                       " bytes, expected at most %d); truncate the file there to continue",
                       w->path, w->offset, n, TAIL_MAX);
    if (lseek(w->fd, (off_t)w->offset, SEEK_SET) < 0)
        return err_errno(e, "seek in %s", w->path);
    while (out->len < n) {
        char buf[1 << 16];
        size_t got, want = n - out->len < step ? (size_t)(n - out->len) : step;
        int rc = fs_read_some(w->fd, buf, want, &got, w->path, e);
        if (rc < 0)
            return rc;
        if (got == 0)
            break;
        str_add_bytes(out, buf, got);
    }
    return out->failed ? err_set(e, DS_EMEM, "%s: out of memory for its tail", w->path) : 0;
}

/* Did these bytes begin a log before a disk lost some of them?  Else the file is another's. */
static int is_hurt_stream(const struct str *tail)
{
    enum { SECTOR = 512 };
    size_t n = tail->len < SECTOR ? tail->len : SECTOR, zeros = 0;
    while (zeros < n && tail->p[zeros] == 0)
        zeros++;
    return zeros == n || record_length(tail->p, tail->len) >= 0;
}

/* A tail that is neither torn nor empty is damage: it is kept in a file next to the log before
 * truncation. */
static int keep_tail(struct runlog_writer *w, const struct str *tail, struct err *e)
{
    char name[1200];
    if (tail->len == 0 || record_parse(tail->p, tail->len, NULL, NULL, NULL) == 0)
        return 0;
    if (w->offset == 0 && !is_hurt_stream(tail))
        return err_set(e, DS_EFORMAT,
                       "%s: not a record stream; move the file away to continue without it",
                       w->path);
    snprintf(name, sizeof name, "%s.broken-%" PRIu64, w->path, w->offset);
    log_warn("%s: %zu corrupt bytes at its end, kept as %s", w->path, tail->len, name);
    return fs_write_file(name, tail->p, tail->len, e);
}

static int cut_tail(struct runlog_writer *w, uint64_t n, struct err *e)
{
    struct str tail = {0};
    uint64_t end; /* zeros of any number are the end of the file (FORMATS.md), and not kept */
    int rc = fs_nonzero_end(w->fd, w->offset, w->offset + n, 0, &end, w->path, e);
    if (rc == 0)
        rc = read_tail(w, end - w->offset, &tail, e);
    if (rc == 0)
        rc = keep_tail(w, &tail, e);
    if (rc == 0 && fs_truncate(w->fd, w->offset) < 0)
        rc = err_errno(e, "truncate %s to %" PRIu64 " bytes", w->path, w->offset);
    str_release(&tail);
    return rc;
}

static void note_text(char *out, size_t size, struct value v)
{
    size_t n = 0;
    const char *text = value_bytes(v, &n);
    if (text && n > 0 && n < size)
        snprintf(out, size, "%.*s", (int)n, text);
}

/* Collects what the writer needs to know about the existing records. */
static void note(struct runlog_writer *w, struct value body)
{
    struct value kind = value_get(body, "kind");
    if (value_is(kind, "metric")) {
        int64_t step = value_int(value_get(body, "step"), -1);
        w->step = step > w->step ? step : w->step;
    } else if (value_is(kind, "head")) {
        w->has_head = 1;
        note_text(w->run_id, sizeof w->run_id, value_get(body, "run_id"));
        note_text(w->parent, sizeof w->parent, value_get(body, "parent"));
    }
}

/* Finds where the last whole record ends, its seq, and what follows it. */
static int find_end(struct runlog_writer *w, uint64_t *tail, struct err *e)
{
    struct runlog_reader *r = NULL;
    struct runlog_entry entry;
    int rc = runlog_reader_open(&r, w->path, e);
    if (rc < 0)
        return rc;
    while ((rc = runlog_next(r, &entry, e)) > 0)
        if (!entry.is_gap && !entry.is_repeat) {
            w->seq = entry.seq;
            note(w, entry.body);
        }
    w->offset = runlog_reader_offset(r);
    const struct foreign_format *other = runlog_reader_format(r);
    if (rc == 0 && other)
        rc = err_set(e, DS_EFORMAT,
                     "%s: a log of another program (%s), not a record stream; move the file away to "
                     "continue without it",
                     w->path, other->title);
    runlog_reader_close(r);
    struct stat st;
    if (rc == 0 && fs_fstat(w->fd, &st) < 0) /* what is not cut would stay as a gap */
        rc = err_errno(e, "stat %s", w->path);
    if (rc == 0)
        *tail = (uint64_t)st.st_size > w->offset ? (uint64_t)st.st_size - w->offset : 0;
    return rc;
}

static int open_file(struct runlog_writer *w, struct err *e)
{
    struct stat st;
    uint64_t tail = 0;
    w->fd = fs_open(w->path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0644);
    if (w->fd < 0)
        return err_errno(e, "open %s", w->path);
    if (fs_fstat(w->fd, &st) < 0)
        return err_errno(e, "stat %s", w->path);
    if (!S_ISREG(st.st_mode))
        return err_set(e, DS_EIO, "%s: not a regular file", w->path);
    w->dev = st.st_dev;
    w->ino = st.st_ino;
    int rc = lock(w, e);
    if (rc == 0)
        rc = find_end(w, &tail, e);
    w->synced = w->offset;
    if (rc == 0 && tail > 0)
        rc = cut_tail(w, tail, e);
    return rc;
}

int runlog_writer_open(struct runlog_writer **out, const char *path, struct err *e)
{
    struct runlog_writer *w = mem_alloc(1, sizeof *w);
    int rc = 0;
    if (!w)
        return err_set(e, DS_EMEM, "%s: out of memory", path);
    w->fd = -1;
    w->step = -1;
    w->sync_interval_s = 5;
    w->synced_at = clock_mono();
    w->path = mem_strdup(path);
    rc = w->path ? open_file(w, e) : err_set(e, DS_EMEM, "%s: out of memory", path);
    if (rc < 0) {
        if (w->fd >= 0)
            fs_close(w->fd);
        mem_free(w->path);
        mem_free(w);
        return rc;
    }
    *out = w;
    return 0;
}

/* ---- appending --------------------------------------------------------------------------------
 */

static void forget_unsynced(struct runlog_writer *w, int is_unkept)
{
    str_renew(&w->unsynced);
    w->is_unkept = is_unkept;
    w->is_unsure = 0;
}

/* A network file system loses what it took before when it cannot store it, and a file may be put
 * over the log.  To truncate it to its old size would fill it with zeros. */
static int is_shorter(struct runlog_writer *w)
{
    struct stat st;
    if (fs_fstat(w->fd, &st) < 0 || (uint64_t)st.st_size >= w->offset)
        return 0;
    uint64_t size = (uint64_t)st.st_size, kept_from = w->is_unkept ? w->offset : w->synced;
    if (size < kept_from) {
        log_warn("%s: its last %" PRIu64 " bytes were lost", w->path, kept_from - size);
        w->synced = size;
    }
    w->offset = size;
    w->is_unsure = !w->is_unkept;
    return 1;
}

/* After a failed sync: the kernel counts the pages as written, so only writing them again stores
 * them.  In place, so that a crash in between loses nothing that is there. */
static int write_again(struct runlog_writer *w, struct err *e)
{
    int flags = fcntl(w->fd, F_GETFL);
    if (w->is_taken || w->unsynced.len == 0)
        return 0;
    if (flags < 0 || fcntl(w->fd, F_SETFL, flags & ~O_APPEND) < 0 ||
        lseek(w->fd, (off_t)w->synced, SEEK_SET) < 0)
        return err_errno(e, "seek in %s", w->path);
    int rc = fs_write_all(w->fd, w->unsynced.p, w->unsynced.len, w->path, e);
    int number = errno;
    if (fcntl(w->fd, F_SETFL, flags) < 0 && rc == 0)
        rc = err_errno(e, "append to %s", w->path);
    if (rc == 0)
        w->offset = w->synced + w->unsynced.len;
    errno = number;
    return rc;
}

static void keep_unsynced(struct runlog_writer *w, const char *p, size_t n)
{
    if (!w->is_unkept && w->unsynced.len + n <= WAITING_MAX)
        str_add_bytes(&w->unsynced, p, n);
    else
        w->unsynced.failed = 1;
    if (w->unsynced.failed)
        forget_unsynced(w, 1);
}

static void cut_torn(struct runlog_writer *w)
{
    if (w->is_torn && !w->is_taken && (is_shorter(w) || fs_truncate(w->fd, w->offset) == 0))
        w->is_torn = 0;
}

/* A full disk may leave no room to make a file shorter.  When that still fails with the next record,
 * it comes after the torn bytes, which readers skip by their checksum. */
static void pass_torn(struct runlog_writer *w)
{
    struct stat st;
    cut_torn(w);
    if (w->is_torn && !w->is_taken && fs_fstat(w->fd, &st) == 0)
        w->offset = (uint64_t)st.st_size;
}

/* The server of a network file system has forgotten its handles: the file is opened again where its
 * path still leads to it and nobody has gone on with it, of which `n` bytes at most may be our own.  1 when
 * it is. */
static int open_stale(struct runlog_writer *w, size_t n)
{
    struct stat st;
    struct err e = {0};
    int fd = fs_open(w->path, O_RDWR | O_APPEND | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0);
    if (fd < 0)
        return 0;
    if (fs_fstat(fd, &st) < 0 || st.st_dev != w->dev || st.st_ino != w->ino) {
        fs_close(fd);
        return 0;
    }
    fs_close(w->fd); /* its lock would be in the way of ours */
    w->fd = fd;
    w->is_taken = lock(w, &e) < 0 || fs_fstat(fd, &st) < 0 || (uint64_t)st.st_size > w->offset + n;
    if (w->is_taken)
        return 0;
    log_warn("%s: its handle was stale, and it was opened again", w->path);
    w->is_unsure = !w->is_unkept;
    w->is_torn = 1;
    pass_torn(w);
    return 1;
}

/* What the file has lost of the unsynced records goes before the next one. */
static int restore_tail(struct runlog_writer *w, struct err *e)
{
    if (!w->is_unsure)
        return 0;
    (void)is_shorter(w);
    return w->offset < w->synced + w->unsynced.len ? write_again(w, e) : 0;
}

/* Appends one frame; on failure nothing of it remains (or is_torn is set). */
static int put(struct runlog_writer *w, const char *p, size_t n, struct err *e)
{
    if (w->is_taken)
        return err_set(e, DS_EBUSY, "%s was taken by another process while its handle was stale", w->path);
    pass_torn(w);
    int rc = restore_tail(w, e);
    if (rc == 0)
        rc = fs_write_all(w->fd, p, n, w->path, e);
    int number = errno;
    if (rc < 0 && number == ESTALE && open_stale(w, n)) {
        rc = restore_tail(w, e);
        if (rc == 0)
            rc = fs_write_all(w->fd, p, n, w->path, e);
        number = errno;
    }
    if (rc < 0) {
        w->is_torn = 1;
        cut_torn(w);
        errno = number;
        return rc;
    }
    w->offset += n;
    w->is_torn = 0;
    w->is_dirty = 1;
    keep_unsynced(w, p, n);
    return 0;
}

static size_t frame_size(const char *p)
{
    const unsigned char *b = (const unsigned char *)p;
    return RECORD_HEAD + ((size_t)b[1] << 24 | (size_t)b[2] << 16 | (size_t)b[3] << 8 | b[4]);
}

static void drop_waiting(struct runlog_writer *w)
{
    w->waiting_at += frame_size(w->waiting.p + w->waiting_at);
    if (w->waiting_at == w->waiting.len) {
        str_renew(&w->waiting);
        w->waiting_at = 0;
    }
}

static void keep_waiting(struct runlog_writer *w, const struct str *frame)
{
    struct str *ring = &w->waiting;
    if (frame->len > WAITING_MAX) {
        w->lost++;
        return;
    }
    while (ring->len - w->waiting_at + frame->len > WAITING_MAX) {
        drop_waiting(w);
        w->lost++;
    }
    if (w->waiting_at > WAITING_MAX / 2) {
        memmove(ring->p, ring->p + w->waiting_at, ring->len - w->waiting_at);
        ring->len -= w->waiting_at;
        w->waiting_at = 0;
    }
    size_t before = ring->len;
    str_add_bytes(ring, frame->p, frame->len);
    if (ring->failed) {
        ring->len = before;
        ring->failed = 0;
        w->lost++;
    }
}

static int put_waiting(struct runlog_writer *w, struct err *e)
{
    if (w->waiting.len == 0)
        return 0;
    while (w->waiting.len > 0) {
        const char *p = w->waiting.p + w->waiting_at;
        int rc = put(w, p, frame_size(p), e);
        if (rc < 0)
            return rc;
        drop_waiting(w);
    }
    log_warn("%s: records are written again; %" PRIu64 " were lost", w->path, w->lost);
    return 0;
}

static int disk_is_full(int number)
{
    return number == ENOSPC || number == EDQUOT || number == EFBIG;
}

static int sync_now(struct runlog_writer *w, struct err *e)
{
    w->synced_at = clock_mono();
    int was_unsure = w->is_unsure, rc = was_unsure ? write_again(w, e) : 0;
    if (rc == 0 && fs_datasync(w->fd) < 0 && errno != EINVAL)
        rc = err_errno(e, "sync %s", w->path);
    if (rc < 0) {
        w->is_unsure = !w->is_unkept;
        (void)is_shorter(w);
        return rc;
    }
    if (was_unsure)
        log_warn("%s: %zu bytes that were not stored are written again", w->path, w->unsynced.len);
    w->is_dirty = 0;
    w->synced = w->offset;
    forget_unsynced(w, 0);
    return 0;
}

/* The frame of the next record is there. */
static int append_frame(struct runlog_writer *w, struct err *e)
{
    struct err why = {0};
    int was_waiting = w->waiting.len > 0;
    w->seq++;
    int rc = put_waiting(w, &why);
    if (rc == 0)
        rc = put(w, w->frame.p, w->frame.len, &why);
    if (rc < 0) {
        int is_full = disk_is_full(errno);
        keep_waiting(w, &w->frame);
        if (!was_waiting)
            log_warn("%s; records are buffered in memory", why.text);
        return is_full ? 0 : err_set(e, rc, "%s", why.text);
    }
    if (clock_mono() - w->synced_at >= w->sync_interval_s && sync_now(w, &why) < 0)
        log_warn("%s", why.text);
    return 0;
}

int runlog_append(struct runlog_writer *w, struct record *r, struct err *e)
{
    str_renew(&w->frame);
    int rc = record_end(r, w->seq + 1, &w->frame, e);
    return rc < 0 ? rc : append_frame(w, e);
}

int runlog_append_body(struct runlog_writer *w, struct value body, struct err *e)
{
    str_renew(&w->frame);
    record_copy(&w->frame, w->seq + 1, body);
    return w->frame.failed ? err_set(e, DS_EMEM, "out of memory for a record") : append_frame(w, e);
}

int runlog_writer_sync(struct runlog_writer *w, struct err *e)
{
    int rc = put_waiting(w, e);
    return rc < 0 ? rc : sync_now(w, e);
}

void runlog_writer_sync_interval(struct runlog_writer *w, double seconds)
{
    w->sync_interval_s = seconds;
}

const char *runlog_writer_run_id(const struct runlog_writer *w)
{
    return w->run_id;
}

const char *runlog_writer_parent(const struct runlog_writer *w)
{
    return w->parent;
}

int64_t runlog_writer_step(const struct runlog_writer *w)
{
    return w->step;
}

int runlog_writer_has_head(const struct runlog_writer *w)
{
    return w->has_head;
}

int runlog_writer_owns_path(const struct runlog_writer *w)
{
    struct stat a, b;
    if (fs_stat(w->path, &b) != 0)
        return errno != ENOENT && errno != ENOTDIR;
    return fs_fstat(w->fd, &a) != 0 || (a.st_dev == b.st_dev && a.st_ino == b.st_ino);
}

uint64_t runlog_writer_dropped(const struct runlog_writer *w)
{
    return w->lost;
}

uint64_t runlog_writer_offset(const struct runlog_writer *w)
{
    return w->offset;
}

uint64_t runlog_writer_buffered(const struct runlog_writer *w)
{
    return w->waiting.len - w->waiting_at;
}

void runlog_writer_close(struct runlog_writer *w)
{
    struct err e = {0};
    if (!w)
        return;
    if (put_waiting(w, &e) < 0)
        log_error("%s; %zu bytes of records are lost", e.text, w->waiting.len - w->waiting_at);
    if (w->is_dirty && sync_now(w, &e) < 0)
        log_error("%s", e.text);
    if (fs_close(w->fd) < 0)
        log_error("close %s: %s", w->path, strerror(errno));
    str_release(&w->frame);
    str_release(&w->waiting);
    str_release(&w->unsynced);
    mem_free(w->path);
    mem_free(w);
}
