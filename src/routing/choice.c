/* Decides which rows of a layer run, from their scores. */
#include "routing/choice.h"

#include <math.h>
#include <string.h>

#include "base/rng.h"

int choice_init(struct choice *c, struct params *ps, const char *prefix, int L, struct err *e)
{
    memset(c, 0, sizeof *c);
    return quantiles_init(&c->quantiles, ps, prefix, L, e);
}

/* Called once to measure and once to allocate. */

void choice_layout(struct choice *c, struct arena *a, int R)
{
    size_t n = (size_t)R;
    c->score = arena_alloc(a, n, sizeof(real));
    c->weight = arena_alloc(a, n, sizeof(real));
    c->want = arena_alloc(a, n, 1);
    c->target = arena_alloc(a, n, 1);
    quantiles_layout(&c->quantiles, a, R);
}

void choice_release(struct choice *c)
{
    quantiles_release(&c->quantiles);
    memset(c, 0, sizeof *c);
}

static double capacity_of(const struct pass *p, const struct choice_rule *rule)
{
    return p->inference.has_capacity ? p->inference.capacity : rule->capacity;
}

static double threshold_of(struct choice *c, const struct pass *p, const struct choice_rule *rule,
                           int l)
{
    struct quantiles *q = &c->quantiles;
    double gamma = capacity_of(p, rule);
    double offset = p->kind == PASS_TRAIN ? 0 : rule->offset + p->inference.offset;
    int is_fixed = rule->kind == CHOICE_FIXED && !p->inference.has_capacity;
    if (p->inference.calibrate && rule->kind != CHOICE_RANDOM)
        return quantiles_calibrate(q, l, p->inference.calibrate - 1, c->score, p->R);
    if (!is_fixed && (gamma <= 0 || gamma >= 1))
        return gamma <= 0 ? (double)INFINITY : -(double)INFINITY;
    if (rule->kind == CHOICE_RANDOM)
        return 1 - gamma + offset / sqrt(12); /* the standard deviation of uniform scores */
    double base = is_fixed                ? rule->fixed
                  : quantiles_known(q, l) ? quantiles_at(q, l, gamma)
                                          : rule->neutral;
    return offset == 0 ? base : base + offset * quantiles_spread(q, l);
}

void choice_make(struct choice *c, const struct route *r, const struct choice_rule *rule, int l)
{
    const struct pass *p = &r->pass;
    int training = p->kind == PASS_TRAIN;
    int by_rank = p->inference.topk || (training && rule->kind != CHOICE_FIXED);
    if (training && rule->kind != CHOICE_RANDOM)
        quantiles_note(&c->quantiles, l, c->score, p->R);
    double threshold = c->threshold = threshold_of(c, p, rule, l);
    if (by_rank)
        (void)rank_topk(r, l, c->score, capacity_of(p, rule), c->want);
    c->nan = 0;
    for (int i = 0; i < p->R; i++) {
        int forced = route_forced(r, l, i);
        if (!by_rank)
            c->want[i] = (uint8_t)(forced >= 0 ? forced
                                               : threshold == -(double)INFINITY ||
                                                     (double)c->score[i] > threshold);
        c->weight[i] = forced >= 0 ? 0 : 1;
        c->nan += isnan(c->score[i]) != 0;
    }
}

void choice_target(struct choice *c, const struct route *r, const struct choice_rule *rule)
{
    rank_target(r, c->score, capacity_of(&r->pass, rule), c->target);
}

real choice_random(const struct route *r, int l, int i)
{
    const struct pass *p = &r->pass;
    if (p->kind == PASS_TRAIN)
        return (real)rng_at(p->seed, RNG_ROUTE, (uint64_t)p->step, (uint32_t)l, route_place(p, i));
    return (real)rng_at(r->seed, RNG_ROUTE, 0, (uint32_t)l,
                        (uint32_t)p->id[i] * 2654435761u + (uint32_t)p->pos[i]);
}

int choice_ready(const struct choice *c, const struct choice_rule *rule, const char *method, int l,
                 const struct pass *pass, struct err *e)
{
    double gamma = capacity_of(pass, rule);
    int needs_none = pass->kind == PASS_TRAIN || pass->inference.topk ||
                     pass->inference.calibrate || rule->kind == CHOICE_RANDOM || gamma <= 0 ||
                     gamma >= 1;
    int has_other =
        !pass->inference.has_capacity && (rule->kind == CHOICE_FIXED || !isnan(rule->neutral));
    if (needs_none || has_other || quantiles_known(&c->quantiles, l))
        return 0;
    return err_set(e, DS_EUSAGE,
                   "capacity=%g: no thresholds of %s are stored; run depthscope calibrate MODEL",
                   gamma, method);
}
