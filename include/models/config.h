/* The configuration of a model: one kind of decoder block with switches. */
#ifndef DS_MODELS_CONFIG_H
#define DS_MODELS_CONFIG_H

#include <stdint.h>

#include "base/config.h"
#include "base/err.h"
#include "base/opt.h"
#include "base/str.h"
#include "routing/flops.h"
#include "routing/route.h"

enum norm_kind { NORM_RMS, NORM_LAYER };
enum pos_kind { POS_ROPE, POS_ROPE_INTERLEAVED, POS_LEARNED, POS_NONE };
enum attn_bias_kind { ATTN_BIAS_NONE, ATTN_BIAS_ALL, ATTN_BIAS_QKV /* Qwen2: not on o */ };
enum rope_scaling {
    ROPE_PLAIN,
    ROPE_LLAMA3,
    ROPE_LINEAR,
    ROPE_YARN,
    ROPE_LONGROPE, /* LongRoPE: one of two lists of divisors, by the length of the context */
    ROPE_DYNAMIC   /* plain within max_seq; beyond, a base that grows with the context     */
};
enum { ROPE_PAIRS_MAX = 512 }; /* of a head */
enum norm_place { NORM_BEFORE, NORM_AFTER, NORM_BOTH };
/* Attention and MLP both read the block's input: through a norm each, or the first one alone. */
enum parallel { PARALLEL_NONE, PARALLEL_NORMS, PARALLEL_SHARED };
enum qk_norm { QK_NORM_NONE, QK_NORM_HEAD, QK_NORM_WHOLE };
enum loop_norm { LOOP_NORM_NONE, LOOP_NORM_OWN, LOOP_NORM_FINAL };
enum loop_inject { LOOP_INJECT_NONE, LOOP_INJECT_ADD };
enum embed_init { EMBED_TOKENS, EMBED_LETTERS };
enum expert_score { EXPERTS_SOFTMAX, EXPERTS_SIGMOID };
enum expert_balance { EXPERTS_BALANCE_LAYER, EXPERTS_BALANCE_MODEL };
enum lora_train_bias { LORA_TRAIN_BIAS_NONE, LORA_TRAIN_BIAS_ALL, LORA_TRAIN_BIAS_LORA_ONLY };
enum mlp_kind { MLP_SWIGLU, MLP_GELU, MLP_GELU_TANH, MLP_GEGLU };

/* Keys "model.*".  Sizes are in elements. */
struct model_config {
    char *method; /* a method name of routing/route.h */
    int64_t layers, dim, heads, kv_heads /* 0 = heads */, head_dim /* 0 = dim / heads */,
        ffn /* 0 = depends on mlp */;
    int64_t vocab, max_seq;
    int norm, position, mlp; /* enums above */
    int norm_place, norm_offset, qk_norm, parallel;
    double attn_scale;                 /* of scores; 0 = 1 / sqrt(head_dim) */
    double attn_cap, logit_cap;        /* soft caps; 0 = none */
    int64_t window;                    /* keys that a query sees, itself included; 0 = all */
    char *window_layers, *nope_layers; /* blocks "0-4,6"; see model_config_has */
    double rope_local;                 /* base in blocks with a window; 0 = rope_theta */
    int64_t rope_dims;                 /* elements of a head that rotate; 0 = head_dim */
    int attn_bias, mlp_bias, tied, depth_init, embed_init;
    double norm_eps, rope_theta, init_std, embed_std /* 0 = init_std */, embed_scale;
    int rope_scaling; /* llama3: low frequencies are divided by rope_factor, with a ramp */
    double rope_factor, rope_low, rope_high;
    double rope_attention; /* yarn, longrope: factor on rotated queries and keys; 0 = derived */
    int64_t rope_original; /* context length before scaling */
    char *rope_short, *rope_long; /* longrope: "1,1.05": (rope_dims / 2) divisors of frequencies */
    int fused;      /* files hold q, k, v and gate, up as one matrix each; no effect on the model */
    int64_t lora_r; /* rank of adapters; 0 = none */
    double lora_alpha, lora_dropout;
    char *lora_targets; /* "q,k,v,o,gate,up,down", or by layer and rank: models/adapters.h */
    int lora_rslora, lora_dora, lora_bias, lora_train_bias;
    char *lora_save;                               /* "lm_head,norm": modules of the base */
    int64_t loop, loop_first, loop_last, loop_min; /* iterations; blocks before and after them */
    int loop_norm, loop_inject;
    int64_t experts, experts_used;  /* mixture of experts; 0 = a dense MLP                       */
    int64_t expert_ffn, shared_ffn; /* hidden widths; 0 = ffn, 0 = no shared expert              */
    int experts_score, experts_norm, experts_bias, shared_gate;
    double experts_aux;   /* weight of the load-balancing loss */
    int experts_balance;  /* what it balances */
    int64_t experts_noop; /* choices of the router after the experts that run nothing */
    char *dense_layers;   /* blocks with a dense MLP of width ffn in a model with experts */
    double noop_share;    /* of the choices, for the load-balancing loss; 0 = like any other */
    char *outputs; /* "72-77": ids that the head has rows for; "" = all, "answers": not known yet */
    char *end_ids; /* "2" or "128001,128008": end-of-text ids; "" = the tokenizer's */
};

