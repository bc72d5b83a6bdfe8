/* Every result of an evaluation against a manual count, on models whose decisions the test sets. */
#include "fake_method.h"
#include "../kit.h"
#include "base/mem.h"
#include "io/record.h"
#include "models/measure.h"

enum { L = 4, V = 16, ROWS = 2048 };

static struct kit_batch batch;

static struct model *fake_model(int rows)
{
    struct err e = {0};
    struct model *m = NULL;
    t_ok(kit_try(&m,
                 "model.layers=4 model.dim=16 model.heads=2 model.vocab=16 model.max_seq=4096 "
                 "model.init_std=0.3 model.method=dense",
                 3, 0, &e),
         &e);
    m->route.ops = &fake_ops;
    t_ok(model_reserve(m, rows, 0, 0, &e), &e);
    return m;
}

static struct measure measure_of(struct model *m, const struct pass *pass)
{
    struct measure s;
    struct err e = {0};
    struct pass p = *pass;
    p.kind = PASS_SPARSE;
    p.record = 1;
    t_ok(measure_init(&s, m, batch.b.T, 64, &e), &e);
    model_forward(m, &batch.b, &p);
    model_loss(m, 0, 1);
    t_ok(measure_add(&s, m, &(struct measure_known){0}, 0, &e), &e);
    return s;
}

static double number_of(const struct measure *s, const char *key)
{
    struct measure_scalar x[MEASURE_SCALARS_MAX];
    size_t n = measure_scalars(s, x);
    for (size_t i = 0; i < n; i++)
        if (strcmp(x[i].key, key) == 0)
            return x[i].value;
    t_truef(0, "there is no result %s", key);
    return 0;
}

static double entropy(double p)
{
    return -p * log(p) - (1 - p) * log(1 - p);
}

/* ---- what decisions follow ---- */

static int low_ids(const struct route *r, int l, int i)
{
    return r->pass.id[i] < 4 * l; /* layer 1: 4 of 16 ids, 2: 8, 3: 12 */
}

T(a_gate_that_is_a_function_of_the_token_has_its_whole_entropy_as_mi)
{
    struct model *m = fake_model(ROWS);
    struct pass pass = {0};
    double mean = 0;
    kit_fill(&batch, 2, ROWS / 2, V, 1);
    fake_runs = low_ids;
    struct measure s = measure_of(m, &pass);
    t_near(decisions_mi(&s.decisions, 0), 0, 0); /* always on */
    for (int l = 1; l < L; l++) {
        double ran = 0;
        for (int i = 0; i < ROWS; i++)
            ran += batch.id[i] < 4 * l;
        /* the plug-in estimate of a random gate is near (V - 1) / 2N when every id is frequent */
        double want = entropy(ran / ROWS) - (V - 1) / (2.0 * ROWS);
        t_near(decisions_mi(&s.decisions, l), want, 1e-4);
        mean += want / (L - 1);
    }
    t_near(number_of(&s, "mi_mean"), mean, 1e-4);
    measure_release(&s);
    model_free(m);
}

static int chance_mi(const struct route *r, int l, int i)
{
    (void)r;
    return rng_at(9, RNG_TEST, 7, (uint32_t)l, (uint32_t)i) < 0.3;
}

static int stripes(const struct route *r, int l, int i)
{
    double phase = r->pass.pos[i] * 0.6180339887498949 + l * 0.41421356237309503;
    return phase - floor(phase) < 0.6;
}

/* Most ids are seen once or twice and few rows are executed: a correction by cell counts is far too
 * large there. */
