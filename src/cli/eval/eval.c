/* depthscope eval MODEL: loss, compute and the distribution of depth. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/pool.h"
#include "cli/eval/eval_capacity.h"
#include "cli/eval/eval_exits.h"
#include "cli/eval/eval_task.h"
#include "cli/records.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "eval/capacity.h"
#include "eval/perplexity.h"
#include "eval/perplexity_windows.h"

struct cli_option eval_options[] = {
    {.name = "json", .help = "one JSON object instead of the table"},
    {.name = "o",
     .has_value = 1,
     .help =
         "FILE  also write the records (head, eval, sample) to FILE; for a task, the JSON object"},
    {.name = "benchmark", .help = "table over capacities=... (methods with a capacity)"},
    {.name = NULL},
};

/* Result of target_speedup; passes = 0: not requested. */
struct answer {
    struct ppl_result r;
    struct capacity_found found;
};

static void add_layers_json(struct str *s, const struct measure *m)
{
    double *x = mem_alloc((size_t)m->L, sizeof *x);
    const char *key;
    int there;
    for (int i = 0; x && (key = measure_vector(m, i, x, &there)) != NULL; i++)
        if (there)
            json_add_nums(s, key, x, (size_t)m->L);
    if (!x)
        s->failed = 1;
    mem_free(x);
}

static void add_parts_json(struct str *s, const struct measure *m)
{
    double x[MEASURE_NEEDED_MAX];
    const char *key;
    int n;
    for (int i = 0; (key = measure_part_vector(m, i, x, &n)) != NULL; i++)
        if (n > 0)
            json_add_nums(s, key, x, (size_t)n);
}

static void print_json(struct str *s, const struct subject *subject, const struct answer *a)
{
    const struct ppl_result *r = &a->r;
    struct measure_scalar x[MEASURE_SCALARS_MAX];
    size_t n = measure_scalars(&r->measure, x);
    str_add(s, "{");
    json_add_str(s, "task", r->task);
    json_add_str(s, "routing", r->routing);
    json_add_str(s, "not_causal", measure_not_causal(&r->measure));
    json_add_str(s, "compute", gemm_format_name[subject->model->weights.format]);
    json_add_str(s, "weights", weights_quant_name(subject->model));
    json_add_str(s, "model", subject->dir);
    json_add_str(s, "method", subject->model->config.method);
    subject_options_json(subject, s);
    json_add_str(s, "data", r->data);
    json_add_num(s, "capacity_target", r->capacity);
    if (r->exit > 0)
        json_add_int(s, "exit", r->exit);
    if (a->found.passes > 0) {
        json_add_num(s, "speedup", a->found.speedup);
        json_key(s, "speedup_met");
        str_add(s, a->found.is_met ? "true" : "false");
    }
    for (size_t i = 0; i < n; i++)
        json_add_num(s, x[i].key, x[i].value);
    add_layers_json(s, &r->measure);
    add_parts_json(s, &r->measure);
    json_add_int(s, "layers", model_config_depth(&subject->model->config));
    json_add_int(s, "loop", subject->model->config.loop);
    json_add_num(s, "bytes", r->measure.bytes);
    json_add_int(s, "seq", r->seq);
    json_add_str(s, "windows", r->kind);
    json_add_int(s, "stride", r->stride > 0 ? r->stride : r->seq);
    json_add_int(s, "windows_scored", r->windows);
    json_add_int(s, "batch", r->batch);
    json_add_str(s, "signal", r->measure.signal);
    json_add_int(s, "dropped_bytes", (int64_t)tokenizer_dropped_bytes(subject->tokenizer));
    str_add(s, "}\n");
}

