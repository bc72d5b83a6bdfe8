/* depthscope export RUN --to FORMAT: the metrics of any source as a file for notebooks and other
 * tools.  Superseded points are left out. */
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/fs.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "io/runview.h"
#include "io/tfevents.h"

struct cli_option export_options[] = {
    {.name = "to", .has_value = 1, .help = "csv|jsonl|tfevents  (default: by the name of FILE)"},
    {.name = "o", .has_value = 1, .help = "FILE  instead of standard output"},
    {.name = NULL},
};

static const char usage_after[] =
    "\ncsv       one row per step (ascending): `step`, then a column per metric, named as logged; "
    "the newest value of a step, an empty cell where nothing was logged\n"
    "jsonl     one object per record of metrics: `step`, `time` where known, the values; vectors "
    "per layer, matrices, and evaluations as the object `eval`, only here\n"
    "tfevents  an event file of TensorBoard: -o DIR/events.out.tfevents.NAME\n"
    "Numbers are the shortest text that reads back as the same double; NaN, Infinity, -Infinity.\n";

/* ---- all points in the order of their steps ---- */

/* A place in one list: series, then layer series, then matrices, then the evaluations. */
struct cursor {
    size_t list, i;
    int64_t step;
    double time; /* -HUGE_VAL unknown: before the known ones of its step */
};
struct merge {
    const struct runview *v;
    unsigned char **is_old; /* of each layer series: superseded points */
    struct cursor *heap;
    size_t n;
};

static int is_before(const struct cursor *a, const struct cursor *b)
{
    if (a->step != b->step)
        return a->step < b->step;
    if (a->time < b->time || a->time > b->time)
        return a->time < b->time;
    return a->list < b->list;
}

static void sink(struct merge *m, size_t at)
{
    for (size_t child; (child = 2 * at + 1) < m->n; at = child) {
        child += child + 1 < m->n && is_before(&m->heap[child + 1], &m->heap[child]);
        if (!is_before(&m->heap[child], &m->heap[at]))
            return;
        struct cursor c = m->heap[at];
        m->heap[at] = m->heap[child];
        m->heap[child] = c;
    }
}

/* The next point of c's list that counts, from c->i on; 0 at its end. */
static int settle(const struct merge *m, struct cursor *c)
{
    const struct runview *v = m->v;
    c->time = -HUGE_VAL;
    if (c->list < v->n_series) {
        const struct series *s = &v->series[c->list];
        while (c->i < s->n && s->is_old[c->i])
            c->i++;
        if (c->i == s->n)
            return 0;
        c->step = s->step[c->i];
        c->time = isnan(s->time[c->i]) ? c->time : s->time[c->i];
        return 1;
    }
    c->time = HUGE_VAL; /* after the metrics of their step */
    size_t l = c->list - v->n_series;
    if (l < v->n_layer) {
        while (c->i < v->layer[l].n && m->is_old[l][c->i])
            c->i++;
        c->step = c->i < v->layer[l].n ? v->layer[l].step[c->i] : 0;
        return c->i < v->layer[l].n;
    }
    if (l - v->n_layer < v->n_matrices) {
        const struct matrix_series *s = &v->matrix[l - v->n_layer];
        while (c->i < s->n && s->point[c->i].is_old)
            c->i++;
        c->step = c->i < s->n ? s->point[c->i].step : 0;
        return c->i < s->n;
    }
    c->step = c->i < v->n_evals ? v->eval[c->i].step : 0;
    return c->i < v->n_evals;
}

static void merge_release(struct merge *m)
{
    for (size_t l = 0; m->is_old && l < m->v->n_layer; l++)
        mem_free(m->is_old[l]);
    mem_free(m->is_old);
    mem_free(m->heap);
}

/* Layer series keep no marks: a later record of the same or an earlier step supersedes. */
static unsigned char *old_layers(const struct layer_series *s)
{
    unsigned char *old = mem_alloc(s->n + 1, 1);
    int64_t least = INT64_MAX;
    for (size_t i = s->n; old && i-- > 0;) {
        old[i] = s->step[i] >= least;
        least = s->step[i] < least ? s->step[i] : least;
    }
    return old;
}

/* Of the first `lists` lists. */
static int merge_begin(struct merge *m, const struct runview *v, size_t lists, struct err *e)
{
    int is_good;
    *m = (struct merge){.v = v};
    m->heap = mem_alloc(lists + 1, sizeof *m->heap);
    m->is_old = mem_alloc(v->n_layer + 1, sizeof *m->is_old);
    is_good = m->heap && m->is_old;
    for (size_t l = 0; is_good && l < v->n_layer; l++)
        is_good = (m->is_old[l] = old_layers(&v->layer[l])) != NULL;
    if (!is_good) {
        merge_release(m);
        return err_set(e, DS_EMEM, "export: out of memory");
    }
    for (size_t k = 0; k < lists; k++) {
        struct cursor c = {.list = k};
        if (settle(m, &c))
            m->heap[m->n++] = c;
    }
    for (size_t i = m->n / 2; i-- > 0;)
        sink(m, i);
    return 0;
}

