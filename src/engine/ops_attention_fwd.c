/* Attention forward by blocks of queries: scores, softmax and weighted sum, one cut of the keys at
 * a time.  MATH.md 10. */
#include <string.h>

#include "base/err.h"
#include "base/pool.h"
#include "engine/attn_impl.h"
#include "engine/scratch.h"

/* The queries [q0, q0 + n) of a cell in one head, and the union of the places they read. */
struct block {
    int q0, n, head, from, to;
};

static struct block block_of(const struct attn_job *job, const struct attn_cell *c, int q0, int q1)
{
    const struct attn *a = job->a;
    struct block b = {.q0 = q0, .from = attn_place(job, c, a->lo[q0])};
    b.n = attn_block_rows(job, c, q0, q1, b.from);
    b.to = attn_place(job, c, a->hi[q0 + b.n - 1]);
    return b;
}

/* One cut for one block: y (n, ldy) becomes the weighted sum of its values, sum its softmax
 * state. */
static void block_cut(const struct attn_job *job, const struct attn_cell *c, const struct block *b,
                      const struct attn_cut *cut, int place, real *y, int ldy, struct attn_sum *sum)
{
    const struct attn *a = job->a;
    int n0 = b->from > place ? (b->from - place) / GEMM_COLS * GEMM_COLS : 0;
    int n1 = b->to - place < ATTN_CUT ? b->to - place : ATTN_CUT;
    int ld = (n1 + V_LANES - 1) / V_LANES * V_LANES;
    real *s = scratch_get(SCRATCH_SCORE, (size_t)ATTN_BLOCK * ATTN_CUT, sizeof *s);
    attn_product(
        job, cut, ATTN_KT,
        (struct gemm_job){.M = b->n,
                          .N = n1 - n0,
                          .K = a->D,
                          .alpha = job->scale,
                          .a = {job->q + attn_at(job, b->q0, b->head), a->H * a->D, 0, NULL},
                          .C = s + n0,
                          .ldc = ld},
        n0);
    for (int i = 0; i < b->n; i++) {
        int from = attn_place(job, c, a->lo[b->q0 + i]) - place;
        int to = attn_place(job, c, a->hi[b->q0 + i]) - place;
        real *row = s + (size_t)i * (size_t)ld;
        from = from < 0 ? 0 : from;
        to = to < n1 ? to : n1;
        attn_cap(job, row + from, to - from);
        sum[i].sum = job->kernels->softmax(row, from, to, ld, &sum[i].top);
    }
    attn_product(
        job, cut, ATTN_V,
        (struct gemm_job){
            .M = b->n, .N = a->D, .K = n1, .alpha = 1, .a = {s, ld, 0, NULL}, .C = y, .ldc = ldy},
        0); /* 10.3 */
}

static void block_fwd(const struct attn_job *job, const struct attn_cell *c, const struct block *b,
                      const struct attn_cut *const *cuts)
{
    const struct attn *a = job->a;
    struct attn_sum sum[ATTN_BLOCK], next[ATTN_BLOCK];
    int D = a->D, ld = a->H * D, first = b->from / ATTN_CUT;
    real *o = job->o + attn_at(job, b->q0, b->head);
    for (int i = 0; i < b->n; i++)
        sum[i] = (struct attn_sum){-INFINITY, 0};
    for (int k = first; k * ATTN_CUT < b->to && b->from < b->to; k++) {
        if (k == first) {
            block_cut(job, c, b, cuts[k], k * ATTN_CUT, o, ld, sum);
            continue;
        }
        real *part = scratch_get(SCRATCH_PART, (size_t)ATTN_BLOCK * (size_t)D, sizeof *part);
        block_cut(job, c, b, cuts[k], k * ATTN_CUT, part, D, next);
        for (int i = 0; i < b->n; i++)
            attn_join(&sum[i], o + (ptrdiff_t)i * ld, next[i], part + (ptrdiff_t)i * D, D);
    }
    if (b->from >= b->to)
        for (int i = 0; i < b->n; i++)
            memset(o + (ptrdiff_t)i * ld, 0, (size_t)D * sizeof *o);
    for (int i = 0; i < b->n; i++)
        attn_finish(job, c->seg, b->q0 + i, b->head, sum[i]);
}

/* The cuts of a cell: shared ones, or packed here. */
static const struct attn_cut **cell_cuts(const struct attn_job *job, const struct attn_cell *c,
                                         int cell)
{
    const struct attn_cut **cuts =
        scratch_get(SCRATCH_ATTN_2, (size_t)job->cuts + 1, sizeof(struct attn_cut *));
    char *own = job->made ? NULL : scratch_get(SCRATCH_ATTN, (size_t)job->cuts, job->cut_bytes);
    for (int k = c->from / ATTN_CUT; k * ATTN_CUT < c->to; k++)
        cuts[k] = job->made ? attn_cut_shared(job, cell, k)
                            : attn_cut_make(job, c, k, own + (size_t)k * job->cut_bytes);
    return cuts;
}

/* With several chunks per cell each is a block; the last ones, which read most keys, start
 * first. */
static void attend(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    int group = job->a->H / job->a->K, cells = job->a->segs * job->a->K, cell = task % cells;
    struct attn_cell c = attn_cell_of(job, cell);
    int chunk = job->chunks - 1 - task / cells;
    int q0 = c.q0 + chunk * ATTN_BLOCK;
    int q1 = job->chunks == 1 || c.q1 - q0 < ATTN_BLOCK ? c.q1 : q0 + ATTN_BLOCK;
    (void)worker;
    if (q0 >= c.q1)
        return;
    const struct attn_cut *const *cuts = cell_cuts(job, &c, cell);
    for (struct block b; q0 < q1; q0 += b.n) {
        b = block_of(job, &c, q0, q1);
        for (int g = 0; g < group; g++) {
            b.head = c.kv * group + g;
            block_fwd(job, &c, &b, cuts);
        }
    }
}

int attention_alone(const struct attn *a)
{
    int group = a->H / a->K;
    int is_apart = REAL_BITS == 32 && a->bf16 && attn_is_narrow(a) && a->D <= GEMM_CUT;
    return is_apart && group <= ATTN_FEW / 2 ? ATTN_FEW / 2 / group : 0;
}

/* Both ways give the same bits in fp32.  bfloat16 multiplications need gemm, except over a cache,
 * where decoding at memory bandwidth matters more and sums are in another order. */
static int is_few(const struct attn_job *job)
{
    const struct attn *a = job->a;
    int rows = job->most * (a->H / a->K);
    if (a->D > GEMM_CUT) /* gemm cuts its chain at GEMM_CUT */
        return 0;
    return job->format == GEMM_FP32 ? rows <= ATTN_FEW : attn_is_narrow(a) && rows <= ATTN_FEW / 2;
}

void attention_fwd(real *o, real *lse, const real *q, const real *k, const real *v,
                   const struct attn *a)
{
    struct attn_job job = {.a = a, .o = o, .lse_out = lse, .q = q, .k = k, .v = v};
    if (!attn_begin(&job))
        return;
    int cells = a->segs * a->K, blocks = task_count(job.most, ATTN_BLOCK);
    if (is_few(&job)) {
        attn_few(&job);
        return;
    }
    job.sides = 1U << ATTN_KT | 1U << ATTN_V;
    job.chunks = cells < ATTN_TASKS ? blocks : 1;
    attn_cuts_size(&job);
    if (job.chunks > 1)
        attn_cuts_share(&job);
    pool_run(cells * job.chunks, attend, &job);
}
