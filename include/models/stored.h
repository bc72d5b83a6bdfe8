/* Values of parameters: in memory, or, of frozen ones, left in their file and read on demand. */
#ifndef DS_MODELS_STORED_H
#define DS_MODELS_STORED_H

#include "base/err.h"
#include "engine/param.h"
#include "engine/quant.h"

struct model;

/* Values [at, at + n) of a tensor in file order.  Any thread. */
typedef void stored_take_fn(const void *tensor, uint64_t at, uint64_t n, real *out);

/* Where the values of one parameter (O,C) are stored; take NULL: in memory. */
struct stored {
    stored_take_fn *take;
    const void *tensor;
    const unsigned char *data; /* the tensor's bytes in the mapping */
    size_t bytes;
    enum quant_kind kind; /* data is O rows of such blocks; QUANT_NONE: any other type */
    int is_bf16;          /* all values are bfloat16 */
    int is_copied;        /* take copies from the file and leaves its mapping alone */
    int is_transposed;    /* the file has (C, O)                                             */
    size_t first, rows;   /* our O begin there, among all of a shared tensor; rows 0: O      */
    size_t group, stride; /* group > 0: so many of our rows, the next ones `stride` after them */
    int head_dim; /* above 0: rows of rotary pairs are interleaved, (2i, 2i+1) of each head */
};
/* A file that holds values of a model; the model owns it. */
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

/* Marks the values that may stay in a file: the base's frozen matrices.  Call between
 * model_new_table and model_reserve_values. */
int stored_mark(struct model *m, struct err *e) DS_CHECK;
/* Sets where parameter i, which was left in its file, is stored. */
void stored_set(struct model *m, int i, const struct stored *at);
/* Takes ownership of the file.  DS_ERANGE: too many files (f is closed). */
int stored_add_file(struct model *m, const struct stored_file *f, struct err *e) DS_CHECK;
/* DS_EFORMAT when one of the files has changed. */
int stored_unchanged(const struct model *m, struct err *e) DS_CHECK;
void stored_free(struct model *m);

/* out (n,C): rows [row, row + n) in our layout.  Any thread. */
void stored_rows(const struct stored *s, const struct param *p, size_t row, size_t n, real *out);
/* The row in the file that is our row `row`, in a tensor of one part. */
size_t stored_file_row(const struct stored *s, size_t row);
/* 1 when the rows are bfloat16, one after the other, and stored_bf16 may be called: out (n,C). */
int stored_is_bf16(const struct stored *s);
void stored_bf16(const struct stored *s, const struct param *p, size_t row, size_t n, void *out);
/* Read-ahead hints: parameter i will be read soon; those rows will be read now. */
void stored_prefetch(const struct model *m, int i);
void stored_populate(const struct stored *s, const struct param *p, size_t row, size_t n);
/* Hint that the pages of those rows may be evicted. */
void stored_drop(const struct stored *s, const struct param *p, size_t row, size_t n);
/* The rows as the blocks they are stored in (kind is not QUANT_NONE). */
int stored_quant(struct quant **out, const struct stored *s, const struct param *p,
                 struct err *e) DS_CHECK;

/* out (n, columns) = rows [row, row + n) of parameter i; a vector has one column.  Our layout:
 * (out, in), rotary pairs in half-split order.  Any thread. */
void model_values(const struct model *m, int i, size_t row, size_t n, real *out);

#endif
