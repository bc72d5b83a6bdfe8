/* dtf's rules: per-document statistics, cached state, decisions, and refused options. */
#include "kit.h"
#include "routing/change.h"
#include "routing/choice.h"
#include "routing/surprise.h"

enum { B = 2, T = 24, V = 31, L = 6 };

static struct kit_batch batch;

static struct model *small(const char *more, int steps)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=16 model.heads=2 model.vocab=%d model.max_seq=64 "
             "model.init_std=0.1 model.method=dtf %s",
             L, V, more);
    struct model *m = kit_model(text, 3, B * T, 1, 0);
    for (int step = 1; step <= steps; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step);
        kit_documents(&batch);
        kit_train(m, &batch.b, step, 10, 1e-3);
    }
    kit_fill(&batch, B, T, V, 99);
    return m;
}

static int metric(const struct model *m, const char *name, enum metric_scope scope)
{
    for (size_t i = 0; i < m->route.ops->n_metrics; i++)
        if (m->route.ops->metrics[i].scope == scope &&
            strcmp(m->route.ops->metrics[i].name, name) == 0)
            return (int)i;
    t_truef(0, "no metric %s", name);
    return -1;
}

static double of_layer(const struct model *m, const char *name, int l)
{
    return m->route.metric[metric(m, name, METRIC_LAYER)][l];
}

static const real *of_cells(const struct model *m, const char *name, int l)
{
    return m->route.cell[metric(m, name, METRIC_CELL)] + (size_t)l * (size_t)m->R;
}

static struct pass forward(struct model *m, enum pass_kind kind, int record)
{
    struct pass pass = kit_pass(kind);
    pass.record = record;
    model_forward(m, &batch.b, &pass);
    return pass;
}

/* ---- published numbers ----------------------------------------------------------------------- */

T(prior_networks_have_the_published_parameter_counts)
{
    static const struct {
        double factor;
        int width;
        int64_t params;
    } want[] = {
        {0.0625, 56, 150528}, {0.125, 112, 301056}, {0.25, 224, 602112}, {0.5, 448, 1204224}};
    for (size_t k = 0; k < DS_LEN(want); k++) {
        struct err e = {0};
        struct params ps = {0};
        struct prior p;
        int d = prior_width(896, want[k].factor);
        struct prior_shape shape = {896, d, 0.02, 1};
        t_eq(d, want[k].width);
        t_ok(prior_init(&p, &ps, "x", &shape, &e), &e);
        t_eq((int64_t)(ps.p[p.gate].n + ps.p[p.up].n + ps.p[p.down].n), want[k].params);
        t_eq(params_count(&ps), want[k].params + 896);
        params_release(&ps);
    }
    t_eq(prior_width(8, 0.0625), 2);
    t_eq(prior_width(100, 0.11), 12);
    t_eq(prior_width(10, 0.5), 6);
}

/* Without a prediction D_ch = D_st, so CE = log o: 0.0247 and S_CE = 0.5034 at the thesis'
 * values. */
T(initial_surprise_has_the_published_values)
{
    struct surprise_scalars x = {
        .beta_ce = -0.3, .beta_cu = -0.6, .log_o_ce = log(1.025), .log_m_cu = log(1.1), .scale = 1};
    struct surprise s = surprise_of(&x, 0.3, 0.3, 0.3);
    t_near(x.log_o_ce, 0.0247, 5e-5);
    t_near(s.s_ce, 0.5034, 5e-5);
    t_near(s.s_cu, 1 / (1 + exp(log1p(exp(-0.6)) * 0.03)), 1e-12);
    t_near(s.g, 1 - (1 - s.s_ce) * (1 - s.s_cu), 1e-12);
    struct model *m = small("dtf.prior_std=1e-6", 0);
    forward(m, PASS_TRAIN, 0);
    for (int l = 1; l < L; l += 2) {
        t_near(of_layer(m, "s_ce", l), 0.5034, 1e-4);
        t_near(of_layer(m, "beta_ce", l), -0.3, 1e-6);
        t_near(of_layer(m, "beta_cu", l), -0.6, 1e-6);
        t_near(of_layer(m, "o_ce", l), 1.025, 1e-6);
        t_near(of_layer(m, "m_cu", l), 1.1, 1e-6);
        t_true(isnan(of_layer(m, "g", l - 1)));
    }
    model_free(m);
}

