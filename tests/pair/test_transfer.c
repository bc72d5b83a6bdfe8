/* Runs that start from another model, and runs whose base is frozen: what is copied, what stays
 * frozen, what is refused. */
#include <signal.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/safetensors.h"
#include "kit.h"
#include "kit_train.h"
#include "models/load.h"
#include "training/trainer.h"

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
    "train.checkpoint_every=4",
    NULL,
};
static const char *const shape[] = {"model.layers=6", "model.dim=16", "model.heads=2",
                                    "model.vocab=300", "data.tokenizer=bytes"};

/* The test's directory, in memory if available. */
static const char *room(void)
{
    static const char *dir;
    if (!dir && access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return dir ? dir : (dir = t_tmpdir());
}

/* A base trained here for a few steps: "train.init=..." in init, its checkpoint in dir. */
static void make_base(char init[700], char dir[600], const char *method)
{
    const char *more[16] = {0};
    struct err e = {0};
    char run[400];
    size_t n = 0;
    for (size_t i = 0; i < DS_LEN(shape); i++)
        more[n++] = shape[i];
    more[n++] = method;
    snprintf(run, sizeof run, "%s/base", room());
    t_ok(go(run, more, 0, 0, &e), &e);
    snprintf(dir, 600, "%s/checkpoints/step-%08d", run, STEPS);
    snprintf(init, 700, "train.init=%s", run);
}

static void refused(const char *const *more, int code, const char *part)
{
    struct train_config c;
    struct err e = {0};
    t_fails(make_config(&c, more, &e), &e, code, part);
    t_true(!strchr(e.text, '\n'));
}

/* Largest difference of a parameter in two checkpoints; -1 if only one has it. */
static double moved(const char *a, const char *b, const char *name)
{
    const char *dir[2] = {a, b};
    struct st *s[2] = {0};
    const struct st_tensor *t[2];
    struct err e = {0};
    double most = -1;
    for (int k = 0; k < 2; k++) {
        char path[700];
        snprintf(path, sizeof path, "%s/model.safetensors", dir[k]);
        t_ok(st_open(&s[k], path, &e), &e);
        t[k] = st_find(s[k], name);
    }
    if (t[0] && t[1]) {
        uint64_t n = t[0]->shape[0] * (t[0]->rank > 1 ? t[0]->shape[1] : 1);
        float *x = malloc(n * sizeof *x), *y = malloc(n * sizeof *y);
        t_ok(st_read_f32(t[0], x, n, &e), &e);
        t_ok(st_read_f32(t[1], y, n, &e), &e);
        most = 0;
        for (uint64_t i = 0; i < n; i++)
            most = fmax(most, fabs((double)x[i] - (double)y[i]));
        free(x);
        free(y);
    }
    st_close(s[0]);
    st_close(s[1]);
    return most;
}

T(a_run_starts_from_another_runs_weights_shape_and_tokenizer)
{
    char init[700], base[600], run[400], dir[600];
    struct err e = {0};
    struct train_config c;
    make_base(init, base, "model.method=dense");
    const char *more[] = {init, "model.method=edp", "train.lr=1e-9", NULL};
    t_ok(make_config(&c, more, &e), &e);
    t_eq(c.model.layers, 6);
    t_eq(c.model.dim, 16);
    t_eq(c.model.vocab, 257);
    t_str(c.train.init, base); /* this very checkpoint, as a better one may follow */
    t_true(strstr(c.data.tokenizer, "/tokenizer.json") != NULL);
    train_config_release(&c);
    snprintf(run, sizeof run, "%s/run", room());
    t_ok(go(run, more, 0, 0, &e), &e);
    t_truef(strstr(told, "56 tensors from ") && strstr(told, "new (edp."), "%s", told);
    snprintf(dir, sizeof dir, "%s/checkpoints/step-%08d", run, STEPS);
    t_near(moved(base, dir, "model.layers.5.mlp.down_proj.weight"), 0, 1e-6);
    t_near(moved(base, dir, "model.embed_tokens.weight"), 0, 1e-6);
}

T(a_start_drops_another_methods_parameters_and_keeps_its_own)
{
    char init[700], base[600], run[400], dir[600];
    struct err e = {0};
    make_base(init, base, "model.method=edp");
    const char *dense[] = {init, "model.method=dense", "train.lr=1e-9", NULL};
    snprintf(run, sizeof run, "%s/dense", room());
    t_ok(go(run, dense, 0, 0, &e), &e);
    t_truef(strstr(told, "ignored (edp.threshold"), "%s", told);
    const char *edp[] = {init, "model.method=edp", "train.lr=1e-9", NULL};
    snprintf(run, sizeof run, "%s/edp", room());
    t_ok(go(run, edp, 0, 0, &e), &e);
    t_truef(!strstr(told, "ignored") && !strstr(told, " new ("), "%s", told);
    snprintf(dir, sizeof dir, "%s/checkpoints/step-%08d", run, STEPS);
    t_near(moved(base, dir, "edp.score.weight"), 0, 1e-6);
}

T(keys_that_contradict_the_initial_model_name_both_values)
{
    char init[700], base[600];
    make_base(init, base, "model.method=dense");
    refused((const char *[]){init, "model.layers=8", NULL}, DS_EUSAGE,
            "model.layers=8: expected 6");
    refused((const char *[]){init, "model.tied=false", NULL}, DS_EUSAGE,
            "model.tied=false: expected true from train.init");
    struct train_config c;
    struct err e = {0};
    const char *same[] = {init,           "model.layers=6",         "model.kv_heads=0",
                          "model.ffn=64", "model.norm_eps=0.00001", NULL};
    t_ok(make_config(&c, same, &e), &e);
    t_eq(c.model.kv_heads, 2);
    train_config_release(&c);
}

T(a_missing_or_unreadable_start_is_refused_in_one_line)
{
    char init[700], base[600], path[700];
    struct err e = {0};
    refused((const char *[]){"train.init=nowhere", NULL}, DS_EUSAGE, "nowhere: model not found");
    make_base(init, base, "model.method=dense");
    const char *more[] = {init, "model.method=dense", NULL};
    snprintf(path, sizeof path, "%s/model.safetensors", base);
    t_ok(fs_write_file(path, "short", 5, &e), &e);
    char dir[700];
    snprintf(dir, sizeof dir, "train.init=%s",
             base); /* a damaged directory given by its own path */
    more[0] = dir;
    snprintf(path, sizeof path, "%s/run", room());
    t_fails(go(path, more, 0, 0, &e), &e, DS_EFORMAT, "model.safetensors");
    snprintf(path, sizeof path, "%s/config.json", base);
    t_ok(fs_write_file(path, "{", 1, &e), &e);
    refused(more, DS_EUSAGE, "config.json");
}

/* The tensors of `from` without the first `skip`, and one more if `extra` is not NULL. */
static void write_tensors(const struct model *m, const char *dir, int skip, const char *extra)
{
    struct st_out out[200];
    static const char *const meta[] = {"format", "pt"};
    struct err e = {0};
    char path[700];
    float zero[4] = {0};
    size_t n = 0;
    for (int i = skip; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        out[n++] = (struct st_out){.name = p->name,
                                   .dtype = ST_F32,
                                   .rank = p->rank,
                                   .shape = {(uint64_t)p->shape[0], (uint64_t)p->shape[1]},
                                   .data = p->value};
    }
    if (extra)
        out[n++] =
            (struct st_out){.name = extra, .dtype = ST_F32, .rank = 1, .shape = {4}, .data = zero};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(st_write(path, out, n, meta, 1, &e), &e);
}

T(a_missing_or_unknown_base_tensor_is_refused)
{
    struct model *m =
        kit_model("model.method=dense model.layers=1 model.dim=8 model.heads=2", 1, 8, 0, 0);
    const char *dir = room();
    struct err e = {0};
    struct str line = {0};
    write_tensors(m, dir, 0, NULL);
    t_ok(model_start_from(m, dir, &line, &e), &e);
    write_tensors(m, dir, 2, NULL);
    t_fails(model_start_from(m, dir, &line, &e), &e, DS_EFORMAT,
            "9 tensors used, 2 missing (model.embed_tokens.weight, "
            "model.layers.0.input_layernorm.weight), 0 unexpected");
    write_tensors(m, dir, 0, "model.layers.1.input_layernorm.weight");
    t_fails(model_start_from(m, dir, &line, &e), &e, DS_EFORMAT,
            "11 tensors used, 0 missing, 1 unexpected (model.layers.1.input_layernorm.weight)");
    write_tensors(m, dir, 0, "transformer.wte");
    t_fails(model_start_from(m, dir, &line, &e), &e, DS_EFORMAT, "transformer.wte");
    str_release(&line);
    model_free(m);
}

T(a_run_resumes_without_its_source_once_it_has_a_checkpoint)
{
    char init[700], base[600], run[400], away[800], path[500], gone[600];
    struct err e = {0};
    make_base(init, base, "model.method=dense");
    const char *more[] = {init, "model.method=dense", "train.checkpoint_every=2", NULL};
    snprintf(run, sizeof run, "%s/run", room());
    t_eq(go(run, more, 0, 3, &e), DS_ESTOP);
    snprintf(away, sizeof away, "%s-moved", init + strlen("train.init="));
    t_eq(rename(init + strlen("train.init="), away), 0);
    t_ok(go(run, NULL, 1, 0, &e), &e);
    snprintf(path, sizeof path, "%s/checkpoints", run);
    snprintf(gone, sizeof gone, "%s-gone", path);
    t_eq(rename(path, gone), 0);
    t_fails(go(run, NULL, 1, 0, &e), &e, DS_ENOTFOUND,
            "train.init (required until the first checkpoint)");
}

/* ---- a frozen base ---- */

T(a_frozen_base_keeps_every_bit_and_has_no_gradients)
{
    static struct kit_batch k;
    struct model *m = kit_model("model.method=edp model.layers=6 model.dim=16 model.heads=2 "
                                "model.vocab=50 edp.threshold=learned",
                                1, 32, MODEL_TRAIN_OWN, 1);
    struct model *all = kit_model("model.method=edp model.layers=6 model.dim=16 model.heads=2 "
                                  "model.vocab=50 edp.threshold=learned",
                                  1, 32, MODEL_TRAIN, 1);
    double own = 0;
    kit_fill(&k, 2, 16, 50, 1);
    real *before = kit_copy(m->params.p[0].value, m->params.p[0].n);
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        if (i < m->n_base)
            t_truef(!p->train && !p->grad && !p->m && !p->v, "%s", p->name);
    }
    t_true(m->params.block_bytes < all->params.block_bytes / 3);
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_step(m, &k.b, &pass);
    kit_step(all, &k.b, &pass);
    for (int i = 0; i < m->params.n; i++) { /* the same gradients, if any */
        const struct param *p = &m->params.p[i], *q = &all->params.p[i];
        t_str(p->name, q->name);
        if (!p->train)
            continue;
        t_truef(kit_same(p->grad, q->grad, p->n), "%s", p->name);
        for (size_t j = 0; j < p->n; j++)
            own += fabs((double)p->grad[j]);
    }
    t_true(own > 0);
    kit_train(m, &k.b, 1, 10, 0.1);
    t_true(kit_same(before, m->params.p[0].value, m->params.p[0].n));
    free(before);
    model_free(m);
    model_free(all);
}

