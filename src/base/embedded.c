/* Finds the files that embed.sh put into the program. */
#include "base/embedded.h"

#include <string.h>

#ifdef DEPTHSCOPE_STATIC
extern const struct embedded embedded_files[]; /* written by embed.sh; the last has no path */
#else
static const struct embedded embedded_files[] = {{.path = NULL}};
#endif

/* `path` below EMBEDDED_ROOT; NULL when it is elsewhere. */
static const char *below_root(const char *path)
{
    static const char root[] = EMBEDDED_ROOT;
    return strncmp(path, root, sizeof root - 1) == 0 ? path + sizeof root - 1 : NULL;
}

const struct embedded *embedded_find(const char *path)
{
    const char *name = below_root(path);
    for (const struct embedded *f = embedded_files; name && f->path; f++)
        if (strcmp(f->path, name) == 0)
            return f;
    return NULL;
}

const struct embedded *embedded_next(const char *path, const struct embedded *after,
                                     const char **name)
{
    const char *dir = below_root(path);
    size_t n = dir ? strlen(dir) : 0;
    for (const struct embedded *f = after ? after + 1 : embedded_files; dir && f->path; f++)
        if (strncmp(f->path, dir, n) == 0 && f->path[n] == '/') {
            *name = f->path + n + 1;
            return f;
        }
    return NULL;
}
