/* Causal attention over ranges of a key list.  MATH.md 10.
 *
 * A task is one (segment, kv head).  The keys it may show are first put side by side ("visible list"; the list itself
 * when nothing is masked), so a key that is switched off and a key that is absent are the same thing.  Scores of a
 * block of queries and of all its query heads are one product over the block's span of that list.  Spans begin at a
 * multiple of SPAN_STEP and products over keys are cut at multiples of CUT, both counted from the list's begin; what lies
 * outside a query's own range is zero there and adds nothing.  So a query's result does not depend on its neighbours. */
#include <string.h>

#include "base/err.h"
#include "base/pool.h"
#include "engine/gemm.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vmath.h"

enum { BLOCK = 64, SPAN_STEP = V_LANES, CUT = 256 };

struct attn_job {
    const struct attn *a;
    real *o, *lse_out, *dq, *dk, *dv;
    const real *q, *k, *v, *dout, *o_in, *lse;
    real scale;
};

/* Keys and values of one (segment, kv head), and where their gradients are summed. */
struct keys {
    const real *k, *v;
    real *dk, *dv;
    int ld, ldd, first, count; /* the segment's keys in the list */
    const int32_t *before;     /* (keys + 1) visible ones before; NULL = all   */
};

/* A block of queries of one head, and its span of the visible list. */
struct block {
    int q0, n, head, span0, span, ld;
    real *s, *ds;
};

/* How many visible keys of the segment come before key j; any j will do. */
static int visible(const struct keys *ks, int j)
{
    j -= ks->first;
    j = j < 0 ? 0 : j > ks->count ? ks->count : j;
    return ks->before ? ks->before[j] : j;
}

/* Own key of query i when its range does not show it already, else -1. */
static int self_extra(const struct attn *a, int i)
{
    int j = a->self ? a->self[i] : -1;
    if (j < 0 || (j >= a->lo[i] && j < a->hi[i] && (!a->on || a->on[j])))
        return -1;
    return j;
}

static const real *head_row(const real *x, int row, int head, int heads, int D)
{
    return x + ((size_t)row * heads + head) * D;
}

static real *head_out(real *x, int row, int head, int heads, int D)
{
    return x + ((size_t)row * heads + head) * D;
}

static void copy_visible(const struct attn *a, const real *from, real *to, int first, int end,
                         int kv)
{
    for (int j = first; j < end; j++) {
        if (!a->on[j])
            continue;
        memcpy(to, head_row(from, j, kv, a->K, a->D), (size_t)a->D * sizeof *to);
        to += a->D;
    }
}

static struct keys keys_of(const struct attn_job *job, int seg, int kv, int with_grad)
{
    const struct attn *a = job->a;
    int first = a->seg_k[seg], end = a->seg_k[seg + 1], M = end - first;
    struct keys ks = {.first = first, .count = M, .ld = a->K * a->D, .ldd = a->D};
    ks.k = head_row(job->k, first, kv, a->K, a->D);
    ks.v = head_row(job->v, first, kv, a->K, a->D);
    size_t each = (size_t)M * a->D;
    real *p = scratch_get(SCRATCH_KEYS, 4 * each, sizeof *p);
    if (with_grad) {
        ks.dk = p + 2 * each;
        ks.dv = p + 3 * each;
        memset(ks.dk, 0, 2 * each * sizeof *p);
    }
    if (!a->on)
        return ks;
    int32_t *before = scratch_get(SCRATCH_INDEX, (size_t)M + 1, sizeof *before);
    before[0] = 0;
    for (int j = 0; j < M; j++)
        before[j + 1] = before[j] + (a->on[first + j] != 0);
    copy_visible(a, job->k, p, first, end, kv);
    copy_visible(a, job->v, p + each, first, end, kv);
    ks.k = p;
    ks.v = p + each;
    ks.ld = a->D;
    ks.before = before;
    return ks;
}

