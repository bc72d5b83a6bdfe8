/* The model's options: checks, derived sizes, parameter counts and rotary frequencies. */
#include "models/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "models/adapters.h"

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
    {"vocab",     OPT_INT,    AT(vocab),     "2048", 2, 1 << 22, NULL, "vocabulary size of the tokenizer to train", NULL},
    {"max_seq",   OPT_INT,    AT(max_seq),   "1024", 1, 1 << 20, NULL, "maximum context length; size of the learned position table", NULL},
    {"norm",      OPT_ENUM,   AT(norm),      "rms",  0, 0, "rms|layer", "RMSNorm or LayerNorm", NULL},
    {"position",  OPT_ENUM,   AT(position),  "rope", 0, 0, "rope|rope_interleaved|learned|none", "positions: RoPE (half-split or interleaved), a learned table or none", NULL},
    {"mlp",       OPT_ENUM,   AT(mlp),       "swiglu", 0, 0, "swiglu|gelu|gelu_tanh|geglu", "gated SwiGLU or GeGLU (tanh), or plain GELU (exact or tanh)", NULL},
    {"norm_place", OPT_ENUM,  AT(norm_place), "before", 0, 0, "before|after|both", "norms of a block: before attention and MLP, after them (OLMo 2) or both (Gemma 2)", NULL},
    {"parallel",  OPT_ENUM,   AT(parallel),  "false", 0, 0, "false|true|shared", "parallel residual: attention and MLP both read the block's input, through a norm each (GPT-NeoX), or shared: through one (StableLM)", NULL},
    {"norm_offset", OPT_BOOL, AT(norm_offset), "false", 0, 0, NULL, "RMSNorm multiplies by 1 + weight (Gemma)", NULL},
    {"qk_norm",   OPT_ENUM,   AT(qk_norm),   "none", 0, 0, "none|head|whole", "RMSNorm of queries and keys: per head (Qwen3, Gemma 3) or over all heads (OLMo 2)", NULL},
    {"attn_scale", OPT_REAL,  AT(attn_scale), "0",   0, 1e3, NULL, "factor on attention scores; 0 = 1 / sqrt(head_dim)", NULL},
    {"attn_cap",  OPT_REAL,   AT(attn_cap),  "0",    0, 1e6, NULL, "soft cap of attention scores, c tanh(s / c); 0 = none", NULL},
    {"logit_cap", OPT_REAL,   AT(logit_cap), "0",    0, 1e6, NULL, "soft cap of logits; 0 = none", NULL},
    {"window",    OPT_INT,    AT(window),    "0",    0, 1 << 30, NULL, "sliding window: tokens that a query sees, itself included; 0 = all before it", NULL},
    {"window_layers", OPT_STRING, AT(window_layers), "", 0, 0, NULL, "blocks with the window, e.g. 0-4,6-10; empty = all", NULL, .is_list = 1},
    {"nope_layers", OPT_STRING, AT(nope_layers), "", 0, 0, NULL, "blocks without positions, e.g. 3,7,11 (SmolLM3)", NULL, .is_list = 1},
    {"attn_bias", OPT_ENUM,   AT(attn_bias), "false", 0, 0, "false|true|qkv", "biases on q, k, v and o; qkv: not on o (Qwen2)", NULL},
    {"mlp_bias",  OPT_BOOL,   AT(mlp_bias),  "false", 0, 0, NULL, "biases in the MLP", NULL},
    {"tied",      OPT_BOOL,   AT(tied),      "true", 0, 0, NULL, "output head shares the embedding", NULL},
    {"norm_eps",  OPT_REAL,   AT(norm_eps),  "1e-5", 1e-12, 0.1, NULL, "epsilon of the norms", NULL},
    {"rope_theta", OPT_REAL,  AT(rope_theta), "10000", 1, 1e12, NULL, "base of the rotary frequencies", NULL},
    {"init_std",  OPT_REAL,   AT(init_std),  "0.02", 0, 10, NULL, "standard deviation of initial weights", NULL},
    {"embed_std", OPT_REAL,   AT(embed_std), "0",    0, 10, NULL, "standard deviation of the initial embedding; 0 = init_std", NULL},
    {"embed_init", OPT_ENUM,  AT(embed_init), "tokens", 0, 0, "tokens|letters", "initial embedding: one random vector per token, or the sum over a token's letters and digits of one per place and kind of token", NULL},
    {"depth_init", OPT_BOOL,  AT(depth_init), "true", 0, 0, NULL, "divide the initial output weights of each block by sqrt(2 layers)", NULL},
    {"embed_scale", OPT_REAL, AT(embed_scale), "1",  1e-6, 1e6, NULL, "factor on the token embedding", NULL},
    {"rope_local", OPT_REAL,  AT(rope_local), "0",   0, 1e12, NULL, "base of the rotary frequencies, never scaled, in blocks with a window (Gemma 3); 0 = as elsewhere", NULL},
    {"rope_dims", OPT_INT,    AT(rope_dims), "0",    0, 1024, NULL, "elements of a head that rotate; 0 = all", NULL},
    {"rope_scaling", OPT_ENUM, AT(rope_scaling), "none", 0, 0, "none|llama3|linear|yarn|longrope|dynamic", "rotary frequency scaling: Llama 3.1's, division by rope_factor, YaRN, LongRoPE (Phi-3), dynamic NTK or none", NULL},
    {"rope_factor", OPT_REAL, AT(rope_factor), "8",  1, 1e6, NULL, "rope_scaling: scaling factor", NULL},
    {"rope_low",  OPT_REAL,   AT(rope_low),  "1",    1e-6, 1e6, NULL, "rope_scaling: wavelengths above rope_original / rope_low are scaled in full; yarn: beta_slow", NULL},
    {"rope_high", OPT_REAL,   AT(rope_high), "4",    1e-6, 1e6, NULL, "rope_scaling: wavelengths below rope_original / rope_high are unchanged; yarn: beta_fast", NULL},
    {"rope_original", OPT_INT, AT(rope_original), "8192", 1, 1 << 30, NULL, "rope_scaling: original context length", NULL},
    {"rope_attention", OPT_REAL, AT(rope_attention), "0", 0, 100, NULL, "rope_scaling=yarn, longrope: factor on rotated queries and keys; 0 = 0.1 ln(rope_factor) + 1 or sqrt(1 + ln(rope_factor) / ln(rope_original))", NULL},
    {"rope_short", OPT_STRING, AT(rope_short), "",   0, 0, NULL, "rope_scaling=longrope: divisors of the frequencies in contexts up to rope_original, e.g. 1,1.05", NULL, .is_list = 1},
    {"rope_long", OPT_STRING, AT(rope_long), "",     0, 0, NULL, "rope_scaling=longrope: divisors of the frequencies in longer contexts", NULL, .is_list = 1},
    {"fused",     OPT_BOOL,   AT(fused),     "false", 0, 0, NULL, "files hold q, k, v and gate, up as one matrix each where a family has them so (Phi-3)", NULL},
    {"lora_r",    OPT_INT,    AT(lora_r),    "0",    0, 4096, NULL, "rank of the LoRA adapters on the matrices of model.lora_targets; 0 = none", "lora_r"},
    {"lora_alpha", OPT_REAL,  AT(lora_alpha), "32",  0, 1e6, NULL, "adapters add alpha / r times B A x", "lora_alpha"},
    {"lora_dropout", OPT_REAL, AT(lora_dropout), "0", 0, 0.99, NULL, "dropout probability on adapter inputs during training", "lora_dropout"},
    {"lora_targets", OPT_STRING, AT(lora_targets), "q,k,v,o", 0, 0, NULL, "matrices with adapters, any of q,k,v,o,gate,up,down; by layer, rank and alpha as in 0-3.q:8:16", "lora_targets", .is_list = 1},
    {"lora_rslora", OPT_BOOL, AT(lora_rslora), "false", 0, 0, NULL, "rank-stabilised: adapters add alpha / sqrt(r) times B A x", "lora_rslora"},
    {"lora_dora", OPT_BOOL,   AT(lora_dora), "false", 0, 0, NULL, "DoRA: the rows of W + scale B A are rescaled to trained magnitudes", "lora_dora"},
    {"lora_bias", OPT_BOOL,   AT(lora_bias), "false", 0, 0, NULL, "a bias on B of each adapter", "lora_bias"},
    {"lora_train_bias", OPT_ENUM, AT(lora_train_bias), "none", 0, 0, "none|all|lora_only", "biases of the base that are trained with the adapters: all, or those of adapted matrices", "lora_train_bias"},
    {"lora_save", OPT_STRING, AT(lora_save), "",     0, 0, NULL, "modules of the base that are trained and saved with the adapters, e.g. lm_head,embed_tokens,norm", "lora_save", .is_list = 1},
    {"loop",      OPT_INT,    AT(loop),      "1",    1, 256, NULL, "iterations of the looped blocks, which share their weights; 1 = no loop", NULL},
    {"loop_first", OPT_INT,   AT(loop_first), "0",   0, 4096, NULL, "blocks before the loop, executed once", NULL},
    {"loop_last", OPT_INT,    AT(loop_last), "0",    0, 4096, NULL, "blocks after the loop, executed once", NULL},
    {"loop_min",  OPT_INT,    AT(loop_min),  "0",    0, 256, NULL, "training draws the iterations of each step from loop_min to loop; 0 = always loop", NULL},
    {"loop_norm", OPT_ENUM,   AT(loop_norm), "true", 0, 0, "false|true|final", "every iteration begins with a norm of the state; final: from the second one on, with the model's final norm", NULL},
    {"loop_inject", OPT_ENUM, AT(loop_inject), "none", 0, 0, "none|add", "add: every iteration starts from its state plus the state before the loop", NULL},
    {"experts",   OPT_INT,    AT(experts),   "0",    0, 4096, NULL, "experts of a mixture-of-experts MLP; 0 = a dense MLP", NULL},
    {"experts_used", OPT_INT, AT(experts_used), "2", 1, 256, NULL, "experts that each token runs", NULL},
    {"expert_ffn", OPT_INT,   AT(expert_ffn), "0",   0, 1 << 20, NULL, "hidden width of one expert; 0 = model.ffn", NULL},
    {"experts_score", OPT_ENUM, AT(experts_score), "softmax", 0, 0, "softmax|sigmoid", "score of an expert, from the router's logits", NULL},
    {"experts_norm", OPT_BOOL, AT(experts_norm), "true", 0, 0, NULL, "scores of the chosen experts are divided by their sum (a softmax over them)", NULL},
    {"experts_bias", OPT_BOOL, AT(experts_bias), "false", 0, 0, NULL, "bias of the router", NULL},
    {"experts_aux", OPT_REAL, AT(experts_aux), "0.01", 0, 100, NULL, "weight of the load-balancing loss of Switch Transformer in training", NULL},
    {"experts_balance", OPT_ENUM, AT(experts_balance), "layer", 0, 0, "layer|model", "what that loss balances: the load of each layer, or the sum over the layers (as transformers does; layers may then stay uneven)", NULL},
    {"dense_layers", OPT_STRING, AT(dense_layers), "", 0, 0, NULL, "blocks whose MLP is dense, of width model.ffn, in a model with experts, e.g. 0-2,5", NULL, .is_list = 1},
    {"experts_noop", OPT_INT, AT(experts_noop), "0", 0, 256, NULL, "no-op experts (integrated Mixture-of-Depths-and-Experts): choices of the router that run nothing, so that a token skips their share of the MLP", NULL},
    {"noop_share", OPT_REAL,  AT(noop_share), "0",   0, 0.99, NULL, "share of all choices that the load-balancing loss gives to the no-op experts; 0 = as much to each as to any expert", NULL},
    {"shared_ffn", OPT_INT,   AT(shared_ffn), "0",   0, 1 << 20, NULL, "hidden width of an expert that every token runs; 0 = none", NULL},
    {"shared_gate", OPT_BOOL, AT(shared_gate), "false", 0, 0, NULL, "the shared expert has a sigmoid gate (Qwen2-MoE)", NULL},
    {"outputs",   OPT_STRING, AT(outputs),   "",     0, 0, NULL, "token ids that the head predicts, e.g. 72-77 or 3,9-12, all others having probability 0; answers = those of the training data's answers; empty = all", NULL, .is_list = 1},
    {"end_ids",   OPT_STRING, AT(end_ids),   "",     0, 0, NULL, "token ids that end generation, e.g. 2 or 128001,128008; empty = the tokenizer's end of text", NULL, .is_list = 1},
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
    if (c->rope_dims == 0)
        c->rope_dims = c->head_dim;
    if (c->ffn == 0 && c->experts > 0)
        c->ffn = c->expert_ffn;
    if (c->ffn == 0)
        c->ffn = model_config_gated(c) ? (c->dim * 8 / 3 + 31) / 32 * 32 : 4 * c->dim;
    if (c->expert_ffn == 0 && c->experts > 0)
        c->expert_ffn = c->ffn;
}

