/* Accuracy on benchmark tasks with standard errors, one bar per model, from result files of
 * depthscope eval and of lm-evaluation-harness. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "figures/plot.h"

enum { TASKS_MAX = 64, FILES_MAX = 8, NAME_BYTES = 96 };

struct score {
    double value, error, n; /* NaN = not given */
};
struct task {
    char name[NAME_BYTES];   /* as in the files */
    char label[NAME_BYTES];  /* "arc_easy (acc_norm)" */
    char metric[NAME_BYTES]; /* "acc_norm,none" */
    struct score of[FILES_MAX];
};
struct tasks {
    struct task t[TASKS_MAX];
    int n;
    struct str skipped; /* tasks without an accuracy */
};

static int takes(const struct json *j)
{
    return json_kind_of(json_get(json_root(j), "results")) == JSON_KIND_OBJECT;
}

/* "acc" of "acc,none"; 1 when `key` is a value of that metric (and not its standard error). */
static int is_metric(const char *key, const char *metric)
{
    size_t n = strlen(metric);
    return strncmp(key, metric, n) == 0 && (key[n] == ',' || key[n] == '\0');
}

/* The metric that is usually reported: --metric, else the first of these in the order of the file
 * (gsm8k: exact_match, first filter). */
static const char *metric_of(const struct sheet *s, const struct json_node *scores)
{
    static const char *const usual[] = {"acc_norm", "acc", "exact_match"};
    const char *const *name = s->opt.metric ? &s->opt.metric : usual;
    size_t names = s->opt.metric ? 1 : DS_LEN(usual);
    for (size_t i = 0; i < names; i++) {
        const struct json_node *x;
        const char *key;
        for (void *at = NULL; (x = json_next(scores, &at, &key, NULL));) {
            double v = json_num(x, (double)NAN);
            if ((is_metric(key, name[i]) || strcmp(key, name[i]) == 0) && v >= 0 && v <= 1)
                return key;
        }
    }
    return NULL;
}

/* 1 when a task of the file with an accuracy of its own is made of this one: mmlu stands for its
 * subjects, a group without a value for nothing. */
static int is_part(const struct sheet *s, const struct json_node *root, const char *name)
{
    const struct json_node *all = json_get(root, "group_subtasks"), *list;
    const char *group;
    for (void *at = NULL; (list = json_next(all, &at, &group, NULL));) {
        if (!metric_of(s, json_get(json_get(root, "results"), group)))
            continue;
        for (size_t i = 0; i < json_len(list); i++) {
            const char *part = json_str(json_at(list, i), NULL);
            if (part && strcmp(part, name) == 0)
                return 1;
        }
    }
    return 0;
}

/* Each once, also when several files have it. */
static void skip_task(struct tasks *all, const char *name)
{
    char text[64];
    snprintf(text, sizeof text, "%.60s", name);
    size_t n = strlen(text);
    for (const char *at = str_text(&all->skipped); (at = strstr(at, text)) != NULL; at++)
        if ((at == str_text(&all->skipped) || at[-1] == ' ') && (!at[n] || at[n] == ','))
            return;
    str_addf(&all->skipped, "%s%s", all->skipped.len ? ", " : "", text);
}

/* "acc,none" -> "acc_stderr,none" */
static double error_of(const struct json_node *scores, const char *metric)
{
    char key[2 * NAME_BYTES];
    size_t n = strcspn(metric, ",");
    snprintf(key, sizeof key, "%.*s_stderr%s", (int)n, metric, metric + n);
    double v = json_num(json_get(scores, key), (double)NAN);
    return v >= 0 ? v : (double)NAN;
}

static double documents_of(const struct json_node *root, const char *task,
                           const struct json_node *scores)
{
    const struct json_node *n = json_get(json_get(root, "n-samples"), task);
    double v = json_num(json_get(n, "effective"), (double)NAN);
    return isfinite(v) ? v : json_num(json_get(scores, "sample_len"), (double)NAN);
}

