/* Checkpoints that leave out a frozen base: small, equivalent to complete ones, and refused when
 * the base is missing or another one. */
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "io/checkpoint.h"
#include "io/safetensors.h"
#include "kit.h"
#include "kit_train.h"
#include "models/load.h"
#include "models/peft.h"
#include "training/trainer.h"
#include "unit/gguf_file.h"

enum { STEPS = 4 };

static const char *const tiny[KEYS_MAX] = {
    "model.max_seq=64",
    "data.docs=7",
    "data.val_fraction=0.2",
    "train.batch=3",
    "train.seq=32",
    "train.warmup=1",
    "train.steps=4",
    "train.eval_every=5",
    "train.eval_tokens=64",
    "train.final_tokens=64",
    "train.samples=16",
    "train.time_rounds=1",
    "train.probes=1",
    "train.probe_tokens=16",
    "train.probe_every=4",
    "train.keep=20",
    "train.lr=1e-2",
    "train.checkpoint_every=2",
    NULL,
};

/* Recreates DIR/room; returns "train.init=..." of a base trained there. */
static void make_base(char room[500], char init[700])
{
    const char *more[] = {"model.layers=6",
                          "model.dim=16",
                          "model.heads=2",
                          "model.vocab=300",
                          "data.tokenizer=bytes",
                          "model.method=dense",
                          NULL};
    struct err e = {0};
    char run[600];
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    str_copy(room, 500, t_tmpdir());
    snprintf(run, sizeof run, "%s/base", room);
    t_ok(go(run, more, 0, 0, &e), &e);
    snprintf(init, 700, "train.init=%s", run);
}

static const char *step(const char *room, const char *run, int n)
{
    static char path[4][700];
    static int turn;
    char *p = path[turn++ % 4];
    snprintf(p, sizeof path[0], "%s/%s/checkpoints/step-%08d", room, run, n);
    return p;
}

static int has(const char *dir, const char *name)
{
    char path[900];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    return fs_exists(path);
}

static struct model *opened(const char *dir)
{
    struct model *m = NULL;
    struct err e = {0};
    t_ok(model_open(&m, dir, NULL, MODEL_INFERENCE, &e), &e);
    return m;
}

static void same_models(const char *a, const char *b)
{
    struct model *x = opened(a), *y = opened(b);
    kit_same_params(x, y);
    model_free(x);
    model_free(y);
}

static void same_file(const char *a, const char *b, const char *name)
{
    char path[900], x[65], y[65];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", a, name);
    t_ok(sha256_file(path, x, &e), &e);
    snprintf(path, sizeof path, "%s/%s", b, name);
    t_ok(sha256_file(path, y, &e), &e);
    t_truef(strcmp(x, y) == 0, "%s differs", name);
}

/* Saved with and without its base it is the same model, and resumes as the same run. */
static void compare(const char *room, const char *const *keys, int has_router, int has_lora)
{
    const char *all[KEYS_MAX] = {0}, *own[KEYS_MAX] = {0};
    char run[3][600];
    struct err e = {0};
    size_t n = 0;
    for (; keys[n]; n++)
        all[n] = own[n] = keys[n];
    all[n] = "train.save=all";
    own[n] = "train.save=own";
    for (int i = 0; i < 3; i++)
        snprintf(run[i], sizeof run[i], "%s/run-%d", room, i);
    t_ok(go(run[0], all, 0, 0, &e), &e);
    t_ok(go(run[1], own, 0, 0, &e), &e);
    t_eq(go(run[2], own, 0, 3, &e), DS_ESTOP);
    t_ok(go(run[2], NULL, 1, 0, &e), &e);
    const char *a = step(room, "run-0", STEPS), *b = step(room, "run-1", STEPS),
               *c = step(room, "run-2", STEPS);
    t_true(has(a, "model.safetensors") && !has(b, "model.safetensors"));
    t_eq(has(b, "own.safetensors"), has_router);
    t_eq(has(b, "adapter_model.safetensors"), has_lora);
    t_eq(has(b, "adapter_config.json"), has_lora);
    t_ok(checkpoint_verify(b, &e), &e);
    same_models(a, b);
    same_file(a, b, "optimizer.safetensors");
    same_file(b, c, "optimizer.safetensors");
    if (has_router)
        same_file(b, c, "own.safetensors");
    if (has_lora)
        same_file(b, c, "adapter_model.safetensors");
    same_models(b, c);
    for (int i = 0; i < 3; i++)
        t_ok(fs_remove_tree(run[i], &e), &e);
}

