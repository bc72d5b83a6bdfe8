/* mod's rules: routed blocks, selection in training and at inference, and refused options. */
#include "kit.h"
#include "routing/route.h"

enum { B = 2, T = 48, V = 53, L = 6, C = 32 };

static struct kit_batch batch;

static struct model *make(const char *more)
{
    char text[512];
    snprintf(text, sizeof text,
             "model.layers=%d model.dim=%d model.heads=2 model.vocab=%d model.init_std=0.1 "
             "model.method=mod mod.init_std=0.3 %s",
             L, C, V, more);
    return kit_model(text, 3, B * T, 1, 0);
}

static struct model *trained_at(const char *more, int steps, double lr)
{
    struct model *m = make(more);
    for (int step = 1; step <= steps; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step);
        kit_train(m, &batch.b, step, steps + 1, lr);
    }
    return m;
}

static struct model *trained(const char *more, int steps)
{
    return trained_at(more, steps, 1e-3);
}

static void run(struct model *m, struct pass pass)
{
    model_forward(m, &batch.b, &pass);
}

/* Gate of row i in the plan of layer l; 0 when it is not listed. */
static double gate_of(const struct model *m, int l, int i)
{
    for (int k = 0; k < m->plan[l].n; k++)
        if (m->plan[l].row[k] == i)
            return (double)m->plan[l].gate[k];
    return 0;
}

static double share_of(const struct model *m)
{
    return (m->plan[1].active + m->plan[3].active + m->plan[5].active) / (3.0 * m->R);
}

static double sigmoid(double x)
{
    return 1 / (1 + exp(-x));
}

/* ---- options ---- */

static void expect_blocks(const char *more, const char *want)
{
    char got[L + 1] = "";
    struct model *m = make(more);
    for (int l = 0; l < L; l++)
        got[l] = m->route.ops->always_on(&m->route, l) ? '.' : 'r';
    t_str(got, want);
    model_free(m);
}

T(every_kth_block_is_routed_from_the_first_on)
{
    expect_blocks("", ".r.r.r");
    expect_blocks("mod.every=1", "rrrrrr");
    expect_blocks("mod.every=3", "..r..r");
    expect_blocks("mod.first=0", "r.r.r.");
    expect_blocks("mod.every=4 mod.first=1", ".r...r");
    expect_blocks("router_skip_blocks=5", "....r.");
}

T(each_routed_block_has_its_own_router_and_predictors_are_optional)
{
    struct model *m = make("mod.causal=router");
    int i = params_find(&m->params, "mod.3.router.0.weight");
    t_true(i >= 0 && m->params.p[i].n == C && m->params.p[i].group == PARAM_ROUTER);
    t_true(params_find(&m->params, "mod.2.router.0.weight") < 0);
    t_true(params_find(&m->params, "mod.3.router.0.bias") < 0);
    t_true(params_find(&m->params, "mod.3.predictor.0.weight") < 0);
    t_near(m->route.ops->flops(&m->route, 3), 2 * C, 0);
    t_near(m->route.ops->flops(&m->route, 2), 0, 0);
    model_free(m);
    m = make("");
    i = params_find(&m->params, "mod.3.predictor.0.weight");
    t_true(i >= 0 && m->params.p[i].shape[0] == C / 2 && m->params.p[i].shape[1] == C);
    t_near(m->route.ops->flops(&m->route, 3), 2 * C + C * C + C, 0);
    model_free(m);
    m = make("mod.causal=predictor mod.width=5 mod.normalize=true");
    i = params_find(&m->params, "mod.3.predictor.0.weight");
    t_eq(m->params.p[i].shape[0], 5);
    t_near(m->route.ops->flops(&m->route, 3), 2 * C + 2 * 5 * C + 10 + 6 * C, 0);
    model_free(m);
}

static void refused(const char *more, int code, const char *part)
{
    struct err e = {0};
    struct model *m = NULL;
    char text[256];
    snprintf(text, sizeof text, "model.layers=2 model.method=mod %s", more);
    t_fails(kit_try(&m, text, 1, 0, &e), &e, code, part);
    t_true(strchr(e.text, '\n') == NULL);
    model_free(m);
}

