/* Distillation: never below zero, zero between equals, rows independent. */
#include "engine/ops.h"
#include "kit.h"

enum { V = 37 };

static void draw(real *x, int n, uint64_t salt, double scale)
{
    struct rng r;
    rng_init(&r, 9, RNG_TEST, salt, 0);
    for (int i = 0; i < n; i++)
        x[i] = (real)(scale * rng_normal(&r));
}

T(distillation_is_never_negative_and_zero_between_equals)
{
    enum { N = 400 };
    static real u[N * V], x[N * V], noise[N * V], kd[N];
    static int32_t target[N];
    static const double apart[] = {1e-7, 1e-5, 1e-3, 0.1, 3};
    draw(x, N * V, 1, 4);
    draw(noise, N * V, 2, 1);
    memcpy(u, x, sizeof u);
    distill_fwd_bwd(u, x, target, 2, 1, kd, N, V);
    for (int i = 0; i < N; i++)
        t_true(kd[i] == 0);
    for (int i = 0; i < N * V; i++)
        t_true(u[i] == 0);
    for (int k = 0; k < 5; k++) {
        double sum = 0, was = k ? 0 : -1;
        for (int i = 0; i < N * V; i++)
            u[i] = x[i] + (real)apart[k] * noise[i];
        distill_fwd_bwd(u, x, target, 2, 1, kd, N, V);
        for (int i = 0; i < N; i++) {
            t_true(kd[i] >= 0);
            sum += (double)kd[i];
        }
        t_true(sum > was);
    }
}

T(nan_logits_give_a_nan_loss)
{
    real u[V], x[V], kd;
    int32_t target = 1;
    draw(u, V, 1, 1);
    draw(x, V, 2, 1);
    x[3] = (real)NAN;
    distill_fwd_bwd(u, x, &target, 2, 1, &kd, 1, V);
    t_true(isnan(kd));
}

static struct model *make(const char *more, uint64_t seed, int rows)
{
    char text[300];
    snprintf(text, sizeof text,
             "model.method=dense model.layers=2 model.heads=2 model.vocab=%d model.max_seq=1024 %s",
             V, more);
    return kit_model(text, seed, rows, MODEL_TRAIN, 1);
}

/* A sequence in the second chunk of rows has the same losses as alone. */
T(a_row_has_the_same_distillation_loss_in_any_chunk)
{
    enum { T = 700 };
    static struct kit_batch k;
    struct model *m = make("model.dim=16", 1, 2 * T), *by = make("model.dim=8", 2, 2 * T);
    struct distill *d;
    struct pass pass = kit_pass(PASS_TRAIN);
    struct err e = {0};
    t_true(2 * T > head_chunk(V));
    t_ok(distill_new(&d, m, by, 2 * T, 0.5, 2, &e), &e);
    m->distill = d;
    kit_fill(&k, 2, T, V, 3);
    distill_pass(d, m, &k.b, &pass);
    model_forward(m, &k.b, &pass);
    model_loss(m, 0, 0);
    real *both = kit_copy(d->kd, 2 * T);
    k.b.id += T;
    k.b.target += T;
    k.b.B = 1;
    distill_pass(d, m, &k.b, &pass);
    model_forward(m, &k.b, &pass);
    model_loss(m, 0, 0);
    t_true(d->kd[0] > 0 && kit_same(d->kd, both + T, T));
    free(both);
    distill_free(d);
    model_free(m);
    model_free(by);
}

T(a_disabled_teacher_changes_no_bit)
{
    static struct kit_batch k;
    struct model *m = make("model.dim=16", 1, 64);
    struct distill *d;
    struct pass pass = kit_pass(PASS_TRAIN);
    struct err e = {0};
    size_t n;
    kit_fill(&k, 2, 32, V, 3);
    kit_step(m, &k.b, &pass);
    real *want = kit_gradients(m, &n);
    t_ok(distill_new(&d, m, NULL, 64, 0.5, 2, &e), &e);
    m->distill = d;
    kit_step(m, &k.b, &pass);
    real *have = kit_gradients(m, &n);
    t_true(kit_same(have, want, n));
    free(have);
    free(want);
    distill_free(d);
    model_free(m);
}
