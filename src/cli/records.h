/* Writing a complete record file in one step. */
#ifndef DS_CLI_RECORDS_H
#define DS_CLI_RECORDS_H

#include "base/err.h"
#include "base/str.h"

/* Writes complete frames (record_end) to path, all or none.  Replaces an older trace or evaluation;
 * refuses the log of a run and any other file (DS_EEXIST). */
int cli_records_write(const char *path, const struct str *frames, struct err *e) DS_CHECK;
/* What it would refuse, and a place where no file can be made: before hours of work. */
int cli_records_check(const char *path, struct err *e) DS_CHECK;

#endif
