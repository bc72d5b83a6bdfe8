/* Tensor types of GGUF: their block layouts and dequantisation (io/gguf.h).
 *
 *   Q8_0  32: fp16 d, int8 q[32]                                    w = d q
 *   Q4_0  32: fp16 d, 4-bit q (16 low halves, then 16 high)         w = d (q - 8)
 *   Q4_K 256: fp16 d, dmin; 8 x (6-bit s, m); 4-bit q               w = d s q - dmin m
 *   Q5_K 256: the same with a fifth bit of each q after the scales
 *   Q6_K 256: 4 low bits, 2 high bits, int8 s[16], fp16 d           w = d s (q - 32)
 *   Q4_1  32: fp16 d, m, 4-bit q as in Q4_0                         w = d q + m
 *   Q5_0  32: fp16 d, 32 fifth bits, 4-bit q as in Q4_0             w = d (q - 16)
 *   Q5_1  32: fp16 d, m, 32 fifth bits, 4-bit q as in Q4_0          w = d q + m
 *   Q2_K 256: 16 x (4-bit s, m), 2-bit q, fp16 d, dmin              w = d s q - dmin m
 *   Q3_K 256: 256 third bits, 2-bit q, 16 x 6-bit s, fp16 d         w = d (s - 32) (q - 4)
 *   IQ4_NL 32: fp16 d, 4-bit q as in Q4_0                           w = d value[q]
 *   IQ4_XS 256: fp16 d, 8 x 6-bit s, 4-bit q                        w = d (s - 32) value[q]
 *   MXFP4 32: exponent byte e, 4-bit q as in Q4_0                   w = 2^(e - 128) value[q] */
#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/fs.h"
#include "base/pool.h"
#include "base/str.h"
#include "io/gguf.h"
#include "io/st_dtype.h"

static float half_at(const unsigned char *p)
{
    return st_half((uint16_t)(p[0] | p[1] << 8));
}

static void read_f32(real *w, const unsigned char *p)
{
    w[0] = (real)st_value(p, ST_F32);
}

static void read_f16(real *w, const unsigned char *p)
{
    w[0] = (real)half_at(p);
}

static void read_bf16(real *w, const unsigned char *p)
{
    w[0] = (real)st_value(p, ST_BF16);
}

static void read_q8_0(real *w, const unsigned char *p)
{
    float d = half_at(p);
    for (int i = 0; i < 32; i++)
        w[i] = (real)(d * (float)(int8_t)p[2 + i]);
}

static void read_q4_0(real *w, const unsigned char *p)
{
    float d = half_at(p);
    for (int i = 0; i < 16; i++) {
        w[i] = (real)(d * (float)((p[2 + i] & 15) - 8));
        w[i + 16] = (real)(d * (float)((p[2 + i] >> 4) - 8));
    }
}

/* Scale and minimum j of the twelve bytes that Q4_K and Q5_K share: the last four of each have
 * their upper two bits on top of the first four. */
static void scale_of(const unsigned char *p, int j, float *s, float *m)
{
    if (j < 4) {
        *s = (float)(p[j] & 63);
        *m = (float)(p[j + 4] & 63);
    } else {
        *s = (float)((p[j + 4] & 15) | p[j - 4] >> 6 << 4);
        *m = (float)(p[j + 4] >> 4 | p[j] >> 6 << 4);
    }
}

/* high: 32 bytes with bit j the fifth bit of sub-block j's quants, or NULL. */
static void read_super(real *w, const unsigned char *p, const unsigned char *high,
                       const unsigned char *low)
{
    float d = half_at(p), dmin = half_at(p + 2), s, m;
    for (int j = 0; j < 8; j++) {
        scale_of(p + 4, j, &s, &m);
        float step = d * s, from = dmin * m;
        for (int i = 0; i < 32; i++) {
            int q = low[32 * (j / 2) + i] >> 4 * (j & 1) & 15;
            q |= high ? (high[i] >> j & 1) << 4 : 0;
            w[32 * j + i] = (real)(step * (float)q - from);
        }
    }
}

static void read_q4_k(real *w, const unsigned char *p)
{
    read_super(w, p, NULL, p + 16);
}

static void read_q5_k(real *w, const unsigned char *p)
{
    read_super(w, p, p + 16, p + 48);
}

/* Of each half of 128: four groups of 32, whose low bits share 64 bytes and whose high bits share
 * 32. */
static void read_q6_k(real *w, const unsigned char *p)
{
    float d = half_at(p + 208);
    for (int k = 0; k < 256; k++) {
        int half = k / 128, group = k % 128 / 32, i = k % 32;
        int low = p[64 * half + 32 * (group & 1) + i] >> 4 * (group / 2) & 15;
        int high = p[128 + 32 * half + i] >> 2 * group & 3;
        w[k] = (real)(d * (float)(int8_t)p[192 + k / 16] * (float)((low | high << 4) - 32));
    }
}

