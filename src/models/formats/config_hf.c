/* Reads config.json of the transformers library's model families.  Tables list every key with
 * each family's default; options that this program does not compute are refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config_report.h"

enum family {
    LLAMA,
    MISTRAL,
    QWEN2,
    QWEN3,
    GEMMA,
    GEMMA2,
    GEMMA3,
    OLMO2,
    OLMO3,
    SMOLLM3,
    MIXTRAL,
    QWEN2_MOE,
    QWEN3_MOE,
    OLMOE,
    OURO,
    DDLLAMA,
    PHI3,
    GPT_NEOX,
    STABLELM,
    GPT2,
    FAMILIES
};
static const char *const family_name[FAMILIES] = {
    "llama", "mistral", "qwen2",   "qwen3",    "gemma",     "gemma2",    "gemma3_text",
    "olmo2", "olmo3",   "smollm3", "mixtral",  "qwen2_moe", "qwen3_moe", "olmoe",
    "ouro",  "ddllama", "phi3",    "gpt_neox", "stablelm",  "gpt2"};

/* The default where a key is absent; "=" before it: the class has no such key and the value is fixed;
 * NEEDED: the key is mandatory, even if the class has a default; NULL: not a key of this family.
 * null: the meaning of an explicit null, NULL where the class accepts none. */
#define NEEDED "!"
struct key {
    const char *hf, *own, *llama, *gpt2, *null;
};
static const struct key keys[] = {
    // clang-format off
    /*                             own           llama     gpt2        null */
    {"",                          "method",     "=dense", "=dense",   NULL},
    {"",                          "norm",       "=rms",   "=layer",   NULL},
    {"",                          "position",   "=rope",  "=learned", NULL},
    {"hidden_size",               "dim",        NEEDED,   NULL,       NULL},
    {"num_hidden_layers",         "layers",     NEEDED,   NULL,       NULL},
    {"num_attention_heads",       "heads",      NEEDED,   NULL,       NULL},
    {"num_key_value_heads",       "kv_heads",   "0",      NULL,       "0"},
    {"head_dim",                  "head_dim",   "0",      NULL,       "0"},
    {"intermediate_size",         "ffn",        NEEDED,   NULL,       NULL},
    {"vocab_size",                "vocab",      NEEDED,   NEEDED,     NULL},
    {"max_position_embeddings",   "max_seq",    "2048",   NULL,       NULL},
    {"rms_norm_eps",              "norm_eps",   "1e-6",   NULL,       NULL},
    {"rope_theta",                "rope_theta", "10000",  NULL,       NULL},
    {"tie_word_embeddings",       "tied",       "false",  "true",     "false"},
    {"attention_bias",            "attn_bias",  "false",  "=true",    "false"},
    {"mlp_bias",                  "mlp_bias",   "false",  "=true",    "false"},
    {"attn_logit_softcapping",    "attn_cap",   NULL,     NULL,       "0"},
    {"final_logit_softcapping",   "logit_cap",  NULL,     NULL,       "0"},
    {"rope_local_base_freq",      "rope_local", NULL,     NULL,       NULL},
    {"",                          "norm_place", "=before", "=before", NULL},
    {"",                          "norm_offset", "=false", "=false",  NULL},
    {"",                          "qk_norm",    "=none",  "=none",    NULL},
    {"",                          "mlp",        "=swiglu", NULL,      NULL},
    {"",                          "loop_norm",  NULL,     NULL,       NULL},
    {"total_ut_steps",            "loop",       NULL,     NULL,       NULL},
    {"",                          "fused",      "=false", "=false",   NULL},
    {"layer_norm_eps",            "norm_eps",   NULL,     NULL,       NULL},
    {"rotary_emb_base",           "rope_theta", NULL,     NULL,       NULL},
    {"use_parallel_residual",     "parallel",   NULL,     NULL,       NULL},
    {"n_embd",                    "dim",        NULL,     NEEDED,     NULL},
    {"n_layer",                   "layers",     NULL,     NEEDED,     NULL},
    {"n_head",                    "heads",      NULL,     NEEDED,     NULL},
    {"n_inner",                   "ffn",        NULL,     "0",        "0"},
    {"n_positions",               "max_seq",    NULL,     "1024",     NULL},
    {"layer_norm_epsilon",        "norm_eps",   NULL,     "1e-5",     NULL},
    // clang-format on
};

