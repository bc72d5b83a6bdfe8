/* A long log in few records, for a slow line: of every metric the points that are lowest and highest in
 * each stretch of the log, the newest head and layers, and the last events and evaluations; no probes.
 * Every value is one that was logged; nothing is averaged. */
#ifndef DS_CLI_AGENT_SUMMARY_H
#define DS_CLI_AGENT_SUMMARY_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct runlog_reader;
/* Reads on to the current end of a log and appends the records of its summary to `frames`.  Steps `from` to
 * `to` (none if from > to) have as many stretches as all the others together.  *records: how many it
 * stands for.  DS_EBUSY: the log was replaced meanwhile; DS_EIO, DS_EMEM. */
int summary_make(struct runlog_reader *r, int64_t from, int64_t to, struct str *frames,
                 uint64_t *records, struct err *e) DS_CHECK;

#endif
