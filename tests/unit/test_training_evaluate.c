/* Evaluations of a run: calibrated at the end, told when the causal decisions are not there yet, held against controls. */
#include "base/fs.h"
#include "base/log.h"
#include "base/mem.h"
#include "fake_method.h"
#include "io/runview.h"
#include "training/trainer.h"

static const char *const tiny[] = {
    "model.layers=4",         "model.dim=16",         "model.heads=2",
    "model.vocab=300",        "model.max_seq=64",     "model.method=dense",
    "data.docs=20",           "data.tokenizer=bytes", "data.val_fraction=0.2",
    "train.batch=2",          "train.seq=16",         "train.warmup=1",
    "train.steps=6",          "train.eval_every=2",   "train.eval_tokens=64",
    "train.final_tokens=256", "train.time_rounds=1",  "train.probes=1",
    "train.probe_tokens=8",   "train.probe_every=3",  "train.checkpoint_every=6",
};

static void silent(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

/* A whole run under these ops, and the view of it.  more: one more setting, or NULL. */
static struct runview *run_with(const struct route_ops *ops, const char *more)
{
    const char *keys[DS_LEN(tiny) + 1];
    static struct trainer t;
    static atomic_int asked;
    struct train_config c;
    struct runview *v = NULL;
    struct err e = {0};
    const char *dir = t_tmpdir();
    log_to(silent, NULL);
    memcpy(keys, tiny, sizeof tiny);
    keys[DS_LEN(tiny)] = more;
    t_ok(train_config_make(&c, NULL, 0, keys, DS_LEN(tiny) + (more != NULL), &e), &e);
    t_ok(trainer_create(dir, &c, 0, NULL, "9.9", NULL, &e), &e);
    t = (struct trainer){.stop_signal = &asked, .version = "9.9"};
    t_ok(trainer_open(&t, dir, &c, 0, 0, &e), &e);
    t.model->route.ops = ops;
    int rows = t.model->R_max;
    t.model->route.R_max = 0; /* its cells are made anew */
    t_ok(route_reserve(&t.model->route, rows, &e), &e);
    t_ok(trainer_run(&t, &e), &e);
    trainer_close(&t);
    train_config_release(&c);
    t_ok(runview_open(&v, dir, &e), &e);
    return v;
}

static int events(const struct runview *v, const char *name)
{
    int n = 0;
    for (size_t i = 0; i < v->n_events; i++)
        n += strcmp(v->event[i].name, name) == 0;
    return n;
}

static real rank_cell(const struct route *r, int k, int l, int i)
{
    return k == FAKE_TOPK ? (real)(fake_hash(r, l, i) < 0.3) : (real)NAN;
}

T(a_method_is_calibrated_before_the_last_evaluation_and_not_evaluated_before)
{
    struct route_ops ops = fake_ops;
    ops.ready = fake_ready;
    fake_runs = fake_by_capacity;
    fake_cell = rank_cell;
    struct runview *v = run_with(&ops, NULL);
    t_eq(v->state, RUN_DONE);
    t_eq(events(v, "evaluation"), 1);
    t_eq(events(v, "calibrate"), 1);
    t_eq(fake_begun, 1);
    t_eq(v->n_evals, 1);
    t_str(v->eval[0].task, "final");
    t_near(runview_eval(v, "final", "block_ratio"), 0.25 + 0.75 * 0.5, 0.06);
    t_near(runview_eval(v, "final", "control_random_ratio"),
           runview_eval(v, "final", "block_ratio"), 0.1);
    t_true(isfinite(runview_eval(v, "final", "topk_gap")));
    t_true(isfinite(runview_eval(v, "final", "control_static_loss")));
    t_true(isfinite(runview_eval(v, "final", "dense_loss")));
    t_true(runview_eval(v, "final", "decode_time_ratio") > 0);
    t_true(isfinite(runview_eval(v, "final", "mi_mean")));
    t_near(runview_eval(v, "final", "predictor_recall"), 1, 0); /* below 0.3 is below 0.5 */
    t_near(runview_eval(v, "final", "predictor_base"), 0.3, 0.08);
    runview_free(v);
}

T(intermediate_evaluations_skip_expensive_measurements)
{
    struct route_ops ops = fake_ops;
    ops.calibrate = NULL;
    fake_runs = fake_by_capacity;
    fake_cell = NULL;
    struct runview *v = run_with(&ops, NULL);
    t_eq(events(v, "evaluation") + events(v, "calibrate"), 0);
    t_true(v->n_evals >= 3);
    t_true(isfinite(runview_eval(v, "val", "topk_loss")) &&
           isfinite(runview_eval(v, "val", "mi_mean")) &&
           isfinite(runview_eval(v, "val", "depth_variance")));
    t_true(isnan(runview_eval(v, "val", "control_random_loss")) &&
           isnan(runview_eval(v, "val", "decode_time_ratio")));
    runview_free(v);
}

/* ---- what is scored was not fitted to ---- */

enum { SEQ = 16, WINDOWS = 1024 };
static uint64_t fitted[WINDOWS], scored[WINDOWS];
static size_t n_fitted, n_scored;

static void note(uint64_t *list, size_t *n, uint64_t x)
{
    for (size_t i = 0; i < *n; i++)
        if (list[i] == x)
            return;
    t_true(*n < WINDOWS);
    list[(*n)++] = x;
}

/* Notes each window that a method decides about, by what it is decided for. */
static int note_windows(const struct route *r, int l, int i)
{
    const struct pass *p = &r->pass;
    uint64_t x = 1469598103934665603u;
    if (l == fake_on && i % p->T == 0 && p->T == SEQ && p->step == 0) {
        for (int t = 0; t < p->T; t++)
            x = (x ^ (uint64_t)p->id[i + t]) * 1099511628211u;
        if (p->inference.calibrate)
            note(fitted, &n_fitted, x);
        else if (p->record)
            note(scored, &n_scored, x);
    }
    return fake_by_capacity(r, l, i);
}

static void check_windows(const char *more, size_t scored_min, const char *text)
{
    struct route_ops ops = fake_ops;
    int told = 0;
    n_fitted = n_scored = 0;
    fake_runs = note_windows;
    fake_cell = NULL;
    struct runview *v = run_with(&ops, more);
    for (size_t i = 0; i < v->n_events; i++)
        told += strcmp(v->event[i].name, "calibrate") == 0 && strstr(v->event[i].text, text);
    t_eq(told, 1);
    t_true(n_fitted >= 30 && n_scored >= scored_min);
    for (size_t i = 0; i < n_fitted; i++)
        for (size_t k = 0; k < n_scored; k++)
            t_true(fitted[i] != scored[k]);
    runview_free(v);
}

T(thresholds_are_calibrated_on_windows_that_are_not_scored)
{
    check_windows(NULL, 256 / SEQ, "validation text after");
    check_windows("train.final_tokens=1000000", 256 / SEQ + 1, "training text");
}

/* Of every pass, a number that is counted in it and one that is a mean. */
static void count_in_pass(struct route *r, const struct stream *st)
{
    (void)st;
    for (int k = 0; k < 2 && r->pass.kind == PASS_TRAIN; k++) {
        r->metric[k] = r->metric[k] ? r->metric[k] : mem_alloc(1, sizeof(double));
        r->metric[k][0] = 3;
    }
}

T(counts_of_the_pieces_of_a_step_add_up)
{
    static const struct metric metrics[] = {{"counted", "", "a number", METRIC_STEP, .is_sum = 1},
                                            {"measured", "", "a mean", METRIC_STEP}};
    struct route_ops ops = fake_ops;
    ops.metrics = metrics;
    ops.n_metrics = DS_LEN(metrics);
    ops.finish = count_in_pass;
    fake_runs = fake_by_capacity;
    fake_cell = NULL;
    struct runview *v = run_with(&ops, "train.pieces=2");
    const struct series *counted = runview_series(v, "counted"),
                        *measured = runview_series(v, "measured");
    t_true(counted && measured && counted->n > 0 && measured->n > 0);
    t_near(counted->value[counted->n - 1], 6, 0);
    t_near(measured->value[measured->n - 1], 3, 0);
    runview_free(v);
}