/* Where a family differs from Llama; hf as in keys, "" for fixed values. */
static const struct {
    enum family family;
    const char *hf, *own, *absent;
} differs[] = {
    // clang-format off
    {MISTRAL, "num_key_value_heads",     "kv_heads",   "8"},
    {MISTRAL, "max_position_embeddings", "max_seq",    "131072"},
    {MISTRAL, "attention_bias",          "attn_bias",  "=false"},
    {MISTRAL, "mlp_bias",                "mlp_bias",   "=false"},
    {QWEN2,   "num_key_value_heads",     "kv_heads",   "32"},
    {QWEN2,   "max_position_embeddings", "max_seq",    "32768"},
    {QWEN2,   "attention_bias",          "attn_bias",  "=qkv"},
    {QWEN2,   "mlp_bias",                "mlp_bias",   "=false"},
    {QWEN3,   "num_key_value_heads",     "kv_heads",   "32"},
    {QWEN3,   "head_dim",                "head_dim",   "128"},
    {QWEN3,   "max_position_embeddings", "max_seq",    "32768"},
    {QWEN3,   "mlp_bias",                "mlp_bias",   "=false"},
    {QWEN3,   "",                        "qk_norm",    "=head"},
    {GEMMA,   "num_key_value_heads",     "kv_heads",   "16"},
    {GEMMA,   "head_dim",                "head_dim",   "256"},
    {GEMMA,   "max_position_embeddings", "max_seq",    "8192"},
    {GEMMA,   "tie_word_embeddings",     "tied",       "true"},
    {GEMMA,   "mlp_bias",                "mlp_bias",   "=false"},
    {GEMMA,   "",                        "norm_offset", "=true"},
    {GEMMA,   "",                        "mlp",        "=geglu"},
    {GEMMA2,  "num_key_value_heads",     "kv_heads",   "4"},
    {GEMMA2,  "head_dim",                "head_dim",   "256"},
    {GEMMA2,  "max_position_embeddings", "max_seq",    "8192"},
    {GEMMA2,  "tie_word_embeddings",     "tied",       "true"},
    {GEMMA2,  "mlp_bias",                "mlp_bias",   "=false"},
    {GEMMA2,  "attn_logit_softcapping",  "attn_cap",   "50"},
    {GEMMA2,  "final_logit_softcapping", "logit_cap",  "30"},
    {GEMMA2,  "",                        "norm_place", "=both"},
    {GEMMA2,  "",                        "norm_offset", "=true"},
    {GEMMA2,  "",                        "mlp",        "=geglu"},
    {GEMMA3,  "num_key_value_heads",     "kv_heads",   "4"},
    {GEMMA3,  "head_dim",                "head_dim",   "256"},
    {GEMMA3,  "max_position_embeddings", "max_seq",    "131072"},
    {GEMMA3,  "rope_theta",              "rope_theta", "1000000"},
    {GEMMA3,  "rope_local_base_freq",    "rope_local", "10000"},
    {GEMMA3,  "tie_word_embeddings",     "tied",       "true"},
    {GEMMA3,  "mlp_bias",                "mlp_bias",   "=false"},
    {GEMMA3,  "final_logit_softcapping", "logit_cap",  "0"},
    {GEMMA3,  "",                        "norm_place", "=both"},
    {GEMMA3,  "",                        "norm_offset", "=true"},
    {GEMMA3,  "",                        "qk_norm",    "=head"},
    {GEMMA3,  "",                        "mlp",        "=geglu"},
    {OLMO2,   "rms_norm_eps",            "norm_eps",   "1e-5"},
    {OLMO2,   "mlp_bias",                "mlp_bias",   "=false"},
    {OLMO2,   "",                        "norm_place", "=after"},
    {OLMO2,   "",                        "qk_norm",    "=whole"},
    {OLMO3,   "rms_norm_eps",            "norm_eps",   "1e-5"},
    {OLMO3,   "rope_theta",              "rope_theta", "500000"},
    {OLMO3,   "rope_local_base_freq",    "rope_local", "=500000"},
    {OLMO3,   "mlp_bias",                "mlp_bias",   "=false"},
    {OLMO3,   "",                        "norm_place", "=after"},
    {OLMO3,   "",                        "qk_norm",    "=whole"},
    {MIXTRAL, "num_key_value_heads",     "kv_heads",   "8"},
    {MIXTRAL, "max_position_embeddings", "max_seq",    "131072"},
    {MIXTRAL, "rms_norm_eps",            "norm_eps",   "1e-5"},
    {MIXTRAL, "rope_theta",              "rope_theta", "1000000"},
    {MIXTRAL, "attention_bias",          "attn_bias",  "=false"},
    {MIXTRAL, "mlp_bias",                "mlp_bias",   "=false"},
    {QWEN2_MOE, "num_key_value_heads",   "kv_heads",   "16"},
    {QWEN2_MOE, "max_position_embeddings", "max_seq",  "32768"},
    {QWEN2_MOE, "attention_bias",        "attn_bias",  "=qkv"},
    {QWEN2_MOE, "mlp_bias",              "mlp_bias",   "=false"},
    {QWEN3_MOE, "num_key_value_heads",   "kv_heads",   "4"},
    {QWEN3_MOE, "max_position_embeddings", "max_seq",  "32768"},
    {QWEN3_MOE, "mlp_bias",              "mlp_bias",   "=false"},
    {QWEN3_MOE, "",                      "qk_norm",    "=head"},
    {OLMOE,   "max_position_embeddings", "max_seq",    "4096"},
    {OLMOE,   "rms_norm_eps",            "norm_eps",   "1e-5"},
    {OLMOE,   "mlp_bias",                "mlp_bias",   "=false"},
    {OLMOE,   "",                        "qk_norm",    "=whole"},
    {OURO,    "",                        "method",     "=ouro"},
    {OURO,    "",                        "norm_place", "=both"},
    {OURO,    "",                        "loop_norm",  "=final"},
    {OURO,    "total_ut_steps",          "loop",       NEEDED},
    {OURO,    "num_key_value_heads",     "kv_heads",   NEEDED},
    {OURO,    "max_position_embeddings", "max_seq",    NEEDED},
    {OURO,    "rms_norm_eps",            "norm_eps",   NEEDED},
    {OURO,    "rope_theta",              "rope_theta", NEEDED},
    {OURO,    "attention_bias",          "attn_bias",  "=false"},
    {OURO,    "mlp_bias",                "mlp_bias",   "=false"},
    {DDLLAMA, "",                        "method",     "=flexidepth"},
    {DDLLAMA, "num_key_value_heads",     "kv_heads",   NEEDED},
    {DDLLAMA, "max_position_embeddings", "max_seq",    NEEDED},
    {DDLLAMA, "rms_norm_eps",            "norm_eps",   NEEDED},
    {DDLLAMA, "rope_theta",              "rope_theta", NEEDED},
    {PHI3,    "max_position_embeddings", "max_seq",    "4096"},
    {PHI3,    "rms_norm_eps",            "norm_eps",   "1e-5"},
    {PHI3,    "attention_bias",          "attn_bias",  "=false"},
    {PHI3,    "mlp_bias",                "mlp_bias",   "=false"},
    {PHI3,    "",                        "fused",      "=true"},
    {GPT_NEOX, "",                       "norm",       "=layer"},
    {GPT_NEOX, "",                       "mlp",        "=gelu"},
    {GPT_NEOX, "num_key_value_heads",    "kv_heads",   NULL},
    {GPT_NEOX, "head_dim",               "head_dim",   NULL},
    {GPT_NEOX, "rms_norm_eps",           "norm_eps",   NULL},
    {GPT_NEOX, "layer_norm_eps",         "norm_eps",   "1e-5"},
    {GPT_NEOX, "rope_theta",             "rope_theta", NULL},
    {GPT_NEOX, "rotary_emb_base",        "rope_theta", "10000"},
    {GPT_NEOX, "attention_bias",         "attn_bias",  "true"},
    {GPT_NEOX, "mlp_bias",               "mlp_bias",   "=true"},
    {GPT_NEOX, "use_parallel_residual",  "parallel",   "true"},
    {STABLELM, "",                       "norm",       "=layer"},
    {STABLELM, "num_key_value_heads",    "kv_heads",   "32"},
    {STABLELM, "head_dim",               "head_dim",   NULL},
    {STABLELM, "max_position_embeddings", "max_seq",   "4096"},
    {STABLELM, "rms_norm_eps",           "norm_eps",   NULL},
    {STABLELM, "layer_norm_eps",         "norm_eps",   "1e-5"},
    {STABLELM, "attention_bias",         "attn_bias",  "=false"},
    {STABLELM, "mlp_bias",               "mlp_bias",   "=false"},
    {STABLELM, "use_parallel_residual",  "parallel",   "false"},
    {SMOLLM3, "num_key_value_heads",     "kv_heads",   "4"},
    {SMOLLM3, "max_position_embeddings", "max_seq",    "32768"},
    {SMOLLM3, "rope_theta",              "rope_theta", "2000000"},
    {SMOLLM3, "tie_word_embeddings",     "tied",       "true"},
    // clang-format on
};

