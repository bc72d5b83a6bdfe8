/* Tasks: aggregation of scores, routed models, resuming from a results file, and the JSON output. */
#include "../kit.h"
#include "base/fs.h"
#include "base/json.h"
#include "base/mem.h"
#include "eval/task.h"

enum { MAX_SEQ = 96, V = 257 };

static struct subject subject(const char *method)
{
    char keys[256];
    struct subject s = {0};
    struct err e = {0};
    snprintf(keys, sizeof keys,
             "model.layers=5 model.dim=16 model.heads=2 model.vocab=%d model.max_seq=%d "
             "model.init_std=0.3 model.method=%s",
             V, MAX_SEQ, method);
    s.model = kit_model(keys, 7, MAX_SEQ, 0, 0);
    kit_shake(s.model, 0.1, 3);
    t_ok(tokenizer_new_bytes(&s.tokenizer, &e), &e);
    str_copy(s.dir, sizeof s.dir, "a model");
    return s;
}

static struct task_options options(const char *name, const char *path)
{
    return (struct task_options){
        .name = name, .path = path, .results = "", .shots = -1, .max_gen = 24, .capacity = -1};
}

static const char *file(const char *dir, const char *name, const char *text)
{
    static char path[1024];
    struct err e = {0};
    snprintf(path, sizeof path, "%s/%s", dir, name);
    *strrchr(path, '/') = '\0';
    t_ok(fs_mkdirs(path, &e), &e);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
    return path;
}

/* ---- numbers ---- */

T(means_and_errors_are_those_worked_out_by_hand)
{
    struct task_sum s = {0};
    double value, error;
    const double x[] = {1, 0, 1, 1};
    for (int i = 0; i < 4; i++)
        task_sum_add(&s, (struct task_value){x[i], 1});
    task_sum_end(&s, TASK_MEAN, &value, &error);
    t_near(value, 0.75, 1e-12);
    t_near(error, 0.25, 1e-12); /* sd 0.5, over sqrt 4 */
    s = (struct task_sum){0};
    task_sum_add(&s, (struct task_value){-2, 4});
    task_sum_add(&s, (struct task_value){-6, 12});
    task_sum_end(&s, TASK_PERPLEXITY, &value, &error);
    t_near(value, exp(4), 1e-9);
    t_true(isnan(error));
    task_sum_end(&s, TASK_WEIGHTED_PERPLEXITY, &value, &error);
    t_near(value, exp(0.5), 1e-12);
    t_true(isnan(error));
    task_sum_end(&s, TASK_WEIGHTED_BITS, &value, &error);
    t_near(value, 0.5 / log(2), 1e-12);
}

/* As Python's random makes it: 100 generators, seeded by their number, with 1000 samples of the values each. */
T(the_error_of_a_perplexity_is_the_bootstrap_of_the_harness)
{
    double x[11], error;
    struct err e = {0};
    for (int i = 0; i < 11; i++)
        x[i] = -((i * 7919) % 23 / 4.0 + 0.25);
    t_ok(task_bootstrap_error(&error, x, 11, &e), &e);
    t_near(error, 9.92420696706111, 1e-9);
    t_ok(task_bootstrap_error(&error, x, 1, &e), &e);
    t_true(isnan(error));
}

extern const struct task task_gsm8k, task_gsm8k_cot;

