/* The inner loops of attention, written once and compiled for each vector width.  The including file defines:
 *   KERNEL       target attribute of every function
 *   VEC, W       vector of W floats         LANES, LANES_OF(n)  mask of the first n lanes, 0 <= n <= W
 *   ZERO LOAD STORE LOAD_PART SET1 MUL ADD SUB MIN MAX FMA      on VEC
 *   POWER(t)     2^i from t = 1.5 * 2^23 + i    KEEP(x, y)  y where !(x < EXP_LEAST), else 0
 *   LOW(x), HIGH(x)  the lower and the upper of two bfloat16 in each lane, as VEC     WIDEN(p)  W bfloat16 at p
 *   transpose(v) W vectors as rows become columns
 *   COLS         vectors of columns that a mix keeps in registers for each of 4 rows
 * and NAME, AVAILABLE. */
#ifndef DS_ENGINE_KERNELS_ATTN_TMPL_H
#define DS_ENGINE_KERNELS_ATTN_TMPL_H
#ifdef KERNEL

#include <immintrin.h>

#include "base/cpu.h"
#include "engine/attn_impl.h"

enum { GROUPS = V_LANES / W };

/* ---- exponentials ---- */

/* v_exp, step by step. */
KERNEL static inline VEC exp_vec(VEC x)
{
    const VEC magic = SET1(12582912.0F);
    VEC c = MAX(SET1(-87.33F), MIN(SET1(88.37F), x));
    VEC t = FMA(c, SET1(1.44269504F), magic), n = SUB(t, magic);
    VEC r = FMA(n, SET1(-0.693145752F), c);
    r = FMA(n, SET1(-1.42860677e-6F), r);
    VEC p = SET1(0.001394112F);
    p = FMA(p, r, SET1(0.00836318123F));
    p = FMA(p, r, SET1(0.0416663752F));
    p = FMA(p, r, SET1(0.16666577F));
    p = FMA(p, r, SET1(0.5F));
    p = ADD(FMA(MUL(p, r), r, r), SET1(1.0F));
    return KEEP(x, MUL(p, POWER(t)));
}

static inline void fill(float *s, int from, int to, float value)
{
    for (int j = from; j < to; j++)
        s[j] = value;
}

KERNEL static float softmax(float *s, int from, int to, int width, float *top)
{
    *top = -INFINITY;
    if (from >= to) {
        fill(s, 0, width, 0);
        return 0;
    }
    int begin = from / V_LANES * V_LANES, end = (to + V_LANES - 1) / V_LANES * V_LANES;
    VEC most[GROUPS], sum[GROUPS], shift;
    float lane[V_LANES];
    fill(s, 0, begin, 0);
    fill(s, begin, from, -INFINITY);
    fill(s, to, end, -INFINITY);
    fill(s, end, width, 0);
    for (int g = 0; g < GROUPS; g++)
        most[g] = SET1(-INFINITY);
    for (int j = begin; j < end; j += V_LANES)
        for (int g = 0; g < GROUPS; g++)
            most[g] = MAX(LOAD(s + j + g * W), most[g]);
    for (int g = 0; g < GROUPS; g++)
        STORE(lane + g * W, most[g]);
    *top = v_max(lane, V_LANES);
    shift = SET1(*top);
    for (int g = 0; g < GROUPS; g++)
        sum[g] = ZERO;
    for (int j = begin; j < end; j += V_LANES)
        for (int g = 0; g < GROUPS; g++) {
            VEC p = exp_vec(SUB(LOAD(s + j + g * W), shift));
            STORE(s + j + g * W, p);
            sum[g] = ADD(sum[g], p);
        }
    for (int g = 0; g < GROUPS; g++)
        STORE(lane + g * W, sum[g]);
    return v_fold(lane);
}

