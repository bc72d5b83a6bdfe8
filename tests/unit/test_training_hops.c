/* Runs on documents of known required depth: what their records say, a resume, and answer-only
 * losses whose batches may hold no answer. */
#include <math.h>

#include "../kit_train.h"
#include "base/fs.h"
#include "data/token_class.h"
#include "io/experiment.h"
#include "io/runview.h"
#include "models/load.h"

static const char *const tiny[KEYS_MAX] = {
    "model.layers=4",      "model.dim=16",          "model.heads=2",
    "model.max_seq=64",    "model.method=random",   "random.target_ratio=0.6",
    "data.path=hops",      "data.docs=60",          "data.val_fraction=0.3",
    "hops.queries=3",      "train.batch=4",         "train.seq=19",
    "train.warmup=2",      "train.steps=8",         "train.eval_every=4",
    "train.samples=200",   "train.time_rounds=0",   "train.probes=1",
    "train.probe_every=4", "train.final_tokens=400"};

/* In one directory per test. */
static void path_of(char *out, size_t size, const char *name)
{
    static const char *dir;
    if (!dir)
        dir = t_tmpdir();
    snprintf(out, size, "%s/%s", dir, name);
}

static struct runview *trained(const char *name, const char *const *more)
{
    struct runview *v = NULL;
    struct err e = {0};
    char dir[600];
    path_of(dir, sizeof dir, name);
    t_ok(go(dir, more, 0, 0, &e), &e);
    t_ok(runview_open(&v, dir, &e), &e);
    t_truef(runview_series(v, "loss") != NULL, "%s", told);
    return v;
}

/* 12 edges, then three pairs of query and answer: a query's row predicts the answer. */
static void check_probe(const struct probe *p)
{
    const struct vector *needed = probe_token(p, "needed"), *kind = probe_token(p, "class"),
                        *truth = probe_token(p, "true_entropy");
    t_true(p && p->tokens == 18 && strncmp(p->name, "hops-", 5) == 0);
    t_true(needed && kind && truth && needed->n == 18);
    for (int t = 0; t < 18; t++) {
        int is_query = t >= 12 && t % 2 == 0;
        t_eq(kind->v[t], t < 12 ? CLASS_EDGE : is_query ? CLASS_QUERY : CLASS_ANSWER);
        /* "?3AB:": as many letters as hops */
        t_near(needed->v[t], is_query ? (double)p->piece_len[t] - 3 : 0, 0);
        double want = t < 12 ? log(6 - t % 6) : is_query ? log(6 * 4) + 2.5 * log(2) : 0;
        t_near(truth->v[t], want, 1e-5);
    }
}

static void check_samples(const struct run_sample *s)
{
    const struct vector *needed = sample_column(s, "needed"), *kind = sample_column(s, "class");
    int answers = 0;
    t_true(needed && kind && s->n == 200);
    for (int i = 0; i < needed->n; i++) {
        t_true((needed->v[i] > 0) == (kind->v[i] == CLASS_QUERY));
        answers += needed->v[i] > 0;
    }
    t_true(answers > 20);
}

T(records_say_what_depth_was_needed)
{
    struct runview *v = trained("a", (const char *const[]){NULL});
    check_probe(runview_probe(v, 0));
    check_samples(runview_sample(v, "val"));
    const struct vector *tokens = runview_eval_vector(v, "final", "tokens_by_k"),
                        *accuracy = runview_eval_vector(v, "final", "accuracy_by_k"),
                        *loss = runview_eval_vector(v, "final", "loss_by_k"),
                        *by_class = runview_eval_vector(v, "final", "loss_by_class");
    t_true(tokens && accuracy && loss && tokens->n == 4 && accuracy->n == 4 && loss->n == 4);
    t_true(by_class && by_class->n == CLASS_ANSWER + 1);
    double n = 0, right = 0, nll = 0;
    for (int k = 0; k < 4; k++) {
        n += (double)tokens->v[k];
        right += (double)tokens->v[k] * (double)accuracy->v[k];
        nll += (double)tokens->v[k] * (double)loss->v[k];
    }
    t_true(n > 30);
    t_near(right / n, runview_eval(v, "final", "answer_accuracy"), 1e-5);
    t_near(nll / n, runview_eval(v, "final", "answer_loss"), 1e-4);
    t_near(by_class->v[CLASS_ANSWER], nll / n, 1e-4);
    t_true(isfinite(runview_eval(v, "final", "corr_needed_depth")));
    t_true(runview_eval(v, "val", "answer_accuracy") >= 0);
    runview_free(v);
}

