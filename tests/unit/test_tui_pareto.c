/* Groups, intervals, dominance and isoFLOP fits of the Pareto view, on numbers worked by hand; and
 * what makes runs seeds of one experiment. */
#include "base/fs.h"
#include "io/experiment.h"
#include "screens/timelines.h"
#include "t.h"
#include "tui/pareto.h"

static struct runview *made(void (*make)(struct fixture *, int), int i)
{
    struct fixture f;
    t_true(fixture_begin(&f));
    make(&f, i);
    struct str out = fixture_end(&f);
    struct runview *r = NULL;
    struct err e = {0};
    char path[256];
    snprintf(path, sizeof path, "%s/run.mp", t_tmpdir());
    t_ok(fs_write_file(path, out.p, out.len, &e), &e);
    t_ok(runview_read(&r, path, &e), &e); /* the state of a run needs the whole file */
    str_release(&out);
    return r;
}

static int make_all(const struct runview **run, void (*make)(struct fixture *, int), int n)
{
    for (int i = 0; i < n; i++)
        run[i] = made(make, i);
    return n;
}

static void free_all(const struct runview **run, int n)
{
    for (int i = 0; i < n; i++)
        runview_free((struct runview *)(uintptr_t)run[i]);
}

T(seeds_of_one_configuration_are_one_point_with_its_t_interval)
{
    const struct runview *run[TRADE_RUNS];
    struct pareto_set s;
    int n = make_all(run, trade_run, TRADE_RUNS);
    pareto_make(&s, run, n, PARETO_FLOPS_RATIO, "val_loss");
    t_eq(s.n, 4);
    t_str(s.point[0].label, "edp, ratio 0.5");
    t_str(s.point[1].label, "edp, ratio 0.6");
    t_str(s.point[2].label, "mod");
    t_str(s.point[3].label, "dense");
    /* losses 2.30, 2.33, 2.36: sd 0.03, half = 4.30265273 x 0.03 / sqrt 3 */
    t_eq(s.point[1].runs, 3);
    t_near(s.point[1].y.mean, 2.33, 1e-6);
    t_near(s.point[1].y.hi - s.point[1].y.mean, 0.07452413, 1e-6);
    t_near(s.point[1].x.mean, 0.71, 1e-6);
    t_true(s.point[0].method == s.point[1].method && s.point[2].method != s.point[1].method);
    t_true(s.point[3].is_dense && !s.point[2].is_dense);
    free_all(run, n);
}

T(dominated_points_are_found_and_say_by_what)
{
    const struct runview *run[TRADE_RUNS];
    struct pareto_set s;
    int n = make_all(run, trade_run, TRADE_RUNS);
    pareto_make(&s, run, n, PARETO_FLOPS_RATIO, "val_loss");
    t_true(s.point[0].is_front && s.point[1].is_front && s.point[3].is_front);
    t_true(!s.point[2].is_front); /* 0.74 FLOPs, 2.45: edp at 0.71 has 2.33 */
    t_eq(s.point[2].dominated_by, 1);
    /* of an accuracy more is better: the same order of methods */
    pareto_make(&s, run, n, PARETO_FLOPS_RATIO, "accuracy");
    t_true(s.point[0].is_front && s.point[1].is_front && !s.point[2].is_front &&
           s.point[3].is_front);
    /* all have one size: only the lowest loss is not dominated */
    pareto_make(&s, run, n, PARETO_PARAMS, "val_loss");
    t_eq(s.n, 4);
    t_true(s.point[0].is_dense && s.point[0].is_front);
    t_true(!s.point[1].is_front && !s.point[2].is_front && !s.point[3].is_front);
    free_all(run, n);
}

T(runs_without_a_result_are_named)
{
    const struct runview *run[TRADE_RUNS];
    struct pareto_set s;
    int n = make_all(run, trade_run, TRADE_RUNS);
    pareto_make(&s, run, n, PARETO_FLOPS_RATIO, "val_loss");
    t_eq(s.lefts, 2);
    t_eq(s.left[0].run, 12);
    t_str(s.left[0].text, "no evaluation yet");
    t_eq(s.left[1].run, 13);
    t_str(s.left[1].text, "failed");
    pareto_make(&s, run, n, PARETO_TIME, "val_loss");
    t_eq(s.n, 0);
    t_eq(s.lefts, TRADE_RUNS);
    t_str(s.left[0].text, "no time per token");
    free_all(run, n);
}

