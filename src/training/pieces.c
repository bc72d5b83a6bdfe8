/* The tree over the pieces of a step: blocks of gradients on this rank, nodes of other ranks, and
 * the numbers beside them. */
#include "training/pieces.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/ranks.h"

enum { SPAN = 16384, PART = 4 << 20 /* elements of the gradients exchanged at once */ };

/* ---- the tree ---- */

/* The first of n things of a part, when they are divided evenly; earlier parts are larger. */
static int first_of(int part, int parts, int n)
{
    int each = n / parts, more = n % parts;
    return part * each + (part < more ? part : more);
}

int pieces_first(const struct pieces *x, int p)
{
    return first_of(p, x->n, x->batch);
}

static int is_root(int n, struct piece_node k)
{
    return k.i == 0 && (int64_t)1 << k.level >= n;
}

/* Has no right sibling: moves up. */
static int is_alone(int n, struct piece_node k)
{
    return k.i % 2 == 0 && (int64_t)(k.i + 1) << k.level >= n && !is_root(n, k);
}

static int are_siblings(struct piece_node a, struct piece_node b)
{
    return a.level == b.level && a.i % 2 == 0 && b.i == a.i + 1;
}

/* Appends a node and reduces the stack; add(ctx, left) adds stack entry left + 1 to left. */
static int push(struct piece_node *stack, int depth, int n, struct piece_node k,
                void (*add)(void *ctx, int left, int is_last), void *ctx)
{
    stack[depth++] = k;
    for (;;) {
        struct piece_node *top = &stack[depth - 1];
        if (is_alone(n, *top)) {
            *top = (struct piece_node){top->level + 1, top->i / 2};
        } else if (depth > 1 && are_siblings(top[-1], *top)) {
            top[-1] = (struct piece_node){top->level + 1, top->i / 2};
            depth--;
            if (add)
                add(ctx, depth - 1, is_root(n, top[-1]));
        } else {
            return depth;
        }
    }
}

/* The nodes that pieces begin..end - 1 add up to; *most: the deepest stack. */
static int nodes_of(struct piece_node out[PIECE_NODES], int begin, int end, int n, int *most)
{
    int depth = 0;
    for (int p = begin; p < end; p++) {
        if (most && depth + 1 > *most)
            *most = depth + 1;
        depth = push(out, depth, n, (struct piece_node){0, p}, NULL, NULL);
    }
    return depth;
}

static int blocks_of(int begin, int end, int n)
{
    struct piece_node nodes[PIECE_NODES];
    int most = 0;
    (void)nodes_of(nodes, begin, end, n, &most);
    return most;
}

double pieces_bytes(int pieces, int ranks, double n)
{
    if (pieces <= 1)
        return 0;
    int more = blocks_of(0, first_of(1, ranks, pieces), pieces) - 1;
    double inbox = ranks > 1 ? 2 * (n < PART ? n : PART) : 0; /* about */
    return sizeof(real) * (more * n + inbox);
}

/* ---- elements ---- */

struct add_job {
    real *to, *from;
    size_t n;
    real scale;
};

static void add_span(void *ctx, int task, int worker)
{
    const struct add_job *j = ctx;
    size_t i = (size_t)task * SPAN, end = j->n - i < SPAN ? j->n : i + SPAN;
    (void)worker;
#pragma omp simd
    for (size_t k = i; k < end; k++)
        j->to[k] = (j->to[k] + j->from[k]) * j->scale;
    memset(j->from + i, 0, (end - i) * sizeof *j->from);
}

/* to = (to + from) * scale, from = 0. */
static void add_block(real *to, real *from, size_t n, real scale)
{
    struct add_job j = {to, from, n, scale};
    pool_run((int)((n + SPAN - 1) / SPAN), add_span, &j);
}

