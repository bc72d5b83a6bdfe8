/* Adapters in PEFT's format: saved, opened over their base, merged with it, and everything that is refused by name. */
#include <sys/stat.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "io/st_set.h"
#include "kit.h"
#include "models/export.h"
#include "models/load.h"
#include "models/peft.h"

#define SHAPE                                                                                      \
    "model.method=dense model.layers=2 model.dim=8 model.heads=2 model.kv_heads=1 model.vocab=16 " \
    "model.ffn=12 "
#define GPT2                                                                                       \
    "model.method=dense model.layers=2 model.dim=8 model.heads=2 model.vocab=16 model.ffn=12 "     \
    "model.norm=layer model.position=learned model.attn_bias=true model.mlp_bias=true "            \
    "model.mlp=gelu_tanh model.max_seq=12 "

enum { IDS = 10, VOCAB = 16, SEED = 5 };

static const char *in(const char *dir, const char *name)
{
    static char path[6][1200];
    static int turn;
    char *p = path[turn++ % 6];
    snprintf(p, sizeof path[0], "%s/%s", dir, name);
    return p;
}

static void put(const char *dir, const char *name, const char *text)
{
    struct err e = {0};
    t_ok(fs_write_file(in(dir, name), text, strlen(text), &e), &e);
}

static void logits(struct model *m, real out[IDS * VOCAB], int adapters_off)
{
    int32_t id[IDS];
    struct batch b = {.B = 1, .T = IDS, .id = id};
    struct pass pass = {.kind = PASS_DENSE, .adapters_off = adapters_off};
    struct err e = {0};
    for (int i = 0; i < IDS; i++)
        id[i] = (5 * i * i + i + 2) % VOCAB;
    t_ok(model_reserve(m, IDS, 0, 0, &e), &e);
    model_forward(m, &b, &pass);
    for (int i = 0; i < IDS; i++)
        model_logits(m, i, out + i * VOCAB);
}

static double farthest(const real *a, const real *b)
{
    double most = 0;
    for (int i = 0; i < IDS * VOCAB; i++)
        most = fmax(most, fabs((double)a[i] - (double)b[i]));
    return most;
}

/* The model with adapters that were trained a little; its base alone is written to DIR/base. */
static struct model *adapted(const char *shape, const char *lora, const char *dir)
{
    char all[700];
    struct err e = {0};
    struct model *base = kit_model(shape, SEED, IDS, 0, 0);
    mkdir(in(dir, "base"), 0755);
    mkdir(in(dir, "lora"), 0755);
    t_ok(model_write_config(base, in(dir, "base/config.json"), &e), &e);
    t_ok(model_write_weights(base, in(dir, "base/model.safetensors"), 0, &e), &e);
    model_free(base);
    snprintf(all, sizeof all, "%s %s", shape, lora);
    struct model *m = NULL;
    t_ok(kit_try(&m, all, SEED, MODEL_TRAIN_OWN, &e), &e);
    kit_shake(m, 0.3, 11);
    return m;
}

static struct model *opened(const char *dir)
{
    struct err e = {0};
    struct model *m = NULL;
    t_ok(model_open(&m, dir, NULL, MODEL_INFERENCE, &e), &e);
    return m;
}

static void back_and_forth(const char *shape, const char *lora)
{
    struct err e = {0};
    char dir[1000], found[1100];
    real a[IDS * VOCAB], b[IDS * VOCAB];
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(shape, lora, dir);
    t_ok(peft_save(m, in(dir, "lora"), "../base", &e), &e);
    t_true(peft_is_dir(in(dir, "lora")) && !peft_is_dir(in(dir, "base")));
    t_ok(model_locate(in(dir, "lora"), found, sizeof found, &e), &e);
    struct model *back = opened(found);
    kit_same_params(m, back);
    logits(m, a, 0);
    logits(back, b, 0);
    t_true(kit_same(a, b, IDS * VOCAB));
    logits(back, b, 1);
    t_truef(farthest(a, b) > 1e-3, "%s: the adapters change nothing", lora);
    model_free(back);
    model_free(m);
}

T(adapters_are_saved_and_opened_over_their_base_bit_for_bit)
{
    back_and_forth(SHAPE, "lora_r=2 lora_alpha=8 lora_dropout=0.1");
    back_and_forth(SHAPE "model.attn_bias=qkv ", "lora_r=3 lora_targets=q,k,v,o,gate,up,down");
    back_and_forth(SHAPE "model.norm=layer ", "lora_r=1 lora_targets=gate");
    back_and_forth(GPT2, "lora_r=2 lora_alpha=3 lora_targets=o,up,down");
    back_and_forth(SHAPE, "lora_r=2 lora_targets=0.q,1.v:1:3,up:3 lora_rslora=true");
    back_and_forth(SHAPE, "lora_r=2 lora_targets=q,v,down lora_dora=true");
    back_and_forth(SHAPE, "lora_r=40 lora_targets=q,v:5,down"); /* more than either side */
    back_and_forth(SHAPE, "lora_r=2 lora_targets=q,1.down lora_bias=true");
    back_and_forth(SHAPE "model.attn_bias=true ",
                   "lora_r=2 lora_targets=q,v lora_train_bias=all lora_save=norm,1.mlp");
    back_and_forth(SHAPE "model.attn_bias=true model.tied=false ",
                   "lora_r=2 lora_targets=1.v lora_train_bias=lora_only lora_bias=true "
                   "lora_save=lm_head,input_layernorm");
    back_and_forth(GPT2, "lora_r=2 lora_targets=o,up lora_dora=true lora_save=norm");
}

/* PEFT sets no limit to what training makes of it. */
T(training_starts_from_a_negative_magnitude_as_from_any_other)
{
    static const char lora[] = "lora_r=2 lora_targets=q,v lora_dora=true";
    struct err e = {0};
    struct str note = {0};
    char dir[1000], all[700];
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, lora, dir), *next = NULL;
    for (int i = 0; i < m->adapters; i++)
        m->params.p[m->adapter[i].magnitude].value[0] = (real)-0.5;
    t_ok(peft_save(m, in(dir, "lora"), "../base", &e), &e);
    snprintf(all, sizeof all, "%s %s", SHAPE, lora);
    t_ok(kit_try(&next, all, SEED + 1, MODEL_TRAIN_OWN, &e), &e);
    t_ok(model_start_from(next, in(dir, "lora"), &note, &e), &e);
    kit_same_params(m, next);
    str_release(&note);
    model_free(next);
    model_free(m);
}

