/* The registry of routing methods, and what all of them share: passes, plans and forced cells. */
#include "routing/route.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"

const char *const metric_scope_name[] = {
    [METRIC_STEP] = "step", [METRIC_LAYER] = "layer", [METRIC_CELL] = "cell"};

/* All methods, one line each. */
/* clang-format off */
#define METHODS(X) \
    X(dense) \
    X(dlr) \
    X(dtf) \
    X(edp) \
    X(flexidepth) \
    X(gateskip) \
    X(halt) \
    X(hat) \
    X(layerskip) \
    X(mod) \
    X(ouro) \
    X(random) \
    X(static) \
    X(stochastic)

#define DECLARE(name) extern const struct route_ops route_##name;
#define ROW(name) &route_##name,

METHODS(DECLARE)

static const struct route_ops *const methods[] = { METHODS(ROW) NULL };
/* clang-format on */

const struct route_ops *const *route_all(void)
{
    return methods;
}

const struct route_ops *route_find(const char *name)
{
    for (size_t i = 0; methods[i]; i++)
        if (strcmp(methods[i]->name, name) == 0)
            return methods[i];
    return NULL;
}

struct opt_group route_group(const struct route_ops *ops, char prefix[40])
{
    snprintf(prefix, 40, "%s.", ops->name);
    struct opt_group g = {
        .prefix = prefix, .title = ops->summary, .opts = ops->opts, .n = ops->n_opts};
    return g;
}

static int alloc_metrics(struct route *r, struct err *e)
{
    BUG_IF(r->ops->n_metrics > ROUTE_METRICS_MAX, "%s has %zu metrics", r->ops->name,
           r->ops->n_metrics);
    for (size_t i = 0; i < r->ops->n_metrics; i++) {
        enum metric_scope scope = r->ops->metrics[i].scope;
        if (scope == METRIC_CELL)
            continue;
        r->metric[i] = mem_alloc(scope == METRIC_LAYER ? (size_t)r->L : 1, sizeof(double));
        if (!r->metric[i])
            return err_set(e, DS_EMEM, "metrics of %s", r->ops->name);
    }
    return 0;
}

int route_init(struct route *r, const struct route_ops *ops, void *opts, struct params *ps, int L,
               int C, const struct route_loop *loop, uint64_t seed, struct err *e)
{
    memset(r, 0, sizeof *r);
    r->loop = loop ? *loop : (struct route_loop){0, 1, L};
    r->ops = ops;
    r->opts = opts;
    r->params = ps;
    r->L = L;
    r->C = C;
    r->seed = seed;
    r->capacity = -1;
    r->state = mem_alloc(1, ops->state_size ? ops->state_size : 1);
    if (!r->state)
        return err_set(e, DS_EMEM, "state of %s", ops->name);
    int rc = alloc_metrics(r, e);
    if (rc == 0 && ops->init)
        rc = ops->init(r, e);
    return rc;
}

void route_layout(struct route *r, struct arena *a, int R)
{
    for (size_t i = 0; i < r->ops->n_metrics; i++)
        if (r->ops->metrics[i].scope == METRIC_CELL)
            r->cell[i] = arena_zalloc(a, (size_t)r->L * (size_t)R, sizeof(real));
    if (r->ops->layout)
        r->ops->layout(r, a, R);
}

int route_reserve(struct route *r, int R, struct err *e)
{
    struct arena measure;
    if (R <= r->R_max)
        return 0;
    r->R_max = 0; /* stays 0 when memory is not available */
    arena_release(&r->rows);
    arena_measure(&measure, "routing");
    route_layout(r, &measure, R);
    int rc = measure.peak > 0 ? arena_reserve(&r->rows, "routing", measure.peak, e) : 0;
    if (rc < 0)
        return err_add(e, rc, "%s: state of %d rows", r->ops->name, R);
    if (measure.peak > 0)
        route_layout(r, &r->rows, R);
    r->R_max = R;
    return 0;
}

void route_release(struct route *r)
{
    if (!r->ops)
        return;
    if (r->ops->release && r->state)
        r->ops->release(r);
    for (size_t i = 0; i < ROUTE_METRICS_MAX; i++)
        mem_free(r->metric[i]);
    arena_release(&r->rows);
    if (r->opts) {
        char prefix[40];
        struct opt_group g = route_group(r->ops, prefix);
        opt_release(&g, r->opts);
    }
    mem_free(r->opts);
    mem_free(r->state);
    memset(r, 0, sizeof *r);
}

int route_set(struct route *r, const struct opt *row, double value, struct err *e)
{
    char prefix[40], before[64];
    route_group(r->ops, prefix);
    opt_print(row, r->opts, before, sizeof before);
    int rc = opt_set_number(row, prefix, r->opts, value, e);
    if (rc < 0 || !r->ops->changed)
        return rc;
    rc = r->ops->changed(r, e);
    if (rc < 0) {
        int back = opt_set_named(row, prefix, r->opts, before, NULL, NULL);
        BUG_IF(back < 0, "%s%s does not take its own value %s", prefix, row->key, before);
    }
    return rc;
}

/* A pass at inference without a capacity gets the one that is stored with the model. */
static struct pass with_capacity(const struct route *r, const struct pass *pass)
{
    struct pass p = *pass;
    if ((p.kind == PASS_MASKED || p.kind == PASS_SPARSE) && !p.inference.has_capacity &&
        r->capacity >= 0 && r->ops->flags & ROUTE_CAPACITY) {
        p.inference.has_capacity = 1;
        p.inference.capacity = r->capacity;
    }
    return p;
}

