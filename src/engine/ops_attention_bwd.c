/* Attention backward: a task takes some queries of a cell through the cuts of the keys, one after
 * the other.  MATH.md 10.
 *
 * With enough cells a task is a whole cell.  Otherwise several tasks share the queries of a cell;
 * each sums dk and dv separately, and these sums are added in order. */
#include <string.h>

#include "base/pool.h"
#include "engine/attn_impl.h"
#include "engine/scratch.h"
#include "engine/vec.h"

/* A task: queries [q0, q1) of a cell. */
struct share {
    struct attn_cell c;
    int cell, chunk, q0, q1, from, to;
    const real *delta; /* (q1 - q0, group) */
};

static size_t sum_size(const struct attn_job *job) /* dk and dv of a cut */
{
    return 2 * (size_t)ATTN_CUT * (size_t)job->a->D;
}

static real *sum_of(const struct attn_job *job, int cell, int chunk, int cut)
{
    size_t n = (size_t)cell * (size_t)job->chunks + (size_t)chunk;
    return job->part + (n * (size_t)job->cuts + (size_t)cut) * sum_size(job);
}

/* Distributes the blocks of a segment evenly. */
static struct share share_of(const struct attn_job *job, int cell, int chunk)
{
    struct share s = {.c = attn_cell_of(job, cell), .cell = cell, .chunk = chunk};
    int blocks = task_count(s.c.q1 - s.c.q0, ATTN_BLOCK);
    int b0 = (int)((int64_t)blocks * chunk / job->chunks);
    int b1 = (int)((int64_t)blocks * (chunk + 1) / job->chunks);
    s.q0 = s.c.q0 + b0 * ATTN_BLOCK;
    s.q1 = b1 == blocks ? s.c.q1 : s.c.q0 + b1 * ATTN_BLOCK;
    if (s.q0 < s.q1) {
        s.from = attn_place(job, &s.c, job->a->lo[s.q0]);
        s.to = attn_place(job, &s.c, job->a->hi[s.q1 - 1]);
    }
    return s;
}

/* 10.5 */
static const real *deltas(const struct attn_job *job, const struct share *s)
{
    int group = job->a->H / job->a->K;
    real *delta =
             scratch_get(SCRATCH_ROW, (size_t)(s->q1 - s->q0) * (size_t)group + 1, sizeof *delta),
         *to = delta;
    for (int i = s->q0; i < s->q1; i++)
        for (int g = 0; g < group; g++) {
            size_t at = attn_at(job, i, s->c.kv * group + g);
            *to++ = v_dot(job->dout + at, job->o_in + at, (size_t)job->a->D);
        }
    return delta;
}

/* ---- one block of queries and one cut ---- */

struct tile {
    const struct share *s;
    const struct attn_cut *cut;
    int place; /* where the cut begins */
    int q0, n, g, head;
    int n0, n1, ld; /* columns of the cut that the block reads */
    real *p, *ds;   /* (n, ld) */
};

static void tile_rows(const struct attn_job *job, const struct tile *t)
{
    const struct attn *a = job->a;
    int group = a->H / a->K;
    for (int i = 0; i < t->n; i++) {
        int row = t->q0 + i, from = attn_place(job, &t->s->c, a->lo[row]) - t->place;
        int to = attn_place(job, &t->s->c, a->hi[row]) - t->place;
        size_t at = (size_t)i * (size_t)t->ld;
        real *p = t->p + at, *ds = t->ds + at;
        from = from < 0 ? 0 : from;
        to = to < t->n1 ? to : t->n1;
        size_t n = from < to ? (size_t)(to - from) : 0;
        real *capped = a->cap > 0 ? scratch_get(SCRATCH_CAP, ATTN_CUT, sizeof *capped) : NULL;
        attn_cap(job, p + from, (int)n);
        if (capped)
            memcpy(capped, p + from, n * sizeof *p);
        job->kernels->grad(p, ds, from, to, t->ld,
                           job->lse[(size_t)row * (size_t)a->H + (size_t)t->head],
                           t->s->delta[(row - t->s->q0) * group + t->g]);
        if (capped)
            vec()->cap_bwd(ds + from, capped, a->cap, n);
    }
}

/* sum (keys of the cut, D) += scale * w^T x, x the block's rows. */
static void tile_sum(const struct attn_job *job, const struct tile *t, real *sum, const real *w,
                     const real *x, real scale)
{
    const struct attn *a = job->a;
    struct gemm_job j = {.format = job->format,
                         .M = t->n1 - t->n0,
                         .N = a->D,
                         .K = t->n,
                         .alpha = scale,
                         .beta = 1,
                         .a = {w + t->n0, t->ld, 1, NULL},
                         .b = {x + attn_at(job, t->q0, t->head), a->H * a->D, 0, NULL},
                         .C = sum + (size_t)t->n0 * (size_t)a->D,
                         .ldc = a->D};
    gemm_run_inline(&j, 0, 0);
}

