/* Reads record bodies: a cursor over MessagePack bytes.
 *
 * Nothing is allocated or copied, so a hostile count costs nothing: value_check walks the whole
 * object once, with every count checked against the bytes left, and later walks stay inside what it
 * has passed (and are bounded all the same). */
#include "io/record.h"

#include <math.h>
#include <string.h>

enum { ITEMS_MAX = 8 << 20 }; /* per object; the densest legitimate record has far fewer */

/* One object's head: `len` is payload bytes (str, bin, ext, numbers) or items (array, map). */
struct head {
    enum value_kind kind;
    unsigned char tag;
    size_t head; /* bytes before the payload */
    uint64_t len;
};

static uint64_t be(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = 0; i < n; i++)
        x = x << 8 | p[i];
    return x;
}

/* Tags 0xc0..0xdf: kind, bytes of the length field, fixed payload bytes. */
static const struct tag_row {
    unsigned char kind, width, fixed;
} tag_table[32] = {
    [0x00] = {VALUE_NIL, 0, 0},  [0x01] = {VALUE_NONE, 0, 0},  [0x02] = {VALUE_BOOL, 0, 0},
    [0x03] = {VALUE_BOOL, 0, 0}, [0x04] = {VALUE_BIN, 1, 0},   [0x05] = {VALUE_BIN, 2, 0},
    [0x06] = {VALUE_BIN, 4, 0},  [0x07] = {VALUE_EXT, 1, 1},   [0x08] = {VALUE_EXT, 2, 1},
    [0x09] = {VALUE_EXT, 4, 1},  [0x0a] = {VALUE_REAL, 0, 4},  [0x0b] = {VALUE_REAL, 0, 8},
    [0x0c] = {VALUE_INT, 0, 1},  [0x0d] = {VALUE_INT, 0, 2},   [0x0e] = {VALUE_INT, 0, 4},
    [0x0f] = {VALUE_INT, 0, 8},  [0x10] = {VALUE_INT, 0, 1},   [0x11] = {VALUE_INT, 0, 2},
    [0x12] = {VALUE_INT, 0, 4},  [0x13] = {VALUE_INT, 0, 8},   [0x14] = {VALUE_EXT, 0, 2},
    [0x15] = {VALUE_EXT, 0, 3},  [0x16] = {VALUE_EXT, 0, 5},   [0x17] = {VALUE_EXT, 0, 9},
    [0x18] = {VALUE_EXT, 0, 17}, [0x19] = {VALUE_STR, 1, 0},   [0x1a] = {VALUE_STR, 2, 0},
    [0x1b] = {VALUE_STR, 4, 0},  [0x1c] = {VALUE_ARRAY, 2, 0}, [0x1d] = {VALUE_ARRAY, 4, 0},
    [0x1e] = {VALUE_MAP, 2, 0},  [0x1f] = {VALUE_MAP, 4, 0},
};

static struct head head_fix(enum value_kind kind, unsigned char tag, uint64_t len)
{
    return (struct head){.kind = kind, .tag = tag, .head = 1, .len = len};
}

/* Reads the head at p; kind VALUE_NONE when it is cut, unknown, or its payload cannot fit. */
static struct head head_read(const unsigned char *p, const unsigned char *end)
{
    struct head none = {VALUE_NONE, 0, 0, 0}, h;
    if (p >= end)
        return none;
    unsigned char tag = *p;
    size_t left = (size_t)(end - p) - 1;
    if (tag < 0x80 || tag >= 0xe0)
        return head_fix(VALUE_INT, tag, 0);
    if (tag < 0x90) {
        h = head_fix(VALUE_MAP, tag, tag & 15);
    } else if (tag < 0xa0) {
        h = head_fix(VALUE_ARRAY, tag, tag & 15);
    } else if (tag < 0xc0) {
        h = head_fix(VALUE_STR, tag, tag & 31);
    } else {
        const struct tag_row *t = &tag_table[tag - 0xc0];
        if (t->kind == VALUE_NONE || left < t->width)
            return none;
        h = (struct head){(enum value_kind)t->kind, tag, 1u + t->width, 0};
        h.len = be(p + 1, t->width) + t->fixed;
        left -= t->width;
    }
    /* every item is at least one byte, a map's pair two */
    uint64_t least = h.kind == VALUE_MAP ? 2 * h.len : h.len;
    return least <= left ? h : none;
}

static int head_is_container(const struct head *h)
{
    return h->kind == VALUE_MAP || h->kind == VALUE_ARRAY;
}

