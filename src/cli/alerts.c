/* depthscope alerts: what a run reported, and what the user's rules find in its records now. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "base/mem.h"
#include "cli/cli.h"
#include "io/alert.h"
#include "io/runview.h"

struct cli_option alerts_options[] = {
    {.name = "json", .help = "a JSON array of objects"},
    {.name = "now", .help = "only what holds now"},
    {.name = NULL},
};

static const char usage_after[] =
    "\nAlerts that the run recorded (alert.* of its settings), and those that the rules of "
    "$XDG_CONFIG_HOME/depthscope/settings.yaml find now in a run that has not ended.\n";

struct found {
    const char *run, *source, *text;
    int rule, level, is_over, is_now;
    int64_t step;
    double time, value;
};

static void add_json(struct str *out, const struct found *f)
{
    static const char *const level[] = {"debug", "info", "warn", "error"};
    json_key(out, NULL);
    str_add(out, "{");
    json_add_str(out, "run", f->run);
    json_add_str(out, "rule", alert_name((enum alert_rule)f->rule));
    json_add_str(out, "level", level[f->level & 3]);
    json_add_int(out, "step", f->step);
    json_key(out, "time");
    if (isfinite(f->time))
        str_add_real(out, f->time); /* all digits of a wall clock */
    else
        str_add(out, "null");
    json_add_num(out, "value", f->value);
    json_key(out, "over");
    str_add(out, f->is_over ? "true" : "false");
    json_key(out, "now");
    str_add(out, f->is_now ? "true" : "false");
    json_add_str(out, "source", f->source);
    json_add_str(out, "text", f->text);
    str_add(out, "}");
}

static void add_row(struct table *t, const struct found *f, double now)
{
    char age[16];
    table_add(t, f->run);
    table_add(t, alert_name((enum alert_rule)f->rule));
    table_add(t, f->is_over ? "over" : f->is_now ? "now" : "was");
    table_addf(t, "%lld", (long long)f->step);
    table_addf(t, isfinite(f->time) && f->time > 0 ? "%s ago" : "-",
               str_duration(age, f->time <= now ? floor(now - f->time) : 0));
    table_add(t, f->source);
    table_add(t, f->text);
}

struct list {
    struct str *out; /* JSON, or */
    struct table table;
    int is_json, only_now, n;
    double now;
};

static void put(struct list *l, const struct found *f)
{
    if (l->only_now && !f->is_now)
        return;
    l->n++;
    if (l->is_json)
        add_json(l->out, f);
    else
        add_row(&l->table, f, l->now);
}

static void list_run(struct list *l, const struct runview *v, const struct alert_options *o)
{
    struct alert_watch w;
    struct alert a;
    alert_watch_init(&w, o);
    alert_watch_view(&w, v, l->now);
    unsigned judged = 0;
    size_t last[ALERT_RULES] = {0};
    for (size_t i = 0; i < v->n_events; i++)
        if (v->event[i].alert > 0)
            last[v->event[i].alert - 1] = i;
    for (size_t i = 0; i < v->n_events; i++) {
        const struct run_event *e = &v->event[i];
        int rule = (e->alert < 0 ? -e->alert : e->alert) - 1;
        if (rule < 0)
            continue;
        put(l, &(struct found){.run = v->name, .source = "run", .text = e->text, .rule = rule,
                               .level = e->level, .is_over = e->alert < 0,
                               .is_now = e->alert > 0 && last[rule] == i &&
                                         w.episode[rule].recorded,
                               .step = e->step, .time = e->time, .value = e->value});
        judged |= e->alert > 0 && w.episode[rule].recorded ? 1U << rule : 0;
    }
    while (alert_next(&w, &a))
        if (!a.is_over && w.episode[a.rule].judged && !(judged & 1U << a.rule))
            put(l, &(struct found){.run = v->name, .source = "settings", .text = a.text,
                                   .rule = (int)a.rule, .level = a.level, .is_now = 1,
                                   .step = a.step, .time = a.time, .value = a.value});
    alert_watch_release(&w);
}

static int alerts(const struct cli_args *a, struct str *out, struct err *e)
{
    static const int rank[] = {0, 0, 0, 2, 3, 4, 1};
    static const char *const title[] = {"run", "rule", "state", "step", "time", "source", "alert"};
    struct alert_options o = {0};
    struct notify_options n = {0};
    struct list l = {.out = out, .is_json = cli_flag(a, "json"), .only_now = cli_flag(a, "now"),
                     .now = clock_wall()};
    int rc = a->n_rest ? 0 : err_set(e, DS_EUSAGE, "alerts: missing RUN");
    if (rc == 0 && a->n_override > 0)
        rc = err_set(e, DS_EUSAGE, "alerts: unexpected setting %s", a->override[0]);
    if (rc == 0)
        rc = alert_settings(&o, &n, e);
    table_init(&l.table, DS_LEN(title));
    for (size_t i = 0; i < DS_LEN(title); i++)
        table_add(&l.table, title[i]);
    str_add(out, l.is_json ? "[" : "");
    for (int i = 0; i < a->n_rest && rc == 0; i++) {
        struct runview *v = NULL;
        char path[1024];
        rc = cli_run_path(path, sizeof path, a->rest[i], e);
        if (rc == 0)
            rc = runview_open(&v, path, e);
        if (rc == 0)
            list_run(&l, v, &o);
        runview_free(v);
    }
    if (l.is_json)
        str_add(out, "]\n");
    else if (rc == 0 && l.n > 0)
        table_fit(&l.table, out, cli_columns(0), rank);
    else if (rc == 0)
        str_add(out, "no alerts\n");
    table_release(&l.table);
    opt_release(&notify_group, &n);
    return rc;
}

int alerts_command(int argc, char **argv)
{
    cli_help_after(usage_after);
    return cli_report(argc, argv, alerts_options, alerts);
}
