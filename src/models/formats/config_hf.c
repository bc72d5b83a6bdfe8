/* config.json of the families of transformers.  One table has every key that is read, with what each family's configuration
 * class takes where the file does not have it; what the class would compute and this program does not is refused. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "config_report.h"

enum { LLAMA, MISTRAL, QWEN2, GPT2, FAMILIES };

/* Per family: the value without the key; "=" before it: the class has no such key, and the value holds whatever the file says;
 * NEEDED: a file without the key describes no model, whatever the class would take; NULL: not of this family.
 * null: what an explicit null means, NULL where the class has no use for one. */
#define NEEDED "!"
struct key {
    const char *hf, *own, *absent[FAMILIES], *null;
};
static const struct key keys[] = {
    // clang-format off
    /*                             own           llama     mistral   qwen2     gpt2        null */
    {"",                          "method",     {"=dense", "=dense", "=dense", "=dense"},   NULL},
    {"",                          "norm",       {"=rms",   "=rms",   "=rms",   "=layer"},   NULL},
    {"",                          "position",   {"=rope",  "=rope",  "=rope",  "=learned"}, NULL},
    {"hidden_size",               "dim",        {NEEDED,   NEEDED,   NEEDED,   NULL},       NULL},
    {"num_hidden_layers",         "layers",     {NEEDED,   NEEDED,   NEEDED,   NULL},       NULL},
    {"num_attention_heads",       "heads",      {NEEDED,   NEEDED,   NEEDED,   NULL},       NULL},
    {"num_key_value_heads",       "kv_heads",   {"0",      "8",      "32",     NULL},       "0"},
    {"head_dim",                  "head_dim",   {"0",      "0",      "0",      NULL},       "0"},
    {"intermediate_size",         "ffn",        {NEEDED,   NEEDED,   NEEDED,   NULL},       NULL},
    {"vocab_size",                "vocab",      {NEEDED,   NEEDED,   NEEDED,   NEEDED},     NULL},
    {"max_position_embeddings",   "max_seq",    {"2048",   "131072", "32768",  NULL},       NULL},
    {"rms_norm_eps",              "norm_eps",   {"1e-6",   "1e-6",   "1e-6",   NULL},       NULL},
    {"rope_theta",                "rope_theta", {"10000",  "10000",  "10000",  NULL},       NULL},
    {"tie_word_embeddings",       "tied",       {"false",  "false",  "false",  "true"},     "false"},
    {"attention_bias",            "attn_bias",  {"false",  "=false", "=qkv",   "=true"},    "false"},
    {"mlp_bias",                  "mlp_bias",   {"false",  "=false", "=false", "=true"},    "false"},
    {"n_embd",                    "dim",        {NULL,     NULL,     NULL,     NEEDED},     NULL},
    {"n_layer",                   "layers",     {NULL,     NULL,     NULL,     NEEDED},     NULL},
    {"n_head",                    "heads",      {NULL,     NULL,     NULL,     NEEDED},     NULL},
    {"n_inner",                   "ffn",        {NULL,     NULL,     NULL,     "0"},        "0"},
    {"n_positions",               "max_seq",    {NULL,     NULL,     NULL,     "1024"},     NULL},
    {"layer_norm_epsilon",        "norm_eps",   {NULL,     NULL,     NULL,     "1e-5"},     NULL},
    // clang-format on
};

/* Attention of a Mistral class sees this many tokens back where the file does not say. */
enum { MISTRAL_WINDOW = 4096 };

