/* Writing GGUF version 3: metadata, then the table of tensors, then their data in that order. */
#ifndef DS_IO_GGUF_WRITE_H
#define DS_IO_GGUF_WRITE_H

#include "io/gguf.h"
#include "base/fs.h"

struct gguf_out;
int gguf_out_new(struct gguf_out **out, struct err *e) DS_CHECK;
/* Also discards a file that was begun but not ended. */
void gguf_out_free(struct gguf_out *w);

/* Metadata, in the order of the calls, before gguf_out_begin.  Lack of memory is reported there.
 * Each key may be put only once. */
void gguf_put_u32(struct gguf_out *w, const char *key, uint32_t v);
void gguf_put_f32(struct gguf_out *w, const char *key, float v);
void gguf_put_bool(struct gguf_out *w, const char *key, int v);
void gguf_put_text(struct gguf_out *w, const char *key, const char *p, size_t n);
/* An array of n items of one kind, which follow. */
void gguf_put_array(struct gguf_out *w, const char *key, enum gguf_kind item, uint64_t n);
void gguf_item_text(struct gguf_out *w, const char *p, size_t n);
void gguf_item_i32(struct gguf_out *w, int32_t v);
void gguf_item_bool(struct gguf_out *w, int v);
void gguf_item_f32(struct gguf_out *w, float v);

/* Appends a tensor of shape (rows, columns), a vector with columns 0; columns (rows of a vector)
 * must be a multiple of the type's block size. DS_ERANGE, DS_EMEM. */
int gguf_out_tensor(struct gguf_out *w, const char *name, uint32_t type, uint64_t rows,
                    uint64_t columns, struct err *e) DS_CHECK;
/* Size of the complete file in bytes; valid once all tensors have been added. */
uint64_t gguf_out_bytes(const struct gguf_out *w);
/* Creates the file and writes all but the data. */
int gguf_out_begin(struct gguf_out *w, const char *path, struct err *e) DS_CHECK;
/* The next n bytes of the current tensor; when it is full the next one follows.  Must not cross a
 * tensor's end. */
int gguf_out_data(struct gguf_out *w, const void *p, size_t n, struct err *e) DS_CHECK;
/* Renames the file to its final name; every tensor must be full. */
int gguf_out_end(struct gguf_out *w, struct err *e) DS_CHECK;

#endif
