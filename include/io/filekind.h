/* Files under a wrong name, by their first bytes. */
#ifndef DS_IO_FILEKIND_H
#define DS_IO_FILEKIND_H

#include <stddef.h>

/* What the first n bytes of a file say it is, as words for a message ("a zip file ..."), or NULL when they say nothing.
 * Pickled code is never read, only named. */
const char *file_kind(const unsigned char *p, size_t n);

#endif
