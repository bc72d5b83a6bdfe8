/* How far a block moved each token, and a small network's prediction of it, with their
 * gradients. */
#include "routing/change.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "routing/surprise.h"

int change_init(struct change *x, struct params *ps, const char *prefix,
                const struct change_shape *shape, struct err *e)
{
    int rc = 0;
    memset(x, 0, sizeof *x);
    x->is = *shape;
    x->prior = mem_alloc((size_t)shape->pairs, sizeof *x->prior);
    x->error = mem_alloc((size_t)shape->pairs, sizeof *x->error);
    x->guessed = mem_alloc((size_t)shape->pairs, sizeof *x->guessed);
    if (!x->prior || !x->error || !x->guessed)
        return err_set(e, DS_EMEM, "%s: %d pairs of layers", prefix, shape->pairs);
    for (int k = 0; k < shape->pairs && rc == 0; k++) {
        char name[64];
        snprintf(name, sizeof name, "%s.prior.%d", prefix, 2 * k);
        rc = prior_init(&x->prior[k], ps, name, &shape->net, e);
    }
    return rc;
}

/* Called once to measure and once to allocate. */
void change_layout(struct change *x, struct arena *a, int rows)
{
    size_t R = (size_t)rows;
    size_t cells = R * (size_t)x->is.pairs, chunk = (size_t)PRIOR_ROWS * (size_t)x->is.net.C;
    x->d_st = arena_alloc(a, cells, sizeof(double));
    x->d_ch = arena_alloc(a, cells, sizeof(double));
    x->ma = arena_alloc(a, cells, sizeof(double));
    x->dd_st = arena_alloc(a, R, sizeof(double));
    x->dd_ch = arena_alloc(a, R, sizeof(double));
    x->past = arena_alloc(a, (size_t)x->is.window - 1 + R, sizeof(double));
    real **part[] = {&x->guess, &x->dguess, &x->in, &x->din};
    for (size_t k = 0; k < DS_LEN(part); k++)
        *part[k] = arena_alloc(a, chunk, sizeof(real));
    prior_scratch_layout(&x->scratch, a, x->is.net.C, x->is.net.D);
    x->R_max = rows;
}

void change_release(struct change *x)
{
    mem_free(x->prior);
    mem_free(x->error);
    mem_free(x->guessed);
    memset(x, 0, sizeof *x);
}

/* ---- state of a cached sequence -------------------------------------------------------------- */

/* Per pair: the number of tokens so far, D_st of the last W - 1, and the last post (by_last). */

struct memory {
    double *seen, *d_st;
    real *post;
};

static struct memory memory_of(const struct change *x, const struct pass *p, int pair, int i)
{
    size_t W = (size_t)x->is.window; /* the count and W - 1 values */
    double *d = p->memory[i / p->T];
    real *post = (real *)(void *)(d + W * (size_t)x->is.pairs);
    return (struct memory){d + W * (size_t)pair, d + W * (size_t)pair + 1,
                           post + (size_t)pair * (size_t)x->is.net.C};
}

size_t change_memory(const struct change *x)
{
    size_t post = x->is.by_last ? (size_t)x->is.net.C * sizeof(real) : 0;
    return (size_t)x->is.pairs * ((size_t)x->is.window * sizeof(double) + post);
}

/* Is row i the first of its document? */
static int begins(const struct change *x, const struct pass *p, int pair, int i)
{
    if (p->memory && i % p->T == 0)
        return *memory_of(x, p, pair, i).seen <= 0;
    return i % p->T == 0 || p->pos[i] == 0;
}

/* The last row before row i that it sees; one before a document's start where there is none. */
static int row_before(const struct pass *p, int i)
{
    int j = i - 1, span = route_span(p, i);
    while (j >= 0 && route_span(p, j) >= 0 && route_span(p, j) != span)
        j = route_span(p, j) - 1;
    return j;
}

/* ---- forward --------------------------------------------------------------------------------- */

static int rows_at(const struct pass *p, int i0)
{
    return p->R - i0 < PRIOR_ROWS ? p->R - i0 : PRIOR_ROWS;
}

