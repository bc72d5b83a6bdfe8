/* Matrix multiplication: chooses the provider and cuts the work into tiles. */
#include "engine/gemm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/pool.h"
#include "engine/gemm_impl.h"
#include "engine/scratch.h"

const char *const gemm_format_name[2] = {"fp32", "bf16"};

/* In order of preference within a format. */
static const struct gemm_provider *const providers[] = {
#ifdef GEMM_X86
    &gemm_avx512,   &gemm_avx2, &gemm_amx, &gemm_avx512bf16, &gemm_avx512_round, &gemm_avx2_round,
#endif
#ifndef DEPTHSCOPE_NO_BLAS
    &gemm_blas,
#endif
#if REAL_BITS == 32
    &gemm_ref_bf16, /* always available, so later ones are used only by name */
    &gemm_amx_soft,
#endif
    &gemm_ref,      NULL,
};

static _Atomic(const struct gemm_provider *)
    current[2]; /* the first call may come from any thread */

const struct gemm_provider *const *gemm_providers(void)
{
    return providers;
}

const char *gemm_name(const struct gemm_provider *p)
{
    return p->name;
}

enum gemm_format gemm_format_of(const struct gemm_provider *p)
{
    return p->format;
}

int gemm_has_row_guarantee(const struct gemm_provider *p)
{
    return strcmp(p->name, "blas") != 0;
}

int gemm_available(const struct gemm_provider *p)
{
    return p->available();
}

static const struct gemm_provider *provider_find(const char *name, struct err *e)
{
    for (int i = 0; providers[i]; i++) {
        if (strcmp(providers[i]->name, name) != 0)
            continue;
        if (providers[i]->available())
            return providers[i];
        err_set(e, DS_ENOTFOUND, "gemm \"%s\": not supported by this CPU", name);
        return NULL;
    }
#ifdef DEPTHSCOPE_NO_BLAS
    if (strcmp(name, "blas") == 0) {
        err_set(e, DS_ENOTFOUND, "gemm \"blas\": OpenBLAS is not part of this build");
        return NULL;
    }
#endif
    err_set(e, DS_EUSAGE, "gemm \"%s\": unknown provider", name);
    return NULL;
}

int gemm_use(const char *name, struct err *e)
{
    struct err why = {0};
    const struct gemm_provider *p = provider_find(name, &why);
    if (!p)
        return err_set(e, why.code, "%s", why.text);
    atomic_store(&current[p->format], p);
    return DS_OK;
}

static pthread_once_t named_once = PTHREAD_ONCE_INIT;

/* The environment names a provider; it is selected for its own format unless one is already. */
static void use_named(void)
{
    struct err e = {0};
    const char *name = getenv("DEPTHSCOPE_GEMM");
    const struct gemm_provider *p = name && *name ? provider_find(name, &e) : NULL;
    const struct gemm_provider *none = NULL;
    if (p)
        atomic_compare_exchange_strong(&current[p->format], &none, p);
    else if (name && *name)
        log_warn("DEPTHSCOPE_GEMM: %s", e.text);
}

static void provider_choose(enum gemm_format format)
{
    const struct gemm_provider *none = NULL;
    int i = 0;
    pthread_once(&named_once, use_named);
    while (providers[i]->format != format ||
           !providers[i]->available()) /* the last ones always are available */
        i++;
    atomic_compare_exchange_strong(&current[format], &none, providers[i]);
}

const struct gemm_provider *gemm_provider(enum gemm_format format)
{
    const struct gemm_provider *p = atomic_load_explicit(&current[format], memory_order_acquire);
    BUG_IF(format != GEMM_FP32 && REAL_BITS != 32, "gemm: the double build supports fp32 only");
    if (DS_UNLIKELY(!p)) {
        provider_choose(format);
        p = atomic_load(&current[format]);
    }
    return p;
}

/* ---- one multiplication ---- */

struct cut {
    const struct gemm_job *j;
    const struct gemm_provider *by;
    const struct packed *packed;
    int tile_m, tile_n, cols;
};

static const struct packed *packed_of(const struct gemm_job *j)
{
    return j->packed && j->packed->by ? j->packed : NULL;
}

/* One tile: columns n.. (and k0.. within a packed matrix used in part), then the epilogue. */
static void tile_run(const struct gemm_job *j, const struct gemm_provider *by, int m, int n, int M,
                     int N, int k0, int n0)
{
    real *C = j->C + (ptrdiff_t)m * j->ldc + n;
    const real *bias = j->bias ? j->bias + n : NULL;
    struct gemm_tile t = {
        .M = M,
        .N = N,
        .K = j->K,
        .alpha = j->alpha,
        .a = operand_at(j->a, j->a.trans ? 0 : m, j->a.trans ? m : 0),
        .packed = packed_of(j),
        .k0 = k0,
        .n0 = n0 + n,
        .add = j->beta != 0 ? C : bias,
        .add_ld = j->beta != 0 ? j->ldc : 0,
        .C = C,
        .ldc = j->ldc,
    };
    if (!t.packed)
        t.b = operand_at(j->b, j->b.trans ? n : 0, j->b.trans ? 0 : n);
    for (int i = 0; j->beta != 0 && bias && i < M; i++) {
#pragma omp simd
        for (int k = 0; k < N; k++)
            C[(ptrdiff_t)i * j->ldc + k] += bias[k];
    }
    by->tile(&t);
    if (j->after)
        j->after(j->ctx, m, n, M, N);
}

