/* Converts GGUF metadata to a configuration: the keys read, llama.cpp's defaults, and the keys that
 * require unsupported computation. */
#include "gguf_config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "load_file.h"

enum { KEY_SIZE = 160 };

struct source {
    struct gguf *g;
    const char *path;
    const char *arch;
    const struct gguf_arch *of;
};

static const struct gguf_arch archs[] = {
    // clang-format off
    /* name      family         pairs  norms        +1 q, k           mlp        window nope unscaled experts */
    {"llama",   "llama",       1, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, 0, 0},
    {"qwen2",   "qwen2",       0, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, 0, 0},
    {"qwen3",   "qwen3",       0, NORM_BEFORE, 0, QK_NORM_HEAD,  MLP_SWIGLU, 0, 0, 0},
    {"gemma",   "gemma",       0, NORM_BEFORE, 1, QK_NORM_NONE,  MLP_GEGLU,  0, 0, 0},
    {"gemma2",  "gemma2",      0, NORM_BOTH,   1, QK_NORM_NONE,  MLP_GEGLU,  2, 0, 46},
    {"gemma3",  "gemma3_text", 0, NORM_BOTH,   1, QK_NORM_HEAD,  MLP_GEGLU,  6, 0, 62},
    {"olmo2",   "olmo2",       0, NORM_AFTER,  0, QK_NORM_WHOLE, MLP_SWIGLU, 4, 0, 0},
    {"olmo2",   "olmo3",       0, NORM_AFTER,  0, QK_NORM_WHOLE, MLP_SWIGLU, 4, 0, 0},
    {"llama",   "mixtral",     1, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, 0, 0, GGUF_EXPERTS_SUM_1},
    {"qwen2moe", "qwen2_moe",  0, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, 0, 0, GGUF_EXPERTS_SHARED},
    {"qwen3moe", "qwen3_moe",  0, NORM_BEFORE, 0, QK_NORM_HEAD,  MLP_SWIGLU, 0, 0, 0, GGUF_EXPERTS_SUM_1},
    {"olmoe",   "olmoe",       0, NORM_BEFORE, 0, QK_NORM_WHOLE, MLP_SWIGLU, 0, 0, 0, GGUF_EXPERTS_SCORES},
    {"smollm3", "smollm3",     1, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, 4, 0},
    {"phi3",    "phi3",        0, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, 0, 0, GGUF_DENSE, 1},
    {"gptneox", "gpt_neox",    0, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_GELU,   0, 0, 0, GGUF_DENSE, 0, 1, 1},
    {"stablelm", "stablelm",   0, NORM_BEFORE, 0, QK_NORM_NONE,  MLP_SWIGLU, 0, 0, 0, GGUF_DENSE, 0, 1, 0},
    // clang-format on
};

const struct gguf_arch *gguf_arch_find(const char *name)
{
    for (size_t i = 0; i < DS_LEN(archs); i++)
        if (strcmp(archs[i].name, name) == 0)
            return &archs[i];
    return NULL;
}

const struct gguf_arch *gguf_arch_of(const char *family)
{
    for (size_t i = 0; family && i < DS_LEN(archs); i++)
        if (strcmp(archs[i].family, family) == 0)
            return &archs[i];
    return NULL;
}

double gguf_arch_scale(const struct gguf_arch *a, const struct model_config *c)
{
    int is_unscaled = a->unscaled && c->layers == a->unscaled && c->dim / c->heads != c->head_dim;
    return is_unscaled ? 1 / sqrt((double)(c->dim / c->heads)) : 0;
}

static int is_gemma(const struct source *s)
{
    return s->of->mlp == MLP_GEGLU;
}

/* Gemma 2 and 3 */
static int has_caps(const struct source *s)
{
    return is_gemma(s) && s->of->norm_place == NORM_BOTH;
}

static const struct gguf_meta *meta(const struct source *s, const char *key, char full[KEY_SIZE])
{
    snprintf(full, KEY_SIZE, "%s.%s", s->arch, key);
    return gguf_meta_find(s->g, full);
}

/* 1 with the value, 0 when the key is absent. */
static int get_num(const struct source *s, const char *key, double *out, struct err *e)
{
    char full[KEY_SIZE];
    const struct gguf_meta *m = meta(s, key, full);
    if (!m)
        return 0;
    if (m->kind == GGUF_ARRAY || !gguf_num(m, 0, out))
        return err_set(e, DS_EFORMAT, "%s must be a number, found %s", full,
                       gguf_kind_name(m->kind));
    return 1;
}

/* Sets a whole number that a file may hold as any kind of number. */
static int set_whole(struct model_config *c, const char *own, double v, const char *key,
                     struct err *e)
{
    if (!(fabs(v) <= INT32_MAX))
        return err_set(e, DS_EFORMAT, "%s = %g: out of range", key, v);
    return load_set_int(c, own, (int64_t)v, key, e);
}

