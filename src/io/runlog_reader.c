/* Follows a record stream: the reading side of io/runlog.h.
 *
 * Files are read, never mapped (a mapping of a file that shrinks is a SIGBUS).  What follows
 * the last whole record is discarded whenever the end is reached: the next writer may truncate it
 * and write other bytes there. */
#include "io/runlog.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "io/filekind.h"
#include "io/foreign.h"

enum { TEXT_LOOK = 1 << 20 }; /* bytes of a pipe that may come before a log is recognised */
enum { CHUNK = 1 << 20, NOISE_MAX = 8 << 20, SIGN = 64 };

struct runlog_reader {
    char *path;
    int fd, is_pipe, at_end;
    struct stat seen; /* the file when nothing more was found */
    int has_seen;
    unsigned char *buf; /* buf[at..len) is not consumed */
    size_t at, len, cap;
    uint64_t base; /* stream offset of buf[0] */
    int in_gap;    /* looking for the next good record; damage began at gap_from */
    uint64_t gap_from;
    unsigned char sign[SIGN]; /* first bytes of the gap: if they change, a writer truncated it */
    size_t sign_len;
    unsigned char first[SIGN]; /* first bytes of the file: another file has others */
    size_t first_len;
    size_t bound, taken; /* bytes to read in one call; bytes read in this one */
    int is_behind;
    uint64_t seq; /* of the last record */
    int has_seq, is_reset;
    struct foreign_reader *foreign; /* the log of another program; NULL: records */
    int wants_points, is_ended;     /* is_ended: `foreign` knows that the pipe closed */
};

static int open_path(const char *path, struct stat *st, struct err *e)
{
    /* nonblocking, or opening a FIFO would wait for its writer */
    int fd = strcmp(path, "-") ? fs_open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK, 0)
                               : fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3);
    if (fd < 0)
        return err_errno(e, "open %s", path);
    if (fs_fstat(fd, st) < 0)
        err_errno(e, "stat %s", path);
    else if (S_ISDIR(st->st_mode))
        err_set(e, DS_EIO, "%s: is a directory; expected a record file", path);
    else if ((S_ISCHR(st->st_mode) || S_ISBLK(st->st_mode)) && strcmp(path, "-"))
        err_set(e, DS_EIO, "%s: is a device; expected a record file", path);
    else
        return fd;
    fs_close(fd);
    return DS_EIO;
}

int runlog_reader_open(struct runlog_reader **out, const char *path, struct err *e)
{
    struct stat st;
    int rc = DS_EMEM, fd = -1;
    struct runlog_reader *r = mem_alloc(1, sizeof *r);
    if (!r || !(r->path = mem_strdup(path))) {
        rc = err_set(e, DS_EMEM, "%s: out of memory", path);
        goto out;
    }
    r->fd = -1;
    if (strcmp(path, "-") && fs_is_dir(path)) {
        rc = foreign_reader_open(&r->foreign, path, e);
        if (rc == 0) {
            *out = r;
            return 0;
        }
        if (rc == DS_EMEM)
            goto out;
    }
    rc = fd = open_path(path, &st, e);
    if (rc < 0)
        goto out;
    r->fd = fd;
    r->is_pipe = !S_ISREG(st.st_mode) || strcmp(path, "-") == 0;
    r->bound = r->is_pipe ? NOISE_MAX : 0; /* a pipe may deliver endless noise */
    *out = r;
    return 0;
out:
    if (r)
        mem_free(r->path);
    mem_free(r);
    return rc;
}

void runlog_reader_close(struct runlog_reader *r)
{
    if (!r)
        return;
    if (r->fd >= 0)
        fs_close(r->fd);
    foreign_reader_close(r->foreign);
    mem_free(r->buf);
    mem_free(r->path);
    mem_free(r);
}

int runlog_reader_fd(const struct runlog_reader *r)
{
    return r->is_pipe ? r->fd : -1;
}

void runlog_reader_limit(struct runlog_reader *r, size_t bytes)
{
    r->bound = bytes ? bytes : r->is_pipe ? NOISE_MAX : 0;
    if (r->foreign)
        foreign_limit(r->foreign, bytes);
}

int runlog_reader_is_behind(const struct runlog_reader *r)
{
    return r->is_behind || (r->foreign && foreign_is_behind(r->foreign));
}

int runlog_reader_at_end(const struct runlog_reader *r)
{
    return r->at_end;
}

uint64_t runlog_reader_offset(const struct runlog_reader *r)
{
    if (r->foreign) {
        uint64_t position = foreign_position(r->foreign), left = foreign_left(r->foreign);
        return position > left ? position - left : 0;
    }
    return r->in_gap ? r->gap_from : r->base + r->at;
}

