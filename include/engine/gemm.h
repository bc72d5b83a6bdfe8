/* Matrix products behind one seam.  Row-major:  C = alpha * op(A) op(B) + beta * C
 * op(A) is (M,K), op(B) is (K,N), C is (M,N); trans != 0 means the stored matrix is the transpose.
 *
 * Work is cut into tiles by shape only and each tile is one single-threaded call of the provider, so
 * results are bit-identical at any thread count.
 *
 * Row promise (avx512, avx2, ref; tests/pair/test_gemm.c): every element of C is one chain over k in ascending order, cut
 * at fixed places, so a row of C does not depend on which other rows are in the call, M = 1 included; avx512 and avx2 also
 * agree with each other to the last bit.  blas picks its kernels by shape and promises nothing about rows (it does
 * differ for small M); it is the default only where no vector provider runs, and in the double build.
 * gemm_row is the decode path that gives the promise up for speed. */
#ifndef DS_ENGINE_GEMM_H
#define DS_ENGINE_GEMM_H

#include "base/err.h"
#include "engine/real.h"

struct gemm_provider {
    const char *name; /* "avx512", "avx2", "blas", "ref" */
    int (*available)(void);
    /* One tile, single-threaded, re-entrant. beta is 0 or 1 (0: C is not read). */
    void (*tile)(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda,
                 const real *B, int ldb, real beta, real *C, int ldc);
    void (*gemv)(int M, int K, const real *A, int lda, const real *x,
                 real *y); /* y = A x, A (M,K) row-major */
};

/* The provider in use: $DEPTHSCOPE_GEMM, else the first of gemm_providers() that this processor has. */
const struct gemm_provider *gemm_provider(void);
int gemm_use(const char *name, struct err *e) DS_CHECK;
const struct gemm_provider *const *gemm_providers(void); /* NULL-terminated */

void gemm(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda,
          const real *B, int ldb, real beta, real *C, int ldc);
/* Inside a pool task: the same without cutting. */
void gemm_inline(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda,
                 const real *B, int ldb, real beta, real *C, int ldc);
/* y (O) = W x, W (O,C): one row at memory speed; differs from gemm in the last bits. */
void gemm_row(real *y, const real *x, const real *w, int C, int O);

#endif