/* The network's input for rows i0 .. i0 + N. */
static const real *input_of(struct change *x, const struct pass *p, int pair, int i0, int N,
                            const real *orig, const real *post)
{
    size_t C = (size_t)x->is.net.C;
    if (!x->is.by_last)
        return orig + (size_t)i0 * C;
    for (int k = 0; k < N; k++) {
        real *in = x->in + (size_t)k * C;
        int i = i0 + k;
        if (begins(x, p, pair, i))
            memset(in, 0, C * sizeof *in);
        else
            memcpy(in,
                   p->memory && i % p->T == 0 ? memory_of(x, p, pair, i).post
                                              : post + (size_t)row_before(p, i) * C,
                   C * sizeof *in);
    }
    return x->in;
}

/* mean (guess - dx)^2; guess NULL = 0. */
static double change_of(const real *orig, const real *post, const real *guess, int C)
{
    double sum = 0;
    for (int c = 0; c < C; c++) {
        double dx = (double)post[c] - (double)orig[c], miss = (guess ? (double)guess[c] : 0) - dx;
        sum += miss * miss;
    }
    return sum / C;
}

static void measure(struct change *x, const struct pass *p, int pair, const real *orig,
                    const real *post, int wants_guess)
{
    int C = x->is.net.C;
    x->guessed[pair] = wants_guess;
    double *d_st = x->d_st + (size_t)pair * (size_t)p->R,
           *d_ch = x->d_ch + (size_t)pair * (size_t)p->R, sum = 0;
    for (int i0 = 0; i0 < p->R; i0 += PRIOR_ROWS) {
        int N = rows_at(p, i0);
        if (wants_guess)
            prior_fwd(&x->prior[pair], &x->scratch, x->guess,
                      input_of(x, p, pair, i0, N, orig, post), N);
        for (int k = 0; k < N; k++) {
            size_t at = (size_t)(i0 + k) * (size_t)C;
            d_st[i0 + k] = change_of(orig + at, post + at, NULL, C);
            d_ch[i0 + k] = (double)NAN;
            if (!wants_guess)
                continue;
            d_ch[i0 + k] = change_of(orig + at, post + at, x->guess + (size_t)k * (size_t)C, C);
            sum += d_ch[i0 + k];
        }
    }
    x->error[pair] = p->R > 0 ? sum / p->R : 0;
}

static void remember(struct change *x, const struct pass *p, int pair, const real *post, int i0,
                     int n, int before)
{
    struct memory m = memory_of(x, p, pair, i0);
    int keep = before + n < x->is.window - 1 ? before + n : x->is.window - 1;
    size_t C = (size_t)x->is.net.C;
    memcpy(m.d_st, x->past + before + n - keep, (size_t)keep * sizeof *m.d_st);
    *m.seen += n;
    if (x->is.by_last)
        memcpy(m.post, post + (size_t)(i0 + n - 1) * C, C * sizeof *post);
}

/* Rows [i0, i0 + n): one cached sequence, or the whole pass. */
static void average_rows(struct change *x, const struct pass *p, int pair, const real *post, int i0,
                         int n)
{
    const double *d_st = x->d_st + (size_t)pair * (size_t)p->R;
    double *ma = x->ma + (size_t)pair * (size_t)p->R;
    int W = x->is.window, before = 0, first = 0;
    int at = -1, shared = -1; /* in past: the newest value, and that of a row that all see */
    if (p->memory) {
        struct memory m = memory_of(x, p, pair, i0);
        before = *m.seen < W - 1 ? (int)*m.seen : W - 1;
        memcpy(x->past, m.d_st, (size_t)before * sizeof *x->past);
        at = shared = before - 1;
    }
    for (int i = i0; i < i0 + n; i++) {
        int span = route_span(p, i);
        /* what the row does not see is overwritten */
        at = (span < 0 || span == i ? shared : at) + 1;
        shared = span < 0 ? at : shared;
        first = begins(x, p, pair, i) ? at : first;
        x->past[at] = d_st[i];
        ma[i] = surprise_average(x->past, first, at, W, x->is.replicate);
    }
    if (p->memory)
        remember(x, p, pair, post, i0, n, before);
}

static void average(struct change *x, const struct pass *p, int pair, const real *post)
{
    int n = p->memory ? p->T : p->R;
    for (int i0 = 0; i0 < p->R; i0 += n)
        average_rows(x, p, pair, post, i0, n);
}

