/* Notices ranks that ended, hang or failed: a connection of each rank to rank 0 beside MPI, whose
 * own calls would wait for them for ever.  Rank 0 tells the others. */
#ifndef DS_BASE_RANKS_WATCH_H
#define DS_BASE_RANKS_WATCH_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum { WATCH_ADDRESSES = 16, WATCH_TEXT = 300 };
/* Where rank 0 listens; the same bytes are given to all ranks. */
struct watch_place {
    uint64_t token;
    uint32_t address[WATCH_ADDRESSES]; /* IPv4, network order */
    int32_t addresses;
    uint16_t port;
};

/* Rank 0, before the others connect. */
int watch_listen(struct watch_place *place, int size, struct err *e) DS_CHECK;
/* The others; a failure leaves this rank unwatched. */
int watch_connect(const struct watch_place *place, int rank, struct err *e) DS_CHECK;
/* Starts the thread, on every rank: waits until `expected` ranks have connected to rank 0. */
int watch_start(int rank, int size, int expected, double timeout, struct err *e) DS_CHECK;
/* 1 + a rank that was lost, and why; 0: none.  The caller reports it, unless watch_has_reported. */
int watch_lost(char text[WATCH_TEXT]);
/* The rank that was lost, -1: none. */
int watch_lost_rank(void);
/* 1 when the thread has said it, because the one that works did not get to it in time. */
int watch_has_reported(void);
/* This rank cannot continue, for this reason: tells all others. */
void watch_fail(const char *why);
/* The calling thread waits for other ranks (1), or works itself (0). */
void watch_waits(int is_waiting);
/* All ranks end: what follows is not a loss. */
void watch_stop(void);

#endif
