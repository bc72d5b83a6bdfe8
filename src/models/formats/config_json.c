/* Reads and writes config.json: Hugging Face's keys for other programs, our own under
 * "depthscope". */
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "config_report.h"

enum { CONFIG_MAX = 1 << 20 };

static int is_gpt2(const struct model_config *c)
{
    return c->norm == NORM_LAYER && c->position == POS_LEARNED && c->mlp != MLP_SWIGLU &&
           c->attn_bias == ATTN_BIAS_ALL && c->mlp_bias && c->kv_heads == c->heads &&
           c->heads * c->head_dim == c->dim;
}

const char *model_config_family(const struct model_config *c)
{
    if (c->loop > 1 || (c->outputs && c->outputs[0]) || c->embed_scale != 1.0 || c->lora_r != 0 || strcmp(c->method, "dense") != 0)
        return NULL; /* their formats cannot store routers and adapters */
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

/* The end-of-text ids; an explicit null means none, whereas the class would use its default for an
 * absent key. */
static void add_ends(struct str *s, const struct model_config *c)
{
    int32_t id[MODEL_EOS_MAX];
    int n = model_config_eos_ids(c, id);
    str_addf(s, "  \"bos_token_id\": null,\n  \"eos_token_id\": %s", n ? "" : "null");
    for (int i = 0; i < n; i++)
        str_addf(s, "%s%d", i ? ", " : n > 1 ? "[" : "", id[i]);
    str_add(s, n > 1 ? "],\n" : ",\n");
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
    str_addf(s, "  \"layer_norm_epsilon\": %.9g,\n  \"activation_function\": \"%s\",\n",
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
    r->code = DS_EFORMAT;
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
        report_add(r, "%s", e.text);
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
            report_add(r, "%s", e.text);
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

static int read_root(struct model_config *c, struct config *route_options,
                     const struct json_node *root, const char *path, struct err *e)
{
    struct report r = {0};
    const struct json_node *own = json_get(root, "depthscope");
    const char *type = json_str(json_get(root, "model_type"), NULL);
    if (own)
        read_own(&r, c, route_options, own, path);
    else if (!config_hf_read(&r, c, root))
        report_add(&r, "%s model_type%s%.60s: expected llama, mistral, qwen2, gpt2 or depthscope",
                   type ? "unsupported" : "missing", type ? " " : "", type ? type : "");
    int rc = r.n == 0 ? read_ends(&r, c, root, path, e) : 0;
    if (rc == 0 && r.n == 0) {
        rc = model_config_check(c, e);
        if (rc < 0)
            rc = err_add(e, rc == DS_EUSAGE ? DS_EFORMAT : rc, "%s", path);
        else if (own)
            config_hf_compare(&r, c, root);
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
    int rc = json_read_file(&j, path, CONFIG_MAX, e);
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
