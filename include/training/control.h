/* control.sock of a run: one command line in, one answer line out.  A separate thread listens, so
 * that a client is answered at once however long a step takes; the trainer executes commands
 * between two steps.
 *
 * Answers: "ok ..." done, "ok pending ID: ..." accepted and executed after the current step,
 * "confirm ..." send it again with "yes" appended, "error ...". */
#ifndef DS_TRAINING_CONTROL_H
#define DS_TRAINING_CONTROL_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct control;
/* Called on the control thread with control_lock held: 1 = answered at once, 0 = to be queued for
 * the trainer. */
typedef int (*control_check_fn)(void *ctx, const char *line, struct str *answer);
/* Listens on DIR/control.sock (mode 0600, same user only).  status: see control_set_status. */
int control_open(struct control **out, const char *dir, const char *status, control_check_fn check,
                 void *ctx, struct err *e) DS_CHECK;

/* The trainer's side. */
struct control_calls {
    /* The text goes back to the client. */
    void (*handle)(void *ctx, const char *line, struct str *answer);
    /* A command that was answered "pending" ID has been executed. */
    void (*applied)(void *ctx, int64_t id, const char *line, const char *answer);
    void *ctx;
};
/* Executes the queued lines; wait_s > 0: waits up to that many seconds for one. */
void control_poll(struct control *c, double wait_s, const struct control_calls *calls);
/* Sets the answer to `status`. */
void control_set_status(struct control *c, const char *status);
/* Must be held while changing values that `check` reads.  NULL is allowed. */
void control_lock(struct control *c);
void control_unlock(struct control *c);
void control_close(struct control *c); /* removes the socket */

#endif