/* Prints per-layer vectors, one line each. */
static void add_layers(struct str *s, const struct measure *m)
{
    static const struct {
        const char *key, *title;
    } lines[] = {
        {"capacity", "rows executed per layer"},
        {"capacity_topk", "with top-k routing (not causal)"},
        {"mi", "I(token; executed) per layer, nats"},
        {"predictor_f1_layer", "predictor F1 per layer"},
        {"predictor_base_layer", "predictor positive rate"},
    };
    double *x = mem_alloc((size_t)m->L, sizeof *x);
    const char *key;
    int there;
    for (int i = 0; x && (key = measure_vector(m, i, x, &there)) != NULL; i++)
        for (size_t k = 0; k < DS_LEN(lines) && there; k++) {
            if (strcmp(lines[k].key, key) != 0)
                continue;
            str_addf(s, "  %s:", lines[k].title);
            for (int l = 0; l < m->L; l++)
                str_addf(s, isnan(x[l]) ? " -" : " %.2f", x[l]);
            str_add(s, "\n");
        }
    if (!x)
        s->failed = 1;
    mem_free(x);
}

/* Answers by required depth: one line each of accuracy, loss and mean depth. */
static void add_answers(struct str *s, const struct measure *m)
{
    static const struct {
        const char *key, *title;
    } lines[] = {{"accuracy_by_k", "accuracy of answers by required depth 1, 2, .."},
                 {"loss_by_k", "loss of answers by required depth"},
                 {"depth_by_k", "mean depth by required depth"}};
    double x[MEASURE_NEEDED_MAX];
    const char *key;
    int n;
    for (int i = 0; (key = measure_part_vector(m, i, x, &n)) != NULL; i++)
        for (size_t k = 0; k < DS_LEN(lines) && n > 0; k++) {
            if (strcmp(lines[k].key, key) != 0)
                continue;
            str_addf(s, "  %s:", lines[k].title);
            for (int l = 0; l < n; l++)
                str_addf(s, isnan(x[l]) ? " -" : " %.3f", x[l]);
            str_add(s, "\n");
        }
}

static void add_number(struct table *t, const struct measure_scalar *x)
{
    char si[16];
    if (!x->title || (isnan(x->value) && x->is_optional))
        return;
    table_addf(t, "  %s", x->title);
    if (isnan(x->value))
        table_add(t, "-");
    else if (fabs(x->value) >= 9999.5) /* four digits would be 1e+04 */
        table_add(t, str_si(si, x->value));
    else
        table_addf(t, "%.4g", x->value);
}

static void add_windows(struct str *s, const struct ppl_result *r)
{
    if (strcmp(r->kind, windows_name[WINDOWS_DOCUMENTS]) == 0) {
        str_addf(s, " (%lld document%s, truncated to %lld tokens)\n", (long long)r->windows,
                 r->windows == 1 ? "" : "s", (long long)r->seq);
        return;
    }
    str_addf(s, " (%lld %s window%s of %lld tokens", (long long)r->windows, r->kind,
             r->windows == 1 ? "" : "s", (long long)r->seq);
    if (r->stride)
        str_addf(s, ", stride %lld", (long long)r->stride);
    str_add(s, ")\n");
}

static void print_table(struct str *s, const struct subject *subject, const struct answer *a)
{
    const struct ppl_result *r = &a->r;
    struct measure_scalar x[MEASURE_SCALARS_MAX];
    struct table t;
    size_t n = measure_scalars(&r->measure, x);
    struct measure_scalar bytes = {"bytes", "bytes of text", r->measure.bytes, 0};
    cli_add_safe(s, subject->dir, strlen(subject->dir), -1);
    str_addf(s, ": %s, %s routing%s, ", subject->model->config.method, r->routing,
             !r->measure.is_topk                 ? ""
             : strcmp(r->routing, "oracle") == 0 ? " (NOT causal: knows the tokens it predicts)"
                                                 : " (NOT causal: depends on later tokens)");
    if (r->exit > 0)
        str_addf(s, "exit after %d of %d layers, ", r->exit,
                 model_config_depth(&subject->model->config));
    str_add(s, "on ");
    cli_add_safe(s, r->data, strlen(r->data), -1);
    add_windows(s, r);
    if (a->found.passes > 0)
        str_addf(s, "  capacity %.3f gives a speedup of %.3f%s\n", a->found.capacity,
                 a->found.speedup, a->found.is_met ? "" : ", the nearest available");
    table_init(&t, 2);
    for (size_t i = 0; i < n; i++)
        add_number(&t, &x[i]);
    add_number(&t, &bytes);
    table_print(&t, s);
    table_release(&t);
    add_layers(s, &r->measure);
    add_answers(s, &r->measure);
}

