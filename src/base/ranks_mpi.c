/* Ranks by MPI: the only file that knows it.  No call of it waits inside MPI, where a lost rank
 * would never be noticed: each is started, then asked for until it is done. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/ranks.h"
#include "base/ranks_launcher.h"
#include "base/ranks_watch.h"

static struct {
    int has_begun, rank, size;
    MPI_Comm comm;
    char (*host)[RANKS_HOST];
    struct ranks_account account;
} me = {.size = 1};

enum { BLOCK = 64 << 20 /* bytes of one message */ };
/* Volatile, or gcc takes MPICH's value for the address of an array. */
static MPI_Status *volatile no_statuses = MPI_STATUSES_IGNORE;

static int failed(int rc, const char *what, struct err *e)
{
    char text[MPI_MAX_ERROR_STRING + 1] = "";
    int n = 0;
    if (rc == MPI_SUCCESS)
        return 0;
    (void)MPI_Error_string(rc, text, &n);
    return err_set(e, DS_EIO, "MPI: %s: %.200s", what, text);
}

/* Other processes may need the processor for what is waited for. */
static void give_way(double waited)
{
    enum { NAP_US = 200 };
    if (waited < 0.05)
        (void)sched_yield();
    else
        clock_sleep(1e-6 * NAP_US);
}

static int await(MPI_Request *r, int n, const char *what, struct err *e)
{
    char why[WATCH_TEXT];
    double start = clock_mono(), now = start;
    int rc = 0, done = 0;
    watch_waits(1);
    for (int turn = 0; rc == 0; turn++) {
        rc = failed(MPI_Testall(n, r, &done, no_statuses), what, e);
        if (rc < 0 || done)
            break;
        now = clock_mono();
        if (watch_lost(why))
            rc = err_set(e, DS_EIO, "%s", why);
        else if (turn > 100)
            give_way(now - start);
    }
    watch_waits(0);
    me.account.seconds += clock_mono() - start;
    return rc;
}

static int read_hosts(struct err *e)
{
    char host[RANKS_HOST] = "";
    (void)gethostname(host, sizeof host - 1);
    me.host = mem_alloc((size_t)me.size, sizeof *me.host);
    return me.host ? ranks_gather(me.host, host, sizeof host, e)
                   : err_set(e, DS_EMEM, "out of memory for %d ranks", me.size);
}

int ranks_begin(struct err *e)
{
    int has = 0, given;
    if (me.has_begun || ranks_launched() == 0)
        return 0; /* without a launcher there is nobody to join */
    int rc = failed(MPI_Initialized(&has), "start", e);
    if (rc == 0 && !has)
        rc = failed(MPI_Init_thread(NULL, NULL, MPI_THREAD_FUNNELED, &given), "start", e);
    if (rc == 0)
        rc = failed(MPI_Comm_dup(MPI_COMM_WORLD, &me.comm), "start", e);
    if (rc < 0)
        return rc;
    me.has_begun = 1;
    (void)MPI_Comm_set_errhandler(me.comm, MPI_ERRORS_RETURN);
    (void)MPI_Comm_rank(me.comm, &me.rank);
    (void)MPI_Comm_size(me.comm, &me.size);
    if (me.size > RANKS_MAX)
        return err_set(e, DS_EUSAGE, "%d ranks: expected at most %d", me.size, RANKS_MAX);
    rc = read_hosts(e);
    if (rc == 0 && ranks_launched() > 1 && me.size == 1)
        rc = err_set(e, DS_EUSAGE,
                     "one of %d processes, but MPI knows only this one: the program was built "
                     "with another MPI than that of mpirun",
                     ranks_launched());
    return rc;
}

void ranks_end(void)
{
    if (!me.has_begun)
        return;
    if (ranks_barrier(NULL) < 0)
        ranks_abort(1);
    watch_stop();
    (void)MPI_Comm_free(&me.comm);
    (void)MPI_Finalize();
    mem_free(me.host);
    memset(&me, 0, sizeof me);
    me.size = 1;
}

int ranks_rank(void)
{
    return me.rank;
}

int ranks_size(void)
{
    return me.size;
}

const char *ranks_host(int rank)
{
    return me.host && rank >= 0 && rank < me.size ? me.host[rank] : "this host";
}

void ranks_name(int rank, char *out, size_t size)
{
    snprintf(out, size, "rank %d on %s", rank, ranks_host(rank));
}

int ranks_speaks(void)
{
    return me.rank == (watch_lost_rank() == 0 && me.size > 1) && !watch_has_reported();
}

int ranks_watch(double timeout, struct err *e)
{
    struct watch_place place = {0};
    struct err why = {0};
    int connected = 0, rc = 0;
    if (me.size == 1)
        return 0;
    if (me.rank == 0)
        rc = watch_listen(&place, me.size, &why);
    if (rc < 0)
        place.addresses = 0;
    rc = ranks_broadcast(&place, sizeof place, 0, e);
    if (rc == 0 && me.rank > 0)
        connected = watch_connect(&place, me.rank, &why) == 0;
    int *all = mem_alloc((size_t)me.size, sizeof *all);
    if (!all)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", me.size);
    if (rc == 0)
        rc = ranks_gather(all, &connected, sizeof connected, e);
    int expected = 0;
    for (int i = 0; i < me.size; i++)
        expected += all[i];
    mem_free(all);
    if (rc == 0 && me.rank == 0 && expected < me.size - 1)
        log_warn("%d of %d ranks cannot be watched%s%s: that they ended is left to mpirun",
                 me.size - 1 - expected, me.size, why.text[0] ? ": " : "", why.text);
    return rc == 0 ? watch_start(me.rank, me.size, expected, timeout, e) : rc;
}

