/* What a model is: one decoder block with switches. */
#ifndef DS_MODELS_CONFIG_H
#define DS_MODELS_CONFIG_H

#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/str.h"
#include "routing/flops.h"

enum norm_kind { NORM_RMS, NORM_LAYER };
enum pos_kind { POS_ROPE, POS_ROPE_INTERLEAVED, POS_LEARNED, POS_NONE };
enum attn_bias_kind { ATTN_BIAS_NONE, ATTN_BIAS_ALL, ATTN_BIAS_QKV /* Qwen2: not on o */ };
enum rope_scaling { ROPE_PLAIN, ROPE_LLAMA3 };
enum mlp_kind { MLP_SWIGLU, MLP_GELU, MLP_GELU_TANH };

/* Keys "model.*".  Sizes are in elements. */
struct model_config {
    char *method; /* a name of routing/route.h */
    int64_t layers, dim, heads, kv_heads /* 0 = heads */, head_dim /* 0 = dim / heads */,
        ffn /* 0 = by mlp kind */;
    int64_t vocab, max_seq;
    int norm, position, mlp; /* enums above */
    int attn_bias, mlp_bias, tied, depth_init;
    double norm_eps, rope_theta, init_std, embed_scale;
    int rope_scaling; /* llama3: frequencies of long waves divided by rope_factor, with a ramp between */
    double rope_factor, rope_low, rope_high;
    int64_t rope_original; /* context before the scaling */
    int64_t lora_r;        /* rank of adapters; 0 = none */
    double lora_alpha, lora_dropout;
    char *lora_targets; /* "q,k,v,o,gate,up,down" */
    char *end_ids; /* "2" or "128001,128008": what ends a text; "" = the tokenizer's end of text */
};

extern const struct opt_group model_group;
/* Fills the derived zeros (kv_heads, head_dim, ffn) and checks that all fits together; names both numbers. */
int model_config_check(struct model_config *c, struct err *e) DS_CHECK;
/* Strings are the copy's own: opt_release(&model_group, to). */
int model_config_copy(struct model_config *to, const struct model_config *from,
                      struct err *e) DS_CHECK;
/* The ids of end_ids that the vocabulary has; returns how many.  None: a text ends where the tokenizer says. */
enum { MODEL_ENDS_MAX = 24 };
int model_config_ends(const struct model_config *c, int32_t id[MODEL_ENDS_MAX]);
/* Adds one; an id that the vocabulary does not have can never come and is left out, as is one that is there.  DS_ERANGE when
 * there are MODEL_ENDS_MAX already, DS_EMEM. */
int model_config_add_end(struct model_config *c, int64_t id) DS_CHECK;
void model_config_no_ends(struct model_config *c);
/* Every parameter of the base model: what its tensors hold; method and adapters apart. */
int64_t model_config_params(const struct model_config *c);
int64_t model_config_params_layer(const struct model_config *c); /* of one block */
/* inv_freq (head_dim / 2), radians per position, scaling included. */
void model_config_rope(const struct model_config *c, double *inv_freq);
/* Weights of embedding, head, table of positions and the blocks' matrices: what memory is estimated by (norms and biases are
 * too few to count). */
double model_config_weights(const struct model_config *c);
struct flops_shape model_config_flops(const struct model_config *c);
/* "llama", "qwen2" or "gpt2" when a program for that family computes the same, else NULL. */
const char *model_config_family(const struct model_config *c);
/* config.json in Hugging Face's keys (model_type is the family's, else "depthscope") with ours
 * below "depthscope"; and back. route_yaml: the method's options, flat "key: value" lines. */
void model_config_to_json(struct str *out, const struct model_config *c,
                          const struct config *route_options);
int model_config_from_json(struct model_config *c, struct config *route_options, const char *path,
                           struct err *e) DS_CHECK;

#endif
