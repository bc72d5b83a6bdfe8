/* The model: embedding, L blocks run by their plans, head.  One structure for training and for use. */
#ifndef DS_MODELS_MODEL_H
#define DS_MODELS_MODEL_H

#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "engine/param.h"
#include "models/adapters.h"
#include "models/config.h"
#include "models/distill.h"
#include "models/stored.h"
#include "models/weights.h"
#include "routing/flops.h"
#include "routing/route.h"

/* Indices into params; -1 = absent. */
struct block_params {
    int norm1, norm1_b, q, k, v, o, q_b, k_b, v_b, o_b, norm2, norm2_b, gate, up, down, gate_b,
        up_b, down_b;
};

/* What one block's forward leaves for its backward. Sized for N = M = R rows. */
struct block_work {
    real *x; /* (N,C) rows under the first norm: `gathered`, or the stream itself */
    real *gathered;
    real *xn, *rstd1,
        *mean1; /* (M,C) first norm, of the rows that are keys; those that query are among them */
    real *xq;   /* (N,C) only in gradients: of the rows that query, when keys are more */
    real *q, *k, *v, *att, *lse;
    real *u, *un, *rstd2, *mean2;
    real *a, *b, *hid; /* (N,F) */
    real *f;           /* (N,C) the increment; of a split layer that of attention */
    real *mid,
        *g; /* (R,C) split layers: the state after attention, the increment of the FFN; else NULL */
};

/* Which rows are keys of which, for one layer. */
struct block_ranges {
    int32_t *lo, *hi, *self; /* (N) of each query, as in struct attn      */
    int32_t *qpos, *kpos;    /* positions of the queries and the new keys */
    int32_t *seg_q, *seg_k;  /* (B + 1)                                   */
    uint8_t *on_store, *on;  /* on == NULL: every key is visible          */
    int32_t *cached; /* (B) keys of each sequence that its cache has of this layer already */
    int M, new_keys; /* keys in all, and of these made by this pass */
};

struct kv_layer {
    real *k, *v;         /* or NULL: */
    uint16_t *k16, *v16; /* bfloat16 */
    int n;
}; /* (cap, K*D): the rows that are keys of this layer, in order */
struct kv_cache {
    struct kv_layer *layer;
    int L, cap, len; /* len = tokens seen */
    void *block;
    void *memory; /* what the method keeps of this sequence; NULL = nothing */
    size_t memory_bytes;
};

/* One batch of rows. target, doc_start may be NULL (one document per row of the batch). */
struct batch {
    int B, T;
    const int32_t *id, *target, *doc_start;
};

struct model {
    struct model_config config;
    struct params params;
    struct route route;
    int embed, pos_embed, norm, norm_b, head; /* params */
    int n_base; /* params of the base model: the first ones; adapters and the method's follow */
    struct block_params *block;
    struct adapter *adapter; /* (adapters), NULL without */
    int adapters;
    struct weights weights;     /* how the matrices among params are held for products */
    struct stored_table stored; /* of parameters whose values stay in files */
    real *inv_freq;

    /* buffers for up to R_max rows */
    int R_max, is_training, keep; /* keep: every block's work is stored, nothing is recomputed */
    struct arena stream_arena, work_arena;
    struct stream stream;
    struct plan *plan;       /* (L) of blocks; of split layers that of attention */
    struct plan *ffn;        /* (L) of split layers, else NULL */
    struct block_work *work; /* (L) when keep, else 1 */
    struct block_work dwork; /* gradients of one block */
    struct block_ranges ranges;
    int32_t *pos, *first_row;       /* (R): position in document, row of its first token */
    real *xf, *rstdf, *meanf, *dxf; /* final norm */
    real *logits;                   /* (head_chunk(V), V) */
    real *nll, *entropy, *entropy_rel, *dgate; /* (R); entropy_rel = entropy / ln V */
    struct flops flops;
    int B, T, R; /* of the present pass */
    const struct batch *batch;
    double loss, aux_loss;
    struct distill *distill; /* borrowed; NULL = no teacher */
};

/* The decisions that count as "runs" of layer l: of the block, or of a split layer's FFN. */
static inline const struct plan *model_plan(const struct model *m, int l)
{
    return m->ffn ? &m->ffn[l] : &m->plan[l];
}

