/* The thread pool.  Work is partitioned by problem shape only, never by thread count, so results
 * are bit-identical for any number of threads. */
#ifndef DS_BASE_POOL_H
#define DS_BASE_POOL_H

#include <stdint.h>

#include "base/err.h"

typedef void pool_fn(void *ctx, int task, int worker);

/* Starts a total of `threads` workers (the caller is worker 0); 0 = from affinity and cgroup
 * quota.  Every thread of it, the caller too, then has the default floating-point environment: to
 * nearest, with denormals. */
int pool_start(int threads, struct err *e) DS_CHECK;
void pool_stop(void);
int pool_threads(void); /* 1 when not started */
/* Runs fn(ctx, 0..tasks-1, worker); returns when all are done.  Nested calls run inline. */
void pool_run(int tasks, pool_fn *fn, void *ctx);
/* Every pool_run that is not nested calls fn(ctx) first, on the thread that called it: what goes on
 * beside the work gets its turns.  NULL: none. */
void pool_beside(void (*fn)(void *ctx), void *ctx);
/* Calls of pool_run so far, about: the count grows while there is work. */
uint64_t pool_runs(void);
/* Processors available to this process: affinity, limited by the cgroup v2 or v1 quota, rounded
 * up. */
int pool_cpus(void);

#endif
