/* Tables of run groups and paired differences, for compare, sweep and ablate. */
#include "cli/report.h"

#include <math.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"
#include "cli/cli.h"

enum { CELL = 96 };

/* 1 when at least one group has the summary row. */
static int has_row(const struct report *r, int row)
{
    for (size_t k = 0; k < r->n; k++)
        if (r->group[k].value[row].n > 0)
            return 1;
    return 0;
}

/* The training loss only stands in for a validation loss that a run does not have. */
static int is_known(const struct report *r, int row)
{
    for (size_t k = 0; row == SUMMARY_LOSS && k < r->n; k++)
        if (r->group[k].n > r->group[k].failed && r->group[k].value[SUMMARY_VAL_LOSS].n == 0)
            return has_row(r, row);
    return row != SUMMARY_LOSS && has_row(r, row);
}

static size_t failures(const struct summary_group *g)
{
    return g->failed + g->missing;
}

/* "1.234 [1.2, 1.3]"; narrow: "1.234 ±0.05". */
static const char *print_interval(char out[CELL], const struct interval *x, int digits,
                                  int is_narrow)
{
    if (!is_narrow || x->n < 2)
        return stat_print(out, CELL, x, digits);
    snprintf(out, CELL, "%.*g %s%.2g", digits, x->mean, utf8_locale_is_utf8() ? "±" : "+-",
             x->hi - x->mean);
    return out;
}

/* ---- groups ---- */

/* Summary rows from..to-1, with the rank of each column; 0 when no group has one. */
static int fill_part(struct table *t, int *rank, const struct report *r, int from, int to,
                     int is_narrow)
{
    size_t columns = 2, failed = 0;
    for (size_t k = 0; k < r->n; k++)
        failed += failures(&r->group[k]);
    columns += failed > 0;
    for (int row = from; row < to; row++)
        if (is_known(r, row))
            rank[columns++] = summary_rows[row].rank;
    table_init(t, columns);
    table_add(t, "");
    table_add(t, "n");
    if (failed > 0)
        table_add(t, "state");
    for (int row = from; row < to; row++)
        if (is_known(r, row))
            table_add(t, summary_rows[row].title);
    for (size_t k = 0; k < r->n; k++) {
        const struct summary_group *g = &r->group[k];
        table_add(t, g->label);
        table_addf(t, "%zu", g->n - g->failed);
        if (failures(g) > 0)
            table_addf(t, "%zu failed", failures(g));
        else if (failed > 0)
            table_add(t, "ok");
        for (int row = from; row < to; row++) {
            char text[CELL];
            if (is_known(r, row))
                table_add(
                    t, print_interval(text, &g->value[row], summary_rows[row].digits, is_narrow));
        }
    }
    return columns > 2 + (size_t)(failed > 0);
}

static void add_part(struct str *out, const struct report *r, int from, int to)
{
    int rank[SUMMARY_N + 3] = {0};
    struct table t;
    int has_columns = fill_part(&t, rank, r, from, to, 0);
    if (has_columns && r->width > 0 && table_width(&t) > r->width) {
        table_release(&t);
        fill_part(&t, rank, r, from, to, 1);
    }
    if (has_columns) {
        table_fit(&t, out, r->width, rank);
        str_add(out, "\n");
    }
    table_release(&t);
}

/* Shares are of a run's own dense model: a shallower one, too, is 1 of itself.  Adds nothing where
 * the dense models are alike (documents of another seed change their attention a little). */
static void dense_models(struct str *out, const struct report *r,
                         void (*add_label)(struct str *, const char *))
{
    enum { NAMED_MAX = 8 };
    double lo = (double)INFINITY, hi = 0;
    char a[16], b[16];
    for (size_t k = 0; k < r->n; k++)
        if (r->group[k].dense_flops > 0) {
            lo = fmin(lo, r->group[k].dense_flops);
            hi = fmax(hi, r->group[k].dense_flops);
        }
    if (!(hi > 1.02 * lo))
        return;
    str_add(out, "the dense models differ, in FLOPs per token: ");
    if (r->n > NAMED_MAX) {
        str_addf(out, "%s to %s", str_si(a, lo), str_si(b, hi));
        return;
    }
    for (size_t k = 0, n = 0; k < r->n; k++)
        if (r->group[k].dense_flops > 0) {
            str_add(out, n++ ? "; " : "");
            add_label(out, r->group[k].label);
            str_addf(out, " %s", str_si(a, r->group[k].dense_flops));
        }
}

static void plain_text(struct str *out, const char *text)
{
    cli_add_safe(out, text, strlen(text), -1);
}