/* ---- end-of-text ids ------------------------------------------------------------------------- */

/* The next number of a comma-separated list; -1 with *p NULL at its end, -2 when it is not a
 * number. */
static int64_t next_id(const char **p)
{
    char *end;
    if (!*p || !**p) {
        *p = NULL;
        return -1;
    }
    int64_t id = **p >= '0' && **p <= '9' ? strtoll(*p, &end, 10) : -2;
    if (id < 0 || (*end && (*end != ',' || !end[1])))
        return -2;
    *p = *end ? end + 1 : NULL;
    return id;
}

int model_config_eos_ids(const struct model_config *c, int32_t id[MODEL_EOS_MAX])
{
    int n = 0;
    for (const char *p = c->end_ids; p && *p && n < MODEL_EOS_MAX;) {
        int64_t v = next_id(&p);
        if (v < -1)
            break;
        if (v >= 0 && v < c->vocab)
            id[n++] = (int32_t)v;
    }
    return n;
}

int model_config_add_eos(struct model_config *c, int64_t id)
{
    int32_t have[MODEL_EOS_MAX];
    struct str text = {0};
    int n = model_config_eos_ids(c, have), rc = DS_EMEM;
    if (id < 0 || id >= c->vocab)
        return 0;
    for (int i = 0; i < n; i++)
        if (have[i] == id)
            return 0;
    if (n == MODEL_EOS_MAX)
        return DS_ERANGE;
    str_addf(&text, "%s%s%" PRId64, n ? c->end_ids : "", n ? "," : "", id);
    if (!text.failed)
        rc = opt_set(opt_find(&model_group, "model.end_ids"), c, str_text(&text), NULL, NULL);
    str_release(&text);
    return rc;
}

