/* The small MLPs of routers against central differences, in double. */
#include "base/rng.h"
#include "engine/gemm.h"
#include "routing/mlp.h"
#include "t.h"

enum { R = 7, DIM = 9 };

struct net {
    struct params ps;
    struct mlp m;
    struct arena rows;
    real x[R * DIM], dx[R * DIM], dy[R * DIM], y[R * DIM];
};

static void fill(real *x, size_t n, uint32_t salt)
{
    struct rng r;
    rng_init(&r, 5, RNG_TEST, 4, salt);
    for (size_t i = 0; i < n; i++)
        x[i] = (real)rng_normal(&r);
}

/* Random x and dy, dx = `start`; weights of the given shape, perturbed biases. */
static void net_open(struct net *t, const struct mlp_shape *shape, real start)
{
    struct err e = {0};
    memset(t, 0, sizeof *t);
    t_ok(mlp_init(&t->m, &t->ps, "t.net", shape, &e), &e);
    t_ok(params_reserve(&t->ps, 1, &e), &e);
    params_init(&t->ps, 3);
    t_ok(arena_reserve(&t->rows, "rows", 1 << 20, &e), &e);
    mlp_layout(&t->m, &t->rows, R);
    for (int k = 0; k < shape->n; k++)
        if (t->m.b[k] >= 0)
            fill(t->ps.p[t->m.b[k]].value, t->ps.p[t->m.b[k]].n, (uint32_t)k);
    fill(t->x, R * DIM, 20);
    fill(t->dy, R * DIM, 21);
    for (int i = 0; i < R * DIM; i++)
        t->dx[i] = start;
}

static void net_close(struct net *t)
{
    arena_release(&t->rows);
    params_release(&t->ps);
}

/* sum of dy y */
static double objective(struct net *t)
{
    double sum = 0;
    int n = R * t->m.dim[t->m.n];
    mlp_fwd(&t->m, t->y, t->x, R);
    for (int i = 0; i < n; i++)
        sum += t->dy[i] * t->y[i];
    return sum;
}

static void check(struct net *t, const char *what, real *x, const real *grad, size_t n)
{
    static const double at[4] = {-2, -1, 1, 2}, weight[4] = {1, -8, 8, -1};
    const double eps = 1e-3;
    double miss = 0, size = 0;
    for (size_t i = 0; i < n; i++) {
        double keep = x[i], want = 0;
        for (int k = 0; k < 4; k++) {
            x[i] = keep + at[k] * eps;
            want += weight[k] * objective(t) / (12 * eps);
        }
        x[i] = keep;
        miss += (grad[i] - want) * (grad[i] - want);
        size += want * want;
    }
    t_truef(sqrt(miss) <= 1e-8 * sqrt(size), "%s: off by %.2e of %.2e", what, sqrt(miss),
            sqrt(size));
    t_truef(size > 1e-6, "%s: no gradient at all", what);
}

static void check_shape(const struct mlp_shape *shape)
{
    struct net t;
    net_open(&t, shape, 0);
    mlp_bwd(&t.m, t.dx, t.dy, t.x, R);
    check(&t, "x", t.x, t.dx, (size_t)(R * t.m.dim[0]));
    for (int i = 0; i < t.ps.n; i++)
        check(&t, t.ps.p[i].name, t.ps.p[i].value, t.ps.p[i].grad, t.ps.p[i].n);
    net_close(&t);
}

static struct mlp_shape shape_of(int n, enum mlp_act act, int bias)
{
    struct mlp_shape s = {.n = n, .dim = {9, 5, 4, 3}, .act = act, .bias = bias, .std = 0.5};
    return s;
}

T(every_depth_and_activation_has_the_right_gradients)
{
    for (int n = 1; n <= MLP_MAPS; n++)
        for (int act = MLP_ACT_GELU; act <= MLP_ACT_SILU; act++)
            for (int bias = 0; bias < 2; bias++) {
                struct mlp_shape s = shape_of(n, (enum mlp_act)act, bias);
                check_shape(&s);
            }
}

T(gradients_accumulate_onto_existing_values)
{
    struct mlp_shape s = shape_of(3, MLP_ACT_GELU, 1);
    struct net t, from;
    net_open(&t, &s, 0);
    net_open(&from, &s, 2);
    mlp_bwd(&t.m, t.dx, t.dy, t.x, R);
    for (int twice = 0; twice < 2; twice++)
        mlp_bwd(&from.m, from.dx, from.dy, from.x, R);
    for (int i = 0; i < R * s.dim[0]; i++)
        t_near(from.dx[i], 2 + 2 * t.dx[i], 1e-12);
    for (int i = 0; i < t.ps.n; i++)
        for (size_t k = 0; k < t.ps.p[i].n; k++)
            t_near(from.ps.p[i].grad[k], 2 * t.ps.p[i].grad[k], 1e-12);
    net_close(&t);
    net_close(&from);
}

