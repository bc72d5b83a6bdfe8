/* train.init, train.teacher: a run that starts from the weights of another model, or learns from
 * one. */
#ifndef DS_TRAINING_START_H
#define DS_TRAINING_START_H

#include "base/config.h"
#include "base/str.h"

struct trainer;
struct train_config;

/* Resolves train.init and train.teacher in `given` to directories, and adds the model.* keys of the
 * init's config.json and its tokenizer as if they had been given.  Conflicting keys and all other
 * errors are appended to *all, separated by "; ". */
void start_keys(struct config *given, struct str *all);
/* Loads the weights of train.init, if any, into a fresh model; t->started describes what was
 * loaded. */
int start_weights(struct trainer *t, struct err *e) DS_CHECK;
/* Estimated bytes of a teacher: its weights and states, and the distillation buffers. */
double start_teacher_bytes(const struct train_config *c);
/* Opens the teacher, if any, and allocates the distillation buffers; call after the run's own model
 * is open. */
int start_teacher(struct trainer *t, struct err *e) DS_CHECK;

#endif