static void scale_span(void *ctx, int task, int worker)
{
    const struct add_job *j = ctx;
    size_t i = (size_t)task * SPAN, end = j->n - i < SPAN ? j->n : i + SPAN;
    (void)worker;
#pragma omp simd
    for (size_t k = i; k < end; k++)
        j->to[k] *= j->scale;
}

static double share_of(const struct pieces *x, int p)
{
    return (double)(pieces_first(x, p + 1) - pieces_first(x, p)) / x->batch;
}

/* What a sum is multiplied by: pieces of one size have their share in common. */
static real last_scale(const struct pieces *x, int is_last)
{
    return x->is_even && is_last ? (real)share_of(x, 0) : 1;
}

/* ---- set-up ---- */

int pieces_init(struct pieces *x, int n, int batch, struct params *ps, struct err *e)
{
    int ranks = ranks_size(), rank = ranks_rank();
    *x = (struct pieces){.n = n, .batch = batch};
    if (n <= 1)
        return 0;
    BUG_IF(n > batch || n < ranks, "%d pieces of %d sequences on %d ranks", n, batch, ranks);
    x->begin = first_of(rank, ranks, n);
    x->end = first_of(rank + 1, ranks, n);
    x->is_even = batch % n == 0;
    x->grads = params_grads(ps, &x->home);
    x->blocks = blocks_of(x->begin, x->end, n);
    BUG_IF(x->blocks > PIECE_NODES, "%d blocks of gradients", x->blocks);
    x->block[0] = x->home;
    if (x->blocks > 1) {
        x->store = mem_alloc_aligned((size_t)(x->blocks - 1) * x->grads, sizeof(real));
        if (!x->store)
            return err_set(e, DS_EMEM, "out of memory for the gradients of %d pieces", x->blocks);
    }
    for (int k = 1; k < x->blocks; k++)
        x->block[k] = x->store + (size_t)(k - 1) * x->grads;
    return 0;
}

void pieces_release(struct pieces *x)
{
    mem_free_aligned(x->store);
    mem_free_aligned(x->inbox);
    mem_free(x->all);
    memset(x, 0, sizeof *x);
}

/* ---- gradients ---- */

void pieces_begin(struct pieces *x, struct params *ps)
{
    params_use_grads(ps, x->block[x->nodes]);
}

static void add_own(void *ctx, int left, int is_last)
{
    struct pieces *x = ctx;
    add_block(x->block[left], x->block[left + 1], x->grads, last_scale(x, is_last));
}

void pieces_end(struct pieces *x, int p)
{
    struct add_job j = {.to = x->block[x->nodes], .n = x->grads, .scale = (real)share_of(x, p)};
    if (!x->is_even)
        pool_run((int)((j.n + SPAN - 1) / SPAN), scale_span, &j);
    x->nodes = push(x->node, x->nodes, x->n, (struct piece_node){0, p}, add_own, x);
}

/* The nodes of all ranks in order, for a part of the elements that this rank adds up. */
struct merge {
    const struct pieces *x;
    struct piece_node stack[PIECE_NODES];
    real *at[PIECE_NODES]; /* the values of each */
    int depth;
    size_t n;
};

static void add_merged(void *ctx, int left, int is_last)
{
    struct merge *m = ctx;
    add_block(m->at[left], m->at[left + 1], m->n, last_scale(m->x, is_last));
}

static int grow_inbox(struct pieces *x, size_t n, struct err *e)
{
    if (n <= x->inbox_n)
        return 0;
    mem_free_aligned(x->inbox);
    x->inbox_n = 0;
    x->inbox = mem_alloc_aligned(n, sizeof(real));
    if (!x->inbox)
        return err_set(e, DS_EMEM, "out of memory for gradients of other ranks");
    x->inbox_n = n;
    return 0;
}

/* Elements of a part that rank r adds up: whole lines of the cache. */
static size_t own_first(int r, int ranks, size_t n)
{
    enum { LINE = 64 };
    size_t lines = (n + LINE - 1) / LINE, at = lines * (size_t)r / (size_t)ranks * LINE;
    return at < n ? at : n;
}

