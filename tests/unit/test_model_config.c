/* Model configurations: parameter counts against tensors and published counts, rotary frequencies, Hugging Face's files. */
#include "base/fs.h"
#include "base/mem.h"
#include "kit.h"
#include "training/options.h"

/* ---- counts ---- */

T(the_parameter_count_equals_the_tensors_sizes)
{
    static const char *const shapes[] = {
        "",
        "model.layers=3 model.dim=32 model.heads=4 model.kv_heads=2 model.attn_bias=qkv",
        "model.layers=3 model.dim=32 model.heads=4 model.kv_heads=1 model.attn_bias=true "
        "model.tied=false",
        "model.layers=2 model.dim=24 model.heads=3 model.head_dim=16 model.attn_bias=true "
        "model.mlp_bias=true",
        "model.layers=2 model.dim=24 model.heads=3 model.head_dim=6 model.attn_bias=qkv "
        "model.mlp=gelu model.mlp_bias=true",
        "model.layers=5 model.dim=20 model.heads=2 model.norm=layer model.position=learned "
        "model.max_seq=33 model.mlp=gelu_tanh model.ffn=50",
        "model.layers=1 model.dim=16 model.heads=2 model.norm=layer model.position=none "
        "model.tied=false model.vocab=7",
        "model.layers=4 model.dim=16 model.heads=2 model.loop=3 model.loop_first=1 "
        "model.loop_last=1 model.lora_r=0",
        "model.layers=2 model.dim=16 model.heads=2 model.loop=3 model.loop_norm=false",
        "model.layers=2 model.dim=16 model.heads=2 model.loop=3 model.norm=layer",
        "model.layers=2 model.dim=16 model.heads=2 model.tied=false model.outputs=3-9,12",
        "model.layers=2 model.dim=16 model.heads=2 model.norm=layer model.parallel=true",
        "model.layers=2 model.dim=16 model.heads=2 model.norm=layer model.parallel=shared",
    };
    for (size_t i = 0; i < DS_LEN(shapes); i++) {
        char options[512];
        snprintf(options, sizeof options, "model.method=dense %s", shapes[i]);
        struct model *m = kit_model(options, 1, 4, 0, 0);
        const struct model_config *c = &m->config;
        t_eq(model_config_params(c), params_count(&m->params));
        int64_t layer = 0;
        for (int k = 0; k < m->params.n; k++)
            if (strncmp(m->params.p[k].name, "model.layers.0.", 15) == 0)
                layer += (int64_t)m->params.p[k].n;
        t_eq(model_config_params_layer(c), layer);
        model_free(m);
    }
}

/* ---- rotary frequencies ---- */

static struct model_config rope_config(double theta, int64_t head_dim)
{
    struct model_config c = {.head_dim = head_dim, .rope_dims = head_dim, .rope_theta = theta};
    return c;
}

/* Row state that depends on the method's options, besides the defaults of every method. */
static void outputs_refused(const char *text, const char *why)
{
    struct model_config c = {0};
    struct err e = {0};
    t_ok(opt_defaults(&model_group, &c, &e), &e);
    c.vocab = 100;
    c.tied = strncmp(text, "tied", 4) == 0;
    t_ok(opt_set(opt_find(&model_group, "model.outputs"), &c, text + 5 * c.tied, NULL, &e), &e);
    t_true(model_config_check(&c, &e) < 0);
    t_truef(strstr(e.text, why) != NULL, "%s", e.text);
    opt_release(&model_group, &c);
}

T(malformed_outputs_are_refused)
{
    outputs_refused("tied 3-5", "set model.tied=false");
    outputs_refused("5-3", "expected ascending ids");
    outputs_refused("3,3", "expected ascending ids");
    outputs_refused("3-", "expected ascending ids");
    outputs_refused("3,", "expected ascending ids");
    outputs_refused("x", "expected ascending ids");
    outputs_refused("-3", "expected ascending ids");
    outputs_refused("99999999999999999999999", "must be below 100");
    outputs_refused("98-100", "must be below 100");
}

