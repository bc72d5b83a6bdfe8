/* Forward and backward of one block for the rows of a plan; step numbers match.
 *
 *   1 gather rows, first norm      5 output projection
 *   2 q, k, v                      6 second norm
 *   3 positions                    7 mlp in, activation
 *   4 attention                    8 mlp out; gate and scatter
 *
 * In a parallel block (model.parallel) step 6 reads x, as step 1 does. */
#include "models/block.h"

#include <string.h>

#include "bulk.h"
#include "engine/linear.h"
#include "engine/ops.h"
#include "models/loop.h"
#include "models/moe.h"

static const real *val(const struct model *m, int i)
{
    return i < 0 ? NULL : m->params.p[i].value;
}

static real *grd(const struct model *m, int i)
{
    return i < 0 ? NULL : m->params.p[i].grad;
}

/* The norm with weight w and bias b (params) of N rows; keeps mean and rstd there. */
static struct norm norm_of(const struct model *m, int w, int b, real *mean, real *rstd, int N)
{
    return (struct norm){.w = val(m, w),
                         .b = val(m, b),
                         .mean = m->config.norm == NORM_LAYER ? mean : NULL,
                         .rstd = rstd,
                         .N = N,
                         .C = (int)m->config.dim,
                         .offset = m->config.norm_offset,
                         .eps = (real)m->config.norm_eps};
}

/* Queries or keys: N rows of `heads`, normed one by one or as a whole. */
static struct norm qk_norm_of(const struct model *m, int w, real *rstd, int N, int heads)
{
    int D = (int)m->config.head_dim, each = m->config.qk_norm == QK_NORM_HEAD;
    struct norm n = norm_of(m, w, -1, NULL, rstd, each ? N * heads : N);
    n.C = each ? D : heads * D;
    n.mean = NULL;
    return n;
}

/* The norm of an output: w->f of f_in, or w->g of g_in. */
static struct norm output_norm_of(const struct model *m, int w, real *rstd, int N)
{
    return norm_of(m, w, -1, NULL, rstd, N);
}

static struct norm norm1_of(const struct model *m, int l, const struct block_work *w, int N)
{
    return norm_of(m, m->block[l].norm1, m->block[l].norm1_b, w->mean1, w->rstd1, N);
}

static struct norm norm2_of(const struct model *m, int l, const struct block_work *w, int N)
{
    return norm_of(m, m->block[l].norm2, m->block[l].norm2_b, w->mean2, w->rstd2, N);
}

static void rope(const struct model *m, int l, real *x, const int32_t *pos, int N, int heads,
                 int back)
{
    int is_local = m->block[l].rope == BLOCK_ROPE_LOCAL, D = (int)m->config.head_dim;
    struct rope r = {.inv_freq = m->inv_freq[is_local],
                     .D = D,
                     .dims = (int)m->config.rope_dims,
                     .half = m->config.position == POS_ROPE,
                     .scale = is_local ? 1 : m->rope_scale};
    if (m->block[l].rope != BLOCK_NO_ROPE)
        (back ? rope_bwd : rope_fwd)(x, pos, &r, N, heads);
}

static struct linear lin(const struct model *m, int w, int b)
{
    return weights_linear(m, w, b);
}

/* Applies the activation to each finished GEMM tile while it is in the cache. */
struct act {
    enum act_kind kind;
    int ld;                  /* F */
    const struct ffn *w, *d; /* d: backward */
};

static struct act act_of(const struct model *m, const struct ffn *w, const struct ffn *d)
{
    static const enum act_kind kind[] = {[MLP_SWIGLU] = ACT_SWIGLU,
                                         [MLP_GELU] = ACT_GELU,
                                         [MLP_GELU_TANH] = ACT_GELU_TANH,
                                         [MLP_GEGLU] = ACT_GEGLU};
    return (struct act){kind[m->config.mlp], w->F, w, d};
}

static void act_fwd(void *ctx, int n0, int f0, int rows, int cols)
{
    const struct act *x = ctx;
    size_t at = (size_t)n0 * (size_t)x->ld + (size_t)f0;
    act_tile_fwd(x->kind, x->w->hid + at, x->w->a ? x->w->a + at : NULL, x->w->b + at, x->ld, rows,
                 cols);
}

