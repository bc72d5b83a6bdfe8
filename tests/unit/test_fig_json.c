/* Figures of JSON results and CSV tables: what they show, what they refuse, and the recipe. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "t.h"

#include "base/fs.h"
#include "figures/figure.h"
#include "figures/png_chunks.h"
#include "io/foreign.h"

static const char bench_text[] =
    "{\"results\":["
    "{\"name\":\"peak fp32\",\"group\":\"peaks\",\"median\":1,\"min\":1,\"max\":1},"
    "{\"name\":\"prefill dense\",\"group\":\"prefill\",\"median\":1000,\"min\":900,\"max\":1100},"
    "{\"name\":\"prefill edp dense\",\"group\":\"prefill\",\"median\":1010,\"min\":1,\"max\":2},"
    "{\"name\":\"prefill edp 0.50\",\"group\":\"prefill\",\"median\":1600,\"min\":1500,"
    "\"max\":1700,\"time_ratio\":0.63},"
    "{\"name\":\"decode dense\",\"group\":\"decode\",\"median\":100,\"min\":90,\"max\":110},"
    "{\"name\":\"decode edp 0.50\",\"group\":\"decode\",\"median\":170,\"min\":150,\"max\":180,"
    "\"time_ratio\":0.6}],\"model\":\"8 x 96\",\"cpu\":\"test\",\"threads\":2}";

static const char capacity_text[] =
    "{\"task\":\"capacity\",\"method\":\"mod\",\"rows\":["
    "{\"capacity_target\":0.5,\"time_ratio\":0.7,\"decode_time_ratio\":null},"
    "{\"capacity_asked\":1,\"time_ratio\":1.02,\"decode_time_ratio\":null}]}";

static const char ours_text[] =
    "{\"results\":{\"arc_easy\":{\"sample_len\":200,\"acc,none\":0.6,\"acc_stderr,none\":0.03,"
    "\"acc_norm,none\":0.5,\"acc_norm_stderr,none\":0.04,\"flops_ratio\":0.7}},"
    "\"config\":{\"method\":\"edp\",\"capacity\":null}}";

static const char theirs_text[] =
    "{\"results\":{\"arc_easy\":{\"alias\":\"arc_easy\",\"acc,none\":0.62,"
    "\"acc_norm,none\":0.55,\"acc_norm_stderr,none\":0.01},"
    "\"gsm8k\":{\"exact_match,strict-match\":0.03,\"exact_match_stderr,strict-match\":\"N/A\"},"
    "\"mmlu\":{\"acc,none\":0.26,\"acc_stderr,none\":0.004},"
    "\"mmlu_stem\":{\"acc,none\":0.24},"
    "\"wikitext\":{\"word_perplexity,none\":18.2}},"
    "\"group_subtasks\":{\"mmlu\":[\"mmlu_stem\"]},"
    "\"n-samples\":{\"arc_easy\":{\"effective\":2376}},\"model_name\":\"org/Tiny\"}";

static const char speculate_text[] =
    "{\"results\":["
    "{\"name\":\"speculative ordinary\",\"group\":\"speculate\",\"median\":10,\"time_ratio\":1},"
    "{\"name\":\"speculative 0.5, exit 4, 2 drafted\",\"group\":\"speculate\",\"median\":12,"
    "\"time_ratio\":0.8},"
    "{\"name\":\"speculative 0.9, exit 4, 6 drafted\",\"group\":\"speculate\",\"median\":20,"
    "\"time_ratio\":0.5}],\"model\":\"22 x 2048\"}";

static const char draft_text[] = "{\"draft\":\"exit:2\",\"layers\":8,\"drafted\":6,\"accepted\":3,"
                                 "\"speedup\":1.25,\"same_text\":"
                                 "true,\"marks\":[\"ordinary\",\"accepted\",\"accepted\","
                                 "\"ordinary\",\"accepted\",\"corrected\"]}";

static struct figure_run input[32];
static char file[32][300];
static int inputs;

static void add(const char *name, const char *text)
{
    struct err e = {0};
    snprintf(file[inputs], sizeof file[0], "%s/%s", t_tmpdir(), name);
    t_ok(fs_write_file(file[inputs], text, strlen(text), &e), &e);
    t_ok(figure_open(&input[inputs], file[inputs], file[inputs], &e), &e);
    inputs++;
}

static void clear(void)
{
    while (inputs > 0)
        figure_close(&input[--inputs]);
}

static struct figure draw_over(const char *name, const char *metric, const char *x)
{
    struct figure f = {0};
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    o.metric = metric;
    o.x = x;
    t_ok(figure_make(&f, name, input, inputs, &o, &e), &e);
    return f;
}

static struct figure draw_with(const char *name, const char *metric)
{
    return draw_over(name, metric, NULL);
}

static void refuses(const char *name, enum ds_err code, const char *part)
{
    struct figure f;
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    t_fails(figure_make(&f, name, input, inputs, &o, &e), &e, code, part);
    t_true(strchr(e.text, '\n') == NULL);
}

static void shows(const struct figure *f, const char *part, int want)
{
    struct str text = {0};
    pen_list_print(f->list, &text);
    str_addf(&text, "\n%s", str_text(&f->caption));
    t_truef((strstr(str_text(&text), part) != NULL) == want, "%s: \"%s\" is %sthere", f->name, part,
            want ? "not " : "");
    str_release(&text);
}

/* Compares pen commands with the committed golden files.  GENERATE=1 regenerates them. */
static void compare_golden(const char *name)
{
    char path[128];
    struct str got = {0}, want = {0};
    struct err e = {0};
    struct figure f = draw_with(name, NULL);
    str_addf(&got, "size %.3f %.3f\ncaption %s\n", f.width, f.height, str_text(&f.caption));
    pen_list_print(f.list, &got);
    snprintf(path, sizeof path, "tests/golden/fig_%s.txt", name);
    if (getenv("GENERATE"))
        t_ok(fs_write_file(path, got.p, got.len, &e), &e);
    t_ok(fs_read_file(&want, path, 1 << 22, &e), &e);
    t_truef(got.len == want.len && memcmp(got.p, want.p, got.len) == 0, "%s differs from %s", name,
            path);
    str_release(&got);
    str_release(&want);
    figure_release(&f);
}

