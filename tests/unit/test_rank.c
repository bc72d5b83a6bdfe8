/* Decisions by rank, and the stored thresholds that replace them at inference. */
#include "base/rng.h"
#include "kit.h"
#include "routing/membership.h"
#include "routing/rank.h"
#include "routing/scorer.h"

enum { R = 12, T = 6, L = 3 };
static const double nothing = NAN;

static struct route route;
static int32_t pos[R], id[R];
static int8_t force[L * R];

/* Two sequences of six; starts[] may name rows that begin a document. */
static void place(int at_a, int at_b)
{
    memset(&route, 0, sizeof route);
    route.L = L;
    route.pass =
        (struct pass){.kind = PASS_TRAIN, .B = R / T, .T = T, .R = R, .id = id, .pos = pos};
    for (int i = 0, p = 0; i < R; i++) {
        p = i % T == 0 || i == at_a || i == at_b ? 0 : p + 1;
        pos[i] = p;
        id[i] = i;
    }
}

static void expect(const uint8_t *got, const char *want)
{
    char text[R + 1] = "";
    for (int i = 0; i < R; i++)
        text[i] = got[i] ? '1' : '.';
    t_str(text, want);
}

static int topk(const real *score, double gamma, const char *want)
{
    uint8_t got[R];
    memset(got, 7, sizeof got);
    int nan = rank_topk(&route, 1, score, gamma, got);
    expect(got, want);
    return nan;
}

T(the_highest_scores_of_each_sequence_are_selected)
{
    const real score[R] = {1, 5, 2, 4, 3, 0, 60, 10, 50, 20, 30, 40};
    place(-1, -1);
    topk(score, 0.5, ".1.11.1.1..1");
    topk(score, 0.34, ".1.1..1.1...");
    topk(score, 0.01, ".1....1.....");
}

T(a_share_of_zero_selects_no_row_and_a_share_of_one_every_row)
{
    const real score[R] = {0};
    place(3, -1);
    topk(score, 0, "............");
    topk(score, 1, "111111111111");
}

T(a_share_is_rounded_to_an_integer_within_rounding_error)
{
    const real score[R] = {0};
    place(-1, -1);
    topk(score, 0.1 + 0.2 + 0.2, "111...111...");
    topk(score, 1.0 / 3, "11....11....");
    topk(score, 0.499, "11....11....");
}

T(ties_go_to_the_earlier_row)
{
    const real score[R] = {2, 2, 2, 2, 2, 2, 1, 3, (real)-0.0, 0, 3, 3};
    place(-1, -1);
    topk(score, 0.5, "111....1..11");
    topk(score, 1.0 / 3, "11.....1..1.");
    const real zeros[R] = {(real)-0.0, 0, (real)-0.0, 0, 0, 0, 0, (real)-0.0, 0, 0, 0, 0};
    topk(zeros, 0.2, "1.....1.....");
}

T(nan_ranks_last_and_is_counted_and_infinities_are_ranked)
{
    const real nan = (real)nothing, inf = (real)INFINITY;
    const real score[R] = {nan, -5, nan, -inf, nan, inf, nan, nan, nan, nan, nan, nan};
    place(-1, -1);
    t_eq(topk(score, 0.5, ".1.1.1111..."), 9);
    t_eq(topk(score, 0.17, ".....11....."), 9);
    t_eq(topk(score, 1, "111111111111"), 9);
}

T(documents_are_ranked_separately)
{
    const real score[R] = {9, 8, 1, 2, 3, 4, 1, 2, 3, 4, 5, 6};
    place(2, 11);
    topk(score, 0.5, "1...11..." /* of five: two */ "111");
    topk(score, 0.01, "1....1....11");
}

T(forced_rows_are_obeyed_and_the_others_compete_for_the_remaining_places)
{
    const real score[R] = {6, 5, 4, 3, 2, 1, 6, 5, 4, 3, 2, 1};
    place(-1, -1);
    memset(force, -1, sizeof force);
    route.pass.inference.force = force;
    force[R + 5] = 1; /* in layer 1 the lowest is forced to run, so two places are left */
    force[R + 0] = 0;
    topk(score, 0.5, ".11..1111...");
    for (int i = 0; i < T; i++)
        force[R + i] = (int8_t)(i < 5); /* more than there are places */
    topk(score, 0.5, "11111.111...");
    topk(score, 0, "11111.......");
    memset(force + R, 0, R);
    topk(score, 1, "............");
}

