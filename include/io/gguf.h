/* GGUF: header, metadata, tensor infos, data.  Little-endian, versions 2 and 3 (one layout).  A
 * read-only mapping; every count, length and offset is compared with the file before it is used. */
#ifndef DS_IO_GGUF_H
#define DS_IO_GGUF_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "engine/real.h"

/* Types of metadata values, numbered as in the file. */
enum gguf_kind {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_KINDS
};

/* Tensor types that can be read, numbered as in the file; others are only listed. */
enum gguf_type {
    GGUF_T_F32 = 0,
    GGUF_T_F16 = 1,
    GGUF_T_Q4_0 = 2,
    GGUF_T_Q4_1 = 3,
    GGUF_T_Q5_0 = 6,
    GGUF_T_Q5_1 = 7,
    GGUF_T_Q8_0 = 8,
    GGUF_T_Q2_K = 10,
    GGUF_T_Q3_K = 11,
    GGUF_T_Q4_K = 12,
    GGUF_T_Q5_K = 13,
    GGUF_T_Q6_K = 14,
    GGUF_T_IQ4_NL = 20,
    GGUF_T_IQ4_XS = 23,
    GGUF_T_BF16 = 30,
    GGUF_T_MXFP4 = 39
};

/* Bytes of the file, not terminated, of any content. */
struct gguf_text {
    const char *p;
    size_t n;
};

struct gguf_meta {
    char *key;
    enum gguf_kind kind, item; /* item: of an array's elements, else kind */
    uint64_t count;            /* of an array, else 1 */
    const unsigned char *data; /* the first value, in the mapping, any alignment */
};

enum { GGUF_RANK_MAX = 4 };
struct gguf_tensor {
    char *name;
    uint32_t type; /* enum gguf_type, or one that is listed only */
    const char *type_name;
    int rank;
    uint64_t shape[GGUF_RANK_MAX]; /* contiguous dimension last: (rows, columns) */
    uint64_t items, bytes;
    const unsigned char *data; /* in the mapping, at the file's alignment */
};

struct gguf;
/* Any file of a split model opens all of them, which are next to it: the metadata of the first and
 * the tensors of all.  DS_EFORMAT in one line naming file and cause, DS_ENOTFOUND, DS_EIO,
 * DS_EMEM. */
int gguf_open(struct gguf **out, const char *path, struct err *e) DS_CHECK;
void gguf_close(struct gguf *g);
int gguf_version(const struct gguf *g);
size_t gguf_bytes(const struct gguf *g); /* of the file, or files */

size_t gguf_meta_count(const struct gguf *g);
const struct gguf_meta *gguf_meta_at(const struct gguf *g, size_t i); /* in the file's order */
const struct gguf_meta *gguf_meta_find(const struct gguf *g, const char *key);
const char *gguf_kind_name(enum gguf_kind kind);
/* Value i of a numeric scalar or array: 1, or 0 when there is no such value (m may be NULL).
 * gguf_int accepts integers and booleans, but no U64 beyond int64, which only gguf_big accepts;
 * gguf_num accepts every number. */
int gguf_int(const struct gguf_meta *m, uint64_t i, int64_t *out);
int gguf_big(const struct gguf_meta *m, uint64_t i, uint64_t *out);
int gguf_num(const struct gguf_meta *m, uint64_t i, double *out);
/* The bytes of a scalar string: 1, or 0 when it is not one. */
int gguf_string(const struct gguf_meta *m, struct gguf_text *out);
/* Iterates over an array of strings (or one string): start with at = m->data, left = m->count; 0 at
 * the end. */
struct gguf_strings {
    const unsigned char *at;
    uint64_t left;
};
int gguf_strings_next(struct gguf_strings *s, struct gguf_text *out);

size_t gguf_count(const struct gguf *g);
const struct gguf_tensor *gguf_at(const struct gguf *g, size_t i); /* in the file's order */
const struct gguf_tensor *gguf_find(const struct gguf *g, const char *name);
/* 1 when gguf_read knows the type. */
int gguf_type_known(uint32_t type);
/* Items and bytes of one block of a type in a file; 0 when no such type exists. */
int gguf_type_block(uint32_t type, int *items, int *bytes);
const char *gguf_type_name(uint32_t type); /* NULL: no such type */
/* DS_EFORMAT naming the tensor when gguf_read does not know its type. */
int gguf_check_type(const struct gguf_tensor *t, struct err *e) DS_CHECK;
/* All values as floats, in the file's order; n must equal t->items.  DS_EFORMAT. */
int gguf_read(const struct gguf_tensor *t, real *out, uint64_t n, struct err *e) DS_CHECK;
/* Values [at, at + n) of a struct gguf_tensor whose type is known; both are multiples of its
 * block.  Any thread. */
void gguf_take(const void *tensor, uint64_t at, uint64_t n, real *out);
/* DS_EFORMAT when the file has changed since it was opened. */
int gguf_unchanged(const struct gguf *g, struct err *e) DS_CHECK;

#endif