static struct task *task_of(struct tasks *all, const char *name, const char *metric)
{
    for (int i = 0; i < all->n; i++)
        if (strcmp(all->t[i].name, name) == 0 && strcmp(all->t[i].metric, metric) == 0)
            return &all->t[i];
    if (all->n == TASKS_MAX)
        return NULL;
    struct task *t = &all->t[all->n++];
    str_copy(t->name, sizeof t->name, name);
    str_copy(t->metric, sizeof t->metric, metric);
    size_t n = strcspn(metric, ",");
    int is_plain = !metric[n] || strcmp(metric + n, ",none") == 0;
    char text[3 * NAME_BYTES];
    snprintf(text, sizeof text, "%.40s (%.*s)", name, (int)(is_plain ? n : strlen(metric)), metric);
    struct str clean = str_in(t->label, sizeof t->label);
    utf8_sanitise(&clean, text, strlen(text), 40, 0);
    for (int i = 0; i < FILES_MAX; i++)
        t->of[i] = (struct score){(double)NAN, (double)NAN, (double)NAN};
    return t;
}

static int take_file(struct sheet *s, struct tasks *all, int file, struct err *e)
{
    const struct json_node *root = json_root(s->run[file].json), *scores;
    const struct json_node *results = json_get(root, "results");
    const char *name;
    int found = 0;
    for (void *at = NULL; (scores = json_next(results, &at, &name, NULL));) {
        if (is_part(s, root, name))
            continue;
        const char *metric = metric_of(s, scores);
        if (!metric || strlen(name) >= NAME_BYTES || strlen(metric) >= NAME_BYTES) {
            skip_task(all, name);
            continue;
        }
        struct task *t = task_of(all, name, metric);
        if (!t)
            return sheet_fail(s, file, e, "too many tasks: expected at most %d", TASKS_MAX);
        struct score *v = &t->of[file];
        v->value = json_num(json_get(scores, metric), (double)NAN);
        v->error = error_of(scores, metric);
        v->n = documents_of(root, name, scores);
        data_hash(s, name, v, sizeof *v);
        data_hash(s, "metric", metric, strlen(metric));
        found++;
    }
    if (found == 0 && s->opt.metric)
        return sheet_fail(s, file, e, "no task has the metric \"%.40s\" with a value from 0 to 1",
                          s->opt.metric);
    if (found == 0)
        return sheet_fail(s, file, e, "no task has an accuracy (acc_norm, acc or exact_match)");
    return 0;
}

/* The method of our own files, the model's name of others. */
static void model_of(const struct sheet *s, int file, char *out, size_t size)
{
    const struct json_node *root = json_root(s->run[file].json), *config = json_get(root, "config");
    const char *method = json_str(json_get(config, "method"), NULL);
    const char *model = json_str(json_get(root, "model_name"), NULL);
    const char *slash = model ? strrchr(model, '/') : NULL;
    double capacity = json_num(json_get(config, "capacity"), (double)NAN);
    if (method && isfinite(capacity))
        snprintf(out, size, "%.24s %.2f", method, capacity);
    else
        snprintf(out, size, "%.40s",
                 method              ? method
                 : slash && slash[1] ? slash + 1
                 : model             ? model
                                     : "");
}

/* The label of a file: its model, followed by the file's name where that is not unique. */
static void name_of(const struct sheet *s, int file, char *out, size_t size)
{
    char model[64], other[64], name[200];
    int is_unique = 1;
    model_of(s, file, model, sizeof model);
    for (int i = 0; i < s->runs; i++) {
        model_of(s, i, other, sizeof other);
        is_unique &= i == file || strcmp(model, other) != 0;
    }
    sheet_run_name(s, file, name, sizeof name);
    if (!model[0])
        str_copy(out, size, name);
    else
        snprintf(out, size, is_unique ? "%s%.0s" : "%s (%s)", model, name);
}

static double least(double a, double b)
{
    return a < b || isnan(b) ? a : b;
}

