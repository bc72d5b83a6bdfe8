/* Numbers of a frozen model that stay in the file they came from: read there when they are wanted. */
#ifndef DS_MODELS_STORED_H
#define DS_MODELS_STORED_H

#include "base/err.h"
#include "engine/param.h"
#include "engine/quant.h"

struct model;

/* Values [at, at + n) of a tensor as they lie in its file.  Any thread. */
typedef void stored_take_fn(const void *tensor, uint64_t at, uint64_t n, real *out);

/* Where those of one parameter (O,C) lie; take NULL: they are in memory. */
struct stored {
    stored_take_fn *take;
    const void *tensor;
    const unsigned char *data; /* the tensor's bytes in the mapping */
    size_t bytes;
    enum quant_kind kind; /* data is O rows of such blocks; QUANT_NONE: it is something else */
    int is_bf16;          /* all values are bfloat16 */
    int is_transposed;    /* the file has (C, parts x O)                                     */
    int part, parts;      /* the part-th of as many of O rows each that share the tensor     */
    int head_dim; /* above 0: rows of rotary pairs lie interleaved, (2i, 2i+1) of each head */
};
/* A file that a model's numbers are in: the model owns it from then on. */
struct stored_file {
    void *file;
    void (*close)(void *file);
    int (*unchanged)(const void *file, struct err *e); /* or NULL */
};
enum { STORED_FILES = 4 };
struct stored_table {
    struct stored *v; /* (params) */
    struct stored_file file[STORED_FILES];
    int files;
};

/* Numbers of m that a file may keep: the base's matrices that are not trained.  Between the table of parameters and the
 * reservation of their values. */
int stored_leave(struct model *m, struct err *e) DS_CHECK;
/* Where parameter i is, that was left. */
void stored_set(struct model *m, int i, const struct stored *at);
/* Takes the file.  DS_ERANGE (the file is closed): too many. */
int stored_keep(struct model *m, const struct stored_file *f, struct err *e) DS_CHECK;
/* DS_EFORMAT when one of the files is not what it was. */
int stored_unchanged(const struct model *m, struct err *e) DS_CHECK;
void stored_free(struct model *m);

/* out (n,C): rows [row, row + n) in our layout.  Any thread. */
void stored_rows(const struct stored *s, const struct param *p, size_t row, size_t n, real *out);
/* Parameter i is read soon; those rows are read now: the system fetches them meanwhile. */
void stored_want(const struct model *m, int i);
void stored_bring(const struct stored *s, const struct param *p, size_t row, size_t n);
/* The pages of those rows need not stay in memory. */
void stored_drop(const struct stored *s, const struct param *p, size_t row, size_t n);
/* The rows as the blocks they are stored in (kind is not QUANT_NONE). */
int stored_quant(struct quant **out, const struct stored *s, const struct param *p,
                 struct err *e) DS_CHECK;

#endif
