/* Checks gradients of whole models against central differences, in double precision. */
#ifndef DS_TESTS_KIT_GRAD_H
#define DS_TESTS_KIT_GRAD_H

#include "kit.h"

/* Loss at the current weights; m and pass as given to the check. */
typedef double kit_objective(struct model *m, struct pass *pass);

/* What m->exit_weight adds to the loss of the last pass, from whole rows of logits. */
static inline double kit_exit_loss(struct model *m)
{
    int V = (int)m->config.vocab, L = model_config_depth(&m->config), n = 0;
    real *logits = malloc((size_t)V * sizeof *logits);
    double total = 0;
    for (int i = 0; i < m->R; i++)
        n += m->batch->target[i] >= 0;
    for (int l = 1; l < L && m->exit_weight; l++)
        for (int i = 0; i < m->R && m->exit_weight[l] > 0; i++) {
            double sum = 0;
            if (m->batch->target[i] < 0)
                continue;
            model_lens(m, l, i, logits);
            for (int v = 0; v < V; v++)
                sum += exp((double)(logits[v] - logits[m->batch->target[i]]));
            total += (double)m->exit_weight[l] * log(sum) / n;
        }
    free(logits);
    return total;
}

/* Seven-point stencil: its truncation error is far below 1e-7. */
static inline double kit_slope(kit_objective *f, struct model *m, struct pass *pass, real *x,
                               const real *direction, size_t n)
{
    static const double at[6] = {-3, -2, -1, 1, 2, 3}, weight[6] = {-1, 9, -45, 45, -9, 1};
    const double eps = 1.5e-4;
    double sum = 0;
    real *keep = kit_copy(x, n);
    for (int k = 0; k < 6; k++) {
        for (size_t i = 0; i < n; i++)
            x[i] = keep[i] + (real)(at[k] * eps) * direction[i];
        params_changed(&m->params);
        sum += weight[k] * f(m, pass);
    }
    memcpy(x, keep, n * sizeof *x);
    params_changed(&m->params);
    free(keep);
    return sum / (60 * eps);
}

/* A loss is exact to about 1e-15, so a slope to 1e-11: of a gradient below 3e-4 that is above 1e-7. */
static inline void kit_close(const char *what, const char *name, double num, double den)
{
    double rel = sqrt(num) / fmax(sqrt(den), 3e-4);
    t_truef(rel <= 1e-7, "%s: %s: relative error %.2e (of %.2e)", what, name, rel, sqrt(den));
}

/* Some elements one by one, then the whole tensor along one direction. */
static inline void kit_check_tensor(const char *what, kit_objective *f, struct model *m,
                                    struct pass *pass, const char *name, real *x, const real *grad,
                                    size_t n, size_t samples, uint32_t salt)
{
    struct rng r;
    double num = 0, den = 0, along = 0;
    real *d = calloc(n, sizeof *d);
    rng_init(&r, 3, RNG_TEST, 3, salt);
    for (size_t k = 0; k < samples && k < n; k++) {
        size_t i = n <= samples ? k : rng_below(&r, (uint32_t)n);
        memset(d, 0, n * sizeof *d);
        d[i] = 1;
        double want = kit_slope(f, m, pass, x, d, n);
        num += ((double)grad[i] - want) * ((double)grad[i] - want);
        den += want * want;
    }
    kit_close(what, name, num, den);
    for (size_t i = 0; i < n; i++) {
        d[i] = (real)(rng_normal(&r) / sqrt((double)n));
        along += (double)grad[i] * (double)d[i];
    }
    double want = kit_slope(f, m, pass, x, d, n);
    kit_close(what, name, (along - want) * (along - want), want * want);
    free(d);
}

/* Checks the gradient of every trained tensor from the last backward pass. */
static inline void kit_check_params(const char *what, kit_objective *f, struct model *m,
                                    struct pass *pass, size_t samples)
{
    for (int i = 0; i < m->params.n; i++) {
        struct param *p = &m->params.p[i];
        if (!p->train)
            continue;
        real *grad = kit_copy(p->grad, p->n);
        kit_check_tensor(what, f, m, pass, p->name, p->value, grad, p->n, samples, (uint32_t)i);
        free(grad);
    }
}

#endif
