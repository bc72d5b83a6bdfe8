/* The loops of engine/vec.h, written once and compiled for each target.  The including file defines
 * VEC_SET and VEC_NAME, a function available(), and the target of all that follows.
 *
 * Loops are plain C that compilers vectorise.  Two rules keep the bits equal: no product is an
 * operand of an addition except through v_fma, and sums have V_LANES chains whatever the vector
 * width. */
#ifndef DS_ENGINE_KERNELS_VEC_TMPL_H
#define DS_ENGINE_KERNELS_VEC_TMPL_H
#ifdef VEC_SET

#include "engine/vec.h"
#include "engine/vmath.h"

/* For functions called with constant arguments, to get one specialised loop each. */
#define VEC_BODY static inline __attribute__((always_inline))

/* Runs `each` on groups of V_LANES elements and on the rest; l is the lane, at the element. */
#define V_GROUPS(C, each)                                                                          \
    do {                                                                                           \
        size_t first_ = 0;                                                                         \
        for (; first_ + V_LANES <= (C); first_ += V_LANES) {                                       \
            _Pragma("omp simd") for (size_t l = 0; l < V_LANES; l++)                               \
            {                                                                                      \
                size_t at = first_ + l;                                                            \
                each;                                                                              \
            }                                                                                      \
        }                                                                                          \
        for (size_t l = 0; first_ + l < (C); l++) {                                                \
            size_t at = first_ + l;                                                                \
            each;                                                                                  \
        }                                                                                          \
    } while (0)

/* ---- activations ----------------------------------------------------------------------------- */

static void swiglu(real *h, const real *a, const real *b, size_t n)
{
    V_SIMD
    for (size_t i = 0; i < n; i++)
        h[i] = a[i] / (1 + v_exp(-a[i])) * b[i]; /* 6.1 */
}

/* Overwriting starts from zero, so that it has the bits of accumulating onto zeros. */
VEC_BODY void swiglu_back(real *da, real *db, const real *dh, const real *a, const real *b,
                          size_t n, int add, int wants_a, int wants_b)
{
    V_SIMD
    for (size_t i = 0; i < n; i++) {
        real s = 1 / (1 + v_exp(-a[i])), g = dh[i], gb = g * b[i];
        if (wants_a)
            da[i] = v_fma(gb, s * v_fma(a[i], 1 - s, 1), add ? da[i] : 0); /* 6.2 */
        if (wants_b)
            db[i] = v_fma(g, a[i] * s, add ? db[i] : 0); /* 6.3 */
    }
}

static void swiglu_bwd(real *da, real *db, const real *dh, const real *a, const real *b, size_t n,
                       int add)
{
    if (da && db && add)
        swiglu_back(da, db, dh, a, b, n, 1, 1, 1);
    else if (da && db)
        swiglu_back(da, db, dh, a, b, n, 0, 1, 1);
    else if (da)
        swiglu_back(da, db, dh, a, b, n, add, 1, 0);
    else if (db)
        swiglu_back(da, db, dh, a, b, n, add, 0, 1);
}

static void gelu(real *y, const real *x, size_t n)
{
    V_SIMD
    for (size_t i = 0; i < n; i++) {
        real density;
        y[i] = x[i] * v_normal(x[i], &density); /* 7.1 */
    }
}

VEC_BODY void gelu_back(real *dx, const real *dy, const real *x, size_t n, int add)
{
    V_SIMD
    for (size_t i = 0; i < n; i++) {
        real density, cdf = v_normal(x[i], &density);
        dx[i] = v_fma(dy[i], v_fma(x[i], density, cdf), add ? dx[i] : 0); /* 7.2 */
    }
}

static void gelu_bwd(real *dx, const real *dy, const real *x, size_t n, int add)
{
    if (add)
        gelu_back(dx, dy, x, n, 1);
    else
        gelu_back(dx, dy, x, n, 0);
}

/* (1 + tanh u) / 2 is the logistic function of 2 u. */
static const real logistic_in = REAL_C(1.59576912160573071176), cubic = REAL_C(0.044715);

static inline real gelu_logistic(real x)
{
    return v_exp(-logistic_in * v_fma(cubic * x * x, x, x));
}

/* The slope is 0 or 1 from 16 on, where du grows until it overflows. */
static inline real gelu_sloped(real x)
{
    real c = x > V_GELU_MOST ? V_GELU_MOST : x;
    return c < -V_GELU_MOST ? -V_GELU_MOST : c;
}

static void gelu_tanh(real *y, const real *x, size_t n)
{
    V_SIMD
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] / (1 + gelu_logistic(x[i])); /* 7.3 */
}

