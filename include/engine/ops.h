/* Operations as forward/backward pairs.
 *
 * Dims: B batch, T time, R = B*T rows, C channels, H query heads, K key/value heads, D head dim, F
 * ffn width, V vocabulary, N rows of a plan (queries), M rows that are keys.
 *
 * Linear maps are in engine/linear.h.
 *
 * Contract: every _bwd ACCUMULATES into every d-argument; a NULL d-pointer means "not needed".
 * _bwd may read the forward's inputs, weights and the op's own saved values.  No op allocates
 * except per-thread scratch that is kept between calls, and none reads globals other than the pool;
 * reductions run in a fixed order whatever the thread count.  Any row count from 0 up is valid.
 * Rows are independent: an output row (and a dx row) has the same bits whichever other rows are in
 * the call, given a GEMM provider with the row guarantee of engine/gemm.h.  Derivations:
 * src/engine/MATH.md. */
#ifndef DS_ENGINE_OPS_H
#define DS_ENGINE_OPS_H

#include <stddef.h>
#include <stdint.h>

#include "engine/real.h"

/* A norm of N rows.  With `mean` it is LayerNorm, else RMSNorm:
 *     LayerNorm: y = (x - mean) * rstd * w + b      RMSNorm: y = x * rstd * w
 *     rstd = 1/sqrt(variance + eps)                 rstd = 1/sqrt(mean(x^2) + eps)
 * With offset (Gemma: 1) offset + w takes the place of w. */
struct norm {
    const real *w, *b; /* (C); b NULL: no bias */
    real offset;
    real *mean, *rstd; /* (N) written by the forward, read by the backward */
    int N, C;
    real eps; /* forward only */
};
void norm_fwd(real *y, const real *x, const struct norm *n);
void norm_bwd(real *dx, real *dw, real *db, const real *dy, const real *x, const struct norm *n);
/* Addition and norm in one pass: u (N,C) = x[row[i]] + f (row NULL: x row i), then y = norm(u). */
void add_norm_fwd(real *u, real *y, const real *x, const int32_t *row, const real *f,
                  const struct norm *n);

/* Rotary embedding: rotates the first `dims` of the D elements of a head. */
struct rope {
    const real *inv_freq; /* (dims / 2) radians per position */
    int D, dims;
    int half;   /* pairs (i, i + dims/2) (Hugging Face Llama); else (2i, 2i+1) */
    real scale; /* of the rotated elements: 1, or YaRN's attention factor */
};
/* In place on x (N, heads, D) at integer positions pos (N). */
void rope_fwd(real *x, const int32_t *pos, const struct rope *r, int N, int heads);
void rope_bwd(real *dx, const int32_t *pos, const struct rope *r, int N, int heads); /* back */

/* h = silu(a) * b, n elements. */
void swiglu_fwd(real *h, const real *a, const real *b, size_t n);
void swiglu_bwd(real *da, real *db, const real *dh, const real *a, const real *b, size_t n);
/* Exact (erf) and tanh-approximated GELU. */
void gelu_fwd(real *y, const real *x, size_t n);
void gelu_bwd(real *dx, const real *dy, const real *x, size_t n);
void gelu_tanh_fwd(real *y, const real *x, size_t n);
void gelu_tanh_bwd(real *dx, const real *dy, const real *x, size_t n);
/* h = gelu_tanh(a) * b */
void geglu_fwd(real *h, const real *a, const real *b, size_t n);
void geglu_bwd(real *da, real *db, const real *dh, const real *a, const real *b, size_t n);
/* In place: x = cap tanh(x / cap).  The backward multiplies d by the slope, given the result y. */
void soft_cap_fwd(real *x, real cap, size_t n);
void soft_cap_bwd(real *d, const real *y, real cap, size_t n);
/* The activations on one tile (rows x cols, every matrix with leading dimension ld), in the calling
 * thread, for gemm's `after`; the backward ones overwrite.  act_tile_bwd: d holds dh and becomes db
 * (SwiGLU and GeGLU also write da).  The GELUs read b only and leave a and da untouched.  The bits are those
 * of the ops above accumulating onto zeros. */
enum act_kind { ACT_SWIGLU, ACT_GELU, ACT_GELU_TANH, ACT_GEGLU };
void act_tile_fwd(enum act_kind kind, real *h, const real *a, const real *b, int ld, int rows,
                  int cols);
void act_tile_bwd(enum act_kind kind, real *da, real *d, const real *a, const real *b, int ld,
                  int rows, int cols);

