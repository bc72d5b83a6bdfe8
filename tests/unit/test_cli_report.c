/* Tables of compare, sweep and ablate: paired differences, widths of terminals, LaTeX and CSV. */
#include "t.h"

#include <locale.h>
#include <math.h>

#include "base/json.h"
#include "base/utf8.h"
#include "cli/cli.h"
#include "cli/report.h"

const struct command commands[] = {{.name = NULL}};

int command_fail(const struct err *e)
{
    return e->code == DS_EUSAGE ? 2 : 1;
}

enum { GROUPS = 3, SEEDS = 3 };
static struct summary runs[GROUPS * SEEDS];
static struct summary_group group[GROUPS];

/* Three methods on the seeds 1, 2, 3; the second is lower by about 0.1 on each seed. */
static struct report three_methods(int width)
{
    static const double loss[] = {3.0, 3.5, 4.0, 2.9, 3.41, 3.9, 3.2, 3.4, 4.1};
    static const char *const label[] = {"dense_base, 50%", "edp", "mod-with-a-long-name-of-a-run"};
    memset(runs, 0, sizeof runs);
    memset(group, 0, sizeof group);
    for (size_t i = 0; i < DS_LEN(runs); i++) {
        runs[i].seed = (long long)(i % SEEDS) + 1;
        for (int row = 0; row < SUMMARY_N; row++)
            runs[i].value[row] = 0.5 + 0.001 * (double)i;
        runs[i].value[SUMMARY_VAL_LOSS] = loss[i];
        runs[i].value[SUMMARY_TOPK_GAP] = (double)NAN;
        group[i / SEEDS].member[group[i / SEEDS].n++] = i;
    }
    for (size_t k = 0; k < GROUPS; k++) {
        str_copy(group[k].label, sizeof group[k].label, label[k]);
        summary_estimate(&group[k], runs);
    }
    return (struct report){.group = group, .n = GROUPS, .runs = runs, .width = width};
}

static int has(const struct str *s, const char *part)
{
    return strstr(str_text(s), part) != NULL;
}

static int widest(const struct str *s)
{
    int most = 0;
    for (const char *p = str_text(s); *p;) {
        size_t len = strcspn(p, "\n");
        int cells = utf8_cells(p, len);
        most = cells > most ? cells : most;
        p += len + (p[len] == '\n');
    }
    return most;
}

/* Columns of the first line of a CSV, or -1 when another line has a different number. */
static int csv_columns(const char *p)
{
    int columns = -1, n = 1, is_quoted = 0;
    for (; *p; p++) {
        is_quoted ^= *p == '"';
        n += *p == ',' && !is_quoted;
        if (*p != '\n')
            continue;
        if (columns >= 0 && n != columns)
            return -1;
        columns = n;
        n = 1;
    }
    return columns;
}

T(shares_of_dense_models_that_differ_are_not_compared_in_silence)
{
    void (*const table[])(struct str *, const struct report *) = {report_groups, report_latex,
                                                                  report_markdown};
    const char *const label[] = {"dense_base, 50%", "dense\\_base, 50\\%", "dense\\_base, 50%"};
    for (int shallow = 0; shallow < 2; shallow++) {
        struct report r = three_methods(0);
        for (size_t i = 0; i < DS_LEN(runs); i++) /* seeds differ by their documents */
            runs[i].dense_flops = (shallow && i < SEEDS ? 90e3 : 148e3) + (double)i;
        for (size_t k = 0; k < GROUPS; k++)
            summary_estimate(&group[k], runs);
        for (size_t i = 0; i < DS_LEN(table); i++) {
            struct str out = {0};
            char want[160];
            table[i](&out, &r);
            snprintf(want, sizeof want,
                     "the dense models differ, in FLOPs per token: %s 90.0k; edp 148k; ", label[i]);
            t_truef(has(&out, want) == shallow, "%s", str_text(&out));
            t_true(has(&out, "models differ") == shallow);
            str_release(&out);
        }
    }
}

