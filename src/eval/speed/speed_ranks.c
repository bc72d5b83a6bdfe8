/* Times what a training step on several ranks consists of, on all of them at once, and predicts the
 * step of more ranks on other links (data/reference/SCALING.md). */
#include <math.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/ranks.h"
#include "speed_impl.h"

enum {
    MESSAGES = 64,       /* exchanges of one sample */
    RING = 16 << 20,     /* bytes to the next rank */
    ADDED = 16 << 20,    /* elements */
    PART = 4 << 20,      /* elements of the gradients exchanged at once: training/pieces.c */
    SMALL_EXCHANGES = 4, /* of a step: its order, agreement, counts and report */
    SPAN = 16384
};

static const struct link {
    const char *name;
    double bytes, latency; /* per second and direction; seconds of a message under way */
} links[] = {
    {"as here", 0, 0},
    {"10 Gbit/s", 1.25e9, 30e-6},
    {"100 Gbit/s", 12.5e9, 3e-6},
};
static const int sizes[] = {8, 16, 32, 64, 128, 256, 512, 1024};

struct constants {
    double step;    /* seconds of the slowest rank's own work */
    double message; /* seconds that one message of a few bytes takes of a rank */
    double link;    /* bytes/s that a rank sends while it receives as many */
    double add;     /* bytes/s of to = to + from: two read, one written */
    double weights; /* gradients to be summed */
    double last;    /* of these, the embedding's and the first block's: complete at its end */
};

/* Gradients of n weights there and back, and their addition. */
static double sum_of(const struct constants *k, const struct link *l, int ranks, double n)
{
    double others = (ranks - 1.0) / ranks, bytes = sizeof(float) * n;
    return 2 * others * bytes / (l->bytes > 0 ? l->bytes : k->link) + 3 * others * bytes / k->add;
}

/* Seconds of a step: own work, the messages, and what backward does not hide of the gradients. */
static double step_of(const struct constants *k, const struct link *l, int ranks)
{
    const double backward = 0.6; /* of the own work, while gradients of blocks leave */
    double exchanges = 2 * ceil(k->weights / PART) + SMALL_EXCHANGES,
           left = sum_of(k, l, ranks, k->weights - k->last) - backward * k->step;
    if (ranks == 1)
        return k->step;
    return k->step + exchanges * (l->latency + (ranks - 1) * k->message) + (left > 0 ? left : 0) +
           sum_of(k, l, ranks, k->last);
}

/* ---- measurements: seconds of the slowest rank ---- */

static int slowest(double *seconds, struct err *e)
{
    double *all = mem_alloc((size_t)ranks_size(), sizeof *all);
    if (!all)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", ranks_size());
    int rc = ranks_gather(all, seconds, sizeof *seconds, e);
    for (int r = 0; r < ranks_size() && rc == 0; r++)
        *seconds = all[r] > *seconds ? all[r] : *seconds;
    mem_free(all);
    return rc;
}

/* Every rank exchanges a few bytes with every other. */
static int time_messages(double *seconds, struct err *e)
{
    int n = ranks_size(), me = ranks_rank(), k = 0, rc = 0;
    char byte[2][8] = {{0}};
    struct ranks_part *send = mem_alloc((size_t)n, 2 * sizeof *send);
    if (!send)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", n);
    struct ranks_part *receive = send + n;
    for (int r = 0; r < n; r++)
        if (r != me) {
            send[k] = (struct ranks_part){r, byte[0], sizeof byte[0]};
            receive[k++] = (struct ranks_part){r, byte[1], sizeof byte[1]};
        }
    rc = ranks_barrier(e);
    double t = clock_mono();
    for (int i = 0; i < MESSAGES && rc == 0; i++)
        rc = ranks_exchange(send, k, receive, k, e);
    *seconds = (clock_mono() - t) / MESSAGES / (n - 1);
    mem_free(send);
    return rc == 0 ? slowest(seconds, e) : rc;
}

/* Every rank sends to the next and receives from the one before. */
static int time_link(double *seconds, char *out, char *in, struct err *e)
{
    int n = ranks_size(), me = ranks_rank();
    struct ranks_part send = {(me + 1) % n, out, RING}, receive = {(me + n - 1) % n, in, RING};
    int rc = ranks_barrier(e);
    double t = clock_mono();
    if (rc == 0)
        rc = ranks_exchange(&send, 1, &receive, 1, e);
    *seconds = clock_mono() - t;
    return rc == 0 ? slowest(seconds, e) : rc;
}