/* d->hid holds d loss / d hid and becomes that of b. */
static void act_bwd(void *ctx, int n0, int f0, int rows, int cols)
{
    const struct act *x = ctx;
    size_t at = (size_t)n0 * (size_t)x->ld + (size_t)f0;
    act_tile_bwd(x->kind, x->d->a ? x->d->a + at : NULL, x->d->hid + at,
                 x->w->a ? x->w->a + at : NULL, x->w->b + at, x->ld, rows, cols);
}

static struct attn attn_shape(const struct model *m, int N)
{
    const struct block_ranges *g = &m->ranges;
    return (struct attn){
        .N = N,
        .M = g->M,
        .H = (int)m->config.heads,
        .K = (int)m->config.kv_heads,
        .D = (int)m->config.head_dim,
        .scale = (real)m->config.attn_scale,
        .cap = (real)m->config.attn_cap,
        .lo = g->lo,
        .hi = g->hi,
        .self = g->self,
        .on = g->on,
        .own = g->own,
        .bf16 = m->weights.format == GEMM_BF16,
        .segs = m->B,
        .seg_q = g->seg_q,
        .seg_k = g->seg_k,
    };
}

static int is_whole(const struct model *m, const struct plan *p)
{
    return p->n == m->R;
}

/* Rows that produce keys: all of them, or the plan's. */
static int key_rows(const struct model *m, const struct plan *p)
{
    return p->kv == KV_ALL ? m->R : p->n;
}

/* The query rows as indices into the key rows; NULL when both are the same. */
static const int32_t *query_rows(const struct model *m, const struct plan *p)
{
    return p->kv == KV_ALL && !is_whole(m, p) ? p->row : NULL;
}

/* The rows that forward norms: n of them, listed unless all, and where the queries are among
 * them. */
struct normed {
    int n;
    const int32_t *row, *query, *pos;
    int is_part; /* the other keys and values are those of the previous iteration */
};

static struct normed normed_rows(struct model *m, int l, const struct plan *p)
{
    struct normed r = {.n = key_rows(m, p), .query = query_rows(m, p), .pos = m->ranges.kpos};
    if (p->kv == KV_PLAN && !is_whole(m, p))
        r.row = p->row;
    if (!loop_shares(m, l, p) || !p->settled)
        return r;
    int n = loop_fresh(m, p);
    if (n == m->R)
        return r;
    return (struct normed){n, m->loop.row, m->loop.query, m->loop.pos, 1};
}

static struct norm norm0_of(const struct model *m, const struct block_work *w, int N)
{
    return norm_of(m, m->loop_norm, m->loop_norm_b, w->mean0, w->rstd0, N);
}

/* The input of an iteration: w->in (n,C) from the states in w->x. */
static void begin_iteration(struct model *m, int l, const struct normed *r, struct block_work *w)
{
    const real *before = loop_injected(m);
    int C = (int)m->config.dim;
    size_t n = (size_t)r->n * (size_t)C;
    if (loop_norms(m, l)) {
        struct norm norm = norm0_of(m, w, r->n);
        norm_fwd(w->in, w->x, &norm);
    } else {
        bulk_copy(w->in, w->x, n);
    }
    if (before && r->row) {
        rows_gather(w->u, before, r->row, r->n, C); /* u is free until step 6 */
        before = w->u;
    }
    if (before)
        add_into(w->in, before, n);
    w->x = w->in;
}

/* 1: xn (n,C), the normed rows. */
static void enter_fwd(struct model *m, int l, const struct normed *r, struct block_work *w)
{
    w->x = m->stream.h[l];
    if (r->row) {
        rows_gather(w->gathered, w->x, r->row, r->n, (int)m->config.dim);
        w->x = w->gathered;
    }
    if (loop_enters(m, l))
        begin_iteration(m, l, r, w);
    struct norm norm = norm1_of(m, l, w, r->n);
    if (m->block[l].norm1 >= 0)
        norm_fwd(w->xn, w->x, &norm);
    else
        bulk_copy(w->xn, w->x, (size_t)r->n * (size_t)m->config.dim);
}

/* The plan's rows as indices into w->in; NULL: row i. */
static const int32_t *rows_of_input(const struct plan *p, const struct normed *r, int R)
{
    return r->query || r->row || p->n == R ? r->query : p->row;
}