/* ---- evaluations ---- */

/* One evaluation of four hops: made-up numbers, which get better with depth. */
struct fake {
    const char *method, *routing, *rule, *label;
    int seed, layers, exit;
    double capacity, depth;
    const char *more; /* members put in front */
    int loop;         /* 0: as many iterations as layers */
};

static void fake_text(const struct fake *x, struct str *out)
{
    double bad = 2 / x->depth + 0.01 * x->seed;
    str_addf(
        out, "{%s\"task\":\"ppl\",\"method\":\"%s\",\"routing\":\"%s\",\"layers\":%d,\"loop\":%d,",
        x->more ? x->more : "", x->method, x->routing, x->layers, x->loop ? x->loop : x->layers);
    str_addf(out, "\"model\":\"runs/%s-%d-%d\",\"depth_mean\":%g,\"answer_loss\":%g,", x->method,
             x->layers, x->seed, x->depth, bad);
    str_addf(out, "\"answer_accuracy\":%g,\"flops_ratio\":%g,\"flops_dense_per_token\":%d,",
             exp(-bad), x->depth / x->layers, 1000 * x->layers);
    if (x->exit)
        str_addf(out, "\"exit\":%d,", x->exit);
    if (x->capacity > 0)
        str_addf(out, "\"capacity_target\":%g,", x->capacity);
    if (x->rule)
        str_addf(out,
                 "\"options\":{\"halt.rule\":\"%s\"},\"method_options\":{\"halt.rule\":\"%s\","
                 "\"halt.label\":\"%s\",\"halt.capacity\":\"0.5\"},",
                 x->rule, x->rule, x->label ? x->label : "regret");
    for (int k = 1; k <= 4; k++)
        str_addf(out, "%s%g", k == 1 ? "\"accuracy_by_k\":[" : ",",
                 x->depth >= k ? 1 - 0.01 * x->seed : 0.2 + 0.01 * k);
    for (int k = 1; k <= 4; k++)
        str_addf(out, "%s%g", k == 1 ? "],\"depth_by_k\":[" : ",",
                 x->rule ? x->depth + 0.5 * (k - 2.5) + 0.1 * x->seed : x->depth);
    str_add(out, "]}");
}

