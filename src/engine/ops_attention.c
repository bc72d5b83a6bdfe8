/* Causal attention over ranges of a key list: what forward and backward share.  MATH.md 10. */
#include <string.h>

#include "base/err.h"
#include "base/pool.h"
#include "engine/attn_impl.h"
#include "engine/bf16.h"
#include "engine/scratch.h"
#include "engine/vec.h"

/* ---- cells and places ---- */

int attn_place(const struct attn_job *job, const struct attn_cell *c, int j)
{
    j = j < c->first ? c->first : j > c->end ? c->end : j;
    return job->before ? job->before[j] - job->before[c->first] : j - c->first;
}

int attn_key_at(const struct attn_job *job, const struct attn_cell *c, int place)
{
    return job->before ? job->visible[job->before[c->first] + place] : c->first + place;
}

struct attn_cell attn_cell_of(const struct attn_job *job, int cell)
{
    const struct attn *a = job->a;
    struct attn_cell c = {.seg = cell / a->K, .kv = cell % a->K};
    c.q0 = a->seg_q[c.seg];
    c.q1 = a->seg_q[c.seg + 1];
    c.first = a->cache ? 0 : a->seg_k[c.seg];
    c.end = a->cache ? a->cache[c.seg].n : a->seg_k[c.seg + 1];
    if (c.q1 > c.q0) {
        c.from = attn_place(job, &c, a->lo[c.q0]);
        c.to = attn_place(job, &c, a->hi[c.q1 - 1]);
    }
    return c;
}

int attn_block_rows(const struct attn_job *job, const struct attn_cell *c, int q0, int q1,
                    int place)
{
    int seen = attn_place(job, c, job->a->hi[q0]) - place;
    int n = seen >= ATTN_CUT ? ATTN_BLOCK : ATTN_BLOCK / 2;
    return q1 - q0 < n ? q1 - q0 : n;
}

void attn_own_keys(const struct attn *a, int i, int *from, int *to)
{
    *to = a->self ? a->self[i] + 1 : 0;
    *from = !*to ? 0 : a->own ? a->own[i] : a->self[i];
}

int attn_is_own(const struct attn *a, int i, int j)
{
    if (j >= a->lo[i] && j < a->hi[i] && (!a->on || a->on[j] == 1))
        return 0;
    return j == a->self[i] || (a->on && a->on[j] == 2);
}

static struct attn_keys keys_of(const struct attn_job *job, int seg)
{
    return job->a->cache ? job->a->cache[seg] : (struct attn_keys){.k = job->k, .v = job->v};
}

struct attn_rows attn_rows_at(const struct attn_job *job, const struct attn_cell *c, int place,
                              int values)
{
    const struct attn *a = job->a;
    struct attn_keys y = keys_of(job, c->seg);
    struct attn_rows x = {.ld = (ptrdiff_t)a->K * a->D};
    ptrdiff_t at = (ptrdiff_t)c->kv * a->D;
    if (job->before)
        x.row = job->visible + job->before[c->first] + place;
    else
        at += (c->first + place) * x.ld;
    if (y.k16)
        x.p16 = (values ? y.v16 : y.k16) + at;
    else
        x.p = (values ? y.v : y.k) + at;
    return x;
}

const real *attn_row(const struct attn_job *job, int seg, int key, int kv, int values, real *buffer)
{
    const struct attn *a = job->a;
    struct attn_keys y = keys_of(job, seg);
    size_t at = ((size_t)key * (size_t)a->K + (size_t)kv) * (size_t)a->D;
    if (!y.k16)
        return (values ? y.v : y.k) + at;
    for (int d = 0; d < a->D; d++)
        buffer[d] = float_of_bf16((values ? y.v16 : y.k16)[at + (size_t)d]);
    return buffer;
}

/* Lists the enabled keys. */
static void list_visible(struct attn_job *job)
{
    const uint8_t *on = job->a->on;
    int M = job->a->M, n = 0;
    int32_t *before = scratch_get(SCRATCH_INDEX, 2 * (size_t)M + 1, sizeof *before);
    int32_t *visible = before + M + 1;
    for (int j = 0; j < M; j++) {
        before[j] = n;
        visible[n] = j;
        n += on[j] == 1;
    }
    before[M] = n;
    job->before = before;
    job->visible = visible;
}

