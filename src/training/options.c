/* Option tables of a run and their resolution and validation. */
#include "training/options.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/nearest.h"
#include "io/runconfig.h"
#include "models/weights.h"
#include "training/exit_loss.h"
#include "training/preset.h"
#include "training/start.h"

#define AT(field) offsetof(struct train_options, field)
static const struct opt train_opts[] = {
    // clang-format off
    {"steps", OPT_INT, AT(steps), "1500", 1, 1e15, NULL, "optimiser steps", NULL},
    {"batch", OPT_INT, AT(batch), "8", 1, 65536, NULL, "sequences per step", NULL},
    {"pieces", OPT_INT, AT(pieces), "0", 0, 65536, NULL, "parts of a batch whose gradients are added up in a tree, so that any number of ranks up to it gives the same bits; 0 = the whole batch at once on one rank, 8 on several (at most train.batch, at least the ranks)", NULL},
    {"seq", OPT_INT, AT(seq), "128", 2, 1 << 20, NULL, "tokens per sequence", NULL},
    {"lr", OPT_REAL, AT(lr), "3e-3", 1e-12, 1, NULL, "peak learning rate", .is_live = 1},
    {"min_lr", OPT_REAL, AT(min_lr), "0.1", 0, 1, NULL, "final learning rate as a fraction of the peak", NULL},
    {"warmup", OPT_INT, AT(warmup), "50", 0, 1e12, NULL, "steps of linear warm-up", NULL},
    {"schedule", OPT_ENUM, AT(schedule), "cosine", 0, 0, "cosine|linear|constant", "learning-rate schedule after warm-up, over exactly the steps of the run", NULL},
    {"weight_decay", OPT_REAL, AT(weight_decay), "0.1", 0, 10, NULL, "weight decay of matrices; embeddings, norms, biases and routers have none (PyTorch scripts that decay all 2-D tensors also decay embeddings)", NULL},
    {"beta1", OPT_REAL, AT(beta1), "0.9", 0, 0.999999, NULL, "AdamW", NULL},
    {"beta2", OPT_REAL, AT(beta2), "0.95", 0, 0.999999, NULL, "AdamW", NULL},
    {"clip", OPT_REAL, AT(clip), "1", 0, 1e9, NULL, "gradient clipping norm, applied separately to thresholds and routers and to all other parameters; 0 = off", NULL},
    {"router_lr", OPT_REAL, AT(router_lr), "3", 0, 1000, NULL, "learning-rate multiplier for thresholds and routers", NULL},
    {"recompute", OPT_BOOL, AT(recompute), "false", 0, 0, NULL, "recompute block activations in the backward pass instead of keeping them (less memory)", NULL},
    {"log_every", OPT_INT, AT(log_every), "1", 1, 1e12, NULL, "steps between metric records", NULL},
    {"layer_every", OPT_INT, AT(layer_every), "5", 1, 1e12, NULL, "steps between per-layer records", NULL},
    {"eval_every", OPT_INT, AT(eval_every), "100", 1, 1e12, NULL, "steps between validations (causal decisions, real skipping)", NULL},
    {"eval_tokens", OPT_INT, AT(eval_tokens), "8192", 1, 1e12, NULL, "tokens per validation during training", NULL},
    {"final_tokens", OPT_INT, AT(final_tokens), "65536", 1, 1e12, NULL, "tokens of the final validation", NULL},
    {"samples", OPT_INT, AT(samples), "20000", 0, 1e7, NULL, "per-token samples kept of the final validation, for figures", NULL},
    {"time_rounds", OPT_INT, AT(time_rounds), "7", 0, 1000, NULL, "rounds of the time-ratio measurement at the end; 0 = not measured", NULL},
    {"probe_every", OPT_INT, AT(probe_every), "20", 1, 1e12, NULL, "steps between probes (complete plans and signals of fixed texts)", NULL},
    {"probes", OPT_INT, AT(probes), "3", 0, 64, NULL, "probe texts", NULL},
    {"probe_tokens", OPT_INT, AT(probe_tokens), "128", 2, 4096, NULL, "tokens per probe text", NULL},
    {"checkpoint_every", OPT_INT, AT(checkpoint_every), "250", 1, 1e12, NULL, "steps between checkpoints", NULL},
    {"keep", OPT_INT, AT(keep), "2", 1, 1e6, NULL, "newest checkpoints kept; the best is kept as well", NULL},
    {"save", OPT_ENUM, AT(save), "auto", 0, 0, "auto|all|own", "what checkpoints hold when the base is frozen: all, or own = adapters, the method's parameters and the path of train.init; auto: own for a GGUF base or one over 1 GB", NULL},
    {"init", OPT_STRING, AT(init), "", 0, 0, NULL, "start from the weights of this model (a run, a checkpoint, a Hugging Face directory or a GGUF file); it also sets model.* and the tokenizer", NULL},
    {"freeze", OPT_ENUM, AT(freeze), "none", 0, 0, "none|base", "base: train only adapters (model.lora_r) and the method's own parameters", NULL},
    {"base_weights", OPT_ENUM, AT(base_weights), "auto", 0, 0, WEIGHTS_CHOICES, "quantised weights of a frozen base (as in QLoRA); auto: as in its file; none: unquantised", NULL},
    {"teacher", OPT_STRING, AT(teacher), "off", 0, 0, NULL, "distillation teacher: self (the same weights, dense, without adapters), a model with the same vocabulary, or off", NULL},
    {"kd_alpha", OPT_REAL, AT(kd_alpha), "0.3", 0, 1, NULL, "weight of the cross-entropy in the loss; the rest is distillation; 1 = no distillation", "kd_alpha"},
    {"kd_temperature", OPT_REAL, AT(kd_temperature), "2", 0.01, 1000, NULL, "distillation temperature", "kd_temperature"},
    {"kd_warmup", OPT_INT, AT(kd_warmup), "50", 0, 1e12, NULL, "steps with cross-entropy only before distillation starts", "kd_warmup_steps"},
    {"no_kd", OPT_BOOL, AT(no_kd), "false", 0, 0, NULL, "disable distillation regardless of train.teacher (ablation)", "no_kd"},
    {"exit_loss", OPT_ENUM, AT(exit_loss), "none", 0, 0, "none|all|rotate|gradual|random", "layers whose states the head is trained on as well (early exits): none; all in every step; in turn (train.exit_every); from the last to the first over half of the run; one random layer per step", NULL},
    {"exit_scale", OPT_REAL, AT(exit_scale), "0.2", 0, 1000, NULL, "weight of early exits relative to the last layer (published 0.2 from scratch, 1 in fine-tuning); all weights of a step sum to 1", NULL},
    {"exit_weights", OPT_ENUM, AT(exit_weights), "rising", 0, 0, "rising|equal", "weights of exits: the sum of layer indices up to theirs, 0 for the first (published); or the same for all", NULL},
    {"exit_every", OPT_INT, AT(exit_every), "0", 0, 4096, NULL, "exit_loss=rotate: period R, layer l has a loss in steps t with l mod R = t mod R; 0 = layers - 1, one early exit per step", NULL},
    {"nan_limit", OPT_INT, AT(nan_limit), "5", 1, 1e6, NULL, "consecutive steps with NaN or Inf that stop the run", NULL},
    {"allow_nonfinite", OPT_BOOL, AT(allow_nonfinite), "false", 0, 0, NULL, "train even if weights of train.init or of the teacher are NaN or Inf", NULL},
    {"reduce", OPT_ENUM, AT(reduce), "exact", 0, 0, "exact|fast", "how several ranks add up gradients: exact, over train.pieces, with the same bits on any number of ranks; fast, one part per rank", NULL},
    {"wire", OPT_ENUM, AT(wire), "fp32", 0, 0, "fp32|bf16", "number format of gradients between ranks with train.reduce=fast; bf16 halves the bytes", NULL},
    {"shard", OPT_ENUM, AT(shard), "none", 0, 0, "none|optimizer", "optimizer: each of several ranks keeps the moments of its part of the weights alone, takes their step and sends the new values; the same bits", NULL},
    {"rank_timeout", OPT_REAL, AT(rank_timeout), "300", 0.5, 1e6, NULL, "several ranks: seconds without progress after which a rank is given up and the run ends", NULL},
    {"system_every", OPT_REAL, AT(system_every), "5", 0, 86400, NULL, "seconds between records of the machine (processors, memory, disk, network, GPUs), written after a step; 0 = off, and the peak that mfu refers to is not measured", NULL},
    {"flops_budget", OPT_REAL, AT(flops_budget), "0", 0, 1e30, NULL, "training FLOPs that train.steps was chosen for (set by isoflop, used by figures)", NULL},
    // clang-format on
};
const struct opt_group train_group = {
    .prefix = "train.", .title = "training", .opts = train_opts, .n = DS_LEN(train_opts)};