T(rare_ids_and_rare_executions_have_no_spurious_mi)
{
    enum { IDS = 600 };
    static uint32_t seen[IDS], run[IDS];
    struct decisions d = {.L = 1, .V = IDS, .seen = seen, .run = run};
    for (int v = 0; v < IDS; v++) {
        seen[v] = 1 + (v % 3 == 0);
        d.rows += seen[v];
        for (uint32_t k = 0; k < seen[v]; k++)
            run[v] += rng_at(9, RNG_TEST, 8, (uint32_t)v, k) < 0.03;
    }
    t_near(decisions_mi(&d, 0), 0, 0.015); /* a correction by cell counts would subtract 0.37 */
    for (int v = 0; v < IDS; v++)
        run[v] = v % 20 == 0 ? seen[v] : 0; /* now the id decides; much of that looks like chance */
    t_true(decisions_mi(&d, 0) > 0.01);
}

/* Tokens that exit early execute no attention either; a control must skip attention at the same
 * share. */
/* Greedy accuracy, loss and depth of each class and required depth. */
T(answers_are_counted_by_class_and_required_depth)
{
    enum { N = 256, QUERY = 10, ANSWER = 11, BY_TEXT = 255 };
    static float needed[N];
    static uint8_t class_of[N], target_class[N];
    struct err e = {0};
    struct pass pass = {.kind = PASS_SPARSE, .record = 1};
    struct model *m = fake_model(N);
    fake_runs = low_ids;
    fake_cell = NULL;
    kit_fill(&batch, 2, N / 2, V, 1);
    for (int i = 0; i < N; i++) {
        needed[i] = i % 4 == 1 ? (float)(1 + i % 3) : 0;
        class_of[i] = BY_TEXT;
        target_class[i] = i % 4 == 1 ? ANSWER : i % 4 == 0 ? QUERY : BY_TEXT;
    }
    struct measure s;
    real logits[V];
    t_ok(measure_init(&s, m, N / 2, 64, &e), &e);
    model_forward(m, &batch.b, &pass);
    for (int i = 0; i < N; i += 3) { /* some targets are right */
        model_logits(m, i, logits);
        for (int v = 1, best = 0; v < V; v++) {
            best = logits[v] > logits[best] ? v : best;
            batch.target[i] = best;
        }
    }
    batch.target[1] = -1; /* not counted */
    model_loss(m, 0, 1);
    struct measure_known known = {
        .needed = needed, .class_of = class_of, .target_class = target_class};
    t_ok(measure_add(&s, m, &known, 0, &e), &e);
    double n[2][16] = {{0}}, right[2][16] = {{0}}, nll[2][16] = {{0}}, depth[2][16] = {{0}},
           all = 0, answers = 0;
    for (int i = 0; i < N; i++) {
        int at[2] = {i % 4 == 1 ? ANSWER : i % 4 == 0 ? QUERY : -1, (int)needed[i] - 1};
        int top = 0;
        model_logits(m, i, logits);
        for (int v = 1; v < V; v++)
            top = logits[v] > logits[top] ? v : top;
        for (int k = 0; k < 2 && batch.target[i] >= 0; k++)
            if (at[k] >= 0) {
                n[k][at[k]]++;
                right[k][at[k]] += top == batch.target[i];
                nll[k][at[k]] += (double)m->nll[i];
                for (int l = 0; l < L; l++)
                    depth[k][at[k]] += l < fake_on || batch.id[i] < 4 * l;
            }
        all += batch.target[i] >= 0 && top == batch.target[i];
        answers += i % 4 == 1 && batch.target[i] >= 0 && top == batch.target[i];
    }
    static const char *const key[2][4] = {
        {"loss_by_class", "accuracy_by_class", "depth_by_class", "tokens_by_class"},
        {"loss_by_k", "accuracy_by_k", "depth_by_k", "tokens_by_k"}};
    double x[MEASURE_NEEDED_MAX];
    int len;
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < 4; i++) {
            t_str(measure_part_vector(&s, 4 * k + i, x, &len), key[k][i]);
            t_eq(len, k ? 3 : ANSWER + 1);
            for (int c = 0; c < len; c++) {
                double want = i == 0   ? nll[k][c] / n[k][c]
                              : i == 1 ? right[k][c] / n[k][c]
                              : i == 2 ? depth[k][c] / n[k][c]
                                       : n[k][c];
                t_truef(isnan(want) ? isnan(x[c]) : fabs(x[c] - want) < 1e-6,
                        "%s[%d] = %g, want %g", key[k][i], c, x[c], want);
            }
        }
    t_true(measure_part_vector(&s, 8, x, &len) == NULL);
    t_near(number_of(&s, "accuracy"), all / (N - 1), 1e-12);
    t_near(number_of(&s, "answer_accuracy"), answers / (N / 4 - 1), 1e-12);
    t_true(all > N / 3 && answers > 10 && answers < N / 4 - 10);
    measure_release(&s);
    model_free(m);
}

