/* Models from GGUF files that the tests write from one of our models. */
#include "kit.h"

#include <unistd.h>

#include "gguf_file.h"
#include "engine/quant.h"
#include "models/export.h"
#include "models/load.h"

static struct err err;

static const char llama[] = "model.method=dense model.layers=2 model.dim=32 model.heads=4 "
                            "model.kv_heads=2 model.ffn=48 model.vocab=40 model.tied=false "
                            "model.max_seq=64 model.rope_theta=5000 model.norm_eps=1e-6";
static const char qwen2[] = "model.method=dense model.layers=2 model.dim=32 model.heads=4 "
                            "model.kv_heads=2 model.ffn=48 model.vocab=40 model.tied=true "
                            "model.max_seq=64 model.attn_bias=qkv model.norm_eps=1e-6";

static struct {
    const char *ours, *file;
} const names[] = {
    {"embed_tokens", "token_embd"},
    {"input_layernorm", "attn_norm"},
    {"post_attention_layernorm", "ffn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"model.norm", "output_norm"},
    {"lm_head", "output"},
};

static const char *name_in_file(const char *param)
{
    static char name[128];
    int l = -1;
    const char *kind = strrchr(param, '.');
    if (sscanf(param, "model.layers.%d.", &l) != 1)
        l = -1;
    for (size_t i = 0; i < DS_LEN(names); i++)
        if (strstr(param, names[i].ours) && l >= 0)
            snprintf(name, sizeof name, "blk.%d.%s%s", l, names[i].file, kind);
        else if (strstr(param, names[i].ours))
            snprintf(name, sizeof name, "%s%s", names[i].file, kind);
    return name;
}

static void put_metadata(struct gguf_file *f, const struct model *m, const char *arch)
{
    const struct model_config *c = &m->config;
    const struct {
        const char *key;
        int64_t v;
    } sizes[] = {
        {"block_count", c->layers},
        {"embedding_length", c->dim},
        {"feed_forward_length", c->ffn},
        {"attention.head_count", c->heads},
        {"attention.head_count_kv", c->kv_heads},
        {"context_length", c->max_seq},
        {"rope.dimension_count", c->head_dim},
    };
    char key[128];
    gf_string(f, "general.architecture", arch);
    for (size_t i = 0; i < DS_LEN(sizes); i++) {
        snprintf(key, sizeof key, "%s.%s", arch, sizes[i].key);
        gf_u32(f, key, (uint32_t)sizes[i].v);
    }
    snprintf(key, sizeof key, "%s.attention.layer_norm_rms_epsilon", arch);
    gf_f32(f, key, (float)c->norm_eps);
    snprintf(key, sizeof key, "%s.rope.freq_base", arch);
    gf_f32(f, key, (float)c->rope_theta);
}

/* The model's row for row r of the file, where the pairs (i, i + D/2) of a head are adjacent. */
static int row_of(const struct param *p, int r, int D, int interleaved)
{
    int pair = r % D / 2, second = r % 2;
    if (!interleaved || (!strstr(p->name, "q_proj") && !strstr(p->name, "k_proj")))
        return r;
    return r / D * D + pair + second * (D / 2);
}

static void put_tensor(struct gguf_file *f, const struct model *m, const struct param *p,
                       int interleaved)
{
    size_t C = p->rank > 1 ? (size_t)p->shape[1] : 1;
    float *w = malloc(p->n * sizeof *w);
    for (int r = 0; r < p->shape[0]; r++) {
        int from = row_of(p, r, (int)m->config.head_dim, interleaved);
        for (size_t c = 0; c < C; c++)
            w[(size_t)r * C + c] = (float)p->value[(size_t)from * C + c];
    }
    gf_tensor(f, name_in_file(p->name), GGUF_T_F32, (uint64_t)p->shape[0],
              p->rank > 1 ? (uint64_t)p->shape[1] : 0, w, p->n * sizeof *w);
    free(w);
}

/* All of m except the parameter `without`. */
static void put_model(struct gguf_file *f, const struct model *m, const char *arch,
                      const char *without)
{
    put_metadata(f, m, arch);
    for (int i = 0; i < m->params.n; i++)
        if (!without || strcmp(m->params.p[i].name, without) != 0)
            put_tensor(f, m, &m->params.p[i], arch[0] == 'l');
}

static struct model *open_as(struct gguf_file *f, int mode)
{
    struct model *m = NULL;
    char dir[600];
    t_ok(model_locate(gf_write(f), dir, sizeof dir, &err), &err);
    t_ok(model_open(&m, dir, NULL, mode, &err), &err);
    t_ok(model_reserve(m, 64, 0, 0, &err), &err);
    return m;
}

static struct model *open_file(struct gguf_file *f)
{
    return open_as(f, MODEL_INFERENCE);
}

static void refuse(struct gguf_file *f, const char *part)
{
    struct model *m = NULL;
    int rc = model_open(&m, gf_write(f), NULL, MODEL_INFERENCE, &err);
    t_truef(rc < 0 && m == NULL, "opened, expected: %s", part);
    t_truef(strstr(err.text, part) && strstr(err.text, "x.gguf") && !strchr(err.text, '\n'),
            "%s: expected: %s", err.text, part);
}

/* The last row's logits of a batch of 2 x 12. */
static void logits_of(struct model *m, real *logits)
{
    struct kit_batch k;
    struct pass pass = kit_pass(PASS_DENSE);
    kit_fill(&k, 2, 12, (int)m->config.vocab, 3);
    model_forward(m, &k.b, &pass);
    model_logits(m, 23, logits);
}

static void same_model(const char *options, const char *arch)
{
    struct gguf_file f = {0};
    real a[64], b[64];
    struct model *m = kit_model(options, 1, 64, MODEL_INFERENCE, 0);
    kit_shake(m, 0.1, 2);
    put_model(&f, m, arch, NULL);
    struct model *back = open_file(&f);
    kit_same_params(back, m);
    t_near(back->config.rope_theta, m->config.rope_theta, 0);
    t_near(back->config.norm_eps, m->config.norm_eps, 1e-13);
    t_eq(back->config.max_seq, 64);
    t_eq(back->config.attn_bias, m->config.attn_bias);
    logits_of(m, a);
    logits_of(back, b);
    for (int v = 0; v < 40; v++)
        t_near(b[v], a[v], 1e-6);
    model_free(m);
    model_free(back);
}

T(llama_round_trips)
{
    same_model(llama, "llama");
}

T(qwen2_round_trips)
{
    same_model(qwen2, "qwen2");
}

T(llama_biases_have_the_order_of_their_matrices)
{
    char options[600];
    snprintf(options, sizeof options, "%s model.attn_bias=true", llama);
    same_model(options, "llama");
    snprintf(options, sizeof options, "%s model.attn_bias=qkv", llama);
    same_model(options, "llama");
}

/* The file's rows with interleaved rotary pairs give the same model. */
T(half_split_rows_give_the_logits_of_interleaved_ones)
{
    struct gguf_file f = {0};
    char options[600];
    real a[64], b[64];
    struct model *m = kit_model(llama, 1, 64, MODEL_INFERENCE, 0);
    kit_shake(m, 0.1, 2);
    put_model(&f, m, "llama", NULL);
    struct model *split = open_file(&f);
    t_eq(split->config.position, POS_ROPE);
    snprintf(options, sizeof options, "%s model.position=rope_interleaved", llama);
    struct model *lie = kit_model(options, 9, 64, MODEL_INFERENCE, 0);
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        int C = p->rank > 1 ? p->shape[1] : 1;
        for (int r = 0; r < p->shape[0]; r++)
            memcpy(lie->params.p[i].value + (size_t)r * (size_t)C,
                   p->value + (size_t)row_of(p, r, (int)m->config.head_dim, 1) * (size_t)C,
                   (size_t)C * sizeof(real));
    }
    params_changed(&lie->params);
    logits_of(split, a);
    logits_of(lie, b);
    for (int v = 0; v < 40; v++)
        t_near(a[v], b[v], 1e-4);
    model_free(m);
    model_free(split);
    model_free(lie);
}

