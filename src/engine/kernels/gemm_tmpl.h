/* A packed matrix product, written once and compiled for each vector width.  The including file defines:
 *   KERNEL       target attribute of every function
 *   VEC, W       vector of W floats         LANES, LANES_OF(n)  mask of the first n lanes, 0 <= n <= W
 *   ZERO LOAD STORE LOAD_PART STORE_PART SET1 FMA MUL ADD       on VEC
 *   MR           rows of a strip, at most (a strip and two vectors of columns fill the registers)
 *
 * Every element of C is one chain of fused multiply-adds over k in ascending order, cut at GEMM_KC, whatever its
 * place: so a row does not depend on the other rows of the call, nor on the vector width. */
#ifndef DS_ENGINE_KERNELS_GEMM_TMPL_H
#define DS_ENGINE_KERNELS_GEMM_TMPL_H
#ifdef KERNEL

#include <immintrin.h>

#include "engine/gemm_impl.h"
#include "engine/scratch.h"

enum { NR = 2 * W, MC = 12 * MR, NC = 1024 };

/* Eight rows of eight floats become eight columns. */
KERNEL static inline void transpose8(__m256 r[8])
{
    __m256 t[8], u[8];
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        u[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        u[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        u[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        u[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        r[i] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x20);
        r[i + 4] = _mm256_permute2f128_ps(u[i], u[i + 4], 0x31);
    }
}

/* p[k * stride + i] = x[i * ld + k] for i < 8, k < K; rows from `rows` on repeat the last one.  Always writes
 * eight at a time: the caller goes from right to left, so that what spills is written again. */
KERNEL static void pack_rows8(float *p, int stride, const float *x, int ld, int rows, int K)
{
    const float *row[8];
    for (int i = 0; i < 8; i++)
        row[i] = x + (size_t)(i < rows ? i : rows - 1) * (size_t)ld;
    int k = 0;
    for (; k + 8 <= K; k += 8) {
        __m256 r[8];
        for (int i = 0; i < 8; i++)
            r[i] = _mm256_loadu_ps(row[i] + k);
        transpose8(r);
        for (int i = 0; i < 8; i++, p += stride)
            _mm256_storeu_ps(p, r[i]);
    }
    for (; k < K; k++, p += stride)
        for (int i = 0; i < 8; i++)
            p[i] = row[i][k];
}

/* A strip of A, op(A) rows m.. m + rows, as p[k * rows + i].  Needs 8 (or W) floats of room behind it. */
KERNEL static void pack_strip(float *p, const float *A, int lda, int trans_a, int rows, int K)
{
    if (trans_a) {
        LANES part = LANES_OF(rows);
        for (int k = 0; k < K; k++)
            STORE(p + (size_t)k * (size_t)rows, LOAD_PART(part, A + (size_t)k * (size_t)lda));
        return;
    }
    for (int i = (rows - 1) / 8 * 8; i >= 0; i -= 8)
        pack_rows8(p + i, rows, A + (size_t)i * (size_t)lda, lda, rows - i, K);
}

/* A panel of B, NR columns, as p[k * NR + n]; columns beyond `cols` are there to be computed and not stored. */
KERNEL static void pack_panel(float *p, const float *B, int ldb, int trans_b, int cols, int K)
{
    if (trans_b) {
        for (int n = (cols - 1) / 8 * 8; n >= 0; n -= 8)
            pack_rows8(p + n, NR, B + (size_t)n * (size_t)ldb, ldb, cols - n, K);
        return;
    }
    LANES left = LANES_OF(cols < W ? cols : W), right = LANES_OF(cols < W ? 0 : cols - W);
    for (int k = 0; k < K; k++, p += NR, B += ldb) {
        STORE(p, LOAD_PART(left, B));
        STORE(p + W, LOAD_PART(right, B + W));
    }
}

/* Where a strip times a panel goes. */
struct target {
    float *C;
    int ldc, cols, add;
    float alpha;
};

KERNEL static inline void store_row(const struct target *t, float *c, VEC x, VEC y)
{
    VEC alpha = SET1(t->alpha);
    x = MUL(x, alpha);
    y = MUL(y, alpha);
    if (t->cols == NR) {
        STORE(c, t->add ? ADD(x, LOAD(c)) : x);
        STORE(c + W, t->add ? ADD(y, LOAD(c + W)) : y);
        return;
    }
    LANES left = LANES_OF(t->cols < W ? t->cols : W),
          right = LANES_OF(t->cols < W ? 0 : t->cols - W);
    STORE_PART(left, c, t->add ? ADD(x, LOAD_PART(left, c)) : x);
    STORE_PART(right, c + W, t->add ? ADD(y, LOAD_PART(right, c + W)) : y);
}

/* rows is a constant in each call, so that the sums live in registers. */
KERNEL static inline __attribute__((always_inline)) void
strip_times_panel(const int rows, const float *a, const float *b, int K, const struct target *t)
{
    VEC x[MR], y[MR];
    for (int i = 0; i < rows; i++)
        x[i] = y[i] = ZERO;
    for (int k = 0; k < K; k++, a += rows, b += NR) {
        VEC b0 = LOAD(b), b1 = LOAD(b + W);
        for (int i = 0; i < rows; i++) {
            VEC ai = SET1(a[i]);
            x[i] = FMA(ai, b0, x[i]);
            y[i] = FMA(ai, b1, y[i]);
        }
    }
    for (int i = 0; i < rows; i++)
        store_row(t, t->C + (size_t)i * (size_t)t->ldc, x[i], y[i]);
}

KERNEL static void micro(int rows, const float *a, const float *b, int K, const struct target *t)
{
    switch (rows) {
#define ROWS(n)                                                                                    \
    case n: strip_times_panel(n, a, b, K, t); break;
        ROWS(1)
        ROWS(2) ROWS(3) ROWS(4) ROWS(5) ROWS(6)
#if MR > 6
            ROWS(7) ROWS(8) ROWS(9) ROWS(10) ROWS(11) ROWS(12) ROWS(13) ROWS(14)
#endif
#undef ROWS
                default : break;
    }
}

/* Strips of nearly equal height: the first `tall` have one row more. */
struct strips {
    int n, rows, tall;
};

static struct strips strips_of(int M)
{
    int n = task_count(M, MR);
    return (struct strips){n, M / n, M % n};
}

KERNEL static void block_times_panels(const struct strips *s, const float *a, const float *b, int K,
                                      int N, struct target t)
{
    float *C = t.C;
    for (int n = 0; n < N; n += NR, b += (size_t)K * NR) {
        const float *strip = a;
        t.cols = N - n < NR ? N - n : NR;
        t.C = C + n;
        for (int i = 0; i < s->n; i++) {
            int rows = s->rows + (i < s->tall);
            micro(rows, strip, b, K, &t);
            strip += (size_t)rows * (size_t)K;
            t.C += (size_t)rows * (size_t)t.ldc;
        }
    }
}

KERNEL static void pack_block(float *p, const struct strips *s, const float *A, int lda,
                              int trans_a, int K)
{
    for (int i = 0, m = 0; i < s->n; i++) {
        int rows = s->rows + (i < s->tall);
        pack_strip(p, trans_a ? A + m : A + (size_t)m * (size_t)lda, lda, trans_a, rows, K);
        p += (size_t)rows * (size_t)K;
        m += rows;
    }
}

KERNEL static void tile(int trans_a, int trans_b, int M, int N, int K, float alpha, const float *A,
                        int lda, const float *B, int ldb, float beta, float *C, int ldc)
{
    float *pa = scratch_get(SCRATCH_PACK_A, (size_t)MC * GEMM_KC + 2 * W, sizeof *pa);
    float *pb = scratch_get(SCRATCH_PACK_B, (size_t)GEMM_KC * NC, sizeof *pb);
    for (int n = 0; n < N; n += NC)
        for (int k = 0; k < K; k += GEMM_KC) {
            int nb = N - n < NC ? N - n : NC, kb = K - k < GEMM_KC ? K - k : GEMM_KC;
            const float *b =
                trans_b ? B + (size_t)n * (size_t)ldb + k : B + (size_t)k * (size_t)ldb + n;
            for (int j = 0; j < nb; j += NR)
                pack_panel(pb + (size_t)j * (size_t)kb,
                           trans_b ? b + (size_t)j * (size_t)ldb : b + j, ldb, trans_b,
                           nb - j < NR ? nb - j : NR, kb);
            for (int m = 0; m < M; m += MC) {
                int mb = M - m < MC ? M - m : MC;
                struct strips s = strips_of(mb);
                struct target t = {C + (size_t)m * (size_t)ldc + n, ldc, NR, k > 0 || beta != 0,
                                   alpha};
                pack_block(pa, &s,
                           trans_a ? A + (size_t)k * (size_t)lda + m
                                   : A + (size_t)m * (size_t)lda + k,
                           lda, trans_a, kb);
                block_times_panels(&s, pa, pb, kb, nb, t);
            }
        }
}

/* Four sums a row: enough to wait for memory only. */
KERNEL static void gemv(int M, int K, const float *A, int lda, const float *x, float *y)
{
    for (int m = 0; m < M; m++) {
        const float *a = A + (size_t)m * (size_t)lda;
        VEC s0 = ZERO, s1 = ZERO, s2 = ZERO, s3 = ZERO;
        float lane[W], sum = 0;
        int k = 0;
        for (; k + 4 * W <= K; k += 4 * W) {
            s0 = FMA(LOAD(a + k), LOAD(x + k), s0);
            s1 = FMA(LOAD(a + k + W), LOAD(x + k + W), s1);
            s2 = FMA(LOAD(a + k + 2 * W), LOAD(x + k + 2 * W), s2);
            s3 = FMA(LOAD(a + k + 3 * W), LOAD(x + k + 3 * W), s3);
        }
        for (; k + W <= K; k += W)
            s0 = FMA(LOAD(a + k), LOAD(x + k), s0);
        STORE(lane, ADD(ADD(s0, s1), ADD(s2, s3)));
        for (int i = 0; i < W; i++)
            sum += lane[i];
        for (; k < K; k++)
            sum += a[k] * x[k];
        y[m] = sum;
    }
}

#endif
#endif