/* The first part of each head rotates. */
static int has_partial(int family)
{
    return family == PHI3 || family == GPT_NEOX || family == STABLELM;
}

/* With soft caps and a scale of scores. */
static int is_gemma(int family)
{
    return family == GEMMA2 || family == GEMMA3;
}

static const char *absent_of(const struct key *k, int family)
{
    for (size_t i = 0; i < DS_LEN(differs); i++)
        if ((int)differs[i].family == family && strcmp(differs[i].own, k->own) == 0 &&
            strcmp(differs[i].hf, k->hf) == 0)
            return differs[i].absent;
    return family == GPT2 ? k->gpt2 : k->llama;
}

/* Keys that change what some class computes, and the neutral value with which they do not. */
static const struct {
    const char *key;
    double neutral;
    const char *what;
} others[] = {
    // clang-format off
    {"is_causal",                  1, "non-causal attention is unsupported"},
    {"use_bidirectional_attention", 0, "non-causal attention is unsupported"},
    {"is_encoder_decoder",         0, "encoder-decoder models are unsupported"},
    {"add_cross_attention",        0, "cross-attention is unsupported"},
    {"pruned_heads",               0, "pruned heads are unsupported"},
    {"attn_logit_softcapping",     0, "soft-capped attention scores are unsupported in this family"},
    {"final_logit_softcapping",    0, "soft-capped logits are unsupported in this family"},
    {"logit_scale",                1, "scaled logits are unsupported"},
    {"logits_scaling",             1, "scaled logits are unsupported"},
    {"embedding_multiplier",       1, "a scaled embedding is unsupported in this family"},
    {"residual_multiplier",        1, "scaled residual branches are unsupported"},
    {"clip_qkv",                   0, "clipped queries and keys are unsupported"},
    {"use_qk_norm",                0, "query and key norms are unsupported"},
    {"qk_layernorm",               0, "query and key norms are unsupported"},
    {"alibi",                      0, "ALiBi position biases are unsupported"},
    {"use_mrope",                  0, "multi-section rotary positions are unsupported"},
    {"rope_interleaved",           0, "interleaved rotary pairs are unsupported in this family"},
    {"parallel_attn",              0, "parallel attention and MLP is unsupported"},
    {"use_parallel_residual",      0, "parallel attention and MLP is unsupported"},
    {"rotary_pct",                 1, "partial rotary dimensions are unsupported"},
    {"partial_rotary_factor",      1, "partial rotary dimensions are unsupported"},
    {"early_exit_step",           -1, "a fixed exit step is unsupported: evaluate with exit.layer"},
    // clang-format on
};

static int family_of(const struct json_node *root)
{
    const char *type = json_str(json_get(root, "model_type"), NULL);
    for (int f = 0; type && f < FAMILIES; f++)
        if (strcmp(family_name[f], type) == 0)
            return f;
    return type && strcmp(type, "ministral") == 0 ? MISTRAL : -1; /* its name with layer_types */
}