static void cut_run(void *ctx, int task, int worker)
{
    const struct cut *c = ctx;
    const struct gemm_job *j = c->j;
    int m = task / c->cols * c->tile_m, n = task % c->cols * c->tile_n;
    (void)worker;
    tile_run(j, c->by, m, n, j->M - m < c->tile_m ? j->M - m : c->tile_m,
             j->N - n < c->tile_n ? j->N - n : c->tile_n, 0, 0);
}

/* Cuts n into nearly equal parts of at most `most`, multiples of `step`. */
static int even_part(int n, int most, int step)
{
    int parts = task_count(n, most), part = task_count(n, parts);
    return (part + step - 1) / step * step;
}

/* Tiles are as large as the caches allow, then halved until there are enough of them for the
 * threads; but not below the area where packing costs more than sharing saves, nor when the whole
 * is small. */
static void cut_make(struct cut *c)
{
    enum { ROWS = 512, COLS = 1024, TASKS = 8, SHORT = 32, AREA = 4096 };
    enum { WORK = 1 << 20 /* multiply-adds */ };
    const struct gemm_job *j = c->j;
    /* a few rows are limited by memory bandwidth, so all threads share the panels */
    int most_m = ROWS, most_n = COLS, area = c->packed && j->M <= SHORT / 2 ? AREA / 4 : AREA;
    int work = area < AREA ? WORK / 4 : WORK;
    for (;;) {
        c->tile_m = even_part(j->M, most_m, 16);
        c->tile_n = even_part(j->N, most_n, GEMM_COLS);
        c->cols = task_count(j->N, c->tile_n);
        double half = 0.5 * c->tile_m * c->tile_n;
        if (c->cols * task_count(j->M, c->tile_m) >= TASKS || half * j->K < work || half < area)
            return;
        /* a packed op(B) costs nothing to share, but op(A) is packed again for each part of the
         * columns */
        if (c->packed ? c->tile_m > SHORT : c->tile_m >= c->tile_n)
            most_m = c->tile_m / 2;
        else
            most_n = c->tile_n / 2;
    }
}

/* K = 0: the product is zero. */
static void product_empty(const struct gemm_job *j)
{
    for (int m = 0; m < j->M; m++)
        for (int n = 0; n < j->N; n++) {
            real *c = j->C + (ptrdiff_t)m * j->ldc + n;
            *c = (j->beta != 0 ? *c : 0) + (j->bias ? j->bias[n] : 0);
        }
    if (j->after)
        j->after(j->ctx, 0, 0, j->M, j->N);
}

static const struct gemm_provider *job_provider(const struct gemm_job *j)
{
    const struct packed *p = packed_of(j);
    BUG_IF(j->M < 0 || j->N < 0 || j->K < 0, "gemm: shape %d x %d x %d must not be negative", j->M,
           j->N, j->K);
    BUG_IF(j->beta != 0 && j->beta != 1, "gemm: beta must be 0 or 1");
    BUG_IF(p && p->by->format != j->format, "gemm: packed matrix has another format");
    return p ? p->by : gemm_provider(j->format);
}

void gemm_run(const struct gemm_job *j)
{
    const struct packed *p = packed_of(j);
    struct cut c = {.j = j, .by = job_provider(j), .packed = p};
    BUG_IF(p && (p->N != j->N || p->K != j->K), "gemm: packed %d x %d, expected %d x %d",
           p ? p->K : 0, p ? p->N : 0, j->K, j->N);
    if (j->M == 0 || j->N == 0)
        return;
    if (j->K == 0) {
        product_empty(j);
        return;
    }
    cut_make(&c);
    pool_run(c.cols * task_count(j->M, c.tile_m), cut_run, &c);
}

void gemm_run_inline(const struct gemm_job *j, int k0, int n0)
{
    const struct gemm_provider *by = job_provider(j);
    const struct packed *p = packed_of(j);
    BUG_IF(k0 % GEMM_DEEP || n0 % GEMM_COLS, "gemm: part begins at %d, %d", k0, n0);
    BUG_IF(p && (p->N < j->N + n0 || p->K < j->K + k0), "gemm: packed %d x %d, expected %d x %d",
           p ? p->K : 0, p ? p->N : 0, j->K + k0, j->N + n0);
    if (j->M == 0 || j->N == 0)
        return;
    if (j->K == 0)
        product_empty(j);
    else
        tile_run(j, by, 0, 0, j->M, j->N, k0, n0);
}

/* ---- packing ---- */