T(controls_of_split_layers_execute_as_much_attention_as_the_method)
{
    struct err e = {0};
    struct model *m = NULL;
    struct pass use = {.kind = PASS_SPARSE, .seed = 3};
    t_ok(kit_try(&m,
                 "model.layers=8 model.dim=16 model.heads=2 model.vocab=16 model.max_seq=4096 "
                 "model.init_std=0.3 model.method=hat hat.exits=on hat.exit_bias=0 hat.capacity=1 "
                 "hat.exit_layers=2,4",
                 3, 0, &e),
         &e);
    for (int i = 0; i < m->params.n; i++)
        for (size_t k = 0; strncmp(m->params.p[i].name, "hat.exit", 8) == 0 && k < m->params.p[i].n;
             k++)
            m->params.p[i].value[k] *= 20; /* gates that distinguish tokens */
    t_ok(model_reserve(m, ROWS, 0, 0, &e), &e);
    kit_fill(&batch, 2, ROWS / 2, V, 1);
    struct measure s = measure_of(m, &use);
    double left = 1 - s.attention[7] / ROWS;
    t_truef(left > 0.1 && left < 0.9, "%g left", left);
    for (int kind = CONTRAST_RANDOM; kind <= CONTRAST_STATIC; kind++) {
        t_ok(measure_contrast(&s, m, (enum contrast_kind)kind, &batch.b, &use, 3, &e), &e);
        t_near(contrast_flops_ratio(&s.contrast, (enum contrast_kind)kind), measure_model_ratio(&s),
               0.02);
    }
    measure_release(&s);
    model_free(m);
}

T(a_gate_independent_of_the_token_has_no_mi_after_bias_correction)
{
    int (*const rule[])(const struct route *, int, int) = {chance_mi, stripes};
    struct model *m = fake_model(ROWS);
    struct pass pass = {0};
    double sd = sqrt(2.0 * (V - 1)) / (2 * ROWS); /* of chi^2 / 2N */
    kit_fill(&batch, 2, ROWS / 2, V, 1);
    for (size_t k = 0; k < DS_LEN(rule); k++) {
        double sum = 0;
        fake_runs = rule[k];
        struct measure s = measure_of(m, &pass);
        for (int l = 1; l < L; l++) {
            t_near(decisions_mi(&s.decisions, l), 0, 4 * sd);
            sum += decisions_mi(&s.decisions, l);
        }
        /* without the correction the mean of three would be near 15 / 4096 = 0.0037 */
        t_near(sum / (L - 1), 0, 3 * sd / sqrt(L - 1));
        measure_release(&s);
    }
    model_free(m);
}

static real soft_cell(const struct route *r, int k, int l, int i)
{
    (void)r;
    if (k != FAKE_GATE)
        return (real)NAN;
    return (real)(l == 1 ? 0.3 : l == 2 ? (i % 2 ? 0.1 : 0.9) : i == 5 ? 1.5 : 0.5);
}

static real hard_cell(const struct route *r, int k, int l, int i)
{
    (void)r;
    return (real)(k == FAKE_GATE && (i + l) % 2);
}

