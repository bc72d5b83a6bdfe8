/* What the writers of models share: rows of a parameter as bytes of a type.  For export*.c only. */
#ifndef DS_MODELS_EXPORT_ROWS_H
#define DS_MODELS_EXPORT_ROWS_H

#include "models/export.h"

enum row_order {
    ROWS_AS_THEY_ARE,
    ROWS_INTERLEAVED /* rotary pairs of a head, ours half-split: to (2i, 2i+1) */
};

typedef int export_sink(void *ctx, const void *p, size_t n, struct err *e);

/* Parameters that are written: of the base alone, or all. */
int export_params(const struct export_source *s);
/* Is i the embedding or the head? */
int export_is_head(const struct export_source *s, int i);
/* 1 with the type that matrix i has in the GGUF file that it lies in; 0: it lies in none, or is changed on its way. */
int export_own_type(const struct export_source *s, int i, uint32_t *type);
/* Bytes of one row of C values in a type, 0 when they are no whole blocks. */
size_t export_row_bytes(uint32_t type, int C);
/* Rows [row, row + n) of parameter i (a vector: values), as numbers. */
void export_values(const struct export_source *s, int i, size_t row, size_t n, real *out);
/* The same as bytes of a type, out (n rows), shared out over the pool.  DS_ENUMERIC, DS_ERANGE naming the tensor. */
int export_encode(const struct export_source *s, int i, enum row_order order, uint32_t type,
                  size_t row, size_t n, unsigned char *out, struct err *e) DS_CHECK;
/* Rows that have been written: their pages need not stay in memory. */
void export_drop(const struct export_source *s, int i, size_t row, size_t n);
/* How far a conversion is, in weights. */
struct export_way {
    const struct export_options *o;
    double done, all;
};
/* So many more are done; DS_ESTOP when the caller wants no more. */
int export_step(struct export_way *way, double more, struct err *e) DS_CHECK;
/* All of parameter i in order to a sink, a few MiB at a time. */
int export_write(const struct export_source *s, int i, enum row_order order, uint32_t type,
                 export_sink *sink, void *ctx, struct export_way *way, struct err *e) DS_CHECK;
/* The least rows that make about a few MiB. */
size_t export_chunk_rows(const struct param *p);
/* DS_EFORMAT when a file that the numbers came from was changed meanwhile. */
int export_check_source(const struct export_source *s, struct err *e) DS_CHECK;
/* DS_EIO with both figures when the disk of PATH has no room for so many bytes. */
int export_check_room(const char *path, uint64_t bytes, struct err *e) DS_CHECK;

#endif
