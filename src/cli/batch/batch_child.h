/* Child processes of a batch: several at once, each signal forwarded to all of them. */
#ifndef DS_CLI_BATCH_CHILD_H
#define DS_CLI_BATCH_CHILD_H

#include <signal.h>
#include <stddef.h>

#include "base/child.h"
#include "base/err.h"
#include "base/str.h"

enum { BATCH_CHILDREN = 256 };
struct lease;

/* The signal that asked to stop, or 0. */
extern volatile sig_atomic_t batch_signal;
void batch_catch_signals(void); /* forwarded to the children */

struct batch_child {
    struct child c;
    int slot;   /* -1: not started */
    int is_eof; /* its standard error was closed */
};
#define BATCH_CHILD_NONE                                                                           \
    {                                                                                              \
        .c = CHILD_NONE, .slot = -1                                                                \
    }
/* Starts `program` (NULL: this one) with argv (NULL-terminated).  Its output goes to the descriptor
 * `out`, -1 = nowhere.  is_ours: it gets SIGTERM when this process ends, however that happens;
 * otherwise it lives on, and signals go to its whole process group.  DS_ERANGE: too many at once. */
int batch_child_start(struct batch_child *b, const char *program, const char *const *argv, int out,
                      int is_ours, struct err *e) DS_CHECK;
/* Waits until one of n has ended (those not started are passed over) or `seconds` passed or a
 * signal came; returns its index, -1: none has ended. */
int batch_child_wait(struct batch_child *list, size_t n, double seconds);
void batch_child_signal(const struct batch_child *b, int number);
/* Of one that has ended: 0 success, 1 failure (reason set).  Releases b. */
int batch_child_end(struct batch_child *b, char *reason, size_t size);
/* Runs this program until it exits: 0 success, 1 failure (reason set), DS_* it did not start.
 * keep: a lease that is renewed meanwhile, or NULL. */
int batch_child(const char *const *argv, int out, struct lease *keep, char *reason, size_t size,
                struct err *e) DS_CHECK;

#endif
