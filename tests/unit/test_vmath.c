/* The vector functions against double libm, over the whole range of floats in steps. */
#include "engine/vmath.h"
#include "t.h"

/* Error in ulps of the float nearest to the true value. */
static double ulps(float got, double want)
{
    float near = fabsf((float)want);
    return fabs((double)got - want) / (double)(nextafterf(near, INFINITY) - near);
}

/* The largest error over floats of both signs within [low, high], every 997th bit pattern. */
static float worst_at;
static double worst(float (*fn)(float), double (*exact)(double), float low, float high)
{
    double most = 0;
    for (int32_t bits = 0x00800000; bits < 0x7f800000; bits += 997)
        for (int sign = 0; sign < 2; sign++) {
            float x = sign ? -v_float_of(bits) : v_float_of(bits);
            if (x < low || x > high)
                continue;
            double e = ulps(fn(x), exact((double)x));
            if (!(e <= most)) {
                most = e;
                worst_at = x;
            }
        }
    return most;
}

T(exp_is_within_two_ulp)
{
    double e = worst(v_exp, exp, -86.98F, 88.3F);
    t_truef(e <= 2, "%g ulp at %g", e, (double)worst_at);
    t_true(v_exp(-INFINITY) == 0 && v_exp(-87) == 0 && isnan(v_exp(NAN)) && isfinite(v_exp(1e30F)));
    t_true(v_exp(0) == 1);
}

static float cdf(float x)
{
    float density;
    return v_normal(x, &density);
}

static double exact_cdf(double x)
{
    return 0.5 * erfc(-x * sqrt(0.5));
}

T(the_normal_distribution_is_within_1e7_and_its_tail_within_a_hundredth)
{
    for (float x = -9; x <= 9; x += 0.000977F) {
        float density, p = v_normal(x, &density);
        double want = exact_cdf((double)x),
               slope = exp(-0.5 * (double)x * (double)x) * 0.39894228040143268;
        t_near(p, want, 1e-7);
        t_near(density, slope, 1e-6 * slope + 1e-7 * fabs((double)x));
        if (x > -5 && x < 0)
            t_near(p, want, 0.01 * want);
    }
    t_truef(worst(cdf, exact_cdf, 0, 30) <= 2, "%g ulp at %g", worst(cdf, exact_cdf, 0, 30),
            (double)worst_at);
    t_true(cdf(INFINITY) == 1 && cdf(-INFINITY) == 0 && cdf(-14) == 0 && isnan(cdf(NAN)));
}

T(sine_and_cosine_keep_their_phase_at_large_positions)
{
    for (float x = -1e6F; x < 1e6F; x += 37.7317F) {
        float s, c;
        v_sincos(x, &s, &c);
        t_near(s, sin((double)x), 1.5e-7);
        t_near(c, cos((double)x), 1.5e-7);
    }
}

T(sums_are_right_at_every_length)
{
    float x[70], y[70];
    double sum = 0, dot = 0, top = (double)-INFINITY;
    for (size_t n = 0; n < 70; n++) {
        t_near(v_sum(x, n), sum, 1e-5);
        t_near(v_dot(x, y, n), dot, 1e-5);
        t_true((double)v_max(x, n) == top);
        x[n] = sinf((float)n * 1.7F);
        y[n] = cosf((float)n);
        sum += (double)x[n];
        dot += (double)x[n] * (double)y[n];
        top = fmax(top, (double)x[n]);
    }
}
