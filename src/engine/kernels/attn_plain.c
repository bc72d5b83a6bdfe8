/* The inner loops of attention in plain C: the reference for the vector ones. */
#include "engine/attn_impl.h"
#include "engine/bf16.h"

static int plain_available(void)
{
    return 1;
}

static real element(const struct attn_rows *x, int j, int d)
{
    ptrdiff_t at = (x->row ? x->row[j] : j) * x->ld + d;
    return x->p16 ? (real)float_of_bf16(x->p16[at]) : x->p[at];
}

static void plain_dots(real *s, int lds, const real *q, int ldq, int R, const struct attn_rows *x,
                       int n, int D, real scale)
{
    for (int r = 0; r < R; r++)
        for (int j = 0; j < n; j++) {
            real sum = 0;
            for (int d = 0; d < D; d++)
                sum = v_fma(q[(ptrdiff_t)r * ldq + d], element(x, j, d), sum);
            s[(ptrdiff_t)r * lds + j] = sum * scale;
        }
}

static void plain_mix(real *y, const real *s, int lds, int R, const struct attn_rows *x, int n,
                      int D)
{
    for (int r = 0; r < R; r++, y += D, s += lds)
        for (int j = 0; j < n; j++)
            for (int d = 0; d < D; d++)
                y[d] = v_fma(s[j], element(x, j, d), y[d]);
}

static void fill(real *s, int from, int to, real value)
{
    for (int j = from; j < to; j++)
        s[j] = value;
}

static real plain_softmax(real *s, int from, int to, int width, real *top)
{
    real lane[V_LANES] = {0};
    *top = -INFINITY;
    if (from >= to) {
        fill(s, 0, width, 0);
        return 0;
    }
    int begin = from / V_LANES * V_LANES, end = (to + V_LANES - 1) / V_LANES * V_LANES;
    fill(s, 0, begin, 0);
    fill(s, begin, from, -INFINITY);
    fill(s, to, end, -INFINITY);
    fill(s, end, width, 0);
    *top = v_max(s + begin, (size_t)(end - begin));
    for (int j = begin; j < end; j += V_LANES) {
        V_SIMD
        for (int l = 0; l < V_LANES; l++) {
            real p = v_exp(s[j + l] - *top);
            s[j + l] = p;
            lane[l] += p;
        }
    }
    return v_fold(lane);
}

static void plain_grad(real *s, real *ds, int from, int to, int width, real lse, real delta)
{
    from = from < to ? from : width;
    to = to > from ? to : width;
    fill(s, 0, from, 0);
    fill(ds, 0, from, 0);
    V_SIMD
    for (int j = from; j < to; j++) {
        s[j] = v_exp(s[j] - lse);
        ds[j] = s[j] * (ds[j] - delta);
    }
    fill(s, to, width, 0);
    fill(ds, to, width, 0);
}

const struct attn_kernels attn_plain = {.available = plain_available,
                                        .dots = plain_dots,
                                        .mix = plain_mix,
                                        .softmax = plain_softmax,
                                        .grad = plain_grad};