T(the_gate_of_an_executed_row_is_never_zero)
{
    struct surprise_scalars x = {.beta_ce = 50, .beta_cu = 50, .scale = 1};
    struct surprise s = surprise_of(&x, 0, 1e6, 1e6);
    t_true(s.g > 0 && s.g < 1e-6);
    s = surprise_of(&x, 1e6, 0, 0);
    t_near(s.g, 1, 0);
}

/* ---- the moving average ---------------------------------------------------------------------- */

T(averages_cover_the_last_rows_of_the_document)
{
    static const double v[] = {5, 1, 2, 3, 4};
    t_near(surprise_average(v, 1, 1, 3, 0), 1, 0);
    t_near(surprise_average(v, 1, 2, 3, 0), 1.5, 0);
    t_near(surprise_average(v, 1, 4, 3, 0), 3, 0);
    t_near(surprise_average(v, 1, 2, 3, 1), 4 / 3.0, 1e-15);
    t_near(surprise_average(v, 1, 4, 3, 1), 3, 0);
    t_near(surprise_average(v, 0, 4, 1, 1), 4, 0);
}

/* Recomputes D, the criteria and G from the recorded cells. */
T(recorded_cells_match_the_states)
{
    struct model *m = small("dtf.ma_window=5", 3);
    kit_documents(&batch);
    forward(m, PASS_MASKED, 1);
    for (int l = 1; l < L; l += 2) {
        double log_o = log(of_layer(m, "o_ce", l)), m_cu = of_layer(m, "m_cu", l);
        double b_ce = log1p(exp(of_layer(m, "beta_ce", l)));
        double b_cu = log1p(exp(of_layer(m, "beta_cu", l)));
        const real *st = of_cells(m, "d_st", l), *ch = of_cells(m, "d_ch", l);
        for (int i = 0; i < B * T; i++) {
            double d = 0, ma = 0;
            int n = 0;
            for (int c = 0; c < 16; c++) {
                double x =
                    (double)m->stream.h[l][i * 16 + c] - (double)m->stream.h[l - 1][i * 16 + c];
                d += x * x / 16;
            }
            for (int j = i; j >= m->first_row[i] && n < 5; j--, n++)
                ma += (double)st[j];
            double s_ce = 1 / (1 + exp(-b_ce * (d - (double)ch[i] + log_o)));
            double s_cu = 1 / (1 + exp(-b_cu * (d - m_cu * ma / n)));
            t_near(st[i], d, 1e-6 * d);
            t_near(of_cells(m, "s_ce", l)[i], s_ce, 1e-6);
            t_near(of_cells(m, "s_cu", l)[i], s_cu, 1e-6);
            t_near(of_cells(m, "gate", l)[i], s_ce + s_cu - s_ce * s_cu, 1e-6);
        }
    }
    model_free(m);
}

/* ---- who runs -------------------------------------------------------------------------------- */

T(training_runs_the_capacity_of_each_document)
{
    struct model *m = small("dtf.capacity=0.25", 0);
    forward(m, PASS_TRAIN, 1);
    for (int l = 0; l < L; l++) {
        t_eq(m->plan[l].n, l % 2 ? B * T / 4 : B * T);
        t_true(m->plan[l].kv == KV_PLAN);
        for (int k = 0; l % 2 && k < m->plan[l].n; k++) {
            int i = m->plan[l].row[k];
            t_near(of_cells(m, "topk", l)[i], 1, 0);
            t_near(m->plan[l].gate[k], of_cells(m, "gate", l)[i], 0);
        }
        t_true(l % 2 == 0 || fabs(of_layer(m, "selected", l) - 0.25) < 1e-12);
    }
    model_free(m);
}

