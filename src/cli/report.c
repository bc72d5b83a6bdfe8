#include "cli/report.h"

#include "cli/use.h"

void report_groups(struct str *out, const struct summary_group *g, size_t n)
{
    int shown[SUMMARY_N] = {0};
    size_t columns = 2;
    struct table t;
    for (int row = 0; row < SUMMARY_N; row++) {
        for (size_t k = 0; k < n && !shown[row]; k++)
            shown[row] = g[k].value[row].n > 0;
        columns += (size_t)shown[row];
    }
    table_init(&t, columns);
    table_add(&t, "");
    table_add(&t, "n");
    for (int row = 0; row < SUMMARY_N; row++)
        if (shown[row])
            table_add(&t, summary_rows[row].title);
    for (size_t k = 0; k < n; k++) {
        table_add(&t, g[k].label);
        table_addf(&t, "%zu", g[k].n);
        for (int row = 0; row < SUMMARY_N; row++) {
            char text[64];
            if (shown[row])
                table_add(&t, estimate_print(text, sizeof text, &g[k].value[row], summary_rows[row].digits));
        }
    }
    table_print(&t, out);
    str_add(out, "mean over seeds [95 % bootstrap interval]; blocks, FLOPs and time are shares of the dense model\n");
    table_release(&t);
}