/* Rows whose logits exist at once: about 64 MiB of them, 128 rows at least. */
static inline int head_chunk(int64_t V)
{
    int64_t n = ((int64_t)1 << 24) / (V > 0 ? V : 1) / 128 * 128;
    return n < 128 ? 128 : n > 1024 ? 1024 : (int)n;
}

/* What a model is made for.  MODEL_TRAIN_OWN: the base is frozen (its parameters have train = 0, no gradient and no moments);
 * adapters and what the method registered are trained.  MODEL_EDIT: for use, but all values are in memory and may be written;
 * in use alone, and of a frozen base, the matrices that come from a file stay there (models/stored.h). */
enum { MODEL_USE, MODEL_TRAIN, MODEL_TRAIN_OWN, MODEL_EDIT };
/* route_options: the method's options (config entries with its prefix), may be NULL for defaults. Takes the
 * strings of *c.  The parameters are reserved and initialised at `seed`; those of the base come first in the table. */
int model_new(struct model **out, struct model_config *c, struct config *route_options,
              uint64_t seed, int train, struct err *e) DS_CHECK;
/* In two steps, for values that come from a file: the table of parameters alone, and memory for their values, undefined until
 * every one is written. */
int model_new_table(struct model **out, struct model_config *c, struct config *route_options,
                    uint64_t seed, int train, struct err *e) DS_CHECK;
int model_reserve_values(struct model *m, struct err *e) DS_CHECK;
void model_free(struct model *m);
/* Buffers for R = rows; `train` adds gradients; `keep` stores activations.  Grows only: what an earlier call asked for
 * stays.  What the last pass left is lost when it grows. */
int model_reserve(struct model *m, int rows, int train, int keep, struct err *e) DS_CHECK;
/* Bytes that model_reserve would take, but for what the method keeps of a row beside its recorded cells. */
size_t model_bytes(const struct model_config *c, int rows, int train, int keep);

/* Forward through embedding and blocks; logits are not made. pass->B.. are filled from the batch.  Ids are below the
 * vocabulary, and with learned positions documents are no longer than max_seq: the caller sees to it. */
void model_forward(struct model *m, const struct batch *b, struct pass *pass);
/* Head and loss in row chunks: fills nll, entropy (want_entropy or by the method) and m->loss (mean nats over targets >= 0);
 * with train also dh[L] and the head's gradients, of the loss that models/distill.h describes when a teacher is on (m->loss
 * stays the cross-entropy, m->distill->loss is the other part). */
double model_loss(struct model *m, int train, int want_entropy);
/* After model_loss(train): through all blocks and the embedding; accumulates into params' gradients. */
void model_backward(struct model *m);
/* Embedding and blocks for the rows placed in m->pos and m->first_row; for the two callers above and below.  cache: NULL, or
 * one of each sequence (B). */
void model_run(struct model *m, const int32_t *id, struct pass *pass,
               struct kv_cache *const *cache);
/* x (R,C): the final norm of the last forward's states. */
void model_final_states(struct model *m, real *x);
/* logits (V) of row i of the last forward. */
void model_logits(struct model *m, int row, real *logits);
/* logits (n, V) of rows row..row + n of the last forward. */
void model_logits_rows(struct model *m, int row, int n, real *logits);
/* Logits of the final norm and head applied to h[l] (logit lens), row i. */
void model_lens(struct model *m, int l, int row, real *logits);

/* Incremental use: the last token's logits after feeding n ids of one sequence. */
int kv_cache_new(struct kv_cache **out, const struct model *m, int cap, struct err *e) DS_CHECK;
void kv_cache_free(struct kv_cache *c);
void kv_cache_reset(struct kv_cache *c);
/* n <= R_max rows; pass->kind PASS_SPARSE or PASS_DENSE. DS_ERANGE when the cache, or the table of learned positions,
 * is full. */
int model_decode(struct model *m, struct kv_cache *c, const int32_t *id, int n, struct pass *pass,
                 struct err *e) DS_CHECK;
/* The same for n sequences at once, T ids of each: id (n, T), rows in that order.  Weights are read once for all.  By the row
 * promise of engine/gemm.h every sequence gets the bits that it would get alone.  The caches differ. */
enum { DECODE_TOGETHER = 256 }; /* sequences, at most */
int model_decode_batch(struct model *m, struct kv_cache *const *c, int n, const int32_t *id, int T,
                       struct pass *pass, struct err *e) DS_CHECK;

#endif