T(inference_compares_with_a_stored_quantile)
{
    struct model *m = small("", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    struct err e = {0};
    forward(m, PASS_TRAIN, 0);
    m->route.ops->update(&m->route);
    for (int c = 0; c <= 4; c++) {
        pass.inference.has_capacity = pass.record = 1;
        pass.inference.capacity = c / 4.0;
        t_ok(route_ready(&m->route, &pass, &e), &e);
        model_forward(m, &batch.b, &pass);
        t_eq(m->plan[1].n, B * T * c / 4);
        for (int l = 1; l < L; l += 2) {
            int above = 0;
            for (int i = 0; i < B * T; i++)
                above += of_cells(m, "score", l)[i] > of_cells(m, "threshold", l)[i];
            t_eq(m->plan[l].n, above);
            t_truef(fabs(m->plan[l].n / (double)(B * T) - pass.inference.capacity) < 0.15,
                    "layer %d at %g: %d", l, pass.inference.capacity, m->plan[l].n);
        }
    }
    model_free(m);
}

T(before_any_training_surprise_is_compared_with_its_neutral_value)
{
    struct err e = {0};
    struct model *m = small("", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    t_ok(route_ready(&m->route, &pass, &e), &e);
    forward(m, PASS_SPARSE, 0);
    t_near(of_layer(m, "threshold", 1), 0.75, 0);
    pass.inference.has_capacity = 1;
    pass.inference.capacity = 0.3;
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "depthscope calibrate");
    pass.inference.capacity = 1;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    model_free(m);
    m = small("dtf.score=d_st", 0);
    pass.inference.has_capacity = 0;
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "thresholds of dtf");
    pass.inference.topk = 1;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    model_free(m);
}

