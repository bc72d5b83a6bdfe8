/* The metric table is the one home: head, records, JSON, help page and figure labels follow from each
 * row. */
#include "t.h"

#include "base/json.h"
#include "base/mem.h"
#include "figures/figure.h"
#include "io/metric.h"
#include "io/runview.h"
#include "routing/route.h"

enum { LAYERS = 3 };

/* Fills the report's fields, each with its own value: 1 + its row. */
static void fill(struct step_report *s)
{
    struct err e = {0};
    *s = (struct step_report){.step = 7, .has_val = 1, .has_kd = 1, .has_exit = 1};
    t_ok(step_report_init(s, LAYERS, &e), &e);
    for (int i = 0; run_metrics[i].name; i++) {
        const struct run_metric *m = &run_metrics[i];
        char *at = (char *)s + m->offset;
        int64_t whole = i + 1;
        double number = i + 1.25;
        double *layers;
        if (m->flags & METRIC_PER_LAYER) {
            memcpy(&layers, at, sizeof layers);
            for (int l = 0; l < LAYERS; l++)
                layers[l] = i + 1 + 0.25 * l;
        } else if (m->flags & METRIC_INTEGER) {
            memcpy(at, &whole, sizeof whole);
        } else {
            memcpy(at, &number, sizeof number);
        }
    }
}

static double want(int i)
{
    return run_metrics[i].flags & METRIC_INTEGER ? i + 1 : i + 1.25;
}

static void take(struct runview *v, struct record *r)
{
    struct str s = {0};
    struct value body;
    struct err e = {0};
    t_ok(record_end(r, 1, &s, &e), &e);
    t_true(record_parse(s.p, s.len, NULL, &body, &e) > 0);
    runview_take(v, body);
    str_release(&s);
}

/* A view of a run that logged the report at two steps. */
static struct runview *view_of(const struct step_report *s)
{
    struct runview *v = runview_new();
    struct record *r = record_new();
    record_begin(r, "head", 0, 1000);
    record_str(r, "run", "one");
    record_int(r, "layers", LAYERS);
    record_array(r, "metrics");
    run_metrics_record(r);
    record_close(r);
    take(v, r);
    for (int step = 7; step <= 8; step++) {
        record_begin(r, "metric", step, 1000 + step);
        step_report_record(s, r);
        take(v, r);
        record_begin(r, "layer", step, 1000 + step);
        step_report_record_layers(s, r);
        step_report_record_validation(s, r);
        take(v, r);
    }
    record_free(r);
    t_eq(v->invalid, 0);
    return v;
}

T(rows_have_names_texts_and_fields_of_their_own)
{
    for (int i = 0; run_metrics[i].name; i++) {
        const struct run_metric *m = &run_metrics[i];
        t_truef(m->name[0] && strlen(m->name) < 40 && m->label[0] && m->help[0], "%s", m->name);
        t_truef(m->offset > 0, "%s: the step is a key of every record", m->name);
        t_truef(!(m->flags & METRIC_PART) || strncmp(m->name, "time_", 5) == 0, "%s", m->name);
        t_true(run_metric_find(m->name) == m);
        for (int k = 0; k < i; k++)
            t_truef(run_metrics[k].offset != m->offset, "%s and %s", m->name, run_metrics[k].name);
    }
    t_true(run_metric_find("loss_of_another") == NULL);
}

/* Both are in one record, and what `=` and figures say of a name is the table's. */
T(methods_name_their_metrics_unlike_those_of_every_run)
{
    for (const struct route_ops *const *r = route_all(); *r; r++)
        for (size_t i = 0; i < (*r)->n_metrics; i++)
            t_truef((*r)->metrics[i].scope == METRIC_CELL ||
                        !run_metric_find((*r)->metrics[i].name),
                    "%s: %s", (*r)->name, (*r)->metrics[i].name);
}

T(each_row_is_in_the_head_and_in_the_records)
{
    struct step_report s;
    fill(&s);
    struct runview *v = view_of(&s);
    size_t layers = 0, steps = 0;
    for (int i = 0; run_metrics[i].name; i++) {
        const struct run_metric *m = &run_metrics[i];
        if (m->flags & METRIC_PER_LAYER) {
            const struct layer_series *x = runview_layer(v, m->name);
            t_truef(x && x->n == 2 && x->layers == LAYERS, "%s", m->name);
            t_str(x->help, m->help);
            t_str(x->unit, m->unit);
            t_near(x->value[LAYERS + 2], i + 1.5, 0);
            layers++;
        } else {
            const struct series *x = runview_series(v, m->name);
            t_truef(x && x->n == 2, "%s", m->name);
            t_str(x->help, m->help);
            t_str(x->unit, m->unit);
            t_near(x->value[1], want(i), 0);
            steps++;
        }
    }
    t_eq(v->n_layer, layers);
    t_eq(v->n_series, steps);
    runview_free(v);
    step_report_release(&s);
}

