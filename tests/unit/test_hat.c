/* hat's rules: selection, exits, training phases, capacities and costs. */
#include "base/mem.h"
#include "kit.h"
#include "routing/exits.h"
#include "routing/flops.h"

enum { B = 2, T = 32, V = 53, L = 8, R = B * T, C = 32 };

static struct kit_batch batch;

static struct model *fresh(const char *more, int train)
{
    char text[600];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=%d model.heads=2 model.vocab=%d model.init_std=0.1 "
             "model.method=hat hat.router_gain=1 hat.exit_std=0.2 %s",
             L, C, V, more);
    kit_fill(&batch, B, T, V, 7);
    return kit_model(text, 3, R, train, 0);
}

static void train(struct model *m, int from, int to, int steps)
{
    for (int step = from; step <= to; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step);
        kit_train(m, &batch.b, step, steps, 1e-3);
    }
    kit_fill(&batch, B, T, V, 7);
}

static struct model *trained(const char *more)
{
    struct model *m = fresh(more, 1);
    train(m, 1, 4, 4);
    return m;
}

static struct param *param(struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s", name);
    return &m->params.p[i];
}

static void run(struct model *m, struct pass pass)
{
    model_forward(m, &batch.b, &pass);
}

/* ---- capacity -------------------------------------------------------------------------------- */

T(every_document_runs_its_share_of_ffns_in_training)
{
    struct model *m = fresh("hat.phase=full hat.exits=off hat.layer_dropout=0 hat.capacity=0.4 "
                            "hat.capacity_start=0.4",
                            1);
    kit_documents(&batch);
    struct pass pass = kit_pass(PASS_TRAIN);
    for (int step = 1; step < 4; step++) {
        pass.step = step;
        run(m, pass);
        for (int l = 0; l < L; l++)
            for (int i = 0; i < R;) {
                int end = i + 1, runs = 0;
                while (end < R && end % T != 0 && m->pos[end] != 0)
                    end++;
                for (int j = i; j < end; j++)
                    runs += m->ffn[l].gate[j] != 0;
                int want = (int)floor(0.4 * (end - i) + 0.5);
                t_eq(runs, want < 1 ? 1 : want);
                i = end;
            }
    }
    model_free(m);
}

T(the_whole_batch_can_be_ranked_together)
{
    struct model *m =
        fresh("hat.exits=off hat.layer_dropout=0 hat.select=batch hat.capacity=0.3", 1);
    struct pass pass = kit_pass(PASS_TRAIN);
    int uneven = 0;
    run(m, pass);
    for (int l = 0; l < L; l++) {
        int runs = 0, first = 0;
        for (int i = 0; i < R; i++) {
            runs += m->ffn[l].gate[i] != 0;
            first += i < T && m->ffn[l].gate[i] != 0;
        }
        t_eq(runs, 19); /* 0.3 * 64 = 19.2 */
        uneven += first != runs - first;
    }
    t_true(uneven > 0);
    model_free(m);
}

/* Only remaining tokens compete, for a share of their number; NaN ranks last, ties go to the
 * earlier row. */
