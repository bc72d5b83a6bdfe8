/* The seam: which provider, and how a product is cut into tiles. */
#include "engine/gemm.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/pool.h"
#include "engine/gemm_impl.h"
#include "engine/scratch.h"

/* In order of preference. */
static const struct gemm_provider *const providers[] = {
#ifdef GEMM_X86
    &gemm_avx512, &gemm_avx2,
#endif
#ifndef DEPTHSCOPE_NO_BLAS
    &gemm_blas,
#endif
    &gemm_ref,    NULL,
};

static _Atomic(const struct gemm_provider *) current; /* the first call may come from any thread */

const struct gemm_provider *const *gemm_providers(void)
{
    return providers;
}

int gemm_use(const char *name, struct err *e)
{
    for (int i = 0; providers[i]; i++) {
        if (strcmp(providers[i]->name, name) != 0)
            continue;
        if (!providers[i]->available())
            return err_set(e, DS_ENOTFOUND, "gemm \"%s\": this processor lacks it", name);
        atomic_store(&current, providers[i]);
        return DS_OK;
    }
    return err_set(e, DS_EUSAGE, "gemm \"%s\": unknown provider", name);
}

static void provider_choose(void)
{
    struct err e = {0};
    const char *name = getenv("DEPTHSCOPE_GEMM");
    if (name && *name) {
        if (gemm_use(name, &e) == DS_OK)
            return;
        log_warn("DEPTHSCOPE_GEMM: %s", e.text);
    }
    int i = 0;
    while (!providers[i]->available()) /* the last one always is */
        i++;
    atomic_store(&current, providers[i]);
}

const struct gemm_provider *gemm_provider(void)
{
    const struct gemm_provider *p = atomic_load_explicit(&current, memory_order_acquire);
    if (DS_UNLIKELY(!p)) {
        provider_choose();
        p = atomic_load(&current);
    }
    return p;
}

struct job {
    const struct gemm_provider *by;
    int trans_a, trans_b, M, N, K, lda, ldb, ldc, tile_m, tile_n, cols;
    real alpha, beta;
    const real *A, *B;
    real *C;
};

static void job_tile(const struct job *j, int m, int n, int rows, int cols)
{
    const real *A = j->trans_a ? j->A + m : j->A + (size_t)m * j->lda;
    const real *B = j->trans_b ? j->B + (size_t)n * j->ldb : j->B + n;
    j->by->tile(j->trans_a, j->trans_b, rows, cols, j->K, j->alpha, A, j->lda, B, j->ldb, j->beta,
                j->C + (size_t)m * j->ldc + n, j->ldc);
}

static void job_run(void *ctx, int task, int worker)
{
    const struct job *j = ctx;
    (void)worker;
    int m = task / j->cols * j->tile_m, n = task % j->cols * j->tile_n;
    int rows = j->M - m < j->tile_m ? j->M - m : j->tile_m;
    int cols = j->N - n < j->tile_n ? j->N - n : j->tile_n;
    job_tile(j, m, n, rows, cols);
}

/* n cut into parts of at most `most`, nearly equal, multiples of 16. */
static int even_part(int n, int most)
{
    int parts = task_count(n, most), part = task_count(n, parts);
    return (part + 15) / 16 * 16;
}

/* Tiles are as large as the caches like, then halved until there are enough of them to share out; not below an
 * area where packing costs more than sharing saves, nor when the whole is small. */
static void job_cut(struct job *j)
{
    enum { ROWS = 512, COLS = 1024, TASKS = 8, AREA = 4096, WORK = 1 << 20 /* multiply-adds */ };
    int most_m = ROWS, most_n = COLS;
    for (;;) {
        j->tile_m = even_part(j->M, most_m);
        j->tile_n = even_part(j->N, most_n);
        j->cols = task_count(j->N, j->tile_n);
        double half = 0.5 * j->tile_m * j->tile_n;
        if (j->cols * task_count(j->M, j->tile_m) >= TASKS || half * j->K < WORK || half < AREA)
            return;
        if (j->tile_m >= j->tile_n)
            most_m = j->tile_m / 2;
        else
            most_n = j->tile_n / 2;
    }
}

/* Without an inner dimension the product is zero. */
static void product_empty(int M, int N, real beta, real *C, int ldc)
{
    if (beta != 0)
        return;
    for (int m = 0; m < M; m++)
        memset(C + (size_t)m * ldc, 0, (size_t)N * sizeof *C);
}

void gemm(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda,
          const real *B, int ldb, real beta, real *C, int ldc)
{
    struct job j = {.by = gemm_provider(),
                    .trans_a = trans_a,
                    .trans_b = trans_b,
                    .M = M,
                    .N = N,
                    .K = K,
                    .lda = lda,
                    .ldb = ldb,
                    .ldc = ldc,
                    .alpha = alpha,
                    .beta = beta,
                    .A = A,
                    .B = B,
                    .C = C};
    BUG_IF(M < 0 || N < 0 || K < 0, "gemm: %d x %d x %d", M, N, K);
    BUG_IF(beta != 0 && beta != 1, "gemm: beta is 0 or 1");
    if (M == 0 || N == 0)
        return;
    if (K == 0) {
        product_empty(M, N, beta, C, ldc);
        return;
    }
    job_cut(&j);
    pool_run(j.cols * task_count(M, j.tile_m), job_run, &j);
}

void gemm_inline(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda,
                 const real *B, int ldb, real beta, real *C, int ldc)
{
    if (M == 0 || N == 0)
        return;
    if (K == 0)
        product_empty(M, N, beta, C, ldc);
    else
        gemm_provider()->tile(trans_a, trans_b, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
}

struct row_job {
    const struct gemm_provider *by;
    real *y;
    const real *x, *w;
    int C, O, step;
};

static void row_run(void *ctx, int task, int worker)
{
    const struct row_job *j = ctx;
    (void)worker;
    int o = task * j->step, n = j->O - o < j->step ? j->O - o : j->step;
    j->by->gemv(n, j->C, j->w + (size_t)o * j->C, j->C, j->x, j->y + o);
}

void gemm_row(real *y, const real *x, const real *w, int C, int O)
{
    struct row_job j = {gemm_provider(), y, x, w, C, O, 8 * task_rows(C)};
    if (O > 0 && C > 0)
        pool_run(task_count(O, j.step), row_run, &j);
    else
        product_empty(1, O, 0, y, O);
}
