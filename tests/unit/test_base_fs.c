/* File operations, their failures, unfinished files and held directories. */
#include "t.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"

static char path[900];

static const char *in_tmp(const char *dir, const char *name)
{
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

T(fs_written_file_reads_back)
{
    struct err e = {0};
    struct str got = {0};
    const char *f = in_tmp(t_tmpdir(), "f");
    t_ok(fs_write_file(f, "a\0b", 3, &e), &e);
    t_ok(fs_read_file(&got, f, 3, &e), &e);
    t_true(got.len == 3 && memcmp(got.p, "a\0b", 4) == 0);
    t_fails(fs_read_file(&got, f, 2, &e), &e, DS_ERANGE, "3 bytes, must be at most 2");
    t_eq(got.len, 3); /* untouched */
    t_ok(fs_write_file(f, "", 0, &e), &e);
    t_ok(fs_read_file(&got, f, 0, &e), &e);
    t_true(got.len == 0 && got.p && got.p[0] == '\0');
    str_release(&got);
}

T(fs_reads_files_of_unknown_size_up_to_the_cap)
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

/* -o /dev/stdout > FILE and >> FILE: the name is a link in /dev, which root could replace. */
T(fs_writes_to_the_file_that_a_stream_was_redirected_to)
{
    struct err e = {0};
    struct fs_new new;
    struct str got = {0};
    char name[2][40];
    const char *f = in_tmp(t_tmpdir(), "redirected");
    int fd = open(f, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    snprintf(name[0], sizeof name[0], "/dev/fd/%d", fd);
    snprintf(name[1], sizeof name[1], "/proc/self/fd/%d", fd);
    t_eq(write(fd, "before ", 7), 7);
    for (int i = 0; i < 2; i++) {
        t_eq(fs_stream_fd(name[i]), fd);
        t_ok(fs_write_file(name[i], "x", 1, &e), &e);
        t_fails(fs_new_open(&new, name[i], &e), &e, DS_EIO, "expected a file name");
    }
    t_ok(fs_read_file(&got, f, 100, &e), &e);
    t_str(str_text(&got), "before xx");
    t_eq(fs_stream_fd("/dev/stdout"), 1);
    t_eq(fs_stream_fd("-"), 1);
    t_eq(fs_stream_fd("./-"), -1);
    t_eq(fs_stream_fd("/dev/stderr"), 2);
    t_eq(fs_stream_fd("/dev/stdin"), -1);
    close(fd);
    t_fails(fs_write_file(name[0], "x", 1, &e), &e, DS_EIO, "Bad file descriptor");
    str_release(&got);
}

T(fs_never_opens_or_blocks_on_a_fifo)
{
    struct err e = {0};
    struct str got = {0};
    int fd = -1;
    const char *f = in_tmp(t_tmpdir(), "fifo");
    t_eq(mkfifo(f, 0600), 0);
    t_fails(fs_open_read(&fd, f, &e), &e, DS_EIO, "fifo: is a FIFO, expected a regular file");
    t_fails(fs_read_file(&got, f, 10, &e), &e, DS_EIO, "is a FIFO");
    t_fails(fs_check_regular(f, &e), &e, DS_EIO, "is a FIFO");
    t_fails(fs_open_write(&fd, f, O_APPEND, &e), &e, DS_EIO, "a FIFO without a reader");
    t_fails(fs_write_file(f, "x", 1, &e), &e, DS_EIO, "a FIFO without a reader");
    t_eq(fd, -1);
    t_ok(fs_check_regular("/nonexistent", &e), &e); /* whoever opens it says so */
    int reader = open(f, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    t_ok(fs_write_file(f, "x", 1, &e), &e);
    t_ok(fs_open_write(&fd, f, 0, &e), &e);
    t_eq(fcntl(fd, F_GETFL) & O_NONBLOCK, 0); /* writing may wait for who reads */
    close(fd);
    close(reader);
}

T(fs_reads_a_pipe_passed_by_the_user_and_waits_for_its_writer)
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

T(fs_write_failing_anywhere_leaves_the_old_or_the_new_file_and_no_temporary)
{
    static const int numbers[] = {ENOSPC, EIO,    EDQUOT,       EROFS, EACCES,
                                  EMFILE, ENFILE, ENAMETOOLONG, ELOOP};
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

T(fs_retries_after_eintr_and_short_transfers)
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

T(fs_directory_without_fsync_is_not_an_error)
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

T(fs_short_transfers_from_the_environment_are_continued)
{
    struct err e = {0};
    struct str got = {0};
    struct stat st;
    char part[8];
    const char *f = in_tmp(t_tmpdir(), "f");
    setenv("DEPTHSCOPE_FAIL", "write:1+=SHORT,read:1+=SHORT,pread:1=SHORT,ftruncate:1=EIO", 1);
    t_ok(fs_write_file(f, "twelve bytes", 12, &e), &e);
    t_ok(fs_read_file(&got, f, 12, &e), &e);
    t_str(str_text(&got), "twelve bytes");
    int fd = open(f, O_RDWR);
    t_true(fs_pread(fd, part, 6, 0) == 3 && fs_pread(fd, part, 6, 0) == 6);
    t_true(fs_truncate(fd, 5) == -1 && errno == EIO && fs_fstat(fd, &st) == 0 && st.st_size == 12);
    t_true(fs_truncate(fd, 5) == 0 && fs_fstat(fd, &st) == 0 && st.st_size == 5);
    close(fd);
    str_release(&got);
}

T(fs_what_cannot_be_examined_exists_and_is_not_damaged)
{
    struct err e = {0};
    char f[600], missing[700];
    snprintf(f, sizeof f, "%s", in_tmp(t_tmpdir(), "f"));
    snprintf(missing, sizeof missing, "%s-not", f);
    setenv("DEPTHSCOPE_FAIL", "stat:9+=ESTALE", 1);
    t_ok(fs_write_file(f, "x", 1, &e), &e);
    t_true(fs_exists(f) && !fs_exists(missing));
    t_true(fs_is_unreadable(f, DS_EIO) && fs_is_unreadable(missing, DS_EMEM));
    t_true(!fs_is_unreadable(f, DS_EFORMAT) && !fs_is_unreadable(f, 0));
    while (!fs_exists(missing)) { /* from the ninth call on */
    }
    t_true(fs_exists(f) && fs_is_unreadable(missing, DS_EIO));
}

T(fs_calls_of_a_process_are_counted)
{
    char spec[60], got[1000];
    int end[2], status = -1;
    t_true(pipe(end) == 0);
    snprintf(spec, sizeof spec, "mkdir:9,count=/dev/fd/%d", end[1]);
    setenv("DEPTHSCOPE_FAIL", spec, 1);
    pid_t pid = fork();
    if (pid == 0) { /* the child's exit removes its directory */
        const char *f = in_tmp(t_tmpdir(), "f");
        exit(fs_write_file(f, "x", 1, NULL) == 0 && fs_unlink(f) == 0 ? 0 : 1);
    }
    t_true(waitpid(pid, &status, 0) == pid && status == 0);
    ssize_t n = read(end[0], got, sizeof got - 1);
    got[n > 0 ? n : 0] = '\0';
    t_truef(strstr(got, " write=1 fsync=2 ") && strstr(got, " rename=1 mkdir=0 unlink=1 "), "%s",
            got);
    t_true(strstr(got, " alloc=") && strchr(got, '\n') == got + n - 1);
}

/* ---- unfinished files ---- */

static int listed(const char *dir, const char *part)
{
    char **names = NULL;
    size_t n = 0, found = 0;
    struct err e = {0};
    t_ok(fs_list(dir, &names, &n, &e), &e);
    for (size_t i = 0; i < n; i++)
        found += strstr(names[i], part) != NULL;
    fs_list_free(names, n);
    return (int)found;
}

/* Days ago, so that age is no reason to keep it. */
static void put_old(const char *dir, const char *name)
{
    struct timespec days_ago[2] = {{.tv_sec = time(NULL) - 3 * 86400}, {.tv_sec = 0}};
    days_ago[1] = days_ago[0];
    int fd = open(in_tmp(dir, name), O_WRONLY | O_CREAT, 0600);
    t_true(fd >= 0 && futimens(fd, days_ago) == 0 && close(fd) == 0);
}

T(unfinished_file_of_a_killed_writer_is_removed_at_the_next_start)
{
    char dir[512], f[600];
    struct err e = {0};
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(f, sizeof f, "%s/best.json", dir);
    pid_t pid = fork();
    t_true(pid >= 0);
    if (pid == 0) {
        struct fs_new n;
        if (fs_new_open(&n, f, NULL) == 0 && fs_new_write(&n, "half", 4, NULL) == 0)
            kill(getpid(), SIGKILL);
        _exit(1);
    }
    int status = 0;
    t_true(waitpid(pid, &status, 0) == pid && WIFSIGNALED(status));
    t_eq(listed(dir, ".best.json."), 1);
    t_ok(fs_write_file(in_tmp(dir, "other.json"), "x", 1, &e), &e); /* any file of the directory */
    t_eq(listed(dir, ".best.json."), 0);
    t_eq(listed(dir, ""), 1);
}

T(unfinished_file_of_a_living_writer_is_never_removed)
{
    char dir[512], f[600], gone[700], owner[FS_OWNER_MAX], name[FS_OWNER_MAX + 60];
    struct err e = {0};
    struct fs_new n;
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(f, sizeof f, "%s/a.png", dir);
    t_ok(fs_new_open(&n, f, &e), &e);
    fs_owner(owner);
    size_t tag = strcspn(owner, "-");
    /* the id of a living process, but of one that began at another moment */
    snprintf(name, sizeof name, ".b.png.%.*s-%d-5-0.tmp", (int)tag, owner, getpid());
    put_old(dir, name);
    snprintf(name, sizeof name, ".c.png.%.*s-999999999-5-0.tmp", (int)tag, owner);
    put_old(dir, name);
    put_old(dir, ".d.png.00000001-999999999-5-0.tmp"); /* another host, days ago, no lock */
    put_old(dir, ".e.png.00000001-999999998-5-0.tmp"); /* another host, days ago, but locked */
    int locked = open(path, O_RDWR);
    t_true(locked >= 0 && flock(locked, LOCK_EX) == 0);
    t_ok(fs_write_file(in_tmp(dir, ".f.png.00000001-999999997-5-0.tmp"), "", 0, &e),
         &e); /* just now */
    static const char *const others[] = {".vimrc.tmp",
                                         "x.part-1",
                                         ".g.12-0.tmp",
                                         ".h.00000001-1-1.tmp",
                                         "i.png.00000001-1-1-1.tmp",
                                         ".00000001-1-1-1.tmp"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        put_old(dir, others[i]);
    snprintf(gone, sizeof gone, "%s/.l.png.%.*s-999999999-5-1.tmp", dir, (int)tag, owner);
    t_true(symlink("a.png", gone) == 0); /* not what this program makes */
    fs_temp_sweep(dir);
    t_eq(listed(dir, ".a.png."), 1);
    t_eq(listed(dir, ".b.png."), 0);
    t_eq(listed(dir, ".c.png."), 0);
    t_eq(listed(dir, ".d.png."), 0);
    t_eq(listed(dir, ".e.png."), 1);
    t_eq(listed(dir, ".f.png."), 1);
    t_eq(listed(dir, ".l.png."), 1);
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        t_truef(fs_exists(in_tmp(dir, others[i])), "%s is gone", others[i]);
    close(locked);
    fs_temp_sweep(dir);
    t_eq(listed(dir, ".e.png."), 0);
    t_ok(fs_new_commit(&n, &e), &e);
    t_true(fs_exists(f) && listed(dir, ".a.png.") == 0);
}

/* As another machine sees it, where its writer is at work for days. */
T(an_unfinished_directory_is_locked_until_its_writer_is_done)
{
    char dir[512], new_dir[600], temp[700];
    struct err e = {0};
    int lock = -1;
    const struct timespec days_ago[2] = {{.tv_sec = time(NULL) - 200000},
                                         {.tv_sec = time(NULL) - 200000}};
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(new_dir, sizeof new_dir, "%s/run", dir);
    t_ok(fs_new_dir(&lock, temp, sizeof temp, new_dir, &e), &e);
    t_true(lock >= 0);
    t_eq(rename(temp, in_tmp(dir, ".run.00000001-999999999-5-0.tmp")), 0);
    t_eq(utimensat(AT_FDCWD, path, days_ago, 0), 0);
    fs_temp_sweep(dir);
    t_eq(listed(dir, ".run."), 1);
    close(lock);
    fs_temp_sweep(dir);
    t_eq(listed(dir, ".run."), 0);
}

/* A copy holds a lock no longer than it takes. */
T(a_finished_copy_leaves_no_descriptor_open)
{
    char dir[512], from[600], to[600];
    struct err e = {0};
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(from, sizeof from, "%s/from", dir);
    snprintf(to, sizeof to, "%s/to", dir);
    t_eq(mkdir(from, 0700), 0);
    int next = open("/dev/null", O_RDONLY);
    close(next);
    t_ok(fs_copy_tree(from, to, &e), &e);
    int again = open("/dev/null", O_RDONLY);
    t_eq(again, next);
    close(again);
}

T(owners_are_distinguished)
{
    char a[FS_OWNER_MAX], b[FS_OWNER_MAX];
    t_skip_if_emulated("a process reads another start time of itself than others do");
    fs_owner(a);
    fs_owner(b);
    t_true(strcmp(a, b) != 0 && fs_owner_is_own(a) && fs_owner_is_own(b));
    t_eq((int)fs_owner_length(a), (int)strlen(a));
    t_true(!fs_owner_is_dead(a, "."));
    t_eq((int)fs_owner_length("1234567-1-1-1"), 0);
    t_eq((int)fs_owner_length("12345678-1-1-"), 0);
    t_eq((int)fs_owner_length("12345678-1-1-1.tmp"), 14);
    pid_t pid = fork();
    if (pid == 0)
        _exit(fs_owner_is_own(a) || fs_owner_is_dead(a, "."));
    int status = 1;
    t_true(waitpid(pid, &status, 0) == pid && status == 0);
}

/* The name is taken between its choice and the open, by a link to a file of value. */
static const char *victim;
static int planted;

static int planting_open(const char *p, int flags, mode_t mode)
{
    if ((flags & O_EXCL) && planted < 3)
        planted += symlink(victim, p) == 0;
    return open(p, flags, mode);
}

T(a_planted_temporary_is_never_written_through) /* G3 */
{
    struct fs_ops planting = *fs_ops_get();
    struct err e = {0};
    char dir[512], own[600], f[600];
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(own, sizeof own, "%s/own", dir);
    snprintf(f, sizeof f, "%s/f", dir);
    victim = own;
    t_ok(fs_write_file(own, "mine", 4, &e), &e);
    planting.open = planting_open;
    fs_ops_set(&planting);
    t_ok(fs_write_file(f, "new", 3, &e), &e);
    fs_ops_set(NULL);
    t_eq(planted, 3);
    expect_file(f, "new", NULL);
    expect_file(own, "mine", NULL);
}

T(a_named_pipe_is_replaced_only_on_request)
{
    struct err e = {0};
    const char *f = in_tmp(t_tmpdir(), "best.json");
    t_true(mkfifo(f, 0600) == 0);
    t_ok(fs_replace_file(f, "{}", 2, &e), &e);
    expect_file(f, "{}", NULL);
}

/* ---- held directories ---- */

static int renames_done;

/* As a network file system whose first answer was lost: done, and then there is nothing to do. */
static int rename_twice(const char *from, const char *to)
{
    renames_done += rename(from, to) == 0;
    return rename(from, to);
}

T(a_rename_whose_answer_was_lost_is_done) /* D14 */
{
    struct fs_ops network = *fs_ops_get();
    struct err e = {0};
    char from[600], to[600];
    snprintf(from, sizeof from, "%s/from", t_tmpdir());
    snprintf(to, sizeof to, "%s/to", t_tmpdir());
    network.rename = rename_twice;
    fs_ops_set(&network);
    renames_done = 0;
    t_ok(fs_replace_file(to, "one", 3, &e), &e);
    t_ok(fs_replace_file(to, "two", 3, &e), &e);
    int rc = fs_rename(from, to), number = errno; /* nothing to rename: the target is another's */
    fs_ops_set(NULL);
    t_eq(renames_done, 2);
    expect_file(to, "two", NULL);
    t_true(rc < 0 && number == ENOENT);
}

T(a_held_directory_is_followed_through_a_rename)
{
    char dir[512], x[600], y[600];
    struct err e = {0};
    struct str got = {0};
    char **names = NULL;
    size_t n = 0;
    int fd = -1;
    snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(x, sizeof x, "%s/x", dir);
    snprintf(y, sizeof y, "%s/y", dir);
    t_ok(fs_mkdirs(x, &e), &e);
    t_ok(fs_hold(&fd, x, &e), &e);
    t_true(fs_is_held_at(fd, x));
    t_true(rename(x, y) == 0 && mkdir(x, 0700) == 0);
    t_true(!fs_is_held_at(fd, x) && fs_is_held_at(fd, y));
    char sub[700];
    snprintf(sub, sizeof sub, "%s/c/d", x);
    t_ok(fs_mkdirs(sub, &e), &e);
    snprintf(sub, sizeof sub, "%s/c//f", x);
    t_ok(fs_write_file(sub, "held", 4, &e), &e);
    t_ok(fs_list(x, &names, &n, &e), &e);
    t_true(n == 1 && strcmp(names[0], "c") == 0);
    fs_list_free(names, n);
    t_true(fs_is_dir(x) && fs_free_bytes(x) > 0);
    snprintf(sub, sizeof sub, "%s/c/d", x);
    t_ok(fs_remove_tree(sub, &e), &e);
    /* a name that only begins alike is another directory */
    snprintf(sub, sizeof sub, "%s/xx", dir);
    t_ok(fs_mkdirs(sub, &e), &e);
    t_true(rmdir(sub) == 0);
    fs_unhold(fd);
    t_ok(fs_list(x, &names, &n, &e), &e); /* now it leads where everybody's path does */
    t_eq((int)n, 0);
    fs_list_free(names, n);
    snprintf(sub, sizeof sub, "%s/c/f", y);
    t_ok(fs_read_file(&got, sub, 10, &e), &e);
    t_str(str_text(&got), "held");
    snprintf(sub, sizeof sub, "%s/c/d", y);
    t_true(!fs_exists(sub));
    str_release(&got);
}

T(a_removed_held_directory_accepts_no_new_files)
{
    char x[600], f[700];
    struct err e = {0};
    int fd = -1;
    snprintf(x, sizeof x, "%s/x", t_tmpdir());
    snprintf(f, sizeof f, "%s/f", x);
    t_ok(fs_mkdirs(x, &e), &e);
    t_ok(fs_hold(&fd, x, &e), &e);
    t_true(rmdir(x) == 0 && mkdir(x, 0700) == 0);
    t_fails(fs_write_file(f, "x", 1, &e), &e, DS_EIO, "No such file");
    t_true(rmdir(x) == 0);
    fs_unhold(fd);
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

T(fs_join_handles_slashes_and_limits)
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

T(fs_name_ok_rejects_paths_and_control_characters)
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

T(a_copy_from_a_mapping_equals_memcpy)
{
    enum { N = 70001 };
    struct err e = {0};
    struct fs_map m = {0};
    unsigned char *was = malloc(N), *copy = malloc(N);
    for (int i = 0; i < N; i++)
        was[i] = (unsigned char)(i * 7 + i / 251);
    t_ok(fs_write_file(in_tmp(t_tmpdir(), "copied"), (const char *)was, N, &e), &e);
    t_ok(fs_map_open(&m, path, &e), &e);
    static const size_t part[][2] = {{0, N}, {1, 4096}, {12345, 50000}, {N - 5000, 5000}, {7, 100}};
    for (size_t i = 0; i < DS_LEN(part); i++) {
        const size_t at = part[i][0], n = part[i][1];
        memset(copy, 0, N);
        fs_map_copy(copy, m.p + at, n);
        t_true(memcmp(copy, was + at, n) == 0 && (n == N || copy[n] == 0));
        memset(copy, 0, N);
        fs_map_copy(copy, was + at, n); /* not a mapping */
        t_true(memcmp(copy, was + at, n) == 0);
    }
    fs_map_close(&m);
    free(was), free(copy);
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
