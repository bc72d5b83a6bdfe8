/* What a run tells, read back as the workbench reads it; steps with NaN; settings changed on the way. */
#include <math.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/runview.h"
#include "t.h"
#include "training/fork.h"
#include "training/trainer.h"

enum { KEYS_MAX = 40 };

static const char *const tiny[] = {
    "model.layers=6",        "model.dim=16",          "model.heads=2",
    "model.vocab=300",       "model.max_seq=64",      "data.docs=20",
    "data.tokenizer=bytes",  "data.val_fraction=0.2", "train.batch=4",
    "train.seq=32",          "train.warmup=3",        "train.steps=12",
    "train.eval_every=5",    "train.eval_tokens=128", "train.final_tokens=256",
    "train.samples=100",     "train.time_rounds=1",   "train.probes=2",
    "train.probe_tokens=16", "train.probe_every=4",   "train.checkpoint_every=6",
    "train.layer_every=3",
};

static struct trainer trainer;
static atomic_int asked;

static void silent(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

/* `keys`: more overrides, ends with NULL. */
static void make_config(struct train_config *c, const char *const *keys)
{
    const char *key[KEYS_MAX];
    struct err e = {0};
    size_t n = 0;
    for (size_t i = 0; i < DS_LEN(tiny); i++)
        key[n++] = tiny[i];
    while (keys && *keys)
        key[n++] = *keys++;
    t_ok(train_config_make(c, NULL, 0, key, n, &e), &e);
}

static const char *room(void)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return t_tmpdir();
}

static void open_run(const char *dir, const char *const *keys, int resume,
                     void (*on_step)(void *, const struct trainer *), void *ctx)
{
    struct train_config c;
    struct err e = {0};
    log_to(silent, NULL);
    make_config(&c, keys);
    if (!resume)
        t_ok(trainer_create(dir, &c, 0, NULL, "9.9", "mother", &e), &e);
    atomic_store(&asked, 0);
    trainer =
        (struct trainer){.stop_signal = &asked, .version = "9.9", .on_step = on_step, .ctx = ctx};
    t_ok(trainer_open(&trainer, dir, &c, resume, 0, &e), &e);
    train_config_release(&c);
}

/* A whole run, and the view of it. */
static struct runview *run_and_view(const char *dir, const char *const *keys)
{
    struct err e = {0};
    struct runview *v = NULL;
    open_run(dir, keys, 0, NULL, NULL);
    t_ok(trainer_run(&trainer, &e), &e);
    trainer_close(&trainer);
    t_ok(runview_open(&v, dir, &e), &e);
    return v;
}

static void check_head(const struct runview *v)
{
    t_str(v->method, "edp");
    t_str(v->version, "9.9");
    t_eq(v->layers, 6);
    t_eq(v->steps_planned, 12);
    t_eq(v->seed, 1);
    t_true(v->vocab >= 256 && v->params > 1000 && v->params_non_embedding < v->params);
    t_true(v->flops_dense > 1000 && v->host[0]);
    t_str(runview_config(v, "train.steps"), "12");
    t_str(runview_config(v, "edp.target_ratio"), "0.6");
    t_str(runview_config(v, "data.path"), "synth");
    t_str(v->peak_format, "fp32");
    t_true(v->peak_gflops > 0.01 && v->peak_gflops < 1e6);
    t_eq(v->arenas, 3);
    t_str(v->arena[0].name, "weights");
    t_true(v->arena[0].bytes > 15.0 * (double)v->params); /* frozen ones have one number */
    for (int i = 0; i < v->arenas; i++)
        t_true(v->arena[i].bytes > 0);
    t_eq(v->state, RUN_DONE);
    t_eq(v->step, 12);
    t_eq(v->gaps + v->lost + v->invalid + v->repeats + v->tail, 0);
}

