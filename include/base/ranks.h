/* The processes of one run, which a launcher of MPI started together: who they are, and how they
 * exchange data.  Without MPI (make MPI=1 builds with it) a run is one process, rank 0 of 1.
 *
 * Calls marked "collective" are made by every rank, in the same order; sizes agree.  They fail on
 * every rank, with a text that names rank and host, once a rank has ended, or has made no progress
 * for the time that ranks_watch was given: DS_EIO.  After such a failure the only call that helps
 * is ranks_abort.  Only the thread that called ranks_begin may call. */
#ifndef DS_BASE_RANKS_H
#define DS_BASE_RANKS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { RANKS_HOST = 64, RANKS_MAX = 4096 };

/* Joins the other processes of the launcher.  DS_EUSAGE: several processes of a program without
 * MPI.  Calls after the first change nothing. */
int ranks_begin(struct err *e) DS_CHECK;
/* Collective.  Leaves; ranks_rank is 0 and ranks_size 1 from then on. */
void ranks_end(void);
int ranks_rank(void); /* 0 before ranks_begin */
int ranks_size(void); /* 1 before ranks_begin */
const char *ranks_host(int rank);
/* "rank 2 on HOST". */
void ranks_name(int rank, char *out, size_t size);

/* 1 on the one rank that reports a failure of all: 0, or 1 where rank 0 was lost. */
int ranks_speaks(void);

/* Collective.  From now on a rank that ended, or has done nothing for `timeout` seconds, is noticed
 * by all others. */
int ranks_watch(double timeout, struct err *e) DS_CHECK;

/* Collective.  bytes of p on rank `from` become those of all ranks. */
int ranks_broadcast(void *p, size_t bytes, int from, struct err *e) DS_CHECK;
/* Collective.  all (size, bytes): what each rank gave as mine; on every rank. */
int ranks_gather(void *all, const void *mine, size_t bytes, struct err *e) DS_CHECK;
/* Collective.  Rank r gives bytes[r] (the same table on all ranks), all holds them in order of
 * rank. */
int ranks_gather_parts(void *all, const void *mine, const size_t *bytes, struct err *e) DS_CHECK;
/* A part that goes to, or comes from, another rank.  Parts between two ranks arrive in the order
 * that they were given in. */
struct ranks_part {
    int rank;
    void *p;
    size_t bytes;
};
/* Collective.  Sends and receives all parts. */
int ranks_exchange(const struct ranks_part *send, int sends, const struct ranks_part *receive,
                   int receives, struct err *e) DS_CHECK;
/* Collective.  The same in two halves: the parts are on their way while this rank works, and must not
 * be touched until then.  Trades that overlap have different numbers, less than 16,384, and may be
 * begun in another order on other ranks.  test: *done = 1 once all have arrived, which ends the trade, as finish
 * does after waiting. */
struct ranks_trade;
int ranks_trade_start(struct ranks_trade **out, int number, const struct ranks_part *send,
                      int sends, const struct ranks_part *receive, int receives,
                      struct err *e) DS_CHECK;
int ranks_trade_test(struct ranks_trade **t, int *done, struct err *e) DS_CHECK;
int ranks_trade_finish(struct ranks_trade **t, struct err *e) DS_CHECK;
/* Collective. */
int ranks_barrier(struct err *e) DS_CHECK;

/* Since ranks_begin: seconds spent in collective calls, and bytes that went out and came in. */
struct ranks_account {
    double seconds;
    uint64_t sent, received;
};
struct ranks_account ranks_account(void);

/* This rank cannot continue: the others fail with this reason in their next collective call. */
void ranks_fail(const char *why);
/* Ends the processes of all ranks at once, this one with `status`. */
void ranks_abort(int status) DS_NORETURN;

#endif