/* q, k and v or gate and up of one layer in different types: as dequantised, up to the rounding of
 * activations. */
static void mixed_types_compute(struct model *m)
{
    const struct numeric_options none = {.weights = QUANT_NONE}, same = {.weights = WEIGHTS_AUTO};
    real a[64], b[64];
    double far = 0, size = 0;
    t_ok(weights_use(m, &none, &err), &err);
    logits_of(m, a);
    t_ok(weights_use(m, &same, &err), &err);
    logits_of(m, b);
    for (int v = 0; v < (int)m->config.vocab; v++) {
        far += pow((double)(a[v] - b[v]), 2);
        size += pow((double)a[v], 2);
    }
    t_truef(size > 0 && sqrt(far / size) < 0.03, "%g", sqrt(far / size));
}

/* The matrices of a model take all types in turn; the values read follow the published formula, in
 * the model's rows. */
T(every_type_in_both_architectures)
{
    static const char shape[] = "model.method=dense model.layers=2 model.dim=256 model.heads=4 "
                                "model.kv_heads=2 model.ffn=256 model.vocab=32 model.max_seq=16";
    for (int a = 0; a < 2; a++) {
        struct gguf_file f = {0};
        char options[600];
        unsigned char *block[64] = {0};
        uint32_t type[64];
        snprintf(options, sizeof options, "%s model.attn_bias=%s", shape, a ? "qkv" : "false");
        struct model *m = kit_model(options, 1, 16, MODEL_INFERENCE, 0);
        put_metadata(&f, m, a ? "qwen2" : "llama");
        for (int i = 0; i < m->params.n; i++) {
            const struct param *p = &m->params.p[i];
            int items, bytes;
            type[i] = gf_types[i % DS_LEN(gf_types)];
            t_true(p->rank == 2 || p->shape[0] % 128 == 0);
            if (p->rank == 1)
                type[i] = GGUF_T_F32;
            t_true(gguf_type_block(type[i], &items, &bytes));
            block[i] = gf_blocks(type[i], p->n / (size_t)items, (uint64_t)i + 1);
            gf_tensor(&f, name_in_file(p->name), type[i], (uint64_t)p->shape[0],
                      p->rank > 1 ? (uint64_t)p->shape[1] : 0, block[i],
                      p->n / (size_t)items * (size_t)bytes);
        }
        struct model *back = open_file(&f);
        t_true(back->config.tied);
        for (int i = 0; i < m->params.n; i++) {
            const struct param *p = &back->params.p[i];
            size_t C = p->rank > 1 ? (size_t)p->shape[1] : 1;
            real *value = kit_values(back, i);
            for (int r = 0; r < p->shape[0]; r++)
                for (size_t c = 0; c < C; c++) {
                    double want = gf_item(type[i], block[i], (size_t)r * C + c);
                    size_t at = (size_t)row_of(p, r, 64, !a) * C + c;
                    t_truef(fabs((double)value[at] - want) <= 1e-6 * (fabs(want) + 0.2),
                            "%s %s row %d", p->name, gguf_type_name(type[i]), r);
                }
            free(value);
            free(block[i]);
        }
        mixed_types_compute(back);
        model_free(m);
        model_free(back);
    }
}

