/* dlr's rules: distribution of draws, penalties, router input, thresholds and metrics. */
#include "base/mem.h"
#include "kit.h"
#include "routing/cut.h"
#include "routing/gatestats.h"
#include "routing/prefix.h"

enum { B = 4, T = 32, R = B * T, V = 53, L = 8, KEEP = 4, M = L - KEEP };

static struct kit_batch batch;

static struct model *model_of(const char *more, int rows)
{
    char text[400];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=16 model.heads=2 model.vocab=%d model.init_std=0.2 "
             "model.max_seq=1024 model.method=dlr %s",
             L, V, more);
    kit_fill(&batch, B, T, V, 3);
    return kit_model(text, 3, rows, 1, 0);
}

static struct param *named(const struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s", name);
    return &m->params.p[i];
}

static int metric_of(const struct model *m, enum metric_scope scope, const char *name)
{
    for (size_t i = 0; i < m->route.ops->n_metrics; i++)
        if (m->route.ops->metrics[i].scope == scope &&
            strcmp(m->route.ops->metrics[i].name, name) == 0)
            return (int)i;
    t_truef(0, "no metric %s", name);
    return -1;
}

static double step_metric(const struct model *m, const char *name)
{
    return m->route.metric[metric_of(m, METRIC_STEP, name)][0];
}

/* Every logit is the bias of its layer. */
static void only_biases(struct model *m, const double *bias)
{
    struct param *w = named(m, "dlr.router.2.weight"), *b = named(m, "dlr.router.2.bias");
    memset(w->value, 0, w->n * sizeof *w->value);
    for (int l = 0; l < M; l++)
        b->value[l] = (real)bias[l];
    params_changed(&m->params);
}

static void run(struct model *m, struct pass *pass)
{
    model_forward(m, &batch.b, pass);
}

/* ---- draws ----------------------------------------------------------------------------------- */

T(a_gate_is_drawn_with_the_probability_of_its_logit_at_every_temperature)
{
    static const double bias[M] = {-1.5, 0, 0.7, 2};
    static const char *tau[3] = {"dlr.tau_start=1", "dlr.tau_start=0.1 dlr.tau_min=0.1",
                                 "dlr.tau_start=7"};
    enum { ROWS = 4096 };
    int counts[3][M];
    for (int k = 0; k < 3; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        struct model *m = model_of(tau[k], ROWS);
        only_biases(m, bias);
        kit_fill(&batch, 64, 64, V, 3);
        run(m, &pass);
        for (int l = 0; l < M; l++) {
            double p = 1 / (1 + exp(-bias[l])), sd = sqrt(p * (1 - p) / ROWS);
            counts[k][l] = m->plan[KEEP + l].active;
            t_near((double)counts[k][l] / ROWS, p, 4 * sd);
            t_eq(m->plan[KEEP + l].n, ROWS);
        }
        model_free(m);
    }
    t_true(memcmp(counts[0], counts[1], sizeof counts[0]) == 0);
    t_true(memcmp(counts[0], counts[2], sizeof counts[0]) == 0);
}

T(the_temperature_falls_after_each_epoch_to_its_minimum)
{
    static const int64_t at[7] = {1, 10, 11, 20, 21, 30, 31}, steps = 40;
    static const double want[7] = {2, 2, 2 * 0.5, 2 * 0.5, 2 * 0.25, 2 * 0.25, 0.4};
    struct model *m =
        model_of("dlr.tau_start=2 dlr.tau_decay=0.5 dlr.tau_epochs=4 dlr.tau_min=0.4", R);
    for (int k = 0; k < 7; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        pass.step = at[k];
        pass.progress = (double)at[k] / (double)steps;
        run(m, &pass);
        t_near(step_metric(m, "tau"), want[k], 1e-12);
    }
    model_free(m);
}

T(there_is_no_noise_at_inference)
{
    static const double bias[M] = {-0.01, 0.01, -3, 3};
    struct model *m = model_of("dlr.threshold=zero", R);
    only_biases(m, bias);
    for (int kind = PASS_MASKED; kind <= PASS_SPARSE; kind++) {
        struct pass pass = kit_pass((enum pass_kind)kind);
        run(m, &pass);
        for (int l = 0; l < L; l++)
            t_eq(m->plan[l].active, l < KEEP || bias[l - KEEP] > 0 ? R : 0);
        pass.inference.offset = 0.5;
        run(m, &pass);
        t_eq(m->plan[KEEP + 1].active, 0);
        t_eq(m->plan[KEEP + 3].active, R);
    }
    model_free(m);
}

