/* Matrices of a run, categorical cells, and the load and collapse of experts. */
#include "t.h"

#include "base/log.h"
#include "base/mem.h"
#include "io/experts.h"
#include "screens/mixtures.h"

static struct fixture f;

static void begin(int layers)
{
    const struct fixture_head h = {
        .run = "fixture", .method = "moe", .seed = 1, .layers = layers, .steps = 100};
    t_true(fixture_begin(&f));
    fixture_head(&f, 0, &h);
}

static struct runview *end(void)
{
    struct runview *v = fixture_view(&f);
    struct str bytes = fixture_end(&f);
    t_true(v && bytes.len > 0);
    str_release(&bytes);
    return v;
}

static void matrix(int64_t step, const char *name, int rows, int cols, const float *value, int n,
                   const int32_t *layer, int layers)
{
    record_begin(f.record, "matrix", step, 1000);
    record_str(f.record, "name", name);
    record_int(f.record, "rows", rows);
    record_int(f.record, "cols", cols);
    if (layer)
        record_i32s(f.record, "layer", layer, (size_t)layers);
    record_f32s(f.record, "value", value, (size_t)n);
    fixture_put(&f);
}

static void load(int64_t step, const float *count, int experts)
{
    matrix(step, "expert_load", 1, experts, count, experts, NULL, 0);
}

static size_t events(const struct runview *v, const char *name)
{
    size_t n = 0;
    for (size_t i = 0; i < v->n_events; i++)
        n += strcmp(v->event[i].name, name) == 0;
    return n;
}

T(matrices_are_kept_per_name_with_their_layers)
{
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    static const int32_t layer[2] = {3, 1};
    begin(4);
    matrix(1, "expert_load", 2, 3, a, 6, layer, 2);
    matrix(1, "other", 1, 2, a, 2, NULL, 0);
    record_begin(f.record, "matrix", 2, 1000); /* an array of numbers in place of the bytes */
    record_str(f.record, "name", "other");
    record_int(f.record, "rows", 1);
    record_int(f.record, "cols", 2);
    record_nums(f.record, "value", (const double[]){7, 8}, 2);
    fixture_put(&f);
    struct runview *v = end();
    const struct matrix_series *s = runview_matrix(v, "expert_load"),
                               *o = runview_matrix(v, "other");
    t_true(s && o && !runview_matrix(v, "none"));
    t_eq(s->n, 1);
    t_eq(s->layer[0], 3);
    t_eq(s->layer[1], 1);
    t_near(s->point[0].v[5], 6, 0);
    t_eq(o->n, 2);
    t_eq(o->layer[0], 0);
    t_eq(o->point[1].step, 2);
    t_near(o->point[1].v[1], 8, 0);
    t_eq(v->invalid, 0);
    runview_free(v);
}

T(malformed_matrices_are_counted_and_change_nothing)
{
    static const float a[6] = {1, 2, 3, 4, 5, 6};
    static const int32_t layer[2] = {0, 5000};
    begin(4);
    matrix(1, "m", 2, 3, a, 6, NULL, 0);
    matrix(2, "m", 2, 3, a, 5, NULL, 0); /* too few values */
    matrix(2, "m", 3, 2, a, 6, NULL, 0); /* another shape */
    matrix(2, "m", 0, 3, a, 0, NULL, 0);
    matrix(2, "m", 5000, 1, a, 6, NULL, 0);
    matrix(2, "", 2, 3, a, 6, NULL, 0);
    matrix(2, "m", 2, 3, a, 6, layer, 1); /* a layer per row */
    matrix(2, "l", 2, 3, a, 6, layer, 2); /* no such layer */
    matrix(-5, "m", 2, 3, a, 6, NULL, 0);
    struct runview *v = end();
    t_eq(v->invalid, 8);
    t_eq(v->n_matrices, 1);
    t_eq(runview_matrix(v, "m")->n, 1);
    runview_free(v);
}

