/* Small models and batches for tests of routing and models. */
#ifndef DS_TESTS_KIT_H
#define DS_TESTS_KIT_H

#include <stdlib.h>
#include <string.h>

#include "base/config.h"
#include "base/rng.h"
#include "models/model.h"
#include "t.h"

enum { KIT_ROWS = 4096 };

/* Redefining these and including a test file again runs all its tests in another number format. */
#ifndef KIT_COMPUTE
#define KIT_COMPUTE COMPUTE_FP32
#define KIT_NEAR 1e-4 /* tolerance of cached decoding against the full pass */
#endif

/* Under a sanitizer or valgrind, where time is short, tests that repeat all methods in another shape or
 * number format go through every third one: the plain case has checked the code of each. */
static inline int kit_every(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 3;
#else
    return t_runs_under("valgrind") ? 3 : 1;
#endif
}

/* Trainings to a measured quality take minutes under sanitizers and valgrind, where shorter tests run
 * the same code. */
static inline void kit_skip_if_slow(void)
{
    if (getenv("T_SLOW_FACTOR"))
        t_skip("a training to a measured quality: the plain build runs it");
}

struct kit_batch {
    struct batch b;
    int32_t id[KIT_ROWS], target[KIT_ROWS], doc[KIT_ROWS], span[KIT_ROWS];
};

/* "key=value key=value ..." over the defaults; DS_* on failure. */
static inline int kit_try(struct model **out, const char *options, uint64_t seed, int train,
                          struct err *e)
{
    struct config all = {0};
    struct model_config c = {0};
    char word[128];
    int rc = opt_defaults(&model_group, &c, e);
    for (int used = 0; rc == 0 && sscanf(options, " %127s%n", word, &used) == 1; options += used)
        rc = config_override(&all, word, "test", e);
    if (rc == 0)
        rc = config_apply(&all, &model_group, &c, e);
    if (rc == 0)
        rc = model_new(out, &c, &all, seed, train, e);
    if (rc == 0)
        rc = weights_use(*out, &(struct numeric_options){.compute = KIT_COMPUTE}, e);
    opt_release(&model_group, &c);
    if (rc == 0) {
        char prefix[40];
        struct opt_group route = route_group((*out)->route.ops, prefix);
        const struct opt_group *const groups[] = {&model_group, &route};
        rc = config_check_unused(&all, groups, 2, e);
    }
    config_release(&all);
    return rc;
}

static inline struct model *kit_model(const char *options, uint64_t seed, int rows, int train,
                                      int keep)
{
    struct err e = {0};
    struct model *m = NULL;
    t_ok(kit_try(&m, options, seed, train, &e), &e);
    t_ok(model_reserve(m, rows, train, keep, &e), &e);
    return m;
}

/* Writes a live setting of the model's method, as a run does. */
static inline int kit_set(struct model *m, const char *key, double value, struct err *e)
{
    char prefix[40], full[80];
    struct opt_group g = route_group(m->route.ops, prefix);
    snprintf(full, sizeof full, "%s%s", prefix, key);
    const struct opt *row = opt_find(&g, full);
    t_truef(row && row->is_live, "%s is not a live setting", full);
    return route_set(&m->route, row, value, e);
}

/* The values of parameter i, wherever stored; freed at the end of the test. */
static inline real *kit_values(const struct model *m, int i)
{
    const struct param *p = &m->params.p[i];
    real *v = calloc(p->n, sizeof *v);
    model_values(m, i, 0, (size_t)p->shape[0], v);
    return v;
}

static inline void kit_same_params(const struct model *a, const struct model *b)
{
    t_eq(a->params.n, b->params.n);
    for (int i = 0; i < a->params.n; i++) {
        real *x = kit_values(a, i), *y = kit_values(b, i);
        t_str(a->params.p[i].name, b->params.p[i].name);
        t_truef(memcmp(x, y, a->params.p[i].n * sizeof *x) == 0, "%s differs", a->params.p[i].name);
        free(x);
        free(y);
    }
}

/* Adds noise to every trained parameter, so that biases and thresholds leave their symmetric initial values. */
static inline void kit_shake(struct model *m, double amount, uint64_t seed)
{
    for (int i = 0; i < m->params.n; i++) {
        struct param *p = &m->params.p[i];
        struct rng r;
        rng_init(&r, seed, RNG_TEST, 1, (uint32_t)i);
        for (size_t k = 0; p->train && k < p->n; k++)
            p->value[k] += (real)(amount * rng_normal(&r));
    }
    params_changed(&m->params);
}

static inline void kit_fill(struct kit_batch *k, int B, int T, int V, uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed, RNG_TEST, 2, 0);
    for (int i = 0; i < B * T; i++) {
        k->id[i] = (int32_t)rng_below(&r, (uint32_t)V);
        k->target[i] = (int32_t)rng_below(&r, (uint32_t)V);
        k->doc[i] = 0;
    }
    k->b = (struct batch){.B = B, .T = T, .id = k->id, .target = k->target};
}

