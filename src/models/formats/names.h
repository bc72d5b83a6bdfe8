/* Tensor names and layouts of other programs: one table, for reading and writing. */
#ifndef DS_MODELS_NAMES_H
#define DS_MODELS_NAMES_H

#include "engine/param.h"
#include "io/st_set.h"
#include "models/config.h"

struct names; /* one family's naming */
enum { NAMES_MAX = 160, NAMES_PARTS = 3 };

/* Where the values of one parameter are stored. */
struct names_place {
    char name[NAMES_MAX];
    int is_transposed; /* (in, out) as GPT-2's Conv1D has it, not (out, in)              */
    int part, parts;   /* the part-th of as many that share the tensor: q, k, v          */
    uint64_t first;    /* outputs of the parts before it                                 */
    uint64_t outputs;  /* of the tensor; 0: the parameter's alone                        */
    uint64_t group;    /* above 0: q, k and v alternate by head, so that as many outputs */
    uint64_t stride;   /* follow one another, the next ones so many after them           */
};

/* The naming of a file, recognised by the name of its embedding; ours (which is Llama's) if
 * unknown. */
const struct names *names_of(const struct st_set *s);
/* The naming of a family ("gpt2") as its library writes it; ours for all others. */
const struct names *names_of_family(const char *family);
int names_are_ours(const struct names *n);
/* Parameter `ours` of a model in this naming. */
void names_place(const struct names *n, const struct model_config *c, const char *ours,
                 struct names_place *out);
/* The row of the tensor that is our row. */
static inline uint64_t names_row(const struct names_place *at, uint64_t row)
{
    return at->first + (at->group ? row / at->group * at->stride + row % at->group : row);
}
/* Of the tensor whose first part is at a place, with parts of so many rows: the part that has *row,
 * which becomes the part's own; *left of its rows from there on follow one another. */
int names_part(const struct names_place *first, const uint64_t rows[NAMES_PARTS], uint64_t *row,
               uint64_t *left);
/* The head's name in this naming. */
const char *names_head(const struct names *n);
/* The expected shape of the tensor at a place, for this parameter; returns the rank. */
int names_shape(const struct names_place *at, const struct param *p, uint64_t shape[2]);
/* 1 for tensors that are not weights: masks and frequencies that some programs store. */
int names_is_buffer(const char *theirs);
/* The expert that a parameter belongs to, -1: to none (the shared one included). */
int names_expert(const char *param);
/* The GGUF name of a parameter: 1, or 0 when it has none.  Experts share a tensor of rank 3, in their
 * order. */
int gguf_name(char *out, size_t size, const char *param);
/* The same with its part of a fused matrix; fused: how many kinds an architecture has, q, k and v
 * (gptneox), then gate and up too (phi3). */
int gguf_place(const struct model_config *c, int fused, const char *param, struct names_place *out);

#endif
