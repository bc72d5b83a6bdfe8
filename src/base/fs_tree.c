/* Lists and removes directories. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/embedded.h"
#include "base/fault.h"
#include "base/fs.h"
#include "base/mem.h"

enum { TREE_DEPTH_MAX = 64 };

static int is_dot(const char *name)
{
    return strcmp(name, ".") == 0 || strcmp(name, "..") == 0;
}

void fs_list_free(char **names, size_t n)
{
    for (size_t i = 0; names && i < n; i++)
        mem_free(names[i]);
    mem_free(names);
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

struct names {
    char **list;
    size_t n, cap;
};

static int add_name(struct names *to, const char *name, const char *path, struct err *e)
{
    void *p = to->list;
    if (mem_grow(&p, &to->cap, to->n + 1, sizeof *to->list) < 0)
        return err_set(e, DS_EMEM, "list %s: out of memory", path);
    to->list = p;
    char *copy = mem_strdup(name);
    if (!copy)
        return err_set(e, DS_EMEM, "list %s: out of memory", path);
    to->list[to->n++] = copy;
    return 0;
}

/* Reads the names of an open directory. */
static int collect(struct names *to, DIR *dir, const char *path, struct err *e)
{
    for (;;) {
        errno = 0;
        const struct dirent *d = fault_fails(FAULT_READDIR) ? NULL : readdir(dir);
        if (!d)
            return errno ? err_errno(e, "read directory %s", path) : 0;
        int rc = is_dot(d->d_name) ? 0 : add_name(to, d->d_name, path, e);
        if (rc < 0)
            return rc;
    }
}

/* The names of files; those of directories inside the program are never asked for. */
static int collect_embedded(struct names *to, const char *path, struct err *e)
{
    const char *name;
    int rc = 0;
    for (const struct embedded *f = NULL; rc == 0 && (f = embedded_next(path, f, &name)) != NULL;)
        rc = strchr(name, '/') ? 0 : add_name(to, name, path, e);
    return rc;
}

static int collect_from_disk(struct names *to, const char *path, struct err *e)
{
    int fd = fs_open_dir(path);
    DIR *dir = fd < 0 ? NULL : fdopendir(fd);
    if (!dir) {
        int rc = err_errno(e, "open directory %s", path);
        if (fd >= 0)
            close(fd);
        return rc;
    }
    int rc = collect(to, dir, path, e);
    closedir(dir);
    return rc;
}

int fs_list(const char *path, char ***names, size_t *n, struct err *e)
{
    struct names got = {0};
    const char *first;
    int rc = embedded_next(path, NULL, &first) ? collect_embedded(&got, path, e)
                                               : collect_from_disk(&got, path, e);
    if (rc < 0) {
        fs_list_free(got.list, got.n);
        return rc;
    }
    if (got.n)
        qsort(got.list, got.n, sizeof *got.list, by_name);
    *names = got.list;
    *n = got.n;
    return 0;
}

static int remove_entry(int at, const char *name, int flags)
{
    int rc;
    do {
        rc = fault_fails(flags ? FAULT_RMDIR : FAULT_UNLINK) ? -1 : unlinkat(at, name, flags);
    } while (rc < 0 && errno == EINTR);
    return rc;
}

/* Removes the contents of the directory `fd` (taken and closed).  Every step uses a descriptor and
 * follows no links, so a name swapped meanwhile cannot lead outside the tree. */
static int empty_directory(int fd, int depth, const char *path, struct err *e)
{
    int rc = 0;
    if (depth > TREE_DEPTH_MAX) {
        close(fd);
        return err_set(e, DS_ERANGE, "remove %s: depth must be at most %d directories", path,
                       TREE_DEPTH_MAX);
    }
    DIR *dir = fdopendir(fd);
    if (!dir) {
        rc = err_errno(e, "read directory %s", path);
        close(fd);
        return rc;
    }
    for (const struct dirent *d; rc == 0 && (d = readdir(dir)) != NULL;) {
        if (is_dot(d->d_name))
            continue;
        if (remove_entry(dirfd(dir), d->d_name, 0) == 0 || errno == ENOENT)
            continue;
        if (errno != EISDIR && errno != EPERM) {
            rc = err_errno(e, "remove %s in %s", d->d_name, path);
            break;
        }
        int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
        int sub = fault_fails(FAULT_OPENDIR) ? -1 : openat(dirfd(dir), d->d_name, flags);
        if (sub < 0)
            rc = err_errno(e, "open %s in %s", d->d_name, path);
        else
            rc = empty_directory(sub, depth + 1, path, e);
        if (rc == 0 && remove_entry(dirfd(dir), d->d_name, AT_REMOVEDIR) != 0 && errno != ENOENT)
            rc = err_errno(e, "remove %s in %s", d->d_name, path);
    }
    closedir(dir);
    return rc;
}

int fs_remove_tree_at(int at, const char *name, const char *path, struct err *e)
{
    struct stat st;
    if (fstatat(at, name, &st, AT_SYMLINK_NOFOLLOW) != 0)
        return errno == ENOENT ? 0 : err_errno(e, "remove %s", path);
    if (!S_ISDIR(st.st_mode))
        return remove_entry(at, name, 0) == 0 ? 0 : err_errno(e, "remove %s", path);
    int flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
    int fd = fault_fails(FAULT_OPENDIR) ? -1 : openat(at, name, flags);
    if (fd < 0)
        return err_errno(e, "open %s", path);
    int rc = empty_directory(fd, 0, path, e);
    if (rc == 0 && remove_entry(at, name, AT_REMOVEDIR) != 0 && errno != ENOENT)
        rc = err_errno(e, "remove %s", path);
    return rc;
}

int fs_remove_tree(const char *path, struct err *e)
{
    const char *rest;
    int at = fs_at(path, &rest);
    return fs_remove_tree_at(at, rest, path, e);
}
