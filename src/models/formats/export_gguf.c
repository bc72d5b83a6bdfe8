/* Exports GGUF as load_gguf.c reads it. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "export_rows.h"
#include "gguf_config.h"
#include "load_file.h"
#include "models/moe.h"
#include "names.h"

enum { KEY_SIZE = 160, QUANTIZATION_VERSION = 2 };

struct writing {
    const struct export_source *s;
    const struct export_options *o;
    struct export_result *r;
    struct gguf_out *w;
    const struct gguf_arch *arch;
    uint32_t *type; /* (n) of each parameter */
    int n, fallback_f16, fallback_q8;
    struct export_way way;
};

/* ---- what the format can store --------------------------------------------------------------- */

int export_check_base(const struct export_source *s, const char *format, int newer, struct err *e)
{
    const struct model_config *c = &s->m->config;
    if (c->loop > 1)
        return err_set(e, DS_EUSAGE, "%s cannot store looped blocks (model.loop=%lld); to=hf does",
                       format, (long long)c->loop);
    if (!s->base_only && strcmp(c->method, "dense") != 0)
        return err_set(e, DS_EUSAGE,
                       "%s cannot store the routing of method %s; method=dense converts the "
                       "model without it, to=hf with it",
                       format, c->method);
    if (!s->base_only && c->lora_r > 0)
        return err_set(e, DS_EUSAGE,
                       "%s cannot store adapters (model.lora_r=%lld); method=dense converts the "
                       "model without them, to=hf with them",
                       format, (long long)c->lora_r);
    if (newer)
        return 0;
    const char *what = c->norm != NORM_RMS          ? "LayerNorm"
                       : c->position == POS_LEARNED ? "learned positions"
                       : c->position == POS_NONE    ? "a model without positions"
                       : c->mlp != MLP_SWIGLU       ? "an MLP that is not SwiGLU"
                       : c->outputs[0]              ? "a head of some ids (model.outputs)"
                       : c->norm_place != NORM_BEFORE || c->norm_offset
                           ? "norms after the branches (model.norm_place)"
                       : c->parallel       ? "parallel attention and MLP (model.parallel)"
                       : c->qk_norm        ? "norms of queries and keys (model.qk_norm)"
                       : c->window > 0     ? "a sliding window (model.window)"
                       : c->nope_layers[0] ? "blocks without positions (model.nope_layers)"
                       : c->attn_scale > 0 ? "a scale of scores (model.attn_scale)"
                       : c->attn_cap > 0 || c->logit_cap > 0
                           ? "soft caps (model.attn_cap, logit_cap)"
                       : c->rope_dims != c->head_dim ? "partial rotary dimensions (model.rope_dims)"
                       : c->rope_scaling > ROPE_LLAMA3 && strcmp(format, "GGUF") != 0
                           ? "this rotary scaling (model.rope_scaling)"
                       : c->embed_scale != 1.0 ? "a scaled embedding (model.embed_scale)"
                                               : NULL;
    return what ? err_set(e, DS_EUSAGE, "%s cannot store %s; use to=hf", format, what) : 0;
}

/* The architecture of the model as it would be without its method and adapters. */
static const struct gguf_arch *arch_of(const struct model_config *c)
{
    static char dense[] = "dense";
    struct model_config base = *c;
    base.method = dense;
    base.lora_r = 0;
    if (base.position == POS_ROPE_INTERLEAVED) /* stored as it is */
        base.position = POS_ROPE;
    if (base.attn_bias == ATTN_BIAS_QKV)
        base.mlp_bias = 0; /* refused with a reason */
    if (base.experts > 0 && base.shared_ffn == 0 && base.qk_norm == QK_NORM_NONE)
        base.ffn = base.expert_ffn; /* Mixtral's files have one width */
    const char *family = model_config_family(&base);
    return gguf_arch_of(family);
}