static void add_fake(struct fake x)
{
    struct str text = {0};
    char name[32];
    snprintf(name, sizeof name, "e%d.json", inputs);
    fake_text(&x, &text);
    add(name, str_text(&text));
    str_release(&text);
}

/* Exit rules on the same weights of two seeds, the same weights cut, and trained at 3. */
static void add_study(void)
{
    static const char *const rule[] = {"regret", "velocity", "random"};
    for (int seed = 1; seed <= 2; seed++) {
        for (int r = 0; r < 3; r++)
            for (int c = 0; c < 2; c++)
                add_fake((struct fake){"halt", "causal", rule[r], NULL, seed, 6, 0, 0.4 + 0.2 * c,
                                       2 + 1.2 * c + 0.1 * r - 0.05 * seed, NULL});
        for (int exit = 1; exit <= 3; exit += 2)
            add_fake((struct fake){"halt", "dense", NULL, NULL, seed, 6, exit, 0, exit, NULL});
        add_fake((struct fake){"halt", "dense", NULL, NULL, seed, 6, 0, 0, 6, NULL});
        add_fake((struct fake){"dense", "causal", NULL, NULL, seed, 3, 0, 0, 3, NULL});
        add_fake((struct fake){"halt", "oracle", "regret", NULL, seed, 6, 0, 0.4, 1.9, NULL});
    }
}

T(pen_commands_match_the_golden_files)
{
    add_study();
    compare_golden("hops_accuracy");
    compare_golden("exit_rules");
    compare_golden("depth_by_need");
    clear();
    add("spec.json", speculate_text);
    add("draft.json", draft_text);
    compare_golden("speculation");
    clear();
    add("bench.json", bench_text);
    compare_golden("bench_bars");
    clear();
    add("ours.json", ours_text);
    add("theirs.json", theirs_text);
    compare_golden("task_bars");
    clear();
}

T(bench_bars_has_a_row_per_measurement_and_no_row_for_the_reference_passes)
{
    add("bench.json", bench_text);
    struct figure f = draw_with("bench_bars", NULL);
    shows(&f, "\"edp 0.50\"", 1);
    shows(&f, "\"dense\"", 1);
    shows(&f, "\"edp dense\"", 0);
    shows(&f, "\"peak", 0);
    shows(&f, "Tokens per second", 1);
    shows(&f, "Latency (ms per token)", 1);
    shows(&f, "2 threads.", 1);
    figure_release(&f);
    clear();
}

/* openllm is a list of tasks, without a value of its own. */
T(task_bars_shows_the_tasks_of_a_group_that_has_no_accuracy)
{
    static const char text[] =
        "{\"results\":{\"openllm\":{\"alias\":\"openllm\"},\"piqa\":{\"acc,none\":0.7},"
        "\"mmlu\":{\"acc,none\":0.26},\"mmlu_stem\":{\"acc,none\":0.24}},"
        "\"group_subtasks\":{\"openllm\":[\"piqa\"],\"mmlu\":[\"mmlu_stem\"]}}";
    add("a.json", text);
    add("b.json", text);
    struct figure f = draw_with("task_bars", NULL);
    shows(&f, "\"piqa (acc)\"", 1);
    shows(&f, "\"mmlu (acc)\"", 1);
    shows(&f, "mmlu_stem", 0);
    shows(&f, "not shown: openllm.", 1);
    figure_release(&f);
    clear();
}

/* 16 texts at 1600 tokens a second: a token of each every 10 ms, as one text at 100. */
T(bench_bars_counts_the_latency_of_texts_decoded_together_for_each_of_them)
{
    static const char *const result[] = {
        "{\"name\":\"decode dense\",\"group\":\"decode\",\"median\":100,\"min\":100,"
        "\"max\":100}",
        "{\"name\":\"decode dense 16 texts\",\"group\":\"decode\",\"median\":1600,"
        "\"min\":1600,\"max\":1600}"};
    char text[2][600];
    double wide[2] = {0};
    struct str list = {0};
    snprintf(text[0], sizeof text[0], "{\"results\":[%s]}", result[0]);
    snprintf(text[1], sizeof text[1], "{\"results\":[%s,%s]}", result[0], result[1]);
    add("together.json", text[1]);
    struct figure f = draw_with("bench_bars", NULL);
    shows(&f, "\"dense 16 texts\"", 1);
    t_true(strstr(str_text(&f.caption), "latency of each") != NULL);
    pen_list_print(f.list, &list);
    int bars = 0;
    double x, y, w, h;
    for (const char *at = str_text(&list); (at = strstr(at, "\nrect ")) != NULL; at++)
        if (sscanf(at, " rect %lf %lf %lf %lf", &x, &y, &w, &h) == 4 && ++bars > 2)
            wide[bars == 4] = w;
    t_eq(bars, 4);
    t_near(wide[1], wide[0], 0.01);
    str_release(&list);
    figure_release(&f);
    clear();
    add("alone.json", text[0]);
    f = draw_with("bench_bars", NULL);
    t_true(strstr(str_text(&f.caption), "texts") == NULL);
    figure_release(&f);
    clear();
}

