/* depthscope eval MODEL exit.layer=2..16: its table, JSON object and records. */
#ifndef DS_CLI_EVAL_EXITS_H
#define DS_CLI_EVAL_EXITS_H

#include "base/str.h"
#include "eval/exits.h"

void exit_table_print(struct str *out, const struct subject *s, const struct ppl_options *o,
                      const struct exit_table *t);
void exit_table_json(struct str *out, const struct subject *s, const struct ppl_options *o,
                     const struct exit_table *t);
/* A head, then an "eval" of task "exits" for each row, into the file at path. */
int exit_table_write(const char *path, const struct subject *s, const struct ppl_options *o,
                     const struct exit_table *t, struct err *e) DS_CHECK;

#endif