/* The first place of all; 0 after the last. */
static int merge_next(struct merge *m, struct cursor *out)
{
    if (m->n == 0)
        return 0;
    *out = m->heap[0];
    m->heap[0].i++;
    if (!settle(m, &m->heap[0]))
        m->heap[0] = m->heap[--m->n];
    sink(m, 0);
    return 1;
}

/* ---- CSV ---- */

/* RFC 4180: quoted where a reader would split or trim it, also one that finds the separator itself. */
static void add_name(struct str *out, const char *name, int is_terminal)
{
    struct str safe = {0};
    if (is_terminal)
        cli_add_safe(&safe, name, strlen(name), -1);
    else
        str_add(&safe, name);
    const char *p = str_text(&safe);
    int is_quoted =
        p[strcspn(p, ",;|\t\"\r\n")] || p[0] == ' ' || (p[0] && p[strlen(p) - 1] == ' ');
    str_add(out, is_quoted ? "\"" : "");
    for (; *p; p++)
        str_addf(out, *p == '"' ? "\"%c" : "%c", *p);
    str_add(out, is_quoted ? "\"" : "");
    out->failed |= safe.failed;
    str_release(&safe);
}

struct csv_row {
    double *value;
    size_t *last; /* index + 1 of the point in its series, 0 = empty cell */
    int64_t step;
    int has;
};

static void end_row(struct csv_row *r, size_t columns, struct str *out)
{
    if (!r->has)
        return;
    str_addf(out, "%lld", (long long)r->step);
    for (size_t k = 0; k < columns; k++) {
        str_add_char(out, ',');
        if (r->last[k])
            str_add_real(out, r->value[k]);
        r->last[k] = 0;
    }
    str_add_char(out, '\n');
    r->has = 0;
}

static int export_csv(struct str *out, const struct runview *v, struct err *e)
{
    size_t columns = v->n_series;
    struct csv_row r = {.value = mem_alloc(columns + 1, sizeof *r.value),
                        .last = mem_alloc(columns + 1, sizeof *r.last)};
    struct merge m = {.v = v};
    struct cursor c;
    int is_terminal = isatty(STDOUT_FILENO);
    int rc = r.value && r.last ? merge_begin(&m, v, columns, e)
                               : err_set(e, DS_EMEM, "export: out of memory");
    str_add(out, "step");
    for (size_t k = 0; k < columns; k++) {
        str_add_char(out, ',');
        add_name(out, v->series[k].name, is_terminal);
    }
    str_add_char(out, '\n');
    while (rc == 0 && merge_next(&m, &c)) {
        if (c.step != r.step)
            end_row(&r, columns, out);
        r.step = c.step;
        r.has = 1;
        if (c.i + 1 > r.last[c.list]) {
            r.last[c.list] = c.i + 1;
            r.value[c.list] = v->series[c.list].value[c.i];
        }
    }
    end_row(&r, columns, out);
    if (rc == 0)
        merge_release(&m);
    mem_free(r.value);
    mem_free(r.last);
    return rc;
}

/* ---- JSON lines ---- */

static void add_value(struct str *out, const char *key, double x)
{
    json_key(out, key);
    str_add_real(out, x);
}

static void add_floats(struct str *out, const char *key, const float *x, size_t n)
{
    json_key(out, key);
    str_add(out, "[");
    for (size_t i = 0; i < n; i++) {
        str_add(out, i ? "," : "");
        str_add_real32(out, x[i]);
    }
    str_add(out, "]");
}

static void add_eval(struct str *out, const struct run_eval *x)
{
    json_key(out, "eval");
    str_add(out, "{");
    json_add_str(out, "task", x->task);
    json_add_str(out, "routing", x->routing);
    for (int k = 0; k < x->values; k++) {
        const struct vector *value = &x->value[k];
        if (value->n == 1) {
            json_key(out, value->name);
            str_add_real32(out, value->v[0]);
        } else {
            add_floats(out, value->name, value->v, (size_t)value->n);
        }
    }
    str_add(out, "}");
}

/* Row by row. */
static void add_matrix(struct str *out, const struct matrix_series *s, size_t i)
{
    json_key(out, s->name);
    str_add(out, "[");
    for (int y = 0; y < s->rows; y++)
        add_floats(out, NULL, s->point[i].v + (size_t)y * (size_t)s->cols, (size_t)s->cols);
    str_add(out, "]");
}

static void add_item(struct str *out, const struct runview *v, const struct cursor *c)
{
    if (c->list < v->n_series) {
        add_value(out, v->series[c->list].name, v->series[c->list].value[c->i]);
        return;
    }
    size_t l = c->list - v->n_series;
    if (l == v->n_layer + v->n_matrices) {
        add_eval(out, &v->eval[c->i]);
        return;
    }
    if (l >= v->n_layer) {
        add_matrix(out, &v->matrix[l - v->n_layer], c->i);
        return;
    }
    const struct layer_series *s = &v->layer[l];
    add_floats(out, s->name, s->value + c->i * (size_t)s->layers, (size_t)s->layers);
}

