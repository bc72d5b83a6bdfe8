/* The parts that methods share: plans, targets, the controller, penalties, step codes, running
 * statistics, signals, gates; and the controls. */
#include "base/mem.h"
#include "kit.h"
#include "routing/budget.h"
#include "routing/penalty.h"
#include "routing/signal.h"
#include "routing/standard.h"
#include "routing/stepcode.h"

static struct kit_batch batch;

T(a_plan_lists_the_wanted_rows)
{
    static const uint8_t want[6] = {1, 0, 0, 1, 0, 1}, probe[6] = {0, 0, 1, 0, 0, 0};
    static const real weight[6] = {0, 1, 2, 3, 4, 5};
    int32_t row[6];
    real gate[6], factor[6];
    struct plan p = {.row = row, .gate = gate, .weight = factor};
    plan_from_mask(&p, want, weight, NULL, 6, 0);
    t_eq(p.n, 3);
    t_eq(p.active, 3);
    t_eq(row[1], 3);
    t_near(factor[1], 3, 0);
    plan_from_mask(&p, want, weight, probe, 6, 0);
    t_eq(p.n, 4);
    t_eq(p.active, 3);
    t_eq(row[1], 2);
    t_near(gate[1], 0, 0);
    t_near(factor[1], 2, 0);
    plan_from_mask(&p, want, NULL, NULL, 6, 1);
    t_eq(p.n, 6);
    t_eq(p.active, 3);
    t_near(gate[4], 0, 0);
    t_near(factor[4], 1, 0);
    plan_from_mask(&p, want, NULL, NULL, 0, 1);
    t_eq(p.n, 0);
}

T(methods_are_found_by_name)
{
    t_true(route_find("edp") && route_find("dense") && route_find("random") &&
           route_find("static"));
    t_true(route_find("no_such") == NULL && route_find("") == NULL);
}

T(an_infeasible_target_is_refused)
{
    struct err e = {0};
    t_ok(route_check_target(0.5, 4, 8, "x.target", &e), &e);
    t_ok(route_check_target(1, 4, 8, "x.target", &e), &e);
    t_fails(route_check_target(0.49, 4, 8, "x.target", &e), &e, DS_ERANGE,
            "x.target=0.49 cannot be reached: 4 of 8 layers");
    t_fails(route_check_target(1.01, 4, 8, "x.target", &e), &e, DS_ERANGE, "[0.500, 1]");
    t_fails(route_check_target(NAN, 4, 8, "x.target", &e), &e, DS_ERANGE, "cannot");
}

T(the_controller_integrates_and_is_bounded)
{
    t_near(budget_step(0.5, 0.7, 0.6, 2, 5), 0.7, 1e-12);
    t_near(budget_step(4.9, 1, 0, 2, 5), 5, 0);
    t_near(budget_step(-4.9, 0, 1, 2, 5), -5, 0);
    t_near(budget_target(0.6, 0, 0.1), 1, 0);
    t_near(budget_target(0.6, 0.05, 0.1), 0.8, 1e-12);
    t_near(budget_target(0.6, 0.5, 0.1), 0.6, 0);
    t_near(budget_target(0.6, 0, 0), 0.6, 0);
    t_near(budget_push(BUDGET_LOSS, 0.1, 2, 9), 2, 0);
    t_near(budget_push(BUDGET_LOSS, -0.1, 2, 9), -2, 0);
    t_near(budget_push(BUDGET_LOSS, 0, 2, 9), 0, 0);
    t_near(budget_push(BUDGET_DUAL, -0.1, 2, 9), 9, 0);
    t_near(budget_push(BUDGET_OFFSET, 0.1, 2, 9), 0, 0);
    t_near(budget_push(BUDGET_OFF, 0.1, 2, 9), 0, 0);
}

static int ascending(const void *a, const void *b)
{
    real x = *(const real *)a, y = *(const real *)b;
    return (x > y) - (x < y);
}

