/* The tensor names and layouts of each model family. */
#include "models/formats/names.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "load_file.h"

struct row {
    const char *ours, *theirs;
    int is_transposed, part, parts;
    int is_by_head; /* the parts alternate */
};

struct names {
    const char *family;
    const char *sign;           /* the tensor that identifies this naming */
    const char *prefix, *layer; /* prefix of each name; of a block's: + number */
    const struct row *rows;     /* NULL: names after the prefix are ours */
    size_t n;
    int is_partial;   /* names without a row are ours too */
    const char *head; /* NULL: ours */
};

static const char own_head[] = "lm_head.weight";

/* Our names after "model." and "model.layers.N.", and theirs after their prefixes. */
static const struct row gpt2[] = {
    // clang-format off
    {"embed_tokens.weight",              "wte.weight",           0, 0, 1},
    {"embed_positions.weight",           "wpe.weight",           0, 0, 1},
    {"norm.weight",                      "ln_f.weight",          0, 0, 1},
    {"norm.bias",                        "ln_f.bias",            0, 0, 1},
    {"input_layernorm.weight",           "ln_1.weight",          0, 0, 1},
    {"input_layernorm.bias",             "ln_1.bias",            0, 0, 1},
    {"self_attn.q_proj.weight",          "attn.c_attn.weight",   1, 0, 3},
    {"self_attn.k_proj.weight",          "attn.c_attn.weight",   1, 1, 3},
    {"self_attn.v_proj.weight",          "attn.c_attn.weight",   1, 2, 3},
    {"self_attn.q_proj.bias",            "attn.c_attn.bias",     0, 0, 3},
    {"self_attn.k_proj.bias",            "attn.c_attn.bias",     0, 1, 3},
    {"self_attn.v_proj.bias",            "attn.c_attn.bias",     0, 2, 3},
    {"self_attn.o_proj.weight",          "attn.c_proj.weight",   1, 0, 1},
    {"self_attn.o_proj.bias",            "attn.c_proj.bias",     0, 0, 1},
    {"post_attention_layernorm.weight",  "ln_2.weight",          0, 0, 1},
    {"post_attention_layernorm.bias",    "ln_2.bias",            0, 0, 1},
    {"mlp.up_proj.weight",               "mlp.c_fc.weight",      1, 0, 1},
    {"mlp.up_proj.bias",                 "mlp.c_fc.bias",        0, 0, 1},
    {"mlp.down_proj.weight",             "mlp.c_proj.weight",    1, 0, 1},
    {"mlp.down_proj.bias",               "mlp.c_proj.bias",      0, 0, 1},
    // clang-format on
};

static const struct row gpt_neox[] = {
    // clang-format off
    {"embed_tokens.weight",              "embed_in.weight",                  0, 0, 1, 0},
    {"norm.weight",                      "final_layer_norm.weight",          0, 0, 1, 0},
    {"norm.bias",                        "final_layer_norm.bias",            0, 0, 1, 0},
    {"self_attn.q_proj.weight",          "attention.query_key_value.weight", 0, 0, 3, 1},
    {"self_attn.k_proj.weight",          "attention.query_key_value.weight", 0, 1, 3, 1},
    {"self_attn.v_proj.weight",          "attention.query_key_value.weight", 0, 2, 3, 1},
    {"self_attn.q_proj.bias",            "attention.query_key_value.bias",   0, 0, 3, 1},
    {"self_attn.k_proj.bias",            "attention.query_key_value.bias",   0, 1, 3, 1},
    {"self_attn.v_proj.bias",            "attention.query_key_value.bias",   0, 2, 3, 1},
    {"self_attn.o_proj.weight",          "attention.dense.weight",           0, 0, 1, 0},
    {"self_attn.o_proj.bias",            "attention.dense.bias",             0, 0, 1, 0},
    {"mlp.up_proj.weight",               "mlp.dense_h_to_4h.weight",         0, 0, 1, 0},
    {"mlp.up_proj.bias",                 "mlp.dense_h_to_4h.bias",           0, 0, 1, 0},
    {"mlp.down_proj.weight",             "mlp.dense_4h_to_h.weight",         0, 0, 1, 0},
    {"mlp.down_proj.bias",               "mlp.dense_4h_to_h.bias",           0, 0, 1, 0},
    // clang-format on
};

static const struct row phi3[] = {
    // clang-format off
    {"self_attn.q_proj.weight",          "self_attn.qkv_proj.weight", 0, 0, 3},
    {"self_attn.k_proj.weight",          "self_attn.qkv_proj.weight", 0, 1, 3},
    {"self_attn.v_proj.weight",          "self_attn.qkv_proj.weight", 0, 2, 3},
    {"mlp.gate_proj.weight",             "mlp.gate_up_proj.weight",   0, 0, 2},
    {"mlp.up_proj.weight",               "mlp.gate_up_proj.weight",   0, 1, 2},
    // clang-format on
};