/* Each batch row gets documents that start at positions s and 2s + 1, s = 2 + row. */
static inline void kit_documents(struct kit_batch *k)
{
    for (int i = 0; i < k->b.B * k->b.T; i++) {
        int t = i % k->b.T, s = 2 + i / k->b.T;
        k->doc[i] = t >= 2 * s + 1 ? 2 * s + 1 : t >= s ? s : 0;
    }
    k->b.doc_start = k->doc;
}

/* Each batch row begins with `shared` rows that all others see; private spans of `n` rows follow. */
static inline void kit_spans(struct kit_batch *k, int shared, int n)
{
    for (int i = 0; i < k->b.B * k->b.T; i++) {
        int t = i % k->b.T;
        k->span[i] = t < shared ? -1 : t - (t - shared) % n;
    }
    k->b.private_start = k->span;
}

static inline struct pass kit_pass(enum pass_kind kind)
{
    struct pass p = {.kind = kind, .step = kind == PASS_TRAIN, .progress = 1, .seed = 5};
    return p;
}

/* Index of a metric of the model's method, among its cells or not. */
static inline size_t kit_metric_index(const struct model *m, const char *name, int is_cell)
{
    const struct route_ops *ops = m->route.ops;
    size_t k = 0;
    while (k < ops->n_metrics && !(strcmp(ops->metrics[k].name, name) == 0 &&
                                   (ops->metrics[k].scope == METRIC_CELL) == is_cell))
        k++;
    t_truef(k < ops->n_metrics, "no metric %s", name);
    return k;
}

static inline double kit_metric(const struct model *m, const char *name, int l)
{
    return m->route.metric[kit_metric_index(m, name, 0)][l];
}

static inline const real *kit_cells(const struct model *m, const char *name)
{
    return m->route.cell[kit_metric_index(m, name, 1)];
}

static inline size_t kit_states(const struct model *m)
{
    return (size_t)m->R * (size_t)m->config.dim;
}

/* Bitwise equality. */
static inline int kit_same(const real *a, const real *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

static inline real *kit_copy(const real *from, size_t n)
{
    real *to = malloc((n + 1) * sizeof *to);
    memcpy(to, from, n * sizeof *to);
    return to;
}

/* All gradients, concatenated. */
static inline real *kit_gradients(const struct model *m, size_t *n)
{
    size_t total = 0, at = 0;
    for (int i = 0; i < m->params.n; i++)
        total += m->params.p[i].train ? m->params.p[i].n : 0;
    real *all = malloc((total + 1) * sizeof *all);
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        if (!p->train)
            continue;
        memcpy(all + at, p->grad, p->n * sizeof *all);
        at += p->n;
    }
    *n = total;
    return all;
}

/* Forward, loss, backward into zeroed gradients. */
static inline double kit_step(struct model *m, const struct batch *b, struct pass *pass)
{
    params_zero_grad(&m->params);
    model_forward(m, b, pass);
    model_loss(m, 1, 0);
    model_backward(m);
    return m->loss;
}

/* One training step as the trainer does it. */
static inline double kit_train(struct model *m, const struct batch *b, int64_t step, int64_t steps,
                               double lr)
{
    struct adamw o = {.lr = lr,
                      .beta1 = 0.9,
                      .beta2 = 0.95,
                      .eps = 1e-8,
                      .weight_decay = 0.01,
                      .router_lr = 10,
                      .clip = 1};
    struct pass pass = {
        .kind = PASS_TRAIN, .step = step, .progress = (double)step / (double)steps, .seed = 5};
    double warm = step < 10 ? (double)step / 10 : 1, fall = 1 - 0.9 * pass.progress;
    kit_step(m, b, &pass);
    struct grad_health health = params_grad_health(&m->params);
    t_eq(health.bad, 0);
    o.lr *= warm * fall;
    adamw_step(&m->params, &o, step, &health);
    if (m->route.ops->update)
        m->route.ops->update(&m->route);
    return m->loss;
}

static inline int32_t kit_best(const real *logits, int V)
{
    int best = 0;
    for (int v = 1; v < V; v++)
        best = logits[v] > logits[best] ? v : best;
    return best;
}

/* Greedy continuation of `prompt` (n ids) by `more` ids, with a KV cache. */
static inline void kit_generate(struct model *m, const int32_t *prompt, int n, int32_t *out,
                                int more)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    int V = (int)m->config.vocab;
    real *logits = malloc((size_t)V * sizeof *logits);
    struct pass pass = {.kind = PASS_SPARSE};
    t_ok(kv_cache_new(&cache, m, n + more, &e), &e);
    t_ok(model_decode(m, cache, prompt, n, &pass, &e), &e);
    model_logits(m, n - 1, logits);
    for (int i = 0; i < more; i++) {
        out[i] = kit_best(logits, V);
        t_ok(model_decode(m, cache, &out[i], 1, &pass, &e), &e);
        model_logits(m, 0, logits);
    }
    kv_cache_free(cache);
    free(logits);
}

#endif
