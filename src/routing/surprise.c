/* Surprise gates: their formula, gradient and learned scalars. */
#include "routing/surprise.h"

#include <math.h>
#include <stdio.h>

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

static double softplus(double x)
{
    return x > 30 ? x : log1p(exp(x));
}

static double ce_of(const struct surprise_scalars *x, double d_st, double d_ch)
{
    return x->scale * (d_st - d_ch) + x->log_o_ce;
}

static double cu_of(const struct surprise_scalars *x, double d_st, double ma)
{
    return x->scale * (d_st - exp(x->log_m_cu) * ma);
}

struct surprise surprise_of(const struct surprise_scalars *x, double d_st, double d_ch, double ma)
{
    static const double least = 1e-12;
    struct surprise s = {
        .s_ce = sigmoid(softplus(x->beta_ce) * ce_of(x, d_st, d_ch)),
        .s_cu = sigmoid(softplus(x->beta_cu) * cu_of(x, d_st, ma)),
    };
    s.g = x->kind == SURPRISE_CE   ? s.s_ce
          : x->kind == SURPRISE_CU ? s.s_cu
                                   : s.s_ce + s.s_cu - s.s_ce * s.s_cu;
    if (s.g < least)
        s.g = least;
    return s;
}

void surprise_bwd(struct surprise_grad *d, const struct surprise_scalars *x, double dg, double d_st,
                  double d_ch, double ma)
{
    struct surprise s = surprise_of(x, d_st, d_ch, ma);
    int has_ce = x->kind != SURPRISE_CU, has_cu = x->kind != SURPRISE_CE;
    double other_ce = x->kind == SURPRISE_BOTH ? s.s_ce : 0,
           other_cu = x->kind == SURPRISE_BOTH ? s.s_cu : 0;
    double dce =
        has_ce ? dg * (1 - other_cu) * s.s_ce * (1 - s.s_ce) : 0; /* d loss / d sigmoid argument */
    double dcu = has_cu ? dg * (1 - other_ce) * s.s_cu * (1 - s.s_cu) : 0;
    double b_ce = softplus(x->beta_ce), b_cu = softplus(x->beta_cu);
    d->d_st = d->d_ch = 0;
    if (has_ce) {
        d->beta_ce += dce * sigmoid(x->beta_ce) * ce_of(x, d_st, d_ch);
        d->log_o_ce += dce * b_ce;
        d->d_st += dce * b_ce * x->scale;
        d->d_ch -= dce * b_ce * x->scale;
    }
    if (has_cu) {
        d->beta_cu += dcu * sigmoid(x->beta_cu) * cu_of(x, d_st, ma);
        d->log_m_cu -= dcu * b_cu * x->scale * exp(x->log_m_cu) * ma;
        d->d_st += dcu * b_cu * x->scale;
    }
}

double surprise_average(const double *value, int first, int at, int window, int replicate)
{
    int low = at - window + 1 > first ? at - window + 1 : first, n = at - low + 1;
    double sum = 0;
    if (replicate && n < window) {
        sum = (window - n) * value[first];
        n = window;
    }
    for (int i = low; i <= at; i++)
        sum += value[i];
    return sum / n;
}

/* ---- parameters ------------------------------------------------------------------------------ */

static int add(struct surprise_params *p, const char *prefix, const char *name, double value,
               int is_learned)
{
    char full[96];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    int i = params_add(p->params, full, p->n, 0, PARAM_ROUTER, INIT_CONST, value);
    if (i >= 0)
        p->params->p[i].train = is_learned;
    return i;
}

int surprise_init(struct surprise_params *p, struct params *ps, const char *prefix, int n,
                  const struct surprise_start *x, struct err *e)
{
    p->params = ps;
    p->n = n;
    p->beta_ce = add(p, prefix, "beta_ce", x->beta_ce.value, x->beta_ce.is_learned);
    p->beta_cu = add(p, prefix, "beta_cu", x->beta_cu.value, x->beta_cu.is_learned);
    /* learned as logarithms, so neither can reach 0 */
    p->log_o_ce = add(p, prefix, "log_o_ce", log(x->o_ce.value), x->o_ce.is_learned);
    p->log_m_cu = add(p, prefix, "log_m_cu", log(x->m_cu.value), x->m_cu.is_learned);
    if (p->beta_ce < 0 || p->beta_cu < 0 || p->log_o_ce < 0 || p->log_m_cu < 0)
        return err_set(e, DS_EMEM, "parameters of %s", prefix);
    return 0;
}

struct surprise_scalars surprise_at(const struct surprise_params *p, int i)
{
    const struct param *q = p->params->p;
    return (struct surprise_scalars){
        .kind = SURPRISE_BOTH,
        .beta_ce = (double)q[p->beta_ce].value[i],
        .beta_cu = (double)q[p->beta_cu].value[i],
        .log_o_ce = (double)q[p->log_o_ce].value[i],
        .log_m_cu = (double)q[p->log_m_cu].value[i],
        .scale = 1,
    };
}

void surprise_add_grad(const struct surprise_params *p, int i, const struct surprise_grad *d)
{
    const struct {
        int index;
        double d;
    } x[] = {{p->beta_ce, d->beta_ce},
             {p->beta_cu, d->beta_cu},
             {p->log_o_ce, d->log_o_ce},
             {p->log_m_cu, d->log_m_cu}};
    for (size_t k = 0; k < DS_LEN(x); k++) {
        real *grad = p->params->p[x[k].index].grad; /* NULL: not trained */
        if (grad)
            grad[i] += (real)x[k].d;
    }
}

void surprise_schedule(const struct surprise_params *p, const struct surprise_schedule *x,
                       int64_t step, double progress)
{
    static const double pi = 3.14159265358979323846;
    double warm = (double)x->warmup, now = (double)step, last = progress > 0 ? now / progress : now;
    double at = last > warm ? fmin(1, fmax(0, (now - warm) / (last - warm))) : 0;
    if (x->kind == SURPRISE_COSINE)
        at = (1 - cos(pi * at)) / 2;
    for (int i = 0; x->kind != SURPRISE_LEARNED && i < p->n; i++) {
        p->params->p[p->beta_ce].value[i] = (real)(x->ce_start + at * (x->ce_end - x->ce_start));
        p->params->p[p->beta_cu].value[i] = (real)(x->cu_start + at * (x->cu_end - x->cu_start));
    }
}
