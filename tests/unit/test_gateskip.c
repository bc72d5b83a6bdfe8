/* gateskip's rules: the start from the base, the budget, thresholds at inference, what is skipped. */
#include "kit.h"
#include "routing/flops.h"

enum { B = 2, T = 32, V = 53, L = 6, R = B * T, C = 32 };

static struct kit_batch batch;

static struct model *fresh(const char *more, int train)
{
    char text[600];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=%d model.heads=2 model.vocab=%d model.init_std=0.1 "
             "model.method=gateskip %s",
             L, C, V, more);
    kit_fill(&batch, B, T, V, 7);
    return kit_model(text, 3, R, train, 0);
}

static struct model *trained_at(double lr, const char *more, int steps)
{
    struct model *m = fresh(more, 1);
    for (int step = 1; step <= steps; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step);
        kit_train(m, &batch.b, step, steps, lr);
    }
    kit_fill(&batch, B, T, V, 7);
    return m;
}

static struct model *trained(const char *more, int steps)
{
    return trained_at(3e-3, more, steps);
}

static void run(struct model *m, struct pass pass)
{
    model_forward(m, &batch.b, &pass);
}

/* Share of attentions and FFNs that ran. */
static double share(const struct model *m, int is_ffn)
{
    double sum = 0;
    for (int l = 0; l < L; l++)
        sum += (double)(is_ffn ? m->ffn : m->plan)[l].active / (R * L);
    return sum;
}

/* ---- the start ------------------------------------------------------------------------------- */

T(before_training_every_pass_is_the_base_bit_for_bit)
{
    struct model *m = fresh("gateskip.capacity=1", 1);
    run(m, kit_pass(PASS_DENSE));
    real *base = kit_copy(m->stream.h[L], kit_states(m));
    for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
        run(m, kit_pass((enum pass_kind)kind));
        t_true(kit_same(base, m->stream.h[L], kit_states(m)));
    }
    model_free(m);
    m = fresh("", 1); /* the first step trains with every token, whatever the final budget */
    struct pass pass = kit_pass(PASS_TRAIN);
    pass.progress = 0;
    run(m, pass);
    t_true(kit_same(base, m->stream.h[L], kit_states(m)));
    free(base);
    model_free(m);
}

/* sigmoid(5) = 0.9933 multiplies every branch. */
T(the_published_gate_starts_within_a_percent_of_the_base)
{
    struct model *m = fresh("gateskip.form=sigmoid gateskip.capacity=1", 0);
    double miss = 0, size = 0;
    run(m, kit_pass(PASS_DENSE));
    real *base = kit_copy(m->stream.h[L], kit_states(m));
    run(m, kit_pass(PASS_SPARSE));
    for (int l = 0; l < L; l++)
        t_near(m->ffn[l].gate[3], 1 / (1 + exp(-5.0)), 1e-6);
    for (size_t i = 0; i < kit_states(m); i++) {
        miss += pow((double)(m->stream.h[L][i] - base[i]), 2);
        size += pow((double)base[i], 2);
    }
    t_true(miss > 0 && sqrt(miss / size) < 0.01);
    free(base);
    model_free(m);
}

/* With a frozen base the gates alone learn: no other weight changes. */
T(gates_train_on_a_frozen_base)
{
    struct model *m = fresh("gateskip.sparsity=0.5", 1);
    for (int i = 0; i < m->params.n; i++)
        if (strncmp(m->params.p[i].name, "gateskip", 8) != 0)
            m->params.p[i].lr = 0;
    int embed = m->embed, w = params_find(&m->params, "gateskip.gate.weight");
    real *before = kit_copy(m->params.p[embed].value, m->params.p[embed].n);
    for (int step = 1; step <= 5; step++)
        kit_train(m, &batch.b, step, 5, 1e-2);
    t_true(kit_same(before, m->params.p[embed].value, m->params.p[embed].n));
    double sum = 0;
    for (size_t k = 0; k < m->params.p[w].n; k++)
        sum += fabs((double)m->params.p[w].value[k]);
    t_true(sum > 0.01);
    t_true(kit_metric(m, "gate_mean", 2) < 1 && kit_metric(m, "sparsity_loss", 0) < 0.5);
    free(before);
    model_free(m);
}

/* ---- the budget ------------------------------------------------------------------------------ */

T(the_budget_falls_linearly_between_hold_and_tighten)
{
    struct model *m = fresh("gateskip.capacity=0.5 gateskip.hold=0.2 gateskip.tighten=0.6", 1);
    static const double at[][2] = {{0, 1},      {0.2, 1},   {0.3, 0.875},
                                   {0.4, 0.75}, {0.6, 0.5}, {1, 0.5}};
    for (size_t k = 0; k < sizeof at / sizeof *at; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.progress = at[k][0];
        run(m, pass);
        t_near(kit_metric(m, "capacity", 0), at[k][1], 1e-12);
        t_near(share(m, 1), at[k][1], 1e-12);
        t_near(share(m, 0), at[k][1], 1e-12);
    }
    model_free(m);
}