T(an_isoflop_curve_needs_three_sizes)
{
    const struct runview *run[ISO_RUNS];
    struct pareto_set s;
    int n = make_all(run, iso_run, ISO_RUNS);
    pareto_make(&s, run, n, PARETO_PARAMS, "val_loss");
    t_eq(s.n, 5);
    t_eq(s.isos, 2);
    const struct pareto_iso *three = s.iso[0].n == 3 ? &s.iso[0] : &s.iso[1],
                            *two = three == s.iso ? &s.iso[1] : &s.iso[0];
    t_near(three->budget, 1e15, 0);
    t_true(three->has_fit && three->is_enclosed);
    t_near(three->best, 1e6, 1); /* 2.5, 2, 2.5 at 10^5, 10^6, 10^7 */
    t_near(three->fit.a, 0.5, 1e-6);
    t_near(stat_parabola_at(&three->fit, 6), 2, 1e-6);
    t_eq(two->n, 2);
    t_true(!two->has_fit);
    pareto_make(&s, run, n, PARETO_FLOPS_RATIO, "val_loss");
    t_eq(s.isos, 0); /* a ratio is not a size */
    free_all(run, n);
}

T(parabolas_and_fronts_are_those_worked_by_hand)
{
    const double x[] = {1, 2, 4}, y[] = {5, 2, 8}, flat[] = {1, 1, 4};
    struct parabola f = {9, 9, 9, 9};
    t_true(stat_parabola(x, y, 3, &f)); /* 2 x^2 - 9 x + 12 */
    t_near(f.a, 2, 1e-9);
    t_near(stat_parabola_at(&f, 0), 12, 1e-9);
    t_near(stat_parabola_least(&f), 2.25, 1e-9);
    f.a = -1;
    t_true(isinf(stat_parabola_least(&f)));
    t_true(!stat_parabola(flat, y, 3, &f) && f.a == -1);
    const double cost[] = {1, 2, 2, 3, (double)NAN, 1}, loss[] = {3, 2, 2, 2, 0, 3};
    unsigned char front[6];
    stat_front(cost, loss, 6, front);
    t_eq(memcmp(front, (unsigned char[]){1, 1, 1, 0, 0, 1}, 6), 0);
}

T(the_metrics_to_choose_from_are_those_of_the_evaluations)
{
    const struct runview *run[1] = {made(trade_run, 0)};
    char name[8][64];
    int n = pareto_metrics(run, 1, name, 8);
    t_eq(n, 6);
    t_str(name[0], "val_loss");
    t_str(name[1], "bits_per_byte");
    t_str(name[5], "accuracy");
    free_all(run, 1);
}

static void evaluations(struct fixture *f, int i)
{
    const struct fixture_head h = {.run = "a", .method = "mod", .seed = 1, .layers = 2};
    fixture_head(f, 0, &h);
    fixture_eval(f, 10, "final", "causal", 3, 0.5, NAN);
    fixture_eval(f, 20, "val", "causal", 2, 0.6, NAN);
    fixture_eval(f, 30, "final", i ? "topk" : "causal", 1, 0.7, NAN);
}

T(a_result_is_that_of_the_newest_final_causal_evaluation)
{
    const struct runview *run[2];
    make_all(run, evaluations, 2);
    t_near(experiment_result(run[0], "val_loss"), 1, 0);
    t_near(experiment_result(run[1], "val_loss"), 3, 0); /* top-k decisions do not count */
    t_near(experiment_result(run[1], "flops_ratio"), 0.5, 1e-6);
    t_true(isnan(experiment_result(run[0], "nothing")));
    free_all(run, 2);
}

/* Copies and forks of a run are no further seeds. */
T(a_run_that_is_there_twice_is_two_points)
{
    const struct runview *run[TRADE_RUNS + 1];
    struct pareto_set s;
    int n = make_all(run, trade_run, TRADE_RUNS);
    run[n] = made(trade_run, 4);
    t_true(experiment_is_copy(run[4], run[n]) && !experiment_is_copy(run[3], run[n]));
    pareto_make(&s, run, n + 1, PARETO_FLOPS_RATIO, "val_loss");
    t_eq(s.n, 5);
    for (int i = 0; i < s.n; i++) {
        int is_copy = s.point[i].run[0] == n;
        t_eq(s.point[i].runs, is_copy ? 1 : 3);
        t_str(is_copy ? s.point[i].label : "", is_copy ? "edp, ratio 0.6, fixture-edp-2" : "");
    }
    free_all(run, n + 1);
}

T(only_seed_names_and_logging_do_not_define_an_experiment)
{
    const struct runview *run[TRADE_RUNS];
    int n = make_all(run, trade_run, TRADE_RUNS);
    t_true(experiment_same(run[0], run[1]) && experiment_same(run[3], run[5]));
    t_true(!experiment_same(run[0], run[3]) && !experiment_same(run[3], run[6]));
    t_true(experiment_ignores("seed") && experiment_ignores("train.probe_every"));
    t_true(experiment_ignores("train.system_every") && experiment_ignores("train.shard"));
    t_true(!experiment_ignores("train.lr") && experiment_ignores_size("model.dim") &&
           !experiment_ignores("model.dim"));
    /* follows from the size of a head: isoflop --sizes 2x64x2,3x96x4 is one experiment */
    t_true(experiment_ignores_size("model.rope_dims") && !experiment_ignores("model.rope_dims"));
    free_all(run, n);
}
