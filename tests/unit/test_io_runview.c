/* Run views: records to series, probes, events and state; memory bounds and damage. */
#include "t.h"

#include <fcntl.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fs.h"
#include "base/mem.h"
#include "io/runlog.h"
#include "io/runview.h"

static struct record *r;

static void begin(const char *kind, int64_t step)
{
    if (!r)
        r = record_new();
    record_begin(r, kind, step, 1700000000.0 + (double)step);
}

/* Passes the record being built to the view, as the stepper does. */
static void take(struct runview *v)
{
    struct str s = {0};
    struct value body;
    struct err e = {0};
    t_ok(record_end(r, 1, &s, &e), &e);
    t_true(record_parse(s.p, s.len, NULL, &body, &e) > 0);
    runview_take(v, body);
    str_release(&s);
}

static void metric(struct runview *v, int64_t step, double loss)
{
    begin("metric", step);
    record_num(r, "loss", loss);
    record_int(r, "tokens", 100 * step);
    take(v);
}

static void begin_probe(int64_t step, int index, int layers, int tokens)
{
    static unsigned char run[1 << 16];
    static float m[1 << 16];
    static int32_t ids[1 << 12];
    const char *piece[] = {"a\0b", "\xff"};
    size_t len[] = {3, 1};
    size_t cells = (size_t)layers * (size_t)tokens;
    begin("probe", step);
    record_int(r, "index", index);
    record_str(r, "name", "synth");
    record_int(r, "layers", layers);
    record_i32s(r, "ids", ids, (size_t)tokens);
    if (tokens == 2)
        record_pieces(r, "text", piece, len, 2);
    for (size_t i = 0; i < cells; i++) {
        run[i] = i % 3 == 0;
        m[i] = (float)i;
    }
    record_bytes(r, "run", run, cells);
    record_f32s(r, "nll", m, (size_t)tokens);
    record_map(r, "cell");
    record_f32s(r, "gate", m, cells);
    record_f32s(r, "short", m, cells - 1);
    record_close(r);
    record_map(r, "token");
    record_f32s(r, "class", m, (size_t)tokens);
    record_close(r);
    record_num(r, "flops_dense", 12);
}

static void probe(struct runview *v, int64_t step, int index, int layers, int tokens)
{
    begin_probe(step, index, layers, tokens);
    take(v);
}

static void head(struct runview *v, int64_t step, int resume)
{
    begin("head", step);
    record_int(r, "format", 1);
    record_str(r, "run", "alpha");
    record_str(r, "method", "mod");
    record_int(r, "layers", 4);
    record_int(r, "steps", 1000);
    record_num(r, "flops_dense", 5e6);
    record_bool(r, "resume", resume);
    record_map(r, "config");
    record_str(r, "train.lr", "3e-4");
    record_int(r, "seed", 7);
    record_num(r, "dropout", 0.1);
    record_str(r, "model.rope_theta", "1e+04");
    record_str(r, "train.flops_budget", "3e+18");
    record_str(r, "note", "1e+04 windows");
    record_close(r);
    record_array(r, "metrics");
    record_map(r, NULL);
    record_str(r, "name", "loss");
    record_str(r, "unit", "nats");
    record_str(r, "help", "mean over the batch");
    record_close(r);
    record_close(r);
    take(v);
}