/* The logits of the listed ids are those of a whole head with these rows; no other is ever drawn. */
T(a_head_of_some_ids_predicts_these_and_no_other)
{
    enum { V = 13 };
    static const int32_t id[] = {1, 2, 3, 8, 12};
    static const int32_t text[] = {4, 0, 12, 7, 1, 1};
    const char *shape = "model.method=dense model.layers=2 model.dim=16 model.heads=2 "
                        "model.vocab=13 model.tied=false model.init_std=0.3";
    char some[300];
    snprintf(some, sizeof some, "%s model.outputs=1-3,8,12", shape);
    struct model *a = kit_model(shape, 1, 6, 0, 0), *b = kit_model(some, 1, 6, 0, 0);
    struct batch batch = {.B = 1, .T = 6, .id = text};
    struct pass pass = kit_pass(PASS_SPARSE);
    real whole[6 * V], few[6 * V];
    for (int k = 0; k < 5; k++)
        memcpy(b->params.p[b->head].value + k * 16, a->params.p[a->head].value + id[k] * 16,
               16 * sizeof(real));
    params_changed(&b->params);
    model_forward(a, &batch, &pass);
    model_forward(b, &batch, &pass);
    model_logits_rows(a, 0, 6, whole);
    model_logits_rows(b, 0, 6, few);
    for (int i = 0; i < 6; i++)
        for (int v = 0, k = 0; v < V; v++)
            if (k < 5 && id[k] == v) {
                t_near(few[i * V + v], whole[i * V + v], 1e-5);
                k++;
            } else {
                t_true((double)few[i * V + v] < -1e29);
            }
    model_free(a);
    model_free(b);
}

static const char *const optional_state[] = {
    "model.method=dlr dlr.attach=true",
    "model.method=dtf dtf.score=random",
    "model.method=edp edp.step_code=every",
    "model.method=hat hat.exits=off",
    "model.method=mod mod.causal=predictor mod.predictor_only=true",
    "model.method=mod mod.stochastic=true mod.normalise=true",
    "model.method=edp model.layers=4 model.loop=3 model.loop_first=1 model.loop_last=1",
    "model.method=hat model.layers=2 model.loop=4",
};

static void estimate_equals_reservation(const char *options)
{
    static const struct {
        const char *options;
        int rows, train, keep;
    } shape[] = {
        {"model.layers=8 model.dim=32 model.heads=2", 64, 0, 0},
        {"model.layers=8 model.dim=32 model.heads=2", 64, 1, 1},
        {"model.layers=6 model.dim=48 model.heads=3 model.ffn=200", 1, 1, 0},
        {"model.layers=10 model.dim=64 model.heads=4 model.kv_heads=2 model.vocab=5000", 257, 0, 0},
        {"model.layers=24 model.dim=16 model.heads=2 model.position=learned model.norm=layer", 512,
         1, 0},
    };
    for (size_t i = 0; i < DS_LEN(shape); i++) {
        struct err e = {0};
        struct config route = {0};
        char text[256];
        size_t bytes = 0;
        int rows = shape[i].rows, train = shape[i].train, keep = shape[i].keep;
        snprintf(text, sizeof text, "%s %s", options, shape[i].options);
        struct model *m = kit_model(text, 1, rows, train, keep);
        const struct arena *a[] = {&m->stream_arena, &m->work_arena, &m->route.rows};
        size_t reserved = 0;
        for (size_t k = 0; k < DS_LEN(a); k++) {
            t_eq(a[k]->used, a[k]->size); /* all that was reserved was laid out */
            reserved += a[k]->size;
        }
        char word[64];
        const char *rest = options;
        for (int n = 0; sscanf(rest, " %63s%n", word, &n) == 1; rest += n)
            t_ok(config_override(&route, word, "test", &e), &e);
        t_ok(model_bytes(&bytes, &m->config, &route, rows, train, keep, &e), &e);
        t_truef(bytes == reserved, "%s: %zu bytes estimated, %zu reserved", text, bytes, reserved);
        t_truef(m->route.rows.size > 0 || !m->route.ops->layout, "%s: no row state", text);
        config_release(&route);
        model_free(m);
    }
}

T(the_buffer_estimate_equals_the_reservation)
{
    const struct route_ops *const *ops = route_all();
    for (size_t i = 0; ops[i]; i++) {
        char text[80];
        snprintf(text, sizeof text, "model.method=%s", ops[i]->name);
        estimate_equals_reservation(text);
    }
    for (size_t i = 0; i < DS_LEN(optional_state); i++)
        estimate_equals_reservation(optional_state[i]);
}

T(a_buffer_estimate_needs_a_known_method)
{
    struct err e = {0};
    struct model_config c = {0};
    size_t bytes = 7;
    t_ok(opt_defaults(&model_group, &c, &e), &e);
    mem_free(c.method);
    c.method = mem_strdup("none");
    t_fails(model_bytes(&bytes, &c, NULL, 8, 0, 0, &e), &e, DS_EUSAGE, "none");
    t_eq(bytes, 7);
    opt_release(&model_group, &c);
}

T(plain_frequencies_are_powers_of_theta)
{
    struct model_config c = rope_config(10000, 64);
    double f[32];
    (void)model_config_rope(&c, 0, 0, f);
    t_eq(f[0] == 1, 1);
    for (int i = 0; i < 32; i++)
        t_near(f[i], exp(-log(10000.0) * i / 32), 1e-12);
}

