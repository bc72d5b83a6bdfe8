/* depthscope eval MODEL task=NAME: task scores and compute. */
#ifndef DS_CLI_EVAL_TASK_H
#define DS_CLI_EVAL_TASK_H

#include "base/err.h"
#include "base/str.h"
#include "cli/commands.h"
#include "eval/perplexity.h"

/* Prints the table, or with --json (and to -o FILE) results in the format of the evaluation
 * harness. */
int eval_task(const struct cli_args *a, struct subject *s, const struct ppl_options *o,
              struct str *out, struct err *e) DS_CHECK;

#endif
