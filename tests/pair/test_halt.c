/* halt: what its scores and labels are, by hand; its thresholds; what its decisions cost. */
#include "base/mem.h"
#include "kit.h"
#include "models/exits.h"
#include "models/load.h"

enum { B = 8, T = 64, R = B * T, V = 53, L = 6, C = 32 };

static struct kit_batch batch;
static const char *const rules[] = {"regret",     "velocity", "acceleration", "scalar",
                                    "confidence", "kl",       "random"};

static void same_batch(void *ctx, int k, struct batch *b)
{
    (void)ctx;
    kit_fill(&batch, B, T, V, 10 + (uint64_t)k);
    *b = batch.b;
}

#define SHAPE                                                                                      \
    "model.layers=6 model.dim=32 model.heads=2 model.vocab=53 model.init_std=0.2 "                 \
    "model.method=halt "

static struct model *model_of(const char *options, int train)
{
    char text[500];
    snprintf(text, sizeof text, "%shalt.steps=300 %s", SHAPE, options); /* a short fit will do */
    return kit_model(text, 3, R, train, 0);
}

static struct model *calibrated(const char *options)
{
    struct err e = {0};
    struct model *m = model_of(options, 0);
    t_ok(model_calibrate(m, 3, same_batch, NULL, 1, NULL, &e), &e);
    return m;
}

static struct pass at_capacity(enum pass_kind kind, double capacity)
{
    struct pass pass = kit_pass(kind);
    pass.inference.has_capacity = 1;
    pass.inference.capacity = capacity;
    return pass;
}

static const real *param(const struct model *m, const char *name)
{
    int i = params_find(&m->params, name);
    t_truef(i >= 0, "%s is missing", name);
    return m->params.p[i].value;
}

static const real *cell(const struct model *m, const char *name)
{
    for (size_t k = 0; k < m->route.ops->n_metrics; k++)
        if (m->route.ops->metrics[k].scope == METRIC_CELL &&
            strcmp(m->route.ops->metrics[k].name, name) == 0)
            return m->route.cell[k];
    t_truef(0, "no cell metric %s", name);
    return NULL;
}

/* ---- thresholds ---- */

/* Thresholds come from dense trajectories; what has left changes what others see, so the share is
 * met to a few per cent. */
T(every_rule_meets_the_capacity_on_the_text_of_its_calibration)
{
    for (size_t k = 0; k < DS_LEN(rules); k++) {
        char text[64];
        snprintf(text, sizeof text, "halt.rule=%s", rules[k]);
        struct model *m = calibrated(text);
        for (int c = 1; c < 20; c += 3) {
            double ran = 0;
            for (int b = 0; b < 3; b++) {
                struct batch now;
                struct pass pass = at_capacity(PASS_SPARSE, 0.05 * c);
                same_batch(NULL, b, &now);
                model_forward(m, &now, &pass);
                ran += (double)(m->flops.rows_run - R) / (3.0 * R * (L - 1));
            }
            t_truef(fabs(ran - 0.05 * c) < 0.05, "%s: %g at %g", rules[k], ran, 0.05 * c);
        }
        model_free(m);
    }
}

/* Rows of layer l that ran. */
static int active(const struct model *m, int l)
{
    return m->plan[l].active;
}

T(a_threshold_may_stop_everything_or_nothing)
{
    struct model *m = calibrated("halt.min=2");
    struct pass pass = kit_pass(PASS_DENSE);
    same_batch(NULL, 0, &batch.b);
    model_forward(m, &batch.b, &pass);
    real *dense = kit_copy(m->stream.h[L], kit_states(m));
    for (int by_offset = 0; by_offset < 2; by_offset++) {
        pass = at_capacity(PASS_SPARSE, 1);
        if (by_offset) {
            pass.inference.capacity = 0.5;
            pass.inference.offset = -1e6;
        }
        model_forward(m, &batch.b, &pass);
        t_true(kit_same(dense, m->stream.h[L], kit_states(m)));
        t_true((m->flops.decisions > 0) == by_offset); /* nothing to decide costs nothing */
        pass.inference.capacity = by_offset ? 0.5 : 0;
        pass.inference.offset = 1e6;
        model_forward(m, &batch.b, &pass);
        for (int l = 0; l < L; l++)
            t_eq(active(m, l), l < 2 ? R : 0);
    }
    free(dense);
    model_free(m);
}

