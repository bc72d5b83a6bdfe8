/* Recognises a file type by its first bytes, for error messages about misnamed files. */
#ifndef DS_IO_FILEKIND_H
#define DS_IO_FILEKIND_H

#include <stddef.h>

/* Description of the file type that the first n bytes show ("a zip file ..."), or NULL when they
 * match none. Pickled code is never read, only named. */
const char *file_kind(const unsigned char *p, size_t n);

#endif
