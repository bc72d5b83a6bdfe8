/* The inner loops of attention, written once and compiled for each vector width.  The including
 * file defines:
 *   KERNEL       target attribute of every function
 *   VEC, W       vector of W floats
 *   ZERO LOAD STORE SET1 MUL ADD SUB MIN MAX FMA      on VEC
 *   FIRST(n, x, y)  the first n lanes of x, the rest of y; 0 <= n <= W
 *   POWER(t)     the float whose exponent is the low bits of t
 *   LOW(x), HIGH(x)  the lower and the upper of two bfloat16 in each lane, as VEC     WIDEN(p)  W bfloat16 at p
 *   transpose(v) W vectors as rows become columns
 *   COLS         vectors of columns that a weighted sum keeps in registers for each of 4 rows
 * and NAME, AVAILABLE. */
#ifndef DS_ENGINE_KERNELS_ATTN_TMPL_H
#define DS_ENGINE_KERNELS_ATTN_TMPL_H
#ifdef KERNEL

#include <string.h>

#include "base/cpu.h"
#include "engine/attn_impl.h"
#include "engine/bf16.h"

#define INLINE static inline __attribute__((always_inline))
enum { GROUPS = V_LANES / W, ROWS = 4 };

/* ---- softmax ---- */

/* v_exp, step by step. */
KERNEL INLINE VEC exp_vec(VEC x)
{
    const VEC magic = SET1(12583038.0F);
    VEC c = MAX(SET1(EXP_LEAST), MIN(SET1(88.37F), x));
    VEC t = FMA(c, SET1(1.44269504F), magic), n = SUB(t, magic);
    VEC r = FMA(n, SET1(-0.693145752F), c);
    r = FMA(n, SET1(-1.42860677e-6F), r);
    VEC p = SET1(0.002788224F);
    p = FMA(p, r, SET1(0.0167263625F));
    p = FMA(p, r, SET1(0.0833327505F));
    p = FMA(p, r, SET1(0.33333154F));
    p = FMA(p, r, SET1(1.0F));
    p = FMA(p, r, SET1(2.0F));
    p = FMA(p, r, SET1(2.0F));
    return MUL(p, POWER(t));
}

/* Zeroes [from, to) of a row; both are multiples of V_LANES. */
KERNEL INLINE void clear(float *s, int from, int to)
{
    for (int j = from; j < to; j += W)
        STORE(s + j, ZERO);
}

INLINE int lanes_before(int n)
{
    return n < 0 ? 0 : n > W ? W : n;
}

/* In the group of V_LANES at j, sets everything outside [from, to) to y. */
KERNEL INLINE void clip(float *s, int j, int from, int to, VEC y)
{
    for (int g = 0; g < GROUPS; g++, j += W) {
        VEC x = FIRST(lanes_before(to - j), LOAD(s + j), y);
        STORE(s + j, FIRST(lanes_before(from - j), y, x));
    }
}

KERNEL INLINE float largest(const float *s, int begin, int end)
{
    VEC most[GROUPS];
    float lane[V_LANES];
    for (int g = 0; g < GROUPS; g++)
        most[g] = SET1(-INFINITY);
    for (int j = begin; j < end; j += V_LANES)
        for (int g = 0; g < GROUPS; g++)
            most[g] = MAX(LOAD(s + j + (ptrdiff_t)g * W), most[g]);
    for (int g = 0; g < GROUPS; g++)
        STORE(lane + (ptrdiff_t)g * W, most[g]);
    return v_max(lane, V_LANES);
}

KERNEL static float softmax(float *s, int from, int to, int width, float *top)
{
    *top = -INFINITY;
    if (from >= to) {
        clear(s, 0, width);
        return 0;
    }
    int begin = from / V_LANES * V_LANES, end = (to + V_LANES - 1) / V_LANES * V_LANES;
    VEC sum[GROUPS];
    float lane[V_LANES];
    clear(s, 0, begin);
    clip(s, begin, from, to, SET1(-INFINITY));
    clip(s, end - V_LANES, from, to, SET1(-INFINITY));
    clear(s, end, width);
    *top = largest(s, begin, end);
    VEC shift = SET1(*top);
    for (int g = 0; g < GROUPS; g++)
        sum[g] = ZERO;
    for (int j = begin; j < end; j += V_LANES)
        for (int g = 0; g < GROUPS; g++) {
            float *at = s + j + (ptrdiff_t)g * W;
            VEC p = exp_vec(SUB(LOAD(at), shift));
            STORE(at, p);
            sum[g] = ADD(sum[g], p);
        }
    for (int g = 0; g < GROUPS; g++)
        STORE(lane + (ptrdiff_t)g * W, sum[g]);
    return v_fold(lane);
}