uint64_t runlog_reader_position(const struct runlog_reader *r)
{
    return r->foreign ? foreign_position(r->foreign) : r->base + r->at;
}

uint64_t runlog_reader_tail(const struct runlog_reader *r)
{
    struct stat st;
    if (r->foreign)
        return foreign_left(r->foreign);
    uint64_t from = runlog_reader_offset(r), to = r->base + r->len;
    if (!r->is_pipe && fs_fstat(r->fd, &st) == 0)
        to = (uint64_t)st.st_size;
    return to > from ? to - from : 0;
}

void runlog_reader_wants_points(struct runlog_reader *r)
{
    r->wants_points = 1;
    if (r->foreign)
        foreign_wants_points(r->foreign);
}

const struct foreign_format *runlog_reader_format(const struct runlog_reader *r)
{
    return r->foreign ? foreign_reader_format(r->foreign) : NULL;
}

uint64_t runlog_reader_skipped(const struct runlog_reader *r)
{
    return r->foreign ? foreign_skipped(r->foreign) : 0;
}

uint64_t runlog_reader_others(const struct runlog_reader *r)
{
    return r->foreign ? foreign_others(r->foreign) : 0;
}

double runlog_reader_modified(const struct runlog_reader *r)
{
    return r->foreign ? foreign_modified(r->foreign) : 0;
}

/* ---- bytes ------------------------------------------------------------------------------------
 */

static void jump(struct runlog_reader *r, uint64_t offset)
{
    r->base = offset;
    r->at = r->len = 0;
}

static int same_file(const struct stat *a, const struct stat *b)
{
    return a->st_dev == b->st_dev && a->st_ino == b->st_ino;
}

/* The path names another file now, or the file lost records that were read: start over. */
static int start_over(struct runlog_reader *r)
{
    struct stat st;
    int fd = open_path(r->path, &st, NULL);
    if (fd < 0)
        return 0; /* gone: keep what is open */
    fs_close(r->fd);
    r->fd = fd;
    r->is_pipe = !S_ISREG(st.st_mode);
    r->in_gap = r->has_seq = r->has_seen = 0;
    r->first_len = 0;
    r->is_reset = 1;
    jump(r, 0);
    return 1;
}

/* Does the file still begin with the bytes seen before?  One that was truncated and written again
 * may be as long as before by now. */
static int same_beginning(struct runlog_reader *r)
{
    unsigned char now[SIGN];
    ssize_t got = pread(r->fd, now, sizeof now, 0);
    if (got < (ssize_t)r->first_len || memcmp(now, r->first, r->first_len) != 0)
        return got < 0;
    memcpy(r->first, now, (size_t)got);
    r->first_len = (size_t)got;
    return 1;
}

/* Does the gap still begin with the bytes seen before? */
static int same_gap(const struct runlog_reader *r)
{
    unsigned char now[SIGN];
    ssize_t got = fs_pread(r->fd, now, r->sign_len, r->gap_from);
    return got == (ssize_t)r->sign_len && memcmp(now, r->sign, r->sign_len) == 0;
}

/* Has the file changed since its end was reached?  1 yes, 0 no. */
static int file_moved(struct runlog_reader *r)
{
    struct stat now, named;
    if (fs_fstat(r->fd, &now) < 0)
        return 0;
    if (fs_stat(r->path, &named) == 0 && !same_file(&named, &now) && S_ISREG(named.st_mode))
        return start_over(r);
    if ((uint64_t)now.st_size < runlog_reader_offset(r))
        return start_over(r);
    int moved = !r->has_seen || now.st_size != r->seen.st_size ||
                now.st_mtim.tv_sec != r->seen.st_mtim.tv_sec ||
                now.st_mtim.tv_nsec != r->seen.st_mtim.tv_nsec;
    if (moved && !r->is_pipe && !same_beginning(r))
        return start_over(r);
    if (r->in_gap && moved && ((uint64_t)now.st_size < r->base + r->at || !same_gap(r))) {
        r->in_gap = 0; /* a writer truncated the damaged tail */
        jump(r, r->gap_from);
    }
    r->seen = now;
    r->has_seen = 1;
    return moved;
}

static int make_room(struct runlog_reader *r, size_t n, struct err *e)
{
    void *p = r->buf;
    if (r->at > 0) {
        memmove(r->buf, r->buf + r->at, r->len - r->at);
        r->base += r->at;
        r->len -= r->at;
        r->at = 0;
    }
    if (mem_grow(&p, &r->cap, r->len + n, 1) < 0)
        return err_set(e, DS_EMEM, "%s: out of memory for %zu bytes", r->path, r->len + n);
    r->buf = p;
    return 0;
}

