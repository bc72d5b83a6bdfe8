/* Child processes: starts programs, keeps the end of their output, and reports how they exited. */
#ifndef DS_BASE_CHILD_H
#define DS_BASE_CHILD_H

#include <stddef.h>
#include <sys/types.h>

#include "base/err.h"

/* A child's descriptor 0, 1 or 2: one of these, or a descriptor of ours (>= 0). */
enum {
    CHILD_NULL = -1,   /* /dev/null                                                     */
    CHILD_PIPE = -2,   /* a pipe; our end is in struct child                            */
    CHILD_SOCKET = -3, /* descriptor 0 only: writing to a dead child is an error, not a signal */
    CHILD_SAME = -4,   /* descriptor 2 only: where descriptor 1 goes                    */
};

struct child_setup {
    const char *program; /* a path, or a name searched in PATH; NULL: this program (child_self) */
    const char *const *argv; /* NULL-terminated; argv[0] is shown by ps */
    int in, out, err;
    int is_nonblocking; /* our ends of pipes and sockets */
    int is_group;       /* its own process group, out of reach of Ctrl-C */
    int is_session;     /* setsid: without a controlling terminal */
    int is_detached;    /* is_session, reparented to init: outlives us, never reaped; pid is 0 */
    int ends_with_us;   /* signal that it gets when the thread that started it ends, however that
                           happens (Linux); 0: it lives on */
    int keep;           /* another descriptor of ours to keep open in the child; 0: none */
};

enum { CHILD_TAIL = 4096 };
struct child {
    pid_t pid;        /* 0: none, or already reaped */
    int in, out, err; /* our ends of pipes and sockets, close-on-exec; -1: none */
    int has_ended, status;
    char tail[CHILD_TAIL]; /* the newest bytes read by child_tail, NUL-terminated */
    size_t tail_n;
};
#define CHILD_NONE                                                                                 \
    {                                                                                              \
        .in = -1, .out = -1, .err = -1                                                             \
    }

/* Starts the program with default signal dispositions (an ignored SIGHUP stays ignored, for nohup),
 * no blocked signals and descriptors above 2 closed.  DS_ENOTFOUND: no such program; DS_EIO.  On
 * failure *c is CHILD_NONE.  The caller must call child_close. */
int child_start(struct child *c, const struct child_setup *how, struct err *e) DS_CHECK;
/* Reads from `fd` (c->err or c->out) into c->tail: 1 data, 0 closed, -1 no data now
 * (is_nonblocking). */
int child_tail(struct child *c, int fd);
/* The last non-empty line of c->tail, without "depthscope: "; "" when there is none. */
const char *child_last_line(struct child *c);
/* 1 when it has exited (c->status is valid), 0 when it is running. */
int child_poll(struct child *c);
/* Waits until it exits, retrying after EINTR. */
void child_wait(struct child *c);
/* 0 for exit status 0; else -1 and the reason: its last line, "killed by signal 9 (Killed)", "exit
 * status 3". */
int child_verdict(struct child *c, char *reason, size_t size);
/* Closes our ends; a running child is killed with `signal` (0: left running) and reaped. */
void child_close(struct child *c, int signal);

/* Path of this program: $DEPTHSCOPE (tests), else the executable (base/process.h), else from
 * PATH. */
void child_self(char *out, size_t size);

#endif
