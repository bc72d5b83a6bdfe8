/* One thread pool.  Work is cut by problem shape only, never by thread count, so results are
 * bit-identical at any number of threads. */
#ifndef DS_BASE_POOL_H
#define DS_BASE_POOL_H

#include "base/err.h"

typedef void pool_fn(void *ctx, int task, int worker);

/* Starts `threads` workers in all (the caller is worker 0); 0 = affinity and cgroup quota decide. */
int pool_start(int threads, struct err *e) DS_CHECK;
void pool_stop(void);
int pool_threads(void); /* 1 when not started */
/* Runs fn(ctx, 0..tasks-1, worker); returns when all are done.  Nested calls run inline. */
void pool_run(int tasks, pool_fn *fn, void *ctx);
/* Processors this process may use: affinity, then cgroup v2/v1 quota, rounded up. */
int pool_cpus(void);

#endif