T(bench_bars_is_relative_to_dense_when_a_file_has_only_ratios)
{
    add("bench.json", bench_text);
    add("capacity.json", capacity_text);
    struct figure f = draw_with("bench_bars", NULL);
    shows(&f, "\"capacity: mod 0.50\"", 1);
    shows(&f, "\"bench: edp 0.50\"", 1);
    shows(&f, "\"capacity: mod 1.00\"", 1); /* a file of an earlier version */
    shows(&f, "Throughput (dense = 1)", 1);
    shows(&f, "requested capacity, in a bench", 1);
    shows(&f, "not measured", 1); /* decoding of mod */
    figure_release(&f);
    clear();
}

T(bench_bars_keeps_one_row_per_name_when_its_label_is_cut)
{
    static const char text[] =
        "{\"results\":["
        "{\"name\":\"prefill stochastic 0.50\",\"group\":\"prefill\",\"median\":4,\"min\":4,"
        "\"max\":5},"
        "{\"name\":\"decode stochastic 0.50\",\"group\":\"decode\",\"median\":2,\"min\":2,"
        "\"max\":3}]}";
    add("a-long-name-of-a-file.json", text);
    add("b.json", text);
    struct figure f = draw_with("bench_bars", NULL);
    shows(&f, "not measured", 0);
    shows(&f, "b: stochastic 0.50\"", 1);
    shows(&f, "\xE2\x80\xA6: stochastic 0.50\"", 1);
    figure_release(&f);
    clear();
}

T(task_bars_shows_the_usual_metric_of_each_task_and_not_the_parts_of_a_group)
{
    add("ours.json", ours_text);
    add("theirs.json", theirs_text);
    struct figure f = draw_with("task_bars", NULL);
    shows(&f, "\"arc_easy (acc_norm)\"", 1);
    shows(&f, "\"gsm8k (exact_match,strict-match)\"", 1);
    shows(&f, "\"mmlu (acc)\"", 1);
    shows(&f, "mmlu_stem", 0);
    shows(&f, "not evaluated", 1); /* mmlu, gsm8k of ours */
    shows(&f, "\"edp\"", 1);
    shows(&f, "\"Tiny\"", 1);
    shows(&f, "n = 200 to 2,376 documents", 1);
    shows(&f, "not shown: wikitext", 1);
    figure_release(&f);
    f = draw_with("task_bars", "acc");
    shows(&f, "\"arc_easy (acc)\"", 1);
    figure_release(&f);
    clear();
}

T(exit_rules_has_a_line_per_rule_and_joins_the_seeds_of_equal_settings)
{
    add_study();
    struct figure f = draw_with("exit_rules", NULL);
    shows(&f, "\"regret\"", 1);
    shows(&f, "\"velocity\"", 1);
    shows(&f, "\"oracle (not causal)\"", 1);
    shows(&f, "\"fixed depth\"", 1);
    shows(&f, "\"trained at that depth\"", 1);
    shows(&f, "Mean over n = 2 seeds", 1);
    figure_release(&f);
    f = draw_over("exit_rules", "answer_accuracy", "flops_ratio");
    shows(&f, "Accuracy of answers", 1);
    shows(&f, "relative to all 6 iterations", 1);
    figure_release(&f);
    clear();
}

