/* config.json: Hugging Face's keys for what other programs read, our own below "depthscope". */
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "models/config.h"
#include "routing/route.h"

/* The model_type whose program would compute the same, or NULL: routers and adapters have no place in theirs. */
static const char *foreign_type(const struct model_config *c)
{
    int is_same = c->norm == NORM_RMS && c->position == POS_ROPE && c->mlp == MLP_SWIGLU &&
                  c->embed_scale == 1.0 && c->lora_r == 0 && strcmp(c->method, "dense") == 0;
    if (!is_same)
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

void model_config_to_json(struct str *s, const struct model_config *c,
                          const struct config *route_options)
{
    const char *type = foreign_type(c);
    int is_qwen2 = type && strcmp(type, "qwen2") == 0;
    str_addf(s, "{\n  \"architectures\": [\"%sForCausalLM\"],\n  \"model_type\": \"%s\",\n",
             is_qwen2 ? "Qwen2"
             : type   ? "Llama"
                      : "Depthscope",
             type ? type : "depthscope");
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
    str_addf(s,
             "  \"hidden_act\": \"silu\",\n  \"attention_bias\": %s,\n  \"mlp_bias\": %s,\n"
             "  \"tie_word_embeddings\": %s,\n",
             c->attn_bias == ATTN_BIAS_ALL ? "true" : "false", c->mlp_bias ? "true" : "false",
             c->tied ? "true" : "false");
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

/* Llama and Qwen2 differ in their biases alone; the rest of what such files may say is either silent or refused. */
static int check_foreign(const struct json_node *root, const char *path, struct err *e)
{
    const char *act = json_str(json_get(root, "hidden_act"), NULL);
    if (act && strcmp(act, "silu") != 0)
        return err_set(e, DS_EFORMAT, "%s: hidden_act %.40s is not known here (silu)", path, act);
    if (json_bool(json_get(root, "use_sliding_window"), 0))
        return err_set(e, DS_EFORMAT, "%s: sliding windows of attention are not known here", path);
    return 0;
}

static int read_foreign(struct model_config *c, const struct json_node *root, int is_qwen2,
                        const char *path, struct err *e)
{
    static const struct {
        const char *hf, *own;
    } keys[] = {
        {"hidden_size", "dim"},           {"num_hidden_layers", "layers"},
        {"num_attention_heads", "heads"}, {"num_key_value_heads", "kv_heads"},
        {"head_dim", "head_dim"},         {"intermediate_size", "ffn"},
        {"vocab_size", "vocab"},          {"max_position_embeddings", "max_seq"},
        {"rms_norm_eps", "norm_eps"},     {"rope_theta", "rope_theta"},
        {"attention_bias", "attn_bias"},  {"mlp_bias", "mlp_bias"},
        {"tie_word_embeddings", "tied"},
    };
    /* what their files leave out */
    static const char *const otherwise[][2] = {
        {"method", "dense"}, {"tied", "false"}, {"norm_eps", "1e-6"}, {"max_seq", "2048"}};
    int rc = check_foreign(root, path, e);
    for (size_t i = 0; i < DS_LEN(otherwise) && rc == 0; i++)
        rc = set_own(c, otherwise[i][0], otherwise[i][1], path, e);
    for (size_t i = 0; i < DS_LEN(keys) && rc == 0; i++)
        rc = take(c, root, keys[i].hf, keys[i].own, path, e);
    if (rc == 0 && is_qwen2)
        rc = set_own(c, "attn_bias", "qkv", path, e);
    return rc == 0 ? read_rope(c, root, path, e) : rc;
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
    else if (rc == 0 && type && (strcmp(type, "llama") == 0 || strcmp(type, "qwen2") == 0))
        rc = read_foreign(c, root, type[0] == 'q', path, e);
    else if (rc == 0)
        rc =
            err_set(e, DS_EFORMAT, "%s: model_type %s is not known here (llama, qwen2, depthscope)",
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
