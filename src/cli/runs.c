/* depthscope runs [DIR]: lists runs, live ones first. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "eval/summary.h"
#include "training/job.h"

struct cli_option runs_options[] = {
    {.name = "json", .help = "a JSON array of objects"},
    {.name = NULL},
};

static void add_json(struct str *out, const struct job_info *j, const struct summary *s)
{
    json_key(out, NULL);
    str_add(out, "{");
    json_add_str(out, "name", j->name);
    json_add_str(out, "path", j->path);
    json_add_str(out, "method", j->method);
    json_add_str(out, "preset", j->preset);
    json_add_str(out, "state", j->is_live ? "running" : s->status);
    json_add_int(out, "step", s->step);
    json_add_int(out, "steps", s->steps);
    json_add_int(out, "seed", s->seed);
    json_add_num(out, "val_loss", s->value[SUMMARY_VAL_LOSS]);
    json_add_num(out, "flops_ratio", s->value[SUMMARY_FLOPS]);
    json_add_num(out, "time_ratio", s->value[SUMMARY_TIME]);
    json_add_num(out, "modified", j->modified);
    json_add_int(out, "pid", j->is_live ? j->pid : 0);
    str_add(out, "}");
}

static void add_row(struct table *t, const struct job_info *j, const struct summary *s)
{
    char age[16], text[32];
    table_add(t, j->name);
    table_add(t, j->method);
    table_add(t, j->is_live ? "running" : s->status);
    table_addf(t, "%lld/%lld", s->step, s->steps);
    for (int k = 0; k < 3; k++) {
        static const int column[] = {SUMMARY_VAL_LOSS, SUMMARY_FLOPS, SUMMARY_TIME};
        struct interval one = stat_interval(&s->value[column[k]], 1);
        table_add(t, stat_print(text, sizeof text, &one, summary_rows[column[k]].digits));
    }
    table_addf(t, "%s ago", str_duration(age, clock_wall() - j->modified));
}

static int list(const struct cli_args *a, struct str *out, struct err *e)
{
    static const char *const title[] = {"run",      "method", "state", "step",
                                        "val loss", "FLOPs",  "time",  "newest"};
    struct job_info *jobs = NULL;
    struct table t;
    size_t n = 0;
    const char *root = a->n_rest ? a->rest[0] : job_root();
    if (a->n_rest > 1 || a->n_override > 0)
        return err_set(e, DS_EUSAGE, "runs: expected one directory, found also %s",
                       a->n_rest > 1 ? a->rest[1] : a->override[0]);
    if (a->n_rest && !fs_is_dir(root))
        return err_set(e, DS_ENOTFOUND, "runs: %s: not a directory", root);
    int rc = job_list(root, &jobs, &n, e);
    if (rc < 0)
        return rc;
    table_init(&t, DS_LEN(title));
    for (size_t i = 0; i < DS_LEN(title); i++)
        table_add(&t, title[i]);
    str_add(out, cli_flag(a, "json") ? "[" : "");
    for (size_t i = 0; i < n; i++) {
        struct summary s;
        if (summary_read(&s, jobs[i].path, NULL) < 0) { /* created, but nothing logged yet */
            memset(&s, 0, sizeof s);
            str_copy(s.status, sizeof s.status, "empty");
            for (int k = 0; k < SUMMARY_N; k++)
                s.value[k] = (double)NAN;
        }
        if (cli_flag(a, "json"))
            add_json(out, &jobs[i], &s);
        else
            add_row(&t, &jobs[i], &s);
        summary_release(&s);
    }
    if (cli_flag(a, "json")) {
        str_add(out, "]\n");
    } else if (n == 0) {
        str_add(out, "no runs in ");
        cli_add_safe(out, root, strlen(root), -1);
        str_add(out, " yet; start one with depthscope train\n");
    } else {
        table_print(&t, out);
    }
    table_release(&t);
    mem_free(jobs);
    return 0;
}

int runs_command(int argc, char **argv)
{
    return cli_report(argc, argv, runs_options, list);
}
