/* The probes of a log, for a view that was opened late: all of them, or when those are too many for a
 * slow line, evenly spaced ones and the newest of each text. */
#ifndef DS_CLI_AGENT_PROBES_H
#define DS_CLI_AGENT_PROBES_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* Appends the chosen probe records whose frames begin in bytes [from, to) of the log, in the order of the
 * log, as whole frames with their places in it as seq.  DS_*: the log cannot be read. */
int probes_choose(const char *path, int64_t from, int64_t to, struct str *frames,
                  struct err *e) DS_CHECK;

#endif
