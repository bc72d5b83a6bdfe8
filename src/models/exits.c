/* What leaving after a layer would predict, for decisions, labels and evaluations.  Logits exist
 * for a chunk of rows only. */
#include "models/exits.h"

#include <math.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "models/block.h"

enum { CHUNK_MAX = 1024 }; /* of head_chunk */

/* Predictions of n rows from one state each, as columns of the head (out_id of the model). */
struct reading {
    int n, V;
    const real *logits; /* (n, V) */
    int32_t best[CHUNK_MAX];
    real doubt[CHUNK_MAX], entropy[CHUNK_MAX];
};

/* KL(a || b) of each row. */
struct difference {
    const struct reading *a, *b;
    real *kl;
};

enum { ROWS = 16 };

static int parts(int n)
{
    return (n + ROWS - 1) / ROWS;
}

static void find_best(void *ctx, int task, int worker)
{
    struct reading *x = ctx;
    int end = (task + 1) * ROWS < x->n ? (task + 1) * ROWS : x->n;
    (void)worker;
    for (int i = task * ROWS; i < end; i++) {
        const real *y = x->logits + (size_t)i * (size_t)x->V;
        real top = y[0];
        int best = 0;
#pragma omp simd reduction(max : top)
        for (int v = 0; v < x->V; v++)
            top = y[v] > top ? y[v] : top;
        while (best < x->V && y[best] != top)
            best++;
        x->best[i] = best < x->V ? best : 0;
    }
}

/* With the loss of the most likely token come its probability and the normaliser. */
static void read_logits(struct reading *x, real *logits, int n, int V, int wants_entropy)
{
    x->n = n;
    x->V = V;
    x->logits = logits;
    pool_run(parts(n), find_best, x);
    xent_fwd_bwd(logits, x->best, NULL, 0, x->doubt, wants_entropy ? x->entropy : NULL, n, V);
}

static void find_difference(void *ctx, int task, int worker)
{
    const struct difference *d = ctx;
    size_t V = (size_t)d->a->V;
    int end = (task + 1) * ROWS < d->a->n ? (task + 1) * ROWS : d->a->n;
    (void)worker;
    for (int i = task * ROWS; i < end; i++) {
        const real *a = d->a->logits + (size_t)i * V, *b = d->b->logits + (size_t)i * V;
        real la = a[d->a->best[i]] + d->a->doubt[i], lb = b[d->b->best[i]] + d->b->doubt[i];
        double sum = 0;
        for (size_t v = 0; v < V; v++)
            sum += (double)(exp_r(a[v] - la) * ((a[v] - la) - (b[v] - lb)));
        d->kl[i] = sum > 0 || isnan(sum) ? (real)sum : 0; /* below 0 only by rounding */
    }
}

/* Rows whose logits are read at once; two states of each when they are compared. */
static int chunk_of(const struct model *m, int two)
{
    int n = head_chunk(m->config.vocab);
    n = n < m->R_max ? n : m->R_max;
    n = two && n > 1 ? n / 2 : n;
    return n < CHUNK_MAX ? n : CHUNK_MAX;
}

/* ---- every exit of a finished pass ---- */

static void unknown(const struct exit_values *x, size_t at)
{
    real *const values[] = {x->nll, x->doubt, x->confidence, x->entropy, x->kl};
    for (size_t k = 0; k < DS_LEN(values); k++)
        if (values[k])
            values[k][at] = (real)NAN;
    if (x->best)
        x->best[at] = 0;
    if (x->correct)
        x->correct[at] = 0;
}

/* Row i of the reading is row `first + i` of the pass. */
static void store(const struct model *m, const struct exit_values *x, const struct reading *y,
                  int l, int first)
{
    for (int i = 0; i < y->n; i++) {
        size_t at = (size_t)l * (size_t)m->R + (size_t)(first + i);
        const real *logits = y->logits + (size_t)i * (size_t)y->V;
        int target = m->batch->target ? m->batch->target[first + i] : -1;
        int column = model_column(m, target), best = m->out_id ? m->out_id[y->best[i]] : y->best[i];
        if (x->nll && target >= 0 && column < 0)
            x->nll[at] = (real)NAN;
        else if (x->nll)
            x->nll[at] = target < 0 ? 0 : y->doubt[i] + (logits[y->best[i]] - logits[column]);
        if (x->doubt)
            x->doubt[at] = y->doubt[i];
        if (x->confidence)
            x->confidence[at] = exp_r(-y->doubt[i]);
        if (x->entropy)
            x->entropy[at] = y->entropy[i];
        if (x->best)
            x->best[at] = best;
        if (x->correct)
            x->correct[at] = best == target;
    }
}