T(labels_and_other_options_of_a_rule_are_lines_of_their_own)
{
    add_fake((struct fake){"halt", "causal", "regret", "regret", 1, 6, 0, 0.4, 2, NULL});
    add_fake((struct fake){"halt", "causal", "regret", "agree", 1, 6, 0, 0.4, 2.5, NULL});
    add("kv.json", "{\"task\":\"ppl\",\"method\":\"halt\",\"routing\":\"causal\",\"layers\":6,"
                   "\"model\":\"a\",\"answer_loss\":1,\"depth_mean\":2,\"options\":{\"halt.rule\":"
                   "\"kl\",\"halt.kv\":\"plan\",\"halt.capacity\":\"0.3\"}}");
    struct figure f = draw_with("exit_rules", NULL);
    shows(&f, "\"regret\"", 1);
    shows(&f, "\"regret, label agree\"", 1);
    shows(&f, "\"KL, kv=plan\"", 1);
    shows(&f, "One seed each", 1);
    figure_release(&f);
    clear();
}

/* Lines of the pen list that draw circles. */
static void circles_of(struct figure *f, struct str *out)
{
    struct str list = {0};
    pen_list_print(f->list, &list);
    for (const char *at = str_text(&list); (at = strstr(at, "\ncircle ")) != NULL; at++)
        str_addf(out, "%.*s", (int)strcspn(at + 1, "\n") + 1, at);
    str_release(&list);
    figure_release(f);
}

T(a_shallower_model_is_drawn_at_its_flops_relative_to_the_deepest)
{
    struct str flops = {0}, depth = {0};
    add_fake((struct fake){"dense", "causal", NULL, NULL, 1, 6, 0, 0, 6, NULL});
    add_fake(
        (struct fake){"dense", "causal", NULL, NULL, 1, 3, 0, 0, 3, NULL}); /* its ratio is 1 */
    struct figure f = draw_over("exit_rules", NULL, "flops_ratio");
    circles_of(&f, &flops);
    f = draw_over("exit_rules", NULL, "depth_mean");
    circles_of(&f, &depth);
    t_true(flops.len > 20 && strcmp(str_text(&flops), str_text(&depth)) == 0);
    str_release(&flops);
    str_release(&depth);
    clear();
}

T(time_of_another_process_is_left_out_and_said)
{
    add_fake((struct fake){"halt", "causal", "kl", NULL, 1, 6, 0, 0.5, 3, "\"time_ratio\":0.5,"});
    add_fake((struct fake){"dense", "causal", NULL, NULL, 1, 3, 0, 0, 3, "\"time_ratio\":1,"});
    struct figure f = draw_over("exit_rules", NULL, "time_ratio");
    shows(&f, "shallower models, 1, are not shown", 1);
    shows(&f, "\"trained at that depth\"", 0);
    figure_release(&f);
    clear();
}

T(hops_accuracy_has_a_map_of_cuts_and_one_of_trained_depths)
{
    add_study();
    struct figure f = draw_with("hops_accuracy", NULL);
    shows(&f, "\"Loop of 6, cut\"", 1);
    shows(&f, "\"Loops trained at each depth\"", 1);
    shows(&f, "\"0.99\"", 0); /* means over seeds: 0.985 */
    shows(&f, "\"0.98\"", 1);
    shows(&f, "n = 2 seeds", 1);
    shows(&f, "adaptive depth, 14, are not shown", 1);
    figure_release(&f);
    clear();
}

T(depth_of_a_loop_of_one_block_is_counted_in_iterations)
{
    static const struct {
        int loop;
        const char *mean, *cut; /* of six layers */
    } rows[] = {{6, "Mean depth (iterations)", "Executed depth (iterations)"},
                {3, "Mean depth (layers)", "Executed depth (layers)"},
                {1, "Mean depth (layers)", "Executed depth (layers)"}};
    static const char *const figures[] = {"exit_rules", "depth_by_need", "hops_accuracy"};
    for (size_t i = 0; i < DS_LEN(rows); i++) {
        int loop = rows[i].loop;
        add_fake((struct fake){"halt", "causal", "kl", NULL, 1, 6, 0, 0.4, 2, NULL, loop});
        add_fake((struct fake){"halt", "dense", NULL, NULL, 1, 6, 3, 0, 3, NULL, loop});
        for (size_t k = 0; k < DS_LEN(figures); k++) {
            struct figure f = draw_with(figures[k], NULL);
            shows(&f, k < 2 ? rows[i].mean : rows[i].cut, 1);
            figure_release(&f);
        }
        if (i == 0) { /* next to a model that is none */
            add_fake((struct fake){"halt", "dense", NULL, NULL, 1, 4, 3, 0, 3, NULL, 1});
            struct figure f = draw_with("exit_rules", NULL);
            shows(&f, "Mean depth (layers or iterations)", 1);
            figure_release(&f);
        }
        clear();
    }
}