static int read_arch(struct source *s, struct err *e)
{
    struct gguf_text text;
    struct str known = {0};
    char name[40];
    if (!gguf_string(gguf_meta_find(s->g, "general.architecture"), &text))
        return err_set(e, DS_EFORMAT, "missing key general.architecture");
    snprintf(name, sizeof name, "%.*s", text.n < 39 ? (int)text.n : 39, text.p);
    s->of = gguf_arch_find(name);
    if (!s->of) {
        for (size_t i = 0; i < DS_LEN(archs); i++)
            str_addf(&known, "%s%s",
                     i == 0                  ? ""
                     : i + 1 < DS_LEN(archs) ? ", "
                                             : " or ",
                     archs[i].name);
        err_set(e, DS_EFORMAT, "unsupported architecture %s: expected %s", name, str_text(&known));
        str_release(&known);
        return DS_EFORMAT;
    }
    s->arch = s->of->name;
    return 0;
}

/* Every key of a size or a constant.  absent: llama.cpp's default (0: derived from other keys);
 * NULL: the key is mandatory. */
static const struct {
    const char *key, *own, *absent;
    int is_real;
} sizes[] = {
    // clang-format off
    {"block_count",                      "layers",     NULL,    0},
    {"embedding_length",                 "dim",        NULL,    0},
    {"feed_forward_length",              "ffn",        NULL,    0},
    {"context_length",                   "max_seq",    NULL,    0},
    {"attention.head_count",             "heads",      NULL,    0},
    {"attention.head_count_kv",          "kv_heads",   "0",     0},
    {"attention.key_length",             "head_dim",   "0",     0},
    {"attention.layer_norm_rms_epsilon", "norm_eps",   NULL,    1},
    {"rope.freq_base",                   "rope_theta", "10000", 1},
    // clang-format on
};

/* One number, or a list of one for each block if they are all the same. */
static int is_one(const struct gguf_meta *m, const struct model_config *c)
{
    double first, v;
    if (m->kind != GGUF_ARRAY)
        return 1;
    int same = m->count == (uint64_t)c->layers && gguf_num(m, 0, &first);
    for (uint64_t i = 0; same && i < m->count; i++)
        same = gguf_num(m, i, &v) && v == first;
    return same;
}

static int read_sizes(const struct source *s, struct model_config *c, struct err *e)
{
    char full[KEY_SIZE];
    for (size_t i = 0; i < DS_LEN(sizes); i++) {
        int is_eps = s->of->is_layer && strcmp(sizes[i].own, "norm_eps") == 0;
        const struct gguf_meta *m =
            meta(s, is_eps ? "attention.layer_norm_epsilon" : sizes[i].key, full);
        int64_t whole;
        uint64_t big;
        double v;
        int rc = 0;
        if (!m && !sizes[i].absent)
            return err_set(e, DS_EFORMAT, "missing key %s", full);
        if (!m) {
            rc = load_set_text(c, sizes[i].own, sizes[i].absent, full, e);
            if (rc < 0)
                return rc;
            continue;
        }
        if (is_one(m, c) && !sizes[i].is_real && gguf_big(m, 0, &big))
            return err_set(e, DS_EFORMAT, "%s = %" PRIu64 ": must be less than 2^63", full, big);
        if (!is_one(m, c) || !(sizes[i].is_real ? gguf_num(m, 0, &v) : gguf_int(m, 0, &whole)))
            return err_set(e, DS_EFORMAT, "%s must be a single %s, found %s", full,
                           sizes[i].is_real ? "number" : "integer", gguf_kind_name(m->kind));
        if (!sizes[i].is_real && whole == 0) /* our own options use 0 for "derived" */
            return err_set(e, DS_EFORMAT, "%s = 0: must be greater than 0", full);
        rc = sizes[i].is_real ? load_set_real(c, sizes[i].own, v, full, e)
                              : load_set_int(c, sizes[i].own, whole, full, e);
        if (rc < 0)
            return rc;
    }
    return 0;
}

/* ---- experts --------------------------------------------------------------------------------- */

/* A key of experts; absent: its value without the key, 0 = mandatory. */
static int read_expert_key(const struct source *s, struct model_config *c, const char *key,
                           const char *own, int64_t absent, struct err *e)
{
    char full[KEY_SIZE];
    const struct gguf_meta *m = meta(s, key, full);
    int64_t v = absent;
    if (!m && absent == 0)
        return err_set(e, DS_EFORMAT, "missing key %s", full);
    if (m && (m->kind == GGUF_ARRAY || !gguf_int(m, 0, &v)))
        return err_set(e, DS_EFORMAT, "%s must be a single integer, found %s", full,
                       gguf_kind_name(m->kind));
    if (v == 0)
        return err_set(e, DS_EFORMAT, "%s = 0: must be greater than 0", full);
    return load_set_int(c, own, v, full, e);
}

/* Llama's architecture is Mixtral's too. */
static enum gguf_experts experts_of(const struct source *s)
{
    enum gguf_experts kind = GGUF_DENSE;
    for (size_t i = 0; i < DS_LEN(archs); i++)
        if (strcmp(archs[i].name, s->arch) == 0 && archs[i].experts != GGUF_DENSE)
            kind = archs[i].experts;
    return kind;
}

