/* Quantised weights in plain C: the reference that other kernels match to the bit, and the kernel
 * of all other CPUs.  Multiply-adds are fmaf, so that no fusing is left to the compiler. */
#include <float.h>
#include <math.h>
#include <string.h>

#include "engine/quant_impl.h"

static void halves_round(struct quant_x *x)
{
    int sum[2] = {0, 0};
    for (int i = 0; i < QUANT_BLOCK; i++)
        sum[i / 16] += x->q[i];
    x->minus[0] = (int16_t)-sum[0];
    x->minus[1] = (int16_t)-sum[1];
}

static void round_block(struct quant_x *out, const real *x, enum quant_kind kind)
{
    float v[QUANT_BLOCK], most = 0;
    int finite = 1, sum = 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        v[i] = (float)x[i];
        finite &= fabsf(v[i]) <= FLT_MAX;
        most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
    }
    memset(out, 0, sizeof *out);
    if (finite && most >= 1e-30F) { /* below, 127 / most is not accurate */
        float per = 127 / most;
        out->d = most / 127;
        for (int i = 0; i < QUANT_BLOCK; i++)
            sum += out->q[i] = (int8_t)rintf(v[i] * per);
    } else if (!finite) {
        out->d = NAN;
    }
    const struct quant_format *f = &quant_format[kind];
    if (f->sums == SUMS_HALVES)
        halves_round(out);
    else if (f->sums == SUMS_SCALED)
        out->dsum = out->d * (float)sum;
    else
        out->start = -f->offset * sum;
}

static void round_row(struct quant_x *out, const real *x, int blocks, int step,
                      enum quant_kind kind)
{
    for (int b = 0; b < blocks; b++)
        round_block(out + (size_t)b * (size_t)step, x + b * QUANT_BLOCK, kind);
}

static void halves(float f[QUANT_ROWS], const uint8_t *p)
{
    uint16_t h[QUANT_ROWS];
    memcpy(h, p, sizeof h);
    for (int r = 0; r < QUANT_ROWS; r++)
        f[r] = quant_half(h[r]);
}

/* sum (16) += the dot products of one block. */
static void dot_q8(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x)
{
    for (int k = 0; k < QUANT_BLOCK; k += 4, w += 64)
        for (int r = 0; r < QUANT_ROWS; r++)
            for (int i = 0; i < 4; i++)
                sum[r] += w[4 * r + i] * x[k + i];
}

static void dot_q4(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x)
{
    for (int k = 0; k < QUANT_BLOCK / 2; k += 4, w += 64)
        for (int r = 0; r < QUANT_ROWS; r++)
            for (int i = 0; i < 4; i++)
                sum[r] += (w[4 * r + i] & 15) * x[k + i] + (w[4 * r + i] >> 4) * x[k + 16 + i];
}

static void dot_q5(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x)
{
    const uint8_t *high = w + Q4_QUANTS;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 64; i++) {
            int first = (w[64 * k + i] & 15) | (high[i] >> k & 1) << 4;
            int second = w[64 * k + i] >> 4 | (high[i] >> (k + 4) & 1) << 4;
            sum[i / 4] += first * x[4 * k + i % 4] + second * x[16 + 4 * k + i % 4];
        }
}

/* Quants that select a value, which is stored plus 128. */
static void dot_values(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x,
                       const int8_t *value)
{
    for (int k = 0; k < QUANT_BLOCK / 2; k += 4, w += 64)
        for (int i = 0; i < 64; i++)
            sum[i / 4] += (value[w[i] & 15] + 128) * x[k + i % 4] +
                          (value[w[i] >> 4] + 128) * x[k + 16 + i % 4];
}

static void dot_iq4(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x)
{
    dot_values(sum, w, x, quant_iq4_value);
}

static void dot_mxfp4(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x)
{
    dot_values(sum, w, x, quant_mxfp4_value);
}

/* The same for each half of the columns. */
static void dot_q6(int32_t first[QUANT_ROWS], int32_t second[QUANT_ROWS], const uint8_t *w,
                   const int8_t *x)
{
    const uint8_t *high = w + Q4_QUANTS;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 64; i++) {
            int a = (w[64 * k + i] & 15) | (high[i] >> 2 * k & 3) << 4;
            int b = w[64 * k + i] >> 4 | (high[64 + i] >> 2 * k & 3) << 4;
            first[i / 4] += a * x[4 * k + i % 4];
            second[i / 4] += b * x[16 + 4 * k + i % 4];
        }
}

static void dot_q2(int32_t first[QUANT_ROWS], int32_t second[QUANT_ROWS], const uint8_t *w,
                   const int8_t *x)
{
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 64; i++) {
            first[i / 4] += (w[i] >> 2 * k & 3) * x[4 * k + i % 4];
            second[i / 4] += (w[64 + i] >> 2 * k & 3) * x[16 + 4 * k + i % 4];
        }
}

