/* A run that was stopped or killed and then resumed equals an uninterrupted one: the same bytes of
 * weights and optimiser state, for every kind of routing, at any number of threads, in the middle
 * of an epoch. */
#include <inttypes.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "io/runview.h"
#include "t.h"
#include "training/trainer.h"

enum { KEYS_MAX = 40, STEPS = 14, VALUES_MAX = 100 };

/* About 150 windows of 33 tokens: an epoch ends inside a batch of 13. */
static const char *const tiny[] = {
    "model.layers=6",        "model.dim=16",          "model.heads=2",
    "model.vocab=300",       "model.max_seq=64",      "data.docs=7",
    "data.tokenizer=bytes",  "data.val_fraction=0.2", "train.batch=13",
    "train.seq=32",          "train.warmup=3",        "train.steps=14",
    "train.eval_every=5",    "train.eval_tokens=64",  "train.final_tokens=64",
    "train.samples=16",      "train.time_rounds=1",   "train.probes=1",
    "train.probe_tokens=16", "train.probe_every=4",   "train.checkpoint_every=5",
    "train.keep=20",         "train.layer_every=1",
};

struct plan_of_run {
    const char *more[8]; /* keys of the case, ends with NULL */
    int64_t stop_at;     /* 0: uninterrupted */
    int kill;            /* SIGKILL instead of a request */
    int is_done;
};

/* Hundreds of fsyncs, so in memory if available. */
static const char *room(void)
{
    if (access("/dev/shm", W_OK) == 0)
        setenv("TMPDIR", "/dev/shm", 0);
    return t_tmpdir();
}

static void make_config(struct train_config *c, const struct plan_of_run *p)
{
    const char *key[KEYS_MAX];
    struct err e = {0};
    size_t n = 0;
    for (size_t i = 0; i < DS_LEN(tiny); i++)
        key[n++] = tiny[i];
    for (size_t i = 0; i < DS_LEN(p->more) && p->more[i]; i++)
        key[n++] = p->more[i];
    t_ok(train_config_make(c, NULL, 0, key, n, &e), &e);
}

static atomic_int asked;

static void at_step(void *ctx, const struct trainer *t)
{
    const struct plan_of_run *p = ctx;
    if (p->stop_at == 0 || t->state.step != p->stop_at)
        return;
    if (p->kill)
        kill(getpid(), SIGKILL);
    atomic_store(&asked, SIGTERM);
}

static void silent(void *ctx, enum log_level level, const char *text)
{
    (void)ctx;
    (void)level;
    (void)text;
}

static struct trainer trainer; /* large */

/* Starts or resumes DIR. */
static int go(const char *dir, struct plan_of_run *p, int resume, struct err *e)
{
    struct train_config c;
    make_config(&c, p);
    log_to(silent, NULL);
    atomic_store(&asked, 0);
    int rc = resume ? 0 : trainer_create(dir, &c, 0, NULL, "test", NULL, e);
    trainer =
        (struct trainer){.stop_signal = &asked, .version = "test", .on_step = at_step, .ctx = p};
    if (rc == 0)
        rc = trainer_open(&trainer, dir, &c, resume, 0, e);
    train_config_release(&c);
    if (rc == 0) {
        rc = trainer_run(&trainer, e);
        trainer_close(&trainer);
    }
    return rc;
}

/* The same in a process that kills itself with SIGKILL. */
static void go_and_die(const char *dir, struct plan_of_run *p, int resume)
{
    int status;
    pid_t pid = fork();
    if (pid == 0) {
        struct err e = {0};
        _exit(go(dir, p, resume, &e) < 0 ? 3 : 4);
    }
    t_true(pid > 0 && waitpid(pid, &status, 0) == pid);
    t_truef(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL, "status %x", (unsigned)status);
}

static void hash_of(char hex[65], const char *dir, const char *file)
{
    char path[700];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/checkpoints/step-%08d/%s", dir, STEPS, file);
    t_ok(sha256_file(path, hex, &e), &e);
}

static void same_end(const char *a, const char *b)
{
    static const char *const file[] = {"model.safetensors", "optimizer.safetensors",
                                       "tokenizer.json"};
    char x[65], y[65];
    for (size_t i = 0; i < DS_LEN(file); i++) {
        hash_of(x, a, file[i]);
        hash_of(y, b, file[i]);
        t_truef(strcmp(x, y) == 0, "%s of %s and %s differ", file[i], a, b);
    }
}

