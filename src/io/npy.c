/* The header is a Python literal with exactly three keys; it is read by hand, not as Python. */
#include "io/npy.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/checked.h"
#include "base/compiler.h"
#include "io/st_dtype.h"

enum { HEADER_MAX = 65536 };

struct text {
    const char *p, *end;
};

static void skip_space(struct text *t)
{
    while (t->p < t->end && (*t->p == ' ' || *t->p == '\n' || *t->p == '\t'))
        t->p++;
}

static int take(struct text *t, char c)
{
    skip_space(t);
    if (t->p == t->end || *t->p != c)
        return 0;
    t->p++;
    return 1;
}

/* 'text' or "text"; NULL when there is none. */
static const char *quoted(struct text *t, size_t *n)
{
    skip_space(t);
    if (t->p == t->end || (*t->p != '\'' && *t->p != '"'))
        return NULL;
    const char *from = t->p + 1;
    const char *to = memchr(from, *t->p, (size_t)(t->end - from));
    if (!to)
        return NULL;
    *n = (size_t)(to - from);
    t->p = to + 1;
    return from;
}

static int word(struct text *t, const char *what)
{
    size_t n = strlen(what);
    skip_space(t);
    if ((size_t)(t->end - t->p) < n || memcmp(t->p, what, n) != 0)
        return 0;
    t->p += n;
    return 1;
}

static int is(const char *p, size_t n, const char *what)
{
    return p && n == strlen(what) && memcmp(p, what, n) == 0;
}

static int read_type(struct npy *a, struct text *t, struct err *e)
{
    size_t n = 0;
    const char *p = quoted(t, &n);
    if (p && n == 3 && memchr("<>|=", p[0], 4) && memchr("iufb", p[1], 4) &&
        memchr("1248", p[2], 4)) {
        a->kind = p[1];
        a->size = p[2] - '0';
        a->is_swapped = p[0] == '>' && a->size > 1;
        if ((a->kind != 'f' || a->size > 1) && (a->kind != 'b' || a->size == 1))
            return 0;
    }
    return err_set(e, DS_EFORMAT, "array type '%.*s': expected integers or floats",
                   (int)(n < 20 ? n : 20), p ? p : "");
}

static int read_dim(struct npy *a, struct text *t, struct err *e)
{
    uint64_t v = 0;
    int digits = 0;
    skip_space(t);
    for (; t->p < t->end && *t->p >= '0' && *t->p <= '9'; t->p++, digits++)
        if (checked_mul(v, 10, &v) || checked_add(v, (uint64_t)(*t->p - '0'), &v))
            return err_set(e, DS_ERANGE, "array shape: dimension %d is too large", a->rank);
    if (!digits)
        return err_set(e, DS_EFORMAT, "array shape: expected numbers in parentheses");
    if (t->p < t->end && *t->p == 'L') /* written by Python 2 */
        t->p++;
    if (a->rank == NPY_RANK)
        return err_set(e, DS_ERANGE, "array shape: more than %d dimensions", NPY_RANK);
    a->shape[a->rank++] = v;
    return 0;
}

static int read_shape(struct npy *a, struct text *t, struct err *e)
{
    if (!take(t, '('))
        return err_set(e, DS_EFORMAT, "array shape: expected numbers in parentheses");
    while (!take(t, ')')) {
        int rc = read_dim(a, t, e);
        if (rc < 0)
            return rc;
        if (!take(t, ',') && (skip_space(t), t->p == t->end || *t->p != ')'))
            return err_set(e, DS_EFORMAT, "array shape: expected numbers in parentheses");
    }
    return 0;
}

static int read_literal(struct npy *a, struct text *t, int *is_fortran, struct err *e)
{
    int has = 0;
    if (!take(t, '{'))
        return err_set(e, DS_EFORMAT, "array header: expected a dictionary");
    while (!take(t, '}')) {
        size_t n = 0;
        const char *key = quoted(t, &n);
        int bit = is(key, n, "descr")           ? 1
                  : is(key, n, "fortran_order") ? 2
                  : is(key, n, "shape")         ? 4
                                                : 0;
        int rc = 0;
        if (!bit || (has & bit) || !take(t, ':'))
            return err_set(e, DS_EFORMAT,
                           "array header: expected the keys descr, fortran_order and shape");
        has |= bit;
        if (bit == 1)
            rc = read_type(a, t, e);
        else if (bit == 4)
            rc = read_shape(a, t, e);
        else if (!(*is_fortran = word(t, "True")) && !word(t, "False"))
            rc = err_set(e, DS_EFORMAT, "array header: fortran_order must be True or False");
        if (rc < 0)
            return rc;
        take(t, ',');
    }
    return has == 7 ? 0
                    : err_set(e, DS_EFORMAT,
                              "array header: expected the keys descr, fortran_order and shape");
}