/* Packed copies of frozen matrices are made once, and again after values are written. */
T(values_written_into_a_frozen_base_are_used)
{
    static struct kit_batch k;
    struct model *m = kit_model("model.method=edp model.layers=6 model.dim=16 model.heads=2 "
                                "model.vocab=50 edp.threshold=learned",
                                1, 32, MODEL_TRAIN_OWN, 1);
    kit_fill(&k, 2, 16, 50, 1);
    struct pass pass = kit_pass(PASS_DENSE);
    model_forward(m, &k.b, &pass);
    double a = model_loss(m, 0, 0);
    kit_train(m, &k.b, 1, 10, 0.1);
    model_forward(m, &k.b, &pass);
    t_true(model_loss(m, 0, 0) == a);
    for (int i = 0; i < m->n_base; i++)
        for (size_t j = 0; m->params.p[i].rank == 2 && j < m->params.p[i].n; j++)
            m->params.p[i].value[j] *= 2;
    params_changed(&m->params);
    model_forward(m, &k.b, &pass);
    t_true(model_loss(m, 0, 0) != a);
    model_free(m);
}

T(a_frozen_base_with_nothing_left_to_train_is_refused)
{
    refused((const char *[]){"model.method=dense", "train.freeze=base", NULL}, DS_EUSAGE,
            "nothing to train");
    refused((const char *[]){"model.method=random", "train.freeze=base", NULL}, DS_EUSAGE,
            "model.lora_r=16 adds adapters");
}