/* An iteration replaces the state by its input: the increment is x - h + f(x). */
static void finish_iteration(struct model *m, int l, const struct plan *p, const struct normed *r,
                             const struct block_work *w)
{
    const int32_t *at = rows_of_input(p, r, m->R);
    size_t C = (size_t)m->config.dim;
    if (!loop_enters(m, l))
        return;
    for (size_t i = 0; i < (size_t)p->n; i++) {
        const real *x = w->in + (at ? (size_t)at[i] : i) * C,
                   *h = m->stream.h[l] + (size_t)p->row[i] * C;
        for (size_t c = 0; c < C; c++)
            w->f[i * C + c] += x[c] - h[c];
    }
}

/* Replaces the listed rows of y by x. */
static void put_rows(real *y, const real *x, const struct normed *r, int width)
{
    for (int i = 0; i < r->n; i++)
        memcpy(y + (size_t)r->row[i] * (size_t)width, x + (size_t)i * (size_t)width,
               (size_t)width * sizeof *y);
}

/* 2, 3: queries of the executed rows, keys and values of the key rows. */
static void qkv_fwd(struct model *m, int l, const struct plan *p, const struct normed *r,
                    struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int H = (int)m->config.heads, K = (int)m->config.kv_heads, width = K * (int)m->config.head_dim;
    struct linear q = lin(m, b->q, b->q_b), k = lin(m, b->k, b->k_b), v = lin(m, b->v, b->v_b);
    real *new_k = r->is_part ? m->loop.new_k : w->k, *new_v = r->is_part ? m->loop.new_v : w->v;
    int has_norm = b->q_norm >= 0;
    const struct linear_extra query = {.row = r->query};
    const struct linear_call call[] = {{has_norm ? w->q_in : w->q, w->xn, &q, p->n, 0, &query},
                                       {has_norm ? w->k_in : new_k, w->xn, &k, r->n, 0, NULL},
                                       {new_v, w->xn, &v, r->n, 0, NULL}};
    linear_fwd_many(call, DS_LEN(call));
    if (has_norm) {
        struct norm qn = qk_norm_of(m, b->q_norm, w->rstd_q, p->n, H),
                    kn = qk_norm_of(m, b->k_norm, w->rstd_k, r->n, K);
        norm_fwd(w->q, w->q_in, &qn);
        norm_fwd(new_k, w->k_in, &kn);
    }
    rope(m, l, w->q, m->ranges.qpos, p->n, H, 0);
    rope(m, l, new_k, r->pos, r->n, K, 0);
    if (r->is_part) {
        put_rows(w->k, new_k, r, width);
        put_rows(w->v, new_v, r, width);
    }
}

static int is_parallel(const struct model *m)
{
    return m->config.parallel != PARALLEL_NONE;
}

/* 6: u = x + f (parallel: x), un = norm2(u), or u itself. */
static void second_norm_fwd(struct model *m, int l, const struct plan *p, const struct normed *r,
                            struct block_work *w)
{
    struct norm n = norm2_of(m, l, w, p->n);
    int enters = loop_enters(m, l), C = (int)m->config.dim;
    const real *x = enters ? w->in : m->stream.h[l];
    const int32_t *row = enters ? rows_of_input(p, r, m->R) : is_whole(m, p) ? NULL : p->row;
    size_t items = (size_t)p->n * (size_t)C;
    if (m->block[l].norm2 >= 0 && !is_parallel(m)) {
        add_norm_fwd(w->u, w->un, x, row, w->f, &n);
        return;
    }
    if (row)
        rows_gather(w->u, x, row, p->n, C);
    else
        bulk_copy(w->u, x, items);
    if (is_parallel(m)) {
        norm_fwd(w->un, w->u, &n);
        return;
    }
    add_into(w->u, w->f, items);
    bulk_copy(w->un, w->u, items);
}

/* What the FFN of a split layer reads: the state after attention, in parallel that before it. */
static real *ffn_input(const struct model *m, int l, real *const *h, real *mid)
{
    return is_parallel(m) ? h[l] : mid;
}

