/* Which runs are seeds of one experiment, what to call it, and the result of a run: one answer for
 * figures, tables and views. */
#ifndef DS_IO_EXPERIMENT_H
#define DS_IO_EXPERIMENT_H

#include <stddef.h>

#include "io/runview.h"

/* 1 for keys that do not define an experiment: the seed, names, and how often to log or to keep. */
int experiment_ignores(const char *key);
/* These, and the keys of the model's size with those that follow from it and the budget. */
int experiment_ignores_size(const char *key);
typedef int experiment_ignores_fn(const char *key);

/* A flat configuration, borrowed; keys are unique. */
struct experiment_settings {
    char *const *key, *const *value;
    size_t n;
};
/* NULL when the key is absent. */
const char *experiment_setting(const struct experiment_settings *s, const char *key);
/* 1 when both have the same keys with the same values, apart from the ignored ones. */
int experiment_settings_same(const struct experiment_settings *a,
                             const struct experiment_settings *b, experiment_ignores_fn *ignores);

/* The method; for a run that states none its name.  Never NULL. */
const char *experiment_method(const struct runview *v);
/* 1 for a file of evaluations that no training wrote. */
int experiment_is_evaluation(const struct runview *v);
/* The decisions that the results of a run are of: "causal", or "dense" for a file that has dense
 * evaluations and no causal one. */
const char *experiment_routing(const struct runview *v);
/* 1 when method, that routing and settings agree, apart from the ignored ones.  Runs without a configuration are
 * never known to be the same. */
int experiment_same_but(const struct runview *a, const struct runview *b,
                        experiment_ignores_fn *ignores);
/* 1 when they differ only in seed. */
int experiment_same(const struct runview *a, const struct runview *b);
/* 1 when they do not differ in seed, either: a copy or a fork, which is no further seed.  0 where one
 * failed or did not say its seed. */
int experiment_is_copy(const struct runview *a, const struct runview *b);
/* The name of the i-th of n experiments, each given by one of its runs: the method, and the
 * settings that distinguish it from the others of that method, else `name`, as for a copy of an
 * earlier one.  Sanitised; returns out. */
const char *experiment_label(char *out, size_t size, const struct runview *const *run, int n, int i,
                             experiment_ignores_fn *ignores, const char *name);
/* A name of the i-th of n runs that no other has: its own, or with folders of its path in front where
 * another path has the same name (a/metrics, b/metrics).  1 when it is not its own. */
int experiment_name(char *out, size_t size, const char *const *name, const char *const *path,
                    size_t n, size_t i);
/* Gives runs that were opened together such names.  Out of memory leaves a name as it was. */
void experiment_name_views(struct runview *const *view, const char *const *path, size_t n);

/* The newest finite point of a metric that no resume has superseded; NaN: not recorded. */
double experiment_newest(const struct runview *v, const char *metric);
/* The result of a run at inference: `key` of the newest evaluation with its routing (that of task
 * "final", else "ppl", else "val"), else the newest point of the metric that no resume has
 * superseded.  "val_loss" is "loss" of an evaluation.  NaN: not recorded. */
double experiment_result(const struct runview *v, const char *key);

#endif
