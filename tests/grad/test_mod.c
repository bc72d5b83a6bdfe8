/* mod against central differences, in double.  Its gates are smooth and their logits depend on the
 * residual stream, so differences go through whole passes, in a model whose ranks do not change
 * within them. */
#include "kit_grad.h"
#include "routing/route.h"

enum { B = 2, T = 9, V = 11, LAYERS = 4, SAMPLES = 16 };

static struct kit_batch batch;

static double objective(struct model *m, struct pass *pass)
{
    struct losses x = {.R = B * T, .L = LAYERS};
    model_forward(m, &batch.b, pass);
    double loss = model_loss(m, 0, 0);
    m->route.ops->aux(&m->route, &x);
    return loss + x.aux;
}

static struct model *small(const char *more, uint64_t seed)
{
    char text[700];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.max_seq=%d model.init_std=0.4 model.method=mod mod.capacity=0.5 "
             "mod.init_std=0.5 mod.z_weight=0.2 mod.balance_weight=0.7 %s",
             LAYERS, V, T, more);
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    struct model *m = kit_model(text, 7, B * T, 1, 1);
    kit_shake(m, 0.2, seed);
    return m;
}

static int cell_metric(const struct model *m, const char *name)
{
    for (size_t i = 0; i < m->route.ops->n_metrics; i++)
        if (m->route.ops->metrics[i].scope == METRIC_CELL &&
            strcmp(m->route.ops->metrics[i].name, name) == 0)
            return (int)i;
    t_truef(0, "no cell metric %s", name);
    return -1;
}

/* The smallest margin between a document's selected and rejected scores in a recorded pass. */
static double margin(const struct model *m)
{
    const real *score = m->route.cell[cell_metric(m, "router")],
               *topk = m->route.cell[cell_metric(m, "topk")];
    double least = 1;
    for (int l = 0; l < LAYERS; l++)
        for (int i = 0; i < B * T; i++)
            for (int j = 0; j < B * T; j++) {
                int a = l * B * T + i, b = l * B * T + j;
                if (m->first_row[i] == m->first_row[j] && topk[a] == 1 && topk[b] == 0)
                    least = fmin(least, score[a] - score[b]);
            }
    return least;
}

/* A model with clear ranks after its first pass, with gradients computed. */
static struct model *clear_model(const char *options, struct pass *pass)
{
    pass->record = 1;
    for (uint64_t seed = 9; seed < 200; seed++) {
        struct model *m = small(options, seed);
        kit_step(m, &batch.b, pass);
        pass->record = margin(m) <= 0.02;
        if (!pass->record)
            return m;
        model_free(m);
    }
    t_truef(0, "%s: every model has two scores at its threshold", options);
    return NULL;
}

/* Every parameter whose name holds `part`; the method's own have a gradient that is not zero. */
static void check_params(const char *what, struct model *m, struct pass *pass, const char *part)
{
    int n = 0;
    for (int i = 0; i < m->params.n; i++) {
        struct param *p = &m->params.p[i];
        double size = 0;
        if (!p->train || !strstr(p->name, part))
            continue;
        for (size_t k = 0; k < p->n; k++)
            size += fabs(p->grad[k]);
        t_truef(size > 1e-9 || p->group != PARAM_ROUTER, "%s: %s has no gradient", what, p->name);
        real *grad = kit_copy(p->grad, p->n);
        kit_check_tensor(what, objective, m, pass, p->name, p->value, grad, p->n, SAMPLES,
                         (uint32_t)i);
        free(grad);
        n++;
    }
    t_true(n >= 2);
}

static void check_all(const char *options)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = clear_model(options, &pass);
    check_params(options, m, &pass, "");
    model_free(m);
}

T(every_gate_has_the_right_gradients)
{
    check_all("mod.causal=router mod.gate=raw");
    check_all("mod.causal=router mod.gate=sigmoid");
    check_all("mod.causal=router mod.gate=sigmoid2 mod.every=1");
}

T(every_loss_weight_has_the_right_gradients)
{
    check_all("mod.causal=router mod.aux_weight=0.9");
    check_all("mod.causal=router mod.aux_weight=0.9 mod.z_weight=0 mod.balance_weight=0");
    check_all("mod.causal=threshold mod.z_weight=0 mod.balance_weight=0");
    check_all("mod.causal=threshold mod.balance_weight=3 mod.first=0");
}

T(normalised_inputs_and_all_keys_have_the_right_gradients)
{
    check_all("mod.causal=router mod.normalize=true mod.aux_weight=0.9");
    check_all("mod.causal=router mod.kv=all mod.gate=raw mod.aux_weight=0.4");
    check_all(
        "mod.causal=router mod.capacity=0.2 mod.normalize=true model.norm=layer model.mlp=gelu "
        "model.position=learned model.tied=false");
}

