/* Where a session's text is saved: a new file, never a run's log. */
#ifndef DS_SRC_EVAL_TRACE_FILE_H
#define DS_SRC_EVAL_TRACE_FILE_H

#include <stddef.h>

#include "base/err.h"

/* DS_EEXIST: the file exists, or has the name of a run's log. */
int trace_file_check(const char *path, struct err *e) DS_CHECK;
/* Writes it in one step; its directory is created. */
int trace_file_write(const char *path, const char *frames, size_t n, struct err *e) DS_CHECK;

#endif
