/* GGML's block formats: numbers into blocks, blocks into panels, panels into numbers. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/quant_impl.h"

/* A row of blocks as in a file; fp16 is little-endian there.  Q4_K packs its scales and minima of 6 bits in twelve
 * bytes: the first four of each in the low bits of bytes 0..3 and 4..7; of the last four the low halves in bytes
 * 8..11 and the upper two bits on top of the first eight bytes. */
enum { Q8_BYTES = 34, Q4_BYTES = 18, SUPER_BYTES = 144 };

const struct quant_format quant_format[QUANT_KINDS] = {
    [QUANT_Q8_0] = {QUANT_BLOCK, Q8_BYTES},
    [QUANT_Q4_0] = {QUANT_BLOCK, Q4_BYTES},
    [QUANT_Q4_K] = {QUANT_SUPER, SUPER_BYTES},
};

size_t quant_row_bytes(enum quant_kind kind, int C)
{
    if (kind <= QUANT_NONE || kind >= QUANT_KINDS || C <= 0 || C % quant_format[kind].columns != 0)
        return 0;
    return (size_t)(C / quant_format[kind].columns) * (size_t)quant_format[kind].bytes;
}

/* ---- fp16 ---------------------------------------------------------------------------------------- */

float quant_half(uint16_t h)
{
    uint32_t exponent = h >> 10 & 31, fraction = h & 1023;
    float size;
    if (exponent == 0)
        size = ldexpf((float)fraction, -24);
    else if (exponent < 31)
        size = ldexpf((float)(1024 + fraction), (int)exponent - 25);
    else
        size = fraction ? NAN : INFINITY;
    return h >> 15 ? -size : size;
}

uint16_t quant_half_of(float x)
{
    uint16_t sign = signbit(x) ? 0x8000 : 0;
    float size = fabsf(x);
    if (isnan(x))
        return 0x7e00;
    if (size >= 65520) /* half way to the first number that is not there */
        return sign | 0x7c00;
    if (size < 6.103515625e-5F) /* subnormal, or zero */
        return (uint16_t)(sign | (uint16_t)rintf(ldexpf(size, 24)));
    int exponent;
    (void)frexpf(size, &exponent);
    /* 1024 .. 2048; a carry out of the fraction is the next exponent. */
    uint32_t fraction = (uint32_t)rintf(ldexpf(size, 11 - exponent));
    return (uint16_t)(sign | (((uint32_t)(exponent + 13) << 10) + fraction));
}

static uint16_t get16(const uint8_t *p)
{
    return (uint16_t)(p[0] | p[1] << 8);
}

/* Stores a scale and gives what it was rounded to. */
static float put_half(uint8_t *p, float x)
{
    uint16_t h = quant_half_of(x);
    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
    return quant_half(h);
}

/* ---- the twelve bytes of Q4_K --------------------------------------------------------------------- */

static void scales_get(const uint8_t *p, uint8_t s[8], uint8_t m[8])
{
    for (int j = 0; j < 4; j++) {
        s[j] = p[j] & 63;
        m[j] = p[j + 4] & 63;
        s[j + 4] = (uint8_t)((p[j + 8] & 15) | p[j] >> 6 << 4);
        m[j + 4] = (uint8_t)(p[j + 8] >> 4 | p[j + 4] >> 6 << 4);
    }
}

static void scales_put(uint8_t *p, const uint8_t s[8], const uint8_t m[8])
{
    for (int j = 0; j < 4; j++) {
        p[j] = (uint8_t)(s[j] | s[j + 4] >> 4 << 6);
        p[j + 4] = (uint8_t)(m[j] | m[j + 4] >> 4 << 6);
        p[j + 8] = (uint8_t)((s[j + 4] & 15) | (m[j + 4] & 15) << 4);
    }
}

/* ---- numbers into blocks -------------------------------------------------------------------------- */

/* The nearest of 0..most, where per may be anything but a NaN. */
static int nearest(float x, float low, float high)
{
    float q = rintf(x);
    return (int)(q < low ? low : q > high ? high : q);
}

/* Quants are rounded for the scale as it is stored, so that none is off by more than half of it. */
static int encode_q8_0(uint8_t *p, const float *w)
{
    float most = 0;
    for (int i = 0; i < QUANT_BLOCK; i++)
        most = fabsf(w[i]) > most ? fabsf(w[i]) : most;
    float d = put_half(p, most / 127);
    for (int i = 0; i < QUANT_BLOCK; i++)
        p[2 + i] = (uint8_t)(d > 0 ? nearest(w[i] / d, -127, 127) : 0);
    return isfinite(d) ? DS_OK : DS_ERANGE;
}