/* '*' is the number of an expert. */
static const struct row mixtral[] = {
    // clang-format off
    {"mlp.gate.weight",                  "block_sparse_moe.gate.weight",         0, 0, 1},
    {"mlp.experts.*.gate_proj.weight",   "block_sparse_moe.experts.*.w1.weight", 0, 0, 1},
    {"mlp.experts.*.up_proj.weight",     "block_sparse_moe.experts.*.w3.weight", 0, 0, 1},
    {"mlp.experts.*.down_proj.weight",   "block_sparse_moe.experts.*.w2.weight", 0, 0, 1},
    // clang-format on
};

/* Norms of both sides (Gemma), or of the outputs alone (OLMo 2). */
static const struct row sandwich[] = {
    // clang-format off
    {"attention_output_layernorm.weight", "post_attention_layernorm.weight",   0, 0, 1},
    {"post_attention_layernorm.weight",   "pre_feedforward_layernorm.weight",  0, 0, 1},
    {"mlp_output_layernorm.weight",       "post_feedforward_layernorm.weight", 0, 0, 1},
    // clang-format on
};
#define SANDWICH(family, prefix)                                                                   \
    {                                                                                              \
        family, prefix "layers.0.post_feedforward_layernorm.weight", prefix, "layers.", sandwich,  \
            DS_LEN(sandwich), 1                                                                    \
    }

static const struct row ouro[] = {
    // clang-format off
    {"attention_output_layernorm.weight", "input_layernorm_2.weight",          0, 0, 1},
    {"mlp_output_layernorm.weight",       "post_attention_layernorm_2.weight", 0, 0, 1},
    // clang-format on
};

/* The first is ours; of the others the last that fits a file is taken.  A family's second entry is a
 * model body saved without its head. */
static const struct names all[] = {
    {"llama", "model.embed_tokens.weight", "model.", "layers.", NULL, 0, 0},
    {"llama", "embed_tokens.weight", "", "layers.", NULL, 0, 0},
    {"gpt2", "transformer.wte.weight", "transformer.", "h.", gpt2, DS_LEN(gpt2), 0},
    {"gpt2", "wte.weight", "", "h.", gpt2, DS_LEN(gpt2), 0},
    {"phi3", "model.layers.0.self_attn.qkv_proj.weight", "model.", "layers.", phi3, DS_LEN(phi3),
     1},
    {"phi3", "layers.0.self_attn.qkv_proj.weight", "", "layers.", phi3, DS_LEN(phi3), 1},
    {"mixtral", "model.layers.0.block_sparse_moe.gate.weight", "model.", "layers.", mixtral,
     DS_LEN(mixtral), 1},
    {"mixtral", "layers.0.block_sparse_moe.gate.weight", "", "layers.", mixtral, DS_LEN(mixtral),
     1},
    SANDWICH("gemma2", "model."),
    SANDWICH("gemma2", ""),
    SANDWICH("gemma3_text", "model."),
    SANDWICH("olmo2", "model."),
    {"gpt_neox", "gpt_neox.embed_in.weight", "gpt_neox.", "layers.", gpt_neox, DS_LEN(gpt_neox), 1,
     "embed_out.weight"},
    {"gpt_neox", "embed_in.weight", "", "layers.", gpt_neox, DS_LEN(gpt_neox), 1,
     "embed_out.weight"},
    {"ouro", "model.layers.0.input_layernorm_2.weight", "model.", "layers.", ouro, DS_LEN(ouro), 1},
    SANDWICH("olmo3", "model."),
};

const struct names *names_of(const struct st_set *s)
{
    for (size_t i = DS_LEN(all); i-- > 0;)
        if (st_set_find(s, all[i].sign, NULL))
            return &all[i];
    return all;
}

const struct names *names_of_family(const char *family)
{
    for (size_t i = 0; family && i < DS_LEN(all); i++)
        if (strcmp(all[i].family, family) == 0)
            return &all[i];
    return all;
}

const char *names_head(const struct names *n)
{
    return n->head ? n->head : own_head;
}

int names_are_ours(const struct names *n)
{
    return n == all;
}

/* A '*' of the pattern is a number. */
static int fits(const char *pattern, const char *name)
{
    const char *star = strchr(pattern, '*');
    size_t k = star ? (size_t)(star - pattern) : 0;
    if (!star || strncmp(pattern, name, k) != 0)
        return !star && strcmp(pattern, name) == 0;
    size_t digits = strspn(name + k, "0123456789");
    return digits > 0 && strcmp(star + 1, name + k + digits) == 0;
}

static const struct row *row_of(const struct names *n, const char *ours)
{
    for (size_t i = 0; i < n->n; i++)
        if (fits(n->rows[i].ours, ours))
            return &n->rows[i];
    return NULL;
}