T(steps_that_go_back_supersede_matrices)
{
    static const float a[4] = {1, 2, 3, 4};
    begin(4);
    for (int step = 10; step <= 50; step += 10)
        load(step, a, 4);
    load(30, a, 4);
    load(40, a, 4);
    load(40, a, 4); /* again: it replaces the first */
    const struct fixture_head h = {
        .run = "x", .method = "moe", .layers = 4, .steps = 9, .resume = 1};
    fixture_head(&f, 30, &h);
    struct runview *v = end();
    const struct matrix_series *s = runview_matrix(v, "expert_load");
    static const int old[] = {0, 0, 1, 1, 1, 0, 1, 1};
    t_eq(s->n, 8);
    for (size_t i = 0; i < s->n; i++)
        t_eq(s->point[i].is_old, old[i]);
    t_eq(expert_loads(v), 3);
    t_eq(expert_loads_step(v, 0), 10);
    t_eq(expert_loads_step(v, 2), 30);
    t_eq(expert_loads_find(v, 29), 1);
    t_eq(expert_loads_find(v, 5), 0);
    t_eq(expert_loads_find(v, 99), 2);
    runview_free(v);
}

T(matrices_are_thinned_and_the_newest_stays)
{
    enum { N = RUNVIEW_MATRIX_POINTS + 300 };
    begin(4);
    for (int i = 0; i < N; i++)
        load(i, (const float[]){(float)i, 1, 1, 1}, 4);
    struct runview *v = end();
    const struct matrix_series *s = runview_matrix(v, "expert_load");
    t_true(s->n <= RUNVIEW_MATRIX_POINTS);
    t_eq(s->n + v->matrices_thinned, N);
    t_true(v->matrices_thinned > 0);
    t_eq(s->point[0].step, 0);
    t_eq(s->point[s->n - 1].step, N - 1);
    t_near(s->point[s->n - 1].v[0], N - 1, 0);
    for (size_t i = 1; i < s->n; i++)
        t_true(s->point[i].step > s->point[i - 1].step);
    runview_free(v);
}

/* 5 MiB each: memory ends before the number of points. */
T(large_matrices_stay_within_their_memory)
{
    enum { SIDE = 1024, N = 150 };
    struct runview *v = runview_new();
    struct record *r = record_new();
    float *a = mem_alloc(SIDE * SIDE, sizeof *a);
    t_true(v && r && a);
    for (int i = 0; i < N; i++) {
        struct str bytes = {0};
        struct value body;
        struct err e = {0};
        record_begin(r, "matrix", i, 0);
        record_str(r, "name", i % 2 ? "a" : "b");
        record_int(r, "rows", SIDE);
        record_int(r, "cols", SIDE);
        record_f32s(r, "value", a, SIDE * SIDE);
        t_ok(record_end(r, 1, &bytes, &e), &e);
        t_true(record_parse(bytes.p, bytes.len, NULL, &body, &e) > 0);
        runview_take(v, body);
        str_release(&bytes);
    }
    size_t n = runview_matrix(v, "a")->n + runview_matrix(v, "b")->n;
    t_true(n * SIDE * SIDE * sizeof *a <= RUNVIEW_MATRIX_BYTES);
    t_true(n > 30);
    t_eq(n + v->matrices_thinned, N);
    t_eq(runview_matrix(v, "a")->point[runview_matrix(v, "a")->n - 1].step, N - 1);
    mem_free(a);
    record_free(r);
    runview_free(v);
}

/* ---- load ---- */