static int read_experts(const struct source *s, struct model_config *c, struct err *e)
{
    enum gguf_experts kind = experts_of(s);
    double n = 0, used = 0;
    int rc = get_num(s, "expert_count", &n, e), is_shared = kind == GGUF_EXPERTS_SHARED;
    if (rc >= 0)
        rc = get_num(s, "expert_used_count", &used, e);
    if (rc < 0)
        return rc;
    if (n == 0)
        return used == 0 ? 0
                         : err_set(e, DS_EFORMAT, "%s.expert_used_count = %g: needs expert_count",
                                   s->arch, used);
    if (kind == GGUF_DENSE)
        return err_set(e, DS_EFORMAT,
                       "%s.expert_count = %g: mixture of experts is unsupported in this "
                       "architecture",
                       s->arch, n);
    rc = read_expert_key(s, c, "expert_count", "experts", 0, e);
    if (rc == 0)
        rc = read_expert_key(s, c, "expert_used_count", "experts_used", 0, e);
    if (rc == 0)
        rc = read_expert_key(s, c, "expert_feed_forward_length", "expert_ffn",
                             is_shared ? c->ffn / c->experts_used : c->ffn, e);
    if (rc == 0 && is_shared)
        rc = read_expert_key(s, c, "expert_shared_feed_forward_length", "shared_ffn", c->ffn, e);
    c->experts_norm = kind == GGUF_EXPERTS_SUM_1;
    c->shared_gate = is_shared;
    return rc;
}

/* ---- unsupported options --------------------------------------------------------------------- */

/* Keys that change what llama.cpp computes in some architecture.  NEUTRAL: the value `neutral` has
 * no effect (NEUTRAL_OR_0: nor has 0); HEAD: must equal the head size; SCALE: must be 1 / sqrt(head
 * size). */
enum test { NEUTRAL, NEUTRAL_OR_0, HEAD, SCALE, WINDOW, NO_LIST };
static const struct {
    const char *key;
    enum test test;
    double neutral;
    const char *what;
} others[] = {
    // clang-format off
    {"attention.causal",              NEUTRAL, 1, "non-causal attention is unsupported"},
    {"attention.sliding_window",      WINDOW,  0, "sliding-window attention is unsupported"},
    {"attention.value_length",        HEAD,    0, "different head sizes for keys and values are unsupported"},
    {"rope.dimension_count",          HEAD,    0, "partial rotary dimensions are unsupported"},
    {"rope.dimension_sections",       NO_LIST, 0, "multi-section rotary positions are unsupported"},
    {"rope.scaling.attn_factor",      NEUTRAL_OR_0, 1, "scaled rotary positions are unsupported"},
    {"rope.scaling.yarn_ext_factor",  NEUTRAL, 0, "YaRN rotary scaling is unsupported"},
    {"rope.scaling.yarn_log_multiplier", NEUTRAL, 0, "YaRN rotary scaling is unsupported"},
    {"attention.scale",               SCALE,   0, "attention scales other than 1 / sqrt(head size) are unsupported"},
    {"attention.clamp_kqv",           NEUTRAL, 0, "clipped queries and keys are unsupported"},
    {"attention.max_alibi_bias",      NEUTRAL, 0, "ALiBi position biases are unsupported"},
    {"attention.temperature_scale",   NEUTRAL_OR_0, 1, "position-dependent attention scales are unsupported"},
    {"attention.key_length_mla",      NEUTRAL, 0, "multi-head latent attention is unsupported"},
    {"attention.value_length_mla",    NEUTRAL, 0, "multi-head latent attention is unsupported"},
    {"attention.q_lora_rank",         NEUTRAL, 0, "multi-head latent attention is unsupported"},
    {"attention.kv_lora_rank",        NEUTRAL, 0, "multi-head latent attention is unsupported"},
    {"attention.output_scale",        NEUTRAL_OR_0, 1, "scaled attention output is unsupported"},
    {"attention.shared_kv_layers",    NEUTRAL, 0, "sharing keys and values across layers is unsupported"},
    {"attn_logit_softcapping",        NEUTRAL, 0, "soft-capped attention scores are unsupported"},
    {"final_logit_softcapping",       NEUTRAL, 0, "soft-capped logits are unsupported"},
    {"logit_scale",                   NEUTRAL_OR_0, 1, "scaled logits are unsupported"},
    {"embedding_scale",               NEUTRAL_OR_0, 1, "a scaled embedding is unsupported"},
    {"residual_scale",                NEUTRAL_OR_0, 1, "scaled residual branches are unsupported"},
    {"use_parallel_residual",         NEUTRAL, 0, "parallel attention and MLP is unsupported"},
    {"expert_gating_func",            NEUTRAL_OR_0, 1, "expert scores other than softmax are unsupported"},
    {"expert_weights_scale",          NEUTRAL_OR_0, 1, "scaled expert weights are unsupported"},
    {"expert_group_count",            NEUTRAL_OR_0, 1, "groups of experts are unsupported"},
    {"expert_group_used_count",       NEUTRAL_OR_0, 1, "groups of experts are unsupported"},
    {"leading_dense_block_count",     NEUTRAL, 0, "dense MLPs in some layers are unsupported with experts"},
    {"moe_every_n_layers",            NEUTRAL_OR_0, 1, "dense MLPs in some layers are unsupported with experts"},
    {"nextn_predict_layers",          NEUTRAL, 0, "multi-token prediction layers are unsupported"},
    {"swin_norm",                     NEUTRAL, 0, "norms after attention are unsupported"},
    // clang-format on
};

