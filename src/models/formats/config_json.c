/* Reads and writes config.json: Hugging Face's keys for other programs, our own under
 * "depthscope". */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/fs.h"
#include "config_report.h"

enum { CONFIG_MAX = 1 << 20 };

/* What an architecture of the transformers library computes: the first row that fits. */
enum feature {
    F_BIAS_ALL = 1 << 0,
    F_BIAS_QKV = 1 << 1,
    F_MLP_BIAS = 1 << 2,
    F_WINDOW = 1 << 3, /* in every block */
    F_LAYERS = 1 << 4, /* in some */
    F_LOCAL = 1 << 5,
    F_NOPE = 1 << 6,
    F_SCALE = 1 << 7,
    F_CAP = 1 << 8, /* of scores */
    F_LOGIT_CAP = 1 << 18,
    F_EMBED = 1 << 9, /* embedding times sqrt(dim) */
    F_LINEAR = 1 << 10,
    F_LLAMA3 = 1 << 11,
    F_YARN = 1 << 12,
    F_LONGROPE = 1 << 19,
    F_DYNAMIC = 1 << 20,
    F_ROPE = F_LINEAR | F_LLAMA3 | F_YARN | F_LONGROPE | F_DYNAMIC,
    F_PARTIAL = 1 << 21, /* of a head rotates */
    F_ALIEN = 1 << 13,   /* nobody has it */
    F_EXPERTS = 1 << 14,
    F_SHARED = 1 << 15,   /* a shared expert with a gate */
    F_WEIGHTED = 1 << 16, /* weights of the chosen experts are not their scores: they sum to 1 */
    F_DENSE_LAYERS = 1 << 24,
    F_LAYER_NORM = 1 << 25,
    F_PARALLEL = 1 << 26,
    F_PARALLEL_SHARED = 1 << 27,
    F_GROUPED = 1 << 28, /* keys and values shared by queries: of these families only */
    F_SWITCH = 1 << 29,  /* its windows have a key that turns them on */
    F_SAME_FFN = 1 << 17 /* the experts are as wide as model.ffn */
};
static const struct family {
    const char *name, *architecture;
    int norm_place, norm_offset, qk_norm, mlp;
    unsigned must, may;
} families[] = {
    // clang-format off
    {"llama",   "LlamaForCausalLM",   NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, F_BIAS_ALL | F_MLP_BIAS | F_ROPE},
    {"mistral", "MistralForCausalLM", NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, F_WINDOW, F_ROPE},
    {"qwen2",   "Qwen2ForCausalLM",   NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, F_BIAS_QKV, F_WINDOW | F_LAYERS | F_SWITCH | F_ROPE},
    {"qwen3",   "Qwen3ForCausalLM",   NORM_BEFORE, 0, QK_NORM_HEAD,  MLP_SWIGLU, 0, F_BIAS_ALL | F_WINDOW | F_LAYERS | F_SWITCH | F_ROPE},
    {"smollm3", "SmolLM3ForCausalLM", NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, F_BIAS_ALL | F_MLP_BIAS | F_WINDOW | F_LAYERS | F_SWITCH | F_NOPE | F_ROPE},
    {"gemma",   "GemmaForCausalLM",   NORM_BEFORE, 1, QK_NORM_NONE,  MLP_GEGLU,  F_EMBED, F_BIAS_ALL | F_ROPE},
    {"gemma2",  "Gemma2ForCausalLM",  NORM_BOTH,   1, QK_NORM_NONE,  MLP_GEGLU,  F_EMBED, F_BIAS_ALL | F_WINDOW | F_LAYERS | F_SCALE | F_CAP | F_LOGIT_CAP | F_ROPE},
    {"gemma3_text", "Gemma3ForCausalLM", NORM_BOTH, 1, QK_NORM_HEAD, MLP_GEGLU,  F_EMBED, F_BIAS_ALL | F_WINDOW | F_LAYERS | F_LOCAL | F_SCALE | F_LOGIT_CAP | F_LINEAR},
    {"olmo2",   "Olmo2ForCausalLM",   NORM_AFTER,  0, QK_NORM_WHOLE, MLP_SWIGLU, 0, F_BIAS_ALL | F_ROPE},
    {"olmo3",   "Olmo3ForCausalLM",   NORM_AFTER,  0, QK_NORM_WHOLE, MLP_SWIGLU, F_LOCAL, F_BIAS_ALL | F_WINDOW | F_LAYERS | F_ROPE},
    {"mixtral", "MixtralForCausalLM", NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, F_EXPERTS | F_WEIGHTED | F_SAME_FFN, F_WINDOW | F_ROPE},
    {"qwen2_moe", "Qwen2MoeForCausalLM", NORM_BEFORE, 0, QK_NORM_NONE, MLP_SWIGLU, F_EXPERTS | F_SHARED, F_DENSE_LAYERS | F_WEIGHTED | F_SAME_FFN | F_BIAS_QKV | F_WINDOW | F_LAYERS | F_SWITCH | F_ROPE},
    {"qwen3_moe", "Qwen3MoeForCausalLM", NORM_BEFORE, 0, QK_NORM_HEAD, MLP_SWIGLU, F_EXPERTS, F_DENSE_LAYERS | F_WEIGHTED | F_SAME_FFN | F_BIAS_ALL | F_WINDOW | F_SWITCH | F_ROPE},
    {"olmoe",   "OlmoeForCausalLM",   NORM_BEFORE, 0, QK_NORM_WHOLE, MLP_SWIGLU, F_EXPERTS | F_SAME_FFN, F_WEIGHTED | F_BIAS_ALL | F_ROPE},
    {"phi3",    "Phi3ForCausalLM",    NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, F_WINDOW | F_PARTIAL | F_LONGROPE},
    {"gpt_neox", "GPTNeoXForCausalLM", NORM_BEFORE, 0, QK_NORM_NONE, MLP_GELU,   F_LAYER_NORM | F_MLP_BIAS, F_BIAS_ALL | F_PARALLEL | F_PARTIAL | F_ROPE},
    {"gpt_neox", "GPTNeoXForCausalLM", NORM_BEFORE, 0, QK_NORM_NONE, MLP_GELU_TANH, F_LAYER_NORM | F_MLP_BIAS, F_BIAS_ALL | F_PARALLEL | F_PARTIAL | F_ROPE},
    {"stablelm", "StableLmForCausalLM", NORM_BEFORE, 0, QK_NORM_NONE, MLP_SWIGLU, F_LAYER_NORM, F_BIAS_QKV | F_GROUPED | F_PARALLEL_SHARED | F_PARTIAL | F_ROPE},
    // clang-format on
};