T(one_frequency_is_written_for_each_pair_that_rotates)
{
    struct model_config c = rope_config(10000, 64);
    double f[5] = {-1, -1, -1, -1, -1};
    c.rope_dims = 8;
    (void)model_config_rope(&c, 0, 0, f);
    for (int i = 0; i < 4; i++)
        t_true(f[i] > 0);
    t_true(f[4] == -1);
}

/* The published rule, in terms of wavelengths. */
static double llama3(double f, double factor, double low, double high, double original)
{
    double w = 2 * acos(-1.0) / f;
    if (w < original / high)
        return f;
    if (w > original / low)
        return f / factor;
    double s = (original / w - low) / (high - low);
    return (1 - s) * f / factor + s * f;
}

T(llama3_scales_long_wavelengths_only)
{
    static const struct {
        double factor;
        int64_t head_dim;
    } of[] = {{32, 64}, {8, 128}};
    for (size_t k = 0; k < DS_LEN(of); k++) {
        struct model_config c = rope_config(5e5, of[k].head_dim), plain = c;
        double f[64], raw[64];
        int kept = 0, ramped = 0, divided = 0, n = (int)of[k].head_dim / 2;
        c.rope_scaling = ROPE_LLAMA3;
        c.rope_factor = of[k].factor;
        c.rope_low = 1;
        c.rope_high = 4;
        c.rope_original = 8192;
        (void)model_config_rope(&c, 0, 0, f);
        (void)model_config_rope(&plain, 0, 0, raw);
        for (int i = 0; i < n; i++) {
            double want = llama3(raw[i], of[k].factor, 1, 4, 8192);
            t_near(f[i] / want, 1, 1e-12);
            kept += f[i] == raw[i];
            divided += f[i] == raw[i] / of[k].factor;
            ramped += f[i] < raw[i] && f[i] > raw[i] / of[k].factor;
            t_true(i == 0 || f[i] < f[i - 1]);
        }
        t_eq(kept + ramped + divided, n);
        t_true(kept > 0 && ramped > 0 && divided > 0);
    }
}

/* theta is chosen so that the second of two frequencies has wavelength w. */
static double at_wave(double w)
{
    double f[2], theta = pow(w / (2 * acos(-1.0)), 2);
    struct model_config c = rope_config(theta, 4);
    c.rope_scaling = ROPE_LLAMA3;
    c.rope_factor = 8;
    c.rope_low = 1;
    c.rope_high = 4;
    c.rope_original = 8192;
    (void)model_config_rope(&c, 0, 0, f);
    return f[1] * w / (2 * acos(-1.0));
}

T(llama3_ramp_begins_and_ends_at_the_two_wavelengths)
{
    t_near(at_wave(2047), 1, 1e-12);
    t_near(at_wave(2048), 1, 1e-9);
    t_true(at_wave(2050) < 1);
    t_near(at_wave(2050), 1 - (1 - 1.0 / 8) * (4 - 8192.0 / 2050) / 3, 1e-9);
    t_near(at_wave(8192.0 / 2.5), 0.5 + 0.5 / 8, 1e-9);
    t_true(at_wave(8190) > 1.0 / 8);
    t_near(at_wave(8192), 1.0 / 8, 1e-9);
    t_near(at_wave(8193), 1.0 / 8, 1e-12);
    t_near(at_wave(1e6), 1.0 / 8, 1e-12);
}

T(the_model_uses_the_rotary_frequencies_of_its_config)
{
    struct model *m = kit_model("model.method=dense model.rope_scaling=llama3 model.dim=64 "
                                "model.heads=1 model.rope_theta=5e5 model.layers=1",
                                1, 4, 0, 0);
    double f[32];
    (void)model_config_rope(&m->config, 0, 0, f);
    for (int i = 0; i < 32; i++)
        t_true(m->inv_freq[0][i] == (real)f[i]);
    model_free(m);
}

#define LONGROPE                                                                                   \
    "model.method=dense model.layers=2 model.dim=24 model.heads=4 model.max_seq=64 "               \
    "model.rope_scaling=longrope model.rope_original=16 model.rope_factor=4 "

/* As _compute_longrope_parameters and _compute_dynamic_ntk_parameters of transformers 5.23 have
 * them. */
