/* depthscope bench: speed of matrix multiplications, training steps, prefill and decoding. */
#include <math.h>
#include <string.h>

#include "base/config.h"
#include "base/cpu.h"
#include "base/pool.h"
#include "base/ranks.h"
#include "cli/cli.h"
#include "cli/version.h"
#include "engine/peak.h"
#include "eval/speed.h"
#include "models/config.h"
#include "models/load.h"

struct cli_option bench_options[] = {
    {.name = "json",
     .help = "one JSON object: results, each with name, unit, median, min, max, vs"},
    {.name = NULL},
};

/* ---- JSON ---- */

static void add_known(struct str *out, const char *key, double v)
{
    if (isfinite(v))
        json_add_num(out, key, v);
}

static void print_result(struct str *out, const struct speed_result *r)
{
    json_key(out, NULL);
    str_add(out, "{");
    json_add_str(out, "name", r->name);
    json_add_str(out, "unit", r->unit);
    json_add_num(out, "median", r->median);
    json_add_num(out, "min", r->min);
    json_add_num(out, "max", r->max);
    json_add_num(out, "vs", r->vs);
    if (r->reference)
        json_add_str(out, "reference", r->reference);
    json_add_str(out, "group", r->group);
    add_known(out, "gflops", r->gflops);
    add_known(out, "gbs", r->gbs);
    if (r->limit)
        json_add_str(out, "limit", r->limit);
    add_known(out, "share", r->share);
    add_known(out, "tokens_s", r->tokens_s);
    add_known(out, "time_ratio", r->time_ratio);
    add_known(out, "flops_ratio", r->flops_ratio);
    add_known(out, "weights_bytes", r->weights_bytes);
    add_known(out, "stream_bytes", r->stream_bytes);
    add_known(out, "work_bytes", r->scratch_bytes);
    str_add(out, "}");
}

/* from: the checkpoint that was measured; "" = none. */
static void print_json(struct str *out, const struct speed_list *l, const char *from)
{
    char cpu[256];
    cpu_describe(cpu, sizeof cpu);
    str_add(out, "{");
    json_key(out, "results");
    str_add(out, "[");
    for (size_t i = 0; i < l->n; i++)
        print_result(out, &l->v[i]);
    str_add(out, "]");
    json_add_str(out, "version", DEPTHSCOPE_VERSION);
    json_add_str(out, "cpu", cpu);
    json_add_int(out, "threads", pool_threads());
    json_add_str(out, "gemm", l->gemm);
    json_add_str(out, "model", l->model);
    if (from[0])
        json_add_str(out, "checkpoint", from);
    json_add_num(out, "memory_bytes", l->memory_bytes);
    str_add(out, "}\n");
}

/* ---- tables ---- */

static void add_number(struct table *t, double v)
{
    if (!isfinite(v))
        table_add(t, "");
    else if (fabs(v) >= 100)
        table_addf(t, "%.0f", v);
    else
        table_addf(t, "%.3g", v);
}

static void add_ratio(struct table *t, double v)
{
    if (isfinite(v))
        table_addf(t, "%.2f", v);
    else
        table_add(t, "");
}

/* Groups without limits to compare with. */
static int is_plain(const char *group)
{
    return strcmp(group, "peaks") == 0 || strcmp(group, "sample") == 0 ||
           strcmp(group, "ranks") == 0;
}

static void add_row(struct table *t, const struct speed_result *r, int is_model)
{
    double rate = isfinite(r->gbs) ? r->gbs : r->gflops,
           mib = (r->weights_bytes + r->stream_bytes + r->scratch_bytes) / (1 << 20);
    table_add(t, r->name);
    add_number(t, r->median);
    add_number(t, r->min);
    add_number(t, r->max);
    if (!is_model)
        table_add(t, r->unit);
    if (strcmp(r->group, "ranks") == 0)
        add_ratio(t, r->share);
    if (is_plain(r->group))
        return;
    if (is_model || strcmp(r->unit, "GFLOP/s") != 0)
        add_number(t, rate);
    else
        table_add(t, "");
    if (r->limit)
        table_addf(t, "%.2f %s", r->share, r->limit);
    else
        table_add(t, "");
    add_ratio(t, r->time_ratio);
    if (!is_model)
        return;
    add_ratio(t, r->flops_ratio);
    add_number(t, mib);
}