#undef AT

int train_has_teacher(const struct train_options *o)
{
    return strcmp(o->teacher, "off") != 0 && !o->no_kd && o->kd_alpha < 1;
}

#define AT(field) offsetof(struct data_options, field)
static const struct opt data_opts[] = {
    // clang-format off
    {"path", OPT_STRING, AT(path), "synth", 0, 0, NULL, "a UTF-8 file or directory, a .jsonl file, token shards of nanoGPT or llm.c (.bin file, folder or pattern), synth (the built-in stories), or hops (queries of known required depth, hops.*)", NULL},
    {"format", OPT_STRING, AT(format), "auto", 0, 0, NULL, "auto, file, blocks, eot, jsonl, lines, tokens", NULL},
    {"text_key", OPT_STRING, AT(text_key), "text", 0, 0, NULL, "key of the text in JSON Lines records", NULL},
    {"tokenizer", OPT_STRING, AT(tokenizer), "bpe", 0, 0, NULL, "bpe (trained on the corpus to model.vocab), bytes, or a tokenizer.json (token shards: the one they were made with)", NULL},
    {"max_bytes", OPT_INT, AT(max_bytes), "0", 0, 1e15, NULL, "most bytes of text to read; 0 = 1 GiB", NULL},
    {"docs", OPT_INT, AT(docs), "0", 0, 1e12, NULL, "most documents to read (synth, hops: to generate); 0 = all", NULL},
    {"val_fraction", OPT_REAL, AT(val_fraction), "0.05", 0, 0.5, NULL, "fraction of documents held out for validation, chosen by text hash (token shards: the last tokens, unless names hold train and val)", NULL},
    {"loss", OPT_ENUM, AT(loss), "all", 0, 0, "all|answers", "tokens that the loss counts, in training and evaluation: all, or the answers (of hops, or of JSON Lines with prompt and completion, or messages)", NULL},
    // clang-format on
};
const struct opt_group data_group = {
    .prefix = "data.", .title = "data", .opts = data_opts, .n = DS_LEN(data_opts)};