/* What llama.cpp fixes for an architecture must hold. */
static int check_arch(const struct gguf_arch *a, const struct model_config *c, struct err *e)
{
    const char *what = NULL;
    /* as many queries as the model is wide */
    int is_square = a->is_fused || a->qk_norm == QK_NORM_WHOLE ||
                    a->experts == GGUF_EXPERTS_SHARED || strcmp(a->name, "qwen2") == 0;
    for (int64_t l = 0; l < c->layers; l++)
        if (model_config_has(c->nope_layers, l) != (a->nope_every && (l + 1) % a->nope_every == 0))
            what = "other blocks without positions (model.nope_layers)";
    if (c->window > 0 && !a->window_every && !a->is_fused)
        what = "a sliding window (model.window)";
    if (a->window_every && a->norm_place == NORM_AFTER && c->window > 0 &&
        c->rope_local != c->rope_theta && (c->rope_local > 0 || c->rope_scaling != ROPE_PLAIN))
        what = "other rotary positions in blocks with a window (model.rope_local)";
    if (!a->has_pairs && c->position == POS_ROPE_INTERLEAVED)
        what = "interleaved rotary pairs";
    if (a->is_layer && c->tied)
        what = "a head tied to the embedding (model.tied=true)";
    if (a->is_neox && c->attn_bias != ATTN_BIAS_ALL)
        what = "attention without biases (model.attn_bias=false)";
    if (a->is_layer && c->rope_scaling == ROPE_LLAMA3)
        what = "this rotary scaling (model.rope_scaling=llama3)";
    if (is_square && c->heads * c->head_dim != c->dim)
        what = "heads of another width than dim / heads (model.head_dim)";
    if (c->rope_scaling == ROPE_LLAMA3 && strcmp(a->name, "llama") != 0)
        what = "this rotary scaling (model.rope_scaling=llama3)";
    if (c->rope_scaling == ROPE_YARN && (c->rope_low != 1 || c->rope_high != 32))
        what = "another ramp of YaRN than from 1 to 32 turns (model.rope_low, rope_high)";
    if (c->rope_scaling == ROPE_LONGROPE && !a->is_fused)
        what = "this rotary scaling (model.rope_scaling=longrope)";
    if (c->rope_scaling == ROPE_DYNAMIC)
        what = "this rotary scaling (model.rope_scaling=dynamic)";
    if (strcmp(a->name, "gemma2") == 0 && (c->attn_cap == 0 || c->logit_cap == 0))
        what = "a model without soft caps (model.attn_cap, logit_cap)";
    if (strcmp(a->name, "gemma3") == 0 &&
        (c->attn_cap > 0 || (c->window > 0 && c->rope_local == 0)))
        what = "a soft cap of scores (model.attn_cap) or a missing model.rope_local";
    if (strcmp(a->name, "gemma2") == 0 && c->window == 0)
        what = "a model without a window (model.window)";
    if (!(fabs(c->attn_scale - gguf_arch_scale(a, c)) <= 1e-6 * c->attn_scale))
        what = "another scale of scores (model.attn_scale)";
    if (a->qk_norm && (c->attn_bias || c->mlp_bias))
        what = "biases next to norms of queries and keys";
    if (a->mlp == MLP_GEGLU && !a->qk_norm && (c->attn_bias || !c->tied))
        what = c->tied ? "biases of attention" : "a head of its own (model.tied=false)";
    if (a->experts == GGUF_EXPERTS_SCORES && c->kv_heads != c->heads)
        what = "fewer heads of keys than of queries (model.kv_heads)";
    if (c->dense_layers && c->dense_layers[0])
        what = "dense MLPs in some blocks (model.dense_layers)";
    else if (a->experts != GGUF_DENSE && c->experts_norm != (a->experts == GGUF_EXPERTS_SUM_1))
        what = c->experts_norm ? "weights of experts that sum to 1 (model.experts_norm=true)"
                               : "weights of experts that are scores (model.experts_norm=false)";
    if (!what)
        return 0;
    return err_set(e, DS_EUSAGE, "architecture %s cannot store %s; use to=hf", a->name, what);
}

