/* Softmax cross-entropy and distillation.  MATH.md 9.  The loops are in engine/vec.h. */
#include <math.h>
#include <string.h>

#include "base/pool.h"
#include "engine/ops.h"
#include "engine/scratch.h"
#include "engine/vec.h"

struct xent_job {
    const struct vec_set *by;
    real *logits, *nll, *entropy;
    const int32_t *target;
    const real *weight;
    real scale;
    int N, V, step;
};

static void xent_row(const struct xent_job *j, int i)
{
    size_t V = (size_t)j->V;
    real *x = j->logits + (size_t)i * V;
    int target = j->target[i], wants_grad = j->scale != 0;
    if (target < 0 && !j->entropy) {
        if (j->nll)
            j->nll[i] = 0;
        if (wants_grad)
            memset(x, 0, V * sizeof *x);
        return;
    }
    real top = j->by->max(x, V), at = target >= 0 ? x[target] : 0;
    double sum, moment = 0;
    j->by->exp_sum(wants_grad && target >= 0 ? x : NULL, x, top, V, &sum,
                   j->entropy ? &moment : NULL);
    double log_sum = log(sum);
    if (j->nll)
        j->nll[i] = target >= 0 ? (real)(log_sum + (double)(top - at)) : 0; /* 9.1 */
    if (j->entropy)
        j->entropy[i] = (real)(log_sum - moment / sum); /* 9.2 */
    if (!wants_grad)
        return;
    if (target < 0) {
        memset(x, 0, V * sizeof *x);
        return;
    }
    real by = j->scale * (j->weight ? j->weight[i] : 1);
    j->by->scale(x, (real)((double)by / sum), V); /* 9.3 */
    x[target] -= by;
}

static void xent_rows(void *ctx, int task, int worker)
{
    const struct xent_job *j = ctx;
    int i = task * j->step, end = j->N - i < j->step ? j->N : i + j->step;
    (void)worker;
    for (; i < end; i++)
        xent_row(j, i);
}

void xent_fwd_bwd(real *logits, const int32_t *target, const real *weight, real scale, real *nll,
                  real *entropy, int N, int V)
{
    struct xent_job j = {vec(), logits, nll, entropy, target, weight, scale, N, V, task_rows(V)};
    if (N > 0 && V > 0)
        pool_run(task_count(N, j.step), xent_rows, &j);
}

struct distill_job {
    const struct vec_set *by;
    real *teacher, *kd;
    const real *student;
    const int32_t *target;
    real T, scale;
    int N, V, step;
};

/* p and q come from e^(x - top) with sums as chains in double, so equal logits give exactly 0. */
static void distill_row(const struct distill_job *j, int i)
{
    size_t V = (size_t)j->V;
    real *u = j->teacher + (size_t)i * V;
    const real *x = j->student + (size_t)i * V;
    if (j->target[i] < 0) {
        memset(u, 0, V * sizeof *u);
        j->kd[i] = 0;
        return;
    }
    real *p = scratch_get(SCRATCH_ROW, 2 * V, sizeof *p), *q = p + V;
    memcpy(q, x, V * sizeof *q);
    j->by->scale(u, 1 / j->T, V);
    j->by->scale(q, 1 / j->T, V);
    real top_u = j->by->max(u, V), top_x = j->by->max(q, V);
    double sum_u, sum_x, cross = 0;
    j->by->exp_sum(p, u, top_u, V, &sum_u, NULL);
    for (size_t v = 0; v < V; v++)
        cross += (double)p[v] * ((double)u[v] - (double)q[v]);
    j->by->exp_sum(q, q, top_x, V, &sum_x, NULL);
    double kl = cross / sum_u - (log(sum_u) - log(sum_x)) - ((double)top_u - (double)top_x);
    j->kd[i] = kl > 0 || isnan(kl) ? j->T * j->T * (real)kl : 0; /* 9.4; below 0 only by rounding */
    j->by->scale(p, (real)(1 / sum_u), V);
    j->by->scale(q, (real)(1 / sum_x), V);
    for (size_t v = 0; v < V; v++)
        u[v] = j->scale * j->T * (q[v] - p[v]); /* 9.5 */
}

static void distill_rows(void *ctx, int task, int worker)
{
    const struct distill_job *j = ctx;
    int i = task * j->step, end = j->N - i < j->step ? j->N : i + j->step;
    (void)worker;
    for (; i < end; i++)
        distill_row(j, i);
}

void distill_fwd_bwd(real *teacher, const real *student, const int32_t *target, real T, real scale,
                     real *kd, int N, int V)
{
    struct distill_job j = {vec(), teacher, kd, student, target, T, scale, N, V, task_rows(V)};
    if (N > 0 && V > 0)
        pool_run(task_count(N, j.step), distill_rows, &j);
}

void sample_weights(double *w, const real *x, real top, double T, int V)
{
    vec()->exp_scaled(w, x, (double)top, T, (size_t)V);
}
