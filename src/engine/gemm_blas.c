/* The BLAS provider, single-threaded per call: only the pool creates threads. */
#ifndef DEPTHSCOPE_NO_BLAS
#include <cblas.h>
#include <pthread.h>

#include "base/cpu.h"
#include "engine/gemm_impl.h"
#include "engine/scratch.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Other BLAS libraries lack this function; their thread count is set in the environment. */
static void blas_single(void)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
}

static int blas_available(void)
{
    pthread_once(&once, blas_single);
    return cpu_allows(CPU_AVX2); /* DEPTHSCOPE_CPU=ref forces plain loops */
}

/* BLAS cannot gather rows, so they are copied first. */
static struct operand plain(const struct operand *x, int rows, int cols, enum scratch_slot slot)
{
    if (!x->row)
        return *x;
    real *p = scratch_get(slot, (size_t)rows * (size_t)cols, sizeof *p);
    for (int i = 0; i < rows; i++)
        memcpy(p + (size_t)i * cols, operand_row(x, i), (size_t)cols * sizeof *p);
    return (struct operand){p, cols, x->trans, NULL};
}

static void blas_tile(const struct gemm_tile *t)
{
    enum CBLAS_TRANSPOSE ta = t->a.trans ? CblasTrans : CblasNoTrans,
                         tb = t->b.trans ? CblasTrans : CblasNoTrans;
    struct operand a =
        plain(&t->a, t->a.trans ? t->K : t->M, t->a.trans ? t->M : t->K, SCRATCH_PACK_A);
    struct operand b =
        plain(&t->b, t->b.trans ? t->N : t->K, t->b.trans ? t->K : t->N, SCRATCH_PACK_B);
    if (t->add && t->add != t->C)
        for (int m = 0; m < t->M; m++)
            memcpy(t->C + (size_t)m * t->ldc, t->add + (size_t)m * t->add_ld,
                   (size_t)t->N * sizeof *t->C);
#if REAL_BITS == 32
    cblas_sgemm(CblasRowMajor, ta, tb, t->M, t->N, t->K, t->alpha, a.p, a.ld, b.p, b.ld,
                t->add ? 1 : 0, t->C, t->ldc);
#else
    cblas_dgemm(CblasRowMajor, ta, tb, t->M, t->N, t->K, t->alpha, a.p, a.ld, b.p, b.ld,
                t->add ? 1 : 0, t->C, t->ldc);
#endif
}

const struct gemm_provider gemm_blas = {
    .name = "blas", .format = GEMM_FP32, .available = blas_available, .tile = blas_tile};
#else
typedef int gemm_blas_is_left_out; /* a translation unit must not be empty */
#endif