/* Keys by which some class computes something else, and the value by which it does not. */
static const struct {
    const char *key;
    double neutral;
    const char *what;
} others[] = {
    // clang-format off
    {"is_causal",                  1, "attention to later tokens is not known here"},
    {"use_bidirectional_attention", 0, "attention to later tokens is not known here"},
    {"is_encoder_decoder",         0, "only decoders are known here"},
    {"add_cross_attention",        0, "attention to another text is not known here"},
    {"pruned_heads",               0, "layers with fewer heads are not known here"},
    {"attn_logit_softcapping",     0, "capped scores are not known here"},
    {"final_logit_softcapping",    0, "capped logits are not known here"},
    {"logit_scale",                1, "scaled logits are not known here"},
    {"logits_scaling",             1, "scaled logits are not known here"},
    {"embedding_multiplier",       1, "a scaled embedding is not known in this family"},
    {"residual_multiplier",        1, "scaled blocks are not known here"},
    {"clip_qkv",                   0, "clipped queries and keys are not known here"},
    {"use_qk_norm",                0, "norms on queries and keys are not known here"},
    {"qk_layernorm",               0, "norms on queries and keys are not known here"},
    {"num_local_experts",          0, "experts are not known here"},
    {"num_experts",                0, "experts are not known here"},
    {"alibi",                      0, "biases by distance are not known here"},
    {"use_mrope",                  0, "rotary positions of several kinds are not known here"},
    {"rope_interleaved",           0, "interleaved rotary pairs are not known in this family"},
    {"parallel_attn",              0, "attention next to the MLP is not known here"},
    {"use_parallel_residual",      0, "attention next to the MLP is not known here"},
    {"rotary_pct",                 1, "heads with fewer rotary dimensions are not known here"},
    {"partial_rotary_factor",      1, "heads with fewer rotary dimensions are not known here"},
    // clang-format on
};

static int family_of(const struct json_node *root)
{
    static const char *const names[FAMILIES] = {"llama", "mistral", "qwen2", "gpt2"};
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

/* ---- values ------------------------------------------------------------------------------------- */

/* A number or truth value of theirs into a row of ours. */
static void take(struct report *r, struct model_config *c, const struct json_node *n,
                 const char *hf, const char *own)
{
    const char *word = json_str(n, NULL);
    char text[64];
    if (config_scalar(n, text))
        config_set_as(r, c, own, hf, text, 1);
    else if (word)
        report_add(r, "%s is not a number or a truth value but \"%.40s\"", hf, word);
    else
        report_add(r, "%s is not a number or a truth value%s", hf, is_null(n) ? " but null" : "");
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

/* An explicit null is false, as in the language of the class. */
static int flag(struct report *r, const struct json_node *root, const char *key, int absent)
{
    const struct json_node *n = json_get(root, key);
    if (!is_null(n) && json_kind_of(n) != JSON_KIND_BOOL)
        report_add(r, "%s is neither true nor false", key);
    return json_bool(n, n ? 0 : absent);
}

/* A word of the file, or what the class has without it. */
static const char *word_of(struct report *r, const struct json_node *root, const char *key,
                           const char *absent)
{
    const struct json_node *n = json_get(root, key);
    if (n && !json_str(n, NULL))
        report_add(r, "%s is not a string", key);
    return json_str(n, NULL) ? json_str(n, NULL) : absent;
}

/* ---- rotary positions ---------------------------------------------------------------------------- */

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

/* Without a type it is the default one, which has a base and nothing else. */
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

/* `rope_scaling`, or `rope_parameters` as newer files call it: null, {"rope_type": "default"} or llama3's. */
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
        report_add(r, "%s is not an object", name);
        return;
    }
    const char *type = rope_type(rope);
    int is_default = strcmp(type, "default") == 0;
    if (!is_default && strcmp(type, "llama3") != 0) {
        report_add(r, "%s of type %.40s is not known here (llama3, default)", name, type);
        return;
    }
    check_others(r, rope, "partial_rotary_factor");
    config_set_as(r, c, "rope_scaling", "rope_scaling", is_default ? "none" : "llama3", 0);
    for (size_t i = 0; i < (is_default ? 1 : DS_LEN(parts)); i++) {
        const struct json_node *n = json_get(rope, parts[i][0]);
        if (!is_null(n))
            take(r, c, n, parts[i][0], parts[i][1]);
        else if (i > 0)
            report_add(r, "%s has no %s", name, parts[i][0]);
    }
}

/* ---- what is computed otherwise ------------------------------------------------------------------ */

