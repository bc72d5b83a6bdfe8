/* Holds matrices for GEMMs: packed copies, quantised blocks, memory estimates. */
#include "models/weights.h"

#include <math.h>
#include <stdatomic.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/pool.h"
#include "base/str.h"
#include "models/model.h"
#include "models/moe.h"

/* Rows of a file read at once; for a matrix packed in both directions one whole slice of its inner
 * dimension. */
enum { ROWS_FWD = 64, ROWS_BOTH = GEMM_DEEP };
/* Bytes of a file laid out at a time: they stay in the L2 cache from reading to packing. */
enum { PART_BYTES = 1 << 18 };

static void forget(struct weight *x)
{
    quant_free(x->quant);
    mem_free_aligned(x->own);
    x->quant = NULL;
    x->own = NULL;
}

void weights_release(struct weights *w)
{
    for (int i = 0; i < w->n; i++)
        forget(&w->v[i]);
    mem_free(w->v);
    mem_free_aligned(w->block);
    *w = (struct weights){.numbers = w->numbers};
}

static void note(struct weights *w, const struct params *ps, int index)
{
    if (index >= 0) {
        w->v[index].O = ps->p[index].shape[0];
        w->v[index].C = ps->p[index].shape[1];
    }
}

static int find_matrices(struct model *m, struct err *e)
{
    struct weights *w = &m->weights;
    w->n = m->params.n;
    w->v = mem_alloc((size_t)w->n, sizeof *w->v);
    if (!w->v) {
        w->n = 0;
        return err_set(e, DS_EMEM, "matrix table: out of memory");
    }
    for (int l = 0; l < model_config_depth(&m->config); l++) {
        const struct block_params *b = &m->block[l];
        const int matrix[] = {b->q, b->k, b->v, b->o, b->gate, b->up, b->down};
        for (size_t i = 0; i < DS_LEN(matrix); i++)
            note(w, &m->params, matrix[i]);
        for (int i = 0, at[3]; b->router >= 0 && i < m->config.experts; i++) {
            moe_expert(m, b, i, at);
            for (int k = 0; k < 3; k++)
                note(w, &m->params, at[k]);
        }
    }
    note(w, &m->params, m->head < 0 ? m->embed : m->head);
    return 0;
}

static size_t aligned(size_t n)
{
    return (n + 63) / 64 * 64;
}

/* A bfloat16 matrix stays bfloat16 in fp32 mode too: its values do not change.  In bf16 mode every
 * matrix is rounded to it. */
static enum gemm_storage storage_of(const struct model *m, int i)
{
    const struct weight *x = &m->weights.v[i];
    enum gemm_format format = m->weights.format;
    int is_narrow = m->params.p[i].in_file && (format == GEMM_BF16 || m->stored.v[i].is_bf16) &&
                    gemm_storage_bytes(format, GEMM_NARROW, x->C, x->O) > 0;
    return is_narrow ? GEMM_NARROW : GEMM_WHOLE;
}

/* Bytes of an unquantised matrix packed for one direction. */
static size_t storage_bytes(const struct model *m, int i, int is_back)
{
    const struct weight *x = &m->weights.v[i];
    return gemm_storage_bytes(m->weights.format, storage_of(m, i), is_back ? x->O : x->C,
                              is_back ? x->C : x->O);
}

/* Assigns parts of the block, or only counts.  w^T is for forward; w for backward, if there is
 * one. */
static size_t assign_block(struct model *m, char *at)
{
    struct weights *w = &m->weights;
    size_t used = 0;
    for (int i = 0; i < w->n; i++) {
        struct weight *x = &w->v[i];
        size_t fwd = x->O && !x->quant ? aligned(storage_bytes(m, i, 0)) : 0;
        size_t bwd = fwd && m->is_training ? aligned(storage_bytes(m, i, 1)) : 0;
        x->fwd.data = at && fwd ? at + used : NULL;
        x->bwd.data = at && bwd ? at + used + fwd : NULL;
        used += fwd + bwd;
    }
    return used;
}

/* The quantisation of parameter i; QUANT_NONE: not quantised. */
static enum quant_kind kind_of(const struct model *m, int i)
{
    const struct weight *x = &m->weights.v[i];
    const struct param *p = &m->params.p[i];
    int kind = m->weights.numbers.weights;
    if (x->O == 0 || (m->is_training && p->train))
        return QUANT_NONE;
    if (kind == WEIGHTS_AUTO)
        return p->in_file ? m->stored.v[i].kind : QUANT_NONE;
    return quant_row_bytes((enum quant_kind)kind, x->C) > 0 ? (enum quant_kind)kind : QUANT_NONE;
}