T(loads_are_relative_to_an_even_load)
{
    static const float a[8] = {4, 0, 2, 2, 0, 0, 0, 0};
    static const int32_t layer[2] = {3, 7};
    begin(8);
    matrix(5, "expert_load", 2, 4, a, 8, layer, 2);
    struct runview *v = end();
    struct expert_load x;
    struct err e = {0};
    int hot[4];
    t_ok(expert_load_read(&x, v, 0, &e), &e);
    struct expert_row r = expert_row_of(&x, 0), empty = expert_row_of(&x, 1);
    t_eq(x.probes, 0);
    t_eq(x.layer[1], 7);
    t_near(r.sum, 8, 0);
    t_near(r.cv, sqrt(2) / 2, 1e-12); /* deviations 2 -2 0 0 from a mean of 2 */
    t_eq(r.top, 0);
    t_eq(r.dead, 1);
    t_near(expert_relative(&x, 0, 0), 2, 1e-12);
    t_near(expert_relative(&x, 0, 1), 0, 0);
    t_eq(expert_rank(&x, 0, 0), 1);
    t_eq(expert_rank(&x, 0, 3), 2); /* ties share a rank */
    t_eq(expert_rank(&x, 0, 1), 4);
    t_eq(expert_hottest(&x, 0, hot, 4), 3); /* dead ones are not hot */
    t_true(hot[0] == 0 && hot[1] == 2 && hot[2] == 3);
    t_eq(expert_hottest(&x, 0, hot, 2), 2);
    t_eq(hot[1], 2);
    t_true(isnan(empty.cv) && isnan(expert_relative(&x, 1, 0)));
    t_eq(expert_hottest(&x, 1, hot, 4), 0);
    expert_load_release(&x);
    runview_free(v);
}

T(values_that_are_no_counts_are_not_counted)
{
    begin(4);
    load(1, (const float[]){(float)NAN, -3, (float)INFINITY, 5}, 4);
    struct runview *v = end();
    struct expert_load x;
    struct err e = {0};
    t_ok(expert_load_read(&x, v, 0, &e), &e);
    t_near(expert_row_of(&x, 0).sum, 5, 0);
    t_eq(expert_row_of(&x, 0).dead, 3);
    t_eq(v->n_events, 0);
    expert_load_release(&x);
    runview_free(v);
}

/* The same counts by another way: from the formula of the fixture. */
T(without_a_matrix_the_cells_of_the_probes_of_a_step_are_counted)
{
    const struct mixture m = {MIX_LAYERS, MIX_EXPERTS, 200, 100, MIX_NO_LOADS};
    static double want[MIX_LAYERS][MIX_EXPERTS];
    t_true(fixture_begin(&f));
    mix_run(&f, &m);
    struct runview *v = end();
    struct expert_load x;
    struct err e = {0};
    t_eq(expert_loads(v), 2);
    t_eq(experts_per_token(v), 2);
    t_ok(expert_load_read(&x, v, 1, &e), &e);
    t_eq(x.step, 200);
    t_eq(x.probes, 2);
    t_eq(x.tokens, 2 * MIX_TOKENS);
    t_eq(x.rows, MIX_LAYERS - 1); /* layer 0 has no experts */
    t_eq(x.layer[0], 1);
    t_eq(x.experts, MIX_EXPERTS);
    t_eq(x.is_least, 0);
    for (int l = 1; l < MIX_LAYERS; l++)
        for (int index = 0; index < 2; index++)
            for (int t = 0; t < MIX_TOKENS; t++)
                for (int k = 0; k < 2; k++)
                    want[l][mix_expert(&m, k, l, t + 4 * index, 200)]++;
    for (int l = 1; l < MIX_LAYERS; l++)
        for (int k = 0; k < MIX_EXPERTS; k++)
            t_near(x.count[(l - 1) * MIX_EXPERTS + k], want[l][k], 0);
    double trend[2];
    expert_trend(v, 4, 3, trend, 2);
    t_near(trend[1], expert_relative(&x, 3, 3), 1e-12);
    t_true(trend[0] > 0 && fabs(trend[0] - trend[1]) > 1e-9);
    expert_load_release(&x);
    runview_free(v);
}

T(an_unknown_number_of_experts_is_a_least_number)
{
    const struct mixture m = {MIX_LAYERS, MIX_EXPERTS, 100, 100, MIX_NO_LOADS | MIX_NO_COUNT};
    t_true(fixture_begin(&f));
    mix_run(&f, &m);
    struct runview *v = end();
    struct expert_load x;
    struct err e = {0};
    t_ok(expert_load_read(&x, v, 0, &e), &e);
    t_eq(x.is_least, 1);
    t_eq(x.experts, MIX_EXPERTS);
    expert_load_release(&x);
    runview_free(v);
}