void block_normed(struct model *m, int l, int second, const int32_t *row, int n, real *out)
{
    const struct block_work w = {
        .mean1 = m->meanf, .rstd1 = m->rstdf, .mean2 = m->meanf, .rstd2 = m->rstdf};
    struct norm norm = second ? norm2_of(m, l, &w, 1) : norm1_of(m, l, &w, 1);
    const real *from = second ? ffn_input(m, l, m->stream.h, m->stream.mid) : m->stream.h[l];
    int C = (int)m->config.dim, has = (second ? m->block[l].norm2 : m->block[l].norm1) >= 0;
    for (int k = 0; k < n; k++) {
        const real *x = from + (size_t)row[k] * (size_t)C;
        if (has)
            norm_fwd(out + (size_t)k * (size_t)C, x, &norm);
        else
            bulk_copy(out + (size_t)k * (size_t)C, x, (size_t)C);
    }
}

struct ffn block_ffn(const struct model *m, int l, const struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    return (struct ffn){.gate = b->gate,
                        .up = b->up,
                        .down = b->down,
                        .gate_b = b->gate_b,
                        .up_b = b->up_b,
                        .down_b = b->down_b,
                        .F = (int)(b->router >= 0 ? m->config.shared_ffn : m->config.ffn),
                        .in = w->un,
                        .a = w->a,
                        .b = w->b,
                        .hid = w->hid};
}

void ffn_fwd_many(const struct model *m, const struct ffn *x, const int *N, real *const *f,
                  real beta, int n)
{
    struct linear gate[FFN_MANY], up[FFN_MANY], down[FFN_MANY];
    struct act act[FFN_MANY];
    struct linear_extra rows[FFN_MANY], then[FFN_MANY];
    struct linear_call in[2 * FFN_MANY], out[FFN_MANY];
    int k = 0;
    for (int i = 0; i < n; i++) {
        const struct ffn *w = &x[i];
        rows[i] = (struct linear_extra){.row = w->row};
        if (w->gate >= 0) {
            gate[i] = lin(m, w->gate, w->gate_b);
            in[k++] = (struct linear_call){w->a, w->in, &gate[i], N[i], 0, &rows[i]};
        }
        act[i] = act_of(m, w, NULL);
        then[i] = (struct linear_extra){w->row, act_fwd, &act[i]};
        up[i] = lin(m, w->up, w->up_b);
        in[k++] = (struct linear_call){w->b, w->in, &up[i], N[i], 0, &then[i]};
        down[i] = lin(m, w->down, w->down_b);
        out[i] = (struct linear_call){f[i], w->hid, &down[i], N[i], beta, NULL};
    }
    linear_fwd_many(in, k);
    linear_fwd_many(out, n);
}

void ffn_fwd(const struct model *m, const struct ffn *x, int N, real *f, real beta)
{
    ffn_fwd_many(m, x, &N, &f, beta, 1);
}

/* 7, 8 without the scatter: f = mlp(un), or f += with beta 1. */
static void mlp_fwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *f,
                    real beta)
{
    struct ffn x = block_ffn(m, l, w);
    int out = m->block[l].out2, has_norm = out >= 0;
    real *y = has_norm ? w->g_in : f, by = has_norm ? 0 : beta;
    if (m->block[l].router >= 0)
        moe_fwd(m, l, p, w, y, by);
    else
        ffn_fwd(m, &x, p->n, y, by);
    if (!has_norm)
        return;
    struct norm n = output_norm_of(m, out, w->rstd_g, p->n);
    real *to = beta != 0 ? w->g_out : f;
    norm_fwd(to, w->g_in, &n);
    if (beta != 0)
        add_into(f, to, (size_t)p->n * (size_t)m->config.dim);
}

/* 4 for some queries, in parts of which each query gets the bits it would get alone. */
static void attend_stepwise(const struct attn *all, const real *q, real *att, real *lse)
{
    int most = attention_alone(all);
    for (int i = 0, n; i < all->N; i += n) {
        struct attn a = *all;
        size_t at = (size_t)i * (size_t)(a.H * a.D);
        n = most == 0 || a.N - i < most ? a.N - i : most;
        a.N = n;
        a.lo += i;
        a.hi += i;
        a.self += i;
        a.seg_q = (int32_t[]){0, n};
        attention_fwd(att + at, lse + (size_t)i * (size_t)a.H, q + at, NULL, NULL, &a);
    }
}

