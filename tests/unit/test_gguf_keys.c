/* GGUF metadata, one table row per key: llama.cpp's default, and values that are refused. */
#include <math.h>

#include "kit.h"

#include "base/mem.h"
#include "gguf_file.h"
#include "models/load.h"

static struct err err;

/* One wide matrix holds most of the weights, so that only the configuration needs to be read. */
enum { V = 4000, C = 8 };

struct more {
    const char *key;
    char kind; /* u, f, b, s, or a, l for a list; 0: none */
    double v;
};

/* A list of u32. */
static void put_list(struct gguf_file *f, const char *key, const uint32_t *v, size_t n)
{
    struct str s = {0};
    gf_uint(&s, GGUF_U32, 4);
    gf_uint(&s, n, 8);
    for (size_t i = 0; i < n; i++)
        gf_uint(&s, v[i], 4);
    gf_raw(f, key, GGUF_ARRAY, s.p, s.len);
    str_release(&s);
}

static void put(struct gguf_file *f, const struct more *m)
{
    switch (m->kind) {
    case 'u': gf_u32(f, m->key, (uint32_t)m->v); break;
    case 'f': gf_f32(f, m->key, (float)m->v); break;
    case 'b': gf_raw(f, m->key, GGUF_BOOL, m->v != 0 ? "\1" : "\0", 1); break;
    case 's': gf_string(f, m->key, "none"); break;
    case 'y': gf_string(f, m->key, "yarn"); break;
    case '3': gf_string(f, m->key, "llama3"); break;
    case 'x': gf_string(f, m->key, "other"); break;
    case 'L': gf_string(f, m->key, "longrope"); break;
    case 'a': gf_strings(f, m->key, (const char *const[]){"a", "b"}, 2); break;
    case 'l': put_list(f, m->key, (const uint32_t[]){(uint32_t)m->v, 7}, m->v == 7 ? 2 : 1); break;
    default: break;
    }
}

/* A file with all mandatory keys except `without`, and one more. */
static int config_of(struct model_config *c, const char *without, const struct more *more, size_t n)
{
    static const struct more needed[] = {
        {"llama.block_count", 'u', 1},
        {"llama.embedding_length", 'u', C},
        {"llama.feed_forward_length", 'u', 16},
        {"llama.context_length", 'u', 64},
        {"llama.attention.head_count", 'u', 2},
        {"llama.attention.layer_norm_rms_epsilon", 'f', 1e-5},
    };
    static const float x[V * C] = {0};
    struct gguf_file f = {0};
    struct config route = {0};
    gf_string(&f, "general.architecture", "llama");
    for (size_t i = 0; i < DS_LEN(needed); i++)
        if (!without || strcmp(needed[i].key, without) != 0)
            put(&f, &needed[i]);
    for (size_t i = 0; i < n; i++)
        put(&f, &more[i]);
    gf_tensor(&f, "token_embd.weight", GGUF_T_F32, V, C, x, sizeof x);
    err = (struct err){0};
    memset(c, 0, sizeof *c);
    int rc = model_config_open(c, &route, gf_write(&f), &err);
    config_release(&route);
    return rc;
}

static void refuse(const char *without, const struct more *more, const char *part)
{
    struct model_config c;
    int rc = config_of(&c, without, more, more != NULL);
    t_truef(rc < 0 && strstr(err.text, part) && strstr(err.text, "x.gguf") &&
                !strchr(err.text, '\n'),
            "%d %s: expected %s", rc, err.text, part);
    opt_release(&model_group, &c);
}

static void accept(const struct more *more, size_t n, const char *own, const char *want)
{
    struct model_config c;
    char have[256], full[64];
    t_truef(config_of(&c, NULL, more, n) == 0, "%s: %s", more ? more->key : "", err.text);
    snprintf(full, sizeof full, "model.%s", own);
    opt_print(opt_find(&model_group, full), &c, have, sizeof have);
    t_truef(strcmp(have, want) == 0, "%s: %s is %s, not %s", more ? more->key : "", own, have,
            want);
    opt_release(&model_group, &c);
}

