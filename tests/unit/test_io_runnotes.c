/* Tags, notes, renames and the trash of runs. */
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "io/runlog.h"
#include "io/runnotes.h"
#include "t.h"

static char top[400], root[512];

static void make_run(const char *name)
{
    char path[700];
    struct err e = {0};
    if (!top[0])
        snprintf(top, sizeof top, "%s", t_tmpdir());
    snprintf(root, sizeof root, "%s/runs", top);
    snprintf(path, sizeof path, "%s/%s/checkpoints/step-1", root, name);
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/%s/log.mp", root, name);
    t_ok(fs_write_file(path, "", 0, &e), &e);
    snprintf(path, sizeof path, "%s/%s/checkpoints/step-1/weights", root, name);
    t_ok(fs_write_file(path, name, strlen(name), &e), &e);
}

/* The content of the run's only checkpoint, "" when it is not there. */
static const char *weights(const char *name)
{
    static struct str s;
    char path[700];
    str_reset(&s);
    snprintf(path, sizeof path, "%s/%s/checkpoints/step-1/weights", root, name);
    (void)!fs_read_file(&s, path, 1000, NULL);
    return str_text(&s);
}

T(tags_and_notes_are_kept_and_checked)
{
    struct run_notes n = {0}, back;
    struct err e = {0};
    const char *dir = t_tmpdir();
    t_ok(run_notes_read(&back, dir, &e), &e);
    t_eq(back.tags, 0);
    t_ok(run_notes_tag(&n, "+paper", &e), &e);
    t_ok(run_notes_tag(&n, "v2", &e), &e);
    t_ok(run_notes_tag(&n, "paper", &e), &e); /* again: no change */
    t_ok(run_notes_tag(&n,
                       "\xc3\xbc"
                       "ber",
                       &e),
         &e);
    t_ok(run_notes_tag(&n, "-v2", &e), &e);
    t_ok(run_notes_set(&n, "two \"words\"", &e), &e);
    t_ok(run_notes_write(&n, dir, &e), &e);
    t_ok(run_notes_read(&back, dir, &e), &e);
    t_eq(back.tags, 2);
    t_true(run_notes_has(&back, "paper") && run_notes_has(&back, "\xc3\xbc"
                                                                 "ber"));
    t_str(back.note, "two \"words\"");
    static const char *const bad[] = {
        "",    "+",    "a b",      "a=b",  "x>1", "~",
        "--a", "a\tb", "a\x1b[2J", "\xff", "a,b", "abcdefghijabcdefghijabcdefghijabc"};
    for (size_t i = 0; i < DS_LEN(bad); i++)
        t_fails(run_notes_tag(&n, bad[i], &e), &e, DS_EUSAGE, "tag");
    t_fails(run_notes_tag(&n, "-gone", &e), &e, DS_EUSAGE, "tag gone: not found");
    t_fails(run_notes_set(&n, "line\nline", &e), &e, DS_EUSAGE, "one line");
    t_fails(run_notes_set(&n,
                          "\xe2\x80\xae"
                          "bidi",
                          &e),
            &e, DS_EUSAGE, "one line");
    for (int i = 0; i < 14; i++) {
        char tag[16];
        snprintf(tag, sizeof tag, "t%d", i);
        t_ok(run_notes_tag(&n, tag, &e), &e);
    }
    t_fails(run_notes_tag(&n, "more", &e), &e, DS_EUSAGE, "at most 16");
}

T(a_damaged_file_of_notes_is_an_error_or_partly_read)
{
    char path[700];
    struct run_notes n;
    struct err e = {0};
    const char *dir = t_tmpdir();
    snprintf(path, sizeof path, "%s/notes.json", dir);
    t_ok(fs_write_file(path, "{\"tags\":[1,\"a b\",\"ok\",null],\"note\":7}", 37, &e), &e);
    t_ok(run_notes_read(&n, dir, &e), &e);
    t_eq(n.tags, 1);
    t_str(n.tag[0], "ok");
    t_str(n.note, "");
    t_ok(fs_write_file(path, "[]", 2, &e), &e);
    t_fails(run_notes_read(&n, dir, &e), &e, DS_EFORMAT, "expected");
    t_ok(fs_write_file(path, "{\"tags\"", 7, &e), &e);
    t_true(run_notes_read(&n, dir, &e) < 0);
}

T(a_run_is_renamed_only_to_a_free_and_plain_name)
{
    struct err e = {0};
    make_run("a");
    make_run("b");
    t_fails(run_rename(root, "a", "b", &e), &e, DS_EEXIST, "already exists");
    t_fails(run_rename(root, "a", "x\x1b[2J", &e), &e, DS_EUSAGE, "expected 1 to 64");
    t_fails(run_rename(root, "a", "../a", &e), &e, DS_EUSAGE, "expected 1 to 64");
    t_fails(run_rename(root, "none", "c", &e), &e, DS_ENOTFOUND, "not found");
    t_str(weights("a"), "a");
    t_ok(run_rename(root, "a", "c", &e), &e);
    t_str(weights("c"), "a");
    t_str(weights("a"), "");
}