T(soft_gate_mi_measures_the_distance_from_constant)
{
    struct model *m = fake_model(ROWS);
    struct pass pass = {0};
    kit_fill(&batch, 1, 512, V, 1);
    fake_runs = chance_mi;
    fake_cell = soft_cell;
    struct measure s = measure_of(m, &pass);
    t_near(decisions_mi_soft(&s.decisions, 1), 0, 1e-6);
    t_near(decisions_mi_soft(&s.decisions, 2), log(2) - entropy(0.1), 1e-6);
    t_true(isnan(decisions_mi_soft(&s.decisions, 0)));
    t_true(isnan(decisions_mi_soft(&s.decisions, 3))); /* 1.5 is not a soft gate */
    t_near(number_of(&s, "mi_soft_mean"), 0.5 * (log(2) - entropy(0.1)), 1e-6);
    measure_release(&s);
    fake_cell = hard_cell;
    s = measure_of(m, &pass);
    t_true(isnan(number_of(&s, "mi_soft_mean")));
    measure_release(&s);
    model_free(m);
}

T(depth_variance_covers_all_tokens_with_a_target_independent_of_samples)
{
    struct model *m = fake_model(ROWS);
    struct pass pass = {0};
    double sum = 0, squares = 0, n = 0;
    kit_fill(&batch, 2, 500, V, 2);
    for (int i = 0; i < 1000; i += 7)
        batch.target[i] = -1;
    fake_runs = low_ids;
    struct measure s = measure_of(m, &pass);
    t_eq(s.n, 64);
    for (int i = 0; i < 1000; i++) {
        double depth = 1 + (batch.id[i] < 4) + (batch.id[i] < 8) + (batch.id[i] < 12);
        if (batch.target[i] < 0)
            continue;
        n += 1;
        sum += depth;
        squares += depth * depth;
    }
    double variance = (squares - sum * sum / n) / (n - 1);
    t_near(number_of(&s, "depth_mean"), sum / n, 1e-9);
    t_near(number_of(&s, "depth_variance"), variance, 1e-9);
    t_near(number_of(&s, "depth_sd"), sqrt(variance), 1e-9);
    measure_release(&s);
    model_free(m);
}

/* ---- what decisions predict ---- */

/* Ten rows: top-k chose 4, of which 3 were executed; 2 more were executed; 4 rows neither; one has
 * no rank. */
static const int ran[10] = {1, 1, 1, 0, 1, 1, 0, 0, 0, 1};
static const int chosen[10] = {1, 1, 1, 1, 0, 0, 0, 0, 0, -1};

static int listed(const struct route *r, int l, int i)
{
    return r->pass.inference.topk ? chosen[i] == 1 : l == 2 ? 0 : ran[i];
}

static real listed_cell(const struct route *r, int k, int l, int i)
{
    (void)r;
    if (k == FAKE_TOPK)
        return l == 3 || chosen[i] < 0 ? (real)NAN : (real)chosen[i];
    if (k == FAKE_SCORE)
        return l == 1 && (i == 2 || i == 9) ? (real)NAN : 0;
    return k == FAKE_THRESHOLD && l == 1 && i != 9 ? 0 : (real)NAN;
}

T(top_k_predictor_scores_match_a_manual_count)
{
    struct model *m = fake_model(10);
    struct pass pass = {0};
    struct prediction p;
    kit_fill(&batch, 1, 10, V, 2);
    fake_runs = listed;
    fake_cell = listed_cell;
    struct measure s = measure_of(m, &pass);
    p = decisions_prediction(&s.decisions, 1);
    t_near(prediction_cells(&p), 9, 0);
    t_near(prediction_precision(&p), 3.0 / 5, 1e-12);
    t_near(prediction_recall(&p), 3.0 / 4, 1e-12);
    t_near(prediction_f1(&p), 2 * 0.6 * 0.75 / (0.6 + 0.75), 1e-12);
    t_near(prediction_base(&p), 4.0 / 9, 1e-12);
    t_near(prediction_accuracy(&p), 6.0 / 9, 1e-12);
    p = decisions_prediction(&s.decisions, 2); /* nothing was executed */
    t_true(isnan(prediction_precision(&p)));
    t_near(prediction_recall(&p), 0, 0);
    t_near(prediction_f1(&p), 0, 0);
    p = decisions_prediction(&s.decisions, 3); /* no ranks */
    t_true(isnan(prediction_base(&p)) && isnan(prediction_f1(&p)));
    t_near(number_of(&s, "predictor_precision"), 3.0 / 5, 1e-12);
    t_near(number_of(&s, "predictor_recall"), 3.0 / 8, 1e-12);
    t_near(number_of(&s, "predictor_accuracy"), 11.0 / 18, 1e-12);
    t_near(number_of(&s, "nan_scores"), 1, 0); /* row 9 was not compared */
    measure_release(&s);
    model_free(m);
}

