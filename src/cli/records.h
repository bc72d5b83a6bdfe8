/* A record file that a command makes as a whole. */
#ifndef DS_CLI_RECORDS_H
#define DS_CLI_RECORDS_H

#include "base/err.h"
#include "base/str.h"

/* Writes whole frames (record_end) to path: all of them or none.  It replaces an older trace or evaluation; the log of a
 * run and a file that holds anything else are left alone (DS_EEXIST). */
int cli_records_write(const char *path, const struct str *frames, struct err *e) DS_CHECK;

#endif
