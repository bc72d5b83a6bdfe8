/* Score-function gradients of Bernoulli gates with a running baseline. */
#include "routing/reinforce.h"

#include <stdio.h>
#include <string.h>

#include "base/mem.h"

int reinforce_init(struct reinforce *x, struct params *ps, const char *prefix, struct err *e)
{
    char name[96];
    memset(x, 0, sizeof *x);
    snprintf(name, sizeof name, "%s.baseline", prefix);
    x->params = ps;
    x->baseline = params_add(ps, name, 2, 0, PARAM_ROUTER, INIT_ZERO, 0);
    if (x->baseline < 0)
        return err_set(e, DS_EMEM, "parameters of %s", prefix);
    ps->p[x->baseline].train = 0;
    return 0;
}

void reinforce_layout(struct reinforce *x, struct arena *a, int R)
{
    x->advantage = arena_zalloc(a, (size_t)R, sizeof *x->advantage);
}

void reinforce_note(struct reinforce *x, const double *reward, const struct losses *of)
{
    const real *stored = x->params->p[x->baseline].value;
    double n = 0, sum = 0;
    for (int i = 0; i < of->R; i++) {
        sum += of->target[i] < 0 ? 0 : reward[i];
        n += of->target[i] >= 0;
    }
    x->mean = n > 0 ? sum / of->rows : 0;
    double base = (double)stored[1] > 0 ? (double)stored[0] : n > 0 ? sum / n : 0;
    for (int i = 0; i < of->R; i++)
        x->advantage[i] = of->target[i] < 0 ? 0 : (base - reward[i]) / of->rows;
}

double reinforce_grad(const struct reinforce *x, int i, int drawn, double p)
{
    return x->advantage[i] * (drawn - p);
}

void reinforce_update(struct reinforce *x, double ema)
{
    real *stored = x->params->p[x->baseline].value;
    double weight = ema * (double)stored[1] + (1 - ema), share = (1 - ema) / weight;
    stored[0] = (real)((1 - share) * (double)stored[0] + share * x->mean);
    stored[1] = (real)weight;
}