T(a_complete_run_is_read)
{
    struct runview *v = runview_new();
    float gates[4] = {1, 0.5f, 0.25f, NAN};
    double cap[4] = {1, 2, 3, 4};
    head(v, 0, 0);
    metric(v, 1, 3);
    metric(v, 2, NAN);
    begin("layer", 2);
    record_f32s(r, "gate_ratio", gates, 4);
    record_nums(r, "threshold", cap, 4);
    record_nums(r, "wrong", cap, 3);
    take(v);
    probe(v, 2, 3, 4, 2);
    begin("eval", 2);
    record_str(r, "task", "ppl");
    record_str(r, "routing", "causal");
    record_num(r, "loss", 2.5);
    record_nums(r, "capacity", cap, 4);
    take(v);
    begin("sample", 2);
    record_str(r, "name", "val");
    record_int(r, "n", 4);
    record_map(r, "column");
    record_nums(r, "depth", cap, 4);
    record_nums(r, "bad", cap, 2);
    record_close(r);
    take(v);
    begin("event", 2);
    record_str(r, "level", "warn");
    record_str(r, "name", "nan");
    record_str(r, "text", "loss is NaN");
    take(v);
    begin("wonder", 3);
    take(v);

    t_str(v->name, "alpha");
    t_str(v->method, "mod");
    t_str(v->parent, "");
    t_eq(v->layers, 4);
    t_eq(v->steps_planned, 1000);
    t_str(runview_config(v, "train.lr"), "3e-4");
    t_str(runview_config(v, "seed"), "7");
    t_str(runview_config(v, "dropout"), "0.1");
    t_str(runview_config(v, "model.rope_theta"), "10000"); /* as earlier versions wrote it */
    t_str(runview_config(v, "train.flops_budget"), "3e+18");
    t_str(runview_config(v, "note"), "1e+04 windows");
    t_true(runview_config(v, "none") == NULL);
    const struct series *s = runview_series(v, "loss");
    t_eq(s->n, 2);
    t_str(s->unit, "nats");
    t_eq(s->nonfinite, 1);
    t_near(s->tokens[1], 200, 0);
    t_near(s->time[0], 1700000001.0, 0);
    t_true(runview_series(v, "step") == NULL && runview_series(v, "time") == NULL);
    t_true(runview_series(v, "tokens") != NULL);
    t_eq(runview_layer(v, "gate_ratio")->n, 1);
    t_near(runview_layer(v, "threshold")->value[3], 4, 0);
    t_true(runview_layer(v, "wrong") == NULL);
    const struct probe *p = runview_probe(v, 3);
    t_true(p && p == runview_probe(v, -1) && runview_probe(v, 0) == NULL);
    t_eq(p->tokens, 2);
    t_eq(p->piece_len[0], 3);
    t_true(memcmp(p->piece[0], "a\0b", 4) == 0 && strcmp(p->piece[1], "\xff") == 0);
    t_eq(p->run[0] + p->run[1] + p->run[3], 2);
    t_eq(probe_cell(p, "gate")->rows, 4);
    t_near(probe_cell(p, "gate")->v[7], 7, 0);
    t_true(probe_cell(p, "short") == NULL && p->depth == NULL && p->nll != NULL);
    t_eq(probe_token(p, "class")->n, 2);
    t_near(runview_eval(v, "ppl", "loss"), 2.5, 1e-6);
    t_near(runview_eval(v, NULL, "loss"), 2.5, 1e-6);
    t_true(isnan(runview_eval(v, "mmlu", "loss")));
    t_eq(runview_eval_vector(v, "ppl", "capacity")->n, 4);
    t_eq(sample_column(runview_sample(v, "val"), "depth")->n, 4);
    t_true(sample_column(runview_sample(v, "val"), "bad") == NULL);
    t_eq(v->n_events, 1);
    t_str(v->event[0].text, "loss is NaN");
    t_eq(v->invalid, 3); /* wrong, short, bad */
    t_eq(v->records, 9);
    runview_free(v);
}

T(a_head_without_resume_adds_to_what_is_known)
{
    struct runview *v = runview_new();
    for (int half = 0; half < 2; half++) {
        begin("head", 0);
        record_str(r, half ? "method" : "host", "x");
        take(v);
        for (int k = 1; k <= 3; k++) {
            begin("metric", 3 * half + k);
            record_num(r, "loss", k);
            take(v);
        }
    }
    for (size_t i = 0; i < 6; i++)
        t_true(!runview_series(v, "loss")->is_old[i]);
    begin("metric", 5);
    record_num(r, "loss", 9);
    take(v);
    t_true(!runview_series(v, "loss")->is_old[3] && runview_series(v, "loss")->is_old[4]);
    begin("eval", 5);
    record_str(r, "task", "val");
    record_str(r, "perplexity", "Inf");
    take(v);
    t_true(isinf(runview_eval(v, "val", "perplexity")));
    runview_free(v);
}

/* What is listed by name can be written as a JSON object. */
T(a_name_is_taken_once_and_is_text)
{
    struct runview *v = runview_new();
    begin("eval", 1);
    record_str(r, "task", "ppl");
    record_num(r, "loss", 2);
    record_num(r, "loss", 3);
    record_num(r, "a\xff", 4);
    take(v);
    t_eq(v->invalid, 2);
    t_eq(v->eval[0].values, 1);
    t_near(runview_eval(v, "ppl", "loss"), 2, 0);
    begin("sample", 2);
    record_map(r, "column");
    record_f32s(r, "depth", (float[]){1, 2}, 2);
    record_f32s(r, "depth", (float[]){3, 4}, 2);
    record_close(r);
    take(v);
    t_eq(v->invalid, 3);
    t_eq(runview_sample(v, NULL)->columns, 1);
    t_near(sample_column(runview_sample(v, NULL), "depth")->v[1], 2, 0);
    begin("sample", 2); /* of a run that keeps none */
    record_int(r, "n", 0);
    record_map(r, "column");
    record_f32s(r, "depth", (float[]){0}, 0);
    record_str(r, "nll", "none");
    record_close(r);
    take(v);
    t_eq(v->invalid, 4);
    begin("probe", 3);
    record_int(r, "layers", 2);
    record_i32s(r, "ids", (int32_t[]){1, 2}, 2);
    record_bytes(r, "run", "\1\1\1\0", 4);
    record_map(r, "cell");
    record_f32s(r, "gate", (float[]){0, 1, 2, 3}, 4);
    record_f32s(r, "gate", (float[]){4, 5, 6, 7}, 4);
    record_close(r);
    record_map(r, "token");
    record_f32s(r, "class", (float[]){0, 1}, 2);
    record_f32s(r, "class", (float[]){2, 3}, 2);
    record_close(r);
    take(v);
    const struct probe *p = runview_probe(v, -1);
    t_true(p && p->cells == 1 && p->vectors == 1);
    t_near(probe_cell(p, "gate")->v[3], 3, 0);
    t_near(probe_token(p, "class")->v[1], 1, 0);
    t_eq(v->invalid, 6);
    runview_free(v);
}