T(quantiles_match_the_sorted_list)
{
    struct rng r;
    rng_init(&r, 1, RNG_TEST, 0, 0);
    for (int n = 1; n < 90; n += n < 6 ? 1 : 13)
        for (int ties = 0; ties < 2; ties++)
            for (double q = 0; q <= 1; q += 0.125) {
                real x[100], sorted[100];
                for (int i = 0; i < n; i++)
                    x[i] = sorted[i] = ties ? (real)rng_below(&r, 4) : (real)rng_normal(&r);
                qsort(sorted, (size_t)n, sizeof *sorted, ascending);
                t_near(quantile_of(x, n, q), sorted[(int)(q * (n - 1) + 0.5)], 0);
            }
    real with_nan[4] = {(real)NAN, 2, (real)NAN, 1};
    t_near(quantile_of(with_nan, 4, 0), 1, 0);
    t_true(isnan(quantile_of(with_nan, 4, 1)));
    t_true(isnan(quantile_of(with_nan, 0, 0.5)));
}

T(penalties_have_the_right_values_and_slopes)
{
    for (int kind = PENALTY_OFF; kind <= PENALTY_POLARISE; kind++) {
        struct penalty p = {.kind = (enum penalty_kind)kind,
                            .lambda = 0.3,
                            .push = 0.2,
                            .target = 0.5,
                            .L = 8,
                            .gated = 6};
        double slope, unused, eps = 1e-5;
        for (double D = 2; D <= 8; D += 1.5) {
            penalty_row(&p, D, 0.4, &slope);
            double up = penalty_row(&p, D + eps, 0.4, &unused),
                   down = penalty_row(&p, D - eps, 0.4, &unused);
            t_near(slope, (up - down) / (2 * eps), 1e-8);
        }
        double depth[2] = {4, 7}, one, two;
        real entropy[2] = {(real)0.25, (real)0.75}, out[2];
        double a = penalty_row(&p, 4, 0.25, &one), b = penalty_row(&p, 7, 0.75, &two);
        t_near(penalty_rows(&p, depth, entropy, out, 2),
               0.3 * (a + b) / 2 + 0.2 * (11.0 / 16 - 0.5), 1e-12);
        t_near(out[0], (0.3 * one + 0.2 / 8) / 2, 1e-7);
        t_near(out[1], (0.3 * two + 0.2 / 8) / 2, 1e-7);
    }
    struct penalty square = {.kind = PENALTY_QUADRATIC, .L = 4, .gated = 4},
                   polar = {.kind = PENALTY_POLARISE, .L = 4, .gated = 4};
    double s;
    t_near(penalty_row(&square, 2, 0, &s), 0.25, 0);
    t_near(penalty_row(&polar, 0, 0, &s), 0, 0);
    t_near(penalty_row(&polar, 2, 0, &s), 1, 0);
    t_near(penalty_row(&polar, 4, 0, &s), 0, 0);
    t_near(penalty_ramp(0.1, 0.2), 0.5, 1e-12);
    t_near(penalty_ramp(0.3, 0.2), 1, 0);
    t_near(penalty_ramp(0, 0), 1, 0);
}

/* Row state of the current test. */
static struct arena row_arena;

static struct stepcode table_of(struct params *ps, enum stepcode_kind kind, int L, int gated,
                                int buckets)
{
    struct err e = {0};
    struct stepcode c = {0};
    struct stepcode_shape shape = {kind, L, 4, gated, buckets};
    t_ok(stepcode_init(&c, ps, "codes", &shape, &e), &e);
    if (!row_arena.base)
        t_ok(arena_reserve(&row_arena, "rows", 1 << 16, &e), &e);
    stepcode_layout(&c, &row_arena, 2);
    return c;
}

T(the_published_table_of_64_rows_uses_seven_with_twelve_layers_and_a_bowl_profile)
{
    static const int want[] = {0, 5, 10, 15, 21, 26, 31, 36, 42, 47, 52, 57, 63};
    struct params ps = {0};
    struct stepcode c = table_of(&ps, STEPCODE_EVERY, 12, 6, 64);
    t_eq(c.rows, 64);
    memset(c.code, 0xff, 24 * sizeof *c.code); /* -1 */
    for (int k = 0; k <= 12; k++) {
        stepcode_choose(&c, 3, 2, 0, 1, 1, k, 0);
        t_eq(c.code[6], want[k]);
    }
    memset(c.code, 0xff, 24 * sizeof *c.code);
    for (int l = 3, k = 0; l < 9; l++) { /* one token skips all six gated layers, the other none */
        stepcode_choose(&c, l, 2, 0, 0, 1, k, k), k++;
        stepcode_choose(&c, l, 2, 1, 1, 1, 0, 0);
    }
    t_eq(stepcode_used(&c, 2), 7);
    arena_release(&row_arena);
    params_release(&ps);
}