KERNEL static void grad(float *s, float *ds, int from, int to, int width, float lse, float delta)
{
    VEC shift = SET1(lse), less = SET1(delta);
    from = from < to ? from : width;
    to = to > from ? to : width;
    int begin = from / W * W, end = (to + W - 1) / W * W;
    fill(s, 0, from, 0);
    fill(ds, 0, from, 0);
    fill(s, to, end, 0);
    for (int j = begin; j < end; j += W) {
        VEC p = exp_vec(SUB(LOAD(s + j), shift));
        STORE(s + j, p);
        STORE(ds + j, MUL(p, SUB(LOAD(ds + j), less)));
    }
    fill(s, begin, from, 0); /* the vectors at both ends wrote here */
    fill(ds, begin, from, 0);
    fill(s, to, width, 0);
    fill(ds, to, width, 0);
}

/* ---- rows of keys and values ---- */

KERNEL static inline VEC load_first(const float *p, int n)
{
    return n >= W ? LOAD(p) : LOAD_PART(LANES_OF(n), p);
}

/* W units (floats, or pairs of bfloat16) from element d on of each of W rows, turned: v[u] holds unit u of all of them.
 * Behind D there are zeros. */
KERNEL static inline __attribute__((always_inline)) void turned_units(VEC v[W], const int pairs,
                                                                      const struct attn_rows *x,
                                                                      const ptrdiff_t *at, int d,
                                                                      int D)
{
    for (int i = 0; i < W; i++) {
        if (!pairs)
            v[i] = load_first(x->p + at[i] + d, D - d);
        else if (D - d >= 2 * W)
            v[i] = LOAD((const float *)(const void *)(x->p16 + at[i] + d));
        else {
            uint16_t end[2 * W] = {0};
            memcpy(end, x->p16 + at[i] + d, (size_t)(D - d) * sizeof *end);
            v[i] = LOAD((const float *)(const void *)end);
        }
    }
    transpose(v);
}

/* Adds W units of W keys to the sums of `rows` rows.  rows is a constant in each call. */
KERNEL static inline __attribute__((always_inline)) void
dots_step(const int rows, const int pairs, float *s, int lds, const float *q, int ldq,
          const VEC v[W], int first, int last, VEC scale)
{
    VEC sum[4];
    for (int r = 0; r < rows; r++)
        sum[r] = first ? ZERO : LOAD(s + (ptrdiff_t)r * lds);
#pragma GCC unroll 16
    for (int u = 0; u < W; u++) {
        if (pairs) {
            VEC low = LOW(v[u]), high = HIGH(v[u]);
            for (int r = 0; r < rows; r++)
                sum[r] = FMA(SET1(q[(ptrdiff_t)r * ldq + 2 * u]), low, sum[r]);
            for (int r = 0; r < rows; r++)
                sum[r] = FMA(SET1(q[(ptrdiff_t)r * ldq + 2 * u + 1]), high, sum[r]);
        } else
            for (int r = 0; r < rows; r++)
                sum[r] = FMA(SET1(q[(ptrdiff_t)r * ldq + u]), v[u], sum[r]);
    }
    for (int r = 0; r < rows; r++)
        STORE(s + (ptrdiff_t)r * lds, last ? MUL(sum[r], scale) : sum[r]);
}

KERNEL static inline __attribute__((always_inline)) void dots_of(const int pairs, float *s, int lds,
                                                                 const float *q, int ldq, int R,
                                                                 const struct attn_rows *x, int n,
                                                                 int D, float scale)
{
    const int step = pairs ? 2 * W : W;
    VEC v[W], by = SET1(scale);
    for (int j = 0; j < n; j += W) {
        ptrdiff_t at[W];
        for (int i = 0; i < W; i++) {
            int key = j + i < n ? j + i : n - 1;
            at[i] = (x->row ? x->row[key] : key) * x->ld;
        }
        for (int d = 0; d < D; d += step) {
            int r = 0, first = d == 0, last = d + step >= D;
            turned_units(v, pairs, x, at, d, D);
            for (; r + 4 <= R; r += 4)
                dots_step(4, pairs, s + (ptrdiff_t)r * lds + j, lds, q + (ptrdiff_t)r * ldq + d,
                          ldq, v, first, last, by);
            for (; r < R; r++)
                dots_step(1, pairs, s + (ptrdiff_t)r * lds + j, lds, q + (ptrdiff_t)r * ldq + d,
                          ldq, v, first, last, by);
        }
    }
}

