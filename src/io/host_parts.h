/* What the files of a host share.  Private to io/host*.c. */
#ifndef DS_SRC_IO_HOST_PARTS_H
#define DS_SRC_IO_HOST_PARTS_H

#include "io/host.h"

/* Sends {"do":WHAT,"id":N,MORE}, MORE being the other members or empty; its number for host_answer, or DS_*: the host is read-only (unless is_reading), not up, or too much is waiting. */
int64_t host_ask(struct host *h, const char *what, const struct str *more, int is_reading,
                 struct err *e) DS_CHECK;
/* Does the agent there answer this request? */
int host_can(const struct host *h, const char *what);
/* The name there of the run with that path, NULL: none. */
const char *host_run(const struct host *h, const char *path);

#endif