static void merged_is_equal(const char *shape, const char *lora)
{
    struct err e = {0};
    real a[IDS * VOCAB], b[IDS * VOCAB];
    struct model *m = adapted(shape, lora, t_tmpdir()), *merged = NULL;
    t_ok(kit_try(&merged, shape, SEED + 1, MODEL_INFERENCE, &e), &e);
    for (int i = 0; i < m->n_base; i++) {
        struct param *p = &merged->params.p[i];
        size_t rows = (size_t)p->shape[0], half = rows / 2, columns = p->n / rows;
        t_str(p->name, m->params.p[i].name);
        model_values_merged(m, i, half, rows - half, p->value + half * columns);
        model_values_merged(m, i, 0, half, p->value);
    }
    params_changed(&merged->params);
    logits(m, a, 0);
    logits(merged, b, 0);
    t_truef(farthest(a, b) < 2e-6, "%g", farthest(a, b));
    logits(m, b, 1);
    t_true(farthest(a, b) > 1e-3);
    model_free(merged);
    model_free(m);
}

T(the_merged_model_computes_what_the_adapted_one_does)
{
    merged_is_equal(SHAPE, "lora_r=2 lora_targets=q,k,v,o,gate,up,down");
    merged_is_equal(SHAPE, "lora_r=2 lora_targets=q,k,v,o,gate,up,down lora_dora=true");
    merged_is_equal(SHAPE, "lora_r=40 lora_targets=q,v,up");
    merged_is_equal(SHAPE "model.attn_bias=true ",
                    "lora_r=2 lora_targets=0.q:3,1.v lora_bias=true lora_rslora=true");
}

T(a_bias_cannot_be_merged_into_a_matrix_without_one)
{
    struct err e = {0};
    struct model *m = adapted(SHAPE, "lora_r=2 lora_targets=v lora_bias=true", t_tmpdir());
    t_fails(adapters_check_merge(m, &e), &e, DS_EUSAGE,
            "self_attn.v_proj.weight: cannot be merged: its adapter has a bias");
    model_free(m);
}

T(a_merged_model_is_written_without_its_adapters)
{
    static const char lora[] = "lora_r=2 lora_targets=q,k,v,o,gate,up,down";
    char dir[1000];
    struct err e = {0};
    struct export_result r;
    real a[IDS * VOCAB], b[IDS * VOCAB];
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, lora, dir);
    struct export_source s = {.m = m, .base_only = 1, .is_merged = 1};
    struct export_options o = {.type = GGUF_T_F32, .shard_bytes = 1 << 30};
    mkdir(in(dir, "merged"), 0755);
    t_ok(export_hf(&s, &o, in(dir, "merged"), &r, &e), &e);
    struct model *back = opened(in(dir, "merged"));
    t_eq(back->adapters, 0);
    logits(m, a, 0);
    logits(back, b, 0);
    t_truef(farthest(a, b) < 2e-6, "%g", farthest(a, b));
    model_free(back);
    model_free(m);
}

T(a_llama2c_file_is_a_base_like_any_other)
{
    char dir[1000];
    struct err e = {0};
    struct export_result r;
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, "lora_r=2 lora_targets=q,v,down", dir);
    struct export_source s = {.m = m, .base_only = 1};
    struct export_options o = {.type = GGUF_T_F32};
    t_ok(export_llama2c(&s, &o, in(dir, "base.bin"), &r, &e), &e);
    t_ok(peft_save(m, in(dir, "lora"), "../base.bin", &e), &e);
    struct model *back = opened(in(dir, "lora"));
    real a[IDS * VOCAB], b[IDS * VOCAB];
    logits(m, a, 0);
    logits(back, b, 0);
    t_truef(farthest(a, b) < 2e-6, "%g", farthest(a, b));
    model_free(back);
    model_free(m);
}

/* ---- third-party directories ---- */

#define HEAD "{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"../base\", "
#define NUMBERS "\"r\": 2, \"lora_alpha\": 8, "
#define ALL NUMBERS "\"target_modules\": [\"q_proj\", \"v_proj\"]"

/* Reads only the adapters' configuration. */
static int parse(const char *dir, const char *text, struct model_config *c, struct err *e)
{
    char base[1100];
    struct config route = {0};
    put(dir, "lora/adapter_config.json", text);
    *c = (struct model_config){0};
    int rc = peft_base(in(dir, "lora"), base, sizeof base, e);
    if (rc == 0)
        rc = model_config_from_json(c, &route, in(base, "config.json"), e);
    config_release(&route);
    if (rc < 0)
        return rc;
    rc = peft_config(c, in(dir, "lora"), e);
    if (rc < 0)
        opt_release(&model_group, c);
    return rc;
}

static void targets(const char *dir, const char *given, const char *want)
{
    struct model_config c;
    struct err e = {0};
    char text[800];
    snprintf(text, sizeof text, HEAD NUMBERS "\"target_modules\": %s}", given);
    t_ok(parse(dir, text, &c, &e), &e);
    t_str(c.lora_targets, want);
    opt_release(&model_group, &c);
}

T(target_modules_are_names_endings_or_a_pattern)
{
    char dir[1000];
    str_copy(dir, sizeof dir, t_tmpdir());
    model_free(adapted(SHAPE, "lora_r=2", dir));
    targets(dir, "[\"q_proj\", \"v_proj\"]", "q,v");
    targets(dir, "[\"mlp.down_proj\", \"nothing\", \"self_attn.o_proj\"]", "o,down");
    targets(dir, "[\"model.layers.0.mlp.up_proj\", \"model.layers.1.mlp.up_proj\"]", "up");
    targets(dir, "\"all-linear\"", "q,k,v,o,gate,up,down");
    targets(dir, "\".*\\\\.(q|gate)_proj\"", "q,gate");
    targets(dir, "\"model.layers.\\\\d+.self_attn.[kv]_proj\"", "k,v");
    model_free(adapted(GPT2, "lora_r=2", dir));
    targets(dir, "[\"c_attn\"]", "q,k,v");
    targets(dir, "[\"c_proj\"]", "o,down");
    targets(dir, "[\"mlp.c_proj\", \"c_fc\"]", "up,down");
    targets(dir, "\"all-linear\"", "q,k,v,o,up,down");
}