T(a_run_without_experts_says_what_is_missing)
{
    begin(4);
    struct runview *v = end();
    struct expert_load x;
    struct err e = {0};
    t_eq(expert_loads(v), 0);
    t_fails(expert_load_read(&x, v, 0, &e), &e, DS_ENOTFOUND,
            "no record 'matrix' named expert_load");
    runview_free(v);
}

/* ---- collapse ---- */

T(a_collapse_is_reported_by_the_record_that_shows_it_and_once)
{
    static const float even[8] = {10, 10, 10, 10, 10, 10, 10, 10},
                       all[8] = {0, 0, 0, 0, 0, 96, 4, 0}, most[8] = {2, 2, 2, 2, 2, 85, 3, 2};
    begin(4);
    load(100, even, 8);
    load(200, all, 8);
    load(300, all, 8);
    load(400, most, 8); /* less than at the begin, but not over yet */
    load(500, even, 8);
    load(600, all, 8);
    struct runview *v = end();
    t_eq(v->n_events, 3);
    t_str(v->event[0].name, "expert_collapse");
    t_eq(v->event[0].step, 200);
    t_eq(v->event[0].level, LOG_WARN);
    t_str(v->event[0].text, "layer 0: expert 5 takes 96 % of the tokens");
    t_str(v->event[1].name, "expert_recovery");
    t_eq(v->event[1].step, 500);
    t_eq(v->event[1].level, LOG_INFO);
    t_str(v->event[2].name, "expert_collapse");
    t_eq(v->event[2].step, 600);
    runview_free(v);
}

/* With k experts a token, one that takes every token has 1/k of the assignments. */
T(a_collapse_is_measured_in_tokens)
{
    static const float half[8] = {48, 9, 8, 7, 7, 7, 7, 7}, pair[4] = {50, 50, 0, 0},
                       triple[4] = {33, 33, 33, 1};
    int expert;
    double share;
    t_eq(experts_collapsed(half, 8, 1, &expert, &share), 0);
    t_near(share, 0.48, 1e-6);
    t_eq(experts_collapsed(half, 8, 2, &expert, &share), 1);
    t_near(share, 0.96, 1e-6);
    t_eq(experts_collapsed(pair, 4, 2, &expert, &share), 1);
    t_eq(experts_collapsed(triple, 4, 3, &expert, &share), 0); /* near to even: 1.3 times ideal */
    t_eq(experts_collapsed((const float[]){99, 1, 0}, 3, 1, &expert, &share), -1); /* too few */
    t_eq(experts_collapsed((const float[]){0, 0, 0, 0}, 4, 1, &expert, &share), -1);
    t_eq(experts_collapsed((const float[]){9, (float)NAN, 0, 0}, 4, 1, &expert, &share), -1);
}

T(a_collapse_of_many_layers_is_one_event)
{
    enum { ROWS = 94, COLS = 4 };
    static float a[ROWS * COLS];
    for (int i = 0; i < ROWS; i++)
        a[i * COLS + i % COLS] = 100;
    begin(ROWS);
    matrix(7, "expert_load", ROWS, COLS, a, ROWS * COLS, NULL, 0);
    struct runview *v = end();
    t_eq(v->n_events, 1);
    t_true(strstr(v->event[0].text,
                  "layer 5: expert 1 takes 100 % of the tokens; and 88 more layers"));
    runview_free(v);
}

T(a_collapse_is_reported_again_after_a_resume)
{
    static const float all[4] = {100, 0, 0, 0};
    const struct fixture_head h = {
        .run = "x", .method = "moe", .layers = 4, .steps = 9, .resume = 1};
    begin(4);
    load(10, all, 4);
    load(20, all, 4);
    fixture_head(&f, 10, &h);
    load(20, all, 4);
    struct runview *v = end();
    t_eq(events(v, "expert_collapse"), 2);
    runview_free(v);
}