/* The next matrix after i that is read from a file. */
static void want_next(const struct model *m, int i)
{
    const struct weights *w = &m->weights;
    while (++i < w->n)
        if (w->v[i].O > 0) {
            stored_prefetch(m, i);
            return;
        }
}

/* Quantises a matrix whose values are in a file, all at once. */
static int quantise_stored(struct model *m, int i, enum quant_kind kind, struct err *e)
{
    struct weight *x = &m->weights.v[i];
    const struct param *p = &m->params.p[i];
    const struct stored *s = &m->stored.v[i];
    want_next(m, i);
    if (s->kind == kind)
        return stored_quant(&x->quant, s, p, e);
    real *w = mem_reserve(p->n * sizeof *w);
    if (!w)
        return err_set(e, DS_EMEM, "out of memory for quantising %s", p->name);
    stored_populate(s, p, 0, (size_t)x->O);
    stored_rows(s, p, 0, (size_t)x->O, w);
    stored_drop(s, p, 0, (size_t)x->O);
    int rc = quant_new(&x->quant, kind, w, x->O, x->C, e);
    mem_free_aligned(w);
    return rc;
}

static int quantise(struct model *m, struct err *e)
{
    struct weights *w = &m->weights;
    int rc = 0, done = 0, kind = w->numbers.weights;
    for (int i = 0; i < w->n && rc == 0; i++) {
        struct weight *x = &w->v[i];
        const struct param *p = &m->params.p[i];
        enum quant_kind as = kind_of(m, i);
        if (as == QUANT_NONE)
            continue;
        rc = p->in_file ? quantise_stored(m, i, as, e)
                        : quant_new(&x->quant, as, p->value, x->O, x->C, e);
        if (rc < 0)
            rc = err_add(e, rc, "%s", p->name);
        done++;
    }
    if (rc == 0 && !done && kind != QUANT_NONE && kind != WEIGHTS_AUTO)
        return err_set(e, DS_ERANGE,
                       "weights=%s: no %smatrix of this model has rows of whole blocks",
                       quant_name[kind], m->is_training ? "frozen " : "");
    return rc;
}

/* Temporary memory for preparing parameter i: all its values when quantising, else some rows per
 * thread. */
static double passing_bytes(const struct model *m, int i, enum quant_kind kind)
{
    const struct param *p = &m->params.p[i];
    double rows = (double)pool_threads() * (m->is_training ? ROWS_BOTH : ROWS_FWD);
    if (!p->in_file || (kind != QUANT_NONE && m->stored.v[i].kind == kind))
        return 0;
    return sizeof(real) * (kind != QUANT_NONE ? (double)p->n : rows * (double)p->shape[1]);
}

/* An overcommitting system would kill the program later without a message. */
static int check_memory(const struct model *m, struct err *e)
{
    const struct weights *w = &m->weights;
    double need = 0, passing = 0, left = mem_available();
    char a[16], b[16];
    for (int i = 0; i < w->n; i++) {
        const struct weight *x = &w->v[i];
        enum quant_kind kind = kind_of(m, i);
        if (x->O == 0)
            continue;
        double unquantised = (double)storage_bytes(m, i, 0);
        if (m->is_training)
            unquantised += (double)storage_bytes(m, i, 1);
        passing = fmax(passing, passing_bytes(m, i, kind));
        if (unquantised == 0 && m->params.p[i].in_file)
            unquantised = (double)m->params.p[i].n * sizeof(real);
        need +=
            kind == QUANT_NONE ? unquantised : (double)quant_row_bytes(kind, x->C) * (double)x->O;
    }
    need += passing;
    if (left <= 0 || need <= left)
        return 0;
    return err_set(e, DS_EMEM, "out of memory: weights need %sB as %s, %sB available",
                   str_si(a, need),
                   w->numbers.weights == WEIGHTS_AUTO || w->numbers.weights == QUANT_NONE
                       ? gemm_format_name[w->format]
                       : quant_name[w->numbers.weights],
                   str_si(b, left));
}

/* Allocates the packed copies in the current provider's sizes, and unpacked values where it uses
 * those. */
static int place(struct model *m, struct err *e)
{
    struct weights *w = &m->weights;
    mem_free_aligned(w->block);
    w->by = gemm_provider(w->format);
    w->bytes = assign_block(m, NULL);
    w->block = w->bytes ? mem_reserve(w->bytes) : NULL;
    if (w->bytes && !w->block)
        return err_set(e, DS_EMEM, "packed weights: out of memory: %.1f MiB needed",
                       (double)w->bytes / 1048576.0);
    assign_block(m, w->block);
    for (int i = 0; i < w->n; i++) {
        struct weight *x = &w->v[i];
        mem_free_aligned(x->own);
        x->own = NULL;
        if (x->O == 0 || x->quant || x->fwd.data || !m->params.p[i].in_file)
            continue;
        x->own = mem_reserve(m->params.p[i].n * sizeof *x->own);
        if (!x->own)
            return err_set(e, DS_EMEM, "out of memory for %s", m->params.p[i].name);
    }
    return 0;
}