void model_config_clear_eos(struct model_config *c)
{
    if (c->end_ids)
        c->end_ids[0] = '\0';
}

static int check_ends(const struct model_config *c, struct err *e)
{
    int n = 0;
    for (const char *p = c->end_ids; p && *p; n++)
        if (next_id(&p) < 0 || n == MODEL_EOS_MAX)
            return err_set(e, DS_ERANGE,
                           "model.end_ids=%.60s: expected at most %d ids, e.g. 128001,128008",
                           c->end_ids, (int)MODEL_EOS_MAX);
    return 0;
}

/* ---- ids that the head predicts -------------------------------------------------------------- */

/* The next "first" or "first-last" of a comma-separated list: 1 = read, 0 = at its end,
 * -1 = malformed, or not ascending from *first. */
static int next_range(const char **p, int64_t *first, int64_t *last)
{
    char *end;
    int64_t least = *last + 1;
    if (!**p)
        return 0;
    if (**p < '0' || **p > '9')
        return -1;
    *first = *last = strtoll(*p, &end, 10);
    if (*end == '-') {
        if (end[1] < '0' || end[1] > '9')
            return -1;
        *last = strtoll(end + 1, &end, 10);
    }
    if ((*end && (*end != ',' || !end[1])) || *first < least || *last < *first)
        return -1;
    *p = *end ? end + 1 : end;
    return 1;
}

