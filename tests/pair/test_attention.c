/* Attention against a plain double loop, and the promise that skipping is the same as masking. */
#include "engine/gemm.h"
#include "engine/ops.h"
#include "t.h"

enum { ROWS = 700 };

static uint32_t seed = 3;

static real draw(void)
{
    seed = seed * 1664525U + 1013904223U;
    return (real)((double)(seed >> 8) / 8388608.0 - 1);
}

static real *filled(size_t n)
{
    real *x = calloc(n + 1, sizeof *x);
    for (size_t i = 0; i < n; i++)
        x[i] = draw();
    return x;
}

struct scene {
    struct attn a;
    int32_t lo[ROWS], hi[ROWS], self[ROWS], seg_q[8], seg_k[8];
    uint8_t on[ROWS];
    real *q, *k, *v, *o, *lse, *dout, *dq, *dk, *dv;
};

static void scene_buffers(struct scene *s, int N, int M, int H, int K, int D)
{
    s->a.N = N, s->a.M = M, s->a.H = H, s->a.K = K, s->a.D = D;
    s->a.lo = s->lo, s->a.hi = s->hi, s->a.seg_q = s->seg_q, s->a.seg_k = s->seg_k;
    size_t nq = (size_t)N * (size_t)(H * D), nk = (size_t)M * (size_t)(K * D);
    s->q = filled(nq), s->k = filled(nk), s->v = filled(nk), s->dout = filled(nq);
    s->o = filled(nq), s->lse = filled((size_t)N * (size_t)H);
    s->dq = calloc(nq + 1, sizeof(real)), s->dk = calloc(nk + 1, sizeof(real)),
    s->dv = calloc(nk + 1, sizeof(real));
}

static void scene_free(struct scene *s)
{
    free(s->q), free(s->k), free(s->v), free(s->o), free(s->lse);
    free(s->dout), free(s->dq), free(s->dk), free(s->dv);
    free(s);
}

/* segs sequences of T rows, documents of `doc` rows within; every query sees its document up to itself. */
static struct scene *causal(int segs, int T, int doc, int H, int K, int D)
{
    struct scene *s = calloc(1, sizeof *s);
    scene_buffers(s, segs * T, segs * T, H, K, D);
    s->a.segs = segs;
    for (int i = 0; i < segs * T; i++) {
        s->lo[i] = i / T * T + i % T / doc * doc;
        s->hi[i] = i + 1;
        s->self[i] = i;
        s->on[i] = draw() > (real)-0.3;
    }
    for (int g = 0; g <= segs; g++)
        s->seg_q[g] = s->seg_k[g] = g * T;
    return s;
}

static int sees(const struct attn *a, int i, int j)
{
    return (j >= a->lo[i] && j < a->hi[i] && (!a->on || a->on[j])) || (a->self && a->self[i] == j);
}

static double score(const struct scene *s, int i, int j, int h)
{
    const struct attn *a = &s->a;
    const real *q = s->q + (i * a->H + h) * a->D, *k = s->k + (j * a->K + h / (a->H / a->K)) * a->D;
    double sum = 0;
    for (int d = 0; d < a->D; d++)
        sum += (double)q[d] * (double)k[d];
    return sum / sqrt(a->D);
}