int weights_init(struct model *m, struct err *e)
{
    weights_release(&m->weights);
    m->weights.numbers = (struct numeric_options){0};
    m->weights.format = GEMM_FP32;
    m->weights.version = m->params.version - 1;
    m->weights.given = m->params.given - 1;
    m->weights.made_of = m->params.given;
    return find_matrices(m, e);
}

int weights_use(struct model *m, const struct numeric_options *o, struct err *e)
{
    struct weights *w = &m->weights;
    int rc = weights_init(m, e);
    w->numbers = *o;
    w->format = o->compute == COMPUTE_BF16 && REAL_BITS == 32 ? GEMM_BF16 : GEMM_FP32;
    if (rc == 0)
        rc = check_memory(m, e);
    if (rc == 0)
        rc = quantise(m, e);
    if (rc == 0)
        rc = place(m, e);
    return rc;
}

/* ---- from a file ---- */

struct reading {
    const struct model *m;
    int i, step;
    int is_raw;         /* bfloat16 is laid out as it is in the file */
    size_t each;        /* bytes of a worker's space */
    char *space;        /* (workers, step, C) */
    _Atomic size_t bad; /* non-finite values */
};

/* Few enough at a time for counters as narrow as the values. */
enum { COUNTED = 1 << 14 };

static size_t bad_reals(const real *w, size_t n)
{
    size_t bad = 0;
    for (size_t at = 0; at < n; at += COUNTED) {
        size_t end = n - at < COUNTED ? n : at + COUNTED;
        uint32_t some = 0;
#pragma omp simd reduction(+ : some)
        for (size_t k = at; k < end; k++)
            some += !(w[k] - w[k] == 0);
        bad += some;
    }
    return bad;
}

static size_t bad_bf16(const uint16_t *w, size_t n)
{
    size_t bad = 0;
    for (size_t at = 0; at < n; at += COUNTED) {
        size_t end = n - at < COUNTED ? n : at + COUNTED;
        uint16_t some = 0;
#pragma omp simd reduction(+ : some)
        for (size_t k = at; k < end; k++)
            some = (uint16_t)(some + ((w[k] & 0x7f80) == 0x7f80));
        bad += some;
    }
    return bad;
}

static size_t pack_bf16(const struct reading *r, int row, int n, void *space)
{
    const struct weight *x = &r->m->weights.v[r->i];
    stored_bf16(&r->m->stored.v[r->i], &r->m->params.p[r->i], (size_t)row, (size_t)n, space);
    gemm_pack_bf16(&x->fwd, space, row, n);
    return bad_bf16(space, (size_t)n * (size_t)x->C);
}

static size_t pack_reals(const struct reading *r, int row, int n, real *w)
{
    const struct weight *x = &r->m->weights.v[r->i];
    const struct stored *s = &r->m->stored.v[r->i];
    const struct param *p = &r->m->params.p[r->i];
    const struct operand fwd = {w, x->C, 1, NULL}, bwd = {w, x->C, 0, NULL};
    stored_populate(s, p, (size_t)row, (size_t)n);
    stored_rows(s, p, (size_t)row, (size_t)n, w);
    stored_drop(s, p, (size_t)row, (size_t)n);
    if (x->fwd.data)
        gemm_pack_part(&x->fwd, &fwd, 0, x->C, row, n);
    if (x->bwd.data)
        gemm_pack_part(&x->bwd, &bwd, row, n, 0, x->C);
    return bad_reals(w, (size_t)n * (size_t)x->C);
}

static void read_part(void *ctx, int task, int worker)
{
    struct reading *r = ctx;
    const struct weight *x = &r->m->weights.v[r->i];
    int row = task * r->step, n = x->O - row < r->step ? x->O - row : r->step;
    void *space = x->own ? (void *)(x->own + (size_t)row * (size_t)x->C)
                         : (void *)(r->space + (size_t)worker * r->each);
    size_t bad = r->is_raw ? pack_bf16(r, row, n, space) : pack_reals(r, row, n, space);
    if (bad > 0)
        atomic_fetch_add(&r->bad, bad);
}