int64_t model_config_outputs(const struct model_config *c, int32_t *id)
{
    int64_t n = 0, first, last = -1;
    const char *p = c->outputs ? c->outputs : "";
    int rc;
    while ((rc = next_range(&p, &first, &last)) > 0 && last < c->vocab)
        for (int64_t i = first; i <= last; i++, n++)
            if (id)
                id[n] = (int32_t)i;
    return rc == 0 && n > 0 ? n : c->vocab;
}

int model_config_has(const char *layers, int64_t b)
{
    int64_t first, last = -1;
    const char *p = layers ? layers : "";
    while (next_range(&p, &first, &last) > 0)
        if (b >= first && b <= last)
            return 1;
    return 0;
}

int64_t model_config_window(const struct model_config *c, int64_t b)
{
    int every = !c->window_layers || !c->window_layers[0];
    return every || model_config_has(c->window_layers, b) ? c->window : 0;
}

int model_config_check_private(const struct model_config *c, struct err *e)
{
    return c->window == 0
               ? 0
               : err_set(e, DS_EUSAGE,
                         "model.window=%lld: unsupported with private spans in the data; "
                         "set it to 0, or hops.isolate=false",
                         (long long)c->window);
}

static int check_layers(const struct model_config *c, const char *name, const char *layers,
                        struct err *e)
{
    int64_t first, last = -1;
    const char *p = layers ? layers : "";
    int rc;
    while ((rc = next_range(&p, &first, &last)) > 0)
        if (last >= c->layers)
            return err_set(e, DS_ERANGE, "model.%s=%.60s: blocks must be below %lld, model.layers",
                           name, layers, (long long)c->layers);
    return rc < 0 ? err_set(e, DS_EUSAGE, "model.%s=%.60s: expected ascending blocks, e.g. 0-4,6",
                            name, layers)
                  : 0;
}

int model_config_divisor(const char **p, double *out)
{
    char *end;
    if (!*p || !**p)
        return 0;
    *out = strtod(*p, &end);
    if (end == *p || !(*out > 0) || !isfinite(*out) || (*end && (*end != ',' || !end[1])))
        return -1;
    *p = *end ? end + 1 : end;
    return 1;
}

static int check_divisors(const struct model_config *c, const char *name, const char *list,
                          struct err *e)
{
    const char *p = list;
    int64_t n = 0;
    double v;
    int rc;
    while ((rc = model_config_divisor(&p, &v)) > 0)
        n++;
    if (rc < 0)
        return err_set(e, DS_EUSAGE, "model.%s=%.60s: expected positive numbers, e.g. 1,1.05", name,
                       list);
    return n == c->rope_dims / 2
               ? 0
               : err_set(e, DS_ERANGE,
                         "model.%s has %lld numbers, expected %lld, half of model.rope_dims=%lld",
                         name, (long long)n, (long long)c->rope_dims / 2, (long long)c->rope_dims);
}

