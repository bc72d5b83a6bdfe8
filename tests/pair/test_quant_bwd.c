/* Backward through quantised weights, and adapters over them, against dequantised weights. */
#include "base/pool.h"
#include "engine/linear.h"
#include "kit.h"
#include "quant_blocks.h"

static uint32_t state = 23;

static real *filled(size_t n)
{
    real *x = calloc(n + 1, sizeof *x);
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525U + 1013904223U;
        x[i] = (real)((double)(state >> 8) / 8388608.0 - 1);
    }
    return x;
}

static int is_same(const real *a, const real *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

/* A map with quantised weights, and one with the dequantised values. */
struct maps {
    struct quant *quant;
    real *w;
    struct linear packed, full;
};

static struct maps maps_new(int kind, int O, int C, enum gemm_format format)
{
    struct maps m = {.w = filled((size_t)O * (size_t)C)};
    struct err e = {0};
    if (kind >= QUANT_WRITTEN)
        m.quant = quant_random(kind, O, C, state++);
    else
        t_ok(quant_new(&m.quant, (enum quant_kind)kind, m.w, O, C, &e), &e);
    quant_part(m.w, m.quant, 0, O, 0, C);
    m.packed = (struct linear){.C = C, .O = O, .format = format, .quant = m.quant};
    m.full = (struct linear){.C = C, .O = O, .format = format, .w = m.w};
    return m;
}

static void maps_free(struct maps *m)
{
    quant_free(m->quant);
    free(m->w);
}

struct covered {
    unsigned char *seen; /* (N,C) */
    int C;
};

static void cover(void *ctx, int m, int n, int rows, int cols)
{
    const struct covered *s = ctx;
    for (int i = m; i < m + rows; i++)
        for (int c = n; c < n + cols; c++)
            s->seen[(size_t)i * (size_t)s->C + (size_t)c]++;
}

static void check_dx(int kind, int O, int C, int N, enum gemm_format format)
{
    struct maps m = maps_new(kind, O, C, format);
    size_t n = (size_t)N * (size_t)C;
    real *dy = filled((size_t)N * (size_t)O), *was = filled(n), *have = calloc(n, sizeof *have),
         *want = calloc(n, sizeof *want), *one = calloc((size_t)C, sizeof *one);
    struct covered s = {calloc(n, 1), C};
    struct linear_extra extra = {.after = cover, .ctx = &s};
    for (int beta = 0; beta < 2; beta++) {
        memcpy(have, was, n * sizeof *have);
        memcpy(want, was, n * sizeof *want);
        linear_bwd_x(have, dy, &m.packed, N, (real)beta, beta ? &extra : NULL);
        linear_bwd_x(want, dy, &m.full, N, (real)beta, NULL);
        t_truef(is_same(have, want, n), "%s %d x %d, %d rows, beta %d", quant_name[kind], O, C, N,
                beta);
    }
    for (size_t i = 0; i < n; i++)
        t_eq(s.seen[i], 1);
    linear_bwd_x(have, dy, &m.packed, N, 0, NULL);
    linear_bwd_x(one, dy + (size_t)(N - 1) * (size_t)O, &m.packed, 1, 0, NULL);
    t_true(is_same(one, have + n - C, (size_t)C)); /* whichever other rows are in the call */
    free(dy), free(was), free(have), free(want), free(one), free(s.seen);
    maps_free(&m);
}

static void check_all(enum gemm_format format)
{
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        check_dx(kind, 5, 256, 3, format);
        check_dx(kind, 530, 512, 40, format);  /* rows in two parts */
        check_dx(kind, 1100, 2304, 7, format); /* and columns */
    }
    check_dx(QUANT_Q8_0, 600, 2080, 9, format);
}

T(dx_has_the_bits_of_the_dequantised_weights)
{
    struct err e = {0};
    if (gemm_use("avx2", &e) < 0) /* blas guarantees nothing about rows and parts */
        t_ok(gemm_use("ref", &e), &e);
    check_all(GEMM_FP32);
}

T(dx_has_the_bits_of_the_dequantised_weights_in_bf16)
{
    check_all(GEMM_BF16);
}

T(threads_do_not_change_a_bit_of_dx)
{
    enum { O = 700, C = 512, N = 33 };
    static const int threads[] = {1, 2, 5};
    struct maps m = maps_new(QUANT_Q6_K, O, C, GEMM_FP32);
    real *dy = filled(N * O), *first = filled(N * C), *dx = filled(N * C);
    struct err e = {0};
    for (int t = 0; t < 3; t++) {
        t_ok(pool_start(threads[t], &e), &e);
        linear_bwd_x(t ? dx : first, dy, &m.packed, N, 0, NULL);
        pool_stop();
        t_true(t == 0 || is_same(dx, first, N * C));
    }
    free(dy), free(first), free(dx);
    maps_free(&m);
}