void change_measure(struct change *x, const struct pass *p, int pair, const real *orig,
                    const real *post, int wants_guess)
{
    BUG_IF(p->R > x->R_max, "change of %d rows, reserved %d", p->R, x->R_max);
    measure(x, p, pair, orig, post, wants_guess);
    average(x, p, pair, post);
}

/* ---- backward -------------------------------------------------------------------------------- */

/* Backward from dguess of rows i0 .. i0 + N into the network and its input; dorig and dpost NULL:
 * the input is a constant. */
static void network_bwd(struct change *x, const struct pass *p, int pair, int i0, int N,
                        const real *in, real *dorig, real *dpost)
{
    size_t C = (size_t)x->is.net.C;
    int is_direct = dorig && !x->is.by_last;
    memset(x->din, 0, (size_t)N * C * sizeof *x->din);
    prior_bwd(&x->prior[pair], &x->scratch, is_direct ? dorig + (size_t)i0 * C : x->din, x->dguess,
              in, N);
    for (int k = 0; dpost && x->is.by_last && k < N; k++) {
        int i = i0 + k, from = row_before(p, i); /* the input was that row's post */
        for (size_t c = 0; from >= 0 && c < C && !begins(x, p, pair, i); c++)
            dpost[(size_t)from * C + c] += x->din[(size_t)k * C + c];
    }
}

/* One row: before and after the block, the network's guess (NULL: none), and their gradients. */
struct change_row {
    const real *orig, *post, *guess;
    real *dorig, *dpost, *dguess;
};

/* miss = guess - dx; d D_st = 2/C dx ddx; d D_ch = 2/C miss (dguess - ddx). */
static void distances_bwd(const struct change_row *x, int C, double dst, double dch)
{
    for (int c = 0; c < C; c++) {
        double dx = (double)x->post[c] - (double)x->orig[c];
        double miss = x->guess ? (double)x->guess[c] - dx : 0;
        double ddx = 2 * (dst * dx - dch * miss) / C;
        x->dpost[c] += (real)ddx;
        x->dorig[c] -= (real)ddx;
        x->dguess[c] = (real)(2 * dch * miss / C);
    }
}

void change_bwd(struct change *x, const struct pass *p, int pair, real *dorig, real *dpost,
                const real *orig, const real *post)
{
    size_t C = (size_t)x->is.net.C;
    int guessed = x->guessed[pair];
    for (int i0 = 0; i0 < p->R; i0 += PRIOR_ROWS) {
        int N = rows_at(p, i0);
        const real *in = guessed ? input_of(x, p, pair, i0, N, orig, post) : NULL;
        if (guessed)
            prior_fwd(&x->prior[pair], &x->scratch, x->guess, in, N);
        for (int k = 0; k < N; k++) {
            size_t here = (size_t)k * C, at = (size_t)(i0 + k) * C;
            struct change_row row = {orig + at,  post + at,  guessed ? x->guess + here : NULL,
                                     dorig + at, dpost + at, x->dguess + here};
            distances_bwd(&row, x->is.net.C, x->dd_st[i0 + k], x->dd_ch[i0 + k]);
        }
        if (guessed)
            network_bwd(x, p, pair, i0, N, in, dorig, dpost);
    }
}

void change_loss_bwd(struct change *x, const struct pass *p, int pair, double weight, real *dorig,
                     real *dpost, const real *orig, const real *post)
{
    size_t C = (size_t)x->is.net.C;
    double price = 2 * weight / ((double)C * p->R);
    int moves_orig = dorig && !x->is.by_last; /* prior = orig + guess */
    BUG_IF(!x->guessed[pair], "pair %d has no guess to learn from", pair);
    for (int i0 = 0; i0 < p->R; i0 += PRIOR_ROWS) {
        int N = rows_at(p, i0);
        size_t at = (size_t)i0 * C;
        const real *in = input_of(x, p, pair, i0, N, orig, post);
        prior_fwd(&x->prior[pair], &x->scratch, x->guess, in, N);
        for (size_t k = 0; k < (size_t)N * C; k++) {
            double dx = (double)post[at + k] - (double)orig[at + k];
            x->dguess[k] = (real)(price * ((double)x->guess[k] - dx));
            if (moves_orig)
                dorig[at + k] += x->dguess[k];
        }
        network_bwd(x, p, pair, i0, N, in, dorig, dpost);
    }
}