static void check_series(const struct runview *v)
{
    for (const struct run_metric *m = run_metrics; m->name; m++) {
        const struct series *s = runview_series(v, m->name);
        int is_val = m->when == offsetof(struct step_report, has_val);
        size_t n = is_val    ? 4 /* 5, 6 (checkpoint), 10, 12 */
                   : m->when ? 0 /* no distillation */
                             : 12;
        if (m->flags & METRIC_PER_LAYER || n == 0) {
            t_true(s == NULL);
            continue;
        }
        t_truef(s && s->n == n, "%s: %zu points", m->name, s ? s->n : 0);
        t_str(s->help, m->help);
        t_eq(s->nonfinite, 0);
    }
    t_true(runview_series(v, "target_ratio") && runview_series(v, "target_ratio")->n == 12);
    t_near(runview_series(v, "target_ratio")->value[11], 0.6, 1e-9); /* edp.target_ratio */
    const struct series *s = runview_series(v, "tokens");
    t_near(s->value[11], 12 * 4 * 32, 0);
    t_near(runview_series(v, "loss")->tokens[0], 4 * 32, 0);
    t_true(runview_series(v, "budget_dual") && !runview_series(v, "regret_error")); /* of signal=regret alone */
}

/* Every step's parts are its duration, none is negative; MFU is of all rows of the batch (the training is masked), of
 * which attention over short documents costs less than flops_dense has it. */
static void check_account(const struct runview *v, size_t steps, int sessions)
{
    static const char *const name[] = {"time_forward",   "time_loss", "time_backward",
                                       "time_optimizer", "time_data", "time_record"};
    const struct series *whole = runview_series(v, "step_ms"), *mfu = runview_series(v, "mfu"),
                        *evaluation = runview_series(v, "evaluation_share"),
                        *checkpoint = runview_series(v, "checkpoint_share");
    t_true(whole && whole->n == steps && mfu && mfu->n == steps);
    for (size_t i = 0; i < steps; i++) {
        double sum = 0;
        for (size_t k = 0; k < DS_LEN(name); k++) {
            const struct series *s = runview_series(v, name[k]);
            t_truef(s && s->n == steps && s->value[i] >= 0, "%s", name[k]);
            sum += k < 5 ? s->value[i] : 0;
        }
        t_near(sum, whole->value[i], 1e-9 * sum);
        double ran = mfu->value[i] * whole->value[i] * 1e6 * v->peak_gflops,
               most = 3 * 4 * 32 * v->flops_dense;
        if (sessions == 1) /* each session measures its own peak; the view knows one of them */
            t_truef(ran > 0.7 * most && ran <= most * 1.000001, "%g FLOPs of %g", ran, most);
        t_true(ran > 0);
        t_true(evaluation->value[i] > 0 && checkpoint->value[i] >= 0 &&
               evaluation->value[i] + checkpoint->value[i] < 1);
    }
    t_true(runview_series(v, "time_forward")->value[0] > 0);
}

/* The blocks hold most of the global gradient; what is left is that of embedding and norm.  AdamW
 * moves every weight by at most about the learning rate a step. */
static void check_norms(const struct runview *v)
{
    const struct layer_series *grad = runview_layer(v, "layer_grad_norm"),
                              *update = runview_layer(v, "layer_update_ratio");
    const struct series *whole = runview_series(v, "grad_norm"), *lr = runview_series(v, "lr");
    for (size_t i = 0; i < grad->n; i++) {
        size_t at = (size_t)grad->step[i] - 1;
        double sum = 0;
        for (size_t l = 0; l < 6; l++) {
            double g = (double)grad->value[i * 6 + l], u = (double)update->value[i * 6 + l];
            t_true(g > 0 && u > 0);
            t_truef(u < 60 * lr->value[at], "layer %zu: %g at lr %g", l, u, lr->value[at]);
            sum += g * g;
        }
        double all = whole->value[at] * whole->value[at];
        t_truef(sum < all && sum > 0.001 * all, "%g of %g", sum, all);
    }
}

static void check_layers(const struct runview *v)
{
    static const char *const name[] = {"gate_ratio", "threshold", "signal_mean", "signal_sd",
                                       "forced_rate"};
    for (size_t i = 0; i < DS_LEN(name); i++) {
        const struct layer_series *s = runview_layer(v, name[i]);
        t_truef(s && s->n == 4 && s->layers == 6, "layer metric %s", name[i]);
    }
    for (const struct run_metric *m = run_metrics; m->name; m++) {
        const struct layer_series *s = runview_layer(v, m->name);
        int is_there = m->flags & METRIC_PER_LAYER && !(m->flags & METRIC_VALIDATION);
        t_truef(is_there == !!s, "%s", m->name);
        t_truef(!s || (s->n == 4 && s->layers == 6 && strcmp(s->help, m->help) == 0), "%s",
                m->name);
    }
    check_norms(v);
    const struct layer_series *gate = runview_layer(v, "gate_ratio");
    t_near(gate->value[0], 1, 0);
    t_near(gate->value[5], 1, 0);
}

