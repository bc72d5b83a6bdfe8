/* Run logs: appending, following, torn tails and damage. */
#include "t.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "io/runlog.h"

static char path[512];

static const char *log_path(void)
{
    snprintf(path, sizeof path, "%s/log.mp", t_tmpdir());
    return path;
}

static void append(struct runlog_writer *w, int64_t step)
{
    struct err e = {0};
    struct record *r = record_new();
    record_begin(r, "metric", step, 1);
    record_num(r, "loss", 1.0 / (double)(step + 1));
    t_ok(runlog_append(w, r, &e), &e);
    record_free(r);
}

static void write_log(const char *p, int n)
{
    struct runlog_writer *w;
    struct err e = {0};
    t_ok(runlog_writer_open(&w, p, &e), &e);
    for (int i = 0; i < n; i++)
        append(w, i);
    runlog_writer_close(w);
}

struct seen {
    int records, gaps, resets, repeats;
    uint64_t gap_bytes, lost, last_seq;
    int64_t last_step;
};

static void take_all(struct runlog_reader *r, struct seen *s)
{
    struct runlog_entry entry;
    struct err e = {0};
    int rc;
    while ((rc = runlog_next(r, &entry, &e)) > 0) {
        s->lost += entry.lost;
        if (entry.is_reset) {
            s->resets++;
        } else if (entry.is_gap) {
            s->gaps++;
            s->gap_bytes += entry.gap_bytes;
        } else if (entry.is_repeat) {
            s->repeats++;
        } else {
            s->records++;
            s->last_seq = entry.seq;
            s->last_step = value_int(value_get(entry.body, "step"), -1);
        }
    }
    t_ok(rc, &e);
}

static struct seen read_all(const char *p)
{
    struct runlog_reader *r;
    struct err e = {0};
    struct seen s = {0};
    t_ok(runlog_reader_open(&r, p, &e), &e);
    take_all(r, &s);
    runlog_reader_close(r);
    return s;
}

static void slurp(struct str *s, const char *p)
{
    struct err e = {0};
    t_ok(fs_read_file(s, p, 1 << 26, &e), &e);
}

static void put(const char *p, const void *bytes, size_t n, int flags)
{
    int fd = open(p, O_WRONLY | O_CREAT | flags, 0600);
    t_true(fd >= 0 && write(fd, bytes, n) == (ssize_t)n);
    close(fd);
}

T(what_is_appended_is_read_in_order)
{
    const char *p = log_path();
    write_log(p, 100);
    struct seen s = read_all(p);
    t_eq(s.records, 100);
    t_eq(s.last_seq, 100);
    t_eq(s.gaps + (int)s.lost, 0);
    write_log(p, 1);
    s = read_all(p);
    t_eq(s.records, 101);
    t_eq(s.last_seq, 101);
    t_eq(s.lost, 0);
}

T(tail_truncated_at_any_byte_keeps_all_earlier_records) /* C5 */
{
    const char *p = log_path();
    struct str all = {0};
    write_log(p, 6);
    slurp(&all, p);
    size_t one = all.len / 6;
    for (size_t n = all.len - 3 * one; n < all.len; n++) {
        put(p, all.p, n, O_TRUNC);
        struct runlog_reader *r;
        struct err e = {0};
        struct seen s = {0};
        t_ok(runlog_reader_open(&r, p, &e), &e);
        take_all(r, &s);
        t_eq(s.records, n / one);
        t_eq(s.gaps, 0);
        t_eq(runlog_reader_tail(r), n % one);
        write_log(p, 1); /* the next writer truncates the tail; the waiting reader continues */
        take_all(r, &s);
        t_eq(s.records, n / one + 1);
        t_eq(s.gaps, 0);
        t_eq(s.resets, 0);
        t_eq(s.last_seq, n / one + 1);
        runlog_reader_close(r);
    }
    str_release(&all);
}