/* The size of head that scores are scaled for: 1 / scale^2; files store it as an integer, 0: it is
 * none. */
static int64_t score_size(const struct model_config *c)
{
    double size = c->attn_scale > 0 ? 1 / (c->attn_scale * c->attn_scale) : (double)c->head_dim;
    double whole = floor(size + 0.5);
    return whole > 0 && whole < 1e9 && fabs(size - whole) <= 1e-6 * size ? (int64_t)whole : 0;
}

static unsigned experts_of(const struct model_config *c)
{
    int is_plain = c->experts_score == EXPERTS_SOFTMAX && !c->experts_bias &&
                   c->experts_noop == 0 && (c->shared_ffn > 0) == c->shared_gate;
    return F_EXPERTS | (is_plain ? 0 : F_ALIEN) | (c->shared_ffn > 0 ? F_SHARED : 0) |
           (c->experts_norm ? F_WEIGHTED : 0) | (c->dense_layers[0] ? F_DENSE_LAYERS : 0) |
           (c->expert_ffn == c->ffn ? F_SAME_FFN : 0);
}

static unsigned features_of(const struct model_config *c)
{
    static const unsigned rope[] = {
        [ROPE_PLAIN] = 0,     [ROPE_LLAMA3] = F_LLAMA3,     [ROPE_LINEAR] = F_LINEAR,
        [ROPE_YARN] = F_YARN, [ROPE_LONGROPE] = F_LONGROPE, [ROPE_DYNAMIC] = F_DYNAMIC};
    static const unsigned bias[] = {
        [ATTN_BIAS_NONE] = 0, [ATTN_BIAS_ALL] = F_BIAS_ALL, [ATTN_BIAS_QKV] = F_BIAS_QKV};
    double root = sqrt((double)c->dim);
    unsigned f = rope[c->rope_scaling] | bias[c->attn_bias];
    f |= c->mlp_bias ? F_MLP_BIAS : 0;
    int64_t windows = 0;
    for (int64_t l = 0; l < c->layers; l++)
        windows += model_config_window(c, l) > 0;
    f |= windows == 0 ? 0 : windows == c->layers ? F_WINDOW : F_LAYERS;
    f |= c->rope_local > 0 ? F_LOCAL : 0;
    f |= c->experts > 0 ? experts_of(c) : 0;
    f |= c->nope_layers[0] ? F_NOPE : 0;
    f |= c->attn_scale == 0 ? 0 : score_size(c) > 0 ? F_SCALE : F_ALIEN;
    f |= (c->attn_cap > 0 ? F_CAP : 0) | (c->logit_cap > 0 ? F_LOGIT_CAP : 0);
    f |= c->embed_scale == 1.0 ? 0 : fabs(c->embed_scale - root) <= 1e-6 * root ? F_EMBED : F_ALIEN;
    f |= c->rope_dims != c->head_dim ? F_PARTIAL : 0;
    f |= c->norm == NORM_LAYER ? F_LAYER_NORM : 0;
    f |= c->norm == NORM_LAYER && c->kv_heads != c->heads ? F_GROUPED : 0;
    f |= c->norm == NORM_LAYER && c->heads * c->head_dim != c->dim ? F_ALIEN : 0;
    /* OLMoE norms as many queries as the model is wide */
    f |= c->experts > 0 && c->qk_norm == QK_NORM_WHOLE && c->heads * c->head_dim != c->dim ? F_ALIEN
                                                                                           : 0;
    f |= c->parallel == PARALLEL_SHARED ? F_PARALLEL_SHARED : c->parallel ? F_PARALLEL : 0;
    f |= c->position != POS_ROPE ? F_ALIEN : 0;
    return f;
}