/* More keys of q_proj and v_proj in two layers; what they mean here. */
static const struct {
    const char *keys, *targets, *save;
} meaning[] = {
    // clang-format off
    {"\"layers_to_transform\": 0", "0.q,0.v", ""},
    {"\"layers_to_transform\": [1], \"layers_pattern\": \"layers\"", "1.q,1.v", ""},
    {"\"layers_to_transform\": [1, 0], \"layers_pattern\": []", "q,v", ""},
    {"\"layers_to_transform\": []", "q,v", ""},
    {"\"target_parameters\": []", "q,v", ""},
    {"\"layers_to_transform\": [1], \"layers_pattern\": [\"h\", \"lay.rs\"]", "1.q,1.v", ""},
    {"\"rank_pattern\": {\"q_proj\": 4}", "q:4,v", ""},
    {"\"rank_pattern\": {\"layers.1.self_attn.q_proj\": 1, \"q_proj\": 4}", "0.q:4,1.q:1,v", ""},
    {"\"rank_pattern\": {\"q_proj\": 4, \"layers.1.self_attn.q_proj\": 1}", "q:4,v", ""},
    {"\"rank_pattern\": {\"_proj\": 4, \"proj\": 3, \"^model.layers.0.*v.proj\": 1}", "q,0.v:1,1.v", ""},
    {"\"rank_pattern\": {\".*0.*[qv]_proj\": 3}", "0.q:3,1.q,0.v:3,1.v", ""},
    {"\"alpha_pattern\": {\"v_proj\": 0.5}", "q,v:2:0.5", ""},
    {"\"alpha_pattern\": {\"layers.0.self_attn.v_proj\": 3}, \"rank_pattern\": {\"v_proj\": 1}", "q,0.v:1:3,1.v:1", ""},
    {"\"exclude_modules\": [\"layers.0.self_attn.q_proj\"]", "1.q,v", ""},
    {"\"exclude_modules\": \".*1.*\"", "0.q,0.v", ""},
    {"\"modules_to_save\": [\"model.norm\"]", "q,v", "model.norm,"},
    {"\"modules_to_save\": [\"norm\"]", "q,v", "input_layernorm,post_attention_layernorm,model.norm,"},
    {"\"modules_to_save\": [\"layers.1\"]", "0.q,0.v", "model.layers.1.input_layernorm,model.layers.1.self_attn.q_proj,model.layers.1.self_attn.k_proj,model.layers.1.self_attn.v_proj,model.layers.1.self_attn.o_proj,model.layers.1.post_attention_layernorm,model.layers.1.mlp.gate_proj,model.layers.1.mlp.up_proj,model.layers.1.mlp.down_proj,"},
    {"\"modules_to_save\": [\"embed_tokens\"]", "q,v", "model.embed_tokens,lm_head,"},
    {"\"modules_to_save\": [\"head\"]", "q,v", "lm_head,"},
    {"\"modules_to_save\": [\"lm_head\"], \"ensure_weight_tying\": true", "q,v", "model.embed_tokens,lm_head,"},
    {"\"modules_to_save\": [\"head\"], \"ensure_weight_tying\": true", "q,v", "lm_head,"},
    {"\"modules_to_save\": [\"nothing\"]", "q,v", ""},
    // clang-format on
};

T(layers_patterns_and_saved_modules_mean_what_they_mean_to_peft)
{
    char dir[1000], text[800];
    str_copy(dir, sizeof dir, t_tmpdir());
    model_free(adapted(SHAPE, "lora_r=2", dir));
    for (size_t i = 0; i < DS_LEN(meaning); i++) {
        struct model_config c;
        struct err e = {0};
        snprintf(text, sizeof text, HEAD ALL ", %s}", meaning[i].keys);
        t_ok(parse(dir, text, &c, &e), &e);
        t_str(c.lora_targets, meaning[i].targets);
        t_str(c.lora_save, meaning[i].save);
        t_eq(c.tied, strstr(meaning[i].save, "lm_head") == NULL);
        opt_release(&model_group, &c);
    }
}

T(scaling_of_plain_and_rank_stabilised_adapters)
{
    char dir[1000];
    struct model_config c;
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    model_free(adapted(SHAPE, "lora_r=2", dir));
    t_ok(parse(dir, HEAD ALL ", \"lora_dropout\": 0.25, \"use_rslora\": false}", &c, &e), &e);
    t_eq(c.lora_r, 2);
    t_near(c.lora_alpha, 8, 0);
    t_near(c.lora_dropout, 0.25, 0);
    opt_release(&model_group, &c);
    t_ok(parse(dir, HEAD ALL ", \"use_rslora\": true, \"rank_pattern\": {}, \"use_dora\": false}",
               &c, &e),
         &e);
    t_near(adapters_scale(&c, &(struct adapter_spec){c.lora_r, c.lora_alpha}), 8 / sqrt(2), 1e-15);
    opt_release(&model_group, &c);
}

