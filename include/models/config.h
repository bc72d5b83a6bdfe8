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
};

extern const struct opt_group model_group;
/* Fills the derived zeros (kv_heads, head_dim, ffn) and checks that all fits together; names both numbers. */
int model_config_check(struct model_config *c, struct err *e) DS_CHECK;
/* Weights of embedding, head, table of positions and the blocks' matrices: what memory is estimated by (norms and biases are
 * too few to count). */
double model_config_weights(const struct model_config *c);
struct flops_shape model_config_flops(const struct model_config *c);
/* config.json in Hugging Face's keys (model_type llama when the switches are Llama's, else "depthscope") with ours
 * below "depthscope"; and back. route_yaml: the method's options, flat "key: value" lines. */
void model_config_to_json(struct str *out, const struct model_config *c,
                          const struct config *route_options);
int model_config_from_json(struct model_config *c, struct config *route_options, const char *path,
                           struct err *e) DS_CHECK;

#endif
