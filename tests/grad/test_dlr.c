/* dlr's gradients in double: the soft path against central differences at every level and penalty,
 * the straight-through factor and the score-function estimator against their formulas by hand. */
#include "base/rng.h"
#include "kit_grad.h"
#include "routing/route.h"

enum { B = 2, T = 9, V = 11, L = 6, KEEP = 2, M = L - KEEP, SAMPLES = 8 };

static struct kit_batch batch;
static int has_spans; /* private ones, in place of documents */
static real nll[B * T];

static double objective(struct model *m, struct pass *pass)
{
    struct losses x = {.nll = nll, .target = batch.target, .R = B * T, .L = L};
    model_forward(m, &batch.b, pass);
    x.rows = model_loss_rows(m);
    double loss = model_loss(m, 0, 0);
    m->route.ops->aux(&m->route, &x);
    return loss + x.aux;
}

static struct model *small(const char *more)
{
    char text[500];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.init_std=0.4 model.method=dlr dlr.keep=%d dlr.lambda=0.3 dlr.mu=2 "
             "dlr.tau_start=0.7 dlr.tau_min=0.1 %s",
             L, V, KEEP, more);
    kit_fill(&batch, B, T, V, 1);
    if (has_spans)
        kit_spans(&batch, 3, 2);
    else
        kit_documents(&batch);
    struct model *m = kit_model(text, 7, B * T, 1, 1);
    kit_shake(m, 0.2, 9);
    return m;
}

static struct param *named(const struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s", name);
    return &m->params.p[i];
}

/* The router's input is replayed or, when attached, follows the weights. */
static void check_soft(const char *options, int is_attached)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(options);
    pass.soft = 1;
    model_forward(m, &batch.b, &pass);
    m->route.frozen = !is_attached;
    kit_step(m, &batch.b, &pass);
    for (int i = 0; i < m->params.n; i++) {
        const struct param *p = &m->params.p[i];
        double sum = 0;
        for (size_t k = 0; p->train && k < p->n; k++)
            sum += fabs(p->grad[k]);
        t_truef(!p->train || sum > 0, "%s: %s does not learn", options, p->name);
    }
    kit_check_params(options, objective, m, &pass, SAMPLES);
    model_free(m);
}

T(soft_gates_have_the_right_gradients_at_every_level)
{
    check_soft("dlr.level=token", 0);
    check_soft("dlr.level=prefix", 0);
    check_soft("dlr.level=prompt dlr.prompt=2", 0);
}

T(every_penalty_has_the_right_gradients)
{
    check_soft("dlr.depth_weights=linear dlr.mu=0", 0);
    check_soft("dlr.lambda=0 dlr.target_skip=0.9", 0);
    check_soft("dlr.entropy_beta=0.5 dlr.mu=0 dlr.kv=plan", 0);
}

T(attached_states_have_the_right_gradients_at_every_level)
{
    check_soft("dlr.attach=true dlr.level=token", 1);
    check_soft("dlr.attach=true dlr.level=prefix dlr.entropy_beta=0.2", 1);
    check_soft("dlr.attach=true dlr.level=prompt dlr.prompt=3", 1);
}

T(attached_states_have_the_right_gradients_with_private_spans)
{
    has_spans = 1;
    check_soft("dlr.attach=true dlr.level=prefix", 1);
    check_soft("dlr.attach=true dlr.level=prompt dlr.prompt=4", 1);
    has_spans = 0;
}

/* ---- straight-through ------------------------------------------------------------------------ */

static int cell_metric(const struct model *m, const char *name)
{
    for (size_t i = 0; i < m->route.ops->n_metrics; i++)
        if (m->route.ops->metrics[i].scope == METRIC_CELL &&
            strcmp(m->route.ops->metrics[i].name, name) == 0)
            return (int)i;
    t_truef(0, "no cell metric %s", name);
    return -1;
}

static double logit_of(const struct model *m, int l, int i)
{
    return m->route.cell[cell_metric(m, "score")][(size_t)l * B * T + (size_t)i];
}

static double noise_of(const struct pass *pass, int l, int i)
{
    double u = rng_at(pass->seed, RNG_ROUTE, (uint64_t)pass->step, (uint32_t)l, (uint32_t)i);
    return log(u / (1 - u));
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* d loss / d gate of place k of layer l, computed from the states that backward left */
static double gate_grad(const struct model *m, int l, int k)
{
    size_t C = (size_t)m->config.dim;
    const real *dy = m->stream.dh[l + 1] + (size_t)m->plan[l].row[k] * C,
               *f = m->work[l].f + (size_t)k * C;
    double dot = 0;
    for (size_t c = 0; c < C; c++)
        dot += dy[c] * f[c];
    return dot;
}

static double skipped(const struct model *m)
{
    double run = 0;
    for (int l = KEEP; l < L; l++)
        run += (double)m->plan[l].active / (B * T * M);
    return 1 - run;
}

/* Hard gates are those of logit + noise > 0; the last bias gets (dgate + penalty / R) y (1 - y) /
 * tau. */
T(hard_gates_have_the_straight_through_gradient)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("dlr.depth_weights=linear dlr.tau_decay=1");
    double total = 0;
    pass.record = 1;
    kit_step(m, &batch.b, &pass);
    const struct param *bias = named(m, "dlr.router.2.bias");
    for (int l = KEEP; l < L; l++) {
        double weight = 0.1 + 1.9 * (l - KEEP) / (M - 1), want = 0;
        double price = 0.3 * weight - 2 * 2 * (skipped(m) - 0.4) / M;
        t_eq(m->plan[l].n, B * T);
        for (int i = 0; i < B * T; i++) {
            double z = logit_of(m, l, i) + noise_of(&pass, l, i), y = sigmoid(z / 0.7);
            t_true(m->plan[l].gate[i] == (z > 0));
            want += (gate_grad(m, l, i) + price / (B * T)) * y * (1 - y) / 0.7;
        }
        t_near(bias->grad[l - KEEP], want, 1e-9);
        total += fabs(want);
    }
    t_true(total > 1e-3);
    model_free(m);
}

