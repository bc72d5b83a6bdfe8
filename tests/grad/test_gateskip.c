/* gateskip against central differences, in double: gates, penalty and all weights of the model; then
 * the straight-through rule of train=masked. */
#include "kit_grad.h"

enum { B = 2, T = 8, V = 11, L = 4, R = B * T, SAMPLES = 16 };

static struct kit_batch batch;

static double objective(struct model *m, struct pass *pass)
{
    struct losses x = {.R = R, .L = L};
    model_forward(m, &batch.b, pass);
    double loss = model_loss(m, 0, 0);
    m->route.ops->aux(&m->route, &x);
    return loss + x.aux;
}

static struct model *small(const char *more, int keep)
{
    char text[700];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.max_seq=%d model.init_std=0.4 model.method=gateskip gateskip.bias=0.7 "
             "gateskip.capacity=0.6 gateskip.tighten=0 gateskip.sparsity=0.9 %s",
             L, V, T, more);
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    struct model *m = kit_model(text, 7, R, 1, keep);
    kit_shake(m, 0.4, 9);
    return m;
}

static double size_of(const real *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs(x[i]);
    return sum;
}

static struct param *param(struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s", name);
    return &m->params.p[i];
}

/* The rows of the plan and the gates' inputs are those of the first pass. */
static void check_soft(const char *options, int keep)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(options, keep);
    pass.soft = 1;
    pass.progress = 1;
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    t_true(size_of(param(m, "gateskip.gate.weight")->grad, 2 * L * 8) > 1e-6);
    kit_check_params(options, objective, m, &pass, SAMPLES);
    model_free(m);
}

T(gates_have_the_right_gradients)
{
    check_soft("gateskip.train=selected", 1);
    check_soft("gateskip.train=selected gateskip.kv=plan", 0);
    check_soft("gateskip.train=masked", 1);
    check_soft("gateskip.form=sigmoid gateskip.penalty=mean model.norm=layer model.mlp=gelu", 0);
    check_soft("gateskip.skip=ffn", 1);
    check_soft("gateskip.skip=attention gateskip.sparsity=0", 0);
}

/* Only the executed rows' gates have a gradient from the loss; with train=masked skipped rows have
 * one too, that of the soft gate. */
static void check_formula(const char *options, int is_masked)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    char text[200];
    snprintf(text, sizeof text, "%s gateskip.sparsity=0", options);
    struct model *m = small(text, 1);
    double open = 1 / (1 + exp(-0.7)), listed = 0;
    const real *score = NULL;
    pass.progress = 1;
    pass.record = 1;
    kit_step(m, &batch.b, &pass);
    for (size_t k = 0; k < m->route.ops->n_metrics; k++)
        if (strcmp(m->route.ops->metrics[k].name, "score") == 0)
            score = m->route.cell[k];
    struct param *bias = param(m, "gateskip.gate.bias");
    for (int l = 0; l < L; l++) {
        const struct plan *p = &m->ffn[l];
        real dgate[R];
        double want = 0;
        memset(bias->grad, 0, bias->n * sizeof(real));
        for (int k = 0; k < p->n; k++) {
            double s = 1 / (1 + exp(-(double)score[l * R + p->row[k]]));
            dgate[k] = sin(1.0 + p->row[k] + 10 * l);
            want += dgate[k] * s * (1 - s) / open;
        }
        listed += p->n;
        m->stream.mid = m->work[l].mid;
        m->route.ops->decide_bwd(&m->route, l, p, dgate, &m->stream);
        t_near(bias->grad[2 * l + 1], want, 1e-12);
        t_near(bias->grad[2 * l], 0, 0);
    }
    t_true(is_masked ? listed == L * R : listed < 0.8 * L * R);
    model_free(m);
}

T(the_gradient_of_a_hard_pass_matches_the_formula)
{
    check_formula("gateskip.train=selected", 0);
    check_formula("gateskip.train=masked", 1);
}

/* The gates read detached states: they push nothing into the residual stream. */
T(gates_do_not_move_the_states_that_they_read)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("", 1);
    pass.progress = 1;
    kit_step(m, &batch.b, &pass);
    real *before = kit_copy(m->stream.dh[1], R * 8), dgate[R];
    for (int k = 0; k < m->plan[1].n; k++)
        dgate[k] = 3;
    m->route.ops->decide_bwd(&m->route, 1, &m->plan[1], dgate, &m->stream);
    t_true(kit_same(before, m->stream.dh[1], R * 8));
    free(before);
    model_free(m);
}
