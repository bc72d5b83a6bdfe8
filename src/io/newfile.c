#include "io/newfile.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"

int newfile_open(struct newfile *f, const char *path, struct err *e)
{
    f->fd = -1;
    if (str_copy(f->path, sizeof f->path, path))
        return err_set(e, DS_ERANGE, "%s: the path is too long", path);
    snprintf(f->part, sizeof f->part, "%s.part-%ld", path, (long)getpid());
    do {
        f->fd = fs_ops_get()->open(f->part, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC,
                                   0644);
    } while (f->fd < 0 && errno == EINTR);
    return f->fd < 0 ? err_errno(e, "create %s", f->part) : 0;
}

int newfile_write(struct newfile *f, const void *p, size_t n, struct err *e)
{
    return fs_write_all(f->fd, p, n, f->path, e);
}

static int sync_parent(const char *path, struct err *e)
{
    char dir[1024];
    const char *slash = strrchr(path, '/');
    if (!slash)
        return fs_sync_dir(".", e);
    snprintf(dir, sizeof dir, "%.*s", slash == path ? 1 : (int)(slash - path), path);
    return fs_sync_dir(dir, e);
}

int newfile_commit(struct newfile *f, struct err *e)
{
    const struct fs_ops *ops = fs_ops_get();
    int rc = ops->fsync(f->fd) < 0 ? err_errno(e, "sync %s", f->path) : 0;
    int fd = f->fd;
    f->fd = -1;
    if (ops->close(fd) < 0 && rc == 0)
        rc = err_errno(e, "close %s", f->path);
    if (rc == 0 && ops->rename(f->part, f->path) < 0)
        rc = err_errno(e, "rename %s", f->path);
    if (rc < 0) {
        ops->unlink(f->part);
        return rc;
    }
    return sync_parent(f->path, e);
}

void newfile_abort(struct newfile *f)
{
    if (f->fd < 0)
        return;
    fs_ops_get()->close(f->fd);
    fs_ops_get()->unlink(f->part);
    f->fd = -1;
}
