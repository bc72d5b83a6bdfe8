/* The watch over the ranks of a run: one thread and a star of connections to rank 0.  A process
 * that ends closes its connection, one that is stopped sends nothing, and one whose work does not
 * advance says so itself.  It never calls MPI, which may not be called from a second thread. */
#include "base/ranks_watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/hash.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/ranks.h"
#include "base/str.h"

enum kind { HELLO, BEAT, LOST, BYE };
/* Both directions; a HELLO carries the token as text, a LOST the reason. */
struct message {
    uint32_t magic;
    int32_t kind, rank;
    char text[WATCH_TEXT];
};
enum { MAGIC = 0x44535257 };
/* Which thread reports a loss: the one that works, or that of the watch. */
enum { TAKEN_BY_WORK = 1, TAKEN_BY_WATCH };
/* Seconds: how long the thread leaves reporting, and ending, to the thread that works. */
static const double report_after = 1, end_after = 8, connect_within = 20;

struct peer {
    int fd, rank, is_over; /* fd -1: not connected; is_over: said BYE */
    double heard;
    size_t have;
    struct message in;
};

static struct watch {
    int rank, size, listener, peers, expected;
    uint64_t token;
    double timeout;
    struct peer *peer; /* rank 0: of the others; else one, rank 0 */
    pthread_t thread;
    int is_running;
    atomic_int stop, is_waiting, lost, taken; /* taken: TAKEN_BY_, 0 by none */
    atomic_uint calls;
    pthread_mutex_t lock; /* of text and the sending of messages */
    char text[WATCH_TEXT];
} w = {.listener = -1, .lock = PTHREAD_MUTEX_INITIALIZER};

/* ---- connections ---- */

static void token_text(uint64_t token, char out[WATCH_TEXT])
{
    snprintf(out, WATCH_TEXT, "%016llx", (unsigned long long)token);
}

static void send_to(int fd, enum kind kind, int rank, const char *text)
{
    struct message m = {.magic = MAGIC, .kind = kind, .rank = rank};
    str_copy(m.text, sizeof m.text, text);
    /* far below the size of a socket's buffer: written whole, or the peer is gone */
    ssize_t ignored = send(fd, &m, sizeof m, MSG_NOSIGNAL | MSG_DONTWAIT);
    (void)ignored;
}

static int set_flags(int fd)
{
    int flags = fcntl(fd, F_GETFL);
    return fcntl(fd, F_SETFD, FD_CLOEXEC) < 0 || flags < 0 ||
                   fcntl(fd, F_SETFL, flags | O_NONBLOCK) < 0
               ? -1
               : 0;
}

/* The addresses of this host; that of the loopback last, for ranks on the same host. */
static void list_addresses(struct watch_place *place)
{
    struct ifaddrs *all = NULL;
    if (getifaddrs(&all) != 0)
        all = NULL;
    for (const struct ifaddrs *a = all; a; a = a->ifa_next) {
        struct sockaddr_in in;
        if (!a->ifa_addr || a->ifa_addr->sa_family != AF_INET ||
            place->addresses >= WATCH_ADDRESSES - 1)
            continue;
        memcpy(&in, a->ifa_addr, sizeof in);
        if (in.sin_addr.s_addr != htonl(INADDR_LOOPBACK))
            place->address[place->addresses++] = in.sin_addr.s_addr;
    }
    if (all)
        freeifaddrs(all);
    place->address[place->addresses++] = htonl(INADDR_LOOPBACK);
}

int watch_listen(struct watch_place *place, int size, struct err *e)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_ANY)};
    socklen_t len = sizeof at;
    char id[17];
    memset(place, 0, sizeof *place);
    hash_random_id(id);
    place->token = w.token = hash64(id, sizeof id, 0);
    w.listener = socket(AF_INET, SOCK_STREAM, 0);
    if (w.listener < 0 || set_flags(w.listener) < 0 ||
        bind(w.listener, (struct sockaddr *)&at, sizeof at) < 0 ||
        listen(w.listener, size < 128 ? 128 : size) < 0 ||
        getsockname(w.listener, (struct sockaddr *)&at, &len) < 0)
        return err_errno(e, "socket for the ranks");
    place->port = at.sin_port;
    list_addresses(place);
    return 0;
}

static int connect_one(uint32_t address, uint16_t port, double until)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = address, .sin_port = port};
    int fd = socket(AF_INET, SOCK_STREAM, 0), failed = 0;
    socklen_t len = sizeof failed;
    if (fd < 0 || set_flags(fd) < 0)
        goto fail;
    if (connect(fd, (struct sockaddr *)&at, sizeof at) == 0)
        return fd;
    if (errno != EINPROGRESS)
        goto fail;
    for (struct pollfd p = {.fd = fd, .events = POLLOUT}; clock_mono() < until;)
        if (poll(&p, 1, 100) > 0)
            break;
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (poll(&ready, 1, 0) == 1 && getsockopt(fd, SOL_SOCKET, SO_ERROR, &failed, &len) == 0 &&
        failed == 0)
        return fd;