static int check_scaling(const struct model_config *c, struct err *e)
{
    int is_ramp = c->rope_scaling == ROPE_LLAMA3 || c->rope_scaling == ROPE_YARN;
    if (is_ramp && !(c->rope_high > c->rope_low))
        return err_set(e, DS_ERANGE, "model.rope_high=%g: must be greater than model.rope_low=%g",
                       c->rope_high, c->rope_low);
    if (c->rope_scaling == ROPE_YARN && !(c->rope_theta > 1))
        return err_set(e, DS_ERANGE, "model.rope_theta=%g: must be greater than 1 with yarn",
                       c->rope_theta);
    if (c->rope_scaling == ROPE_DYNAMIC && c->rope_dims < 4)
        return err_set(e, DS_ERANGE,
                       "model.rope_dims=%lld: must be at least 4 with dynamic scaling",
                       (long long)c->rope_dims);
    if (c->rope_scaling != ROPE_LONGROPE)
        return 0;
    if (c->rope_attention == 0 && c->rope_factor > 1 && c->rope_original < 2)
        return err_set(e, DS_ERANGE, "model.rope_original=%lld: must be at least 2 with longrope",
                       (long long)c->rope_original);
    int rc = check_divisors(c, "rope_short", c->rope_short, e);
    return rc < 0 ? rc : check_divisors(c, "rope_long", c->rope_long, e);
}

/* Options of attention that exclude one another. */
static int check_attention(const struct model_config *c, struct err *e)
{
    int is_rope = c->position == POS_ROPE || c->position == POS_ROPE_INTERLEAVED;
    int rc = check_layers(c, "window_layers", c->window_layers, e);
    if (rc == 0)
        rc = check_layers(c, "nope_layers", c->nope_layers, e);
    if (rc < 0)
        return rc;
    if (is_rope && (c->rope_dims % 2 != 0 || c->rope_dims > c->head_dim))
        return err_set(e, DS_ERANGE,
                       "model.rope_dims=%lld: must be even, at most model.head_dim=%lld",
                       (long long)c->rope_dims, (long long)c->head_dim);
    if (c->window == 0 && ((c->window_layers && c->window_layers[0]) || c->rope_local > 0))
        return err_set(e, DS_EUSAGE, "model.window=0: window_layers and rope_local need a window");
    if (!is_rope && ((c->nope_layers && c->nope_layers[0]) || c->rope_local > 0))
        return err_set(e, DS_EUSAGE,
                       "model.position: nope_layers and rope_local need rotary positions");
    if (c->norm == NORM_LAYER && (c->norm_offset || c->norm_place != NORM_BEFORE))
        return err_set(e, DS_EUSAGE,
                       "model.norm=layer: norm_offset and norm_place need model.norm=rms");
    return 0;
}

static int check_parallel(const struct model_config *c, struct err *e)
{
    const char *value = c->parallel == PARALLEL_SHARED ? "shared" : "true";
    int enters = c->loop > 1 && (c->loop_norm || c->loop_inject != LOOP_INJECT_NONE);
    if (c->parallel && c->norm_place != NORM_BEFORE)
        return err_set(e, DS_EUSAGE, "model.parallel=%s: needs model.norm_place=before", value);
    if (c->parallel && enters && (route_find(c->method)->flags & ROUTE_SPLIT))
        return err_set(
            e, DS_EUSAGE,
            "model.parallel=%s: unsupported with method %s, whose layers are split, in a "
            "loop; set model.loop_norm=false and model.loop_inject=none",
            value, c->method);
    return 0;
}

static int check_outputs(const struct model_config *c, struct err *e)
{
    int64_t first, last = -1;
    const char *p = c->outputs ? c->outputs : "";
    int rc = 0;
    if (!*p || strcmp(p, "answers") == 0)
        return 0;
    while ((rc = next_range(&p, &first, &last)) > 0)
        if (last >= c->vocab)
            return err_set(e, DS_ERANGE,
                           "model.outputs=%.60s: ids must be below %lld, the vocabulary",
                           c->outputs, (long long)c->vocab);
    return rc < 0 ? err_set(e, DS_EUSAGE,
                            "model.outputs=%.60s: expected ascending ids, e.g. 72-77 or 3,9-12, or "
                            "answers",
                            c->outputs)
                  : 0;
}

int model_config_has_experts(const struct model_config *c, int64_t b)
{
    return c->experts > 0 && !model_config_has(c->dense_layers, b);
}

/* Blocks with a dense MLP in a model with experts. */
static int64_t dense_blocks(const struct model_config *c)
{
    int64_t n = 0;
    for (int64_t l = 0; c->experts > 0 && l < c->layers; l++)
        n += !model_config_has_experts(c, l);
    return n;
}

/* Of all layers: each has three parameters, whose table alone would fill the memory. */
enum { EXPERTS_MAX = 1 << 18 };

