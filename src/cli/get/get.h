/* What `depthscope get` is made of: the table of what is known, and the curl program. */
#ifndef DS_CLI_GET_H
#define DS_CLI_GET_H

#include <stdint.h>

#include "base/config.h"
#include "base/str.h"

enum { GET_FILES = 64 };
struct get_file {
    char name[80];   /* fs_name_ok */
    int64_t bytes;   /* -1: unknown */
    char sha256[65]; /* "": unknown */
    const char *url; /* of the table */
};
struct get_known {
    const char *kind, *licence, *about;
    struct get_file file[GET_FILES];
    size_t n;
};
/* Names of the table, each once, in its order: heap array (mem_free) of heap strings: fs_list_free. */
int get_names(const struct config *table, char ***names, size_t *n, struct err *e) DS_CHECK;
/* One of them; texts are the table's.  DS_ENOTFOUND naming the nearest, DS_EFORMAT naming a line that cannot be read. */
int get_find(const struct config *table, const char *name, struct get_known *out,
             struct err *e) DS_CHECK;

/* Who listens to curl: take gets its standard output piece by piece, and ends it by a negative value (with text in *e);
 * tick (NULL: none) is called five times a second. */
struct get_listener {
    int (*take)(void *ctx, const void *p, size_t n, struct err *e);
    void (*tick)(void *ctx);
    void *ctx;
};
/* Runs curl with argv (NULL ends it) to its end.  Its last words go to `words`.  *status: its exit status, 128 + N for a
 * signal.  What take refused is returned; DS_ENOTFOUND: there is no curl.  It never outlives us: its output is our pipe. */
int get_curl(const char *const *argv, const struct get_listener *l, char *words, size_t size,
             int *status, struct err *e) DS_CHECK;

/* Fetches one file into dir under its name.  mirror: scheme://host that replaces the URL's, or NULL.  Afterwards file->bytes and
 * file->sha256 are what is there; *checked: the sum was compared with one known before.  *was_there: nothing had to be done. */
struct get_job {
    const char *dir, *mirror;
    int is_terminal;
    struct get_file *file;
    int checked, was_there;
    char url[1024], path[1200], part[1210]; /* of this file */
    int64_t begun_at;                       /* bytes that were there before */
    int64_t have;                           /* bytes that are there now, while curl runs */
    int is_over;                            /* more came than the file is long */
    int fd;                                 /* of part, from the first byte on */
    double started;
};
int get_fetch(struct get_job *j, struct err *e) DS_CHECK;

#endif
