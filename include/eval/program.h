/* Starts this program as a child process. */
#ifndef DS_EVAL_PROGRAM_H
#define DS_EVAL_PROGRAM_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* Path of the program: $DEPTHSCOPE (tests), else the running executable, else "depthscope" in PATH. */
void program_path(char *out, size_t size);
/* Starts it with argv (argv[0] is shown, NULL ends it); in, out, err: the child's descriptors 0, 1,
 * 2; -1: /dev/null.  Signals are reset to their defaults in the child. DS_EIO with text. */
int program_start(pid_t *pid, const char *const *argv, int in, int out, int err,
                  struct err *e) DS_CHECK;
/* The same in a process group of its own: the terminal's signals reach only the caller. */
int program_start_apart(pid_t *pid, const char *const *argv, int in, int out, int err,
                        struct err *e) DS_CHECK;

#endif