/* Absent, or an explicit null. */
static int is_null(const struct json_node *n)
{
    return json_kind_of(n) == JSON_KIND_NULL;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Sets one of our options from a number or boolean of the file. */
static void take(struct report *r, struct model_config *c, const struct json_node *n,
                 const char *hf, const char *own)
{
    const char *word = json_str(n, NULL);
    char text[64];
    if (config_scalar(n, text))
        config_set_as(r, c, own, hf, text, 1);
    else if (word)
        report_add(r, "%s must be a number or a boolean, found \"%.40s\"", hf, word);
    else
        report_add(r, "%s must be a number or a boolean%s", hf, is_null(n) ? ", found null" : "");
}

static void read_key(struct report *r, struct model_config *c, const struct json_node *root,
                     const struct key *k, int family)
{
    const char *absent = absent_of(k, family);
    const struct json_node *n = json_get(root, k->hf);
    if (!absent)
        return;
    if (absent[0] == '=')
        config_set_as(r, c, k->own, k->own, absent + 1, 0);
    else if (n && !(is_null(n) && (k->null || strcmp(absent, NEEDED) == 0)))
        take(r, c, n, k->hf, k->own);
    else if (strcmp(absent, NEEDED) == 0)
        report_add(r, "%s is missing", k->hf);
    else
        config_set_as(r, c, k->own, k->hf, n ? k->null : absent, 0);
}

/* An explicit null is false, as in Python. */
static int flag(struct report *r, const struct json_node *root, const char *key, int absent)
{
    const struct json_node *n = json_get(root, key);
    if (!is_null(n) && json_kind_of(n) != JSON_KIND_BOOL)
        report_add(r, "%s must be true or false", key);
    return json_bool(n, n ? 0 : absent);
}

/* A string of the file, or the class's default. */
static const char *word_of(struct report *r, const struct json_node *root, const char *key,
                           const char *absent)
{
    const struct json_node *n = json_get(root, key);
    if (n && !json_str(n, NULL))
        report_add(r, "%s must be a string", key);
    return json_str(n, NULL) ? json_str(n, NULL) : absent;
}

/* A key that is refused for its value. */
static void report_value(struct report *r, const struct json_node *n, const char *key,
                         const char *what)
{
    char text[64];
    if (config_scalar(n, text))
        report_add(r, "%s=%s: %s", key, text, what);
    else if (json_str(n, NULL))
        report_add(r, "%s=\"%.40s\": %s", key, json_str(n, NULL), what);
    else
        report_add(r, "%s: %s", key, what);
}

/* ---- rotary positions ------------------------------------------------------------------------ */

/* The description of rotary positions that a file has: an empty one is none. */
static const char *rope_name(const struct json_node *root)
{
    const struct json_node *old = json_get(root, "rope_scaling");
    int is_empty = is_null(old) || (json_kind_of(old) == JSON_KIND_OBJECT && json_len(old) == 0);
    return is_empty ? "rope_parameters" : "rope_scaling";
}

static void check_others(struct report *r, const struct json_node *object, const char *only)
{
    for (size_t i = 0; i < DS_LEN(others); i++) {
        const char *key = others[i].key;
        const struct json_node *n = json_get(object, key);
        enum json_kind kind = json_kind_of(n);
        double v = kind == JSON_KIND_BOOL ? json_bool(n, 0) : json_num(n, 0);
        if ((only && strcmp(only, key) != 0) || is_null(n))
            continue;
        int is_list = kind == JSON_KIND_ARRAY || kind == JSON_KIND_OBJECT;
        if (kind == JSON_KIND_STRING || (is_list ? json_len(n) > 0 : v != others[i].neutral))
            report_value(r, n, key, others[i].what);
    }
}

/* Without a type it is "default", which has only a base.  Phi-3's class reads all its scalings as
 * one. */
static const char *rope_type(const struct json_node *rope, int family)
{
    const char *key, *type = json_str(json_get(rope, "rope_type"), NULL);
    if (!type)
        type = json_str(json_get(rope, "type"), NULL);
    if (type && family == PHI3 && strcmp(type, "default") != 0)
        return strcmp(type, "su") == 0 || strcmp(type, "yarn") == 0 ? "longrope"
               : strcmp(type, "longrope") == 0                      ? type
                                                                    : "none";
    if (type)
        return type;
    for (void *at = NULL; json_next(rope, &at, &key, NULL);)
        if (strcmp(key, "rope_theta") != 0 && strcmp(key, "partial_rotary_factor") != 0)
            return "none";
    return "default";
}

/* The keys of a kind of scaling; NEEDED ones have no default.  An original length at the root of the
 * file takes precedence. */
static const struct {
    const char *type, *own;
    const char *keys[6][3]; /* theirs, ours, default */
} ropes[] = {
    {"default", "none", {{NULL}}},
    {"linear", "linear", {{"factor", "rope_factor", NEEDED}}},
    {"dynamic", "dynamic", {{"factor", "rope_factor", NEEDED}}},
    {"longrope",
     "longrope",
     {{"factor", "rope_factor", "1"},
      {"original_max_position_embeddings", "rope_original", "=max_position_embeddings"},
      {"attention_factor", "rope_attention", "0"}}},
    {"llama3",
     "llama3",
     {{"factor", "rope_factor", NEEDED},
      {"low_freq_factor", "rope_low", NEEDED},
      {"high_freq_factor", "rope_high", NEEDED},
      {"original_max_position_embeddings", "rope_original", NEEDED}}},
    {"yarn",
     "yarn",
     {{"factor", "rope_factor", NEEDED},
      {"beta_slow", "rope_low", "1"},
      {"beta_fast", "rope_high", "32"},
      {"original_max_position_embeddings", "rope_original", NEEDED},
      {"attention_factor", "rope_attention", "0"}}},
};

/* YaRN's attention factor as a ratio, as DeepSeek's files have it. */
static void read_mscale(struct report *r, struct model_config *c, const struct json_node *rope)
{
    static const char *const words[] = {"mscale", "mscale_all_dim"};
    const struct json_node *truncate = json_get(rope, "truncate");
    double m = json_num(json_get(rope, words[0]), 0), all = json_num(json_get(rope, words[1]), 0);
    double by = log(c->rope_factor) * 0.1;
    char text[40];
    if (truncate && !(json_kind_of(truncate) == JSON_KIND_BOOL && json_bool(truncate, 0)))
        report_value(r, truncate, "truncate", "an untruncated YaRN ramp is unsupported");
    for (size_t i = 0; i < DS_LEN(words); i++)
        if (!is_null(json_get(rope, words[i])) &&
            !isfinite(json_num(json_get(rope, words[i]), (double)NAN)))
            report_value(r, json_get(rope, words[i]), words[i], "must be a number");
    if (m == 0 || all == 0 || c->rope_attention > 0)
        return;
    snprintf(text, sizeof text, "%.17g", (m * by + 1) / (all * by + 1));
    config_set_as(r, c, "rope_attention", "mscale", text, 0);
}

/* A list of numbers, as text. */
static void read_divisors(struct report *r, struct model_config *c, const struct json_node *rope,
                          const char *name, const char *hf, const char *own)
{
    const struct json_node *n = json_get(rope, hf);
    struct str list = {0};
    if (is_null(n) || json_kind_of(n) != JSON_KIND_ARRAY) {
        report_add(r, n ? "%s: %s must be a list of numbers" : "%s: missing key %s", name, hf);
        return;
    }
    if (json_len(n) > ROPE_PAIRS_MAX) {
        report_add(r, "%s has %zu numbers, expected at most %d", hf, json_len(n), ROPE_PAIRS_MAX);
        return;
    }
    for (size_t i = 0; i < json_len(n); i++) {
        double v = json_num(json_at(n, i), 0);
        if (!(v > 0) || !isfinite(v)) {
            report_add(r, "%s: number %zu must be positive", hf, i + 1);
            break;
        }
        str_add(&list, i ? "," : "");
        str_add_real(&list, v);
    }
    if (list.failed)
        report_add(r, "%s: out of memory", hf);
    else
        config_set_as(r, c, own, hf, str_text(&list), 0);
    str_release(&list);
}

/* The lengths that LongRoPE's factor on rotated elements follows from.  Without a factor it is their
 * ratio. */
static void read_long(struct report *r, struct model_config *c, const struct json_node *rope,
                      const char *name)
{
    read_divisors(r, c, rope, name, "short_factor", "rope_short");
    read_divisors(r, c, rope, name, "long_factor", "rope_long");
    if (is_null(json_get(rope, "factor")) && c->max_seq > c->rope_original)
        c->rope_factor = (double)c->max_seq / (double)c->rope_original;
}

/* One description of rotary positions. */
static void read_rope_kind(struct report *r, struct model_config *c, const struct json_node *root,
                           const struct json_node *rope, const char *name, int family)
{
    const char *type = rope_type(rope, family);
    const struct json_node *named = json_get(rope, "rope_type");
    size_t kind = 0;
    if (!is_null(named) && !json_str(named, NULL)) {
        report_add(r, "%s: rope_type must be a string", name);
        return;
    }
    while (kind < DS_LEN(ropes) && strcmp(ropes[kind].type, type) != 0)
        kind++;
    if (kind == DS_LEN(ropes)) {
        report_add(r,
                   "%s: unsupported type %.40s: expected default, linear, llama3, yarn, longrope "
                   "or dynamic",
                   name, type);
        return;
    }
    if (!has_partial(family))
        check_others(r, rope, "partial_rotary_factor");
    config_set_as(r, c, "rope_scaling", "rope_scaling", ropes[kind].own, 0);
    if (!is_null(json_get(rope, "rope_theta")))
        take(r, c, json_get(rope, "rope_theta"), "rope_theta", "rope_theta");
    for (size_t i = 0; i < DS_LEN(ropes[kind].keys) && ropes[kind].keys[i][0]; i++) {
        const char *const *k = ropes[kind].keys[i];
        int is_original = strcmp(k[1], "rope_original") == 0;
        const struct json_node *first = is_original ? json_get(root, k[0]) : NULL,
                               *n = is_null(first) ? json_get(rope, k[0]) : first;
        if (is_original && is_null(first) && family == PHI3)
            config_set_as(r, c, k[1], k[0], "4096", 0); /* its class has the key, with a default */
        else if (strcmp(k[1], "rope_attention") == 0 && n && !is_null(n) && !(json_num(n, 1) > 0))
            report_add(r, "%s: %s must be greater than 0", name, k[0]);
        else if (!is_null(n))
            take(r, c, n, k[0], k[1]);
        else if (k[2][0] == '=')
            c->rope_original = c->max_seq;
        else if (strcmp(k[2], NEEDED) == 0)
            report_add(r, "%s: missing key %s", name, k[0]);
        else
            config_set_as(r, c, k[1], k[0], k[2], 0);
    }
    if (strcmp(type, "yarn") == 0)
        read_mscale(r, c, rope);
    if (strcmp(type, "longrope") == 0)
        read_long(r, c, rope, name);
}

/* The share of a head that rotates, its first elements: in the description of rotary positions, or
 * at the root of the file, where GPT-NeoX has another name for it. */
static void read_partial(struct report *r, struct model_config *c, const struct json_node *root,
                         int family)
{
    static const char key[] = "partial_rotary_factor";
    const char *outside = family == GPT_NEOX ? "rotary_pct" : key;
    const struct json_node *rope = json_get(root, rope_name(root)), *n = NULL;
    int64_t D = c->head_dim ? c->head_dim : c->heads > 0 ? c->dim / c->heads : 0;
    const char *name = json_get(rope, key) ? key : outside;
    n = json_get(rope, key) ? json_get(rope, key) : json_get(root, outside);
    double by = json_num(n, n ? -1 : family == PHI3 ? 1 : 0.25);
    if (!(by > 0 && by <= 1)) {
        report_add(r, "%s must be a number above 0, at most 1", name);
        return;
    }
    c->rope_dims = (int64_t)((double)D * by);
    if (c->rope_dims < 2 || c->rope_dims % 2 != 0)
        report_add(r,
                   "%s = %g: %" PRId64 " of %" PRId64
                   " elements of a head rotate, expected an even number",
                   name, by, c->rope_dims, D);
}

/* `rope_scaling`, or `rope_parameters` in newer files: null, one description, or one for each kind
 * of layer (Gemma 3), of which that of windows must be plain. */
static void read_rope(struct report *r, struct model_config *c, const struct json_node *root,
                      int family)
{
    const char *name = rope_name(root);
    const struct json_node *rope = json_get(root, name),
                           *local = json_get(rope, "sliding_attention"),
                           *full = json_get(rope, "full_attention");
    int is_old = strcmp(name, "rope_scaling") == 0, has_kinds = family == GEMMA3 || family == OLMO3;
    if (is_null(rope))
        return;
    if (has_kinds && is_old && !is_null(json_get(root, "rope_parameters"))) {
        report_add(r, "rope_scaling next to rope_parameters is unsupported in this family");
        return;
    }
    if (json_kind_of(rope) != JSON_KIND_OBJECT) {
        report_add(r, "%s must be an object", name);
        return;
    }
    /* versions of the library disagree on whether it is a scaling then */
    if (has_kinds && is_old && is_null(json_get(rope, "rope_type")) &&
        strcmp(rope_type(rope, family), "default") != 0) {
        report_add(r, "rope_scaling: type=%.40s without rope_type is unsupported in this family",
                   rope_type(rope, family));
        return;
    }
    /* whose code needs a library that reads no rope_parameters, and YaRN's factor otherwise */
    if (family == OURO &&
        (strcmp(name, "rope_scaling") != 0 || strcmp(rope_type(rope, family), "yarn") == 0)) {
        report_add(r, "%s: %s is unsupported in this family", name, rope_type(rope, family));
        return;
    }
    if (is_null(local) && is_null(full)) {
        if (has_kinds && !is_old)
            report_add(r, "%s: expected full_attention and sliding_attention", name);
        else
            read_rope_kind(r, c, root, rope, name, family);
        return;
    }
    if (!has_kinds || is_old) {
        report_add(r, "%s: rotary positions by kind of layer are unsupported in this family", name);
        return;
    }
    if (json_kind_of(full) == JSON_KIND_OBJECT)
        read_rope_kind(r, c, NULL, full, name, family);
    if (json_kind_of(local) == JSON_KIND_OBJECT && strcmp(rope_type(local, family), "default") != 0)
        report_add(r, "%s: scaled positions in layers with a window are unsupported", name);
    if (!is_null(json_get(local, "rope_theta")))
        take(r, c, json_get(local, "rope_theta"), "rope_theta", "rope_local");
}

/* ---- windows and layers without positions ---------------------------------------------------- */

/* Appends block l to a list of blocks. */
static void list_add(struct str *s, int64_t l)
{
    str_addf(s, "%s%" PRId64, s->len ? "," : "", l);
}

/* Sets a list of blocks, which the report owns until here. */
static void list_set(struct report *r, struct model_config *c, const char *own, const char *hf,
                     struct str *s)
{
    if (s->failed)
        report_add(r, "%s: out of memory", hf);
    else
        config_set_as(r, c, own, hf, str_text(s), 0);
    str_release(s);
}

/* An integer of the file, or the class's default. */
static int64_t whole(struct report *r, const struct json_node *root, const char *key,
                     int64_t absent)
{
    const struct json_node *n = json_get(root, key);
    if (n && json_kind_of(n) != JSON_KIND_INT)
        report_value(r, n, key, "must be an integer");
    return json_int(n, absent);
}

/* The number in the class's rule for windows where the file has no layer_types. */
static int64_t window_rule(struct report *r, const struct json_node *root, int family)
{
    switch (family) {
    case QWEN2:
    case OURO:
    case QWEN3:
    case QWEN2_MOE: return whole(r, root, "max_window_layers", 28);
    case GEMMA3: return whole(r, root, "sliding_window_pattern", 6);
    default: return 0;
    }
}

/* Does that rule give block l a window? */
static int has_window(const struct model_config *c, int family, int64_t rule, int64_t l)
{
    switch (family) {
    case QWEN2:
    case OURO:
    case QWEN3: return l >= rule;
    case QWEN2_MOE: return l % 2 == 0 && l < rule;
    case GEMMA2: return l % 2 == 0;
    case GEMMA3: return rule > 0 && (l + 1) % rule != 0;
    case OLMO3: return (l + 1) % 4 != 0;
    case SMOLLM3: return model_config_has(c->nope_layers, l);
    default: return 1;
    }
}

/* The blocks with a window, from layer_types or the class's rule. */
static void read_window_layers(struct report *r, struct model_config *c,
                               const struct json_node *root, int family, int has_size)
{
    const struct json_node *kinds = family == PHI3 ? NULL : json_get(root, "layer_types");
    int is_uniform = family == MIXTRAL || family == QWEN3_MOE;
    struct str list = {0};
    int64_t n = 0, rule = has_size && is_null(kinds) ? window_rule(r, root, family) : 0;
    if (!is_null(kinds) && json_kind_of(kinds) != JSON_KIND_ARRAY)
        report_add(r, "layer_types must be a list");
    else if (!is_null(kinds) && json_len(kinds) != (size_t)c->layers)
        report_add(r, "layer_types has %zu entries, expected %" PRId64 ", num_hidden_layers",
                   json_len(kinds), c->layers);
    for (int64_t l = 0; l < c->layers; l++) {
        const char *kind = json_str(json_at(kinds, (size_t)l), NULL);
        int is_window = kind ? strcmp(kind, "sliding_attention") == 0
                             : has_size && has_window(c, family, rule, l);
        if (!is_null(kinds) && !kind) {
            report_add(r, "layer_types: entry %" PRId64 " must be a string", l + 1);
            break;
        }
        if (kind && !is_window && strcmp(kind, "full_attention") != 0) {
            report_add(r,
                       "layer_types: unsupported kind %.40s: expected full_attention or "
                       "sliding_attention",
                       kind);
            break;
        }
        if (is_window && !has_size) {
            report_add(r, "layer_types: sliding_attention needs sliding_window");
            break;
        }
        if (kind && !is_window && has_size && is_uniform) {
            report_add(r,
                       "layer_types: full_attention next to sliding_window=%" PRId64
                       " is unsupported in this family, whose windows are in every layer",
                       c->window);
            break;
        }
        if (is_window)
            list_add(&list, l);
        n += is_window;
    }
    if (n == 0) /* no block has one */
        c->window = 0;
    if (n > 0 && n < c->layers)
        list_set(r, c, "window_layers", "layer_types", &list);
    str_release(&list);
    if (c->window == 0)
        c->rope_local = 0; /* its layers do not exist */
}

/* Sliding-window attention in any of its spellings.  A window at least as long as the context has
 * no effect. */
static void read_window(struct report *r, struct model_config *c, const struct json_node *root,
                        int family)
{
    static const int64_t usual[FAMILIES] = {
        [MISTRAL] = 4096, [GEMMA2] = 4096, [GEMMA3] = 4096,    [OLMO3] = 4096,
        [QWEN2] = 4096,   [QWEN3] = 4096,  [QWEN2_MOE] = 4096, [QWEN3_MOE] = 4096};
    const struct json_node *n = json_get(root, "sliding_window");
    int asks = family == OURO || family == QWEN2 || family == QWEN3 || family == SMOLLM3 ||
               family == QWEN2_MOE || family == QWEN3_MOE; /* for use_sliding_window */
    int is_on = flag(r, root, "use_sliding_window", 0);
    int is_off = family == LLAMA || family == DDLLAMA || family == GEMMA || family == OLMO2 ||
                 family == OLMOE || family == GPT_NEOX || family == STABLELM || (asks && !is_on);
    int64_t window = n ? json_int(n, 0) : usual[family];
    if (is_on && !asks && is_off)
        report_add(r, "use_sliding_window: sliding-window attention is unsupported in this family");
    if (!is_null(n) && (json_kind_of(n) != JSON_KIND_INT || window < !is_off)) {
        report_add(r, "sliding_window must be a positive integer");
        return;
    }
    if (is_off)
        window = 0;
    c->window = is_null(n) && n ? 0 : window;
    if (c->window > (int64_t)1 << 30) {
        report_add(r, "sliding_window must be at most %d", 1 << 30);
        return;
    }
    read_window_layers(r, c, root, family, c->window > 0);
    if (c->window >= c->max_seq && c->rope_local == 0) {
        c->window = 0;
        config_set_as(r, c, "window_layers", "layer_types", "", 0);
    }
}

/* SmolLM3: 0 = without positions, by default every fourth. */
static void read_nope(struct report *r, struct model_config *c, const struct json_node *root)
{
    const struct json_node *n = json_get(root, "no_rope_layers");
    int64_t every = is_null(n) ? whole(r, root, "no_rope_layer_interval", 4) : 1;
    struct str list = {0};
    if (!is_null(n) && (json_kind_of(n) != JSON_KIND_ARRAY || json_len(n) != (size_t)c->layers)) {
        report_add(r, "no_rope_layers must be a list of %" PRId64 " numbers, num_hidden_layers",
                   c->layers);
        return;
    }
    if (is_null(n) && every < 1) {
        report_add(r, "no_rope_layer_interval must be at least 1");
        return;
    }
    for (int64_t l = 0; l < c->layers; l++) {
        const struct json_node *has_rope = json_at(n, (size_t)l);
        if (is_null(n) ? (l + 1) % every == 0 : json_int(has_rope, 1) == 0)
            list_add(&list, l);
        if (!is_null(n) && json_kind_of(has_rope) != JSON_KIND_INT) {
            report_add(r, "no_rope_layers: entry %" PRId64 " must be an integer", l + 1);
            break;
        }
    }
    list_set(r, c, "nope_layers", "no_rope_layers", &list);
}

/* ---- unsupported options --------------------------------------------------------------------- */

/* The code that these models bring along is what this program computes without it. */
static int is_known_code(const struct json_node *root, int family)
{
    static const char *const classes[FAMILIES] = {[OURO] = "modeling_ouro.OuroForCausalLM",
                                                  [DDLLAMA] =
                                                      "modeling_ddllama.DDLlamaForCausalLM"};
    const struct json_node *map = json_get(root, "auto_map");
    const char *class = json_str(json_get(map, "AutoModelForCausalLM"), NULL);
    return classes[family] && class && strcmp(class, classes[family]) == 0;
}

/* Published Phi-3 models name the files that became the library's own class. */
static int is_native(const struct json_node *map, int family)
{
    static const char *const native[] = {"configuration_phi3.Phi3Config",
                                         "modeling_phi3.Phi3ForCausalLM"};
    const struct json_node *v;
    const char *key;
    int is = family == PHI3 && json_kind_of(map) == JSON_KIND_OBJECT;
    for (void *at = NULL; is && (v = json_next(map, &at, &key, NULL)) != NULL;) {
        const char *text = json_str(v, NULL);
        is = strcmp(key, "AutoTokenizer") == 0 ||
             (text && (strcmp(text, native[0]) == 0 || strcmp(text, native[1]) == 0));
    }
    return is;
}

/* Keys of any family that announce quantised weights or custom code. */
static void check_foreign(struct report *r, const struct json_node *root, int family)
{
    config_check_quantised(r, root);
    const struct json_node *map = json_get(root, "auto_map");
    if (!is_null(map) && !is_native(map, family) && !is_known_code(root, family))
        report_add(r, "auto_map: models with custom code are unsupported (code is never run)");
    for (size_t i = 0; i < DS_LEN(others); i++) {
        /* Gemma 3's class has the key of scores and does not use it */
        int is_ours = (family == GEMMA2 && strcmp(others[i].key, "attn_logit_softcapping") == 0) ||
                      (is_gemma(family) && strcmp(others[i].key, "final_logit_softcapping") == 0) ||
                      ((family == PHI3 || family == STABLELM) &&
                       strcmp(others[i].key, "partial_rotary_factor") == 0) ||
                      (family == GPT_NEOX && strcmp(others[i].key, "rotary_pct") == 0) ||
                      (family != PHI3 && has_partial(family) &&
                       strcmp(others[i].key, "use_parallel_residual") == 0);
        if (!is_ours)
            check_others(r, root, others[i].key);
    }
}

/* GELU in any spelling: exact, or with tanh. */
static void read_gelu(struct report *r, struct model_config *c, const struct json_node *root,
                      const char *key, const char *absent)
{
    static const char *const known[][2] = {{"gelu_new", "gelu_tanh"},
                                           {"gelu_pytorch_tanh", "gelu_tanh"},
                                           {"gelu_python_tanh", "gelu_tanh"},
                                           {"gelu_fast", "gelu_tanh"},
                                           {"gelu_accurate", "gelu_tanh"},
                                           {"gelu_python", "gelu"},
                                           {"gelu", "gelu"}};
    const char *act = word_of(r, root, key, absent);
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (strcmp(act, known[i][0]) == 0) {
            config_set_as(r, c, "mlp", "mlp", known[i][1], 0);
            return;
        }
    report_add(r, "%s: unsupported activation %.40s: expected gelu_new or gelu", key, act);
}

/* LayerNorm with rotary positions: GPT-NeoX and StableLM, whose parallel blocks have one norm. */
static void read_layer_norms(struct report *r, struct model_config *c, const struct json_node *root,
                             int family)
{
    const struct json_node *n = json_get(root, "head_dim");
    if (!is_null(n) && (c->heads < 1 || json_num(n, 0) * (double)c->heads != (double)c->dim))
        report_add(r, "head_dim: expected hidden_size / num_attention_heads in this family");
    if (family == GPT_NEOX)
        read_gelu(r, c, root, "hidden_act", "gelu");
    if (family == STABLELM && c->parallel)
        c->parallel = PARALLEL_SHARED;
    if (family == STABLELM && flag(r, root, "use_qkv_bias", 0))
        config_set_as(r, c, "attn_bias", "use_qkv_bias", "qkv", 0);
}

/* Options of Llama and what grew from it that are no plain keys. */
static void read_llama(struct report *r, struct model_config *c, const struct json_node *root,
                       int family)
{
    int is_gelu = is_gemma(family) || family == GEMMA;
    const char *key = is_gemma(family) ? "hidden_activation" : "hidden_act";
    const char *usual = is_gelu ? "gelu_pytorch_tanh" : "silu";
    const char *also = family == GEMMA ? "gelu" /* its class reads it so */
                       : is_gelu       ? usual
                                       : "swish";
    const char *act = word_of(r, root, key, usual);
    if (family == GPT_NEOX || family == STABLELM)
        read_layer_norms(r, c, root, family);
    if (family != GPT_NEOX && strcmp(act, usual) != 0 && strcmp(act, also) != 0)
        report_add(r, "%s: unsupported activation %.40s: expected %s", key, act, usual);
    if (family == SMOLLM3)
        read_nope(r, c, root);
    if (family == QWEN2_MOE && !flag(r, root, "qkv_bias", 1))
        config_set_as(r, c, "attn_bias", "qkv_bias", "false", 0);
    read_rope(r, c, root, family);
    if (has_partial(family))
        read_partial(r, c, root, family);
    if (is_gelu)
        c->embed_scale = sqrt((double)c->dim);
    read_window(r, c, root, family);
    if (!is_gemma(family))
        return;
    static const char *const caps[] = {"attn_logit_softcapping", "final_logit_softcapping"};
    for (size_t i = 0; i < DS_LEN(caps); i++)
        if (!is_null(json_get(root, caps[i])) && !(json_num(json_get(root, caps[i]), 0) > 0))
            report_add(r, "%s must be a positive number", caps[i]);
    const struct json_node *n = json_get(root, "query_pre_attn_scalar");
    double by = json_num(n, 256);
    if (!(by > 0) || (n && json_kind_of(n) != JSON_KIND_INT && json_kind_of(n) != JSON_KIND_REAL))
        report_add(r, "query_pre_attn_scalar must be a positive number");
    else
        c->attn_scale = by == (double)c->head_dim ? 0 : 1 / sqrt(by);
}

static void check_gpt2(struct report *r, struct model_config *c, const struct json_node *root)
{
    static const char scores[] = "attention scores not scaled by 1 / sqrt(head size) are "
                                 "unsupported";
    if (!flag(r, root, "scale_attn_weights", 1))
        report_value(r, json_get(root, "scale_attn_weights"), "scale_attn_weights", scores);
    if (flag(r, root, "scale_attn_by_inverse_layer_idx", 0))
        report_value(r, json_get(root, "scale_attn_by_inverse_layer_idx"),
                     "scale_attn_by_inverse_layer_idx", scores);
    read_gelu(r, c, root, "activation_function", "gelu_new");
}

static void check_multiple(struct report *r, const char *count, int64_t n, const char *of,
                           int64_t whole)
{
    if (n > 0 && whole % n != 0)
        report_add(r, "%s=%" PRId64 ": must divide %s=%" PRId64, count, n, of, whole);
}

static void check_length(struct report *r, const char *key, const char *list, int64_t pairs)
{
    int64_t n = 0;
    double v;
    while (model_config_divisor(&list, &v) > 0)
        n++;
    if (n != pairs)
        report_add(r,
                   "%s has %" PRId64 " numbers, expected %" PRId64 ", half of the %" PRId64
                   " elements of a head that rotate",
                   key, n, pairs, 2 * pairs);
}

/* What model_config_check would report too, under the names of the file. */
static void check_sizes(struct report *r, const struct model_config *c, int family)
{
    const char *heads = family == GPT2 ? "n_head" : "num_attention_heads";
    int64_t D = c->head_dim || c->dim % c->heads != 0 ? c->head_dim : c->dim / c->heads;
    if (c->head_dim == 0)
        check_multiple(r, heads, c->heads, family == GPT2 ? "n_embd" : "hidden_size", c->dim);
    check_multiple(r, "num_key_value_heads", c->kv_heads, heads, c->heads);
    if (c->position == POS_ROPE && D % 2 != 0)
        report_add(r, "head_dim=%" PRId64 ": must be even for rotary positions", D);
    if (c->experts > 0 && c->experts_used > c->experts)
        report_add(r, "num_experts_per_tok=%" PRId64 ": must be at most %" PRId64 ", the experts",
                   c->experts_used, c->experts);
    if (c->rope_scaling == ROPE_LONGROPE && r->n == 0) {
        check_length(r, "short_factor", c->rope_short, (c->rope_dims ? c->rope_dims : D) / 2);
        check_length(r, "long_factor", c->rope_long, (c->rope_dims ? c->rope_dims : D) / 2);
    }
}

int config_hf_read(struct report *r, struct model_config *c, const struct json_node *root)
{
    int family = family_of(root);
    if (family < 0)
        return 0;
    for (size_t i = 0; i < DS_LEN(keys); i++)
        read_key(r, c, root, &keys[i], family);
    check_foreign(r, root, family);
    config_experts_read(r, c, root, family_name[family]);
    if (family == OURO && r->n == 0 && c->loop < 2)
        report_add(r, "total_ut_steps=1: not a loop: expected 2 or more");
    if (family == GPT2) {
        check_gpt2(r, c, root);
    } else {
        read_llama(r, c, root, family);
    }
    if (r->n == 0)
        check_sizes(r, c, family);
    return 1;
}

/* One option of a method from a number of the file; its text before that: where the key is absent
 * or null. */
static int route_option(struct report *r, struct config *options, const struct json_node *n,
                        const char *hf, const char *key, char text[64], const char *path,
                        struct err *e)
{
    if (!is_null(n) && (!config_scalar(n, text) || json_kind_of(n) == JSON_KIND_BOOL))
        report_add(r, "%s must be a number", hf);
    return config_set(options, key, text, path, e);
}

int config_hf_route(struct report *r, struct config *options, const struct json_node *root,
                    const char *path, struct err *e)
{
    static const struct {
        enum family family;
        const char *hf, *key, *absent;
    } rows[] = {
        {OURO, "early_exit_threshold", "ouro.threshold", "2"}, /* none: nothing leaves */
        {DDLLAMA, "router_reduction_factor", "flexidepth.router_reduction", "16"},
        {DDLLAMA, "proj_reduction_factor", "flexidepth.proj_reduction", "16"},
        {DDLLAMA, "intermediate_size", "flexidepth.ffn", "0"},
        {DDLLAMA, "rms_norm_eps", "flexidepth.eps", "0"},
    };
    int family = family_of(root), rc = 0;
    for (size_t i = 0; i < DS_LEN(rows) && rc == 0; i++) {
        char text[64];
        str_copy(text, sizeof text, rows[i].absent);
        if ((int)rows[i].family == family)
            rc = route_option(r, options, json_get(root, rows[i].hf), rows[i].hf, rows[i].key, text,
                              path, e);
    }
    return rc;
}

void config_hf_compare(struct report *r, const struct model_config *c, const struct json_node *root)
{
    char text[64], ours[64], full[64];
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        const struct key *k = &keys[i];
        const struct json_node *n = json_get(root, k->hf);
        snprintf(full, sizeof full, "model.%s", k->own);
        const struct opt *o = opt_find(&model_group, full);
        if (!k->llama || (o->type != OPT_INT && o->type != OPT_REAL) || is_null(n))
            continue;
        opt_print(o, c, ours, sizeof ours);
        if (!config_scalar(n, text))
            str_copy(text, sizeof text, "not a number");
        if (o->type == OPT_REAL && (float)json_num(n, 0) == (float)strtod(ours, NULL))
            continue; /* written with nine digits */
        if (strcmp(text, ours) != 0)
            report_add(r, "%s is %s, expected %s from depthscope's %s", k->hf, text, ours, full);
    }
}

/* ---- end-of-text ids ------------------------------------------------------------------------- */

static int add_end(struct report *r, struct model_config *c, const struct json_node *n)
{
    int is_int = json_kind_of(n) == JSON_KIND_INT;
    double v = json_num(n, 0.5);
    if (!is_int && !(fabs(v) < 0x1p53 && v == floor(v))) {
        report_add(r, "eos_token_id must be an integer or a list of integers");
        return -1;
    }
    if (model_config_add_eos(c, is_int ? json_int(n, -1) : (int64_t)v) < 0) {
        report_add(r, "eos_token_id: expected at most %d different ids", (int)MODEL_EOS_MAX);
        return -1;
    }
    return 0;
}

int config_hf_ends(struct report *r, struct model_config *c, const struct json_node *root)
{
    const struct json_node *n = json_get(root, "eos_token_id");
    if (is_null(n))
        return 0;
    model_config_clear_eos(c);
    if (json_kind_of(n) != JSON_KIND_ARRAY)
        add_end(r, c, n);
    for (size_t i = 0; i < json_len(n); i++)
        if (json_kind_of(n) == JSON_KIND_ARRAY && add_end(r, c, json_at(n, i)) < 0)
            break;
    return 1;
}