static int differs(const struct gguf_meta *m, double v, size_t i, const struct model_config *c)
{
    switch (others[i].test) {
    case NEUTRAL_OR_0: return v != 0 && v != others[i].neutral;
    case HEAD: return v != (double)c->head_dim;
    case SCALE: return v != 0 && !(fabs(v * sqrt((double)c->head_dim) - 1) < 1e-6);
    case WINDOW: return v > 0 && v < (double)c->max_seq;
    case NO_LIST: return m->count > 0;
    default: return v != others[i].neutral;
    }
}

static const char long_name[] = "rope_factors_long.weight",
                  short_name[] = "rope_factors_short.weight";

/* LongRoPE's factors: one of two tensors, by the length of the context. */
static int has_long(const struct source *s)
{
    return s->of->is_fused && (gguf_find(s->g, long_name) || gguf_find(s->g, short_name));
}

/* Keys that the architecture reads elsewhere. */
static int is_own(const struct source *s, const char *key)
{
    return ((s->of->window_every || s->of->is_fused) &&
            strcmp(key, "attention.sliding_window") == 0) ||
           (has_caps(s) && strstr(key, "_logit_softcapping")) ||
           (!s->of->has_pairs && strcmp(key, "rope.dimension_count") == 0) ||
           (s->of->is_layer && strcmp(key, "use_parallel_residual") == 0) ||
           (has_long(s) && strcmp(key, "rope.scaling.attn_factor") == 0);
}

static int refuse_others(const struct source *s, const struct model_config *c, struct err *e)
{
    char full[KEY_SIZE];
    for (size_t i = 0; i < DS_LEN(others); i++) {
        const struct gguf_meta *m = meta(s, others[i].key, full);
        double v = 0;
        if (!m || is_own(s, others[i].key))
            continue;
        if ((others[i].test == NO_LIST) != (m->kind == GGUF_ARRAY) ||
            (m->kind != GGUF_ARRAY && !gguf_num(m, 0, &v)))
            return err_set(e, DS_EFORMAT, "%s must be %s, found %s", full,
                           others[i].test == NO_LIST ? "a list" : "a number or a boolean",
                           gguf_kind_name(m->kind));
        if (differs(m, v, i, c))
            return err_set(e, DS_EFORMAT, "%s = %g: %s", full, v, others[i].what);
    }
    return 0;
}

/* An attention or rope key in no table may change the computation and is refused; other unknown
 * keys are ignored, as is customary. */
static int refuse_unknown(const struct source *s, struct err *e)
{
    static const char *const read[] = {
        "rope.scaling.type", "rope.scaling.factor", "rope.scale_linear",
        "rope.scaling.low_freq_factor", "rope.scaling.high_freq_factor",
        "rope.scaling.original_context_length",
        /* no effect without the keys refused above */
        "attention.layer_norm_epsilon", "rope.scaling.finetuned", "rope.scaling.yarn_attn_factor",
        "rope.scaling.yarn_beta_fast", "rope.scaling.yarn_beta_slow", "rope.freq_base_swa",
        "rope.dimension_count_swa", "attention.key_length_swa", "attention.value_length_swa",
        "attention.sliding_window_pattern"};
    size_t n = strlen(s->arch);
    for (size_t i = 0; i < gguf_meta_count(s->g); i++) {
        const char *key = gguf_meta_at(s->g, i)->key, *rest = key + n + 1;
        int known = 0;
        if (strncmp(key, s->arch, n) != 0 || key[n] != '.' ||
            (strncmp(rest, "attention.", 10) != 0 && strncmp(rest, "rope.", 5) != 0))
            continue;
        for (size_t k = 0; k < DS_LEN(sizes); k++)
            known |= strcmp(rest, sizes[k].key) == 0;
        for (size_t k = 0; k < DS_LEN(others); k++)
            known |= strcmp(rest, others[k].key) == 0;
        for (size_t k = 0; k < DS_LEN(read); k++)
            known |= strcmp(rest, read[k]) == 0;
        if (!known)
            return err_set(e, DS_EFORMAT, "unknown key %.100s: it may change the logits", key);
    }
    return 0;
}

/* ---- end-of-text ids ------------------------------------------------------------------------- */

/* Ids outside the vocabulary are ignored, as in llama.cpp. */
static int read_ends(const struct source *s, struct model_config *c, struct err *e)
{
    static const char *const names[] = {"tokenizer.ggml.eos_token_id",
                                        "tokenizer.ggml.eot_token_id",
                                        "tokenizer.ggml.eom_token_id"};
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(names) && rc == 0; i++) {
        const struct gguf_meta *m = gguf_meta_find(s->g, names[i]);
        int64_t id;
        if (!m)
            continue;
        if (m->kind == GGUF_ARRAY || !gguf_int(m, 0, &id))
            return err_set(e, DS_EFORMAT, "%s must be a single integer, found %s", names[i],
                           gguf_kind_name(m->kind));
        rc = model_config_add_eos(c, id);
    }
    return rc < 0 ? err_set(e, rc, "end-of-text token ids: too many, or out of memory") : 0;
}

/* ---- rotary scaling -------------------------------------------------------------------------- */

/* The scaling factor behind the largest of the factors. */
static double factor_from(const struct model_config *c, double largest, double turns)
{
    double keep = (turns - c->rope_low) / (c->rope_high - c->rope_low);
    return keep <= 0 || keep * largest >= 1 ? largest
                                            : fmin((1 - keep) / (1 / largest - keep), 1e6);
}