static int measure(struct npy *a, int is_fortran, size_t bytes, struct err *e)
{
    char shape[120];
    uint64_t n = 1, size = 0;
    int failed = 0;
    for (int i = 0; i < a->rank && !failed; i++) {
        int d = is_fortran ? i : a->rank - 1 - i;
        a->stride[d] = n;
        failed = checked_mul(n, a->shape[d], &n);
    }
    if (failed || checked_mul(n, (uint64_t)a->size, &size) || size != bytes)
        return err_set(e, DS_EFORMAT,
                       "array of shape %s and %d bytes per item, but %zu bytes of data%s",
                       npy_shape(a, shape, sizeof shape), a->size, bytes,
                       !failed && size > bytes ? ": truncated" : "");
    a->n = n;
    return 0;
}

int npy_read(struct npy *a, const unsigned char *p, size_t n, struct err *e)
{
    struct npy got = {0};
    int is_fortran = 0;
    if (n < 10 || memcmp(p, "\x93NUMPY", 6) != 0)
        return err_set(e, DS_EFORMAT, "expected a NumPy array");
    if (p[6] < 1 || p[6] > 3)
        return err_set(e, DS_EFORMAT, "NumPy format %d: unsupported, expected 1 to 3", p[6]);
    size_t at = p[6] == 1 ? 10 : 12, len = (size_t)p[8] | (size_t)p[9] << 8;
    if (p[6] > 1 && n >= 12)
        len |= (size_t)p[10] << 16 | (size_t)p[11] << 24;
    if (n < at || len > n - at || len > HEADER_MAX)
        return err_set(e, DS_EFORMAT, "array header of %zu bytes: truncated", len);
    struct text t = {(const char *)p + at, (const char *)p + at + len};
    int rc = read_literal(&got, &t, &is_fortran, e);
    if (rc < 0)
        return rc;
    got.data = p + at + len;
    rc = measure(&got, is_fortran, n - at - len, e);
    if (rc == 0)
        *a = got;
    return rc;
}

static uint64_t bits_at(const struct npy *a, uint64_t at)
{
    const unsigned char *p = a->data + at * (uint64_t)a->size;
    uint64_t v = 0;
    for (int i = 0; i < a->size; i++)
        v |= (uint64_t)p[a->is_swapped ? a->size - 1 - i : i] << 8 * i;
    return v;
}

double npy_num(const struct npy *a, uint64_t at)
{
    uint64_t bits = bits_at(a, at);
    int64_t v;
    if (a->kind == 'u' && a->size == 8)
        return (double)bits;
    if (a->kind != 'f')
        return npy_int(a, at, &v) ? (double)v : (double)NAN;
    if (a->size == 2)
        return (double)st_half((uint16_t)bits);
    if (a->size == 4) {
        uint32_t low = (uint32_t)bits;
        float f;
        memcpy(&f, &low, sizeof f);
        return (double)f;
    }
    double d;
    memcpy(&d, &bits, sizeof d);
    return d;
}

int npy_int(const struct npy *a, uint64_t at, int64_t *out)
{
    uint64_t bits = bits_at(a, at);
    if (a->kind == 'f') {
        double v = npy_num(a, at);
        if (!(v >= -0x1p62 && v <= 0x1p62) || v != floor(v))
            return 0;
        *out = (int64_t)v;
        return 1;
    }
    if (a->kind == 'i' && a->size < 8 && bits >> (8 * a->size - 1))
        bits |= UINT64_MAX << 8 * a->size;
    if (a->kind != 'i' && bits > INT64_MAX)
        return 0;
    memcpy(out, &bits, sizeof *out);
    return 1;
}

const char *npy_shape(const struct npy *a, char *out, size_t size)
{
    size_t n = (size_t)snprintf(out, size, "(");
    for (int i = 0; i < a->rank && n < size; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%llu", i ? ", " : "",
                              (unsigned long long)a->shape[i]);
    if (n < size)
        snprintf(out + n, size - n, a->rank == 1 ? ",)" : ")");
    return out;
}