/* The outputs of q, k and v, or of gate and up. */
static void place_part(const struct model_config *c, const struct row *r, struct names_place *out)
{
    int is_mlp = strncmp(r->ours, "mlp.", 4) == 0;
    uint64_t q = (uint64_t)(is_mlp ? c->ffn : c->heads * c->head_dim),
             kv = (uint64_t)(is_mlp ? c->ffn : c->kv_heads * c->head_dim);
    out->part = r->part;
    out->parts = r->parts;
    for (int k = 0; k < r->parts && r->parts > 1; k++) {
        out->first += k >= r->part ? 0 : k == 0 ? q : kv;
        out->outputs += k == 0 ? q : kv;
    }
    if (!r->is_by_head)
        return;
    uint64_t each = (uint64_t)c->head_dim, queries = (uint64_t)(c->heads / c->kv_heads) * each;
    out->first = r->part == 0 ? 0 : queries + (uint64_t)(r->part - 1) * each;
    out->group = r->part == 0 ? queries : each;
    out->stride = queries + 2 * each;
}

void names_place(const struct names *n, const struct model_config *c, const char *ours,
                 struct names_place *out)
{
    static const char model[] = "model.", layers[] = "layers.";
    const char *tail = ours + sizeof model - 1;
    char number[24] = "";
    *out = (struct names_place){.parts = 1};
    snprintf(out->name, sizeof out->name, "%s", ours);
    if (strcmp(ours, own_head) == 0)
        snprintf(out->name, sizeof out->name, "%s", names_head(n));
    if (names_are_ours(n) || strncmp(ours, model, sizeof model - 1) != 0)
        return; /* adapters and routers have one name everywhere */
    if (strncmp(tail, layers, sizeof layers - 1) == 0) {
        const char *digits = tail + sizeof layers - 1;
        size_t k = strspn(digits, "0123456789");
        snprintf(number, sizeof number, "%s%.*s.", n->layer, (int)k, digits);
        tail = digits + k + (digits[k] == '.');
    }
    const struct row *r = row_of(n, tail);
    if (n->rows && !r && !n->is_partial)
        return; /* they have no such tensor: reported missing under our name */
    const char *theirs = r ? r->theirs : tail, *star = strchr(theirs, '*');
    if (star)
        snprintf(out->name, sizeof out->name, "%s%s%.*s%d%s", n->prefix, number,
                 (int)(star - theirs), theirs, names_expert(ours), star + 1);
    else
        snprintf(out->name, sizeof out->name, "%s%s%s", n->prefix, number, theirs);
    if (r) {
        out->is_transposed = r->is_transposed;
        place_part(c, r, out);
    }
}

int names_part(const struct names_place *first, const uint64_t rows[NAMES_PARTS], uint64_t *row,
               uint64_t *left)
{
    uint64_t head = first->group ? *row / first->stride : 0, each;
    int k = 0;
    for (*row -= head * first->stride;; *row -= each, k++) {
        each = first->group == 0 ? rows[k]
               : k == 0          ? first->group
                                 : (first->stride - first->group) / 2;
        if (*row < each)
            break;
    }
    *left = each - *row;
    *row += head * (first->group ? each : 0);
    return k;
}

int names_shape(const struct names_place *at, const struct param *p, uint64_t shape[2])
{
    uint64_t rows = at->outputs ? at->outputs : (uint64_t)p->shape[0], cols = (uint64_t)p->shape[1];
    shape[0] = at->is_transposed ? cols : rows;
    shape[1] = at->is_transposed ? rows : cols;
    return p->rank;
}

static int ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), k = strlen(end);
    return n >= k && strcmp(s + n - k, end) == 0;
}

int names_is_buffer(const char *theirs)
{
    return ends_with(theirs, ".rotary_emb.inv_freq") || ends_with(theirs, ".attn.bias") ||
           ends_with(theirs, ".attn.masked_bias") || ends_with(theirs, ".attention.bias") ||
           ends_with(theirs, ".attention.masked_bias");
}