T(keys_mandatory_in_llama_cpp_are_mandatory)
{
    static const char *const keys[] = {
        "llama.block_count",          "llama.embedding_length",
        "llama.feed_forward_length",  "llama.context_length",
        "llama.attention.head_count", "llama.attention.layer_norm_rms_epsilon"};
    for (size_t i = 0; i < DS_LEN(keys); i++) {
        char part[120];
        snprintf(part, sizeof part, "missing key %s", keys[i]);
        refuse(keys[i], NULL, part);
    }
}

T(a_value_that_is_no_number_is_the_fault_of_the_file)
{
    static const struct more theta = {"llama.rope.freq_base", 'f', (double)NAN};
    refuse(NULL, &theta, "llama.rope.freq_base");
    t_eq(err.code, DS_EFORMAT); /* exit status 1: the user's words are right */
}

/* A size in a real number that no integer can hold. */
T(a_size_beyond_every_integer_is_refused)
{
    static const double sizes[] = {1e30, -1e30, (double)INFINITY, (double)NAN};
    for (size_t i = 0; i < DS_LEN(sizes); i++) {
        struct model_config c;
        const struct more yarn[] = {{"llama.rope.scaling.type", 'y', 0},
                                    {"llama.rope.scaling.factor", 'f', 2},
                                    {"llama.rope.scaling.original_context_length", 'f', sizes[i]}};
        t_fails(config_of(&c, NULL, yarn, 3), &err, DS_EFORMAT, "original_context_length = ");
        opt_release(&model_group, &c);
    }
}

T(an_absent_key_takes_llama_cpp_s_default)
{
    static const char *const absent[][2] = {
        {"kv_heads", "2"},        {"head_dim", "4"}, {"rope_theta", "10000"},
        {"rope_scaling", "none"}, {"tied", "true"},  {"attn_bias", "false"},
        {"mlp_bias", "false"},    {"end_ids", ""},   {"method", "dense"}};
    for (size_t i = 0; i < DS_LEN(absent); i++)
        accept(NULL, 0, absent[i][0], absent[i][1]);
}

T(a_size_may_be_a_list_of_one_for_each_block)
{
    static const struct more one = {"llama.attention.head_count_kv", 'l', 1},
                             two = {"llama.attention.head_count_kv", 'l', 7};
    accept(&one, 1, "kv_heads", "1");
    refuse(NULL, &two, "llama.attention.head_count_kv must be a single integer, found array");
}

/* One row per key: refused with the first value, accepted with the second. */
T(a_key_that_changes_the_computation_is_refused)
{
    static const struct {
        struct more bad, good;
    } rows[] = {
        {{"llama.attention.causal", 'b', 0}, {"llama.attention.causal", 'b', 1}},
        {{"llama.attention.sliding_window", 'u', 32}, {"llama.attention.sliding_window", 'u', 64}},
        {{"llama.attention.value_length", 'u', 8}, {"llama.attention.value_length", 'u', 4}},
        {{"llama.rope.dimension_count", 'u', 2}, {"llama.rope.dimension_count", 'u', 4}},
        {{"llama.rope.dimension_sections", 'a', 0}, {NULL, 0, 0}},
        {{"llama.rope.scaling.attn_factor", 'f', 1.5}, {"llama.rope.scaling.attn_factor", 'f', 1}},
        {{"llama.rope.scaling.yarn_ext_factor", 'f', 1},
         {"llama.rope.scaling.yarn_beta_fast", 'f', 32}},
        {{"llama.rope.scaling.factor", 'f', 2}, {"llama.rope.scaling.factor", 'f', 1}},
        {{"llama.rope.scale_linear", 'f', 2}, {"llama.rope.scale_linear", 'f', 0}},
        {{"llama.attention.scale", 'f', 1}, {"llama.attention.scale", 'f', 0.5}},
        {{"llama.attention.clamp_kqv", 'f', 8}, {"llama.attention.clamp_kqv", 'f', 0}},
        {{"llama.attention.max_alibi_bias", 'f', 8}, {"llama.attention.max_alibi_bias", 'f', 0}},
        {{"llama.attention.temperature_scale", 'f', 2},
         {"llama.attention.temperature_scale", 'f', 1}},
        {{"llama.attention.output_scale", 'f', 2}, {"llama.attention.output_scale", 'f', 1}},
        {{"llama.attention.kv_lora_rank", 'u', 512}, {"llama.attention.kv_lora_rank", 'u', 0}},
        {{"llama.attention.shared_kv_layers", 'u', 1},
         {"llama.attention.shared_kv_layers", 'u', 0}},
        {{"llama.attn_logit_softcapping", 'f', 50}, {"llama.attn_logit_softcapping", 'f', 0}},
        {{"llama.final_logit_softcapping", 'f', 30}, {"llama.final_logit_softcapping", 'f', 0}},
        {{"llama.logit_scale", 'f', 0.0625}, {"llama.logit_scale", 'f', 1}},
        {{"llama.embedding_scale", 'f', 12}, {"llama.embedding_scale", 'f', 1}},
        {{"llama.residual_scale", 'f', 0.22}, {"llama.residual_scale", 'f', 0}},
        {{"llama.use_parallel_residual", 'b', 1}, {"llama.use_parallel_residual", 'b', 0}},
        {{"llama.expert_gating_func", 'u', 2}, {"llama.expert_gating_func", 'u', 1}},
        {{"llama.expert_used_count", 'u', 2}, {"llama.expert_used_count", 'u', 0}},
        {{"llama.nextn_predict_layers", 'u', 1}, {"llama.nextn_predict_layers", 'u', 0}},
        {{"llama.attention.causal", 's', 0}, {NULL, 0, 0}},
        {{"llama.attention.causal", 'a', 0}, {NULL, 0, 0}},
        {{"llama.logit_scale", 's', 0}, {NULL, 0, 0}},
    };
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        int is_scaling =
            strstr(rows[i].bad.key, "scaling.factor") || strstr(rows[i].bad.key, "linear");
        refuse(NULL, &rows[i].bad, is_scaling ? "rotary scaling" : rows[i].bad.key + 6);
        if (rows[i].good.kind)
            accept(&rows[i].good, 1, "method", "dense");
    }
}

