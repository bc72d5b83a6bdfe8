/* edp with one threshold for all layers, without forced cells, with scores that persist, and with a
 * network that predicts the regret of skipping. */
#include "kit.h"
#include "models/load.h"
#include "routing/flops.h"

enum { B = 8, T = 32, V = 32, L = 8, R = B * T, C = 32 };

static struct kit_batch batch;

static const char all_of_it[] = "edp.signal=regret edp.spread=common edp.max_skip=0 edp.min_runs=1 "
                                "edp.persist=0.5 edp.early=0 edp.late=0";

static void fill(uint64_t seed)
{
    struct rng r;
    rng_init(&r, seed, RNG_TEST, 4, 0);
    for (int i = 0; i < B; i++) {
        int32_t x = (int32_t)rng_below(&r, V);
        for (int t = 0; t < T; t++) {
            batch.id[i * T + t] = x;
            x = rng_uniform(&r) < 0.2 ? (int32_t)rng_below(&r, V) : (x * 3 + 1) % V;
            batch.target[i * T + t] = x;
        }
    }
    batch.b = (struct batch){.B = B, .T = T, .id = batch.id, .target = batch.target};
}

static struct model *fresh(const char *more, int train)
{
    char text[600];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=%d model.heads=2 model.vocab=%d model.init_std=0.1 "
             "model.method=edp %s",
             L, C, V, more);
    fill(1);
    return kit_model(text, 3, R, train, 0);
}

static void run(struct model *m, struct pass pass)
{
    model_forward(m, &batch.b, &pass);
}

/* train, *last: mean executed share of the last fifth of training, and of inference afterwards. */
static struct model *trained(const char *more, int steps, double *train, double *use)
{
    struct model *m = fresh(more, 1);
    double sum = 0, n = 0;
    for (int step = 1; step <= steps; step++) {
        fill((uint64_t)(100 + step));
        kit_train(m, &batch.b, step, steps, 3e-3);
        if (step <= steps - steps / 5)
            continue;
        sum += flops_block_ratio(&m->flops);
        n++;
    }
    if (train)
        *train = sum / n;
    for (int k = 0; use && k < 4; k++) {
        fill((uint64_t)(5000 + k));
        run(m, kit_pass(PASS_SPARSE));
        *use = (k ? *use : 0) + flops_block_ratio(&m->flops) / 4;
    }
    fill(2);
    return m;
}

/* ---- one threshold --------------------------------------------------------------------------- */

static double spread_of_shares(const char *more)
{
    struct model *m = trained(more, 120, NULL, NULL);
    double mean = 0, square = 0;
    run(m, kit_pass(PASS_SPARSE));
    for (int l = 1; l < L - 1; l++) {
        double share = (double)m->plan[l].active / R;
        mean += share / (L - 2);
        square += share * share / (L - 2);
    }
    for (int l = 2; strstr(more, "common") && l < L - 1; l++)
        t_near(kit_metric(m, "threshold", l), kit_metric(m, "threshold", 1), 0);
    model_free(m);
    return sqrt(fmax(0, square - mean * mean));
}

T(one_threshold_lets_layers_share_the_budget_unequally)
{
    kit_skip_if_slow();
    double common = spread_of_shares("edp.spread=common edp.max_skip=0 edp.min_runs=1");
    double layer = spread_of_shares("edp.spread=layer edp.max_skip=0 edp.min_runs=1");
    t_truef(common > 2 * layer && common > 0.1, "common %g, per layer %g", common, layer);
}

/* ---- no forced cells ------------------------------------------------------------------------- */

T(without_forced_cells_a_token_may_skip_every_gated_layer)
{
    struct model *m = fresh("edp.early=0 edp.late=0 edp.max_skip=0 edp.min_runs=1 "
                            "edp.target_ratio=0.2",
                            0);
    struct pass pass = kit_pass(PASS_SPARSE);
    pass.inference.offset = INFINITY;
    run(m, pass);
    t_eq(m->flops.rows_run, R); /* the first block gives the first velocity */
    model_free(m);
    struct err e = {0};
    t_fails(kit_try(&m, "model.method=edp model.layers=8 edp.target_ratio=0.2", 1, 0, &e), &e,
            DS_ERANGE, "edp.target_ratio=0.2 cannot be reached");
}

