/* Reads config.json of the transformers library's model families.  One table lists every key with
 * each family's default; options that this program does not compute are refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config_report.h"

enum { LLAMA, MISTRAL, QWEN2, GPT2, MIXTRAL, QWEN2_MOE, FAMILIES };

/* Per family: the default; "=" before it: the class has no such key and the value is fixed; NEEDED:
 * the key is mandatory, even if the class has a default; NULL: not a key of this family.  null: the
 * meaning of an explicit null, NULL where the class accepts none. */
#define NEEDED "!"
struct key {
    const char *hf, *own, *absent[FAMILIES], *null;
};
static const struct key keys[] = {
    // clang-format off
    /*                             own           llama     mistral   qwen2     gpt2        null */
    {"",                          "method",     {"=dense", "=dense", "=dense", "=dense", "=dense", "=dense"},   NULL},
    {"",                          "norm",       {"=rms",   "=rms",   "=rms",   "=layer", "=rms", "=rms"},   NULL},
    {"",                          "position",   {"=rope",  "=rope",  "=rope",  "=learned", "=rope", "=rope"}, NULL},
    {"hidden_size",               "dim",        {NEEDED,   NEEDED,   NEEDED,   NULL, NEEDED, NEEDED},       NULL},
    {"num_hidden_layers",         "layers",     {NEEDED,   NEEDED,   NEEDED,   NULL, NEEDED, NEEDED},       NULL},
    {"num_attention_heads",       "heads",      {NEEDED,   NEEDED,   NEEDED,   NULL, NEEDED, NEEDED},       NULL},
    {"num_key_value_heads",       "kv_heads",   {"0",      "8",      "32",     NULL, "8", "16"},       "0"},
    {"head_dim",                  "head_dim",   {"0",      "0",      "0",      NULL, "0", "0"},       "0"},
    {"intermediate_size",         "ffn",        {NEEDED,   NEEDED,   NEEDED,   NULL, NEEDED, NEEDED},       NULL},
    {"vocab_size",                "vocab",      {NEEDED,   NEEDED,   NEEDED,   NEEDED, NEEDED, NEEDED},     NULL},
    {"max_position_embeddings",   "max_seq",    {"2048",   "131072", "32768",  NULL, "131072", "32768"},       NULL},
    {"rms_norm_eps",              "norm_eps",   {"1e-6",   "1e-6",   "1e-6",   NULL, "1e-5", "1e-6"},       NULL},
    {"rope_theta",                "rope_theta", {"10000",  "10000",  "10000",  NULL, "1000000", "10000"},       NULL},
    {"tie_word_embeddings",       "tied",       {"false",  "false",  "false",  "true", "false", "false"},     "false"},
    {"attention_bias",            "attn_bias",  {"false",  "=false", "=qkv",   "=true", "=false", "=qkv"},    "false"},
    {"mlp_bias",                  "mlp_bias",   {"false",  "=false", "=false", "=true", "=false", "=false"},    "false"},
    {"n_embd",                    "dim",        {NULL,     NULL,     NULL,     NEEDED, NULL, NULL},     NULL},
    {"n_layer",                   "layers",     {NULL,     NULL,     NULL,     NEEDED, NULL, NULL},     NULL},
    {"n_head",                    "heads",      {NULL,     NULL,     NULL,     NEEDED, NULL, NULL},     NULL},
    {"n_inner",                   "ffn",        {NULL,     NULL,     NULL,     "0", NULL, NULL},        "0"},
    {"n_positions",               "max_seq",    {NULL,     NULL,     NULL,     "1024", NULL, NULL},     NULL},
    {"layer_norm_epsilon",        "norm_eps",   {NULL,     NULL,     NULL,     "1e-5", NULL, NULL},     NULL},
    // clang-format on
};

/* Mistral's default attention window. */
enum { MISTRAL_WINDOW = 4096 };

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
    {"attn_logit_softcapping",     0, "soft-capped attention scores are unsupported"},
    {"final_logit_softcapping",    0, "soft-capped logits are unsupported"},
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
    // clang-format on
};

static int family_of(const struct json_node *root)
{
    static const char *const names[FAMILIES] = {"llama", "mistral", "qwen2",
                                                "gpt2",  "mixtral", "qwen2_moe"};
    const char *type = json_str(json_get(root, "model_type"), NULL);
    for (int f = 0; type && f < FAMILIES; f++)
        if (strcmp(names[f], type) == 0)
            return f;
    return -1;
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
    const char *absent = k->absent[family];
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

/* ---- rotary positions ------------------------------------------------------------------------ */

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
            report_add(r, "%s: %s", key, others[i].what);
    }
}

/* Without a type it is "default", which has only a base. */
static const char *rope_type(const struct json_node *rope)
{
    const char *key, *type = json_str(json_get(rope, "rope_type"), NULL);
    if (!type)
        type = json_str(json_get(rope, "type"), NULL);
    if (type)
        return type;
    for (void *at = NULL; json_next(rope, &at, &key, NULL);)
        if (strcmp(key, "rope_theta") != 0 && strcmp(key, "partial_rotary_factor") != 0)
            return "none";
    return "default";
}

/* `rope_scaling`, or `rope_parameters` in newer files: null, {"rope_type": "default"} or
 * llama3's. */
