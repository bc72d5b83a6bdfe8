/* depthscope eval MODEL --benchmark: its table, JSON object and records. */
#ifndef DS_CLI_EVAL_CAPACITY_H
#define DS_CLI_EVAL_CAPACITY_H

#include "base/str.h"
#include "eval/capacity.h"

void capacity_table_print(struct str *out, const struct subject *s, const struct capacity_table *t);
void capacity_table_json(struct str *out, const struct subject *s, const struct capacity_table *t);
/* A head, then an "eval" of task "capacity" for each row, into the file at path. */
int capacity_table_write(const char *path, const struct subject *s, const struct capacity_table *t,
                         struct err *e) DS_CHECK;

#endif
