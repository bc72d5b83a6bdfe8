/* Results of depthscope eval --json, for the figures that compare exit rules. */
#ifndef DS_FIGURES_EVALS_H
#define DS_FIGURES_EVALS_H

#include "base/json.h"
#include "figures/plot.h"

/* CUT: the first layers of a deeper model (exit.layer); TRAINED: all layers of every token; ROUTED:
 * depth differs by token; ORACLE: chosen by the loss itself. */
enum eval_kind { EVAL_ROUTED, EVAL_ORACLE, EVAL_CUT, EVAL_TRAINED };

struct eval_item {
    const struct json_node *own,
        *common; /* a row of a sweep and its object; else both the object */
    const char *model;
    int run;    /* the file */
    int depth;  /* layers that every token executes; 0: differs by token */
    int layers; /* all of the model */
    int is_cut, is_loop;
    int is_iterated; /* each of the layers is one iteration of a loop */
    enum eval_kind kind;
    int line, group;    /* one line: the same exit rule; one group: the same settings, all seeds */
    char line_name[96]; /* what is drawn: the beginning of line_key, which tells lines apart */
    char line_key[400];
};
struct eval_list {
    struct eval_item *v;
    int n, lines, groups;
};
/* 1 for an evaluation, a sweep over exits (rows), or an array of these. */
int evals_takes(const struct json *j);
/* All of the files.  DS_ENOTFOUND for two results of one model under the same settings. */
int evals_take(struct eval_list *out, struct sheet *s, struct err *e) DS_CHECK;
void evals_release(struct eval_list *l);

/* What depth counts: "layers", "iterations", or both when the models differ in it. */
const char *evals_unit(const struct eval_list *l);

/* NaN when absent; depth_mean is known without being recorded where all tokens have one depth. */
double eval_number(const struct eval_item *x, const char *key);
/* NULL when absent or empty. */
const struct json_node *eval_vector(const struct eval_item *x, const char *key);

/* 1 for all layers of a model that is also cut. */
int eval_is_last_exit(const struct eval_list *l, const struct eval_item *x);

const struct eval_item *evals_first(const struct eval_list *l, int group);
int evals_seeds(const struct eval_list *l, int group);
/* Mean over the seeds of a group of value(), with its interval. */
typedef int eval_value(struct sheet *s, const struct eval_list *l, const struct eval_item *x,
                       const void *ctx, double *out, struct err *e);
int evals_mean(struct sheet *s, const struct eval_list *l, int group, eval_value *value,
               const void *ctx, struct interval *out, struct err *e) DS_CHECK;
int evals_colour(const struct sheet *s, const struct eval_list *l, int line);
/* seeds_note over the groups that are shown. */
void evals_note(struct sheet *s, const struct eval_list *l, const unsigned char *shown);

#endif
