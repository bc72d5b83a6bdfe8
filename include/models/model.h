/* The model: embedding, L blocks executed by their plans, head.  One structure for training and
 * inference. */
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

enum block_rope { BLOCK_NO_ROPE, BLOCK_ROPE, BLOCK_ROPE_LOCAL };

/* Indices into params; -1 = absent. */
struct block_params {
    int norm1, norm1_b, q, k, v, o, q_b, k_b, v_b, o_b, norm2, norm2_b, gate, up, down, gate_b,
        up_b, down_b;
    int router, router_b, expert;   /* mixture of experts: its first matrix, see moe_expert */
    int shared_gate;                /* gate, up and down are then those of the shared expert */
    int q_norm, k_norm, out1, out2; /* out: norms of the outputs of attention and MLP */
    int window;                     /* as model_config_window */
    enum block_rope rope;
};

/* What a mixture of experts saves; S = N * experts_used slots, the rows of each expert in turn, those
 * of the no-ops (whose values nothing computes) last; E with the no-ops. */
struct moe_work {
    real *score;                /* (N,E) of every expert */
    int32_t *expert;            /* (N,k) chosen, ascending */
    real *weight;               /* (N,k) */
    int32_t *slot;              /* (N,k) */
    int32_t *row;               /* (S) */
    int32_t *start;             /* (E + 1) first slot of each expert */
    real *a, *b, *hid;          /* (S,Fe) */
    real *y;                    /* (S,C) outputs */
    real *shared, *shared_gate; /* (N,C) output of the shared expert, (N) its gate */
};

/* What one block's forward saves for its backward. Sized for N = M = R rows. */
struct block_work {
    real *x; /* (N,C) input rows of the first norm: `gathered`, or the residual stream itself */
    real *gathered;
    real *xn, *rstd1, *mean1; /* (M,C) first norm of the key rows, which include the query rows */
    real *xq; /* (N,C) gradients only: of the query rows, when there are more keys */
    /* (M,C) where an iteration of a loop begins with a norm or an injection: its input; else NULL */
    real *in, *rstd0, *mean0;
    real *q, *k, *v, *att, *lse;
    /* Before norms of queries (N,H*D), keys (M,K*D) and outputs (N,C); NULL without */
    real *q_in, *k_in, *rstd_q, *rstd_k, *f_in, *g_in, *rstd_f, *rstd_g;
    real *g_out; /* (N,C) the normed output of the MLP, before it is added; NULL without */
    real *u, *un, *rstd2, *mean2;
    real *a, *b, *hid;   /* (N,F) */
    struct moe_work moe; /* of a mixture of experts; a, b, hid are then the shared expert's */
    real *f;             /* (N,C) the increment; in a split layer that of attention */
    real *mid,
        *g; /* (R,C) split layers: the state after attention, the increment of the FFN; else NULL */
};

/* Which keys each query row sees, for one layer. */
struct block_ranges {
    int32_t *lo, *hi, *self;  /* (N) of each query, as in struct attn      */
    int32_t *own_store, *own; /* (N) first private key; own == NULL: none */
    int32_t *qpos, *kpos;     /* positions of the queries and the new keys */
    int32_t *seg_q, *seg_k;   /* (B + 1)                                   */
    uint8_t *on_store, *on;   /* as in struct attn; on == NULL: every key is visible */
    int32_t *cached;          /* (B) keys of each sequence already in this layer's cache */
    int32_t *passed;          /* (R) those that a row of a layer with a window does not see */
    int M, new_keys;          /* all keys, and those computed by this pass */
};

struct kv_layer {
    real *k, *v;         /* or NULL: */
    uint16_t *k16, *v16; /* bfloat16 */
    int32_t *pos;        /* (cap) in layers with a window, else NULL */
    int n;
}; /* (cap, K*D): the rows that are keys of this layer, in order */
struct kv_cache {
    struct kv_layer *layer;
    int L, cap, len;      /* len = tokens seen */
    int context;          /* tokens that the rotary frequencies are chosen for; cap unless set while
                             len = 0 */
    void *block, *places; /* all keys and values; all pos */
    void *memory;         /* the method's state of this sequence; NULL = none */
    size_t memory_bytes;
};

/* Of looped blocks (models/loop.h); all NULL without a loop. */
struct model_loop {
    uint8_t *settled, *moved;    /* (depth, R); (group, R): changed since the keys were computed */
    int32_t *row, *query, *pos;  /* (R) of the layer that runs */
    real *k, *v, *new_k, *new_v; /* inference: (group, R, K*D) of all iterations; (R, K*D) */
};

