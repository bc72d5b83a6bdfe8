/* train.init, train.teacher: a run that starts from the weights of another model, or learns from one. */
#ifndef DS_TRAINING_START_H
#define DS_TRAINING_START_H

#include "base/config.h"
#include "base/str.h"

struct trainer;
struct train_config;

/* Names a train.teacher that is a model by its directory.  When `given` names a train.init: finds the model, writes its directory there, and adds what its config.json says of model.*
 * and its tokenizer as if they had been given.  A key given with another value, and all else that is wrong, is told in
 * *all, parted by "; ". */
void start_keys(struct config *given, struct str *all);
/* The weights themselves, into a fresh model; nothing without train.init.  t->started tells what was taken. */
int start_weights(struct trainer *t, struct err *e) DS_CHECK;
/* What a teacher takes: its weights and states, and the buffers of distillation; an estimate. */
double start_teacher_bytes(const struct train_config *c);
/* Opens the teacher, if there is one, and the buffers of distillation, behind the run's own model. */
int start_teacher(struct trainer *t, struct err *e) DS_CHECK;

#endif
