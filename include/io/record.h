/* One record of the stream: framed, checksummed MessagePack (io/FORMATS.md).
 *
 *   0xC9 | u32 BE length | 0x44 | crc32c u32 BE | seq u64 BE | body      length = 4 + 8 + body
 *
 * The body is one map.  The checksum covers seq and body.  Caps: record 16 MiB, depth 16. */
#ifndef DS_IO_RECORD_H
#define DS_IO_RECORD_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "base/str.h"

/* RECORD_FORMAT is `format` in every head. */
enum { RECORD_FORMAT = 1 };
enum { RECORD_HEAD = 6, RECORD_OVERHEAD = 18, RECORD_MAX = 16 << 20, RECORD_DEPTH = 16 };

/* A value inside a checked body. Copy freely; borrows the buffer. */
struct value {
    const unsigned char *p, *end;
};

/* ---- writing: a builder that packs one body; errors are kept and reported by record_end ---- */
struct record;
struct record *record_new(void); /* NULL: out of memory.  Reusable for any number of records. */
void record_free(struct record *r);
/* Starts a body with kind, step and time (wall seconds). */
void record_begin(struct record *r, const char *kind, int64_t step, double time);
void record_int(struct record *r, const char *key, int64_t v);
void record_num(struct record *r, const char *key, double v);
void record_bool(struct record *r, const char *key, int v);
void record_str(struct record *r, const char *key, const char *v);
void record_bytes(struct record *r, const char *key, const void *p, size_t n); /* bin */
void record_f32s(struct record *r, const char *key, const float *v,
                 size_t n); /* bin, little-endian f32 */
void record_i32s(struct record *r, const char *key, const int32_t *v, size_t n); /* array of ints */
void record_nums(struct record *r, const char *key, const double *v, size_t n);  /* array of f64 */
/* Strings of arbitrary bytes (token pieces): array of bin. */
void record_pieces(struct record *r, const char *key, const char *const *p, const size_t *len,
                   size_t n);
/* Nested containers: key is NULL inside an array. Maps and arrays are closed by record_close. */
void record_map(struct record *r, const char *key);
void record_array(struct record *r, const char *key);
void record_close(struct record *r);
/* A part of the record could not be made: record_end reports it. */
void record_no_memory(struct record *r);
/* Frames the body with `seq` into *out (appended). */
int record_end(struct record *r, uint64_t seq, struct str *out, struct err *e) DS_CHECK;

/* Appends a frame around a checked body, e.g. to pass it on without what is damaged around it. */
void record_copy(struct str *out, uint64_t seq, struct value body);

/* ---- reading: a checked, borrowed tree over the bytes (nothing is copied or allocated) ---- */
enum value_kind {
    VALUE_NONE,
    VALUE_NIL,
    VALUE_BOOL,
    VALUE_INT,
    VALUE_REAL,
    VALUE_STR,
    VALUE_BIN,
    VALUE_ARRAY,
    VALUE_MAP,
    VALUE_EXT
};
/* Looks at bytes at the start of a frame: >0 = whole frame length and the checksum holds, 0 = more
 * bytes needed, <0 DS_EFORMAT.  On success *seq and *body (a checked VALUE_MAP) are set. */
int64_t record_parse(const void *p, size_t n, uint64_t *seq, struct value *body,
                     struct err *e) DS_CHECK;
/* Length of the whole frame whose first n bytes are at p, from its head alone: 0 when more bytes
 * are needed, negative when these are not the head of a frame. */
int64_t record_length(const void *p, size_t n);
/* Offset >= from of the next whole valid frame in the buffer, or n when none. */
size_t record_resync(const void *p, size_t n, size_t from);
/* The same for a buffer that will grow: *pending is the first place before the answer where a frame
 * may begin whose end is not in the buffer yet (n when there is none).  Time is bounded for hostile
 * bytes. */
size_t record_scan(const void *p, size_t n, size_t from, size_t *pending);
/* Checks a bare MessagePack object (no frame): every count <= bytes left, depth, item budget; sets
 * *v. */
int value_check(const void *p, size_t n, struct value *v, size_t *used, struct err *e) DS_CHECK;

enum value_kind value_kind(struct value v);
struct value value_get(struct value map, const char *key); /* VALUE_NONE when absent  */
struct value value_at(struct value array, size_t i);       /* O(i) */
size_t value_len(struct value v); /* items of array/map, bytes of str/bin, else 0 */
/* Iteration: *it starts zeroed; returns 0 at the end. For maps *key is set, for arrays ignored. */
struct value_iter {
    const unsigned char *p;
    size_t left;
    int started;
};
int value_next(struct value container, struct value_iter *it, struct value *key,
               struct value *item);
const char *value_bytes(struct value v, size_t *n);   /* str or bin, else NULL */
/* Copies a str or bin into out, NUL-terminated and cut to fit; "" when it is neither. */
void value_copy(char *out, size_t size, struct value v);
int value_is(struct value v, const char *text);       /* str equal to text */
int64_t value_int(struct value v, int64_t otherwise); /* ints, and reals that are whole */
int value_is_num(struct value v, double *out); /* 1 and *out when value_num would find a number */
double value_num(struct value v, double otherwise); /* ints, reals, bools; "NaN"/"Inf" strings */
/* Floats from an array of numbers (nested arrays are flattened row by row), or a bin of
 * little-endian f32.  At most `max` are stored; returns the total count, -1 when v is neither. */
int64_t value_f32s(struct value v, float *out, size_t max);
int64_t value_i32s(struct value v, int32_t *out,
                   size_t max); /* array of ints, or bin of bytes 0..255 */

#endif
