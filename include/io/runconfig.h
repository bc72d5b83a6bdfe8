/* The resolved configuration of a run: config.yaml, or the copy of it in the log's newest head. */
#ifndef DS_IO_RUNCONFIG_H
#define DS_IO_RUNCONFIG_H

#include "base/config.h"
#include "base/err.h"

/* Sets every key of DIR/config.yaml in `c`, which is empty.  If that file is missing, empty,
 * truncated (it lacks keys of the log's first head) or not YAML, the newest head of DIR/log.mp is
 * used with one warning, and *is_lost (may be NULL) is set. DS_ENOTFOUND when DIR has neither file,
 * DS_EFORMAT when neither holds a configuration. */
int runconfig_read(struct config *c, const char *dir, int *is_lost, struct err *e) DS_CHECK;
/* Only the copy in the first head of the log; `c` stays empty when there is none. */
int runconfig_read_head(struct config *c, const char *dir, struct err *e) DS_CHECK;
/* Does the first head of DIR/log.mp name the program that wrote it?  Then `train` did not: the run
 * has no checkpoints, and its settings mean something to that program alone. */
int runconfig_has_writer(const char *dir);

#endif
