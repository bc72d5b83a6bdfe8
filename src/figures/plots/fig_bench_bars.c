/* Throughput and latency of prefill and decoding by method, from the JSON of depthscope bench and
 * of eval --benchmark. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "figures/glyphs.h"
#include "figures/plot.h"

enum { ROWS_MAX = 48, LABEL_BYTES = 96, COLOURS_MAX = 16 };
enum phase { PREFILL, DECODE, PHASES };
static const char *const phase_name[PHASES] = {"prefill", "decode"};
static const char *const phase_title[PHASES] = {"Prefill", "Decoding"};

/* Tokens per second over the rounds, of the dense pass measured alongside, and the time as a
 * fraction of it; NaN = not measured. */
struct measure {
    double median, least, most, dense, time_ratio;
};
struct row {
    char label[LABEL_BYTES];
    char name[LABEL_BYTES];   /* as in its file */
    char method[LABEL_BYTES]; /* with its file: rows of one method share a colour */
    int colour;               /* -1: a dense model */
    int texts;                /* decoded together; 1: one alone */
    struct measure m[PHASES];
};
struct rows {
    struct row r[ROWS_MAX];
    int n;
    int benches;     /* files of depthscope bench */
    int batches;     /* rows of several texts */
    int is_relative; /* some file has ratios only: everything is drawn as a multiple of dense */
};

static int is_capacity(const struct json_node *root)
{
    const char *task = json_str(json_get(root, "task"), NULL);
    return task && strcmp(task, "capacity") == 0 &&
           json_kind_of(json_get(root, "rows")) == JSON_KIND_ARRAY;
}

static int takes(const struct json *j)
{
    const struct json_node *root = json_root(j);
    return json_kind_of(json_get(root, "results")) == JSON_KIND_ARRAY || is_capacity(root);
}

/* ---- rows ---- */

/* N of "METHOD N texts", else 1. */
static int texts_of(const char *name)
{
    for (const char *at = strchr(name, ' '); at; at = strchr(at + 1, ' ')) {
        char *end;
        long n = strtol(at, &end, 10);
        if (n > 0 && n < 1 << 20 && strcmp(end, " texts") == 0)
            return (int)n;
    }
    return 1;
}

/* Adds a row; "FILE: " is put in front of its label when there are several files. */
static struct row *add_row(const struct sheet *s, struct rows *t, int run, const char *name,
                           struct err *e)
{
    enum { LABEL_CELLS = 32, FILE_CELLS = 20 };
    char file[200], room[1024];
    struct str label = str_in(room, sizeof room);
    if (t->n == ROWS_MAX) {
        err_set(e, DS_EUSAGE, "figure %s: too many rows: expected at most %d", s->ops->name,
                ROWS_MAX);
        return NULL;
    }
    sheet_run_name(s, run, file, sizeof file);
    int left = LABEL_CELLS - 2 - utf8_cells(name, strlen(name)); /* the file is cut, not the row */
    if (s->runs > 1 && left > 0) {
        utf8_sanitise(&label, file, strlen(file), left < FILE_CELLS ? left : FILE_CELLS, 0);
        str_add(&label, ": ");
    }
    size_t method = label.len + strcspn(name, " ");
    str_add(&label, name);
    struct row *r = &t->r[t->n];
    *r = (struct row){.colour = -1};
    struct str clean = str_in(r->label, sizeof r->label);
    utf8_sanitise(&clean, str_text(&label), label.len, LABEL_CELLS, 0);
    str_copy(r->name, sizeof r->name, name);
    for (int i = 0; i < PHASES; i++)
        r->m[i] = (struct measure){(double)NAN, (double)NAN, (double)NAN, (double)NAN, (double)NAN};
    snprintf(r->method, sizeof r->method, "%.*s", (int)method, str_text(&label));
    r->texts = texts_of(name);
    t->batches += r->texts > 1;
    int colours = 0, is_dense = strncmp(name, "dense", 5) == 0 && (!name[5] || r->texts > 1);
    for (int i = 0; i < t->n && r->colour < 0; i++) {
        colours = t->r[i].colour >= colours ? t->r[i].colour + 1 : colours;
        if (strcmp(t->r[i].method, r->method) == 0)
            r->colour = t->r[i].colour;
    }
    if (!is_dense && r->colour < 0)
        r->colour = colours;
    t->n++;
    return r;
}

