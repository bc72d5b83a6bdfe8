/* depthscope compare RUN...: a table of runs; those that differ only in their seed share a line,
 * one of each seed. */
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/mem.h"
#include "cli/report.h"
#include "cli/cli.h"
#include "io/experiment.h"

struct cli_option compare_options[] = {
    {.name = "json", .help = "one JSON object: runs, groups, differences"},
    {.name = "latex", .help = "a LaTeX table (booktabs) of groups and paired differences"},
    {.name = "csv", .help = "comma-separated values, one line per group"},
    {.name = "metric",
     .has_value = 1,
     .help = "KEY  what the paired differences are of: val_loss, answer_loss, time_ratio, ..."},
    {.name = "group",
     .has_value = 1,
     .help = "NAME=RUN,RUN,...  a line of the table, such as one rule over its seeds; repeatable"},
    {.name = "each", .help = "one line per run, without grouping seeds"},
    {.name = "width",
     .has_value = 1,
     .help = "COLUMNS  fold tables that are wider (default: the terminal's)"},
    {.name = NULL},
};
enum { RUNS_MAX = 1024 };

static const char *group_setting(const struct report *r, size_t k, const char *key)
{
    return summary_setting(&r->runs[r->group[k].member[0]], key);
}

static void print_json(struct str *out, const struct report *r, size_t n_runs, const char **key,
                       size_t keys)
{
    str_add(out, "{\"runs\":[");
    for (size_t i = 0; i < n_runs; i++) {
        json_key(out, NULL);
        summary_run_json(out, &r->runs[i]);
    }
    str_add(out, "],\"groups\":[");
    for (size_t i = 0; i < r->n; i++) {
        json_key(out, NULL);
        summary_group_json(out, &r->group[i], r->runs);
    }
    str_add(out, "],\"paired\":");
    report_paired_json(out, r);
    str_add(out, ",\"differences\":{");
    for (size_t i = 0; i < keys; i++) {
        json_key(out, key[i]);
        str_add(out, "[");
        for (size_t k = 0; k < r->n; k++) {
            const char *v = group_setting(r, k, key[i]);
            json_key(out, NULL);
            if (v)
                str_add_json(out, v, strlen(v));
            else
                str_add(out, "null");
        }
        str_add(out, "]");
    }
    str_add(out, "}}\n");
}

/* Keys of a single method are left out: they follow from the method's name. */
static int is_shown(const struct report *r, const char *key)
{
    const char *first = NULL;
    for (size_t k = 0; k < r->n; k++) {
        const char *v = group_setting(r, k, key);
        if (v && first && strcmp(v, first) != 0)
            return 1;
        first = first ? first : v;
    }
    return 0;
}

static void print_differences(struct str *out, const struct report *r, const char **key,
                              size_t keys)
{
    struct table t;
    if (keys == 0 || r->n < 2)
        return;
    table_init(&t, r->n + 1);
    table_add(&t, "");
    for (size_t k = 0; k < r->n; k++)
        table_add(&t, r->group[k].label);
    for (size_t i = 0; i < keys; i++) {
        if (!is_shown(r, key[i]))
            continue;
        table_add(&t, key[i]);
        for (size_t k = 0; k < r->n; k++) {
            const char *v = group_setting(r, k, key[i]);
            table_add(&t, v && v[0] ? v : "-");
        }
    }
    if (t.n > t.columns) { /* more than the names */
        str_add(out, "\nsettings that differ:\n");
        table_wrap(&t, out, r->width);
    }
    table_release(&t);
}

static void print_unfinished(struct str *out, const struct summary *runs, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (strcmp(runs[i].status, "done") != 0 &&
            runs[i].steps > 0) { /* steps = 0: an evaluation */
            str_add(out, "note: ");
            cli_add_safe(out, runs[i].name, strlen(runs[i].name), -1);
            str_addf(out, " %s%s at step %lld of %lld%s\n", summary_failed(&runs[i]) ? "" : "is ",
                     runs[i].status, runs[i].step, runs[i].steps,
                     summary_failed(&runs[i]) ? ": excluded from the means" : "");
        }
}

/* The runs to read, and the group that --group puts each into. */
struct list {
    char **run;
    size_t *group, n, cap, groups;
};

static void list_release(struct list *l)
{
    for (size_t i = 0; i < l->n; i++)
        mem_free(l->run[i]);
    mem_free(l->run);
    mem_free(l->group);
}

static int list_add(struct list *l, const char *text, size_t n, size_t group, struct err *e)
{
    if (l->n == l->cap)
        return err_set(e, DS_EUSAGE, "compare: expected at most %d runs", RUNS_MAX);
    char *copy = mem_alloc(n + 1, 1);
    if (!copy)
        return err_set(e, DS_EMEM, "compare: out of memory");
    memcpy(copy, text, n);
    l->group[l->n] = group;
    l->run[l->n++] = copy;
    return 0;
}

