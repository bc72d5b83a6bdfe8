/* Checks that every tensor of a file is used and every parameter found; one line names those that
 * are not. */
#ifndef DS_MODELS_COVERAGE_H
#define DS_MODELS_COVERAGE_H

#include "base/str.h"
#include "models/model.h"
#include "models/formats/names.h"

/* The source of one parameter; tensor NULL: not in the file. */
struct source {
    const struct st_tensor *tensor;
    struct names_place place;
};

enum { COVERAGE_NAMES = 4 }; /* names listed per category */
struct coverage {
    const struct names *names;
    struct source *source; /* (params)                          */
    unsigned char *used;   /* (tensors of the set)              */
    int used_n, missing_n, stray_n, left_n, fresh_n;
    struct str missing, stray, left, fresh; /* the first names */
};

/* strict: every parameter must be found and every tensor used.  Otherwise only the base model's:
 * parameters of the method and adapters may be `fresh` (not in the file, or in another shape), and
 * such tensors of the file may be `left`.  Returns 0 even when something is missing. */
int coverage_make(struct coverage *v, const struct model *m, const struct st_set *s, int strict,
                  struct err *e) DS_CHECK;
void coverage_release(struct coverage *v);
/* DS_EFORMAT: a tensor that is missing, unexpected, has another shape than the configuration (both
 * are named) or an unsupported type, or a head that differs from the embedding it is tied to. */
int coverage_check(const struct coverage *v, const struct model *m, const struct st_set *s,
                   struct err *e) DS_CHECK;
/* Checks the shape and type of one tensor. */
int coverage_check_shape(const struct source *x, const struct param *p, struct err *e) DS_CHECK;
/* "20 tensors used, 2 missing (a, b), 1 unexpected (c)" */
void coverage_report(const struct coverage *v, struct str *out);

#endif