T(wrong_types_are_counted_and_skipped) /* C15 C19 */
{
    struct runview *v = runview_new();
    begin("metric", 1);
    record_str(r, "loss", "three");
    record_str(r, "lr", "NaN");
    record_map(r, "odd");
    record_close(r);
    take(v);
    t_eq(v->invalid, 2);
    t_true(runview_series(v, "loss") == NULL);
    t_eq(runview_series(v, "lr")->nonfinite, 1);
    begin("metric", -5);
    record_num(r, "loss", 1);
    take(v);
    begin("metric", INT64_MAX);
    record_num(r, "loss", 1);
    record_num(r, "time", 0x1p63); /* a second time; the later one counts */
    take(v);
    t_eq(runview_series(v, "loss")->n, 1);
    t_true(isnan(runview_series(v, "loss")->time[0]));
    t_true(v->step == INT64_MAX);
    begin("probe", 1);
    record_int(r, "layers", 1 << 30);
    record_bytes(r, "run", "", 0);
    take(v);
    begin("probe", 1);
    take(v);
    t_eq(v->n_probes, 0);
    begin("head", 0);
    record_str(r, "layers", "many");
    record_int(r, "format", 99);
    record_int(r, "method", 4);
    take(v);
    t_str(v->method, "");
    t_str(v->event[0].name, "format"); /* C14 */
    struct value body;
    t_eq(value_check("\x80", 1, &body, NULL, NULL), 0);
    runview_take(v, body); /* no kind, no step */
    t_true(v->invalid >= 8);
    runview_free(v);
}

T(metric_names_are_capped_and_the_rest_counted) /* C16 */
{
    struct runview *v = runview_new();
    char name[32];
    for (int i = 0; i < RUNVIEW_METRICS + 1488; i++) {
        begin("metric", i);
        snprintf(name, sizeof name, "m%d", i);
        record_num(r, name, i);
        take(v);
    }
    t_eq(v->n_series, RUNVIEW_METRICS);
    t_eq(v->others, 1488);
    t_near(runview_series(v, "m511")->value[0], 511, 0);
    runview_free(v);
}

T(resume_marks_superseded_points)
{
    struct runview *v = runview_new();
    head(v, 0, 0);
    for (int i = 0; i < 150; i += 10)
        metric(v, i, i);
    head(v, 100, 1);
    for (int i = 105; i < 200; i += 10)
        metric(v, i, -i);
    const struct series *s = runview_series(v, "loss");
    t_eq(s->n, 25);
    for (size_t i = 0; i < s->n; i++)
        t_eq(s->is_old[i], i < 15 && s->step[i] > 100);
    t_eq(s->step[series_find(s, 95)], 100);
    t_eq(series_find(s, 101), 15);
    t_eq(s->step[series_find(s, 120)], 125);
    t_eq(series_find(s, 0), 0);
    t_eq(series_find(s, 1000), s->n);
    metric(v, 50, 5); /* steps go back without a head */
    t_eq(s->is_old[24], 1);
    t_eq(s->is_old[4], 0);
    t_eq(s->is_old[5], 1);
    t_eq(s->step[series_find(s, 45)], 50);
    runview_free(v);
}

T(the_newest_probe_is_one_that_no_resume_superseded)
{
    struct runview *v = runview_new();
    head(v, 0, 0);
    for (int64_t step = 300; step <= 900; step += 300)
        probe(v, step, 0, 4, 2);
    probe(v, 900, 1, 4, 2);
    t_eq(runview_probe(v, -1)->step, 900);
    head(v, 500, 1);
    t_eq(runview_probe(v, -1)->step, 300);
    t_eq(runview_probe(v, 0)->step, 300);
    t_eq(runview_probe(v, 1)->step, 900); /* there is no other */
    probe(v, 600, 0, 4, 2);
    t_eq(runview_probe(v, -1)->step, 600);
    runview_free(v);
}

