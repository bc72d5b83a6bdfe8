/* Which evaluations a run's row of numbers is taken from. */
#include <math.h>

#include "base/fs.h"
#include "base/mem.h"
#include "eval/summary.h"
#include "io/experiment.h"
#include "io/record.h"
#include "t.h"

struct told {
    const char *task, *routing;
    double loss;
};

static double val_loss(const struct told *told, size_t n, double metric)
{
    char path[600];
    struct str out = {0};
    struct err e = {0};
    struct summary s;
    struct record *r = record_new();
    uint64_t seq = 0;
    record_begin(r, "head", 0, 1000);
    record_str(r, "run", "made-up");
    t_ok(record_end(r, seq++, &out, &e), &e);
    record_begin(r, "metric", 1, 1001);
    record_num(r, "val_loss", metric);
    t_ok(record_end(r, seq++, &out, &e), &e);
    for (size_t i = 0; i < n; i++) {
        record_begin(r, "eval", 1, 1002);
        record_str(r, "task", told[i].task);
        record_str(r, "routing", told[i].routing);
        record_num(r, "loss", told[i].loss);
        t_ok(record_end(r, seq++, &out, &e), &e);
    }
    snprintf(path, sizeof path, "%s/log.mp", t_tmpdir());
    t_ok(fs_write_file(path, out.p, out.len, &e), &e);
    t_ok(summary_read(&s, path, &e), &e);
    double loss = s.value[SUMMARY_VAL_LOSS];
    summary_release(&s);
    str_release(&out);
    record_free(r);
    return loss;
}

T(runs_of_one_name_are_told_apart_by_their_folders)
{
    static const struct {
        const char *path, *name, *want;
    } set[][3] = {
        {{"a/metrics.jsonl", "metrics", "a/metrics"},
         {"b/metrics.jsonl", "metrics", "b/metrics"},
         {"b/other.jsonl", "other", "other"}},
        {{"/x/a/v0/metrics.csv", "metrics", "a/v0/metrics"},
         {"/x/b/v0/metrics.csv", "metrics", "b/v0/metrics"},
         {"/x/b/v1/metrics.csv", "metrics", "v1/metrics"}},
        {{"r1/x", "x", "r1/x"}, {"r2/x/", "x", "r2/x"}, {"r2/y", "y", "y"}},
        {{"r1/x/log.mp", "x", "r1/x"}, {"r2/x/log.mp", "x", "r2/x"}, {"r2/y", "y", "y"}},
        {{"wandb/run-1", "mine", "mine (run-1)"},
         {"wandb/run-2/", "mine", "mine (run-2)"},
         {"wandb/run-2/", "mine", "mine (run-2)"}},
        {{"runs/one", "one", "one"},
         {"exports/one-trace-1.mp", "one", "one (one-trace-1.mp)"},
         {"exports/two.mp", "two", "two"}},
        {{"x", "x", "x"}, {"r/x", "x", "r/x"}, {"r/yx", "yx", "yx"}},
        {{"b/metrics.jsonl", "a/metrics", "a/metrics"},
         {"c/metrics.jsonl", "metrics", "c/metrics"},
         {"metrics.jsonl", "metrics", "metrics"}},
    };
    for (size_t k = 0; k < DS_LEN(set); k++) {
        const char *name[3], *path[3];
        char out[64];
        for (int i = 0; i < 3; i++) {
            name[i] = set[k][i].name;
            path[i] = set[k][i].path;
        }
        for (size_t i = 0; i < 3; i++) {
            int is_other = experiment_name(out, sizeof out, name, path, 3, i);
            t_str(out, set[k][i].want);
            t_eq(is_other, strcmp(out, name[i]) != 0);
        }
    }
}

T(the_routing_of_an_evaluation_is_dense_only_where_it_says_so)
{
    char task[] = "val", dense[] = "dense", topk[] = "topk";
    struct run_eval x = {.task = task, .routing = topk};
    struct runview v = {.eval = &x, .n_evals = 1};
    t_str(experiment_routing(&v), "causal");
    x.routing = dense;
    t_str(experiment_routing(&v), "dense");
}

T(val_loss_is_of_causal_decisions_at_the_capacity_in_use)
{
    static const struct told other[] = {{"capacity", "causal", 9},
                                        {"ppl", "topk", 1},
                                        {"ppl", "dense", 0.5},
                                        {"mine", "causal", 8}};
    static const struct told final[] = {
        {"final", "causal", 2}, {"final", "dense", 1}, {"ppl", "causal", 3}, {"val", "causal", 4}};
    static const struct told ppl[] = {
        {"val", "causal", 4}, {"ppl", "causal", 3}, {"ppl", "topk", 1}};
    static const struct told val[] = {{"val", "causal", 4}, {"capacity", "causal", 9}};
    t_near(val_loss(other, DS_LEN(other), 2.5), 2.5, 1e-6);
    t_true(isnan(val_loss(other, DS_LEN(other), (double)NAN)));
    t_near(val_loss(final, DS_LEN(final), 2.5), 2, 1e-6);
    t_near(val_loss(ppl, DS_LEN(ppl), 2.5), 3, 1e-6);
    t_near(val_loss(val, DS_LEN(val), 2.5), 4, 1e-6);
}

T(differences_are_paired_by_seed_and_left_out_where_a_seed_is_missing)
{
    struct summary runs[] = {{.seed = 1}, {.seed = 2}, {.seed = 3},
                             {.seed = 3}, {.seed = 1}, {.seed = 9}};
    const double loss[] = {3.0, 3.5, 4.0, 3.9, 2.9, 1.0};
    for (int i = 0; i < 6; i++)
        runs[i].value[SUMMARY_VAL_LOSS] = loss[i];
    struct summary_group base = {.n = 3, .member = {0, 1, 2}},
                         other = {.n = 3, .member = {3, 4, 5}};
    struct difference d = summary_paired(&other, &base, runs, SUMMARY_VAL_LOSS);
    t_eq(d.of.n, 2); /* seeds 1 and 3 */
    t_near(d.of.mean, -0.1, 1e-12);
    str_copy(runs[4].status, sizeof runs[4].status, "failed"); /* excluded, as from the means */
    t_eq(summary_paired(&other, &base, runs, SUMMARY_VAL_LOSS).of.n, 1);
    other.n = 0;
    t_eq(summary_paired(&other, &base, runs, SUMMARY_VAL_LOSS).of.n, 0);
}

T(a_second_run_of_one_seed_has_a_line_of_its_own)
{
    char key[] = "model.dim", value[] = "8", *keys[] = {key}, *values[] = {value};
    struct summary runs[] = {{.seed = 1},  {.seed = 1},
                             {.seed = 2},  {.seed = 2, .status = "failed"},
                             {.seed = -1}, {.seed = -1}};
    struct summary_group *g = NULL;
    struct err e = {0};
    size_t n = 0;
    for (size_t i = 0; i < DS_LEN(runs); i++) {
        runs[i].key = keys;
        runs[i].setting = values;
        runs[i].settings = 1;
    }
    t_ok(summary_group(&g, &n, runs, DS_LEN(runs), &e), &e);
    t_eq(n, 2);
    t_eq(g[0].n, 5); /* a failed run takes no other's place, nor does one whose seed is not known */
    t_eq(g[0].failed, 1);
    t_eq(g[1].n, 1);
    t_eq(g[1].member[0], 1);
    t_eq(summary_paired(&g[1], &g[0], runs, SUMMARY_VAL_LOSS).of.n, 1);
    t_eq(summary_paired(&g[0], &g[0], runs, SUMMARY_VAL_LOSS).of.n, 2);
    mem_free(g);
}
