/* The windows of a text that task=ppl scores.
 *
 * packed     documents and end-of-text marks in one stream, cut into pieces of `seq` tokens; what is left at the end is not
 *            scored.  As in training.
 * documents  each document by itself, behind the token that begins a text (else its end-of-text; without either the first
 *            token is not scored).  What lies beyond `seq` tokens, that one included, is cut off.
 * sliding    each document by itself as above, all of it: the first window predicts `seq` tokens, every later one the next
 *            `stride`, with as many tokens before them as `seq` leaves room for, so at least seq - stride + 1.  These are
 *            the windows of lm-evaluation-harness' loglikelihood_rolling with context_len = seq - stride + 1 (stride = seq is
 *            its own), and those of Hugging Face's guide to strided perplexity but for two things: that guide makes one
 *            document of a whole text and puts no token in front of it.
 *
 * Windows of the last two kinds lie behind each other in one row of a batch; none sees another. */
#ifndef DS_EVAL_PERPLEXITY_WINDOWS_H
#define DS_EVAL_PERPLEXITY_WINDOWS_H

#include <stdint.h>

#include "data/corpus.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "models/model.h"

enum windows_kind { WINDOWS_PACKED, WINDOWS_DOCUMENTS, WINDOWS_SLIDING };
extern const char *const windows_name[];

struct windows_spec {
    int kind, seq, stride; /* stride: of sliding, 1 to seq */
    int is_val;            /* of the split by val_fraction */
    double val_fraction;
    int vocab;
};
/* Room for a batch of them: arrays of `batch` x seq. */
struct windows_rows {
    int32_t *input, *target, *start;
    float *true_entropy; /* NaN where unknown: always but for packed */
};

struct windows;
/* Encodes the split.  Borrows the tokenizer; the corpus is not needed any more.  DS_ERANGE: too short for one window, or an id
 * beyond `vocab`. */
int windows_open(struct windows **out, const struct corpus *c, const struct tokenizer *t,
                 const struct windows_spec *s, struct err *e) DS_CHECK;
void windows_close(struct windows *w);
int64_t windows_count(const struct windows *w);
/* How many of the first ones predict `tokens` tokens, or all of them. */
int64_t windows_for(const struct windows *w, int64_t tokens);
/* Tokens that windows [from, from + n) predict; behind the last comes the first again. */
int64_t windows_tokens(const struct windows *w, int64_t from, int64_t n);
/* Fills the next n windows and *b, which points into the rows; bytes of text that they predict. */
uint64_t windows_next(struct windows *w, struct loader_pos *at, int n, struct windows_rows *x,
                      struct batch *b);

int windows_rows_new(struct windows_rows *x, size_t n, struct err *e) DS_CHECK;
void windows_rows_free(struct windows_rows *x);

#endif