static void trained(struct runview *v, int64_t step, double tokens, double ratio)
{
    begin("metric", step);
    record_num(r, "loss", 3); /* before the values that its axes need */
    record_num(r, "tokens", tokens);
    if (ratio > 0)
        record_num(r, "flops_ratio", ratio);
    take(v);
}

static void head_at(struct runview *v, int64_t step, int resume)
{
    begin("head", step);
    record_int(r, "steps", 40);
    record_num(r, "flops_dense", 100);
    record_bool(r, "resume", resume);
    take(v);
}

T(points_have_a_position_on_every_axis_also_after_a_resume)
{
    struct runview *v = runview_new();
    t_true(isnan(runview_start(v)));
    trained(v, 1, 5, 0.5); /* flops_dense is not known yet */
    t_true(isnan(runview_series(v, "loss")->flops[0]));
    runview_free(v);
    v = runview_new();
    head_at(v, 0, 0);
    trained(v, 10, 1000, 0.5);
    trained(v, 20, 2000, 0.25);
    trained(v, 30, 3000, 1);
    head_at(v, 20, 1);
    trained(v, 25, 2500, 0.5); /* after step 20, not after the superseded 30 */
    trained(v, 30, 3000, 0);   /* no ratio: a dense model */
    begin("metric", 30);       /* of the same step, in its own record */
    record_num(r, "val_loss", 2);
    take(v);
    trained(v, 15, 1500, 1); /* back without a head */
    const struct series *s = runview_series(v, "loss"), *val = runview_series(v, "val_loss");
    static const double want[] = {150e3, 225e3, 525e3, 300e3, 450e3, 300e3};
    double start = runview_start(v);
    t_eq(s->n, 6);
    for (size_t i = 0; i < s->n; i++) {
        t_near(series_x(s, i, AXIS_FLOPS, 40, start), want[i], 1e-6);
        t_near(series_x(s, i, AXIS_TOKENS, 40, start), 100.0 * (double)s->step[i], 0);
        t_near(series_x(s, i, AXIS_STEP, 40, start), (double)s->step[i], 0);
        t_near(series_x(s, i, AXIS_PROGRESS, 40, start), (double)s->step[i] / 40, 1e-12);
        t_near(series_x(s, i, AXIS_SECONDS, 40, start), (double)s->step[i] - 10, 0);
    }
    t_near(series_x(val, 0, AXIS_FLOPS, 40, start), 450e3, 1e-6);
    t_near(series_x(val, 0, AXIS_SECONDS, 40, start), 20, 0);
    t_true(isnan(series_x(s, 0, AXIS_PROGRESS, 0, start)));
    for (int i = 0; i < RUN_AXES; i++)
        t_eq(run_axis_find(run_axis_name[i]), i);
    t_eq(run_axis_find("loss"), -1);
    runview_free(v);
}

T(many_resumes_stay_cheap)
{
    struct runview *v = runview_new();
    for (int i = 0; i < 50000; i++)
        metric(v, 50000 - i, i);
    t_eq(runview_series(v, "loss")->n, 50000);
    runview_free(v);
}

static void slow_range(const struct series *s, size_t i0, size_t i1, struct series_span *w)
{
    *w = (struct series_span){NAN, NAN, NAN, i1 - i0, 0};
    for (size_t i = i0; i < i1; i++) {
        double x = s->value[i];
        if (!isfinite(x)) {
            w->nonfinite++;
            continue;
        }
        w->min = !(w->min <= x) ? x : w->min;
        w->max = !(w->max >= x) ? x : w->max;
        w->last = x;
    }
}

static int same(double a, double b)
{
    return (isnan(a) && isnan(b)) || a == b;
}

static void head_live(struct runview *v, const char *key)
{
    begin("head", 0);
    record_map(r, "config");
    record_str(r, "train.lr", "0.003");
    record_str(r, "edp.target_ratio", "0.6");
    record_str(r, "edp.name", "text");
    record_close(r);
    if (key) {
        record_array(r, "live");
        record_map(r, NULL);
        record_str(r, "key", key);
        record_num(r, "min", 0);
        record_num(r, "max", 1);
        record_close(r);
        record_close(r);
    }
    take(v);
}

static void event(struct runview *v, const char *name, const char *text)
{
    begin("event", 5);
    record_str(r, "name", name);
    record_str(r, "text", text);
    take(v);
}

static void check_live(const struct runview *v, const char *key, double want)
{
    double x;
    t_truef(runview_live_value(v, key, &x) && x == want, "%s: %g, expected %g", key, x, want);
}