static size_t bytes_by(const struct gemm_provider *by, int K, int N)
{
    if (!by || !by->pack || K <= 0 || N <= 0)
        return 0;
    size_t panels = (size_t)task_count(N, by->panel_cols);
    return panels * ((size_t)(K / by->kc) * by->panel_bytes(by->kc) +
                     (K % by->kc ? by->panel_bytes(K % by->kc) : 0));
}

size_t gemm_packed_bytes(enum gemm_format format, int K, int N)
{
    return bytes_by(gemm_provider(format), K, N);
}

static const struct gemm_provider *holder(enum gemm_format format, enum gemm_storage storage)
{
    const struct gemm_provider *by = gemm_provider(format);
    return storage == GEMM_NARROW ? by->narrow : by;
}

size_t gemm_storage_bytes(enum gemm_format format, enum gemm_storage storage, int K, int N)
{
    return bytes_by(holder(format, storage), K, N);
}

size_t gemm_size_of(const struct packed *p)
{
    return bytes_by(p->by, p->K, p->N);
}

struct pack_task {
    struct packed p;
    const struct operand *b;
    int groups; /* of GEMM_PACK_COLS columns */
};

enum { PACK_COLS = 256 };

static void pack_group(void *ctx, int task, int worker)
{
    const struct pack_task *t = ctx;
    const struct gemm_provider *by = t->p.by;
    int k = task / t->groups * by->kc, n = task % t->groups * PACK_COLS;
    int end = t->p.N - n < PACK_COLS ? t->p.N : n + PACK_COLS;
    int kb = t->p.K - k < by->kc ? t->p.K - k : by->kc;
    (void)worker;
    for (; n < end; n += by->panel_cols)
        by->pack((char *)t->p.data + packed_at(&t->p, k, n), t->b, n,
                 end - n < by->panel_cols ? end - n : by->panel_cols, k, kb);
}

static struct pack_task pack_begin(void *memory, enum gemm_format format, const struct operand *b,
                                   int K, int N)
{
    struct pack_task t = {.p = {.K = K, .N = N, .data = memory}, .b = b};
    t.p.by = gemm_packed_bytes(format, K, N) > 0 ? gemm_provider(format) : NULL;
    t.groups = task_count(N, PACK_COLS);
    return t;
}

void gemm_pack(struct packed *out, void *memory, enum gemm_format format, const struct operand *b,
               int K, int N)
{
    struct pack_task t = pack_begin(memory, format, b, K, N);
    if (t.p.by)
        pool_run(t.groups * task_count(K, t.p.by->kc), pack_group, &t);
    *out = t.p;
}

void gemm_pack_inline(struct packed *out, void *memory, enum gemm_format format,
                      const struct operand *b, int K, int N)
{
    struct pack_task t = pack_begin(memory, format, b, K, N);
    for (int i = 0; t.p.by && i < t.groups * task_count(K, t.p.by->kc); i++)
        pack_group(&t, i, 0);
    *out = t.p;
}

void gemm_pack_begin(struct packed *out, void *memory, enum gemm_format format,
                     enum gemm_storage storage, int K, int N)
{
    *out = (struct packed){.by = holder(format, storage), .K = K, .N = N, .data = memory};
    BUG_IF(bytes_by(out->by, K, N) == 0, "gemm: %d x %d: storage not supported", K, N);
}

void gemm_pack_part(const struct packed *p, const struct operand *b, int k0, int K, int n0, int N)
{
    const struct gemm_provider *by = p->by;
    BUG_IF(n0 % GEMM_COLS || k0 % GEMM_DEEP, "gemm: part begins at %d, %d", k0, n0);
    BUG_IF(k0 + K > p->K || n0 + N > p->N, "gemm: part ends at %d, %d of %d x %d", k0 + K, n0 + N,
           p->K, p->N);
    for (int n = 0; n < N; n += by->panel_cols) /* rows in a file continue along k */
        for (int k = 0; k < K; k += by->kc)
            by->pack((char *)p->data + packed_at(p, k0 + k, n0 + n), b, n,
                     N - n < by->panel_cols ? N - n : by->panel_cols, k,
                     K - k < by->kc ? K - k : by->kc);
}

int gemm_takes_bf16(const struct packed *p)
{
    return p->by && p->by->pack_bf16;
}

void gemm_pack_bf16(const struct packed *p, const void *rows, int n0, int N)
{
    const struct gemm_provider *by = p->by;
    const unsigned char *at = rows;
    size_t step = (size_t)p->K * sizeof(uint16_t);
    BUG_IF(n0 % GEMM_COLS || n0 + N > p->N, "gemm: part of columns %d to %d of %d", n0, n0 + N,
           p->N);
    for (int n = 0; n < N; n += by->panel_cols)
        for (int k = 0; k < p->K; k += by->kc)
            by->pack_bf16((char *)p->data + packed_at(p, k, n0 + n),
                          at + (size_t)n * step + (size_t)k * sizeof(uint16_t), step,
                          N - n < by->panel_cols ? N - n : by->panel_cols,
                          p->K - k < by->kc ? p->K - k : by->kc);
}
