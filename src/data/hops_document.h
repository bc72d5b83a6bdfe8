/* The generator of include/data/hops.h. */
#ifndef DS_DATA_HOPS_DOCUMENT_H
#define DS_DATA_HOPS_DOCUMENT_H

#include "data/corpus.h"
#include "data/grammar.h"
#include "data/hops.h"

/* A document in the making; zero-initialise, hops_document_release. */
struct hops_document {
    struct str text;
    float *bits; /* (text.len + 1) entropy of each byte: that of a word is at its first byte */
    size_t bits_cap;
    struct span *span;
    size_t spans, span_cap;
};
/* Replaces *d by document number `index` at `seed`.  stories: the grammar of the filler; NULL
 * without filler.  The options have passed hops_check. */
int hops_document(struct hops_document *d, const struct hops_options *o,
                  const struct grammar *stories, uint64_t seed, uint64_t index,
                  struct err *e) DS_CHECK;
void hops_document_release(struct hops_document *d);

#endif
