/* Blocks of few bits as a model's file holds them.  weights= of the same format takes them as they are; a matrix in another
 * one is rounded from its numbers. */
#ifndef DS_MODELS_BLOCKS_H
#define DS_MODELS_BLOCKS_H

#include "base/err.h"
#include "engine/quant.h"
#include "io/gguf.h"

struct model;

struct file_block {
    enum quant_kind kind;   /* QUANT_NONE: the file has other numbers */
    const unsigned char *p; /* (O) rows of blocks, in the mapping     */
    int head_dim;           /* above 0: rows of rotary pairs, to be put into half-split order */
};
struct file_blocks {
    struct gguf *file; /* owned: stays mapped as long as the model lives */
    struct file_block *v;
    int n;            /* parameters */
    uint64_t version; /* of the parameters that came from the file */
};

/* An empty table for m's parameters.  DS_EMEM. */
int file_blocks_new(struct model *m, struct err *e) DS_CHECK;
/* Parameter i is tensor t.  head_dim: as above. */
void file_blocks_set(struct model *m, int i, const struct gguf_tensor *t, int head_dim);
/* All parameters are as in `file`, which it takes: from their next change on the blocks are not used. */
void file_blocks_done(struct model *m, struct gguf *file);
/* 1 when the file has parameter i in this format and its numbers are still those. */
int file_blocks_have(const struct model *m, int i, enum quant_kind kind);
/* quant_from_blocks for such a parameter (O,C). */
int file_blocks_quant(struct quant **out, const struct model *m, int i, struct err *e) DS_CHECK;
void file_blocks_free(struct file_blocks *b);

#endif
