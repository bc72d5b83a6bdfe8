/* The matrices of a model as its products use them: number format, copies packed ahead, blocks of few bits. */
#ifndef DS_MODELS_WEIGHTS_H
#define DS_MODELS_WEIGHTS_H

#include "base/opt.h"
#include "engine/linear.h"
#include "engine/param.h"

struct model;

/* How a model computes; keys "compute", "weights", "kv_cache" (no prefix).  Not part of a checkpoint. */
struct number_options {
    int compute;  /* enum gemm_format */
    int weights;  /* WEIGHTS_AS_COMPUTE or a quant_kind: in use only */
    int kv_cache; /* KV_CACHE_* */
};
enum { KV_CACHE_AS_COMPUTE, KV_CACHE_FP32, KV_CACHE_BF16 };
extern const struct opt_group number_group; /* all three: for use */
#define NUMBER_COMPUTE "fp32|bf16" /* choices of "compute", in the order of enum gemm_format */

/* One matrix parameter. */
struct weight {
    int O, C;
    struct packed fwd, bwd;
    struct quant *quant;
};
struct weights {
    struct number_options numbers;
    struct weight *v; /* by parameter; O = 0: not a matrix of products */
    int n;
    void *block; /* of the packed copies */
    size_t bytes;
    uint64_t version;
};

/* Sets how m computes from now on.  weights other than none: quantises (m must not be training) what the blocks fit and
 * keeps the rest as it is.  DS_ENUMERIC, DS_EMEM, DS_EUSAGE. */
int weights_use(struct model *m, const struct number_options *o, struct err *e) DS_CHECK;
/* Lays out what changed since the last time.  Called at the begin of each pass. */
void weights_refresh(struct model *m);
void weights_release(struct weights *w);
/* Parameter `index` (bias: -1 = none) as a linear map. */
struct linear weights_linear(const struct model *m, int index, int bias);

#endif
