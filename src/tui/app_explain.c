/* Explains the value under the cursor: definition, unit, formula, and the record it comes from. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "io/metric.h"
#include "training/job.h"
#include "tui/appstate.h"

/* Where a definition was found, in the order of the search. */
struct meaning {
    const char *help, *unit, *formula, *choices, *kind;
};

static const struct job_key *find_key(const char *key)
{
    size_t n;
    const struct job_key *k = job_keys(&n);
    for (size_t i = 0; i < n; i++)
        if (strcmp(k[i].key, key) == 0)
            return &k[i];
    return NULL;
}

static struct meaning meaning_of(const struct runview *r, const char *key)
{
    const struct run_metric *m = run_metric_find(key);
    const struct job_key *k = find_key(key);
    const char *help = r ? runview_help(r, key) : "", *unit = r ? runview_unit(r, key) : "";
    struct meaning out = {help[0] ? help : NULL, unit[0] ? unit : NULL, NULL, NULL, "metric"};
    if (m) {
        out.help = out.help ? out.help : m->help;
        out.unit = out.unit ? out.unit : m->unit[0] ? m->unit : NULL;
        out.formula = m->formula;
    }
    if (!out.help && k)
        out = (struct meaning){k->help, NULL, NULL, k->choices, "setting"};
    return out;
}

static void add_line(struct str *out, const char *name, const char *text)
{
    if (!text || !text[0])
        return;
    str_addf(out, "%-11s ", name);
    copy_add(out, text); /* a newline in the name of a run begins no line here */
    str_add_char(out, '\n');
}

static void explain_text(struct app *app, const struct subject *s, struct str *out)
{
    struct meaning m = meaning_of(app_run(app), s->key);
    char value[24], source[96] = "";
    const char *unit = s->unit ? s->unit : m.unit;
    add_line(out, "what", s->where);
    if (isfinite(s->value) || s->text[0])
        str_addf(out, "%-11s %s%s%s\n", "value", s->text[0] ? s->text : num_print(value, s->value),
                 unit ? " " : "", unit ? unit : "");
    add_line(out, "definition", s->help ? s->help : m.help);
    add_line(out, "unit",
             unit                                           ? unit
             : !s->text[0] && strcmp(m.kind, "metric") == 0 ? "none (a number)"
                                                            : NULL);
    add_line(out, "formula", s->formula ? s->formula : m.formula);
    add_line(out, "choices", m.choices);
    if (s->record && s->step >= 0)
        snprintf(source, sizeof source, "%s, step %lld", s->record, (long long)s->step);
    else if (s->record)
        str_copy(source, sizeof source, s->record);
    add_line(out, "source", source);
    if (!s->help && !m.help)
        str_add(out, "\nThe run's log does not define this value: its head record has no row for "
                     "it.\n");
}

/* The subject of the focused view, or one that has only a name. */
static int find_subject(struct app *app, const char *name, struct subject *s)
{
    struct view *v = app_focused_view(app);
    *s = (struct subject){.value = (double)NAN, .step = -1};
    if (!name || !*name)
        return v && v->ops->subject && v->ops->subject(v, s) && s->key[0];
    str_copy(s->key, sizeof s->key, name);
    const struct runview *r = app_run(app);
    const struct series *m = r ? runview_series(r, name) : NULL;
    const char *set = r ? runview_config(r, name) : NULL;
    if (m && m->n) {
        s->value = m->value[m->n - 1];
        s->step = m->step[m->n - 1];
        s->record = "metric record";
    } else if (set) {
        double now;
        int is_changed = runview_live_value(r, name, &now) && now != strtod(set, NULL);
        str_copy(s->text, sizeof s->text, set);
        if (is_changed)
            snprintf(s->text, sizeof s->text, "%.10g, configured %.40s", now, set);
        s->record = is_changed ? "event that set it" : "head record (configuration)";
    }
    struct meaning found = meaning_of(r, name);
    return m || set || found.help;
}

void app_explain(struct app *app, const char *name)
{
    struct subject s;
    int is_found = find_subject(app, name, &s);
    if (!is_found && name && *name) {
        app_notify(app, LOG_WARN, "%s: not a metric, a recorded value or a setting", name);
        return;
    }
    if (!is_found) {
        app_notify(app, LOG_INFO, "nothing to explain under the cursor");
        return;
    }
    app->explain = s;
    app->has_explain = 1;
    app->help_scroll.top = 0;
    app->is_dirty = 1;
}

void app_explain_draw(struct app *app, struct area a)
{
    struct str text = {0};
    explain_text(app, &app->explain, &text);
    int cols = a.cols < 80 ? a.cols - 4 : 76, rows = a.rows < 14 ? a.rows - 2 : 10;
    struct area inner = popup_begin(a, rows, cols, app->explain.key);
    struct area body = area_sub(inner, 0, 0, inner.rows - (inner.rows > 6), inner.cols);
    scroll_text(&app->help_scroll, body, str_text(&text), ink(ROLE_TEXT));
    if (inner.rows > 6)
        area_text(inner, inner.rows - 1, 0, -1, ink(ROLE_HINT), "Esc closes");
    str_release(&text);
}
