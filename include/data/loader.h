/* Batches of token ids: documents separated by end-of-text, packed, never padded.  Deterministic in
 * (seed, position); the position is a plain struct that a checkpoint stores. */
#ifndef DS_DATA_LOADER_H
#define DS_DATA_LOADER_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "data/corpus.h"
#include "data/tokenizer.h"

struct loader;
struct loader_pos {
    uint64_t epoch, window;
}; /* next window of this epoch's order */

struct loader_options {
    int is_val; /* the validation split, in order */
    double val_fraction;
    int seq, vocab;
    uint64_t seed;
    int answers_only; /* only tokens of answers are targets, all others -1 */
};

/* "validation split", "training split", or "text" where nothing is split off. */
const char *loader_split(int is_val, double val_fraction);

/* What the corpus says of one token (corpus.h). */
struct token_note {
    uint8_t kind, needed;
    uint16_t hidden;
};
/* Its class as data (token_class.h); CLASS_UNKNOWN for plain text and padding. */
uint8_t loader_class(const struct token_note *note);
/* A batch: arrays of (batch, seq); all but input and target may be NULL. */
struct loader_rows {
    int32_t *input, *target, *doc_start, *private_start;
    float *true_entropy, *needed;     /* of the target, NaN: unknown */
    uint8_t *class_of, *target_class; /* of both tokens; CLASS_UNKNOWN: by its text */
};

/* Encodes the split once: a flat stream doc eot doc eot ..., and true entropy per token
 * when known.  If the tokenizer puts a token before every text, each doc begins with it; as a
 * target it is -1. Without an end-of-text token in the tokenizer documents follow each other
 * directly.  A corpus shorter than one window of `seq`+1 tokens: DS_ERANGE naming both numbers. Ids
 * beyond `vocab`: DS_ERANGE with index.  Token shards are read when they are needed: see
 * loader_check.
 * Documents of words (corpus_is_words) are not cut: what does not fit in the rest of a window begins
 * the next one, after padding, which is a document of its own without targets.  A document longer
 * than `seq`: DS_ERANGE. */
int loader_open(struct loader **out, const struct corpus *c, const struct tokenizer *t,
                const struct loader_options *o, struct err *e) DS_CHECK;
uint64_t loader_tokens(const struct loader *l);
uint64_t loader_bytes(const struct loader *l); /* bytes of text in the split, for bits per byte */
uint64_t loader_windows(const struct loader *l);
/* Fills (batch, seq) inputs, targets (shifted by exactly one) and document-relative ids:
 * doc_start[b*seq+t] = index in the row of the first token of t's document (attention does not
 * cross documents; positions restart there); an end-of-text token belongs to the document it ends.
 * doc_start may be NULL, and true_entropy: nats, of the TARGET token as synth.h defines it; NaN
 * where unknown. Window w covers tokens [w*seq, w*seq + seq] of the stream; the part left at the
 * end is dropped.  Windows are visited in a permutation keyed by (seed, epoch) (val: in order);
 * wraps to the next epoch, so a batch may hold the end of one and the beginning of the next. */
void loader_next(struct loader *l, struct loader_pos *pos, int batch, int32_t *input,
                 int32_t *target, int32_t *doc_start, float *true_entropy);
/* The same with all that is known of the tokens.  private_start as in struct batch
 * (models/model.h). */
void loader_read(struct loader *l, struct loader_pos *pos, int batch, const struct loader_rows *r);
/* 1 when some row may have a private span. */
int loader_has_private(const struct loader *l);
/* Sets is_answer (vocabulary) to 1 for the ids that are targets as answers. */
void loader_answers(const struct loader *l, uint8_t *is_answer);
/* Encodes the first `len` bytes of one document, without end-of-text: *note as heap block, one per
 * id and one for the end, or NULL when the document has no spans.  With `words` every span other
 * than filler must be one token. */
int loader_encode(const struct tokenizer *t, const struct document *d, size_t len, int words,
                  struct ids *out, struct token_note **note, struct err *e) DS_CHECK;
/* DS_ERANGE naming file and place once loader_next has met an id of a token shard that is beyond the
 * vocabulary (it gave 0 instead).  Call after loader_next, before its rows are used for good. */
int loader_check(const struct loader *l, struct err *e) DS_CHECK;
/* Bytes of text of n targets, for bits per byte; end-of-text counts 0.  Where pieces differ from
 * the text (an added leading space, an unknown character), their bytes are scaled by the split's
 * ratio of text bytes to piece bytes. */
uint64_t loader_target_bytes(const struct loader *l, const int32_t *target, size_t n);
void loader_close(struct loader *l);

#endif
