/* train.init: a run that starts from the weights of another model. */
#ifndef DS_TRAINING_START_H
#define DS_TRAINING_START_H

#include "base/config.h"
#include "base/str.h"

struct trainer;

/* When `given` names a train.init: finds the model, writes its directory there, and adds what its config.json says of model.*
 * and its tokenizer as if they had been given.  A key given with another value, and all else that is wrong, is told in
 * *all, parted by "; ". */
void start_keys(struct config *given, struct str *all);
/* The weights themselves, into a fresh model; nothing without train.init.  t->started tells what was taken. */
int start_weights(struct trainer *t, struct err *e) DS_CHECK;

#endif
