/* Elementary functions that a compiler turns into vector code, and sums in a fixed order.
 *
 * Float build: polynomials fitted here (minimax, float coefficients), no table, no call, no branch; the same bits in
 * vector body and scalar tail and at every vector width (engine/vec.h) because every multiply-add is written out.  Largest errors against double libm,
 * tests/unit/test_vmath.c: v_exp 2 ulp, v_tanh 3 ulp, v_erf 3 ulp, v_sincos 1e-7 absolute for |x| <= 1e6.
 * Double build (gradient checks): libm.
 * NaN in gives NaN out.  v_exp: 0 below -87.33, stays at 2.4e38 above 88.37 and so never gives Inf. */
#ifndef DS_ENGINE_VMATH_H
#define DS_ENGINE_VMATH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "engine/real.h"

/* Before loops that call v_exp and its kin: libm in the double build is not vector code, and clang says so. */
#if REAL_BITS == 32
#define V_SIMD _Pragma("omp simd")
#else
#define V_SIMD
#endif

#if REAL_BITS == 32

/* One rounding where the processor has it, two elsewhere: never a library call. */
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

static inline float v_exp(float x)
{
    const float magic =
        12582912.0F; /* 1.5 * 2^23: adding it rounds to an integer, kept in the low bits */
    float c = x > 88.37F ? 88.37F : x;
    c = c < -87.33F ? -87.33F : c;
    float t = v_fma(c, 1.44269504F, magic), n = t - magic;
    float r =
        v_fma(n, -0.693145752F, c); /* ln 2 in two parts, the first with 16 zero bits behind it */
    r = v_fma(n, -1.42860677e-6F, r);
    float p = 0.001394112F;
    p = v_fma(p, r, 0.00836318123F);
    p = v_fma(p, r, 0.0416663752F);
    p = v_fma(p, r, 0.16666577F);
    p = v_fma(p, r, 0.5F);
    p = v_fma(p * r, r, r) + 1.0F;
    float y = p * v_float_of((int32_t)(((uint32_t)v_bits_of(t) + 127U) << 23));
    return x < -87.33F ? 0.0F : y;
}

static inline float v_tanh(float x)
{
    float a = fabsf(x), s = x * x;
    float p = -0.00601064494F;
    p = v_fma(p, s, 0.0209386691F);
    p = v_fma(p, s, -0.0538388711F);
    p = v_fma(p, s, 0.133326942F);
    p = v_fma(p, s, -0.333333283F);
    float small = v_fma(p * s, x, x);
    float large = 1.0F - 2.0F / (v_exp(2.0F * a) + 1.0F);
    return a < 0.625F ? small : copysignf(large, x);
}

static inline float v_erf(float x)
{
    float a = fabsf(x), s = x * x, t = a > 4.0F ? 4.0F : a;
    float p = -0.000599936325F;
    p = v_fma(p, s, 0.0049953166F);
    p = v_fma(p, s, -0.0267684577F);
    p = v_fma(p, s, 0.112818801F);
    p = v_fma(p, s, -0.376125014F);
    p = v_fma(p, s, 0.12837915F);
    float small = v_fma(p, x, x);
    float q = -1.12314867e-5F; /* log(erfc t) / t */
    q = v_fma(q, t, 0.000322805584F);
    q = v_fma(q, t, -0.00364246573F);
    q = v_fma(q, t, 0.0237620764F);
    q = v_fma(q, t, -0.106236893F);
    q = v_fma(q, t, -0.635151308F);
    q = v_fma(q, t, -0.12864849F);
    float large = 1.0F - v_exp(v_fma(q, t, -t));
    return a < 0.925F ? small : copysignf(large, x);
}

/* The argument is reduced in double, so that large positions keep their phase. */
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

#else

#define v_fma(a, b, c) ((a) * (b) + (c))
static inline double v_exp(double x)
{
    return exp(x);
}
static inline double v_tanh(double x)
{
    return tanh(x);
}
static inline double v_erf(double x)
{
    return erf(x);
}
static inline void v_sincos(double x, double *sine, double *cosine)
{
    *sine = sin(x);
    *cosine = cos(x);
}

#endif

/* Sums run in V_LANES chains, element i in chain i mod V_LANES, folded in halves: the order depends on n alone, and
 * trailing or leading groups of zeros change nothing. */
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

/* The largest element, -Inf when n is 0; NaN elements are passed over. */
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
