/* Attention against a plain double loop, and the guarantee that skipping equals masking. */
#include "base/hash.h"
#include "base/pool.h"
#include "engine/attn_impl.h"
#include "engine/bf16.h"
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
    int32_t lo[ROWS], hi[ROWS], self[ROWS], own[ROWS], seg_q[16], seg_k[16];
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

/* segs sequences of T rows, documents of `doc` rows within; every query sees its document up to
 * itself. */
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
    if (a->own && j >= a->own[i] && j <= a->self[i] && a->on[j] == 2)
        return 1;
    return (j >= a->lo[i] && j < a->hi[i] && (!a->on || a->on[j] == 1)) ||
           (a->self && a->self[i] == j);
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

/* Reference for one query head: output, log-sum-exp, and its terms of the gradients. */
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

static void backward(struct scene *s)
{
    struct attn_grad g = {.dq = s->dq,
                          .dk = s->dk,
                          .dv = s->dv,
                          .dout = s->dout,
                          .q = s->q,
                          .k = s->k,
                          .v = s->v,
                          .o = s->o,
                          .lse = s->lse};
    attention_bwd(&g, &s->a);
}

/* Tolerances are those of fp32 times `wide`. */
static void against_loops_within(struct scene *s, double wide)
{
    const struct attn *a = &s->a;
    size_t nq = (size_t)(a->N * a->H * a->D), nk = (size_t)(a->M * a->K * a->D);
    double *dq = calloc(nq, sizeof *dq), *dk = calloc(nk, sizeof *dk), *dv = calloc(nk, sizeof *dv),
           o[64], lse;
    attention_fwd(s->o, s->lse, s->q, s->k, s->v, a);
    backward(s);
    for (int i = 0; i < a->N; i++)
        for (int h = 0; h < a->H; h++) {
            slow_head(s, i, h, o, &lse, dq, dk, dv);
            near_all("o", s->o + (i * a->H + h) * a->D, o, (size_t)a->D, 2e-6 * wide);
            t_near(s->lse[i * a->H + h], lse, 2e-6 * wide);
        }
    near_all("dq", s->dq, dq, nq, 1e-5 * wide);
    near_all("dk", s->dk, dk, nk, 3e-5 * wide);
    near_all("dv", s->dv, dv, nk, 3e-5 * wide);
    free(dq), free(dk), free(dv);
    scene_free(s);
}

static void against_loops(struct scene *s)
{
    against_loops_within(s, 1);
}

T(plain_causal_rows_agree_with_loops)
{
    against_loops(causal(3, 70, 70, 4, 4, 16));
    against_loops(causal(1, 130, 130, 2, 1, 8));
    against_loops(causal(5, 1, 1, 2, 2, 4));
    against_loops(causal(9, 70, 70, 8, 8, 8)); /* enough for one task each */
}

T(bf16_attention_agrees_with_loops_up_to_rounding)
{
    for (int many = 0; many < 2; many++) {
        struct scene *s = many ? causal(9, 70, 33, 8, 8, 16) : causal(1, 300, 300, 4, 2, 16);
        s->a.bf16 = 1;
        against_loops_within(s, 2000);
    }
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
    memset(s->on, 0, sizeof s->on); /* each query sees only itself */
    against_loops(s);
}

