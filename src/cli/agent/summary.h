/* A long log in few records, for a slow line: of every metric the points that are lowest and highest in
 * each stretch of the log, the newest value, head, layers and ranks, the newest matrix and sample of each
 * name, and the last events and evaluations; no probes.
 * Every value is one that was logged; nothing is averaged. */
#ifndef DS_CLI_AGENT_SUMMARY_H
#define DS_CLI_AGENT_SUMMARY_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct runlog_reader;
struct logsum;
/* Steps `from` to `to` (none if from > to) have as many stretches as all the others together.  NULL: out of
 * memory. */
struct logsum *logsum_new(int64_t from, int64_t to);
void logsum_free(struct logsum *s);
/* Reads on towards the current end of a log for about that many seconds.  1: it is reached; 0: not yet.
 * DS_EBUSY: the log was replaced meanwhile; DS_EIO, DS_EMEM. */
int logsum_read(struct logsum *s, struct runlog_reader *r, double seconds, struct err *e) DS_CHECK;
/* Appends the records of the summary of what was read to `frames`.  *records: how many it stands for. */
int logsum_write(const struct logsum *s, struct str *frames, uint64_t *records,
                 struct err *e) DS_CHECK;

#endif