/* The end of the object at p, or NULL.  Iterative: depth is a counter, not the C stack. */
static const unsigned char *skip(const unsigned char *p, const unsigned char *end, int depth_max)
{
    uint64_t left[RECORD_DEPTH + 1], budget = ITEMS_MAX;
    int depth = 0;
    left[0] = 1;
    for (;;) {
        while (left[depth] == 0) {
            if (depth == 0)
                return p;
            depth--;
        }
        left[depth]--;
        struct head h = head_read(p, end);
        if (h.kind == VALUE_NONE || budget-- == 0)
            return NULL;
        p += h.head;
        if (!head_is_container(&h)) {
            p += h.len;
        } else {
            if (depth + 1 > depth_max)
                return NULL;
            left[++depth] = h.kind == VALUE_MAP ? 2 * h.len : h.len;
        }
    }
}

int value_check(const void *p, size_t n, struct value *v, size_t *used, struct err *e)
{
    const unsigned char *b = p;
    const unsigned char *end = n ? skip(b, b + n, RECORD_DEPTH) : NULL;
    if (!end)
        return err_set(e, DS_EFORMAT, "%s",
                       n ? "MessagePack object is corrupt, too deep or too large"
                         : "missing MessagePack object");
    if (v)
        *v = (struct value){b, end};
    if (used)
        *used = (size_t)(end - b);
    return 0;
}

enum value_kind value_kind(struct value v)
{
    return v.p ? head_read(v.p, v.end).kind : VALUE_NONE;
}

size_t value_len(struct value v)
{
    if (!v.p)
        return 0;
    struct head h = head_read(v.p, v.end);
    return head_is_container(&h) || h.kind == VALUE_STR || h.kind == VALUE_BIN ? (size_t)h.len : 0;
}

static int value_step(const unsigned char **p, const unsigned char *end, struct value *out)
{
    struct head h = head_read(*p, end); /* most items are scalars */
    const unsigned char *after = h.kind == VALUE_NONE    ? NULL
                                 : head_is_container(&h) ? skip(*p, end, RECORD_DEPTH)
                                                         : *p + h.head + h.len;
    if (!after)
        return 0;
    *out = (struct value){*p, after};
    *p = after;
    return 1;
}

int value_next(struct value container, struct value_iter *it, struct value *key, struct value *item)
{
    struct value none = {NULL, NULL}, k = none, i = none;
    if (!container.p)
        return 0;
    struct head h = head_read(container.p, container.end);
    if (!head_is_container(&h))
        return 0;
    if (!it->started) {
        it->started = 1;
        it->p = container.p + h.head;
        it->left = (size_t)h.len;
    }
    if (it->left == 0)
        return 0;
    it->left--;
    if (h.kind == VALUE_MAP && !value_step(&it->p, container.end, &k))
        return 0;
    if (!value_step(&it->p, container.end, &i))
        return 0;
    if (key)
        *key = k;
    if (item)
        *item = i;
    return 1;
}

struct value value_get(struct value map, const char *key)
{
    struct value_iter it = {0};
    struct value k, v;
    if (value_kind(map) != VALUE_MAP)
        return (struct value){NULL, NULL};
    while (value_next(map, &it, &k, &v))
        if (value_is(k, key))
            return v;
    return (struct value){NULL, NULL};
}

struct value value_at(struct value array, size_t i)
{
    struct value_iter it = {0};
    struct value v;
    if (value_kind(array) == VALUE_ARRAY)
        while (value_next(array, &it, NULL, &v))
            if (i-- == 0)
                return v;
    return (struct value){NULL, NULL};
}

const char *value_bytes(struct value v, size_t *n)
{
    struct head h = v.p ? head_read(v.p, v.end) : (struct head){VALUE_NONE, 0, 0, 0};
    if (h.kind != VALUE_STR && h.kind != VALUE_BIN)
        return NULL;
    if (n)
        *n = (size_t)h.len;
    return (const char *)v.p + h.head;
}

void value_copy(char *out, size_t size, struct value v)
{
    size_t n = 0;
    const char *p = value_bytes(v, &n);
    n = !p ? 0 : n < size - 1 ? n : size - 1;
    if (n > 0)
        memcpy(out, p, n);
    out[n] = '\0';
}

int value_is(struct value v, const char *text)
{
    size_t n = strlen(text);
    if (!v.p)
        return 0;
    struct head h = head_read(v.p, v.end);
    return h.kind == VALUE_STR && h.len == n && memcmp(v.p + h.head, text, n) == 0;
}

