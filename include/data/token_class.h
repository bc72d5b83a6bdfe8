/* Classes of tokens by their text, to compare the compute that each class gets. */
#ifndef DS_DATA_TOKEN_CLASS_H
#define DS_DATA_TOKEN_CLASS_H

#include <stddef.h>

#include "base/err.h"
#include "data/loader.h"
#include "data/tokenizer.h"

/* The numbers are part of the record format (column "class"). */
enum token_class {
    CLASS_WORD,
    CLASS_CONTINUATION,
    CLASS_PUNCTUATION,
    CLASS_DIGIT,
    CLASS_SPACE,
    CLASS_STOP_WORD,
    CLASS_RARE,
    CLASS_HIGH_LOSS,
    CLASS_OTHER,
    CLASS_EDGE, /* from here on: of what the corpus says of a span, CLASS_OTHER + span_kind */
    CLASS_QUERY,
    CLASS_ANSWER,
    CLASS_FILLER,
    CLASS_UNKNOWN = 255
};

/* By the bytes alone: digits, punctuation, white space, English stop words, words (with their
 * leading space or at the start of a line), continuations of words. CLASS_RARE and CLASS_HIGH_LOSS
 * need counts and losses. */
enum token_class token_class_of(const char *piece, size_t n);
/* out (vocab): class of every id; words and continuations that make up less than one token in
 * 20,000 of the training windows seen are CLASS_RARE. */
int token_classes(const struct tokenizer *t, struct loader *train, int seq, float *out,
                  struct err *e) DS_CHECK;

#endif