T(frequencies_follow_the_context)
{
    static const struct {
        const char *options;
        int context;
        double want[3], scale;
    } of[] = {
        {LONGROPE "model.rope_short=1,1.5,2 model.rope_long=1.25,3,6",
         16,
         {1, 0.030943920835852623, 0.001077217166312039},
         1.224744871391589},
        {LONGROPE "model.rope_short=1,1.5,2 model.rope_long=1.25,3,6",
         17,
         {0.8, 0.015471960417926311, 0.0003590723790694028},
         1.224744871391589},
        {LONGROPE "model.rope_short=1,1.5,2 model.rope_long=1.25,3,6 model.rope_attention=2",
         8,
         {1, 0.030943920835852623, 0.001077217166312039},
         2},
        {"model.method=dense model.layers=2 model.dim=24 model.heads=4 model.max_seq=16 "
         "model.rope_scaling=dynamic model.rope_factor=3",
         16,
         {1, 0.04641588404774666, 0.002154434332624078},
         1},
        {"model.method=dense model.layers=2 model.dim=24 model.heads=4 model.max_seq=16 "
         "model.rope_scaling=dynamic model.rope_factor=3",
         24,
         {1, 0.029355984181165695, 0.0008617736748419702},
         1},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct model *m = kit_model(of[i].options, 1, 4, 0, 0);
        model_set_context(m, of[i].context);
        for (int k = 0; k < 3; k++)
            t_near((double)m->inv_freq[0][k] / of[i].want[k], 1, 1e-6);
        t_near(m->rope_scale, of[i].scale, 1e-6);
        model_set_context(m, 1);
        t_true(i != 1 || m->inv_freq[0][0] == 1);
        model_free(m);
    }
}

T(divisors_must_fit_the_rotary_dimensions)
{
    static const char *const of[][2] = {
        {LONGROPE "model.rope_long=1,1,1", "model.rope_short has 0 numbers, expected 3, half of"},
        {LONGROPE "model.rope_short=1,1,1 model.rope_long=1,2", "model.rope_long has 2 numbers"},
        {LONGROPE "model.rope_short=1,1,1 model.rope_long=1,2,-3", "expected positive numbers"},
        {LONGROPE "model.rope_short=1,1,1, model.rope_long=1,2,3", "expected positive numbers"},
        {LONGROPE "model.rope_short=1,1,1 model.rope_long=1,2,inf", "expected positive numbers"},
        {LONGROPE "model.rope_short=1,1,1 model.rope_long=1,2,3 model.rope_original=1",
         "model.rope_original=1: must be at least 2"},
        {LONGROPE "model.rope_short=1,1,1 model.rope_long=1,2,3 model.rope_dims=3",
         "model.rope_dims=3: must be even"},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct err e = {0};
        struct model *m = NULL;
        int rc = kit_try(&m, of[i][0], 1, 0, &e);
        t_truef(rc < 0 && strstr(e.text, of[i][1]), "%s: %d %s", of[i][0], rc, e.text);
    }
}

/* The size of its cache decides for a text, and a batch has one choice. */
T(a_cache_keeps_its_frequencies)
{
    enum { T_MAX = 12 };
    static const int32_t id[T_MAX] = {3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8};
    real whole[32], cached[32];
    for (int cap = 12; cap <= 20; cap += 8) {
        struct err e = {0};
        struct kv_cache *c[2] = {NULL, NULL};
        struct pass pass = {.kind = PASS_DENSE};
        struct model *m = kit_model(LONGROPE "model.vocab=32 model.rope_short=1,1.5,2 "
                                             "model.rope_long=1.25,3,6 model.init_std=0.3",
                                    1, 20, 0, 0);
        int32_t padded[20] = {0};
        memcpy(padded, id, sizeof id);
        model_forward(m, &(struct batch){.B = 1, .T = cap, .id = padded}, &pass);
        model_logits(m, T_MAX - 1, whole);
        t_ok(kv_cache_new(&c[0], m, cap, &e), &e);
        t_ok(kv_cache_new(&c[1], m, 32 - cap, &e), &e);
        t_fails(model_decode_batch(m, c, 2, id, 1, &pass, &e), &e, DS_ERANGE,
                "have other rotary frequencies");
        for (int i = 0; i < T_MAX; i++)
            t_ok(model_decode(m, c[0], &id[i], 1, &pass, &e), &e);
        model_logits(m, 0, cached);
        for (int v = 0; v < 32; v++)
            t_near(cached[v], whole[v], 1e-5);
        kv_cache_free(c[0]);
        kv_cache_free(c[1]);
        model_free(m);
    }
}

T(rope_high_must_exceed_rope_low)
{
    struct err e = {0};
    struct model *m = NULL;
    t_fails(kit_try(&m, "model.rope_scaling=llama3 model.rope_low=4 model.rope_high=4", 1, 0, &e),
            &e, DS_ERANGE, "model.rope_high=4: must be greater than model.rope_low=4");
}

/* ---- loops ---- */