static int is_gpt2(const struct model_config *c)
{
    return c->norm == NORM_LAYER && c->position == POS_LEARNED && !model_config_gated(c) &&
           c->attn_bias == ATTN_BIAS_ALL && c->mlp_bias && c->kv_heads == c->heads &&
           c->heads * c->head_dim == c->dim && c->embed_scale == 1.0 && !c->qk_norm &&
           !c->parallel && c->window == 0 && c->attn_scale == 0 && c->attn_cap == 0 &&
           c->logit_cap == 0;
}

/* The whole stack looped, the final norm between iterations, and a gate after each. */
static int is_ouro(const struct model_config *c)
{
    return strcmp(c->method, "ouro") == 0 && c->loop > 1 && c->loop_norm == LOOP_NORM_FINAL &&
           c->loop_first == 0 && c->loop_last == 0 && c->loop_inject == LOOP_INJECT_NONE &&
           c->norm_place == NORM_BOTH && !c->norm_offset && !c->qk_norm && c->mlp == MLP_SWIGLU &&
           (features_of(c) & ~(unsigned)(F_WINDOW | F_LAYERS | F_LINEAR | F_LLAMA3)) == 0;
}

const char *model_config_family(const struct model_config *c)
{
    if (!(c->outputs && c->outputs[0]) && c->lora_r == 0 && is_ouro(c))
        return "ouro";
    if (c->loop > 1 || (c->outputs && c->outputs[0]) || c->lora_r != 0 ||
        strcmp(c->method, "dense") != 0)
        return NULL; /* their formats cannot store routers and adapters */
    if (is_gpt2(c))
        return "gpt2";
    unsigned has = features_of(c);
    const char *found = NULL;
    /* with a base of their own in windows, positions there are never scaled */
    unsigned unfit =
        c->window > 0 && c->rope_local == 0 && c->rope_scaling != ROPE_PLAIN ? F_LOCAL : 0;
    for (size_t i = 0; i < DS_LEN(families); i++) {
        const struct family *f = &families[i];
        int is_fused = strcmp(f->name, "phi3") == 0;
        if ((!found || (c->fused && is_fused)) && f->norm_place == c->norm_place &&
            f->norm_offset == c->norm_offset && f->qk_norm == c->qk_norm && f->mlp == c->mlp &&
            (has & f->must) == f->must && (has & ~(f->must | f->may)) == 0 && !(f->may & unfit))
            found = f->name;
    }
    return found;
}

static void add_key(struct str *s, const char *key, int64_t v)
{
    str_addf(s, "  \"%s\": %lld,\n", key, (long long)v);
}

/* The end-of-text ids; an explicit null means none, whereas the class would use its default for an
 * absent key, which may be no id of this vocabulary. */
static void add_ends(struct str *s, const struct model_config *c)
{
    int32_t id[MODEL_EOS_MAX];
    int n = model_config_eos_ids(c, id);
    str_add(s, "  \"bos_token_id\": null,\n  \"pad_token_id\": null,\n");
    str_addf(s, "  \"eos_token_id\": %s", n ? "" : "null");
    for (int i = 0; i < n; i++)
        str_addf(s, "%s%d", i ? ", " : n > 1 ? "[" : "", id[i]);
    str_add(s, n > 1 ? "],\n" : ",\n");
}