T(a_frozen_run_trains_its_method_alone)
{
    char init[700], base[600], run[400], dir[600];
    struct err e = {0};
    make_base(init, base, "model.method=edp");
    const char *more[] = {init, "model.method=edp", "edp.threshold=learned", "train.freeze=base",
                          NULL};
    snprintf(run, sizeof run, "%s/run", room());
    t_ok(go(run, more, 0, 0, &e), &e);
    snprintf(dir, sizeof dir, "%s/checkpoints/step-%08d", run, STEPS);
    t_eq(moved(base, dir, "model.layers.3.self_attn.q_proj.weight"), 0);
    t_eq(moved(base, dir, "model.norm.weight"), 0);
    t_true(moved(base, dir, "edp.score.weight") > 0);
}

/* ---- adapters ---- */

static void same_files(const char *a, const char *b)
{
    static const char *const file[] = {"model.safetensors", "optimizer.safetensors"};
    for (size_t i = 0; i < DS_LEN(file); i++) {
        char path[900], x[65], y[65];
        struct err e = {0};
        snprintf(path, sizeof path, "%s/checkpoints/step-%08d/%s", a, STEPS, file[i]);
        t_ok(sha256_file(path, x, &e), &e);
        snprintf(path, sizeof path, "%s/checkpoints/step-%08d/%s", b, STEPS, file[i]);
        t_ok(sha256_file(path, y, &e), &e);
        t_truef(strcmp(x, y) == 0, "%s differs", file[i]);
    }
}