static void tile_scores(const struct attn_job *job, const struct tile *t, enum attn_side side,
                        real *s, const real *x, real scale)
{
    const struct attn *a = job->a;
    attn_product(job, t->cut, side,
                 (struct gemm_job){.M = t->n,
                                   .N = t->n1 - t->n0,
                                   .K = a->D,
                                   .alpha = scale,
                                   .a = {x + attn_at(job, t->q0, t->head), a->H * a->D, 0, NULL},
                                   .C = s + t->n0,
                                   .ldc = t->ld},
                 t->n0);
}

static void tile_bwd(const struct attn_job *job, const struct tile *t, real *dk, real *dv)
{
    const struct attn *a = job->a;
    tile_scores(job, t, ATTN_KT, t->p, job->q, job->scale);
    tile_scores(job, t, ATTN_VT, t->ds, job->dout, 1);
    tile_rows(job, t); /* 10.4, 10.6 */
    if (dv)            /* 10.7 */
        tile_sum(job, t, dv, t->p, job->dout, 1);
    if (dk)
        tile_sum(job, t, dk, t->ds, job->q, job->scale);
    if (job->dq)
        attn_product(job, t->cut, ATTN_K,
                     (struct gemm_job){.M = t->n,
                                       .N = a->D,
                                       .K = t->n1,
                                       .alpha = job->scale,
                                       .beta = 1,
                                       .a = {t->ds, t->ld, 0, NULL},
                                       .C = job->dq + attn_at(job, t->q0, t->head),
                                       .ldc = a->H * a->D},
                     0);
}

/* ---- tasks ---- */

/* All blocks of a share that read a cut. */
static void cut_bwd(const struct attn_job *job, const struct share *s, const struct attn_cut *cut,
                    int place, real *dk, real *dv)
{
    const struct attn *a = job->a;
    size_t room = (size_t)ATTN_BLOCK * ATTN_CUT;
    int group = a->H / a->K;
    struct tile t = {.s = s, .cut = cut, .place = place};
    t.p = scratch_get(SCRATCH_SCORE, room, sizeof *t.p);
    t.ds = scratch_get(SCRATCH_DSCORE, room, sizeof *t.ds);
    for (t.q0 = s->q0; t.q0 < s->q1; t.q0 += t.n) {
        t.n = attn_block_rows(job, &s->c, t.q0, s->q1, place);
        int from = attn_place(job, &s->c, a->lo[t.q0]) - place;
        int to = attn_place(job, &s->c, a->hi[t.q0 + t.n - 1]) - place;
        t.n0 = from > 0 ? from / GEMM_COLS * GEMM_COLS : 0;
        t.n1 = to < ATTN_CUT ? to : ATTN_CUT;
        t.ld = (t.n1 + V_LANES - 1) / V_LANES * V_LANES;
        if (t.n0 >= t.n1)
            continue;
        for (t.g = 0; t.g < group; t.g++) {
            t.head = s->c.kv * group + t.g;
            tile_bwd(job, &t, dk, dv);
        }
    }
}

/* out (M,K,D) += sum, at the keys of a cut. */
static void cut_add(const struct attn_job *job, const struct attn_cell *c, int cut, const real *sum,
                    real *out)
{
    const struct attn *a = job->a;
    int end = (cut + 1) * ATTN_CUT < c->to ? (cut + 1) * ATTN_CUT : c->to;
    for (int place = cut * ATTN_CUT; place < end; place++, sum += a->D) {
        real *y = out + ((size_t)attn_key_at(job, c, place) * (size_t)a->K + (size_t)c->kv) *
                            (size_t)a->D;
#pragma omp simd
        for (int d = 0; d < a->D; d++)
            y[d] += sum[d];
    }
}

static void cut_add_both(const struct attn_job *job, const struct attn_cell *c, int cut,
                         const real *sum)
{
    if (job->dk)
        cut_add(job, c, cut, sum, job->dk);
    if (job->dv)
        cut_add(job, c, cut, sum + sum_size(job) / 2, job->dv);
}

static void attend_bwd(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    int cells = job->a->segs * job->a->K;
    struct share s = share_of(job, task % cells, job->chunks - 1 - task / cells);
    (void)worker;
    if (s.q0 >= s.q1)
        return;
    s.delta = deltas(job, &s);
    for (int k = s.from / ATTN_CUT; k * ATTN_CUT < s.to; k++) {
        real *sum = job->part ? sum_of(job, s.cell, s.chunk, k)
                              : scratch_get(SCRATCH_PART, sum_size(job), sizeof *sum);
        const struct attn_cut *cut =
            job->made ? attn_cut_shared(job, s.cell, k)
                      : attn_cut_make(job, &s.c, k, scratch_get(SCRATCH_ATTN, job->cut_bytes, 1));
        memset(sum, 0, sum_size(job) * sizeof *sum);
        cut_bwd(job, &s, cut, k * ATTN_CUT, job->dk ? sum : NULL,
                job->dv ? sum + sum_size(job) / 2 : NULL);
        if (!job->part)
            cut_add_both(job, &s.c, k, sum);
    }
}

