/* Adapters exported to and imported from Hugging Face `peft` have the same logits. */
#include "kit.h"

#include <sys/stat.h>
#include <sys/wait.h>

#include "base/fs.h"
#include "base/json.h"
#include "models/load.h"
#include "models/peft.h"

#define HF_GPT2                                                                                    \
    "model.norm=layer model.position=learned model.attn_bias=true model.mlp_bias=true "            \
    "model.mlp=gelu_tanh"

enum { IDS = 24, VOCAB = 32 };

static void library(const char *mode, const char *dir)
{
    char cmd[2048];
    const char *python = getenv("PYTHON");
    snprintf(cmd, sizeof cmd, "'%s' tests/golden/peft_hf.py %s '%s'", python ? python : "python3",
             mode, dir);
    int status = system(cmd);
    int code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (code == 77 || code == 127 || code == 126)
        t_skip("torch, transformers and peft are not installed for %s: adapters are not exchanged "
               "with them",
               python ? python : "python3");
    t_eq(code, 0);
}

static void run(struct model *m, const int32_t *id, real *logits)
{
    struct batch b = {.B = 1, .T = IDS, .id = id};
    struct pass pass = {.kind = PASS_DENSE};
    struct err e = {0};
    t_ok(model_reserve(m, IDS, 0, 0, &e), &e);
    model_forward(m, &b, &pass);
    for (int i = 0; i < IDS; i++)
        model_logits(m, i, logits + (size_t)i * VOCAB);
}

/* DIR/lora over DIR/base against DIR/logits.json. */
static double far_from_model(const char *dir, struct model *m)
{
    char path[1300];
    struct err e = {0};
    struct json *ids = NULL, *want = NULL;
    int32_t id[IDS];
    real logits[IDS * VOCAB];
    double most = 0;
    snprintf(path, sizeof path, "%s/ids.json", dir);
    t_ok(json_read_file(&ids, path, 1 << 20, &e), &e);
    snprintf(path, sizeof path, "%s/logits.json", dir);
    t_ok(json_read_file(&want, path, 1 << 20, &e), &e);
    t_eq(json_len(json_root(ids)), IDS);
    for (int i = 0; i < IDS; i++)
        id[i] = (int32_t)json_int(json_at(json_root(ids), (size_t)i), -1);
    run(m, id, logits);
    for (int i = 0; i < IDS * VOCAB; i++) {
        const struct json_node *row = json_at(json_root(want), (size_t)(i / VOCAB));
        double x = json_num(json_at(row, (size_t)(i % VOCAB)), NAN);
        double far = fabs((double)logits[i] - x);
        most = far <= most ? most : far; /* NaN stays */
    }
    json_free(ids);
    json_free(want);
    return most;
}

static double far_from(const char *dir)
{
    char path[1300];
    struct err e = {0};
    struct model *m = NULL;
    snprintf(path, sizeof path, "%s/lora", dir);
    t_ok(model_open(&m, path, NULL, MODEL_INFERENCE, &e), &e);
    double most = far_from_model(dir, m);
    model_free(m);
    return most;
}

T_SECONDS(their_adapters_compute_the_same_here, 300)
{
    char **names = NULL, path[1100], dir[1024];
    size_t n = 0;
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    library("make", dir);
    t_ok(fs_list(dir, &names, &n, &e), &e);
    t_true(n >= 6);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        double far = far_from(path);
        printf("%s: largest difference %.3g\n", names[i], far);
        t_truef(far <= 1e-4, "%s: %g", names[i], far);
    }
    fs_list_free(names, n);
}

/* Every field of LoraConfig, perturbed: equal logits, or a refusal that names the field. */
static int walk_one(const char *dir, const char *name)
{
    char path[1300], field[64];
    struct err e = {0};
    struct model *m = NULL;
    snprintf(field, sizeof field, "%.*s", (int)strcspn(name, "-"), name);
    snprintf(path, sizeof path, "%s/lora", dir);
    int rc = model_open(&m, path, NULL, MODEL_INFERENCE, &e);
    snprintf(path, sizeof path, "%s/logits.json", dir);
    if (rc < 0) {
        const char *at = strstr(e.text, "adapter_config.json: ");
        printf("%s: refused: %s\n", name, at ? at + 21 : e.text);
        t_truef(strstr(e.text, field) && !strchr(e.text, '\n'), "%s: %s", name, e.text);
        return 0;
    }
    t_truef(fs_exists(path), "%s: opened, but peft cannot load it", name);
    double far = far_from_model(dir, m);
    printf("%s: largest difference %.3g\n", name, far);
    t_truef(far <= 1e-4, "%s: %g", name, far);
    model_free(m);
    return 1;
}

T_SECONDS(every_field_of_their_configuration_is_right_or_refused, 300)
{
    char **names = NULL, path[1100], dir[1024];
    size_t n = 0, opened = 0;
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    library("walk", dir);
    t_ok(fs_list(dir, &names, &n, &e), &e);
    t_true(n >= 60);
    for (size_t i = 0; i < n; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, names[i]);
        opened += (size_t)walk_one(path, names[i]);
    }
    printf("%zu of %zu equal, the others refused\n", opened, n);
    t_true(opened >= 40);
    fs_list_free(names, n);
}