T(live_settings_have_the_value_of_the_newest_event)
{
    double x;
    struct runview *v = runview_new();
    head_live(v, "edp.target_ratio");
    t_eq(v->lives, 1);
    t_str(v->live[0].key, "edp.target_ratio");
    t_true(v->live[0].min == 0 && v->live[0].max == 1);
    check_live(v, "edp.target_ratio", 0.6);
    event(v, "set", "lr 0.5");
    event(v, "set", "edp.target_ratio 0.7");
    check_live(v, "train.lr", 0.5);
    check_live(v, "edp.target_ratio", 0.7);
    event(v, "settings", "edp.target_ratio 0.7 after step 2; edp.target_ratio 0.8 after step 4");
    check_live(v, "edp.target_ratio", 0.8);
    check_live(v, "train.lr", 0.003);
    event(v, "settings", "none");
    check_live(v, "edp.target_ratio", 0.6);
    t_true(!runview_live_value(v, "edp.name", &x) && !runview_live_value(v, "edp.absent", &x));
    head_live(v, "edp.\x1b[2J");
    t_true(v->lives == 0 && v->invalid == 1);
    head_live(v, NULL);
    t_eq(v->lives, 0);
    runview_free(v);
}

T(layer_metrics_under_a_former_name_have_the_current_one)
{
    static const double skip[2] = {0, 0.5};
    struct runview *v = runview_new();
    begin("head", 0);
    record_array(r, "metrics");
    record_map(r, NULL);
    record_str(r, "name", "skip_chance");
    record_str(r, "unit", "share");
    record_close(r);
    record_close(r);
    take(v);
    begin("layer", 1);
    record_nums(r, "skip_chance", skip, 2);
    take(v);
    const struct layer_series *s = runview_layer(v, "drop_probability");
    t_true(s && s->n == 1 && s->value[1] == 0.5f && !runview_layer(v, "skip_chance"));
    t_str(runview_unit(v, "drop_probability"), "share");
    runview_free(v);
}

T(range_equals_the_slow_way_while_the_series_grows)
{
    struct runview *v = runview_new();
    unsigned seed = 7;
    for (int n = 0; n < 6000; n++) {
        seed = seed * 1664525u + 1013904223u;
        double x = (n / 500) % 3 == 1 ? (double)(seed % 2 ? NAN : INFINITY) : (double)(seed >> 8);
        metric(v, n, x);
        if (n % 37)
            continue;
        const struct series *s = runview_series(v, "loss");
        for (int k = 0; k < 20; k++) {
            size_t a, b;
            struct series_span want, got;
            seed = seed * 1664525u + 1013904223u;
            a = (seed >> 8) % (s->n + 1);
            seed = seed * 1664525u + 1013904223u;
            b = a + (seed >> 8) % (s->n - a + 1);
            got = series_range(s, a, b);
            slow_range(s, a, b, &want);
            t_truef(same(got.min, want.min) && same(got.max, want.max) &&
                        same(got.last, want.last) && got.n == want.n &&
                        got.nonfinite == want.nonfinite,
                    "[%zu, %zu) of %zu", a, b, s->n);
        }
    }
    const struct series *s = runview_series(v, "loss");
    t_eq(series_range(s, 10, SIZE_MAX).n, s->n - 10);
    t_true(isnan(series_range(s, 5, 5).min) && series_range(s, 9, 3).n == 0);
    runview_free(v);
}

T(probes_are_thinned_and_the_newest_of_each_stays)
{
    struct runview *v = runview_new();
    probe(v, 0, 77, 1, 2); /* the only one of its text */
    for (int i = 1; i <= 9000; i++)
        probe(v, i, i % 3, 1, 2);
    t_true(v->n_probes <= RUNVIEW_PROBES);
    t_eq(v->n_probes + v->thinned, 9001);
    t_true(runview_probe(v, 77) != NULL);
    t_eq(runview_probe(v, 0)->step, 9000);
    t_eq(runview_probe(v, 1)->step, 8998);
    t_true(v->probe[1]->step < 50); /* the beginning is still there */
    for (size_t i = 1; i < v->n_probes; i++)
        t_true(v->probe[i]->step > v->probe[i - 1]->step);
    runview_free(v);
}

T(probe_memory_is_bounded)
{
    struct runview *v = runview_new();
    for (int i = 0; i < 2500; i++)
        probe(v, i, i, 12, 2048); /* 150 kB each, every one the newest of its text */
    t_true(v->thinned > 0);
    t_eq(v->probe[v->n_probes - 1]->step, 2499);
    runview_free(v);
}