T(differences_are_paired_with_p_values_adjusted_for_the_number_of_methods)
{
    struct report r = three_methods(0);
    struct str s = {0};
    struct difference edp = summary_paired(&group[1], &group[0], runs, SUMMARY_VAL_LOSS),
                      mod = summary_paired(&group[2], &group[0], runs, SUMMARY_VAL_LOSS);
    char want[64];
    t_true(edp.p < mod.p);
    report_paired(&s, &r);
    t_truef(has(&s, "val loss minus that of dense_base, 50%, paired by seed") &&
                has(&s, "Student's t") && has(&s, "Holm's adjustment for 2 comparisons") &&
                has(&s, "-0.0967 [-0.111, -0.0823]"),
            "%s", str_text(&s));
    snprintf(want, sizeof want, "  %.2g\n", 2 * edp.p); /* the smaller of two */
    t_truef(has(&s, want), "%s in %s", want, str_text(&s));
    str_release(&s);
}

T(differences_are_of_the_metric_that_is_asked_for)
{
    struct report r = three_methods(0);
    struct str s = {0};
    r.row = SUMMARY_ANSWER_LOSS;
    runs[4].value[SUMMARY_ANSWER_LOSS] += 0.25;
    report_paired(&s, &r);
    t_truef(has(&s, "answer loss minus that of dense_base") && has(&s, "0.0863 [-0.272, 0.445]"),
            "%s", str_text(&s));
    str_reset(&s);
    report_paired_json(&s, &r);
    struct json *j = NULL;
    struct err e = {0};
    t_ok(json_parse(&j, str_text(&s), s.len, "paired", &e), &e);
    const struct json_node *edp = json_at(json_root(j), 0), *all = json_get(edp, "metrics");
    t_str(json_str(json_get(edp, "metric"), NULL), "answer_loss");
    t_near(json_num(json_get(edp, "mean"), 0), 0.003 + 0.25 / 3, 1e-6);
    t_near(json_num(json_get(json_get(all, "val_loss"), "mean"), 0), -0.29 / 3, 1e-6);
    t_true(json_num(json_get(json_get(all, "val_loss"), "p_holm"), 0) < 0.1);
    t_near(json_num(json_get(json_get(all, "time_ratio"), "mean"), 0), 0.003, 1e-6);
    t_true(!json_get(all, "topk_gap"));
    json_free(j);
    str_reset(&s);
    report_csv(&s, &r);
    t_true(has(&s, ",paired_answer_loss,"));
    str_release(&s);
}

T(the_reference_is_the_first_group_with_results)
{
    struct report r = three_methods(0);
    struct str s = {0};
    group[0].n = 0; /* a row of a sweep that was refused */
    summary_estimate(&group[0], runs);
    report_paired(&s, &r);
    t_truef(has(&s, "minus that of edp") && has(&s, "for 1 comparison\n"), "%s", str_text(&s));
    str_reset(&s);
    report_paired_json(&s, &r);
    t_truef(has(&s, "\"label\":\"mod-") && !has(&s, "\"label\":\"edp\""), "%s", str_text(&s));
    str_reset(&s);
    report_latex(&s, &r);
    t_truef(has(&s, "val loss minus that of edp, paired by seed"), "%s", str_text(&s));
    str_release(&s);
}

T(a_row_that_was_refused_asks_for_no_training_loss)
{
    struct report r = three_methods(0);
    struct str s = {0};
    group[1].n = 0;
    summary_estimate(&group[1], runs);
    report_groups(&s, &r);
    t_truef(has(&s, "val loss") && !has(&s, "train loss"), "%s", str_text(&s));
    str_release(&s);
}

T(one_seed_gives_no_table_of_differences)
{
    struct report r = three_methods(0);
    struct str s = {0};
    for (size_t k = 0; k < GROUPS; k++)
        group[k].n = 1;
    report_paired(&s, &r);
    t_eq(s.len, 0);
    str_release(&s);
}