void report_groups(struct str *out, const struct report *r)
{
    struct str dense = {0};
    add_part(out, r, 0, SUMMARY_RANDOM);
    add_part(out, r, SUMMARY_RANDOM, SUMMARY_N);
    int has_shares =
        is_known(r, SUMMARY_BLOCK) || is_known(r, SUMMARY_FLOPS) || is_known(r, SUMMARY_TIME);
    table_note(out,
               has_shares ? "mean over n seeds [95 % confidence interval, Student's t]; blocks, "
                            "FLOPs and time are shares of the dense model"
                          : "mean over n seeds [95 % confidence interval, Student's t]",
               r->width);
    dense_models(&dense, r, plain_text);
    if (has_shares && dense.len > 0)
        table_note(out, str_text(&dense), r->width);
    out->failed |= dense.failed;
    str_release(&dense);
}

/* ---- paired differences ---- */

/* Every group against the reference, the first group with results. */
struct comparison {
    size_t reference;
    struct difference *of; /* per group; of.n = 0: no shared seed */
    double *p_holm;        /* NaN: not compared */
    size_t compared;       /* groups with two pairs or more */
};

static void comparison_release(struct comparison *c)
{
    mem_free(c->of);
    mem_free(c->p_holm);
    *c = (struct comparison){0};
}

/* 0 when out of memory. */
static int compare_groups(struct comparison *c, const struct report *r, int row)
{
    *c = (struct comparison){.of = mem_alloc(r->n, sizeof *c->of),
                             .p_holm = mem_alloc(r->n, sizeof *c->p_holm)};
    if (!c->of || !c->p_holm) {
        comparison_release(c);
        return 0;
    }
    while (c->reference + 1 < r->n && r->group[c->reference].value[row].n == 0)
        c->reference++;
    for (size_t k = 0; k < r->n; k++) {
        c->p_holm[k] = (double)NAN;
        if (k == c->reference)
            continue;
        c->of[k] = summary_paired(&r->group[k], &r->group[c->reference], r->runs, row);
        c->p_holm[k] = c->of[k].p;
        c->compared += c->of[k].of.n > 1;
    }
    stat_holm(c->p_holm, r->n);
    return 1;
}

static void fill_paired(struct table *t, const struct report *r, const struct comparison *c,
                        int is_narrow)
{
    table_init(t, 4);
    table_add(t, "");
    table_add(t, "n pairs");
    table_add(t, "difference");
    table_add(t, "p (Holm)");
    for (size_t k = 0; k < r->n; k++) {
        char text[CELL];
        if (k == c->reference)
            continue;
        table_add(t, r->group[k].label);
        table_addf(t, "%zu", c->of[k].of.n);
        table_add(t, print_interval(text, &c->of[k].of, 3, is_narrow));
        if (isnan(c->p_holm[k]))
            table_add(t, "-");
        else
            table_addf(t, "%.2g", c->p_holm[k]);
    }
}

void report_paired(struct str *out, const struct report *r)
{
    static const int rank[] = {0, 1, 0, 0};
    struct comparison c;
    struct table t;
    struct str note = {0};
    if (!compare_groups(&c, r, r->row)) {
        out->failed = 1;
        return;
    }
    if (c.compared == 0)
        goto out;
    str_addf(&note, "%s minus that of ", summary_rows[r->row].title);
    cli_add_safe(&note, r->group[c.reference].label, strlen(r->group[c.reference].label), -1);
    str_addf(&note,
             ", paired by seed [95 %% confidence interval, Student's t]; p: paired t test, Holm's "
             "adjustment for %zu comparison%s",
             c.compared, c.compared == 1 ? "" : "s");
    str_add(out, "\n");
    table_note(out, str_text(&note), r->width);
    out->failed |= note.failed;
    fill_paired(&t, r, &c, 0);
    if (r->width > 0 && table_width(&t) > r->width) {
        table_release(&t);
        fill_paired(&t, r, &c, 1);
    }
    table_fit(&t, out, r->width, rank);
    table_release(&t);
out:
    str_release(&note);
    comparison_release(&c);
}

static void paired_json(struct str *out, const struct comparison *c, size_t k)
{
    json_add_int(out, "n", (int64_t)c->of[k].of.n);
    json_add_num(out, "mean", c->of[k].of.mean);
    json_add_num(out, "lo", c->of[k].of.lo);
    json_add_num(out, "hi", c->of[k].of.hi);
    json_add_num(out, "p", c->of[k].p);
    json_add_num(out, "p_holm", c->p_holm[k]);
}