/* ---- files
 * ------------------------------------------------------------------------------------------- */

static char dir[512], log_path[600];

static struct runlog_writer *open_run(void)
{
    struct runlog_writer *w;
    struct err e = {0};
    snprintf(dir, sizeof dir, "%s/beta", t_tmpdir());
    snprintf(log_path, sizeof log_path, "%s/log.mp", dir);
    t_ok(fs_mkdirs(dir, &e), &e);
    t_ok(runlog_writer_open(&w, log_path, &e), &e);
    return w;
}

static void put(struct runlog_writer *w, const char *kind, int64_t step, const char *key,
                const char *text)
{
    struct err e = {0};
    if (!r)
        r = record_new();
    record_begin(r, kind, step, clock_wall() - 3600);
    if (key)
        record_str(r, key, text);
    else
        record_num(r, "loss", 1.0);
    t_ok(runlog_append(w, r, &e), &e);
}

static enum run_state state_of(const char *path)
{
    struct runview *v;
    struct err e = {0};
    t_ok(runview_open(&v, path, &e), &e);
    enum run_state s = v->state;
    runview_free(v);
    return s;
}

T(state_follows_lock_events_and_end)
{
    struct err e = {0};
    struct runview *v;
    struct runlog_writer *w = open_run();
    t_eq(state_of(dir), RUN_LIVE);
    put(w, "metric", 1, NULL, NULL);
    t_eq(state_of(dir), RUN_LIVE);
    put(w, "event", 1, "name", "pause");
    t_eq(state_of(log_path), RUN_PAUSED);
    put(w, "event", 1, "name", "resume");
    t_eq(state_of(dir), RUN_LIVE);
    t_ok(runview_open(&v, dir, &e), &e);
    t_str(v->name, "beta");
    runlog_writer_close(w);
    t_ok(runlog_writer_open(&w, log_path, &e), &e);
    runlog_writer_close(w);
    t_eq(state_of(dir), RUN_SILENT);
    t_ok(runlog_writer_open(&w, log_path, &e), &e);
    put(w, "end", 2, "status", "done");
    t_eq(runview_poll(v, 1, &e), 1);
    t_eq(v->state, RUN_DONE);
    t_eq(runview_poll(v, 1, &e), 0);
    put(w, "head", 2, "run", "gamma");
    t_eq(runview_poll(v, 1, &e), 1);
    t_eq(v->state, RUN_LIVE);
    t_str(v->name, "beta"); /* a directory has its own name, whatever the head says */
    put(w, "end", 2, "status", "failed");
    runlog_writer_close(w);
    t_eq(state_of(dir), RUN_FAILED);
    runview_free(v);
}

static struct fs_ops growing_ops;
static const struct fs_ops *real_ops;
static struct str one_record;

/* A writer that adds a record for every read: faster than any reader. */
static ssize_t read_and_grow(int fd, void *buf, size_t n)
{
    ssize_t got = real_ops->read(fd, buf, n);
    int to = open(log_path, O_WRONLY | O_APPEND);
    if (to >= 0 && write(to, one_record.p, one_record.len) > 0)
        close(to);
    return got;
}

T(a_writer_whose_clock_differs_has_the_age_of_ours)
{
    struct err e = {0};
    struct runview *v;
    struct runlog_writer *w = open_run();
    put(w, "metric", 1, NULL, NULL); /* an hour ago by its clock */
    runlog_writer_close(w);
    t_ok(runview_open(&v, dir, &e), &e);
    double now = clock_wall(), age = runview_age(v, now);
    t_eq(v->state, RUN_SILENT);
    v->skew = -3590;
    t_near(runview_age(v, now), age - 3590, 1e-3);
    t_ok(runview_poll(v, 1, &e) >= 0 ? 0 : e.code, &e);
    t_eq(v->state, RUN_LIVE); /* ten seconds ago, and no end */
    runview_free(v);
}

T(a_file_that_grows_faster_than_it_is_read_opens)
{
    struct err e = {0};
    struct runview *v = NULL;
    struct runlog_writer *w = open_run();
    for (int i = 0; i < 3; i++)
        put(w, "metric", i, NULL, NULL);
    runlog_writer_close(w);
    t_ok(fs_read_file(&one_record, log_path, 1 << 20, &e), &e);
    real_ops = fs_ops_get();
    growing_ops = *real_ops;
    growing_ops.read = read_and_grow;
    fs_ops_set(&growing_ops);
    int rc = runview_open(&v, log_path, &e);
    fs_ops_set(NULL);
    t_ok(rc, &e);
    t_true(v->n_series == 1 && v->series[0].n >= 3);
    runview_free(v);
    str_release(&one_record);
}