T(executed_layers_name_the_block_they_run)
{
    static const int block[] = {0, 1, 2, 1, 2, 1, 2, 3, 4};
    struct model_config c = {.layers = 5, .loop = 3, .loop_first = 1, .loop_last = 2};
    t_eq(model_config_depth(&c), 9);
    for (int l = 0; l < 9; l++)
        t_eq(model_config_block(&c, l), block[l]);
    struct route_loop loop = model_config_loop(&c);
    t_true(loop.start == 1 && loop.group == 2 && loop.end == 7);
    struct model_config stack = {.layers = 5, .loop = 1};
    t_eq(model_config_depth(&stack), 5);
    t_eq(model_config_block(&stack, 4), 4);
    loop = model_config_loop(&stack);
    t_true(loop.start == 0 && loop.group == 1 && loop.end == 5);
}

/* The blocks of a loop are stored once, adapters included. */
T(a_loop_has_the_parameters_of_its_blocks)
{
    struct model *loop = kit_model(
        "model.layers=3 model.loop=4 model.loop_first=1 "
        "model.loop_norm=false model.method=dense model.dim=16 model.heads=2 model.lora_r=2",
        1, 4, 0, 0);
    struct model *stack = kit_model("model.layers=3 model.method=dense model.dim=16 model.heads=2 "
                                    "model.lora_r=2",
                                    1, 4, 0, 0);
    t_eq(loop->params.n, stack->params.n);
    for (int i = 0; i < loop->params.n; i++)
        t_str(loop->params.p[i].name, stack->params.p[i].name);
    model_free(loop);
    model_free(stack);
}

T(an_impossible_loop_is_refused)
{
    static const struct {
        const char *options, *message;
    } rows[] = {
        {"model.layers=2 model.loop=3 model.loop_first=1 model.loop_last=1", "no block is left"},
        {"model.loop_first=1", "not a loop"},
        {"model.loop_inject=add", "not a loop"},
        {"model.loop=3 model.loop_min=4", "must be at most model.loop=3"},
        {"model.loop=0", "must be 1 to 256"},
        {"model.layers=64 model.loop=256", "expected at most 4096"},
    };
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        struct err e = {0};
        struct model *m = NULL;
        t_truef(kit_try(&m, rows[i].options, 1, 0, &e) < 0 && strstr(e.text, rows[i].message),
                "%s: %s", rows[i].options, e.text);
    }
}

/* ---- config.json ---- */

static int read_text(struct model_config *c, const char *text, struct err *e)
{
    char path[1024];
    struct config route = {0};
    t_ok(fs_join(path, sizeof path, t_tmpdir(), "config.json", e), e);
    t_ok(fs_write_file(path, text, strlen(text), e), e);
    int rc = model_config_from_json(c, &route, path, e);
    config_release(&route);
    return rc;
}

#define QWEN_SHAPE                                                                                 \
    "\"hidden_size\": 896, \"num_hidden_layers\": 24, \"num_attention_heads\": 14, "               \
    "\"num_key_value_heads\": 2, \"intermediate_size\": 4864, \"vocab_size\": 151936, "            \
    "\"max_position_embeddings\": 32768, \"rms_norm_eps\": 1e-06, \"rope_theta\": 1000000.0"
#define QWEN                                                                                       \
    QWEN_SHAPE ", \"sliding_window\": 32768, \"hidden_act\": \"silu\", \"attention_dropout\": 0.0"
#define GPT2                                                                                       \
    "{\"model_type\": \"gpt2\", \"n_embd\": 64, \"n_layer\": 2, \"n_head\": 4, \"n_positions\": "  \
    "128, \"vocab_size\": 50"

T(a_gpt2_file_sets_layer_norm_learned_positions_and_biases)
{
    struct model_config c;
    struct err e = {0};
    t_ok(read_text(&c, GPT2 ", \"n_inner\": null, \"layer_norm_epsilon\": 1e-6}", &e), &e);
    t_eq(c.norm, NORM_LAYER);
    t_eq(c.position, POS_LEARNED);
    t_eq(c.mlp, MLP_GELU_TANH);
    t_eq(c.attn_bias, ATTN_BIAS_ALL);
    t_eq(c.ffn, 256);
    t_eq(c.max_seq, 128);
    t_eq(c.tied, 1);
    t_near(c.norm_eps, 1e-6, 1e-18);
    t_eq(model_config_params(&c), 50 * 64 + 128 * 64 + 2 * 49984 + 128);
    opt_release(&model_group, &c);
}