/* 4 for the queries of segments s.. s + n, over all that their caches have seen. */
static void attend_cached(struct model *m, const struct attn *all, int s, int n,
                          struct block_work *w)
{
    const struct block_ranges *g = &m->ranges;
    int q0 = g->seg_q[s];
    size_t at = (size_t)q0 * (size_t)(all->H * all->D);
    struct attn a = *all;
    a.N = g->seg_q[s + n] - q0;
    a.lo += q0;
    a.hi += q0;
    a.self += q0;
    a.segs = n;
    a.seg_q = n == 1 ? (int32_t[]){0, a.N} : g->seg_q;
    a.cache += s;
    real *lse = w->lse + (size_t)q0 * (size_t)a.H;
    if (a.N > 0 && n == 1 && m->route.pass.is_stepwise)
        attend_stepwise(&a, w->q + at, w->att + at, lse);
    else if (a.N > 0)
        attention_fwd(w->att + at, lse, w->q + at, NULL, NULL, &a);
}

/* 4 with caches.  One row of each sequence shares a call; several would share the order of sums
 * that the longest of them needs. */
static void attend_caches(struct model *m, int l, struct kv_cache *const *cache,
                          const struct attn *all, struct block_work *w)
{
    const struct block_ranges *g = &m->ranges;
    struct attn_keys keys[DECODE_BATCH];
    struct attn a = *all;
    for (int s = 0; s < m->B; s++) {
        kv_cache_append(m, cache[s], l, w, g->seg_k[s], g->seg_k[s + 1] - g->seg_k[s]);
        const struct kv_layer *y = &cache[s]->layer[l];
        keys[s] = (struct attn_keys){y->k, y->v, y->k16, y->v16, y->n};
    }
    a.cache = keys;
    for (int s = 0, n = m->T == 1 ? m->B : 1; s < m->B; s += n)
        attend_cached(m, &a, s, n, w);
}

/* 1-5: f = attention(norm1(x)) of the plan's rows. */
static struct normed attention_increment(struct model *m, int l, const struct plan *p,
                                         struct block_work *w, struct kv_cache *const *cache)
{
    const struct block_params *b = &m->block[l];
    struct linear o = lin(m, b->o, b->o_b);
    struct attn a;
    struct block_work shared = *w;
    if (loop_shares(m, l, p)) {
        loop_keys(m, l, &shared.k, &shared.v);
        w = &shared;
    }
    block_ranges_make(m, l, p, cache);
    struct normed rows = normed_rows(m, l, p);
    enter_fwd(m, l, &rows, w);  /* 1 */
    qkv_fwd(m, l, p, &rows, w); /* 2, 3 */
    a = attn_shape(m, p->n);
    if (cache)
        attend_caches(m, l, cache, &a, w); /* 4 */
    else
        attention_fwd(w->att, w->lse, w->q, w->k, w->v, &a);             /* 4 */
    linear_fwd(b->out1 < 0 ? w->f : w->f_in, w->att, &o, p->n, 0, NULL); /* 5 */
    if (b->out1 >= 0) {
        struct norm n = output_norm_of(m, b->out1, w->rstd_f, p->n);
        norm_fwd(w->f, w->f_in, &n);
    }
    return rows;
}

void block_increment(struct model *m, int l, const struct plan *p, struct block_work *w,
                     struct kv_cache *const *cache)
{
    struct normed rows = attention_increment(m, l, p, w, cache); /* 1-5 */
    second_norm_fwd(m, l, p, &rows, w);                          /* 6 */
    mlp_fwd(m, l, p, w, w->f, 1);                                /* 7, 8 */
    finish_iteration(m, l, p, &rows, w);
}

void block_fwd(struct model *m, int l, const struct plan *p, struct block_work *w,
               struct kv_cache *const *cache)
{
    block_increment(m, l, p, w, cache);
    rows_update(m->stream.h[l + 1], m->stream.h[l], w->f, p->row, p->gate, p->n, m->R,
                (int)m->config.dim); /* 8 */
}

