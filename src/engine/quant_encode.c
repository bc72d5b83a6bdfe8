/* Quantisation into GGML's block formats. */
#include <math.h>
#include <string.h>

#include "engine/quant_impl.h"

/* Stores a scale as fp16 and returns the rounded value. */
static float put_half(uint8_t *p, float x)
{
    uint16_t h = quant_half_of(x);
    p[0] = (uint8_t)(h & 255);
    p[1] = (uint8_t)(h >> 8);
    return quant_half(h);
}

/* The nearest integer in low..high; x may be anything but NaN. */
static int nearest(float x, float low, float high)
{
    float q = rintf(x);
    return (int)(q < low ? low : q > high ? high : q);
}

/* ---- blocks of 32 ---------------------------------------------------------------------------- */

/* Quants are rounded with the scale as stored, so that none is off by more than half a step. */
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

/* ---- scale and minimum of 32 ----------------------------------------------------------------- */

/* Step widths to try; a loop over them vectorises. */
enum { WIDTHS = 24, PLAIN = WIDTHS - 1 };

/* A block's weights and the parts of the fit that do not depend on its quants. */
struct fitting {
    float w[QUANT_BLOCK], unit[QUANT_BLOCK]; /* unit: (w - low) / range */
    float g[QUANT_BLOCK], gw[QUANT_BLOCK];   /* importance of each weight, and times w */
    float top;                               /* the largest quant */
    double s, sw;                            /* sums of g and gw */
    float scale[WIDTHS], minimum[WIDTHS];
};

static inline float clamped(float q, float low, float high)
{
    q = rintf(q);
    q = q < low ? low : q;
    return q > high ? high : q;
}

/* Weighted least squares from the sums over quants; scale 0 when there is none. */
static void solve(struct fitting *f, int l, double sq, double sqq, double swq)
{
    double det = f->s * sqq - sq * sq;
    double a = (f->s * swq - sq * f->sw) / det, m = (sq * swq - sqq * f->sw) / det;
    if (m < 0) { /* a negative minimum cannot be stored */
        m = 0;
        a = swq / sqq;
    }
    int is_fit = det > 0 && a > 0 && isfinite(1 / (float)a);
    f->scale[l] = is_fit ? (float)a : 0;
    f->minimum[l] = is_fit ? (float)m : 0;
}

/* Each width gives quants, and quants the best scale and minimum; the last width is kept as it
 * is. */
static void fit_widths(struct fitting *f)
{
    float levels[WIDTHS], q1[WIDTHS] = {0}, q2[WIDTHS] = {0}, qw[WIDTHS] = {0};
    for (int l = 0; l < WIDTHS; l++)
        levels[l] = f->top - 1 + 0.1F * (float)l;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        float unit = f->unit[i], g = f->g[i], gw = f->gw[i], top = f->top;
#pragma omp simd
        for (int l = 0; l < WIDTHS; l++) {
            float q = clamped(unit * levels[l], 0, top), gq = g * q;
            q1[l] += gq;
            q2[l] += gq * q;
            qw[l] += gw * q;
        }
    }
    for (int l = 0; l < PLAIN; l++)
        solve(f, l, (double)q1[l], (double)q2[l], (double)qw[l]);
}

/* The width with the smallest error; the last one unless another is better. */
static int best_width(const struct fitting *f)
{
    float per[WIDTHS], loss[WIDTHS] = {0};
    int best = PLAIN;
    for (int l = 0; l < WIDTHS; l++)
        per[l] = f->scale[l] > 0 ? 1 / f->scale[l] : 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        float w = f->w[i], g = f->g[i], top = f->top;
#pragma omp simd
        for (int l = 0; l < WIDTHS; l++) {
            float x = w + f->minimum[l], off = f->scale[l] * clamped(x * per[l], 0, top) - x;
            loss[l] += g * off * off;
        }
    }
    for (int l = 0; l < PLAIN; l++)
        best = f->scale[l] > 0 && loss[l] < loss[best] ? l : best;
    return best;
}

/* Range, and the importance of each weight: higher for large ones, which contribute more to the
 * result. Returns 0 when there is nothing to fit. */
