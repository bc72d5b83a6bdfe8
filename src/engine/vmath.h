/* Elementary functions that compilers can vectorise, and sums in a fixed order.
 *
 * Float build: minimax polynomials with float coefficients, no table, call or branch; the same bits
 * in vector body and scalar tail and at every vector width (engine/vec.h), because every
 * multiply-add is written out. Largest errors against double libm, tests/unit/test_vmath.c: v_exp 2
 * ulp; v_normal 1e-7 absolute, 2 ulp for x >= 0 and a hundredth of the value from -5; v_sincos
 * 1.5e-7 absolute for |x| <= 1e6. Double build (gradient checks): libm. NaN in gives NaN out.
 * v_exp: 0 below -86.99, stays at 2.4e38 above 88.37 and so never gives Inf, never subnormal. */
#ifndef DS_ENGINE_VMATH_H
#define DS_ENGINE_VMATH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/real.h"

/* For loops that call v_exp etc.: the double build calls libm, and clang would warn that it cannot
 * vectorise. */
#if REAL_BITS == 32
#define V_SIMD _Pragma("omp simd")
#else
#define V_SIMD
#endif

#if REAL_BITS == 32

/* One rounding where the CPU has a fused multiply-add, else two: never a library call. */
#if defined(__FMA__) || defined(V_HAS_FMA) || defined(__ARM_FEATURE_FMA)
#define v_fma(a, b, c) fmaf(a, b, c)
#define v_fma64(a, b, c) fma(a, b, c)
#else
#define v_fma(a, b, c) ((a) * (b) + (c))
#define v_fma64(a, b, c) ((a) * (b) + (c))
#endif

