/* Adapters over quantised weights, in double: gradients are those of the dequantised weights. */
#include "engine/linear.h"
#include "quant_blocks.h"

enum { O = 12, C = 256, N = 5, R = 3 };

static uint32_t state = 5;

static void fill(real *x, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        state = state * 1664525U + 1013904223U;
        x[i] = (real)((double)(state >> 8) / 8388608.0 - 1);
    }
}

static real x[N * C], dy[N * O], a[R * C], b[O * R], w[O * C], da[R * C], db[O * R], dx[N * C];

/* sum of dy times the map with dequantised weights */
static double loss(void)
{
    const struct lora l = {.r = R, .scale = (real)0.7, .a = a, .b = b};
    const struct linear full = {.C = C, .O = O, .w = w, .lora = &l};
    real y[N * O];
    double sum = 0;
    linear_fwd(y, x, &full, N, 0, NULL);
    for (int i = 0; i < N * O; i++)
        sum += (double)y[i] * (double)dy[i];
    return sum;
}

static void check(const char *what, real *p, const real *grad, size_t n)
{
    const real step = (real)1e-3; /* the map is linear in each */
    for (size_t i = 0; i < n; i += 1 + n / 40) {
        real was = p[i];
        p[i] = was + step;
        double up = loss();
        p[i] = was - step;
        double down = loss();
        p[i] = was;
        t_truef(fabs((up - down) / 2e-3 - (double)grad[i]) < 1e-8, "%s %zu: %.12g, want %.12g",
                what, i, (double)grad[i], (up - down) / 2e-3);
    }
}

T(adapters_and_inputs_of_quantised_weights_have_the_right_gradients)
{
    for (int kind = 1; kind < QUANT_KINDS; kind++) {
        struct quant *q = NULL;
        struct err e = {0};
        fill(x, N * C), fill(dy, N * O), fill(a, R * C), fill(b, O * R), fill(w, O * C);
        memset(da, 0, sizeof da);
        memset(db, 0, sizeof db);
        if (kind >= QUANT_WRITTEN)
            q = quant_random(kind, O, C, state++);
        else
            t_ok(quant_new(&q, (enum quant_kind)kind, w, O, C, &e), &e);
        for (int o = 0; o < O; o++)
            quant_row(w + o * C, q, o);
        const struct lora l = {.r = R, .scale = (real)0.7, .a = a, .b = b, .da = da, .db = db};
        const struct linear packed = {.C = C, .O = O, .quant = q, .lora = &l};
        struct linear_rows rows = linear_rows(GEMM_FP32, x, NULL, N, C);
        linear_bwd_x(dx, dy, &packed, N, 0, NULL);
        linear_bwd_w(NULL, NULL, dy, &rows, &packed);
        check("x", x, dx, N * C);
        check("a", a, da, R * C);
        check("b", b, db, O * R);
        quant_free(q);
    }
}
