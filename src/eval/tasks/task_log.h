/* Results file of finished documents, one JSON line each, from which a later evaluation
 * continues. */
#ifndef DS_EVAL_TASK_LOG_H
#define DS_EVAL_TASK_LOG_H

#include "eval/task.h"

struct task_log;
/* path "": nothing is kept.  about: description shared by all lines; a file with another one is
 * DS_EEXIST.  An incomplete last line is removed. */
int task_log_open(struct task_log **out, const char *path, const char *about,
                  struct err *e) DS_CHECK;
void task_log_close(struct task_log *l);

struct task_done {
    struct task_value value[TASK_METRICS_MAX];
    struct task_cost cost;
};
/* 1 and *out when document i of the part is in the file; hash: of its prompt and choices, DS_EEXIST
 * when they differ. */
int task_log_get(const struct task_log *l, const char *part, size_t i, uint64_t hash,
                 struct task_done *out, struct err *e) DS_CHECK;
int task_log_add(struct task_log *l, const char *part, size_t i, uint64_t hash,
                 const struct task_doc *d, const struct task_answer *a, const struct task_done *x,
                 struct err *e) DS_CHECK;

#endif