/* ---- prices and reports ---------------------------------------------------------------------- */

static double ran_of(const struct model *m, int l)
{
    return (double)m->plan[l].active / m->R;
}

T(losses_are_the_layer_penalty_and_the_missed_target)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m =
        model_of("dlr.lambda=0.05 dlr.depth_weights=linear dlr.mu=8 dlr.target_skip=0.3", R);
    double gate = 0, run_share = 0, active = KEEP;
    kit_step(m, &batch.b, &pass);
    for (int l = KEEP; l < L; l++) {
        gate += 0.05 * (0.1 + 1.9 * (l - KEEP) / (M - 1)) * ran_of(m, l);
        run_share += ran_of(m, l) / M;
        active += ran_of(m, l);
    }
    double target = 8 * (0.7 - run_share) * (0.7 - run_share);
    t_near(step_metric(m, "gate_loss"), gate, 1e-9);
    t_near(step_metric(m, "target_loss"), target, 1e-9);
    t_near(m->aux_loss, gate + target, 1e-9);
    t_near(step_metric(m, "skip_ratio"), 1 - run_share, 1e-9);
    t_near(step_metric(m, "active_layers"), active, 1e-9);
    t_near(step_metric(m, "active_layers") * R, (double)m->flops.rows_run, 1e-6);
    model_free(m);
}

T(alarms_are_counted)
{
    const struct layer_stats fine = {.mean = 0.5, .least = 0.2, .variance = 0.01},
                             none = {.mean = 0.01, .least = 0, .variance = 0},
                             split = {.mean = 0.5, .least = 0, .variance = 0.25};
    t_eq(gate_alarms(&fine, 0.6), 0);
    t_eq(gate_alarms(&none, 0.05), 3);
    t_eq(gate_alarms(&split, 0.6), 2);
    static const real logit[4] = {0, 100, 0, -100};
    struct gate_stats g = gate_stats_of(logit, 2, 2);
    t_near(g.mean, 0.5, 1e-12);
    t_near(g.entropy, log(2), 1e-12);
    t_near(g.variance, 0, 1e-12);
    g = gate_stats_of(logit + 1, 2, 2);
    t_near(g.entropy, 0, 1e-12);
    t_near(g.variance, 0.25, 1e-12);
    static const double bias[M] = {-9, -9, -9, -9};
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = model_of("", R);
    only_biases(m, bias);
    run(m, &pass);
    t_true(step_metric(m, "collapsed") >= 3);
    model_free(m);
}

T(nan_logits_are_skipped_and_counted)
{
    static const double bias[M] = {1, NAN, 1, 1};
    struct pass pass = kit_pass(PASS_TRAIN), use = kit_pass(PASS_SPARSE);
    struct model *m = model_of("", R);
    only_biases(m, bias);
    run(m, &pass);
    t_eq(m->plan[KEEP + 1].active, 0);
    t_near(step_metric(m, "nan_scores"), R, 0);
    run(m, &use);
    t_eq(m->plan[KEEP + 1].n, 0);
    model_free(m);
}

/* ---- the router ------------------------------------------------------------------------------ */

static int64_t router_size(int layers, int dim)
{
    struct err e = {0};
    struct route r;
    struct params ps = {0};
    char prefix[40];
    int64_t n = 0;
    const struct route_ops *ops = route_find("dlr");
    struct opt_group g = route_group(ops, prefix);
    void *opts = mem_alloc(1, ops->opts_size);
    t_ok(opt_defaults(&g, opts, &e), &e);
    t_ok(route_init(&r, ops, opts, &ps, layers, dim, NULL, 1, &e), &e);
    for (int i = 0; i < ps.n; i++)
        n += strncmp(ps.p[i].name, "dlr.router.", 11) == 0 ? (int64_t)ps.p[i].n : 0;
    route_release(&r);
    params_release(&ps);
    return n;
}