T(a_token_that_has_left_does_not_come_back)
{
    struct model *m = calibrated("");
    uint8_t here[R];
    int left = 0;
    struct pass pass = at_capacity(PASS_SPARSE, 0.5);
    same_batch(NULL, 7, &batch.b);
    model_forward(m, &batch.b, &pass);
    memset(here, 1, sizeof here);
    for (int l = 0; l < L; l++) {
        uint8_t now[R] = {0};
        for (int k = 0; k < m->plan[l].n; k++)
            now[m->plan[l].row[k]] = 1;
        for (int i = 0; i < R; i++) {
            t_true(here[i] || !now[i]);
            left += here[i] && !now[i];
        }
        memcpy(here, now, sizeof here);
        t_eq(m->plan[l].kv, KV_ALL);
    }
    t_true(left > R / 4);
    model_free(m);
}

/* Without thresholds nothing leaves, and a request for a share is refused. */
T(before_calibration_every_layer_runs)
{
    struct err e = {0};
    struct model *m = model_of("", 0);
    struct pass pass = kit_pass(PASS_SPARSE);
    same_batch(NULL, 0, &batch.b);
    t_ok(route_ready(&m->route, &pass, &e), &e);
    model_forward(m, &batch.b, &pass);
    t_eq(m->flops.rows_run, R * L);
    pass = at_capacity(PASS_SPARSE, 0.5);
    t_fails(route_ready(&m->route, &pass, &e), &e, DS_EUSAGE, "depthscope calibrate");
    model_free(m);
}

T(calibration_is_the_same_every_time)
{
    struct model *a = calibrated("halt.steps=200"), *b = calibrated("halt.steps=200");
    kit_same_params(a, b);
    model_free(a);
    model_free(b);
}

T(a_calibration_without_memory_is_an_error_that_changes_nothing)
{
    struct model *m = calibrated("halt.steps=20"), *before = calibrated("halt.steps=20");
    int failed = 0, rc;
    do {
        struct err e = {0};
        mem_fail_at(mem_calls() + (uint64_t)failed + 1, 0);
        rc = model_calibrate(m, 2, same_batch, NULL, 9, NULL, &e);
        mem_fail_at(0, 0);
        if (rc == 0)
            break;
        t_eq(rc, DS_EMEM);
        t_truef(strstr(e.text, "calibration of halt: ") == e.text && !strchr(e.text, '\n'), "%s",
                e.text);
        kit_same_params(m, before);
    } while (++failed < 1000);
    t_truef(rc == 0 && failed > 8, "%d failures, then %d", failed, rc);
    model_free(m);
    model_free(before);
}

/* All rules have thresholds after one calibration. */
T(a_checkpoint_is_read_with_another_rule)
{
    struct err e = {0};
    char path[512];
    const char *dir = t_tmpdir();
    struct model *m = calibrated("");
    snprintf(path, sizeof path, "%s/config.json", dir);
    t_ok(model_write_config(m, path, &e), &e);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    t_ok(model_write_weights(m, path, 0, &e), &e);
    for (size_t k = 0; k < DS_LEN(rules); k++) {
        struct config options = {0};
        struct model *copy = NULL, *own;
        char text[64];
        struct pass pass = at_capacity(PASS_SPARSE, 0.4);
        snprintf(text, sizeof text, "halt.rule=%s", rules[k]);
        t_ok(config_override(&options, text, "test", &e), &e);
        t_ok(model_open(&copy, dir, &options, 0, &e), &e);
        t_ok(model_reserve(copy, R, 0, 0, &e), &e);
        t_ok(route_ready(&copy->route, &pass, &e), &e);
        own = calibrated(text);
        copy->route.seed = own->route.seed;
        same_batch(NULL, 7, &batch.b);
        model_forward(own, &batch.b, &pass);
        model_forward(copy, &batch.b, &pass);
        t_truef(copy->flops.rows_run < R * L &&
                    kit_same(own->stream.h[L], copy->stream.h[L], kit_states(own)),
                "%s", rules[k]);
        config_release(&options);
        model_free(copy);
        model_free(own);
    }
    model_free(m);
}

