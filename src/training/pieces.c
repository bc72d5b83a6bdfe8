/* The tree over the pieces of a step: blocks of gradients on this rank, nodes of other ranks, and
 * the numbers beside them. */
#include "training/pieces.h"

#include <string.h>

#include "base/mem.h"
#include "base/pool.h"
#include "base/ranks.h"
#include "engine/bf16.h"

enum {
    SPAN = 16384,
    PART = 4 << 20,
    READY = 1 << 18 /* elements exchanged at once: most, least */
};
enum { NUMBERS = 4096 /* of flights, far more than are under way */ };

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
    x->ready = x->ready_end = x->grads;
    x->parts = (size_t)ranks * PIECE_NODES;
    x->part = mem_alloc(2 * x->parts, sizeof *x->part);
    return x->part ? 0 : err_set(e, DS_EMEM, "out of memory for the parts of %d ranks", ranks);
}

void pieces_divide(struct pieces *x, size_t *own)
{
    x->own = own;
    x->is_divided = 1;
}

void pieces_release(struct pieces *x)
{
    mem_free_aligned(x->store);
    for (int i = 0; i < x->flights; i++) {
        mem_free_aligned(x->flight[i].inbox);
        mem_free_aligned(x->flight[i].outbox);
    }
    mem_free(x->part);
    mem_free(x->own);
    mem_free(x->all);
    memset(x, 0, sizeof *x);
}

/* ---- gradients ---- */

void pieces_begin(struct pieces *x, struct params *ps)
{
    params_use_grads(ps, x->block[x->nodes]);
}

/* Elements of this rank's blocks that are added up together. */
struct own_range {
    struct pieces *x;
    size_t at, n;
};

static void add_own(void *ctx, int left, int is_last)
{
    struct own_range *o = ctx;
    add_block(o->x->block[left] + o->at, o->x->block[left + 1] + o->at, o->n,
              last_scale(o->x, is_last));
}

/* Adds the newest block, of piece p, to the others; returns the number of nodes then. */
static int add_newest(struct pieces *x, struct piece_node node[PIECE_NODES], int p, size_t at,
                      size_t n)
{
    struct own_range o = {x, at, n};
    struct add_job j = {.to = x->block[x->nodes] + at, .n = n, .scale = (real)share_of(x, p)};
    memcpy(node, x->node, sizeof x->node);
    if (!x->is_even)
        pool_run((int)((n + SPAN - 1) / SPAN), scale_span, &j);
    return push(node, x->nodes, x->n, (struct piece_node){0, p}, add_own, &o);
}

void pieces_end(struct pieces *x, int p)
{
    struct piece_node node[PIECE_NODES];
    (void)add_newest(x, node, p, 0, x->ready);
    x->nodes = add_newest(x, node, p, x->ready_end, x->grads - x->ready_end);
    memcpy(x->node, node, sizeof node);
}

/* ---- exchange ---- */

/* The elements of a flight that rank r adds up. */
static size_t slice(const struct pieces *x, const struct piece_flight *f, int r, size_t *begin)
{
    enum { LINE = 64 };
    if (f->stripe >= 0) {
        size_t each = PART / (size_t)ranks_size(), from = x->own[r] + (size_t)f->stripe * each;
        *begin = from < x->own[r + 1] ? from : x->own[r + 1];
        return x->own[r + 1] - *begin < each ? x->own[r + 1] - *begin : each;
    }
    size_t lines = (f->n + LINE - 1) / LINE, ranks = (size_t)ranks_size();
    size_t from = lines * (size_t)r / ranks * LINE, to = lines * ((size_t)r + 1) / ranks * LINE;
    from = from < f->n ? from : f->n;
    to = to < f->n ? to : f->n;
    *begin = f->at + from;
    return to - from;
}

static int nodes_of_rank(const struct pieces *x, int r, struct piece_node out[PIECE_NODES])
{
    int ranks = ranks_size();
    return nodes_of(out, first_of(r, ranks, x->n), first_of(r + 1, ranks, x->n), x->n, NULL);
}

static size_t width(const struct pieces *x)
{
    return x->is_narrow ? sizeof(uint16_t) : sizeof(real);
}

static void widen(real *to, const char *from, size_t n)
{
    const uint16_t *b = (const void *)from;
    for (size_t i = 0; i < n; i++)
        to[i] = (real)float_of_bf16(b[i]);
}

/* A part of the block as it goes out; *box: where the next one of the outbox is. */
static struct ranks_part outgoing(const struct pieces *x, int rank, real *p, size_t n, char **box)
{
    if (!x->is_narrow)
        return (struct ranks_part){rank, p, n * sizeof *p};
    bf16_from_reals((void *)*box, p, n);
    struct ranks_part part = {rank, *box, n * sizeof(uint16_t)};
    *box += n * sizeof(uint16_t);
    return part;
}