static void count(uint64_t sent, uint64_t received)
{
    me.account.sent += sent;
    me.account.received += received;
}

int ranks_broadcast(void *p, size_t bytes, int from, struct err *e)
{
    int rc = 0;
    for (size_t at = 0; me.size > 1 && rc == 0 && at < bytes; at += BLOCK) {
        int n = (int)(bytes - at < BLOCK ? bytes - at : BLOCK);
        MPI_Request r;
        rc = failed(MPI_Ibcast((char *)p + at, n, MPI_BYTE, from, me.comm, &r), "broadcast", e);
        if (rc == 0)
            rc = await(&r, 1, "broadcast", e);
        count(me.rank == from ? (uint64_t)n : 0, me.rank == from ? 0 : (uint64_t)n);
    }
    return rc;
}

int ranks_gather_parts(void *all, const void *mine, const size_t *bytes, struct err *e)
{
    struct ranks_part *send = mem_alloc((size_t)me.size, 2 * sizeof *send), *receive;
    char *at = all;
    if (!send)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", me.size);
    receive = send + me.size;
    int n = 0;
    for (int i = 0; i < me.size; at += bytes[i], i++) {
        if (i == me.rank) {
            if (bytes[i] > 0)
                memmove(at, mine, bytes[i]);
            continue;
        }
        union {
            const void *from;
            void *p;
        } out = {.from = mine}; /* is only read */
        send[n] = (struct ranks_part){i, out.p, bytes[me.rank]};
        receive[n++] = (struct ranks_part){i, at, bytes[i]};
    }
    int rc = ranks_exchange(send, n, receive, n, e);
    mem_free(send);
    return rc;
}

int ranks_gather(void *all, const void *mine, size_t bytes, struct err *e)
{
    size_t *each = mem_alloc((size_t)me.size, sizeof *each);
    if (!each)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", me.size);
    for (int i = 0; i < me.size; i++)
        each[i] = bytes;
    int rc = ranks_gather_parts(all, mine, each, e);
    mem_free(each);
    return rc;
}

static size_t messages(const struct ranks_part *p, int n)
{
    size_t all = 0;
    for (int i = 0; i < n; i++)
        all += p[i].bytes / BLOCK + (p[i].bytes % BLOCK != 0);
    return all;
}

/* MPI keeps the order of messages of one tag between two ranks. */
static int start(MPI_Request *r, int *used, const struct ranks_part *p, int is_send, int tag,
                 struct err *e)
{
    int rc = 0;
    for (size_t at = 0; rc == 0 && at < p->bytes; at += BLOCK) {
        int n = (int)(p->bytes - at < BLOCK ? p->bytes - at : BLOCK);
        char *from = (char *)p->p + at;
        int mpi = is_send ? MPI_Isend(from, n, MPI_BYTE, p->rank, tag, me.comm, &r[*used])
                          : MPI_Irecv(from, n, MPI_BYTE, p->rank, tag, me.comm, &r[*used]);
        rc = failed(mpi, is_send ? "send" : "receive", e);
        *used += rc == 0;
        count(is_send ? (uint64_t)n : 0, is_send ? 0 : (uint64_t)n);
    }
    return rc;
}

struct ranks_trade {
    int n;
    MPI_Request request[];
};

int ranks_trade_start(struct ranks_trade **out, int number, const struct ranks_part *send,
                      int sends, const struct ranks_part *receive, int receives, struct err *e)
{
    size_t n = messages(send, sends) + messages(receive, receives);
    struct ranks_trade *t = mem_alloc(1, sizeof *t + n * sizeof *t->request);
    int rc = t ? 0 : err_set(e, DS_EMEM, "out of memory for %zu messages", n);
    for (int i = 0; rc == 0 && i < receives; i++)
        rc = start(t->request, &t->n, &receive[i], 0, 2 + number, e);
    for (int i = 0; rc == 0 && i < sends; i++)
        rc = start(t->request, &t->n, &send[i], 1, 2 + number, e);
    *out = t;
    return rc;
}

static void end_trade(struct ranks_trade **t)
{
    mem_free(*t);
    *t = NULL;
}

int ranks_trade_test(struct ranks_trade **t, int *done, struct err *e)
{
    int rc = failed(MPI_Testall((*t)->n, (*t)->request, done, no_statuses), "exchange", e);
    if (rc < 0 || *done)
        end_trade(t);
    return rc;
}

int ranks_trade_finish(struct ranks_trade **t, struct err *e)
{
    int rc = await((*t)->request, (*t)->n, "exchange", e);
    end_trade(t);
    return rc;
}

int ranks_exchange(const struct ranks_part *send, int sends, const struct ranks_part *receive,
                   int receives, struct err *e)
{
    struct ranks_trade *t;
    int rc = ranks_trade_start(&t, -1, send, sends, receive, receives, e);
    return rc == 0 ? ranks_trade_finish(&t, e) : rc;
}

int ranks_barrier(struct err *e)
{
    MPI_Request r;
    if (me.size == 1)
        return 0;
    int rc = failed(MPI_Ibarrier(me.comm, &r), "barrier", e);
    return rc == 0 ? await(&r, 1, "barrier", e) : rc;
}

struct ranks_account ranks_account(void)
{
    return me.account;
}

void ranks_fail(const char *why)
{
    if (me.size > 1)
        watch_fail(why);
}

/* Rank 0 ends all, once it has said why; the others give it the time to do so. */
void ranks_abort(int status)
{
    enum { PATIENCE = 5 };
    if (me.size == 1)
        _exit(status);
    /* a launcher that is told to end may drop what a rank has just written */
    clock_sleep(ranks_speaks() || watch_has_reported() ? 1 : PATIENCE);
    (void)MPI_Abort(MPI_COMM_WORLD, status);
    _exit(status);
}
