/* Every kernel against long double over adversarial inputs: subnormal, near overflow, cancelling,
 * signed zeros, values where a function changes its branch, NaN, odd lengths at any alignment.  The
 * table `bounds` says how far each may be off, in which unit.
 *
 *   PROOF_SEED=n PROOF_SECONDS=s   from seed n for so long; then a line for each kernel,
 *                                  "ulp OP BY BOUND CASES MAX MEAN", and "seed NEXT"
 *
 * Errors are counted in units of their scale.  "ulp": of the float nearest to the exact value;
 * "ulp of ...": of the named quantity, where the result is a difference of larger ones; "n u sum":
 * roundings in the longest chain, with those of its terms, times 2^-24 (2^-53 in double) times the
 * sum of the terms' magnitudes, so that 1 is what no summation exceeds.  Results below 2^-125 may
 * be flushed to zero: no unit of theirs is smaller than that. */
#include <float.h>
#include <time.h>

#include "base/cpu.h"
#include "base/pool.h"
#include "base/rng.h"
#include "engine/bf16.h"
#include "engine/gemm_impl.h"
#include "engine/ops.h"
#include "engine/param.h"
#include "engine/vec.h"
#include "engine/vmath.h"
#include "quant_blocks.h"

typedef long double exact;

/* by: the sets of vec.h and the levels of DEPTHSCOPE_CPU, or providers of gemm.h. */
#define ALL_SETS "plain avx2 avx512"
#define ALL_LEVELS "ref avx2 avx512 amx"
static const struct bound {
    const char *op, *by;
    double most;
    const char *unit;
} bounds[] = {
    // clang-format off
    {"exp",            "inline",   1,   "ulp"},
    {"tanh",           "inline",   2,   "ulp"},
    {"normal_cdf",     "inline",   2,   "2^-24"},
    {"sin_cos",        "inline",   2,   "2^-24"},
    {"exp64",          ALL_SETS,   1,   "ulp of double times 1 + |argument|"},
    {"exp_below_top",  ALL_SETS,   1,   "ulp"},
    {"swiglu",         ALL_SETS,   4,   "ulp"},
    {"swiglu_bwd",     ALL_SETS,   6,   "ulp of dh b s (1 + |a|)"},
    {"gelu",           ALL_SETS,   2.5, "ulp of x"},
    {"gelu_bwd",       ALL_SETS,   4,   "ulp of dy (1 + |x| density)"},
    {"gelu_tanh",      ALL_SETS,   2.5, "ulp times 1 + |2 u| for x < 0"},
    {"gelu_tanh_bwd",  ALL_SETS,   6,   "ulp of dy s (1 + |x| du), times 1 + |2 u| for x < 0"},
    {"geglu",          ALL_SETS,   4,   "as gelu_tanh"},
    {"geglu_bwd",      ALL_SETS,   6,   "as gelu_tanh_bwd"},
    {"soft_cap",       ALL_SETS,   5,   "ulp"},
    {"soft_cap_bwd",   ALL_SETS,   4,   "ulp of d"},
    {"rmsnorm",        ALL_SETS,   6,   "ulp"},
    {"rmsnorm_bwd",    ALL_SETS,   1,   "n u sum"},
    {"layernorm",      ALL_SETS,   1,   "n u sum"},
    {"layernorm_bwd",  ALL_SETS,   1,   "n u sum"},
    {"rope",           ALL_SETS,   4,   "ulp of |a| + |b|"},
    {"cross_entropy",  ALL_SETS,   2,   "ulp of 1 + nll"},
    {"entropy",        ALL_SETS,   2,   "ulp of 1 + ln V"},
    {"softmax_grad",   ALL_SETS,   8,   "ulp of scale (p (1 + |x - top|) + onehot)"},
    {"distill",        ALL_SETS,   4,   "ulp of T^2 (1 + mean and largest |logit / T|)"},
    {"distill_grad",   ALL_SETS,   8,   "ulp of scale T (p + q) (1 + |logit / T|)"},
    {"dot",            ALL_SETS,   1,   "n u sum"},
    {"sum_squares",    ALL_SETS,   1,   "n u sum"},
    {"adamw",          ALL_SETS,   8,   "ulp of |w| + largest step"},
    {"attention",      ALL_LEVELS, 1,   "n u sum"},
    {"attention_lse",  ALL_LEVELS, 1,   "n u sum"},
    {"attention_bwd",  ALL_LEVELS, 1,   "n u sum"},
    {"quantised_gemm", ALL_LEVELS, 1,   "n u sum"},
    {"gemm",           "ref avx2 avx512 blas", 1, "n u sum"},
    {"gemm",           "ref-bf16 avx2-round avx512-round avx512bf16 amx amx-soft", 1, "n u sum"},
    // clang-format on
};

/* ---- counting -------------------------------------------------------------------------------- */

static struct tally {
    const char *op, *by;
    const struct bound *of;
    uint64_t cases;
    double most, sum;
    char at[200]; /* where the error is largest */
} tallies[96];
static int n_tallies;
static uint64_t seed;
static struct rng r;
static int long_double_is_longer;

static int has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return 1;
    return 0;
}

static struct tally *tally_of(const char *op, const char *by)
{
    for (int i = 0; i < n_tallies; i++)
        if (strcmp(tallies[i].op, op) == 0 && strcmp(tallies[i].by, by) == 0)
            return &tallies[i];
    t_true(n_tallies < (int)(sizeof tallies / sizeof *tallies));
    struct tally *t = &tallies[n_tallies++];
    *t = (struct tally){.op = op, .by = by};
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++)
        if (strcmp(bounds[i].op, op) == 0 && has_word(bounds[i].by, by))
            t->of = &bounds[i];
    t_truef(t->of != NULL, "%s by %s has no bound", op, by);
    return t;
}

static const exact TINY = 0x1p-125L;

/* A build without fused multiply-adds rounds twice in what its own flags compile. */
static double most_of(const struct tally *t)
{
#if defined(__FMA__) || defined(__ARM_FEATURE_FMA)
    return t->of->most;
#else
    return has_word("inline plain", t->by) ? 1.5 * t->of->most : t->of->most;
#endif
}

/* The distance of floats at x; infinite where x is not finite. */
static exact ulp(exact x)
{
    x = fabsl(x);
    if (!isfinite(x))
        return (exact)INFINITY;
    return x < TINY ? TINY : ldexpl(1, ilogbl(x) - 23);
}

static exact ulp64(exact x)
{
    x = fabsl(x);
    if (!isfinite(x))
        return (exact)INFINITY;
    return x < 0x1p-1020L ? 0x1p-1020L : ldexpl(1, ilogbl(x) - 52);
}

