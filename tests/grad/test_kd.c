/* Distillation in double: value and gradient of its op, and of whole models with a teacher. */
#include "engine/ops.h"
#include "kit_grad.h"

enum { B = 2, T = 7, V = 11, R = B * T, SAMPLES = 12 };

static struct kit_batch batch;
static struct distill *teacher;
static int outputs_from; /* targets are among four ids from here; 0: all */

/* ---- the op ---- */

static void softmax(double *p, const real *x, double t)
{
    double top = -INFINITY, sum = 0;
    for (int v = 0; v < V; v++)
        top = fmax(top, (double)x[v] / t);
    for (int v = 0; v < V; v++)
        sum += p[v] = exp((double)x[v] / t - top);
    for (int v = 0; v < V; v++)
        p[v] /= sum;
}

static double divergence(const real *teach, const real *x, double t)
{
    double p[V], q[V], kl = 0;
    softmax(p, teach, t);
    softmax(q, x, t);
    for (int v = 0; v < V; v++)
        kl += p[v] * log(p[v] / q[v]);
    return t * t * kl;
}

static void draw(real *x, int n, uint64_t salt, double scale)
{
    struct rng r;
    rng_init(&r, 9, RNG_TEST, salt, 0);
    for (int i = 0; i < n; i++)
        x[i] = (real)(scale * rng_normal(&r));
}

T(distillation_is_the_scaled_divergence_and_its_gradient)
{
    static const double at[] = {0.5, 1, 2, 7};
    for (int k = 0; k < 4; k++) {
        real teach[3 * V], x[3 * V], d[3 * V], kd[3];
        int32_t target[3] = {4, -1, 0};
        draw(teach, 3 * V, 1, 3);
        draw(x, 3 * V, 2, 3);
        memcpy(d, teach, sizeof d);
        distill_fwd_bwd(d, x, target, (real)at[k], (real)0.3, kd, 3, V);
        for (int i = 0; i < 3; i++) {
            double want = target[i] < 0 ? 0 : divergence(teach + i * V, x + i * V, at[k]);
            t_near(kd[i], want, 1e-12 * (1 + want));
            for (int v = 0; v < V; v++) {
                double keep = (double)x[i * V + v], up, down;
                x[i * V + v] = (real)(keep + 1e-5);
                up = divergence(teach + i * V, x + i * V, at[k]);
                x[i * V + v] = (real)(keep - 1e-5);
                down = divergence(teach + i * V, x + i * V, at[k]);
                x[i * V + v] = (real)keep;
                t_near(d[i * V + v], target[i] < 0 ? 0 : 0.3 * (up - down) / 2e-5, 1e-8);
            }
        }
    }
}

/* ---- whole models ---- */

static double total(struct model *m, struct pass *pass)
{
    model_forward(m, &batch.b, pass);
    model_loss(m, 0, 0);
    return model_exit_weight(m, 2) *
               (teacher->alpha * m->loss + (1 - teacher->alpha) * teacher->loss) +
           kit_exit_loss(m);
}

static struct model *make(const char *more, uint64_t seed, int train)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=2 model.heads=2 model.ffn=12 model.vocab=%d model.max_seq=%d "
             "model.init_std=0.4 model.method=dense %s",
             V, T, more);
    struct model *m = kit_model(text, seed, R, train, 0);
    kit_shake(m, 0.2, seed);
    return m;
}

static void check_weighted(const char *more, struct model *by, double alpha, double t,
                           const real *exit_weight)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    /* the teacher is constant, and its head is the student's, which must not move either */
    struct model *m = make(more, 7, by ? MODEL_TRAIN : MODEL_TRAIN_OWN);
    struct err e = {0};
    kit_fill(&batch, B, T, V, 1);
    for (int i = 0; i < R && outputs_from > 0; i++)
        batch.target[i] = outputs_from + batch.target[i] % 4;
    batch.target[3] = -1;
    t_ok(distill_new(&teacher, m, by, R, alpha, t, &e), &e);
    m->distill = teacher;
    m->exit_weight = exit_weight;
    distill_pass(teacher, m, &batch.b, &pass);
    kit_step(m, &batch.b, &pass);
    t_true(teacher->loss > 0.01);
    t_eq(teacher->kd[3], 0);
    t_eq(m->nll[3], 0);
    kit_check_params(more, total, m, &pass, SAMPLES);
    distill_free(teacher);
    model_free(m);
}

static void check(const char *more, struct model *by, double alpha, double t)
{
    check_weighted(more, by, alpha, t, NULL);
}

/* A head of some ids: logits of the others are -1e30, in the teacher's too. */
T(ids_without_a_row_of_the_head_count_for_nothing)
{
    enum { N = 4, FIRST = 3 };
    real u[V], x[V], few_u[N], few_x[N], kd, want;
    int32_t target = FIRST + 1, few = 1;
    draw(few_u, N, 1, 2);
    draw(few_x, N, 2, 2);
    for (int both = 0; both < 2; both++) {
        for (int v = 0; v < V; v++) {
            int at = v - FIRST;
            u[v] = at >= 0 && at < N ? few_u[at] : (real)-1e30;
            x[v] = at >= 0 && at < N ? few_x[at] : (real)(both ? -1e30 : -40);
        }
        real p[N], q[N];
        memcpy(p, few_u, sizeof p);
        memcpy(q, few_x, sizeof q);
        distill_fwd_bwd(u, x, &target, 1, 1, &kd, 1, V);
        distill_fwd_bwd(p, q, &few, 1, 1, &want, 1, N);
        t_truef(kd > 0.01 && fabs(kd - want) < 1e-12, "%g, not %g", kd, want);
        for (int v = 0; v < V; v++) {
            int at = v - FIRST;
            t_near(u[v], at >= 0 && at < N ? p[at] : 0, 1e-12);
        }
    }
}

T(heads_of_some_ids_have_the_gradients_of_the_whole_loss)
{
    struct model *by = make("model.dim=4 model.tied=false model.outputs=2-5", 4, MODEL_INFERENCE);
    outputs_from = 2;
    check("model.dim=8 model.tied=false model.outputs=2-5,7", by, 0.3, 2);
    check("model.dim=8 model.tied=false", by, 0.3, 2);
    check("model.dim=8 model.tied=false model.lora_r=2 model.outputs=2-5", NULL, 0.3, 2);
    outputs_from = 0;
    model_free(by);
}

T(exit_losses_go_with_distillation)
{
    static const real weight[] = {0, 0.3, 0.7};
    struct model *by = make("model.dim=4", 4, MODEL_INFERENCE);
    check_weighted("model.dim=8", by, 0.3, 2, weight);
    check_weighted("model.dim=8 model.tied=false", by, 0, 1, weight);
    model_free(by);
}

T(a_distilled_model_has_the_gradients_of_the_whole_loss)
{
    struct model *by = make("model.dim=4", 4, MODEL_INFERENCE);
    check("model.dim=8", by, 0.3, 2);
    check("model.dim=8 model.tied=false", by, 0, 1);
    check("model.dim=8 model.lora_r=2", by, 0.9, 4);
    model_free(by);
}

T(self_distillation_without_adapters_has_the_gradients_of_a_fixed_teacher)
{
    check("model.dim=8 model.lora_r=3 model.tied=false model.lora_targets=q,v,down", NULL, 0.3, 2);
}