static void check_promises(const char *shape)
{
    enum { AT = 40 };
    for (size_t k = 0; k < DS_LEN(rules); k++) {
        struct err e = {0};
        struct kv_cache *cache = NULL;
        char text[128];
        real want[V], got[V];
        snprintf(text, sizeof text, "%s halt.rule=%s halt.kv=%s", shape, rules[k],
                 k % 2 ? "plan" : "all");
        struct model *m = calibrated(text);
        t_eq(m->route.L, L);
        struct pass pass = at_capacity(PASS_MASKED, 0.5);
        same_batch(NULL, 7, &batch.b);
        model_forward(m, &batch.b, &pass);
        real *whole = kit_copy(m->stream.h[L], kit_states(m));
        model_logits(m, AT - 1, want);
        t_true(m->flops.rows_run < R * L && m->plan[1].kv == (k % 2 ? KV_PLAN : KV_ALL));
        pass.kind = PASS_SPARSE;
        model_forward(m, &batch.b, &pass);
        t_truef(kit_same(whole, m->stream.h[L], kit_states(m)), "%s: gathered", rules[k]);
        for (int t = AT; t < T; t++)
            batch.id[t] = (batch.id[t] + 1) % V;
        model_forward(m, &batch.b, &pass);
        t_truef(kit_same(whole, m->stream.h[L], (size_t)AT * C), "%s: causal", rules[k]);
        t_true(!kit_same(whole, m->stream.h[L], (size_t)(AT + 1) * C));
        struct batch prefix = {.B = 1, .T = AT, .id = batch.id};
        model_forward(m, &prefix, &pass);
        t_truef(kit_same(whole, m->stream.h[L], (size_t)AT * C), "%s: a prefix", rules[k]);
        int32_t two[2 * AT];
        memcpy(two, batch.id + T, sizeof two / 2);
        memcpy(two + AT, batch.id, sizeof two / 2);
        prefix = (struct batch){.B = 2, .T = AT, .id = two};
        model_forward(m, &prefix, &pass);
        t_truef(kit_same(whole, m->stream.h[L] + AT * C, (size_t)AT * C), "%s: in a batch",
                rules[k]);
        t_ok(kv_cache_new(&cache, m, T, &e), &e);
        for (int t = 0; t < AT; t++)
            t_ok(model_decode(m, cache, batch.id + t, 1, &pass, &e), &e);
        model_logits(m, 0, got);
        for (int v = 0; v < V; v++)
            t_near(got[v], want[v], 1e-3);
        t_true(!cache->memory);
        kv_cache_free(cache);
        free(whole);
        model_free(m);
    }
}

/* The registry's tests see the default rule; these hold for each. */
T(every_rule_is_causal_gathered_and_cached)
{
    check_promises("");
}

T(every_rule_of_a_loop_is_causal_gathered_and_cached)
{
    check_promises("model.layers=2 model.loop=3");
}

/* ---- scores ---- */

static double norm_of(const double *x)
{
    double sum = 0;
    for (int c = 0; c < C; c++)
        sum += x[c] * x[c];
    return sqrt(sum);
}

/* Velocity, acceleration, scalar and turn of the state before layer l. */
static void motion(const struct model *m, int l, int i, double out[4])
{
    double h[C], d[C], o[C], change[C], dot = 0;
    for (int c = 0; c < C; c++) {
        const real *const *s = (const real *const *)m->stream.h;
        h[c] = (double)s[l][i * C + c];
        d[c] = h[c] - (double)s[l - 1][i * C + c];
        o[c] = l > 1 ? (double)s[l - 1][i * C + c] - (double)s[l - 2][i * C + c] : 0;
        change[c] = d[c] - o[c];
        dot += d[c] * o[c];
    }
    out[0] = norm_of(d) / norm_of(h);
    out[1] = norm_of(change) / norm_of(h);
    out[2] = fabs(norm_of(d) - norm_of(o));
    out[3] = l > 1 ? dot / (norm_of(d) * norm_of(o)) : 0;
}

