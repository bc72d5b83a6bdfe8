/* Where the program's own files are. */
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/process.h"
#include "cli/use.h"

/* The directory of the running program; "" when it cannot be known. */
static void program_dir(char *out, size_t size)
{
    if (!process_path(out, size))
        return;
    char *slash = strrchr(out, '/');
    if (slash)
        *slash = '\0';
}

int cli_data_dir(char *out, size_t size, const char *what, struct err *e)
{
    /* beside the program; above the directory it was built in (build/KIND); in a tree that was moved as a whole */
    static const char *const between[] = {"", "/../..", "/../share/depthscope"};
    char dir[1024], path[1200];
    program_dir(dir, sizeof dir);
    for (size_t i = 0; dir[0] && i < DS_LEN(between); i++) {
        int n = snprintf(path, sizeof path, "%s%s/%s", dir, between[i], what);
        if (n > 0 && (size_t)n < sizeof path && fs_is_dir(path))
            return str_copy(out, size, path)
                       ? err_set(e, DS_ERANGE, "%s: the path is too long", path)
                       : 0;
    }
    snprintf(path, sizeof path, "%s/%s", DEPTHSCOPE_DATADIR, what);
    if (!fs_is_dir(path))
        return err_set(e, DS_ENOTFOUND, "no %s/ beside the program and no %s", what, path);
    return str_copy(out, size, path) ? err_set(e, DS_ERANGE, "%s: the path is too long", path) : 0;
}