T(exited_tokens_are_not_ranked)
{
    static const real score[10] = {3, 9, NAN, 1, 9, 2, 2, 2, 8, 7};
    static const uint8_t here[10] = {1, 0, 1, 1, 0, 1, 1, 1, 0, 0};
    static const int32_t pos[10] = {0, 1, 2, 3, 4, 0, 1, 2, 3, 4};
    int8_t force[10];
    uint8_t want[10];
    struct route r = {.L = 1, .pass = {.B = 1, .T = 10, .R = 10, .pos = pos}};
    t_eq(rank_active(&r, 0, score, here, 0.5, 0, 1, want), 1);
    t_true(memcmp(want, (uint8_t[]){1, 0, 0, 1, 0, 1, 1, 0, 0, 0}, 10) ==
           0); /* 1.5 is rounded up */
    rank_active(&r, 0, score, here, 0.5, 1, 1, want);
    t_true(memcmp(want, (uint8_t[]){1, 0, 0, 0, 0, 1, 1, 0, 0, 0}, 10) == 0);
    rank_active(&r, 0, score, here, 1, 1, 1, want);
    t_true(memcmp(want, here, 10) == 0);
    rank_active(&r, 0, score, here, 0, 1, 1, want);
    t_true(memcmp(want, (uint8_t[10]){0}, 10) == 0);
    rank_active(&r, 0, score, here, 0.01, 0, 1, want); /* at least one */
    t_true(memcmp(want, (uint8_t[]){1, 0, 0, 0, 0, 1, 0, 0, 0, 0}, 10) == 0);
    t_eq(rank_active(&r, 0, score, (uint8_t[10]){0}, 0.5, 0, 1, want), 0);
    t_true(memcmp(want, (uint8_t[10]){0}, 10) == 0);
    memset(force, -1, sizeof force);
    force[0] = 0;
    force[1] = 1;
    force[3] = 1;
    r.pass.inference.force = force; /* a forced row that has exited takes no place */
    rank_active(&r, 0, score, here, 0.5, 0, 1, want);
    t_true(memcmp(want, (uint8_t[]){0, 1, 1, 1, 0, 1, 1, 0, 0, 0}, 10) == 0);
}

T(capacity_one_without_exits_is_the_base_bit_for_bit_and_capacity_zero_has_no_ffn)
{
    struct model *m = trained("hat.exits=off");
    run(m, kit_pass(PASS_DENSE));
    real *base = kit_copy(m->stream.h[L], kit_states(m));
    for (int kind = PASS_MASKED; kind <= PASS_SPARSE; kind++)
        for (int topk = 0; topk < 2; topk++) {
            struct pass pass = kit_pass((enum pass_kind)kind);
            pass.inference.has_capacity = 1;
            pass.inference.capacity = 1;
            pass.inference.topk = topk;
            run(m, pass);
            t_true(kit_same(base, m->stream.h[L], kit_states(m)));
            pass.inference.capacity = 0;
            run(m, pass);
            t_eq(m->flops.rows_run, 0);
            t_true(!kit_same(base, m->stream.h[L], kit_states(m)));
        }
    free(base);
    model_free(m);
}

static void calibrate(struct model *m)
{
    struct err e = {0};
    struct pass pass = kit_pass(PASS_SPARSE);
    pass.inference.has_capacity = 1;
    m->route.ops->calibrate(&m->route, 1, NULL);
    for (int i = 0; i < ROUTE_GRID; i++)
        for (int b = 0; b < 4; b++) {
            kit_fill(&batch, B, T, V, (uint64_t)(20 + b));
            pass.inference.calibrate = i + 1;
            pass.inference.capacity = (double)i / (ROUTE_GRID - 1);
            t_ok(route_ready(&m->route, &pass, &e), &e);
            run(m, pass);
        }
    m->route.ops->calibrate(&m->route, 0, NULL);
}

T(any_capacity_can_be_requested_after_calibration)
{
    struct err e = {0};
    struct model *m = fresh("hat.exits=off", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    pass.inference.has_capacity = 1;
    pass.inference.capacity = 0.5;
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "depthscope calibrate MODEL");
    pass.inference.capacity = 1;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    pass.inference.capacity = 1.01;
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_ERANGE, "1.01");
    calibrate(m);
    double last = -1;
    for (int i = 0; i <= 13; i++) {
        double got = 0;
        pass.inference.capacity = i / 13.0;
        t_ok(route_ready(&m->route, &pass, &e), &e);
        for (int b = 0; b < 4; b++) {
            kit_fill(&batch, B, T, V, (uint64_t)(40 + b));
            run(m, pass);
            got += flops_block_ratio(&m->flops) / 4;
        }
        t_truef(fabs(got - pass.inference.capacity) < 0.1, "capacity %g gave %g",
                pass.inference.capacity, got);
        t_true(got > last);
        last = got;
    }
    model_free(m);
}

