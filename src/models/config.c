#include "models/config.h"

#include <stdio.h>
#include <string.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"

#define AT(field) offsetof(struct model_config, field)

static const struct opt model_opts[] = {
    // clang-format off
    {"method",    OPT_STRING, AT(method),    "edp",  0, 0, NULL, "routing method (dense, edp, ...) or control (random, static)", NULL},
    {"layers",    OPT_INT,    AT(layers),    "8",    1, 4096, NULL, "decoder blocks", NULL},
    {"dim",       OPT_INT,    AT(dim),       "96",   2, 65536, NULL, "width of the residual stream", NULL},
    {"heads",     OPT_INT,    AT(heads),     "3",    1, 1024, NULL, "query heads", NULL},
    {"kv_heads",  OPT_INT,    AT(kv_heads),  "0",    0, 1024, NULL, "key/value heads; 0 = heads (MHA)", NULL},
    {"head_dim",  OPT_INT,    AT(head_dim),  "0",    0, 1024, NULL, "size of a head; 0 = dim / heads", NULL},
    {"ffn",       OPT_INT,    AT(ffn),       "0",    0, 1 << 20, NULL, "hidden width of the MLP; 0 = 8/3 dim (SwiGLU, rounded up to 32) or 4 dim", NULL},
    {"vocab",     OPT_INT,    AT(vocab),     "2048", 2, 1 << 22, NULL, "token ids of the tokenizer to train", NULL},
    {"max_seq",   OPT_INT,    AT(max_seq),   "1024", 1, 1 << 20, NULL, "longest context; size of the table of learned positions", NULL},
    {"norm",      OPT_ENUM,   AT(norm),      "rms",  0, 0, "rms|layer", "RMSNorm or LayerNorm", NULL},
    {"position",  OPT_ENUM,   AT(position),  "rope", 0, 0, "rope|rope_interleaved|learned|none", "positions: RoPE half-split or interleaved, a learned table", NULL},
    {"mlp",       OPT_ENUM,   AT(mlp),       "swiglu", 0, 0, "swiglu|gelu|gelu_tanh", "gated SwiGLU, or plain GELU (exact or tanh)", NULL},
    {"attn_bias", OPT_ENUM,   AT(attn_bias), "false", 0, 0, "false|true|qkv", "biases on q, k, v and o; qkv: not on o (Qwen2)", NULL},
    {"mlp_bias",  OPT_BOOL,   AT(mlp_bias),  "false", 0, 0, NULL, "biases in the MLP", NULL},
    {"tied",      OPT_BOOL,   AT(tied),      "true", 0, 0, NULL, "output head shares the embedding", NULL},
    {"norm_eps",  OPT_REAL,   AT(norm_eps),  "1e-5", 1e-12, 0.1, NULL, "epsilon of the norms", NULL},
    {"rope_theta", OPT_REAL,  AT(rope_theta), "10000", 1, 1e9, NULL, "base of the rotary frequencies", NULL},
    {"init_std",  OPT_REAL,   AT(init_std),  "0.02", 0, 10, NULL, "standard deviation of initial weights", NULL},
    {"depth_init", OPT_BOOL,  AT(depth_init), "true", 0, 0, NULL, "initial output weights of a block are divided by sqrt(2 layers)", NULL},
    {"embed_scale", OPT_REAL, AT(embed_scale), "1",  1e-6, 1e6, NULL, "factor on the token embedding", NULL},
    {"rope_scaling", OPT_ENUM, AT(rope_scaling), "none", 0, 0, "none|llama3", "rotary frequencies of long waves stretched as Llama 3.1 does, or as they are", NULL},
    {"rope_factor", OPT_REAL, AT(rope_factor), "8",  1, 1e6, NULL, "rope_scaling: by how much", NULL},
    {"rope_low",  OPT_REAL,   AT(rope_low),  "1",    1e-6, 1e6, NULL, "rope_scaling: waves longer than rope_original / rope_low are stretched whole", NULL},
    {"rope_high", OPT_REAL,   AT(rope_high), "4",    1e-6, 1e6, NULL, "rope_scaling: waves shorter than rope_original / rope_high stay", NULL},
    {"rope_original", OPT_INT, AT(rope_original), "8192", 1, 1 << 30, NULL, "rope_scaling: context before it", NULL},
    {"lora_r",    OPT_INT,    AT(lora_r),    "0",    0, 4096, NULL, "rank of low-rank adapters on the matrices of model.lora_targets; 0 = none", "lora_r"},
    {"lora_alpha", OPT_REAL,  AT(lora_alpha), "32",  0, 1e6, NULL, "adapters add alpha / r times their product", "lora_alpha"},
    {"lora_dropout", OPT_REAL, AT(lora_dropout), "0", 0, 0.99, NULL, "share of an adapter's inputs dropped in training", "lora_dropout"},
    {"lora_targets", OPT_STRING, AT(lora_targets), "q,k,v,o", 0, 0, NULL, "matrices with adapters, of q,k,v,o,gate,up,down", "lora_targets"},
    // clang-format on
};