static const struct {
    const char *text, *part;
} bad[] = {
    // clang-format off
    {"", ""},
    {"[]", "must be a JSON object"},
    {"{}", "missing key base_model_name_or_path; set DEPTHSCOPE_BASE=PATH to the base model"},
    {"{\"base_model_name_or_path\": \"nowhere/at-all\"}", "base_model_name_or_path nowhere/at-all not found (looked next to the adapter and in .); set DEPTHSCOPE_BASE=PATH"},
    {"{\"base_model_name_or_path\": \"../base\"}", "missing key peft_type"},
    {"{\"base_model_name_or_path\": \"../base\", \"peft_type\": \"IA3\"}", "peft_type: unsupported value IA3: expected LORA"},
    {"{\"base_model_name_or_path\": \"../base\", \"peft_type\": 3}", "peft_type: unsupported value (not a string)"},
    {HEAD "\"task_type\": \"SEQ_CLS\", " ALL "}", "task_type: unsupported value SEQ_CLS: expected CAUSAL_LM"},
    {HEAD ALL ", \"use_rslora\": 1}", "use_rslora must be true or false"},
    {HEAD ALL ", \"use_rslora\": \"true\"}", "use_rslora must be true or false"},
    {HEAD ALL ", \"something_new\": \"yes\"}", "unsupported key something_new"},
    {HEAD ALL ", \"init_lora_weights\": \"pissa\"}", "init_lora_weights: unsupported value pissa"},
    {HEAD "\"lora_alpha\": 8, \"target_modules\": [\"q_proj\"]}", "r is missing"},
    {HEAD "\"r\": 2.5, \"lora_alpha\": 8, \"target_modules\": [\"q_proj\"]}", "r must be a positive integer"},
    {HEAD "\"r\": 0, \"lora_alpha\": 8, \"target_modules\": [\"q_proj\"]}", "r must be a positive integer"},
    {HEAD "\"r\": 100000, \"lora_alpha\": 8, \"target_modules\": [\"q_proj\"]}", "100000"},
    {HEAD "\"r\": 2, \"target_modules\": [\"q_proj\"]}", "lora_alpha is missing"},
    {HEAD "\"r\": 2, \"lora_alpha\": \"x\", \"target_modules\": [\"q_proj\"]}", "lora_alpha must be a number"},
    {HEAD ALL ", \"lora_dropout\": 2}", "lora_dropout"},
    {HEAD NUMBERS "\"target_modules\": null}", "target_modules must be a list of names or a pattern"},
    {HEAD NUMBERS "\"target_modules\": []}", "target_modules must be a list"},
    {HEAD NUMBERS "\"target_modules\": [3]}", "target_modules: entry 1 must be a name"},
    {HEAD NUMBERS "\"target_modules\": \"(\"}", "target_modules"},
    {HEAD NUMBERS "\"target_modules\": [\"experts\"]}", "target_modules must name a matrix of this model"},
    {HEAD NUMBERS "\"target_modules\": [\"q_proj\", \"lm_head\"]}", "target_modules has lm_head"},
    {HEAD NUMBERS "\"target_modules\": [\"embed_tokens\"]}", "target_modules has model.embed_tokens"},
    {HEAD ALL ", \"use_qalora\": true}", "unsupported key use_qalora = true: expected LoRA or DoRA"},
    {HEAD ALL ", \"use_bdlora\": {}}", "unsupported key use_bdlora = an object of 0: expected LoRA or DoRA"},
    {HEAD ALL ", \"velora_config\": {}}", "unsupported key velora_config = an object of 0: expected LoRA or DoRA"},
    {HEAD ALL ", \"monteclora_config\": {\"a\": 1}}", "unsupported key monteclora_config = an object of 1: expected LoRA or DoRA"},
    {HEAD ALL ", \"arrow_config\": {}}", "unsupported key arrow_config = an object of 0: expected LoRA or DoRA"},
    {HEAD ALL ", \"kasa_config\": {}}", "unsupported key kasa_config = an object of 0: expected LoRA or DoRA"},
    {HEAD ALL ", \"megatron_config\": {\"a\": 1}}", "unsupported key megatron_config = an object of 1: expected LoRA or DoRA"},
    {HEAD ALL ", \"layer_replication\": [[0, 1]]}", "unsupported key layer_replication = a list of 1: expected LoRA or DoRA"},
    {HEAD ALL ", \"target_parameters\": [\"x\"]}", "unsupported key target_parameters = a list of 1: expected LoRA or DoRA"},
    {HEAD ALL ", \"trainable_token_indices\": [3]}", "unsupported key trainable_token_indices = a list of 1: expected LoRA or DoRA"},
    {HEAD ALL ", \"alora_invocation_tokens\": []}", "unsupported key alora_invocation_tokens = a list of 0: expected LoRA or DoRA"},
    {HEAD ALL ", \"something_newer\": 2.5}", "unsupported key something_newer = 2.5"},
    {HEAD ALL ", \"use_dora\": \"yes\"}", "use_dora must be true or false"},
    {HEAD ALL ", \"use_dora\": true, \"lora_bias\": true}", "model.lora_bias=true: not defined with model.lora_dora=true"},
    {HEAD ALL ", \"bias\": \"some\"}", "bias: unsupported value some: expected none"},
    {HEAD ALL ", \"bias\": 1}", "bias: unsupported value (not a string)"},
    {HEAD ALL ", \"rank_pattern\": {\"q_proj\": 0}}", "rank_pattern: q_proj: must be a positive integer"},
    {HEAD ALL ", \"rank_pattern\": {\"q_proj\": 2.5}}", "rank_pattern: q_proj: must be a positive integer"},
    {HEAD ALL ", \"rank_pattern\": [\"q_proj\"]}", "rank_pattern must be an object"},
    {HEAD ALL ", \"rank_pattern\": {\"(\": 3}}", "rank_pattern"},
    {HEAD ALL ", \"alpha_pattern\": {\"q_proj\": \"x\"}}", "alpha_pattern: q_proj: must be a number"},
    {HEAD ALL ", \"alpha_pattern\": {\"q_proj\": -1}}", "alpha_pattern: q_proj: must be a number from 0"},
    {HEAD ALL ", \"layers_to_transform\": 2}", "layers_to_transform: layer 2 not found: expected 0 to 1"},
    {HEAD ALL ", \"layers_to_transform\": [0, -1]}", "layers_to_transform: layer -1 not found"},
    {HEAD ALL ", \"layers_to_transform\": \"0\"}", "layers_to_transform must be a layer or a list of them"},
    {HEAD ALL ", \"layers_to_transform\": [true]}", "layers_to_transform must be a layer or a list of them"},
    {HEAD ALL ", \"layers_pattern\": \"layers\"}", "layers_pattern: expected layers_to_transform as well"},
    {HEAD ALL ", \"layers_to_transform\": [0], \"layers_pattern\": \"h\"}", "target_modules must name a matrix"},
    {HEAD ALL ", \"layers_to_transform\": [0], \"layers_pattern\": [3]}", "layers_pattern: entry 1 must be a name"},
    {HEAD NUMBERS "\"target_modules\": \"q_proj\", \"layers_to_transform\": [0]}", "layers_to_transform: not defined with a pattern"},
    {HEAD ALL ", \"exclude_modules\": [\"self_attn.q_proj\", \"v_proj\"]}", "target_modules must name a matrix"},
    {HEAD ALL ", \"exclude_modules\": 3}", "exclude_modules must be a list of names"},
    {HEAD ALL ", \"modules_to_save\": \"lm_head\"}", "modules_to_save must be a list of names"},
    {HEAD ALL ", \"modules_to_save\": [\"q_proj\", \"v_proj\"]}", "target_modules must name a matrix"},
    {HEAD ALL ", \"modules_to_save\": [\"proj\"]}", "modules_to_save: model.layers.0.self_attn.q_proj has an adapter as well"},
    {HEAD ALL ", \"init_lora_weights\": \"loftq\"}", "init_lora_weights: unsupported value loftq"},
    {HEAD ALL ", \"ensure_weight_tying\": 1}", "ensure_weight_tying must be true or false"},
    // clang-format on
};