/* The original context behind a factor between 1 and the largest, which is the scaling factor. */
static double original_from(const struct model_config *c, double largest, double factor,
                            double turns_of_1)
{
    double keep = (1 / factor - 1 / largest) / (1 - 1 / largest);
    return round((c->rope_low + keep * (c->rope_high - c->rope_low)) / turns_of_1);
}

/* The first factor that is not Llama 3's; -1: none. */
static int first_other(struct model_config *c, const real *factor, const double *plain, int n,
                       double *ours)
{
    double scaled[512];
    c->rope_scaling = ROPE_LLAMA3;
    (void)model_config_rope(c, 0, 0, scaled);
    for (int i = 0; i < n; i++) {
        *ours = plain[i] / scaled[i];
        if (!(fabs(*ours - (double)factor[i]) <= 1e-3 * *ours))
            return i;
    }
    return -1;
}

/* A file of Llama 3.1 or later stores its scaling only as factors, one per frequency, often without
 * the original context.  They must follow from one scaling factor and the published bounds, 1 and 4
 * turns in the original context, which is 8192 or what the factors say. */
static int read_factors(const struct source *s, const struct gguf_tensor *t, struct model_config *c,
                        struct err *e)
{
    double plain[512], original, ours, turn = 2 * acos(-1.0);
    real factor[512];
    int n = (int)(c->rope_dims / 2), most = 0, between = -1;
    if (n > 512 || t->items != (uint64_t)n)
        return err_set(e, DS_EFORMAT, "%s: %" PRIu64 " values, expected %d from the head size",
                       t->name, t->items, n);
    int rc = gguf_read(t, factor, t->items, e);
    if (rc == 0)
        rc = get_num(s, "rope.scaling.original_context_length", &original, e);
    if (rc == 1)
        rc = set_whole(c, "rope_original", original, "original_context_length", e);
    else
        original = 0;
    if (rc < 0)
        return rc;
    c->rope_scaling = ROPE_PLAIN;
    (void)model_config_rope(c, 0, 0, plain);
    for (int i = 0; i < n; i++)
        most = factor[i] > factor[most] ? i : most;
    double largest = (double)factor[most] > 1 ? (double)factor[most] : 1;
    for (int i = 0; i < n; i++)
        if ((double)factor[i] > 1.01 && (double)factor[i] < 0.99 * largest)
            between = i;
    c->rope_factor = factor_from(c, largest, (double)c->rope_original * plain[most] / turn);
    int at = first_other(c, factor, plain, n, &ours);
    if (at >= 0 && between >= 0 && original == 0) {
        original = original_from(c, largest, (double)factor[between], plain[between] / turn);
        c->rope_original = original >= 1 && original <= INT32_MAX ? (int64_t)original : 8192;
        c->rope_factor = largest;
        at = first_other(c, factor, plain, n, &ours);
    }
    if (at >= 0)
        return err_set(e, DS_EFORMAT,
                       "%s: factor %d is %g, expected %g from Llama 3's scaling by %g; other "
                       "scalings are unsupported",
                       t->name, at, (double)factor[at], ours, c->rope_factor);
    return load_set_real(c, "rope_factor", c->rope_factor, t->name, e);
}

static int read_scaling_keys(const struct source *s, struct model_config *c, struct err *e)
{
    static const char *const keys[][2] = {
        {"rope.scaling.factor", "rope_factor"},
        {"rope.scaling.low_freq_factor", "rope_low"},
        {"rope.scaling.high_freq_factor", "rope_high"},
        {"rope.scaling.original_context_length", "rope_original"},
    };
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        double v = 0;
        int rc = get_num(s, keys[i][0], &v, e);
        if (rc == 0)
            return err_set(e, DS_EFORMAT, "missing key %s.%s", s->arch, keys[i][0]);
        if (rc == 1)
            rc = i == 3 ? set_whole(c, keys[i][1], v, keys[i][0], e)
                        : load_set_real(c, keys[i][1], v, keys[i][0], e);
        if (rc < 0)
            return rc;
    }
    return load_set_text(c, "rope_scaling", "llama3", s->path, e);
}

/* llama.cpp's YaRN: the ramp between 32 and 1 turns unless the file says otherwise. */
static int read_yarn(const struct source *s, struct model_config *c, struct err *e)
{
    static const struct {
        const char *key, *own;
        double absent;
    } keys[] = {{"rope.scaling.factor", "rope_factor", 0},
                {"rope.scaling.yarn_beta_slow", "rope_low", 1},
                {"rope.scaling.yarn_beta_fast", "rope_high", 32},
                {"rope.scaling.original_context_length", "rope_original", 0}};
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        double v = keys[i].absent;
        int rc = get_num(s, keys[i].key, &v, e);
        if (rc == 0 && v == 0)
            return err_set(e, DS_EFORMAT, "missing key %s.%s", s->arch, keys[i].key);
        if (rc >= 0)
            rc = i == 3 ? set_whole(c, keys[i].own, v, keys[i].key, e)
                        : load_set_real(c, keys[i].own, v, keys[i].key, e);
        if (rc < 0)
            return rc;
    }
    return load_set_text(c, "rope_scaling", "yarn", s->path, e);
}