fail:
    if (fd >= 0)
        close(fd);
    return -1;
}

static int make_peers(int n, struct err *e)
{
    w.peer = mem_alloc((size_t)n, sizeof *w.peer);
    if (!w.peer)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", n);
    w.peers = n;
    for (int i = 0; i < n; i++)
        w.peer[i] = (struct peer){.fd = -1, .rank = -1};
    return 0;
}

int watch_connect(const struct watch_place *place, int rank, struct err *e)
{
    char text[WATCH_TEXT];
    int fd = -1, rc = make_peers(1, e);
    w.token = place->token;
    for (int i = 0; rc == 0 && i < place->addresses && fd < 0; i++)
        fd = connect_one(place->address[i], place->port, clock_mono() + 3);
    if (rc == 0 && fd < 0)
        rc = err_set(e, DS_EIO, "no connection to rank 0 on %s", ranks_host(0));
    if (rc < 0)
        return rc;
    token_text(w.token, text);
    send_to(fd, HELLO, rank, text);
    w.peer[0] = (struct peer){.fd = fd, .rank = 0, .heard = clock_mono()};
    return 0;
}

/* ---- losses ---- */

static void tell_all(enum kind kind, int rank, const char *text)
{
    for (int i = 0; i < w.peers; i++)
        if (w.peer[i].fd >= 0)
            send_to(w.peer[i].fd, kind, rank, text);
}

/* The first loss counts: others follow from it. */
static void lose(int rank, const char *why)
{
    char name[RANKS_HOST + 32];
    ranks_name(rank, name, sizeof name);
    pthread_mutex_lock(&w.lock);
    if (atomic_load(&w.lost) == 0) {
        snprintf(w.text, sizeof w.text, "%s: %s", name, why);
        atomic_store(&w.lost, 1 + rank);
        tell_all(LOST, rank, why);
    }
    pthread_mutex_unlock(&w.lock);
}

/* 1 for the first one that asks. */
static int take_report(int who)
{
    int nobody = 0;
    return atomic_compare_exchange_strong(&w.taken, &nobody, who);
}

int watch_lost(char text[WATCH_TEXT])
{
    int lost = atomic_load(&w.lost);
    if (lost == 0)
        return 0;
    (void)take_report(TAKEN_BY_WORK);
    pthread_mutex_lock(&w.lock);
    memcpy(text, w.text, sizeof w.text);
    pthread_mutex_unlock(&w.lock);
    return lost;
}

int watch_lost_rank(void)
{
    return atomic_load(&w.lost) - 1;
}

int watch_has_reported(void)
{
    return atomic_load(&w.taken) == TAKEN_BY_WATCH;
}

void watch_fail(const char *why)
{
    if (!w.is_running)
        return;
    (void)take_report(TAKEN_BY_WORK);
    lose(w.rank, why);
}

void watch_waits(int is_waiting)
{
    atomic_store(&w.is_waiting, is_waiting);
    atomic_fetch_add(&w.calls, 1);
}

/* ---- the thread ---- */

static void drop(struct peer *p, const char *why)
{
    close(p->fd);
    p->fd = -1;
    if (!p->is_over && p->rank >= 0 && !atomic_load(&w.stop))
        lose(p->rank, why);
}

static void take(struct peer *p)
{
    struct message *m = &p->in;
    char token[WATCH_TEXT];
    m->text[sizeof m->text - 1] = '\0';
    p->heard = clock_mono();
    token_text(w.token, token);
    if (m->magic != MAGIC || (p->rank < 0 && (m->kind != HELLO || strcmp(m->text, token) != 0 ||
                                              m->rank <= 0 || m->rank >= w.size)))
        drop(p, "spoke another language"); /* a stranger has no rank, and is not missed */
    else if (p->rank < 0)
        p->rank = m->rank;
    else if (m->kind == LOST && m->rank >= 0 && m->rank < w.size)
        lose(m->rank, m->text);
    else if (m->kind == BYE)
        p->is_over = 1;
}