/* ---- other passes over the same tokens ---- */

static double loss_of(struct model *m, struct pass pass)
{
    model_forward(m, &batch.b, &pass);
    return model_loss(m, 0, 0);
}

T(top_k_and_dense_losses_come_from_executed_passes)
{
    struct model *m = fake_model(10);
    struct pass use = {.seed = 5};
    struct err e = {0};
    kit_fill(&batch, 1, 10, V, 2);
    fake_runs = listed;
    fake_cell = NULL;
    struct measure s = measure_of(m, &use);
    double causal = loss_of(m, (struct pass){.kind = PASS_SPARSE});
    double topk = loss_of(m, (struct pass){.kind = PASS_SPARSE, .inference.topk = 1});
    double dense = loss_of(m, (struct pass){.kind = PASS_DENSE});
    t_true(causal != topk && causal != dense);
    t_str(measure_not_causal(&s), "");
    t_true(isnan(number_of(&s, "topk_gap")) && isnan(number_of(&s, "dense_loss")));
    t_ok(measure_contrast(&s, m, CONTRAST_TOPK, &batch.b, &use, 0, &e), &e);
    t_ok(measure_contrast(&s, m, CONTRAST_DENSE, &batch.b, &use, 0, &e), &e);
    t_near(number_of(&s, "loss"), causal, 1e-12);
    t_near(number_of(&s, "topk_loss"), topk, 1e-12);
    t_near(number_of(&s, "topk_gap"), causal - topk, 1e-12);
    t_near(number_of(&s, "dense_loss"), dense, 1e-12);
    double x[L];
    int there;
    t_str(measure_vector(&s, 1, x, &there), "capacity_topk");
    t_true(there);
    t_near(x[0], 1, 0);
    t_near(x[1], 0.4, 1e-12);
    t_true(strstr(measure_not_causal(&s), "topk_loss") != NULL);
    measure_release(&s);
    use.inference.topk = 1;
    s = measure_of(m, &use);
    t_true(s.is_topk && strstr(measure_not_causal(&s), "loss") == measure_not_causal(&s));
    measure_release(&s);
    model_free(m);
}

/* Rates of a control within 4 standard deviations of the method's, layer by layer. */
static void check_control(struct measure *s, struct model *m, enum contrast_kind kind)
{
    struct pass use = {.seed = 5};
    struct err e = {0};
    int R = batch.b.B * batch.b.T;
    t_ok(measure_contrast(s, m, kind, &batch.b, &use, 3, &e), &e);
    for (int l = 0; l < m->config.layers; l++) {
        double want = measure_capacity(s, l), got = (double)model_plan(m, l)->active / R;
        int on = m->route.ops->always_on && m->route.ops->always_on(&m->route, l);
        t_near(got, want, on ? 0 : 4 * sqrt(want * (1 - want) / R) + 2.0 / R);
    }
    t_near(contrast_ratio(&s->contrast, kind), measure_block_ratio(s), 0.03);
    /* the loss belongs to exactly the executed cells */
    int8_t *force = malloc((size_t)m->config.layers * (size_t)R);
    memset(force, 0, (size_t)m->config.layers * (size_t)R);
    for (int l = 0; l < m->config.layers; l++)
        for (int k = 0; k < model_plan(m, l)->n; k++)
            force[l * R + model_plan(m, l)->row[k]] = 1;
    double loss = loss_of(m, (struct pass){.kind = PASS_SPARSE, .inference.force = force});
    t_near(contrast_loss(&s->contrast, kind), loss, 1e-9);
    free(force);
}