T(answers_of_gsm8k_cot_are_matched_as_its_expression_does)
{
    static const struct {
        const char *said, *right;
        int strict, flexible;
    } row[] = {
        {" 3 + 4 = 7. The answer is 7.", "7", 1, 1},
        {"The answer is 18", "1", 1, 0}, /* any character must follow */
        {"The answer is 18", "18", 0, 1},
        {"The answer is 8", "8", 0, 1},
        {"The answer is 8\n", "8", 0, 1},
        {"The answer is -5 km", "-5", 1, 1},
        {"The answer is $5. The answer is 1,050 m.", "1050", 1, 1},
        {"The answer is -x. So 3", "3", 0, 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct task_value v[TASK_METRICS_MAX];
        char right[64];
        snprintf(right, sizeof right, "%s", row[i].right);
        struct task_doc d = {.target = right};
        task_gsm8k_cot.judge(&d, &(struct task_answer){.text = row[i].said}, v);
        t_truef(v[0].value == row[i].strict && v[1].value == row[i].flexible,
                "\"%s\" for \"%s\": %g %g", row[i].said, row[i].right, v[0].value, v[1].value);
    }
}

T(answer_that_memory_is_too_short_for_is_not_judged)
{
    char right[] = "It is 1,050.\n#### 1,050";
    struct task_doc d = {.target = right};
    struct task_answer said = {.text = "10 * 105 = 1,050.\n#### 1,050."};
    struct task_value v[TASK_METRICS_MAX];
    int failed = 0, rc = DS_EMEM;
    for (uint64_t n = 1; rc < 0 && n < 1000; n++) {
        mem_fail_at(mem_calls() + n, 0);
        rc = task_gsm8k.judge(&d, &said, v);
        mem_fail_at(0, 0);
        t_true(rc == 0 || rc == DS_EMEM);
        failed += rc < 0;
    }
    t_true(failed > 2);
    t_eq(rc, 0);
    t_true(v[0].value == 1 && v[1].value == 1);
}

T(acc_norm_divides_by_characters_and_acc_bytes_by_bytes)
{
    char a[] = "abcd", b[] = "\xc3\xa9\xc3\xa9\xc3\xa9", c[] = "";
    struct task_doc d = {.choice = {a, b, c}, .choices = 3, .gold = 1};
    struct task_answer x = {.ll = {-4.0, -4.2, -9}};
    struct task_value v[TASK_METRICS_MAX];
    task_judge_choices(&d, &x, v);
    t_eq(v[0].value, 0); /* -4 is best    */
    t_eq(v[1].value, 0); /* -1 and -1.4   */
    t_eq(v[2].value, 1); /* -1 and -0.7   */
    x.ll[2] = -4;
    d.gold = 0; /* the first of equals */
    task_judge_choices(&d, &x, v);
    t_eq(v[0].value, 1);
    t_eq(v[1].value, 1);
}

T(answers_in_free_text_are_matched_strictly_and_flexibly)
{
    static const struct {
        const char *said, *right;
        int strict, flexible;
    } row[] = {
        {" 3 + 4 = 7\n#### 7", "It is 7.\n#### 7", 1, 1},
        {"#### 1,234", "#### 1234", 1, 1},
        {"#### -5.", "#### -5", 1, 1},
        {"the answer is $70,000.", "#### 70000", 0, 1},
        {"#### 8 and then 9", "#### 8", 1, 0},
        {"#### 8 and then 9", "#### 9", 0, 1},
        {"####8", "#### 8", 0, 1},
        {"I do not know", "#### 8", 0, 0},
        {"", "#### 8", 0, 0},
        {"#### x #### 3", "#### 3", 1, 1},
        {"4 - 7", "#### 7", 0, 1},
        {"4 -7", "#### -7", 0, 1},
    };
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        struct task_value v[TASK_METRICS_MAX];
        char right[64];
        snprintf(right, sizeof right, "%s", row[i].right);
        struct task_doc d = {.target = right};
        task_gsm8k.judge(&d, &(struct task_answer){.text = row[i].said}, v);
        t_truef(v[0].value == row[i].strict && v[1].value == row[i].flexible,
                "\"%s\" for \"%s\": %g %g", row[i].said, row[i].right, v[0].value, v[1].value);
    }
}

/* ---- runs ---- */

static const char *mmlu(void)
{
    const char *d = t_tmpdir();
    const char *rows = "question,choice0,choice1,choice2,choice3,answer\n"
                       "\" One, two\nor \"\"three\"\"? \",1,2,3,4,2\r\nTwo?,1,2,3,4,B\n"
                       "Three?,1,2,3,4,0\n";
    file(d, "test/anatomy_test.csv", rows);
    file(d, "dev/anatomy_dev.csv", "Dev?,a,b,c,d,D\n");
    file(d, "test/virology_test.csv", "Last?,1,2,3,4,2\nReally?,1,2,3,4,3\n");
    file(d, "dev/virology_dev.csv", "Dev?,a,b,c,d,0\n");
    return d;
}

static void same_scores(const struct task_result *a, const struct task_result *b)
{
    t_eq(a->n, b->n);
    for (size_t i = 0; i < a->n; i++) {
        t_str(a->v[i].name, b->v[i].name);
        t_near(a->v[i].value[0], b->v[i].value[0], 0);
        t_true(memcmp(&a->v[i].cost, &b->v[i].cost, sizeof a->v[i].cost) == 0);
    }
}

