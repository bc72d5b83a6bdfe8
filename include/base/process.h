/* What a program inherits from whoever started it, put right before anything else runs: closed descriptors, the signal
 * mask, ignored signals, the umask, a stack too small; and where its own executable is. */
#ifndef DS_BASE_PROCESS_H
#define DS_BASE_PROCESS_H

#include <stddef.h>

/* Called once, first thing in main, with argv[0] (NULL is allowed).
 * - Descriptors 0 to 2 that are closed are filled, so that no file opened later becomes standard output: reading the
 *   filled 0 and writing the filled 1 fail (EBADF), what is written to the filled 2 is lost.
 * - Signals blocked by the caller are unblocked; SIGCHLD that the caller ignored is waited for again; SIGXFSZ is
 *   ignored, so that `ulimit -f` is a write that fails (EFBIG).
 * - Nothing that is created is writable by group or others, whatever the umask. */
void process_begin(const char *argv0);
/* Writes to a standard output that was closed at the start are lost from now on, in place of failing. */
void process_discard_stdout(void);

/* The absolute path of the running program into out, 1; 0 and "" when it is not known.  From /proc, else from argv[0]
 * and PATH as they were at the start; a program replaced while it runs is found under its old name. */
int process_path(char *out, size_t size);
/* The same from given facts: `link` is the symbolic link to the executable, `argv0`, `path` (PATH's value) and `cwd` as
 * main got them; any may be NULL. */
int process_find(char *out, size_t size, const char *link, const char *argv0, const char *path,
                 const char *cwd);

/* Runs main_fn(argc, argv) and returns its value: on this thread's stack, or where `ulimit -s` allows less than the
 * program's deepest calls take, on a stack of its own. */
int process_run(int (*main_fn)(int argc, char **argv), int argc, char **argv);

/* Signals that ask to end and that a batch system, a timer or a user may send, 0 behind the last: whose default leaves no time
 * for a checkpoint, or for the terminal.  Those of the terminal itself (SIGINT, SIGQUIT, SIGHUP) are not among them. */
extern const int process_end_signals[];

#endif
