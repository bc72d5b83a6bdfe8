/* Logs of other programs as runs: each reader takes a file and returns what its records would have
 * given.  All text is untrusted. */
#ifndef DS_IO_FOREIGN_H
#define DS_IO_FOREIGN_H

#include "base/err.h"
#include "io/runview.h"

/* A CSV table: one line of column names, then one line per step.  The first column is the step, a
 * whole number; "time" (Unix seconds) and "tokens" are the other axes, every other column is a
 * metric.  An empty cell was not logged, "nan" and "inf" are values.  DS_EFORMAT: the message names
 * file, line and column.  *out is owned: runview_free. */
int foreign_csv(struct runview **out, const char *path, struct err *e) DS_CHECK;

#endif
