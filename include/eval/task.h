/* Benchmark tasks compatible with lm-evaluation-harness: same prompts, shots, metrics and results.
 * Every score comes with the compute that the model executed for it, counted from the plans of the
 * same passes whose log-probabilities (or text) were scored, never from a separate pass. */
#ifndef DS_EVAL_TASK_H
#define DS_EVAL_TASK_H

#include <stddef.h>
#include <stdint.h>

#include "eval/subject.h"
#include "eval/task_impl.h"

enum { TASK_SHOTS_SEED = 1234, TASK_MAX_GEN = 256 };

struct task_options {
    const char *name; /* "mmlu", "mmlu_anatomy", "arc_challenge", ... */
    const char *path; /* directory of the data                        */
    /* FILE: finished documents are appended, and those in it are not evaluated again; "" = none */
    const char *results;
    int64_t shots;                     /* -1: the task's default                       */
    int64_t limit;                     /* most documents per part; 0 = all             */
    int64_t seq;                       /* context tokens; 0 = the model's whole context */
    int64_t max_gen;                   /* most tokens of a generated text              */
    uint64_t seed;                     /* of random routing                            */
    int is_dense;                      /* execute all cells                            */
    double capacity, threshold_offset; /* as in struct pass; capacity -1: the method's own */
};

/* Executed compute.  A cell is one token in one layer. */
struct task_cost {
    double run, cells, flops, dense, tokens;
    double scored,
        scored_depth; /* scored tokens; sum of executed layers where each was predicted */
};
void task_cost_add(struct task_cost *to, const struct task_cost *x);
double task_depth(const struct task_cost *s,
                  int layers); /* executed layers per token, over all tokens fed */
double task_scored_depth(const struct task_cost *s);
double task_block_ratio(const struct task_cost *s);
double task_flops_ratio(const struct task_cost *s);

/* The score of one part, or of a group of them. */
struct task_score {
    char name[96];
    const char *group;  /* of a part: its group, or NULL */
    int level;          /* 0, 1, 2: nesting depth */
    size_t n, original; /* evaluated documents, and all documents */
    double value[TASK_METRICS_MAX], error[TASK_METRICS_MAX]; /* standard error; NaN if undefined */
    struct task_cost cost;
};
struct task_result {
    const struct task *task;
    int64_t shots, limit;
    int layers;
    size_t resumed; /* documents taken from the results file */
    struct task_score *v;
    size_t n;
};
struct task_progress {
    const char *part;
    size_t done, total;
    size_t resumed; /* finished documents taken from the results file */
};
/* Called before each document, and once at the end.  Nonzero stops (DS_ESTOP); finished documents
 * stay in the file. */
typedef int task_progress_fn(void *ctx, const struct task_progress *p);

const struct task *const *task_all(void); /* NULL-terminated */
/* Finds a task by its name or that of a part; NULL if unknown. *subject: the text after "NAME_", or
 * "". */
const struct task *task_find_name(const char *name, const char **subject);

/* DS_EUSAGE: unknown task, too many shots, unsupported routing; DS_EFORMAT: malformed data
 * (FILE:LINE: why); DS_ERANGE: a choice exceeds the context; DS_ENUMERIC: non-finite logits. */
int task_run(struct task_result *out, struct subject *s, const struct task_options *o,
             task_progress_fn *each, void *ctx, struct err *e) DS_CHECK;
void task_result_release(struct task_result *r);
/* The results file of the harness, one JSON object; in each task's results also mean_depth,
 * scored_depth, block_ratio and flops_ratio. */
void task_result_json(struct str *out, const struct task_result *r, const struct subject *s,
                      const struct task_options *o);

/* ---- the prompts alone ---- */
struct task_set {
    const struct task *task;
    struct task_parts parts;
    int64_t shots;
};
int task_set_open(struct task_set *out, const struct task_options *o, struct err *e) DS_CHECK;
void task_set_close(struct task_set *s);
/* The prompts of one part, in order; `from` starts them with mt19937_init(from,
 * TASK_SHOTS_SEED). */
struct mt19937;
int task_prompt(struct str *out, const struct task_set *s, const struct task_part *part,
                const struct task_doc *d, struct mt19937 *from, struct err *e) DS_CHECK;
/* Sums for mean and standard error of n documents. */
struct task_sum {
    double n, mean, ss, value, weight;
};
void task_sum_add(struct task_sum *s, struct task_value x);
void task_sum_end(const struct task_sum *s, enum task_mean how, double *value, double *error);
/* Standard error of exp(-mean) over n values: the harness' bootstrap of 100 x 1000 draws with the
 * same random numbers, so equal except for rounding.  NaN for fewer than two values.  DS_EMEM. */
int task_bootstrap_error(double *error, const double *x, size_t n, struct err *e) DS_CHECK;

#endif
