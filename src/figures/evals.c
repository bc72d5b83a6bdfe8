/* Results of depthscope eval --json for figures: what each one compares, and which of them are the
 * same settings on models that differ in their seed. */
#include "figures/evals.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/utf8.h"

enum { ITEMS_MAX = 4096, LINE_CHARS = 60 };

/* ---- reading ---- */

static int is_eval(const struct json_node *x)
{
    const char *task = json_str(json_get(x, "task"), NULL);
    return task && json_str(json_get(x, "method"), NULL) &&
           (strcmp(task, "ppl") == 0 ||
            (strcmp(task, "exits") == 0 && json_kind_of(json_get(x, "rows")) == JSON_KIND_ARRAY));
}

int evals_takes(const struct json *j)
{
    const struct json_node *root = json_root(j);
    int ok = json_len(root) > 0;
    if (json_kind_of(root) != JSON_KIND_ARRAY)
        return is_eval(root);
    for (size_t i = 0; ok && i < json_len(root); i++)
        ok = is_eval(json_at(root, i));
    return ok;
}

static const struct json_node *field(const struct eval_item *x, const char *key)
{
    const struct json_node *v = json_get(x->own, key);
    return v ? v : json_get(x->common, key);
}

static const char *text_of(const struct eval_item *x, const char *key)
{
    const char *v = json_str(field(x, key), NULL);
    return v ? v : "";
}

double eval_number(const struct eval_item *x, const char *key)
{
    double v = json_num(field(x, key), (double)NAN);
    return isnan(v) && x->depth > 0 && strcmp(key, "depth_mean") == 0 ? x->depth : v;
}

const struct json_node *eval_vector(const struct eval_item *x, const char *key)
{
    const struct json_node *v = field(x, key);
    return json_kind_of(v) == JSON_KIND_ARRAY && json_len(v) > 0 ? v : NULL;
}

/* An option of the method as it was in force. */
static const char *option_of(const struct eval_item *x, const char *key)
{
    const char *v = json_str(json_get(field(x, "options"), key), NULL);
    return v ? v : json_str(json_get(field(x, "method_options"), key), NULL);
}

static int is_dense(const struct eval_item *x)
{
    return strcmp(text_of(x, "routing"), "dense") == 0 ||
           strcmp(text_of(x, "method"), "dense") == 0;
}

static int add_item(struct sheet *s, struct eval_list *l, struct eval_item x, struct err *e)
{
    if (l->n == ITEMS_MAX)
        return err_set(e, DS_EUSAGE, "figure %s: too many evaluations: expected at most %d",
                       s->ops->name, ITEMS_MAX);
    struct eval_item *v = mem_realloc(l->v, (size_t)l->n + 1, sizeof *v);
    if (!v)
        return err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    l->v = v;
    int64_t layers = json_int(field(&x, "layers"), 0), cut = json_int(field(&x, "exit"), 0),
            loop = json_int(field(&x, "loop"), 1);
    if (layers < 1 || layers > 1 << 20 || cut < 0 || cut > layers)
        return sheet_fail(s, x.run, e, "evaluation without a valid 'layers' and 'exit'");
    x.layers = (int)layers;
    x.is_cut = cut > 0;
    x.is_loop = loop > 1;
    x.is_iterated = loop > 1 && loop == layers;
    x.depth = is_dense(&x) ? (int)(cut ? cut : layers) : 0;
    x.model = text_of(&x, "model");
    l->v[l->n++] = x;
    return 0;
}

static int take_object(struct sheet *s, struct eval_list *l, int run, const struct json_node *x,
                       struct err *e)
{
    const struct json_node *rows = json_get(x, "rows");
    int rc = 0;
    if (json_kind_of(rows) != JSON_KIND_ARRAY)
        return add_item(s, l, (struct eval_item){.own = x, .common = x, .run = run}, e);
    for (size_t i = 0; rc == 0 && i < json_len(rows); i++)
        rc =
            add_item(s, l, (struct eval_item){.own = json_at(rows, i), .common = x, .run = run}, e);
    return rc;
}

/* ---- names ---- */

/* 1 when evaluations that leave by predicted regret differ in this option. */
static int differs(const struct eval_list *l, const char *key)
{
    const char *first = NULL;
    for (int i = 0; i < l->n; i++) {
        const char *rule = option_of(&l->v[i], "halt.rule"), *v = option_of(&l->v[i], key);
        if (!rule || !v || strcmp(rule, "regret") != 0 || l->v[i].depth > 0)
            continue;
        if (first && strcmp(first, v) != 0)
            return 1;
        first = v;
    }
    return 0;
}