/* "NAME=RUN,RUN" */
static int list_group(struct list *l, const char *text, struct err *e)
{
    const char *equals = strchr(text, '=');
    int rc = 0;
    if (!equals || equals == text || !equals[1])
        return err_set(e, DS_EUSAGE, "compare: --group %s: expected NAME=RUN,RUN,...", text);
    for (const char *p = equals + 1; rc == 0 && *p;) {
        size_t n = strcspn(p, ",");
        rc = n > 0 ? list_add(l, p, n, l->groups, e)
                   : err_set(e, DS_EUSAGE, "compare: --group %s: empty name of a run", text);
        p += n + (p[n] == ',');
    }
    l->groups++;
    return rc;
}

static int list_fill(struct list *l, const struct cli_args *a, struct err *e)
{
    const char *text;
    int rc = 0;
    l->cap = RUNS_MAX;
    l->run = mem_alloc(l->cap, sizeof *l->run);
    l->group = mem_alloc(l->cap, sizeof *l->group);
    if (!l->run || !l->group)
        return err_set(e, DS_EMEM, "compare: out of memory");
    for (int i = 0; rc == 0 && i < a->n_rest; i++)
        rc = list_add(l, a->rest[i], strlen(a->rest[i]), 0, e);
    for (int i = 0; rc == 0 && (text = cli_value_at(a, "group", i)) != NULL; i++)
        rc = list_group(l, text, e);
    return rc;
}

/* A duplicate run would look like another seed with the same result. */
static int is_named_before(const struct list *l, size_t i, const struct stat *st)
{
    char path[1024];
    struct stat other;
    for (size_t k = 0; k < i; k++)
        if (cli_run_path(path, sizeof path, l->run[k], NULL) == 0 && stat(path, &other) == 0 &&
            other.st_dev == st->st_dev && other.st_ino == st->st_ino)
            return 1;
    return 0;
}

/* Runs of one name get their folders into their labels. */
static int name_runs(struct summary *runs, size_t n, const struct list *l, struct err *e)
{
    const char **name = mem_alloc(n ? n : 1, sizeof *name);
    char(*apart)[sizeof runs->name] = mem_alloc(n ? n : 1, sizeof *apart);
    for (size_t i = 0; name && apart && i < n; i++)
        name[i] = runs[i].name;
    for (size_t i = 0; name && apart && i < n; i++)
        experiment_name(apart[i], sizeof apart[i], name, (const char *const *)l->run, n, i);
    for (size_t i = 0; name && apart && i < n; i++)
        str_copy(runs[i].name, sizeof runs[i].name, apart[i]);
    int rc = name && apart ? 0 : err_set(e, DS_EMEM, "compare: out of memory");
    mem_free(name);
    mem_free(apart);
    return rc;
}

static int read_runs(struct summary *runs, size_t *n, const struct list *l, struct err *e)
{
    char path[1024];
    for (size_t i = 0; i < l->n; i++) {
        struct stat st;
        int rc = cli_run_path(path, sizeof path, l->run[i], e);
        if (rc == 0 && stat(path, &st) == 0 && is_named_before(l, i, &st))
            rc = err_set(e, DS_EUSAGE, "compare: duplicate run %s", l->run[i]);
        if (rc == 0)
            rc = summary_read(&runs[*n], path, e);
        if (rc < 0)
            return rc;
        ++*n;
    }
    return name_runs(runs, *n, l, e);
}

/* The groups of --group, as given. */
static int given_groups(struct summary_group **g, size_t *groups, const struct summary *runs,
                        const struct list *l, const struct cli_args *a, struct err *e)
{
    *g = mem_alloc(l->groups, sizeof **g);
    if (!*g)
        return err_set(e, DS_EMEM, "groups");
    *groups = l->groups;
    for (size_t i = 0; i < l->n; i++) {
        struct summary_group *x = &(*g)[l->group[i]];
        for (size_t k = 0; k < x->n; k++)
            if (runs[i].seed >= 0 && runs[x->member[k]].seed == runs[i].seed)
                return err_set(e, DS_EUSAGE,
                               "compare: --group %s: %s and %s have the same seed %lld",
                               cli_value_at(a, "group", (int)l->group[i]), l->run[x->member[k]],
                               l->run[i], runs[i].seed);
        if (x->n == DS_LEN(x->member))
            return err_set(e, DS_ERANGE, "compare: more than %zu runs in a group",
                           DS_LEN(x->member));
        x->member[x->n++] = i;
    }
    for (size_t k = 0; k < l->groups; k++) {
        const char *text = cli_value_at(a, "group", (int)k);
        snprintf((*g)[k].label, sizeof(*g)[k].label, "%.*s", (int)strcspn(text, "="), text);
        summary_estimate(&(*g)[k], runs);
    }
    return 0;
}