T(meaningless_option_combinations_are_refused_in_one_line)
{
    refused("model.layers=1", DS_ERANGE, "model.layers=1");
    refused("mod.every=3", DS_ERANGE, "mod.every=3");
    refused("mod.first=2", DS_ERANGE, "model.layers=2");
    refused("mod.capacity=1.5", DS_EUSAGE, "mod.capacity");
    refused("mod.capacity=-0.1", DS_EUSAGE, "mod.capacity");
    refused("mod_capacity=2", DS_EUSAGE, "capacity");
    refused("mod.gate=tanh", DS_EUSAGE, "mod.gate");
    refused("mod.predictor_only=true mod.stochastic=true", DS_EUSAGE, "mod.causal=predictor");
    refused("mod.predictor_only=true mod.causal=router", DS_EUSAGE, "mod.causal=predictor");
    refused("mod.causal=router mod.aux_weight=0", DS_ERANGE, "mod.aux_weight");
    refused("mod.predictor_weight=0", DS_ERANGE, "mod.predictor_weight");
}

T(published_names_are_accepted)
{
    struct err e = {0};
    struct model *m = NULL;
    t_ok(kit_try(&m,
                 "model.method=mod mod_capacity=0.5 mod_aux_loss_weight=0.01 router_skip_blocks=1 "
                 "mod.router_aux_loss_weight=1 mod.causal_router_loss_weight=1 mod.z_loss_weight=0",
                 1, 1, &e),
         &e);
    t_ok(model_reserve(m, B * T, 1, 0, &e), &e);
    kit_fill(&batch, B, T, V, 1);
    run(m, kit_pass(PASS_TRAIN));
    t_eq(m->plan[0].n, B * T / 2);
    model_free(m);
}

T(the_capacity_can_be_set_during_training)
{
    struct err e = {0};
    struct model *m = make("");
    kit_fill(&batch, B, T, V, 1);
    t_ok(kit_set(m, "capacity", 0.25, &e), &e);
    run(m, kit_pass(PASS_TRAIN));
    t_eq(m->plan[1].n, B * 12);
    t_fails(kit_set(m, "capacity", 1.1, &e), &e, DS_ERANGE, "1.1");
    t_fails(kit_set(m, "capacity", (double)NAN, &e), &e, DS_EUSAGE, "mod.capacity");
    model_free(m);
}

/* ---- training ---- */

/* The k highest logits of each document, by counting higher ones. */
static int is_among(const real *score, int row, const int32_t *first_row, int n, double gamma)
{
    int above = 0, size = 0, k;
    for (int j = 0; j < n; j++) {
        if (first_row[j] != first_row[row])
            continue;
        size++;
        above += score[j] > score[row] || (score[j] == score[row] && j < row);
    }
    k = (int)(gamma * size);
    return above < (k < 1 ? 1 : k);
}

static void check_training(const char *more, double gamma, double scale)
{
    struct model *m = trained(more, 2);
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_documents(&batch);
    pass.record = 1;
    run(m, pass);
    const real *score = kit_cells(m, "router"), *topk = kit_cells(m, "topk");
    for (int l = 0; l < L; l++)
        for (int i = 0; i < B * T; i++) {
            if (l % 2 == 0) {
                t_near(gate_of(m, l, i), 1, 0);
                continue;
            }
            double r = (double)score[l * B * T + i];
            int in = is_among(score + l * B * T, i, m->first_row, B * T, gamma);
            t_eq(topk[l * B * T + i], in);
            t_near(gate_of(m, l, i), !in ? 0 : scale > 0 ? scale * sigmoid(r) : r, 1e-6);
        }
    t_eq(m->plan[1].kv, KV_PLAN);
    model_free(m);
}

T(training_selects_the_highest_logits_of_each_document_and_gates_come_from_them)
{
    check_training("", 0.125, 1);
    check_training("mod.gate=raw mod.capacity=0.5", 0.5, 0);
    check_training("mod.gate=sigmoid2 mod.capacity=0.25 mod.causal=predictor", 0.25, 2);
}

