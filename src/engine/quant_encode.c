/* Numbers into GGML's blocks. */
#include <math.h>
#include <string.h>

#include "engine/quant_impl.h"

/* Stores a scale and gives what it was rounded to. */
static float put_half(uint8_t *p, float x)
{
    uint16_t h = quant_half_of(x);
    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
    return quant_half(h);
}

/* The nearest of low..high, where x may be anything but a NaN. */
static int nearest(float x, float low, float high)
{
    float q = rintf(x);
    return (int)(q < low ? low : q > high ? high : q);
}

/* ---- blocks of 32 --------------------------------------------------------------------------------- */

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

/* ---- scale and minimum of 32 ---------------------------------------------------------------------- */

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

static double fit_loss(const float *w, const float *weight, float top, float scale, float minimum)
{
    double loss = 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        int q = nearest((w[i] + minimum) / scale, 0, top);
        double off = (double)(scale * (float)q - minimum - w[i]);
        loss += (double)weight[i] * off * off;
    }
    return loss;
}

/* w[i] ~ *scale q[i] - *minimum, both >= 0, q in 0..top.  From the range of the weights, step widths around range / top are
 * tried; each gives quants, these the best scale and minimum.  Large weights count more: they carry more of the result. */
static void fit_block(const float *w, float top, float *scale, float *minimum)
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
    *scale = range / top;
    double best = fit_loss(w, weight, top, *scale, *minimum);
    for (int step = 0; step <= STEPS; step++) {
        float levels = top - 1 + 0.1F * (float)step, a = 0, m = 0;
        int q[QUANT_BLOCK];
        for (int i = 0; i < QUANT_BLOCK; i++)
            q[i] = nearest((w[i] - low) / range * levels, 0, top);
        if (!fit(w, weight, q, &a, &m))
            continue;
        double loss = fit_loss(w, weight, top, a, m);
        if (loss < best) {
            best = loss;
            *scale = a;
            *minimum = m;
        }
    }
}

/* Q4_K (bits 4) and Q5_K (bits 5). */
static int encode_minima(uint8_t *p, const float *w, int bits)
{
    float scale[8], minimum[8], most = 0, lowest = 0, top = (float)((1 << bits) - 1);
    uint8_t s[8], m[8], *high = p + 16, *low = bits == 5 ? p + 48 : p + 16;
    for (int j = 0; j < 8; j++) {
        fit_block(w + QUANT_BLOCK * j, top, &scale[j], &minimum[j]);
        most = scale[j] > most ? scale[j] : most;
        lowest = minimum[j] > lowest ? minimum[j] : lowest;
    }
    float d = put_half(p, most / 63), dmin = put_half(p + 2, lowest / 63);
    if (!isfinite(d) || !isfinite(dmin))
        return DS_ERANGE;
    memset(p + 16, 0, bits == 5 ? 160 : 128);
    for (int j = 0; j < 8; j++) {
        s[j] = (uint8_t)(d > 0 ? nearest(scale[j] / d, 0, 63) : 0);
        m[j] = (uint8_t)(dmin > 0 ? nearest(minimum[j] / dmin, 0, 63) : 0);
        float step = d * (float)s[j], from = dmin * (float)m[j];
        for (int i = 0; i < QUANT_BLOCK; i++) {
            int q = step > 0 ? nearest((w[QUANT_BLOCK * j + i] + from) / step, 0, top) : 0;
            low[QUANT_BLOCK * (j / 2) + i] |= (uint8_t)((q & 15) << 4 * (j & 1));
            if (bits == 5)
                high[i] |= (uint8_t)(q >> 4 << j);
        }
    }
    quant_scales_put(p + 4, s, m);
    return DS_OK;
}

/* ---- a signed scale of 16 ------------------------------------------------------------------------- */

enum { SIXTEEN = 16 };

/* w[i] ~ scale q[i], q in -32..31.  The largest weight is given -32 and some more and some less than that; each step width
 * gives quants, these the best scale.  Large weights count more. */
static float fit_signed(const float *w)
{
    enum { STEPS = 9 };
    float most = 0, scale;
    double squares = 0, best = (double)INFINITY;
    for (int i = 0; i < SIXTEEN; i++) {
        most = fabsf(w[i]) > fabsf(most) ? w[i] : most;
        squares += (double)w[i] * (double)w[i];
    }
    scale = most / -32;
    if (!isfinite(1 / scale))
        return 0;
    double typical = sqrt(squares / SIXTEEN);
    for (int step = -STEPS; step <= STEPS; step++) {
        float per = -(32 + 0.1F * (float)step) / most;
        double wq = 0, qq = 0, ww = 0;
        for (int i = 0; i < SIXTEEN; i++) {
            double g = typical + fabs((double)w[i]), x = (double)w[i];
            int q = nearest(w[i] * per, -32, 31);
            wq += g * x * q;
            qq += g * q * q;
            ww += g * x * x;
        }
        /* with scale = wq / qq what is left of ww */
        if (qq > 0 && ww - wq * wq / qq < best) {
            best = ww - wq * wq / qq;
            scale = (float)(wq / qq);
        }
    }
    return scale;
}

static int encode_q6_k(uint8_t *p, const float *w)
{
    float scale[SIXTEEN], most = 0;
    for (int j = 0; j < SIXTEEN; j++) {
        scale[j] = fit_signed(w + SIXTEEN * j);
        most = fabsf(scale[j]) > fabsf(most) ? scale[j] : most;
    }
    memset(p, 0, 208);
    float d = put_half(p + 208, most / -128);
    if (!isfinite(d))
        return DS_ERANGE;
    for (int j = 0; j < SIXTEEN; j++) {
        int s = d != 0 ? nearest(scale[j] / d, -128, 127) : 0;
        float step = d * (float)s;
        p[192 + j] = (uint8_t)s;
        for (int k = SIXTEEN * j; k < SIXTEEN * (j + 1); k++) {
            int half = k / 128, group = k % 128 / 32, i = k % 32;
            int q = step != 0 ? nearest(w[k] / step, -32, 31) + 32 : 32;
            p[64 * half + 32 * (group & 1) + i] |= (uint8_t)((q & 15) << 4 * (group / 2));
            p[128 + 32 * half + i] |= (uint8_t)(q >> 4 << 2 * group);
        }
    }
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
    switch (kind) {
    case QUANT_Q8_0: return encode_q8_0(block, f);
    case QUANT_Q4_0: return encode_q4_0(block, f);
    case QUANT_Q6_K: return encode_q6_k(block, f);
    default: return encode_minima(block, f, kind == QUANT_Q5_K ? 5 : 4);
    }
}