static void write_numbers(const char *path, const int32_t *id, const real *x)
{
    struct str s = {0};
    struct err e = {0};
    for (int i = 0; i < IDS; i++) {
        str_add(&s, i ? ", " : "[");
        if (id)
            str_addf(&s, "%d", (int)id[i]);
        for (int v = 0; x && v < VOCAB; v++)
            str_addf(&s, "%s%.9g%s", v ? ", " : "[", (double)x[i * VOCAB + v],
                     v == VOCAB - 1 ? "]" : "");
    }
    str_add(&s, "]\n");
    t_ok(fs_write_file(path, s.p, s.len, &e), &e);
    str_release(&s);
}

static const char *in(const char *dir, const char *name)
{
    static char path[1300];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return path;
}

static void save(const char *root, const char *name, const char *shape, const char *lora)
{
    char plain[600], options[800], dir[1100];
    struct err e = {0};
    int32_t id[IDS];
    real logits[IDS * VOCAB];
    struct model *m = NULL;
    snprintf(plain, sizeof plain,
             "model.method=dense model.layers=3 model.dim=24 model.heads=4 model.vocab=%d "
             "model.max_seq=40 model.ffn=36 model.init_std=0.2 %s",
             VOCAB, shape);
    snprintf(options, sizeof options, "%s %s", plain, lora);
    snprintf(dir, sizeof dir, "%s/%s", root, name);
    t_eq(mkdir(dir, 0755), 0);
    t_eq(mkdir(in(dir, "base"), 0755), 0);
    t_eq(mkdir(in(dir, "lora"), 0755), 0);
    struct model *base = kit_model(plain, 3, IDS, 0, 0);
    t_ok(model_write_config(base, in(dir, "base/config.json"), &e), &e);
    t_ok(model_write_weights(base, in(dir, "base/model.safetensors"), 0, &e), &e);
    model_free(base);
    t_ok(kit_try(&m, options, 3, MODEL_TRAIN_OWN, &e), &e);
    kit_shake(m, 0.2, 9);
    t_ok(peft_save(m, in(dir, "lora"), "../base", &e), &e);
    for (int i = 0; i < IDS; i++)
        id[i] = (int32_t)((5 * i * i + i + 2) % VOCAB);
    run(m, id, logits);
    write_numbers(in(dir, "ids.json"), id, NULL);
    write_numbers(in(dir, "logits.json"), NULL, logits);
    t_true(far_from(dir) <= 1e-6); /* and here */
    model_free(m);
}

T_SECONDS(our_adapters_compute_the_same_there, 300)
{
    char dir[1000];
    str_copy(dir, sizeof dir, t_tmpdir());
    save(dir, "llama", "model.kv_heads=2 model.tied=false", "lora_r=4 lora_alpha=8");
    save(dir, "llama-all", "model.kv_heads=2", "lora_r=3 lora_targets=q,k,v,o,gate,up,down");
    save(dir, "qwen2", "model.attn_bias=qkv", "lora_r=2 lora_alpha=3 lora_targets=v,down");
    save(dir, "layers", "model.kv_heads=2 model.attn_bias=true",
         "lora_r=2 lora_alpha=3 lora_targets=0+2.v,1.q:3:7,up:4,1-2.down lora_rslora=true");
    save(dir, "dora", "model.attn_bias=qkv",
         "lora_r=2 lora_targets=q,v,0.down:5,up lora_dora=true");
    save(dir, "dora-gpt2", HF_GPT2, "lora_r=2 lora_targets=o,up,down lora_dora=true");
    save(dir, "lora-bias", "model.kv_heads=1 model.attn_bias=true",
         "lora_r=2 lora_targets=v,1.o lora_bias=true");
    save(dir, "bias", "model.attn_bias=true model.mlp_bias=true",
         "lora_r=2 lora_targets=v,down lora_train_bias=all");
    save(dir, "bias-lora", "model.attn_bias=true",
         "lora_r=2 lora_targets=v,1.o lora_train_bias=lora_only lora_bias=true");
    save(dir, "save", "model.tied=false",
         "lora_r=2 lora_targets=v lora_save=norm,lm_head,embed_tokens,1.mlp,input_layernorm");
    save(dir, "save-tied", "model.tied=true", "lora_r=2 lora_targets=v lora_save=embed_tokens");
    save(dir, "save-gpt2", HF_GPT2, "lora_r=2 lora_targets=o,down lora_save=norm,embed_positions");
    save(dir, "gpt2", HF_GPT2, "lora_r=2 lora_targets=o,up,down");
    save(dir, "phi3", "model.fused=true model.kv_heads=2 model.rope_dims=4",
         "lora_r=2 lora_targets=o,down lora_save=norm lora_dora=true");
    library("check", dir);
}