#undef AT

#define AT(field) offsetof(struct run_options, field)
static const struct opt run_opts[] = {
    // clang-format off
    {"seed", OPT_INT, AT(seed), "1", 0, 1e15, NULL, "random seed of weights, data order and random routing", NULL},
    {"threads", OPT_INT, AT(threads), "0", 0, 1024, NULL, "worker threads; 0 = as many as this process may use; results do not depend on it", NULL},
    {"compute", OPT_ENUM, AT(compute), "fp32", 0, 0, "fp32|bf16", "number format of matrix multiplications: bf16 rounds both inputs and accumulates in fp32; weights stay fp32", NULL},
    // clang-format on
};
const struct opt_group run_group = {
    .prefix = "", .title = "run", .opts = run_opts, .n = DS_LEN(run_opts)};
#undef AT

static const char *between(const struct str *all)
{
    return all->len ? "; " : "";
}

/* A preset writes ??? where the user must give a value: required for a run, the default when only
 * shown. */
static void check_open(const struct opt_group *g, void *values, int is_look, struct str *all)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct opt *o = &g->opts[i];
        char text[8];
        if (o->type != OPT_STRING)
            continue;
        opt_print(o, values, text, sizeof text);
        if (strcmp(text, "???") != 0)
            continue;
        if (!is_look)
            str_addf(all, "%smissing %s%s: the preset leaves it open, set %s%s=...", between(all),
                     g->prefix, o->key, g->prefix, o->key);
        else if (opt_set(o, values, o->otherwise, NULL, NULL) < 0)
            all->failed = 1;
    }
}