static int write_records(const char *path, const struct subject *subject,
                         const struct ppl_result *r, struct err *e)
{
    struct str frames = {0};
    struct record *rec = record_new();
    int rc = rec ? 0 : err_set(e, DS_EMEM, "records");
    if (rc == 0) {
        subject_head(subject, rec, DEPTHSCOPE_VERSION);
        rc = record_end(rec, 1, &frames, e);
    }
    if (rc == 0) {
        measure_eval_record(&r->measure, rec, r->task, r->routing, 0, clock_wall());
        subject_options_record(subject, rec);
        rc = record_end(rec, 2, &frames, e);
    }
    if (rc == 0) {
        measure_sample_record(&r->measure, rec, "val", 0, clock_wall());
        rc = record_end(rec, 3, &frames, e);
    }
    if (rc == 0)
        rc = cli_records_write(path, &frames, e);
    str_release(&frames);
    record_free(rec);
    return rc;
}

/* Evaluates, at the capacity that reaches target_speedup if it is set. */
static int measure_at_speedup(struct answer *out, struct subject *s, struct ppl_options *o,
                              struct err *e)
{
    struct ppl *p = NULL;
    struct pass pass = {.kind = PASS_SPARSE, .inference.has_capacity = 1};
    if (o->target_speedup <= 0)
        return ppl_run(&out->r, s, o, e);
    int rc = o->routing != PPL_CAUSAL || o->capacity != -1
                 ? err_set(e, DS_EUSAGE,
                           "target_speedup searches the capacity of causal routing: "
                           "capacity= and routing= must not be set")
                 : route_ready(&s->model->route, &pass, e);
    if (rc == 0)
        rc = ppl_open(&p, s, o, e);
    if (rc == 0)
        rc = capacity_search(&out->found, p, o->target_speedup,
                             o->speedup_by == SPEEDUP_FLOPS ? SPEEDUP_OF_FLOPS : SPEEDUP_OF_PREFILL,
                             (int)o->time_rounds, e);
    ppl_close(p);
    if (rc < 0)
        return rc;
    o->capacity = out->found.capacity;
    return ppl_run(&out->r, s, o, e);
}

static int benchmark(const struct cli_args *a, struct subject *s, const struct ppl_options *o,
                     struct str *out, struct err *e)
{
    struct capacity_table t;
    int rc = capacity_benchmark(&t, s, o, e);
    if (rc == 0)
        (cli_flag(a, "json") ? capacity_table_json : capacity_table_print)(out, s, &t);
    if (rc == 0 && cli_value(a, "o"))
        rc = capacity_table_write(cli_value(a, "o"), s, &t, e);
    return rc;
}

static int exits(const struct cli_args *a, struct subject *s, const struct ppl_options *o,
                 struct str *out, struct err *e)
{
    struct exit_table t = {0};
    int rc = exit_table_make(&t, s, o, e);
    if (rc == 0)
        (cli_flag(a, "json") ? exit_table_json : exit_table_print)(out, s, o, &t);
    if (rc == 0 && cli_value(a, "o"))
        rc = exit_table_write(cli_value(a, "o"), s, o, &t, e);
    exit_table_release(&t);
    return rc;
}

static int report(const struct cli_args *a, struct subject *s, struct ppl_options *o,
                  struct str *out, struct err *e)
{
    struct answer x = {0};
    int rc = measure_at_speedup(&x, s, o, e);
    if (rc == 0)
        (cli_flag(a, "json") ? print_json : print_table)(out, s, &x);
    if (rc == 0 && cli_value(a, "o"))
        rc = write_records(cli_value(a, "o"), s, &x.r, e);
    ppl_result_release(&x.r);
    return rc;
}

