/* config.json: Hugging Face's keys for what other programs read, our own below "depthscope". */
#include <stdarg.h>
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

/* ---- reading ------------------------------------------------------------------------------------- */

/* What is wrong with a file, all of it: one who mends a configuration wants to see every place at once. */
struct report {
    struct str text;
    int n, code;
};

static void wrong(struct report *r, const char *fmt, ...) DS_PRINTF(2, 3);
static void wrong(struct report *r, const char *fmt, ...)
{
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof line, fmt, ap);
    va_end(ap);
    str_addf(&r->text, "%s%s", r->n++ ? "; " : "", line);
    r->code = DS_EFORMAT;
}

/* The report as an error, which it is then done with. */
static int report_end(struct report *r, const char *path, struct err *e)
{
    int rc = 0;
    if (r->text.failed)
        rc = err_set(e, DS_EMEM, "%s: no memory for what is wrong with it", path);
    else if (r->n > 0)
        rc = err_set(e, r->code, "%s: %s", path, str_text(&r->text));
    str_release(&r->text);
    return rc;
}

/* A row of ours from text, called by the file's own name.  least: the smallest size, where ours takes 0 for one to be found. */
static void set_as(struct report *r, struct model_config *c, const char *own, const char *name,
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
        wrong(r, "%s", e.text);
}

static void set_own(struct report *r, struct model_config *c, const char *own, const char *text)
{
    set_as(r, c, own, own, text, 0);
}

/* Our own keys, when the file has them, describe everything. */
static void read_own(struct report *r, struct model_config *c, struct config *route_options,
                     const struct json_node *own, const char *path)
{
    const char *key;
    const struct json_node *v;
    struct err e = {0};
    if (json_kind_of(own) != JSON_KIND_OBJECT)
        wrong(r, "depthscope is not an object");
    for (size_t i = 0; (v = json_member(own, i, &key, NULL)) != NULL; i++) {
        const char *text = json_str(v, NULL);
        const struct opt *o = opt_find(&model_group, key);
        if (!text)
            wrong(r, "depthscope.%.60s is not a string", key);
        else if (o ? opt_set(o, c, text, "depthscope", &e) < 0
                   : config_set(route_options, key, text, path, &e) < 0)
            wrong(r, "%s", e.text);
    }
}

/* A number or truth value as text; 0 when it is neither. */
static int scalar_text(const struct json_node *n, char text[64])
{
    switch (json_kind_of(n)) {
    case JSON_KIND_BOOL: snprintf(text, 64, "%s", json_bool(n, 0) ? "true" : "false"); return 1;
    case JSON_KIND_INT: snprintf(text, 64, "%lld", (long long)json_int(n, 0)); return 1;
    case JSON_KIND_REAL: snprintf(text, 64, "%.17g", json_num(n, 0)); return 1;
    default: return 0;
    }
}

static int is_null(const struct json_node *n)
{
    return json_kind_of(n) == JSON_KIND_NULL;
}

/* A number or truth value of theirs into a row of ours; what is absent or null keeps its default. */
static void take(struct report *r, struct model_config *c, const struct json_node *object,
                 const char *hf, const char *own)
{
    const struct json_node *n = json_get(object, hf);
    const char *word = json_str(n, NULL);
    char text[64];
    if (scalar_text(n, text))
        set_as(r, c, own, hf, text, 1);
    else if (word)
        wrong(r, "%s is not a number or a truth value but \"%.40s\"", hf, word);
    else if (!is_null(n))
        wrong(r, "%s is not a number or a truth value", hf);
}

static int flag(struct report *r, const struct json_node *root, const char *key, int otherwise)
{
    const struct json_node *n = json_get(root, key);
    if (!is_null(n) && json_kind_of(n) != JSON_KIND_BOOL)
        wrong(r, "%s is neither true nor false", key);
    return json_bool(n, otherwise);
}

