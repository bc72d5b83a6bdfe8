/* A long log in few records, for a slow line: of every metric the points that are lowest and highest in
 * each stretch of the log, the newest head, layers and probe, and the last events and evaluations.
 * Every value is one that was logged; nothing is averaged. */
#ifndef DS_CLI_AGENT_SUMMARY_H
#define DS_CLI_AGENT_SUMMARY_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Reads the log at `path` to its current end and appends the records of its summary to `frames`.  *at:
 * where the last whole record ends, *records: how many there are.  DS_EIO, DS_EMEM, DS_EFORMAT. */
int summary_make(const char *path, struct str *frames, uint64_t *at, uint64_t *records,
                 struct err *e) DS_CHECK;

#endif
