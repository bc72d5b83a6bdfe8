/* The executor: runs one block's increment for the rows of a plan.  Knows no method. */
#ifndef DS_MODELS_BLOCK_H
#define DS_MODELS_BLOCK_H

#include "models/model.h"

/* Key ranges of the present plan: which rows are keys (all, or the plan's), what each query sees. cache may be NULL. */
void block_ranges_make(struct model *m, const struct plan *p, const struct kv_cache *cache, int l);
/* The increment f of the plan's rows into w->f; the stream is only read. */
void block_increment(struct model *m, int l, const struct plan *p, struct block_work *w,
                     struct kv_cache *cache);
/* h[l+1] = h[l] + gate * f(h[l]) on the plan's rows.  w keeps what backward needs. With a cache, K and V of the
 * new keys are appended to it and attention reads from it. */
void block_fwd(struct model *m, int l, const struct plan *p, struct block_work *w,
               struct kv_cache *cache);
/* The halves of a split layer, by a plan each; stream.mid is w->mid.
 *   attention_half  mid = h[l] + gate * attention(h[l])       ffn_half  h[l+1] = mid + gate * ffn(mid)
 * The increments stay in w->f and w->g; `update` 0: only what backward needs (recomputation; mid is written). */
void attention_half_fwd(struct model *m, int l, const struct plan *p, struct block_work *w,
                        struct kv_cache *cache);
void ffn_half_fwd(struct model *m, int l, const struct plan *p, struct block_work *w, int update);
/* dmid = what reaches mid from dh[l+1]; fills dgate (n) of the FFN's plan. */
void ffn_half_bwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *dgate);
/* dh[l] += from stream.dmid; fills dgate (n) of the attention's plan. */
void attention_half_bwd(struct model *m, int l, const struct plan *p, struct block_work *w,
                        real *dgate);
/* dh[l] += d loss / d h[l] from dh[l+1]; fills dgate (n). */
void block_bwd(struct model *m, int l, const struct plan *p, struct block_work *w, real *dgate);

/* Adds the new keys and values of w to the cache. */
void kv_cache_append(const struct model *m, struct kv_cache *c, int l, const struct plan *p,
                     const struct block_work *w);

/* Allocates one block's work from an arena (measuring or real). */
void block_work_alloc(struct block_work *w, struct arena *a, const struct model_config *c, int R,
                      int split);
/* Registers one block's parameters. */
int block_params_add(struct block_params *b, struct params *ps, const struct model_config *c, int l,
                     struct err *e) DS_CHECK;

#endif
