/* The result tables of compare, sweep and ablate. */
#ifndef DS_CLI_REPORT_H
#define DS_CLI_REPORT_H

#include "base/str.h"
#include "eval/summary.h"

/* Differences in validation loss from the first group, paired by seed, with p values adjusted by Holm's method; nothing where
 * no two groups share two seeds. */
void report_paired(struct str *out, const struct summary_group *g, size_t n,
                   const struct summary *runs);
void report_paired_json(struct str *out, const struct summary_group *g, size_t n,
                        const struct summary *runs);
/* One line per group: label, n, then the columns that at least one group has, with 95 % intervals;
 * first cost, then depth. */
void report_groups(struct str *out, const struct summary_group *g, size_t n);

#endif