T(a_checkpoint_without_its_base_equals_a_complete_one)
{
    char room[500], init[700];
    make_base(room, init);
    compare(room,
            (const char *[]){init, "model.method=dense", "train.freeze=base", "lora_r=2",
                             "lora_dropout=0.1", "lora_targets=q,v,down", NULL},
            0, 1);
    compare(room,
            (const char *[]){init, "model.method=edp", "edp.threshold=learned", "train.freeze=base",
                             NULL},
            1, 0);
    compare(room, (const char *[]){init, "model.method=dlr", "train.freeze=base", "lora_r=2", NULL},
            1, 1);
}

T(a_run_starts_from_an_adapter_checkpoint_and_keeps_layer_order)
{
    char room[500], init[700], again[700], run[600];
    struct err e = {0};
    make_base(room, init);
    const char *first[] = {init,
                           "model.method=edp",
                           "edp.threshold=learned",
                           "lora_r=2",
                           "train.save=own",
                           "train.freeze=base",
                           "train.lr=3e-2",
                           NULL};
    snprintf(run, sizeof run, "%s/one", room);
    t_ok(go(run, first, 0, 0, &e), &e);
    snprintf(again, sizeof again, "train.init=%s", run);
    const char *second[] = {
        again, "model.method=edp", "train.freeze=base", "train.save=own", "train.lr=1e-9", NULL};
    snprintf(run, sizeof run, "%s/two", room);
    t_ok(go(run, second, 0, 0, &e), &e);
    t_truef(strstr(told, "/base/checkpoints/") && strstr(told, "; ") && !strstr(told, "new") &&
                !strstr(told, " ignored"),
            "%s", told);
    struct model *a = opened(step(room, "one", STEPS)), *b = opened(step(room, "two", STEPS));
    for (int i = 0; i < a->params.n; i++) {
        const struct param *p = &a->params.p[i];
        if (strncmp(p->name, "edp.", 4) == 0 && strcmp(p->name, "edp.score.weight") != 0)
            continue; /* thresholds and statistics have their own updates, whatever train.lr is */
        real *x = kit_values(a, i), *y = kit_values(b, i);
        t_str(p->name, b->params.p[i].name);
        for (size_t k = 0; k < p->n; k++)
            t_truef(fabs((double)x[k] - (double)y[k]) <= 1e-6 * fabs((double)x[k]) + 1e-7, "%s",
                    p->name);
        free(x);
        free(y);
    }
    model_free(a);
    model_free(b);
    /* both refer to the first base, not to each other */
    t_ok(fs_remove_tree(step(room, "one", STEPS), &e), &e);
    model_free(opened(step(room, "two", STEPS)));
    /* once the base is trained, it is written again */
    const char *third[] = {again, "model.method=edp", NULL};
    snprintf(again, sizeof again, "train.init=%s/two", room);
    snprintf(run, sizeof run, "%s/three", room);
    t_ok(go(run, third, 0, 0, &e), &e);
    t_true(has(step(room, "three", STEPS), "model.safetensors"));
    model_free(opened(step(room, "three", STEPS)));
}

static void open_fails(const char *dir, int code, const char *part)
{
    struct model *m = NULL;
    struct err e = {0};
    t_fails(model_open(&m, dir, NULL, MODEL_INFERENCE, &e), &e, code, part);
    t_true(!strchr(e.text, '\n'));
}

