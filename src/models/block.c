/* Forward and backward of one block for the rows of a plan; step numbers match.
 *
 *   1 gather rows, first norm      5 output projection
 *   2 q, k, v                      6 second norm
 *   3 positions                    7 mlp in, activation
 *   4 attention                    8 mlp out; gate and scatter */
#include "models/block.h"

#include "bulk.h"
#include "engine/ops.h"

static const real *val(const struct model *m, int i)
{
    return i < 0 ? NULL : m->params.p[i].value;
}

static real *grd(const struct model *m, int i)
{
    return i < 0 ? NULL : m->params.p[i].grad;
}

static void norm_fwd(const struct model *m, real *y, real *mean, real *rstd, const real *x, int w,
                     int b, int N)
{
    int C = (int)m->config.dim;
    if (m->config.norm == NORM_RMS)
        rmsnorm_fwd(y, rstd, x, val(m, w), N, C, (real)m->config.norm_eps);
    else
        layernorm_fwd(y, mean, rstd, x, val(m, w), val(m, b), N, C, (real)m->config.norm_eps);
}

static void norm_bwd(const struct model *m, real *dx, const real *dy, const real *mean,
                     const real *rstd, const real *x, int w, int b, int N)
{
    int C = (int)m->config.dim;
    if (m->config.norm == NORM_RMS)
        rmsnorm_bwd(dx, grd(m, w), dy, x, val(m, w), rstd, N, C);
    else
        layernorm_bwd(dx, grd(m, w), grd(m, b), dy, x, val(m, w), mean, rstd, N, C);
}

static void rope(const struct model *m, real *x, const int32_t *pos, int N, int heads, int back)
{
    int kind = m->config.position, D = (int)m->config.head_dim;
    if (kind != POS_ROPE && kind != POS_ROPE_INTERLEAVED)
        return;
    (back ? rope_bwd : rope_fwd)(x, pos, m->inv_freq, N, heads, D, kind == POS_ROPE);
}

static void activation_fwd(const struct model *m, struct block_work *w, int N)
{
    size_t n = (size_t)N * (size_t)m->config.ffn;
    if (m->config.mlp == MLP_SWIGLU)
        swiglu_fwd(w->hid, w->a, w->b, n);
    else if (m->config.mlp == MLP_GELU)
        gelu_fwd(w->hid, w->b, n);
    else
        gelu_tanh_fwd(w->hid, w->b, n);
}

static void activation_bwd(const struct model *m, struct block_work *d, const struct block_work *w,
                           int N)
{
    size_t n = (size_t)N * (size_t)m->config.ffn;
    bulk_zero(d->b, n);
    if (m->config.mlp == MLP_SWIGLU) {
        bulk_zero(d->a, n);
        swiglu_bwd(d->a, d->b, d->hid, w->a, w->b, n);
    } else if (m->config.mlp == MLP_GELU) {
        gelu_bwd(d->b, d->hid, w->b, n);
    } else {
        gelu_tanh_bwd(d->b, d->hid, w->b, n);
    }
}

static struct attn attn_shape(const struct model *m, int N)
{
    const struct block_ranges *g = &m->ranges;
    struct attn a = {
        .N = N,
        .M = g->M,
        .H = (int)m->config.heads,
        .K = (int)m->config.kv_heads,
        .D = (int)m->config.head_dim,
        .lo = g->lo,
        .hi = g->hi,
        .self = g->self,
        .on = g->on,
        .segs = m->B,
        .seg_q = g->seg_q,
        .seg_k = g->seg_k,
    };
    return a;
}

static int is_whole(const struct model *m, const struct plan *p)
{
    return p->n == m->R;
}

/* Rows that write keys: all of them, or the plan's. */
static int key_rows(const struct model *m, const struct plan *p)
{
    return p->kv == KV_ALL ? m->R : p->n;
}