void report_paired_json(struct str *out, const struct report *r)
{
    struct comparison c[SUMMARY_N];
    size_t reference;
    for (int row = 0; row < SUMMARY_N; row++)
        out->failed |= !compare_groups(&c[row], r, row);
    reference = c[r->row].reference;
    str_add(out, "[");
    for (size_t k = 0; k < r->n && !out->failed; k++) {
        if (k == reference)
            continue;
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "label", r->group[k].label);
        json_add_str(out, "metric", summary_rows[r->row].key);
        paired_json(out, &c[r->row], k);
        json_key(out, "metrics");
        str_add(out, "{");
        for (int row = 0; row < SUMMARY_N; row++) {
            if (c[row].reference != reference || c[row].of[k].of.n == 0)
                continue;
            json_key(out, summary_rows[row].key);
            str_add(out, "{");
            paired_json(out, &c[row], k);
            str_add(out, "}");
        }
        str_add(out, "}}");
    }
    str_add(out, "]");
    for (int row = 0; row < SUMMARY_N; row++)
        comparison_release(&c[row]);
}

/* ---- LaTeX ---- */

static void latex_text(struct str *out, const char *text)
{
    struct str safe = {0};
    utf8_sanitise(&safe, text, strlen(text), -1, 0);
    for (const char *p = str_text(&safe); *p; p++) {
        if (strchr("{}$&#_%", *p))
            str_addf(out, "\\%c", *p);
        else if (*p == '\\' || *p == '~' || *p == '^')
            str_addf(out, "\\text%s{}",
                     *p == '\\'  ? "backslash"
                     : *p == '~' ? "asciitilde"
                                 : "asciicircum");
        else if (*p == '<' || *p == '>')
            str_addf(out, "$%c$", *p);
        else
            str_add_char(out, *p);
    }
    out->failed |= safe.failed;
    str_release(&safe);
}

/* In math mode; 1e-05 as 1\times10^{-5}. */
static void latex_number(struct str *out, double v, int digits)
{
    char text[40], *e;
    snprintf(text, sizeof text, "%.*g", digits, v);
    if ((e = strchr(text, 'e')) != NULL) {
        int exponent = 0;
        sscanf(e + 1, "%d", &exponent);
        str_addf(out, "%.*s\\times10^{%d}", (int)(e - text), text, exponent);
    } else {
        str_add(out, text);
    }
}

static void latex_interval(struct str *out, const struct interval *x, int digits)
{
    if (x->n == 0) {
        str_add(out, "--");
        return;
    }
    str_add(out, "$");
    latex_number(out, x->mean, digits);
    str_add(out, "$");
    if (x->n < 2)
        return;
    str_add(out, " {\\scriptsize$[");
    latex_number(out, x->lo, digits);
    str_add(out, ", ");
    latex_number(out, x->hi, digits);
    str_add(out, "]$}");
}

void report_latex(struct str *out, const struct report *r)
{
    struct comparison c;
    if (!compare_groups(&c, r, r->row)) {
        out->failed = 1;
        return;
    }
    str_add(out,
            "% needs \\usepackage{booktabs}; n seeds, mean [95 % confidence interval, Student's "
            "t]\n");
    if (c.compared > 0) {
        str_addf(out, "%% $\\Delta$: %s minus that of ", summary_rows[r->row].title);
        latex_text(out, r->group[c.reference].label);
        str_addf(out,
                 ", paired by seed; p: paired t test, Holm's adjustment for %zu comparison%s\n",
                 c.compared, c.compared == 1 ? "" : "s");
    }
    struct str dense = {0};
    dense_models(&dense, r, latex_text);
    if (dense.len > 0)
        str_addf(out, "%% %s\n", str_text(&dense));
    out->failed |= dense.failed;
    str_release(&dense);
    str_add(out, "\\begin{tabular}{lr");
    for (int row = 0; row < SUMMARY_N; row++)
        str_add(out, is_known(r, row) ? "r" : "");
    str_addf(out, "%s}\n\\toprule\n & $n$", c.compared ? "rrr" : "");
    for (int row = 0; row < SUMMARY_N; row++)
        if (is_known(r, row)) {
            str_add(out, " & ");
            latex_text(out, summary_rows[row].title);
        }
    if (c.compared) {
        str_add(out, " & $\\Delta$ ");
        latex_text(out, summary_rows[r->row].title);
        str_add(out, " & pairs & $p$ (Holm)");
    }
    str_add(out, " \\\\\n\\midrule\n");
    for (size_t k = 0; k < r->n; k++) {
        const struct summary_group *g = &r->group[k];
        latex_text(out, g->label);
        str_addf(out, " & %zu", g->n - g->failed);
        for (int row = 0; row < SUMMARY_N; row++)
            if (is_known(r, row)) {
                str_add(out, " & ");
                latex_interval(out, &g->value[row], summary_rows[row].digits);
            }
        if (c.compared) {
            str_add(out, " & ");
            latex_interval(out, &c.of[k].of, 3);
            if (c.of[k].of.n > 0)
                str_addf(out, " & %zu & ", c.of[k].of.n);
            else
                str_add(out, " & -- & ");
            if (isnan(c.p_holm[k])) {
                str_add(out, "--");
            } else {
                str_add(out, "$");
                latex_number(out, c.p_holm[k], 2);
                str_add(out, "$");
            }
        }
        str_add(out, " \\\\\n");
    }
    str_add(out, "\\bottomrule\n\\end{tabular}\n");
    comparison_release(&c);
}

