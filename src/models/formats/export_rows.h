/* Shared by the exporters: rows of a parameter as bytes of a type.  For export*.c only. */
#ifndef DS_MODELS_EXPORT_ROWS_H
#define DS_MODELS_EXPORT_ROWS_H

#include "models/export.h"

enum row_order {
    ROWS_AS_THEY_ARE,
    ROWS_INTERLEAVED, /* rotary pairs of a head, ours half-split: to (2i, 2i+1) */
    ROWS_PLUS_ONE     /* norms with an offset, which the file includes */
};

typedef int export_sink(void *ctx, const void *p, size_t n, struct err *e);

/* Number of exported parameters: the base's, or all. */
int export_params(const struct export_source *s);
/* Is i the embedding or the head? */
int export_is_head(const struct export_source *s, int i);
/* 1 with the type of matrix i in its GGUF file; 0: it is not stored in one, or its values are
 * changed. */
int export_stored_type(const struct export_source *s, int i, uint32_t *type);
/* Bytes of one row of C values in a type, 0 when C is not a multiple of the block size. */
size_t export_row_bytes(uint32_t type, int C);
/* Rows [row, row + n) of parameter i (a vector: values) as floats. */
void export_values(const struct export_source *s, int i, size_t row, size_t n, real *out);
/* The same as bytes of a type, out (n rows), in parallel.  DS_ENUMERIC, DS_ERANGE naming the
 * tensor. */
int export_encode(const struct export_source *s, int i, enum row_order order, uint32_t type,
                  size_t row, size_t n, unsigned char *out, struct err *e) DS_CHECK;
/* Hint that the pages of written rows may be evicted. */
void export_drop(const struct export_source *s, int i, size_t row, size_t n);
/* Progress of a conversion, in weights. */
struct export_way {
    const struct export_options *o;
    double done, all;
};
/* Reports n more weights done; DS_ESTOP when the caller asks to stop. */
int export_step(struct export_way *way, double more, struct err *e) DS_CHECK;
/* Streams parameter i in order to a sink, a few MiB at a time. */
int export_write(const struct export_source *s, int i, enum row_order order, uint32_t type,
                 export_sink *sink, void *ctx, struct export_way *way, struct err *e) DS_CHECK;
/* Rows per chunk of a few MiB. */
size_t export_chunk_rows(const struct param *p);
/* DS_EFORMAT when a source file has changed. */
int export_check_source(const struct export_source *s, struct err *e) DS_CHECK;
/* DS_EIO with both sizes when the disk of PATH has less free space than that. */
int export_check_room(const char *path, uint64_t bytes, struct err *e) DS_CHECK;

#endif