/* The experts of the current pass; all NULL without a mixture of experts. */
struct model_experts {
    int32_t *chosen; /* (depth, R, experts_used) ascending; -1: the row did not run */
    int has_chosen;  /* a pass was made, which a frozen one repeats */
    real *weight;    /* (depth, R, experts_used) of them */
    double *load;    /* (depth, E) rows that chose each expert or, last, no-op */
    double *score;   /* (depth, E) sums of their scores over the rows that ran */
    double *balance; /* (depth, E) d load-balancing loss / d score of a row, see models/moe.h */
    double noops;    /* choices of no-ops, also of rows that were computed with a gate of 0 */
};

/* One batch of rows. target, doc_start may be NULL (one document per row of the batch).
 * private_start (NULL: all -1): -1, or the index in the row of the batch of the first token of a
 * private span, which only the rows of the span see.  Positions count the tokens that a row sees
 * before it.  A cached pass (model_decode) has no such spans. */
struct batch {
    int B, T;
    const int32_t *id, *target, *doc_start, *private_start;
};

/* Predictions after each layer, (depth + 1, R) each; NULL = not wanted.  Row l is the state before
 * layer l, row depth the state after the last one.  Layers where no token may leave (inside an
 * iteration of a loop) and what is unknown there are NaN, 0 in the integers. */
struct exit_values {
    real *nll;        /* of the target; 0 without one */
    real *doubt;      /* -ln of the largest probability, which keeps its digits near 1 */
    real *confidence; /* the largest probability */
    real *entropy;    /* nats */
    real *kl;         /* KL(here || the exit before), nats; NaN at the first exit */
    int32_t *best;    /* the first of the largest logits */
    uint8_t *correct; /* 1 = that is the target */
};

struct model {
    struct model_config config;
    struct params params;
    struct route route;
    int embed, pos_embed, norm, norm_b, head, loop_norm, loop_norm_b; /* params */
    int n_base; /* params of the base model: the first ones; adapters and the method's follow */
    struct block_params *block; /* (depth): iterations of a loop name the same parameters */
    struct adapter *adapter;    /* (adapters), NULL without */
    int adapters;
    double *adapter_flops;      /* (layers, 3) per row: q and o, k and v, MLP */
    uint64_t adapters_version;  /* of the params whose norms they hold */
    struct weights weights;     /* the matrices of params as prepared for GEMMs */
    struct stored_table stored; /* of parameters whose values stay in files */
    int n_out;                  /* rows of the head */
    int32_t *out_id;            /* (n_out) their ids, ascending; NULL = all of the vocabulary */
    real *inv_freq[2];          /* of blocks without and with a window */
    int64_t rope_context;       /* model_config_rope_context of the former */
    real rope_scale;            /* of the former's rotated elements */

    /* buffers for up to R_max rows */
    int R_max, is_training, keep; /* keep: every block's work is stored, nothing is recomputed */
    struct arena stream_arena, work_arena;
    struct stream stream;
    struct plan *plan;       /* (L) of blocks; for split layers that of attention */
    struct plan *ffn;        /* (L) of split layers, else NULL */
    struct block_work *work; /* (L) when keep, else 1 */
    struct block_work dwork; /* gradients of one block */
    struct block_ranges ranges;
    struct model_loop loop;
    struct model_experts experts;
    int32_t *pos, *first_row;             /* (R): position in document, row of its first token */
    int32_t *private_store, *private_row; /* (R): first row of the private span, -1; NULL: none */
    real *xf, *rstdf, *meanf, *dxf;       /* final norm */
    real *logits;                         /* (head_chunk(V), V) */
    real *capped;                         /* the same, in training with a soft cap; else NULL */
    real *nll, *entropy, *entropy_rel, *dgate; /* (R); entropy_rel = entropy / ln n_out */
    uint8_t
        *is_correct; /* (R) with want_entropy, without train: the target has the largest logit */
    struct exit_values exits; /* of a method with ROUTE_EXITS */
    struct flops flops;
    struct flops_shape shape; /* of the configuration */
    int B, T, R;              /* of the current pass */
    const struct batch *batch;
    double loss, aux_loss, exit_loss; /* exit_loss: weighted sum over early exits */
    struct distill *distill;          /* borrowed; NULL = no teacher */
    /* (depth + 1), borrowed; NULL = ordinary training.  Weight of the cross-entropy of the final
     * norm and head applied to h[l], in training steps; the last entry, which must not be 0, is
     * that of the loss itself.  Entry 0 is not read. */
    const real *exit_weight;
    /* Of a training step that is cut into pieces: targets in the whole step, 0 = the pass is the
     * step; the share of its rows in this pass.  Its loss and gradients times the share add up to
     * those of the step. */
    struct model_piece {
        double targets, share;
    } piece;
    /* Called by model_backward when the gradients of block l's own parameters are complete, from the
     * last block to the first; NULL: not.  Never in a loop, whose blocks are iterated. */
    void (*block_done)(void *ctx, int l);
    void *block_done_ctx;
};