void ffn_bwd(const struct model *m, const struct ffn *x, const struct ffn *d, int N, const real *df,
             real *dx, real beta)
{
    struct linear up = lin(m, x->up, x->up_b), down = lin(m, x->down, x->down_b);
    struct act act = act_of(m, x, d);
    struct linear_rows hid = linear_rows(down.format, x->hid, NULL, N, down.C);
    linear_bwd_w(grd(m, x->down), grd(m, x->down_b), df, &hid, &down); /* 8 */
    linear_bwd_x(d->hid, df, &down, N, 0,
                 &(struct linear_extra){.after = act_bwd, .ctx = &act}); /* 8, 7 */
    struct linear_rows in = linear_rows(up.format, x->in, x->row, N, up.C);
    linear_bwd_w(grd(m, x->up), grd(m, x->up_b), d->hid, &in, &up);
    linear_bwd_x(dx, d->hid, &up, N, beta, NULL);
    if (x->gate >= 0) {
        struct linear gate = lin(m, x->gate, x->gate_b);
        linear_bwd_w(grd(m, x->gate), grd(m, x->gate_b), d->a, &in, &gate);
        linear_bwd_x(dx, d->a, &gate, N, 1, NULL);
    }
}

/* The gradient dy of a normed output (N,C) becomes that of x, the output before; dy itself without
 * a norm. */
static const real *output_norm_bwd(const struct model *m, int w, real *dx, const real *dy,
                                   const real *x, real *rstd, int N)
{
    if (w < 0)
        return dy;
    struct norm n = output_norm_of(m, w, rstd, N);
    bulk_zero(dx, (size_t)N * (size_t)m->config.dim);
    norm_bwd(dx, grd(m, w), NULL, dy, x, &n);
    return dx;
}

/* Steps 8-6 in reverse.  d->f holds d loss / d f; d->u receives the gradient of u. */
static void mlp_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
                    const struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, N = p->n;
    struct ffn x = block_ffn(m, l, w), dx = block_ffn(m, l, d);
    const real *df = output_norm_bwd(m, b->out2, d->g_in, d->f, w->g_in, w->rstd_g, N);
    if (b->router >= 0)
        moe_bwd(m, l, p, d, w, df);
    else
        ffn_bwd(m, &x, &dx, N, df, d->un, 0);
    struct norm n = norm2_of(m, l, w, N);
    if (b->norm2 < 0) {
        bulk_copy(d->u, d->un, (size_t)N * (size_t)C);
        return;
    }
    bulk_zero(d->u, (size_t)N * (size_t)C);
    norm_bwd(d->u, grd(m, b->norm2), grd(m, b->norm2_b), d->un, w->u, &n); /* 6 */
}

/* As output_norm_bwd, for queries or keys. */
static const real *qk_norm_bwd(const struct model *m, int w, real *dx, const real *dy,
                               const real *x, real *rstd, int N, int heads)
{
    if (w < 0)
        return dy;
    struct norm n = qk_norm_of(m, w, rstd, N, heads);
    bulk_zero(dx, (size_t)N * (size_t)heads * (size_t)m->config.head_dim);
    norm_bwd(dx, grd(m, w), NULL, dy, x, &n);
    return dx;
}

/* 2: from d->q, d->k, d->v to d->xn, the normed key rows. */
static void qkv_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
                    const struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int N = p->n, Mn = key_rows(m, p), C = (int)m->config.dim;
    const int32_t *row = query_rows(m, p);
    struct linear q = lin(m, b->q, b->q_b), k = lin(m, b->k, b->k_b), v = lin(m, b->v, b->v_b);
    struct linear_rows xn = linear_rows(k.format, w->xn, NULL, Mn, C);
    const real *dq = qk_norm_bwd(m, b->q_norm, d->q_in, d->q, w->q_in, w->rstd_q, N,
                                 (int)m->config.heads),
               *dk = qk_norm_bwd(m, b->k_norm, d->k_in, d->k, w->k_in, w->rstd_k, Mn,
                                 (int)m->config.kv_heads);
    linear_bwd_w(grd(m, b->k), grd(m, b->k_b), dk, &xn, &k);
    linear_bwd_w(grd(m, b->v), grd(m, b->v_b), d->v, &xn, &v);
    if (row)
        xn = linear_rows(q.format, w->xn, row, N, C);
    linear_bwd_w(grd(m, b->q), grd(m, b->q_b), dq, &xn, &q);
    linear_bwd_x(d->xn, dk, &k, Mn, 0, NULL);
    linear_bwd_x(d->xn, d->v, &v, Mn, 1, NULL);
    d->xq = row ? d->gathered : d->xn;
    linear_bwd_x(d->xq, dq, &q, N, row ? 0 : 1, NULL);
    if (row)
        rows_scatter_add(d->xn, d->xq, row, NULL, N, C);
}

