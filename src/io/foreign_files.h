/* Which files make up a log of another program; private to src/io. */
#ifndef DS_IO_FOREIGN_FILES_H
#define DS_IO_FOREIGN_FILES_H

#include "io/foreign.h"

enum { FOREIGN_FILES_MAX = 1024, FOREIGN_LOOKS_MAX = 1 << 17 };

/* The format that the first n bytes of a file are most likely of, or NULL. */
const struct foreign_format *foreign_recognise(const void *p, size_t n, const char *file,
                                               int is_all);

/* The format of a file or folder, or NULL; `home` is the path of the run, which is not always the one
 * given (foreign_format.inner).  *rc: DS_EMEM when there was no memory to tell. */
const struct foreign_format *foreign_files_find(const char *path, char *home, size_t size, int *rc);

struct foreign_files {
    char **
        name; /* paths below the folder: in order of bytes, or of numbers where the newest counts */
    size_t n, cap;
    uint64_t left_out, looks;
};
/* The files of a format in and below a folder; the last FOREIGN_FILES_MAX when there are more. */
int foreign_files_list(struct foreign_files *f, const char *dir,
                       const struct foreign_format *format, struct err *e) DS_CHECK;
void foreign_files_release(struct foreign_files *f);

#endif
