/* The matrices of a model as its products use them: number format, copies packed ahead, blocks of few bits. */
#ifndef DS_MODELS_WEIGHTS_H
#define DS_MODELS_WEIGHTS_H

#include <stddef.h>

#include "base/opt.h"
#include "engine/linear.h"
#include "engine/param.h"

struct model;

/* How a model computes; keys "compute", "weights", "kv_cache" (no prefix).  Not part of a checkpoint. */
struct number_options {
    int compute;  /* COMPUTE_* */
    int weights;  /* enum quant_kind, or WEIGHTS_AUTO; of parameters that are not trained */
    int kv_cache; /* KV_CACHE_* */
};
enum { WEIGHTS_AUTO = QUANT_KINDS }; /* blocks where the file has such, else numbers */
#define WEIGHTS_CHOICES "none|q8_0|q4_0|q4_k|q5_k|q6_k|auto" /* in the order of enum quant_kind */
enum { COMPUTE_AUTO /* as the run was trained, else fp32 */, COMPUTE_FP32, COMPUTE_BF16 };
enum { KV_CACHE_AUTO /* as compute */, KV_CACHE_FP32, KV_CACHE_BF16 };

/* The three rows of an option table; at: offset of the struct number_options. */
#define NUMBER_OPTS(at)                                                                            \
    {"compute",                                                                                    \
     OPT_ENUM,                                                                                     \
     (at) + offsetof(struct number_options, compute),                                              \
     "auto",                                                                                       \
     0,                                                                                            \
     0,                                                                                            \
     "auto|fp32|bf16",                                                                             \
     "number format of GEMMs: bf16 rounds both operands, accumulates in fp32; auto: as trained",   \
     NULL},                                                                                        \
        {"weights",                                                                                \
         OPT_ENUM,                                                                                 \
         (at) + offsetof(struct number_options, weights),                                          \
         "auto",                                                                                   \
         0,                                                                                        \
         0,                                                                                        \
         WEIGHTS_CHOICES,                                                                          \
         "quantised weights; auto: as stored in the file; none: not quantised",                    \
         NULL},                                                                                    \
    {                                                                                              \
        "kv_cache", OPT_ENUM, (at) + offsetof(struct number_options, kv_cache), "auto", 0, 0,      \
            "auto|fp32|bf16", "number format of the KV cache; auto: same as compute", NULL         \
    }

/* One matrix parameter. */
struct weight {
    int O, C;
    struct packed fwd, bwd;
    struct quant *quant;
    real *own; /* (O,C) numbers of one that stays in a file, where products want them as they are */
    struct lora lora; /* of the present pass; r = 0: none */
};
struct weights {
    struct number_options numbers;
    enum gemm_format format; /* of products */
    struct weight *v;        /* by parameter; O = 0: not a matrix of products */
    int n;
    void *block; /* of the packed copies */
    size_t bytes;
    const struct gemm_provider *by; /* whom the block was made for */
    uint64_t version, given;        /* of the parameters: as laid out now */
    uint64_t made_of;               /* `given` when they were rounded to blocks */
};

/* fp32, nothing laid out yet: for models that are only looked at. */
int weights_init(struct model *m, struct err *e) DS_CHECK;
/* Sets how m computes from now on.  weights other than none: holds as blocks what is not trained and whole blocks fit, and the
 * rest as it is; DS_ERANGE when they fit nothing, or a scale is beyond its format.  Parameters must not change behind that.
 * Memory is estimated first and refused with both figures.  Else DS_ENUMERIC, DS_EMEM. */
int weights_use(struct model *m, const struct number_options *o, struct err *e) DS_CHECK;
/* Packs anew when parameters changed since the last time.  Called at the begin of each pass. */
void weights_refresh(struct model *m);
/* The same now, so that a file which changed under the model is told: DS_EFORMAT. */
int weights_ready(struct model *m, struct err *e) DS_CHECK;
/* Name of the blocks that most matrices are held in, "none" when they are numbers. */
const char *weights_held(const struct model *m);
void weights_release(struct weights *w);
/* Parameter `index` (bias: -1 = none) as a linear map. */
struct linear weights_linear(const struct model *m, int index, int bias);

#endif
