/* edp's soft path against central differences, in double: thresholds, score weights, step codes and
 * all weights of the model, under every penalty and budget; then the straight-through rule
 * itself. */
#include "base/mem.h"
#include "kit_grad.h"
#include "routing/route.h"

enum { B = 2, T = 8, V = 11, SAMPLES = 20 };

static struct kit_batch batch;
static real entropy[B * T], exit_nll[7 * B * T];

/* Loss and penalties.  The predictive entropy is detached, so it is constant here too. */
static double objective(struct model *m, struct pass *pass)
{
    struct losses x = {.entropy = entropy, .R = B * T, .L = (int)m->config.layers};
    model_forward(m, &batch.b, pass);
    double loss = model_loss(m, 0, 0);
    m->route.ops->aux(&m->route, &x);
    return loss + x.aux;
}

static void check_params(const char *what, struct model *m, struct pass *pass)
{
    kit_check_params(what, objective, m, pass, SAMPLES);
}

static struct model *small_at(const char *more, uint64_t seed)
{
    char text[700];
    snprintf(text, sizeof text,
             "model.layers=6 model.dim=8 model.heads=2 model.ffn=12 model.vocab=%d "
             "model.max_seq=%d model.init_std=0.4 "
             "model.method=edp edp.anneal=0 edp.sparsity_warmup=0 edp.target_ratio=0.7 "
             "edp.lambda_sparsity=0.7 "
             "edp.lambda_budget=0.3 edp.temperature=0.7 edp.max_skip=2 edp.threshold=learned %s",
             V, T, more);
    kit_fill(&batch, B, T, V, 1);
    kit_documents(&batch);
    struct model *m = kit_model(text, 7, B * T, 1, 1);
    kit_shake(m, 0.2, seed);
    return m;
}

static struct model *small(const char *more)
{
    return small_at(more, 9);
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

/* One training pass and its update, so that running statistics exist. */
static void warm(struct model *m)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_step(m, &batch.b, &pass);
    m->route.ops->update(&m->route);
}

static int cells_not_forced(struct model *m)
{
    int n = 0;
    for (int l = 0; l < m->config.layers; l++)
        for (int k = 0; k < m->plan[l].n; k++)
            n += m->plan[l].weight[k] != 0;
    return n;
}

/* Soft gates; the signals of the first pass are replayed. */
static void check_soft(const char *options)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(options);
    pass.soft = 1;
    warm(m);
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    t_truef(cells_not_forced(m) >= 8, "%s: %d cells are free", options, cells_not_forced(m));
    memcpy(entropy, m->entropy_rel, sizeof entropy);
    check_params(options, m, &pass);
    model_free(m);
}

/* Thresholds, score weights, step codes, norms, biases, embeddings and matrices at once. */
T(acceptance_07_soft_path_gradient_check_for_every_parameter_kind)
{
    check_soft("edp.signal=learned edp.step_code=landing edp.penalty=quadratic edp.budget=dual "
               "model.norm=layer "
               "model.mlp=gelu model.attn_bias=true model.mlp_bias=true model.position=learned "
               "model.tied=false");
}

T(soft_gates_have_the_right_gradients_for_every_signal)
{
    check_soft("edp.signal=velocity edp.budget=off");
    check_soft("edp.signal=speed");
    check_soft("edp.signal=vector edp.kv=plan");
    check_soft("edp.signal=learned");
}

T(every_step_code_has_the_right_gradients)
{
    check_soft("edp.step_code=landing");
    check_soft("edp.step_code=every");
    check_soft("edp.step_code=static");
    check_soft("edp.step_code=off");
}

T(every_penalty_has_the_right_gradients)
{
    check_soft("edp.penalty=quadratic");
    check_soft("edp.penalty=entropy");
    check_soft("edp.penalty=polarise edp.signal=velocity");
}

