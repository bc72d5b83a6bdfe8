/* config.json: Hugging Face's keys for what other programs read, our own below "depthscope". */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "models/config.h"
#include "routing/route.h"

static int is_gpt2(const struct model_config *c)
{
    return c->norm == NORM_LAYER && c->position == POS_LEARNED && c->mlp != MLP_SWIGLU &&
           c->attn_bias == ATTN_BIAS_ALL && c->mlp_bias && c->kv_heads == c->heads &&
           c->heads * c->head_dim == c->dim;
}

const char *model_config_family(const struct model_config *c)
{
    if (c->embed_scale != 1.0 || c->lora_r != 0 || strcmp(c->method, "dense") != 0)
        return NULL; /* routers and adapters have no place in theirs */
    if (is_gpt2(c))
        return "gpt2";
    if (c->norm != NORM_RMS || c->position != POS_ROPE || c->mlp != MLP_SWIGLU)
        return NULL;
    if (c->attn_bias == ATTN_BIAS_QKV)
        return c->mlp_bias ? NULL : "qwen2";
    return "llama";
}

static void add_key(struct str *s, const char *key, int64_t v)
{
    str_addf(s, "  \"%s\": %lld,\n", key, (long long)v);
}

static void add_rope(struct str *s, const struct model_config *c)
{
    str_addf(s, "  \"rope_theta\": %.9g,\n  \"rope_scaling\": ", c->rope_theta);
    if (c->rope_scaling == ROPE_LLAMA3)
        str_addf(s,
                 "{\"rope_type\": \"llama3\", \"factor\": %.9g, \"low_freq_factor\": %.9g, "
                 "\"high_freq_factor\": %.9g, \"original_max_position_embeddings\": %lld},\n",
                 c->rope_factor, c->rope_low, c->rope_high, (long long)c->rope_original);
    else
        str_add(s, "null,\n");
}

static void add_llama(struct str *s, const struct model_config *c)
{
    add_key(s, "hidden_size", c->dim);
    add_key(s, "num_hidden_layers", c->layers);
    add_key(s, "num_attention_heads", c->heads);
    add_key(s, "num_key_value_heads", c->kv_heads);
    add_key(s, "head_dim", c->head_dim);
    add_key(s, "intermediate_size", c->ffn);
    add_key(s, "vocab_size", c->vocab);
    add_key(s, "max_position_embeddings", c->max_seq);
    str_addf(s, "  \"rms_norm_eps\": %.9g,\n", c->norm_eps);
    add_rope(s, c);
    str_addf(s, "  \"hidden_act\": \"silu\",\n  \"attention_bias\": %s,\n  \"mlp_bias\": %s,\n",
             c->attn_bias == ATTN_BIAS_ALL ? "true" : "false", c->mlp_bias ? "true" : "false");
}

static void add_gpt2(struct str *s, const struct model_config *c)
{
    add_key(s, "n_embd", c->dim);
    add_key(s, "n_layer", c->layers);
    add_key(s, "n_head", c->heads);
    add_key(s, "n_inner", c->ffn);
    add_key(s, "n_positions", c->max_seq);
    add_key(s, "vocab_size", c->vocab);
    str_addf(s,
             "  \"layer_norm_epsilon\": %.9g,\n  \"activation_function\": \"%s\",\n"
             "  \"bos_token_id\": null,\n  \"eos_token_id\": null,\n",
             c->norm_eps, c->mlp == MLP_GELU ? "gelu" : "gelu_new");
}

static const char *architecture(const char *family)
{
    static const char *const names[][2] = {
        {"llama", "LlamaForCausalLM"}, {"qwen2", "Qwen2ForCausalLM"}, {"gpt2", "GPT2LMHeadModel"}};
    for (size_t i = 0; family && i < DS_LEN(names); i++)
        if (strcmp(names[i][0], family) == 0)
            return names[i][1];
    return "DepthscopeForCausalLM";
}