/* Applies the groups in turn and collects their errors. */
static void apply(struct config *c, const struct opt_group *g, void *values, struct str *all)
{
    struct err e = {0};
    int rc = opt_defaults(g, values, &e);
    if (rc == 0)
        rc = config_apply(c, g, values, &e);
    if (rc < 0)
        str_addf(all, "%s%s", between(all), e.text);
}

static void check_route_options(struct config *given, const struct route_ops *ops,
                                struct config *out, struct str *all)
{
    char prefix[40], key[128], value[256];
    struct opt_group g = route_group(ops, prefix);
    struct err e = {0};
    void *values = mem_alloc(1, ops->opts_size ? ops->opts_size : 1);
    if (!values) {
        all->failed = 1;
        return;
    }
    apply(given, &g, values, all);
    for (size_t i = 0; i < g.n; i++) {
        snprintf(key, sizeof key, "%s%s", prefix, g.opts[i].key);
        opt_print(&g.opts[i], values, value, sizeof value);
        if (config_set(out, key, value, "resolved", &e) < 0)
            all->failed = 1;
    }
    opt_release(&g, values);
    mem_free(values);
}

/* A preset may hold options of several methods; those of unselected methods are checked and
 * dropped. */
static void check_other_methods(struct config *given, const struct route_ops *chosen,
                                struct str *all)
{
    for (const struct route_ops *const *m = route_all(); *m; m++) {
        struct config unused = {0};
        if (*m != chosen)
            check_route_options(given, *m, &unused, all);
        config_release(&unused);
    }
}

static int check_unknown(const struct config *given, struct err *e)
{
    enum { GROUPS_MAX = 64 };
    static char prefix[GROUPS_MAX][40];
    struct opt_group methods[GROUPS_MAX];
    const struct opt_group *group[GROUPS_MAX] = {&train_group, &data_group, &run_group,
                                                 &model_group, &hops_group, &alert_group};
    size_t n = 6;
    for (const struct route_ops *const *m = route_all(); *m && n < GROUPS_MAX; m++, n++) {
        methods[n] = route_group(*m, prefix[n]);
        group[n] = &methods[n];
    }
    return config_check_unused(given, group, n, e);
}

/* Constraints between options. */
static void check_values(struct train_config *c, struct str *all)
{
    struct train_options *o = &c->train;
    long long max_seq = (long long)c->model.max_seq;
    if (o->seq > max_seq)
        str_addf(all, "%strain.seq=%lld: must be at most model.max_seq=%lld", between(all),
                 (long long)o->seq, max_seq);
    if (o->probe_tokens > max_seq && max_seq >= 2)
        o->probe_tokens = max_seq; /* clamp the default to a small context */
    if (o->pieces > o->batch)
        str_addf(all, "%strain.pieces=%lld: must be at most train.batch=%lld", between(all),
                 (long long)o->pieces, (long long)o->batch);
    if (o->wire == WIRE_BF16 && o->reduce != REDUCE_FAST)
        str_addf(all, "%strain.wire=bf16 rounds gradients: it needs train.reduce=fast",
                 between(all));
    if (o->pieces > 0 && o->reduce == REDUCE_FAST)
        str_addf(all, "%strain.pieces is for train.reduce=exact; fast takes one part per rank",
                 between(all));
    if (o->batch * o->seq > 1 << 24)
        str_addf(all,
                 "%strain.batch * train.seq = %lld tokens per step: must be at most 16,777,216",
                 between(all), (long long)(o->batch * o->seq));
}

