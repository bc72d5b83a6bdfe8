/* Every tensor of a file is used and every parameter is found, or one line says which are not. */
#ifndef DS_MODELS_COVERAGE_H
#define DS_MODELS_COVERAGE_H

#include "base/str.h"
#include "models/model.h"
#include "models/formats/names.h"

/* What one parameter is read from; tensor NULL: the file is without. */
struct source {
    const struct st_tensor *tensor;
    struct names_place place;
};

enum { COVERAGE_NAMES = 4 }; /* names that are told of each kind */
struct coverage {
    const struct names *names;
    struct source *source; /* (params)                          */
    unsigned char *used;   /* (tensors of the set)              */
    int used_n, missing_n, stray_n, left_n, fresh_n;
    struct str missing, stray, left, fresh; /* the first names */
};

/* strict: every parameter is wanted and every tensor must be used.  Otherwise only those of the base model are wanted: what
 * the method and adapters own may be `fresh` (not in the file, or in another shape), and such tensors of the file may be `left`.
 * 0 also when something is missing. */
int coverage_make(struct coverage *v, const struct model *m, const struct st_set *s, int strict,
                  struct err *e) DS_CHECK;
void coverage_release(struct coverage *v);
/* DS_EFORMAT: what is missing, unexpected, of another shape than the configuration says (both are named), of a type that is no
 * number, or a head that differs from the embedding it is tied to. */
int coverage_check(const struct coverage *v, const struct model *m, const struct st_set *s,
                   struct err *e) DS_CHECK;
/* Of one tensor: its shape and type. */
int coverage_check_shape(const struct source *x, const struct param *p, struct err *e) DS_CHECK;
/* "20 tensors used, 2 missing (a, b), 1 unexpected (c)" */
void coverage_tell(const struct coverage *v, struct str *out);

#endif