/* 5-2: from d->u (and d->f) to the normed rows. */
static void attn_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
                     struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int H = (int)m->config.heads, K = (int)m->config.kv_heads, D = (int)m->config.head_dim;
    int N = p->n, Mn = key_rows(m, p);
    size_t nq = (size_t)N * (size_t)(H * D), nk = (size_t)Mn * (size_t)(K * D);
    struct linear o = lin(m, b->o, b->o_b);
    struct linear_rows att = linear_rows(o.format, w->att, NULL, N, o.C);
    const real *df = output_norm_bwd(m, b->out1, d->f_in, d->f, w->f_in, w->rstd_f, N);
    linear_bwd_w(grd(m, b->o), grd(m, b->o_b), df, &att, &o); /* 5 */
    linear_bwd_x(d->att, df, &o, N, 0, NULL);
    bulk_zero(d->q, nq);
    bulk_zero(d->k, nk);
    bulk_zero(d->v, nk);
    struct attn a = attn_shape(m, N);
    attention_bwd(&(struct attn_grad){.dq = d->q,
                                      .dk = d->k,
                                      .dv = d->v,
                                      .dout = d->att,
                                      .q = w->q,
                                      .k = w->k,
                                      .v = w->v,
                                      .o = w->att,
                                      .lse = w->lse},
                  &a);                         /* 4 */
    rope(m, l, d->q, m->ranges.qpos, N, H, 1); /* 3 */
    rope(m, l, d->k, m->ranges.kpos, Mn, K, 1);
    qkv_bwd(m, l, p, d, w); /* 2 */
}

/* The gradient of an iteration's input x, on the normed rows, to the states.  f = x - h + ...: x
 * has d->f, which by now also holds d->u, besides what came through the first norm. */
static void begin_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
                      const struct block_work *w, int every, real *dx)
{
    int C = (int)m->config.dim, N = p->n, rows = every ? m->R : N;
    size_t items = (size_t)rows * (size_t)C;
    real *before = loop_injected_grad(m), *dh = m->stream.dh[l], *to = every ? dh : d->u;
    if (every && !is_whole(m, p))
        rows_scatter_add(dx, d->f, p->row, NULL, N, C);
    else
        add_into(dx, d->f, items);
    if (before && every)
        add_into(before, dx, items);
    else if (before)
        rows_scatter_add(before, dx, p->row, NULL, N, C);
    if (!every)
        bulk_zero(to, items);
    if (loop_norms(m, l)) {
        struct norm n = norm0_of(m, w, rows);
        norm_bwd(to, grd(m, m->loop_norm), grd(m, m->loop_norm_b), dx,
                 every ? m->stream.h[l] : w->gathered, &n);
    } else {
        add_into(to, dx, items);
    }
    if (!every)
        rows_scatter_add(dh, to, p->row, NULL, N, C);
}

/* 1: the first norm's rows, and the residual path of u (nothing in a split layer: d->u is zero or
 * not read). */
static void enter_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
                      const struct block_work *w, int is_block)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, N = p->n, enters = loop_enters(m, l);
    real *dh = m->stream.dh[l];
    int every = is_whole(m, p) || p->kv == KV_ALL;
    struct norm n = norm1_of(m, l, w, every ? m->R : N);
    real *dx = enters ? d->gathered : every ? dh : d->u;
    if (enters)
        bulk_zero(dx, (size_t)n.N * (size_t)C);
    if (b->norm1 >= 0)
        norm_bwd(dx, grd(m, b->norm1), grd(m, b->norm1_b), d->xn,
                 enters  ? w->in
                 : every ? m->stream.h[l]
                         : w->x,
                 &n);
    else
        add_into(dx, d->xn, (size_t)n.N * (size_t)C);
    if (enters) {
        begin_bwd(m, l, p, d, w, every, dx);
        return;
    }
    is_block |= !every;
    if (!is_block)
        return;
    if (is_whole(m, p))
        add_into(dh, d->u, (size_t)N * (size_t)C);
    else
        rows_scatter_add(dh, d->u, p->row, NULL, N, C);
}

/* f = x - h + ...: the state's own part, where an iteration begins with another input. */
static void leave_state_bwd(struct model *m, int l, const struct plan *p,
                            const struct block_work *d)
{
    size_t C = (size_t)m->config.dim;
    if (!loop_enters(m, l))
        return;
    for (size_t i = 0; i < (size_t)p->n; i++)
        for (size_t c = 0; c < C; c++)
            m->stream.dh[l][(size_t)p->row[i] * C + c] -= d->f[i * C + c];
}

