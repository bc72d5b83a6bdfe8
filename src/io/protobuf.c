/* Appends fields in the wire format of Protocol Buffers. */
#include "io/protobuf.h"

static void add_number(struct str *s, uint64_t v)
{
    unsigned char out[10];
    size_t n = 0;
    for (; v >= 0x80; v >>= 7)
        out[n++] = (unsigned char)(v | 0x80);
    out[n++] = (unsigned char)v;
    str_add_bytes(s, out, n);
}

static void add_key(struct str *s, uint32_t number, enum pb_wire wire)
{
    add_number(s, (uint64_t)number << 3 | wire);
}

static void add_fixed(struct str *s, int bytes, uint64_t v)
{
    unsigned char out[8];
    for (int i = 0; i < bytes; i++)
        out[i] = (unsigned char)(v >> 8 * i);
    str_add_bytes(s, out, (size_t)bytes);
}

void pb_add_varint(struct str *s, uint32_t number, uint64_t v)
{
    add_key(s, number, PB_VARINT);
    add_number(s, v);
}

void pb_add_double(struct str *s, uint32_t number, double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_key(s, number, PB_FIXED64);
    add_fixed(s, 8, bits);
}

void pb_add_float(struct str *s, uint32_t number, float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    add_key(s, number, PB_FIXED32);
    add_fixed(s, 4, bits);
}

void pb_add_bytes(struct str *s, uint32_t number, const void *p, size_t n)
{
    add_key(s, number, PB_BYTES);
    add_number(s, n);
    str_add_bytes(s, p, n);
}

void pb_add_text(struct str *s, uint32_t number, const char *text)
{
    pb_add_bytes(s, number, text, strlen(text));
}