static int check(const struct export_source *s, struct err *e)
{
    const struct model_config *c = &s->m->config;
    const struct gguf_arch *a = arch_of(c);
    int is_plain = !a || strcmp(a->name, "llama") == 0 || strcmp(a->name, "qwen2") == 0;
    if (c->experts_noop > 0)
        return err_set(e, DS_EUSAGE, "GGUF cannot store no-op experts (model.experts_noop=%lld)",
                       (long long)c->experts_noop);
    int rc = export_check_base(s, "GGUF", !is_plain, e);
    if (rc < 0)
        return rc;
    if (!a)
        return err_set(e, DS_EUSAGE, "no architecture of GGUF computes this model; use to=hf");
    rc = check_arch(a, c, e);
    if (rc < 0)
        return rc;
    if (c->attn_bias == ATTN_BIAS_QKV && (c->mlp_bias || c->position != POS_ROPE))
        return err_set(e, DS_EUSAGE, "architecture qwen2 cannot store %s; use to=hf",
                       c->mlp_bias ? "biases in the MLP" : "interleaved rotary pairs");
    if (c->rope_scaling == ROPE_YARN && c->rope_attention > 0)
        return err_set(e, DS_EUSAGE, "GGUF cannot store model.rope_attention=%g; use to=hf",
                       c->rope_attention);
    if (c->rope_scaling == ROPE_LLAMA3 && (c->rope_low != 1 || c->rope_high != 4))
        return err_set(e, DS_EUSAGE,
                       "GGUF cannot store model.rope_low=%g and rope_high=%g: expected 1 and 4; "
                       "use to=hf",
                       c->rope_low, c->rope_high);
    return 0;
}

/* ---- metadata -------------------------------------------------------------------------------- */

static void put_u32(struct writing *x, const char *key, int64_t v)
{
    char full[KEY_SIZE];
    snprintf(full, sizeof full, "%s.%s", x->arch->name, key);
    gguf_put_u32(x->w, full, (uint32_t)v);
}

static void put_f32(struct writing *x, const char *key, double v)
{
    char full[KEY_SIZE];
    snprintf(full, sizeof full, "%s.%s", x->arch->name, key);
    gguf_put_f32(x->w, full, (float)v);
}

/* general.file_type: what most of the matrices are. */
static uint32_t file_type(uint32_t type)
{
    static const struct {
        uint32_t type, number;
    } rows[] = {{GGUF_T_F32, 0},   {GGUF_T_F16, 1},     {GGUF_T_Q4_0, 2},    {GGUF_T_Q8_0, 7},
                {GGUF_T_Q4_K, 14}, {GGUF_T_Q5_K, 16},   {GGUF_T_Q6_K, 18},   {GGUF_T_BF16, 32},
                {GGUF_T_Q4_1, 3},  {GGUF_T_Q5_0, 8},    {GGUF_T_Q5_1, 9},    {GGUF_T_Q2_K, 10},
                {GGUF_T_Q3_K, 12}, {GGUF_T_IQ4_NL, 25}, {GGUF_T_IQ4_XS, 30}, {GGUF_T_MXFP4, 38}};
    for (size_t i = 0; i < DS_LEN(rows); i++)
        if (rows[i].type == type)
            return rows[i].number;
    return 0;
}

static void put_scaling(struct writing *x)
{
    const struct model_config *c = &x->s->m->config;
    char full[KEY_SIZE];
    int is_yarn = c->rope_scaling == ROPE_YARN;
    if (!is_yarn && c->rope_scaling != ROPE_LINEAR)
        return;
    snprintf(full, sizeof full, "%s.rope.scaling.type", x->arch->name);
    gguf_put_text(x->w, full, is_yarn ? "yarn" : "linear", is_yarn ? 4 : 6);
    put_f32(x, "rope.scaling.factor", c->rope_factor);
}

/* Windows and soft caps. */
static void put_newer(struct writing *x)
{
    const struct model_config *c = &x->s->m->config;
    char full[KEY_SIZE];
    if (x->arch->is_fused) { /* llama.cpp reads it and attends to everything */
        put_u32(x, "attention.sliding_window", c->window);
    } else if (c->window > 0) {
        put_u32(x, "attention.sliding_window", c->window);
        snprintf(full, sizeof full, "%s.attention.sliding_window_pattern", x->arch->name);
        gguf_put_array(x->w, full, GGUF_BOOL, (uint64_t)c->layers);
        for (int64_t l = 0; l < c->layers; l++)
            gguf_item_bool(x->w, model_config_window(c, l) > 0);
    }
    if (c->rope_local > 0)
        put_f32(x, "rope.freq_base_swa", c->rope_local);
    if (c->attn_cap > 0)
        put_f32(x, "attn_logit_softcapping", c->attn_cap);
    if (c->logit_cap > 0)
        put_f32(x, "final_logit_softcapping", c->logit_cap);
}