T(every_budget_has_the_right_gradients)
{
    check_soft("edp.budget=dual edp.budget_rate=3");
    check_soft("edp.budget=loss edp.penalty=quadratic");
    check_soft("edp.budget=off");
    check_soft("edp.threshold=fixed edp.budget=loss");
    check_soft("edp.threshold=quantile");
}

T(fair_variants_have_the_right_gradients)
{
    check_soft("edp.spread=common edp.threshold=fixed edp.signal=vector");
    check_soft("edp.spread=common edp.threshold=quantile edp.budget=loss");
    check_soft("edp.max_skip=0 edp.min_runs=1 edp.signal=velocity edp.early=0 edp.late=0");
    check_soft("edp.persist=0.6 edp.signal=learned edp.penalty=quadratic edp.budget=dual");
    check_soft("edp.persist=0.6 edp.min_runs=1 edp.max_skip=0 edp.spread=common "
               "edp.threshold=fixed edp.budget=loss");
}

T(the_literal_rule_has_the_right_gradients)
{
    check_soft("edp.history=literal edp.signal=velocity edp.step_code=every "
               "edp.initial_threshold=0.4 edp.budget=off "
               "edp.penalty=quadratic");
    check_soft("edp.history=literal edp.signal=speed edp.step_code=static edp.budget=loss "
               "edp.threshold=fixed");
}

/* How far the nearest score is from its threshold in a recorded pass. */
static double margin(const struct model *m)
{
    const real *score = m->route.cell[cell_metric(m, "score")],
               *tau = m->route.cell[cell_metric(m, "threshold")];
    const real *forced = m->route.cell[cell_metric(m, "forced")];
    double least = 1;
    for (int i = 0; i < m->config.layers * B * T; i++)
        if (!isnan(score[i]) && forced[i] == 0)
            least = fmin(least, fabs(score[i] - tau[i]));
    return least;
}

/* The signals move with the states behind them and no hard decision may flip within the
 * differences, so this searches for a model with clear margins between scores and thresholds. */
static void check_attached(const char *options)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    pass.soft = pass.record = 1;
    for (uint64_t seed = 9; seed < 30; seed++) {
        struct model *m = small_at(options, seed);
        warm(m);
        kit_step(m, &batch.b, &pass);
        int is_clear = margin(m) > 0.01;
        if (is_clear) {
            memcpy(entropy, m->entropy_rel, sizeof entropy);
            check_params(options, m, &pass);
        }
        model_free(m);
        if (is_clear)
            return;
    }
    t_truef(0, "%s: every model has a score at its threshold", options);
}

T(attached_signals_have_the_right_gradients)
{
    check_attached(
        "edp.attach=true edp.signal=velocity edp.step_code=landing edp.penalty=quadratic");
    check_attached("edp.attach=true edp.signal=speed edp.step_code=off");
    check_attached("edp.attach=true edp.signal=vector edp.step_code=landing edp.budget=loss");
    check_attached(
        "edp.attach=true edp.signal=vector edp.step_code=off edp.kv=plan edp.threshold=fixed");
}

T(attached_scores_that_persist_have_the_right_gradients)
{
    check_attached("edp.attach=true edp.signal=velocity edp.min_runs=1 edp.persist=0.5");
    check_attached("edp.attach=true edp.signal=vector edp.persist=0.3 edp.spread=common "
                   "edp.threshold=fixed");
}

/* ---- regret ---------------------------------------------------------------------------------- */

/* Half the mean square of prediction minus label over the gated cells; measured by gates, each has
 * the weight 1/2 of a gate that was sure to be 1.  The gates' gradients depend on the cell only. */