T(controls_execute_the_same_share_of_each_layer_and_keep_always_on_layers)
{
    struct model *m = kit_model("model.layers=6 model.dim=16 model.heads=2 model.vocab=16 "
                                "model.init_std=0.3 model.max_seq=4096 model.method=edp",
                                3, ROWS, 0, 0);
    struct pass use = {.seed = 5};
    kit_fill(&batch, 2, ROWS / 2, V, 4);
    kit_documents(&batch);
    use.inference.offset = 0.5;
    struct measure s = measure_of(m, &use);
    use.inference.offset = 0;
    t_true(measure_block_ratio(&s) < 0.98);
    check_control(&s, m, CONTRAST_RANDOM);
    double random = contrast_loss(&s.contrast, CONTRAST_RANDOM);
    check_control(&s, m, CONTRAST_STATIC);
    t_true(random != contrast_loss(&s.contrast, CONTRAST_STATIC));
    t_near(number_of(&s, "control_random_loss"), random, 0);
    measure_release(&s);
    model_free(m);
    m = fake_model(ROWS);
    fake_runs = chance_mi;
    s = measure_of(m, &use);
    check_control(&s, m, CONTRAST_RANDOM);
    check_control(&s, m, CONTRAST_STATIC);
    measure_release(&s);
    model_free(m);
}

/* The draws of a window are those of its place in the text. */
T(a_random_control_does_not_depend_on_the_batches)
{
    struct model *m = kit_model("model.layers=6 model.dim=16 model.heads=2 model.vocab=16 "
                                "model.init_std=0.3 model.max_seq=4096 model.method=edp",
                                3, ROWS, 0, 0);
    struct pass use = {.seed = 5};
    struct err e = {0};
    double loss[2];
    int T = ROWS / 4;
    kit_fill(&batch, 4, T, V, 4);
    for (int parts = 1; parts <= 2; parts++) {
        use.inference.offset = 0.5;
        struct measure s = measure_of(m, &use);
        use.inference.offset = 0;
        for (int p = 0; p < parts; p++) {
            struct batch b = batch.b;
            b.B = 4 / parts;
            b.id += p * b.B * T;
            b.target += p * b.B * T;
            t_ok(measure_contrast(&s, m, CONTRAST_RANDOM, &b, &use, (uint64_t)((p + 1) * b.B), &e),
                 &e);
        }
        loss[parts - 1] = contrast_loss(&s.contrast, CONTRAST_RANDOM);
        measure_release(&s);
    }
    t_near(loss[1], loss[0], 1e-6);
    model_free(m);
}

T(a_model_that_skips_nothing_has_no_contrast)
{
    struct model *m = kit_model(
        "model.layers=2 model.dim=16 model.heads=2 model.vocab=16 model.method=dense", 3, 64, 0, 0);
    struct pass use = {.seed = 5};
    struct err e = {0};
    kit_fill(&batch, 1, 64, V, 4);
    struct measure s = measure_of(m, &use);
    for (int k = 0; k < CONTRAST_KINDS; k++)
        if (k != CONTRAST_CAUSAL)
            t_ok(measure_contrast(&s, m, (enum contrast_kind)k, &batch.b, &use, 0, &e), &e);
    t_true(isnan(number_of(&s, "control_random_loss")) && isnan(number_of(&s, "mi_mean")) &&
           isnan(number_of(&s, "topk_loss")));
    t_near(number_of(&s, "depth_variance"), 0, 0);
    measure_release(&s);
    model_free(m);
}

/* ---- time ---- */

