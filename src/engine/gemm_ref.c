/* The reference provider: plain loops, any machine.  Each element of C is one chain over k in ascending order,
 * cut at GEMM_KC, whatever the other dims are: so a row never depends on its neighbours. */
#include "engine/gemm_impl.h"

#include "engine/scratch.h"

static int ref_available(void)
{
    return 1;
}

/* b (K,N) of a block, packed row-major, so that the inner loop runs along contiguous n. */
static void pack_b(real *p, const real *B, int ldb, int trans_b, int K, int N)
{
    for (int k = 0; k < K; k++)
        for (int n = 0; n < N; n++)
            p[(size_t)k * N + n] = trans_b ? B[(size_t)n * ldb + k] : B[(size_t)k * ldb + n];
}

static void row_block(real *c, real *acc, const real *a, ptrdiff_t stride, const real *b, int K,
                      int N, real alpha, int add)
{
    for (int n = 0; n < N; n++)
        acc[n] = 0;
    for (int k = 0; k < K; k++) {
        real ak = a[k * stride];
        const real *bk = b + (size_t)k * N;
#pragma omp simd
        for (int n = 0; n < N; n++)
            acc[n] += ak * bk[n];
    }
#pragma omp simd
    for (int n = 0; n < N; n++)
        c[n] = alpha * acc[n] + (add ? c[n] : 0);
}

static void ref_tile(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A,
                     int lda, const real *B, int ldb, real beta, real *C, int ldc)
{
    enum { NB = 256 };
    real *b = scratch_get(SCRATCH_PACK_B, (size_t)GEMM_KC * NB, sizeof *b);
    real *acc = scratch_get(SCRATCH_PACK_A, NB, sizeof *acc);
    for (int n = 0; n < N; n += NB) {
        int nb = N - n < NB ? N - n : NB;
        for (int k = 0; k < K; k += GEMM_KC) {
            int kb = K - k < GEMM_KC ? K - k : GEMM_KC;
            pack_b(b, trans_b ? B + (size_t)n * ldb + k : B + (size_t)k * ldb + n, ldb, trans_b, kb,
                   nb);
            for (int m = 0; m < M; m++) {
                const real *a = trans_a ? A + (size_t)k * lda + m : A + (size_t)m * lda + k;
                row_block(C + (size_t)m * ldc + n, acc, a, trans_a ? lda : 1, b, kb, nb, alpha,
                          k > 0 || beta != 0);
            }
        }
    }
}

static void ref_gemv(int M, int K, const real *A, int lda, const real *x, real *y)
{
    for (int m = 0; m < M; m++) {
        const real *a = A + (size_t)m * lda;
        real sum = 0;
#pragma omp simd reduction(+ : sum)
        for (int k = 0; k < K; k++)
            sum += a[k] * x[k];
        y[m] = sum;
    }
}

const struct gemm_provider gemm_ref = {
    .name = "ref",
    .available = ref_available,
    .tile = ref_tile,
    .gemv = ref_gemv,
};