/* 1 when evaluations of this kind are of models of several depths. */
static int has_several_depths(const struct eval_list *l, const struct eval_item *x)
{
    for (int i = 0; i < l->n; i++)
        if (l->v[i].kind == x->kind && l->v[i].layers != x->layers)
            return 1;
    return 0;
}

static int ends_in(const char *key, const char *last)
{
    const char *dot = strrchr(key, '.');
    return dot && strcmp(dot + 1, last) == 0;
}

/* Moves along a line; other settings are lines of their own. */
static int is_budget(const char *key)
{
    return ends_in(key, "capacity") || ends_in(key, "target_ratio");
}

static void name_routed(const struct eval_list *l, const struct eval_item *x, struct str *out)
{
    const char *rule = option_of(x, "halt.rule"), *key;
    const char *label = option_of(x, "halt.label"), *features = option_of(x, "halt.features");
    const struct json_node *v;
    if (!rule)
        str_add(out, text_of(x, "method"));
    else
        str_add(out, strcmp(rule, "kl") == 0 ? "KL" : rule);
    if (rule && strcmp(rule, "regret") == 0) {
        if (label && strcmp(label, "regret") != 0)
            str_addf(out, ", label %s", label);
        if (features && differs(l, "halt.features"))
            str_addf(out, " of %s", features);
    }
    for (void *at = NULL; (v = json_next(field(x, "options"), &at, &key, NULL));)
        if (strcmp(key, "halt.rule") != 0 && strcmp(key, "halt.label") != 0 &&
            strcmp(key, "halt.features") != 0 && strncmp(key, "hops.", 5) != 0 && !is_budget(key) &&
            json_str(v, NULL))
            str_addf(out, ", %s=%s", strchr(key, '.') ? strchr(key, '.') + 1 : key,
                     json_str(v, NULL));
    if (x->is_cut)
        str_add(out, ", cut");
    if (strcmp(text_of(x, "routing"), "topk") == 0)
        str_add(out, ", top-k (not causal)");
}

static void name_line(const struct eval_list *l, struct eval_item *x)
{
    char room[1024];
    struct str text = str_in(room, sizeof room), clean = str_in(x->line_name, sizeof x->line_name);
    if (x->kind == EVAL_ORACLE)
        str_add(&text, "oracle (not causal)");
    else if (x->kind == EVAL_CUT)
        str_add(&text, "fixed depth");
    else if (x->kind == EVAL_TRAINED)
        str_add(&text, "trained at that depth");
    else
        name_routed(l, x, &text);
    if (x->kind != EVAL_TRAINED && has_several_depths(l, x))
        str_addf(&text, ", of %d", x->layers);
    utf8_sanitise(&clean, str_text(&text), text.len, LINE_CHARS, 0);
    str_copy(x->line_key, sizeof x->line_key, str_text(&text));
}

/* ---- groups: equal settings, another model ---- */

static int same_options(const struct eval_item *a, const struct eval_item *b, const char *object)
{
    const struct json_node *x = field(a, object), *y = field(b, object), *v;
    const char *key;
    if (json_len(x) != json_len(y))
        return 0;
    for (void *at = NULL; (v = json_next(x, &at, &key, NULL));) {
        const char *p = json_str(v, NULL), *q = json_str(json_get(y, key), NULL);
        if (!p || !q || strcmp(p, q) != 0)
            return 0;
    }
    return 1;
}

/* Where every layer runs, options of the method mean nothing. */
static int same_settings(const struct eval_item *a, const struct eval_item *b)
{
    double p = eval_number(a, "capacity_target"), q = eval_number(b, "capacity_target");
    if (a->line != b->line || a->depth != b->depth || a->is_cut != b->is_cut ||
        a->layers != b->layers || a->is_loop != b->is_loop)
        return 0;
    if (a->depth > 0)
        return 1;
    return json_int(field(a, "exit"), 0) == json_int(field(b, "exit"), 0) &&
           (p == q || (isnan(p) && isnan(q))) && same_options(a, b, "options") &&
           same_options(a, b, "method_options") &&
           strcmp(text_of(a, "method"), text_of(b, "method")) == 0;
}

static int place(struct sheet *s, struct eval_list *l, int i, struct err *e)
{
    struct eval_item *x = &l->v[i];
    char name[200];
    x->line = l->lines;
    for (int k = 0; k < i; k++)
        if (l->v[k].kind == x->kind && strcmp(l->v[k].line_key, x->line_key) == 0)
            x->line = l->v[k].line;
    l->lines += x->line == l->lines;
    x->group = l->groups;
    for (int k = 0; k < i; k++) {
        if (!same_settings(&l->v[k], x))
            continue;
        x->group = l->v[k].group;
        sheet_run_name(s, l->v[k].run, name, sizeof name);
        if (x->model[0] && strcmp(l->v[k].model, x->model) == 0)
            return sheet_fail(s, x->run, e,
                              "duplicate: the same model and settings as in %s, expected models of "
                              "other seeds",
                              name);
    }
    l->groups += x->group == l->groups;
    return 0;
}