T(training_stores_thresholds_that_meet_the_capacity)
{
    struct err e = {0};
    struct model *m = fresh("hat.exits=off hat.layer_dropout=0 hat.phase=routers", 1);
    struct pass pass = kit_pass(PASS_SPARSE);
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "calibrate");
    train(m, 1, 20, 20);
    t_ok(route_ready(&m->route, &pass, &e), &e);
    double got = 0, excess = 0;
    for (int l = 0; l < L; l++)
        excess += kit_metric(m, "compliance", l) / L;
    t_near(excess, 0, 0.15);
    for (int b = 0; b < 8; b++) {
        kit_fill(&batch, B, T, V, (uint64_t)(60 + b));
        run(m, pass);
        got += flops_block_ratio(&m->flops) / 8;
    }
    t_near(got, 0.55, 0.08);
    model_free(m);
}

T(an_offset_means_less_compute)
{
    struct model *m =
        trained("hat.phase=full hat.exits=on hat.exit_bias=0 hat.exit_threshold=zero");
    double last = 2;
    for (int k = 0; k < 5; k++) {
        static const double offset[5] = {-INFINITY, -0.05, 0, 0.05, INFINITY};
        struct pass pass = kit_pass(PASS_SPARSE);
        pass.inference.offset = offset[k];
        run(m, pass);
        double now = flops_model_ratio(&m->flops);
        t_truef(now < last, "offset %g", offset[k]);
        last = now;
    }
    model_free(m);
}

T(topk_at_inference_is_training_without_noise)
{
    struct model *m = trained("hat.exits=off hat.noise=0 hat.layer_dropout=0");
    struct pass use = kit_pass(PASS_MASKED), learn = kit_pass(PASS_TRAIN);
    use.inference.topk = 1;
    run(m, use);
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    run(m, learn);
    t_true(kit_same(want, m->stream.h[L], kit_states(m)));
    use.inference.topk = 0;
    use.record = 1;
    run(m, use);
    t_true(!kit_same(want, m->stream.h[L], kit_states(m)));
    const real *top = kit_cells(m, "topk"), *score = kit_cells(m, "score"),
               *cut = kit_cells(m, "threshold");
    int agree = 0, chosen = 0;
    for (int i = 0; i < L * R; i++) {
        t_true(m->ffn[i / R].gate[i % R] == (score[i] > cut[i]));
        agree += (top[i] != 0) == (score[i] > cut[i]);
        chosen += top[i] != 0;
    }
    t_true(agree > L * R * 7 / 10 && chosen == L * B * 18); /* round(0.55 * 32) */
    free(want);
    model_free(m);
}

/* ---- training -------------------------------------------------------------------------------- */

T(schedules_match_the_published_ones)
{
    static const double at[] = {0.1, 0.3, 0.65, 1}, capacity[] = {0.9, 0.9, 0.725, 0.55};
    struct model *m = fresh("hat.phase=routers", 1);
    for (int k = 0; k < 4; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.progress = at[k];
        run(m, pass);
        t_near(kit_metric(m, "capacity", 0), capacity[k], 1e-12);
        t_near(kit_metric(m, "router_temperature", 0),
               0.1 + 0.45 * (1 + cos(3.141592653589793 * at[k])), 1e-12);
        t_eq(kit_metric(m, "phase", 0), 1);
    }
    model_free(m);
}

T(two_phases_follow_each_other_and_the_second_has_the_final_schedule_values)
{
    struct model *m = fresh("hat.phase=both hat.phase_split=0.5 hat.exit_layers=2,5", 1);
    struct param *router = param(m, "hat.router.weight"), *gate = param(m, "hat.exit.2.0.weight");
    real *r0 = kit_copy(router->value, router->n), *g0 = kit_copy(gate->value, gate->n);
    train(m, 1, 4, 8);
    t_eq(kit_metric(m, "phase", 0), 1);
    t_near(kit_metric(m, "capacity", 0), 0.55, 1e-12);
    t_true(!kit_same(r0, router->value, router->n) && kit_same(g0, gate->value, gate->n));
    t_true(param(m, "hat.exit.trained")->value[0] == 0);
    run(m, kit_pass(PASS_SPARSE)); /* untrained gates let no token exit */
    t_eq(m->plan[L - 1].n, R);
    real *r1 = kit_copy(router->value, router->n);
    train(m, 5, 8, 8);
    t_eq(kit_metric(m, "phase", 0), 2);
    t_near(kit_metric(m, "capacity", 0), 0.55, 1e-12);
    t_near(kit_metric(m, "router_temperature", 0), 0.1, 1e-12);
    t_true(kit_same(r1, router->value, router->n) && !kit_same(g0, gate->value, gate->n));
    t_eq(param(m, "hat.exit.trained")->value[0], 4);
    free(r0);
    free(r1);
    free(g0);
    model_free(m);
}