T(a_mistral_file_without_a_window_is_a_llama)
{
    struct model_config c;
    struct err e = {0};
    t_ok(read_text(&c, "{\"model_type\": \"mistral\", \"sliding_window\": null, " QWEN_SHAPE "}",
                   &e),
         &e);
    t_eq(c.attn_bias, ATTN_BIAS_NONE);
    t_eq(c.kv_heads, 2);
    t_eq(c.tied, 0);
    opt_release(&model_group, &c);
}

T(a_qwen2_file_has_biases_on_q_k_and_v)
{
    struct model_config c;
    struct err e = {0};
    t_ok(read_text(&c,
                   "{\"model_type\": \"qwen2\", \"tie_word_embeddings\": true, "
                   "\"use_sliding_window\": false, " QWEN "}",
                   &e),
         &e);
    t_eq(c.attn_bias, ATTN_BIAS_QKV);
    t_eq(c.mlp_bias, 0);
    t_eq(c.tied, 1);
    t_eq(c.rope_scaling, ROPE_PLAIN);
    t_near(c.norm_eps, 1e-6, 1e-18);
    t_eq(model_config_params(&c), 494032768);
    t_str(c.method, "dense");
    opt_release(&model_group, &c);
}

#define LLAMA3                                                                                     \
    "\"factor\": 32.0, \"low_freq_factor\": 1.0, \"high_freq_factor\": 4.0, "                      \
    "\"original_max_position_embeddings\": 8192"
#define LLAMA                                                                                      \
    "{\"model_type\": \"llama\", \"hidden_size\": 64, \"num_hidden_layers\": 2, "                  \
    "\"num_attention_heads\": 4, \"intermediate_size\": 96, \"vocab_size\": 50"

T(rope_scaling_is_read_in_all_spellings)
{
    static const struct {
        const char *text;
        int kind;
        double theta;
    } of[] = {
        {LLAMA "}", ROPE_PLAIN, 1e4},
        {LLAMA ", \"rope_scaling\": null, \"rope_theta\": 5e5}", ROPE_PLAIN, 5e5},
        {LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", " LLAMA3 "}}", ROPE_LLAMA3, 1e4},
        {LLAMA ", \"rope_scaling\": {\"type\": \"llama3\", " LLAMA3 "}}", ROPE_LLAMA3, 1e4},
        {LLAMA ", \"rope_parameters\": {\"rope_type\": \"default\", \"rope_theta\": 5e5}}",
         ROPE_PLAIN, 5e5},
        {LLAMA ", \"rope_parameters\": {\"rope_theta\": 5e5, \"rope_type\": \"llama3\", " LLAMA3
               "}}",
         ROPE_LLAMA3, 5e5},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct model_config c;
        struct err e = {0};
        t_ok(read_text(&c, of[i].text, &e), &e);
        t_eq(c.rope_scaling, of[i].kind);
        t_near(c.rope_theta, of[i].theta, 0);
        t_near(c.norm_eps, 1e-6, 1e-18);
        t_eq(c.tied, 0);
        if (of[i].kind == ROPE_LLAMA3)
            t_true(c.rope_factor == 32 && c.rope_low == 1 && c.rope_high == 4 &&
                   c.rope_original == 8192);
        opt_release(&model_group, &c);
    }
}

#define QWEN3 "{\"model_type\": \"qwen3\", " QWEN_SHAPE
#define GEMMA "{\"model_type\": \"gemma2\", " QWEN_SHAPE
#define SMOLLM "{\"model_type\": \"smollm3\", " QWEN_SHAPE