T(a_sweep_over_exits_and_an_array_are_several_evaluations)
{
    struct str text = {0};
    add("sweep.json",
        "{\"task\":\"exits\",\"method\":\"dense\",\"routing\":\"causal\",\"layers\":4,"
        "\"model\":\"a\",\"rows\":[{\"exit\":1,\"answer_accuracy\":0.25},"
        "{\"exit\":4,\"answer_accuracy\":0.75}]}");
    struct figure f = draw_with("exit_rules", "answer_accuracy");
    shows(&f, "\"fixed depth\"", 1);
    shows(&f, "\"trained at that depth\"", 0);
    figure_release(&f);
    refuses("exit_rules", DS_ENOTFOUND, "fixed depth: no number 'answer_loss'");
    refuses("hops_accuracy", DS_ENOTFOUND, "no vector 'accuracy_by_k'");
    clear();
    add("shallow.json",
        "{\"task\":\"exits\",\"method\":\"dense\",\"routing\":\"causal\",\"layers\":2,\"rows\":["
        "{\"exit\":2,\"answer_loss\":2,\"flops_ratio\":1,\"flops_dense_per_token\":200}]}");
    add("deep.json",
        "{\"task\":\"exits\",\"method\":\"dense\",\"routing\":\"causal\",\"layers\":4,\"rows\":["
        "{\"exit\":4,\"answer_loss\":1,\"flops_ratio\":1,\"flops_dense_per_token\":400}]}");
    f = draw_over("exit_rules", NULL, "flops_ratio");
    shows(&f, "\"0.5\"", 1);
    figure_release(&f);
    clear();
    struct fake one = {"halt", "dense", NULL, NULL, 1, 6, 2, 0, 2, NULL}, two = one;
    two.exit = 4;
    two.depth = 4;
    str_add(&text, "[");
    fake_text(&one, &text);
    str_add(&text, ",");
    fake_text(&two, &text);
    str_add(&text, "]");
    add("array.json", str_text(&text));
    str_release(&text);
    f = draw_with("hops_accuracy", NULL);
    shows(&f, "\"Loop of 6, cut\"", 1);
    shows(&f, "\"0.23\"", 1);
    figure_release(&f);
    clear();
}

T(depth_by_need_names_capacities_where_a_rule_has_several)
{
    add_study();
    struct figure f = draw_with("depth_by_need", NULL);
    shows(&f, "\"regret, capacity 0.40\"", 1);
    shows(&f, "\"regret, capacity 0.60\"", 1);
    shows(&f, "\"oracle (not causal)\"", 1);
    shows(&f, "\"depth = k\"", 1);
    shows(&f, "fixed depth, 8, are not shown", 1);
    figure_release(&f);
    clear();
}

/* The point of acceptance 0.5 of the second file follows that of 0.9 of the first. */
T(speculation_joins_no_points_of_different_files_and_drafts)
{
    add("bench-of-the-large-machine-1.json", speculate_text);
    struct figure f = draw_with("speculation", NULL);
    shows(&f, "\"bench-of-the-large-machine-1: exit 4\"", 1);
    figure_release(&f);
    add("bench-of-the-large-machine-2.json", speculate_text);
    add("bench-of-the-large-machine-2.json", speculate_text); /* the same name */
    add("a.json", "{\"draft\":\"skip:1,3,5,7,9,11,13,15,17,19,21\",\"layers\":24,\"speedup\":1.5,"
                  "\"marks\":[\"accepted\"]}");
    add("b.json", "{\"draft\":\"skip:1,3,5,7,9,11,13,15,17,19,23\",\"layers\":24,\"speedup\":1.2,"
                  "\"marks\":[\"accepted\"]}");
    f = draw_with("speculation", NULL);
    struct str text = {0};
    int entries = 0;
    pen_list_print(f.list, &text);
    for (const char *at = str_text(&text); (at = strstr(at, ": exit 4\"")) != NULL; at++)
        entries++;
    t_eq(entries, 3);
    shows(&f, "17,19,21 of 24\"", 1);
    shows(&f, "17,19,23 of 24\"", 1);
    str_release(&text);
    figure_release(&f);
    clear();
}