static struct block block_of(const struct attn *a, const struct keys *ks, int q0, int end, int head)
{
    struct block b = {.q0 = q0, .n = end - q0 < BLOCK ? end - q0 : BLOCK, .head = head};
    int from = visible(ks, a->lo[q0]), to = visible(ks, a->hi[q0 + b.n - 1]);
    b.span0 = from / SPAN_STEP * SPAN_STEP;
    b.span = to > b.span0 ? to - b.span0 : 0;
    b.ld = (b.span + SPAN_STEP - 1) / SPAN_STEP * SPAN_STEP;
    b.s = scratch_get(SCRATCH_SCORE, (size_t)b.n * b.ld, sizeof *b.s);
    return b;
}

/* Query i's part of the span: [*from, *to). */
static void own_range(const struct attn *a, const struct keys *ks, const struct block *b, int i,
                      int *from, int *to)
{
    *from = visible(ks, a->lo[b->q0 + i]) - b->span0;
    *to = visible(ks, a->hi[b->q0 + i]) - b->span0;
    if (*to < *from)
        *to = *from;
}

/* s (block, span) = scale * x k^T, x the block's rows of q (or of dout, against v). */
static void block_scores(const struct attn *a, const struct keys *ks, const struct block *b,
                         real *s, const real *x, const real *k, real scale)
{
    gemm_inline(0, 1, b->n, b->span, a->D, scale, head_row(x, b->q0, b->head, a->H, a->D),
                a->H * a->D, k + (size_t)b->span0 * ks->ld, ks->ld, 0, s, b->ld);
}

/* y rows of the block (+)= scale * s k, cut at the multiples of CUT. */
static void block_mix(const struct attn *a, const struct keys *ks, const struct block *b, real *y,
                      const real *s, const real *k, real scale, real beta)
{
    real *out = head_out(y, b->q0, b->head, a->H, a->D);
    for (int j = 0; j < b->span || j == 0; beta = 1) {
        int next = (b->span0 + j) / CUT * CUT + CUT - b->span0;
        if (next > b->span)
            next = b->span;
        gemm_inline(0, 0, b->n, a->D, next - j, scale, s + j, b->ld,
                    k + (size_t)(b->span0 + j) * ks->ld, ks->ld, beta, out, a->H * a->D);
        if (next == j)
            break;
        j = next;
    }
}

/* Sets what lies outside [from, to) to `value`, up to the padded width. */
static void fill_outside(real *s, int from, int to, int width, real value)
{
    for (int j = 0; j < from && j < width; j++)
        s[j] = value;
    for (int j = to; j < width; j++)
        s[j] = value;
}

static real exp_sum(real *s, real top, int width)
{
    real lane[V_LANES] = {0};
    for (int j = 0; j < width; j += V_LANES) {
        V_SIMD
        for (int l = 0; l < V_LANES; l++) {
            real p = v_exp(s[j + l] - top);
            s[j + l] = p;
            lane[l] += p;
        }
    }
    return v_fold(lane);
}

/* What the softmax of a row needs later. */
struct row_sum {
    real scale, self; /* 1 / sum; weight of the extra own key before that */
};

/* s becomes exp(s - max); lse is written (10.1, 10.2). */
static struct row_sum row_softmax(const struct attn_job *job, const struct keys *ks,
                                  const struct block *b, int i)
{
    const struct attn *a = job->a;
    real *s = b->s + (size_t)i * b->ld;
    int row = b->q0 + i, from, to, own = self_extra(a, row), kv = b->head / (a->H / a->K);
    own_range(a, ks, b, i, &from, &to);
    fill_outside(s, from, to, b->ld, -INFINITY);
    real top = v_max(s, (size_t)b->ld), at = -INFINITY;
    if (own >= 0)
        at = job->scale * v_dot(head_row(job->q, row, b->head, a->H, a->D),
                                head_row(job->k, own, kv, a->K, a->D), (size_t)a->D);
    if (at > top)
        top = at;
    real *lse = job->lse_out + (size_t)row * a->H + b->head;
    if (from >= to && own < 0) { /* nothing to look at */
        fill_outside(s, 0, 0, b->ld, 0);
        *lse = -INFINITY;
        return (struct row_sum){0, 0};
    }
    real sum = exp_sum(s, top, b->ld), self = own >= 0 ? v_exp(at - top) : 0;
    sum += self;
    *lse = top + log_r(sum);
    return (struct row_sum){1 / sum, self};
}