/* One result, also of double.  a, b, c: what to print of its inputs. */
static void note64(struct tally *t, double got, exact want, exact unit, double a, double b,
                   double c)
{
    double e = 0;
    if (isnan(want) || isinf(want))
        e = (isnan(want) ? isnan(got) : !isfinite(got)) ? 0 : INFINITY;
    else if (fabsl(want) > (exact)FLT_MAX * 0.999999L)
        e = (!isfinite(got) || fabs(got) > 0.9999 * (double)FLT_MAX) ? 0 : INFINITY;
    else if (!isfinite(got))
        e = INFINITY;
    else
        e = (double)(fabsl((exact)got - want) / unit);
    t->cases++;
    t->sum += e;
    if (!(e <= t->most)) {
        t->most = e;
        snprintf(t->at, sizeof t->at, "seed %llu: got %.9g, expected %.9Lg; inputs %.9g %.9g %.9g",
                 (unsigned long long)seed, got, want, a, b, c);
    }
}

/* A float result, which may be flushed to zero below TINY. */
static void note(struct tally *t, double got, exact want, exact unit, double a, double b, double c)
{
    note64(t, got, want, fabsl(want) < TINY && unit < TINY ? TINY : unit, a, b, c);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

enum mood { UNIT, LOG, WIDE, SMALL, LARGE, ZEROS, EDGES, CANCEL, ALIKE, MOODS };

static const float edges[] = {0.6F,        5,   13.2F,   88.37F,     87.33F,    86.99F, 0.34657359F,
                              0.69314718F, 1,   2,       4,          0.5F,      9.01F,  17.3F,
                              16,          127, FLT_MIN, 1.2784645F, 0.7517916F};

static float sign(float x)
{
    return rng_u32(&r) & 1 ? -x : x;
}

static float one(enum mood mood, float most)
{
    float u = (float)rng_uniform(&r), x = 0;
    switch (mood) {
    case LOG: x = expf(40 * u - 20); break;
    case WIDE: x = v_float_of((int32_t)(rng_u32(&r) & 0x7fffffffU)); break;
    case SMALL: x = v_float_of((int32_t)(rng_u32(&r) & 0x00ffffffU)); break;
    case LARGE: x = most * (1 - u / 16); break;
    case ZEROS: x = u < 0.8F ? 0 : u; break;
    case EDGES:
        x = edges[rng_below(&r, sizeof edges / sizeof *edges)] *
            (float)(rng_below(&r, 4) == 0 ? 1 + rng_below(&r, 100) : 1);
        x = v_float_of(v_bits_of(x) + (int32_t)rng_below(&r, 9) - 4);
        break;
    case ALIKE: return 1 + u / 64;
    case UNIT:
    case CANCEL:
    default: x = u; break;
    }
    if (!(x <= most))
        x = isfinite(x) ? most * u : u;
    return sign(x);
}

static enum mood any_mood(void)
{
    return (enum mood)rng_below(&r, MOODS);
}

static void fill(real *x, size_t n, enum mood mood, float most)
{
    for (size_t i = 0; i < n; i++)
        x[i] = mood == CANCEL && i % 2 ? -x[i - 1] * (1 + (float)rng_below(&r, 64) * 0x1p-23F)
                                       : one(mood, most);
}

/* Vectors between sentinels, at any alignment. */
enum { SPACES = 8, ROOM = 6144, MARGIN = 32 };
static real space[SPACES][ROOM + 2 * MARGIN + 16];
static struct {
    size_t at, n;
} used[SPACES];
static const real SENTINEL = 12345.5F;

static real *take(int k, size_t n)
{
    t_true(n <= ROOM);
    used[k].at = MARGIN + rng_below(&r, 16);
    used[k].n = n;
    for (size_t i = 0; i < n + MARGIN + 16 + MARGIN; i++)
        space[k][i] = SENTINEL;
    return space[k] + used[k].at;
}

static real *filled(int k, size_t n, enum mood mood, float most)
{
    real *x = take(k, n);
    fill(x, n, mood, most);
    return x;
}

static void check_margins(const char *op)
{
    for (int k = 0; k < SPACES; k++)
        for (size_t i = 0; used[k].n && i < MARGIN / 2; i++)
            t_truef(space[k][used[k].at - 1 - i] == SENTINEL &&
                        space[k][used[k].at + used[k].n + i] == SENTINEL,
                    "%s wrote outside its %zu elements (seed %llu)", op, used[k].n,
                    (unsigned long long)seed);
    memset(used, 0, sizeof used);
}

static size_t any_length(void)
{
    return rng_below(&r, 8) ? 1 + rng_below(&r, 130) : 500 + rng_below(&r, 1500);
}

/* Sometimes a NaN at a place of x: what then is not NaN is wrong. */
static void poison(real *x, size_t n)
{
    if (rng_below(&r, 16) == 0)
        x[rng_below(&r, (uint32_t)n)] = NAN;
}

/* ---- elementary functions -------------------------------------------------------------------- */

static exact cdf(exact x)
{
    return 0.5L * erfcl(-x * 0.70710678118654752440084436210485L);
}

static exact density(exact x)
{
    return 0.39894228040143267793994605993438L * expl(-0.5L * x * x);
}

static void inline_functions(void)
{
    struct tally *e = tally_of("exp", "inline"), *t = tally_of("tanh", "inline"),
                 *n = tally_of("normal_cdf", "inline"), *s = tally_of("sin_cos", "inline");
    enum mood mood = any_mood();
    for (int i = 0; i < 200; i++) {
        float x = one(mood, FLT_MAX), phi, slope, sine, cosine;
        double d = (double)x;
        if (x <= 88.37F)
            note(e, (double)v_exp(x), expl((exact)x), ulp(expl((exact)x)), d, 0, 0);
        note(t, (double)v_tanh(x), tanhl((exact)x), ulp(tanhl((exact)x)), d, 0, 0);
        phi = v_normal(x, &slope);
        note(n, (double)phi, cdf((exact)x), 0x1p-24L, d, 0, 0);
        if (fabsf(x) > 1e6F)
            continue;
        v_sincos(x, &sine, &cosine);
        note(s, (double)sine, sinl((exact)x), 0x1p-24L, d, 0, 0);
        note(s, (double)cosine, cosl((exact)x), 0x1p-24L, d, 0, 0);
    }
}

/* ---- activations ----------------------------------------------------------------------------- */

static exact logistic(exact x)
{
    return 1 / (1 + expl(-x));
}

/* v_exp stays at 2.4e38, so a logistic function never falls below 4.1e-39. */
static const exact FLOOR = 5e-39L;

static const exact GELU_IN = 1.59576912160573071175978423973752L, CUBIC = 0.044715L;

static exact gelu_u(exact x) /* 2 u */
{
    return GELU_IN * (x + CUBIC * x * x * x);
}

/* The derivative of x s; its size before cancelling; what a logistic function that does not fall
 * below FLOOR adds. */
static exact gelu_slope(exact x, exact *scale, exact *low)
{
    exact s = logistic(gelu_u(x)), du = GELU_IN * (1 + 3 * CUBIC * x * x);
    exact left = logistic(-gelu_u(x));             /* 1 - s */
    exact more = x < 0 ? 1 + fabsl(gelu_u(x)) : 1; /* of the exponential's argument */
    *scale = s * (1 + fabsl(x) * du * (x > 8 ? 0 : 1)) * (more < 100 ? more : 100);
    *low = FLOOR * 1000;
    return s * (1 + x * left * du);
}

static void activations(void)
{
    const char *by = vec()->name;
    size_t n = any_length();
    enum mood mood = any_mood();
    real *a = filled(0, n, mood, 1e18F), *b = filled(1, n, any_mood(), 1e18F);
    real *g = filled(2, n, rng_below(&r, 2) ? UNIT : any_mood(), 1e3F);
    poison(a, n);
    real *y = take(3, n), *da = filled(4, n, ZEROS, 0), *db = filled(5, n, ZEROS, 0);
    real *pa = rng_below(&r, 4) ? da : NULL, *pb = pa && rng_below(&r, 4) ? db : NULL;
#define EACH(i) for (size_t i = 0; i < n; i++)
#define A ((exact)a[i])
#define Bi ((exact)b[i])
#define G ((exact)g[i])
#define IN (double)a[i], (double)b[i], (double)g[i]
    struct tally *t = tally_of("swiglu", by);
    swiglu_fwd(y, a, b, n);
    EACH(i)
    {
        exact want = A * logistic(A) * Bi;
        note(t, (double)y[i], want, ulp(want) + FLOOR * fabsl(A * Bi) + TINY * fabsl(Bi), IN);
    }
    t = tally_of("swiglu_bwd", by);
    if (pa || pb)
        swiglu_bwd(pa, pb, g, a, b, n);
    EACH(i)
    {
        exact s = logistic(A), left = logistic(-A), scale = s * (1 + (A < 20 ? fabsl(A) : 0));
        exact low = FLOOR * (1 + fabsl(A)) + TINY;
        if (pa)
            note(t, (double)da[i], G * Bi * s * (1 + A * left),
                 ulp(G * Bi * scale) + low * fabsl(G * Bi) + TINY * (1 + fabsl(A)), IN);
        if (pb)
            note(t, (double)db[i], G * A * s, ulp(G * A * s) + low * fabsl(G), IN);
    }
    t = tally_of("gelu", by);
    gelu_fwd(y, a, n);
    EACH(i) note(t, (double)y[i], A * cdf(A), ulp(A), IN);
    t = tally_of("gelu_bwd", by);
    EACH(i) da[i] = 0;
    gelu_bwd(da, g, a, n);
    EACH(i)
    note(t, (double)da[i], G * (A * density(A) + cdf(A)), ulp(G * (1 + fabsl(A) * density(A))), IN);
    t = tally_of("gelu_tanh", by);
    gelu_tanh_fwd(y, a, n);
    EACH(i)
    {
        exact want = A * logistic(gelu_u(A)), more = A < 0 ? 1 + fabsl(gelu_u(A)) : 1;
        note(t, (double)y[i], want, ulp(want) * (more < 100 ? more : 100) + FLOOR * fabsl(A), IN);
    }
    t = tally_of("gelu_tanh_bwd", by);
    EACH(i) da[i] = 0;
    gelu_tanh_bwd(da, g, a, n);
    EACH(i)
    {
        exact scale, low, want = G * gelu_slope(A, &scale, &low);
        note(t, (double)da[i], want, ulp(G * scale) + low * fabsl(G), IN);
    }
    t = tally_of("geglu", by);
    geglu_fwd(y, a, b, n);
    EACH(i)
    {
        exact want = A * logistic(gelu_u(A)) * Bi, more = A < 0 ? 1 + fabsl(gelu_u(A)) : 1;
        note(t, (double)y[i], want,
             ulp(want) * (more < 100 ? more : 100) + FLOOR * fabsl(A * Bi) + TINY * fabsl(Bi), IN);
    }
    t = tally_of("geglu_bwd", by);
    EACH(i) da[i] = db[i] = 0;
    geglu_bwd(da, db, g, a, b, n);
    EACH(i)
    {
        exact scale, low, slope = gelu_slope(A, &scale, &low), value = A * logistic(gelu_u(A));
        exact more = A < 0 ? 1 + fabsl(gelu_u(A)) : 1;
        note(t, (double)da[i], G * Bi * slope,
             ulp(G * Bi * scale) + low * fabsl(G * Bi) + TINY * fabsl(G), IN);
        note(t, (double)db[i], G * value,
             ulp(G * value) * (more < 100 ? more : 100) + (FLOOR * fabsl(A) + TINY) * fabsl(G), IN);
    }
    static const real caps[] = {0.5F, 1, 30, 50};
    real cap = caps[rng_below(&r, 4)];
    t = tally_of("soft_cap", by);
    memcpy(y, a, n * sizeof *y);
    soft_cap_fwd(y, cap, n);
    EACH(i)
    {
        exact want = (exact)cap * tanhl(A / (exact)cap);
        note(t, (double)y[i], want, ulp(want) + TINY * (exact)cap, (double)a[i], (double)cap, 0);
    }
    t = tally_of("soft_cap_bwd", by);
    EACH(i) da[i] = isnan(g[i]) ? 0 : g[i];
    soft_cap_bwd(da, y, cap, n);
    EACH(i)
    {
        exact tanh_ = (exact)y[i] / (exact)cap;
        note(t, (double)da[i], G * (1 - tanh_ * tanh_), ulp(G), (double)y[i], (double)cap,
             (double)g[i]);
    }
#undef EACH
#undef A
#undef Bi
#undef G
#undef IN
    check_margins("an activation");
}

/* ---- rows ------------------------------------------------------------------------------------ */

static const exact U = 0x1p-24L;

static void rms_row(size_t C, real eps)
{
    const char *by = vec()->name;
    enum mood mood = any_mood();
    real *x = filled(0, C, mood, 1e17F), *w = filled(1, C, any_mood(), 1e6F);
    real *dy = filled(2, C, any_mood(), 1e6F), *y = take(3, C), rstd;
    real *dx = filled(4, C, ZEROS, 0), *dw = filled(5, C, ZEROS, 0);
    memset(dx, 0, C * sizeof *dx), memset(dw, 0, C * sizeof *dw);
    struct norm n = {.w = w, .rstd = &rstd, .N = 1, .C = (int)C, .eps = eps};
    struct tally *t = tally_of("rmsnorm", by);
    exact squares = 0, mix = 0, size = 0;
    for (size_t c = 0; c < C; c++)
        squares += (exact)x[c] * (exact)x[c];
    exact exactly = 1 / sqrtl(squares / (exact)C + (exact)eps);
    norm_fwd(y, x, &n);
    for (size_t c = 0; c < C; c++) {
        exact want = (exact)x[c] * exactly * (exact)w[c];
        note(t, (double)y[c], want, ulp(want) + TINY * fabsl((exact)w[c]), (double)x[c],
             (double)w[c], (double)C);
    }
    t = tally_of("rmsnorm_bwd", by);
    norm_bwd(dx, dw, NULL, dy, x, &n);
    for (size_t c = 0; c < C; c++) {
        exact term = (exact)w[c] * (exact)dy[c] * (exact)x[c];
        mix += term;
        size += fabsl(term);
    }
    exact rs = (exact)rstd, m = mix / (exact)C * rs * rs, most = size / (exact)C * rs * rs;
    for (size_t c = 0; c < C; c++) {
        exact g = (exact)w[c] * (exact)dy[c], a = (exact)x[c];
        note(t, (double)dx[c], rs * (g - a * m),
             U * ((exact)C / 16 + 12) * rs * (fabsl(g) + fabsl(a) * most) +
                 TINY * (1 + rs) * (1 + fabsl(a)),
             (double)x[c], (double)dy[c], (double)C);
        note(t, (double)dw[c], (exact)dy[c] * a * rs,
             4 * U * fabsl((exact)dy[c] * a * rs) + TINY * (1 + fabsl((exact)dy[c])), (double)x[c],
             (double)dy[c], (double)C);
    }
    check_margins("RMSNorm");
}

static void layer_row(size_t C, real eps)
{
    const char *by = vec()->name;
    real *x = filled(0, C, any_mood(), 1e15F), *w = filled(1, C, any_mood(), 1e3F);
    real *b = filled(2, C, any_mood(), 1e3F), *y = take(3, C), *dy = filled(4, C, any_mood(), 1e3F);
    real *dx = filled(5, C, ZEROS, 0), *dw = filled(6, C, ZEROS, 0), rstd, mean;
    memset(dx, 0, C * sizeof *dx), memset(dw, 0, C * sizeof *dw);
    struct norm n = {.w = w, .b = b, .mean = &mean, .rstd = &rstd, .N = 1, .C = (int)C, .eps = eps};
    struct tally *t = tally_of("layernorm", by);
    exact sum = 0, size = 0, squares = 0, g = 0, gx = 0, g_size = 0, gx_size = 0;
    for (size_t c = 0; c < C; c++) {
        sum += (exact)x[c];
        size += fabsl((exact)x[c]);
    }
    sum /= (exact)C;
    size /= (exact)C;
    for (size_t c = 0; c < C; c++)
        squares += ((exact)x[c] - sum) * ((exact)x[c] - sum);
    exact rs = 1 / sqrtl(squares / (exact)C + (exact)eps);
    norm_fwd(y, x, &n);
    for (size_t c = 0; c < C; c++) {
        exact off = (exact)x[c] - sum, want = off * rs * (exact)w[c] + (exact)b[c];
        exact scale = (fabsl((exact)x[c]) + size) * rs * fabsl((exact)w[c]);
        note(t, (double)y[c], want, U * ((exact)C / 16 + 12) * (scale + fabsl((exact)b[c])) + TINY,
             (double)x[c], (double)w[c], (double)C);
    }
    t = tally_of("layernorm_bwd", by);
    norm_bwd(dx, dw, NULL, dy, x, &n);
    exact m = (exact)mean;
    rs = (exact)rstd;
    for (size_t c = 0; c < C; c++) {
        exact term = (exact)w[c] * (exact)dy[c], off = (exact)x[c] - m;
        g += term, g_size += fabsl(term);
        gx += term * off, gx_size += fabsl(term * off);
    }
    g /= (exact)C, g_size /= (exact)C, gx /= (exact)C, gx_size /= (exact)C;
    for (size_t c = 0; c < C; c++) {
        exact term = (exact)w[c] * (exact)dy[c], off = (exact)x[c] - m;
        exact scale = rs * (fabsl(term) + g_size + fabsl(off) * gx_size * rs * rs);
        note(t, (double)dx[c], rs * (term - g - off * rs * rs * gx),
             U * ((exact)C / 16 + 14) * scale + TINY * (1 + rs) * (1 + fabsl(off)), (double)x[c],
             (double)dy[c], (double)C);
        note(t, (double)dw[c], (exact)dy[c] * off * rs,
             4 * U * fabsl((exact)dy[c] * off * rs) + TINY * (1 + fabsl((exact)dy[c])),
             (double)x[c], (double)dy[c], (double)C);
    }
    check_margins("LayerNorm");
}

static void norms(void)
{
    static const real eps[] = {1e-5F, 1e-6F, 1e-12F};
    rms_row(any_length(), eps[rng_below(&r, 3)]);
    layer_row(any_length(), eps[rng_below(&r, 3)]);
}

/* The angle is the float product of position and frequency, as elsewhere. */
static void rope(void)
{
    enum { HEADS = 2 };
    struct tally *t = tally_of("rope", vec()->name);
    int pairs = 1 + (int)rng_below(&r, 65), rest = (int)rng_below(&r, 3), D = 2 * pairs + rest;
    int half = (int)rng_below(&r, 2), back = (int)rng_below(&r, 2);
    real *f = take(0, (size_t)pairs), *x = filled(1, (size_t)(HEADS * D), any_mood(), 1e30F);
    real *y = take(2, (size_t)(HEADS * D));
    int32_t pos = (int32_t)(rng_below(&r, 2) ? rng_below(&r, 4096) : rng_below(&r, 1000000));
    real scale = rng_below(&r, 2) ? 1 : 1.1865F;
    struct rope c = {.inv_freq = f, .D = D, .dims = 2 * pairs, .half = half, .scale = scale};
    for (int i = 0; i < pairs; i++)
        f[i] = (real)pow(10000, -(double)i / pairs);
    memcpy(y, x, (size_t)(HEADS * D) * sizeof *y);
    (back ? rope_bwd : rope_fwd)(y, &pos, &c, 1, HEADS);
    for (int h = 0; h < HEADS; h++)
        for (int i = 0; i < pairs; i++) {
            int p = h * D + (half ? i : 2 * i), q = h * D + (half ? i + pairs : 2 * i + 1);
            real angle = (real)pos * f[i];
            exact s = sinl((exact)angle) * (back ? -1 : 1), co = cosl((exact)angle);
            exact a = (exact)x[p], b = (exact)x[q], by = (exact)scale;
            exact unit = ulp((fabsl(a) + fabsl(b)) * by);
            note(t, (double)y[p], (a * co - b * s) * by, unit, (double)a, (double)b, (double)angle);
            note(t, (double)y[q], (b * co + a * s) * by, unit, (double)a, (double)b, (double)angle);
        }
    for (int h = 0; h < HEADS; h++)
        for (int i = 2 * pairs; i < D; i++)
            t_true(memcmp(&x[h * D + i], &y[h * D + i], sizeof *x) == 0);
    check_margins("rope");
}

/* ---- losses ---------------------------------------------------------------------------------- */

static exact top_of(const real *x, size_t n, exact by)
{
    exact top = -INFINITY;
    for (size_t i = 0; i < n; i++)
        top = (exact)x[i] / by > top ? (exact)x[i] / by : top;
    return top;
}

static exact log_sum(const real *x, size_t n, exact by, exact top)
{
    exact sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += expl((exact)x[i] / by - top);
    return logl(sum);
}

static void cross_entropy(void)
{
    const char *by = vec()->name;
    size_t V = 1 + any_length();
    static const float mosts[] = {1, 30, 1000, 1e37F};
    real *x = filled(0, V, any_mood(), mosts[rng_below(&r, 4)]), *y = take(1, V), nll, h;
    int32_t target = (int32_t)rng_below(&r, (uint32_t)V);
    real weight = (real)rng_uniform(&r), scale = rng_below(&r, 4) ? 0.125F : 1;
    for (size_t v = 0; v < V && rng_below(&r, 4) == 0; v += 1 + rng_below(&r, 4))
        if ((int32_t)v != target)
            x[v] = -INFINITY; /* a masked token */
    memcpy(y, x, V * sizeof *x);
    xent_fwd_bwd(y, &target, &weight, scale, &nll, &h, 1, (int)V);
    exact top = top_of(x, V, 1), sum = log_sum(x, V, 1, top), entropy = 0, unsure = 0;
    exact want = sum + top - (exact)x[target], amount = (exact)scale * (exact)weight;
    struct tally *t = tally_of("softmax_grad", by);
    for (size_t v = 0; v < V; v++) {
        exact d = (exact)x[v] - top, p = expl(d - sum), hot = (int32_t)v == target;
        if (p > 0) {
            entropy -= p * (d - sum);
            unsure += p * fabsl(d) * (1 + fabsl(d));
        }
        exact low = p * (1 + (p > 0 ? fabsl(d) : 0)) + hot;
        note(t, (double)y[v], (p - hot) * amount, ulp(low * amount) + TINY * amount, (double)x[v],
             (double)top, (double)V);
    }
    note(tally_of("cross_entropy", by), (double)nll, want, ulp(1 + fabsl(want)), (double)x[target],
         (double)top, (double)V);
    note(tally_of("entropy", by), (double)h, entropy, ulp(1 + logl((exact)V) + unsure),
         (double)x[0], (double)top, (double)V);
    check_margins("cross-entropy");
}

static void distillation(void)
{
    const char *by = vec()->name;
    size_t V = 1 + any_length();
    real *u = filled(0, V, any_mood(), 30), *x = filled(1, V, any_mood(), 30), *d = take(2, V), kd;
    real T = rng_below(&r, 2) ? 1 : 2.5F, scale = 0.5F;
    exact temp = (exact)T, mean = 0, kl = 0;
    int32_t target = 0;
    memcpy(d, u, V * sizeof *d);
    distill_fwd_bwd(d, x, &target, T, scale, &kd, 1, (int)V);
    exact tu = top_of(u, V, temp), tx = top_of(x, V, temp);
    exact su = log_sum(u, V, temp, tu), sx = log_sum(x, V, temp, tx);
    struct tally *t = tally_of("distill_grad", by);
    for (size_t v = 0; v < V; v++) {
        exact a = (exact)u[v] / temp, b = (exact)x[v] / temp;
        exact p = expl(a - tu - su), q = expl(b - tx - sx);
        kl += p * (a - tu - su - b + tx + sx);
        mean += p * (fabsl(a) + fabsl(b));
        exact size = p * (1 + fabsl(a) + fabsl(tu)) + q * (1 + fabsl(b) + fabsl(tx));
        note(t, (double)d[v], (exact)scale * temp * (q - p), ulp((exact)scale * temp * size) + TINY,
             (double)u[v], (double)x[v], (double)V);
    }
    note(tally_of("distill", by), (double)kd, temp * temp * kl,
         ulp(temp * temp * (1 + mean + fabsl(tu) + fabsl(tx))), (double)T, (double)V, 0);
    check_margins("distillation");
}

static void exponentials(void)
{
    const char *by = vec()->name;
    size_t n = any_length();
    static double w[ROOM];
    double T = rng_below(&r, 2) ? 1 : 0.7, sum;
    real *x = filled(0, n, any_mood(), 1e4F), *e = take(1, n), top = vec()->max(x, n);
    struct tally *t = tally_of("exp64", by);
    exact total = 0;
    sample_weights(w, x, top, T, (int)n);
    for (size_t i = 0; i < n && long_double_is_longer; i++) {
        exact at = ((exact)x[i] - (exact)top) / (exact)T, want = expl(at);
        note64(t, w[i], want, ulp64(want) * (1 + fabsl(at)), (double)x[i], (double)top, T);
    }
    for (size_t i = 0; i < n; i++)
        x[i] = -fabsf(x[i]);
    t = tally_of("exp_below_top", by);
    vec()->exp_sum(e, x, 0, n, &sum, NULL);
    for (size_t i = 0; i < n; i++) {
        note(t, (double)e[i], expl((exact)x[i]), ulp(expl((exact)x[i])), (double)x[i], 0, 0);
        total += expl((exact)x[i]);
    }
    /* each term below TINY may be zero */
    note(t, sum, total, ulp(total) * 40 + TINY * (exact)n, 0, 0, (double)n);
    check_margins("exp");
}

/* ---- sums and the optimiser ------------------------------------------------------------------ */

static void sums(void)
{
    size_t n = any_length();
    real *x = filled(0, n, any_mood(), 1e17F), *y = filled(1, n, any_mood(), 1e17F);
    exact want = 0, size = 0, squares = 0;
    uint64_t bad = 9;
    for (size_t i = 0; i < n; i++) {
        want += (exact)x[i] * (exact)y[i];
        size += fabsl((exact)x[i] * (exact)y[i]);
        squares += (exact)x[i] * (exact)x[i];
    }
    note(tally_of("dot", vec()->name), (double)vec()->dot(x, y, n), want,
         U * ((exact)n / 16 + 5) * size + TINY, (double)x[0], (double)y[0], (double)n);
    double got = sum_squares(x, n, &bad);
    note64(tally_of("sum_squares", vec()->name), got, squares,
           0x1p-53L * ((exact)n / 16 + 6) * squares + 0x1p-1070L, (double)x[0], 0, (double)n);
    t_eq(bad, 0);
    x[n - 1] = rng_below(&r, 2) ? NAN : INFINITY;
    t_true(!isfinite(sum_squares(x, n, &bad)) && bad == 1);
    check_margins("a sum");
}

/* Factors that the step rounds to float before use are so here: beta1 and beta2 of the moments. */
static void optimiser(void)
{
    struct params ps = {0};
    struct err e = {0};
    struct tally *t = tally_of("adamw", vec()->name);
    int n = (int)any_length();
    struct adamw o = {.lr = pow(10, -4 * rng_uniform(&r)),
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = 0.1 * rng_uniform(&r),
                      .router_lr = 1};
    struct grad_health health = {.norm = 1 + rng_uniform(&r)};
    int64_t step = 1 + rng_below(&r, 1000);
    o.beta2 = rng_below(&r, 2) ? o.beta2 : 0.999;
    o.clip = rng_below(&r, 2) ? 1 : 0;
    t_true(params_add(&ps, "w", n, 0, PARAM_MATRIX, INIT_ZERO, 0) == 0);
    t_ok(params_reserve(&ps, 1, &e), &e);
    struct param *p = &ps.p[0];
    real *w = filled(0, p->n, any_mood(), 1e6F), *g = filled(1, p->n, any_mood(), 1e15F);
    real *m = filled(2, p->n, any_mood(), 1e15F), *v = filled(3, p->n, any_mood(), 1e30F);
    for (size_t i = 0; i < p->n; i++)
        v[i] = fabsf(v[i]);
    memcpy(p->value, w, p->n * sizeof *w), memcpy(p->grad, g, p->n * sizeof *w);
    memcpy(p->m, m, p->n * sizeof *w), memcpy(p->v, v, p->n * sizeof *w);
    adamw_step(&ps, &o, step, &health);
    exact b1 = (exact)(real)o.beta1, b2 = (exact)(real)o.beta2;
    exact bias1 = 1 - powl((exact)o.beta1, step), bias2 = 1 - powl((exact)o.beta2, step);
    exact clip = o.clip > 0 ? 1 / (exact)health.norm : 1;
    for (size_t i = 0; i < p->n; i++) {
        exact gi = (exact)g[i] * clip, mi = b1 * (exact)m[i] + (1 - b1) * gi;
        exact vi = b2 * (exact)v[i] + (1 - b2) * gi * gi,
              keep = 1 - (exact)o.lr * (exact)o.weight_decay;
        exact rate = (exact)o.lr / bias1 / (sqrtl(vi / bias2) + (exact)o.eps);
        exact m_size = b1 * fabsl((exact)m[i]) + (1 - b1) * fabsl(gi);
        double in[] = {(double)w[i], (double)g[i], (double)v[i]};
        note(t, (double)p->m[i], mi, ulp(m_size), (double)m[i], (double)g[i], 0);
        note(t, (double)p->v[i], vi, ulp(vi), (double)v[i], (double)g[i], 0);
        note(t, (double)p->value[i], keep * (exact)w[i] - rate * mi,
             ulp(fabsl((exact)w[i]) + rate * m_size) + TINY * rate, in[0], in[1], in[2]);
        t_true(p->grad[i] == 0);
    }
    params_release(&ps);
    check_margins("AdamW");
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { KEYS = 70, HEADS = 2, WIDEST = 40 };

/* Causal, one segment; each query from some key on. */
static struct {
    struct attn a;
    int N, D;
    int32_t lo[KEYS], hi[KEYS], self[KEYS], seg[2];
    real *q, *k, *v, o[KEYS * HEADS * WIDEST], lse[KEYS * HEADS], dout[KEYS * HEADS * WIDEST];
    real dq[KEYS * HEADS * WIDEST], dk[KEYS * WIDEST], dv[KEYS * WIDEST];
} scene;

static void scene_fill(void)
{
    static const float mosts[] = {1, 4, 30};
    float most = mosts[rng_below(&r, 3)];
    int N = 1 + (int)rng_below(&r, KEYS), D = 1 + (int)rng_below(&r, WIDEST), begin = 0;
    memset(&scene, 0, sizeof scene);
    scene.N = N;
    scene.D = D;
    scene.q = filled(0, (size_t)(N * HEADS * D), any_mood(), most);
    scene.k = filled(1, (size_t)(N * D), any_mood(), most);
    scene.v = filled(2, (size_t)(N * D), any_mood(), 1e15F);
    fill(scene.dout, (size_t)(N * HEADS * D), rng_below(&r, 2) ? UNIT : any_mood(), 1e3F);
    for (int i = 0; i < N; i++) {
        begin = rng_below(&r, 16) ? begin : i;
        scene.lo[i] = begin, scene.hi[i] = i + 1, scene.self[i] = i;
    }
    scene.seg[1] = N;
    scene.a = (struct attn){.N = N,
                            .M = N,
                            .H = HEADS,
                            .K = 1,
                            .D = D,
                            .lo = scene.lo,
                            .hi = scene.hi,
                            .self = scene.self,
                            .segs = 1,
                            .seg_q = scene.seg,
                            .seg_k = scene.seg};
}

/* <x, y>, and the sum of its terms' magnitudes. */
static exact product(const real *x, const real *y, int n, exact *size)
{
    exact sum = 0;
    *size = 0;
    for (int i = 0; i < n; i++) {
        sum += (exact)x[i] * (exact)y[i];
        *size += fabsl((exact)x[i] * (exact)y[i]);
    }
    return sum;
}

static void attention_forward(const char *level)
{
    struct tally *t = tally_of("attention", level), *l = tally_of("attention_lse", level);
    int D = scene.D;
    attention_fwd(scene.o, scene.lse, scene.q, scene.k, scene.v, &scene.a);
    for (int c = 0; c < scene.N * HEADS; c++) {
        int i = c / HEADS, from = scene.lo[i], to = scene.hi[i];
        exact score[KEYS], top = -INFINITY, sum = 0, largest = 0, scale = 1 / sqrtl((exact)D), size;
        for (int j = from; j < to; j++) {
            score[j] = scale * product(scene.q + c * D, scene.k + j * D, D, &size);
            top = score[j] > top ? score[j] : top;
            largest = size * scale > largest ? size * scale : largest;
        }
        for (int j = from; j < to; j++)
            sum += score[j] = expl(score[j] - top);
        exact steps = (exact)(D + 4) * 2 * largest + (exact)(to - from) + 12;
        note(l, (double)scene.lse[c], top + logl(sum), U * (steps + fabsl(top)), (double)largest,
             (double)D, (double)(i - from));
        for (int d = 0; d < D; d++) {
            exact want = 0, low = 0;
            size = 0;
            for (int j = from; j < to; j++) {
                exact v = (exact)scene.v[j * D + d], p = score[j] / sum;
                want += p * v, size += p * fabsl(v), low += fabsl(v);
            }
            note(t, (double)scene.o[c * D + d], want, U * steps * size + TINY * low,
                 (double)largest, (double)D, (double)(i - from));
        }
    }
}

/* Given the forward's o and lse, which the backward takes as they are. */
static void attention_backward(const char *level)
{
    static exact dk[KEYS * WIDEST], dv[KEYS * WIDEST], sk[KEYS * WIDEST], sv[KEYS * WIDEST];
    struct tally *t = tally_of("attention_bwd", level);
    int D = scene.D;
    exact scale = 1 / sqrtl((exact)D);
    memset(dk, 0, sizeof dk), memset(dv, 0, sizeof dv);
    memset(sk, 0, sizeof sk), memset(sv, 0, sizeof sv);
    attention_bwd(&(struct attn_grad){.dq = scene.dq,
                                      .dk = scene.dk,
                                      .dv = scene.dv,
                                      .dout = scene.dout,
                                      .q = scene.q,
                                      .k = scene.k,
                                      .v = scene.v,
                                      .o = scene.o,
                                      .lse = scene.lse},
                  &scene.a);
    for (int c = 0; c < scene.N * HEADS; c++) {
        const real *q = scene.q + c * D, *dout = scene.dout + c * D;
        exact dq[WIDEST] = {0}, sq[WIDEST] = {0}, through, least;
        through = product(dout, scene.o + c * D, D, &least);
        for (int j = scene.lo[c / HEADS]; j < scene.hi[c / HEADS]; j++) {
            const real *k = scene.k + j * D;
            exact size, most, s = scale * product(q, k, D, &size);
            exact p = expl(s - (exact)scene.lse[c]), dp = product(dout, scene.v + j * D, D, &most);
            exact ds = p * (dp - through) * scale;
            /* roundings of s, of dp, of a sum over keys or queries; p below TINY may be zero */
            exact off = p * ((exact)(D + 4) * 2 * size * scale + 2 * fabsl((exact)scene.lse[c]) +
                             (exact)(D + scene.N * HEADS) + 16) +
                        TINY / U;
            exact unit = off * (most + least) * scale;
            for (int d = 0; d < D; d++) {
                dq[d] += ds * (exact)k[d], sq[d] += unit * fabsl((exact)k[d]);
                dk[j * D + d] += ds * (exact)q[d], sk[j * D + d] += unit * fabsl((exact)q[d]);
                dv[j * D + d] += p * (exact)dout[d];
                sv[j * D + d] += off * fabsl((exact)dout[d]);
            }
        }
        for (int d = 0; d < D; d++)
            note(t, (double)scene.dq[c * D + d], dq[d], U * sq[d], (double)D, (double)c, 1);
    }
    for (int i = 0; i < scene.N * D; i++) {
        note(t, (double)scene.dk[i], dk[i], U * sk[i], (double)D, (double)i, 2);
        note(t, (double)scene.dv[i], dv[i], U * sv[i], (double)D, (double)i, 3);
    }
}

static void attention(const char *level)
{
    scene_fill();
    attention_forward(level);
    attention_backward(level);
    check_margins("attention");
}

/* ---- matrix multiplication ------------------------------------------------------------------- */

static exact element(const struct operand *x, int i, int j, enum gemm_format format)
{
    real v = x->trans ? x->p[(ptrdiff_t)j * x->ld + i] : x->p[(ptrdiff_t)i * x->ld + j];
    return (exact)(format == GEMM_BF16 ? float_of_bf16(bf16_of(v)) : v);
}

/* Providers of bfloat16 may take a subnormal operand (before or after rounding) for zero, and a
 * subnormal product. */
static void gemm(const struct gemm_provider *by)
{
    enum gemm_format format = gemm_format_of(by);
    int M = 1 + (int)rng_below(&r, 20), deep = rng_below(&r, 4) == 0;
    int N = 1 + (int)rng_below(&r, deep ? 5 : 40), K = 1 + (int)rng_below(&r, deep ? 600 : 130);
    int ta = (int)rng_below(&r, 2), tb = (int)rng_below(&r, 2);
    int lda = (ta ? M : K) + (int)rng_below(&r, 3), ldb = (tb ? K : N) + (int)rng_below(&r, 3);
    float most = sqrtf(1e37F / (float)(K + 2));
    int room = M * N;
    if (ta ? K * lda > ROOM : M * lda > ROOM)
        M = 1, lda = ta ? 1 : K;
    if (tb ? N * ldb > ROOM : K * ldb > ROOM)
        N = 1, ldb = tb ? K : 1;
    room = M * N;
    real *a = filled(0, (size_t)((ta ? K : M) * lda), any_mood(), most);
    real *b = filled(1, (size_t)((tb ? N : K) * ldb), any_mood(), most);
    real *c = filled(2, (size_t)room, any_mood(), 1e30F), *was = take(3, (size_t)room);
    real *bias = filled(4, (size_t)N, any_mood(), 1e30F);
    uint32_t what = rng_u32(&r);
    if (rng_below(&r, 8) == 0)
        a[rng_below(&r, (uint32_t)((ta ? K : M) * lda))] = what & 8 ? NAN : INFINITY;
    struct gemm_job j = {.format = format,
                         .M = M,
                         .N = N,
                         .K = K,
                         .alpha = what & 1 ? 1 : -0.5F,
                         .beta = what & 2 ? 1 : 0,
                         .a = {a, lda, ta, NULL},
                         .b = {b, ldb, tb, NULL},
                         .C = c,
                         .ldc = N,
                         .bias = what & 4 ? bias : NULL};
    struct tally *t = tally_of("gemm", gemm_name(by));
    exact low = format == GEMM_BF16 ? 0x1p-126L : 0x1p-149L;
    memcpy(was, c, (size_t)room * sizeof *c);
    gemm_run(&j);
    for (int m = 0; m < M; m++)
        for (int n = 0; n < N; n++) {
            exact sum = 0, size = 0, lost = 0, alpha = (exact)j.alpha;
            for (int k = 0; k < K; k++) {
                exact x = element(&j.a, m, k, format), y = element(&j.b, k, n, format);
                sum += x * y;
                size += fabsl(x * y);
                if (format == GEMM_BF16 && (fabsl(element(&j.a, m, k, GEMM_FP32)) < 0x1p-126L ||
                                            fabsl(element(&j.b, k, n, GEMM_FP32)) < 0x1p-126L))
                    lost += fabsl(x * y);
            }
            exact more = (j.beta != 0 ? (exact)was[m * N + n] : 0) + (j.bias ? (exact)bias[n] : 0);
            exact plus = (j.beta != 0 ? fabsl((exact)was[m * N + n]) : 0) +
                         (j.bias ? fabsl((exact)bias[n]) : 0);
            exact want = alpha * sum + more;
            double got = (double)c[m * N + n];
            if (!isfinite(size))
                want = isnan(size) ? NAN : INFINITY;
            else /* what may be lost explains as much of the error */
                want = fabsl((exact)got - want) <= lost ? (exact)got
                       : (exact)got > want              ? want + lost
                                                        : want - lost;
            note(t, got, want, ((exact)K + 3) * (U * (fabsl(alpha) * size + plus) + low), (double)K,
                 (double)M, (double)N);
        }
    check_margins("gemm");
}

static void quantised(const char *level)
{
    int kind = 1 + (int)rng_below(&r, QUANT_KINDS - 1), O = 1 + (int)rng_below(&r, 40);
    int C = quant_row_bytes((enum quant_kind)kind, 32) ? 32 * (1 + (int)rng_below(&r, 20))
                                                       : 256 * (1 + (int)rng_below(&r, 2));
    int N = 1 + (int)rng_below(&r, 9);
    if (N * C > ROOM)
        N = 1;
    struct quant *q = quant_random(kind, O, C, rng_u32(&r));
    real *x = filled(0, (size_t)(N * C), any_mood(), 1e20F), *y = take(1, (size_t)(N * O));
    static real w[ROOM];
    struct tally *t = tally_of("quantised_gemm", level);
    poison(x, (size_t)(N * C));
    quant_linear(y, x, NULL, q, NULL, N, 0);
    for (int o = 0; o < O; o++) {
        quant_row(w, q, o);
        exact heaviest = 0;
        for (int c = 0; c < C; c++)
            heaviest = fabsl((exact)w[c]) > heaviest ? fabsl((exact)w[c]) : heaviest;
        for (int n = 0; n < N; n++) {
            exact want = 0, size = 0;
            for (int b = 0; b < C; b += QUANT_BLOCK) {
                const real *at = x + n * C + b;
                float most = 0, per;
                int finite = 1;
                for (int i = 0; i < QUANT_BLOCK; i++) {
                    most = fabsf(at[i]) > most ? fabsf(at[i]) : most;
                    finite &= isfinite(at[i]) != 0;
                }
                if (!finite)
                    want = NAN;
                per = most >= 1e-30F ? 127 / most : 0;
                for (int i = 0; i < QUANT_BLOCK && finite; i++) {
                    exact v = (exact)rintf(at[i] * per) * (exact)most / 127;
                    want += v * (exact)w[b + i];
                    size += fabsl(v) * heaviest;
                }
            }
            note(t, (double)y[n * O + o], want, ((exact)C / 32 + 6) * U * size + TINY, (double)kind,
                 (double)C, (double)N);
        }
    }
    quant_free(q);
    check_margins("the quantised product");
}

/* ---- running --------------------------------------------------------------------------------- */

static const char *const level_name[] = {"ref", "avx2", "avx512", "amx"};

/* The level that a provider of gemm.h belongs to. */
static enum cpu_level level_of(const char *name)
{
    if (strcmp(name, "amx") == 0)
        return CPU_AMX;
    return strncmp(name, "avx512", 6) == 0 ? CPU_AVX512
           : strncmp(name, "avx2", 4) == 0 ? CPU_AVX2
                                           : CPU_REF;
}

static void everything(enum cpu_level level)
{
    struct err e = {0};
    rng_init(&r, seed, RNG_TEST, 20, 0);
    for (int i = 0; i < 12; i++) {
        inline_functions();
        activations();
        norms();
        rope();
        cross_entropy();
        distillation();
        exponentials();
        sums();
        optimiser();
    }
    for (int i = 0; i < 3; i++) {
        attention(level_name[level]);
        quantised(level_name[level]);
        for (int k = 0; gemm_providers()[k]; k++) {
            const struct gemm_provider *p = gemm_providers()[k];
            if (level_of(gemm_name(p)) != level || !gemm_available(p))
                continue;
            t_ok(gemm_use(gemm_name(p), &e), &e);
            gemm(p);
        }
    }
}

static double seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void within_bounds(enum cpu_level level)
{
    const char *from = getenv("PROOF_SEED"), *limit = getenv("PROOF_SECONDS");
    volatile exact one_more = 1 + LDBL_EPSILON;
    double end = seconds() + (limit ? atof(limit) : 0);
    setenv("DEPTHSCOPE_CPU", level_name[level], 1); /* before the CPU is first queried */
    unsetenv("DEPTHSCOPE_GEMM");
    const char *set = level == CPU_REF ? "plain" : level == CPU_AVX2 ? "avx2" : "avx512";
    if ((level == CPU_AMX && !cpu_has("amx_bf16")) || !cpu_allows(level) ||
        strcmp(vec()->name, set) != 0 || (level == CPU_AMX && !cpu_has_amx()))
        t_skip("this processor or build lacks %s", level_name[level]);
    long_double_is_longer = LDBL_MANT_DIG > DBL_MANT_DIG && one_more > 1; /* not under valgrind */
    seed = from ? strtoull(from, NULL, 10) : 1;
    for (int rounds = limit ? 1 : 4; rounds > 0 || (limit && seconds() < end); rounds--)
        everything(level), seed++;
    for (int i = 0; limit && i < n_tallies; i++)
        printf("ulp %s %s %g %llu %.4g %.4g\n", tallies[i].op, tallies[i].by, most_of(&tallies[i]),
               (unsigned long long)tallies[i].cases, tallies[i].most,
               tallies[i].sum / (double)tallies[i].cases);
    if (limit)
        printf("seed %llu\n", (unsigned long long)seed);
    fflush(stdout);
    for (int i = 0; i < n_tallies; i++) {
        const struct tally *t = &tallies[i];
        t_truef(t->most <= most_of(t), "%s by %s is off by %.4g, more than %g (%s): %s", t->op,
                t->by, t->most, most_of(t), t->of->unit, t->at);
    }
}

T(ref_kernels_are_within_their_bounds)
{
    within_bounds(CPU_REF);
}

T(avx2_kernels_are_within_their_bounds)
{
    within_bounds(CPU_AVX2);
}

T(avx512_kernels_are_within_their_bounds)
{
    within_bounds(CPU_AVX512);
}

T(amx_kernels_are_within_their_bounds)
{
    within_bounds(CPU_AMX);
}