T(what_changes_the_result_otherwise_is_refused_by_name_and_value_in_one_line)
{
    char dir[1000];
    str_copy(dir, sizeof dir, t_tmpdir());
    model_free(adapted(SHAPE, "lora_r=2", dir));
    for (size_t i = 0; i < DS_LEN(bad); i++) {
        struct model_config c;
        struct err e = {0};
        int rc = parse(dir, bad[i].text, &c, &e);
        t_truef(rc < 0, "%s was taken", bad[i].text);
        t_truef(strstr(e.text, bad[i].part) && strstr(e.text, "adapter_config.json") &&
                    !strchr(e.text, '\n'),
                "%s: %s", bad[i].text, e.text);
    }
}

T(adapters_on_experts_are_refused_by_name)
{
    static const char *const target[] = {"\"up_proj\"", "\"q_proj\", \"experts.0.down_proj\"",
                                         "\"shared_expert.gate_proj\"", "\"mlp.gate\""};
    char dir[1000], text[400];
    str_copy(dir, sizeof dir, t_tmpdir());
    model_free(adapted(SHAPE " model.experts=3 model.expert_ffn=8", "lora_r=2", dir));
    for (size_t i = 0; i < DS_LEN(target); i++) {
        struct model_config c;
        struct err e = {0};
        snprintf(text, sizeof text, HEAD NUMBERS "\"target_modules\": [%s]}", target[i]);
        t_fails(parse(dir, text, &c, &e), &e, DS_EFORMAT, "unsupported on the MLPs of a model");
    }
}

/* An adapter_config.json corrupted at any byte is either read or refused in one line. */
T(damaged_configurations_end_in_a_result_or_one_line)
{
    static const char whole[] =
        HEAD ALL ", \"use_rslora\": true, \"rank_pattern\": {}, \"lora_dropout\": 0.1}";
    static const char with[] = "\"{}[],:0-9.e\\x\x80";
    char dir[1000], text[sizeof whole];
    struct rng r;
    int taken = 0;
    str_copy(dir, sizeof dir, t_tmpdir());
    model_free(adapted(SHAPE, "lora_r=2", dir));
    rng_init(&r, 3, RNG_TEST, 1, 0);
    for (int i = 0; i < 1500; i++) {
        struct model_config c;
        struct err e = {0};
        memcpy(text, whole, sizeof whole);
        for (uint32_t k = 0; k <= rng_below(&r, 3); k++)
            text[rng_below(&r, sizeof whole - 1)] = with[rng_below(&r, sizeof with - 1)];
        if (i % 5 == 0)
            text[rng_below(&r, sizeof whole - 1)] = '\0';
        int rc = parse(dir, text, &c, &e);
        t_truef(rc == 0 || (e.text[0] && !strchr(e.text, '\n')), "%s", text);
        taken += rc == 0;
        if (rc == 0)
            opt_release(&model_group, &c);
    }
    t_true(taken > 10);
}

/* ---- tensors ---- */

enum { TENSORS = 12 };

/* The adapters of m (q and v, rank 2) as tensors; returns how many. */
static size_t tensors(const struct model *m, struct st_out t[TENSORS], char name[TENSORS][128])
{
    size_t n = 0;
    for (int i = 0; i < 2 * m->adapters; i++) {
        const struct param *p = &m->params.p[i % 2 ? m->adapter[i / 2].b : m->adapter[i / 2].a];
        snprintf(name[n], 128, "base_model.model.%s", p->name);
        t[n] = (struct st_out){.name = name[n],
                               .dtype = ST_F32,
                               .rank = 2,
                               .shape = {(uint64_t)p->shape[0], (uint64_t)p->shape[1]},
                               .data = p->value};
        n++;
    }
    return n;
}

static void weights_fail(const char *dir, const struct st_out *t, size_t n, const char *part)
{
    struct err e = {0};
    struct model *back = NULL;
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n, NULL, 0, &e), &e);
    t_fails(model_open(&back, in(dir, "lora"), NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT, part);
    t_true(strstr(e.text, "adapter_model.safetensors") && !strchr(e.text, '\n'));
}

T(tensors_of_wrong_shape_are_named_with_both_shapes)
{
    static const float zeros[64];
    char dir[1000], name[TENSORS][128];
    struct st_out t[TENSORS];
    struct err e = {0};
    struct model *back = NULL;
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, "lora_r=2 lora_alpha=8 lora_targets=q,v", dir);
    put(dir, "lora/adapter_config.json", HEAD ALL "}");
    t_fails(model_open(&back, in(dir, "lora"), NULL, MODEL_INFERENCE, &e), &e, DS_ENOTFOUND,
            "neither adapter_model.safetensors nor own.safetensors");
    put(dir, "lora/adapter_model.bin", "PK");
    t_fails(model_open(&back, in(dir, "lora"), NULL, MODEL_INFERENCE, &e), &e, DS_EFORMAT,
            "can execute code and are not loaded; convert it to safetensors");
    size_t n = tensors(m, t, name);
    t_eq(n, 8);
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n, NULL, 0, &e), &e);
    model_free(opened(in(dir, "lora")));
    weights_fail(dir, t, n - 1,
                 "missing tensor "
                 "base_model.model.model.layers.1.self_attn.v_proj.lora_B.weight");
    t[n] = (struct st_out){"base_model.model.lm_head.weight", ST_F32, 2, {4, 4}, zeros, NULL};
    weights_fail(dir, t, n + 1, "unexpected tensor base_model.model.lm_head.weight");
    t[3].shape[0] = 8;
    t[3].data = zeros;
    weights_fail(
        dir, t, n,
        "tensor base_model.model.model.layers.0.self_attn.v_proj.lora_B.weight: shape [8,2], "
        "expected [4,2] from the model's configuration");
    t[3] = (struct st_out){name[3], ST_F32, 1, {8}, zeros, NULL};
    weights_fail(dir, t, n, "shape [8], expected [4,2] from the model's configuration");
    t[3] = (struct st_out){name[3], ST_I32, 2, {4, 2}, zeros, NULL};
    weights_fail(dir, t, n, "I32");
    model_free(m);
}