/* Attention that sees a part of the past only, in any of the spellings.  A window that no context outgrows is none. */
static void check_window(struct report *r, const struct model_config *c,
                         const struct json_node *root, int family)
{
    static const char unknown[] = "sliding windows of attention are not known here";
    const struct json_node *kinds = json_get(root, "layer_types"),
                           *n = json_get(root, "sliding_window");
    int64_t window = n ? json_int(n, INT64_MAX) : MISTRAL_WINDOW;
    if (flag(r, root, "use_sliding_window", 0))
        report_add(r, "use_sliding_window: %s", unknown);
    if (!is_null(n) && json_kind_of(n) != JSON_KIND_INT)
        report_add(r, "sliding_window is not a whole number");
    else if (family == MISTRAL && window < c->max_seq)
        report_add(r,
                   "sliding_window %" PRId64 "%s is below max_position_embeddings %" PRId64
                   ": %s (contexts within the window are)",
                   window, n ? "" : ", which it is without the key,", c->max_seq, unknown);
    if (!is_null(kinds) && json_kind_of(kinds) != JSON_KIND_ARRAY)
        report_add(r, "layer_types is not a list");
    for (size_t i = 0; i < json_len(kinds); i++) {
        const char *kind = json_str(json_at(kinds, i), NULL);
        if (kind && strcmp(kind, "full_attention") == 0)
            continue;
        report_add(r, "layer_types: %s", unknown);
        break;
    }
}

/* What any family's file may say of weights and code that are not as its name promises. */
static void check_foreign(struct report *r, const struct json_node *root)
{
    const struct json_node *quant = json_get(root, "quantization_config");
    if (!is_null(quant)) {
        const char *method = json_str(json_get(quant, "quant_method"), NULL);
        report_add(r,
                   "quantization_config: weights quantised by %.40s are not known here (blocks of "
                   "GGUF are)",
                   method ? method : "another program");
    }
    if (!is_null(json_get(root, "auto_map")))
        report_add(r,
                   "auto_map: a model with code of its own is not known here (code is never run)");
    check_others(r, root, NULL);
}

static void check_llama(struct report *r, const struct model_config *c,
                        const struct json_node *root, int family)
{
    const char *act = word_of(r, root, "hidden_act", "silu");
    if (strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        report_add(r, "hidden_act %.40s is not known here (silu)", act);
    check_window(r, c, root, family);
}

static void check_gpt2(struct report *r, struct model_config *c, const struct json_node *root)
{
    static const char *const known[][2] = {
        {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu", "gelu"}};
    const char *act = word_of(r, root, "activation_function", "gelu_new");
    if (!flag(r, root, "scale_attn_weights", 1) ||
        flag(r, root, "scale_attn_by_inverse_layer_idx", 0))
        report_add(r,
                   "scale_attn_weights: only scores divided by the root of the head size are known "
                   "here");
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (strcmp(act, known[i][0]) == 0) {
            config_set_as(r, c, "mlp", "mlp", known[i][1], 0);
            return;
        }
    report_add(r, "activation_function %.40s is not known here (gelu_new, gelu)", act);
}

int config_hf_read(struct report *r, struct model_config *c, const struct json_node *root)
{
    int family = family_of(root);
    if (family < 0)
        return 0;
    for (size_t i = 0; i < DS_LEN(keys); i++)
        read_key(r, c, root, &keys[i], family);
    check_foreign(r, root);
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
            str_copy(text, sizeof text, "no number");
        if (strcmp(text, ours) != 0)
            report_add(r, "%s is %s, depthscope's %s is %s", k->hf, text, full, ours);
    }
}

/* ---- ends of texts ------------------------------------------------------------------------------- */

static int add_end(struct report *r, struct model_config *c, const struct json_node *n)
{
    int is_int = json_kind_of(n) == JSON_KIND_INT;
    double v = json_num(n, 0.5);
    if (!is_int && !(fabs(v) < 0x1p53 && v == floor(v))) {
        report_add(r, "eos_token_id is not a whole number or a list of whole numbers");
        return -1;
    }
    if (model_config_add_end(c, is_int ? json_int(n, -1) : (int64_t)v) < 0) {
        report_add(r, "eos_token_id has more than %d different ids", (int)MODEL_ENDS_MAX);
        return -1;
    }
    return 0;
}

int config_hf_ends(struct report *r, struct model_config *c, const struct json_node *root)
{
    const struct json_node *n = json_get(root, "eos_token_id");
    if (is_null(n))
        return 0;
    model_config_no_ends(c);
    if (json_kind_of(n) != JSON_KIND_ARRAY)
        add_end(r, c, n);
    for (size_t i = 0; i < json_len(n); i++)
        if (json_kind_of(n) == JSON_KIND_ARRAY && add_end(r, c, json_at(n, i)) < 0)
            break;
    return 1;
}
