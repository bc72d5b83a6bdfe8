/* The resolved configuration of a run: config.yaml, or the copy of it in the log's newest head. */
#ifndef DS_IO_RUNCONFIG_H
#define DS_IO_RUNCONFIG_H

#include "base/config.h"
#include "base/err.h"

/* Sets every key of DIR/config.yaml in `c`, which is empty.  A file that is missing, empty, cut short (keys of the log's first
 * head are not in it) or no YAML is replaced by the newest head of DIR/log.mp, with one warning, and *is_lost is set (may be NULL).
 * DS_ENOTFOUND when DIR has neither file, DS_EFORMAT when neither says it. */
int runconfig_read(struct config *c, const char *dir, int *is_lost, struct err *e) DS_CHECK;

#endif