static inline float v_float_of(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline int32_t v_bits_of(float x)
{
    int32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Bounds are variables in memory: gcc 12 compiles a comparison with a variable to a minimum
 * instruction, with a constant to two instructions or more (a fifth of v_exp). */
extern const struct v_bounds {
    float exp_most, exp_least;     /* 88.37, -87.33: beyond these v_exp is constant */
    float normal_exp, normal_poly; /* 13.2, where exp(-t^2/2) is 0; 5 */
    float gelu_most;               /* 16, beyond which the slope of the tanh GELU is 0 or 1 */
} v_bound;
#define V_EXP_LEAST v_bound.exp_least
#define V_GELU_MOST v_bound.gelu_most

/* exp(n ln 2 + r): 2 exp(r) by polynomial, times 2^(n - 1) made from bits, which is 0 at n = -126.
 * So no result is subnormal, and the last multiplication is exact. */
static inline float v_exp_inside(float x) /* -87.33 <= x <= 88.37, or NaN */
{
    /* 1.5 * 2^23 + 126: adding it rounds to an integer and leaves the exponent in the low bits */
    const float magic = 12583038.0F;
    float t = v_fma(x, 1.44269504F, magic), n = t - magic;
    float r =
        v_fma(n, -0.693145752F, x); /* ln 2 in two parts, the first with 16 trailing zero bits */
    r = v_fma(n, -1.42860677e-6F, r);
    float p = 0.002788224F;
    p = v_fma(p, r, 0.0167263625F);
    p = v_fma(p, r, 0.0833327505F);
    p = v_fma(p, r, 0.33333154F);
    p = v_fma(p, r, 1.0F);
    p = v_fma(p, r, 2.0F);
    p = v_fma(p, r, 2.0F);
    return p * v_float_of((int32_t)((uint32_t)v_bits_of(t) << 23));
}

static inline float v_exp(float x)
{
    float c = x > v_bound.exp_most ? v_bound.exp_most : x;
    return v_exp_inside(c < v_bound.exp_least ? v_bound.exp_least : c);
}

/* The standard normal distribution: Phi(x), and its density in *density.  Phi(-t) = exp(-t^2/2)
 * P(t) for t >= 0; above 5, P is constant, which does not matter next to the exponential. */
static inline float v_normal(float x, float *density)
{
    float t = fabsf(x);
    t = t > v_bound.normal_exp ? v_bound.normal_exp : t;
    float e = v_exp_inside(-0.5F * t * t);
    t = t > v_bound.normal_poly ? v_bound.normal_poly : t;
    float p = -2.84129982e-07F;
    p = v_fma(p, t, 7.12338169e-06F);
    p = v_fma(p, t, -8.01583592e-05F);
    p = v_fma(p, t, 0.000543547852F);
    p = v_fma(p, t, -0.00253684446F);
    p = v_fma(p, t, 0.00891522877F);
    p = v_fma(p, t, -0.0253791772F);
    p = v_fma(p, t, 0.0618648827F);
    p = v_fma(p, t, -0.132784307F);
    p = v_fma(p, t, 0.249968648F);
    p = v_fma(p, t, -0.398940325F);
    p = v_fma(p, t, 0.49999997F);
    *density = 0.398942280F * e;
    return x > 0 ? v_fma(-e, p, 1.0F) : e * p;
}

/* Near 0 a polynomial in x^2, as 1 - exp(-2|x|) has few digits there. */
static inline float v_tanh(float x)
{
    float t = v_exp(-2.0F * fabsf(x)), far = copysignf((1.0F - t) / (1.0F + t), x), s = x * x;
    float p = v_fma(-5.852186e-3F, s, 2.0753643e-2F);
    p = v_fma(p, s, -5.376871e-2F);
    p = v_fma(p, s, 0.13331689F);
    p = v_fma(p, s, -0.33333284F);
    float near = v_fma(p * s, x, x);
    return fabsf(x) < 0.6F ? near : far;
}

/* Argument reduction in double, so that large positions keep their phase. */
static inline void v_sincos(float x, float *sine, float *cosine)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    double t = v_fma64((double)x, 0.63661977236758134308, magic), n = t - magic;
    float r = (float)v_fma64(n, -1.57079632679489661923, (double)x), s = r * r;
    int32_t quadrant = (int32_t)n;
    float a = v_fma(-0.000195879585F, s, 0.00833274877F);
    a = v_fma(a, s, -0.166666647F);
    a = v_fma(a * s, r, r);
    float b = v_fma(2.45479901e-5F, s, -0.00138883034F);
    b = v_fma(b, s, 0.0416666647F);
    b = v_fma(b * s, s, v_fma(-0.5F, s, 1.0F));
    float p = quadrant & 1 ? b : a, q = quadrant & 1 ? a : b;
    *sine = quadrant & 2 ? -p : p;
    *cosine = (quadrant + 1) & 2 ? -q : q;
}

/* exp(x) for x <= 0, in double: 1 ulp; exactly 1 at 0, 0 below -708, never subnormal. */
static inline double v_exp64(double x)
{
    const double magic = 6755399441055744.0; /* 1.5 * 2^52 */
    double c = x < -708.0 ? -708.0 : x, t = v_fma64(c, 1.44269504088896340736, magic),
           n = t - magic;
    double r = v_fma64(n, -6.93147180369123816490e-01, c), p = 1.0 / 6227020800;
    int64_t bits;
    r = v_fma64(n, -1.90821492927058770002e-10, r);
    p = v_fma64(p, r, 1.0 / 479001600); /* 1/12!, ..., 1/2! */
    p = v_fma64(p, r, 1.0 / 39916800);
    p = v_fma64(p, r, 1.0 / 3628800);
    p = v_fma64(p, r, 1.0 / 362880);
    p = v_fma64(p, r, 1.0 / 40320);
    p = v_fma64(p, r, 1.0 / 5040);
    p = v_fma64(p, r, 1.0 / 720);
    p = v_fma64(p, r, 1.0 / 120);
    p = v_fma64(p, r, 1.0 / 24);
    p = v_fma64(p, r, 1.0 / 6);
    p = v_fma64(p, r, 0.5);
    p = v_fma64(p * r, r, r) + 1.0;
    memcpy(&bits, &t, sizeof bits);
    bits = (int64_t)(((uint64_t)bits + 1023) << 52);
    memcpy(&t, &bits, sizeof t);
    return x < -708.0 ? 0.0 : p * t;
}

#else

#define v_fma(a, b, c) ((a) * (b) + (c))
#define V_EXP_LEAST (-1000.0)
#define V_GELU_MOST 16.0
static inline double v_exp64(double x)
{
    return exp(x);
}
static inline double v_exp_inside(double x)
{
    return exp(x);
}
static inline double v_exp(double x)
{
    return exp(x);
}
static inline double v_tanh(double x)
{
    return tanh(x);
}
static inline double v_normal(double x, double *density)
{
    *density = 0.39894228040143267794 * exp(-0.5 * x * x);
    return 0.5 * erfc(-0.70710678118654752440 * x);
}
static inline void v_sincos(double x, double *sine, double *cosine)
{
    *sine = sin(x);
    *cosine = cos(x);
}

#endif

/* Sums run in V_LANES chains, element i in chain i mod V_LANES, then folded in halves: the order
 * depends on n alone, and leading or trailing groups of zeros change nothing. */
enum { V_LANES = 16 };

static inline real v_fold(real *lane)
{
    for (int half = V_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] += lane[l + half];
    return lane[0];
}

static inline real v_sum(const real *x, size_t n)
{
    real lane[V_LANES] = {0};
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
#pragma omp simd
        for (size_t l = 0; l < V_LANES; l++)
            lane[l] += x[i + l];
    for (size_t l = 0; i + l < n; l++)
        lane[l] += x[i + l];
    return v_fold(lane);
}

static inline real v_dot(const real *x, const real *y, size_t n)
{
    real lane[V_LANES] = {0};
    size_t i = 0;
    for (; i + V_LANES <= n; i += V_LANES)
#pragma omp simd
        for (size_t l = 0; l < V_LANES; l++)
            lane[l] = v_fma(x[i + l], y[i + l], lane[l]);
    for (size_t l = 0; i + l < n; l++)
        lane[l] = v_fma(x[i + l], y[i + l], lane[l]);
    return v_fold(lane);
}

/* The maximum, -Inf when n is 0; ignores NaN. */
static inline real v_max(const real *x, size_t n)
{
    real lane[V_LANES];
    size_t i = 0;
    for (size_t l = 0; l < V_LANES; l++)
        lane[l] = -INFINITY;
    for (; i + V_LANES <= n; i += V_LANES)
#pragma omp simd
        for (size_t l = 0; l < V_LANES; l++)
            lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (size_t l = 0; i + l < n; l++)
        lane[l] = x[i + l] > lane[l] ? x[i + l] : lane[l];
    for (int half = V_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++)
            lane[l] = lane[l + half] > lane[l] ? lane[l + half] : lane[l];
    return lane[0];
}

#endif