T(decoding_is_timed_in_pairs_even_for_a_single_token)
{
    struct model *m = fake_model(ROWS);
    struct pass use = {.seed = 5};
    struct err e = {0};
    kit_fill(&batch, 1, 40, V, 4);
    fake_runs = chance_mi;
    struct measure s = measure_of(m, &use);
    t_true(isnan(number_of(&s, "decode_time_ratio")) && isnan(number_of(&s, "decode_tok_s")));
    t_ok(measure_decode(&s, m, batch.id, 8, 40, 3, &use, &e), &e);
    double ratio = number_of(&s, "decode_time_ratio"), own = number_of(&s, "decode_tok_s"),
           dense = number_of(&s, "decode_dense_tok_s");
    t_true(ratio > 0 && own > 0 && dense > 0);
    t_near(dense / own, ratio, 1e-9 * ratio);
    t_ok(measure_decode(&s, m, batch.id, 0, 1, 2, &use, &e), &e);
    t_true(s.decode_ratio > 0);
    t_ok(measure_time(&s, m, batch.id, 1, 1, &use, &e), &e);
    t_true(s.time_ratio > 0);
    t_true(isnan(number_of(&s, "batch_time_ratio")));
    t_ok(measure_batch_time(&s, m, &batch.b, 3, &use, &e), &e);
    t_true(number_of(&s, "batch_time_ratio") > 0);
    measure_release(&s);
    model_free(m);
}

T(times_that_have_no_memory_are_errors)
{
    struct model *m =
        kit_model("model.method=dense model.layers=2 model.dim=16 model.heads=2", 1, 256, 0, 0);
    struct pass use = {.kind = PASS_SPARSE};
    struct err e = {0};
    struct measure s;
    kit_fill(&batch, 4, 64, V, 4);
    t_ok(measure_init(&s, m, 64, 256, &e), &e);
    for (uint64_t n = 1; n <= 2; n++) {
        mem_fail_at(mem_calls() + n, 0);
        t_fails(measure_time(&s, m, batch.id, 64, 2, &use, &e), &e, DS_EMEM, "prefill timing");
    }
    mem_fail_at(mem_calls() + 1, 0);
    t_fails(measure_batch_time(&s, m, &batch.b, 2, &use, &e), &e, DS_EMEM, "whole batches");
    mem_fail_at(0, 0);
    t_true(isnan(s.time_ratio) && isnan(s.batch_ratio));
    t_ok(measure_time(&s, m, batch.id, 64, 0, &use, &e), &e); /* no rounds, no time */
    t_ok(measure_batch_time(&s, m, &batch.b, 0, &use, &e), &e);
    t_true(isnan(s.time_ratio) && isnan(s.batch_ratio));
    measure_release(&s);
    model_free(m);
}

/* One layer of 24 takes less than half the time of all, on any machine: an exchanged or inverted
 * ratio would be far above 1. */
T(time_ratios_are_routed_over_dense)
{
    struct model *m =
        kit_model("model.method=dense model.layers=24 model.dim=64 model.heads=2", 1, 256, 0, 0);
    struct pass use = {.kind = PASS_SPARSE, .inference.exit = 1};
    struct err e = {0};
    struct measure s;
    kit_fill(&batch, 4, 64, V, 4);
    t_ok(measure_init(&s, m, 64, 256, &e), &e);
    t_ok(measure_time(&s, m, batch.id, 64, 9, &use, &e), &e);
    t_ok(measure_batch_time(&s, m, &batch.b, 9, &use, &e), &e);
    t_ok(measure_decode(&s, m, batch.id, 32, 64, 9, &use, &e), &e);
    static const char *const ratio[] = {"time_ratio", "batch_time_ratio", "decode_time_ratio"};
    for (size_t i = 0; i < DS_LEN(ratio); i++)
        t_truef(number_of(&s, ratio[i]) > 0 && number_of(&s, ratio[i]) < 0.7, "%s: %g", ratio[i],
                number_of(&s, ratio[i]));
    measure_release(&s);
    model_free(m);
}

