/* The windows of a text that task=ppl scores.
 *
 * packed     documents and end-of-text marks in one stream, cut into windows of `seq` tokens; the
 *            rest at the end is not scored.  As in training.
 * documents  each document by itself, after the beginning-of-text token (else end-of-text; without
 *            either the first token is not scored).  Truncated after `seq` tokens, that one
 *            included.
 * sliding    each document by itself as above, all of it: the first window predicts `seq` tokens,
 *            every later one the next `stride`, with as many tokens before them as `seq` leaves room
 *            for, so at least seq - stride + 1.  These are the windows of lm-evaluation-harness'
 *            loglikelihood_rolling with context_len = seq - stride + 1 (stride = seq is its own), and
 *            those of Hugging Face's guide to strided perplexity but for two things: that guide
 *            makes one document of a whole text and puts no token in front of it.
 *
 * Windows of the last two kinds are concatenated in one row of a batch; none attends to another. */
#ifndef DS_EVAL_PERPLEXITY_WINDOWS_H
#define DS_EVAL_PERPLEXITY_WINDOWS_H

#include <stdint.h>

#include "data/corpus.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "models/measure.h"

enum windows_kind { WINDOWS_PACKED, WINDOWS_DOCUMENTS, WINDOWS_SLIDING };
extern const char *const windows_name[];

struct windows_spec {
    int kind, seq, stride; /* stride: for sliding, 1 to seq */
    int is_val;            /* use the validation split of val_fraction */
    double val_fraction;
    int vocab;
    int answers_only; /* as in struct loader_options */
};
/* Buffers for a batch: arrays of `batch` x seq. */
struct windows_rows {
    struct loader_rows r;       /* true entropy, required depth and classes: packed only */
    struct measure_known known; /* of the current batch */
    int32_t *private_start;     /* used if the data have private spans */
};

struct windows;
/* Encodes the split.  Borrows the tokenizer; the corpus is not needed any more.  DS_ERANGE: too
 * short for one window, or an id beyond `vocab`; DS_EUSAGE: answers or whole documents (hops) need
 * packed windows. */
int windows_open(struct windows **out, const struct corpus *c, const struct tokenizer *t,
                 const struct windows_spec *s, struct err *e) DS_CHECK;
void windows_close(struct windows *w);
int windows_has_private(const struct windows *w); /* spans as in struct batch */
/* loader_check of the windows read so far. */
int windows_check(const struct windows *w, struct err *e) DS_CHECK;
int64_t windows_count(const struct windows *w);
/* Number of windows from the first on that predict `tokens` tokens, at most all. */
int64_t windows_for(const struct windows *w, int64_t tokens);
/* Tokens that windows [from, from + n) predict; wraps around after the last. */
int64_t windows_tokens(const struct windows *w, int64_t from, int64_t n);
/* Fills the next n windows and *b, which points into the rows; returns the bytes of text that they
 * predict. */
uint64_t windows_next(struct windows *w, struct loader_pos *at, int n, struct windows_rows *x,
                      struct batch *b);

int windows_rows_new(struct windows_rows *x, size_t n, struct err *e) DS_CHECK;
void windows_rows_free(struct windows_rows *x);

#endif