T(recorded_features_and_scores_are_those_of_the_tokens_own_states)
{
    static real doubt[(L + 1) * R], kl[(L + 1) * R];
    struct exit_values x = {.doubt = doubt, .kl = kl};
    for (size_t k = 0; k < DS_LEN(rules); k++) {
        char text[64];
        snprintf(text, sizeof text, "halt.rule=%s", rules[k]);
        struct model *m = calibrated(text);
        struct pass pass = at_capacity(PASS_SPARSE, 0.6);
        int checked = 0;
        pass.record = 1;
        same_batch(NULL, 7, &batch.b);
        model_forward(m, &batch.b, &pass);
        model_exits(m, &x);
        const real *score = cell(m, "score"), *tau = cell(m, "threshold");
        for (int i = 0; i < R; i++) {
            double low = 1e30, now[4];
            for (int l = 1; l < L; l++) {
                int at = l * R + i;
                if (!isfinite(score[at]))
                    break; /* it has left */
                motion(m, l, i, now);
                uint32_t place = (uint32_t)batch.id[i] * 2654435761u + (uint32_t)(i % T);
                double own[] = {0, now[0], now[1], now[2], (double)doubt[at], (double)kl[at],
                                rng_at(m->route.seed, RNG_ROUTE, 0, (uint32_t)l, place)};
                low = fmin(low, k == 0 ? (double)score[at] : own[k]);
                t_truef(fabs((double)score[at] - low) < 1e-4 * (1 + fabs(low)), "%s: %g, not %g",
                        rules[k], (double)score[at], low);
                t_true(tau[at] == tau[R]);
                t_eq(cell(m, "exited")[at], score[at] <= tau[at]);
                if (k > 0)
                    continue;
                checked++;
                t_near(cell(m, "velocity")[at], now[0], 1e-4);
                t_near(cell(m, "acceleration")[at], now[1], 1e-4);
                t_near(cell(m, "turn")[at], now[3], 1e-4);
                t_near(cell(m, "confidence")[at], exp(-(double)doubt[at]), 1e-4);
            }
        }
        t_true(k > 0 || checked > R);
        model_free(m);
    }
}

/* ---- labels ---- */

/* The mean stored threshold of rule=regret after a calibration whose every exit loses `regret` more
 * than the last, `odd` more for odd rows, or predicts another token. */
static double learned_of(const int32_t *target, const char *options, double regret, double odd,
                         int agrees)
{
    static real nll[(L + 1) * R], doubt[(L + 1) * R], entropy[(L + 1) * R], kl[(L + 1) * R];
    static int32_t best[(L + 1) * R];
    struct model *m = model_of(options, 0);
    struct pass pass = kit_pass(PASS_DENSE);
    double sum = 0;
    same_batch(NULL, 0, &batch.b);
    model_forward(m, &batch.b, &pass);
    for (int at = 0; at < (L + 1) * R; at++) {
        nll[at] = (real)(3 + (at / R >= L ? 0 : at % 2 ? odd : regret));
        best[at] = at / R < L && !agrees ? 7 : 3;
        doubt[at] = entropy[at] = kl[at] = 1;
    }
    struct losses x = {.target = target,
                       .R = R,
                       .L = L,
                       .exit_nll = nll,
                       .exit_doubt = doubt,
                       .exit_entropy = entropy,
                       .exit_kl = kl,
                       .exit_best = best,
                       .planned = R};
    m->route.ops->calibrate(&m->route, 1, NULL);
    m->route.ops->observe(&m->route, &m->stream, &x, NULL);
    m->route.ops->calibrate(&m->route, 0, NULL);
    for (int g = 0; g < ROUTE_GRID; g++)
        sum += (double)param(m, "halt.quantiles")[g] / ROUTE_GRID;
    model_free(m);
    return sum;
}

