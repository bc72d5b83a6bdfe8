/* A model under evaluation: weights, tokenizer and, if it belongs to a run, that run's
 * configuration. */
#ifndef DS_EVAL_SUBJECT_H
#define DS_EVAL_SUBJECT_H

#include "base/config.h"
#include "base/err.h"
#include "data/chat.h"
#include "data/tokenizer.h"
#include "io/record.h"
#include "models/model.h"

struct subject {
    struct model *model;
    struct tokenizer *tokenizer;
    struct config run;     /* RUN/config.yaml, flat; empty when the model is not part of a run */
    struct config options; /* of the method, given for this process */
    char dir[1024];        /* holds config.json */
    char run_dir[1024];    /* "" = none */
};
/* Opens MODEL as on the command line for inference.  The tokenizer's ids must fit the embedding.
 * numbers: NULL = all automatic, the formats that the model's run was trained with. */
int subject_open(struct subject *s, const char *model, const struct numeric_options *numbers,
                 struct err *e) DS_CHECK;
/* The same with options of the model's method ("halt.rule"), which replace the stored ones for this
 * process; NULL: none.  DS_EUSAGE for another method's. */
int subject_open_with(struct subject *s, const char *model, const struct numeric_options *numbers,
                      struct config *options, struct err *e) DS_CHECK;
/* Gives the model another method (NULL: its own) with these options: its blocks are read again, and
 * of the method's parameters those of the same name and shape; the others start afresh.  DS_EUSAGE
 * for an unknown method or option, or adapters on an external base. */
int subject_remake(struct subject *s, const char *method, struct config *options,
                   struct err *e) DS_CHECK;
void subject_close(struct subject *s);
/* A key of the run's configuration, or `otherwise`. */
const char *subject_key(const struct subject *s, const char *key, const char *fallback);
/* The seed of the run that trained the model: that of the run's configuration, else the one that its
 * config.json has (models that were written from a run keep it); 0 when neither says. */
uint64_t subject_seed(const struct subject *s);
/* The model's chat template; adapters without one use that of their base. */
int subject_chat(struct chat *c, const struct subject *s, enum chat_template kind,
                 struct err *e) DS_CHECK;
/* Display name: the run's or the directory's name. */
const char *subject_name(const struct subject *s);
/* "options" and "method_options" of an evaluation: what was given for this process, and the value
 * of every option of the method (io/FORMATS.md). */
void subject_options_json(const struct subject *s, struct str *out);
void subject_options_record(const struct subject *s, struct record *rec);
/* Of the method's options and of the first values of every parameter that is in memory: differs
 * where decisions may, although one text has the same ones. */
uint64_t subject_hash(const struct subject *s);
/* A record of kind "head" describing the model, as the trainer writes it; complete, to be ended by
 * the caller. */
void subject_head(const struct subject *s, struct record *rec, const char *version);
/* 1 when this token ends a text: one of model.end_ids, as in transformers; the tokenizer's end of
 * text only when the model's files name none. */
int subject_is_end(const struct subject *s, int32_t id);
/* Ids of a text; DS_ERANGE for more than `cap` ids (0: no limit), DS_EUSAGE for an empty text. */
int subject_encode(const struct subject *s, const char *text, size_t n, size_t cap, struct ids *out,
                   struct err *e) DS_CHECK;
/* Pieces and lengths of ids; both arrays heap, freed by the caller with mem_free (the bytes are the
 * tokenizer's). */
int subject_pieces(const struct subject *s, const int32_t *id, size_t n, const char ***piece,
                   size_t **len, struct err *e) DS_CHECK;
/* For trace_options.piece_of with ctx = a struct subject. */
const char *subject_piece_of(const void *ctx, int32_t id, size_t *n);

#endif