static void add_divisors(struct str *s, const char *key, const char *list)
{
    double v;
    str_addf(s, ", \"%s\": ", key);
    for (int n = 0; model_config_divisor(&list, &v) > 0; n++) {
        str_add(s, n ? ", " : "[");
        str_add_real(s, v);
    }
    str_add(s, "]");
}

static void add_scaling(struct str *s, const struct model_config *c)
{
    static const char *const names[] = {[ROPE_LLAMA3] = "llama3",
                                        [ROPE_LINEAR] = "linear",
                                        [ROPE_YARN] = "yarn",
                                        [ROPE_DYNAMIC] = "dynamic",
                                        [ROPE_LONGROPE] = "longrope"};
    int kind = c->rope_scaling;
    if (kind == ROPE_PLAIN) {
        str_add(s, "null,\n");
        return;
    }
    str_addf(s, "{\"rope_type\": \"%s\", \"factor\": %.9g", names[kind], c->rope_factor);
    if (kind == ROPE_LONGROPE) {
        add_divisors(s, "short_factor", c->rope_short);
        add_divisors(s, "long_factor", c->rope_long);
        str_addf(s, ", \"original_max_position_embeddings\": %lld", (long long)c->rope_original);
    }
    if (kind == ROPE_LLAMA3 || kind == ROPE_YARN)
        str_addf(s, ", \"%s\": %.9g, \"%s\": %.9g, \"original_max_position_embeddings\": %lld",
                 kind == ROPE_YARN ? "beta_slow" : "low_freq_factor", c->rope_low,
                 kind == ROPE_YARN ? "beta_fast" : "high_freq_factor", c->rope_high,
                 (long long)c->rope_original);
    if ((kind == ROPE_YARN || kind == ROPE_LONGROPE) && c->rope_attention > 0)
        str_addf(s, ", \"attention_factor\": %.9g", c->rope_attention);
    str_add(s, "},\n");
}

/* By kind of layer, with the base inside. */
static void add_rope_kinds(struct str *s, const struct model_config *c)
{
    struct str full = {0};
    add_scaling(&full, c);
    str_addf(s, "  \"rope_parameters\": {\"full_attention\": {\"rope_theta\": %.9g, ",
             c->rope_theta);
    if (c->rope_scaling == ROPE_PLAIN)
        str_add(s, "\"rope_type\": \"default\"},");
    else
        str_add(s, str_text(&full) + 1); /* its brace is ours */
    str_addf(s, "    \"sliding_attention\": {\"rope_theta\": %.9g, \"rope_type\": \"default\"}},\n",
             c->rope_local);
    s->failed |= full.failed;
    str_release(&full);
}

/* Readers round its product with the size of a head down. */
static double rotary_share(const struct model_config *c)
{
    double D = (double)c->head_dim, by = (double)c->rope_dims / D;
    return (int64_t)(D * by) == c->rope_dims ? by : ((double)c->rope_dims + 0.25) / D;
}

static void add_rope(struct str *s, const struct model_config *c, const char *type)
{
    if (c->norm_place == NORM_AFTER && c->rope_local > 0) {
        add_rope_kinds(s, c);
        return;
    }
    double local = c->rope_local;
    if (strcmp(type, "gemma3_text") == 0 && c->window > 0 && local == 0)
        local = c->rope_theta; /* whose class has another base by default */
    str_addf(s, "  \"rope_theta\": %.9g,\n", c->rope_theta);
    if (local > 0)
        str_addf(s, "  \"rope_local_base_freq\": %.9g,\n", local);
    if (c->rope_scaling == ROPE_LONGROPE) /* Phi-3's class reads it here */
        add_key(s, "original_max_position_embeddings", c->rope_original);
    if (c->rope_dims != c->head_dim)
        str_addf(s, "  \"partial_rotary_factor\": %.17g,\n", rotary_share(c));
    str_add(s, "  \"rope_scaling\": ");
    add_scaling(s, c);
}

/* One entry per block. */
static void add_blocks(struct str *s, const struct model_config *c, const char *key,
                       const char *yes, const char *no, int windows)
{
    str_addf(s, "  \"%s\": [", key);
    for (int64_t l = 0; l < c->layers; l++)
        str_addf(s, "%s%s", l ? ", " : "",
                 (windows ? model_config_window(c, l) > 0 : model_config_has(c->nope_layers, l))
                     ? yes
                     : no);
    str_add(s, "],\n");
}