T(an_unknown_key_of_attention_or_positions_is_refused)
{
    refuse(NULL, &(struct more){"llama.attention.sparse", 'u', 1},
           "unknown key llama.attention.sparse");
    refuse(NULL, &(struct more){"llama.rope.twist", 'f', 1}, "unknown key llama.rope.twist");
    accept(&(struct more){"llama.attention_notes", 's', 0}, 1, "method", "dense");
    accept(&(struct more){"llama.vocab_size", 'u', V}, 1, "method", "dense");
    accept(&(struct more){"qwen2.attention.sparse", 'u', 1}, 1, "method", "dense");
    accept(&(struct more){"general.attention.sparse", 'u', 1}, 1, "method", "dense");
}

/* ---- phi3 ---- */

/* The rows of its fused matrices and the values of its lists. */
struct phi {
    uint32_t dims, qkv, up, n_short, n_long;
    float first; /* of the long list */
};

static int open_phi(struct model **m, const struct phi *p)
{
    static const char *const sizes[] = {"phi3.block_count",
                                        "phi3.embedding_length",
                                        "phi3.feed_forward_length",
                                        "phi3.context_length",
                                        "phi3.attention.head_count",
                                        "phi3.attention.head_count_kv",
                                        "phi3.rope.scaling.original_context_length"};
    static const uint32_t size[] = {1, 16, 24, 64, 2, 1, 16};
    static const float x[50 * 24] = {0};
    const float list[] = {p->first, 1.5, 2, 3, 4};
    struct gguf_file f = {0};
    gf_string(&f, "general.architecture", "phi3");
    for (size_t i = 0; i < DS_LEN(size); i++)
        gf_u32(&f, sizes[i], size[i]);
    gf_f32(&f, "phi3.attention.layer_norm_rms_epsilon", 1e-5f);
    gf_f32(&f, "phi3.rope.scaling.attn_factor", 1.25f);
    gf_u32(&f, "phi3.attention.sliding_window", 20);
    gf_u32(&f, "phi3.rope.dimension_count", p->dims);
    if (p->n_long)
        gf_tensor(&f, "rope_factors_long.weight", GGUF_T_F32, p->n_long, 0, list, 4 * p->n_long);
    if (p->n_short)
        gf_tensor(&f, "rope_factors_short.weight", GGUF_T_F32, p->n_short, 0, list, 4 * p->n_short);
    gf_tensor(&f, "token_embd.weight", GGUF_T_F32, 50, 16, x, 50 * 64);
    gf_tensor(&f, "blk.0.attn_norm.weight", GGUF_T_F32, 16, 0, x, 64);
    gf_tensor(&f, "blk.0.attn_qkv.weight", GGUF_T_F32, p->qkv, 16, x, 64 * p->qkv);
    gf_tensor(&f, "blk.0.attn_output.weight", GGUF_T_F32, 16, 16, x, 16 * 64);
    gf_tensor(&f, "blk.0.ffn_norm.weight", GGUF_T_F32, 16, 0, x, 64);
    gf_tensor(&f, "blk.0.ffn_up.weight", GGUF_T_F32, p->up, 16, x, 64 * p->up);
    gf_tensor(&f, "blk.0.ffn_down.weight", GGUF_T_F32, 16, 24, x, 16 * 96);
    gf_tensor(&f, "output_norm.weight", GGUF_T_F32, 16, 0, x, 64);
    err = (struct err){0};
    return model_open(m, gf_write(&f), NULL, MODEL_INFERENCE, &err);
}