static int encode_q4_0(uint8_t *p, const float *w)
{
    float most = 0;
    for (int i = 0; i < QUANT_BLOCK; i++)
        most = fabsf(w[i]) > fabsf(most) ? w[i] : most;
    float d = put_half(p, most / -8);
    for (int i = 0; i < QUANT_BLOCK / 2; i++) {
        int low = d != 0 ? nearest(w[i] / d, -8, 7) + 8 : 8;
        int high = d != 0 ? nearest(w[i + 16] / d, -8, 7) + 8 : 8;
        p[2 + i] = (uint8_t)(low | high << 4);
    }
    return isfinite(d) ? DS_OK : DS_ERANGE;
}

/* Weighted least squares for scale and minimum, the quants given; 0 when all quants are equal. */
static int fit(const float *w, const float *weight, const int *q, float *scale, float *minimum)
{
    double s = 0, sq = 0, sqq = 0, sw = 0, swq = 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        double g = (double)weight[i], x = (double)w[i];
        s += g;
        sq += g * q[i];
        sqq += g * q[i] * q[i];
        sw += g * x;
        swq += g * q[i] * x;
    }
    double det = s * sqq - sq * sq;
    if (!(det > 0))
        return 0;
    double a = (s * swq - sq * sw) / det, m = (sq * swq - sqq * sw) / det;
    if (m < 0) { /* a minimum below zero cannot be stored */
        m = 0;
        a = swq / sqq;
    }
    *scale = (float)a;
    *minimum = (float)m;
    return a > 0;
}

static double fit_loss(const float *w, const float *weight, float scale, float minimum)
{
    double loss = 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        int q = nearest((w[i] + minimum) / scale, 0, 15);
        double off = (double)(scale * (float)q - minimum - w[i]);
        loss += (double)weight[i] * off * off;
    }
    return loss;
}

/* From the range of the weights, step widths around range / 15 are tried; each gives quants, these the best scale
 * and minimum.  Large weights count more: they carry more of the result. */
void quant_fit_block(const float *w, float *scale, float *minimum)
{
    enum { STEPS = 20 };
    float weight[QUANT_BLOCK], low = 0, high = w[0];
    double squares = 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
        squares += (double)w[i] * (double)w[i];
    }
    *scale = 0;
    *minimum = -low;
    float range = high - low;
    if (!(range > 0) || !isfinite(range))
        return;
    float typical = (float)sqrt(squares / QUANT_BLOCK);
    for (int i = 0; i < QUANT_BLOCK; i++)
        weight[i] = (typical + fabsf(w[i])) / range;
    *scale = range / 15;
    double best = fit_loss(w, weight, *scale, *minimum);
    for (int step = 0; step <= STEPS; step++) {
        float levels = 14 + 0.1F * (float)step, a = 0, m = 0;
        int q[QUANT_BLOCK];
        for (int i = 0; i < QUANT_BLOCK; i++)
            q[i] = nearest((w[i] - low) / range * levels, 0, 15);
        if (!fit(w, weight, q, &a, &m))
            continue;
        double loss = fit_loss(w, weight, a, m);
        if (loss < best) {
            best = loss;
            *scale = a;
            *minimum = m;
        }
    }
}

static int encode_q4_k(uint8_t *p, const float *w)
{
    float scale[8], minimum[8], most = 0, lowest = 0;
    uint8_t s[8], m[8];
    for (int j = 0; j < 8; j++) {
        quant_fit_block(w + QUANT_BLOCK * j, &scale[j], &minimum[j]);
        most = scale[j] > most ? scale[j] : most;
        lowest = minimum[j] > lowest ? minimum[j] : lowest;
    }
    float d = put_half(p, most / 63), dmin = put_half(p + 2, lowest / 63);
    if (!isfinite(d) || !isfinite(dmin))
        return DS_ERANGE;
    memset(p + 16, 0, 128);
    for (int j = 0; j < 8; j++) {
        s[j] = (uint8_t)(d > 0 ? nearest(scale[j] / d, 0, 63) : 0);
        m[j] = (uint8_t)(dmin > 0 ? nearest(minimum[j] / dmin, 0, 63) : 0);
        float step = d * (float)s[j], from = dmin * (float)m[j];
        for (int i = 0; i < QUANT_BLOCK; i++) {
            int q = step > 0 ? nearest((w[QUANT_BLOCK * j + i] + from) / step, 0, 15) : 0;
            p[16 + QUANT_BLOCK * (j / 2) + i] |= (uint8_t)(q << 4 * (j & 1));
        }
    }
    scales_put(p + 4, s, m);
    return DS_OK;
}

int quant_encode(uint8_t *block, enum quant_kind kind, const real *w)
{
    float f[QUANT_SUPER];
    for (int i = 0; i < quant_format[kind].columns; i++) {
        if (!isfinite(w[i]))
            return DS_ENUMERIC;
        f[i] = (float)w[i];
        if (!isfinite(f[i])) /* a double beyond float */
            return DS_ERANGE;
    }
    if (kind == QUANT_Q8_0)
        return encode_q8_0(block, f);
    return kind == QUANT_Q4_0 ? encode_q4_0(block, f) : encode_q4_k(block, f);
}

int quant_is_sound(enum quant_kind kind, const uint8_t *block)
{
    return isfinite(quant_half(get16(block))) &&
           (kind != QUANT_Q4_K || isfinite(quant_half(get16(block + 2))));
}