static void add_cap(struct str *s, const char *key, double cap)
{
    str_addf(s, "  \"%s\": ", key);
    if (cap > 0)
        str_addf(s, "%#.9g,\n", cap); /* an integer would be refused */
    else
        str_add(s, "null,\n");
}

/* Does use_sliding_window turn on the family's windows? */
static int has_switch(const char *type)
{
    int has = strcmp(type, "ouro") == 0;
    for (size_t i = 0; i < DS_LEN(families); i++)
        has |= strcmp(families[i].name, type) == 0 && (families[i].may & F_SWITCH);
    return has;
}

static void add_llama(struct str *s, const struct model_config *c, const char *type)
{
    int is_gelu = c->mlp == MLP_GEGLU, is_gemma = is_gelu && c->norm_place == NORM_BOTH;
    add_key(s, "hidden_size", c->dim);
    add_key(s, "num_hidden_layers", c->layers);
    add_key(s, "num_attention_heads", c->heads);
    add_key(s, "num_key_value_heads", c->kv_heads);
    add_key(s, "head_dim", c->head_dim);
    add_key(s, "intermediate_size", c->ffn);
    add_key(s, "vocab_size", c->vocab);
    add_key(s, "max_position_embeddings", c->max_seq);
    str_addf(s, "  \"rms_norm_eps\": %.9g,\n", c->norm_eps);
    add_rope(s, c, type);
    str_addf(s, "  \"%s\": \"%s\",\n", is_gemma ? "hidden_activation" : "hidden_act",
             is_gelu ? "gelu_pytorch_tanh" : "silu");
    str_addf(s, "  \"attention_bias\": %s,\n  \"mlp_bias\": %s,\n",
             c->attn_bias == ATTN_BIAS_ALL ? "true" : "false", c->mlp_bias ? "true" : "false");
    if (c->window > 0) {
        str_add(s, has_switch(type) ? "  \"use_sliding_window\": true,\n" : "");
        add_key(s, "sliding_window", c->window);
        add_blocks(s, c, "layer_types", "\"sliding_attention\"", "\"full_attention\"", 1);
    } else if (is_gemma) {
        add_blocks(s, c, "layer_types", "\"sliding_attention\"", "\"full_attention\"", 1);
    }
    if (c->nope_layers[0] || strcmp(type, "smollm3") == 0) /* whose class has some by default */
        add_blocks(s, c, "no_rope_layers", "0", "1", 0);
    if (!is_gemma)
        return;
    add_key(s, "query_pre_attn_scalar", score_size(c));
    add_cap(s, "attn_logit_softcapping", c->attn_cap);
    add_cap(s, "final_logit_softcapping", c->logit_cap);
}

static void add_experts(struct str *s, const struct model_config *c, const char *family)
{
    add_key(s, strcmp(family, "mixtral") == 0 ? "num_local_experts" : "num_experts", c->experts);
    add_key(s, "num_experts_per_tok", c->experts_used);
    add_key(s, "moe_intermediate_size", c->expert_ffn);
    if (c->shared_ffn > 0)
        add_key(s, "shared_expert_intermediate_size", c->shared_ffn);
    str_addf(s,
             "  \"norm_topk_prob\": %s,\n  \"router_aux_loss_coef\": %.9g,\n"
             "  \"decoder_sparse_step\": 1,\n  \"qkv_bias\": %s,\n  \"mlp_only_layers\": [",
             c->experts_norm ? "true" : "false", c->experts_aux,
             c->attn_bias == ATTN_BIAS_QKV ? "true" : "false");
    for (int64_t l = 0, n = 0; l < c->layers; l++)
        if (!model_config_has_experts(c, l))
            str_addf(s, "%s%lld", n++ ? ", " : "", (long long)l);
    str_add(s, "],\n");
}

static void add_gpt2(struct str *s, const struct model_config *c)
{
    add_key(s, "n_embd", c->dim);
    add_key(s, "n_layer", c->layers);
    add_key(s, "n_head", c->heads);
    add_key(s, "n_inner", c->ffn);
    add_key(s, "n_positions", c->max_seq);
    add_key(s, "vocab_size", c->vocab);
    str_addf(s, "  \"layer_norm_epsilon\": %.9g,\n  \"activation_function\": \"%s\",\n",
             c->norm_eps, c->mlp == MLP_GELU ? "gelu" : "gelu_new");
}