extern const struct opt_group model_group;
/* Fills the derived zeros (kv_heads, head_dim, ffn) and checks consistency; messages name both
 * values. */
int model_config_check(struct model_config *c, struct err *e) DS_CHECK;
/* The copy owns its strings: opt_release(&model_group, to). */
int model_config_copy(struct model_config *to, const struct model_config *from,
                      struct err *e) DS_CHECK;
/* The end_ids that are in the vocabulary; returns how many.  With none, the tokenizer's end of text
 * ends generation. */
enum { MODEL_EOS_MAX = 24 };
int model_config_eos_ids(const struct model_config *c, int32_t id[MODEL_EOS_MAX]);
/* Adds one id; ids outside the vocabulary and duplicates are skipped.  DS_ERANGE when there are
 * MODEL_EOS_MAX already, DS_EMEM. */
int model_config_add_eos(struct model_config *c, int64_t id) DS_CHECK;
void model_config_clear_eos(struct model_config *c);
/* The ids that the head has rows for, in id unless NULL; returns how many. */
int64_t model_config_outputs(const struct model_config *c, int32_t *id);
enum { MODEL_DEPTH_MAX = 4096 };
/* Layers that a pass executes: the stored blocks, those of a loop once per iteration. */
int model_config_depth(const struct model_config *c);
/* The stored block that executed layer l runs. */
int model_config_block(const struct model_config *c, int l);
/* The loop as executed layers; without one the whole stack, whose groups are single blocks. */
struct route_loop model_config_loop(const struct model_config *c);
/* May the state after executed layer l be read by the final norm and the head?  In a loop that is
 * the end of an iteration, unless blocks follow the loop: those always run.  The last layer always
 * may. */
int exit_is_candidate(const struct model_config *c, int l);
/* Number of parameters of the base model, without the method's and the adapters'. */
int64_t model_config_params(const struct model_config *c);
/* Of one block: of a model with experts, one that has them. */
int64_t model_config_params_layer(const struct model_config *c);
/* Contexts with the same value have the same rotary frequencies; constant but for longrope and
 * dynamic. */
int64_t model_config_rope_context(const struct model_config *c, int64_t context);
/* inv_freq (rope_dims / 2), radians per position, scaling for a context of so many tokens included;
 * local: of blocks with a window.  Returns the factor on rotated elements. */
double model_config_rope(const struct model_config *c, int local, int64_t context,
                         double *inv_freq);
/* The next divisor of rope_short or rope_long: 1 = read, 0 = at its end, -1 = not a positive number.
 */
int model_config_divisor(const char **list, double *out);
/* Is block b in such a list ("0-4,6")? */
int model_config_has(const char *layers, int64_t b);
/* Keys that a query of block b sees, itself included; 0 = all before it. */
int64_t model_config_window(const struct model_config *c, int64_t b);
/* What a router of experts chooses from: the experts, then the no-ops. */
static inline int64_t model_config_choices(const struct model_config *c)
{
    return c->experts + c->experts_noop;
}
/* Does block b have experts? */
int model_config_has_experts(const struct model_config *c, int64_t b);
/* DS_EUSAGE: the model has a window, its data private spans.  A window counts rows, so it would
 * count the hidden ones between a query and the keys that it sees. */
int model_config_check_private(const struct model_config *c, struct err *e) DS_CHECK;
static inline int model_config_gated(const struct model_config *c)
{
    return c->mlp == MLP_SWIGLU || c->mlp == MLP_GEGLU;
}
/* Weights of embedding, head, position table and the blocks' matrices, for memory estimates (norms
 * and biases are negligible). */
double model_config_weights(const struct model_config *c);
struct flops_shape model_config_flops(const struct model_config *c);
/* "llama", "qwen3", "gpt2" ... when that architecture computes the same function, else NULL. */
const char *model_config_family(const struct model_config *c);
/* Writes and reads config.json: Hugging Face's keys (model_type is the family's, else "depthscope")
 * and our own under "depthscope".  route_options: the method's; after an error of reading they may
 * hold some, which the caller releases. */
void model_config_to_json(struct str *out, const struct model_config *c,
                          const struct config *route_options);
int model_config_from_json(struct model_config *c, struct config *route_options, const char *path,
                           struct err *e) DS_CHECK;

#endif