/* Values that no training leaves, and tensors that the options of the configuration call for. */
T(non_finite_and_missing_tensors_of_adapters_are_refused_by_name)
{
    static const struct {
        const char *keys, *part;
    } missing[] = {
        {"\"use_dora\": true", "missing tensor base_model.model.model.layers.0.self_attn.q_proj."
                               "lora_magnitude_vector"},
        {"\"lora_bias\": true",
         "missing tensor base_model.model.model.layers.0.self_attn.q_proj.lora_B.bias"},
        {"\"modules_to_save\": [\"model.norm\"]",
         "missing tensor base_model.model.model.norm.weight"},
        {"\"rank_pattern\": {\"v_proj\": 1}",
         "tensor base_model.model.model.layers.0.self_attn.v_proj.lora_A.weight: shape [2,8], "
         "expected [1,8]"},
        {"\"layers_to_transform\": [1]",
         "unexpected tensor base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"},
    };
    char dir[1000], name[TENSORS][128], text[800];
    struct st_out t[TENSORS];
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, "lora_r=2 lora_targets=q,v", dir);
    size_t n = tensors(m, t, name);
    for (size_t i = 0; i < DS_LEN(missing); i++) {
        snprintf(text, sizeof text, HEAD ALL ", %s}", missing[i].keys);
        put(dir, "lora/adapter_config.json", text);
        weights_fail(dir, t, n, missing[i].part);
    }
    put(dir, "lora/adapter_config.json", HEAD ALL "}");
    float odd[16] = {[3] = (float)NAN, [5] = (float)INFINITY};
    t[2].data = odd;
    struct err e = {0};
    struct model *back = NULL;
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n, NULL, 0, &e), &e);
    t_fails(model_open(&back, in(dir, "lora"), NULL, MODEL_INFERENCE, &e), &e, DS_ENUMERIC,
            "self_attn.v_proj.lora_A.weight holds 2 non-finite values");
    model_free(m);
}

/* An adapter on a fused matrix has one A shared by q, k and v, and a part of B for each. */
static void open_fused(const char *shape, const char *blocks, const char *module, int rows,
                       const char *dir)
{
    char name[4][300], part[200], text[300];
    float a[2][2 * 8], b[2][24 * 2];
    struct st_out t[4];
    struct err e = {0};
    struct model *m = adapted(shape, "lora_r=2 lora_targets=q,k,v", dir);
    snprintf(part, sizeof part, "%s.0.%s", blocks, module);
    snprintf(text, sizeof text, "a part of %s.weight, which cannot be saved", part);
    t_fails(peft_save(m, in(dir, "lora"), "../base", &e), &e, DS_EUSAGE, text);
    for (int l = 0; l < 2; l++)
        for (int i = 0; i < 2 * rows; i++) {
            a[l][i % 16] = (float)(i + l);
            b[l][i] = (float)(100 * l + i);
        }
    for (int k = 0; k < 4; k++) {
        snprintf(part, sizeof part, "%s.%d.%s", blocks, k / 2, module);
        snprintf(name[k], sizeof name[k], "base_model.model.%s.lora_%c.weight", part,
                 k % 2 ? 'B' : 'A');
        t[k] = (struct st_out){.name = name[k],
                               .dtype = ST_F32,
                               .rank = 2,
                               .shape = {k % 2 ? (uint64_t)rows : 2, k % 2 ? 2 : 8},
                               .data = k % 2 ? b[k / 2] : a[k / 2]};
    }
    snprintf(text, sizeof text,
             HEAD "\"r\": 2, \"lora_alpha\": 4, \"fan_in_fan_out\": true, \"target_modules\": "
                  "[\"%s\"]}",
             strchr(module, '.') + 1);
    put(dir, "lora/adapter_config.json", text);
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, 4, NULL, 0, &e), &e);
    struct model *back = opened(in(dir, "lora"));
    t_eq(back->adapters, 6);
    for (int i = 0, at = 0; i < 6; i++) {
        const struct adapter *x = &back->adapter[i];
        const struct param *pa = &back->params.p[x->a], *pb = &back->params.p[x->b];
        at = i % 3 ? at : 0;
        for (int k = 0; k < 16; k++)
            t_eq((float)pa->value[k] == a[i / 3][k], 1);
        for (size_t k = 0; k < pb->n; k++)
            t_eq((float)pb->value[k] == b[i / 3][at + (int)k], 1);
        at += (int)pb->n;
        t_true(i % 3 < 2 || at == 2 * rows);
    }
    model_free(back);
    model_free(m);
}

T(a_fused_matrix_is_opened_and_refused_when_saved)
{
    char dir[1000];
    str_copy(dir, sizeof dir, t_tmpdir());
    open_fused(GPT2, "transformer.h", "attn.c_attn", 24, dir);
    str_copy(dir, sizeof dir, in(t_tmpdir(), "phi3"));
    t_eq(mkdir(dir, 0755), 0);
    open_fused(SHAPE "model.fused=true", "model.layers", "self_attn.qkv_proj", 16, dir);
}