static int differs(const char *options, int64_t other_step)
{
    struct model *m = fresh(options, 1);
    struct pass pass = kit_pass(PASS_TRAIN);
    run(m, pass);
    real *one = kit_copy(m->stream.h[L], kit_states(m));
    pass.step = other_step;
    run(m, pass);
    int is_other = !kit_same(one, m->stream.h[L], kit_states(m));
    free(one);
    model_free(m);
    return is_other;
}

T(noise_affects_routers_and_gates_and_without_it_steps_are_equal)
{
    t_true(!differs("hat.phase=full hat.noise=0 hat.exit_noise=0 hat.layer_dropout=0", 2));
    t_true(differs("hat.phase=full hat.noise=1 hat.exit_noise=0 hat.layer_dropout=0", 2));
    t_true(differs("hat.phase=full hat.noise=0 hat.exit_noise=1 hat.layer_dropout=0", 2));
    t_true(!differs("hat.phase=full hat.noise=1 hat.exit_noise=1 hat.layer_dropout=0", 1));
}

/* A token exits with probability sigmoid(z / T_fwd): when z is low, more often at higher T. */
static double rate_at(const char *options)
{
    char text[300];
    snprintf(text, sizeof text, "hat.phase=full hat.exit_layers=3 hat.layer_dropout=0 %s", options);
    struct model *m = fresh(text, 1);
    const struct exits *x = m->route.state;
    double want = 0, got = 0, T_fwd = exp(param(m, "hat.exit.log_temperature_forward")->value[0]);
    for (int step = 1; step <= 60; step++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.step = step;
        run(m, pass);
        got += kit_metric(m, "exit_rate_mean", 0) / 60;
        t_near(kit_metric(m, "exit_rate", 3), kit_metric(m, "exit_rate_mean", 0), 1e-6);
        for (int i = 0; i < R; i++)
            want += 1 / (1 + exp(-(double)x->z[i] / T_fwd)) / (60.0 * R);
    }
    t_near(got, want, 0.03);
    model_free(m);
    return got;
}

T(the_forward_temperature_has_an_effect)
{
    double cold = rate_at("hat.exit_bias=-1 hat.exit_temperature_forward=0.3"),
           warm = rate_at("hat.exit_bias=-1 hat.exit_temperature_forward=1.5");
    t_truef(cold < 0.1 && warm > 0.25, "%g %g", cold, warm);
}

T(deeper_layers_are_dropped_more_often)
{
    struct model *m = fresh("hat.phase=routers hat.layer_dropout=0.5", 1);
    int dropped[L] = {0};
    for (int step = 1; step <= 200; step++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.step = step;
        run(m, pass);
        for (int l = 0; l < L; l++) {
            t_eq(m->plan[l].n == 0, m->ffn[l].n == 0);
            if (m->plan[l].n == 0) {
                t_true(kit_same(m->stream.h[l], m->stream.h[l + 1], kit_states(m)));
                t_near(kit_metric(m, "ffn_share", l), 0, 0);
                t_near(kit_metric(m, "exit_rate", l), 0, 0);
                t_true(isnan(kit_metric(m, "router_entropy", l))); /* nothing was scored */
            }
            dropped[l] += m->plan[l].n == 0;
        }
    }
    for (int l = 0; l < L; l++)
        t_near(dropped[l] / 200.0, 0.5 * l / (L - 1), 0.1);
    t_eq(dropped[0], 0);
    run(m, kit_pass(PASS_SPARSE));
    for (int l = 0; l < L; l++)
        t_eq(m->plan[l].n, R); /* never at inference */
    model_free(m);
}

