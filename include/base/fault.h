/* Fault injection.  DEPTHSCOPE_FAIL holds comma-separated rules: NAME:N fails the N-th call
 * of NAME, "+" after N also every later one, "=ENOSPC" sets errno, "=SHORT" lets read, write and
 * pread transfer half: "write:3+=ENOSPC,alloc:40".  "count=FILE" appends a line to FILE when the
 * process exits: the calls of each NAME, as in "open=12 read=40 alloc=3001".
 * NAME is one of the calls below, or alloc (mem).  Without the variable a call costs one test. */
#ifndef DS_BASE_FAULT_H
#define DS_BASE_FAULT_H

#include <stddef.h>
#include <stdint.h>

enum { FAULT_SHORT = -1 }; /* instead of an errno */

struct fault_rule {
    uint64_t at;    /* 1 is the first call; 0 = never        */
    int persistent; /* from call `at` on                     */
    int number;     /* errno or FAULT_SHORT; default EIO     */
};

enum fault_call {
    FAULT_OPEN, /* of files; directories that are listed, held or removed: OPENDIR */
    FAULT_READ,
    FAULT_WRITE,
    FAULT_FSYNC,
    FAULT_FDATASYNC,
    FAULT_CLOSE,
    FAULT_RENAME,
    FAULT_MKDIR,
    FAULT_UNLINK,
    FAULT_RMDIR,
    FAULT_LINK, /* hard or symbolic */
    FAULT_FTRUNCATE,
    FAULT_PREAD,
    FAULT_MMAP,
    FAULT_FLOCK,
    FAULT_STAT, /* by path */
    FAULT_FSTAT,
    FAULT_OPENDIR,
    FAULT_READDIR,
    FAULT_FORK, /* of child processes */
    FAULT_PIPE, /* to them */
    FAULT_SOCKET,
    FAULT_CALLS
};

/* The rule for `name` in `spec` (NULL: the environment's).  1 if there is one, else 0. */
int fault_find(const char *spec, const char *name, struct fault_rule *rule);
/* 1 when call number `call` (from 1) has to fail. */
int fault_hits(const struct fault_rule *rule, uint64_t call);
/* 1 when the environment named anything to fail or count as the process first asked. */
int fault_is_on(void);
/* Counts one call; 1 and errno when it has to fail. */
int fault_fails(enum fault_call call);
/* The same for a transfer of *n bytes, which may be halved. */
int fault_fails_transfer(enum fault_call call, size_t *n);

#endif