/* GPT-NeoX, or StableLM. */
static void add_layer_norms(struct str *s, const struct model_config *c, int is_neox)
{
    add_key(s, "hidden_size", c->dim);
    add_key(s, "num_hidden_layers", c->layers);
    add_key(s, "num_attention_heads", c->heads);
    if (!is_neox)
        add_key(s, "num_key_value_heads", c->kv_heads);
    add_key(s, "intermediate_size", c->ffn);
    add_key(s, "vocab_size", c->vocab);
    add_key(s, "max_position_embeddings", c->max_seq);
    str_addf(s, "  \"layer_norm_eps\": %.9g,\n  \"hidden_act\": \"%s\",\n", c->norm_eps,
             c->mlp == MLP_SWIGLU ? "silu"
             : c->mlp == MLP_GELU ? "gelu"
                                  : "gelu_new");
    str_addf(s, "  \"use_parallel_residual\": %s,\n  \"%s\": %s,\n", c->parallel ? "true" : "false",
             is_neox ? "attention_bias" : "use_qkv_bias", c->attn_bias ? "true" : "false");
    str_addf(s, "  \"%s\": %.9g,\n  \"%s\": %.17g,\n  \"rope_scaling\": ",
             is_neox ? "rotary_emb_base" : "rope_theta", c->rope_theta,
             is_neox ? "rotary_pct" : "partial_rotary_factor", rotary_share(c));
    add_scaling(s, c);
}

static void add_ouro(struct str *s, const struct model_config *c, const struct config *options)
{
    const char *threshold = options ? config_get(options, "ouro.threshold") : NULL;
    add_key(s, "total_ut_steps", c->loop);
    str_addf(s, "  \"early_exit_threshold\": %s,\n", threshold ? threshold : "1.0");
}

static const char *architecture(const char *family)
{
    for (size_t i = 0; family && i < DS_LEN(families); i++)
        if (strcmp(families[i].name, family) == 0)
            return families[i].architecture;
    if (family && strcmp(family, "ouro") == 0)
        return "OuroForCausalLM";
    return family ? "GPT2LMHeadModel" : "DepthscopeForCausalLM";
}

void model_config_to_json(struct str *s, const struct model_config *c,
                          const struct config *route_options)
{
    const char *type = model_config_family(c);
    str_addf(s, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
             architecture(type), type ? type : "depthscope");
    if (type && strcmp(type, "gpt2") == 0)
        add_gpt2(s, c);
    else if (type && c->norm == NORM_LAYER)
        add_layer_norms(s, c, strcmp(type, "gpt_neox") == 0);
    else
        add_llama(s, c, type ? type : "depthscope");
    if (type && strcmp(type, "ouro") == 0)
        add_ouro(s, c, route_options);
    if (type && c->experts > 0)
        add_experts(s, c, type);
    add_ends(s, c);
    str_addf(s, "  \"tie_word_embeddings\": %s,\n", c->tied ? "true" : "false");
    str_add(s, "  \"torch_dtype\": \"float32\",\n  \"depthscope\": {");
    for (size_t i = 0; i < model_group.n; i++) {
        char space[64];
        const char *value = opt_text(&model_group.opts[i], c, space, sizeof space);
        str_addf(s, "%s\n    \"model.%s\": ", i ? "," : "", model_group.opts[i].key);
        str_add_json(s, value, strlen(value));
    }
    for (size_t i = 0; route_options && i < route_options->n; i++) {
        str_add(s, ",\n    ");
        str_add_json(s, route_options->entry[i].key, strlen(route_options->entry[i].key));
        str_add(s, ": ");
        str_add_json(s, route_options->entry[i].value, strlen(route_options->entry[i].value));
    }
    str_add(s, "\n  }\n}\n");
}

/* ---- reading --------------------------------------------------------------------------------- */

void report_add(struct report *r, const char *fmt, ...)
{
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    str_addf(&r->text, "%s%s", r->n++ ? "; " : "", line);
    if (r->code != DS_EMEM)
        r->code = DS_EFORMAT;
}

static void report_error(struct report *r, const struct err *e)
{
    report_add(r, "%s", e->text);
    if (e->code == DS_EMEM)
        r->code = DS_EMEM;
}

/* Turns the report into an error and releases it. */
static int report_end(struct report *r, const char *path, struct err *e)
{
    int rc = 0;
    if (r->text.failed)
        rc = err_set(e, DS_EMEM, "%s: out of memory", path);
    else if (r->n > 0)
        rc = err_set(e, r->code, "%s: %s", path, str_text(&r->text));
    str_release(&r->text);
    return rc;
}