static void put_meta(struct writing *x)
{
    const struct model_config *c = &x->s->m->config;
    gguf_put_text(x->w, "general.architecture", x->arch->name, strlen(x->arch->name));
    if (x->o->name)
        gguf_put_text(x->w, "general.name", x->o->name, strlen(x->o->name));
    gguf_put_u32(x->w, "general.file_type", file_type(x->r->type));
    gguf_put_u32(x->w, "general.quantization_version", QUANTIZATION_VERSION);
    char seed[24];
    int n = snprintf(seed, sizeof seed, "%llu", (unsigned long long)x->s->m->route.seed);
    if (x->s->m->route.seed > 0) /* of the run, so that evaluations are paired by it */
        gguf_put_text(x->w, GGUF_SEED, seed, (size_t)n);
    put_u32(x, "vocab_size", c->vocab);
    put_u32(x, "context_length", c->max_seq);
    put_u32(x, "embedding_length", c->dim);
    put_u32(x, "block_count", c->layers);
    int is_one_width = c->experts > 0 && strcmp(x->arch->name, "llama") == 0;
    put_u32(x, "feed_forward_length", is_one_width ? c->expert_ffn : c->ffn);
    if (c->experts > 0) {
        put_u32(x, "expert_count", c->experts);
        put_u32(x, "expert_used_count", c->experts_used);
    }
    if (c->experts > 0 && !is_one_width)
        put_u32(x, "expert_feed_forward_length", c->expert_ffn);
    if (c->shared_ffn > 0)
        put_u32(x, "expert_shared_feed_forward_length", c->shared_ffn);
    put_u32(x, "rope.dimension_count", c->rope_dims);
    put_u32(x, "attention.head_count", c->heads);
    put_u32(x, "attention.head_count_kv", c->kv_heads);
    if (c->head_dim * c->heads != c->dim) {
        put_u32(x, "attention.key_length", c->head_dim);
        put_u32(x, "attention.value_length", c->head_dim);
    }
    put_f32(x,
            x->arch->is_layer ? "attention.layer_norm_epsilon" : "attention.layer_norm_rms_epsilon",
            c->norm_eps);
    if (x->arch->is_layer) {
        char full[KEY_SIZE];
        snprintf(full, sizeof full, "%s.use_parallel_residual", x->arch->name);
        gguf_put_bool(x->w, full, c->parallel != PARALLEL_NONE);
    }
    if (c->mlp == MLP_GELU_TANH)
        gguf_put_text(x->w, GGUF_MLP, "gelu_tanh", 9);
    put_f32(x, "rope.freq_base", c->rope_theta);
    if (c->rope_scaling == ROPE_LONGROPE) {
        double f[ROPE_PAIRS_MAX];
        put_f32(x, "rope.scaling.attn_factor", model_config_rope(c, 0, 0, f));
    }
    if (c->rope_scaling == ROPE_LLAMA3 || c->rope_scaling == ROPE_YARN ||
        c->rope_scaling == ROPE_LONGROPE)
        put_u32(x, "rope.scaling.original_context_length", c->rope_original);
    put_scaling(x);
    put_newer(x);
}

/* ---- tensors --------------------------------------------------------------------------------- */

/* 4- and 5-bit blocks are too coarse for embedding and head: q6_k there, as llama.cpp does. */
static uint32_t target_type(const struct writing *x, int i)
{
    uint32_t t = x->o->type, six;
    if (x->o->keep && export_stored_type(x->s, i, &six))
        return six;
    if (export_is_head(x->s, i) && (t == GGUF_T_Q4_K || t == GGUF_T_Q5_K) &&
        export_type(&six, "q6_k", NULL) == 0)
        return six;
    return t;
}

static uint32_t type_of(struct writing *x, int i)
{
    const struct param *p = &x->s->m->params.p[i];
    if (p->rank < 2 || moe_is_router(x->s->m, i))
        return GGUF_T_F32;
    uint32_t t = target_type(x, i);
    if (export_is_head(x->s, i) && export_row_bytes(t, p->shape[1]) > 0)
        x->r->head_type = t;
    if (export_row_bytes(t, p->shape[1]) > 0)
        return t;
    int q8 = export_row_bytes(GGUF_T_Q8_0, p->shape[1]) > 0;
    x->fallback_q8 += q8;
    x->fallback_f16 += !q8;
    return q8 ? GGUF_T_Q8_0 : GGUF_T_F16;
}