T(step_codes_are_added_at_the_right_cells)
{
    struct params ps = {0}, ps2 = {0}, ps3 = {0};
    struct stepcode land = table_of(&ps, STEPCODE_LANDING, 8, 6, 0),
                    fixed = table_of(&ps2, STEPCODE_STATIC, 8, 6, 0);
    struct stepcode off = table_of(&ps3, STEPCODE_OFF, 8, 6, 0);
    t_eq(land.rows, 7);
    t_eq(fixed.rows, 8);
    t_eq(off.rows, 0);
    t_eq(off.table, -1);
    stepcode_choose(&land, 4, 2, 1, 1, 1, 3, 2);
    t_eq(land.code[9], 3);
    stepcode_choose(&land, 4, 2, 1, 1, 1, 3, 0); /* ran just before */
    t_eq(land.code[9], -1);
    stepcode_choose(&land, 4, 2, 1, 0, 1, 3, 2); /* skips */
    t_eq(land.code[9], -1);
    stepcode_choose(&land, 7, 2, 1, 1, 0, 5, 1); /* lands in a layer that is always on */
    t_eq(land.code[15], 5);
    stepcode_choose(&land, 7, 2, 1, 1, 0, 8, 1); /* only a forced pass skips so much */
    t_eq(land.code[15], 6);
    stepcode_choose(&fixed, 4, 2, 0, 0, 1, 3, 2);
    t_eq(fixed.code[8], 4);
    stepcode_choose(&fixed, 0, 2, 0, 1, 0, 0, 0);
    t_eq(fixed.code[0], -1);
    arena_release(&row_arena);
    params_release(&ps), params_release(&ps2), params_release(&ps3);
}

T(running_statistics_match_the_data)
{
    struct err e = {0};
    struct params ps = {0};
    struct standardizer s = {0};
    t_ok(standardizer_init(&s, &ps, "x", 2, 2, &e), &e);
    t_ok(params_reserve(&ps, 1, &e), &e);
    struct standard t = standardizer_at(&s, 1, 1);
    t_near(t.mean[0], 0, 0);
    t_near(t.inv[1], 1, 0);
    for (int step = 0; step < 2; step++) {
        const real x[3][2] = {{1, 10}, {2, 10}, {(real)(3 + step * 3), 40}};
        standardizer_begin(&s);
        for (int i = 0; i < 3; i++)
            standardizer_add(&s, 1, x[i]);
        if (step == 0) { /* nothing stored: uses the current step, when allowed */
            t = standardizer_at(&s, 1, 1);
            t_near(t.mean[0], 2, 1e-6);
            t_near(t.inv[0], 1 / sqrt(2.0 / 3), 1e-6);
            t_near(standardizer_at(&s, 1, 0).mean[0], 0, 0);
        }
        standardizer_update(&s, 0.9);
        t = standardizer_at(&s, 1, 1);
        t_near(t.mean[1], 20, 1e-4);
        t_near(t.inv[1], 1 / sqrt(200), 1e-6);
    }
    t_near(t.mean[0], (0.09 * 2 + 0.1 * 3) / 0.19, 1e-5); /* unbiased from the first step on */
    t_near(standardizer_at(&s, 0, 1).inv[0], 1, 0);       /* a layer without data */
    standardizer_release(&s);
    params_release(&ps);
}

static real states[4][6]; /* h[0..3], two rows of three channels */

static struct stream stream_of(real **h)
{
    static const real from[4][6] = {
        {1, 0, 0, 2, 2, 1}, {1, 2, 2, 2, 2, 1}, {1, 2, 5, 2, 0, 1}, {4, 2, 5, 2, 0, 4}};
    memcpy(states, from, sizeof from);
    for (int l = 0; l < 4; l++)
        h[l] = states[l];
    struct stream st = {.h = h, .R = 2, .C = 3, .L = 3};
    return st;
}

