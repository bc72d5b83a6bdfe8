/* FLOPs counted from the plans that ran; a multiply-add counts as 2.
 *
 *   executed row with c visible keys: 2*C*H*D (q) + 2*H*D*C (out) + 4*c*H*D (scores, weighted sum)
 *                                     + 2*m*C*F (m = 3 SwiGLU, 2 GELU), or with a mixture of experts
 *                                     + 2*C*E (its router) + 2*m*C*Fe for each chosen expert
 *                                     + 2*m*C*Fs (+ 2*C) of a shared expert (and its gate)
 *   K,V: 2*2*C*K*D for every row that is a key        router: ops->flops
 *   head: 2*C*V per row, and per state that a decision reads a prediction from (as router)
 *   rank-r adapter on a (O,C) matrix: 2*r*(C+O) per row, also in the dense model
 * Norms, activations and softmax are not counted (well under 1 %). */
#ifndef DS_ROUTING_FLOPS_H
#define DS_ROUTING_FLOPS_H

#include <stdint.h>

#include "engine/real.h"
#include "routing/route.h"

enum flops_part {
    FLOPS_QO,
    FLOPS_KV,
    FLOPS_ATTENTION,
    FLOPS_MLP,
    FLOPS_ROUTER,
    FLOPS_HEAD,
    FLOPS_PARTS
};
extern const char *const flops_part_name[FLOPS_PARTS];

struct flops_shape {
    int C, H, K, D, F, V, L, mlp_mats;
    int E, experts_used, expert_F, shared_F, shared_gate; /* E: no-ops too; 0: a dense MLP */
    int dense_mlps;       /* of the layers, of width F in a model with experts */
    int window, windowed; /* keys that a query sees in `windowed` of the layers; 0: all in all */
    double adapter_qo, adapter_kv,
        adapter_mlp; /* FLOPs per row in their low-rank adapters; 0 without */
};

struct flops {
    struct flops_shape shape;
    int L, R;
    int T; /* rows per sequence: R, or less when a cached pass continues several */
    const int32_t *private_row; /* (R) as in struct model, borrowed; NULL: no private spans */
    /* Of the layer that is counted next: keys that a row sees, itself included, 0 = all; and (R,
     * borrowed) keys of its sequence's cache that are out of its window, NULL: none. */
    int window;
    const int32_t *passed;
    double *part;        /* (L + 1, FLOPS_PARTS): sums over rows; row L is the head */
    double *token;       /* (R) all layers and the head */
    double *cell;        /* (L, R) */
    double *dense_token; /* (R) as token, of the same pass run dense */
    double dense;        /* their sum */
    double dense_blocks,
        blocks; /* block ratio: denominator and numerator, without router and skipped rows' K/V */
    int64_t rows_run, rows; /* executed cells, all cells */
    double decisions;       /* counted row by row, readings of the head included (flops_decision) */
};

/* Zeroes the sums for a pass of R rows.  The caller owns the arrays. */
void flops_begin(struct flops *f, const struct flops_shape *shape, int R);
/* Counts one layer.  first_row[i] (R): row of the first token of row i's document.  Its keys in the
 * dense model are first_row[i]..i; under KV_PLAN only the executed ones.  cached (R / T): keys
 * already in each sequence's cache, one document each; NULL: no cache. */
void flops_layer(struct flops *f, const struct plan *p, const int32_t *first_row,
                 const int32_t *cached, double router_per_row);
void flops_head(struct flops *f);
/* Takes back n of the chosen experts of row i in layer l, which the layer counted: no-ops. */
void flops_noops(struct flops *f, int l, int i, int n);
/* Counts x FLOPs for a decision on row i at layer l. */
void flops_decision(struct flops *f, int l, int i, double x);
/* The MLP of one row, without adapters; one expert of it; that of a layer without experts. */
double flops_mlp_row(const struct flops_shape *s);
double flops_expert_row(const struct flops_shape *s);
double flops_dense_mlp_row(const struct flops_shape *s);
/* One application of the head to a state. */
double flops_head_row(const struct flops *f);
double flops_total(const struct flops *f);
/* The nominal whole-block ratio: executed cells / all cells. */
double flops_block_ratio(const struct flops *f);
/* All FLOPs, head included, over those of the dense model. */
double flops_model_ratio(const struct flops *f);
/* Dense forward FLOPs per token, mean over the positions of a document of T tokens. */
double flops_dense_token(const struct flops_shape *s, int T);

#endif