static void dot_q3(int32_t first[QUANT_ROWS], int32_t second[QUANT_ROWS], const uint8_t *w,
                   const int8_t *x)
{
    const uint8_t *third = w + Q2_QUANTS;
    for (int k = 0; k < 4; k++)
        for (int i = 0; i < 64; i++) {
            int a = (w[i] >> 2 * k & 3) | (third[i] >> k & 1) << 2;
            int b = (w[64 + i] >> 2 * k & 3) | (third[i] >> (k + 4) & 1) << 2;
            first[i / 4] += a * x[4 * k + i % 4];
            second[i / 4] += b * x[16 + 4 * k + i % 4];
        }
}

typedef void dot_fn(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x);
typedef void halves_fn(int32_t first[QUANT_ROWS], int32_t second[QUANT_ROWS], const uint8_t *w,
                       const int8_t *x);

/* ---- a scale of 32 --------------------------------------------------------------------------- */

static void panel_small(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows,
                        enum quant_kind kind, dot_fn *dot)
{
    const struct quant_format *f = &quant_format[kind];
    for (int b = 0; b < blocks; b++, x += rows) {
        const uint8_t *group = w + quant_group_at(kind, b), *q = w + quant_quants_at(kind, b);
        int at = b % f->group, has_minimum = f->sums == SUMS_SCALED;
        float d[QUANT_ROWS], m[QUANT_ROWS];
        if (kind != QUANT_MXFP4)
            halves(d, group + 2 * QUANT_ROWS * at);
        for (int r = 0; r < QUANT_ROWS && kind == QUANT_MXFP4; r++)
            d[r] = quant_e8m0(group[QUANT_ROWS * at + r]);
        if (has_minimum)
            halves(m, group + 2 * QUANT_ROWS);
        for (int n = 0; n < rows; n++) {
            int32_t sum[QUANT_ROWS];
            for (int r = 0; r < QUANT_ROWS; r++)
                sum[r] = has_minimum ? 0 : x[n].start;
            dot(sum, q, x[n].q);
            float *a = acc + n * QUANT_ROWS;
            for (int r = 0; r < QUANT_ROWS; r++)
                a[r] = fmaf(d[r] * x[n].d, (float)sum[r], a[r]);
            for (int r = 0; r < QUANT_ROWS && has_minimum; r++)
                a[r] = fmaf(m[r], x[n].dsum, a[r]);
        }
    }
}

#define SMALL(name, kind, dot)                                                                     \
    static void panel_##name(float *acc, const uint8_t *w, const struct quant_x *x, int blocks,    \
                             int rows)                                                             \
    {                                                                                              \
        panel_small(acc, w, x, blocks, rows, kind, dot);                                           \
    }
SMALL(q8_0, QUANT_Q8_0, dot_q8)
SMALL(q4_0, QUANT_Q4_0, dot_q4)
SMALL(q4_1, QUANT_Q4_1, dot_q4)
SMALL(q5_0, QUANT_Q5_0, dot_q5)
SMALL(q5_1, QUANT_Q5_1, dot_q5)
SMALL(iq4_nl, QUANT_IQ4_NL, dot_iq4)
SMALL(mxfp4, QUANT_MXFP4, dot_mxfp4)

/* ---- groups of 256 columns ------------------------------------------------------------------- */

/* One row of x times one group, by format: with minima, */
static void minima_row(float *acc, const uint8_t *w, const struct quant_x *x, int rows, dot_fn *dot,
                       int quants)
{
    float d[QUANT_ROWS], dmin[QUANT_ROWS], a[QUANT_ROWS] = {0}, m[QUANT_ROWS] = {0};
    halves(d, w);
    halves(dmin, w + 2 * QUANT_ROWS);
    for (int j = 0; j < 8; j++, x += rows) {
        const uint8_t *scale = w + 64 + 32 * j;
        int32_t sum[QUANT_ROWS] = {0};
        dot(sum, w + SUPER_SCALES + quants * j, x->q);
        for (int r = 0; r < QUANT_ROWS; r++) {
            a[r] = fmaf((float)(sum[r] * scale[r]), x->d, a[r]);
            m[r] = fmaf((float)scale[QUANT_ROWS + r], x->dsum, m[r]);
        }
    }
    for (int r = 0; r < QUANT_ROWS; r++)
        acc[r] = fmaf(-dmin[r], m[r], fmaf(d[r], a[r], acc[r]));
}