static const char *const gguf_names[][2] = {
    {"model.embed_tokens.weight", "token_embd.weight"},
    {"model.norm.weight", "output_norm.weight"},
    {"model.norm.bias", "output_norm.bias"},
    {"lm_head.weight", "output.weight"},
    {"input_layernorm.weight", "attn_norm.weight"},
    {"input_layernorm.bias", "attn_norm.bias"},
    {"self_attn.q_proj.weight", "attn_q.weight"},
    {"self_attn.k_proj.weight", "attn_k.weight"},
    {"self_attn.v_proj.weight", "attn_v.weight"},
    {"self_attn.o_proj.weight", "attn_output.weight"},
    {"self_attn.q_proj.bias", "attn_q.bias"},
    {"self_attn.k_proj.bias", "attn_k.bias"},
    {"self_attn.v_proj.bias", "attn_v.bias"},
    {"self_attn.o_proj.bias", "attn_output.bias"},
    {"post_attention_layernorm.weight", "ffn_norm.weight"},
    {"post_attention_layernorm.bias", "ffn_norm.bias"},
    {"self_attn.q_norm.weight", "attn_q_norm.weight"},
    {"self_attn.k_norm.weight", "attn_k_norm.weight"},
    {"attention_output_layernorm.weight", "post_attention_norm.weight"},
    {"mlp_output_layernorm.weight", "post_ffw_norm.weight"},
    {"mlp.gate_proj.weight", "ffn_gate.weight"},
    {"mlp.up_proj.weight", "ffn_up.weight"},
    {"mlp.down_proj.weight", "ffn_down.weight"},
    {"mlp.gate_proj.bias", "ffn_gate.bias"},
    {"mlp.up_proj.bias", "ffn_up.bias"},
    {"mlp.down_proj.bias", "ffn_down.bias"},
    {"mlp.gate.weight", "ffn_gate_inp.weight"},
    {"mlp.experts.gate_proj.weight", "ffn_gate_exps.weight"},
    {"mlp.experts.up_proj.weight", "ffn_up_exps.weight"},
    {"mlp.experts.down_proj.weight", "ffn_down_exps.weight"},
    {"mlp.shared_expert_gate.weight", "ffn_gate_inp_shexp.weight"},
    {"mlp.shared_expert.gate_proj.weight", "ffn_gate_shexp.weight"},
    {"mlp.shared_expert.up_proj.weight", "ffn_up_shexp.weight"},
    {"mlp.shared_expert.down_proj.weight", "ffn_down_shexp.weight"},
};

static const char in_experts[] = "mlp.experts.";

int names_expert(const char *param)
{
    const char *rest;
    return load_layer(param, &rest) >= 0 && strncmp(rest, in_experts, sizeof in_experts - 1) == 0
               ? (int)strtol(rest + sizeof in_experts - 1, NULL, 10)
               : -1;
}

/* "mlp.experts.7.up_proj.weight" without the number. */
static void without_expert(char *out, size_t size, const char *rest)
{
    size_t n = sizeof in_experts - 1;
    int is_expert = strncmp(rest, in_experts, n) == 0;
    size_t digits = is_expert ? strspn(rest + n, "0123456789") + 1 : 0;
    snprintf(out, size, "%.*s%s", is_expert ? (int)n : 0, rest,
             rest + (is_expert ? n : 0) + digits);
}

int gguf_name(char *out, size_t size, const char *param)
{
    const char *rest;
    char name[96];
    int l = load_layer(param, &rest);
    without_expert(name, sizeof name, rest);
    for (size_t i = 0; i < DS_LEN(gguf_names); i++) {
        if (strcmp(gguf_names[i][0], name) != 0)
            continue;
        if (l < 0)
            snprintf(out, size, "%s", gguf_names[i][1]);
        else
            snprintf(out, size, "blk.%d.%s", l, gguf_names[i][1]);
        return 1;
    }
    return 0;
}

/* gptneox: q, k and v; phi3: gate and up too, which are rows of what is "up" elsewhere. */
static const struct row gguf_fused[] = {
    // clang-format off
    {"self_attn.q_proj.weight", "attn_qkv.weight", 0, 0, 3},
    {"self_attn.k_proj.weight", "attn_qkv.weight", 0, 1, 3},
    {"self_attn.v_proj.weight", "attn_qkv.weight", 0, 2, 3},
    {"self_attn.q_proj.bias",   "attn_qkv.bias",   0, 0, 3},
    {"self_attn.k_proj.bias",   "attn_qkv.bias",   0, 1, 3},
    {"self_attn.v_proj.bias",   "attn_qkv.bias",   0, 2, 3},
    {"mlp.gate_proj.weight",    "ffn_up.weight",   0, 0, 2},
    {"mlp.up_proj.weight",      "ffn_up.weight",   0, 1, 2},
    // clang-format on
};

int gguf_place(const struct model_config *c, int fused, const char *param, struct names_place *out)
{
    const char *rest;
    int l = load_layer(param, &rest);
    *out = (struct names_place){.parts = 1};
    for (size_t i = 0; l >= 0 && i < DS_LEN(gguf_fused); i++)
        if (fused >= (gguf_fused[i].parts == 3 ? 1 : 2) && strcmp(gguf_fused[i].ours, rest) == 0) {
            snprintf(out->name, sizeof out->name, "blk.%d.%s", l, gguf_fused[i].theirs);
            place_part(c, &gguf_fused[i], out);
            return 1;
        }
    return gguf_name(out->name, sizeof out->name, param);
}