/* Of newer versions of transformers, which name modules of some families as we do. */
T(saved_modules_are_found_by_their_newer_names)
{
    static const char shape[] =
        "model.method=dense model.layers=2 model.dim=8 model.heads=2 model.vocab=16 model.ffn=12 "
        "model.norm=layer model.parallel=true model.attn_bias=true model.mlp_bias=true "
        "model.mlp=gelu model.tied=false ";
    static const char *const was = "base_model.model.embed_out.weight",
                             *const is = "base_model.model.lm_head.weight";
    struct err e = {0};
    struct st_set *s = NULL;
    struct st_out t[16];
    size_t n, at;
    char dir[1000];
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(shape, "lora_r=2 lora_alpha=4 lora_targets=o lora_save=lm_head", dir);
    t_ok(peft_save(m, in(dir, "lora"), "../base", &e), &e);
    t_ok(st_set_open(&s, in(dir, "lora/adapter_model.safetensors"), &e), &e);
    t_true(st_set_find(s, was, &at) != NULL);
    n = st_set_count(s);
    t_true(n < 16);
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *x = st_set_at(s, i);
        t[i] = (struct st_out){.name = i == at ? is : x->name,
                               .dtype = x->dtype,
                               .rank = x->rank,
                               .shape = {x->shape[0], x->shape[1]},
                               .data = x->data};
    }
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n, NULL, 0, &e), &e);
    st_set_close(s);
    put(dir, "lora/adapter_config.json",
        HEAD "\"r\": 2, \"lora_alpha\": 4, \"target_modules\": [\"dense\"], "
             "\"modules_to_save\": [\"lm_head\"]}");
    struct model *back = opened(in(dir, "lora"));
    kit_same_params(m, back);
    model_free(back);
    model_free(m);
}

T(a_base_is_found_next_to_its_adapters_or_through_the_environment)
{
    char dir[1000];
    struct err e = {0};
    struct model *back = NULL;
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, "lora_r=2", dir);
    t_ok(peft_save(m, in(dir, "lora"), in(dir, "base"), &e), &e);
    model_free(opened(in(dir, "lora")));
    t_eq(rename(in(dir, "base"), in(dir, "elsewhere")), 0);
    t_fails(model_open(&back, in(dir, "lora"), NULL, MODEL_INFERENCE, &e), &e, DS_ENOTFOUND,
            "not found (looked next to the adapter and in .); set DEPTHSCOPE_BASE=PATH");
    setenv("DEPTHSCOPE_BASE", in(dir, "elsewhere"), 1);
    model_free(opened(in(dir, "lora")));
    setenv("DEPTHSCOPE_BASE", in(dir, "gone"), 1);
    t_fails(model_open(&back, in(dir, "lora"), NULL, MODEL_INFERENCE, &e), &e, DS_ENOTFOUND,
            "DEPTHSCOPE_BASE: ");
    unsetenv("DEPTHSCOPE_BASE");
    model_free(m);
}

/* As trainers write it: the base's config.json is next to the adapters. */
T(adapters_next_to_a_configuration_open_unless_weights_are_there_too)
{
    char dir[1000];
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, "lora_r=2", dir);
    t_ok(peft_save(m, in(dir, "lora"), "../base", &e), &e);
    t_ok(model_write_config(m, in(dir, "lora/config.json"), &e), &e);
    struct model *back = opened(in(dir, "lora"));
    kit_same_params(m, back);
    model_free(back);
    t_ok(model_write_weights(m, in(dir, "lora/model.safetensors"), 0, &e), &e);
    t_true(!peft_is_dir(in(dir, "lora")));
    model_free(m);
}

/* As peft writes them with bias=all: those of saved modules under three names. */
T(biases_of_saved_modules_that_are_there_again_must_be_the_same)
{
    enum { MOST = 64 };
    static const char norm[] = "base_model.model.model.norm";
    static const float other[8] = {7};
    char dir[1000], bias[200], again[200], base[200];
    struct st_out t[MOST];
    struct st_set *set = NULL;
    struct err e = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE "model.norm=layer model.attn_bias=true ",
                              "lora_r=2 lora_targets=up lora_train_bias=all lora_save=norm", dir);
    t_ok(peft_save(m, in(dir, "lora"), "../base", &e), &e);
    t_eq(rename(in(dir, "lora/adapter_model.safetensors"), in(dir, "saved.safetensors")), 0);
    t_ok(st_set_open(&set, in(dir, "saved.safetensors"), &e), &e);
    size_t n = st_set_count(set), at;
    t_true(n + 2 < MOST);
    for (size_t i = 0; i < n; i++) {
        const struct st_tensor *x = st_set_at(set, i);
        t[i] = (struct st_out){.name = x->name, .dtype = ST_F32, .rank = x->rank, .data = x->data};
        memcpy(t[i].shape, x->shape, sizeof t[i].shape);
    }
    snprintf(bias, sizeof bias, "%s.bias", norm);
    snprintf(again, sizeof again, "%s.modules_to_save.bias", norm);
    snprintf(base, sizeof base, "%s.original_module.bias", norm);
    t_true(st_set_find(set, bias, &at));
    t[n] = t[n + 1] = t[at];
    t[n].name = again;
    t[n + 1].name = base;
    t[n + 1].data = other;
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n + 2, NULL, 0, &e), &e);
    struct model *back = opened(in(dir, "lora"));
    kit_same_params(m, back);
    model_free(back);
    t[n].data = other;
    weights_fail(dir, t, n + 2, "unexpected tensor base_model.model.model.norm.modules_to_save");
    st_set_close(set);
    model_free(m);
}

T(the_tensors_of_adapters_are_counted_apart_from_those_of_their_base)
{
    static const float zeros[16];
    char dir[1000], name[TENSORS][128];
    struct st_out t[TENSORS];
    struct err e = {0};
    struct str told = {0};
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, "lora_r=2 lora_alpha=8 lora_targets=q,v", dir);
    put(dir, "lora/adapter_config.json", HEAD ALL "}");
    size_t n = tensors(m, t, name);
    t[n] = (struct st_out){"base_model.model.lm_head.weight", ST_F32, 2, {4, 4}, zeros, NULL};
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n, NULL, 0, &e), &e);
    t_ok(model_tensor_match(in(dir, "lora"), &told, &e), &e);
    t_true(strstr(str_text(&told), "weights: of the base ") == str_text(&told));
    t_truef(strstr(str_text(&told),
                   "base: 20 tensors used, 0 missing, 0 unexpected; stored apart from it: "
                   "8 tensors used, 0 missing, 0 unexpected\n"),
            "%s", str_text(&told));
    str_reset(&told);
    t[n - 1] = t[n]; /* one is missing and another one is not expected */
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n, NULL, 0, &e), &e);
    t_ok(model_tensor_match(in(dir, "lora"), &told, &e), &e);
    t_truef(strstr(str_text(&told),
                   "7 tensors used, 1 missing (base_model.model.model.layers.1.self_attn.v_proj."
                   "lora_B.weight), 1 unexpected\n"),
            "%s", str_text(&told));
    str_release(&told);
    model_free(m);
}

