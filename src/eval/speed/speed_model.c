/* Builds a model for measurement: dense, and with a method at each ratio. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/str.h"
#include "models/load.h"
#include "speed_impl.h"

/* The method's option of this name, or NULL. */
static const struct opt *option_of(const struct route_ops *ops, const char *key)
{
    char prefix[40], full[80];
    struct opt_group g = route_group(ops, prefix);
    snprintf(full, sizeof full, "%s.%s", ops->name, key);
    return opt_find(&g, full);
}

static int trains_sparse(const struct route_ops *ops)
{
    const struct opt *o = option_of(ops, "train");
    return o && o->choices && strstr(o->choices, "sparse");
}

static int is_forced(const struct route_ops *ops)
{
    return !(ops->flags & ROUTE_CONTROL) || !option_of(ops, "target_ratio");
}

/* ---- ways ---- */

static void add_way(struct speed_subject *u, const struct speed *s, const struct speed_way *w)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s%s", u->what, w->name[0] ? " " : "", w->name);
    if (w->is_dense || speed_request(s, u->group, name))
        u->way[u->n++] = *w;
}

static void add_ratio(struct speed_subject *u, const struct speed *s, double ratio,
                      const char *suffix, int is_masked)
{
    struct speed_way w = {.ratio = ratio, .is_masked = is_masked};
    snprintf(w.name, sizeof w.name, "%.2f%s", ratio, suffix);
    add_way(u, s, &w);
}

static void add_texts(struct speed_subject *u, const struct speed *s)
{
    struct speed_way w = {.ratio = 1, .texts = SPEED_TEXTS};
    snprintf(w.name, sizeof w.name, "%d texts", w.texts);
    add_way(u, s, &w);
}

/* Lists the ways: methods with straight-through training also have a masked one. */
static void list_ways(struct speed_subject *u, const struct speed *s, const struct speed_plan *p,
                      const struct route_ops *ops)
{
    int has_masked = p->train && (ops->flags & ROUTE_STE), sparse = trains_sparse(ops);
    char name[128];
    u->n = 0;
    if (!(ops->flags & ROUTE_GATED)) {
        add_way(u, s, &(struct speed_way){.ratio = 1});
        if (p->has_texts)
            add_texts(u, s);
        return;
    }
    add_way(u, s, &(struct speed_way){.name = "dense", .ratio = 1, .is_dense = 1});
    for (int k = 0; k < SPEED_RATIOS; k++)
        if (!s->o.quick || k % 2 == 0)
            add_ratio(u, s, speed_ratios[k],
                      !has_masked ? ""
                      : sparse    ? " sparse"
                                  : " masked",
                      p->train && !sparse);
    if (has_masked && sparse)
        add_ratio(u, s, 0.5, " masked", 1);
    snprintf(name, sizeof name, "%s dense", u->what);
    if (u->n == 1 && !speed_request(s, u->group, name))
        u->n = 0;
}

/* Forces random gated cells at this ratio. */
static int force_cells(struct speed_way *w, const struct route *r, int cells, struct err *e)
{
    struct rng g;
    rng_init(&g, 1, RNG_TEST, 1, 0);
    w->force = mem_alloc((size_t)r->L * (size_t)cells, 1);
    if (!w->force)
        return err_set(e, DS_EMEM, "out of memory for forced cells");
    for (int l = 0; l < r->L; l++)
        for (int i = 0; i < cells; i++)
            w->force[(size_t)l * (size_t)cells + (size_t)i] =
                (int8_t)((r->ops->always_on && r->ops->always_on(r, l)) ||
                         rng_uniform(&g) < w->ratio);
    return 0;
}

/* ---- the model ---- */

static int set_option(struct config *c, const struct route_ops *ops, const char *key,
                      const char *value, struct err *e)
{
    char full[80];
    snprintf(full, sizeof full, "%s.%s", ops->name, key);
    return option_of(ops, key) ? config_set(c, full, value, "bench", e) : 0;
}

int speed_model_from(struct model **out, const struct speed *s, const struct route_ops *ops,
                     struct err *e)
{
    struct model_config c = {0};
    struct config own = {0}, route = {0};
    struct str notes = {0};
    struct model *m = NULL;
    int rc = model_config_open(&c, &own, s->from, e);
    if (rc < 0 ||
        (rc = opt_set(opt_find(&model_group, "model.method"), &c, ops->name, "bench", e)) < 0 ||
        (rc = set_option(&route, ops, "target_ratio", "0.75", e)) < 0 ||
        (rc = model_new_table(&m, &c, &route, 1, MODEL_INFERENCE, e)) < 0 ||
        (rc = stored_mark(m, e)) < 0 || (rc = model_reserve_values(m, e)) < 0)
        goto out;
    params_init(&m->params, 1);
    if ((rc = model_start_from(m, s->from, &notes, e)) < 0 ||
        (rc = weights_use(m, &s->o.numbers, e)) < 0)
        goto out;
    rc = weights_ready(m, e);
out:
    opt_release(&model_group, &c); /* empty when it was taken */
    config_release(&own);
    config_release(&route);
    str_release(&notes);
    if (rc == 0)
        *out = m;
    else
        model_free(m);
    return rc;
}