/* Refuses settings that do not apply to this kind of evaluation. */
static int check_settings(const struct cli_args *a, const struct ppl_options *o, struct err *e)
{
    static const char *const of_one[] = {"capacity", "target_speedup", "speedup_by", "exit.layer"},
                             *const of_tasks[] = {"shots", "limit", "max_gen", "results"},
                             *const of_ppl[] = {"windows",        "stride",
                                                "split",          "tokens",
                                                "exit.layer",     "data.format",
                                                "data.text_key",  "data.docs",
                                                "data.max_bytes", "data.val_fraction",
                                                "data.loss"},
                             *const of_table[] = {"capacities"},
                             *const of_calibrate[] = {"risk", "delta"};
    static const char *const of_search[] = {"speedup_by"}, *const of_search_all[] = {
                                                               "target_speedup", "speedup_by"};
    int is_table = cli_flag(a, "benchmark"), is_task = strcmp(o->task, "ppl") != 0;
    int rc =
        is_task ? cli_refuse_settings(a, &ppl_group, of_ppl, DS_LEN(of_ppl), "expected task=ppl", e)
                : cli_refuse_settings(a, &ppl_group, of_tasks, DS_LEN(of_tasks),
                                      "unsupported by task=ppl", e);
    if (rc == 0)
        rc = cli_refuse_settings(a, &ppl_group, of_calibrate, DS_LEN(of_calibrate),
                                 "unsupported by eval; depthscope calibrate stores a capacity for "
                                 "a risk",
                                 e);
    if (rc == 0 && !is_table && o->target_speedup <= 0)
        rc = cli_refuse_settings(a, &ppl_group, of_search, DS_LEN(of_search),
                                 "requires target_speedup=", e);
    if (rc == 0 && strstr(o->exit_layer, ".."))
        rc = cli_refuse_settings(a, &ppl_group, of_search_all, DS_LEN(of_search_all),
                                 "expected one exit, not a range of exit.layer", e);
    if (rc < 0)
        return rc;
    return is_table ? cli_refuse_settings(a, &ppl_group, of_one, DS_LEN(of_one),
                                          "unsupported by --benchmark, whose rows are set by "
                                          "capacities=",
                                          e)
                    : cli_refuse_settings(a, &ppl_group, of_table, DS_LEN(of_table),
                                          "sets the rows of --benchmark; a single evaluation takes "
                                          "capacity=",
                                          e);
}

static int evaluate(const struct cli_args *a, struct ppl_options *o, struct config *options,
                    struct str *out, struct err *e)
{
    struct subject s = {0};
    const char *model;
    int rc = cli_single(a, "eval", "MODEL", &model, e);
    if (rc == 0)
        rc = check_settings(a, o, e);
    if (rc == 0 && cli_value(a, "o") && strcmp(o->task, "ppl") == 0)
        rc = cli_records_check(cli_value(a, "o"), e);
    if (rc == 0)
        rc = pool_start((int)o->threads, e);
    if (rc == 0)
        rc = subject_open_with(&s, model, &o->numbers, options, e);
    if (rc == 0)
        rc = strcmp(o->task, "ppl") != 0   ? eval_task(a, &s, o, out, e)
             : cli_flag(a, "benchmark")    ? benchmark(a, &s, o, out, e)
             : strstr(o->exit_layer, "..") ? exits(a, &s, o, out, e)
                                           : report(a, &s, o, out, e);
    subject_close(&s);
    pool_stop();
    return rc;
}

int eval_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct ppl_options o = {0};
    struct str out = {0};
    struct config options = {0};
    int rc = cli_parse(&a, eval_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = cli_take_options(&a, &options, &e);
    if (rc == 0)
        rc = cli_apply(&a, &ppl_group, &o, &e);
    if (rc == 0) {
        rc = evaluate(&a, &o, &options, &out, &e);
        opt_release(&ppl_group, &o);
    }
    config_release(&options);
    cli_release(&a);
    int status = cli_print(&out); /* also where only the file could not be written */
    return rc < 0 ? command_fail(&e) : status;
}