/* Queries see the edges and themselves in training, evaluation and probes alike. */
T(isolated_queries_see_and_cost_less_everywhere)
{
    double loss[2], cost[2];
    for (int isolate = 0; isolate < 2; isolate++) {
        struct runview *v = trained(
            isolate ? "yes" : "no",
            (const char *const[]){"model.method=dense", "train.steps=1",
                                  isolate ? "hops.isolate=true" : "hops.isolate=false", NULL});
        const struct probe *p = runview_probe(v, 0);
        /* the second query has the edges before it, or the first one and its answer as well */
        t_true((p->flops[14] == p->flops[12]) == isolate);
        t_true(p->flops[13] > p->flops[12]);
        double flops = 0;
        for (int t = 0; t < p->tokens; t++)
            flops += (double)p->flops[t];
        t_near(flops / p->tokens / p->flops_dense, 1, 1e-6); /* a dense model */
        loss[isolate] = runview_series(v, "loss")->value[0];
        cost[isolate] = runview_eval(v, "final", "flops_dense_per_token");
        runview_free(v);
    }
    t_true(loss[0] != loss[1] && fabs(loss[0] - loss[1]) < 0.1);
    t_truef(cost[1] < cost[0], "%g FLOPs per token, %g without isolation", cost[1], cost[0]);
}

T(answers_alone_are_the_loss_and_the_tokens_that_count)
{
    struct runview *v = trained("b", (const char *const[]){"data.loss=answers", NULL});
    t_near(runview_eval(v, "final", "loss"), runview_eval(v, "final", "answer_loss"), 1e-9);
    const struct vector *tokens = runview_eval_vector(v, "final", "tokens_by_k");
    double n = 0;
    for (int k = 0; tokens && k < tokens->n; k++)
        n += (double)tokens->v[k];
    t_near(n, runview_eval(v, "final", "tokens"), 0);
    t_near(n, runview_eval(v, "final", "control_tokens"), 0);
    /* FLOPs are of a token, with or without a target */
    t_near(runview_eval(v, "final", "flops_dense_per_token") / v->flops_dense, 1, 0.1);
    t_str(runview_config(v, "data.loss"), "answers");
    t_str(runview_config(v, "hops.queries"), "3");
    runview_free(v);
}

/* Rows whose tokens share letters at the same places begin with a part in common. */
static double likeness(const struct model *m, int a, int b)
{
    const struct param *p = &m->params.p[m->embed];
    const real *x = p->value + (size_t)a * (size_t)p->shape[1],
               *y = p->value + (size_t)b * (size_t)p->shape[1];
    double xy = 0, xx = 0, yy = 0;
    for (int c = 0; c < p->shape[1]; c++) {
        xy += (double)x[c] * (double)y[c];
        xx += (double)x[c] * (double)x[c];
        yy += (double)y[c] * (double)y[c];
    }
    return xy / sqrt(xx * yy);
}

T(a_head_of_the_answers_and_an_embedding_of_letters)
{
    struct model *m = NULL;
    struct err e = {0};
    char path[600], dir[700];
    struct runview *v = trained(
        "some", (const char *const[]){"data.loss=answers", "model.outputs=answers", "model.dim=64",
                                      "model.tied=false", "model.embed_init=letters",
                                      "model.embed_std=1", "train.steps=1", NULL});
    t_near(runview_eval(v, "final", "loss"), runview_eval(v, "final", "answer_loss"), 1e-9);
    t_truef(runview_eval(v, "final", "loss") < 2.5, "%g: of six ids, not of 259",
            runview_eval(v, "final", "loss"));
    runview_free(v);
    path_of(path, sizeof path, "some");
    t_ok(model_locate(path, dir, sizeof dir, &e), &e);
    t_ok(model_open(&m, dir, NULL, MODEL_TRAIN, &e), &e);
    t_str(m->config.outputs, "73-78");
    t_eq(m->params.p[m->head].shape[0], 6);
    /* 1 + 36 r + 6 s + d: A0>0; and A0>1; differ in one of three letters, A0>0; and B1>1; in all */
    t_near(likeness(m, 1, 2), 2.0 / 3, 0.25);
    t_near(likeness(m, 1, 1 + 36 + 6 + 1), 0, 0.3);
    model_free(m);
}

T(outputs_need_answers_as_the_loss)
{
    struct err e = {0};
    char dir[600];
    path_of(dir, sizeof dir, "refused");
    t_fails(
        go(dir, (const char *const[]){"model.outputs=answers", "model.tied=false", NULL}, 0, 0, &e),
        &e, DS_EUSAGE, "set data.loss=answers");
    e = (struct err){0};
    path_of(dir, sizeof dir, "also-refused");
    t_fails(go(dir,
               (const char *const[]){"model.outputs=72-77", "model.tied=false", "data.loss=answers",
                                     NULL},
               0, 0, &e),
            &e, DS_ERANGE, "id 78 is an answer; expected 73-78");
}

T(a_window_needs_data_without_private_spans)
{
    struct err e = {0};
    char dir[600];
    path_of(dir, sizeof dir, "refused");
    t_fails(go(dir, (const char *const[]){"model.window=6", NULL}, 0, 0, &e), &e, DS_EUSAGE,
            "model.window=6: unsupported with private spans");
    runview_free(
        trained("accepted", (const char *const[]){"model.window=6", "hops.isolate=false", NULL}));
}