int attn_begin(struct attn_job *job)
{
    const struct attn *a = job->a;
    BUG_IF(a->K <= 0 || a->H % a->K != 0, "attention: %d query heads over %d key heads", a->H,
           a->K);
    BUG_IF(a->segs > 0 && a->seg_q[a->segs] > a->N, "attention: segments end at query %d of %d",
           a->seg_q[a->segs], a->N);
    BUG_IF(a->segs > 0 && !a->cache && a->seg_k[a->segs] > a->M,
           "attention: segments end at key %d of %d", a->seg_k[a->segs], a->M);
    BUG_IF(a->cache && a->on && a->segs > 1, "attention: `on` is for one cache, not %d", a->segs);
    job->scale = a->scale > 0 ? a->scale : 1 / sqrt_r((real)a->D);
    job->format = a->bf16 && REAL_BITS == 32 ? GEMM_BF16 : GEMM_FP32;
    job->kernels = attn_kernels();
    for (int s = 0; s < a->segs; s++) {
        int n = a->seg_q[s + 1] - a->seg_q[s];
        job->most = n > job->most ? n : job->most;
    }
    if (job->most == 0)
        return 0;
    if (a->on)
        list_visible(job);
    return 1;
}

/* ---- cuts ---- */

static size_t aligned(size_t bytes)
{
    return (bytes + 63) / 64 * 64;
}

static size_t cut_floats(const struct attn_job *job)
{
    return aligned((size_t)ATTN_CUT * (size_t)job->a->D * sizeof(real));
}

/* A cut is its header, its packed operands and, where bfloat16 data is not packed, its widened
 * values. */
void attn_cuts_size(struct attn_job *job)
{
    int D = job->a->D, packs = 1;
    job->cut_bytes = aligned(sizeof(struct attn_cut));
    for (int s = 0; s < ATTN_SIDES; s++) {
        int across = s == ATTN_KT || s == ATTN_VT;
        if (!(job->sides >> s & 1))
            continue;
        size_t bytes = gemm_packed_bytes(job->format, across ? D : ATTN_CUT, across ? ATTN_CUT : D);
        job->side_bytes[s] = aligned(bytes);
        job->cut_bytes += job->side_bytes[s];
        packs &= bytes > 0;
    }
    if (attn_is_narrow(job->a) && !packs)
        job->cut_bytes += 2 * cut_floats(job);
    job->cuts = 0;
    for (int i = 0; i < job->a->segs; i++) {
        struct attn_cell c = attn_cell_of(job, i * job->a->K);
        int n = (c.to + ATTN_CUT - 1) / ATTN_CUT;
        job->cuts = n > job->cuts ? n : job->cuts;
    }
}

/* Keys or values of a cut as a GEMM operand; bfloat16 is widened into `wide`. */
static struct operand cut_operand(const struct attn_job *job, const struct attn_cell *c, int place,
                                  int n, int values, real *wide)
{
    struct attn_rows x = attn_rows_at(job, c, place, values);
    int D = job->a->D;
    if (!x.p16)
        return (struct operand){x.p, (int)x.ld, 0, x.row};
    for (int j = 0; j < n; j++) {
        const uint16_t *row = x.p16 + (x.row ? x.row[j] : j) * x.ld;
#pragma omp simd
        for (int d = 0; d < D; d++)
            wide[(size_t)j * (size_t)D + (size_t)d] = float_of_bf16(row[d]);
    }
    return (struct operand){wide, D, 0, NULL};
}

const struct attn_cut *attn_cut_make(const struct attn_job *job, const struct attn_cell *c, int cut,
                                     char *memory)
{
    struct attn_cut *m = (void *)memory;
    int D = job->a->D, place = cut * ATTN_CUT, held = 0;
    memset(m, 0, sizeof *m);
    m->n = c->to - place < ATTN_CUT ? c->to - place : ATTN_CUT;
    memory += aligned(sizeof *m);
    for (int s = 0; s < ATTN_SIDES; s++)
        held |= (job->sides >> s & 1) && job->side_bytes[s] == 0;
    real *wide = NULL;
    if (attn_is_narrow(job->a)) {
        size_t bytes = cut_floats(job);
        wide = held ? (void *)(memory + job->cut_bytes - aligned(sizeof *m) - 2 * bytes)
                    : scratch_get(SCRATCH_KEYS, 2 * bytes, 1);
    }
    struct operand k = cut_operand(job, c, place, m->n, 0, wide);
    struct operand v =
        cut_operand(job, c, place, m->n, 1, wide ? wide + cut_floats(job) / sizeof *wide : NULL);
    for (int s = 0; s < ATTN_SIDES; s++) {
        if (!(job->sides >> s & 1))
            continue;
        int across = s == ATTN_KT || s == ATTN_VT;
        m->b[s] = s == ATTN_KT || s == ATTN_K ? k : v;
        m->b[s].trans = across;
        gemm_pack_inline(&m->packed[s], memory, job->format, &m->b[s], across ? D : m->n,
                         across ? m->n : D);
        memory += job->side_bytes[s];
    }
    return m;
}