T(a_stopped_run_is_resumed_where_it_stopped)
{
    struct subject s = subject("edp");
    struct err e = {0};
    struct task_result fresh, some, rest;
    char path[1024];
    struct str text = {0};
    struct task_options o = options("mmlu", mmlu());
    o.shots = 1;
    o.seq = 64;
    t_ok(task_run(&fresh, &s, &o, NULL, NULL, &e), &e);
    t_eq(fresh.n, 5); /* mmlu, stem: anatomy, other: virology */
    snprintf(path, sizeof path, "%s/results", o.path);
    o.results = path;
    o.limit = 1;
    t_ok(task_run(&some, &s, &o, NULL, NULL, &e), &e);
    t_eq(some.v[0].n, 2);
    t_eq(some.v[0].original, 5);
    t_ok(fs_read_file(&text, path, 1 << 20, &e), &e);
    str_add(&text, "{\"task\": \"mmlu_ana"); /* the power went */
    t_ok(fs_write_file(path, text.p, text.len, &e), &e);
    o.limit = 0;
    t_ok(task_run(&rest, &s, &o, NULL, NULL, &e), &e);
    t_eq(rest.resumed, 2);
    same_scores(&fresh, &rest);
    task_result_release(&rest);
    t_ok(task_run(&rest, &s, &o, NULL, NULL, &e), &e);
    t_eq(rest.resumed, 5);
    same_scores(&fresh, &rest);
    task_result_release(&some);
    task_result_release(&fresh);
    task_result_release(&rest);
    str_release(&text);
    subject_close(&s);
}

/* A score that was routed is another one, and says of every document how deep it was. */
T(a_routed_score_is_no_dense_one_in_disguise)
{
    struct subject s = subject("random");
    struct err e = {0};
    struct str text = {0};
    struct task_result routed, dense;
    char path[1024];
    struct task_options o = options("piqa", t_tmpdir());
    o.shots = 0;
    snprintf(path, sizeof path, "%s/results", o.path);
    file(o.path, "valid.jsonl",
         "{\"goal\": \"G\", \"sol1\": \"a\", \"sol2\": \"b\", \"label\": 1}\n"
         "{\"goal\": \"H\", \"sol1\": \"c d\", \"sol2\": \"e\", \"label\": 0}\n");
    double ll[2], depth[2];
    for (int i = 0; i < 2; i++) {
        struct json *j = NULL;
        o.results = path;
        o.is_dense = i;
        t_ok(task_run(i ? &dense : &routed, &s, &o, NULL, NULL, &e), &e);
        str_reset(&text);
        t_ok(fs_read_file(&text, path, 1 << 20, &e), &e);
        const char *last = strstr(text.p, "\"doc\": 1");
        t_true(last != NULL);
        while (last > text.p && last[-1] != '\n')
            last--;
        t_ok(json_parse(&j, last, strcspn(last, "\n"), "results", &e), &e);
        ll[i] = json_num(json_at(json_get(json_root(j), "ll"), 0), 0);
        depth[i] = json_num(json_get(json_root(j), "depth"), -1);
        json_free(j);
        snprintf(path, sizeof path, "%s/results-dense", o.path);
    }
    t_near(depth[1], 5, 0);
    t_true(depth[0] > 0 && depth[0] < 4.9);
    t_true(fabs(ll[0] - ll[1]) > 1e-3);
    t_near(task_depth(&dense.v[0].cost, 5), 5, 0);
    t_true(task_depth(&routed.v[0].cost, 5) < 4.9);
    str_release(&text);
    task_result_release(&routed);
    task_result_release(&dense);
    subject_close(&s);
}