T(the_newest_run_of_a_name_comes_back_from_the_trash)
{
    struct err e = {0};
    struct run_trashed *list;
    size_t n;
    char path[700];
    make_run("a");
    t_ok(run_trash(root, "a", &e), &e);
    t_str(weights("a"), "");
    make_run("a");
    snprintf(path, sizeof path, "%s/a/checkpoints/step-1/weights", root);
    t_ok(fs_write_file(path, "second", 6, &e), &e);
    t_ok(run_trash(root, "a", &e), &e);
    t_ok(run_trash_list(root, &list, &n, &e), &e);
    t_eq(n, 2);
    t_str(list[0].name, "a");
    t_true(list[0].time > list[1].time);
    t_near(list[1].time, clock_wall(), 60);
    mem_free(list);
    t_ok(run_restore(root, "a", &e), &e);
    t_str(weights("a"), "second");
    t_fails(run_restore(root, "a", &e), &e, DS_EEXIST, "already exists");
    t_ok(run_rename(root, "a", "b", &e), &e);
    t_ok(run_restore(root, "a", &e), &e);
    t_str(weights("a"), "a");
    t_fails(run_restore(root, "a", &e), &e, DS_ENOTFOUND, "not in the trash");
    t_fails(run_trash(root, "../runs", &e), &e, DS_EUSAGE, "expected 1 to 64");
}

T(a_live_run_stays)
{
    struct err e = {0};
    char path[700];
    struct runlog_writer *w = NULL;
    make_run("a");
    snprintf(path, sizeof path, "%s/a/log.mp", root);
    t_ok(runlog_writer_open(&w, path, &e), &e);
    t_fails(run_trash(root, "a", &e), &e, DS_EBUSY, "live; stop it first");
    runlog_writer_close(w);
    t_ok(run_trash(root, "a", &e), &e);
}

static int times_exdev;
static struct fs_ops usual;
static int other_file_system(const char *from, const char *to)
{
    const char *a = strstr(from, "/.trash"), *b = strstr(to, "/.trash");
    if ((a == NULL) != (b == NULL)) {
        times_exdev++;
        errno = EXDEV;
        return -1;
    }
    return usual.rename(from, to);
}

T(a_trash_on_another_file_system_gets_a_copy_and_gives_it_back)
{
    struct err e = {0};
    struct fs_ops ops = usual = *fs_ops_get();
    struct stat before, after;
    char path[700];
    make_run("a");
    snprintf(path, sizeof path, "%s/a/link", root);
    t_eq(symlink("log.mp", path), 0);
    snprintf(path, sizeof path, "%s/a/pipe", root);
    t_eq(mkfifo(path, 0600), 0);
    snprintf(path, sizeof path, "%s/a/log.mp", root);
    t_eq(chmod(path, 0600), 0);
    t_eq(stat(path, &before), 0);
    ops.rename = other_file_system;
    fs_ops_set(&ops);
    t_ok(run_trash(root, "a", &e), &e);
    t_eq(times_exdev, 1);
    t_str(weights("a"), "");
    t_ok(run_restore(root, "a", &e), &e);
    fs_ops_set(NULL);
    t_eq(times_exdev, 2);
    t_str(weights("a"), "a");
    t_eq(stat(path, &after), 0);
    t_eq(after.st_mode, before.st_mode);
    t_eq(after.st_mtim.tv_nsec, before.st_mtim.tv_nsec);
    snprintf(path, sizeof path, "%s/a/link", root);
    t_true(lstat(path, &after) == 0 && S_ISLNK(after.st_mode));
}

static int fails_to_write(int fd)
{
    (void)fd;
    errno = ENOSPC;
    return -1;
}

T(a_copy_that_fails_leaves_the_run_and_nothing_else)
{
    struct err e = {0};
    struct fs_ops ops = usual = *fs_ops_get();
    char **names, path[700];
    size_t n;
    make_run("a");
    ops.rename = other_file_system;
    ops.fsync = fails_to_write;
    fs_ops_set(&ops);
    t_fails(run_trash(root, "a", &e), &e, DS_EIO, "No space left");
    fs_ops_set(NULL);
    t_str(weights("a"), "a");
    snprintf(path, sizeof path, "%s/.trash", root);
    t_ok(fs_list(path, &names, &n, &e), &e);
    t_eq(n, 0);
    fs_list_free(names, n);
}

T(a_run_that_is_a_link_is_moved_as_a_link)
{
    struct err e = {0};
    struct stat st;
    char path[700];
    make_run("a");
    snprintf(path, sizeof path, "%s/elsewhere", top);
    char from[700];
    snprintf(from, sizeof from, "%s/a", root);
    t_eq(rename(from, path), 0);
    t_eq(symlink("../elsewhere", from), 0);
    t_ok(run_trash(root, "a", &e), &e);
    t_true(lstat(from, &st) != 0 && fs_is_dir(path));
    t_ok(run_restore(root, "a", &e), &e);
    t_true(lstat(from, &st) == 0 && S_ISLNK(st.st_mode));
    t_str(weights("a"), "a");
}