VEC_BODY void gelu_tanh_back(real *dx, const real *dy, const real *x, size_t n, int add)
{
    V_SIMD
    for (size_t i = 0; i < n; i++) {
        real c = gelu_sloped(x[i]), s = 1 / (1 + gelu_logistic(c));
        real du = logistic_in * v_fma(3 * cubic * c, c, 1);
        real slope = s * v_fma(c * (1 - s), du, 1);
        dx[i] = v_fma(dy[i], slope, add ? dx[i] : 0); /* 7.4 */
    }
}

static void gelu_tanh_bwd(real *dx, const real *dy, const real *x, size_t n, int add)
{
    if (add)
        gelu_tanh_back(dx, dy, x, n, 1);
    else
        gelu_tanh_back(dx, dy, x, n, 0);
}

static void geglu(real *h, const real *a, const real *b, size_t n)
{
    V_SIMD
    for (size_t i = 0; i < n; i++)
        h[i] = a[i] / (1 + gelu_logistic(a[i])) * b[i]; /* 7.5 */
}

VEC_BODY void geglu_back(real *da, real *db, const real *dh, const real *a, const real *b, size_t n,
                         int add, int wants_a, int wants_b)
{
    V_SIMD
    for (size_t i = 0; i < n; i++) {
        real c = gelu_sloped(a[i]), s = 1 / (1 + gelu_logistic(c)), g = dh[i], gb = g * b[i];
        real du = logistic_in * v_fma(3 * cubic * c, c, 1);
        if (wants_a)
            da[i] = v_fma(gb, s * v_fma(c * (1 - s), du, 1), add ? da[i] : 0); /* 7.6 */
        if (wants_b)
            db[i] = v_fma(g, a[i] * s, add ? db[i] : 0);
    }
}

static void geglu_bwd(real *da, real *db, const real *dh, const real *a, const real *b, size_t n,
                      int add)
{
    if (da && db && add)
        geglu_back(da, db, dh, a, b, n, 1, 1, 1);
    else if (da && db)
        geglu_back(da, db, dh, a, b, n, 0, 1, 1);
    else if (da)
        geglu_back(da, db, dh, a, b, n, add, 1, 0);
    else if (db)
        geglu_back(da, db, dh, a, b, n, add, 0, 1);
}

/* ---- exponentials and angles ----------------------------------------------------------------- */

/* Chains in real are short, and summed in double. */
enum { EXP_CHUNK = 512 };

VEC_BODY void exp_sum_body(real *to, const real *x, real top, size_t n, double *sum, double *moment,
                           int keep, int wants_moment)
{
    double total = 0, weighted = 0;
    for (size_t i = 0; i < n; i += EXP_CHUNK) {
        size_t m = n - i < EXP_CHUNK ? n - i : EXP_CHUNK;
        real lane[V_LANES] = {0}, times[V_LANES] = {0};
        const real *from = x + i;
        real *out = keep ? to + i : NULL;
        V_GROUPS(m, real t = from[at] - top; t = t < V_EXP_LEAST ? V_EXP_LEAST : t;
                 real e = v_exp_inside(t); if (keep) out[at] = e; lane[l] += e;
                 if (wants_moment) times[l] = v_fma(e, t, times[l]));
        total += (double)v_fold(lane);
        if (wants_moment)
            weighted += (double)v_fold(times);
    }
    *sum = total;
    if (wants_moment)
        *moment = weighted;
}

static void exp_sum(real *to, const real *x, real top, size_t n, double *sum, double *moment)
{
    if (to && moment)
        exp_sum_body(to, x, top, n, sum, moment, 1, 1);
    else if (to)
        exp_sum_body(to, x, top, n, sum, moment, 1, 0);
    else if (moment)
        exp_sum_body(to, x, top, n, sum, moment, 0, 1);
    else
        exp_sum_body(to, x, top, n, sum, moment, 0, 0);
}

static void exp_scaled(double *to, const real *x, double top, double by, size_t n)
{
    V_SIMD
    for (size_t i = 0; i < n; i++)
        to[i] = v_exp64(((double)x[i] - top) / by);
}

static void angles(real *sine, real *cosine, const real *inv_freq, real pos, real sign, int pairs)
{
    V_SIMD
    for (int i = 0; i < pairs; i++) {
        real s, c;
        v_sincos(pos * inv_freq[i], &s, &c);
        sine[i] = sign * s;
        cosine[i] = c;
    }
}

/* ---- from here on: memory-bound ---------------------------------------------------------- */

#ifdef VEC_STREAM
VEC_STREAM
#endif

