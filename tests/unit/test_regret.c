/* The small network that predicts regret: what it learns offline, and from what. */
#include "base/arena.h"
#include "base/rng.h"
#include "routing/regret.h"
#include "t.h"

#include <math.h>
#include <string.h>

enum { D = 3, N = 4000, ROWS = 256 };

struct fixture {
    struct params ps;
    struct regret g;
    struct arena a;
};

static void setup(struct fixture *f, int train)
{
    struct err e = {0};
    struct arena measure;
    memset(f, 0, sizeof *f);
    t_ok(regret_init(&f->g, &f->ps, "x", D, train, &e), &e);
    t_ok(params_reserve(&f->ps, train, &e), &e);
    params_init(&f->ps, 1);
    arena_measure(&measure, "test");
    regret_layout(&f->g, &measure, ROWS);
    t_ok(arena_reserve(&f->a, "test", measure.peak, &e), &e);
    regret_layout(&f->g, &f->a, ROWS);
}

static void teardown(struct fixture *f)
{
    regret_release(&f->g);
    arena_release(&f->a);
    params_release(&f->ps);
}

/* A hinge in one input and a product of two others, on scales far from 1. */
static void samples(real *x, real *label, uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed, RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++) {
        double a = rng_normal(&r), b = rng_uniform(&r), c = rng_normal(&r);
        x[i * D] = (real)(1000 + 50 * a);
        x[i * D + 1] = (real)(1e-3 * b);
        x[i * D + 2] = (real)c;
        label[i] = (real)((a > 0 ? 2 * a : 0) + (b > 0.5 ? c : -c));
    }
}

static real x[N * D], label[N], y[ROWS];

T(it_learns_a_relation_that_is_not_linear)
{
    struct fixture f;
    struct err e = {0};
    double explained, error = 0, spread = 0;
    setup(&f, 0);
    samples(x, label, 1);
    t_ok(regret_fit(&f.g, x, label, N, 3000, 7, &explained, &e), &e);
    t_truef(explained > 0.9 && explained <= 1, "%g", explained);
    samples(x, label, 2); /* not seen */
    regret_standardize(&f.g, x, ROWS);
    regret_predict(&f.g, y, x, ROWS);
    for (int i = 0; i < ROWS; i++) {
        error += (double)((y[i] - label[i]) * (y[i] - label[i]));
        spread += (double)(label[i] * label[i]);
    }
    t_truef(error < 0.15 * spread, "%g of %g", error, spread);
    teardown(&f);
}

/* The inputs explain nothing: the best constant, and a share near zero. */
T(noise_is_not_explained)
{
    struct fixture f;
    struct err e = {0};
    struct rng r;
    double explained;
    setup(&f, 0);
    samples(x, label, 1);
    rng_init(&r, 3, RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++)
        label[i] = (real)(4 + rng_normal(&r));
    t_ok(regret_fit(&f.g, x, label, N, 500, 7, &explained, &e), &e);
    t_truef(explained < 0.1, "%g", explained);
    regret_predict(&f.g, y, x, ROWS);
    for (int i = 0; i < ROWS; i++)
        t_near(y[i], 4, 1);
    teardown(&f);
}

T(samples_without_a_label_do_not_count)
{
    struct fixture f[2];
    struct err e = {0};
    double explained;
    for (int k = 0; k < 2; k++) {
        setup(&f[k], 0);
        samples(x, label, 1);
        for (int i = 0; i < N; i += 2) {
            label[i] = (real)NAN;
            x[i * D] = k ? (real)1e9 : 0;
        }
        t_ok(regret_fit(&f[k].g, x, label, N, 50, 7, &explained, &e), &e);
        t_true(isfinite(explained));
    }
    for (int i = 0; i < f[0].ps.n; i++)
        t_true(memcmp(f[0].ps.p[i].value, f[1].ps.p[i].value, f[0].ps.p[i].n * sizeof(real)) == 0);
    teardown(&f[0]);
    teardown(&f[1]);
}

T(too_few_samples_change_nothing)
{
    struct fixture f, g;
    struct err e = {0};
    double explained;
    setup(&f, 0);
    setup(&g, 0);
    samples(x, label, 1);
    for (int i = 5; i < N; i++)
        label[i] = (real)NAN;
    t_ok(regret_fit(&f.g, x, label, N, 50, 7, &explained, &e), &e);
    t_true(isnan(explained));
    for (int i = 0; i < f.ps.n; i++)
        t_true(memcmp(f.ps.p[i].value, g.ps.p[i].value, f.ps.p[i].n * sizeof(real)) == 0);
    teardown(&f);
    teardown(&g);
}

T(inputs_are_standardised_and_what_is_missing_is_the_mean)
{
    struct fixture f;
    struct err e = {0};
    double explained, sum = 0, square = 0;
    setup(&f, 0);
    samples(x, label, 1);
    t_ok(regret_fit(&f.g, x, label, N, 1, 7, &explained, &e), &e);
    for (int i = 0; i < N; i++) {
        sum += (double)x[i * D + 1] / N;
        square += (double)(x[i * D + 1] * x[i * D + 1]) / N;
    }
    t_near(sum, 0, 1e-2);
    t_near(square, 1, 1e-2);
    real row[D] = {(real)NAN, (real)INFINITY, 0};
    regret_standardize(&f.g, row, 1);
    t_true(row[0] == 0 && row[1] == 0 && isfinite(row[2]));
    teardown(&f);
}

/* In training the first step's statistics are used at once, later ones are averaged in. */
T(running_statistics_follow_the_steps)
{
    struct fixture f;
    setup(&f, 1);
    real one[2 * D] = {1, 1, 1, 3, 3, 3}, two[2 * D] = {11, 11, 11, 13, 13, 13};
    const real *mean = f.ps.p[f.g.mean].value, *sd = f.ps.p[f.g.sd].value;
    regret_note(&f.g, one, 2);
    t_near(mean[0], 2, 1e-6);
    t_near(sd[0], 1, 1e-6);
    regret_update(&f.g, 0.5);
    t_near(mean[0], 2, 1e-6);
    regret_note(&f.g, two, 2);
    t_near(mean[0], 2, 1e-6);
    regret_update(&f.g, 0.5);
    t_near(mean[0], 2 + 10 * 0.5 / 0.75, 1e-5);
    regret_update(&f.g, 0.5); /* nothing noted */
    t_near(mean[0], 2 + 10 * 0.5 / 0.75, 1e-5);
    teardown(&f);
}
