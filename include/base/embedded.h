/* Files that travel inside the program: presets, themes and the UTF-8 locale of `make portable`, for
 * hosts that have nothing but the program.  Other builds have none. */
#ifndef DS_BASE_EMBEDDED_H
#define DS_BASE_EMBEDDED_H

#include <stddef.h>

/* They are below this name: "built-in:/data/quick.yaml".  fs_read_file, fs_exists, fs_is_dir and
 * fs_list (base/fs.h) know it. */
#define EMBEDDED_ROOT "built-in:"

struct embedded {
    const char *path; /* "/data/quick.yaml"; sorted */
    const void *p;    /* aligned to 16 bytes */
    size_t n;
};

/* The file at `path`, which begins with EMBEDDED_ROOT; NULL: there is none. */
const struct embedded *embedded_find(const char *path);
/* The first file below the directory `path` when `after` is NULL, else the one that follows it; NULL
 * when there is none.  *name is the part of its path after the directory. */
const struct embedded *embedded_next(const char *path, const struct embedded *after,
                                     const char **name);

#endif