/* ---- norms ----------------------------------------------------------------------------------- */

static real sum_of(const real *x, size_t n)
{
    real lane[V_LANES] = {0};
    V_GROUPS(n, lane[l] += x[at]);
    return v_fold(lane);
}

static real dot(const real *x, const real *y, size_t n)
{
    real lane[V_LANES] = {0};
    V_GROUPS(n, lane[l] = v_fma(x[at], y[at], lane[l]));
    return v_fold(lane);
}

/* u = x + f, and the sum of its squares. */
static real add_squares(real *u, const real *x, const real *f, size_t n)
{
    real lane[V_LANES] = {0};
    V_GROUPS(n, real t = x[at] + f[at]; u[at] = t; lane[l] = v_fma(t, t, lane[l]));
    return v_fold(lane);
}

static real add_sum(real *u, const real *x, const real *f, size_t n)
{
    real lane[V_LANES] = {0};
    V_GROUPS(n, real t = x[at] + f[at]; u[at] = t; lane[l] += t);
    return v_fold(lane);
}

static real deviations(const real *x, real mean, size_t n)
{
    real lane[V_LANES] = {0};
    V_GROUPS(n, real t = x[at] - mean; lane[l] = v_fma(t, t, lane[l]));
    return v_fold(lane);
}

static real rms_row(real *y, real *u, const real *x, const real *f, const real *w, size_t C,
                    real eps)
{
    real sum = f ? add_squares(u, x, f, C) : dot(x, x, C);
    real rstd = 1 / sqrt_r(sum / (real)C + eps); /* 3.1 */
    x = f ? u : x;
#pragma omp simd
    for (size_t c = 0; c < C; c++)
        y[c] = x[c] * rstd * w[c];
    return rstd;
}

static real layer_row(real *y, real *mean, real *u, const real *x, const real *f, const real *w,
                      const real *b, size_t C, real eps)
{
    real m = (f ? add_sum(u, x, f, C) : sum_of(x, C)) / (real)C;
    x = f ? u : x;
    real rstd = 1 / sqrt_r(deviations(x, m, C) / (real)C + eps); /* 4.1 */
    *mean = m;
    if (b) {
#pragma omp simd
        for (size_t c = 0; c < C; c++)
            y[c] = v_fma((x[c] - m) * rstd, w[c], b[c]);
    } else {
#pragma omp simd
        for (size_t c = 0; c < C; c++)
            y[c] = (x[c] - m) * rstd * w[c];
    }
    return rstd;
}

static void rms_row_bwd(real *dx, real *dw, const real *dy, const real *x, const real *w, real rstd,
                        size_t C)
{
    if (dx) {
        real lane[V_LANES] = {0};
        V_GROUPS(C, lane[l] = v_fma(w[at] * dy[at], x[at], lane[l]));
        real m = v_fold(lane) / (real)C * rstd * rstd; /* 3.2 */
#pragma omp simd
        for (size_t c = 0; c < C; c++)
            dx[c] = v_fma(rstd, v_fma(-x[c], m, w[c] * dy[c]), dx[c]); /* 3.3 */
    }
    if (dw) {
#pragma omp simd
        for (size_t c = 0; c < C; c++)
            dw[c] = v_fma(dy[c], x[c] * rstd, dw[c]); /* 3.4 */
    }
}