/* The type of most weights, when each matrix keeps its own. */
static uint32_t most_common(const struct writing *x)
{
    double most = 0;
    uint32_t type = x->o->type;
    for (int i = 0; i < x->n; i++) {
        double sum = 0;
        for (int k = 0; k < x->n; k++)
            if (x->type[k] == x->type[i] && x->s->m->params.p[k].rank > 1)
                sum += (double)x->s->m->params.p[k].n;
        if (sum > most) {
            most = sum;
            type = x->type[i];
        }
    }
    return type;
}

/* The parts of a fused matrix have one type: where an adapter was merged into some, theirs. */
static void unify_parts(struct writing *x, int i)
{
    struct names_place at;
    uint32_t own;
    int k = 0;
    gguf_place(&x->s->m->config, gguf_fused(x->arch), x->s->m->params.p[i].name, &at);
    if (at.part > 0)
        return;
    while (k + 1 < at.parts && x->o->keep && export_stored_type(x->s, i + k, &own))
        k++;
    uint32_t type = x->type[i + k];
    for (k = 0; k < at.parts; k++)
        x->type[i + k] = type;
}

static void choose_types(struct writing *x)
{
    uint32_t own;
    int kept = 0;
    for (int i = 0; i < x->n; i++) {
        x->type[i] = type_of(x, i);
        kept += x->o->keep && export_stored_type(x->s, i, &own);
    }
    for (int i = 0; i < x->n; i++)
        unify_parts(x, i);
    x->r->type = kept ? most_common(x) : x->o->type;
}

/* Scalings without a key: their factors are tensors, which come first. */
static const struct factors {
    const char *tensor;
    int scaling, is_long;
} factors[] = {
    {"rope_freqs.weight", ROPE_LLAMA3, 0},
    {"rope_factors_long.weight", ROPE_LONGROPE, 1},
    {"rope_factors_short.weight", ROPE_LONGROPE, 0},
};

static int scale_factors(const struct model_config *c, int64_t context, float *out)
{
    struct model_config plain = *c;
    size_t n = (size_t)c->rope_dims / 2;
    double *f = mem_alloc(2 * n, sizeof *f);
    if (!f)
        return DS_EMEM;
    plain.rope_scaling = ROPE_PLAIN;
    (void)model_config_rope(&plain, 0, context, f);
    (void)model_config_rope(c, 0, context, f + n);
    for (size_t i = 0; i < n; i++)
        out[i] = (float)(f[i] / f[n + i]);
    mem_free(f);
    return 0;
}

/* llama.cpp requires a head in the files of some architectures: of a tied model the embedding again. */
static int is_repeated(const struct writing *x, int i)
{
    int needs_head = x->arch->qk_norm == QK_NORM_WHOLE || x->arch->experts == GGUF_EXPERTS_SHARED;
    return needs_head && x->s->m->config.tied && i == x->s->m->embed;
}

static int add_tensors(struct writing *x, struct err *e)
{
    const struct model *m = x->s->m;
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(factors) && rc == 0; i++) {
        if (factors[i].scaling != m->config.rope_scaling)
            continue;
        rc = gguf_out_tensor(x->w, factors[i].tensor, GGUF_T_F32, (uint64_t)m->config.rope_dims / 2,
                             0, e);
        x->r->tensors++;
    }
    for (int i = 0; i < x->n && rc == 0; i++) {
        const struct param *p = &m->params.p[i];
        struct names_place at;
        if (!gguf_place(&m->config, gguf_fused(x->arch), p->name, &at))
            return err_set(e, DS_EUSAGE, "GGUF cannot store %s", p->name);
        x->way.all += (double)p->n;
        if (names_expert(p->name) > 0 || at.part > 0)
            continue; /* with the first */
        if (names_expert(p->name) == 0)
            rc = gguf_out_stack(x->w, at.name, x->type[i], (uint64_t)m->config.experts,
                                (uint64_t)p->shape[0], (uint64_t)p->shape[1], e);
        else if (p->rank > 1 && p->shape[0] == 1)
            rc = gguf_out_tensor(x->w, at.name, x->type[i], (uint64_t)p->shape[1], 0, e);
        else
            rc = gguf_out_tensor(x->w, at.name, x->type[i],
                                 at.outputs ? at.outputs : (uint64_t)p->shape[0],
                                 p->rank > 1 ? (uint64_t)p->shape[1] : 0, e);
        x->r->tensors++;
        if (rc < 0 || !is_repeated(x, i))
            continue;
        rc = gguf_out_tensor(x->w, "output.weight", x->type[i], (uint64_t)p->shape[0],
                             (uint64_t)p->shape[1], e);
        x->way.all += (double)p->n;
        x->r->tensors++;
    }
    return rc;
}