T(signals_come_from_executed_blocks_and_are_kept)
{
    struct err e = {0};
    real *h[4];
    struct stream st = stream_of(h);
    struct signal s = {0};
    static const uint8_t ran0[2] = {1, 0}, ran1[2] = {1, 1}, ran2[2] = {0, 1};
    t_ok(arena_reserve(&row_arena, "rows", 1 << 16, &e), &e);
    signal_layout(&s, &row_arena, 2, 3, 4, 0);
    signal_begin(&s, 2);
    signal_observe(&s, 0, ran0, &st);
    signal_observe(&s, 1, ran0, &st);
    signal_observe(&s, 2, ran1, &st);
    signal_observe(&s, 3, ran2, &st);
    const real *f = signal_at(&s, 1, 2, 0); /* D = (0,2,2), |y| = 3 */
    t_near(f[FEATURE_VELOCITY], sqrt(8) / 3, 1e-6);
    t_near(f[FEATURE_SPEED], sqrt(8) / 3, 1e-6);
    t_near(f[FEATURE_GROWTH], log(3), 1e-6);
    t_near(f[FEATURE_TURN], 0, 0);
    f = signal_at(&s, 2, 2, 0); /* D = (0,0,3), |y|^2 = 30, D - last = (0,-2,1) */
    t_near(f[FEATURE_VELOCITY], 3 / sqrt(30), 1e-6);
    t_near(f[FEATURE_SPEED], fabs(3 / sqrt(30) - sqrt(8) / 3), 1e-6);
    t_near(f[FEATURE_ACCELERATION], sqrt(5) / sqrt(30), 1e-6);
    t_near(f[FEATURE_TURN], 6 / (3 * sqrt(8)), 1e-6);
    t_true(memcmp(f, signal_at(&s, 3, 2, 0), FEATURES * sizeof *f) ==
           0); /* unchanged, as it skipped */
    t_near(signal_at(&s, 1, 2, 1)[FEATURE_VELOCITY], 0, 0);
    t_near(signal_at(&s, 2, 2, 1)[FEATURE_VELOCITY], 2 / sqrt(5), 1e-6);
    t_eq(s.runs[0], 2);
    t_eq(s.runs[1], 2);
    t_eq(s.at[3 * 2 + 1], 2);
    t_eq(s.before[3 * 2 + 1], 1);
    t_eq(s.at[2 * 2], 1);
    t_eq(s.before[2], -1);
    arena_release(&row_arena);
}

T(literal_signals_compare_states_before_the_step_code_at_every_layer)
{
    struct err e = {0};
    real *h[4];
    struct stream st = stream_of(h);
    struct signal s = {0};
    static const uint8_t none[2] = {0, 0};
    t_ok(arena_reserve(&row_arena, "rows", 1 << 16, &e), &e);
    signal_layout(&s, &row_arena, 2, 3, 4, 1);
    signal_begin(&s, 2);
    for (int l = 0; l < 4; l++) {
        signal_observe(&s, l, none, &st);
        st.h[l][0] += 100; /* a step code, which the signal must not see */
    }
    t_near(signal_at(&s, 0, 2, 0)[FEATURE_VELOCITY], 0, 0);
    t_near(signal_at(&s, 1, 2, 0)[FEATURE_VELOCITY], sqrt(8) / 3, 1e-6);
    t_near(signal_at(&s, 1, 2, 0)[FEATURE_SPEED], sqrt(8) / 3, 1e-6);
    t_near(signal_at(&s, 2, 2, 0)[FEATURE_SPEED], fabs(3 / sqrt(30) - sqrt(8) / 3), 1e-6);
    t_near(signal_at(&s, 1, 2, 1)[FEATURE_VELOCITY], 0, 0);
    arena_release(&row_arena);
}

static double ratio_of(const char *options, enum pass_kind kind)
{
    char text[300];
    snprintf(text, sizeof text, "model.layers=10 model.dim=16 model.heads=2 model.vocab=97 %s",
             options);
    struct model *m = kit_model(text, 1, 1024, 1, 0);
    struct pass pass = kit_pass(kind);
    kit_fill(&batch, 4, 256, 97, 1);
    model_forward(m, &batch.b, &pass);
    double ratio = flops_block_ratio(&m->flops);
    model_free(m);
    return ratio;
}

