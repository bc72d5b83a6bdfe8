#include "t.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"

static char path[900];

static const char *in_tmp(const char *dir, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

T(fs_file_goes_out_and_comes_back)
{
    struct err e = {0};
    struct str got = {0};
    const char *f = in_tmp(t_tmpdir(), "f");
    t_ok(fs_write_file(f, "a\0b", 3, &e), &e);
    t_ok(fs_read_file(&got, f, 3, &e), &e);
    t_true(got.len == 3 && memcmp(got.p, "a\0b", 4) == 0);
    t_fails(fs_read_file(&got, f, 2, &e), &e, DS_ERANGE, "has 3 bytes, the limit is 2");
    t_eq(got.len, 3); /* untouched */
    t_ok(fs_write_file(f, "", 0, &e), &e);
    t_ok(fs_read_file(&got, f, 0, &e), &e);
    t_true(got.len == 0 && got.p && got.p[0] == '\0');
    str_release(&got);
}

T(fs_reads_what_has_no_size_up_to_the_cap)
{
    struct err e = {0};
    struct str got = {0};
    char handed[32];
    int fd = open("/dev/zero", O_RDONLY | O_CLOEXEC);
    snprintf(handed, sizeof handed, "/dev/fd/%d", fd);
    t_fails(fs_read_file(&got, handed, 100000, &e), &e, DS_ERANGE, "100000");
    close(fd);
    t_fails(fs_read_file(&got, "/dev/zero", 100000, &e), &e, DS_EIO, "is a device");
    t_fails(fs_read_file(&got, "/", 10, &e), &e, DS_EIO, "directory");
    t_fails(fs_read_file(&got, "/nonexistent", 10, &e), &e, DS_EIO, "No such file");
    t_ok(fs_read_file(&got, "/dev/null", 0, &e), &e);
    str_release(&got);
}

T(fs_writes_to_devices_without_a_temporary)
{
    struct err e = {0};
    t_ok(fs_write_file("/dev/null", "x", 1, &e), &e);
    t_fails(fs_write_file("/dev/full", "x", 1, &e), &e, DS_EIO, "No space");
}

T(fs_opens_no_fifo_and_waits_for_none)
{
    struct err e = {0};
    struct str got = {0};
    int fd = -1;
    const char *f = in_tmp(t_tmpdir(), "fifo");
    t_eq(mkfifo(f, 0600), 0);
    t_fails(fs_open_read(&fd, f, &e), &e, DS_EIO, "fifo: is a FIFO, expected a regular file");
    t_fails(fs_read_file(&got, f, 10, &e), &e, DS_EIO, "is a FIFO");
    t_fails(fs_check_regular(f, &e), &e, DS_EIO, "is a FIFO");
    t_fails(fs_open_write(&fd, f, O_APPEND, &e), &e, DS_EIO, "is a FIFO that nobody reads");
    t_fails(fs_write_file(f, "x", 1, &e), &e, DS_EIO, "is a FIFO that nobody reads");
    t_eq(fd, -1);
    t_ok(fs_check_regular("/nonexistent", &e), &e); /* whoever opens it says so */
    int reader = open(f, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    t_ok(fs_write_file(f, "x", 1, &e), &e);
    t_ok(fs_open_write(&fd, f, 0, &e), &e);
    t_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0); /* writing may wait for who reads */
    close(fd);
    close(reader);
}

T(fs_reads_a_pipe_that_was_handed_over_and_waits_for_its_writer)
{
    struct err e = {0};
    struct str got = {0};
    char handed[40];
    int ends[2];
    t_eq(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        usleep(50000);
        _exit(write(ends[1], "late", 4) != 4);
    }
    close(ends[1]);
    snprintf(handed, sizeof handed, "/proc/self/fd/%d", ends[0]);
    t_ok(fs_read_file(&got, handed, 10, &e), &e);
    t_str(str_text(&got), "late");
    close(ends[0]);
    t_fails(fs_read_file(&got, "/dev/fd/1x", 10, &e), &e, DS_EIO, "");
    str_release(&got);
}

/* --- a table that fails the n-th call ------------------------------------------------------ */

static int call, fail_from, fail_errno, persistent, short_writes;

static int fails(void)
{
    call++;
    if (persistent ? call >= fail_from : call == fail_from) {
        errno = fail_errno;
        return 1;
    }
    return 0;
}

static int x_open(const char *p, int flags, mode_t mode)
{
    return fails() ? -1 : open(p, flags, mode);
}
static ssize_t x_read(int fd, void *b, size_t n)
{
    return fails() ? -1 : read(fd, b, short_writes ? 1 : n);
}
static ssize_t x_write(int fd, const void *b, size_t n)
{
    return fails() ? -1 : write(fd, b, short_writes ? 1 : n);
}
static int x_fsync(int fd)
{
    return fails() ? -1 : fsync(fd);
}
static int x_close(int fd)
{
    int bad = fails(), number = errno;
    close(fd);
    errno = number;
    return bad ? -1 : 0;
}
static int x_rename(const char *a, const char *b)
{
    return fails() ? -1 : rename(a, b);
}
static int x_mkdir(const char *p, mode_t mode)
{
    return fails() ? -1 : mkdir(p, mode);
}
static const struct fs_ops failing = {x_open,  x_read,   x_write, x_fsync, x_fsync,
                                      x_close, x_rename, x_mkdir, unlink};

static void expect_file(const char *f, const char *want, const char *other)
{
    struct err e = {0};
    struct str got = {0};
    t_ok(fs_read_file(&got, f, 100, &e), &e);
    t_true(strcmp(str_text(&got), want) == 0 || (other && strcmp(str_text(&got), other) == 0));
    str_release(&got);
}

T(fs_write_failing_anywhere_leaves_the_old_or_the_new_file_and_no_litter)
{
    static const int numbers[] = {ENOSPC, EIO, EDQUOT, EROFS, EACCES, EMFILE};
    struct err e = {0};
    const char *dir = t_tmpdir();
    char f[600];
    snprintf(f, sizeof f, "%s/f", dir);
    for (size_t k = 0; k < 2 * sizeof numbers / sizeof *numbers; k++) {
        int done = 0;
        for (fail_from = 1; !done; fail_from++) {
            char **names = NULL;
            size_t n = 0;
            fs_ops_set(NULL);
            t_ok(fs_write_file(f, "old", 3, &e), &e);
            call = 0;
            fail_errno = numbers[k / 2];
            persistent = (int)(k % 2);
            fs_ops_set(&failing);
            int rc = fs_write_file(f, "new content", 11, &e);
            done = call < fail_from;
            fs_ops_set(NULL);
            /* Only the sync of the directory comes after the rename. */
            expect_file(f, rc == 0 ? "new content" : "old", rc == 0 ? NULL : "new content");
            if (rc < 0)
                t_true(rc == DS_EIO && strstr(e.text, strerror(fail_errno)));
            t_ok(fs_list(dir, &names, &n, &e), &e);
            t_eq(n, 1);
            fs_list_free(names, n);
        }
        t_true(fail_from > 6);
    }
}

T(fs_goes_on_after_eintr_and_short_transfers)
{
    struct err e = {0};
    struct str got = {0};
    const char *f = in_tmp(t_tmpdir(), "f");
    short_writes = 1;
    fail_errno = EINTR;
    for (fail_from = 1; fail_from < 20; fail_from++) {
        call = persistent = 0;
        fs_ops_set(&failing);
        t_ok(fs_write_file(f, "twelve bytes", 12, &e), &e);
        t_ok(fs_read_file(&got, f, 12, &e), &e);
        t_str(str_text(&got), "twelve bytes");
    }
    fs_ops_set(NULL);
    str_release(&got);
}

T(fs_directory_without_fsync_is_no_error)
{
    struct err e = {0};
    const char *dir = t_tmpdir();
    fail_errno = EINVAL;
    call = persistent = 0;
    fail_from = 2; /* open, fsync */
    fs_ops_set(&failing);
    t_ok(fs_sync_dir(dir, &e), &e);
    fail_errno = EIO;
    call = 0;
    t_fails(fs_sync_dir(dir, &e), &e, DS_EIO, "fsync directory");
    fs_ops_set(NULL);
}

T(fs_faults_come_from_the_environment)
{
    struct err e = {0};
    const char *f = in_tmp(t_tmpdir(), "f");
    setenv("DEPTHSCOPE_FAIL", "write:2+=ENOSPC", 1);
    t_ok(fs_write_file(f, "old", 3, &e), &e);
    t_fails(fs_write_file(f, "new", 3, &e), &e, DS_EIO, "No space left");
    expect_file(f, "old", NULL);
}

T(fs_mkdirs_and_remove_tree)
{
    struct err e = {0};
    const char *dir = t_tmpdir();
    char keep[600], link_path[600];
    t_ok(fs_mkdirs(in_tmp(dir, "a/b//c/"), &e), &e);
    t_ok(fs_mkdirs(path, &e), &e);
    t_true(fs_is_dir(in_tmp(dir, "a/b/c")));
    t_ok(fs_write_file(in_tmp(dir, "a/b/f"), "x", 1, &e), &e);
    t_fails(fs_mkdirs(in_tmp(dir, "a/b/f/g"), &e), &e, DS_EIO, "/a/b/f");
    t_fails(fs_mkdirs("", &e), &e, DS_EIO, "directory");
    /* A link inside the tree is removed, what it points to stays. */
    snprintf(keep, sizeof keep, "%s/keep", dir);
    t_ok(fs_mkdirs(keep, &e), &e);
    t_ok(fs_write_file(in_tmp(keep, "precious"), "x", 1, &e), &e);
    snprintf(link_path, sizeof link_path, "%s/a/b/link", dir);
    t_eq(symlink(keep, link_path), 0);
    t_ok(fs_remove_tree(in_tmp(dir, "a"), &e), &e);
    t_true(!fs_exists(in_tmp(dir, "a")) && fs_exists(in_tmp(keep, "precious")));
    t_ok(fs_remove_tree(in_tmp(dir, "a"), &e), &e);
}

T(fs_list_is_sorted)
{
    struct err e = {0};
    const char *dir = t_tmpdir();
    char **names = NULL;
    size_t n = 99;
    t_ok(fs_list(dir, &names, &n, &e), &e);
    t_eq(n, 0);
    fs_list_free(names, n);
    for (const char *const *p = (const char *const[]){"b", "a", ".hidden", "c", NULL}; *p; p++)
        t_ok(fs_write_file(in_tmp(dir, *p), "", 0, &e), &e);
    t_ok(fs_list(dir, &names, &n, &e), &e);
    t_eq(n, 4);
    t_str(names[0], ".hidden");
    t_str(names[1], "a");
    t_str(names[3], "c");
    fs_list_free(names, n);
    for (uint64_t at = 1; at <= 5; at++) {
        mem_fail_at(mem_calls() + at, 0);
        t_fails(fs_list(dir, &names, &n, &e), &e, DS_EMEM, "out of memory");
    }
    mem_fail_at(0, 0);
    t_fails(fs_list("/nonexistent", &names, &n, &e), &e, DS_EIO, "/nonexistent");
}

T(fs_join_knows_slashes_and_limits)
{
    char b[8];
    struct err e = {0};
    t_ok(fs_join(b, sizeof b, "a", "b", &e), &e);
    t_str(b, "a/b");
    t_ok(fs_join(b, sizeof b, "a/", "b", &e), &e);
    t_str(b, "a/b");
    t_ok(fs_join(b, sizeof b, "", "b", &e), &e);
    t_str(b, "b");
    t_fails(fs_join(b, sizeof b, "abcd", "efg", &e), &e, DS_ERANGE, "too long");
    t_ok(fs_join(b, sizeof b, "abc", "efg", &e), &e);
}

T(fs_name_ok_refuses_paths_and_tricks)
{
    static const char *const bad[] = {"",    ".",  "..",  "../x", "/etc/x",   "a/b",
                                      "-rf", ".a", "a b", "a\n",  "\xc3\xa9", "a\x1b"};
    char large[80];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        t_truef(!fs_name_ok(bad[i]), "%s", bad[i]);
    memset(large, 'x', sizeof large);
    large[64] = '\0';
    t_true(fs_name_ok(large) && fs_name_ok("run-1_a.B"));
    large[64] = 'x';
    large[65] = '\0';
    t_true(!fs_name_ok(large));
}

T(fs_map_gives_the_bytes)
{
    struct err e = {0};
    struct fs_map m = {0};
    const char *dir = t_tmpdir();
    t_ok(fs_write_file(in_tmp(dir, "f"), "abc", 3, &e), &e);
    t_ok(fs_map_open(&m, path, &e), &e);
    t_true(m.n == 3 && memcmp(m.p, "abc", 3) == 0 && m.fd >= 0);
    fs_map_close(&m);
    fs_map_close(&m);
    t_ok(fs_write_file(path, "", 0, &e), &e);
    t_ok(fs_map_open(&m, path, &e), &e);
    t_true(m.n == 0 && m.p);
    fs_map_close(&m);
    t_fails(fs_map_open(&m, dir, &e), &e, DS_EIO, "is a directory, expected a regular file");
    t_true(fs_free_bytes(dir) > 0);
    t_eq(fs_free_bytes("/nonexistent"), 0);
}