static int check_experts(const struct model_config *c, struct err *e)
{
    int has_dense = c->dense_layers && c->dense_layers[0];
    if (c->experts == 0 && has_dense)
        return err_set(e, DS_EUSAGE, "model.dense_layers=%.60s: needs model.experts",
                       c->dense_layers);
    if (c->experts == 0)
        return c->shared_ffn == 0 && c->experts_noop == 0
                   ? 0
                   : err_set(e, DS_EUSAGE, "model.%s=%lld: needs model.experts",
                             c->shared_ffn ? "shared_ffn" : "experts_noop",
                             (long long)(c->shared_ffn ? c->shared_ffn : c->experts_noop));
    if (c->experts_used > c->experts)
        return err_set(e, DS_ERANGE, "model.experts_used=%lld: must be at most %lld, model.experts",
                       (long long)c->experts_used, (long long)c->experts);
    if (c->experts * c->layers > EXPERTS_MAX)
        return err_set(e, DS_ERANGE, "model.experts=%lld: %lld in all layers; expected at most %d",
                       (long long)c->experts, (long long)(c->experts * c->layers), EXPERTS_MAX);
    int rc = check_layers(c, "dense_layers", c->dense_layers, e);
    if (rc < 0 || dense_blocks(c) == c->layers)
        return rc < 0 ? rc
                      : err_set(e, DS_EUSAGE, "model.dense_layers=%.60s: no block has experts",
                                c->dense_layers);
    if (c->noop_share > 0 && (c->experts_noop == 0 || c->experts_aux == 0))
        return err_set(e, DS_EUSAGE, "model.noop_share=%g: needs model.%s", c->noop_share,
                       c->experts_noop == 0 ? "experts_noop" : "experts_aux above 0");
    if (c->mlp_bias)
        return err_set(e, DS_EUSAGE, "model.mlp_bias=true: unsupported with model.experts");
    if (c->shared_gate && c->shared_ffn == 0)
        return err_set(e, DS_EUSAGE, "model.shared_gate=true: needs model.shared_ffn");
    if (c->experts_aux > 0 && c->experts_score != EXPERTS_SOFTMAX)
        return err_set(e, DS_EUSAGE,
                       "model.experts_aux=%g: needs model.experts_score=softmax; set it to 0",
                       c->experts_aux);
    return 0;
}

int model_config_check(struct model_config *c, struct err *e)
{
    fill_derived(c);
    if (!route_find(c->method))
        return err_set(e, DS_EUSAGE, "unknown method model.method=%s", c->method);
    if (c->head_dim == 0)
        return err_set(e, DS_ERANGE, "model.heads=%lld: must divide model.dim=%lld",
                       (long long)c->heads, (long long)c->dim);
    if (c->head_dim > 2 * ROPE_PAIRS_MAX)
        return err_set(e, DS_ERANGE,
                       "model.head_dim=%lld, model.dim=%lld / model.heads=%lld: must be at most %d",
                       (long long)c->head_dim, (long long)c->dim, (long long)c->heads,
                       2 * ROPE_PAIRS_MAX);
    if (c->heads % c->kv_heads != 0)
        return err_set(e, DS_ERANGE, "model.kv_heads=%lld: must divide model.heads=%lld",
                       (long long)c->kv_heads, (long long)c->heads);
    int is_rope = c->position == POS_ROPE || c->position == POS_ROPE_INTERLEAVED;
    if (is_rope && c->head_dim % 2 != 0)
        return err_set(e, DS_ERANGE, "model.head_dim=%lld: must be even for rotary positions",
                       (long long)c->head_dim);
    int rc = check_attention(c, e);
    if (rc == 0)
        rc = check_parallel(c, e);
    if (rc < 0)
        return rc;
    rc = check_scaling(c, e);
    if (rc < 0)
        return rc;
    if (c->loop > 1 && c->loop_first + c->loop_last >= c->layers)
        return err_set(e, DS_ERANGE,
                       "model.loop=%lld: no block is left to loop; model.loop_first=%lld and "
                       "model.loop_last=%lld must leave one of model.layers=%lld",
                       (long long)c->loop, (long long)c->loop_first, (long long)c->loop_last,
                       (long long)c->layers);
    if (c->loop == 1 && (c->loop_first || c->loop_last || c->loop_min > 1 || c->loop_inject))
        return err_set(e, DS_EUSAGE,
                       "model.loop=1: not a loop; model.loop_first, loop_last, loop_min and "
                       "loop_inject need model.loop=2 or more");
    if (c->loop_min > c->loop)
        return err_set(e, DS_ERANGE, "model.loop_min=%lld: must be at most model.loop=%lld",
                       (long long)c->loop_min, (long long)c->loop);
    if (model_config_depth(c) > MODEL_DEPTH_MAX)
        return err_set(e, DS_ERANGE, "model.loop=%lld: %d executed layers; expected at most %d",
                       (long long)c->loop, model_config_depth(c), MODEL_DEPTH_MAX);
    if (c->outputs && c->outputs[0] && c->tied)
        return err_set(e, DS_EUSAGE,
                       "model.outputs=%.60s: the head has other rows than the embedding; set "
                       "model.tied=false",
                       c->outputs);
    rc = check_ends(c, e);
    if (rc == 0)
        rc = check_outputs(c, e);
    if (rc == 0)
        rc = check_experts(c, e);
    return rc < 0 ? rc : adapters_check(c, e);
}