T(damage_in_the_middle_is_a_gap_and_reading_resumes) /* C8 */
{
    const char *p = log_path();
    struct str all = {0};
    write_log(p, 9);
    slurp(&all, p);
    size_t one = all.len / 9;
    memset(all.p + 3 * one + 5, 0x5a, 2 * one);
    put(p, all.p, all.len, O_TRUNC);
    struct seen s = read_all(p);
    t_eq(s.records, 6);
    t_eq(s.gaps, 1);
    t_eq(s.gap_bytes, 3 * one);
    t_eq(s.lost, 3);
    str_release(&all);
}

T(every_byte_damaged_costs_one_record)
{
    const char *p = log_path();
    struct str all = {0};
    write_log(p, 3);
    slurp(&all, p);
    size_t one = all.len / 3;
    for (size_t i = one; i < 2 * one; i++) {
        all.p[i] ^= 0x10;
        put(p, all.p, all.len, O_TRUNC);
        struct seen s = read_all(p);
        t_eq(s.records, 2);
        t_eq(s.last_seq, 3);
        t_eq(s.lost, 1);
        t_eq(s.gap_bytes, one);
        all.p[i] ^= 0x10;
    }
    str_release(&all);
}

T(zero_tail_is_the_end) /* C7 */
{
    const char *p = log_path();
    static char zeros[1 << 20];
    write_log(p, 3);
    for (size_t n = 4096; n <= sizeof zeros; n *= 256) {
        put(p, zeros, n, O_APPEND);
        struct seen s = read_all(p);
        t_eq(s.gaps, 0);
        write_log(p, 1);
        s = read_all(p);
        t_eq(s.gaps, 0);
        t_eq(s.last_seq, s.records);
    }
    t_eq(read_all(p).records, 5);
}

static off_t size_of(const char *p)
{
    struct stat st;
    t_eq(stat(p, &st), 0);
    return st.st_size;
}

/* A sparse terabyte of zeros; skipped where the file system has no sparse files. */
static void add_hole(const char *p)
{
    off_t size = size_of(p);
    int fd = open(p, O_RDWR);
    t_true(fd >= 0);
    if (ftruncate(fd, size + ((off_t)1 << 40)) != 0 ||
        fs_next_data(fd, (uint64_t)size + (1 << 20), (uint64_t)size + (2 << 20)) !=
            (uint64_t)size + (2 << 20))
        t_skip("no sparse files of a terabyte here");
    close(fd);
}

T(a_terabyte_of_zeros_is_the_end_for_reader_and_writer)
{
    const char *p = log_path();
    char broken[600];
    write_log(p, 3);
    off_t whole = size_of(p);
    add_hole(p);
    struct seen s = read_all(p);
    t_eq(s.records, 3);
    t_eq(s.gaps, 0);
    write_log(p, 1);
    t_true(size_of(p) < 2 * whole);
    put(p, "\xc9\0\0\0\x60\x44torn", 10, O_APPEND); /* a partial record, then unwritten zeros */
    add_hole(p);
    s = read_all(p);
    t_eq(s.records, 4);
    t_eq(s.gaps, 0);
    off_t before = whole / 3 * 4;
    write_log(p, 1);
    s = read_all(p);
    t_eq(s.records, 5);
    t_eq(s.gaps, 0);
    snprintf(broken, sizeof broken, "%s.broken-%lld", p, (long long)before);
    t_true(!fs_exists(broken));
}

T(damage_with_zeros_after_it_is_kept_without_the_zeros)
{
    const char *p = log_path();
    char broken[600];
    struct str kept = {0};
    write_log(p, 2);
    off_t whole = size_of(p);
    put(p, "garbage!", 8, O_APPEND);
    add_hole(p);
    write_log(p, 1);
    t_eq(read_all(p).records, 3);
    snprintf(broken, sizeof broken, "%s.broken-%lld", p, (long long)whole);
    slurp(&kept, broken);
    t_str(str_text(&kept), "garbage!");
    str_release(&kept);
}