/* Uninterrupted against stopped between two checkpoints and resumed: the same bytes. */
static void check_resume(const char *const *more, char run[2][400])
{
    struct err e = {0};
    for (int i = 0; i < 2; i++)
        snprintf(run[i], 400, "%s/run-%d", room(), i);
    t_ok(go(run[0], more, 0, 0, &e), &e);
    t_eq(go(run[1], more, 0, 3, &e), DS_ESTOP);
    t_ok(go(run[1], NULL, 1, 0, &e), &e);
    same_files(run[0], run[1]);
}

T(a_dense_model_with_adapters_trains_resumes_and_opens)
{
    char init[700], base[600], run[2][400], dir[600];
    struct err e = {0};
    struct model *m = NULL;
    make_base(init, base, "model.method=dense");
    const char *more[] = {init,       "model.method=dense", "train.freeze=base",
                          "lora_r=4", "lora_dropout=0.1",   "lora_targets=q,k,v,o,gate,up,down",
                          NULL};
    check_resume(more, run);
    snprintf(dir, sizeof dir, "%s/checkpoints/step-%08d", run[0], STEPS);
    t_eq(moved(base, dir, "model.layers.3.self_attn.q_proj.weight"), 0);
    t_eq(moved(base, dir, "model.layers.3.self_attn.q_proj.lora_A.weight"), -1);
    t_ok(model_open(&m, dir, NULL, 0, &e), &e);
    t_eq(m->adapters, 6 * 7);
    for (int i = 0; i < m->adapters; i++) {
        const struct param *b = &m->params.p[m->adapter[i].b];
        double sum = 0;
        for (size_t k = 0; k < b->n; k++)
            sum += fabs((double)b->value[k]);
        t_truef(sum > 0, "%s never moved", b->name);
    }
    model_free(m);
    /* a start from it keeps its adapters, or drops them for another rank */
    snprintf(init, sizeof init, "train.init=%s", run[0]);
    const char *again[] = {init, "model.method=dense", NULL};
    snprintf(dir, sizeof dir, "%s/again", room());
    t_ok(go(dir, again, 0, 0, &e), &e);
    t_truef(strstr(told, "140 tensors from") && !strstr(told, " new ("), "%s", told);
    const char *other[] = {init, "model.method=dense", "lora_r=2", NULL};
    snprintf(dir, sizeof dir, "%s/other", room());
    t_ok(go(dir, other, 0, 0, &e), &e);
    t_truef(strstr(told, "84 new (") && strstr(told, "84 ignored"), "%s", told);
}

/* ---- teachers ---- */

static char logged[8][400];
static double kd_of[STEPS + 1];

