/* control.sock of a run: one command line in, one answer line out.  A thread of its own listens, so that a client is answered
 * at once however long a step takes; the trainer carries commands out between two steps.
 *
 * Answers: "ok ..." done, "ok pending ID: ..." accepted and carried out after the current step, "confirm ..." send it once more
 * with "yes" behind it, "error ...". */
#ifndef DS_TRAINING_CONTROL_H
#define DS_TRAINING_CONTROL_H

#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

struct control;
/* On the control thread, while control_lock is held: 1 = it answers the line at once, 0 = the line is the trainer's. */
typedef int (*control_check_fn)(void *ctx, const char *line, struct str *answer);
/* Listens on DIR/control.sock (mode 0600, same user only).  status: see control_tell. */
int control_open(struct control **out, const char *dir, const char *status, control_check_fn check,
                 void *ctx, struct err *e) DS_CHECK;

/* The trainer's side. */
struct control_calls {
    /* The text goes back to the client. */
    void (*handle)(void *ctx, const char *line, struct str *answer);
    /* A command whose client was told "pending" ID has been carried out. */
    void (*applied)(void *ctx, int64_t id, const char *line, const char *answer);
    void *ctx;
};
/* Carries out the lines that wait; with wait_s > 0 waits so long for one. */
void control_poll(struct control *c, double wait_s, const struct control_calls *calls);
/* What `status` is answered from here on. */
void control_tell(struct control *c, const char *status);
/* Around changes of values that `check` reads.  NULL is allowed. */
void control_lock(struct control *c);
void control_unlock(struct control *c);
void control_close(struct control *c); /* removes the socket */

#endif