T(sequences_of_one_token_have_all_results)
{
    struct model *m = fake_model(64);
    struct pass use = {.seed = 5};
    struct err e = {0};
    kit_fill(&batch, 64, 1, V, 4);
    fake_runs = low_ids;
    fake_cell = NULL;
    struct measure s = measure_of(m, &use);
    for (int k = CONTRAST_TOPK; k < CONTRAST_KINDS; k++)
        t_ok(measure_contrast(&s, m, (enum contrast_kind)k, &batch.b, &use, 0, &e), &e);
    t_true(isfinite(number_of(&s, "topk_gap")) && isfinite(number_of(&s, "control_static_loss")) &&
           isfinite(number_of(&s, "mi_mean")));
    measure_release(&s);
    batch.b.B = 1;
    s = measure_of(m, &use);
    t_true(isnan(number_of(&s, "depth_variance")) && isfinite(number_of(&s, "depth_mean")));
    t_near(number_of(&s, "mi_mean"), 0, 0);
    measure_release(&s);
    model_free(m);
}

/* ---- records ---- */

T(the_record_has_all_results_and_omits_absent_ones)
{
    struct model *m = fake_model(10);
    struct pass use = {.seed = 5};
    struct err e = {0};
    struct record *rec = record_new();
    struct str out = {0};
    struct value body;
    uint64_t seq;
    double gap;
    kit_fill(&batch, 1, 10, V, 2);
    fake_runs = listed;
    fake_cell = listed_cell;
    struct measure s = measure_of(m, &use);
    t_ok(measure_contrast(&s, m, CONTRAST_TOPK, &batch.b, &use, 0, &e), &e);
    measure_eval_record(&s, rec, "final", "causal", 3, 0);
    t_ok(record_end(rec, 1, &out, &e), &e);
    t_true(record_parse(out.p, out.len, &seq, &body, &e) > 0);
    t_true(value_is_num(value_get(body, "topk_gap"), &gap));
    t_near(gap, number_of(&s, "topk_gap"), 0);
    t_true(value_is(value_get(body, "not_causal"), measure_not_causal(&s)));
    t_eq(value_len(value_get(body, "mi")), L);
    t_eq(value_len(value_get(body, "capacity_topk")), L);
    t_eq(value_len(value_get(body, "predictor_f1_layer")), L);
    t_eq(value_kind(value_get(body, "control_random_loss")), VALUE_NONE);
    t_eq(value_kind(value_get(body, "mi_soft")), VALUE_NONE);
    str_release(&out);
    record_free(rec);
    measure_release(&s);
    model_free(m);
}

/* ---- calibration ---- */

static int filled[4];

static void fill(void *ctx, int k, struct batch *b)
{
    (void)ctx;
    filled[k]++;
    *b = batch.b;
}

T(calibration_visits_every_capacity_with_every_batch)
{
    struct model *m = fake_model(64);
    struct err e = {0};
    kit_fill(&batch, 1, 64, V, 4);
    fake_runs = fake_by_capacity;
    t_ok(model_calibrate(m, 3, fill, NULL, 5, NULL, &e), &e);
    t_eq(fake_begun, 1);
    t_eq(fake_ended, 1);
    t_eq(fake_passes, 3 * ROUTE_GRID);
    for (int k = 0; k < 3; k++)
        t_eq(filled[k], ROUTE_GRID);
    for (int g = 0; g < ROUTE_GRID; g++)
        t_near(fake_seen[g], 0.05 * g, 1e-12);
    t_fails(model_calibrate(m, 0, fill, NULL, 5, NULL, &e), &e, DS_ERANGE, "held-out");
    m->route.ops = route_find("dense");
    t_fails(model_calibrate(m, 3, fill, NULL, 5, NULL, &e), &e, DS_EUSAGE, "nothing to calibrate");
    model_free(m);
}