/* A teacher's mass on ids that the head has no row for would be an infinite divergence. */
T(a_teacher_predicts_what_the_student_predicts)
{
    static const char *const kinds[][2] = {{"all-ids", NULL},
                                           {"answers-only", "model.outputs=answers"}};
    struct err e = {0};
    char dir[2][600], teacher[640];
    for (int k = 0; k < 2; k++) {
        struct runview *v =
            trained(kinds[k][0], (const char *const[]){"data.loss=answers", "model.tied=false",
                                                       "train.steps=1", kinds[k][1], NULL});
        runview_free(v);
        path_of(dir[k], sizeof dir[k], kinds[k][0]);
    }
    for (int student = 0; student < 2; student++)
        for (int by = -1; by < 2; by++) { /* -1: self */
            char run[600], name[32];
            snprintf(name, sizeof name, "taught-%d-%d", student, by + 1);
            snprintf(teacher, sizeof teacher, "train.teacher=%s", by < 0 ? "self" : dir[by]);
            const char *const keys[] = {teacher,
                                        "train.kd_warmup=0",
                                        "train.kd_alpha=0.5",
                                        "data.loss=answers",
                                        "model.tied=false",
                                        "train.steps=4",
                                        kinds[student][1],
                                        NULL};
            path_of(run, sizeof run, name);
            if (student == 1 && by == 0) {
                t_fails(go(run, keys, 0, 0, &e), &e, DS_EUSAGE,
                        "predicts id 0, which model.outputs=73-78 does not");
                t_true(!strchr(e.text, '\n'));
                e = (struct err){0};
                continue;
            }
            struct runview *v = trained(name, keys);
            double kd = experiment_newest(v, "kd_loss"), loss = experiment_newest(v, "loss");
            t_truef(kd >= 0 && kd < 20 && loss > 0 && loss < 20, "%s: %g, %g", name, kd, loss);
            runview_free(v);
        }
}

static void weights_of(const char *name, struct str *out)
{
    char dir[600], path[700];
    struct err e = {0};
    path_of(dir, sizeof dir, name);
    snprintf(path, sizeof path, "%s/checkpoints/step-00000008/model.safetensors", dir);
    t_ok(fs_read_file(out, path, 16 << 20, &e), &e);
}

T(a_resumed_run_has_the_bits_of_one_that_was_not_stopped_at_any_number_of_threads)
{
    static const char *const one[] = {"threads=1",         "hops.filler=20",  "train.seq=120",
                                      "model.max_seq=128", "model.vocab=300", NULL};
    static const char *const two[] = {"threads=2",         "hops.filler=20",  "train.seq=120",
                                      "model.max_seq=128", "model.vocab=300", NULL};
    struct err e = {0};
    struct str a = {0}, b = {0};
    char dir[600];
    runview_free(trained("whole", one));
    path_of(dir, sizeof dir, "stopped");
    t_fails(go(dir, two, 0, 3, &e), &e, DS_ESTOP, "stopped at step 3");
    e = (struct err){0};
    t_ok(go(dir, two, 1, 0, &e), &e);
    weights_of("whole", &a);
    weights_of("stopped", &b);
    t_true(a.len > 1000 && a.len == b.len && memcmp(a.p, b.p, a.len) == 0);
    str_release(&a);
    str_release(&b);
}

/* Long prompts and short answers: most windows of eight bytes hold none. */
T(a_batch_without_answers_changes_nothing_and_stops_nothing)
{
    struct str text = {0};
    struct err e = {0};
    char path[600], key[700];
    for (int i = 0; i < 12; i++)
        str_addf(&text,
                 "{\"prompt\": \"%d is a number that comes after another: \", "
                 "\"completion\": \"%d\"}\n",
                 i, i - 1);
    path_of(path, sizeof path, "pairs.jsonl");
    t_ok(fs_write_file(path, text.p, text.len, &e), &e);
    str_release(&text);
    snprintf(key, sizeof key, "data.path=%s", path);
    struct runview *v = trained(
        "c", (const char *const[]){key, "data.loss=answers", "data.tokenizer=bytes", "train.seq=8",
                                   "train.batch=1", "train.nan_limit=2", "train.steps=30", NULL});
    const struct series *skipped = runview_series(v, "skipped_steps"),
                        *loss = runview_series(v, "loss");
    double empty = skipped->value[skipped->n - 1];
    t_truef(empty >= 10 && empty < 30, "%g of 30 steps without answers", empty);
    for (size_t i = 0; i < loss->n; i++)
        empty -= isnan(loss->value[i]);
    t_near(empty, 0, 0);
    t_true(isfinite(runview_eval(v, "final", "loss"))); /* it came to its end */
    for (size_t i = 0; i < v->n_events; i++)
        t_truef(strcmp(v->event[i].name, "nan") != 0, "%s", v->event[i].text);
    runview_free(v);
}