static void check_probe(const struct runview *v)
{
    t_eq(v->n_probes, 2 * 4); /* at 0, 4, 8, 12 */
    const struct probe *p = runview_probe(v, 1);
    t_true(p && p->tokens == 16 && p->layers == 6 && p->step == 12 &&
           strncmp(p->name, "synth-", 6) == 0);
    t_true(p->depth && p->nll && p->entropy && p->flops && p->flops_dense > 0);
    t_true(isnan(p->nll[0]));
    for (int i = 0; i < p->tokens; i++) {
        int depth = 0;
        for (int l = 0; l < p->layers; l++)
            depth += p->run[l * p->tokens + i];
        t_near(p->depth[i], depth, 0);
        t_true(p->run[i] == 1 && p->run[5 * p->tokens + i] == 1 && p->piece_len[i] > 0);
        t_true(i == 0 || (isfinite(p->nll[i]) && p->nll[i] > 0));
        t_true((double)p->flops[i] > 0);
    }
    static const char *const cell[] = {"score",        "threshold", "gate", "velocity",
                                       "acceleration", "forced",    "flops"};
    for (size_t i = 0; i < DS_LEN(cell); i++) {
        const struct matrix *m = probe_cell(p, cell[i]);
        t_truef(m && m->rows == 6 && m->cols == 16, "cell %s", cell[i]);
    }
    const struct vector *truth = probe_token(p, "true_entropy");
    t_true(truth && truth->n == 16 && isfinite(truth->v[3]));
    const struct vector *kind = probe_token(p, "class");
    t_true(kind && kind->n == 16);
    for (int i = 0; i < 16; i++)
        t_truef(runview_class((int)kind->v[i]) != NULL, "class %g", (double)kind->v[i]);
}

static void check_evals(const struct runview *v)
{
    t_eq(v->n_evals, 4);
    t_eq(v->n_samples, 1);
    static const char *const value[] = {"loss",        "bits_per_byte", "tokens",     "block_ratio",
                                        "flops_ratio", "time_ratio",    "depth_mean", "depth_sd"};
    for (size_t i = 0; i < DS_LEN(value); i++)
        t_truef(isfinite(runview_eval(v, "final", value[i])), "final %s", value[i]);
    const struct vector *capacity = runview_eval_vector(v, "final", "capacity");
    t_true(capacity && capacity->n == 6 && capacity->v[0] == 1);
    const struct run_sample *s = runview_sample(v, "val");
    t_true(s && s->n == 100);
    static const char *const column[] = {"depth", "signal",       "entropy", "nll",
                                         "flops", "true_entropy", "position"};
    for (size_t i = 0; i < DS_LEN(column); i++)
        t_truef(sample_column(s, column[i]) && sample_column(s, column[i])->n == 100, "column %s",
                column[i]);
}

T(a_run_records_head_metrics_layers_probes_evaluations_samples_events_and_end)
{
    struct runview *v = run_and_view(room(), NULL);
    check_head(v);
    check_series(v);
    check_account(v, 12, 1);
    check_layers(v);
    check_probe(v);
    check_evals(v);
    t_eq(v->n_events, 2);
    for (size_t i = 0; i < v->n_events; i++)
        t_str(v->event[i].name, "checkpoint");
    runview_free(v);
}

T(every_method_records_a_run_that_reads_back)
{
    static const char *const method[] = {"model.method=dense", "model.method=random",
                                         "model.method=static"};
    const char *root = room();
    for (size_t i = 0; i < DS_LEN(method); i++) {
        char dir[300];
        const char *const keys[] = {method[i], "train.steps=3", NULL};
        snprintf(dir, sizeof dir, "%s/%zu", root, i);
        struct runview *v = run_and_view(dir, keys);
        t_str(v->method, strchr(method[i], '=') + 1);
        t_eq(v->state, RUN_DONE);
        t_eq(v->gaps + v->lost + v->invalid, 0);
        t_true(runview_series(v, "loss") && runview_layer(v, "gate_ratio") && runview_probe(v, 0));
        t_true(isfinite(runview_eval(v, "final", "flops_ratio")));
        runview_free(v);
    }
}