static void read_rope(struct report *r, struct model_config *c, const struct json_node *root)
{
    static const char *const parts[][2] = {
        {"rope_theta", "rope_theta"},
        {"factor", "rope_factor"},
        {"low_freq_factor", "rope_low"},
        {"high_freq_factor", "rope_high"},
        {"original_max_position_embeddings", "rope_original"},
    };
    const char *name = is_null(json_get(root, "rope_scaling")) ? "rope_parameters" : "rope_scaling";
    const struct json_node *rope = json_get(root, name);
    if (is_null(rope))
        return;
    if (json_kind_of(rope) != JSON_KIND_OBJECT) {
        report_add(r, "%s must be an object", name);
        return;
    }
    const char *type = rope_type(rope);
    int is_default = strcmp(type, "default") == 0;
    if (!is_default && strcmp(type, "llama3") != 0) {
        report_add(r, "%s: unsupported type %.40s: expected llama3 or default", name, type);
        return;
    }
    check_others(r, rope, "partial_rotary_factor");
    config_set_as(r, c, "rope_scaling", "rope_scaling", is_default ? "none" : "llama3", 0);
    for (size_t i = 0; i < (is_default ? 1 : DS_LEN(parts)); i++) {
        const struct json_node *n = json_get(rope, parts[i][0]);
        if (!is_null(n))
            take(r, c, n, parts[i][0], parts[i][1]);
        else if (i > 0)
            report_add(r, "%s: missing key %s", name, parts[i][0]);
    }
}

/* ---- unsupported options --------------------------------------------------------------------- */

/* Sliding-window attention in any of its spellings.  A window at least as long as the context has
 * no effect. */
static void check_window(struct report *r, const struct model_config *c,
                         const struct json_node *root, int family)
{
    static const char unknown[] = "sliding-window attention is unsupported";
    const struct json_node *kinds = json_get(root, "layer_types"),
                           *n = json_get(root, "sliding_window");
    int64_t window = n ? json_int(n, INT64_MAX) : MISTRAL_WINDOW;
    if (flag(r, root, "use_sliding_window", 0))
        report_add(r, "use_sliding_window: %s", unknown);
    if (!is_null(n) && json_kind_of(n) != JSON_KIND_INT)
        report_add(r, "sliding_window must be an integer");
    else if (family == MISTRAL && window < c->max_seq)
        report_add(r,
                   "sliding_window %" PRId64 "%s is below max_position_embeddings %" PRId64
                   ": %s (contexts within the window are supported)",
                   window, n ? "" : " (the default)", c->max_seq, unknown);
    if (!is_null(kinds) && json_kind_of(kinds) != JSON_KIND_ARRAY)
        report_add(r, "layer_types must be a list");
    for (size_t i = 0; i < json_len(kinds); i++) {
        const char *kind = json_str(json_at(kinds, i), NULL);
        if (kind && strcmp(kind, "full_attention") == 0)
            continue;
        report_add(r, "layer_types: %s", unknown);
        break;
    }
}

/* Keys of any family that announce quantised weights or custom code. */
static void check_foreign(struct report *r, const struct json_node *root)
{
    const struct json_node *quant = json_get(root, "quantization_config");
    if (!is_null(quant)) {
        const char *method = json_str(json_get(quant, "quant_method"), NULL);
        report_add(r,
                   "quantization_config: unsupported quantisation %.40s: expected GGUF or "
                   "unquantised weights",
                   method ? method : "(unnamed)");
    }
    if (!is_null(json_get(root, "auto_map")))
        report_add(r, "auto_map: models with custom code are unsupported (code is never run)");
    check_others(r, root, NULL);
}

static void check_llama(struct report *r, const struct model_config *c,
                        const struct json_node *root, int family)
{
    const char *act = word_of(r, root, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        report_add(r, "hidden_act: unsupported activation %.40s: expected silu", act);
    check_window(r, c, root, family);
}

static void check_gpt2(struct report *r, struct model_config *c, const struct json_node *root)
{
    static const char *const known[][2] = {
        {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu", "gelu"}};
    const char *act = word_of(r, root, "activation_function", "gelu_new");
    if (!flag(r, root, "scale_attn_weights", 1) ||
        flag(r, root, "scale_attn_by_inverse_layer_idx", 0))
        report_add(
            r, "scale_attn_weights: attention scores must be scaled by 1 / sqrt(head size); others "
               "are unsupported");
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (strcmp(act, known[i][0]) == 0) {
            config_set_as(r, c, "mlp", "mlp", known[i][1], 0);
            return;
        }
    report_add(r, "activation_function: unsupported activation %.40s: expected gelu_new or gelu",
               act);
}

int config_hf_read(struct report *r, struct model_config *c, const struct json_node *root)
{
    int family = family_of(root);
    if (family < 0)
        return 0;
    for (size_t i = 0; i < DS_LEN(keys); i++)
        read_key(r, c, root, &keys[i], family);
    check_foreign(r, root);
    config_experts_read(r, c, root, json_str(json_get(root, "model_type"), NULL));
    if (family == GPT2) {
        check_gpt2(r, c, root);
    } else {
        check_llama(r, c, root, family);
        read_rope(r, c, root);
    }
    return 1;
}

void config_hf_compare(struct report *r, const struct model_config *c, const struct json_node *root)
{
    char text[64], ours[64], full[64];
    int family = family_of(root) < 0 ? LLAMA : family_of(root);
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        const struct key *k = &keys[i];
        const struct json_node *n = json_get(root, k->hf);
        snprintf(full, sizeof full, "model.%s", k->own);
        const struct opt *o = opt_find(&model_group, full);
        if (!k->absent[family] || o->type != OPT_INT || is_null(n))
            continue;
        opt_print(o, c, ours, sizeof ours);
        if (!config_scalar(n, text))
            str_copy(text, sizeof text, "not a number");
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