static int make_model(struct speed_subject *u, const struct speed *s, const struct speed_plan *p,
                      const struct route_ops *ops, struct err *e)
{
    struct model_config c = {0};
    struct config route = {0}, keys = {0};
    if (s->from) {
        int rc = speed_model_from(&u->model, s, ops, e);
        return rc == 0 ? model_reserve(u->model, p->rows, p->train, 1, e) : rc;
    }
    struct numeric_options numbers = s->o.numbers;
    if (p->train)
        numbers.weights = QUANT_NONE; /* quantised weights are for inference only */
    int rc = opt_defaults(&model_group, &c, e);
    if (rc < 0 || (rc = config_merge(&keys, &s->keys, e)) < 0 ||
        (rc = config_set(&keys, "model.method", ops->name, "bench", e)) < 0)
        goto out;
    if (p->is_block && ((rc = config_set(&keys, "model.layers", "1", "bench", e)) < 0 ||
                        (rc = config_set(&keys, "model.vocab", "64", "bench", e)) < 0 ||
                        (rc = set_option(&route, ops, "early", "0", e)) < 0 ||
                        (rc = set_option(&route, ops, "late", "0", e)) < 0))
        goto out;
    if ((rc = config_apply(&keys, &model_group, &c, e)) < 0 ||
        (rc = set_option(&route, ops, "target_ratio", "0.75", e)) < 0)
        goto out;
    if (p->train && trains_sparse(ops) && (rc = set_option(&route, ops, "train", "sparse", e)) < 0)
        goto out;
    if ((rc = model_new(&u->model, &c, &route, 1, p->train, e)) < 0 ||
        (rc = weights_use(u->model, &numbers, e)) < 0)
        goto out;
    rc = model_reserve(u->model, p->rows, p->train, 1, e);
out:
    opt_release(&model_group, &c); /* empty when it was taken */
    config_release(&route);
    config_release(&keys);
    return rc;
}

int speed_subject_open(struct speed_subject *u, const struct speed *s, const struct speed_plan *p,
                       struct err *e)
{
    const struct route_ops *ops = route_find(p->method);
    memset(u, 0, sizeof *u);
    u->group = p->group;
    u->cells = p->cells;
    str_copy(u->what, sizeof u->what, p->what);
    list_ways(u, s, p, ops);
    if (u->n == 0)
        return 0;
    int rc = make_model(u, s, p, ops, e);
    for (int k = 0; k < u->n && rc == 0; k++)
        if (!u->way[k].is_dense && (ops->flags & ROUTE_GATED) && is_forced(ops))
            rc = force_cells(&u->way[k], &u->model->route, p->cells, e);
    if (rc < 0)
        speed_subject_close(u);
    return rc;
}

void speed_subject_close(struct speed_subject *u)
{
    model_free(u->model);
    for (int k = 0; k < u->n; k++)
        mem_free(u->way[k].force);
    memset(u, 0, sizeof *u);
}

static void set_live(struct route *r, const char *key, const char *value)
{
    char prefix[40];
    const struct opt *o = option_of(r->ops, key);
    route_group(r->ops, prefix);
    if (o)
        BUG_IF(opt_set_named(o, prefix, r->opts, value, "bench", NULL) < 0, "%s.%s=%s",
               r->ops->name, key, value);
}

void speed_subject_set(struct speed_subject *u, const struct speed_way *w, struct pass *pass,
                       int train)
{
    struct route *r = &u->model->route;
    char text[32];
    int on = 0;
    memset(pass, 0, sizeof *pass);
    pass->kind = w->is_dense ? PASS_DENSE : train ? PASS_TRAIN : PASS_SPARSE;
    pass->progress = 1;
    pass->seed = 1;
    pass->inference.force = w->force;
    if (w->is_dense || !(r->ops->flags & ROUTE_GATED))
        return;
    for (int l = 0; l < r->L; l++)
        on += r->ops->always_on && r->ops->always_on(r, l);
    snprintf(text, sizeof text, "%.9g", (on + w->ratio * (r->L - on)) / r->L);
    if (!w->force)
        set_live(r, "target_ratio", text);
    if (train && trains_sparse(r->ops))
        set_live(r, "train", w->is_masked ? "masked" : "sparse");
}