void block_bwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *dgate)
{
    struct block_work *d = &m->dwork;
    int C = (int)m->config.dim, N = p->n;
    size_t n = (size_t)N * (size_t)C;
    const real *dy = m->stream.dh[l + 1];
    block_ranges_make(m, l, p, NULL);
    add_into(m->stream.dh[l], dy, (size_t)m->R * (size_t)C); /* y = x + ... */
    if (dgate)
        rows_dot(dgate, dy, p->row, w->f, N, C);
    bulk_gather_scaled(d->f, dy, p, C); /* 8 */
    leave_state_bwd(m, l, p, d);
    mlp_bwd(m, l, p, d, w); /* 8, 7, 6 */
    if (!is_parallel(m))
        add_into(d->f, d->u, n); /* f = attn + mlp(x + attn): attn gets both gradients */
    attn_bwd(m, l, p, d, w);     /* 5, 4, 3, 2 */
    if (is_parallel(m))
        add_into(d->f, d->u, n); /* f = attn + mlp(x): x gets both */
    enter_bwd(m, l, p, d, w, 1); /* 1 */
}

/* ---- split layers ---- */

void attention_half_fwd(struct model *m, int l, const struct plan *p, struct block_work *w,
                        struct kv_cache *const *cache)
{
    m->stream.mid = w->mid;
    struct normed rows = attention_increment(m, l, p, w, cache); /* 1-5 */
    finish_iteration(m, l, p, &rows, w);
    rows_update(w->mid, m->stream.h[l], w->f, p->row, p->gate, p->n, m->R, (int)m->config.dim);
}

/* u: the plan's rows. */
static void gather_rows(struct model *m, int l, const struct plan *p, struct block_work *w)
{
    rows_gather(w->u, ffn_input(m, l, m->stream.h, w->mid), p->row, p->n, (int)m->config.dim);
}

void ffn_half_fwd(struct model *m, int l, const struct plan *p, struct block_work *w, int update)
{
    struct norm n = norm2_of(m, l, w, p->n);
    gather_rows(m, l, p, w);
    if (m->block[l].norm2 >= 0)
        norm_fwd(w->un, w->u, &n); /* 6 */
    else
        bulk_copy(w->un, w->u, (size_t)p->n * (size_t)m->config.dim);
    mlp_fwd(m, l, p, w, w->g, 0); /* 7, 8 */
    if (update)
        rows_update(m->stream.h[l + 1], w->mid, w->g, p->row, p->gate, p->n, m->R,
                    (int)m->config.dim);
}

void ffn_half_bwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *dgate)
{
    struct block_work *d = &m->dwork;
    int C = (int)m->config.dim, N = p->n;
    const real *dy = m->stream.dh[l + 1];
    m->stream.mid = w->mid;
    m->stream.dmid = d->mid;
    bulk_copy(d->mid, dy, (size_t)m->R * (size_t)C); /* y = mid + ... */
    if (dgate)
        rows_dot(dgate, dy, p->row, w->g, N, C);
    bulk_gather_scaled(d->f, dy, p, C);
    mlp_bwd(m, l, p, d, w); /* 8, 7, 6: d->u */
    rows_scatter_add(ffn_input(m, l, m->stream.dh, d->mid), d->u, p->row, NULL, N, C);
}

void attention_half_bwd(struct model *m, int l, const struct plan *p, struct block_work *w,
                        real *dgate)
{
    struct block_work *d = &m->dwork;
    int C = (int)m->config.dim, N = p->n;
    block_ranges_make(m, l, p, NULL);
    add_into(m->stream.dh[l], d->mid, (size_t)m->R * (size_t)C); /* mid = x + ... */
    if (dgate)
        rows_dot(dgate, d->mid, p->row, w->f, N, C);
    bulk_gather_scaled(d->f, d->mid, p, C);
    leave_state_bwd(m, l, p, d);
    bulk_zero(d->u, (size_t)N * (size_t)C);
    attn_bwd(m, l, p, d, w); /* 5, 4, 3, 2 */
    enter_bwd(m, l, p, d, w, 0);
}