static void check_data(const struct train_config *c, struct str *all)
{
    const struct hops_options *h = &c->data.hops;
    struct err e = {0};
    if (!c->data.path || strcmp(c->data.path, "hops") != 0)
        return;
    if (hops_check(h, &e) < 0)
        str_addf(all, "%s%s", between(all), e.text);
    else if (hops_tokens(h) > c->train.seq)
        str_addf(all,
                 "%strain.seq=%lld: must be at least %lld, the tokens of a document (hops.n * "
                 "hops.relations edges, hops.queries queries)%s",
                 between(all), (long long)c->train.seq, (long long)hops_tokens(h),
                 h->filler ? ", and more for hops.filler" : "");
}

/* Checkpoints may leave out the base only if it is frozen and stored elsewhere. */
static void check_save(const struct train_options *o, struct str *all)
{
    if (o->freeze != FREEZE_BASE && o->base_weights != WEIGHTS_AUTO)
        str_addf(all, "%strain.base_weights needs a frozen base; set train.freeze=base",
                 between(all));
    if (o->save != SAVE_OWN)
        return;
    if (o->freeze != FREEZE_BASE)
        str_addf(all, "%strain.save=own needs a frozen base; set train.freeze=base", between(all));
    if (!o->init[0])
        str_addf(all, "%strain.save=own needs a base model; set train.init=MODEL", between(all));
}

/* With a frozen base only adapters and the method's parameters (own) are trained. */
static void check_frozen(const struct train_config *c, const struct params *own, struct str *all)
{
    int n = c->model.lora_r > 0;
    for (int i = 0; i < own->n; i++)
        n += own->p[i].train;
    if (c->train.freeze == FREEZE_BASE && n == 0)
        str_addf(all,
                 "%strain.freeze=base: nothing to train: model.method=%s has no parameters "
                 "of its own and model.lora_r=0; model.lora_r=16 adds adapters",
                 between(all), c->model.method);
}

/* Distilling from the identical model has no effect. */
static void check_teacher(const struct train_config *c, struct str *all)
{
    if (train_has_teacher(&c->train) && strcmp(c->train.teacher, "self") == 0 &&
        strcmp(c->model.method, "dense") == 0 && c->model.lora_r == 0)
        str_addf(all,
                 "%strain.teacher=self: model.method=dense without adapters is its own teacher; "
                 "model.lora_r=16 adds adapters",
                 between(all));
}

static void check_exits(const struct train_config *c, struct str *all)
{
    struct err e = {0};
    if (exit_loss_check(c, &e) < 0)
        str_addf(all, "%s%s", between(all), e.text);
}

/* The method validates its options and the number of layers, as it does at the start of a run. */
static void check_method(struct train_config *c, const struct route_ops *ops, struct str *all)
{
    char prefix[40];
    struct opt_group g = route_group(ops, prefix);
    struct err e = {0};
    struct params none = {0};
    struct route_loop loop = model_config_loop(&c->model);
    struct route r = {0};
    struct config copy = {0};
    void *values = mem_alloc(1, ops->opts_size ? ops->opts_size : 1);
    int rc = values ? opt_defaults(&g, values, &e)
                    : err_set(&e, DS_EMEM, "out of memory for the options of %s", ops->name);
    if (rc == 0)
        rc = config_merge(&copy, &c->route, &e);
    if (rc == 0)
        rc = config_apply(&copy, &g, values, &e);
    if (rc == 0)
        rc = route_init(&r, ops, values, &none, model_config_depth(&c->model), (int)c->model.dim,
                        &loop, 1, &e);
    else if (values) {
        opt_release(&g, values);
        mem_free(values);
    }
    if (rc < 0)
        str_addf(all, "%s%s", between(all), e.text);
    else
        check_frozen(c, &none, all);
    c->method_params = params_count(&none);
    route_release(&r);
    params_release(&none);
    config_release(&copy);
}