void config_set_as(struct report *r, struct model_config *c, const char *own, const char *name,
                   const char *text, double least)
{
    char full[64];
    struct err e = {0};
    snprintf(full, sizeof full, "model.%s", own);
    struct opt o = *opt_find(&model_group, full);
    o.key = name;
    if (o.type == OPT_INT && o.min < least)
        o.min = least;
    if (opt_set(&o, c, text, NULL, &e) < 0)
        report_error(r, &e);
}

int config_scalar(const struct json_node *n, char text[64])
{
    switch (json_kind_of(n)) {
    case JSON_KIND_BOOL: snprintf(text, 64, "%s", json_bool(n, 0) ? "true" : "false"); return 1;
    case JSON_KIND_INT: snprintf(text, 64, "%lld", (long long)json_int(n, 0)); return 1;
    case JSON_KIND_REAL: snprintf(text, 64, "%.17g", json_num(n, 0)); return 1;
    default: return 0;
    }
}

/* Our own keys, if present, take precedence: they are complete. */
static void read_own(struct report *r, struct model_config *c, struct config *route_options,
                     const struct json_node *own, const char *path)
{
    const char *key;
    const struct json_node *v;
    struct err e = {0};
    if (json_kind_of(own) != JSON_KIND_OBJECT)
        report_add(r, "depthscope must be an object");
    for (void *at = NULL; (v = json_next(own, &at, &key, NULL)) != NULL;) {
        const char *text = json_str(v, NULL);
        const struct opt *o = opt_find(&model_group, key);
        if (!text)
            report_add(r, "depthscope.%.60s must be a string", key);
        else if (o ? opt_set(o, c, text, "depthscope", &e) < 0
                   : config_set(route_options, key, text, path, &e) < 0)
            report_error(r, &e);
    }
}

/* generation_config.json next to it takes precedence, as in transformers. */
static int read_ends(struct report *r, struct model_config *c, const struct json_node *root,
                     const char *path, struct err *e)
{
    char sibling[1200];
    struct json *j = NULL;
    const char *slash = strrchr(path, '/');
    int rc = 0;
    snprintf(sibling, sizeof sibling, "%.*sgeneration_config.json",
             slash ? (int)(slash - path) + 1 : 0, path);
    if (fs_exists(sibling)) {
        struct report there = {0};
        rc = json_read_wide(&j, sibling, CONFIG_MAX, e);
        int found = rc == 0 && config_hf_ends(&there, c, json_root(j));
        rc = rc == 0 ? report_end(&there, sibling, e) : rc;
        json_free(j);
        if (rc < 0 || found)
            return rc;
    }
    config_hf_ends(r, c, root);
    return 0;
}

/* The value of a key at the root of what model_config_to_json wrote, one to a line; NULL: none. */
static const char *line_value(const char *text, const char *key, size_t *size)
{
    char start[80];
    int n = snprintf(start, sizeof start, "\n  \"%s\": ", key);
    const char *p = strstr(text, start);
    *size = p ? strcspn(p + n, "\n") : strlen("absent");
    *size -= p && *size > 0 && p[n + (int)*size - 1] == ',';
    return p ? p + n : NULL;
}

/* "1.0" and "1" are the same. */
static int is_same_value(const char *a, size_t n, const char *b, size_t n2)
{
    char *end_a, *end_b;
    return (n == n2 && strncmp(a, b, n) == 0) ||
           (strtod(a, &end_a) == strtod(b, &end_b) && end_a == a + n && end_b == b + n2);
}

/* Keys of one of two such texts that differ in the other; of theirs only those that ours lacks but
 * the file has.  Earlier versions left out a no_rope_layers that lists none, and the base in windows
 * where it is that of the others. */
static void compare_lines(struct report *r, const struct json_node *root, const char *theirs,
                          const char *ours, int is_ours)
{
    const char *end, *p = is_ours ? ours : theirs;
    for (; (p = strstr(p, "\n  \"")) != NULL && strncmp(p + 4, "depthscope\"", 11) != 0; p = end) {
        char key[64];
        size_t size, want_size;
        end = p + 4 + strcspn(p + 4, "\"");
        snprintf(key, sizeof key, "%.*s", (int)(end - p - 4), p + 4);
        const char *value = line_value(theirs, key, &size),
                   *want = line_value(ours, key, &want_size);
        int is_missing =
            !json_get(root, key) &&
            (strcmp(key, "no_rope_layers") == 0 ||
             (strcmp(key, "rope_local_base_freq") == 0 && !json_get(root, "rope_parameters")));
        if (strcmp(key, "architectures") == 0 || strcmp(key, "eos_token_id") == 0 || is_missing ||
            (!is_ours && (want || !json_get(root, key))) ||
            (value && want && is_same_value(value, size, want, want_size)))
            continue;
        report_add(r, "%s is %.*s, expected %.*s from depthscope's keys", key,
                   (int)(size < 60 ? size : 60), value ? value : "absent",
                   (int)(want_size < 60 ? want_size : 60), want ? want : "absent");
    }
}

