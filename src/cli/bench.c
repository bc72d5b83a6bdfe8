/* depthscope bench: speed of products, steps, prefill and decode. */
#include <string.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "cli/use.h"
#include "cli/version.h"
#include "engine/gemm.h"
#include "eval/speed.h"

static struct cli_option options[] = {
    {.name = "json",
     .help = "one JSON object: results, each with name, unit, median, min, max, vs"},
    {.name = NULL},
};

static void print_json(struct str *out, const struct speed_list *l)
{
    char cpu[256];
    cpu_describe(cpu, sizeof cpu);
    str_add(out, "{");
    json_key(out, "results");
    str_add(out, "[");
    for (size_t i = 0; i < l->n; i++) {
        const struct speed_result *r = &l->v[i];
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
        str_add(out, "}");
    }
    str_add(out, "]");
    json_add_str(out, "version", DEPTHSCOPE_VERSION);
    json_add_str(out, "cpu", cpu);
    json_add_int(out, "threads", pool_threads());
    json_add_str(out, "products", gemm_name(gemm_provider(GEMM_FP32)));
    str_add(out, "}\n");
}

static void print_table(struct str *out, const struct speed_list *l)
{
    static const char *const title[] = {"", "median", "min", "max", "unit", "against"};
    struct table t;
    table_init(&t, DS_LEN(title));
    for (size_t i = 0; i < DS_LEN(title); i++)
        table_add(&t, title[i]);
    for (size_t i = 0; i < l->n; i++) {
        const struct speed_result *r = &l->v[i];
        table_add(&t, r->name);
        table_addf(&t, "%.4g", r->median);
        table_addf(&t, "%.4g", r->min);
        table_addf(&t, "%.4g", r->max);
        table_add(&t, r->unit);
        if (r->reference)
            table_addf(&t, "%.2f of %s", r->vs, r->reference);
        else
            table_add(&t, "");
    }
    table_print(&t, out);
    str_addf(out, "%d threads, products by %s\n", pool_threads(), gemm_name(gemm_provider(GEMM_FP32)));
    table_release(&t);
}

/* The peaks are always measured: they are what the rest is compared with. */
static int has_name(const struct speed_list *l, const char *only)
{
    for (size_t i = 0; i < l->n; i++)
        if (strstr(l->v[i].name, only))
            return 1;
    return 0;
}

int bench_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct speed_options o = {0};
    struct speed_list l = {0};
    struct str out = {0};
    int rc = cli_parse(&a, options, argc, argv, &e);
    if (rc < 0)
        return command_fail(&e);
    int json = cli_flag(&a, "json");
    if (a.n_rest > 0)
        rc = err_set(&e, DS_EUSAGE, "bench takes key=value only, not %s", a.rest[0]);
    if (rc == 0)
        rc = cli_apply(&a, &speed_group, &o, &e);
    cli_release(&a);
    if (rc < 0)
        return command_fail(&e);
    rc = pool_start((int)o.threads, &e);
    if (rc == 0)
        rc = speed_run(&l, &o, &e);
    if (rc == 0 && !has_name(&l, o.only))
        rc =
            err_set(&e, DS_EUSAGE, "bench: only=%s: nothing measured has that in its name", o.only);
    if (rc == 0 && json)
        print_json(&out, &l);
    else if (rc == 0)
        print_table(&out, &l);
    speed_release(&l);
    opt_release(&speed_group, &o);
    pool_stop();
    return rc < 0 ? command_fail(&e) : cli_print(&out);
}