static void check_budget(const char *more, double target)
{
    double train, use;
    char text[300];
    snprintf(text, sizeof text, "%s edp.target_ratio=%g", more, target);
    model_free(trained(text, 200, &train, &use));
    t_near(train, target, 0.02);
    t_near(use, target, 0.03);
}

T_SECONDS(the_budget_is_reached_by_every_variant, 120)
{
    kit_skip_if_slow();
    check_budget("edp.spread=common edp.max_skip=0 edp.min_runs=1", 0.5);
    check_budget("edp.persist=0.7 edp.max_skip=0", 0.6);
    check_budget(all_of_it, 0.4);
}

/* ---- persistence ----------------------------------------------------------------------------- */

/* With every block run the states are equal, and without statistics z is the signal itself. */
T(a_score_is_carried_over_from_the_layer_before)
{
    static real z[L * R];
    for (int k = 0; k < 2; k++) {
        struct model *m = fresh(k ? "edp.signal=velocity edp.min_runs=1 edp.persist=0.75"
                                  : "edp.signal=velocity edp.min_runs=1",
                                0);
        struct pass pass = kit_pass(PASS_SPARSE);
        pass.inference.offset = -INFINITY;
        pass.record = 1;
        run(m, pass);
        const real *got = kit_cells(m, "score");
        if (!k)
            memcpy(z, got, sizeof z);
        for (int i = 0; k && i < R; i++) {
            double want = (double)z[R + i];
            t_near(got[R + i], want, 1e-6);
            for (int l = 2; l < L - 1; l++) {
                want = 0.75 * want + 0.25 * (double)z[l * R + i];
                t_near(got[l * R + i], want, 1e-5);
            }
        }
        model_free(m);
    }
}

/* ---- regret ---------------------------------------------------------------------------------- */

/* Gates whose gradients say that skipping costs 0.4 nats where the velocity is above 0.4, and gains
 * 0.1 elsewhere: the network finds it, and ranks the layers of all tokens by it. */
T(the_network_learns_what_the_gates_measure)
{
    struct model *m = fresh("edp.signal=regret edp.spread=common edp.max_skip=0 edp.min_runs=1 "
                            "edp.regret=gradient edp.noise_until=1",
                            1);
    struct adamw o = {
        .lr = 0.05, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8, .router_lr = 1, .clip = 1};
    double first = 0;
    enum { STEPS = 80 };
    for (int step = 1; step <= STEPS; step++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        real dgate[R];
        pass.record = 1;
        pass.step = step;
        pass.progress = 0.3; /* gates are drawn */
        fill((uint64_t)(100 + step));
        kit_step(m, &batch.b, &pass);
        params_zero_grad(&m->params);
        for (int i = 0; i < m->params.n; i++)
            m->params.p[i].lr = strncmp(m->params.p[i].name, "edp.regret.", 11) == 0;
        const real *v = kit_cells(m, "velocity");
        struct losses x = {.entropy = m->entropy_rel, .target = batch.target, .R = R, .L = L};
        x.rows = model_loss_rows(m);
        m->route.ops->aux(&m->route, &x);
        for (int l = L - 1; l >= 0; l--) {
            for (int k = 0; k < m->plan[l].n; k++) {
                double regret = v[l * R + m->plan[l].row[k]] > (real)0.4 ? 0.4 : -0.1;
                dgate[k] = (real)(-regret / R * (double)m->plan[l].weight[k]);
            }
            m->route.ops->decide_bwd(&m->route, l, &m->plan[l], dgate, &m->stream);
        }
        first = step == 1 ? kit_metric(m, "regret_error", 0) : first;
        struct grad_health health = params_grad_health(&m->params);
        adamw_step(&m->params, &o, step, &health);
        m->route.ops->update(&m->route);
    }
    t_truef(kit_metric(m, "regret_r", 0) > 0.8, "r = %g", kit_metric(m, "regret_r", 0));
    t_true(kit_metric(m, "regret_error", 0) < 0.6 * first);
    model_free(m);
}

