/* Parts of `depthscope import`. */
#ifndef DS_CLI_IMPORT_H
#define DS_CLI_IMPORT_H

#include "base/str.h"
#include "io/routing_trace.h"

/* What was read: formatted text, or one JSON object.  `to`: the file written, or NULL. */
void import_report(const struct routing_trace *t, const char *to, int json, struct str *out);

#endif
