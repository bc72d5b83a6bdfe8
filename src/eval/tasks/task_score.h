/* Scores text with a model: log-probabilities of continuations, and greedy text.  A prompt is fed
 * once for all its choices, and the common prefix of several prompts once for all of them.  Prompts
 * that exceed the context are truncated on the left. */
#ifndef DS_EVAL_TASK_SCORE_H
#define DS_EVAL_TASK_SCORE_H

#include "eval/task.h"

struct scorer;
/* Borrows the subject.  DS_EUSAGE: routing that the method does not support. */
int scorer_open(struct scorer **out, struct subject *s, const struct task_options *o,
                struct err *e) DS_CHECK;
void scorer_close(struct scorer *s);
/* Sets the common prefix of the following prompts ("" = none).  Cost is counted as if each prompt
 * ran all of it. */
int scorer_share(struct scorer *s, const char *text, struct err *e) DS_CHECK;
/* Sum of log-probabilities (nats) of " choice" after the prompt, for each choice; adds to
 * *cost. */
int scorer_choices(struct scorer *s, const char *prompt, const struct task_doc *d,
                   struct task_answer *a, struct task_cost *cost, struct err *e) DS_CHECK;
/* Greedy text, cut before the first stop string (NULL-terminated list) or the text of the
 * end-of-text token. */
int scorer_text(struct scorer *s, const char *prompt, const char *const *until, struct str *out,
                struct task_cost *cost, struct err *e) DS_CHECK;
/* Sum of log-probabilities of a whole text, each token predicted once. */
int scorer_rolling(struct scorer *s, const char *text, double *ll, struct task_cost *cost,
                   struct err *e) DS_CHECK;
/* A fingerprint that distinguishes models and routings: the log-probability of a fixed text. */
int scorer_fingerprint(struct scorer *s, char out[64], struct err *e) DS_CHECK;

#endif
