/* A record file that a command writes from its beginning. */
#ifndef DS_CLI_RECORDS_H
#define DS_CLI_RECORDS_H

#include "base/err.h"
#include "io/runlog.h"

/* Replaces an older record file of that name; a file that holds anything else is left alone (DS_EEXIST). */
int cli_records_open(struct runlog_writer **out, const char *path, struct err *e) DS_CHECK;

#endif