/* A layer that is closed has no metrics in this step, not those of the step before. */
static void forget_closed(struct route *r)
{
    for (size_t i = 0; i < r->ops->n_metrics; i++)
        for (int l = 0; r->ops->metrics[i].scope == METRIC_LAYER && l < r->L; l++)
            if (route_is_closed(r, l))
                r->metric[i][l] = (double)NAN;
}

void route_begin(struct route *r, const struct pass *pass)
{
    BUG_IF(pass->R > r->R_max, "pass of %d rows, reserved %d", pass->R, r->R_max);
    r->pass = with_capacity(r, pass);
    if (pass->record)
        for (size_t i = 0; i < r->ops->n_metrics; i++)
            if (r->cell[i])
                for (size_t k = 0; k < (size_t)r->L * (size_t)pass->R; k++)
                    r->cell[i][k] = (real)NAN;
    if (pass->kind == PASS_TRAIN)
        forget_closed(r);
    if (pass->kind != PASS_DENSE && r->ops->begin && !r->frozen)
        r->ops->begin(r);
}

void plan_all(struct plan *p, int R)
{
    p->n = p->active = R;
    for (int i = 0; i < R; i++) {
        p->row[i] = i;
        p->gate[i] = 1;
        p->weight[i] = 0;
    }
}

static void gates_to_one(struct plan *p)
{
    for (int k = 0; k < p->n; k++)
        if (p->gate[k] != 0)
            p->gate[k] = 1;
}

void route_decide(struct route *r, int l, enum route_span span, struct plan *out, struct stream *s)
{
    int is_routed = r->pass.kind != PASS_DENSE;
    if (route_is_closed(r, l)) {
        out->layer = l;
        out->span = span;
        out->kv = KV_PLAN;
        out->n = out->active = 0;
        return;
    }
    if (r->frozen) {
        if (r->pass.soft && r->ops->regate && is_routed)
            r->ops->regate(r, l, out);
    } else {
        out->layer = l;
        out->span = span;
        out->kv = KV_ALL;
        if (is_routed)
            r->ops->decide(r, l, out, s);
        else
            plan_all(out, r->pass.R);
        if (r->pass.unit)
            gates_to_one(out);
    }
    if (r->ops->enter && is_routed)
        r->ops->enter(r, l, out, s);
}

int route_ready(const struct route *r, const struct pass *pass, struct err *e)
{
    const struct route_ops *ops = r->ops;
    if (pass->inference.topk && !(ops->flags & ROUTE_TOPK))
        return err_set(
            e, DS_EUSAGE,
            "routing=topk: %s has no top-k routing, it decides causally in training too; expected "
            "routing=causal or dense",
            ops->name);
    if (pass->inference.has_capacity && !(ops->flags & ROUTE_CAPACITY))
        return err_set(e, DS_EUSAGE, "capacity: %s has no capacity setting", ops->name);
    if (pass->inference.has_capacity &&
        !(pass->inference.capacity >= 0 && pass->inference.capacity <= 1))
        return err_set(e, DS_ERANGE, "capacity=%g: must be between 0 and 1",
                       pass->inference.capacity);
    struct pass full = with_capacity(r, pass);
    return ops->ready && pass->kind != PASS_DENSE ? ops->ready(r, &full, e) : 0;
}

void plan_from_mask(struct plan *p, const uint8_t *want, const real *weight, const uint8_t *probe,
                    int R, int all_rows)
{
    int n = 0, active = 0;
    for (int i = 0; i < R; i++) {
        int is_probe = probe && probe[i];
        if (!want[i] && !all_rows && !is_probe)
            continue;
        p->row[n] = i;
        p->gate[n] = want[i] ? 1 : 0;
        p->weight[n] = weight ? weight[i] : 1;
        active += want[i] != 0;
        n++;
    }
    p->n = n;
    p->active = active;
}

void plan_from_gates(struct plan *p, const real *gate, const real *weight, int R, int all_rows)
{
    int n = 0, active = 0;
    for (int i = 0; i < R; i++) {
        if (!all_rows && gate[i] == 0)
            continue;
        p->row[n] = i;
        p->gate[n] = gate[i];
        p->weight[n++] = weight[i];
        active += gate[i] != 0;
    }
    p->n = n;
    p->active = active;
}

int route_forced(const struct route *r, int l, int i)
{
    return r->pass.inference.force
               ? r->pass.inference.force[(size_t)l * (size_t)r->pass.R + (size_t)i]
               : -1;
}

int route_forced_attention(const struct route *r, int l, int i)
{
    const int8_t *forced = r->pass.inference.force_attention;
    return forced ? forced[(size_t)l * (size_t)r->pass.R + (size_t)i] : -1;
}

int route_check_target(double target, int on, int L, const char *key, struct err *e)
{
    double floor_ratio = (double)on / L;
    if (!(target >= floor_ratio - 1e-9 && target <= 1.0))
        return err_set(e, DS_ERANGE,
                       "%s=%g cannot be reached: %d of %d layers are always on or forced, so the "
                       "whole-block ratio is in [%.3f, 1]; raise it or force fewer layers",
                       key, target, on, L, floor_ratio);
    return 0;
}