static int to_file(void *ctx, const void *p, size_t n, struct err *e)
{
    return gguf_out_data(ctx, p, n, e);
}

static int write_factors(struct writing *x, const struct factors *of, struct err *e)
{
    const struct model_config *c = &x->s->m->config;
    size_t n = (size_t)c->rope_dims / 2;
    float *f = mem_alloc(n, sizeof *f);
    int rc = f && scale_factors(c, c->rope_original + of->is_long, f) == 0
                 ? 0
                 : err_set(e, DS_EMEM, "rotary factors: out of memory");
    if (rc == 0)
        rc = gguf_out_data(x->w, f, n * sizeof *f, e);
    mem_free(f);
    return rc;
}

static int has_pairs(const struct writing *x, const char *name)
{
    return x->arch->has_pairs && x->s->m->config.position == POS_ROPE &&
           (strstr(name, "q_proj.") || strstr(name, "k_proj."));
}

static int write_tensors(struct writing *x, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < DS_LEN(factors) && rc == 0; i++)
        if (factors[i].scaling == x->s->m->config.rope_scaling)
            rc = write_factors(x, &factors[i], e);
    for (int i = 0; i < x->n && rc == 0; i++) {
        const struct param *p = &x->s->m->params.p[i];
        enum row_order order = has_pairs(x, p->name) ? ROWS_INTERLEAVED
                               : x->arch->norm_offset && strstr(p->name, "norm.weight")
                                   ? ROWS_PLUS_ONE
                                   : ROWS_AS_THEY_ARE;
        struct names_place at;
        gguf_place(&x->s->m->config, gguf_fused(x->arch), p->name, &at);
        int expert = names_expert(p->name);
        int stack = expert > 0 || at.part > 0 ? 0
                    : expert == 0             ? (int)x->s->m->config.experts
                                              : at.parts;
        int step = expert < 0 ? 1 : 3; /* matrices of each expert; parts are neighbours */
        for (int k = 0; k < stack && rc == 0; k++)
            rc = export_write(x->s, i + step * k, order, x->type[i], to_file, x->w, &x->way, e);
        if (rc == 0 && is_repeated(x, i))
            rc = export_write(x->s, i, order, x->type[i], to_file, x->w, &x->way, e);
    }
    return rc;
}

static void fill_result(struct writing *x)
{
    struct export_result *r = x->r;
    r->bytes = gguf_out_bytes(x->w);
    r->files = 1;
    r->fallback_n = x->fallback_q8 + x->fallback_f16;
    if (x->fallback_q8)
        snprintf(r->fallback, sizeof r->fallback, "q8_0%s", x->fallback_f16 ? " and f16" : "");
    else
        snprintf(r->fallback, sizeof r->fallback, "%s", x->fallback_f16 ? "f16" : "");
}

int export_gguf(const struct export_source *s, const struct export_options *o, const char *path,
                struct export_result *r, struct err *e)
{
    struct writing x = {.s = s, .o = o, .r = r, .n = export_params(s), .way = {.o = o}};
    int rc = check(s, e);
    if (rc < 0)
        return rc;
    *r = (struct export_result){.head_type = o->type};
    x.arch = arch_of(&s->m->config);
    x.type = mem_alloc((size_t)x.n + 1, sizeof *x.type);
    rc = x.type ? gguf_out_new(&x.w, e) : err_set(e, DS_EMEM, "%s: out of memory", path);
    if (rc < 0)
        goto out;
    choose_types(&x);
    put_meta(&x);
    if (o->vocabulary && (rc = o->vocabulary(x.w, o->ctx, e)) < 0)
        goto out;
    if ((rc = add_tensors(&x, e)) < 0 ||
        (rc = export_check_room(path, gguf_out_bytes(x.w), e)) < 0 ||
        (rc = gguf_out_begin(x.w, path, e)) < 0 || (rc = write_tensors(&x, e)) < 0 ||
        (rc = export_check_source(s, e)) < 0 || (rc = gguf_out_end(x.w, e)) < 0)
        goto out;
    fill_result(&x);
out:
    gguf_out_free(x.w);
    mem_free(x.type);
    return rc;
}