static double real_at(const unsigned char *p, size_t bytes)
{
    if (bytes == 4) {
        uint32_t bits = (uint32_t)be(p, 4);
        float f;
        memcpy(&f, &bits, sizeof f);
        return (double)f;
    }
    uint64_t bits = be(p, 8);
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

/* An integer's value; unsigned ones beyond int64 are kept apart in *huge (as double). */
static int64_t int_at(const unsigned char *p, const struct head *h, double *huge)
{
    *huge = 0;
    if (h->len == 0)
        return h->tag < 0x80 ? h->tag : (int64_t)h->tag - 256;
    uint64_t u = be(p + h->head, (int)h->len);
    if (h->tag <= 0xcf) {
        if (u > INT64_MAX)
            *huge = (double)u;
        return (int64_t)(u & INT64_MAX);
    }
    switch (h->len) {
    case 1: return (int8_t)u;
    case 2: return (int16_t)u;
    case 4: return (int32_t)u;
    default: return (int64_t)u;
    }
}

int64_t value_int(struct value v, int64_t otherwise)
{
    if (!v.p)
        return otherwise;
    struct head h = head_read(v.p, v.end);
    if (h.kind == VALUE_INT) {
        double huge;
        int64_t x = int_at(v.p, &h, &huge);
        return huge > 0 ? otherwise : x;
    }
    if (h.kind != VALUE_REAL)
        return otherwise;
    double d = real_at(v.p + h.head, (size_t)h.len);
    /* 2^63 itself does not fit; the comparison is false for NaN */
    if (!(d >= -0x1p63 && d < 0x1p63) || d != floor(d))
        return otherwise;
    return (int64_t)d;
}

static int number_word(struct value v, double *out)
{
    static const struct {
        const char *word;
        double value;
    } words[] = {
        {"NaN", (double)NAN},   {"nan", (double)NAN}, {"Inf", HUGE_VAL},   {"inf", HUGE_VAL},
        {"Infinity", HUGE_VAL}, {"-Inf", -HUGE_VAL},  {"-inf", -HUGE_VAL}, {"-Infinity", -HUGE_VAL},
    };
    for (size_t i = 0; i < DS_LEN(words); i++)
        if (value_is(v, words[i].word)) {
            *out = words[i].value;
            return 1;
        }
    return 0;
}

/* 1 and *out when v is a number in any of its forms. */
static int number_at(const unsigned char *p, const struct head *h, double *out)
{
    switch (h->kind) {
    case VALUE_INT: {
        double huge;
        int64_t x = int_at(p, h, &huge);
        *out = huge > 0 ? huge : (double)x;
        return 1;
    }
    case VALUE_REAL: *out = real_at(p + h->head, (size_t)h->len); return 1;
    case VALUE_BOOL: *out = h->tag == 0xc3; return 1;
    case VALUE_STR: return number_word((struct value){p, p + h->head + h->len}, out);
    default: return 0;
    }
}

int value_is_num(struct value v, double *out)
{
    if (!v.p)
        return 0;
    struct head h = head_read(v.p, v.end);
    return number_at(v.p, &h, out);
}

double value_num(struct value v, double otherwise)
{
    double x;
    return value_is_num(v, &x) ? x : otherwise;
}

static float f32_le(const unsigned char *p)
{
    uint32_t bits =
        (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Numbers of an array, row by row through nested arrays; -1 if anything else is in it.  The
 * nesting needs no stack: rows follow each other in the bytes as their numbers do. */
static int64_t array_f64s(struct value v, void *out, size_t max,
                          void (*store)(void *out, size_t i, double x))
{
    const unsigned char *p = v.p;
    int64_t n = 0;
    while (p < v.end) {
        struct head h = head_read(p, v.end);
        double x;
        if (h.kind != VALUE_ARRAY) {
            if (h.kind == VALUE_NIL)
                x = (double)NAN;
            else if (!number_at(p, &h, &x))
                return -1;
            if ((size_t)n < max)
                store(out, (size_t)n, x);
            n++;
            p += h.len;
        }
        p += h.head;
    }
    return n;
}

static void store_f32(void *out, size_t i, double x)
{
    ((float *)out)[i] = x > (double)HUGE_VALF ? HUGE_VALF : (float)x;
}

int64_t value_f32s(struct value v, float *out, size_t max)
{
    enum value_kind kind = value_kind(v);
    if (kind == VALUE_ARRAY)
        return array_f64s(v, out, max, store_f32);
    size_t n = 0;
    const unsigned char *p = (const unsigned char *)value_bytes(v, &n);
    if (kind != VALUE_BIN || n % 4)
        return -1;
    n /= 4;
    for (size_t i = 0; i < n && i < max; i++)
        out[i] = f32_le(p + 4 * i);
    return (int64_t)n;
}

static void store_i32(void *out, size_t i, double x)
{
    double low = -2147483648.0, high = 2147483647.0;
    ((int32_t *)out)[i] = x >= low && x <= high ? (int32_t)x : -1;
}

int64_t value_i32s(struct value v, int32_t *out, size_t max)
{
    enum value_kind kind = value_kind(v);
    if (kind == VALUE_ARRAY)
        return array_f64s(v, out, max, store_i32);
    size_t n = 0;
    const unsigned char *p = (const unsigned char *)value_bytes(v, &n);
    if (kind != VALUE_BIN)
        return -1;
    for (size_t i = 0; i < n && i < max; i++)
        out[i] = p[i];
    return (int64_t)n;
}