/* The values of a series that no resume has superseded, in order. */
static size_t current_values(const struct series *s, int64_t *step, double *value)
{
    size_t n = 0;
    for (size_t i = 0; s && i < s->n && n < VALUES_MAX; i++)
        if (!s->is_old[i]) {
            step[n] = s->step[i];
            value[n++] = s->value[i];
        }
    return n;
}

static const float *layers_at(const struct layer_series *s, int64_t step)
{
    for (size_t i = s ? s->n : 0; i-- > 0;)
        if (s->step[i] == step)
            return s->value + i * (size_t)s->layers;
    return NULL;
}

/* Of the machine and its speed? */
static int is_measured(const char *name)
{
    return strncmp(name, "system/", 7) == 0 || strstr(name, "time") || strstr(name, "tok_s") ||
           strstr(name, "_ms") || strstr(name, "_share") || strstr(name, "mfu");
}

/* The metrics and the values by layer of every step are the same, apart from those of the machine. */
static void same_records(const char *a, const char *b)
{
    struct runview *v[2];
    struct err e = {0};
    int64_t step[2][VALUES_MAX];
    double value[2][VALUES_MAX];
    size_t n[2];
    for (int i = 0; i < 2; i++)
        t_ok(runview_read(&v[i], i ? b : a, &e), &e);
    t_true(v[0]->n_series > 5 && v[0]->n_layer > 1);
    for (size_t k = 0; k < v[0]->n_series; k++) {
        const char *name = v[0]->series[k].name;
        if (is_measured(name))
            continue;
        for (int i = 0; i < 2; i++)
            n[i] = current_values(runview_series(v[i], name), step[i], value[i]);
        t_truef(n[0] == n[1] && memcmp(step[0], step[1], n[0] * sizeof **step) == 0 &&
                    memcmp(value[0], value[1], n[0] * sizeof **value) == 0,
                "%s of %s and %s differs", name, a, b);
    }
    for (size_t k = 0; k < v[0]->n_layer; k++) {
        const struct layer_series *x = &v[0]->layer[k];
        for (size_t i = 0; i < x->n; i++) {
            const float *other = layers_at(runview_layer(v[1], x->name), x->step[i]);
            size_t row = (size_t)x->layers;
            t_truef(other && memcmp(other, x->value + i * row, row * sizeof *other) == 0,
                    "%s of %s and %s differs at step %" PRId64, x->name, a, b, x->step[i]);
        }
    }
    runview_free(v[0]);
    runview_free(v[1]);
}

/* Uninterrupted; stopped at 6 (not a checkpoint step) and 9; killed at 7 and at 13, one step before
 * the end. */
static void check_case(const char *a, const char *b, const char *c, const char *d)
{
    struct plan_of_run p = {.more = {a, b, c, d}};
    struct err e = {0};
    char dir[3][300];
    const char *root = room();
    for (int i = 0; i < 3; i++)
        snprintf(dir[i], sizeof dir[i], "%s/run-%d", root, i);
    t_ok(go(dir[0], &p, 0, &e), &e);

    p.stop_at = 6;
    t_eq(go(dir[1], &p, 0, &e), DS_ESTOP);
    p.stop_at = 9;
    t_eq(go(dir[1], &p, 1, &e), DS_ESTOP);
    p.stop_at = 0;
    t_ok(go(dir[1], &p, 1, &e), &e);
    same_end(dir[0], dir[1]);
    same_records(dir[0], dir[1]);

    p.kill = 1;
    p.stop_at = 7;
    go_and_die(dir[2], &p, 0);
    p.stop_at = 13;
    go_and_die(dir[2], &p, 1);
    p.stop_at = 0;
    t_ok(go(dir[2], &p, 1, &e), &e);
    same_end(dir[0], dir[2]);
    same_records(dir[0], dir[2]);
}

T(acceptance_11_resume_equals_uninterrupted_edp_learned_thresholds)
{
    check_case("edp.threshold=learned", "edp.budget=offset", NULL, NULL);
}

T(acceptance_11_resume_equals_uninterrupted_edp_quantile_thresholds)
{
    check_case("edp.threshold=quantile", NULL, NULL, NULL);
}

T(acceptance_11_resume_equals_uninterrupted_edp_sparse_training)
{
    check_case("edp.train=sparse", "edp.probe_rate=0.3", "edp.budget=dual", NULL);
}

