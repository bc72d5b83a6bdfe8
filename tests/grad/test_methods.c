/* Every registered method's gradient, in double: gates take their soft value, the rows of the plan
 * are fixed, and the method's input is replayed or, when attached, follows the weights.  Then loss
 * and penalties are smooth, and every trained weight must have its true derivative. */
#include "kit_grad.h"
#include "routing/route.h"

enum { B = 2, T = 9, V = 11, L = 6, SAMPLES = 4 };

/* The frame's exit losses go with every method, also at layers that a configuration would not
 * choose. */
static const real exits[L + 1] = {0, 0.03, 0, 0.1, 0, 0.17, 0.7};
static const struct shape {
    const char *text;
    const real *exit_weight;
} shapes[] = {
    {"model.layers=6", NULL},
    {"model.layers=6", exits},
    {"model.layers=3 model.loop=4 model.loop_first=1 model.loop_last=1 model.loop_norm=false",
     NULL},
    {"model.layers=2 model.loop=3 model.loop_inject=add model.loop_min=1", exits},
};

static struct kit_batch batch;
static real entropy[B * T], nll[B * T];

/* The predictive entropy and a reward are detached, so they are constant here too. */
static double objective(struct model *m, struct pass *pass)
{
    struct losses x = {.entropy = entropy, .nll = nll, .target = batch.target, .R = B * T, .L = L};
    model_forward(m, &batch.b, pass);
    x.rows = model_loss_rows(m);
    double loss = model_exit_weight(m, L) * model_loss(m, 0, 0) + kit_exit_loss(m);
    if (m->route.ops->aux)
        m->route.ops->aux(&m->route, &x);
    return loss + x.aux;
}

/* A replay fixes what gradients are detached from; these options switch off what it does not, which
 * has its own tests. */
static const char *held_by(const char *name)
{
    return strcmp(name, "dtf") == 0 ? "dtf.detach=true dtf.prior_weight=0 dtf.prior_weight_final=0"
                                    : "";
}

/* A method that learns from exits does so in calibration unless asked to here, and not with blocks
 * after a loop. */
static const char *taught_by(const struct route_ops *ops, const char *shape)
{
    return ops->flags & ROUTE_EXITS && !strstr(shape, "loop_last") ? "halt.fit=train" : "";
}

static struct model *warmed(const struct route_ops *ops, const struct shape *shape)
{
    char text[400];
    struct pass pass = kit_pass(PASS_TRAIN);
    snprintf(text, sizeof text,
             "%s model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.init_std=0.4 model.method=%s %s %s",
             shape->text, V, ops->name, held_by(ops->name), taught_by(ops, shape->text));
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    struct model *m = kit_model(text, 7, B * T, 1, 1);
    t_eq(model_config_depth(&m->config), L);
    m->exit_weight = shape->exit_weight;
    kit_shake(m, 0.2, 9);
    kit_step(m, &batch.b, &pass); /* with its update, so that running statistics exist */
    if (m->route.ops->update)
        m->route.ops->update(&m->route);
    return m;
}

static int own_with_gradient(const struct model *m, const char *name)
{
    int n = 0;
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        double sum = 0;
        for (size_t k = 0; p->train && k < p->n; k++)
            sum += fabs((double)p->grad[k]);
        n += strncmp(p->name, name, strlen(name)) == 0 && sum > 0;
    }
    return n;
}

#define EACH_METHOD_AND_SHAPE(o, shape)                                                            \
    for (size_t s_ = 0; s_ < DS_LEN(shapes); s_++)                                                 \
        for (const struct shape *shape = &shapes[s_]; shape; shape = NULL)                         \
            for (const struct route_ops *const *o = route_all(); *o; o++)

