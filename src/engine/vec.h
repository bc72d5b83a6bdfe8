/* The loops over elements outside GEMM and attention, compiled for each vector width.  Private to
 * the engine and its tests: ops are in engine/ops.h.
 *
 * Every set gives the same bits: sums run in V_LANES chains, and every multiply-add is a v_fma, so
 * that compilers have nothing to fuse.  One exception: "plain" rounds twice in a build without
 * fused multiply-adds (no __FMA__).  n and C count elements; pointers need no alignment.  Outputs
 * may alias inputs at the same index, except y of the norms' rows. */
#ifndef DS_ENGINE_VEC_H
#define DS_ENGINE_VEC_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

/* Factors of the AdamW step, MATH.md 11. */
struct vec_adamw {
    real beta1, rest1, beta2, rest2; /* rest = 1 - beta */
    real eps, keep, rate, root;      /* 1 - lr decay, lr/bias1, 1/sqrt(bias2) */
    real clip;
};

struct vec_set {
    const char *name; /* "plain", "avx2", "avx512" */
    int (*available)(void);

    /* Activations.  add: accumulate into the gradients, else overwrite; da or db may be NULL. */
    void (*swiglu)(real *h, const real *a, const real *b, size_t n);
    void (*swiglu_bwd)(real *da, real *db, const real *dh, const real *a, const real *b, size_t n,
                       int add);
    void (*gelu)(real *y, const real *x, size_t n);
    void (*gelu_bwd)(real *dx, const real *dy, const real *x, size_t n, int add);
    void (*gelu_tanh)(real *y, const real *x, size_t n);
    void (*gelu_tanh_bwd)(real *dx, const real *dy, const real *x, size_t n, int add);
    void (*geglu)(real *h, const real *a, const real *b, size_t n);
    void (*geglu_bwd)(real *da, real *db, const real *dh, const real *a, const real *b, size_t n,
                      int add);

    /* One row of a norm.  With f the row is u = x + f; without f, u is not written.  Returns
     * rstd. */
    real (*rms_row)(real *y, real *u, const real *x, const real *f, const real *w, size_t C,
                    real eps);
    real (*layer_row)(real *y, real *mean, real *u, const real *x, const real *f, const real *w,
                      const real *b, size_t C, real eps);
    /* Accumulates into dx (or NULL) and the chunk's sums dw and db (or NULL). */
    void (*rms_row_bwd)(real *dx, real *dw, const real *dy, const real *x, const real *w, real rstd,
                        size_t C);
    void (*layer_row_bwd)(real *dx, real *dw, real *db, const real *dy, const real *x,
                          const real *w, real mean, real rstd, size_t C);

    /* sign * sine and cosine of pos * inv_freq; then rotates the first 2 pairs of the D elements of
     * all heads of a row by them. */
    void (*angles)(real *sine, real *cosine, const real *inv_freq, real pos, real sign, int pairs);
    void (*rotate)(real *x, const real *sine, const real *cosine, int heads, int D, int pairs,
                   int half);

    /* The maximum (v_max), and the sums of e = exp(x - top) and of e (x - top); e is written to
     * `to` unless NULL.  Elements of -Inf add nothing.  moment may be NULL. */
    real (*max)(const real *x, size_t n);
    void (*exp_sum)(real *to, const real *x, real top, size_t n, double *sum, double *moment);

    void (*scale)(real *x, real by, size_t n); /* x *= by */
    void (*cap)(real *x, real most, size_t n); /* x = most tanh(x / most) */
    void (*cap_bwd)(real *d, const real *y, real most,
                    size_t n); /* d *= its slope, y = its result */
    void (*axpy)(real *y, const real *x, const real *f, real g, size_t n); /* y = x + g f */
    real (*dot)(const real *x, const real *y, size_t n);                   /* v_dot */
    double (*squares)(const real *x, size_t n);                            /* sum of x^2 */
    void (*adamw)(real *w, real *g, real *m, real *v, const struct vec_adamw *r, size_t n);
};

/* The widest set that this CPU supports and DEPTHSCOPE_CPU allows. */
const struct vec_set *vec(void);
/* All sets of this build, NULL-terminated; the last one, "plain", is always available. */
const struct vec_set *const *vec_sets(void);
/* For tests: selects this set. */
int vec_use(const char *name, struct err *e) DS_CHECK;

/* The vector sets: x86-64, float only. */
#if defined(__x86_64__) && REAL_BITS == 32
#define VEC_X86 1
extern const struct vec_set vec_avx512, vec_avx2;
#endif
extern const struct vec_set vec_plain;

#endif