const struct opt_group model_group = {
    .prefix = "model.", .title = "model", .opts = model_opts, .n = DS_LEN(model_opts)};

static void fill_derived(struct model_config *c)
{
    if (c->kv_heads == 0)
        c->kv_heads = c->heads;
    if (c->head_dim == 0 && c->heads > 0 && c->dim % c->heads == 0)
        c->head_dim = c->dim / c->heads;
    if (c->ffn == 0)
        c->ffn = c->mlp == MLP_SWIGLU ? (c->dim * 8 / 3 + 31) / 32 * 32 : 4 * c->dim;
}

int model_config_check(struct model_config *c, struct err *e)
{
    fill_derived(c);
    if (!route_find(c->method))
        return err_set(e, DS_EUSAGE, "model.method=%s is unknown", c->method);
    if (c->head_dim == 0)
        return err_set(e, DS_ERANGE, "model.heads=%lld does not divide model.dim=%lld",
                       (long long)c->heads, (long long)c->dim);
    if (c->heads % c->kv_heads != 0)
        return err_set(e, DS_ERANGE, "model.kv_heads=%lld does not divide model.heads=%lld",
                       (long long)c->kv_heads, (long long)c->heads);
    int is_rope = c->position == POS_ROPE || c->position == POS_ROPE_INTERLEAVED;
    if (is_rope && c->head_dim % 2 != 0)
        return err_set(e, DS_ERANGE, "rotary positions need an even head size, model.head_dim=%lld",
                       (long long)c->head_dim);
    return 0;
}

int model_config_copy(struct model_config *to, const struct model_config *from, struct err *e)
{
    *to = *from;
    to->method = mem_strdup(from->method);
    to->lora_targets = mem_strdup(from->lora_targets);
    if (to->method && to->lora_targets)
        return 0;
    opt_release(&model_group, to);
    return err_set(e, DS_EMEM, "a model's configuration");
}

double model_config_weights(const struct model_config *c)
{
    double C = (double)c->dim, D = (double)(c->heads * c->head_dim),
           K = (double)(c->kv_heads * c->head_dim);
    double block = 2 * C * D + 2 * C * K + (c->mlp == MLP_SWIGLU ? 3 : 2) * C * (double)c->ffn;
    double table = c->position == POS_LEARNED ? (double)c->max_seq * C : 0;
    return (double)c->vocab * C * (c->tied ? 1 : 2) + table + (double)c->layers * block;
}

struct flops_shape model_config_flops(const struct model_config *c)
{
    struct flops_shape s = {
        .C = (int)c->dim,
        .H = (int)c->heads,
        .K = (int)c->kv_heads,
        .D = (int)c->head_dim,
        .F = (int)c->ffn,
        .V = (int)c->vocab,
        .L = (int)c->layers,
        .mlp_mats = c->mlp == MLP_SWIGLU ? 3 : 2,
    };
    return s;
}