static int flight_memory(struct pieces *x, struct piece_flight *f, struct err *e)
{
    struct piece_node nodes[PIECE_NODES];
    size_t others = 0, begin, out = 0, mine = slice(x, f, ranks_rank(), &begin);
    int own = nodes_of_rank(x, ranks_rank(), nodes);
    for (int r = 0; r < ranks_size(); r++)
        if (r != ranks_rank()) {
            others += (size_t)nodes_of_rank(x, r, nodes);
            out += (size_t)own * slice(x, f, r, &begin);
        }
    /* what comes back at the end needs room as well, where it is not written in place */
    size_t in = others * mine > f->n ? others * mine : x->is_narrow ? f->n : others * mine;
    out = out > mine ? out : mine;
    f->inbox = mem_alloc_aligned(in + 1, width(x));
    f->outbox = x->is_narrow ? mem_alloc_aligned(out + 1, width(x)) : NULL;
    return f->inbox && (f->outbox || !x->is_narrow)
               ? 0
               : err_set(e, DS_EMEM, "out of memory for gradients of other ranks");
}

/* My nodes to those who add them up, theirs to me. */
static int depart(struct pieces *x, struct piece_flight *f, struct err *e)
{
    struct piece_node nodes[PIECE_NODES];
    size_t begin, mine = slice(x, f, ranks_rank(), &begin), n;
    struct ranks_part *send = x->part, *receive = x->part + x->parts;
    int sends = 0, receives = 0, own = nodes_of_rank(x, ranks_rank(), nodes);
    int rc = flight_memory(x, f, e);
    if (rc < 0)
        return rc;
    char *in = f->inbox, *out = f->outbox;
    for (int r = 0; r < ranks_size(); r++) {
        if (r == ranks_rank())
            continue;
        n = slice(x, f, r, &begin);
        for (int i = 0; i < own; i++)
            send[sends++] = outgoing(x, r, x->block[i] + begin, n, &out);
        for (int i = nodes_of_rank(x, r, nodes); i > 0; i--, in += mine * width(x))
            receive[receives++] = (struct ranks_part){r, in, mine * width(x)};
    }
    return ranks_trade_start(&f->trade, 2 * f->number + f->is_spreading, send, sends, receive,
                             receives, e);
}

/* The nodes of all ranks in order, for the elements that this rank adds up. */
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

/* The sum of this rank's elements, into its own block. */
static int merge_nodes(struct pieces *x, struct piece_flight *f, struct err *e)
{
    struct piece_node nodes[PIECE_NODES];
    struct merge m = {.x = x};
    size_t begin;
    m.n = slice(x, f, ranks_rank(), &begin);
    real *wide = NULL, *next;
    int all = 0;
    for (int r = 0; r < ranks_size(); r++)
        all += r != ranks_rank() ? nodes_of_rank(x, r, nodes) : 0;
    if (x->is_narrow && !(wide = mem_alloc_aligned((size_t)all * m.n + 1, sizeof *wide)))
        return err_set(e, DS_EMEM, "out of memory for gradients of other ranks");
    if (wide)
        widen(wide, f->inbox, (size_t)all * m.n);
    next = wide ? wide : (real *)(void *)f->inbox;
    for (int r = 0; r < ranks_size(); r++) {
        int k = nodes_of_rank(x, r, nodes);
        for (int i = 0; i < k; i++) {
            m.at[m.depth] = r == ranks_rank() ? x->block[i] + begin : next;
            next += r == ranks_rank() ? 0 : m.n;
            m.depth = push(m.stack, m.depth, x->n, nodes[i], add_merged, &m);
        }
    }
    if (m.n > 0 && m.at[0] != x->home + begin)
        memcpy(x->home + begin, m.at[0], m.n * sizeof(real));
    mem_free_aligned(wide);
    return 0;
}

/* The sums to all ranks. */
static int spread(struct pieces *x, struct piece_flight *f, struct err *e)
{
    size_t begin, n, mine = slice(x, f, ranks_rank(), &begin);
    struct ranks_part *send = x->part, *receive = x->part + x->parts;
    int sends = 0, receives = 0;
    char *out = f->outbox, *in = f->inbox;
    struct ranks_part own = outgoing(x, 0, x->home + begin, mine, &out);
    if (x->is_narrow) /* all ranks have the same rounded values */
        widen(x->home + begin, f->outbox, mine);
    f->is_spreading = 1;
    for (int r = 0; r < ranks_size(); r++) {
        if (r == ranks_rank())
            continue;
        n = slice(x, f, r, &begin);
        own.rank = r;
        send[sends++] = own;
        receive[receives++] = (struct ranks_part){
            r, x->is_narrow ? in : (char *)(void *)(x->home + begin), n * width(x)};
        in += n * width(x);
    }
    return ranks_trade_start(&f->trade, 2 * f->number + f->is_spreading, send, sends, receive,
                             receives, e);
}