/* Later blocks leave less to lose, which the layer alone tells. */
T_SECONDS(predicted_regret_follows_the_loss_of_stopping, 120)
{
    kit_skip_if_slow();
    struct model *m = fresh("edp.signal=regret edp.spread=common edp.max_skip=0 edp.min_runs=1", 1);
    enum { STEPS = 120 };
    double r = 0;
    for (int step = 1; step <= STEPS; step++) {
        fill((uint64_t)(100 + step));
        kit_train(m, &batch.b, step, STEPS, 3e-3);
        r += step > STEPS - 20 ? kit_metric(m, "regret_r", 0) / 20 : 0;
    }
    t_truef(r > 0.3, "r = %g", r);
    model_free(m);
}

/* Two blocks, four times: between the two there is no exit, and no label (which was the lowest one,
 * -2).  The model is untrained, so that the others are small. */
struct sums {
    double v[4096];
    size_t n;
    int is_put;
};

static void add_or_put(void *ctx, double *x, size_t n, int is_mean)
{
    struct sums *s = ctx;
    for (size_t i = 0; !is_mean && i < n; i++, s->n++) {
        s->v[s->n] = s->is_put ? s->v[s->n] : s->v[s->n] + x[i];
        x[i] = s->is_put ? s->v[s->n] : 0;
    }
}

/* Also where a piece has no label at all. */
T(the_error_of_a_step_in_pieces_is_that_of_the_step)
{
    static struct sums s;
    struct model *m = fresh(all_of_it, 1);
    struct pass pass = kit_pass(PASS_TRAIN);
    for (int t = 0; t < T; t++)
        batch.target[(B - 1) * T + t] = -1;
    for (int step = 1; step <= 3; step++)
        kit_train(m, &batch.b, step, 10, 1e-2);
    kit_step(m, &batch.b, &pass);
    double error = kit_metric(m, "regret_error", 0), r = kit_metric(m, "regret_r", 0);
    t_truef(error > 0 && !isnan(r), "%g %g", error, r);
    m->piece = (struct model_piece){.targets = (B - 1) * T, .share = 1.0 / B};
    for (int k = 0; k < B; k++) {
        struct batch piece = {
            .B = 1, .T = T, .id = batch.id + k * T, .target = batch.target + k * T};
        pass.first_row = k * T;
        kit_step(m, &piece, &pass);
        s.n = 0;
        m->route.ops->counts(&m->route, add_or_put, &s);
    }
    s.n = 0;
    s.is_put = 1;
    m->route.ops->counts(&m->route, add_or_put, &s);
    m->route.ops->update(&m->route);
    t_near(kit_metric(m, "regret_error", 0), error, 1e-5 * error);
    t_near(kit_metric(m, "regret_r", 0), r, 1e-4);
    model_free(m);
}

T(only_exits_of_a_loop_have_labels)
{
    struct model *m = fresh("model.layers=2 model.loop=4 edp.signal=regret edp.spread=common "
                            "edp.max_skip=0 edp.min_runs=1",
                            1);
    struct pass pass = kit_pass(PASS_TRAIN);
    t_eq(m->route.L, L);
    kit_step(m, &batch.b, &pass);
    double error = kit_metric(m, "regret_error", 0);
    t_truef(error > 0 && error < 1, "%g", error);
    model_free(m);
}

T(other_signals_have_no_regret_network)
{
    struct model *m = fresh("", 0);
    t_true(params_find(&m->params, "edp.regret.0.weight") < 0);
    model_free(m);
    m = fresh("edp.signal=regret edp.hidden=5", 0);
    int w = params_find(&m->params, "edp.regret.0.weight");
    t_true(w >= 0 && params_find(&m->params, "edp.score.weight") < 0);
    t_eq(m->params.p[w].n, 5 * 7);
    run(m, kit_pass(PASS_SPARSE));
    t_near(m->flops.part[3 * FLOPS_PARTS + FLOPS_ROUTER], R * (8.0 * C + 20 + 2 * (35 + 5)), 1e-6);
    model_free(m);
}

/* ---- the promises of every method ------------------------------------------------------------ */