/* Prints the adjacent results of one group as a table. */
static size_t print_group(struct str *out, const struct speed_list *l, size_t from)
{
    static const char *const
        peaks[] = {"limits", "median", "min", "max", "", NULL},
        *const draws[] = {"one token of 152k", "median", "min", "max", "", NULL},
        *const ranks[] = {"ranks", "median", "min", "max", "", "efficiency", NULL},
        *const ops[] = {"operations", "median", "min", "max", "", "G/s", "share", "gathered", NULL},
        *const load[] = {"a model on disk", "median",     "min", "max", "", "GB/s",
                         "share",           "vs reading", NULL},
        *const model[] = {"tokens/s", "median", "min",   "max", "G/s",
                          "share",    "time",   "FLOPs", "MiB", NULL};
    const char *group = l->v[from].group;
    int is_peaks = strcmp(group, "peaks") == 0, is_load = strcmp(group, "load") == 0,
        is_ops = is_load || strcmp(group, "ops") == 0, is_ranks = strcmp(group, "ranks") == 0;
    const char *const *title = is_peaks          ? peaks
                               : is_ranks        ? ranks
                               : is_plain(group) ? draws
                               : is_load         ? load
                               : is_ops          ? ops
                                                 : model;
    struct table t;
    size_t columns = 0, i = from;
    while (title[columns])
        columns++;
    table_init(&t, columns);
    for (size_t c = 0; c < columns; c++)
        table_add(&t, title[c]);
    for (; i < l->n && strcmp(l->v[i].group, group) == 0; i++)
        add_row(&t, &l->v[i], !is_plain(group) && !is_ops);
    if (from > 0)
        str_add(out, "\n");
    table_print(&t, out);
    table_release(&t);
    return i;
}

static void print_tables(struct str *out, const struct speed_list *l)
{
    for (size_t i = 0; i < l->n;)
        i = print_group(out, l, i);
    str_addf(out, "\n%s\n%d thread%s, GEMMs by %s, about %.0f MiB\n", l->model, pool_threads(),
             pool_threads() == 1 ? "" : "s", l->gemm, l->memory_bytes / (1 << 20));
    if (strcmp(l->v[0].group, "ranks") == 0) {
        str_addf(out,
                 "%d ranks at once, their slowest; efficiency: own work of a step, each rank with "
                 "its\nbatch, over the step with all exchanges\n",
                 ranks_size());
        return;
    }
    str_add(out,
            "share: of the named limit, at the median; G/s: GFLOP/s, or GB/s where memory "
            "bandwidth\nis the limit; time, FLOPs: relative to the dense pass measured alongside; "
            "MiB: peak of\nweights, residual stream and workspace\n");
}

/* ---- command ---- */

enum { RANKS_PATIENCE = 60 /* seconds without progress of a rank */ };

static int apply(const struct cli_args *a, struct speed_options *o, struct config *c, struct err *e)
{
    const struct opt_group *const groups[] = {&speed_group, &model_group};
    struct model_config model = {0}; /* only to check the keys */
    char where[32];
    int rc = opt_defaults(&speed_group, o, e);
    for (int i = 0; i < a->n_override && rc == 0; i++) {
        snprintf(where, sizeof where, "setting %d", i + 1);
        rc = config_override(c, a->override[i], where, e);
    }
    if (rc == 0)
        rc = config_apply(c, &speed_group, o, e);
    if (rc == 0)
        rc = opt_defaults(&model_group, &model, e);
    if (rc == 0)
        rc = config_apply(c, &model_group, &model, e);
    if (rc == 0)
        rc = config_check_unused(c, groups, DS_LEN(groups), e);
    opt_release(&model_group, &model);
    return rc;
}

/* A model on disk is loaded and run as it is. */
static int check_model(const struct cli_args *a, struct err *e)
{
    static const char *const shape[] = {"shape", "layers", "dim", "heads", "vocab"},
                             *const training[] = {"batch", "seq"};
    int rc = cli_refuse_settings(a, &speed_group, shape, DS_LEN(shape),
                                 "cannot be set with MODEL, which has its own shape", e);
    return rc < 0 ? rc
                  : cli_refuse_settings(a, &speed_group, training, DS_LEN(training),
                                        "cannot be set with MODEL, which is not trained", e);
}

/* One of several ranks speaks for all. */
static int finish(int rc, struct err *e, struct str *out)
{
    int status = rc == 0 ? 0 : rc == DS_EUSAGE ? 2 : 1;
    if (ranks_speaks())
        status = rc < 0 ? command_fail(e) : cli_print(out);
    str_release(out);
    if (rc < 0 && rc != DS_EUSAGE && ranks_size() > 1)
        ranks_abort(status);
    ranks_end();
    return status;
}

int bench_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct speed_options o = {0};
    struct speed_list l = {0};
    struct config c = {0};
    struct str out = {0};
    int rc = cli_parse(&a, bench_options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    rc = ranks_begin(&e);
    int json = cli_flag(&a, "json");
    char from[1024] = "";
    if (rc == 0 && a.n_rest > 1)
        rc = err_set(&e, DS_EUSAGE, "bench: expected at most one MODEL, found also %s", a.rest[1]);
    else if (rc == 0 && a.n_rest == 1)
        rc = model_locate(a.rest[0], from, sizeof from, &e);
    if (rc == 0 && from[0])
        rc = check_model(&a, &e);
    if (rc == 0)
        rc = apply(&a, &o, &c, &e);
    cli_release(&a);
    if (rc == 0)
        rc = ranks_watch(RANKS_PATIENCE, &e);
    if (rc == 0)
        rc = pool_start((int)o.threads, &e);
    if (rc == 0)
        rc = speed_run(&l, &o, from[0] ? from : NULL, &c, &e);
    if (rc == 0 && json)
        print_json(&out, &l, from);
    else if (rc == 0)
        print_tables(&out, &l);
    speed_release(&l);
    opt_release(&speed_group, &o);
    config_release(&c);
    pool_stop();
    return finish(rc, &e, &out);
}