/* A word of the file, or NULL when it says none. */
static const char *word_of(struct report *r, const struct json_node *root, const char *key)
{
    const struct json_node *n = json_get(root, key);
    if (!is_null(n) && !json_str(n, NULL))
        wrong(r, "%s is not a string", key);
    return json_str(n, NULL);
}

/* Heads that turn in part only; newer files have it among the rotary parameters. */
static void check_partial(struct report *r, const struct json_node *object)
{
    const struct json_node *n = json_get(object, "partial_rotary_factor");
    if (!is_null(n) && json_num(n, 0) != 1)
        wrong(r, "partial_rotary_factor: heads that turn in part are not known here");
}

/* `rope_scaling`, or `rope_parameters` as newer files call it: null, {"rope_type": "default"} or llama3's. */
static void read_rope(struct report *r, struct model_config *c, const struct json_node *root)
{
    static const char *const keys[][2] = {
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
        wrong(r, "%s is not an object", name);
        return;
    }
    const char *type = json_str(json_get(rope, "rope_type"), NULL);
    if (!type)
        type = json_str(json_get(rope, "type"), NULL);
    int is_default = type && strcmp(type, "default") == 0;
    if (!type || (!is_default && strcmp(type, "llama3") != 0)) {
        wrong(r, "%s of type %.40s is not known here (llama3, default)", name,
              type ? type : "none");
        return;
    }
    check_partial(r, rope);
    set_own(r, c, "rope_scaling", is_default ? "none" : "llama3");
    for (size_t i = 0; i < (is_default ? 1 : DS_LEN(keys)); i++) {
        if (i > 0 && is_null(json_get(rope, keys[i][0])))
            wrong(r, "%s has no %s", name, keys[i][0]);
        take(r, c, rope, keys[i][0], keys[i][1]);
    }
}

/* Attention that sees a part of the past only, in any of the spellings.  A window that no context outgrows is none. */
static void check_window(struct report *r, const struct model_config *c,
                         const struct json_node *root, const char *type)
{
    static const char unknown[] = "sliding windows of attention are not known here";
    const struct json_node *kinds = json_get(root, "layer_types"),
                           *window = json_get(root, "sliding_window");
    if (flag(r, root, "use_sliding_window", 0))
        wrong(r, "use_sliding_window: %s", unknown);
    if (!is_null(window) && json_kind_of(window) != JSON_KIND_INT)
        wrong(r, "sliding_window is not a whole number");
    else if (strcmp(type, "mistral") == 0 && !is_null(window) && json_int(window, 0) < c->max_seq)
        wrong(r,
              "sliding_window %lld is below max_position_embeddings %lld: %s (contexts within the "
              "window are)",
              (long long)json_int(window, 0), (long long)c->max_seq, unknown);
    if (!is_null(kinds) && json_kind_of(kinds) != JSON_KIND_ARRAY)
        wrong(r, "layer_types is not a list");
    for (size_t i = 0; i < json_len(kinds); i++) {
        const char *kind = json_str(json_at(kinds, i), NULL);
        if (kind && strcmp(kind, "full_attention") == 0)
            continue;
        wrong(r, "layer_types: %s", unknown);
        break;
    }
}

/* What any family's file may say of weights and code that are not as its name promises. */
static void check_foreign(struct report *r, const struct json_node *root)
{
    const struct json_node *quant = json_get(root, "quantization_config");
    if (!is_null(quant)) {
        const char *method = json_str(json_get(quant, "quant_method"), NULL);
        wrong(r,
              "quantization_config: weights quantised by %.40s are not known here (blocks of GGUF "
              "are)",
              method ? method : "another program");
    }
    if (!is_null(json_get(root, "auto_map")))
        wrong(r, "auto_map: a model with code of its own is not known here (code is never run)");
    if (flag(r, root, "is_encoder_decoder", 0))
        wrong(r, "is_encoder_decoder: only decoders are known here");
}

/* What such files may say beside their shape is either silent or refused. */
static void check_llama(struct report *r, const struct model_config *c,
                        const struct json_node *root, const char *type)
{
    const char *act = word_of(r, root, "hidden_act");
    if (act && strcmp(act, "silu") != 0 && strcmp(act, "swish") != 0)
        wrong(r, "hidden_act %.40s is not known here (silu)", act);
    check_partial(r, root);
    check_window(r, c, root, type);
}

