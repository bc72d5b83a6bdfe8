/* Copies a directory tree to another file system. */
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"

enum { COPY_DEPTH_MAX = 64, COPY_BLOCK = 1 << 16 };

/* Contents, permissions and times of one regular file. */
static int copy_file(const char *from, const char *to, const struct stat *st, struct err *e)
{
    char block[COPY_BLOCK];
    int in = -1, out = -1, rc = fs_open_read(&in, from, e);
    size_t got = 1;
    if (rc == 0)
        rc = fs_open_write(&out, to, O_CREAT | O_EXCL, e);
    while (rc == 0 && got > 0) {
        rc = fs_read_some(in, block, sizeof block, &got, from, e);
        if (rc == 0 && got > 0)
            rc = fs_write_all(out, block, got, to, e);
    }
    const struct timespec times[2] = {st->st_atim, st->st_mtim};
    if (rc == 0 &&
        (fchmod(out, st->st_mode & 0777) != 0 || futimens(out, times) != 0 || fs_sync(out) != 0))
        rc = err_errno(e, "write %s", to);
    if (in >= 0)
        fs_close(in);
    if (out >= 0 && fs_close(out) != 0 && rc == 0)
        rc = err_errno(e, "close %s", to);
    return rc;
}

static int copy_link(const char *from, const char *to, struct err *e)
{
    char target[4096];
    ssize_t n = readlink(from, target, sizeof target - 1);
    if (n < 0)
        return err_errno(e, "read link %s", from);
    target[n] = '\0';
    return fs_symlink(target, to) == 0 ? 0 : err_errno(e, "link %s", to);
}

static int copy_entries(const char *from, const char *to, int depth, struct err *e)
{
    char **names = NULL, a[4096], b[4096];
    size_t n = 0;
    if (depth > COPY_DEPTH_MAX)
        return err_set(e, DS_ERANGE, "copy %s: depth must be at most %d directories", from,
                       COPY_DEPTH_MAX);
    int rc = fs_list(from, &names, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct stat st;
        rc = fs_join(a, sizeof a, from, names[i], e);
        if (rc == 0)
            rc = fs_join(b, sizeof b, to, names[i], e);
        if (rc == 0 && fs_lstat(a, &st) != 0)
            rc = err_errno(e, "stat %s", a);
        if (rc < 0)
            break;
        if (S_ISREG(st.st_mode))
            rc = copy_file(a, b, &st, e);
        else if (S_ISLNK(st.st_mode))
            rc = copy_link(a, b, e);
        else if (S_ISDIR(st.st_mode) && fs_mkdir(b, 0755) != 0)
            rc = err_errno(e, "create %s", b);
        else if (S_ISDIR(st.st_mode))
            rc = copy_entries(a, b, depth + 1, e);
    }
    fs_list_free(names, n);
    return rc < 0 ? rc : fs_sync_dir(to, e);
}

int fs_copy_tree(const char *from, const char *to, struct err *e)
{
    char temp[4096];
    int lock, rc = fs_new_dir(&lock, temp, sizeof temp, to, e);
    if (rc < 0)
        return rc;
    rc = copy_entries(from, temp, 0, e);
    if (rc == 0 && fs_rename(temp, to) != 0)
        rc = err_errno(e, "rename to %s", to);
    if (rc < 0) {
        err_rename(e, temp, to);
        (void)!fs_remove_tree(temp, NULL);
    }
    if (lock >= 0)
        fs_close(lock);
    if (rc < 0)
        return rc;
    char dir[4096];
    str_copy(dir, sizeof dir, to);
    char *slash = strrchr(dir, '/');
    if (slash && slash > dir)
        *slash = '\0';
    return fs_sync_dir(slash ? dir : ".", e);
}
