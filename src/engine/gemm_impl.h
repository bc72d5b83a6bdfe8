/* Matrix multiplication: what gemm.c and its providers share. */
#ifndef DS_ENGINE_GEMM_IMPL_H
#define DS_ENGINE_GEMM_IMPL_H

#include <stddef.h>
#include <string.h>

#include "engine/bf16.h"
#include "engine/gemm.h"

/* Where providers with the row guarantee cut the chain over k, unless they have a reason for
 * another place. */
enum { GEMM_KC = GEMM_CUT };

/* One tile, single-threaded:  C = alpha * op(A) op(B) + add.  M, N, K > 0. */
struct gemm_tile {
    int M, N, K;
    real alpha;
    struct operand a, b;
    const struct packed *packed; /* NULL: b, else columns n0.. and inner indices k0.. of it */
    int k0, n0;
    const real *add; /* C itself, a bias (add_ld 0), or NULL */
    int add_ld;
    real *C;
    int ldc;
};

struct gemm_provider {
    const char *name; /* "amx", "avx512bf16", "avx512", "avx2", "blas", "ref", ... */
    enum gemm_format format;
    int (*available)(void);
    void (*tile)(const struct gemm_tile *t); /* re-entrant */
    /* Packing op(B); NULL: the provider does not pack.  A panel is panel_cols columns (a divisor of
     * GEMM_COLS) by K <= kc inner indices and takes panel_bytes(K).  A packed matrix stores its
     * cuts of k one after the other, each as consecutive panels.  pack: op(B) columns [n, n + cols)
     * and inner indices [k, k + K). */
    /* The same with op(B) stored as bfloat16, which is always packed; or NULL. */
    const struct gemm_provider *narrow;
    int kc; /* inner indices per cut: GEMM_KC, or GEMM_DEEP */
    int panel_cols;
    size_t (*panel_bytes)(int K);
    void (*pack)(void *panel, const struct operand *b, int n, int cols, int k, int K);
    /* The same from `cols` rows of op(B)^T as bfloat16, `step` bytes apart, from k on; or NULL. */
    void (*pack_bf16)(void *panel, const unsigned char *rows, size_t step, int cols, int K);
};

/* Address in a packed matrix of the panel of column n in the cut that begins at k. */
static inline size_t packed_at(const struct packed *p, int k, int n)
{
    const struct gemm_provider *by = p->by;
    size_t panels = (size_t)((p->N + by->panel_cols - 1) / by->panel_cols);
    int kb = p->K - k < by->kc ? p->K - k : by->kc;
    return (size_t)(k / by->kc) * panels * by->panel_bytes(by->kc) +
           (size_t)(n / by->panel_cols) * by->panel_bytes(kb);
}

/* The operand that begins at stored row i, column j. */
static inline struct operand operand_at(struct operand x, int i, int j)
{
    if (x.row)
        x.row += i;
    else
        x.p += (ptrdiff_t)i * x.ld;
    x.p += j;
    return x;
}

static inline const real *operand_row(const struct operand *x, int i)
{
    return x->p + (ptrdiff_t)(x->row ? x->row[i] : i) * x->ld;
}

/* The vector providers: x86-64, float only. */
#if defined(__x86_64__) && REAL_BITS == 32
#define GEMM_X86 1
extern const struct gemm_provider gemm_avx512, gemm_avx2, gemm_avx512_narrow, gemm_avx2_narrow;
extern const struct gemm_provider gemm_amx, gemm_avx512bf16, gemm_avx512_round, gemm_avx2_round;
extern const struct gemm_provider gemm_avx2_round_narrow;
#endif
extern const struct gemm_provider gemm_ref;
#if REAL_BITS == 32
extern const struct gemm_provider gemm_ref_bf16;
extern const struct gemm_provider gemm_amx_soft; /* the kernel of gemm_amx on any CPU, for tests */
#endif
#ifndef DEPTHSCOPE_NO_BLAS
extern const struct gemm_provider gemm_blas;
#endif

#endif
