/* A record of the stream as one line of JSON, for scripts. */
#ifndef DS_CLI_RECORD_JSON_H
#define DS_CLI_RECORD_JSON_H

#include "base/str.h"
#include "io/runlog.h"

/* One line: the record's keys.  Numbers have full precision, NaN and infinities are the strings NaN,
 * Inf and -Inf, vectors stored as bytes are arrays.  Damage is {"kind":"gap","bytes":N,"lost":N}, a
 * file that was replaced {"kind":"reset"}. */
void cli_add_record(struct str *out, const struct runlog_entry *entry);
/* A number as there. */
void cli_add_json_real(struct str *out, double x);

#endif