const struct attn_cut *attn_cut_shared(const struct attn_job *job, int cell, int cut)
{
    return (const void *)(job->made +
                          ((size_t)cell * (size_t)job->cuts + (size_t)cut) * job->cut_bytes);
}

static void share_task(void *ctx, int task, int worker)
{
    const struct attn_job *job = ctx;
    int cut = task % job->cuts;
    struct attn_cell c = attn_cell_of(job, task / job->cuts);
    (void)worker;
    if (cut >= c.from / ATTN_CUT && cut * ATTN_CUT < c.to)
        attn_cut_make(job, &c, cut, job->made + (size_t)task * job->cut_bytes);
}

void attn_cuts_share(struct attn_job *job)
{
    int n = job->a->segs * job->a->K * job->cuts;
    job->made = scratch_get(SCRATCH_ATTN, (size_t)n, job->cut_bytes);
    pool_run(n, share_task, job);
}

void attn_product(const struct attn_job *job, const struct attn_cut *cut, enum attn_side side,
                  struct gemm_job j, int n0)
{
    j.format = job->format;
    j.b = cut->b[side];
    if (cut->packed[side].by)
        j.packed = &cut->packed[side];
    else if (j.b.row)
        j.b.row += n0;
    else
        j.b.p += (ptrdiff_t)n0 * j.b.ld;
    gemm_run_inline(&j, 0, n0);
}

/* ---- rows ---- */

void attn_cap(const struct attn_job *job, real *s, int n)
{
    if (job->a->cap > 0 && n > 0)
        vec()->cap(s, job->a->cap, (size_t)n);
}

/* Not inlined, so that every caller rounds in the same way. */
__attribute__((noinline)) void attn_join(struct attn_sum *sum, real *y, struct attn_sum other,
                                         const real *part, int D)
{
    if (other.sum == 0) /* it has no keys */
        return;
    real top = other.top > sum->top ? other.top : sum->top;
    real mine = v_exp(sum->top - top), its = v_exp(other.top - top);
    sum->sum = v_fma(other.sum, its, sum->sum * mine);
    sum->top = top;
#pragma omp simd
    for (int d = 0; d < D; d++)
        y[d] = v_fma(part[d], its, y[d] * mine);
}

void attn_finish(const struct attn_job *job, int seg, int i, int head, struct attn_sum sum)
{
    const struct attn *a = job->a;
    int own, end, D = a->D, kv = head / (a->H / a->K);
    real *o = job->o + attn_at(job, i, head), *lse = job->lse_out + (size_t)i * (size_t)a->H + head;
    for (attn_own_keys(a, i, &own, &end); own < end; own++) {
        real *buffer = scratch_get(SCRATCH_ROW, (size_t)D, sizeof *buffer);
        if (!attn_is_own(a, i, own))
            continue;
        real at = job->scale * v_dot(job->q + attn_at(job, i, head),
                                     attn_row(job, seg, own, kv, 0, buffer), (size_t)D);
        attn_cap(job, &at, 1);
        attn_join(&sum, o, (struct attn_sum){at, 1}, attn_row(job, seg, own, kv, 1, buffer), D);
    }
    if (sum.sum == 0) { /* no keys */
        memset(o, 0, (size_t)D * sizeof *o);
        *lse = -INFINITY;
        return;
    }
    real scale = 1 / sum.sum;
    *lse = sum.top + log_r(sum.sum);
#pragma omp simd
    for (int d = 0; d < D; d++)
        o[d] *= scale;
}

/* ---- kernels ---- */

const struct attn_kernels *attn_kernels(void)
{
#ifdef ATTN_X86
    if (attn_avx512.available())
        return &attn_avx512;
    if (attn_avx2.available())
        return &attn_avx2;
#endif
    return &attn_plain;
}