/* Adapter (r 4, with dropout): its gradients depend on x and dy alone, so they have the same
 * bits. */
static void check_adapter(int kind, double dropout)
{
    enum { O = 96, C = 512, N = 21, r = 4 };
    struct maps m = maps_new(kind, O, C, GEMM_FP32);
    real *x = filled(N * C), *dy = filled(N * O), *a = filled(r * C), *b = filled(O * r);
    real *dx[2], *da[2], *db[2], *bias[2];
    for (int k = 0; k < 2; k++) {
        struct linear w = k ? m.full : m.packed;
        struct lora l = {.r = r, .scale = (real)0.5, .a = a, .b = b, .dropout = dropout, .step = 1};
        struct linear_rows rows = linear_rows(GEMM_FP32, x, NULL, N, C);
        dx[k] = calloc(N * C, sizeof *dx[k]);
        l.da = da[k] = calloc(r * C, sizeof *da[k]);
        l.db = db[k] = calloc(O * r, sizeof *db[k]);
        bias[k] = calloc(O, sizeof *bias[k]);
        w.lora = &l;
        linear_bwd_x(dx[k], dy, &w, N, 0, NULL);
        linear_bwd_w(NULL, bias[k], dy, &rows, &w);
    }
    double size = 0;
    for (int i = 0; i < r * C; i++)
        size += fabs((double)da[0][i]);
    t_truef(size > 1 && is_same(da[0], da[1], r * C) && is_same(db[0], db[1], O * r) &&
                is_same(bias[0], bias[1], O),
            "%s, dropout %g", quant_name[kind], dropout);
    for (int i = 0; i < N * C; i++)
        t_near(dx[0][i], dx[1][i], 1e-4);
    for (int k = 0; k < 2; k++)
        free(dx[k]), free(da[k]), free(db[k]), free(bias[k]);
    free(x), free(dy), free(a), free(b);
    maps_free(&m);
}

T(adapters_have_the_same_gradients_over_quantised_and_dequantised_weights)
{
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        check_adapter(kind, 0);
        check_adapter(kind, 0.5);
    }
}

/* ---- a model --------------------------------------------------------------------------------- */

#define MODEL                                                                                      \
    "model.method=dense model.layers=2 model.dim=256 model.heads=4 model.ffn=256 model.vocab=60 "  \
    "model.max_seq=32 model.tied=false model.lora_r=4 model.lora_alpha=8 "                         \
    "model.lora_targets=q,k,v,o,gate,up,down"
enum { B = 2, T = 16 };

static struct kit_batch batch;

/* A model whose frozen base is quantised to this kind, or dequantised from it. */
static struct model *model_over(enum quant_kind kind, int is_held)
{
    struct model *m = kit_model(MODEL, 5, B * T, MODEL_TRAIN_OWN, 1);
    struct numeric_options o = {.compute = COMPUTE_FP32,
                                .weights = is_held ? (int)kind : QUANT_NONE};
    struct err e = {0};
    kit_fill(&batch, B, T, 60, 3);
    kit_shake(m, 0.05, 9);
    for (int i = 0; i < m->weights.n && !is_held; i++) {
        struct param *p = &m->params.p[i];
        struct quant *q = NULL;
        if (m->weights.v[i].O == 0 || p->train)
            continue;
        t_ok(quant_new(&q, kind, p->value, p->shape[0], p->shape[1], &e), &e);
        quant_part(p->value, q, 0, p->shape[0], 0, p->shape[1]);
        quant_free(q);
    }
    params_changed(&m->params);
    t_ok(weights_use(m, &o, &e), &e);
    return m;
}

/* Forward rounds activations to 8 bits, so results are close, not equal. */
T(adapters_learn_the_same_over_quantised_and_dequantised_models)
{
    for (int kind = 1; kind < QUANT_WRITTEN; kind++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        double far = 0, size = 0, first[2], last[2];
        real *grad[2];
        size_t n = 0;
        for (int k = 0; k < 2; k++) {
            struct model *m = model_over((enum quant_kind)kind, !k);
            first[k] = kit_step(m, &batch.b, &pass);
            grad[k] = kit_gradients(m, &n);
            for (int step = 1; step <= 30; step++)
                last[k] = kit_train(m, &batch.b, step, 30, 0.01);
            model_free(m);
        }
        for (size_t i = 0; i < n; i++) {
            far += pow((double)(grad[0][i] - grad[1][i]), 2);
            size += pow((double)grad[1][i], 2);
        }
        t_truef(n > 0 && sqrt(far / size) < 0.03, "%s: %g", quant_name[kind], sqrt(far / size));
        t_near(first[0], first[1], 0.01);
        t_truef(last[0] < 0.7 * first[0], "%s: %g after %g", quant_name[kind], last[0], first[0]);
        free(grad[0]), free(grad[1]);
    }
}
