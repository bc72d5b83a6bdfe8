/* How other programs name a model's tensors and lay them out: one table, used for reading and for writing. */
#ifndef DS_MODELS_NAMES_H
#define DS_MODELS_NAMES_H

#include "engine/param.h"
#include "io/st_set.h"

struct names; /* one family's naming */
enum { NAMES_MAX = 160, NAMES_PARTS = 3 };

/* Where the values of one parameter lie. */
struct names_place {
    char name[NAMES_MAX];
    int is_transposed; /* (in, out) as GPT-2's Conv1D has it, not (out, in)              */
    int part, parts;   /* the part-th of as many outputs that share the tensor: q, k, v  */
};

/* The naming that a file follows, by the name of its embedding; ours (which is Llama's) when it follows none. */
const struct names *names_of(const struct st_set *s);
/* That of a family ("gpt2") as its own library writes it; ours for every other. */
const struct names *names_of_family(const char *family);
int names_are_ours(const struct names *n);
/* Parameter `ours` in this naming. */
void names_place(const struct names *n, const char *ours, struct names_place *out);
/* The shape that the tensor at a place has, for this parameter; returns the rank. */
int names_shape(const struct names_place *at, const struct param *p, uint64_t shape[2]);
/* A tensor that is no weight: masks and frequencies that some programs store beside them. */
int names_is_buffer(const char *theirs);

#endif