T(a_phi3_file_is_read_with_its_lists_and_its_window)
{
    struct model *m = NULL;
    t_ok(open_phi(&m, &(struct phi){6, 32, 48, 3, 3, 1.25}), &err);
    const struct model_config *c = &m->config;
    t_str(c->rope_short, "1.25,1.5,2");
    t_true(c->rope_scaling == ROPE_LONGROPE && c->rope_dims == 6 && c->rope_original == 16);
    t_true(c->window == 20 && c->fused && c->rope_attention == 1.25);
    t_str(model_config_family(c), "phi3");
    model_free(m);
}

T(what_a_phi3_file_lacks_is_refused_by_name)
{
    static const struct {
        struct phi phi;
        const char *part;
    } of[] = {
        {{6, 32, 48, 0, 3, 1}, "missing tensor rope_factors_short.weight"},
        {{6, 32, 48, 3, 0, 1}, "missing tensor rope_factors_long.weight"},
        {{6, 32, 48, 3, 4, 1},
         "rope_factors_long.weight: 4 values, expected 3, half of the rotary"},
        {{8, 32, 48, 3, 4, 1}, "rope_factors_short.weight: 3 values, expected 4"},
        {{6, 32, 48, 3, 3, 0}, "value 1 is 0, expected a positive number"},
        {{6, 32, 48, 3, 3, (float)NAN}, "value 1 is nan, expected a positive number"},
        {{5, 32, 48, 3, 3, 1}, "phi3.rope.dimension_count = 5: must be even, from 2 to the head"},
        {{10, 32, 48, 3, 3, 1}, "phi3.rope.dimension_count = 10: must be even"},
        {{0, 32, 48, 3, 3, 1}, "phi3.rope.dimension_count = 0: must be even"},
        {{6, 24, 48, 3, 3, 1}, "tensor blk.0.attn_qkv.weight: shape [24,16], expected [32,16]"},
        {{6, 32, 24, 3, 3, 1}, "tensor blk.0.ffn_up.weight: shape [24,16], expected [48,16]"},
        {{6, 32, 48, 0, 0, 1}, "phi3.rope.scaling.attn_factor = 1.25"},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct model *m = NULL;
        int rc = open_phi(&m, &of[i].phi);
        t_truef(rc < 0 && strstr(err.text, of[i].part) && !strchr(err.text, '\n'),
                "%d %s: expected %s", rc, err.text, of[i].part);
    }
}

/* ---- gptneox ---- */