/* The row of result NAME in the file whose rows begin at `from`. */
static struct row *find_row(struct rows *t, int from, const char *name)
{
    for (int i = from; i < t->n; i++)
        if (strncmp(t->r[i].name, name, sizeof t->r[i].name - 1) == 0)
            return &t->r[i];
    return NULL;
}

/* ---- depthscope bench ---- */

/* Phase of a result, and its name without that word; -1: neither prefill nor decoding. */
static int phase_of(const struct json_node *x, const char **name)
{
    const char *group = json_str(json_get(x, "group"), NULL);
    const char *full = json_str(json_get(x, "name"), NULL);
    for (int i = 0; group && full && i < PHASES; i++) {
        size_t n = strlen(phase_name[i]);
        if (strcmp(group, phase_name[i]) == 0 && strncmp(full, group, n) == 0 && full[n] == ' ') {
            *name = full + n + 1;
            return i;
        }
    }
    return -1;
}

static int is_reference(const char *name)
{
    size_t n = strlen(name);
    return n > 6 && strcmp(name + n - 6, " dense") == 0;
}

static int take_result(struct sheet *s, struct rows *t, int run, int from,
                       const struct json_node *x, struct err *e)
{
    const char *name;
    int phase = phase_of(x, &name);
    if (phase < 0 || is_reference(name))
        return 0;
    double v[4] = {json_num(json_get(x, "median"), (double)NAN),
                   json_num(json_get(x, "min"), (double)NAN),
                   json_num(json_get(x, "max"), (double)NAN),
                   json_num(json_get(x, "time_ratio"), (double)NAN)};
    if (!(v[0] > 0 && v[1] > 0 && v[2] >= v[1]))
        return sheet_fail(s, run, e, "result \"%s %s\": median, min or max is missing",
                          phase_name[phase], name);
    struct row *r = find_row(t, from, name);
    if (!r && !(r = add_row(s, t, run, name, e)))
        return DS_EUSAGE;
    r->m[phase] =
        (struct measure){v[0], v[1], v[2], (double)NAN, strcmp(name, "dense") == 0 ? 1 : v[3]};
    data_hash(s, name, v, sizeof v);
    return 0;
}

/* The dense pass that was measured in the same rounds as the method's rows. */
static void take_reference(struct sheet *s, struct rows *t, int from, const struct json_node *x)
{
    const char *name;
    int phase = phase_of(x, &name);
    if (phase < 0 || !is_reference(name))
        return;
    double dense = json_num(json_get(x, "median"), (double)NAN);
    size_t n = strlen(name) - 6;
    for (int i = from; i < t->n; i++) {
        const char *method = t->r[i].method;
        size_t k = strlen(method);
        if (k >= n && strncmp(method + k - n, name, n) == 0 && (k == n || method[k - n - 1] == ' '))
            t->r[i].m[phase].dense = dense;
    }
    data_hash(s, name, &dense, sizeof dense);
}

static int take_bench(struct sheet *s, struct rows *t, int run, const struct json_node *results,
                      struct err *e)
{
    int from = t->n, rc = 0;
    t->benches++;
    for (size_t i = 0; rc == 0 && i < json_len(results); i++)
        rc = take_result(s, t, run, from, json_at(results, i), e);
    for (size_t i = 0; rc == 0 && i < json_len(results); i++)
        take_reference(s, t, from, json_at(results, i));
    if (rc == 0 && t->n == from)
        rc = sheet_fail(s, run, e,
                        "no results of the groups prefill and decode (depthscope bench --json)");
    return rc;
}

/* ---- depthscope eval --benchmark ---- */