/* Spans of 1 to 7 keys after every 9 shared ones; some private keys are off as well. */
T(private_keys_agree_with_loops)
{
    for (int few = 0; few < 2; few++) {
        struct scene *s = few ? causal(2, 30, 30, 2, 2, 12) : causal(2, 290, 100, 4, 2, 12);
        s->a.on = s->on;
        s->a.self = s->self;
        s->a.own = s->own;
        for (int i = 0, span = 0; i < s->a.N; i++) {
            int at = i % (9 + i / 16 % 7);
            span = at <= 9 || i == s->lo[i] ? i : span;
            s->own[i] = span;
            if (at >= 9 && s->on[i])
                s->on[i] = 2;
        }
        against_loops(s);
    }
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

/* Keys and values as a bfloat16 cache stores them; k and v become the stored values. */
static void as_cache(struct scene *s, uint16_t **k16, uint16_t **v16)
{
    size_t n = (size_t)(s->a.M * s->a.K * s->a.D);
    *k16 = malloc(n * sizeof **k16), *v16 = malloc(n * sizeof **v16);
    bf16_from_reals(*k16, s->k, n);
    bf16_from_reals(*v16, s->v, n);
    for (size_t i = 0; i < n; i++) {
        s->k[i] = (real)float_of_bf16((*k16)[i]);
        s->v[i] = (real)float_of_bf16((*v16)[i]);
    }
}

static void cache_is_its_numbers(struct scene *s, int bf16)
{
    struct attn a = s->a;
    size_t nq = (size_t)(a.N * a.H * a.D), nl = (size_t)(a.N * a.H);
    uint16_t *k16, *v16;
    real *o = filled(nq), *lse = filled(nl);
    as_cache(s, &k16, &v16);
    attention_fwd(s->o, s->lse, s->q, s->k, s->v, &a);
    a.cache = &(struct attn_keys){.k16 = k16, .v16 = v16, .n = a.M};
    a.bf16 = bf16;
    attention_fwd(o, lse, s->q, NULL, NULL, &a);
    for (size_t i = 0; i < nq; i++)
        t_near(o[i], s->o[i], bf16 ? 4e-3 : 0);
    for (size_t i = 0; i < nl; i++)
        t_near(lse[i], s->lse[i], bf16 ? 4e-3 : 0);
    free(k16), free(v16), free(o), free(lse);
    scene_free(s);
}

/* The last n rows of a sequence of T, over all its keys. */
static struct scene *step(int T, int n, int H, int K, int D)
{
    struct scene *s = causal(1, T, T, H, K, D);
    s->a.N = n;
    s->seg_q[1] = n;
    for (int i = 0; i < n; i++) {
        s->hi[i] = T - n + 1 + i;
        s->self[i] = s->hi[i] - 1;
    }
    return s;
}

T(a_bf16_cache_is_used_at_its_stored_values)
{
    for (int bf16 = 0; bf16 < 2; bf16++) {
        cache_is_its_numbers(step(600, 1, 8, 2, 64), bf16);
        cache_is_its_numbers(step(601, 2, 8, 2, 33), bf16);
        cache_is_its_numbers(step(520, 100, 4, 2, 16), bf16);
        struct scene *s = step(310, 3, 4, 4, 80);
        s->a.on = s->on;
        s->a.self = s->self;
        memset(s->on + 305, 0, 5);
        cache_is_its_numbers(s, bf16);
    }
}

/* One query of each text, whose keys are in a cache of its own. */
T(texts_in_caches_equal_one_call_for_each)
{
    enum { TEXTS = 4, H = 8, K = 2, D = 48, WIDTH = H * D };
    static const int length[TEXTS] = {1, 300, 16, 513};
    struct attn_keys cache[TEXTS];
    int32_t lo[TEXTS] = {0, 40, 0, 0}, hi[TEXTS], self[TEXTS], seg_q[] = {0, 1, 2, 3, 4};
    real *q = filled(TEXTS * WIDTH), *k[TEXTS], *v[TEXTS], o[2][TEXTS * WIDTH], lse[2][TEXTS * H];
    struct attn a = {.N = TEXTS,
                     .H = H,
                     .K = K,
                     .D = D,
                     .lo = lo,
                     .hi = hi,
                     .self = self,
                     .segs = TEXTS,
                     .seg_q = seg_q,
                     .cache = cache};
    for (int s = 0; s < TEXTS; s++) {
        size_t n = (size_t)length[s] * K * D;
        k[s] = filled(n), v[s] = filled(n);
        cache[s] = (struct attn_keys){.k = k[s], .v = v[s], .n = length[s]};
        hi[s] = length[s];
        self[s] = length[s] - 1;
    }
    attention_fwd(o[0], lse[0], q, NULL, NULL, &a);
    for (int s = 0; s < TEXTS; s++) {
        int32_t seg_k[] = {0, length[s]};
        struct attn b = {.N = 1,
                         .M = length[s],
                         .H = H,
                         .K = K,
                         .D = D,
                         .lo = lo + s,
                         .hi = hi + s,
                         .self = self + s,
                         .segs = 1,
                         .seg_q = seg_q,
                         .seg_k = seg_k};
        attention_fwd(o[1] + s * WIDTH, lse[1] + s * H, q + s * WIDTH, k[s], v[s], &b);
        free(k[s]), free(v[s]);
    }
    t_true(memcmp(o[0], o[1], sizeof o[0]) == 0);
    t_true(memcmp(lse[0], lse[1], sizeof lse[0]) == 0);
    free(q);
}

/* Keeps the rows in `keep` of the queries, and with `keys` also of the keys. */
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
    g->a.bf16 = a->bf16;
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
    backward(s);
    backward(g);
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

T(omitted_queries_do_not_change_the_others)
{
    if (strcmp(gemm_name(gemm_provider(GEMM_FP32)), "blas") == 0)
        t_skip("blas makes no promise about rows");
    same_as_gathered(causal(2, 150, 150, 4, 2, 16), 0);
    same_as_gathered(causal(1, 700, 300, 2, 1, 8), 0);
}

T(omitted_keys_equal_disabled_keys)
{
    if (strcmp(gemm_name(gemm_provider(GEMM_FP32)), "blas") == 0)
        t_skip("blas makes no promise about rows");
    same_as_gathered(causal(2, 150, 70, 4, 2, 16), 1);
    same_as_gathered(causal(1, 700, 700, 2, 2, 32), 1);
}

T(bf16_attention_keeps_the_row_guarantee)
{
    for (int keys = 0; keys < 2; keys++) {
        struct scene *s = causal(2, 150, 70, 4, 2, 16);
        s->a.bf16 = 1;
        same_as_gathered(s, keys);
    }
}

/* Few rows take other code paths than many. */
T(a_query_has_the_same_bits_alone_and_among_others)
{
    if (strcmp(gemm_name(gemm_provider(GEMM_FP32)), "blas") == 0)
        t_skip("blas makes no promise about rows");
    for (int self = 0; self < 2; self++)
        for (int D = 8; D <= 80; D += 24) {
            struct scene *s = causal(1, 700, 300, 4, 2, D);
            s->a.self = self ? s->self : NULL;
            for (int i = 0; i < 700; i++)
                s->on[i] = i % 233 == 200 || i == 3;
            same_as_gathered(s, 0);
        }
}

static uint64_t outcome(struct scene *s)
{
    const struct attn *a = &s->a;
    size_t nq = (size_t)(a->N * a->H * a->D) * sizeof(real),
           nk = (size_t)(a->M * a->K * a->D) * sizeof(real);
    memset(s->dq, 0, nq), memset(s->dk, 0, nk), memset(s->dv, 0, nk);
    attention_fwd(s->o, s->lse, s->q, s->k, s->v, a);
    backward(s);
    uint64_t sum = hash64(s->o, nq, 0);
    sum = hash64(s->lse, (size_t)(a->N * a->H) * sizeof(real), sum);
    return hash64(s->dv, nk, hash64(s->dk, nk, hash64(s->dq, nq, sum)));
}

/* One long sequence whose queries are split among threads, and one decoding step. */
T(long_sequences_are_the_same_at_any_thread_count)
{
    static const int threads[] = {1, 2, 3, 4, 7, 8, 12, 16};
    for (int few = 0; few < 2; few++) {
        struct scene *s = few ? step(700, 1, 8, 4, 64) : causal(1, 700, 700, 4, 2, 16);
        uint64_t first = 0;
        s->a.on = s->on;
        s->a.self = s->self;
        for (int i = 0; i < 8; i++) {
            struct err e = {0};
            t_ok(pool_start(threads[i], &e), &e);
            uint64_t now = outcome(s);
            pool_stop();
            t_truef(i == 0 || now == first, "%d threads give other bits than one", threads[i]);
            first = i == 0 ? now : first;
        }
        scene_free(s);
    }
}

/* ---- kernels ---- */

enum { KEYS = 70, WIDTH = 80 };

/* The same to the last bit when plain C has fused multiply-adds too. */
static void same_numbers(const char *what, const real *got, const real *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
#ifdef __FMA__
        t_truef(got[i] == want[i], "%s[%zu] = %.9g, plain %.9g", what, i, (double)got[i],
                (double)want[i]);
#else
        t_truef(fabs((double)got[i] - (double)want[i]) <= 1e-5, "%s[%zu] = %.9g, plain %.9g", what,
                i, (double)got[i], (double)want[i]);
#endif
}

static void rows_agree(const struct attn_kernels *k, int D, int R, int n, int held, int listed)
{
    int ldq = (D + ATTN_Q_STEP - 1) / ATTN_Q_STEP * ATTN_Q_STEP;
    int32_t row[KEYS];
    uint16_t *x16 = malloc((size_t)(KEYS * D) * sizeof *x16);
    real *x = filled((size_t)(KEYS * D)), *q = filled((size_t)(R * ldq)),
         *s = filled((size_t)(R * WIDTH)), *want = filled((size_t)(R * WIDTH));
    real *y = calloc((size_t)(R * D), sizeof *y), *mix = calloc((size_t)(R * D), sizeof *mix);
    bf16_from_reals(x16, x, (size_t)(KEYS * D));
    for (int r = 0; r < R; r++)
        memset(q + r * ldq + D, 0, (size_t)(ldq - D) * sizeof *q);
    for (int j = 0; j < KEYS; j++)
        row[j] = KEYS - 1 - j;
    struct attn_rows rows = {held ? NULL : x, held ? x16 : NULL, D, listed ? row : NULL};
    k->dots(s, WIDTH, q, ldq, R, &rows, n, D, (real)0.3);
    attn_plain.dots(want, WIDTH, q, ldq, R, &rows, n, D, (real)0.3);
    for (int r = 0; r < R; r++)
        same_numbers("score", s + r * WIDTH, want + r * WIDTH, (size_t)n);
    k->mix(y, want, WIDTH, R, &rows, n, D);
    attn_plain.mix(mix, want, WIDTH, R, &rows, n, D);
    same_numbers("mix", y, mix, (size_t)(R * D));
    free(x), free(x16), free(q), free(s), free(want), free(y), free(mix);
}

static void softmax_agrees(const struct attn_kernels *k, int from, int to)
{
    real *s = filled(WIDTH), *want = calloc(WIDTH, sizeof *want), top, want_top;
    real *ds = filled(WIDTH), *want_ds = calloc(WIDTH, sizeof *want_ds);
    for (int j = 0; j < WIDTH; j++)
        s[j] *= 60;
    memcpy(want, s, WIDTH * sizeof *s);
    memcpy(want_ds, ds, WIDTH * sizeof *ds);
    real sum = k->softmax(s, from, to, WIDTH, &top);
    real want_sum = attn_plain.softmax(want, from, to, WIDTH, &want_top);
    t_true(top == want_top);
    same_numbers("sum", &sum, &want_sum, 1);
    same_numbers("weight", s, want, WIDTH);
    for (int j = 0; j < WIDTH; j++)
        t_true((j >= from && j < to) || s[j] == 0);
    k->grad(s, ds, from, to, WIDTH, (real)1.5, (real)0.25);
    attn_plain.grad(want, want_ds, from, to, WIDTH, (real)1.5, (real)0.25);
    same_numbers("p", s, want, WIDTH);
    same_numbers("ds", ds, want_ds, WIDTH);
    free(s), free(want), free(ds), free(want_ds);
}

static void kernels_agree(const struct attn_kernels *k)
{
    static const int width[] = {1, 7, 16, 31, 64, 80, 100}, number[] = {1, 15, 16, 33, KEYS};
    if (!k->available())
        return;
    for (size_t d = 0; d < sizeof width / sizeof *width; d++)
        for (size_t n = 0; n < sizeof number / sizeof *number; n++)
            for (int mode = 0; mode < 4; mode++)
                rows_agree(k, width[d], 1 + (int)(n + d) % 6, number[n], mode & 1, mode >> 1);
    for (int from = 0; from <= WIDTH; from += 3)
        for (int to = 0; to <= WIDTH; to += 5)
            softmax_agrees(k, from, to);
}

T(kernels_agree_with_plain_loops)
{
    kernels_agree(attn_kernels());
#ifdef ATTN_X86
    kernels_agree(&attn_avx2);
#endif
}
