/* FLOPs counted from the plans that ran: a multiply-add is 2.
 *
 * Layer, executed row with c visible keys:  2*C*H*D (q) + 2*H*D*C (out) + 4*c*H*D (scores, weighted sum)
 *   + 2*m*C*F (m = 3 SwiGLU, 2 GELU); K,V: 2*2*C*K*D for every row that is a key; router as the method says;
 * head: 2*C*V per row; adapters of rank r on a (O,C) matrix that a row passes: 2*r*(C+O), of the dense model too.  Norms, activations and softmax are not counted (well under 1 %). */
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
    double adapter_qo, adapter_kv,
        adapter_mlp; /* FLOPs of a row in low-rank adapters of these; 0 without */
};

struct flops {
    struct flops_shape shape;
    int L, R;
    int T;         /* rows of a cached sequence: R, or less when the pass goes on with several */
    double *part;  /* (L + 1, FLOPS_PARTS): sums over rows; row L is the head */
    double *token; /* (R) all layers, with head                               */
    double *cell;  /* (L, R)                                                  */
    double dense;  /* the same pass run dense, head included                  */
    double dense_blocks,
        blocks; /* executed rows only, without router and K/V of skipped: numerator and denominator of the block ratio */
    int64_t rows_run, rows; /* cells executed, all cells                    */
};

/* Zeroes the sums for a pass of R rows. Arrays are the caller's. */
void flops_begin(struct flops *f, const struct flops_shape *shape, int R);
/* One layer.  first_row[i] (R): row of the first token of the document of row i: the keys it would see in the
 * dense model are first_row[i]..i; under KV_PLAN the executed ones of these. */
/* cached (R / T): keys that earlier parts of these sequences left in their caches, one document each; NULL: no cache. */
void flops_layer(struct flops *f, const struct plan *p, const int32_t *first_row,
                 const int32_t *cached, double router_per_row);
void flops_head(struct flops *f);
double flops_total(const struct flops *f);
/* Executed cells over all cells: the nominal whole-block ratio. */
double flops_block_ratio(const struct flops *f);
/* Everything, head included, over the dense model's. */
double flops_model_ratio(const struct flops *f);
/* Per token, forward, dense, mean over positions of a document of T tokens. */
double flops_dense_token(const struct flops_shape *s, int T);

#endif