static void row_finish(const struct attn_job *job, const struct block *b, int i, struct row_sum r)
{
    const struct attn *a = job->a;
    int row = b->q0 + i, own = self_extra(a, row), D = a->D;
    real *o = head_out(job->o, row, b->head, a->H, D);
    if (own >= 0) {
        const real *v = head_row(job->v, own, b->head / (a->H / a->K), a->K, D);
#pragma omp simd
        for (int d = 0; d < D; d++)
            o[d] += r.self * v[d];
    }
#pragma omp simd
    for (int d = 0; d < D; d++)
        o[d] *= r.scale;
}

static void attend(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    const struct attn *a = job->a;
    int seg = task / a->K, kv = task % a->K, group = a->H / a->K, end = a->seg_q[seg + 1];
    struct keys ks = keys_of(job, seg, kv, 0);
    struct row_sum sum[BLOCK];
    (void)worker;
    for (int q0 = a->seg_q[seg]; q0 < end; q0 += BLOCK)
        for (int g = 0; g < group; g++) {
            struct block b = block_of(a, &ks, q0, end, kv * group + g);
            block_scores(a, &ks, &b, b.s, job->q, ks.k, job->scale);
            for (int i = 0; i < b.n; i++)
                sum[i] = row_softmax(job, &ks, &b, i);
            block_mix(a, &ks, &b, job->o, b.s, ks.v, 1, 0); /* 10.3 */
            for (int i = 0; i < b.n; i++)
                row_finish(job, &b, i, sum[i]);
        }
}

static void attn_check(const struct attn *a)
{
    BUG_IF(a->K <= 0 || a->H % a->K != 0, "attention: %d query heads over %d key heads", a->H,
           a->K);
    BUG_IF(a->segs > 0 && (a->seg_q[a->segs] > a->N || a->seg_k[a->segs] > a->M),
           "attention: segments end at query %d of %d, key %d of %d", a->seg_q[a->segs], a->N,
           a->seg_k[a->segs], a->M);
}

void attention_fwd(real *o, real *lse, const real *q, const real *k, const real *v,
                   const struct attn *a)
{
    struct attn_job job = {
        .a = a, .o = o, .lse_out = lse, .q = q, .k = k, .v = v, .scale = 1 / sqrt_r((real)a->D)};
    attn_check(a);
    if (a->N > 0)
        pool_run(a->segs * a->K, attend, &job);
}

/* The extra own key of a row: its terms of dq, dk and dv (10.8). */
static void self_bwd(const struct attn_job *job, const struct block *b, int i, int own, real delta)
{
    const struct attn *a = job->a;
    int row = b->q0 + i, D = a->D, kv = b->head / (a->H / a->K);
    const real *q = head_row(job->q, row, b->head, a->H, D),
               *dout = head_row(job->dout, row, b->head, a->H, D);
    const real *k = head_row(job->k, own, kv, a->K, D), *v = head_row(job->v, own, kv, a->K, D);
    real p = v_exp(job->scale * v_dot(q, k, (size_t)D) - job->lse[(size_t)row * a->H + b->head]);
    real ds = p * (v_dot(dout, v, (size_t)D) - delta) * job->scale;
    real *dq = job->dq ? head_out(job->dq, row, b->head, a->H, D) : NULL;
    real *dk = job->dk ? head_out(job->dk, own, kv, a->K, D) : NULL;
    real *dv = job->dv ? head_out(job->dv, own, kv, a->K, D) : NULL;
    for (int d = 0; d < D; d++) {
        if (dq)
            dq[d] += ds * k[d];
        if (dk)
            dk[d] += ds * q[d];
        if (dv)
            dv[d] += p * dout[d];
    }
}