int model_config_copy(struct model_config *to, const struct model_config *from, struct err *e)
{
    *to = *from;
    to->method = mem_strdup(from->method);
    to->lora_targets = mem_strdup(from->lora_targets);
    to->lora_save = mem_strdup(from->lora_save ? from->lora_save : "");
    to->end_ids = mem_strdup(from->end_ids ? from->end_ids : "");
    to->outputs = mem_strdup(from->outputs ? from->outputs : "");
    to->window_layers = mem_strdup(from->window_layers ? from->window_layers : "");
    to->nope_layers = mem_strdup(from->nope_layers ? from->nope_layers : "");
    to->dense_layers = mem_strdup(from->dense_layers ? from->dense_layers : "");
    to->rope_short = mem_strdup(from->rope_short ? from->rope_short : "");
    to->rope_long = mem_strdup(from->rope_long ? from->rope_long : "");
    if (to->method && to->lora_targets && to->dense_layers && to->lora_save && to->end_ids &&
        to->outputs && to->window_layers && to->nope_layers && to->rope_short && to->rope_long)
        return 0;
    opt_release(&model_group, to);
    return err_set(e, DS_EMEM, "model configuration: out of memory");
}

/* Blocks of one iteration. */
static int loop_group(const struct model_config *c)
{
    return (int)(c->layers - c->loop_first - c->loop_last);
}

int model_config_depth(const struct model_config *c)
{
    return (int)(c->layers + (c->loop - 1) * loop_group(c));
}

int model_config_block(const struct model_config *c, int l)
{
    int start = (int)c->loop_first, group = loop_group(c), end = start + (int)c->loop * group;
    return l < start ? l : l < end ? start + (l - start) % group : l - (end - start - group);
}

struct route_loop model_config_loop(const struct model_config *c)
{
    int start = (int)c->loop_first, group = loop_group(c);
    if (c->loop == 1)
        return (struct route_loop){0, 1, (int)c->layers};
    return (struct route_loop){start, group, start + (int)c->loop * group};
}

int exit_is_candidate(const struct model_config *c, int l)
{
    struct route_loop loop = model_config_loop(c);
    int depth = model_config_depth(c);
    if (l == depth - 1 || loop.end < depth || l < loop.start)
        return l == depth - 1;
    return (l + 1 - loop.start) % loop.group == 0;
}

/* Values in the matrices of a block's MLP. */
static int64_t mlp_weights(const struct model_config *c, int is_dense)
{
    int64_t mats = model_config_gated(c) ? 3 : 2, E = c->experts;
    if (is_dense)
        return mats * c->dim * c->ffn;
    return c->dim *
           (mats * (E * c->expert_ffn + c->shared_ffn) + model_config_choices(c) + c->shared_gate);
}

int64_t model_config_params_layer(const struct model_config *c)
{
    int64_t C = c->dim, HD = c->heads * c->head_dim, KD = c->kv_heads * c->head_dim;
    int each = c->norm_place == NORM_BOTH ? 4 : c->parallel == PARALLEL_SHARED ? 1 : 2;
    int64_t norms = each * (c->norm == NORM_LAYER ? 2 * C : C);
    if (c->qk_norm)
        norms += c->qk_norm == QK_NORM_HEAD ? 2 * c->head_dim : HD + KD;
    int64_t matrices = 2 * C * HD + 2 * C * KD + mlp_weights(c, c->experts == 0);
    int64_t biases = (c->attn_bias != ATTN_BIAS_NONE ? HD + 2 * KD : 0) +
                     (c->attn_bias == ATTN_BIAS_ALL ? C : 0) +
                     (c->mlp_bias ? (model_config_gated(c) ? 2 : 1) * c->ffn + C : 0) +
                     (c->experts > 0 && c->experts_bias ? model_config_choices(c) : 0);
    return norms + matrices + biases;
}

int64_t model_config_params(const struct model_config *c)
{
    int64_t C = c->dim, norm = c->norm == NORM_LAYER ? 2 * C : C;
    int64_t table = c->position == POS_LEARNED ? c->max_seq * C : 0;
    int64_t head = c->tied ? 0 : model_config_outputs(c, NULL) * C;
    int64_t fewer = dense_blocks(c) * (mlp_weights(c, 0) - mlp_weights(c, 1) +
                                       (c->experts_bias ? model_config_choices(c) : 0));
    return c->vocab * C + head + table + c->layers * model_config_params_layer(c) - fewer +
           norm * (c->loop > 1 && c->loop_norm == LOOP_NORM_OWN ? 2 : 1);
}

/* Wavelengths that fit `high` times or more into the original context are unchanged, those that fit
 * `low` times or less are scaled in full, with a ramp between. */
static double llama3_frequency(const struct model_config *c, double f)
{
    const double pi = 3.14159265358979323846;
    double times = (double)c->rope_original * f / (2 * pi);
    double keep = (times - c->rope_low) / (c->rope_high - c->rope_low);
    keep = keep < 0 ? 0 : keep > 1 ? 1 : keep;
    return (1 - keep) * f / c->rope_factor + keep * f;
}

/* YaRN (2309.00071): frequencies that turn more than rope_high times in the original context stay,
 * those below rope_low turns are divided, with a ramp over whole indices between. */
