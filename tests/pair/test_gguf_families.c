/* Models of each architecture written as GGUF and opened again have the same logits; what an
 * architecture cannot store is refused. */
#include "kit.h"

#include "base/fs.h"
#include "io/gguf.h"
#include "models/export.h"
#include "models/load.h"

enum { IDS = 20, VOCAB = 32 };

#define SHAPE                                                                                      \
    "model.method=dense model.layers=4 model.dim=24 model.heads=4 model.vocab=32 "                 \
    "model.max_seq=40 model.ffn=36 model.init_std=0.2 "
#define GEMMA                                                                                      \
    "model.norm_place=both model.norm_offset=true model.mlp=geglu "                                \
    "model.embed_scale=4.898979485566356 model.window=6 "
#define STABLE "model.norm=layer model.tied=false "
#define NEOX STABLE "model.attn_bias=true model.mlp_bias=true "

static void run(struct model *m, real *logits)
{
    int32_t id[IDS];
    struct batch b = {.B = 1, .T = IDS, .id = id};
    struct pass pass = {.kind = PASS_DENSE};
    struct err e = {0};
    for (int i = 0; i < IDS; i++)
        id[i] = (int32_t)((5 * i * i + i + 2) % VOCAB);
    t_ok(model_reserve(m, IDS, 0, 0, &e), &e);
    model_forward(m, &b, &pass);
    for (int i = 0; i < IDS; i++)
        model_logits(m, i, logits + (size_t)i * VOCAB);
}

static int export_to(const char *path, const struct model *m, struct err *e)
{
    struct export_source s = {.m = m};
    struct export_options o = {.type = GGUF_T_F32};
    struct export_result r;
    return export_gguf(&s, &o, path, &r, e);
}

T(every_architecture_comes_back_from_gguf)
{
    static const char *const of[] = {
        "model.kv_heads=2 model.tied=false",
        "model.rope_scaling=linear model.rope_factor=3",
        "model.attn_bias=qkv model.rope_scaling=yarn model.rope_factor=4 model.rope_original=16 "
        "model.rope_low=1 model.rope_high=32",
        "model.qk_norm=head model.head_dim=8 model.kv_heads=2",
        GEMMA "model.window_layers=0,2 model.attn_cap=1.5 model.logit_cap=2",
        GEMMA "model.window_layers=0-2 model.rope_local=300 model.qk_norm=head model.head_dim=8",
        "model.norm_place=after model.qk_norm=whole model.tied=false",
        "model.nope_layers=3 model.kv_heads=2",
        "model.experts=4 model.tied=false",
        "model.experts=5 model.experts_used=3 model.expert_ffn=20 model.experts_norm=false "
        "model.shared_ffn=28 model.shared_gate=true model.attn_bias=qkv",
        "model.experts=5 model.expert_ffn=20 model.experts_norm=false model.shared_ffn=28 "
        "model.shared_gate=true",
        "model.experts=4 model.expert_ffn=20 model.qk_norm=head",
        "model.experts=4 model.experts_norm=false model.qk_norm=whole",
        "model.norm_offset=true model.mlp=geglu model.embed_scale=4.898979485566356",
        "model.norm_place=after model.qk_norm=whole model.window=6 model.window_layers=0-1,3 "
        "model.rope_local=1e4 model.rope_scaling=yarn model.rope_factor=4 model.rope_original=16 "
        "model.rope_low=1 model.rope_high=32",
        "model.fused=true model.kv_heads=2 model.window=6 model.tied=false",
        "model.rope_dims=4 model.kv_heads=1",
        "model.rope_dims=4 model.fused=true model.rope_scaling=longrope model.rope_short=1,1.5 "
        "model.rope_long=1.25,6 model.rope_original=16 model.rope_factor=2.5",
        "model.fused=true model.rope_scaling=longrope model.rope_short=1,1.5,3 "
        "model.rope_long=1.25,6,8 model.rope_original=24 model.rope_attention=1.5",
        NEOX "model.parallel=true model.rope_dims=2 model.mlp=gelu",
        NEOX "model.mlp=gelu_tanh model.rope_scaling=linear model.rope_factor=3",
        STABLE "model.attn_bias=qkv model.kv_heads=2 model.rope_dims=4",
        STABLE "model.parallel=shared",
    };
    static real want[IDS * VOCAB], have[IDS * VOCAB];
    for (size_t i = 0; i < DS_LEN(of); i++) {
        char options[512], path[1024];
        struct err e = {0};
        struct model *back = NULL;
        snprintf(options, sizeof options, SHAPE "%s", of[i]);
        struct model *m = kit_model(options, 3, IDS, 0, 0);
        kit_shake(m, 0.1, 9);
        run(m, want);
        t_ok(fs_join(path, sizeof path, t_tmpdir(), "m.gguf", &e), &e);
        t_ok(export_to(path, m, &e), &e);
        t_ok(model_open(&back, path, NULL, MODEL_INFERENCE, &e), &e);
        run(back, have);
        double far = 0;
        for (int k = 0; k < IDS * VOCAB; k++)
            far = fmax(far, fabs((double)(have[k] - want[k])));
        t_truef(far < 2e-6, "%s: %g", of[i], far);
        t_str(model_config_family(&back->config), model_config_family(&m->config));
        int needs_head = strstr(of[i], "qk_norm=whole") || strstr(of[i], "shared_ffn");
        t_eq(back->config.tied, m->config.tied && !needs_head);
        model_free(m);
        model_free(back);
    }
}