static int take_capacity(struct sheet *s, struct rows *t, int run, const struct json_node *root,
                         struct err *e)
{
    const struct json_node *rows = json_get(root, "rows");
    const char *method = json_str(json_get(root, "method"), NULL);
    int from = t->n;
    for (size_t i = 0; i < json_len(rows); i++) {
        const struct json_node *x = json_at(rows, i);
        double capacity = json_num(json_get(x, "capacity_target"), (double)NAN);
        if (isnan(capacity))
            capacity = json_num(json_get(x, "capacity_asked"), capacity); /* of earlier versions */
        double ratio[PHASES] = {json_num(json_get(x, "time_ratio"), (double)NAN),
                                json_num(json_get(x, "decode_time_ratio"), (double)NAN)};
        char name[64];
        if (!(capacity >= 0) || !(ratio[0] > 0 || ratio[1] > 0))
            continue; /* eval time_rounds=0 */
        snprintf(name, sizeof name, "%.40s %.2f", method ? method : "?", capacity);
        struct row *r = add_row(s, t, run, name, e);
        if (!r)
            return DS_EUSAGE;
        for (int k = 0; k < PHASES; k++)
            r->m[k].time_ratio = ratio[k] > 0 ? ratio[k] : (double)NAN;
        data_hash(s, name, ratio, sizeof ratio);
    }
    t->is_relative = 1;
    return t->n > from ? 0
                       : sheet_fail(s, run, e,
                                    "no capacity has a time_ratio (depthscope eval --benchmark)");
}

/* ---- drawing ---- */

/* Latency in ms per token of a throughput: a step of several texts yields one token of each. */
static double latency_of(const struct row *r, double tokens_s)
{
    return 1e3 * r->texts / tokens_s;
}

/* Value of a row: throughput, or latency in ms per token; both as multiples of dense if relative.
 * 0: not measured. */
static int value_of(const struct rows *t, const struct row *r, int phase, int is_latency,
                    double out[3])
{
    const struct measure *m = &r->m[phase];
    if (t->is_relative) {
        out[0] = is_latency ? m->time_ratio : 1 / m->time_ratio;
        out[1] = out[2] = (double)NAN;
        return isfinite(out[0]);
    }
    out[0] = is_latency ? latency_of(r, m->median) : m->median;
    out[1] = is_latency ? latency_of(r, m->most) : m->least;
    out[2] = is_latency ? latency_of(r, m->least) : m->most;
    return isfinite(out[0]);
}

static int has_phase(const struct rows *t, int phase)
{
    double v[3];
    for (int i = 0; i < t->n; i++)
        if (value_of(t, &t->r[i], phase, 0, v))
            return 1;
    return 0;
}

static void include(struct panel *p, const struct rows *t, int phase, int is_latency)
{
    axis_reset(&p->ax);
    axis_include(&p->ax, 0);
    if (t->is_relative)
        axis_include(&p->ax, 1);
    for (int i = 0; i < t->n; i++) {
        const struct measure *m = &t->r[i].m[phase];
        double v[3];
        if (!value_of(t, &t->r[i], phase, is_latency, v))
            continue;
        axis_include(&p->ax, v[0]);
        axis_include(&p->ax, v[2]);
        if (!t->is_relative)
            axis_include(&p->ax, is_latency ? latency_of(&t->r[i], m->dense) : m->dense);
    }
    p->ax.hi *= 1.04;
}

static void draw_bars(struct sheet *s, struct panel *p, const struct rows *t, int phase,
                      int is_latency)
{
    double step = p->h / t->n, h = step * 0.62;
    for (int i = 0; i < t->n; i++) {
        const struct row *r = &t->r[i];
        const struct measure *m = &r->m[phase];
        double v[3], y = p->y + step * (i + 0.5);
        int rgb = r->colour < 0 ? sheet_colour(s, ROLE_REFERENCE) : sheet_series(s, r->colour);
        if (!value_of(t, r, phase, is_latency, v)) {
            sheet_text(s, p->x + 3, y, TEXT_LEFT, TEXT_MIDDLE, 1, sheet_colour(s, ROLE_DIM),
                       "not measured");
            continue;
        }
        pen_box(s->pen, p->x, y - h / 2, axis_at(&p->ax, v[0]) - p->x, h, sheet_tint(s, rgb, 0.6),
                1);
        if (isfinite(v[1]))
            panel_whisker(s, p, axis_at(&p->ax, v[1]), y, axis_at(&p->ax, v[2]), y, rgb);
        if (!t->is_relative && isfinite(m->dense)) {
            double x = axis_at(&p->ax, is_latency ? latency_of(r, m->dense) : m->dense);
            pen_colour(s->pen, sheet_colour(s, ROLE_TEXT), 1);
            pen_width(s->pen, s->venue->line);
            pen_segment(s->pen, x, y - step * 0.45, x, y + step * 0.45);
        }
    }
    if (t->is_relative)
        panel_rule(s, p, 1, 1, sheet_colour(s, ROLE_REFERENCE), 2);
}

