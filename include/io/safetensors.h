/* safetensors: 8-byte LE header length, JSON header, data.  Read-only mapping; every field checked.
 */
#ifndef DS_IO_SAFETENSORS_H
#define DS_IO_SAFETENSORS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

enum st_dtype {
    ST_F64,
    ST_F32,
    ST_F16,
    ST_BF16,
    ST_I64,
    ST_I32,
    ST_I16,
    ST_I8,
    ST_U8,
    ST_BOOL,
    ST_OTHER
};
enum { ST_RANK_MAX = 8 };
struct st_tensor {
    char *name;
    enum st_dtype dtype;
    char dtype_name[16];
    int rank;
    uint64_t shape[ST_RANK_MAX], items, bytes;
    const unsigned char *data; /* into the mapping, any alignment */
};
struct st;
int st_open(struct st **out, const char *path, struct err *e) DS_CHECK;
size_t st_count(const struct st *s);
const struct st_tensor *st_at(const struct st *s, size_t i); /* in data order */
const struct st_tensor *st_find(const struct st *s, const char *name);
const char *st_meta(const struct st *s, const char *key); /* __metadata__, NULL if absent */
/* Converts F64/F32/F16/BF16 to float (or double): n items must equal t->items; else DS_EFORMAT. */
int st_read_f32(const struct st_tensor *t, float *out, uint64_t n, struct err *e) DS_CHECK;
int st_read_f64(const struct st_tensor *t, double *out, uint64_t n, struct err *e) DS_CHECK;
/* Number of NaN/Inf values. */
uint64_t st_nonfinite(const struct st_tensor *t);
/* 0 while the file is the one that was opened; DS_EFORMAT when it was changed or replaced meanwhile
 * (ask after reading: a file that another process cut is a fault in the mapping). */
int st_unchanged(const struct st *s, struct err *e) DS_CHECK;
void st_close(struct st *s);

/* Writing: describe all tensors, then the data is written in that order, beside PATH first: PATH is
 * the whole new file, fsynced, or what it was (the directory is not synced; the checkpoint does
 * that). */
struct st_out {
    const char *name;
    enum st_dtype dtype;
    int rank;
    uint64_t shape[ST_RANK_MAX];
    const void *data;
};
int st_write(const char *path, const struct st_out *t, size_t n, const char *const *meta_pairs,
             size_t n_meta, struct err *e) DS_CHECK;

#endif
