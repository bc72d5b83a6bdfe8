/* The result tables of compare, sweep and ablate: groups of runs that differ only in their seed,
 * and the paired difference of each from the first group that has results. */
#ifndef DS_CLI_REPORT_H
#define DS_CLI_REPORT_H

#include "base/str.h"
#include "eval/summary.h"

/* Borrows everything. */
struct report {
    const struct summary_group *group;
    size_t n;
    const struct summary *runs;
    int row;   /* of the summary: what paired differences are of; 0: the validation loss */
    int width; /* cells of the terminal; 0: no limit */
};

/* One line per group: label, n, then the columns that at least one group has, as mean [95 % t
 * interval]; first cost, then depth; and the FLOPs of the dense models that shares refer to, where
 * these differ.  Where that is too wide: mean +- half the interval, then fewer columns. */
void report_groups(struct str *out, const struct report *r);
/* Differences in `row` from the reference, paired by seed, with p values of the paired t
 * test adjusted by Holm's method; nothing where no two groups share two seeds. */
void report_paired(struct str *out, const struct report *r);
/* [{"label","metric","n","mean","lo","hi","p","p_holm","metrics":{KEY:{...}}}, ...]: every group but the
 * reference.  metrics: the same of every row with a pair; Holm's adjustment is over the groups. */
void report_paired_json(struct str *out, const struct report *r);
/* One booktabs tabular of groups and paired differences. */
void report_latex(struct str *out, const struct report *r);
/* The same groups as a Markdown table: mean [95 % t interval] of the columns of report_groups, and
 * the paired difference. */
void report_markdown(struct str *out, const struct report *r);
/* One line per group: label, n, failed, then of every column mean, sd, lo and hi, then the paired
 * difference.  Empty: not recorded. */
void report_csv(struct str *out, const struct report *r);

#endif