T(damage_and_replacement_are_reported)
{
    struct err e = {0};
    struct runview *v;
    struct str all = {0};
    struct runlog_writer *w = open_run();
    for (int i = 0; i < 9; i++)
        put(w, "metric", i, NULL, NULL);
    runlog_writer_close(w);
    t_ok(fs_read_file(&all, log_path, 1 << 20, &e), &e);
    memset(all.p + all.len / 2, 0x11, 20);
    t_ok(fs_write_file(log_path, all.p, all.len, &e), &e);
    t_ok(runview_open(&v, dir, &e), &e);
    t_eq(v->gaps, 1);
    t_true(v->lost >= 1 && v->records + v->lost == 9);
    t_str(v->event[0].name, "gap");
    t_ok(fs_write_file(log_path, all.p, all.len / 9, &e), &e);
    t_eq(runview_poll(v, 1, &e), 1);
    t_eq(v->records, 1);
    t_str(v->event[0].name, "reset");
    runview_free(v);
    str_release(&all);
}

T(what_is_not_a_run_is_refused_by_name)
{
    struct err e = {0};
    struct runview *v = NULL;
    char p[600];
    const char *d = t_tmpdir();
    t_fails(runview_open(&v, d, &e), &e, DS_ENOTFOUND, "log.mp");
    t_fails(runview_open(&v, "/nonexistent", &e), &e, DS_ENOTFOUND, "/nonexistent");
    snprintf(p, sizeof p, "%s/poem.txt", d);
    t_ok(fs_write_file(p, "Tyger Tyger", 11, &e), &e);
    t_fails(runview_open(&v, p, &e), &e, DS_EFORMAT, "not a record stream");
    snprintf(p, sizeof p, "%s/empty.mp", d);
    t_ok(fs_write_file(p, "", 0, &e), &e);
    t_ok(runview_open(&v, p, &e), &e);
    t_str(v->name, "empty");
    t_eq(v->state, RUN_EMPTY);
    runview_free(v);
}

T(memory_failures_leave_no_view)
{
    struct err e = {0};
    struct runlog_writer *w = open_run();
    put(w, "head", 0, "run", "x");
    for (int i = 0; i < 5; i++)
        put(w, "metric", i, NULL, NULL);
    put(w, "event", 0, "text", "x");
    runlog_writer_close(w);
    int failures = 0;
    for (uint64_t n = 1; n < 200; n++) {
        struct runview *v = NULL;
        mem_fail_at(mem_calls() + n, 0);
        int rc = runview_open(&v, dir, &e);
        mem_fail_at(0, 0);
        failures += rc < 0;
        if (rc == 0)
            runview_free(v);
        else
            t_true(v == NULL);
    }
    t_true(failures > 10);
}

T(a_view_lacks_no_probe_for_want_of_memory)
{
    struct err e = {0};
    struct runlog_writer *w = open_run();
    int failures = 0;
    uint64_t at, n = 0;
    put(w, "head", 0, "run", "x");
    begin_probe(1, 0, 4, 2);
    t_ok(runlog_append(w, r, &e), &e);
    runlog_writer_close(w);
    do {
        struct runview *v = NULL;
        at = mem_calls() + ++n;
        mem_fail_at(at, 0);
        int rc = runview_open(&v, dir, &e);
        mem_fail_at(0, 0);
        failures += rc < 0;
        t_truef(rc < 0 || v->n_probes == 1, "allocation %d", (int)n);
        runview_free(v);
    } while (mem_calls() >= at && n < 500);
    t_true(failures > 10 && n < 500);
}

/* ---- speed: printed, not judged
 * -------------------------------------------------------------------------- */

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void time_open(int records, int metrics, int spike)
{
    struct str s = {0};
    struct err e = {0};
    struct runview *v;
    char p[600], name[32];
    if (!r)
        r = record_new();
    for (int i = 0; i < records; i++) {
        record_begin(r, "metric", i, i);
        for (int k = 0; k < metrics; k++) {
            snprintf(name, sizeof name, "metric_%d", k);
            record_num(r, name, i == spike ? 1e6 : i % 17);
        }
        t_ok(record_end(r, (uint64_t)i + 1, &s, &e), &e);
    }
    snprintf(p, sizeof p, "%s/x.mp", t_tmpdir());
    FILE *f = fopen(p, "wb");
    fwrite(s.p, 1, s.len, f);
    fclose(f);
    double t0 = seconds();
    t_ok(runview_open(&v, p, &e), &e);
    double t1 = seconds();
    const struct series *x = runview_series(v, "metric_0");
    t_eq(x->n, records);
    t_near(series_range(x, 0, x->n).max, 1e6, 0);
    double t2 = seconds();
    int columns = 1000, seen = 0;
    for (int c = 0; c < columns; c++) {
        size_t a = x->n * (size_t)c / 1000, b = x->n * (size_t)(c + 1) / 1000;
        seen += series_range(x, a, b).max == 1e6;
    }
    double t3 = seconds();
    t_eq(seen, 1); /* one spike is in one column, at any zoom */
    printf("  %d records of %d metrics (%.1f MB): open %.0f ms, pyramid %.2f ms, range %.2f us\n",
           records, metrics, 1e-6 * (double)s.len, 1e3 * (t1 - t0), 1e3 * (t2 - t1),
           1e6 * (t3 - t2) / columns);
    runview_free(v);
    str_release(&s);
}

