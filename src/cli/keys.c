/* Lists the configuration keys of a method or group from the option tables, as text or JSON. */
#include "cli/keys.h"

#include <string.h>

#include "base/mem.h"
#include "cli/cli.h"
#include "eval/generation.h"
#include "eval/perplexity.h"
#include "eval/speed.h"
#include "models/config.h"
#include "routing/route.h"
#include "training/options.h"

enum { GROUPS_MAX = 64 };

struct groups {
    struct opt_group group[GROUPS_MAX];
    const char *name[GROUPS_MAX + 1];
    char prefix[GROUPS_MAX][40];
    size_t n;
};

static void groups_fill(struct groups *s)
{
    static const struct {
        const char *name;
        const struct opt_group *group;
    } common[] = {{"run", &run_group},   {"model", &model_group}, {"train", &train_group},
                  {"data", &data_group}, {"hops", &hops_group},   {"alert", &alert_group}};
    s->n = 0;
    for (size_t i = 0; i < DS_LEN(common); i++, s->n++) {
        s->name[s->n] = common[i].name;
        s->group[s->n] = *common[i].group;
    }
    for (const struct route_ops *const *m = route_all(); *m && s->n < GROUPS_MAX; m++, s->n++) {
        s->name[s->n] = (*m)->name;
        s->group[s->n] = route_group(*m, s->prefix[s->n]);
    }
}

const struct opt_group *keys_groups(const char *command)
{
    static struct groups all;
    static const struct {
        const char *command;
        const struct opt_group *group;
    } own[] = {
        {"eval", &ppl_group},    {"calibrate", &ppl_group}, {"generate", &gen_group},
        {"trace", &trace_group}, {"bench", &speed_group},   {"convert", &convert_group},
        {"get", &get_group},
    };
    /* convert: of random:PRESET */
    static const char *const of_runs[] = {"train",   "sweep",    "ablate",
                                          "isoflop", "pipeline", "convert"};
    static struct opt_group found[GROUPS_MAX + 2];
    size_t n = 0;
    for (size_t i = 0; i < DS_LEN(own); i++)
        if (strcmp(own[i].command, command) == 0)
            found[n++] = *own[i].group;
    if (strcmp(command, "bench") == 0)
        found[n++] = model_group;
    for (size_t i = 0; i < DS_LEN(of_runs); i++)
        if (strcmp(of_runs[i], command) == 0) {
            groups_fill(&all);
            memcpy(found + n, all.group, all.n * sizeof *found);
            n += all.n;
        }
    found[n] = (struct opt_group){0};
    return found;
}

/* "0 to 1", "a|b", "true|false", or "" when unrestricted. */
static void describe_range(const struct opt *o, char *out, size_t size)
{
    int is_limited = o->min < o->max || (o->min == o->max && o->min != 0);
    out[0] = '\0';
    if (o->type == OPT_ENUM)
        str_copy(out, size, o->choices);
    else if (o->type == OPT_BOOL)
        str_copy(out, size, "true|false");
    else if (o->type != OPT_STRING && is_limited)
        snprintf(out, size, "%.10g to %.10g", o->min, o->max);
}

const char *keys_live_note(const struct opt *o)
{
    return o->is_live ? "; can be set while a run trains" : "";
}

static const char *default_of(const struct opt *o)
{
    return !o->otherwise ? "0" : o->otherwise[0] ? o->otherwise : "\"\"";
}

static void add_json(struct str *out, const struct opt_group *g)
{
    static const char *const type[] = {[OPT_INT] = "int",
                                       [OPT_REAL] = "real",
                                       [OPT_BOOL] = "bool",
                                       [OPT_STRING] = "string",
                                       [OPT_ENUM] = "enum"};
    for (size_t i = 0; i < g->n; i++) {
        const struct opt *o = &g->opts[i];
        char key[128];
        snprintf(key, sizeof key, "%s%s", g->prefix, o->key);
        json_key(out, NULL);
        str_add(out, "{");
        json_add_str(out, "key", key);
        if (o->alias)
            json_add_str(out, "alias", o->alias);
        json_add_str(out, "type", type[o->type]);
        json_add_str(out, "default", o->otherwise ? o->otherwise : "");
        if (o->min < o->max) {
            json_add_num(out, "min", o->min);
            json_add_num(out, "max", o->max);
        }
        if (o->choices)
            json_add_str(out, "choices", o->choices);
        json_key(out, "live");
        str_add(out, o->is_live ? "true" : "false");
        json_add_str(out, "help", o->help ? o->help : "");
        str_add(out, "}");
    }
}