static double learned(const char *options, double regret, int agrees)
{
    return learned_of(batch.target, options, regret, regret, agrees);
}

T(a_token_without_a_target_has_nothing_to_gain)
{
    static int32_t none[R];
    memset(none, -1, sizeof none);
    t_near(learned_of(none, "", 1.25, 1.25, 1), 0, 0.02);
    t_near(learned_of(none, "halt.label=agree", 1.25, 1.25, 0), 1, 0.02);
}

/* The head may lack a row for a target, whose losses are NaN: nothing is learned from it. */
T(a_token_whose_loss_is_unknown_teaches_nothing)
{
    t_near(learned_of(batch.target, "", 1.25, (double)NAN, 1), 1.25, 0.02);
}

T(the_label_is_the_clamped_regret_or_disagreement)
{
    t_near(learned("", 1.25, 1), 1.25, 0.02);
    t_near(learned("halt.steps=1000", 10, 1), 5, 0.02);
    t_near(learned("", -0.5, 1), -0.5, 0.02);
    t_near(learned("halt.steps=1000", -10, 1), -2, 0.02);
    t_near(learned("halt.label=agree", 10, 1), 0, 0.02);
    t_near(learned("halt.label=agree", 0, 0), 1, 0.02);
}

/* ---- cost ---- */

/* Rows that are asked at each exit: those that ran the layer before. */
static double asked(const struct model *m)
{
    double n = 0;
    for (int l = 1; l < L; l++)
        n += active(m, l - 1);
    return n;
}

T(decisions_cost_what_they_read_for_the_rows_that_are_still_there)
{
    const double head = 2.0 * C * V, move = 8.0 * C;
    /* 16 units on 5 inputs, their standardisation and one output */
    const double net = 2 * 5 + 2 * 5 * 16 + 2 * 16, no_head = 2 * 3 + 2 * 3 * 16 + 2 * 16;
    const struct {
        const char *options;
        double each;
    } rows[] = {
        {"halt.rule=regret", head + move + net},
        {"halt.rule=regret halt.features=velocity,turn", move + no_head},
        {"halt.rule=velocity", move},
        {"halt.rule=scalar", move},
        {"halt.rule=confidence", head},
        {"halt.rule=kl", 2 * head},
        {"halt.rule=random", 0},
    };
    for (size_t k = 0; k < DS_LEN(rows); k++) {
        struct model *m = calibrated(rows[k].options);
        for (int kind = PASS_MASKED; kind <= PASS_SPARSE; kind++) {
            struct pass pass = at_capacity((enum pass_kind)kind, 0.5);
            same_batch(NULL, 7, &batch.b);
            model_forward(m, &batch.b, &pass);
            double router = 0, n = asked(m);
            for (int l = 0; l < L; l++)
                router += m->flops.part[l * FLOPS_PARTS + FLOPS_ROUTER];
            t_true(n < (L - 1) * R && n > R);
            t_near(router, n * rows[k].each, 1e-6 * router);
            t_near(m->flops.decisions, router, 1e-6 * router);
        }
        model_free(m);
    }
}

/* ---- training ---- */

/* Training runs every layer, and the method leaves the model's gradients alone. */
T(the_predictor_has_no_gradient_into_the_model)
{
    struct model *m[2] = {model_of("halt.fit=train halt.aux=10", 1),
                          kit_model("model.layers=6 model.dim=32 model.heads=2 model.vocab=53 "
                                    "model.init_std=0.2 model.method=dense",
                                    3, R, 1, 0)};
    struct pass pass = kit_pass(PASS_TRAIN);
    same_batch(NULL, 0, &batch.b);
    for (int k = 0; k < 2; k++)
        kit_step(m[k], &batch.b, &pass);
    t_true(m[0]->aux_loss > 0 && m[1]->aux_loss == 0);
    for (int i = 0; i < m[1]->params.n; i++)
        t_truef(kit_same(m[0]->params.p[i].grad, m[1]->params.p[i].grad, m[1]->params.p[i].n), "%s",
                m[1]->params.p[i].name);
    model_free(m[0]);
    model_free(m[1]);
}