T(controls_run_the_requested_share)
{
    t_near(ratio_of("model.method=random random.target_ratio=0.6", PASS_SPARSE), 0.6, 0.02);
    t_near(ratio_of("model.method=random random.target_ratio=0.35", PASS_TRAIN), 0.35, 0.02);
    t_near(ratio_of("model.method=random random.target_ratio=1", PASS_SPARSE), 1, 0);
    t_near(ratio_of("model.method=random random.target_ratio=0.2", PASS_SPARSE), 0.2, 0);
    t_near(ratio_of("model.method=static static.target_ratio=0.6", PASS_SPARSE), 0.6, 0.01);
    t_near(
        ratio_of("model.method=static static.target_ratio=0.6 static.pattern=layers", PASS_SPARSE),
        0.6, 1e-12);
    t_near(ratio_of("model.method=static static.target_ratio=1", PASS_TRAIN), 1, 0);
}

T(random_routing_draws_anew_in_training_and_is_fixed_at_inference)
{
    struct model *m =
        kit_model("model.method=random model.layers=6 model.dim=16 model.heads=2 model.vocab=97", 1,
                  64, 1, 0);
    int same_use = 1, same_train = 1;
    static int32_t rows[64];
    for (int kind = PASS_TRAIN; kind <= PASS_SPARSE; kind += PASS_SPARSE - PASS_TRAIN)
        for (int step = 1; step <= 2; step++) {
            struct pass pass = kit_pass((enum pass_kind)kind);
            pass.step = step;
            kit_fill(&batch, 1, 64, 97, 1);
            model_forward(m, &batch.b, &pass);
            int same = memcmp(rows, m->plan[2].row, 20 * sizeof *rows) == 0;
            if (step == 2)
                *(kind == PASS_TRAIN ? &same_train : &same_use) = same;
            memcpy(rows, m->plan[2].row, sizeof rows);
        }
    t_true(same_use && !same_train);
    model_free(m);
}

/* Counts derived by hand from the options. */
/* Of the weighted features of one cell, from the states h. */
static double weighted(real **h, const real *weight, int l, int row)
{
    static const uint8_t ran[4][2] = {{1, 0}, {1, 0}, {1, 1}, {0, 1}};
    struct stream st = {.h = h, .R = 2, .C = 3};
    struct signal s = {0};
    struct err e = {0};
    double sum = 0;
    t_ok(arena_reserve(&row_arena, "rows", 1 << 16, &e), &e);
    signal_layout(&s, &row_arena, 2, 3, 4, 0);
    signal_begin(&s, 2);
    for (int k = 0; k < 4; k++)
        signal_observe(&s, k, ran[k], &st);
    for (int f = 0; f < FEATURES; f++)
        sum += (double)weight[f] * (double)signal_at(&s, l, 2, row)[f];
    arena_release(&row_arena);
    return sum;
}