T(acceptance_11_resume_equals_uninterrupted_edp_literal_history)
{
    check_case("edp.history=literal", "edp.budget=off", "edp.penalty=entropy",
               "edp.step_code=every");
}

T(acceptance_11_resume_equals_uninterrupted_random)
{
    check_case("model.method=random", NULL, NULL, NULL);
}

T(acceptance_11_resume_equals_uninterrupted_dense_with_recompute)
{
    check_case("model.method=dense", "train.recompute=true", "model.tied=false", NULL);
}

T(a_resume_repeats_the_layers_dropped_and_the_exits_of_each_step)
{
    check_case("model.method=layerskip", "layerskip.dropout=0.5", "layerskip.schedule=exp",
               "train.exit_loss=rotate");
    check_case("model.method=edp", "train.exit_loss=random", "train.exit_scale=1", NULL);
    check_case("model.method=dense", "train.exit_loss=gradual", "train.recompute=true", NULL);
}

T(a_resume_keeps_what_routers_know_of_earlier_steps)
{
    check_case("model.method=hat", "hat.phase=full", "hat.exits=on", NULL);
    check_case("model.method=dtf", NULL, NULL, NULL);
    check_case("model.method=mod", NULL, NULL, NULL);
}

T(acceptance_11_resume_equals_uninterrupted_at_any_number_of_threads)
{
    struct plan_of_run p = {.more = {"threads=1"}};
    struct err e = {0};
    char dir[3][300];
    const char *root = room();
    static const char *const threads[] = {"threads=1", "threads=2", "threads=3"};
    for (int i = 0; i < 3; i++) {
        snprintf(dir[i], sizeof dir[i], "%s/run-%d", root, i);
        p.more[0] = threads[i];
        p.stop_at = i == 0 ? 0 : 5 + i;
        t_eq(go(dir[i], &p, 0, &e), i == 0 ? 0 : DS_ESTOP);
        p.more[0] = threads[(i + 1) % 3]; /* resumes with another number */
        p.stop_at = 0;
        if (i > 0)
            t_ok(go(dir[i], &p, 1, &e), &e);
        same_end(dir[0], dir[i]);
    }
}

static uint64_t seen_epoch, seen_window, seen_windows;

static void note_position(void *ctx, const struct trainer *t)
{
    struct plan_of_run *p = ctx;
    if (t->state.pos.epoch == 0 || p->is_done)
        return;
    p->is_done = 1;
    seen_epoch = t->state.pos.epoch;
    seen_window = t->state.pos.window;
    seen_windows = loader_windows(t->train);
    atomic_store(&asked, SIGTERM);
}

T(acceptance_11_resume_equals_uninterrupted_right_after_an_epoch_ends_inside_a_batch)
{
    struct plan_of_run p = {0};
    struct err e = {0};
    struct train_config c;
    char dir[2][300];
    const char *root = room();
    for (int i = 0; i < 2; i++)
        snprintf(dir[i], sizeof dir[i], "%s/run-%d", root, i);
    t_ok(go(dir[0], &p, 0, &e), &e);
    make_config(&c, &p);
    t_ok(trainer_create(dir[1], &c, 0, NULL, "test", NULL, &e), &e);
    trainer = (struct trainer){
        .stop_signal = &asked, .version = "test", .on_step = note_position, .ctx = &p};
    t_ok(trainer_open(&trainer, dir[1], &c, 0, 0, &e), &e);
    train_config_release(&c);
    t_eq(trainer_run(&trainer, &e), DS_ESTOP);
    trainer_close(&trainer);
    t_eq(seen_epoch, 1);
    t_truef(seen_windows % 13 != 0 && seen_window > 0 && seen_window < 13,
            "window %" PRIu64 " of %" PRIu64, seen_window, seen_windows);
    t_ok(go(dir[1], &p, 1, &e), &e);
    same_end(dir[0], dir[1]);
}

T(a_validation_or_probe_at_other_steps_changes_no_weight)
{
    struct plan_of_run p = {.more = {"train.eval_every=5", "train.probe_every=4"}};
    struct err e = {0};
    char dir[2][300];
    const char *root = room();
    for (int i = 0; i < 2; i++)
        snprintf(dir[i], sizeof dir[i], "%s/run-%d", root, i);
    t_ok(go(dir[0], &p, 0, &e), &e);
    p.more[0] = "train.eval_every=2";
    p.more[1] = "train.probe_every=1";
    t_ok(go(dir[1], &p, 0, &e), &e);
    same_end(dir[0], dir[1]);
}
