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
    if (kind == QUANT_Q6_K)
        halves_round(out);
    else if (quant_is_super(kind))
        out->dsum = out->d * (float)sum;
    else
        out->start = kind == QUANT_Q8_0 ? -128 * sum : -8 * sum;
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

typedef void dot_fn(int32_t sum[QUANT_ROWS], const uint8_t *w, const int8_t *x);

static void panel_pairs(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows,
                        dot_fn *dot, int quants)
{
    for (int b = 0; b < blocks; b++, x += rows) {
        const uint8_t *group = w + (size_t)(b / 2) * (size_t)(PAIR_SCALES + 2 * quants);
        float d[QUANT_ROWS];
        halves(d, group + PAIR_SCALES / 2 * (b & 1));
        for (int n = 0; n < rows; n++) {
            int32_t sum[QUANT_ROWS];
            for (int r = 0; r < QUANT_ROWS; r++)
                sum[r] = x[n].start;
            dot(sum, group + PAIR_SCALES + quants * (b & 1), x[n].q);
            float *a = acc + n * QUANT_ROWS;
            for (int r = 0; r < QUANT_ROWS; r++)
                a[r] = fmaf(d[r] * x[n].d, (float)sum[r], a[r]);
        }
    }
}

static void panel_q8_0(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    panel_pairs(acc, w, x, blocks, rows, dot_q8, Q8_QUANTS);
}

static void panel_q4_0(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    panel_pairs(acc, w, x, blocks, rows, dot_q4, Q4_QUANTS);
}

/* Formats with minima: one row of x times one group of 256 columns. */
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

static void panel_q4_k(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    for (int b = 0; b < blocks; b += 8, w += Q4_SUPER, x += 8 * rows)
        for (int n = 0; n < rows; n++)
            minima_row(acc + n * QUANT_ROWS, w, x + n, rows, dot_q4, Q4_QUANTS);
}

static void panel_q5_k(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    for (int b = 0; b < blocks; b += 8, w += Q5_SUPER, x += 8 * rows)
        for (int n = 0; n < rows; n++)
            minima_row(acc + n * QUANT_ROWS, w, x + n, rows, dot_q5, Q5_QUANTS);
}

/* The same without minima, but with a scale per half of a block. */
static void signed_row(float *acc, const uint8_t *w, const struct quant_x *x, int rows)
{
    float d[QUANT_ROWS], a[QUANT_ROWS] = {0};
    halves(d, w);
    for (int j = 0; j < 8; j++, x += rows) {
        const uint8_t *scale = w + 64 + 32 * j;
        int32_t sum[2][QUANT_ROWS] = {{0}};
        dot_q6(sum[0], sum[1], w + SUPER_SCALES + Q6_QUANTS * j, x->q);
        for (int r = 0; r < QUANT_ROWS; r++) {
            int32_t first = (sum[0][r] + 32 * x->minus[0]) * (int8_t)scale[2 * r];
            int32_t second = (sum[1][r] + 32 * x->minus[1]) * (int8_t)scale[2 * r + 1];
            a[r] = fmaf((float)(first + second), x->d, a[r]);
        }
    }
    for (int r = 0; r < QUANT_ROWS; r++)
        acc[r] = fmaf(d[r], a[r], acc[r]);
}

static void panel_q6_k(float *acc, const uint8_t *w, const struct quant_x *x, int blocks, int rows)
{
    for (int b = 0; b < blocks; b += 8, w += Q6_SUPER, x += 8 * rows)
        for (int n = 0; n < rows; n++)
            signed_row(acc + n * QUANT_ROWS, w, x + n, rows);
}

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
              [QUANT_Q6_K] = panel_q6_k},
};