static void change_byte(const char *path, long at)
{
    FILE *f = fopen(path, "r+b");
    t_true(f && fseek(f, at, SEEK_END) == 0);
    int c = fgetc(f);
    t_true(fseek(f, at, SEEK_END) == 0 && fputc(c ^ 1, f) != EOF && fclose(f) == 0);
}

/* Each shard that the index names counts, and no other file. */
T(the_fingerprint_of_a_sharded_base_is_that_of_all_its_shards)
{
    char dir[1000], last[1200];
    struct err e = {0};
    struct export_result r;
    struct base_ref first, again;
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = kit_model(SHAPE, SEED, IDS, 0, 0);
    struct export_source s = {.m = m};
    struct export_options o = {.type = GGUF_T_F32, .shard_bytes = 3000};
    t_ok(export_hf(&s, &o, dir, &r, &e), &e);
    t_true(fs_exists(in(dir, "model.safetensors.index.json")));
    t_ok(base_ref_make(&first, dir, &e), &e);
    put(dir, "model-other.safetensors", "not in the index");
    t_ok(base_ref_make(&again, dir, &e), &e);
    t_str(again.hash, first.hash);
    t_str(again.path, first.path);
    for (int k = 1; k <= 2; k++) {
        int shards = 0;
        while (shards++ < 99) {
            snprintf(last, sizeof last, "%s/model-%05d-of-%05d.safetensors", dir, k, shards);
            if (fs_exists(last))
                break;
        }
        t_true(shards >= 2 && shards < 99);
        change_byte(last, -1);
        t_ok(base_ref_make(&again, dir, &e), &e);
        t_true(strcmp(again.hash, first.hash) != 0);
        change_byte(last, -1);
        t_ok(base_ref_make(&again, dir, &e), &e);
        t_str(again.hash, first.hash);
    }
    t_eq(unlink(last), 0);
    t_ok(base_ref_make(&again, dir, &e), &e);
    t_true(strcmp(again.hash, first.hash) != 0);
    model_free(m);
}

/* Beyond the first MiB, samples of a file. */
T(the_fingerprint_of_a_large_file_has_samples_of_its_rest)
{
    char dir[1000];
    struct err e = {0};
    struct base_ref first, again;
    str_copy(dir, sizeof dir, t_tmpdir());
    FILE *f = fopen(in(dir, "x.gguf"), "wb");
    t_true(f && fwrite("GGUF\3\0\0\0", 1, 8, f) == 8);
    t_true(ftruncate(fileno(f), 3 << 20) == 0 && fclose(f) == 0);
    t_ok(base_ref_make(&first, in(dir, "x.gguf"), &e), &e);
    change_byte(in(dir, "x.gguf"), -4000); /* in the last sample */
    t_ok(base_ref_make(&again, in(dir, "x.gguf"), &e), &e);
    t_true(strcmp(again.hash, first.hash) != 0);
    t_eq(truncate(in(dir, "x.gguf"), (3 << 20) + 1), 0);
    change_byte(in(dir, "x.gguf"), -4001);
    t_ok(base_ref_make(&again, in(dir, "x.gguf"), &e), &e);
    t_true(strcmp(again.hash, first.hash) != 0); /* its size */
    t_fails(base_ref_make(&again, in(dir, "gone"), &e), &e, DS_EIO, "gone: No such file");
}

/* PEFT parts a head that it saves from the embedding of a tied base, which one file may hold. */
T(a_saved_head_is_parted_from_the_embedding_of_a_tied_base_in_one_file)
{
    static const float head[VOCAB * 8] = {[3] = 0.5F, [77] = -2};
    char dir[1000], name[TENSORS][128];
    struct st_out t[TENSORS];
    struct err e = {0};
    struct export_result r;
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE, "lora_r=2 lora_targets=q,v", dir);
    struct export_source s = {.m = m, .base_only = 1};
    struct export_options o = {.type = GGUF_T_F32};
    t_ok(export_gguf(&s, &o, in(dir, "base.gguf"), &r, &e), &e);
    size_t n = tensors(m, t, name);
    t[n++] = (struct st_out){
        "base_model.model.lm_head.weight", ST_F32, 2, {VOCAB, 8}, head, NULL};
    t_ok(st_write(in(dir, "lora/adapter_model.safetensors"), t, n, NULL, 0, &e), &e);
    put(dir, "lora/adapter_config.json",
        "{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"../base.gguf\", " ALL
        ", \"modules_to_save\": [\"lm_head\"]}");
    struct model *back = opened(in(dir, "lora"));
    t_true(m->head < 0 && back->head >= 0);
    real got[VOCAB * 8], base[VOCAB * 8];
    model_values(back, back->head, 0, VOCAB, got);
    for (int i = 0; i < VOCAB * 8; i++)
        t_true(got[i] == (real)head[i]);
    model_values(back, back->embed, 0, VOCAB, got);
    model_values(m, m->embed, 0, VOCAB, base);
    t_true(kit_same(got, base, VOCAB * 8));
    model_free(back);
    model_free(m);
}

T(every_failed_allocation_of_an_adapted_model_is_an_error)
{
    char dir[1000];
    struct err e = {0};
    int failed = 0, is_done = 0;
    str_copy(dir, sizeof dir, t_tmpdir());
    struct model *m = adapted(SHAPE "model.attn_bias=true model.tied=false ",
                              "lora_r=2 lora_targets=q,v lora_dora=true lora_save=norm", dir);
    t_ok(peft_save(m, in(dir, "lora"), "../base", &e), &e);
    for (uint64_t k = 1; !is_done && k < 20000; k++) {
        struct model *back = NULL;
        uint64_t last = mem_calls() + k;
        e = (struct err){0};
        mem_fail_at(last, 0);
        int rc = model_open(&back, in(dir, "lora"), NULL, MODEL_INFERENCE, &e);
        is_done = mem_calls() < last;
        mem_fail_at(0, 0);
        failed += rc < 0;
        t_truef(rc >= 0 || (rc == DS_EMEM && strstr(e.text, "memory") && !strchr(e.text, '\n')),
                "call %d: %d %s", (int)k, rc, e.text);
        if (rc >= 0) {
            kit_same_params(m, back);
            model_free(back);
        }
    }
    t_truef(is_done && failed > 100, "%d", failed);
    model_free(m);
}