T(no_token_or_every_token_can_be_selected)
{
    for (int all = 0; all < 2; all++) {
        struct model *m = trained(all ? "mod.capacity=1" : "mod.capacity=0", 2);
        for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
            run(m, kit_pass((enum pass_kind)kind));
            t_near(share_of(m), all, 0);
        }
        model_free(m);
    }
}

T(sequences_of_one_token_train_and_run)
{
    struct model *m = make("mod.causal=predictor");
    kit_fill(&batch, 7, 1, V, 1);
    kit_train(m, &batch.b, 1, 2, 1e-3);
    t_eq(m->plan[1].n, 7); /* k is at least 1 */
    run(m, kit_pass(PASS_SPARSE));
    model_free(m);
}

T(nan_logits_are_counted_in_training_and_select_no_token_at_inference)
{
    struct model *m = trained("mod.every=6 mod.causal=router", 1);
    struct param *w = &m->params.p[params_find(&m->params, "mod.5.router.0.weight")];
    w->value[0] = (real)NAN;
    params_changed(&m->params);
    run(m, kit_pass(PASS_TRAIN));
    t_near(kit_metric(m, "nan_scores", 0), B * T, 0);
    t_eq(m->plan[5].n, B * 6);
    t_eq(m->plan[5].row[5], 5); /* all are equal: the first ones */
    run(m, kit_pass(PASS_SPARSE));
    t_eq(m->plan[5].n, 0);
    model_free(m);
}

T(step_metrics_agree_with_the_recorded_cells)
{
    struct model *m = trained("mod.capacity=0.25", 20);
    struct pass pass = kit_pass(PASS_TRAIN);
    pass.record = 1;
    kit_step(m, &batch.b, &pass);
    const real *score = kit_cells(m, "score"), *tau = kit_cells(m, "threshold"),
               *topk = kit_cells(m, "topk");
    double right = 0, in = 0, said = 0, loss = 0;
    for (int l = 1; l < L; l += 2) {
        double hit = 0, true_here = 0, said_here = 0;
        for (int i = l * B * T; i < (l + 1) * B * T; i++) {
            int says = score[i] > tau[i], is = topk[i] == 1;
            double p = sigmoid((double)score[i]);
            right += says == is;
            hit += says && is;
            true_here += is;
            said_here += says;
            loss -= log(is ? p : 1 - p);
        }
        in += true_here;
        said += said_here;
        t_near(kit_metric(m, "causal_recall", l), hit / true_here, 1e-12);
        if (said_here > 0)
            t_near(kit_metric(m, "causal_precision", l), hit / said_here, 1e-12);
        t_near(kit_metric(m, "selected", l), 0.25, 1e-12);
    }
    double n = 3.0 * B * T;
    t_near(kit_metric(m, "causal_accuracy", 0), right / n, 1e-12);
    t_near(kit_metric(m, "causal_base_rate", 0), 1 - in / n, 1e-12);
    t_near(kit_metric(m, "causal_share", 0), said / n, 1e-12);
    t_near(kit_metric(m, "causal_loss", 0), loss / n, 1e-5);
    t_true(isnan(kit_metric(m, "router_mean", 0)));
    model_free(m);
}

/* ---- use ---- */

static void check_use(const char *more)
{
    struct model *m = trained(more, 5);
    struct pass pass = kit_pass(PASS_SPARSE);
    int differ = 0;
    pass.record = 1;
    run(m, pass);
    const real *score = kit_cells(m, "score"), *tau = kit_cells(m, "threshold"),
               *router = kit_cells(m, "router");
    for (int l = 1; l < L; l += 2)
        for (int i = 0; i < B * T; i++) {
            int at = l * B * T + i;
            double gate = sigmoid((double)router[at]);
            t_near(gate_of(m, l, i), score[at] > tau[at] ? gate : 0, 1e-6);
            differ += score[at] != router[at];
        }
    t_eq(differ > 0, strstr(more, "predictor") || strstr(more, "stochastic"));
    model_free(m);
}

T(a_token_runs_when_its_score_is_above_the_threshold_with_the_routers_gate)
{
    check_use("mod.causal=router");
    check_use("mod.causal=predictor");
    check_use("mod.causal=threshold");
    check_use("mod.stochastic=true");
}