/* 32 quants of 4 bits, 16 low halves first, and fifth bits or NULL. */
static void quants_of(int q[32], const unsigned char *low, const unsigned char *fifth)
{
    for (int i = 0; i < 32; i++) {
        q[i] = low[i % 16] >> 4 * (i / 16) & 15;
        q[i] |= fifth ? (fifth[i / 8] >> i % 8 & 1) << 4 : 0;
    }
}

/* w = d q + m, or d (q - offset) without m. */
static void read_small(real *w, const unsigned char *low, const unsigned char *fifth,
                       const unsigned char *p, const unsigned char *minimum, int offset)
{
    float d = half_at(p), m = minimum ? half_at(minimum) : 0;
    int q[32];
    quants_of(q, low, fifth);
    for (int i = 0; i < 32; i++) {
        float v = d * (float)(q[i] - offset); /* exact: 11 times 5 bits */
        w[i] = (real)(minimum ? v + m : v);
    }
}

static void read_q4_1(real *w, const unsigned char *p)
{
    read_small(w, p + 4, NULL, p, p + 2, 0);
}

static void read_q5_0(real *w, const unsigned char *p)
{
    read_small(w, p + 6, p + 2, p, NULL, 16);
}

static void read_q5_1(real *w, const unsigned char *p)
{
    read_small(w, p + 8, p + 4, p, p + 2, 0);
}

/* 2 bits of item k: of each half of 128, four groups of 32 that share 32 bytes. */
static int low_of(const unsigned char *p, int k)
{
    return p[32 * (k / 128) + k % 32] >> 2 * (k % 128 / 32) & 3;
}

static void read_q2_k(real *w, const unsigned char *p)
{
    float d = half_at(p + 80), dmin = half_at(p + 82);
    for (int k = 0; k < 256; k++) {
        float step = d * (float)(p[k / 16] & 15), from = dmin * (float)(p[k / 16] >> 4);
        w[k] = (real)(step * (float)low_of(p + 16, k) - from);
    }
}

/* Scales: the lower four bits of the first eight, of the last eight, then the upper two bits. */
static void read_q3_k(real *w, const unsigned char *p)
{
    const unsigned char *scale = p + 96;
    float d = half_at(p + 108);
    for (int k = 0; k < 256; k++) {
        int j = k / 16, low = scale[j % 8] >> 4 * (j / 8) & 15,
            high = scale[8 + j % 4] >> j / 4 * 2 & 3;
        int q = low_of(p + 32, k) | (p[k % 32] >> k / 32 & 1) << 2;
        w[k] = (real)(d * (float)((low | high << 4) - 32) * (float)(q - 4));
    }
}

static const float iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};

static void read_values(real *w, const unsigned char *p, float d, const float value[16])
{
    int q[32];
    quants_of(q, p, NULL);
    for (int i = 0; i < 32; i++)
        w[i] = (real)(d * value[q[i]]);
}

static void read_iq4_nl(real *w, const unsigned char *p)
{
    read_values(w, p + 2, half_at(p), iq4);
}

static void read_iq4_xs(real *w, const unsigned char *p)
{
    float d = half_at(p);
    for (int j = 0; j < 8; j++) {
        int low = p[4 + j / 2] >> 4 * (j % 2) & 15, high = (p[2] | p[3] << 8) >> 2 * j & 3;
        read_values(w + 32 * j, p + 8 + 16 * j, d * (float)((low | high << 4) - 32), iq4);
    }
}