/* One layer whose matrices are all of this type; the file's bytes are random. */
static struct model *open_blocks(uint32_t type, int mode)
{
    struct gguf_file f = {0};
    int items, bytes;
    struct model *m = kit_model("model.method=dense model.layers=1 model.dim=256 model.heads=4 "
                                "model.kv_heads=2 model.ffn=256 model.vocab=32 model.max_seq=64",
                                1, 16, MODEL_INFERENCE, 0);
    put_metadata(&f, m, "llama");
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        uint32_t own = p->rank > 1 ? type : GGUF_T_F32;
        t_true(gguf_type_block(own, &items, &bytes));
        size_t blocks = p->n / (size_t)items;
        unsigned char *block = gf_blocks(own, blocks, (uint64_t)i + 1);
        gf_tensor(&f, name_in_file(p->name), own, (uint64_t)p->shape[0],
                  p->rank > 1 ? (uint64_t)p->shape[1] : 0, block, blocks * (size_t)bytes);
        free(block);
    }
    model_free(m);
    return open_as(&f, mode);
}

/* Largest difference between a matrix's values and those its GEMMs use. */
static double rounded_off(const struct model *m, const char *name)
{
    int at = params_find(&m->params, name);
    const struct param *p = &m->params.p[at];
    double most = 0;
    real row[256], *value = kit_values(m, at);
    for (int r = 0; r < p->shape[0]; r++) {
        quant_row(row, m->weights.v[at].quant, r);
        for (int c = 0; c < 256; c++)
            most = fmax(most, fabs((double)row[c] - (double)value[256 * r + c]));
    }
    free(value);
    return most;
}