/* Rows of a task: as many as fit in the cache, in whole panels. */
static int rows_at_once(const struct weight *x, size_t item)
{
    int n = (int)(PART_BYTES / (item * (size_t)x->C)) / GEMM_COLS * GEMM_COLS;
    return x->bwd.data ? ROWS_BOTH : n < GEMM_COLS ? GEMM_COLS : n < ROWS_FWD ? n : ROWS_FWD;
}

/* Packs one matrix a few rows at a time: only its packed copy is in memory. */
static int read_stored(struct model *m, int i, struct err *e)
{
    struct weights *w = &m->weights;
    struct weight *x = &w->v[i];
    struct reading r = {.m = m, .i = i};
    if (x->quant)
        return 0;
    want_next(m, i);
    if (x->fwd.data)
        gemm_pack_begin(&x->fwd, x->fwd.data, w->format, storage_of(m, i), x->C, x->O);
    if (x->bwd.data)
        gemm_pack_begin(&x->bwd, x->bwd.data, w->format, storage_of(m, i), x->O, x->C);
    r.is_raw =
        x->fwd.data && !x->bwd.data && stored_is_bf16(&m->stored.v[i]) && gemm_takes_bf16(&x->fwd);
    size_t item = r.is_raw ? sizeof(uint16_t) : sizeof(real);
    r.step = rows_at_once(x, item);
    r.each = aligned((size_t)r.step * (size_t)x->C * item);
    r.space = x->own ? NULL : mem_reserve((size_t)pool_threads() * r.each);
    if (!x->own && !r.space)
        return err_set(e, DS_EMEM, "out of memory for reading %s", m->params.p[i].name);
    pool_run((x->O + r.step - 1) / r.step, read_part, &r);
    mem_free_aligned(r.space);
    if (r.bad > 0)
        log_warn("tensor %s holds %zu non-finite values", m->params.p[i].name, r.bad);
    return 0;
}

static int refresh_one(struct model *m, int i, struct err *e)
{
    struct weights *w = &m->weights;
    struct weight *x = &w->v[i];
    struct param *p = &m->params.p[i];
    const struct operand t = {p->value, x->C, 1, NULL}, n = {p->value, x->C, 0, NULL};
    BUG_IF(x->quant && w->made_of != m->params.given, "%s: changed after it was quantised",
           p->name);
    if (p->in_file)
        return read_stored(m, i, e);
    if (x->fwd.data)
        gemm_pack(&x->fwd, x->fwd.data, w->format, &t, x->C, x->O);
    if (x->bwd.data)
        gemm_pack(&x->bwd, x->bwd.data, w->format, &n, x->O, x->C);
    return 0;
}

static int refresh(struct model *m, struct err *e)
{
    struct weights *w = &m->weights;
    int rc = 0;
    if (w->version == m->params.version)
        return 0;
    int all = w->given != m->params.given;
    if (w->by != gemm_provider(w->format)) { /* tests change it between passes */
        rc = place(m, e);
        all = 1;
    }
    for (int i = 0; i < w->n && rc == 0; i++)
        if (w->v[i].O > 0 && (all || m->params.p[i].train))
            rc = refresh_one(m, i, e);
    w->version = m->params.version;
    w->given = m->params.given;
    return rc;
}

void weights_refresh(struct model *m)
{
    struct err e = {0};
    BUG_IF(refresh(m, &e) < 0, "%s", e.text);
}

int weights_ready(struct model *m, struct err *e)
{
    int rc = refresh(m, e);
    return rc == 0 ? stored_unchanged(m, e) : rc;
}

const char *weights_quant_name(const struct model *m)
{
    int count[QUANT_KINDS] = {0}, most = QUANT_NONE;
    for (int i = 0; i < m->weights.n; i++)
        if (m->weights.v[i].O > 0)
            count[m->weights.v[i].quant ? quant_kind_of(m->weights.v[i].quant) : QUANT_NONE]++;
    for (int k = 1; k < QUANT_KINDS; k++)
        most = count[k] > count[most] ? k : most;
    return quant_name[most];
}

struct linear weights_linear(const struct model *m, int index, int bias)
{
    const struct weight *x = &m->weights.v[index];
    struct linear l = {.C = x->C,
                       .O = x->O,
                       .format = m->weights.format,
                       .w = x->own ? x->own : m->params.p[index].value,
                       .b = x->lora.r > 0 && x->lora.bias ? x->lora.bias
                            : bias < 0                    ? NULL
                                                          : m->params.p[bias].value,
                       .fwd = x->fwd.data ? &x->fwd : NULL,
                       .bwd = x->bwd.data ? &x->bwd : NULL,
                       .quant = x->quant,
                       .lora = x->lora.r > 0 ? &x->lora : NULL};
    return l;
}
