/* Mutual information and top-k prediction statistics of recorded decisions. */
#include "models/decisions.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

int decisions_init(struct decisions *d, const struct model *m, struct err *e)
{
    const struct route *r = &m->route;
    size_t L = (size_t)model_config_depth(&m->config), V = (size_t)m->config.vocab;
    memset(d, 0, sizeof *d);
    d->L = (int)L;
    d->V = (int)V;
    d->seen = mem_alloc(V, sizeof *d->seen);
    d->run = mem_alloc(L * V, sizeof *d->run);
    d->prediction = mem_alloc(L, sizeof *d->prediction);
    d->soft_n = mem_alloc(4 * L, sizeof *d->soft_n);
    d->gated = mem_alloc(2 * L, 1);
    if (!d->seen || !d->run || !d->prediction || !d->soft_n || !d->gated) {
        decisions_release(d);
        return err_set(e, DS_EMEM, "out of memory for counts of %zu layers x %zu token ids", L, V);
    }
    d->soft_p = d->soft_n + L;
    d->soft_h = d->soft_n + 2 * L;
    d->soft_inside = d->soft_n + 3 * L;
    d->beyond = d->gated + L;
    for (int l = 0; l < d->L; l++)
        d->gated[l] =
            (r->ops->flags & ROUTE_GATED) && !(r->ops->always_on && r->ops->always_on(r, l));
    return 0;
}

void decisions_release(struct decisions *d)
{
    mem_free(d->seen);
    mem_free(d->run);
    mem_free(d->prediction);
    mem_free(d->soft_n);
    mem_free(d->gated);
    memset(d, 0, sizeof *d);
}

/* The cells (R) of layer l of a metric; NULL when the method or the pass does not record it. */
static const real *cells_of(const struct model *m, const char *name, int l)
{
    const struct route_ops *ops = m->route.ops;
    if (!m->route.pass.record || m->route.pass.kind == PASS_DENSE)
        return NULL;
    for (size_t k = 0; k < ops->n_metrics; k++)
        if (ops->metrics[k].scope == METRIC_CELL && strcmp(ops->metrics[k].name, name) == 0)
            return m->route.cell[k] ? m->route.cell[k] + (size_t)l * (size_t)m->R : NULL;
    return NULL;
}

/* The next active row of the plan at or after *k, or R. */
static int next_active(const struct plan *p, int *k, int R)
{
    while (*k < p->n && p->gate[*k] == 0)
        ++*k;
    return *k < p->n ? p->row[*k] : R;
}

static void add_prediction(struct prediction *x, int ran, real chosen)
{
    if (isnan(chosen))
        return;
    *(ran ? chosen != 0 ? &x->hit : &x->false_run : chosen != 0 ? &x->missed : &x->left) += 1;
}

static double entropy_of(double p)
{
    return p > 0 && p < 1 ? -p * log(p) - (1 - p) * log1p(-p) : 0;
}

static void add_soft(struct decisions *d, int l, real gate)
{
    double p = (double)gate;
    if (isnan(p))
        return;
    if (!(p >= 0 && p <= 1)) {
        d->beyond[l] = 1;
        return;
    }
    d->soft_n[l] += 1;
    d->soft_p[l] += p;
    d->soft_h[l] += entropy_of(p);
    d->soft_inside[l] += p > 0 && p < 1;
}

static void add_layer(struct decisions *d, const struct model *m, int l, const int32_t *id)
{
    const struct plan *p = model_plan(m, l);
    const real *topk = cells_of(m, "topk", l), *gate = cells_of(m, "gate", l),
               *score = cells_of(m, "score", l), *threshold = cells_of(m, "threshold", l);
    uint32_t *run = d->run + (size_t)l * (size_t)d->V;
    for (int i = 0, k = 0; i < m->R; i++) {
        int ran = next_active(p, &k, m->R) == i;
        k += ran;
        run[id[i]] += (uint32_t)ran;
        if (topk && !m->route.pass.inference.topk) /* a top-k decision predicts nothing */
            add_prediction(&d->prediction[l], ran, topk[i]);
        if (gate)
            add_soft(d, l, gate[i]);
        if (score && isnan(score[i]))
            d->nan_scores += (threshold && !isnan(threshold[i])) || (topk && !isnan(topk[i]));
    }
}