/* 1: x (N,C), the rows that run; xn (Mn,C), normed rows that are keys; xq (N,C), normed rows that query. */
static void enter_fwd(struct model *m, int l, const struct plan *p, struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    real *h = m->stream.h[l];
    int C = (int)m->config.dim;
    if (is_whole(m, p)) {
        w->x = h;
        norm_fwd(m, w->xn, w->mean1, w->rstd1, h, b->norm1, b->norm1_b, m->R);
        w->xq = w->xn;
        return;
    }
    w->x = w->gathered;
    rows_gather(w->x, h, p->row, p->n, C);
    if (p->kv == KV_ALL) {
        norm_fwd(m, w->xn, w->mean1, w->rstd1, h, b->norm1, b->norm1_b, m->R);
        w->xq = w->gathered_norm;
        rows_gather(w->xq, w->xn, p->row, p->n, C);
    } else {
        norm_fwd(m, w->xn, w->mean1, w->rstd1, w->x, b->norm1, b->norm1_b, p->n);
        w->xq = w->xn;
    }
}

/* 2, 3: queries of the rows that run, keys and values of the rows that are keys. */
static void qkv_fwd(struct model *m, int l, const struct plan *p, struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, H = (int)m->config.heads, K = (int)m->config.kv_heads,
        D = (int)m->config.head_dim;
    int Mn = key_rows(m, p);
    linear_fwd(w->q, w->xq, val(m, b->q), val(m, b->q_b), p->n, C, H * D, 0);
    linear_fwd(w->k, w->xn, val(m, b->k), val(m, b->k_b), Mn, C, K * D, 0);
    linear_fwd(w->v, w->xn, val(m, b->v), val(m, b->v_b), Mn, C, K * D, 0);
    rope(m, w->q, m->ranges.qpos, p->n, H, 0);
    rope(m, w->k, m->ranges.kpos, Mn, K, 0);
}

/* 6-8 without the scatter: f += mlp(norm2(u)). */
static void mlp_fwd(struct model *m, int l, int N, struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, F = (int)m->config.ffn;
    norm_fwd(m, w->un, w->mean2, w->rstd2, w->u, b->norm2, b->norm2_b, N);
    if (m->config.mlp == MLP_SWIGLU)
        linear_fwd(w->a, w->un, val(m, b->gate), NULL, N, C, F, 0);
    linear_fwd(w->b, w->un, val(m, b->up), val(m, b->up_b), N, C, F, 0);
    activation_fwd(m, w, N);
    linear_fwd(w->f, w->hid, val(m, b->down), val(m, b->down_b), N, F, C, 1);
}

void block_increment(struct model *m, int l, const struct plan *p, struct block_work *w,
                     struct kv_cache *cache)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, HD = (int)(m->config.heads * m->config.head_dim), N = p->n;
    const real *k = w->k, *v = w->v;
    block_ranges_make(m, p, cache, l);
    enter_fwd(m, l, p, w); /* 1 */
    qkv_fwd(m, l, p, w);   /* 2, 3 */
    if (cache) {
        kv_cache_append(m, cache, l, p, w);
        k = cache->layer[l].k;
        v = cache->layer[l].v;
    }
    struct attn a = attn_shape(m, N);
    attention_fwd(w->att, w->lse, w->q, k, v, &a);                       /* 4 */
    linear_fwd(w->f, w->att, val(m, b->o), val(m, b->o_b), N, HD, C, 0); /* 5 */
    bulk_copy(w->u, w->x, (size_t)N * (size_t)C);
    add_into(w->u, w->f, (size_t)N * (size_t)C);
    mlp_fwd(m, l, N, w); /* 6, 7, 8 */
}

void block_fwd(struct model *m, int l, const struct plan *p, struct block_work *w,
               struct kv_cache *cache)
{
    int C = (int)m->config.dim;
    block_increment(m, l, p, w, cache);
    bulk_copy(m->stream.h[l + 1], m->stream.h[l], (size_t)m->R * (size_t)C);
    rows_scatter_add(m->stream.h[l + 1], w->f, p->row, p->gate, p->n, C); /* 8 */
}

/* 8-6 upside down.  d->f holds d loss / d f; d->u receives what reaches u. */
static void mlp_bwd(struct model *m, int l, int N, struct block_work *d, const struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, F = (int)m->config.ffn;
    bulk_zero(d->hid, (size_t)N * (size_t)F);
    linear_bwd(d->hid, grd(m, b->down), grd(m, b->down_b), d->f, w->hid, val(m, b->down), N, F,
               C);              /* 8 */
    activation_bwd(m, d, w, N); /* 7 */
    bulk_zero(d->un, (size_t)N * (size_t)C);
    linear_bwd(d->un, grd(m, b->up), grd(m, b->up_b), d->b, w->un, val(m, b->up), N, C, F);
    if (m->config.mlp == MLP_SWIGLU)
        linear_bwd(d->un, grd(m, b->gate), NULL, d->a, w->un, val(m, b->gate), N, C, F);
    bulk_zero(d->u, (size_t)N * (size_t)C);
    norm_bwd(m, d->u, d->un, w->mean2, w->rstd2, w->u, b->norm2, b->norm2_b, N); /* 6 */
}