static int draw_rows(struct sheet *s, const struct rows *t, struct err *e)
{
    static const char *const label[2][2] = {
        {"Tokens per second", "Latency (ms per token)"},
        {"Throughput (dense = 1)", "Latency (dense = 1)"},
    };
    const char *name[ROWS_MAX];
    struct panel *p = mem_alloc(PHASES, sizeof *p);
    int phase[PHASES], columns = 0;
    if (!p)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; i < t->n; i++)
        name[i] = t->r[i].label;
    for (int i = 0; i < PHASES; i++)
        if (has_phase(t, i))
            phase[columns++] = i;
    struct bar_rows rows = {.label = name, .n = t->n, .row = s->venue->small * 1.5};
    double y = 0;
    for (int is_latency = 0; is_latency < 2; is_latency++) {
        memset(p, 0, PHASES * sizeof *p);
        for (int i = 0; i < columns; i++) {
            include(&p[i], t, phase[i], is_latency);
            str_copy(p[i].title, sizeof p[i].title, phase_title[phase[i]]);
            p[i].x_label = label[t->is_relative][is_latency];
        }
        y = bars_layout(s, &rows, p, columns, y);
        for (int i = 0; i < columns; i++)
            draw_bars(s, &p[i], t, phase[i], is_latency);
        y += is_latency ? 0 : s->venue->base;
    }
    s->height = y;
    mem_free(p);
    return 0;
}

static void note(struct sheet *s, const struct rows *t)
{
    if (s->runs == 1) {
        const struct json_node *root = json_root(s->run[0].json);
        const char *model = json_str(json_get(root, "model"), NULL);
        const char *cpu = json_str(json_get(root, "cpu"), NULL);
        char room[2048];
        struct str clean = str_in(room, sizeof room);
        utf8_sanitise(&clean, model ? model : "", model ? strlen(model) : 0, 120, 0);
        if (clean.len)
            sheet_note(s, "Model: %s.", str_text(&clean));
        clean = str_in(room, sizeof room);
        utf8_sanitise(&clean, cpu ? cpu : "", cpu ? strlen(cpu) : 0, 120, 0);
        long long threads = json_int(json_get(root, "threads"), 0);
        if (clean.len)
            sheet_note(s, "%s, %lld thread%s.", str_text(&clean), threads, threads == 1 ? "" : "s");
    }
    if (t->is_relative)
        sheet_note(s,
                   "Bars: median, relative to the dense model (dotted). The number after a "
                   "method is the requested capacity%s.",
                   t->benches ? ", in a bench the share of routed cells that it executes" : "");
    else
        sheet_note(s, "Bars: median; whiskers: minimum and maximum over the rounds; long mark: "
                      "the dense pass measured in the same rounds. The number after a method is "
                      "the share of routed cells that it executes.");
    if (t->batches && !t->is_relative)
        sheet_note(s, "N texts: decoded together; throughput of all, latency of each.");
}

static int draw(struct sheet *s, struct err *e)
{
    struct rows *t = mem_alloc(1, sizeof *t);
    int rc = t ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < s->runs; i++) {
        const struct json_node *root = json_root(s->run[i].json);
        rc = is_capacity(root) ? take_capacity(s, t, i, root, e)
                               : take_bench(s, t, i, json_get(root, "results"), e);
    }
    if (rc == 0)
        rc = draw_rows(s, t, e);
    if (rc == 0)
        note(s, t);
    mem_free(t);
    return rc;
}

const struct figure_ops figure_bench_bars = {
    .name = "bench_bars",
    .title = "Throughput and latency of prefill and decoding by method",
    .needs = "JSON files of depthscope bench --json or eval --benchmark --json",
    .draw = draw,
    .takes = takes,
};
