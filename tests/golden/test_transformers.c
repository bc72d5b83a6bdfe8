/* Models exported to and imported from Hugging Face `transformers` have the same logits. */
#include "kit.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/json.h"
#include "models/load.h"

enum { IDS = 24, VOCAB = 32 };

static void library(const char *mode, const char *dir)
{
    char cmd[2048];
    const char *python = getenv("PYTHON");
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/transformers_hf.py %s '%s'",
             python ? python : "python3", mode, dir);
    int status = system(cmd);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127 || code == 126)
        t_skip(
            "torch and transformers are not installed for %s: models are not exchanged with them",
            python ? python : "python3");
    t_eq(code, 0);
}

static void run(struct model *m, const int32_t *id, int n, real *logits)
{
    struct batch b = {.B = 1, .T = n, .id = id};
    struct pass pass = {.kind = PASS_DENSE};
    struct err e = {0};
    t_ok(model_reserve(m, n, 0, 0, &e), &e);
    model_forward(m, &b, &pass);
    for (int i = 0; i < n; i++)
        model_logits(m, i, logits + (size_t)i * VOCAB);
}

static void same_logits(const char *dir)
{
    char path[1100];
    struct err e = {0};
    struct model *m = NULL;
    struct json *ids = NULL, *want = NULL;
    int32_t id[IDS];
    real logits[IDS * VOCAB];
    t_ok(model_open(&m, dir, NULL, MODEL_INFERENCE, &e), &e);
    snprintf(path, sizeof path, "%s/ids.json", dir);
    t_ok(json_read_file(&ids, path, 1 << 20, &e), &e);
    snprintf(path, sizeof path, "%s/logits.json", dir);
    t_ok(json_read_file(&want, path, 1 << 20, &e), &e);
    t_eq(json_len(json_root(ids)), IDS);
    for (int i = 0; i < IDS; i++)
        id[i] = (int32_t)json_int(json_at(json_root(ids), (size_t)i), -1);
    run(m, id, IDS, logits);
    for (int i = 0; i < IDS * VOCAB; i++) {
        const struct json_node *row = json_at(json_root(want), (size_t)(i / VOCAB));
        double x = json_num(json_at(row, (size_t)(i % VOCAB)), NAN);
        t_truef(fabs((double)logits[i] - x) <= 1e-4, "%s: token %d, id %d: %g, theirs %g", dir,
                i / VOCAB, i % VOCAB, (double)logits[i], x);
    }
    json_free(ids);
    json_free(want);
    model_free(m);
}

T_SECONDS(their_models_compute_the_same_here, 300)
{
    char **names = NULL, path[1100], dir[1024];
    size_t n = 0;
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    library("make", dir);
    t_ok(fs_list(dir, &names, &n, &e), &e);
    t_true(n >= 13);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        same_logits(path);
    }
    fs_list_free(names, n);
}

/* Differs from what the library computes, silently. */
static int is_wrong(const char *dir)
{
    char path[1200];
    struct err e = {0};
    struct model *m = NULL;
    struct json *ids = NULL, *want = NULL;
    int32_t id[IDS];
    real logits[IDS * VOCAB];
    int wrong = 0;
    if (model_open(&m, dir, NULL, MODEL_INFERENCE, &e) < 0) {
        t_truef(e.text[0] && !strchr(e.text, '\n'), "%s: %s", dir, e.text);
        return 0;
    }
    snprintf(path, sizeof path, "%s/ids.json", dir);
    t_ok(json_read_file(&ids, path, 1 << 20, &e), &e);
    for (int i = 0; i < IDS; i++)
        id[i] = (int32_t)json_int(json_at(json_root(ids), (size_t)i), -1);
    snprintf(path, sizeof path, "%s/logits.json", dir);
    if (fs_exists(path)) { /* else the library refused: there is nothing to compare */
        t_ok(json_read_file(&want, path, 1 << 20, &e), &e);
        run(m, id, IDS, logits);
        for (int i = 0; i < IDS * VOCAB && !wrong; i++) {
            const struct json_node *row = json_at(json_root(want), (size_t)(i / VOCAB));
            double x = json_num(json_at(row, (size_t)(i % VOCAB)), NAN);
            wrong = !(fabs((double)logits[i] - x) <= 1e-4);
        }
    }
    json_free(ids);
    json_free(want);
    model_free(m);
    return wrong;
}