T(an_exit_rate_is_reached_and_kept_at_inference)
{
    struct model *m =
        fresh("hat.phase=full hat.exit_loss=5 hat.exit_target=0.4 hat.layer_dropout=0 "
              "hat.exit_layers=2,5",
              1);
    double used = 0;
    for (int step = 1; step <= 120; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step % 6);
        kit_train(m, &batch.b, step, 120, 3e-3);
    }
    t_near(kit_metric(m, "exit_rate_mean", 0), 0.4, 0.12);
    for (int b = 0; b < 6; b++) {
        kit_fill(&batch, B, T, V, (uint64_t)b);
        run(m, kit_pass(PASS_SPARSE));
        used += (1 - (double)m->plan[L - 1].n / R) / 6;
    }
    const real *rate = param(m, "hat.exit.rate")->value;
    t_near(used, 1 - (1 - (double)rate[2]) * (1 - (double)rate[5]), 0.1);
    model_free(m);
}

T(a_calibration_replaces_the_thresholds_of_every_exit_gate)
{
    struct model *m = trained("hat.phase=full hat.exit_bias=0 hat.exit_layers=2,4,6 "
                              "hat.layer_dropout=0");
    struct param *exits = param(m, "hat.exit.quantiles"), *ffns = param(m, "hat.quantiles");
    calibrate(m);
    real *want[2] = {kit_copy(exits->value, exits->n), kit_copy(ffns->value, ffns->n)};
    for (size_t i = 0; i < exits->n; i++) /* every token would exit at the first gate */
        exits->value[i] -= 100;
    calibrate(m);
    for (size_t at = 2 * ROUTE_GRID; at <= 6 * ROUTE_GRID; at += 2 * ROUTE_GRID)
        t_true(kit_same(exits->value + at, want[0] + at, ROUTE_GRID));
    t_true(kit_same(ffns->value, want[1], ffns->n));
    free(want[0]);
    free(want[1]);
    model_free(m);
}

/* The scores of all rows move by more than they differ, faster than the stored thresholds. */
T(a_step_is_noted_by_every_exit_gate)
{
    struct model *m = trained("hat.phase=full hat.exit_bias=0 hat.exit_layers=2,4,6 "
                              "hat.layer_dropout=0");
    struct param *weight = param(m, "hat.exit.quantiles_weight");
    struct exits *x = m->route.state;
    double before[3];
    for (int g = 0; g < 3; g++)
        before[g] = (double)weight->value[2 * g + 2];
    x->bias = 50;
    train(m, 5, 5, 5);
    for (int g = 0; g < 3; g++)
        t_true((double)weight->value[2 * g + 2] > before[g]);
    model_free(m);
}

T(recomputed_equals_kept_and_only_selected_rows_are_computed)
{
    static const char *const options[] = {"hat.train=masked", "hat.train=selected",
                                          "hat.train=selected hat.exited=attention_only"};
    for (int k = 0; k < 3; k++) {
        real *grad[2];
        size_t n = 0;
        for (int keep = 0; keep < 2; keep++) {
            char text[400];
            snprintf(text, sizeof text,
                     "model.layers=%d model.dim=%d model.heads=2 model.vocab=%d model.init_std=0.1 "
                     "model.method=hat hat.phase=full hat.exit_bias=0 %s",
                     L, C, V, options[k]);
            struct model *m = kit_model(text, 3, R, 1, keep);
            struct pass pass = kit_pass(PASS_TRAIN);
            kit_fill(&batch, B, T, V, 7);
            kit_step(m, &batch.b, &pass);
            for (int l = 0; l < L && k > 0; l++)
                t_true(m->ffn[l].n == m->ffn[l].active && m->plan[l].n == m->plan[l].active);
            grad[keep] = kit_gradients(m, &n);
            model_free(m);
        }
        t_truef(kit_same(grad[0], grad[1], n), "%s", options[k]);
        free(grad[0]);
        free(grad[1]);
    }
}

/* ---- leaving --------------------------------------------------------------------------------- */

static const char *const leaving =
    "hat.phase=full hat.exits=on hat.exit_bias=0 hat.exit_threshold=zero hat.exit_layers=2,5 ";