static inline double model_exit_weight(const struct model *m, int l)
{
    return m->exit_weight ? (double)m->exit_weight[l] : l == model_config_depth(&m->config);
}

/* The decisions that count as executing layer l: of the block, or of a split layer's FFN. */
static inline const struct plan *model_plan(const struct model *m, int l)
{
    return m->ffn ? &m->ffn[l] : &m->plan[l];
}

/* Rows whose logits are in memory at once: about 64 MiB, at least 128 rows. */
static inline int head_chunk(int64_t V)
{
    int64_t n = ((int64_t)1 << 24) / (V > 0 ? V : 1) / 128 * 128;
    return n < 128 ? 128 : n > 1024 ? 1024 : (int)n;
}

/* The purpose of a model.  MODEL_TRAIN_OWN: the base is frozen (its parameters have train = 0, no
 * gradient and no moments); adapters and what the method registered are trained.  MODEL_EDIT:
 * inference with all values in memory and writable; with MODEL_INFERENCE, and for a frozen base,
 * matrices loaded from a file stay there (models/stored.h). */
enum { MODEL_INFERENCE, MODEL_TRAIN, MODEL_TRAIN_OWN, MODEL_EDIT };
/* route_options: the method's options (config entries with its prefix), may be NULL for defaults.
 * Takes the strings of *c.  The parameters are reserved and initialised at `seed`; those of the
 * base come first in the table. */
int model_new(struct model **out, struct model_config *c, struct config *route_options,
              uint64_t seed, int train, struct err *e) DS_CHECK;
/* The same in two steps, for values that come from a file: the parameter table, then memory for the
 * values, which are undefined until written. */
int model_new_table(struct model **out, struct model_config *c, struct config *route_options,
                    uint64_t seed, int train, struct err *e) DS_CHECK;
int model_reserve_values(struct model *m, struct err *e) DS_CHECK;
void model_free(struct model *m);
/* Parameters without embedding, head and position table. */
int64_t model_non_embedding(const struct model *m);
/* Buffers for R = rows; `train` adds gradients; `keep` stores activations.  Buffers never shrink;
 * results of the last pass are lost when they grow. */
int model_reserve(struct model *m, int rows, int train, int keep, struct err *e) DS_CHECK;
/* Bytes that model_reserve would reserve for such a model: the same layouts, measured.
 * route_options as in model_new. */
int model_bytes(size_t *bytes, const struct model_config *c, struct config *route_options, int rows,
                int train, int keep, struct err *e) DS_CHECK;

/* Chooses the rotary frequencies for a context of so many tokens, where they depend on it
 * (model.rope_scaling=longrope, dynamic).  model_forward takes its rows per text, decoding the size of
 * the cache, so that a choice never changes within a text. */
void model_set_context(struct model *m, int64_t context);
/* Forward through embedding and blocks, without logits. pass->B.. are filled from the batch.  The
 * caller ensures that ids are in the vocabulary and, with learned positions, that documents are no
 * longer than max_seq. */
void model_forward(struct model *m, const struct batch *b, struct pass *pass);
/* pass->inference.exit = layers is possible: 0 or a layer of the model.  DS_ERANGE. */
int model_check_exit(const struct model *m, int64_t layers, struct err *e) DS_CHECK;
/* Head and loss in row chunks: fills nll, entropy (if want_entropy or the method needs it) and
 * m->loss (mean nats over targets >= 0); with train also dh[L] and the head's gradients, of the
 * loss that models/distill.h describes when a teacher is on (m->loss stays the cross-entropy,
 * m->distill->loss is the other part).  With m->exit_weight the gradient is of
 *     exit_weight[L] * that loss + sum over l < L of exit_weight[l] * cross-entropy of h[l]
 * and dh[l] of those layers is set too; m->exit_loss is the second term. */
double model_loss(struct model *m, int train, int want_entropy);
/* What the loss of the batch is divided by: see losses.rows (routing/route.h). */
double model_loss_rows(const struct model *m);
/* After model_loss(train): through all blocks and the embedding; accumulates into params'
 * gradients. */
void model_backward(struct model *m);
/* Embedding and blocks for the rows placed in m->pos and m->first_row; used by model_forward and
 * model_decode.  cache: NULL, or one per sequence (B).  from > 0: the rows have been through the
 * layers below `from`, where all of them ran and have their keys in the caches; h[from] holds their
 * states.  Their plans and FLOPs are filled in. */