/* The values of E2M1 doubled, times half of 2^(e - 127), which may be subnormal. */
static void read_mxfp4(real *w, const unsigned char *p)
{
    static const float value[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    read_values(w, p + 1, ldexpf(1, p[0] - 128), value);
}

static const struct type {
    const char *name;
    int items, bytes;
    void (*read)(real *w, const unsigned char *block);
} types[] = {
    [GGUF_T_F32] = {"F32", 1, 4, read_f32},
    [GGUF_T_F16] = {"F16", 1, 2, read_f16},
    [GGUF_T_Q4_0] = {"Q4_0", 32, 18, read_q4_0},
    [GGUF_T_Q4_1] = {"Q4_1", 32, 20, read_q4_1},
    [GGUF_T_Q5_0] = {"Q5_0", 32, 22, read_q5_0},
    [GGUF_T_Q5_1] = {"Q5_1", 32, 24, read_q5_1},
    [GGUF_T_Q8_0] = {"Q8_0", 32, 34, read_q8_0},
    [9] = {"Q8_1", 32, 36, NULL},
    [GGUF_T_Q2_K] = {"Q2_K", 256, 84, read_q2_k},
    [GGUF_T_Q3_K] = {"Q3_K", 256, 110, read_q3_k},
    [GGUF_T_Q4_K] = {"Q4_K", 256, 144, read_q4_k},
    [GGUF_T_Q5_K] = {"Q5_K", 256, 176, read_q5_k},
    [GGUF_T_Q6_K] = {"Q6_K", 256, 210, read_q6_k},
    [15] = {"Q8_K", 256, 292, NULL},
    [16] = {"IQ2_XXS", 256, 66, NULL},
    [17] = {"IQ2_XS", 256, 74, NULL},
    [18] = {"IQ3_XXS", 256, 98, NULL},
    [19] = {"IQ1_S", 256, 50, NULL},
    [GGUF_T_IQ4_NL] = {"IQ4_NL", 32, 18, read_iq4_nl},
    [21] = {"IQ3_S", 256, 110, NULL},
    [22] = {"IQ2_S", 256, 82, NULL},
    [GGUF_T_IQ4_XS] = {"IQ4_XS", 256, 136, read_iq4_xs},
    [24] = {"I8", 1, 1, NULL},
    [25] = {"I16", 1, 2, NULL},
    [26] = {"I32", 1, 4, NULL},
    [27] = {"I64", 1, 8, NULL},
    [28] = {"F64", 1, 8, NULL},
    [29] = {"IQ1_M", 256, 56, NULL},
    [GGUF_T_BF16] = {"BF16", 1, 2, read_bf16},
    [34] = {"TQ1_0", 256, 54, NULL},
    [35] = {"TQ2_0", 256, 66, NULL},
    [GGUF_T_MXFP4] = {"MXFP4", 32, 17, read_mxfp4},
};

static const struct type *type_of(uint32_t type)
{
    return type < DS_LEN(types) && types[type].name ? &types[type] : NULL;
}

int gguf_type_block(uint32_t type, int *items, int *bytes)
{
    const struct type *t = type_of(type);
    if (!t)
        return 0;
    *items = t->items;
    *bytes = t->bytes;
    return 1;
}

const char *gguf_type_name(uint32_t type)
{
    const struct type *t = type_of(type);
    return t ? t->name : NULL;
}

int gguf_type_known(uint32_t type)
{
    const struct type *t = type_of(type);
    return t && t->read;
}

/* ---- parts ----------------------------------------------------------------------------------- */

void gguf_take(const void *tensor, uint64_t at, uint64_t n, real *out)
{
    const struct gguf_tensor *t = tensor;
    const struct type *type = type_of(t->type);
    uint64_t items = (uint64_t)type->items, blocks = n / items;
    const unsigned char *from = t->data + at / items * (uint64_t)type->bytes;
    BUG_IF(!type->read || at % items || n % items, "%s: values %" PRIu64 " to %" PRIu64, t->name,
           at, at + n);
#if REAL_BITS == 32 && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    if (t->type == GGUF_T_F32) {
        fs_map_copy(out, from, (size_t)n * sizeof *out);
        return;
    }
    if (t->type == GGUF_T_BF16) {
        st_copy_bf16(out, from, n);
        return;
    }
#endif
    for (uint64_t b = 0; b < blocks; b++)
        type->read(out + b * items, from + b * (uint64_t)type->bytes);
}

/* ---- whole tensors --------------------------------------------------------------------------- */

enum { PART_ITEMS = 1 << 16 };

struct reading {
    const struct type *type;
    const unsigned char *from;
    real *to;
    uint64_t blocks, per_part;
};

static void read_part(void *ctx, int task, int worker)
{
    const struct reading *r = ctx;
    uint64_t b = (uint64_t)task * r->per_part, end = b + r->per_part;
    (void)worker;
    for (end = end < r->blocks ? end : r->blocks; b < end; b++)
        r->type->read(r->to + b * (uint64_t)r->type->items, r->from + b * (uint64_t)r->type->bytes);
}

int gguf_check_type(const struct gguf_tensor *t, struct err *e)
{
    struct str known = {0};
    if (gguf_type_known(t->type))
        return 0;
    for (uint32_t i = 0; i < DS_LEN(types); i++)
        if (gguf_type_known(i))
            str_addf(&known, "%s%s", known.len ? ", " : "", types[i].name);
    err_set(e, DS_EFORMAT, "tensor %s: unsupported type %s: expected one of %s", t->name,
            t->type_name, str_text(&known));
    str_release(&known);
    return DS_EFORMAT;
}

int gguf_read(const struct gguf_tensor *t, real *out, uint64_t n, struct err *e)
{
    const struct type *type = type_of(t->type);
    int rc = gguf_check_type(t, e);
    if (rc < 0)
        return rc;
    if (n != t->items)
        return err_set(e, DS_EFORMAT, "tensor %s: %" PRIu64 " values, expected %" PRIu64, t->name,
                       t->items, n);
    uint64_t blocks = n / (uint64_t)type->items, per_part = PART_ITEMS / (uint64_t)type->items;
    struct reading r = {type, t->data, out, blocks, per_part};
    pool_run((int)((blocks + per_part - 1) / per_part), read_part, &r);
    return 0;
}