T(an_exited_token_keeps_its_state_and_others_still_attend_to_it)
{
    struct model *m = trained(leaving);
    struct pass pass = kit_pass(PASS_SPARSE);
    int gone = 0;
    pass.record = 1;
    run(m, pass);
    const real *exited = kit_cells(m, "exited");
    for (int l = 0; l < L; l++) {
        t_eq(m->plan[l].kv, KV_ALL);
        for (int i = 0, k = 0; i < R; i++) {
            int attends = k < m->plan[l].n && m->plan[l].row[k] == i;
            k += attends;
            t_eq(attends, exited[l * R + i] == 0);
            if (attends)
                continue;
            gone++;
            t_true(kit_same(m->stream.h[l] + i * C, m->stream.h[L] + i * C, C));
        }
    }
    t_true(gone > 10 && gone < 5 * R);
    model_free(m);
}

T(attention_can_continue_without_ffns)
{
    char text[300];
    snprintf(text, sizeof text, "%s hat.exited=attention_only", leaving);
    struct model *m = trained(text);
    struct pass pass = kit_pass(PASS_SPARSE);
    int gone = 0;
    pass.record = 1;
    run(m, pass);
    const real *exited = kit_cells(m, "exited");
    for (int l = 0; l < L; l++) {
        t_eq(m->plan[l].n, R);
        for (int k = 0; k < m->ffn[l].n; k++)
            t_true(exited[l * R + m->ffn[l].row[k]] == 0);
        for (int i = 0; i < R; i++) {
            if (exited[l * R + i] == 0)
                continue;
            gone++;
            t_true(!kit_same(m->stream.h[l] + i * C, m->stream.h[l + 1] + i * C, C));
        }
    }
    t_true(gone > 10);
    model_free(m);
}

T(masked_equals_gathered_and_cached_equals_whole_with_exits)
{
    for (int k = 0; k < 2; k++) {
        struct err e = {0};
        char text[300];
        struct kv_cache *cache = NULL;
        struct batch one = {.B = 1, .T = T, .id = batch.id};
        struct pass pass = kit_pass(PASS_SPARSE);
        real want[V], got[V];
        snprintf(text, sizeof text, "%s %s", leaving, k ? "hat.exited=attention_only" : "");
        struct model *m = trained(text);
        run(m, kit_pass(PASS_MASKED));
        real *masked = kit_copy(m->stream.h[L], kit_states(m));
        run(m, pass);
        t_true(kit_same(masked, m->stream.h[L], kit_states(m)));
        t_true(flops_block_ratio(&m->flops) < 0.6);
        model_forward(m, &one, &pass);
        model_logits(m, T - 1, want);
        double whole = flops_total(&m->flops), parts = 0;
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        for (int at = 0, n = 9; at < T; at += n, n = at + 5 < T ? 5 : 1) {
            t_ok(model_decode(m, cache, batch.id + at, n, &pass, &e), &e);
            parts += flops_total(&m->flops);
        }
        model_logits(m, m->R - 1, got);
        for (int v = 0; v < V; v++)
            t_near(got[v], want[v], 1e-4);
        t_near(parts, whole, 1e-6 * whole);
        kv_cache_free(cache);
        free(masked);
        model_free(m);
    }
}

T(no_later_token_changes_what_came_before_with_exits)
{
    struct model *m = trained(leaving);
    run(m, kit_pass(PASS_SPARSE));
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    for (int j = 1; j < T; j += 6) {
        kit_fill(&batch, B, T, V, 7);
        for (int t = j; t < T; t++)
            batch.id[t] = (batch.id[t] + 1) % V;
        run(m, kit_pass(PASS_SPARSE));
        t_true(kit_same(want, m->stream.h[L], (size_t)(j * C)));
        t_true(kit_same(want + T * C, m->stream.h[L] + T * C, T * C));
    }
    free(want);
    model_free(m);
}