static void land(struct pieces *x, struct piece_flight *f)
{
    size_t begin, n;
    const char *in = f->inbox;
    for (int r = 0; x->is_narrow && !x->is_divided && r < ranks_size(); r++) {
        if (r == ranks_rank())
            continue;
        n = slice(x, f, r, &begin);
        widen(x->home + begin, in, n);
        in += n * sizeof(uint16_t);
    }
    mem_free_aligned(f->inbox);
    mem_free_aligned(f->outbox);
    f->inbox = f->outbox = NULL;
    f->n = 0;
}

/* Takes the next step of a flight when the last one is done; waits for it with `wait`. */
static int advance(struct pieces *x, struct piece_flight *f, int wait, struct err *e)
{
    int done = 1, rc = 0;
    while (rc == 0 && f->n > 0 && done) {
        rc = wait ? ranks_trade_finish(&f->trade, e) : ranks_trade_test(&f->trade, &done, e);
        if (rc < 0 || !done)
            return rc;
        if (!f->is_spreading)
            rc = merge_nodes(x, f, e);
        if (f->is_spreading || x->is_divided)
            land(x, f);
        else if (rc == 0)
            rc = spread(x, f, e);
    }
    return rc;
}

static int advance_all(struct pieces *x, int wait, struct err *e)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < x->flights; i++)
        rc = advance(x, &x->flight[i], wait, e);
    return rc;
}

/* Where there are many the oldest is waited for, which bounds their memory. */
static int take_off(struct pieces *x, size_t at, size_t n, int stripe, struct err *e)
{
    int rc = 0;
    if (x->flights == PIECE_FLIGHTS) {
        rc = advance(x, &x->flight[0], 1, e);
        memmove(x->flight, x->flight + 1, (PIECE_FLIGHTS - 1) * sizeof *x->flight);
        x->flights--;
    }
    struct piece_flight *f = &x->flight[x->flights];
    *f = (struct piece_flight){.at = at, .n = n, .stripe = stripe, .number = x->departed};
    x->departed = (x->departed + 1) % NUMBERS;
    if (rc == 0)
        rc = depart(x, f, e);
    x->flights += rc == 0;
    return rc == 0 ? advance_all(x, 0, e) : rc;
}

/* What has not left yet: all of it, or what backward ends with. */
static int send_rest(struct pieces *x, struct err *e)
{
    int rc = 0;
    size_t from[2] = {0, x->ready_end}, to[2] = {x->ready, x->grads}, most = 0;
    for (int r = 0; x->is_divided && r < ranks_size(); r++)
        most = x->own[r + 1] - x->own[r] > most ? x->own[r + 1] - x->own[r] : most;
    size_t each = PART / (size_t)ranks_size();
    for (int k = 0; rc == 0 && x->is_divided && (size_t)k * each < most; k++)
        rc = take_off(x, 0, x->grads, k, e);
    for (int k = 0; k < 2 && !x->is_divided; k++)
        for (size_t at = from[k]; rc == 0 && at < to[k]; at += PART)
            rc = take_off(x, at, to[k] - at < PART ? to[k] - at : PART, -1, e);
    return rc;
}

void pieces_advance(void *ctx)
{
    struct pieces *x = ctx;
    if (x->flights == 0 || x->failed || x->is_advancing)
        return;
    x->is_advancing = 1; /* additions are work of the pool themselves */
    x->failed = advance_all(x, 0, &x->why);
    x->is_advancing = 0;
}

void pieces_ready(struct pieces *x, size_t from, size_t end)
{
    struct piece_node node[PIECE_NODES];
    if (ranks_size() == 1 || x->is_divided || x->failed)
        return;
    if (x->ready_end == x->grads && x->ready == x->grads)
        x->ready = x->ready_end = end;
    size_t n = x->ready - from;
    if (n < READY && n < x->grads / 8) {
        pieces_advance(x);
        return;
    }
    x->is_advancing = 1;
    (void)add_newest(x, node, x->end - 1, from, n);
    x->ready = from;
    for (size_t done = 0; done < n && x->failed == 0; done += PART)
        x->failed = take_off(x, from + done, n - done < PART ? n - done : PART, -1, &x->why);
    x->is_advancing = 0;
}

int pieces_sum(struct pieces *x, struct params *ps, struct err *e)
{
    int rc = x->failed ? err_set(e, x->failed, "%s", x->why.text) : 0;
    params_use_grads(ps, x->home);
    if (rc == 0 && ranks_size() > 1)
        rc = send_rest(x, e);
    if (rc == 0)
        rc = advance_all(x, 1, e);
    x->flights = 0;
    for (int k = 1; k < x->nodes; k++) /* of this rank alone they are one by now */
        memset(x->block[k], 0, x->grads * sizeof(real));
    x->nodes = 0;
    x->ready = x->ready_end = x->grads;
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