T(weights_choices_are_in_the_order_of_quant_kind)
{
    const char *at = WEIGHTS_CHOICES;
    for (int kind = 0; kind <= WEIGHTS_AUTO; kind++) {
        const char *name = kind < WEIGHTS_AUTO ? quant_name[kind] : "auto";
        t_truef(strncmp(at, name, strlen(name)) == 0, "%s is not at %d", name, kind);
        at += strcspn(at, "|");
        at += *at == '|';
    }
    t_eq(*at, '\0');
}

/* In the file's order of rows, and in ours: a model of the other architecture has that. */
T(blocks_that_cannot_be_rounded_to_are_copied_from_gguf_to_gguf)
{
    static const uint32_t type[] = {GGUF_T_Q4_1,   GGUF_T_Q5_0,   GGUF_T_Q3_K,
                                    GGUF_T_IQ4_NL, GGUF_T_IQ4_XS, GGUF_T_MXFP4};
    for (size_t k = 0; k < 2 * DS_LEN(type); k++) {
        char path[600];
        struct gguf *to = NULL;
        struct export_result r;
        struct model *m = open_blocks(type[k / 2], MODEL_INFERENCE), *back = NULL;
        struct export_source s = {.m = m};
        if (k % 2) /* rows as if the file had them in our order */
            for (int i = 0; i < m->params.n; i++)
                m->stored.v[i].head_dim = 0;
        snprintf(path, sizeof path, "%s/y.gguf", t_tmpdir());
        t_ok(export_gguf(&s, &(struct export_options){.type = GGUF_T_F32, .keep = 1}, path, &r,
                         &err),
             &err);
        t_eq(r.type, type[k / 2]);
        t_ok(model_open(&back, path, NULL, MODEL_INFERENCE, &err), &err);
        kit_same_params(back, m);
        t_ok(gguf_open(&to, path, &err), &err);
        t_eq(gguf_find(to, "blk.0.attn_q.weight")->type, type[k / 2]);
        gguf_close(to);
        model_free(back);
        model_free(m);
    }
}

T(quantised_blocks_of_the_file_are_used_unchanged)
{
    static const char *const matrix[] = {"model.layers.0.self_attn.q_proj.weight",
                                         "model.layers.0.self_attn.k_proj.weight",
                                         "model.layers.0.mlp.down_proj.weight"};
    static const uint32_t type[] = {GGUF_T_Q8_0, GGUF_T_Q4_0, GGUF_T_Q4_K,   GGUF_T_Q5_K,
                                    GGUF_T_Q6_K, GGUF_T_Q4_1, GGUF_T_Q5_0,   GGUF_T_Q5_1,
                                    GGUF_T_Q2_K, GGUF_T_Q3_K, GGUF_T_IQ4_NL, GGUF_T_IQ4_XS,
                                    GGUF_T_MXFP4};
    for (size_t t = 0; t < DS_LEN(type); t++) {
        int kind = (int)t + 1, is_written = kind < QUANT_WRITTEN;
        const struct numeric_options use = {.weights = kind}, same = {.weights = WEIGHTS_AUTO};
        struct model *m = open_blocks(type[t], MODEL_INFERENCE);
        t_ok(weights_use(m, t % 2 && is_written ? &use : &same, &err), &err);
        t_str(weights_quant_name(m), quant_name[kind]);
        for (size_t i = 0; i < DS_LEN(matrix); i++)
            t_near(rounded_off(m, matrix[i]), 0, 1e-7);
        t_truef(!m->params.p[m->embed].value, "numbers of the file came into memory");
        model_free(m);
        if (!is_written)
            continue;
        m = open_blocks(type[t], MODEL_EDIT);
        struct param *down = &m->params.p[params_find(&m->params, matrix[2])];
        double most = 0;
        for (size_t k = 0; k < down->n; k++) {
            down->value[k] *= REAL_C(3.0);
            most = fmax(most, fabs((double)down->value[k]));
        }
        params_changed(&m->params);
        t_ok(weights_use(m, &use, &err), &err);
        t_truef(rounded_off(m, matrix[2]) < 0.2 * most, "the file's blocks, not these numbers");
        model_free(m);
    }
}