T(a_calibration_stores_thresholds_for_any_capacity)
{
    struct err e = {0};
    struct model *m = small("", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    m->route.ops->calibrate(&m->route, 1, NULL);
    pass.inference.has_capacity = 1;
    for (int i = 0; i < ROUTE_GRID; i++) {
        pass.inference.calibrate = i + 1;
        pass.inference.capacity = i / (ROUTE_GRID - 1.0);
        t_ok(route_ready(&m->route, &pass, &e), &e);
        model_forward(m, &batch.b, &pass);
    }
    m->route.ops->calibrate(&m->route, 0, NULL);
    pass.inference.calibrate = 0;
    pass.inference.capacity = 0.25;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    model_forward(m, &batch.b, &pass);
    for (int l = 1; l < L; l += 2)
        t_eq(m->plan[l].n, B * T / 4);
    model_free(m);
}

T(a_fixed_threshold_is_the_same_in_training_and_inference)
{
    struct model *m = small("dtf.threshold=fixed dtf.g_threshold=0.749", 0);
    forward(m, PASS_TRAIN, 1);
    for (int l = 1; l < L; l += 2)
        for (int i = 0, k = 0; i < B * T; i++) {
            int runs = k < m->plan[l].n && m->plan[l].row[k] == i;
            k += runs;
            t_eq(runs, of_cells(m, "score", l)[i] > REAL_C(0.749));
        }
    model_free(m);
}

T(controls_rank_at_random_or_by_update_size_and_may_switch_the_gate_off)
{
    struct model *m = small("dtf.score=random dtf.capacity=0.5", 3);
    forward(m, PASS_SPARSE, 1);
    int n = m->plan[1].n + m->plan[3].n + m->plan[5].n;
    t_true(n > 3 * B * T / 4 && n < 3 * B * T * 3 / 4);
    t_near(of_layer(m, "threshold", 1), 0.5, 0);
    t_true(m->plan[1].n == 0 || m->plan[1].gate[0] < 1);
    model_free(m);
    m = small("dtf.score=d_st dtf.gate=one", 3);
    forward(m, PASS_TRAIN, 1);
    for (int k = 0; k < m->plan[1].n; k++)
        t_near(m->plan[1].gate[k], 1, 0);
    t_near(of_cells(m, "score", 1)[4], of_cells(m, "d_st", 1)[4], 0);
    model_free(m);
    m = small("dtf.capacity=1", 0);
    forward(m, PASS_SPARSE, 0);
    t_eq(m->plan[1].n, B * T);
    model_free(m);
}

T(forced_cells_are_obeyed_and_keep_their_gate)
{
    static int8_t force[L * B * T];
    struct model *m = small("", 3);
    struct pass pass = kit_pass(PASS_MASKED);
    pass.record = 1;
    for (int i = 0; i < L * B * T; i++)
        force[i] = (int8_t)(i % 3 - 1);
    pass.inference.force = force;
    model_forward(m, &batch.b, &pass);
    for (int l = 1; l < L; l += 2)
        for (int i = 0; i < B * T; i++) {
            int want = force[l * B * T + i];
            real gate = m->plan[l].gate[i];
            t_true(want < 0 || gate == (want ? of_cells(m, "gate", l)[i] : 0));
            t_near(m->plan[l].weight[i], want < 0 ? 1 : 0, 0);
        }
    model_free(m);
}

/* ---- schedules ------------------------------------------------------------------------------- */

T(scheduled_betas_go_from_start_to_end)
{
    struct model *m =
        small("dtf.beta_schedule=cosine dtf.beta_warmup_steps=2 dtf.beta_ce_start=0.5 "
              "dtf.beta_ce_end=4 dtf.beta_cu_start=1 dtf.beta_cu_end=3",
              0);
    int ce = params_find(&m->params, "dtf.beta_ce"), cu = params_find(&m->params, "dtf.beta_cu");
    t_true(!m->params.p[ce].train && !m->params.p[cu].train);
    double last = 0;
    for (int step = 1; step <= 10; step++) {
        double now = (double)m->params.p[ce].value[0];
        t_true(step > 3 ? now > last : now == 0.5);
        last = now;
        kit_train(m, &batch.b, step, 10, 1e-3);
    }
    t_near(m->params.p[ce].value[1], 4, 1e-6);
    t_near(m->params.p[cu].value[1], 3, 1e-6);
    model_free(m);
}

T(the_prior_weight_falls_linearly)
{
    struct model *m =
        small("dtf.prior_weight=0.4 dtf.prior_weight_final=0 dtf.prior_decay_steps=4", 0);
    static const double want[] = {0.4, 0.3, 0.2, 0.1, 0, 0};
    for (int step = 1; step <= 6; step++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.step = step;
        kit_step(m, &batch.b, &pass);
        t_near(m->route.metric[metric(m, "prior_weight", METRIC_STEP)][0], want[step - 1], 1e-12);
        double loss = m->route.metric[metric(m, "prior_loss", METRIC_STEP)][0];
        t_true(loss > 0);
        t_near(m->aux_loss, want[step - 1] * loss, 1e-12);
    }
    model_free(m);
}

/* Frozen blocks: the error of predicting no change stays the same. */
T(a_prior_network_learns_to_predict_a_block)
{
    struct model *m = small("dtf.prior_factor=1 dtf.prior_weight=1 dtf.prior_lr=1", 0);
    double first = 0, now = 0;
    for (int i = 0; i < m->params.n; i++)
        if (!strstr(m->params.p[i].name, "dtf.prior"))
            m->params.p[i].lr = 0;
    for (int step = 1; step <= 60; step++) {
        kit_train(m, &batch.b, step, 60, 1e-3);
        now = m->route.metric[metric(m, "prior_loss", METRIC_STEP)][0];
        first = step == 1 ? now : first;
    }
    t_truef(now < 0.5 * first, "%g, %g at first", now, first);
    model_free(m);
}

/* ---- hard cases ------------------------------------------------------------------------------ */

T(nan_states_are_counted_and_rank_last)
{
    struct model *m = small("", 3);
    struct pass pass = kit_pass(PASS_TRAIN);
    pass.record = 1;
    m->params.p[m->embed].value[batch.id[0] * 16] = (real)NAN;
    params_changed(&m->params);
    model_forward(m, &batch.b, &pass);
    double nan = m->route.metric[metric(m, "nan_scores", METRIC_STEP)][0];
    t_true(nan >= 3);
    for (int k = 0; k < m->plan[1].n; k++) {
        int i = m->plan[1].row[k], left = 0;
        for (int j = 0; isnan(of_cells(m, "score", 1)[i]) && j < T; j++)
            left += !isnan(of_cells(m, "score", 1)[i / T * T + j]);
        t_truef(!isnan(of_cells(m, "score", 1)[i]) || left <= T / 2, "row %d", i);
    }
    pass = kit_pass(PASS_SPARSE);
    model_forward(m, &batch.b, &pass);
    model_free(m);
}

T(capacity_zero_leaves_the_decision_layers)
{
    struct model *m = small("dtf.capacity=0", 3);
    for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
        forward(m, (enum pass_kind)kind, 0);
        for (int l = 0; l < L; l++)
            t_eq(m->plan[l].active, l % 2 ? 0 : B * T);
    }
    model_free(m);
}

/* An odd layer count ends on a decision layer. */
T(a_last_layer_without_a_partner_runs_every_token)
{
    struct model *m = small("model.layers=5", 2);
    forward(m, PASS_SPARSE, 0);
    t_eq(m->plan[4].n, B * T);
    t_true(params_find(&m->params, "dtf.prior.2.up.weight") >= 0);
    t_true(params_find(&m->params, "dtf.prior.4.up.weight") < 0);
    model_free(m);
}

