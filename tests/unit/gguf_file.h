/* Writes GGUF files for tests: metadata and tensors in the order of the calls. */
#ifndef DS_TESTS_GGUF_FILE_H
#define DS_TESTS_GGUF_FILE_H

#include "base/str.h"
#include "io/gguf.h"
#include "t.h"

struct gguf_file {
    struct str meta, info, data;
    uint64_t n_meta, n;
    uint64_t align; /* 0: 32, the default */
};

static inline void gf_uint(struct str *s, uint64_t v, int n)
{
    for (int i = 0; i < n; i++)
        str_add_char(s, (char)(v >> 8 * i & 255));
}

static inline void gf_text(struct str *s, const char *text)
{
    gf_uint(s, strlen(text), 8);
    str_add_bytes(s, text, strlen(text));
}

static inline void gf_raw(struct gguf_file *f, const char *key, uint32_t kind, const void *p,
                          size_t n)
{
    gf_text(&f->meta, key);
    gf_uint(&f->meta, kind, 4);
    str_add_bytes(&f->meta, p, n);
    f->n_meta++;
}

static inline void gf_string(struct gguf_file *f, const char *key, const char *v)
{
    struct str s = {0};
    gf_text(&s, v);
    gf_raw(f, key, GGUF_STRING, s.p, s.len);
    str_release(&s);
}

static inline void gf_u32(struct gguf_file *f, const char *key, uint32_t v)
{
    struct str s = {0};
    gf_uint(&s, v, 4);
    gf_raw(f, key, GGUF_U32, s.p, 4);
    str_release(&s);
}

static inline void gf_u16(struct gguf_file *f, const char *key, unsigned v)
{
    struct str s = {0};
    gf_uint(&s, v, 2);
    gf_raw(f, key, GGUF_U16, s.p, 2);
    str_release(&s);
}

static inline void gf_f32(struct gguf_file *f, const char *key, float v)
{
    uint32_t bits;
    memcpy(&bits, &v, 4);
    struct str s = {0};
    gf_uint(&s, bits, 4);
    gf_raw(f, key, GGUF_F32, s.p, 4);
    str_release(&s);
}

static inline void gf_strings(struct gguf_file *f, const char *key, const char *const *v, size_t n)
{
    struct str s = {0};
    gf_uint(&s, GGUF_STRING, 4);
    gf_uint(&s, n, 8);
    for (size_t i = 0; i < n; i++)
        gf_text(&s, v[i]);
    gf_raw(f, key, GGUF_ARRAY, s.p, s.len);
    str_release(&s);
}

/* cols 0: a vector.  The file stores the dimensions in reverse order. */
static inline void gf_info(struct gguf_file *f, const char *name, uint32_t type, uint64_t rows,
                           uint64_t cols, uint64_t offset)
{
    gf_text(&f->info, name);
    gf_uint(&f->info, cols ? 2 : 1, 4);
    if (cols)
        gf_uint(&f->info, cols, 8);
    gf_uint(&f->info, rows, 8);
    gf_uint(&f->info, type, 4);
    gf_uint(&f->info, offset, 8);
    f->n++;
}

static inline void gf_tensor(struct gguf_file *f, const char *name, uint32_t type, uint64_t rows,
                             uint64_t cols, const void *p, size_t bytes)
{
    uint64_t align = f->align ? f->align : 32;
    while (f->data.len % align != 0)
        str_add_char(&f->data, 0);
    gf_info(f, name, type, rows, cols, f->data.len);
    str_add_bytes(&f->data, p, bytes);
}

/* The file as bytes; the caller releases *out.  f is empty then. */
static inline void gf_bytes(struct gguf_file *f, struct str *out)
{
    uint64_t align = f->align ? f->align : 32;
    str_add(out, "GGUF");
    gf_uint(out, 3, 4);
    gf_uint(out, f->n, 8);
    gf_uint(out, f->n_meta, 8);
    str_add_bytes(out, f->meta.p, f->meta.len);
    str_add_bytes(out, f->info.p, f->info.len);
    while (out->len % align != 0)
        str_add_char(out, 0);
    str_add_bytes(out, f->data.p, f->data.len);
    str_release(&f->meta);
    str_release(&f->info);
    str_release(&f->data);
    *f = (struct gguf_file){0};
}

static inline const char *gf_put_as(const char *name, const char *p, size_t n)
{
    static char dir[300], path[512];
    if (!dir[0])
        snprintf(dir, sizeof dir, "%s", t_tmpdir());
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *out = fopen(path, "wb");
    t_true(out && fwrite(p, 1, n, out) == n);
    fclose(out);
    return path;
}