T(masked_equals_gathered_and_recomputed_equals_kept)
{
    struct model *m = trained(all_of_it, 30, NULL, NULL);
    run(m, kit_pass(PASS_MASKED));
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    run(m, kit_pass(PASS_SPARSE));
    t_true(flops_block_ratio(&m->flops) < 0.9);
    t_true(kit_same(want, m->stream.h[L], kit_states(m)));
    free(want);
    struct pass pass = kit_pass(PASS_TRAIN);
    size_t n;
    kit_step(m, &batch.b, &pass);
    real *grad = kit_gradients(m, &n);
    m->route.frozen = 1;
    kit_step(m, &batch.b, &pass);
    real *again = kit_gradients(m, &n);
    t_true(kit_same(grad, again, n));
    free(grad);
    free(again);
    model_free(m);
}

T(no_later_token_and_no_other_sequence_changes_a_decision)
{
    struct model *m = trained(all_of_it, 30, NULL, NULL);
    run(m, kit_pass(PASS_SPARSE));
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    for (int j = 1; j < T; j += 7) {
        fill(2);
        for (int t = j; t < T; t++)
            batch.id[t] = (batch.id[t] + 5) % V;
        run(m, kit_pass(PASS_SPARSE));
        t_true(kit_same(want, m->stream.h[L], (size_t)j * C));
        t_true(kit_same(want + T * C, m->stream.h[L] + T * C, (size_t)(R - T) * C));
    }
    free(want);
    model_free(m);
}

T(cached_equals_whole)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    struct model *m = trained(all_of_it, 30, NULL, NULL);
    struct batch one = {.B = 1, .T = T, .id = batch.id};
    struct pass pass = kit_pass(PASS_SPARSE);
    real whole[V], got[V];
    model_forward(m, &one, &pass);
    model_logits(m, T - 1, whole);
    t_ok(kv_cache_new(&cache, m, T, &e), &e);
    for (int t = 0; t < T; t++)
        t_ok(model_decode(m, cache, batch.id + t, 1, &pass, &e), &e);
    model_logits(m, 0, got);
    for (int v = 0; v < V; v++)
        t_near(got[v], whole[v], KIT_NEAR);
    kv_cache_free(cache);
    model_free(m);
}

T(a_saved_and_loaded_model_makes_the_same_decisions)
{
    struct err e = {0};
    char path[512];
    const char *dir = t_tmpdir();
    struct model *m = trained(all_of_it, 30, NULL, NULL), *copy = NULL;
    run(m, kit_pass(PASS_SPARSE));
    snprintf(path, sizeof path, "%s/config.json", dir);
    t_ok(model_write_config(m, path, &e), &e);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(model_write_weights(m, path, 0, &e), &e);
    t_ok(model_open(&copy, dir, NULL, 0, &e), &e);
    t_ok(weights_use(copy, &m->weights.numbers, &e), &e);
    t_ok(model_reserve(copy, R, 0, 0, &e), &e);
    run(copy, kit_pass(PASS_SPARSE));
    t_true(kit_same(m->stream.h[L], copy->stream.h[L], kit_states(m)));
    model_free(copy);
    model_free(m);
}

/* ---- messages -------------------------------------------------------------------------------- */

T(conflicting_options_are_refused_in_one_line)
{
    static const struct {
        const char *options, *part;
    } bad[] = {
        {"edp.spread=common edp.threshold=learned", "edp.threshold=quantile or fixed"},
        {"edp.history=literal edp.spread=common", "edp.history=literal is the published rule"},
        {"edp.history=literal edp.persist=0.5", "edp.persist=0"},
        {"edp.history=literal edp.signal=regret", "edp.history=literal"},
        {"edp.signal=regret edp.regret=gradient edp.noise=0", "only drawn gates measure regret"},
        {"edp.signal=regret model.loop=2 model.loop_last=1",
         "edp.regret=exit: unsupported with model.loop_last"},
        {"edp.attach=true edp.signal=regret", "edp.signal=velocity, speed or vector"},
        {"edp.attach=true edp.signal=vector edp.min_runs=1", "expected edp.signal=velocity"},
    };
    for (size_t k = 0; k < sizeof bad / sizeof *bad; k++) {
        struct err e = {0};
        struct model *m = NULL;
        char text[200];
        snprintf(text, sizeof text, "model.method=edp model.layers=8 %s", bad[k].options);
        t_fails(kit_try(&m, text, 1, 1, &e), &e, DS_EUSAGE, bad[k].part);
        t_true(strchr(e.text, '\n') == NULL);
    }
}
