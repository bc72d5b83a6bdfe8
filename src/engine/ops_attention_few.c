/* Attention forward for few queries over a long list of keys, as in decoding: nothing is packed, keys and values are read
 * once and in place.  A task is one cut of one cell's list, so that all threads read.  MATH.md 10. */
#include <string.h>

#include "base/pool.h"
#include "engine/attn_impl.h"
#include "engine/scratch.h"

/* Partial results of a cut of a cell: the softmax of each row, then the mixes (rows, D). */
static size_t part_size(const struct attn_job *job)
{
    size_t rows = (size_t)job->most * (size_t)(job->a->H / job->a->K);
    return rows * (size_t)(job->a->D + 2);
}

static real *part_of(const struct attn_job *job, int cell, int cut)
{
    return job->part + ((size_t)cell * (size_t)job->cuts + (size_t)cut) * part_size(job);
}

/* The cell's rows (query, head) side by side, (rows, ldq), zero behind D. */
static real *rows_together(const struct attn_job *job, const struct attn_cell *c, int rows, int ldq)
{
    int group = job->a->H / job->a->K;
    size_t D = (size_t)job->a->D;
    real *q = scratch_get(SCRATCH_KEYS, (size_t)rows * (size_t)ldq, sizeof *q);
    for (int r = 0; r < rows; r++) {
        real *to = q + (size_t)r * (size_t)ldq;
        memcpy(to, job->q + attn_at(job, c->q0 + r / group, c->kv * group + r % group),
               D * sizeof *to);
        memset(to + D, 0, ((size_t)ldq - D) * sizeof *to);
    }
    return q;
}

static void few_cut(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    const struct attn *a = job->a;
    int cell = task / job->cuts, cut = task % job->cuts, place = cut * ATTN_CUT, D = a->D;
    struct attn_cell c = attn_cell_of(job, cell);
    int group = a->H / a->K, rows = (c.q1 - c.q0) * group;
    (void)worker;
    if (rows == 0 || place >= c.to || place + ATTN_CUT <= c.from)
        return;
    if (c.from > place)
        place = c.from / V_LANES * V_LANES;
    int end = (cut + 1) * ATTN_CUT < c.to ? (cut + 1) * ATTN_CUT : c.to, n = end - place;
    int ldq = (D + ATTN_Q_STEP - 1) / ATTN_Q_STEP * ATTN_Q_STEP, lds = ATTN_CUT + V_LANES;
    struct attn_rows k = attn_rows_at(job, &c, place, 0), v = attn_rows_at(job, &c, place, 1);
    real *s = scratch_get(SCRATCH_SCORE, (size_t)rows * (size_t)lds, sizeof *s);
    real *part = part_of(job, cell, cut);
    job->kernels->dots(s, lds, rows_together(job, &c, rows, ldq), ldq, rows, &k, n, D, job->scale);
    for (int r = 0; r < rows; r++) {
        int i = c.q0 + r / group, from = attn_place(job, &c, a->lo[i]) - place;
        int to = attn_place(job, &c, a->hi[i]) - place;
        part[(size_t)r * 2 + 1] =
            job->kernels->softmax(s + (size_t)r * (size_t)lds, from < 0 ? 0 : from, to < n ? to : n,
                                  (n + V_LANES - 1) / V_LANES * V_LANES, &part[(size_t)r * 2]);
    }
    job->kernels->mix(part + (size_t)rows * 2, s, lds, rows, &v, n, D);
}

static void few_join(void *ctx, int cell, int worker)
{
    const struct attn_job *job = ctx;
    struct attn_cell c = attn_cell_of(job, cell);
    int group = job->a->H / job->a->K, rows = (c.q1 - c.q0) * group, D = job->a->D;
    (void)worker;
    for (int r = 0; r < rows; r++) {
        int i = c.q0 + r / group, head = c.kv * group + r % group;
        real *o = job->o + attn_at(job, i, head);
        struct attn_sum sum = {-INFINITY, 0};
        memset(o, 0, (size_t)D * sizeof *o);
        for (int k = c.from / ATTN_CUT; k * ATTN_CUT < c.to && c.from < c.to; k++) {
            const real *part = part_of(job, cell, k);
            struct attn_sum next = {part[(size_t)r * 2], part[(size_t)r * 2 + 1]};
            const real *mix = part + (size_t)rows * 2 + (size_t)r * (size_t)D;
            attn_join(&sum, o, next, mix, D);
        }
        attn_finish(job, i, head, sum);
    }
}

void attn_few(struct attn_job *job)
{
    int cells = job->a->segs * job->a->K;
    attn_cuts_size(job);
    job->part = scratch_get(SCRATCH_ATTN_3, (size_t)cells * (size_t)job->cuts * part_size(job),
                            sizeof *job->part);
    pool_run(cells * job->cuts, few_cut, job);
    pool_run(cells, few_join, job);
}