T(soft_gates_have_the_right_gradients_in_every_method)
{
    EACH_METHOD_AND_SHAPE(o, shape)
    {
        const char *name = (*o)->name;
        if (!((*o)->flags & ROUTE_GRAD))
            continue;
        struct pass pass = kit_pass(PASS_TRAIN);
        struct model *m = warmed(*o, shape);
        pass.soft = 1;
        model_forward(m, &batch.b, &pass);
        m->route.frozen = 1;
        kit_step(m, &batch.b, &pass);
        memcpy(entropy, m->entropy_rel, sizeof entropy);
        memcpy(nll, m->nll, sizeof nll);
        kit_step(m, &batch.b, &pass);
        t_truef(((*o)->flags & ROUTE_EXITS && !*taught_by(*o, shape->text)) ||
                    own_with_gradient(m, name) > 0,
                "%s: nothing of its own learns", name);
        kit_check_params(name, objective, m, &pass, SAMPLES);
        model_free(m);
    }
}

/* With the plan and its gates fixed (hard ones hard), base weights have the derivative of that
 * function. */
T(a_frozen_plan_has_the_right_gradients_in_every_method)
{
    EACH_METHOD_AND_SHAPE(o, shape)
    {
        struct route_ops silent = **o;
        struct pass pass = kit_pass(PASS_TRAIN);
        struct model *m = warmed(*o, shape);
        model_forward(m, &batch.b, &pass);
        m->route.frozen = 1;
        silent.flags &= ~(unsigned)ROUTE_GRAD; /* the method's own gradients are checked above */
        silent.aux = NULL;
        m->route.ops = &silent;
        for (int i = 0; i < m->params.n; i++)
            if (strncmp(m->params.p[i].name, silent.name, strlen(silent.name)) == 0)
                m->params.p[i].train = 0;
        kit_step(m, &batch.b, &pass);
        kit_check_params((*o)->name, objective, m, &pass, SAMPLES);
        m->route.ops = *o;
        model_free(m);
    }
}

/* Of a step in pieces whose targets are unequally many, the gradients add up to those of the step:
 * labels and rewards are in units of the mean loss, which is that of all its targets. */
T(uneven_pieces_have_the_gradients_of_the_step)
{
    static const char *const learns[] = {
        "model.method=edp edp.signal=regret edp.regret=gradient edp.noise_until=1 edp.budget=off",
        "model.method=dlr dlr.estimator=reinforce dlr.lambda=0 dlr.mu=0"};
    for (size_t k = 0; k < DS_LEN(learns); k++) {
        char text[400];
        struct pass pass = kit_pass(PASS_TRAIN);
        size_t n = 0;
        pass.progress = 0.3; /* gates are drawn */
        snprintf(text, sizeof text,
                 "model.layers=%d model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
                 "model.init_std=0.4 %s",
                 L, V, learns[k]);
        kit_fill(&batch, B, T, V, 1);
        for (int i = 2; i < T; i++)
            batch.target[i] = -1;
        struct model *m = kit_model(text, 7, B * T, 1, 1);
        kit_shake(m, 0.2, 9);
        kit_step(m, &batch.b, &pass);
        m->route.ops->update(&m->route);
        kit_step(m, &batch.b, &pass);
        real *whole = kit_gradients(m, &n), *sum = calloc(n, sizeof *sum);
        m->piece = (struct model_piece){.targets = 2 + T, .share = 1.0 / B};
        for (int s = 0; s < B; s++) {
            struct batch piece = {
                .B = 1, .T = T, .id = batch.id + s * T, .target = batch.target + s * T};
            pass.first_row = s * T;
            kit_step(m, &piece, &pass);
            real *one = kit_gradients(m, &n);
            for (size_t i = 0; i < n; i++)
                sum[i] += one[i] / B;
            free(one);
        }
        for (size_t i = 0; i < n; i++)
            t_truef(fabs(sum[i] - whole[i]) < 1e-12, "%s: %zu: %g and %g", learns[k], i,
                    sum[i], whole[i]);
        t_true(own_with_gradient(m, k ? "dlr" : "edp") > 0);
        free(whole);
        free(sum);
        model_free(m);
    }
}
