/* control.sock of a run: one command line in, one answer line out.  Never blocks the trainer. */
#ifndef DS_TRAINING_CONTROL_H
#define DS_TRAINING_CONTROL_H

#include "base/err.h"
#include "base/str.h"

struct control;
/* Listens on DIR/control.sock (mode 0600, same user only). */
int control_open(struct control **out, const char *dir, struct err *e) DS_CHECK;
/* Takes in what has arrived within wait_s seconds; for each whole line calls handle, whose text goes back ("ok ..." / "error ..."). */
void control_poll(struct control *c, double wait_s,
                  void (*handle)(void *ctx, const char *line, struct str *answer), void *ctx);
void control_close(struct control *c); /* removes the socket */

#endif