int evals_take(struct eval_list *out, struct sheet *s, struct err *e)
{
    struct eval_list l = {0};
    int rc = 0;
    for (int i = 0; rc == 0 && i < s->runs; i++) {
        const struct json_node *root = json_root(s->run[i].json);
        if (json_kind_of(root) != JSON_KIND_ARRAY)
            rc = take_object(s, &l, i, root, e);
        for (size_t k = 0; rc == 0 && json_kind_of(root) == JSON_KIND_ARRAY && k < json_len(root);
             k++)
            rc = take_object(s, &l, i, json_at(root, k), e);
    }
    for (int i = 0; rc == 0 && i < l.n; i++) {
        struct eval_item *x = &l.v[i];
        x->kind = x->depth > 0 ? x->is_cut ? EVAL_CUT : EVAL_TRAINED
                  : strcmp(text_of(x, "routing"), "oracle") == 0 ? EVAL_ORACLE
                                                                 : EVAL_ROUTED;
    }
    for (int i = 0; rc == 0 && i < l.n; i++)
        name_line(&l, &l.v[i]);
    for (int i = 0; rc == 0 && i < l.n; i++)
        rc = place(s, &l, i, e);
    if (rc < 0)
        evals_release(&l);
    else
        *out = l;
    return rc;
}

void evals_release(struct eval_list *l)
{
    mem_free(l->v);
    *l = (struct eval_list){0};
}

const char *evals_unit(const struct eval_list *l)
{
    int iterated = 0, others = 0;
    for (int i = 0; i < l->n; i++) {
        iterated += l->v[i].is_iterated;
        others += !l->v[i].is_iterated && l->v[i].layers > 1; /* a loop of 1 is a layer */
    }
    return !iterated ? "layers" : others ? "layers or iterations" : "iterations";
}

const struct eval_item *evals_first(const struct eval_list *l, int group)
{
    int i = 0;
    while (l->v[i].group != group)
        i++;
    return &l->v[i];
}

int eval_is_last_exit(const struct eval_list *l, const struct eval_item *x)
{
    for (int i = 0; x->kind == EVAL_TRAINED && i < l->n; i++)
        if (l->v[i].kind == EVAL_CUT && strcmp(l->v[i].model, x->model) == 0)
            return 1;
    return 0;
}

int evals_seeds(const struct eval_list *l, int group)
{
    int n = 0;
    for (int i = 0; i < l->n; i++)
        n += l->v[i].group == group;
    return n;
}

int evals_mean(struct sheet *s, const struct eval_list *l, int group, eval_value *value,
               const void *ctx, struct interval *out, struct err *e)
{
    double *v = mem_alloc((size_t)l->n + 1, sizeof *v);
    size_t n = 0;
    int rc = v ? 0 : err_set(e, DS_EMEM, "figure %s: out of memory", s->ops->name);
    for (int i = 0; rc == 0 && i < l->n; i++)
        if (l->v[i].group == group)
            rc = value(s, l, &l->v[i], ctx, &v[n++], e);
    if (rc == 0) {
        data_hash(s, evals_first(l, group)->line_name, v, n * sizeof *v);
        *out = stat_interval(v, n);
    }
    mem_free(v);
    return rc;
}

int evals_colour(const struct sheet *s, const struct eval_list *l, int line)
{
    const struct eval_item *x = NULL;
    int series = 0;
    for (int k = 0; k <= line; k++) {
        int i = 0;
        while (l->v[i].line != k)
            i++;
        x = &l->v[i];
        series += k < line && x->kind == EVAL_ROUTED;
    }
    return x->kind == EVAL_CUT || x->kind == EVAL_ORACLE ? sheet_colour(s, ROLE_REFERENCE)
           : x->kind == EVAL_TRAINED                     ? sheet_colour(s, ROLE_TEXT)
                                                         : sheet_series(s, series);
}

void evals_note(struct sheet *s, const struct eval_list *l, const unsigned char *shown)
{
    int lo = 0, hi = 0;
    for (int g = 0; g < l->groups; g++) {
        int n = evals_seeds(l, g);
        if (!shown[g])
            continue;
        lo = lo == 0 || n < lo ? n : lo;
        hi = n > hi ? n : hi;
    }
    seeds_note(s, lo, hi);
}