/* A share of 0 would alert, although nothing has collapsed. */
T(layers_of_iterations_that_were_not_drawn_have_no_share)
{
    const char *const keys[] = {"model.method=mod", "model.layers=2",      "model.loop=6",
                                "model.loop_min=1", "train.layer_every=1", NULL};
    struct runview *v = run_and_view(room(), keys);
    const struct layer_series *s = runview_layer(v, "gate_ratio");
    int closed = 0;
    t_true(s && s->n == 12 && s->layers == 12);
    for (size_t i = 0; i < s->n; i++)
        for (int l = 0; l < s->layers; l++) {
            float share = s->value[i * (size_t)s->layers + (size_t)l];
            closed += isnan(share);
            t_truef(isnan(share) || share > 0, "step %zu, layer %d", i + 1, l);
        }
    t_true(closed > 0 && closed < 12 * 12);
    runview_free(v);
}

T(settings_of_zero_probes_samples_and_timings_are_fine)
{
    const char *const keys[] = {"train.probes=0",      "train.samples=0",   "train.time_rounds=0",
                                "data.val_fraction=0", "train.log_every=5", NULL};
    struct runview *v = run_and_view(room(), keys);
    t_eq(v->n_probes + v->n_evals, 0);
    t_eq(runview_series(v, "loss")->n, 3); /* 5, 10, 12 */
    t_true(!runview_series(v, "val_loss"));
    runview_free(v);
    v = run_and_view(room(), (const char *const[]){"train.samples=0", NULL});
    t_true(isfinite(runview_eval(v, "final", "loss")));
    t_eq(v->n_samples, 0);
    t_eq(v->gaps + v->lost + v->invalid, 0);
    runview_free(v);
}

/* ---- NaN ---- */

struct watch {
    uint64_t hash[32]; /* of all weights and moments, by step */
    int64_t skipped[32];
};

static uint64_t hash_of(const struct params *ps)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (int i = 0; i < ps->n; i++) {
        const real *const part[] = {ps->p[i].value, ps->p[i].m, ps->p[i].v};
        for (int k = 0; k < 3; k++) {
            const unsigned char *b = (const unsigned char *)part[k];
            for (size_t j = 0; b && j < ps->p[i].n * sizeof(real); j++)
                h = (h ^ b[j]) * 1099511628211u;
        }
    }
    return h;
}

static void watch_step(void *ctx, const struct trainer *t)
{
    struct watch *w = ctx;
    w->hash[t->state.step] = hash_of(&t->model->params);
    w->skipped[t->state.step] = t->state.skipped;
}

static int count_events(const struct runview *v, const char *name, const char *part)
{
    int n = 0;
    for (size_t i = 0; i < v->n_events; i++)
        n += strcmp(v->event[i].name, name) == 0 && strstr(v->event[i].text, part) != NULL;
    return n;
}

T(a_step_with_nan_leaves_every_weight_untouched_and_is_counted)
{
    struct watch w = {0};
    struct err e = {0};
    struct runview *v = NULL;
    const char *dir = room();
    setenv("DEPTHSCOPE_FAIL", "nan:5", 1);
    open_run(dir, NULL, 0, watch_step, &w);
    t_ok(trainer_run(&trainer, &e), &e);
    trainer_close(&trainer);
    t_true(w.hash[3] != w.hash[4] && w.hash[4] == w.hash[5] && w.hash[5] != w.hash[6]);
    t_eq(w.skipped[4], 0);
    t_eq(w.skipped[5], 1);
    t_eq(w.skipped[12], 1);
    t_ok(runview_open(&v, dir, &e), &e);
    t_eq(v->state, RUN_DONE);
    t_eq(count_events(v, "nan", "weights untouched"), 1);
    t_near(runview_series(v, "skipped_steps")->value[4], 1, 0);
    t_eq(runview_series(v, "grad_norm")->nonfinite, 1);
    runview_free(v);
}