static inline const char *gf_put(const char *p, size_t n)
{
    return gf_put_as("x.gguf", p, n);
}

/* Writes the file and resets f. */
static inline const char *gf_write_as(const char *name, struct gguf_file *f)
{
    struct str all = {0};
    gf_bytes(f, &all);
    const char *path = gf_put_as(name, all.p, all.len);
    str_release(&all);
    return path;
}

static inline const char *gf_write(struct gguf_file *f)
{
    return gf_write_as("x.gguf", f);
}

/* Blocks of any type: random bytes, except scales, which are fp16 around +-2^-10. */
static inline unsigned char *gf_blocks(uint32_t type, size_t blocks, uint64_t seed)
{
    int items, bytes;
    t_true(gguf_type_block(type, &items, &bytes));
    size_t n = blocks * (size_t)bytes;
    unsigned char *p = malloc(n);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 6364136223846793005U + 1442695040888963407U;
        p[i] = (unsigned char)(seed >> 56);
    }
    for (size_t b = 0; b < blocks; b++) {
        unsigned char *q = p + b * (size_t)bytes;
        int at = type == GGUF_T_Q6_K   ? 208
                 : type == GGUF_T_Q3_K ? 108
                 : type == GGUF_T_Q2_K ? 80
                 : type == GGUF_T_F32  ? 2
                                       : 0;
        if (type == GGUF_T_MXFP4)
            q[0] = (unsigned char)(110 + q[0] % 16);
        else if (type == GGUF_T_F32 || type == GGUF_T_BF16)
            q[at + 1] = (unsigned char)((q[at + 1] & 0x80) | 0x3d);
        else
            q[at + 1] = (unsigned char)((q[at + 1] & 0x80) | 0x14);
        if (type == GGUF_T_Q4_K || type == GGUF_T_Q5_K || type == GGUF_T_Q4_1 ||
            type == GGUF_T_Q5_1 || type == GGUF_T_Q2_K)
            q[at + 3] = (unsigned char)((q[at + 3] & 0x80) | 0x14);
    }
    return p;
}

static inline double gf_half(const unsigned char *p)
{
    int h = p[0] | p[1] << 8, e = h >> 10 & 31, f = h & 1023;
    double v = e ? ldexp(1024 + f, e - 25) : ldexp(f, -24);
    return h >> 15 ? -v : v;
}

/* The six bits j of scale (which 0) or minimum (1), unpacked as in llama.cpp: from three words. */
static inline int gf_six(const unsigned char *p, int which, int j)
{
    uint32_t word[3], mask = 0x3f3f3f3f, low = 0x0f0f0f0f, top = 0x03030303, take[4];
    for (int i = 0; i < 3; i++)
        word[i] = (uint32_t)p[4 * i] | (uint32_t)p[4 * i + 1] << 8 | (uint32_t)p[4 * i + 2] << 16 |
                  (uint32_t)p[4 * i + 3] << 24;
    take[0] = word[0] & mask;
    take[1] = (word[2] & low) | ((word[0] >> 6 & top) << 4);
    take[2] = word[1] & mask;
    take[3] = (word[2] >> 4 & low) | ((word[1] >> 6 & top) << 4);
    return (int)(take[2 * which + j / 4] >> 8 * (j % 4) & 255);
}

/* Item i of the types of 2 and 3 bits, and of those with 32 quants of 4 or 5 in halves of bytes. */
static inline double gf_low(uint32_t type, const unsigned char *p, int i)
{
    const unsigned char *qs = p + (type == GGUF_T_Q3_K ? 32 : 16) + i / 128 * 32;
    int q = qs[i % 32] / (1 << 2 * (i % 128 / 32)) % 4, g = i / 16;
    if (type == GGUF_T_Q2_K)
        return gf_half(p + 80) * (p[g] % 16) * q - gf_half(p + 82) * (p[g] / 16);
    int s = (g < 8 ? p[96 + g] % 16 : p[88 + g] / 16) + p[104 + g % 4] / (1 << g / 4 * 2) % 4 * 16;
    q -= p[i % 32] & 1 << i / 32 ? 0 : 4;
    return gf_half(p + 108) * (s - 32) * q;
}