struct parts {
    struct ranks_part *send, *receive;
    int sends, receives;
};

static struct ranks_part *part_of(struct ranks_part *to, int rank, real *p, size_t n)
{
    *to = (struct ranks_part){rank, p, n * sizeof *p};
    return to;
}

/* My nodes to those who add them up, theirs to me. */
static int trade(struct pieces *x, struct parts *o, struct merge *m, size_t at, size_t n,
                 struct err *e)
{
    int ranks = ranks_size(), me = ranks_rank();
    size_t mine = own_first(me, ranks, n);
    m->n = own_first(me + 1, ranks, n) - mine;
    struct piece_node nodes[PIECE_NODES];
    size_t all = 0;
    for (int r = 0; r < ranks; r++)
        if (r != me)
            all += (size_t)nodes_of(nodes, first_of(r, ranks, x->n), first_of(r + 1, ranks, x->n),
                                    x->n, NULL);
    int rc = grow_inbox(x, all * m->n, e);
    if (rc < 0)
        return rc;
    real *in = x->inbox;
    o->sends = o->receives = 0;
    for (int r = 0; r < ranks; r++) {
        size_t first = own_first(r, ranks, n), last = own_first(r + 1, ranks, n);
        int k = nodes_of(nodes, first_of(r, ranks, x->n), first_of(r + 1, ranks, x->n), x->n, NULL);
        for (int i = 0; r != me && i < x->nodes; i++)
            part_of(&o->send[o->sends++], r, x->block[i] + at + first, last - first);
        for (int i = 0; r != me && i < k; i++, in += m->n)
            part_of(&o->receive[o->receives++], r, in, m->n);
    }
    return ranks_exchange(o->send, o->sends, o->receive, o->receives, e);
}

/* at: of this rank's elements. */
static void merge_all(struct pieces *x, struct merge *m, size_t at)
{
    int ranks = ranks_size(), me = ranks_rank();
    real *in = x->inbox;
    struct piece_node nodes[PIECE_NODES];
    m->depth = 0;
    for (int r = 0; r < ranks; r++) {
        int k = nodes_of(nodes, first_of(r, ranks, x->n), first_of(r + 1, ranks, x->n), x->n, NULL);
        for (int i = 0; i < k; i++) {
            m->at[m->depth] = r == me ? x->block[i] + at : in;
            in += r == me ? 0 : m->n;
            m->depth = push(m->stack, m->depth, x->n, nodes[i], add_merged, m);
        }
    }
}

/* The sums of a part to all ranks, into their own block. */
static int spread(struct pieces *x, struct parts *o, size_t at, size_t n, struct err *e)
{
    int ranks = ranks_size(), me = ranks_rank();
    size_t mine = own_first(me, ranks, n), my_n = own_first(me + 1, ranks, n) - mine;
    o->sends = o->receives = 0;
    for (int r = 0; r < ranks; r++) {
        size_t first = own_first(r, ranks, n), last = own_first(r + 1, ranks, n);
        if (r == me)
            continue;
        part_of(&o->send[o->sends++], r, x->home + at + mine, my_n);
        part_of(&o->receive[o->receives++], r, x->home + at + first, last - first);
    }
    return ranks_exchange(o->send, o->sends, o->receive, o->receives, e);
}

static int sum_part(struct pieces *x, struct parts *o, size_t at, size_t n, struct err *e)
{
    struct merge m = {.x = x};
    size_t mine = own_first(ranks_rank(), ranks_size(), n);
    int rc = trade(x, o, &m, at, n, e);
    if (rc < 0)
        return rc;
    merge_all(x, &m, at + mine);
    if (m.n > 0 && m.at[0] != x->home + at + mine)
        memcpy(x->home + at + mine, m.at[0], m.n * sizeof(real));
    return spread(x, o, at, n, e);
}