static int fitting_begin(struct fitting *f, const float *w, float top)
{
    float low = 0, high = w[0];
    double squares = 0;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        low = w[i] < low ? w[i] : low;
        high = w[i] > high ? w[i] : high;
        squares += (double)w[i] * (double)w[i];
    }
    float range = high - low, typical = (float)sqrt(squares / QUANT_BLOCK);
    f->top = top;
    f->s = f->sw = 0;
    f->scale[PLAIN] = 0;
    f->minimum[PLAIN] = -low;
    if (!(range > 0) || !isfinite(range) || !isfinite(top / range))
        return 0;
    f->scale[PLAIN] = range / top;
    for (int i = 0; i < QUANT_BLOCK; i++) {
        float g = (typical + fabsf(w[i])) / range;
        f->w[i] = w[i];
        f->unit[i] = (w[i] - low) / range;
        f->g[i] = g;
        f->gw[i] = g * w[i];
        f->s += (double)g;
        f->sw += (double)f->gw[i];
    }
    return 1;
}

/* w[i] ~ *scale q[i] - *minimum, both >= 0, q in 0..top: from the range of the weights, step widths
 * around range / top. */
static void fit_block(const float *w, float top, float *scale, float *minimum)
{
    struct fitting f;
    int best = PLAIN;
    if (fitting_begin(&f, w, top)) {
        fit_widths(&f);
        best = best_width(&f);
    }
    *scale = f.scale[best];
    *minimum = f.minimum[best];
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

/* ---- a signed scale of 16 -------------------------------------------------------------------- */

enum { SIXTEEN = 16 };

/* w[i] ~ scale q[i], q in -32..31.  The largest weight is mapped to -32, and to values slightly
 * above and below; each step width gives quants, and these the best scale.  Large weights count
 * more. */
static float fit_signed(const float *w)
{
    float most = 0, per[WIDTHS], qq[WIDTHS] = {0}, wq[WIDTHS] = {0};
    double squares = 0, best = 0;
    for (int i = 0; i < SIXTEEN; i++) {
        most = fabsf(w[i]) > fabsf(most) ? w[i] : most;
        squares += (double)w[i] * (double)w[i];
    }
    float typical = (float)sqrt(squares / SIXTEEN), scale = most / -32;
    if (!isfinite(1 / scale))
        return 0;
    for (int l = 0; l < WIDTHS; l++)
        per[l] = -(32 + 0.1F * (float)(l - WIDTHS / 2)) / most;
    for (int i = 0; i < SIXTEEN; i++) {
        float x = w[i], g = (typical + fabsf(x)) / fabsf(most), gx = g * (x / fabsf(most));
#pragma omp simd
        for (int l = 0; l < WIDTHS; l++) {
            float q = clamped(x * per[l], -32, 31);
            wq[l] += gx * q;
            qq[l] += g * q * q;
        }
    }
    /* with scale = wq / qq the squared error is sum w^2 - wq^2 / qq */
    for (int l = 0; l < WIDTHS; l++) {
        double a = (double)wq[l], b = (double)qq[l];
        if (b > 0 && a * a / b > best) {
            best = a * a / b;
            scale = (float)(a / b * (double)fabsf(most));
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
        if (!isfinite(f[i])) /* a double that overflows float */
            return DS_ERANGE;
    }
    switch (kind) {
    case QUANT_Q8_0: return encode_q8_0(block, f);
    case QUANT_Q4_0: return encode_q4_0(block, f);
    case QUANT_Q6_K: return encode_q6_k(block, f);
    default: return encode_minima(block, f, kind == QUANT_Q5_K ? 5 : 4);
    }
}

int quant_encode_row(enum quant_kind kind, const real *w, int C, void *blocks)
{
    uint8_t *to = blocks;
    const struct quant_format *f = &quant_format[kind];
    for (int c = 0; c < C; c += f->columns, to += f->bytes) {
        int rc = quant_encode(to, kind, w + c);
        if (rc < 0)
            return rc;
    }
    return 0;
}