static void check_gpt2(struct report *r, struct model_config *c, const struct json_node *root)
{
    static const char *const known[][2] = {
        {"gelu_new", "gelu_tanh"}, {"gelu_pytorch_tanh", "gelu_tanh"}, {"gelu", "gelu"}};
    const char *act = word_of(r, root, "activation_function");
    if (!flag(r, root, "scale_attn_weights", 1) ||
        flag(r, root, "scale_attn_by_inverse_layer_idx", 0))
        wrong(r, "scale_attn_weights: only scores divided by the root of the head size are known "
                 "here");
    if (flag(r, root, "add_cross_attention", 0))
        wrong(r, "add_cross_attention: attention to another text is not known here");
    for (size_t i = 0; i < DS_LEN(known); i++)
        if (strcmp(act ? act : "gelu_new", known[i][0]) == 0) {
            set_own(r, c, "mlp", known[i][1]);
            return;
        }
    wrong(r, "activation_function %.40s is not known here (gelu_new, gelu)", act);
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

static void read_foreign(struct report *r, struct model_config *c, const struct json_node *root,
                         const struct family *f)
{
    set_own(r, c, "method", "dense");
    for (size_t i = 0; i < f->n_otherwise; i++)
        set_own(r, c, f->otherwise[i].own, f->otherwise[i].hf);
    for (size_t i = 0; i < f->n_keys; i++) {
        const struct key *k = &f->keys[i];
        if (k->is_needed && is_null(json_get(root, k->hf)))
            wrong(r, "%s is missing", k->hf);
        else
            take(r, c, root, k->hf, k->own);
    }
    check_foreign(r, root);
    if (f->keys == gpt2_keys) {
        check_gpt2(r, c, root);
    } else {
        check_llama(r, c, root, f->type);
        read_rope(r, c, root);
    }
}

/* Beside our own keys stand theirs, for other programs: sizes that differ are one edit too few. */
static void compare_sizes(struct report *r, const struct model_config *c,
                          const struct json_node *root, const struct family *f)
{
    char text[64], ours[64], full[64];
    for (size_t i = 0; i < f->n_keys; i++) {
        const struct key *k = &f->keys[i];
        snprintf(full, sizeof full, "model.%s", k->own);
        const struct opt *o = opt_find(&model_group, full);
        if (o->type != OPT_INT || is_null(json_get(root, k->hf)))
            continue;
        opt_print(o, c, ours, sizeof ours);
        if (!scalar_text(json_get(root, k->hf), text))
            str_copy(text, sizeof text, "no number");
        if (strcmp(text, ours) != 0)
            wrong(r, "%s is %s, depthscope's %s is %s", k->hf, text, full, ours);
    }
}

static int read_root(struct model_config *c, struct config *route_options,
                     const struct json_node *root, const char *path, struct err *e)
{
    struct report r = {0};
    const struct json_node *own = json_get(root, "depthscope");
    const char *type = json_str(json_get(root, "model_type"), NULL);
    const struct family *f = family_of(type);
    if (own)
        read_own(&r, c, route_options, own, path);
    else if (f)
        read_foreign(&r, c, root, f);
    else
        wrong(&r, "model_type %.60s is not known here (llama, mistral, qwen2, gpt2, depthscope)",
              type ? type : "is missing; it");
    if (r.n == 0) {
        int rc = model_config_check(c, e);
        if (rc < 0)
            return err_add(e, rc == DS_EUSAGE ? DS_EFORMAT : rc, "%s", path);
        if (own)
            compare_sizes(&r, c, root, f ? f : families);
    }
    return report_end(&r, path, e);
}

int model_config_from_json(struct model_config *c, struct config *route_options, const char *path,
                           struct err *e)
{
    struct json *j = NULL;
    int rc = json_read_file(&j, path, 1 << 20, e);
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