static int pipe_ready(struct runlog_reader *r)
{
    struct pollfd p = {.fd = r->fd, .events = POLLIN};
    return !r->at_end && poll(&p, 1, 0) > 0;
}

/* Holes inside a gap are skipped: a crash may leave gigabytes of zeros. */
static void skip_hole(struct runlog_reader *r, uint64_t size)
{
    if (!r->in_gap || r->at < r->len)
        return;
    uint64_t from = r->base + r->len, data = fs_next_data(r->fd, from, size);
    if (data > from)
        jump(r, data);
}

/* Reads on: 1 there are more bytes, 0 none now, negative on failure. */
static int fill(struct runlog_reader *r, struct err *e)
{
    struct stat st;
    size_t got = 0, want = CHUNK;
    r->is_behind = r->bound > 0 && r->taken >= r->bound;
    if (r->is_behind)
        return 0;
    if (r->is_pipe) {
        if (!pipe_ready(r))
            return 0;
    } else {
        if (fs_fstat(r->fd, &st) < 0) /* a writer would take it for the end, and cut there */
            return err_errno(e, "stat %s", r->path);
        skip_hole(r, (uint64_t)st.st_size);
        uint64_t from = r->base + r->len;
        if ((uint64_t)st.st_size <= from)
            return 0;
        if ((uint64_t)st.st_size - from < want)
            want = (size_t)((uint64_t)st.st_size - from);
        if (lseek(r->fd, (off_t)from, SEEK_SET) < 0)
            return err_errno(e, "seek in %s", r->path);
    }
    int rc = make_room(r, want, e);
    if (rc < 0)
        return rc;
    rc = fs_read_some(r->fd, r->buf + r->len, want, &got, r->path, e);
    if (rc < 0)
        return r->is_pipe && (errno == EAGAIN || errno == EWOULDBLOCK) ? 0 : rc;
    if (got == 0 && r->is_pipe)
        r->at_end = 1;
    r->len += got;
    r->taken += got;
    return got > 0;
}

/* ---- records ----------------------------------------------------------------------------------
 */

static uint64_t missing(const struct runlog_reader *r, uint64_t seq)
{
    return r->has_seq && seq > r->seq + 1 && r->seq != UINT64_MAX ? seq - r->seq - 1 : 0;
}

static void deliver(struct runlog_reader *r, struct runlog_entry *entry, size_t whole)
{
    int is_head = value_is(value_get(entry->body, "kind"), "head");
    entry->offset = r->base + r->at;
    entry->lost = missing(r, entry->seq);
    /* a head may restart the count: another writer continued the file */
    entry->is_repeat = r->has_seq && entry->seq <= r->seq && !is_head;
    if (!entry->is_repeat)
        r->seq = entry->seq;
    r->has_seq = 1;
    r->at += whole;
}

/* Reports the damage before the good record at `found`, which the next call returns. */
static void deliver_gap(struct runlog_reader *r, struct runlog_entry *entry, size_t found)
{
    uint64_t seq = 0;
    r->at = found;
    if (record_parse(r->buf + found, r->len - found, &seq, NULL, NULL) > 0 && missing(r, seq)) {
        entry->lost = missing(r, seq);
        r->seq = seq - 1;
    }
    entry->is_gap = 1;
    entry->seq = r->seq;
    entry->offset = r->gap_from;
    entry->gap_bytes = r->base + found - r->gap_from;
    r->in_gap = 0;
}

static void enter_gap(struct runlog_reader *r, size_t scan_from)
{
    r->in_gap = 1;
    r->gap_from = r->base + r->at;
    r->sign_len = r->len - r->at < SIGN ? r->len - r->at : SIGN;
    memcpy(r->sign, r->buf + r->at, r->sign_len);
    r->at = scan_from;
}

/* Looks for the end of the damage: 1 entry, 0 nothing now, 2 there are more bytes to look at. */
static int step_gap(struct runlog_reader *r, struct runlog_entry *entry, struct err *e)
{
    size_t pending, found = record_scan(r->buf, r->len, r->at, &pending);
    if (found < r->len) {
        deliver_gap(r, entry, found);
        return 1;
    }
    r->at = pending;
    int rc = fill(r, e);
    return rc > 0 ? 2 : rc;
}

/* ---- logs of other programs ---- */

/* Nothing was read so far, and the first byte is not ours: is it the log of another program?
 * 1 yes, 0 no, 2 not known before more bytes have come. */
