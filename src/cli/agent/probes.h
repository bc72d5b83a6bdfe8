/* The probes of a log, for a view that was opened late: all of them, or when those are too many for a
 * slow line, evenly spaced ones and the newest of each text. */
#ifndef DS_CLI_AGENT_PROBES_H
#define DS_CLI_AGENT_PROBES_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct probes;
/* Of the probe records whose frames begin in bytes [from, to) of the log.  DS_*: it cannot be read. */
int probes_open(struct probes **out, const char *path, int64_t from, int64_t to,
                struct err *e) DS_CHECK;
/* Reads on for about that many seconds.  0: not done yet; 1: the chosen records are appended, in the order
 * of the log, as whole frames with their places in it as seq.  DS_*: nothing is. */
int probes_choose(struct probes *c, double seconds, struct str *frames, struct err *e) DS_CHECK;
void probes_close(struct probes *c);

#endif
