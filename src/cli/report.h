/* The table that compare, sweep and ablate end with. */
#ifndef DS_CLI_REPORT_H
#define DS_CLI_REPORT_H

#include "base/str.h"
#include "eval/summary.h"

/* One line a group: label, n, then the numbers that at least one group has, with their 95 % intervals; what it costs
 * first, then where depth goes. */
/* Differences in validation loss from the first group, paired by seed, with p values adjusted by Holm's method; nothing where
 * no two groups share two seeds. */
void report_paired(struct str *out, const struct summary_group *g, size_t n, const struct summary *runs);
void report_paired_json(struct str *out, const struct summary_group *g, size_t n,
                        const struct summary *runs);
void report_groups(struct str *out, const struct summary_group *g, size_t n);

#endif