static int open_neox(struct model **m, int is_parallel, uint32_t qkv, const char *more)
{
    static const char *const sizes[] = {
        "gptneox.block_count",    "gptneox.embedding_length",     "gptneox.feed_forward_length",
        "gptneox.context_length", "gptneox.attention.head_count", "gptneox.rope.dimension_count"};
    static const uint32_t size[] = {1, 16, 24, 64, 2, 4};
    static const char *const vectors[] = {"blk.0.attn_norm.weight", "blk.0.attn_norm.bias",
                                          "blk.0.ffn_norm.weight",  "blk.0.ffn_norm.bias",
                                          "output_norm.weight",     "output_norm.bias",
                                          "blk.0.attn_output.bias", "blk.0.ffn_down.bias"};
    static const float x[50 * 24] = {0};
    struct gguf_file f = {0};
    gf_string(&f, "general.architecture", "gptneox");
    for (size_t i = 0; i < DS_LEN(size); i++)
        gf_u32(&f, sizes[i], size[i]);
    gf_f32(&f, "gptneox.attention.layer_norm_epsilon", 1e-5f);
    if (is_parallel >= 0)
        gf_u32(&f, "gptneox.use_parallel_residual", (uint32_t)is_parallel);
    for (size_t i = 0; i < DS_LEN(vectors); i++)
        gf_tensor(&f, vectors[i], GGUF_T_F32, 16, 0, x, 64);
    gf_tensor(&f, "token_embd.weight", GGUF_T_F32, 50, 16, x, 50 * 64);
    gf_tensor(&f, "output.weight", GGUF_T_F32, 50, 16, x, 50 * 64);
    gf_tensor(&f, "blk.0.attn_qkv.weight", GGUF_T_F32, qkv, 16, x, 64 * qkv);
    gf_tensor(&f, "blk.0.attn_qkv.bias", GGUF_T_F32, 48, 0, x, 4 * 48);
    gf_tensor(&f, "blk.0.attn_output.weight", GGUF_T_F32, 16, 16, x, 16 * 64);
    gf_tensor(&f, "blk.0.ffn_up.weight", GGUF_T_F32, 24, 16, x, 24 * 64);
    gf_tensor(&f, "blk.0.ffn_up.bias", GGUF_T_F32, 24, 0, x, 24 * 4);
    gf_tensor(&f, "blk.0.ffn_down.weight", GGUF_T_F32, 16, 24, x, 16 * 96);
    if (more)
        gf_tensor(&f, more, GGUF_T_F32, 8, 0, x, 8 * 4);
    err = (struct err){0};
    return model_open(m, gf_write(&f), NULL, MODEL_INFERENCE, &err);
}

T(gptneox_files_say_whether_blocks_are_parallel)
{
    for (int is_parallel = 0; is_parallel < 2; is_parallel++) {
        struct model *m = NULL;
        t_ok(open_neox(&m, is_parallel, 48, NULL), &err);
        t_eq(m->config.parallel, is_parallel ? PARALLEL_NORMS : PARALLEL_NONE);
        t_eq(m->config.rope_dims, 4);
        t_str(model_config_family(&m->config), "gpt_neox");
        model_free(m);
    }
    struct model *m = NULL;
    t_true(open_neox(&m, -1, 48, NULL) < 0 && strstr(err.text, "missing key gptneox.use_parallel"));
    t_true(open_neox(&m, 1, 32, NULL) < 0 && strstr(err.text, "shape [32,16], expected [48,16]"));
    t_true(open_neox(&m, 1, 48, "blk.0.attn_q_norm.weight") < 0 &&
           strstr(err.text, "unexpected tensor blk.0.attn_q_norm.weight"));
    t_true(open_neox(&m, 1, 48, "rope_freqs.weight") < 0 &&
           strstr(err.text, "rope_freqs.weight: unsupported in this architecture"));
}

T(end_of_text_ids_are_read)
{
    static const struct more three[] = {{"tokenizer.ggml.eos_token_id", 'u', 12},
                                        {"tokenizer.ggml.eot_token_id", 'u', 9},
                                        {"tokenizer.ggml.eom_token_id", 'u', 8}};
    accept(three, 1, "end_ids", "12");
    accept(three, 3, "end_ids", "12,9,8");
    accept(three + 1, 1, "end_ids", "9");
    accept(&(struct more){"tokenizer.ggml.eot_token_id", 'u', V}, 1, "end_ids", "");
    accept(&(struct more){"tokenizer.ggml.eot_token_id", 'u', 4294967295.0}, 1, "end_ids", "");
    refuse(NULL, &(struct more){"tokenizer.ggml.eos_token_id", 's', 0},
           "tokenizer.ggml.eos_token_id must be a single integer, found");
    refuse(NULL, &(struct more){"tokenizer.ggml.eot_token_id", 'f', 2},
           "tokenizer.ggml.eot_token_id must be a single integer, found");
    refuse(NULL, &(struct more){"tokenizer.ggml.eom_token_id", 'a', 0},
           "tokenizer.ggml.eom_token_id must be a single integer, found");
}

/* ---- other architectures ---- */