T(records_after_a_hole_are_found_and_the_hole_is_a_gap)
{
    const char *p = log_path();
    struct str all = {0};
    write_log(p, 4);
    slurp(&all, p);
    put(p, all.p, all.len / 2, O_TRUNC);
    add_hole(p);
    put(p, all.p + all.len / 2, all.len - all.len / 2, O_APPEND);
    struct seen s = read_all(p);
    t_eq(s.records, 4);
    t_eq(s.gaps, 1);
    t_eq(s.gap_bytes, (uint64_t)1 << 40);
    str_release(&all);
}

T(zeros_that_a_writer_fills_later_are_not_damage)
{
    const char *p = log_path();
    struct str all = {0};
    struct runlog_reader *r;
    struct err e = {0};
    struct seen s = {0};
    write_log(p, 4);
    slurp(&all, p);
    put(p, all.p, all.len / 2, O_TRUNC);
    t_eq(truncate(p, 1 << 20), 0);
    t_ok(runlog_reader_open(&r, p, &e), &e);
    take_all(r, &s);
    t_eq(s.records, 2);
    int fd = open(p, O_WRONLY);
    t_eq(pwrite(fd, all.p + all.len / 2, all.len / 2, (off_t)(all.len / 2)),
         (ssize_t)(all.len / 2));
    close(fd);
    take_all(r, &s);
    t_eq(s.records, 4);
    t_eq(s.gaps, 0);
    runlog_reader_close(r);
    str_release(&all);
}

T(a_bounded_reader_pauses_in_noise_and_continues)
{
    enum { NOISE = 12 << 20, BOUND = 1 << 20 };
    const char *p = log_path();
    static char noise[NOISE];
    struct runlog_reader *r;
    struct runlog_entry entry;
    struct str all = {0};
    struct err e = {0};
    int pauses = 0, records = 0, rc;
    memset(noise, 'x', sizeof noise);
    write_log(p, 2);
    slurp(&all, p);
    put(p, all.p, all.len / 2, O_TRUNC);
    put(p, noise, sizeof noise, O_APPEND);
    put(p, all.p + all.len / 2, all.len / 2, O_APPEND);
    t_ok(runlog_reader_open(&r, p, &e), &e);
    runlog_reader_limit(r, BOUND);
    while ((rc = runlog_next(r, &entry, &e)) > 0 || runlog_reader_is_behind(r)) {
        uint64_t at = runlog_reader_position(r);
        pauses += rc == 0;
        records += rc > 0 && !entry.is_gap;
        t_true(rc > 0 || at <= (uint64_t)(pauses + 2) * BOUND);
    }
    t_ok(rc, &e);
    t_eq(records, 2);
    t_true(pauses >= NOISE / BOUND - 2);
    runlog_reader_close(r);
    str_release(&all);
}

T(a_record_of_16_mebibytes_passes_a_small_bound)
{
    const char *p = log_path();
    static char big[RECORD_MAX - 200];
    struct runlog_writer *w;
    struct runlog_reader *r;
    struct runlog_entry entry;
    struct err e = {0};
    struct record *rec = record_new();
    int records = 0, pauses = 0, rc;
    /* a complete record in its body: only a reader that gives up too early finds it */
    write_log(p, 1);
    struct str inner = {0};
    slurp(&inner, p);
    memcpy(big + 1000, inner.p, inner.len);
    t_ok(runlog_writer_open(&w, p, &e), &e);
    record_begin(rec, "sample", 1, 1);
    record_bytes(rec, "x", big, sizeof big);
    t_ok(runlog_append(w, rec, &e), &e);
    runlog_writer_close(w);
    t_ok(runlog_reader_open(&r, p, &e), &e);
    runlog_reader_limit(r, 1 << 20);
    while ((rc = runlog_next(r, &entry, &e)) > 0 || runlog_reader_is_behind(r)) {
        records += rc > 0 && !entry.is_gap;
        t_true(rc == 0 || !entry.is_gap);
        pauses += rc == 0;
    }
    t_ok(rc, &e);
    t_eq(records, 2);
    t_true(pauses > 0);
    runlog_reader_close(r);
    record_free(rec);
    str_release(&inner);
}