void decisions_add(struct decisions *d, const struct model *m)
{
    const int32_t *id = m->batch->id;
    for (int i = 0; i < m->R; i++)
        d->seen[id[i]]++;
    d->rows += m->R;
    for (int l = 0; l < d->L; l++)
        add_layer(d, m, l, id);
}

static double term(double on, double N, double n, double ran)
{
    return on > 0 ? on * log(on * N / (n * ran)) : 0;
}

/* Expected contribution of n rows of one id when `ran` of N decisions are assigned at random:
 * hypergeometric mean. */
static double chance_mi(double n, double N, double ran)
{
    double low = fmax(0, n - (N - ran)), high = fmin(n, ran), sum = 0;
    double whole =
        lgamma(ran + 1) + lgamma(N - ran + 1) + lgamma(n + 1) + lgamma(N - n + 1) - lgamma(N + 1);
    for (double on = low; on <= high; on++) {
        double off = n - on;
        double p = exp(whole - lgamma(on + 1) - lgamma(ran - on + 1) - lgamma(off + 1) -
                       lgamma(N - ran - off + 1));
        if (p > 1e-15)
            sum += p * (term(on, N, n, ran) + term(off, N, n, N - ran));
    }
    return sum;
}

double decisions_mi(const struct decisions *d, int l)
{
    const uint32_t *run = d->run + (size_t)l * (size_t)d->V;
    double N = d->rows, ran = 0, sum = 0;
    if (!(N > 0))
        return (double)NAN;
    for (int v = 0; v < d->V; v++)
        ran += run[v];
    if (ran == 0 || ran == N)
        return 0; /* a single decision has no information and no bias */
    for (int v = 0; v < d->V; v++) {
        double n = d->seen[v], on = run[v];
        if (n > 0)
            sum += term(on, N, n, ran) + term(n - on, N, n, N - ran) - chance_mi(n, N, ran);
    }
    return sum / N;
}

double decisions_mi_soft(const struct decisions *d, int l)
{
    double n = d->soft_n[l];
    if (d->beyond[l] || d->soft_inside[l] == 0)
        return (double)NAN;
    return entropy_of(d->soft_p[l] / n) - d->soft_h[l] / n;
}

static double mean_gated(const struct decisions *d, double (*of)(const struct decisions *d, int l))
{
    double sum = 0, n = 0;
    for (int l = 0; l < d->L; l++) {
        double x = d->gated[l] ? of(d, l) : (double)NAN;
        if (isnan(x))
            continue;
        sum += x;
        n += 1;
    }
    return n > 0 ? sum / n : (double)NAN;
}

double decisions_mi_mean(const struct decisions *d)
{
    return mean_gated(d, decisions_mi);
}

double decisions_mi_soft_mean(const struct decisions *d)
{
    return mean_gated(d, decisions_mi_soft);
}

struct prediction decisions_prediction(const struct decisions *d, int l)
{
    struct prediction all = {0};
    for (int k = l < 0 ? 0 : l; k < (l < 0 ? d->L : l + 1); k++) {
        const struct prediction *p = &d->prediction[k];
        all.hit += p->hit;
        all.false_run += p->false_run;
        all.missed += p->missed;
        all.left += p->left;
    }
    return all;
}

static double share(double part, double of)
{
    return of > 0 ? part / of : (double)NAN;
}

double prediction_cells(const struct prediction *p)
{
    return p->hit + p->false_run + p->missed + p->left;
}

double prediction_precision(const struct prediction *p)
{
    return share(p->hit, p->hit + p->false_run);
}

double prediction_recall(const struct prediction *p)
{
    return share(p->hit, p->hit + p->missed);
}

double prediction_f1(const struct prediction *p)
{
    return share(2 * p->hit, 2 * p->hit + p->false_run + p->missed);
}

double prediction_base(const struct prediction *p)
{
    return share(p->hit + p->missed, prediction_cells(p));
}

double prediction_accuracy(const struct prediction *p)
{
    return share(p->hit + p->left, prediction_cells(p));
}
