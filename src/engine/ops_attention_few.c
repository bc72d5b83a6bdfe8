/* Attention forward for few queries over a long list of keys, as in decoding.  Nothing is packed;
 * keys and values are read once and in place.  A task is one cut of a segment's list and some kv
 * heads, so that all threads read.  MATH.md 10. */
#include <string.h>

#include "base/pool.h"
#include "engine/attn_impl.h"
#include "engine/bf16.h"
#include "engine/scratch.h"

/* Partial results of a cut of a cell: each row's softmax state, then the weighted sums (rows,
 * D). */
static size_t part_size(const struct attn_job *job)
{
    size_t rows = (size_t)job->most * (size_t)(job->a->H / job->a->K);
    return rows * (size_t)(job->a->D + 2);
}

static real *part_of(const struct attn_job *job, int cell, int cut)
{
    return job->part + ((size_t)cell * (size_t)job->cuts + (size_t)cut) * part_size(job);
}

/* A cut of the keys and some kv heads of one segment.  Each few keys go through all heads before
 * the next, because the heads of a key are adjacent in memory: so memory is read in order. */
struct few {
    const struct attn_job *job;
    struct attn_cell c;
    int kv1, group, rows; /* heads c.kv.. kv1; rows of a head */
    int place, n;         /* place in the list, length */
    int ldq, lds;
    struct attn_rows side[2]; /* keys and values of head c.kv from `place` on */
    real *q, *s;              /* (heads, rows, ld) */
};

enum { AT_ONCE = V_LANES, AHEAD = 2 * AT_ONCE };

/* Rounds here what gemm would round while packing, so that a cached step differs from the whole
 * pass in the order of sums alone. */
static void few_round(const struct attn_job *job, real *x, size_t n)
{
    for (size_t i = 0; job->format == GEMM_BF16 && i < n; i++)
        x[i] = (real)float_of_bf16(bf16_of((float)x[i]));
}

/* Copies the rows (query, head) next to each other, zero after D. */
static void few_queries(const struct few *f)
{
    size_t D = (size_t)f->job->a->D;
    real *to = f->q;
    for (int kv = f->c.kv; kv < f->kv1; kv++)
        for (int r = 0; r < f->rows; r++, to += f->ldq) {
            int head = kv * f->group + r % f->group;
            memcpy(to, f->job->q + attn_at(f->job, f->c.q0 + r / f->group, head), D * sizeof *to);
            few_round(f->job, to, D);
            memset(to + D, 0, ((size_t)f->ldq - D) * sizeof *to);
        }
}

/* Keys (values) of a head from the j-th on. */
static struct attn_rows few_rows(const struct few *f, int values, int kv, int j)
{
    struct attn_rows x = f->side[values];
    ptrdiff_t at = (ptrdiff_t)(kv - f->c.kv) * f->job->a->D + (x.row ? 0 : j * x.ld);
    x.row = x.row ? x.row + j : NULL;
    x.p = x.p ? x.p + at : NULL;
    x.p16 = x.p16 ? x.p16 + at : NULL;
    return x;
}

/* Prefetches the part of keys (values) [j, j + AT_ONCE) of all heads that is the share of `head`,
 * row after row in memory order; after the last keys come the first values.  Into L2: prefetching
 * into L1 made decoding from memory 1.7 times slower. */
static void few_fetch(const struct few *f, int values, int j, int head)
{
    int heads = f->kv1 - f->c.kv, whole = (f->n + AT_ONCE - 1) / AT_ONCE * AT_ONCE;
    if (!values && j >= whole) {
        values = 1;
        j -= whole;
    }
    int end = j + AT_ONCE < f->n ? AT_ONCE : f->n - j;
    for (int i = AT_ONCE * head / heads; i < AT_ONCE * (head + 1) / heads && i < end; i++) {
        struct attn_rows x = attn_rows_at(f->job, &f->c, f->place + j + i, values);
        ptrdiff_t at = x.row ? x.row[0] * x.ld : 0, bytes = (ptrdiff_t)heads * f->job->a->D;
        const char *p = x.p16 ? (const char *)(x.p16 + at) : (const char *)(x.p + at);
        bytes *= (ptrdiff_t)(x.p16 ? sizeof *x.p16 : sizeof *x.p);
        for (ptrdiff_t b = 0; b < bytes; b += 64)
            __builtin_prefetch(p + b, 0, 2);
    }
}