T(damaged_tail_is_saved_before_truncation)
{
    const char *p = log_path();
    char broken[600];
    struct str kept = {0};
    struct stat st;
    write_log(p, 2);
    t_true(stat(p, &st) == 0);
    put(p, "garbage!", 8, O_APPEND);
    write_log(p, 1);
    t_eq(read_all(p).records, 3);
    snprintf(broken, sizeof broken, "%s.broken-%lld", p, (long long)st.st_size);
    slurp(&kept, broken);
    t_str(kept.p, "garbage!");
    str_release(&kept);
}

T(a_file_of_another_type_is_never_truncated)
{
    const char *p = log_path();
    struct runlog_writer *w = NULL;
    struct err e = {0};
    put(p, "my thesis", 9, 0);
    t_fails(runlog_writer_open(&w, p, &e), &e, DS_EFORMAT, "not a record stream; move the file");
    struct str s = {0};
    slurp(&s, p);
    t_str(s.p, "my thesis");
    t_true(w == NULL);
    str_release(&s);
}

/* Their readers take such a file to its end, behind which a record would never be found. */
T(nothing_is_written_to_the_log_of_another_program)
{
    static const struct {
        const char *bytes, *title;
        size_t n;
    } log[] = {
        {":W&B\xe1\xbe\0", "Weights & Biases", 7},
        {"{\"step\":1,\"loss\":2.5}\n{\"step\":2,\"loss\":2.25}\n", "JSON", 46},
        {"step,loss\n1,2.5\n2,2.25\n", "CSV", 23},
    };
    const char *p = log_path();
    for (size_t i = 0; i < DS_LEN(log); i++) {
        struct runlog_writer *w = NULL;
        struct err e = {0};
        struct str s = {0};
        put(p, log[i].bytes, log[i].n, O_TRUNC);
        t_fails(runlog_writer_open(&w, p, &e), &e, DS_EFORMAT, log[i].title);
        t_truef(strstr(e.text, "a log of another program") != NULL, "%s", e.text);
        slurp(&s, p);
        t_true(w == NULL && s.len == log[i].n && memcmp(s.p, log[i].bytes, s.len) == 0);
        str_release(&s);
    }
}

/* A disk that lost power may keep part of the first record, or none of its first sector. */
T(a_log_that_a_disk_hurt_before_its_first_sync_is_kept_aside_and_begun_again)
{
    for (int zeros = 0; zeros < 2; zeros++) {
        const char *p = log_path();
        char broken[600];
        struct str was = {0}, kept = {0};
        write_log(p, 1);
        slurp(&was, p);
        if (zeros) {
            str_reset(&was);
            for (int i = 0; i < 512; i++)
                str_add_bytes(&was, "", 1);
            str_add(&was, "the second sector");
        } else {
            was.p[was.len - 1] ^= 1;
        }
        put(p, was.p, was.len, O_TRUNC);
        write_log(p, 2);
        t_eq(read_all(p).records, 2);
        snprintf(broken, sizeof broken, "%s.broken-0", p);
        slurp(&kept, broken);
        t_true(kept.len == was.len && memcmp(kept.p, was.p, was.len) == 0);
        str_release(&was);
        str_release(&kept);
    }
}

T(repeated_and_swapped_records_are_detected_by_seq) /* C9 */
{
    const char *p = log_path();
    struct str all = {0}, mixed = {0};
    write_log(p, 6);
    slurp(&all, p);
    size_t one = all.len / 6;
    static const int order[] = {0, 1, 1, 3, 2, 4, 5};
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++)
        str_add_bytes(&mixed, all.p + (size_t)order[i] * one, one);
    put(p, mixed.p, mixed.len, O_TRUNC);
    struct seen s = read_all(p);
    t_eq(s.records, 5);
    t_eq(s.repeats, 2);
    t_eq(s.lost, 1);
    str_release(&all);
    str_release(&mixed);
}