/* Row i: s becomes p (10.4) and ds, which holds dout v^T, becomes p * (ds - delta) (10.6). */
static void row_bwd(const struct attn_job *job, const struct keys *ks, const struct block *b, int i)
{
    const struct attn *a = job->a;
    real *s = b->s + (size_t)i * b->ld, *ds = b->ds + (size_t)i * b->ld;
    int row = b->q0 + i, from, to, own = self_extra(a, row);
    real lse = job->lse[(size_t)row * a->H + b->head];
    real delta = v_dot(head_row(job->dout, row, b->head, a->H, a->D),
                       head_row(job->o_in, row, b->head, a->H, a->D), (size_t)a->D); /* 10.5 */
    own_range(a, ks, b, i, &from, &to);
    fill_outside(s, from, to, b->ld, 0);
    fill_outside(ds, from, to, b->ld, 0);
    V_SIMD
    for (int j = from; j < to; j++) {
        s[j] = v_exp(s[j] - lse);
        ds[j] = s[j] * (ds[j] - delta);
    }
    if (own >= 0)
        self_bwd(job, b, i, own, delta);
}

/* What was summed over the visible list goes back to where its keys are. */
static void keys_flush(const struct attn *a, const struct keys *ks, const real *sum, real *out,
                       int end, int kv)
{
    for (int j = ks->first; j < end; j++) {
        if (a->on && !a->on[j])
            continue;
        real *y = head_out(out, j, kv, a->K, a->D);
        for (int d = 0; d < a->D; d++)
            y[d] += sum[d];
        sum += a->D;
    }
}

static void block_bwd(const struct attn_job *job, const struct keys *ks, const struct block *b)
{
    const struct attn *a = job->a;
    const real *q = head_row(job->q, b->q0, b->head, a->H, a->D);
    const real *dout = head_row(job->dout, b->q0, b->head, a->H, a->D);
    size_t at = (size_t)b->span0 * ks->ldd;
    block_scores(a, ks, b, b->s, job->q, ks->k, job->scale);
    block_scores(a, ks, b, b->ds, job->dout, ks->v, 1);
    for (int i = 0; i < b->n; i++)
        row_bwd(job, ks, b, i);
    if (job->dv) /* 10.7 */
        gemm_inline(1, 0, b->span, a->D, b->n, 1, b->s, b->ld, dout, a->H * a->D, 1, ks->dv + at,
                    ks->ldd);
    if (job->dk)
        gemm_inline(1, 0, b->span, a->D, b->n, job->scale, b->ds, b->ld, q, a->H * a->D, 1,
                    ks->dk + at, ks->ldd);
    if (job->dq)
        block_mix(a, ks, b, job->dq, b->ds, ks->k, job->scale, 1);
}

static void attend_bwd(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    const struct attn *a = job->a;
    int seg = task / a->K, kv = task % a->K, group = a->H / a->K, end = a->seg_q[seg + 1];
    struct keys ks = keys_of(job, seg, kv, 1);
    (void)worker;
    for (int q0 = a->seg_q[seg]; q0 < end; q0 += BLOCK)
        for (int g = 0; g < group; g++) {
            struct block b = block_of(a, &ks, q0, end, kv * group + g);
            b.ds = scratch_get(SCRATCH_DSCORE, (size_t)b.n * b.ld, sizeof *b.ds);
            block_bwd(job, &ks, &b);
        }
    if (job->dk)
        keys_flush(a, &ks, ks.dk, job->dk, a->seg_k[seg + 1], kv);
    if (job->dv)
        keys_flush(a, &ks, ks.dv, job->dv, a->seg_k[seg + 1], kv);
}

void attention_bwd(real *dq, real *dk, real *dv, const real *dout, const real *q, const real *k,
                   const real *v, const real *o, const real *lse, const struct attn *a)
{
    struct attn_job job = {.a = a,
                           .dq = dq,
                           .dk = dk,
                           .dv = dv,
                           .q = q,
                           .k = k,
                           .v = v,
                           .dout = dout,
                           .o_in = o,
                           .lse = lse,
                           .scale = 1 / sqrt_r((real)a->D)};
    attn_check(a);
    if (a->N > 0 && (dq || dk || dv))
        pool_run(a->segs * a->K, attend_bwd, &job);
}