/* Factors for heads of 8 and base 5000 as Llama 3's converter writes them. */
static void llama3_factors(float factor[4], double context)
{
    for (int i = 0; i < 4; i++) {
        double wave = 2 * 3.14159265358979323846 * pow(5000, i / 4.0);
        double smooth = (context / wave - 1) / (4 - 1);
        smooth = smooth < 0 ? 0 : smooth > 1 ? 1 : smooth;
        factor[i] = (float)(1 / ((1 - smooth) / 32 + smooth));
    }
}

/* The context is a key or follows from a factor between; the largest factor may be less than all. */
T(llama3_rope_factors_become_rope_scaling)
{
    static const struct {
        int context, is_written, is_wrong;
    } of[] = {{1024, 1, 0}, {1024, 0, 0}, {4096, 1, 0}, {8192, 0, 0}, {1024, 1, 1}, {4096, 0, 1}};
    float factor[4];
    struct model *m = kit_model(llama, 1, 64, MODEL_INFERENCE, 0);
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct gguf_file f = {0};
        llama3_factors(factor, of[i].context);
        t_true(factor[0] == 1 && factor[3] > 1 && (factor[3] == 32) == (of[i].context == 1024));
        if (of[i].is_wrong)
            factor[0] = 2;
        put_model(&f, m, "llama", NULL);
        if (of[i].is_written)
            gf_u32(&f, "llama.rope.scaling.original_context_length", (uint32_t)of[i].context);
        gf_tensor(&f, "rope_freqs.weight", GGUF_T_F32, 4, 0, factor, sizeof factor);
        if (of[i].is_wrong) {
            refuse(&f, "rope_freqs.weight: factor 0 is 2");
            continue;
        }
        struct model *back = open_file(&f);
        t_eq(back->config.rope_scaling, ROPE_LLAMA3);
        t_near(back->config.rope_factor, 32, 1e-3);
        t_eq(back->config.rope_original, of[i].context);
        model_free(back);
    }
    for (int i = 0; i < 3; i++) { /* which llama.cpp applies both */
        struct gguf_file f = {0};
        llama3_factors(factor, 1024);
        put_model(&f, m, "llama", NULL);
        if (i > 0)
            gf_string(&f, "llama.rope.scaling.type", i == 1 ? "linear" : "yarn");
        gf_f32(&f, "llama.rope.scaling.factor", 2);
        gf_u32(&f, "llama.rope.scaling.original_context_length", 1024);
        gf_tensor(&f, "rope_freqs.weight", GGUF_T_F32, 4, 0, factor, sizeof factor);
        refuse(&f, "rope_freqs.weight next to another rotary scaling is unsupported");
    }
    model_free(m);
}

/* As some converters write the gate of shared experts. */
T(a_vector_may_be_a_matrix_of_one_row)
{
    struct gguf_file f = {0};
    float w[32];
    struct model *m = kit_model(llama, 1, 64, MODEL_INFERENCE, 0);
    put_model(&f, m, "llama", "model.norm.weight");
    for (int i = 0; i < 32; i++)
        w[i] = (float)i;
    gf_tensor(&f, "output_norm.weight", GGUF_T_F32, 1, 32, w, sizeof w);
    struct model *back = open_file(&f);
    for (int i = 0; i < back->params.n; i++)
        if (strcmp(back->params.p[i].name, "model.norm.weight") == 0)
            t_near(back->params.p[i].value[31], 31, 0);
    model_free(back);
    model_free(m);
}

static void refuse_with(const char *key, uint32_t v, const char *part)
{
    struct gguf_file f = {0};
    struct model *m = kit_model(llama, 1, 64, MODEL_INFERENCE, 0);
    put_model(&f, m, "llama", NULL);
    gf_u32(&f, key, v);
    refuse(&f, part);
    model_free(m);
}

