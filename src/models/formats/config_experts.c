/* Reads the keys of mixtures of experts from a config.json of the transformers library. */
#include <stdio.h>
#include <string.h>

#include "config_report.h"

/* absent: the class's default; "=" before it: fixed, the class has no such key; NULL: the key is
 * mandatory. */
static const struct {
    const char *model_type, *hf, *own, *absent;
} keys[] = {
    // clang-format off
    {"mixtral",   "num_local_experts",     "experts",      "8"},
    {"mixtral",   "num_experts_per_tok",   "experts_used", "2"},
    {"mixtral",   "intermediate_size",     "expert_ffn",   NULL},
    {"mixtral",   "",                      "experts_norm", "=true"},
    {"mixtral",   "router_aux_loss_coef",  "experts_aux",  "0.001"},
    {"qwen2_moe", "num_experts",           "experts",      "60"},
    {"qwen2_moe", "num_experts_per_tok",   "experts_used", "4"},
    {"qwen2_moe", "moe_intermediate_size", "expert_ffn",   "1408"},
    {"qwen2_moe", "norm_topk_prob",        "experts_norm", "false"},
    {"qwen2_moe", "router_aux_loss_coef",  "experts_aux",  "0.001"},
    {"qwen2_moe", "shared_expert_intermediate_size", "shared_ffn", "5632"},
    {"qwen2_moe", "",                      "shared_gate",  "=true"},
    {"qwen3_moe", "num_experts",           "experts",      "128"},
    {"qwen3_moe", "num_experts_per_tok",   "experts_used", "8"},
    {"qwen3_moe", "moe_intermediate_size", "expert_ffn",   "768"},
    {"qwen3_moe", "norm_topk_prob",        "experts_norm", "false"},
    {"qwen3_moe", "router_aux_loss_coef",  "experts_aux",  "0.001"},
    {"olmoe",     "num_experts",           "experts",      "64"},
    {"olmoe",     "num_experts_per_tok",   "experts_used", "8"},
    {"olmoe",     "intermediate_size",     "expert_ffn",   NULL},
    {"olmoe",     "norm_topk_prob",        "experts_norm", "false"},
    {"olmoe",     "router_aux_loss_coef",  "experts_aux",  "0.01"},
    // clang-format on
};

static void read_key(struct report *r, struct model_config *c, const struct json_node *root,
                     const char *hf, size_t i)
{
    const struct json_node *n = json_get(root, hf);
    const char *absent = keys[i].absent;
    char text[64];
    if (absent && absent[0] == '=')
        config_set_as(r, c, keys[i].own, keys[i].own, absent + 1, 0);
    else if (!n && !absent)
        report_add(r, "%s is missing", hf);
    else if (!n)
        config_set_as(r, c, keys[i].own, hf, absent, 0);
    else if (!config_scalar(n, text))
        report_add(r, "%s must be a number or a boolean", hf);
    else
        config_set_as(r, c, keys[i].own, hf, text, 1);
}

/* The library writes num_local_experts for num_experts in some of its versions. */
static const char *name_of(struct report *r, const struct json_node *root, const char *hf)
{
    static const char one[] = "num_experts", other[] = "num_local_experts";
    const struct json_node *a = json_get(root, one), *b = json_get(root, other);
    if (strcmp(hf, one) != 0 && strcmp(hf, other) != 0)
        return hf;
    if (a && b && json_num(a, -1) != json_num(b, -2))
        report_add(r, "%s and %s differ", one, other);
    return a ? one : b ? other : hf;
}

/* Does mlp_only_layers list block l? */
static int is_listed(const struct json_node *list, int64_t l)
{
    for (size_t i = 0; i < json_len(list); i++)
        if (json_int(json_at(list, i), -1) == l)
            return 1;
    return 0;
}

/* Blocks with a dense MLP: those that mlp_only_layers lists, and with decoder_sparse_step = n all
 * but every n-th.  Only classes with a width of their own for them have the keys. */
static void read_dense_layers(struct report *r, struct model_config *c,
                              const struct json_node *root, int has_keys)
{
    const struct json_node *list = json_get(root, "mlp_only_layers");
    int64_t step = json_get(root, "decoder_sparse_step")
                       ? json_int(json_get(root, "decoder_sparse_step"), 0)
                       : 1;
    struct str dense = {0};
    int64_t n = 0;
    int is_list = json_kind_of(list) == JSON_KIND_ARRAY && json_len(list) <= (size_t)c->layers,
        is_ok = step > 0;
    for (size_t i = 0; is_list && i < json_len(list); i++)
        is_list = json_kind_of(json_at(list, i)) == JSON_KIND_INT;
    if (!is_ok)
        report_add(r, "decoder_sparse_step must be a positive integer");
    if (!is_list && json_kind_of(list) != JSON_KIND_NULL) {
        report_add(r, "mlp_only_layers must be a list of blocks, at most num_hidden_layers");
        is_ok = 0;
    }
    if (is_ok && !has_keys && (step != 1 || json_len(list) > 0)) {
        report_add(r, "%s: dense MLPs in some layers are unsupported in this family",
                   step != 1 ? "decoder_sparse_step" : "mlp_only_layers");
        is_ok = 0;
    }
    for (int64_t l = 0; is_ok && l < c->layers; l++)
        if ((l + 1) % step != 0 || is_listed(list, l)) {
            str_addf(&dense, "%s%lld", dense.len ? "," : "", (long long)l);
            n++;
        }
    if (dense.failed)
        report_add(r, "mlp_only_layers: out of memory");
    else if (n == c->layers)
        c->experts = c->expert_ffn = c->shared_ffn = c->shared_gate = 0; /* no block has them */
    else if (dense.len > 0)
        config_set_as(r, c, "dense_layers", "mlp_only_layers", str_text(&dense), 0);
    str_release(&dense);
}

void config_experts_read(struct report *r, struct model_config *c, const struct json_node *root,
                         const char *model_type)
{
    static const char *const foreign[] = {"num_local_experts", "num_experts", "n_routed_experts",
                                          "moe_num_experts"};
    int known = 0;
    for (size_t i = 0; i < DS_LEN(keys); i++)
        if (strcmp(keys[i].model_type, model_type) == 0) {
            read_key(r, c, root, name_of(r, root, keys[i].hf), i);
            known = 1;
        }
    if (known)
        read_dense_layers(r, c, root, strncmp(model_type, "qwen", 4) == 0);
    for (size_t i = 0; i < DS_LEN(foreign) && !known; i++) {
        const struct json_node *n = json_get(root, foreign[i]);
        if (json_kind_of(n) != JSON_KIND_NULL && json_num(n, 1) != 0)
            report_add(r, "%s: mixture of experts is unsupported in this family", foreign[i]);
    }
}
