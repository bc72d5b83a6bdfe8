/* depthscope eval MODEL task=NAME: right and wrong answers, and what they cost. */
#ifndef DS_CLI_EVAL_TASK_H
#define DS_CLI_EVAL_TASK_H

#include "base/err.h"
#include "base/str.h"
#include "cli/commands.h"
#include "eval/perplexity.h"

/* The table, or with --json (and into -o FILE) the results as the harness writes them. */
int eval_task(const struct cli_args *a, struct subject *s, const struct ppl_options *o,
              struct str *out, struct err *e) DS_CHECK;

#endif