/* The codes of the collected errors are not kept; err_set says this of no other. */
static int is_short_of_memory(const struct str *all)
{
    return all->failed || strstr(str_text(all), "out of memory") != NULL;
}

/* Adds all errors to `all`, not only the first one. */
static void resolve(struct train_config *c, struct config *given, int is_look, struct str *all)
{
    const struct {
        const struct opt_group *group;
        void *values;
    } part[] = {{&train_group, &c->train}, {&data_group, &c->data},   {&hops_group, &c->data.hops},
                {&run_group, &c->run},     {&alert_group, &c->alert}, {&model_group, &c->model}};
    for (size_t i = 0; i < DS_LEN(part); i++) {
        apply(given, part[i].group, part[i].values, all);
        if (is_short_of_memory(all))
            return; /* texts are missing, which the checks below read */
        check_open(part[i].group, part[i].values, is_look, all);
    }
    const struct route_ops *ops = c->model.method ? route_find(c->model.method) : NULL;
    if (ops) {
        check_route_options(given, ops, &c->route, all);
        check_other_methods(given, ops, all);
    } else if (c->model.method) {
        char hint[NEAREST_MAX + 32];
        struct nearest best = nearest_to(c->model.method);
        for (const struct route_ops *const *m = route_all(); *m; m++)
            nearest_try(&best, (*m)->name);
        str_addf(all, "%sunknown model.method=%s%s; expected one of:", between(all),
                 c->model.method, nearest_hint(&best, hint, sizeof hint));
        for (const struct route_ops *const *m = route_all(); *m; m++)
            str_addf(all, " %s", (*m)->name);
    }
    struct err unknown = {0}, shape = {0};
    if (ops && check_unknown(given, &unknown) < 0)
        str_addf(all, "%s%s", between(all), unknown.text);
    if (ops) {
        check_values(c, all);
        check_data(c, all);
        check_save(&c->train, all);
        check_teacher(c, all);
        check_exits(c, all);
        if (model_config_check(&c->model, &shape) < 0)
            str_addf(all, "%s%s", between(all), shape.text);
        check_method(c, ops, all);
    }
}

/* Purpose of a configuration: a resumed run has every key in its file; a new run takes the keys
 * that train.init decides from it; showing presets keeps ??? values open. */
enum purpose { PURPOSE_RESUME, PURPOSE_NEW, PURPOSE_LOOK };

/* `given`: the keys of presets or of a file; ownership is taken. */
static int make(struct train_config *c, struct config *given, const char *const *override, size_t n,
                enum purpose purpose, struct err *e)
{
    struct str all = {0};
    for (size_t i = 0; i < n; i++) {
        char where[32];
        struct err one = {0};
        snprintf(where, sizeof where, "setting %zu", i + 1);
        if (config_override(given, override[i], where, &one) < 0)
            str_addf(&all, "%s%s", between(&all), one.text);
    }
    if (purpose == PURPOSE_NEW)
        start_keys(given, &all);
    resolve(c, given, purpose == PURPOSE_LOOK, &all);
    int rc = 0;
    if (is_short_of_memory(&all))
        rc = err_set(e, DS_EMEM, "configuration");
    else if (all.len > 0)
        rc = err_set(e, DS_EUSAGE, "%s", str_text(&all));
    str_release(&all);
    config_release(given);
    if (rc < 0)
        train_config_release(c);
    return rc;
}