static int read_divisors(const struct source *s, struct model_config *c, const char *tensor,
                         const char *own, struct err *e)
{
    const struct gguf_tensor *t = gguf_find(s->g, tensor);
    real v[ROPE_PAIRS_MAX];
    struct str list = {0};
    int n = (int)(c->rope_dims / 2);
    if (!t)
        return err_set(e, DS_EFORMAT, "missing tensor %s", tensor);
    if (t->rank != 1 || t->items != (uint64_t)n)
        return err_set(e, DS_EFORMAT,
                       "%s: %" PRIu64 " values, expected %d, half of the rotary dimensions", tensor,
                       t->items, n);
    int rc = gguf_read(t, v, t->items, e);
    for (int i = 0; i < n && rc == 0; i++) {
        str_addf(&list, "%s%.9g", i ? "," : "", (double)v[i]);
        if (!(v[i] > 0) || !isfinite(v[i]))
            rc = err_set(e, DS_EFORMAT, "%s: value %d is %g, expected a positive number", tensor,
                         i + 1, (double)v[i]);
    }
    if (rc == 0)
        rc = list.failed ? err_set(e, DS_EMEM, "%s: out of memory", tensor)
                         : load_set_text(c, own, str_text(&list), tensor, e);
    str_release(&list);
    return rc;
}

static int read_long(const struct source *s, struct model_config *c, struct err *e)
{
    double original = (double)c->max_seq, factor = 1;
    int rc = get_num(s, "rope.scaling.original_context_length", &original, e);
    if (rc >= 0)
        rc = get_num(s, "rope.scaling.attn_factor", &factor, e);
    if (rc >= 0 && !(original >= 1 && original <= INT32_MAX))
        return err_set(e, DS_EFORMAT,
                       "%s.rope.scaling.original_context_length = %g: must be positive", s->arch,
                       original);
    if (rc < 0 || (rc = load_set_int(c, "rope_original", (int64_t)original,
                                     "original_context_length", e)) < 0)
        return rc;
    double by = (double)c->max_seq / (double)c->rope_original;
    if ((rc = load_set_real(c, "rope_attention", factor == 0 ? 1 : factor, "attn_factor", e)) < 0 ||
        (rc = load_set_real(c, "rope_factor", by > 1 ? by : 1, "context_length", e)) < 0 ||
        (rc = read_divisors(s, c, short_name, "rope_short", e)) < 0 ||
        (rc = read_divisors(s, c, long_name, "rope_long", e)) < 0)
        return rc;
    return load_set_text(c, "rope_scaling", "longrope", s->path, e);
}

static int read_scaling(const struct source *s, struct model_config *c, struct err *e)
{
    char full[KEY_SIZE];
    struct gguf_text type = {"none", 4};
    double factor = 1;
    const struct gguf_meta *m = meta(s, "rope.scaling.type", full);
    const struct gguf_tensor *t = gguf_find(s->g, "rope_freqs.weight");
    if (m && !gguf_string(m, &type))
        return err_set(e, DS_EFORMAT, "%s must be a string", full);
    if (type.n == 6 && memcmp(type.p, "llama3", 6) == 0)
        return read_scaling_keys(s, c, e);
    int rc = get_num(s, "rope.scaling.factor", &factor, e);
    if (rc == 0)
        rc = get_num(s, "rope.scale_linear", &factor, e);
    if (rc < 0)
        return rc;
    int is_none = type.n == 4 && memcmp(type.p, "none", 4) == 0;
    int is_linear = type.n == 6 && memcmp(type.p, "linear", 6) == 0;
    int is_yarn = type.n == 4 && memcmp(type.p, "yarn", 4) == 0;
    int is_long = s->of->is_fused && type.n == 8 && memcmp(type.p, "longrope", 8) == 0;
    int is_other = t || factor > 1 || !(is_none || is_linear || is_long);
    if ((is_long || has_long(s)) && is_other)
        return err_set(e, DS_EFORMAT, "%s next to another rotary scaling is unsupported",
                       long_name);
    if (is_long || has_long(s))
        return read_long(s, c, e);
    if (t && s->of->is_layer)
        return err_set(e, DS_EFORMAT, "%s: unsupported in this architecture", t->name);
    if (t && (!(is_none || is_linear) || (factor != 0 && factor != 1)))
        return err_set(e, DS_EFORMAT, "%s next to another rotary scaling is unsupported", t->name);
    if (t)
        return read_factors(s, t, c, e);
    if (is_yarn)
        return read_yarn(s, c, e);
    if (is_linear && factor > 1) {
        rc = load_set_real(c, "rope_factor", factor, "rope.scaling.factor", e);
        return rc < 0 ? rc : load_set_text(c, "rope_scaling", "linear", s->path, e);
    }
    if ((!is_none && !is_linear) || (factor != 0 && factor != 1))
        return err_set(
            e, DS_EFORMAT,
            "unsupported rotary scaling %.*s by %g: expected linear, yarn, llama3 or none",
            type.n < 40 ? (int)type.n : 40, type.p, factor);
    return 0;
}

/* ---- configuration --------------------------------------------------------------------------- */

/* GPT-NeoX has biases everywhere and says whether its blocks are parallel; those of StableLM are
 * where they have one norm, whatever the metadata says. */