/* The noise is the same in every pass of a step, so no margin is needed. */
T(ranked_noise_has_the_right_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("mod.stochastic=true mod.gate=raw", 9);
    kit_step(m, &batch.b, &pass);
    check_params("stochastic", m, &pass, "");
    model_free(m);
}

T(a_predictor_has_the_right_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = clear_model("mod.causal=predictor mod.predictor_weight=0.8", &pass);
    check_params("predictor", m, &pass, ".predictor.");
    model_free(m);
    m = clear_model("mod.causal=predictor mod.width=3 mod.normalize=true", &pass);
    check_params("normalised", m, &pass, ".predictor.");
    model_free(m);
}

static void copy_values(struct model *to, const struct model *from)
{
    for (int i = 0; i < to->params.n; i++) {
        struct param *p = &to->params.p[i];
        int at = params_find(&from->params, p->name);
        t_truef(at >= 0, "%s", p->name);
        memcpy(p->value, from->params.p[at].value, p->n * sizeof *p->value);
    }
    params_changed(&to->params);
}

/* The predictor's input is detached: with or without it, all other gradients have the same bits. */
T(the_predictor_does_not_affect_the_model)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *with = small("mod.causal=predictor mod.predictor_weight=50", 9);
    struct model *without = small("mod.causal=threshold", 9);
    copy_values(without, with);
    kit_step(with, &batch.b, &pass);
    kit_step(without, &batch.b, &pass);
    for (int i = 0; i < without->params.n; i++) {
        const struct param *p = &without->params.p[i];
        const struct param *q = &with->params.p[params_find(&with->params, p->name)];
        if (p->train)
            t_truef(kit_same(p->grad, q->grad, p->n), "%s", p->name);
    }
    model_free(with);
    model_free(without);
}

/* With a fixed plan, routers follow the residual stream and predictors read their original
 * input. */
T(soft_gates_of_a_fixed_plan_have_the_right_gradients)
{
    static const char *const options[] = {"mod.predictor_weight=0.8",
                                          "mod.causal=router mod.aux_weight=0.6",
                                          "mod.normalize=true mod.gate=raw", "mod.stochastic=true"};
    for (size_t k = 0; k < DS_LEN(options); k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        struct model *m = small(options[k], 9);
        pass.soft = 1;
        model_forward(m, &batch.b, &pass);
        m->route.frozen = 1;
        kit_step(m, &batch.b, &pass);
        check_params(options[k], m, &pass, "");
        model_free(m);
    }
}

/* A soft pass lists every row; rejected ones have gate 0 and add nothing. */
T(all_rows_and_executed_rows_have_the_same_gradients)
{
    size_t n;
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("mod.causal=router mod.aux_weight=0.5", 9);
    kit_step(m, &batch.b, &pass);
    t_true(m->plan[1].n < B * T);
    real *sparse = kit_gradients(m, &n);
    pass.soft = 1;
    kit_step(m, &batch.b, &pass);
    t_eq(m->plan[1].n, B * T);
    real *all = kit_gradients(m, &n);
    for (size_t i = 0; i < n; i++)
        t_near(all[i], sparse[i], 1e-11 * (1 + fabs(sparse[i])));
    free(sparse);
    free(all);
    model_free(m);
}

/* The gates of a replayed plan are kept; their gradient is that of the original pass. */
T(a_replayed_plan_has_the_gradients_of_the_original_pass)
{
    size_t n;
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("mod.causal=predictor", 9);
    kit_step(m, &batch.b, &pass);
    real *made = kit_gradients(m, &n);
    m->route.frozen = 1;
    pass.kind = PASS_MASKED;
    kit_step(m, &batch.b, &pass);
    real *again = kit_gradients(m, &n);
    t_true(kit_same(made, again, n));
    free(made);
    free(again);
    model_free(m);
}

T(gates_of_forced_rows_have_no_gradient)
{
    static int8_t force[LAYERS * B * T];
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("mod.causal=threshold mod.z_weight=0 mod.balance_weight=0", 9);
    memset(force, 1, sizeof force);
    pass.inference.force = force;
    kit_step(m, &batch.b, &pass);
    const struct param *w = &m->params.p[params_find(&m->params, "mod.1.router.0.weight")];
    for (size_t i = 0; i < w->n; i++)
        t_true(w->grad[i] == 0);
    model_free(m);
}

T(without_executed_rows_only_penalties_have_gradients)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("mod.causal=router mod.capacity=0 mod.aux_weight=0.5", 9);
    kit_step(m, &batch.b, &pass);
    t_eq(m->plan[1].n, 0);
    check_params("capacity 0", m, &pass, ".router.");
    model_free(m);
}