T(the_router_has_the_published_number_of_parameters)
{
    t_eq(router_size(22, 2048), 2632210);
}

T(the_last_biases_start_at_the_requested_values)
{
    struct model *m = model_of("dlr.target_skip=0.25", R);
    t_near(named(m, "dlr.router.2.bias")->value[1], log(3), 1e-6);
    model_free(m);
    m = model_of("dlr.init=constant dlr.init_bias=-2.5", R);
    t_near(named(m, "dlr.router.2.bias")->value[M - 1], -2.5, 0);
    model_free(m);
    m = model_of("dlr.init=ramp dlr.init_bias=1", R);
    t_near(named(m, "dlr.router.2.bias")->value[0], 1, 0);
    t_near(named(m, "dlr.router.2.bias")->value[M - 1], -3, 1e-6);
    model_free(m);
}

T(an_untrained_router_keeps_its_initial_values)
{
    struct model *m = model_of("dlr.estimator=none", R);
    struct param *w = named(m, "dlr.router.0.weight"), *q = named(m, "dlr.quantiles_weight");
    real *before = kit_copy(w->value, w->n);
    for (int step = 1; step <= 3; step++)
        kit_train(m, &batch.b, step, 10, 1e-3);
    t_true(kit_same(w->value, before, w->n));
    t_true(q->value[KEEP] > 0);
    free(before);
    model_free(m);
    m = model_of("dlr.estimator=reinforce", R);
    w = named(m, "dlr.router.0.weight");
    before = kit_copy(w->value, w->n);
    for (int step = 1; step <= 3; step++)
        kit_train(m, &batch.b, step, 10, 1e-3);
    t_true(!kit_same(w->value, before, w->n));
    t_true(named(m, "dlr.baseline")->value[1] > 0 && named(m, "dlr.baseline")->value[0] < 0);
    free(before);
    model_free(m);
}

T(invalid_option_combinations_are_refused)
{
    struct err e = {0};
    struct model *m = NULL;
    t_fails(kit_try(&m, "model.method=dlr model.layers=4", 1, 0, &e), &e, DS_ERANGE,
            "dlr.keep=4 leaves no routed layer of model.layers=4");
    t_fails(kit_try(&m, "model.method=dlr model.layers=8 dlr.tau_start=0.2", 1, 0, &e), &e,
            DS_ERANGE, "dlr.tau_min=0.5: must not be above dlr.tau_start=0.2");
    t_fails(kit_try(&m, "model.method=dlr model.layers=8 dlr.target_skip=1.5", 1, 0, &e), &e,
            DS_EUSAGE, "target_skip");
}

T(published_option_names_are_accepted)
{
    struct model *m = model_of("always_keep=5 lambda_sparsity=0.3 gumbel_temp=3", R);
    t_eq(m->route.ops->always_on(&m->route, 4), 1);
    t_eq(m->route.ops->always_on(&m->route, 5), 0);
    model_free(m);
}

T(live_settings_are_applied_or_refused)
{
    struct err e = {0};
    struct pass pass = kit_pass(PASS_SPARSE);
    struct model *m = model_of("dlr.threshold=zero", R);
    t_ok(kit_set(m, "threshold_offset", 100, &e), &e);
    run(m, &pass);
    t_eq(m->flops.rows_run, R * KEEP);
    t_ok(kit_set(m, "target_ratio", 0.75, &e), &e);
    t_fails(kit_set(m, "target_ratio", 0.25, &e), &e, DS_ERANGE, "4 of 8 layers");
    model_free(m);
}

/* 8 layers of which 4 are kept: three quarters of all cells are half of the routed ones. */
T(a_target_ratio_replaces_the_target_of_skips)
{
    struct err e = {0};
    struct pass train = kit_pass(PASS_TRAIN);
    double loss[3];
    for (int i = 0; i < 3; i++) {
        struct model *m = model_of(i == 0   ? "dlr.init=constant dlr.target_skip=0.5"
                                   : i == 1 ? "dlr.init=constant dlr.target_ratio=0.75"
                                            : "dlr.init=constant",
                                   R);
        if (i == 2)
            t_ok(kit_set(m, "target_ratio", 0.75, &e), &e);
        run(m, &train);
        struct losses x = {.R = R, .L = L};
        m->route.ops->aux(&m->route, &x);
        loss[i] = x.aux;
        model_free(m);
    }
    t_near(loss[1], loss[0], 0);
    t_near(loss[2], loss[0], 0);
    struct model *m = NULL;
    t_fails(kit_try(&m, "model.method=dlr model.layers=8 dlr.target_ratio=0.25", 1, 0, &e), &e,
            DS_ERANGE, "dlr.target_ratio=0.25 cannot be reached");
}