static double squares(struct model *m, struct pass *pass)
{
    real dgate[B * T];
    struct losses x = {.entropy = entropy, .target = batch.target, .R = B * T, .L = 6};
    double error = 0, n = 0;
    x.exit_nll = exit_nll;
    for (int c = 0; c < 7 * B * T; c++)
        exit_nll[c] = 2 + sin(3.0 * c);
    model_forward(m, &batch.b, pass);
    m->route.ops->aux(&m->route, &x);
    for (int l = 5; l >= 0; l--) {
        for (int k = 0; k < m->plan[l].n; k++) {
            dgate[k] = 0.02 * m->plan[l].weight[k] * sin(1.0 + m->plan[l].row[k] + 10 * l);
            n += (m->route.wants_exits ? 1 : 0.5) * m->plan[l].weight[k];
        }
        m->route.ops->decide_bwd(&m->route, l, &m->plan[l], dgate, &m->stream);
    }
    for (size_t i = 0; i < m->route.ops->n_metrics; i++)
        if (strcmp(m->route.ops->metrics[i].name, "regret_error") == 0)
            error = m->route.metric[i][0];
    return error * error / 2 * n / (4 * B * T); /* of four gated layers */
}

static void check_regret(const char *options)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(options);
    warm(m);
    pass.soft = 1;
    pass.inference.offset = -INFINITY;
    pass.progress = 0.3; /* gates are drawn */
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    for (int i = 0; i < m->params.n; i++) {
        struct param *p = &m->params.p[i];
        if (strncmp(p->name, "edp.regret.", 11) != 0 || !p->train)
            continue;
        params_zero_grad(&m->params);
        squares(m, &pass);
        real *grad = kit_copy(p->grad, p->n);
        kit_check_tensor(options, squares, m, &pass, p->name, p->value, grad, p->n, SAMPLES,
                         (uint32_t)i);
        free(grad);
    }
    model_free(m);
}

T(the_regret_network_has_the_right_gradients)
{
    check_regret("edp.signal=regret edp.hidden=5 edp.threshold=fixed edp.budget=off");
    check_regret("edp.signal=regret edp.hidden=5 edp.threshold=fixed edp.regret=gradient");
    check_regret("edp.signal=regret edp.hidden=5 edp.spread=common edp.min_runs=1 "
                 "edp.threshold=quantile edp.persist=0.5");
}

/* The gradients of all other weights with hard gates: the plan is replayed, so differences see the
 * same function. */
static void check_hard(const char *options)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small(options);
    warm(m);
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    memcpy(entropy, m->entropy_rel, sizeof entropy);
    /* the gate's own parameters have a surrogate gradient, which is not this derivative */
    for (int i = 0; i < m->params.n; i++)
        if (m->params.p[i].group == PARAM_ROUTER)
            m->params.p[i].train = 0;
    check_params(options, m, &pass);
    model_free(m);
}

T(other_weights_have_their_true_gradients_with_hard_gates)
{
    check_hard("");
    check_hard("edp.kv=plan edp.step_code=every");
    check_hard("edp.train=sparse edp.probe_rate=0.5 edp.kv=plan");
    check_hard("edp.train=sparse edp.probe_rate=0.5");
}

/* ---- straight-through ------------------------------------------------------------------------ */

static int find(const struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s", name);
    return i;
}

/* Backward of the gates reads what was saved, not whether the forward was hard: same saved state,
 * same bits. */
T(hard_and_soft_backward_agree_bit_for_bit_on_the_same_saved_state)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("edp.penalty=quadratic edp.budget=dual");
    warm(m);
    kit_step(m, &batch.b, &pass);
    struct param *tau = &m->params.p[find(m, "edp.threshold")],
                 *w = &m->params.p[find(m, "edp.score.weight")];
    real dgate[B * T], hard[2][64];
    for (int soft = 0; soft < 2; soft++) {
        memset(tau->grad, 0, tau->n * sizeof(real));
        memset(w->grad, 0, w->n * sizeof(real));
        m->route.pass.soft = soft;
        for (int l = 0; l < 6; l++) {
            for (int k = 0; k < m->plan[l].n; k++) {
                dgate[k] = sin(1.0 + k + 10 * l);
                if (soft && m->plan[l].weight[k] != 0)
                    m->plan[l].gate[k] = 0.3;
            }
            m->route.ops->decide_bwd(&m->route, l, &m->plan[l], dgate, &m->stream);
        }
        if (!soft) {
            memcpy(hard[0], tau->grad, tau->n * sizeof(real));
            memcpy(hard[1], w->grad, w->n * sizeof(real));
        }
    }
    t_true(kit_same(hard[0], tau->grad, tau->n));
    t_true(kit_same(hard[1], w->grad, w->n));
    double sum = 0;
    for (size_t i = 0; i < tau->n; i++)
        sum += fabs(tau->grad[i]);
    t_true(sum > 1e-3);
    model_free(m);
}