T_SECONDS(a_changed_configuration_is_computed_or_refused, 900)
{
    char **names = NULL, path[1100], dir[1024];
    size_t n = 0;
    struct str wrong = {0};
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    library("walk", dir);
    t_ok(fs_list(dir, &names, &n, &e), &e);
    t_true(n >= 200);
    for (size_t i = 0; i < n; i++) {
        if (names[i][0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        if (is_wrong(path))
            str_addf(&wrong, " %s", names[i]);
    }
    fs_list_free(names, n);
    t_truef(wrong.len == 0, "other logits:%s", str_text(&wrong));
    str_release(&wrong);
}

static void write_numbers(const char *path, const int32_t *id, const real *x)
{
    struct str s = {0};
    struct err e = {0};
    for (int i = 0; i < IDS; i++) {
        if (id)
            str_addf(&s, "%s%d", i ? ", " : "[", (int)id[i]);
        for (int v = 0; x && v < VOCAB; v++)
            str_addf(&s, "%s%s%.9g%s",
                     v   ? ", "
                     : i ? ",\n["
                         : "[[",
                     "", (double)x[(size_t)i * VOCAB + (size_t)v], v == VOCAB - 1 ? "]" : "");
    }
    str_add(&s, "]\n");
    t_ok(fs_write_file(path, s.p, s.len, &e), &e);
    str_release(&s);
}

static void save(const char *root, const char *name, const char *shape)
{
    char options[512], dir[1024], path[1100];
    struct err e = {0};
    int32_t id[IDS];
    real logits[IDS * VOCAB];
    snprintf(options, sizeof options,
             "model.method=dense model.layers=3 model.dim=24 model.heads=4 model.vocab=%d "
             "model.max_seq=40 model.ffn=36 model.init_std=0.2 %s",
             VOCAB, shape);
    struct model *m = kit_model(options, 3, IDS, 1, 0);
    kit_shake(m, 0.1, 9);
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    t_eq(mkdir(dir, 0755), 0);
    snprintf(path, sizeof path, "%s/config.json", dir);
    t_ok(model_write_config(m, path, &e), &e);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(model_write_weights(m, path, 0, &e), &e);
    for (int i = 0; i < IDS; i++)
        id[i] = (int32_t)((5 * i * i + i + 2) % VOCAB);
    run(m, id, IDS, logits);
    snprintf(path, sizeof path, "%s/ids.json", dir);
    write_numbers(path, id, NULL);
    snprintf(path, sizeof path, "%s/logits.json", dir);
    write_numbers(path, NULL, logits);
    same_logits(dir); /* and here */
    model_free(m);
}

#define GPT2                                                                                       \
    "model.norm=layer model.position=learned model.attn_bias=true model.mlp_bias=true model.mlp="

#define GEMMA                                                                                      \
    "model.norm_place=both model.norm_offset=true model.mlp=geglu "                                \
    "model.embed_scale=4.898979485566356 "

#define NEOX                                                                                       \
    "model.norm=layer model.mlp_bias=true model.attn_bias=true model.parallel=true "               \
    "model.tied=false model.mlp="

#define EXPERTS "model.experts=4 model.expert_ffn=36"

T_SECONDS(our_models_compute_the_same_there, 300)
{
    char dir[1000];
    str_copy(dir, sizeof dir, t_tmpdir());
    save(dir, "llama", "model.kv_heads=2 model.tied=false");
    save(dir, "llama-wide", "model.head_dim=8 model.rope_theta=5e5 model.norm_eps=1e-6");
    save(dir, "llama-biases", "model.attn_bias=true model.mlp_bias=true");
    save(dir, "llama3",
         "model.rope_scaling=llama3 model.rope_factor=4 model.rope_original=16 model.kv_heads=1");
    save(dir, "qwen2", "model.attn_bias=qkv model.kv_heads=2");
    save(dir, "qwen2-untied", "model.attn_bias=qkv model.tied=false");
    save(dir, "llama-linear", "model.rope_scaling=linear model.rope_factor=3");
    save(dir, "mistral", "model.kv_heads=2 model.window=6");
    save(dir, "qwen2-window", "model.attn_bias=qkv model.window=6 model.window_layers=1-2");
    save(dir, "qwen3", "model.qk_norm=head model.kv_heads=2 model.head_dim=8 model.tied=false");
    save(dir, "qwen3-window",
         "model.qk_norm=head model.window=5 model.window_layers=0,2 model.rope_scaling=yarn "
         "model.rope_factor=4 model.rope_original=16 model.rope_low=1 model.rope_high=32");
    save(dir, "gemma2",
         GEMMA "model.attn_cap=1.5 model.logit_cap=2 model.window=6 model.window_layers=0,2 "
               "model.attn_scale=0.25");
    save(dir, "gemma3",
         GEMMA "model.qk_norm=head model.window=6 model.window_layers=0-1 model.rope_local=300 "
               "model.kv_heads=2 model.head_dim=8");
    save(dir, "olmo2", "model.norm_place=after model.qk_norm=whole model.tied=false");
    save(dir, "olmo3",
         "model.norm_place=after model.qk_norm=whole model.window=6 model.window_layers=0-1 "
         "model.rope_local=10000");
    save(dir, "olmo3-yarn",
         "model.norm_place=after model.qk_norm=whole model.window=5 model.rope_local=300 "
         "model.window_layers=1 model.rope_scaling=yarn model.rope_factor=4 "
         "model.rope_original=16 model.rope_low=1 model.rope_high=32");
    save(dir, "gemma",
         "model.norm_offset=true model.mlp=geglu model.embed_scale=4.898979485566356 "
         "model.kv_heads=2 model.head_dim=8");
    save(dir, "smollm3", "model.nope_layers=1 model.kv_heads=2 model.mlp_bias=true");
    save(dir, "phi3", "model.fused=true model.kv_heads=2 model.window=7 model.tied=false");
    save(dir, "phi3-partial", "model.rope_dims=4 model.fused=true");
    save(dir, "phi3-long",
         "model.rope_dims=4 model.rope_scaling=longrope model.rope_short=1,1.5 "
         "model.rope_long=1.25,6 model.rope_original=16 model.rope_factor=2.5");
    save(dir, "llama-longrope",
         "model.rope_scaling=longrope model.rope_short=1,1.5,2 model.rope_long=1.25,3,6 "
         "model.rope_original=32 model.rope_attention=1.5");
    save(dir, "llama-dynamic", "model.rope_scaling=dynamic model.rope_factor=3");
    save(dir, "gpt-neox", NEOX "gelu model.rope_dims=2");
    save(dir, "gpt-neox-serial",
         NEOX "gelu_tanh model.parallel=false model.attn_bias=false model.tied=true");
    save(dir, "stablelm", "model.norm=layer model.kv_heads=2 model.rope_dims=4");
    save(dir, "stablelm-parallel",
         "model.norm=layer model.parallel=shared model.attn_bias=qkv model.tied=false");
    save(dir, "gpt2", GPT2 "gelu_tanh");
    save(dir, "gpt2-untied", GPT2 "gelu model.tied=false");
    save(dir, "mixtral", "model.kv_heads=2 " EXPERTS);
    save(dir, "mixtral-untied", "model.window=9 model.tied=false model.experts_used=1 " EXPERTS);
    save(dir, "qwen2-moe",
         "model.attn_bias=qkv model.shared_ffn=20 model.shared_gate=true model.experts_norm=false "
         "model.experts_used=3 " EXPERTS);
    save(dir, "qwen3-moe", "model.qk_norm=head model.ffn=40 model.tied=false " EXPERTS);
    save(dir, "qwen3-moe-dense", "model.qk_norm=head model.ffn=40 model.dense_layers=0,2 " EXPERTS);
    save(dir, "olmoe", "model.qk_norm=whole model.experts_norm=false " EXPERTS);
    library("check", dir);
}