/* What was learned on the way needs no calibration. */
T(a_predictor_learned_in_training_is_ready_for_use)
{
    struct err e = {0};
    struct model *m = model_of("halt.fit=train", 1);
    struct pass pass = at_capacity(PASS_SPARSE, 0.5);
    for (int step = 1; step <= 40; step++) {
        same_batch(NULL, step, &batch.b);
        kit_train(m, &batch.b, step, 40, 1e-3);
    }
    t_ok(route_ready(&m->route, &pass, &e), &e);
    model_forward(m, &batch.b, &pass);
    double ran = (double)(m->flops.rows_run - R) / ((double)R * (L - 1));
    t_truef(fabs(ran - 0.5) < 0.15, "%g", ran);
    t_true(m->route.metric[0][0] > 0);
    model_free(m);
}

/* As of one with NaN: the trainer updates nothing then. */
T(a_skipped_step_leaves_no_statistics)
{
    static const char *const stored[] = {"halt.mean", "halt.sd", "halt.quantiles"};
    struct model *m[2];
    for (int k = 0; k < 2; k++) {
        struct pass pass = kit_pass(PASS_TRAIN);
        m[k] = model_of("halt.fit=train", 1);
        for (int step = k; step < 2; step++) {
            same_batch(NULL, step, &batch.b);
            kit_step(m[k], &batch.b, &pass);
        }
        m[k]->route.ops->update(&m[k]->route);
    }
    for (size_t i = 0; i < DS_LEN(stored); i++) {
        size_t n = m[0]->params.p[params_find(&m[0]->params, stored[i])].n;
        t_truef(kit_same(param(m[0], stored[i]), param(m[1], stored[i]), n), "%s", stored[i]);
    }
    model_free(m[0]);
    model_free(m[1]);
}

/* They are read after every pass that trains; each has memory of its own. */
T(what_a_predictor_learns_from_are_the_values_of_every_exit)
{
    static real doubt[(L + 1) * R], entropy[(L + 1) * R], kl[(L + 1) * R];
    struct exit_values x = {.doubt = doubt, .entropy = entropy, .kl = kl};
    struct model *m = model_of("halt.fit=train", 1);
    struct pass pass = kit_pass(PASS_TRAIN);
    same_batch(NULL, 0, &batch.b);
    model_forward(m, &batch.b, &pass);
    model_loss(m, 1, 0);
    model_backward(m);
    model_exits(m, &x);
    for (int l = 1; l <= L; l++)
        for (int i = 0; i < R; i++) {
            int at = l * R + i;
            t_near(m->exits.doubt[at], doubt[at], 1e-6 * (1 + (double)doubt[at]));
            t_near(m->exits.entropy[at], entropy[at], 1e-6 * (1 + (double)entropy[at]));
            t_near(m->exits.kl[at], kl[at], 1e-6 * (1 + (double)kl[at]));
        }
    t_true(fabs((double)entropy[R] - (double)kl[R]) > 1e-3);
    model_free(m);
}

/* A step that draws one iteration has no exit whose label is known. */
T(a_step_of_one_iteration_teaches_the_predictor_nothing)
{
    struct model *m = model_of("halt.fit=train model.loop=3 model.loop_min=1", 1);
    int without = 0;
    for (int step = 1; step <= 12; step++) {
        same_batch(NULL, step, &batch.b);
        t_truef(isfinite(kit_train(m, &batch.b, step, 12, 1e-3)), "step %d", step);
        t_truef(m->aux_loss >= 0, "step %d: %g", step, m->aux_loss);
        without += !(m->aux_loss > 0);
    }
    t_truef(without > 0 && without < 12, "%d of 12 steps", without);
    model_free(m);
}