T(router_and_predictor_decide_at_zero_and_threshold_at_the_stored_quantile)
{
    static const char *const more[] = {"mod.capacity=0.5 mod.causal=router", "mod.capacity=0.5",
                                       "mod.capacity=0.2 mod.causal=threshold"};
    for (int k = 0; k < 3; k++) {
        struct model *m = trained(more[k], 5);
        struct pass pass = kit_pass(PASS_SPARSE);
        pass.record = 1;
        run(m, pass);
        real tau = kit_cells(m, "threshold")[B * T];
        t_true(k == 2 ? tau != 0 : tau == 0);
        if (k == 2)
            t_near(share_of(m), 0.2, 0.08);
        model_free(m);
    }
}

T(any_capacity_can_be_requested_at_inference)
{
    static const char *const more[] = {"mod.causal=router", "", "mod.causal=threshold",
                                       "mod.stochastic=true"};
    for (int k = 0; k < 4; k++) {
        struct model *m =
            trained_at(more[k], 30, 1e-5); /* thresholds track a slowly changing model */
        struct pass pass = kit_pass(PASS_SPARSE);
        struct err e = {0};
        pass.inference.has_capacity = 1;
        for (int c = 0; c <= 10; c++) {
            pass.inference.capacity = c / 10.0;
            t_ok(route_ready(&m->route, &pass, &e), &e);
            run(m, pass);
            t_near(share_of(m), pass.inference.capacity, c == 0 || c == 10 ? 0 : 0.12);
        }
        model_free(m);
    }
}

T(a_capacity_without_thresholds_says_how_to_calibrate)
{
    struct model *m = make("");
    struct err e = {0};
    struct pass pass = kit_pass(PASS_SPARSE);
    t_ok(route_ready(&m->route, &pass, &e), &e);
    pass.inference.has_capacity = 1;
    pass.inference.capacity = 1;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    pass.inference.capacity = 0.3;
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "depthscope calibrate");
    pass.inference.calibrate = 7;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    pass.inference.calibrate = 0;
    pass.inference.topk = 1;
    t_ok(route_ready(&m->route, &pass, &e), &e);
    model_free(m);
}

T(a_calibrated_model_meets_the_capacity_on_that_text)
{
    for (int predictor = 0; predictor < 2; predictor++) {
        struct model *m = make(predictor ? "" : "mod.causal=router");
        struct pass pass = kit_pass(PASS_SPARSE);
        kit_fill(&batch, B, T, V, 1);
        pass.inference.has_capacity = 1;
        m->route.ops->calibrate(&m->route, 1, NULL);
        for (int i = 0; i < ROUTE_GRID; i++) {
            pass.inference.calibrate = i + 1;
            pass.inference.capacity = (double)i / (ROUTE_GRID - 1);
            run(m, pass);
            t_near(share_of(m), pass.inference.capacity, 0.011);
        }
        m->route.ops->calibrate(&m->route, 0, NULL);
        pass.inference.calibrate = 0;
        for (int i = 0; i < ROUTE_GRID; i++) {
            pass.inference.capacity = (double)i / (ROUTE_GRID - 1);
            run(m, pass);
            t_near(share_of(m), pass.inference.capacity, 0.011);
        }
        model_free(m);
    }
}

T(ranks_can_be_requested_at_inference_too)
{
    struct model *m = trained("mod.causal=predictor", 3);
    struct pass pass = kit_pass(PASS_MASKED);
    pass.inference.topk = 1;
    run(m, pass);
    t_eq(m->plan[1].n, B * T);
    t_eq(m->plan[1].active, B * T / 8);
    real *masked = kit_copy(m->stream.h[L], kit_states(m));
    pass.kind = PASS_SPARSE;
    run(m, pass);
    t_eq(m->plan[1].n, B * T / 8);
    t_true(kit_same(masked, m->stream.h[L], kit_states(m)));
    pass.inference.has_capacity = 1;
    pass.inference.capacity = 0.5;
    run(m, pass);
    t_eq(m->plan[1].n, B * T / 2);
    free(masked);
    model_free(m);
}