T(nan_without_end_stops_the_run_and_its_last_good_checkpoint_is_resumed)
{
    struct watch w = {0};
    struct err e = {0};
    struct runview *v = NULL;
    const char *dir = room();
    const char *const keys[] = {"train.nan_limit=3", "train.checkpoint_every=2", NULL};
    setenv("DEPTHSCOPE_FAIL", "nan:5+", 1);
    open_run(dir, keys, 0, watch_step, &w);
    t_eq(trainer_run(&trainer, &e), DS_ENUMERIC);
    trainer_close(&trainer);
    t_true(strstr(e.text, "train.nan_limit"));
    t_true(strstr(e.text, "last good checkpoint: step 4: depthscope train --resume "));
    t_true(strstr(e.text, "--allow-change train.lr=")); /* nothing else would change */
    t_ok(runview_open(&v, dir, &e), &e);
    t_eq(v->state, RUN_FAILED);
    t_eq(v->step, 7);
    t_eq(count_events(v, "nan", ""), 3);
    t_eq(runview_series(v, "loss")->n, 7);
    runview_free(v);

    setenv("DEPTHSCOPE_FAIL", "", 1);
    open_run(dir, keys, 1, watch_step, &w); /* and it continues from there */
    t_eq(trainer.state.step, 4);
    t_true(hash_of(&trainer.model->params) == w.hash[4]);
    t_ok(trainer_run(&trainer, &e), &e);
    t_eq(trainer.state.skipped, 0);
    trainer_close(&trainer);
}

/* ---- weights that are broken ---- */

static void break_weights_at_5(void *ctx, const struct trainer *t)
{
    if (t->state.step != 5)
        return;
    t->model->params.p[0].value[0] = (real)NAN;
    if (ctx)
        atomic_store((atomic_int *)ctx, 15);
}

T(weights_with_nan_become_neither_the_newest_nor_the_best_checkpoint)
{
    struct err e = {0};
    struct runview *v = NULL;
    const char *dir = room();
    const char *const keys[] = {"train.nan_limit=3", "train.checkpoint_every=2",
                                "train.eval_every=1", NULL};
    open_run(dir, keys, 0, break_weights_at_5, NULL);
    t_eq(trainer_run(&trainer, &e), DS_ENUMERIC);
    t_eq(trainer.saved_step, 4);
    t_eq(trainer.state.best_step, 4);
    trainer_close(&trainer);
    open_run(dir, keys, 1, NULL, NULL);
    t_eq(trainer.state.step, 4);
    t_ok(trainer_run(&trainer, &e), &e);
    trainer_close(&trainer);
    t_ok(runview_open(&v, dir, &e), &e);
    t_eq(v->state, RUN_DONE);
    runview_free(v);
}

T(a_stop_with_broken_weights_saves_nothing)
{
    struct err e = {0};
    struct runview *v = NULL;
    const char *dir = room();
    open_run(dir, NULL, 0, break_weights_at_5, &asked);
    t_fails(trainer_run(&trainer, &e), &e, DS_EIO, "could not be written");
    trainer_close(&trainer);
    t_ok(runview_open(&v, dir, &e), &e);
    t_eq(count_events(v, "checkpoint", "not saved: NaN or Inf in the weights or moments"), 1);
    runview_free(v);
}

static void set_lr_at_5(void *ctx, const struct trainer *t)
{
    struct err e = {0};
    (void)ctx;
    if (t->state.step == 1 || t->state.step == 5)
        t_ok(trainer_set(&trainer, "lr", t->state.step == 1 ? 0.5 : 0.75, &e), &e);
}

T(a_setting_under_which_the_run_diverged_is_reverted)
{
    struct err e = {0};
    const char *dir = room();
    const char *const keys[] = {"train.nan_limit=3", "train.checkpoint_every=2", NULL};
    setenv("DEPTHSCOPE_FAIL", "nan:6+", 1);
    open_run(dir, keys, 0, set_lr_at_5, NULL);
    t_eq(trainer_run(&trainer, &e), DS_ENUMERIC);
    t_true(strstr(e.text, "reverted: train.lr = 0.75; "));
    t_true(!strstr(e.text, "--allow-change"));
    trainer_close(&trainer);
    setenv("DEPTHSCOPE_FAIL", "", 1);
    open_run(dir, keys, 1, NULL, NULL);
    t_near(trainer.config.train.lr, 0.5, 0);
    t_eq(trainer.n_live, 1);
    trainer_close(&trainer);
}

