/* The parameter table and the optimiser, against a plain double reference. */
#include "base/mem.h"
#include "engine/ops.h"
#include "engine/param.h"
#include "t.h"

static void make(struct params *ps, int train)
{
    struct err e = {0};
    t_eq(params_add(ps, "block.0.w", 7, 5, PARAM_MATRIX, INIT_NORMAL, 0.5), 0);
    t_eq(params_add(ps, "block.0.norm", 5, 0, PARAM_PLAIN, INIT_ONE, 0), 1);
    t_eq(params_add(ps, "route.0.w", 5, 0, PARAM_ROUTER, INIT_CONST, 0.25), 2);
    t_eq(params_add(ps, "frozen", 3, 3, PARAM_MATRIX, INIT_NORMAL, 1), 3);
    ps->p[3].train = 0;
    t_ok(params_reserve(ps, train, &e), &e);
    params_init(ps, 11);
}

T(params_are_named_shaped_and_counted)
{
    struct params ps = {0};
    make(&ps, 1);
    t_eq(params_find(&ps, "route.0.w"), 2);
    t_eq(params_find(&ps, "route.1.w"), -1);
    t_eq(params_count(&ps), 35 + 5 + 5 + 9);
    t_eq(ps.p[0].rank, 2);
    t_eq(ps.p[1].rank, 1);
    t_true(ps.p[0].grad && ps.p[0].m && ps.p[0].v);
    t_true(ps.p[3].value && !ps.p[3].grad && !ps.p[3].m && !ps.p[3].v);
    t_eq((uintptr_t)ps.p[1].value % 64, 0);
    t_near(ps.p[1].value[4], 1, 0);
    t_near(ps.p[2].value[4], 0.25, 0);
    params_release(&ps);
    t_true(ps.n == 0 && !ps.p && !ps.block);
}

T(params_without_training_have_values_only)
{
    struct params ps = {0};
    make(&ps, 0);
    t_true(ps.p[0].value && !ps.p[0].grad);
    params_zero_grad(&ps);
    struct grad_health h = params_grad_health(&ps);
    adamw_step(&ps, &(struct adamw){.lr = 1}, 1, &h);
    params_release(&ps);
}

T(a_parameter_keeps_its_initial_values_when_others_are_added)
{
    struct params a = {0}, b = {0};
    struct err e = {0};
    make(&a, 0);
    t_true(params_add(&b, "another", 100, 3, PARAM_MATRIX, INIT_NORMAL, 1) == 0);
    t_true(params_add(&b, "block.0.w", 7, 5, PARAM_MATRIX, INIT_NORMAL, 0.5) == 1);
    t_ok(params_reserve(&b, 0, &e), &e);
    params_init(&b, 11);
    t_true(memcmp(a.p[0].value, b.p[1].value, 35 * sizeof(real)) == 0);
    double sum = 0;
    for (int i = 0; i < 300; i++)
        sum += (double)b.p[0].value[i] * (double)b.p[0].value[i];
    t_near(sum / 300, 1, 0.25);
    params_release(&a);
    params_release(&b);
}

T(params_report_out_of_memory)
{
    struct params ps = {0};
    struct err e = {0};
    mem_fail_at(mem_calls() + 1, 0);
    t_eq(params_add(&ps, "w", 4, 4, PARAM_MATRIX, INIT_ZERO, 0), DS_EMEM);
    t_eq(params_add(&ps, "w", 4, 4, PARAM_MATRIX, INIT_ZERO, 0), 0);
    mem_fail_at(mem_calls() + 1, 0);
    t_fails(params_reserve(&ps, 1, &e), &e, DS_EMEM, "parameters");
    t_ok(params_reserve(&ps, 1, &e), &e);
    params_release(&ps);
}

/* Gradients of step t, the same for both implementations. */
static double grad_of(int p, size_t i, int step)
{
    return sin((double)(p * 100 + (int)i) * 0.37 + step) * (p == 2 ? 3 : 1);
}

static double norm_of(const struct params *ps, int router, int step)
{
    double sum = 0;
    for (int p = 0; p < 3; p++)
        for (size_t i = 0; i < ps->p[p].n && (ps->p[p].group == PARAM_ROUTER) == router; i++)
            sum += pow((double)(real)grad_of(p, i, step), 2);
    return sqrt(sum);
}

/* The textbook update, one element at a time. */
static void slow_step(const struct params *ps, const struct adamw *o, int step, double w[3][35],
                      double m[3][35], double v[3][35])
{
    for (int p = 0; p < 3; p++) {
        int router = ps->p[p].group == PARAM_ROUTER;
        double norm = norm_of(ps, router, step), lr = o->lr * (router ? o->router_lr : 1);
        for (size_t i = 0; i < ps->p[p].n; i++) {
            double g = grad_of(p, i, step) * (o->clip > 0 && norm > o->clip ? o->clip / norm : 1);
            m[p][i] = o->beta1 * m[p][i] + (1 - o->beta1) * g;
            v[p][i] = o->beta2 * v[p][i] + (1 - o->beta2) * g * g;
            double mh = m[p][i] / (1 - pow(o->beta1, step)),
                   vh = v[p][i] / (1 - pow(o->beta2, step));
            w[p][i] -= lr * (p == 0 ? o->weight_decay : 0) * w[p][i];
            w[p][i] -= lr * mh / (sqrt(vh) + o->eps);
        }
    }
}