/* 5-2: from d->u (and d->f) to the normed rows.  d->xq, d->xn are filled; they may be one buffer. */
static void attn_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
                     struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, H = (int)m->config.heads, K = (int)m->config.kv_heads,
        D = (int)m->config.head_dim;
    int N = p->n, Mn = key_rows(m, p);
    size_t nq = (size_t)N * (size_t)(H * D), nk = (size_t)Mn * (size_t)(K * D);
    bulk_zero(d->att, nq);
    linear_bwd(d->att, grd(m, b->o), grd(m, b->o_b), d->f, w->att, val(m, b->o), N, H * D,
               C); /* 5 */
    bulk_zero(d->q, nq);
    bulk_zero(d->k, nk);
    bulk_zero(d->v, nk);
    struct attn a = attn_shape(m, N);
    attention_bwd(d->q, d->k, d->v, d->att, w->q, w->k, w->v, w->att, w->lse, &a); /* 4 */
    rope(m, d->q, m->ranges.qpos, N, H, 1);                                        /* 3 */
    rope(m, d->k, m->ranges.kpos, Mn, K, 1);
    bulk_zero(d->xn, (size_t)Mn * (size_t)C); /* 2 */
    d->xq = w->xq == w->xn ? d->xn : d->gathered_norm;
    if (d->xq != d->xn)
        bulk_zero(d->xq, (size_t)N * (size_t)C);
    linear_bwd(d->xq, grd(m, b->q), grd(m, b->q_b), d->q, w->xq, val(m, b->q), N, C, H * D);
    linear_bwd(d->xn, grd(m, b->k), grd(m, b->k_b), d->k, w->xn, val(m, b->k), Mn, C, K * D);
    linear_bwd(d->xn, grd(m, b->v), grd(m, b->v_b), d->v, w->xn, val(m, b->v), Mn, C, K * D);
    if (d->xq != d->xn)
        rows_scatter_add(d->xn, d->xq, p->row, NULL, N, C);
}

/* 1: the first norm's rows, and the residual path of u. */
static void enter_bwd(struct model *m, int l, const struct plan *p, struct block_work *d,
                      const struct block_work *w)
{
    const struct block_params *b = &m->block[l];
    int C = (int)m->config.dim, N = p->n;
    real *dh = m->stream.dh[l];
    if (is_whole(m, p) || p->kv == KV_ALL) {
        norm_bwd(m, dh, d->xn, w->mean1, w->rstd1, m->stream.h[l], b->norm1, b->norm1_b, m->R);
    } else {
        norm_bwd(m, d->u, d->xn, w->mean1, w->rstd1, w->x, b->norm1, b->norm1_b, N);
    }
    if (is_whole(m, p))
        add_into(dh, d->u, (size_t)N * (size_t)C);
    else
        rows_scatter_add(dh, d->u, p->row, NULL, N, C);
}

void block_bwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *dgate)
{
    struct block_work *d = &m->dwork;
    int C = (int)m->config.dim, N = p->n;
    size_t n = (size_t)N * (size_t)C;
    const real *dy = m->stream.dh[l + 1];
    block_ranges_make(m, p, NULL, l);
    add_into(m->stream.dh[l], dy, (size_t)m->R * (size_t)C); /* y = x + ... */
    if (dgate)
        rows_dot(dgate, dy, p->row, w->f, N, C);
    bulk_gather_scaled(d->f, dy, p, C); /* 8 */
    mlp_bwd(m, l, N, d, w);             /* 8, 7, 6 */
    add_into(d->f, d->u, n);            /* f = attn + mlp(x + attn): attn is reached by both */
    attn_bwd(m, l, p, d, w);            /* 5, 4, 3, 2 */
    enter_bwd(m, l, p, d, w);           /* 1 */
}