KERNEL static void dots(float *s, int lds, const float *q, int ldq, int R,
                        const struct attn_rows *x, int n, int D, float scale)
{
    if (x->p16)
        dots_of(1, s, lds, q, ldq, R, x, n, D, scale);
    else
        dots_of(0, s, lds, q, ldq, R, x, n, D, scale);
}

/* y (rows, ldy) columns [0, COLS * W) = s x.  rows is a constant in each call. */
KERNEL static inline __attribute__((always_inline)) void
mix_whole(const int rows, const int pairs, float *y, int ldy, const float *s, int lds,
          const struct attn_rows *x, int d, int n)
{
    VEC sum[4][COLS], v[COLS];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < COLS; c++)
            sum[r][c] = ZERO;
    for (int j = 0; j < n; j++) {
        ptrdiff_t at = (x->row ? x->row[j] : j) * x->ld + d;
        for (int c = 0; c < COLS; c++)
            v[c] =
                pairs ? WIDEN(x->p16 + at + (ptrdiff_t)c * W) : LOAD(x->p + at + (ptrdiff_t)c * W);
        for (int r = 0; r < rows; r++) {
            VEC p = SET1(s[(ptrdiff_t)r * lds + j]);
            for (int c = 0; c < COLS; c++)
                sum[r][c] = FMA(p, v[c], sum[r][c]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < COLS; c++)
            STORE(y + (ptrdiff_t)r * ldy + (ptrdiff_t)c * W, sum[r][c]);
}

/* The columns that are left, one row. */
KERNEL static void mix_rest(float *y, const float *s, const struct attn_rows *x, int d, int n,
                            int D)
{
    for (; d < D; d++) {
        float sum = 0;
        for (int j = 0; j < n; j++) {
            ptrdiff_t at = (x->row ? x->row[j] : j) * x->ld + d;
            sum = v_fma(s[j], x->p16 ? float_of_bf16(x->p16[at]) : x->p[at], sum);
        }
        y[d] = sum;
    }
}

KERNEL static inline __attribute__((always_inline)) void mix_of(const int pairs, float *y,
                                                                const float *s, int lds, int R,
                                                                const struct attn_rows *x, int n,
                                                                int D)
{
    int r = 0, whole = D / (COLS * W) * (COLS * W);
    for (; r + 4 <= R; r += 4)
        for (int d = 0; d < whole; d += COLS * W)
            mix_whole(4, pairs, y + (ptrdiff_t)r * D + d, D, s + (ptrdiff_t)r * lds, lds, x, d, n);
    for (; r < R; r++)
        for (int d = 0; d < whole; d += COLS * W)
            mix_whole(1, pairs, y + (ptrdiff_t)r * D + d, D, s + (ptrdiff_t)r * lds, lds, x, d, n);
    for (r = 0; r < R; r++)
        mix_rest(y + (ptrdiff_t)r * D, s + (ptrdiff_t)r * lds, x, whole, n, D);
}

KERNEL static void mix(float *y, const float *s, int lds, int R, const struct attn_rows *x, int n,
                       int D)
{
    if (x->p16)
        mix_of(1, y, s, lds, R, x, n, D);
    else
        mix_of(0, y, s, lds, R, x, n, D);
}

static int available(void)
{
    return AVAILABLE;
}

const struct attn_kernels NAME = {
    .available = available, .dots = dots, .mix = mix, .softmax = softmax, .grad = grad};

#endif
#endif