T(unsupported_features_are_refused_by_name)
{
    refuse_with("llama.expert_count", 8, "missing key llama.expert_used_count");
    refuse_with("llama.attention.sliding_window", 32, "sliding_window = 32: sliding-window");
    refuse_with("llama.attention.value_length", 16, "value_length = 16: different head sizes");
    refuse_with("llama.rope.scaling.factor", 4, "rotary scaling none by 4");
    refuse_with("split.count", 3, "split.no must be an integer below split.count 3");
    refuse_with("llama.attention.key_length", 16, "rope.dimension_count = 8: partial rotary");
}

T(tensors_and_metadata_must_agree)
{
    struct gguf_file f = {0};
    struct model *m = kit_model(llama, 1, 64, MODEL_INFERENCE, 0);
    const float x[4] = {0};
    put_model(&f, m, "llama", "model.layers.1.mlp.up_proj.weight");
    refuse(&f, "missing tensor blk.1.ffn_up.weight");
    put_model(&f, m, "llama", NULL);
    gf_tensor(&f, "blk.2.ffn_up.weight", GGUF_T_F32, 4, 0, x, sizeof x);
    refuse(&f, "unexpected tensor blk.2.ffn_up.weight");
    put_model(&f, m, "mamba", NULL);
    refuse(&f, "unsupported architecture mamba: expected llama, qwen2");
    put_metadata(&f, m, "llama");
    refuse(&f, "missing matrix token_embd.weight");
    gf_u32(&f, "general.alignment", 32);
    refuse(&f, "missing key general.architecture");
    gf_string(&f, "general.architecture", "llama");
    refuse(&f, "missing key llama.block_count");
    gf_string(&f, "general.architecture", "llama");
    gf_string(&f, "llama.block_count", "two");
    refuse(&f, "llama.block_count must be a single integer, found string");
    gf_string(&f, "general.architecture", "llama");
    gf_u32(&f, "llama.block_count", 5000);
    refuse(&f, "llama.block_count");
    model_free(m);
}

/* Metadata of a llama with one key of another type or size; the tensors are valid. */
static void refuse_meta(const char *key, uint32_t kind, const void *p, size_t n, const char *part)
{
    static const char *const sizes[] = {
        "block_count",          "embedding_length",        "feed_forward_length",
        "attention.head_count", "attention.head_count_kv", "context_length"};
    static const uint32_t values[] = {2, 32, 48, 4, 2, 64};
    struct gguf_file f = {0};
    struct model *m = kit_model(llama, 1, 64, MODEL_INFERENCE, 0);
    char full[128];
    gf_string(&f, "general.architecture", "llama");
    for (size_t i = 0; i < DS_LEN(sizes); i++) {
        snprintf(full, sizeof full, "llama.%s", sizes[i]);
        if (strcmp(full, key) != 0)
            gf_u32(&f, full, values[i]);
    }
    gf_f32(&f, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    gf_raw(&f, key, kind, p, n);
    for (int i = 0; i < m->params.n; i++)
        put_tensor(&f, m, &m->params.p[i], 1);
    refuse(&f, part);
    model_free(m);
}

T(values_of_other_types_and_sizes_are_refused_by_key)
{
    static const char *const keys[] = {
        "llama.block_count",          "llama.embedding_length",        "llama.feed_forward_length",
        "llama.attention.head_count", "llama.attention.head_count_kv", "llama.context_length"};
    const unsigned char each[] = {GGUF_U32, 0, 0, 0, 2, 0, 0, 0, 0, 0,
                                  0,        0, 2, 0, 0, 0, 1, 0, 0, 0};
    const unsigned char huge[8] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f};
    const unsigned char past[8] = {0, 0, 0, 0, 0, 0, 0, 0x80};
    const float real_number = 2;
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        char part[100];
        snprintf(part, sizeof part, "%s must be a single integer, found array", keys[i]);
        refuse_meta(keys[i], GGUF_ARRAY, each, sizeof each, part); /* one value per layer */
        snprintf(part, sizeof part, "%s must be a single integer, found f32", keys[i]);
        refuse_meta(keys[i], GGUF_F32, &real_number, 4, part);
        snprintf(part, sizeof part, "%s = 9223372036854775808: must be less than 2^63", keys[i]);
        refuse_meta(keys[i], GGUF_U64, past, 8, part);
        refuse_meta(keys[i], GGUF_U64, huge, 8, "9223372036854775807: must be");
        refuse_meta(keys[i], GGUF_I32, "\377\377\377\377", 4, "-1: must be");
    }
    const uint32_t many = 100000, none = 0, five = 5, three = 3;
    refuse_meta("llama.block_count", GGUF_U32, &many, 4, "100000: must be 1 to 4096");
    refuse_meta("llama.block_count", GGUF_U32, &none, 4, " = 0: must be greater than 0");
    refuse_meta("llama.attention.head_count", GGUF_U32, &none, 4, " = 0: must be greater than 0");
    refuse_meta("llama.embedding_length", GGUF_U32, &none, 4, " = 0: must be greater than 0");
    refuse_meta("llama.attention.head_count", GGUF_U32, &five, 4, "heads=5: must divide");
    refuse_meta("llama.attention.head_count_kv", GGUF_U32, &three, 4,
                "kv_heads=3: must divide model.heads=4");
}

