/* Element types of safetensors, and conversion of their values to floats. */
#include "io/st_dtype.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/mem.h"
#include "base/str.h"

static const struct {
    const char *name;
    int bits;
    enum st_dtype dtype;
} dtypes[] = {
    {"F64", 64, ST_F64},          {"F32", 32, ST_F32},      {"F16", 16, ST_F16},
    {"BF16", 16, ST_BF16},        {"I64", 64, ST_I64},      {"I32", 32, ST_I32},
    {"I16", 16, ST_I16},          {"I8", 8, ST_I8},         {"U8", 8, ST_U8},
    {"BOOL", 8, ST_BOOL},         {"U64", 64, ST_OTHER},    {"U32", 32, ST_OTHER},
    {"U16", 16, ST_OTHER},        {"C64", 64, ST_OTHER},    {"F8_E4M3", 8, ST_F8_E4M3},
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

/* Four bits of exponent (bias 7), three of fraction; no infinity, 0x7f is NaN. */
static float f8_e4m3(unsigned char b)
{
    uint32_t size = (uint32_t)(b & 0x7f) << 20;
    float x = size == 0x7f << 20 ? NAN : float_of(size) * 0x1p120f;
    return b >> 7 ? -x : x;
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
    case ST_F8_E4M3: return (double)f8_e4m3(p[0]);
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
    case ST_F8_E4M3: return 1;
    default: return 0;
    }
}

/* ---- scaled matrices ---- */

enum { SCALE_BLOCK = 128 };

static uint64_t blocks_of(uint64_t n)
{
    return n / SCALE_BLOCK + (n % SCALE_BLOCK != 0);
}

static int shapes_error(const struct st_tensor *t, const struct st_tensor *scale, struct err *e)
{
    struct str have = {0};
    for (int i = 0; i < scale->rank; i++)
        str_addf(&have, "%s%" PRIu64, i ? ", " : "", scale->shape[i]);
    err_set(e, DS_EFORMAT,
            "tensor %.120s: shape [%s], expected one value, one a row or [%" PRIu64 ", %" PRIu64
            "] for a matrix of [%" PRIu64 ", %" PRIu64 "] in F8_E4M3",
            scale->name, str_text(&have), blocks_of(t->shape[0]), blocks_of(t->shape[1]),
            t->shape[0], t->shape[1]);
    str_release(&have);
    return DS_EFORMAT;
}

int st_set_scale(struct st_tensor *t, const struct st_tensor *scale, struct err *e)
{
    const uint64_t *shape = scale->shape;
    uint64_t rows = t->shape[0], columns = t->shape[1];
    if (t->dtype != ST_F8_E4M3 || t->rank != 2)
        return err_set(e, DS_EFORMAT, "tensor %.120s: rank %d, expected a matrix in F8_E4M3",
                       t->name, t->rank);
    if (!float_size(scale->dtype) || scale->dtype == ST_F8_E4M3)
        return err_set(e, DS_EFORMAT, "tensor %.120s: unsupported dtype %s for a scale",
                       scale->name, scale->dtype_name);
    if (scale->items == 1) {
        t->block[0] = rows;
        t->block[1] = columns;
    } else if (scale->items == rows && scale->rank > 0 && shape[0] == rows) {
        t->block[0] = 1;
        t->block[1] = columns;
    } else if (scale->rank == 2 && shape[0] == blocks_of(rows) && shape[1] == blocks_of(columns)) {
        t->block[0] = t->block[1] = SCALE_BLOCK;
    } else {
        return shapes_error(t, scale, e);
    }
    t->scale = scale;
    return 0;
}

/* Values that share a scale at a time: from `at` on in a row, at most n of them. */
static uint64_t scaled_run(const struct st_tensor *t, uint64_t at, uint64_t n, double *scale)
{
    uint64_t C = t->shape[1], row = at / C, column = at % C, across = t->block[1];
    uint64_t per_row = (C + across - 1) / across, left = across - column % across;
    uint64_t k = row / t->block[0] * per_row + column / across;
    left = left < C - column ? left : C - column;
    *scale = st_value(t->scale->data + (uint64_t)float_size(t->scale->dtype) * k, t->scale->dtype);
    return left < n ? left : n;
}

static void take_scaled_f32(const struct st_tensor *t, uint64_t at, float *out, uint64_t n)
{
    double scale;
    for (uint64_t k; n > 0; at += k, out += k, n -= k) {
        k = scaled_run(t, at, n, &scale);
        for (uint64_t i = 0; i < k; i++)
            out[i] = f8_e4m3(t->data[at + i]) * (float)scale;
    }
}

static void take_scaled_f64(const struct st_tensor *t, uint64_t at, double *out, uint64_t n)
{
    double scale;
    for (uint64_t k; n > 0; at += k, out += k, n -= k) {
        k = scaled_run(t, at, n, &scale);
        for (uint64_t i = 0; i < k; i++)
            out[i] = (double)f8_e4m3(t->data[at + i]) * scale;
    }
}

/* ---- reading ---- */

void st_copy_bf16(float *out, const unsigned char *from, uint64_t n)
{
    uint16_t part[1 << 14]; /* stays in the L1 cache */
    for (uint64_t k; n > 0; from += k * sizeof *part, out += k, n -= k) {
        k = n < DS_LEN(part) ? n : DS_LEN(part);
        fs_map_copy(part, from, (size_t)k * sizeof *part);
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
        for (uint64_t i = 0; i < k; i++)
            part[i] = (uint16_t)(part[i] << 8 | part[i] >> 8);
#endif
#pragma omp simd
        for (uint64_t i = 0; i < k; i++) {
            uint32_t bits = (uint32_t)part[i] << 16;
            memcpy(out + i, &bits, sizeof bits);
        }
    }
}

void st_take_f32(const struct st_tensor *t, uint64_t at, float *out, uint64_t n)
{
    const unsigned char *p = t->data + (uint64_t)float_size(t->dtype) * at;
    switch (t->dtype) {
    case ST_F32: fs_map_copy(out, p, (size_t)(n * sizeof *out));
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
        for (uint64_t i = 0; i < n; i++)
            out[i] = float_of((uint32_t)le((const unsigned char *)(out + i), 4));
#endif
        break;
    case ST_BF16: st_copy_bf16(out, p, n); break;
    case ST_F16:
        for (uint64_t i = 0; i < n; i++)
            out[i] = st_half((uint16_t)le(p + 2 * i, 2));
        break;
    case ST_F8_E4M3: take_scaled_f32(t, at, out, n); break;
    default:
        for (uint64_t i = 0; i < n; i++)
            out[i] = (float)st_value(p + 8 * i, ST_F64);
        break;
    }
}

void st_take_f64(const struct st_tensor *t, uint64_t at, double *out, uint64_t n)
{
    uint64_t size = (uint64_t)float_size(t->dtype);
    if (t->dtype == ST_F8_E4M3)
        take_scaled_f64(t, at, out, n);
    else
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
    if (t->dtype == ST_F8_E4M3 && !t->scale)
        return err_set(e, DS_EFORMAT,
                       "tensor %.120s: F8_E4M3 without a scale: expected weight_scale_inv or "
                       "weight_scale next to it",
                       t->name);
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