static int from_presets(struct train_config *c, const char *const *preset, size_t presets,
                        const char *const *override, size_t n, int is_look, struct err *e)
{
    struct config given = {0};
    memset(c, 0, sizeof *c);
    int rc = presets_read(&given, preset, presets, e);
    if (rc < 0) {
        config_release(&given);
        return rc;
    }
    presets_label(c->preset, sizeof c->preset, preset, presets);
    return make(c, &given, override, n, is_look ? PURPOSE_LOOK : PURPOSE_NEW, e);
}

int train_config_make(struct train_config *c, const char *const *preset, size_t presets,
                      const char *const *override, size_t n, struct err *e)
{
    return from_presets(c, preset, presets, override, n, 0, e);
}

int train_config_preview(struct train_config *c, const char *const *preset, size_t presets,
                         struct err *e)
{
    return from_presets(c, preset, presets, NULL, 0, 1, e);
}

int train_config_read(struct train_config *c, const char *dir, const char *const *override,
                      size_t n, int *is_lost, struct err *e)
{
    struct config given = {0};
    memset(c, 0, sizeof *c);
    int rc = runconfig_read(&given, dir, is_lost, e);
    if (rc < 0) {
        config_release(&given);
        return rc;
    }
    return make(c, &given, override, n, PURPOSE_RESUME, e);
}

void train_config_print(struct str *out, const struct train_config *c)
{
    config_print_group(out, &run_group, &c->run);
    config_print_group(out, &model_group, &c->model);
    config_print_group(out, &data_group, &c->data);
    if (strcmp(c->data.path, "hops") == 0)
        config_print_group(out, &hops_group, &c->data.hops);
    config_print_group(out, &train_group, &c->train);
    config_print_group(out, &alert_group, &c->alert);
    const struct route_ops *ops = route_find(c->model.method);
    char prefix[40];
    struct opt_group g = route_group(ops, prefix);
    void *values = mem_alloc(1, ops->opts_size ? ops->opts_size : 1);
    struct config copy = {0};
    int rc = values ? opt_defaults(&g, values, NULL) : DS_EMEM;
    if (rc == 0)
        rc = config_merge(&copy, &c->route, NULL);
    if (rc == 0)
        rc = config_apply(&copy, &g, values, NULL);
    if (rc == 0)
        config_print_group(out, &g, values);
    else
        out->failed = 1;
    if (values)
        opt_release(&g, values);
    mem_free(values);
    config_release(&copy);
}

static void each_of(const struct opt_group *g, const void *values,
                    void (*each)(void *, const char *, const char *), void *ctx)
{
    char key[128], space[64];
    for (size_t i = 0; i < g->n; i++) {
        snprintf(key, sizeof key, "%s%s", g->prefix, g->opts[i].key);
        each(ctx, key, opt_text(&g->opts[i], values, space, sizeof space));
    }
}

void train_config_for_each(const struct train_config *c,
                           void (*each)(void *ctx, const char *key, const char *value), void *ctx)
{
    each_of(&run_group, &c->run, each, ctx);
    each_of(&model_group, &c->model, each, ctx);
    each_of(&data_group, &c->data, each, ctx);
    if (strcmp(c->data.path, "hops") == 0)
        each_of(&hops_group, &c->data.hops, each, ctx);
    each_of(&train_group, &c->train, each, ctx);
    each_of(&alert_group, &c->alert, each, ctx);
    for (size_t i = 0; i < c->route.n; i++)
        each(ctx, c->route.entry[i].key, c->route.entry[i].value);
}

void train_config_release(struct train_config *c)
{
    opt_release(&train_group, &c->train);
    opt_release(&data_group, &c->data);
    opt_release(&run_group, &c->run);
    opt_release(&model_group, &c->model);
    config_release(&c->route);
    memset(c, 0, sizeof *c);
}
