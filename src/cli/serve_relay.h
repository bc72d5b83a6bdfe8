/* A session with a server that listens on a Unix socket. */
#ifndef DS_CLI_SERVE_RELAY_H
#define DS_CLI_SERVE_RELAY_H

#include "base/err.h"

/* Connects, and passes bytes both ways until `in` ends and the server has answered.  When nobody
 * listens, one "error" record was written. */
int serve_relay(const char *path, int in, int out, struct err *e) DS_CHECK;

#endif