T(a_checkpoint_waits_for_a_step_without_nan)
{
    struct err e = {0};
    const char *dir = room();
    const char *const keys[] = {"train.checkpoint_every=4", "train.steps=6", NULL};
    char path[1100];
    setenv("DEPTHSCOPE_FAIL", "nan:4", 1);
    open_run(dir, keys, 0, NULL, NULL);
    t_ok(trainer_run(&trainer, &e), &e);
    trainer_close(&trainer);
    setenv("DEPTHSCOPE_FAIL", "", 1);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000004", dir);
    t_true(!fs_exists(path));
    snprintf(path, sizeof path, "%s/checkpoints/step-00000005", dir);
    t_true(fs_is_dir(path));
}

/* ---- the account over a resume ---- */

static void stop_at_7(void *ctx, const struct trainer *t)
{
    (void)ctx;
    if (t->state.step == 7)
        atomic_store(&asked, 15);
}

T(a_resumed_run_continues_its_accounting)
{
    struct err e = {0};
    struct runview *v = NULL;
    const char *dir = room();
    open_run(dir, NULL, 0, stop_at_7, NULL);
    t_eq(trainer_run(&trainer, &e), DS_ESTOP);
    trainer_close(&trainer);
    open_run(dir, NULL, 1, NULL, NULL);
    t_ok(trainer_run(&trainer, &e), &e);
    trainer_close(&trainer);
    t_ok(runview_open(&v, dir, &e), &e);
    t_eq(v->arenas, 3);
    check_account(v, 12, 2);
    runview_free(v);
}

/* ---- live settings ---- */

static void stop_at_4(void *ctx, const struct trainer *t)
{
    (void)ctx;
    if (t->state.step == 4)
        atomic_store(&asked, 15);
}

static void set_every_live_row(void *ctx, const struct trainer *t)
{
    struct err e = {0};
    (void)ctx;
    for (size_t i = 0; i < train_group.n; i++) {
        const struct opt *o = &train_group.opts[i];
        if (o->is_live)
            t_ok(trainer_set(&trainer, o->key, t->state.step % 2 ? o->max : o->min, &e), &e);
    }
}

/* The buffers of a run are made for its first values: a row may be live only if any value that it
 * allows can follow. */
T(live_settings_of_training_can_be_set_to_both_ends_of_their_range)
{
    struct err e = {0};
    open_run(room(), NULL, 0, set_every_live_row, NULL);
    int rc = trainer_run(&trainer, &e);
    t_truef(rc == 0 || rc == DS_ENUMERIC, "%s", e.text);
    t_true(trainer.state.step > 1);
    trainer_close(&trainer);
}

