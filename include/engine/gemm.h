/* Matrix products behind one seam.  Row-major:  C = alpha * op(A) op(B) + beta * C
 * op(A) is (M,K), op(B) is (K,N), C is (M,N); trans != 0 means the stored matrix is the transpose.
 *
 * Formats: GEMM_FP32 multiplies what it is given; GEMM_BF16 rounds both operands to bfloat16 (nearest, ties to even)
 * and adds in fp32; whether subnormal numbers count or are zero is the provider's.  What is stored stays float in both.  The double build knows GEMM_FP32 only.
 *
 * Work is cut into tiles by shape only and each tile is one single-threaded call of the provider, so
 * results are bit-identical at any thread count.
 *
 * Row promise (all providers but blas; tests/pair/test_gemm.c): every element of C is one chain over k in ascending order, cut
 * at fixed places, so a row of C does not depend on which other rows are in the call, M = 1 included, nor on whether op(B)
 * came packed; avx512 and avx2 also agree with each other to the last bit.  blas picks its kernels by shape and promises nothing about rows (it does
 * differ for small M); it is the default only where no vector provider runs, and in the double build. */
#ifndef DS_ENGINE_GEMM_H
#define DS_ENGINE_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

enum gemm_format { GEMM_FP32, GEMM_BF16 };

/* A matrix as it is stored.  row: stored row i is row[i] of p (gathered while packing), NULL: row i. */
struct operand {
    const real *p;
    int ld, trans;
    const int32_t *row;
};

struct gemm_provider;

/* op(B) laid out for one provider, so that products which use it again do not lay it out again. */
struct packed {
    const struct gemm_provider *by; /* NULL: nothing is packed */
    int K, N;
    void *data; /* gemm_packed_bytes, 64-byte aligned */
};

struct gemm_job {
    enum gemm_format format;
    int M, N, K;
    real alpha, beta; /* beta is 0 or 1 (0: C is not read) */
    struct operand a, b;
    const struct packed *packed; /* op(B), when not NULL and packed; b is then not read */
    real *C;
    int ldc;
    const real *bias; /* (N), added to alpha * product; or NULL */
    /* Called once for each finished tile of C, in the thread that made it, while it is in the cache; or NULL.
     * The tiles of a product cover C once.  Its edges depend on M, N, K alone. */
    void (*after)(void *ctx, int m, int n, int rows, int cols);
    void *ctx;
};
/* M, N, K of 0 are fine: without an inner dimension the product is zero (bias and after still act). */
void gemm_run(const struct gemm_job *j);
/* Inside a pool task: the same, single-threaded, in one tile.  With `packed` the columns are n0.. and the inner indices
 * k0.. of the packed matrix: n0 a multiple of GEMM_COLS, k0 of GEMM_DEEP; j->b is not read. */
void gemm_run_inline(const struct gemm_job *j, int k0, int n0);
enum { GEMM_COLS = 32, GEMM_DEEP = 512 };
enum { GEMM_CUT = 256 }; /* an inner dimension up to this is one chain for every provider */

/* Bytes that op(B) takes when packed by the present provider of the format; 0: it does not pack. */
size_t gemm_packed_bytes(enum gemm_format format, int K, int N);
/* Lays out op(B) into memory of that size.  gemm_pack_inline: in a pool task. */
void gemm_pack(struct packed *out, void *memory, enum gemm_format format, const struct operand *b,
               int K, int N);
void gemm_pack_inline(struct packed *out, void *memory, enum gemm_format format,
                      const struct operand *b, int K, int N);
/* How a packed op(B) is held: in the format's own units, or for GEMM_FP32 as bfloat16, in half the bytes.  Products are the
 * same to the last bit where its values are bfloat16. */
enum gemm_hold { GEMM_WHOLE, GEMM_NARROW };
/* Bytes of it; 0: the present provider cannot. */
size_t gemm_held_bytes(enum gemm_format format, enum gemm_hold hold, int K, int N);
size_t gemm_size_of(const struct packed *p); /* bytes */
/* The same in parts, which may come from a file: `memory` for the whole, laid out when every part was given once.  b: columns
 * [n0, n0 + N) and inner indices [k0, k0 + K) of op(B); n0 a multiple of GEMM_COLS, k0 of GEMM_DEEP.  In a pool task. */
void gemm_pack_begin(struct packed *out, void *memory, enum gemm_format format, enum gemm_hold hold,
                     int K, int N);
void gemm_pack_part(const struct packed *p, const struct operand *b, int k0, int K, int n0, int N);

/* The provider in use for a format: $DEPTHSCOPE_GEMM where it names one, else the first of gemm_providers() that this
 * processor has and DEPTHSCOPE_CPU (base/cpu.h) allows. */
const struct gemm_provider *gemm_provider(enum gemm_format format);
/* By name; it takes the place of the present one of its format.  What was packed before stays with its own provider. */
int gemm_use(const char *name, struct err *e) DS_CHECK;
const struct gemm_provider *const *gemm_providers(void); /* NULL-terminated */
const char *gemm_name(const struct gemm_provider *p);    /* "avx512", "amx", "blas" */
enum gemm_format gemm_format_of(const struct gemm_provider *p);
int gemm_available(const struct gemm_provider *p);
extern const char *const gemm_format_name[2]; /* "fp32", "bf16" */

/* The plain product in fp32. */
void gemm(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda,
          const real *B, int ldb, real beta, real *C, int ldc);
void gemm_inline(int trans_a, int trans_b, int M, int N, int K, real alpha, const real *A, int lda,
                 const real *B, int ldb, real beta, real *C, int ldc);

#endif
