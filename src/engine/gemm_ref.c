/* The reference providers: plain loops for any CPU.  Each element of C is one chain over k in
 * ascending order, cut at GEMM_KC, whatever the other dimensions, so a row never depends on other
 * rows. */
#include "engine/gemm_impl.h"

#include "engine/scratch.h"

static int ref_available(void)
{
    return 1;
}

static inline real operand_value(const struct operand *x, int i, int j, enum gemm_format format)
{
    real v = operand_row(x, i)[j];
#if REAL_BITS == 32
    return format == GEMM_BF16 ? float_of_bf16(bf16_of(v)) : v;
#else
    (void)format;
    return v;
#endif
}

/* op(B) (k.. k + K, n.. n + N), row-major, so that the inner loop is contiguous in n. */
static void pack_b(real *p, const struct operand *b, int k, int K, int n, int N,
                   enum gemm_format format)
{
    for (int i = 0; i < K; i++)
        for (int j = 0; j < N; j++)
            p[(size_t)i * N + j] = b->trans ? operand_value(b, n + j, k + i, format)
                                            : operand_value(b, k + i, n + j, format);
}

static void row_block(real *c, real *acc, const real *a, const real *b, int K, int N, real alpha,
                      const real *add)
{
    for (int n = 0; n < N; n++)
        acc[n] = 0;
    for (int k = 0; k < K; k++) {
        real ak = a[k];
        const real *bk = b + (size_t)k * N;
#pragma omp simd
        for (int n = 0; n < N; n++)
            acc[n] += ak * bk[n];
    }
    for (int n = 0; n < N; n++)
        c[n] = alpha * acc[n] + (add ? add[n] : 0);
}

static void ref_product(const struct gemm_tile *t, enum gemm_format format)
{
    enum { NB = 256 };
    real *b = scratch_get(SCRATCH_PACK_B, (size_t)GEMM_KC * NB, sizeof *b);
    real *acc = scratch_get(SCRATCH_PACK_A, NB + GEMM_KC, sizeof *acc), *a = acc + NB;
    for (int n = 0; n < t->N; n += NB)
        for (int k = 0; k < t->K; k += GEMM_KC) {
            int nb = t->N - n < NB ? t->N - n : NB, kb = t->K - k < GEMM_KC ? t->K - k : GEMM_KC;
            pack_b(b, &t->b, k, kb, n, nb, format);
            for (int m = 0; m < t->M; m++) {
                real *c = t->C + (size_t)m * t->ldc + n;
                const real *add = t->add ? t->add + (size_t)m * t->add_ld + n : NULL;
                for (int i = 0; i < kb; i++)
                    a[i] = t->a.trans ? operand_value(&t->a, k + i, m, format)
                                      : operand_value(&t->a, m, k + i, format);
                row_block(c, acc, a, b, kb, nb, t->alpha, k > 0 ? c : add);
            }
        }
}

static void ref_tile(const struct gemm_tile *t)
{
    ref_product(t, GEMM_FP32);
}

const struct gemm_provider gemm_ref = {
    .name = "ref", .format = GEMM_FP32, .available = ref_available, .tile = ref_tile};

#if REAL_BITS == 32
static void ref_bf16_tile(const struct gemm_tile *t)
{
    ref_product(t, GEMM_BF16);
}

const struct gemm_provider gemm_ref_bf16 = {
    .name = "ref-bf16", .format = GEMM_BF16, .available = ref_available, .tile = ref_bf16_tile};
#endif