T(results_of_another_evaluation_are_not_resumed)
{
    struct subject s = subject("random"), other = subject("dense");
    struct err e = {0};
    struct task_result r;
    char path[1024];
    struct task_options o = options("mmlu_anatomy", mmlu());
    snprintf(path, sizeof path, "%s/results", o.path);
    o.results = path;
    o.shots = 0;
    t_ok(task_run(&r, &s, &o, NULL, NULL, &e), &e);
    t_eq(r.n, 1);
    task_result_release(&r);
    t_fails(task_run(&r, &other, &o, NULL, NULL, &e), &e, DS_EEXIST, "choose another file");
    real *first = &s.model->params.p[0].value[0], was = *first; /* too little for another sum */
    *first += (real)1e-6;
    t_fails(task_run(&r, &s, &o, NULL, NULL, &e), &e, DS_EEXIST, "choose another file");
    *first = was;
    o.is_dense = 1;
    t_fails(task_run(&r, &s, &o, NULL, NULL, &e), &e, DS_EEXIST, "run dense");
    o.is_dense = 0;
    o.shots = 1;
    t_fails(task_run(&r, &s, &o, NULL, NULL, &e), &e, DS_EEXIST, "shots=1");
    o.shots = 0;
    file(o.path, "test/anatomy_test.csv", "Another?,1,2,3,4,B\n");
    t_fails(task_run(&r, &s, &o, NULL, NULL, &e), &e, DS_EEXIST, "the data has changed");
    file(o.path, "notes", "mine\n");
    snprintf(path, sizeof path, "%s/notes", o.path);
    t_true(task_run(&r, &s, &o, NULL, NULL, &e) < 0);
    subject_close(&s);
    subject_close(&other);
}

static int stop_at_three(void *ctx, const struct task_progress *at)
{
    (void)ctx;
    t_true(at->part[0] == 'm' && at->done <= at->total && at->total == 5 && at->resumed == 0);
    return at->done == 3;
}

T(a_stopped_run_says_so)
{
    struct subject s = subject("dense");
    struct err e = {0};
    struct task_result r;
    struct task_options o = options("mmlu", mmlu());
    o.shots = 0;
    t_fails(task_run(&r, &s, &o, stop_at_three, NULL, &e), &e, DS_ESTOP, "stopped at document 0");
    subject_close(&s);
}

static double at(const struct json *j, const char *section, const char *task, const char *key)
{
    return json_num(json_get(json_get(json_get(json_root(j), section), task), key), -1);
}

T(the_json_is_that_of_the_harness_with_the_depth_of_each_score)
{
    struct subject s = subject("random");
    struct err e = {0};
    struct task_result r;
    struct json *j = NULL;
    struct str text = {0};
    struct task_options o = options("mmlu", mmlu());
    o.shots = 1;
    t_ok(task_run(&r, &s, &o, NULL, NULL, &e), &e);
    task_result_json(&text, &r, &s, &o);
    t_ok(json_parse(&j, text.p, text.len, "results", &e), &e);
    double a = at(j, "results", "mmlu_anatomy", "acc,none"),
           v = at(j, "results", "mmlu_virology", "acc,none");
    double ea = at(j, "results", "mmlu_anatomy", "acc_stderr,none"),
           ev = at(j, "results", "mmlu_virology", "acc_stderr,none");
    t_near(at(j, "results", "mmlu", "acc,none"), (3 * a + 2 * v) / 5, 1e-8);
    t_near(at(j, "results", "mmlu", "acc_stderr,none"),
           sqrt((2 * ea * ea * 3 + ev * ev * 2) / 3 / 5), 1e-7);
    t_near(at(j, "groups", "mmlu_stem", "acc,none"), a, 1e-8);
    double ratio = at(j, "results", "mmlu", "block_ratio");
    t_true(ratio > 0.2 && ratio < 0.95);
    t_near(at(j, "results", "mmlu", "mean_depth"), 5 * ratio, 1e-6);
    t_near(at(j, "n-samples", "mmlu_anatomy", "original"), 3, 0);
    t_near(json_num(json_get(json_get(json_root(j), "n-shot"), "mmlu_virology"), -1), 1, 0);
    const struct json_node *results = json_get(json_root(j), "results"),
                           *below = json_get(json_root(j), "group_subtasks");
    t_str(json_str(json_get(json_get(results, "mmlu"), "alias"), NULL), "mmlu");
    t_str(json_str(json_get(json_get(results, "mmlu_stem"), "alias"), NULL), " - stem");
    t_str(json_str(json_get(json_get(results, "mmlu_anatomy"), "alias"), NULL), "  - anatomy");
    t_eq(json_len(below), 1 + json_len(json_get(below, "mmlu"))); /* groups only, each once */
    t_str(json_str(json_at(json_get(below, "mmlu"), 0), NULL), "mmlu_stem");
    t_str(json_str(json_at(json_get(below, "mmlu_stem"), 0), NULL), "mmlu_anatomy");
    t_true(!json_get(below, "mmlu_anatomy"));
    json_free(j);
    str_release(&text);
    task_result_release(&r);
    subject_close(&s);
}