KERNEL static void grad(float *s, float *ds, int from, int to, int width, float lse, float delta)
{
    if (from >= to) {
        clear(s, 0, width);
        clear(ds, 0, width);
        return;
    }
    VEC shift = SET1(lse), less = SET1(delta);
    int begin = from / V_LANES * V_LANES, end = (to + V_LANES - 1) / V_LANES * V_LANES;
    clear(s, 0, begin);
    clear(ds, 0, begin);
    for (int j = begin; j < end; j += W) {
        VEC p = exp_vec(SUB(LOAD(s + j), shift));
        STORE(s + j, p);
        STORE(ds + j, MUL(p, SUB(LOAD(ds + j), less)));
    }
    for (int j = begin; j<end; j += end - V_LANES> begin ? end - V_LANES - begin : V_LANES) {
        clip(s, j, from, to, ZERO); /* the groups at both ends */
        clip(ds, j, from, to, ZERO);
    }
    clear(s, end, width);
    clear(ds, end, width);
}

/* ---- scores over rows of keys ---- */

/* Adds W units (floats, or pairs of bfloat16) of W keys, with v[u] unit u of all of them, to the
 * sums of `rows` rows.  rows and pairs are constants in each call. */
KERNEL INLINE void dots_step(const int rows, const int pairs, float *s, int lds, const float *q,
                             int ldq, const VEC v[W], int first, int last, VEC scale)
{
    VEC sum[ROWS];
    for (int r = 0; r < rows; r++)
        sum[r] = first ? ZERO : LOAD(s + (ptrdiff_t)r * lds);
#pragma GCC unroll 16
    for (int u = 0; u < W; u++) {
        VEC low = pairs ? LOW(v[u]) : v[u];
        for (int r = 0; r < rows; r++)
            sum[r] = FMA(SET1(q[(ptrdiff_t)r * ldq + (pairs ? 2 * u : u)]), low, sum[r]);
        if (!pairs)
            continue;
        VEC high = HIGH(v[u]);
        for (int r = 0; r < rows; r++)
            sum[r] = FMA(SET1(q[(ptrdiff_t)r * ldq + 2 * u + 1]), high, sum[r]);
    }
    for (int r = 0; r < rows; r++)
        STORE(s + (ptrdiff_t)r * lds, last ? MUL(sum[r], scale) : sum[r]);
}

/* Addresses of W keys; after the last one it is repeated, and those results are not used. */
INLINE void rows_at(const char *row[W], const struct attn_rows *x, int j, int n, int pairs)
{
    const char *base = pairs ? (const char *)x->p16 : (const char *)x->p;
    ptrdiff_t bytes = x->ld * (ptrdiff_t)(pairs ? sizeof *x->p16 : sizeof *x->p);
    for (int i = 0; i < W; i++) {
        int key = j + i < n ? j + i : n - 1;
        row[i] = base + (x->row ? x->row[key] : key) * bytes;
    }
}

/* The remaining units of W rows, fewer than W, followed by zeros. */
static __attribute__((noinline)) void ends_of(float (*end)[W], const char *const *row, size_t at,
                                              size_t bytes)
{
    memset(end, 0, W * sizeof *end);
    for (int i = 0; i < W; i++)
        memcpy(end[i], row[i] + at, bytes);
}

