/* Chooses exits after the fact. */
#include "eval/oracle.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"

void oracle_init(struct oracle *o, const struct model *m)
{
    const struct route *r = &m->route;
    memset(o, 0, sizeof *o);
    o->end = route_exits(r) - 1;
    o->first = 1;
    while (o->first < o->end && r->ops->always_on && r->ops->always_on(r, route_exit(r, o->first)))
        o->first++;
}

void oracle_release(struct oracle *o)
{
    mem_free(o->nll);
    mem_free(o->exit);
    mem_free(o->table);
    mem_free(o->force);
    memset(o, 0, sizeof *o);
}

static size_t choices(const struct oracle *o)
{
    return (size_t)(o->end - o->first + 1);
}

static int grow(struct oracle *o, size_t rows, size_t cells, struct err *e)
{
    size_t cap = o->cap, same = o->cap;
    void *nll = o->nll, *exit = o->exit, *table = o->table;
    int rc = mem_grow(&nll, &cap, o->n + rows, choices(o) * sizeof *o->nll);
    o->nll = nll;
    if (rc == 0)
        rc = mem_grow(&exit, &same, o->n + rows, sizeof *o->exit);
    o->exit = exit;
    o->cap = same < cap ? same : cap;
    if (rc == 0)
        rc = mem_grow(&table, &o->table_cap, cells, sizeof *o->table);
    o->table = table;
    return rc < 0 ? err_set(e, DS_EMEM, "out of memory for the exits of %zu tokens", o->n + rows)
                  : 0;
}

int oracle_add(struct oracle *o, struct model *m, const struct batch *b, struct err *e)
{
    size_t R = (size_t)b->B * (size_t)b->T;
    struct pass pass = {.kind = PASS_DENSE};
    int rc = grow(o, R, (size_t)(model_config_depth(&m->config) + 1) * R, e);
    if (rc < 0)
        return rc;
    struct exit_values x = {.nll = o->table};
    model_forward(m, b, &pass);
    model_exits(m, &x);
    m->batch = NULL;
    for (size_t i = 0; i < R; i++, o->n++)
        for (int t = o->first; t <= o->end; t++)
            o->nll[o->n * choices(o) + (size_t)(t - o->first)] =
                (float)o->table[(size_t)route_exit(&m->route, t) * R + i];
    return 0;
}

/* Among equal exits the earlier one. */
static void choose(struct oracle *o, double lambda)
{
    size_t n = choices(o);
    o->lambda = lambda;
    for (size_t i = 0; i < o->n; i++) {
        const float *nll = o->nll + i * n;
        size_t best = 0;
        for (size_t t = 1; t < n; t++)
            if ((double)nll[t] + lambda * (double)t < (double)nll[best] + lambda * (double)best)
                best = t;
        o->exit[i] = (int16_t)(o->first + (int)best);
    }
}

double oracle_share(const struct oracle *o)
{
    double sum = 0;
    for (size_t i = 0; i < o->n; i++)
        sum += o->exit[i] - o->first;
    return o->n > 0 && o->end > o->first ? sum / (double)o->n / (o->end - o->first) : 1;
}

/* Bisection: a dearer layer is executed less. */
void oracle_solve(struct oracle *o, double capacity)
{
    double low = 0, high = 1e-3;
    choose(o, 0);
    if (oracle_share(o) <= capacity)
        return;
    do {
        high *= 4;
        choose(o, high);
    } while (oracle_share(o) > capacity && high < 1e6);
    for (int step = 0; step < 40; step++) {
        double middle = 0.5 * (low + high);
        choose(o, middle);
        if (oracle_share(o) > capacity)
            low = middle;
        else
            high = middle;
    }
    choose(o, high);
}

int oracle_next(struct oracle *o, const struct model *m, const struct batch *b, struct pass *pass,
                struct err *e)
{
    size_t R = (size_t)b->B * (size_t)b->T, L = (size_t)m->route.L;
    void *p = o->force;
    BUG_IF(o->at + R > o->n, "oracle: %zu tokens, %zu are known", o->at + R, o->n);
    int rc = mem_grow(&p, &o->force_cap, L * R, 1);
    o->force = p;
    if (rc < 0)
        return err_set(e, DS_EMEM, "out of memory for %zu forced cells", L * R);
    for (size_t i = 0; i < R; i++) {
        int leaves = route_exit(&m->route, o->exit[o->at + i]);
        for (size_t l = 0; l < L; l++)
            o->force[l * R + i] = (int)l < leaves || (int)l >= m->route.loop.end;
    }
    o->at += R;
    pass->inference.force = o->force;
    pass->inference.force_attention = m->ffn ? o->force : NULL;
    return 0;
}