T(what_an_architecture_cannot_store_is_refused)
{
    static const char *const of[][2] = {
        {"model.window=6", "a sliding window"},
        {"model.qk_norm=head model.window=6", "a sliding window"},
        {GEMMA "model.window_layers=0,2 model.attn_cap=1 model.logit_cap=1 model.tied=false",
         "a head of its own"},
        {"model.norm_place=after model.qk_norm=whole model.window=6 model.rope_local=300",
         "other rotary positions"},
        {"model.qk_norm=head model.position=rope_interleaved", "interleaved rotary pairs"},
        {"model.nope_layers=1", "other blocks without positions"},
        {GEMMA "model.window_layers=0,2", "without soft caps"},
        {GEMMA "model.attn_cap=1 model.logit_cap=1 model.attn_scale=0.5",
         "another scale of scores"},
        {"model.qk_norm=head model.attn_bias=true", "biases"},
        {"model.norm_place=both", "norms after the branches"},
        {"model.rope_dims=4 model.rope_scaling=yarn model.rope_low=1 model.rope_high=32",
         "partial rotary"},
        {"model.fused=true model.rope_dims=4 model.head_dim=8", "heads of another width"},
        {"model.attn_bias=qkv model.head_dim=8", "heads of another width"},
        {"model.norm_place=after model.qk_norm=whole model.head_dim=8", "heads of another width"},
        {"model.experts=4 model.experts_norm=false model.shared_ffn=8 model.shared_gate=true "
         "model.head_dim=8",
         "heads of another width"},
        {"model.rope_scaling=longrope model.rope_short=1,1,1 model.rope_long=1,1,1",
         "model.rope_scaling=longrope"},
        {"model.rope_scaling=dynamic", "model.rope_scaling=dynamic"},
        {"model.experts=4 model.experts_norm=false", "no architecture"},
        {"model.experts=4 model.experts_norm=false model.qk_norm=head", "experts_norm=false"},
        {"model.experts=4 model.qk_norm=whole", "experts_norm=true"},
        {"model.experts=4 model.experts_bias=true", "no architecture"},
        {"model.experts=4 model.experts_norm=false model.qk_norm=whole model.expert_ffn=8",
         "norms of queries and keys"},
        {"model.experts=4 model.experts_noop=1 model.qk_norm=head",
         "no-op experts (model.experts_noop=1)"},
        {"model.experts=4 model.qk_norm=head model.dense_layers=0", "dense MLPs in some blocks"},
        {"model.experts=4 model.shared_ffn=8", "no architecture"},
        {"model.experts=4 model.experts_norm=false model.qk_norm=whole model.kv_heads=2",
         "fewer heads of keys"},
        {"model.attn_bias=qkv model.rope_scaling=llama3", "model.rope_scaling=llama3"},
        {"model.rope_scaling=yarn model.rope_low=2 model.rope_high=32", "another ramp of YaRN"},
        {"model.parallel=true", "parallel attention and MLP"},
        {"model.norm=layer model.mlp=gelu", "LayerNorm"},
        {STABLE "model.parallel=true", "LayerNorm"},
        {STABLE "model.tied=true", "a head tied to the embedding"},
        {STABLE "model.rope_scaling=llama3", "model.rope_scaling=llama3"},
        {NEOX "model.mlp=gelu model.attn_bias=false", "attention without biases"},
    };
    for (size_t i = 0; i < DS_LEN(of); i++) {
        char options[512], path[1024];
        struct err e = {0};
        snprintf(options, sizeof options, SHAPE "%s", of[i][0]);
        struct model *m = kit_model(options, 3, IDS, 0, 0);
        t_ok(fs_join(path, sizeof path, t_tmpdir(), "m.gguf", &e), &e);
        int rc = export_to(path, m, &e);
        t_truef(rc == DS_EUSAGE && strstr(e.text, of[i][1]), "%s: %d %s", of[i][0], rc, e.text);
        model_free(m);
    }
}