/* ---- Markdown ---- */

static void markdown_text(struct str *out, const char *text)
{
    struct str safe = {0};
    utf8_sanitise(&safe, text, strlen(text), -1, 0);
    for (const char *p = str_text(&safe); *p; p++)
        str_addf(out, "%s%c", strchr("|*_`<\\[", *p) ? "\\" : "", *p);
    out->failed |= safe.failed;
    str_release(&safe);
}

void report_markdown(struct str *out, const struct report *r)
{
    struct comparison c;
    char cell[CELL];
    if (!compare_groups(&c, r, r->row)) {
        out->failed = 1;
        return;
    }
    str_add(out, "| | n |");
    for (int row = 0; row < SUMMARY_N; row++)
        if (is_known(r, row))
            str_addf(out, " %s |", summary_rows[row].title);
    if (c.compared)
        str_addf(out, " Δ %s (paired) |", summary_rows[r->row].title);
    str_add(out, "\n|---|---:|");
    for (int row = 0; row < SUMMARY_N; row++)
        str_add(out, is_known(r, row) ? "---:|" : "");
    str_add(out, c.compared ? "---:|\n" : "\n");
    for (size_t k = 0; k < r->n; k++) {
        const struct summary_group *g = &r->group[k];
        str_add(out, "| ");
        markdown_text(out, g->label);
        str_addf(out, " | %zu |", g->n - g->failed);
        for (int row = 0; row < SUMMARY_N; row++)
            if (is_known(r, row))
                str_addf(out, " %s |",
                         g->value[row].n
                             ? print_interval(cell, &g->value[row], summary_rows[row].digits, 0)
                             : "-");
        if (c.compared)
            str_addf(out, " %s |", c.of[k].of.n ? print_interval(cell, &c.of[k].of, 3, 0) : "-");
        str_add(out, "\n");
    }
    struct str dense = {0};
    dense_models(&dense, r, markdown_text);
    if (dense.len > 0)
        str_addf(out, "\nBlocks, FLOPs and time are shares of each run's own dense model; %s\n",
                 str_text(&dense));
    out->failed |= dense.failed;
    str_release(&dense);
    comparison_release(&c);
}

/* ---- CSV ---- */

/* RFC 4180: in quotes where it holds a comma or a quote; control characters are made visible. */
static void csv_text(struct str *out, const char *text)
{
    struct str safe = {0};
    utf8_sanitise(&safe, text, strlen(text), -1, 0);
    int is_quoted = strpbrk(str_text(&safe), ",\"") != NULL;
    str_add(out, is_quoted ? "\"" : "");
    for (const char *p = str_text(&safe); *p; p++)
        str_addf(out, "%s%c", *p == '"' ? "\"" : "", *p);
    str_add(out, is_quoted ? "\"" : "");
    out->failed |= safe.failed;
    str_release(&safe);
}

static void csv_number(struct str *out, double v)
{
    if (isfinite(v))
        str_addf(out, ",%.9g", v);
    else
        str_add(out, ",");
}

void report_csv(struct str *out, const struct report *r)
{
    struct comparison c;
    if (!compare_groups(&c, r, r->row)) {
        out->failed = 1;
        return;
    }
    str_add(out, "label,n,failed");
    for (int row = 0; row < SUMMARY_N; row++) {
        const char *key = summary_rows[row].key;
        str_addf(out, ",%s,%s_sd,%s_lo,%s_hi", key, key, key, key);
    }
    str_addf(out, ",paired_n,paired_%s,paired_lo,paired_hi,p,p_holm\n", summary_rows[r->row].key);
    for (size_t k = 0; k < r->n; k++) {
        const struct summary_group *g = &r->group[k];
        csv_text(out, g->label);
        str_addf(out, ",%zu,%zu", g->n - g->failed, failures(g));
        for (int row = 0; row < SUMMARY_N; row++) {
            csv_number(out, g->value[row].mean);
            csv_number(out, g->value[row].sd);
            csv_number(out, g->value[row].lo);
            csv_number(out, g->value[row].hi);
        }
        if (k == c.reference) {
            str_add(out, ",,,,,,\n");
            continue;
        }
        str_addf(out, ",%zu", c.of[k].of.n);
        csv_number(out, c.of[k].of.mean);
        csv_number(out, c.of[k].of.lo);
        csv_number(out, c.of[k].of.hi);
        csv_number(out, c.of[k].p);
        csv_number(out, c.p_holm[k]);
        str_add(out, "\n");
    }
    comparison_release(&c);
}
