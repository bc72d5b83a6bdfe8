/* Checks that every tensor of a file is used and every parameter found; one line names those that
 * are not. */
#ifndef DS_MODELS_TENSOR_MATCH_H
#define DS_MODELS_TENSOR_MATCH_H

#include "base/str.h"
#include "models/model.h"
#include "models/formats/names.h"

/* The source of one parameter; tensor NULL: not in the file. */
struct source {
    const struct st_tensor *tensor;
    struct names_place place;
};

enum { TENSOR_MATCH_NAMES = 4 }; /* names listed per category */
struct tensor_match {
    const struct names *names;
    struct source *source; /* (params)                          */
    unsigned char *used;   /* (tensors of the set)              */
    int used_n, missing_n, unexpected_n, ignored_n, new_n;
    struct str missing, unexpected, ignored, new; /* the first names */
};

/* strict: every parameter must be found and every tensor used.  Otherwise only the base model's:
 * parameters of the method and adapters may be `new` (not in the file, or in another shape), and
 * such tensors of the file may be `ignored`.  Returns 0 even when something is missing. */
int tensor_match_init(struct tensor_match *v, const struct model *m, const struct st_set *s,
                      int strict, struct err *e) DS_CHECK;
void tensor_match_release(struct tensor_match *v);
/* DS_EFORMAT: a tensor that is missing, unexpected, has another shape than the configuration (both
 * are named) or an unsupported type, or a head that differs from the embedding it is tied to. */
int tensor_match_check(const struct tensor_match *v, const struct model *m, const struct st_set *s,
                       struct err *e) DS_CHECK;
/* Checks the shape and type of one tensor. */
int tensor_match_check_shape(const struct source *x, const struct param *p, struct err *e) DS_CHECK;
/* "20 tensors used, 2 missing (a, b), 1 unexpected (c)" */
void tensor_match_text(const struct tensor_match *v, struct str *out);

#endif