static void note_kd(void *ctx, const struct trainer *t)
{
    (void)ctx;
    kd_of[t->state.step] = t->report.has_kd ? t->report.kd : -1;
}

static void run_noting(const char *dir, const char *const *more)
{
    struct train_config c;
    struct err e = {0};
    t_ok(make_config(&c, more, &e), &e);
    t_ok(trainer_create(dir, &c, 0, NULL, "test", NULL, &e), &e);
    trainer = (struct trainer){.stop_signal = &asked, .version = "test", .on_step = note_kd};
    t_ok(trainer_open(&trainer, dir, &c, 0, 0, &e), &e);
    train_config_release(&c);
    t_ok(trainer_run(&trainer, &e), &e);
    trainer_close(&trainer);
}

T(a_self_distilled_run_resumes_and_counts_its_warm_up)
{
    char init[700], base[600], run[2][400], dir[500];
    make_base(init, base, "model.method=dense");
    const char *more[] = {init,           "model.method=edp",  "edp.threshold=learned",
                          "lora_r=2",     "train.freeze=base", "train.teacher=self",
                          "kd_alpha=0.3", "kd_warmup_steps=1", NULL};
    check_resume(more, run);
    snprintf(dir, sizeof dir, "%s/noted", room());
    run_noting(dir, more);
    t_eq(kd_of[1], -1);
    for (int i = 2; i <= STEPS; i++)
        t_truef(kd_of[i] > 0, "step %d: %g", i, kd_of[i]);
}

T(a_teacher_of_weight_zero_changes_no_bit)
{
    static const char *const silent[] = {"kd_alpha=1", "no_kd=true", "train.kd_warmup=4"};
    char init[700], base[600];
    struct err e = {0};
    make_base(init, base, "model.method=dense");
    for (int i = 0; i < 4; i++) {
        const char *more[] = {init,
                              "model.method=dense",
                              "lora_r=2",
                              i ? "train.teacher=self" : "train.teacher=off",
                              i ? silent[i - 1] : NULL,
                              NULL};
        snprintf(logged[i], sizeof logged[i], "%s/silent-%d", room(), i);
        t_ok(go(logged[i], more, 0, 0, &e), &e);
        same_files(logged[0], logged[i]);
    }
}

T(another_model_with_the_same_vocabulary_can_be_the_teacher)
{
    char init[700], base[600], by[800], path[900];
    struct err e = {0};
    make_base(init, base, "model.method=dense");
    snprintf(by, sizeof by, "train.teacher=%s", init + strlen("train.init="));
    const char *small[] = {by,
                           "model.method=dense",
                           "model.layers=2",
                           "model.dim=8",
                           "model.heads=2",
                           "data.tokenizer=bytes",
                           "train.kd_warmup=0",
                           NULL};
    snprintf(path, sizeof path, "%s/small", room());
    run_noting(path, small);
    t_true(kd_of[1] > 0 && kd_of[STEPS] > 0);
    const char *other[] = {by,
                           "model.method=dense",
                           "model.layers=2",
                           "model.dim=8",
                           "model.heads=2",
                           "model.vocab=300",
                           NULL};
    snprintf(path, sizeof path, "%s/other", room());
    t_fails(go(path, other, 0, 0, &e), &e, DS_EFORMAT,
            "vocabulary of 257 tokens, expected the student's 300");
    t_true(strstr(e.text, "train.teacher=") != NULL && !strchr(e.text, '\n'));
    const char *same[] = {by,
                          "model.method=dense",
                          "model.layers=2",
                          "model.dim=8",
                          "model.heads=2",
                          "model.vocab=257",
                          NULL};
    snprintf(path, sizeof path, "%s/same", room());
    t_fails(go(path, same, 0, 0, &e), &e, DS_EFORMAT, "different ids to the same 257 tokens");
}

T(an_impossible_teacher_is_refused_in_one_line)
{
    refused((const char *[]){"train.teacher=nowhere", NULL}, DS_EUSAGE,
            "train.teacher (off, self, or a model): nowhere: model not found");
    refused((const char *[]){"train.teacher=self", "model.method=dense", NULL}, DS_EUSAGE,
            "is its own teacher");
    refused((const char *[]){"train.kd_alpha=1.5", NULL}, DS_EUSAGE, "must be 0 to 1");
}