static double yarn_keep(const struct model_config *c, int64_t i)
{
    const double pi = 3.14159265358979323846;
    double D = (double)c->rope_dims, log_base = log(c->rope_theta), room = (double)c->rope_original;
    double low = floor(D * log(room / (c->rope_high * 2 * pi)) / (2 * log_base));
    double high = ceil(D * log(room / (c->rope_low * 2 * pi)) / (2 * log_base));
    low = low < 0 ? 0 : low;
    high = high > D - 1 ? D - 1 : high;
    high = high == low ? high + 0.001 : high;
    double ramp = ((double)i - low) / (high - low);
    return 1 - (ramp < 0 ? 0 : ramp > 1 ? 1 : ramp);
}

int64_t model_config_rope_context(const struct model_config *c, int64_t context)
{
    switch (c->rope_scaling) {
    case ROPE_LONGROPE: return context > c->rope_original;
    case ROPE_DYNAMIC: return context > c->max_seq ? context : c->max_seq;
    default: return 0;
    }
}

/* The base of dynamic NTK scaling: that of the file within max_seq. */
static double dynamic_base(const struct model_config *c, int64_t context)
{
    double D = (double)c->rope_dims,
           by = (double)model_config_rope_context(c, context) / (double)c->max_seq;
    return c->rope_theta * pow(c->rope_factor * by - (c->rope_factor - 1), D / (D - 2));
}

/* On rotated elements; LongRoPE: 2402.13753, section 3.3, YaRN: 2309.00071, eq. 22. */
static double rope_attention(const struct model_config *c, int kind)
{
    if (kind != ROPE_YARN && kind != ROPE_LONGROPE)
        return 1;
    if (c->rope_attention > 0)
        return c->rope_attention;
    if (kind == ROPE_YARN)
        return 0.1 * log(c->rope_factor) + 1;
    return c->rope_factor > 1 ? sqrt(1 + log(c->rope_factor) / log((double)c->rope_original)) : 1;
}

double model_config_rope(const struct model_config *c, int local, int64_t context, double *inv_freq)
{
    int is_local = local && c->rope_local > 0, kind = is_local ? ROPE_PLAIN : c->rope_scaling;
    double base = is_local               ? c->rope_local
                  : kind == ROPE_DYNAMIC ? dynamic_base(c, context)
                                         : c->rope_theta;
    const char *list = model_config_rope_context(c, context) ? c->rope_long : c->rope_short;
    for (int64_t i = 0; i < c->rope_dims / 2; i++) {
        double f = pow(base, -2.0 * (double)i / (double)c->rope_dims), keep, by = 1;
        switch (kind) {
        case ROPE_LLAMA3: f = llama3_frequency(c, f); break;
        case ROPE_LINEAR: f /= c->rope_factor; break;
        case ROPE_YARN:
            keep = yarn_keep(c, i);
            f = keep * f + (1 - keep) * f / c->rope_factor;
            break;
        case ROPE_LONGROPE:
            (void)model_config_divisor(&list, &by);
            f /= by;
            break;
        default: break;
        }
        inv_freq[i] = f;
    }
    return rope_attention(c, kind);
}

double model_config_weights(const struct model_config *c)
{
    double C = (double)c->dim, D = (double)(c->heads * c->head_dim),
           K = (double)(c->kv_heads * c->head_dim);
    double block = 2 * C * D + 2 * C * K + (double)mlp_weights(c, c->experts == 0);
    double fewer = (double)(dense_blocks(c) * (mlp_weights(c, 0) - mlp_weights(c, 1)));
    double table = c->position == POS_LEARNED ? (double)c->max_seq * C : 0;
    double head = c->tied ? 0 : (double)model_config_outputs(c, NULL) * C;
    return (double)c->vocab * C + head + table + (double)c->layers * block - fewer;
}

struct flops_shape model_config_flops(const struct model_config *c)
{
    struct flops_shape s = {
        .C = (int)c->dim,
        .H = (int)c->heads,
        .K = (int)c->kv_heads,
        .D = (int)c->head_dim,
        .F = (int)c->ffn,
        .V = (int)model_config_outputs(c, NULL),
        .L = model_config_depth(c),
        .mlp_mats = model_config_gated(c) ? 3 : 2,
        .window = (int)c->window,
        .E = (int)model_config_choices(c),
        .experts_used = (int)c->experts_used,
        .expert_F = (int)c->expert_ffn,
        .shared_F = (int)c->shared_ffn,
        .shared_gate = c->shared_gate,
    };
    for (int l = 0; l < s.L; l++)
        s.dense_mlps += c->experts > 0 && !model_config_has_experts(c, model_config_block(c, l));
    for (int l = 0; l < s.L; l++)
        s.windowed += model_config_window(c, model_config_block(c, l)) > 0;
    adapters_flops(c, &s.adapter_qo, &s.adapter_kv, &s.adapter_mlp);
    return s;
}