static inline double gf_small(uint32_t type, const unsigned char *p, int i)
{
    static const int iq4[] = {-127, -104, -83, -65, -49, -35, -22, -10,
                              1,    13,   25,  38,  53,  69,  89,  113};
    static const double fp4[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    int has_fifth = type == GGUF_T_Q5_0 || type == GGUF_T_Q5_1;
    int is_affine = type == GGUF_T_Q4_1 || type == GGUF_T_Q5_1;
    int at = type == GGUF_T_MXFP4 ? 1 : 2 + 2 * is_affine;
    int b = p[at + 4 * has_fifth + i % 16], q = i < 16 ? b % 16 : b / 16;
    if (has_fifth && (p[at + i / 8] & 1 << i % 8))
        q += 16;
    if (type == GGUF_T_MXFP4)
        return ldexp(q < 8 ? fp4[q] : -fp4[q - 8], p[0] - 127);
    if (type == GGUF_T_IQ4_NL)
        return gf_half(p) * iq4[q];
    return is_affine ? gf_half(p) * q + gf_half(p + 2) : gf_half(p) * (q - 16);
}

/* Item k of a row of blocks, from the formats' published layouts, one item at a time and in double. */
static inline double gf_item(uint32_t type, const unsigned char *p, size_t k)
{
    int items, bytes;
    t_true(gguf_type_block(type, &items, &bytes));
    p += k / (size_t)items * (size_t)bytes;
    int i = (int)(k % (size_t)items);
    if (type == GGUF_T_F32 || type == GGUF_T_BF16) {
        uint32_t bits = type == GGUF_T_F32 ? (uint32_t)p[3] << 24 | (uint32_t)p[2] << 16 |
                                                 (uint32_t)p[1] << 8 | (uint32_t)p[0]
                                           : (uint32_t)p[1] << 24 | (uint32_t)p[0] << 16;
        double size = ldexp((double)((bits & 0x7fffff) | 0x800000), (int)(bits >> 23 & 255) - 150);
        return bits >> 31 ? -size : size;
    }
    if (type == GGUF_T_F16)
        return gf_half(p);
    if (type == GGUF_T_Q8_0)
        return gf_half(p) * (p[2 + i] < 128 ? p[2 + i] : p[2 + i] - 256);
    if (type == GGUF_T_Q4_0)
        return gf_half(p) * ((i < 16 ? p[2 + i] % 16 : p[2 + i - 16] / 16) - 8);
    if (type == GGUF_T_Q6_K) {
        const unsigned char *ql = p + i / 128 * 64, *qh = p + 128 + i / 128 * 32, *sc = p + 192;
        int r = i % 128, l = r % 32, q = 0, s = sc[i / 16];
        switch (r / 32) {
        case 0: q = ql[l] % 16 + qh[l] % 4 * 16; break;
        case 1: q = ql[l + 32] % 16 + qh[l] / 4 % 4 * 16; break;
        case 2: q = ql[l] / 16 + qh[l] / 16 % 4 * 16; break;
        default: q = ql[l + 32] / 16 + qh[l] / 64 * 16; break;
        }
        return gf_half(p + 208) * (s < 128 ? s : s - 256) * (q - 32);
    }
    if (type == GGUF_T_Q2_K || type == GGUF_T_Q3_K)
        return gf_low(type, p, i);
    if (items == 32)
        return gf_small(type, p, i);
    if (type == GGUF_T_IQ4_XS) { /* as IQ4_NL of scale 1 */
        unsigned char block[18] = {0, 0x3c};
        int j = i / 32,
            s = p[4 + j / 2] / (j % 2 ? 16 : 1) % 16 + p[2 + j / 4] / (1 << 2 * (j % 4)) % 4 * 16;
        memcpy(block + 2, p + 8 + 16 * j, 16);
        return gf_half(p) * (s - 32) * gf_small(GGUF_T_IQ4_NL, block, i % 32);
    }
    const unsigned char *qs = p + (type == GGUF_T_Q5_K ? 48 : 16) + i / 64 * 32;
    int q = i % 64 < 32 ? qs[i % 32] % 16 : qs[i % 32] / 16;
    if (type == GGUF_T_Q5_K && (p[16 + i % 32] & 1 << i / 32))
        q += 16;
    return gf_half(p) * gf_six(p + 4, 0, i / 32) * q - gf_half(p + 2) * gf_six(p + 4, 1, i / 32);
}

static const uint32_t gf_types[] = {GGUF_T_F32,  GGUF_T_F16,    GGUF_T_BF16,   GGUF_T_Q8_0,
                                    GGUF_T_Q4_0, GGUF_T_Q4_K,   GGUF_T_Q5_K,   GGUF_T_Q6_K,
                                    GGUF_T_Q4_1, GGUF_T_Q5_0,   GGUF_T_Q5_1,   GGUF_T_Q2_K,
                                    GGUF_T_Q3_K, GGUF_T_IQ4_NL, GGUF_T_IQ4_XS, GGUF_T_MXFP4};

#endif