T(an_offset_in_standard_deviations_selects_fewer_or_more)
{
    static const char *const more[] = {"mod.causal=threshold", "mod.stochastic=true"};
    for (int k = 0; k < 2; k++) {
        struct model *m = trained(more[k], 20);
        double share[3];
        for (int i = 0; i < 3; i++) {
            struct pass pass = kit_pass(PASS_SPARSE);
            pass.inference.offset = i - 1;
            run(m, pass);
            share[i] = share_of(m);
        }
        t_true(share[0] > share[1] + 0.05 && share[1] > share[2]);
        t_near(share[0], 0.44, 0.15); /* a normal above 1.15 - 1 standard deviations */
        model_free(m);
    }
}

T(forced_cells_are_obeyed_and_keep_the_gate_of_their_logit)
{
    static int8_t force[L * B * T];
    struct model *m = trained("mod.gate=sigmoid2", 3);
    for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind++) {
        struct pass pass = kit_pass((enum pass_kind)kind);
        for (int i = 0; i < L * B * T; i++)
            force[i] = (int8_t)(i % 3 - 1);
        pass.inference.force = force;
        pass.record = 1;
        run(m, pass);
        const real *router = kit_cells(m, "router");
        for (int l = 0; l < L; l++) {
            t_eq(m->plan[l].kv, KV_PLAN); /* also of a block that every token runs otherwise */
            for (int i = 0; i < B * T; i++) {
                int at = l * B * T + i;
                double gate = l % 2 ? 2 * sigmoid((double)router[at]) : 1;
                if (force[at] >= 0)
                    t_near(gate_of(m, l, i), force[at] ? gate : 0, 1e-6);
            }
        }
        for (int k = 0; k < m->plan[1].n; k++)
            t_true(m->plan[1].weight[k] == 0 || force[B * T + m->plan[1].row[k]] < 0);
    }
    model_free(m);
}

/* ---- causality ---- */

/* Does changing tokens from j on change anything before them? */
static int moves_the_past(struct model *m, struct pass pass)
{
    int moved = 0;
    kit_fill(&batch, B, T, V, 7);
    run(m, pass);
    real *want = kit_copy(m->stream.h[L], kit_states(m));
    for (int j = 1; j < T; j += 6) {
        kit_fill(&batch, B, T, V, 7);
        for (int t = j; t < T; t++)
            batch.id[t] = (batch.id[t] + 1) % V;
        run(m, pass);
        moved += !kit_same(m->stream.h[L], want, (size_t)j * C);
    }
    free(want);
    return moved;
}

static const char *const ways[] = {"mod.causal=router", "mod.causal=predictor mod.normalize=true",
                                   "mod.causal=threshold mod.every=1",
                                   "mod.stochastic=true mod.kv=all",
                                   "mod.causal=predictor mod.kv=all mod.gate=raw"};

T(inference_decisions_are_causal_and_ranks_are_not)
{
    for (size_t k = 0; k < DS_LEN(ways); k++) {
        struct model *m = trained(ways[k], 3);
        struct pass pass = kit_pass(PASS_SPARSE);
        t_truef(moves_the_past(m, pass) == 0, "%s", ways[k]);
        pass.inference.has_capacity = 1;
        pass.inference.capacity = 0.4;
        t_truef(moves_the_past(m, pass) == 0, "%s at a capacity", ways[k]);
        pass.inference.topk = 1;
        t_truef(moves_the_past(m, pass) > 0, "%s by rank", ways[k]);
        model_free(m);
    }
}

T(a_cache_holds_selected_tokens_only_and_equals_the_whole_pass)
{
    for (size_t k = 0; k < DS_LEN(ways); k++) {
        struct err e = {0};
        struct kv_cache *cache = NULL;
        struct model *m = trained(ways[k], 3);
        struct batch one = {.B = 1, .T = T, .id = batch.id};
        struct pass pass = kit_pass(PASS_SPARSE);
        real whole[V], got[V];
        pass.inference.has_capacity = 1;
        pass.inference.capacity = 0.4;
        model_forward(m, &one, &pass);
        int taken = m->plan[1].active;
        model_logits(m, T - 1, whole);
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        for (int at = 0, n = 9; at < T; at += n, n = at + 5 < T ? 5 : 1)
            t_ok(model_decode(m, cache, batch.id + at, n, &pass, &e), &e);
        model_logits(m, m->R - 1, got);
        for (int v = 0; v < V; v++)
            t_near(got[v], whole[v], KIT_NEAR);
        t_true(taken > 3 && taken < T);
        t_eq(cache->layer[1].n, strstr(ways[k], "kv=all") ? T : taken);
        kv_cache_free(cache);
        model_free(m);
    }
}

