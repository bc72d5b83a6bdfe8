/* depthscope eval task=NAME: progress, the result table and the results file of benchmark tasks. */
#include "cli/eval/eval_task.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "eval/task.h"

enum { BAR_CELLS = 24, NAME_CELLS = 32 };

struct progress {
    double started, shown;
    int is_terminal;
};

/* Documents resumed from a results file took no time. */
static double per_second(const struct task_progress *at, double past)
{
    return past > 0 ? (double)(at->done - at->resumed) / past : 0;
}

/* A part's name comes from the data file and may be unsafe for a terminal. */
static const char *safe_name(char out[128], const char *part)
{
    str_copy(out, 128, part);
    utf8_scrub(out);
    return out;
}

static void draw_bar(const struct task_progress *at, double past)
{
    char name[128];
    char bar[BAR_CELLS + 1], left[16] = "?";
    double rate = per_second(at, past);
    size_t full = at->total ? at->done * BAR_CELLS / at->total : BAR_CELLS;
    for (size_t i = 0; i < BAR_CELLS; i++)
        bar[i] = i < full ? '#' : '.';
    bar[BAR_CELLS] = '\0';
    if (rate > 0)
        str_duration(left, (double)(at->total - at->done) / rate);
    fprintf(stderr, "\r\033[K%.*s [%s] %zu/%zu, %.3g/s, %s left", NAME_CELLS,
            safe_name(name, at->part), bar, at->done, at->total, rate, left);
    fflush(stderr);
}

/* Redraws a progress bar on a terminal; at the end prints one line everywhere. */
static int show_progress(void *ctx, const struct task_progress *at)
{
    struct progress *p = ctx;
    double now = clock_mono(), past = now - p->started;
    char took[16], name[128];
    if (at->done == at->total) {
        fprintf(stderr, "%s%.*s: %zu documents",
                p->is_terminal ? "\r\033[K" : "depthscope: ", NAME_CELLS, safe_name(name, at->part),
                at->done);
        if (at->resumed)
            fprintf(stderr, ", %zu resumed", at->resumed);
        fprintf(stderr, ", %s", str_duration(took, past));
        if (at->done > at->resumed)
            fprintf(stderr, ", %.3g/s", per_second(at, past));
        fprintf(stderr, "\n");
    } else if (p->is_terminal && now - p->shown >= 0.1) {
        p->shown = now;
        draw_bar(at, past);
    }
    return 0;
}

static int refuse(const struct cli_args *a, const struct ppl_options *o, struct err *e)
{
    if (o->routing == PPL_TOPK)
        return err_set(
            e, DS_EUSAGE,
            "routing=topk depends on later tokens, so a score would depend on the answer "
            "(expected routing=causal or dense)");
    if (o->routing == PPL_ORACLE)
        return err_set(e, DS_EUSAGE,
                       "routing=oracle knows the tokens that it predicts: expected routing=causal "
                       "or dense");
    if (cli_flag(a, "benchmark") || o->target_speedup > 0)
        return err_set(e, DS_EUSAGE, "--benchmark and target_speedup: expected task=ppl");
    return 0;
}

/* Random routing uses the run's own seed, as in task=ppl. */
static struct task_options options_of(const struct ppl_options *o, const struct subject *s)
{
    return (struct task_options){.name = o->task,
                                 .path = o->path,
                                 .results = o->results,
                                 .shots = o->shots,
                                 .limit = o->limit,
                                 .seq = o->seq,
                                 .max_gen = o->max_gen,
                                 .seed = o->seed >= 0 ? (uint64_t)o->seed : subject_seed(s),
                                 .is_dense = o->routing == PPL_DENSE,
                                 .capacity = o->capacity,
                                 .threshold_offset = o->threshold_offset};
}

static void add_number(struct table *t, double x, int digits)
{
    if (isnan(x))
        table_add(t, "-");
    else
        table_addf(t, "%.*f", digits, x);
}