T(the_target_is_the_rank_whatever_is_forced)
{
    const real score[R] = {6, 5, 4, 3, 2, 1, 6, 5, 4, 3, 2, (real)nothing};
    uint8_t target[R];
    place(-1, -1);
    memset(force, 0, sizeof force);
    route.pass.inference.force = force;
    rank_target(&route, score, 0.5, target);
    expect(target, "111...111...");
}

T(one_token_and_no_token_are_defined)
{
    const real score[R] = {(real)nothing};
    uint8_t want[R] = {9};
    place(-1, -1);
    route.pass.B = route.pass.T = route.pass.R = 1;
    t_eq(rank_topk(&route, 0, score, 0.125, want), 1);
    t_eq(want[0], 1);
    t_eq(rank_topk(&route, 0, score, 0, want), 1);
    t_eq(want[0], 0);
    route.pass.R = route.pass.B = 0;
    t_eq(rank_topk(&route, 0, score, 0.5, want), 0);
}

T(long_sequences_are_ranked_like_short_ones)
{
    enum { N = 1500 };
    static real score[N];
    static int32_t at[N];
    static uint8_t want[N];
    int n = 0;
    for (int i = 0; i < N; i++) {
        score[i] = (real)((i * 7919) % N); /* each value once */
        at[i] = i;
    }
    place(-1, -1);
    route.pass.T = route.pass.R = N;
    route.pass.B = 1;
    route.pass.pos = at;
    rank_topk(&route, 0, score, 0.125, want);
    for (int i = 0; i < N; i++) {
        t_eq(want[i], (double)score[i] >= N - 187);
        n += want[i];
    }
    t_eq(n, 187);
}

/* ---- noise ---- */

T(noise_is_normal_and_new_in_each_step_and_fixed_per_token_at_inference)
{
    enum { N = 20000 };
    static real a[N], b[N];
    static int32_t ids[N], at[N];
    double sum = 0, square = 0, above = 0, both = 0;
    place(-1, -1);
    for (int i = 0; i < N; i++) {
        ids[i] = i % 91;
        at[i] = i / 91;
    }
    route.pass.T = route.pass.R = N;
    route.pass.id = ids;
    route.pass.pos = at;
    for (int use = 0; use < 2; use++) {
        sum = square = above = both = 0;
        route.pass.kind = use ? PASS_SPARSE : PASS_TRAIN;
        route.pass.step = 1;
        rank_noise(&route, 1, a);
        for (int i = 0; i < N; i++) {
            sum += (double)a[i] / N;
            square += (double)a[i] * (double)a[i] / N;
            above += (double)a[i] > rank_noise_above(0.125);
        }
        t_near(sum, 0, 0.03);
        t_near(square, 1, 0.05);
        t_near(above / N, 0.125, 0.01);
        route.pass.step = 2;
        rank_noise(&route, 1, b);
        t_eq(kit_same(a, b, N), use);
        rank_noise(&route, 2, b);
        for (int i = 0; i < N; i++)
            both += (double)a[i] * (double)b[i] / N;
        t_near(both, 0, 0.03);
    }
    t_near(rank_noise_above(0.5), 0, 1e-9);
    t_near(rank_noise_above(0.15865525393145707), 1, 1e-9);
}

/* ---- thresholds ---- */

static struct params params;
static struct quantiles table;
static struct arena arena; /* its row state */

static void make_table(int rows)
{
    struct err e = {0};
    memset(&params, 0, sizeof params);
    t_ok(quantiles_init(&table, &params, "test", L, &e), &e);
    t_ok(params_reserve(&params, 0, &e), &e);
    t_ok(arena_reserve(&arena, "rows", (size_t)rows * sizeof *table.sorted, &e), &e);
    quantiles_layout(&table, &arena, rows);
    quantiles_begin(&table);
}

