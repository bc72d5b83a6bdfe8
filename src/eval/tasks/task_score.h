/* A model that is asked: log-probabilities of continuations, and text.  The prompt goes through the model once and its choices
 * from there on; what several prompts begin with goes through it once for all of them.  What a model may see is cut from the
 * left. */
#ifndef DS_EVAL_TASK_SCORE_H
#define DS_EVAL_TASK_SCORE_H

#include "eval/task.h"

struct scorer;
/* Borrows the subject.  DS_EUSAGE: routing that the method has not. */
int scorer_open(struct scorer **out, struct subject *s, const struct task_options *o,
                struct err *e) DS_CHECK;
void scorer_close(struct scorer *s);
/* What the prompts to come begin with ("": nothing).  Their cost is counted as if each ran all of it. */
int scorer_share(struct scorer *s, const char *text, struct err *e) DS_CHECK;
/* Sum of log-probabilities (nats) of " choice" behind the prompt, for each; adds to *spent. */
int scorer_choices(struct scorer *s, const char *prompt, const struct task_doc *d,
                   struct task_answer *a, struct task_spent *spent, struct err *e) DS_CHECK;
/* Greedy text, cut before the first stop string (NULL-terminated list). */
int scorer_text(struct scorer *s, const char *prompt, const char *const *until, struct str *out,
                struct task_spent *spent, struct err *e) DS_CHECK;
/* Of a whole text, each token predicted once. */
int scorer_rolling(struct scorer *s, const char *text, double *ll, struct task_spent *spent,
                   struct err *e) DS_CHECK;
/* A number that two models, or two ways of routing one, hardly share: of what they say to a fixed text. */
int scorer_fingerprint(struct scorer *s, char out[64], struct err *e) DS_CHECK;

#endif