/* Both configurations as they would be written, so that only what changes the computation counts. */
static void compare_written(struct report *r, const struct json_node *root,
                            const struct model_config *theirs, const struct config *their_route,
                            const struct model_config *c, const struct config *route_options)
{
    struct str theirs_text = {0}, ours_text = {0};
    struct model_config ours = *c; /* strings stay the model's */
    if (theirs->window == 0 && ours.window >= ours.max_seq && ours.rope_local == 0)
        ours.window = 0;
    model_config_to_json(&theirs_text, theirs, their_route);
    model_config_to_json(&ours_text, &ours, route_options);
    for (int is_ours = 1; is_ours >= 0; is_ours--)
        compare_lines(r, root, str_text(&theirs_text), str_text(&ours_text), is_ours);
    if (r->n > 0)
        report_add(r, "remove the key depthscope to use the others");
    r->text.failed |= theirs_text.failed || ours_text.failed;
    str_release(&theirs_text);
    str_release(&ours_text);
}

/* Programs that save the file anew keep our keys, which are stale where they changed the others. */
static int compare_own(struct report *r, const struct model_config *c,
                       const struct config *route_options, const struct json_node *root,
                       const char *path, struct err *e)
{
    struct model_config theirs = {0};
    struct config their_route = {0};
    const char *type = json_str(json_get(root, "model_type"), NULL),
               *family = model_config_family(c);
    int rc = opt_defaults(&model_group, &theirs, e);
    int is_known = rc == 0 && config_hf_read(r, &theirs, root);
    if (is_known)
        rc = config_hf_route(r, &their_route, root, path, e);
    if (rc == 0 && type && strcmp(type, "depthscope") != 0 && (!is_known || !family))
        report_add(r, "model_type is %.60s, expected %s from depthscope's keys", type,
                   family ? family : "depthscope");
    else if (rc == 0 && !is_known)
        config_hf_compare(r, c, root);
    else if (rc == 0 && r->n == 0 && (rc = model_config_check(&theirs, e)) == 0)
        compare_written(r, root, &theirs, &their_route, c, route_options);
    opt_release(&model_group, &theirs);
    config_release(&their_route);
    return rc;
}

static int read_root(struct model_config *c, struct config *route_options,
                     const struct json_node *root, const char *path, struct err *e)
{
    struct report r = {0};
    const struct json_node *own = json_get(root, "depthscope");
    const char *type = json_str(json_get(root, "model_type"), NULL);
    if (own)
        read_own(&r, c, route_options, own, path);
    else if (!config_hf_read(&r, c, root))
        report_add(&r,
                   "%s model_type%s%.60s: expected llama, mistral, qwen2, qwen3, gemma, gemma2, "
                   "gemma3_text, olmo2, olmo3, smollm3, mixtral, qwen2_moe, qwen3_moe, olmoe, "
                   "phi3, gpt_neox, stablelm, ouro, ddllama, gpt2 or "
                   "depthscope",
                   type ? "unsupported" : "missing", type ? " " : "", type ? type : "");
    int rc = own ? 0 : config_hf_route(&r, route_options, root, path, e);
    if (rc == 0 && r.n == 0)
        rc = read_ends(&r, c, root, path, e);
    if (rc == 0 && r.n == 0) {
        rc = model_config_check(c, e);
        if (rc == 0 && own)
            rc = compare_own(&r, c, route_options, root, path, e);
        if (rc < 0)
            rc = err_add(e, rc == DS_EUSAGE ? DS_EFORMAT : rc, "%s", path);
    }
    if (rc < 0) {
        str_release(&r.text);
        return rc;
    }
    return report_end(&r, path, e);
}

int model_config_from_json(struct model_config *c, struct config *route_options, const char *path,
                           struct err *e)
{
    struct json *j = NULL;
    int rc = json_read_wide(&j, path, CONFIG_MAX, e);
    if (rc < 0)
        return rc;
    memset(c, 0, sizeof *c);
    rc = opt_defaults(&model_group, c, e);
    if (rc == 0)
        rc = read_root(c, route_options, json_root(j), path, e);
    if (rc < 0)
        opt_release(&model_group, c);
    json_free(j);
    return rc;
}