T(tables_fit_every_width_and_name_what_they_omit)
{
    static const int width[] = {60, 80, 100, 120, 160};
    struct str s = {0};
    struct report r = three_methods(0);
    setlocale(LC_CTYPE, "C.UTF-8");
    report_groups(&s, &r);
    int full = widest(&s);
    t_true(full > 120 && has(&s, "r(true entropy)") && !has(&s, "omitted") && has(&s, "3.5 [2.2"));
    for (size_t i = 0; i < DS_LEN(width); i++) {
        str_reset(&s);
        r.width = width[i];
        report_groups(&s, &r);
        report_paired(&s, &r);
        t_truef(widest(&s) <= width[i], "%d cells at %d:\n%s", widest(&s), width[i], str_text(&s));
        t_truef(has(&s, "val loss") && has(&s, "edp") && has(&s, "p (Holm)"), "%s", str_text(&s));
        t_truef(has(&s, "3.5 ±"), "%s", str_text(&s));
    }
    str_reset(&s);
    r.width = 80;
    report_groups(&s, &r);
    t_truef(has(&s, "omitted to fit the terminal:") && !has(&s, "bits/byte  ") &&
                has(&s, "FLOPs  "),
            "%s", str_text(&s));
    str_release(&s);
}

T(long_names_that_differ_at_their_end_stay_apart)
{
    static const char name[] =
        "a-folder-of-texts-with-a-rather-long-path/of-november/and-more/%d.txt";
    static const int width[] = {0, 60, 90, 200};
    struct report r = three_methods(0);
    struct str s = {0};
    setlocale(LC_CTYPE, "C.UTF-8");
    for (int k = 0; k < 2; k++)
        snprintf(group[k].label, sizeof group[k].label, name, k + 1);
    for (size_t i = 0; i < DS_LEN(width); i++) {
        r.width = width[i];
        report_groups(&s, &r);
        t_truef(has(&s, "/1.txt ") && has(&s, "/2.txt "), "%s", str_text(&s));
        t_truef(width[i] == 0 || widest(&s) <= width[i], "%s", str_text(&s));
        str_reset(&s);
    }
    str_release(&s);
}

T(columns_that_do_not_fit_follow_below)
{
    struct table t;
    struct str s = {0};
    table_init(&t, 4);
    for (int row = 0; row < 2; row++)
        for (int c = 0; c < 4; c++)
            table_addf(&t, "%c%d-------", 'a' + c, row);
    table_wrap(&t, &s, 20);
    t_str(str_text(&s), "a0-------  b0-------\na1-------  b1-------\n\n"
                        "a0-------  c0-------\na1-------  c1-------\n\n"
                        "a0-------  d0-------\na1-------  d1-------\n");
    str_reset(&s);
    table_wrap(&t, &s, 0);
    t_str(str_text(&s), "a0-------  b0-------  c0-------  d0-------\n"
                        "a1-------  b1-------  c1-------  d1-------\n");
    str_release(&s);
    table_release(&t);
}

T(latex_and_csv_hold_every_group_and_escape_labels)
{
    struct report r = three_methods(40); /* a width that only the terminal has */
    struct str s = {0};
    report_latex(&s, &r);
    t_truef(has(&s, "dense\\_base, 50\\% & 3 & $3.5$ {\\scriptsize$[2.258, 4.742]$}") &&
                has(&s, "$-0.0967$ {\\scriptsize$[-0.111, -0.0823]$} & 3 & $0.0") &&
                has(&s, "\\end{tabular}") && !has(&s, "top-k gap"),
            "%s", str_text(&s));
    str_reset(&s);
    report_csv(&s, &r);
    t_eq(csv_columns(str_text(&s)), 3 + 4 * SUMMARY_N + 6);
    t_truef(has(&s, "label,n,failed,val_loss,val_loss_sd,val_loss_lo,val_loss_hi,") &&
                has(&s, "\n\"dense_base, 50%\",3,0,3.5,0.5,") && has(&s, "\nedp,3,0,3.40333333,"),
            "%s", str_text(&s));
    str_release(&s);
}
