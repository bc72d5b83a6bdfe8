#include "cli/report.h"

#include "cli/use.h"

/* The columns from..to-1 that at least one group has; 0 when there is none. */
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
                table_add(&t, estimate_print(text, sizeof text, &g[k].value[row],
                                             summary_rows[row].digits));
        }
    }
    table_print(&t, out);
    table_release(&t);
    return 1;
}

void report_groups(struct str *out, const struct summary_group *g, size_t n)
{
    if (add_part(out, g, n, 0, SUMMARY_LOT))
        str_add(out, "\n");
    if (add_part(out, g, n, SUMMARY_LOT, SUMMARY_N))
        str_add(out, "\n");
    str_add(out, "mean over seeds [95 % bootstrap interval]; blocks, FLOPs and time are shares of "
                 "the dense model\n");
}