/* One query head the slow way: output, log-sum-exp, and its terms of the gradients. */
static void slow_head(const struct scene *s, int i, int h, double *o, double *lse, double *dq,
                      double *dk, double *dv)
{
    const struct attn *a = &s->a;
    int D = a->D, kv = h / (a->H / a->K);
    const real *dout = s->dout + (i * a->H + h) * D, *q = s->q + (i * a->H + h) * D;
    double sum = 0, delta = 0;
    memset(o, 0, (size_t)D * sizeof *o);
    for (int j = 0; j < a->M; j++)
        sum += sees(a, i, j) ? exp(score(s, i, j, h)) : 0;
    *lse = log(sum);
    for (int j = 0; j < a->M; j++)
        for (int d = 0; d < D && sees(a, i, j); d++)
            o[d] += exp(score(s, i, j, h)) / sum * (double)s->v[(j * a->K + kv) * D + d];
    for (int d = 0; d < D; d++)
        delta += o[d] * (double)dout[d];
    for (int j = 0; j < a->M; j++) {
        if (!sees(a, i, j))
            continue;
        size_t at = (size_t)(j * a->K + kv) * (size_t)D;
        double p = exp(score(s, i, j, h)) / sum, dp = 0;
        for (int d = 0; d < D; d++)
            dp += (double)dout[d] * (double)s->v[at + (size_t)d];
        double ds = p * (dp - delta) / sqrt(D);
        for (int d = 0; d < D; d++) {
            dq[(i * a->H + h) * D + d] += ds * (double)s->k[at + (size_t)d];
            dk[at + (size_t)d] += ds * (double)q[d];
            dv[at + (size_t)d] += p * (double)dout[d];
        }
    }
}

static void near_all(const char *what, const real *got, const double *want, size_t n, double tol)
{
    for (size_t i = 0; i < n; i++)
        t_truef(fabs((double)got[i] - want[i]) <= tol, "%s[%zu] = %g, want %g", what, i,
                (double)got[i], want[i]);
}

static void against_loops(struct scene *s)
{
    const struct attn *a = &s->a;
    size_t nq = (size_t)(a->N * a->H * a->D), nk = (size_t)(a->M * a->K * a->D);
    double *dq = calloc(nq, sizeof *dq), *dk = calloc(nk, sizeof *dk), *dv = calloc(nk, sizeof *dv),
           o[64], lse;
    attention_fwd(s->o, s->lse, s->q, s->k, s->v, a);
    attention_bwd(s->dq, s->dk, s->dv, s->dout, s->q, s->k, s->v, s->o, s->lse, a);
    for (int i = 0; i < a->N; i++)
        for (int h = 0; h < a->H; h++) {
            slow_head(s, i, h, o, &lse, dq, dk, dv);
            near_all("o", s->o + (i * a->H + h) * a->D, o, (size_t)a->D, 2e-6);
            t_near(s->lse[i * a->H + h], lse, 2e-6);
        }
    near_all("dq", s->dq, dq, nq, 1e-5);
    near_all("dk", s->dk, dk, nk, 3e-5);
    near_all("dv", s->dv, dv, nk, 3e-5);
    free(dq), free(dk), free(dv);
    scene_free(s);
}

T(plain_causal_rows_agree_with_loops)
{
    against_loops(causal(3, 70, 70, 4, 4, 16));
    against_loops(causal(1, 130, 130, 2, 1, 8));
    against_loops(causal(5, 1, 1, 2, 2, 4));
}

T(documents_agree_with_loops)
{
    against_loops(causal(2, 100, 33, 4, 2, 16));
    against_loops(causal(1, 300, 7, 2, 2, 8));
}

T(masked_keys_and_own_key_agree_with_loops)
{
    struct scene *s = causal(2, 90, 40, 6, 2, 12);
    s->a.on = s->on;
    s->a.self = s->self;
    against_loops(s);
    s = causal(1, 90, 90, 2, 1, 12);
    s->a.on = s->on;
    s->a.self = s->self;
    memset(s->on, 0, sizeof s->on); /* nothing but itself */
    against_loops(s);
}

T(few_queries_on_a_long_cache_agree_with_loops)
{
    struct scene *s = calloc(1, sizeof *s);
    scene_buffers(s, 3, 290, 4, 2, 16);
    s->a.segs = 1;
    s->seg_q[1] = 3, s->seg_k[1] = 290;
    for (int i = 0; i < 3; i++)
        s->lo[i] = i, s->hi[i] = 288 + i;
    against_loops(s);
}