struct widths {
    int key, value, range;
};

static void measure(const struct opt_group *g, struct widths *w)
{
    for (size_t i = 0; i < g->n; i++) {
        char range[200];
        int key = (int)(strlen(g->prefix) + strlen(g->opts[i].key)),
            value = (int)strlen(default_of(&g->opts[i]));
        describe_range(&g->opts[i], range, sizeof range);
        int n = (int)strlen(range);
        w->key = key > w->key ? key : w->key;
        w->value = value > w->value ? value : w->value;
        w->range = n > w->range ? n : w->range;
    }
}

static void add_lines(struct str *out, const struct opt_group *g, const struct widths *w)
{
    for (size_t i = 0; i < g->n; i++) {
        const struct opt *o = &g->opts[i];
        char key[128], range[200];
        snprintf(key, sizeof key, "%s%s", g->prefix, o->key);
        describe_range(o, range, sizeof range);
        str_addf(out, "%-*s  %-*s  %-*s  %s", w->key, key, w->value, default_of(o), w->range, range,
                 o->help ? o->help : "");
        if (o->alias)
            str_addf(out, "; also %s", o->alias);
        str_add(out, keys_live_note(o));
        str_add_char(out, '\n');
    }
}

void keys_lines(struct str *out, const struct opt_group *g, int width)
{
    enum { KEY_MAX = 26, VALUE_MAX = 10 };
    struct widths w = {0};
    measure(g, &w);
    int key_width = w.key < KEY_MAX ? w.key : KEY_MAX,
        value_width = w.value < VALUE_MAX ? w.value : VALUE_MAX,
        indent = width >= 60 ? key_width + value_width + 4 : 6;
    for (size_t i = 0; i < g->n; i++) {
        const struct opt *o = &g->opts[i];
        struct str line = {0};
        char range[200];
        describe_range(o, range, sizeof range);
        str_addf(&line, "%s%s", g->prefix, o->key);
        str_addf(&line, "%*s  %s", line.len < (size_t)key_width ? key_width - (int)line.len : 0, "",
                 default_of(o));
        int is_wide = (int)line.len + 2 > indent;
        str_addf(out, "%s%s%*s", str_text(&line), is_wide ? "\n" : "",
                 is_wide ? indent : indent - (int)line.len, "");
        str_reset(&line);
        str_addf(&line, "%s%s%s%s%s%s%s", o->help ? o->help : "", range[0] ? " (" : "", range,
                 range[0] ? ")" : "", o->alias ? "; also " : "", o->alias ? o->alias : "",
                 keys_live_note(o));
        for (char *p = line.p; p && *p; p++)
            *p = *p == '`' ? '\'' : *p; /* Markdown code quotes */
        cli_add_wrapped(out, str_text(&line), indent, indent, width);
        str_add_char(out, '\n');
        out->failed |= line.failed;
        str_release(&line);
    }
}

int keys_print(const char *of, int json)
{
    static struct groups s;
    struct widths w = {0};
    struct str out = {0};
    size_t found = 0;
    int all = strcmp(of, "all") == 0;
    groups_fill(&s);
    for (size_t i = 0; i < s.n; i++)
        if (all || strcmp(s.name[i], of) == 0) {
            found++;
            measure(&s.group[i], &w);
        }
    if (!found) {
        struct err e = {0};
        s.name[s.n] = "all";
        err_set(&e, DS_EUSAGE, "--keys %s: unknown method or group, did you mean %s?", of,
                cli_nearest(of, s.name, s.n + 1));
        return command_fail(&e);
    }
    str_add(&out, json ? "[" : "");
    for (size_t i = 0; i < s.n; i++) {
        if (!all && strcmp(s.name[i], of) != 0)
            continue;
        if (json)
            add_json(&out, &s.group[i]);
        else if (cli_columns(0) > 0)
            keys_lines(&out, &s.group[i], cli_columns(0));
        else
            add_lines(&out, &s.group[i], &w);
    }
    if (json)
        str_add(&out, "]\n");
    else if (out.len == 0)
        str_addf(&out, "%s has no keys of its own (depthscope train --keys model)\n", of);
    return cli_print(&out);
}