T(a_moved_or_changed_base_is_refused_in_one_line)
{
    char room[500], init[700], run[600], moved[600], path[900];
    struct err e = {0};
    make_base(room, init);
    const char *keys[] = {init,       "model.method=dense", "train.freeze=base",
                          "lora_r=2", "train.save=own",     NULL};
    snprintf(run, sizeof run, "%s/run", room);
    t_ok(go(run, keys, 0, 0, &e), &e);
    /* both are moved together, so the relative path still holds */
    snprintf(moved, sizeof moved, "%s/elsewhere", room);
    mkdir(moved, 0755);
    snprintf(path, sizeof path, "%s/elsewhere/run", room);
    t_eq(rename(run, path), 0);
    model_free(opened(step(room, "elsewhere/run", STEPS))); /* the absolute path does */
    snprintf(run, sizeof run, "%s/base", room);
    snprintf(path, sizeof path, "%s/elsewhere/base", room);
    t_eq(rename(run, path), 0);
    model_free(opened(step(room, "elsewhere/run", STEPS)));
    snprintf(run, sizeof run, "%s/gone", room);
    t_eq(rename(path, run), 0);
    open_fails(step(room, "elsewhere/run", STEPS), DS_ENOTFOUND,
               "; set DEPTHSCOPE_BASE=PATH to its location");
    setenv("DEPTHSCOPE_BASE", run, 1);
    model_free(opened(step(room, "elsewhere/run", STEPS)));
    /* another step of the same run has other weights in files of the same size */
    setenv("DEPTHSCOPE_BASE", step(room, "gone", 2), 1);
    open_fails(step(room, "elsewhere/run", STEPS), DS_EFORMAT,
               "is not the one it was trained on: fingerprint ");
    setenv("DEPTHSCOPE_BASE", step(room, "elsewhere/run", STEPS), 1);
    open_fails(step(room, "elsewhere/run", STEPS), DS_EFORMAT, "is itself stored without its base");
    unsetenv("DEPTHSCOPE_BASE");
}

static void refused(const char *const *more, const char *part)
{
    struct train_config c;
    struct err e = {0};
    t_fails(make_config(&c, more, &e), &e, DS_EUSAGE, part);
    t_true(!strchr(e.text, '\n'));
}

T(a_model_without_a_base_saves_everything)
{
    char room[500], init[700], run[600];
    struct err e = {0};
    refused((const char *[]){"train.save=own", NULL}, "train.save=own needs a frozen base");
    refused((const char *[]){"train.save=own", "train.freeze=base", "lora_r=2", NULL},
            "train.save=own needs a base model; set train.init=MODEL");
    make_base(room, init);
    const char *keys[] = {init, "model.method=dense", "train.freeze=base", "lora_r=2", NULL};
    snprintf(run, sizeof run, "%s/run", room);
    t_ok(go(run, keys, 0, 0, &e), &e); /* auto saves all, as the base is small */
    t_true(has(step(room, "run", STEPS), "model.safetensors"));
}

T(peft_adapters_continue_training_over_their_base)
{
    char room[500], init[700], run[600], lora[600];
    struct err e = {0};
    make_base(room, init);
    snprintf(lora, sizeof lora, "%s/lora", room);
    mkdir(lora, 0755);
    const char *keys[] = {init,       "model.method=dense", "train.freeze=base",
                          "lora_r=2", "lora_alpha=6",       "lora_targets=q,up",
                          NULL};
    snprintf(run, sizeof run, "%s/run", room);
    t_ok(go(run, keys, 0, 0, &e), &e);
    struct model *m = opened(step(room, "run", STEPS));
    t_ok(peft_save(m, lora, init + strlen("train.init="), &e), &e);
    model_free(m);
    same_models(lora, step(room, "run", STEPS));
    snprintf(init, sizeof init, "train.init=%s", lora);
    const char *on[] = {
        init, "model.method=dense", "train.freeze=base", "train.save=own", "train.lr=1e-9", NULL};
    snprintf(run, sizeof run, "%s/on", room);
    t_ok(go(run, on, 0, 0, &e), &e);
    m = opened(step(room, "on", STEPS));
    t_eq(m->config.lora_r, 2);
    t_near(m->config.lora_alpha, 6, 0);
    t_str(m->config.lora_targets, "q,up");
    struct model *was = opened(lora);
    for (int i = 0; i < m->params.n; i++)
        if (i >= m->n_base)
            t_near(m->params.p[i].value[0], was->params.p[i].value[0], 1e-6);
    model_free(was);
    model_free(m);
}

/* ---- over a quantised file ---- */

static void add_blocks(struct gguf_file *f, const char *name, uint64_t rows, uint64_t cols)
{
    unsigned char *p = gf_blocks(GGUF_T_Q8_0, (size_t)(rows * cols / 32), rows + cols);
    gf_tensor(f, name, GGUF_T_Q8_0, rows, cols, p, (size_t)(rows * cols / 32 * 34));
    free(p);
}