static struct json *json_of(const struct step_report *s)
{
    struct str o = {0};
    struct json *j = NULL;
    struct err e = {0};
    str_add(&o, "{");
    step_report_json(s, &o);
    str_add(&o, "}");
    t_ok(json_parse(&j, str_text(&o), o.len, "step", &e), &e);
    str_release(&o);
    return j;
}

T(each_row_of_a_step_is_in_the_json_line)
{
    struct step_report s;
    fill(&s);
    struct json *j = json_of(&s);
    const struct json_node *root = json_root(j), *share = json_get(root, "share");
    size_t members = 2, parts = 0; /* step and share */
    double sum = 0;
    t_eq(json_int(json_get(root, "step"), 0), 7);
    for (int i = 0; run_metrics[i].name; i++) {
        const struct run_metric *m = &run_metrics[i];
        const struct json_node *x = json_get(root, m->name);
        if (m->flags & METRIC_PER_LAYER)
            continue;
        t_truef(x != NULL, "%s", m->name);
        t_near(json_num(x, -1), want(i), 1e-9);
        members++;
        if (!(m->flags & METRIC_PART))
            continue;
        x = json_get(share, run_metric_part(m));
        t_near(json_num(x, -1), want(i) / (s.step_ms + s.ms[STEP_RECORD]), 1e-8);
        sum += want(i);
        parts++;
    }
    t_eq(json_len(root), members);
    t_eq(json_len(share), parts);
    t_eq(parts, STEP_PARTS);
    t_true(sum > 0);
    json_free(j);
    step_report_release(&s);
}

T(what_a_step_did_not_measure_is_absent)
{
    struct step_report s;
    fill(&s);
    s.has_val = s.has_kd = 0;
    s.mfu = (double)NAN;
    s.grad_norm = (double)NAN; /* a bad step: recorded, null in JSON */
    struct runview *v = view_of(&s);
    struct json *j = json_of(&s);
    static const char *const absent[] = {"val_loss", "bits_per_byte", "time_ratio", "kd_loss",
                                         "mfu"};
    for (size_t i = 0; i < DS_LEN(absent); i++) {
        t_true(runview_series(v, absent[i]) == NULL);
        t_true(json_get(json_root(j), absent[i]) == NULL);
    }
    t_eq(runview_series(v, "grad_norm")->nonfinite, 2);
    t_true(json_get(json_root(j), "grad_norm") != NULL);
    t_eq(json_kind_of(json_get(json_root(j), "grad_norm")), JSON_KIND_NULL);
    runview_free(v);
    s.has_val = 1;
    s.time_ratio = (double)INFINITY;
    v = view_of(&s);
    t_true(runview_series(v, "val_loss") && !runview_series(v, "time_ratio"));
    runview_free(v);
    json_free(j);
    step_report_release(&s);
}

T(figures_label_the_axis_with_label_and_unit_of_the_row)
{
    struct step_report s;
    fill(&s);
    struct runview *v = view_of(&s);
    struct figure_run run = {.view = v, .path = "one"};
    for (int i = 0; run_metrics[i].name; i++) {
        const struct run_metric *m = &run_metrics[i];
        struct figure f;
        struct figure_options o;
        struct err e = {0};
        struct str drawn = {0};
        char label[128];
        if (m->flags & METRIC_PER_LAYER)
            continue;
        figure_options_default(&o);
        o.metric = m->name;
        t_ok(figure_make(&f, "training", &run, 1, &o, &e), &e);
        pen_list_print(f.list, &drawn);
        snprintf(label, sizeof label, m->unit[0] ? "%s (%s)" : "%s", m->label, m->unit);
        t_truef(strstr(str_text(&drawn), label) != NULL, "%s: no \"%s\"", m->name, label);
        str_release(&drawn);
        figure_release(&f);
    }
    runview_free(v);
    step_report_release(&s);
}

T(a_metric_that_the_table_lacks_is_labelled_from_the_head)
{
    char label[64];
    run_metric_label(label, sizeof label, "target_loss", "nats");
    t_str(label, "target_loss (nats)");
    run_metric_label(label, sizeof label, "reward", "");
    t_str(label, "reward");
    run_metric_label(label, sizeof label, "loss", "bits/token"); /* another program's unit */
    t_str(label, "Training loss (bits/token)");
}

T(of_accuracies_and_speeds_more_is_better)
{
    t_true(metric_is_gain("accuracy") && metric_is_gain("decode_tok_s"));
    t_true(!metric_is_gain("val_loss") && !metric_is_gain("time_ratio"));
}

T(a_new_step_keeps_only_the_layer_values)
{
    struct step_report s;
    fill(&s);
    step_report_reset(&s);
    t_eq(s.layers, LAYERS);
    t_true(s.layer[LAYER_GRAD_NORM][1] > 0);
    t_true(s.loss == 0 && s.has_val == 0 && s.tokens == 0 && s.ms[STEP_DATA] == 0);
    step_report_release(&s);
}
