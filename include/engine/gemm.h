/* Matrix multiplication behind one interface.  Row-major:  C = alpha * op(A) op(B) + beta * C
 * op(A) is (M,K), op(B) is (K,N), C is (M,N); trans != 0 means the stored matrix is the transpose.
 *
 * Formats: GEMM_FP32 multiplies in fp32; GEMM_BF16 rounds both operands to bfloat16 (nearest, ties
 * to even) and accumulates in fp32; whether subnormals are flushed to zero depends on the provider.
 * Stored matrices are float in both.  The double build has GEMM_FP32 only.
 *
 * Work is cut into tiles by shape only and each tile is one single-threaded call of the provider,
 * so results are bit-identical at any thread count.
 *
 * Row guarantee (all providers but blas; tests/pair/test_gemm.c): every element of C is one chain
 * over k in ascending order, cut at fixed places, so a row of C does not depend on which other rows
 * are in the call, even with M = 1, nor on whether op(B) is packed; avx512 and avx2 also agree with
 * each other to the last bit.  blas picks its kernels by shape and guarantees nothing about rows
 * (they differ for small M); it is the default only where no vector provider runs, and in the
 * double build. */
#ifndef DS_ENGINE_GEMM_H
#define DS_ENGINE_GEMM_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

enum gemm_format { GEMM_FP32, GEMM_BF16 };

/* A stored matrix.  row: stored row i is row[i] of p (gathered while packing), NULL: row i. */
struct operand {
    const real *p;
    int ld, trans;
    const int32_t *row;
};

struct gemm_provider;

/* op(B) laid out for one provider, so that repeated multiplications pack it only once. */
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
    const real *bias; /* (N), added to alpha * op(A) op(B); or NULL */
    /* Called once per finished tile of C, in the thread that computed it, while it is in the cache;
     * or NULL.  The tiles cover C once; their edges depend on M, N, K alone. */
    void (*after)(void *ctx, int m, int n, int rows, int cols);
    void *ctx;
};
/* M, N or K may be 0; with K = 0 the product is zero (bias and after still apply). */
void gemm_run(const struct gemm_job *j);
/* The same inside a pool task: single-threaded, in one tile.  With `packed`, columns start at n0
 * and inner indices at k0 of the packed matrix: n0 a multiple of GEMM_COLS, k0 of GEMM_DEEP; j->b
 * is not read. */
void gemm_run_inline(const struct gemm_job *j, int k0, int n0);
enum { GEMM_COLS = 32, GEMM_DEEP = 512 };
enum { GEMM_CUT = 256 }; /* every provider sums inner dimensions up to this in one chain */

/* Bytes of op(B) packed by the current provider of the format; 0: it does not pack. */
size_t gemm_packed_bytes(enum gemm_format format, int K, int N);
/* Packs op(B) into memory of that size.  gemm_pack_inline: in a pool task. */
void gemm_pack(struct packed *out, void *memory, enum gemm_format format, const struct operand *b,
               int K, int N);
void gemm_pack_inline(struct packed *out, void *memory, enum gemm_format format,
                      const struct operand *b, int K, int N);
/* Storage of a packed op(B): the provider's own units or, where those are floats, bfloat16 in half
 * the bytes.  Results have the same bits when its values are bfloat16, and in GEMM_BF16 always. */
enum gemm_storage { GEMM_WHOLE, GEMM_NARROW };
/* Its size in bytes; 0: not supported by the current provider. */
size_t gemm_storage_bytes(enum gemm_format format, enum gemm_storage storage, int K, int N);
size_t gemm_size_of(const struct packed *p); /* bytes */
/* Packing in parts, which may come from a file; `memory` is for the whole, and is complete when
 * every part was given once.  b: columns [n0, n0 + N) and inner indices [k0, k0 + K) of op(B); n0 a
 * multiple of GEMM_COLS, k0 of GEMM_DEEP.  Call in a pool task. */
void gemm_pack_begin(struct packed *out, void *memory, enum gemm_format format,
                     enum gemm_storage storage, int K, int N);
void gemm_pack_part(const struct packed *p, const struct operand *b, int k0, int K, int n0, int N);
/* The same from bfloat16 of the processor's byte order, any alignment: columns [n0, n0 + N) of
 * op(B), each p->K values, one after the other.  Only where gemm_takes_bf16. */
int gemm_takes_bf16(const struct packed *p);
void gemm_pack_bf16(const struct packed *p, const void *rows, int n0, int N);

/* The current provider of a format: the one named by $DEPTHSCOPE_GEMM, else the first of
 * gemm_providers() that this CPU supports and DEPTHSCOPE_CPU (base/cpu.h) allows. */
const struct gemm_provider *gemm_provider(enum gemm_format format);
/* Selects the provider of its format by name.  Matrices packed before keep their own provider. */
int gemm_use(const char *name, struct err *e) DS_CHECK;
const struct gemm_provider *const *gemm_providers(void); /* NULL-terminated */
const char *gemm_name(const struct gemm_provider *p);    /* "avx512", "amx", "blas" */
enum gemm_format gemm_format_of(const struct gemm_provider *p);
int gemm_has_row_guarantee(const struct gemm_provider *p);
int gemm_available(const struct gemm_provider *p);
extern const char *const gemm_format_name[2]; /* "fp32", "bf16" */

#endif