KERNEL INLINE void dots_of(const int pairs, float *s, int lds, const float *q, int ldq, int R,
                           const struct attn_rows *x, int n, int D, VEC scale)
{
    const int step = pairs ? 2 * W : W;
    const size_t size = pairs ? sizeof *x->p16 : sizeof *x->p;
    for (int j = 0; j < n; j += W) {
        const char *row[W];
        rows_at(row, x, j, n, pairs);
        for (int d = 0; d < D; d += step) {
            float end[W][W];
            VEC v[W];
            int is_end = d + step > D, r = 0;
            if (is_end)
                ends_of(end, row, (size_t)d * size, (size_t)(D - d) * size);
#pragma GCC unroll 16
            for (int i = 0; i < W; i++)
                v[i] = LOAD(is_end ? end[i]
                                   : (const float *)(const void *)(row[i] + (size_t)d * size));
            transpose(v);
            float *to = s + j;
            const float *by = q + d;
            for (; r + ROWS <= R;
                 r += ROWS, to += (ptrdiff_t)ROWS * lds, by += (ptrdiff_t)ROWS * ldq)
                dots_step(ROWS, pairs, to, lds, by, ldq, v, d == 0, d + step >= D, scale);
            for (; r < R; r++, to += lds, by += ldq)
                dots_step(1, pairs, to, lds, by, ldq, v, d == 0, d + step >= D, scale);
        }
    }
}

KERNEL static void dots(float *s, int lds, const float *q, int ldq, int R,
                        const struct attn_rows *x, int n, int D, float scale)
{
    if (x->p16)
        dots_of(1, s, lds, q, ldq, R, x, n, D, SET1(scale));
    else
        dots_of(0, s, lds, q, ldq, R, x, n, D, SET1(scale));
}

/* ---- weighted sums of rows of values ---- */

/* y (rows, ldy), `cols` vectors of columns from d on, += s x.  rows, cols and pairs are constants
 * in each call. */
KERNEL INLINE void mix_vectors(const int rows, const int cols, const int pairs, float *y, int ldy,
                               const float *s, int lds, const struct attn_rows *x, int d, int n)
{
    VEC sum[ROWS][COLS], v[COLS];
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            sum[r][c] = LOAD(y + (ptrdiff_t)r * ldy + d + (ptrdiff_t)c * W);
    for (int j = 0; j < n; j++) {
        ptrdiff_t at = (x->row ? x->row[j] : j) * x->ld + d;
        for (int c = 0; c < cols; c++)
            v[c] =
                pairs ? WIDEN(x->p16 + at + (ptrdiff_t)c * W) : LOAD(x->p + at + (ptrdiff_t)c * W);
        for (int r = 0; r < rows; r++) {
            VEC p = SET1(s[(ptrdiff_t)r * lds + j]);
            for (int c = 0; c < cols; c++)
                sum[r][c] = FMA(p, v[c], sum[r][c]);
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++)
            STORE(y + (ptrdiff_t)r * ldy + d + (ptrdiff_t)c * W, sum[r][c]);
}

/* The columns from d on, too few for a vector. */
KERNEL static void mix_rest(float *y, const float *s, const struct attn_rows *x, int d, int n,
                            int D)
{
    float end[W] = {0};
    size_t left = (size_t)(D - d);
    memcpy(end, y + d, left * sizeof *end);
    VEC sum = LOAD(end);
    for (int j = 0; j < n; j++) {
        ptrdiff_t at = (x->row ? x->row[j] : j) * x->ld + d;
        for (size_t i = 0; i < left; i++)
            end[i] = x->p16 ? float_of_bf16(x->p16[at + (ptrdiff_t)i]) : x->p[at + (ptrdiff_t)i];
        sum = FMA(SET1(s[j]), LOAD(end), sum);
    }
    STORE(end, sum);
    memcpy(y + d, end, left * sizeof *end);
}

KERNEL INLINE void mix_rows(const int rows, const int pairs, float *y, const float *s, int lds,
                            const struct attn_rows *x, int n, int D)
{
    int d = 0;
    for (; d + COLS * W <= D; d += COLS * W)
        mix_vectors(rows, COLS, pairs, y, D, s, lds, x, d, n);
    for (; d + W <= D; d += W)
        mix_vectors(rows, 1, pairs, y, D, s, lds, x, d, n);
    for (int r = 0; r < rows && d < D; r++)
        mix_rest(y + (ptrdiff_t)r * D, s + (ptrdiff_t)r * lds, x, d, n, D);
}

KERNEL INLINE void mix_of(const int pairs, float *y, const float *s, int lds, int R,
                          const struct attn_rows *x, int n, int D)
{
    int r = 0;
    for (; r + ROWS <= R; r += ROWS, y += (ptrdiff_t)ROWS * D, s += (ptrdiff_t)ROWS * lds)
        mix_rows(ROWS, pairs, y, s, lds, x, n, D);
    for (; r < R; r++, y += D, s += lds)
        mix_rows(1, pairs, y, s, lds, x, n, D);
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