T(training_ranks_each_document_and_skips_its_lowest_gates)
{
    struct model *m = trained("gateskip.capacity=0.5", 6);
    struct pass pass = kit_pass(PASS_TRAIN);
    pass.progress = 1;
    pass.record = 1;
    kit_documents(&batch);
    run(m, pass);
    const real *score = NULL;
    for (size_t k = 0; k < m->route.ops->n_metrics; k++)
        if (strcmp(m->route.ops->metrics[k].name, "score") == 0)
            score = m->route.cell[k];
    for (int l = 0; l < L; l++) {
        uint8_t ran[R] = {0};
        for (int k = 0; k < m->ffn[l].n; k++)
            ran[m->ffn[l].row[k]] = m->ffn[l].gate[k] != 0;
        for (int i = 0; i < R;) {
            int end = i + 1, n = 0;
            real lowest = 1e9, highest = -1e9;
            while (end < R && end % T != 0 && m->pos[end] != 0)
                end++;
            for (int j = i; j < end; j++) {
                real s = score[l * R + j];
                n += ran[j];
                lowest = ran[j] && s < lowest ? s : lowest;
                highest = !ran[j] && s > highest ? s : highest;
            }
            int want = (int)floor(0.5 * (end - i) + 0.5);
            t_eq(n, want < 1 ? 1 : want);
            t_true(lowest >= highest);
            i = end;
        }
    }
    model_free(m);
}

T(a_branch_that_may_not_be_skipped_always_runs)
{
    for (int is_ffn = 0; is_ffn < 2; is_ffn++) {
        struct model *m = trained(is_ffn ? "gateskip.skip=ffn gateskip.capacity=0.4"
                                         : "gateskip.skip=attention gateskip.capacity=0.4",
                                  6);
        run(m, kit_pass(PASS_SPARSE));
        t_near(share(m, !is_ffn), 1, 1e-12);
        t_true(share(m, is_ffn) < 0.7);
        model_free(m);
    }
}

/* ---- inference ------------------------------------------------------------------------------- */

static double ratio_at(struct model *m, double capacity, int is_ffn)
{
    struct pass pass = kit_pass(PASS_SPARSE);
    struct err e = {0};
    double got = 0;
    pass.inference.has_capacity = 1;
    pass.inference.capacity = capacity;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    for (int b = 0; b < 4; b++) {
        kit_fill(&batch, B, T, V, (uint64_t)(40 + b));
        run(m, pass);
        got += share(m, is_ffn) / 4;
    }
    return got;
}

T(any_capacity_is_reached_after_calibration_by_both_branches)
{
    struct err e = {0};
    struct model *m = fresh("gateskip.init_std=0.3", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "depthscope calibrate MODEL");
    t_true(strchr(e.text, '\n') == NULL);
    pass.inference.has_capacity = 1;
    m->route.ops->calibrate(&m->route, 1, NULL);
    for (int i = 0; i < ROUTE_GRID; i++)
        for (int b = 0; b < 4; b++) {
            kit_fill(&batch, B, T, V, (uint64_t)(20 + b));
            pass.inference.calibrate = i + 1;
            pass.inference.capacity = (double)i / (ROUTE_GRID - 1);
            run(m, pass);
        }
    m->route.ops->calibrate(&m->route, 0, NULL);
    for (int is_ffn = 0; is_ffn < 2; is_ffn++)
        for (int i = 0; i <= 7; i++) {
            double got = ratio_at(m, i / 7.0, is_ffn);
            t_truef(fabs(got - i / 7.0) < 0.1, "capacity %g gave %g", i / 7.0, got);
        }
    model_free(m);
}

/* Slow steps: running quantiles follow the scores with a delay. */
T(training_stores_thresholds_that_meet_the_budget)
{
    struct model *m =
        trained_at(1e-4, "gateskip.capacity=0.7 gateskip.tighten=0.5 gateskip.init_std=0.05", 40);
    struct pass pass = kit_pass(PASS_SPARSE);
    double got = 0;
    for (int b = 0; b < 8; b++) {
        kit_fill(&batch, B, T, V, (uint64_t)(60 + b));
        run(m, pass);
        got += (share(m, 0) + share(m, 1)) / 16;
    }
    t_near(got, 0.7, 0.08);
    model_free(m);
}

T(a_skipped_token_keeps_its_state_and_is_still_a_key)
{
    struct model *m = trained("gateskip.capacity=0.5", 6);
    int skipped = 0;
    run(m, kit_pass(PASS_SPARSE));
    for (int l = 0; l < L; l++) {
        uint8_t ran[R] = {0};
        for (int k = 0; k < m->plan[l].n; k++)
            ran[m->plan[l].row[k]] = 1;
        for (int k = 0; k < m->ffn[l].n; k++)
            ran[m->ffn[l].row[k]] = 1;
        for (int i = 0; i < R; i++) {
            size_t at = (size_t)i * C;
            skipped += !ran[i];
            t_true(ran[i] || kit_same(m->stream.h[l] + at, m->stream.h[l + 1] + at, C));
        }
        t_true(m->plan[l].kv == KV_ALL);
    }
    t_true(skipped > 10);
    model_free(m);
    m = trained("gateskip.capacity=0.5 gateskip.kv=plan", 6);
    run(m, kit_pass(PASS_SPARSE));
    t_true(m->plan[0].kv == KV_PLAN);
    model_free(m);
}