static void drop_table(void)
{
    quantiles_release(&table);
    arena_release(&arena);
    params_release(&params);
}

/* A permutation of 1..n, times scale. */
static void fill(real *score, int n, double scale)
{
    for (int i = 0; i < n; i++)
        score[i] = (real)(scale * (1 + (i * 7) % n));
}

static int above(const real *score, int n, double threshold)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        k += (double)score[i] > threshold;
    return k;
}

T(thresholds_are_unknown_until_a_step_and_are_saved_with_the_model)
{
    real score[100];
    make_table(100);
    fill(score, 100, 1);
    t_eq(quantiles_known(&table, 1), 0);
    t_near(quantiles_spread(&table, 1), 1, 0);
    quantiles_note(&table, 1, score, 100);
    t_eq(quantiles_known(&table, 1), 0);
    quantiles_update(&table, 0.9);
    t_eq(quantiles_known(&table, 1), 1);
    t_eq(quantiles_known(&table, 0), 0);
    t_true(params_find(&params, "test.quantiles") >= 0);
    t_true(params_find(&params, "test.quantiles_weight") >= 0);
    for (int i = 0; i < params.n; i++)
        t_eq(params.p[i].train, 0);
    drop_table();
}

T(a_threshold_passes_the_requested_share)
{
    real score[100];
    make_table(100);
    fill(score, 100, 0.25);
    quantiles_note(&table, 0, score, 100);
    quantiles_update(&table, 0.9);
    for (int c = 0; c <= 100; c += 5)
        t_eq(above(score, 100, quantiles_at(&table, 0, c / 100.0)), c);
    t_near(above(score, 100, quantiles_at(&table, 0, 0.125)), 12.5, 1);
    t_true(isinf(quantiles_at(&table, 0, 0)) && quantiles_at(&table, 0, 0) > 0);
    t_true(isinf(quantiles_at(&table, 0, 1)) && quantiles_at(&table, 0, 1) < 0);
    drop_table();
}

T(thresholds_are_linear_between_grid_points)
{
    make_table(1);
    real *row = params.p[table.table].value + ROUTE_GRID;
    for (int i = 0; i < ROUTE_GRID; i++)
        row[i] = (real)(100 - i * i);
    t_near(quantiles_at(&table, 1, 0.15), 91, 1e-9);
    t_near(quantiles_at(&table, 1, 0.175), 87.5, 1e-9);
    t_near(quantiles_at(&table, 1, 0.16), 91 - 0.2 * 7, 1e-9);
    t_near(quantiles_at(&table, 1, 0.99), 100 - 361 - 0.8 * 39, 1e-9);
    t_near(quantiles_at(&table, 1, 0.01), 100 - 0.2, 1e-9);
    drop_table();
}

T(thresholds_fall_as_capacity_grows)
{
    real score[37];
    struct rng g;
    make_table(37);
    rng_init(&g, 1, RNG_TEST, 0, 0);
    for (int step = 0; step < 5; step++) {
        for (int i = 0; i < 37; i++)
            score[i] = (real)rng_normal(&g);
        quantiles_note(&table, 2, score, 37);
        quantiles_update(&table, 0.9);
    }
    for (int c = 1; c <= 200; c++)
        t_true(quantiles_at(&table, 2, c / 200.0) <= quantiles_at(&table, 2, (c - 1) / 200.0));
    drop_table();
}

/* After one step the table is that step, after two the weighted mean of both: no bias towards its
 * initial zeros. */
T(the_running_mean_is_not_biased_towards_its_initial_value)
{
    real score[40];
    make_table(40);
    double ema = 0.9, sum = 0, weight = 0;
    for (int step = 1; step <= 4; step++) {
        fill(score, 40, step);
        quantiles_note(&table, 0, score, 40);
        quantiles_update(&table, ema);
        sum = ema * sum + (1 - ema) * 20.5 * step;
        weight = ema * weight + (1 - ema);
        t_near(quantiles_at(&table, 0, 0.5), sum / weight, 1e-4);
    }
    drop_table();
}