static void follow(const struct adamw *o)
{
    struct params ps = {0};
    double w[3][35], m[3][35] = {{0}}, v[3][35] = {{0}};
    make(&ps, 1);
    real frozen = ps.p[3].value[0];
    for (int p = 0; p < 3; p++)
        for (size_t i = 0; i < ps.p[p].n; i++)
            w[p][i] = (double)ps.p[p].value[i];
    for (int step = 1; step <= 20; step++) {
        for (int p = 0; p < 3; p++)
            for (size_t i = 0; i < ps.p[p].n; i++)
                t_true(ps.p[p].grad[i] == 0); /* the previous step leaves them at zero */
        for (int p = 0; p < 3; p++)
            for (size_t i = 0; i < ps.p[p].n; i++)
                ps.p[p].grad[i] = (real)grad_of(p, i, step);
        struct grad_health h = params_grad_health(&ps);
        t_near(h.norm, norm_of(&ps, 0, step), 1e-9);
        t_near(h.router_norm, norm_of(&ps, 1, step), 1e-9);
        t_true(h.bad == 0 && !h.first_bad);
        adamw_step(&ps, o, step, &h);
        slow_step(&ps, o, step, w, m, v);
    }
    for (int p = 0; p < 3; p++)
        for (size_t i = 0; i < ps.p[p].n; i++)
            t_near(ps.p[p].value[i], w[p][i], 2e-6);
    t_true(ps.p[3].value[0] == frozen);
    params_release(&ps);
}

T(adamw_matches_the_textbook)
{
    struct adamw o = {
        .lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .weight_decay = 0.1, .router_lr = 1};
    follow(&o);
    o.clip = 1; /* below both norms */
    o.router_lr = 0.1;
    follow(&o);
    o.clip = 1e6;
    follow(&o);
}

/* Tensors of every edge size: none, one or several spans and chunks, with frozen ones among
 * them. */
static void make_many(struct params *ps)
{
    static const int rows[] = {1, 4095, 3, 4096, 5, 16384, 16385, 2, 50001, 7, 1};
    struct err e = {0};
    char name[16];
    for (int i = 0; i < 11; i++) {
        snprintf(name, sizeof name, "t%d", i);
        t_eq(params_add(ps, name, rows[i], 0, (enum param_group)(i % PARAM_GROUPS), INIT_NORMAL, 1),
             i);
        ps->p[i].train = i != 2 && i != 4 && i != 10;
    }
    t_ok(params_reserve(ps, 1, &e), &e);
    params_init(ps, 5);
    for (int i = 0; i < ps->n; i++)
        for (size_t k = 0; ps->p[i].grad && k < ps->p[i].n; k++)
            ps->p[i].grad[k] = (real)sin((double)k * 0.7 + i);
}

T(tensors_have_the_same_norms_and_steps_together_and_alone)
{
    struct params ps = {0}, same = {0};
    struct adamw o = {.lr = 0.01, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .router_lr = 1};
    double sum = 0, router = 0;
    make_many(&ps);
    make_many(&same);
    struct grad_health h = params_grad_health(&ps);
    for (int i = 0; i < ps.n; i++)
        if (ps.p[i].grad)
            *(ps.p[i].group == PARAM_ROUTER ? &router : &sum) +=
                sum_squares(ps.p[i].grad, ps.p[i].n, NULL);
    t_true(h.norm == sqrt(sum) && h.router_norm == sqrt(router) && h.bad == 0);
    adamw_step(&ps, &o, 1, &h);
    for (int i = 0; i < same.n; i++) { /* a table of one tensor */
        struct params one = {.p = &same.p[i], .n = 1};
        adamw_step(&one, &o, 1, &h);
        t_truef(memcmp(ps.p[i].value, same.p[i].value, ps.p[i].n * sizeof(real)) == 0, "tensor %d",
                i);
        for (size_t k = 0; ps.p[i].grad && k < ps.p[i].n; k++)
            t_truef(ps.p[i].grad[k] == 0, "gradient %zu of tensor %d is left", k, i);
    }
    params_release(&ps);
    params_release(&same);
}

T(a_bad_gradient_anywhere_is_found_by_name)
{
    static const int where[][2] = {{0, 0}, {3, 4095}, {6, 16384}, {8, 50000}, {9, 6}};
    for (int i = 0; i < 5; i++) {
        struct params ps = {0};
        make_many(&ps);
        ps.p[where[i][0]].grad[where[i][1]] = NAN;
        struct grad_health h = params_grad_health(&ps);
        t_eq(h.bad, 1);
        t_str(h.first_bad, ps.p[where[i][0]].name);
        params_release(&ps);
    }
}

