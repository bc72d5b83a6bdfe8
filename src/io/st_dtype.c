/* Element types of safetensors, and conversion of their values to floats. */
#include "io/st_dtype.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/mem.h"

static const struct {
    const char *name;
    int bits;
    enum st_dtype dtype;
} dtypes[] = {
    {"F64", 64, ST_F64},          {"F32", 32, ST_F32},      {"F16", 16, ST_F16},
    {"BF16", 16, ST_BF16},        {"I64", 64, ST_I64},      {"I32", 32, ST_I32},
    {"I16", 16, ST_I16},          {"I8", 8, ST_I8},         {"U8", 8, ST_U8},
    {"BOOL", 8, ST_BOOL},         {"U64", 64, ST_OTHER},    {"U32", 32, ST_OTHER},
    {"U16", 16, ST_OTHER},        {"C64", 64, ST_OTHER},    {"F8_E4M3", 8, ST_OTHER},
    {"F8_E5M2", 8, ST_OTHER},     {"F8_E8M0", 8, ST_OTHER}, {"F8_E4M3FNUZ", 8, ST_OTHER},
    {"F8_E5M2FNUZ", 8, ST_OTHER}, {"F6_E2M3", 6, ST_OTHER}, {"F6_E3M2", 6, ST_OTHER},
    {"F4", 4, ST_OTHER},
};

int st_dtype_bits(const char *name)
{
    for (size_t i = 0; i < DS_LEN(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].bits;
    return 0;
}

enum st_dtype st_dtype_find(const char *name)
{
    for (size_t i = 0; i < DS_LEN(dtypes); i++)
        if (strcmp(dtypes[i].name, name) == 0)
            return dtypes[i].dtype;
    return ST_OTHER;
}

const char *st_dtype_name(enum st_dtype t)
{
    for (size_t i = 0; i < DS_LEN(dtypes); i++)
        if (dtypes[i].dtype == t && t != ST_OTHER)
            return dtypes[i].name;
    return "?";
}

static uint64_t le(const unsigned char *p, int n)
{
    uint64_t x = 0;
    for (int i = n - 1; i >= 0; i--)
        x = x << 8 | p[i];
    return x;
}

static float float_of(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

/* Without branches, so that loops over it vectorise: the fraction moved into place, the exponent
 * put right by an exact product, which makes subnormal numbers normal as well. */
float st_half(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, rest = (uint32_t)(h & 0x7fff) << 13;
    uint32_t odd = rest >= 0x0f800000 ? 0x7f800000u | rest : 0; /* infinity or NaN */
    float size = float_of(rest) * 0x1p112f;
    uint32_t bits;
    memcpy(&bits, &size, sizeof bits);
    return float_of(sign | (odd ? odd : bits));
}

double st_value(const unsigned char *p, enum st_dtype t)
{
    double d;
    uint64_t bits;
    switch (t) {
    case ST_F64:
        bits = le(p, 8);
        memcpy(&d, &bits, sizeof d);
        return d;
    case ST_F32: return (double)float_of((uint32_t)le(p, 4));
    case ST_F16: return (double)st_half((uint16_t)le(p, 2));
    case ST_BF16: return (double)float_of((uint32_t)le(p, 2) << 16);
    default: return (double)NAN;
    }
}

static int float_size(enum st_dtype t)
{
    switch (t) {
    case ST_F64: return 8;
    case ST_F32: return 4;
    case ST_F16:
    case ST_BF16: return 2;
    default: return 0;
    }
}

void st_take_f32(const struct st_tensor *t, uint64_t at, float *out, uint64_t n)
{
    const unsigned char *p = t->data + (uint64_t)float_size(t->dtype) * at;
    switch (t->dtype) { /* the common types in loops that the compiler vectorises */
    case ST_F32:
        for (uint64_t i = 0; i < n; i++)
            out[i] = float_of((uint32_t)le(p + 4 * i, 4));
        break;
    case ST_BF16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = float_of((uint32_t)le(p + 2 * i, 2) << 16);
        break;
    case ST_F16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = st_half((uint16_t)le(p + 2 * i, 2));
        break;
    default:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)st_value(p + 8 * i, ST_F64);
        break;
    }
}

void st_take_f64(const struct st_tensor *t, uint64_t at, double *out, uint64_t n)
{
    uint64_t size = (uint64_t)float_size(t->dtype);
    for (uint64_t i = 0; i < n; i++)
        out[i] = st_value(t->data + size * (at + i), t->dtype);
}

void st_prefetch(const struct st_tensor *t, uint64_t at, uint64_t n)
{
    uint64_t size = (uint64_t)float_size(t->dtype);
    mem_prefetch((void *)(uintptr_t)(t->data + size * at), (size_t)(size * n));
}

void st_drop(const struct st_tensor *t, uint64_t at, uint64_t n)
{
    uint64_t size = (uint64_t)float_size(t->dtype);
    mem_discard((void *)(uintptr_t)(t->data + size * at), (size_t)(size * n));
}

int st_check_read(const struct st_tensor *t, uint64_t n, struct err *e)
{
    if (!float_size(t->dtype))
        return err_set(e, DS_EFORMAT, "tensor %.120s: unsupported dtype %s", t->name,
                       t->dtype_name);
    if (n != t->items)
        return err_set(e, DS_EFORMAT, "tensor %.120s: %" PRIu64 " values, expected %" PRIu64,
                       t->name, t->items, n);
    return 0;
}

int st_read_f32(const struct st_tensor *t, float *out, uint64_t n, struct err *e)
{
    int rc = st_check_read(t, n, e);
    if (rc == 0)
        st_take_f32(t, 0, out, n);
    return rc;
}

int st_read_f64(const struct st_tensor *t, double *out, uint64_t n, struct err *e)
{
    int rc = st_check_read(t, n, e);
    if (rc == 0)
        st_take_f64(t, 0, out, n);
    return rc;
}

uint64_t st_nonfinite(const struct st_tensor *t)
{
    int size = float_size(t->dtype);
    uint64_t bad = 0;
    if (size)
        for (uint64_t i = 0; i < t->items; i++)
            bad += !isfinite(st_value(t->data + (uint64_t)size * i, t->dtype));
    return bad;
}

uint16_t st_half_of(float x)
{
    uint32_t u, size;
    memcpy(&u, &x, sizeof u);
    uint16_t sign = (uint16_t)(u >> 16 & 0x8000);
    size = u & 0x7fffffff;
    if (size > 0x7f800000)
        return sign | 0x7e00;
    if (size >= 0x477ff000) /* half way to the first unrepresentable value */
        return sign | 0x7c00;
    if (size < 0x38800000) /* subnormal, or zero */
        return (uint16_t)(sign | (uint16_t)rintf(fabsf(x) * 0x1p24f));
    size -= 112U << 23;
    return (uint16_t)(sign | (size + 0xfff + (size >> 13 & 1)) >> 13);
}
