/* Tasks with right and wrong answers, in the manner of lm-evaluation-harness: the same prompts, shots, metrics and
 * results.  Beside every score stands what the model executed while it was made: counted from the plans of the very passes
 * whose log-probabilities (or text) were judged, never from a pass of its own. */
#ifndef DS_EVAL_TASK_H
#define DS_EVAL_TASK_H

#include <stddef.h>
#include <stdint.h>

#include "eval/subject.h"
#include "eval/task_impl.h"

enum { TASK_SHOTS_SEED = 1234, TASK_MAX_GEN = 256 };

struct task_options {
    const char *name; /* "mmlu", "mmlu_anatomy", "arc_challenge", ... */
    const char *path; /* folder of the data                           */
    const char *
        results; /* FILE: documents are appended as they are done, and those in it are not asked again; "" = none */
    int64_t shots;   /* -1: as the task is usually run               */
    int64_t limit;   /* first documents of each part; 0 = all        */
    int64_t seq;     /* tokens that the model sees at once; 0 = its whole context */
    int64_t max_gen; /* tokens of a text that is made                */
    uint64_t seed;   /* of routing by lot                            */
    int is_dense;    /* everything runs                              */
    double capacity, threshold_offset; /* as in struct pass; capacity -1: the method's own */
};

/* What ran.  A cell is one token in one layer. */
struct task_spent {
    double run, cells, flops, dense, tokens;
    double scored,
        scored_depth; /* tokens that were judged; layers that ran where each was predicted, summed */
};
void task_spent_add(struct task_spent *to, const struct task_spent *x);
double task_depth(const struct task_spent *s,
                  int layers); /* layers per token, of all that went through the model */
double task_scored_depth(const struct task_spent *s);
double task_block_ratio(const struct task_spent *s);
double task_flops_ratio(const struct task_spent *s);

/* The score of one part, or of a group of them. */
struct task_score {
    char name[96];
    const char *group;  /* of a part: the group it counts in, or NULL */
    int level;          /* 0, 1, 2: how deep in the groups */
    size_t n, original; /* documents that were asked, and that there are */
    double value[TASK_METRICS_MAX],
        error[TASK_METRICS_MAX]; /* error: standard; NaN where there is none */
    struct task_spent spent;
};
struct task_result {
    const struct task *task;
    int64_t shots, limit;
    int layers;
    size_t resumed; /* documents that were taken from the file */
    struct task_score *v;
    size_t n;
};
struct task_progress {
    const char *part;
    size_t done, total;
    size_t resumed; /* of those that are done: taken from the file */
};
/* Before each document, and once at the end.  Not 0 stops (DS_ESTOP); what is done stays in the file. */
typedef int task_progress_fn(void *ctx, const struct task_progress *p);

const struct task *const *task_all(void); /* NULL-terminated */
/* By name, also of one part; NULL if unknown. *subject: what is behind "NAME_", or "". */
const struct task *task_find_name(const char *name, const char **subject);

/* DS_EUSAGE: unknown task, too many shots, routing that the method has not; DS_EFORMAT: data (FILE:LINE: why);
 * DS_ERANGE: a choice that does not fit the context; DS_ENUMERIC: logits are damaged. */
int task_run(struct task_result *out, struct subject *s, const struct task_options *o,
             task_progress_fn *each, void *ctx, struct err *e) DS_CHECK;
void task_result_release(struct task_result *r);
/* The results file of the harness, one JSON object; in each task's results also mean_depth, scored_depth, block_ratio and
 * flops_ratio. */
void task_result_json(struct str *out, const struct task_result *r, const struct subject *s,
                      const struct task_options *o);

/* ---- in parts ---- */
struct task_set {
    const struct task *task;
    struct task_parts parts;
    int64_t shots;
};
int task_set_open(struct task_set *out, const struct task_options *o, struct err *e) DS_CHECK;
void task_set_close(struct task_set *s);
/* The prompts of one part, in order; `from` starts them with mt19937_init(from, TASK_SHOTS_SEED). */
struct mt19937;
int task_prompt(struct str *out, const struct task_set *s, const struct task_part *part,
                const struct task_doc *d, struct mt19937 *from, struct err *e) DS_CHECK;
/* Mean, standard error and the like of n documents. */
struct task_sum {
    double n, mean, ss, value, weight;
};
void task_sum_add(struct task_sum *s, struct task_value x);
void task_sum_end(const struct task_sum *s, enum task_mean how, double *value, double *error);
/* Standard error of exp(-mean) over n values: the harness' bootstrap, its 100 x 1000 draws with its random numbers, so equal
 * to its own but for rounding.  NaN for fewer than two values.  DS_EMEM. */
int task_bootstrap_error(double *error, const double *x, size_t n, struct err *e) DS_CHECK;

#endif
