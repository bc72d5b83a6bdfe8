/* Gradient health and the AdamW step.  MATH.md 11. */
#include "base/pool.h"
#include "engine/ops.h"
#include "engine/param.h"
#include "engine/scratch.h"

struct grad_health params_grad_health(const struct params *ps)
{
    struct grad_health h = {0};
    double sum = 0, router = 0;
    for (int i = 0; i < ps->n; i++) {
        const struct param *p = &ps->p[i];
        uint64_t bad = 0;
        if (!p->grad)
            continue;
        double squares = sum_squares(p->grad, p->n, &bad);
        *(p->group == PARAM_ROUTER ? &router : &sum) += squares;
        h.bad += bad;
        if (bad && !h.first_bad)
            h.first_bad = p->name;
    }
    h.norm = sqrt(sum);
    h.router_norm = sqrt(router);
    return h;
}

struct adamw_job {
    real *w, *m, *v;
    const real *g;
    size_t n;
    real beta1, beta2, eps, keep, rate, root, clip; /* see 11.2 .. 11.4 */
};

static void adamw_part(void *ctx, int task, int worker)
{
    const struct adamw_job *j = ctx;
    size_t begin, end = span_of(j->n, task, &begin);
    real *w = j->w, *m = j->m, *v = j->v;
    const real *g = j->g;
    real b1 = j->beta1, b2 = j->beta2;
    (void)worker;
#pragma omp simd
    for (size_t i = begin; i < end; i++) {
        real gi = g[i] * j->clip;                 /* 11.1 */
        real mi = b1 * m[i] + (1 - b1) * gi;      /* 11.2 */
        real vi = b2 * v[i] + (1 - b2) * gi * gi; /* 11.3 */
        m[i] = mi;
        v[i] = vi;
        w[i] = j->keep * w[i] - j->rate * mi / (sqrt_r(vi) * j->root + j->eps); /* 11.4 */
    }
}

static double clip_factor(double norm, double limit)
{
    return limit > 0 && norm > limit ? limit / norm : 1;
}

void adamw_step(struct params *ps, const struct adamw *o, int64_t step,
                const struct grad_health *health)
{
    params_changed(ps);
    double bias1 = 1 - pow(o->beta1, (double)step), bias2 = 1 - pow(o->beta2, (double)step);
    for (int i = 0; i < ps->n; i++) {
        struct param *p = &ps->p[i];
        if (!p->grad || !p->train)
            continue;
        int is_router = p->group == PARAM_ROUTER;
        double lr = o->lr * (is_router ? o->router_lr : 1);
        double decay = p->group == PARAM_MATRIX ? o->weight_decay : 0;
        struct adamw_job j = {
            .w = p->value,
            .m = p->m,
            .v = p->v,
            .g = p->grad,
            .n = p->n,
            .beta1 = (real)o->beta1,
            .beta2 = (real)o->beta2,
            .eps = (real)o->eps,
            .keep = (real)(1 - lr * decay),
            .rate = (real)(lr / bias1),
            .root = (real)(1 / sqrt(bias2)),
            .clip = (real)clip_factor(is_router ? health->router_norm : health->norm, o->clip),
        };
        pool_run(span_tasks(p->n), adamw_part, &j);
    }
}