T(other_matrices_raise_no_event)
{
    begin(4);
    matrix(1, "router_bias", 1, 4, (const float[]){100, 0, 0, 0}, 4, NULL, 0);
    struct runview *v = end();
    t_eq(v->n_events, 0);
    runview_free(v);
}

/* ---- cells ---- */

T(categories_and_inferred_values_are_marked)
{
    const struct mixture m = {MIX_LAYERS, MIX_EXPERTS, 100, 100, MIX_NO_LOADS | MIX_INFERRED};
    t_true(fixture_begin(&f));
    mix_run(&f, &m);
    struct runview *v = end();
    const struct probe *p = runview_probe(v, 0);
    t_true(p && p->run_is_inferred);
    t_true(probe_cell(p, "expert")->is_category && probe_cell(p, "expert")->is_inferred);
    t_true(probe_cell(p, "expert_2")->is_category && !probe_cell(p, "expert_2")->is_inferred);
    t_true(!probe_cell(p, "expert_weight")->is_category);
    t_eq(probe_expert_ranks(p), 2);
    t_eq(probe_expert_of(p, 0, 0, 0), -1);
    t_eq(probe_expert_of(p, 0, 2, 3), 3);
    t_eq(probe_expert_rank_of(p, 2, 3, 6), 1);
    t_eq(probe_expert_rank_of(p, 2, 3, 9), -1);
    t_eq(v->invalid, 0);
    runview_free(v);
}

/* A writer that does not call its cell a category means an amount. */
T(a_cell_named_expert_is_an_amount_unless_it_is_called_a_category)
{
    static const unsigned char run[4] = {1, 1, 1, 1};
    static const float cell[4] = {0.5f, 1, -7, 1e9f};
    for (int kind = 0; kind < 3; kind++) {
        begin(2);
        record_begin(f.record, "probe", 1, 0);
        record_int(f.record, "layers", 2);
        record_bytes(f.record, "run", run, 4);
        record_map(f.record, "cell");
        record_f32s(f.record, "expert", cell, 4);
        record_close(f.record);
        if (kind) {
            record_map(f.record, "cell_kind");
            record_str(f.record, "expert", kind == 1 ? "category" : "colour");
            record_str(f.record, "absent", "category");
            record_close(f.record);
        }
        fixture_put(&f);
        struct runview *v = end();
        const struct probe *p = runview_probe(v, 0);
        t_eq(expert_loads(v), kind == 1);
        t_eq(v->invalid, kind == 2);
        if (kind == 1) { /* fractions, negative and huge numbers are no experts */
            t_eq(probe_expert_of(p, 0, 0, 0), -1);
            t_eq(probe_expert_of(p, 0, 0, 1), 1);
            t_eq(probe_expert_of(p, 0, 1, 0), -1);
            t_eq(probe_expert_of(p, 0, 1, 1), -1);
        }
        runview_free(v);
    }
}

T(a_probe_without_decisions_has_unknown_ones)
{
    const struct mixture m = {MIX_LAYERS, MIX_EXPERTS, 100, 100, MIX_NO_LOADS | MIX_NO_RUN};
    t_true(fixture_begin(&f));
    mix_run(&f, &m);
    record_begin(f.record, "probe", 200, 0); /* more cells than any record can hold */
    record_int(f.record, "layers", 4096);
    record_pieces(f.record, "text", (const char *const[8192]){0}, (const size_t[8192]){0}, 8192);
    fixture_put(&f);
    struct runview *v = end();
    const struct probe *p = runview_probe(v, 0);
    t_true(p && p->run == NULL);
    t_eq(p->tokens, MIX_TOKENS);
    t_eq(p->step, 100);
    t_eq(v->invalid, 1);
    t_eq(expert_loads(v), 1);
    runview_free(v);
}