T(a_bad_gradient_is_counted_and_named)
{
    struct params ps = {0};
    make(&ps, 1);
    ps.p[1].grad[2] = NAN;
    ps.p[1].grad[3] = INFINITY;
    ps.p[2].grad[0] = -INFINITY;
    struct grad_health h = params_grad_health(&ps);
    t_eq(h.bad, 3);
    t_str(h.first_bad, "block.0.norm");
    params_release(&ps);
}

T(sum_of_squares_is_accurate_and_counts_bad_values)
{
    enum { N = 10007 };
    static real x[N];
    uint64_t bad = 9;
    double want = 0;
    for (int i = 0; i < N; i++) {
        x[i] = (real)sin(i);
        want += (double)x[i] * (double)x[i];
    }
    t_near(sum_squares(x, N, &bad), want, 1e-9);
    t_eq(bad, 0);
    t_near(sum_squares(x, 0, &bad), 0, 0);
    x[N - 1] = NAN;
    sum_squares(x, N, &bad);
    t_eq(bad, 1);
}

/* ---- norms of tensors ---- */

enum { BIG = 40961 }; /* several chunks, the last one not a multiple of a vector */

static void make_big(struct params *ps)
{
    struct err e = {0};
    t_true(params_add(ps, "a", BIG, 0, PARAM_MATRIX, INIT_NORMAL, 0.5) == 0);
    t_true(params_add(ps, "b", 33, 7, PARAM_PLAIN, INIT_NORMAL, 1) == 1);
    t_true(params_add(ps, "held", 9, 0, PARAM_PLAIN, INIT_NORMAL, 1) == 2);
    t_ok(params_reserve(ps, 1, &e), &e);
    params_init(ps, 3);
    ps->p[2].lr = 0;
}

static void give_gradients(struct params *ps)
{
    for (int i = 0; i < ps->n; i++)
        for (size_t k = 0; k < ps->p[i].n; k++)
            ps->p[i].grad[k] = (real)(0.01 * (double)((int)(k * 7919 % 201) - 100));
}

T(a_measured_step_is_the_same_and_reports_norms_of_each_tensor)
{
    struct params a = {0}, b = {0};
    struct adamw o = {.lr = 1e-2,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = 0.1,
                      .router_lr = 1,
                      .clip = 1};
    make_big(&a);
    make_big(&b);
    real *before = mem_alloc(BIG, sizeof *before);
    for (int step = 1; step <= 3; step++) {
        give_gradients(&a);
        give_gradients(&b);
        struct grad_health h = params_grad_health(&a), same = params_grad_health(&b);
        double grad = 0, update = 0, value = 0;
        memcpy(before, b.p[0].value, BIG * sizeof *before);
        for (size_t k = 0; k < BIG; k++)
            grad += (double)b.p[0].grad[k] * (double)b.p[0].grad[k];
        o.measure = 0;
        adamw_step(&a, &o, step, &h);
        o.measure = 1;
        adamw_step(&b, &o, step, &same);
        for (size_t k = 0; k < BIG; k++) {
            double d = (double)b.p[0].value[k] - (double)before[k];
            update += d * d;
            value += (double)before[k] * (double)before[k];
        }
        t_near(b.p[0].grad_squares, grad, 1e-5 * grad);
        t_near(b.p[0].update_squares, update, 1e-4 * update);
        t_near(b.p[0].value_squares, value, 1e-5 * value);
        t_true(update > 0 && b.p[1].update_squares > 0);
        t_near(sqrt(b.p[0].grad_squares + b.p[1].grad_squares), same.norm, 1e-9 * same.norm);
        t_true(b.p[2].update_squares == 0 && b.p[2].value_squares == 0); /* held: no step */
        t_true(a.p[0].update_squares == 0);                              /* not asked for */
        for (int i = 0; i < a.n; i++) {
            size_t n = a.p[i].n * sizeof(real);
            t_true(memcmp(a.p[i].value, b.p[i].value, n) == 0);
            t_true(memcmp(a.p[i].m, b.p[i].m, n) == 0 && memcmp(a.p[i].v, b.p[i].v, n) == 0);
            t_true(memcmp(a.p[i].grad, b.p[i].grad, n) == 0);
        }
    }
    mem_free(before);
    params_release(&a);
    params_release(&b);
}

/* A mixture of experts of 94 layers with 128 experts has 36,000 matrices. */
T_SECONDS(a_table_of_many_parameters_is_built_by_name, 10)
{
    enum { MANY = 200000 };
    struct params ps = {0};
    char name[64];
    for (int i = 0; i < MANY; i++) {
        snprintf(name, sizeof name, "model.layers.%d.mlp.experts.%d.weight", i / 1000, i % 1000);
        t_eq(params_add(&ps, name, 1, 1, PARAM_MATRIX, INIT_ZERO, 0), i);
    }
    t_eq(params_find(&ps, "model.layers.199.mlp.experts.7.weight"), 199007);
    t_eq(params_find(&ps, "model.layers.200.mlp.experts.7.weight"), -1);
    params_release(&ps);
}