/* A byte-level model with random quantised blocks as weights; returns its path. */
static const char *random_gguf(int layers)
{
    static const struct {
        const char *name;
        int rows, cols;
    } matrix[] = {{"attn_q", 32, 32},      {"attn_k", 32, 32},   {"attn_v", 32, 32},
                  {"attn_output", 32, 32}, {"ffn_gate", 64, 32}, {"ffn_up", 64, 32},
                  {"ffn_down", 32, 64}};
    struct gguf_file f = {0};
    float ones[32];
    char name[64];
    for (int i = 0; i < 32; i++)
        ones[i] = 1;
    gf_string(&f, "general.architecture", "llama");
    gf_u32(&f, "llama.block_count", (uint32_t)layers);
    gf_u32(&f, "llama.embedding_length", 32);
    gf_u32(&f, "llama.feed_forward_length", 64);
    gf_u32(&f, "llama.attention.head_count", 2);
    gf_u32(&f, "llama.context_length", 64);
    gf_f32(&f, "llama.attention.layer_norm_rms_epsilon", 1e-5F);
    add_blocks(&f, "token_embd.weight", 257, 32);
    gf_tensor(&f, "output_norm.weight", GGUF_T_F32, 32, 0, ones, sizeof ones);
    for (int l = 0; l < layers; l++) {
        for (int k = 0; k < 2; k++) {
            snprintf(name, sizeof name, "blk.%d.%s_norm.weight", l, k ? "ffn" : "attn");
            gf_tensor(&f, name, GGUF_T_F32, 32, 0, ones, sizeof ones);
        }
        for (size_t i = 0; i < DS_LEN(matrix); i++) {
            snprintf(name, sizeof name, "blk.%d.%s.weight", l, matrix[i].name);
            add_blocks(&f, name, (uint64_t)matrix[i].rows, (uint64_t)matrix[i].cols);
        }
    }
    return gf_write(&f);
}

T(checkpoints_over_a_quantised_file_are_small_and_resume)
{
    char room[500], init[700], run[2][600], lora[600];
    struct err e = {0};
    str_copy(room, sizeof room, t_tmpdir());
    const char *file = random_gguf(2);
    snprintf(init, sizeof init, "train.init=%s", file);
    const char *keys[] = {init,       "model.method=dense", "train.freeze=base",
                          "lora_r=2", "train.lr=1e-3",      "data.tokenizer=bytes",
                          NULL};
    for (int i = 0; i < 2; i++)
        snprintf(run[i], sizeof run[i], "%s/run-%d", room, i);
    t_ok(go(run[0], keys, 0, 0, &e), &e);
    t_eq(go(run[1], keys, 0, 3, &e), DS_ESTOP);
    t_ok(go(run[1], NULL, 1, 0, &e), &e);
    const char *a = step(room, "run-0", STEPS), *b = step(room, "run-1", STEPS);
    t_true(!has(a, "model.safetensors") && has(a, "adapter_model.safetensors"));
    same_file(a, b, "adapter_model.safetensors");
    same_file(a, b, "optimizer.safetensors");
    same_models(a, b);
    /* the adapters alone, over the file */
    struct model *m = opened(a);
    snprintf(lora, sizeof lora, "%s/lora", room);
    mkdir(lora, 0755);
    t_ok(peft_save(m, lora, file, &e), &e);
    same_models(a, lora);
    model_free(m);
    /* a file that was replaced by another */
    struct str bytes = {0};
    t_ok(fs_read_file(&bytes, file, 1 << 24, &e), &e);
    bytes.p[bytes.len - 5] = (char)(bytes.p[bytes.len - 5] ^ 1);
    t_ok(fs_write_file(file, bytes.p, bytes.len, &e), &e);
    open_fails(a, DS_EFORMAT, "is not the one it was trained on");
    t_fails(go(run[1], NULL, 1, 0, &e), &e, DS_EFORMAT, "is not the one it was trained on");
    t_ok(fs_write_file(file, bytes.p, bytes.len - 64, &e), &e);
    open_fails(a, DS_EFORMAT, "x.gguf");
    str_release(&bytes);
}
