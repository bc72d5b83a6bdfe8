/* Opens the corpus and the tokenizer of a configuration, for a run and for estimates of one. */
#ifndef DS_TRAINING_TEXTS_H
#define DS_TRAINING_TEXTS_H

#include "base/err.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "training/options.h"

int texts_open(struct corpus **out, const struct data_options *o, struct err *e) DS_CHECK;
/* Trains a tokenizer of at most `vocab` ids on the training split, or reads one, according to
 * data.tokenizer. */
int texts_tokenizer(struct tokenizer **out, const struct corpus *c, const struct data_options *o,
                    int vocab, struct err *e) DS_CHECK;

#endif