static int look_for_foreign(struct runlog_reader *r, struct err *e)
{
    size_t pending, n = r->len - r->at;
    const unsigned char *p = n > 0 ? r->buf + r->at : NULL;
    if (r->has_seq || r->base + r->at > 0 || !p || p[0] == 0xC9 || p[0] == 0)
        return 0;
    int rc = r->is_pipe ? foreign_reader_stream(&r->foreign, p, n, r->at_end, e)
                        : foreign_reader_open(&r->foreign, r->path, e);
    if (rc == DS_EMEM)
        return rc;
    /* a greeting of the far machine may come before records, lines of other text before a log */
    if (rc < 0)
        return r->is_pipe && n < TEXT_LOOK && !r->at_end &&
                       record_scan(r->buf, r->len, r->at, &pending) == r->len
                   ? 2
                   : 0;
    if (r->wants_points)
        foreign_wants_points(r->foreign);
    foreign_limit(r->foreign, r->bound);
    return 1;
}

static int next_foreign(struct runlog_reader *r, struct runlog_entry *entry, struct err *e)
{
    r->taken = 0;
    for (;;) {
        int rc = foreign_next(r->foreign, entry, e);
        if (rc != 0 || !r->is_pipe)
            return rc;
        if (r->len == r->at && (rc = fill(r, e)) < 0)
            return rc;
        if (r->len == r->at && !(r->at_end && !r->is_ended))
            return 0;
        rc = foreign_push(r->foreign, r->buf + r->at, r->len - r->at, r->at_end, e);
        r->is_ended = r->at_end;
        r->at = r->len;
        if (rc < 0)
            return rc;
    }
}

static int step_record(struct runlog_reader *r, struct runlog_entry *entry, struct err *e)
{
    int is_other = look_for_foreign(r, e);
    if (is_other < 0)
        return is_other;
    if (is_other == 1)
        return next_foreign(r, entry, e);
    if (is_other == 2) {
        int more = fill(r, e);
        return more > 0 || (more == 0 && r->at_end) ? 2 : more;
    }
    size_t n = r->len - r->at, pending;
    int64_t whole = n ? record_parse(r->buf + r->at, n, &entry->seq, &entry->body, NULL) : 0;
    if (whole > 0) {
        deliver(r, entry, (size_t)whole);
        return 1;
    }
    if (whole < 0) {
        enter_gap(r, r->at + 1);
        return 2;
    }
    int rc = fill(r, e);
    if (rc != 0 || r->is_behind)
        return rc > 0 ? 2 : rc;
    /* The length itself may be damaged: a whole record after it proves that. */
    n = r->len - r->at;
    size_t found = n > RECORD_OVERHEAD ? record_scan(r->buf, r->len, r->at + 1, &pending) : r->len;
    if (found == r->len)
        return 0;
    enter_gap(r, found);
    return 2;
}

int runlog_next(struct runlog_reader *r, struct runlog_entry *entry, struct err *e)
{
    memset(entry, 0, sizeof *entry);
    if (r->foreign)
        return next_foreign(r, entry, e);
    if (!r->is_pipe && !r->is_behind && r->has_seen && r->at == r->len && !file_moved(r))
        return 0;
    r->taken = 0;
    r->is_behind = 0;
    for (;;) {
        if (r->is_reset) {
            r->is_reset = 0;
            entry->is_gap = entry->is_reset = 1;
            return 1;
        }
        int rc = r->in_gap ? step_gap(r, entry, e) : step_record(r, entry, e);
        if (rc == 2)
            continue;
        if (rc > 0)
            return rc;
        if (rc < 0)
            return err_add(e, rc, "read records of %s", r->path);
        if (r->foreign || r->is_pipe || r->is_behind)
            return 0;
        jump(r, r->base + r->at);
        if (!file_moved(r))
            return 0;
    }
}

int runlog_refuse(const char *path, struct err *e)
{
    unsigned char head[512];
    const char *kind = NULL;
    struct stat st;
    size_t n = 0;
    int fd;
    if (fs_stat(path, &st) == 0 && S_ISREG(st.st_mode) && fs_open_read(&fd, path, NULL) == 0) {
        if (fs_read_some(fd, head, sizeof head, &n, path, NULL) == 0)
            kind = file_kind(head, n);
        fs_close(fd);
    }
    int is_gzip = kind && n > 1 && head[0] == 0x1f && head[1] == 0x8b;
    return err_set(e, DS_EFORMAT, "%s: not a record stream or a log of a known format%s%s%s", path,
                   kind ? ", but " : "", kind ? kind : "",
                   is_gzip ? "; unpack it first: gunzip -k" : "");
}