static void draw_bars(struct sheet *s, struct panel *p, const struct tasks *all)
{
    double step = p->h / all->n, h = step * 0.8 / s->runs;
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < s->runs; k++) {
            const struct score *v = &all->t[i].of[k];
            double y = p->y + step * (i + 0.1) + h * (k + 0.5);
            int rgb = sheet_series(s, k);
            if (isnan(v->value)) {
                sheet_text(s, p->x + 3, y, TEXT_LEFT, TEXT_MIDDLE, 1, sheet_colour(s, ROLE_DIM),
                           "not evaluated");
                continue;
            }
            double x = axis_at(&p->ax, v->value);
            pen_box(s->pen, p->x, y - h * 0.45, x - p->x, h * 0.9, sheet_tint(s, rgb, 0.6), 1);
            if (isfinite(v->error) && v->error > 0)
                panel_whisker(s, p, axis_at(&p->ax, fmax(0, v->value - v->error)), y,
                              axis_at(&p->ax, v->value + v->error), y, rgb);
        }
}

/* The legend is above the bars: it may not cover them. */
static double draw_key(struct sheet *s)
{
    struct strip_key key[FILES_MAX];
    char name[FILES_MAX][200];
    for (int i = 0; i < s->runs; i++) {
        name_of(s, i, name[i], sizeof name[i]);
        key[i] = (struct strip_key){sheet_tint(s, sheet_series(s, i), 0.6), name[i]};
    }
    return strips_key(s, key, s->runs);
}

static int draw_tasks(struct sheet *s, const struct tasks *all, struct err *e)
{
    const char *label[TASKS_MAX];
    struct panel *p = mem_alloc(1, sizeof *p);
    double most = 0;
    if (!p)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; i < all->n; i++) {
        label[i] = all->t[i].label;
        for (int k = 0; k < s->runs; k++) {
            const struct score *v = &all->t[i].of[k];
            most = fmax(most, v->value + (isfinite(v->error) ? v->error : 0));
        }
    }
    p->ax.lo = 0;
    p->ax.hi = most > 0 ? most * 1.05 : 1;
    p->x_label = "Accuracy";
    struct bar_rows rows = {label, all->n, s->venue->small * (s->runs > 1 ? 1.2 * s->runs : 1.7)};
    s->height = bars_layout(s, &rows, p, 1, draw_key(s));
    draw_bars(s, p, all);
    mem_free(p);
    return 0;
}

static void note(struct sheet *s, const struct tasks *all)
{
    double lo = (double)NAN, hi = (double)NAN;
    int errors = 0;
    char a[24], b[24];
    for (int i = 0; i < all->n; i++)
        for (int k = 0; k < s->runs; k++) {
            const struct score *v = &all->t[i].of[k];
            lo = least(lo, v->n);
            hi = isnan(hi) || v->n > hi ? v->n : hi;
            errors += isfinite(v->error);
        }
    sheet_note(s, errors ? "Bars: accuracy; whiskers: one standard error to each side."
                         : "Bars: accuracy; the files give no standard errors.");
    if (isfinite(hi)) {
        number_format(a, sizeof a, lo, 0);
        number_format(b, sizeof b, hi, 0);
        if (lo < hi)
            sheet_note(s, "n = %s to %s documents per task.", a, b);
        else
            sheet_note(s, "n = %s documents per task.", b);
    }
    if (all->skipped.len) {
        char room[2048];
        struct str clean = str_in(room, sizeof room);
        utf8_sanitise(&clean, str_text(&all->skipped), all->skipped.len, 120, 0);
        sheet_note(s, "Without an accuracy, not shown: %s.", str_text(&clean));
    }
    s->caption.failed |= all->skipped.failed;
}

static int draw(struct sheet *s, struct err *e)
{
    struct tasks *all = mem_alloc(1, sizeof *all);
    int rc = all ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    if (rc == 0 && s->runs > FILES_MAX)
        rc = err_set(e, DS_EUSAGE, "figure %s: too many files: expected at most %d", s->ops->name,
                     FILES_MAX);
    for (int i = 0; rc == 0 && i < s->runs; i++)
        rc = take_file(s, all, i, e);
    if (rc == 0)
        rc = draw_tasks(s, all, e);
    if (rc == 0)
        note(s, all);
    if (all)
        str_release(&all->skipped);
    mem_free(all);
    return rc;
}

const struct figure_ops figure_task_bars = {
    .name = "task_bars",
    .title = "Accuracy on benchmark tasks with standard errors",
    .needs = "JSON files of depthscope eval task=NAME or of lm-evaluation-harness",
    .options = FIGURE_METRIC,
    .draw = draw,
    .takes = takes,
};