T(topk_at_inference_is_the_training_selection)
{
    struct model *m = trained("gateskip.capacity=0.6", 6);
    struct pass use = kit_pass(PASS_SPARSE), learn = kit_pass(PASS_TRAIN);
    use.inference.topk = 1;
    learn.progress = 1;
    run(m, use);
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    run(m, learn);
    t_true(kit_same(want, m->stream.h[L], kit_states(m)));
    free(want);
    model_free(m);
}

/* A forced FFN brings its attention; each keeps its own gate value. */
T(forced_cells_are_obeyed)
{
    static int8_t force[L * R], attention[L * R];
    struct model *m = trained("gateskip.capacity=0.5", 6);
    struct pass pass = kit_pass(PASS_SPARSE);
    for (int i = 0; i < L * R; i++) {
        force[i] = (int8_t)(i % 3 - 1);
        attention[i] = (int8_t)((i / 3) % 3 - 1);
    }
    pass.inference.force = force;
    for (int both = 0; both < 2; both++) {
        pass.inference.force_attention = both ? attention : NULL;
        run(m, pass);
        for (int l = 0; l < L; l++) {
            uint8_t ran[2][R] = {{0}};
            for (int k = 0; k < m->plan[l].n; k++)
                ran[0][m->plan[l].row[k]] = 1;
            for (int k = 0; k < m->ffn[l].n; k++)
                ran[1][m->ffn[l].row[k]] = 1;
            for (int i = 0; i < R; i++) {
                int f = force[l * R + i], a = attention[l * R + i];
                t_true(f < 0 || ran[1][i] == f);
                t_true(both && a >= 0 ? ran[0][i] == a : f != 1 || ran[0][i]);
            }
        }
    }
    model_free(m);
}

T(nan_scores_rank_last_and_are_counted)
{
    struct model *m = fresh("gateskip.capacity=0.5 gateskip.tighten=0", 1);
    int w = params_find(&m->params, "gateskip.gate.weight");
    m->params.p[w].value[3] = NAN;
    run(m, kit_pass(PASS_TRAIN));
    t_true(kit_metric(m, "nan_scores", 0) >= R); /* later ones follow from NaN states */
    t_eq(m->plan[0].n, R / 2);
    model_free(m);
}

/* ---- counts and messages --------------------------------------------------------------------- */

T(two_gates_of_a_layer_cost_their_operations_and_parameters)
{
    struct model *m = trained("gateskip.capacity=0.5", 6);
    int w = params_find(&m->params, "gateskip.gate.weight"),
        b = params_find(&m->params, "gateskip.gate.bias");
    run(m, kit_pass(PASS_SPARSE));
    t_eq(m->params.p[w].n, 2 * L * C);
    t_eq(m->params.p[b].n, 2 * L);
    for (int l = 0; l < L; l++)
        t_near(m->flops.part[l * FLOPS_PARTS + FLOPS_ROUTER], R * 2 * 5.0 * C, 1e-6);
    model_free(m);
}

T(invalid_options_are_refused_in_one_line)
{
    static const struct {
        const char *options, *part;
        int code;
    } bad[] = {
        {"gateskip.capacity=0.9 gateskip.capacity_start=0.8",
         "gateskip.capacity=0.9: must not be above gateskip.capacity_start=0.8", DS_ERANGE},
        {"gateskip.hold=0.5 gateskip.tighten=0.2", "gateskip.hold=0.5", DS_ERANGE},
        {"gateskip.capacity=1.2", "1.2", DS_EUSAGE},
        {"gateskip.skip=none", "none", DS_EUSAGE},
        {"gateskip.budget=0.5", "gateskip.budget", DS_EUSAGE},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct err e = {0};
        struct model *m = NULL;
        char text[200];
        snprintf(text, sizeof text, "model.method=gateskip %s", bad[k].options);
        t_fails(kit_try(&m, text, 1, 0, &e), &e, bad[k].code, bad[k].part);
        t_true(strchr(e.text, '\n') == NULL);
        model_free(m);
    }
    struct err e = {0};
    struct model *m = fresh("gateskip.capacity_start=0.8 gateskip.capacity=0.6", 0);
    t_fails(kit_set(m, "capacity", 0.9, &e), &e, DS_ERANGE, "gateskip.capacity_start=0.8");
    t_ok(kit_set(m, "capacity", 0.3, &e), &e);
    model_free(m);
}