static int read_layer_norms(const struct source *s, struct model_config *c, struct err *e)
{
    double is_parallel = 0;
    struct gguf_text mlp = {0};
    c->norm = NORM_LAYER;
    if (!s->of->is_neox) {
        c->parallel = gguf_find(s->g, "blk.0.ffn_norm.weight") ? PARALLEL_NONE : PARALLEL_SHARED;
        return 0;
    }
    int rc = get_num(s, "use_parallel_residual", &is_parallel, e);
    if (rc == 0)
        return err_set(e, DS_EFORMAT, "missing key %s.use_parallel_residual", s->arch);
    c->parallel = is_parallel != 0 ? PARALLEL_NORMS : PARALLEL_NONE;
    c->attn_bias = ATTN_BIAS_ALL;
    c->mlp_bias = 1;
    if (gguf_string(gguf_meta_find(s->g, GGUF_MLP), &mlp) && mlp.n == 9 &&
        memcmp(mlp.p, "gelu_tanh", 9) == 0)
        c->mlp = MLP_GELU_TANH;
    return rc < 0 ? rc : 0;
}

static int read_switches(const struct source *s, struct model_config *c, struct err *e)
{
    const struct gguf_tensor *embed = gguf_find(s->g, "token_embd.weight");
    int on_q = gguf_find(s->g, "blk.0.attn_q.bias") != NULL;
    int on_o = gguf_find(s->g, "blk.0.attn_output.bias") != NULL;
    int is_qwen2 = strcmp(s->arch, "qwen2") == 0; /* qwen2moe may have none */
    if (!embed || embed->rank != 2)
        return err_set(e, DS_EFORMAT, "missing matrix token_embd.weight");
    int rc = load_set_text(c, "method", "dense", s->path, e);
    if (rc == 0)
        rc = load_set_int(c, "vocab", embed->shape[0] > INT32_MAX ? -1 : (int64_t)embed->shape[0],
                          embed->name, e);
    c->tied = !gguf_find(s->g, "output.weight");
    c->attn_bias = on_q && on_o ? ATTN_BIAS_ALL : on_q || is_qwen2 ? ATTN_BIAS_QKV : ATTN_BIAS_NONE;
    c->mlp_bias = gguf_find(s->g, "blk.0.ffn_up.bias") != NULL;
    c->norm_place = s->of->norm_place;
    c->norm_offset = s->of->norm_offset;
    c->qk_norm = s->of->qk_norm;
    c->mlp = s->of->mlp;
    c->embed_scale = is_gemma(s) ? sqrt((double)c->dim) : 1;
    return rc == 0 && s->of->is_layer ? read_layer_norms(s, c, e) : rc;
}

/* A list of the blocks for which `is` holds. */
static int set_blocks(struct model_config *c, const char *own, const char *full,
                      int (*is)(const struct gguf_meta *m, int64_t every, int64_t l),
                      const struct gguf_meta *m, int64_t every, struct err *e)
{
    struct str list = {0};
    int64_t n = 0;
    for (int64_t l = 0; l < c->layers; l++)
        if (is(m, every, l))
            str_addf(&list, "%s%" PRId64, n++ ? "," : "", l);
    int rc = list.failed ? err_set(e, DS_EMEM, "%s: out of memory", full)
                         : load_set_text(c, own, str_text(&list), full, e);
    str_release(&list);
    return rc;
}

static int is_windowed(const struct gguf_meta *m, int64_t every, int64_t l)
{
    int64_t v;
    if (m && m->kind == GGUF_ARRAY)
        return gguf_int(m, (uint64_t)l, &v) && v != 0;
    return l % every < every - 1;
}

static int is_nope(const struct gguf_meta *m, int64_t every, int64_t l)
{
    (void)m;
    return (l + 1) % every == 0;
}

/* The window of Gemma and OLMo 3: its size, its blocks, and their base. */
static int read_window(const struct source *s, struct model_config *c, struct err *e)
{
    char full[KEY_SIZE];
    int is_two = strcmp(s->arch, "gemma2") == 0, has_base = is_gemma(s) && !is_two;
    double size = is_two ? 4096 : 0, base = has_base ? 10000 : c->rope_theta;
    int64_t every = s->of->window_every;
    int rc = get_num(s, "attention.sliding_window", &size, e);
    if (rc < 0)
        return rc;
    const struct gguf_meta *m = meta(s, "attention.sliding_window_pattern", full);
    if (m && m->kind == GGUF_ARRAY && m->count != (uint64_t)c->layers)
        return err_set(e, DS_EFORMAT,
                       "%s has %" PRIu64 " entries, expected %" PRId64 ", block_count", full,
                       (uint64_t)m->count, c->layers);
    if (m && m->kind != GGUF_ARRAY && (!gguf_int(m, 0, &every) || every < 1))
        return err_set(e, DS_EFORMAT, "%s must be a list or a positive integer", full);
    if (size <= 0)
        return 0;
    if ((rc = set_whole(c, "window", size, "attention.sliding_window", e)) < 0 ||
        (rc = set_blocks(c, "window_layers", full, is_windowed, m, every, e)) < 0)
        return rc;
    if (!c->window_layers[0]) /* no block has it */
        c->window = 0;
    if (c->window == 0)
        return 0;
    rc = get_num(s, "rope.freq_base_swa", &base, e);
    if (rc > 0 && !has_base && base != c->rope_theta)
        return err_set(e, DS_EFORMAT,
                       "%s.rope.freq_base_swa = %g: expected rope.freq_base = %g in this "
                       "architecture",
                       s->arch, base, c->rope_theta);
    if (rc < 0 || is_two)
        return rc < 0 ? rc : 0;
    return load_set_real(c, "rope_local", base, "rope.freq_base_swa", e);
}