T(newer_families_are_read_with_their_defaults)
{
    static const struct {
        const char *text, *window_layers, *nope_layers;
        int64_t window;
        int norm_place, qk_norm;
        double attn_cap, rope_local;
    } of[] = {
        {"{\"model_type\": \"mistral\", \"sliding_window\": 4096, " QWEN_SHAPE "}", "", "", 4096,
         NORM_BEFORE, QK_NORM_NONE, 0, 0},
        {"{\"model_type\": \"mistral\", \"sliding_window\": 32768, " QWEN_SHAPE "}", "", "", 0,
         NORM_BEFORE, QK_NORM_NONE, 0, 0},
        {"{\"model_type\": \"qwen2\", \"use_sliding_window\": true, \"sliding_window\": 100, "
         "\"max_window_layers\": 22, " QWEN_SHAPE "}",
         "22,23", "", 100, NORM_BEFORE, QK_NORM_NONE, 0, 0},
        {QWEN3 ", \"sliding_window\": 100}", "", "", 0, NORM_BEFORE, QK_NORM_HEAD, 0, 0},
        {GEMMA "}", "0,2,4,6,8,10,12,14,16,18,20,22", "", 4096, NORM_BOTH, QK_NORM_NONE, 50, 0},
        {GEMMA ", \"attn_logit_softcapping\": null, \"sliding_window\": null}", "", "", 0,
         NORM_BOTH, QK_NORM_NONE, 0, 0},
        {"{\"model_type\": \"gemma3_text\", \"sliding_window_pattern\": 12, \"sliding_window\": "
         "512, " QWEN_SHAPE "}",
         "0,1,2,3,4,5,6,7,8,9,10,12,13,14,15,16,17,18,19,20,21,22", "", 512, NORM_BOTH,
         QK_NORM_HEAD, 0, 10000},
        {"{\"model_type\": \"olmo2\", " QWEN_SHAPE "}", "", "", 0, NORM_AFTER, QK_NORM_WHOLE, 0, 0},
        {SMOLLM "}", "", "3,7,11,15,19,23", 0, NORM_BEFORE, QK_NORM_NONE, 0, 0},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct model_config c;
        struct err e = {0};
        t_ok(read_text(&c, of[i].text, &e), &e);
        t_str(c.window_layers, of[i].window_layers);
        t_str(c.nope_layers, of[i].nope_layers);
        t_eq(c.window, of[i].window);
        t_eq(c.norm_place, of[i].norm_place);
        t_eq(c.qk_norm, of[i].qk_norm);
        t_near(c.attn_cap, of[i].attn_cap, 0);
        t_near(c.rope_local, of[i].rope_local, 0);
        opt_release(&model_group, &c);
    }
}

T(unsupported_features_are_refused)
{
    static const struct {
        const char *text, *part;
    } of[] = {
        {LLAMA ", \"rope_scaling\": {\"type\": \"dynamic\"}}", "missing key factor"},
        {LLAMA ", \"rope_scaling\": {\"type\": \"linear\"}}", "missing key factor"},
        {LLAMA ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 2}}",
         "missing key original_max_position_embeddings"},
        {LLAMA ", \"rope_parameters\": {\"full_attention\": {\"rope_type\": \"default\"}}}",
         "by kind of layer"},
        {LLAMA ", \"rope_scaling\": {\"factor\": 2}}", "unsupported type none"},
        {LLAMA ", \"rope_scaling\": 3}", "rope_scaling must be an object"},
        {LLAMA ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 2}}",
         "missing key low_freq_factor"},
        {LLAMA ", \"hidden_act\": \"gelu\"}", "unsupported activation gelu"},
        {LLAMA ", \"rms_norm_eps\": \"x\"}", "rms_norm_eps must be a number"},
        {LLAMA ", \"num_hidden_layers\": 0}", ""},
        {QWEN3 ", \"layer_types\": [\"full_attention\"]}",
         "layer_types has 1 entries, expected 24"},
        {QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": 0}", "sliding_window must be"},
        {QWEN3 ", \"use_sliding_window\": true, \"sliding_window\": \"x\"}",
         "sliding_window must be"},
        {GEMMA ", \"attn_logit_softcapping\": 0}", "attn_logit_softcapping must be"},
        {GEMMA ", \"final_logit_softcapping\": -3}", "final_logit_softcapping must be"},
        {"{\"model_type\": \"gemma3_text\", \"attn_logit_softcapping\": 50.0, " QWEN_SHAPE "}",
         "attn_logit_softcapping=50: soft-capped attention scores"},
        {GEMMA ", \"query_pre_attn_scalar\": 0}", "query_pre_attn_scalar must be"},
        {GEMMA ", \"hidden_activation\": \"gelu\"}", "unsupported activation gelu"},
        {LLAMA ", \"final_logit_softcapping\": 30.0}",
         "soft-capped logits are unsupported in this"},
        {SMOLLM ", \"no_rope_layers\": [1, 0]}", "no_rope_layers must be a list of 24"},
        {SMOLLM ", \"no_rope_layer_interval\": 0}", "no_rope_layer_interval must be"},
        {"{\"model_type\": \"bert\"}", "unsupported model_type bert"},
        {"{\"model_type\": \"mistral\"}", "hidden_size is missing"},
        {LLAMA ", \"layer_types\": [\"full_attention\", \"sliding_attention\"]}", "layer_types"},
        {LLAMA ", \"partial_rotary_factor\": 0.5}", "partial_rotary_factor"},
        {GPT2 ", \"activation_function\": \"relu\"}", "unsupported activation relu"},
        {GPT2 ", \"scale_attn_by_inverse_layer_idx\": true}", "scale_attn"},
        {GPT2 ", \"add_cross_attention\": true}", "add_cross_attention"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 8, \"n_layer\": 1}", "n_head is missing"},
        {"{}", "missing model_type"},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        struct model_config c;
        struct err e = {0};
        int rc = read_text(&c, of[i].text, &e);
        t_truef(rc < 0 && strstr(e.text, of[i].part) && !strchr(e.text, '\n'), "%zu: %d %s", i, rc,
                e.text);
    }
}

