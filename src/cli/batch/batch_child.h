/* One training run as a child process of this one. */
#ifndef DS_CLI_BATCH_CHILD_H
#define DS_CLI_BATCH_CHILD_H

#include <signal.h>
#include <stddef.h>

#include "base/err.h"
#include "base/str.h"

/* The signal that asked to stop, or 0. */
extern volatile sig_atomic_t batch_signal;
void batch_catch_signals(void); /* forwarded to the child */
/* Runs this program with argv (NULL-terminated) until it exits: 0 success, 1 failure (reason set),
 * DS_* it did not start.  Its output goes to the descriptor `out`, -1 = nowhere. */
int batch_child(const char *const *argv, int out, char *reason, size_t size,
                struct err *e) DS_CHECK;

#endif