static int read_caps(const struct source *s, struct model_config *c, struct err *e)
{
    int is_two = strcmp(s->arch, "gemma2") == 0;
    double attn = is_two ? 50 : 0, last = is_two ? 30 : 0;
    int rc = get_num(s, "attn_logit_softcapping", &attn, e);
    if (rc >= 0)
        rc = get_num(s, "final_logit_softcapping", &last, e);
    if (rc >= 0 && !is_two && attn != 0)
        return err_set(e, DS_EFORMAT,
                       "%s.attn_logit_softcapping = %g: soft-capped attention scores "
                       "are unsupported in this architecture",
                       s->arch, attn);
    if (rc >= 0 && is_two && (!(attn > 0) || !(last > 0)))
        return err_set(e, DS_EFORMAT, "%s.%s_logit_softcapping = %g: must be positive", s->arch,
                       attn > 0 ? "final" : "attn", attn > 0 ? last : attn);
    if (rc >= 0 && (rc = load_set_real(c, "attn_cap", attn, "attn_logit_softcapping", e)) == 0)
        rc = load_set_real(c, "logit_cap", last, "final_logit_softcapping", e);
    return rc;
}

/* Phi-3's window is that of all blocks; 0 is none.  llama.cpp reads the key and ignores it. */
static int read_phi(const struct source *s, struct model_config *c, struct err *e)
{
    double window = 0;
    int rc = get_num(s, "attention.sliding_window", &window, e);
    c->fused = 1;
    return rc < 0 || window <= 0 || window >= (double)c->max_seq
               ? (rc < 0 ? rc : 0)
               : set_whole(c, "window", window, "attention.sliding_window", e);
}

/* The first elements of a head that rotate. */
static int read_partial(const struct source *s, struct model_config *c, struct err *e)
{
    double n = (double)c->head_dim;
    int rc = get_num(s, "rope.dimension_count", &n, e);
    if (rc >= 0 && !(n >= 2 && n <= (double)c->head_dim && fmod(n, 2) == 0))
        return err_set(
            e, DS_EFORMAT,
            "%s.rope.dimension_count = %g: must be even, from 2 to the head size %" PRId64, s->arch,
            n, c->head_dim);
    return rc < 0 ? rc : load_set_int(c, "rope_dims", (int64_t)n, "rope.dimension_count", e);
}

/* What the architecture fixes beyond switches; sizes are known. */
static int read_arch_options(const struct source *s, struct model_config *c, struct err *e)
{
    int rc = 0;
    if (s->of->nope_every)
        rc = set_blocks(c, "nope_layers", "block_count", is_nope, NULL, s->of->nope_every, e);
    if (rc == 0 && s->of->window_every)
        rc = read_window(s, c, e);
    if (rc == 0 && has_caps(s))
        rc = read_caps(s, c, e);
    if (rc == 0 && s->of->is_fused)
        rc = read_phi(s, c, e);
    if (rc == 0 && !s->of->has_pairs)
        rc = read_partial(s, c, e);
    c->attn_scale = gguf_arch_scale(s->of, c);
    return rc;
}

/* Sizes far beyond the tensors are refused before allocating memory; individual missing tensors are
 * reported later. */
static int check_values(const struct source *s, const struct model_config *c, struct err *e)
{
    double have = 0, need = (double)model_config_params(c);
    for (size_t i = 0; i < gguf_count(s->g); i++)
        have += (double)gguf_at(s->g, i)->items;
    if (have < need / 2)
        return err_set(e, DS_EFORMAT, "tensors hold %.0f weights, expected %.0f from the metadata",
                       have, need);
    return 0;
}

int gguf_config_read(struct model_config *c, const struct gguf_arch **arch, struct gguf *g,
                     const char *path, struct err *e)
{
    struct source s = {.g = g, .path = path};
    memset(c, 0, sizeof *c);
    int rc = opt_defaults(&model_group, c, e);
    if (rc < 0 || (rc = read_arch(&s, e)) < 0 || (rc = read_sizes(&s, c, e)) < 0 ||
        (rc = read_experts(&s, c, e)) < 0 || (rc = read_switches(&s, c, e)) < 0)
        return rc;
    *arch = s.of;
    rc = model_config_check(c, e); /* head_dim is known from here on */
    if (rc < 0 || (rc = read_arch_options(&s, c, e)) < 0 || (rc = model_config_check(c, e)) < 0 ||
        (rc = refuse_others(&s, c, e)) < 0 || (rc = refuse_unknown(&s, e)) < 0 ||
        (rc = read_scaling(&s, c, e)) < 0 || (rc = model_config_check(c, e)) < 0 ||
        (rc = read_ends(&s, c, e)) < 0)
        return rc;
    return check_values(&s, c, e);
}
