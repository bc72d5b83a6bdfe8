/* The texts that a configuration names, and the tokenizer it asks for: what a run opens, and what others must open in
 * the same way to know what a run will be. */
#ifndef DS_TRAINING_TEXTS_H
#define DS_TRAINING_TEXTS_H

#include "base/err.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "training/options.h"

int texts_open(struct corpus **out, const struct data_options *o, struct err *e) DS_CHECK;
/* Trained on the training split to at most `vocab` ids, or read, as data.tokenizer says. */
int texts_tokenizer(struct tokenizer **out, const struct corpus *c, const struct data_options *o,
                    int vocab, struct err *e) DS_CHECK;

#endif