/* ---- figures ---- */

double speed_flops(const struct model *m, int whole, int head)
{
    const struct flops *f = &m->flops;
    double top = f->part[(size_t)f->L * FLOPS_PARTS + FLOPS_HEAD];
    return (whole ? f->dense : flops_total(f)) - (head ? 0 : top);
}

/* Bytes of values, of gradients and moments when training, and of the packed matrices. */
static double weights_bytes(const struct model *m)
{
    double sum = (double)m->weights.bytes;
    if (m->is_training)
        sum += (double)m->params.block_bytes;
    for (int i = 0; i < m->params.n && !m->is_training; i++)
        sum += m->params.p[i].value ? (double)m->params.p[i].n * sizeof(real) : 0;
    for (int i = 0; i < m->weights.n; i++) {
        const struct weight *x = &m->weights.v[i];
        sum += x->quant ? (double)quant_bytes(x->quant) : 0;
        sum += x->own ? (double)x->O * (double)x->C * sizeof(real) : 0;
    }
    return sum;
}

static int add_figure(struct speed *s, const struct speed_subject *u, const struct speed_figures *f,
                      int k, struct err *e)
{
    const struct speed_way *w = &u->way[k];
    int n = (int)s->o.rounds;
    double rate[SPEED_ROUNDS_MAX], time = speed_median(f->seconds[k], n);
    char name[128];
    double tokens = f->tokens * (w->texts ? w->texts : 1);
    for (int i = 0; i < n; i++)
        rate[i] = f->seconds[k][i] > 0 ? tokens / f->seconds[k][i] : 0;
    snprintf(name, sizeof name, "%s%s%s", u->what, w->name[0] ? " " : "", w->name);
    struct speed_result *r = speed_add(s, u->group, name, "tokens/s", rate, n, e);
    if (!r)
        return DS_EMEM;
    r->tokens_s = r->median;
    r->gflops = time > 0 ? 1e-9 * f->flops[k] / time : (double)NAN;
    if (f->bytes[k] > 0) {
        r->gbs = time > 0 ? 1e-9 * f->bytes[k] / time : (double)NAN;
        speed_set_limit(r, r->gbs, "read", f->read_gbs);
    } else
        speed_set_limit(r, r->gflops, peak_name[f->unit], s->peak[f->unit]);
    r->flops_ratio = f->dense[k] > 0 ? f->flops[k] / f->dense[k] : (double)NAN;
    if (u->way[0].is_dense) {
        r->reference = k ? "dense" : NULL;
        r->time_ratio = speed_median_ratio(f->seconds[k], f->seconds[0], n);
        r->vs = k ? speed_median_ratio(f->seconds[0], f->seconds[k], n) : (double)NAN;
    } else if (w->texts && k > 0) {
        r->reference = "one text";
        r->vs = w->texts * speed_median_ratio(f->seconds[0], f->seconds[k], n);
    }
    r->weights_bytes = weights_bytes(u->model);
    r->stream_bytes = (double)u->model->stream_arena.peak;
    r->scratch_bytes = (double)u->model->work_arena.peak;
    return 0;
}

int speed_add_figures(struct speed *s, const struct speed_subject *u, const struct speed_figures *f,
                      struct err *e)
{
    int rc = 0;
    for (int k = 0; k < u->n && rc == 0; k++)
        rc = add_figure(s, u, f, k, e);
    return rc;
}

/* Not every method takes every shape: one that nobody named is passed over. */
static int may_skip(const struct speed *s, const char *method, int rc)
{
    return rc == DS_ERANGE && !config_get(&s->keys, "model.method") &&
           !(s->o.only && strstr(s->o.only, method));
}

int speed_each_method(struct speed *s,
                      int (*measure)(struct speed *s, const char *method, int which, struct err *e),
                      int which, struct err *e)
{
    const char *one = config_get(&s->keys, "model.method");
    const struct route_ops *const *all = route_all();
    int rc = 0;
    for (int gated = 0; gated < 2; gated++)
        for (int i = 0; all[i] && rc == 0; i++)
            if (!!(all[i]->flags & ROUTE_GATED) == gated &&
                (!one || !gated || strcmp(one, all[i]->name) == 0)) {
                struct err why = {0};
                rc = measure(s, all[i]->name, which, &why);
                if (gated && may_skip(s, all[i]->name, rc)) {
                    log_warn("bench: %s: skipped: %s", all[i]->name, why.text);
                    rc = 0;
                } else if (rc < 0) {
                    rc = err_set(e, rc, "%s", why.text);
                }
            }
    return rc;
}