T(a_step_counts_the_mean_of_its_notes_and_without_notes_nothing_changes)
{
    real score[40];
    make_table(40);
    fill(score, 40, 1);
    quantiles_note(&table, 0, score, 40);
    fill(score, 40, 3);
    quantiles_note(&table, 0, score, 40);
    quantiles_update(&table, 0.5);
    t_near(quantiles_at(&table, 0, 0.5), 41, 1e-4);
    quantiles_update(&table, 0.5);
    t_near(quantiles_at(&table, 0, 0.5), 41, 1e-4);
    quantiles_note(&table, 0, score, 40);
    quantiles_begin(&table); /* a discarded step */
    quantiles_update(&table, 0.5);
    t_near(quantiles_at(&table, 0, 0.5), 41, 1e-4);
    drop_table();
}

T(an_ema_of_zero_keeps_the_last_step)
{
    real score[40];
    make_table(40);
    for (int step = 1; step <= 3; step++) {
        fill(score, 40, step);
        quantiles_note(&table, 0, score, 40);
        quantiles_update(&table, 0);
        t_near(quantiles_at(&table, 0, 0.5), 20.5 * step, 1e-4);
    }
    drop_table();
}

T(nan_scores_are_ignored)
{
    real score[60], none[3] = {(real)nothing, (real)INFINITY, -(real)INFINITY};
    make_table(60);
    fill(score, 40, 1);
    for (int i = 40; i < 60; i++)
        score[i] = none[i % 3];
    quantiles_note(&table, 0, score, 60);
    quantiles_note(&table, 1, none, 3);
    quantiles_note(&table, 2, none, 0);
    quantiles_update(&table, 0.9);
    t_near(quantiles_at(&table, 0, 0.5), 20.5, 1e-4);
    t_eq(quantiles_known(&table, 1), 0);
    t_eq(quantiles_known(&table, 2), 0);
    drop_table();
}

T(equal_scores_have_a_threshold_that_none_of_them_passes_inside_the_grid)
{
    real score[20];
    make_table(20);
    for (int i = 0; i < 20; i++)
        score[i] = 3;
    quantiles_note(&table, 0, score, 20);
    quantiles_update(&table, 0.9);
    t_eq(above(score, 20, quantiles_at(&table, 0, 0.5)), 0);
    t_eq(above(score, 20, quantiles_at(&table, 0, 1)), 20);
    drop_table();
}

T(a_calibration_stores_the_mean_threshold_of_each_capacity)
{
    real score[200];
    make_table(200);
    for (int l = 0; l < L; l++)
        for (int i = 0; i < ROUTE_GRID; i++)
            for (int batch = 0; batch < 2; batch++) {
                fill(score, 200, 1 + batch + l);
                double cut = quantiles_calibrate(&table, l, i, score, 200);
                t_eq(above(score, 200, cut), i * 200 / (ROUTE_GRID - 1));
            }
    t_eq(quantiles_known(&table, 0), 0);
    quantiles_store(&table);
    for (int l = 0; l < L; l++) {
        t_eq(quantiles_known(&table, l), 1);
        t_near(quantiles_at(&table, l, 0.25), 150.5 * (1.5 + l), 1e-3);
    }
    drop_table();
}

T(a_calibration_without_data_for_a_layer_leaves_it_unchanged)
{
    real score[40];
    make_table(40);
    fill(score, 40, 1);
    quantiles_note(&table, 1, score, 40);
    quantiles_update(&table, 0.9);
    quantiles_begin(&table);
    score[0] = (real)nothing;
    for (int i = 0; i < ROUTE_GRID; i++) {
        t_true(!isnan(quantiles_calibrate(&table, 1, i, score, 1)));
        quantiles_calibrate(&table, 2, i, score, i > 3 ? 40 : 1); /* some points only */
    }
    quantiles_store(&table);
    t_near(quantiles_at(&table, 1, 0.5), 20.5, 1e-4);
    t_eq(quantiles_known(&table, 2), 0);
    drop_table();
}