static int each_run(struct summary_group **g, size_t *groups, const struct summary *runs, size_t n,
                    struct err *e)
{
    *g = mem_alloc(n, sizeof **g);
    if (!*g)
        return err_set(e, DS_EMEM, "groups");
    for (size_t i = 0; i < n; i++) {
        str_copy((*g)[i].label, sizeof(*g)[i].label, runs[i].name);
        (*g)[i].n = 1;
        (*g)[i].member[0] = i;
        summary_estimate(&(*g)[i], runs);
    }
    *groups = n;
    return 0;
}

static int check_arguments(const struct cli_args *a, struct err *e)
{
    if (a->n_override > 0)
        return err_set(e, DS_EUSAGE, "compare: unexpected setting %s", a->override[0]);
    if (cli_flag(a, "group") && (a->n_rest > 0 || cli_flag(a, "each")))
        return err_set(e, DS_EUSAGE, "compare: --group: unexpected %s",
                       a->n_rest > 0 ? a->rest[0] : "--each");
    if ((a->n_rest == 0 && !cli_flag(a, "group")) || a->n_rest > RUNS_MAX)
        return err_set(e, DS_EUSAGE, "compare: expected 1 to %d runs (depthscope runs lists them)",
                       RUNS_MAX);
    if (cli_flag(a, "json") + cli_flag(a, "latex") + cli_flag(a, "csv") > 1)
        return err_set(e, DS_EUSAGE, "compare: use only one of --json, --latex and --csv");
    return 0;
}

static int asked_row(int *out, const struct cli_args *a, struct err *e)
{
    const char *text = cli_value(a, "metric"), *keys[SUMMARY_N];
    for (*out = 0; *out < SUMMARY_N; ++*out) {
        keys[*out] = summary_rows[*out].key;
        if (!text || strcmp(text, keys[*out]) == 0)
            return 0;
    }
    return err_set(e, DS_EUSAGE, "compare: unknown --metric %s; did you mean %s?", text,
                   cli_nearest(text, keys, SUMMARY_N));
}

static int asked_width(int *out, const struct cli_args *a, struct err *e)
{
    const char *text = cli_value(a, "width");
    char *end;
    long n = text ? strtol(text, &end, 10) : cli_columns(0);
    if (text && (end == text || *end || n < 20 || n > 10000))
        return err_set(e, DS_EUSAGE, "compare: --width %s: must be from 20 to 10000 columns", text);
    *out = (int)n;
    return 0;
}

static int compare(const struct cli_args *a, struct str *out, struct err *e)
{
    struct summary *runs = NULL;
    struct summary_group *g = NULL;
    const char **key = NULL;
    size_t n = 0, groups = 0, keys = 0;
    struct list list = {0};
    int width = 0, row = 0, rc = check_arguments(a, e);
    if (rc == 0)
        rc = asked_width(&width, a, e);
    if (rc == 0)
        rc = asked_row(&row, a, e);
    if (rc < 0 || (rc = list_fill(&list, a, e)) < 0)
        goto out;
    runs = mem_alloc(list.n, sizeof *runs);
    if (!runs) {
        rc = err_set(e, DS_EMEM, "compare: out of memory");
        goto out;
    }
    rc = read_runs(runs, &n, &list, e);
    if (rc < 0)
        goto out;
    rc = cli_flag(a, "group")
             ? given_groups(&g, &groups, runs, &list, a, e)
             : (cli_flag(a, "each") ? each_run : summary_group)(&g, &groups, runs, n, e);
    if (rc < 0)
        goto out;
    rc = summary_differences(&key, &keys, runs, n, e);
    if (rc < 0)
        goto out;
    struct report r = {.group = g, .n = groups, .runs = runs, .row = row, .width = width};
    if (cli_flag(a, "json")) {
        print_json(out, &r, n, key, keys);
    } else if (cli_flag(a, "latex")) {
        report_latex(out, &r);
    } else if (cli_flag(a, "csv")) {
        report_csv(out, &r);
    } else {
        report_groups(out, &r);
        report_paired(out, &r);
        print_differences(out, &r, key, keys);
        print_unfinished(out, runs, n);
    }
out:
    for (size_t i = 0; i < n; i++)
        summary_release(&runs[i]);
    list_release(&list);
    mem_free(runs);
    mem_free(g);
    mem_free(key);
    return rc;
}

int compare_command(int argc, char **argv)
{
    return cli_report(argc, argv, compare_options, compare);
}