T(no_rows_and_a_null_dx_change_nothing)
{
    struct mlp_shape s = shape_of(2, MLP_ACT_SILU, 1);
    struct net t;
    net_open(&t, &s, 1);
    mlp_fwd(&t.m, t.y, t.x, 0);
    mlp_bwd(&t.m, t.dx, t.dy, t.x, 0);
    t_true(t.y[0] == 0 && t.dx[0] == 1 && t.ps.p[t.m.w[1]].grad[0] == 0);
    mlp_bwd(&t.m, NULL, t.dy, t.x, R);
    t_true(t.ps.p[t.m.w[0]].grad[0] != 0);
    net_close(&t);
}

/* A frozen layer has no gradient; the layers before it still have one. */
T(frozen_weights_pass_gradients_on)
{
    struct err e = {0};
    struct mlp_shape s = shape_of(2, MLP_ACT_GELU, 1);
    struct net t;
    memset(&t, 0, sizeof t);
    t_ok(mlp_init(&t.m, &t.ps, "t.net", &s, &e), &e);
    t.ps.p[t.m.w[1]].train = t.ps.p[t.m.b[1]].train = 0;
    t_ok(params_reserve(&t.ps, 1, &e), &e);
    params_init(&t.ps, 3);
    t_ok(arena_reserve(&t.rows, "rows", 1 << 20, &e), &e);
    mlp_layout(&t.m, &t.rows, R);
    fill(t.x, R * DIM, 20);
    fill(t.dy, R * DIM, 21);
    mlp_bwd(&t.m, t.dx, t.dy, t.x, R);
    t_true(t.ps.p[t.m.w[1]].grad == NULL);
    check(&t, "x", t.x, t.dx, R * 9);
    check(&t, "t.net.0.weight", t.ps.p[t.m.w[0]].value, t.ps.p[t.m.w[0]].grad, 45);
    net_close(&t);
}

/* The double build multiplies by BLAS, which promises no such thing on every processor. */
T(a_row_has_the_same_bits_alone_and_among_others)
{
    struct err e = {0};
    t_ok(gemm_use("ref", &e), &e);
    struct mlp_shape s = shape_of(3, MLP_ACT_GELU, 1);
    for (int act = MLP_ACT_GELU; act <= MLP_ACT_SILU; act++) {
        struct net t;
        real one[DIM];
        s.act = (enum mlp_act)act;
        net_open(&t, &s, 0);
        mlp_fwd(&t.m, t.y, t.x, R);
        for (int i = 0; i < R; i++) {
            mlp_fwd(&t.m, one, t.x + (size_t)i * 9, 1);
            t_true(memcmp(one, t.y + (size_t)i * 3, 3 * sizeof(real)) == 0);
        }
        net_close(&t);
    }
}

static double deviation(const struct param *p)
{
    double sum = 0;
    for (size_t i = 0; i < p->n; i++)
        sum += (double)p->value[i] * (double)p->value[i];
    return sqrt(sum / (double)p->n);
}

static void open_only(struct net *t, const struct mlp_shape *s)
{
    struct err e = {0};
    memset(t, 0, sizeof *t);
    t_ok(mlp_init(&t->m, &t->ps, "t.net", s, &e), &e);
    t_ok(params_reserve(&t->ps, 1, &e), &e);
    params_init(&t->ps, 3);
}

/* A last layer of zeros can still learn, as its input is not zero. */
T(initial_values_follow_the_shape)
{
    struct mlp_shape s = {.n = 2, .dim = {64, 100, 50}, .act = MLP_ACT_GELU, .bias = 1};
    struct net t;
    open_only(&t, &s);
    t_near(deviation(&t.ps.p[t.m.w[0]]), 0.125, 0.005);
    t_true(deviation(&t.ps.p[t.m.w[1]]) == 0);
    net_close(&t);
    s.gain = 0.5;
    s.last_bias = -1.5;
    s.last_step = 0.25;
    open_only(&t, &s);
    t_near(deviation(&t.ps.p[t.m.w[0]]), 0.0625, 0.003);
    t_near(deviation(&t.ps.p[t.m.w[1]]), 0.05, 0.003);
    t_true(deviation(&t.ps.p[t.m.b[0]]) == 0);
    t_near(t.ps.p[t.m.b[1]].value[0], -1.5, 0);
    t_near(t.ps.p[t.m.b[1]].value[49], -1.5 + 49 * 0.25, 1e-12);
    t_near(mlp_flops(&t.m), 2.0 * (64 * 100 + 100 * 50), 0);
    net_close(&t);
    s.n = 1;
    s.gain = 0;
    open_only(&t, &s);
    t_true(deviation(&t.ps.p[t.m.w[0]]) == 0);
    net_close(&t);
}
