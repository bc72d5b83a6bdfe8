/* The wire format of Protocol Buffers, private to io: reads the fields of a message one by one and
 * appends fields.  Knows no message type.  All bytes read are untrusted; nothing is copied. */
#ifndef DS_SRC_IO_PROTOBUF_H
#define DS_SRC_IO_PROTOBUF_H

#include <stdint.h>
#include <string.h>

#include "base/str.h"

enum pb_wire { PB_VARINT = 0, PB_FIXED64 = 1, PB_BYTES = 2, PB_FIXED32 = 5 };

/* What is left of a message.  Start with its first byte and its end. */
struct pb {
    const unsigned char *p, *end;
};

struct pb_field {
    uint32_t number;
    enum pb_wire wire;
    uint64_t value;  /* PB_VARINT, PB_FIXED64, PB_FIXED32 */
    struct pb bytes; /* PB_BYTES: a message, a string or packed numbers; else empty */
};

/* The next field: 1, 0 at the end of the message, -1 when it is malformed (groups included, which
 * no current writer uses). */
static inline int pb_next(struct pb *m, struct pb_field *f);
/* The same for the values of a packed field.  Each takes one from the front; 0 at the end or when
 * it is cut off. */
static inline int pb_varint(struct pb *m, uint64_t *v);
static inline int pb_fixed(struct pb *m, int bytes, uint64_t *v);

static inline size_t pb_size(struct pb m)
{
    return (size_t)(m.end - m.p);
}

static inline int pb_is(struct pb m, const char *text)
{
    return pb_size(m) == strlen(text) && memcmp(m.p, text, pb_size(m)) == 0;
}

static inline double pb_double(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline float pb_float(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float x;
    memcpy(&x, &low, sizeof x);
    return x;
}

/* sint64 */
static inline int64_t pb_zigzag(uint64_t v)
{
    return (int64_t)(v >> 1 ^ (0 - (v & 1)));
}

/* ---- writing ---- */

void pb_add_varint(struct str *s, uint32_t number, uint64_t v);
void pb_add_double(struct str *s, uint32_t number, double x);
void pb_add_float(struct str *s, uint32_t number, float x);
void pb_add_bytes(struct str *s, uint32_t number, const void *p, size_t n);
void pb_add_text(struct str *s, uint32_t number, const char *text);

/* ---- the reader, inline because a log has millions of fields ---- */

static inline int pb_varint(struct pb *m, uint64_t *v)
{
    uint64_t x = 0;
    for (int shift = 0; shift < 64 && m->p < m->end; shift += 7) {
        unsigned char c = *m->p++;
        x |= (uint64_t)(c & 0x7F) << shift;
        if (c < 0x80) {
            *v = x;
            return shift < 63 || c < 2;
        }
    }
    return 0;
}

static inline int pb_fixed(struct pb *m, int bytes, uint64_t *v)
{
    uint64_t x = 0;
    if (m->end - m->p < bytes)
        return 0;
    for (int i = 0; i < bytes; i++)
        x |= (uint64_t)m->p[i] << 8 * i;
    m->p += bytes;
    *v = x;
    return 1;
}

static inline int pb_next(struct pb *m, struct pb_field *f)
{
    uint64_t key;
    if (m->p == m->end)
        return 0;
    if (!pb_varint(m, &key) || key >> 3 == 0 || key >> 3 >= 1u << 29)
        return -1;
    f->number = (uint32_t)(key >> 3);
    f->wire = (enum pb_wire)(key & 7);
    f->bytes = (struct pb){m->p, m->p};
    switch (f->wire) {
    case PB_VARINT: return pb_varint(m, &f->value) ? 1 : -1;
    case PB_FIXED64: return pb_fixed(m, 8, &f->value) ? 1 : -1;
    case PB_FIXED32: return pb_fixed(m, 4, &f->value) ? 1 : -1;
    case PB_BYTES:
        if (!pb_varint(m, &f->value) || f->value > pb_size(*m))
            return -1;
        f->bytes = (struct pb){m->p, m->p + f->value};
        m->p += f->value;
        return 1;
    }
    return -1;
}

#endif