struct addition {
    float *to;
    const float *from;
};

static void add_span(void *ctx, int task, int worker)
{
    const struct addition *a = ctx;
    (void)worker;
#pragma omp simd
    for (size_t i = (size_t)task * SPAN; i < (size_t)(task + 1) * SPAN; i++)
        a->to[i] += a->from[i];
}

static int time_add(double *seconds, float *v, struct err *e)
{
    struct addition a = {v, v + ADDED};
    int rc = ranks_barrier(e);
    double t = clock_mono();
    pool_run(ADDED / SPAN, add_span, &a);
    *seconds = clock_mono() - t;
    return rc == 0 ? slowest(seconds, e) : rc;
}

/* ---- results ---- */

static int add_link(struct speed *s, const struct constants *k, const struct link *l, int ranks,
                    struct err *e)
{
    double ms[SPEED_ROUNDS_MAX], own[SPEED_ROUNDS_MAX];
    char name[64];
    int rounds = (int)s->o.rounds;
    for (int i = 0; i < rounds; i++) {
        ms[i] = 1e3 * step_of(&k[i], l, ranks);
        own[i] = 1e3 * k[i].step;
    }
    snprintf(name, sizeof name, "step predicted, %d ranks, %s", ranks, l->name);
    struct speed_result *r = speed_add(s, "ranks", name, "ms", ms, rounds, e);
    if (r)
        r->share = speed_median_ratio(own, ms, rounds);
    return r ? 0 : DS_EMEM;
}

static int add_constants(struct speed *s, const struct constants *k, struct err *e)
{
    double v[4][SPEED_ROUNDS_MAX];
    int rounds = (int)s->o.rounds, rc = 0;
    for (int i = 0; i < rounds; i++) {
        v[0][i] = 1e3 * k[i].step;
        v[1][i] = 1e6 * k[i].message;
        v[2][i] = 1e-9 * k[i].link;
        v[3][i] = 1e-9 * k[i].add;
    }
    static const char *const name[] = {"own work of a step", "message", "link, each direction",
                                       "addition in memory"},
                      *const unit[] = {"ms", "us", "GB/s", "GB/s"};
    for (int i = 0; i < 4 && rc == 0; i++)
        rc = speed_add(s, "ranks", name[i], unit[i], v[i], rounds, e) ? 0 : DS_EMEM;
    return rc;
}

static int measure(struct speed *s, struct constants *k, struct err *e)
{
    double seconds[SPEED_ROUNDS_MAX], weights = 0, t = (double)NAN;
    char *ring = mem_alloc_aligned(2, RING);
    float *added = mem_alloc_aligned((size_t)2 * ADDED, sizeof *added);
    int rounds = (int)s->o.rounds, rc = 0;
    if (!ring || !added)
        rc = err_set(e, DS_EMEM, "out of memory for the benchmark of ranks");
    else
        rc = speed_dense_steps(s, ranks_barrier, seconds, &weights, e);
    double embedding = (double)(s->o.vocab * s->o.dim),
           last = embedding + (weights - embedding) / (double)s->o.layers;
    for (int i = -1; i < rounds && rc == 0; i++) { /* the first warms up */
        struct constants *x = &k[i < 0 ? 0 : i];
        *x = (struct constants){
            .step = seconds[i < 0 ? 0 : i], .weights = weights, .last = last};
        rc = slowest(&x->step, e);
        if (rc == 0)
            rc = time_messages(&x->message, e);
        if (rc == 0)
            rc = time_link(&t, ring, ring + RING, e);
        x->link = RING / t;
        if (rc == 0)
            rc = time_add(&t, added, e);
        x->add = 3.0 * ADDED * sizeof *added / t;
    }
    mem_free_aligned(ring);
    mem_free_aligned(added);
    return rc;
}

int speed_ranks(struct speed *s, struct err *e)
{
    struct constants k[SPEED_ROUNDS_MAX];
    if (ranks_size() == 1)
        return err_set(e, DS_EUSAGE,
                       "bench: only=ranks measures several processes; build with make MPI=1, start "
                       "with mpirun -n N");
    int rc = measure(s, k, e);
    if (rc == 0)
        rc = add_constants(s, k, e);
    if (rc == 0)
        rc = add_link(s, k, &links[0], ranks_size(), e);
    for (size_t l = 1; l < DS_LEN(links); l++)
        for (size_t i = 0; i < DS_LEN(sizes) && rc == 0; i++)
            rc = add_link(s, k, &links[l], sizes[i], e);
    return rc;
}