T_SECONDS(a_million_points_open_quickly, 60)
{
    time_open(100000, 10, 31415);
}

T_SECONDS(a_million_records_open_quickly, 60)
{
    time_open(1000000, 1, 777777);
}

T(what_was_asked_for_is_told_of_a_probe)
{
    static const int32_t one[] = {1, 1, 0, -1}, two[] = {3, 0, 1, -1, 2, 1, -1, 5},
                         outside[] = {0, 0, 1, -1, 4, 0, 1, -1}, short_[] = {1, 1, 0};
    static const struct {
        double offset, capacity;
        int64_t exit;
        const int32_t *forced;
        size_t n;
        const char *routing, *caveat;
        int invalid;
    } row[] = {
        {0.5, NAN, 0, NULL, 0, "causal", "what-if, threshold offset +0.5", 0},
        {-2, 0.25, 3, NULL, 0, "topk",
         "top-k what-if, not causal, threshold offset -2, first 3 layers only, capacity 0.25", 0},
        {0, NAN, 0, one, 4, "causal", "what-if, 1 cell forced", 0},
        {0, NAN, 2, two, 8, "causal", "what-if, first 2 layers only, 2 cells forced", 0},
        {0, NAN, 0, outside, 8, "causal", "what-if", 1},
        {0, NAN, 0, short_, 3, "causal", "what-if", 1},
    };
    for (size_t i = 0; i < DS_LEN(row); i++) {
        struct runview *v = runview_new();
        begin_probe(1, 0, 4, 2);
        record_str(r, "routing", row[i].routing);
        record_map(r, "what_if");
        if (row[i].offset != 0)
            record_num(r, "threshold_offset", row[i].offset);
        if (row[i].exit > 0)
            record_int(r, "exit_layer", row[i].exit);
        if (!isnan(row[i].capacity))
            record_num(r, "capacity", row[i].capacity);
        if (row[i].forced)
            record_i32s(r, "forced", row[i].forced, row[i].n);
        record_close(r);
        take(v);
        const struct probe *p = runview_probe(v, -1);
        t_true(p != NULL);
        t_str(probe_caveat(p), row[i].caveat);
        t_eq(v->invalid, 1 + row[i].invalid); /* "short" */
        t_eq(p->forced != NULL, row[i].forced == one || row[i].forced == two);
        if (row[i].forced == one) {
            t_eq(p->forced[1 * 2 + 1], 0);
            t_eq(p->forced[0], -1);
        } else if (row[i].forced == two) {
            t_eq(p->forced[3 * 2], 1);
            t_eq(p->forced[2 * 2 + 1], -1); /* its expert was */
        }
        runview_free(v);
    }
}

T(peak_and_arenas_come_from_the_newest_head_and_invalid_ones_are_ignored)
{
    struct runview *v = runview_new();
    char name[16];
    begin("head", 0);
    record_num(r, "peak_gflops", 230.5);
    record_str(r, "peak_format", "bf16");
    record_map(r, "arenas");
    record_str(r, "text", "many");
    record_num(r, "negative", -1);
    record_num(r, "nan", (double)NAN);
    for (int i = 0; i < 12; i++) {
        snprintf(name, sizeof name, "arena%d", i);
        record_int(r, name, (int64_t)i << 40);
    }
    record_close(r);
    take(v);
    t_near(v->peak_gflops, 230.5, 0);
    t_str(v->peak_format, "bf16");
    t_eq(v->arenas, RUNVIEW_ARENAS);
    t_eq(v->invalid, 3);
    t_str(v->arena[7].name, "arena7");
    t_near(v->arena[7].bytes, 7.0 * 1099511627776.0, 0);
    begin("head", 1); /* an older program continues the run */
    record_bool(r, "resume", 1);
    record_num(r, "peak_gflops", (double)INFINITY);
    record_str(r, "arenas", "none");
    take(v);
    t_near(v->peak_gflops, 0, 0);
    t_eq(v->arenas, 0);
    t_str(v->peak_format, "");
    runview_free(v);
}
