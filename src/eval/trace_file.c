/* See trace_file.h. */
#include "trace_file.h"

#include <string.h>

#include "base/fs.h"
#include "base/str.h"

int trace_file_check(const char *path, struct err *e)
{
    const char *slash = strrchr(path, '/');
    return fs_exists(path) || strcmp(slash ? slash + 1 : path, "log.mp") == 0
               ? err_set(e, DS_EEXIST,
                         "%s exists, or is the name of a run's log; choose another name", path)
               : 0;
}

static int make_parent(const char *path, struct err *e)
{
    char dir[1024];
    const char *slash = strrchr(path, '/');
    if (!slash || slash == path)
        return 0;
    if (str_copy(dir, sizeof dir, path))
        return err_set(e, DS_ERANGE, "save: the path is too long");
    dir[slash - path] = '\0';
    return fs_mkdirs(dir, e);
}

int trace_file_write(const char *path, const char *frames, size_t n, struct err *e)
{
    int rc = make_parent(path, e);
    return rc < 0 ? rc : fs_write_file(path, frames, n, e);
}