static void round_trip(const char *options, const char *type, const char *also)
{
    struct err e = {0};
    struct str text = {0}, again = {0};
    struct config route = {0};
    struct model_config c;
    char path[1024], want[64];
    struct model *m = kit_model(options, 1, 4, 0, 0);
    model_config_to_json(&text, &m->config, NULL);
    snprintf(want, sizeof want, "\"model_type\": \"%s\"", type);
    t_truef(strstr(str_text(&text), want) && strstr(str_text(&text), also), "%s", str_text(&text));
    t_ok(fs_join(path, sizeof path, t_tmpdir(), "config.json", &e), &e);
    t_ok(fs_write_file(path, text.p, text.len, &e), &e);
    t_ok(model_config_from_json(&c, &route, path, &e), &e);
    model_config_to_json(&again, &c, NULL);
    t_str(str_text(&again), str_text(&text));
    opt_release(&model_group, &c);
    /* and without our own keys, as another program would write it */
    char *own = strstr(text.p, ",\n  \"depthscope\"");
    if (own && strcmp(type, "depthscope") != 0) {
        own[0] = '}';
        t_ok(fs_write_file(path, text.p, (size_t)(own - text.p) + 1, &e), &e);
        t_ok(model_config_from_json(&c, &route, path, &e), &e);
        t_eq(c.attn_bias, m->config.attn_bias);
        t_eq(c.rope_scaling, m->config.rope_scaling);
        t_eq(c.tied, m->config.tied);
        t_eq(c.window, m->config.window);
        t_str(c.window_layers, m->config.window_layers);
        t_str(c.nope_layers, m->config.nope_layers);
        t_near(c.rope_factor, m->config.rope_factor, 0);
        t_eq(model_config_params(&c), model_config_params(&m->config));
        opt_release(&model_group, &c);
    }
    config_release(&route);
    str_release(&text);
    str_release(&again);
    model_free(m);
}

T(config_json_names_the_family_that_computes_the_same)
{
    round_trip("model.method=dense", "llama", "LlamaForCausalLM");
    round_trip("model.method=dense model.attn_bias=true model.tied=false", "llama",
               "\"attention_bias\": true");
    round_trip("model.method=dense model.attn_bias=qkv model.kv_heads=1", "qwen2",
               "Qwen2ForCausalLM");
    round_trip("model.method=dense model.rope_scaling=llama3 model.rope_factor=32", "llama",
               "\"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 32");
    round_trip("model.method=dense model.rope_scaling=llama3 model.attn_bias=qkv", "qwen2",
               "\"original_max_position_embeddings\": 8192");
    round_trip("model.method=dense model.norm=layer model.position=learned model.mlp=gelu_tanh "
               "model.attn_bias=true model.mlp_bias=true",
               "gpt2", "GPT2LMHeadModel");
#define MOE "model.method=dense model.experts=4 model.window=8 "
    round_trip(MOE "model.window_layers=0 model.experts_norm=false model.attn_bias=qkv "
                   "model.shared_ffn=16 model.shared_gate=true",
               "qwen2_moe", "\"use_sliding_window\": true");
    round_trip("model.method=dense model.window=8 model.window_layers=1", "smollm3",
               "\"no_rope_layers\": [1, 1, 1");
    round_trip(MOE, "mixtral", "\"sliding_window\": 8");
    round_trip("model.method=dense model.window=8 model.rope_dims=16", "phi3",
               "\"sliding_window\": 8");
#define GEMMA3                                                                                     \
    "model.method=dense model.layers=2 model.dim=64 model.heads=4 model.norm_place=both "          \
    "model.norm_offset=true model.mlp=geglu model.qk_norm=head model.embed_scale=8 "               \
    "model.window=6 model.window_layers=0 model.rope_theta=500000 "
    round_trip(GEMMA3, "gemma3_text", "\"rope_local_base_freq\": 500000");
    round_trip(GEMMA3 "model.rope_scaling=linear", "depthscope", "");
    round_trip(GEMMA3 "model.rope_scaling=linear model.rope_local=300", "gemma3_text",
               "\"rope_local_base_freq\": 300");
    round_trip("model.method=edp", "depthscope", "DepthscopeForCausalLM");
    round_trip("model.method=edp model.attn_bias=qkv", "depthscope", "");
    round_trip("model.method=dense model.attn_bias=qkv model.mlp_bias=true", "depthscope", "");
    round_trip("model.method=dense model.position=rope_interleaved", "depthscope", "");
}