/* Forcing applies to the FFN; a token forced to run counts as present there. */
T(forced_cells_are_obeyed)
{
    static int8_t force[L * R];
    struct model *m = trained(leaving);
    for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
        struct pass pass = kit_pass((enum pass_kind)kind);
        for (int i = 0; i < L * R; i++)
            force[i] = (int8_t)(i % 3 - 1);
        pass.inference.force = force;
        run(m, pass);
        for (int l = 0; l < L; l++) {
            real ffn[R] = {0}, attention[R] = {0};
            for (int k = 0; k < m->ffn[l].n; k++) {
                ffn[m->ffn[l].row[k]] = m->ffn[l].gate[k];
                t_true(m->ffn[l].weight[k] == (force[l * R + m->ffn[l].row[k]] < 0));
            }
            for (int k = 0; k < m->plan[l].n; k++)
                attention[m->plan[l].row[k]] = m->plan[l].gate[k];
            for (int i = 0; i < R; i++) {
                t_true(force[l * R + i] < 0 || ffn[i] == force[l * R + i]);
                t_true(force[l * R + i] != 1 || attention[i] == 1);
            }
        }
    }
    memset(force, 1, sizeof force);
    run(m, kit_pass(PASS_DENSE));
    real *dense = kit_copy(m->stream.h[L], kit_states(m));
    struct pass pass = kit_pass(PASS_SPARSE);
    pass.inference.force = force;
    run(m, pass);
    t_true(kit_same(dense, m->stream.h[L], kit_states(m)));
    free(dense);
    model_free(m);
}

T(all_tokens_can_exit_at_once)
{
    struct model *m = trained("hat.phase=full hat.exits=on hat.exit_bias=90 hat.exit_layers=0,3 "
                              "hat.exit_threshold=zero");
    run(m, kit_pass(PASS_SPARSE));
    for (int l = 0; l < L; l++)
        t_true(m->plan[l].n == 0 && m->ffn[l].n == 0);
    t_true(kit_same(m->stream.h[0], m->stream.h[L], kit_states(m)));
    t_true(isfinite(model_loss(m, 0, 0)));
    model_free(m);
}

T(sequences_of_one_token_work)
{
    struct model *m =
        fresh("hat.phase=full hat.exit_bias=0 hat.exit_diversity=1 hat.exit_monotone=1", 1);
    for (int step = 1; step <= 3; step++) {
        kit_fill(&batch, step == 3 ? 1 : 5, 1, V, (uint64_t)step);
        t_true(isfinite(kit_train(m, &batch.b, step, 3, 1e-3)));
        for (int l = 0; l < L; l++)
            t_true(m->ffn[l].n == 0 || m->ffn[l].n == m->R);
    }
    run(m, kit_pass(PASS_SPARSE));
    model_free(m);
}

T(nan_scores_rank_last_and_are_counted)
{
    struct model *m = fresh("hat.exits=off hat.layer_dropout=0", 1);
    struct pass pass = kit_pass(PASS_TRAIN);
    param(m, "hat.router.weight")->value[3] = NAN;
    run(m, pass);
    t_eq(kit_metric(m, "nan_scores", 0), R);
    t_eq(m->ffn[0].active, B * 18); /* ties go to the earlier row */
    model_free(m);
}

/* ---- tables, counts, messages ---------------------------------------------------------------- */

static const struct params *count_only(struct params *ps, struct route *r, const char *options,
                                       int layers, int dim, int *rc, struct err *e)
{
    char prefix[40], word[100];
    const struct route_ops *ops = route_find("hat");
    struct opt_group g = route_group(ops, prefix);
    struct config all = {0};
    void *opts = mem_alloc(1, ops->opts_size);
    *rc = opt_defaults(&g, opts, e);
    for (int used = 0; sscanf(options, " %99s%n", word, &used) == 1; options += used)
        t_ok(config_override(&all, word, "test", e), e);
    t_ok(config_apply(&all, &g, opts, e), e);
    config_release(&all);
    *rc = route_init(r, ops, opts, ps, layers, dim, NULL, 1, e);
    return ps;
}

static int64_t trainable(const struct params *ps, const char *prefix)
{
    int64_t n = 0;
    for (int i = 0; i < ps->n; i++)
        if (ps->p[i].train && strncmp(ps->p[i].name, prefix, strlen(prefix)) == 0)
            n += ps->p[i].shape[0] * (ps->p[i].rank > 1 ? ps->p[i].shape[1] : 1);
    return n;
}