T(speculation_counts_only_drafted_tokens_that_were_compared)
{
    static const char *const marks[3] = {
        "\"accepted\",\"accepted\",\"ordinary\",\"accepted\",\"corrected\"", /* 3 of 4 */
        "\"corrected\",\"accepted\",\"accepted\",\"accepted\"",
        "\"accepted\",\"corrected\",\"accepted\",\"corrected\""};
    struct str list[3] = {{0}, {0}, {0}};
    for (int i = 0; i < 3; i++) {
        struct str text = {0};
        str_addf(
            &text,
            "{\"draft\":\"exit:2\",\"layers\":8,\"drafted\":%d,\"speedup\":1.25,\"marks\":[%s]}",
            4 + 2 * i, marks[i]);
        add("text.json", str_text(&text));
        struct figure f = draw_with("speculation", NULL);
        shows(&f, "\"exit:2 of 8\"", 1);
        shows(&f, "1 measured text,", 1);
        pen_list_print(f.list, &list[i]);
        figure_release(&f);
        str_release(&text);
        clear();
    }
    t_true(strcmp(str_text(&list[0]), str_text(&list[1])) == 0);
    t_true(strcmp(str_text(&list[0]), str_text(&list[2])) != 0);
    for (int i = 0; i < 3; i++)
        str_release(&list[i]);
}

T(figures_of_evaluations_refuse_what_they_cannot_read)
{
    struct fake x = {"halt", "causal", "kl", NULL, 1, 6, 0, 0.5, 3, NULL};
    add_fake(x);
    refuses("hops_accuracy", DS_ENOTFOUND, "no evaluation at a fixed depth (routing=dense, also");
    refuses("speculation", DS_EFORMAT, "expected JSON files of depthscope generate");
    add_fake(x);
    refuses("exit_rules", DS_ENOTFOUND, "duplicate: the same model and settings as in e0");
    clear();
    x.exit = 9;
    add_fake(x);
    refuses("exit_rules", DS_ENOTFOUND, "without a valid 'layers' and 'exit'");
    clear();
    add_fake((struct fake){"dense", "causal", NULL, NULL, 1, 6, 0, 0, 6, NULL});
    refuses("depth_by_need", DS_ENOTFOUND, "no evaluation of adaptive depth");
    clear();
    add("array.json", "[]");
    refuses("exit_rules", DS_EFORMAT, "expected JSON files of depthscope eval --json");
    clear();
    add("plain.json", "{\"task\":\"ppl\",\"method\":\"edp\",\"layers\":4,\"accuracy_by_k\":[2]}");
    refuses("depth_by_need", DS_ENOTFOUND, "edp: no vector 'depth_by_k'");
    clear();
    add("two.json", "{\"task\":\"ppl\",\"method\":\"dense\",\"layers\":4,\"accuracy_by_k\":[2]}");
    refuses("hops_accuracy", DS_ENOTFOUND, "'accuracy_by_k' has 2, expected a number from 0 to 1");
    clear();
    add("slow.json", "{\"draft\":\"exit:2\",\"marks\":[\"accepted\"]}");
    refuses("speculation", DS_ENOTFOUND, "no number 'speedup'");
    clear();
    add("none.json", "{\"draft\":\"exit:2\",\"marks\":[],\"speedup\":1}");
    refuses("speculation", DS_ENOTFOUND, "no drafted token was accepted or rejected");
    clear();
}

