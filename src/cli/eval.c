/* depthscope eval MODEL: loss, compute, and how depth is spread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "cli/use.h"
#include "cli/version.h"
#include "eval/perplexity.h"
#include "cli/records.h"

static struct cli_option options[] = {
    {.name = "json", .help = "one JSON object instead of the table"},
    {.name = "o",
     .has_value = 1,
     .help = "FILE  also write the records (head, eval, sample) to FILE"},
    {.name = NULL},
};

enum { CAPACITY_MAX = 4096 };

/* One number of the report; the table and the JSON object are made from the same rows. */
struct number {
    const char *key, *title;
    double value;
};

static size_t numbers(const struct ppl_result *r, struct number *out)
{
    const struct measure *m = &r->measure;
    double mean, sd, loss = measure_loss(m);
    size_t n = 0;
    measure_depth(m, &mean, &sd);
    out[n++] = (struct number){"loss", "loss (nats/token)", loss};
    out[n++] = (struct number){"perplexity", "perplexity", exp(loss)};
    out[n++] = (struct number){"bits_per_byte", "bits per byte", measure_bits_per_byte(m)};
    out[n++] = (struct number){"tokens", "tokens", m->tokens};
    out[n++] = (struct number){"block_ratio", "blocks executed / all", measure_block_ratio(m)};
    out[n++] = (struct number){"flops_ratio", "FLOPs / dense, whole model", measure_model_ratio(m)};
    out[n++] = (struct number){"time_ratio", "measured time / dense, prefill", m->time_ratio};
    out[n++] = (struct number){"flops_per_token", "FLOPs per token",
                               m->tokens > 0 ? m->flops / m->tokens : 0};
    out[n++] = (struct number){"flops_dense_per_token", "FLOPs per token, dense",
                               m->tokens > 0 ? m->flops_dense / m->tokens : 0};
    out[n++] = (struct number){"time_per_token_ms", "ms per token, prefill",
                               1e3 * m->time_dense * m->time_ratio};
    out[n++] =
        (struct number){"time_dense_per_token_ms", "ms per token, dense", 1e3 * m->time_dense};
    out[n++] = (struct number){"depth_mean", "depth, mean", mean};
    out[n++] = (struct number){"depth_sd", "depth, sd", sd};
    out[n++] = (struct number){"corr_signal_depth", "r(signal, depth)",
                               measure_correlation(m, MEASURE_SIGNAL, MEASURE_DEPTH)};
    out[n++] = (struct number){"corr_entropy_depth", "r(predictive entropy, depth)",
                               measure_correlation(m, MEASURE_ENTROPY, MEASURE_DEPTH)};
    out[n++] = (struct number){"corr_nll_depth", "r(loss, depth)",
                               measure_correlation(m, MEASURE_NLL, MEASURE_DEPTH)};
    out[n++] = (struct number){"corr_true_entropy_depth", "r(true entropy, depth)",
                               measure_correlation(m, MEASURE_TRUE, MEASURE_DEPTH)};
    return n;
}

static size_t capacity(const struct ppl_result *r, double *out)
{
    const struct measure *m = &r->measure;
    size_t L = (size_t)(m->L < CAPACITY_MAX ? m->L : CAPACITY_MAX);
    double rows = m->cells / m->L;
    for (size_t l = 0; l < L; l++)
        out[l] = rows > 0 ? m->capacity[l] / rows : 0;
    return L;
}

static void print_json(struct str *s, const struct subject *subject, const struct ppl_result *r)
{
    struct number x[32];
    double c[CAPACITY_MAX];
    size_t n = numbers(r, x);
    str_add(s, "{");
    json_add_str(s, "task", r->task);
    json_add_str(s, "routing", r->routing);
    json_add_str(s, "compute", gemm_format_name[subject->model->weights.format]);
    json_add_str(s, "weights", quant_name[subject->model->weights.numbers.weights]);
    json_add_str(s, "model", subject->dir);
    json_add_str(s, "method", subject->model->config.method);
    json_add_str(s, "data", r->data);
    for (size_t i = 0; i < n; i++)
        json_add_num(s, x[i].key, x[i].value);
    json_add_nums(s, "capacity", c, capacity(r, c));
    json_add_int(s, "layers", subject->model->config.layers);
    json_add_int(s, "seq", r->seq);
    json_add_int(s, "batch", r->batch);
    json_add_str(s, "signal", r->measure.signal);
    str_add(s, "}\n");
}

static void print_table(struct str *s, const struct subject *subject, const struct ppl_result *r)
{
    struct number x[32];
    struct table t;
    double c[CAPACITY_MAX];
    size_t n = numbers(r, x), L = capacity(r, c);
    cli_add_safe(s, subject->dir, strlen(subject->dir), -1);
    str_addf(s, ": %s, %s routing, on ", subject->model->config.method, r->routing);
    cli_add_safe(s, r->data, strlen(r->data), -1);
    str_addf(s, " (%lld windows of %lld)\n", (long long)r->windows, (long long)r->seq);
    table_init(&t, 2);
    for (size_t i = 0; i < n; i++) {
        char si[16];
        table_addf(&t, "  %s", x[i].title);
        if (isnan(x[i].value))
            table_add(&t, "-");
        else if (fabs(x[i].value) >= 1e5)
            table_add(&t, str_si(si, x[i].value));
        else
            table_addf(&t, "%.4g", x[i].value);
    }
    table_print(&t, s);
    table_release(&t);
    str_add(s, "  rows executed per layer:");
    for (size_t l = 0; l < L; l++)
        str_addf(s, " %.2f", c[l]);
    str_add(s, "\n");
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

static int evaluate(const struct cli_args *a, struct ppl_options *o, struct str *out, struct err *e)
{
    struct subject s = {0};
    struct ppl_result r = {0};
    const char *model;
    int rc = cli_one(a, "eval", "MODEL", &model, e);
    if (rc == 0)
        rc = pool_start((int)o->threads, e);
    if (rc == 0)
        rc = subject_open(&s, model, &o->numbers, e);
    if (rc == 0)
        rc = ppl_run(&r, &s, o, e);
    if (rc == 0 && cli_value(a, "o"))
        rc = write_records(cli_value(a, "o"), &s, &r, e);
    if (rc == 0 && cli_flag(a, "json"))
        print_json(out, &s, &r);
    else if (rc == 0)
        print_table(out, &s, &r);
    ppl_result_release(&r);
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
    int rc = cli_parse(&a, options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = cli_apply(&a, &ppl_group, &o, &e);
    if (rc == 0) {
        rc = evaluate(&a, &o, &out, &e);
        opt_release(&ppl_group, &o);
    }
    cli_release(&a);
    if (rc < 0) {
        str_release(&out);
        return command_fail(&e);
    }
    return cli_print(&out);
}