/* A whole pass against cached chunks: longer than the window, and one token at a time. */
T(a_cached_sequence_keeps_its_past)
{
    static const char *const options[] = {
        "dtf.ma_window=4", "dtf.ma_window=1 dtf.prior=transition",
        "dtf.ma_window=7 dtf.pad=replicate dtf.prior=transition dtf.kv=all",
        "dtf.ma_window=100 dtf.normalize=true", "dtf.score=random"};
    for (size_t k = 0; k < DS_LEN(options); k++) {
        struct err e = {0};
        struct kv_cache *cache = NULL;
        struct model *m = small(options[k], 4);
        struct batch one = {.B = 1, .T = T, .id = batch.id};
        struct pass pass = kit_pass(PASS_SPARSE);
        real whole[V], got[V];
        model_forward(m, &one, &pass);
        model_logits(m, T - 1, whole);
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        for (int by = 1; by <= 7; by += 3) {
            kv_cache_reset(cache);
            for (int at = 0; at < T; at += by)
                t_ok(model_decode(m, cache, batch.id + at, T - at < by ? T - at : by, &pass, &e),
                     &e);
            model_logits(m, m->R - 1, got);
            for (int v = 0; v < V; v++)
                t_near(got[v], whole[v], 1e-5);
        }
        kv_cache_free(cache);
        model_free(m);
    }
}

T(invalid_option_combinations_are_refused_in_one_line)
{
    static const struct {
        const char *options, *says;
    } bad[] = {
        {"model.layers=1 model.method=dtf", "model.layers=1"},
        {"model.layers=4 model.method=dtf dtf.threshold=fixed dtf.score=random",
         "dtf.score=random:"},
        {"model.layers=4 model.method=dtf dtf.threshold=fixed dtf.score=d_st", "dtf.score=d_st:"},
    };
    for (size_t k = 0; k < DS_LEN(bad); k++) {
        struct err e = {0};
        struct model *m = NULL;
        int rc = kit_try(&m, bad[k].options, 1, 0, &e);
        t_true(rc < 0 && strstr(e.text, bad[k].says) && !strchr(e.text, '\n'));
        model_free(m);
    }
}

T(published_keys_are_accepted)
{
    struct err e = {0};
    struct model *m = NULL;
    t_ok(kit_try(&m,
                 "model.layers=4 model.method=dtf dtf_capacity=0.125 beta_ce_init=-0.5 "
                 "beta_cu_init=-0.8 o_ce_init=1.0 m_cu_init=1.2 ma_window=50 "
                 "prior_ffn_intermediate_size_factor=0.25 prior_loss_weight=0.1 learn_o_ce=false "
                 "beta_schedule.type=linear beta_schedule.beta_ce_end=100 "
                 "beta_schedule.warmup_steps=100",
                 1, 0, &e),
         &e);
    t_true(!m->params.p[params_find(&m->params, "dtf.log_o_ce")].train);
    model_free(m);
}

/* Live settings. */
T(capacity_and_offset_can_be_set_during_a_run)
{
    struct err e = {0};
    struct model *m = small("", 3);
    t_ok(kit_set(m, "capacity", 0.25, &e), &e);
    forward(m, PASS_TRAIN, 0);
    t_eq(m->plan[1].n, B * T / 4);
    t_fails(kit_set(m, "capacity", 2, &e), &e, DS_ERANGE, "must be 0 to 1");
    t_ok(kit_set(m, "threshold_offset", 20, &e), &e);
    forward(m, PASS_SPARSE, 0);
    t_eq(m->plan[1].n, 0);
    model_free(m);
}

T(an_offset_in_standard_deviations_moves_the_share_of_the_random_control)
{
    struct err e = {0};
    struct model *m = small("dtf.score=random dtf.capacity=0.5", 3);
    double share[3];
    for (int i = 0; i < 3; i++) {
        t_ok(kit_set(m, "threshold_offset", i - 1, &e), &e);
        forward(m, PASS_SPARSE, 0);
        share[i] = (double)m->plan[1].n / (B * T);
        t_near(share[i], 0.5 + (1 - i) / sqrt(12), 0.2); /* uniform scores */
    }
    t_true(share[0] > share[1] && share[1] > share[2]);
    model_free(m);
}