/* without minima, but a signed scale per half of a block, */
static void signed_row(float *acc, const uint8_t *w, const struct quant_x *x, int rows,
                       halves_fn *dot, int quants, int offset)
{
    float d[QUANT_ROWS], a[QUANT_ROWS] = {0};
    halves(d, w);
    for (int j = 0; j < 8; j++, x += rows) {
        const uint8_t *scale = w + 64 + 32 * j;
        int32_t sum[2][QUANT_ROWS] = {{0}};
        dot(sum[0], sum[1], w + SUPER_SCALES + quants * j, x->q);
        for (int r = 0; r < QUANT_ROWS; r++) {
            int32_t first = (sum[0][r] + offset * x->minus[0]) * (int8_t)scale[2 * r];
            int32_t second = (sum[1][r] + offset * x->minus[1]) * (int8_t)scale[2 * r + 1];
            a[r] = fmaf((float)(first + second), x->d, a[r]);
        }
    }
    for (int r = 0; r < QUANT_ROWS; r++)
        acc[r] = fmaf(d[r], a[r], acc[r]);
}

/* with scale and minimum per half, */
static void halves_row(float *acc, const uint8_t *w, const struct quant_x *x, int rows)
{
    float d[QUANT_ROWS], dmin[QUANT_ROWS], a[QUANT_ROWS] = {0}, m[QUANT_ROWS] = {0};
    halves(d, w);
    halves(dmin, w + 2 * QUANT_ROWS);
    for (int j = 0; j < 8; j++, x += rows) {
        const uint8_t *scale = w + 64 + 32 * j;
        int32_t sum[2][QUANT_ROWS] = {{0}};
        dot_q2(sum[0], sum[1], w + SUPER_SCALES + Q2_QUANTS * j, x->q);
        for (int r = 0; r < QUANT_ROWS; r++) {
            uint8_t s = scale[2 * r], t = scale[2 * r + 1];
            int32_t minus = (s >> 4) * x->minus[0] + (t >> 4) * x->minus[1];
            a[r] = fmaf((float)(sum[0][r] * (s & 15) + sum[1][r] * (t & 15)), x->d, a[r]);
            m[r] = fmaf((float)minus, x->d, m[r]);
        }
    }
    for (int r = 0; r < QUANT_ROWS; r++)
        acc[r] = fmaf(dmin[r], m[r], fmaf(d[r], a[r], acc[r]));
}

/* and with a signed scale per block. */
static void values_row(float *acc, const uint8_t *w, const struct quant_x *x, int rows)
{
    float d[QUANT_ROWS], a[QUANT_ROWS] = {0};
    halves(d, w);
    for (int j = 0; j < 8; j++, x += rows) {
        const uint8_t *scale = w + 64 + QUANT_ROWS * j;
        int32_t sum[QUANT_ROWS];
        for (int r = 0; r < QUANT_ROWS; r++)
            sum[r] = x->start;
        dot_iq4(sum, w + IQ4_SCALES + Q4_QUANTS * j, x->q);
        for (int r = 0; r < QUANT_ROWS; r++)
            a[r] = fmaf((float)(sum[r] * (int8_t)scale[r]), x->d, a[r]);
    }
    for (int r = 0; r < QUANT_ROWS; r++)
        acc[r] = fmaf(d[r], a[r], acc[r]);
}

#define SUPER(name, bytes, row, ...)                                                               \
    static void panel_##name(float *acc, const uint8_t *w, const struct quant_x *x, int blocks,    \
                             int rows)                                                             \
    {                                                                                              \
        for (int b = 0; b < blocks; b += 8, w += (bytes), x += 8 * rows)                           \
            for (int n = 0; n < rows; n++)                                                         \
                row(acc + n * QUANT_ROWS, w, x + n, __VA_ARGS__);                                  \
    }
SUPER(q4_k, Q4_SUPER, minima_row, rows, dot_q4, Q4_QUANTS)
SUPER(q5_k, Q5_SUPER, minima_row, rows, dot_q5, Q5_QUANTS)
SUPER(q6_k, Q6_SUPER, signed_row, rows, dot_q6, Q6_QUANTS, 32)
SUPER(q3_k, Q3_SUPER, signed_row, rows, dot_q3, Q3_QUANTS, 4)
SUPER(q2_k, Q2_SUPER, halves_row, rows)
SUPER(iq4_xs, IQ4_SUPER, values_row, rows)

static int available(void)
{
    return 1;
}

const struct quant_kernels quant_ref = {
    .name = "ref",
    .available = available,
    .round = round_row,
    .panel = {[QUANT_Q8_0] = panel_q8_0,
              [QUANT_Q4_0] = panel_q4_0,
              [QUANT_Q4_K] = panel_q4_k,
              [QUANT_Q5_K] = panel_q5_k,
              [QUANT_Q6_K] = panel_q6_k,
              [QUANT_Q4_1] = panel_q4_1,
              [QUANT_Q5_0] = panel_q5_0,
              [QUANT_Q5_1] = panel_q5_1,
              [QUANT_Q2_K] = panel_q2_k,
              [QUANT_Q3_K] = panel_q3_k,
              [QUANT_IQ4_NL] = panel_iq4_nl,
              [QUANT_IQ4_XS] = panel_iq4_xs,
              [QUANT_MXFP4] = panel_mxfp4},
};