T(a_cached_chunk_reports_no_rank)
{
    struct err e = {0};
    struct kv_cache *cache = NULL;
    struct model *m = trained("", 2);
    struct pass pass = kit_pass(PASS_SPARSE);
    pass.record = 1;
    t_ok(kv_cache_new(&cache, m, T, &e), &e);
    t_ok(model_decode(m, cache, batch.id, 8, &pass, &e), &e);
    t_true(!isnan(kit_cells(m, "topk")[8]));
    t_ok(model_decode(m, cache, batch.id + 8, 1, &pass, &e), &e);
    t_true(isnan(kit_cells(m, "topk")[1]) && !isnan(kit_cells(m, "score")[1]));
    kv_cache_free(cache);
    model_free(m);
}

/* ---- the lot, and a predictor alone ---- */

T(random_ranks_are_new_in_each_step_and_independent_of_the_router)
{
    int32_t first[B * T];
    struct model *m = make("mod.stochastic=true mod.capacity=0.25");
    struct pass pass = kit_pass(PASS_TRAIN);
    kit_fill(&batch, B, T, V, 1);
    run(m, pass);
    memcpy(first, m->plan[1].row, sizeof first);
    struct param *w = &m->params.p[params_find(&m->params, "mod.1.router.0.weight")];
    for (size_t i = 0; i < w->n; i++)
        w->value[i] = -w->value[i];
    params_changed(&m->params);
    run(m, pass);
    t_true(memcmp(first, m->plan[1].row, B * T / 4 * sizeof *first) == 0);
    pass.step = 2;
    run(m, pass);
    t_true(memcmp(first, m->plan[1].row, B * T / 4 * sizeof *first) != 0);
    t_eq(m->plan[1].n, B * T / 4);
    model_free(m);
}

T(predictor_only_freezes_everything_else)
{
    struct model *m = make("mod.causal=predictor mod.predictor_only=true");
    struct params *ps = &m->params;
    real *before[256];
    int learnt = 0;
    t_true(ps->n <= 256);
    for (int i = 0; i < ps->n; i++)
        before[i] = kit_copy(ps->p[i].value, ps->p[i].n);
    kit_fill(&batch, B, T, V, 1);
    kit_train(m, &batch.b, 1, 2, 1e-2);
    for (int i = 0; i < ps->n; i++) {
        int is_predictor = strstr(ps->p[i].name, ".predictor.") && ps->p[i].train;
        int is_table = strstr(ps->p[i].name, "quantiles") != NULL;
        int same = kit_same(before[i], ps->p[i].value, ps->p[i].n);
        t_truef(is_table || same == !is_predictor, "%s", ps->p[i].name);
        learnt += is_predictor;
        free(before[i]);
    }
    t_eq(learnt, 6);
    model_free(m);
}

/* In a frozen model the ranks are fixed and depend on the predictor's input alone. */
T(a_predictor_learns_the_ranks_of_a_frozen_model)
{
    struct model *m =
        make("mod.causal=predictor mod.predictor_only=true mod.capacity=0.25 mod.normalize=true");
    double first = 0;
    for (int step = 1; step <= 120; step++) {
        kit_fill(&batch, B, T, V, (uint64_t)step);
        kit_train(m, &batch.b, step, 121, 1e-3);
        first = step == 1 ? kit_metric(m, "causal_loss", 0) : first;
    }
    t_true(kit_metric(m, "causal_loss", 0) < 0.5 * first);
    t_true(kit_metric(m, "causal_accuracy", 0) >
           kit_metric(m, "causal_base_rate", 0) + 0.1);
    model_free(m);
}
