/* A file that is written in one go, beside its name: PATH is the whole new file, fsynced, or what it was. */
#ifndef DS_IO_NEWFILE_H
#define DS_IO_NEWFILE_H

#include <stddef.h>

#include "base/err.h"

struct newfile {
    int fd; /* -1: not open */
    char path[1024], part[1100];
};

/* Creates PATH.part-PID.  After any failure below newfile_abort; after newfile_commit that does nothing. */
int newfile_open(struct newfile *f, const char *path, struct err *e) DS_CHECK;
int newfile_write(struct newfile *f, const void *p, size_t n, struct err *e) DS_CHECK;
/* fsync, close, rename, fsync of the directory. */
int newfile_commit(struct newfile *f, struct err *e) DS_CHECK;
void newfile_abort(struct newfile *f);

#endif