/* The same through the whole model: hard gates of exactly 0 and 1 replace soft ones. */
T(a_replayed_hard_plan_has_the_same_backward_in_every_kind_of_pass)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("edp.budget=off");
    size_t n;
    warm(m);
    model_forward(m, &batch.b, &pass);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    real *train = kit_gradients(m, &n);
    pass.kind = PASS_MASKED;
    kit_step(m, &batch.b, &pass);
    real *masked = kit_gradients(m, &n);
    t_true(kit_same(train, masked, n));
    free(train);
    free(masked);
    model_free(m);
}

/* dgate at tau is - sum dgate weight p (1 - p) / T, computed here, probes weighted by 1/rate. */
T(probes_are_weighted_by_one_over_their_rate)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m =
        small("edp.train=sparse edp.probe_rate=0.5 edp.budget=off edp.signal=velocity");
    warm(m);
    pass.record = 1;
    kit_step(m, &batch.b, &pass);
    int score = cell_metric(m, "score"), threshold = cell_metric(m, "threshold"), probes = 0;
    const struct param *tau = &m->params.p[find(m, "edp.threshold")];
    double total = 0;
    for (int l = 5; l >= 0; l--) {
        const struct plan *p = &m->plan[l];
        double want = 0;
        for (int k = 0; k < p->n; k++) {
            size_t C = (size_t)m->config.dim, cell = (size_t)l * B * T + (size_t)p->row[k];
            const real *dy = m->stream.dh[l + 1] + (size_t)p->row[k] * C,
                       *f = m->work[l].f + (size_t)k * C;
            double dot = 0;
            for (size_t c = 0; c < C; c++)
                dot += dy[c] * f[c];
            probes += p->gate[k] == 0;
            t_near(p->weight[k], p->gate[k] == 0 ? 2 : p->weight[k] == 0 ? 0 : 1, 0);
            if (p->weight[k] == 0)
                continue;
            double z = (m->route.cell[score][cell] - m->route.cell[threshold][cell]) / 0.7,
                   g = 1 / (1 + exp(-z));
            want -= p->weight[k] * dot * g * (1 - g) / 0.7;
        }
        t_near(tau->grad[l], want, 1e-12 + 1e-9 * fabs(want));
        total += fabs(want);
    }
    t_true(probes >= 2 && total > 1e-4);
    model_free(m);
}

/* Gradient descent on a threshold must lower it where running the block helps. */
T(a_token_whose_block_helps_lowers_the_threshold)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = small("edp.budget=off edp.signal=velocity");
    warm(m);
    kit_step(m, &batch.b, &pass);
    struct param *tau = &m->params.p[find(m, "edp.threshold")];
    real dgate[B * T];
    for (int l = 0; l < 6; l++) {
        int free_cells = 0;
        for (int k = 0; k < m->plan[l].n; k++) {
            dgate[k] = -1; /* more gate, less loss */
            free_cells += m->plan[l].weight[k] != 0;
        }
        tau->grad[l] = 0;
        m->route.ops->decide_bwd(&m->route, l, &m->plan[l], dgate, &m->stream);
        t_true(free_cells ? tau->grad[l] > 0 : tau->grad[l] == 0);
    }
    model_free(m);
}