/* A file of this architecture with one block and these keys; of `f`, which may have tensors. */
static int config_as(const char *arch, struct gguf_file *f, const struct more *more, size_t n,
                     struct model_config *c)
{
    static const struct more needed[] = {
        {"block_count", 'u', 2},          {"embedding_length", 'u', C},
        {"feed_forward_length", 'u', 16}, {"context_length", 'u', 64},
        {"attention.head_count", 'u', 2}, {"attention.layer_norm_rms_epsilon", 'f', 1e-5},
    };
    static const float x[V * C] = {0};
    struct config route = {0};
    char key[96];
    gf_string(f, "general.architecture", arch);
    for (size_t i = 0; i < DS_LEN(needed) + n; i++) {
        struct more one = i < DS_LEN(needed) ? needed[i] : more[i - DS_LEN(needed)];
        snprintf(key, sizeof key, "%s.%s", arch, one.key);
        if (!one.kind)
            continue;
        one.key = key;
        put(f, &one);
    }
    gf_tensor(f, "token_embd.weight", GGUF_T_F32, V, C, x, sizeof x);
    err = (struct err){0};
    memset(c, 0, sizeof *c);
    int rc = model_config_open(c, &route, gf_write(f), &err);
    config_release(&route);
    return rc;
}

T(what_an_architecture_cannot_have_is_refused)
{
    static const struct {
        const char *arch;
        struct more more[4];
        const char *part;
    } row[] = {
        {"llama", {{"rope.scaling.type", 'u', 1}}, "llama.rope.scaling.type must be a string"},
        {"llama", {{"rope.scaling.type", '3', 0}}, "missing key llama.rope.scaling.factor"},
        {"llama",
         {{"rope.scaling.type", '3', 0}, {"rope.scaling.factor", 's', 0}},
         "llama.rope.scaling.factor must be a number, found string"},
        {"llama", {{"rope.scaling.type", 'y', 0}}, "missing key llama.rope.scaling.factor"},
        {"llama", {{"rope.scaling.type", 'x', 0}}, "unsupported rotary scaling other by 1"},
        {"llama", {{"rope.scaling.factor", 'a', 0}}, "must be a number, found array"},
        {"llama", {{"expert_count", 'u', 4}}, "missing key llama.expert_used_count"},
        {"llama",
         {{"expert_count", 'u', 4}, {"expert_used_count", 'f', 1.5}},
         "llama.expert_used_count must be a single integer, found"},
        {"llama", {{"expert_count", 's', 4}}, "llama.expert_count must be a number, found string"},
        {"llama",
         {{"expert_count", 'u', 4}, {"expert_used_count", 'u', 0}},
         "llama.expert_used_count = 0: must be greater than 0"},
        {"qwen2",
         {{"expert_count", 'u', 4}},
         "mixture of experts is unsupported in this architecture"},
        {"qwen2", {{"expert_used_count", 'u', 4}}, "needs expert_count"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 8}, {"attention.sliding_window_pattern", 'u', 0}},
         "gemma3.attention.sliding_window_pattern must be a list or a positive integer"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 8}, {"attention.sliding_window_pattern", 'l', 1}},
         "gemma3.attention.sliding_window_pattern has 1 entries, expected 2, block_count"},
        {"gemma3", {{"attention.sliding_window", 's', 8}}, "must be a number, found string"},
        {"olmo2",
         {{"attention.sliding_window", 'u', 8},
          {"attention.sliding_window_pattern", 'u', 2},
          {"rope.freq_base_swa", 'f', 5000}},
         "olmo2.rope.freq_base_swa = 5000: expected rope.freq_base = 10000 in this"},
        {"gemma2",
         {{"attention.sliding_window", 'u', 8}, {"rope.freq_base_swa", 'f', 5000}},
         "gemma2.rope.freq_base_swa = 5000: expected rope.freq_base = 10000 in this"},
        {"gemma3",
         {{"attn_logit_softcapping", 'f', 50}},
         "gemma3.attn_logit_softcapping = 50: soft-capped attention scores are unsupported"},
        {"gemma2",
         {{"attn_logit_softcapping", 'f', 0}},
         "gemma2.attn_logit_softcapping = 0: must be positive"},
        {"gemma2",
         {{"final_logit_softcapping", 'f', -1}},
         "gemma2.final_logit_softcapping = -1: must be positive"},
        {"gemma2", {{"final_logit_softcapping", 's', 1}}, "must be a number, found string"},
        {"phi3",
         {{"rope.scaling.type", 'L', 0}, {"rope.scaling.original_context_length", 'u', 0}},
         "phi3.rope.scaling.original_context_length = 0: must be positive"},
        {"phi3",
         {{"rope.scaling.type", 'L', 0}, {"rope.scaling.factor", 'f', 2}},
         "rope_factors_long.weight next to another rotary scaling is unsupported"},
    };
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct gguf_file f = {0};
        struct model_config c;
        int rc = config_as(row[i].arch, &f, row[i].more, DS_LEN(row[i].more), &c);
        t_truef(rc < 0 && strstr(err.text, row[i].part) && strstr(err.text, "x.gguf"),
                "%d %s: expected %s", rc, err.text, row[i].part);
        opt_release(&model_group, &c);
    }
}

