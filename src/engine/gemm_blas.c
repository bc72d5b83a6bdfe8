/* OpenBLAS, one thread per call: the pool is the only one that makes threads. */
#ifndef DEPTHSCOPE_NO_BLAS
#include <cblas.h>
#include <pthread.h>

#include "engine/gemm_impl.h"

static pthread_once_t once = PTHREAD_ONCE_INIT;

/* Other BLAS libraries behind <cblas.h> have no such switch; they are told through their environment. */
static void blas_single(void)
{
#ifdef OPENBLAS_VERSION
    openblas_set_num_threads(1);
#endif
}

static int blas_available(void)
{
    pthread_once(&once, blas_single);
    return 1;
}

static void blas_tile(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A,
                      int lda, const real *B, int ldb, real beta, real *C, int ldc)
{
    enum CBLAS_TRANSPOSE ta = trans_a ? CblasTrans : CblasNoTrans,
                         tb = trans_b ? CblasTrans : CblasNoTrans;
#if REAL_BITS == 32
    cblas_sgemm(CblasRowMajor, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
#else
    cblas_dgemm(CblasRowMajor, ta, tb, M, N, K, alpha, A, lda, B, ldb, beta, C, ldc);
#endif
}

static void blas_gemv(int M, int K, const real *A, int lda, const real *x, real *y)
{
#if REAL_BITS == 32
    cblas_sgemv(CblasRowMajor, CblasNoTrans, M, K, 1, A, lda, x, 1, 0, y, 1);
#else
    cblas_dgemv(CblasRowMajor, CblasNoTrans, M, K, 1, A, lda, x, 1, 0, y, 1);
#endif
}

const struct gemm_provider gemm_blas = {
    .name = "blas",
    .available = blas_available,
    .tile = blas_tile,
    .gemv = blas_gemv,
};
#else
typedef int gemm_blas_is_left_out; /* a translation unit must not be empty */
#endif