/* ---- thresholds ------------------------------------------------------------------------------ */

static double routed_share(const struct model *m)
{
    double sum = 0;
    for (int l = KEEP; l < L; l++)
        sum += ran_of(m, l) / M;
    return sum;
}

/* Quantiles of the same rows that are then routed, so the only error is between grid points. */
static struct model *noted(const char *more)
{
    struct pass pass = kit_pass(PASS_TRAIN);
    struct model *m = model_of(more, R);
    kit_shake(m, 0.3, 4);
    run(m, &pass);
    m->route.ops->update(&m->route);
    return m;
}

T(a_capacity_is_met_over_all_layers_or_in_each)
{
    static const double capacity[5] = {0, 0.2, 0.5, 0.73, 1};
    for (int by_layer = 0; by_layer < 2; by_layer++) {
        struct model *m = noted(by_layer ? "dlr.spread=layer" : "dlr.spread=common");
        double unequal = 0;
        for (int k = 0; k < 5; k++) {
            struct pass pass = kit_pass(PASS_SPARSE);
            struct err e = {0};
            pass.inference.has_capacity = 1;
            pass.inference.capacity = capacity[k];
            t_ok(route_ready(&m->route, &pass, &e), &e);
            run(m, &pass);
            t_near(routed_share(m), capacity[k], k % 4 ? 0.04 : 0);
            for (int l = KEEP; l < L; l++) {
                t_truef(!by_layer || fabs(ran_of(m, l) - capacity[k]) < 0.04, "layer %d", l);
                unequal = fmax(unequal, fabs(ran_of(m, l) - capacity[k]));
            }
        }
        t_truef(by_layer || unequal > 0.1, "layers have the same shares");
        model_free(m);
    }
}

T(inference_meets_the_training_target)
{
    struct pass pass = kit_pass(PASS_SPARSE);
    struct model *m = noted("dlr.target_skip=0.3");
    run(m, &pass);
    t_near(routed_share(m), 0.7, 0.04);
    model_free(m);
}

/* The prompt's cells are routed cells as well, and run. */
T(a_capacity_includes_the_prompts_that_run_everything)
{
    enum { TEXTS = 64 }; /* each has one decision per layer */
    static const char *const spread[] = {"common", "layer"};
    for (int i = 0; i < 2; i++) {
        char more[120];
        struct pass train = kit_pass(PASS_TRAIN), pass = kit_pass(PASS_SPARSE);
        snprintf(more, sizeof more,
                 "dlr.level=prompt dlr.prompt=16 dlr.target_skip=0.3 dlr.spread=%s", spread[i]);
        struct model *m = model_of(more, TEXTS * T);
        kit_shake(m, 0.3, 4);
        kit_fill(&batch, TEXTS, T, V, 3);
        run(m, &train);
        m->route.ops->update(&m->route);
        run(m, &pass);
        t_near(m->flops.rows_run / (double)m->R - KEEP, 0.7 * M, 0.05 * M);
        pass.inference.has_capacity = 1;
        pass.inference.capacity = 0.2; /* less than the prompts */
        run(m, &pass);
        t_near(m->flops.rows_run / (double)m->R - KEEP, 0.5 * M, 0.05 * M);
        model_free(m);
    }
}

T(an_untrained_router_refuses_a_capacity_and_compares_logits_with_zero)
{
    static const double bias[M] = {-1, 1, -1, 1};
    struct err e = {0};
    struct pass pass = kit_pass(PASS_SPARSE);
    struct model *m = model_of("", R);
    only_biases(m, bias);
    run(m, &pass);
    t_eq(m->plan[KEEP].active, 0);
    t_eq(m->plan[KEEP + 1].active, R);
    pass.inference.has_capacity = 1;
    pass.inference.capacity = 0.5;
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "capacity=0.5");
    pass.inference.capacity = 0;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    run(m, &pass);
    t_eq(m->flops.rows_run, R * KEEP);
    model_free(m);
}