/* Adds up dk and dv of a cut of a cell from its shares, in order. */
static void add_shares(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    int cell = task / job->cuts, cut = task % job->cuts;
    (void)worker;
    for (int chunk = 0; chunk < job->chunks; chunk++) {
        struct share s = share_of(job, cell, chunk);
        if (s.q0 < s.q1 && cut >= s.from / ATTN_CUT && cut * ATTN_CUT < s.to)
            cut_add_both(job, &s.c, cut, sum_of(job, cell, chunk, cut));
    }
}

/* ---- own keys ---- */

/* One of a row's own keys outside its range: its terms of dq, dk and dv (10.8). */
static void own_key_bwd(const struct attn_job *job, int row, int own, int head, int kv)
{
    const struct attn *a = job->a;
    size_t at = attn_at(job, row, head), D = (size_t)a->D,
           key = ((size_t)own * (size_t)a->K + (size_t)kv) * D;
    const real *q = job->q + at, *dout = job->dout + at, *k = job->k + key, *v = job->v + key;
    real lse = job->lse[(size_t)row * (size_t)a->H + (size_t)head];
    real s = job->scale * v_dot(q, k, D);
    attn_cap(job, &s, 1);
    real p = v_exp(s - lse);
    real ds = p * (v_dot(dout, v, D) - v_dot(dout, job->o_in + at, D)) * job->scale;
    if (a->cap > 0)
        vec()->cap_bwd(&ds, &s, a->cap, 1);
    for (size_t d = 0; d < D; d++) {
        if (job->dq)
            job->dq[at + d] += ds * k[d];
        if (job->dk)
            job->dk[key + d] += ds * q[d];
        if (job->dv)
            job->dv[key + d] += p * dout[d];
    }
}

static void own_keys_bwd(void *ctx, int cell, int worker)
{
    const struct attn_job *job = ctx;
    struct attn_cell c = attn_cell_of(job, cell);
    int group = job->a->H / job->a->K;
    (void)worker;
    for (int i = c.q0; i < c.q1; i++) {
        int own, end;
        for (attn_own_keys(job->a, i, &own, &end); own < end; own++)
            for (int g = 0; g < group && attn_is_own(job->a, i, own); g++)
                own_key_bwd(job, i, own, c.kv * group + g, c.kv);
    }
}

/* Number of shares of a cell's queries: enough for many threads, but such that their sums of dk and
 * dv, which cover every key, fit in a fixed amount of memory. */
static int share_count(const struct attn_job *job, int cells, int blocks)
{
    enum { ROOM = 1 << 24 /* reals */ };
    int wanted = task_count(ATTN_TASKS, cells);
    size_t share = (size_t)cells * (size_t)task_count(job->a->M, ATTN_CUT) * sum_size(job);
    size_t most = share > 0 ? ROOM / share : 1;
    wanted = wanted < blocks ? wanted : blocks;
    return most < 1 ? 1 : (size_t)wanted < most ? wanted : (int)most;
}

void attention_bwd(const struct attn_grad *g, const struct attn *a)
{
    struct attn_job job = {.a = a,
                           .dq = g->dq,
                           .dk = g->dk,
                           .dv = g->dv,
                           .q = g->q,
                           .k = g->k,
                           .v = g->v,
                           .dout = g->dout,
                           .o_in = g->o,
                           .lse = g->lse};
    BUG_IF(a->cache, "attention: cached keys have no gradient");
    if ((!g->dq && !g->dk && !g->dv) || !attn_begin(&job))
        return;
    int cells = a->segs * a->K, blocks = task_count(job.most, ATTN_BLOCK);
    job.chunks = share_count(&job, cells, blocks);
    job.sides = 1U << ATTN_KT | 1U << ATTN_VT | (g->dq ? 1U << ATTN_K : 0);
    attn_cuts_size(&job);
    if (a->self)
        pool_run(cells, own_keys_bwd, &job);
    if (job.chunks > 1) {
        attn_cuts_share(&job);
        size_t n = (size_t)cells * (size_t)job.chunks * (size_t)job.cuts;
        job.part = scratch_get(SCRATCH_ATTN_3, n * sum_size(&job), sizeof *job.part);
    }
    pool_run(cells * job.chunks, attend_bwd, &job);
    if (job.chunks > 1)
        pool_run(cells * job.cuts, add_shares, &job);
}