int pieces_sum(struct pieces *x, struct params *ps, struct err *e)
{
    size_t most = (size_t)ranks_size() * PIECE_NODES;
    struct parts o = {0};
    int rc = 0;
    params_use_grads(ps, x->home);
    if (ranks_size() > 1) {
        o.send = mem_alloc(2 * most, sizeof *o.send);
        if (!o.send)
            return err_set(e, DS_EMEM, "out of memory for the parts of %d ranks", ranks_size());
        o.receive = o.send + most;
        for (size_t at = 0; rc == 0 && at < x->grads; at += PART)
            rc = sum_part(x, &o, at, x->grads - at < PART ? x->grads - at : PART, e);
        mem_free(o.send);
    }
    for (int k = 1; k < x->nodes; k++) /* of this rank alone they are one by now */
        memset(x->block[k], 0, x->grads * sizeof(real));
    x->nodes = 0;
    return rc;
}

/* ---- numbers ---- */

struct walk {
    double *v;
    size_t n;
    double share;
};

static void count_one(void *ctx, double *x, size_t n, int is_mean)
{
    struct walk *w = ctx;
    (void)x;
    (void)is_mean;
    w->n += n;
}

static void take_one(void *ctx, double *x, size_t n, int is_mean)
{
    struct walk *w = ctx;
    for (size_t i = 0; i < n; i++) {
        w->v[w->n++] = is_mean ? w->share * x[i] : x[i];
        x[i] = is_mean ? x[i] : 0;
    }
}

static void put_one(void *ctx, double *x, size_t n, int is_mean)
{
    struct walk *w = ctx;
    (void)is_mean;
    for (size_t i = 0; i < n; i++)
        x[i] = w->v[w->n++];
}

int pieces_take(struct pieces *x, int p, piece_visit_fn *visit, void *of, struct err *e)
{
    struct walk w = {.share = share_of(x, p)};
    visit(of, count_one, &w);
    if (w.n != x->values) {
        mem_free(x->all);
        x->values = w.n;
        x->all = mem_alloc((size_t)x->n * w.n + 1, sizeof *x->all);
    }
    if (!x->all)
        return err_set(e, DS_EMEM, "out of memory for the counts of %d pieces", x->n);
    w.v = x->all + (size_t)p * x->values;
    w.n = 0;
    visit(of, take_one, &w);
    return 0;
}

struct value_stack {
    double *at[PIECE_NODES];
    size_t n;
};

static void add_values(void *ctx, int left, int is_last)
{
    struct value_stack *v = ctx;
    (void)is_last;
    for (size_t i = 0; i < v->n; i++)
        v->at[left][i] += v->at[left + 1][i];
}

int pieces_put(struct pieces *x, piece_visit_fn *visit, void *of, struct err *e)
{
    int ranks = ranks_size(), depth = 0, rc = 0;
    size_t *bytes = mem_alloc((size_t)ranks, sizeof *bytes);
    struct value_stack v = {.n = x->values};
    struct piece_node stack[PIECE_NODES];
    if (!bytes)
        return err_set(e, DS_EMEM, "out of memory for %d ranks", ranks);
    for (int r = 0; r < ranks; r++)
        bytes[r] = (size_t)(first_of(r + 1, ranks, x->n) - first_of(r, ranks, x->n)) * x->values *
                   sizeof *x->all;
    if (ranks > 1)
        rc = ranks_gather_parts(x->all, x->all + (size_t)x->begin * x->values, bytes, e);
    mem_free(bytes);
    if (rc < 0)
        return rc;
    for (int p = 0; p < x->n; p++) {
        v.at[depth] = x->all + (size_t)p * x->values;
        depth = push(stack, depth, x->n, (struct piece_node){0, p}, add_values, &v);
    }
    struct walk w = {.v = x->all};
    visit(of, put_one, &w);
    return 0;
}
