/* Passes that leave a loop before its last iteration, in training (model.loop_min) or at an exit:
 * the closed layers are no part of what a method decides, counts and learns. */
#include <math.h>

#include "kit.h"

enum { B = 2, T = 24, R = B * T, V = 53, L = 8 };
#define SHAPE                                                                                      \
    "model.loop=6 model.loop_first=1 model.loop_min=1 model.dim=32 model.heads=2 model.vocab=53 "  \
    "model.init_std=0.2 "

/* A layer follows the loop, or the last iterations are the last layers. */
static const char *const shape[] = {"model.layers=3 model.loop_last=1 ",
                                    "model.layers=2 model.loop_last=0 "};
static size_t chosen;
static struct kit_batch batch;

#define EACH_METHOD(name)                                                                          \
    for (const struct route_ops *const *o_ = route_all(); *o_; o_++)                               \
        for (const char *name = (*o_)->name; name; name = NULL)

static void same_batch(void *ctx, int k, struct batch *b)
{
    (void)ctx;
    (void)k;
    *b = batch.b;
}

static struct model *model_of(const char *method)
{
    char text[512];
    struct err e = {0};
    snprintf(text, sizeof text, SHAPE "%s model.method=%s", shape[chosen], method);
    struct model *m = kit_model(text, 3, R, 1, 0);
    kit_shake(m, 0.05, 9);
    kit_fill(&batch, B, T, V, 1);
    if (m->route.ops->calibrate)
        t_ok(model_calibrate(m, 1, same_batch, NULL, 1, NULL, &e), &e);
    return m;
}

static void step(struct model *m, int64_t at)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    pass.step = at;
    kit_fill(&batch, B, T, V, (uint64_t)at);
    kit_step(m, &batch.b, &pass);
}

static int closed_layers(const struct model *m)
{
    return m->route.pass.resume - m->route.pass.stop;
}

/* The first step whose iterations leave `closed` of the layers out. */
static int64_t step_without(const char *method, int closed)
{
    struct model *m = model_of(method);
    int64_t at = 1;
    for (step(m, at); closed_layers(m) != closed && at < 100; step(m, at))
        at++;
    model_free(m);
    t_truef(at < 100, "%s: no step leaves out %d layers", method, closed);
    return at;
}

/* Of layers that are closed, and of the codes that were used. */
static void compare_metrics(const struct route *a, const struct route *b)
{
    for (size_t i = 0; i < a->ops->n_metrics; i++) {
        const struct metric *x = &a->ops->metrics[i];
        for (int l = a->pass.stop; x->scope == METRIC_LAYER && l < a->pass.resume; l++)
            t_truef(a->metric[i][l] == b->metric[i][l] ||
                        (isnan(a->metric[i][l]) && isnan(b->metric[i][l])),
                    "%s of layer %d: %g, %g", x->name, l, a->metric[i][l], b->metric[i][l]);
        if (strcmp(x->name, "codes_used") == 0)
            t_near(b->metric[i][0], a->metric[i][0], 0);
    }
}

static void compare_steps(const char *method)
{
    size_t n;
    int64_t whole = step_without(method, 0), brief = step_without(method, 4);
    struct model *fresh = model_of(method), *used = model_of(method);
    step(used, whole);
    step(used, brief);
    step(fresh, brief);
    t_eq(closed_layers(fresh), 4);
    real *a = kit_gradients(fresh, &n), *b = kit_gradients(used, &n);
    t_truef(kit_same(a, b, n), "%s", method);
    t_truef(fresh->aux_loss == used->aux_loss, "%s: %g, %g", method, fresh->aux_loss,
            used->aux_loss);
    compare_metrics(&fresh->route, &used->route);
    free(a);
    free(b);
    model_free(fresh);
    model_free(used);
}

/* What an earlier step with all iterations had in the closed layers has no part in it. */
T(a_step_of_a_short_loop_does_not_depend_on_the_step_before)
{
    static const char *const more[] = {
        "dtf dtf.g_weight=0.1", "edp edp.penalty=polarise edp.budget=loss", "hat hat.phase=full",
        "dlr dlr.estimator=reinforce dlr.keep=2",
        "dlr dlr.entropy_beta=0.1 dlr.depth_weights=linear"};
    for (chosen = 0; chosen < DS_LEN(shape); chosen++) {
        EACH_METHOD(name)
        compare_steps(name);
        for (size_t i = 0; i < DS_LEN(more); i++)
            compare_steps(more[i]);
    }
    chosen = 0;
}

/* Nor what an earlier pass over another text had there. */
T(the_blocks_after_an_exit_decide_by_the_pass_itself)
{
    EACH_METHOD(name)
    {
        struct model *fresh = model_of(name), *used = model_of(name);
        struct pass pass = kit_pass(PASS_SPARSE), whole = pass;
        kit_fill(&batch, B, T, V, 7);
        model_forward(used, &batch.b, &whole);
        kit_fill(&batch, B, T, V, 8);
        pass.inference.exit = 2;
        model_forward(used, &batch.b, &pass);
        model_forward(fresh, &batch.b, &pass);
        t_truef(kit_same(fresh->stream.h[L], used->stream.h[L], kit_states(used)), "%s", name);
        model_free(fresh);
        model_free(used);
    }
}

/* Executed cells and all cells of the open layers from `from` on. */
static double open_share(const struct model *m, int from)
{
    double ran = 0, all = 0;
    for (int l = from; l < L; l++) {
        ran += m->plan[l].active;
        all += route_is_closed(&m->route, l) ? 0 : R;
    }
    return ran / all;
}

T(a_budget_counts_the_layers_of_the_step)
{
    const double target = 0.8;
    int64_t brief = step_without("edp", 4);
    struct model *m = model_of("edp edp.target_ratio=0.8 edp.budget_rate=1 edp.anneal=0");
    step(m, brief);
    double share = open_share(m, 0);
    t_truef(share < 1, "%g", share);
    m->route.ops->update(&m->route);
    step(m, brief + 1);
    t_near(kit_metric(m, "budget_offset", 0), share - target, 1e-6);
    model_free(m);
}

T(a_skip_ratio_counts_the_layers_of_the_step)
{
    int64_t brief = step_without("dlr", 4);
    struct model *m = model_of("dlr dlr.keep=2");
    step(m, brief);
    double share = open_share(m, 2);
    t_truef(share > 0 && share < 1, "%g", share);
    t_near(kit_metric(m, "skip_ratio", 0), 1 - share, 1e-9);
    t_near(kit_metric(m, "target_loss", 0), 8 * pow(1 - share - 0.4, 2), 1e-9);
    model_free(m);
}