static void add_row(struct table *t, const struct task_result *r, const struct task_score *x,
                    size_t k)
{
    const struct task_metric *m = &r->task->metrics[k];
    int is_plain = strcmp(m->filter, "none") == 0;
    table_addf(t, "%*s%s", 2 * x->level, "", x->name);
    table_addf(t, "%s%s%s", m->name, is_plain ? "" : ",", is_plain ? "" : m->filter);
    add_number(t, x->value[k], 4);
    add_number(t, x->error[k], 4);
    table_addf(t, "%zu", x->n);
    add_number(t, task_depth(&x->cost, r->layers), 2);
    add_number(t, task_scored_depth(&x->cost), 2);
    add_number(t, task_block_ratio(&x->cost), 3);
    add_number(t, task_flops_ratio(&x->cost), 3);
}

static void print_result(struct str *out, const struct task_result *r, const struct subject *s,
                         const struct task_options *o)
{
    static const char *const title[] = {"task",  "metric", "value",  "stderr", "n",
                                        "depth", "scored", "blocks", "flops"};
    struct table t;
    cli_add_safe(out, s->dir, strlen(s->dir), -1);
    str_addf(out, ": %s, %s routing, %lld shots, %d layers", s->model->config.method,
             o->is_dense ? "dense" : "causal", (long long)r->shots, r->layers);
    if (r->resumed) {
        str_addf(out, ", %zu documents resumed from ", r->resumed);
        cli_add_safe(out, o->results, strlen(o->results), -1);
    }
    str_add(out, "\n");
    table_init(&t, DS_LEN(title));
    for (size_t i = 0; i < DS_LEN(title); i++)
        table_add(&t, title[i]);
    for (size_t i = 0; i < r->n; i++)
        for (size_t k = 0; k < r->task->n_metrics; k++)
            add_row(&t, r, &r->v[i], k);
    table_print(&t, out);
    table_release(&t);
    str_add(out, "depth: mean executed layers over all tokens; scored: over positions that predict "
                 "scored tokens;\nblocks, flops: share of the dense model, counted over the scored "
                 "passes\n");
}

/* Only older results may be replaced. */
static int check_output(const char *path, struct err *e)
{
    static const char begin[] = "{\"results\"";
    struct fs_map old;
    if (fs_stream_fd(path) >= 0 || !fs_exists(path))
        return cli_output_check(path, e);
    int rc = fs_map_open(&old, path, e);
    if (rc < 0)
        return rc;
    int is_ours = old.n >= sizeof begin && memcmp(old.p, begin, sizeof begin - 1) == 0;
    fs_map_close(&old);
    return is_ours ? cli_output_check(path, e)
                   : err_set(e, DS_EEXIST, "%s: not a results file; choose another name", path);
}

static int write_result(const struct cli_args *a, const struct task_result *r,
                        const struct subject *s, const struct task_options *o, struct str *out,
                        struct err *e)
{
    struct str json = {0};
    const char *file = cli_value(a, "o");
    task_result_json(&json, r, s, o);
    int rc = json.failed ? err_set(e, DS_EMEM, "results") : 0;
    if (rc == 0 && cli_flag(a, "json"))
        str_add_bytes(out, json.p, json.len);
    else if (rc == 0)
        print_result(out, r, s, o);
    if (rc == 0 && file)
        rc = fs_write_file(file, json.p, json.len, e);
    str_release(&json);
    return rc;
}

int eval_task(const struct cli_args *a, struct subject *s, const struct ppl_options *o,
              struct str *out, struct err *e)
{
    struct task_result r;
    struct task_options t = options_of(o, s);
    struct progress p = {.started = clock_mono(), .is_terminal = isatty(2)};
    int rc = refuse(a, o, e);
    if (rc == 0 && cli_value(a, "o")) /* before the evaluation starts */
        rc = check_output(cli_value(a, "o"), e);
    if (rc == 0)
        rc = task_run(&r, s, &t, show_progress, &p, e);
    if (rc < 0)
        return rc;
    rc = write_result(a, &r, s, &t, out, e);
    task_result_release(&r);
    return rc;
}