static int is_llama(const struct model_config *c)
{
    return c->norm == NORM_RMS && c->position == POS_ROPE && c->mlp == MLP_SWIGLU &&
           c->embed_scale == 1.0 && strcmp(c->method, "dense") == 0;
}

static void add_key(struct str *s, const char *key, int64_t v)
{
    str_addf(s, "  \"%s\": %lld,\n", key, (long long)v);
}

void model_config_to_json(struct str *s, const struct model_config *c,
                          const struct config *route_options)
{
    int llama = is_llama(c);
    str_addf(s, "{\n  \"architectures\": [\"%s\"],\n  \"model_type\": \"%s\",\n",
             llama ? "LlamaForCausalLM" : "DepthscopeForCausalLM", llama ? "llama" : "depthscope");
    add_key(s, "hidden_size", c->dim);
    add_key(s, "num_hidden_layers", c->layers);
    add_key(s, "num_attention_heads", c->heads);
    add_key(s, "num_key_value_heads", c->kv_heads);
    add_key(s, "head_dim", c->head_dim);
    add_key(s, "intermediate_size", c->ffn);
    add_key(s, "vocab_size", c->vocab);
    add_key(s, "max_position_embeddings", c->max_seq);
    str_addf(s, "  \"rms_norm_eps\": %.9g,\n  \"rope_theta\": %.9g,\n  \"hidden_act\": \"silu\",\n",
             c->norm_eps, c->rope_theta);
    str_addf(s, "  \"attention_bias\": %s,\n  \"mlp_bias\": %s,\n  \"tie_word_embeddings\": %s,\n",
             c->attn_bias == ATTN_BIAS_ALL ? "true" : "false", c->mlp_bias ? "true" : "false",
             c->tied ? "true" : "false");
    str_add(s, "  \"torch_dtype\": \"float32\",\n  \"depthscope\": {");
    for (size_t i = 0; i < model_group.n; i++) {
        char value[256];
        opt_print(&model_opts[i], c, value, sizeof value);
        str_addf(s, "%s\n    \"model.%s\": ", i ? "," : "", model_opts[i].key);
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

static int read_llama(struct model_config *c, const struct json_node *root, const char *path,
                      struct err *e)
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
    int rc = opt_set(opt_find(&model_group, "model.method"), c, "dense", path, e);
    if (rc == 0)
        rc = opt_set(opt_find(&model_group, "model.tied"), c, "false", path, e);
    for (size_t i = 0; i < DS_LEN(keys) && rc == 0; i++) {
        const struct json_node *n = json_get(root, keys[i].hf);
        char full[64], text[64];
        if (json_kind_of(n) == JSON_KIND_NULL)
            continue;
        if (json_kind_of(n) == JSON_KIND_BOOL)
            snprintf(text, sizeof text, "%s", json_bool(n, 0) ? "true" : "false");
        else if (json_kind_of(n) == JSON_KIND_INT)
            snprintf(text, sizeof text, "%lld", (long long)json_int(n, 0));
        else if (json_kind_of(n) == JSON_KIND_REAL)
            snprintf(text, sizeof text, "%.17g", json_num(n, 0));
        else
            return err_set(e, DS_EFORMAT, "%s: %s is not a number or a truth value", path,
                           keys[i].hf);
        snprintf(full, sizeof full, "model.%s", keys[i].own);
        rc = opt_set(opt_find(&model_group, full), c, text, path, e);
        if (rc < 0)
            err_add(e, rc, "%s", keys[i].hf);
    }
    return rc;
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
    else if (rc == 0 && type && strcmp(type, "llama") == 0)
        rc = read_llama(c, root, path, e);
    else if (rc == 0)
        rc = err_set(e, DS_EFORMAT, "%s: model_type %s is not known here (llama, depthscope)", path,
                     type ? type : "is missing; it");
    if (rc == 0)
        rc = model_config_check(c, e);
    if (rc < 0) {
        err_add(e, rc, "%s", path);
        opt_release(&model_group, c);
    }
    json_free(j);
    return rc;
}