T(live_settings_survive_a_resume_and_give_way_to_the_command_line)
{
    struct err e = {0};
    const char *dir = room();
    open_run(dir, NULL, 0, stop_at_4, NULL);
    t_ok(trainer_set(&trainer, "lr", 0.25, &e), &e);
    t_ok(trainer_set(&trainer, "edp.target_ratio", 0.875, &e), &e);
    t_fails(trainer_set(&trainer, "edp.target_ratio", 0.01, &e), &e, DS_ERANGE,
            "cannot be reached");
    t_fails(trainer_set(&trainer, "lr", (double)NAN, &e), &e, DS_ERANGE, "finite");
    t_fails(trainer_set(&trainer, "lr", -1, &e), &e, DS_ERANGE, "must be");
    t_fails(trainer_set(&trainer, "lr", 99, &e), &e, DS_ERANGE, "train.lr: 99: must be 1e-12 to 1");
    t_fails(trainer_set(&trainer, "edp.threshold_offset", 99, &e), &e, DS_ERANGE,
            "must be -20 to 20");
    char why[200];
    t_true(trainer_is_large_change(&trainer, "edp.target_ratio", 8.8, why, sizeof why));
    t_true(trainer_is_large_change(&trainer, "lr", 2.6, why, sizeof why));
    t_true(strstr(why, "train.lr = 2.6 is 10.4 times the current 0.25"));
    t_true(!trainer_is_large_change(&trainer, "lr", trainer.config.train.lr * 9, why, sizeof why));
    t_true(!trainer_is_large_change(&trainer, "edp.threshold_offset", 3, why, sizeof why));
    t_fails(trainer_set(&trainer, "edp.nothing", 1, &e), &e, DS_ENOTFOUND, "expected one of: train.lr, edp.t");
    t_fails(trainer_set(&trainer, "train.steps", 9, &e), &e, DS_ENOTFOUND, "not a live setting");
    t_ok(trainer_keep_live(&trainer, &e), &e);
    t_eq(trainer_run(&trainer, &e), DS_ESTOP);
    trainer_close(&trainer);

    open_run(dir, NULL, 1, stop_at_4, NULL);
    t_near(trainer.config.train.lr, 0.25, 0);
    t_eq(trainer.n_live, 2);
    t_near(trainer.live[1].value, 0.875, 0);
    trainer_close(&trainer);

    struct train_config c;
    const char *const keys[] = {"train.lr=0.125", NULL};
    make_config(&c, keys);
    trainer = (struct trainer){
        .stop_signal = &asked, .version = "9.9", .override = keys, .n_override = 1};
    t_ok(trainer_open(&trainer, dir, &c, 1, 1, &e), &e);
    t_near(trainer.config.train.lr, 0.125, 0);
    t_eq(trainer.n_live, 1);
    trainer_close(&trainer);
}

T(steps_beyond_31_bits_and_tokens_beyond_40_are_trained_saved_and_read) /* H15 */
{
    static const int64_t begin = ((int64_t)1 << 31) - 2, tokens = ((int64_t)1 << 40) - 256;
    static const char *const keys[] = {"train.steps=2147483650",
                                       "train.checkpoint_every=1000000000",
                                       "train.eval_every=1000000000",
                                       "train.probe_every=1000000000",
                                       "train.layer_every=1000000000",
                                       NULL};
    char path[900];
    struct err e = {0};
    struct runview *v = NULL;
    const char *dir = room();
    open_run(dir, keys, 0, NULL, NULL);
    trainer.state.step = begin;
    trainer.state.tokens = tokens;
    t_ok(trainer_run(&trainer, &e), &e);
    t_eq(trainer.state.step, begin + 4);
    t_eq(trainer.state.tokens, tokens + 4 * 128);
    trainer_close(&trainer);
    snprintf(path, sizeof path, "%s/checkpoints/step-2147483650", dir);
    t_true(fs_is_dir(path));
    t_ok(runview_open(&v, dir, &e), &e);
    t_true(v->step == begin + 4 && v->steps_planned == begin + 4 && v->state == RUN_DONE);
    const struct series *s = runview_series(v, "tokens");
    t_true(s && s->step[s->n - 1] == begin + 4);
    t_near(s->value[s->n - 1], (double)(tokens + 4 * 128), 65536); /* series hold floats */
    runview_free(v);
    open_run(dir, keys, 1, NULL, NULL);
    t_eq(trainer.state.step, begin + 4);
    t_eq(trainer.state.tokens, tokens + 4 * 128);
    trainer_close(&trainer);
}

T(a_run_without_a_best_checkpoint_has_none_to_fork_from)
{
    struct fork_point p;
    struct err e = {0};
    t_fails(fork_find(&p, t_tmpdir(), "best", &e), &e, DS_ENOTFOUND,
            ": no best checkpoint yet (best.json is missing)");
}

T(a_second_writer_is_refused_and_changes_nothing)
{
    struct err e = {0};
    struct train_config c;
    static struct trainer second;
    const char *dir = room();
    open_run(dir, NULL, 0, NULL, NULL);
    make_config(&c, NULL);
    t_fails(trainer_create(dir, &c, 0, NULL, "9.9", NULL, &e), &e, DS_EEXIST, "--resume");
    t_fails(trainer_open(&second, dir, &c, 1, 0, &e), &e, DS_EBUSY, "being written by");
    train_config_release(&c);
    trainer_discard(dir); /* not what has told something */
    t_ok(trainer_run(&trainer, &e), &e);
    trainer_close(&trainer);
}