static void hear(struct peer *p)
{
    while (p->fd >= 0) {
        ssize_t n = recv(p->fd, (char *)&p->in + p->have, sizeof p->in - p->have, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
            return;
        if (n <= 0) {
            drop(p, "ended unexpectedly");
            return;
        }
        p->have += (size_t)n;
        if (p->have < sizeof p->in)
            continue;
        p->have = 0;
        take(p);
    }
}

static void meet(void)
{
    int fd = accept(w.listener, NULL, NULL);
    if (fd < 0)
        return;
    for (int i = 0; i < w.peers; i++)
        if (w.peer[i].fd < 0 && !w.peer[i].is_over && set_flags(fd) == 0) {
            w.peer[i] = (struct peer){.fd = fd, .rank = -1, .heard = clock_mono()};
            return;
        }
    close(fd);
}

static void listen_for(int ms)
{
    struct pollfd few[64], *p = w.peers < 63 ? few : mem_alloc((size_t)w.peers + 1, sizeof *p);
    nfds_t n = 0;
    if (!p)
        return;
    for (int i = 0; i < w.peers; i++)
        if (w.peer[i].fd >= 0)
            p[n++] = (struct pollfd){.fd = w.peer[i].fd, .events = POLLIN};
    if (w.listener >= 0)
        p[n++] = (struct pollfd){.fd = w.listener, .events = POLLIN};
    if (poll(p, n, ms) > 0) {
        for (int i = 0; i < w.peers; i++)
            hear(&w.peer[i]);
        if (w.listener >= 0)
            meet();
    }
    if (p != few)
        mem_free(p);
}

/* What a rank does, as far as a thread can see: waiting is progress too, as the others answer for
 * it. */
struct pulse {
    uint64_t work;
    unsigned calls;
    double at;
};

static void feel(struct pulse *p)
{
    uint64_t work = pool_runs();
    unsigned calls = atomic_load(&w.calls);
    if (atomic_load(&w.is_waiting) || work != p->work || calls != p->calls)
        *p = (struct pulse){work, calls, clock_mono()};
    else if (clock_mono() - p->at > w.timeout) {
        char why[WATCH_TEXT];
        snprintf(why, sizeof why, "hangs: no progress for %.0f s (train.rank_timeout)", w.timeout);
        lose(w.rank, why);
    }
}

static void find_silent(void)
{
    char why[WATCH_TEXT];
    snprintf(why, sizeof why, "stopped: nothing heard for %.0f s (train.rank_timeout)", w.timeout);
    for (int i = 0; i < w.peers; i++) {
        struct peer *p = &w.peer[i];
        if (p->fd >= 0 && p->rank >= 0 && !p->is_over && clock_mono() - p->heard > w.timeout)
            lose(p->rank, why);
    }
}

/* Where the working thread does not get to it in time, say because a step takes long. */
static void end_late(double *since)
{
    if (atomic_load(&w.lost) == 0)
        return;
    double now = clock_mono();
    if (*since == 0)
        *since = now;
    int speaks = w.rank == 0 || (atomic_load(&w.lost) == 1 && w.rank == 1);
    if (now - *since > report_after && speaks && take_report(TAKEN_BY_WATCH)) {
        pthread_mutex_lock(&w.lock);
        fprintf(stderr, "depthscope: %s\n", w.text);
        pthread_mutex_unlock(&w.lock);
    }
    if (now - *since > end_after)
        _exit(1);
}

static void *watch_thread(void *none)
{
    struct pulse pulse = {.at = clock_mono()};
    double every = w.timeout / 8 < 0.5 ? w.timeout / 8 : 0.5, beat = 0, lost_at = 0;
    double woke = clock_mono();
    (void)none;
    while (!atomic_load(&w.stop)) {
        listen_for((int)(1e3 * every / 2));
        double now = clock_mono();
        if (now - woke > w.timeout / 2) /* this process was stopped: the others were not silent */
            for (int i = 0; i < w.peers; i++)
                w.peer[i].heard = pulse.at = now;
        woke = now;
        if (now - beat >= every) {
            pthread_mutex_lock(&w.lock);
            tell_all(BEAT, w.rank, "");
            pthread_mutex_unlock(&w.lock);
            beat = now;
        }
        feel(&pulse);
        find_silent();
        end_late(&lost_at);
    }
    return NULL;
}

static int connected(void)
{
    int n = 0;
    for (int i = 0; i < w.peers; i++)
        n += w.peer[i].fd >= 0 && w.peer[i].rank >= 0;
    return n;
}

int watch_start(int rank, int size, int expected, double timeout, struct err *e)
{
    sigset_t all, before;
    w.rank = rank;
    w.size = size;
    w.timeout = timeout;
    int rc = rank == 0 ? make_peers(size - 1, e) : 0;
    double until = clock_mono() + connect_within;
    while (rc == 0 && rank == 0 && connected() < expected && clock_mono() < until)
        listen_for(50);
    if (rc < 0)
        return rc;
    if (w.listener >= 0)
        close(w.listener);
    w.listener = -1;
    for (int i = 0; i < w.peers; i++) /* they may have waited for this thread */
        w.peer[i].heard = clock_mono();
    sigfillset(&all); /* signals are for the thread that works */
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int failed = pthread_create(&w.thread, NULL, watch_thread, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return err_set(e, DS_EIO, "thread for the ranks: %s", strerror(failed));
    w.is_running = 1;
    return 0;
}

void watch_stop(void)
{
    if (w.is_running) {
        pthread_mutex_lock(&w.lock);
        tell_all(BYE, w.rank, "");
        pthread_mutex_unlock(&w.lock);
        atomic_store(&w.stop, 1);
        pthread_join(w.thread, NULL);
    }
    w.is_running = 0;
    for (int i = 0; i < w.peers; i++)
        if (w.peer[i].fd >= 0)
            close(w.peer[i].fd);
    mem_free(w.peer);
    w.peer = NULL;
    w.peers = 0;
}