/* Causal attention over a flat list of rows.  Query i may attend to keys lo[i] <= j < hi[i]
 * (indices into the key list; both non-decreasing in i) for which on[j] == 1, and always to its own
 * key self[i] (when >= 0).  Sequences of a batch and documents in a sequence are just such ranges.
 * Keys with on[j] == 2 are private: only queries with own[i] <= j <= self[i] see them; they are
 * meant to be few per query.
 * There are segs independent segments (batch rows): queries seg_q[s]..seg_q[s+1], keys
 * seg_k[s]..seg_k[s+1].  Ranges are clipped to the segment's keys, and self is inside them.  A
 * query without keys gives o = 0, lse = -Inf.
 *
 * o, lse and dq of a query have the same bits whichever other queries are in the call and whether
 * or not disabled keys are in the list; dk and dv agree up to rounding.  One exception: with a
 * bfloat16 cache and bf16 set, a call with few queries (decoding) sums in another order than one
 * with many.
 *
 * Cost follows the ranges (blocks of 32 or 64 queries, cuts of 256 keys); memory is not quadratic
 * in anything. */
struct attn_keys { /* of a segment, (n,K,D): as real, or as bfloat16 with k and v NULL */
    const real *k, *v;
    const uint16_t *k16, *v16;
    int n;
};
struct attn {
    int N, M, H, K, D;
    real scale;                    /* of the scores; 0: 1/sqrt(D) */
    real cap;                      /* scaled scores s become cap tanh(s / cap); 0: they stay */
    const int32_t *lo, *hi, *self; /* (N) */
    const uint8_t *on;             /* (M) 0 off, 1 on, 2 private; or NULL = all on */
    const int32_t *own;            /* (N) first private key of the query; NULL: it has none */
    int segs;
    const int32_t *seg_q, *seg_k; /* (segs + 1) */
    /* GEMMs round their operands to bfloat16; softmax, sums, lse and an own key outside the range
     * stay in real.  Ignored by the double build. */
    int bf16;
    /* Forward only: the keys and values of each segment, as in caches, all in the same format; or
     * NULL.  k, v and seg_k are then not read, and ranges count from the segment's first key, as
     * does `on`, which needs a single segment.  Without bf16, values stored as bfloat16 are used
     * exactly. */
    const struct attn_keys *cache; /* (segs) */
};
/* o (N,H,D), lse (N,H) = log-sum-exp of the scaled scores; q (N,H,D), k v (M,K,D).
 * H % K == 0. */
void attention_fwd(real *o, real *lse, const real *q, const real *k, const real *v,
                   const struct attn *a);
/* The exception above: most queries of a segment in a call that still sums in the order of one
 * query alone; 0: any number does. */
int attention_alone(const struct attn *a);
/* What the backward reads and what it accumulates into, with the shapes of the forward. */
struct attn_grad {
    real *dq, *dk, *dv;
    const real *dout, *q, *k, *v, *o, *lse;
};
void attention_bwd(const struct attn_grad *g, const struct attn *a);

/* x (N,C) = scale * w[id] (+ pos_w[pos]).  pos_w may be NULL. Ids must be < V (checked by the
 * caller). */
void embed_fwd(real *x, const int32_t *id, const int32_t *pos, const real *w, const real *pos_w,
               real scale, int N, int C);
void embed_bwd(real *dw, real *dpos_w, const real *dx, const int32_t *id, const int32_t *pos,
               real scale, int N, int C);

/* Rows of a plan. row (N) strictly ascending.  gate may be NULL (= 1). */
/* y[i] = x[row[i]] */
void rows_gather(real *y, const real *x, const int32_t *row, int N, int C);
/* y[row[i]] += gate[i] * x[i] */
void rows_scatter_add(real *y, const real *x, const int32_t *row, const real *gate, int N, int C);
/* out[i] = <a[row[i]], b[i]> */
void rows_dot(real *out, const real *a, const int32_t *row, const real *b, int N, int C);
/* y += x */
void add_into(real *y, const real *x, size_t n);
/* In one pass: y (R,C) = x, and y[row[i]] += gate[i] * f (N,C) on the plan's rows (ascending). */
void rows_update(real *y, const real *x, const real *f, const int32_t *row, const real *gate, int N,
                 int R, int C);

/* Softmax cross-entropy of logits (N,V).  When `scale` != 0 the logits become d loss / d logits:
 * (p - onehot) * scale * weight[i].  nll (N) and entropy (N, of the softmax, nats) may be NULL.
 * target < 0: no loss, zero gradient.  weight NULL = 1. */
void xent_fwd_bwd(real *logits, const int32_t *target, const real *weight, real scale, real *nll,
                  real *entropy, int N, int V);

/* Weights of sampling from logits x (V): w = exp((x - top) / T) in double; top: the largest logit. */
void sample_weights(double *w, const real *x, real top, double T, int V);

/* Distillation at temperature T of logits (N,V): kd (N) = T^2 KL(p || q), in nats, with p and q the
 * softmax of teacher / T and of student / T.  The teacher's logits become the gradient of scale *
 * kd with respect to the student's (with scale 0 they are destroyed).  target < 0: zero. */
void distill_fwd_bwd(real *teacher, const real *student, const int32_t *target, real T, real scale,
                     real *kd, int N, int V);

/* Sum of squares in fixed chunks and a fixed tree, double accumulators; count of non-finite values
 * in *bad. */
double sum_squares(const real *x, size_t n, uint64_t *bad);

#endif