/* Backward of the gates reads what was saved, not whether the forward was hard. */
T(hard_and_soft_backward_agree_bit_for_bit_on_the_same_saved_state)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("");
    real dgate[B * T], *grad[2];
    size_t n;
    kit_step(m, &batch.b, &pass);
    for (int soft = 0; soft < 2; soft++) {
        params_zero_grad(&m->params);
        m->route.pass.soft = soft;
        for (int l = L - 1; l >= 0; l--) {
            for (int k = 0; k < m->plan[l].n; k++) {
                dgate[k] = sin(1.0 + k + 10 * l);
                if (soft)
                    m->plan[l].gate[k] = 0.3;
            }
            m->route.ops->decide_bwd(&m->route, l, &m->plan[l], dgate, &m->stream);
        }
        grad[soft] = kit_gradients(m, &n);
    }
    t_true(kit_same(grad[0], grad[1], n));
    t_true(fabs(named(m, "dlr.router.0.weight")->grad[0]) > 1e-9);
    free(grad[0]);
    free(grad[1]);
    model_free(m);
}

/* Detached: the weights of the base have the same gradients whether or not the router learns. */
T(a_detached_router_has_no_gradient_into_the_states)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    real *grad[3];
    size_t n = 0;
    const char *options[3] = {"dlr.level=prefix", "dlr.level=prefix dlr.estimator=none",
                              "dlr.level=prefix dlr.attach=true"};
    for (int k = 0; k < 3; k++) {
        struct model *m = small(options[k]);
        kit_step(m, &batch.b, &pass);
        n = named(m, "model.embed_tokens.weight")->n;
        grad[k] = kit_copy(named(m, "model.embed_tokens.weight")->grad, n);
        t_true((named(m, "dlr.router.2.bias")->grad[0] != 0) == (k != 1));
        model_free(m);
    }
    t_true(kit_same(grad[0], grad[1], n));
    t_true(!kit_same(grad[0], grad[2], n));
    for (int k = 0; k < 3; k++)
        free(grad[k]);
}

/* ---- score function -------------------------------------------------------------------------- */

/* reward = - (nll + sum_l price_l hard_l); d logit = - (reward - baseline) / n (hard -
 * sigmoid(logit)). */
static void check_reinforce(struct model *m, struct pass *pass, double baseline, int has_baseline)
{
    double reward[B * T], mean = 0, n = 0;
    kit_step(m, &batch.b, pass);
    double price = 0.3 - 2 * 2 * (skipped(m) - 0.4) / M;
    for (int i = 0; i < B * T; i++) {
        reward[i] = -m->nll[i];
        for (int l = KEEP; l < L; l++)
            reward[i] -= price * m->plan[l].gate[i];
        n += batch.target[i] >= 0;
        mean += batch.target[i] >= 0 ? reward[i] : 0;
    }
    mean /= n;
    baseline = has_baseline ? baseline : mean;
    for (int l = KEEP; l < L; l++) {
        double want = 0;
        for (int i = 0; i < B * T; i++)
            if (batch.target[i] >= 0)
                want -=
                    (reward[i] - baseline) / n * (m->plan[l].gate[i] - sigmoid(logit_of(m, l, i)));
        t_near(named(m, "dlr.router.2.bias")->grad[l - KEEP], want, 1e-10);
        t_true(fabs(want) > 1e-6);
    }
}

T(the_score_function_estimator_matches_its_formula)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("dlr.estimator=reinforce dlr.ema=0.5");
    double mean = 0, n = 0;
    batch.target[3] = -1;
    pass.record = 1;
    check_reinforce(m, &pass, 0, 0);
    double price = 0.3 - 2 * 2 * (skipped(m) - 0.4) / M;
    for (int i = 0; i < B * T; i++) {
        double reward = -m->nll[i];
        for (int l = KEEP; l < L; l++)
            reward -= price * m->plan[l].gate[i];
        n += batch.target[i] >= 0;
        mean += batch.target[i] >= 0 ? reward : 0;
    }
    m->route.ops->update(&m->route);
    t_near(named(m, "dlr.baseline")->value[0], mean / n, 1e-12);
    pass.step = 2;
    check_reinforce(m, &pass, mean / n, 1);
    model_free(m);
}