static void chunk_exits(struct model *m, const struct exit_values *x, int first, int n)
{
    struct reading reading[2];
    const struct route *r = &m->route;
    int32_t row[CHUNK_MAX];
    size_t V = (size_t)m->n_out;
    for (int i = 0; i < n; i++)
        row[i] = first + i;
    for (int t = 0; t < route_exits(r); t++) {
        int side = x->kl ? t % 2 : 0, l = route_exit(r, t);
        real *logits = m->logits + (size_t)side * (size_t)n * V;
        model_lens_columns(m, l, row, n, logits);
        read_logits(&reading[side], logits, n, (int)V, x->entropy != NULL);
        store(m, x, &reading[side], l, first);
        if (!x->kl || t == 0)
            continue;
        struct difference d = {&reading[side], &reading[1 - side],
                               x->kl + (size_t)l * (size_t)m->R + (size_t)first};
        pool_run(parts(n), find_difference, &d);
    }
}

/* The blocks after a loop change a prediction, and always run: what leaving an iteration predicts
 * comes from a pass that every token leaves there.  The last of them is a full one. */
static void run_exits(struct model *m, const struct exit_values *x)
{
    const struct exit_values y = {.nll = x->nll, .best = x->best, .correct = x->correct};
    const struct batch *b = m->batch;
    struct pass pass = m->route.pass;
    struct reading reading;
    int depth = model_config_depth(&m->config), chunk = chunk_of(m, 0), V = m->n_out;
    int32_t row[CHUNK_MAX];
    for (int t = 0; t < route_exits(&m->route); t++) {
        int l = route_exit(&m->route, t);
        pass.kind = PASS_DENSE;
        pass.inference = (struct pass_inference){.exit = l};
        if (l == 0) { /* cannot be asked for */
            for (size_t i = 0; i < (size_t)m->R; i++)
                unknown(&y, i);
            continue;
        }
        model_forward(m, b, &pass);
        for (int i = 0; i < m->R; i += chunk) {
            int n = m->R - i < chunk ? m->R - i : chunk;
            for (int k = 0; k < n; k++)
                row[k] = i + k;
            model_lens_columns(m, depth, row, n, m->logits);
            read_logits(&reading, m->logits, n, V, 0);
            store(m, &y, &reading, l, i);
        }
    }
}

void model_exits(struct model *m, const struct exit_values *x)
{
    struct pass pass = m->route.pass;
    int depth = model_config_depth(&m->config), chunk = chunk_of(m, x->kl != NULL);
    BUG_IF(!m->batch, "exits without a batch");
    for (size_t at = 0; at < (size_t)(depth + 1) * (size_t)m->R; at++)
        unknown(x, at);
    for (int i = 0; i < m->R; i += chunk)
        chunk_exits(m, x, i, m->R - i < chunk ? m->R - i : chunk);
    if (m->route.loop.end == depth || !(x->nll || x->best || x->correct))
        return;
    if (pass.kind == PASS_TRAIN) { /* whose states backward needs */
        const struct exit_values y = {.nll = x->nll, .best = x->best, .correct = x->correct};
        for (size_t at = 0; at < (size_t)(depth + 1) * (size_t)m->R; at++)
            unknown(&y, at);
        return;
    }
    run_exits(m, x);
    if (pass.kind != PASS_DENSE)
        model_forward(m, m->batch, &pass);
}

/* ---- the lens of a running pass ---- */

static void lens_read(void *ctx, int l, int before, const int32_t *row, int n,
                      const struct lens_values *out)
{
    struct model *m = ctx;
    struct reading here, there;
    int chunk = chunk_of(m, out->kl != NULL), V = m->n_out;
    for (int at = 0; at < n; at += chunk) {
        int k = n - at < chunk ? n - at : chunk;
        real *other = m->logits + (size_t)k * (size_t)V;
        model_lens_columns(m, l, row + at, k, m->logits);
        read_logits(&here, m->logits, k, V, out->entropy != NULL);
        if (out->kl) {
            model_lens_columns(m, before, row + at, k, other);
            read_logits(&there, other, k, V, 0);
            struct difference d = {&here, &there, out->kl + at};
            pool_run(parts(k), find_difference, &d);
        }
        for (int i = 0; i < k; i++) {
            if (out->doubt)
                out->doubt[at + i] = here.doubt[i];
            if (out->entropy)
                out->entropy[at + i] = here.entropy[i];
            flops_decision(&m->flops, l, row[at + i],
                           (out->kl ? 2 : 1) * flops_head_row(&m->flops));
        }
    }
}

static void lens_normed(void *ctx, enum route_norm of, int l, const int32_t *row, int n, real *out)
{
    if (of == ROUTE_NORM_FINAL)
        model_lens_states(ctx, l, row, n, out);
    else
        block_normed(ctx, l, of == ROUTE_NORM_FFN, row, n, out);
}

static void lens_count(void *ctx, int l, const int32_t *row, int n, double each)
{
    struct model *m = ctx;
    for (int k = 0; k < n; k++)
        flops_decision(&m->flops, l, row[k], each);
}

struct route_lens model_lens_of(struct model *m)
{
    return (struct route_lens){m, lens_read, lens_normed, lens_count};
}