/* ---- blocks into panels --------------------------------------------------------------------------- */

static int pair_quants(enum quant_kind kind)
{
    return kind == QUANT_Q8_0 ? Q8_QUANTS : Q4_QUANTS;
}

size_t quant_block_at(enum quant_kind kind, int b)
{
    if (kind == QUANT_Q4_K)
        return (size_t)(b / 8) * SUPER_GROUP;
    return (size_t)(b / 2) * (size_t)(PAIR_SCALES + 2 * pair_quants(kind));
}

size_t quant_panel_bytes(enum quant_kind kind, int C)
{
    int blocks = C / QUANT_BLOCK;
    size_t odd = kind != QUANT_Q4_K && blocks % 2 ? (size_t)(PAIR_SCALES + pair_quants(kind)) : 0;
    return quant_block_at(kind, blocks) + odd;
}

/* Where a block of row r has its scale and its first quants. */
static size_t scale_at(enum quant_kind kind, int b, int r)
{
    return quant_block_at(kind, b) + (size_t)(PAIR_SCALES / 2 * (b & 1) + 2 * r);
}

static size_t quants_at(enum quant_kind kind, int b, int r)
{
    if (kind == QUANT_Q4_K)
        return quant_block_at(kind, b) + (size_t)(SUPER_SCALES + Q4_QUANTS * (b % 8) + 4 * r);
    return quant_block_at(kind, b) + (size_t)(PAIR_SCALES + pair_quants(kind) * (b & 1) + 4 * r);
}

/* Column k of a block, from its first quant. */
static int column(int k)
{
    return k / 4 * 64 + k % 4;
}

static void pack_super(uint8_t *panel, int r, const uint8_t *p, int b)
{
    uint8_t *group = panel + quant_block_at(QUANT_Q4_K, b), s[8], m[8];
    uint16_t d = get16(p), dmin = get16(p + 2);
    memcpy(group + 2 * r, &d, 2);
    memcpy(group + 2 * QUANT_ROWS + 2 * r, &dmin, 2);
    scales_get(p + 4, s, m);
    for (int j = 0; j < 8; j++) {
        uint8_t *to = panel + quants_at(QUANT_Q4_K, b + j, r);
        const uint8_t *from = p + 16 + QUANT_BLOCK * (j / 2);
        group[64 + 32 * j + r] = s[j];
        group[64 + 32 * j + QUANT_ROWS + r] = m[j];
        for (int k = 0; k < 16; k++) {
            int shift = 4 * (j & 1);
            to[column(k)] = (uint8_t)((from[k] >> shift & 15) | (from[k + 16] >> shift & 15) << 4);
        }
    }
}

void quant_pack(uint8_t *panel, enum quant_kind kind, int r, const uint8_t *block, int c)
{
    int b = c / QUANT_BLOCK;
    if (kind == QUANT_Q4_K) {
        pack_super(panel, r, block, b);
        return;
    }
    uint8_t *to = panel + quants_at(kind, b, r);
    uint16_t d = get16(block);
    memcpy(panel + scale_at(kind, b, r), &d, 2);
    for (int k = 0; k < quant_format[kind].bytes - 2; k++)
        to[column(k)] = kind == QUANT_Q8_0 ? block[2 + k] ^ 128 : block[2 + k];
}

/* Products of scale and quant are exact in float, so that only the subtraction of Q4_K rounds. */
static void unpack_block(real *w, enum quant_kind kind, const uint8_t *q, float d, float from)
{
    for (int k = 0; k < QUANT_BLOCK; k++) {
        if (kind == QUANT_Q8_0)
            w[k] = (real)(d * (float)(q[column(k)] - 128));
        else if (kind == QUANT_Q4_0)
            w[k] = (real)(d * (float)((q[column(k % 16)] >> k / 16 * 4 & 15) - 8));
        else
            w[k] = (real)(d * (float)(q[column(k % 16)] >> k / 16 * 4 & 15) - from);
    }
}

void quant_unpack(real *w, enum quant_kind kind, int r, const uint8_t *panel, int C)
{
    for (int b = 0; b < C / QUANT_BLOCK; b++) {
        uint16_t h, hmin;
        float d, from = 0;
        if (kind == QUANT_Q4_K) {
            const uint8_t *group = panel + quant_block_at(kind, b);
            const uint8_t *scale = group + 64 + 32 * (b % 8) + r;
            memcpy(&h, group + 2 * r, 2);
            memcpy(&hmin, group + 2 * QUANT_ROWS + 2 * r, 2);
            d = quant_half(h) * (float)scale[0];
            from = quant_half(hmin) * (float)scale[QUANT_ROWS];
        } else {
            memcpy(&h, panel + scale_at(kind, b, r), 2);
            d = quant_half(h);
        }
        unpack_block(w + b * QUANT_BLOCK, kind, panel + quants_at(kind, b, r), d, from);
    }
}