/* By differences.  The first increment of a row has no speed (edp asks for two with such signals). */
T(slopes_of_signals_reach_the_states_that_they_compare)
{
    static const uint8_t ran[4][2] = {{1, 0}, {1, 0}, {1, 1}, {0, 1}};
    static const struct {
        int l, row;
        real velocity, speed, acceleration;
    } cell[] = {{2, 0, 1, 0, 0}, {2, 0, 0, 1, 0},  {2, 0, 0, 0, 1},
                {3, 1, 1, 2, 3}, {1, 0, -1, 0, 0}, {0, 1, 1, 1, 1}};
    for (size_t i = 0; i < sizeof cell / sizeof *cell; i++) {
        real h[5][6], dh[5][6], *at[5], *d[5], weight[FEATURES] = {0};
        struct err e = {0};
        for (int l = 0; l < 5; l++) {
            for (int c = 0; c < 6; c++) {
                h[l][c] = (real)(1.5 * sin(1 + 2.3 * c + 1.7 * l * l) + 0.4 * l);
                dh[l][c] = 0;
            }
            at[l] = h[l];
            d[l] = dh[l];
        }
        weight[FEATURE_VELOCITY] = cell[i].velocity;
        weight[FEATURE_SPEED] = cell[i].speed;
        weight[FEATURE_ACCELERATION] = cell[i].acceleration;
        struct stream st = {.h = at, .dh = d, .R = 2, .C = 3};
        struct signal s = {0};
        t_ok(arena_reserve(&row_arena, "rows", 1 << 16, &e), &e);
        signal_layout(&s, &row_arena, 2, 3, 4, 0);
        signal_begin(&s, 2);
        for (int l = 0; l < 4; l++)
            signal_observe(&s, l, ran[l], &st);
        signal_bwd(&s, cell[i].l, cell[i].row, weight, &st);
        arena_release(&row_arena);
        for (int l = 0; l < 5; l++)
            for (int c = 0; c < 6; c++) {
                real kept = h[l][c];
                double step = 1.0 / 64, up, down;
                h[l][c] = kept + (real)step;
                up = weighted(at, weight, cell[i].l, cell[i].row);
                h[l][c] = kept - (real)step;
                down = weighted(at, weight, cell[i].l, cell[i].row);
                h[l][c] = kept;
                t_near(dh[l][c], (up - down) / (2 * step), 2e-3);
            }
    }
}

/* Without a single allocation a model of any method is refused, and nothing is left. */
static void short_of_memory(const char *options, int train)
{
    uint64_t at, n = 1, failed = 0;
    do {
        struct err e = {0};
        struct model *m = NULL;
        at = mem_calls() + n++;
        mem_fail_at(at, 0);
        int rc = kit_try(&m, options, 1, train, &e);
        if (rc == 0)
            rc = model_reserve(m, 16, train, train, &e);
        mem_fail_at(0, 0);
        t_truef(rc == 0 || (rc == DS_EMEM && strstr(e.text, "out of memory")),
                "%s, allocation %llu: %d %s", options, (unsigned long long)n - 1, rc, e.text);
        failed += rc < 0;
        if (m)
            model_free(m);
    } while (mem_calls() >= at);
    t_truef(failed > 10, "%s: %llu", options, (unsigned long long)failed);
}

T(a_method_that_finds_no_memory_is_one_line)
{
    for (const struct route_ops *const *m = route_all(); *m; m++) {
        char text[200];
        snprintf(text, sizeof text, "model.method=%s model.layers=8 model.dim=16 model.heads=2",
                 (*m)->name);
        short_of_memory(text, 1);
    }
    short_of_memory("model.method=edp edp.signal=regret model.layers=8 model.dim=16 model.heads=2",
                    1);
    short_of_memory("model.method=dense model.lora_r=2 model.layers=2 model.dim=16 model.heads=2",
                    1);
    short_of_memory("model.method=dense model.experts=4 model.experts_used=2 model.layers=2 "
                    "model.dim=16 model.heads=2",
                    1);
}

T(parameter_counts_follow_the_options)
{
    struct model *m = kit_model("model.method=dense model.layers=3 model.dim=16 model.heads=4 "
                                "model.kv_heads=2 model.ffn=24 "
                                "model.vocab=50",
                                1, 4, 0, 0);
    t_eq(params_count(&m->params),
         50 * 16 + 3 * (2 * 16 * 16 + 2 * 8 * 16 + 3 * 16 * 24 + 2 * 16) + 16);
    model_free(m);
    m = kit_model("model.method=dense model.layers=2 model.dim=16 model.heads=2 model.head_dim=6 "
                  "model.norm=layer model.mlp=gelu "
                  "model.position=learned model.max_seq=30 model.attn_bias=true "
                  "model.mlp_bias=true model.tied=false "
                  "model.vocab=50",
                  1, 4, 0, 0);
    t_eq(params_count(&m->params),
         2 * 50 * 16 + 30 * 16 + 2 * (4 * 12 * 16 + 3 * 12 + 16 + 2 * 16 * 64 + 64 + 16 + 4 * 16) +
             2 * 16);
    model_free(m);
    int64_t dense, edp; /* thresholds, score weights, step codes; untrained: budget, statistics */
    m = kit_model("model.method=dense model.layers=8 model.dim=16 model.heads=2 model.vocab=50", 1,
                  4, 0, 0);
    dense = params_count(&m->params);
    model_free(m);
    m = kit_model("model.method=edp model.layers=8 model.dim=16 model.heads=2 model.vocab=50", 1, 4,
                  0, 0);
    edp = params_count(&m->params);
    model_free(m);
    t_eq(edp - dense, 8 + 8 * 5 + 7 * 16 + 2 + 2 * 8 * 5 + 8);
}