T(scalings_and_windows_are_read_as_they_are_in_the_file)
{
    static const struct {
        const char *arch;
        struct more more[5];
        const char *own, *want;
    } row[] = {
        {"llama",
         {{"rope.scaling.type", '3', 0},
          {"rope.scaling.factor", 'f', 8},
          {"rope.scaling.low_freq_factor", 'f', 1},
          {"rope.scaling.high_freq_factor", 'f', 4},
          {"rope.scaling.original_context_length", 'u', 32}},
         "rope_scaling",
         "llama3"},
        {"llama",
         {{"rope.scaling.type", 'y', 0},
          {"rope.scaling.factor", 'f', 4},
          {"rope.scaling.original_context_length", 'u', 16}},
         "rope_high",
         "32"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 8}, {"attention.sliding_window_pattern", 'u', 2}},
         "window_layers",
         "0"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 8}, {"attention.sliding_window_pattern", 'u', 1}},
         "window",
         "0"},
        {"gemma3",
         {{"attention.sliding_window", 'u', 8}, {"attention.sliding_window_pattern", 'l', 7}},
         "window_layers",
         "0,1"},
        {"gemma3", {{"attention.sliding_window", 'u', 8}}, "rope_local", "10000"},
        {"gemma2", {{NULL, 0, 0}}, "attn_cap", "50"},
        {"gemma2", {{NULL, 0, 0}}, "window", "4096"},
        {"olmo2", {{NULL, 0, 0}}, "window", "0"},
        {"smollm3", {{NULL, 0, 0}}, "nope_layers", ""},
    };
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct gguf_file f = {0};
        struct model_config c;
        char have[256], full[64];
        t_truef(config_as(row[i].arch, &f, row[i].more, DS_LEN(row[i].more), &c) == 0, "%zu: %s", i,
                err.text);
        snprintf(full, sizeof full, "model.%s", row[i].own);
        opt_print(opt_find(&model_group, full), &c, have, sizeof have);
        t_truef(strcmp(have, row[i].want) == 0, "%zu: %s is %s, not %s", i, row[i].own, have,
                row[i].want);
        opt_release(&model_group, &c);
    }
}

T(every_failed_allocation_of_a_gguf_model_is_an_error)
{
    struct model *m = NULL;
    char path[600];
    int failed = 0, is_done = 0;
    t_ok(open_phi(&m, &(struct phi){6, 32, 48, 3, 3, 1.25}), &err);
    model_free(m);
    str_copy(path, sizeof path, gf_put_as("none.gguf", "", 0));
    str_copy(strrchr(path, '/'), 20, "/x.gguf");
    for (uint64_t k = 1; !is_done && k < 20000; k++) {
        uint64_t last = mem_calls() + k;
        m = NULL;
        err = (struct err){0};
        mem_fail_at(last, 0);
        int rc = model_open(&m, path, NULL, MODEL_INFERENCE, &err);
        is_done = mem_calls() < last;
        mem_fail_at(0, 0);
        failed += rc < 0;
        t_truef(rc >= 0 || (rc == DS_EMEM && strstr(err.text, "memory")), "call %d: %d %s", (int)k,
                rc, err.text);
        if (rc >= 0) {
            t_str(m->config.rope_short, "1.25,1.5,2");
            model_free(m);
        }
    }
    t_truef(is_done && failed > 50, "%d", failed);
}
