/* Fault injection.  DEPTHSCOPE_FAIL holds comma-separated rules: NAME:N fails the N-th call
 * of NAME, "+" after N also every later one, "=ENOSPC" sets errno: "write:3+=ENOSPC,alloc:40".
 * Read by mem (alloc) and fs (open read write fsync fdatasync close rename mkdir unlink). */
#ifndef DS_BASE_FAULT_H
#define DS_BASE_FAULT_H

#include <stdint.h>

struct fault_rule {
    uint64_t at;    /* 1 is the first call; 0 = never */
    int persistent; /* from call `at` on              */
    int number;     /* errno; default EIO             */
};

/* The rule for `name` in `spec` (NULL: the environment's).  1 if there is one, else 0. */
int fault_find(const char *spec, const char *name, struct fault_rule *rule);
/* 1 when call number `call` (from 1) has to fail. */
int fault_hits(const struct fault_rule *rule, uint64_t call);

#endif