T(the_spread_of_normal_scores_is_their_standard_deviation)
{
    enum { N = 4000 };
    static real score[N];
    struct rng g;
    make_table(N);
    rng_init(&g, 3, RNG_TEST, 0, 0);
    for (int i = 0; i < N; i++)
        score[i] = (real)(7 + 2.5 * rng_normal(&g));
    quantiles_note(&table, 0, score, N);
    quantiles_update(&table, 0.9);
    t_near(quantiles_spread(&table, 0), 2.5, 0.1);
    drop_table();
}

/* ---- membership ---- */

T(tallies_match_a_hand_count)
{
    const real score[8] = {2, 1, -1, 3, 0, -2, (real)nothing, 5};
    const uint8_t target[8] = {1, 0, 1, 1, 1, 0, 0, 1};
    struct tally t = {0}, sum = {0}, none = {0};
    tally_add(&t, score, 0, target, 8); /* predicts 2, 1, 3 and 5; targets are 2, -1, 3, 0 and 5 */
    t_near(tally_predicted_rate(&t), 0.5, 1e-12);
    t_near(tally_accuracy(&t), 5.0 / 8, 1e-12);
    t_near(tally_base_rate(&t), 5.0 / 8, 1e-12);
    t_near(tally_precision(&t), 3.0 / 4, 1e-12);
    t_near(tally_recall(&t), 3.0 / 5, 1e-12);
    t_near(tally_f1(&t), 6.0 / 9, 1e-12);
    tally_merge(&sum, &t);
    tally_merge(&sum, &t);
    t_near(tally_f1(&sum), 6.0 / 9, 1e-12);
    t_true(isnan(tally_precision(&none)) && isnan(tally_accuracy(&none)));
    t_true(isnan(tally_base_rate(&none)) && isnan(tally_f1(&none)));
}

T(membership_losses_match_hand_computed_values)
{
    const real logit[2] = {0, 200};
    const uint8_t target[2] = {1, 0};
    struct membership_loss m = membership_loss(logit, target, 2);
    t_near(m.entropy, 0.5 * (log(2.0) + 200), 1e-9);
    t_near(m.balance, 0.0625, 1e-9); /* (0.75 - 0.5)^2 */
    t_near(m.z, 20000, 1e-9);
    m = membership_loss(logit, NULL, 2);
    t_true(m.entropy == 0 && m.balance == 0 && m.z > 0);
    m = membership_loss(logit, target, 0);
    t_true(m.entropy == 0 && m.balance == 0 && m.z == 0);
}

T(the_membership_gradient_is_the_derivative_of_its_loss)
{
    const struct membership_loss price = {.entropy = 0.7, .balance = 1.3, .z = 0.2};
    real logit[5] = {(real)0.5, -1, 2, (real)-0.25, 0}, d[5] = {0};
    const uint8_t target[5] = {1, 0, 0, 1, 0};
    membership_bwd(d, &price, logit, target, 5);
    for (int i = 0; i < 5; i++) {
        double value[2];
        real keep = logit[i];
        for (int k = 0; k < 2; k++) {
            logit[i] = keep + (real)(k ? 1e-2 : -1e-2);
            struct membership_loss m = membership_loss(logit, target, 5);
            value[k] = membership_total(&m, &price);
        }
        logit[i] = keep;
        t_near(d[i], (value[1] - value[0]) / 2e-2, 1e-4);
    }
}

T(score_gates_have_the_right_values_and_slopes)
{
    t_near(score_gate(SCORE_RAW, (real)-3), -3, 0);
    t_near(score_gate(SCORE_SIGMOID, 0), 0.5, 1e-7);
    t_near(score_gate(SCORE_SIGMOID2, 0), 1, 1e-7);
    for (int kind = SCORE_RAW; kind <= SCORE_SIGMOID2; kind++) {
        enum score_gate k = (enum score_gate)kind;
        double rise = (double)score_gate(k, (real)1.01) - (double)score_gate(k, (real)0.99);
        t_near(score_gate_slope(k, 1), rise / 0.02, 1e-3);
    }
}