T(second_writer_is_refused_and_the_first_is_named) /* C10 */
{
    const char *p = log_path();
    struct runlog_writer *w, *second = NULL;
    struct err e = {0};
    t_eq(runlog_is_locked(p), 0);
    t_ok(runlog_writer_open(&w, p, &e), &e);
    t_eq(runlog_is_locked(p), 1);
    t_fails(runlog_writer_open(&second, p, &e), &e, DS_EBUSY, "is being written by");
    runlog_writer_close(w);
    t_eq(runlog_is_locked(p), 0);
}

/* Between two looks it was truncated and has grown to its old size, or beyond it. */
T(a_file_rewritten_to_its_old_length_is_read_from_the_start)
{
    for (int more = 0; more < 2; more++) {
        const char *p = log_path();
        struct runlog_reader *r;
        struct runlog_writer *w;
        struct err e = {0};
        struct seen s = {0};
        unlink(p);
        write_log(p, 5);
        t_ok(runlog_reader_open(&r, p, &e), &e);
        take_all(r, &s);
        t_eq(truncate(p, 0), 0);
        t_ok(runlog_writer_open(&w, p, &e), &e);
        for (int i = 0; i < 5 + more; i++)
            append(w, 50 + i);
        runlog_writer_close(w);
        take_all(r, &s);
        t_eq(s.resets, 1);
        t_eq(s.records, 10 + more);
        t_eq(s.last_step, 54 + more);
        t_eq(s.gaps, 0);
        runlog_reader_close(r);
    }
}

T(a_replaced_or_shrunk_file_is_read_from_the_start) /* C11 */
{
    const char *p = log_path();
    char other[600];
    struct runlog_reader *r;
    struct err e = {0};
    struct seen s = {0};
    write_log(p, 5);
    t_ok(runlog_reader_open(&r, p, &e), &e);
    take_all(r, &s);
    t_eq(s.records, 5);
    snprintf(other, sizeof other, "%s.new", p);
    write_log(other, 2);
    t_true(rename(other, p) == 0);
    take_all(r, &s);
    t_eq(s.resets, 1);
    t_eq(s.records, 7);
    t_true(truncate(p, 0) == 0);
    take_all(r, &s);
    t_eq(s.resets, 2);
    write_log(p, 1);
    take_all(r, &s);
    t_eq(s.records, 8);
    t_true(unlink(p) == 0);
    take_all(r, &s);
    t_eq(s.records, 8);
    runlog_reader_close(r);
}

T(a_reader_waits_for_a_partial_record) /* C13 */
{
    const char *p = log_path();
    struct str all = {0};
    struct runlog_reader *r;
    struct err e = {0};
    struct seen s = {0};
    write_log(p, 2);
    slurp(&all, p);
    put(p, all.p, all.len - 7, O_TRUNC);
    t_ok(runlog_reader_open(&r, p, &e), &e);
    take_all(r, &s);
    t_eq(s.records, 1);
    for (int i = 0; i < 1000; i++)
        take_all(r, &s);
    t_eq(s.records, 1);
    put(p, all.p + all.len - 7, 7, O_APPEND);
    take_all(r, &s);
    t_eq(s.records, 2);
    t_eq(s.gaps, 0);
    runlog_reader_close(r);
    str_release(&all);
}

