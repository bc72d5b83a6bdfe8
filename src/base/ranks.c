/* The single-process twin of ranks_mpi.c: rank 0 of 1. */
#include "base/ranks.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/ranks_launcher.h"

int ranks_begin(struct err *e)
{
    int size = ranks_launched();
    /* a launcher ends all when the first one fails, and drops what rank 0 has just written */
    if (size > 1 && !ranks_speaks())
        clock_sleep(1);
    if (size > 1)
        return err_set(e, DS_EUSAGE,
                       "started as one of %d processes of mpirun, but this program is built "
                       "without MPI and would train %d separate runs; build it with: make MPI=1",
                       size, size);
    return 0;
}

void ranks_end(void)
{
}

int ranks_rank(void)
{
    return 0;
}

int ranks_size(void)
{
    return 1;
}

const char *ranks_host(int rank)
{
    static char host[RANKS_HOST];
    (void)rank;
    if (!host[0])
        (void)gethostname(host, sizeof host - 1);
    return host;
}

void ranks_name(int rank, char *out, size_t size)
{
    snprintf(out, size, "rank %d on %s", rank, ranks_host(rank));
}

int ranks_speaks(void)
{
    return ranks_launched_as() == 0;
}

int ranks_watch(double timeout, struct err *e)
{
    (void)timeout;
    (void)e;
    return 0;
}

int ranks_broadcast(void *p, size_t bytes, int from, struct err *e)
{
    (void)p;
    (void)bytes;
    (void)from;
    (void)e;
    return 0;
}

int ranks_gather(void *all, const void *mine, size_t bytes, struct err *e)
{
    (void)e;
    if (bytes > 0)
        memcpy(all, mine, bytes);
    return 0;
}

int ranks_gather_parts(void *all, const void *mine, const size_t *bytes, struct err *e)
{
    return ranks_gather(all, mine, bytes[0], e);
}

int ranks_exchange(const struct ranks_part *send, int sends, const struct ranks_part *receive,
                   int receives, struct err *e)
{
    (void)send;
    (void)receive;
    (void)e;
    BUG_IF(sends || receives, "parts for other ranks, but there are none");
    return 0;
}

int ranks_trade_start(struct ranks_trade **out, int number, const struct ranks_part *send,
                      int sends, const struct ranks_part *receive, int receives, struct err *e)
{
    (void)number;
    *out = NULL;
    return ranks_exchange(send, sends, receive, receives, e);
}

int ranks_trade_test(struct ranks_trade **t, int *done, struct err *e)
{
    (void)t;
    (void)e;
    *done = 1;
    return 0;
}

int ranks_trade_finish(struct ranks_trade **t, struct err *e)
{
    (void)t;
    (void)e;
    return 0;
}

int ranks_barrier(struct err *e)
{
    (void)e;
    return 0;
}

struct ranks_account ranks_account(void)
{
    return (struct ranks_account){0};
}

void ranks_fail(const char *why)
{
    (void)why;
}

void ranks_abort(int status)
{
    _exit(status);
}
