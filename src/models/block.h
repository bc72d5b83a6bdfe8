/* The executor: runs one block's increment for the rows of a plan.  Knows no method. */
#ifndef DS_MODELS_BLOCK_H
#define DS_MODELS_BLOCK_H

#include "models/model.h"

/* Key ranges of the current plan: which rows are keys (all, or the plan's) and which keys each
 * query sees.  cache: NULL, or one per sequence (B); ranges then index the sequence's own keys, and
 * block_cached must have been called. */
void block_ranges_make(struct model *m, int l, const struct plan *p, struct kv_cache *const *cache);
/* Number of keys of layer l already in the caches of the sequences (B), as ranges.cached; NULL
 * without caches. */
const int32_t *block_cached(struct model *m, int l, struct kv_cache *const *cache);
/* Of the ranges.cached keys of layer l, those out of the window of each row, as ranges.passed; NULL
 * without a window or caches. */
const int32_t *block_passed(struct model *m, int l, struct kv_cache *const *cache);
/* Norm 1 of h[l], or norm 2 of what the FFN of a split layer reads, of n listed rows into out (n,C). */
void block_normed(struct model *m, int l, int second, const int32_t *row, int n, real *out);
/* The increment f of the plan's rows into w->f; the residual stream is only read. */
void block_increment(struct model *m, int l, const struct plan *p, struct block_work *w,
                     struct kv_cache *const *cache);
/* h[l+1] = h[l] + gate * f(h[l]) on the plan's rows.  w keeps what backward needs. With caches (B,
 * one per sequence), K and V of the new keys are appended to them and attention reads from
 * there. */
void block_fwd(struct model *m, int l, const struct plan *p, struct block_work *w,
               struct kv_cache *const *cache);
/* The halves of a split layer, one plan each; stream.mid is w->mid.
 *   attention_half  mid = h[l] + gate * attention(h[l])       ffn_half  h[l+1] = mid + gate * ffn(mid)
 * A parallel block has ffn(h[l]).
 * The increments stay in w->f and w->g; `update` 0: only what backward needs (recomputation; mid is
 * written). */
void attention_half_fwd(struct model *m, int l, const struct plan *p, struct block_work *w,
                        struct kv_cache *const *cache);
void ffn_half_fwd(struct model *m, int l, const struct plan *p, struct block_work *w, int update);
/* dmid = gradient of mid from dh[l+1]; fills dgate (n) of the FFN's plan. */
void ffn_half_bwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *dgate);
/* dh[l] += from stream.dmid; fills dgate (n) of the attention's plan. */
void attention_half_bwd(struct model *m, int l, const struct plan *p, struct block_work *w,
                        real *dgate);
/* dh[l] += d loss / d h[l] from dh[l+1]; fills dgate (n). */
void block_bwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *dgate);

/* Appends the n keys and values of w from row `from` on to the cache of their sequence. */
void kv_cache_append(const struct model *m, struct kv_cache *c, int l, const struct block_work *w,
                     int from, int n);

/* One MLP of N rows: its parameters, the rows it reads and what its forward saves. */
struct ffn {
    int gate, up, down, gate_b, up_b, down_b, F;
    const real *in;
    const int32_t *row; /* rows of in; NULL: row i */
    real *a, *b, *hid;  /* (N,F) */
};
/* The MLP of block l, or its shared expert. */
struct ffn block_ffn(const struct model *m, int l, const struct block_work *w);
/* f (N,C) = the MLP, or f += with beta 1. */
void ffn_fwd(const struct model *m, const struct ffn *x, int N, real *f, real beta);
/* f[i] (N[i],C) = the MLP x[i], for n of them, at most FFN_MANY: what is quantised is read in two
 * parallel loops. */
enum { FFN_MANY = 16 };
void ffn_fwd_many(const struct model *m, const struct ffn *x, const int *N, real *const *f,
                  real beta, int n);
/* dx (N,C) = d loss / d rows, or dx += with beta 1; may be df, d loss / d f.  d: a and hid for
 * gradients. */
void ffn_bwd(const struct model *m, const struct ffn *x, const struct ffn *d, int N, const real *df,
             real *dx, real beta);

/* Allocates one block's work from an arena (measuring or real). */
void block_work_alloc(struct block_work *w, struct arena *a, const struct model_config *c, int R,
                      int split);
/* Registers one block's parameters. */
int block_params_add(struct block_params *b, struct params *ps, const struct model_config *c, int l,
                     struct err *e) DS_CHECK;

#endif
