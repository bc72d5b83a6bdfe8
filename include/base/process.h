/* Normalises what the process inherits before anything else runs (closed descriptors, signal mask,
 * ignored signals, umask, stack size), and finds its own executable. */
#ifndef DS_BASE_PROCESS_H
#define DS_BASE_PROCESS_H

#include <stddef.h>

/* Called once at the start of main, with argv[0] (may be NULL).
 * - Closed descriptors 0 to 2 are opened, so that no file opened later becomes standard output:
 *   reading such a 0 and writing such a 1 fail (EBADF), output to such a 2 is discarded.
 * - Blocked signals are unblocked; an ignored SIGCHLD is reset to its default; SIGXFSZ is ignored,
 *   so that a write beyond `ulimit -f` fails with EFBIG.
 * - The umask is set so that new files are not writable by group or others. */
void process_begin(const char *argv0);
/* From now on, output to a standard output that was closed at the start is discarded instead of
 * failing. */
void process_discard_stdout(void);

/* The absolute path of the running program: 1, or 0 and "" when unknown.  From /proc, else from
 * argv[0] and PATH as they were at the start; for a program that was replaced while running, its
 * original path. */
int process_path(char *out, size_t size);
/* The same for given inputs, for tests: `link` is the symbolic link to the executable, `argv0`,
 * `path` (the value of PATH) and `cwd` as in main; any may be NULL. */
int process_find(char *out, size_t size, const char *link, const char *argv0, const char *path,
                 const char *cwd);

/* 1 when the running program was linked statically, and so needs no shared library to start. */
int process_is_static(void);

/* Runs main_fn(argc, argv) and returns its value: on this thread's stack, or on a larger one where
 * `ulimit -s` is too small for the program's deepest calls. */
int process_run(int (*main_fn)(int argc, char **argv), int argc, char **argv);

/* Signals that ask to end and that a batch system, a timer or a user may send, ending with 0; their
 * default action leaves no time for a checkpoint or for restoring the terminal.  Without those of
 * the terminal itself (SIGINT, SIGQUIT, SIGHUP). */
extern const int process_end_signals[];

#endif
