/* hat's soft path against central differences, in double: routers, exit gates, temperatures and all
 * weights of the model, under every penalty; then the straight-through rule. */
#include "kit_grad.h"
#include "routing/exits.h"

enum { B = 2, T = 8, V = 11, L = 5, R = B * T, SAMPLES = 16 };

static struct kit_batch batch;

static double objective(struct model *m, struct pass *pass)
{
    struct losses x = {.R = R, .L = L};
    model_forward(m, &batch.b, pass);
    double loss = model_loss(m, 0, 0);
    m->route.ops->aux(&m->route, &x);
    return loss + x.aux;
}

static double size_of(const real *x, size_t n)
{
    double sum = 0;
    for (size_t i = 0; i < n; i++)
        sum += fabs(x[i]);
    return sum;
}

/* Every parameter of the method has a gradient, and the right one. */
static void check_params(const char *what, struct model *m, struct pass *pass)
{
    for (int i = 0; i < m->params.n; i++) {
        struct param *p = &m->params.p[i];
        if (!p->train)
            continue;
        real *grad = kit_copy(p->grad, p->n);
        t_truef(p->group != PARAM_ROUTER || strstr(what, "layer_dropout") ||
                    size_of(grad, p->n) > 1e-9,
                "%s: %s has no gradient", what, p->name);
        kit_check_tensor(what, objective, m, pass, p->name, p->value, grad, p->n, SAMPLES,
                         (uint32_t)i);
        free(grad);
    }
}

static struct model *small(const char *more, int keep)
{
    char text[900];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.max_seq=%d model.init_std=0.4 model.method=hat hat.phase=full "
             "hat.layer_dropout=0 hat.exit_layers=1,3 hat.exit_hidden=6 hat.exit_hidden2=5 "
             "hat.exit_std=0.5 hat.exit_bias=-0.3 hat.capacity_loss=0.6 hat.z_loss=0.05 "
             "hat.entropy_bonus=0.07 hat.exit_loss=0.9 %s",
             L, V, T, more);
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    struct model *m = kit_model(text, 7, R, 1, keep);
    kit_shake(m, 0.2, 9);
    return m;
}

/* Soft gates; the router inputs of the first pass are replayed. */
static void check_soft(const char *options, int keep)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(options, keep);
    pass.soft = 1;
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    check_params(options, m, &pass);
    model_free(m);
}

T(soft_gates_have_the_right_gradients)
{
    check_soft("hat.exited=freeze", 1);
    check_soft("hat.exited=freeze model.norm=layer model.mlp=gelu model.attn_bias=true", 0);
    check_soft("hat.exited=attention_only", 1);
    check_soft("hat.exited=attention_only hat.train=selected", 0);
}

T(every_exit_penalty_has_the_right_gradients)
{
    check_soft("hat.exit_loss=0 hat.exit_depth=0.8", 1);
    check_soft("hat.exit_early=0.7 hat.exit_early_ids=6", 1);
    check_soft("hat.exit_early=0.7 hat.exit_early_ids=6 hat.exit_early_layer=1", 1);
    check_soft("hat.exit_diversity=0.6", 1);
    check_soft("hat.exit_monotone=0.9", 1);
}

T(dropped_layers_have_the_right_gradients)
{
    check_soft("hat.layer_dropout=0.9", 1);
    check_soft("hat.layer_dropout=0.7", 0);
}

/* Nothing is frozen: the states that the gates read change too. */
T(attached_gates_have_the_right_gradients)
{
    static const char *const options[] = {"hat.attach=true hat.exited=freeze",
                                          "hat.attach=true hat.exited=attention_only "
                                          "hat.exit_depth=0.5 hat.exit_diversity=0.5"};
    for (int k = 0; k < 2; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        struct model *m = small(options[k], k);
        pass.soft = 1;
        kit_step(m, &batch.b, &pass);
        check_params(options[k], m, &pass);
        model_free(m);
    }
}

/* The gradients of all other weights with hard gates: the plan is replayed, so differences see the
 * same function. */
static void check_hard(const char *options)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(options, 0);
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    for (int i = 0; i < m->params.n; i++)
        if (m->params.p[i].group == PARAM_ROUTER)
            m->params.p[i].train = 0;
    check_params(options, m, &pass);
    model_free(m);
}

T(other_weights_have_their_true_gradients_with_hard_gates)
{
    check_hard("hat.train=masked");
    check_hard("hat.train=selected");
    check_hard("hat.train=selected hat.exited=attention_only");
    check_hard("hat.train=selected hat.exit_bias=2");
    check_hard("hat.layer_dropout=0.8");
}

/* ---- straight-through ------------------------------------------------------------------------ */

static struct param *param(struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s", name);
    return &m->params.p[i];
}

static void method_backward(struct model *m, double salt)
{
    real dgate[R];
    for (int i = 0; i < m->params.n; i++)
        if (m->params.p[i].group == PARAM_ROUTER && m->params.p[i].train)
            memset(m->params.p[i].grad, 0, m->params.p[i].n * sizeof(real));
    for (int l = L - 1; l >= 0; l--)
        for (int is_attention = 0; is_attention < 2; is_attention++) {
            const struct plan *p = is_attention ? &m->plan[l] : &m->ffn[l];
            for (int k = 0; k < p->n; k++)
                dgate[k] = p->weight[k] * sin(1.0 + p->row[k] + 10 * l + 5 * is_attention + salt);
            m->stream.mid = m->work[l].mid;
            m->route.ops->decide_bwd(&m->route, l, p, dgate, &m->stream);
        }
}