/* Keeps the rows of `keep` of the query side, and with `keys` of the key side too. */
static struct scene *gathered(const struct scene *s, const uint8_t *keep, int keys, int32_t *row)
{
    const struct attn *a = &s->a;
    struct scene *g = calloc(1, sizeof *g);
    int N = 0, M = 0, before[ROWS + 1] = {0};
    for (int j = 0; j < a->M; j++)
        before[j + 1] = before[j] + (!keys || keep[j]);
    for (int i = 0; i < a->N; i++)
        N += keep[i];
    M = before[a->M];
    scene_buffers(g, N, M, a->H, a->K, a->D);
    g->a.segs = a->segs;
    int qw = a->H * a->D, kw = a->K * a->D, n = 0;
    for (int i = 0; i < a->N; i++) {
        if (keep[i]) {
            g->lo[n] = before[a->lo[i]], g->hi[n] = before[a->hi[i]], g->self[n] = before[i];
            memcpy(g->q + n * qw, s->q + i * qw, (size_t)qw * sizeof(real));
            memcpy(g->dout + n * qw, s->dout + i * qw, (size_t)qw * sizeof(real));
            row[n++] = i;
        }
        if (!keys || keep[i]) {
            memcpy(g->k + before[i] * kw, s->k + i * kw, (size_t)kw * sizeof(real));
            memcpy(g->v + before[i] * kw, s->v + i * kw, (size_t)kw * sizeof(real));
        }
    }
    for (int t = 0; t <= a->segs; t++) {
        g->seg_k[t] = before[a->seg_k[t]];
        for (int i = 0; i < a->seg_q[t]; i++)
            g->seg_q[t] += keep[i];
    }
    g->a.self = a->self ? g->self : NULL;
    return g;
}

/* Bitwise in o, lse and dq; dk and dv sum the queries in other groups. */
static void same_as_gathered(struct scene *s, int keys)
{
    const struct attn *a = &s->a;
    int32_t row[ROWS];
    struct scene *g = gathered(s, s->on, keys, row);
    int qw = a->H * a->D, kw = a->K * a->D, at = 0;
    if (keys)
        s->a.on = s->on;
    for (int i = 0; i < a->N; i++)
        if (!s->on[i])
            memset(s->dout + i * qw, 0, (size_t)qw * sizeof(real));
    attention_fwd(s->o, s->lse, s->q, s->k, s->v, a);
    attention_fwd(g->o, g->lse, g->q, g->k, g->v, &g->a);
    attention_bwd(s->dq, s->dk, s->dv, s->dout, s->q, s->k, s->v, s->o, s->lse, a);
    attention_bwd(g->dq, g->dk, g->dv, g->dout, g->q, g->k, g->v, g->o, g->lse, &g->a);
    for (int n = 0; n < g->a.N; n++) {
        size_t width = (size_t)qw * sizeof(real);
        t_true(memcmp(g->o + n * qw, s->o + row[n] * qw, width) == 0);
        t_true(memcmp(g->lse + n * a->H, s->lse + row[n] * a->H, (size_t)a->H * sizeof(real)) == 0);
        t_true(memcmp(g->dq + n * qw, s->dq + row[n] * qw, width) == 0);
    }
    for (int j = 0; j < a->M; j++) {
        if (keys && !s->on[j])
            continue;
        for (int c = 0; c < kw; c++) {
            t_near(g->dk[at * kw + c], s->dk[j * kw + c], 1e-5);
            t_near(g->dv[at * kw + c], s->dv[j * kw + c], 1e-5);
        }
        at++;
    }
    scene_free(s);
    scene_free(g);
}

T(queries_left_out_change_nothing_for_the_others)
{
    if (strcmp(gemm_name(gemm_provider(GEMM_FP32)), "blas") == 0)
        t_skip("blas makes no promise about rows");
    same_as_gathered(causal(2, 150, 150, 4, 2, 16), 0);
    same_as_gathered(causal(1, 700, 300, 2, 1, 8), 0);
}

T(keys_left_out_equal_keys_switched_off)
{
    if (strcmp(gemm_name(gemm_provider(GEMM_FP32)), "blas") == 0)
        t_skip("blas makes no promise about rows");
    same_as_gathered(causal(2, 150, 70, 4, 2, 16), 1);
    same_as_gathered(causal(1, 700, 700, 2, 2, 32), 1);
}