/* ---- what is read ---------------------------------------------------------------------------- */

T(prefix_means_cover_the_document_so_far)
{
    enum { C = 3, N = 8 };
    static const int32_t pos[N] = {0, 1, 2, 0, 0, 1, 2, 3};
    struct err e = {0};
    struct pass pass = {.B = 2, .T = 4, .R = N, .pos = pos};
    struct prefix p;
    real h[N * C], x[N * C];
    for (int i = 0; i < N * C; i++)
        h[i] = (real)sin(i * 1.3);
    for (int prompt = 0; prompt < 4; prompt++) {
        t_ok(prefix_init(&p, prompt ? PREFIX_PROMPT : PREFIX_MEAN, prompt, C, &e), &e);
        prefix_fwd(&p, x, h, &pass);
        for (int i = 0; i < N; i++)
            for (int c = 0; c < C; c++) {
                double sum = 0;
                int n = prompt && pos[i] + 1 > prompt ? prompt : pos[i] + 1;
                for (int k = 0; k < n; k++)
                    sum += (double)h[(i - pos[i] + k) * C + c];
                t_near(x[i * C + c], sum / n, 1e-6);
            }
        prefix_release(&p);
    }
}

/* States of a cached sequence, fed in chunks, against the whole pass. */
static void check_cached(const char *options)
{
    static const int bite[4] = {5, 1, 1, 9};
    struct err e = {0};
    struct kv_cache *cache = NULL;
    struct model *m = noted(options);
    struct batch one = {.B = 1, .T = T, .id = batch.id};
    struct pass pass = kit_pass(PASS_SPARSE);
    int score = metric_of(m, METRIC_CELL, "score"), seen = 0;
    static real want[L * T];
    pass.record = 1;
    model_forward(m, &one, &pass);
    memcpy(want, m->route.cell[score], sizeof want);
    t_ok(kv_cache_new(&cache, m, T, &e), &e);
    for (int twice = 0; twice < 2; twice++) {
        kv_cache_reset(cache);
        for (int at = 0, k = 0; at < 16; at += bite[k++]) {
            model_forward(m, &one, &pass); /* another sequence in between must not matter */
            t_ok(model_decode(m, cache, batch.id + at, bite[k], &pass, &e), &e);
            for (int i = 0; i < bite[k]; i++)
                for (int l = KEEP; l < L; l++) {
                    real got = m->route.cell[score][l * bite[k] + i], whole = want[l * T + at + i];
                    t_true(isnan(got) == isnan(whole));
                    if (isnan(got))
                        continue;
                    t_near(got, whole, KIT_NEAR);
                    seen++;
                }
        }
    }
    t_true(seen > 20);
    kv_cache_free(cache);
    model_free(m);
}

T(cached_inference_equals_the_whole_pass)
{
    check_cached("dlr.level=token");
    check_cached("dlr.level=prefix");
    check_cached("dlr.level=prompt dlr.prompt=6");
}

T(a_prompt_runs_everything_and_its_decision_is_kept)
{
    struct pass pass = kit_pass(PASS_MASKED), train = kit_pass(PASS_TRAIN);
    struct model *m = model_of("dlr.level=prompt dlr.prompt=6 dlr.threshold=zero", R);
    int skips = 0, runs = 0, drawn = 0;
    kit_shake(m, 0.5, 6);
    for (int kind = 0; kind < 2; kind++) {
        run(m, kind ? &train : &pass);
        for (int l = KEEP; l < L; l++)
            for (int i = 0; i < R; i++) {
                const struct plan *p = &m->plan[l];
                int t = i % T;
                t_true(t >= 6 || (p->gate[i] == 1 && p->weight[i] == 0));
                t_true(t <= 6 || p->gate[i] == p->gate[i - 1]);
                skips += p->gate[i] == 0;
                runs += t >= 6 && p->gate[i] == 1;
                drawn += kind && t == 6 && p->gate[i] == 1;
            }
    }
    t_true(skips > 0 && runs > 0 && drawn > 0 && drawn < M * B);
    model_free(m);
}