static void layer_row_bwd(real *dx, real *dw, real *db, const real *dy, const real *x,
                          const real *w, real mean, real rstd, size_t C)
{
    if (dx) {
        real g[V_LANES] = {0}, gx[V_LANES] = {0};
        V_GROUPS(C, real t = w[at] * dy[at]; g[l] = v_fma(w[at], dy[at], g[l]);
                 gx[l] = v_fma(t, x[at] - mean, gx[l]));
        real a = v_fold(g) / (real)C, s = v_fold(gx) / (real)C * rstd; /* 4.2 */
        real rs = rstd * s;
#pragma omp simd
        for (size_t c = 0; c < C; c++) { /* 4.3 */
            real t = v_fma(w[c], dy[c], -a);
            dx[c] = v_fma(rstd, v_fma(-rs, x[c] - mean, t), dx[c]);
        }
    }
    if (dw) {
#pragma omp simd
        for (size_t c = 0; c < C; c++) /* 4.4 */
            dw[c] = v_fma(dy[c], (x[c] - mean) * rstd, dw[c]);
    }
    if (db) {
#pragma omp simd
        for (size_t c = 0; c < C; c++)
            db[c] += dy[c];
    }
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

static void rotate_halves(real *x, const real *sine, const real *cosine, int pairs)
{
    real *y = x + pairs;
#pragma omp simd
    for (int i = 0; i < pairs; i++) {
        real a = x[i], b = y[i], as = a * sine[i], bs = b * sine[i];
        x[i] = v_fma(a, cosine[i], -bs);
        y[i] = v_fma(b, cosine[i], as);
    }
}

static void rotate_pairs(real *x, const real *sine, const real *cosine, int pairs)
{
#pragma omp simd
    for (int i = 0; i < pairs; i++) {
        real a = x[2 * i], b = x[2 * i + 1], as = a * sine[i], bs = b * sine[i];
        x[2 * i] = v_fma(a, cosine[i], -bs);
        x[2 * i + 1] = v_fma(b, cosine[i], as);
    }
}

static void rotate(real *x, const real *sine, const real *cosine, int heads, int D, int pairs,
                   int half)
{
    for (int h = 0; h < heads; h++, x += D) {
        if (half)
            rotate_halves(x, sine, cosine, pairs);
        else
            rotate_pairs(x, sine, cosine, pairs);
    }
}

/* ---- elementwise passes ---------------------------------------------------------------------- */

/* The order does not matter for a maximum, so use enough chains to be limited by memory only. */
static real max_of(const real *x, size_t n)
{
    enum { WIDE = 4 * V_LANES };
    real lane[WIDE], top = -INFINITY;
    size_t i = 0;
    for (size_t l = 0; l < WIDE; l++)
        lane[l] = -INFINITY;
    for (; i + WIDE <= n; i += WIDE) {
#pragma omp simd
        for (size_t l = 0; l < WIDE; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    }
    for (; i < n; i++)
        top = x[i] > top ? x[i] : top;
    for (size_t l = 0; l < WIDE; l++)
        top = lane[l] > top ? lane[l] : top;
    return top;
}

static void scale(real *x, real by, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        x[i] *= by;
}

static void cap(real *x, real most, size_t n)
{
    real part = 1 / most;
    V_SIMD
    for (size_t i = 0; i < n; i++)
        x[i] = most * v_tanh(x[i] * part); /* 12.1 */
}

static void cap_bwd(real *d, const real *y, real most, size_t n)
{
    real part = 1 / most;
    V_SIMD
    for (size_t i = 0; i < n; i++) {
        real t = y[i] * part;
        d[i] *= v_fma(-t, t, 1); /* 12.2 */
    }
}

static void axpy(real *y, const real *x, const real *f, real g, size_t n)
{
#pragma omp simd
    for (size_t i = 0; i < n; i++)
        y[i] = v_fma(g, f[i], x[i]);
}

/* A product of two floats is exact in double, so fusing changes nothing. */
static double squares(const real *x, size_t n)
{
    double lane[V_LANES] = {0};
    V_GROUPS(n, lane[l] += (double)x[at] * (double)x[at]);
    for (int half = V_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static void adamw(real *w, real *g, real *m, real *v, const struct vec_adamw *r, size_t n)
{
    const struct vec_adamw k = *r; /* a local copy, which the stores below cannot alias */
#pragma omp simd
    for (size_t i = 0; i < n; i++) {
        real gi = g[i] * k.clip;                           /* 11.1 */
        real mi = v_fma(k.beta1, m[i], k.rest1 * gi);      /* 11.2 */
        real vi = v_fma(k.beta2, v[i], k.rest2 * gi * gi); /* 11.3 */
        real step = k.rate * mi / v_fma(sqrt_r(vi), k.root, k.eps);
        w[i] = v_fma(k.keep, w[i], -step); /* 11.4 */
        m[i] = mi;
        v[i] = vi;
        g[i] = 0;
    }
}

const struct vec_set VEC_SET = {
    .name = VEC_NAME,
    .available = available,
    .swiglu = swiglu,
    .swiglu_bwd = swiglu_bwd,
    .gelu = gelu,
    .gelu_bwd = gelu_bwd,
    .gelu_tanh = gelu_tanh,
    .gelu_tanh_bwd = gelu_tanh_bwd,
    .geglu = geglu,
    .geglu_bwd = geglu_bwd,
    .rms_row = rms_row,
    .layer_row = layer_row,
    .rms_row_bwd = rms_row_bwd,
    .layer_row_bwd = layer_row_bwd,
    .angles = angles,
    .rotate = rotate,
    .max = max_of,
    .exp_sum = exp_sum,
    .exp_scaled = exp_scaled,
    .scale = scale,
    .cap = cap,
    .cap_bwd = cap_bwd,
    .axpy = axpy,
    .dot = dot,
    .squares = squares,
    .adamw = adamw,
};

#endif
#endif
