/* Parts of `depthscope get`: the table of known files, and the curl program. */
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
    int is_recalled; /* bytes and sha256 are those of the first download */
};
struct get_known {
    const char *kind, *licence, *about;
    struct get_file file[GET_FILES];
    size_t n;
};
/* Distinct names of the table, in its order; free with fs_list_free. */
int get_names(const struct config *table, char ***names, size_t *n, struct err *e) DS_CHECK;
/* One entry; texts are borrowed from the table.  DS_ENOTFOUND names the nearest, DS_EFORMAT the
 * malformed line. */
int get_find(const struct config *table, const char *name, struct get_known *out,
             struct err *e) DS_CHECK;

/* Size and SHA-256 of files that the table does not know, as they were when they were first
 * downloaded: one line "SHA256 BYTES URL" each in the user's state directory. */
void get_recall(struct get_file *f);
/* Notes them; a failure is a warning. */
void get_remember(const struct get_file *f);
/* The file of these notes; 0 when there is no such directory. */
int get_records_path(char *out, size_t size);

/* Callbacks while curl runs: take gets its standard output in chunks and aborts it by returning a
 * negative value (with text in *e); tick (NULL: none) is called five times a second. */
struct get_listener {
    int (*take)(void *ctx, const void *p, size_t n, struct err *e);
    void (*tick)(void *ctx);
    void *ctx;
};
/* Runs curl with argv (NULL-terminated) until it exits.  The end of its stderr goes to `words`.
 * *status: its exit status, 128 + N for a signal.  Returns take's error; DS_ENOTFOUND: no curl.  It
 * cannot outlive us: our pipe closes. */
int get_curl(const char *const *argv, const struct get_listener *l, char *words, size_t size,
             int *status, struct err *e) DS_CHECK;

/* Fetches one file into dir under its name.  mirror: scheme://host that replaces the URL's, or
 * NULL.  Afterwards file->bytes and file->sha256 describe the file; *checked: verified against a
 * known SHA-256; *was_there: already present. */
struct get_job {
    const char *dir, *mirror;
    int is_terminal;
    struct get_file *file;
    int checked, was_there;
    char url[1024], path[1200], part[1210]; /* of the file in progress */
    int64_t begun_at;                       /* bytes present before this try */
    int64_t have;                           /* bytes present now, while curl runs */
    int is_over;                            /* more was received than the file's size */
    int fd;                                 /* of part; opened with the first byte */
    double started;
};
int get_fetch(struct get_job *j, struct err *e) DS_CHECK;

#endif