static void few_scores(const struct few *f)
{
    const struct attn_job *job = f->job;
    struct attn_cell c = f->c;
    for (int j = 0; j < f->n; j += AT_ONCE)
        for (c.kv = f->c.kv; c.kv < f->kv1; c.kv++) {
            struct attn_rows k = few_rows(f, 0, c.kv, j);
            few_fetch(f, 0, j + AHEAD, c.kv - f->c.kv);
            ptrdiff_t row = (ptrdiff_t)(c.kv - f->c.kv) * f->rows;
            job->kernels->dots(f->s + row * f->lds + j, f->lds, f->q + row * f->ldq, f->ldq,
                               f->rows, &k, f->n - j < AT_ONCE ? f->n - j : AT_ONCE, job->a->D,
                               job->scale);
        }
}

static void few_softmax(const struct few *f, int kv, real *part)
{
    const struct attn *a = f->job->a;
    real *s = f->s + (ptrdiff_t)(kv - f->c.kv) * f->rows * f->lds;
    for (int r = 0; r < f->rows; r++, s += f->lds, part += 2) {
        int i = f->c.q0 + r / f->group, from = attn_place(f->job, &f->c, a->lo[i]) - f->place;
        int to = attn_place(f->job, &f->c, a->hi[i]) - f->place;
        from = from < 0 ? 0 : from;
        to = to < f->n ? to : f->n;
        attn_cap(f->job, s + from, to - from);
        part[1] =
            f->job->kernels->softmax(s, from, to, (f->n + V_LANES - 1) / V_LANES * V_LANES, part);
        few_round(f->job, s, (size_t)f->n);
    }
}

static void few_mix(const struct few *f, int cut)
{
    const struct attn_job *job = f->job;
    struct attn_cell c = f->c;
    for (int j = 0; j < f->n; j += AT_ONCE)
        for (c.kv = f->c.kv; c.kv < f->kv1; c.kv++) {
            struct attn_rows v = few_rows(f, 1, c.kv, j);
            few_fetch(f, 1, j + AHEAD, c.kv - f->c.kv);
            real *part = part_of(job, c.seg * job->a->K + c.kv, cut) + (ptrdiff_t)f->rows * 2;
            ptrdiff_t row = (ptrdiff_t)(c.kv - f->c.kv) * f->rows;
            job->kernels->mix(part, f->s + row * f->lds + j, f->lds, f->rows, &v,
                              f->n - j < AT_ONCE ? f->n - j : AT_ONCE, job->a->D);
        }
}

static void few_cut(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    const struct attn *a = job->a;
    int each = task_count(a->K, job->chunks), cut = task / job->chunks % job->cuts;
    int kv = task % job->chunks * each, cell = task / job->chunks / job->cuts * a->K + kv;
    if (kv >= a->K)
        return;
    struct few f = {.job = job, .c = attn_cell_of(job, cell), .group = a->H / a->K};
    int begin = cut * ATTN_CUT, end = begin + ATTN_CUT < f.c.to ? begin + ATTN_CUT : f.c.to;
    (void)worker;
    f.kv1 = kv + each < a->K ? kv + each : a->K;
    f.rows = (f.c.q1 - f.c.q0) * f.group;
    f.place = f.c.from > begin ? f.c.from / V_LANES * V_LANES : begin;
    f.n = end - f.place;
    if (f.rows == 0 || f.n <= 0)
        return;
    for (int s = 0; s < 2; s++)
        f.side[s] = attn_rows_at(job, &f.c, f.place, s);
    size_t rows = (size_t)f.rows * (size_t)(f.kv1 - kv);
    f.ldq = (a->D + ATTN_Q_STEP - 1) / ATTN_Q_STEP * ATTN_Q_STEP;
    f.lds = ATTN_CUT + V_LANES;
    f.q = scratch_get(SCRATCH_KEYS, rows * (size_t)f.ldq, sizeof *f.q);
    f.s = scratch_get(SCRATCH_SCORE, rows * (size_t)f.lds, sizeof *f.s);
    few_queries(&f);
    few_scores(&f);
    for (int k = kv; k < f.kv1; k++) {
        real *part = part_of(job, cell + k - kv, cut);
        few_softmax(&f, k, part);
        memset(part + (ptrdiff_t)f.rows * 2, 0, (size_t)f.rows * (size_t)a->D * sizeof *part);
    }
    few_mix(&f, cut);
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
        attn_finish(job, c.seg, i, head, sum);
    }
}

void attn_few(struct attn_job *job)
{
    int tasks = 4 * pool_threads(); /* heads of a key are read together where cuts suffice */
    int cells = job->a->segs * job->a->K;
    attn_cuts_size(job);
    int wanted = job->cuts > 0 ? task_count(tasks, job->a->segs * job->cuts) : 1;
    job->chunks = wanted < job->a->K ? wanted : job->a->K;
    job->part = scratch_get(SCRATCH_ATTN_3, (size_t)cells * (size_t)job->cuts * part_size(job),
                            sizeof *job->part);
    pool_run(job->a->segs * job->cuts * job->chunks, few_cut, job);
    pool_run(cells, few_join, job);
}