T(damaged_tail_then_more_records_is_a_gap)
{
    const char *p = log_path();
    struct str all = {0};
    struct runlog_reader *r;
    struct err e = {0};
    struct seen s = {0};
    write_log(p, 4);
    slurp(&all, p);
    size_t one = all.len / 4;
    all.p[one + 30] ^= 1;
    put(p, all.p, 2 * one, O_TRUNC);
    t_ok(runlog_reader_open(&r, p, &e), &e);
    take_all(r, &s);
    t_eq(s.records, 1);
    t_eq(s.gaps, 0);
    t_eq(runlog_reader_tail(r), one);
    put(p, all.p + 2 * one, one / 2, O_APPEND);
    take_all(r, &s);
    put(p, all.p + 2 * one + one / 2, 2 * one - one / 2, O_APPEND);
    take_all(r, &s);
    t_eq(s.records, 3);
    t_eq(s.gaps, 1);
    t_eq(s.lost, 1);
    runlog_reader_close(r);
    str_release(&all);
}

T(a_pipe_is_read_without_blocking)
{
    const char *p = log_path();
    struct str all = {0};
    int fd[2];
    struct runlog_reader *r;
    struct err e = {0};
    struct seen s = {0};
    write_log(p, 3);
    slurp(&all, p);
    t_true(pipe(fd) == 0 && dup2(fd[0], STDIN_FILENO) == 0);
    close(fd[0]);
    t_ok(runlog_reader_open(&r, "-", &e), &e);
    t_true(runlog_reader_fd(r) > 2);
    take_all(r, &s);
    for (size_t i = 0; i < all.len; i++) {
        t_true(write(fd[1], all.p + i, 1) == 1);
        take_all(r, &s);
    }
    t_eq(s.records, 3);
    t_eq(runlog_reader_at_end(r), 0);
    t_true(write(fd[1], all.p, 10) == 10);
    close(fd[1]);
    take_all(r, &s);
    t_eq(runlog_reader_at_end(r), 1);
    t_eq(runlog_reader_tail(r), 10);
    t_eq(s.gaps, 0);
    runlog_reader_close(r);
    str_release(&all);
}

T(directories_and_absent_files_are_named_in_the_error)
{
    struct runlog_reader *r = NULL;
    struct runlog_writer *w = NULL;
    struct err e = {0};
    t_fails(runlog_reader_open(&r, t_tmpdir(), &e), &e, DS_EIO, "directory");
    t_fails(runlog_reader_open(&r, "/nonexistent/log.mp", &e), &e, DS_EIO, "/nonexistent/log.mp");
    t_fails(runlog_writer_open(&w, "/nonexistent/log.mp", &e), &e, DS_EIO, "/nonexistent/log.mp");
    t_fails(runlog_writer_open(&w, "/dev/null", &e), &e, DS_EIO, "regular");
    t_true(!r && !w);
}

/* A large record is often cut by SIGKILL; whatever remains must read as whole records. */
T_SECONDS(killed_writers_leave_only_a_torn_tail, 60)
{
    const char *p = log_path();
    int torn = 0;
    uint64_t last = 0;
    static char payload[60000];
    for (int round = 0; round < 40; round++) {
        pid_t pid = fork();
        t_true(pid >= 0);
        if (pid == 0) {
            struct runlog_writer *w;
            struct record *r = record_new();
            if (runlog_writer_open(&w, p, NULL) < 0)
                _exit(1);
            for (int i = 0;; i++) {
                record_begin(r, "probe", i, 0);
                record_bytes(r, "bin", payload, sizeof payload);
                if (runlog_append(w, r, NULL) < 0)
                    _exit(1);
            }
        }
        usleep(1000 + 331 * (unsigned)round);
        kill(pid, SIGKILL);
        waitpid(pid, NULL, 0);
        if (!fs_exists(p))
            continue;
        struct runlog_reader *r;
        struct seen s = {0};
        struct err e = {0};
        t_ok(runlog_reader_open(&r, p, &e), &e);
        take_all(r, &s);
        t_eq(s.gaps + s.repeats, 0);
        t_eq(s.lost, 0);
        t_true(s.last_seq >= last);
        last = s.last_seq;
        torn += runlog_reader_tail(r) > 0;
        runlog_reader_close(r);
        if (last > 1000) {
            unlink(p);
            last = 0;
        }
    }
    printf("  %d of 40 killed writers left a torn tail\n", torn);
}
