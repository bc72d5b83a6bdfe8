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
    ST_F8_E4M3, /* readable with a scale */
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
    /* A matrix in F8_E4M3: its values are multiplied by those of `scale`, one for each block of
     * (rows, columns).  NULL: none. */
    const struct st_tensor *scale;
    uint64_t block[2];
};
struct st;
int st_open(struct st **out, const char *path, struct err *e) DS_CHECK;
size_t st_count(const struct st *s);
const struct st_tensor *st_at(const struct st *s, size_t i); /* in data order */
const struct st_tensor *st_find(const struct st *s, const char *name);
const char *st_meta(const struct st *s, const char *key); /* __metadata__, NULL if absent */
/* Converts F64/F32/F16/BF16, or F8_E4M3 with a scale, to float (or double): n items must equal t->items; else DS_EFORMAT. */
int st_read_f32(const struct st_tensor *t, float *out, uint64_t n, struct err *e) DS_CHECK;
int st_read_f64(const struct st_tensor *t, double *out, uint64_t n, struct err *e) DS_CHECK;
/* As st_read_*, for n values from index `at`, for readers that slice a tensor: st_check_read must
 * have accepted its type and number of values. */
int st_check_read(const struct st_tensor *t, uint64_t items, struct err *e) DS_CHECK;
void st_take_f32(const struct st_tensor *t, uint64_t at, float *out, uint64_t n);
void st_take_f64(const struct st_tensor *t, uint64_t at, double *out, uint64_t n);
/* Gives t, a matrix in F8_E4M3, its scale: one value, one a row, or one for each 128 x 128 (as the
 * name weight_scale_inv has it, also a factor).  DS_EFORMAT naming both shapes.  Both tensors'
 * storage must outlive t. */
int st_set_scale(struct st_tensor *t, const struct st_tensor *scale, struct err *e) DS_CHECK;
/* Read-ahead hint: these values will be read soon. */
void st_prefetch(const struct st_tensor *t, uint64_t at, uint64_t n);
/* Hint that these values have been read: their pages may be evicted (a later access reads the file
 * again). */
void st_drop(const struct st_tensor *t, uint64_t at, uint64_t n);
/* Number of NaN/Inf values. */
uint64_t st_nonfinite(const struct st_tensor *t);
/* 0 while the file is the one that was opened; DS_EFORMAT when it has been changed or replaced
 * (check after reading: truncation by another process faults in the mapping). */
int st_unchanged(const struct st *s, struct err *e) DS_CHECK;
/* 0 while the mapped file is unmodified, even if its name now refers to another file. */
int st_intact(const struct st *s, struct err *e) DS_CHECK;
void st_close(struct st *s);

/* Writing: describe all tensors; the data is written in that order to a temporary file first, so
 * PATH is either the complete new file, fsynced, or what it was (the directory is not synced; the
 * checkpoint does that). */
struct st_out {
    const char *name;
    enum st_dtype dtype;
    int rank;
    uint64_t shape[ST_RANK_MAX];
    const void *data;
    /* Or NULL.  Copies row i (of shape[0], or a whole vector) into `out` for tensors with another
     * memory layout; data is then its context. */
    void (*row)(const void *data, uint64_t i, void *out);
};
int st_write(const char *path, const struct st_out *t, size_t n, const char *const *meta_pairs,
             size_t n_meta, struct err *e) DS_CHECK;

#endif