T(a_method_changes_no_other_initial_weight)
{
    struct model *a =
        kit_model("model.method=dense model.layers=8 model.dim=16 model.heads=2", 5, 4, 0, 0);
    struct model *b =
        kit_model("model.method=edp model.layers=8 model.dim=16 model.heads=2", 5, 4, 0, 0);
    for (int i = 0; i < a->params.n; i++) {
        int j = params_find(&b->params, a->params.p[i].name);
        t_true(j >= 0 && kit_same(a->params.p[i].value, b->params.p[j].value, a->params.p[i].n));
    }
    model_free(a);
    model_free(b);
}

static void check_options(const char *options, int code, const char *part)
{
    struct err e = {0};
    struct model *m = NULL;
    t_fails(kit_try(&m, options, 1, 1, &e), &e, code, part);
}

T(conflicting_options_are_refused_in_one_line)
{
    check_options("model.method=edp edp.attach=true", DS_EUSAGE,
                  "edp.signal=velocity, speed or vector");
    check_options("model.method=edp edp.threshold=learned edp.train=sparse edp.probe_rate=0",
                  DS_ERANGE, "edp.probe_rate=0: must be greater than 0");
    check_options("model.method=edp edp.early=5 edp.late=3", DS_ERANGE,
                  "leave no gated layer of model.layers=8");
    check_options("model.method=nothing", DS_EUSAGE, "unknown method model.method=nothing");
    check_options("model.method=dense model.dim=10 model.heads=3", DS_ERANGE,
                  "must divide model.dim=10");
    check_options("model.method=dense model.heads=3 model.kv_heads=2", DS_ERANGE,
                  "model.kv_heads=2: must divide");
    check_options("model.method=dense model.dim=9 model.heads=3", DS_ERANGE,
                  "must be even for rotary positions");
    check_options("model.method=edp edp.temperature=0", DS_EUSAGE, "edp.temperature: 0: must be");
    check_options("model.method=edp edp.kv=some", DS_EUSAGE, "edp.kv");
}

static const char paragraph[] = "the river ran past the mill, and the mill ran with the river. "
                                "each night the miller wrote one line in his book, and "
                                "each line was longer than the one before. ";

static void check_paragraph(const char *method)
{
    enum { N = sizeof paragraph - 1, STEPS = 400, PROMPT = 40 };
    char text[300];
    int32_t out[N];
    double loss = 9;
    snprintf(text, sizeof text,
             "model.layers=%s model.dim=64 model.heads=4 model.vocab=128 model.init_std=0.05",
             method);
    struct model *m = kit_model(text, 6, 2 * N, 1, 1);
    for (int i = 0; i < 2 * N; i++) {
        batch.id[i] = paragraph[i % N];
        batch.target[i] = paragraph[(i + 1) % N];
    }
    batch.b = (struct batch){.B = 1, .T = 2 * N, .id = batch.id, .target = batch.target};
    for (int step = 1; step <= STEPS && !(loss < 0.001); step++)
        loss = kit_train(m, &batch.b, step, STEPS, 4e-3);
    t_truef(loss < 0.01, "%s: loss %g", method, loss);
    kit_generate(m, batch.id, PROMPT, out, N);
    for (int i = 0; i < N; i++)
        t_truef(out[i] == paragraph[(PROMPT + i) % N], "%s: at %d: '%c'", method, i, out[i]);
    model_free(m);
}

T_SECONDS(a_repeated_paragraph_is_learned_and_said_again, 180)
{
    kit_skip_if_slow();
    check_paragraph("2 model.method=dense");
    check_paragraph("5 model.method=edp edp.target_ratio=0.8");
}
