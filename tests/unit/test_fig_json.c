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
    "{\"capacity_asked\":0.5,\"time_ratio\":0.7,\"decode_time_ratio\":null},"
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

static struct figure_run input[8];
static char file[8][300];
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

static struct figure draw_with(const char *name, const char *metric)
{
    struct figure f = {0};
    struct figure_options o;
    struct err e = {0};
    figure_options_default(&o);
    o.metric = metric;
    t_ok(figure_make(&f, name, input, inputs, &o, &e), &e);
    return f;
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

T(pen_commands_match_the_golden_files)
{
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

T(bench_bars_is_relative_to_dense_when_a_file_has_only_ratios)
{
    add("bench.json", bench_text);
    add("capacity.json", capacity_text);
    struct figure f = draw_with("bench_bars", NULL);
    shows(&f, "\"capacity: mod 0.50\"", 1);
    shows(&f, "\"bench: edp 0.50\"", 1);
    shows(&f, "Throughput (dense = 1)", 1);
    shows(&f, "not measured", 1); /* decoding of mod */
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