/* The state as a feature has an input per channel. */
T(the_state_can_be_a_feature)
{
    struct model *m = calibrated("halt.features=state,velocity halt.steps=300");
    int i = params_find(&m->params, "halt.head.0.weight");
    t_eq(m->params.p[i].shape[1], C + 2);
    struct pass pass = at_capacity(PASS_SPARSE, 0.5);
    same_batch(NULL, 0, &batch.b);
    model_forward(m, &batch.b, &pass);
    t_true(m->flops.rows_run > R && m->flops.rows_run < R * L);
    model_free(m);
}

/* ---- loops ---- */

T(in_a_loop_tokens_leave_between_iterations_and_the_last_blocks_always_run)
{
    enum { DEPTH = 10 }; /* 1 + 4 x 2 + 1 */
    struct err e = {0};
    struct model *m = kit_model("model.layers=4 model.loop=4 model.loop_first=1 model.loop_last=1 "
                                "model.dim=32 model.heads=2 model.vocab=53 model.init_std=0.2 "
                                "model.method=halt",
                                3, R, 0, 0);
    struct pass pass = at_capacity(PASS_SPARSE, 0.5);
    t_ok(model_calibrate(m, 2, same_batch, NULL, 1, NULL, &e), &e);
    same_batch(NULL, 0, &batch.b);
    model_forward(m, &batch.b, &pass);
    int ran = 0;
    for (int l = 0; l < DEPTH; l++) {
        int free = l >= 3 && l < 9;
        t_eq(m->route.ops->always_on(&m->route, l), !free);
        t_true(free || active(m, l) == R);
        if (free && l % 2 == 0)
            t_eq(active(m, l), active(m, l - 1));
        ran += free ? active(m, l) : 0;
    }
    t_truef(fabs(ran / (6.0 * R) - 0.5) < 0.06, "%g", ran / (6.0 * R));
    /* each iteration's end asks the rows that ran it: head, motion, and a network of five inputs */
    double asked_rows = active(m, 2) + active(m, 4) + active(m, 6), router = 0;
    double each = 2.0 * C * V + 8.0 * C + 2 * 5 + 2 * 5 * 16 + 2 * 16;
    for (int l = 0; l < DEPTH; l++)
        router += m->flops.part[l * FLOPS_PARTS + FLOPS_ROUTER];
    t_near(router, asked_rows * each, 1e-6 * router);
    t_near(m->flops.decisions, router, 1e-6 * router);
    model_free(m);
}

/* ---- bad input ---- */

T(wrong_options_are_refused_in_one_line)
{
    static const struct {
        const char *options;
        int code;
        const char *says;
    } rows[] = {
        {"halt.features=velocity,speed", DS_EUSAGE, "unknown \"speed\", expected velocity"},
        {"halt.features=velocity,", DS_EUSAGE, "expected velocity"},
        {"halt.features=kl,velocity,kl", DS_EUSAGE, "duplicate kl"},
        {"halt.min=6", DS_ERANGE, "halt.min=6 leaves no exit"},
        {"model.layers=1", DS_ERANGE, "the only layer (or iteration); expected 2 or more"},
        {"model.layers=3 model.loop=2 model.loop_first=2 halt.min=2", DS_ERANGE, "no exit"},
        {"halt.min=0", DS_EUSAGE, "halt.min"},
        {"halt.rule=speed", DS_EUSAGE, "halt.rule"},
        {"halt.capacity=1.5", DS_EUSAGE, "halt.capacity"},
        {"halt.fit=train model.loop=2 model.loop_last=1", DS_EUSAGE, "model.loop_last"},
    };
    for (size_t k = 0; k < DS_LEN(rows); k++) {
        struct err e = {0};
        struct model *m = NULL;
        char text[500];
        snprintf(text, sizeof text, "%s%s", SHAPE, rows[k].options);
        t_fails(kit_try(&m, text, 1, 0, &e), &e, rows[k].code, rows[k].says);
        t_true(!strchr(e.text, '\n'));
        model_free(m);
    }
}
