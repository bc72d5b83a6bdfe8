/* The far end of a host that has neither the program nor Python: a shell there lists logs and cuts pieces
 * out of them, and this file answers the requests of an agent (FORMATS.md) from what it prints.  It
 * can only look: commands, probes on their own and details are refused or left out. */
#ifndef DS_IO_HOST_TAIL_H
#define DS_IO_HOST_TAIL_H

#include <stddef.h>

#include "base/str.h"

struct host_tail;
struct host_tail *host_tail_new(void); /* NULL: out of memory */
void host_tail_free(struct host_tail *t);
/* The command line for the far end; nothing in it comes from the user. */
extern const char host_tail_command[];
/* Takes whole request lines out of *requests; frames of answers that need no shell are appended to *frames. */
void host_tail_ask(struct host_tail *t, struct str *requests, struct str *frames);
/* What the shell printed; frames of an agent's answers are appended to *frames. */
void host_tail_feed(struct host_tail *t, const char *p, size_t n, struct str *frames);
/* Appends to *out what the shell is to do next; `now`: monotonic seconds. */
void host_tail_tick(struct host_tail *t, double now, struct str *out);

#endif
