/* Tables of run groups and paired differences, for compare, sweep and ablate. */
#include "cli/report.h"

#include <string.h>

#include "base/mem.h"
#include "cli/use.h"

/* Prints the columns from..to-1 that at least one group has; 0 when none does. */
static int add_part(struct str *out, const struct summary_group *g, size_t n, int from, int to)
{
    int shown[SUMMARY_N] = {0};
    size_t columns = 2, failed = 0;
    struct table t;
    for (int row = from; row < to; row++) {
        for (size_t k = 0; k < n && !shown[row]; k++)
            shown[row] = g[k].value[row].n > 0;
        columns += (size_t)shown[row];
    }
    if (columns == 2)
        return 0;
    for (size_t k = 0; k < n; k++)
        failed += g[k].failed + g[k].missing;
    table_init(&t, columns + (failed > 0));
    table_add(&t, "");
    table_add(&t, "n");
    if (failed > 0)
        table_add(&t, "state");
    for (int row = from; row < to; row++)
        if (shown[row])
            table_add(&t, summary_rows[row].title);
    for (size_t k = 0; k < n; k++) {
        table_add(&t, g[k].label);
        table_addf(&t, "%zu", g[k].n - g[k].failed);
        if (g[k].failed + g[k].missing > 0)
            table_addf(&t, "%zu failed", g[k].failed + g[k].missing);
        else if (failed > 0)
            table_add(&t, "ok");
        for (int row = from; row < to; row++) {
            char text[64];
            if (shown[row])
                table_add(
                    &t, stat_print(text, sizeof text, &g[k].value[row], summary_rows[row].digits));
        }
    }
    table_print(&t, out);
    table_release(&t);
    return 1;
}

void report_groups(struct str *out, const struct summary_group *g, size_t n)
{
    if (add_part(out, g, n, 0, SUMMARY_RANDOM))
        str_add(out, "\n");
    if (add_part(out, g, n, SUMMARY_RANDOM, SUMMARY_N))
        str_add(out, "\n");
    str_add(out, "mean over n seeds [95 % confidence interval, Student's t]; blocks, FLOPs and "
                 "time are shares "
                 "of the dense model\n");
}

/* Compares every group with the first; p values adjusted jointly.  Returns how many have an
 * interval. */
static size_t compare_with_first(struct difference *d, double *p, const struct summary_group *g,
                                 size_t n, const struct summary *runs)
{
    size_t known = 0;
    for (size_t k = 1; k < n; k++) {
        d[k] = summary_paired(&g[k], &g[0], runs, SUMMARY_VAL_LOSS);
        p[k] = d[k].p;
        known += d[k].of.n > 1;
    }
    if (n > 1)
        stat_holm(p + 1, n - 1);
    return known;
}

void report_paired(struct str *out, const struct summary_group *g, size_t n,
                   const struct summary *runs)
{
    struct difference *d = mem_alloc(n, sizeof *d);
    double *p = mem_alloc(n, sizeof *p);
    struct table t;
    if (!d || !p || compare_with_first(d, p, g, n, runs) == 0)
        goto out;
    str_add(out, "\nval loss minus that of ");
    cli_add_safe(out, g[0].label, strlen(g[0].label), -1);
    str_add(out, ", paired by seed:\n");
    table_init(&t, 4);
    table_add(&t, "");
    table_add(&t, "pairs");
    table_add(&t, "difference [95 % t interval]");
    table_add(&t, "p (Holm)");
    for (size_t k = 1; k < n; k++) {
        char text[64];
        table_add(&t, g[k].label);
        table_addf(&t, "%zu", d[k].of.n);
        table_add(&t, stat_print(text, sizeof text, &d[k].of, 3));
        if (d[k].of.n > 1)
            table_addf(&t, "%.2g", p[k]);
        else
            table_add(&t, "-");
    }
    table_print(&t, out);
    table_release(&t);
out:
    mem_free(d);
    mem_free(p);
}

void report_paired_json(struct str *out, const struct summary_group *g, size_t n,
                        const struct summary *runs)
{
    struct difference *d = mem_alloc(n, sizeof *d);
    double *p = mem_alloc(n, sizeof *p);
    str_add(out, "[");
    if (d && p)
        compare_with_first(d, p, g, n, runs);
    for (size_t k = 1; d && p && k < n; k++) {
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "label", g[k].label);
        json_add_int(out, "n", (int64_t)d[k].of.n);
        json_add_num(out, "mean", d[k].of.mean);
        json_add_num(out, "lo", d[k].of.lo);
        json_add_num(out, "hi", d[k].of.hi);
        json_add_num(out, "p", d[k].p);
        json_add_num(out, "p_holm", p[k]);
        str_add(out, "}");
    }
    str_add(out, "]");
    mem_free(d);
    mem_free(p);
}