void model_config_to_json(struct str *s, const struct model_config *c,
                          const struct config *route_options)
{
    const char *type = model_config_family(c);
    str_addf(s, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
             architecture(type), type ? type : "depthscope");
    if (type && strcmp(type, "gpt2") == 0)
        add_gpt2(s, c);
    else
        add_llama(s, c);
    str_addf(s, "  \"tie_word_embeddings\": %s,\n", c->tied ? "true" : "false");
    str_add(s, "  \"torch_dtype\": \"float32\",\n  \"depthscope\": {");
    for (size_t i = 0; i < model_group.n; i++) {
        char value[256];
        opt_print(&model_group.opts[i], c, value, sizeof value);
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

/* Our own keys, when the file has them, describe everything. */
static int read_own(struct model_config *c, struct config *route_options,
                    const struct json_node *own, const char *path, struct err *e)
{
    const char *key;
    const struct json_node *v;
    for (size_t i = 0; (v = json_member(own, i, &key, NULL)) != NULL; i++) {
        const char *text = json_str(v, NULL);
        if (!text)
            return err_set(e, DS_EFORMAT, "%s: depthscope.%s is not a string", path, key);
        const struct opt *o = opt_find(&model_group, key);
        int rc = o ? opt_set(o, c, text, path, e) : config_set(route_options, key, text, path, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

static int set_own(struct model_config *c, const char *own, const char *text, const char *path,
                   struct err *e)
{
    char full[64];
    snprintf(full, sizeof full, "model.%s", own);
    return opt_set(opt_find(&model_group, full), c, text, path, e);
}

/* A number or truth value of theirs into a row of ours; what is absent or null keeps its default. */
static int take(struct model_config *c, const struct json_node *object, const char *hf,
                const char *own, const char *path, struct err *e)
{
    const struct json_node *n = json_get(object, hf);
    char text[64];
    switch (json_kind_of(n)) {
    case JSON_KIND_NULL: return 0;
    case JSON_KIND_BOOL:
        snprintf(text, sizeof text, "%s", json_bool(n, 0) ? "true" : "false");
        break;
    case JSON_KIND_INT: snprintf(text, sizeof text, "%lld", (long long)json_int(n, 0)); break;
    case JSON_KIND_REAL: snprintf(text, sizeof text, "%.17g", json_num(n, 0)); break;
    default: return err_set(e, DS_EFORMAT, "%s: %s is not a number or a truth value", path, hf);
    }
    int rc = set_own(c, own, text, path, e);
    return rc < 0 ? err_add(e, rc, "%s", hf) : 0;
}

/* `rope_scaling`, or `rope_parameters` as newer files call it: null, {"rope_type": "default"} or llama3's. */
static int read_rope(struct model_config *c, const struct json_node *root, const char *path,
                     struct err *e)
{
    static const char *const keys[][2] = {
        {"rope_theta", "rope_theta"},
        {"factor", "rope_factor"},
        {"low_freq_factor", "rope_low"},
        {"high_freq_factor", "rope_high"},
        {"original_max_position_embeddings", "rope_original"},
    };
    const char *name = json_kind_of(json_get(root, "rope_scaling")) != JSON_KIND_NULL
                           ? "rope_scaling"
                           : "rope_parameters";
    const struct json_node *rope = json_get(root, name);
    if (json_kind_of(rope) == JSON_KIND_NULL)
        return 0;
    if (json_kind_of(rope) != JSON_KIND_OBJECT)
        return err_set(e, DS_EFORMAT, "%s: %s is not an object", path, name);
    const char *type = json_str(json_get(rope, "rope_type"), NULL);
    if (!type)
        type = json_str(json_get(rope, "type"), NULL);
    int is_default = type && strcmp(type, "default") == 0;
    if (!type || (!is_default && strcmp(type, "llama3") != 0))
        return err_set(e, DS_EFORMAT, "%s: %s of type %.40s is not known here (llama3, default)",
                       path, name, type ? type : "none");
    int rc = set_own(c, "rope_scaling", is_default ? "none" : "llama3", path, e);
    for (size_t i = 0; i < (is_default ? 1 : DS_LEN(keys)) && rc == 0; i++) {
        if (i > 0 && json_kind_of(json_get(rope, keys[i][0])) == JSON_KIND_NULL)
            return err_set(e, DS_EFORMAT, "%s: %s has no %s", path, name, keys[i][0]);
        rc = take(c, rope, keys[i][0], keys[i][1], path, e);
    }
    return rc;
}

static int refuse(const char *path, struct err *e, const char *key, const char *what)
{
    return err_set(e, DS_EFORMAT, "%s: %s: %s", path, key, what);
}

/* Attention that sees a part of the past only, in any of the spellings. */
static int check_window(const struct json_node *root, const char *type, const char *path,
                        struct err *e)
{
    static const char unknown[] = "sliding windows of attention are not known here";
    const struct json_node *kinds = json_get(root, "layer_types"),
                           *window = json_get(root, "sliding_window");
    if (json_bool(json_get(root, "use_sliding_window"), 0))
        return refuse(path, e, "use_sliding_window", unknown);
    if (strcmp(type, "mistral") == 0 && json_kind_of(window) != JSON_KIND_NULL)
        return refuse(path, e, "sliding_window", unknown);
    for (size_t i = 0; i < json_len(kinds); i++) {
        const char *kind = json_str(json_at(kinds, i), NULL);
        if (!kind || strcmp(kind, "full_attention") != 0)
            return refuse(path, e, "layer_types", unknown);
    }
    return 0;
}

/* What such files may say beside their shape is either silent or refused. */
static int check_llama(const struct json_node *root, const char *type, const char *path,
                       struct err *e)
{
    const char *act = json_str(json_get(root, "hidden_act"), NULL);
    if (act && strcmp(act, "silu") != 0)
        return err_set(e, DS_EFORMAT, "%s: hidden_act %.40s is not known here (silu)", path, act);
    if (json_num(json_get(root, "partial_rotary_factor"), 1) != 1)
        return refuse(path, e, "partial_rotary_factor",
                      "heads that turn in part are not known here");
    return check_window(root, type, path, e);
}

static int check_gpt2(const struct json_node *root, const char *path, struct err *e)
{
    if (!json_bool(json_get(root, "scale_attn_weights"), 1) ||
        json_bool(json_get(root, "scale_attn_by_inverse_layer_idx"), 0))
        return refuse(path, e, "scale_attn_weights",
                      "only scores divided by the root of the head size are known here");
    if (json_bool(json_get(root, "add_cross_attention"), 0))
        return refuse(path, e, "add_cross_attention",
                      "attention to another text is not known here");
    return 0;
}

static int set_gpt2_activation(struct model_config *c, const struct json_node *root,
                               const char *path, struct err *e)
{
    static const char *const known[][2] = {
        {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu", "gelu"}};
    const char *act = json_str(json_get(root, "activation_function"), NULL);
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (strcmp(act ? act : "gelu_new", known[i][0]) == 0)
            return set_own(c, "mlp", known[i][1], path, e);
    return err_set(e, DS_EFORMAT,
                   "%s: activation_function %.40s is not known here (gelu_new, gelu)", path, act);
}

struct key {
    const char *hf, *own;
    int is_needed; /* a file without it describes no model */
};

/* One family of files: what they leave out, and what they say. */
struct family {
    const char *type;
    const struct key *otherwise, *keys;
    size_t n_otherwise, n_keys;
};

static const struct key llama_otherwise[] = {
    // clang-format off
    {"false",                    "tied",      0},
    {"1e-6",                     "norm_eps",  0},
    {"2048",                     "max_seq",   0},
    // clang-format on
};
static const struct key qwen2_otherwise[] = {
    // clang-format off
    {"false",                    "tied",      0},
    {"1e-6",                     "norm_eps",  0},
    {"2048",                     "max_seq",   0},
    {"qkv",                      "attn_bias", 0},
    // clang-format on
};
static const struct key gpt2_otherwise[] = {
    // clang-format off
    {"true",                     "tied",      0},
    {"1e-5",                     "norm_eps",  0},
    {"1024",                     "max_seq",   0},
    {"layer",                    "norm",      0},
    {"true",                     "mlp_bias",  0},
    {"learned",                  "position",  0},
    {"true",                     "attn_bias", 0},
    // clang-format on
};
static const struct key llama_keys[] = {
    // clang-format off
    {"hidden_size",              "dim",       1},
    {"num_hidden_layers",        "layers",    1},
    {"num_attention_heads",      "heads",     1},
    {"num_key_value_heads",      "kv_heads",  0},
    {"head_dim",                 "head_dim",  0},
    {"intermediate_size",        "ffn",       1},
    {"vocab_size",               "vocab",     1},
    {"max_position_embeddings",  "max_seq",   0},
    {"rms_norm_eps",             "norm_eps",  0},
    {"rope_theta",               "rope_theta", 0},
    {"tie_word_embeddings",      "tied",      0},
    {"attention_bias",           "attn_bias", 0},
    {"mlp_bias",                 "mlp_bias",  0},
    // clang-format on
};
enum { BIAS_KEYS = 2 }; /* the last two of them: Llama's alone */
static const struct key gpt2_keys[] = {
    // clang-format off
    {"n_embd",                   "dim",       1},
    {"n_layer",                  "layers",    1},
    {"n_head",                   "heads",     1},
    {"n_inner",                  "ffn",       0},
    {"vocab_size",               "vocab",     1},
    {"n_ctx",                    "max_seq",   0},
    {"n_positions",              "max_seq",   0},
    {"layer_norm_epsilon",       "norm_eps",  0},
    {"tie_word_embeddings",      "tied",      0},
    // clang-format on
};

#define KEYS(otherwise, keys, less)                                                                \
    otherwise, keys, DS_LEN(otherwise), DS_LEN(keys) - (size_t)(less)
static const struct family families[] = {
    {"llama", KEYS(llama_otherwise, llama_keys, 0)},
    {"mistral", KEYS(llama_otherwise, llama_keys, BIAS_KEYS)},
    {"qwen2", KEYS(qwen2_otherwise, llama_keys, BIAS_KEYS)},
    {"gpt2", KEYS(gpt2_otherwise, gpt2_keys, 0)},
};

static const struct family *family_of(const char *type)
{
    for (size_t i = 0; type && i < DS_LEN(families); i++)
        if (strcmp(families[i].type, type) == 0)
            return &families[i];
    return NULL;
}

static int read_foreign(struct model_config *c, const struct json_node *root,
                        const struct family *f, const char *path, struct err *e)
{
    int gpt2 = f->keys == gpt2_keys;
    int rc = gpt2 ? check_gpt2(root, path, e) : check_llama(root, f->type, path, e);
    if (rc == 0)
        rc = set_own(c, "method", "dense", path, e);
    for (size_t i = 0; i < f->n_otherwise && rc == 0; i++)
        rc = set_own(c, f->otherwise[i].own, f->otherwise[i].hf, path, e);
    for (size_t i = 0; i < f->n_keys && rc == 0; i++) {
        const struct key *k = &f->keys[i];
        if (k->is_needed && json_kind_of(json_get(root, k->hf)) == JSON_KIND_NULL)
            rc = err_set(e, DS_EFORMAT, "%s: %s is missing", path, k->hf);
        else
            rc = take(c, root, k->hf, k->own, path, e);
    }
    if (rc < 0)
        return rc;
    return gpt2 ? set_gpt2_activation(c, root, path, e) : read_rope(c, root, path, e);
}

int model_config_from_json(struct model_config *c, struct config *route_options, const char *path,
                           struct err *e)
{
    struct json *j = NULL;
    int rc = json_read_file(&j, path, 1 << 20, e);
    if (rc < 0)
        return rc;
    const struct json_node *root = json_root(j), *own = json_get(root, "depthscope");
    const char *type = json_str(json_get(root, "model_type"), NULL);
    memset(c, 0, sizeof *c);
    rc = opt_defaults(&model_group, c, e);
    if (rc == 0 && own)
        rc = read_own(c, route_options, own, path, e);
    else if (rc == 0 && family_of(type))
        rc = read_foreign(c, root, family_of(type), path, e);
    else if (rc == 0)
        rc = err_set(e, DS_EFORMAT,
                     "%s: model_type %.60s is not known here (llama, mistral, qwen2, gpt2, "
                     "depthscope)",
                     path, type ? type : "is missing; it");
    if (rc == 0)
        rc = model_config_check(c, e);
    if (rc < 0) {
        err_add(e, rc, "%s", path);
        opt_release(&model_group, c);
    }
    json_free(j);
    return rc;
}