T(json_figures_refuse_what_they_cannot_read)
{
    add("a.csv", "step,loss\n0,2\n1,1\n");
    refuses("bench_bars", DS_EFORMAT, "expected JSON files of depthscope bench");
    refuses("task_bars", DS_EFORMAT, "expected JSON files of depthscope eval");
    clear();
    add("ours.json", ours_text);
    refuses("bench_bars", DS_EFORMAT, "expected JSON files of depthscope bench");
    refuses("training", DS_EFORMAT, "expected a run, found a JSON file");
    clear();
    add("empty.json", "{\"results\":[]}");
    refuses("bench_bars", DS_ENOTFOUND, "no results of the groups prefill and decode");
    clear();
    add("cut.json", "{\"results\":[{\"group\":\"decode\",\"name\":\"decode edp\"}]}");
    refuses("bench_bars", DS_ENOTFOUND, "median, min or max is missing");
    clear();
    add("none.json", "{\"results\":{\"wikitext\":{\"word_perplexity,none\":3}}}");
    refuses("task_bars", DS_ENOTFOUND, "no task has an accuracy");
    clear();
    add("deep.json", "{\"results\":{\"x\":[1,2],\"y\":null,\"z\":{\"acc,none\":7}}}");
    refuses("task_bars", DS_ENOTFOUND, "no task has an accuracy");
    clear();
}

T(a_json_figure_has_a_recipe_that_names_its_file)
{
    struct str png = {0};
    struct figure_recipe r = {0};
    struct err e = {0};
    add("ours.json", ours_text);
    struct figure f = draw_with("task_bars", NULL);
    t_ok(figure_bytes(&f, PEN_PNG, &png, &e), &e);
    t_ok(figure_recipe_read(&r, png.p, png.len, "png", &e), &e);
    t_true(r.runs == 1 && strcmp(r.path[0], file[0]) == 0);
    t_true(strcmp(r.name, "task_bars") == 0 && strcmp(r.data_hash, f.data_hash) == 0);
    figure_recipe_release(&r);
    str_release(&png);
    figure_release(&f);
    clear();
}

T(a_csv_table_is_a_run)
{
    add("log.csv", "\xEF\xBB\xBFstep,\"val_loss\", lr ,tokens\r\n0,3.5,1e-3,100\r\n"
                   "10,,5e-4,200\r\n20,nan,2e-4,300\r\n\r\n");
    const struct series *v = runview_series(input[0].view, "val_loss");
    const struct series *lr = runview_series(input[0].view, "lr");
    t_true(v && v->n == 2 && v->value[0] == 3.5 && isnan(v->value[1]) && v->step[1] == 20);
    t_true(lr && lr->n == 3 && lr->step[1] == 10 && lr->value[1] == 5e-4);
    t_true(lr->tokens[2] == 300);
    t_true(strcmp(input[0].view->name, "log") == 0);
    struct figure f = draw_with("training", NULL); /* no loss: what it has */
    shows(&f, "Validation loss", 1);
    shows(&f, "Learning rate", 1);
    shows(&f, "Shown: log.", 1);
    figure_release(&f);
    clear();
}

static void bad_csv(const char *text, const char *part)
{
    struct figure_run r = {0};
    struct err e = {0};
    char path[300];
    snprintf(path, sizeof path, "%s/bad.csv", t_tmpdir());
    t_ok(fs_write_file(path, text, strlen(text), &e), &e);
    struct timespec long_ago[2] = {{.tv_sec = 1700000000}, {.tv_sec = 1700000000}};
    t_eq(utimensat(AT_FDCWD, path, long_ago, 0), 0); /* nobody is writing it */
    int rc = figure_open(&r, path, path, &e);
    t_truef(rc < 0 && strstr(e.text, part) && strstr(e.text, "bad.csv") && !strchr(e.text, '\n'),
            "%s: %s", part, e.text);
    figure_close(&r);
}

T(malformed_csv_is_one_line_with_its_place)
{
    bad_csv("", "no records");
    bad_csv("1,2\n3,4\n", "line 1: \"1\": expected a column name");
    bad_csv("step\n1\n", "line 1: expected a step column and metrics");
    bad_csv("step,loss,loss\n1,2,3\n", "line 1: duplicate column \"loss\"");
    bad_csv("step,loss\n2,abc\n", "line 2: column \"loss\": \"abc\": expected a number");
    bad_csv("step,loss\n1,2,3\n", "line 2: more cells, expected 2");
    bad_csv("step,loss\n1.5,2\n", "expected a step, a non-negative integer");
    bad_csv("step,loss\n-1,2\n", "expected a step, a non-negative integer");
    bad_csv("step,loss\nx,2\n", "expected a step, a non-negative integer");
}
