/* Documents from anywhere: a UTF-8 file or folder, JSONL, blank-line blocks, or the generator. */
#ifndef DS_DATA_CORPUS_H
#define DS_DATA_CORPUS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

/* format: "auto" (by suffix and content: .jsonl/.json lines with a text key; files with <|endoftext|> lines; else
 * blank-line blocks), "file" (one document per file), "blocks", "eot", "jsonl", "lines". */
struct corpus_options { const char *path, *format, *text_key; uint64_t max_bytes; int64_t max_docs; uint64_t seed; };

struct document {
    const char *text; size_t len;   /* borrowed from the corpus */
    const float *bits;              /* synth: exact conditional entropy in nats, one per BYTE of text (the entropy of the
                                       choice made at that byte given its past; 0 where determined); NULL elsewhere */
};
struct corpus;
/* path "synth": the embedded story generator, max_docs documents at `seed`. */
int corpus_open(struct corpus **out, const struct corpus_options *o, struct err *e) DS_CHECK;
size_t corpus_count(const struct corpus *c);
struct document corpus_at(const struct corpus *c, size_t i);
uint64_t corpus_bytes(const struct corpus *c);
uint64_t corpus_hash(const struct corpus *c);   /* of content, in order */
/* 1 when document i belongs to the validation split: by hash of its text, fraction in [0, 0.5]. */
int corpus_is_val(const struct corpus *c, size_t i, double fraction);
void corpus_close(struct corpus *c);

#endif
