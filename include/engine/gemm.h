/* Matrix products behind one seam.  Row-major:  C = alpha * op(A) op(B) + beta * C
 * op(A) is (M,K), op(B) is (K,N), C is (M,N); trans != 0 means the stored matrix is the transpose.
 *
 * Work is cut into tiles by shape only and each tile is one single-threaded call of the provider, so
 * results are bit-identical at any thread count.  A row of C does not depend on which other rows are in
 * the call (op(A) rows, checked by a test), M = 1 included: see gemm_row for the decode path that gives this up. */
#ifndef DS_ENGINE_GEMM_H
#define DS_ENGINE_GEMM_H

#include "base/err.h"
#include "engine/real.h"

struct gemm_provider {
    const char *name;   /* "ref", "blas"; later "avx512", "amx" */
    int (*available)(void);
    /* One tile, single-threaded, re-entrant. beta is 0 or 1 (0: C is not read). */
    void (*tile)(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda, const real *B,
                 int ldb, real beta, real *C, int ldc);
    void (*gemv)(int M, int K, const real *A, int lda, const real *x, real *y); /* y = A x, A (M,K) row-major */
};

/* The provider in use: "blas" when compiled in, or $DEPTHSCOPE_GEMM. */
const struct gemm_provider *gemm_provider(void);
int gemm_use(const char *name, struct err *e) DS_CHECK;
const struct gemm_provider *const *gemm_providers(void); /* NULL-terminated */

void gemm(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda, const real *B, int ldb,
          real beta, real *C, int ldc);
/* Inside a pool task: the same without cutting. */
void gemm_inline(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda, const real *B,
                 int ldb, real beta, real *C, int ldc);
/* y (O) = W x, W (O,C): one row at memory speed; differs from gemm in the last bits. */
void gemm_row(real *y, const real *x, const real *w, int C, int O);

#endif