T(the_published_shape_has_the_published_parameter_counts)
{
    struct err e = {0};
    struct params ps = {0};
    struct route r = {0};
    int rc;
    count_only(&ps, &r, "", 22, 2048, &rc, &e); /* the default places are the published ones */
    t_ok(rc, &e);
    t_eq(trainable(&ps, "hat.router"), 45078);
    t_eq(trainable(&ps, "hat.exit."), 666420); /* of these 10 temperatures */
    t_eq(trainable(&ps, "hat.exit.log_temperature"), 10);
    t_eq(trainable(&ps, "hat"), 711498);
    t_true(params_find(&ps, "hat.exit.19.0.weight") >= 0 &&
           params_find(&ps, "hat.exit.4.2.bias") >= 0);
    route_release(&r);
    params_release(&ps);
}

static void check_layers(const char *text, int layers, const char *want)
{
    struct exits_shape shape;
    struct err e = {0};
    char got[100] = "";
    t_ok(exits_parse(&shape, "key", text, layers, &e), &e);
    for (int g = 0; g < shape.n; g++)
        snprintf(got + strlen(got), 8, "%s%d", g ? "," : "", shape.layer[g]);
    t_str(got, want);
}

T(exit_layers_are_parsed_spread_or_refused)
{
    static const struct {
        const char *text, *part;
        int code;
    } bad[] = {{"4,8", "expected 0 to 7 (model.layers=8)", DS_ERANGE},
               {"-1", "outside the model", DS_ERANGE},
               {"3,3", "3 follows 3", DS_EUSAGE},
               {"5,2", "2 follows 5", DS_EUSAGE},
               {"two", "exit_layers=two", DS_EUSAGE},
               {"2,", "exit_layers=2,", DS_EUSAGE},
               {"2;3", "exit_layers=2;3", DS_EUSAGE},
               {"99999999999999999999", "outside the model", DS_ERANGE}};
    check_layers("4,8,12,16,19", 22, "4,8,12,16,19");
    check_layers("", 22, "4,8,12,16,19");
    check_layers("", 8, "1,3,4,6,7");
    check_layers("", 2, "1");
    check_layers("", 1, "");
    check_layers("none", 22, "");
    check_layers("0", 1, "0");
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct err e = {0};
        struct model *m = NULL;
        char text[200];
        snprintf(text, sizeof text, "model.layers=8 model.method=hat hat.exit_layers=%s",
                 bad[k].text);
        t_fails(kit_try(&m, text, 1, 0, &e), &e, bad[k].code, bad[k].part);
        t_true(strchr(e.text, '\n') == NULL);
    }
}

T(invalid_combinations_are_refused_in_one_line)
{
    struct err e = {0};
    struct model *m = NULL;
    t_fails(kit_try(&m, "model.method=hat hat.phase=exits hat.exit_layers=none", 1, 0, &e), &e,
            DS_EUSAGE, "no exit gates to train");
    t_fails(kit_try(&m, "model.method=hat hat.phase=exits hat.exits=off", 1, 0, &e), &e, DS_EUSAGE,
            "hat.exits=off");
    t_fails(kit_try(&m, "model.method=hat hat.capacity=1.2", 1, 0, &e), &e, DS_EUSAGE, "1.2");
    m = fresh("", 0);
    t_fails(kit_set(m, "capacity", 2, &e), &e, DS_ERANGE, "hat.capacity: 2");
    t_ok(kit_set(m, "capacity", 0.25, &e), &e);
    model_free(m);
}

T(decision_flops_match_their_multiplications)
{
    struct model *m = trained(leaving);
    for (int on = 1; on >= 0; on--) {
        struct pass pass = kit_pass(PASS_SPARSE);
        double gate = 2.0 * (C * 64 + 64 * 32 + 32 * 2);
        if (!on) {
            model_free(m);
            m = trained("hat.exits=off hat.exit_layers=2,5");
        }
        run(m, pass);
        for (int l = 0; l < L; l++)
            t_near(m->flops.part[l * FLOPS_PARTS + FLOPS_ROUTER],
                   R * (2.0 * C + (on && (l == 2 || l == 5) ? gate : 0)), 1e-6);
        t_eq(flops_block_ratio(&m->flops) < 1, 1);
    }
    model_free(m);
}
