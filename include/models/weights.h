/* The matrices of a model as its GEMMs use them: number format, pre-packed copies, quantised
 * blocks. */
#ifndef DS_MODELS_WEIGHTS_H
#define DS_MODELS_WEIGHTS_H

#include <stddef.h>

#include "base/opt.h"
#include "engine/linear.h"
#include "engine/param.h"

struct model;

/* How a model computes; keys "compute", "weights", "kv_cache" (no prefix).  Not part of a
 * checkpoint. */
struct numeric_options {
    int compute;  /* COMPUTE_* */
    int weights;  /* enum quant_kind below QUANT_WRITTEN, or WEIGHTS_AUTO; of frozen parameters */
    int kv_cache; /* KV_CACHE_* */
};
enum { WEIGHTS_AUTO = QUANT_WRITTEN }; /* quantised where the file is, else not */
#define WEIGHTS_CHOICES "none|q8_0|q4_0|q4_k|q5_k|q6_k|auto" /* in the order of enum quant_kind */
enum { COMPUTE_AUTO /* as the run was trained, else fp32 */, COMPUTE_FP32, COMPUTE_BF16 };
enum { KV_CACHE_AUTO /* as compute */, KV_CACHE_FP32, KV_CACHE_BF16 };

/* The three rows of an option table; at: offset of the struct numeric_options. */
#define NUMERIC_OPTS(at)                                                                           \
    {"compute",                                                                                    \
     OPT_ENUM,                                                                                     \
     (at) + offsetof(struct numeric_options, compute),                                             \
     "auto",                                                                                       \
     0,                                                                                            \
     0,                                                                                            \
     "auto|fp32|bf16",                                                                             \
     "number format of GEMMs: bf16 rounds both operands, accumulates in fp32; auto: as trained",   \
     NULL},                                                                                        \
        {"weights",                                                                                \
         OPT_ENUM,                                                                                 \
         (at) + offsetof(struct numeric_options, weights),                                         \
         "auto",                                                                                   \
         0,                                                                                        \
         0,                                                                                        \
         WEIGHTS_CHOICES,                                                                          \
         "quantised weights; auto: as stored in the file; none: not quantised",                    \
         NULL},                                                                                    \
    {                                                                                              \
        "kv_cache", OPT_ENUM, (at) + offsetof(struct numeric_options, kv_cache), "auto", 0, 0,     \
            "auto|fp32|bf16", "number format of the KV cache; auto: same as compute", NULL         \
    }

/* One matrix parameter. */
struct weight {
    int O, C;
    struct packed fwd, bwd;
    struct quant *quant;
    real *own;        /* (O,C) unpacked values of a file-backed matrix, if the GEMM needs them */
    struct lora lora; /* of the current pass; r = 0: none */
};
struct weights {
    struct numeric_options numbers;
    enum gemm_format format; /* of GEMMs */
    struct weight *v;        /* by parameter; O = 0: not a GEMM matrix */
    int n;
    void *block; /* of the packed copies */
    size_t bytes;
    const struct gemm_provider *by; /* the provider the block was packed for */
    uint64_t version, given;        /* of the parameters when last packed */
    uint64_t made_of;               /* `given` when they were quantised */
};

/* fp32, nothing packed yet: for models that are only inspected. */
int weights_init(struct model *m, struct err *e) DS_CHECK;
/* Sets how m computes from now on.  weights other than none: quantises frozen matrices whose rows
 * are whole blocks and keeps the rest; DS_ERANGE when there are none, or a scale overflows its
 * format.  Quantised parameters must not change afterwards. DS_EMEM names the estimated and the
 * available memory.  Also DS_ENUMERIC. */
int weights_use(struct model *m, const struct numeric_options *o, struct err *e) DS_CHECK;
/* Repacks when parameters have changed.  Called at the start of each pass. */
void weights_refresh(struct model *m);
/* The same at once, to detect a file that changed under the model: DS_EFORMAT. */
int weights_ready(struct model *m, struct err *e) DS_CHECK;
/* Name of the quantisation of most matrices, "none" when they are not quantised. */
const char *weights_quant_name(const struct model *m);
void weights_release(struct weights *w);
/* Parameter `index` (bias: -1 = none) as a linear map. */
struct linear weights_linear(const struct model *m, int index, int bias);

#endif