/* A sparse file: a model larger than memory is refused before any value is read. */
T(models_larger_than_memory_are_refused_with_both_sizes)
{
    struct gguf_file f = {0};
    struct str all = {0};
    const uint64_t V = 4194304, C = 65536;
    gf_string(&f, "general.architecture", "llama");
    gf_u32(&f, "llama.block_count", 1);
    gf_u32(&f, "llama.embedding_length", (uint32_t)C);
    gf_u32(&f, "llama.feed_forward_length", 32);
    gf_u32(&f, "llama.attention.head_count", 64);
    gf_u32(&f, "llama.attention.head_count_kv", 1);
    gf_u32(&f, "llama.context_length", 2048);
    gf_f32(&f, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    const struct {
        const char *name;
        uint64_t rows, cols;
    } of[] = {
        {"token_embd.weight", V, C},      {"output_norm.weight", C, 0},
        {"blk.0.attn_norm.weight", C, 0}, {"blk.0.ffn_norm.weight", C, 0},
        {"blk.0.attn_q.weight", C, C},    {"blk.0.attn_k.weight", 1024, C},
        {"blk.0.attn_v.weight", 1024, C}, {"blk.0.attn_output.weight", C, C},
        {"blk.0.ffn_gate.weight", 32, C}, {"blk.0.ffn_up.weight", 32, C},
        {"blk.0.ffn_down.weight", C, 32},
    };
    uint64_t at = 0;
    for (size_t i = 0; i < DS_LEN(of); i++) {
        gf_info(&f, of[i].name, GGUF_T_F32, of[i].rows, of[i].cols, at);
        at += 4 * of[i].rows * (of[i].cols ? of[i].cols : 1);
    }
    gf_bytes(&f, &all);
    const char *path = gf_put(all.p, all.len);
    if (truncate(path, (off_t)(all.len + at)) != 0)
        t_skip("the file system keeps no file of %.0f GB", 1e-9 * (double)at);
    t_skip_without_room(all.len + at);
    str_release(&all);
    struct model *m = NULL;
    t_fails(model_open(&m, path, NULL, MODEL_EDIT, &err), &err, DS_EMEM, "B available");
    t_truef(strstr(err.text, "x.gguf: out of memory: 283") && m == NULL, "%s", err.text);
    t_ok(model_open(&m, path, NULL, MODEL_INFERENCE, &err),
         &err); /* its matrices stay in the file */
    t_fails(weights_use(m, &(struct numeric_options){.compute = COMPUTE_BF16}, &err), &err, DS_EMEM,
            "out of memory: weights need ");
    model_free(m);
}

T(sizes_far_beyond_the_tensors_are_refused_before_allocation)
{
    struct gguf_file f = {0};
    const float x[64] = {0};
    struct model *m = kit_model("model.method=dense model.layers=1 model.dim=32 model.heads=4 "
                                "model.ffn=48 model.vocab=40",
                                1, 64, MODEL_INFERENCE, 0);
    m->config.layers = 4000;
    m->config.ffn = 1 << 20;
    put_metadata(&f, m, "llama");
    m->config.layers = 1;
    m->config.ffn = 48;
    gf_tensor(&f, "token_embd.weight", GGUF_T_F32, 2, 32, x, sizeof x);
    refuse(&f, "tensors hold 64");
    model_free(m);
}