/* Backward of the gates reads what was saved, not whether the forward was hard: same saved state,
 * same bits. */
T(hard_and_soft_backward_agree_bit_for_bit_on_the_same_saved_state)
{
    static const char *const name[] = {"hat.router.weight", "hat.exit.1.0.weight",
                                       "hat.exit.3.2.bias", "hat.exit.log_temperature_backward"};
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("", 1);
    real *hard[4];
    kit_step(m, &batch.b, &pass);
    for (int soft = 0; soft < 2; soft++) {
        m->route.pass.soft = soft;
        for (int l = 0; soft && l < L; l++)
            for (int k = 0; k < R; k++)
                m->plan[l].gate[k] = m->ffn[l].gate[k] = 0.3;
        method_backward(m, 0);
        for (int i = 0; i < 4; i++) {
            struct param *p = param(m, name[i]);
            t_truef(size_of(p->grad, p->n) > 1e-6, "%s", name[i]);
            if (!soft)
                hard[i] = kit_copy(p->grad, p->n);
            else
                t_truef(kit_same(hard[i], p->grad, p->n), "%s", name[i]);
        }
    }
    for (int i = 0; i < 4; i++)
        free(hard[i]);
    model_free(m);
}

/* Against formulas, with penalties off: d bias of router l = sum A dgate p (1 - p); d of the exit
 * logits from the product of survivals. */
T(the_gradient_of_a_hard_pass_matches_the_formula)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("hat.capacity_loss=0 hat.z_loss=0 hat.entropy_bonus=0 hat.exit_loss=0 "
                            "hat.exit_temperature_backward=0.8 hat.exit_bias=0.2",
                            1);
    double bias[L] = {0}, exit[2] = {0}, T_bwd[2], seen = 0, left = 0;
    pass.record = 1;
    kit_step(m, &batch.b, &pass);
    method_backward(m, 0);
    for (int g = 0; g < 2; g++)
        T_bwd[g] = exp(param(m, "hat.exit.log_temperature_backward")->value[g]);
    const real *score = NULL;
    for (size_t k = 0; k < m->route.ops->n_metrics; k++)
        if (strcmp(m->route.ops->metrics[k].name, "score") == 0)
            score = m->route.cell[k];
    /* the exit gates are the first member of the method's state */
    const struct exits *x = m->route.state;
    for (int i = 0; i < R; i++) {
        double A = 1, dA = 0, before[2], value[2];
        double alive[L], reach[L];
        for (int l = 0; l < L; l++) {
            int g = l == 1 ? 0 : l == 3 ? 1 : -1;
            if (g >= 0) {
                before[g] = A;
                value[g] = x->value[g * R + i];
                t_true(value[g] == 0 || value[g] == 1);
                A *= 1 - value[g];
            }
            alive[l] = A;
            double p = 1 / (1 + exp(-score[l * R + i]));
            double df = sin(1.0 + i + 10 * l), da = sin(1.0 + i + 10 * l + 5);
            double runs = m->ffn[l].gate[i];
            t_true(m->ffn[l].row[i] == i && m->plan[l].gate[i] == A);
            bias[l] += alive[l] * df * p * (1 - p);
            reach[l] = da + df * (A > 0 ? runs : p);
            seen += A > 0 && runs > 0;
        }
        left += A == 0;
        for (int l = L - 1; l >= 0; l--) {
            int g = l == 1 ? 0 : l == 3 ? 1 : -1;
            dA += reach[l];
            if (g < 0)
                continue;
            double s = 1 / (1 + exp(-x->z[g * R + i] / T_bwd[g]));
            exit[g] -= before[g] * dA * s * (1 - s) / T_bwd[g];
            dA *= 1 - value[g];
        }
    }
    t_true(seen > 5 && left > 3 && left < R);
    for (int l = 0; l < L; l++)
        t_near(param(m, "hat.router.bias")->grad[l], bias[l], 1e-12);
    t_near(param(m, "hat.exit.1.2.bias")->grad[1], exit[0], 1e-12);
    t_near(param(m, "hat.exit.1.2.bias")->grad[0], -exit[0], 1e-12);
    t_near(param(m, "hat.exit.3.2.bias")->grad[1], exit[1], 1e-12);
    model_free(m);
}

/* Every parameter that a phase trains has a gradient in a hard pass, and the others are frozen. */
T(each_phase_trains_its_parameters_and_freezes_the_others)
{
    static const struct {
        const char *options;
        int routers, exits;
    } phase[] = {{"hat.phase=routers", 1, 0}, {"hat.phase=exits", 0, 1}, {"hat.phase=full", 1, 1}};
    for (size_t k = 0; k < 3; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        struct model *m = small(phase[k].options, 1);
        kit_step(m, &batch.b, &pass);
        for (int i = 0; i < m->params.n; i++) {
            const struct param *p = &m->params.p[i];
            int is_exit = strncmp(p->name, "hat.exit", 8) == 0;
            if (p->group != PARAM_ROUTER || !p->train)
                continue;
            int trains = is_exit ? phase[k].exits : phase[k].routers;
            t_truef(p->lr == trains, "%s: %s", phase[k].options, p->name);
            t_truef(!trains || size_of(p->grad, p->n) > 1e-9, "%s: %s", phase[k].options, p->name);
        }
        model_free(m);
    }
}