/* One object holds what has the same step and time, each list once. */
static int export_jsonl(struct str *out, const struct runview *v, struct err *e)
{
    struct merge m;
    struct cursor c, before = {0};
    int is_open = 0, rc = merge_begin(&m, v, v->n_series + v->n_layer + v->n_matrices + 1, e);
    int has_time = !runview_series(v, "time"); /* a metric of that name keeps it */
    while (rc == 0 && merge_next(&m, &c)) {
        int is_same = is_open && c.step == before.step && !(c.time < before.time) &&
                      !(c.time > before.time) && c.list > before.list;
        if (!is_same) {
            str_addf(out, "%s{\"step\":%lld", is_open ? "}\n" : "", (long long)c.step);
            if (has_time && isfinite(c.time))
                add_value(out, "time", c.time);
        }
        add_item(out, v, &c);
        is_open = 1;
        before = c;
    }
    str_add(out, is_open ? "}\n" : "");
    if (rc == 0)
        merge_release(&m);
    return rc;
}

/* ---- the command ---- */

typedef int export_fn(struct str *out, const struct runview *v, struct err *e);
static const struct format {
    const char *name;
    export_fn *write;
    int is_binary;
} formats[] = {
    {"csv", export_csv, 0},
    {"jsonl", export_jsonl, 0},
    {"tfevents", tfevents_write, 1},
};

static int choose_format(const struct format **out, const struct cli_args *a, struct err *e)
{
    const char *to = cli_value(a, "to"), *file = cli_value(a, "o");
    for (size_t i = 0; i < DS_LEN(formats); i++) {
        const char *dot = file ? strrchr(file, '.') : NULL;
        int is_named = file && !to && strstr(file, "tfevents") && formats[i].is_binary;
        if (is_named || strcmp(to ? to : dot ? dot + 1 : "", formats[i].name) == 0) {
            *out = &formats[i];
            return 0;
        }
    }
    return to ? err_set(e, DS_EUSAGE, "--to %s: expected csv, jsonl or tfevents", to)
              : err_set(e, DS_EUSAGE, "export: missing --to csv, jsonl or tfevents");
}

static int export(const struct cli_args *a, struct str *out, struct err *e)
{
    char path[1024];
    const struct format *f = NULL;
    const char *run = NULL, *file = cli_value(a, "o");
    struct runview *v = NULL;
    int rc = cli_single(a, "export", "RUN", &run, e);
    if (rc == 0 && a->n_override > 0)
        rc = err_set(e, DS_EUSAGE, "export: unexpected setting %s", a->override[0]);
    if (rc == 0)
        rc = choose_format(&f, a, e);
    if (rc == 0 && f->is_binary && !file && isatty(STDOUT_FILENO))
        rc = err_set(e, DS_EUSAGE,
                     "--to %s: standard output is a terminal, expected -o FILE or a pipe", f->name);
    if (rc == 0 && file)
        rc = cli_output_check(file, e);
    if (rc == 0)
        rc = cli_run_path(path, sizeof path, run, e);
    if (rc == 0)
        rc = runview_read(&v, path, e);
    if (rc < 0)
        return rc;
    int is_some = v->n_series > 0 ||
                  (f->write == export_jsonl && v->n_layer + v->n_matrices + v->n_evals > 0);
    if (!is_some)
        rc = err_set(e, DS_ENOTFOUND, "%s: no metrics to export", run);
    if (rc == 0)
        rc = f->write(out, v, e);
    if (rc == 0 && out->failed)
        rc = err_set(e, DS_EMEM, "export: out of memory");
    if (rc == 0 && v->others > 0)
        fprintf(stderr, "depthscope: %llu values of metrics beyond the first %zu are left out\n",
                (unsigned long long)v->others, v->n_series);
    if (rc == 0 && v->invalid + v->lost > 0)
        fprintf(stderr, "depthscope: %llu entr%s that could not be read left out\n",
                (unsigned long long)(v->invalid + v->lost),
                v->invalid + v->lost == 1 ? "y" : "ies");
    runview_free(v);
    if (rc == 0 && file && f->is_binary && !strstr(file, "tfevents"))
        fputs("depthscope: TensorBoard opens only files that have tfevents in their name\n",
              stderr);
    if (rc == 0)
        rc = file ? fs_write_text(file, out, e) : cli_write_text(out, e);
    return rc;
}

int export_command(int argc, char **argv)
{
    struct err e = {0};
    struct cli_args a;
    struct str out = {0};
    cli_help_after(usage_after);
    if (cli_parse(&a, export_options, argc, argv, &e) < 0)
        return command_fail(&e);
    int rc = export(&a, &out, &e);
    str_release(&out);
    cli_release(&a);
    return rc < 0 ? command_fail(&e) : 0;
}