void model_run(struct model *m, const int32_t *id, struct pass *pass, struct kv_cache *const *cache,
               int from);
/* x (R,C): the normed final states of the last forward. */
void model_final_states(struct model *m, real *x);
/* logits (V) of row i of the last forward. */
void model_logits(struct model *m, int row, real *logits);
/* logits (n, V) of rows row..row + n of the last forward. */
void model_logits_rows(struct model *m, int row, int n, real *logits);
/* Logits of the final norm and head applied to h[l] (logit lens), row i. */
void model_lens(struct model *m, int l, int row, real *logits);
/* The same for n <= R listed rows, into logits (n, n_out): columns of the head, not ids. */
void model_lens_columns(struct model *m, int l, const int32_t *row, int n, real *logits);
/* The states that both read: the final norm of h[l], out (n, C). */
void model_lens_states(struct model *m, int l, const int32_t *row, int n, real *out);
/* Column of the head that predicts this id, -1: none. */
int model_column(const struct model *m, int id);

/* Incremental decoding: the last token's logits after feeding n ids of one sequence. */
int kv_cache_new(struct kv_cache **out, const struct model *m, int cap, struct err *e) DS_CHECK;
void kv_cache_free(struct kv_cache *c);
void kv_cache_reset(struct kv_cache *c);
/* n <= R_max rows; pass->kind PASS_SPARSE or PASS_DENSE. DS_ERANGE when the cache, or the table of
 * learned positions, is full. */
int model_decode(struct model *m, struct kv_cache *c, const int32_t *id, int n, struct pass *pass,
                 struct err *e) DS_CHECK;
/* The same for tokens whose rows have been through the layers below `from`: there all of them ran
 * and are keys of c already, beyond its length; m->stream.h[from] holds their states. */
int model_decode_from(struct model *m, struct kv_cache *c, const int32_t *id, int n, int from,
                      struct pass *pass, struct err *e) DS_CHECK;
/* A cache for passes that continue the text of `base` in another way: below layer `shared` it uses
 * the keys of base (whose counts the caller copies when they change), `closed` layers (L) have
 * none. */
int kv_cache_over(struct kv_cache **out, const struct model *m, const struct kv_cache *base,
                  int shared, const uint8_t *closed, struct err *e) DS_CHECK;
/* A place of a cache to return to: counts of keys, and the method's memory. */
struct kv_mark {
    int len;
    int *n; /* (L) */
    void *memory;
};
int kv_mark_init(struct kv_mark *k, const struct kv_cache *c, struct err *e) DS_CHECK;
void kv_mark_release(struct kv_mark *k);
void kv_mark_set(struct kv_mark *k, const struct kv_cache *c);
void kv_cache_return(struct kv_cache *c, const struct kv_mark *k);
/* After m's last pass, of one sequence: keeps its first `rows` tokens, as if no more had been fed
 * since `before`.  The method's memory is not cut. */
void kv_cache_keep(struct kv_cache *c, const struct kv_mark *before, const struct model *m,
                   int rows);
/* The same for n sequences at once, T ids of each: id (n, T), rows in that order.  Weights are read
 * once for all.  By the row guarantee of engine/gemm.h every sequence gets bitwise the result it
 * would get alone.  The caches must be distinct. */
enum { DECODE_BATCH = 256 }; /* most sequences per call */
int model_decode_batch(struct model *m, struct kv_cache *const *c, int n, const int32_t *id, int T,
                       struct pass *pass, struct err *e) DS_CHECK;

/* Fills the k-th batch of held-out text; the same k gives the same batch. */
typedef void calibrate_batch_fn(void *ctx, int k, struct batch *b);
/* Several processes calibrate together: this one runs every `parts`-th capacity from `part` on, then
 * join adds up what the method counted (route_ops.counts) over all of them.  What observes exits
 * needs all texts in order, so each process runs all of it. */
struct calibrate_share {
    int part, parts;
    int (*join)(void *ctx, struct route *r, struct err *e);
    void *ctx;
};
/* Runs `batches` batches at each of the ROUTE_GRID capacities (a method that observes exits:
 * once, dense, with targets), then the method stores the calibrated thresholds in its parameters.
 * Buffers for the rows must be reserved.  share: NULL, alone.  DS_EUSAGE when the method has nothing
 * to calibrate, DS_ERANGE when batches is not positive. */
int model_calibrate(struct model *m, int batches, calibrate_batch_fn *fill, void *ctx,
                    uint64_t seed, const struct calibrate_share *share, struct err *e) DS_CHECK;

#endif
